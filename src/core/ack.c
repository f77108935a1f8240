/* Acknowledgements: the time and the contents of ACKs.
 *
 * A gap, the end of a first pass, DONE, FINISH and PING are acknowledged immediately. In the middle
 * of a first pass the sender does not wait for an ACK. There an ACK may be delayed by the time in
 * which the receiver's link transmits the packets in its queue: the sender has that many more
 * packets in flight, so the link is never idle. Before this rule, if a packet took longer than 100
 * us (at 100 Mbit/s, for example), nearly every packet was acknowledged separately, and ACKs were 8
 * % of the bytes.
 *
 * For the same reason a driver need not wake up for each packet: weft_ep_batch_ns.
 *
 * Each ACK announces the delay of the following ACKs, so that the sender's probe timeout includes
 * it.
 *
 * In all-to-all traffic each grant of credit is an ACK, and with their headers these packets were 2
 * % of the bytes. ACK_SHORT omits the fields that the receiver knows, and fits into a packet with a
 * full chunk.
 *
 * Source: docs/PROTOCOL.md sections 3.1 and 5; the QUIC extension for acknowledgement frequency
 * (draft-ietf-quic-ack-frequency), where the sender chooses the delay. Here the receiver chooses
 * it, because the receiver grants the credit that makes up the queue.
 */
#include "core/internal.h"

#include <string.h>

enum {
    LOSSY_ROUNDS = 16, /* for this many round trips after a gap, ACKs are not delayed as long */
    FEW_PACKETS = 4,
    FEW_LOSSES_PPM = 30000,
    BATCH_PACKETS = 4,       /* no batching of fewer packets */
    BATCH_SHARE = 4,         /* fraction of the packets in flight to wait for */
    SHORT_AHEAD_MAX = 64,    /* increase of open_from and ce since the last long ACK, of which
                              * ACK_SHORT has the low 8 bits */
    SHORT_NUMBERS_MAX = 256, /* packet numbers between two long ACKs: ACK_SHORT lacks the clock and
                              * the count of ECT */
    SHORT_MASK_LAST = 63,
    SHORT_DELAY_SHIFT = 10,
};

static const uint64_t ack_delay_ns_max = 250 * WEFT_NS_PER_MS;

/* The loss rate is below 3 %. */
static bool few_losses(const struct weft_ep *ep)
{
    return ep->credit.loss_ppm < FEW_LOSSES_PPM;
}

/* In round-robin mode the next grant to a sender follows after the grants to all others, and
 * acknowledges the packets sent by then. A sender has credit for at most two turns, so it does not
 * need an ACK between two grants. This does not apply once its messages are complete, because the
 * delay announced then is that of the first packets of its next message. It applies fully only with
 * few losses: a gap is acknowledged immediately, and the next grant repeats a lost ACK. With 5 %
 * loss, where one grant in twenty is lost, rounds took 1 % longer. With such losses the delay is a
 * third of a turn: with a shorter delay, nearly each packet of a slow link was acknowledged
 * separately. */
static uint64_t turn_ns(const struct weft_ep *ep, const struct peer *p, uint64_t packet_ns)
{
    uint64_t round_ns = p->rx.live == 0 ? 0 : (uint64_t)ep->credit.turn_packets * packet_ns;
    return few_losses(ep) ? round_ns + round_ns / 4 : round_ns / 3;
}

/* Limits of the batching pause. A pause costs a timer. Without a pause, every few packets wake up
 * the receiver; if both are on one host, the sender's CPU does this with an interrupt to the other
 * processor. Longer pauses saved no more CPU time, and rounds of an incast ended later. */
static const uint64_t batch_ns_min = 50 * WEFT_NS_PER_US;
static const uint64_t batch_ns_max = 100 * WEFT_NS_PER_US;

/* Maximum delay of the ACK of a chunk in the middle of a first pass: 7/8 of the time that the queue
 * lasts, or four packets without a queue; in round-robin mode, until the next turn. On lossy paths
 * ACKs are lost, too, and a lost ACK must not delay the sender for longer than the queue lasts. In
 * round-robin mode, however, senders wait for credit, and each grant is an ACK: with more ACKs
 * after a loss there were 23 for 45 chunks instead of 13, 2 % of the bytes, and no loss was
 * retransmitted earlier. */
static uint64_t delay_choose(const struct weft_ep *ep, const struct peer *p, uint64_t now_ns)
{
    if (ep->credit.pause_ns == WEFT_NEVER) {
        return 0; /* the link rate is not known yet */
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
        /* The queue that credit allows. */
        uint64_t standing_ns = ep->credit.at_once_host * packet_ns;
        delay_ns = weft_min_u64(queue_ns - queue_ns / 8, standing_ns);
        /* With fewer packets in a round trip, the sender may be limited by its window. */
        bool many = p->recovery.srtt_ns / 2 >= few_ns;
        delay_ns = weft_max_u64(delay_ns, many ? weft_min_u64(few_ns, p->recovery.srtt_ns / 4) : 0);
    }
    delay_ns = weft_max_u64(delay_ns, turn_ns(ep, p, packet_ns));
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

/* Choose the maximum delay of the ACKs that follow; returns the step that announces it. */
static uint8_t delay_announce(const struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    uint8_t step = weft_wire_ack_delay_step(delay_choose(ep, p, now_ns));
    p->ack.delay_ns = weft_wire_ack_delay_ns(step);
    return step;
}

static void ack_sent(struct ack *a, uint64_t now_ns)
{
    a->low_before = a->low;
    a->low = UINT64_MAX;
    a->pending = 0;
    a->at_once = false;
    a->sent_ns = now_ns;
    a->due_ns = WEFT_NEVER;
}

/* Compose an ACK of at most `room` bytes (>= WEFT_ACK_BYTES) and record it as sent. */
void weft_core_ack_fill(struct weft_ep *ep, struct peer *p, uint64_t now_ns,
                        struct weft_wire_ack *ack, size_t room)
{
    memset(ack, 0, offsetof(struct weft_wire_ack, words));
    ack->largest = p->ack.largest;
    if (p->ack.largest > 0) {
        ack->delay = wire_clock(now_ns) - wire_clock(p->ack.largest_ns);
        uint64_t newest = p->ack.largest / 64;
        uint64_t low = weft_min_u64(weft_min_u64(p->ack.low, p->ack.low_before) / 64, newest);
        uint64_t words = weft_min_u64(newest - low + 1, WEFT_ACK_WORDS_MAX);
        words = weft_min_u64(words, (room - WEFT_ACK_BYTES) / 8);
        ack->word_count = (uint8_t)words;
        for (uint64_t j = 0; j < words; j++) {
            ack->words[j] = p->ack.window[(newest - j) % RX_WINDOW_BLOCKS];
        }
        room -= words * 8;
    }
    if (p->recovery.srtt_ns != 0) {
        trace_rtt(ep, p); /* one record per ACK: there is a sample for every DATA packet */
    }
    ack->delay_step = delay_announce(ep, p, now_ns);
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
    p->ack.told_largest = ack->largest;
    p->ack.told_from = ack->open_from;
    p->ack.told_ce = ack->ce;
    ack_sent(&p->ack, now_ns);
}

static bool passes_over(const struct peer *p)
{
    for (uint64_t live = p->rx.live; live != 0; live &= live - 1) {
        if (p->rx.msgs[__builtin_ctzll(live)].pass_over) {
            return true; /* a long ACK has notes */
        }
    }
    return false;
}

static bool short_enough(const struct peer *p, uint64_t now_ns)
{
    const struct ack *a = &p->ack;
    uint64_t low = weft_min_u64(weft_min_u64(a->low, a->low_before), a->largest);
    return a->largest > 0 && a->largest - low <= SHORT_MASK_LAST &&
           a->largest - a->told_largest < SHORT_NUMBERS_MAX &&
           (uint32_t)p->tx.open_from - a->told_from < SHORT_AHEAD_MAX &&
           a->ce_received - a->told_ce < SHORT_AHEAD_MAX &&
           (now_ns - a->largest_ns) >> SHORT_DELAY_SHIFT <= UINT16_MAX &&
           p->recovery.srtt_ns != 0 && !passes_over(p);
}

static void short_fill(struct weft_ep *ep, struct peer *p, uint64_t now_ns,
                       struct weft_wire_ack_short *ack)
{
    const struct ack *a = &p->ack;
    uint64_t block = a->largest / 64;
    unsigned above = SHORT_MASK_LAST - (unsigned)(a->largest % 64); /* numbers of the block */
    uint64_t mask = a->window[block % RX_WINDOW_BLOCKS] << above;
    if (above > 0 && block > 0) {
        mask |= a->window[(block - 1) % RX_WINDOW_BLOCKS] >> (64 - above);
    }
    trace_rtt(ep, p);
    *ack = (struct weft_wire_ack_short){
        .flags = ep->config.confirm_later != 0 ? WEFT_ACK_LATER : 0,
        .delay_step = delay_announce(ep, p, now_ns),
        .largest = (uint32_t)a->largest,
        .delay = (uint16_t)((now_ns - a->largest_ns) >> SHORT_DELAY_SHIFT),
        .credit = (uint16_t)weft_core_credit_told(ep, p),
        .open_from = (uint8_t)p->tx.open_from,
        .ce = (uint8_t)a->ce_received,
        .mask = mask,
    };
    ack_sent(&p->ack, now_ns);
}

/* In round-robin mode each end gets credit from all others, so it sends many ACKs to peers that
 * also send chunks to it. A long ACK has the clock and counts for an end that only receives; an end
 * that also sends measures round trips by the acknowledgements of its own chunks. ACK_SHORT is sent
 * in a packet with the next chunk, which is then sent out of its turn, or alone if no chunk may be
 * sent. */
bool weft_core_ack_short_write(struct weft_ep *ep, struct peer *p, uint64_t now_ns,
                               struct weft_writer *w)
{
    bool alone = p->rx.need_done == 0 && p->tx.finish == 0 && !p->tx.need_backlog &&
                 !p->conn.need_ping && !p->path.response_due && p->conn.announce_idle == 0;
    if (!alone || !ep->credit.turns || p->tx.active == 0 || !short_enough(p, now_ns)) {
        return false;
    }
    struct weft_wire_frame frame;
    frame.type = WEFT_FRAME_ACK_SHORT;
    short_fill(ep, p, now_ns, &frame.ack_short);
    weft_wire_frame_encode(w, &frame);
    return true;
}
