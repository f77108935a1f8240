/* The set of a peer's outgoing messages. Internal to src/core.
 *
 * Only tx_msg.c and the functions below write the fields; all other files read them.
 *
 *   tx_msg.h      one message
 *   tx_msg.c      open and close; chunk selection, retransmission, DONE
 *   pace.c        held messages and their rate
 *   critical.c    the mask of critical chunks
 *   share.c       several short messages in one packet
 */
#ifndef WEFT_CORE_TX_MSGS_H
#define WEFT_CORE_TX_MSGS_H

#include "core/bound.h"
#include "core/limits.h"
#include "core/tx_msg.h"
#include "wire/packet.h"

struct peer;
struct weft_ep;

struct tx_msgs {
    struct tx_msg *msgs; /* WEFT_MSGS_MAX */
    uint64_t next_seq;
    uint64_t open_from;
    /* Bit sets of messages; the bit is seq mod WEFT_MSGS_MAX. All but the first are subsets of
     * it. */
    uint64_t active;
    uint64_t held;        /* not begun: pace.c */
    uint64_t paced;       /* paused by their rate until pace_ns */
    uint64_t answers;     /* may be confirmed late */
    uint64_t finish;      /* FINISH to send */
    uint64_t critical;    /* CRITICAL to send */
    uint64_t pace_ns;     /* earliest start of a held message or end of a pause */
    uint64_t group_clock_ns[WEFT_MSG_PACE_GROUPS]; /* rate_clock_ns of the messages of a group */
    uint64_t group_rate_bps[WEFT_MSG_PACE_GROUPS]; /* the last one set */
    uint64_t deadline_ns; /* earliest deadline of the active messages */
    uint64_t probed_seq;  /* message of the last probe; messages are probed round robin */
    uint64_t unsent;      /* number of first-pass chunks of active messages still to send */
    uint32_t backlog_end; /* largest end announced in BACKLOG */
    bool need_backlog;    /* BACKLOG to send: the number of packets that the receiver expects is
                           * wrong */
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
/* Schedule FINISH for these messages. */
static inline void tx_finish_due(struct tx_msgs *t, uint64_t messages)
{
    t->finish |= messages;
}
/* Dequeue the next message whose FINISH is due. Requires one. */
static inline unsigned tx_finish_take(struct tx_msgs *t)
{
    unsigned slot = (unsigned)__builtin_ctzll(t->finish);
    t->finish &= t->finish - 1;
    return slot;
}
/* Schedule BACKLOG if `due`. A scheduled BACKLOG is never cancelled. */
static inline void tx_backlog_due(struct tx_msgs *t, bool due)
{
    t->need_backlog |= due;
}
static inline void tx_backlog_sent(struct tx_msgs *t, uint32_t end)
{
    t->need_backlog = false;
    t->backlog_end = (int32_t)(end - t->backlog_end) > 0 ? end : t->backlog_end;
}
/* After `sent` DATA packets an earlier end has been reached. Ends are compared modulo 2^32, so an
 * end that is 2^31 behind would seem to be ahead. */
static inline void tx_backlog_reached(struct tx_msgs *t, uint32_t sent)
{
    t->backlog_end = (int32_t)(sent - t->backlog_end) > 0 ? sent : t->backlog_end;
}
/* A packet with several messages follows `sent` DATA packets. It is the first pass of
 * `first_passes` of them; `uncounted` of these are in frames, which are no DATA packets. If no
 * first-pass chunk is left after it, BACKLOG is redundant, unless the receiver expects more DATA
 * packets than there will be. */
static inline void tx_backlog_shared(struct tx_msgs *t, uint32_t sent, uint32_t uncounted,
                                     uint32_t first_passes)
{
    uint32_t end = sent + (uint32_t)t->unsent - uncounted;
    bool over = (int32_t)(t->backlog_end - end) > 0;
    t->need_backlog = over || (t->need_backlog && t->unsent > first_passes);
    tx_backlog_reached(t, sent);
}
/* Mark whether the message may be confirmed late. */
static inline void tx_answer_mark(struct tx_msgs *t, uint64_t seq, bool answer)
{
    t->answers = answer ? t->answers | tx_bit(seq) : t->answers & ~tx_bit(seq);
}
/* No active message may be confirmed late any more. */
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
static inline void tx_held_end(struct tx_msgs *t, uint64_t seq)
{
    t->held &= ~tx_bit(seq);
}
/* Pause the message, or let it continue. */
static inline void tx_paced_mark(struct tx_msgs *t, uint64_t seq, bool paced)
{
    t->paced = paced ? t->paced | tx_bit(seq) : t->paced & ~tx_bit(seq);
}
/* A held or paced message continues at at_ns. */
static inline void tx_pace_due(struct tx_msgs *t, uint64_t at_ns)
{
    t->pace_ns = weft_min_u64(t->pace_ns, at_ns);
}
static inline void tx_group_clock_set(struct tx_msgs *t, uint8_t group, uint64_t at_ns)
{
    t->group_clock_ns[group - 1] = at_ns;
}
/* One more message of the group, or another rate: what was sent at the old one does not count. */
static inline void tx_group_rate_set(struct tx_msgs *t, uint8_t group, uint64_t rate_bps,
                                     uint64_t now_ns)
{
    if (t->group_rate_bps[group - 1] != rate_bps) {
        t->group_rate_bps[group - 1] = rate_bps;
        t->group_clock_ns[group - 1] = now_ns;
    }
}
static inline void tx_pace_end(struct tx_msgs *t)
{
    t->pace_ns = WEFT_NEVER;
}
/* Schedule CRITICAL for the message. */
static inline void tx_critical_due(struct tx_msgs *t, uint64_t seq)
{
    t->critical |= tx_bit(seq);
}
/* All parts of the first message with CRITICAL due were sent. */
static inline void tx_critical_sent(struct tx_msgs *t)
{
    t->critical &= t->critical - 1;
}

/* tx_msg.c */
weft_status weft_core_tx_open(struct weft_ep *ep, struct peer *p, const struct weft_msg_send *send,
                              uint64_t now_ns, uint64_t *seq_p);
struct tx_msg *weft_core_tx_find(struct peer *p, uint32_t msg);
void weft_core_tx_acked(struct tx_msg *m, uint32_t chunk, bool was_in_flight);
void weft_core_tx_lost(struct tx_msg *m, uint32_t chunk);
bool weft_core_tx_satisfied(const struct tx_msg *m);
bool weft_core_tx_over(const struct tx_msg *m);
/* Select the next chunk to send of the peer's messages, without sending it. Returns its message;
 * NULL = none. *again_p: the chunk is a retransmission. `but`: messages to exclude (bits of their
 * slots). */
struct tx_msg *weft_core_tx_peek_but(struct peer *p, uint64_t but, uint32_t *chunk_p,
                                     bool *again_p);
static inline struct tx_msg *weft_core_tx_peek(struct peer *p, uint32_t *chunk_p, bool *again_p)
{
    return weft_core_tx_peek_but(p, 0, chunk_p, again_p);
}
/* Record that the chunk is being sent. */
void weft_core_tx_take(struct tx_msg *m, uint32_t chunk, bool again, uint64_t now_ns);
/* The message to probe next, round robin; NULL = none. *chunk_p = UINT32_MAX when only FINISH is
 * due. */
struct tx_msg *weft_core_tx_probe(struct peer *p, uint32_t *chunk_p);
void weft_core_done_recv(struct weft_ep *ep, struct peer *p, const struct weft_wire_done *done,
                         uint64_t now_ns);
void weft_core_tx_timer(struct peer *p, uint64_t now_ns);
void weft_core_tx_close_all(struct weft_ep *ep, struct peer *p, uint64_t now_ns);
/* Close a withdrawn message: raise its SENT. */
void weft_core_tx_withdrawn(struct weft_ep *ep, struct peer *p, struct tx_msg *m, uint64_t now_ns);

/* pace.c */
weft_status weft_core_pace(struct weft_ep *ep, struct peer *p, uint64_t seq,
                           const struct weft_msg_pace *pace, uint64_t now_ns);
weft_status weft_core_withdraw(struct weft_ep *ep, struct peer *p, uint64_t seq, uint64_t now_ns);
/* A packet with a chunk of m was sent. Requires that m has a rate. */
void weft_core_pace_sent(struct peer *p, struct tx_msg *m, uint32_t bytes, uint64_t now_ns);
/* A chunk of m was declared lost. */
void weft_core_pace_lost(struct peer *p, struct tx_msg *m, uint64_t now_ns);
void weft_core_pace_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns);

/* critical.c */
uint32_t weft_core_critical_lost(const struct tx_msg *m);
uint32_t weft_core_critical_unacked(const struct tx_msg *m);
void weft_core_critical_wake(struct peer *p, const struct tx_msg *m);
bool weft_core_critical_write(struct peer *p, struct weft_writer *w, uint32_t *msg_p,
                              uint32_t *parts_p);
void weft_core_critical_packet_lost(struct peer *p, uint32_t msg, uint32_t parts);
bool weft_core_critical_missing(const struct tx_msg *m);

/* share.c */
/* Messages that share a packet, in the order of sending: the last as its chunk, the others in
 * MESSAGE frames. */
struct tx_share {
    struct tx_msg *msgs[WEFT_MSGS_MAX];
    uint32_t count;        /* 0, or at least 2 */
    uint32_t chunk_at;     /* maximum number of bytes of the packet before the chunk's header */
    uint32_t first_passes; /* of the messages, those sent for the first time */
    uint32_t uncounted;    /* of these, those in frames: not DATA packets */
};
/* True if the next chunk, which is of message m, may share its packet with another message. */
static inline bool tx_share_likely(const struct tx_msgs *t, const struct tx_msg *m)
{
    uint64_t others = t->active & ~(t->held | t->paced | tx_bit(m->seq));
    return others != 0 && tx_msg_shares(m);
}
/* Maximum number of bytes of a packet of bytes_max up to the end of its control block. */
static inline size_t tx_control_room(uint32_t bytes_max)
{
    return weft_min_u64(bytes_max, WEFT_TX_SCRATCH / 2) - WEFT_TAG_BYTES;
}
/* Select at most `most` messages for a packet of bytes_max that has `used` bytes so far; BACKLOG
 * may follow. Nothing is sent yet. */
void weft_core_share_select(struct peer *p, size_t used, uint32_t bytes_max, uint32_t most,
                            struct tx_share *share_p);
/* Write the frames of a packet that is being built. */
void weft_core_share_write(struct weft_ep *ep, struct peer *p, const struct tx_share *share,
                           bool answer, uint64_t now_ns, struct weft_writer *w);
/* Packet pn with MESSAGE frames was acknowledged or lost. */
void weft_core_share_acked(struct peer *p, uint64_t pn, bool was_in_flight);
void weft_core_share_lost(struct peer *p, uint64_t pn);
#endif
