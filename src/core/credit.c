/* Receiver credit: the number of DATA packets that each sender may have in flight to this end, so
 * that many senders at a time (incast) do not overflow the buffer at the last link.
 *
 * A credit is one DATA packet. Credit that was granted and not used yet is outstanding. The sum
 * over all senders with an open message is kept below a budget
 *
 *     rate x base round trip x (1 + min(5 x loss, 1/4))  +  safe bytes  +  slack
 *
 * The rate is measured at this end while senders want more credit than they have, so it need not be
 * configured. The slack is an allowance for hosts that reply late: it grows while the link pauses
 * with credit outstanding, and shrinks with ECN marks, with loss above the path's floor, and when
 * there are no pauses. A lost packet returns its credit, because every packet contains the number
 * of DATA packets sent before it.
 *
 * Between processes of one host there is no link and no buffer except the receiver's own, so the
 * budget is a constant (same_host).
 *
 * A sender limited by its own window does not use all of its credit, while others could use it. Its
 * limit is the number of packets that it sent in its last two round trips, plus two: it is granted
 * no more while others want credit, and only that much of its credit counts as outstanding. Its
 * window may grow, so at most two budgets are outstanding. The limit does not apply in round-robin
 * mode (below), in which busy senders hold credit on purpose.
 *
 * A sender whose round trips other traffic makes long has credit in addition: credit_far.c.
 *
 * Order of grants: by priority, then the message with the fewest packets left, so that most
 * messages finish early; at most half of the budget to one sender while others wait; every eighth
 * grant to the sender with the longest wait. When senders indicate that they have other receivers,
 * too, they take turns (round-robin mode): those with the shortest message (by powers of two)
 * first, and among these the one that holds the least credit. A sender that holds credit may be
 * busy with another receiver, so credit is spread over many senders, some of which use it. When the
 * sender with the fewest packets left was first, all-to-all and shuffles took 1.3 to 1.6 times the
 * ideal time. A sender without an open message keeps an allowance (`unscheduled`) for the start of
 * the next: its share of the budget among as many senders as recent rounds had.
 *
 * Endpoints behind one link share a budget: struct weft_credit_share.
 *
 * Source: docs/PROTOCOL.md section 5; Homa (Montazeri et al., SIGCOMM 2018) section 3 for short
 * messages first and overcommitment; the budget's form is ours.
 */
#include "core/internal.h"

enum {
    SAFE_BYTES = 36000,        /* fits the smallest common switch buffer (64 KB) with a margin */
    SAME_HOST_BYTES = 2000000, /* keeps both ends busy during a wake-up of either; a quarter lasts
                                * for a pause of the receiver (weft_ep_batch_ns) */
    BUDGET_PACKETS_MIN = 4,
    QUANTUM_OF_BUDGET = 4,
    QUANTUM_OF_QUEUE = 3,
    OUT_BUDGETS = 2, /* limit of all credit, including unused credit, in budgets */
    SPARE_PER_LOSS = 5,
    ALLOWANCE_FIRST = 8, /* unscheduled packets before the first measurement */
    TURN_LONGEST = 8,    /* one of this many grants is for the longest wait */
    QUANTUM_MAX = 128,
    QUANTUM_ACK = 4,    /* smaller grants are not sent, to save an ACK */
    QUANTUM_FEW = 3,    /* instead, if the budget is less than this for each sender */
    TURN_PACKETS = 3,   /* safe bytes of each sender in round-robin mode, in packets */
    TURN_BYTES = 57000, /* maximum of the safe bytes in round-robin mode: safe_bytes() */
    WIRE_BYTES = 42,    /* Ethernet, IPv4 and UDP headers */
    LOSS_SPAN_PACKETS = 128,
    PAUSE_SHARE = 16, /* fraction of a window in pauses at which the link counts as idle */
};

static const uint64_t window_ns_min = 200 * WEFT_NS_PER_US;
static const uint64_t window_ns_first = 50 * WEFT_NS_PER_US; /* before the first measurements */
/* Upper bound of the slack, for hosts that reply late: one millisecond, because processes of a busy
 * host wait that long for a processor, but at most 256 KB, or 300 us on fast links. If DATA has
 * recently waited longer in this end's socket, the slack is the bytes that arrive in that time:
 * other programs then use the processors, and a time slice of the kernel's scheduler is 3 ms. DATA
 * also waits when this end is slower than its link. The slack then grows to its bounds, and the
 * outstanding packets queue in the socket. */
static const uint64_t slack_ns_most = WEFT_NS_PER_MS;
static const uint64_t late_ns_most = 12 * WEFT_NS_PER_MS;
static const uint64_t late_decay_ns = 200 * WEFT_NS_PER_MS;
static const uint64_t slack_ns_fast = 300 * WEFT_NS_PER_US;
static const uint64_t slack_bytes_busy = 256000;
static const uint64_t floor_ns = 5 * WEFT_NS_PER_S;

static void share_join(struct weft_ep *ep, bool active)
{
    struct weft_credit_share *share = ep->config.credit_share;
    if (share == NULL || ep->credit.joined == active) {
        return;
    }
    ep->credit.joined = active;
    atomic_fetch_add_explicit(&share->active, active ? 1U : UINT32_MAX, memory_order_relaxed);
}

void weft_core_credit_init(struct weft_ep *ep)
{
    ep->credit = (struct credit){
        .budget = weft_max_u64(SAFE_BYTES / ep->config.packet_bytes, BUDGET_PACKETS_MIN),
        .at_once_host = SAFE_BYTES / ep->config.packet_bytes,
        .packet_bytes = ep->config.packet_bytes,
        .loss_floor = {UINT32_MAX, UINT32_MAX},
        .pause_ns = WEFT_NEVER,
        .slack_ceiling = UINT64_MAX,
        .far_ceiling = UINT64_MAX,
        .rtt_ns = WEFT_NEVER,
        .near_ns = {WEFT_NEVER, WEFT_NEVER},
    };
    if (ep->config.credit_share != NULL) {
        atomic_fetch_add_explicit(&ep->config.credit_share->endpoints, 1, memory_order_relaxed);
    }
}

void weft_core_credit_fini(struct weft_ep *ep)
{
    struct weft_credit_share *share = ep->config.credit_share;
    if (share != NULL && ep->credit.budget > 0) {
        share_join(ep, false);
        atomic_fetch_sub_explicit(&share->endpoints, 1, memory_order_relaxed);
    }
}

uint16_t weft_core_credit_first(const struct weft_ep *ep)
{
    return (uint16_t)weft_min_u64(weft_core_credit_allowance(ep), ALLOWANCE_FIRST);
}

/* ---- the budget ------------------------------------------------------------------------------ */

/* True if there are more losses than the expected number plus four standard deviations (Poisson)
 * plus one: the slack must not shrink on every link that loses one packet in a hundred. */
static bool beyond_chance(uint64_t lost, uint64_t packets, uint32_t expected_ppm)
{
    uint64_t mean_milli = packets * expected_ppm / 1000;
    uint64_t lost_milli = lost * 1000;
    uint64_t over_milli = lost_milli > mean_milli + 1000 ? lost_milli - mean_milli - 1000 : 0;
    return over_milli * over_milli > 16 * 1000 * mean_milli;
}

/* Reduction of the slack, in ppm, because of loss above the floor or ECN marks. Measured over at
 * least LOSS_SPAN_PACKETS, in one window or several. */
static uint32_t congestion(struct credit *c)
{
    uint64_t packets = c->span_packets + c->span_lost;
    if (packets < LOSS_SPAN_PACKETS) {
        return 0;
    }
    uint32_t loss_ppm = (uint32_t)(c->span_lost * WEFT_PPM / packets);
    uint32_t mark_ppm = (uint32_t)(c->span_ce * WEFT_PPM / packets);
    uint64_t lost = c->span_lost;
    c->span_packets = 0;
    c->span_lost = 0;
    c->span_ce = 0;
    c->loss_ppm = (uint32_t)(((uint64_t)c->loss_ppm * 7 + loss_ppm) / 8);
    c->loss_floor[0] = c->loss_ppm < c->loss_floor[0] ? c->loss_ppm : c->loss_floor[0];
    uint32_t least = (uint32_t)weft_min_u64(c->loss_floor[0], c->loss_floor[1]);
    /* The floor is the minimum of many noisy measurements: allow half of it more, and one point. */
    uint32_t noise_ppm = least + least / 2 + WEFT_PPM / 100;
    bool lossy = beyond_chance(lost, packets, noise_ppm);
    uint64_t ceiling = weft_max_u64(c->slack_bytes - c->slack_bytes / 4, c->packet_bytes);
    if (lossy || mark_ppm > WEFT_PPM / 100) {
        c->far_ceiling = ceiling;
    }
    if (lossy) {
        c->slack_ceiling = ceiling;
        return WEFT_PPM / 2;
    }
    return mark_ppm / 2;
}

/* Bytes that arrive during the longest recent wait of DATA in this end's socket. */
static uint64_t late_bytes(const struct credit *c, uint64_t rate_bps)
{
    uint64_t late_ns = c->late_ns > slack_ns_most ? c->late_ns : 0;
    return weft_min_u64(rate_bps / 8 * (late_ns + late_ns / 4) / WEFT_NS_PER_S, slack_bytes_busy);
}

/* Upper bound of the slack. For some time after losses it is below the slack at the time of the
 * losses, because some links have small buffers. */
static uint64_t slack_most(const struct credit *c, uint64_t rate_bps)
{
    uint64_t busy = weft_min_u64(rate_bps / 8 * slack_ns_most / WEFT_NS_PER_S, slack_bytes_busy);
    uint64_t fast = rate_bps / 8 * slack_ns_fast / WEFT_NS_PER_S;
    uint64_t late = late_bytes(c, rate_bps);
    return weft_min_u64(weft_max_u64(weft_max_u64(busy, fast), late), c->slack_ceiling);
}

static void slack_update(struct credit *c, uint64_t rate_bps, uint64_t span_ns)
{
    uint32_t cut_ppm = congestion(c);
    if (cut_ppm > 0) {
        c->slack_bytes -= c->slack_bytes * cut_ppm / WEFT_PPM;
    } else if (c->window_pause_ns > span_ns / PAUSE_SHARE) {
        c->slack_bytes += c->slack_bytes / 8 + c->packet_bytes;
    } else {
        c->slack_bytes -= c->slack_bytes / 16;
    }
    /* An idle time of the link caused by a delay of this end itself does not appear as a pause,
     * because a new window begins when this end runs again and grants credit. */
    uint64_t late = cut_ppm > 0 ? 0 : late_bytes(c, rate_bps);
    c->slack_bytes += late > c->slack_bytes ? (late - c->slack_bytes) / 8 : 0;
    c->late_ns -= c->late_ns * weft_min_u64(span_ns, late_decay_ns) / late_decay_ns;
    c->slack_bytes = weft_min_u64(c->slack_bytes, slack_most(c, rate_bps));
}

static void rate_note(struct credit *c, uint64_t rate_bps)
{
    c->rates_bps[c->rate_next++ % CREDIT_RATES] = rate_bps;
    c->rate_bps = 0;
    for (int i = 0; i < CREDIT_RATES; i++) {
        c->rate_bps = weft_max_u64(c->rate_bps, c->rates_bps[i]);
    }
}

static uint64_t delivered(const struct weft_ep *ep)
{
    const struct weft_credit_share *share = ep->config.credit_share;
    return share == NULL ? ep->credit.bytes
                         : atomic_load_explicit(&share->bytes, memory_order_relaxed);
}

static void window_start(struct weft_ep *ep, uint64_t now_ns)
{
    struct credit *c = &ep->credit;
    c->window_ns = now_ns;
    c->window_bytes = delivered(ep);
    c->window_wanted = true;
    c->window_pause_ns = 0;
}

/* Bytes that may queue (safe bytes). In round-robin mode busy senders hold most of this credit, so
 * more is needed with more senders. Their packets do not arrive at the same time: with 36,000 safe
 * bytes, 11,000 to 14,000 were queued at the port of each of 32 hosts, and no more with 57,000. */
static uint64_t safe_bytes(const struct credit *c)
{
    if (!c->turns) {
        return SAFE_BYTES;
    }
    uint64_t bytes = TURN_PACKETS * (uint64_t)c->active * (c->packet_bytes + WIRE_BYTES);
    return weft_max_u64(weft_min_u64(bytes, TURN_BYTES), SAFE_BYTES);
}

static void budget_set(struct weft_ep *ep, uint64_t rtt_ns)
{
    struct credit *c = &ep->credit;
    if (ep->config.same_host) {
        uint64_t most = SAME_HOST_BYTES / (c->packet_bytes + WIRE_BYTES);
        c->budget = weft_min_u64(weft_max_u64(most, BUDGET_PACKETS_MIN), ep->config.rx_window);
        return;
    }
    uint64_t in_flight = c->rate_bps / 8 * rtt_ns / WEFT_NS_PER_S;
    /* The credit of a lost grant or a lost packet is not used for one or two round trips. */
    uint64_t spare_ppm = weft_min_u64(SPARE_PER_LOSS * (uint64_t)c->loss_ppm, WEFT_PPM / 4);
    uint64_t bytes = in_flight + in_flight * spare_ppm / WEFT_PPM + safe_bytes(c) + c->slack_bytes;
    uint64_t packets = bytes / (c->packet_bytes + WIRE_BYTES);
    c->at_once_host = (SAFE_BYTES + c->slack_bytes) / (c->packet_bytes + WIRE_BYTES);
    const struct weft_credit_share *share = ep->config.credit_share;
    if (share != NULL) {
        packets /= weft_max_u64(atomic_load_explicit(&share->active, memory_order_relaxed), 1);
    }
    packets = weft_max_u64(packets, BUDGET_PACKETS_MIN);
    c->budget = weft_min_u64(packets, ep->config.rx_window);
}

/* End of a measurement window. If some sender wanted more credit in all of it, the receive rate of
 * the window is the link rate. */
static void window_end(struct weft_ep *ep, uint64_t rtt_ns, uint64_t now_ns)
{
    struct credit *c = &ep->credit;
    uint64_t span_ns = now_ns - c->window_ns;
    uint64_t least_ns = c->rate_next < CREDIT_RATES ? window_ns_first : window_ns_min;
    if (span_ns < weft_max_u64(2 * rtt_ns, least_ns)) {
        return;
    }
    uint64_t bytes = delivered(ep) - c->window_bytes;
    uint64_t rate_bps = bytes * 8 * 1000 / (span_ns / 1000 + 1) * 1000;
    if (c->window_wanted || rate_bps > c->rate_bps) {
        rate_note(c, rate_bps);
        slack_update(c, c->rate_bps, span_ns);
    }
    if (now_ns - c->floor_since_ns >= floor_ns) {
        c->loss_floor[1] = c->loss_floor[0];
        c->loss_floor[0] = UINT32_MAX;
        c->floor_since_ns = now_ns;
        c->slack_ceiling = weft_time_add(c->slack_ceiling, c->slack_ceiling);
        c->far_ceiling = weft_time_add(c->far_ceiling, c->far_ceiling);
    }
    if (c->rate_bps > 0) {
        c->pause_ns =
            PAUSE_PACKETS * (c->packet_bytes + WIRE_BYTES) * 8 * WEFT_NS_PER_S / c->rate_bps;
    }
    if (c->near_ns[0] != WEFT_NEVER) {
        c->near_ns[1] = c->near_ns[0];
        c->near_ns[0] = WEFT_NEVER;
    }
    window_start(ep, now_ns);
}

/* ---- grants ---------------------------------------------------------------------------------- */

static void grant(struct weft_ep *ep, struct peer *p, uint32_t packets, uint64_t now_ns)
{
    if (weft_core_credit_outstanding(p) == 0) {
        p->credit.granted = p->credit.data_count;
        p->credit.since_ns = now_ns;
    }
    p->credit.granted += packets;
    trace(ep, p, WEFT_TRACE_CREDIT_GRANTED, 0, p->credit.granted, packets, p->credit.data_count, 0);
    p->credit.turn = ++ep->credit.turn;
    ack_at_once(&p->ack);
    weft_core_rx_timer_arm(p); /* the time of silence of this peer begins now */
    weft_core_peer_ready(ep, p);
}

/* End of a round: the next one is expected to have as many senders. */
static void round_end(struct weft_ep *ep)
{
    struct credit *c = &ep->credit;
    if (c->senders_now >= c->senders) {
        c->senders = c->senders_now;
    } else if (c->senders_now > 0) {
        c->senders = (3 * c->senders + c->senders_now) / 4;
    }
    c->rounds_shared = c->round_shared;
    c->round_shared = false;
    c->senders_now = 0;
    c->turn_packets = 0;
    c->window_ns = 0;
    share_join(ep, false);
}

/* At the beginning of a round, packets of some senders of the last round have not arrived yet. In
 * round-robin mode each sender is then limited to its share. Without this limit every receiver
 * granted its whole budget to the sender whose message arrived a microsecond earlier, and the links
 * of the others were idle until that sender had used the budget. The other senders may begin with
 * other receivers, so the limit applies for a round trip and the time of half a budget on the link:
 * with a round trip only, at 25 Mbit/s, the first sender held most of the budget for a sixth of the
 * round. The longer time does not apply if the shares are smaller than a grant: with messages of
 * three chunks, the time of a budget made rounds of 64 hosts 0.5 % longer. */
static bool senders_due(const struct credit *c, uint64_t rtt_ns, uint64_t now_ns)
{
    bool known = c->pause_ns != WEFT_NEVER && c->budget >= QUANTUM_FEW * (uint64_t)c->senders;
    uint64_t more_ns = known ? c->budget / 2 * (c->pause_ns / PAUSE_PACKETS) : 0;
    return c->turns && c->senders_now < c->senders && now_ns - c->round_ns < rtt_ns + more_ns;
}

/* Size of a grant in round-robin mode: the budget contains two for each sender; at most a quarter
 * of the budget. */
static uint64_t quantum_of(const struct credit *c, uint64_t senders)
{
    uint64_t share = c->budget / weft_max_u64(2 * senders, 4);
    uint64_t few = c->budget < QUANTUM_FEW * senders ? QUANTUM_FEW : QUANTUM_ACK;
    uint64_t least = weft_min_u64(few, c->budget / 4);
    return weft_max_u64(weft_min_u64(weft_max_u64(share, least), QUANTUM_MAX), 1);
}

/* Size of a grant otherwise: a quarter of the budget. Each grant causes an ACK, a wake-up of the
 * sender and a burst, so a few large grants cost less. With several senders it is a third of the
 * allowed queue if that is more: the queue may lack that much before the link is idle. With half of
 * the queue, at 5 % loss, rounds of eight senders had a p99 of 1.11 times the ideal instead of
 * 1.07. With a single sender such grants would leave the link idle while the sender or its receiver
 * is delayed. */
static uint64_t quantum_least_left(const struct credit *c, uint64_t rtt_ns)
{
    uint64_t in_flight = c->rate_bps / 8 * rtt_ns / WEFT_NS_PER_S / (c->packet_bytes + WIRE_BYTES);
    uint64_t queued = c->budget > in_flight ? c->budget - in_flight : 0;
    uint64_t share = c->budget / QUANTUM_OF_BUDGET;
    share = c->active > 1 ? weft_max_u64(share, queued / QUANTUM_OF_QUEUE) : share;
    return weft_max_u64(weft_min_u64(share, QUANTUM_MAX), 1);
}

/* Choose round-robin mode or not. The second packet of a sender indicates whether it has other
 * receivers. The flags received so far decide, without waiting for half of the senders: with 31
 * senders that wait was 600 us, a fifth of the round, and meanwhile a few senders held all credit,
 * granted by packets left. */
static void turns_choose(struct credit *c)
{
    c->round_shared |= 2 * c->shared >= c->active;
    bool likely = c->shared > 0 && 2 * c->shared >= c->told;
    c->turns = c->round_shared || c->rounds_shared || likely;
}

void weft_core_credit_run(struct weft_ep *ep, uint64_t now_ns)
{
    struct credit *c = &ep->credit;
    c->dirty = false;
    weft_core_credit_count(ep);
    if (c->active == 0) {
        /* Also without a round since the last end, as after a BACKLOG of nothing. */
        if (c->window_ns != 0) {
            round_end(ep);
        }
        return;
    }
    share_join(ep, true);
    c->senders_now = c->active > c->senders_now ? c->active : c->senders_now;
    if (c->window_ns == 0) {
        window_start(ep, now_ns);
        c->round_ns = now_ns;
    }
    uint64_t rtt_ns = c->rtt_ns == WEFT_NEVER ? 0 : c->rtt_ns;
    bool wanted = c->wanting > 0;
    window_end(ep, rtt_ns, now_ns);
    turns_choose(c);
    budget_set(ep, rtt_ns);
    c->window_wanted &= wanted;
    weft_core_credit_count(ep); /* the allowance depends on the budget */
    bool turns = c->turns;
    bool due = senders_due(c, rtt_ns, now_ns);
    uint64_t senders = due ? c->senders : c->active;
    uint64_t quantum = turns ? quantum_of(c, senders) : quantum_least_left(c, rtt_ns);
    c->turn_packets = turns ? (uint32_t)(c->active * quantum) : 0;
    while (wanted && c->total + quantum <= c->budget &&
           c->out + quantum <= OUT_BUDGETS * c->budget) {
        bool longest = (c->turn + 1) % TURN_LONGEST == 0;
        uint64_t most = c->active > 1 ? c->budget / 2 : UINT64_MAX;
        most = due ? weft_max_u64(c->budget / c->senders, 1) : most;
        struct peer *p = weft_core_credit_pick(ep, longest, turns, !turns, most);
        if (p == NULL && !due) {
            p = weft_core_credit_pick(ep, false, turns, !turns,
                                      UINT64_MAX);     /* no other peer can use it */
            bool room = c->out + quantum <= c->budget; /* unused credit is also limited by the
                                                        * budget */
            p = p == NULL && room ? weft_core_credit_pick(ep, false, turns, false, UINT64_MAX) : p;
        }
        if (p == NULL) {
            break;
        }
        grant(ep, p, (uint32_t)weft_min_u64(p->credit.room, quantum), now_ns);
        weft_core_credit_look(ep, p);
    }
}

/* ---- events of the peers --------------------------------------------------------------------- */

static void pause_note(struct weft_ep *ep, uint64_t at_ns)
{
    struct credit *c = &ep->credit;
    struct weft_credit_share *share = ep->config.credit_share;
    if (share != NULL) {
        /* Packets for the other endpoints keep the link busy, too. Two endpoints that check at the
         * same time may count a pause twice or not at all. */
        uint64_t last_ns = atomic_load_explicit(&share->last_ns, memory_order_relaxed);
        c->last_ns = weft_max_u64(c->last_ns, last_ns);
        atomic_store_explicit(&share->last_ns, weft_max_u64(c->last_ns, at_ns),
                              memory_order_relaxed);
    }
    if (c->window_ns != 0 && at_ns > weft_max_u64(c->last_ns, c->window_ns)) {
        uint64_t gap_ns = at_ns - weft_max_u64(c->last_ns, c->window_ns);
        c->window_pause_ns += gap_ns > c->pause_ns ? gap_ns : 0;
    }
    c->last_ns = weft_max_u64(c->last_ns, at_ns);
}

/* A valid packet of a peer; `ahead`: new DATA packets by its data_count. */
void weft_core_credit_packet(struct weft_ep *ep, struct peer *p, uint32_t ahead, uint64_t bytes,
                             bool data, bool ce, uint64_t at_ns, uint64_t now_ns)
{
    struct credit *c = &ep->credit;
    if (data || p->rx.live != 0) { /* if the peer has only a backlog, only DATA ends its silence */
        p->credit.silent = false;
        p->credit.silences = 0;
    }
    c->span_lost += ahead > data ? ahead - data : 0;
    if (weft_bits_test(ep->credit_active, peer_idx(ep, p))) {
        weft_core_credit_touch(ep, p);
    }
    if (!data) {
        return;
    }
    if (ahead == 0 && c->span_lost > 0) {
        c->span_lost--; /* this packet was reordered, not lost */
    }
    if (at_ns >= p->credit.use_ns) {
        weft_core_credit_use(ep, p, at_ns);
    }
    pause_note(ep, at_ns);
    c->late_ns =
        weft_max_u64(c->late_ns, weft_min_u64(now_ns - weft_min_u64(at_ns, now_ns), late_ns_most));
    c->span_packets++;
    c->span_ce += ce;
    c->bytes += bytes + WIRE_BYTES;
    if (ep->config.credit_share != NULL) {
        atomic_fetch_add_explicit(&ep->config.credit_share->bytes, bytes + WIRE_BYTES,
                                  memory_order_relaxed);
    }
    c->packet_bytes = (uint32_t)((c->packet_bytes * UINT64_C(15) + bytes) / 16);
}

/* The credit for an ACK to this peer. The last DONE of a connection that ends may be sent with an
 * ACK: nothing more is granted then, and nothing is counted. */
uint32_t weft_core_credit_told(struct weft_ep *ep, struct peer *p)
{
    if (p->conn.state != PEER_CLOSING && !weft_bits_test(ep->credit_active, peer_idx(ep, p))) {
        uint32_t least = p->credit.data_count + weft_core_credit_allowance_of(ep, p);
        if ((int32_t)(least - p->credit.granted) > 0) {
            p->credit.granted = least;
        }
        weft_core_credit_idle_far(ep, p);
    }
    return p->credit.granted;
}

/* Start of the time in which the peer could have sent and has not; WEFT_NEVER: it may not send. */
uint64_t weft_core_credit_silent_since(const struct peer *p)
{
    return weft_core_credit_outstanding(p) == 0
               ? WEFT_NEVER
               : weft_max_u64(p->credit.data_last_ns, p->credit.since_ns);
}

/* The grant is repeated to a silent peer that holds credit, because the packet with the grant may
 * be lost: first after two round trips, then after two probe timeouts, and then after doubled
 * intervals. From the second repetition on, its credit is granted to others until it sends
 * again. */
void weft_core_credit_arm(const struct weft_ep *ep, struct peer *p)
{
    p->credit.timer_ns = WEFT_NEVER;
    bool active = weft_bits_test(ep->credit_active, peer_idx(ep, p));
    if (!active || p->conn.idle || weft_core_credit_outstanding(p) == 0 ||
        weft_core_credit_remaining(p) == 0) {
        return;
    }
    uint64_t since_ns = weft_max_u64(weft_core_credit_silent_since(p), p->credit.retold_ns);
    uint64_t wait_ns = 2 * p->recovery.srtt_ns + retell_ns;
    if (p->credit.silences > 0 || p->recovery.srtt_ns == 0) {
        uint32_t doublings = (uint32_t)weft_min_u64(p->credit.silences, 10);
        wait_ns = 2 * weft_core_pto_base(p) << doublings >> 1;
    }
    p->credit.timer_ns = since_ns + weft_min_u64(wait_ns, pto_ns_max);
}

void weft_core_credit_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    p->credit.timer_ns = WEFT_NEVER;
    p->credit.retold_ns = now_ns;
    ack_at_once(&p->ack);
    if (p->credit.silences > 0 && !p->credit.silent) {
        p->credit.silent = true;
        if (p->rx.live == 0) {
            /* The backlog was withdrawn and that packet was lost, or it never existed. */
            p->credit.backlog_end = p->credit.data_count;
        }
        weft_core_credit_touch(ep, p);
        ep->counters.credits_reclaimed++;
    }
    p->credit.silences += p->credit.silences < UINT8_MAX;
}
