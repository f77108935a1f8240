/* The handshake guard: admission of handshakes, and packets outside of connections.
 *
 * A HELLO is checked in this order, cheapest first: mode, job key, MAC (one HMAC, no DH); then, if
 * many handshakes are in progress, a cookie that validates its address. Only then is a peer
 * allocated and DH computed. An attacker without the key thus costs one HMAC per packet, and copies
 * of a valid HELLO from spoofed addresses fill at most half_open_max peers. The searches of the
 * table for them are limited in the same way.
 *
 * Replies outside of connections are never longer than the packet that causes them, and are
 * rate-limited (COOKIE only by the queue: it is a third as long as HELLO). They wait in a short
 * queue for the next send, and are dropped if the queue is full. REFUSED is not authenticated,
 * because its receiver has another key: it is reported, but has no other effect.
 *
 * Source: docs/PROTOCOL.md sections 8.1, 8.5 and 8.6.
 */
#include "core/handshake_guard.h"

#include "core/internal.h"

#include <string.h>

static const uint64_t cookie_life_ns = 60 * WEFT_NS_PER_S;
static const uint64_t repeat_ns_min = WEFT_NS_PER_MS;

/* Rates per second, and the sizes of bursts. */
enum {
    REFUSALS_PER_S = 16,
    REFUSALS_BURST = 16,
    UNKNOWNS_PER_S = 128,
    UNKNOWNS_BURST = 128,
    UNKNOWNS_TAKEN_PER_S = 1000, /* each costs a search of the table */
    UNKNOWNS_TAKEN_BURST = 1000,
    HELLOS_BURST = 64,
    SEARCHES_PER_S = 1000, /* searches of the table; more only for HELLOs with a valid cookie */
    SEARCHES_BURST = 1000,
};

static void key_derive(const struct weft_ep *ep, const char *label, uint8_t key_p[WEFT_HASH_BYTES])
{
    const struct weft_crypto *c = &ep->config.crypto;
    struct weft_crypto_span span = {label, strlen(label)};
    c->ops->hmac(c->self, ep->config.psk, WEFT_PSK_BYTES, &span, 1, key_p);
}

void weft_core_handshake_guard_init(struct weft_ep *ep)
{
    uint8_t id[WEFT_HASH_BYTES];
    if (ep->config.mode == WEFT_MODE_NONE) {
        return;
    }
    key_derive(ep, "weft handshake mac", ep->handshake_guard.mac_key);
    key_derive(ep, "weft unknown", ep->handshake_guard.unknown_key);
    key_derive(ep, "weft key id", id);
    ep->handshake_guard.key_id = (uint16_t)(id[0] << 8 | id[1]);
}

/* Comparison in constant time. */
static bool equal_constant_time(const uint8_t *a, const uint8_t *b, size_t count)
{
    uint8_t differ = 0;
    for (size_t i = 0; i < count; i++) {
        differ |= a[i] ^ b[i];
    }
    return differ == 0;
}

static void mac_make(const struct weft_ep *ep, const uint8_t key[WEFT_HASH_BYTES],
                     const struct weft_crypto_span *spans, size_t count,
                     uint8_t mac_p[WEFT_MAC_BYTES])
{
    const struct weft_crypto *c = &ep->config.crypto;
    uint8_t full[WEFT_HASH_BYTES];
    c->ops->hmac(c->self, key, WEFT_HASH_BYTES, spans, count, full);
    memcpy(mac_p, full, WEFT_MAC_BYTES);
}

void weft_core_handshake_guard_mac(const struct weft_ep *ep, const uint8_t *bytes, size_t count,
                                   uint8_t mac_p[WEFT_MAC_BYTES])
{
    struct weft_crypto_span span = {bytes, count};
    mac_make(ep, ep->handshake_guard.mac_key, &span, 1, mac_p);
}

bool weft_core_handshake_guard_mac_valid(const struct weft_ep *ep, const uint8_t *bytes,
                                         size_t count, const uint8_t mac[WEFT_MAC_BYTES])
{
    uint8_t right[WEFT_MAC_BYTES];
    weft_core_handshake_guard_mac(ep, bytes, count, right);
    return equal_constant_time(right, mac, sizeof(right));
}

/* ---- replies outside of connections ---------------------------------------------------------- */

static bool bucket_take(struct bucket *b, uint32_t per_s, uint32_t burst, uint64_t now_ns)
{
    uint64_t each_ns = WEFT_NS_PER_S / per_s;
    uint64_t full_ns = weft_max_u64(b->full_ns, now_ns);
    if (full_ns - now_ns > each_ns * (burst - 1)) {
        return false;
    }
    b->full_ns = full_ns + each_ns;
    return true;
}

/* Allocate a reply in the queue, as a writer; `bad` is set if the queue is full. */
static struct weft_writer reply_begin(struct weft_ep *ep, const struct weft_addr *to)
{
    struct handshake_guard *g = &ep->handshake_guard;
    if (g->reply_count == REPLIES_MAX) {
        return (struct weft_writer){.bad = true};
    }
    struct reply *reply = &g->replies[(g->reply_head + g->reply_count) % REPLIES_MAX];
    reply->addr = *to;
    return weft_writer_make(reply->data, sizeof(reply->data));
}

static bool reply_end(struct weft_ep *ep, const struct weft_writer *w)
{
    struct handshake_guard *g = &ep->handshake_guard;
    if (w->bad) {
        return false;
    }
    struct reply *reply = &g->replies[(g->reply_head + g->reply_count) % REPLIES_MAX];
    reply->bytes = (uint32_t)(w->at - reply->data);
    g->reply_count++;
    return true;
}

uint32_t weft_core_reply_build(struct weft_ep *ep, struct weft_tx *tx)
{
    struct handshake_guard *g = &ep->handshake_guard;
    if (g->reply_count == 0) {
        return 0;
    }
    const struct reply *reply = &g->replies[g->reply_head];
    memcpy(tx->scratch, reply->data, reply->bytes);
    tx->addr = reply->addr;
    tx->ecn = WEFT_ECN_NOT;
    tx->packets = 1;
    tx->seg_bytes = reply->bytes;
    tx->bytes = reply->bytes;
    tx->iov_count = 1;
    tx->iov[0] = (struct weft_ep_iov){.base = tx->scratch, .bytes = reply->bytes};
    g->reply_head = (g->reply_head + 1) % REPLIES_MAX;
    g->reply_count--;
    return 1;
}

void weft_core_handshake_guard_refuse(struct weft_ep *ep, const struct weft_addr *to,
                                      uint32_t connection_id, enum weft_wire_refusal reason,
                                      uint64_t now_ns)
{
    struct weft_wire_refused refused = {
        .reason = (uint8_t)reason,
        .mode = ep->config.mode,
        .connection_id = connection_id,
    };
    if (bucket_take(&ep->handshake_guard.refusals, REFUSALS_PER_S, REFUSALS_BURST, now_ns)) {
        struct weft_writer w = reply_begin(ep, to);
        weft_wire_refused_encode(&w, &refused);
        (void)reply_end(ep, &w);
    }
}

/* ---- HELLO ----------------------------------------------------------------------------------- */

bool weft_core_handshake_guard_hello(struct weft_ep *ep, const struct weft_addr *from,
                                     const struct weft_wire_hello *hello, const uint8_t *bytes,
                                     uint64_t now_ns)
{
    bool other = ep->config.mode == WEFT_MODE_NONE && hello->mode != WEFT_MODE_NONE;
    if (hello->mode < ep->config.mode || other) {
        ep->counters.bad_mode++;
        ep->handshake_guard.hint = WEFT_HINT_MODE;
        weft_core_handshake_guard_refuse(ep, from, hello->connection_id, WEFT_REFUSED_MODE, now_ns);
        return false;
    }
    if (hello->mode == WEFT_MODE_NONE) {
        return true;
    }
    if (hello->key_id != ep->handshake_guard.key_id) {
        ep->counters.bad_key++;
        ep->handshake_guard.hint = WEFT_HINT_KEY;
        weft_core_handshake_guard_refuse(ep, from, hello->connection_id, WEFT_REFUSED_KEY, now_ns);
        return false;
    }
    size_t covered = WEFT_HELLO_BYTES - WEFT_MAC_BYTES;
    if (!weft_core_handshake_guard_mac_valid(ep, bytes, covered, hello->mac)) {
        ep->counters.bad_tag++;
        return false;
    }
    return true;
}

/* HMAC over the address and the fields that identify the handshake. No state is stored. */
static void cookie_make(const struct weft_ep *ep, const uint8_t *secret,
                        const struct weft_addr *addr, const struct weft_wire_hello *hello,
                        uint8_t cookie_p[WEFT_COOKIE_VALUE_BYTES])
{
    uint8_t names[16];
    struct weft_writer w = weft_writer_make(names, sizeof(names));
    weft_write_u32(&w, addr->bytes_used);
    weft_write_u32(&w, hello->connection_id);
    weft_write_u64(&w, hello->incarnation);
    struct weft_crypto_span spans[2] = {{addr->bytes, sizeof(addr->bytes)}, {names, sizeof(names)}};
    mac_make(ep, secret, spans, 2, cookie_p);
}

static bool cookie_valid(const struct weft_ep *ep, const struct weft_addr *addr,
                         const struct weft_wire_hello *hello, uint64_t now_ns)
{
    const struct handshake_guard *g = &ep->handshake_guard;
    for (unsigned i = 0; i < 2; i++) {
        uint8_t right[WEFT_COOKIE_VALUE_BYTES];
        bool alive = g->cookie_ns != 0 && now_ns - g->cookie_ns < 2 * cookie_life_ns;
        cookie_make(ep, g->cookie_secret[i], addr, hello, right);
        if (alive && equal_constant_time(right, hello->cookie, sizeof(right))) {
            return true;
        }
    }
    return false;
}

/* A secret is current for one lifetime and previous for another. */
static weft_status cookie_refresh(struct weft_ep *ep, uint64_t now_ns)
{
    struct handshake_guard *g = &ep->handshake_guard;
    const struct weft_crypto *c = &ep->config.crypto;
    if (g->cookie_ns != 0 && now_ns - g->cookie_ns < cookie_life_ns) {
        return WEFT_OK;
    }
    uint8_t secret[2][WEFT_HASH_BYTES];
    weft_status status = c->ops->random(c->self, secret, sizeof(secret));
    if (status != WEFT_OK) {
        return status;
    }
    /* At first, and after a long time without use, the previous secret is replaced, too. */
    bool follows = g->cookie_ns != 0 && now_ns - g->cookie_ns < 2 * cookie_life_ns;
    memcpy(g->cookie_secret[1], follows ? g->cookie_secret[0] : secret[1], WEFT_HASH_BYTES);
    memcpy(g->cookie_secret[0], secret[0], WEFT_HASH_BYTES);
    c->ops->wipe(c->self, secret, sizeof(secret));
    g->cookie_ns = weft_max_u64(now_ns, 1);
    return WEFT_OK;
}

static void cookie_send(struct weft_ep *ep, const struct weft_addr *to,
                        const struct weft_wire_hello *hello, uint64_t now_ns)
{
    struct weft_wire_cookie cookie = {.connection_id = hello->connection_id};
    if (cookie_refresh(ep, now_ns) != WEFT_OK) {
        ep->counters.crypto_failures++;
        ep->handshake_guard.hint = WEFT_HINT_CRYPTO;
        return;
    }
    cookie_make(ep, ep->handshake_guard.cookie_secret[0], to, hello, cookie.cookie);
    uint8_t bytes[WEFT_COOKIE_BYTES];
    struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
    weft_wire_cookie_encode(&w, &cookie);
    weft_core_handshake_guard_mac(ep, bytes, sizeof(bytes) - WEFT_MAC_BYTES, cookie.mac);
    w = reply_begin(ep, to);
    weft_wire_cookie_encode(&w, &cookie);
    ep->counters.cookies_sent += reply_end(ep, &w);
}

static bool under_load(struct weft_ep *ep, uint64_t now_ns)
{
    uint32_t half_open = 0;
    bool full = true;
    for (uint32_t i = 0; i < ep->config.peers_max; i++) {
        const struct peer *p = &ep->peers[i];
        half_open += p->conn.state == PEER_HALF_OPEN;
        full &= p->conn.state != PEER_FREE || p->conn.events_unpolled > 0;
    }
    /* At most a quarter of the table, so that a flood does not displace valid handshakes. */
    uint64_t most =
        weft_min_u64(ep->config.half_open_max, weft_max_u64(ep->config.peers_max / 4, 1));
    return full || half_open >= most ||
           !bucket_take(&ep->handshake_guard.hellos, ep->config.hello_rate_max, HELLOS_BURST,
                        now_ns);
}

/* A copy of a HELLO has its cookie, too. An initiator repeats HELLO far less often. A cookie that
 * is not among the last ones replaces the oldest: copies of a few HELLOs affect no other
 * initiator. */
static bool is_repeated(struct handshake_guard *g, const struct weft_wire_hello *hello,
                        uint64_t now_ns)
{
    struct searched *to = &g->searched[0];
    for (uint32_t i = 0; i < REPEATS; i++) {
        struct searched *s = &g->searched[i];
        if (s->at_ns != 0 && memcmp(s->cookie, hello->cookie, sizeof(s->cookie)) == 0) {
            to = s;
            break;
        }
        to = s->at_ns < to->at_ns ? s : to;
    }
    if (to->at_ns != 0 && now_ns - to->at_ns < repeat_ns_min &&
        memcmp(to->cookie, hello->cookie, sizeof(to->cookie)) == 0) {
        return true;
    }
    memcpy(to->cookie, hello->cookie, sizeof(to->cookie));
    to->at_ns = weft_max_u64(now_ns, 1);
    return false;
}

bool weft_core_handshake_guard_search(struct weft_ep *ep, const struct weft_addr *from,
                                      const struct weft_wire_hello *hello, uint64_t now_ns)
{
    if (hello->mode == WEFT_MODE_NONE ||
        bucket_take(&ep->handshake_guard.searches, SEARCHES_PER_S, SEARCHES_BURST, now_ns)) {
        return true;
    }
    if (!cookie_valid(ep, from, hello, now_ns)) {
        cookie_send(ep, from, hello, now_ns);
        return false;
    }
    bool repeated = is_repeated(&ep->handshake_guard, hello, now_ns);
    ep->counters.hello_refused += repeated;
    return !repeated;
}

bool weft_core_handshake_guard_admit(struct weft_ep *ep, const struct weft_addr *from,
                                     const struct weft_wire_hello *hello, uint64_t now_ns,
                                     bool *proven_p)
{
    *proven_p = false;
    if (hello->mode == WEFT_MODE_NONE) {
        return true; /* mode none has no cookies (loopback only); the table size is the only
                      * limit */
    }
    *proven_p = cookie_valid(ep, from, hello, now_ns);
    if (*proven_p || !under_load(ep, now_ns)) {
        return true;
    }
    cookie_send(ep, from, hello, now_ns);
    return false;
}

void weft_core_cookie_recv(struct weft_ep *ep, const struct weft_addr *from, const uint8_t *bytes,
                           size_t count, uint64_t now_ns)
{
    struct weft_wire_cookie cookie;
    if (weft_wire_cookie_decode(bytes, count, &cookie) != WEFT_OK) {
        ep->counters.bad_packet++;
        return;
    }
    struct peer *p = weft_core_connecting_find(ep, cookie.connection_id, from);
    if (p == NULL || p->sec.mode == WEFT_MODE_NONE || !p->sec.prepared) {
        ep->counters.bad_peer++;
    } else if (!weft_core_handshake_guard_mac_valid(ep, bytes, count - WEFT_MAC_BYTES,
                                                    cookie.mac)) {
        ep->counters.bad_tag++;
    } else if (memcmp(p->sec.hello.cookie, cookie.cookie, sizeof(cookie.cookie)) == 0) {
        ep->counters.duplicate_packets++;
    } else {
        secure_hello_cookie(&p->sec, cookie.cookie);
        conn_hello_again(&p->conn, now_ns, hello_first_ns); /* the responder is reachable */
        weft_core_peer_ready(ep, p);
    }
}

/* ---- UNKNOWN --------------------------------------------------------------------------------- */

static uint64_t unknown_incarnation(uint64_t incarnation)
{
    return incarnation & ~UINT64_C(0xffff); /* as much of it as UNKNOWN has */
}

/* MAC over the name and the incarnation of the sender of UNKNOWN, so that an UNKNOWN of one server,
 * or of an earlier process of the same name, cannot end a connection with another, and over the
 * number of the packet that it answers, so that it cannot be replayed. */
static void unknown_mac(const struct weft_ep *ep, uint64_t name,
                        const struct weft_wire_unknown *unknown, uint8_t mac_p[WEFT_MAC_BYTES])
{
    uint8_t bytes[24];
    struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
    weft_write_u64(&w, name);
    weft_write_u64(&w, unknown->incarnation);
    weft_write_u32(&w, unknown->connection_id);
    weft_write_u32(&w, unknown->number);
    struct weft_crypto_span span = {bytes, sizeof(bytes)};
    mac_make(ep, ep->handshake_guard.unknown_key, &span, 1, mac_p);
}

void weft_ep_serve(struct weft_ep *ep)
{
    ep->config.is_standby = 0;
}

void weft_core_handshake_guard_unknown(struct weft_ep *ep, const struct weft_addr *from,
                                       const struct weft_wire_packet *header, size_t count,
                                       uint64_t now_ns)
{
    uint32_t idx = header->connection_id & 0xfff;
    const struct peer *p = idx < ep->peers_used ? &ep->peers[idx] : NULL;
    bool known = p != NULL && p->conn.state != PEER_FREE && p->conn.id == header->connection_id;
    if (ep->config.mode == WEFT_MODE_NONE || header->klass < ep->config.mode || known ||
        ep->config.is_standby != 0 || count < WEFT_UNKNOWN_BYTES ||
        !bucket_take(&ep->handshake_guard.unknowns, UNKNOWNS_PER_S, UNKNOWNS_BURST, now_ns)) {
        return;
    }
    struct weft_wire_unknown unknown = {
        .connection_id = header->connection_id,
        .number = (uint32_t)header->number,
        .incarnation = unknown_incarnation(ep->config.incarnation),
    };
    unknown_mac(ep, ep->config.name, &unknown, unknown.mac);
    struct weft_writer w = reply_begin(ep, from);
    weft_wire_unknown_encode(&w, &unknown);
    ep->counters.unknown_sent += reply_end(ep, &w);
}

/* An endpoint responds to any address, including its own. An attacker can therefore make it send an
 * UNKNOWN for any connection id to itself, and forward it with the peer's source address. If both
 * have the same name, as a server and its replica do, its MAC would be valid. An UNKNOWN that may
 * be this endpoint's own is therefore ignored. Endpoints without a name are not checked. */
static bool unknown_may_be_ours(const struct weft_ep *ep, const struct peer *p)
{
    return p->conn.name != 0 && p->conn.name == ep->config.name;
}

/* The peer to whose packet an UNKNOWN is the reply, before its MAC is verified; NULL = none. It is
 * from the peer's process, which has dropped the connection, or from a later one that has taken its
 * place; not from an earlier one. An UNKNOWN for an acknowledged packet is ignored: the peer had
 * the connection when it acknowledged. */
static struct peer *unknown_find(struct weft_ep *ep, const struct weft_addr *from,
                                 const struct weft_wire_unknown *unknown)
{
    for (uint32_t i = 0; i < ep->peers_used; i++) {
        struct peer *p = &ep->peers[i];
        uint64_t number = weft_core_number_near(p->recovery.pn_next - 1, unknown->number);
        if (p->conn.state == PEER_OPEN && p->sec.mode != WEFT_MODE_NONE &&
            p->conn.remote_id == unknown->connection_id && addr_equal(&p->conn.addr, from) &&
            unknown->incarnation >= unknown_incarnation(p->conn.incarnation) &&
            !unknown_may_be_ours(ep, p) && number > p->recovery.pn_acked_largest &&
            number < p->recovery.pn_next) {
            return p;
        }
    }
    return NULL;
}

void weft_core_unknown_recv(struct weft_ep *ep, const struct weft_addr *from, const uint8_t *bytes,
                            size_t count, uint64_t now_ns)
{
    struct weft_wire_unknown unknown;
    if (weft_wire_unknown_decode(bytes, count, &unknown) != WEFT_OK) {
        ep->counters.bad_packet++;
        return;
    }
    ep->counters.unknown_received++;
    bool within_rate = bucket_take(&ep->handshake_guard.unknowns_taken, UNKNOWNS_TAKEN_PER_S,
                                   UNKNOWNS_TAKEN_BURST, now_ns);
    struct peer *p = within_rate ? unknown_find(ep, from, &unknown) : NULL;
    if (p == NULL) {
        ep->counters.bad_peer++;
        return;
    }
    uint8_t mac[WEFT_MAC_BYTES];
    unknown_mac(ep, p->conn.name, &unknown, mac);
    if (!equal_constant_time(mac, unknown.mac, sizeof(mac))) {
        ep->counters.bad_tag++;
        return;
    }
    weft_core_peer_down(ep, p, WEFT_DOWN_RESTARTED, now_ns);
}

/* ---- hints ----------------------------------------------------------------------------------- */

void weft_core_refused_recv(struct weft_ep *ep, const struct weft_addr *from, const uint8_t *bytes,
                            size_t count)
{
    static const enum weft_ep_hint hints[] = {
        [WEFT_REFUSED_VERSION] = WEFT_HINT_TOLD_VERSION, [WEFT_REFUSED_KEY] = WEFT_HINT_TOLD_KEY,
        [WEFT_REFUSED_MODE] = WEFT_HINT_TOLD_MODE,       [WEFT_REFUSED_FULL] = WEFT_HINT_TOLD_FULL,
        [WEFT_REFUSED_CLOSED] = WEFT_HINT_TOLD_CLOSED,
    };
    struct weft_wire_refused refused;
    if (weft_wire_refused_decode(bytes, count, &refused) != WEFT_OK) {
        ep->counters.bad_packet++;
        return;
    }
    if (weft_core_connecting_find(ep, refused.connection_id, from) == NULL) {
        ep->counters.bad_peer++;
        return;
    }
    ep->counters.refused++;
    if (refused.reason < WEFT_ARRAY_COUNT(hints) && refused.reason > 0) {
        ep->handshake_guard.hint = hints[refused.reason];
    }
}

/* Byte 0, the connection id of HELLO, and REFUSED have the same layout in every version. */
void weft_core_version_recv(struct weft_ep *ep, const struct weft_addr *from, const uint8_t *bytes,
                            size_t count, uint64_t now_ns)
{
    uint8_t klass = bytes[0] & 15;
    if (klass == WEFT_CLASS_REFUSED) {
        weft_core_refused_recv(ep, from, bytes, count);
        return;
    }
    ep->counters.bad_version++;
    if (klass == WEFT_CLASS_HELLO && count >= WEFT_REFUSED_BYTES && ep->config.accept) {
        struct weft_reader r = weft_reader_make(bytes + 4, 4);
        ep->handshake_guard.hint = WEFT_HINT_VERSION;
        weft_core_handshake_guard_refuse(ep, from, weft_read_u32(&r), WEFT_REFUSED_VERSION, now_ns);
    }
}

enum weft_ep_hint weft_ep_hint(const struct weft_ep *ep)
{
    return ep->handshake_guard.hint;
}

const char *weft_ep_hint_text(enum weft_ep_hint hint)
{
    switch (hint) {
    case WEFT_HINT_NONE:
        break;
    case WEFT_HINT_KEY:
        return "a peer with another job key sent a handshake: check that both ends use the same "
               "key file";
    case WEFT_HINT_VERSION:
        return "a peer of another protocol version sent a handshake: install the same release at "
               "both ends";
    case WEFT_HINT_MODE:
        return "a peer with another security mode sent a handshake: give both ends the same "
               "--security";
    case WEFT_HINT_CRYPTO:
        return "the cryptography of this process failed; was it forked after the endpoint was "
               "opened? Open endpoints in the child";
    case WEFT_HINT_TOLD_KEY:
        return "the other end reports another job key: check that both ends use the same key file";
    case WEFT_HINT_TOLD_VERSION:
        return "the other end reports another protocol version: install the same release at both "
               "ends";
    case WEFT_HINT_TOLD_MODE:
        return "the other end reports that it does not accept this security mode: give both ends "
               "the same --security";
    case WEFT_HINT_TOLD_FULL:
        return "the other end reports that its table of peers is full: raise its limit, or wait";
    case WEFT_HINT_TOLD_CLOSED:
        return "the other end reports that it accepts no connections: check address and port";
    }
    return "";
}
