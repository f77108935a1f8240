/* The message interface: all that rpc, ps and coll see of a transport.
 *
 * A message is a vector of elements cut into chunks; a bounded fraction of the chunks may be
 * missing, and both ends learn which. Implemented by the core endpoint (core/endpoint.h), by the
 * engine's hand-over (io/engine.h), and over TCP (io/tcp).
 *
 * It is not a stream and keeps no order between messages. It does not allocate: memory of both
 * ends is posted by the caller.
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

/* Messages that one sender may have unconfirmed at one receiver. Part of the protocol. */
#define WEFT_MSGS_MAX 64

/* Names an expectation or a message within one endpoint; never reused within its life. */
typedef uint64_t weft_expect_id;

enum weft_msg_sink {
    WEFT_SINK_COPY, /* chunk is copied to memory + chunk x chunk_elems x elem_bytes */
    WEFT_SINK_ADD,  /* the same place, but float32 values are added to what is there */
    WEFT_SINK_EVENT, /* chunk is handed up by a CHUNK event, from the receive buffer */
};

struct weft_msg_send {
    weft_peer peer;
    const void *base;      /* total x elem_bytes bytes; borrowed until SENT */
    uint32_t total;        /* elements, >= 1 */
    uint16_t elem_bytes;   /* >= 1, at most what one packet holds */
    uint16_t chunk_elems;  /* as chunk_elems() said when the caller laid the chunks out, which may be
                            * less than it says now, or more; 0 = as it says now */
    uint8_t critical;      /* leading chunks that must not be missing, <= 254 */
    uint8_t priority;      /* 0 (most urgent) .. 7 */
    bool together; /* of several equal ones, to other peers, the last one counts: none need be
                            * early */
    bool cut;              /* the receiver may close it at a time of its own; so its chunks go in
                            * pseudo-random order although none may be missing */
    bool held;             /* nothing of it is sent, nor is the receiver told of it, before pace(); its
                            * deadline holds */
    uint32_t bound_ppm;    /* fraction of chunks that may be missing, < 10^6 */
    uint32_t stream;       /* messages with the same number pass on the fraction of a chunk that the
                            * bound of each leaves (core/bound.h) */
    uint64_t tag;          /* opaque; matched by the receiver's expectations */
    uint64_t deadline_ns;  /* close SHORT at this time; WEFT_NEVER = never */
    uint64_t user;         /* returned in SENT */
    const uint64_t *critical_mask; /* more of them, one bit a chunk; read by send only; NULL = none */
    const void
        *prefetch; /* WEFT_PREFETCH_BYTES that the caller touches at SENT; as of an expectation */
};

enum { WEFT_PREFETCH_BYTES = 256 };

/* When a held message goes, and how fast. */
struct weft_msg_pace {
    uint64_t start_ns; /* not before; on the clock of now_ns. 0 = immediately */
    uint64_t rate_bps; /* of its packets, UDP payload, retransmissions included: at most, and over any
                        * time a millisecond of it, or a packet, more; window and credit may allow
                        * less. 0 = no limit */
    uint8_t rank;      /* of paced messages of one priority the lower goes first, behind those that are
                        * not paced. The receiver, for its credit, is told priority + rank, 7 at most */
};

struct weft_msg_expect {
    weft_peer peer;        /* or WEFT_PEER_ANY */
    enum weft_msg_sink sink;
    uint64_t tag;          /* a message matches when (its tag & tag_mask) == tag */
    uint64_t tag_mask;
    void *memory;          /* COPY, ADD: borrowed until RECEIVED or cancel. EVENT: NULL */
    uint64_t memory_bytes; /* COPY, ADD: a larger message does not match. EVENT: largest
                            * total x elem_bytes taken */
    uint32_t count;        /* messages taken by this expectation; COPY and ADD: 1 */
    uint64_t timeout_ns;   /* from the first chunk; then closed SHORT. WEFT_NEVER = none */
    uint64_t until_ns;     /* closed SHORT at this time; with its first chunk when that comes later.
                            * 0 = none */
    uint64_t user;         /* returned in OPEN, CHUNK and RECEIVED */
    const void
        *prefetch; /* WEFT_PREFETCH_BYTES that the caller touches when a message comes: asked of
                            * the memory ahead, never read. NULL = none */
};

enum weft_msg_event_type {
    WEFT_EVENT_PEER_UP,   /* connected; name and incarnation are valid */
    WEFT_EVENT_PEER_DOWN, /* gone; `down` says why. RECEIVED (SHORT) and SENT (UNKNOWN) of its messages
                           * came before; expectations bound to it are the caller's to cancel, for
                           * its index will be used again */
    WEFT_EVENT_OPEN,      /* the first chunk of a message arrived and it matched an expectation */
    WEFT_EVENT_CHUNK,     /* EVENT: data is valid until the next recv on the endpoint */
    WEFT_EVENT_RECEIVED,  /* a message is closed; its memory is the caller's again */
    WEFT_EVENT_SENT,      /* a sent message is closed; its memory is the caller's again */
};

enum weft_msg_outcome {
    WEFT_MSG_COMPLETE, /* at least total - bound arrived */
    WEFT_MSG_SHORT,    /* closed below its bound: deadline, timeout, or the sender died */
    WEFT_MSG_UNKNOWN,  /* SENT only: the peer died; `mask` is a subset of what it received */
    WEFT_MSG_WITHDRAWN, /* SENT only: withdraw() took it back; nothing of it was sent */
};

enum weft_msg_down {
    WEFT_DOWN_CLOSED,   /* it said CLOSE */
    WEFT_DOWN_SILENT,   /* it did not answer for the time configured */
    WEFT_DOWN_PROTOCOL, /* it broke the protocol in a way that cannot be a transmission error */
    WEFT_DOWN_LOCAL,    /* this end closed */
    WEFT_DOWN_IDLE,     /* nothing was outstanding for the time configured; this end closed */
    WEFT_DOWN_RESTARTED, /* it no longer knows this connection, or has opened a new one: connect
                          * anew */
    WEFT_DOWN_CRYPTO,   /* the cryptography of this process failed: it was forked, say */
    WEFT_DOWN_REPLACED, /* it said CLOSE because another process has the place of this one: it will
                         * not take this process back */
};

struct weft_msg_event {
    enum weft_msg_event_type type;
    weft_peer peer;
    uint64_t user;           /* of the send or the expectation; OPEN may replace it: set_user */
    uint64_t seq;            /* of the message, 64-bit */
    uint64_t tag;
    uint64_t at_ns;          /* arrival of the packet that caused it (driver's stamp), or now */
    uint32_t total;          /* OPEN, CHUNK, RECEIVED, SENT: the grid */
    uint16_t chunk_elems;
    uint16_t elem_bytes;
    uint32_t chunks;         /* N */
    uint32_t received;       /* RECEIVED, SENT: chunks received */
    uint32_t refused;        /* SENT: chunks that the receiver's application refused */
    uint32_t chunk;          /* CHUNK: its index */
    uint32_t elems;          /* CHUNK: elements in it */
    const void *data;        /* CHUNK: elems x elem_bytes bytes, unaligned */
    const uint64_t *mask;    /* RECEIVED, SENT: N bits, 1 = received; valid until the next call */
    enum weft_msg_outcome outcome; /* RECEIVED, SENT */
    bool sender_gone;              /* RECEIVED: closed because the connection ended: PEER_DOWN comes */
    enum weft_msg_down down;       /* PEER_DOWN */
    uint16_t close_code;           /* PEER_DOWN, CLOSED: what its CLOSE said */
    uint64_t name;           /* PEER_UP, PEER_DOWN: the peer's name and incarnation */
    uint64_t incarnation;
};

struct weft_msg_ops {
    /* Elements in a chunk for elements of elem_bytes sent to peer; 0 when one does not fit.
     * Callers that lay out chunks themselves (sparse rows) need it before send, and hand the number
     * to send: it changes with what is learnt of the path. */
    uint32_t (*chunk_elems)(void *self, weft_peer peer, uint16_t elem_bytes);

    /* Queue a message.
     * Owns:    borrows send->base until the SENT event of this message.
     * Errors:  WEFT_AGAIN    WEFT_MSGS_MAX unconfirmed messages; poll, then try again.
     *          WEFT_INVALID  a field is out of range; nothing queued.
     *          WEFT_PEER     no such peer, or it is down. */
    weft_status (*send)(void *self, const struct weft_msg_send *send, uint64_t now_ns,
                        uint64_t *seq_p);

    /* Let a held message go. Said again, it changes when and how fast: what has not been sent waits for
     * a start that is later.
     * Errors:  WEFT_NOTFOUND  it is closed, or its peer is gone.   WEFT_INVALID  it was not held.
     * Over TCP the rate is that of the bytes handed to the kernel, 64 KB at a time. */
    weft_status (*pace)(void *self, weft_peer peer, uint64_t seq, const struct weft_msg_pace *pace,
                        uint64_t now_ns);

    /* Take a held message back before its first byte. SENT (WITHDRAWN) follows; the receiver never hears
     * of it, and its number is not missed.
     * Errors:  WEFT_NOTFOUND  as above.   WEFT_STATE  it was not held, or some of it was sent. */
    weft_status (*withdraw)(void *self, weft_peer peer, uint64_t seq, uint64_t now_ns);

    /* Post receive memory. Post the reply's before sending the request.
     * Errors:  WEFT_NOMEM    the table of expectations is full. WEFT_INVALID as above. */
    weft_status (*expect)(void *self, const struct weft_msg_expect *expect,
                          weft_expect_id *id_p);

    /* Take an expectation back; messages it already opened go on. WEFT_NOTFOUND: used up. */
    weft_status (*cancel)(void *self, weft_expect_id id);

    /* Attach a value to an open incoming message; later events of it carry it as `user`.
     * Call it while handling OPEN. */
    void (*set_user)(void *self, weft_peer peer, uint64_t seq, uint64_t user);

    /* Count one chunk of an incoming message as refused (reported in DONE). Call it while
     * handling CHUNK. */
    void (*refuse)(void *self, weft_peer peer, uint64_t seq);

    /* The next event, oldest first; false when there is none. */
    bool (*poll)(void *self, struct weft_msg_event *event_p);
};

/* What a layer above holds: a transport by interface. Copied freely; owns nothing. */
struct weft_msgr {
    const struct weft_msg_ops *ops;
    void *self;
};

#endif
