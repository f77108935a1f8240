/* The connection: identity and address of the peer, state of the handshake, keep-alive, close.
 * Internal to src/core.
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
    uint32_t id;        /* connection id in packets to this end */
    uint32_t remote_id; /* connection id in packets to the peer */
    uint64_t name;
    uint64_t incarnation;
    uint32_t events_unpolled; /* SENT, RECEIVED, PEER_DOWN in the ring: the slot is in use */
    uint64_t hello_ns;        /* when to send HELLO; WEFT_NEVER = do not send it */
    uint64_t hello_interval_ns;
    uint64_t hello_since_ns;
    bool accepted; /* the peer opened the connection */
    bool need_accept;
    uint8_t accepts;      /* ACCEPTs sent */
    uint64_t accept_ns;   /* when the first ACCEPT was sent */
    uint32_t hello_clock; /* to echo in ACCEPT */
    bool replaced;        /* replaced by a newer connection; PEER_DOWN at the next deadline */
    bool need_close;
    bool need_ping;
    uint8_t announce_idle; /* number of packets with IDLE still to send */
    bool idle;             /* the peer sent IDLE */
    uint64_t heard_ns;     /* arrival of the last valid packet */
    uint64_t timer_ns;     /* earliest timer of life.c */
    uint64_t ping_ns;      /* last keep-alive PING */
    uint64_t idle_pn;      /* number of the newest packet that set or ended `idle` */
    uint16_t close_code;
    uint8_t close_sends; /* CLOSEs sent */
    bool down_raised;    /* PEER_DOWN was raised */
    bool close_answered;
    bool idle_sent;    /* this end sent IDLE and has received no packet since */
    uint64_t close_ns; /* when to send CLOSE again */
    uint64_t drain_ns; /* when to drop the connection state */
};

/* A valid packet of the peer was received. This ends the idle state of this end. */
static inline void conn_heard(struct conn *c, uint64_t now_ns)
{
    c->heard_ns = now_ns;
    c->announce_idle = 0;
    c->idle_sent = false;
}
/* Send IDLE. It is not acknowledged, so it is sent in three packets. */
static inline void conn_idle_announce(struct conn *c)
{
    c->announce_idle = 3;
    c->idle_sent = true;
}
static inline void conn_idle_announced(struct conn *c)
{
    c->announce_idle -= c->announce_idle > 0;
}
/* End the peer's idle state: packets to it no longer wait. */
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
/* Send HELLO at now_ns, and repeat it after interval_ns. */
static inline void conn_hello_again(struct conn *c, uint64_t now_ns, uint64_t interval_ns)
{
    c->hello_ns = now_ns;
    c->hello_interval_ns = interval_ns;
}
/* Restart the peer timeout of the handshake. */
static inline void conn_hello_since(struct conn *c, uint64_t now_ns)
{
    c->hello_since_ns = now_ns;
}
/* Send to this address from now on. */
static inline void conn_move(struct conn *c, const struct weft_addr *addr)
{
    c->addr = *addr;
}
/* Count events in the ring that refer to this slot. */
static inline void conn_event_raised(struct conn *c)
{
    c->events_unpolled++;
}
static inline void conn_event_polled(struct conn *c, bool one)
{
    c->events_unpolled -= one;
}

/* handshake.c */
/* The connecting peer with this id and address; NULL = none. */
struct peer *weft_core_connecting_find(struct weft_ep *ep, uint32_t connection_id,
                                       const struct weft_addr *from);
/* PEER_UP of p follows: close older connections with the same process. */
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
/* Close the connection with CLOSE. PEER_DOWN now, or (LOCAL) in the next on_deadline. */
void weft_core_close(struct weft_ep *ep, struct peer *p, enum weft_msg_down why, uint16_t code,
                     uint64_t now_ns);
void weft_core_close_recv(struct weft_ep *ep, struct peer *p, uint16_t code, uint64_t now_ns);
void weft_core_closing_recv(struct weft_ep *ep, struct peer *p,
                            const struct weft_wire_packet *packet);
bool weft_core_closing(const struct peer *p);
/* A valid packet contained IDLE; or, while the peer is idle, a valid packet did not. */
void weft_core_idle_note(struct peer *p, uint64_t pn);
void weft_core_awake_note(struct peer *p, uint64_t pn, uint64_t now_ns);

#endif
