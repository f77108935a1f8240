/* Two endpoints over the network of ../lib/datagram_net.h, and the events of their applications. */
#ifndef WEFT_TESTS_CORE_PAIR_H
#define WEFT_TESTS_CORE_PAIR_H

#include "../lib/datagram_net.h"
#include "base/bits.h"
#include "core_inspect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LOG_MAX = 4096 };

/* Ends 0 and 1 of the network; 0 has connected to 1. */
struct pair {
    struct net net; /* first member: on_event derives the pair from it */
    weft_peer peer_of_0;
    weft_peer peer_of_1;
    struct weft_msg_event sent;
    struct weft_msg_event received;
    uint64_t sent_mask[256];
    uint64_t received_mask[256];
    uint32_t sent_count, short_count, received_count, chunk_count, up_count, down_count;
    void (*on_chunk)(struct pair *, const struct weft_msg_event *);
    char log[LOG_MAX];
};

[[maybe_unused]] static void log_add(struct pair *t, const char *word)
{
    size_t used = strlen(t->log);
    if (used + strlen(word) + 2 < LOG_MAX) {
        if (used > 0) {
            strcat(t->log, " ");
        }
        strcat(t->log, word);
    }
}

[[maybe_unused]] static void pair_event(struct net *net, uint32_t end,
                                        const struct weft_msg_event *ev)
{
    static const char *const names[2][6] = {{"0:up", "0:down", "0:open", "0:chunk", "0:received", "0:sent"},
                                            {"1:up", "1:down", "1:open", "1:chunk", "1:received", "1:sent"}};
    struct pair *t = (struct pair *)net;
    const size_t mask_bytes = WEFT_BITS_WORDS((size_t)ev->chunks) * 8;
    if (ev->type != WEFT_EVENT_CHUNK) {
        log_add(t, names[end][ev->type]);
    }
    switch (ev->type) {
    case WEFT_EVENT_PEER_UP:
        t->up_count++;
        if (end == 1) {
            t->peer_of_1 = ev->peer;
        }
        break;
    case WEFT_EVENT_PEER_DOWN:
        t->down_count++;
        break;
    case WEFT_EVENT_OPEN:
        break;
    case WEFT_EVENT_CHUNK:
        t->chunk_count++;
        if (t->on_chunk != NULL) {
            t->on_chunk(t, ev);
        }
        break;
    case WEFT_EVENT_RECEIVED:
        t->received = *ev;
        t->received_count++;
        memcpy(t->received_mask, ev->mask, mask_bytes);
        break;
    case WEFT_EVENT_SENT:
        t->sent = *ev;
        t->sent_count++;
        t->short_count += ev->outcome == WEFT_MSG_SHORT;
        memcpy(t->sent_mask, ev->mask, mask_bytes);
        break;
    }
}

/* While the pair is cut, no packet reaches the other end. */
[[maybe_unused]] static void pair_cut(struct pair *t, bool is_cut)
{
    t->net.end[1].side = is_cut ? 1 : 0;
}

[[maybe_unused]] static void run_for(struct pair *t, uint64_t ns)
{
    net_run(&t->net, ns);
}

[[maybe_unused]] static void end_open(struct pair *t, uint32_t end,
                                      const struct weft_ep_config *config)
{
    assert_int_equal(weft_ep_new(config, &t->net.end[end].ep), WEFT_OK);
    t->net.end[end].msgr = weft_ep_msgr(t->net.end[end].ep);
}

[[maybe_unused]] static weft_status pair_connect(struct pair *t)
{
    return weft_ep_connect(t->net.end[0].ep, &t->net.end[1].addr, t->net.now_ns, &t->peer_of_0);
}

[[maybe_unused]] static int setup(void **state)
{
    struct pair *t = calloc(1, sizeof(*t));
    net_init(&t->net, 7);
    t->net.on_event = pair_event;
    for (uint32_t end = 0; end < 2; end++) {
        struct weft_ep_config config;
        weft_ep_config_default(&config);
        config.name = 100 + end;
        config.incarnation = 10 + end;
        config.accept = end == 1;
        end_open(t, end, &config);
        t->net.end[end].addr = (struct weft_addr){.bytes = {(uint8_t)(1 + end)}, .bytes_used = 1};
    }
    assert_int_equal(pair_connect(t), WEFT_OK);
    run_for(t, 5 * WEFT_NS_PER_MS);
    assert_int_equal(t->up_count, 2);
    *state = t;
    return 0;
}

[[maybe_unused]] static int teardown(void **state)
{
    struct pair *t = *state;
    net_fini(&t->net);
    weft_ep_free(t->net.end[0].ep);
    weft_ep_free(t->net.end[1].ep);
    free(t);
    return 0;
}

[[maybe_unused]] static uint64_t send_floats(struct pair *t, const float *values, uint32_t n,
                                             uint32_t bound_ppm)
{
    struct weft_msg_send send = {
        .peer = t->peer_of_0,
        .base = values,
        .total = n,
        .elem_bytes = sizeof(float),
        .bound_ppm = bound_ppm,
        .tag = 42,
        .deadline_ns = WEFT_NEVER,
    };
    uint64_t seq = 0;
    assert_int_equal(net_msg_send(&t->net, 0, &send, &seq), WEFT_OK);
    return seq;
}

[[maybe_unused]] static void expect_floats(struct pair *t, enum weft_msg_sink sink, float *memory,
                                           uint32_t n)
{
    struct weft_msg_expect e = {
        .peer = WEFT_PEER_ANY,
        .sink = sink,
        .tag = 42,
        .tag_mask = UINT64_MAX,
        .memory = memory,
        .memory_bytes = n * sizeof(float),
        .count = 1,
        .timeout_ns = WEFT_NEVER,
        .user = 5,
    };
    weft_expect_id id;
    assert_int_equal(net_msg_expect(&t->net, 1, &e, &id), WEFT_OK);
}

[[maybe_unused]] static float *floats_new(uint32_t n)
{
    float *values = malloc(n * sizeof(*values));
    for (uint32_t i = 0; i < n; i++) {
        values[i] = (float)(i % 1000 + 1);
    }
    return values;
}

#endif
