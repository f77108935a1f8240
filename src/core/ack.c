/* Acknowledging: when an ACK goes out, and what it says.
 *
 * Source: docs/PROTOCOL.md sections 3.1 and 5.
 */
#include "core/internal.h"

#include <string.h>

void weft_core_ack_owe(struct peer *p, uint64_t delay_ns, uint64_t now_ns)
{
    p->ack_pending++;
    p->ack_ns = weft_min_u64(p->ack_ns, now_ns + delay_ns);
    if (p->ack_pending >= ACK_EVERY) {
        p->ack_now = true;
    }
}

static size_t ack_notes(const struct peer *p, struct weft_wire_ack *ack)
{
    size_t count = 0;
    for (uint64_t live = p->rx_live; live != 0 && count < NOTES_MAX; live &= live - 1) {
        const struct rx_msg *m = &p->rx[__builtin_ctzll(live)];
        if (m->pass_over) {
            ack->notes[count].msg = (uint32_t)m->seq;
            ack->notes[count].received = m->received_count;
            count++;
        }
    }
    return count;
}

/* Fill in an ACK of at most `room` bytes (>= WEFT_ACK_BYTES) and note that it goes out. */
void weft_core_ack_fill(struct weft_ep *ep, struct peer *p, uint64_t now_ns,
                        struct weft_wire_ack *ack, size_t room)
{
    memset(ack, 0, offsetof(struct weft_wire_ack, words));
    ack->largest = p->pn_largest;
    if (p->pn_largest > 0) {
        ack->delay = wire_clock(now_ns) - wire_clock(p->pn_largest_ns);
        uint64_t newest = p->pn_largest / 64;
        uint64_t low = weft_min_u64(weft_min_u64(p->ack_low, p->ack_low_before), newest);
        uint64_t words = weft_min_u64(newest - low + 1, WEFT_ACK_WORDS_MAX);
        words = weft_min_u64(words, (room - WEFT_ACK_BYTES) / 8);
        ack->word_count = (uint8_t)words;
        for (uint64_t j = 0; j < words; j++) {
            ack->words[j] = p->rx_window[(newest - j) % RX_WINDOW_BLOCKS];
        }
        room -= words * 8;
    }
    if (p->srtt_ns != 0) {
        trace_rtt(ep, p); /* this end's own samples come with every DATA packet: too many */
    }
    ack->clock = wire_clock(now_ns);
    ack->ect = p->ect_received;
    ack->ce = p->ce_received;
    ack->credit = weft_core_credit_told(ep, p);
    ack->open_from = (uint32_t)p->tx_open_from;
    ack->flags = (p->announce_idle > 0 ? WEFT_ACK_IDLE : 0) |
                 (ep->config.confirm_later != 0 ? WEFT_ACK_LATER : 0);
    if (room >= WEFT_ACK_BYTES + NOTES_MAX * sizeof(struct weft_wire_note)) {
        ack->note_count = (uint8_t)ack_notes(p, ack);
    }
    p->announce_idle -= p->announce_idle > 0;
    p->ack_low_before = p->ack_low;
    p->ack_low = UINT64_MAX;
    p->ack_pending = 0;
    p->ack_now = false;
    p->ack_ns = WEFT_NEVER;
}
