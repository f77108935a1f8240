/* Who sends to whom in a round of a pattern.
 *
 *   pingpong  2: 0 sends to 1, and 1 answers as soon as it has the message
 *   incast    W + 1: each of 1 .. W sends to 0 (OSU, nccl-tests: "gather", many to one)
 *   outcast   R + 1: 0 sends to each of 1 .. R
 *   alltoall  W: each sends to all others, the next one first, so that receivers take turns
 *   shuffle   W + R: each of W mappers sends to each of R reducers, in an order drawn for each
 *             round, at most `parallel` of its messages in flight (Hadoop's
 *             mapreduce.reduce.shuffle.parallelcopies limits the reducers likewise)
 *
 * A flow is a pair of participants and a direction; it carries one message in each round.
 */
#ifndef WEFT_CLI_PERF_PLAN_H
#define WEFT_CLI_PERF_PLAN_H

#include "wire/packet.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    WEFT_PERF_PARTICIPANTS_MAX = 257,
    WEFT_PERF_PAIRS_MAX = 4096, /* flows of a plan */
};

enum weft_perf_pattern {
    WEFT_PERF_PINGPONG,
    WEFT_PERF_INCAST,
    WEFT_PERF_OUTCAST,
    WEFT_PERF_ALLTOALL,
    WEFT_PERF_SHUFFLE,
};

struct weft_perf_pair {
    uint32_t from;
    uint32_t to;
};

struct weft_perf_plan {
    enum weft_perf_pattern pattern;
    uint32_t participants;
    uint32_t flow_count;
    uint32_t parallel; /* messages of one sender in flight */
    struct weft_perf_pair flows[WEFT_PERF_PAIRS_MAX];
};

/* False when there are more participants or flows than the limits. `parallel` 0 = all. */
bool weft_perf_plan_make(enum weft_perf_pattern pattern, uint32_t senders, uint32_t receivers,
                         uint32_t parallel, struct weft_perf_plan *plan_p);

/* Rounds are trips, which follow each other without messages of the coordinator. */
static inline bool weft_perf_is_pingpong(const struct weft_perf_plan *plan)
{
    return plan->pattern == WEFT_PERF_PINGPONG;
}

/* Chunks of a message, in weft's full packets of that UDP payload; docs/PROTOCOL.md section 3.7. */
static inline uint32_t weft_perf_chunk_bytes(uint32_t packet_bytes)
{
    return (packet_bytes - WEFT_DATA_OVERHEAD_BYTES) / 128 * 128;
}

const char *weft_perf_pattern_name(enum weft_perf_pattern pattern);

/* "sender 3", "receiver": the role for messages to the user. */
void weft_perf_plan_role(const struct weft_perf_plan *plan, uint32_t participant, char *text_p,
                         unsigned bytes);

#endif
