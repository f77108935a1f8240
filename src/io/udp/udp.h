/* The UDP driver: one core endpoint on one UDP socket, progressed by the calling thread.
 *
 * What it adds to core/endpoint.h: system calls, the clock, and sleeping. Datagrams are sent as GSO
 * bursts (UDP_SEGMENT) and received merged (UDP_GRO), several bursts for each system call; where
 * the kernel or the route refuses GSO it falls back to one datagram for each message, and counts.
 * A full socket is the network dropping a packet: counted, never an error of the caller.
 *
 * Security is the endpoint's (config.ep: mode, crypto, psk; the caller brings the provider). What
 * this driver adds: in mode none every address beyond loopback is refused, to bind as well as to
 * connect, unless insecure_network allows it.
 *
 * Use:     weft_udp_open, and from then on io/driver.h; below is what only this driver has.
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
    uint16_t loopback_packet_bytes; /* ep.packet_bytes where host is a loopback address, which takes
                                     * any; 0 (default) = ep.packet_bytes there, too */
    uint32_t blocking_receive; /* > 0 (WEFT_UDP_BLOCKING_RECEIVE): on a loopback address, when so many
                                * sleeps in a row were ended by a datagram, sleep inside the receive
                                * call, which may miss a deadline by a tick of the kernel's clock.
                                * 0 (default): always by the clock */
    uint64_t delayed_ack_ns; /* > 0: when a step ends and has nothing to send but that a message has
                              * arrived, that waits for the next step, if the next step came within
                              * so long the last time; without one a thread sends it after 2 to 4 ms.
                              * 0 (default): it is sent at once */
    uint8_t gso;                  /* 0: one datagram a message, as where GSO is refused */
    uint8_t gro;                  /* 0: do not ask for merged datagrams */
    uint8_t insecure_network;     /* 1: mode none beyond loopback, too: any host there may write */
    struct weft_inject_loss_config loss; /* drop on arrival, on purpose */
    struct weft_ep_config ep;
};

/* loopback_packet_bytes for a parameter server: a packet costs a copy and, whatever its length, a
 * system call's share, an authentication, a lookup of its message; from about this length on the
 * copy is most of it. */
enum { WEFT_UDP_LOOPBACK_BYTES = 32768 };

/* delayed_ack_ns for a worker without a progress thread: between two calls of a loop that does
 * nothing but use a row, with room for other processes; less than the server waits before it
 * probes. */
#define WEFT_UDP_DELAYED_ACK_NS (100 * WEFT_NS_PER_US)

/* blocking_receive for both ends of a parameter server. */
enum { WEFT_UDP_BLOCKING_RECEIVE = 32 };

/* What the kernel granted to this socket. */
struct weft_udp_facts {
    uint32_t recv_buffer_bytes; /* kernel's count, about twice the payload that fits */
    uint32_t send_buffer_bytes;
    bool gso; /* in use now; turns false at the first refusal */
    bool gro;
    bool timestamps; /* arrival stamps come from the kernel */
    bool ecn;        /* ECN marks of arriving packets are reported */
};

/* "127.0.0.1", any port, 4 MB buffers, GSO and GRO on, no loss; ep from weft_ep_config_default with
 * incarnation of this moment and seed drawn from the operating system. */
void weft_udp_config_default(struct weft_udp_config *config_p);

/* Owns:    gives *driver_p, to be ended with weft_driver_close.
 * Errors:  WEFT_INVALID  host is no address, or a limit of ep is out of range.
 *          WEFT_UNSUPPORTED  host is beyond loopback in mode none without insecure_network.
 *          WEFT_IO       a system call was refused; WEFT_EXISTS: the port is in use.
 *          WEFT_NOMEM.   error->text always has the reason.
 * Thread:  the one that will call step; its timer slack is set to 1 ns. */
weft_status weft_udp_open(const struct weft_udp_config *config, struct weft_driver **driver_p,
                          struct weft_error *error);

/* What only this driver has, below. NULL when the driver is another one. */
struct weft_udp *weft_driver_udp(struct weft_driver *driver);

/* Where to bind for being able to reach these hosts: the loopback address of their family, or its
 * wildcard when one of them is beyond loopback. The family is that of the first; connect names a
 * host of the other. */
const char *weft_udp_bind_towards(const char *const *hosts, uint32_t count);

/* The endpoint itself, for its counters, srtt and busy. */
struct weft_ep *weft_udp_ep(struct weft_udp *udp);

/* With delayed_ack_ns a thread may have the endpoint between two steps: what is done with
 * weft_udp_ep and weft_udp_counters is for between these two. Exit takes the value of enter. */
bool weft_udp_enter(struct weft_udp *udp);
void weft_udp_exit(struct weft_udp *udp, bool entered);

/* The same struct in each call. */
const struct weft_socket_counters *weft_udp_counters(struct weft_udp *udp);
void weft_udp_facts(const struct weft_udp *udp, struct weft_udp_facts *facts_p);

#endif
