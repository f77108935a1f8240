/* weft's transport: vectors of elements from one process to another over UDP, on time, with at most
 * a chosen fraction missing, and both ends told exactly what is missing.
 *
 * It is not a stream: messages have no order among each other, and a receiver posts memory before
 * anything is taken. It is not a parameter server or a collective; those stand on it.
 *
 * The life of a transfer:
 *
 *     receiver                                    sender
 *     weft_transport_open (accept = 1)            weft_transport_open
 *     weft_transport_receive (memory, tag)        weft_transport_connect -> peer
 *                                                 weft_transport_send (vector, tag, bound)
 *     weft_transport_wait -> RECEIVED + mask      weft_transport_wait -> SENT + the same mask
 *     weft_transport_flush, _close                weft_transport_close
 *
 * Progress. By default the calling thread makes it: packets are sent and received only inside
 * _progress, _wait and _flush (lowest latency, no second thread). A program that computes for longer
 * than its peers' peer_timeout_ns between such calls is declared dead. With config.thread = 1 the
 * library has a progress thread, and transfers go on while the program computes. All other calls are the same.
 *
 * Structs with a `size` field may grow; see docs/API.md for what is promised. Fill them by their
 * _init function, then set what differs. Times are nanoseconds, WEFT_NEVER = no limit; fractions
 * are parts per million.
 *
 * Source: docs/PROTOCOL.md; the bounded loss of [apnet19] (docs/papers.md).
 */
#ifndef WEFT_TRANSPORT_H
#define WEFT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/export.h>
#include <weft/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_NEVER    UINT64_MAX
#define WEFT_PEER_ANY UINT32_MAX

/* ---- opening --------------------------------------------------------------------------------- */

/* One socket with its connections. One thread at a time may use it; many may exist. */
struct weft_transport;

enum weft_transport_security {
    WEFT_TRANSPORT_AUTH, /* every byte is authenticated; the elements travel in clear */
    WEFT_TRANSPORT_SEAL, /* encrypted as well */
    WEFT_TRANSPORT_NONE, /* neither, and no key: loopback only */
};

struct weft_transport_config {
    size_t size;                  /* set by weft_transport_config_init */
    const char *host;             /* address to bind: numeric IPv4 or IPv6, or "localhost" (the
                                   * default: 127.0.0.1); peers must be of the same kind */
    const char *key_file;         /* the job key, made by `weft keygen`; NULL (default) = `key`, or
                                   * the environment variable WEFT_JOB_KEY, which is then unset */
    const uint8_t *key;           /* 32 secret bytes in place of a file; default NULL */
    uint32_t security;            /* enum weft_transport_security, alike at both ends; default
                                   * AUTH */
    uint16_t port;                /* UDP; 0 = any free one (weft_transport_port tells) */
    uint8_t accept;               /* 1: take connections; 0 (default): only make them */
    uint8_t thread;               /* 1: the library has a progress thread; default 0 */
    uint32_t peers_max;           /* connections at a time, 1 .. 4,096; default 16 */
    uint32_t receives_max;        /* receives posted at a time, 1 .. 65,536; default 64 */
    uint64_t message_bytes_max;   /* longest message sent or taken, to be set alike at both ends;
                                   * default 16 MiB; up to 131,072 packets' worth */
    uint32_t packet_bytes;        /* UDP payload to build, 256 .. 65,000; default 1,472, which is
                                   * right for an MTU of 1,500 and IPv4 */
    uint32_t senders_expected;    /* peers that send to this one at a time, where the program knows
                                   * (it then paces them from the first packet); default 0 */
    uint64_t name;                /* told to peers in their UP event; opaque; default 0 */
    uint64_t peer_timeout_ns;     /* a peer that owes an answer for so long is down; default 5 s, or
                                   * WEFT_PEER_TIMEOUT_S of the environment */
    const char *congestion;       /* "dctcp" (NULL, the default), "delay", or "reno-fair" for a
                                   * link that is shared with TCP */
    uint32_t socket_buffer_bytes; /* asked of the kernel, each way; default 4 MiB */
    uint32_t busy_poll_us;        /* look at the socket so long before a sleep, while that finds
                                   * something; default 0 = never */
    uint32_t inject_loss_ppm;     /* drop arriving datagrams on purpose, to see what a program does
                                   * on a network that loses; default 0 */
    uint32_t inject_seed;         /* which ones */
    uint64_t keepalive_ns;        /* ask a peer that was silent for so long whether it is there; when
                                   * nothing comes for peer_timeout_ns then, it is DOWN (SILENT). At
                                   * least 1 ms. A peer without config.thread that computes for
                                   * longer is declared dead; default WEFT_NEVER: only a peer that
                                   * owes an answer is probed */
    uint64_t idle_timeout_ns;     /* close a connection over which nothing was heard for so long and
                                   * nothing is outstanding: DOWN (IDLE) here, DOWN (CLOSED) there. At
                                   * least 1 ms; default WEFT_NEVER */
    const char *metrics;          /* serve /metrics over HTTP, for Prometheus and `weft top`, in a
                                   * thread of its own: "port" on 127.0.0.1, or "host:port", without
                                   * a password; port 0 = any free one. weft_transport_metrics tells
                                   * the address, and so does a line on standard error. Where it
                                   * cannot be had, all else goes on without (docs/METRICS.md). NULL
                                   * (default) = WEFT_METRICS; "" = none */
};

/* Write the defaults. Shape: size is sizeof(*config_p), as the caller was compiled. */
WEFT_API void weft_transport_config_init(struct weft_transport_config *config_p, size_t size);

/* Open a socket, take all memory it will need, and start the thread if asked to.
 *
 * Owns:    borrows config until return; gives *transport_p, to be ended by weft_transport_close.
 * Errors:  WEFT_INVALID      a field is out of range, or host is not an address: correct it.
 *          WEFT_UNSUPPORTED  an address that this release does not open, or a config with fields
 *                            that this library does not know.
 *          WEFT_NOTFOUND     no job key: name key_file, or set WEFT_JOB_KEY.
 *          WEFT_DATA         the key file is no key, or others may read it.
 *          WEFT_STATE        the key was read from the environment before this process was forked.
 *          WEFT_EXISTS       the port is in use: choose another, or 0.
 *          WEFT_IO           the system refused. WEFT_NOMEM.
 *          weft_transport_error(NULL) says which and what to do, in words.
 * Thread:  any; the transport then belongs to the threads that use it one at a time. */
WEFT_API weft_status weft_transport_open(const struct weft_transport_config *config,
                                         struct weft_transport **transport_p);

/* Say CLOSE to all peers, once, and free. What is unfinished ends here without an event; memory
 * lent to sends and receives is the caller's again. Flush before, or the other side may be left to
 * guess. NULL is fine. */
WEFT_API void weft_transport_close(struct weft_transport *transport);

/* The port bound. */
WEFT_API uint16_t weft_transport_port(const struct weft_transport *transport);

/* Where its metrics are served, "http://127.0.0.1:41234/metrics"; "" when nobody asked for them, or
 * when they could not be had: then weft_transport_error says why after weft_transport_open.
 * Owns:    valid until weft_transport_close. */
WEFT_API const char *weft_transport_metrics(const struct weft_transport *transport);

/* Why the last call on this transport failed and what to do about it: one sentence, "" when none
 * has. After a DOWN event: why that peer is down, with what was noticed of it (another key, another
 * version, a port where nothing listens). With NULL: the same for the last weft_transport_open of
 * the calling thread.
 * Owns:    valid until the next call that fails, or the next DOWN. */
WEFT_API const char *weft_transport_error(const struct weft_transport *transport);

/* ---- peers ----------------------------------------------------------------------------------- */

/* Begin a connection. Messages may be sent at once; they wait for it. Event UP follows, or DOWN
 * after peer_timeout_ns when nobody answers.
 *
 * Shape:   host is a numeric address or "localhost".
 * Errors:  WEFT_INVALID      not an address, of the other kind (IPv4, IPv6), or port 0.
 *          WEFT_UNSUPPORTED  an address that this release does not reach.
 *          WEFT_NOMEM        peers_max connections exist: raise it, or disconnect one. */
WEFT_API weft_status weft_transport_connect(struct weft_transport *transport, const char *host,
                                            uint16_t port, uint32_t *peer_p);

/* End one connection; DOWN (LOCAL) follows, after SENT (UNKNOWN) and RECEIVED (SHORT) of what is
 * unfinished. A peer that is gone already: nothing happens. */
WEFT_API void weft_transport_disconnect(struct weft_transport *transport, uint32_t peer);

/* ---- messages -------------------------------------------------------------------------------- */

/* Elements [first, first + count) of a vector. */
struct weft_range {
    uint32_t first;
    uint32_t count;
};

struct weft_transport_send {
    size_t size;                       /* set by weft_transport_send_init */
    const void *data;                  /* elements x elem_bytes bytes; float32 for ADD */
    uint32_t elements;                 /* >= 1 */
    uint32_t peer;                     /* from weft_transport_connect or an UP event */
    uint32_t bound_ppm;                /* fraction of the chunks that may stay missing, rounded down;
                                        * the rest, below a chunk, counts for the next message to
                                        * this peer. < 1,000,000; default 0 */
    uint16_t elem_bytes;               /* 1 .. packet_bytes - 64; default 4 */
    uint16_t priority;                 /* 0 (default, most urgent) .. 7 */
    const struct weft_range *critical; /* critical_count ranges that must arrive whatever the bound;
                                        * read by weft_transport_send only. Default NULL, 0 */
    uint32_t critical_count;
    uint32_t reserved;                 /* 0 */
    uint64_t tag;                      /* opaque; receives are matched by it; default 0 */
    uint64_t timeout_ns;               /* from now on; then it ends SHORT with what arrived; default
                                        * WEFT_NEVER */
    void *user;                        /* returned in SENT */
};

WEFT_API void weft_transport_send_init(struct weft_transport_send *send_p, size_t size);

/* Queue a message.
 *
 * Owns:    borrows send->data until its SENT event; it must not change before.
 * Errors:  WEFT_AGAIN    64 messages to this peer are unconfirmed, or too many events wait to be
 *                        polled: wait for an event, then send again.
 *          WEFT_INVALID  a field or a critical range is out of range, or the message is longer
 *                        than message_bytes_max; the error text says which.
 *          WEFT_PEER     there is no such peer, or it is down: connect again. */
WEFT_API weft_status weft_transport_send(struct weft_transport *transport,
                                         const struct weft_transport_send *send);

enum weft_transport_sink {
    WEFT_TRANSPORT_COPY, /* elements are copied to their place in memory */
    WEFT_TRANSPORT_ADD,  /* float32 elements are added to what is there, each at most once */
};

struct weft_transport_receive {
    size_t size;           /* set by weft_transport_receive_init */
    void *memory;          /* where element 0 goes */
    uint64_t memory_bytes; /* a message that is longer does not match */
    uint64_t tag;          /* a message matches when (its tag & tag_mask) == tag; default 0 */
    uint64_t tag_mask;     /* default: all bits */
    uint32_t peer;         /* of this one only; default WEFT_PEER_ANY */
    uint32_t sink;         /* enum weft_transport_sink; default COPY */
    uint64_t timeout_ns;   /* from the message's first packet on; then closed SHORT; default
                            * WEFT_NEVER */
    void *user;            /* returned in RECEIVED */
};

WEFT_API void weft_transport_receive_init(struct weft_transport_receive *receive_p, size_t size);

/* Post memory for one message. A message that matches nothing posted is not taken; its sender keeps
 * trying until something is (or its timeout). Of several that match, the oldest is used.
 *
 * Owns:    borrows receive->memory until the RECEIVED event, or until _cancel says WEFT_OK. Several
 *          receives may ADD to the same memory.
 * Errors:  WEFT_AGAIN    too many events wait to be polled.
 *          WEFT_INVALID  no memory, a tag with bits outside tag_mask, or an unknown sink.
 *          WEFT_NOMEM    receives_max are posted: wait for one, or raise it. */
WEFT_API weft_status weft_transport_receive(struct weft_transport *transport,
                                            const struct weft_transport_receive *receive,
                                            uint64_t *receive_id_p);

/* Take a receive back that no message has matched yet. A receive for a certain peer is to be
 * cancelled when that peer is down, for its number will be used again.
 * Errors:  WEFT_NOTFOUND  a message has matched it: its RECEIVED event has come or will. */
WEFT_API weft_status weft_transport_cancel(struct weft_transport *transport, uint64_t receive_id);

/* ---- events ---------------------------------------------------------------------------------- */

enum weft_transport_event_type {
    WEFT_TRANSPORT_UP = 1,   /* a peer is connected; `name` and `incarnation` are valid */
    WEFT_TRANSPORT_DOWN,     /* it is gone, `down` says why; SENT and RECEIVED of its messages came
                              * before */
    WEFT_TRANSPORT_SENT,     /* a message is closed; its memory is the caller's again */
    WEFT_TRANSPORT_RECEIVED, /* the same at the other end */
};

enum weft_transport_outcome {
    WEFT_TRANSPORT_COMPLETE, /* no more is missing than its bound allows */
    WEFT_TRANSPORT_SHORT,    /* less: a timeout passed, or (RECEIVED) the sender went down */
    WEFT_TRANSPORT_UNKNOWN,  /* SENT only: the receiver went down first; the mask holds what it is
                              * known to have taken, and it may have taken more */
};

enum weft_transport_down {
    WEFT_TRANSPORT_DOWN_CLOSED = 1, /* the peer closed */
    WEFT_TRANSPORT_DOWN_NO_ANSWER,  /* connect: nobody answered for peer_timeout_ns */
    WEFT_TRANSPORT_DOWN_SILENT,     /* it answered once, then fell silent for peer_timeout_ns */
    WEFT_TRANSPORT_DOWN_PROTOCOL,   /* it broke the protocol */
    WEFT_TRANSPORT_DOWN_LOCAL,      /* this end closed */
    WEFT_TRANSPORT_DOWN_RESTARTED,  /* its process was started anew, or forgot this connection:
                                     * connect again */
    WEFT_TRANSPORT_DOWN_CRYPTO,     /* the cryptography of this process failed; was it forked? */
    WEFT_TRANSPORT_DOWN_IDLE,       /* nothing was outstanding for too long; this end closed */
};

/* What arrived of a message: bit c of bits is set when elements [c x chunk_elems, (c+1) x
 * chunk_elems) did; the last chunk may be shorter. Equal at both ends of a message that did not end
 * UNKNOWN. */
struct weft_mask {
    const uint64_t *bits;
    uint32_t elements;        /* in the message */
    uint32_t elem_bytes;
    uint32_t chunk_elems;     /* a multiple of 32 when at least 32 elements fit into a packet */
    uint32_t chunks;          /* = ceil(elements / chunk_elems) */
    uint32_t chunks_received; /* = bits set */
    uint32_t reserved;
};

struct weft_transport_event {
    size_t size;           /* the caller sets it to sizeof(event) before a call */
    uint32_t type;         /* enum weft_transport_event_type */
    uint32_t peer;
    void *user;            /* SENT, RECEIVED: of the send or the receive */
    uint64_t tag;          /* SENT, RECEIVED: the sender's */
    uint32_t outcome;      /* SENT, RECEIVED: enum weft_transport_outcome */
    uint32_t down;         /* DOWN: enum weft_transport_down; weft_transport_error: in words */
    uint64_t name;         /* UP, DOWN: as the peer was configured */
    uint64_t incarnation;  /* UP, DOWN: another for each start of the peer; a later one is larger
                            * where the clocks of both hosts agree */
    struct weft_mask mask; /* SENT, RECEIVED; bits stay valid until the next _poll or _wait */
};

/* The next event, oldest first; false when none is here. Does not wait; when the caller makes
 * progress, new events come from _progress only. */
WEFT_API bool weft_transport_poll(struct weft_transport *transport,
                                  struct weft_transport_event *event_p);

/* Progress until there is an event, and take it.
 * Errors:  WEFT_TIMEOUT  none came within timeout_ns; the error text says what was seen meanwhile
 *                        (packets that match no receive, refused connections, nothing at all). */
WEFT_API weft_status weft_transport_wait(struct weft_transport *transport, uint64_t timeout_ns,
                                         struct weft_transport_event *event_p);

/* Make progress: send what is due, sleep until something arrives or is due or timeout_ns
 * has passed (0 = do not sleep), and take what has arrived. With config.thread it does nothing.
 * Errors:  WEFT_AGAIN  too many events wait to be polled: nothing was done. */
WEFT_API weft_status weft_transport_progress(struct weft_transport *transport,
                                             uint64_t timeout_ns);

/* Progress until nothing is outstanding: sends are closed, and senders know that what was received
 * was. A receiver calls it before it closes. Events stay to be polled.
 * Errors:  WEFT_TIMEOUT  something is outstanding yet, or a peer left and its last word was lost.
 *          WEFT_AGAIN    as _progress. */
WEFT_API weft_status weft_transport_flush(struct weft_transport *transport, uint64_t timeout_ns);

/* The same for any transport: what such a reason means and what to do; never NULL. */
WEFT_API const char *weft_down_text(enum weft_transport_down down);

/* Cumulative since open. */
struct weft_transport_counters {
    size_t size;                    /* the caller sets it to sizeof(counters) before the call */
    uint64_t datagrams_sent;
    uint64_t datagrams_received;    /* injected drops included */
    uint64_t bytes_sent;            /* UDP payload */
    uint64_t bytes_received;
    uint64_t data_packets_sent;     /* with elements in them; retransmissions included */
    uint64_t retransmitted_packets;
    uint64_t lost_packets;          /* declared lost */
    uint64_t messages_sent;         /* closed COMPLETE or SHORT */
    uint64_t messages_received;
    uint64_t messages_short;        /* of the received ones */
    uint64_t messages_unknown;      /* of the sends */
    uint64_t chunks_missing;        /* of messages received */
    uint64_t unmatched_packets;     /* of messages for which no receive was posted */
    uint64_t refused_packets;       /* malformed, unknown or contradicting: dropped */
    uint64_t connections_refused;   /* accept is 0, or peers_max connections exist */
    uint64_t kernel_drops;          /* the socket's receive buffer was full */
    uint64_t send_drops;            /* the kernel did not take them; to weft that is loss */
    uint64_t injected_drops;
    uint64_t unauthentic_packets;   /* forged, damaged, or of another key, mode or version */
};

WEFT_API void weft_transport_counters_get(struct weft_transport *transport,
                                          struct weft_transport_counters *counters_p);

/* ---- working with what is missing: pure functions over a mask --------------------------------
 *
 * Thread:  any.   Cost: no system call, no malloc. */

/* The first run of missing elements at or after `from`; false when there is none.
 *
 *     for (uint32_t at = 0; weft_mask_gap(&mask, at, &first, &count); at = first + count) { ... }
 *
 * Units:   from, *first_p and *count_p count elements. */
WEFT_API bool weft_mask_gap(const struct weft_mask *mask, uint32_t from, uint32_t *first_p,
                            uint32_t *count_p);

/* How many elements are missing. */
WEFT_API uint32_t weft_mask_missing(const struct weft_mask *mask);

/* Error feedback: what did not arrive is kept by the sender and added to the next message of the
 * same tensor, so loss becomes delay. One residual, of the tensor's length and zero at first, for
 * each tensor and receiver. Each step:
 *
 *     weft_residual_add(residual, vector, elements);       then send vector
 *     weft_residual_keep(residual, vector, &event.mask);   when its SENT has come
 *
 * so that after any number of steps: sum of what arrived + residual = sum of the vectors (exact
 * where the additions are). When SENT says UNKNOWN the receiver may hold more than the mask tells,
 * and what is kept may arrive twice. */

/* vector += residual. Shape: both (elements,) float32. */
WEFT_API void weft_residual_add(const float *residual, float *vector, uint32_t elements);

/* residual = vector where the mask says missing, 0 elsewhere.
 * Shape:   both (mask->elements,) float32; vector as it was sent.
 * Errors:  WEFT_INVALID  the message's elements are not 4 bytes: nothing changed. */
WEFT_API weft_status weft_residual_keep(float *residual, const float *vector,
                                        const struct weft_mask *mask);

/* Grains: the functions below keep one number for each 32 elements of a tensor, which stays valid
 * when packets get another length. */
enum { WEFT_GRAIN = 32 };

/* ceil(elements / 32): the length of such a table, which begins as zeros. */
WEFT_API size_t weft_grains(uint32_t elements);

/* No slice waits forever: what was missing `limit` times running (2 is a good limit) becomes
 * critical the next time. One table, of grains, for each tensor and receiver. Each step:
 *
 *     send.critical_count = weft_missed_ranges(missed, elements, 2, ranges, RANGES_MAX);
 *     send.critical = ranges;                              then send
 *     weft_missed_note(missed, &event.mask);               when its SENT has come */

/* Count one more miss, up to 255, for grains that are missing, and 0 for those that arrived.
 * Shape:   missed (weft_grains(mask->elements),).
 * Errors:  WEFT_INVALID  the packets' boundaries are not multiples of 32 elements (elements longer
 *                        than 1/32 of a packet): nothing changed. */
WEFT_API weft_status weft_missed_note(uint8_t *missed, const struct weft_mask *mask);

/* The elements whose count is at least limit, as at most ranges_max ranges; returns their number.
 * When that is too few, the last range reaches to the end of what they all cover.
 * Shape:   limit >= 1; ranges_p (ranges_max,), ranges_max >= 1. */
WEFT_API uint32_t weft_missed_ranges(const uint8_t *missed, uint32_t elements, uint8_t limit,
                                     struct weft_range *ranges_p, uint32_t ranges_max);

/* Contribution counts: of how many messages each grain holds data, when a receiver adds up vectors
 * that arrived in part. */

/* Add 1 to every grain that the mask says received.
 * Shape:   counts (weft_grains(mask->elements),).
 * Errors:  as weft_missed_note. */
WEFT_API weft_status weft_counts_add(uint16_t *counts, const struct weft_mask *mask);

/* Divide an accumulator by its counts: the mean of what arrived. Where the count is 0 nothing
 * changes. Shape: values (elements,) float32, counts (weft_grains(elements),). */
WEFT_API void weft_counts_divide(const uint16_t *counts, float *values, uint32_t elements);

#ifdef __cplusplus
}
#endif

#endif
