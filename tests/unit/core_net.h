/* A few endpoints joined by a list of datagrams on a fake clock, with a toy's cryptography: what the
 * tests of security share. A tap sees every datagram and may change, drop or keep it. */
#ifndef WEFT_TESTS_CORE_NET_H
#define WEFT_TESTS_CORE_NET_H

#include "base/prng.h"
#include "core/internal.h"
#include "sim/toy_crypto.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ENDS_MAX = 3, NET_QUEUE_MAX = 4096, KEPT_MAX = 512, NET_DELAY_NS = 20000 };

struct net_datagram {
    uint64_t due_ns;
    struct weft_addr from;
    struct weft_addr to;
    uint32_t bytes;
    uint8_t *data;
};

struct net;

struct net_end {
    struct weft_ep *ep;
    struct weft_toy_crypto *toy;
    struct weft_msgr msgr;
    struct weft_addr addr;
    uint32_t ups;
    uint32_t downs;
    uint32_t received;
    uint32_t sent;
    weft_peer peer;            /* of the last PEER_UP */
    enum weft_msg_down why;    /* of the last PEER_DOWN */
    enum weft_msg_outcome outcome; /* of the last SENT */
    /* To each RECEIVED; NULL = none. */
    void (*answer)(struct net *net, uint32_t end, weft_peer peer);
};

struct net {
    uint64_t now_ns;
    struct net_end end[ENDS_MAX];
    struct net_datagram queue[NET_QUEUE_MAX];
    uint32_t queued;
    struct net_datagram kept[KEPT_MAX];
    uint32_t kept_count;
    bool keep;                 /* all that is sent */
    /* Returns false to drop it. */
    bool (*tap)(struct net *net, struct net_datagram *d);
    void *tap_arg;
};

static inline struct weft_addr net_addr(uint32_t host)
{
    struct weft_addr addr = {.bytes_used = 4};
    memcpy(addr.bytes, &host, sizeof(host));
    return addr;
}

static inline void net_config(struct weft_ep_config *config_p, uint8_t mode)
{
    weft_ep_config_default(config_p);
    config_p->mode = mode;
    memset(config_p->psk, 0x5a, sizeof(config_p->psk));
}

/* Give host `end` an endpoint; config->crypto is filled in here. */
static inline void net_open(struct net *net, uint32_t end, struct weft_ep_config *config)
{
    struct net_end *e = &net->end[end];
    config->name = 100 + end;
    config->accept = end > 0 ? 1 : config->accept;
    if (e->toy == NULL) {
        e->toy = weft_toy_crypto_new(config->incarnation * 10 + end,
                                     weft_ep_crypto_slots(config->peers_max));
    }
    config->crypto = weft_toy_crypto_ops(e->toy);
    assert_int_equal(weft_ep_new(config, &e->ep), WEFT_OK);
    e->msgr = weft_ep_msgr(e->ep);
    e->addr = net_addr(end + 1);
}

static inline struct net *net_new(uint8_t mode0, uint8_t mode1)
{
    struct net *net = calloc(1, sizeof(*net));
    struct weft_ep_config config;
    net->now_ns = WEFT_NS_PER_S;
    net_config(&config, mode0);
    config.incarnation = 10;
    net_open(net, 0, &config);
    net_config(&config, mode1);
    config.incarnation = 11;
    net_open(net, 1, &config);
    return net;
}

static inline void net_end_close(struct net_end *e)
{
    weft_ep_free(e->ep);
    weft_toy_crypto_free(e->toy);
    *e = (struct net_end){0};
}

static inline void net_free(struct net *net)
{
    for (uint32_t i = 0; i < net->queued; i++) {
        free(net->queue[i].data);
    }
    for (uint32_t i = 0; i < net->kept_count; i++) {
        free(net->kept[i].data);
    }
    for (uint32_t i = 0; i < ENDS_MAX; i++) {
        net_end_close(&net->end[i]);
    }
    free(net);
}

static inline void net_drain(struct net *net, uint32_t end)
{
    struct net_end *e = &net->end[end];
    struct weft_msg_event ev;
    while (e->msgr.ops->poll(e->msgr.self, &ev)) {
        switch (ev.type) {
        case WEFT_EVENT_PEER_UP:
            e->ups++;
            e->peer = ev.peer;
            break;
        case WEFT_EVENT_PEER_DOWN:
            e->downs++;
            e->why = ev.down;
            break;
        case WEFT_EVENT_RECEIVED:
            e->received++;
            if (e->answer != NULL) {
                e->answer(net, end, ev.peer);
            }
            break;
        case WEFT_EVENT_SENT:
            e->sent++;
            e->outcome = ev.outcome;
            break;
        default:
            break;
        }
    }
}

static inline void net_keep(struct net *net, const struct net_datagram *d)
{
    if (net->kept_count < KEPT_MAX) {
        struct net_datagram *k = &net->kept[net->kept_count++];
        *k = *d;
        k->data = malloc(d->bytes);
        memcpy(k->data, d->data, d->bytes);
    }
}

static inline void net_send(struct net *net, const struct weft_addr *from,
                            const struct weft_addr *to, const uint8_t *data, size_t bytes)
{
    struct net_datagram d = {net->now_ns + NET_DELAY_NS, *from, *to, (uint32_t)bytes,
                             malloc(bytes)};
    memcpy(d.data, data, bytes);
    if (net->keep) {
        net_keep(net, &d);
    }
    if (net->tap != NULL && !net->tap(net, &d)) {
        free(d.data);
        return;
    }
    assert_true(net->queued < NET_QUEUE_MAX);
    net->queue[net->queued++] = d;
}

/* One burst, cut as the kernel would. */
static inline void net_burst(struct net *net, const struct net_end *from, const struct weft_tx *tx)
{
    static uint8_t flat[WEFT_TX_BYTES_MAX];
    size_t used = 0;
    assert_true(tx->iov_count <= WEFT_ARRAY_COUNT(tx->iov) && tx->bytes <= sizeof(flat));
    for (uint32_t i = 0; i < tx->iov_count; i++) {
        memcpy(flat + used, tx->iov[i].base, tx->iov[i].bytes);
        used += tx->iov[i].bytes;
    }
    assert_int_equal(used, tx->bytes);
    assert_int_equal(weft_div_ceil_u64(used, tx->seg_bytes), tx->packets);
    for (size_t at = 0; at < used; at += tx->seg_bytes) {
        size_t bytes = used - at < tx->seg_bytes ? used - at : tx->seg_bytes;
        net_send(net, &from->addr, &tx->addr, flat + at, bytes);
    }
}

static inline void net_pump(struct net *net)
{
    static struct weft_tx tx;
    for (uint32_t i = 0; i < ENDS_MAX; i++) {
        while (net->end[i].ep != NULL && weft_ep_send(net->end[i].ep, net->now_ns, &tx) > 0) {
            net_burst(net, &net->end[i], &tx);
        }
    }
}

/* Hand a copy to an end, at once. */
static inline void net_deliver(struct net *net, struct net_end *to, const struct weft_addr *from,
                               const uint8_t *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes > 0 ? bytes : 1);
    memcpy(copy, data, bytes);
    weft_ep_ahead(to->ep, copy, bytes);
    weft_ep_recv(to->ep, from, WEFT_ECN_ECT0, copy, bytes, net->now_ns, net->now_ns);
    net_drain(net, (uint32_t)(to - net->end));
    free(copy);
}

static inline bool net_step(struct net *net, uint64_t until_ns)
{
    net_pump(net);
    uint64_t next = net->queued > 0 ? net->queue[0].due_ns : WEFT_NEVER;
    for (uint32_t i = 0; i < ENDS_MAX; i++) {
        if (net->end[i].ep != NULL) {
            next = weft_min_u64(next, weft_ep_deadline(net->end[i].ep));
        }
    }
    if (next > until_ns) {
        return false;
    }
    net->now_ns = weft_max_u64(net->now_ns, next);
    while (net->queued > 0 && net->queue[0].due_ns <= net->now_ns) {
        struct net_datagram d = net->queue[0];
        memmove(net->queue, net->queue + 1, --net->queued * sizeof(d));
        for (uint32_t i = 0; i < ENDS_MAX; i++) {
            if (net->end[i].ep != NULL && memcmp(&net->end[i].addr, &d.to, sizeof(d.to)) == 0) {
                net_deliver(net, &net->end[i], &d.from, d.data, d.bytes);
            }
        }
        free(d.data);
    }
    for (uint32_t i = 0; i < ENDS_MAX; i++) {
        if (net->end[i].ep != NULL) {
            weft_ep_on_deadline(net->end[i].ep, net->now_ns);
            net_drain(net, i);
        }
    }
    return true;
}

static inline void net_run(struct net *net, uint64_t ns)
{
    uint64_t until_ns = net->now_ns + ns;
    for (uint32_t i = 0; net_step(net, until_ns); i++) {
        assert_true(i < 200000);
    }
    net->now_ns = until_ns;
}

static inline weft_peer net_connect(struct net *net, uint32_t from, uint32_t to)
{
    weft_peer peer;
    assert_int_equal(weft_ep_connect(net->end[from].ep, &net->end[to].addr, net->now_ns, &peer),
                     WEFT_OK);
    return peer;
}

/* Queue a message of `bytes` bytes; memory for it is posted too. */
static inline void net_message(struct net *net, uint32_t from, weft_peer peer, uint32_t to,
                               const void *bytes, uint32_t count, void *memory)
{
    struct net_end *e = &net->end[from];
    struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY,
                                     .sink = WEFT_SINK_COPY,
                                     .memory = memory,
                                     .memory_bytes = count,
                                     .count = 1,
                                     .timeout_ns = WEFT_NEVER};
    struct weft_msg_send send = {.peer = peer,
                                 .base = bytes,
                                 .total = count / 4,
                                 .elem_bytes = 4,
                                 .deadline_ns = WEFT_NEVER};
    weft_expect_id id;
    uint64_t seq;
    assert_int_equal(net->end[to].msgr.ops->expect(net->end[to].msgr.self, &expect, &id), WEFT_OK);
    assert_int_equal(e->msgr.ops->send(e->msgr.self, &send, net->now_ns, &seq), WEFT_OK);
}

static inline const struct weft_ep_counters *net_counters(const struct net *net, uint32_t end)
{
    return weft_ep_counters(net->end[end].ep);
}

static inline uint64_t net_drops(const struct net *net, uint32_t end)
{
    const struct weft_ep_counters *c = net_counters(net, end);
    return c->bad_short + c->bad_version + c->bad_class + c->bad_peer + c->bad_packet +
           c->bad_range + c->bad_ack + c->old_packets + c->duplicate_packets + c->hello_refused +
           c->bad_tag + c->bad_mode + c->bad_key + c->refused;
}

#endif
