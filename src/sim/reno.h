/* TCP flows on the links of a simulated cluster, beside its endpoints: what other programs of the
 * same hosts would send. Reno (RFC 5681) with selective acknowledgements: slow start from ten
 * segments, halving once for each window with loss, timeouts. The queue that such flows keep in a
 * port's buffer is what matters here, so the model leaves out connections, pacing, the receiver's
 * window and reordering: a segment is lost when three later ones, or a retransmission that was sent
 * later, have arrived.
 *
 * A sender keeps at most WEFT_RENO_HOST_BYTES in its own host's queue, as TCP small queues
 * (Dumazet, 2012) do. Segments are 1,514 bytes on the wire, and acknowledgements, one for two
 * segments, 66.
 *
 * Where several flows fill one port, one may keep the others out for seconds: its segments arrive
 * at the rate at which the buffer drains, and the others find it full.
 *
 * All arithmetic is in integers. The flows depend only on what `next` returns and on the network.
 */
#ifndef WEFT_SIM_RENO_H
#define WEFT_SIM_RENO_H

#include "sim/world.h"

#include <stdbool.h>

enum {
    WEFT_RENO_FLOWS_MAX = 1024, /* at a time; later ones are counted as refused */
    WEFT_RENO_SEGMENT_BYTES = 1448,
    WEFT_RENO_HOST_BYTES = 131072,
};

struct weft_reno_flow {
    uint64_t at_ns; /* since the begin; never decreases from flow to flow */
    uint64_t bytes; /* payload; 0 = without end */
    uint32_t from;  /* hosts of the cluster, different ones */
    uint32_t to;
};

struct weft_reno_config {
    struct weft_world *world;
    uint32_t hosts; /* of the cluster: the first ones of the world. As many follow for the flows */
    uint32_t overhead_bytes; /* that the network adds to each packet; at most 58 */
    uint64_t rate_bps;       /* of the uplinks */
    /* The next flow; false = none. */
    bool (*next)(void *self, struct weft_reno_flow *flow_p);
    void *self;
};

struct weft_reno_counters {
    uint64_t flows;    /* begun */
    uint64_t complete; /* of these */
    uint64_t refused;
    uint64_t bytes;    /* acknowledged payload */
    uint64_t segments; /* sent */
    uint64_t again;    /* of these, retransmitted */
    uint64_t timeouts;
};

struct weft_reno;

/* Running out of memory ends the process. Call before the first run of the world, which must
 * outlive the flows. */
struct weft_reno *weft_reno_new(const struct weft_reno_config *config);
void weft_reno_free(struct weft_reno *reno); /* NULL is allowed */

/* The first flows may begin now. */
void weft_reno_begin(struct weft_reno *reno);
/* No further segments are sent. */
void weft_reno_end(struct weft_reno *reno);

const struct weft_reno_counters *weft_reno_counters(const struct weft_reno *reno);

#endif
