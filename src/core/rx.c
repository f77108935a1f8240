/* Processing of a verified packet (verify.c): first its frames, then its chunk, which is passed to
 * the message's sink. Then the time is computed at which a message with missing chunks may close.
 *
 * The packet number enters the replay window before the frames are processed and the chunk is
 * delivered, and is recorded for acknowledgement afterwards. A DATA packet that finds no posted
 * memory is treated as lost: it is not acknowledged, and the sender retransmits its chunk in
 * another packet.
 *
 * Source: docs/PROTOCOL.md sections 3.7, 4, 6 rules 3, 5, 6.
 */
#include "core/internal.h"

#include "core/sink.h"

#include <string.h>

static inline __attribute__((always_inline)) void rx_chunk(struct weft_ep *ep, struct peer *p,
                                                           struct rx_msg *m,
                                                           const struct weft_wire_data *d,
                                                           uint64_t at_ns)
{
    rx_msg_chunk_received(m, d->chunk);
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
        weft_core_rx_event_fill(ep, p, m, ev);
        ev->chunk = d->chunk;
        ev->elems = d->elems;
        ev->data = d->payload;
        ev->at_ns = at_ns;
    }
}

static bool rx_same_grid(const struct rx_msg *m, const struct weft_wire_data *d)
{
    return m->total == d->total && m->chunk_elems == d->chunk_elems &&
           m->elem_bytes == d->elem_bytes && m->lost_max == d->lost_max &&
           m->critical == d->critical && m->tag == d->tag;
}

/* Process the chunk of a packet; true when the packet may be acknowledged. *bulk_p: the first pass
 * continues, so the sender is not waiting for an acknowledgement. Inlined although MESSAGE calls
 * it, too: otherwise each DATA packet costs 40 instructions more. */
static inline __attribute__((always_inline)) bool rx_data(struct weft_ep *ep, struct peer *p,
                                                          const struct weft_wire_data *d,
                                                          bool pass_end, uint64_t at_ns,
                                                          uint64_t now_ns, bool *bulk_p)
{
    uint64_t seq = weft_core_rx_seq(p, d->msg);
    if (seq < p->rx.open_from || seq > UINT64_MAX / 2) {
        ep->counters.late_chunks++;
        return true;
    }
    if (d->chunks > ep->config.chunks_max) {
        ep->counters.bad_range++;
        ack_at_once(&p->ack); /* show that this end is alive; the sender's deadline ends the
                               * message */
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
        rx_done_due(&p->rx, m->seq);
        weft_core_answer_again(ep, p, at_ns);
        /* An acknowledgement means that the chunk is in the mask. */
        return d->chunk < m->chunks && weft_bits_test(m->received, d->chunk);
    }
    if (m->state == RX_FREE) {
        if (m->unpolled) {
            return false; /* an event still points to the mask; a correct sender does not reuse the
                           * slot so early */
        }
        m = weft_core_rx_open(ep, p, seq, d, at_ns, now_ns);
        if (m == NULL) {
            return false;
        }
    } else if (!rx_same_grid(m, d)) {
        ep->counters.bad_range++;
        return false;
    }
    rx_msg_data_heard(m);
    if (weft_bits_test(m->received, d->chunk)) {
        ep->counters.duplicate_chunks++;
    } else {
        rx_chunk(ep, p, m, d, at_ns);
    }
    if (pass_end && !m->pass_over) {
        rx_msg_pass_end(m, now_ns);
        ack_at_once(&p->ack);
    }
    if (m->received_count == m->chunks) {
        (void)weft_core_rx_close(ep, p, m, at_ns);
        ack_at_once(&p->ack);
    }
    *bulk_p = !m->pass_over;
    return true;
}

/* ---- when a message may close ---------------------------------------------------------------- */

/* A path that has reordered packets is assumed to do so again for this time. */
static const uint64_t late_memory_ns = 10 * WEFT_NS_PER_S;

/* Time to wait for reordered chunks after the end of the first pass. 0 on a path that has not
 * reordered packets recently: the wait would delay every message. */
static uint64_t reorder_window(const struct peer *p, const struct rx_msg *m, uint64_t rtt_ns)
{
    bool reorders =
        p->ack.late_ns != 0 && m->pass_over_ns < weft_time_add(p->ack.late_ns, late_memory_ns);
    return reorders ? weft_max_u64(rtt_ns / 8, 100 * WEFT_NS_PER_US) : 0;
}

/* Time at which this message may be closed with chunks missing: rule 3. WEFT_NEVER = not yet
 * known. */
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
        return at; /* the sender may be waiting for its own window or pacer, or for credit */
    }
    /* One grant may be lost: the credit is first repeated, and the sender has a round trip to
     * respond. */
    uint64_t silence_ns = weft_max_u64(3 * rtt_ns + retell_ns, 4 * p->credit.data_gap_ns);
    return weft_min_u64(at, since_ns + silence_ns);
}

void weft_core_rx_timer_arm(struct peer *p)
{
    uint64_t at = WEFT_NEVER;
    for (uint64_t live = p->rx.live; live != 0; live &= live - 1) {
        at = weft_min_u64(at, rx_close_time(p, &p->rx.msgs[__builtin_ctzll(live)]));
    }
    rx_timer_set(&p->rx, at);
}

void weft_core_rx_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    for (uint64_t live = p->rx.live; live != 0; live &= live - 1) {
        struct rx_msg *m = &p->rx.msgs[__builtin_ctzll(live)];
        if (rx_close_time(p, m) <= now_ns) {
            (void)weft_core_rx_close(ep, p, m, now_ns);
        }
    }
    weft_core_rx_timer_arm(p);
}

/* ---- packets --------------------------------------------------------------------------------- */

/* The sender may have changed the priority of an open message. */
static void priority_note(struct peer *p, uint32_t msg, uint8_t priority)
{
    uint64_t seq = weft_core_rx_seq(p, msg);
    struct rx_msg *m = &p->rx.msgs[seq & MSG_MASK];
    if (m->state == RX_OPEN && m->seq == seq) {
        rx_msg_priority_set(m, priority);
    }
    credit_urgency(&p->credit, priority);
}

/* Process a MESSAGE frame, a whole message: like a DATA packet with PASS_END, except that it does
 * not count as a DATA packet. */
static bool message_recv(struct weft_ep *ep, struct peer *p, const struct weft_wire_message *f,
                         uint64_t pn, uint64_t at_ns, uint64_t now_ns)
{
    const struct weft_wire_data data = {.msg = f->msg,
                                        .total = f->total,
                                        .chunk_elems = f->chunk_elems,
                                        .elem_bytes = f->elem_bytes,
                                        .critical = f->critical,
                                        .tag = f->tag,
                                        .chunks = 1,
                                        .elems = f->total,
                                        .payload = f->payload};
    bool bulk;
    trace(ep, p, WEFT_TRACE_MSG_SHARED, WEFT_TRACE_INCOMING, pn, f->msg, 0,
          (uint64_t)f->total * f->elem_bytes);
    priority_note(p, f->msg, f->priority);
    return rx_data(ep, p, &data, true, at_ns, now_ns, &bulk);
}

/* Process DONE; true when its acknowledgement may be delayed. A DONE that closes no message is a
 * repetition: its sender waits for the acknowledgement. */
static bool done_act(struct weft_ep *ep, struct peer *p, const struct weft_wire_done *done,
                     uint64_t now_ns)
{
    uint64_t open = p->tx.active;
    weft_core_done_recv(ep, p, done, now_ns);
    return ep->config.done_later != 0 && open != p->tx.active && path_clean(ep, p, now_ns);
}

/* Process the frames. False: a frame cannot be processed yet and must be retransmitted. *frames_p:
 * the frame types, as bits. */
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
        case WEFT_FRAME_ACK_SHORT:
            weft_core_ack_short_recv(ep, p, packet->number, &f.ack_short, at_ns, now_ns);
            break;
        case WEFT_FRAME_DONE:
            if (!done_act(ep, p, &f.done, now_ns)) {
                ack_at_once(&p->ack);
            }
            break;
        case WEFT_FRAME_FINISH:
            weft_core_finish_recv(ep, p, &f.finish, now_ns);
            ack_at_once(&p->ack);
            break;
        case WEFT_FRAME_PING:
            ack_at_once(&p->ack);
            break;
        case WEFT_FRAME_PATH_CHALLENGE:
            path_response_due_set(&p->path, f.token);
            break;
        case WEFT_FRAME_PATH_RESPONSE:
            break; /* weft_core_path_stray processes it, in packets from the new address */
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
        case WEFT_FRAME_MESSAGE:
            taken &= message_recv(ep, p, &f.message, packet->number, at_ns, now_ns);
            break;
        }
    }
    return taken;
}

/* The effects that every valid packet has, in addition to those of its frames. */
static void packet_note(struct weft_ep *ep, struct peer *p, enum weft_ecn ecn,
                        const struct weft_wire_packet *packet, size_t bytes, uint64_t at_ns,
                        uint64_t now_ns)
{
    uint32_t ahead = credit_data_count(&p->credit, packet->data_count, packet->data != NULL);
    weft_core_credit_packet(ep, p, ahead, bytes, packet->data != NULL, ecn == WEFT_ECN_CE, at_ns,
                            now_ns);
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

static void data_note(struct weft_ep *ep, struct peer *p, const struct weft_wire_packet *packet,
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
            ep->credit.near_ns[0] =
                weft_min_u64(ep->credit.near_ns[0], p->recovery.rtt_latest_ns);
        }
    }
}

/* State before a packet was processed. */
struct before {
    bool ack_now;
    uint64_t tx_active;
    uint64_t rx_closed;
};

/* True if the packet was a complete reply: messages of one chunk, with DONE of a request. Its
 * sender delays its probes; if the reply is lost, a probe of this end for the DONE makes the sender
 * repeat the reply. The reply may therefore be confirmed with the next message. Between peers that
 * communicate rarely this saves one packet of this end, and a wake-up and a packet of the peer,
 * which would acknowledge the confirmation. Between peers that communicate often the confirmation
 * is not sent later than otherwise. */
static bool is_answer(const struct weft_ep *ep, const struct peer *p, uint32_t frames,
                      uint32_t chunks, const struct before *before)
{
    const uint32_t plain = UINT32_C(1) << WEFT_FRAME_ACK | UINT32_C(1) << WEFT_FRAME_DONE |
                           UINT32_C(1) << WEFT_FRAME_MESSAGE;
    uint64_t closed = p->rx.closed & ~before->rx_closed;
    return ep->config.confirm_later != 0 && chunks == 1 && (frames & ~plain) == 0 &&
           (before->tx_active & ~p->tx.active) != 0 && closed != 0 && p->rx.live == 0;
}

/* The packet is acknowledged because of DONE alone, and not immediately (done_act). */
static bool is_late_done(const struct peer *p, uint32_t frames, bool has_chunk)
{
    const uint32_t plain = UINT32_C(1) << WEFT_FRAME_ACK | UINT32_C(1) << WEFT_FRAME_DONE;
    return !has_chunk && (frames & ~plain) == 0 && !p->ack.at_once;
}

/* Process a verified packet. */
static void packet_act(struct weft_ep *ep, struct peer *p, const struct incoming *in,
                       enum weft_ecn ecn, size_t count, uint64_t at_ns, uint64_t now_ns)
{
    if (p->conn.state == PEER_CLOSING) {
        weft_core_closing_recv(ep, p, &in->packet);
        return;
    }
    /* The number is not recorded earlier: if a copy from another address arrives first, the
     * original must still be accepted. */
    ack_arrival(&p->ack, in->packet.number, p->sec.seen_largest, at_ns);
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
        data_note(ep, p, &in->packet, &in->data, at_ns);
        bool pass_end = (in->packet.flags & WEFT_FLAG_PASS_END) != 0;
        acknowledge &= rx_data(ep, p, &in->data, pass_end, at_ns, now_ns, &bulk);
    }
    bulk = bulk && (frames & UINT32_C(1) << WEFT_FRAME_DONE) == 0;
    bool later = acknowledge && is_answer(ep, p, frames, has ? in->data.chunks : 0, &before);
    if (later) {
        rx_later(&p->rx, p->rx.closed & ~before.rx_closed);
        ack_at_once_restore(&p->ack, before.ack_now);
    }
    if (acknowledge) {
        weft_core_ack_commit(&p->ack, in->packet.number, at_ns);
        if (in->eliciting) {
            uint64_t delay_ns = later                          ? WEFT_CONFIRM_LATER_NS
                                : is_late_done(p, frames, has) ? WEFT_DONE_LATER_NS
                                : bulk ? weft_core_ack_delay(p, ecn == WEFT_ECN_CE)
                                       : ack_delay_ns_min;
            weft_core_ack_schedule(&p->ack, delay_ns, now_ns);
        }
        ack_numbers_limit(&p->ack);
    }
    if (p->rx.live != 0) {
        weft_core_rx_timer_arm(p);
    } else {
        rx_timer_set(&p->rx, WEFT_NEVER);
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
