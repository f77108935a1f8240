/* The handshake: HELLO and ACCEPT. docs/PROTOCOL.md sections 2.2, 2.3, 8.
 *
 * The initiator repeats HELLO until ACCEPT arrives. The responder creates a half-open peer and
 * replies with ACCEPT. The peer is up at its first valid connection packet, which proves that it
 * received ACCEPT at its source address and, except in mode none, that it has the job key. Only
 * then is an older connection with the same process closed: HELLO itself does not affect existing
 * connections.
 *
 * A retransmission of HELLO or ACCEPT repeats the same bytes except for clock, cookie and MAC (the
 * reason is in core/noise.h). handshake_guard.c decides on admission; secure.c derives the keys.
 */
#include "core/internal.h"

#include <string.h>

/* Lifetime of a half-open peer without further packets. Its HELLO may be repeated for this long. */
static const uint64_t half_open_ns = 10 * WEFT_NS_PER_S;

static struct peer *hello_find(struct weft_ep *ep, const struct weft_addr *from,
                               const struct weft_wire_hello *hello)
{
    for (uint32_t i = 0; i < ep->peers_used; i++) {
        struct peer *p = &ep->peers[i];
        if (peer_connected(p) && p->conn.remote_id == hello->connection_id &&
            p->conn.incarnation == hello->incarnation && addr_equal(&p->conn.addr, from)) {
            return p;
        }
    }
    return NULL;
}

static void params_set(struct peer *p, uint64_t name, uint64_t incarnation, uint64_t open_from,
                       uint16_t unscheduled, uint32_t packet_bytes_max)
{
    p->conn.name = name;
    p->conn.incarnation = incarnation;
    rx_begin(&p->rx, open_from);
    allowed_begin(&p->allowed, unscheduled > 0 ? unscheduled : 1);
    path_limit(&p->path, packet_bytes_max);
}

struct peer *weft_core_connecting_find(struct weft_ep *ep, uint32_t connection_id,
                                       const struct weft_addr *from)
{
    uint32_t idx = connection_id & 0xfff;
    struct peer *p = idx < ep->peers_used ? &ep->peers[idx] : NULL;
    bool match = p != NULL && p->conn.state == PEER_CONNECTING && p->conn.id == connection_id &&
                 addr_equal(&p->conn.addr, from);
    return match ? p : NULL;
}

/* Create a peer for a HELLO that has passed the guard's first check. NULL: refused and counted. */
static struct peer *hello_peer_create(struct weft_ep *ep, const struct weft_addr *from,
                                      const struct weft_wire_hello *hello, const uint8_t *bytes,
                                      uint64_t now_ns)
{
    if (!ep->config.accept || hello->packet_bytes_max < 256) {
        ep->counters.hello_refused++;
        if (!ep->config.accept) {
            weft_core_handshake_guard_refuse(ep, from, hello->connection_id, WEFT_REFUSED_CLOSED,
                                             now_ns);
        }
        return NULL;
    }
    bool proven;
    if (!weft_core_handshake_guard_admit(ep, from, hello, now_ns, &proven)) {
        return NULL;
    }
    struct peer *p = weft_core_peer_alloc(ep, from, now_ns);
    if (p == NULL) {
        ep->counters.hello_refused++;
        weft_core_handshake_guard_refuse(ep, from, hello->connection_id, WEFT_REFUSED_FULL, now_ns);
        return NULL;
    }
    p->conn.state = PEER_HALF_OPEN;
    p->conn.hello_ns = now_ns + half_open_ns;
    p->conn.accepted = true;
    secure_cookie(&p->sec, proven);
    p->conn.remote_id = hello->connection_id;
    params_set(p, hello->name, hello->incarnation, hello->open_from, hello->unscheduled,
               hello->packet_bytes_max);
    weft_status status = weft_core_secure_hello_recv(ep, p, hello, bytes);
    if (status != WEFT_OK) {
        ep->counters.bad_tag += status == WEFT_PROTO;
        if (status != WEFT_PROTO) {
            weft_core_secure_fail(ep, p);
        }
        weft_core_peer_down(ep, p, WEFT_DOWN_CRYPTO, now_ns); /* half open: no event */
        return NULL;
    }
    return p;
}

void weft_core_hello_recv(struct weft_ep *ep, const struct weft_addr *from, const void *bytes,
                          size_t count, uint64_t now_ns)
{
    struct weft_wire_hello hello;
    if (weft_wire_hello_decode(bytes, count, &hello) != WEFT_OK) {
        ep->counters.bad_packet++;
        return;
    }
    if (!weft_core_handshake_guard_hello(ep, from, &hello, bytes, now_ns) ||
        !weft_core_handshake_guard_search(ep, from, &hello, now_ns)) {
        return;
    }
    struct peer *p = hello_find(ep, from, &hello);
    if (p == NULL) {
        p = hello_peer_create(ep, from, &hello, bytes, now_ns);
        if (p == NULL) {
            return;
        }
    } else if (!p->sec.prepared || memcmp(p->sec.hello_tag, hello.tag, sizeof(hello.tag)) != 0) {
        ep->counters.hello_refused++; /* not a retransmission of the HELLO that created this peer */
        return;
    }
    p->conn.hello_clock = hello.clock;
    p->conn.need_accept = true;
    weft_core_peer_ready(ep, p);
}

/* Authenticate an ACCEPT. False: it was dropped and counted. */
static bool accept_verify(struct weft_ep *ep, struct peer *p, const struct weft_wire_accept *accept,
                          const uint8_t *bytes)
{
    if (accept->mode != p->sec.mode || !p->sec.prepared) {
        ep->counters.bad_mode++;
        ep->handshake_guard.hint = WEFT_HINT_MODE;
        return false;
    }
    if (accept->mode == WEFT_MODE_NONE) {
        return true;
    }
    if (accept->key_id != ep->handshake_guard.key_id) {
        ep->counters.bad_key++;
        ep->handshake_guard.hint = WEFT_HINT_KEY;
        return false;
    }
    size_t covered = WEFT_ACCEPT_BYTES - WEFT_MAC_BYTES;
    bool mac = weft_core_handshake_guard_mac_valid(ep, bytes, covered, accept->mac);
    weft_status status = mac ? weft_core_secure_accept_recv(ep, p, accept) : WEFT_PROTO;
    if (status == WEFT_PROTO) {
        ep->counters.bad_tag++;
    } else if (status != WEFT_OK) {
        weft_core_secure_fail(ep, p);
    }
    return status == WEFT_OK;
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
    if (p == NULL || p->conn.state == PEER_FREE || p->conn.id != accept.connection_id ||
        !addr_equal(&p->conn.addr, from)) {
        ep->counters.bad_peer++;
        return;
    }
    if (p->conn.state != PEER_CONNECTING) {
        ep->counters.duplicate_packets++; /* reply to a retransmitted HELLO */
        return;
    }
    if (!accept_verify(ep, p, &accept, bytes)) {
        return;
    }
    if (accept.packet_bytes_max < p->path.packet_bytes) {
        weft_core_peer_down(ep, p, WEFT_DOWN_PROTOCOL, now_ns);
        return;
    }
    p->conn.remote_id = accept.own_connection_id;
    p->conn.hello_ns = WEFT_NEVER;
    params_set(p, accept.name, accept.incarnation, accept.open_from, accept.unscheduled,
               accept.packet_bytes_max);
    uint32_t elapsed = wire_clock(at_ns) - accept.clock;
    if (elapsed < UINT32_C(1) << 31) {
        weft_core_rtt_sample(p, (uint64_t)elapsed << 6, 0);
        trace_rtt(ep, p);
    }
    p->conn.need_ping = true; /* completes the handshake even if there is nothing to send */
    weft_core_peer_up(ep, p, now_ns);
}

/* A socket belongs to one process at a time, so a process with another incarnation at the same
 * address is dead, regardless of its name. */
static bool same_other_end(const struct peer *a, const struct peer *b)
{
    return addr_equal(&a->conn.addr, &b->conn.addr) &&
           (a->conn.name == b->conn.name || a->conn.incarnation != b->conn.incarnation);
}

/* A half-open connection that its initiator has abandoned in favour of p. Its packets still in
 * flight, such as a retransmitted CLOSE, must not bring it up after p and replace p. */
static bool given_up_for(const struct peer *old, const struct peer *p)
{
    return old != p && old->conn.state == PEER_HALF_OPEN &&
           addr_equal(&old->conn.addr, &p->conn.addr) && old->conn.name == p->conn.name &&
           old->conn.incarnation == p->conn.incarnation &&
           old->conn.hello_since_ns < p->conn.hello_since_ns;
}

void weft_core_older_replace(struct weft_ep *ep, const struct peer *p, uint64_t now_ns)
{
    for (uint32_t i = 0; i < ep->peers_used; i++) {
        struct peer *old = &ep->peers[i];
        if (given_up_for(old, p)) {
            weft_core_peer_down(ep, old, WEFT_DOWN_RESTARTED, now_ns); /* half open: no event */
            continue;
        }
        /* Two ends that connect to each other at the same time have two connections. The one that
         * this end initiated stays, unless the other end is a new process. */
        if (old != p && old->conn.state == PEER_OPEN && same_other_end(old, p) &&
            (old->conn.accepted || old->conn.incarnation != p->conn.incarnation)) {
            if (ep->event_count + 2 * EVENTS_RESERVE <= EVENTS_MAX) {
                weft_core_peer_down(ep, old, WEFT_DOWN_RESTARTED, now_ns);
            } else { /* the packet that brings p up needs room for events, too */
                old->conn.replaced = true;
                weft_core_peer_ready(ep, old);
            }
        }
    }
}

static uint32_t packet_alone(struct weft_tx *tx, const struct peer *p, size_t bytes)
{
    tx->addr = p->conn.addr;
    tx->ecn = WEFT_ECN_NOT;
    tx->fragment = false;
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
    if (!p->sec.prepared && weft_core_secure_hello(ep, p) != WEFT_OK) {
        weft_core_secure_fail(ep, p);
        return 0;
    }
    secure_hello_clock(&p->sec, wire_clock(now_ns));
    const struct weft_wire_hello *hello = &p->sec.hello;
    struct weft_writer w = weft_writer_make(tx->scratch, sizeof(tx->scratch));
    weft_wire_hello_encode(&w, hello);
    if (hello->mode != WEFT_MODE_NONE) {
        size_t covered = WEFT_HELLO_BYTES - WEFT_MAC_BYTES;
        weft_core_handshake_guard_mac(ep, tx->scratch, covered, tx->scratch + covered);
    }
    p->conn.hello_ns = now_ns + p->conn.hello_interval_ns;
    p->conn.hello_interval_ns = weft_min_u64(2 * p->conn.hello_interval_ns, WEFT_NS_PER_S);
    return packet_alone(tx, p, WEFT_HELLO_BYTES);
}

uint32_t weft_core_accept_build(struct weft_ep *ep, struct peer *p, struct weft_tx *tx)
{
    secure_accept_clock(&p->sec, p->conn.hello_clock);
    const struct weft_wire_accept *accept = &p->sec.accept;
    struct weft_writer w = weft_writer_make(tx->scratch, sizeof(tx->scratch));
    weft_wire_accept_encode(&w, accept);
    if (accept->mode != WEFT_MODE_NONE) {
        size_t covered = WEFT_ACCEPT_BYTES - WEFT_MAC_BYTES;
        weft_core_handshake_guard_mac(ep, tx->scratch, covered, tx->scratch + covered);
    }
    p->conn.need_accept = false;
    return packet_alone(tx, p, WEFT_ACCEPT_BYTES);
}
