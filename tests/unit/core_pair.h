/* Two endpoints joined by a list of datagrams on a fake clock, and what their applications saw. */
#ifndef WEFT_TESTS_CORE_PAIR_H
#define WEFT_TESTS_CORE_PAIR_H

#include "base/bits.h"
#include "base/prng.h"
#include "core/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { QUEUE_MAX = 4096, LOG_MAX = 4096 };

struct datagram {
    uint64_t due_ns;
    uint32_t to;
    uint32_t bytes;
    uint8_t *data;
};

/* Both ends, the wire between them, and what their applications saw. */
struct pair {
    struct weft_ep *ep[2];
    struct weft_msgr msgr[2];
    struct weft_addr addr[2];
    weft_peer peer_of_0;
    weft_peer peer_of_1;
    uint64_t now_ns;
    struct datagram queue[QUEUE_MAX];
    uint32_t queued;
    struct weft_prng prng;
    uint32_t loss_ppm;
    bool cut; /* nothing gets through */
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

[[maybe_unused]] static void drain(struct pair *t, uint32_t end)
{
    static const char *const names[2][6] = {{"0:up", "0:down", "0:open", "0:chunk", "0:received", "0:sent"},
                                            {"1:up", "1:down", "1:open", "1:chunk", "1:received", "1:sent"}};
    struct weft_msg_event ev;
    while (t->msgr[end].ops->poll(t->msgr[end].self, &ev)) {
        if (ev.type != WEFT_EVENT_CHUNK) {
            log_add(t, names[end][ev.type]);
        }
        size_t words = WEFT_BITS_WORDS((size_t)ev.chunks);
        switch (ev.type) {
        case WEFT_EVENT_PEER_UP:
            t->up_count++;
            if (end == 1) {
                t->peer_of_1 = ev.peer;
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
                t->on_chunk(t, &ev);
            }
            break;
        case WEFT_EVENT_RECEIVED:
            t->received = ev;
            t->received_count++;
            memcpy(t->received_mask, ev.mask, words * 8);
            break;
        case WEFT_EVENT_SENT:
            t->sent = ev;
            t->sent_count++;
            t->short_count += ev.outcome == WEFT_MSG_SHORT;
            memcpy(t->sent_mask, ev.mask, words * 8);
            break;
        }
    }
}

[[maybe_unused]] static void enqueue(struct pair *t, uint32_t to, const struct weft_tx *tx)
{
    uint8_t flat[70000];
    size_t used = 0;
    for (uint32_t i = 0; i < tx->iov_count; i++) {
        memcpy(flat + used, tx->iov[i].base, tx->iov[i].bytes);
        used += tx->iov[i].bytes;
    }
    assert_int_equal(used, tx->bytes);
    for (uint32_t i = 0; i < tx->packets; i++) {
        size_t from = (size_t)i * tx->seg_bytes;
        size_t bytes = used - from < tx->seg_bytes ? used - from : tx->seg_bytes;
        if (t->cut || weft_prng_chance(&t->prng, t->loss_ppm)) {
            continue;
        }
        assert_true(t->queued < QUEUE_MAX);
        struct datagram *d = &t->queue[t->queued++];
        *d = (struct datagram){t->now_ns + 20000, to, (uint32_t)bytes, malloc(bytes)};
        memcpy(d->data, flat + from, bytes);
    }
}

[[maybe_unused]] static void pump(struct pair *t)
{
    static struct weft_tx tx;
    for (uint32_t end = 0; end < 2; end++) {
        while (weft_ep_send(t->ep[end], t->now_ns, &tx) > 0) {
            enqueue(t, 1 - end, &tx);
        }
    }
}

/* Advance to the next thing that happens; false when nothing will. */
[[maybe_unused]] static bool step(struct pair *t, uint64_t until_ns)
{
    pump(t);
    uint64_t next = weft_min_u64(weft_ep_deadline(t->ep[0]), weft_ep_deadline(t->ep[1]));
    if (t->queued > 0) {
        next = weft_min_u64(next, t->queue[0].due_ns);
    }
    if (next > until_ns) {
        return false;
    }
    t->now_ns = weft_max_u64(t->now_ns, next);
    while (t->queued > 0 && t->queue[0].due_ns <= t->now_ns) {
        struct datagram d = t->queue[0];
        memmove(t->queue, t->queue + 1, --t->queued * sizeof(d));
        weft_ep_recv(t->ep[d.to], &t->addr[1 - d.to], WEFT_ECN_ECT0, d.data, d.bytes, t->now_ns,
                     t->now_ns);
        drain(t, d.to);
        free(d.data);
    }
    for (uint32_t end = 0; end < 2; end++) {
        weft_ep_on_deadline(t->ep[end], t->now_ns);
        drain(t, end);
    }
    return true;
}

[[maybe_unused]] static void run_for(struct pair *t, uint64_t ns)
{
    uint64_t until = t->now_ns + ns;
    for (uint32_t i = 0; step(t, until); i++) {
        assert_true(i < 1000000);
    }
    t->now_ns = until;
}

[[maybe_unused]] static int setup(void **state)
{
    struct pair *t = calloc(1, sizeof(*t));
    t->now_ns = WEFT_NS_PER_S;
    weft_prng_init(&t->prng, 7);
    for (uint32_t end = 0; end < 2; end++) {
        struct weft_ep_config config;
        weft_ep_config_default(&config);
        config.name = 100 + end;
        config.incarnation = 10 + end;
        config.accept = end == 1;
        assert_int_equal(weft_ep_new(&config, &t->ep[end]), WEFT_OK);
        t->msgr[end] = weft_ep_msgr(t->ep[end]);
        t->addr[end].bytes[0] = (uint8_t)(1 + end);
        t->addr[end].bytes_used = 1;
    }
    assert_int_equal(weft_ep_connect(t->ep[0], &t->addr[1], t->now_ns, &t->peer_of_0), WEFT_OK);
    run_for(t, 5 * WEFT_NS_PER_MS);
    assert_int_equal(t->up_count, 2);
    *state = t;
    return 0;
}

[[maybe_unused]] static int teardown(void **state)
{
    struct pair *t = *state;
    for (uint32_t i = 0; i < t->queued; i++) {
        free(t->queue[i].data);
    }
    weft_ep_free(t->ep[0]);
    weft_ep_free(t->ep[1]);
    free(t);
    return 0;
}

[[maybe_unused]] static uint64_t send_floats(struct pair *t, const float *values, uint32_t n, uint32_t bound_ppm)
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
    assert_int_equal(t->msgr[0].ops->send(t->msgr[0].self, &send, t->now_ns, &seq), WEFT_OK);
    return seq;
}

[[maybe_unused]] static void expect_floats(struct pair *t, enum weft_msg_sink sink, float *memory, uint32_t n)
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
    assert_int_equal(t->msgr[1].ops->expect(t->msgr[1].self, &e, &id), WEFT_OK);
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
