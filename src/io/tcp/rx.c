/* Incoming: bytes to records, records to chunks, chunks to their sinks.
 *
 * A record is verified, then parsed and checked as a whole, and only then has an effect. A record
 * that verifies but is malformed cannot be a transmission error: the connection ends
 * (WEFT_DOWN_PROTOCOL). A chunk's received bit is set before the chunk is handed to its sink, so
 * nothing is counted twice, however often a held message is sent again.
 *
 * Source: docs/PROTOCOL.md sections 3.7, 10.4 and 10.5.
 */
#include "io/tcp/internal.h"

#include <errno.h>
#include <sys/socket.h>

/* ---- messages -------------------------------------------------------------------------------- */

static uint64_t bit_of(const struct tcp_rx *m)
{
    return UINT64_C(1) << (m->seq & TCP_MSG_MASK);
}

static struct weft_msg_event *event_push(struct weft_tcp *t, const struct tcp_peer *p,
                                         const struct tcp_rx *m, enum weft_msg_event_type type,
                                         uint64_t at_ns)
{
    struct weft_msg_event *ev = weft_tcp_event_push(t);
    ev->type = type;
    ev->peer = tcp_peer_idx(t, p);
    ev->user = m->user;
    ev->seq = m->seq;
    ev->tag = m->tag;
    ev->total = m->total;
    ev->chunk_elems = m->chunk_elems;
    ev->elem_bytes = m->elem_bytes;
    ev->chunks = m->chunks;
    ev->received = m->received_count;
    ev->at_ns = at_ns;
    return ev;
}

static struct weft_msg_event *rx_close(struct weft_tcp *t, struct tcp_peer *p, struct tcp_rx *m,
                                       uint64_t at_ns)
{
    bool all = m->received_count == m->chunks;
    bool enough = all || (m->chunks - m->received_count <= m->lost_max && m->critical_left == 0);
    m->state = TCP_RX_CLOSED;
    m->outcome = enough ? WEFT_MSG_COMPLETE : WEFT_MSG_SHORT;
    m->unpolled = true;
    m->done_next = 0;
    p->rx_live &= ~bit_of(m);
    p->rx_done |= bit_of(m);
    p->events_unpolled++;
    t->counters.messages_received++;
    t->counters.messages_short += !enough;
    t->counters.chunks_missing += m->chunks - m->received_count;
    struct weft_msg_event *ev = event_push(t, p, m, WEFT_EVENT_RECEIVED, at_ns);
    ev->outcome = m->outcome;
    ev->mask = m->received;
    tcp_peer_ready(t, p);
    return ev;
}

void weft_tcp_rx_close_all(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns)
{
    for (uint64_t live = p->rx_live; live != 0; live &= live - 1) {
        rx_close(t, p, &p->rx[__builtin_ctzll(live)], now_ns)->sender_gone = true;
    }
}

void weft_tcp_rx_timer(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns)
{
    p->rx_timer_ns = WEFT_NEVER;
    for (uint64_t live = p->rx_live; live != 0; live &= live - 1) {
        struct tcp_rx *m = &p->rx[__builtin_ctzll(live)];
        if (m->timeout_ns <= now_ns) {
            (void)rx_close(t, p, m, now_ns);
        } else {
            p->rx_timer_ns = weft_min_u64(p->rx_timer_ns, m->timeout_ns);
        }
    }
}

/* Bind a message to posted memory, if any matches. */
static bool rx_open(struct weft_tcp *t, struct tcp_peer *p, struct tcp_rx *m, uint64_t at_ns)
{
    struct weft_expect *x = m->too_long ? NULL
                                        : weft_expects_match(&t->expects, tcp_peer_idx(t, p),
                                                             m->tag, m->total, m->elem_bytes);
    if (x == NULL) {
        return false;
    }
    m->state = TCP_RX_OPEN;
    m->sink = x->e.sink;
    m->user = x->e.user;
    m->memory = x->e.memory;
    m->timeout_ns = weft_expect_end(&x->e, at_ns);
    m->critical_left = m->critical == WEFT_CRITICAL_MASKED ? UINT32_MAX : m->critical;
    memset(m->received, 0, WEFT_BITS_WORDS((size_t)m->chunks) * sizeof(*m->received));
    weft_expects_use(&t->expects, x);
    if (p->rx_live == 0 && !weft_tcp_peer_outstanding(p)) {
        p->quiet_ns = at_ns;
    }
    p->rx_live |= bit_of(m);
    p->rx_held &= ~bit_of(m);
    p->rx_timer_ns = weft_min_u64(p->rx_timer_ns, m->timeout_ns);
    (void)event_push(t, p, m, WEFT_EVENT_OPEN, at_ns);
    return true;
}

/* The slot of a message may be reused for a newer one: its end has been reported to the sender and
 * to the application. A correct sender does not reuse it earlier. */
static bool slot_over(const struct tcp_peer *p, const struct tcp_rx *m)
{
    bool told =
        m->state == TCP_RX_FREE || (m->state == TCP_RX_CLOSED && (p->rx_done & bit_of(m)) == 0);
    return told && !m->unpolled;
}

/* The first chunk of a message has arrived. False: its slot is not free yet. */
static bool rx_begin(struct weft_tcp *t, struct tcp_peer *p, struct tcp_rx *m, uint64_t seq,
                     const struct weft_wire_data *d, uint64_t at_ns)
{
    if (!slot_over(p, m)) {
        return false;
    }
    uint64_t *received = m->received;
    *m = (struct tcp_rx){
        .state = TCP_RX_BLOCKED,
        .too_long = d->chunks > t->config.ep.chunks_max,
        .critical = d->critical,
        .chunk_elems = d->chunk_elems,
        .elem_bytes = d->elem_bytes,
        .total = d->total,
        .chunks = d->chunks,
        .lost_max = d->lost_max,
        .seq = seq,
        .tag = d->tag,
        .received = received,
    };
    p->rx_seq = weft_max_u64(p->rx_seq, seq);
    t->counters.bad_range += m->too_long;
    if (!rx_open(t, p, m, at_ns)) {
        p->rx_held |= bit_of(m);
        p->rx_blocked |= bit_of(m);
        tcp_peer_ready(t, p);
    }
    return true;
}

/* Bind the held messages of one peer, oldest first, while the expectation `id` exists. */
static void peer_wake(struct weft_tcp *t, struct tcp_peer *p, const struct weft_expect *x,
                      weft_expect_id id)
{
    unsigned turn = (unsigned)((p->rx_seq + 1) & TCP_MSG_MASK); /* the oldest */
    uint64_t now_ns = p->rx_held != 0 ? weft_clock_now_ns() : 0;
    for (unsigned n = 0; n < WEFT_MSGS_MAX && p->rx_held != 0 && x->id == id; n++) {
        struct tcp_rx *m = &p->rx[(turn + n) & TCP_MSG_MASK];
        if (m->state == TCP_RX_BLOCKED && rx_open(t, p, m, now_ns)) {
            p->rx_blocked &= ~bit_of(m); /* BLOCKED was not sent yet, so READY suffices */
            p->rx_ready |= bit_of(m);
            tcp_peer_ready(t, p);
        }
    }
}

void weft_tcp_rx_wake(struct weft_tcp *t, const struct weft_expect *x)
{
    weft_expect_id id = x->id;
    if (x->e.peer != WEFT_PEER_ANY) {
        peer_wake(t, &t->peers[x->e.peer], x, id);
        return;
    }
    for (uint32_t i = 0; i < t->peers_used && x->id == id; i++) {
        peer_wake(t, &t->peers[i], x, id);
    }
}

static bool same_grid(const struct tcp_rx *m, const struct weft_wire_data *d)
{
    return m->total == d->total && m->chunk_elems == d->chunk_elems &&
           m->elem_bytes == d->elem_bytes && m->lost_max == d->lost_max &&
           m->critical == d->critical && m->tag == d->tag;
}

static void rx_chunk(struct weft_tcp *t, struct tcp_peer *p, struct tcp_rx *m,
                     const struct weft_wire_data *d, uint64_t at_ns)
{
    if (weft_bits_test(m->received, d->chunk)) {
        t->counters.duplicate_chunks++;
        return;
    }
    weft_bits_set(m->received, d->chunk);
    m->received_count++;
    m->critical_left -= m->critical != WEFT_CRITICAL_MASKED && d->chunk < m->critical;
    t->counters.data_received++;
    size_t bytes = (size_t)d->elems * d->elem_bytes;
    size_t offset = (size_t)d->chunk * d->chunk_elems * d->elem_bytes;
    if (m->sink == WEFT_SINK_COPY) {
        memcpy(m->memory + offset, d->payload, bytes);
    } else if (m->sink == WEFT_SINK_ADD) {
        weft_sink_add(m->memory + offset, d->payload, bytes);
    } else {
        struct weft_msg_event *ev = event_push(t, p, m, WEFT_EVENT_CHUNK, at_ns);
        ev->chunk = d->chunk;
        ev->elems = d->elems;
        ev->data = d->payload;
    }
    if (m->received_count == m->chunks) {
        (void)rx_close(t, p, m, at_ns);
    }
}

/* The full sequence number of msg: the one nearest to the newest. False: it is older than the
 * sender's window. Messages that the sender withdrew are never seen, so a newer one may be any
 * number ahead; rx_begin checks that its slot is free. */
static bool rx_seq(const struct tcp_peer *p, uint32_t msg, uint64_t *seq_p)
{
    int32_t ahead = (int32_t)(msg - (uint32_t)p->rx_seq);
    int64_t seq = (int64_t)p->rx_seq + ahead;
    if (ahead <= -WEFT_MSGS_MAX || seq < 1) {
        return false;
    }
    *seq_p = (uint64_t)seq;
    return true;
}

/* False: it breaks the protocol. */
static bool data_take(struct weft_tcp *t, struct tcp_peer *p, const struct weft_wire_data *d,
                      uint64_t at_ns)
{
    uint64_t seq;
    if (!rx_seq(p, d->msg, &seq)) {
        return false;
    }
    struct tcp_rx *m = &p->rx[seq & TCP_MSG_MASK];
    if (m->seq < seq && !rx_begin(t, p, m, seq, d, at_ns)) {
        return false;
    }
    if (m->seq > seq || m->state == TCP_RX_CLOSED) {
        t->counters.late_chunks++;
        return true;
    }
    if (!same_grid(m, d)) {
        return false;
    }
    if (m->state == TCP_RX_BLOCKED) {
        t->counters.no_memory++;
    } else {
        rx_chunk(t, p, m, d, at_ns);
    }
    return true;
}

/* The sender's deadline has passed: close with the chunks received so far. */
static bool finish_take(struct weft_tcp *t, struct tcp_peer *p, uint32_t msg, uint64_t at_ns)
{
    uint64_t seq;
    if (!rx_seq(p, msg, &seq)) {
        return false;
    }
    struct tcp_rx *m = &p->rx[seq & TCP_MSG_MASK];
    if (m->seq == seq && m->state == TCP_RX_OPEN) {
        (void)rx_close(t, p, m, at_ns);
    } else if (m->seq < seq || m->state == TCP_RX_BLOCKED) {
        if (m->seq < seq && !slot_over(p, m)) {
            return false;
        }
        /* No chunk of it was accepted: the layer above does not know it, so there is no event, but
         * the sender gets its DONE. */
        uint64_t *received = m->received;
        *m = (struct tcp_rx){.state = TCP_RX_CLOSED,
                             .outcome = WEFT_MSG_SHORT,
                             .seq = seq,
                             .received = received};
        p->rx_seq = weft_max_u64(p->rx_seq, seq);
        p->rx_held &= ~bit_of(m);
        p->rx_blocked &= ~bit_of(m);
        p->rx_done |= bit_of(m);
        tcp_peer_ready(t, p);
    }
    return true;
}

/* ---- records --------------------------------------------------------------------------------- */

/* False: the peer is down. */
static bool broken(struct weft_tcp *t, struct tcp_peer *p, uint64_t *counter, uint64_t now_ns)
{
    (*counter)++;
    p->need_close = true;
    p->close_code = WEFT_CLOSE_PROTOCOL;
    weft_tcp_write(t, p, now_ns); /* CLOSE has the reason, if the socket has room */
    if (p->state == TCP_PEER_OPEN) {
        weft_tcp_peer_down(t, p, WEFT_DOWN_PROTOCOL, 0, now_ns);
    }
    return false;
}

/* False: the peer is down. */
static bool frame_act(struct weft_tcp *t, struct tcp_peer *p,
                      const struct weft_wire_record_frame *f, uint64_t at_ns)
{
    bool good = true;
    switch (f->type) {
    case WEFT_FRAME_ACK:
        p->idle = (f->other.ack.flags & WEFT_ACK_IDLE) != 0;
        break;
    case WEFT_FRAME_DONE:
        good = weft_tcp_tx_done(t, p, &f->other.done, at_ns);
        break;
    case WEFT_FRAME_FINISH:
        good = finish_take(t, p, f->other.finish.msg, at_ns);
        break;
    case WEFT_FRAME_PING:
        p->need_ack = true;
        tcp_peer_ready(t, p);
        break;
    case WEFT_FRAME_CLOSE:
        weft_tcp_peer_down(t, p,
                           f->other.close_code == WEFT_CLOSE_REPLACED ? WEFT_DOWN_REPLACED
                                                                      : WEFT_DOWN_CLOSED,
                           f->other.close_code, at_ns);
        return false;
    case WEFT_FRAME_BLOCKED:
        weft_tcp_tx_hold(t, p, f->msg, true);
        break;
    default: /* READY: weft_wire_record_check has excluded all other types */
        weft_tcp_tx_hold(t, p, f->msg, false);
    }
    return good || broken(t, p, &t->counters.bad_ack, at_ns);
}

/* False: the peer is down. */
static bool control_act(struct weft_tcp *t, struct tcp_peer *p,
                        const struct weft_wire_record *record, uint64_t at_ns)
{
    struct weft_reader r = weft_reader_make(record->control, record->control_bytes);
    struct weft_wire_record_frame frame;
    while (weft_wire_record_frame_decode(&r, &frame)) {
        if (!frame_act(t, p, &frame, at_ns)) {
            return false;
        }
    }
    return true;
}

bool weft_tcp_record(struct weft_tcp *t, struct tcp_peer *p, uint8_t *bytes, size_t count,
                     uint64_t at_ns)
{
    struct weft_wire_record record;
    struct weft_wire_data data;
    size_t tag = p->conn->mode == WEFT_MODE_NONE ? 0 : WEFT_TAG_BYTES;
    if (weft_wire_record_head(bytes, &record) != WEFT_OK ||
        weft_wire_record_body(bytes + WEFT_WIRE_RECORD_HEAD_BYTES,
                              count - WEFT_WIRE_RECORD_HEAD_BYTES - tag, &record) != WEFT_OK ||
        (record.control != NULL &&
         weft_wire_record_check(record.control, record.control_bytes) != WEFT_OK)) {
        return broken(t, p, &t->counters.bad_packet, at_ns);
    }
    if (record.data != NULL &&
        weft_wire_data_decode(record.data, record.data_bytes, &data) != WEFT_OK) {
        return broken(t, p, &t->counters.bad_range, at_ns);
    }
    p->heard_ns = at_ns;
    p->quiet_ns = at_ns;
    p->pinged = false;
    p->idle = false;
    if (record.control != NULL && !control_act(t, p, &record, at_ns)) {
        return false;
    }
    if (record.data != NULL && !data_take(t, p, &data, at_ns)) {
        return broken(t, p, &t->counters.bad_range, at_ns);
    }
    return true;
}

/* The next record, if it is complete and verified; *count_p 0: not yet. False: the peer is down. */
static bool record_next(struct weft_tcp *t, struct tcp_peer *p, uint64_t at_ns, size_t *count_p)
{
    struct weft_wire_record record;
    uint8_t *at = p->in + p->in_at;
    uint32_t left = p->in_end - p->in_at;
    *count_p = 0;
    if (left < WEFT_WIRE_RECORD_HEAD_BYTES) {
        return true;
    }
    if (weft_wire_record_head(at, &record) != WEFT_OK || record.klass != p->conn->mode) {
        return broken(t, p, &t->counters.bad_packet, at_ns);
    }
    if (left < WEFT_WIRE_RECORD_HEAD_BYTES + record.bytes) {
        return true;
    }
    weft_status status =
        weft_tcp_open_record(t, p->conn, at, WEFT_WIRE_RECORD_HEAD_BYTES + record.bytes);
    if (status == WEFT_PROTO) {
        return broken(t, p, &t->counters.bad_tag, at_ns);
    }
    if (status != WEFT_OK) {
        weft_tcp_crypto_failed(t);
        weft_tcp_peer_down(t, p, WEFT_DOWN_CRYPTO, 0, at_ns);
        return false;
    }
    *count_p = WEFT_WIRE_RECORD_HEAD_BYTES + record.bytes;
    return true;
}

static uint32_t take_records(struct weft_tcp *t, struct tcp_peer *p, uint64_t at_ns,
                             weft_driver_handler *handler, void *arg)
{
    uint32_t taken = 0;
    for (;;) {
        size_t count;
        if (!record_next(t, p, at_ns, &count) || count == 0) {
            return taken;
        }
        uint8_t *bytes = p->in + p->in_at;
        p->in_at += (uint32_t)count;
        taken++;
        t->base.socket.datagrams_received++;
        t->counters.datagrams_received++;
        bool up = weft_tcp_record(t, p, bytes, count, at_ns);
        handler(arg, at_ns);
        if (!up || p->state != TCP_PEER_OPEN) { /* the handler may have closed it, too */
            return taken;
        }
    }
}

uint32_t weft_tcp_read(struct weft_tcp *t, struct tcp_peer *p, weft_driver_handler *handler,
                       void *arg)
{
    if (p->in_at > 0) {
        memmove(p->in, p->in + p->in_at, p->in_end - p->in_at);
        p->in_end -= p->in_at;
        p->in_at = 0;
    }
    ssize_t got = recv(p->conn->fd, p->in + p->in_end, TCP_IN_BYTES - p->in_end, 0);
    t->base.socket.recv_calls++;
    uint64_t at_ns = weft_clock_now_ns();
    if (got <= 0) {
        if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
            weft_tcp_peer_down(t, p, WEFT_DOWN_RESTARTED, 0, at_ns);
        }
        return 0;
    }
    t->base.socket.buffers_received++;
    t->base.socket.bytes_received += (uint64_t)got;
    t->counters.bytes_received += (uint64_t)got;
    p->in_end += (uint32_t)got;
    return take_records(t, p, at_ns, handler, arg);
}
