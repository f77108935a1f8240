/* Outgoing messages: opened, held, closed by DONE.
 *
 * Chunks are sent in the vector's order, since TCP loses nothing. Before DONE nothing is known
 * about a message: TCP acknowledges what the other kernel has received, not what the other process
 * has read. So the mask of a message whose peer dies is empty.
 *
 * Source: docs/PROTOCOL.md sections 6 and 10.5.
 */
#include "io/tcp/internal.h"

/* As lag_ns in core/pace.c; here a chunk is up to 64 KB, so each waits for its own time. */
#define PACE_LAG_NS WEFT_NS_PER_MS

static bool send_valid(const struct weft_tcp *t, const struct weft_msg_send *s,
                       uint32_t *chunk_elems_p)
{
    if (s->total == 0 || s->elem_bytes == 0 || s->base == NULL || s->bound_ppm >= WEFT_PPM ||
        s->priority > 7 || s->critical == 255) {
        return false;
    }
    uint32_t elems = weft_tcp_chunk_elems(s->elem_bytes);
    if (s->chunk_elems != 0) {
        uint32_t bytes = (uint32_t)s->chunk_elems * s->elem_bytes;
        elems = bytes <= WEFT_WIRE_RECORD_CHUNK_MAX ? s->chunk_elems : 0;
    }
    if (elems == 0 || weft_div_ceil_u64(s->total, elems) > t->config.ep.chunks_max) {
        return false;
    }
    *chunk_elems_p = elems;
    return true;
}

/* The critical mask is used only when a deadline ends the message: then the chunks in it count as
 * missing, unless no chunk is missing. */
static void bound_set(struct tcp_peer *p, struct tcp_tx *m, const struct weft_msg_send *send)
{
    uint64_t critical = weft_min_u64(send->critical, m->chunks);
    m->lost_max = weft_bound_reserve(&p->bounds, send, m->chunk_elems, m->chunks);
    m->critical = send->critical_mask != NULL ? WEFT_CRITICAL_MASKED : (uint8_t)critical;
}

weft_status weft_tcp_tx_send(struct weft_tcp *t, struct tcp_peer *p,
                             const struct weft_msg_send *send, uint64_t *seq_p)
{
    uint32_t chunk_elems = 0;
    if (!send_valid(t, send, &chunk_elems)) {
        return WEFT_INVALID;
    }
    uint64_t seq = p->tx_next_seq;
    struct tcp_tx *m = &p->tx[seq & TCP_MSG_MASK];
    if (seq - p->tx_open_from >= WEFT_MSGS_MAX || m->unpolled) {
        return WEFT_AGAIN;
    }
    p->tx_next_seq++;
    uint64_t *mask = m->mask;
    *m = (struct tcp_tx){
        .active = true,
        .priority = send->priority,
        .chunk_elems = (uint16_t)chunk_elems,
        .elem_bytes = send->elem_bytes,
        .total = send->total,
        .chunks = (uint32_t)weft_div_ceil_u64(send->total, chunk_elems),
        .seq = seq,
        .tag = send->tag,
        .user = send->user,
        .deadline_ns = send->deadline_ns,
        .was_held = send->held,
        .pace_ns = send->held ? WEFT_NEVER : 0,
        .base = send->base,
        .mask = mask,
    };
    bound_set(p, m, send);
    memset(mask, 0, WEFT_BITS_WORDS((size_t)m->chunks) * sizeof(*mask));
    p->tx_active |= UINT64_C(1) << (seq & TCP_MSG_MASK);
    p->tx_waits |= (uint64_t)send->held << (seq & TCP_MSG_MASK);
    p->tx_deadline_ns = weft_min_u64(p->tx_deadline_ns, m->deadline_ns);
    *seq_p = seq;
    return WEFT_OK;
}

static struct tcp_tx *tx_find(struct tcp_peer *p, uint32_t msg)
{
    struct tcp_tx *m = &p->tx[msg & TCP_MSG_MASK];
    return m->active && !m->closed && (uint32_t)m->seq == msg ? m : NULL;
}

/* ---- the end of a message -------------------------------------------------------------------- */

static void tx_close(struct weft_tcp *t, struct tcp_peer *p, struct tcp_tx *m, uint64_t now_ns)
{
    uint64_t bit = UINT64_C(1) << (m->seq & TCP_MSG_MASK);
    m->active = false;
    m->unpolled = true;
    p->events_unpolled++;
    p->tx_active &= ~bit;
    p->tx_held &= ~bit;
    p->tx_waits &= ~bit;
    p->tx_finish &= ~bit;
    while (p->tx_open_from < p->tx_next_seq && !p->tx[p->tx_open_from & TCP_MSG_MASK].active) {
        p->tx_open_from++;
    }
    t->counters.messages_sent += m->outcome == WEFT_MSG_COMPLETE || m->outcome == WEFT_MSG_SHORT;
    t->counters.messages_unknown += m->outcome == WEFT_MSG_UNKNOWN;
    struct weft_msg_event *ev = weft_tcp_event_push(t);
    ev->type = WEFT_EVENT_SENT;
    ev->peer = tcp_peer_idx(t, p);
    ev->user = m->user;
    ev->seq = m->seq;
    ev->tag = m->tag;
    ev->total = m->total;
    ev->chunk_elems = m->chunk_elems;
    ev->elem_bytes = m->elem_bytes;
    ev->chunks = m->chunks;
    ev->received = m->received;
    ev->refused = m->refused;
    ev->outcome = m->outcome;
    ev->mask = m->mask;
    ev->at_ns = now_ns;
    ev->begun_ns = m->begun_ns;
}

/* What DONE reported before the connection broke remains true. */
void weft_tcp_tx_close_all(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns)
{
    for (uint64_t active = p->tx_active; active != 0; active &= active - 1) {
        struct tcp_tx *m = &p->tx[__builtin_ctzll(active)];
        if (!m->closed) {
            m->outcome = WEFT_MSG_UNKNOWN;
            m->received = 0;
            memset(m->mask, 0, WEFT_BITS_WORDS((size_t)m->chunks) * sizeof(*m->mask));
        }
        tx_close(t, p, m, now_ns);
    }
}

void weft_tcp_tx_flushed(struct weft_tcp *t, struct tcp_peer *p, struct tcp_tx *m, uint64_t now_ns)
{
    m->unflushed--;
    if (m->closed && m->unflushed == 0) {
        tx_close(t, p, m, now_ns);
    }
}

/* ---- deadline, BLOCKED, DONE ----------------------------------------------------------------- */

void weft_tcp_tx_timer(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns)
{
    p->tx_deadline_ns = WEFT_NEVER;
    for (uint64_t active = p->tx_active; active != 0; active &= active - 1) {
        unsigned slot = (unsigned)__builtin_ctzll(active);
        struct tcp_tx *m = &p->tx[slot];
        if (m->finish_short || m->closed) {
            continue;
        }
        if (m->deadline_ns <= now_ns) {
            m->finish_short = true;
            p->idle = false; /* FINISH must be sent, and a dead peer detected */
            p->quiet_ns = now_ns;
            p->tx_finish |= UINT64_C(1) << slot;
            p->tx_waits &= ~(UINT64_C(1) << slot);
            tcp_peer_ready(t, p);
        } else {
            p->tx_deadline_ns = weft_min_u64(p->tx_deadline_ns, m->deadline_ns);
        }
    }
}

void weft_tcp_tx_hold(struct weft_tcp *t, struct tcp_peer *p, uint32_t msg, bool hold)
{
    struct tcp_tx *m = tx_find(p, msg);
    if (m == NULL) {
        return;
    }
    uint64_t bit = UINT64_C(1) << (m->seq & TCP_MSG_MASK);
    m->next = 0;
    if (hold) {
        p->tx_held |= bit;
    } else {
        p->tx_held &= ~bit;
        tcp_peer_ready(t, p);
    }
}

/* ---- held messages --------------------------------------------------------------------------- */

static void wait_until(struct tcp_peer *p, struct tcp_tx *m, uint64_t at_ns)
{
    m->pace_ns = at_ns;
    p->tx_waits |= UINT64_C(1) << (m->seq & TCP_MSG_MASK);
    p->tx_pace_ns = weft_min_u64(p->tx_pace_ns, at_ns);
}

/* The message has chunks to send, but its group must wait before the next one. */
static bool group_waits(const struct tcp_peer *p, const struct tcp_tx *m, uint64_t now_ns)
{
    bool has_left = m->next < m->chunks && !m->finish_short && !m->closed;
    return m->group != 0 && has_left && p->group_ns[m->group - 1] > now_ns;
}

static void go(struct weft_tcp *t, struct tcp_peer *p, struct tcp_tx *m, uint64_t now_ns)
{
    p->quiet_ns = weft_tcp_peer_outstanding(p) ? p->quiet_ns : now_ns;
    p->tx_waits &= ~(UINT64_C(1) << (m->seq & TCP_MSG_MASK));
    tcp_peer_ready(t, p);
}

weft_status weft_tcp_tx_pace(struct weft_tcp *t, struct tcp_peer *p, uint64_t seq,
                             const struct weft_msg_pace *pace, uint64_t now_ns)
{
    struct tcp_tx *m = tx_find(p, (uint32_t)seq);
    if (m == NULL || m->seq != seq || m->finish_short) {
        return WEFT_NOTFOUND;
    }
    if (!m->was_held || pace->group > WEFT_MSG_PACE_GROUPS) {
        return WEFT_INVALID;
    }
    m->rate_bps = pace->rate_bps;
    m->rank = pace->rank;
    m->group = pace->group;
    if (m->group != 0 && p->group_bps[m->group - 1] != m->rate_bps) {
        p->group_bps[m->group - 1] = m->rate_bps;
        p->group_ns[m->group - 1] = now_ns; /* what was sent at the old rate does not count */
    }
    if (pace->start_ns > now_ns) {
        wait_until(p, m, pace->start_ns);
    } else if (group_waits(p, m, now_ns)) {
        wait_until(p, m, p->group_ns[m->group - 1]);
    } else {
        m->pace_ns = now_ns; /* its rate is measured from here, whatever it waited for before */
        go(t, p, m, now_ns);
    }
    return WEFT_OK;
}

weft_status weft_tcp_tx_withdraw(struct weft_tcp *t, struct tcp_peer *p, uint64_t seq,
                                 uint64_t now_ns)
{
    struct tcp_tx *m = tx_find(p, (uint32_t)seq);
    if (m == NULL || m->seq != seq) {
        return WEFT_NOTFOUND;
    }
    if (!m->was_held || m->finish_short || m->sent_most > 0) {
        return WEFT_STATE;
    }
    m->outcome = WEFT_MSG_WITHDRAWN;
    tx_close(t, p, m, now_ns);
    return WEFT_OK;
}

void weft_tcp_tx_paced(struct tcp_peer *p, struct tcp_tx *m, uint64_t bytes, uint64_t now_ns)
{
    __extension__ unsigned __int128 bits = (unsigned __int128)bytes * 8 * WEFT_NS_PER_S;
    uint64_t before_ns = m->group == 0 ? m->pace_ns : p->group_ns[m->group - 1];
    uint64_t from_ns = weft_max_u64(before_ns, now_ns - weft_min_u64(now_ns, PACE_LAG_NS));
    uint64_t until_ns = weft_time_add(from_ns, (uint64_t)(bits / m->rate_bps));
    if (m->group == 0) {
        if (m->next < m->chunks) { /* otherwise its DONE is awaited */
            wait_until(p, m, until_ns);
        }
        return;
    }
    p->group_ns[m->group - 1] = until_ns;
    for (uint64_t active = p->tx_active; active != 0; active &= active - 1) {
        unsigned slot = (unsigned)__builtin_ctzll(active);
        struct tcp_tx *other = &p->tx[slot];
        bool starts_later = (p->tx_waits >> slot & 1) != 0 && other->pace_ns > until_ns;
        if (other->group == m->group && group_waits(p, other, now_ns) && !starts_later) {
            wait_until(p, other, until_ns);
        }
    }
}

void weft_tcp_tx_pace_timer(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns)
{
    p->tx_pace_ns = WEFT_NEVER;
    for (uint64_t waits = p->tx_waits; waits != 0; waits &= waits - 1) {
        struct tcp_tx *m = &p->tx[__builtin_ctzll(waits)];
        if (m->pace_ns <= now_ns && group_waits(p, m, now_ns)) {
            wait_until(p, m, p->group_ns[m->group - 1]);
        } else if (m->pace_ns <= now_ns) {
            go(t, p, m, now_ns);
        } else {
            p->tx_pace_ns = weft_min_u64(p->tx_pace_ns, m->pace_ns);
        }
    }
}

/* Add one part of the mask; parts arrive in order. False: it does not fit. */
static bool done_part(struct tcp_tx *m, const struct weft_wire_done *d)
{
    uint32_t words = (uint32_t)WEFT_BITS_WORDS((size_t)m->chunks);
    uint32_t first = d->first / 64;
    if (d->first != m->done_next || first + d->word_count > words || d->word_count == 0) {
        return false;
    }
    memcpy(m->mask + first, d->words, d->word_count * sizeof(uint64_t));
    m->done_next += 64 * (uint32_t)d->word_count;
    uint64_t tail = m->chunks % 64 == 0 ? 0 : UINT64_MAX << (m->chunks % 64);
    return first + d->word_count < words || (m->mask[words - 1] & tail) == 0;
}

bool weft_tcp_tx_done(struct weft_tcp *t, struct tcp_peer *p, const struct weft_wire_done *d,
                      uint64_t now_ns)
{
    struct tcp_tx *m = tx_find(p, d->msg);
    if (m == NULL) {
        return true;
    }
    bool none = d->chunks == 0 && d->received == 0;
    if ((!none && d->chunks != m->chunks) || d->received > m->sent_most) {
        return false;
    }
    if (d->received == m->chunks) {
        weft_bits_fill(m->mask, m->chunks);
    } else if (d->received > 0) {
        if (!done_part(m, d)) {
            return false;
        }
        if (m->done_next < m->chunks) {
            return true; /* more parts follow */
        }
    }
    bool complete = d->status == WEFT_DONE_COMPLETE;
    if (weft_bits_count(m->mask, m->chunks) != d->received ||
        (complete && m->chunks - d->received > m->lost_max)) {
        return false;
    }
    m->outcome = complete ? WEFT_MSG_COMPLETE : WEFT_MSG_SHORT;
    m->received = d->received;
    m->refused = d->refused;
    m->closed = true;
    if (m->unflushed == 0) {
        tx_close(t, p, m, now_ns);
    }
    return true;
}

/* ---- which chunk next ------------------------------------------------------------------------ */

/* Most urgent first, then unpaced messages, then by rank, then oldest. */
static uint32_t order_of(const struct tcp_tx *m)
{
    return (uint32_t)m->priority << 9 | (uint32_t)m->was_held << 8 | m->rank;
}

struct tcp_tx *weft_tcp_tx_peek(struct tcp_peer *p)
{
    struct tcp_tx *best = NULL;
    unsigned turn = p->tx_open_from & TCP_MSG_MASK;
    uint64_t order = p->tx_active & ~(p->tx_held | p->tx_waits);
    order = turn == 0 ? order : order >> turn | order << (WEFT_MSGS_MAX - turn);
    for (; order != 0; order &= order - 1) {
        struct tcp_tx *m = &p->tx[((unsigned)__builtin_ctzll(order) + turn) & TCP_MSG_MASK];
        bool has = !m->finish_short && !m->closed && m->next < m->chunks;
        if (has && (best == NULL || order_of(m) < order_of(best))) {
            best = m;
        }
    }
    return best;
}
