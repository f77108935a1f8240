/* The order of peers in sending chunks, and the host's send queue (egress.c). Internal to
 * src/core. */
#ifndef WEFT_CORE_EGRESS_H
#define WEFT_CORE_EGRESS_H

#include "core/egress_share.h"
#include "core/endpoint.h"

struct peer;
struct tx_msg;
struct weft_ep;

/* Queue sizes are in bytes on the wire, as accurately as the driver can measure them. */
struct egress {
    uint64_t *waits; /* bit = peer has chunks to send, and no other known limit blocks it */
    uint64_t *keys;  /* sort key of each such peer; the smallest is served first */
    uint64_t *ages;  /* of each such peer: opening number of the message that is next */
    uint32_t waits_count;
    bool turns;            /* round_shared (struct credit) when the keys were computed */
    bool turns_before;     /* the same of rounds_shared */
    uint32_t receivers;    /* peers with first-pass chunks still to send */
    uint64_t opened;       /* messages opened since weft_ep_new */
    uint64_t bursts;       /* bursts of chunks since weft_ep_new */
    bool asked;            /* the driver must report the host's queue: weft_ep_queue_asked */
    bool fresh;            /* the report is from this progress step */
    bool waiting;          /* chunks wait until report_ns for the queue to drain */
    bool late;             /* report_ns has passed and the queue was not reported since */
    bool handed_over;      /* chunks were sent since the last report */
    uint64_t room_bytes;   /* allowance until the next report; UINT64_MAX = no limit */
    uint64_t report_ns;    /* time of the next report; WEFT_NEVER = none */
    uint64_t queued_bytes; /* queued bytes at the first report after chunks were last sent */
    uint64_t queued_ns;
    uint64_t queued_link_bytes; /* total sent by the link then; 0 = not known */
    uint64_t link_bytes;        /* the same now, for the report that follows */
    struct egress_share share; /* drain rate of the queue, and whether other traffic is in it */
    uint64_t limit_bytes;
    uint64_t few_bytes;       /* four packets */
    uint64_t queue_bytes_min; /* least queue at late reports; UINT64_MAX = none yet */
    uint32_t reports;         /* late reports since the limit was last reviewed */
    uint64_t queue_bytes_max; /* largest report since the queue last shrank */
    uint64_t queue_max_ns;
    uint64_t stuck_bytes; /* part of the reported bytes that does not drain */
    uint32_t early_shift; /* the next waiting time is divided by 2 to this power */
};

bool weft_core_egress_init(struct weft_ep *ep);
void weft_core_egress_fini(struct weft_ep *ep);
/* Insert the peer into the order, or remove it when it has no chunk to send. */
void weft_core_egress_file(struct weft_ep *ep, struct peer *p);
void weft_core_egress_leave(struct weft_ep *ep, const struct peer *p);
/* The peer to serve next; NULL = none, or the host's queue must first drain or be reported. */
struct peer *weft_core_egress_next(struct weft_ep *ep);
void weft_core_egress_sent(struct weft_ep *ep, uint64_t bytes);
/* A chunk was sent beside an ACK, out of its turn. */
void weft_core_egress_passed(struct weft_ep *ep, uint64_t bytes);
/* Maximum number of packets of the next burst, which begins with a chunk of m. */
uint32_t weft_core_egress_burst(const struct weft_ep *ep, const struct peer *p,
                                const struct tx_msg *m);
/* Change the number of the peer's unsent first-pass chunks. */
void weft_core_egress_unsent(struct weft_ep *ep, struct peer *p, int64_t chunks);
void weft_core_egress_turn(struct weft_ep *ep, uint64_t now_ns);

#endif
