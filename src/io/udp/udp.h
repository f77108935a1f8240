/* One core endpoint on one UDP socket, turned by the calling thread.
 *
 * What it adds to core/endpoint.h: system calls, the clock, and sleeping. Datagrams are sent as GSO
 * bursts (UDP_SEGMENT) and received merged (UDP_GRO), several bursts for each system call; where
 * the kernel or the route refuses GSO it falls back to one datagram for each message, and counts.
 * A full socket is the network dropping a packet: counted, never an error of the caller.
 *
 * Security is the endpoint's (config.ep: mode, crypto, psk; the caller brings the provider). What
 * this driver adds: in mode none every address beyond loopback is refused, to bind as well as to
 * connect, unless insecure_network says that this is meant.
 *
 * Use:   weft_udp_open, then in a loop: calls through weft_udp_msgr, weft_udp_step;  at the end
 *        weft_udp_close. All by one thread, except weft_udp_wake.
 *
 * Source: docs/PROTOCOL.md sections 5 and 6; udp(7), "UDP_SEGMENT", "UDP_GRO".
 */
#ifndef WEFT_IO_UDP_UDP_H
#define WEFT_IO_UDP_UDP_H

#include "base/error.h"
#include "core/endpoint.h"
#include "io/udp/loss.h"

struct weft_udp;

/* An observer of the endpoint (for traces): called after each step and, `last`, before it is freed.
 * Zeroed = none. Thread: the one that calls step; last: the one that closes. */
struct weft_udp_observer {
    void (*observe)(void *arg, struct weft_ep *ep, bool last);
    void *arg;
};

/* Called before packets leave (over TCP: bytes of open connections), as often as there are some: what
 * they confirm can be made to last first. Zeroed = not. Thread: the one that calls step; with delayed_ack_ns
 * another would send, too, so the two are refused together. */
struct weft_udp_before_send {
    void (*call)(void *arg);
    void *arg;
};

struct weft_udp_config {
    struct weft_udp_observer observer;
    struct weft_udp_before_send before_send;
    const char *host;             /* address to bind: numeric IPv4 or IPv6, or "localhost" */
    uint16_t port;                /* 0 = any free one; weft_udp_port tells */
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
    uint8_t insecure_network;     /* 1: mode none beyond loopback, too: anybody there may write */
    struct weft_loss_config loss; /* drop on arrival, on purpose */
    struct weft_ep_config ep;
};

/* loopback_packet_bytes for a parameter server: a packet costs a copy and, whatever its length, a
 * system call's share, an authentication, a lookup of its message; from about this length on the
 * copy is most of it. */
enum { WEFT_UDP_LOOPBACK_BYTES = 32768 };

/* delayed_ack_ns for a worker without a progress thread: between two calls of a loop that does
 * nothing but use a row, with room for other processes; less than the server waits before it probes. */
#define WEFT_UDP_DELAYED_ACK_NS (100 * WEFT_NS_PER_US)

/* blocking_receive for both ends of a parameter server. */
enum { WEFT_UDP_BLOCKING_RECEIVE = 32 };

/* Cumulative since open. What the endpoint dropped is in weft_ep_counters. */
struct weft_udp_counters {
    uint64_t datagrams_received; /* after the split of merged ones, injected drops included */
    uint64_t injected_drops;     /* of these, dropped on purpose: the endpoint never saw them */
    uint64_t bytes_received;     /* UDP payload, injected drops included */
    uint64_t buffers_received;   /* before the split */
    uint64_t truncated;          /* buffers longer than a receive slot: dropped whole */
    uint64_t kernel_drops;       /* the kernel's: its receive buffer was full */
    uint64_t datagrams_sent;
    uint64_t bytes_sent;    /* UDP payload */
    uint64_t bursts_sent;   /* messages taken by the kernel; GSO puts many datagrams in one */
    uint64_t send_dropped;  /* datagrams not taken by the kernel: lost, as by a network */
    uint64_t send_blocked;  /* waits for room in the socket */
    uint64_t gso_refused;   /* bursts sent one by one after a refusal; GSO stays off then */
    uint64_t socket_errors; /* ECONNREFUSED and friends that other sockets caused: ignored */
    uint64_t unreached;     /* ICMP about connections being made: nothing listens, no way there */
    uint64_t recv_calls;    /* system calls */
    uint64_t send_calls;
    uint64_t sleeps;
    uint64_t sleeps_receiving; /* of these, inside the receive call */
    uint64_t naps;             /* of these, to let datagrams gather: weft_ep_batch_ns */
    uint64_t wakes;     /* sleeps ended by weft_udp_wake */
    uint64_t acks_delayed;      /* steps that left a DONE for the next */
    uint64_t acks_delayed_sent; /* times that the thread sent: the next step did not come in time */
};

/* What the kernel granted to this socket. */
struct weft_udp_facts {
    uint32_t recv_buffer_bytes; /* kernel's count, about twice the payload that fits */
    uint32_t send_buffer_bytes;
    bool gso; /* in use now; turns false at the first refusal */
    bool gro;
    bool timestamps; /* arrival stamps come from the kernel */
    bool ecn;        /* ECN marks of arriving packets are reported */
};

/* Called from step: poll the message interface until it has no event. It may call everything
 * of the message interface, weft_udp_connect and weft_udp_wake; not weft_udp_step, _idle or
 * _close. */
typedef void weft_udp_handler(void *arg, uint64_t now_ns);

/* "127.0.0.1", any port, 4 MB buffers, GSO and GRO on, no loss; ep from weft_ep_config_default with
 * incarnation of this moment and seed drawn from the operating system. */
void weft_udp_config_default(struct weft_udp_config *config_p);

/* Owns:    gives *udp_p, to be ended with weft_udp_close.
 * Errors:  WEFT_INVALID  host is no address, or a limit of ep is out of range.
 *          WEFT_UNSUPPORTED  host is beyond loopback in mode none without insecure_network.
 *          WEFT_IO       a system call was refused; WEFT_EXISTS: the port is in use.
 *          WEFT_NOMEM.   error->text says it in words each time.
 * Thread:  the one that will call step; its timer slack is set to 1 ns. */
weft_status weft_udp_open(const struct weft_udp_config *config, struct weft_udp **udp_p,
                          struct weft_error *error);

/* Where to bind for being able to reach these hosts: the loopback address of their family, or its
 * wildcard when one of them is beyond loopback. The family is that of the first; connect names a
 * host of the other. */
const char *weft_udp_bind_towards(const char *const *hosts, uint32_t count);

/* The port bound, host byte order. */
uint16_t weft_udp_port(const struct weft_udp *udp);

/* Begin a connection (weft_ep_connect); PEER_UP or PEER_DOWN follows.
 * Errors:  as weft_udp_open for the address; WEFT_NOMEM the peer table is full. */
weft_status weft_udp_connect(struct weft_udp *udp, const char *host, uint16_t port,
                             weft_peer *peer_p, struct weft_error *error);

/* The message interface of the endpoint; now_ns of its calls is weft_clock_now_ns(). */
struct weft_msgr weft_udp_msgr(struct weft_udp *udp);

/* The endpoint itself, for its counters, srtt and busy. */
struct weft_ep *weft_udp_ep(struct weft_udp *udp);

/* With delayed_ack_ns a thread may have the endpoint between two steps: what is not the message interface,
 * weft_udp_connect, _rest, _idle and _close is for between these two. Exit takes what enter said. */
bool weft_udp_enter(struct weft_udp *udp);
void weft_udp_exit(struct weft_udp *udp, bool entered);

/* One round of progress: send what is ready; sleep until a datagram, a wake, the endpoint's
 * deadline or timeout_ns from now (where datagrams follow each other closely, up to 100 us longer than
 * the first of them takes: weft_ep_batch_ns); take one batch of datagrams, calling handler after each; run
 * what is due, and handler if anything was; send what is ready. handler is called at least once in
 * each step.
 * Returns the datagrams taken. timeout_ns 0 = do not sleep, WEFT_NEVER = as long as it takes.
 * Cost:    3 system calls in the steady state; a batch is at most 8 buffers of 64 KB. */
uint32_t weft_udp_step(struct weft_udp *udp, uint64_t timeout_ns, weft_udp_handler *handler,
                       void *arg);

/* For a thread that turns many endpoints: a descriptor for poll and epoll that turns readable when
 * step(0) has something to do; weft_udp_rest is due before each wait for it. */
int weft_udp_pollable(const struct weft_udp *udp);

/* Make the descriptor turn readable at the endpoint's deadline or at until_ns, too. False: there is
 * something to do already, so step instead of waiting. */
bool weft_udp_rest(struct weft_udp *udp, uint64_t until_ns);

/* End the sleep of a step that runs now, or of the next one. Thread: any; also a signal handler. */
void weft_udp_wake(struct weft_udp *udp);

/* Send what is ready, as far as window and pacer allow; receive nothing. For a caller that has posted a
 * message and does something else before its next step. */
void weft_udp_flush(struct weft_udp *udp);

/* Tell peers that this socket will not be looked at for a while (weft_ep_idle), and send it. */
void weft_udp_idle(struct weft_udp *udp);

/* Send CLOSE to all peers, up to three times until they answer, for 50 ms at most; then free. Events
 * not polled are gone. NULL is fine. */
void weft_udp_close(struct weft_udp *udp);

/* What the network said about a connection that was being made and has not come up since, such as
 * "nothing listens at 127.0.0.1:7700: ..."; "" when nothing. Only ever a hint: ICMP can be forged. */
enum { WEFT_UDP_UNREACHED_BYTES = 192 };
void weft_udp_unreached(const struct weft_udp *udp, char text_p[WEFT_UDP_UNREACHED_BYTES]);

/* The same struct in each call. */
const struct weft_udp_counters *weft_udp_counters(struct weft_udp *udp);
void weft_udp_facts(const struct weft_udp *udp, struct weft_udp_facts *facts_p);

#endif
