/* Outgoing messages: open and close, selection of the next chunk, retransmission, and DONE.
 *
 * The first pass sends every chunk once, in the order of the message's permutation. A lost chunk is
 * retransmitted if it is critical, if the bound would otherwise be exceeded by the known losses and
 * those expected among the chunks in flight, or, during the first pass, to keep the losses below an
 * eighth of the bound (rules 2 and 4, resend_due below). The receiver closes the message and
 * reports the outcome, and the chunks received, in DONE.
 *
 * Source: docs/PROTOCOL.md section 6, rules 1, 2, 4, 5, 6; [apnet19] section 3.1. Unlike in the
 * paper, only losses whose retransmission would *extend* the message are not retransmitted, and the
 * sender learns which chunks are missing.
 */
#include "core/internal.h"

#include "base/assert.h"

#include <string.h>

static bool send_valid(const struct weft_ep *ep, const struct peer *p,
                       const struct weft_msg_send *s, uint32_t *chunk_elems_p)
{
    if (s->total == 0 || s->elem_bytes == 0 || s->base == NULL || s->bound_ppm >= WEFT_PPM ||
        s->priority > 7 || s->critical == 255) {
        return false;
    }
    uint32_t elems = weft_core_grid(ep, p, s->elem_bytes, s->total);
    if (s->chunk_elems != 0) {
        uint32_t room = p->path.ceiling_bytes - WEFT_DATA_OVERHEAD_BYTES;
        elems = (uint32_t)s->chunk_elems * s->elem_bytes <= room ? s->chunk_elems : 0;
    }
    if (elems == 0 || weft_div_ceil_u64(s->total, elems) > ep->config.chunks_max) {
        return false;
    }
    *chunk_elems_p = elems;
    return true;
}

/* Choose the order of the first pass. If no chunk of a message may be missing, the position of
 * losses does not matter, and memory is read, and at the receiver written, fastest from front to
 * back. A message that either end may close early can end SHORT, so its missing chunks must be
 * spread evenly.
 *
 * In that case, and if chunks may be missing, each message has a different order. The key is mixed
 * twice, because incarnations may be consecutive, as sequence numbers are: with their plain sum, a
 * message of one sender would have the same order as the next message of another. */
static void perm_choose(const struct weft_ep *ep, struct tx_msg *m, bool cut)
{
    if (m->lost_max == 0 && m->deadline_ns == WEFT_NEVER && !cut) {
        weft_perm_init_plain(&m->perm, m->chunks, 0);
        return;
    }
    uint64_t key = ep->config.seed ^ weft_mix64(ep->config.incarnation + weft_mix64(m->seq));
    if (ep->config.order == WEFT_ORDER_PERM) {
        weft_perm_init(&m->perm, m->chunks, key);
    } else {
        bool shifted = ep->config.order == WEFT_ORDER_CYCLIC;
        weft_perm_init_plain(&m->perm, m->chunks,
                             shifted ? (uint32_t)(weft_mix64(key) % m->chunks) : 0);
    }
}

/* The masks of a short message are stored inside it. In the arena each mask is on a separate page,
 * and four misses of the cache and the TLB were a large part of the cost of a short message. */
static void masks_clear(const struct weft_ep *ep, struct tx_msg *m)
{
    bool is_inline = m->chunks <= INLINE_CHUNKS;
    size_t stride = is_inline ? 1 : WEFT_BITS_WORDS((size_t)ep->config.chunks_max);
    size_t place = (size_t)(m - ep->tx_arena) * (TX_MASKS + RX_MASKS);
    uint64_t *bits = is_inline ? m->inline_mask : ep->bitmaps + place * stride;
    size_t bytes = WEFT_BITS_WORDS((size_t)m->chunks) * sizeof(*bits);
    m->acked = bits;
    m->lost = bits + stride;
    m->done = bits + 2 * stride;
    m->critical_mask = bits + 3 * stride;
    memset(m->acked, 0, bytes);
    memset(m->lost, 0, bytes);
    memset(m->done, 0, bytes);
}

/* Critical chunks are those of the mask, and the first `leading`. If the mask contains no others,
 * the count in DATA's header is enough. */
static void critical_init(struct tx_msg *m, const uint64_t *mask, uint32_t leading)
{
    size_t words = WEFT_BITS_WORDS((size_t)m->chunks);
    memcpy(m->critical_mask, mask, words * sizeof(*mask));
    for (uint32_t i = 0; i < leading; i++) {
        weft_bits_set(m->critical_mask, i);
    }
    if (m->chunks % 64 != 0) {
        m->critical_mask[words - 1] &= ~(UINT64_MAX << (m->chunks % 64));
    }
    uint32_t count = (uint32_t)weft_bits_count(m->critical_mask, m->chunks);
    if (count == leading) {
        return;
    }
    m->masked = true;
    m->critical = WEFT_CRITICAL_MASKED;
    m->critical_left = count;
    m->lost_max = (uint32_t)weft_min_u64(m->lost_max, m->chunks - count);
    weft_bits_fill(m->critical_parts, mask_parts(m->chunks));
}

weft_status weft_core_tx_open(struct weft_ep *ep, struct peer *p, const struct weft_msg_send *send,
                              uint64_t now_ns, uint64_t *seq_p)
{
    uint32_t chunk_elems = 0;
    if (!send_valid(ep, p, send, &chunk_elems)) {
        return WEFT_INVALID;
    }
    if (p->tx.next_seq - p->tx.open_from >= WEFT_MSGS_MAX) {
        return WEFT_AGAIN;
    }
    uint64_t seq = p->tx.next_seq;
    struct tx_msg *m = &p->tx.msgs[seq & MSG_MASK];
    if (m->unpolled) {
        return WEFT_AGAIN; /* its SENT event still points to a mask of the slot */
    }
    p->tx.next_seq++;
    uint32_t chunks = (uint32_t)weft_div_ceil_u64(send->total, chunk_elems);
    uint32_t critical = (uint32_t)weft_min_u64(send->critical, chunks);
    *m = (struct tx_msg){
        .active = true,
        .priority = send->priority,
        .critical = (uint8_t)critical,
        .together = send->together,
        .shares = send->shares && chunks == 1,
        .held = send->held,
        .unbegun = send->held,
        .wire_priority = send->priority,
        .order = tx_order(send->priority, false, 0),
        .chunk_elems = (uint16_t)chunk_elems,
        .elem_bytes = send->elem_bytes,
        .total = send->total,
        .chunks = chunks,
        .lost_max = weft_bound_reserve(&p->tx.bounds, send, chunk_elems, chunks),
        .critical_left = critical,
        .chunk_bytes = chunk_elems * send->elem_bytes,
        .seq = seq,
        .opened = ep->egress.opened++,
        .tag = send->tag,
        .user = send->user,
        .prefetch = send->prefetch,
        .deadline_ns = send->deadline_ns,
        .base = send->base,
    };
    masks_clear(ep, m);
    if (send->critical_mask != NULL) {
        critical_init(m, send->critical_mask, critical);
    }
    perm_choose(ep, m, send->cut);
    tx_backlog_reached(&p->tx, p->allowed.sent);
    if (!m->held) {
        /* The receiver learns of this message only after it has received the earlier ones, so
         * BACKLOG must announce it. */
        p->tx.need_backlog |= p->tx.unsent > 0;
        weft_core_egress_unsent(ep, p, m->chunks);
        if (!peer_waiting(p) || peer_waits_late(p)) {
            recovery_wait(&p->recovery, now_ns);
        }
    }
    p->tx.active |= UINT64_C(1) << (seq & MSG_MASK);
    p->tx.held |= (uint64_t)m->held << (seq & MSG_MASK);
    p->tx.deadline_ns = weft_min_u64(p->tx.deadline_ns, m->deadline_ns);
    trace(ep, p, WEFT_TRACE_MSG_OPENED, WEFT_TRACE_OUTGOING, seq, chunks, m->lost_max,
          m->chunk_bytes);
    trace(ep, p, WEFT_TRACE_MSG_TAG, WEFT_TRACE_OUTGOING, seq, m->tag >> 32, (uint32_t)m->tag,
          m->total);
    *seq_p = seq;
    return WEFT_OK;
}

struct tx_msg *weft_core_tx_find(struct peer *p, uint32_t msg)
{
    struct tx_msg *m = &p->tx.msgs[msg & MSG_MASK];
    return m->active && (uint32_t)m->seq == msg ? m : NULL;
}

void weft_core_tx_acked(struct tx_msg *m, uint32_t chunk, bool was_in_flight)
{
    m->in_flight -= was_in_flight;
    if (weft_bits_test(m->acked, chunk)) {
        return;
    }
    weft_bits_set(m->acked, chunk);
    m->acked_count++;
    m->critical_left -= tx_critical_chunk(m, chunk);
    if (weft_bits_test(m->lost, chunk)) {
        weft_bits_clear(m->lost, chunk);
        m->lost_count--;
    }
}

void weft_core_tx_lost(struct tx_msg *m, uint32_t chunk)
{
    m->in_flight--;
    if (!weft_bits_test(m->acked, chunk) && !weft_bits_test(m->lost, chunk)) {
        weft_bits_set(m->lost, chunk);
        m->lost_count++;
    }
}

/* True if, by the information at this end, the receiver has enough chunks to close the message. */
bool weft_core_tx_satisfied(const struct tx_msg *m)
{
    uint64_t held = weft_max_u64(m->acked_count, m->peer_received);
    return held + m->lost_max >= m->chunks && m->critical_left == 0;
}

/* All chunks are sent, the receiver has enough, and no packet is in flight whose ACK would confirm
 * it. */
bool weft_core_tx_over(const struct tx_msg *m)
{
    return m->pass_next == m->chunks && m->in_flight == 0 && weft_core_tx_satisfied(m);
}

/* ---- the next chunk -------------------------------------------------------------------------- */

/* Estimated number of chunks in flight that will be lost. During the first pass it is the mean,
 * rounded down: an estimate must not use up the bound of a small message, and later ACKs are more
 * accurate. After the pass it is the mean plus twice its square root (two standard deviations of a
 * Poisson distribution): a few redundant chunks cost less than another round trip. */
static uint64_t loss_expected(const struct peer *p, const struct tx_msg *m)
{
    uint64_t mean_ppm = (uint64_t)m->in_flight * weft_cc_loss_ppm(&p->cc);
    if (m->pass_next < m->chunks || mean_ppm == 0) {
        return mean_ppm / WEFT_PPM;
    }
    /* The least n with n >= mean + 2 sqrt(mean): (n - mean)^2 >= 4 mean. */
    uint64_t most = weft_div_ceil_u64(mean_ppm, WEFT_PPM);
    uint64_t over = (most * WEFT_PPM - mean_ppm) / 1000;
    while (over * over < 4 * mean_ppm) {
        most++;
        over = (most * WEFT_PPM - mean_ppm) / 1000;
    }
    return most;
}

/* All chunks were sent several times and none was acknowledged, although losses were detected, so
 * other packets arrived: the receiver has not posted memory. From now on only one chunk is in
 * flight at a time. The constant 16 allows for a short message that is lost several times by
 * chance. */
static bool memory_not_posted(const struct tx_msg *m)
{
    return m->acked_count == 0 && m->resent >= 2 * (uint64_t)m->chunks + 16;
}

/* Rules 2 and 4: whether to retransmit a lost chunk now. */
static bool resend_due(const struct peer *p, const struct tx_msg *m)
{
    if (m->lost_count == 0 || (memory_not_posted(m) && m->in_flight > 0)) {
        return false;
    }
    if (weft_core_critical_lost(m) < m->chunks) {
        return true;
    }
    bool in_pass = m->pass_next < m->chunks;
    if (in_pass && m->lost_count > pass_spare(m->lost_max) &&
        m->pass_resent < pass_again_max(m->lost_max)) {
        return true;
    }
    if (weft_core_tx_satisfied(m)) {
        return false;
    }
    uint64_t in_flight_lost = m->lost_max == 0 ? 0 : loss_expected(p, m);
    return (uint64_t)m->lost_count + in_flight_lost > m->lost_max;
}

/* Select one of the lost chunks pseudo-randomly. With the lowest index first, the chunks missing
 * from a message that ends at its bound would be at the end of its vector. With bound 0 all are
 * retransmitted, so the order does not matter. */
static uint32_t lost_choose(const struct tx_msg *m)
{
    if (m->lost_max == 0) {
        return (uint32_t)weft_bits_next_one(m->lost, m->chunks, 0);
    }
    uint64_t key = (uint64_t)m->perm.times[0] << 32 | m->perm.plus[0];
    uint64_t lot = weft_mix64((m->seq ^ key) + ((uint64_t)m->acked_count << 32) + m->lost_count);
    return (uint32_t)weft_bits_nth_one(m->lost, lot % m->lost_count);
}

static bool msg_has_chunk(const struct peer *p, struct tx_msg *m, uint32_t *chunk_p, bool *again_p)
{
    if (m->finish_short) {
        return false;
    }
    if (resend_due(p, m)) {
        uint32_t critical = weft_core_critical_lost(m);
        *chunk_p = critical < m->chunks ? critical : lost_choose(m);
        *again_p = true;
        return true;
    }
    if (m->pass_next < m->chunks) {
        *chunk_p = tx_msg_pass_chunk(m);
        *again_p = false;
        return true;
    }
    return false;
}

/* The order is by priority, then messages without a rank before others, then by rank, then oldest
 * first. */
struct tx_msg *weft_core_tx_peek_but(struct peer *p, uint64_t but, uint32_t *chunk_p, bool *again_p)
{
    struct tx_msg *best = NULL;
    unsigned turn = p->tx.open_from & MSG_MASK;
    uint64_t may = p->tx.active & ~(p->tx.held | p->tx.paced | but);
    uint64_t order = turn == 0 ? may : may >> turn | may << (WEFT_MSGS_MAX - turn);
    for (; order != 0; order &= order - 1) {
        unsigned slot = ((unsigned)__builtin_ctzll(order) + turn) & MSG_MASK;
        struct tx_msg *m = &p->tx.msgs[slot];
        uint32_t chunk;
        bool again;
        if (best != NULL && best->order <= m->order) {
            continue;
        }
        if (msg_has_chunk(p, m, &chunk, &again)) {
            best = m;
            *chunk_p = chunk;
            *again_p = again;
            if (m->order == 0) {
                break;
            }
        }
    }
    return best;
}

void weft_core_tx_take(struct tx_msg *m, uint32_t chunk, bool again, uint64_t now_ns)
{
    m->begun_ns = m->begun_ns == 0 ? now_ns : m->begun_ns;
    m->in_flight++;
    m->resent += again && m->acked_count == 0;
    m->pass_resent += again && m->pass_next < m->chunks;
    if (!again) {
        WEFT_ASSERT(weft_perm_next(&m->perm) == chunk);
        m->pass_next++;
    } else if (weft_bits_test(m->lost, chunk)) {
        weft_bits_clear(m->lost, chunk);
        m->lost_count--;
    }
}

/* The chunk of this message for a probe; *chunk_p = UINT32_MAX when only FINISH is due. */
static void probe_chunk(struct tx_msg *m, uint32_t *chunk_p)
{
    *chunk_p = UINT32_MAX;
    if (m->finish_short) {
        return;
    }
    if (m->pass_next < m->chunks) {
        *chunk_p = tx_msg_pass_chunk(m);
    } else if (!weft_core_tx_satisfied(m)) {
        uint32_t critical = weft_core_critical_unacked(m);
        *chunk_p =
            critical < m->chunks ? critical : (uint32_t)weft_bits_next_zero(m->acked, m->chunks, 0);
    }
}

/* Round robin, oldest first: a message without posted memory must not block probes of the others.
 * Paused messages are skipped, because a probe would send their next chunk too early; PING is sent
 * instead. */
struct tx_msg *weft_core_tx_probe(struct peer *p, uint32_t *chunk_p)
{
    uint64_t span = p->tx.next_seq - p->tx.open_from;
    uint64_t from = weft_max_u64(p->tx.probed_seq + 1, p->tx.open_from) - p->tx.open_from;
    for (uint64_t i = 0; i < span; i++) {
        uint64_t seq = p->tx.open_from + (from + i) % span;
        struct tx_msg *m = &p->tx.msgs[seq & MSG_MASK];
        bool rests =
            m->unbegun || ((p->tx.paced >> (seq & MSG_MASK) & 1) != 0 && m->pass_next < m->chunks);
        if (m->active && m->seq == seq && (!rests || m->finish_short)) {
            p->tx.probed_seq = seq;
            probe_chunk(m, chunk_p);
            return m;
        }
    }
    return NULL;
}

/* ---- deadline -------------------------------------------------------------------------------- */

void weft_core_tx_timer(struct peer *p, uint64_t now_ns)
{
    p->tx.deadline_ns = WEFT_NEVER;
    for (uint64_t active = p->tx.active; active != 0; active &= active - 1) {
        unsigned slot = (unsigned)__builtin_ctzll(active);
        struct tx_msg *m = &p->tx.msgs[slot];
        if (m->finish_short) {
            continue;
        }
        if (m->deadline_ns <= now_ns) {
            m->finish_short = true;
            conn_idle_end(&p->conn); /* send FINISH even to an idle peer, and detect if it is
                                      * dead */
            p->tx.finish |= UINT64_C(1) << slot;
            p->tx.held &= ~(UINT64_C(1) << slot);
        } else {
            p->tx.deadline_ns = weft_min_u64(p->tx.deadline_ns, m->deadline_ns);
        }
    }
}

/* ---- DONE ------------------------------------------------------------------------------------ */

static void tx_close(struct weft_ep *ep, struct peer *p, struct tx_msg *m,
                     enum weft_msg_outcome outcome, const uint64_t *mask, uint32_t received,
                     uint32_t refused, uint64_t now_ns)
{
    uint64_t bit = UINT64_C(1) << (m->seq & MSG_MASK);
    if (!m->unbegun) {
        p->tx.need_backlog |= m->pass_next < m->chunks;
        weft_core_egress_unsent(ep, p, -(int64_t)(m->chunks - m->pass_next));
    }
    m->active = false;
    m->unpolled = true;
    conn_event_raised(&p->conn);
    p->tx.active &= ~bit;
    p->tx.held &= ~bit;
    p->tx.paced &= ~bit;
    p->tx.answers &= ~bit;
    p->tx.finish &= ~bit;
    p->tx.critical &= ~bit;
    while (p->tx.open_from < p->tx.next_seq && !p->tx.msgs[p->tx.open_from & MSG_MASK].active) {
        p->tx.open_from++;
    }
    ep->counters.messages_sent += outcome == WEFT_MSG_COMPLETE || outcome == WEFT_MSG_SHORT;
    ep->counters.messages_unknown += outcome == WEFT_MSG_UNKNOWN;
    trace(ep, p, WEFT_TRACE_MSG_CLOSED, WEFT_TRACE_OUTGOING | outcome << 1, m->seq, received,
          m->chunks, refused);
    struct weft_msg_event *ev = weft_core_event_push(ep);
    ev->type = WEFT_EVENT_SENT;
    ev->peer = peer_idx(ep, p);
    ev->user = m->user;
    ev->seq = m->seq;
    ev->tag = m->tag;
    ev->total = m->total;
    ev->chunk_elems = m->chunk_elems;
    ev->elem_bytes = m->elem_bytes;
    ev->chunks = m->chunks;
    ev->received = received;
    ev->refused = refused;
    ev->outcome = outcome;
    ev->mask = mask;
    ev->at_ns = now_ns;
    ev->begun_ns = m->begun_ns;
}

static void tx_close_unknown(struct weft_ep *ep, struct peer *p, struct tx_msg *m, uint64_t now_ns)
{
    tx_close(ep, p, m, WEFT_MSG_UNKNOWN, m->acked, m->acked_count, 0, now_ns);
}

void weft_core_tx_withdrawn(struct weft_ep *ep, struct peer *p, struct tx_msg *m, uint64_t now_ns)
{
    tx_close(ep, p, m, WEFT_MSG_WITHDRAWN, m->acked, 0, 0, now_ns);
}

void weft_core_tx_close_all(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    for (uint64_t active = p->tx.active; active != 0; active &= active - 1) {
        tx_close_unknown(ep, p, &p->tx.msgs[__builtin_ctzll(active)], now_ns);
    }
}

/* Record one part of the mask; true when all parts have arrived. False with *bad_p set: the part
 * does not fit the message. */
static bool done_part(struct tx_msg *m, const struct weft_wire_done *d, bool *bad_p)
{
    size_t words_all = WEFT_BITS_WORDS((size_t)m->chunks);
    size_t first = d->first / 64;
    bool last = first + d->word_count == words_all;
    if (d->first % (64 * DONE_PART_WORDS) != 0 || (d->word_count % DONE_PART_WORDS != 0 && !last)) {
        *bad_p = true;
        return false;
    }
    uint64_t tail = m->chunks % 64 == 0 ? 0 : UINT64_MAX << (m->chunks % 64);
    if (last && (d->words[d->word_count - 1] & tail) != 0) {
        *bad_p = true;
        return false;
    }
    memcpy(m->done + first, d->words, d->word_count * sizeof(uint64_t));
    for (size_t w = first; w < first + d->word_count; w += DONE_PART_WORDS) {
        weft_bits_set(m->done_parts, w / DONE_PART_WORDS);
    }
    size_t parts = (words_all + DONE_PART_WORDS - 1) / DONE_PART_WORDS;
    return weft_bits_next_zero(m->done_parts, parts, 0) == parts;
}

static bool done_contradicts(const struct tx_msg *m, const struct weft_wire_done *d)
{
    size_t words = WEFT_BITS_WORDS((size_t)m->chunks);
    for (size_t w = 0; w < words; w++) {
        if (m->acked[w] & ~m->done[w]) {
            return true; /* DONE does not contain a chunk that was acknowledged */
        }
    }
    /* Nor may it contain chunks that were never sent: the first pass sends each once. */
    if (weft_bits_count(m->done, m->chunks) != d->received || d->received > m->pass_next) {
        return true;
    }
    bool enough = m->chunks - d->received <= m->lost_max && !weft_core_critical_missing(m);
    return d->status == WEFT_DONE_COMPLETE && !enough;
}

/* Assemble the mask of DONE in m->done; true when it is complete. False with *bad_p set:
 * malformed. */
static bool done_assemble(struct tx_msg *m, const struct weft_wire_done *done, bool *bad_p)
{
    bool none = done->chunks == 0 && done->received == 0;
    if (!none && done->chunks != m->chunks) {
        *bad_p = true;
        return false;
    }
    if (done->received == 0) {
        memset(m->done, 0, WEFT_BITS_WORDS((size_t)m->chunks) * sizeof(uint64_t));
        return true;
    }
    if (done->received == m->chunks) {
        weft_bits_fill(m->done, m->chunks);
        return true;
    }
    return done_part(m, done, bad_p);
}

void weft_core_done_recv(struct weft_ep *ep, struct peer *p, const struct weft_wire_done *done,
                         uint64_t now_ns)
{
    trace(ep, p, WEFT_TRACE_DONE_RECEIVED, done->status, done->msg, done->received,
          done->word_count, done->first);
    struct tx_msg *m = weft_core_tx_find(p, done->msg);
    if (m == NULL) {
        return; /* closed already; the next ACK confirms it */
    }
    bool bad = false;
    if (!done_assemble(m, done, &bad)) {
        ep->counters.bad_ack += bad;
        return;
    }
    if (done_contradicts(m, done)) {
        ep->counters.bad_ack++;
        tx_close_unknown(ep, p, m, now_ns);
        return;
    }
    recovery_on_progress(&p->recovery, now_ns);
    enum weft_msg_outcome outcome =
        done->status == WEFT_DONE_SHORT ? WEFT_MSG_SHORT : WEFT_MSG_COMPLETE;
    tx_close(ep, p, m, outcome, m->done, done->received, done->refused, now_ns);
}
