/* Incoming messages: open, close, and the receiver's part of the bound.
 *
 * A message is opened by its first chunk that matches an expectation. It is closed when all chunks
 * have arrived, or when enough have (at most K missing, none of them critical) and either the
 * sender's first pass has ended or the sender has been silent for too long, or when it times out.
 * The closed message remains in its slot, so that DONE can be repeated, until the sender confirms
 * DONE: the oldest message that the sender announces is then a later one.
 *
 * Source: docs/PROTOCOL.md section 6, rules 3, 5, 6.
 */
#include "core/internal.h"

#include "base/assert.h"

#include <string.h>

static void rx_free(struct peer *p, struct rx_msg *m)
{
    uint64_t bit = UINT64_C(1) << (m->seq & MSG_MASK);
    m->state = RX_FREE;
    p->rx.live &= ~bit;
    p->rx.closed &= ~bit;
    p->rx.need_done &= ~bit;
    p->rx.later &= ~bit;
}

/* An open_from that confirms a message which is still open at this end is inconsistent, and is
 * ignored as a whole. */
void weft_core_rx_open_from(struct weft_ep *ep, struct peer *p, uint64_t open_from)
{
    uint64_t end = weft_min_u64(open_from, p->rx.open_from + WEFT_MSGS_MAX);
    for (uint64_t seq = p->rx.open_from; seq < end; seq++) {
        const struct rx_msg *m = &p->rx.msgs[seq & MSG_MASK];
        if (m->state == RX_OPEN && m->seq == seq) {
            ep->counters.bad_ack++;
            return;
        }
    }
    for (uint64_t seq = p->rx.open_from; seq < end; seq++) {
        struct rx_msg *m = &p->rx.msgs[seq & MSG_MASK];
        if (m->state == RX_CLOSED && m->seq == seq) {
            rx_free(p, m);
        }
    }
    p->rx.open_from = weft_max_u64(p->rx.open_from, open_from);
}

void weft_core_rx_done_lost(struct rx_msgs *r, uint64_t pn)
{
    for (uint64_t closed = r->closed; closed != 0; closed &= closed - 1) {
        unsigned slot = (unsigned)__builtin_ctzll(closed);
        if (r->msgs[slot].done_first_pn <= pn && pn <= r->msgs[slot].done_last_pn) {
            rx_msg_done_restart(&r->msgs[slot]);
            r->need_done |= UINT64_C(1) << slot;
        }
    }
}

void weft_core_rx_event_fill(const struct weft_ep *ep, const struct peer *p, const struct rx_msg *m,
                             struct weft_msg_event *ev)
{
    ev->peer = peer_idx(ep, p);
    ev->user = m->user;
    ev->seq = m->seq;
    ev->tag = m->tag;
    ev->total = m->total;
    ev->chunk_elems = m->chunk_elems;
    ev->elem_bytes = m->elem_bytes;
    ev->chunks = m->chunks;
    ev->received = m->received_count;
}

struct weft_msg_event *weft_core_rx_close(struct weft_ep *ep, struct peer *p, struct rx_msg *m,
                                          uint64_t at_ns)
{
    bool all = m->received_count == m->chunks;
    bool enough = all || (m->chunks - m->received_count <= m->lost_max && m->critical_left == 0);
    uint64_t bit = UINT64_C(1) << (m->seq & MSG_MASK);
    m->state = RX_CLOSED;
    weft_core_credit_touch(ep, p);
    m->outcome = enough ? WEFT_MSG_COMPLETE : WEFT_MSG_SHORT;
    m->unpolled = true;
    p->rx.live &= ~bit;
    if (p->rx.live == 0) {
        weft_core_credit_closed(ep, p);
    }
    p->rx.closed |= bit;
    recovery_tail_new(&p->recovery, TAIL_LAST);
    rx_done_due(&p->rx, m->seq);
    ep->counters.messages_received++;
    trace(ep, p, WEFT_TRACE_MSG_CLOSED, WEFT_TRACE_INCOMING | m->outcome << 1, m->seq,
          m->received_count, m->chunks, m->refused);
    ep->counters.messages_short += !enough;
    ep->counters.chunks_missing += m->chunks - m->received_count;
    conn_event_raised(&p->conn);
    struct weft_msg_event *ev = weft_core_event_push(ep);
    ev->type = WEFT_EVENT_RECEIVED;
    weft_core_rx_event_fill(ep, p, m, ev);
    ev->outcome = m->outcome;
    ev->mask = m->received;
    ev->at_ns = at_ns;
    return ev;
}

void weft_core_rx_close_all(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    for (uint64_t live = p->rx.live; live != 0; live &= live - 1) {
        weft_core_rx_close(ep, p, &p->rx.msgs[__builtin_ctzll(live)], now_ns)->sender_gone = true;
    }
}

/* As masks_clear for outgoing messages (tx_msg.c). */
static void masks_clear(const struct weft_ep *ep, struct rx_msg *m)
{
    bool is_inline = m->chunks <= INLINE_CHUNKS;
    size_t stride = is_inline ? 1 : WEFT_BITS_WORDS((size_t)ep->config.chunks_max);
    size_t place = (size_t)(m - ep->rx_arena) * (TX_MASKS + RX_MASKS) + TX_MASKS;
    m->received = is_inline ? m->inline_mask : ep->bitmaps + place * stride;
    m->critical_mask = m->received + stride;
    size_t bytes = WEFT_BITS_WORDS((size_t)m->chunks) * sizeof(*m->received);
    memset(m->received, 0, bytes);
    if (m->critical == WEFT_CRITICAL_MASKED) {
        memset(m->critical_mask, 0, bytes);
    }
}

struct rx_msg *weft_core_rx_open(struct weft_ep *ep, struct peer *p, uint64_t seq,
                                 const struct weft_wire_data *d, uint64_t at_ns, uint64_t now_ns)
{
    struct weft_expect *x =
        weft_expects_match(&ep->expects, peer_idx(ep, p), d->tag, d->total, d->elem_bytes);
    if (x == NULL) {
        ep->counters.no_memory++;
        ack_at_once(&p->ack); /* the ACK acknowledges nothing new, but shows that this end is
                               * alive */
        return NULL;
    }
    struct rx_msg *m = &p->rx.msgs[seq & MSG_MASK];
    WEFT_ASSERT(m->state == RX_FREE);
    bool masked = d->critical == WEFT_CRITICAL_MASKED;
    *m = (struct rx_msg){
        .state = RX_OPEN,
        .sink = x->e.sink,
        .critical = d->critical,
        .priority = p->credit.data_priority, /* a short header opens no message */
        .data_count_open = p->credit.data_count - 1,
        .data_heard_open = p->credit.data_heard - 1,
        .critical_left = masked ? UINT32_MAX : d->critical,
        .chunk_elems = d->chunk_elems,
        .elem_bytes = d->elem_bytes,
        .total = d->total,
        .chunks = d->chunks,
        .lost_max = d->lost_max,
        .opened_pn = p->sec.seen_largest,
        .seq = seq,
        .tag = d->tag,
        .user = x->e.user,
        .timeout_ns = weft_expect_end(&x->e, now_ns),
        .memory = x->e.memory,
    };
    masks_clear(ep, m);
    p->rx.live |= UINT64_C(1) << (seq & MSG_MASK);
    weft_core_credit_open(ep, p, now_ns);
    trace(ep, p, WEFT_TRACE_MSG_OPENED, WEFT_TRACE_INCOMING, seq, m->chunks, m->lost_max,
          m->chunk_elems * m->elem_bytes);
    trace(ep, p, WEFT_TRACE_MSG_TAG, WEFT_TRACE_INCOMING, seq, m->tag >> 32, (uint32_t)m->tag,
          m->total);
    weft_expects_use(&ep->expects, x);
    struct weft_msg_event *ev = weft_core_event_push(ep);
    ev->type = WEFT_EVENT_OPEN;
    weft_core_rx_event_fill(ep, p, m, ev);
    ev->at_ns = at_ns;
    return m;
}

/* Full 64-bit sequence number of msg: the candidate nearest to the window. */
uint64_t weft_core_rx_seq(const struct peer *p, uint32_t msg)
{
    int32_t ahead = (int32_t)(msg - (uint32_t)p->rx.open_from);
    return p->rx.open_from + (uint64_t)(int64_t)ahead;
}

/* Full sequence number for a short header's 14 bits: the candidate nearest to the window. The
 * message of a delayed packet may be further away, because a packet may hold many messages; its
 * number is then below that of the candidate's first packet (verify.c). */
uint64_t weft_core_brief_seq(const struct peer *p, uint16_t msg)
{
    uint32_t half = UINT32_C(1) << (31 - WEFT_BRIEF_CHUNK_BITS);
    uint32_t ahead = (msg - (uint32_t)p->rx.open_from + half) & (2 * half - 1);
    return p->rx.open_from + ahead - half;
}

void weft_core_finish_recv(struct weft_ep *ep, struct peer *p, const struct weft_wire_finish *f,
                           uint64_t now_ns)
{
    uint64_t seq = weft_core_rx_seq(p, f->msg);
    if (seq < p->rx.open_from || seq >= p->rx.open_from + WEFT_MSGS_MAX) {
        return;
    }
    struct rx_msg *m = &p->rx.msgs[seq & MSG_MASK];
    bool give_up = (f->flags & WEFT_FINISH_SHORT) != 0;
    if (m->state == RX_OPEN) {
        if (!m->pass_over) {
            rx_msg_pass_end(m, now_ns);
        }
        if (give_up) {
            (void)weft_core_rx_close(ep, p, m, now_ns);
        }
    } else if (m->state == RX_CLOSED) {
        rx_done_due(&p->rx, m->seq);
    } else if (give_up && !m->unpolled) {
        /* No chunk arrived, so the application does not know of the message and gets no event. The
         * sender gets DONE. (While an event still points to the slot's mask, it must probe
         * again.) */
        *m = (struct rx_msg){.state = RX_CLOSED, .outcome = WEFT_MSG_SHORT, .seq = seq};
        masks_clear(ep, m);
        p->rx.closed |= UINT64_C(1) << (seq & MSG_MASK);
        rx_done_due(&p->rx, m->seq);
    }
}

/* ---- critical mask --------------------------------------------------------------------------- */

void weft_core_rx_critical_part(struct rx_msg *m, const struct weft_wire_critical *c)
{
    uint32_t from = c->first / MASK_PART_CHUNKS;
    uint32_t parts = (uint32_t)weft_div_ceil_u64(c->word_count, DONE_PART_WORDS);
    memcpy(m->critical_mask + c->first / 64, c->words, c->word_count * sizeof(uint64_t));
    for (uint32_t i = from; i < from + parts; i++) {
        weft_bits_set(m->critical_parts, i);
    }
    uint32_t parts_all = mask_parts(m->chunks);
    if (weft_bits_next_zero(m->critical_parts, parts_all, 0) < parts_all) {
        return;
    }
    m->critical_known = true;
    m->critical_left = 0;
    for (size_t w = 0; w < WEFT_BITS_WORDS((size_t)m->chunks); w++) {
        m->critical_left += (uint32_t)__builtin_popcountll(m->critical_mask[w] & ~m->received[w]);
    }
}
