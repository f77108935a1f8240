/* Incoming packets, and the messages of a peer that they belong to. Internal to src/core.
 *
 *   verify.c      is a packet what it says it is?
 *   rx.c          what it then does; the receiver's half of the bound
 *   critical.c    which chunks must not be missing
 */
#ifndef WEFT_CORE_RX_MSGS_H
#define WEFT_CORE_RX_MSGS_H

#include "base/bits.h"
#include "core/limits.h"
#include "wire/packet.h"

struct peer;
struct weft_ep;

enum rx_state { RX_FREE, RX_OPEN, RX_CLOSED };

struct rx_msg {
    enum rx_state state;
    enum weft_msg_outcome outcome;
    enum weft_msg_sink sink;
    bool unpolled;           /* closed, but its RECEIVED event is still in the ring */
    bool pass_over;
    bool critical_known;         /* all parts of `critical_mask` are there */
    uint8_t critical;
    uint8_t priority;
    uint16_t chunk_elems;
    uint16_t elem_bytes;
    uint32_t total;
    uint32_t chunks;
    uint32_t lost_max;
    uint32_t received_count;
    uint32_t refused;
    uint32_t data_count_open; /* DATA packets that the peer had sent before its first of these */
    uint32_t data_heard_open; /* and that had arrived */
    uint32_t data_heard;     /* that arrived of this message */
    uint32_t critical_left;  /* critical chunks missing; UINT32_MAX: not known which they are */
    uint64_t seq;
    uint64_t tag;
    uint64_t user;
    uint64_t pass_over_ns;
    uint64_t timeout_ns;     /* absolute */
    uint32_t done_word;      /* first word of the mask that DONE has yet to carry */
    uint64_t done_first_pn;  /* packets that carried the last DONE */
    uint64_t done_last_pn;
    uint8_t *memory;
    uint64_t *received;      /* N bits */
    uint64_t *critical_mask;          /* N bits, when critical = WEFT_CRITICAL_MASKED */
    uint64_t
        inline_mask[RX_MASKS]; /* these two, up to INLINE_CHUNKS; beyond they are in the arena */
    uint64_t critical_parts[MASK_PARTS_WORDS]; /* parts of it that are there */
};

struct rx_msgs {
    struct rx_msg *msgs; /* WEFT_MSGS_MAX */
    uint64_t open_from;  /* the peer's */
    uint64_t live;       /* bit = state OPEN */
    uint64_t need_done;  /* bit = DONE to send */
    uint64_t later;      /* of these, bit = but that may wait */
    uint64_t closed;     /* bit = state CLOSED */
    uint64_t timer_ns;   /* least time at which an open message may close */
};

static inline void rx_init(struct rx_msgs *r, struct rx_msg *msgs)
{
    r->msgs = msgs;
}

/* The other end's oldest message, as it said when the connection began. */
static inline void rx_begin(struct rx_msgs *r, uint64_t open_from)
{
    r->open_from = open_from > 1 ? open_from : 1;
}
/* DONE of all closed messages is to be sent again, or of none. */
static inline void rx_done_again(struct rx_msgs *r)
{
    r->need_done |= r->closed;
}
static inline void rx_done_none(struct rx_msgs *r)
{
    r->need_done = 0;
}
/* The whole DONE of one was sent. */
static inline void rx_done_sent(struct rx_msgs *r, unsigned slot)
{
    r->msgs[slot].done_word = 0;
    r->need_done &= ~(UINT64_C(1) << slot);
    r->later &= ~(UINT64_C(1) << slot);
}
/* No confirmation waits any longer. */
static inline void rx_later_end(struct rx_msgs *r)
{
    r->later = 0;
}

/* verify.c */
/* What is in a packet that is verified. */
struct incoming {
    bool eliciting;                /* its sender waits for an acknowledgement */
    struct weft_wire_packet packet;
    struct weft_wire_data data;    /* when packet.data is set; that of a short header is completed */
};
/* The peer that a packet is of, and what is in it; NULL: it is dropped, and counted. */
struct peer *weft_core_packet_verify(struct weft_ep *ep, const struct weft_addr *from,
                                     uint8_t *bytes, size_t count, uint64_t now_ns,
                                     struct incoming *in);

/* rx.c */
/* Packet pn was lost, which held DONE. */
void weft_core_rx_done_lost(struct rx_msgs *r, uint64_t pn);
void weft_core_packet_recv(struct weft_ep *ep, const struct weft_addr *from, enum weft_ecn ecn,
                           uint8_t *bytes, size_t count, uint64_t at_ns, uint64_t now_ns);
void weft_core_rx_open_from(struct weft_ep *ep, struct peer *p, uint64_t open_from);
void weft_core_rx_timer_arm(struct peer *p);
void weft_core_rx_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns);
void weft_core_rx_close_all(struct weft_ep *ep, struct peer *p, uint64_t now_ns);

/* critical.c */
bool weft_core_critical_recv(struct weft_ep *ep, struct peer *p,
                             const struct weft_wire_critical *frame);
static inline bool rx_critical_chunk(const struct rx_msg *m, uint32_t chunk)
{
    return m->critical == WEFT_CRITICAL_MASKED
               ? m->critical_known && weft_bits_test(m->critical_mask, chunk)
               : chunk < m->critical;
}
/* 64-bit sequence number of an incoming message; defined in rx.c. */
uint64_t weft_core_rx_seq(const struct peer *p, uint32_t msg);
uint64_t weft_core_brief_seq(const struct peer *p, uint16_t msg);

#endif
