/* Acknowledging: when an ACK goes out, and what it says.
 *
 * In the middle of a pass nobody waits for an ACK: a gap, the end of the pass, DONE, FINISH and PING
 * are answered at once. There an ACK may wait as long as the packets that stand in queues before the
 * receiver's link last, for the sender has as many more on their way: the link does not run dry when
 * they are acknowledged late. Where a packet takes longer than 100 us, at 100 Mbit/s say, nearly each one
 * was acknowledged by itself, which took 8 % of the bytes.
 *
 * For the same reason a driver need not wake for each packet: weft_ep_batch_ns.
 *
 * The delay is announced in each ACK and holds from then on, so the sender's probe timeout knows it.
 *
 * Source: docs/PROTOCOL.md sections 3.1 and 5; the QUIC extension for acknowledgement frequency
 * (draft-ietf-quic-ack-frequency), where the sender chooses the delay. Here it is the receiver, which
 * grants the credit that the queue is made of.
 */
#include "core/internal.h"

#include <string.h>

enum {
    LOSSY_ROUNDS = 16,    /* so many round trips after a gap every ACK is worth more */
    FEW_PACKETS = 4,
    FEW_LOSSES_PPM = 30000,
    BATCH_PACKETS = 4, /* fewer are not worth a pause */
    BATCH_SHARE = 4,   /* of what is on its way */
};

static const uint64_t ack_delay_ns_max = 250 * WEFT_NS_PER_MS;

/* Of 100 ACKs fewer than 3 are lost. */
static bool few_losses(const struct weft_ep *ep)
{
    return ep->credit.loss_ppm < FEW_LOSSES_PPM;
}

/* Where senders take turns, a sender's next grant comes after all others have had theirs, and
 * acknowledges what it has sent by then: an ACK between two turns tells it nothing that it needs, for
 * it has no more credit than for two turns at most. Not when its messages are there: the delay that is
 * announced then is that of its next message's first packets. Where few packets are lost,
 * too: a gap is acknowledged at once, and of an ACK that is lost the next grant tells the same. With 5 %
 * lost, one grant in twenty among them, rounds took 1 % longer. */
static uint64_t turn_ns(const struct weft_ep *ep, const struct peer *p, uint64_t packet_ns)
{
    if (p->rx.live == 0 || !few_losses(ep)) {
        return 0;
    }
    uint64_t round_ns = (uint64_t)ep->credit.turn_packets * packet_ns;
    return round_ns + round_ns / 4;
}

/* A pause costs a timer. Without one each few packets end a sleep, which on one host is the sender's work: an
 * interrupt to the other processor. Longer pauses saved no more, and rounds of an incast ended later. */
static const uint64_t batch_ns_min = 50 * WEFT_NS_PER_US;
static const uint64_t batch_ns_max = 100 * WEFT_NS_PER_US;

/* How long the acknowledgement of a chunk in the middle of a pass may wait: 7/8 of what the queue lasts,
 * or four packets where there is none; where senders take turns, until the next one. Where packets are
 * lost ACKs are, too, and one that is lost must not cost the sender more than the queue. But where
 * senders take turns it is credit that they lack, which comes with an ACK of its own: there ACKs after a
 * loss were 23 for 45 chunks instead of 13, 2 % of the bytes, and repaired nothing sooner. */
static uint64_t delay_choose(const struct weft_ep *ep, const struct peer *p, uint64_t now_ns)
{
    if (ep->credit.pause_ns == WEFT_NEVER) {
        return 0; /* the rate of the link is not known yet */
    }
    uint64_t packet_ns = ep->credit.pause_ns / PAUSE_PACKETS;
    uint64_t base_ns = weft_time_add(p->recovery.rtt_ns_min, packet_ns); /* of a full packet */
    uint64_t queue_ns = p->recovery.srtt_ns > base_ns ? p->recovery.srtt_ns - base_ns : 0;
    uint64_t few_ns = FEW_PACKETS * packet_ns;
    uint64_t delay_ns;
    bool lossy = p->ack.gap_ns != 0 && now_ns - p->ack.gap_ns < LOSSY_ROUNDS * p->recovery.srtt_ns;
    if (lossy && !(ep->credit.turns && few_losses(ep))) {
        delay_ns = weft_min_u64(queue_ns / 4, few_ns);
    } else {
        /* What credit keeps in queues. */
        uint64_t standing_ns = ep->credit.at_once_host * packet_ns;
        delay_ns = weft_min_u64(queue_ns - queue_ns / 8, standing_ns);
        /* Fewer in a round trip: they may be all that its window lets out. */
        bool many = p->recovery.srtt_ns / 2 >= few_ns;
        delay_ns = weft_max_u64(delay_ns, many ? weft_min_u64(few_ns, p->recovery.srtt_ns / 4) : 0);
        delay_ns = weft_max_u64(delay_ns, turn_ns(ep, p, packet_ns));
    }
    return weft_min_u64(delay_ns, ack_delay_ns_max);
}

uint64_t weft_ep_batch_ns(const struct weft_ep *ep)
{
    const struct credit *c = &ep->credit;
    if (c->active == 0 || c->pause_ns == WEFT_NEVER || ep->egress.receivers > 0) {
        return 0;
    }
    uint64_t packet_ns = c->pause_ns / PAUSE_PACKETS;
    uint64_t ns = weft_min_u64(c->total / BATCH_SHARE * packet_ns, batch_ns_max);
    return ns < weft_max_u64(batch_ns_min, BATCH_PACKETS * packet_ns) ? 0 : ns;
}

uint64_t weft_core_ack_delay(const struct peer *p, bool ce)
{
    return ce ? weft_max_u64(p->ack.delay_ns / 4, ack_delay_ns_min) : p->ack.delay_ns;
}

static size_t ack_notes(const struct peer *p, struct weft_wire_ack *ack)
{
    size_t count = 0;
    for (uint64_t live = p->rx.live; live != 0 && count < NOTES_MAX; live &= live - 1) {
        const struct rx_msg *m = &p->rx.msgs[__builtin_ctzll(live)];
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
    ack->largest = p->ack.largest;
    if (p->ack.largest > 0) {
        ack->delay = wire_clock(now_ns) - wire_clock(p->ack.largest_ns);
        uint64_t newest = p->ack.largest / 64;
        uint64_t low = weft_min_u64(weft_min_u64(p->ack.low, p->ack.low_before), newest);
        uint64_t words = weft_min_u64(newest - low + 1, WEFT_ACK_WORDS_MAX);
        words = weft_min_u64(words, (room - WEFT_ACK_BYTES) / 8);
        ack->word_count = (uint8_t)words;
        for (uint64_t j = 0; j < words; j++) {
            ack->words[j] = p->ack.window[(newest - j) % RX_WINDOW_BLOCKS];
        }
        room -= words * 8;
    }
    if (p->recovery.srtt_ns != 0) {
        trace_rtt(ep, p); /* this end's own samples come with every DATA packet: too many */
    }
    ack->delay_step = weft_wire_ack_delay_step(delay_choose(ep, p, now_ns));
    p->ack.delay_ns = weft_wire_ack_delay_ns(ack->delay_step);
    ack->clock = wire_clock(now_ns);
    ack->ect = p->ack.ect_received;
    ack->ce = p->ack.ce_received;
    ack->credit = weft_core_credit_told(ep, p);
    ack->open_from = (uint32_t)p->tx.open_from;
    ack->flags = (p->conn.announce_idle > 0 ? WEFT_ACK_IDLE : 0) |
                 (ep->config.confirm_later != 0 ? WEFT_ACK_LATER : 0);
    if (room >= WEFT_ACK_BYTES + NOTES_MAX * sizeof(struct weft_wire_note)) {
        ack->note_count = (uint8_t)ack_notes(p, ack);
    }
    conn_idle_announced(&p->conn);
    p->ack.low_before = p->ack.low;
    p->ack.low = UINT64_MAX;
    p->ack.pending = 0;
    p->ack.at_once = false;
    p->ack.sent_ns = now_ns;
    p->ack.due_ns = WEFT_NEVER;
}
