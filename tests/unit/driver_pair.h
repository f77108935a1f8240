/* Endpoints over weft_driver on loopback, progressed by this thread, and a record of every event:
 * for tests that run the same case over UDP and over TCP. */
#ifndef TESTS_UNIT_DRIVER_PAIR_H
#define TESTS_UNIT_DRIVER_PAIR_H

#include "base/bits.h"
#include "crypto/provider.h"
#include "io/clock.h"
#include "io/driver.h"
#include "wire/packet.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

enum { NODE_EVENTS_MAX = 2048, NODE_MASK_WORDS = 512 };

static const uint64_t node_limit_ns = 120 * WEFT_NS_PER_S;

struct variant {
    const char *name;
    enum weft_driver_kind kind;
    uint8_t mode;
};

struct node_event {
    struct weft_msg_event e;
    uint64_t mask[NODE_MASK_WORDS]; /* SENT, RECEIVED: a copy */
};

struct node {
    struct weft_driver *driver;
    struct weft_provider *provider;
    struct weft_msgr msgr;
    struct node_event *events;
    uint32_t count;
    /* SINK_EVENT: destination of chunks, if not NULL; every refuse_every-th chunk is refused. */
    uint8_t *by_event;
    uint32_t refuse_every;
    uint32_t chunks;
    /* On SENT this memory is returned and overwritten, so that a later access by the driver is
     * detected. */
    void *scribble;
    size_t scribble_bytes;
};

static inline void node_handle(void *arg, uint64_t now_ns)
{
    struct node *n = arg;
    struct weft_msg_event ev;
    (void)now_ns;
    while (n->msgr.ops->poll(n->msgr.self, &ev)) {
        assert_true(n->count < NODE_EVENTS_MAX);
        struct node_event *kept = &n->events[n->count++];
        kept->e = ev;
        if (ev.mask != NULL) {
            assert_true(ev.chunks <= NODE_MASK_WORDS * 64);
            memcpy(kept->mask, ev.mask, WEFT_BITS_WORDS((size_t)ev.chunks) * sizeof(uint64_t));
        }
        if (ev.type == WEFT_EVENT_SENT && n->scribble != NULL) {
            memset(n->scribble, 0xff, n->scribble_bytes);
        }
        if (ev.type == WEFT_EVENT_CHUNK && n->by_event != NULL) {
            size_t offset = (size_t)ev.chunk * ev.chunk_elems * ev.elem_bytes;
            memcpy(n->by_event + offset, ev.data, (size_t)ev.elems * ev.elem_bytes);
            n->chunks++;
            if (n->refuse_every > 0 && n->chunks % n->refuse_every == 0) {
                n->msgr.ops->refuse(n->msgr.self, ev.peer, ev.seq);
            }
        }
    }
}

static inline struct weft_driver_config node_config(const struct variant *v, uint64_t name)
{
    struct weft_driver_config config;
    weft_driver_config_default(&config);
    config.kind = v->kind;
    config.udp.ep.mode = v->mode;
    config.udp.ep.accept = 1;
    config.udp.ep.peers_max = 4;
    config.udp.ep.chunks_max = NODE_MASK_WORDS * 64;
    config.udp.ep.name = name;
    memset(config.udp.ep.psk, 7, sizeof(config.udp.ep.psk));
    return config;
}

static inline void node_open(struct node *n, struct weft_driver_config *config)
{
    struct weft_error error = {.text = ""};
    *n = (struct node){.events = calloc(NODE_EVENTS_MAX, sizeof(struct node_event))};
    assert_non_null(n->events);
    if (config->udp.ep.mode != WEFT_MODE_NONE) {
        uint32_t slots = weft_ep_crypto_slots(config->udp.ep.peers_max);
        assert_int_equal(weft_provider_new(slots, &n->provider), WEFT_OK);
        config->udp.ep.crypto = weft_provider_crypto(n->provider);
    }
    if (weft_driver_open(config, &n->driver, &error) != WEFT_OK) {
        fail_msg("open: %s", error.text);
    }
    n->msgr = weft_driver_msgr(n->driver);
}

static inline void node_close(struct node *n)
{
    weft_driver_close(n->driver);
    weft_provider_free(n->provider);
    free(n->events);
    *n = (struct node){0};
}

/* The newest event of a type and user (of SENT, RECEIVED, OPEN); NULL: none yet. */
static inline const struct node_event *node_find(const struct node *n,
                                                 enum weft_msg_event_type type, uint64_t user)
{
    for (uint32_t i = n->count; i > 0; i--) {
        const struct node_event *ev = &n->events[i - 1];
        bool any = type == WEFT_EVENT_PEER_UP || type == WEFT_EVENT_PEER_DOWN;
        if (ev->e.type == type && (any || ev->e.user == user)) {
            return ev;
        }
    }
    return NULL;
}

static inline uint32_t node_count(const struct node *n, enum weft_msg_event_type type)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n->count; i++) {
        count += n->events[i].e.type == type;
    }
    return count;
}

/* One step of each; b may be NULL. Neither sleeps long while the other has work. */
static inline void nodes_turn(struct node *a, struct node *b)
{
    (void)weft_driver_step(a->driver, 200 * WEFT_NS_PER_US, node_handle, a);
    if (b != NULL) {
        (void)weft_driver_step(b->driver, 200 * WEFT_NS_PER_US, node_handle, b);
    }
}

/* Run for this time, and for a few steps at least: the machine may be suspended for the whole
 * time. */
static inline void nodes_run(struct node *a, struct node *b, uint64_t for_ns)
{
    uint64_t end_ns = weft_clock_now_ns() + for_ns;
    for (uint32_t turn = 0; turn < 10 || weft_clock_now_ns() < end_ns; turn++) {
        nodes_turn(a, b);
    }
}

/* Progress both until `a` has such an event. */
static inline const struct node_event *nodes_await(struct node *a, struct node *b,
                                                   enum weft_msg_event_type type, uint64_t user)
{
    uint64_t end_ns = weft_clock_now_ns() + node_limit_ns;
    const struct node_event *ev = node_find(a, type, user);
    while (ev == NULL && weft_clock_now_ns() < end_ns) {
        nodes_turn(a, b);
        ev = node_find(a, type, user);
    }
    if (ev == NULL) {
        fail_msg("no event of type %d with user %llu", (int)type, (unsigned long long)user);
    }
    return ev;
}

static inline weft_peer node_connect(struct node *from, const struct node *to)
{
    struct weft_error error = {.text = ""};
    weft_peer peer = 0;
    if (weft_driver_connect(from->driver, "127.0.0.1", weft_driver_port(to->driver), &peer,
                            &error) != WEFT_OK) {
        fail_msg("connect: %s", error.text);
    }
    return peer;
}

static inline weft_status node_try_send(struct node *n, struct weft_msg_send send)
{
    uint64_t seq;
    send.elem_bytes = send.elem_bytes == 0 ? sizeof(float) : send.elem_bytes;
    send.deadline_ns = send.deadline_ns == 0 ? WEFT_NEVER : send.deadline_ns;
    return n->msgr.ops->send(n->msgr.self, &send, weft_clock_now_ns(), &seq);
}

static inline void node_send(struct node *n, struct weft_msg_send send)
{
    assert_int_equal(node_try_send(n, send), WEFT_OK);
}

static inline weft_expect_id node_expect(struct node *n, struct weft_msg_expect expect)
{
    weft_expect_id id = 0;
    expect.peer = WEFT_PEER_ANY;
    expect.tag_mask = UINT64_MAX;
    expect.count = expect.count == 0 ? 1 : expect.count;
    expect.timeout_ns = expect.timeout_ns == 0 ? WEFT_NEVER : expect.timeout_ns;
    assert_int_equal(n->msgr.ops->expect(n->msgr.self, &expect, &id), WEFT_OK);
    return id;
}

/* Allocate `count` floats first, first + 1, ...; the caller frees them. */
static inline float *ramp(uint32_t count, float first)
{
    float *values = malloc(count * sizeof(float));
    assert_non_null(values);
    for (uint32_t i = 0; i < count; i++) {
        values[i] = first + (float)(i % 4096);
    }
    return values;
}

#endif
