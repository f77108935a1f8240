/* A transport by choice: one owner thread turns it, whatever carries the messages.
 *
 * UDP is weft's own transport (io/udp/udp.h, core/endpoint.h). TCP (io/tcp/tcp.h) carries the same message
 * interface, handshake and authentication over the kernel's TCP: what weft is compared with, and
 * the way out where UDP is blocked. A program that uses this header runs unchanged over either.
 *
 * Over TCP every message arrives whole (its bound is accepted, and not used) unless a deadline or a
 * timeout closes it. What TCP has no counterpart of is refused at open when it was asked for
 * (injected loss), or does nothing: GSO, GRO, congestion control of core/cc.h, and the observer.
 *
 * Use:     as io/udp/udp.h: open, then in a loop calls through weft_driver_msgr and weft_driver_step.
 * Thread:  all by one thread, except weft_driver_wake.
 *
 * Source: docs/PROTOCOL.md, "Over TCP".
 */
#ifndef WEFT_IO_DRIVER_H
#define WEFT_IO_DRIVER_H

#include "io/udp/udp.h"

struct weft_driver;

enum weft_driver_kind { WEFT_DRIVER_UDP, WEFT_DRIVER_TCP };

struct weft_driver_config {
    enum weft_driver_kind kind;
    /* Of both: before_send, host, port, busy_poll_us, insecure_network, and of ep: name, incarnation, seed, the
     * sizes of tables, accept, the times, security. socket_buffer_bytes is UDP's; the kernel sizes
     * TCP's by itself. */
    struct weft_udp_config udp;
    /* Of TCP alone. */
    const char *tcp_cc;      /* the kernel's congestion control, "bbr"; NULL = its default */
    uint64_t tcp_rto_min_ns; /* least retransmission timeout; 0 = the kernel's, 200 ms mostly */
};

/* What both count. For the rest of struct weft_udp_counters and struct weft_ep_counters see there;
 * over TCP datagrams are records, data_sent and data_received records with a chunk,
 * retransmitted_packets the segments that the kernel sent again, and what does not exist is 0. */
struct weft_driver_counters {
    struct weft_udp_counters socket;
    struct weft_ep_counters ep;
};

/* "weft" (UDP is what weft is) or "tcp": the names of the option --transport. */
const char *weft_driver_kind_name(enum weft_driver_kind kind);

/* UDP, with the defaults of weft_udp_config_default. */
void weft_driver_config_default(struct weft_driver_config *config_p);

/* Owns:    gives *driver_p, to be ended with weft_driver_close.
 * Errors:  as weft_udp_open; over TCP also WEFT_UNSUPPORTED when the kernel does not know tcp_cc
 *          or cannot set tcp_rto_min_ns. error->text says it in words each time. */
weft_status weft_driver_open(const struct weft_driver_config *config, struct weft_driver **driver_p,
                             struct weft_error *error);

enum weft_driver_kind weft_driver_kind(const struct weft_driver *driver);

/* The port bound, host byte order; over TCP 0 unless ep.accept. */
uint16_t weft_driver_port(const struct weft_driver *driver);

/* Begin a connection; PEER_UP or PEER_DOWN follows. Errors: as weft_udp_connect. */
weft_status weft_driver_connect(struct weft_driver *driver, const char *host, uint16_t port,
                                weft_peer *peer_p, struct weft_error *error);

/* End one connection: weft_ep_close. PEER_DOWN (LOCAL) follows. */
void weft_driver_disconnect(struct weft_driver *driver, weft_peer peer);

/* The same by weft_ep_refuse: the other end's PEER_DOWN says REPLACED. */
void weft_driver_refuse(struct weft_driver *driver, weft_peer peer);

struct weft_msgr weft_driver_msgr(struct weft_driver *driver);

/* As weft_udp_pollable and weft_udp_rest: for a thread that turns many transports. */
int weft_driver_pollable(const struct weft_driver *driver);
bool weft_driver_rest(struct weft_driver *driver, uint64_t until_ns);

/* As weft_udp_step, weft_udp_wake (any thread, signal handlers), weft_udp_flush, weft_udp_idle. */
typedef void weft_driver_handler(void *arg, uint64_t now_ns);
uint32_t weft_driver_step(struct weft_driver *driver, uint64_t timeout_ns,
                          weft_driver_handler *handler, void *arg);
void weft_driver_wake(struct weft_driver *driver);
void weft_driver_flush(struct weft_driver *driver);
void weft_driver_idle(struct weft_driver *driver);

/* CLOSE to all peers, then free. NULL is fine. */
void weft_driver_close(struct weft_driver *driver);

void weft_driver_counters(struct weft_driver *driver, struct weft_driver_counters *counters_p);

/* True while anything is queued, unconfirmed or open with a live peer. */
bool weft_driver_busy(struct weft_driver *driver);

/* Why connections do not come about: weft_ep_hint. */
enum weft_ep_hint weft_driver_hint(const struct weft_driver *driver);

/* What the network said about a connection that does not come about: weft_udp_unreached. */
void weft_driver_unreached(const struct weft_driver *driver,
                           char text_p[WEFT_UDP_UNREACHED_BYTES]);

/* Smoothed round-trip time to a peer, as UDP's endpoint or the kernel's TCP has it; 0 = unknown. */
uint64_t weft_driver_srtt_ns(const struct weft_driver *driver, weft_peer peer);

/* As weft_ep_grid: elements in a chunk of a message of `total` elements sent to peer now. */
uint32_t weft_driver_grid(const struct weft_driver *driver, weft_peer peer, uint16_t elem_bytes,
                          uint32_t total);

/* The UDP driver inside, for what only it has; NULL over TCP. */
struct weft_udp *weft_driver_udp(struct weft_driver *driver);

#endif
