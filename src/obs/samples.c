#include "obs/samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The end of the labels: the brace that is not inside quotes; NULL if it is missing. */
static char *labels_end(char *at)
{
    bool quoted = false;
    for (; *at != '\0'; at++) {
        if (quoted && *at == '\\' && at[1] != '\0') {
            at++;
        } else if (*at == '"') {
            quoted = !quoted;
        } else if (*at == '}' && !quoted) {
            return at;
        }
    }
    return NULL;
}

/* name{labels} value [timestamp] */
static bool parse_line(char *line, struct weft_sample *sample_p)
{
    size_t name_bytes =
        strspn(line, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:");
    char *at = line + name_bytes;
    const char *labels = "";
    if (name_bytes == 0) {
        return false;
    }
    if (*at == '{') {
        char *end = labels_end(at + 1);
        if (end == NULL) {
            return false;
        }
        labels = at + 1;
        *at = *end = '\0';
        at = end + 1;
    } else if (*at == ' ' || *at == '\t') {
        *at++ = '\0';
    } else {
        return false;
    }
    char *end;
    double value = strtod(at, &end);
    if (!(value >= 0 && value <= 1e19)) {
        return false; /* no metric of weft has such a value */
    }
    if (end == at || (*end != '\0' && *end != ' ' && *end != '\t' && *end != '\r')) {
        return false;
    }
    *sample_p = (struct weft_sample){.name = line, .labels = labels, .value = value};
    return true;
}

static bool add(struct weft_samples *samples, const struct weft_sample *sample)
{
    if (samples->count == samples->room) {
        uint32_t room = samples->room != 0 ? 2 * samples->room : 1024;
        struct weft_sample *grown = realloc(samples->at, room * sizeof(*grown));
        if (grown == NULL) {
            return false;
        }
        samples->at = grown;
        samples->room = room;
    }
    samples->at[samples->count++] = *sample;
    return true;
}

weft_status weft_samples_parse(char *text, struct weft_samples *samples_p)
{
    struct weft_samples samples = {.text = text};
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line != NULL && samples.count < WEFT_SAMPLES_MAX;
         line = strtok_r(NULL, "\n", &save)) {
        struct weft_sample sample;
        if (line[0] != '#' && parse_line(line, &sample) && !add(&samples, &sample)) {
            weft_samples_fini(&samples);
            return WEFT_NOMEM;
        }
    }
    if (samples.count == 0) {
        weft_samples_fini(&samples);
        return WEFT_DATA;
    }
    *samples_p = samples;
    return WEFT_OK;
}

void weft_samples_fini(struct weft_samples *samples)
{
    free(samples->text);
    free(samples->at);
    *samples = (struct weft_samples){0};
}

double weft_samples_sum(const struct weft_samples *samples, const char *name, const char *with)
{
    double sum = 0;
    for (uint32_t i = 0; i < samples->count; i++) {
        const struct weft_sample *sample = &samples->at[i];
        if (strcmp(sample->name, name) == 0 &&
            (with == NULL || strstr(sample->labels, with) != NULL)) {
            sum += sample->value;
        }
    }
    return sum;
}

bool weft_samples_have(const struct weft_samples *samples, const char *name)
{
    for (uint32_t i = 0; i < samples->count; i++) {
        if (strcmp(samples->at[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool label_value(const char *labels, const char *key, char *value_p, size_t bytes)
{
    size_t key_bytes = strlen(key);
    for (const char *at = labels; (at = strstr(at, key)) != NULL; at += key_bytes) {
        bool begins = at == labels || at[-1] == ',';
        if (begins && at[key_bytes] == '=' && at[key_bytes + 1] == '"') {
            const char *value = at + key_bytes + 2;
            snprintf(value_p, bytes, "%.*s", (int)strcspn(value, "\""), value);
            return true;
        }
    }
    return false;
}

bool weft_samples_label(const struct weft_samples *samples, const char *name, const char *key,
                        char *value_p, size_t bytes)
{
    for (uint32_t i = 0; i < samples->count; i++) {
        if (strcmp(samples->at[i].name, name) == 0 &&
            label_value(samples->at[i].labels, key, value_p, bytes)) {
            return true;
        }
    }
    return false;
}
