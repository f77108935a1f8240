/* One scrape: the samples of an exposition, parsed from untrusted text.
 *
 * Lines that are not valid samples are skipped; at most WEFT_SAMPLES_MAX samples are stored. Names
 * and labels point into the text, which the scrape owns.
 */
#ifndef WEFT_OBS_SAMPLES_H
#define WEFT_OBS_SAMPLES_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WEFT_SAMPLES_MAX = 50000 };

struct weft_sample {
    const char *name;
    const char *labels; /* as written, without braces; "" = none */
    double value;
};

struct weft_samples {
    char *text;
    struct weft_sample *at; /* (count,) */
    uint32_t count;
    uint32_t room;
};

/* Owns:    takes text (from malloc, ends with a zero), also after an error.
 * Errors:  WEFT_NOMEM.  WEFT_DATA  it has no sample. */
weft_status weft_samples_parse(char *text, struct weft_samples *samples_p);

/* A zeroed one is allowed. */
void weft_samples_fini(struct weft_samples *samples);

/* Sum of all samples of that name whose labels contain `with` (`kind="push"`); NULL = all. 0 if
 * there are none. */
double weft_samples_sum(const struct weft_samples *samples, const char *name, const char *with);
bool weft_samples_have(const struct weft_samples *samples, const char *name);

/* The value of label `key` of the first sample of that name; false if there is none. */
bool weft_samples_label(const struct weft_samples *samples, const char *name, const char *key,
                        char *value_p, size_t bytes);

#endif
