#include "lab/rate_trace.h"

#include "base/prng.h"
#include "base/units.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 256, WORDS_MAX = 5 };

static const char allowed[] = "\"SECONDS HOST RATE\" with up or down after it or not, or "
                              "\"SECONDS repeat\"";

static size_t split(char *line, char *words[WORDS_MAX])
{
    size_t count = 0;
    char *rest = NULL;
    line[strcspn(line, "#\n")] = '\0';
    for (char *word = strtok_r(line, " \t\r", &rest); word != NULL && count < WORDS_MAX;
         word = strtok_r(NULL, " \t\r", &rest)) {
        words[count++] = word;
    }
    return count;
}

static bool parse_seconds(const char *text, uint64_t *ns_p)
{
    char *end = NULL;
    double seconds = strtod(text, &end);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || !(seconds < 1e7)) {
        return false;
    }
    *ns_p = (uint64_t)llround(seconds * (double)WEFT_NS_PER_S);
    return true;
}

static bool parse_link(char *const *words, size_t count, struct weft_lab_link *link)
{
    uint64_t rate_bps;
    if (!weft_lab_parse_rate(words[2], &rate_bps)) {
        return false;
    }
    bool up = count == 3 || strcmp(words[3], "up") == 0;
    bool down = count == 3 || strcmp(words[3], "down") == 0;
    *link = (struct weft_lab_link){up ? rate_bps : 0, down ? rate_bps : 0};
    return up || down;
}

static weft_status add(struct weft_lab_rate_trace *trace, const struct weft_lab_step *step)
{
    if (trace->count % 64 == 0) {
        struct weft_lab_step *more =
            realloc(trace->steps, (trace->count + 64) * sizeof(*trace->steps));
        if (more == NULL) {
            return WEFT_NOMEM;
        }
        trace->steps = more;
    }
    trace->steps[trace->count++] = *step;
    return WEFT_OK;
}

/* Parse one line; NULL if it is valid, else the error. */
static const char *take_line(struct weft_lab_rate_trace *trace, char *line, uint32_t hosts)
{
    char *words[WORDS_MAX];
    size_t count = split(line, words);
    struct weft_lab_step step;
    if (count == 0) {
        return NULL;
    }
    if (trace->repeat_ns != 0) {
        return "`repeat` must be the last line";
    }
    if (count == 1 || count > 4 || !parse_seconds(words[0], &step.at_ns)) {
        return allowed;
    }
    if (trace->count > 0 && step.at_ns < trace->steps[trace->count - 1].at_ns) {
        return "its time is before that of the line above";
    }
    if (count == 2 && strcmp(words[1], "repeat") == 0) {
        trace->repeat_ns = step.at_ns;
        return step.at_ns > 0 && trace->count > 0 ? NULL
                                                  : "`repeat` needs steps and a time above 0";
    }
    if (count == 2) {
        return allowed;
    }
    if (!weft_lab_parse_host(words[1], hosts, &step.host)) {
        return "there is no such host in this lab";
    }
    if (!parse_link(words, count, &step.link)) {
        return allowed;
    }
    if (trace->count == WEFT_LAB_RATE_TRACE_STEPS_MAX) {
        return "it has more than 100000 steps";
    }
    return add(trace, &step) == WEFT_OK ? NULL : "out of memory";
}

weft_status weft_lab_rate_trace_read(const char *path, uint32_t hosts,
                                     struct weft_lab_rate_trace *trace_p, struct weft_error *error)
{
    struct weft_lab_rate_trace trace = {0};
    char line[LINE_BYTES];
    unsigned number = 0;
    const char *wrong = NULL;
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return weft_fail(error, WEFT_IO, "cannot read %s: %s", path, strerror(errno));
    }
    while (wrong == NULL && fgets(line, sizeof(line), file) != NULL) {
        number++;
        wrong =
            strlen(line) + 1 == sizeof(line) ? "it is too long" : take_line(&trace, line, hosts);
    }
    bool unread = ferror(file) != 0;
    fclose(file);
    if (wrong != NULL) {
        weft_lab_rate_trace_free(&trace);
        return weft_fail(error, WEFT_DATA, "%s:%u: %s%s", path, number,
                         wrong == allowed ? "a line must be " : "", wrong);
    }
    if (unread) {
        weft_lab_rate_trace_free(&trace);
        return weft_fail(error, WEFT_IO, "cannot read %s", path);
    }
    *trace_p = trace;
    return WEFT_OK;
}

uint64_t weft_lab_rate_trace_hash(const struct weft_lab_rate_trace *trace)
{
    uint64_t hash = weft_mix64(trace->repeat_ns + 1);
    for (size_t i = 0; i < trace->count; i++) {
        const struct weft_lab_step *step = &trace->steps[i];
        hash = weft_mix64(hash ^ step->at_ns);
        hash = weft_mix64(hash ^ step->host);
        hash = weft_mix64(hash ^ step->link.up_bps);
        hash = weft_mix64(hash ^ step->link.down_bps);
    }
    return hash;
}

void weft_lab_rate_trace_free(struct weft_lab_rate_trace *trace)
{
    free(trace->steps);
    *trace = (struct weft_lab_rate_trace){0};
}

uint64_t weft_lab_play_deadline(const struct weft_lab_play *play)
{
    const struct weft_lab_rate_trace *trace = play->trace;
    if (play->next < trace->count) {
        return play->start_ns + trace->steps[play->next].at_ns;
    }
    return trace->repeat_ns != 0 ? play->start_ns + trace->repeat_ns : WEFT_NEVER;
}

const struct weft_lab_step *weft_lab_play_step(struct weft_lab_play *play, uint64_t now_ns)
{
    if (now_ns < weft_lab_play_deadline(play)) {
        return NULL;
    }
    if (play->next == play->trace->count) {
        play->start_ns += play->trace->repeat_ns;
        play->next = 0;
        if (now_ns < weft_lab_play_deadline(play)) {
            return NULL;
        }
    }
    return &play->trace->steps[play->next++];
}
