/* Whose chunks go next, and the host's own queue (egress.c). Internal to src/core. */
#ifndef WEFT_CORE_EGRESS_H
#define WEFT_CORE_EGRESS_H

#include "core/endpoint.h"

struct peer;
struct weft_ep;

/* Bytes of the queue are those on the wire, as near as the driver can tell. */
struct egress {
    uint64_t *waits;           /* bit = peer has chunks, and is not known to be kept by anything else */
    uint64_t *keys;            /* of those: place in the order, the least goes first */
    uint64_t *ages;            /* and when the message that is next was opened, by number */
    uint32_t waits_count;
    bool turns;                /* of the receiver's side (struct credit), as the keys were made with */
    uint32_t receivers;        /* peers with first-pass chunks still to send */
    uint64_t opened;           /* messages, so far */
    uint64_t bursts;           /* handed over, so far */
    bool asked;                /* the driver is to tell what waits in the host's queue */
    bool fresh;                /* it has, in this turn */
    bool waiting;              /* chunks wait until look_ns for the queue to drain */
    bool late;                 /* that time has come */
    bool handed_over;          /* something, since it told */
    uint64_t room_bytes;       /* to hand over; UINT64_MAX = no limit */
    uint64_t look_ns;
    uint64_t queued_bytes;     /* as told after something was handed over last */
    uint64_t queued_ns;
    uint64_t rate_bps;         /* at which it drains; 0 = not known */
    uint64_t limit_bytes;
    uint64_t few_bytes;        /* four packets */
    uint64_t left_least_bytes; /* at late looks; UINT64_MAX = none yet */
    uint32_t looks;
    uint64_t still_bytes;      /* most that was told since it last fell */
    uint64_t still_ns;
    uint64_t stuck_bytes;      /* of what is told: they do not drain */
    uint32_t haste;            /* the next look comes earlier by this power of two */
};

bool weft_core_egress_init(struct weft_ep *ep);
void weft_core_egress_fini(struct weft_ep *ep);
/* The peer takes its place in the order, or leaves it when it has no chunk to send. */
void weft_core_egress_file(struct weft_ep *ep, struct peer *p);
void weft_core_egress_leave(struct weft_ep *ep, const struct peer *p);
/* Whose burst is next; NULL: nobody's, or not before the host's queue has drained or is known. */
struct peer *weft_core_egress_next(struct weft_ep *ep);
void weft_core_egress_sent(struct weft_ep *ep, uint64_t bytes);
/* So many more first-pass chunks of this peer's messages are to be sent, or fewer. */
void weft_core_egress_unsent(struct weft_ep *ep, struct peer *p, int64_t chunks);
void weft_core_egress_turn(struct weft_ep *ep, uint64_t now_ns);

#endif
