/* Timers: the deadlines of all peers, and the actions when they expire.
 *
 * The deadlines are a binary heap of peers; the first is the deadline of the endpoint. The deadline
 * of a peer is the earliest timer of its objects.
 */
#include "core/internal.h"

/* If a deadline is processed late by at least this time, the process, or its host, was suspended.
 * After a pause of a large part of the peer timeout, the time of the pause must not count as
 * silence of the peers. */
static uint64_t pause_ns(const struct weft_ep *ep)
{
    return weft_min_u64(WEFT_NS_PER_S, ep->config.peer_timeout_ns / 2);
}

/* The positions of the peers in the heap are a separate array and not a field of the peer, so that
 * sifting one peer does not load the cache lines of others. */
static void heap_place(struct weft_ep *ep, uint32_t pos, struct deadline d)
{
    ep->heap[pos] = d;
    ep->heap_pos[d.peer] = pos;
}

static void heap_sift_up(struct weft_ep *ep, uint32_t pos)
{
    struct deadline d = ep->heap[pos];
    while (pos > 0) {
        uint32_t parent = (pos - 1) / 2;
        if (ep->heap[parent].at_ns <= d.at_ns) {
            break;
        }
        heap_place(ep, pos, ep->heap[parent]);
        pos = parent;
    }
    heap_place(ep, pos, d);
}

static void heap_sift_down(struct weft_ep *ep, uint32_t pos)
{
    struct deadline d = ep->heap[pos];
    for (;;) {
        uint32_t child = 2 * pos + 1;
        if (child >= ep->heap_count) {
            break;
        }
        if (child + 1 < ep->heap_count && ep->heap[child + 1].at_ns < ep->heap[child].at_ns) {
            child++;
        }
        if (d.at_ns <= ep->heap[child].at_ns) {
            break;
        }
        heap_place(ep, pos, ep->heap[child]);
        pos = child;
    }
    heap_place(ep, pos, d);
}

void weft_core_timers_remove(struct weft_ep *ep, const struct peer *p)
{
    uint32_t idx = peer_idx(ep, p);
    uint32_t pos = ep->heap_pos[idx];
    if (pos == UINT32_MAX) {
        return;
    }
    ep->heap_pos[idx] = UINT32_MAX;
    ep->heap_count--;
    if (pos == ep->heap_count) {
        return;
    }
    uint32_t moved = ep->heap[ep->heap_count].peer;
    heap_place(ep, pos, ep->heap[ep->heap_count]);
    heap_sift_up(ep, pos);
    heap_sift_down(ep, ep->heap_pos[moved]);
}

static uint64_t peer_deadline(const struct peer *p)
{
    bool at_once = p->sec.broken || (p->conn.replaced && p->conn.state == PEER_OPEN);
    uint64_t at = at_once ? 0 : weft_min_u64(p->conn.hello_ns, p->conn.timer_ns);
    if (peer_connected(p)) {
        at = weft_min_u64(at, p->sec.previous ? p->sec.previous_until_ns : WEFT_NEVER);
        at = weft_min_u64(at, p->ack.pending > 0 && !p->conn.idle ? p->ack.due_ns : WEFT_NEVER);
        at = weft_min_u64(at, p->recovery.loss_ns);
        at = weft_min_u64(at, weft_min_u64(p->recovery.pto_ns, p->recovery.tail_ns));
        at = weft_min_u64(at, p->pacer.until_ns);
        at = weft_min_u64(at, p->tx.pace_ns);
        at = weft_min_u64(at, p->rx.timer_ns);
        at = weft_min_u64(at, p->credit.timer_ns);
    }
    return weft_min_u64(at, p->tx.deadline_ns);
}

static void peer_file(struct weft_ep *ep, const struct peer *p)
{
    uint64_t at = peer_deadline(p);
    if (at == WEFT_NEVER) {
        weft_core_timers_remove(ep, p);
        return;
    }
    uint32_t idx = peer_idx(ep, p);
    uint32_t pos = ep->heap_pos[idx];
    if (pos == UINT32_MAX) {
        pos = ep->heap_count++;
        ep->heap[pos] = (struct deadline){.at_ns = at, .peer = idx};
        heap_sift_up(ep, pos);
    } else if (at != ep->heap[pos].at_ns) {
        ep->heap[pos].at_ns = at;
        heap_sift_up(ep, pos);
        heap_sift_down(ep, ep->heap_pos[idx]);
    }
}

uint64_t weft_ep_deadline(const struct weft_ep *ep)
{
    if (ep->handshake_guard.reply_count > 0 ||
        weft_bits_next_one(ep->ready, ep->peers_used, 0) < ep->peers_used) {
        return 0; /* weft_ep_send has not returned 0 yet */
    }
    return weft_min_u64(ep->egress.report_ns, ep->heap_count == 0 ? WEFT_NEVER : ep->heap[0].at_ns);
}

static void peer_timers(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    if (p->sec.broken) {
        if (p->conn.state == PEER_CLOSING && p->conn.down_raised) {
            weft_core_peer_clear(ep, p);
        } else {
            weft_core_peer_down(ep, p, WEFT_DOWN_CRYPTO, now_ns);
        }
        return;
    }
    if (p->conn.replaced && p->conn.state == PEER_OPEN) {
        weft_core_peer_down(ep, p, WEFT_DOWN_RESTARTED, now_ns);
        return;
    }
    if (p->conn.timer_ns <= now_ns) {
        weft_core_life_timer(ep, p, now_ns);
        if (p->conn.state == PEER_FREE) {
            return;
        }
    }
    if (p->conn.state == PEER_CONNECTING && ep->resumed_ns == now_ns) {
        conn_hello_since(&p->conn, now_ns);
    }
    if (p->conn.state == PEER_HALF_OPEN && p->conn.hello_ns <= now_ns) {
        weft_core_peer_down(ep, p, WEFT_DOWN_SILENT,
                            now_ns); /* no event: PEER_UP was never raised */
        return;
    }
    if (p->conn.state == PEER_CONNECTING && ep->config.peer_timeout_ns != WEFT_NEVER &&
        now_ns - p->conn.hello_since_ns >= ep->config.peer_timeout_ns) {
        weft_core_peer_down(ep, p, WEFT_DOWN_SILENT, now_ns);
        return;
    }
    if (p->tx.deadline_ns <= now_ns) {
        weft_core_tx_timer(p, now_ns);
    }
    if (!peer_connected(p)) {
        return;
    }
    if (p->rx.timer_ns <= now_ns) {
        weft_core_rx_timer(ep, p, now_ns);
        if (p->conn.state == PEER_FREE) {
            return;
        }
    }
    if (p->credit.timer_ns <= now_ns) {
        weft_core_credit_timer(ep, p, now_ns);
    }
    weft_core_secure_timer(ep, p, now_ns);
    if (p->recovery.loss_ns <= now_ns) {
        weft_core_loss_timer(ep, p, now_ns);
    }
    if (p->ack.pending > 0 && p->ack.due_ns <= now_ns) {
        ack_at_once(&p->ack);
    }
    if (p->pacer.until_ns <= now_ns) {
        pacer_wake(&p->pacer);
    }
    if (p->tx.pace_ns <= now_ns) {
        weft_core_pace_timer(ep, p, now_ns);
    }
    if (p->recovery.tail_ns <= now_ns) {
        weft_core_tail_fire(ep, p, now_ns);
    }
    if (p->recovery.pto_ns <= now_ns) {
        weft_core_pto_arm(ep, p); /* a reply may have arrived since it was armed */
    }
    if (p->recovery.pto_ns <= now_ns) {
        weft_core_pto_fire(ep, p, now_ns);
    }
}

void weft_ep_on_deadline(struct weft_ep *ep, uint64_t now_ns)
{
    ep->trace.now_ns = now_ns;
    weft_core_egress_turn(ep, now_ns);
    while (ep->heap_count > 0 && ep->event_count + EVENTS_RESERVE <= EVENTS_MAX) {
        const struct deadline due = ep->heap[0];
        struct peer *p = &ep->peers[due.peer];
        if (due.at_ns > now_ns) {
            return;
        }
        if (due.at_ns > 0 && now_ns - due.at_ns > pause_ns(ep)) { /* 0: due immediately */
            ep->resumed_ns = now_ns;
        }
        weft_core_timers_remove(ep, p); /* inserted again after sending */
        peer_timers(ep, p, now_ns);
        if (p->conn.state != PEER_FREE) {
            weft_core_peer_ready(ep, p);
        }
    }
}

void weft_core_timers_arm(struct weft_ep *ep, struct peer *p)
{
    if (p->conn.state != PEER_FREE) {
        weft_core_pto_arm(ep, p);
        weft_core_tail_arm(ep, p);
        weft_core_credit_arm(ep, p);
        weft_core_life_arm(ep, p);
        peer_file(ep, p);
    }
}
