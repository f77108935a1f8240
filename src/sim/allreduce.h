/* All-reduce on virtual time: rounds of one operation of coll/coll.h at n ranks, and their
 * durations.
 *
 * All ranks are connected to one switch by equal links (sim/net.h). Every downlink has a small
 * buffer, an ECN threshold and, after its queue, random loss. Rounds are back to back: all ranks
 * begin the next round when the last of them is done. Neither the start signal "go" nor arithmetic
 * takes virtual time.
 *
 * With `barrier` a rank begins its vector when its own barrier is done, exchanges one value
 * after it, and continues with the next barrier. A round then lasts as long as the slowest rank
 * needs from its own begin, so it includes the time by which other ranks leave the barrier later.
 *
 * ideal = 2 (n - 1) (s + 78 ceil(s / 1408)) x 8 / rate + 2 RTT with s = ceil(bytes / n): each link
 * carries n - 1 slices in each of the two phases, in packets of 1,408 bytes with short headers.
 *
 * If links or ranks differ (host_ranks, slow_links, late_ranks), ideal is instead the least time of
 * sched/collective.h for the best form, with the same headers, + 2 RTT.
 *
 * With a box (docs/AGGREGATION.md, "Members of dense rounds"), coll is not used: each rank is a
 * member (agg/dense_member.h) of a box in memory (agg/box.h), which is in the switch, or a host of
 * its own behind a link like theirs. What the switch's box receives passes only the sender's
 * uplink, and is not lost; sums pass the ranks' downlinks. Host processing takes no time. Values
 * are floats with an exponent; all sums must be exact.
 *
 * ideal with a box = (b + 74 ceil(b / 1408)) x 8 / rate + RTT / 2, with b the bytes of the vector:
 * each link carries the vector once in each direction at the same time. A box that is a host
 * receives and sends the vectors of all ranks over one link: then the first term is n times as
 * long, and the second is a whole RTT.
 *
 * Every run checks that the results of all ranks are bit-identical. With bound 0 each must be the
 * exact sum. With loss, the missing parts of the results must match what was reported to the ranks.
 * With error feedback, no value may be lost.
 */
#ifndef WEFT_SIM_ALLREDUCE_H
#define WEFT_SIM_ALLREDUCE_H

#include "coll/coll.h"
#include "sim/world.h"

enum { WEFT_ALLREDUCE_RANKS_MAX = 128, WEFT_ALLREDUCE_ROUNDS_MAX = 10000 };

/* How coll divides the vector: into equal slices, or by a plan (sched/collective.h). */
enum weft_allreduce_plan {
    WEFT_ALLREDUCE_NO_PLAN,
    WEFT_ALLREDUCE_PLAN_AUTO,
    WEFT_ALLREDUCE_PLAN_SLICES,
    WEFT_ALLREDUCE_PLAN_TREES,
};

enum weft_allreduce_box {
    WEFT_ALLREDUCE_NO_BOX,
    WEFT_ALLREDUCE_BOX_SWITCH,
    WEFT_ALLREDUCE_BOX_HOST,
};

struct weft_allreduce_config {
    uint32_t ranks;         /* n */
    uint64_t bytes;         /* of the vector; a multiple of 4 */
    uint32_t ops;           /* concurrent operations, of bytes / ops each */
    uint64_t rate_bps;      /* of every link */
    uint64_t rtt_ns;        /* base */
    uint64_t host_delay_ns; /* delay from a packet's arrival at an idle host until the host
                             * processes it */
    uint64_t buffer_bytes;  /* of each downlink */
    uint64_t ecn_bytes;     /* its marking threshold; 0 = off */
    uint32_t loss_ppm;
    uint32_t bound_ppm;
    bool feedback;
    enum weft_allreduce_plan plan;
    uint32_t host_ranks;    /* ranks of a host, which share its link; packets between them do not
                             * use it. 1: each rank has a link */
    uint32_t slow_links;    /* so many links, the last ones, have the next rate */
    uint64_t slow_rate_bps;
    uint32_t late_ranks; /* so many ranks, the last ones, begin each round later by the next time */
    uint64_t late_ns;
    bool barrier; /* as in a benchmark of processes, see above; not with a box */
    uint32_t segment_bytes; /* coll's; not used with a box. Also the next field */
    uint32_t receivers_max;
    uint32_t rounds;
    uint64_t seed;
    const char *cc_name;              /* NULL = the default */
    const struct weft_world_tap *tap; /* NULL = none */
    enum weft_allreduce_box box;      /* requires one operation, bound 0, no tap, no host delay */
    uint32_t box_slots;               /* window of a rank, in packets */
    uint32_t box_reorder;             /* agg/dense_member.h */
    bool box_block_float; /* the ranks agree on an exponent for each packet; else it is fixed */
};

struct weft_allreduce_result {
    bool ok;
    char failure[256];
    uint32_t rounds;
    uint64_t ideal_ns;
    uint64_t ideal_without_box_ns; /* the same without a box */
    bool plan_trees;      /* the plan has trees; also the following */
    uint32_t plan_parts;
    uint32_t plan_depth;
    uint32_t plan_owners; /* ranks that own a slice */
    uint64_t equal_ns;    /* predictions of the planner, for values without headers */
    uint64_t slices_ns;
    uint64_t trees_ns;
    uint64_t p50_ns; /* nearest-rank percentiles */
    uint64_t p99_ns;
    uint64_t max_ns;
    uint64_t mean_ns;
    uint64_t phase1_ns_mean;    /* until all contributions had arrived at the last rank */
    uint32_t delivered_ppm;     /* of the contributions */
    uint32_t retransmitted_ppm; /* relative to the DATA packets sent; with a box, of the ranks' */
    uint32_t overhead_ppm;      /* bytes on all links beyond the ideal, relative to the ideal */
    uint64_t dropped_full;      /* by full buffers in the switch */
    uint64_t dropped_wire;      /* by random loss after the queue */
    uint64_t marked;
    uint64_t queue_bytes_max; /* of a downlink; with a box that is a host, also of its own */
    uint64_t early_messages; /* messages that arrived before their operation was called */
    uint64_t probes;
    uint64_t resent_timeout; /* with a box: sums over the ranks of the counters of the member
                              * (agg/dense_member.h); also the next field */
    uint64_t resent_early;
    uint64_t packets;
    uint64_t virtual_ns;
    uint64_t trace_hash;
};

/* 4 MB over 8 ranks at 1 Gbit/s, 50 us, 64 KB buffers, 10 rounds. */
void weft_allreduce_config_default(struct weft_allreduce_config *config_p);

/* Returns NULL, or a description of the configuration error. */
const char *weft_allreduce_config_check(const struct weft_allreduce_config *config);

uint64_t weft_allreduce_ideal_ns(const struct weft_allreduce_config *config);
/* The same as if config->box were NO_BOX. */
uint64_t weft_allreduce_ideal_without_box_ns(const struct weft_allreduce_config *config);

/* The result depends only on the configuration. Running out of memory ends the process. */
void weft_allreduce_run(const struct weft_allreduce_config *config,
                        struct weft_allreduce_result *result_p);

#endif
