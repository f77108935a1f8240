/* Connections before they are peers: the handshake messages, and the connecting end.
 *
 *     connector                       acceptor
 *     connect()            ---->      accept(): a stranger, limited to 120 bytes and 5 s
 *     HELLO                ---->      mode, job key, MAC
 *                          <----      if need be COOKIE, and HELLO again with it
 *                                     Noise: half open
 *                          <----      ACCEPT (or REFUSED, and the connection ends)
 *     first record (PING)  ---->      verified: now it is a peer
 *
 * HELLO, COOKIE, ACCEPT and REFUSED are those of docs/PROTOCOL.md section 2. The
 * accepting end is in accept.c.
 *
 * A failed attempt is retried after 10 ms, then after twice as long each time, up to 1 s, until the
 * peer timeout: a server may be started after its workers.
 */
#include "io/tcp/internal.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint64_t retry_first_ns = 10 * WEFT_NS_PER_MS;

/* ---- the job key ----------------------------------------------------------------------------- */

static void hmac(struct weft_tcp *t, const uint8_t *key, const void *bytes, size_t count,
                 uint8_t out_p[WEFT_HASH_BYTES])
{
    const struct weft_crypto *c = &t->config.ep.crypto;
    struct weft_crypto_span span = {bytes, count};
    c->ops->hmac(c->self, key, WEFT_HASH_BYTES, &span, 1, out_p);
}

void weft_tcp_handshake_init(struct weft_tcp *t)
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

void weft_tcp_mac_make(struct weft_tcp *t, const uint8_t *bytes, size_t count,
                       uint8_t mac_p[WEFT_MAC_BYTES])
{
    uint8_t out[WEFT_HASH_BYTES];
    hmac(t, t->mac_key, bytes, count, out);
    memcpy(mac_p, out, WEFT_MAC_BYTES);
}

/* In constant time. */
bool weft_tcp_mac_valid(struct weft_tcp *t, const uint8_t *bytes, size_t count, const uint8_t *mac)
{
    uint8_t right[WEFT_MAC_BYTES];
    uint8_t differ = 0;
    weft_tcp_mac_make(t, bytes, count, right);
    for (size_t i = 0; i < sizeof(right); i++) {
        differ |= right[i] ^ mac[i];
    }
    return differ == 0;
}

/* ---- connections ----------------------------------------------------------------------------- */

struct tcp_conn *weft_tcp_conn_take(struct weft_tcp *t, int fd, uint64_t now_ns)
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
    if (getpid() == t->pid) {
        /* Closing is not enough: while a forked child has a copy, epoll would report it forever. */
        (void)epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
    }
    (void)close(c->fd);
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

bool weft_tcp_conn_write(struct weft_tcp *t, struct tcp_conn *c, const void *bytes, size_t count)
{
    ssize_t sent = send(c->fd, bytes, count, MSG_NOSIGNAL);
    t->base.socket.send_calls++;
    t->base.socket.bytes_sent += sent > 0 ? (uint64_t)sent : 0;
    return sent == (ssize_t)count;
}

/* A connecting peer retries; a stranger is discarded. */
static void handshake_failed(struct weft_tcp *t, struct tcp_conn *c, uint64_t now_ns)
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

/* Kept as a sentence for the user; the attempt is retried in any case. */
static void note_unreached(struct weft_tcp *t, const struct tcp_peer *p, int number)
{
    t->base.socket.unreached++;
    t->base.unreached.number = number;
    t->base.unreached.addr = p->addr;
}

void weft_tcp_connect_begin(struct weft_tcp *t, struct tcp_peer *p, uint64_t now_ns)
{
    if (p->retry_interval_ns == 0) {
        p->retry_interval_ns = retry_first_ns;
    }
    int fd = weft_tcp_sock_connect(t, &p->addr);
    struct tcp_conn *c = fd >= 0 ? weft_tcp_conn_take(t, fd, now_ns) : NULL;
    if (c == NULL) {
        if (fd >= 0) {
            (void)close(fd);
        } else {
            note_unreached(t, p, errno);
        }
        p->retry_ns = now_ns + p->retry_interval_ns;
        p->retry_interval_ns = weft_min_u64(2 * p->retry_interval_ns, WEFT_NS_PER_S);
        return;
    }
    c->state = TCP_CONN_CONNECTING;
    c->peer = p;
    p->conn = c;
    p->retry_ns = WEFT_NEVER;
    weft_tcp_conn_wants_out(t, c, true);
}

static void hello_sign(struct weft_tcp *t, const struct weft_wire_hello *hello,
                       uint8_t bytes[WEFT_HELLO_BYTES])
{
    struct weft_writer w = weft_writer_make(bytes, WEFT_HELLO_BYTES);
    weft_wire_hello_encode(&w, hello);
    weft_tcp_mac_make(t, bytes, WEFT_HELLO_BYTES - WEFT_MAC_BYTES,
                      bytes + WEFT_HELLO_BYTES - WEFT_MAC_BYTES);
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
        .packet_bytes_max = WEFT_WIRE_RECORD_CHUNK_MAX,
    };
    struct weft_writer w = weft_writer_make(bytes, WEFT_HELLO_BYTES);
    weft_wire_hello_encode(&w, &hello);
    if (!secure) {
        return WEFT_OK;
    }
    weft_tcp_noise_begin(t, bytes, &c->noise);
    weft_status status = weft_noise_hello_write(&c->noise, NULL, 0, hello.ephemeral, hello.tag);
    if (status == WEFT_OK) {
        hello_sign(t, &hello, bytes);
    }
    return status;
}

/* connect() has completed or failed. */
static void connect_ended(struct weft_tcp *t, struct tcp_conn *c, uint64_t now_ns)
{
    int failed = 0;
    socklen_t bytes = sizeof(failed);
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &failed, &bytes) != 0 || failed != 0) {
        note_unreached(t, c->peer, failed);
        handshake_failed(t, c, now_ns);
        return;
    }
    weft_status status = hello_write(t, c, c->hello);
    if (status != WEFT_OK) {
        weft_tcp_crypto_failed(t);
        weft_tcp_peer_down(t, c->peer, WEFT_DOWN_CRYPTO, 0, now_ns);
        return;
    }
    if (!weft_tcp_conn_write(t, c, c->hello, sizeof(c->hello))) {
        handshake_failed(t, c, now_ns);
        return;
    }
    c->state = TCP_CONN_HELLO_SENT;
    weft_tcp_conn_wants_out(t, c, false);
}

/* COOKIE arrived: send the same HELLO again, with the cookie. False: the COOKIE is not from the
 * other end. */
static bool cookie_take(struct weft_tcp *t, struct tcp_conn *c)
{
    struct weft_wire_cookie cookie;
    struct weft_wire_hello hello;
    if (weft_wire_cookie_decode(c->in, WEFT_COOKIE_BYTES, &cookie) != WEFT_OK ||
        weft_wire_hello_decode(c->hello, WEFT_HELLO_BYTES, &hello) != WEFT_OK ||
        c->mode == WEFT_MODE_NONE || c->asked_cookie ||
        cookie.connection_id != hello.connection_id) {
        t->counters.bad_packet++;
        return false;
    }
    if (!weft_tcp_mac_valid(t, c->in, WEFT_COOKIE_BYTES - WEFT_MAC_BYTES, cookie.mac)) {
        t->counters.bad_tag++;
        return false;
    }
    memcpy(hello.cookie, cookie.cookie, sizeof(hello.cookie));
    hello_sign(t, &hello, c->hello);
    c->asked_cookie = true;
    c->in_bytes = 0;
    return weft_tcp_conn_write(t, c, c->hello, sizeof(c->hello));
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

/* Verify everything of an ACCEPT that authenticates the other end. */
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
    bool mac = weft_tcp_mac_valid(t, c->in, WEFT_ACCEPT_BYTES - WEFT_MAC_BYTES, accept->mac);
    weft_status status =
        mac ? weft_noise_accept_read(&c->noise, accept->ephemeral, NULL, 0, accept->tag)
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
        handshake_failed(t, c, now_ns);
        return;
    }
    if (!accept_verify(t, c, &accept)) {
        handshake_failed(t, c, now_ns);
        return;
    }
    c->state = TCP_CONN_OPEN;
    c->in_bytes = 0;
    p->name = accept.name;
    p->incarnation = accept.incarnation;
    if (memcmp(&p->addr, &t->base.unreached.addr, sizeof(p->addr)) == 0) {
        t->base.unreached.number = 0; /* it was started later */
    }
    p->need_ping = true; /* our first record authenticates this end to the other */
    weft_tcp_peer_up(t, p, now_ns);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* How many bytes to expect, judged by those received so far; 0: they are not a handshake. */
static uint32_t wanted(const struct tcp_conn *c)
{
    struct weft_wire_record record;
    uint8_t version = c->in[0] >> 4;
    uint8_t klass = c->in[0] & 15;
    if (c->state == TCP_CONN_HALF_OPEN) {
        if (c->in_bytes < WEFT_WIRE_RECORD_HEAD_BYTES) {
            return WEFT_WIRE_RECORD_HEAD_BYTES;
        }
        bool good = weft_wire_record_head(c->in, &record) == WEFT_OK && record.klass == c->mode &&
                    record.bytes <= WEFT_WIRE_RECORD_FIRST_MAX - WEFT_WIRE_RECORD_HEAD_BYTES;
        return good ? WEFT_WIRE_RECORD_HEAD_BYTES + record.bytes : 0;
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
    if (version != WEFT_WIRE_VERSION) {
        return 0;
    }
    return klass == WEFT_CLASS_ACCEPT   ? WEFT_ACCEPT_BYTES
           : klass == WEFT_CLASS_COOKIE ? WEFT_COOKIE_BYTES
                                        : 0;
}

static void answer_complete(struct weft_tcp *t, struct tcp_conn *c, uint64_t now_ns)
{
    switch (c->in[0] & 15) {
    case WEFT_CLASS_REFUSED:
        refused(t, c->in);
        handshake_failed(t, c, now_ns);
        break;
    case WEFT_CLASS_COOKIE:
        if (!cookie_take(t, c)) {
            handshake_failed(t, c, now_ns);
        }
        break;
    default: /* wanted() has excluded all other types */
        accepted(t, c, now_ns);
    }
}

/* All expected bytes have arrived. */
static void complete(struct weft_tcp *t, struct tcp_conn *c, uint64_t now_ns)
{
    if (c->state == TCP_CONN_HALF_OPEN) {
        weft_tcp_first_record(t, c, now_ns);
    } else if (c->state == TCP_CONN_HELLO_SENT) {
        answer_complete(t, c, now_ns);
    } else if (c->in[0] >> 4 != WEFT_WIRE_VERSION) {
        t->counters.bad_version++;
        t->hint = WEFT_HINT_VERSION;
        weft_tcp_refuse(t, c, WEFT_REFUSED_VERSION);
        weft_tcp_conn_free(t, c);
    } else {
        weft_tcp_hello_recv(t, c, now_ns);
    }
}

/* Read up to the end of the handshake and no byte further: records follow it. */
static void handshake_read(struct weft_tcp *t, struct tcp_conn *c, uint64_t now_ns)
{
    for (;;) {
        uint32_t want = wanted(c);
        if (want == 0) {
            t->counters.bad_class++;
            handshake_failed(t, c, now_ns);
            return;
        }
        if (c->in_bytes == want) {
            complete(t, c, now_ns);
            return; /* epoll will report more */
        }
        ssize_t got = recv(c->fd, c->in + c->in_bytes, want - c->in_bytes, 0);
        t->base.socket.recv_calls++;
        if (got <= 0) {
            bool wait = got < 0 && (errno == EAGAIN || errno == EINTR);
            if (!wait) {
                handshake_failed(t, c, now_ns);
            }
            return;
        }
        t->base.socket.bytes_received += (uint64_t)got;
        c->in_bytes += (uint32_t)got;
    }
}

void weft_tcp_handshake(struct weft_tcp *t, struct tcp_conn *c, uint64_t now_ns)
{
    if (c->state == TCP_CONN_CONNECTING) {
        connect_ended(t, c, now_ns);
    } else {
        handshake_read(t, c, now_ns);
    }
}
