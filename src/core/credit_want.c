/* The credit that senders hold and want: the accounting for the receiver's grants (credit.c).
 *
 * A packet changes only the values of its own sender. A sender is therefore counted again only
 * after an event of this sender (a packet, a message opened or closed, a grant, a silence), so the
 * cost of a packet is the same with 1 sender and with 200. All senders are counted again when the
 * allowance, which is common to all, has changed.
 *
 * Source: docs/PROTOCOL.md section 5.
 */
#include "core/internal.h"

#include <string.h>

enum { USE_SPARE = 2 };

/* Estimate of the DATA packets that the sender still has to send of this message: the rest of the
 * first pass and its retransmissions, or the chunks missing beyond the bound. Credit for lost
 * chunks that are not retransmitted would become a burst at the start of the next message. */
static uint64_t msg_remaining(const struct peer *p, const struct rx_msg *m)
{
    uint64_t missing = m->chunks - m->received_count;
    uint64_t bound = m->critical_left > 0 ? 0 : m->lost_max;
    uint64_t lacking = missing > bound ? missing - bound : 0;
    if (m->pass_over) {
        return lacking;
    }
    /* Packets that the peer has sent since the message was opened, without those received of other
     * messages. */
    uint32_t others = p->credit.data_heard - m->data_heard_open - m->data_heard;
    uint32_t sent = p->credit.data_count - m->data_count_open - others;
    bool alone = (p->rx.live & (p->rx.live - 1)) == 0;
    if (bound == 0 || !alone || sent < m->received_count) {
        return missing;
    }
    uint64_t left = m->chunks > sent ? m->chunks - sent : 0;
    uint64_t most = (uint64_t)m->chunks + pass_again_max(m->lost_max);
    uint64_t spare = pass_spare(m->lost_max);
    uint64_t again = missing > spare ? missing - spare : 0;
    again = weft_min_u64(again, most > sent ? most - sent : 0);
    /* `sent` may include further retransmissions and lost packets of other messages, so more chunks
     * may be left than it suggests. Credit for them is granted in steps of an eighth, not one by
     * one. */
    left = weft_max_u64(weft_max_u64(lacking, left), again);
    return weft_max_u64(left, missing / 8 + 1);
}

/* Size class of the shortest open message of the peer: a power of two. */
static uint64_t size_class(const struct peer *p)
{
    uint32_t chunks = UINT32_MAX;
    for (uint64_t live = p->rx.live; live != 0; live &= live - 1) {
        uint32_t of_this = p->rx.msgs[__builtin_ctzll(live)].chunks;
        chunks = of_this < chunks ? of_this : chunks;
    }
    return 31 - (uint64_t)__builtin_clz(chunks);
}

/* Priority of the most urgent open message of the peer. With only a backlog announced, it is the
 * priority of the last open message until the peer holds credit to begin the next one; after that
 * the lowest priority, because the message after an urgent one need not be urgent, and its first
 * packet contains its priority. */
static uint8_t priority_of(const struct peer *p)
{
    if (p->rx.live == 0 && weft_core_credit_outstanding(p) > 0) {
        return PRIORITY_LAST;
    }
    uint8_t priority = p->rx.live == 0 ? p->credit.priority : UINT8_MAX;
    for (uint64_t live = p->rx.live; live != 0; live &= live - 1) {
        uint8_t of_this = p->rx.msgs[__builtin_ctzll(live)].priority;
        priority = of_this < priority ? of_this : priority;
    }
    return priority;
}

uint32_t weft_core_credit_backlog(const struct peer *p)
{
    int32_t packets =
        p->credit.backlog_pn == 0 ? 0 : (int32_t)(p->credit.backlog_end - p->credit.data_count);
    return packets <= 0 ? 0 : (uint32_t)packets;
}

/* Remaining DATA packets of the open messages, or of the announced backlog if that is more. */
uint64_t weft_core_credit_remaining(const struct peer *p)
{
    uint64_t packets = 0;
    for (uint64_t live = p->rx.live; live != 0; live &= live - 1) {
        packets += msg_remaining(p, &p->rx.msgs[__builtin_ctzll(live)]);
    }
    return weft_max_u64(packets, weft_core_credit_backlog(p));
}

/* The first packets of a round arrive at the same time, at all endpoints of the host and over as
 * many links as there are senders. The buffer of the receiver's link must have space for all of
 * them, except for those that this link transmits meanwhile. */
static uint64_t at_once(const struct weft_ep *ep, uint64_t senders)
{
    const struct weft_credit_share *host = ep->config.credit_share;
    uint64_t ends = host == NULL ? 1 : atomic_load_explicit(&host->endpoints, memory_order_relaxed);
    ends = weft_max_u64(ends, 1);
    uint64_t links = senders * ends;
    return links <= 1 ? UINT64_MAX : ep->credit.at_once_host * links / (links - 1) / ends;
}

/* The number of senders that may start at once. */
uint64_t weft_core_credit_senders(const struct weft_ep *ep)
{
    uint64_t senders = weft_max_u64(ep->credit.senders, ep->config.senders_expected);
    if (ep->credit.senders == 0) {
        senders = weft_max_u64(senders, ep->peers_used); /* all peers may start at once */
    }
    return weft_max_u64(senders, 1);
}

/* The allowance: unscheduled packets of a sender without an open message, for the start of its next
 * one. */
uint32_t weft_core_credit_allowance(const struct weft_ep *ep)
{
    uint64_t senders = weft_core_credit_senders(ep);
    uint64_t budget = ep->credit.budget;
    if (!ep->config.same_host) {
        budget = weft_min_u64(budget, at_once(ep, senders));
    }
    uint64_t share = budget / senders;
    return (uint32_t)weft_max_u64(weft_min_u64(share, ep->config.unscheduled), 1);
}

static uint32_t allowance_far(const struct weft_ep *ep, uint64_t allowance, uint64_t far)
{
    uint64_t most = weft_max_u64(ep->config.unscheduled, allowance);
    return (uint32_t)weft_min_u64(allowance + far, most);
}

uint32_t weft_core_credit_allowance_of(const struct weft_ep *ep, const struct peer *p)
{
    return allowance_far(ep, weft_core_credit_allowance(ep), weft_core_credit_far(ep, p));
}

/* a - b, at least 0. */
static uint64_t without(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* An idle peer may hold more than its allowance since it was far, although it is not now. When
 * round-robin mode begins before its next message, that credit was granted before the mode, too
 * (far_before_turns). In the mode no credit is granted to a far peer, so far_out does not grow: a
 * peer that holds more than its allowance then may be a near one, when there are more senders. */
void weft_core_credit_idle_far(struct weft_ep *ep, struct peer *p)
{
    uint64_t has = weft_core_credit_outstanding(p);
    uint64_t beyond = without(has, weft_core_credit_allowance(ep));
    if (ep->credit.turns) {
        beyond = weft_min_u64(beyond, p->credit.far_out);
    } else {
        p->credit.far_end = p->credit.granted;
    }
    weft_core_credit_far_out(ep, p, (uint32_t)beyond);
}

/* ---- accounting ------------------------------------------------------------------------------ */

static void want(struct weft_ep *ep, struct peer *p, uint32_t room)
{
    size_t idx = peer_idx(ep, p);
    bool before = weft_bits_test(ep->credit_wants, idx);
    p->credit.room = room;
    if (room > 0 && !before) {
        weft_bits_set(ep->credit_wants, idx);
        ep->credit.wanting++;
    } else if (room == 0 && before) {
        weft_bits_clear(ep->credit_wants, idx);
        ep->credit.wanting--;
    }
}

/* The minimum of the base round trips is that of the link; others may include queueing delay. */
static void rtt_look(struct credit *c, struct peer *p, uint64_t rtt_ns)
{
    c->rtt_stale |= rtt_ns > p->credit.rtt_ns && p->credit.rtt_ns == c->rtt_ns;
    c->rtt_ns = weft_min_u64(c->rtt_ns, rtt_ns);
    p->credit.rtt_ns = rtt_ns;
}

/* Record that the peer holds credit for `out` packets and uses `packets` of it. */
static void hold(struct credit *c, struct peer *p, uint32_t packets, uint32_t out)
{
    c->total = c->total - p->credit.held + packets;
    c->out = c->out - p->credit.out + out;
    p->credit.held = packets;
    p->credit.out = out;
}

static void count_told(struct credit *c, struct peer *p, bool told, bool shared)
{
    c->told += (uint32_t)told - p->credit.counted_told;
    c->shared += (uint32_t)shared - p->credit.counted_shared;
    p->credit.counted_told = told;
    p->credit.counted_shared = shared;
}

/* In round-robin mode a sender is granted no more credit as a far sender. What it was granted
 * before stays outside the budget until it is used. Counted in the budget at once, it would stop
 * the grants to all senders for a long round trip. */
static uint64_t far_before_turns(const struct peer *p)
{
    int32_t left = (int32_t)(p->credit.far_end - p->credit.data_count);
    return left <= 0 ? 0 : weft_min_u64(p->credit.far_out, (uint32_t)left);
}

/* Count a peer with an open message. Credit beyond that message is the allowance for its next one,
 * and is not in flight, like the allowance of senders without a message. When it was counted as
 * outstanding, the link was idle at the end of every message of an incast. */
void weft_core_credit_look(struct weft_ep *ep, struct peer *p)
{
    uint32_t has = weft_core_credit_outstanding(p);
    p->credit.left = weft_core_credit_remaining(p);
    p->credit.class = size_class(p);
    p->credit.priority = priority_of(p);
    count_told(&ep->credit, p, p->credit.sender_told, p->credit.sender_shared);
    uint32_t out = p->credit.silent ? 0 : (uint32_t)weft_min_u64(has, p->credit.left);
    uint32_t uses = weft_core_credit_usable(ep, p, out);
    p->credit.far = weft_core_credit_far(ep, p);
    bool kept = ep->credit.turns && p->credit.far == 0;
    p->credit.far_end = kept ? p->credit.far_end : p->credit.granted;
    uint64_t far_out = weft_min_u64(kept ? far_before_turns(p) : p->credit.far, has);
    weft_core_credit_far_out(ep, p, (uint32_t)far_out);
    hold(&ep->credit, p, (uint32_t)without(uses, far_out), (uint32_t)without(out, far_out));
    uint32_t allowance = allowance_far(ep, ep->credit.allowance, p->credit.far);
    uint64_t useful = p->credit.left == 0 ? 0 : weft_max_u64(p->credit.left, allowance);
    useful = weft_min_u64(useful, ep->config.rx_window);
    uint32_t room = useful > has ? (uint32_t)(useful - has) : 0;
    /* Credit that is only for the next message is granted in halves of the allowance, not packet by
     * packet. */
    bool enough = has >= p->credit.left && has >= allowance / 2;
    want(ep, p, enough ? 0 : room);
    rtt_look(&ep->credit, p, p->recovery.rtt_ns_min);
}

static void rtt_again(struct weft_ep *ep)
{
    ep->credit.rtt_stale = false;
    ep->credit.rtt_ns = WEFT_NEVER;
    for (size_t i = weft_bits_next_one(ep->credit_active, ep->peers_used, 0); i < ep->peers_used;
         i = weft_bits_next_one(ep->credit_active, ep->peers_used, i + 1)) {
        ep->credit.rtt_ns = weft_min_u64(ep->credit.rtt_ns, ep->peers[i].recovery.rtt_ns_min);
    }
}

void weft_core_credit_count(struct weft_ep *ep)
{
    struct credit *c = &ep->credit;
    uint32_t allowance = weft_core_credit_allowance(ep);
    if (allowance != c->allowance) {
        c->allowance = allowance;
        memcpy(ep->credit_touched, ep->credit_active,
               WEFT_BITS_WORDS((size_t)ep->peers_used) * sizeof(uint64_t));
    }
    for (size_t i = weft_bits_next_one(ep->credit_touched, ep->peers_used, 0); i < ep->peers_used;
         i = weft_bits_next_one(ep->credit_touched, ep->peers_used, i + 1)) {
        weft_bits_clear(ep->credit_touched, i);
        struct peer *p = &ep->peers[i];
        if (p->rx.live == 0 && weft_core_credit_backlog(p) == 0) {
            weft_core_credit_idle(ep, p);
        } else if (weft_bits_test(ep->credit_active, i)) {
            weft_core_credit_look(ep, p);
        }
    }
    if (c->rtt_stale) {
        rtt_again(ep);
    }
}

void weft_core_credit_touch(struct weft_ep *ep, const struct peer *p)
{
    weft_bits_set(ep->credit_touched, peer_idx(ep, p));
    ep->credit.dirty = true;
}

/* The peer has an incoming message open. */
void weft_core_credit_open(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    if (!weft_bits_test(ep->credit_active, peer_idx(ep, p))) {
        weft_bits_set(ep->credit_active, peer_idx(ep, p));
        ep->credit.active++;
        p->credit.since_ns = now_ns;
        p->credit.rtt_ns = WEFT_NEVER;
    }
    weft_core_credit_touch(ep, p);
}

/* Process BACKLOG; that of the packet with the largest number applies. */
void weft_core_credit_backlog_told(struct weft_ep *ep, struct peer *p, uint32_t end, uint64_t pn,
                                   uint64_t now_ns)
{
    if (pn <= p->credit.backlog_pn) {
        return;
    }
    p->credit.backlog_pn = pn;
    p->credit.backlog_end = end;
    if (weft_core_credit_backlog(p) > 0) {
        weft_core_credit_open(ep, p, now_ns);
    } else {
        weft_core_credit_touch(ep, p);
    }
}

/* A peer with an announced backlog stays active. */
void weft_core_credit_closed(struct weft_ep *ep, struct peer *p)
{
    if (weft_core_credit_backlog(p) == 0) {
        weft_core_credit_idle(ep, p);
    } else {
        weft_core_credit_touch(ep, p);
    }
}

/* The peer has no message open and no backlog. */
void weft_core_credit_idle(struct weft_ep *ep, struct peer *p)
{
    if (weft_bits_test(ep->credit_active, peer_idx(ep, p))) {
        weft_bits_clear(ep->credit_active, peer_idx(ep, p));
        ep->credit.active--;
        hold(&ep->credit, p, 0, 0);
        want(ep, p, 0);
        count_told(&ep->credit, p, false, false);
        rtt_look(&ep->credit, p, WEFT_NEVER);
        p->credit.timer_ns = WEFT_NEVER;
        p->credit.silent = false;
        ep->credit.dirty = true;
    }
}

/* ---- use of credit --------------------------------------------------------------------------- */

/* A sender's own window may allow fewer packets per round trip than its credit, while other senders
 * could use the rest. The limit is the number of packets that it sent in two round trips, including
 * this end's delays, plus USE_SPARE: this is more than it has in flight, and allows its rate to
 * double. The limit does not apply to a sender that sent nothing in that time: it had nothing to
 * send or was sending to others. Nor does it apply to a sender that used all credit that it held at
 * the beginning: it is limited by credit, not by its window. With a limit for such senders, 32
 * senders at 40 Gbit/s to a port of 64 KB took 1.30 times the ideal time instead of 1.08, and 12
 * times as many packets were lost. If all windows open at the same time, at most twice the budget
 * arrives (weft_core_credit_run). */
void weft_core_credit_use(const struct weft_ep *ep, struct peer *p, uint64_t at_ns)
{
    uint64_t span_ns = 2 * (p->recovery.srtt_ns + p->ack.delay_ns + ep->credit.late_ns);
    bool steady = at_ns < p->credit.data_last_ns + span_ns && p->credit.use_ns != 0;
    bool kept = (int32_t)(p->credit.use_granted - p->credit.data_count) > 0;
    p->credit.use_most =
        steady && kept ? p->credit.data_count - p->credit.use_count + USE_SPARE : 0;
    p->credit.use_ns = at_ns + span_ns;
    p->credit.use_count = p->credit.data_count;
    p->credit.use_granted = p->credit.granted;
}

/* ---- the next sender ------------------------------------------------------------------------- */

/* The order is by priority. In round-robin mode it is then by the length of the message, then by
 * the least credit held, then by the longest wait. A sender that is busy with another receiver
 * keeps its credit. When the longest wait was first, such a sender was granted more in each turn,
 * until busy senders held the whole budget. */
struct turn {
    uint8_t priority;
    uint64_t class;
    uint32_t holds;
    uint64_t last;
};

static bool turn_before(const struct turn *a, const struct turn *b)
{
    if (a->priority != b->priority) {
        return a->priority < b->priority;
    }
    if (a->class != b->class) {
        return a->class < b->class;
    }
    return a->holds != b->holds ? a->holds < b->holds : a->last < b->last;
}

/* The sender to grant credit next: among those with the most urgent message the one with the fewest
 * packets left, or (`turns`) the first in round-robin order; or the one with the longest wait of
 * all (`longest`). Senders that hold `most` are skipped. */
struct peer *weft_core_credit_pick(struct weft_ep *ep, bool longest, bool turns, bool limited,
                                   uint64_t most)
{
    struct peer *best = NULL;
    struct turn best_turn = {.class = UINT64_MAX};
    for (size_t i = weft_bits_next_one(ep->credit_wants, ep->peers_used, 0); i < ep->peers_used;
         i = weft_bits_next_one(ep->credit_wants, ep->peers_used, i + 1)) {
        struct peer *p = &ep->peers[i];
        uint32_t holds = weft_core_credit_outstanding(p);
        if (p->credit.silent || without(holds, p->credit.far) >= most ||
            (limited && p->credit.use_most != 0 && holds >= p->credit.use_most)) {
            continue;
        }
        struct turn turn = {.priority = longest ? 0 : p->credit.priority,
                            .class = longest ? 0
                                     : turns ? p->credit.class
                                             : p->credit.left,
                            .holds = !longest && turns ? holds : 0,
                            .last = longest || turns ? p->credit.turn : 0};
        if (best == NULL || turn_before(&turn, &best_turn)) {
            best_turn = turn;
            best = p;
        }
    }
    return best;
}
