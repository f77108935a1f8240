/* Two transports of one process over loopback, for the tests of the public API. This thread
 * progresses both, so neither may sleep long while the other has work. */
#ifndef TESTS_UNIT_API_PAIR_H
#define TESTS_UNIT_API_PAIR_H

#include "io/clock.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>
#include <weft/transport.h>

static const uint64_t api_limit_ns = 120 * WEFT_NS_PER_S;
static const uint64_t api_slice_ns = WEFT_NS_PER_MS;

static inline struct weft_transport_config api_config(void)
{
    struct weft_transport_config config;
    weft_transport_config_init(&config, sizeof(config));
    config.security = WEFT_TRANSPORT_NONE;
    config.peers_max = 4;
    config.message_bytes_max = 1 << 20;
    return config;
}

static inline struct weft_transport *api_open(const struct weft_transport_config *config)
{
    struct weft_transport *t = NULL;
    weft_status status = weft_transport_open(config, &t);
    if (status != WEFT_OK) {
        fail_msg("%s: %s", weft_status_name(status), weft_transport_error(NULL));
    }
    return t;
}

/* Wait for the next event of `type` at `t` and skip its other events. Meanwhile progress `other`
 * (may be NULL) and discard its events. */
static inline struct weft_transport_event api_await(struct weft_transport *t,
                                                    struct weft_transport *other, uint32_t type)
{
    uint64_t end_ns = weft_clock_now_ns() + api_limit_ns;
    struct weft_transport_event event = {.size = sizeof(event)};
    while (weft_clock_now_ns() < end_ns) {
        if (weft_transport_wait(t, api_slice_ns, &event) == WEFT_OK && event.type == type) {
            return event;
        }
        if (other != NULL) {
            assert_int_equal(weft_transport_progress(other, 0), WEFT_OK);
        }
    }
    fail_msg("no event of type %u: %s", type, weft_transport_error(t));
    return event;
}

static inline void api_send(struct weft_transport *t, uint32_t peer, const float *values,
                            uint32_t elements, uint32_t bound_ppm, uint64_t tag)
{
    struct weft_transport_send send;
    weft_transport_send_init(&send, sizeof(send));
    send.peer = peer;
    send.data = values;
    send.elements = elements;
    send.bound_ppm = bound_ppm;
    send.tag = tag;
    send.user = (void *)values;
    weft_status status = weft_transport_send(t, &send);
    if (status != WEFT_OK) {
        fail_msg("%s: %s", weft_status_name(status), weft_transport_error(t));
    }
}

static inline uint64_t api_receive(struct weft_transport *t, float *memory, uint32_t elements,
                                   enum weft_transport_sink sink, uint64_t tag)
{
    struct weft_transport_receive receive;
    weft_transport_receive_init(&receive, sizeof(receive));
    receive.memory = memory;
    receive.memory_bytes = elements * sizeof(float);
    receive.sink = sink;
    receive.tag = tag;
    receive.user = memory;
    uint64_t id = 0;
    weft_status status = weft_transport_receive(t, &receive, &id);
    if (status != WEFT_OK) {
        fail_msg("%s: %s", weft_status_name(status), weft_transport_error(t));
    }
    return id;
}

static inline uint32_t api_connect(struct weft_transport *from, struct weft_transport *to)
{
    uint32_t peer = UINT32_MAX;
    weft_status status = weft_transport_connect(from, "127.0.0.1", weft_transport_port(to), &peer);
    if (status != WEFT_OK) {
        fail_msg("%s: %s", weft_status_name(status), weft_transport_error(from));
    }
    return peer;
}

#endif
