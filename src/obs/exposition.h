/* Text in the Prometheus exposition format, version 0.0.4: metric families, each with HELP and TYPE
 * before its samples; all samples of a family are adjacent.
 *
 * Histograms are recorded in nanoseconds and written in seconds. Their edges are powers of two
 * nanoseconds, from 1.024 us to 17.2 s, which are exact bucket edges of base/hist.h (a value
 * exactly on an edge is counted above it, an error of 1 ns).
 *
 * Source: https://prometheus.io/docs/instrumenting/exposition_formats/
 */
#ifndef WEFT_OBS_EXPOSITION_H
#define WEFT_OBS_EXPOSITION_H

#include "base/hist.h"

#include <stdbool.h>
#include <stddef.h>

struct weft_exposition {
    char *text; /* from malloc, owned by the caller; ends with a zero. NULL after a failure */
    size_t bytes;
    size_t room;
    bool failed; /* out of memory; nothing more is added */
};

/* type: "counter", "gauge", "histogram". */
void weft_exposition_family(struct weft_exposition *text, const char *name, const char *type,
                            const char *help);

/* labels: as text, `kind="push"`, or NULL. Label values must be escaped by
 * weft_exposition_label. */
void weft_exposition_u64(struct weft_exposition *text, const char *name, const char *labels,
                         uint64_t value);
void weft_exposition_real(struct weft_exposition *text, const char *name, const char *labels,
                          double value);
/* A family of one sample without labels. */
void weft_exposition_one(struct weft_exposition *text, const char *name, const char *type,
                         const char *help, uint64_t value);
void weft_exposition_hist(struct weft_exposition *text, const char *name, const char *labels,
                          const struct weft_hist *hist_ns);

/* name="value" with value escaped; returns label_p. A value that is too long is truncated. */
const char *weft_exposition_label(char *label_p, size_t bytes, const char *name, const char *value);

/* After a failure the text is freed and NULL. */
void weft_exposition_fini(struct weft_exposition *text);

#endif
