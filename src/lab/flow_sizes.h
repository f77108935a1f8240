/* Distributions of flow sizes: read from a file, or one of the published ones by name; exact mean;
 * samples.
 *
 * A distribution is a list of points (size, probability that a flow is not larger), with linear
 * interpolation. All flows at or below the first point have its size.
 *
 * Files have one point per line, "SIZE_BYTES PROBABILITY", both rising; the last probability is 1,
 * or 100 when they are in percent. The first line may be a single number (some collections write
 * the mean there; it is ignored, because the mean is computed here). '#' starts a comment. Sizes in
 * packets must be converted to bytes first.
 */
#ifndef WEFT_LAB_FLOW_SIZES_H
#define WEFT_LAB_FLOW_SIZES_H

#include "base/error.h"
#include "base/prng.h"

#include <stdbool.h>
#include <stdint.h>

enum { WEFT_FLOW_SIZES_POINTS_MAX = 4096 };

/* A flow above a terabyte is a typing error. */
#define WEFT_FLOW_SIZES_BYTES_MAX 1e12

struct weft_flow_point {
    double bytes;
    double share; /* of flows that are at most this large, 0 .. 1 */
};

struct weft_flow_sizes {
    uint32_t count; /* at least 1; bytes and shares never decrease, the last share is 1 */
    struct weft_flow_point points[WEFT_FLOW_SIZES_POINTS_MAX];
    double mean_bytes; /* above 0 */
};

/* Load a published distribution ("websearch", "datamining", "hadoop"), else the file of that path.
 * After a failure *sizes_p is undefined.
 *
 * Errors:  WEFT_NOTFOUND  neither; the text lists the names.
 *          WEFT_DATA      the file is malformed; the text has the line number.
 *          WEFT_IO        it cannot be read. */
[[nodiscard]] weft_status weft_flow_sizes_load(const char *name_or_path,
                                               struct weft_flow_sizes *sizes_p,
                                               struct weft_error *error);

/* The same from text in memory; `name` is for messages.
 *
 * Errors:  WEFT_DATA. */
[[nodiscard]] weft_status weft_flow_sizes_parse(const char *name, const char *text,
                                                struct weft_flow_sizes *sizes_p,
                                                struct weft_error *error);

/* The u-quantile of the size in bytes, u in [0, 1); at least 1.
 * Cost:    O(log points). */
uint64_t weft_flow_sizes_at(const struct weft_flow_sizes *sizes, double u);

/* Draw the size of one flow. */
uint64_t weft_flow_sizes_draw(const struct weft_flow_sizes *sizes, struct weft_prng *prng);

bool weft_flow_sizes_published(const char *name);

/* Names of the published distributions; ends with NULL. */
extern const char *const weft_flow_sizes_names[];

#endif
