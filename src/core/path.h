/* The way to a peer: packet size, ECN, address (path.c). Internal to src/core. */
#ifndef WEFT_CORE_PATH_H
#define WEFT_CORE_PATH_H

#include "core/endpoint.h"
#include "wire/packet.h"

struct peer;
struct tx_packet;
struct weft_ep;

enum { CHALLENGES = 4 }; /* addresses whose answer is awaited at a time */

enum path_ecn { PATH_ECN_TESTING, PATH_ECN_UNKNOWN, PATH_ECN_CAPABLE, PATH_ECN_FAILED };

/* PATH_CHALLENGE to an address from which packets of the peer arrived. */
struct challenge {
    struct weft_addr addr;
    uint64_t token;
    uint64_t at_ns; /* when it was sent last; 0 = a free entry */
};

struct path {
    uint32_t packet_bytes; /* UDP payload to build */
    bool ecn_capable;      /* marks of this path count; path.c */
    /* packet size: path.c */
    uint32_t base_bytes;       /* passes everywhere */
    uint32_t ceiling_bytes;    /* most that the configuration and the peer take */
    uint32_t refused_bytes;    /* least that did not pass; ceiling + 1 = none */
    uint32_t probe_bytes;      /* size in question; 0 = the search has ended */
    uint32_t companion_bytes;  /* asked for beside the first try; 0 = none */
    uint8_t probe_tries;
    bool probe_due;
    bool confirming;           /* probe_bytes is the size in use, which is in doubt */
    bool fragment;             /* not even the base passes: let the kernel fragment */
    uint64_t probe_pn;         /* in flight; 0 = none */
    uint64_t probe_ns;         /* given up at */
    uint64_t raise_ns;         /* search again from then on; WEFT_NEVER = no need */
    uint64_t large_pn;         /* newest packet longer than the base that is known to have passed */
    uint32_t large_bytes;      /* its size; sizes as packet_bytes, with the tag's room */
    uint64_t small_pn;         /* newest short packet that has passed */
    uint64_t small_counted_pn; /* as it was when the last round was counted */
    uint64_t large_lost_ns;    /* when the last one counted in large_lost was sent */
    uint32_t large_lost;       /* rounds in a row that lost such packets */
    uint32_t large_lost_bytes; /* the least of them: none as long has passed since; 0 = none */

    /* ECN: path.c */
    enum path_ecn ecn;
    uint32_t ecn_sent;         /* marked packets of the test */
    uint32_t ecn_lost;
    bool ecn_arrives;          /* marked packets do, whether or not they are acknowledged */
    uint32_t ecn_acked;        /* marked packets acknowledged since the counts were looked at */
    uint32_t ecn_ect;          /* counts of the newest ACK */
    uint32_t ecn_ce;
    uint64_t ecn_largest;      /* its `largest` */

    /* another address: path.c */
    struct challenge challenge[CHALLENGES];
    uint8_t challenges_due;    /* bit = of these, to be sent */
    uint64_t response_token;   /* to answer */
    bool response_due;
    uint64_t first_pn; /* sent on this way; earlier ones tell of another */
};

/* The other end takes no longer packets. */
static inline void path_limit(struct path *path, uint32_t bytes_max)
{
    path->packet_bytes = (uint32_t)weft_min_u64(path->packet_bytes, bytes_max);
    path->ceiling_bytes = (uint32_t)weft_min_u64(path->ceiling_bytes, bytes_max);
    path->base_bytes = (uint32_t)weft_min_u64(path->base_bytes, bytes_max);
}
static inline void path_response_owe(struct path *path, uint64_t token)
{
    path->response_due = true;
    path->response_token = token;
}
static inline void path_response_sent(struct path *path)
{
    path->response_due = false;
}

/* The packet size that a packet of so many bytes asks of a path: sizes leave room for a tag in every
 * mode, as the probes that measure them do. */
uint32_t weft_core_path_room(const struct peer *p, uint32_t bytes);
void weft_core_path_init(const struct weft_ep *ep, struct peer *p);
/* The handshake is over: begin what asks the network. */
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
 * peer has proved that it is there, and is reached there from now on. */
bool weft_core_path_stray(struct weft_ep *ep, struct peer *p, const struct weft_addr *from,
                          const struct weft_wire_packet *packet, uint64_t now_ns);
/* What is due of size search and challenge, as one packet; 0 = nothing. */
uint32_t weft_core_path_build(struct weft_ep *ep, struct peer *p, uint64_t now_ns,
                              struct weft_tx *tx);
void weft_core_path_probe_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns);

#endif
