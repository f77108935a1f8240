/* Building packets: the next burst of equal datagrams to one peer.
 *
 * Order: the handshake; PATH_CHALLENGE; a probe; parts of a critical mask; a packet with control
 * frames if any are due (a small chunk, or several short messages, are added if they fit); a size
 * probe; then, in the peer's turn (egress.c), chunks, as many as window, credit and pacer allow,
 * from the caller's buffer, or several short messages.
 */
#include "core/internal.h"

#include "base/assert.h"
#include "base/prefetch.h"

#include <string.h>

enum {
    CONTROL_OFFSET = WEFT_HEADER_BYTES + 2,
    DATA_HEAD_BYTES = WEFT_HEADER_BYTES + WEFT_DATA_BYTES,
    RING_RESERVE = 64, /* packet numbers kept for acknowledgements and probes */
    LIMITED_PACKETS = 8,
    LINE_BYTES = 64,
    PREFETCH_BYTES = 1536, /* the hardware prefetcher covers the rest of a longer chunk */
    WIRE_BYTES = 42,       /* Ethernet, IPv4 and UDP headers */
};

/* ---- limits ---------------------------------------------------------------------------------- */

static bool window_open(const struct peer *p, uint64_t bytes)
{
    return p->recovery.in_flight_bytes + bytes <= p->cc.cwnd_bytes ||
           p->recovery.in_flight_bytes == 0;
}

static bool may_send(const struct weft_ep *ep, struct peer *p, uint32_t bytes, uint64_t now_ns)
{
    return p->recovery.pn_next - p->recovery.pn_oldest < ep->config.tx_window_max - RING_RESERVE &&
           (int32_t)(p->allowed.limit - p->allowed.sent) > 0 && window_open(p, bytes) &&
           weft_core_pacer_allows(p, bytes, now_ns);
}

/* SENDER_LIMITED: set while unsent chunks remain, on the last packets that window, pacer and the
 * host's queue allow, and on all packets of a message with a rate. This end, not the network, then
 * causes the pause that may follow. Several packets have the flag, because the last one may be
 * lost. The receiver knows the limit by credit. */
static bool sender_limited(const struct weft_ep *ep, const struct peer *p, const struct tx_msg *m,
                           uint32_t bytes)
{
    uint64_t ahead = (uint64_t)LIMITED_PACKETS * bytes;
    bool paced = p->cc.rate_bps != 0 && p->pacer.tokens_bytes < (int64_t)ahead;
    bool queued = ep->egress.waits_count > 1 && ep->egress.room_bytes < ahead;
    return m->pass_next < m->chunks && (paced || m->rate_bps != 0 || queued ||
                                        p->recovery.in_flight_bytes + ahead > p->cc.cwnd_bytes);
}

/* ---- bursts ---------------------------------------------------------------------------------- */

static void tx_begin(const struct weft_ep *ep, const struct peer *p, struct weft_tx *tx)
{
    tx->addr = p->conn.addr;
    tx->ecn = weft_core_ecn_marks(ep, p) ? WEFT_ECN_ECT0 : WEFT_ECN_NOT;
    tx->fragment = p->path.fragment;
    tx->packets = 0;
    tx->seg_bytes = 0;
    tx->bytes = 0;
    tx->iov_count = 0;
}

static void tx_iov(struct weft_tx *tx, const void *base, size_t bytes)
{
    tx->iov[tx->iov_count++] = (struct weft_ep_iov){.base = base, .bytes = bytes};
    tx->bytes += (uint32_t)bytes;
}

static struct weft_wire_packet header_make(const struct peer *p, uint8_t flags)
{
    return (struct weft_wire_packet){
        .klass = p->sec.mode, /* classes and modes have the same numbers */
        .flags = flags | (p->sec.send_phase != 0 ? WEFT_FLAG_KEY_PHASE : 0),
        .data_count = (uint16_t)p->allowed.sent,
        .connection_id = p->conn.remote_id,
        .number = p->recovery.pn_next,
    };
}

static uint32_t echo_clock(const struct peer *p, uint64_t now_ns)
{
    if (p->ack.echo_ns == 0) {
        return 0;
    }
    uint32_t clock = p->ack.echo_clock + (uint32_t)((now_ns - p->ack.echo_ns) >> 6);
    return clock == 0 ? 1 : clock;
}

/* After an acknowledgement the receiver knows the grid, and the short header is used. */
static uint32_t data_head_bytes(const struct tx_msg *m)
{
    return m->acked_count > 0 && m->announce_left == 0 ? WEFT_BRIEF_BYTES : WEFT_DATA_BYTES;
}

/* Bytes of both headers of a packet that contains only a chunk of this message. */
static uint32_t burst_head_bytes(const struct tx_msg *m)
{
    return data_head_bytes(m) == WEFT_BRIEF_BYTES ? WEFT_HEADER_BRIEF_BYTES + WEFT_BRIEF_BYTES
                                                  : DATA_HEAD_BYTES;
}

static uint32_t data_packet_bytes(const struct peer *p, const struct tx_msg *m, uint32_t chunk)
{
    return burst_head_bytes(m) + tx_chunk_bytes(m, chunk) + secure_tag_bytes(&p->sec);
}

/* Record the chunk as sent and write its DATA header. Returns flags for the packet header. */
static uint8_t data_write(struct weft_ep *ep, struct peer *p, struct tx_msg *m, uint32_t chunk,
                          bool again, uint32_t packet_bytes, uint64_t now_ns, struct weft_writer *w)
{
    weft_core_tx_take(m, chunk, again, now_ns);
    if (!again) {
        weft_core_egress_unsent(ep, p, -1);
    }
    if (m->pass_next == m->chunks && m->chunks >= FINISH_CHUNKS_MIN && losses_likely(ep, now_ns)) {
        /* FINISH follows immediately. If the packet with PASS_END, or a retransmission, is lost,
         * its acknowledgement reveals that. Without recent losses it is redundant with DONE, and
         * FINISH, a second DONE and the acknowledgements of both were 2 % of the bytes of messages
         * of 18 chunks. */
        tx_finish_due(&p->tx, tx_bit(m->seq));
    }
    p->allowed.sent++;
    ep->counters.data_sent++;
    ep->counters.retransmitted_packets += again;
    if (again) {
        trace(ep, p, WEFT_TRACE_CHUNK_AGAIN, 0, p->recovery.pn_next, m->seq & UINT32_MAX, chunk, 0);
    }
    bool brief = data_head_bytes(m) == WEFT_BRIEF_BYTES;
    struct weft_wire_data data = {
        .msg = (uint32_t)m->seq,
        .chunk = chunk,
        .total = m->total,
        .chunk_elems = m->chunk_elems,
        .elem_bytes = m->elem_bytes,
        .critical = m->critical,
        .lost_max = m->lost_max,
        .tag = m->tag,
        .clock = echo_clock(p, now_ns),
    };
    uint8_t flags = (uint8_t)(WEFT_FLAG_DATA | m->wire_priority << 2);
    if (brief) {
        weft_wire_brief_encode(w, &data);
        flags = ep->egress.receivers > (p->tx.unsent > 0) ? WEFT_FLAG_BRIEF | WEFT_FLAG_SHARED
                                                          : WEFT_FLAG_BRIEF;
    } else {
        weft_wire_data_encode(w, &data);
    }
    flags |= m->pass_next == m->chunks ? WEFT_FLAG_PASS_END : 0;
    flags |= sender_limited(ep, p, m, packet_bytes) ? WEFT_FLAG_SENDER_LIMITED : 0;
    if (m->rate_bps != 0) {
        weft_core_pace_sent(p, m, packet_bytes, now_ns);
    }
    tx_msg_header_sent(m);
    return flags;
}

static const uint8_t *chunk_at(const struct tx_msg *m, uint32_t chunk)
{
    return m->base + (size_t)chunk * m->chunk_bytes;
}

/* Prefetch the next chunk of the first pass. It may be anywhere in the message, which the hardware
 * prefetcher does not predict. The lines are loaded while the current chunk is protected; otherwise
 * the tag computation, or the kernel's copy, would wait for each. */
static void chunk_prefetch(struct tx_msg *m)
{
    if (m->pass_next == m->chunks) {
        return;
    }
    uint32_t chunk = tx_msg_pass_chunk(m);
    uint32_t bytes = tx_chunk_bytes(m, chunk);
    const uint8_t *from = chunk_at(m, chunk);
    for (uint32_t at = 0; at < bytes && at < PREFETCH_BYTES; at += LINE_BYTES) {
        weft_prefetch(from + at);
    }
}

/* Append one DATA packet to the burst; false when it could not be protected. */
static bool burst_data(struct weft_ep *ep, struct peer *p, struct weft_tx *tx, struct tx_msg *m,
                       uint32_t chunk, bool again, uint8_t kind, uint64_t now_ns)
{
    uint8_t *head = tx->scratch + (size_t)tx->packets * DATA_HEAD_BYTES;
    uint32_t payload = tx_chunk_bytes(m, chunk);
    uint32_t bytes = data_packet_bytes(p, m, chunk);
    uint32_t first_iov = tx->iov_count;
    uint32_t head_bytes = burst_head_bytes(m);
    uint32_t header_bytes = head_bytes - data_head_bytes(m);
    struct weft_writer body = weft_writer_make(head + header_bytes, data_head_bytes(m));
    tx_answer_mark(&p->tx, m->seq, false);
    uint8_t flags = data_write(ep, p, m, chunk, again, bytes, now_ns, &body);
    struct weft_writer w = weft_writer_make(head, header_bytes);
    struct weft_wire_packet packet = header_make(p, flags);
    weft_wire_header_encode(&w, &packet);
    WEFT_ASSERT(!w.bad && !body.bad);
    /* The packet size has shrunk since the message was divided. */
    tx->fragment |= weft_core_path_room(p, bytes) > p->path.packet_bytes;
    tx_iov(tx, head, head_bytes);
    tx_iov(tx, chunk_at(m, chunk), payload);
    chunk_prefetch(m);
    if (!weft_core_secure_seal(ep, p, p->recovery.pn_next, first_iov, tx)) {
        return false;
    }
    tx->packets++;
    pacer_spend(&p->pacer, p->cc.rate_bps, bytes);
    weft_core_packet_sent(ep, p, now_ns, (uint8_t)(TX_PACKET_DATA | kind), (uint32_t)m->seq, chunk,
                          bytes);
    return true;
}

static uint32_t control_build(struct weft_ep *ep, struct peer *p, uint32_t bytes_max, bool due,
                              uint64_t now_ns, struct weft_tx *tx);

static uint32_t burst_build(struct weft_ep *ep, struct peer *p, uint64_t now_ns, struct weft_tx *tx)
{
    uint32_t most = 1;
    tx_begin(ep, p, tx);
    while (tx->packets < most) {
        uint32_t chunk;
        bool again;
        struct tx_msg *m = weft_core_tx_peek(p, &chunk, &again);
        if (m == NULL) {
            break;
        }
        if (tx_share_likely(&p->tx, m)) {
            struct tx_share share;
            weft_core_share_select(p, CONTROL_OFFSET, p->path.packet_bytes, 2, &share);
            if (share.count > 0) { /* their packet is this burst, or the next one */
                return tx->packets > 0
                           ? tx->packets
                           : control_build(ep, p, p->path.packet_bytes, false, now_ns, tx);
            }
        }
        most = tx->packets == 0 ? weft_core_egress_burst(ep, p, m) : most;
        uint32_t bytes = data_packet_bytes(p, m, chunk);
        if (tx->packets > 0 && (bytes > tx->seg_bytes || tx->bytes + bytes > WEFT_TX_BYTES_MAX)) {
            break;
        }
        if (!may_send(ep, p, bytes, now_ns)) {
            break;
        }
        if (tx->packets == 0) {
            tx->seg_bytes = bytes;
        }
        if (!burst_data(ep, p, tx, m, chunk, again, 0, now_ns)) {
            return 0;
        }
        if (bytes < tx->seg_bytes || tx->fragment) {
            break; /* only the last segment of a burst may be shorter */
        }
    }
    return tx->packets;
}

/* ---- control frames -------------------------------------------------------------------------- */

/* DONE and FINISH are tracked like chunks, so they also need free entries of the ring. Otherwise
 * each would declare an older one lost, which would be retransmitted, and so on without end. */
static bool ring_has_room(const struct weft_ep *ep, const struct peer *p)
{
    return p->recovery.pn_next - p->recovery.pn_oldest < ep->config.tx_window_max - RING_RESERVE;
}

static bool done_open(const struct weft_ep *ep, const struct peer *p)
{
    return p->rx.need_done != 0 && ring_has_room(ep, p);
}

static bool done_due(const struct weft_ep *ep, const struct peer *p)
{
    return (p->rx.need_done & ~p->rx.later) != 0 && ring_has_room(ep, p);
}

/* A DONE that may wait is sent together with a chunk. */
static bool done_piggybacks(const struct weft_ep *ep, struct peer *p)
{
    uint32_t chunk;
    bool again;
    return p->rx.later != 0 && ring_has_room(ep, p) && weft_core_tx_peek(p, &chunk, &again) != NULL;
}

static bool control_due(const struct weft_ep *ep, const struct peer *p, uint64_t now_ns)
{
    return p->ack.at_once || done_due(ep, p) || (p->tx.finish != 0 && ring_has_room(ep, p)) ||
           p->conn.need_ping || p->path.response_due || p->conn.announce_idle > 0 ||
           (p->tx.need_backlog && ring_has_room(ep, p)) ||
           (p->ack.pending > 0 && p->ack.due_ns <= now_ns);
}

static void frame_ack(struct weft_ep *ep, struct peer *p, uint64_t now_ns, struct weft_writer *w)
{
    struct weft_wire_frame frame;
    frame.type = WEFT_FRAME_ACK;
    /* Reserve room for one part of a DONE; otherwise, in small packets, notes would block it
     * forever. */
    size_t room = weft_writer_left(w);
    room -= p->conn.need_ping ? WEFT_PING_BYTES : 0;
    room -= p->rx.need_done == 0 ? 0 : WEFT_DONE_BYTES + DONE_PART_WORDS * sizeof(uint64_t);
    weft_core_ack_fill(ep, p, now_ns, &frame.ack, room);
    weft_wire_frame_encode(w, &frame);
}

static void frame_finish(struct peer *p, struct weft_writer *w, unsigned slot)
{
    const struct tx_msg *m = &p->tx.msgs[slot];
    struct weft_wire_frame frame = {.type = WEFT_FRAME_FINISH};
    frame.finish.msg = (uint32_t)m->seq;
    frame.finish.flags = m->finish_short ? WEFT_FINISH_SHORT : 0;
    weft_wire_frame_encode(w, &frame);
}

/* Write as much of one message's DONE as fits; true when it is complete. */
static bool frame_done(struct weft_ep *ep, struct peer *p, struct rx_msg *m, struct weft_writer *w)
{
    struct weft_wire_frame frame;
    struct weft_wire_done *d = &frame.done;
    frame.type = WEFT_FRAME_DONE;
    memset(d, 0, offsetof(struct weft_wire_done, words)); /* without the words, 1 KB */
    size_t words_all = WEFT_BITS_WORDS((size_t)m->chunks);
    size_t room = (weft_writer_left(w) - WEFT_DONE_BYTES) / 8;
    bool masked = m->received_count != m->chunks && m->received_count != 0;
    d->status = m->outcome == WEFT_MSG_COMPLETE ? WEFT_DONE_COMPLETE : WEFT_DONE_SHORT;
    d->msg = (uint32_t)m->seq;
    d->chunks = m->chunks;
    d->received = m->received_count;
    d->refused = m->refused;
    if (masked) {
        size_t words = words_all - m->done_word;
        words = words > WEFT_DONE_WORDS_MAX ? WEFT_DONE_WORDS_MAX : words;
        if (words > room) {
            words = room - room % DONE_PART_WORDS;
        }
        if (words == 0) {
            return false; /* the next packet has space for it */
        }
        d->first = m->done_word * 64;
        d->word_count = (uint16_t)words;
        memcpy(d->words, m->received + m->done_word, words * sizeof(uint64_t));
    }
    weft_wire_frame_encode(w, &frame);
    trace(ep, p, WEFT_TRACE_DONE_SENT, d->status, d->msg, d->received, d->word_count, d->first);
    rx_msg_done_part_sent(m, d->word_count, p->recovery.pn_next);
    return !masked || m->done_word == words_all;
}

static uint16_t frames_done(struct weft_ep *ep, struct peer *p, struct weft_writer *w)
{
    uint16_t kind = 0;
    for (uint64_t due = p->rx.need_done; due != 0; due &= due - 1) {
        unsigned slot = (unsigned)__builtin_ctzll(due);
        if (weft_writer_left(w) < WEFT_DONE_BYTES) {
            break;
        }
        uint8_t *before = w->at;
        bool complete = frame_done(ep, p, &p->rx.msgs[slot], w);
        kind |= w->at != before ? TX_PACKET_DONE : 0;
        if (!complete) {
            break;
        }
        rx_done_sent(&p->rx, slot);
    }
    return kind;
}

/* BACKLOG, if it is due; `uncounted` of the unsent chunks will not be DATA packets. */
static uint16_t frame_backlog(const struct weft_ep *ep, struct peer *p, uint32_t uncounted,
                              struct weft_writer *w)
{
    if (!p->tx.need_backlog || !ring_has_room(ep, p) || weft_writer_left(w) < WEFT_BACKLOG_BYTES) {
        return 0;
    }
    struct weft_wire_frame frame = {.type = WEFT_FRAME_BACKLOG};
    frame.backlog_end = p->allowed.sent + (uint32_t)p->tx.unsent - uncounted;
    weft_wire_frame_encode(w, &frame);
    tx_backlog_sent(&p->tx, frame.backlog_end);
    return TX_PACKET_BACKLOG;
}

/* Write all frames that are due, without BACKLOG if the packet may be shared. Returns the packet's
 * kind (0 = not ack-eliciting). */
static uint16_t frames_write(struct weft_ep *ep, struct peer *p, bool shares, uint64_t now_ns,
                             struct weft_writer *w)
{
    uint16_t kind = 0;
    frame_ack(ep, p, now_ns, w);
    if (p->conn.need_ping) {
        weft_wire_frame_encode(w, &(struct weft_wire_frame){.type = WEFT_FRAME_PING});
        conn_ping(&p->conn, false);
        kind |= TX_PACKET_PROBE;
    }
    if (p->path.response_due && weft_writer_left(w) >= WEFT_PATH_BYTES) {
        struct weft_wire_frame frame = {.type = WEFT_FRAME_PATH_RESPONSE};
        frame.token = p->path.response_token;
        weft_wire_frame_encode(w, &frame);
        path_response_sent(&p->path);
        kind |= TX_PACKET_PROBE;
    }
    kind |= shares ? 0 : frame_backlog(ep, p, 0, w);
    while (p->tx.finish != 0 && weft_writer_left(w) >= WEFT_FINISH_BYTES) {
        frame_finish(p, w, tx_finish_take(&p->tx));
        kind |= TX_PACKET_FINISH;
    }
    if (!done_open(ep, p)) {
        rx_later_end(
            &p->rx); /* no further delay after this ACK: send DONE as soon as the ring has room */
        return kind;
    }
    return kind | frames_done(ep, p, w);
}

/* True if the next chunk fits after the frames. A short reply then has acknowledgements, too. */
static bool control_chunk(struct weft_ep *ep, struct peer *p, const struct tx_msg *m,
                          uint32_t chunk, size_t used, uint32_t bytes_max, uint64_t now_ns)
{
    size_t bytes = used + data_head_bytes(m) + tx_chunk_bytes(m, chunk);
    bool fits = bytes + WEFT_TAG_BYTES <= bytes_max;
    bytes += secure_tag_bytes(&p->sec);
    return fits && may_send(ep, p, (uint32_t)bytes, now_ns);
}

/* After the other frames: MESSAGE frames, and BACKLOG if it is still needed. *m_p: the message of
 * the packet's chunk; NULL = none, because window, credit or pacer do not allow the packet yet.
 * False: fewer than two messages fit, and *m_p is unchanged. */
static bool control_share(struct weft_ep *ep, struct peer *p, size_t used, uint32_t bytes_max,
                          uint64_t now_ns, uint16_t *kind_p, struct weft_writer *w,
                          struct tx_msg **m_p)
{
    struct tx_share share;
    weft_core_share_select(p, used, bytes_max, WEFT_MSGS_MAX, &share);
    if (share.count == 0) {
        *kind_p |= frame_backlog(ep, p, 0, w);
        return false;
    }
    struct tx_msg *last = share.msgs[share.count - 1];
    uint32_t bytes =
        share.chunk_at + WEFT_DATA_BYTES + tx_chunk_bytes(last, 0) + secure_tag_bytes(&p->sec);
    *m_p = may_send(ep, p, bytes, now_ns) ? last : NULL;
    if (*m_p == NULL) {
        *kind_p |= frame_backlog(ep, p, 0, w);
        return true;
    }
    tx_backlog_shared(&p->tx, p->allowed.sent, share.uncounted, share.first_passes);
    *kind_p |= frame_backlog(ep, p, share.uncounted, w);
    weft_core_share_write(ep, p, &share, tx_answers(p, *m_p, *kind_p), now_ns, w);
    *kind_p |= TX_PACKET_SHARED;
    return true;
}

/* A packet with all control frames that are due, or (`due` is false) with several messages. */
static uint32_t control_build(struct weft_ep *ep, struct peer *p, uint32_t bytes_max, bool due,
                              uint64_t now_ns, struct weft_tx *tx)
{
    tx_begin(ep, p, tx);
    struct weft_writer frames =
        weft_writer_make(tx->scratch + CONTROL_OFFSET, tx_control_room(bytes_max) - CONTROL_OFFSET);
    uint32_t chunk = 0;
    bool again = false;
    uint8_t flags = WEFT_FLAG_CONTROL;
    struct tx_msg *m = weft_core_tx_peek(p, &chunk, &again);
    bool shares = m != NULL && tx_share_likely(&p->tx, m);
    bool shorter = due && !shares && weft_core_ack_short_write(ep, p, now_ns, &frames);
    uint16_t kind = due && !shorter ? frames_write(ep, p, shares, now_ns, &frames) : 0;
    size_t used = (size_t)(frames.at - tx->scratch);
    shares = shares && control_share(ep, p, used, bytes_max, now_ns, &kind, &frames, &m);
    used = (size_t)(frames.at - tx->scratch);
    if (shares) {
        chunk = 0;
        again = m != NULL && m->pass_next == m->chunks;
    } else if (m != NULL && !control_chunk(ep, p, m, chunk, used, bytes_max, now_ns)) {
        m = NULL;
    }
    if (!due && used == CONTROL_OFFSET) {
        return 0; /* the messages must wait */
    }
    WEFT_ASSERT(!frames.bad && used > CONTROL_OFFSET);
    uint32_t payload = 0;
    if (m != NULL) {
        payload = tx_chunk_bytes(m, chunk);
        uint32_t head_bytes = data_head_bytes(m);
        struct weft_writer w = weft_writer_make(frames.at, head_bytes);
        flags |= data_write(ep, p, m, chunk, again, (uint32_t)used + payload, now_ns, &w);
        used += head_bytes;
        bool answer = tx_answers(p, m, kind);
        recovery_tail_new(&p->recovery, TAIL_LAST);
        tx_answer_mark(&p->tx, m->seq, answer);
        kind |= answer ? TX_PACKET_DATA | TX_PACKET_ANSWER : TX_PACKET_DATA;
    }
    struct weft_writer head = weft_writer_make(tx->scratch, CONTROL_OFFSET);
    struct weft_wire_packet packet = header_make(p, flags);
    weft_wire_header_encode(&head, &packet);
    weft_write_u16(&head, (uint16_t)(frames.at - tx->scratch - CONTROL_OFFSET));
    tx_iov(tx, tx->scratch, used);
    if (m != NULL) {
        tx_iov(tx, chunk_at(m, chunk), payload);
    }
    if (!weft_core_secure_seal(ep, p, p->recovery.pn_next, 0, tx)) {
        return 0;
    }
    if (m != NULL) {
        pacer_spend(&p->pacer, p->cc.rate_bps, tx->bytes);
        if (due) {
            weft_core_egress_passed(ep, tx->bytes + WIRE_BYTES);
        }
    }
    kind |= tx_done_waits(ep, p, kind, now_ns) ? TX_PACKET_ANSWER : 0;
    if (kind == 0 && !p->path.ecn_capable) {
        tx->ecn = WEFT_ECN_NOT; /* not acknowledged, so of no use for ECN validation */
    }
    tx->packets = 1;
    tx->seg_bytes = tx->bytes;
    weft_core_packet_sent(ep, p, now_ns, kind, m != NULL ? (uint32_t)m->seq : 0, chunk, tx->bytes);
    return 1;
}

/* A packet with parts of one message's critical mask. */
static uint32_t critical_build(struct weft_ep *ep, struct peer *p, uint64_t now_ns,
                               struct weft_tx *tx)
{
    tx_begin(ep, p, tx);
    size_t room = weft_min_u64(p->path.packet_bytes, sizeof(tx->scratch) / 2) - WEFT_TAG_BYTES;
    struct weft_writer frames =
        weft_writer_make(tx->scratch + CONTROL_OFFSET, room - CONTROL_OFFSET);
    uint32_t msg;
    uint32_t parts;
    if (!weft_core_critical_write(p, &frames, &msg, &parts)) {
        WEFT_ASSERT(false && "the smallest packet holds one part");
    }
    struct weft_writer head = weft_writer_make(tx->scratch, CONTROL_OFFSET);
    struct weft_wire_packet packet = header_make(p, WEFT_FLAG_CONTROL);
    weft_wire_header_encode(&head, &packet);
    weft_write_u16(&head, (uint16_t)(frames.at - tx->scratch - CONTROL_OFFSET));
    tx_iov(tx, tx->scratch, (size_t)(frames.at - tx->scratch));
    if (!weft_core_secure_seal(ep, p, p->recovery.pn_next, 0, tx)) {
        return 0;
    }
    tx->packets = 1;
    tx->seg_bytes = tx->bytes;
    weft_core_packet_sent(ep, p, now_ns, TX_PACKET_CRITICAL, msg, parts, tx->bytes);
    return 1;
}

/* One probe, regardless of window, credit and pacer: a missing chunk of one message, or FINISH if
 * its bound is met, or PING. All unconfirmed DONEs are repeated with it, except after the first
 * chunk on a clean path: that costs a packet, and the peer probes for a DONE that was lost. */
static uint32_t probe_build(struct weft_ep *ep, struct peer *p, uint64_t now_ns, struct weft_tx *tx)
{
    recovery_probe_building(&p->recovery);
    uint32_t chunk = UINT32_MAX;
    /* One of two probes is short, in case long packets no longer pass: its acknowledgement
     * distinguishes a smaller path MTU from a dead peer. */
    bool small = p->recovery.probes == 1 && p->recovery.pto_count > 2 &&
                 p->path.packet_bytes > p->path.base_bytes;
    struct tx_msg *m = small ? NULL : weft_core_tx_probe(p, &chunk);
    bool has_chunk = m != NULL && chunk != UINT32_MAX;
    if (!has_chunk || p->recovery.pto_count != 1 || !p->recovery.clean) {
        rx_done_again(&p->rx);
    }
    trace(ep, p, WEFT_TRACE_PROBE, 0, p->recovery.pn_next, m != NULL ? m->seq & UINT32_MAX : 0,
          chunk, 0);
    if (has_chunk) {
        bool again = m->pass_next == m->chunks;
        tx_begin(ep, p, tx);
        tx->seg_bytes = data_packet_bytes(p, m, chunk);
        bool made = burst_data(ep, p, tx, m, chunk, again, TX_PACKET_PROBE, now_ns);
        return made ? tx->packets : 0;
    }
    if (m != NULL) {
        tx_finish_due(&p->tx, tx_bit(m->seq));
    } else {
        conn_ping(&p->conn, !done_open(ep, p));
    }
    return control_build(ep, p, small ? p->path.base_bytes : p->path.packet_bytes, true, now_ns,
                         tx);
}

uint32_t weft_core_frame_build(struct weft_ep *ep, struct peer *p, const struct weft_addr *addr,
                               const struct weft_wire_frame *frame, uint32_t zeros,
                               struct weft_tx *tx)
{
    static const uint8_t zero[WEFT_TX_BYTES_MAX]; /* a single buffer: sealing accepts only a few */
    tx_begin(ep, p, tx);
    tx->addr = *addr;
    struct weft_writer w = weft_writer_make(tx->scratch + CONTROL_OFFSET, 64);
    weft_wire_frame_encode(&w, frame);
    if (zeros >= WEFT_PADDING_BYTES) { /* the zeros of PADDING are not in scratch */
        zeros -= WEFT_PADDING_BYTES;
        weft_write_u8(&w, WEFT_FRAME_PADDING);
        weft_write_u16(&w, (uint16_t)zeros);
    } else {
        zeros = 0;
    }
    size_t used = (size_t)(w.at - tx->scratch);
    struct weft_wire_packet packet = header_make(p, WEFT_FLAG_CONTROL);
    struct weft_writer head = weft_writer_make(tx->scratch, CONTROL_OFFSET);
    weft_wire_header_encode(&head, &packet);
    weft_write_u16(&head, (uint16_t)(used - CONTROL_OFFSET + zeros));
    tx_iov(tx, tx->scratch, used);
    if (zeros > 0) {
        tx_iov(tx, zero, zeros);
    }
    if (!weft_core_secure_seal(ep, p, p->recovery.pn_next, 0, tx)) {
        return 0;
    }
    tx->packets = 1;
    tx->seg_bytes = tx->bytes;
    return 1;
}

static uint32_t close_build(struct weft_ep *ep, struct peer *p, uint64_t now_ns, struct weft_tx *tx)
{
    tx_begin(ep, p, tx);
    struct weft_wire_frame frame = {.type = WEFT_FRAME_CLOSE};
    frame.close_code = p->conn.close_code;
    struct weft_wire_packet packet = header_make(p, WEFT_FLAG_CONTROL);
    struct weft_writer w = weft_writer_make(tx->scratch, sizeof(tx->scratch));
    weft_wire_header_encode(&w, &packet);
    weft_write_u16(&w, WEFT_CLOSE_BYTES);
    weft_wire_frame_encode(&w, &frame);
    tx_iov(tx, tx->scratch, (size_t)(w.at - tx->scratch));
    conn_close_building(&p->conn);
    if (!weft_core_secure_seal(ep, p, p->recovery.pn_next, 0, tx)) {
        return 0;
    }
    tx->packets = 1;
    tx->seg_bytes = tx->bytes;
    conn_close_sent(&p->conn, now_ns + weft_core_pto_base(p));
    weft_core_packet_sent(ep, p, now_ns, 0, 0, 0, tx->bytes);
    return 1;
}

uint32_t weft_core_peer_send(struct weft_ep *ep, struct peer *p, uint64_t now_ns,
                             struct weft_tx *tx)
{
    weft_core_egress_leave(ep, p); /* inserted again if the checks below allow chunks */
    if (p->sec.broken) {
        return 0;
    }
    if (p->conn.state == PEER_CONNECTING) {
        return p->conn.hello_ns <= now_ns ? weft_core_hello_build(ep, p, now_ns, tx) : 0;
    }
    if (p->conn.state == PEER_CLOSING) {
        if (p->conn.need_close && p->conn.close_sends == 0 && done_open(ep, p)) {
            return control_build(ep, p, p->path.packet_bytes, true, now_ns, tx);
        }
        return p->conn.need_close ? close_build(ep, p, now_ns, tx) : 0;
    }
    if (p->conn.need_accept) {
        conn_accept_building(&p->conn, now_ns);
        return weft_core_accept_build(ep, p, tx);
    }
    if (p->path.challenges_due != 0 && peer_connected(p)) {
        return weft_core_path_build(ep, p, now_ns, tx);
    }
    if (p->conn.state != PEER_OPEN || (p->conn.idle && p->conn.announce_idle == 0)) {
        return 0;
    }
    weft_core_secure_rekey(ep, p);
    if (p->sec.broken) {
        return 0;
    }
    weft_core_pacer_refill(p, now_ns);
    pacer_wake(&p->pacer);
    if (p->recovery.probes > 0) {
        return probe_build(ep, p, now_ns, tx);
    }
    if (p->tx.critical != 0 && ring_has_room(ep, p)) {
        return critical_build(ep, p, now_ns, tx);
    }
    if (control_due(ep, p, now_ns) || done_piggybacks(ep, p)) {
        return control_build(ep, p, p->path.packet_bytes, true, now_ns, tx);
    }
    if (ring_has_room(ep, p) && weft_core_path_build(ep, p, now_ns, tx) > 0) {
        return 1;
    }
    weft_core_egress_file(ep, p);
    return 0;
}

uint32_t weft_core_burst_send(struct weft_ep *ep, struct peer *p, uint64_t now_ns,
                              struct weft_tx *tx)
{
    weft_core_pacer_refill(p, now_ns);
    pacer_wake(&p->pacer);
    uint32_t packets = burst_build(ep, p, now_ns, tx);
    if (packets == 0) {
        weft_core_egress_leave(ep, p);
        return 0;
    }
    p->allowed.turn_ns = now_ns;
    recovery_tail_new(&p->recovery, TAIL_LAST);
    weft_core_egress_file(ep, p);
    if (p->tx.finish != 0) {
        weft_core_peer_ready(ep, p); /* end of the first pass: FINISH follows immediately */
    }
    weft_core_egress_sent(ep, tx->bytes + (uint64_t)packets * WIRE_BYTES);
    return packets;
}
