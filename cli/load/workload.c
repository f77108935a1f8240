#include "cli/load/workload.h"

#include "ml/number.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const weft_load_evictions[] = {[WEFT_LOAD_EVICTION_AUTO] = "auto",
                                           [WEFT_LOAD_LRU] = "lru",
                                           [WEFT_LOAD_NO_EVICTION] = "none",
                                           [WEFT_LOAD_NO_EVICTION + 1] = NULL};

/* ---- values ---------------------------------------------------------------------------------- */

/* A finite decimal, whole text. */
static bool decimal(const char *text, double *value_p)
{
    char *end;
    if (!isdigit((unsigned char)text[0]) && text[0] != '.') {
        return false;
    }
    double value = strtod(text, &end);
    if (*end != '\0' || !isfinite(value)) {
        return false;
    }
    *value_p = value;
    return true;
}

const char *weft_load_parse_mix(const char *text, void *value)
{
    struct weft_load_mix mix;
    uint64_t push = 0, pull = 0;
    const char *colon = strchr(text, ':');
    if (colon == NULL || !weft_ml_number_u64(text, (size_t)(colon - text), &push) ||
        !weft_ml_number_u64(colon + 1, strlen(colon + 1), &pull) || push > 1000000 ||
        pull > 1000000 || push + pull == 0) {
        return "PUSH:PULL, two whole numbers that are not both 0, such as 1:1";
    }
    mix = (struct weft_load_mix){.push = (uint32_t)push, .pull = (uint32_t)pull};
    *(struct weft_load_mix *)value = mix;
    return NULL;
}

const char *weft_load_parse_top(const char *text, void *value)
{
    struct weft_load_top top;
    const char *colon = strchr(text, ':');
    if (colon == NULL || !weft_ml_number_u64(text, (size_t)(colon - text), &top.keys) ||
        top.keys == 0 || !decimal(colon + 1, &top.share) || !(top.share > 0 && top.share < 1)) {
        return "KEYS:FRACTION, a whole number and a fraction between 0 and 1, such as 20000:0.5";
    }
    *(struct weft_load_top *)value = top;
    return NULL;
}

const char *weft_load_parse_id_bits(const char *text, void *value)
{
    if (strcmp(text, "64") != 0 && strcmp(text, "32") != 0) {
        return "64 or 32";
    }
    *(uint32_t *)value = text[0] == '6' ? 64 : 32;
    return NULL;
}

const char *weft_load_parse_scale(const char *text, void *value)
{
    struct weft_load_workload *workload = value;
    if (text[0] != 'S' || text[1] < '1' || text[1] > '6' || text[2] != '\0') {
        return "S1, S2, S3, S4, S5 or S6";
    }
    uint32_t step = (uint32_t)(text[1] - '1');
    workload->workers = 80 + 40 * step;
    workload->shards = 20 + 10 * step;
    return NULL;
}

/* ---- the file -------------------------------------------------------------------------------- */

enum { LINE_BYTES = 256 };

static char *trimmed(char *text)
{
    while (isspace((unsigned char)*text)) {
        text++;
    }
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1])) {
        *--end = '\0';
    }
    return text;
}

/* Options that describe the run, not the workload, are not in a file. */
static bool is_key(const char *key)
{
    static const char *const keys[] = {"local", "workers", "scale",     "rows",   "dim",
                                       "mix",   "keys",    "zipf-top",  "rate",   "id-bits",
                                       "seed",  "warmup",  "in-flight", "seconds",
                                       "eviction"};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(keys); i++) {
        if (strcmp(keys[i], key) == 0) {
            return true;
        }
    }
    return false;
}

/* Process `key = value` like --key=value. */
static int take_line(const struct weft_command *command, const char *path, unsigned number,
                     char *line)
{
    char *text = trimmed(line);
    char *equals = strchr(text, '=');
    if (text[0] == '\0') {
        return WEFT_OPTIONS_RUN;
    }
    if (equals == NULL) {
        fprintf(stderr, "weft load: %s line %u is not `key = value`: \"%.80s\"\n", path, number,
                text);
        return WEFT_EXIT_USAGE;
    }
    *equals = '\0';
    const char *key = trimmed(text), *value = trimmed(equals + 1);
    if (!is_key(key)) {
        fprintf(stderr,
                "weft load: %s line %u: unknown key \"%.80s\"; `weft load --print-workload` lists "
                "the keys\n",
                path, number, key);
        return WEFT_EXIT_USAGE;
    }
    char word[LINE_BYTES + 8];
    (void)snprintf(word, sizeof(word), "--%s=%s", key, value);
    char name[] = "load";
    char *argv[] = {name, word};
    int status = weft_options_parse(command, 2, argv);
    if (status != WEFT_OPTIONS_RUN) {
        fprintf(stderr, "(from %s line %u)\n", path, number);
    }
    return status;
}

int weft_load_workload_read(const struct weft_command *command, const char *path)
{
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return weft_cli_fail("load", "cannot read %s: %s", path, strerror(errno));
    }
    char line[LINE_BYTES];
    int status = WEFT_OPTIONS_RUN;
    for (unsigned number = 1; status == WEFT_OPTIONS_RUN && fgets(line, sizeof(line), file) != NULL;
         number++) {
        if (strlen(line) == sizeof(line) - 1 && line[sizeof(line) - 2] != '\n') {
            fprintf(stderr, "weft load: %s line %u is longer than %d bytes\n", path, number,
                    LINE_BYTES - 2);
            status = WEFT_EXIT_USAGE;
            break;
        }
        line[strcspn(line, "#")] = '\0';
        status = take_line(command, path, number, line);
    }
    if (status == WEFT_OPTIONS_RUN && ferror(file) != 0) {
        fprintf(stderr, "weft load: cannot read %s: %s\n", path, strerror(errno));
        status = WEFT_EXIT_FAILED;
    }
    (void)fclose(file);
    return status;
}

void weft_load_workload_print(const struct weft_load_workload *w, FILE *out)
{
    fprintf(out, "# A workload of `weft load` (docs/LOAD.md): weft load --workload FILE\n");
    if (w->shards != 0) {
        fprintf(out, "local = %u\n", w->shards);
    }
    fprintf(out, "workers = %u\nrows = %u\ndim = %u\nmix = %u:%u\n", w->workers, w->rows, w->dim,
            w->mix.push, w->mix.pull);
    fprintf(out, "keys = %llu\nzipf-top = %llu:%.12g\nid-bits = %u\nin-flight = %u\n",
            (unsigned long long)w->keys, (unsigned long long)w->top.keys, w->top.share, w->id_bits,
            w->in_flight);
    if (w->rate > 0) {
        fprintf(out, "rate = %.12g\n", w->rate);
    }
    if (w->eviction != WEFT_LOAD_EVICTION_AUTO) {
        fprintf(out, "eviction = %s\n", weft_load_evictions[w->eviction]);
    }
    fprintf(out, "seconds = %.12g\nwarmup = %.12g\nseed = %llu\n", w->seconds, w->warmup,
            (unsigned long long)w->seed);
}
