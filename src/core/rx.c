/* Incoming packets that are verified (verify.c): what they tell, and the messages that their chunks
 * belong to, the receiver's half of the bound.
 *
 * A packet's number is remembered before its frames act and its chunk lands. A chunk's received
 * bit is set before the chunk is handed to its sink, so nothing is counted twice. A DATA packet
 * that finds no posted memory is treated as if it had been lost: not recorded, not acknowledged,
 * sent again.
 *
 * Source: docs/PROTOCOL.md sections 3.7, 4, 6 rules 3, 5, 6.
 */
#include "core/internal.h"

#include "base/assert.h"
#include "core/sink.h"

#include <string.h>

/* A way that has reordered packets may do so again for as long. */
static const uint64_t late_memory_ns = 10 * WEFT_NS_PER_S;

static void rx_free(struct peer *p, struct rx_msg *m)
{
    uint64_t bit = UINT64_C(1) << (m->seq & MSG_MASK);
    m->state = RX_FREE;
    p->rx.live &= ~bit;
    p->rx.closed &= ~bit;
    p->rx.need_done &= ~bit;
    p->rx.later &= ~bit;
}

/* The peer has confirmed all its messages below open_from. A claim about one that is still open
 * here contradicts itself and is ignored. */
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

static void rx_need_done(struct peer *p, struct rx_msg *m)
{
    uint64_t bit = UINT64_C(1) << (m->seq & MSG_MASK);
    m->done_word = 0;
    p->rx.need_done |= bit;
    p->rx.later &= ~bit;
}

void weft_core_rx_done_lost(struct rx_msgs *r, uint64_t pn)
{
    for (uint64_t closed = r->closed; closed != 0; closed &= closed - 1) {
        unsigned slot = (unsigned)__builtin_ctzll(closed);
        if (r->msgs[slot].done_first_pn <= pn && pn <= r->msgs[slot].done_last_pn) {
            r->msgs[slot].done_word = 0;
            r->need_done |= UINT64_C(1) << slot;
        }
    }
}

static void rx_event_fill(const struct weft_ep *ep, const struct peer *p, const struct rx_msg *m,
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

static struct weft_msg_event *rx_close(struct weft_ep *ep, struct peer *p, struct rx_msg *m,
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
    rx_need_done(p, m);
    ep->counters.messages_received++;
    trace(ep, p, WEFT_TRACE_MSG_CLOSED, WEFT_TRACE_INCOMING | m->outcome << 1, m->seq,
          m->received_count, m->chunks, m->refused);
    ep->counters.messages_short += !enough;
    ep->counters.chunks_missing += m->chunks - m->received_count;
    conn_event_raised(&p->conn);
    struct weft_msg_event *ev = weft_core_event_push(ep);
    ev->type = WEFT_EVENT_RECEIVED;
    rx_event_fill(ep, p, m, ev);
    ev->outcome = m->outcome;
    ev->mask = m->received;
    ev->at_ns = at_ns;
    return ev;
}

/* How long to wait behind the end of the pass for chunks that it has overtaken. On a way that has not
 * reordered for a while there are none, and who waits only makes every message longer. */
static uint64_t reorder_window(const struct peer *p, const struct rx_msg *m, uint64_t rtt_ns)
{
    bool reorders =
        p->ack.late_ns != 0 && m->pass_over_ns < weft_time_add(p->ack.late_ns, late_memory_ns);
    return reorders ? weft_max_u64(rtt_ns / 8, 100 * WEFT_NS_PER_US) : 0;
}

/* When this message may be closed although chunks are missing: rule 3. WEFT_NEVER = not yet. */
static uint64_t rx_close_time(const struct peer *p, const struct rx_msg *m)
{
    uint64_t at = m->timeout_ns;
    if (m->chunks - m->received_count > m->lost_max || m->critical_left != 0) {
        return at;
    }
    uint64_t rtt_ns = p->recovery.srtt_ns != 0 ? p->recovery.srtt_ns : initial_rtt_ns;
    if (m->pass_over) {
        return weft_min_u64(at, m->pass_over_ns + reorder_window(p, m, rtt_ns));
    }
    uint64_t since_ns = weft_core_credit_silent_since(p);
    if (p->credit.sender_limited || since_ns == WEFT_NEVER) {
        return at; /* it may be waiting for its own limits, or for credit */
    }
    /* It is told again what it holds first, and has a round trip to answer: one grant may be lost. */
    uint64_t silence_ns = weft_max_u64(3 * rtt_ns + retell_ns, 4 * p->credit.data_gap_ns);
    return weft_min_u64(at, since_ns + silence_ns);
}

void weft_core_rx_timer_arm(struct peer *p)
{
    uint64_t at = WEFT_NEVER;
    for (uint64_t live = p->rx.live; live != 0; live &= live - 1) {
        at = weft_min_u64(at, rx_close_time(p, &p->rx.msgs[__builtin_ctzll(live)]));
    }
    p->rx.timer_ns = at;
}

void weft_core_rx_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    for (uint64_t live = p->rx.live; live != 0; live &= live - 1) {
        struct rx_msg *m = &p->rx.msgs[__builtin_ctzll(live)];
        if (rx_close_time(p, m) <= now_ns) {
            (void)rx_close(ep, p, m, now_ns);
        }
    }
    weft_core_rx_timer_arm(p);
}

void weft_core_rx_close_all(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    for (uint64_t live = p->rx.live; live != 0; live &= live - 1) {
        rx_close(ep, p, &p->rx.msgs[__builtin_ctzll(live)], now_ns)->sender_gone = true;
    }
}

/* As an outgoing message's. */
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

static struct rx_msg *rx_open(struct weft_ep *ep, struct peer *p, uint64_t seq,
                              const struct weft_wire_data *d, uint64_t at_ns, uint64_t now_ns)
{
    struct weft_expect *x =
        weft_expects_match(&ep->expects, peer_idx(ep, p), d->tag, d->total, d->elem_bytes);
    if (x == NULL) {
        ep->counters.no_memory++;
        ack_at_once(&p->ack); /* acknowledges nothing new, but says that we are alive */
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
    rx_event_fill(ep, p, m, ev);
    ev->at_ns = at_ns;
    return m;
}

static void rx_chunk(struct weft_ep *ep, struct peer *p, struct rx_msg *m,
                     const struct weft_wire_data *d, uint64_t at_ns)
{
    weft_bits_set(m->received, d->chunk);
    m->received_count++;
    m->critical_left -= rx_critical_chunk(m, d->chunk);
    ep->counters.data_received++;
    size_t bytes = (size_t)d->elems * d->elem_bytes;
    size_t offset = (size_t)d->chunk * d->chunk_elems * d->elem_bytes;
    if (m->sink == WEFT_SINK_COPY) {
        memcpy(m->memory + offset, d->payload, bytes);
    } else if (m->sink == WEFT_SINK_ADD) {
        weft_sink_add(m->memory + offset, d->payload, bytes);
    } else {
        struct weft_msg_event *ev = weft_core_event_push(ep);
        ev->type = WEFT_EVENT_CHUNK;
        rx_event_fill(ep, p, m, ev);
        ev->chunk = d->chunk;
        ev->elems = d->elems;
        ev->data = d->payload;
        ev->at_ns = at_ns;
    }
}

/* Full 64-bit sequence number of msg: the one nearest to the window. */
uint64_t weft_core_rx_seq(const struct peer *p, uint32_t msg)
{
    int32_t ahead = (int32_t)(msg - (uint32_t)p->rx.open_from);
    return p->rx.open_from + (uint64_t)(int64_t)ahead;
}

static bool rx_same_grid(const struct rx_msg *m, const struct weft_wire_data *d)
{
    return m->total == d->total && m->chunk_elems == d->chunk_elems &&
           m->elem_bytes == d->elem_bytes && m->lost_max == d->lost_max &&
           m->critical == d->critical && m->tag == d->tag;
}

/* A DATA packet of the window: true when it may be acknowledged. *bulk_p: in the middle of a pass, so
 * its sender waits for no acknowledgement. */
static bool rx_data(struct weft_ep *ep, struct peer *p, const struct weft_wire_data *d,
                    bool pass_end, uint64_t at_ns, uint64_t now_ns, bool *bulk_p)
{
    uint64_t seq = weft_core_rx_seq(p, d->msg);
    if (seq < p->rx.open_from || seq > UINT64_MAX / 2) {
        ep->counters.late_chunks++;
        return true;
    }
    if (d->chunks > ep->config.chunks_max) {
        ep->counters.bad_range++;
        ack_at_once(&p->ack); /* alive, but will not take it: the sender's deadline decides */
        return false;
    }
    if (seq >= p->rx.open_from + WEFT_MSGS_MAX) {
        weft_core_rx_open_from(ep, p, seq - WEFT_MSGS_MAX + 1);
        if (seq >= p->rx.open_from + WEFT_MSGS_MAX) {
            return false;
        }
    }
    struct rx_msg *m = &p->rx.msgs[seq & MSG_MASK];
    if (m->state == RX_CLOSED) {
        ep->counters.late_chunks++;
        rx_need_done(p, m);
        weft_core_answer_again(ep, p, at_ns);
        /* An acknowledgement means "received"; of this one only when it is in the mask. */
        return d->chunk < m->chunks && weft_bits_test(m->received, d->chunk);
    }
    if (m->state == RX_FREE) {
        if (m->unpolled) {
            return false; /* an event still points to the mask; only a liar is that fast */
        }
        m = rx_open(ep, p, seq, d, at_ns, now_ns);
        if (m == NULL) {
            return false;
        }
    } else if (!rx_same_grid(m, d)) {
        ep->counters.bad_range++;
        return false;
    }
    m->data_heard++;
    if (weft_bits_test(m->received, d->chunk)) {
        ep->counters.duplicate_chunks++;
    } else {
        rx_chunk(ep, p, m, d, at_ns);
    }
    if (pass_end && !m->pass_over) {
        m->pass_over = true;
        m->pass_over_ns = now_ns;
        ack_at_once(&p->ack);
    }
    if (m->received_count == m->chunks) {
        (void)rx_close(ep, p, m, at_ns);
        ack_at_once(&p->ack);
    }
    *bulk_p = !m->pass_over;
    return true;
}

/* Full sequence number of a short header's 14 bits: the one nearest to the window. No packet that is
 * in the replay window can be further away, for a message takes at least one packet. */
uint64_t weft_core_brief_seq(const struct peer *p, uint16_t msg)
{
    uint32_t half = UINT32_C(1) << (31 - WEFT_BRIEF_CHUNK_BITS);
    uint32_t ahead = (msg - (uint32_t)p->rx.open_from + half) & (2 * half - 1);
    return p->rx.open_from + ahead - half;
}

static void finish_recv(struct weft_ep *ep, struct peer *p, const struct weft_wire_finish *f,
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
            m->pass_over = true;
            m->pass_over_ns = now_ns;
        }
        if (give_up) {
            (void)rx_close(ep, p, m, now_ns);
        }
    } else if (m->state == RX_CLOSED) {
        rx_need_done(p, m);
    } else if (give_up && !m->unpolled) {
        /* Not one chunk came: nobody here knows of it, so no event; the sender gets its answer.
         * (While an event points to the mask of the place, it has to ask again.) */
        *m = (struct rx_msg){.state = RX_CLOSED, .outcome = WEFT_MSG_SHORT, .seq = seq};
        masks_clear(ep, m);
        p->rx.closed |= UINT64_C(1) << (seq & MSG_MASK);
        rx_need_done(p, m);
    }
}

/* ---- packets --------------------------------------------------------------------------------- */

/* False: a frame could not be taken in yet, and must come again. *frames_p: their types, as bits. */
static bool control_act(struct weft_ep *ep, struct peer *p, const struct weft_wire_packet *packet,
                        uint64_t at_ns, uint64_t now_ns, uint32_t *frames_p)
{
    bool taken = true;
    *frames_p = 0;
    struct weft_reader r = weft_reader_make(packet->control, packet->control_bytes);
    struct weft_wire_frame f;
    while (peer_connected(p) && weft_wire_frame_decode(&r, &f)) {
        *frames_p |= UINT32_C(1) << f.type;
        switch (f.type) {
        case WEFT_FRAME_ACK:
            weft_core_ack_recv(ep, p, packet->number, &f.ack, at_ns, now_ns);
            break;
        case WEFT_FRAME_DONE:
            weft_core_done_recv(ep, p, &f.done, now_ns);
            ack_at_once(&p->ack);
            break;
        case WEFT_FRAME_FINISH:
            finish_recv(ep, p, &f.finish, now_ns);
            ack_at_once(&p->ack);
            break;
        case WEFT_FRAME_PING:
            ack_at_once(&p->ack);
            break;
        case WEFT_FRAME_PATH_CHALLENGE:
            path_response_owe(&p->path, f.token);
            break;
        case WEFT_FRAME_PATH_RESPONSE:
            break; /* weft_core_path_stray looks for it, in packets from the new address */
        case WEFT_FRAME_CLOSE:
            weft_core_close_recv(ep, p, f.close_code, now_ns);
            break;
        case WEFT_FRAME_PADDING:
            break;
        case WEFT_FRAME_BACKLOG:
            weft_core_credit_backlog_told(ep, p, f.backlog_end, packet->number, now_ns);
            break;
        case WEFT_FRAME_CRITICAL:
            taken &= weft_core_critical_recv(ep, p, &f.critical);
            break;
        }
    }
    return taken;
}

/* What any valid packet of the peer tells, beyond its frames. */
static void packet_note(struct weft_ep *ep, struct peer *p, enum weft_ecn ecn,
                        const struct weft_wire_packet *packet, size_t bytes, uint64_t at_ns,
                        uint64_t now_ns)
{
    uint32_t ahead = credit_data_count(&p->credit, packet->data_count, packet->data != NULL);
    weft_core_credit_packet(ep, p, ahead, bytes, packet->data != NULL,
                            ecn == WEFT_ECN_CE, at_ns, now_ns);
    if (p->conn.idle) {
        weft_core_awake_note(p, packet->number, now_ns);
    }
    conn_heard(&p->conn, now_ns);
    recovery_silence_end(&p->recovery);
    ack_ecn_note(&p->ack, ecn);
    ep->counters.ce_received += ecn == WEFT_ECN_CE;
    if (p->conn.state == PEER_HALF_OPEN) {
        weft_core_older_replace(ep, p, now_ns);
        weft_core_peer_up(ep, p, now_ns);
    }
}

/* The sender may have changed its mind about an open message. */
static void priority_note(struct peer *p, uint32_t msg, uint8_t priority)
{
    uint64_t seq = weft_core_rx_seq(p, msg);
    struct rx_msg *m = &p->rx.msgs[seq & MSG_MASK];
    if (m->state == RX_OPEN && m->seq == seq) {
        m->priority = priority;
    }
    credit_urgency(&p->credit, priority);
}

static void data_note(struct peer *p, const struct weft_wire_packet *packet,
                      const struct weft_wire_data *d, uint64_t at_ns)
{
    credit_data(&p->credit, packet->flags, p->rx.live != 0, at_ns);
    if (weft_wire_is_brief(packet->flags)) {
        credit_shared(&p->credit, (packet->flags & WEFT_FLAG_SHARED) != 0);
    } else {
        priority_note(p, d->msg, (packet->flags & WEFT_FLAG_PRIORITY) >> 2);
    }
    recovery_tail_new(&p->recovery, TAIL_ACK);
    if (d->clock != 0) {
        uint32_t rtt = wire_clock(at_ns) - d->clock;
        if (rtt < UINT32_C(1) << 31) {
            weft_core_rtt_sample(p, (uint64_t)rtt << 6, 0);
        }
    }
}

/* What there was before a packet acted. */
struct before {
    bool ack_now;
    uint64_t tx_active;
    uint64_t rx_closed;
};

/* Was the packet, with a message of `chunks`, an answer, whole, with the DONE of what it answers? Its sender waits with its
 * questions, and if it was lost our own for the DONE brings it again: so it may be confirmed with
 * what we say next. Who talks seldom would spend a packet on it, and the other end two: it wakes for
 * this one and acknowledges it. Who talks often has it confirmed no later than before. */
static bool is_answer(const struct weft_ep *ep, const struct peer *p, uint32_t frames,
                      uint32_t chunks, const struct before *before)
{
    const uint32_t plain = UINT32_C(1) << WEFT_FRAME_ACK | UINT32_C(1) << WEFT_FRAME_DONE;
    uint64_t closed = p->rx.closed & ~before->rx_closed;
    return ep->config.confirm_later != 0 && chunks == 1 && (frames & ~plain) == 0 &&
           (before->tx_active & ~p->tx.active) != 0 && closed != 0 && p->rx.live == 0;
}

/* A packet that is verified acts. */
static void packet_act(struct weft_ep *ep, struct peer *p, const struct incoming *in,
                       enum weft_ecn ecn, size_t count, uint64_t at_ns, uint64_t now_ns)
{
    if (p->conn.state == PEER_CLOSING) {
        weft_core_closing_recv(ep, p, &in->packet);
        return;
    }
    /* Not before: of a copy from elsewhere that overtakes it, the original must still count. */
    weft_core_replay_commit(&p->sec, in->packet.number);
    bool has = in->packet.data != NULL;
    trace(ep, p, WEFT_TRACE_PACKET_RECEIVED, in->packet.flags, in->packet.number,
          has ? in->data.msg : 0, has ? in->data.chunk : 0, count);
    packet_note(ep, p, ecn, &in->packet, count, at_ns, now_ns);
    weft_core_peer_ready(ep, p);
    const struct before before = {
        .ack_now = p->ack.at_once, .tx_active = p->tx.active, .rx_closed = p->rx.closed};
    bool acknowledge = true;
    bool bulk = false;
    uint32_t frames = 0;
    if (in->packet.control != NULL) {
        acknowledge = control_act(ep, p, &in->packet, at_ns, now_ns, &frames);
        if (!peer_connected(p)) {
            return;
        }
    }
    if (in->packet.data != NULL) {
        data_note(p, &in->packet, &in->data, at_ns);
        bool pass_end = (in->packet.flags & WEFT_FLAG_PASS_END) != 0;
        acknowledge &= rx_data(ep, p, &in->data, pass_end, at_ns, now_ns, &bulk);
    }
    bool later = is_answer(ep, p, frames, has ? in->data.chunks : 0, &before);
    if (later) {
        p->rx.later |= p->rx.closed & ~before.rx_closed;
        ack_at_once_restore(&p->ack, before.ack_now);
    }
    if (acknowledge) {
        weft_core_ack_commit(&p->ack, in->packet.number, at_ns);
        if (in->eliciting) {
            uint64_t delay_ns = later  ? WEFT_CONFIRM_LATER_NS
                                : bulk ? weft_core_ack_delay(p, ecn == WEFT_ECN_CE)
                                       : ack_delay_ns_min;
            weft_core_ack_owe(&p->ack, delay_ns, now_ns);
        }
    }
    if (p->rx.live != 0) {
        weft_core_rx_timer_arm(p);
    } else {
        p->rx.timer_ns = WEFT_NEVER;
    }
}

void weft_core_packet_recv(struct weft_ep *ep, const struct weft_addr *from, enum weft_ecn ecn,
                           uint8_t *bytes, size_t count, uint64_t at_ns, uint64_t now_ns)
{
    struct incoming in;
    struct peer *p = weft_core_packet_verify(ep, from, bytes, count, now_ns, &in);
    if (p != NULL) {
        packet_act(ep, p, &in, ecn, count, at_ns, now_ns);
    }
}
