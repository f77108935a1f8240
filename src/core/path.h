/* The path to a peer: packet size, ECN, address (path.c). Internal to src/core. */
#ifndef WEFT_CORE_PATH_H
#define WEFT_CORE_PATH_H

#include "core/endpoint.h"
#include "wire/packet.h"

struct peer;
struct tx_packet;
struct weft_ep;

enum { CHALLENGES = 4 }; /* maximum number of addresses being validated at the same time */

enum path_ecn { PATH_ECN_TESTING, PATH_ECN_UNKNOWN, PATH_ECN_CAPABLE, PATH_ECN_FAILED };

/* PATH_CHALLENGE to an address from which packets of the peer arrived. */
struct challenge {
    struct weft_addr addr;
    uint64_t token;
    uint64_t at_ns; /* last transmission; 0 = a free entry */
};

struct path {
    uint32_t packet_bytes; /* UDP payload to build */
    bool ecn_capable;      /* ECN marks of this path are used */
    /* Packet size. */
    uint32_t base_bytes;      /* assumed to pass on every path */
    uint32_t ceiling_bytes;   /* limit of the configuration and of the peer */
    uint32_t refused_bytes;   /* smallest size that did not pass; ceiling + 1 = none */
    uint32_t probe_bytes;     /* size being probed; 0 = the search has ended */
    uint32_t companion_bytes; /* second size, probed together with the first try; 0 = none */
    uint8_t probe_tries;
    bool probe_due;
    bool confirming;           /* probe_bytes is the size in use, which perhaps no longer passes */
    bool fragment;             /* base_bytes does not pass: allow fragmentation */
    uint64_t probe_pn;         /* probe in flight; 0 = none */
    uint64_t probe_ns;         /* time when the probe counts as lost */
    uint64_t raise_ns;         /* when to search again; WEFT_NEVER = never */
    uint64_t large_pn;         /* newest packet longer than base_bytes that is known to have
                                * passed */
    uint32_t large_bytes;      /* its size, including the bytes of a tag, like packet_bytes */
    uint64_t small_pn;         /* newest short packet that has passed */
    uint64_t small_counted_pn; /* small_pn when the last round was counted */
    uint64_t large_lost_ns;    /* send time of the last packet counted in large_lost */
    uint32_t large_lost;       /* consecutive rounds that lost long packets */
    uint32_t
        large_lost_bytes; /* size of the shortest of these packets; no packet of this size has
                           * passed since. 0 = none */

    /* ECN. */
    enum path_ecn ecn;
    uint32_t ecn_sent; /* marked packets of the test */
    uint32_t ecn_lost;
    bool ecn_arrives;   /* marked packets reach the peer, whether or not they are acknowledged */
    uint32_t ecn_acked; /* marked packets acknowledged since the counts were last checked */
    uint32_t ecn_ect;   /* counts of the newest ACK: ECT packets, CE packets */
    uint32_t ecn_ce;
    uint64_t ecn_largest;  /* its `largest` */
    uint64_t ecn_short_pn; /* newest packet with ACK_SHORT, which has no counts */

    /* another address: path.c */
    struct challenge challenge[CHALLENGES];
    uint8_t challenges_due;  /* bit = this challenge is due */
    uint64_t response_token; /* token of the PATH_CHALLENGE that is to be answered */
    bool response_due;
    uint64_t first_pn; /* first packet sent on this path; earlier ones used another path */
};

/* Set the limit that the peer has announced. */
static inline void path_limit(struct path *path, uint32_t bytes_max)
{
    path->packet_bytes = (uint32_t)weft_min_u64(path->packet_bytes, bytes_max);
    path->ceiling_bytes = (uint32_t)weft_min_u64(path->ceiling_bytes, bytes_max);
    path->base_bytes = (uint32_t)weft_min_u64(path->base_bytes, bytes_max);
}
static inline void path_response_due_set(struct path *path, uint64_t token)
{
    path->response_due = true;
    path->response_token = token;
}
static inline void path_response_sent(struct path *path)
{
    path->response_due = false;
}

/* Packet pn contained ACK_SHORT. */
static inline void path_ecn_short(struct path *path, uint64_t pn)
{
    path->ecn_short_pn = weft_max_u64(path->ecn_short_pn, pn);
}

/* The packet size that corresponds to a packet of this length. Sizes include the bytes of a tag in
 * every mode, as those of size probes do. */
uint32_t weft_core_path_room(const struct peer *p, uint32_t bytes);
void weft_core_path_init(const struct weft_ep *ep, struct peer *p);
/* The handshake is complete: start the size search and ECN validation. */
void weft_core_path_up(struct weft_ep *ep, struct peer *p, uint64_t now_ns);
void weft_core_path_acked(struct weft_ep *ep, struct peer *p, uint64_t pn,
                          const struct tx_packet *packet);
void weft_core_path_lost(struct weft_ep *ep, struct peer *p, uint64_t pn,
                         const struct tx_packet *packet);
bool weft_core_ecn_marks(const struct weft_ep *ep, const struct peer *p);
void weft_core_ecn_sent(struct peer *p);
void weft_core_ecn_silence(struct peer *p);
void weft_core_ecn_check(struct weft_ep *ep, struct peer *p, const struct weft_wire_ack *ack);
/* A valid packet with the connection's id arrived from another address than the peer's. True: the
 * peer has validated that address with a PATH_RESPONSE, and packets are sent there from now on. */
bool weft_core_path_stray(struct weft_ep *ep, struct peer *p, const struct weft_addr *from,
                          const struct weft_wire_packet *packet, uint64_t now_ns);
/* A size probe or PATH_CHALLENGE, if one is due; 0 = none. */
uint32_t weft_core_path_build(struct weft_ep *ep, struct peer *p, uint64_t now_ns,
                              struct weft_tx *tx);
void weft_core_path_probe_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns);

#endif
