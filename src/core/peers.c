/* The table of peers: allocation and reuse of slots, PEER_UP and PEER_DOWN. */
#include "core/internal.h"

/* If the table is full, an idle peer keeps its slot for this many peer timeouts. */
enum { IDLE_PATIENCE = 12 };

void weft_core_peer_ready(struct weft_ep *ep, struct peer *p)
{
    weft_bits_set(ep->ready, peer_idx(ep, p));
}

/* Reset everything except the memory that the slot owns. */
void weft_core_peer_clear(struct weft_ep *ep, struct peer *p)
{
    struct peer fresh = {
        .conn.events_unpolled = p->conn.events_unpolled,
        .recovery.packets = p->recovery.packets,
        .recovery.in_flight_bits = p->recovery.in_flight_bits,
        .recovery.lost_bits = p->recovery.lost_bits,
        .tx.msgs = p->tx.msgs,
        .rx.msgs = p->rx.msgs,
        .conn.hello_ns = WEFT_NEVER,
        .conn.timer_ns = WEFT_NEVER,
        .conn.close_ns = WEFT_NEVER,
        .conn.drain_ns = WEFT_NEVER,
        .pacer.until_ns = WEFT_NEVER,
        .recovery.loss_ns = WEFT_NEVER,
        .recovery.pto_ns = WEFT_NEVER,
        .recovery.tail_ns = WEFT_NEVER,
        .recovery.wait_since_ns = WEFT_NEVER,
        .tx.deadline_ns = WEFT_NEVER,
        .tx.pace_ns = WEFT_NEVER,
        .rx.timer_ns = WEFT_NEVER,
        .ack.due_ns = WEFT_NEVER,
        .ack.delay_ns = ack_delay_ns_min,
        .recovery.peer_delay_ns = ack_delay_ns_min,
        .credit.timer_ns = WEFT_NEVER,
        .ack.low = UINT64_MAX,
        .ack.low_before = UINT64_MAX,
        .recovery.pn_next = 1,
        .recovery.pn_oldest = 1,
        .recovery.pn_data_acked_least = UINT64_MAX,
        .tx.next_seq = 1,
        .tx.open_from = 1,
        .rx.open_from = 1,
        .recovery.reorder_threshold = REORDER_FIRST,
        .recovery.rtt_ns_min = WEFT_NEVER,
    };
    weft_core_path_init(ep, &fresh);
    weft_core_timers_remove(ep, p);
    weft_core_credit_idle(ep, p);
    weft_core_credit_far_out(ep, p, 0);
    weft_core_secure_clear(ep, p);
    weft_bits_clear(ep->ready, peer_idx(ep, p));
    weft_core_egress_leave(ep, p);
    weft_core_egress_unsent(ep, p, -(int64_t)p->tx.unsent);
    recovery_bits_clear(&p->recovery, ep->config.tx_window_max);
    *p = fresh;
    for (uint32_t i = 0; i < WEFT_MSGS_MAX; i++) { /* unused slots are not written */
        tx_msg_clear(&p->tx.msgs[i]);
        rx_msg_clear(&p->rx.msgs[i]);
    }
}

static struct peer *peer_find_free(struct weft_ep *ep)
{
    for (uint32_t i = 0; i < ep->config.peers_max; i++) {
        if (ep->peers[i].conn.state == PEER_FREE && ep->peers[i].conn.events_unpolled == 0) {
            return &ep->peers[i];
        }
    }
    /* First drop closed connections that only wait for late packets. */
    for (uint32_t i = 0; i < ep->config.peers_max; i++) {
        const struct peer *p = &ep->peers[i];
        if (p->conn.state == PEER_CLOSING && !weft_core_closing(p) &&
            p->conn.events_unpolled == 0) {
            return &ep->peers[i];
        }
    }
    /* Next drop half-open peers, because they cost an attacker nothing: first those whose address
     * is not validated, and of several the oldest. */
    struct peer *best = NULL;
    for (uint32_t i = 0; i < ep->config.peers_max; i++) {
        struct peer *p = &ep->peers[i];
        if (p->conn.state != PEER_HALF_OPEN || p->tx.active != 0 || p->conn.events_unpolled > 0) {
            continue;
        }
        if (best == NULL || (best->sec.proven && !p->sec.proven) ||
            (best->sec.proven == p->sec.proven &&
             p->conn.hello_since_ns < best->conn.hello_since_ns)) {
            best = p;
        }
    }
    return best;
}

/* No message is open in either direction, and nothing is outstanding. */
bool weft_core_peer_quiet(const struct peer *p)
{
    return p->tx.active == 0 && !peer_waiting(p) && p->rx.live == 0 && p->rx.closed == 0;
}

/* The quiet peer from which no packet has arrived for the longest time, but at least `silence_ns`;
 * among the idle peers or among the others. */
static struct peer *silent_find(struct weft_ep *ep, bool idle, uint64_t silence_ns, uint64_t now_ns)
{
    struct peer *oldest = NULL;
    for (uint32_t i = 0; i < ep->peers_used; i++) {
        struct peer *p = &ep->peers[i];
        bool dead =
            p->conn.state == PEER_OPEN && p->conn.idle == idle && weft_core_peer_quiet(p) &&
            weft_time_add(weft_max_u64(p->conn.heard_ns, ep->resumed_ns), silence_ns) <= now_ns;
        if (dead && (oldest == NULL || p->conn.heard_ns < oldest->conn.heard_ns)) {
            oldest = p;
        }
    }
    return oldest;
}

/* The table is full: drop a peer whose process has probably crashed. A peer that sent IDLE may be
 * computing, so it is dropped after the others, and only if it has been idle for longer than most
 * training steps. The slot is free when its PEER_DOWN has been polled; the new peer's next HELLO
 * then uses it. */
static void peer_reclaim(struct weft_ep *ep, uint64_t now_ns)
{
    uint64_t timeout_ns = ep->config.peer_timeout_ns;
    uint64_t asleep_ns =
        timeout_ns < WEFT_NEVER / IDLE_PATIENCE ? IDLE_PATIENCE * timeout_ns : WEFT_NEVER;
    struct peer *p = silent_find(ep, false, timeout_ns, now_ns);
    p = p != NULL ? p : silent_find(ep, true, asleep_ns, now_ns);
    if (p != NULL) {
        weft_core_peer_down(ep, p, WEFT_DOWN_SILENT, now_ns);
    }
}

struct peer *weft_core_peer_alloc(struct weft_ep *ep, const struct weft_addr *addr, uint64_t now_ns)
{
    struct peer *p = peer_find_free(ep);
    if (p == NULL) {
        peer_reclaim(ep, now_ns);
        return NULL;
    }
    weft_core_peer_clear(ep, p);
    uint32_t idx = peer_idx(ep, p);
    ep->peers_used = idx >= ep->peers_used ? idx + 1 : ep->peers_used;
    p->conn.addr = *addr;
    /* The low 12 bits are the slot; 20 bits distinguish the connection from earlier ones in the
     * slot. */
    uint64_t id = weft_prng_u64(&ep->prng);
    (void)weft_core_secret_u64(ep,
                               &id); /* on failure a predictable id does little harm: section 8.6 */
    p->conn.id = (uint32_t)(id << 12) | idx;
    allowed_begin(&p->allowed, 1);
    credit_begin(&p->credit, weft_core_credit_first(ep));
    p->conn.hello_since_ns = now_ns;
    pacer_restart(&p->pacer, now_ns);
    weft_cc_begin(&p->cc, ep->cc_ops, p->path.packet_bytes, now_ns);
    return p;
}

void weft_core_peer_up(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    p->conn.state = PEER_OPEN;
    p->conn.hello_ns = WEFT_NEVER;
    p->conn.heard_ns = now_ns;
    if (p->conn.accepts == 1) {
        /* The time from ACCEPT to the first packet: not an exact round trip, but an upper bound of
         * the minimum, measured before there is a queue. */
        recovery_rtt_bound(&p->recovery, weft_max_u64(now_ns - p->conn.accept_ns, 1000));
    }
    trace(ep, p, WEFT_TRACE_PEER_UP, 0, p->conn.name, p->conn.id, 0, 0);
    weft_core_path_up(ep, p, now_ns);
    struct weft_msg_event *ev = weft_core_event_push(ep);
    ev->type = WEFT_EVENT_PEER_UP;
    ev->peer = peer_idx(ep, p);
    ev->name = p->conn.name;
    ev->incarnation = p->conn.incarnation;
    ev->at_ns = now_ns;
    weft_core_peer_ready(ep, p);
}

void weft_core_peer_end(struct weft_ep *ep, struct peer *p, enum weft_msg_down why,
                        uint16_t close_code, uint64_t now_ns)
{
    bool was_known = p->conn.state != PEER_HALF_OPEN;
    weft_core_rx_close_all(ep, p, now_ns);
    weft_core_tx_close_all(ep, p, now_ns);
    credit_backlog_none(&p->credit);
    weft_core_credit_idle(ep, p);
    weft_core_credit_far_out(ep, p, 0);
    if (was_known) {
        trace(ep, p, WEFT_TRACE_PEER_DOWN, 0, p->conn.name, why, 0, 0);
        struct weft_msg_event *ev = weft_core_event_push(ep);
        ev->type = WEFT_EVENT_PEER_DOWN;
        p->conn.events_unpolled++;
        ev->peer = peer_idx(ep, p);
        ev->name = p->conn.name;
        ev->incarnation = p->conn.incarnation;
        ev->down = why;
        ev->close_code = close_code;
        ev->at_ns = now_ns;
    }
}

void weft_core_peer_down(struct weft_ep *ep, struct peer *p, enum weft_msg_down why,
                         uint64_t now_ns)
{
    weft_core_peer_end(ep, p, why, 0, now_ns);
    weft_core_peer_clear(ep, p); /* state PEER_FREE is 0; the masks of events are in the arenas,
                                  * which are not cleared */
}

weft_status weft_ep_connect(struct weft_ep *ep, const struct weft_addr *addr, uint64_t now_ns,
                            weft_peer *peer_p)
{
    struct peer *p = weft_core_peer_alloc(ep, addr, now_ns);
    if (p == NULL) {
        return WEFT_NOMEM;
    }
    p->conn.state = PEER_CONNECTING;
    secure_begin(&p->sec, (uint8_t)ep->config.mode);
    p->conn.hello_ns = now_ns;
    p->conn.hello_interval_ns = hello_first_ns;
    p->conn.hello_since_ns = now_ns;
    weft_core_peer_ready(ep, p);
    *peer_p = peer_idx(ep, p);
    return WEFT_OK;
}

static void close_with(struct weft_ep *ep, weft_peer peer, uint16_t code, uint64_t now_ns)
{
    if (peer >= ep->peers_used || ep->peers[peer].conn.state == PEER_FREE ||
        ep->peers[peer].conn.state == PEER_CLOSING) {
        return;
    }
    struct peer *p = &ep->peers[peer];
    if (p->conn.state == PEER_HALF_OPEN) {
        /* No PEER_UP was raised, and its address is not validated: send nothing, not even CLOSE. */
        p->conn.need_accept = false;
        p->conn.hello_ns = now_ns; /* expired; the next deadline frees the slot */
        weft_core_peer_ready(ep, p);
        return;
    }
    weft_core_close(ep, p, WEFT_DOWN_LOCAL, code, now_ns);
}

void weft_ep_close(struct weft_ep *ep, weft_peer peer, uint64_t now_ns)
{
    close_with(ep, peer, WEFT_CLOSE_FINISHED, now_ns);
}

void weft_ep_refuse(struct weft_ep *ep, weft_peer peer, uint64_t now_ns)
{
    close_with(ep, peer, WEFT_CLOSE_REPLACED, now_ns);
}

static bool state_find(const struct weft_ep *ep, enum peer_state state,
                       const struct weft_addr *addr)
{
    for (uint32_t i = 0; i < ep->peers_used; i++) {
        const struct peer *p = &ep->peers[i];
        if (p->conn.state == state && (addr == NULL || addr_equal(&p->conn.addr, addr))) {
            return true;
        }
    }
    return false;
}

bool weft_ep_connecting(const struct weft_ep *ep, const struct weft_addr *addr)
{
    return state_find(ep, PEER_CONNECTING, addr);
}

bool weft_ep_connected(const struct weft_ep *ep, const struct weft_addr *addr)
{
    return state_find(ep, PEER_OPEN, addr);
}
