/* Receiver credits: how many DATA packets each sender may have on its way to us, so that many
 * senders at once do not overflow the last link's buffer.
 *
 * A credit is one DATA packet. What a sender was granted and has not used yet is outstanding; the
 * sum over all senders with an open message is kept under a budget
 *
 *     rate x base round trip x (1 + 5 x loss, at most 1/4)  +  safe bytes  +  slack
 *
 * with the rate as measured at this end while senders wanted more than they had, and the slack an
 * allowance for hosts that answer late: it grows while the link pauses although credit is out, and
 * shrinks with marks, with loss above the path's floor, and when there are no pauses. Nobody has to configure a rate. A lost packet gives its
 * credit back, for every packet tells how many DATA packets were sent before it.
 *
 * Between processes of one host there is no link, and no buffer but the receiver's own: there the
 * budget is a constant (same_host).
 *
 * What a sender with a window of its own does not use lies there while others could use it: beyond what it
 * sent in its last two round trips, and two packets, a sender is granted nothing while others want more,
 * and of what it holds no more than that counts as outstanding. Windows may open, so what is out
 * is two budgets at most. Not where they take turns (below): there credit lies with those that are busy on
 * purpose.
 *
 * Who gets it: the most urgent message first, of these the one with the least left, which makes most of
 * them finish early; half of the budget at most to one sender while others wait; every eighth grant to
 * the sender that has waited longest. Where senders say that they have other receivers, too, they take
 * turns, those with the shortest message (by powers of two) before others, and of these the one that
 * holds least: who holds credit may be busy elsewhere, and credit that lies with many is used by some.
 * With the least left first, all-to-all and shuffles took 1.3 to 1.6 times their ideal. A sender without
 * an open message keeps an allowance (`unscheduled`) to begin the next with: its share of the budget
 * among as many senders as rounds have lately had.
 *
 * Endpoints behind one link share a budget: struct weft_credit_share.
 *
 * Source: docs/PROTOCOL.md section 5; Homa (Montazeri et al., SIGCOMM 2018) section 3 for
 * short messages first and overcommitment; the budget's form is ours.
 */
#include "core/internal.h"

enum {
    SAFE_BYTES = 36000,    /* fits the smallest switch buffer that is met (64 KB) with room */
    SAME_HOST_BYTES = 2000000, /* both ends busy through a wake-up of either; a quarter lasts a pause
                                * of the receiver (weft_ep_batch_ns) */
    BUDGET_PACKETS_MIN = 4,
    QUANTUM_OF_BUDGET = 4,
    QUANTUM_OF_QUEUE = 3,
    OUT_BUDGETS = 2, /* with what is not used */
    SPARE_PER_LOSS = 5,
    ALLOWANCE_FIRST = 8,   /* unscheduled packets before anything is known */
    TURN_LONGEST = 8,      /* every so many grants go to the longest waiting */
    QUANTUM_MAX = 128,
    QUANTUM_ACK = 4,       /* fewer packets are not worth the acknowledgement that grants them */
    QUANTUM_FEW = 3,       /* but where there are no more for each sender, more should have some */
    TURN_PACKETS = 3,      /* for each sender, where they take turns, up to the next */
    TURN_BYTES = 57000,    /* they do not all come at once: see safe_bytes */
    WIRE_BYTES = 42,       /* Ethernet, IPv4, UDP around a packet */
    LOSS_SPAN_PACKETS = 128,
    PAUSE_SHARE = 16,      /* of a window, in pauses: the link was not kept busy */
};

static const uint64_t window_ns_min = 200 * WEFT_NS_PER_US;
static const uint64_t window_ns_first = 50 * WEFT_NS_PER_US; /* while little is known */
/* The most that is tried for hosts that answer late: a millisecond, for the processes of a busy host
 * wait for each other that long; up to 256 KB of it, and on fast links 300 us. Where DATA has lately
 * waited in this end's socket for longer than that, it is what comes meanwhile: other programs compute
 * on its processors, and a scheduler's slice is 3 ms. Where this end is slower than its link they wait as
 * well, and it grows to its bounds; what is out then lies in the socket. */
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
        .rtt_ns = WEFT_NEVER,
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

/* Four standard deviations more than so many losses come to on average (Poisson), and one: the slack
 * must not shrink on every link that loses one packet in a hundred. */
static bool beyond_chance(uint64_t lost, uint64_t packets, uint32_t expected_ppm)
{
    uint64_t mean_milli = packets * expected_ppm / 1000;
    uint64_t lost_milli = lost * 1000;
    uint64_t over_milli = lost_milli > mean_milli + 1000 ? lost_milli - mean_milli - 1000 : 0;
    return over_milli * over_milli > 16 * 1000 * mean_milli;
}

/* What loss above the floor, or marks, ask to take off the slack, in ppm of it. Measured over at least
 * LOSS_SPAN_PACKETS, however many windows these take. */
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
    /* The floor is the least of many noisy measurements: half as much again, and a point. */
    uint32_t noise_ppm = least + least / 2 + WEFT_PPM / 100;
    if (beyond_chance(lost, packets, noise_ppm)) {
        c->slack_ceiling = weft_max_u64(c->slack_bytes - c->slack_bytes / 4, c->packet_bytes);
        return WEFT_PPM / 2;
    }
    return mark_ppm / 2;
}

/* What comes while DATA waits in this end's socket as long as it lately has. */
static uint64_t late_bytes(const struct credit *c, uint64_t rate_bps)
{
    uint64_t late_ns = c->late_ns > slack_ns_most ? c->late_ns : 0;
    return weft_min_u64(rate_bps / 8 * (late_ns + late_ns / 4) / WEFT_NS_PER_S, slack_bytes_busy);
}

/* How far the slack may grow. Where it once was when packets were lost it goes no more for a while:
 * some links have small buffers. */
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
    /* A rest of the link that this end's own lateness makes shows as no pause: when it is here again and
     * grants, a new window begins. */
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

/* What may stand in queues. Where senders take turns most of it lies with those that are busy with
 * others, and the more of these there are the more has to. It does not come all at once then: of
 * 36,000 bytes 11,000 to 14,000 stood in the port of each of 32 hosts, and of 57,000 no more. */
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
    /* Lost grants and lost packets hold credit back for a round trip or two. */
    uint64_t spare_ppm = weft_min_u64(SPARE_PER_LOSS * (uint64_t)c->loss_ppm, WEFT_PPM / 4);
    uint64_t bytes =
        in_flight + in_flight * spare_ppm / WEFT_PPM + safe_bytes(c) + c->slack_bytes;
    uint64_t packets = bytes / (c->packet_bytes + WIRE_BYTES);
    c->at_once_host = (SAFE_BYTES + c->slack_bytes) / (c->packet_bytes + WIRE_BYTES);
    const struct weft_credit_share *share = ep->config.credit_share;
    if (share != NULL) {
        packets /= weft_max_u64(atomic_load_explicit(&share->active, memory_order_relaxed), 1);
    }
    packets = weft_max_u64(packets, BUDGET_PACKETS_MIN);
    c->budget = weft_min_u64(packets, ep->config.rx_window);
}

/* A window that some sender wanted more in than it had tells the rate of the link. */
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
    }
    if (c->rate_bps > 0) {
        c->pause_ns = PAUSE_PACKETS * (c->packet_bytes + WIRE_BYTES) * 8 * WEFT_NS_PER_S /
                      c->rate_bps;
    }
    window_start(ep, now_ns);
}

/* ---- who gets it ----------------------------------------------------------------------------- */

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
    weft_core_rx_timer_arm(p); /* its silence counts from now */
    weft_core_peer_ready(ep, p);
}

/* The end of a round: how many senders it had is what the next one will have. */
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

/* In the first round trip not all senders have been heard that the last round had. Where they take
 * turns each is then kept to its share: the first one, whose message came a microsecond earlier, was
 * given all of the budget by every receiver, and the others' links rested until it had used that up. */
static bool senders_due(const struct credit *c, uint64_t rtt_ns, uint64_t now_ns)
{
    return c->turns && c->senders_now < c->senders && now_ns - c->round_ns < rtt_ns;
}

/* Two grants to each sender fit into the budget; one is a quarter of it at most. */
static uint64_t quantum_of(const struct credit *c, uint64_t senders)
{
    uint64_t share = c->budget / weft_max_u64(2 * senders, 4);
    uint64_t few = c->budget < QUANTUM_FEW * senders ? QUANTUM_FEW : QUANTUM_ACK;
    uint64_t least = weft_min_u64(few, c->budget / 4);
    return weft_max_u64(weft_min_u64(weft_max_u64(share, least), QUANTUM_MAX), 1);
}

/* A quarter of the budget. Each grant is an acknowledgement, a sender's wake-up and a burst, so a few
 * large ones cost less: of several senders one gets a third of what stands in queues, for that much may
 * be missing there before the link rests. With half of it, and 5 % of the packets lost, rounds of eight
 * senders had a p99 of 1.11 for 1.07; one sender alone lets the link rest when it, or its receiver, is
 * kept from running meanwhile. */
static uint64_t quantum_least_left(const struct credit *c, uint64_t rtt_ns)
{
    uint64_t in_flight = c->rate_bps / 8 * rtt_ns / WEFT_NS_PER_S / (c->packet_bytes + WIRE_BYTES);
    uint64_t queued = c->budget > in_flight ? c->budget - in_flight : 0;
    uint64_t share = c->budget / QUANTUM_OF_BUDGET;
    share = c->active > 1 ? weft_max_u64(share, queued / QUANTUM_OF_QUEUE) : share;
    return weft_max_u64(weft_min_u64(share, QUANTUM_MAX), 1);
}

/* A sender tells with its second packet whether it has other receivers. Until half of all have said
 * so, those that have told stand for the others: with 31 senders that took 600 us, a fifth of the
 * round, in which credit for the least left lay with a few of them. */
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
        round_end(ep);
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
    weft_core_credit_count(ep); /* the allowance follows the budget */
    bool turns = c->turns;
    bool due = senders_due(c, rtt_ns, now_ns);
    uint64_t senders = due ? c->senders : c->active;
    uint64_t quantum = turns ? quantum_of(c, senders) : quantum_least_left(c, rtt_ns);
    c->turn_packets = turns ? (uint32_t)(c->active * quantum) : 0;
    while (wanted && c->total + quantum <= c->budget && c->out + quantum <= OUT_BUDGETS * c->budget) {
        bool longest = (c->turn + 1) % TURN_LONGEST == 0;
        uint64_t most = c->active > 1 ? c->budget / 2 : UINT64_MAX;
        most = due ? weft_max_u64(c->budget / c->senders, 1) : most;
        struct peer *p = weft_core_credit_pick(ep, longest, turns, !turns, most);
        if (p == NULL && !due) {
            p = weft_core_credit_pick(ep, false, turns, !turns, UINT64_MAX); /* nobody else can use it */
            bool room = c->out + quantum <= c->budget; /* to those that do not use it, no more than that */
            p = p == NULL && room ? weft_core_credit_pick(ep, false, turns, false, UINT64_MAX) : p;
        }
        if (p == NULL) {
            break;
        }
        grant(ep, p, (uint32_t)weft_min_u64(p->credit.room, quantum), now_ns);
        weft_core_credit_look(ep, p);
    }
}

/* ---- what the peers do ----------------------------------------------------------------------- */

static void pause_note(struct weft_ep *ep, uint64_t at_ns)
{
    struct credit *c = &ep->credit;
    struct weft_credit_share *share = ep->config.credit_share;
    if (share != NULL) {
        /* The link is busy, too, with what comes for another endpoint. Two that look at the same
         * time may count a pause twice or not at all. */
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

/* Any valid packet of a peer: data_count is the sender's, of which `ahead` are news. */
void weft_core_credit_packet(struct weft_ep *ep, struct peer *p, uint32_t ahead, uint64_t bytes,
                             bool data, bool ce, uint64_t at_ns, uint64_t now_ns)
{
    struct credit *c = &ep->credit;
    if (data || p->rx.live != 0) { /* of a backlog alone only DATA counts */
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
        c->span_lost--; /* it was only late */
    }
    if (at_ns >= p->credit.use_ns) {
        weft_core_credit_use(ep, p, at_ns);
    }
    pause_note(ep, at_ns);
    c->late_ns = weft_max_u64(c->late_ns, weft_min_u64(now_ns - weft_min_u64(at_ns, now_ns), late_ns_most));
    c->span_packets++;
    c->span_ce += ce;
    c->bytes += bytes + WIRE_BYTES;
    if (ep->config.credit_share != NULL) {
        atomic_fetch_add_explicit(&ep->config.credit_share->bytes, bytes + WIRE_BYTES,
                                  memory_order_relaxed);
    }
    c->packet_bytes = (uint32_t)((c->packet_bytes * UINT64_C(15) + bytes) / 16);
}

/* What an ACK to this peer says. */
uint32_t weft_core_credit_told(const struct weft_ep *ep, struct peer *p)
{
    if (!weft_bits_test(ep->credit_active, peer_idx(ep, p))) {
        uint32_t least = p->credit.data_count + weft_core_credit_allowance(ep);
        if ((int32_t)(least - p->credit.granted) > 0) {
            p->credit.granted = least;
        }
    }
    return p->credit.granted;
}

/* When did the time begin in which this peer could have sent and did not? WEFT_NEVER: it cannot. */
uint64_t weft_core_credit_silent_since(const struct peer *p)
{
    return weft_core_credit_outstanding(p) == 0
               ? WEFT_NEVER
               : weft_max_u64(p->credit.data_last_ns, p->credit.since_ns);
}

/* A holder of credit that says nothing is told again what it has, for the packet that told it may
 * be lost: first after two round trips, then after two probe timeouts and twice as long each time.
 * From the second time on its credit goes to others until it speaks. */
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
            /* It was taken back, and that was lost; or never meant. */
            p->credit.backlog_end = p->credit.data_count;
        }
        weft_core_credit_touch(ep, p);
        ep->counters.credits_reclaimed++;
    }
    p->credit.silences += p->credit.silences < UINT8_MAX;
}
