/* The configuration drawn from one seed: a cluster, its faults, and the messages that its hosts
 * send.
 *
 * This file only draws the plan and does not run it. Sizes are bounded so that a seed runs in
 * milliseconds: a few thousand chunks, a few megabytes.
 */
#ifndef WEFT_SIM_PLAN_H
#define WEFT_SIM_PLAN_H

#include "base/prng.h"
#include "sim/net.h"
#include "sim/world.h"

enum {
    WEFT_PLAN_HOSTS_MAX = 64,
    WEFT_PLAN_MSGS_MAX = 600,
    WEFT_PLAN_CHUNKS_MAX = 6000, /* of all messages together */
    WEFT_PLAN_BYTES_MAX = 4 * 1000000,
    WEFT_PLAN_CLOSES_MAX = 8,
    WEFT_PLAN_NAME_FIRST = 1000, /* name of host 0 in HELLO; host i has this + i */
    WEFT_PLAN_STREAMS_MAX = 16, /* streams whose loss fractions an endpoint stores */
};

/* One message of the plan. */
struct weft_plan_msg {
    uint32_t src;
    uint32_t dst;
    uint32_t total;
    uint32_t chunks; /* N by the grid of docs/PROTOCOL.md section 3.7 */
    uint32_t chunk_elems;
    uint16_t elem_bytes;
    uint8_t critical;
    uint8_t priority;
    uint32_t bound_ppm;
    uint32_t stream; /* of WEFT_PLAN_STREAMS_MAX at most */
    enum weft_msg_sink sink;
    bool shared;          /* ADD: into the host's accumulator. EVENT: through its shared posted
                           * receive */
    bool any_peer;        /* its receive is posted with WEFT_PEER_ANY */
    uint64_t slack_bytes; /* bytes posted in addition to the message's length */
    uint32_t refuse_ppm;  /* EVENT: probability that the application refuses a chunk */
    uint64_t send_ns;
    uint64_t post_ns;
    uint64_t deadline_ns; /* absolute, of the sender; WEFT_NEVER */
    uint64_t timeout_ns;  /* of the receiver, from the first chunk; WEFT_NEVER */
};

struct weft_plan_host {
    struct weft_net_link_config links[2]; /* by enum weft_net_dir */
    struct weft_net_faults faults[2];
    struct {
        uint64_t from_ns;
        uint64_t to_ns; /* 0 = none */
    } partition[2];
    struct weft_ep_config ep;
    uint64_t progress_delay_ns;
    bool caller_driven; /* is IDLE and sleeps between its messages; only sends */
};

/* A connection is closed, by one end or by both at the same time, and immediately reopened. */
struct weft_plan_close {
    uint32_t opener;
    uint32_t acceptor;
    bool by_opener;
    bool by_acceptor;
    uint64_t at_ns;
};

struct weft_plan {
    uint64_t seed;
    uint32_t hosts;
    uint32_t msgs;
    const char *pattern;
    bool crossing; /* both ends of a pair connect, if both send */
    bool faulty;
    uint32_t mover; /* changes its address at move_ns; UINT32_MAX = none */
    uint64_t move_ns;
    uint32_t shrinker; /* its links have mtu_bytes from shrink_ns on; UINT32_MAX = none */
    uint64_t shrink_ns;
    uint32_t mtu_bytes;
    uint64_t heal_ns;  /* end of the last fault */
    uint64_t limit_ns; /* messages open at this time are stuck; later than finish.h */
    uint32_t victim;   /* dies at kill_ns; UINT32_MAX = none */
    bool reborn;       /* a new process starts at its address immediately */
    uint64_t kill_ns;
    bool watched; /* its death is detected by all connected hosts */
    uint32_t closes;
    struct weft_plan_close close[WEFT_PLAN_CLOSES_MAX];
    struct weft_world_hostile hostile;
    struct weft_net_faults faults; /* drawn once; each host has all of them or none */
    struct weft_plan_host host[WEFT_PLAN_HOSTS_MAX];
    struct weft_plan_msg msg[WEFT_PLAN_MSGS_MAX];
};

/* Draw only hosts, links and faults, for plan_p->hosts hosts: no messages, no deaths. */
void weft_plan_draw_cluster(struct weft_prng *prng, struct weft_plan *plan_p);

/* Draw mode, key, limits of handshakes and rotation, and the attacker, from the plan's seed. Call
 * last. */
void weft_plan_draw_security(struct weft_plan *plan_p);

/* Apply links and faults to a network. */
void weft_plan_build(const struct weft_plan *plan, struct weft_net *net);

/* Draw a complete plan. */
void weft_plan_draw(uint64_t seed, struct weft_plan *plan_p);

/* Format a summary of a few lines. */
void weft_plan_describe(const struct weft_plan *plan, char *text, size_t bytes);

/* chunk_elems of the protocol. */
uint32_t weft_plan_chunk_elems(uint32_t packet_bytes, uint32_t elem_bytes);

#endif
