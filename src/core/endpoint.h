/* The bounded-loss endpoint: peers, messages, acknowledgements, loss recovery, congestion control.
 *
 * Sans-I/O: datagrams and the time are inputs, datagrams and events are outputs. It makes no system
 * call, reads no clock, and allocates only in weft_ep_new. One thread owns it. The same object code
 * runs on sockets (src/io) and in the simulator (src/sim).
 *
 * The progress loop of every driver:
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

/* Shared by the endpoints of one host, so that together they grant no more credit than a single
 * endpoint would. The owner zeroes it before use, and frees it after the last endpoint. */
struct weft_credit_share {
    _Atomic uint64_t bytes;   /* bytes of DATA received */
    _Atomic uint64_t last_ns; /* arrival of the last DATA at any of them */
    _Atomic uint32_t active;  /* endpoints with an open message */
    _Atomic uint32_t endpoints;
};

/* Sending order of the chunks of a message of which chunks may be missing. All other messages are
 * sent in the vector's order. Orders other than PERM are for tests. */
enum weft_ep_order {
    WEFT_ORDER_PERM,   /* a keyed permutation, different for each message */
    WEFT_ORDER_CYCLIC, /* the vector's order, starting at a random chunk */
    WEFT_ORDER_NONE,   /* the vector's order */
};

/* Maximum delay of the confirmation of a reply with confirm_later. */
#define WEFT_CONFIRM_LATER_NS (500 * WEFT_NS_PER_MS)
/* Maximum delay of the acknowledgement of DONE with done_later. */
#define WEFT_DONE_LATER_NS (50 * WEFT_NS_PER_MS)
/* The sender of DONE allows for this much more: the timer of a busy peer may expire late. */
#define WEFT_DONE_LATER_MORE_NS (10 * WEFT_NS_PER_MS)

/* Limits and tunables; weft_ep_config_default fills in all of them. */
struct weft_ep_config {
    uint64_t name;             /* sent to peers; opaque */
    uint64_t incarnation;      /* of this process start, sent to peers; larger than that of an
                                * earlier start, if the clocks of both hosts agree */
    uint64_t seed;             /* for connection ids and permutations */
    uint32_t peers_max;        /* table size; memory is allocated for all of them */
    uint32_t chunks_max;       /* largest message, in chunks; <= 262,144. A message that needs more
                                * because the path carries only short packets is divided as for
                                * packet_bytes, and its packets may be fragmented */
    uint32_t expects_max;      /* maximum number of expectations posted at a time */
    uint32_t tx_window_max;    /* packets in flight per peer; power of two, 256 .. 65,536 */
    uint32_t rx_window;        /* DATA packets in flight to this endpoint, from all peers together:
                                * as many as the receive buffer holds */
    uint16_t unscheduled;      /* of these, maximum that one peer may send unscheduled, that is at
                                * the start of a message */
    uint8_t same_host;         /* 1: all peers are on this host, so there is no link buffer, and
                                * rx_window alone bounds the credit */
    uint8_t host_queue;        /* 1: the driver supports weft_ep_queue_asked, so that the send queue
                                * of this host stays short. Default 0: no limit */
    uint16_t senders_expected; /* number of peers that send at the same time, if the layer above
                                * knows it; else 0 */
    struct weft_credit_share
        *credit_share;          /* of the endpoints behind one link; NULL = not shared */
    uint16_t packet_bytes;      /* longest UDP payload to build, 256 .. 65,000 */
    uint16_t packet_bytes_sure; /* payload that is known to pass; longer packets are probed for
                                 * first. 0 = packet_bytes (loopback, or a known MTU) */
    uint8_t accept;             /* 1: HELLO from an unknown address opens a peer */
    uint8_t is_standby;         /* 1: another process serves under this name, so this endpoint sends
                                 * no UNKNOWN before weft_ep_serve */
    uint8_t ecn;                /* 1: mark packets ECT(0) */
    uint8_t confirm_later;      /* 1: a reply of one packet that also carries DONE of its request is
                                 * confirmed with the next message, or after
                                 * WEFT_CONFIRM_LATER_NS. For endpoints that make progress
                                 * continuously. Default 0: confirm immediately */
    uint8_t done_later;         /* 1: without recent losses, DONE is acknowledged with the next
                                 * packet that has an ACK, or after WEFT_DONE_LATER_NS. For
                                 * endpoints that make progress continuously, or call
                                 * weft_ep_acknowledge before a pause. Default 0: acknowledge
                                 * immediately */
    uint64_t peer_timeout_ns;   /* PEER_DOWN after this time without a reply; WEFT_NEVER = off */
    uint64_t keepalive_ns;      /* PING a peer after this time without a packet from it; WEFT_NEVER
                                 * = never */
    uint64_t idle_timeout_ns;   /* close a connection after this time without a packet and with
                                 * nothing outstanding; WEFT_NEVER = never */
    uint64_t sleep_timeout_ns;  /* PEER_DOWN for an idle peer (IDLE) after this time without a
                                 * packet; WEFT_NEVER = never */
    uint32_t trace_records;     /* core/trace.h; power of two, 64 .. 2^24; 0 = no trace */
    const char *cc_name;        /* congestion control; see core/cc.h */
    enum weft_ep_order order;   /* tests only */
    /* Security: docs/PROTOCOL.md section 8. */
    uint8_t mode;                /* enum weft_wire_mode of connections made by this end; the minimum
                                  * of those accepted. Default none */
    struct weft_crypto crypto;   /* ops NULL only in mode none; with weft_ep_crypto_slots slots */
    uint8_t psk[WEFT_PSK_BYTES]; /* the job key; ignored in mode none */
    uint64_t rekey_packets;      /* packets under one key; 0 = 2^28, 2^23 with packets over 2 KB */
    uint32_t half_open_max;      /* HELLO needs a cookie while there are at least this many
                                  * half-open peers, or a quarter of peers_max if that is less */
    uint32_t hello_rate_max;     /* new handshakes per second; above it, HELLO needs a cookie */
};

/* Cumulative counters since weft_ep_new. Every drop is counted. */
struct weft_ep_counters {
    uint64_t datagrams_received; /* passed to weft_ep_recv */
    uint64_t datagrams_sent;
    uint64_t bytes_sent; /* UDP payload */
    uint64_t bytes_received;
    uint64_t data_sent;     /* DATA packets, retransmissions included */
    uint64_t data_received; /* new chunks: of DATA packets, and of MESSAGE frames */
    uint64_t retransmitted_packets;
    uint64_t lost_packets;    /* declared lost */
    uint64_t spurious_losses; /* declared lost, then acknowledged */
    uint64_t probes;          /* PTO expiries, and repetitions of answers, that sent a probe */
    uint64_t ce_received;
    uint64_t queue_waits;       /* waits for the host's send queue to drain */
    uint64_t credits_reclaimed; /* times that credit of a silent peer was reclaimed */
    uint64_t messages_sent;     /* closed by DONE: COMPLETE or SHORT */
    uint64_t messages_received; /* closed as receiver: COMPLETE or SHORT */
    uint64_t messages_short;    /* of messages_received, closed SHORT */
    uint64_t messages_unknown;  /* as sender: the peer died before DONE arrived */
    uint64_t messages_shared;   /* sent in MESSAGE frames, retransmissions included */
    uint64_t chunks_missing;    /* chunks missing from messages received */
    uint64_t duplicate_packets; /* packet number seen before */
    uint64_t duplicate_chunks;  /* new packet, chunk received before */
    uint64_t late_chunks;       /* of closed messages */
    uint64_t no_memory;         /* DATA that matched no expectation: not acknowledged */
    uint64_t bad_short;         /* dropped: an empty datagram */
    uint64_t bad_version;
    uint64_t bad_class;
    uint64_t bad_peer;         /* of no connection: unknown connection id or wrong address */
    uint64_t bad_packet;       /* malformed: too short, lengths, fields or frames */
    uint64_t bad_range;        /* DATA outside its grid, or a grid that changed or is too large */
    uint64_t bad_ack;          /* ACK of a packet never sent, or an inconsistent DONE */
    uint64_t old_packets;      /* packet number below the window */
    uint64_t hello_refused;    /* HELLOs refused: the endpoint does not accept, the peer table is
                                * full, or there are too many copies */
    uint64_t closed_packets;   /* packets of a closed connection */
    uint64_t mtu_probes;       /* packet size probes sent */
    uint64_t mtu_raised;       /* increases of the packet size */
    uint64_t mtu_black_holes;  /* packet sizes in use that stopped passing */
    uint64_t mtu_too_big;      /* calls of weft_ep_too_big */
    uint64_t ecn_failed;       /* paths that failed ECN validation */
    uint64_t path_challenges;  /* sent to new addresses of a peer */
    uint64_t path_changes;     /* migrations of a peer to another address */
    uint64_t bad_tag;          /* packets, HELLOs and ACCEPTs with a wrong tag */
    uint64_t bad_mode;         /* packets and handshakes of a lower or another mode */
    uint64_t bad_key;          /* HELLO or ACCEPT made with another job key */
    uint64_t refused;          /* REFUSED received; not authenticated, so only a hint */
    uint64_t unknown_received; /* UNKNOWN received, whether it was accepted or not */
    uint64_t unknown_sent;
    uint64_t cookies_sent;
    uint64_t rekeys;          /* send keys replaced */
    uint64_t crypto_failures; /* errors of the crypto provider, for example after a fork */
};

/* Probable reason of failed connections, by the latest observation of this end. */
enum weft_ep_hint {
    WEFT_HINT_NONE,
    WEFT_HINT_KEY,     /* a handshake with another job key arrived */
    WEFT_HINT_VERSION, /* a HELLO of another wire version arrived */
    WEFT_HINT_MODE,    /* a handshake in a mode that this end rejects arrived */
    WEFT_HINT_CRYPTO,  /* cryptography failed in this process */
    /* From a REFUSED of the other end, which is not authenticated. */
    WEFT_HINT_TOLD_KEY,
    WEFT_HINT_TOLD_VERSION,
    WEFT_HINT_TOLD_MODE,
    WEFT_HINT_TOLD_FULL,
    WEFT_HINT_TOLD_CLOSED, /* the other end accepts no connections */
};

/* One buffer of a packet to send. */
struct weft_ep_iov {
    const void *base;
    size_t bytes;
};

enum {
    WEFT_TX_PACKETS_MAX = 64,  /* kernel's limit of segments in one GSO send */
    WEFT_TX_BYTES_MAX = 65000, /* under the kernel's 64 KB with headers */
    WEFT_TX_SCRATCH = 6144,
};

/* A burst to one address: `packets` datagrams of seg_bytes each (the last may be shorter), as one
 * list of buffers in order. The driver owns the storage; iov points into it and into messages. The
 * driver must send or drop the burst before it calls recv or on_deadline again, because either may
 * return a message's memory to its owner. */
struct weft_tx {
    struct weft_addr addr;
    enum weft_ecn ecn;
    bool fragment; /* send without GSO and without DF; otherwise set DF */
    uint32_t packets;
    uint32_t seg_bytes;
    uint32_t bytes;
    uint32_t iov_count;
    struct weft_ep_iov iov[3 * WEFT_TX_PACKETS_MAX];        /* header, payload, tag */
    uint8_t scratch[WEFT_TX_SCRATCH];                       /* headers and control frames */
    uint8_t tags[WEFT_TX_PACKETS_MAX][WEFT_AEAD_TAG_BYTES]; /* mode auth */
    uint8_t sealed[WEFT_TX_BYTES_MAX];                      /* mode seal: whole packets */
};

void weft_ep_config_default(struct weft_ep_config *config_p);

/* A standby replaces the process with its name: from now on it serves, and sends UNKNOWN. */
void weft_ep_serve(struct weft_ep *ep);

/* Number of key slots of the crypto provider that an endpoint with peers_max peers needs. */
uint32_t weft_ep_crypto_slots(uint32_t peers_max);

/* Owns:    gives *ep_p; free it with weft_ep_free. Allocates all memory that it will ever use.
 * Errors:  WEFT_INVALID  a limit is out of range. WEFT_NOMEM. */
weft_status weft_ep_new(const struct weft_ep_config *config, struct weft_ep **ep_p);

/* Sends nothing. To close connections, call weft_ep_close and weft_ep_send first. NULL is
 * allowed. */
void weft_ep_free(struct weft_ep *ep);

/* The message interface over this endpoint. */
struct weft_msgr weft_ep_msgr(struct weft_ep *ep);

/* Open a connection; PEER_UP follows, or PEER_DOWN (SILENT) after peer_timeout_ns. Messages may
 * be sent immediately; they wait for PEER_UP. Errors:  WEFT_NOMEM  the peer table is full. */
weft_status weft_ep_connect(struct weft_ep *ep, const struct weft_addr *addr, uint64_t now_ns,
                            weft_peer *peer_p);

/* Close a connection. Unconfirmed DONEs are sent once more, then CLOSE, up to three times until the
 * peer answers it. The next weft_ep_on_deadline, which is due immediately, raises PEER_DOWN
 * (LOCAL). weft_ep_busy is true until the answer arrives or the wait for it times out. A half-open
 * peer, for which no PEER_UP was raised, is dropped without a packet and without an event. */
void weft_ep_close(struct weft_ep *ep, weft_peer peer, uint64_t now_ns);

/* As weft_ep_close, but PEER_DOWN at the other end is REPLACED: another process has replaced it. */
void weft_ep_refuse(struct weft_ep *ep, weft_peer peer, uint64_t now_ns);

/* Send IDLE to all peers with nothing outstanding but DONEs that may be acknowledged late: this
 * endpoint will not make progress for some time. These peers then apply sleep_timeout_ns instead of
 * peer_timeout_ns. The next recv ends the idle state. */
void weft_ep_idle(struct weft_ep *ep, uint64_t now_ns);

/* Send delayed acknowledgements with the next weft_ep_send: this endpoint may make no progress for
 * longer than WEFT_DONE_LATER_NS, but its peers are to send to it meanwhile. */
void weft_ep_acknowledge(struct weft_ep *ep);

/* Prefetch the memory that recv of this datagram will access. Call it before recv, for one or two
 * datagrams at a time. It saves time if there are many peers, each of which sends seldom. The bytes
 * need not be valid; the call has no effect on the result of recv. */
void weft_ep_prefetch(const struct weft_ep *ep, const void *bytes, size_t count);

/* Prefetch the posted memory that the chunk in this datagram is written to. It saves time at high
 * rates. Call it before recv of the preceding datagram. */
void weft_ep_prefetch_chunk(const struct weft_ep *ep, const void *bytes, size_t count);

/* The time that a driver may wait after it has received datagrams before it receives the next ones,
 * so that one wake-up serves several: a quarter of the time that the datagrams in flight take to
 * arrive, 50 to 100 us. 0 = do not wait: few datagrams are in flight, or they arrive slowly, or
 * this end has first-pass chunks to send. Arrival timestamps and deadlines remain valid. */
uint64_t weft_ep_batch_ns(const struct weft_ep *ep);

/* Process one received datagram.
 * Owns:    borrows bytes until the next recv (CHUNK events point into it), and writes to them: a
 *          sealed packet is decrypted in place.
 * Errors:  none: malformed datagrams are dropped and counted.
 * at_ns:   arrival time (the kernel's timestamp, on the clock of now_ns), <= now_ns. */
void weft_ep_recv(struct weft_ep *ep, const struct weft_addr *from, enum weft_ecn ecn, void *bytes,
                  size_t count, uint64_t at_ns, uint64_t now_ns);

/* Build the next burst. Returns its number of packets; 0 = nothing to send now. */
uint32_t weft_ep_send(struct weft_ep *ep, uint64_t now_ns, struct weft_tx *tx);

/* With host_queue: true when weft_ep_send returned 0 because it needs the number of sent bytes that
 * are still queued in this host, in the kernel or the network card, headers included. Report it
 * with weft_ep_queued, then call weft_ep_send again. An error of half the value costs little. */
bool weft_ep_queue_asked(const struct weft_ep *ep);
void weft_ep_queued(struct weft_ep *ep, uint64_t reported_bytes, uint64_t now_ns);
/* True when other traffic seems to delay this end's packets, so that the count of all bytes that
 * the interface has sent, for all programs, is of use beside this report. Optional: report it with
 * weft_ep_link_sent immediately before weft_ep_queued; 0 = not known. */
bool weft_ep_link_asked(const struct weft_ep *ep, uint64_t reported_bytes);
void weft_ep_link_sent(struct weft_ep *ep, uint64_t total_bytes);
/* Whether other endpoints of this process send over the same queue. Then a low drain rate is no
 * sign of other programs' traffic. Until the first call: none do. */
void weft_ep_queue_siblings(struct weft_ep *ep, bool siblings);

/* Latest time at which on_deadline must be called; WEFT_NEVER = no timer is set. 0 while
 * weft_ep_send has not returned 0 yet. */
uint64_t weft_ep_deadline(const struct weft_ep *ep);
void weft_ep_on_deadline(struct weft_ep *ep, uint64_t now_ns);

/* True while anything is queued, unacknowledged or open with a live peer. */
bool weft_ep_busy(const struct weft_ep *ep);

/* True when weft_ep_send would send only packets with one DONE each, to peers with which no message
 * is open in either direction. Such a DONE may wait for the next message to that peer, but only
 * briefly: the peer probes for it, and declares a silent endpoint dead. */
bool weft_ep_only_done(const struct weft_ep *ep);

/* Report that the driver could not send a datagram of `bytes` to addr unfragmented (EMSGSIZE). The
 * datagram counts as lost, and later ones are shorter. */
void weft_ep_too_big(struct weft_ep *ep, const struct weft_addr *addr, uint32_t bytes,
                     uint64_t now_ns);

/* True while this end is connecting to this address, or to any address (NULL); true while a
 * connection with this address, or with any, is up. */
bool weft_ep_connecting(const struct weft_ep *ep, const struct weft_addr *addr);
bool weft_ep_connected(const struct weft_ep *ep, const struct weft_addr *addr);

/* Current UDP payload of a full packet to a peer; 0 = no such peer. */
uint32_t weft_ep_packet_bytes(const struct weft_ep *ep, weft_peer peer);

/* Elements in a chunk of a message of `total` elements, if it is sent to peer now; 0 if an element
 * does not fit into a packet. The same as chunk_elems of the message interface, except for messages
 * that need more than chunks_max chunks. */
uint32_t weft_ep_grid(const struct weft_ep *ep, weft_peer peer, uint16_t elem_bytes,
                      uint32_t total);

/* Smoothed round-trip time to a peer; 0 before the first sample. */
uint64_t weft_ep_srtt_ns(const struct weft_ep *ep, weft_peer peer);

const struct weft_ep_counters *weft_ep_counters(const struct weft_ep *ep);

/* Current values. */
struct weft_ep_gauges {
    uint64_t peers;              /* connections that are up */
    uint64_t senders;            /* of these, with a message open here */
    uint64_t senders_waiting;    /* of these, those that could use more credit */
    uint64_t credit_outstanding; /* DATA packets that senders may send */
    uint64_t credit_budget;      /* upper bound of credit_outstanding */
    uint64_t queue_limit_bytes;  /* limit on the bytes of chunks in the host's send queue; 0 = no
                                  * limit */
};

void weft_ep_gauges(const struct weft_ep *ep, struct weft_ep_gauges *gauges_p);

/* The latest hint since weft_ep_new, and a sentence with its remedy ("" for NONE). */
enum weft_ep_hint weft_ep_hint(const struct weft_ep *ep);
const char *weft_ep_hint_text(enum weft_ep_hint hint);

#endif
