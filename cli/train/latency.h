/* The latencies of all RPCs of a job: per kind (push, pull) and part, one exact histogram each, so
 * that the quantiles of several workers are those of their RPCs together and not means of means.
 *
 * Source: docs/PROTOCOL.md section 7; [imc20] section 2.2.
 */
#ifndef WEFT_CLI_TRAIN_LATENCY_H
#define WEFT_CLI_TRAIN_LATENCY_H

#include "base/hist.h"
#include "base/status.h"

#include <cjson/cJSON.h>

enum weft_latency_kind { WEFT_LATENCY_PUSH, WEFT_LATENCY_PULL, WEFT_LATENCY_KINDS };

enum weft_latency_part {
    WEFT_LATENCY_W_PROC,
    WEFT_LATENCY_W_QUEUE,
    WEFT_LATENCY_PS_PROC,
    WEFT_LATENCY_PS_QUEUE,
    WEFT_LATENCY_N_TX,
    WEFT_LATENCY_PS_WAIT,
    WEFT_LATENCY_PARTS,
};

extern const char *const weft_latency_kind_names[WEFT_LATENCY_KINDS];
extern const char *const weft_latency_part_names[WEFT_LATENCY_PARTS];

struct weft_latency {
    struct weft_hist of[WEFT_LATENCY_KINDS][WEFT_LATENCY_PARTS]; /* ns */
};

/* All non-empty buckets: {"push": {"W_proc": {"sum": s, "max": m, "buckets": [index, count...]}}}.
 * Owns:    gives the object; NULL when out of memory. */
cJSON *weft_latency_pack(const struct weft_latency *latency);

/* Add what weft_latency_pack made.   Errors: WEFT_DATA  not of that form; some may be added. */
weft_status weft_latency_unpack_add(const cJSON *object, struct weft_latency *latency);

/* The same for one histogram of whatever. */
cJSON *weft_latency_pack_one(const struct weft_hist *hist);
weft_status weft_latency_unpack_one_add(const cJSON *object, struct weft_hist *hist);

/* {"push": {"W_proc": {"p50": us, "p99": us}, ...}, "pull": ...}; NULL when out of memory. */
cJSON *weft_latency_quantiles_us(const struct weft_latency *latency);

#endif
