#include "core/internal.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

void weft_ep_config_default(struct weft_ep_config *config_p)
{
    *config_p = (struct weft_ep_config){
        .name = 0,
        .incarnation = 1,
        .seed = 1,
        .peers_max = 16,
        .chunks_max = 8192,
        .expects_max = 64,
        .tx_window_max = 4096,
        .rx_window = 2048,
        .unscheduled = 64,
        .senders_expected = 1,
        .packet_bytes = 1472,
        .accept = 0,
        .ecn = 1,
        .peer_timeout_ns = 5 * WEFT_NS_PER_S,
        .keepalive_ns = WEFT_NEVER,
        .idle_timeout_ns = WEFT_NEVER,
        .sleep_timeout_ns = 600 * WEFT_NS_PER_S,
        .cc_name = NULL,
        .mode = WEFT_MODE_NONE,
        .half_open_max = 32,
        .hello_rate_max = 256,
    };
}

/* A peer that said IDLE keeps its slot from newcomers for so many peer timeouts. */
enum { IDLE_PATIENCE = 12 };

/* Deadlines are not late by this much unless the process, or its machine, slept. Who sleeps for a
 * good part of the peer timeout has not listened for it. */
static uint64_t pause_ns(const struct weft_ep *ep)
{
    return weft_min_u64(WEFT_NS_PER_S, ep->config.peer_timeout_ns / 2);
}

uint32_t weft_ep_crypto_slots(uint32_t peers_max)
{
    return peers_max * KEY_SLOTS + 1; /* one for handshakes */
}

static bool trace_valid(uint32_t records)
{
    return records == 0 || ((records & (records - 1)) == 0 && records >= WEFT_TRACE_RECORDS_MIN &&
                            records <= WEFT_TRACE_RECORDS_MAX);
}

static bool config_valid(const struct weft_ep_config *c)
{
    bool power_of_two = (c->tx_window_max & (c->tx_window_max - 1)) == 0;
    return c->peers_max >= 1 && c->peers_max <= 4096 && c->chunks_max >= 1 &&
           c->chunks_max <= 262144 && c->expects_max >= 1 && c->expects_max <= 65536 &&
           power_of_two && c->tx_window_max >= 256 && c->tx_window_max <= 65536 &&
           c->rx_window >= 1 && c->rx_window <= 16384 && c->unscheduled >= 1 &&
           c->packet_bytes >= 256 && c->packet_bytes <= 65000 &&
           (c->packet_bytes_sure == 0 || c->packet_bytes_sure >= 256) && c->keepalive_ns > 0 &&
           c->idle_timeout_ns > 0 && c->sleep_timeout_ns > 0 && c->accept <= 1 && c->ecn <= 1 && c->host_queue <= 1 &&
           weft_cc_find(c->cc_name) != NULL && c->order <= WEFT_ORDER_NONE &&
           c->mode <= WEFT_MODE_SEAL &&
           (c->mode == WEFT_MODE_NONE || c->crypto.ops != NULL) && c->hello_rate_max >= 1 &&
           c->hello_rate_max <= 1000000 && trace_valid(c->trace_records);
}

/* Each peer owns a slice of every arena for good. Nothing is written to the slices here: calloc's pages
 * are memory only when they are used, and most peers have few messages under way, or do not exist. */
static void peers_init(struct weft_ep *ep)
{
    const struct weft_ep_config *c = &ep->config;
    for (uint32_t i = 0; i < c->peers_max; i++) {
        struct peer *p = &ep->peers[i];
        p->tx = ep->tx_arena + (size_t)i * WEFT_MSGS_MAX;
        p->rx = ep->rx_arena + (size_t)i * WEFT_MSGS_MAX;
        p->packets = ep->packet_arena + (size_t)i * c->tx_window_max;
        p->in_flight_bits = ep->packet_bits_arena + (size_t)i * 2 * (c->tx_window_max / 64);
        p->lost_bits = p->in_flight_bits + c->tx_window_max / 64;
        ep->heap_pos[i] = UINT32_MAX;
    }
}

weft_status weft_ep_new(const struct weft_ep_config *config, struct weft_ep **ep_p)
{
    if (!config_valid(config)) {
        return WEFT_INVALID;
    }
    struct weft_ep *ep = calloc(1, sizeof(*ep));
    if (ep == NULL) {
        return WEFT_NOMEM;
    }
    ep->config = *config;
    ep->cc_ops = weft_cc_find(config->cc_name);
    weft_prng_split(&ep->prng, config->seed, config->incarnation);
    size_t peers = config->peers_max;
    size_t words = WEFT_BITS_WORDS((size_t)config->chunks_max);
    ep->peers = calloc(peers, sizeof(*ep->peers));
    ep->heap = calloc(peers, sizeof(*ep->heap));
    ep->heap_pos = calloc(peers, sizeof(*ep->heap_pos));
    ep->ready = calloc(WEFT_BITS_WORDS(peers), sizeof(*ep->ready));
    ep->credit_active = calloc(WEFT_BITS_WORDS(peers), sizeof(*ep->credit_active));
    ep->credit_wants = calloc(WEFT_BITS_WORDS(peers), sizeof(*ep->credit_wants));
    ep->credit_touched = calloc(WEFT_BITS_WORDS(peers), sizeof(*ep->credit_touched));
    ep->events = calloc(EVENTS_MAX, sizeof(*ep->events));
    ep->tx_arena = calloc(peers * WEFT_MSGS_MAX, sizeof(*ep->tx_arena));
    ep->rx_arena = calloc(peers * WEFT_MSGS_MAX, sizeof(*ep->rx_arena));
    size_t masks = peers * WEFT_MSGS_MAX * (TX_MASKS + RX_MASKS);
    ep->bitmaps = calloc(masks * words, sizeof(*ep->bitmaps));
    ep->packet_arena = calloc(peers * config->tx_window_max, sizeof(*ep->packet_arena));
    ep->packet_bits_arena = calloc(peers * 2 * (config->tx_window_max / 64), sizeof(uint64_t));
    if (!weft_core_trace_init(ep) || !weft_core_egress_init(ep) ||
        weft_expects_init(&ep->expects, config->expects_max, config->peers_max) != WEFT_OK) {
        weft_ep_free(ep);
        return WEFT_NOMEM;
    }
    if (ep->peers == NULL || ep->heap == NULL || ep->heap_pos == NULL || ep->ready == NULL ||
        ep->credit_active == NULL || ep->credit_wants == NULL || ep->credit_touched == NULL ||
        ep->events == NULL || ep->tx_arena == NULL || ep->rx_arena == NULL ||
        ep->bitmaps == NULL || ep->packet_arena == NULL || ep->packet_bits_arena == NULL) {
        weft_ep_free(ep);
        return WEFT_NOMEM;
    }
    peers_init(ep);
    weft_core_credit_init(ep);
    ep->rekey_packets = config->rekey_packets != 0      ? config->rekey_packets
                        : config->packet_bytes <= 2048 ? UINT64_C(1) << 28
                                                       : UINT64_C(1) << 23;
    weft_core_guard_init(ep);
    *ep_p = ep;
    return WEFT_OK;
}

void weft_ep_free(struct weft_ep *ep)
{
    if (ep == NULL) {
        return;
    }
    for (uint32_t i = 0; i < ep->peers_used; i++) {
        weft_core_secure_clear(ep, &ep->peers[i]);
    }
    if (ep->config.crypto.ops != NULL) {
        ep->config.crypto.ops->wipe(ep->config.crypto.self, ep->config.psk, WEFT_PSK_BYTES);
        ep->config.crypto.ops->wipe(ep->config.crypto.self, &ep->guard, sizeof(ep->guard));
    }
    free(ep->trace.records);
    weft_core_egress_fini(ep);
    free(ep->packet_bits_arena);
    free(ep->packet_arena);
    free(ep->bitmaps);
    free(ep->rx_arena);
    free(ep->tx_arena);
    free(ep->events);
    weft_expects_fini(&ep->expects);
    weft_core_credit_fini(ep);
    free(ep->credit_active);
    free(ep->credit_wants);
    free(ep->credit_touched);
    free(ep->ready);
    free(ep->heap);
    free(ep->heap_pos);
    free(ep->peers);
    free(ep);
}

const struct weft_ep_counters *weft_ep_counters(const struct weft_ep *ep)
{
    return &ep->counters;
}

uint64_t weft_ep_srtt_ns(const struct weft_ep *ep, weft_peer peer)
{
    return peer < ep->peers_used ? ep->peers[peer].srtt_ns : 0;
}

void weft_ep_gauges(const struct weft_ep *ep, struct weft_ep_gauges *gauges_p)
{
    uint64_t peers = 0;
    for (uint32_t i = 0; i < ep->peers_used; i++) {
        peers += ep->peers[i].state == PEER_OPEN;
    }
    *gauges_p = (struct weft_ep_gauges){
        .peers = peers,
        .senders = ep->credit.active,
        .senders_waiting = ep->credit.wanting,
        .credit_outstanding = ep->credit.total,
        .credit_budget = ep->credit.budget,
        .queue_limit_bytes = ep->config.host_queue ? ep->egress.limit_bytes : 0,
    };
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Callers leave EVENTS_RESERVE free before they begin on a peer (on_deadline) or poll after every
 * datagram (recv), so the ring cannot overflow in the documented use. */
struct weft_msg_event *weft_core_event_push(struct weft_ep *ep)
{
    WEFT_ASSERT(ep->event_count < EVENTS_MAX);
    uint32_t at = (ep->event_head + ep->event_count) % EVENTS_MAX;
    ep->event_count++;
    ep->events[at] = (struct weft_msg_event){0};
    return &ep->events[at];
}

static bool ep_poll(void *self, struct weft_msg_event *event_p)
{
    struct weft_ep *ep = self;
    if (ep->event_count == 0) {
        return false;
    }
    *event_p = ep->events[ep->event_head];
    /* An empty ring begins anew: few places that stay in the cache, not all of them in turn. */
    ep->event_count--;
    ep->event_head = ep->event_count == 0 ? 0 : (ep->event_head + 1) % EVENTS_MAX;
    struct peer *p = &ep->peers[event_p->peer];
    p->events_unpolled -= event_p->type == WEFT_EVENT_SENT ||
                          event_p->type == WEFT_EVENT_RECEIVED ||
                          event_p->type == WEFT_EVENT_PEER_DOWN;
    if (event_p->type == WEFT_EVENT_SENT) {
        p->tx[event_p->seq & MSG_MASK].unpolled = false;
    }
    if (event_p->type == WEFT_EVENT_RECEIVED) {
        p->rx[event_p->seq & MSG_MASK].unpolled = false;
    }
    return true;
}

/* ---- deadlines: a heap of peers, each with its index in it
 * ------------------------------------ */

/* Each peer's place in the heap lies beside it and not in the peer, so that to sift one touches no
 * other, of which there may be hundreds that nothing else needs. */
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

static void heap_remove(struct weft_ep *ep, const struct peer *p)
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
    bool at_once = p->sec.broken || (p->replaced && p->state == PEER_OPEN);
    uint64_t at = at_once ? 0 : weft_min_u64(p->hello_ns, p->path.timer_ns);
    if (peer_connected(p)) {
        at = weft_min_u64(at, p->sec.previous ? p->sec.previous_until_ns : WEFT_NEVER);
        at = weft_min_u64(at, p->ack_pending > 0 && !p->idle ? p->ack_ns : WEFT_NEVER);
        at = weft_min_u64(at, p->loss_ns);
        at = weft_min_u64(at, weft_min_u64(p->pto_ns, p->tail_ns));
        at = weft_min_u64(at, p->pace_ns);
        at = weft_min_u64(at, p->tx_pace_ns);
        at = weft_min_u64(at, p->rx_timer_ns);
        at = weft_min_u64(at, p->credit_ns);
    }
    return weft_min_u64(at, p->tx_deadline_ns);
}

static void peer_file(struct weft_ep *ep, const struct peer *p)
{
    uint64_t at = peer_deadline(p);
    if (at == WEFT_NEVER) {
        heap_remove(ep, p);
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

void weft_core_peer_ready(struct weft_ep *ep, struct peer *p)
{
    weft_bits_set(ep->ready, peer_idx(ep, p));
}

uint64_t weft_ep_deadline(const struct weft_ep *ep)
{
    if (ep->guard.reply_count > 0 ||
        weft_bits_next_one(ep->ready, ep->peers_used, 0) < ep->peers_used) {
        return 0; /* send has not been called to its end */
    }
    return weft_min_u64(ep->egress.look_ns,
                        ep->heap_count == 0 ? WEFT_NEVER : ep->heap[0].at_ns);
}

static void peer_timers(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    if (p->sec.broken) {
        if (p->state == PEER_CLOSING && p->path.close_told) {
            weft_core_peer_clear(ep, p);
        } else {
            weft_core_peer_down(ep, p, WEFT_DOWN_CRYPTO, now_ns);
        }
        return;
    }
    if (p->replaced && p->state == PEER_OPEN) {
        weft_core_peer_down(ep, p, WEFT_DOWN_RESTARTED, now_ns);
        return;
    }
    if (p->path.timer_ns <= now_ns) {
        weft_core_life_timer(ep, p, now_ns);
        if (p->state == PEER_FREE) {
            return;
        }
    }
    if (p->state == PEER_CONNECTING && ep->resumed_ns == now_ns) {
        p->hello_since_ns = now_ns;
    }
    if (p->state == PEER_HALF_OPEN && p->hello_ns <= now_ns) {
        weft_core_peer_down(ep, p, WEFT_DOWN_SILENT, now_ns); /* no event: it was never up */
        return;
    }
    if (p->state == PEER_CONNECTING && ep->config.peer_timeout_ns != WEFT_NEVER &&
        now_ns - p->hello_since_ns >= ep->config.peer_timeout_ns) {
        weft_core_peer_down(ep, p, WEFT_DOWN_SILENT, now_ns);
        return;
    }
    if (p->tx_deadline_ns <= now_ns) {
        weft_core_tx_timer(p, now_ns);
    }
    if (!peer_connected(p)) {
        return;
    }
    if (p->rx_timer_ns <= now_ns) {
        weft_core_rx_timer(ep, p, now_ns);
        if (p->state == PEER_FREE) {
            return;
        }
    }
    if (p->credit_ns <= now_ns) {
        weft_core_credit_timer(ep, p, now_ns);
    }
    weft_core_secure_timer(ep, p, now_ns);
    if (p->loss_ns <= now_ns) {
        weft_core_loss_timer(ep, p, now_ns);
    }
    if (p->ack_pending > 0 && p->ack_ns <= now_ns) {
        p->ack_now = true;
    }
    if (p->pace_ns <= now_ns) {
        p->pace_ns = WEFT_NEVER;
    }
    if (p->tx_pace_ns <= now_ns) {
        weft_core_pace_timer(ep, p, now_ns);
    }
    if (p->tail_ns <= now_ns) {
        weft_core_tail_fire(ep, p, now_ns);
    }
    if (p->pto_ns <= now_ns) {
        weft_core_pto_arm(ep, p); /* an answer may have come since it was armed */
    }
    if (p->pto_ns <= now_ns) {
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
        if (due.at_ns > 0 && now_ns - due.at_ns > pause_ns(ep)) { /* 0: at once */
            ep->resumed_ns = now_ns;
        }
        heap_remove(ep, p); /* filed again when send is done with it */
        peer_timers(ep, p, now_ns);
        if (p->state != PEER_FREE) {
            weft_core_peer_ready(ep, p);
        }
    }
}

/* ---- peers ----------------------------------------------------------------------------------- */

/* Clear everything but what belongs to the slot for good. */
void weft_core_peer_clear(struct weft_ep *ep, struct peer *p)
{
    struct peer fresh = {
        .events_unpolled = p->events_unpolled,
        .packets = p->packets,
        .in_flight_bits = p->in_flight_bits,
        .lost_bits = p->lost_bits,
        .tx = p->tx,
        .rx = p->rx,
        .hello_ns = WEFT_NEVER,
        .pace_ns = WEFT_NEVER,
        .loss_ns = WEFT_NEVER,
        .pto_ns = WEFT_NEVER,
        .tail_ns = WEFT_NEVER,
        .wait_since_ns = WEFT_NEVER,
        .tx_deadline_ns = WEFT_NEVER,
        .tx_pace_ns = WEFT_NEVER,
        .rx_timer_ns = WEFT_NEVER,
        .ack_ns = WEFT_NEVER,
        .ack_delay_ns = ack_delay_ns_min,
        .peer_delay_ns = ack_delay_ns_min,
        .credit_ns = WEFT_NEVER,
        .ack_low = UINT64_MAX,
        .ack_low_before = UINT64_MAX,
        .pn_next = 1,
        .pn_oldest = 1,
        .tx_next_seq = 1,
        .tx_open_from = 1,
        .rx_open_from = 1,
        .reorder_threshold = REORDER_FIRST,
        .rtt_ns_min = WEFT_NEVER,
    };
    weft_core_path_init(ep, &fresh);
    heap_remove(ep, p);
    weft_core_credit_idle(ep, p);
    weft_core_secure_clear(ep, p);
    weft_bits_clear(ep->ready, peer_idx(ep, p));
    weft_core_egress_leave(ep, p);
    weft_core_egress_unsent(ep, p, -(int64_t)p->tx_unsent);
    size_t words = ep->config.tx_window_max / 64;
    memset(p->in_flight_bits, 0, words * sizeof(uint64_t));
    memset(p->lost_bits, 0, words * sizeof(uint64_t));
    *p = fresh;
    for (uint32_t i = 0; i < WEFT_MSGS_MAX; i++) { /* a place that was not used stays untouched */
        if (p->tx[i].active) {
            p->tx[i].active = false;
        }
        if (p->rx[i].state != RX_FREE) {
            p->rx[i].state = RX_FREE;
        }
    }
}

static struct peer *peer_find_free(struct weft_ep *ep)
{
    for (uint32_t i = 0; i < ep->config.peers_max; i++) {
        if (ep->peers[i].state == PEER_FREE && ep->peers[i].events_unpolled == 0) {
            return &ep->peers[i];
        }
    }
    /* First go those that only wait for late packets. */
    for (uint32_t i = 0; i < ep->config.peers_max; i++) {
        const struct peer *p = &ep->peers[i];
        if (p->state == PEER_CLOSING && !weft_core_closing(p) && p->events_unpolled == 0) {
            return &ep->peers[i];
        }
    }
    /* Half-open peers cost their sender nothing, so they are the next to go: those whose address
     * is not proven before the others, and the oldest first. */
    struct peer *best = NULL;
    for (uint32_t i = 0; i < ep->config.peers_max; i++) {
        struct peer *p = &ep->peers[i];
        if (p->state != PEER_HALF_OPEN || p->tx_active != 0 || p->events_unpolled > 0) {
            continue;
        }
        if (best == NULL || (best->sec.proven && !p->sec.proven) ||
            (best->sec.proven == p->sec.proven && p->hello_since_ns < best->hello_since_ns)) {
            best = p;
        }
    }
    return best;
}

/* Nothing of ours is on the way to it and nothing of its is half here. */
bool weft_core_peer_quiet(const struct peer *p)
{
    return p->tx_active == 0 && !peer_waiting(p) && p->rx_live == 0 && p->rx_closed == 0;
}

/* The peer that has been silent longest among those that said IDLE or those that did not, if that is
 * at least `silence_ns` and nothing is between us. */
static struct peer *silent_find(struct weft_ep *ep, bool idle, uint64_t silence_ns,
                                uint64_t now_ns)
{
    struct peer *oldest = NULL;
    for (uint32_t i = 0; i < ep->peers_used; i++) {
        struct peer *p = &ep->peers[i];
        bool dead =
            p->state == PEER_OPEN && p->idle == idle && weft_core_peer_quiet(p) &&
            weft_time_add(weft_max_u64(p->heard_ns, ep->resumed_ns), silence_ns) <= now_ns;
        if (dead && (oldest == NULL || p->heard_ns < oldest->heard_ns)) {
            oldest = p;
        }
    }
    return oldest;
}

/* The table is full: drop a peer that may be what is left of a process that crashed. One that said
 * IDLE may as well be alive and compute, so it goes after the others, and only when it has done so
 * for longer than most steps take. The slot is free when its PEER_DOWN has been polled, so the
 * stranger's next HELLO gets it. */
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

struct peer *weft_core_peer_take(struct weft_ep *ep, const struct weft_addr *addr, uint64_t now_ns)
{
    struct peer *p = peer_find_free(ep);
    if (p == NULL) {
        peer_reclaim(ep, now_ns);
        return NULL;
    }
    weft_core_peer_clear(ep, p);
    uint32_t idx = peer_idx(ep, p);
    ep->peers_used = idx >= ep->peers_used ? idx + 1 : ep->peers_used;
    p->addr = *addr;
    /* 12 bits say where, 20 bits that it is not an earlier user of the slot. */
    uint64_t id = weft_prng_u64(&ep->prng);
    (void)weft_core_secret_u64(ep, &id); /* one who can guess it gains little: section 8.6 */
    p->connection_id = (uint32_t)(id << 12) | idx;
    p->credit = 1;
    p->granted = weft_core_credit_first(ep);
    p->hello_since_ns = now_ns;
    p->tokens_ns = now_ns;
    p->cc.ops = ep->cc_ops;
    p->cc.ops->init(&p->cc, p->packet_bytes, now_ns);
    return p;
}

void weft_core_peer_up(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    p->state = PEER_OPEN;
    p->hello_ns = WEFT_NEVER;
    p->heard_ns = now_ns;
    if (p->accepts == 1) {
        /* From ACCEPT to the first answer: no round trip to speak of, but not shorter than one,
         * and measured before there is a queue. */
        p->rtt_ns_min = weft_min_u64(p->rtt_ns_min, weft_max_u64(now_ns - p->accept_ns, 1000));
    }
    trace(ep, p, WEFT_TRACE_PEER_UP, 0, p->name, p->connection_id, 0, 0);
    weft_core_path_up(ep, p, now_ns);
    struct weft_msg_event *ev = weft_core_event_push(ep);
    ev->type = WEFT_EVENT_PEER_UP;
    ev->peer = peer_idx(ep, p);
    ev->name = p->name;
    ev->incarnation = p->incarnation;
    ev->at_ns = now_ns;
    weft_core_peer_ready(ep, p);
}

void weft_core_peer_end(struct weft_ep *ep, struct peer *p, enum weft_msg_down why,
                        uint16_t close_code, uint64_t now_ns)
{
    bool was_known = p->state != PEER_HALF_OPEN;
    weft_core_rx_close_all(ep, p, now_ns);
    weft_core_tx_close_all(ep, p, now_ns);
    if (was_known) {
        trace(ep, p, WEFT_TRACE_PEER_DOWN, 0, p->name, why, 0, 0);
        struct weft_msg_event *ev = weft_core_event_push(ep);
        ev->type = WEFT_EVENT_PEER_DOWN;
        p->events_unpolled++;
        ev->peer = peer_idx(ep, p);
        ev->name = p->name;
        ev->incarnation = p->incarnation;
        ev->down = why;
        ev->close_code = close_code;
        ev->at_ns = now_ns;
    }
}

void weft_core_peer_down(struct weft_ep *ep, struct peer *p, enum weft_msg_down why,
                         uint64_t now_ns)
{
    weft_core_peer_end(ep, p, why, 0, now_ns);
    weft_core_peer_clear(ep, p); /* state PEER_FREE is 0; masks of the events live in the arenas */
}

weft_status weft_ep_connect(struct weft_ep *ep, const struct weft_addr *addr, uint64_t now_ns,
                            weft_peer *peer_p)
{
    struct peer *p = weft_core_peer_take(ep, addr, now_ns);
    if (p == NULL) {
        return WEFT_NOMEM;
    }
    p->state = PEER_CONNECTING;
    p->sec.mode = ep->config.mode;
    p->hello_ns = now_ns;
    p->hello_interval_ns = hello_first_ns;
    p->hello_since_ns = now_ns;
    weft_core_peer_ready(ep, p);
    *peer_p = peer_idx(ep, p);
    return WEFT_OK;
}

static void close_with(struct weft_ep *ep, weft_peer peer, uint16_t code, uint64_t now_ns)
{
    if (peer >= ep->peers_used || ep->peers[peer].state == PEER_FREE ||
        ep->peers[peer].state == PEER_CLOSING) {
        return;
    }
    struct peer *p = &ep->peers[peer];
    if (p->state == PEER_HALF_OPEN) {
        /* Nobody was told of it, and its address is not proven: it is sent nothing, not even CLOSE. */
        p->need_accept = false;
        p->hello_ns = now_ns; /* its time is over, which the next deadline sees */
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
        if (p->state == state && (addr == NULL || addr_equal(&p->addr, addr))) {
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

void weft_ep_idle(struct weft_ep *ep, uint64_t now_ns)
{
    (void)now_ns;
    for (uint32_t i = 0; i < ep->peers_used; i++) {
        struct peer *p = &ep->peers[i];
        if (p->state == PEER_OPEN && weft_core_peer_quiet(p) && p->pn_largest > 0) {
            p->announce_idle = 3; /* not acknowledged, so said more than once */
            p->path.idle_said = true;
            weft_core_peer_ready(ep, p);
        } else if (p->rx_later != 0) {
            p->rx_later = 0; /* before it goes away */
            weft_core_peer_ready(ep, p);
        }
    }
}

bool weft_ep_busy(const struct weft_ep *ep)
{
    for (uint32_t i = 0; i < ep->peers_used; i++) {
        const struct peer *p = &ep->peers[i];
        if (p->state == PEER_CONNECTING || (p->state == PEER_CLOSING && weft_core_closing(p))) {
            return true;
        }
        bool owing = p->rx_need_done != 0 || p->ack_pending > 0 || peer_waiting(p);
        if (peer_connected(p) &&
            (p->tx_active != 0 || p->rx_live != 0 || (owing && !p->idle))) {
            return true; /* nothing is sent to an idle peer */
        }
    }
    return false;
}

static bool peer_only_done(const struct peer *p)
{
    bool one = p->rx_need_done != 0 && (p->rx_need_done & (p->rx_need_done - 1)) == 0;
    bool asked = p->probes > 0 || p->need_ping || p->need_path_response || p->announce_idle > 0 ||
                 p->path.challenges_due != 0 || p->tx_critical != 0;
    return p->state == PEER_OPEN && one && !asked && !p->idle && p->tx_active == 0 &&
           p->rx_live == 0;
}

bool weft_ep_only_done(const struct weft_ep *ep)
{
    size_t idx = weft_bits_next_one(ep->ready, ep->peers_used, 0);
    if (idx >= ep->peers_used || ep->guard.reply_count > 0) {
        return false;
    }
    for (; idx < ep->peers_used; idx = weft_bits_next_one(ep->ready, ep->peers_used, idx + 1)) {
        if (!peer_only_done(&ep->peers[idx])) {
            return false;
        }
    }
    return true;
}

/* ---- the crank ------------------------------------------------------------------------------- */

void weft_ep_recv(struct weft_ep *ep, const struct weft_addr *from, enum weft_ecn ecn,
                  void *bytes, size_t count, uint64_t at_ns, uint64_t now_ns)
{
    uint8_t version;
    uint8_t klass;
    ep->trace.now_ns = now_ns;
    weft_core_egress_turn(ep, now_ns);
    ep->counters.datagrams_received++;
    ep->counters.bytes_received += count;
    if (count == 0) {
        ep->counters.bad_short++;
        return;
    }
    if (weft_wire_classify(bytes, count, &version, &klass) != WEFT_OK) {
        weft_core_version_recv(ep, from, bytes, count, now_ns);
        return;
    }
    if (klass >= WEFT_CLASS_HELLO) {
        trace(ep, NULL, WEFT_TRACE_HANDSHAKE_RECEIVED, klass, 0, 0, 0, count);
    }
    switch (klass) {
    case WEFT_CLASS_PLAIN:
    case WEFT_CLASS_AUTH:
    case WEFT_CLASS_SEAL:
        if (klass < ep->config.mode) {
            ep->counters.bad_mode++;
            break;
        }
        weft_core_packet_recv(ep, from, ecn, bytes, count, at_ns, now_ns);
        break;
    case WEFT_CLASS_HELLO:
        weft_core_hello_recv(ep, from, bytes, count, now_ns);
        break;
    case WEFT_CLASS_ACCEPT:
        weft_core_accept_recv(ep, from, bytes, count, at_ns, now_ns);
        break;
    case WEFT_CLASS_COOKIE:
        weft_core_cookie_recv(ep, from, bytes, count, now_ns);
        break;
    case WEFT_CLASS_UNKNOWN:
        weft_core_unknown_recv(ep, from, bytes, count, now_ns);
        break;
    case WEFT_CLASS_REFUSED:
        weft_core_refused_recv(ep, from, bytes, count);
        break;
    default:
        ep->counters.bad_class++;
    }
}

/* Peers take turns. */
static size_t ready_next(const struct weft_ep *ep)
{
    size_t idx = weft_bits_next_one(ep->ready, ep->peers_used, ep->send_cursor);
    return idx < ep->peers_used ? idx : weft_bits_next_one(ep->ready, ep->peers_used, 0);
}

static void peer_arm(struct weft_ep *ep, struct peer *p)
{
    if (p->state != PEER_FREE) {
        weft_core_pto_arm(ep, p);
        weft_core_tail_arm(ep, p);
        weft_core_credit_arm(ep, p);
        weft_core_life_arm(ep, p);
        peer_file(ep, p);
    }
}

static uint32_t burst_count(struct weft_ep *ep, const struct peer *p, uint32_t packets,
                            const struct weft_tx *tx)
{
    ep->counters.datagrams_sent += packets;
    ep->counters.bytes_sent += tx->bytes;
    if (trace_on(ep)) {
        weft_core_trace_burst(ep, p, tx);
    }
    return packets;
}

uint32_t weft_ep_send(struct weft_ep *ep, uint64_t now_ns, struct weft_tx *tx)
{
    ep->trace.now_ns = now_ns;
    if (trace_on(ep)) {
        weft_core_trace_drops_find(ep);
    }
    if (weft_core_reply_build(ep, tx) > 0) {
        return burst_count(ep, NULL, 1, tx);
    }
    if (ep->credit.dirty) {
        weft_core_credit_run(ep, now_ns);
    }
    for (size_t idx; (idx = ready_next(ep)) < ep->peers_used;) {
        struct peer *p = &ep->peers[idx];
        uint32_t packets = p->state == PEER_FREE ? 0 : weft_core_peer_send(ep, p, now_ns, tx);
        ep->send_cursor = (uint32_t)idx + 1;
        if (packets > 0) {
            return burst_count(ep, p, packets, tx);
        }
        weft_bits_clear(ep->ready, idx);
        peer_arm(ep, p);
    }
    for (struct peer *p; (p = weft_core_egress_next(ep)) != NULL;) {
        uint32_t packets = weft_core_burst_send(ep, p, now_ns, tx);
        peer_arm(ep, p);
        if (packets > 0) {
            return burst_count(ep, p, packets, tx);
        }
    }
    return 0;
}

/* ---- the message interface ------------------------------------------------------------------- */

/* The grid of docs/PROTOCOL.md section 3.7. */
uint32_t weft_core_chunk_elems(uint32_t packet_bytes, uint16_t elem_bytes)
{
    uint32_t room = packet_bytes - WEFT_DATA_OVERHEAD_BYTES;
    uint32_t elems = (uint32_t)weft_min_u64(room / elem_bytes, UINT16_MAX);
    return elems >= 32 ? elems - elems % 32 : elems;
}

/* What is too much for the grid of a short path is possible all the same where the path took longer
 * packets before, or will: in fragments. */
uint32_t weft_core_grid(const struct weft_ep *ep, const struct peer *p, uint16_t elem_bytes,
                        uint32_t total)
{
    uint32_t elems = weft_core_chunk_elems(p->packet_bytes, elem_bytes);
    if (elems > 0 && weft_div_ceil_u64(total, elems) <= ep->config.chunks_max) {
        return elems;
    }
    return weft_core_chunk_elems(p->path.ceiling_bytes, elem_bytes);
}

uint32_t weft_ep_grid(const struct weft_ep *ep, weft_peer peer, uint16_t elem_bytes,
                      uint32_t total)
{
    if (peer >= ep->peers_used || elem_bytes == 0) {
        return 0;
    }
    return weft_core_grid(ep, &ep->peers[peer], elem_bytes, total);
}

static uint32_t ep_chunk_elems(void *self, weft_peer peer, uint16_t elem_bytes)
{
    struct weft_ep *ep = self;
    if (peer >= ep->peers_used || elem_bytes == 0) {
        return 0;
    }
    return weft_core_chunk_elems(ep->peers[peer].packet_bytes, elem_bytes);
}

static weft_status ep_send(void *self, const struct weft_msg_send *send, uint64_t now_ns,
                           uint64_t *seq_p)
{
    struct weft_ep *ep = self;
    if (send->peer >= ep->peers_used || ep->peers[send->peer].state == PEER_FREE ||
        ep->peers[send->peer].state == PEER_CLOSING) {
        return WEFT_PEER;
    }
    ep->trace.now_ns = now_ns;
    struct peer *p = &ep->peers[send->peer];
    weft_status status = weft_core_tx_open(ep, p, send, now_ns, seq_p);
    if (status == WEFT_OK) {
        weft_core_peer_ready(ep, p);
    }
    return status;
}

static weft_status ep_pace(void *self, weft_peer peer, uint64_t seq,
                           const struct weft_msg_pace *pace, uint64_t now_ns)
{
    struct weft_ep *ep = self;
    return peer < ep->peers_used ? weft_core_pace(ep, &ep->peers[peer], seq, pace, now_ns)
                                 : WEFT_NOTFOUND;
}

static weft_status ep_withdraw(void *self, weft_peer peer, uint64_t seq, uint64_t now_ns)
{
    struct weft_ep *ep = self;
    return peer < ep->peers_used ? weft_core_withdraw(ep, &ep->peers[peer], seq, now_ns)
                                 : WEFT_NOTFOUND;
}

static weft_status ep_expect(void *self, const struct weft_msg_expect *expect,
                             weft_expect_id *id_p)
{
    struct weft_ep *ep = self;
    struct weft_expect *slot;
    weft_status status = weft_expects_post(&ep->expects, expect, &slot);
    if (status == WEFT_OK) {
        *id_p = slot->id;
    }
    return status;
}

static weft_status ep_cancel(void *self, weft_expect_id id)
{
    struct weft_ep *ep = self;
    return weft_expects_cancel(&ep->expects, id);
}

static struct rx_msg *rx_open_find(struct weft_ep *ep, weft_peer peer, uint64_t seq)
{
    if (peer >= ep->peers_used) {
        return NULL;
    }
    struct rx_msg *m = &ep->peers[peer].rx[seq & MSG_MASK];
    return m->state != RX_FREE && m->seq == seq ? m : NULL;
}

/* The message may be closed already when its OPEN, CHUNK and RECEIVED come from one packet; events
 * that wait in the ring get the new value too. */
static void ep_set_user(void *self, weft_peer peer, uint64_t seq, uint64_t user)
{
    struct weft_ep *ep = self;
    struct rx_msg *m = rx_open_find(ep, peer, seq);
    if (m != NULL) {
        m->user = user;
    }
    for (uint32_t i = 0; i < ep->event_count; i++) {
        struct weft_msg_event *ev = &ep->events[(ep->event_head + i) % EVENTS_MAX];
        bool incoming = ev->type == WEFT_EVENT_CHUNK || ev->type == WEFT_EVENT_RECEIVED;
        if (incoming && ev->peer == peer && ev->seq == seq) {
            ev->user = user;
        }
    }
}

static void ep_refuse(void *self, weft_peer peer, uint64_t seq)
{
    struct rx_msg *m = rx_open_find(self, peer, seq);
    if (m != NULL && m->refused < m->received_count) {
        m->refused++;
    }
}

struct weft_msgr weft_ep_msgr(struct weft_ep *ep)
{
    static const struct weft_msg_ops ops = {
        .chunk_elems = ep_chunk_elems,
        .send = ep_send,
        .pace = ep_pace,
        .withdraw = ep_withdraw,
        .expect = ep_expect,
        .cancel = ep_cancel,
        .set_user = ep_set_user,
        .refuse = ep_refuse,
        .poll = ep_poll,
    };
    return (struct weft_msgr){.ops = &ops, .self = ep};
}
