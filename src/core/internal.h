/* The endpoint and its peers, for all files of src/core. Internal to src/core.
 *
 * The endpoint connects the objects of the peers (peer.h):
 *
 *   endpoint.c   configuration, memory, one datagram in and one burst out
 *   peers.c      the table of peers; PEER_UP and PEER_DOWN
 *   timers.c     deadlines of all peers
 *   egress.c     the order of peers in sending chunks
 *   msgr.c       the message interface and its events
 *   tx.c         building packets
 *   verify.c     authentication and validation of received packets
 *   rx.c         processing of verified packets
 *   handshake_guard.c   admission of handshakes
 *   prefetch.c   prefetching of memory that a packet will access
 *   trace.c      trace records
 */
#ifndef WEFT_CORE_INTERNAL_H
#define WEFT_CORE_INTERNAL_H

#include "base/bits.h"
#include "base/prng.h"
#include "core/egress.h"
#include "core/endpoint.h"
#include "core/expect.h"
#include "core/handshake_guard.h"
#include "core/limits.h"
#include "core/peer.h"
#include "core/trace.h"
#include "wire/packet.h"

#include <string.h>

/* trace.c: the ring of trace records; records = NULL when tracing is off. */
struct trace {
    struct weft_trace_record *records;
    uint32_t mask;
    uint64_t written;
    uint64_t now_ns;                     /* time of the current call of the endpoint */
    uint64_t drops[WEFT_TRACE_DROP_END]; /* values in the last DROPPED records */
};

struct deadline {
    uint64_t at_ns;
    uint32_t peer;
};

struct weft_ep {
    struct trace trace;
    struct weft_ep_config config;
    struct weft_ep_counters counters;
    struct weft_prng prng;
    struct peer *peers;
    uint32_t peers_used;   /* highest index in use + 1 */
    struct deadline *heap; /* deadlines of peers, ordered by at_ns */
    uint32_t *heap_pos;    /* position of each peer in heap; UINT32_MAX = none */
    uint32_t heap_count;
    uint64_t *ready; /* bit = peer may have something to send */
    uint32_t send_cursor;
    struct weft_expects expects;
    struct weft_msg_event *events; /* ring of EVENTS_MAX */
    uint32_t event_head;
    uint32_t event_count;
    uint64_t lost_ns;    /* time of the last loss of the path to any peer; 0 = never */
    uint64_t resumed_ns; /* end of the last pause; silence before it does not count */
    const struct weft_cc_ops *cc_ops;
    struct egress egress;
    struct credit credit;
    uint64_t *credit_active;  /* bit = the peer has an incoming message open */
    uint64_t *credit_wants;   /* of these, bit = the peer could use more credit */
    uint64_t *credit_touched; /* bit = the peer must be counted again */
    struct handshake_guard handshake_guard;
    uint64_t rekey_packets; /* packets under one send key */
    uint64_t *bitmaps;      /* arena of masks: per slot those of tx_msg, then of rx_msg */
    struct tx_msg *tx_arena;
    struct rx_msg *rx_arena;
    struct tx_packet *packet_arena;
    uint64_t *packet_bits_arena;
};

/* msgr.c */
uint32_t weft_core_grid(const struct weft_ep *ep, const struct peer *p, uint16_t elem_bytes,
                        uint32_t total);
uint32_t weft_core_chunk_elems(uint32_t packet_bytes, uint16_t elem_bytes);
struct weft_msg_event *weft_core_event_push(struct weft_ep *ep);

/* timers.c */
/* Remove the peer from the heap. */
void weft_core_timers_remove(struct weft_ep *ep, const struct peer *p);
/* Recompute the peer's timers after sending, and insert the peer into the heap by the earliest. */
void weft_core_timers_arm(struct weft_ep *ep, struct peer *p);

/* peers.c */
void weft_core_peer_ready(struct weft_ep *ep, struct peer *p);
struct peer *weft_core_peer_alloc(struct weft_ep *ep, const struct weft_addr *addr,
                                  uint64_t now_ns);
void weft_core_peer_down(struct weft_ep *ep, struct peer *p, enum weft_msg_down why,
                         uint64_t now_ns);
void weft_core_peer_up(struct weft_ep *ep, struct peer *p, uint64_t now_ns);
/* Raise SENT and RECEIVED for all messages of the peer, then PEER_DOWN. */
void weft_core_peer_end(struct weft_ep *ep, struct peer *p, enum weft_msg_down why,
                        uint16_t close_code, uint64_t now_ns);
void weft_core_peer_clear(struct weft_ep *ep, struct peer *p);
bool weft_core_peer_quiet(const struct peer *p);
static inline uint32_t peer_idx(const struct weft_ep *ep, const struct peer *p)
{
    return (uint32_t)(p - ep->peers);
}
static inline bool addr_equal(const struct weft_addr *a, const struct weft_addr *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}
/* prefetch.c: prefetch the memory that verifying and decoding a packet of this peer will access,
 * and the memory that the layer above will access. */
void weft_core_prefetch(const struct weft_ep *ep, const struct peer *p, uint64_t now_ns);
void weft_core_prefetch_events(const struct weft_ep *ep, const struct peer *p, uint64_t now_ns);

/* tx.c */
/* Build the next packet that is not part of a burst of chunks; 0 = none. A peer with chunks is then
 * queued in the order of egress.c. */
uint32_t weft_core_peer_send(struct weft_ep *ep, struct peer *p, uint64_t now_ns,
                             struct weft_tx *tx);
/* Build the next burst of chunks; 0 = window, credit or pacer do not allow one. */
uint32_t weft_core_burst_send(struct weft_ep *ep, struct peer *p, uint64_t now_ns,
                              struct weft_tx *tx);
/* Build a packet of one frame, followed by `zeros` bytes, to addr. It is numbered, but not
 * tracked. */
uint32_t weft_core_frame_build(struct weft_ep *ep, struct peer *p, const struct weft_addr *addr,
                               const struct weft_wire_frame *frame, uint32_t zeros,
                               struct weft_tx *tx);

/* trace.c */
bool weft_core_trace_init(struct weft_ep *ep);
void weft_core_trace_write(struct weft_ep *ep, const struct peer *p, enum weft_trace_type type,
                           unsigned flags, uint64_t number, uint64_t a, uint64_t b, uint64_t c);
void weft_core_trace_round(struct weft_ep *ep, const struct peer *p);
void weft_core_trace_burst(struct weft_ep *ep, const struct peer *p, const struct weft_tx *tx);
void weft_core_trace_drops_find(struct weft_ep *ep);
static inline bool trace_on(const struct weft_ep *ep)
{
    return __builtin_expect(ep->trace.records != NULL, 0);
}
/* Write a trace record; p = NULL: no peer. */
static inline void trace(struct weft_ep *ep, const struct peer *p, enum weft_trace_type type,
                         unsigned flags, uint64_t number, uint64_t a, uint64_t b, uint64_t c)
{
    if (trace_on(ep)) {
        weft_core_trace_write(ep, p, type, flags, number, a, b, c);
    }
}
static inline void trace_rtt(struct weft_ep *ep, const struct peer *p)
{
    trace(ep, p, WEFT_TRACE_RTT, 0, p->recovery.rtt_ns_min, p->recovery.rtt_latest_ns,
          p->recovery.srtt_ns, p->recovery.rttvar_ns);
}
static inline void trace_round(struct weft_ep *ep, const struct peer *p,
                               const struct weft_cc_sample *sample)
{
    if (trace_on(ep) && sample->round_end) {
        weft_core_trace_round(ep, p);
    }
}

/* ---- functions of several objects ------------------------------------------------------------ */

/* The part of a credit of `packets` that the peer can use, estimated from its recent use. */
static inline uint32_t weft_core_credit_usable(const struct weft_ep *ep, const struct peer *p,
                                               uint64_t packets)
{
    const struct credit *c = &ep->credit;
    bool known = p->credit.use_most != 0 && c->active > 1 &&
                 !c->turns; /* a single sender takes credit from no other sender */
    return (uint32_t)(known ? weft_min_u64(packets, p->credit.use_most) : packets);
}

/* The packet may be confirmed late: a message of one chunk with the DONE of a request. */
static inline bool tx_answers(const struct peer *p, const struct tx_msg *m, uint16_t kind)
{
    return p->recovery.confirms_late && m->chunks == 1 && (kind & TX_PACKET_DONE) != 0 &&
           (kind & TX_PACKET_BACKLOG) == 0;
}

/* There was a loss of the path to any peer within lossy_ns: not of a size probe, nor of a chunk
 * before the first one acknowledged (PROTOCOL section 5, "Loss"). */
static inline bool losses_likely(const struct weft_ep *ep, uint64_t now_ns)
{
    return ep->lost_ns != 0 && now_ns < ep->lost_ns + lossy_ns;
}

/* No packet to any peer, and none of this peer, was lost within lossy_ns. */
static inline bool path_clean(const struct weft_ep *ep, const struct peer *p, uint64_t now_ns)
{
    bool gap = p->ack.gap_ns != 0 && now_ns < p->ack.gap_ns + lossy_ns;
    return !losses_likely(ep, now_ns) && !gap;
}

/* The packet contains only DONE, and its acknowledgement may be delayed. */
static inline bool tx_done_waits(const struct weft_ep *ep, const struct peer *p, uint16_t kind,
                                 uint64_t now_ns)
{
    return kind == TX_PACKET_DONE && p->recovery.pto_count == 0 && path_clean(ep, p, now_ns);
}

/* The peer has chunks and waits only for its turn or for the host's queue. */
static inline bool egress_waits(const struct weft_ep *ep, const struct peer *p)
{
    return weft_bits_test(ep->egress.waits, peer_idx(ep, p));
}

#endif
