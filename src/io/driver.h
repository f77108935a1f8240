/* A driver over UDP or TCP. One thread owns it and progresses it.
 *
 * UDP is weft's own transport (io/udp/udp.h, core/endpoint.h). TCP (io/tcp/tcp.h) carries the same
 * message interface, handshake and authentication over the kernel's TCP, for comparisons with
 * weft's transport and for networks that block UDP. A program that uses this header runs unchanged
 * over either.
 *
 * Over TCP every message arrives complete (its bound is accepted, and not used) unless a deadline
 * or a timeout closes it. Of the features that TCP lacks, injected loss is refused at open, and
 * GSO, GRO, the congestion control of core/cc.h and the observer have no effect.
 *
 * Use:     open, then in a loop: calls through weft_driver_msgr, weft_driver_step; at the end
 *          weft_driver_close.
 * Thread:  all by one thread, except weft_driver_wake.
 *
 * Source: docs/PROTOCOL.md, "Over TCP".
 */
#ifndef WEFT_IO_DRIVER_H
#define WEFT_IO_DRIVER_H

#include "io/driver_types.h"
#include "io/udp/udp.h"

struct weft_driver_config {
    enum weft_driver_kind kind;
    /* Used by both: before_send, host, port, busy_poll_us, insecure_network, and of ep: name,
     * incarnation, seed, the sizes of tables, accept, the times, security. socket_buffer_bytes is
     * used by UDP only; the kernel sizes TCP's buffers. */
    struct weft_udp_config udp;
    /* Only for TCP. */
    const char *tcp_cc;      /* the kernel's congestion control, "bbr"; NULL = its default */
    uint64_t tcp_rto_min_ns; /* minimum retransmission timeout; 0 = the kernel's, usually 200 ms */
};

/* "weft" (UDP) or "tcp": the values of the option --transport. */
const char *weft_driver_kind_name(enum weft_driver_kind kind);

/* UDP, with the defaults of weft_udp_config_default. */
void weft_driver_config_default(struct weft_driver_config *config_p);

/* Owns:    gives *driver_p, to be ended with weft_driver_close.
 * Errors:  WEFT_INVALID  host is no address, or a field is out of its range.
 *          WEFT_UNSUPPORTED  host is beyond loopback in mode none without insecure_network; over
 *                        TCP also loss, and a tcp_cc or tcp_rto_min_ns unknown to the kernel.
 *          WEFT_IO       a system call was refused; WEFT_EXISTS: the port is in use.
 *          WEFT_NOMEM.   error->text always has the reason.
 * Thread:  the one that will call step; its timer slack is set to 1 ns. */
weft_status weft_driver_open(const struct weft_driver_config *config, struct weft_driver **driver_p,
                             struct weft_error *error);

enum weft_driver_kind weft_driver_kind(const struct weft_driver *driver);

/* The port bound, host byte order; over TCP 0 unless ep.accept. */
uint16_t weft_driver_port(const struct weft_driver *driver);

/* Begin a connection; PEER_UP or PEER_DOWN follows.
 * Errors:  as weft_driver_open for the address; WEFT_NOMEM the peer table is full. */
weft_status weft_driver_connect(struct weft_driver *driver, const char *host, uint16_t port,
                                weft_peer *peer_p, struct weft_error *error);

/* End one connection: weft_ep_close. PEER_DOWN (LOCAL) follows. Over TCP CLOSE is lost if the
 * socket's buffer has no space for it: the peer then sees a broken connection. */
void weft_driver_disconnect(struct weft_driver *driver, weft_peer peer);

/* The same with weft_ep_refuse: the peer's PEER_DOWN has the reason REPLACED. */
void weft_driver_refuse(struct weft_driver *driver, weft_peer peer);

/* The message interface; now_ns of its calls is weft_clock_now_ns(). */
struct weft_msgr weft_driver_msgr(struct weft_driver *driver);

/* One round of progress: send what is ready; sleep; receive one batch of datagrams, calling handler
 * after each; run due timers, and handler if there were any; send what is ready. The sleep ends at
 * a datagram, a wake, the endpoint's deadline, or timeout_ns from now. Over UDP, if datagrams
 * follow each other closely, a datagram may end it up to 100 us late, so that several are received
 * together (weft_ep_batch_ns). handler is called at least once in each step. Returns the number of
 * datagrams (over TCP, records) received. timeout_ns 0 = do not sleep, WEFT_NEVER = no limit.
 * Cost:    3 system calls in the steady state; over UDP a batch has at most WEFT_RX_SLOTS
 *          buffers. */
uint32_t weft_driver_step(struct weft_driver *driver, uint64_t timeout_ns,
                          weft_driver_handler *handler, void *arg);

/* For a thread that progresses many drivers: a descriptor for poll and epoll that becomes
 * readable when step(0) has something to do. Call weft_driver_rest before each wait for it. */
int weft_driver_pollable(const struct weft_driver *driver);

/* Also make the descriptor readable at the endpoint's deadline or at until_ns. False: there is
 * already something to do, so step instead of waiting. */
bool weft_driver_rest(struct weft_driver *driver, uint64_t until_ns);

/* End the sleep of a step that runs now, or of the next one. Thread: any; also a signal handler. */
void weft_driver_wake(struct weft_driver *driver);

/* Send what is ready, as far as window and pacer allow; receive nothing. For a caller that has
 * posted a message and does other work before its next step. */
void weft_driver_flush(struct weft_driver *driver);

/* Tell peers that this end will not be progressed for a while (weft_ep_idle), and send it. */
void weft_driver_idle(struct weft_driver *driver);

/* Send delayed acknowledgements (weft_ep_acknowledge); over TCP there are none. */
void weft_driver_acknowledge(struct weft_driver *driver);

/* Send CLOSE to all peers, over UDP up to three times, until they answer, for 50 ms at most; then
 * free. Events that were not polled are lost. NULL is allowed. */
void weft_driver_close(struct weft_driver *driver);

void weft_driver_counters(struct weft_driver *driver, struct weft_driver_counters *counters_p);

/* True while anything is queued, unacknowledged or open with a live peer. */
bool weft_driver_busy(struct weft_driver *driver);

/* Why connections are not established: as weft_ep_hint. */
enum weft_ep_hint weft_driver_hint(struct weft_driver *driver);

/* The network's last report about a connection that is not established yet, such as "nothing
 * listens at 127.0.0.1:7700: ..."; "" = none. It is only a hint, because ICMP can be forged. */
void weft_driver_unreached(const struct weft_driver *driver, char text_p[WEFT_UNREACHED_BYTES]);

/* Smoothed round-trip time to a peer, from the endpoint (UDP) or the kernel (TCP); 0 = unknown. */
uint64_t weft_driver_srtt_ns(struct weft_driver *driver, weft_peer peer);

/* As weft_ep_grid: elements in a chunk of a message of `total` elements sent to peer now. */
uint32_t weft_driver_grid(struct weft_driver *driver, weft_peer peer, uint16_t elem_bytes,
                          uint32_t total);

#endif
