/* Real sockets with real cryptography: an engine's endpoint sends through a relay to an endpoint
 * that this thread progresses. The relay searches for the payload and flips bits.
 * test_core_security.c tests keys and attackers; this test checks that provider, key and drivers
 * work together. */
#define _GNU_SOURCE /* memmem */
#include "crypto/job_key.h"
#include "crypto/provider.h"
#include "io/clock.h"
#include "io/engine.h"
#include "wire/packet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { COUNT = 100000, ROUNDS = 3, PATTERN_FLOATS = 16, FLIP_EVERY = 50, REKEY_PACKETS = 150 };

static const float VALUE = 12345.0F;
static const uint64_t STEP_NS = 200 * WEFT_NS_PER_US;
static const uint64_t LIMIT_NS = 120 * WEFT_NS_PER_S;

/* ---- the relay ------------------------------------------------------------------------------- */

/* Two sockets: the sender connects to `near`; `far` is connected to the receiver. */
struct relay {
    int near;
    int far;
    uint16_t port; /* port of `near` */
    struct sockaddr_in sender;
    struct sockaddr_in receiver;
    uint32_t count;
    uint32_t flip_every; /* 0 = never */
    uint32_t flipped;
    bool payload_seen;
};

static int any_socket(uint16_t *port_p)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(addr);
    int bytes_kept = 4 << 20;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes_kept, sizeof(bytes_kept)), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &bytes), 0);
    *port_p = ntohs(addr.sin_port);
    return fd;
}

static void relay_open(struct relay *relay, uint16_t receiver_port)
{
    uint16_t unused;
    *relay = (struct relay){.receiver = {.sin_family = AF_INET,
                                         .sin_port = htons(receiver_port),
                                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
    relay->near = any_socket(&relay->port);
    relay->far = any_socket(&unused);
}

static void relay_close(struct relay *relay)
{
    assert_int_equal(close(relay->near), 0);
    assert_int_equal(close(relay->far), 0);
}

static void inspect(struct relay *relay, uint8_t *bytes, size_t count)
{
    static float pattern[PATTERN_FLOATS];
    for (int i = 0; i < PATTERN_FLOATS; i++) {
        pattern[i] = VALUE;
    }
    relay->payload_seen |= memmem(bytes, count, pattern, sizeof(pattern)) != NULL;
    relay->count++;
    if (relay->flip_every > 0 && relay->count % relay->flip_every == 0) {
        bytes[relay->count * 131 % count] ^= (uint8_t)(1u << relay->count % 8);
        relay->flipped++;
    }
}

/* Forward pending datagrams. */
static void relay_turn(struct relay *relay)
{
    static uint8_t bytes[65536];
    ssize_t got;
    socklen_t length = sizeof(relay->sender);
    while ((got = recvfrom(relay->near, bytes, sizeof(bytes), 0, (struct sockaddr *)&relay->sender,
                           &length)) > 0) {
        inspect(relay, bytes, (size_t)got);
        (void)sendto(relay->far, bytes, (size_t)got, 0, (struct sockaddr *)&relay->receiver,
                     sizeof(relay->receiver));
    }
    while ((got = recv(relay->far, bytes, sizeof(bytes), 0)) > 0) {
        inspect(relay, bytes, (size_t)got);
        (void)sendto(relay->near, bytes, (size_t)got, 0, (struct sockaddr *)&relay->sender,
                     sizeof(relay->sender));
    }
}

/* ---- the ends -------------------------------------------------------------------------------- */

/* The peer timeout of the next pairs: long, except in tests of refusals. */
static uint64_t patience_ns = 60 * WEFT_NS_PER_S;

/* A configuration with provider and key, as a driver makes it. */
static struct weft_provider *arm(struct weft_udp_config *config, uint8_t mode,
                                 const struct weft_job_key *key)
{
    struct weft_provider *provider = NULL;
    weft_udp_config_default(config);
    config->ep.peers_max = 4;
    config->ep.accept = 1;
    config->ep.mode = mode;
    config->ep.rekey_packets = REKEY_PACKETS;
    config->ep.peer_timeout_ns = patience_ns;
    assert_int_equal(weft_provider_new(weft_ep_crypto_slots(4), &provider), WEFT_OK);
    config->ep.crypto = weft_provider_crypto(provider);
    assert_int_equal(weft_job_key_copy(key, config->ep.psk), WEFT_OK);
    return provider;
}

struct pair {
    struct weft_provider *providers[2];
    struct weft_engine *sender;
    struct weft_driver *receiver;
    struct relay relay;
    weft_peer peer; /* the receiver, as seen by the sender */
    uint32_t up;
    uint32_t down;
    uint32_t sent;
    uint32_t received;
    uint32_t incomplete;
};

static void pair_open(struct pair *pair, uint8_t mode, const struct weft_job_key *sender_key,
                      const struct weft_job_key *receiver_key)
{
    struct weft_engine_config engine;
    struct weft_udp_config udp;
    struct weft_error error = {.text = ""};
    *pair = (struct pair){0};
    weft_engine_config_default(&engine);
    pair->providers[0] = arm(&engine.driver.udp, mode, sender_key);
    pair->providers[1] = arm(&udp, mode, receiver_key);
    assert_int_equal(weft_engine_start(&engine, &pair->sender, &error), WEFT_OK);
    assert_int_equal(weft_udp_open(&udp, &pair->receiver, &error), WEFT_OK);
    relay_open(&pair->relay, weft_driver_port(pair->receiver));
    assert_int_equal(
        weft_engine_connect(pair->sender, "127.0.0.1", pair->relay.port, &pair->peer, &error),
        WEFT_OK);
}

static void pair_close(struct pair *pair)
{
    weft_engine_stop(pair->sender);
    weft_driver_close(pair->receiver);
    relay_close(&pair->relay);
    weft_provider_free(pair->providers[0]);
    weft_provider_free(pair->providers[1]);
}

static void drain(void *arg, uint64_t now_ns)
{
    (void)now_ns;
    struct pair *pair = arg;
    struct weft_msgr receiver = weft_driver_msgr(pair->receiver);
    struct weft_msg_event event;
    while (receiver.ops->poll(receiver.self, &event)) {
        pair->received += event.type == WEFT_EVENT_RECEIVED;
        pair->incomplete += event.type == WEFT_EVENT_RECEIVED && event.outcome != WEFT_MSG_COMPLETE;
    }
}

static void run_until(struct pair *pair, const uint32_t *count, uint32_t target)
{
    uint64_t end_ns = weft_clock_now_ns() + LIMIT_NS;
    struct weft_msgr sender = weft_engine_msgr(pair->sender);
    struct weft_msg_event event;
    while (*count < target && weft_clock_now_ns() < end_ns) {
        relay_turn(&pair->relay);
        (void)weft_driver_step(pair->receiver, STEP_NS, drain, pair);
        while (sender.ops->poll(sender.self, &event)) {
            pair->up += event.type == WEFT_EVENT_PEER_UP;
            pair->down += event.type == WEFT_EVENT_PEER_DOWN;
            pair->sent += event.type == WEFT_EVENT_SENT;
        }
    }
    assert_int_equal(*count, target);
}

static void send_rounds(struct pair *pair, uint32_t rounds)
{
    float *values = calloc(COUNT, sizeof(*values));
    float *sum = calloc(COUNT, sizeof(*sum));
    struct weft_msgr sender = weft_engine_msgr(pair->sender);
    struct weft_msgr receiver = weft_driver_msgr(pair->receiver);
    struct weft_msg_send send = {.peer = pair->peer, .base = values, .total = COUNT,
                                 .elem_bytes = sizeof(float), .deadline_ns = WEFT_NEVER};
    struct weft_msg_expect expect = {.peer = WEFT_PEER_ANY, .sink = WEFT_SINK_ADD, .memory = sum,
                                     .memory_bytes = COUNT * sizeof(float), .count = 1,
                                     .timeout_ns = WEFT_NEVER};
    assert_true(values != NULL && sum != NULL);
    for (uint32_t i = 0; i < COUNT; i++) {
        values[i] = VALUE;
    }
    for (uint32_t round = 1; round <= rounds; round++) {
        uint64_t seq;
        weft_expect_id id;
        assert_int_equal(receiver.ops->expect(receiver.self, &expect, &id), WEFT_OK);
        assert_int_equal(sender.ops->send(sender.self, &send, 0, &seq), WEFT_OK);
        run_until(pair, &pair->received, round);
        run_until(pair, &pair->sent, round);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_true(sum[i] == (float)rounds * VALUE);
    }
    assert_int_equal(pair->incomplete, 0);
    free(sum);
    free(values);
}

static struct weft_job_key *fresh_key(void)
{
    struct weft_job_key *key = NULL;
    assert_int_equal(weft_job_key_random(&key, NULL), WEFT_OK);
    return key;
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void read_counters(struct weft_driver *driver, void *counters)
{
    weft_driver_counters(driver, counters);
}

static void read_hint(struct weft_driver *driver, void *hint)
{
    *(enum weft_ep_hint *)hint = weft_driver_hint(driver);
}

static enum weft_ep_hint hint_of(struct weft_engine *engine)
{
    enum weft_ep_hint hint;
    weft_engine_call(engine, read_hint, &hint);
    return hint;
}

/* Keys are updated during the transfer, bits are flipped, and each sum is exact. */
static void transfer(uint8_t mode, uint32_t flip_every, bool *payload_seen_p)
{
    struct pair pair;
    struct weft_job_key *key = fresh_key();
    struct weft_driver_counters counters;
    pair_open(&pair, mode, key, key);
    run_until(&pair, &pair.up, 1);
    pair.relay.flip_every = flip_every;
    send_rounds(&pair, ROUNDS);
    weft_engine_call(pair.sender, read_counters, &counters);
    struct weft_ep_counters at_sender = counters.ep;
    const struct weft_ep_counters *at_receiver =
        weft_ep_counters(weft_udp_ep(weft_driver_udp(pair.receiver)));
    uint64_t bad = at_sender.bad_tag + at_receiver->bad_tag;
    if (flip_every == 0) {
        assert_int_equal(bad, 0);
        assert_int_equal(hint_of(pair.sender), WEFT_HINT_NONE);
    } else {
        assert_true(pair.relay.flipped > 10);
        /* Changed bits of version, class and connection id are detected before the tag is
         * checked. */
        assert_true(bad > pair.relay.flipped / 2 && bad <= pair.relay.flipped);
    }
    assert_true(at_sender.rekeys > 0);
    assert_int_equal(at_sender.crypto_failures + at_receiver->crypto_failures, 0);
    *payload_seen_p = pair.relay.payload_seen;
    pair_close(&pair);
    weft_job_key_free(key);
}

static void auth_shows_the_payload(void **state)
{
    (void)state;
    bool payload_seen;
    transfer(WEFT_MODE_AUTH, 0, &payload_seen);
    assert_true(payload_seen);
}

static void seal_hides_it(void **state)
{
    (void)state;
    bool payload_seen;
    transfer(WEFT_MODE_SEAL, 0, &payload_seen);
    assert_false(payload_seen);
}

static void flipped_bits_are_losses(void **state)
{
    (void)state;
    bool payload_seen;
    transfer(WEFT_MODE_AUTH, FLIP_EVERY, &payload_seen);
    transfer(WEFT_MODE_SEAL, FLIP_EVERY, &payload_seen);
}

static void another_key_is_told_at_both_ends(void **state)
{
    (void)state;
    struct pair pair;
    struct weft_job_key *keys[2] = {fresh_key(), fresh_key()};
    patience_ns = 2 * WEFT_NS_PER_S;
    pair_open(&pair, WEFT_MODE_AUTH, keys[0], keys[1]);
    run_until(&pair, &pair.down, 1); /* only after the peer timeout: the notice may be forged */
    assert_int_equal(pair.up, 0);
    assert_int_equal(hint_of(pair.sender), WEFT_HINT_TOLD_KEY);
    assert_int_equal(weft_ep_hint(weft_udp_ep(weft_driver_udp(pair.receiver))), WEFT_HINT_KEY);
    assert_true(weft_ep_counters(weft_udp_ep(weft_driver_udp(pair.receiver)))->bad_key > 0);
    pair_close(&pair);
    weft_job_key_free(keys[0]);
    weft_job_key_free(keys[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auth_shows_the_payload),
        cmocka_unit_test(seal_hides_it),
        cmocka_unit_test(flipped_bits_are_losses),
        cmocka_unit_test(another_key_is_told_at_both_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
