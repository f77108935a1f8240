/* Flows as messages of production endpoints (core/endpoint.h) on a simulated network (sim/world.h):
 * the packet-level counterpart of sim/fluid.h. The functions are the same, plus connections and a
 * start.
 *
 * A flow is sent chunk by chunk, each as one message. A flow with a rank is held: its messages are
 * sent from the time, and together at the rate, given to weft_packet_flows_limit, in the order of
 * ranks (core/msg.h, "held"). Other flows are sent immediately, and share links according to
 * congestion control and credit. Forwarded data is a separate message as soon as its bytes are
 * released.
 *
 * A flow's event occurs when the receiver has all of its bytes up to that point, not when they were
 * sent. Requested rates count payload; links count packets with headers, including
 * acknowledgements. Hosts take no time. The only losses are those of full switch buffers. */
#ifndef WEFT_SIM_PACKET_FLOWS_H
#define WEFT_SIM_PACKET_FLOWS_H

#include "sim/fluid.h"

enum { WEFT_PACKET_FLOWS_HOSTS_MAX = 64, WEFT_PACKET_FLOWS_BYTES_MAX = 300000000 };

struct weft_packet_flows;

struct weft_packet_flows_config {
    uint32_t hosts;     /* link 2h is the uplink of host h, 2h + 1 its downlink */
    uint64_t delay_ns;  /* from host to host */
    uint64_t bytes_max; /* maximum length of a flow */
    uint64_t seed;
};

struct weft_packet_flows_counters {
    uint64_t packets; /* of all kinds, sent */
    uint64_t data;    /* of these, with payload */
    uint64_t again;   /* of these, retransmitted */
    uint64_t dropped; /* by switches */
    uint64_t hash;    /* of every event of every host */
};

/* Running out of memory ends the process. Links start without capacity. */
struct weft_packet_flows *weft_packet_flows_new(const struct weft_packet_flows_config *config);
void weft_packet_flows_free(struct weft_packet_flows *flows); /* NULL is allowed */

/* Allow these two hosts to send to each other. A host uses the number of its connections as the
 * number of peers that send to it concurrently. Call before begin. */
void weft_packet_flows_connect(struct weft_packet_flows *flows, uint32_t host, uint32_t other);

/* Connect; time is 0 when all connections are up. Returns false on failure, see
 * weft_packet_flows_wrong. */
bool weft_packet_flows_begin(struct weft_packet_flows *flows);

void weft_packet_flows_set_capacity(struct weft_packet_flows *flows, uint32_t link, uint64_t bps);
uint64_t weft_packet_flows_capacity(const struct weft_packet_flows *flows, uint32_t link);

uint32_t weft_packet_flows_start(struct weft_packet_flows *flows,
                                 const struct weft_fluid_flow *flow, uint64_t released);
void weft_packet_flows_release(struct weft_packet_flows *flows, uint32_t flow, uint64_t bytes);
/* Set the payload rate of a flow with a rank from then on; 0 bps pauses it. */
void weft_packet_flows_limit(struct weft_packet_flows *flows, uint32_t flow, uint64_t from_ns,
                             uint64_t limit_bps);

/* As in sim/fluid.h. */
uint64_t weft_packet_flows_next_ns(const struct weft_packet_flows *flows);
void weft_packet_flows_advance(struct weft_packet_flows *flows, uint64_t now_ns);
bool weft_packet_flows_poll(struct weft_packet_flows *flows, struct weft_fluid_event *event_p);

/* Of all packets on the link, with headers. */
weft_fluid_nanobits weft_packet_flows_carried(const struct weft_packet_flows *flows, uint32_t link);
weft_fluid_nanobits weft_packet_flows_offered(const struct weft_packet_flows *flows, uint32_t link);

void weft_packet_flows_counters(const struct weft_packet_flows *flows,
                                struct weft_packet_flows_counters *counters_p);

/* Returns the error, or "" if there is none. */
const char *weft_packet_flows_wrong(const struct weft_packet_flows *flows);

#endif
