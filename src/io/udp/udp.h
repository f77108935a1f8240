/* The UDP driver: one core endpoint on one UDP socket, progressed by the calling thread.
 *
 * It adds system calls, the clock and sleeping to core/endpoint.h. Datagrams are sent as GSO bursts
 * (UDP_SEGMENT) and received merged (UDP_GRO), several bursts for each system call; where the
 * kernel or the route refuses GSO it falls back to one datagram for each message, and counts that.
 * A packet that a full socket refuses is a lost packet: counted, never an error for the caller.
 *
 * Security is the endpoint's (config.ep: mode, crypto, psk; the caller brings the provider). This
 * driver adds one rule: in mode none every address beyond loopback is refused, to bind as well as
 * to connect, unless insecure_network allows it.
 *
 * Use:     weft_udp_open, and from then on io/driver.h; the functions below exist only for this
 *          driver.
 *
 * Source: docs/PROTOCOL.md sections 5 and 6; udp(7), "UDP_SEGMENT", "UDP_GRO".
 */
#ifndef WEFT_IO_UDP_UDP_H
#define WEFT_IO_UDP_UDP_H

#include "base/error.h"
#include "io/driver_types.h"
#include "io/udp/inject_loss.h"

struct weft_udp;

/* An observer of the endpoint (for traces): called after each step and, `last`, before it is freed.
 * Zeroed = none. Thread: the one that calls step; last: the one that closes. */
struct weft_udp_observer {
    void (*observe)(void *arg, struct weft_ep *ep, bool last);
    void *arg;
};

struct weft_udp_config {
    struct weft_udp_observer observer;
    struct weft_before_send before_send;
    const char *host;             /* address to bind: numeric IPv4 or IPv6, or "localhost" */
    uint16_t port;                /* 0 = any free one, see weft_driver_port */
    uint32_t busy_poll_us;        /* busy-poll so long before a sleep (io/busy_poll.h); 0 = never */
    uint32_t socket_buffer_bytes; /* asked for, each way; weft_udp_facts: granted */
    uint16_t loopback_packet_bytes; /* packet size instead of ep.packet_bytes where host is a
                                     * loopback address, which accepts any size; 0 (default) =
                                     * ep.packet_bytes */
    uint32_t blocking_receive; /* > 0 (WEFT_UDP_BLOCKING_RECEIVE): on a loopback address, after this
                                * many consecutive sleeps ended by a datagram, sleep inside the
                                * receive call, which may miss a deadline by a tick of the kernel's
                                * clock. 0 (default): never */
    uint64_t delayed_ack_ns;   /* > 0: when a step ends with nothing to send but a DONE, the DONE is
                                * delayed to the next step, if the last step followed within this
                                * time; if no step follows, a thread sends it after 2 to 4 ms. 0
                                * (default): it is sent at once */
    uint8_t gso;               /* 0: one datagram for each message, as where GSO is refused */
    uint8_t gro;               /* 0: do not request merged datagrams */
    uint8_t insecure_network;  /* 1: allow mode none beyond loopback, where any host may write */
    struct weft_inject_loss_config loss; /* injected loss: drop on arrival */
    struct weft_ep_config ep;
};

/* loopback_packet_bytes for a parameter server: a packet costs a copy and, whatever its length, a
 * share of a system call, an authentication and a lookup of its message; from about this length on
 * the copy dominates. */
enum { WEFT_UDP_LOOPBACK_BYTES = 32768 };

/* delayed_ack_ns for a worker without a progress thread: longer than the gap between two calls of a
 * loop that only uses a row, with some margin for other processes, and shorter than a server's
 * probe timeout. */
#define WEFT_UDP_DELAYED_ACK_NS (100 * WEFT_NS_PER_US)

/* blocking_receive for both ends of a parameter server. */
enum { WEFT_UDP_BLOCKING_RECEIVE = 32 };

/* What the kernel granted to this socket. */
struct weft_udp_facts {
    uint32_t recv_buffer_bytes; /* kernel's count, about twice the payload that fits */
    uint32_t send_buffer_bytes;
    bool gso; /* in use now; becomes false at the first refusal */
    bool gro;
    bool timestamps; /* arrival timestamps are from the kernel */
    bool ecn;        /* ECN marks of arriving packets are reported */
};

/* "127.0.0.1", any port, 4 MB buffers, GSO and GRO on, no loss; ep from weft_ep_config_default with
 * incarnation of this moment and seed drawn from the operating system. */
void weft_udp_config_default(struct weft_udp_config *config_p);

/* Owns:    gives *driver_p, to be ended with weft_driver_close.
 * Errors:  WEFT_INVALID  host is no address, a field is out of its range, or delayed_ack_ns is set
 *                        with before_send.
 *          WEFT_UNSUPPORTED  host is beyond loopback in mode none without insecure_network.
 *          WEFT_IO       a system call was refused; WEFT_EXISTS: the port is in use.
 *          WEFT_NOMEM.   error->text always has the reason.
 * Thread:  the one that will call step; its timer slack is set to 1 ns. */
weft_status weft_udp_open(const struct weft_udp_config *config, struct weft_driver **driver_p,
                          struct weft_error *error);

/* The UDP driver behind a driver; NULL when it is another driver. */
struct weft_udp *weft_driver_udp(struct weft_driver *driver);

/* The address to bind in order to reach these hosts: the loopback address of their family, or its
 * wildcard when one of them is beyond loopback. The family is that of the first; connect refuses a
 * host of the other family, and names it. */
const char *weft_udp_bind_towards(const char *const *hosts, uint32_t count);

/* The endpoint itself, for its counters, srtt and busy. */
struct weft_ep *weft_udp_ep(struct weft_udp *udp);

/* With delayed_ack_ns a thread may use the endpoint between two steps: call weft_udp_ep and
 * weft_udp_counters only between enter and exit. Pass the return value of enter to exit. */
bool weft_udp_enter(struct weft_udp *udp);
void weft_udp_exit(struct weft_udp *udp, bool entered);

/* The same struct in each call. */
const struct weft_socket_counters *weft_udp_counters(struct weft_udp *udp);
void weft_udp_facts(const struct weft_udp *udp, struct weft_udp_facts *facts_p);

#endif
