/* The accepting end: which strangers (connections without a peer) become peers, and which are
 * closed when there are too many.
 *
 * A stranger costs a descriptor and a struct tcp_conn. There are at most strangers_max of them; a
 * new one replaces the oldest. Each has 5 s, or a minute after ACCEPT, and no memory is allocated
 * for it. Diffie-Hellman, which is expensive, is done only for a HELLO with the MAC of the job key.
 *
 * A recorded HELLO has that MAC too. The three-way handshake of TCP has validated the address, but
 * does not prove that HELLO was made for this connection. So when many handshakes are in progress,
 * or arrived recently, HELLO must contain a cookie: 16 random bytes of this connection, covered by
 * the MAC. An attacker that only replays recorded HELLOs cannot produce it, and costs two HMACs.
 * Handshakes without one cannot crowd out those with one.
 *
 * Source: docs/PROTOCOL.md sections 8.1 and 10.1.
 */
#include "io/tcp/internal.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ACCEPTS_A_STEP = 16, HELLOS_BURST = 64, UNPROVEN_SHARE = 4 };

static const uint64_t stranger_ns = 5 * WEFT_NS_PER_S;
/* The other end considers itself connected when it has read ACCEPT, and may be suspended just
 * then. */
static const uint64_t half_open_ns = 60 * WEFT_NS_PER_S;
/* Once cookies are required, they are required for this long. Otherwise an attacker that replays
 * HELLO could get a new handshake each time that one of its own ends. */
static const uint64_t cookies_ns = 5 * WEFT_NS_PER_S;

/* ---- HELLO ----------------------------------------------------------------------------------- */

static bool hello_in_rate(struct weft_tcp *t, uint64_t now_ns)
{
    uint64_t each_ns = WEFT_NS_PER_S / t->config.ep.hello_rate_max;
    uint64_t full_ns = weft_max_u64(t->hellos_full_ns, now_ns);
    if (full_ns - now_ns > each_ns * (HELLOS_BURST - 1)) {
        return false;
    }
    t->hellos_full_ns = full_ns + each_ns;
    return true;
}

/* Handshakes that may be replays hold at most a quarter of the slots. */
static bool unproven_fit(const struct weft_tcp *t)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->conns_max; i++) {
        count += t->conns[i].state == TCP_CONN_HALF_OPEN && !t->conns[i].proven;
    }
    return count < weft_max_u64(t->strangers_max / UNPROVEN_SHARE, 1);
}

static bool cookie_needed(struct weft_tcp *t, uint64_t now_ns)
{
    if (now_ns >= t->cookies_until_ns && unproven_fit(t) && hello_in_rate(t, now_ns)) {
        return false;
    }
    t->cookies_until_ns = now_ns + cookies_ns;
    return true;
}

/* Request HELLO once more, with a cookie. */
static bool cookie_ask(struct weft_tcp *t, struct tcp_conn *c, const struct weft_wire_hello *hello)
{
    const struct weft_crypto *crypto = &t->config.ep.crypto;
    struct weft_wire_cookie cookie = {.connection_id = hello->connection_id};
    uint8_t bytes[WEFT_COOKIE_BYTES];
    if (crypto->ops->random(crypto->self, c->cookie, sizeof(c->cookie)) != WEFT_OK) {
        weft_tcp_crypto_failed(t);
        return false;
    }
    memcpy(cookie.cookie, c->cookie, sizeof(cookie.cookie));
    struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
    weft_wire_cookie_encode(&w, &cookie);
    weft_tcp_mac_make(t, bytes, sizeof(bytes) - WEFT_MAC_BYTES,
                      bytes + sizeof(bytes) - WEFT_MAC_BYTES);
    t->counters.cookies_sent++;
    c->asked_cookie = true;
    c->in_bytes = 0;
    return weft_tcp_conn_write(t, c, bytes, sizeof(bytes));
}

void weft_tcp_refuse(struct weft_tcp *t, struct tcp_conn *c, enum weft_wire_refusal reason)
{
    struct weft_wire_refused r = {.reason = (uint8_t)reason,
                                  .mode = t->config.ep.mode,
                                  .connection_id = weft_get_u32(c->in + 4)};
    uint8_t bytes[WEFT_REFUSED_BYTES];
    struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
    weft_wire_refused_encode(&w, &r);
    (void)weft_tcp_conn_write(t, c, bytes, sizeof(bytes)); /* only a hint: a failed send is
                                                            * ignored */
    /* Closing a socket with unread bytes resets the connection, and the reset may overtake the
     * answer. */
    uint8_t rest[WEFT_HELLO_BYTES];
    ssize_t got = recv(c->fd, rest, sizeof(rest), 0);
    (void)got;
}

/* Is its HELLO of this job, and in a mode that this end accepts? */
static bool hello_verify(struct weft_tcp *t, struct tcp_conn *c,
                         const struct weft_wire_hello *hello)
{
    uint8_t mode = t->config.ep.mode;
    if (hello->mode < mode || (mode == WEFT_MODE_NONE && hello->mode != WEFT_MODE_NONE)) {
        t->counters.bad_mode++;
        t->hint = WEFT_HINT_MODE;
        weft_tcp_refuse(t, c, WEFT_REFUSED_MODE);
        return false;
    }
    if (mode == WEFT_MODE_NONE) {
        return true;
    }
    if (hello->key_id != t->key_id) {
        t->counters.bad_key++;
        t->hint = WEFT_HINT_KEY;
        weft_tcp_refuse(t, c, WEFT_REFUSED_KEY);
        return false;
    }
    if (!weft_tcp_mac_valid(t, c->in, WEFT_HELLO_BYTES - WEFT_MAC_BYTES, hello->mac)) {
        t->counters.bad_tag++;
        return false;
    }
    return true;
}

static weft_status accept_write(struct weft_tcp *t, struct tcp_conn *c,
                                const struct weft_wire_hello *hello,
                                uint8_t bytes[WEFT_ACCEPT_BYTES])
{
    bool secure = hello->mode != WEFT_MODE_NONE;
    struct weft_wire_accept accept = {
        .mode = hello->mode,
        .key_id = hello->key_id,
        .connection_id = hello->connection_id,
        .own_connection_id = (uint32_t)weft_prng_u64(&t->prng),
        .incarnation = t->config.ep.incarnation,
        .name = t->config.ep.name,
        .open_from = 1,
        .packet_bytes_max = WEFT_WIRE_RECORD_CHUNK_MAX,
    };
    weft_status status = WEFT_OK;
    if (secure) {
        weft_tcp_noise_begin(t, c->in, &c->noise);
        status = weft_noise_hello_read(&c->noise, hello->ephemeral, NULL, 0, hello->tag);
        if (status == WEFT_OK) {
            status = weft_noise_accept_write(&c->noise, NULL, 0, accept.ephemeral, accept.tag);
        }
        if (status == WEFT_OK) {
            status = weft_tcp_keys_begin(t, c, &c->noise, false);
        }
        weft_noise_wipe(&c->noise);
    }
    struct weft_writer w = weft_writer_make(bytes, WEFT_ACCEPT_BYTES);
    weft_wire_accept_encode(&w, &accept);
    if (secure) {
        weft_tcp_mac_make(t, bytes, WEFT_ACCEPT_BYTES - WEFT_MAC_BYTES,
                          bytes + WEFT_ACCEPT_BYTES - WEFT_MAC_BYTES);
    }
    return status;
}

static bool hello_accept(struct weft_tcp *t, struct tcp_conn *c,
                         const struct weft_wire_hello *hello)
{
    uint8_t bytes[WEFT_ACCEPT_BYTES];
    c->mode = hello->mode;
    weft_status status = accept_write(t, c, hello, bytes);
    t->counters.bad_tag += status == WEFT_PROTO;
    if (status != WEFT_OK && status != WEFT_PROTO) {
        weft_tcp_crypto_failed(t);
    }
    if (status != WEFT_OK || !weft_tcp_conn_write(t, c, bytes, sizeof(bytes))) {
        return false;
    }
    c->name = hello->name;
    c->incarnation = hello->incarnation;
    c->state = TCP_CONN_HALF_OPEN;
    c->in_bytes = 0;
    return true;
}

static bool hello_answer(struct weft_tcp *t, struct tcp_conn *c, uint64_t now_ns)
{
    struct weft_wire_hello hello;
    if (weft_wire_hello_decode(c->in, WEFT_HELLO_BYTES, &hello) != WEFT_OK) {
        t->counters.bad_packet++;
        return false;
    }
    if (!hello_verify(t, c, &hello)) {
        return false;
    }
    bool secure = hello.mode != WEFT_MODE_NONE;
    if (!weft_tcp_peer_room(t) || (!secure && !hello_in_rate(t, now_ns))) {
        t->counters.hello_refused++;
        weft_tcp_refuse(t, c, WEFT_REFUSED_FULL);
        return false;
    }
    if (c->asked_cookie) {
        c->proven = memcmp(hello.cookie, c->cookie, sizeof(c->cookie)) == 0;
        t->counters.bad_tag += !c->proven;
        return c->proven && hello_accept(t, c, &hello);
    }
    return secure && cookie_needed(t, now_ns) ? cookie_ask(t, c, &hello)
                                              : hello_accept(t, c, &hello);
}

void weft_tcp_hello_recv(struct weft_tcp *t, struct tcp_conn *c, uint64_t now_ns)
{
    if (!hello_answer(t, c, now_ns)) {
        weft_tcp_conn_free(t, c);
    }
}

/* An earlier accepted connection of the same process and name is dead, even if TCP has not detected
 * it. Two ends that connect to each other keep both connections, as over UDP. */
static void older_replace(struct weft_tcp *t, const struct tcp_conn *c, uint64_t now_ns)
{
    for (uint32_t i = 0; i < t->peers_used; i++) {
        struct tcp_peer *old = &t->peers[i];
        if (old->state == TCP_PEER_OPEN && old->accepted && old->name == c->name &&
            old->incarnation == c->incarnation) {
            weft_tcp_peer_down(t, old, WEFT_DOWN_RESTARTED, 0, now_ns);
        }
    }
}

void weft_tcp_first_record(struct weft_tcp *t, struct tcp_conn *c, uint64_t now_ns)
{
    uint8_t record[WEFT_WIRE_RECORD_FIRST_MAX];
    uint32_t count = c->in_bytes;
    memcpy(record, c->in, count);
    bool data = (record[1] & WEFT_FLAG_DATA) != 0;
    weft_status status = data ? WEFT_PROTO : weft_tcp_open_record(t, c, record, count);
    if (status != WEFT_OK) {
        t->counters.bad_packet += data;
        t->counters.bad_tag += !data && status == WEFT_PROTO;
        if (status != WEFT_PROTO) {
            weft_tcp_crypto_failed(t);
        }
        weft_tcp_conn_free(t, c);
        return;
    }
    older_replace(t, c, now_ns);
    struct tcp_peer *p = weft_tcp_peer_take(t);
    if (p == NULL) {
        t->counters.hello_refused++;
        weft_tcp_conn_free(t, c);
        return;
    }
    p->conn = c;
    p->accepted = true;
    p->name = c->name;
    p->incarnation = c->incarnation;
    c->peer = p;
    c->state = TCP_CONN_OPEN;
    c->in_bytes = 0;
    weft_tcp_peer_up(t, p, now_ns);
    (void)weft_tcp_record(t, p, record, count, now_ns);
}

/* ---- strangers ------------------------------------------------------------------------------- */

static bool is_stranger(const struct tcp_conn *c)
{
    return c->state == TCP_CONN_STRANGER || c->state == TCP_CONN_HALF_OPEN;
}

/* Strangers of a lower rank are closed first. */
static uint32_t rank_of(const struct tcp_conn *c)
{
    return c->state == TCP_CONN_STRANGER ? 0 : c->proven ? 2 : 1;
}

/* Make room for one more: close the oldest of the lowest rank. */
static void stranger_room(struct weft_tcp *t)
{
    struct tcp_conn *oldest = NULL;
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->conns_max; i++) {
        struct tcp_conn *c = &t->conns[i];
        if (!is_stranger(c)) {
            continue;
        }
        count++;
        bool before =
            oldest == NULL || (rank_of(c) == rank_of(oldest) ? c->since_ns < oldest->since_ns
                                                             : rank_of(c) < rank_of(oldest));
        oldest = before ? c : oldest;
    }
    if (count >= t->strangers_max) {
        t->counters.hello_refused++;
        weft_tcp_conn_free(t, oldest);
    }
}

void weft_tcp_accept(struct weft_tcp *t, uint64_t now_ns)
{
    for (int i = 0; i < ACCEPTS_A_STEP; i++) {
        int fd = accept4(t->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                /* The listener stays readable: unless it is removed from epoll, the step spins. */
                (void)epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, t->listen_fd, NULL);
                t->listen_again_ns = now_ns + 100 * WEFT_NS_PER_MS;
                t->base.socket.socket_errors++;
            }
            return;
        }
        stranger_room(t);
        weft_tcp_sock_options(t, fd);
        struct tcp_conn *c = weft_tcp_conn_take(t, fd, now_ns);
        if (c == NULL) {
            (void)close(fd);
            return;
        }
        c->state = TCP_CONN_STRANGER;
    }
}

static uint64_t stranger_until(const struct tcp_conn *c)
{
    return c->since_ns + (c->state == TCP_CONN_HALF_OPEN ? half_open_ns : stranger_ns);
}

uint64_t weft_tcp_strangers_deadline(const struct weft_tcp *t)
{
    uint64_t at = WEFT_NEVER;
    for (uint32_t i = 0; i < t->conns_max; i++) {
        const struct tcp_conn *c = &t->conns[i];
        at = is_stranger(c) ? weft_min_u64(at, stranger_until(c)) : at;
    }
    return at;
}

void weft_tcp_strangers_timer(struct weft_tcp *t, uint64_t now_ns)
{
    for (uint32_t i = 0; i < t->conns_max; i++) {
        struct tcp_conn *c = &t->conns[i];
        if (is_stranger(c) && stranger_until(c) <= now_ns) {
            t->counters.hello_refused++;
            weft_tcp_conn_free(t, c);
        }
    }
}
