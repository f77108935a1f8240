/* Building records and handing them to the socket.
 *
 * A batch of records is built, at most 192 KB or 32 records, and written by one sendmsg without a
 * copy: heads and tags are in the peer's own memory, chunks in the caller's. In mode seal the
 * cipher's output is written. Bytes that the socket does not accept stay queued; the next batch is
 * built when this one is completely written. So an urgent message waits only for one batch and for
 * the socket's unsent bytes (TCP_NOTSENT_LOWAT), whatever else is queued.
 *
 * A chunk's memory is the caller's again at SENT, which therefore waits for the batch.
 */
#include "io/tcp/internal.h"

#include <errno.h>
#include <sys/socket.h>

enum { WRITES_A_TURN = 8, TX_NONE = UINT8_MAX, FIRST_CONTROL_MAX = 128 };

/* ---- control --------------------------------------------------------------------------------- */

static void frame_add(struct weft_writer *w, const struct weft_wire_frame *frame)
{
    weft_wire_frame_encode(w, frame);
}

/* Add at most one part of a mask; true when the message is reported completely. */
static bool done_add(struct weft_writer *w, struct tcp_rx *m)
{
    bool partial = m->received_count > 0 && m->received_count < m->chunks;
    struct weft_wire_frame f = {
        .type = WEFT_FRAME_DONE,
        .done = {.status = m->outcome == WEFT_MSG_SHORT ? WEFT_DONE_SHORT : WEFT_DONE_COMPLETE,
                 .msg = (uint32_t)m->seq,
                 .chunks = m->chunks,
                 .received = m->received_count,
                 .refused = m->refused},
    };
    if (!partial) {
        frame_add(w, &f);
        return true;
    }
    uint32_t words = (uint32_t)WEFT_BITS_WORDS((size_t)m->chunks);
    uint32_t first = m->done_next / 64;
    uint32_t count = (uint32_t)weft_min_u64(words - first, WEFT_DONE_WORDS_MAX);
    f.done.first = m->done_next;
    f.done.word_count = (uint16_t)count;
    memcpy(f.done.words, m->received + first, count * sizeof(uint64_t));
    frame_add(w, &f);
    m->done_next += 64 * count;
    return first + count == words;
}

/* Add DONEs while there is room; each frame is written completely or not at all. */
static void dones_add(struct tcp_peer *p, struct weft_writer *w)
{
    size_t most = WEFT_DONE_BYTES + 8 * WEFT_DONE_WORDS_MAX;
    while (p->rx_done != 0) {
        unsigned slot = (unsigned)__builtin_ctzll(p->rx_done);
        struct tcp_rx *m = &p->rx[slot];
        bool whole = m->received_count == 0 || m->received_count == m->chunks;
        if (weft_writer_left(w) < (whole ? (size_t)WEFT_DONE_BYTES : most)) {
            return;
        }
        if (done_add(w, m)) {
            p->rx_done &= ~(UINT64_C(1) << slot);
        }
    }
}

static void holds_add(struct tcp_peer *p, struct weft_writer *w, uint64_t *bits,
                      enum weft_wire_record_frame_type type)
{
    while (*bits != 0 && weft_writer_left(w) >= WEFT_BLOCKED_BYTES) {
        unsigned slot = (unsigned)__builtin_ctzll(*bits);
        weft_wire_blocked_encode(w, type, (uint32_t)p->rx[slot].seq);
        *bits &= *bits - 1;
    }
}

static void finishes_add(struct tcp_peer *p, struct weft_writer *w)
{
    while (p->tx_finish != 0 && weft_writer_left(w) >= WEFT_FINISH_BYTES) {
        unsigned slot = (unsigned)__builtin_ctzll(p->tx_finish);
        struct weft_wire_frame f = {
            .type = WEFT_FRAME_FINISH,
            .finish = {.flags = WEFT_FINISH_SHORT, .msg = (uint32_t)p->tx[slot].seq}};
        frame_add(w, &f);
        p->tx_finish &= p->tx_finish - 1;
    }
}

static void ack_add(struct tcp_peer *p, struct weft_writer *w)
{
    if (weft_writer_left(w) >= WEFT_ACK_BYTES) {
        struct weft_wire_frame f = {
            .type = WEFT_FRAME_ACK,
            .ack = {.flags = p->need_idle ? WEFT_ACK_IDLE : 0,
                    .open_from = (uint32_t)p->tx_open_from}};
        frame_add(w, &f);
        p->need_ack = false;
        p->need_idle = false;
    }
}

/* Add all control frames that are due, while there is room. CLOSE is the last frame of a
 * connection. */
static void control_build(struct tcp_peer *p, struct weft_writer *w)
{
    if (p->need_ack || p->need_idle) {
        ack_add(p, w);
    }
    if (p->need_ping && weft_writer_left(w) >= WEFT_PING_BYTES) {
        frame_add(w, &(struct weft_wire_frame){.type = WEFT_FRAME_PING});
        p->need_ping = false;
    }
    holds_add(p, w, &p->rx_ready, WEFT_FRAME_READY);
    holds_add(p, w, &p->rx_blocked, WEFT_FRAME_BLOCKED);
    finishes_add(p, w);
    dones_add(p, w);
    bool told = p->rx_done == 0 && p->tx_finish == 0;
    if (p->need_close && told && weft_writer_left(w) >= WEFT_CLOSE_BYTES) {
        frame_add(w, &(struct weft_wire_frame){.type = WEFT_FRAME_CLOSE,
                                               .close_code = p->close_code});
        p->need_close = false;
        p->close_said = true;
    }
}

/* ---- records --------------------------------------------------------------------------------- */

static void chunk_head(struct weft_writer *w, const struct tcp_tx *m)
{
    struct weft_wire_data d = {
        .msg = (uint32_t)m->seq,
        .chunk = m->next,
        .total = m->total,
        .chunk_elems = m->chunk_elems,
        .elem_bytes = m->elem_bytes,
        .critical = m->critical,
        .lost_max = m->lost_max,
        .tag = m->tag,
    };
    weft_wire_data_encode(w, &d);
}

static void iov_add(struct tcp_out *out, const void *base, size_t bytes)
{
    out->iov[out->iov_count++] = (struct iovec){.iov_base = (void *)(uintptr_t)base,
                                                .iov_len = bytes};
}

/* A record being built: everything but the chunk is in head, with room for a tag behind it. */
struct built {
    uint8_t *head;
    size_t head_bytes;
    const uint8_t *chunk; /* NULL: none */
    size_t chunk_bytes;
};

/* The chunk is not copied; the tag is a separate buffer. */
static weft_status finish_in_place(struct weft_tcp *t, struct tcp_peer *p, const struct built *b,
                                   const struct weft_crypto_span *text, size_t texts)
{
    struct weft_crypto_span first = {b->head, WEFT_WIRE_RECORD_HEAD_BYTES};
    uint8_t *tag = b->head + b->head_bytes;
    size_t tag_bytes = p->conn->mode == WEFT_MODE_NONE ? 0 : WEFT_TAG_BYTES;
    weft_status status = WEFT_OK;
    if (tag_bytes > 0) {
        status = weft_tcp_seal(t, p->conn, &first, text, texts, NULL, tag);
    }
    if (b->chunk == NULL) {
        iov_add(&p->out, b->head, b->head_bytes + tag_bytes);
        return status;
    }
    iov_add(&p->out, b->head, b->head_bytes);
    iov_add(&p->out, b->chunk, b->chunk_bytes);
    if (tag_bytes > 0) {
        iov_add(&p->out, tag, tag_bytes);
    }
    return status;
}

/* The cipher's output is the record. */
static weft_status finish_sealed(struct weft_tcp *t, struct tcp_peer *p, const struct built *b,
                                 const struct weft_crypto_span *text, size_t texts)
{
    struct weft_crypto_span first = {b->head, WEFT_WIRE_RECORD_HEAD_BYTES};
    uint8_t *at = p->sealed + p->out.sealed_bytes;
    size_t bytes = b->head_bytes + b->chunk_bytes;
    memcpy(at, b->head, WEFT_WIRE_RECORD_HEAD_BYTES);
    iov_add(&p->out, at, bytes + WEFT_TAG_BYTES);
    p->out.sealed_bytes += (uint32_t)(bytes + WEFT_TAG_BYTES);
    return weft_tcp_seal(t, p->conn, &first, text, texts, at + WEFT_WIRE_RECORD_HEAD_BYTES,
                         at + bytes);
}

/* Protect the record and list its buffers. False: the provider failed. */
static bool record_finish(struct weft_tcp *t, struct tcp_peer *p, const struct built *b,
                          uint8_t flags)
{
    struct tcp_out *out = &p->out;
    size_t tag_bytes = p->conn->mode == WEFT_MODE_NONE ? 0 : WEFT_TAG_BYTES;
    size_t bytes = b->head_bytes + b->chunk_bytes + tag_bytes;
    weft_wire_record_head_encode(b->head, p->conn->mode, flags,
                                 (uint32_t)(bytes - WEFT_WIRE_RECORD_HEAD_BYTES));
    struct weft_crypto_span text[2] = {
        {b->head + WEFT_WIRE_RECORD_HEAD_BYTES, b->head_bytes - WEFT_WIRE_RECORD_HEAD_BYTES},
        {b->chunk, b->chunk_bytes}};
    size_t texts = b->chunk == NULL ? 1 : 2;
    weft_status status = p->conn->mode == WEFT_MODE_SEAL ? finish_sealed(t, p, b, text, texts)
                                                         : finish_in_place(t, p, b, text, texts);
    if (status != WEFT_OK) {
        weft_tcp_crypto_failed(t);
        return false;
    }
    out->bytes += (uint32_t)bytes;
    out->iov_ends[out->records++] = out->iov_count;
    p->conn->send_records++;
    t->base.socket.datagrams_sent++;
    t->counters.datagrams_sent++;
    return true;
}

/* Put the next chunk of m into the record. */
static void chunk_add(struct weft_tcp *t, struct tcp_peer *p, struct tcp_tx *m, struct built *b,
                      uint64_t now_ns)
{
    struct weft_writer w = weft_writer_make(b->head + b->head_bytes, WEFT_DATA_BYTES);
    uint64_t at = (uint64_t)m->next * m->chunk_elems;
    chunk_head(&w, m);
    b->head_bytes += WEFT_DATA_BYTES;
    b->chunk = m->base + at * m->elem_bytes;
    b->chunk_bytes = weft_min_u64(m->chunk_elems, m->total - at) * m->elem_bytes;
    m->next++;
    m->sent_most = (uint32_t)weft_max_u64(m->sent_most, m->next);
    m->begun_ns = m->begun_ns == 0 ? now_ns : m->begun_ns;
    m->unflushed++;
    if (m->rate_bps != 0) {
        weft_tcp_tx_paced(p, m, b->chunk_bytes, now_ns);
    }
    t->counters.data_sent++;
}

/* Put all control frames that are due into the record; false: there are none. */
static bool control_add(struct tcp_peer *p, size_t most, struct built *b)
{
    uint8_t *frames = b->head + WEFT_WIRE_RECORD_HEAD_BYTES + 2;
    struct weft_writer w = weft_writer_make(frames, most);
    control_build(p, &w);
    size_t bytes = (size_t)(w.at - frames);
    if (bytes == 0) {
        return false;
    }
    weft_put_u16(b->head + WEFT_WIRE_RECORD_HEAD_BYTES, (uint16_t)bytes);
    b->head_bytes += 2 + bytes;
    return true;
}

/* Build one record. False: there is nothing to send, or the provider failed (*failed_p). */
static bool record_build(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns, bool *failed_p)
{
    /* The room that a chunk of full length leaves for the head. */
    size_t room =
        WEFT_WIRE_RECORD_BYTES_MAX - WEFT_TAG_BYTES - WEFT_DATA_BYTES - WEFT_WIRE_RECORD_CHUNK_MAX;
    struct built b = {.head = p->heads + (size_t)p->out.records * TCP_HEAD_ROOM,
                      .head_bytes = WEFT_WIRE_RECORD_HEAD_BYTES};
    /* The first record of the connecting end is short, because the other end has only a small
     * buffer for strangers. */
    bool first = p->conn->send_records == 0 && !p->accepted;
    uint8_t flags = 0;
    if (p->close_said) {
        return false;
    }
    if (control_add(p, first ? FIRST_CONTROL_MAX : TCP_CONTROL_MAX, &b)) {
        flags |= WEFT_FLAG_CONTROL;
    }
    bool fits = b.head_bytes <= room && !first && !p->close_said;
    struct tcp_tx *m = fits ? weft_tcp_tx_peek(p) : NULL;
    p->out.tx_slots[p->out.records] = m == NULL ? TX_NONE : (uint8_t)(m->seq & TCP_MSG_MASK);
    if (m != NULL) {
        chunk_add(t, p, m, &b, now_ns);
        flags |= WEFT_FLAG_DATA;
    }
    if (flags == 0) {
        return false;
    }
    *failed_p = !weft_tcp_keys_update(t, p->conn, &flags) || !record_finish(t, p, &b, flags);
    return !*failed_p;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* The socket accepted this many bytes of the batch. */
static void advance(struct weft_tcp *t, struct tcp_peer *p, size_t bytes, uint64_t now_ns)
{
    struct tcp_out *out = &p->out;
    while (bytes > 0) {
        struct iovec *iov = &out->iov[out->iov_at];
        size_t n = weft_min_u64(bytes, iov->iov_len);
        iov->iov_base = (uint8_t *)iov->iov_base + n;
        iov->iov_len -= n;
        bytes -= n;
        out->iov_at += iov->iov_len == 0;
    }
    while (out->released < out->records && out->iov_ends[out->released] <= out->iov_at) {
        uint8_t slot = out->tx_slots[out->released++];
        if (slot != TX_NONE) {
            weft_tcp_tx_flushed(t, p, &p->tx[slot], now_ns);
        }
    }
}

static void batch_reset(struct tcp_out *out)
{
    out->records = 0;
    out->iov_count = 0;
    out->iov_at = 0;
    out->bytes = 0;
    out->sealed_bytes = 0;
    out->released = 0;
}

/* False: the peer is down. */
static bool batch_build(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns)
{
    struct tcp_out *out = &p->out;
    bool failed = false;
    batch_reset(out);
    while (out->records < TCP_OUT_RECORDS &&
           out->bytes <= TCP_OUT_BYTES - WEFT_WIRE_RECORD_BYTES_MAX &&
           record_build(t, p, now_ns, &failed)) {
        continue;
    }
    if (failed) {
        weft_tcp_peer_down(t, p, WEFT_DOWN_CRYPTO, 0, now_ns);
    }
    return !failed;
}

enum written { WRITTEN_ALL, WRITTEN_SOME, WRITTEN_BROKEN };

static enum written batch_write(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns)
{
    struct tcp_out *out = &p->out;
    struct msghdr msg = {.msg_iov = out->iov + out->iov_at,
                         .msg_iovlen = out->iov_count - out->iov_at};
    weft_driver_call_before_send(&t->base);
    ssize_t sent = sendmsg(p->conn->fd, &msg, MSG_NOSIGNAL);
    t->base.socket.send_calls++;
    if (sent < 0) {
        if (errno != EAGAIN && errno != EINTR) {
            return WRITTEN_BROKEN;
        }
        t->base.socket.send_blocked++;
        return WRITTEN_SOME;
    }
    t->base.socket.bytes_sent += (uint64_t)sent;
    t->counters.bytes_sent += (uint64_t)sent;
    t->base.socket.bursts_sent++;
    p->quiet_ns = now_ns; /* the kernel takes more only while the other end reads */
    advance(t, p, (size_t)sent, now_ns);
    if (out->iov_at == out->iov_count) {
        return WRITTEN_ALL;
    }
    t->base.socket.send_blocked++;
    return WRITTEN_SOME;
}

void weft_tcp_write(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns)
{
    if (p->state != TCP_PEER_OPEN) {
        weft_bits_clear(t->ready, tcp_peer_idx(t, p));
        return;
    }
    for (int i = 0; i < WRITES_A_TURN; i++) {
        if (p->out.iov_at == p->out.iov_count && !batch_build(t, p, now_ns)) {
            return;
        }
        if (p->out.records == 0) {
            weft_bits_clear(t->ready, tcp_peer_idx(t, p));
            weft_tcp_conn_wants_out(t, p->conn, false);
            return;
        }
        enum written how = batch_write(t, p, now_ns);
        if (how == WRITTEN_BROKEN) {
            /* Bytes that the other end sent before it closed are still to be read; the end of its
             * stream follows them. */
            batch_reset(&p->out);
            p->close_said = true;
        }
        if (how != WRITTEN_ALL) {
            weft_bits_clear(t->ready, tcp_peer_idx(t, p));
            weft_tcp_conn_wants_out(t, p->conn, how == WRITTEN_SOME);
            return;
        }
    }
    t->more_to_send = true;
}
