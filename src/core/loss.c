/* Acknowledgements, round-trip time, loss detection and the probe timeout.
 *
 * The algorithms follow RFC 9002, with a granularity of 100 us instead of 1 ms. Unlike TCP's in
 * Linux, timeouts have no minimum of 200 ms. Packets in flight are in a ring indexed by packet
 * number, with two bitmaps (in flight; declared lost). The words of an ACK are aligned to 64 packet
 * numbers as the bitmaps are, so an ACK costs a few AND operations and one step for each packet
 * that it acknowledges.
 *
 * Source: docs/PROTOCOL.md section 5; RFC 9002 sections 5 and 6.
 */
#include "core/internal.h"

#include "base/assert.h"

enum {
    ANSWER_FACTOR = 4,
    ANSWER_DECAY = 8, /* with each measurement, by this fraction */
    ANSWER_DECAY_CLEAN = 128,
    OUTLIER_FACTOR = 8,
    TURN_PROBES_MAX = 2,
    SHORT_OVERTAKEN_MAX = 128, /* the credit granted in so many packets is far below 2^15 */
};

/* Maximum time that a process waits for a processor on a host that is not overloaded; and the part
 * of it that is allowed for without recent losses, however short the round trips are. */
static const uint64_t answer_ns_max = 100 * WEFT_NS_PER_MS;
static const uint64_t answer_ns_clean = 20 * WEFT_NS_PER_MS;
static const uint64_t turn_ns_max = 20 * WEFT_NS_PER_MS;
static const uint64_t late_ns_first = 10 * WEFT_NS_PER_MS;
static const uint64_t rtt_ns_first_max = 100 * WEFT_NS_PER_MS;
static const uint64_t rtt_ns_most = 10 * WEFT_NS_PER_S;

/* ---- round-trip time ------------------------------------------------------------------------- */

/* RTT sample for congestion control, which must include only the delay of the network. A peer that
 * waits for a processor causes no queue at a link; after a reduction of the window the link would
 * be idle when the peer runs again. */
static void path_sample(struct peer *p, uint64_t rtt_ns, uint64_t delay_ns)
{
    uint64_t least_ns = weft_min_u64(p->recovery.rtt_ns_min, rtt_ns);
    uint64_t path_ns = rtt_ns >= least_ns + delay_ns ? rtt_ns - delay_ns : rtt_ns;
    uint64_t most_ns = OUTLIER_FACTOR * weft_max_u64(p->recovery.path_rtt_ns, granularity_ns);
    path_ns = p->recovery.path_rtt_ns == 0 ? weft_min_u64(path_ns, rtt_ns_first_max)
                                           : weft_min_u64(path_ns, most_ns);
    p->recovery.path_rtt_ns =
        p->recovery.path_rtt_ns == 0 ? path_ns : (7 * p->recovery.path_rtt_ns + path_ns) / 8;
}

void weft_core_rtt_sample(struct peer *p, uint64_t rtt_ns, uint64_t delay_ns)
{
    if (rtt_ns > rtt_ns_most) {
        return; /* one of the processes was suspended meanwhile */
    }
    rtt_ns = weft_max_u64(rtt_ns, 1000);
    path_sample(p, rtt_ns, delay_ns);
    /* A delay above the announced maximum is due to work of the peer (for example an optimizer
     * step). The probe timeout must allow for it, so it remains in the sample, as in RFC 9002
     * section 5.3, but only in part: an earlier acknowledgement may have been lost, and then the
     * delay lasts until the peer's next packet, possibly seconds. */
    uint64_t stays_ns =
        p->recovery.srtt_ns == 0 ? late_ns_first : ANSWER_FACTOR * weft_core_pto_base(p);
    uint64_t agreed_ns = weft_min_u64(delay_ns, p->recovery.peer_delay_ns);
    delay_ns = weft_max_u64(agreed_ns, delay_ns > stays_ns ? delay_ns - stays_ns : 0);
    p->recovery.rtt_ns_min = weft_min_u64(p->recovery.rtt_ns_min, rtt_ns);
    if (rtt_ns >= p->recovery.rtt_ns_min + delay_ns) {
        rtt_ns -= delay_ns;
    }
    /* One outlier must not delay the probes for seconds. A permanent increase of the round-trip
     * time is reached after two or three samples. */
    uint64_t most_ns = p->recovery.srtt_ns == 0
                           ? rtt_ns_first_max
                           : OUTLIER_FACTOR * weft_max_u64(p->recovery.srtt_ns, granularity_ns);
    rtt_ns = weft_min_u64(rtt_ns, most_ns);
    p->recovery.rtt_latest_ns = rtt_ns;
    if (p->recovery.srtt_ns == 0) {
        p->recovery.srtt_ns = rtt_ns;
        p->recovery.rttvar_ns = rtt_ns / 2;
        return;
    }
    uint64_t diff_ns =
        p->recovery.srtt_ns > rtt_ns ? p->recovery.srtt_ns - rtt_ns : rtt_ns - p->recovery.srtt_ns;
    p->recovery.rttvar_ns = (3 * p->recovery.rttvar_ns + diff_ns) / 4;
    p->recovery.srtt_ns = (7 * p->recovery.srtt_ns + rtt_ns) / 8;
}

/* The RTT is sampled on the newest packet of a batch. An overloaded host receives its datagrams in
 * large batches, and the oldest of each has waited longest. A timeout that ignores this would probe
 * for packets in the peer's socket. The announced ACK delay is already part of the timeout.
 *
 * A worker that computes between two messages answers late once a step, and many acknowledgements
 * arrive in between. So without recent losses either way, when a probe is probably needless,
 * probes wait for a second maximum that decays more slowly: with 1/8, a worker of a training job
 * without loss was probed once a step. */
static void answer_note(const struct weft_ep *ep, struct peer *p, uint64_t oldest_sent_ns,
                        uint64_t at_ns)
{
    struct recovery *r = &p->recovery;
    r->clean = path_clean(ep, p, at_ns);
    uint64_t decay = r->clean ? ANSWER_DECAY_CLEAN : ANSWER_DECAY;
    uint64_t sent_ns = oldest_sent_ns + (r->peer_delay_ns - ack_delay_ns_min);
    uint64_t wait_ns = at_ns > sent_ns ? at_ns - sent_ns : 0;
    r->answer_ns = weft_max_u64(wait_ns, r->answer_ns - r->answer_ns / ANSWER_DECAY);
    r->answer_long_ns = weft_max_u64(wait_ns, r->answer_long_ns - r->answer_long_ns / decay);
}

/* ---- the ring of packets --------------------------------------------------------------------- */

static struct tx_packet *packet_at(const struct weft_ep *ep, const struct peer *p, uint64_t pn)
{
    return &p->recovery.packets[pn & (ep->config.tx_window_max - 1)];
}

static uint64_t *bits_word(const struct weft_ep *ep, uint64_t *bits, uint64_t pn)
{
    return &bits[(pn & (ep->config.tx_window_max - 1)) / 64]; /* a power of two: no division */
}

static void oldest_advance(struct weft_ep *ep, struct peer *p)
{
    uint64_t pn = p->recovery.pn_oldest;
    while (pn < p->recovery.pn_next) {
        uint64_t word = *bits_word(ep, p->recovery.in_flight_bits, pn) & (UINT64_MAX << (pn % 64));
        if (p->recovery.in_flight_count == 0) {
            pn = p->recovery.pn_next;
        } else if (word != 0) {
            pn = (pn & ~UINT64_C(63)) + (uint64_t)__builtin_ctzll(word);
            break;
        } else {
            pn = (pn | 63) + 1;
        }
    }
    p->recovery.pn_oldest = weft_min_u64(pn, p->recovery.pn_next);
}

static bool packet_in_flight(const struct weft_ep *ep, struct peer *p, uint64_t pn)
{
    return pn < p->recovery.pn_next &&
           ((*bits_word(ep, p->recovery.in_flight_bits, pn) >> (pn % 64)) & 1) != 0;
}

static bool answer_at(const struct weft_ep *ep, const struct peer *p, uint64_t pn)
{
    return (packet_at(ep, p, pn)->kind & TX_PACKET_ANSWER) != 0;
}

/* The oldest packet in flight whose acknowledgement is not delayed; pn_next: none. Few packets
 * precede it: what may be acknowledged late is acknowledged after LATE_NUMBERS_MAX numbers. */
static uint64_t oldest_prompt(const struct weft_ep *ep, const struct peer *p)
{
    uint64_t pn = p->recovery.pn_oldest;
    while (pn < p->recovery.pn_next && recovery_due_count(&p->recovery) > 0) {
        uint64_t word = *bits_word(ep, p->recovery.in_flight_bits, pn) & (UINT64_MAX << (pn % 64));
        for (; word != 0; word &= word - 1) {
            uint64_t at = pn / 64 * 64 + (uint64_t)__builtin_ctzll(word);
            if (at >= p->recovery.pn_next || !answer_at(ep, p, at)) {
                return weft_min_u64(at, p->recovery.pn_next);
            }
        }
        pn = (pn / 64 + 1) * 64;
    }
    return p->recovery.pn_next;
}

static void packet_resolve(struct peer *p, const struct tx_packet *packet)
{
    p->recovery.in_flight_bytes -= packet->bytes;
    p->recovery.in_flight_count--;
    p->recovery.late_count -= tx_packet_late(packet->kind);
}

/* ---- losses ---------------------------------------------------------------------------------- */

/* Schedule FINISH for messages that are over or past their deadline, because the receiver perhaps
 * does not know that. */
static void finish_again(struct peer *p)
{
    for (uint64_t active = p->tx.active; active != 0; active &= active - 1) {
        unsigned slot = (unsigned)__builtin_ctzll(active);
        if (p->tx.msgs[slot].finish_short || weft_core_tx_over(&p->tx.msgs[slot])) {
            tx_finish_due(&p->tx, UINT64_C(1) << slot);
        }
    }
}

/* A size probe is too long, and the first chunks may have been refused: the peer often has posted
 * no memory for them when the connection opens. Neither says that the path loses packets. */
static bool lost_by_path(const struct peer *p, const struct tx_packet *packet, uint64_t pn)
{
    bool early = (packet->kind & TX_PACKET_DATA) != 0 && pn < p->recovery.pn_data_acked_least;
    return (packet->kind & TX_PACKET_MTU) == 0 && !early;
}

static void packet_lost(struct weft_ep *ep, struct peer *p, uint64_t pn, uint64_t now_ns)
{
    struct tx_packet *packet = packet_at(ep, p, pn);
    uint64_t bit = UINT64_C(1) << (pn % 64);
    *bits_word(ep, p->recovery.in_flight_bits, pn) &= ~bit;
    *bits_word(ep, p->recovery.lost_bits, pn) |= bit;
    packet_resolve(p, packet);
    ep->counters.lost_packets++;
    if (lost_by_path(p, packet, pn)) {
        ep->lost_ns = now_ns;
        p->recovery.clean = false;
    }
    trace(ep, p, WEFT_TRACE_PACKET_LOST, packet->kind, pn, packet->msg, packet->chunk,
          packet->bytes);
    weft_core_path_lost(ep, p, pn, packet);
    if (packet->kind & TX_PACKET_DATA) {
        struct tx_msg *m = weft_core_tx_find(p, packet->msg);
        if (m != NULL) {
            weft_core_tx_lost(m, packet->chunk);
            weft_core_pace_lost(p, m, now_ns);
            if (weft_core_tx_over(m)) {
                tx_finish_due(&p->tx, tx_bit(m->seq));
            }
        }
    }
    if (packet->kind & TX_PACKET_SHARED) {
        weft_core_share_lost(p, pn);
    }
    if (packet->kind & TX_PACKET_DONE) {
        weft_core_rx_done_lost(&p->rx, pn);
    }
    if (packet->kind & TX_PACKET_CRITICAL) {
        weft_core_critical_packet_lost(p, packet->msg, packet->chunk);
    }
    if (packet->kind & TX_PACKET_FINISH) {
        finish_again(p);
    }
    tx_backlog_due(&p->tx, (packet->kind & TX_PACKET_BACKLOG) != 0);
}

/* A packet in the middle of a first pass: its acknowledgement may be delayed by peer_delay_ns. */
static bool bulk(struct peer *p, uint16_t kind, uint32_t msg)
{
    bool chunk_alone = (kind & ~(TX_PACKET_PROBE | TX_PACKET_BACKLOG)) == TX_PACKET_DATA;
    const struct tx_msg *m = chunk_alone ? weft_core_tx_find(p, msg) : NULL;
    return m != NULL && m->pass_next < m->chunks;
}

void weft_core_packet_sent(struct weft_ep *ep, struct peer *p, uint64_t now_ns, uint16_t kind,
                           uint32_t msg, uint32_t chunk, uint32_t bytes)
{
    /* Incremented below: oldest_advance must not skip this packet. */
    uint64_t pn = p->recovery.pn_next;
    uint64_t bit = UINT64_C(1) << (pn % 64);
    while (p->recovery.pn_oldest + ep->config.tx_window_max <= pn) {
        /* Chunks do not use the last entries of the ring, but many packets with only ACKs can still
         * reach its end while an old packet is in flight. */
        oldest_advance(ep, p);
        if (p->recovery.pn_oldest + ep->config.tx_window_max <= pn) {
            packet_lost(ep, p, p->recovery.pn_oldest, now_ns);
            oldest_advance(ep, p);
        }
    }
    p->recovery.pn_next++;
    trace(ep, p, WEFT_TRACE_PACKET_SENT, kind, pn, msg, chunk, bytes);
    *bits_word(ep, p->recovery.lost_bits, pn) &= ~bit;
    if (kind == 0) { /* packets with only ACKs are not tracked */
        if (p->recovery.in_flight_count == 0) {
            p->recovery.pn_oldest = p->recovery.pn_next;
        }
        return;
    }
    *packet_at(ep, p, pn) = (struct tx_packet){
        .sent_ns = now_ns,
        .msg = msg,
        .chunk = chunk,
        .bytes = (uint16_t)bytes,
        .kind = kind,
        .ect = weft_core_ecn_marks(ep, p),
    };
    weft_core_ecn_sent(p);
    p->recovery.bulk_last = bulk(p, kind, msg);
    *bits_word(ep, p->recovery.in_flight_bits, pn) |= bit;
    p->recovery.in_flight_bytes += bytes;
    p->recovery.in_flight_count++;
    p->recovery.late_count += tx_packet_late(kind);
    p->recovery.pto_base_ns = now_ns;
}

/* Packet threshold of loss detection. When no more packets are to be sent, fewer than three follow
 * the last ones; one is then enough, on a path that has not reordered packets yet (early
 * retransmit, RFC 5827). A spurious retransmission costs one packet. */
static uint32_t reorder_allowed(const struct peer *p)
{
    if (p->recovery.reorder_threshold > REORDER_FIRST) {
        return p->recovery.reorder_threshold;
    }
    for (uint64_t active = tx_awake(p); active != 0; active &= active - 1) {
        const struct tx_msg *m = &p->tx.msgs[__builtin_ctzll(active)];
        if (m->pass_next < m->chunks && !m->finish_short) {
            return p->recovery.reorder_threshold;
        }
    }
    return 1;
}

/* Declare packets lost as in RFC 9002 section 6.1. Returns their number, and arms the timer for
 * packets that will be lost by the time threshold. */
static uint32_t losses_detect(struct weft_ep *ep, struct peer *p, uint64_t now_ns,
                              uint64_t *sent_ns_p)
{
    uint64_t rtt_ns = weft_max_u64(p->recovery.srtt_ns, p->recovery.rtt_latest_ns);
    rtt_ns = rtt_ns == 0 ? initial_rtt_ns : rtt_ns;
    uint64_t wait_ns = weft_max_u64(rtt_ns + rtt_ns / 8, granularity_ns);
    uint32_t lost = 0;
    p->recovery.loss_ns = WEFT_NEVER;
    oldest_advance(ep, p);
    uint32_t threshold = reorder_allowed(p);
    uint64_t pn = p->recovery.pn_oldest;
    while (pn < p->recovery.pn_acked_largest) {
        if ((*bits_word(ep, p->recovery.in_flight_bits, pn) >> (pn % 64)) & 1) {
            uint64_t due_ns = packet_at(ep, p, pn)->sent_ns + wait_ns;
            if (pn + threshold > p->recovery.pn_acked_largest && due_ns > now_ns) {
                p->recovery.loss_ns = due_ns;
                break; /* later packets were sent later */
            }
            /* The loss of a size probe does not indicate congestion. That of the first packets
             * counts, even if they were probably refused: a full queue that drops the start of the
             * first flight looks the same. */
            if ((packet_at(ep, p, pn)->kind & TX_PACKET_MTU) == 0) {
                *sent_ns_p =
                    packet_at(ep, p, pn)->sent_ns; /* packet numbers are in sending order */
                lost++;
            }
            packet_lost(ep, p, pn, now_ns);
        }
        pn++;
    }
    oldest_advance(ep, p);
    return lost;
}

static void cc_tell(struct peer *p, uint64_t now_ns, struct weft_cc_sample *sample)
{
    if (sample->acked_packets == 0 && sample->lost_packets == 0) {
        return;
    }
    sample->now_ns = now_ns;
    sample->srtt_ns = p->recovery.path_rtt_ns;
    sample->kept_ns = p->recovery.peer_delay_ns;
    sample->rtt_ns_min = p->recovery.rtt_ns_min;
    sample->round_end = p->recovery.pn_acked_largest >= p->recovery.round_end_pn;
    if (sample->round_end) {
        p->recovery.round_end_pn = p->recovery.pn_next;
    }
    p->cc.ops->on_ack(&p->cc, sample);
}

void weft_core_loss_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    struct weft_cc_sample sample = {.in_flight_bytes = p->recovery.in_flight_bytes};
    sample.lost_packets = losses_detect(ep, p, now_ns, &sample.lost_sent_ns);
    cc_tell(p, now_ns, &sample);
    trace_round(ep, p, &sample);
}

/* ---- acknowledgements ------------------------------------------------------------------------ */

static void packet_acked(struct weft_ep *ep, struct peer *p, uint64_t pn, bool in_flight,
                         struct weft_cc_sample *sample)
{
    struct tx_packet *packet = packet_at(ep, p, pn);
    trace(ep, p, in_flight ? WEFT_TRACE_PACKET_ACKED : WEFT_TRACE_PACKET_SPURIOUS, packet->kind, pn,
          packet->msg, packet->chunk, packet->bytes);
    if (in_flight) {
        packet_resolve(p, packet);
        sample->acked_bytes += packet->bytes;
        sample->acked_packets++;
    } else {
        ep->counters.spurious_losses++;
        p->recovery.reorder_threshold =
            (uint32_t)weft_min_u64(2 * (uint64_t)p->recovery.reorder_threshold, 256);
    }
    weft_core_path_acked(ep, p, pn, packet);
    if (packet->kind & TX_PACKET_DATA) {
        p->recovery.pn_data_acked_least = weft_min_u64(p->recovery.pn_data_acked_least, pn);
        struct tx_msg *m = weft_core_tx_find(p, packet->msg);
        if (m != NULL) {
            weft_core_tx_acked(m, packet->chunk, in_flight);
            weft_core_critical_wake(p, m);
        }
        if (packet->kind & TX_PACKET_SHARED) {
            weft_core_share_acked(p, pn, in_flight);
        }
    }
}

static void ack_word(struct weft_ep *ep, struct peer *p, uint64_t block, uint64_t word,
                     uint64_t pn_low, struct weft_cc_sample *sample)
{
    uint64_t first = block * 64;
    if (first < pn_low) {
        word &= UINT64_MAX << (pn_low - first); /* below pn_low, the ring has newer packets */
    }
    uint64_t *in_flight = bits_word(ep, p->recovery.in_flight_bits, first);
    uint64_t *lost = bits_word(ep, p->recovery.lost_bits, first);
    uint64_t hit = word & *in_flight;
    *in_flight &= ~hit;
    for (; hit != 0; hit &= hit - 1) {
        packet_acked(ep, p, first + (uint64_t)__builtin_ctzll(hit), true, sample);
    }
    hit = word & *lost;
    *lost &= ~hit;
    for (; hit != 0; hit &= hit - 1) {
        packet_acked(ep, p, first + (uint64_t)__builtin_ctzll(hit), false, sample);
    }
}

static void ack_words(struct weft_ep *ep, struct peer *p, const struct weft_wire_ack *ack,
                      struct weft_cc_sample *sample)
{
    uint64_t ring = ep->config.tx_window_max;
    uint64_t pn_low = p->recovery.pn_next > ring ? p->recovery.pn_next - ring : 1;
    for (unsigned j = 0; j < ack->word_count; j++) {
        uint64_t block = ack->largest / 64 - j;
        if (block * 64 + 63 < pn_low) {
            break;
        }
        ack_word(ep, p, block, ack->words[j], pn_low, sample);
    }
}

static void ack_numbers(struct weft_ep *ep, struct peer *p, uint64_t pn,
                        const struct weft_wire_ack *ack, uint64_t at_ns)
{
    int32_t credit_ahead = (int32_t)(ack->credit - p->allowed.limit);
    if (credit_ahead > 0) {
        trace(ep, p, WEFT_TRACE_CREDIT_RECEIVED, 0, ack->credit, (uint32_t)credit_ahead,
              p->allowed.sent, 0);
        allowed_more(&p->allowed, ack->credit, at_ns);
    }
    int32_t from_ahead = (int32_t)(ack->open_from - (uint32_t)p->rx.open_from);
    if (from_ahead > 0) {
        weft_core_rx_open_from(ep, p, p->rx.open_from + (uint32_t)from_ahead);
    }
    if (ack->flags & WEFT_ACK_IDLE) {
        weft_core_idle_note(p, pn);
    }
    p->recovery.confirms_late = (ack->flags & WEFT_ACK_LATER) != 0;
    for (unsigned i = 0; i < ack->note_count; i++) {
        struct tx_msg *m = weft_core_tx_find(p, ack->notes[i].msg);
        if (m != NULL && ack->notes[i].received <= m->pass_next) {
            tx_msg_received_at_least(m, ack->notes[i].received);
        }
    }
}

static void ack_take(struct weft_ep *ep, struct peer *p, const struct weft_wire_ack *ack,
                     bool counts, uint64_t at_ns, uint64_t now_ns)
{
    uint64_t ring = ep->config.tx_window_max;
    bool tracked =
        ack->largest + ring >= p->recovery.pn_next &&
        ((*bits_word(ep, p->recovery.in_flight_bits, ack->largest) >> (ack->largest % 64)) & 1);
    uint64_t largest_sent_ns = packet_at(ep, p, ack->largest)->sent_ns;
    struct weft_cc_sample sample = {.in_flight_bytes = p->recovery.in_flight_bytes};
    uint64_t oldest = oldest_prompt(ep, p);
    bool oldest_waits = oldest < p->recovery.pn_next;
    uint64_t oldest_sent_ns = packet_at(ep, p, oldest)->sent_ns;
    ack_words(ep, p, ack, &sample);
    if (oldest_waits && !packet_in_flight(ep, p, oldest)) {
        answer_note(ep, p, oldest_sent_ns, at_ns);
    }
    if (counts) {
        weft_core_ecn_check(ep, p, ack);
    }
    bool sampled = tracked && ((ack->words[0] >> (ack->largest % 64)) & 1) != 0;
    bool this_way = ack->largest >= p->path.first_pn;
    /* A delayed confirmation is not an RTT sample; the clock echoed in the peer's next message
     * is. */
    bool late =
        answer_at(ep, p, ack->largest) && (uint64_t)ack->delay << 6 > p->recovery.peer_delay_ns;
    if (sampled && this_way && !late && at_ns >= largest_sent_ns) {
        weft_core_rtt_sample(p, at_ns - largest_sent_ns, (uint64_t)ack->delay << 6);
        trace_rtt(ep, p);
    }
    if (sample.acked_packets > 0) {
        p->recovery.pn_acked_largest = weft_max_u64(p->recovery.pn_acked_largest, ack->largest);
        p->recovery.pto_base_ns = now_ns;
        p->recovery.pto_count = 0;
    }
    uint32_t ce_ahead = ack->ce - p->recovery.ce_seen;
    if ((int32_t)ce_ahead > 0 && sample.acked_packets > 0) {
        sample.ce_packets = p->path.ecn_capable ? ce_ahead : 0;
        p->recovery.ce_seen = ack->ce;
    }
    sample.lost_packets = losses_detect(ep, p, now_ns, &sample.lost_sent_ns);
    cc_tell(p, now_ns, &sample);
    trace_round(ep, p, &sample);
}

/* counts: the ACK contains the ECN counts of all packets acknowledged so far. */
static void ack_act(struct weft_ep *ep, struct peer *p, uint64_t pn,
                    const struct weft_wire_ack *ack, bool counts, uint64_t at_ns, uint64_t now_ns)
{
    ack_numbers(ep, p, pn, ack, at_ns);
    /* This ACK was delayed as the previous one announced, or as this one does if the previous one
     * was lost. */
    uint64_t delay_ns = weft_wire_ack_delay_ns(ack->delay_step);
    p->recovery.peer_delay_ns = weft_max_u64(p->recovery.peer_delay_ns, delay_ns);
    if (ack->word_count > 0) {
        ack_take(ep, p, ack, counts, at_ns, now_ns);
    }
    p->recovery.peer_delay_ns = delay_ns;
}

void weft_core_ack_recv(struct weft_ep *ep, struct peer *p, uint64_t pn,
                        const struct weft_wire_ack *ack, uint64_t at_ns, uint64_t now_ns)
{
    if (ack->largest >= p->recovery.pn_next) {
        ep->counters.bad_ack++;
        return;
    }
    ack_echo_set(&p->ack, ack->clock, at_ns);
    /* If a later ACK_SHORT has overtaken this ACK, packets are acknowledged that its counts do not
     * include. */
    ack_act(ep, p, pn, ack, pn > p->path.ecn_short_pn, at_ns, now_ns);
}

/* Extend credit, open_from and ce to full numbers. If no later packet has overtaken this one, the
 * values known at this end are not newer, so the nearest number is at most the true one. In an
 * overtaken packet the same low bits may be those of a newer number: 129 messages may be confirmed
 * meanwhile, and a wrong open_from would make this end ignore the next ones forever. */
static void short_numbers(const struct peer *p, uint64_t pn, const struct weft_wire_ack_short *s,
                          struct weft_wire_ack *ack)
{
    uint64_t overtaken = p->sec.seen_largest > pn ? p->sec.seen_largest - pn : 0;
    int16_t credit = (int16_t)(s->credit - (uint16_t)p->allowed.limit);
    int8_t from = (int8_t)(s->open_from - (uint8_t)p->rx.open_from);
    int8_t ce = (int8_t)(s->ce - (uint8_t)p->recovery.ce_seen);
    ack->credit = p->allowed.limit + (overtaken < SHORT_OVERTAKEN_MAX ? (uint32_t)credit : 0);
    ack->open_from = (uint32_t)p->rx.open_from + (overtaken == 0 ? (uint32_t)from : 0);
    ack->ce = p->recovery.ce_seen + (overtaken == 0 ? (uint32_t)ce : 0);
}

void weft_core_ack_short_recv(struct weft_ep *ep, struct peer *p, uint64_t pn,
                              const struct weft_wire_ack_short *s, uint64_t at_ns, uint64_t now_ns)
{
    uint64_t newest = p->recovery.pn_next - 1;
    uint32_t behind = (uint32_t)newest - s->largest;
    if (behind >= newest) {
        ep->counters.bad_ack++; /* acknowledges a packet that was never sent */
        return;
    }
    uint64_t largest = newest - behind;
    unsigned above = 63 - (unsigned)(largest % 64);
    if (largest < 63 && (s->mask & (UINT64_MAX >> (largest + 1))) != 0) {
        ep->counters.bad_ack++; /* the mask covers numbers below 0 */
        return;
    }
    struct weft_wire_ack ack; /* only the fields before the words; ACK_SHORT has no words */
    memset(&ack, 0, offsetof(struct weft_wire_ack, words));
    ack.flags = s->flags;
    ack.delay_step = s->delay_step;
    ack.largest = largest;
    ack.delay = (uint32_t)s->delay << 4;
    short_numbers(p, pn, s, &ack);
    ack.words[0] = s->mask >> above;
    ack.words[1] = above > 0 ? s->mask << (64 - above) : 0;
    ack.word_count = above > 0 && largest >= 64 ? 2 : 1;
    /* ACK_SHORT has no clock. The peer sends chunks, and measures round trips by their
     * acknowledgements. */
    ack_echo_forget(&p->ack);
    path_ecn_short(&p->path, pn);
    ack_act(ep, p, pn, &ack, false, at_ns, now_ns);
}

/* ---- probe timeout --------------------------------------------------------------------------- */

/* The probe timeout that allows for waits of answer_ns, at most to clean_ns above the round-trip
 * time if that is more than the usual limit. */
static uint64_t pto_of(const struct peer *p, uint64_t answer_ns, uint64_t clean_ns)
{
    if (p->recovery.srtt_ns == 0) {
        return 3 * initial_rtt_ns;
    }
    uint64_t base_ns = p->recovery.srtt_ns +
                       weft_max_u64(4 * p->recovery.rttvar_ns, granularity_ns) + ack_delay_ns_min;
    /* Limited, because this end cannot distinguish a lost acknowledgement from a late one. */
    uint64_t most_ns = weft_min_u64(ANSWER_FACTOR * base_ns, base_ns + answer_ns_max);
    most_ns = weft_max_u64(most_ns, base_ns + clean_ns);
    answer_ns = weft_min_u64(answer_ns + answer_ns / 8, most_ns);
    /* All packets in flight are acknowledged with the newest one, if that arrives: within 100 us,
     * or with the announced delay if that applies to it. */
    uint64_t more_ns = p->recovery.bulk_last ? p->recovery.peer_delay_ns - ack_delay_ns_min : 0;
    return weft_min_u64(weft_max_u64(base_ns, answer_ns) + more_ns, pto_ns_max);
}

uint64_t weft_core_pto_base(const struct peer *p)
{
    return pto_of(p, p->recovery.answer_ns, 0);
}

static bool waits_for_credit(const struct peer *p)
{
    return recovery_due_count(&p->recovery) == 0 &&
           (int32_t)(p->allowed.limit - p->allowed.sent) <= 0;
}

static uint64_t pto_interval(const struct peer *p)
{
    /* A lost grant delays a whole message, so an end that waits for credit is not patient. */
    bool credit = waits_for_credit(p);
    bool patient = p->recovery.clean && !credit;
    uint64_t base_ns = patient ? pto_of(p, p->recovery.answer_long_ns, answer_ns_clean)
                               : weft_core_pto_base(p);
    if (credit) {
        /* This end only waits for credit, and the receiver repeats its grants without probes. Once
         * the receiver has replied to a probe, probes are less frequent: with many senders they
         * were a tenth of all packets. */
        base_ns *= 4;
        base_ns =
            weft_max_u64(base_ns, weft_min_u64(base_ns << p->allowed.turn_probes, turn_ns_max));
    }
    /* The interval doubles from the third probe on, because the first may be lost. Without recent
     * losses it doubles from the second on. */
    uint32_t doublings = p->recovery.pto_count;
    doublings -= doublings > 0 && !patient;
    uint64_t wait_ns =
        doublings >= 20 ? pto_ns_max : weft_min_u64(base_ns << doublings, pto_ns_max);
    /* A DONE that is lost is repeated when the sender of the message probes. */
    if (peer_waits_late(p) && p->recovery.pto_count == 0) {
        return WEFT_DONE_LATER_NS + WEFT_DONE_LATER_MORE_NS + wait_ns;
    }
    bool all_later = tx_awake(p) != 0 && (tx_awake(p) & ~p->tx.answers) == 0;
    return all_later ? WEFT_CONFIRM_LATER_NS + wait_ns : wait_ns;
}

/* If the peer repeats its request a round trip after the reply was sent, the reply was lost. */
void weft_core_answer_again(struct weft_ep *ep, struct peer *p, uint64_t at_ns)
{
    if (p->tx.answers != 0 && p->recovery.probes == 0 &&
        at_ns >= p->recovery.pto_base_ns + p->recovery.srtt_ns) {
        p->recovery.probes = 1;
        ep->counters.probes++;
    }
}

void weft_core_pto_arm(const struct weft_ep *ep, struct peer *p)
{
    bool waiting = peer_waiting(p) || peer_asked(p);
    if (p->conn.state != PEER_OPEN || p->conn.idle || (!waiting && p->rx.live == 0)) {
        p->recovery.pto_ns = WEFT_NEVER;
        return;
    }
    if (waiting && recovery_due_count(&p->recovery) == 0 && egress_waits(ep, p)) {
        /* Chunks wait at this end; the probe timeout starts once they are sent. */
        p->recovery.pto_ns = WEFT_NEVER;
        return;
    }
    if (!waiting) {
        /* Only chunks of an incoming message are outstanding. Probe before the peer timeout;
         * otherwise the message of a dead sender would remain open forever. */
        p->recovery.pto_base_ns = weft_max_u64(p->recovery.pto_base_ns, p->ack.largest_ns);
        p->recovery.pto_ns = ep->config.peer_timeout_ns == WEFT_NEVER
                                 ? WEFT_NEVER
                                 : p->recovery.pto_base_ns + ep->config.peer_timeout_ns / 2;
        return;
    }
    p->recovery.pto_ns = p->recovery.pto_base_ns + pto_interval(p);
    if (p->recovery.wait_since_ns != WEFT_NEVER && ep->config.peer_timeout_ns != WEFT_NEVER) {
        p->recovery.pto_ns = weft_min_u64(p->recovery.pto_ns,
                                          p->recovery.wait_since_ns + ep->config.peer_timeout_ns);
    }
}

void weft_core_pto_fire(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    if (ep->resumed_ns == now_ns) {
        recovery_silence_end(
            &p->recovery); /* after a pause of this process: probe once more first */
    }
    /* Count from the first probe: a pause of this process does not count. */
    recovery_silence_begin(&p->recovery, now_ns);
    if (ep->config.peer_timeout_ns != WEFT_NEVER &&
        now_ns - p->recovery.wait_since_ns >= ep->config.peer_timeout_ns) {
        weft_core_peer_down(ep, p, WEFT_DOWN_SILENT, now_ns);
        return;
    }
    if (waits_for_credit(p)) {
        allowed_asked(&p->allowed, TURN_PROBES_MAX);
    }
    p->recovery.pto_count++;
    if (p->recovery.pto_count >= 2) {
        weft_core_ecn_silence(p);
    }
    p->recovery.pto_base_ns = now_ns;
    tx_answers_forget(&p->tx); /* after a probe no late confirmation is expected */
    p->recovery.probes = p->recovery.pto_count > 2 && peer_waiting(p) ? 2 : 1;
    ep->counters.probes++;
    trace(ep, p, WEFT_TRACE_PTO, 0, p->recovery.pn_next, p->recovery.pto_count,
          p->recovery.in_flight_count, 0);
    if (p->recovery.pto_count == 4) {
        p->cc.ops->on_silence(&p->cc);
    }
}
