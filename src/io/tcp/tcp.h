/* The message interface over the kernel's TCP, turned by the calling thread.
 *
 * One listening socket (when ep.accept) and one connection for each peer, in non-blocking mode
 * behind epoll. What it keeps of weft: messages, chunks, masks, sinks, tags, priorities, deadlines,
 * the handshake and the authentication of every byte. What it leaves to the kernel: loss,
 * congestion, pacing. So every message arrives whole, in whatever time that takes, and masks are
 * full unless a deadline or a timeout closes a message SHORT; a bound counts then.
 *
 * A connection that breaks is a peer that is down (WEFT_DOWN_RESTARTED): messages under way end as
 * UNKNOWN and SHORT, the caller connects anew. connect() that finds nobody is tried again until
 * ep.peer_timeout_ns, as UDP's HELLO is.
 *
 * It is not a general TCP layer: no TLS, no names, no proxies.
 *
 * Thread:  all by one thread, except weft_tcp_wake.
 * Source:  docs/PROTOCOL.md section 10; tcp(7).
 */
#ifndef WEFT_IO_TCP_TCP_H
#define WEFT_IO_TCP_TCP_H

#include "io/driver.h"

struct weft_tcp;

struct weft_tcp_config {
    struct weft_udp_before_send before_send;
    const char *host;         /* address to bind: numeric IPv4 or IPv6, or "localhost" */
    uint16_t port;            /* to listen at; 0 = any free one */
    uint32_t busy_poll_us;
    uint8_t insecure_network; /* 1: mode none beyond loopback, too */
    const char *cc;           /* TCP_CONGESTION; NULL = the host's default */
    uint64_t rto_min_ns;      /* TCP_RTO_MIN_US; 0 = the host's */
    /* Used: name, incarnation, seed, peers_max, chunks_max, expects_max, accept, peer_timeout_ns,
     * keepalive_ns, idle_timeout_ns, sleep_timeout_ns, mode, crypto, psk, rekey_packets (records),
     * half_open_max, hello_rate_max. */
    struct weft_ep_config ep;
};

/* What the kernel granted. */
struct weft_tcp_facts {
    char cc[16];         /* in use by connections made from now on */
    uint64_t rto_min_ns; /* as the kernel rounded it; 0 = its default */
};

/* Errors:  as weft_udp_open; WEFT_UNSUPPORTED also when the kernel does not know cc, or cannot set
 *          rto_min_ns for a socket. */
weft_status weft_tcp_open(const struct weft_tcp_config *config, struct weft_tcp **tcp_p,
                          struct weft_error *error);

/* The port listened at; 0 without ep.accept. */
uint16_t weft_tcp_port(const struct weft_tcp *tcp);

/* Errors:  as weft_udp_connect. */
weft_status weft_tcp_connect(struct weft_tcp *tcp, const char *host, uint16_t port,
                             weft_peer *peer_p, struct weft_error *error);

/* As weft_driver_disconnect, weft_driver_busy. CLOSE is lost if the socket has no room for it: the
 * other end then sees a connection that broke. */
void weft_tcp_disconnect(struct weft_tcp *tcp, weft_peer peer);
/* As weft_driver_refuse. */
void weft_tcp_refuse_peer(struct weft_tcp *tcp, weft_peer peer);
bool weft_tcp_busy(const struct weft_tcp *tcp);

struct weft_msgr weft_tcp_msgr(struct weft_tcp *tcp);

/* As weft_udp_step, _pollable, _rest, _wake, _idle, _close. step returns the records taken. */
uint32_t weft_tcp_step(struct weft_tcp *tcp, uint64_t timeout_ns, weft_driver_handler *handler,
                       void *arg);
int weft_tcp_pollable(const struct weft_tcp *tcp);
bool weft_tcp_rest(struct weft_tcp *tcp, uint64_t until_ns);
void weft_tcp_wake(struct weft_tcp *tcp);
void weft_tcp_flush(struct weft_tcp *tcp);
void weft_tcp_idle(struct weft_tcp *tcp);
void weft_tcp_close(struct weft_tcp *tcp);

void weft_tcp_counters(struct weft_tcp *tcp, struct weft_driver_counters *counters_p);
enum weft_ep_hint weft_tcp_hint(const struct weft_tcp *tcp);
void weft_tcp_unreached(const struct weft_tcp *tcp, char text_p[WEFT_UDP_UNREACHED_BYTES]);
uint64_t weft_tcp_srtt_ns(const struct weft_tcp *tcp, weft_peer peer);
uint32_t weft_tcp_grid(const struct weft_tcp *tcp, weft_peer peer, uint16_t elem_bytes);
void weft_tcp_facts(const struct weft_tcp *tcp, struct weft_tcp_facts *facts_p);

#endif
