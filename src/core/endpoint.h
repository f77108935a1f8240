/* The bounded-loss endpoint: peers, messages, acknowledgements, loss recovery, congestion control.
 *
 * Sans-I/O: it is fed datagrams and the time, and asked for datagrams; it makes no system call,
 * reads no clock, allocates only in weft_ep_new. One thread owns it. The same object code runs on
 * sockets (src/io) and in the simulator (src/sim).
 *
 * Progress, as every driver makes it:
 *
 *     for each datagram: weft_ep_recv, then poll events until there is none (CHUNK data points into
 *     the datagram);  then weft_ep_on_deadline if weft_ep_deadline <= now, and poll again;
 *     then weft_ep_send until it returns 0;  then sleep until weft_ep_deadline or a datagram.
 *
 * Source: docs/PROTOCOL.md.
 */
#ifndef WEFT_CORE_ENDPOINT_H
#define WEFT_CORE_ENDPOINT_H

#include "core/crypto.h"
#include "core/msg.h"

#include <stdatomic.h>

struct weft_ep;

/* A network address as the driver writes it (a sockaddr, or a host number in the simulator);
 * compared bytewise, so unused bytes must be zero. */
struct weft_addr {
    uint8_t bytes[28];
    uint32_t bytes_used;
};

enum weft_ecn { WEFT_ECN_NOT = 0, WEFT_ECN_ECT1 = 1, WEFT_ECN_ECT0 = 2, WEFT_ECN_CE = 3 };

/* What the endpoints of one host share, so that they grant no more together than one would: bytes
 * of DATA taken and when, endpoints with an open message, and all of them. Zeroed by its owner; outlives them. */
struct weft_credit_share {
    _Atomic uint64_t bytes;
    _Atomic uint64_t last_ns; /* last DATA at any of them */
    _Atomic uint32_t active;
    _Atomic uint32_t endpoints;
};

/* In which order the chunks go out of a message that may miss some; one that may not goes in the vector's
 * order. Others than PERM are for tests of what it is for. */
enum weft_ep_order {
    WEFT_ORDER_PERM,   /* a keyed permutation of each message's own */
    WEFT_ORDER_CYCLIC, /* the vector's order, from a random chunk on */
    WEFT_ORDER_NONE,   /* the vector's order */
};

/* How long the confirmation of an answer may wait at an end that confirms late. */
#define WEFT_CONFIRM_LATER_NS (500 * WEFT_NS_PER_MS)

/* Limits and tunables; weft_ep_config_default fills in all of them. */
struct weft_ep_config {
    uint64_t name;                /* told to peers; opaque */
    uint64_t incarnation;         /* of this start, told to peers; larger than that of an earlier one
                                   * where the clocks of both hosts agree */
    uint64_t seed;                /* of connection ids and permutations */
    uint32_t peers_max;           /* table size; memory is taken for all of them at once */
    uint32_t chunks_max;          /* largest message, in chunks; <= 262,144. One that needs more
                                   * because the path takes only short packets is cut as for
                                   * packet_bytes, and its packets may be fragmented */
    uint32_t expects_max;         /* posted expectations at a time */
    uint32_t tx_window_max;       /* packets in flight per peer; power of two, 256 .. 65,536 */
    uint32_t rx_window;           /* DATA packets on their way here at a time, all peers together:
                                   * what the receive buffer holds */
    uint16_t unscheduled;         /* of these, most that a peer may begin a message with */
    uint8_t same_host;            /* 1: all peers are on this host, so no link's buffer is in between:
                                   * rx_window alone bounds the credit */
    uint8_t host_queue;           /* 1: the driver answers weft_ep_queue_asked, so that little waits in
                                   * this host's own queue. Default 0: no limit */
    uint16_t senders_expected;    /* peers that send at a time, where the layer above knows */
    struct weft_credit_share *credit_share; /* of the endpoints behind one link; NULL = alone */
    uint16_t packet_bytes;        /* longest UDP payload to build, 256 .. 65,000 */
    uint16_t packet_bytes_sure;   /* that surely passes; longer ones are asked for first. 0 = all of
                                   * packet_bytes (loopback, a network whose MTU is known) */
    uint8_t accept;               /* 1: HELLO of strangers opens a peer */
    uint8_t ecn;                  /* 1: mark packets ECT(0) */
    uint8_t confirm_later;        /* 1: an answer that came whole with the DONE of its request is
                                   * confirmed with the next message, or
                                   * WEFT_CONFIRM_LATER_NS later. For who is always turned.
                                   * Default 0: immediately */
    uint64_t peer_timeout_ns;     /* outstanding and silent this long = PEER_DOWN; WEFT_NEVER off */
    uint64_t keepalive_ns;        /* PING a peer that was silent this long; WEFT_NEVER = never */
    uint64_t idle_timeout_ns;     /* close a connection that was silent this long with nothing
                                   * outstanding; WEFT_NEVER = never */
    uint64_t sleep_timeout_ns;    /* a peer that said IDLE and was silent this long since is dead;
                                   * WEFT_NEVER = never */
    uint32_t trace_records;       /* core/trace.h; power of two, 64 .. 2^24; 0 = no trace */
    const char *cc_name;          /* congestion control; see core/cc.h */
    enum weft_ep_order order;     /* tests only */
    /* Security: docs/PROTOCOL.md section 8. */
    uint8_t mode;                 /* enum weft_wire_mode: of connections made here; those accepted
                                   * have this one or a higher one. Default none */
    struct weft_crypto crypto;    /* ops NULL only in mode none; with weft_ep_crypto_slots slots */
    uint8_t psk[WEFT_PSK_BYTES];  /* the job key; anything in mode none */
    uint64_t rekey_packets;       /* packets under one key; 0 = 2^28, 2^23 with packets over 2 KB */
    uint32_t half_open_max;       /* handshakes answered ahead; beyond it HELLO needs a cookie */
    uint32_t hello_rate_max;      /* new handshakes a second; beyond it too */
};

/* Cumulative counters since weft_ep_new. Every drop has one. */
struct weft_ep_counters {
    uint64_t datagrams_received; /* given to weft_ep_recv */
    uint64_t datagrams_sent;
    uint64_t bytes_sent;         /* UDP payload */
    uint64_t bytes_received;
    uint64_t data_sent;          /* DATA packets, retransmissions included */
    uint64_t data_received;      /* DATA packets whose chunk was new */
    uint64_t retransmitted_packets;
    uint64_t lost_packets;       /* declared lost */
    uint64_t spurious_losses;    /* declared lost, then acknowledged */
    uint64_t probes;             /* PTO expiries that sent a probe */
    uint64_t ce_received;
    uint64_t queue_waits;        /* times that chunks waited for the host's queue to drain */
    uint64_t credits_reclaimed;  /* times that a silent holder of credit was passed over */
    uint64_t messages_sent;      /* closed by DONE: COMPLETE or SHORT */
    uint64_t messages_received;  /* closed as receiver: COMPLETE or SHORT */
    uint64_t messages_short;     /* of these, as receiver, closed below the bound */
    uint64_t messages_unknown;   /* as sender: the peer died first */
    uint64_t chunks_missing;     /* of messages received: chunks that did not arrive */
    uint64_t duplicate_packets;  /* packet number seen before */
    uint64_t duplicate_chunks;   /* new packet, chunk already there */
    uint64_t late_chunks;        /* of closed messages */
    uint64_t no_memory;          /* DATA that matched no expectation: not acknowledged */
    uint64_t bad_short;          /* drops: too short */
    uint64_t bad_version;
    uint64_t bad_class;
    uint64_t bad_peer;           /* unknown connection id or wrong address */
    uint64_t bad_packet;         /* malformed control block or lengths */
    uint64_t bad_range;          /* DATA outside its grid, or a grid that changed or is refused */
    uint64_t bad_ack;            /* acknowledges what was never sent, or a DONE that contradicts */
    uint64_t old_packets;        /* packet number below the window */
    uint64_t hello_refused;      /* not accepting, or the peer table is full */
    uint64_t closed_packets;     /* late ones, of a connection that was closed */
    uint64_t mtu_probes;         /* packets that asked whether their size passes */
    uint64_t mtu_raised;         /* times that a longer packet was found to pass */
    uint64_t mtu_black_holes;    /* times that the size in use passed no more */
    uint64_t mtu_too_big;        /* sizes that the driver refused: weft_ep_too_big */
    uint64_t ecn_failed;         /* paths on which ECN marks do not survive */
    uint64_t path_challenges;    /* sent to addresses from which a peer's packets arrived */
    uint64_t path_changes;       /* peers that moved to another address */
    uint64_t bad_tag;            /* a packet, HELLO or ACCEPT whose tag is wrong */
    uint64_t bad_mode;           /* a packet or handshake of a lower or another mode */
    uint64_t bad_key;            /* HELLO or ACCEPT made with another job key */
    uint64_t refused;            /* REFUSED received; only ever a hint */
    uint64_t unknown_received;   /* UNKNOWN received; believed or not */
    uint64_t unknown_sent;
    uint64_t cookies_sent;
    uint64_t rekeys;             /* send keys replaced */
    uint64_t crypto_failures;    /* the provider returned an error: after a fork, say */
};

/* Why connections do not come about, as far as this end can tell: the last thing noticed. */
enum weft_ep_hint {
    WEFT_HINT_NONE,
    WEFT_HINT_KEY,          /* a handshake with another job key arrived */
    WEFT_HINT_VERSION,      /* a HELLO of another wire version arrived */
    WEFT_HINT_MODE,         /* a handshake in a mode that this end does not take came */
    WEFT_HINT_CRYPTO,       /* the cryptography of this process failed */
    /* What the other end says; anybody could have said it. */
    WEFT_HINT_TOLD_KEY,
    WEFT_HINT_TOLD_VERSION,
    WEFT_HINT_TOLD_MODE,
    WEFT_HINT_TOLD_FULL,
    WEFT_HINT_TOLD_CLOSED,  /* it accepts no connections */
};

/* One buffer of a packet to send. */
struct weft_ep_iov {
    const void *base;
    size_t bytes;
};

enum {
    WEFT_TX_PACKETS_MAX = 64,    /* kernel's limit of segments in one GSO send */
    WEFT_TX_BYTES_MAX = 65000,   /* under the kernel's 64 KB with headers */
    WEFT_TX_SCRATCH = 6144,
};

/* A burst for one address: `packets` datagrams of seg_bytes each, the last may be shorter, as one
 * list of buffers in order. Storage is the driver's; iov points into it and into messages. A driver
 * must have sent or dropped it before it next calls recv or on_deadline (which may give a message's
 * memory back to its owner). */
struct weft_tx {
    struct weft_addr addr;
    enum weft_ecn ecn;
    bool fragment;     /* may be fragmented on its way, and is sent without GSO; else DF is set */
    uint32_t packets;
    uint32_t seg_bytes;
    uint32_t bytes;
    uint32_t iov_count;
    struct weft_ep_iov iov[3 * WEFT_TX_PACKETS_MAX]; /* header, payload, tag */
    uint8_t scratch[WEFT_TX_SCRATCH]; /* headers and control frames */
    uint8_t tags[WEFT_TX_PACKETS_MAX][WEFT_AEAD_TAG_BYTES]; /* mode auth */
    uint8_t sealed[WEFT_TX_BYTES_MAX];                      /* mode seal: whole packets */
};

void weft_ep_config_default(struct weft_ep_config *config_p);

/* Key slots that an endpoint with so many peers wants of its provider. */
uint32_t weft_ep_crypto_slots(uint32_t peers_max);

/* Owns:    gives *ep_p, to be freed with weft_ep_free. Allocates all memory it will ever use.
 * Errors:  WEFT_INVALID  a limit is out of range. WEFT_NOMEM. */
weft_status weft_ep_new(const struct weft_ep_config *config, struct weft_ep **ep_p);

/* Does not tell the peers: weft_ep_close and a last round of weft_ep_send do. NULL is fine. */
void weft_ep_free(struct weft_ep *ep);

/* The message interface over this endpoint. */
struct weft_msgr weft_ep_msgr(struct weft_ep *ep);

/* Begin a connection; PEER_UP follows, or PEER_DOWN (SILENT) after peer_timeout_ns. Messages may
 * be sent at once; they wait for PEER_UP. Errors:  WEFT_NOMEM  the peer table is full. */
weft_status weft_ep_connect(struct weft_ep *ep, const struct weft_addr *addr, uint64_t now_ns,
                            weft_peer *peer_p);

/* End a connection. DONEs that are not confirmed get a last chance, then CLOSE is sent, up to three
 * times until it is answered; PEER_DOWN (LOCAL) follows immediately. weft_ep_busy is true until the
 * answer came or is not waited for any more. A peer that is half open, of which nobody was told, is
 * forgotten without a word or an event. */
void weft_ep_close(struct weft_ep *ep, weft_peer peer, uint64_t now_ns);

/* The same, and the other end's PEER_DOWN says REPLACED: another process has its place. */
void weft_ep_refuse(struct weft_ep *ep, weft_peer peer, uint64_t now_ns);

/* Announce to all peers with nothing outstanding that this endpoint will not be progressed for a
 * while, which they take for their sleep_timeout_ns. The next recv ends it. */
void weft_ep_idle(struct weft_ep *ep, uint64_t now_ns);

/* Ask the memory for what recv of this datagram will touch; before recv, of one or two datagrams at a
 * time. Worth it where many peers speak seldom; of any bytes, and with or without it all is the same. */
void weft_ep_prefetch(const struct weft_ep *ep, const void *bytes, size_t count);

/* The same for the memory that a chunk in this datagram goes to, where its message has memory posted.
 * Worth it where much comes: before recv of the datagram in front of it. */
void weft_ep_prefetch_chunk(const struct weft_ep *ep, const void *bytes, size_t count);

/* How long a driver that has just taken datagrams may leave the next ones where they are, so that several
 * are worth one wake-up: a quarter of the time that those on their way take, 50 to 100 us; 0 = not at all:
 * few are, or they come slowly, or this end has chunks to send, which wait for acknowledgements. Arrival
 * stamps and deadlines are still valid. */
uint64_t weft_ep_batch_ns(const struct weft_ep *ep);

/* Take one datagram.
 * Owns:    borrows bytes until the next recv (CHUNK events point into it), and writes to them: a
 *          sealed packet is decrypted in place.
 * Errors:  none: what is malformed is dropped and counted.
 * at_ns:   when it arrived (the kernel's stamp on the clock of now_ns), <= now_ns. */
void weft_ep_recv(struct weft_ep *ep, const struct weft_addr *from, enum weft_ecn ecn,
                  void *bytes, size_t count, uint64_t at_ns, uint64_t now_ns);

/* Build the next burst; returns its number of packets, 0 when there is nothing to send now. */
uint32_t weft_ep_send(struct weft_ep *ep, uint64_t now_ns, struct weft_tx *tx);

/* With host_queue: weft_ep_send returned 0 because it has to know first how many bytes of what was
 * sent still wait in this host, in the kernel or the network card, headers included. Tell it by
 * weft_ep_queued, and send on. An answer too high or too low by half costs little. */
bool weft_ep_queue_asked(const struct weft_ep *ep);
void weft_ep_queued(struct weft_ep *ep, uint64_t told_bytes, uint64_t now_ns);

/* When on_deadline must be called at the latest; WEFT_NEVER = nothing is timed. */
uint64_t weft_ep_deadline(const struct weft_ep *ep);
void weft_ep_on_deadline(struct weft_ep *ep, uint64_t now_ns);

/* True while anything is queued, unacknowledged or open with a live peer. */
bool weft_ep_busy(const struct weft_ep *ep);

/* True when all that weft_ep_send has is one DONE for each of some peers, with which no message is
 * open either way: it goes as well with the next message to them, unless that is too long in
 * coming (they ask for it again, and take who is silent for dead). */
bool weft_ep_only_done(const struct weft_ep *ep);

/* The driver could not send a datagram of `bytes` to addr in one piece (EMSGSIZE): it counts as
 * lost, and shorter ones will be built. */
void weft_ep_too_big(struct weft_ep *ep, const struct weft_addr *addr, uint32_t bytes,
                     uint64_t now_ns);

/* True while a connection to this address, or to any (NULL), is being made by this end; true when
 * there is one that is up. */
bool weft_ep_connecting(const struct weft_ep *ep, const struct weft_addr *addr);
bool weft_ep_connected(const struct weft_ep *ep, const struct weft_addr *addr);

/* UDP payload of a full packet to a peer, now; 0: no such peer. */
uint32_t weft_ep_packet_bytes(const struct weft_ep *ep, weft_peer peer);

/* Elements in a chunk of a message of `total` elements sent to peer now; 0 when one does not fit.
 * chunk_elems of the message interface but for messages that would need more than chunks_max. */
uint32_t weft_ep_grid(const struct weft_ep *ep, weft_peer peer, uint16_t elem_bytes,
                      uint32_t total);

/* Smoothed round-trip time to a peer; 0 before the first sample. */
uint64_t weft_ep_srtt_ns(const struct weft_ep *ep, weft_peer peer);

const struct weft_ep_counters *weft_ep_counters(const struct weft_ep *ep);

/* As it is now. */
struct weft_ep_gauges {
    uint64_t peers;              /* connections that are up */
    uint64_t senders;            /* of these, with a message open here */
    uint64_t senders_waiting;    /* of these, that could use more credit */
    uint64_t credit_outstanding; /* DATA packets that they may send */
    uint64_t credit_budget;      /* most that may be outstanding */
    uint64_t queue_limit_bytes;  /* most chunks in the host's own queue; 0 = no limit */
};

void weft_ep_gauges(const struct weft_ep *ep, struct weft_ep_gauges *gauges_p);

/* The last hint since weft_ep_new, and a sentence with what to do about it ("" for NONE). */
enum weft_ep_hint weft_ep_hint(const struct weft_ep *ep);
const char *weft_ep_hint_text(enum weft_ep_hint hint);

#endif
