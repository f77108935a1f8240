/* Packets that have come, and when they are acknowledged (ack.c). Internal to src/core. */
#ifndef WEFT_CORE_ACK_H
#define WEFT_CORE_ACK_H

#include "base/bits.h"
#include "core/limits.h"
#include "wire/packet.h"

struct peer;
struct weft_ep;

struct ack {
    uint64_t window[RX_WINDOW_BLOCKS]; /* packet numbers received, by block mod 64 */
    uint64_t largest;                  /* received */
    uint64_t largest_ns;
    uint64_t gap_ns;               /* when a number was left out, last; 0 = never */
    uint64_t late_ns;              /* when one came behind a larger number, last; 0 = never */
    uint64_t low;                  /* lowest block changed since the last ACK */
    uint64_t low_before;           /* and in the ACK before */
    uint32_t pending;              /* ack-eliciting packets not acknowledged */
    bool at_once;                  /* the next packet goes now, and acknowledges */
    uint64_t since_ns; /* when the first of these came */
    uint64_t due_ns;   /* send an ACK at */
    uint64_t sent_ns;  /* when the last one went out */
    uint64_t delay_ns; /* longest delay, as our last ACK said */
    uint32_t ect_received;
    uint32_t ce_received;
    uint32_t echo_clock; /* clock of the last ACK received, for DATA to echo */
    uint64_t echo_ns;    /* when it came; 0 = none */
};

/* The next packet to this peer acknowledges, and it goes now. */
static inline void ack_at_once(struct ack *a)
{
    a->at_once = true;
}
/* As it was before a packet that may be acknowledged late. */
static inline void ack_at_once_restore(struct ack *a, bool was)
{
    a->at_once = was;
}
static inline void ack_ecn_note(struct ack *a, enum weft_ecn ecn)
{
    a->ect_received += ecn == WEFT_ECN_ECT0 || ecn == WEFT_ECN_ECT1;
    a->ce_received += ecn == WEFT_ECN_CE;
}
/* The clock that DATA is to echo, as the last ACK brought it. */
static inline void ack_echo_set(struct ack *a, uint32_t clock, uint64_t at_ns)
{
    a->echo_clock = clock;
    a->echo_ns = at_ns;
}
static inline void ack_echo_forget(struct ack *a)
{
    a->echo_ns = 0;
}

/* How long the acknowledgement of a chunk in the middle of a pass may wait; not so long that of a mark,
 * for its sender is to slow down. */
uint64_t weft_core_ack_delay(const struct peer *p, bool ce);
/* An ack-eliciting packet came: acknowledge it within delay_ns. */
static inline void weft_core_ack_owe(struct ack *a, uint64_t delay_ns, uint64_t now_ns)
{
    a->since_ns = a->pending == 0 ? now_ns : a->since_ns;
    a->pending++;
    a->due_ns = weft_min_u64(a->due_ns, now_ns + delay_ns);
    bool late = now_ns - a->since_ns >= ack_delay_ns_min;
    if (a->pending >= (late ? ACK_EVERY_LATE : ACK_EVERY)) {
        a->at_once = true;
    }
}
/* Remember that packet pn came, to acknowledge it. */
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
            a->at_once = true; /* a gap: tell at once */
            a->gap_ns = at_ns;
        }
        a->largest = pn;
        a->largest_ns = at_ns;
    } else {
        a->late_ns = at_ns;
    }
    a->window[block % RX_WINDOW_BLOCKS] |= UINT64_C(1) << (pn % 64);
    a->low = weft_min_u64(a->low, block);
}
void weft_core_ack_fill(struct weft_ep *ep, struct peer *p, uint64_t now_ns,
                        struct weft_wire_ack *ack, size_t room);

#endif
