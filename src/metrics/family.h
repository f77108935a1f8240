/* Tables that map a counter of a struct to its metric in the exposition. Internal to this folder.
 */
#ifndef WEFT_METRICS_FAMILY_H
#define WEFT_METRICS_FAMILY_H

#include "base/units.h"
#include "obs/exposition.h"

enum { WEFT_METRICS_LABELS_BYTES = 64 };

/* Rows with the same metric name are adjacent. */
struct weft_metrics_family {
    const char *name;
    const char *type;
    const char *labels; /* in addition to those of the object; "" = none */
    size_t at;          /* offset of a uint64_t */
    const char *help;   /* help text, in the first row of a name */
};

/* Write each metric family once, with a sample for each of `count` objects.
 *
 * Shape:   things (count,), each of `stride` bytes; `at` counts from `base` bytes after the
 *          begin of an object. With base > 0 its labels, as text, are its first member;
 *          otherwise it has none. */
void weft_metrics_families(struct weft_exposition *text, const struct weft_metrics_family *families,
                           size_t rows, const void *things, size_t stride, size_t base,
                           uint32_t count);

/* The same for struct weft_driver_counters and struct weft_ep_gauges. */
void weft_metrics_add_transport(struct weft_exposition *text, const void *things, size_t stride,
                                size_t base, uint32_t count);
void weft_metrics_add_gauges(struct weft_exposition *text, const void *things, size_t stride,
                             size_t base, uint32_t count);

/* One histogram of a part of a latency; own: labels written before kind and part, or "". */
void weft_metrics_add_hist(struct weft_exposition *text, const char *name, const char *own,
                           const char *kind, const char *part, const struct weft_hist *hist);

#define WEFT_METRICS_FAMILIES(text, list, things, base, count)                                     \
    weft_metrics_families(text, list, WEFT_ARRAY_COUNT(list), things, sizeof(*(things)), base,     \
                          count)

#endif
