/* Outgoing messages of a peer. Internal to src/core.
 *
 *   tx_msg.c      which chunk next, when to send one again, DONE
 *   pace.c        messages that are held, and their rate
 *   critical.c    chunks that must not be missing, told apart from DATA
 */
#ifndef WEFT_CORE_TX_MSGS_H
#define WEFT_CORE_TX_MSGS_H

#include "base/bits.h"
#include "core/bound.h"
#include "core/limits.h"
#include "core/perm.h"
#include "wire/packet.h"

struct peer;
struct weft_ep;

struct tx_msg {
    bool active;
    bool unpolled;           /* closed, but its SENT event is still in the ring */
    bool finish_short;       /* deadline passed: FINISH(SHORT) until DONE */
    bool masked; /* `critical_mask` says which chunks are critical, and CRITICAL frames tell */
    uint8_t priority;
    uint8_t critical;
    bool together; /* as sent */
    bool held;               /* as sent: pace.c */
    bool unbegun;            /* and not begun: in nothing that is counted of chunks to send */
    bool granted;            /* begins at pace_ns */
    uint8_t told;            /* priority, as the receiver is told */
    uint8_t retell;          /* DATA packets with long headers to go, which tell it */
    uint16_t order;          /* tx_order: the least goes first */
    uint16_t chunk_elems;
    uint16_t elem_bytes;
    uint32_t total;
    uint32_t chunks;         /* N */
    uint32_t lost_max;       /* K */
    uint32_t pass_next;      /* first-pass chunks sent; the pass is over at N */
    uint32_t acked_count;
    uint32_t lost_count;     /* declared lost, not sent again yet */
    uint32_t in_flight;      /* DATA packets */
    uint32_t resent;         /* DATA packets sent again, before the first was acknowledged */
    uint32_t pass_resent;    /* DATA packets sent again while the pass went on */
    uint32_t peer_received;  /* what a note said it holds, at least */
    uint32_t critical_left;  /* critical chunks not acknowledged */
    uint32_t chunk_bytes;    /* of a full chunk */
    uint64_t seq;
    uint64_t opened;         /* how many the endpoint had opened before */
    uint64_t tag;
    uint64_t user;
    uint64_t deadline_ns;
    uint64_t pace_ns;        /* while it is held or paced: until then */
    uint64_t rate_bps;       /* 0 = not limited */
    uint64_t rate_clock_ns;  /* when what was sent would have been, at the rate */
    const void *prefetch;        /* as sent: prefetch.c */
    const uint8_t *base;
    struct weft_perm perm;
    uint64_t *acked;         /* N bits: the receiver is known to hold it */
    uint64_t *lost;          /* N bits: lost_count of them */
    uint64_t *done;          /* N bits: mask of DONE, while its parts come in */
    uint64_t *critical_mask;          /* N bits, when masked: critical */
    uint64_t
        inline_mask[TX_MASKS]; /* these four, up to INLINE_CHUNKS; beyond they are in the arena */
    uint64_t critical_parts[MASK_PARTS_WORDS]; /* parts of it that the receiver has to be told */
    uint64_t done_parts[MASK_PARTS_WORDS];
};

struct tx_msgs {
    struct tx_msg *msgs; /* WEFT_MSGS_MAX */
    uint64_t next_seq;
    uint64_t open_from;
    uint64_t active;               /* bit = seq mod WEFT_MSGS_MAX */
    uint64_t held;                 /* of these, not begun: pace.c */
    uint64_t paced;                /* of these, that rest because of their rate */
    uint64_t pace_ns;              /* least time at which one of both goes on */
    uint64_t answers;              /* of these, bit = may be confirmed late */
    uint64_t finish;               /* FINISH to send */
    uint64_t critical;             /* bit = CRITICAL to send */
    uint64_t deadline_ns;          /* least deadline of active messages */
    uint64_t probed_seq;           /* message of the last probe: they take turns */
    uint64_t unsent;               /* first-pass chunks of active messages still to send */
    bool need_backlog;             /* the receiver knows of more of them, or of fewer */
    struct weft_bounds bounds;
};

static inline void tx_init(struct tx_msgs *t, struct tx_msg *msgs)
{
    t->msgs = msgs;
}

static inline uint64_t tx_bit(uint64_t seq)
{
    return UINT64_C(1) << (seq & MSG_MASK);
}
/* FINISH is to be sent of these messages. */
static inline void tx_finish_due(struct tx_msgs *t, uint64_t messages)
{
    t->finish |= messages;
}
/* The next message of which FINISH is due, which goes now. */
static inline unsigned tx_finish_take(struct tx_msgs *t)
{
    unsigned slot = (unsigned)__builtin_ctzll(t->finish);
    t->finish &= t->finish - 1;
    return slot;
}
/* The receiver is to be told how much more there is; `due` of several reasons adds up. */
static inline void tx_backlog_due(struct tx_msgs *t, bool due)
{
    t->need_backlog |= due;
}
static inline void tx_backlog_sent(struct tx_msgs *t)
{
    t->need_backlog = false;
}
/* May the message be confirmed late? */
static inline void tx_answer_mark(struct tx_msgs *t, uint64_t seq, bool answer)
{
    t->answers = answer ? t->answers | tx_bit(seq) : t->answers & ~tx_bit(seq);
}
/* Not any longer than usual, of all. */
static inline void tx_answers_forget(struct tx_msgs *t)
{
    t->answers = 0;
}
static inline void tx_unsent_add(struct tx_msgs *t, int64_t chunks)
{
    t->unsent += (uint64_t)chunks;
}
static inline void tx_deadlines_end(struct tx_msgs *t)
{
    t->deadline_ns = WEFT_NEVER;
}

/* Place of a message among those of its peer. */
static inline uint16_t tx_order(uint8_t priority, bool paced, uint8_t rank)
{
    return (uint16_t)(priority << 9 | (paced ? 1 << 8 | rank : 0));
}
static inline bool tx_ranked(const struct tx_msg *m)
{
    return (m->order >> 8 & 1) != 0;
}

/* tx_msg.c */
weft_status weft_core_tx_open(struct weft_ep *ep, struct peer *p, const struct weft_msg_send *send,
                              uint64_t now_ns, uint64_t *seq_p);
struct tx_msg *weft_core_tx_find(struct peer *p, uint32_t msg);
void weft_core_tx_acked(struct tx_msg *m, uint32_t chunk, bool was_in_flight);
void weft_core_tx_lost(struct tx_msg *m, uint32_t chunk);
bool weft_core_tx_satisfied(const struct tx_msg *m);
bool weft_core_tx_over(const struct tx_msg *m);
/* The next chunk of the peer's messages to send, not taken yet; NULL = nothing. */
struct tx_msg *weft_core_tx_peek(struct peer *p, uint32_t *chunk_p, bool *again_p);
void weft_core_tx_take(struct tx_msg *m, uint32_t chunk, bool again);
/* For a probe: the next message that waits, in turn. *chunk_p = UINT32_MAX when only FINISH is
 * due. */
struct tx_msg *weft_core_tx_probe(struct peer *p, uint32_t *chunk_p);
void weft_core_done_recv(struct weft_ep *ep, struct peer *p, const struct weft_wire_done *done,
                         uint64_t now_ns);
void weft_core_tx_timer(struct peer *p, uint64_t now_ns);
void weft_core_tx_close_all(struct weft_ep *ep, struct peer *p, uint64_t now_ns);
static inline uint32_t tx_chunk_bytes(const struct tx_msg *m, uint32_t chunk)
{
    uint64_t first = (uint64_t)chunk * m->chunk_elems;
    return (uint32_t)(weft_min_u64(m->total - first, m->chunk_elems) * m->elem_bytes);
}

/* SENT for one that was taken back. */
void weft_core_tx_withdrawn(struct weft_ep *ep, struct peer *p, struct tx_msg *m, uint64_t now_ns);

/* pace.c */
weft_status weft_core_pace(struct weft_ep *ep, struct peer *p, uint64_t seq,
                           const struct weft_msg_pace *pace, uint64_t now_ns);
weft_status weft_core_withdraw(struct weft_ep *ep, struct peer *p, uint64_t seq, uint64_t now_ns);
/* A packet with a chunk of m, which has a rate, is sent. */
void weft_core_pace_sent(struct peer *p, struct tx_msg *m, uint32_t bytes, uint64_t now_ns);
void weft_core_pace_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns);

/* critical.c */
void weft_core_critical_open(struct tx_msg *m, const uint64_t *mask, uint32_t leading);
uint32_t weft_core_critical_lost(const struct tx_msg *m);
uint32_t weft_core_critical_unacked(const struct tx_msg *m);
void weft_core_critical_wake(struct peer *p, const struct tx_msg *m);
bool weft_core_critical_write(struct peer *p, struct weft_writer *w, uint32_t *msg_p,
                              uint32_t *parts_p);
void weft_core_critical_packet_lost(struct peer *p, uint32_t msg, uint32_t parts);
bool weft_core_critical_missing(const struct tx_msg *m);
static inline bool tx_critical_chunk(const struct tx_msg *m, uint32_t chunk)
{
    return m->masked ? weft_bits_test(m->critical_mask, chunk) : chunk < m->critical;
}

#endif
