/* The set of a peer's incoming messages, and incoming packets. Internal to src/core.
 *
 * Only rx_msg.c and the functions below write the fields of struct rx_msgs; all other files read
 * them.
 *
 *   rx_msg.h      one message
 *   rx_msg.c      open and close; the receiver's part of the bound, DONE
 *   verify.c      authentication and validation of a packet
 *   rx.c          frames and chunks of a verified packet
 *   critical.c    the mask of critical chunks
 */
#ifndef WEFT_CORE_RX_MSGS_H
#define WEFT_CORE_RX_MSGS_H

#include "core/limits.h"
#include "core/rx_msg.h"
#include "wire/packet.h"

struct peer;
struct weft_ep;

struct rx_msgs {
    struct rx_msg *msgs; /* WEFT_MSGS_MAX */
    uint64_t open_from;  /* the sender's oldest message that is not confirmed */
    /* Bit sets of messages; the bit is seq mod WEFT_MSGS_MAX. */
    uint64_t live;      /* state RX_OPEN */
    uint64_t closed;    /* state RX_CLOSED */
    uint64_t need_done; /* DONE to send */
    uint64_t later;     /* subset of need_done: DONE may wait for the next message */
    uint64_t timer_ns;  /* earliest time at which an open message may close */
};

static inline void rx_init(struct rx_msgs *r, struct rx_msg *msgs)
{
    r->msgs = msgs;
}

/* Set the sender's oldest unconfirmed message, from the handshake. */
static inline void rx_begin(struct rx_msgs *r, uint64_t open_from)
{
    r->open_from = open_from > 1 ? open_from : 1;
}
/* Schedule the message's DONE, from its first word, without delay. */
static inline void rx_done_due(struct rx_msgs *r, uint64_t seq)
{
    uint64_t bit = UINT64_C(1) << (seq & MSG_MASK);
    rx_msg_done_restart(&r->msgs[seq & MSG_MASK]);
    r->need_done |= bit;
    r->later &= ~bit;
}
/* Schedule DONE of all closed messages again; or cancel every scheduled DONE. */
static inline void rx_done_again(struct rx_msgs *r)
{
    r->need_done |= r->closed;
}
static inline void rx_done_none(struct rx_msgs *r)
{
    r->need_done = 0;
}
/* All parts of this message's DONE were sent. */
static inline void rx_done_sent(struct rx_msgs *r, unsigned slot)
{
    rx_msg_done_restart(&r->msgs[slot]);
    r->need_done &= ~(UINT64_C(1) << slot);
    r->later &= ~(UINT64_C(1) << slot);
}
/* DONE of these messages may wait for the next message to the peer. */
static inline void rx_later(struct rx_msgs *r, uint64_t messages)
{
    r->later |= messages;
}
/* Send every DONE that waits. */
static inline void rx_later_end(struct rx_msgs *r)
{
    r->later = 0;
}
/* Set the earliest time at which an open message may close. */
static inline void rx_timer_set(struct rx_msgs *r, uint64_t at_ns)
{
    r->timer_ns = at_ns;
}

/* verify.c */
/* A verified packet, decoded. */
struct incoming {
    bool eliciting; /* ack-eliciting */
    struct weft_wire_packet packet;
    struct weft_wire_data data; /* when packet.data is set; a short header is completed */
};
/* Verify a packet and decode its contents. Returns its peer; NULL: the packet was dropped and
 * counted. */
struct peer *weft_core_packet_verify(struct weft_ep *ep, const struct weft_addr *from,
                                     uint8_t *bytes, size_t count, uint64_t now_ns,
                                     struct incoming *in);

/* rx.c */
void weft_core_packet_recv(struct weft_ep *ep, const struct weft_addr *from, enum weft_ecn ecn,
                           uint8_t *bytes, size_t count, uint64_t at_ns, uint64_t now_ns);
void weft_core_rx_timer_arm(struct peer *p);
/* Close the open messages whose time has come. */
void weft_core_rx_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns);

/* rx_msg.c */
/* Open a message when the first DATA packet of it arrives. Requires that its slot is free. NULL: no
 * expectation matches. */
struct rx_msg *weft_core_rx_open(struct weft_ep *ep, struct peer *p, uint64_t seq,
                                 const struct weft_wire_data *d, uint64_t at_ns, uint64_t now_ns);
/* Close an open message: COMPLETE if its bound is met, else SHORT. Returns its RECEIVED event. */
struct weft_msg_event *weft_core_rx_close(struct weft_ep *ep, struct peer *p, struct rx_msg *m,
                                          uint64_t at_ns);
void weft_core_rx_event_fill(const struct weft_ep *ep, const struct peer *p, const struct rx_msg *m,
                             struct weft_msg_event *ev);
void weft_core_finish_recv(struct weft_ep *ep, struct peer *p, const struct weft_wire_finish *f,
                           uint64_t now_ns);
/* Process one part of the critical mask of an open message that does not have all parts yet. */
void weft_core_rx_critical_part(struct rx_msg *m, const struct weft_wire_critical *c);
/* Packet pn was lost: schedule the DONE that it contained again. */
void weft_core_rx_done_lost(struct rx_msgs *r, uint64_t pn);
/* The sender has confirmed all its messages below open_from. */
void weft_core_rx_open_from(struct weft_ep *ep, struct peer *p, uint64_t open_from);
void weft_core_rx_close_all(struct weft_ep *ep, struct peer *p, uint64_t now_ns);

/* critical.c */
bool weft_core_critical_recv(struct weft_ep *ep, struct peer *p,
                             const struct weft_wire_critical *frame);

/* Full sequence number of a message from the low 32 bits, or the 14 bits of a short header. */
uint64_t weft_core_rx_seq(const struct peer *p, uint32_t msg);
uint64_t weft_core_brief_seq(const struct peer *p, uint16_t msg);

#endif
