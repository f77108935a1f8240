#include "io/tcp/tcp.h"

#include "io/ep_config.h"
#include "io/tcp/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SOCKETS_PER_STEP = 64,
    CONN_LISTENER = UINT32_MAX, /* epoll's data of the listening socket */
};

/* ---- opening --------------------------------------------------------------------------------- */

/* Each peer permanently owns a slice of every arena; pages from calloc cost memory only when
 * used. */
static void peers_init(struct weft_tcp *t)
{
    size_t words = WEFT_BITS_WORDS((size_t)t->config.ep.chunks_max);
    uint64_t *bits = t->bitmaps;
    uint8_t *bytes = t->bytes;
    for (uint32_t i = 0; i < t->config.ep.peers_max; i++) {
        struct tcp_peer *p = &t->peers[i];
        p->tx = t->tx_arena + (size_t)i * WEFT_MSGS_MAX;
        p->rx = t->rx_arena + (size_t)i * WEFT_MSGS_MAX;
        for (uint32_t m = 0; m < WEFT_MSGS_MAX; m++) {
            p->tx[m].mask = bits;
            p->rx[m].received = bits + words;
            bits += 2 * words;
        }
        p->in = bytes;
        p->sealed = p->in + TCP_IN_BYTES;
        p->heads = p->sealed + TCP_OUT_BYTES;
        bytes = p->heads + (size_t)TCP_OUT_RECORDS * TCP_HEAD_ROOM;
    }
}

static weft_status tables_new(struct weft_tcp *t)
{
    const struct weft_ep_config *c = &t->config.ep;
    size_t peers = c->peers_max;
    size_t words = WEFT_BITS_WORDS((size_t)c->chunks_max);
    t->strangers_max = (uint32_t)weft_min_u64(c->half_open_max, c->peers_max);
    t->conns_max = c->peers_max + t->strangers_max;
    t->events_max = c->peers_max * (3 * WEFT_MSGS_MAX + 2) + 1;
    t->conns = calloc(t->conns_max, sizeof(*t->conns));
    t->peers = calloc(peers, sizeof(*t->peers));
    t->ready = calloc(WEFT_BITS_WORDS(peers), sizeof(*t->ready));
    t->events = calloc(t->events_max, sizeof(*t->events));
    t->tx_arena = calloc(peers * WEFT_MSGS_MAX, sizeof(*t->tx_arena));
    t->rx_arena = calloc(peers * WEFT_MSGS_MAX, sizeof(*t->rx_arena));
    t->bitmaps = calloc(peers * WEFT_MSGS_MAX * 2 * words, sizeof(*t->bitmaps));
    t->bytes = calloc(peers, TCP_IN_BYTES + TCP_OUT_BYTES + TCP_OUT_RECORDS * TCP_HEAD_ROOM);
    if (t->conns == NULL || t->peers == NULL || t->ready == NULL || t->events == NULL ||
        t->tx_arena == NULL || t->rx_arena == NULL || t->bitmaps == NULL || t->bytes == NULL) {
        return WEFT_NOMEM;
    }
    peers_init(t);
    return weft_expects_init(&t->expects, c->expects_max, c->peers_max);
}

static weft_status open_sockets(struct weft_tcp *t, struct weft_error *error)
{
    struct weft_addr addr;
    weft_status status =
        weft_sock_addr_usable(t->config.host, t->config.port, t->base.loopback_only, &addr, error);
    if (status == WEFT_OK) {
        status = weft_sock_addr_parse(t->config.host, 0, &t->from, error);
    }
    if (status == WEFT_OK) {
        status = weft_tcp_sock_probe(&t->config, &t->facts, error);
    }
    if (status != WEFT_OK) {
        return status;
    }
    t->base.family = weft_sock_addr_family(&addr);
    t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    status = weft_driver_watch(&t->base, t->epoll_fd, error);
    if (status != WEFT_OK || t->config.ep.accept == 0) {
        return status;
    }
    status = weft_tcp_sock_listen(t, &addr, error);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = CONN_LISTENER};
    if (status == WEFT_OK && epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, t->listen_fd, &event) != 0) {
        return weft_fail(error, WEFT_IO, "epoll_ctl: %s", strerror(errno));
    }
    return status;
}

static void release(struct weft_tcp *t)
{
    for (uint32_t i = 0; t->conns != NULL && i < t->conns_max; i++) {
        if (t->conns[i].state != TCP_CONN_FREE) {
            weft_tcp_conn_free(t, &t->conns[i]);
        }
    }
    const struct weft_crypto *c = &t->config.ep.crypto;
    if (c->ops != NULL) {
        c->ops->wipe(c->self, t->config.ep.psk, WEFT_PSK_BYTES);
        c->ops->wipe(c->self, t->mac_key, sizeof(t->mac_key));
    }
    weft_poller_close(&t->base.poller);
    if (t->listen_fd >= 0) {
        (void)close(t->listen_fd);
    }
    if (t->epoll_fd >= 0) {
        (void)close(t->epoll_fd);
    }
    free(t->bytes);
    free(t->bitmaps);
    free(t->rx_arena);
    free(t->tx_arena);
    free(t->events);
    weft_expects_fini(&t->expects);
    free(t->ready);
    free(t->peers);
    free(t->conns);
    free(t);
}

/* ---- progress -------------------------------------------------------------------------------- */

static void flush(struct weft_tcp *t)
{
    uint64_t now_ns = weft_clock_now_ns();
    t->more_to_send = false;
    size_t i = weft_bits_next_one(t->ready, t->peers_used, 0);
    for (; i < t->peers_used; i = weft_bits_next_one(t->ready, t->peers_used, i + 1)) {
        weft_tcp_write(t, &t->peers[i], now_ns);
    }
}

static uint32_t conn_serve(struct weft_tcp *t, struct tcp_conn *c, uint32_t events,
                           weft_driver_handler *handler, void *arg)
{
    if (c->state == TCP_CONN_FREE) {
        return 0; /* it was closed while its event was pending */
    }
    if (c->state != TCP_CONN_OPEN) {
        weft_tcp_handshake(t, c, weft_clock_now_ns());
        handler(arg, weft_clock_now_ns());
        return 0;
    }
    if ((events & EPOLLOUT) != 0) {
        tcp_peer_ready(t, c->peer);
    }
    return (events & ~(uint32_t)EPOLLOUT) != 0 ? weft_tcp_read(t, c->peer, handler, arg) : 0;
}

/* Poll the sockets once. Returns the number of records processed; *any_p: something was ready. */
static uint32_t serve(struct weft_tcp *t, weft_driver_handler *handler, void *arg, bool *any_p)
{
    struct epoll_event events[SOCKETS_PER_STEP];
    int count = epoll_wait(t->epoll_fd, events, SOCKETS_PER_STEP, 0);
    uint32_t records = 0;
    *any_p = count > 0;
    for (int i = 0; i < count; i++) {
        if (events[i].data.u32 == CONN_LISTENER) {
            weft_tcp_accept(t, weft_clock_now_ns());
        } else {
            records += conn_serve(t, &t->conns[events[i].data.u32], events[i].events, handler, arg);
        }
    }
    return records;
}

/* Poll the sockets for a while before a sleep. */
static uint32_t busy_poll(struct weft_tcp *t, weft_driver_handler *handler, void *arg, bool *any_p)
{
    uint32_t records;
    bool found;
    do {
        records = serve(t, handler, arg, any_p);
        found = *any_p || atomic_load(&t->base.poller.woken) != 0;
    } while (!found && weft_busy_poll_again(&t->base.busy_poll));
    weft_busy_poll_end(&t->base.busy_poll, found);
    return records;
}

/* Sleep while there is nothing to do, then poll the sockets. Events caused by calls between steps
 * or by the last write are reported first. */
static uint32_t wait_and_serve(struct weft_tcp *t, uint64_t timeout_ns,
                               weft_driver_handler *handler, void *arg)
{
    bool any = false;
    uint64_t now_ns = weft_clock_now_ns();
    uint64_t until_ns = weft_min_u64(weft_tcp_deadline(t), weft_time_add(now_ns, timeout_ns));
    if (until_ns > now_ns && timeout_ns > 0 && !t->more_to_send && t->event_count == 0) {
        if (weft_busy_poll_begin(&t->base.busy_poll, until_ns)) {
            uint32_t records = busy_poll(t, handler, arg, &any);
            if (any) {
                return records;
            }
        }
        t->base.socket.sleeps++;
        t->base.socket.wakes += weft_poller_wait(&t->base.poller, until_ns);
    }
    return serve(t, handler, arg, &any);
}

static void listen_again(struct weft_tcp *t, uint64_t now_ns)
{
    if (t->listen_again_ns <= now_ns) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = CONN_LISTENER};
        (void)epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, t->listen_fd, &event);
        t->listen_again_ns = WEFT_NEVER;
    }
}

static uint32_t tcp_step(struct weft_driver *driver, uint64_t timeout_ns,
                         weft_driver_handler *handler, void *arg)
{
    struct weft_tcp *t = tcp_of(driver);
    flush(t);
    uint32_t records = wait_and_serve(t, timeout_ns, handler, arg);
    uint64_t now_ns = weft_clock_now_ns();
    listen_again(t, now_ns);
    weft_tcp_timers(t, now_ns);
    handler(arg, now_ns);
    flush(t);
    return records;
}

static bool tcp_rest(struct weft_driver *driver, uint64_t until_ns)
{
    struct weft_tcp *t = tcp_of(driver);
    until_ns = weft_min_u64(until_ns, weft_tcp_deadline(t));
    if (t->more_to_send || t->event_count > 0 || until_ns <= weft_clock_now_ns()) {
        return false;
    }
    weft_poller_prepare(&t->base.poller, until_ns);
    return true;
}

static void tcp_wake(struct weft_driver *driver)
{
    weft_poller_wake(&driver->poller);
}

static void tcp_flush(struct weft_driver *driver)
{
    flush(tcp_of(driver));
}

static void tcp_idle(struct weft_driver *driver)
{
    struct weft_tcp *t = tcp_of(driver);
    for (uint32_t i = 0; i < t->peers_used; i++) {
        struct tcp_peer *p = &t->peers[i];
        if (p->state == TCP_PEER_OPEN && !weft_tcp_peer_unfinished(p)) {
            p->need_idle = true;
            tcp_peer_ready(t, p);
        }
    }
    do {
        flush(t);
    } while (t->more_to_send);
}

/* Send CLOSE to all peers that are up; other connections are dropped. True while a peer has not
 * answered. */
static bool closing(struct weft_driver *driver)
{
    struct weft_tcp *t = tcp_of(driver);
    bool any = false;
    for (uint32_t i = 0; i < t->peers_used; i++) {
        struct tcp_peer *p = &t->peers[i];
        if (p->state != TCP_PEER_OPEN) {
            continue;
        }
        any = true;
        bool written = p->close_said && p->out.iov_at == p->out.iov_count;
        if (written) {
            (void)shutdown(p->conn->fd, SHUT_WR); /* the peer replies by closing its direction */
        } else if (!p->close_said && !p->need_close) {
            p->need_close = true;
            p->close_code = WEFT_CLOSE_FINISHED;
            tcp_peer_ready(t, p);
        }
    }
    return any;
}

static void tcp_close(struct weft_driver *driver)
{
    weft_driver_finish(driver, closing);
    release(tcp_of(driver));
}

/* ---- the functions of a driver --------------------------------------------------------------- */

static weft_status tcp_connect(struct weft_driver *driver, const struct weft_addr *addr,
                               weft_peer *peer_p)
{
    struct weft_tcp *t = tcp_of(driver);
    struct tcp_peer *p = weft_tcp_peer_take(t);
    if (p == NULL) {
        return WEFT_NOMEM;
    }
    p->addr = *addr;
    p->since_ns = weft_clock_now_ns();
    weft_tcp_connect_begin(t, p, p->since_ns);
    *peer_p = tcp_peer_idx(t, p);
    return WEFT_OK;
}

static void tcp_disconnect(struct weft_driver *driver, weft_peer peer, bool replaced)
{
    struct weft_tcp *t = tcp_of(driver);
    uint64_t now_ns = weft_clock_now_ns();
    struct tcp_peer *p = peer < t->peers_used ? &t->peers[peer] : NULL;
    if (p == NULL || p->state == TCP_PEER_FREE) {
        return;
    }
    p->need_close = true;
    p->close_code = replaced ? WEFT_CLOSE_REPLACED : WEFT_CLOSE_FINISHED;
    weft_tcp_write(t, p, now_ns);
    if (p->state != TCP_PEER_FREE) { /* it is free if the crypto provider has failed */
        weft_tcp_peer_down(t, p, WEFT_DOWN_LOCAL, 0, now_ns);
    }
}

static bool tcp_busy(struct weft_driver *driver)
{
    struct weft_tcp *t = tcp_of(driver);
    for (uint32_t i = 0; i < t->peers_used; i++) {
        const struct tcp_peer *p = &t->peers[i];
        bool to_write = p->out.iov_at != p->out.iov_count || weft_bits_test(t->ready, i);
        if (p->state == TCP_PEER_CONNECTING ||
            (p->state == TCP_PEER_OPEN && (to_write || weft_tcp_peer_unfinished(p)))) {
            return true;
        }
    }
    return false;
}

static void tcp_counters(struct weft_driver *driver, struct weft_driver_counters *counters_p)
{
    struct weft_tcp *t = tcp_of(driver);
    counters_p->socket = t->base.socket;
    counters_p->ep = t->counters;
    for (uint32_t i = 0; i < t->conns_max; i++) {
        uint64_t resent;
        uint64_t srtt_ns;
        if (t->conns[i].state != TCP_CONN_FREE) {
            weft_tcp_sock_info(t->conns[i].fd, &resent, &srtt_ns);
            counters_p->ep.retransmitted_packets += resent;
        }
    }
}

static enum weft_ep_hint tcp_hint(struct weft_driver *driver)
{
    return tcp_of(driver)->hint;
}

static uint64_t tcp_srtt_ns(struct weft_driver *driver, weft_peer peer)
{
    const struct weft_tcp *t = tcp_of(driver);
    uint64_t resent = 0;
    uint64_t srtt_ns = 0;
    if (peer < t->peers_used && t->peers[peer].state == TCP_PEER_OPEN) {
        weft_tcp_sock_info(t->peers[peer].conn->fd, &resent, &srtt_ns);
    }
    return srtt_ns;
}

static uint32_t tcp_grid(struct weft_driver *driver, weft_peer peer, uint16_t elem_bytes,
                         uint32_t total)
{
    (void)total;
    return driver->msgr.ops->chunk_elems(driver->msgr.self, peer, elem_bytes);
}

static const struct weft_driver_ops tcp_ops = {
    .kind = WEFT_DRIVER_TCP,
    .connect = tcp_connect,
    .disconnect = tcp_disconnect,
    .step = tcp_step,
    .rest = tcp_rest,
    .wake = tcp_wake,
    .flush = tcp_flush,
    .idle = tcp_idle,
    .close = tcp_close,
    .counters = tcp_counters,
    .busy = tcp_busy,
    .hint = tcp_hint,
    .srtt_ns = tcp_srtt_ns,
    .grid = tcp_grid,
};

/* ---- public functions ------------------------------------------------------------------------ */

weft_status weft_tcp_open(const struct weft_tcp_config *config, struct weft_driver **driver_p,
                          struct weft_error *error)
{
    weft_status status = weft_ep_config_check(&config->ep, WEFT_DRIVER_TCP, error);
    if (status != WEFT_OK) {
        return status;
    }
    struct weft_tcp *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for a socket");
    }
    t->config = *config;
    const struct weft_driver_setup setup = {.before_send = config->before_send,
                                            .busy_poll_us = config->busy_poll_us,
                                            .mode = config->ep.mode,
                                            .insecure_network = config->insecure_network};
    weft_driver_init(&t->base, &tcp_ops, &setup);
    t->base.msgr = (struct weft_msgr){.ops = &weft_tcp_msg_ops, .self = t};
    if (config->cc != NULL) {
        (void)snprintf(t->cc, sizeof(t->cc), "%s", config->cc);
        t->config.cc = t->cc;
    }
    t->listen_fd = -1;
    t->epoll_fd = -1;
    t->pid = getpid();
    t->listen_again_ns = WEFT_NEVER;
    t->rekey_records = config->ep.rekey_packets != 0 ? config->ep.rekey_packets : UINT64_C(1) << 23;
    weft_prng_split(&t->prng, config->ep.seed, config->ep.incarnation);
    status = tables_new(t);
    if (status != WEFT_OK) {
        (void)weft_fail(error, status, "no memory for %u peers", config->ep.peers_max);
    } else {
        weft_tcp_handshake_init(t);
        status = open_sockets(t, error);
        t->config.host = NULL;
    }
    if (status != WEFT_OK) {
        release(t);
        return status;
    }
    weft_clock_timers_exact();
    *driver_p = &t->base;
    return WEFT_OK;
}

void weft_tcp_facts(const struct weft_tcp *t, struct weft_tcp_facts *facts_p)
{
    *facts_p = t->facts;
}
