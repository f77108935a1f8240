/* Several short messages in one packet.
 *
 * Many messages of one chunk, such as a request for 16 rows or the reply with a row, are not longer
 * than the headers, the tag and the Ethernet overhead of their packet. If several such messages to
 * one peer are to be sent at the same time, they share a packet: the last one is its chunk, and the
 * control block contains the others as MESSAGE frames.
 *
 * Only the chunk counts as a DATA packet: for credit, data_count and BACKLOG it is one packet. Each
 * message is confirmed by a separate DONE. If the packet is lost, all its messages are
 * retransmitted in one packet. A message of one chunk has K = 0, so the loss of several messages at
 * a time does not affect the bound. Each message records the packet that contained it (shared_pn),
 * like the packet of a DONE (rx_msg.h): there are at most 64 messages, and the ring of packets
 * needs no further fields.
 *
 * The order of messages does not change: selection ends at the first message that does not fit or
 * may not share, so no message overtakes another.
 *
 * Source: docs/PROTOCOL.md sections 3.12 and 5, "Shared packets".
 */
#include "core/internal.h"

#include "base/assert.h"

static bool is_again(const struct tx_msg *m)
{
    return m->pass_next == m->chunks;
}

void weft_core_share_select(struct peer *p, size_t used, uint32_t bytes_max, uint32_t most,
                            struct tx_share *share_p)
{
    struct tx_share *s = share_p;
    uint64_t chosen = 0;
    size_t before = used + WEFT_BACKLOG_BYTES; /* offset at which the chunk of the last message
                                                * begins */
    s->count = 0;
    s->chunk_at = 0;
    s->first_passes = 0;
    while (s->count < most) {
        uint32_t chunk;
        bool again;
        struct tx_msg *m = weft_core_tx_peek_but(p, chosen, &chunk, &again);
        if (m == NULL || !tx_msg_shares(m)) {
            break;
        }
        uint32_t bytes = tx_chunk_bytes(m, 0);
        if (before > tx_control_room(bytes_max) ||
            before + WEFT_DATA_BYTES + bytes + WEFT_TAG_BYTES > bytes_max) {
            break;
        }
        chosen |= tx_bit(m->seq);
        s->msgs[s->count++] = m;
        s->chunk_at = (uint32_t)before;
        s->uncounted = s->first_passes;
        s->first_passes += !again;
        before += WEFT_MESSAGE_BYTES + bytes;
    }
    s->count = s->count < 2 ? 0 : s->count;
}

void weft_core_share_write(struct weft_ep *ep, struct peer *p, const struct tx_share *share,
                           bool answer, uint64_t now_ns, struct weft_writer *w)
{
    for (uint32_t i = 0; i + 1 < share->count; i++) {
        struct tx_msg *m = share->msgs[i];
        bool again = is_again(m);
        struct weft_wire_frame frame = {.type = WEFT_FRAME_MESSAGE};
        frame.message = (struct weft_wire_message){.priority = m->wire_priority,
                                                   .critical = m->critical,
                                                   .chunk_elems = m->chunk_elems,
                                                   .elem_bytes = m->elem_bytes,
                                                   .msg = (uint32_t)m->seq,
                                                   .total = m->total,
                                                   .tag = m->tag,
                                                   .payload = m->base};
        weft_wire_frame_encode(w, &frame);
        weft_core_tx_take(m, 0, again, now_ns);
        if (!again) {
            weft_core_egress_unsent(ep, p, -1);
        }
        tx_msg_shared(m, p->recovery.pn_next);
        tx_answer_mark(&p->tx, m->seq, answer);
        ep->counters.messages_shared++;
        trace(ep, p, WEFT_TRACE_MSG_SHARED, WEFT_TRACE_OUTGOING, p->recovery.pn_next,
              m->seq & UINT32_MAX, 0, tx_chunk_bytes(m, 0));
    }
    WEFT_ASSERT(!w->bad);
}

/* The messages in MESSAGE frames of packet pn, as bits. */
static uint64_t held_by(const struct peer *p, uint64_t pn)
{
    uint64_t messages = 0;
    for (uint64_t active = p->tx.active; active != 0; active &= active - 1) {
        const struct tx_msg *m = &p->tx.msgs[__builtin_ctzll(active)];
        messages |= m->shared_pn == pn ? tx_bit(m->seq) : 0;
    }
    return messages;
}

void weft_core_share_acked(struct peer *p, uint64_t pn, bool was_in_flight)
{
    for (uint64_t held = held_by(p, pn); held != 0; held &= held - 1) {
        weft_core_tx_acked(&p->tx.msgs[__builtin_ctzll(held)], 0, was_in_flight);
    }
}

void weft_core_share_lost(struct peer *p, uint64_t pn)
{
    for (uint64_t held = held_by(p, pn); held != 0; held &= held - 1) {
        struct tx_msg *m = &p->tx.msgs[__builtin_ctzll(held)];
        weft_core_tx_lost(m, 0);
        if (weft_core_tx_over(m)) {
            tx_finish_due(&p->tx, tx_bit(m->seq)); /* a copy of it was acknowledged */
        }
    }
}
