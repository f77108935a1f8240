/* Received packet numbers, and when to acknowledge them (ack.c). Internal to src/core. */
#ifndef WEFT_CORE_ACK_H
#define WEFT_CORE_ACK_H

#include "base/bits.h"
#include "core/limits.h"
#include "wire/packet.h"

struct peer;
struct weft_ep;

struct ack {
    uint64_t window[RX_WINDOW_BLOCKS]; /* packet numbers received, by block mod 64 */
    uint64_t largest;                  /* largest packet number received */
    uint64_t largest_ns;               /* its arrival time */
    uint64_t gap_ns;                   /* time of the last gap in arrived numbers; 0 = none */
    uint64_t late_ns;                  /* arrival time of the last reordered packet; 0 = never */
    uint64_t low;                      /* lowest number received since the last ACK */
    uint64_t low_before;               /* `low` of the previous ACK */
    uint32_t pending;                  /* ack-eliciting packets not acknowledged */
    bool at_once;                      /* send a packet with an ACK immediately */
    uint64_t since_ns;                 /* arrival time of the first pending packet */
    uint64_t due_ns;                   /* deadline for sending an ACK */
    uint64_t sent_ns;                  /* time of the last ACK sent */
    uint64_t delay_ns;                 /* max_ack_delay of the last ACK sent */
    uint64_t told_largest;             /* `largest` in the last long ACK sent; likewise the next
                                        * two */
    uint32_t told_from;                /* open_from */
    uint32_t told_ce;
    uint32_t ect_received;
    uint32_t ce_received;
    uint32_t echo_clock; /* timestamp in the last ACK received, for DATA to echo */
    uint64_t echo_ns;    /* its arrival time; 0 = none */
};

/* Send an ACK to this peer immediately. */
static inline void ack_at_once(struct ack *a)
{
    a->at_once = true;
}
/* Restore at_once, after a packet whose acknowledgement may be delayed. */
static inline void ack_at_once_restore(struct ack *a, bool was)
{
    a->at_once = was;
}
static inline void ack_ecn_note(struct ack *a, enum weft_ecn ecn)
{
    a->ect_received += ecn == WEFT_ECN_ECT0 || ecn == WEFT_ECN_ECT1;
    a->ce_received += ecn == WEFT_ECN_CE;
}
/* Set the timestamp for DATA to echo, from the last ACK received. */
static inline void ack_echo_set(struct ack *a, uint32_t clock, uint64_t at_ns)
{
    a->echo_clock = clock;
    a->echo_ns = at_ns;
}
static inline void ack_echo_forget(struct ack *a)
{
    a->echo_ns = 0;
}

/* Maximum delay of the ACK of a chunk within a pass. For a CE-marked packet it is a quarter of
 * that, so that the sender slows down sooner. */
uint64_t weft_core_ack_delay(const struct peer *p, bool ce);
/* An ack-eliciting packet was received: acknowledge it within delay_ns. */
static inline void weft_core_ack_schedule(struct ack *a, uint64_t delay_ns, uint64_t now_ns)
{
    a->since_ns = a->pending == 0 ? now_ns : a->since_ns;
    a->pending++;
    a->due_ns = weft_min_u64(a->due_ns, now_ns + delay_ns);
    bool late = now_ns - a->since_ns >= ack_delay_ns_min;
    if (a->pending >= (late ? ACK_EVERY_LATE : ACK_EVERY)) {
        a->at_once = true;
    }
}
/* Send the ACK of pending packets at the latest after LATE_NUMBERS_MAX numbers. */
static inline void ack_numbers_limit(struct ack *a)
{
    if (a->pending > 0 && a->largest >= a->low + LATE_NUMBERS_MAX) {
        a->at_once = true;
    }
}
/* Packet pn arrived, and seen_largest was the largest number so far. A packet that was refused,
 * because no memory for its message was posted, has arrived, but is never acknowledged. */
static inline void ack_arrival(struct ack *a, uint64_t pn, uint64_t seen_largest, uint64_t at_ns)
{
    a->gap_ns = pn > seen_largest + 1 ? at_ns : a->gap_ns;
}
/* Record packet pn as received. */
static inline void weft_core_ack_commit(struct ack *a, uint64_t pn, uint64_t at_ns)
{
    uint64_t block = pn / 64;
    if (pn > a->largest) {
        uint64_t from = a->largest / 64 + 1;
        if (block >= from + RX_WINDOW_BLOCKS) {
            from = block - RX_WINDOW_BLOCKS + 1;
        }
        for (uint64_t b = from; b <= block; b++) {
            a->window[b % RX_WINDOW_BLOCKS] = 0;
        }
        if (pn > a->largest + 1) {
            a->at_once = true; /* a gap: acknowledge immediately */
        }
        a->largest = pn;
        a->largest_ns = at_ns;
    } else {
        a->late_ns = at_ns;
    }
    a->window[block % RX_WINDOW_BLOCKS] |= UINT64_C(1) << (pn % 64);
    a->low = weft_min_u64(a->low, pn);
}
void weft_core_ack_fill(struct weft_ep *ep, struct peer *p, uint64_t now_ns,
                        struct weft_wire_ack *ack, size_t room);
/* Write ACK_SHORT if it is allowed, can contain all changes, and no other frame is due. */
bool weft_core_ack_short_write(struct weft_ep *ep, struct peer *p, uint64_t now_ns,
                               struct weft_writer *w);

#endif
