/* Shared by the files of the TCP driver. Internal to src/io/tcp.
 *
 *   tcp.c          open, close, progress, sockets that became ready
 *   sock.c         socket options, listening, what the kernel reports
 *   handshake.c    connections before they are peers: the handshake, connecting
 *   accept.c       the accepting end: which connections become peers
 *   keys.c         sealing and opening records, key rotation
 *   peer.c         peers up and down, all timers
 *   msg.c          the message interface: calls and events
 *   tx.c           outgoing messages: which chunk next, DONE received
 *   write.c        building records and writing them
 *   rx.c           incoming: reading, records, chunks, DONE sent
 *
 * A *conn* is a socket with its keys. A *peer* is the object that the layers above know, with all
 * memory of its messages. A peer is given a conn that has been authenticated, or opens one. A
 * *stranger* is a conn without a peer: it costs about 1 KB and nothing else.
 *
 * The rule against deadlock: **the reader never waits.** A chunk whose message has no posted memory
 * is read and dropped, and BLOCKED reports that to the sender. When memory is posted, READY
 * requests the message again from its beginning. If the reader stopped instead, a request without
 * memory could block the reply that its owner waits for. Back-pressure is therefore per message, as
 * over UDP, and a receiver needs no buffer for messages that it has not posted. The cost is the
 * chunks already in flight; layers that post memory in advance (rpc does) never pay it.
 */
#ifndef WEFT_IO_TCP_INTERNAL_H
#define WEFT_IO_TCP_INTERNAL_H

#include "base/assert.h"
#include "base/bits.h"
#include "base/prng.h"
#include "core/bound.h"
#include "core/expect.h"
#include "core/noise.h"
#include "core/sink.h"
#include "io/clock.h"
#include "io/driver_base.h"
#include "io/sock_addr.h"
#include "io/tcp/tcp.h"
#include "wire/tcp_record.h"

#include <sys/uio.h>

enum {
    TCP_MSG_MASK = WEFT_MSGS_MAX - 1,
    TCP_IN_BYTES = 4 * WEFT_WIRE_RECORD_BYTES_MAX,  /* a peer's receive buffer: one read, at most */
    TCP_OUT_BYTES = 3 * WEFT_WIRE_RECORD_BYTES_MAX, /* records built ahead of a write, at most */
    TCP_OUT_RECORDS = 32,
    TCP_CONTROL_MAX = 1400, /* control block of a record */
    TCP_HEAD_ROOM =
        WEFT_WIRE_RECORD_HEAD_BYTES + 2 + TCP_CONTROL_MAX + WEFT_DATA_BYTES + WEFT_TAG_BYTES,
    TCP_KEY_BYTES = 16,
};

/* Keys of one direction of a connection. */
struct tcp_keys {
    uint32_t slot; /* of the provider */
    uint8_t phase;
    uint64_t number; /* number of the next record, from 1: its nonce */
    uint64_t first;  /* number of the first record of this phase */
    uint8_t secret[WEFT_HASH_BYTES];
};

enum tcp_conn_state {
    TCP_CONN_FREE,
    TCP_CONN_CONNECTING, /* connect() is in progress */
    TCP_CONN_HELLO_SENT, /* HELLO is sent, ACCEPT or REFUSED awaited */
    TCP_CONN_STRANGER,   /* accepted by the kernel, HELLO awaited, possibly the one with a cookie */
    TCP_CONN_HALF_OPEN,  /* ACCEPT is sent, the first record awaited */
    TCP_CONN_OPEN,
};

struct tcp_peer;

struct tcp_conn {
    enum tcp_conn_state state;
    int fd;
    bool wants_out; /* epoll reports when there is room to write */
    bool keyed;
    uint8_t mode;          /* enum weft_wire_mode */
    struct tcp_peer *peer; /* NULL: this is a stranger */
    bool asked_cookie;     /* COOKIE was sent or received: at most once */
    bool proven;           /* HALF_OPEN: its HELLO had the cookie of this connection */
    uint64_t since_ns;
    uint64_t name; /* as in HELLO */
    uint64_t incarnation;
    uint8_t cookie[WEFT_COOKIE_VALUE_BYTES]; /* expected in HELLO */
    uint8_t hello[WEFT_HELLO_BYTES];         /* HELLO_SENT: what was sent */
    struct weft_noise noise;                 /* HELLO_SENT */
    struct tcp_keys send;
    struct tcp_keys recv;
    uint64_t send_records; /* built so far */
    uint32_t in_bytes;     /* before OPEN */
    uint8_t in[WEFT_WIRE_RECORD_FIRST_MAX];
};

/* An outgoing message. */
struct tcp_tx {
    bool active;
    bool unpolled;     /* closed, but its SENT event is still in the ring */
    bool finish_short; /* its deadline has passed */
    bool closed;       /* DONE has arrived, but the socket still reads its memory */
    uint8_t priority;
    uint8_t critical;
    uint16_t chunk_elems;
    uint16_t elem_bytes;
    uint32_t total;
    uint32_t chunks;    /* N */
    uint32_t lost_max;  /* K: used only if it is closed before its end */
    uint32_t next;      /* chunk to send */
    uint32_t sent_most; /* chunks that were sent at least once */
    uint32_t unflushed; /* records with its chunks that are not completely written to the socket */
    uint32_t done_next; /* chunks of the mask that DONE has reported */
    uint32_t received;  /* by DONE */
    uint32_t refused;
    enum weft_msg_outcome outcome;
    uint64_t seq;
    uint64_t tag;
    uint64_t user;
    uint64_t deadline_ns;
    uint64_t begun_ns; /* when its first chunk was written; 0 = not yet */
    bool was_held;     /* as sent */
    uint8_t rank;
    uint8_t group;    /* as in struct weft_msg_pace */
    uint64_t pace_ns; /* in tx_waits: until then; WEFT_NEVER = until pace(). Not in a group it is
                       * also the time at which the chunks sent so far would end at rate_bps */
    uint64_t rate_bps;
    const uint8_t *base;
    uint64_t *mask; /* N bits: as reported by DONE */
};

enum tcp_rx_state {
    TCP_RX_FREE,
    TCP_RX_BLOCKED, /* it has no memory: BLOCKED was sent, its chunks are dropped */
    TCP_RX_OPEN,
    TCP_RX_CLOSED,
};

/* An incoming message. */
struct tcp_rx {
    enum tcp_rx_state state;
    enum weft_msg_outcome outcome;
    enum weft_msg_sink sink;
    bool unpolled; /* closed, but its RECEIVED event is still in the ring */
    bool too_long; /* BLOCKED forever: more chunks than this end accepts */
    uint8_t critical;
    uint16_t chunk_elems;
    uint16_t elem_bytes;
    uint32_t total;
    uint32_t chunks;
    uint32_t lost_max;
    uint32_t critical_left;
    uint32_t received_count;
    uint32_t refused;
    uint32_t done_next; /* chunks whose bits DONE has reported */
    uint64_t seq;
    uint64_t tag;
    uint64_t user;
    uint64_t timeout_ns;
    uint8_t *memory;
    uint64_t *received; /* N bits */
};

/* Records that are built and not yet written. */
struct tcp_out {
    uint32_t records;
    uint32_t iov_count;
    uint32_t iov_at; /* first that is not completely written */
    uint32_t bytes;
    uint32_t sealed_bytes;
    uint8_t tx_slots[TCP_OUT_RECORDS]; /* message of a record; UINT8_MAX: none */
    uint32_t iov_ends[TCP_OUT_RECORDS];
    uint32_t released; /* records completely written and released */
    struct iovec iov[3 * TCP_OUT_RECORDS];
};

enum tcp_peer_state { TCP_PEER_FREE, TCP_PEER_CONNECTING, TCP_PEER_OPEN };

struct tcp_peer {
    enum tcp_peer_state state;
    struct tcp_conn *conn; /* NULL between two attempts to connect */
    bool accepted;
    bool close_said; /* CLOSE is in a record, which is the last one */
    bool idle;       /* it sent IDLE: no silence timers for it */
    uint32_t events_unpolled;
    uint64_t name;
    uint64_t incarnation;

    /* connecting */
    struct weft_addr addr;
    uint64_t since_ns;
    uint64_t retry_ns;
    uint64_t retry_interval_ns;

    /* control frames to send */
    bool need_ping;
    bool need_ack; /* PING was received */
    bool need_idle;
    bool need_close;
    uint16_t close_code;
    uint64_t tx_finish; /* bit = slot of the message */
    uint64_t rx_done;
    uint64_t rx_blocked;
    uint64_t rx_ready;

    /* messages */
    struct weft_bounds bounds;
    uint64_t tx_next_seq;
    uint64_t tx_open_from;
    uint64_t tx_active;
    uint64_t tx_held;    /* the other end has no memory for them yet */
    uint64_t tx_waits;   /* held by this end, or waiting because of their rate */
    uint64_t tx_pace_ns; /* earliest time at which one of these resumes */
    uint64_t group_ns[WEFT_MSG_PACE_GROUPS];  /* time at which the chunks that the messages of a
                                               * group sent so far would end at its rate */
    uint64_t group_bps[WEFT_MSG_PACE_GROUPS]; /* the last one set */
    uint64_t rx_seq;     /* newest seen */
    uint64_t rx_live;    /* OPEN */
    uint64_t rx_held;
    struct tcp_tx *tx;
    struct tcp_rx *rx;

    /* timers */
    bool pinged;       /* PING is not answered yet */
    uint64_t quiet_ns; /* silence is measured from here */
    uint64_t heard_ns;
    uint64_t tx_deadline_ns;
    uint64_t rx_timer_ns;

    /* bytes */
    struct tcp_out out;
    uint8_t *heads;  /* (TCP_OUT_RECORDS, TCP_HEAD_ROOM): all of records but chunks */
    uint8_t *sealed; /* (TCP_OUT_BYTES,): records in mode seal */
    uint8_t *in;     /* (TCP_IN_BYTES,) */
    uint32_t in_at;
    uint32_t in_end;
};

struct weft_tcp {
    struct weft_driver base;
    struct weft_tcp_config config; /* a copy; host is NULL, because the caller owns the string */
    struct weft_addr from;         /* of connections made here: the host's address, any port */
    char cc[32];                   /* config.cc points to it, or is NULL */
    bool more_to_send;
    int listen_fd;
    int epoll_fd; /* of all sockets; the poller watches it */
    pid_t pid;    /* process that opened it: a forked child shares epoll_fd and must not use it */
    uint64_t listen_again_ns; /* out of descriptors: accept again at this time; WEFT_NEVER = it
                               * listens */
    struct weft_tcp_facts facts;
    struct weft_prng prng;

    struct tcp_conn *conns;
    uint32_t conns_max;
    uint32_t strangers_max;
    struct tcp_peer *peers;
    uint32_t peers_used;
    uint64_t *ready; /* bit = this peer may have something to write */
    struct weft_expects expects;
    struct weft_msg_event *events;
    uint32_t events_max;
    uint32_t event_head;
    uint32_t event_count;
    struct tcp_tx *tx_arena;
    struct tcp_rx *rx_arena;
    uint64_t *bitmaps;
    uint8_t *bytes;

    uint16_t key_id;
    uint8_t mac_key[WEFT_HASH_BYTES];
    uint64_t rekey_records;
    uint64_t hellos_full_ns;   /* when the bucket of handshakes would be full again */
    uint64_t cookies_until_ns; /* each HELLO needs a cookie until then */
    enum weft_ep_hint hint;
    struct weft_ep_counters counters;
};

static inline struct weft_tcp *tcp_of(struct weft_driver *driver)
{
    return (struct weft_tcp *)driver; /* base is its first member */
}

static inline uint32_t tcp_peer_idx(const struct weft_tcp *t, const struct tcp_peer *p)
{
    return (uint32_t)(p - t->peers);
}

static inline uint32_t tcp_conn_idx(const struct weft_tcp *t, const struct tcp_conn *c)
{
    return (uint32_t)(c - t->conns);
}

static inline void tcp_peer_ready(struct weft_tcp *t, const struct tcp_peer *p)
{
    weft_bits_set(t->ready, tcp_peer_idx(t, p));
}

/* sock.c */
weft_status weft_tcp_sock_probe(const struct weft_tcp_config *config,
                                struct weft_tcp_facts *facts_p, struct weft_error *error);
weft_status weft_tcp_sock_listen(struct weft_tcp *t, const struct weft_addr *addr,
                                 struct weft_error *error);
/* A socket on which connect() is in progress; -1 when the kernel refused at once (errno). */
int weft_tcp_sock_connect(const struct weft_tcp *t, const struct weft_addr *to);
void weft_tcp_sock_options(const struct weft_tcp *t, int fd);
/* Segments sent again, and the smoothed round trip, by TCP_INFO. */
void weft_tcp_sock_info(int fd, uint64_t *resent_p, uint64_t *srtt_ns_p);

/* keys.c */
void weft_tcp_noise_begin(struct weft_tcp *t, const uint8_t *hello, struct weft_noise *noise);
weft_status weft_tcp_keys_begin(struct weft_tcp *t, struct tcp_conn *c,
                                const struct weft_noise *noise, bool initiator);
void weft_tcp_keys_clear(struct weft_tcp *t, struct tcp_conn *c);
/* Update the keys of the send direction if that is due, and add the key phase of the next record to
 * *flags. False: the provider failed. */
bool weft_tcp_keys_update(struct weft_tcp *t, struct tcp_conn *c, uint8_t *flags);
/* The tag of a record whose parts are spans (mode auth), or the record behind its head (seal). */
weft_status weft_tcp_seal(struct weft_tcp *t, struct tcp_conn *c,
                          const struct weft_crypto_span *head, const struct weft_crypto_span *text,
                          size_t text_count, uint8_t *out, uint8_t tag_p[WEFT_TAG_BYTES]);
/* Verify a record of `count` bytes, head included, and decrypt it in place. WEFT_PROTO:
 * authentication failed. */
weft_status weft_tcp_open_record(struct weft_tcp *t, struct tcp_conn *c, uint8_t *bytes,
                                 size_t count);
void weft_tcp_crypto_failed(struct weft_tcp *t);

/* handshake.c */
void weft_tcp_handshake_init(struct weft_tcp *t);
void weft_tcp_mac_make(struct weft_tcp *t, const uint8_t *bytes, size_t count,
                       uint8_t mac_p[WEFT_MAC_BYTES]);
bool weft_tcp_mac_valid(struct weft_tcp *t, const uint8_t *bytes, size_t count, const uint8_t *mac);
/* NULL: epoll refused the descriptor, which is still the caller's. */
struct tcp_conn *weft_tcp_conn_take(struct weft_tcp *t, int fd, uint64_t now_ns);
void weft_tcp_conn_free(struct weft_tcp *t, struct tcp_conn *c);
void weft_tcp_conn_wants_out(struct weft_tcp *t, struct tcp_conn *c, bool wants);
/* Send the bytes of a handshake message; the connection has sent nothing yet, so the socket has
 * room. */
bool weft_tcp_conn_write(struct weft_tcp *t, struct tcp_conn *c, const void *bytes, size_t count);
/* Begin an attempt to connect to p->addr. */
void weft_tcp_connect_begin(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns);
/* A socket before OPEN is readable or writable. */
void weft_tcp_handshake(struct weft_tcp *t, struct tcp_conn *c, uint64_t now_ns);

/* accept.c */
/* Accept pending connections. */
void weft_tcp_accept(struct weft_tcp *t, uint64_t now_ns);
/* A whole HELLO has arrived: answer it, or close the connection. */
void weft_tcp_hello_recv(struct weft_tcp *t, struct tcp_conn *c, uint64_t now_ns);
/* The first record has arrived: its sender has the keys, and so the job key. */
void weft_tcp_first_record(struct weft_tcp *t, struct tcp_conn *c, uint64_t now_ns);
void weft_tcp_refuse(struct weft_tcp *t, struct tcp_conn *c, enum weft_wire_refusal reason);
/* Close connections whose handshake takes too long. */
uint64_t weft_tcp_strangers_deadline(const struct weft_tcp *t);
void weft_tcp_strangers_timer(struct weft_tcp *t, uint64_t now_ns);

/* peer.c */
struct tcp_peer *weft_tcp_peer_take(struct weft_tcp *t);
bool weft_tcp_peer_room(const struct weft_tcp *t);
void weft_tcp_peer_up(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns);
void weft_tcp_peer_down(struct weft_tcp *t, struct tcp_peer *p, enum weft_msg_down why,
                        uint16_t close_code, uint64_t now_ns);
/* Messages to it are in flight, or messages from it are partly received. */
bool weft_tcp_peer_outstanding(const struct tcp_peer *p);
/* The same, or a message is held or waits for its rate at this end. */
bool weft_tcp_peer_unfinished(const struct tcp_peer *p);
uint64_t weft_tcp_deadline(const struct weft_tcp *t);
void weft_tcp_timers(struct weft_tcp *t, uint64_t now_ns);

/* msg.c */
extern const struct weft_msg_ops weft_tcp_msg_ops;
struct weft_msg_event *weft_tcp_event_push(struct weft_tcp *t);
uint32_t weft_tcp_chunk_elems(uint16_t elem_bytes);

/* tx.c */
weft_status weft_tcp_tx_send(struct weft_tcp *t, struct tcp_peer *p,
                             const struct weft_msg_send *send, uint64_t *seq_p);
void weft_tcp_tx_close_all(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns);
void weft_tcp_tx_timer(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns);
/* False: the frame contradicts what was sent; the peer has broken the protocol. */
bool weft_tcp_tx_done(struct weft_tcp *t, struct tcp_peer *p, const struct weft_wire_done *done,
                      uint64_t now_ns);
/* The socket has taken a record with a chunk of m. */
void weft_tcp_tx_flushed(struct weft_tcp *t, struct tcp_peer *p, struct tcp_tx *m, uint64_t now_ns);
/* The message whose chunk is sent next; NULL: none. */
struct tcp_tx *weft_tcp_tx_peek(struct tcp_peer *p);
/* As of weft_msg_ops. */
weft_status weft_tcp_tx_pace(struct weft_tcp *t, struct tcp_peer *p, uint64_t seq,
                             const struct weft_msg_pace *pace, uint64_t now_ns);
weft_status weft_tcp_tx_withdraw(struct weft_tcp *t, struct tcp_peer *p, uint64_t seq,
                                 uint64_t now_ns);
/* A chunk of m, of that many bytes, was put into a record. Requires that m has a rate. */
void weft_tcp_tx_paced(struct tcp_peer *p, struct tcp_tx *m, uint64_t bytes, uint64_t now_ns);
void weft_tcp_tx_pace_timer(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns);
void weft_tcp_tx_hold(struct weft_tcp *t, struct tcp_peer *p, uint32_t msg, bool hold);

/* write.c */
/* Build and write until nothing is left to send, the socket is full, or a limit of batches is
 * reached (more_to_send). */
void weft_tcp_write(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns);

/* rx.c */
/* Read once and process all complete records, calling handler after each. Returns their number. */
uint32_t weft_tcp_read(struct weft_tcp *t, struct tcp_peer *p, weft_driver_handler *handler,
                       void *arg);
/* Process one verified record; false when it takes the peer down. */
bool weft_tcp_record(struct weft_tcp *t, struct tcp_peer *p, uint8_t *bytes, size_t count,
                     uint64_t at_ns);
void weft_tcp_rx_close_all(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns);
void weft_tcp_rx_timer(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns);
/* Memory was posted: open held messages that it fits. */
void weft_tcp_rx_wake(struct weft_tcp *t, const struct weft_expect *x);

#endif
