/* The order of peers in sending chunks, and the limit on bytes in the host's send queue.
 *
 * An endpoint has one link, and often chunks for several peers: a server's replies to all workers,
 * or the parts of a collective for all ranks. With round robin, all messages complete at the same,
 * late time. If they are sent one after another, the first completes early, and its receiver can
 * respond while the others are still being sent. The order is therefore by priority, then by length
 * (shortest first, by powers of two), then by age. Messages of equal length are sent in the order
 * in which they were opened. Every eighth burst is of the oldest message, regardless of its length,
 * so that no message starves.
 *
 * In an all-to-all exchange, equal messages that belong together are ordered by the age of their
 * credit instead, because receivers wait for this sender. Messages of which nothing was sent yet
 * precede them, in the order in which they were opened: hosts that open theirs in rotated orders
 * then begin with different receivers. This applies from the start of a round if the previous round
 * was such an exchange, and a burst is then at most a quarter of the limit below, so that all hosts
 * go through their receivers at the same pace. If a receiver's credit has been unused at
 * this end for a long time, the receiver has granted its whole budget to busy senders, and its link
 * is idle. When messages were sent one after another, seven messages of 18 chunks took 1.20 times
 * the ideal time, and half of the excess was the idle time of such receivers. This end detects an
 * all-to-all exchange by its own senders: they have other receivers, too (credit.c).
 *
 * The order applies only to packets that were not handed over to the host yet. No packet can
 * overtake one in the kernel's queue or in the network card, neither a more urgent message nor
 * acknowledgements and credit for the opposite direction: all-to-all took 1.5 times the ideal time
 * because credit was queued behind data of the same host. A driver that can measure that queue
 * reports it (weft_ep_queued), and chunks are handed over while it is below a limit. Control
 * packets are not limited. Without such a driver there is no limit.
 *
 * The limit is the lowest that keeps the link busy. It grows when the queue ran empty although
 * chunks waited, because this endpoint was late, and when packets are transmitted immediately,
 * because nothing queues. It shrinks when a quarter of it was still queued at each of the last
 * reports. It is at most one millisecond of the link (beside other traffic up to eight,
 * egress_share.c), and at least 12,000 bytes; if these take longer than a millisecond and there are
 * several receivers, at least four packets. The time of the next report is computed from the drain
 * rate of the queue.
 *
 * Source: docs/PROTOCOL.md section 5, "Order"; for the limit Linux's dynamic queue limits (Herbert,
 * 2011) and TCP small queues (Dumazet, 2012).
 */
#include "core/internal.h"

#include <stdlib.h>

enum {
    BURST_FIRST = 4, /* packets */
    BURST_GROWTH = 4,
    BURST_GROWTH_TURNS = 2, /* in round-robin order */
    TURN_OLDEST = 8, /* one of this many bursts is of the oldest message */
    TURN_SHARE = 4,  /* fraction of the limit for a burst in round-robin order */
    LIMIT_BYTES_MIN = 12000,
    LIMIT_PACKETS_MIN = 4,
    LIMIT_BYTES_MAX = 256000,
    EARLY_SHIFT_MAX = 6,
    STUCK_BYTES = 1000,      /* a draining queue shrinks by at least this in stuck_ns */
    REPORTS_PER_REVIEW = 16, /* late reports between two reviews of the limit */
    CLASS_SHIFT = 56,
    CLASS_PACED = 31,  /* above the class of any length */
    SERVED_SHIFT = 55, /* above any time or number */
    RANK_SHIFT = 48,
    AGE_PACED_SHIFT = 60,
    PRIORITY_SHIFT = 61,
};

static const uint64_t report_ns_first = 10 * WEFT_NS_PER_US; /* while the rate is not known */
static const uint64_t report_ns_min = 5 * WEFT_NS_PER_US;
static const uint64_t report_ns_max = 10 * WEFT_NS_PER_MS;
static const uint64_t stuck_ns = 20 * WEFT_NS_PER_MS;

bool weft_core_egress_init(struct weft_ep *ep)
{
    struct egress *e = &ep->egress;
    e->waits = calloc(WEFT_BITS_WORDS((size_t)ep->config.peers_max), sizeof(*e->waits));
    e->keys = calloc(ep->config.peers_max, sizeof(*e->keys));
    e->ages = calloc(ep->config.peers_max, sizeof(*e->ages));
    e->few_bytes = LIMIT_PACKETS_MIN * (uint64_t)ep->config.packet_bytes;
    e->limit_bytes = weft_max_u64(LIMIT_BYTES_MIN, e->few_bytes);
    e->room_bytes = UINT64_MAX;
    e->report_ns = WEFT_NEVER;
    e->queue_bytes_min = UINT64_MAX;
    egress_share_init(&e->share);
    return e->waits != NULL && e->keys != NULL && e->ages != NULL;
}

void weft_core_egress_fini(struct weft_ep *ep)
{
    free(ep->egress.waits);
    free(ep->egress.keys);
    free(ep->egress.ages);
}

/* ---- the order ------------------------------------------------------------------------------- */

/* Paced messages are ordered by rank, then by age. The scheduler, which assigns ranks, must prevent
 * starvation. */
static uint64_t ranked_age(const struct tx_msg *m)
{
    uint64_t opened = m->opened & ((UINT64_C(1) << RANK_SHIFT) - 1);
    return (uint64_t)(m->order & UINT8_MAX) << RANK_SHIFT | opened;
}

/* The host's queue may hold the whole message. */
static bool is_short(const struct weft_ep *ep, const struct tx_msg *m)
{
    return (uint64_t)m->chunks * ep->config.packet_bytes <= ep->egress.limit_bytes;
}

/* The message is one of an all-to-all exchange. A short message follows the order of opening until
 * this round is known to be such an exchange: otherwise, with messages of three chunks, rounds of
 * 64 hosts took 1 % longer. Keys are not recomputed when the limit, which defines "short",
 * changes. */
static bool in_turns(const struct weft_ep *ep, const struct tx_msg *m)
{
    const struct egress *e = &ep->egress;
    return m->together && (e->turns || (e->turns_before && !is_short(ep, m)));
}

/* The sort key of a peer is that of the message of its next chunk. Times are in units of 64 ns,
 * which do not overflow the bits below the class during the life of a host. */
static uint64_t key_of(const struct weft_ep *ep, const struct peer *p, const struct tx_msg *m)
{
    if (tx_ranked(m)) {
        return (uint64_t)m->priority << PRIORITY_SHIFT | (uint64_t)CLASS_PACED << CLASS_SHIFT |
               ranked_age(m);
    }
    uint64_t class = 31 - (uint64_t)__builtin_clz(m->chunks);
    bool served = in_turns(ep, m) && m->pass_next > 0;
    uint64_t last = served ? UINT64_C(1) << SERVED_SHIFT | p->allowed.turn_ns >> 6 : m->opened;
    return (uint64_t)m->priority << PRIORITY_SHIFT | class << CLASS_SHIFT | last;
}

void weft_core_egress_file(struct weft_ep *ep, struct peer *p)
{
    uint32_t chunk;
    bool again;
    const struct tx_msg *m = weft_core_tx_peek(p, &chunk, &again);
    if (m == NULL) {
        weft_core_egress_leave(ep, p);
        return;
    }
    ep->egress.keys[peer_idx(ep, p)] = key_of(ep, p, m);
    ep->egress.ages[peer_idx(ep, p)] =
        tx_ranked(m) ? UINT64_C(1) << AGE_PACED_SHIFT | ranked_age(m) : m->opened;
    if (!egress_waits(ep, p)) {
        weft_bits_set(ep->egress.waits, peer_idx(ep, p));
        ep->egress.waits_count++;
    }
}

void weft_core_egress_leave(struct weft_ep *ep, const struct peer *p)
{
    if (egress_waits(ep, p)) {
        weft_bits_clear(ep->egress.waits, peer_idx(ep, p));
        ep->egress.waits_count--;
    }
}

void weft_core_egress_unsent(struct weft_ep *ep, struct peer *p, int64_t chunks)
{
    bool before = p->tx.unsent > 0;
    tx_unsent_add(&p->tx, chunks);
    ep->egress.receivers += (p->tx.unsent > 0) - before;
}

static uint64_t limit_now(const struct egress *e)
{
    return e->share.trial ? 2 * e->limit_bytes : e->limit_bytes;
}

/* Packets of the host's queue, of all peers, as far as known: reported, and handed over since. */
static uint64_t queued_packets(const struct weft_ep *ep, const struct peer *p)
{
    const struct egress *e = &ep->egress;
    if (!ep->config.host_queue || !e->fresh || e->room_bytes > limit_now(e)) {
        return 0;
    }
    return (limit_now(e) - e->room_bytes) / p->path.packet_bytes;
}

/* Largest burst, in packets. On a link that may be idle the first bursts are small, so that the
 * link transmits them while more packets are built: each burst is at most four times the packets in
 * flight to the peer, or in the host's queue to any peer. A first burst of 25 packets reached the
 * link 70 us later than one of four, so a packet takes some 3 us to build, a quarter of its time on
 * a link of 1 Gbit/s. On faster links the sender is the limit, and each burst costs a system call.
 * This does not apply in the middle of a message. A sender that has waited there for credit shares
 * the receiver's link, which is busy; and a burst needs one system call, and as much work at each
 * hop as a single packet. In round-robin order a burst is at most twice the packets in flight to
 * the peer, and a quarter of the limit on the host's queue: with the whole limit for the first
 * receiver of a round, some hosts began with three packets and others with four, and bursts of
 * several hosts met at one receiver. */
uint32_t weft_core_egress_burst(const struct weft_ep *ep, const struct peer *p,
                                const struct tx_msg *m)
{
    bool shared = ep->config.host_queue && in_turns(ep, m) && !is_short(ep, m);
    uint64_t ahead = p->recovery.in_flight_count;
    ahead = shared ? ahead : weft_max_u64(ahead, queued_packets(ep, p));
    uint64_t few = m->acked_count > 0 ? WEFT_TX_PACKETS_MAX : BURST_FIRST;
    uint64_t growth = shared ? BURST_GROWTH_TURNS : BURST_GROWTH;
    uint64_t most = weft_max_u64(growth * ahead, few);
    uint64_t room_bytes = ep->egress.room_bytes;
    if (shared) {
        room_bytes = weft_min_u64(room_bytes, ep->egress.limit_bytes / TURN_SHARE);
    }
    most = weft_min_u64(most, room_bytes / p->path.packet_bytes);
    return (uint32_t)weft_min_u64(weft_max_u64(most, 1), WEFT_TX_PACKETS_MAX);
}

static struct peer *first_of(struct weft_ep *ep, bool oldest)
{
    const struct egress *e = &ep->egress;
    struct peer *best = NULL;
    uint64_t best_key = UINT64_MAX;
    for (size_t i = weft_bits_next_one(e->waits, ep->peers_used, 0); i < ep->peers_used;
         i = weft_bits_next_one(e->waits, ep->peers_used, i + 1)) {
        uint64_t key = oldest ? e->ages[i] : e->keys[i];
        if (key < best_key) {
            best_key = key;
            best = &ep->peers[i];
        }
    }
    return best;
}

/* Recompute all keys after a change of the mode: ages of credit and numbers of messages are not
 * comparable. */
static void order_refresh(struct weft_ep *ep)
{
    struct egress *e = &ep->egress;
    const struct credit *c = &ep->credit;
    if (e->turns == c->round_shared && e->turns_before == c->rounds_shared) {
        return;
    }
    e->turns = c->round_shared;
    e->turns_before = c->rounds_shared;
    for (size_t i = weft_bits_next_one(e->waits, ep->peers_used, 0); i < ep->peers_used;
         i = weft_bits_next_one(e->waits, ep->peers_used, i + 1)) {
        weft_core_egress_file(ep, &ep->peers[i]);
    }
}

struct peer *weft_core_egress_next(struct weft_ep *ep)
{
    struct egress *e = &ep->egress;
    order_refresh(ep);
    struct peer *p = first_of(ep, (e->bursts + 1) % TURN_OLDEST == 0);
    if (p == NULL) {
        e->late = false; /* no chunks wait for the queue */
        return NULL;
    }
    if (!ep->config.host_queue) {
        return p;
    }
    if (e->waiting) {
        return NULL;
    }
    e->asked = !e->fresh || e->room_bytes == 0;
    return e->asked ? NULL : p;
}

void weft_core_egress_sent(struct weft_ep *ep, uint64_t bytes)
{
    struct egress *e = &ep->egress;
    e->bursts++;
    e->handed_over = true;
    if (ep->config.host_queue) {
        e->room_bytes -= weft_min_u64(e->room_bytes, bytes);
    }
}

/* A chunk was sent out of its turn, regardless of the limit on the queue. */
void weft_core_egress_passed(struct weft_ep *ep, uint64_t bytes)
{
    struct egress *e = &ep->egress;
    if (!ep->config.host_queue) {
        return;
    }
    if (e->room_bytes > 0) {
        e->handed_over = true;
        e->room_bytes -= weft_min_u64(e->room_bytes, bytes);
    } else if (!e->handed_over) {
        e->queued_bytes += bytes; /* these bytes drain, too */
    }
}

/* ---- the host's queue ------------------------------------------------------------------------ */

/* Measure the drain rate since chunks were last handed over. The queue drains by whole packets, so
 * a small difference is not significant. Neither is a nearly empty queue: it may have been empty
 * for long, and the remaining bytes may be a control packet. In that case the report may have been
 * too late because the rate is underestimated, so the next reports are scheduled earlier. */
static void rate_measure(struct egress *e, uint64_t bytes, uint64_t now_ns)
{
    uint64_t drained = e->queued_bytes > bytes ? e->queued_bytes - bytes : 0;
    if (e->handed_over || drained < limit_now(e) / 4 || now_ns <= e->queued_ns) {
        return;
    }
    if (bytes < limit_now(e) / 4) {
        e->early_shift++;
        if (e->early_shift > EARLY_SHIFT_MAX) {
            egress_share_forget(
                &e->share); /* wrong by far, as after a change of the link: measure again */
            e->early_shift = 0;
        }
        return;
    }
    bool counted = e->link_bytes > e->queued_link_bytes && e->queued_link_bytes > 0;
    egress_share_receivers(&e->share, e->receivers);
    egress_share_sample(&e->share, e->limit_bytes, drained,
                        counted ? e->link_bytes - e->queued_link_bytes : 0,
                        now_ns - e->queued_ns, now_ns);
    e->early_shift = 0;
}

/* Minimum of the limit. At 25 Mbit/s, 12,000 bytes take 4 ms, and control packets queue behind
 * them: a chunk lost at the end of an all-to-all round arrived 8 ms later than with half as much.
 * With a single receiver these bytes are part of the queue that determines its ACK delay; with a
 * lower minimum, ACKs would use more of the opposite direction. */
static uint64_t limit_least(const struct egress *e)
{
    uint64_t bytes = e->receivers > 1 ? egress_share_limit(&e->share) : UINT64_MAX;
    return weft_max_u64(weft_min_u64(LIMIT_BYTES_MIN, bytes), e->few_bytes);
}

/* Maximum of the limit: one millisecond of the link, or more beside other traffic (egress_share.c).
 * On a host whose processes wait longer than that for a processor, a long queue with a fixed order
 * costs more than a short idle time of the link. */
static uint64_t limit_most(const struct egress *e)
{
    return weft_max_u64(weft_min_u64(egress_share_limit(&e->share), LIMIT_BYTES_MAX),
                        limit_least(e));
}

static void limit_adapt(struct egress *e, uint64_t bytes)
{
    if (e->share.shared) { /* other traffic delays the queue, so bytes that are still queued are no
                            * reason to reduce the limit */
        e->limit_bytes = limit_most(e);
        return;
    }
    bool starved = e->late && bytes == 0;
    bool passes = e->handed_over && e->room_bytes == 0 && bytes < e->limit_bytes / 4;
    if (starved || passes) {
        e->limit_bytes = weft_min_u64(2 * e->limit_bytes, limit_most(e));
        e->reports = 0;
        e->queue_bytes_min = UINT64_MAX;
        return;
    }
    e->limit_bytes = weft_min_u64(e->limit_bytes, limit_most(e));
    if (!e->late) {
        return;
    }
    e->queue_bytes_min = weft_min_u64(e->queue_bytes_min, bytes);
    if (++e->reports < REPORTS_PER_REVIEW) {
        return;
    }
    if (e->queue_bytes_min > e->limit_bytes / 4) {
        e->limit_bytes = weft_max_u64(e->limit_bytes - e->limit_bytes / 16, limit_least(e));
    }
    e->reports = 0;
    e->queue_bytes_min = UINT64_MAX;
}

static uint64_t report_wait_ns(const struct egress *e, uint64_t bytes)
{
    uint64_t rate_bps = e->share.rate_bps;
    if (rate_bps == 0) {
        return report_ns_first;
    }
    uint64_t drain_bytes = bytes > limit_now(e) / 2 ? bytes - limit_now(e) / 2 : 0;
    uint64_t wait_ns = drain_bytes * 8 * WEFT_NS_PER_S / rate_bps >> e->early_shift;
    return weft_min_u64(weft_max_u64(wait_ns, report_ns_min), report_ns_max);
}

bool weft_ep_queue_asked(const struct weft_ep *ep)
{
    return ep->egress.asked;
}

/* Subtract the bytes that do not drain, because they are not queued at the link: the kernel holds
 * datagrams to a host whose Ethernet address is not resolved for seconds, and datagrams to a dead
 * host must not block those to others. A link that is stalled gets one more limit of bytes each
 * time. */
static uint64_t without_stuck(struct egress *e, uint64_t bytes, uint64_t now_ns)
{
    if (e->handed_over || e->queue_bytes_max == 0 || bytes + STUCK_BYTES <= e->queue_bytes_max) {
        e->queue_bytes_max = bytes;
        e->queue_max_ns = now_ns;
    }
    e->queue_bytes_max = weft_max_u64(e->queue_bytes_max, bytes);
    if (now_ns - e->queue_max_ns >= stuck_ns) {
        e->stuck_bytes = bytes;
    }
    e->stuck_bytes = weft_min_u64(e->stuck_bytes, bytes);
    return bytes - e->stuck_bytes;
}

void weft_ep_queue_siblings(struct weft_ep *ep, bool siblings)
{
    egress_share_siblings(&ep->egress.share, siblings);
}

/* An interval is measured from a queue that is not nearly empty to another (rate_measure). */
bool weft_ep_link_asked(const struct weft_ep *ep, uint64_t reported_bytes)
{
    const struct egress *e = &ep->egress;
    return reported_bytes >= limit_now(e) / 4 && egress_share_asks(&e->share);
}

void weft_ep_link_sent(struct weft_ep *ep, uint64_t total_bytes)
{
    ep->egress.link_bytes = total_bytes;
}

void weft_ep_queued(struct weft_ep *ep, uint64_t reported_bytes, uint64_t now_ns)
{
    struct egress *e = &ep->egress;
    uint64_t bytes = without_stuck(e, reported_bytes, now_ns);
    rate_measure(e, bytes, now_ns);
    limit_adapt(e, bytes);
    if (e->handed_over) {
        e->queued_bytes = bytes;
        e->queued_link_bytes = e->link_bytes;
        e->queued_ns = now_ns;
    }
    e->link_bytes = 0;
    e->asked = false;
    e->late = false;
    e->handed_over = false;
    e->fresh = true;
    /* Hand over at least a quarter of the limit, not single packets. */
    uint64_t limit = limit_now(e);
    e->room_bytes = bytes <= limit - limit / 4 ? limit - bytes : 0;
    e->waiting = e->room_bytes == 0;
    e->report_ns = e->waiting ? now_ns + report_wait_ns(e, bytes) : WEFT_NEVER;
    ep->counters.queue_waits += e->waiting;
}

/* A new progress step begins: the last report is outdated. */
void weft_core_egress_turn(struct weft_ep *ep, uint64_t now_ns)
{
    struct egress *e = &ep->egress;
    e->fresh = false;
    if (e->waiting && now_ns >= e->report_ns) {
        e->waiting = false;
        e->late = true;
        e->report_ns = WEFT_NEVER;
    }
}
