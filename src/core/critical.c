/* Critical chunks selected by a mask: sender and receiver.
 *
 * A number of leading critical chunks fits into the header of DATA. Any other selection is sent in
 * CRITICAL frames, in parts of 1,024 chunks like the mask of DONE. The header of DATA then has
 * WEFT_CRITICAL_MASKED, and the receiver closes the message with missing chunks only when it has
 * received all parts and all chunks that they select. A part that arrives before its message is
 * open is not acknowledged, so it is retransmitted; the sender therefore sends the first part only
 * after a chunk was acknowledged.
 *
 * Source: docs/PROTOCOL.md sections 3.8 and 6.
 */
#include "core/internal.h"

#include <string.h>

/* ---- sender ---------------------------------------------------------------------------------- */

/* The first lost critical chunk; N if there is none. */
uint32_t weft_core_critical_lost(const struct tx_msg *m)
{
    if (m->critical_left == 0 || m->lost_count == 0) {
        return m->chunks;
    }
    if (!m->masked) {
        uint32_t at = (uint32_t)weft_bits_next_one(m->lost, m->critical, 0);
        return at < m->critical ? at : m->chunks;
    }
    size_t words = WEFT_BITS_WORDS((size_t)m->chunks);
    for (size_t w = 0; w < words; w++) {
        uint64_t hit = m->lost[w] & m->critical_mask[w];
        if (hit != 0) {
            return (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(hit);
        }
    }
    return m->chunks;
}

/* The first critical chunk that is not acknowledged; N if there is none. */
uint32_t weft_core_critical_unacked(const struct tx_msg *m)
{
    if (m->critical_left == 0) {
        return m->chunks;
    }
    if (!m->masked) {
        return (uint32_t)weft_bits_next_zero(m->acked, m->critical, 0);
    }
    size_t words = WEFT_BITS_WORDS((size_t)m->chunks);
    for (size_t w = 0; w < words; w++) {
        uint64_t hit = m->critical_mask[w] & ~m->acked[w];
        if (hit != 0) {
            return (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(hit);
        }
    }
    return m->chunks;
}

/* True if a critical chunk is not in the complete mask of DONE. */
bool weft_core_critical_missing(const struct tx_msg *m)
{
    if (!m->masked) {
        return weft_bits_next_zero(m->done, m->critical, 0) < m->critical;
    }
    size_t words = WEFT_BITS_WORDS((size_t)m->chunks);
    for (size_t w = 0; w < words; w++) {
        if (m->critical_mask[w] & ~m->done[w]) {
            return true;
        }
    }
    return false;
}

static bool parts_left(const struct tx_msg *m)
{
    uint32_t parts = mask_parts(m->chunks);
    return weft_bits_next_one(m->critical_parts, parts, 0) < parts;
}

/* A chunk was acknowledged: the receiver has opened the message and can process the mask. */
void weft_core_critical_wake(struct peer *p, const struct tx_msg *m)
{
    if (m->masked && parts_left(m)) {
        tx_critical_due(&p->tx, m->seq);
    }
}

/* Write as many parts of one message as fit into the packet; false if no part fits. */
bool weft_core_critical_write(struct peer *p, struct weft_writer *w, uint32_t *msg_p,
                              uint32_t *parts_p)
{
    struct tx_msg *m = &p->tx.msgs[__builtin_ctzll(p->tx.critical)];
    size_t words_all = WEFT_BITS_WORDS((size_t)m->chunks);
    uint32_t from = (uint32_t)weft_bits_next_one(m->critical_parts, mask_parts(m->chunks), 0);
    size_t room = weft_writer_left(w) < WEFT_CRITICAL_BYTES
                      ? 0
                      : (weft_writer_left(w) - WEFT_CRITICAL_BYTES) / sizeof(uint64_t);
    size_t words = words_all - (size_t)from * DONE_PART_WORDS;
    words = weft_min_u64(words, WEFT_CRITICAL_WORDS_MAX);
    if (words > room) {
        words = room - room % DONE_PART_WORDS;
    }
    if (words == 0) {
        return false;
    }
    struct weft_wire_frame frame = {.type = WEFT_FRAME_CRITICAL};
    frame.critical.word_count = (uint16_t)words;
    frame.critical.msg = (uint32_t)m->seq;
    frame.critical.chunks = m->chunks;
    frame.critical.first = from * MASK_PART_CHUNKS;
    memcpy(frame.critical.words, m->critical_mask + (size_t)from * DONE_PART_WORDS,
           words * sizeof(uint64_t));
    weft_wire_frame_encode(w, &frame);
    uint32_t parts = (uint32_t)weft_div_ceil_u64(words, DONE_PART_WORDS);
    tx_msg_parts_sent(m, from, parts);
    if (!parts_left(m)) {
        tx_critical_sent(&p->tx);
    }
    *msg_p = (uint32_t)m->seq;
    *parts_p = from << 16 | parts;
    return true;
}

void weft_core_critical_packet_lost(struct peer *p, uint32_t msg, uint32_t parts)
{
    struct tx_msg *m = weft_core_tx_find(p, msg);
    if (m == NULL) {
        return;
    }
    tx_msg_parts_due(m, parts >> 16, parts & 0xffff);
    tx_critical_due(&p->tx, m->seq);
}

/* ---- receiver -------------------------------------------------------------------------------- */

/* False: the message is not open yet, so the packet must be retransmitted. */
bool weft_core_critical_recv(struct weft_ep *ep, struct peer *p,
                             const struct weft_wire_critical *frame)
{
    uint64_t seq = weft_core_rx_seq(p, frame->msg);
    if (seq < p->rx.open_from) {
        return true;
    }
    if (seq >= p->rx.open_from + WEFT_MSGS_MAX) {
        return false;
    }
    struct rx_msg *m = &p->rx.msgs[seq & MSG_MASK];
    if (m->state != RX_OPEN) {
        return m->state == RX_CLOSED;
    }
    uint32_t words_end = frame->first / 64 + frame->word_count;
    bool whole =
        frame->word_count % DONE_PART_WORDS == 0 || words_end == WEFT_BITS_WORDS((size_t)m->chunks);
    if (m->critical != WEFT_CRITICAL_MASKED || frame->chunks != m->chunks || !whole ||
        frame->first % MASK_PART_CHUNKS != 0) {
        ep->counters.bad_range++;
        return true;
    }
    if (!m->critical_known) {
        weft_core_rx_critical_part(m, frame);
    }
    return true;
}
