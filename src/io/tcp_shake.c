/* Connections before they are peers.
 *
 *     connector                       acceptor
 *     connect()            ---->      accept(): a stranger, who has 120 bytes and 5 s
 *     HELLO                ---->      mode, job key, MAC, Noise: half open
 *                          <----      ACCEPT (or REFUSED, and the connection ends)
 *     first record (PING)  ---->      verified: now it is a peer
 *
 * HELLO, ACCEPT and REFUSED are those of docs/PROTOCOL.md section 2, sent once each. The three-way
 * handshake of TCP has proved the address, so there are no cookies. A stranger costs a descriptor
 * and a struct tcp_conn; there are at most strangers_max, the oldest goes when another comes, and
 * nothing is allocated for them.
 *
 * An attempt that fails is made again after 10 ms, then twice as long up to 1 s, until the peer
 * timeout: a server may be started after its workers.
 */
#include "io/tcp_internal.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GREETINGS_A_STEP = 16, HELLOS_BURST = 64 };

static const uint64_t stranger_ns = 5 * WEFT_NS_PER_S;
static const uint64_t retry_first_ns = 10 * WEFT_NS_PER_MS;

/* ---- the doorman ----------------------------------------------------------------------------- */

static void hmac(struct weft_tcp *t, const uint8_t *key, const void *bytes, size_t count,
                 uint8_t out_p[WEFT_HASH_BYTES])
{
    const struct weft_crypto *c = &t->config.ep.crypto;
    struct weft_crypto_span span = {bytes, count};
    c->ops->hmac(c->self, key, WEFT_HASH_BYTES, &span, 1, out_p);
}

void weft_tcp_doorman_init(struct weft_tcp *t)
{
    static const char mac[] = "weft handshake mac";
    static const char id[] = "weft key id";
    uint8_t out[WEFT_HASH_BYTES];
    if (t->config.ep.mode == WEFT_MODE_NONE) {
        return;
    }
    hmac(t, t->config.ep.psk, mac, sizeof(mac) - 1, t->mac_key);
    hmac(t, t->config.ep.psk, id, sizeof(id) - 1, out);
    t->key_id = (uint16_t)(out[0] << 8 | out[1]);
}

static void mac_make(struct weft_tcp *t, const uint8_t *bytes, size_t count,
                     uint8_t mac_p[WEFT_MAC_BYTES])
{
    uint8_t out[WEFT_HASH_BYTES];
    hmac(t, t->mac_key, bytes, count, out);
    memcpy(mac_p, out, WEFT_MAC_BYTES);
}

/* In a time that does not tell where they differ. */
static bool mac_valid(struct weft_tcp *t, const uint8_t *bytes, size_t count, const uint8_t *mac)
{
    uint8_t right[WEFT_MAC_BYTES];
    uint8_t differ = 0;
    mac_make(t, bytes, count, right);
    for (size_t i = 0; i < sizeof(right); i++) {
        differ |= right[i] ^ mac[i];
    }
    return differ == 0;
}

/* Diffie-Hellman is the dear part of a handshake, and a recorded HELLO passes until there. */
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

/* ---- connections ----------------------------------------------------------------------------- */

static struct tcp_conn *conn_take(struct weft_tcp *t, int fd, uint64_t now_ns)
{
    struct tcp_conn *c = NULL;
    for (uint32_t i = 0; i < t->conns_max && c == NULL; i++) {
        c = t->conns[i].state == TCP_CONN_FREE ? &t->conns[i] : NULL;
    }
    WEFT_ASSERT(c != NULL); /* peers and strangers have one each, at most */
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = tcp_conn_idx(t, c)};
    if (epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        return NULL;
    }
    *c = (struct tcp_conn){.fd = fd, .since_ns = now_ns, .mode = t->config.ep.mode};
    return c;
}

void weft_tcp_conn_free(struct weft_tcp *t, struct tcp_conn *c)
{
    uint64_t resent;
    uint64_t srtt_ns;
    weft_tcp_sock_info(c->fd, &resent, &srtt_ns);
    t->counters.retransmitted_packets += resent;
    weft_tcp_keys_clear(t, c);
    (void)close(c->fd); /* epoll forgets it, too */
    *c = (struct tcp_conn){.state = TCP_CONN_FREE, .fd = -1};
}

void weft_tcp_conn_wants_out(struct weft_tcp *t, struct tcp_conn *c, bool wants)
{
    if (c->wants_out == wants) {
        return;
    }
    c->wants_out = wants;
    struct epoll_event event = {.events = EPOLLIN | (wants ? (uint32_t)EPOLLOUT : 0),
                                .data.u32 = tcp_conn_idx(t, c)};
    (void)epoll_ctl(t->epoll_fd, EPOLL_CTL_MOD, c->fd, &event);
}

/* The few bytes of a handshake, on a connection that has sent nothing yet: the socket has room. */
static bool write_all(struct weft_tcp *t, struct tcp_conn *c, const void *bytes, size_t count)
{
    ssize_t sent = send(c->fd, bytes, count, MSG_NOSIGNAL);
    t->socket.send_calls++;
    t->socket.bytes_sent += sent > 0 ? (uint64_t)sent : 0;
    return sent == (ssize_t)count;
}

void weft_tcp_shake_failed(struct weft_tcp *t, struct tcp_conn *c, uint64_t now_ns)
{
    struct tcp_peer *p = c->peer;
    weft_tcp_conn_free(t, c);
    if (p != NULL) {
        p->conn = NULL;
        p->retry_ns = now_ns + p->retry_interval_ns;
        p->retry_interval_ns = weft_min_u64(2 * p->retry_interval_ns, WEFT_NS_PER_S);
    }
}

/* ---- connecting ------------------------------------------------------------------------------ */

void weft_tcp_call(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns)
{
    if (p->retry_interval_ns == 0) {
        p->retry_interval_ns = retry_first_ns;
    }
    int fd = weft_tcp_sock_call(t, &p->addr);
    struct tcp_conn *c = fd >= 0 ? conn_take(t, fd, now_ns) : NULL;
    if (c == NULL) {
        if (fd >= 0) {
            (void)close(fd);
        }
        p->retry_ns = now_ns + p->retry_interval_ns;
        p->retry_interval_ns = weft_min_u64(2 * p->retry_interval_ns, WEFT_NS_PER_S);
        return;
    }
    c->state = TCP_CONN_CALLING;
    c->peer = p;
    p->conn = c;
    p->retry_ns = WEFT_NEVER;
    weft_tcp_conn_wants_out(t, c, true);
}

static weft_status hello_write(struct weft_tcp *t, struct tcp_conn *c,
                               uint8_t bytes[WEFT_HELLO_BYTES])
{
    bool secure = c->mode != WEFT_MODE_NONE;
    struct weft_wire_hello hello = {
        .mode = c->mode,
        .key_id = secure ? t->key_id : 0,
        .connection_id = (uint32_t)weft_prng_u64(&t->prng),
        .incarnation = t->config.ep.incarnation,
        .name = t->config.ep.name,
        .open_from = 1,
        .packet_bytes_max = WEFT_RECORD_CHUNK_MAX,
    };
    struct weft_writer w = weft_writer_make(bytes, WEFT_HELLO_BYTES);
    weft_wire_hello_encode(&w, &hello);
    if (!secure) {
        return WEFT_OK;
    }
    weft_tcp_noise_begin(t, bytes, &c->noise);
    weft_status status = weft_noise_hello_write(&c->noise, NULL, 0, hello.ephemeral, hello.tag);
    if (status == WEFT_OK) {
        w = weft_writer_make(bytes, WEFT_HELLO_BYTES);
        weft_wire_hello_encode(&w, &hello);
        mac_make(t, bytes, WEFT_HELLO_BYTES - WEFT_MAC_BYTES,
                 bytes + WEFT_HELLO_BYTES - WEFT_MAC_BYTES);
    }
    return status;
}

/* connect() has come to an end. */
static void call_ended(struct weft_tcp *t, struct tcp_conn *c, uint64_t now_ns)
{
    int failed = 0;
    socklen_t bytes = sizeof(failed);
    uint8_t hello[WEFT_HELLO_BYTES];
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &failed, &bytes) != 0 || failed != 0) {
        weft_tcp_shake_failed(t, c, now_ns);
        return;
    }
    weft_status status = hello_write(t, c, hello);
    if (status != WEFT_OK) {
        weft_tcp_crypto_failed(t);
        weft_tcp_peer_down(t, c->peer, WEFT_DOWN_CRYPTO, 0, now_ns);
        return;
    }
    if (!write_all(t, c, hello, sizeof(hello))) {
        weft_tcp_shake_failed(t, c, now_ns);
        return;
    }
    c->state = TCP_CONN_ASKED;
    weft_tcp_conn_wants_out(t, c, false);
}

static void refused(struct weft_tcp *t, const uint8_t *bytes)
{
    static const enum weft_ep_hint hints[] = {
        [WEFT_REFUSED_VERSION] = WEFT_HINT_TOLD_VERSION, [WEFT_REFUSED_KEY] = WEFT_HINT_TOLD_KEY,
        [WEFT_REFUSED_MODE] = WEFT_HINT_TOLD_MODE,       [WEFT_REFUSED_FULL] = WEFT_HINT_TOLD_FULL,
        [WEFT_REFUSED_CLOSED] = WEFT_HINT_TOLD_CLOSED,
    };
    struct weft_wire_refused r;
    if (weft_wire_refused_decode(bytes, WEFT_REFUSED_BYTES, &r) == WEFT_OK &&
        r.reason >= WEFT_REFUSED_VERSION && r.reason <= WEFT_REFUSED_CLOSED) {
        t->counters.refused++;
        t->hint = hints[r.reason];
    }
}

/* Everything about an ACCEPT that proves who made it. */
static bool accept_verify(struct weft_tcp *t, struct tcp_conn *c,
                          const struct weft_wire_accept *accept)
{
    if (accept->mode != c->mode) {
        t->counters.bad_mode++;
        t->hint = WEFT_HINT_MODE;
        return false;
    }
    if (accept->mode == WEFT_MODE_NONE) {
        return true;
    }
    if (accept->key_id != t->key_id) {
        t->counters.bad_key++;
        t->hint = WEFT_HINT_KEY;
        return false;
    }
    bool mac = mac_valid(t, c->in, WEFT_ACCEPT_BYTES - WEFT_MAC_BYTES, accept->mac);
    weft_status status = mac ? weft_noise_accept_read(&c->noise, accept->ephemeral, NULL, 0,
                                                      accept->tag)
                             : WEFT_PROTO;
    if (status == WEFT_OK) {
        status = weft_tcp_keys_begin(t, c, &c->noise, true);
    }
    t->counters.bad_tag += status == WEFT_PROTO;
    if (status != WEFT_OK && status != WEFT_PROTO) {
        weft_tcp_crypto_failed(t);
    }
    return status == WEFT_OK;
}

static void accepted(struct weft_tcp *t, struct tcp_conn *c, uint64_t now_ns)
{
    struct weft_wire_accept accept;
    struct tcp_peer *p = c->peer;
    if (weft_wire_accept_decode(c->in, WEFT_ACCEPT_BYTES, &accept) != WEFT_OK) {
        t->counters.bad_packet++;
        weft_tcp_shake_failed(t, c, now_ns);
        return;
    }
    if (!accept_verify(t, c, &accept)) {
        weft_tcp_shake_failed(t, c, now_ns);
        return;
    }
    c->state = TCP_CONN_OPEN;
    c->in_bytes = 0;
    p->name = accept.name;
    p->incarnation = accept.incarnation;
    p->need_ping = true; /* the other end knows us by our first record */
    weft_tcp_peer_up(t, p, now_ns);
}

/* ---- accepting ------------------------------------------------------------------------------- */

static void refuse(struct weft_tcp *t, struct tcp_conn *c, enum weft_wire_refusal reason)
{
    struct weft_wire_refused r = {.reason = (uint8_t)reason,
                                  .mode = t->config.ep.mode,
                                  .connection_id = weft_get_u32(c->in + 4)};
    uint8_t bytes[WEFT_REFUSED_BYTES];
    struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
    weft_wire_refused_encode(&w, &r);
    (void)write_all(t, c, bytes, sizeof(bytes)); /* a hint: if it does not go, so be it */
    /* Closing a socket with bytes unread resets the connection, which may overtake the answer. */
    uint8_t rest[WEFT_HELLO_BYTES];
    ssize_t got = recv(c->fd, rest, sizeof(rest), 0);
    (void)got;
}

/* Whether its HELLO is of this job and in a mode that this end takes. */
static bool hello_verify(struct weft_tcp *t, struct tcp_conn *c,
                         const struct weft_wire_hello *hello)
{
    uint8_t mode = t->config.ep.mode;
    if (hello->mode < mode || (mode == WEFT_MODE_NONE && hello->mode != WEFT_MODE_NONE)) {
        t->counters.bad_mode++;
        t->hint = WEFT_HINT_MODE;
        refuse(t, c, WEFT_REFUSED_MODE);
        return false;
    }
    if (mode == WEFT_MODE_NONE) {
        return true;
    }
    if (hello->key_id != t->key_id) {
        t->counters.bad_key++;
        t->hint = WEFT_HINT_KEY;
        refuse(t, c, WEFT_REFUSED_KEY);
        return false;
    }
    if (!mac_valid(t, c->in, WEFT_HELLO_BYTES - WEFT_MAC_BYTES, hello->mac)) {
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
        .packet_bytes_max = WEFT_RECORD_CHUNK_MAX,
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
        mac_make(t, bytes, WEFT_ACCEPT_BYTES - WEFT_MAC_BYTES,
                 bytes + WEFT_ACCEPT_BYTES - WEFT_MAC_BYTES);
    }
    return status;
}

/* A whole HELLO is there; false: the stranger goes. */
static bool hello_take(struct weft_tcp *t, struct tcp_conn *c, uint64_t now_ns)
{
    struct weft_wire_hello hello;
    uint8_t bytes[WEFT_ACCEPT_BYTES];
    if (weft_wire_hello_decode(c->in, WEFT_HELLO_BYTES, &hello) != WEFT_OK) {
        t->counters.bad_packet++;
        return false;
    }
    if (!hello_verify(t, c, &hello)) {
        return false;
    }
    if (!weft_tcp_peer_room(t) || !hello_in_rate(t, now_ns)) {
        t->counters.hello_refused++;
        refuse(t, c, WEFT_REFUSED_FULL);
        return false;
    }
    c->mode = hello.mode;
    weft_status status = accept_write(t, c, &hello, bytes);
    t->counters.bad_tag += status == WEFT_PROTO;
    if (status != WEFT_OK && status != WEFT_PROTO) {
        weft_tcp_crypto_failed(t);
    }
    if (status != WEFT_OK || !write_all(t, c, bytes, sizeof(bytes))) {
        return false;
    }
    c->name = hello.name;
    c->incarnation = hello.incarnation;
    c->state = TCP_CONN_HALF_OPEN;
    c->in_bytes = 0;
    return true;
}

/* A connection of the same process under the same name that this end accepted is gone, even if TCP
 * has not noticed. Ends that call each other keep both connections, as over UDP. */
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

/* The first record is there: who sent it has the keys, and so the job key. */
static void proven(struct weft_tcp *t, struct tcp_conn *c, uint64_t now_ns)
{
    uint8_t record[WEFT_RECORD_FIRST_MAX];
    uint32_t count = c->in_bytes;
    memcpy(record, c->in, count);
    if ((record[1] & WEFT_FLAG_DATA) != 0 || !weft_tcp_open_record(t, c, record, count)) {
        t->counters.bad_packet++;
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

static bool is_stranger(const struct tcp_conn *c)
{
    return c->state == TCP_CONN_STRANGER || c->state == TCP_CONN_HALF_OPEN;
}

/* Room for one more: if need be, those go first who have said nothing, then the oldest. */
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
        bool before = oldest == NULL ||
                      (c->state == oldest->state ? c->since_ns < oldest->since_ns
                                                 : c->state == TCP_CONN_STRANGER);
        oldest = before ? c : oldest;
    }
    if (count >= t->strangers_max) {
        t->counters.hello_refused++;
        weft_tcp_conn_free(t, oldest);
    }
}

void weft_tcp_greet(struct weft_tcp *t, uint64_t now_ns)
{
    for (int i = 0; i < GREETINGS_A_STEP; i++) {
        int fd = accept4(t->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                /* The listener stays readable: looking away is what keeps this from spinning. */
                (void)epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, t->listen_fd, NULL);
                t->listen_again_ns = now_ns + 100 * WEFT_NS_PER_MS;
                t->socket.socket_errors++;
            }
            return;
        }
        stranger_room(t);
        weft_tcp_sock_options(t, fd);
        struct tcp_conn *c = conn_take(t, fd, now_ns);
        if (c == NULL) {
            (void)close(fd);
            return;
        }
        c->state = TCP_CONN_STRANGER;
    }
}

uint64_t weft_tcp_strangers_deadline(const struct weft_tcp *t)
{
    uint64_t at = WEFT_NEVER;
    for (uint32_t i = 0; i < t->conns_max; i++) {
        const struct tcp_conn *c = &t->conns[i];
        at = is_stranger(c) ? weft_min_u64(at, c->since_ns + stranger_ns) : at;
    }
    return at;
}

void weft_tcp_strangers_timer(struct weft_tcp *t, uint64_t now_ns)
{
    for (uint32_t i = 0; i < t->conns_max; i++) {
        struct tcp_conn *c = &t->conns[i];
        if (is_stranger(c) && c->since_ns + stranger_ns <= now_ns) {
            t->counters.hello_refused++;
            weft_tcp_conn_free(t, c);
        }
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

/* What the bytes so far say about how many there will be; 0: they are no handshake. */
static uint32_t wanted(const struct tcp_conn *c)
{
    struct weft_wire_record record;
    uint8_t version = c->in[0] >> 4;
    uint8_t klass = c->in[0] & 15;
    if (c->state == TCP_CONN_HALF_OPEN) {
        if (c->in_bytes < WEFT_RECORD_HEAD_BYTES) {
            return WEFT_RECORD_HEAD_BYTES;
        }
        bool good = weft_wire_record_head(c->in, &record) == WEFT_OK && record.klass == c->mode &&
                    record.bytes <= WEFT_RECORD_FIRST_MAX - WEFT_RECORD_HEAD_BYTES;
        return good ? WEFT_RECORD_HEAD_BYTES + record.bytes : 0;
    }
    if (c->in_bytes == 0) {
        return 1;
    }
    if (c->state == TCP_CONN_STRANGER) {
        if (klass == WEFT_CLASS_HELLO && version != WEFT_WIRE_VERSION) {
            return WEFT_REFUSED_BYTES; /* enough to answer it */
        }
        return klass == WEFT_CLASS_HELLO ? WEFT_HELLO_BYTES : 0;
    }
    if (klass == WEFT_CLASS_REFUSED) {
        return WEFT_REFUSED_BYTES;
    }
    return klass == WEFT_CLASS_ACCEPT && version == WEFT_WIRE_VERSION ? WEFT_ACCEPT_BYTES : 0;
}

/* All that was wanted is there. */
static void complete(struct weft_tcp *t, struct tcp_conn *c, uint64_t now_ns)
{
    if (c->state == TCP_CONN_HALF_OPEN) {
        proven(t, c, now_ns);
    } else if (c->state == TCP_CONN_ASKED) {
        if ((c->in[0] & 15) == WEFT_CLASS_REFUSED) {
            refused(t, c->in);
            weft_tcp_shake_failed(t, c, now_ns);
        } else {
            accepted(t, c, now_ns);
        }
    } else if (c->in[0] >> 4 != WEFT_WIRE_VERSION) {
        t->counters.bad_version++;
        t->hint = WEFT_HINT_VERSION;
        refuse(t, c, WEFT_REFUSED_VERSION);
        weft_tcp_conn_free(t, c);
    } else if (!hello_take(t, c, now_ns)) {
        weft_tcp_conn_free(t, c);
    }
}

/* Read as far as the handshake goes and no byte further: what follows is records. */
static void shake_read(struct weft_tcp *t, struct tcp_conn *c, uint64_t now_ns)
{
    for (;;) {
        uint32_t want = wanted(c);
        if (want == 0) {
            t->counters.bad_class++;
            weft_tcp_shake_failed(t, c, now_ns);
            return;
        }
        if (c->in_bytes == want) {
            complete(t, c, now_ns);
            return; /* epoll will tell of more */
        }
        ssize_t got = recv(c->fd, c->in + c->in_bytes, want - c->in_bytes, 0);
        t->socket.recv_calls++;
        if (got <= 0) {
            bool wait = got < 0 && (errno == EAGAIN || errno == EINTR);
            if (!wait) {
                weft_tcp_shake_failed(t, c, now_ns);
            }
            return;
        }
        t->socket.bytes_received += (uint64_t)got;
        c->in_bytes += (uint32_t)got;
    }
}

void weft_tcp_shake(struct weft_tcp *t, struct tcp_conn *c, uint64_t now_ns)
{
    if (c->state == TCP_CONN_CALLING) {
        call_ended(t, c, now_ns);
    } else {
        shake_read(t, c, now_ns);
    }
}
