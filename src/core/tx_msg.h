/* One outgoing message: its chunks and their state. Internal to src/core.
 *
 * Only tx_msg.c and the functions below write the fields; all other files read them.
 * The set of a peer's outgoing messages is struct tx_msgs in tx_msgs.h.
 */
#ifndef WEFT_CORE_TX_MSG_H
#define WEFT_CORE_TX_MSG_H

#include "base/bits.h"
#include "core/limits.h"
#include "core/perm.h"

struct tx_msg {
    bool active;
    bool unpolled;     /* closed, and its SENT event is still in the ring */
    bool finish_short; /* deadline passed: FINISH(SHORT) is sent until DONE arrives */
    bool masked;       /* critical chunks are those of `critical_mask`, sent in CRITICAL frames */
    uint8_t priority;
    uint8_t critical;      /* leading critical chunks, or WEFT_CRITICAL_MASKED */
    bool together;         /* as in struct weft_msg_send */
    bool shares;           /* as in struct weft_msg_send; only if it has one chunk; see share.c */
    bool held;             /* as in struct weft_msg_send; see pace.c */
    bool unbegun;          /* held and not begun: not counted in unsent chunks or BACKLOG */
    bool granted;          /* held and not begun; begins at pace_ns */
    uint8_t wire_priority; /* as announced to the receiver: priority plus rank */
    uint8_t announce_left; /* DATA packets with long headers still to send, to announce
                            * wire_priority */
    uint16_t order;        /* tx_order(); the smallest is sent first */
    uint16_t chunk_elems;
    uint16_t elem_bytes;
    uint32_t total;
    uint32_t chunks;    /* N */
    uint32_t lost_max;  /* K */
    uint32_t pass_next; /* first-pass chunks sent; the pass is over at N */
    uint32_t acked_count;
    uint32_t lost_count;    /* chunks declared lost and not yet retransmitted */
    uint32_t in_flight;     /* DATA packets */
    uint32_t resent;        /* DATA packets retransmitted before the first acknowledgement */
    uint32_t pass_resent;   /* DATA packets retransmitted during the first pass */
    uint32_t peer_received; /* chunks received, by the receiver's latest note: a lower bound */
    uint32_t critical_left; /* critical chunks not acknowledged */
    uint32_t chunk_bytes;   /* of a full chunk */
    uint64_t shared_pn;     /* last packet with this message in a MESSAGE frame; 0 = none */
    uint64_t seq;
    uint64_t opened; /* number of messages that the endpoint had opened before this one */
    uint64_t tag;
    uint64_t user;
    uint64_t deadline_ns;
    uint64_t begun_ns;      /* when its first packet was sent; 0 = not yet */
    uint64_t pace_ns;       /* held or paused until this time */
    uint64_t rate_bps;      /* 0 = not limited */
    uint64_t rate_clock_ns; /* time at which the packets sent so far would end at rate_bps; not in a
                             * group */
    uint8_t pace_group;     /* as in struct weft_msg_pace */
    const void *prefetch;   /* as in struct weft_msg_send; see prefetch.c */
    const uint8_t *base;
    struct weft_perm perm;
    uint64_t *acked;         /* N bits: chunks that the receiver has acknowledged */
    uint64_t *lost;          /* N bits: lost_count of them set */
    uint64_t *done;          /* N bits: mask of DONE, assembled from its parts */
    uint64_t *critical_mask; /* N bits, when masked: critical chunks */
    /* Storage of these four masks up to INLINE_CHUNKS; longer ones are in the arena. */
    uint64_t inline_mask[TX_MASKS];
    uint64_t critical_parts[MASK_PARTS_WORDS]; /* bit = this part of the mask is still to send */
    uint64_t done_parts[MASK_PARTS_WORDS];     /* bit = this part of DONE has arrived */
};

/* Sending order among the messages of a peer: by priority; of one priority, messages without a rank
 * first, then by rank. */
static inline uint16_t tx_order(uint8_t priority, bool paced, uint8_t rank)
{
    return (uint16_t)(priority << 9 | (paced ? 1 << 8 | rank : 0));
}
static inline bool tx_ranked(const struct tx_msg *m)
{
    return (m->order >> 8 & 1) != 0;
}

static inline uint32_t tx_chunk_bytes(const struct tx_msg *m, uint32_t chunk)
{
    uint64_t first = (uint64_t)chunk * m->chunk_elems;
    return (uint32_t)(weft_min_u64(m->total - first, m->chunk_elems) * m->elem_bytes);
}
static inline bool tx_critical_chunk(const struct tx_msg *m, uint32_t chunk)
{
    return m->masked ? weft_bits_test(m->critical_mask, chunk) : chunk < m->critical;
}

/* True if the message may be sent in a packet with others. After two losses it may not: if the
 * receiver has no memory for it, its packet is never acknowledged, and the other messages of the
 * packet are declared lost with it. A message is in one packet in flight at a time, so shared_pn is
 * unambiguous. */
static inline bool tx_msg_shares(const struct tx_msg *m)
{
    return m->shares && m->in_flight == 0 && m->resent < TX_SHARED_RESENT_MAX && m->rate_bps == 0 &&
           !m->masked;
}

/* The next chunk of the first pass; requires pass_next < chunks. The message is not const, because
 * the chunk is computed and stored. */
static inline uint32_t tx_msg_pass_chunk(struct tx_msg *m)
{
    return weft_perm_peek(&m->perm);
}

/* A note in an ACK reports that the receiver has received at least so many chunks. */
static inline void tx_msg_received_at_least(struct tx_msg *m, uint32_t received)
{
    m->peer_received = m->peer_received > received ? m->peer_received : received;
}
/* A DATA packet with a long header was sent. Before the first acknowledgement all headers are long,
 * and the receiver has perhaps not opened the message, so these packets do not count. */
static inline void tx_msg_header_sent(struct tx_msg *m)
{
    m->announce_left -= m->announce_left > 0 && m->acked_count > 0;
}
static inline void tx_msg_polled(struct tx_msg *m)
{
    m->unpolled = false;
}
/* Packet pn contains the message in a MESSAGE frame. */
static inline void tx_msg_shared(struct tx_msg *m, uint64_t pn)
{
    m->shared_pn = pn;
}
/* Free the slot without an event. If the slot is already free, nothing is written, because its page
 * may never have been used. */
static inline void tx_msg_clear(struct tx_msg *m)
{
    if (m->active) {
        m->active = false;
    }
}

/* Set rank and rate of a held message. The next `announcements` DATA packets announce a new
 * priority. */
static inline void tx_msg_pace_set(struct tx_msg *m, uint8_t rank, uint8_t wire_priority,
                                   uint8_t announcements, uint64_t rate_bps, uint8_t group,
                                   uint64_t now_ns)
{
    m->announce_left = wire_priority != m->wire_priority ? announcements : m->announce_left;
    m->wire_priority = wire_priority;
    m->order = tx_order(m->priority, true, rank);
    m->rate_bps = rate_bps;
    m->pace_group = group;
    m->rate_clock_ns = now_ns;
}
/* Permit the start at pace_ns. */
static inline void tx_msg_grant(struct tx_msg *m)
{
    m->granted = true;
}
static inline void tx_msg_begin(struct tx_msg *m, uint64_t now_ns)
{
    m->unbegun = false;
    m->rate_clock_ns = now_ns;
}
static inline void tx_msg_rest_until(struct tx_msg *m, uint64_t at_ns)
{
    m->pace_ns = at_ns;
}
static inline void tx_msg_rate_clock_set(struct tx_msg *m, uint64_t at_ns)
{
    m->rate_clock_ns = at_ns;
}

/* Mark parts first .. first + count - 1 of the critical mask as sent, or as to be sent (again). */
static inline void tx_msg_parts_sent(struct tx_msg *m, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++) {
        weft_bits_clear(m->critical_parts, i);
    }
}
static inline void tx_msg_parts_due(struct tx_msg *m, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++) {
        weft_bits_set(m->critical_parts, i);
    }
}

#endif
