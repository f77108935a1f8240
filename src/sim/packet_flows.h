/* Flows as messages of production endpoints (core/endpoint.h) on a simulated network (sim/world.h): what
 * sim/fluid.h is for rates, at packet level. The calls are the same, but for connections, and a start.
 *
 * A flow is sent in pieces of its chunk, each a message. A flow with a rank is held: its pieces go
 * when weft_packet_flows_limit says, at that rate together, and in the order of ranks (core/msg.h,
 * "held"). The others go at once, and share links as congestion control and credit divide them.
 * What is forwarded is a message of its own as soon as its bytes are released.
 *
 * A flow's event comes when the receiver has all of its bytes up to there, not when they were sent.
 * Rates that are asked for count payload, links count packets with their headers, acknowledgements too.
 * Hosts take no time, links lose what does not fit a switch's buffer, and no more. */
#ifndef WEFT_SIM_PACKET_FLOWS_H
#define WEFT_SIM_PACKET_FLOWS_H

#include "sim/fluid.h"

enum { WEFT_PACKET_FLOWS_HOSTS_MAX = 64, WEFT_PACKET_FLOWS_BYTES_MAX = 300000000 };

struct weft_packet_flows;

struct weft_packet_flows_config {
    uint32_t hosts;     /* link 2h is the uplink of host h, 2h + 1 its downlink */
    uint64_t delay_ns;  /* from host to host */
    uint64_t bytes_max; /* of a flow */
    uint64_t seed;
};

struct weft_packet_flows_counters {
    uint64_t packets; /* of all kinds, sent */
    uint64_t data;    /* of these, with payload */
    uint64_t again;   /* of these, sent again */
    uint64_t dropped; /* by switches */
    uint64_t hash;    /* of every event of every host */
};

/* Lack of memory ends the process. All links begin without capacity. */
struct weft_packet_flows *weft_packet_flows_new(const struct weft_packet_flows_config *config);
void weft_packet_flows_free(struct weft_packet_flows *flows); /* NULL is fine */

/* These two may send to each other. A host takes the number of its connections for that of peers that send to it
 * at a time. Before begin. */
void weft_packet_flows_connect(struct weft_packet_flows *flows, uint32_t host, uint32_t other);

/* Connect; time is 0 when all are. False: weft_packet_flows_wrong says why not. */
bool weft_packet_flows_begin(struct weft_packet_flows *flows);

void weft_packet_flows_set_capacity(struct weft_packet_flows *flows, uint32_t link, uint64_t bps);
uint64_t weft_packet_flows_capacity(const struct weft_packet_flows *flows, uint32_t link);

uint32_t weft_packet_flows_start(struct weft_packet_flows *flows,
                                 const struct weft_fluid_flow *flow, uint64_t released);
void weft_packet_flows_release(struct weft_packet_flows *flows, uint32_t flow, uint64_t bytes);
/* Of a flow with a rank: so much payload from then on; with 0 bps it waits. */
void weft_packet_flows_limit(struct weft_packet_flows *flows, uint32_t flow, uint64_t from_ns,
                             uint64_t limit_bps);

/* As of sim/fluid.h. */
uint64_t weft_packet_flows_next_ns(const struct weft_packet_flows *flows);
void weft_packet_flows_advance(struct weft_packet_flows *flows, uint64_t now_ns);
bool weft_packet_flows_poll(struct weft_packet_flows *flows, struct weft_fluid_event *event_p);

/* Of all packets on the link, headers included. */
weft_fluid_nanobits weft_packet_flows_carried(const struct weft_packet_flows *flows, uint32_t link);
weft_fluid_nanobits weft_packet_flows_offered(const struct weft_packet_flows *flows, uint32_t link);

void weft_packet_flows_counters(const struct weft_packet_flows *flows,
                                struct weft_packet_flows_counters *counters_p);

/* "" while nothing is. */
const char *weft_packet_flows_wrong(const struct weft_packet_flows *flows);

#endif
