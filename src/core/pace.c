/* Held messages: their start and their rate (core/msg.h).
 *
 * A held message uses only a sequence number and memory: no chunk of it is sent or probed, BACKLOG
 * does not count it, so the receiver grants no credit for it, and it sets no timer. When it is
 * released, it begins like a message that is opened at that time.
 *
 * The rate is enforced by a virtual clock for each message, or for each group of messages. Every
 * packet advances the clock by the packet's transmission time at the rate. Packets may be sent
 * until the clock is lead_ns ahead of the time. Then the message, or all of the group, is paused
 * until the time has caught up, so that one timer covers lead_ns of packets. The group's pause
 * leaves out messages with nothing more to send: while only paused messages are open nothing is
 * probed, and a group of a low rate is paused most of the time. After a late timer, or
 * a lack of window or credit, it catches up by at most lag_ns: more would be a burst into a link
 * that other flows use by then.
 *
 * Source: docs/PROTOCOL.md section 5, "Scheduled messages".
 */
#include "core/internal.h"

static const uint64_t lead_ns = 100 * WEFT_NS_PER_US;
static const uint64_t lag_ns = 1 * WEFT_NS_PER_MS;

enum { ANNOUNCE_PACKETS = 2 };

static struct tx_msg *find(struct peer *p, uint64_t seq)
{
    struct tx_msg *m = &p->tx.msgs[seq & MSG_MASK];
    return m->active && m->seq == seq ? m : NULL;
}

static void rest_until(struct peer *p, struct tx_msg *m, uint64_t at_ns)
{
    tx_msg_rest_until(m, at_ns);
    tx_pace_due(&p->tx, at_ns);
}

/* The virtual clock of the message, or of its group. */
static uint64_t clock_of(const struct peer *p, const struct tx_msg *m)
{
    return m->pace_group == 0 ? m->rate_clock_ns : p->tx.group_clock_ns[m->pace_group - 1];
}

/* It has a chunk to send, for the first time or again. */
static bool has_left(const struct tx_msg *m)
{
    return m->pass_next < m->chunks || (m->lost_count > 0 && !weft_core_tx_satisfied(m));
}

/* The message may be sent from now on; but not while its group is paused. */
static void join_group(struct peer *p, struct tx_msg *m, uint64_t now_ns)
{
    if (m->pace_group != 0 && m->rate_bps != 0 && has_left(m) &&
        clock_of(p, m) > now_ns + lead_ns) {
        tx_paced_mark(&p->tx, m->seq, true);
        rest_until(p, m, clock_of(p, m));
    }
}

/* Begin the message as if it were opened now. */
static void begin(struct weft_ep *ep, struct peer *p, struct tx_msg *m, uint64_t now_ns)
{
    bool alone = !peer_waiting(p) || peer_waits_late(p);
    tx_held_end(&p->tx, m->seq);
    tx_msg_begin(m, now_ns);
    tx_backlog_due(&p->tx, p->tx.unsent > 0);
    weft_core_egress_unsent(ep, p, m->chunks);
    join_group(p, m, now_ns);
    if (alone) {
        recovery_wait(&p->recovery, now_ns);
    }
}

weft_status weft_core_pace(struct weft_ep *ep, struct peer *p, uint64_t seq,
                           const struct weft_msg_pace *pace, uint64_t now_ns)
{
    struct tx_msg *m = find(p, seq);
    if (m == NULL || m->finish_short) {
        return WEFT_NOTFOUND;
    }
    if (!m->held || pace->group > WEFT_MSG_PACE_GROUPS) {
        return WEFT_INVALID;
    }
    uint64_t priority = weft_min_u64((uint64_t)m->priority + pace->rank, PRIORITY_LAST);
    tx_msg_pace_set(m, pace->rank, (uint8_t)priority, ANNOUNCE_PACKETS, pace->rate_bps, pace->group,
                    now_ns);
    if (pace->group != 0) {
        tx_group_rate_set(&p->tx, pace->group, pace->rate_bps, now_ns);
    }
    bool rests = pace->start_ns > now_ns;
    tx_paced_mark(&p->tx, m->seq, rests && !m->unbegun);
    if (rests) {
        rest_until(p, m, pace->start_ns);
        tx_msg_grant(m);
    } else if (m->unbegun) {
        begin(ep, p, m, now_ns);
    } else {
        join_group(p, m, now_ns);
    }
    weft_core_peer_ready(ep, p);
    return WEFT_OK;
}

weft_status weft_core_withdraw(struct weft_ep *ep, struct peer *p, uint64_t seq, uint64_t now_ns)
{
    struct tx_msg *m = find(p, seq);
    if (m == NULL) {
        return WEFT_NOTFOUND;
    }
    if (!m->held || m->finish_short || m->in_flight > 0 || m->pass_next > 0) {
        return WEFT_STATE;
    }
    weft_core_tx_withdrawn(ep, p, m, now_ns);
    weft_core_peer_ready(ep, p); /* BACKLOG may have announced chunks that will not be sent */
    return WEFT_OK;
}

void weft_core_pace_sent(struct peer *p, struct tx_msg *m, uint32_t bytes, uint64_t now_ns)
{
    const uint64_t before_ns = clock_of(p, m);
    const uint64_t from_ns =
        now_ns > lag_ns ? weft_max_u64(before_ns, now_ns - lag_ns) : before_ns;
    const uint64_t clock_ns = weft_time_add(from_ns, weft_core_time_of(m->rate_bps, bytes));
    if (m->pace_group == 0) {
        tx_msg_rate_clock_set(m, clock_ns);
    } else {
        tx_group_clock_set(&p->tx, m->pace_group, clock_ns);
    }
    if (clock_ns <= now_ns + lead_ns) {
        return;
    }
    tx_paced_mark(&p->tx, m->seq, true);
    rest_until(p, m, clock_ns);
    for (uint64_t rest = m->pace_group != 0 ? p->tx.active : 0; rest != 0; rest &= rest - 1) {
        struct tx_msg *other = &p->tx.msgs[__builtin_ctzll(rest)];
        const bool starts_later =
            (p->tx.paced & tx_bit(other->seq)) != 0 && other->pace_ns > clock_ns;
        if (other->held && !other->unbegun && other->pace_group == m->pace_group &&
            has_left(other) && !starts_later) {
            tx_paced_mark(&p->tx, other->seq, true);
            rest_until(p, other, clock_ns);
        }
    }
}

void weft_core_pace_lost(struct peer *p, struct tx_msg *m, uint64_t now_ns)
{
    if (!m->unbegun && (p->tx.paced & tx_bit(m->seq)) == 0) {
        join_group(p, m, now_ns);
    }
}

/* Begin or continue the messages whose start time or pause has passed. While all messages are
 * paused, no reply is outstanding. */
void weft_core_pace_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    tx_pace_end(&p->tx);
    for (uint64_t rest = (p->tx.held | p->tx.paced) & p->tx.active; rest != 0; rest &= rest - 1) {
        struct tx_msg *m = &p->tx.msgs[__builtin_ctzll(rest)];
        if (m->unbegun && !m->granted) {
            continue;
        }
        if (m->pace_ns > now_ns) {
            tx_pace_due(&p->tx, m->pace_ns);
        } else if (m->unbegun) {
            begin(ep, p, m, now_ns);
        } else {
            if (!peer_waiting(p) || peer_waits_late(p)) {
                recovery_wait(&p->recovery, now_ns);
            }
            tx_paced_mark(&p->tx, m->seq, false);
            join_group(p, m, now_ns);
        }
    }
}
