/* Shared by most tests of the core: a few endpoints with toy cryptography over the network of
 * ../lib/datagram_net.h, and messages between them. A tap sees every datagram and may change, drop
 * or keep it. */
#ifndef WEFT_TESTS_CORE_NET_H
#define WEFT_TESTS_CORE_NET_H

#include "../lib/datagram_net.h"
#include "core_inspect.h"
#include "sim/toy_crypto.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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

/* Create the endpoint of host `end`; config->crypto is set here. */
static inline void net_open(struct net *net, uint32_t end, struct weft_ep_config *config)
{
    struct net_end *e = &net->end[end];
    config->name = config->name != 0 ? config->name : 100 + end;
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
    net_init(net, 1);
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
    net_fini(net);
    for (uint32_t i = 0; i < ENDS_MAX; i++) {
        net_end_close(&net->end[i]);
    }
    free(net);
}

static inline weft_peer net_connect(struct net *net, uint32_t from, uint32_t to)
{
    weft_peer peer;
    assert_int_equal(weft_ep_connect(net->end[from].ep, &net->end[to].addr, net->now_ns, &peer),
                     WEFT_OK);
    return peer;
}

/* Queue a message of `bytes` bytes, and post a buffer for it. */
static inline void net_message(struct net *net, uint32_t from, weft_peer peer, uint32_t to,
                               const void *bytes, uint32_t count, void *memory)
{
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
    assert_int_equal(net_msg_expect(net, to, &expect, &id), WEFT_OK);
    assert_int_equal(net_msg_send(net, from, &send, &seq), WEFT_OK);
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
