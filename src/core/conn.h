/* The connection: who is at the other end, how far the handshake is, whether the other end is still
 * there, and how the connection ends. Internal to src/core.
 *
 *   handshake.c   HELLO and ACCEPT
 *   life.c        keep-alive, idle time-out, IDLE, CLOSE
 */
#ifndef WEFT_CORE_CONN_H
#define WEFT_CORE_CONN_H

#include "core/endpoint.h"
#include "wire/packet.h"

struct peer;
struct weft_ep;

enum peer_state { PEER_FREE, PEER_CONNECTING, PEER_HALF_OPEN, PEER_OPEN, PEER_CLOSING };

struct conn {
    enum peer_state state;
    struct weft_addr addr;
    uint32_t id;        /* ours: in packets to us */
    uint32_t remote_id; /* theirs: in packets to them */
    uint64_t name;
    uint64_t incarnation;
    uint32_t events_unpolled;      /* SENT and RECEIVED in the ring: they point to masks here */
    uint64_t hello_ns;             /* send HELLO at; WEFT_NEVER = not */
    uint64_t hello_interval_ns;
    uint64_t hello_since_ns;
    bool accepted;                 /* the other end said HELLO */
    bool need_accept;
    uint8_t accepts;               /* sent */
    uint64_t accept_ns;            /* when the first was */
    uint32_t hello_clock;          /* to echo in ACCEPT */
    bool replaced;                 /* by a newer session: goes down at the next deadline */
    bool need_close;
    bool need_ping;
    uint8_t announce_idle; /* packets that still have to say IDLE */
    bool idle;             /* it said IDLE */
    uint64_t heard_ns;     /* last valid packet */
    uint64_t timer_ns;     /* least of all timers of life.c */
    uint64_t ping_ns;      /* last keep-alive */
    uint64_t idle_pn;      /* number of the newest packet that said IDLE or ended it */
    uint16_t close_code;
    uint8_t close_sends; /* CLOSEs sent */
    bool close_told;     /* PEER_DOWN was raised */
    bool close_answered;
    bool idle_said;    /* by this end, which has heard nothing since */
    uint64_t close_ns; /* send CLOSE again at */
    uint64_t drain_ns; /* forget the connection at */
};

/* A valid packet of the peer was received. */
static inline void conn_heard(struct conn *c, uint64_t now_ns)
{
    c->heard_ns = now_ns;
    c->announce_idle = 0;
    c->idle_said = false;
}
/* This end has nothing to say for a while. Not acknowledged, so said more than once. */
static inline void conn_idle_announce(struct conn *c)
{
    c->announce_idle = 3;
    c->idle_said = true;
}
static inline void conn_idle_announced(struct conn *c)
{
    c->announce_idle -= c->announce_idle > 0;
}
/* What is sent to it does not wait any longer for a peer that said IDLE. */
static inline void conn_idle_end(struct conn *c)
{
    c->idle = false;
}
static inline void conn_ping(struct conn *c, bool due)
{
    c->need_ping = due;
}
static inline void conn_close_building(struct conn *c)
{
    c->need_close = false;
}
static inline void conn_close_sent(struct conn *c, uint64_t again_ns)
{
    c->close_sends++;
    c->close_ns = again_ns;
}
static inline void conn_accept_building(struct conn *c, uint64_t now_ns)
{
    c->accept_ns = c->accepts == 0 ? now_ns : c->accept_ns;
    c->accepts += c->accepts < UINT8_MAX;
}
/* Send HELLO at now_ns, and again after interval_ns. */
static inline void conn_hello_again(struct conn *c, uint64_t now_ns, uint64_t interval_ns)
{
    c->hello_ns = now_ns;
    c->hello_interval_ns = interval_ns;
}
/* Restart the time within which the peer must reply. */
static inline void conn_hello_since(struct conn *c, uint64_t now_ns)
{
    c->hello_since_ns = now_ns;
}
/* It is reached there from now on. */
static inline void conn_move(struct conn *c, const struct weft_addr *addr)
{
    c->addr = *addr;
}
/* Events in the ring that point into this slot. */
static inline void conn_event_raised(struct conn *c)
{
    c->events_unpolled++;
}
static inline void conn_event_polled(struct conn *c, bool one)
{
    c->events_unpolled -= one;
}

/* handshake.c */
/* The peer that waits for an answer to its HELLO; NULL. */
struct peer *weft_core_connecting_find(struct weft_ep *ep, uint32_t connection_id,
                                       const struct weft_addr *from);
/* p is about to come up: older sessions with the same other end go down. */
void weft_core_older_replace(struct weft_ep *ep, const struct peer *p, uint64_t now_ns);
void weft_core_hello_recv(struct weft_ep *ep, const struct weft_addr *from, const void *bytes,
                          size_t count, uint64_t now_ns);
void weft_core_accept_recv(struct weft_ep *ep, const struct weft_addr *from, const void *bytes,
                           size_t count, uint64_t at_ns, uint64_t now_ns);
uint32_t weft_core_hello_build(struct weft_ep *ep, struct peer *p, uint64_t now_ns,
                               struct weft_tx *tx);
uint32_t weft_core_accept_build(struct weft_ep *ep, struct peer *p, struct weft_tx *tx);

/* life.c */
void weft_core_life_arm(const struct weft_ep *ep, struct peer *p);
void weft_core_life_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns);
/* End the connection, with CLOSE; PEER_DOWN now, or (LOCAL) by the next on_deadline. */
void weft_core_close(struct weft_ep *ep, struct peer *p, enum weft_msg_down why, uint16_t code,
                     uint64_t now_ns);
void weft_core_close_recv(struct weft_ep *ep, struct peer *p, uint16_t code, uint64_t now_ns);
void weft_core_closing_recv(struct weft_ep *ep, struct peer *p,
                            const struct weft_wire_packet *packet);
bool weft_core_closing(const struct peer *p);
/* A valid packet said IDLE, or of a peer that had said it: did not. */
void weft_core_idle_note(struct peer *p, uint64_t pn);
void weft_core_awake_note(struct peer *p, uint64_t pn, uint64_t now_ns);

#endif
