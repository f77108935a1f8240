/* The TCP driver: the message interface over the kernel's TCP, progressed by the calling thread.
 *
 * One listening socket (when ep.accept) and one connection for each peer, in non-blocking mode
 * behind epoll. Provided by weft: messages, chunks, masks, sinks, tags, priorities, deadlines, the
 * handshake and the authentication of every byte. Left to the kernel: loss recovery, congestion
 * control, and pacing except at the rate of a message that has one. So every message arrives
 * complete, however long that takes, and masks are full unless a deadline or a timeout closes a
 * message SHORT; only then is the loss bound checked.
 *
 * A broken connection takes its peer down (WEFT_DOWN_RESTARTED): messages in flight end as UNKNOWN
 * and SHORT, and the caller reconnects. A connect() that finds no listener is retried until
 * ep.peer_timeout_ns, as HELLO is over UDP.
 *
 * It is not a general TCP layer: no TLS, no names, no proxies.
 *
 * Use:     weft_tcp_open, and from then on io/driver.h.
 * Source:  docs/PROTOCOL.md section 10; tcp(7).
 */
#ifndef WEFT_IO_TCP_TCP_H
#define WEFT_IO_TCP_TCP_H

#include "base/error.h"
#include "io/driver_types.h"

struct weft_tcp;

struct weft_tcp_config {
    struct weft_before_send before_send;
    const char *host; /* address to bind: numeric IPv4 or IPv6, or "localhost" */
    uint16_t port;    /* port to listen on; 0 = any free port */
    uint32_t busy_poll_us;
    uint8_t insecure_network; /* 1: allow mode none beyond loopback */
    const char *cc;           /* TCP_CONGESTION; NULL = the host's default */
    uint64_t rto_min_ns;      /* TCP_RTO_MIN_US; 0 = the host's */
    /* Used: name, incarnation, seed, peers_max, chunks_max, expects_max, accept, peer_timeout_ns,
     * keepalive_ns, idle_timeout_ns, sleep_timeout_ns, mode, crypto, psk, rekey_packets (records),
     * half_open_max, hello_rate_max. */
    struct weft_ep_config ep;
};

/* What the kernel granted. */
struct weft_tcp_facts {
    char cc[16];         /* used by connections made from now on */
    uint64_t rto_min_ns; /* as rounded by the kernel; 0 = its default */
};

/* Errors:  as weft_udp_open; WEFT_UNSUPPORTED also when the kernel does not know cc, or cannot set
 *          rto_min_ns for a socket. */
weft_status weft_tcp_open(const struct weft_tcp_config *config, struct weft_driver **driver_p,
                          struct weft_error *error);

void weft_tcp_facts(const struct weft_tcp *tcp, struct weft_tcp_facts *facts_p);

#endif
