/* Peers up and down, and all timers.
 *
 * Silence: the kernel detects a dead host late (after many minutes) and a hung process never, so
 *          the driver probes peers itself. While something is outstanding, a peer that was silent
 *          for half the peer timeout is sent PING, and is declared dead after the full timeout.
 *          Progress of a write counts as a sign of life, because the kernel accepts more bytes only
 *          when the other end reads.
 */
#include "io/tcp/internal.h"

/* A process whose timer is this late was suspended, and has not read its sockets for a large part
 * of the peer timeout. */
static uint64_t pause_ns(const struct weft_tcp *t)
{
    return weft_min_u64(WEFT_NS_PER_S, t->config.ep.peer_timeout_ns / 2);
}

/* ---- up and down ----------------------------------------------------------------------------- */

static struct tcp_peer *peer_find_free(struct weft_tcp *t)
{
    for (uint32_t i = 0; i < t->config.ep.peers_max; i++) {
        if (t->peers[i].state == TCP_PEER_FREE && t->peers[i].events_unpolled == 0) {
            return &t->peers[i];
        }
    }
    return NULL;
}

bool weft_tcp_peer_room(const struct weft_tcp *t)
{
    /* Slots with unpolled events are counted, too: the events are usually polled before the first
     * record arrives, when the slot is taken. */
    for (uint32_t i = 0; i < t->config.ep.peers_max; i++) {
        if (t->peers[i].state == TCP_PEER_FREE) {
            return true;
        }
    }
    return false;
}

/* Clear everything except the memory that the slot owns permanently. */
static void peer_clear(struct weft_tcp *t, struct tcp_peer *p)
{
    struct tcp_peer fresh = {
        .events_unpolled = p->events_unpolled,
        .tx = p->tx,
        .rx = p->rx,
        .heads = p->heads,
        .sealed = p->sealed,
        .in = p->in,
        .tx_next_seq = 1,
        .tx_open_from = 1,
        .retry_ns = WEFT_NEVER,
        .tx_deadline_ns = WEFT_NEVER,
        .tx_pace_ns = WEFT_NEVER,
        .rx_timer_ns = WEFT_NEVER,
    };
    *p = fresh;
    weft_bits_clear(t->ready, tcp_peer_idx(t, p));
    for (uint32_t i = 0; i < WEFT_MSGS_MAX; i++) {
        p->tx[i].active = false;
        p->rx[i].state = TCP_RX_FREE;
        p->rx[i].seq = 0;
    }
}

struct tcp_peer *weft_tcp_peer_take(struct weft_tcp *t)
{
    struct tcp_peer *p = peer_find_free(t);
    if (p == NULL) {
        return NULL;
    }
    peer_clear(t, p);
    p->state = TCP_PEER_CONNECTING;
    t->peers_used = (uint32_t)weft_max_u64(t->peers_used, tcp_peer_idx(t, p) + 1);
    return p;
}

void weft_tcp_peer_up(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns)
{
    p->state = TCP_PEER_OPEN;
    p->heard_ns = now_ns;
    p->quiet_ns = now_ns;
    struct weft_msg_event *ev = weft_tcp_event_push(t);
    ev->type = WEFT_EVENT_PEER_UP;
    ev->peer = tcp_peer_idx(t, p);
    ev->name = p->name;
    ev->incarnation = p->incarnation;
    ev->at_ns = now_ns;
    tcp_peer_ready(t, p);
}

void weft_tcp_peer_down(struct weft_tcp *t, struct tcp_peer *p, enum weft_msg_down why,
                        uint16_t close_code, uint64_t now_ns)
{
    if (p->conn != NULL) {
        weft_tcp_conn_free(t, p->conn);
        p->conn = NULL;
    }
    weft_tcp_rx_close_all(t, p, now_ns);
    weft_tcp_tx_close_all(t, p, now_ns);
    struct weft_msg_event *ev = weft_tcp_event_push(t);
    ev->type = WEFT_EVENT_PEER_DOWN;
    p->events_unpolled++;
    ev->peer = tcp_peer_idx(t, p);
    ev->name = p->name;
    ev->incarnation = p->incarnation;
    ev->down = why;
    ev->close_code = close_code;
    ev->at_ns = now_ns;
    peer_clear(t, p); /* the masks of pending events are in the arenas */
}

bool weft_tcp_peer_outstanding(const struct tcp_peer *p)
{
    return (p->tx_active & ~p->tx_waits) != 0 || p->rx_live != 0;
}

bool weft_tcp_peer_unfinished(const struct tcp_peer *p)
{
    return p->tx_active != 0 || p->rx_live != 0;
}

/* ---- timers ---------------------------------------------------------------------------------- */

static uint64_t peer_deadline(const struct weft_tcp *t, const struct tcp_peer *p)
{
    const struct weft_ep_config *c = &t->config.ep;
    uint64_t at = weft_min_u64(p->tx_deadline_ns, p->rx_timer_ns);
    at = weft_min_u64(at, p->tx_pace_ns);
    if (p->state == TCP_PEER_CONNECTING) {
        at = weft_min_u64(at, p->retry_ns);
        return weft_min_u64(at, weft_time_add(p->since_ns, c->peer_timeout_ns));
    }
    if (p->idle) {
        return weft_min_u64(at, weft_time_add(p->heard_ns, c->sleep_timeout_ns));
    }
    bool waits = weft_tcp_peer_outstanding(p);
    if (waits || p->pinged) {
        uint64_t share_ns = c->peer_timeout_ns == WEFT_NEVER ? WEFT_NEVER : c->peer_timeout_ns / 2;
        uint64_t wait_ns = p->pinged ? c->peer_timeout_ns : share_ns;
        return weft_min_u64(at, weft_time_add(p->quiet_ns, wait_ns));
    }
    at = weft_min_u64(at, weft_time_add(p->heard_ns, c->keepalive_ns));
    return weft_min_u64(at, weft_time_add(p->heard_ns, c->idle_timeout_ns));
}

uint64_t weft_tcp_deadline(const struct weft_tcp *t)
{
    uint64_t at = weft_min_u64(weft_tcp_strangers_deadline(t), t->listen_again_ns);
    for (uint32_t i = 0; i < t->peers_used; i++) {
        if (t->peers[i].state != TCP_PEER_FREE) {
            at = weft_min_u64(at, peer_deadline(t, &t->peers[i]));
        }
    }
    return at;
}

static void ping(struct weft_tcp *t, struct tcp_peer *p)
{
    p->need_ping = true;
    p->pinged = true;
    tcp_peer_ready(t, p);
}

static void connecting_timer(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns)
{
    uint64_t end_ns = weft_time_add(p->since_ns, t->config.ep.peer_timeout_ns);
    if (end_ns <= now_ns && now_ns - end_ns >= pause_ns(t)) {
        p->since_ns = now_ns;
    } else if (end_ns <= now_ns) {
        weft_tcp_peer_down(t, p, WEFT_DOWN_SILENT, 0, now_ns);
    } else if (p->retry_ns <= now_ns) {
        weft_tcp_connect_begin(t, p, now_ns);
    }
}

/* With something outstanding, or a PING unanswered. */
static void silence_timer(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns)
{
    uint64_t timeout_ns = t->config.ep.peer_timeout_ns;
    if (timeout_ns == WEFT_NEVER) {
        return;
    }
    uint64_t silent_ns = now_ns - p->quiet_ns;
    bool slept = silent_ns >= timeout_ns + pause_ns(t);
    if (slept || (silent_ns >= timeout_ns / 2 && !p->pinged)) {
        /* The peer has half the timeout to answer, however late this timer is. */
        p->quiet_ns = weft_max_u64(p->quiet_ns, now_ns - timeout_ns / 2);
        ping(t, p);
    } else if (silent_ns >= timeout_ns) {
        weft_tcp_peer_down(t, p, WEFT_DOWN_SILENT, 0, now_ns);
    }
}

static void quiet_timer(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns)
{
    const struct weft_ep_config *c = &t->config.ep;
    if (weft_time_add(p->heard_ns, c->idle_timeout_ns) <= now_ns) {
        p->need_close = true;
        p->close_code = WEFT_CLOSE_IDLE;
        weft_tcp_write(t, p, now_ns);    /* if the socket has no room, closing it suffices */
        if (p->state == TCP_PEER_OPEN) { /* writing may have found that the provider fails */
            weft_tcp_peer_down(t, p, WEFT_DOWN_IDLE, WEFT_CLOSE_IDLE, now_ns);
        }
    } else if (weft_time_add(p->heard_ns, c->keepalive_ns) <= now_ns) {
        p->quiet_ns = now_ns;
        ping(t, p);
    }
}

/* It sent IDLE: it computes, or its host is gone, which TCP does not detect without traffic. */
static void asleep_timer(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns)
{
    uint64_t until_ns = weft_time_add(p->heard_ns, t->config.ep.sleep_timeout_ns);
    if (weft_time_add(until_ns, pause_ns(t)) <= now_ns) {
        p->heard_ns = now_ns; /* as in silence_timer: this process was suspended */
    } else if (until_ns <= now_ns) {
        weft_tcp_peer_down(t, p, WEFT_DOWN_SILENT, 0, now_ns);
    }
}

static void open_timer(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns)
{
    if (p->rx_timer_ns <= now_ns) {
        weft_tcp_rx_timer(t, p, now_ns);
    }
    if (p->idle) {
        asleep_timer(t, p, now_ns);
        return;
    }
    if (weft_tcp_peer_outstanding(p) || p->pinged) {
        silence_timer(t, p, now_ns);
    } else {
        quiet_timer(t, p, now_ns);
    }
}

void weft_tcp_timers(struct weft_tcp *t, uint64_t now_ns)
{
    weft_tcp_strangers_timer(t, now_ns);
    for (uint32_t i = 0; i < t->peers_used; i++) {
        struct tcp_peer *p = &t->peers[i];
        if (p->state != TCP_PEER_FREE && p->tx_deadline_ns <= now_ns) {
            weft_tcp_tx_timer(t, p, now_ns);
        }
        if (p->state != TCP_PEER_FREE && p->tx_pace_ns <= now_ns) {
            weft_tcp_tx_pace_timer(t, p, now_ns);
        }
        if (p->state == TCP_PEER_CONNECTING) {
            connecting_timer(t, p, now_ns);
        } else if (p->state == TCP_PEER_OPEN) {
            open_timer(t, p, now_ns);
        }
    }
}
