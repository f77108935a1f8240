/* Opening a connection: HELLO and ACCEPT, mode none. docs/PROTOCOL.md sections 2.2, 2.3.
 *
 * The one who connects repeats HELLO until ACCEPT comes. The one who accepts makes a half-open peer
 * and answers; the peer is up at its first valid connection packet, which proves that it got ACCEPT
 * at the address it claims. Keys, cookies and UNKNOWN come with the transport issue; their fields
 * are laid out already and zero.
 */
#include "core/internal.h"

#include <string.h>

static bool addr_equal(const struct weft_addr *a, const struct weft_addr *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

static struct peer *hello_find(struct weft_ep *ep, const struct weft_addr *from,
                               const struct weft_wire_hello *hello)
{
    for (uint32_t i = 0; i < ep->peers_used; i++) {
        struct peer *p = &ep->peers[i];
        if (peer_connected(p) && p->remote_connection_id == hello->connection_id &&
            p->incarnation == hello->incarnation && addr_equal(&p->addr, from)) {
            return p;
        }
    }
    return NULL;
}

static void params_take(struct peer *p, uint64_t name, uint64_t incarnation, uint64_t open_from,
                        uint16_t unscheduled, uint32_t packet_bytes_max)
{
    p->name = name;
    p->incarnation = incarnation;
    p->rx_open_from = weft_max_u64(open_from, 1);
    p->credit = unscheduled > 0 ? unscheduled : 1;
    p->packet_bytes = (uint32_t)weft_min_u64(p->packet_bytes, packet_bytes_max);
}

void weft_core_hello_recv(struct weft_ep *ep, const struct weft_addr *from, const void *bytes,
                          size_t count, uint64_t now_ns)
{
    struct weft_wire_hello hello;
    if (weft_wire_hello_decode(bytes, count, &hello) != WEFT_OK) {
        ep->counters.bad_packet++;
        return;
    }
    struct peer *p = hello_find(ep, from, &hello);
    if (p == NULL) {
        if (!ep->config.accept || hello.mode != WEFT_MODE_NONE || hello.packet_bytes_max < 256) {
            ep->counters.hello_refused++;
            return;
        }
        p = weft_core_peer_take(ep, from, now_ns);
        if (p == NULL) {
            ep->counters.hello_refused++;
            return;
        }
        p->state = PEER_HALF_OPEN;
        p->remote_connection_id = hello.connection_id;
        params_take(p, hello.name, hello.incarnation, hello.open_from, hello.unscheduled,
                    hello.packet_bytes_max);
    }
    p->hello_clock = hello.clock;
    p->need_accept = true;
    weft_core_peer_ready(ep, p);
}

void weft_core_accept_recv(struct weft_ep *ep, const struct weft_addr *from, const void *bytes,
                           size_t count, uint64_t at_ns, uint64_t now_ns)
{
    struct weft_wire_accept accept;
    if (weft_wire_accept_decode(bytes, count, &accept) != WEFT_OK) {
        ep->counters.bad_packet++;
        return;
    }
    uint32_t idx = accept.connection_id & 0xfff;
    struct peer *p = idx < ep->peers_used ? &ep->peers[idx] : NULL;
    if (p == NULL || p->state == PEER_FREE || p->connection_id != accept.connection_id ||
        !addr_equal(&p->addr, from)) {
        ep->counters.bad_peer++;
        return;
    }
    if (p->state != PEER_CONNECTING) {
        ep->counters.duplicate_packets++; /* the answer to a repeated HELLO */
        return;
    }
    if (accept.mode != WEFT_MODE_NONE || accept.packet_bytes_max < p->packet_bytes) {
        weft_core_peer_down(ep, p, WEFT_DOWN_PROTOCOL, now_ns);
        return;
    }
    p->remote_connection_id = accept.own_connection_id;
    p->hello_ns = WEFT_NEVER;
    params_take(p, accept.name, accept.incarnation, accept.open_from, accept.unscheduled,
                accept.packet_bytes_max);
    uint32_t elapsed = wire_clock(at_ns) - accept.clock;
    if (elapsed < UINT32_C(1) << 31) {
        weft_core_rtt_sample(p, (uint64_t)elapsed << 6, 0);
    }
    p->need_ping = true; /* so that the other end knows us even when we have nothing to send */
    weft_core_peer_up(ep, p, now_ns);
}

static uint32_t packet_alone(struct weft_tx *tx, const struct peer *p, size_t bytes)
{
    tx->addr = p->addr;
    tx->ecn = WEFT_ECN_NOT;
    tx->packets = 1;
    tx->seg_bytes = (uint32_t)bytes;
    tx->bytes = (uint32_t)bytes;
    tx->iov_count = 1;
    tx->iov[0] = (struct weft_ep_iov){.base = tx->scratch, .bytes = bytes};
    return 1;
}

uint32_t weft_core_hello_build(struct weft_ep *ep, struct peer *p, uint64_t now_ns,
                               struct weft_tx *tx)
{
    struct weft_wire_hello hello = {
        .mode = WEFT_MODE_NONE,
        .connection_id = p->connection_id,
        .incarnation = ep->config.incarnation,
        .name = ep->config.name,
        .open_from = p->tx_open_from,
        .clock = wire_clock(now_ns),
        .unscheduled = (uint16_t)p->granted,
        .packet_bytes_max = 65000,
    };
    struct weft_writer w = weft_writer_make(tx->scratch, sizeof(tx->scratch));
    weft_wire_hello_encode(&w, &hello);
    p->hello_ns = now_ns + p->hello_interval_ns;
    p->hello_interval_ns = weft_min_u64(2 * p->hello_interval_ns, WEFT_NS_PER_S);
    return packet_alone(tx, p, WEFT_HELLO_BYTES);
}

uint32_t weft_core_accept_build(struct weft_ep *ep, struct peer *p, struct weft_tx *tx)
{
    struct weft_wire_accept accept = {
        .mode = WEFT_MODE_NONE,
        .connection_id = p->remote_connection_id,
        .own_connection_id = p->connection_id,
        .clock = p->hello_clock,
        .incarnation = ep->config.incarnation,
        .name = ep->config.name,
        .open_from = p->tx_open_from,
        .unscheduled = (uint16_t)p->granted,
        .packet_bytes_max = 65000,
    };
    struct weft_writer w = weft_writer_make(tx->scratch, sizeof(tx->scratch));
    weft_wire_accept_encode(&w, &accept);
    p->need_accept = false;
    return packet_alone(tx, p, WEFT_ACCEPT_BYTES);
}
