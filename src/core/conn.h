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
