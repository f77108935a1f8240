/* weft's transport: vectors of elements over UDP, with deadlines and a bound on the missing
 * fraction. Both ends learn exactly which elements are missing.
 *
 * It is not a stream: messages are not ordered, and are accepted only into posted memory. It is
 * neither a parameter server nor a collective; both are built on it.
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
 * Progress. By default the calling thread makes progress: packets are sent and received only inside
 * _progress, _wait and _flush. This has the lowest latency and needs no second thread. If a program
 * computes for longer than its peers' peer_timeout_ns between such calls, they declare it dead.
 * With config.thread = 1 a progress thread of the library continues transfers while the program
 * computes. All other calls are the same.
 *
 * Structs with a `size` field may grow; docs/API.md has the compatibility rules. Initialise them
 * with their _init function, then set the fields that differ. Times are nanoseconds, WEFT_NEVER =
 * no limit; fractions are parts per million.
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

/* One socket with its connections. One thread at a time may use it; a process may have several. */
struct weft_transport;

enum weft_transport_security {
    WEFT_TRANSPORT_AUTH, /* every byte is authenticated; elements are not encrypted */
    WEFT_TRANSPORT_SEAL, /* encrypted as well */
    WEFT_TRANSPORT_NONE, /* neither, and no key; loopback only */
};

struct weft_transport_config {
    size_t size;                  /* set by weft_transport_config_init */
    const char *host;             /* address to bind: numeric IPv4 or IPv6, or "localhost" (the
                                   * default: 127.0.0.1); peers must use the same address family */
    const char *key_file;         /* file with the job key, made by `weft keygen`; NULL (default) =
                                   * `key`, or the text of such a file in the environment variable
                                   * WEFT_JOB_KEY, which is unset when it has been read */
    const uint8_t *key;           /* 32 secret bytes instead of a file; default NULL */
    uint32_t security;            /* enum weft_transport_security, equal at both ends; default
                                   * AUTH */
    uint16_t port;                /* UDP; 0 = any free port (see weft_transport_port) */
    uint8_t accept;               /* 1: accept incoming connections; 0 (default): outgoing only */
    uint8_t thread;               /* 1: the library has a progress thread; default 0 */
    uint32_t peers_max;           /* connections at a time, 1 .. 4,096; default 16 */
    uint32_t receives_max;        /* receives posted at a time, 1 .. 65,536; default 64 */
    uint64_t message_bytes_max;   /* longest message sent or received, equal at both ends;
                                   * default 16 MiB; at most the size of 131,072 packets */
    uint32_t packet_bytes;        /* UDP payload to send, 256 .. 65,000; default 1,472, which
                                   * fits an MTU of 1,500 and IPv4 */
    uint32_t senders_expected;    /* number of peers that send to this endpoint at the same time, if
                                   * known; credit then paces them from their first packet; default
                                   * 0 = not known */
    uint64_t name;                /* reported to peers in their UP event; opaque; default 0 */
    uint64_t peer_timeout_ns;     /* declare a peer down after this time without a reply; default
                                   * 5 s, or the environment variable WEFT_PEER_TIMEOUT_S */
    const char *congestion;       /* "dctcp" (NULL, the default), "delay", or "reno-fair" for a
                                   * link shared with TCP */
    uint32_t socket_buffer_bytes; /* size requested from the kernel for each of the two buffers;
                                   * default 4 MiB */
    uint32_t busy_poll_us;        /* busy-poll the socket for up to this time before sleeping.
                                   * While few polls find a packet, only one sleep in 16 begins with
                                   * a poll. Default 0 = never */
    uint32_t inject_loss_ppm;     /* drop received datagrams on purpose, to test a program under
                                   * packet loss; default 0 */
    uint32_t inject_seed;         /* seed of the pseudo-random choice of dropped datagrams */
    uint64_t keepalive_ns;        /* send a keep-alive probe after this time without a packet
                                   * from a peer; DOWN (SILENT) follows after a further
                                   * peer_timeout_ns without a reply. At least 1 ms. A peer without
                                   * config.thread that computes for longer than both times together
                                   * is declared dead. Default WEFT_NEVER: probe a peer only while a
                                   * reply from it is outstanding */
    uint64_t idle_timeout_ns;     /* close a connection after this time without a received packet,
                                   * if nothing is outstanding: DOWN (IDLE) at this end, DOWN
                                   * (CLOSED) at the peer. At least 1 ms; default WEFT_NEVER */
    const char *metrics;          /* serve /metrics over HTTP, for Prometheus and `weft top`, in
                                   * a separate thread: "port" on 127.0.0.1, or "host:port"; port 0
                                   * = any free one. Clients are not authenticated.
                                   * weft_transport_metrics returns the address, and a line on
                                   * standard error reports it. If the HTTP server cannot be
                                   * started, the transport works without metrics (docs/METRICS.md).
                                   * NULL (default) = the environment variable WEFT_METRICS; "" =
                                   * none */
};

/* Write the defaults. Shape: size is sizeof(*config_p) in the caller's version of this header. */
WEFT_API void weft_transport_config_init(struct weft_transport_config *config_p, size_t size);

/* Open a socket, allocate all memory of the transport, and start the progress thread if configured.
 *
 * Owns:    borrows config until return; gives *transport_p, to be ended by weft_transport_close.
 * Errors:  WEFT_INVALID      a field is out of range, or host is not an address: correct it.
 *          WEFT_UNSUPPORTED  an address family that this release does not support, or a config with
 *                            fields that this library does not know.
 *          WEFT_NOTFOUND     no job key: set key_file, or WEFT_JOB_KEY.
 *          WEFT_DATA         the key file or an environment variable is malformed, or the file is
 *                            readable by other users.
 *          WEFT_STATE        the key was read from the environment before this process was forked.
 *          WEFT_EXISTS       the port is in use: choose another, or 0.
 *          WEFT_IO           a system call failed. WEFT_NOMEM.
 *          weft_transport_error(NULL) returns the cause and the remedy.
 * Thread:  any; afterwards one thread at a time may use the transport. */
WEFT_API weft_status weft_transport_open(const struct weft_transport_config *config,
                                         struct weft_transport **transport_p);

/* Send CLOSE once to every peer and free the transport. Unfinished transfers end without an
 * event; memory lent to sends and receives belongs to the caller again. Call weft_transport_flush
 * first; otherwise a peer may not learn the outcome of its messages. NULL is allowed. In the child
 * of a fork it does nothing, and frees nothing: the connections are the parent's. */
WEFT_API void weft_transport_close(struct weft_transport *transport);

/* The bound port. */
WEFT_API uint16_t weft_transport_port(const struct weft_transport *transport);

/* The address of the transport's metrics, "http://127.0.0.1:41234/metrics"; "" if metrics are off
 * or could not be started. In the latter case weft_transport_error returns the reason after
 * weft_transport_open.
 * Owns:    valid until weft_transport_close. */
WEFT_API const char *weft_transport_metrics(const struct weft_transport *transport);

/* The cause of the last failed call on this transport, and the remedy: one sentence, "" if none
 * has failed. After a DOWN event: the reason, including hints from the network (the peer has
 * another key or version, or no process listens on the port). With NULL: the same for the last
 * weft_transport_open of the calling thread.
 * Owns:    valid until the next failing call, or the next DOWN. */
WEFT_API const char *weft_transport_error(const struct weft_transport *transport);

/* ---- peers ----------------------------------------------------------------------------------- */

/* Begin a connection. Messages may be queued at once; they are sent when the connection is up.
 * Event UP follows, or DOWN after peer_timeout_ns without a reply.
 *
 * Shape:   host is a numeric address or "localhost".
 * Errors:  WEFT_INVALID      not an address, another address family (IPv4, IPv6), or port 0.
 *          WEFT_UNSUPPORTED  an address family that this release does not support.
 *          WEFT_NOMEM        peers_max connections exist: increase it, or disconnect one. */
WEFT_API weft_status weft_transport_connect(struct weft_transport *transport, const char *host,
                                            uint16_t port, uint32_t *peer_p);

/* End one connection; DOWN (LOCAL) follows, after SENT (UNKNOWN) and RECEIVED (SHORT) of
 * unfinished messages. No effect if the peer is already down. */
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
    uint32_t bound_ppm;                /* fraction of the chunks that may be missing; < 1,000,000;
                                        * default 0. Rounded down to whole chunks; the remainder,
                                        * less than a chunk, carries over to the next message to
                                        * this peer */
    uint16_t elem_bytes;               /* 1 .. packet_bytes - 64; default 4 */
    uint16_t priority;                 /* 0 (default, most urgent) .. 7 */
    const struct weft_range *critical; /* critical_count ranges that must arrive, whatever the bound
                                        * is; borrowed until weft_transport_send returns. Default
                                        * NULL, 0 */
    uint32_t critical_count;
    uint32_t reserved;   /* 0 */
    uint64_t tag;        /* opaque; receives match on it; default 0 */
    uint64_t timeout_ns; /* after this time from the call on, the message is closed SHORT. Default
                          * WEFT_NEVER */
    void *user;          /* returned in SENT */
};

WEFT_API void weft_transport_send_init(struct weft_transport_send *send_p, size_t size);

/* Queue a message.
 *
 * Owns:    borrows send->data until its SENT event; it must not change before.
 * Errors:  WEFT_AGAIN    64 messages to this peer are unconfirmed, or too many events wait to be
 *                        polled: poll an event, then send again.
 *          WEFT_INVALID  a field or a critical range is out of range, or the message is longer
 *                        than message_bytes_max; the error text names it.
 *          WEFT_PEER     the peer does not exist or is down: connect again. */
WEFT_API weft_status weft_transport_send(struct weft_transport *transport,
                                         const struct weft_transport_send *send);

enum weft_transport_sink {
    WEFT_TRANSPORT_COPY, /* elements are copied to their place in memory */
    WEFT_TRANSPORT_ADD,  /* float32 elements are added to the memory, each at most once */
};

struct weft_transport_receive {
    size_t size;           /* set by weft_transport_receive_init */
    void *memory;          /* destination of element 0 */
    uint64_t memory_bytes; /* a longer message does not match */
    uint64_t tag;          /* a message matches if (its tag & tag_mask) == tag; default 0 */
    uint64_t tag_mask;     /* default: all bits */
    uint32_t peer;         /* receive from this peer only; default WEFT_PEER_ANY */
    uint32_t sink;         /* enum weft_transport_sink; default COPY */
    uint64_t timeout_ns;   /* after this time from the message's first packet on, the message is
                            * closed SHORT; default WEFT_NEVER */
    void *user;            /* returned in RECEIVED */
};

WEFT_API void weft_transport_receive_init(struct weft_transport_receive *receive_p, size_t size);

/* Post memory for one message. A message that matches no posted receive is not acknowledged; its
 * sender retries until a receive is posted or its timeout expires. If several receives match, the
 * oldest is used.
 *
 * Owns:    borrows receive->memory until the RECEIVED event, or until _cancel returns WEFT_OK.
 *          Several receives may ADD to the same memory.
 * Errors:  WEFT_AGAIN    too many events wait to be polled.
 *          WEFT_INVALID  no memory, a tag with bits outside tag_mask, or an unknown sink.
 *          WEFT_NOMEM    receives_max receives are posted: wait for one, or increase the limit. */
WEFT_API weft_status weft_transport_receive(struct weft_transport *transport,
                                            const struct weft_transport_receive *receive,
                                            uint64_t *receive_id_p);

/* Cancel a posted receive that no message has matched. After the DOWN of a peer, cancel the
 * receives that name it, because its number is reused.
 * Errors:  WEFT_NOTFOUND  a message has matched it: its RECEIVED event has been or will be
 *                         reported. */
WEFT_API weft_status weft_transport_cancel(struct weft_transport *transport, uint64_t receive_id);

/* ---- events ---------------------------------------------------------------------------------- */

enum weft_transport_event_type {
    WEFT_TRANSPORT_UP = 1,   /* a peer is connected; `name` and `incarnation` are valid */
    WEFT_TRANSPORT_DOWN,     /* a peer is down; `down` is the reason. SENT and RECEIVED of its
                              * messages were reported before */
    WEFT_TRANSPORT_SENT,     /* a sent message is closed; its memory belongs to the caller again */
    WEFT_TRANSPORT_RECEIVED, /* a received message is closed; likewise */
};

enum weft_transport_outcome {
    WEFT_TRANSPORT_COMPLETE, /* no more is missing than the message's bound allows */
    WEFT_TRANSPORT_SHORT,    /* more is missing: a timeout expired, or (RECEIVED) the sender went
                              * down */
    WEFT_TRANSPORT_UNKNOWN,  /* SENT only: the receiver went down before it closed the message; the
                              * mask contains the chunks that are known to have arrived, and more
                              * may have arrived */
};

enum weft_transport_down {
    WEFT_TRANSPORT_DOWN_CLOSED = 1, /* the peer closed */
    WEFT_TRANSPORT_DOWN_NO_ANSWER,  /* connect: no reply for peer_timeout_ns */
    WEFT_TRANSPORT_DOWN_SILENT,     /* connected, then no reply for peer_timeout_ns */
    WEFT_TRANSPORT_DOWN_PROTOCOL,   /* it violated the protocol */
    WEFT_TRANSPORT_DOWN_LOCAL,      /* this end closed */
    WEFT_TRANSPORT_DOWN_RESTARTED,  /* its process restarted, or has no state for this
                                     * connection: connect again */
    WEFT_TRANSPORT_DOWN_CRYPTO,     /* a cryptographic operation failed in this process, for
                                     * example after fork */
    WEFT_TRANSPORT_DOWN_IDLE,       /* nothing was outstanding for idle_timeout_ns; this end
                                     * closed */
};

/* The received chunks of a message: bit c of bits is set if elements [c x chunk_elems, (c+1) x
 * chunk_elems) arrived; the last chunk may be shorter. Equal at both ends of a message that did
 * not end UNKNOWN. */
struct weft_mask {
    const uint64_t *bits;
    uint32_t elements; /* in the message */
    uint32_t elem_bytes;
    uint32_t chunk_elems;     /* a multiple of 32 if at least 32 elements fit into a packet */
    uint32_t chunks;          /* = ceil(elements / chunk_elems) */
    uint32_t chunks_received; /* = bits set */
    uint32_t reserved;
};

struct weft_transport_event {
    size_t size;   /* the caller sets it to sizeof(event) before a call */
    uint32_t type; /* enum weft_transport_event_type */
    uint32_t peer;
    void *user;            /* SENT, RECEIVED: `user` of the send or the receive */
    uint64_t tag;          /* SENT, RECEIVED: the tag that the sender set */
    uint32_t outcome;      /* SENT, RECEIVED: enum weft_transport_outcome */
    uint32_t down;         /* DOWN: enum weft_transport_down; weft_transport_error describes it */
    uint64_t name;         /* UP, DOWN: as configured at the peer */
    uint64_t incarnation;  /* UP, DOWN: different for each start of the peer; increases with the
                            * start time if host clocks are synchronised */
    struct weft_mask mask; /* SENT, RECEIVED; bits stay valid until the next _poll or _wait */
};

/* The next event, oldest first; false if there is none. Does not block. Without config.thread
 * new events appear only after _progress. */
WEFT_API bool weft_transport_poll(struct weft_transport *transport,
                                  struct weft_transport_event *event_p);

/* Make progress until there is an event, and return it.
 * Errors:  WEFT_TIMEOUT  no event within timeout_ns. If that is more than 100 ms, the error text
 *                        reports what was observed after the first 100 ms (packets that match no
 *                        receive, refused connections, no packets). */
WEFT_API weft_status weft_transport_wait(struct weft_transport *transport, uint64_t timeout_ns,
                                         struct weft_transport_event *event_p);

/* Make progress: send, sleep until a packet arrives, a timer expires or timeout_ns has passed (0
 * = do not sleep), and process received packets. With config.thread it does nothing.
 * Errors:  WEFT_AGAIN  too many events wait to be polled: no progress was made. */
WEFT_API weft_status weft_transport_progress(struct weft_transport *transport, uint64_t timeout_ns);

/* Make progress until nothing is outstanding: all sends are closed, and the senders know the
 * outcome of all received messages. A receiver calls it before it closes. Events must still be
 * polled.
 * Errors:  WEFT_TIMEOUT  something is still outstanding, or a peer closed and its final packets
 *                        were lost.
 *          WEFT_AGAIN    as _progress. */
WEFT_API weft_status weft_transport_flush(struct weft_transport *transport, uint64_t timeout_ns);

/* The meaning of a down reason and the remedy, as a text; never NULL. */
WEFT_API const char *weft_down_text(enum weft_transport_down down);

/* Cumulative since open. */
struct weft_transport_counters {
    size_t size; /* the caller sets it to sizeof(counters) before the call */
    uint64_t datagrams_sent;
    uint64_t datagrams_received; /* including injected drops */
    uint64_t bytes_sent;         /* UDP payload */
    uint64_t bytes_received;
    uint64_t data_packets_sent; /* with elements; including retransmissions */
    uint64_t retransmitted_packets;
    uint64_t lost_packets;  /* declared lost */
    uint64_t messages_sent; /* closed COMPLETE or SHORT */
    uint64_t messages_received;
    uint64_t messages_short;      /* of the received ones */
    uint64_t messages_unknown;    /* of the sends */
    uint64_t chunks_missing;      /* of messages received */
    uint64_t unmatched_packets;   /* of messages for which no receive was posted */
    uint64_t invalid_packets;     /* malformed, inconsistent, of unknown type, or of no connection;
                                   * dropped */
    uint64_t connections_refused; /* accept is 0, or peers_max connections exist */
    uint64_t kernel_drops;        /* the socket's receive buffer was full */
    uint64_t send_drops;          /* packets that the kernel refused to send; treated as loss */
    uint64_t injected_drops;
    uint64_t unauthentic_packets; /* forged, damaged, or of another key, mode or version */
};

WEFT_API void weft_transport_counters_get(struct weft_transport *transport,
                                          struct weft_transport_counters *counters_p);

/* ---- working with missing elements: pure functions over a mask -------------------------------
 *
 * Thread:  any.   Cost: no system call, no malloc. */

/* The first run of missing elements at or after `from`; false if there is none.
 *
 *     for (uint32_t at = 0; weft_mask_gap(&mask, at, &first, &count); at = first + count) { ... }
 *
 * Units:   from, *first_p and *count_p count elements. */
WEFT_API bool weft_mask_gap(const struct weft_mask *mask, uint32_t from, uint32_t *first_p,
                            uint32_t *count_p);

/* The number of missing elements. */
WEFT_API uint32_t weft_mask_missing(const struct weft_mask *mask);

/* Error feedback: the sender keeps the elements that did not arrive and adds them to the next
 * message of the same tensor, so that loss becomes delay. Use one residual for each tensor and
 * receiver: it has the tensor's length and is initially zero. In each step:
 *
 *     weft_residual_add(residual, vector, elements);       then send vector
 *     weft_residual_keep(residual, vector, &event.mask);   after its SENT event
 *
 * After any number of steps: sum of the arrived elements + residual = sum of the vectors, except
 * for rounding. After an UNKNOWN outcome the receiver may have elements that the mask does not
 * contain; these are then applied twice. */

/* vector += residual. Shape: both (elements,) float32. */
WEFT_API void weft_residual_add(const float *residual, float *vector, uint32_t elements);

/* residual = vector where the mask has missing elements, 0 elsewhere.
 * Shape:   both (mask->elements,) float32; vector as it was sent.
 * Errors:  WEFT_INVALID  the message's elements are not 4 bytes: nothing changed. */
WEFT_API weft_status weft_residual_keep(float *residual, const float *vector,
                                        const struct weft_mask *mask);

/* A grain is 32 consecutive elements of a tensor. The functions below keep one number for each
 * grain, so that the numbers stay valid when the packet size changes. */
enum { WEFT_GRAIN = 32 };

/* ceil(elements / 32): the length of a table with one number for each grain. The caller initialises
 * it with zeros. */
WEFT_API size_t weft_grains(uint32_t elements);

/* Bound repeated loss: a grain that was missing in `limit` consecutive messages (2 is a good value)
 * becomes critical in the next one. Use one table of weft_grains(elements) counts for each tensor
 * and receiver. In each step:
 *
 *     send.critical_count = weft_missed_ranges(missed, elements, 2, ranges, RANGES_MAX);
 *     send.critical = ranges;                              then send
 *     weft_missed_note(missed, &event.mask);               after its SENT event */

/* Add 1, up to 255, to the count of each missing grain; set the count of each received grain to 0.
 * Shape:   missed (weft_grains(mask->elements),).
 * Errors:  WEFT_INVALID  the packet boundaries are not multiples of 32 elements (elements longer
 *                        than 1/32 of a packet): nothing changed. */
WEFT_API weft_status weft_missed_note(uint8_t *missed, const struct weft_mask *mask);

/* The elements of the grains whose count is at least limit, as at most ranges_max ranges; returns
 * the number of ranges. If ranges_max is too small, the last range extends to the end of the last
 * such grain.
 * Shape:   limit >= 1; ranges_p (ranges_max,), ranges_max >= 1. */
WEFT_API uint32_t weft_missed_ranges(const uint8_t *missed, uint32_t elements, uint8_t limit,
                                     struct weft_range *ranges_p, uint32_t ranges_max);

/* Contribution counts: the number of messages that contributed to each grain. For a receiver that
 * sums vectors of which parts are missing. */

/* Add 1 to every grain that the mask marks as received.
 * Shape:   counts (weft_grains(mask->elements),).
 * Errors:  as weft_missed_note. */
WEFT_API weft_status weft_counts_add(uint16_t *counts, const struct weft_mask *mask);

/* Divide an accumulator by its counts: the mean of the contributions. Where the count is 0
 * nothing changes. Shape: values (elements,) float32, counts (weft_grains(elements),). */
WEFT_API void weft_counts_divide(const uint16_t *counts, float *values, uint32_t elements);

#ifdef __cplusplus
}
#endif

#endif
