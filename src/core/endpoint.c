#include "core/internal.h"

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

uint32_t weft_ep_crypto_slots(uint32_t peers_max)
{
    return peers_max * KEY_SLOTS + 1; /* and one for handshakes */
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
           c->idle_timeout_ns > 0 && c->sleep_timeout_ns > 0 && c->accept <= 1 && c->ecn <= 1 &&
           c->host_queue <= 1 && weft_cc_find(c->cc_name) != NULL && c->order <= WEFT_ORDER_NONE &&
           c->mode <= WEFT_MODE_SEAL && (c->mode == WEFT_MODE_NONE || c->crypto.ops != NULL) &&
           c->hello_rate_max >= 1 && c->hello_rate_max <= 1000000 && trace_valid(c->trace_records);
}

/* Each peer owns a fixed slice of every arena. The slices are not written here: pages from calloc
 * occupy memory only once they are written, and most slots have few messages open, or are
 * unused. */
static void peers_init(struct weft_ep *ep)
{
    const struct weft_ep_config *c = &ep->config;
    for (uint32_t i = 0; i < c->peers_max; i++) {
        struct peer *p = &ep->peers[i];
        tx_init(&p->tx, ep->tx_arena + (size_t)i * WEFT_MSGS_MAX);
        rx_init(&p->rx, ep->rx_arena + (size_t)i * WEFT_MSGS_MAX);
        recovery_init(&p->recovery, ep->packet_arena + (size_t)i * c->tx_window_max,
                      ep->packet_bits_arena + (size_t)i * 2 * (c->tx_window_max / 64),
                      c->tx_window_max);
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
        ep->events == NULL || ep->tx_arena == NULL || ep->rx_arena == NULL || ep->bitmaps == NULL ||
        ep->packet_arena == NULL || ep->packet_bits_arena == NULL) {
        weft_ep_free(ep);
        return WEFT_NOMEM;
    }
    peers_init(ep);
    weft_core_credit_init(ep);
    ep->rekey_packets = config->rekey_packets != 0     ? config->rekey_packets
                        : config->packet_bytes <= 2048 ? UINT64_C(1) << 28
                                                       : UINT64_C(1) << 23;
    weft_core_handshake_guard_init(ep);
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
        ep->config.crypto.ops->wipe(ep->config.crypto.self, &ep->handshake_guard,
                                    sizeof(ep->handshake_guard));
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
    return peer < ep->peers_used ? ep->peers[peer].recovery.srtt_ns : 0;
}

void weft_ep_gauges(const struct weft_ep *ep, struct weft_ep_gauges *gauges_p)
{
    uint64_t peers = 0;
    for (uint32_t i = 0; i < ep->peers_used; i++) {
        peers += ep->peers[i].conn.state == PEER_OPEN;
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

/* Send each DONE and ACK that is delayed. */
static void acknowledge(struct weft_ep *ep, struct peer *p)
{
    if (peer_connected(p) && (p->rx.later != 0 || p->ack.pending > 0)) {
        rx_later_end(&p->rx);
        ack_at_once(&p->ack);
        weft_core_peer_ready(ep, p);
    }
}

/* Only DONEs that may be acknowledged late are outstanding. The peer does not acknowledge them
 * while this end is idle; this end repeats them when it makes progress again. */
static bool peer_only_late(const struct peer *p)
{
    return p->tx.active == 0 && p->rx.live == 0 && peer_waits_late(p);
}

void weft_ep_idle(struct weft_ep *ep, uint64_t now_ns)
{
    (void)now_ns;
    for (uint32_t i = 0; i < ep->peers_used; i++) {
        struct peer *p = &ep->peers[i];
        if (p->conn.state == PEER_OPEN && (weft_core_peer_quiet(p) || peer_only_late(p)) &&
            p->ack.largest > 0) {
            conn_idle_announce(&p->conn);
            weft_core_peer_ready(ep, p);
        } else {
            acknowledge(ep, p); /* before the idle time begins */
        }
    }
}

void weft_ep_acknowledge(struct weft_ep *ep)
{
    for (uint32_t i = 0; i < ep->peers_used; i++) {
        acknowledge(ep, &ep->peers[i]);
    }
}

bool weft_ep_busy(const struct weft_ep *ep)
{
    for (uint32_t i = 0; i < ep->peers_used; i++) {
        const struct peer *p = &ep->peers[i];
        if (p->conn.state == PEER_CONNECTING ||
            (p->conn.state == PEER_CLOSING && weft_core_closing(p))) {
            return true;
        }
        bool owing = p->rx.need_done != 0 || p->ack.pending > 0 || peer_waiting(p);
        if (peer_connected(p) &&
            (p->tx.active != 0 || p->rx.live != 0 || (owing && !p->conn.idle))) {
            return true; /* nothing is sent to an idle peer */
        }
    }
    return false;
}

static bool peer_only_done(const struct peer *p)
{
    bool one = p->rx.need_done != 0 && (p->rx.need_done & (p->rx.need_done - 1)) == 0;
    bool asked = p->recovery.probes > 0 || p->conn.need_ping || p->path.response_due ||
                 p->conn.announce_idle > 0 || p->path.challenges_due != 0 || p->tx.critical != 0;
    return p->conn.state == PEER_OPEN && one && !asked && !p->conn.idle && p->tx.active == 0 &&
           p->rx.live == 0;
}

bool weft_ep_only_done(const struct weft_ep *ep)
{
    size_t idx = weft_bits_next_one(ep->ready, ep->peers_used, 0);
    if (idx >= ep->peers_used || ep->handshake_guard.reply_count > 0) {
        return false;
    }
    for (; idx < ep->peers_used; idx = weft_bits_next_one(ep->ready, ep->peers_used, idx + 1)) {
        if (!peer_only_done(&ep->peers[idx])) {
            return false;
        }
    }
    return true;
}

/* ---- progress -------------------------------------------------------------------------------- */

void weft_ep_recv(struct weft_ep *ep, const struct weft_addr *from, enum weft_ecn ecn, void *bytes,
                  size_t count, uint64_t at_ns, uint64_t now_ns)
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

/* Round robin. */
static size_t ready_next(const struct weft_ep *ep)
{
    size_t idx = weft_bits_next_one(ep->ready, ep->peers_used, ep->send_cursor);
    return idx < ep->peers_used ? idx : weft_bits_next_one(ep->ready, ep->peers_used, 0);
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
        uint32_t packets = p->conn.state == PEER_FREE ? 0 : weft_core_peer_send(ep, p, now_ns, tx);
        ep->send_cursor = (uint32_t)idx + 1;
        if (packets > 0) {
            return burst_count(ep, p, packets, tx);
        }
        weft_bits_clear(ep->ready, idx);
        weft_core_timers_arm(ep, p);
    }
    for (struct peer *p; (p = weft_core_egress_next(ep)) != NULL;) {
        uint32_t packets = weft_core_burst_send(ep, p, now_ns, tx);
        weft_core_timers_arm(ep, p);
        if (packets > 0) {
            return burst_count(ep, p, packets, tx);
        }
    }
    return 0;
}
