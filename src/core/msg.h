/* The message interface: the only view that rpc, ps and coll have of a transport.
 *
 * A message is a vector of elements, divided into chunks. A bounded fraction of the chunks may be
 * missing, and both ends learn which chunks are missing. The interface is implemented by the core
 * endpoint (core/endpoint.h), by the engine, which forwards to another thread (io/engine.h), and
 * over TCP (io/tcp).
 *
 * It is not a stream: messages are not ordered with respect to each other. It does not allocate:
 * the caller posts the memory at both ends.
 *
 * Lifecycle of a transfer: the receiver calls expect; the sender calls send; the receiver polls
 * OPEN, CHUNK... (EVENT only), RECEIVED; the sender polls SENT.
 *
 * Source: docs/PROTOCOL.md sections 3.7, 4, 6; [apnet19] section 3.2.
 */
#ifndef WEFT_CORE_MSG_H
#define WEFT_CORE_MSG_H

#include "base/status.h"
#include "base/units.h"

#include <stdbool.h>

/* Index of a peer within its endpoint; stable while the peer lives, then reused. */
typedef uint32_t weft_peer;

#define WEFT_PEER_ANY UINT32_MAX

/* Maximum number of unconfirmed messages from one sender to one receiver. Part of the protocol. */
#define WEFT_MSGS_MAX 64

/* Identifies an expectation within one endpoint; never reused during the endpoint's life. */
typedef uint64_t weft_expect_id;

enum weft_msg_sink {
    WEFT_SINK_COPY,  /* the chunk is copied to memory + chunk x chunk_elems x elem_bytes */
    WEFT_SINK_ADD,   /* its float32 values are added to those at the same address */
    WEFT_SINK_EVENT, /* a CHUNK event points to the chunk in the receive buffer */
};

struct weft_msg_send {
    weft_peer peer;
    const void *base;     /* total x elem_bytes bytes; borrowed until SENT */
    uint32_t total;       /* elements, >= 1 */
    uint16_t elem_bytes;  /* >= 1; an element must fit into a packet */
    uint16_t chunk_elems; /* the result of chunk_elems() with which the caller laid out the chunks;
                           * its current result may differ. 0 = use the current result */
    uint8_t critical;     /* leading chunks that must not be missing, <= 254 */
    uint8_t priority;     /* 0 (most urgent) .. 7 */
    bool together;        /* one of several equal messages to different peers; only the completion
                           * of the last one matters, so no message is sent before the others */
    bool shares; /* if the message has one chunk, it may share its packet with other messages with
                  * this flag: the receiver posts memory for each of them without waiting for
                  * another */
    bool cut;    /* the receiver may close the message early at its own timeout, so chunks are sent
                  * in pseudo-random order even with bound 0 */
    bool held;   /* neither sent nor announced to the receiver before pace(); its deadline applies
                  * meanwhile */
    uint32_t bound_ppm;   /* fraction of chunks that may be missing, < 10^6 */
    uint32_t stream;      /* the fraction of a chunk that remains of a message's bound carries over
                           * to the next message of the same stream (core/bound.h) */
    uint64_t tag;         /* opaque; matched by the receiver's expectations */
    uint64_t deadline_ns; /* close SHORT at this time; WEFT_NEVER = never */
    uint64_t user;        /* returned in SENT */
    const uint64_t
        *critical_mask; /* further critical chunks, as bits; read only during send; NULL = none */
    const void
        *prefetch; /* WEFT_PREFETCH_BYTES that the caller accesses at SENT; as in weft_msg_expect */
};

enum { WEFT_PREFETCH_BYTES = 256 };

enum { WEFT_MSG_PACE_GROUPS = 8 };

/* Start time and rate of a held message. */
struct weft_msg_pace {
    uint64_t start_ns; /* earliest start, on the clock of now_ns. 0 = immediately */
    uint64_t rate_bps; /* maximum rate of its packets: UDP payload, retransmissions included. Any
                        * interval may exceed it by a burst of one millisecond or one packet. Window
                        * and credit may allow less. 0 = no limit */
    uint8_t group; /* 1 .. WEFT_MSG_PACE_GROUPS: the messages to a peer with this group, all of this
                    * rate, have it together. 0 = the message has it alone */
    uint8_t rank; /* send rank: among paced messages of one priority, lower ranks are sent first,
                   * after the messages that are not paced. The priority announced to the
                   * receiver, for credit, is priority + rank, at most 7 */
};

struct weft_msg_expect {
    weft_peer peer; /* or WEFT_PEER_ANY */
    enum weft_msg_sink sink;
    uint64_t tag; /* a message matches when (its tag & tag_mask) == tag */
    uint64_t tag_mask;
    void *memory;          /* COPY, ADD: borrowed until RECEIVED or cancel. EVENT: NULL */
    uint64_t memory_bytes; /* COPY, ADD: a larger message does not match. EVENT: largest
                            * total x elem_bytes that matches */
    uint32_t count;        /* number of messages that this expectation matches; COPY and ADD: 1 */
    uint64_t timeout_ns;   /* close SHORT after this time from the first chunk on. WEFT_NEVER =
                            * none */
    uint64_t until_ns;     /* close SHORT at this time, or at the first chunk if that arrives later.
                            * 0 = none */
    uint64_t user;         /* returned in OPEN, CHUNK and RECEIVED */
    const void *prefetch;  /* WEFT_PREFETCH_BYTES that the caller accesses when a message arrives;
                            * they are prefetched, never read. NULL = none */
};

enum weft_msg_event_type {
    WEFT_EVENT_PEER_UP,   /* connected; name and incarnation are valid */
    WEFT_EVENT_PEER_DOWN, /* disconnected; `down` is the reason. RECEIVED (SHORT) and SENT (UNKNOWN)
                           * of its messages precede it. The caller must cancel expectations bound
                           * to the peer, because its index will be reused */
    WEFT_EVENT_OPEN,      /* the first chunk of a message arrived and it matched an expectation */
    WEFT_EVENT_CHUNK,     /* EVENT: data is valid until the next recv on the endpoint */
    WEFT_EVENT_RECEIVED,  /* a message is closed; its memory is returned to the caller */
    WEFT_EVENT_SENT,      /* a sent message is closed; its memory is returned to the caller */
};

enum weft_msg_outcome {
    WEFT_MSG_COMPLETE,  /* no more chunks are missing than the bound allows */
    WEFT_MSG_SHORT,     /* more are missing: deadline, timeout, or the sender died */
    WEFT_MSG_UNKNOWN,   /* SENT only: the peer died; `mask` is a subset of the chunks that it
                         * received */
    WEFT_MSG_WITHDRAWN, /* SENT only: withdrawn with withdraw(); no packet of it was sent */
};

enum weft_msg_down {
    WEFT_DOWN_CLOSED,    /* the peer sent CLOSE */
    WEFT_DOWN_SILENT,    /* no reply within the configured peer timeout */
    WEFT_DOWN_PROTOCOL,  /* a protocol violation that no transmission error can cause */
    WEFT_DOWN_LOCAL,     /* this end closed */
    WEFT_DOWN_IDLE,      /* idle for the configured time; this end closed */
    WEFT_DOWN_RESTARTED, /* the peer has lost this connection's state, or has opened a new one:
                          * reconnect */
    WEFT_DOWN_CRYPTO,    /* cryptography failed in this process, for example after a fork */
    WEFT_DOWN_REPLACED,  /* the peer sent CLOSE because another process has replaced this one; it
                          * will not accept this process again */
};

struct weft_msg_event {
    enum weft_msg_event_type type;
    weft_peer peer;
    uint64_t user; /* of the send or the expectation; set_user replaces it */
    uint64_t seq;  /* of the message, 64-bit */
    uint64_t tag;
    uint64_t at_ns; /* arrival of the packet that caused it (driver's timestamp), or now */
    uint64_t begun_ns; /* SENT: when its first packet was sent; 0 = none was */
    uint32_t total; /* OPEN, CHUNK, RECEIVED, SENT: the grid */
    uint16_t chunk_elems;
    uint16_t elem_bytes;
    uint32_t chunks;      /* N */
    uint32_t received;    /* RECEIVED, SENT: chunks received */
    uint32_t refused;     /* SENT: chunks that the receiving application refused */
    uint32_t chunk;       /* CHUNK: its index */
    uint32_t elems;       /* CHUNK: elements in it */
    const void *data;     /* CHUNK: elems x elem_bytes bytes, unaligned */
    const uint64_t *mask; /* RECEIVED, SENT: N bits, 1 = received; valid until the next call */
    enum weft_msg_outcome outcome; /* RECEIVED, SENT */
    bool sender_gone;              /* RECEIVED: the connection has ended; PEER_DOWN follows */
    enum weft_msg_down down;       /* PEER_DOWN */
    uint16_t close_code;           /* PEER_DOWN, CLOSED: the code in its CLOSE */
    uint64_t name;                 /* PEER_UP, PEER_DOWN: the peer's name and incarnation */
    uint64_t incarnation;
};

struct weft_msg_ops {
    /* Number of elements of elem_bytes in a chunk sent to peer; 0 if an element does not fit.
     * Callers that lay out chunks themselves (sparse rows) call it before send, and pass the result
     * to send. The result changes with the packet size of the path. */
    uint32_t (*chunk_elems)(void *self, weft_peer peer, uint16_t elem_bytes);

    /* Queue a message.
     * Owns:    borrows send->base until the SENT event of this message.
     * Errors:  WEFT_AGAIN    WEFT_MSGS_MAX unconfirmed messages; poll, then retry.
     *          WEFT_INVALID  a field is out of range; nothing queued.
     *          WEFT_PEER     no such peer, or it is down. */
    weft_status (*send)(void *self, const struct weft_msg_send *send, uint64_t now_ns,
                        uint64_t *seq_p);

    /* Release a held message. A further call changes its start and rate: with a later start, chunks
     * not sent yet wait for it.
     * Errors:  WEFT_NOTFOUND  closed, or its peer is down.   WEFT_INVALID  sent without `held`.
     * Over TCP the rate is that of the bytes written to the socket, 64 KB at a time. */
    weft_status (*pace)(void *self, weft_peer peer, uint64_t seq, const struct weft_msg_pace *pace,
                        uint64_t now_ns);

    /* Withdraw a held message before its first byte is sent. SENT (WITHDRAWN) follows. The receiver
     * never learns of the message; the gap in the sequence numbers has no effect.
     * Errors:  WEFT_NOTFOUND  as above.   WEFT_STATE  sent without `held`, or partly sent. */
    weft_status (*withdraw)(void *self, weft_peer peer, uint64_t seq, uint64_t now_ns);

    /* Post receive memory. Post the memory of a reply before sending the request.
     * Errors:  WEFT_NOMEM    the table of expectations is full. WEFT_INVALID as above. */
    weft_status (*expect)(void *self, const struct weft_msg_expect *expect, weft_expect_id *id_p);

    /* Cancel an expectation. Messages that have matched it continue. WEFT_NOTFOUND: it is used
     * up. */
    weft_status (*cancel)(void *self, weft_expect_id id);

    /* Attach a value to an open incoming message; its later events carry the value as `user`.
     * Call it while handling OPEN. */
    void (*set_user)(void *self, weft_peer peer, uint64_t seq, uint64_t user);

    /* Count one chunk of an incoming message as refused (reported in DONE). Call it while
     * handling CHUNK. */
    void (*refuse)(void *self, weft_peer peer, uint64_t seq);

    /* The next event, oldest first; false when there is none. */
    bool (*poll)(void *self, struct weft_msg_event *event_p);
};

/* A transport: the functions, and the object to pass to them. May be copied; owns nothing. */
struct weft_msgr {
    const struct weft_msg_ops *ops;
    void *self;
};

#endif
