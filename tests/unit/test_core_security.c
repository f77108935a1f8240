/* Modes auth and seal end to end, with toy cryptography: effects of an attacker at the switch, a
 * wrong key, a restart, a fork and a flood on an endpoint. docs/PROTOCOL.md section 8. */
#include "core_net.h"

enum { BYTES = 40000 };

static uint8_t source[BYTES];
static uint8_t memory[BYTES];

static void data_make(void)
{
    struct weft_prng prng;
    weft_prng_init(&prng, 1);
    for (uint32_t i = 0; i < BYTES; i++) {
        source[i] = (uint8_t)weft_prng_u64(&prng);
    }
    memset(memory, 0, sizeof(memory));
}

static void transfer(struct net *net, weft_peer peer)
{
    uint32_t before = net->end[1].received;
    data_make();
    net_message(net, 0, peer, 1, source, BYTES, memory);
    net_run(net, 200 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[1].received, before + 1);
    assert_memory_equal(memory, source, BYTES);
}

static struct net *connected(uint8_t mode, weft_peer *peer_p)
{
    struct net *net = net_new(mode, mode);
    *peer_p = net_connect(net, 0, 1);
    net_run(net, 50 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].ups, 1);
    assert_int_equal(net->end[1].ups, 1);
    return net;
}

static bool holds(const struct net_datagram *d, const uint8_t *needle, size_t count)
{
    for (size_t at = 0; at + count <= d->bytes; at++) {
        if (memcmp(d->data + at, needle, count) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- the modes ------------------------------------------------------------------------------- */

static void messages_pass_in_every_mode(void **state)
{
    (void)state;
    for (uint8_t mode = WEFT_MODE_NONE; mode <= WEFT_MODE_SEAL; mode++) {
        struct net *net = net_new(mode, mode);
        net->keep = true;
        weft_peer peer = net_connect(net, 0, 1);
        transfer(net, peer);
        uint32_t clear = 0;
        uint64_t packets = 0;
        for (uint32_t i = 0; i < net->kept_count; i++) {
            uint8_t klass = net->kept[i].data[0] & 15;
            clear += holds(&net->kept[i], source, 32);
            packets += klass <= WEFT_CLASS_SEAL;
            assert_true(klass > WEFT_CLASS_SEAL || klass == mode);
        }
        assert_int_equal(clear, mode == WEFT_MODE_SEAL ? 0 : 1);
        assert_int_equal(net_drops(net, 0) + net_drops(net, 1), 0);
        assert_true(net->kept_count < KEPT_MAX);
        if (mode != WEFT_MODE_NONE) { /* one call for each packet, and two for the handshake */
            assert_int_equal(weft_toy_crypto_sealed(net->end[0].toy) +
                                 weft_toy_crypto_sealed(net->end[1].toy),
                             packets + 2);
        }
        net_free(net);
    }
}

static void a_higher_mode_is_taken_and_a_lower_one_told(void **state)
{
    (void)state;
    for (uint8_t a = WEFT_MODE_NONE; a <= WEFT_MODE_SEAL; a++) {
        for (uint8_t b = WEFT_MODE_NONE; b <= WEFT_MODE_SEAL; b++) {
            struct net *net = net_new(a, b);
            weft_peer peer = net_connect(net, 0, 1);
            net_run(net, 100 * WEFT_NS_PER_MS);
            bool fits = a == b || (b == WEFT_MODE_AUTH && a == WEFT_MODE_SEAL);
            assert_int_equal(net->end[0].ups, fits);
            assert_int_equal(net->end[1].ups, fits);
            if (fits) {
                transfer(net, peer);
            } else {
                assert_true(net_counters(net, 1)->bad_mode > 0);
                assert_int_equal(weft_ep_hint(net->end[1].ep), WEFT_HINT_MODE);
                assert_int_equal(weft_ep_hint(net->end[0].ep), WEFT_HINT_TOLD_MODE);
            }
            net_free(net);
        }
    }
}

static void packets_of_a_lower_mode_are_dropped(void **state)
{
    (void)state;
    weft_peer peer;
    struct net *net = connected(WEFT_MODE_AUTH, &peer);
    const struct peer *p = inspect_peer(net->end[1].ep, net->end[1].peer);
    uint8_t bytes[64];
    struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
    struct weft_wire_packet header = {
        .flags = WEFT_FLAG_CONTROL, .connection_id = p->conn.id, .number = 1000};
    weft_wire_header_encode(&w, &header);
    weft_write_u16(&w, WEFT_CLOSE_BYTES);
    weft_wire_frame_encode(&w, &(struct weft_wire_frame){.type = WEFT_FRAME_CLOSE});
    net_deliver(net, &net->end[1], &net->end[0].addr, bytes, (size_t)(w.at - bytes));
    assert_int_equal(net_counters(net, 1)->bad_mode, 1);
    bytes[0] = WEFT_WIRE_VERSION << 4 | WEFT_CLASS_SEAL;
    net_deliver(net, &net->end[1], &net->end[0].addr, bytes, sizeof(bytes));
    assert_int_equal(net_counters(net, 1)->bad_mode, 2);
    assert_int_equal(net->end[1].downs, 0);
    transfer(net, peer);
    net_free(net);
}

/* ---- the attacker ---------------------------------------------------------------------------- */

/* State that a rejected datagram must not change. */
struct glimpse {
    uint64_t drops;
    uint32_t ups, downs, received, sent, half_open;
    struct peer peer;
};

static struct glimpse look(const struct net *net, uint32_t end)
{
    const struct net_end *e = &net->end[end];
    struct glimpse g;
    memset(&g, 0, sizeof(g)); /* compared as bytes */
    g.drops = net_drops(net, end);
    g.ups = e->ups;
    g.downs = e->downs;
    g.received = e->received;
    g.sent = e->sent;
    for (uint32_t i = 0; i < e->ep->peers_used; i++) {
        g.half_open += inspect_peer(e->ep, i)->conn.state == PEER_HALF_OPEN;
    }
    memcpy(&g.peer, inspect_peer(e->ep, 0), sizeof(g.peer));
    return g;
}

static void expect_dropped(struct net *net, uint32_t end, const struct weft_addr *from,
                           const uint8_t *bytes, size_t count)
{
    struct glimpse before = look(net, end);
    net_deliver(net, &net->end[end], from, bytes, count);
    struct glimpse after = look(net, end);
    if (after.drops != before.drops + 1) {
        fail_msg("class %u, %zu bytes: %d drops", bytes[0] & 15u, count,
                 (int)(after.drops - before.drops));
    }
    before.drops = after.drops;
    assert_memory_equal(&before, &after, sizeof(before));
}

/* A datagram captured by the tap: the first of a class to an end. */
struct catch
{
    uint8_t klass;
    uint32_t to;
    struct net_datagram caught;
};

static bool catch_tap(struct net *net, struct net_datagram *d)
{
    struct catch *c = net->tap_arg;
    bool match =
        (d->data[0] & 15) == c->klass && memcmp(&d->to, &net->end[c->to].addr, sizeof(d->to)) == 0;
    if (match && c->caught.data == NULL) {
        c->caught = *d;
        c->caught.data = malloc(d->bytes);
        memcpy(c->caught.data, d->data, d->bytes);
        return false;
    }
    /* drop all of these, because the second one would also work */
    return !match || c->klass != WEFT_CLASS_UNKNOWN;
}

/* Flip every bit and truncate to every length; then the real one is still accepted. */
static void abuse(struct net *net, const struct catch *c)
{
    const struct net_datagram *d = &c->caught;
    assert_non_null(d->data);
    for (size_t bit = 0; bit < 8 * (size_t)d->bytes; bit++) {
        d->data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        expect_dropped(net, c->to, &d->from, d->data, d->bytes);
        d->data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t count = 0; count < d->bytes; count++) {
        expect_dropped(net, c->to, &d->from, d->data, count);
    }
}

static void no_bit_of_a_handshake_can_be_changed(void **state)
{
    (void)state;
    static const struct catch cases[] = {
        {WEFT_CLASS_HELLO, 1, {0}}, {WEFT_CLASS_ACCEPT, 0, {0}}, {WEFT_CLASS_COOKIE, 0, {0}}};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(cases); i++) {
        struct catch c = cases[i];
        struct net *net = net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH);
        net->end[1].ep->config.half_open_max = c.klass == WEFT_CLASS_COOKIE ? 0 : 32;
        net->tap = catch_tap;
        net->tap_arg = &c;
        weft_peer peer = net_connect(net, 0, 1);
        net_run(net, 5 * WEFT_NS_PER_MS);
        abuse(net, &c);
        net_deliver(net, &net->end[c.to], &c.caught.from, c.caught.data, c.caught.bytes);
        net_run(net, 5 * WEFT_NS_PER_MS); /* before HELLO is repeated */
        assert_int_equal(net->end[0].ups, 1);
        transfer(net, peer);
        free(c.caught.data);
        net_free(net);
    }
}

static void no_bit_of_a_packet_can_be_changed(void **state)
{
    (void)state;
    for (uint8_t mode = WEFT_MODE_AUTH; mode <= WEFT_MODE_SEAL; mode++) {
        for (uint32_t to = 0; to < 2; to++) {
            weft_peer peer;
            struct net *net = connected(mode, &peer);
            struct catch c = {mode, to, {0}};
            data_make();
            net_message(net, 0, peer, 1, source, BYTES, memory);
            net->tap = catch_tap;
            net->tap_arg = &c;
            net_run(net, 30000); /* the window is sent and not yet acknowledged */
            net->tap = NULL;
            if (c.caught.data == NULL) {
                net->tap = catch_tap;
                net_run(net, 60000);
            }
            abuse(net, &c);
            net_run(net, 200 * WEFT_NS_PER_MS);
            assert_memory_equal(memory, source, BYTES);
            free(c.caught.data);
            net_free(net);
        }
    }
}

static void replays_change_nothing(void **state)
{
    (void)state;
    for (uint8_t mode = WEFT_MODE_AUTH; mode <= WEFT_MODE_SEAL; mode++) {
        weft_peer peer;
        struct net *net = connected(mode, &peer);
        net->keep = true;
        transfer(net, peer);
        net->keep = false;
        assert_true(net->kept_count > 20);
        for (uint32_t i = 0; i < net->kept_count; i++) {
            const struct net_datagram *d = &net->kept[i];
            uint32_t to = memcmp(&d->to, &net->end[1].addr, sizeof(d->to)) == 0;
            expect_dropped(net, to, &d->from, d->data, d->bytes);
        }
        transfer(net, peer);
        net_free(net);
    }
}

/* A packet that was verified but not acknowledged (no memory was posted) must not be accepted twice
 * either: its frames have taken effect. */
static void a_replay_of_what_was_not_acknowledged_is_a_duplicate(void **state)
{
    (void)state;
    weft_peer peer;
    struct net *net = connected(WEFT_MODE_AUTH, &peer);
    struct weft_msg_send send = {
        .peer = peer, .base = source, .total = 1, .elem_bytes = 4, .deadline_ns = WEFT_NEVER};
    uint64_t seq;
    net->keep = true;
    assert_int_equal(net->end[0].msgr.ops->send(net->end[0].msgr.self, &send, net->now_ns, &seq),
                     WEFT_OK);
    net_run(net, 100000);
    assert_true(net_counters(net, 1)->no_memory > 0);
    assert_true(net->kept_count > 0);
    expect_dropped(net, 1, &net->kept[0].from, net->kept[0].data, net->kept[0].bytes);
    net_free(net);
}

/* ---- keys that do not fit -------------------------------------------------------------------- */

static void another_job_key_is_told_at_both_ends(void **state)
{
    (void)state;
    struct net *net = net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH);
    struct weft_ep_config config;
    net_end_close(&net->end[0]);
    net_config(&config, WEFT_MODE_AUTH);
    config.psk[31] ^= 1;
    net_open(net, 0, &config);
    net_connect(net, 0, 1);
    net_run(net, 10 * WEFT_NS_PER_S);
    assert_int_equal(net->end[0].ups + net->end[1].ups, 0);
    assert_int_equal(net->end[0].downs, 1);
    assert_int_equal(net->end[0].why, WEFT_DOWN_SILENT); /* the unauthenticated notice was only a
                                                          * hint */
    assert_true(net_counters(net, 1)->bad_key > 0);
    assert_true(net_counters(net, 0)->refused > 0);
    assert_int_equal(weft_ep_hint(net->end[0].ep), WEFT_HINT_TOLD_KEY);
    assert_int_equal(weft_ep_hint(net->end[1].ep), WEFT_HINT_KEY);
    assert_int_equal(weft_toy_crypto_dhs(net->end[1].toy), 0);
    net_free(net);
}

static bool version_tap(struct net *net, struct net_datagram *d)
{
    uint8_t klass = d->data[0] & 15;
    if (klass == WEFT_CLASS_HELLO || klass == WEFT_CLASS_REFUSED) {
        d->data[0] = (uint8_t)(*(const uint8_t *)net->tap_arg << 4 | klass);
    }
    return true;
}

static void another_version_is_told_at_both_ends(void **state)
{
    (void)state;
    /* 1: the version of release 0.1.0 */
    static const uint8_t versions[] = {1, WEFT_WIRE_VERSION + 1, 15};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(versions); i++) {
        struct net *net = net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH);
        uint8_t version = versions[i];
        net->tap = version_tap;
        net->tap_arg = &version;
        net_connect(net, 0, 1);
        net_run(net, 100 * WEFT_NS_PER_MS);
        assert_true(net_counters(net, 1)->bad_version > 0);
        assert_int_equal(net_counters(net, 1)->bad_packet, 0);
        assert_int_equal(weft_ep_hint(net->end[1].ep), WEFT_HINT_VERSION);
        assert_int_equal(weft_ep_hint(net->end[0].ep), WEFT_HINT_TOLD_VERSION);
        net_free(net);
    }
}

static void a_closed_or_full_end_says_so(void **state)
{
    (void)state;
    struct net *net = net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH);
    net->end[1].ep->config.accept = 0;
    net_connect(net, 0, 1);
    net_run(net, 100 * WEFT_NS_PER_MS);
    assert_int_equal(weft_ep_hint(net->end[0].ep), WEFT_HINT_TOLD_CLOSED);
    net_free(net);

    net = net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH);
    struct weft_ep_config config;
    net_end_close(&net->end[1]);
    net_config(&config, WEFT_MODE_AUTH);
    config.peers_max = 1;
    net_open(net, 1, &config);
    net_connect(net, 0, 1);
    net_run(net, 100 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[1].ups, 1);
    net_config(&config, WEFT_MODE_AUTH);
    config.incarnation = 77;
    net_open(net, 2, &config);
    net_connect(net, 2, 1);
    net_run(net, 100 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[2].ups, 0);
    assert_int_equal(weft_ep_hint(net->end[2].ep), WEFT_HINT_TOLD_FULL);
    assert_int_equal(net->end[1].downs, 0);
    net_free(net);
}

static void every_hint_has_a_sentence(void **state)
{
    (void)state;
    for (int h = WEFT_HINT_KEY; h <= WEFT_HINT_TOLD_CLOSED; h++) {
        assert_true(strlen(weft_ep_hint_text((enum weft_ep_hint)h)) > 20);
    }
    assert_string_equal(weft_ep_hint_text(WEFT_HINT_NONE), "");
}

/* ---- handshakes under stress ----------------------------------------------------------------- */

static bool accept_loss_tap(struct net *net, struct net_datagram *d)
{
    uint32_t *left = net->tap_arg;
    bool drop = (d->data[0] & 15) == WEFT_CLASS_ACCEPT && *left > 0;
    *left -= drop;
    return !drop;
}

/* The toy asserts that no two messages are made under one handshake key. */
static void repeated_hellos_make_one_session(void **state)
{
    (void)state;
    struct net *net = net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH);
    uint32_t losses = 4;
    net->tap = accept_loss_tap;
    net->tap_arg = &losses;
    weft_peer peer = net_connect(net, 0, 1);
    net_run(net, WEFT_NS_PER_S);
    assert_int_equal(losses, 0);
    assert_int_equal(net->end[0].ups, 1);
    assert_int_equal(net->end[1].ups, 1);
    assert_int_equal(weft_toy_crypto_dhs(net->end[1].toy), 1);
    transfer(net, peer);
    net_free(net);
}

/* Handshakes reach end 1; other packets do not. */
static bool cut_to_server_tap(struct net *net, struct net_datagram *d)
{
    return (d->data[0] & 15) > WEFT_CLASS_SEAL || d->to.bytes[0] != net->end[1].addr.bytes[0];
}

/* The same address, incarnation and connection id, but another HELLO: not a retransmission. */
static void another_hello_of_the_same_name_changes_nothing(void **state)
{
    (void)state;
    weft_peer peer;
    struct net *net = connected(WEFT_MODE_AUTH, &peer);
    struct net_end old = net->end[0];
    struct weft_ep_config config;
    net->end[0] = (struct net_end){0};
    net_config(&config, WEFT_MODE_AUTH);
    config.incarnation = 10;
    net->end[0].toy = weft_toy_crypto_new(12345, weft_ep_crypto_slots(config.peers_max));
    net_open(net, 0, &config);
    weft_peer twin = net_connect(net, 0, 1);
    inspect_peer(net->end[0].ep, twin)->conn.id = inspect_peer(old.ep, peer)->conn.id;
    net_run(net, 100 * WEFT_NS_PER_MS);
    assert_true(net_counters(net, 1)->hello_refused > 0);
    assert_int_equal(net->end[0].ups, 0);
    net_end_close(&net->end[0]);
    net->end[0] = old;
    transfer(net, peer);
    assert_int_equal(net->end[1].downs, 0);
    net_free(net);
}

struct flood {
    uint64_t in;
    uint64_t out;
    uint32_t cookies;
};

/* The bytes sent to a spoofed address must not exceed those received from it, in total. */
static bool flood_tap(struct net *net, struct net_datagram *d)
{
    struct flood *f = net->tap_arg;
    uint32_t host;
    memcpy(&host, d->to.bytes, sizeof(host));
    if (host >= 1000) {
        f->out += d->bytes;
        f->cookies += (d->data[0] & 15) == WEFT_CLASS_COOKIE;
        assert_true(d->bytes <= WEFT_HELLO_BYTES);
        return false;
    }
    return true;
}

static uint32_t half_open(const struct weft_ep *ep)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < ep->peers_used; i++) {
        count += inspect_peer(ep, i)->conn.state == PEER_HALF_OPEN;
    }
    return count;
}

static void a_flood_of_hellos_grows_nothing(void **state)
{
    (void)state;
    enum { FLOOD = 20000 };
    struct net *net = net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH);
    struct flood f = {0};
    net->end[1].ep->config.half_open_max = 4;
    net->keep = true;
    weft_peer peer = net_connect(net, 0, 1);
    net_run(net, 10 * WEFT_NS_PER_MS);
    net->keep = false;
    assert_int_equal(net->kept[0].data[0] & 15, WEFT_CLASS_HELLO);
    net->tap = flood_tap;
    net->tap_arg = &f;
    for (uint32_t i = 0; i < FLOOD; i++) {
        struct weft_addr from = net_addr(1000 + i);
        net_deliver(net, &net->end[1], &from, net->kept[0].data, net->kept[0].bytes);
        f.in += net->kept[0].bytes;
        assert_true(half_open(net->end[1].ep) <= 4);
        net_run(net, 10000);
    }
    assert_true(f.out <= f.in && f.cookies > FLOOD / 2);
    assert_int_equal(weft_toy_crypto_dhs(net->end[1].toy), 1 + 4);
    assert_int_equal(net->end[1].downs, 0);
    transfer(net, peer); /* the live connection works */
    /* A new peer with a real address can connect. */
    struct weft_ep_config config;
    net_config(&config, WEFT_MODE_AUTH);
    config.incarnation = 77;
    net_open(net, 2, &config);
    net_connect(net, 2, 1);
    net_run(net, 10 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[2].ups, 1);
    net_run(net, 20 * WEFT_NS_PER_S);
    assert_int_equal(half_open(net->end[1].ep), 0); /* and the half-open handshakes time out */
    net_free(net);
}

/* Each HELLO without a cookie costs a search of the table. With too many of them even a
 * retransmission needs a cookie first. */
static void copies_of_a_hello_are_not_all_searched_for(void **state)
{
    (void)state;
    enum { COPIES = 1500, SEARCHES = 1000 };
    struct net *net = net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH);
    struct flood f = {0};
    net->keep = true;
    net->tap = cut_to_server_tap;
    net_connect(net, 0, 1);
    net_run(net, 2 * WEFT_NS_PER_MS);
    net->keep = false;
    const struct net_datagram *hello = &net->kept[0];
    assert_int_equal(hello->data[0] & 15, WEFT_CLASS_HELLO);
    assert_int_equal(half_open(net->end[1].ep), 1);
    net->tap = flood_tap;
    net->tap_arg = &f;
    uint64_t before = net_counters(net, 1)->cookies_sent;
    for (uint32_t i = 0; i < COPIES; i++) { /* from the true address: the search finds the peer */
        net_deliver(net, &net->end[1], &net->end[0].addr, hello->data, hello->bytes);
        net_run(net, 1000);
    }
    uint64_t cookies = net_counters(net, 1)->cookies_sent - before;
    assert_in_range(cookies, COPIES - SEARCHES - 10, COPIES - SEARCHES + 10);
    net_run(net, 10 * WEFT_NS_PER_MS); /* with the cookie the handshake succeeds nevertheless */
    assert_int_equal(net->end[0].ups, 1);
    assert_int_equal(net->end[1].ups, 1);
    net_free(net);
}

/* The cookie proves the address of the first copy only. */
static void copies_of_a_hello_with_its_cookie_are_limited(void **state)
{
    (void)state;
    enum { COPIES = 3000, SEARCHES = 1000 };
    struct net *net = net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH);
    const struct net_datagram *hello = NULL;
    net->end[1].ep->config.half_open_max = 0; /* a cookie is demanded */
    net->keep = true;
    weft_peer peer = net_connect(net, 0, 1);
    net_run(net, 10 * WEFT_NS_PER_MS);
    net->keep = false;
    assert_int_equal(net->end[1].ups, 1);
    for (uint32_t i = 1; i < net->kept_count; i++) {
        if ((net->kept[i].data[0] & 15) == WEFT_CLASS_HELLO) {
            hello = &net->kept[i];
        }
    }
    assert_non_null(hello);
    const uint64_t before = net_counters(net, 1)->hello_refused;
    for (uint32_t i = 0; i < COPIES; i++) {
        net_deliver(net, &net->end[1], &net->end[0].addr, hello->data, hello->bytes);
        net_run(net, 1000);
    }
    assert_in_range(net_counters(net, 1)->hello_refused - before, COPIES - SEARCHES - 10,
                    COPIES - SEARCHES);
    transfer(net, peer);
    /* Other ends connect as before. */
    struct weft_ep_config config;
    net_config(&config, WEFT_MODE_AUTH);
    config.incarnation = 77;
    net_open(net, 2, &config);
    net_connect(net, 2, 1);
    net_run(net, 10 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[2].ups, 1);
    net_free(net);
}

enum { COOKIES_KEPT = 65 }; /* two of them have the same first byte modulo 64 */

struct cookies {
    uint8_t hello[COOKIES_KEPT][WEFT_HELLO_BYTES];
    uint8_t cookie[COOKIES_KEPT][WEFT_COOKIE_VALUE_BYTES];
    uint32_t count;
};

/* Keeps the first HELLO with each cookie. The server gets no HELLO with a cookie from the net. */
static bool cookie_tap(struct net *net, struct net_datagram *d)
{
    static const uint8_t none[WEFT_COOKIE_VALUE_BYTES];
    struct cookies *c = net->tap_arg;
    struct weft_wire_hello hello;
    if ((d->data[0] & 15) != WEFT_CLASS_HELLO ||
        weft_wire_hello_decode(d->data, d->bytes, &hello) != WEFT_OK ||
        memcmp(hello.cookie, none, sizeof(none)) == 0) {
        return true;
    }
    bool is_new = c->count < COOKIES_KEPT;
    for (uint32_t i = 0; i < c->count; i++) {
        is_new &= memcmp(c->cookie[i], hello.cookie, sizeof(hello.cookie)) != 0;
    }
    if (is_new) {
        memcpy(c->hello[c->count], d->data, WEFT_HELLO_BYTES);
        memcpy(c->cookie[c->count], hello.cookie, sizeof(hello.cookie));
        c->count++;
    }
    return false;
}

/* Copies of one HELLO do not keep out initiators with other cookies, whatever these are; and
 * copies of two HELLOs in turn are limited, too. */
static void copies_of_a_hello_affect_no_other_cookie(void **state)
{
    (void)state;
    enum { COPIES = 1500, TURNS = 100 };
    static struct cookies c;
    struct net *net = net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH);
    uint32_t a = 0, b = 0;
    for (uint32_t end = 0; end < 2; end++) {
        struct weft_ep_config config;
        net_end_close(&net->end[end]);
        net_config(&config, WEFT_MODE_AUTH);
        config.peers_max = 2 * COOKIES_KEPT;
        net_open(net, end, &config);
    }
    net->end[1].ep->config.half_open_max = 0; /* a cookie is demanded */
    c.count = 0;
    net->tap = cookie_tap;
    net->tap_arg = &c;
    for (uint32_t i = 0; i < COOKIES_KEPT; i++) {
        net_connect(net, 0, 1);
        net_run(net, WEFT_NS_PER_MS);
    }
    assert_int_equal(c.count, COOKIES_KEPT);
    for (uint32_t i = 0; i < c.count; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (c.cookie[i][0] % 64 == c.cookie[j][0] % 64) {
                a = i;
                b = j;
            }
        }
    }
    assert_true(a != b);
    const struct weft_addr *from = &net->end[0].addr;
    for (uint32_t i = 0; i < COPIES; i++) { /* more than are searched for without a limit */
        net_deliver(net, &net->end[1], from, c.hello[a], WEFT_HELLO_BYTES);
        net_run(net, 1000);
    }
    uint64_t before = net_counters(net, 1)->hello_refused;
    assert_true(before > 0);
    assert_int_equal(net->end[1].ep->peers_used, 1);
    for (uint32_t i = 0; i < COOKIES_KEPT; i++) { /* one batch: all at the same time */
        if (i != a) {
            net_deliver(net, &net->end[1], from, c.hello[i], WEFT_HELLO_BYTES);
        }
    }
    assert_int_equal(net_counters(net, 1)->hello_refused, before);
    assert_int_equal(net->end[1].ep->peers_used, COOKIES_KEPT);
    for (uint32_t i = 0; i < TURNS; i++) {
        net_deliver(net, &net->end[1], from, c.hello[i % 2 == 0 ? a : b],
                    WEFT_HELLO_BYTES);
    }
    assert_in_range(net_counters(net, 1)->hello_refused - before, TURNS - 4, TURNS);
    net_free(net);
}

/* A job starts: 64 HELLOs in one batch, and a cookie is demanded of all. */
static void a_batch_of_hellos_is_answered_as_a_whole(void **state)
{
    (void)state;
    enum { STARTING = 64 };
    struct net *net = net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH);
    struct flood f = {0};
    net->end[1].ep->config.half_open_max = 0;
    net->keep = true;
    net->tap = cut_to_server_tap;
    net_connect(net, 0, 1);
    net_pump(net);
    net->keep = false;
    net->tap = flood_tap;
    net->tap_arg = &f;
    assert_int_equal(net->kept[0].data[0] & 15, WEFT_CLASS_HELLO);
    for (uint32_t i = 0; i < STARTING; i++) {
        struct weft_addr from = net_addr(1000 + i);
        net_deliver(net, &net->end[1], &from, net->kept[0].data, net->kept[0].bytes);
    }
    net_pump(net);
    assert_int_equal(f.cookies, STARTING);
    net_free(net);
}

static void a_full_table_never_gives_up_a_live_peer(void **state)
{
    (void)state;
    struct net *net = net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH);
    struct weft_ep_config config;
    struct flood f = {0};
    net_end_close(&net->end[1]);
    net_config(&config, WEFT_MODE_AUTH);
    config.peers_max = 1;
    net_open(net, 1, &config);
    net->keep = true;
    weft_peer peer = net_connect(net, 0, 1);
    net_run(net, 10 * WEFT_NS_PER_MS);
    net->keep = false;
    net->tap = flood_tap;
    net->tap_arg = &f;
    net_run(net, 20 * WEFT_NS_PER_S); /* silent for longer than the peer timeout, but alive */
    for (uint32_t i = 0; i < 1000; i++) {
        struct weft_addr from = net_addr(1000 + i);
        net_deliver(net, &net->end[1], &from, net->kept[0].data, net->kept[0].bytes);
        net_run(net, 1000000);
    }
    assert_int_equal(net->end[1].downs, 0);
    transfer(net, peer);
    net_free(net);
}

/* Handshakes with a proven address are not evicted, however long they take. */
static void the_unproven_make_room_first(void **state)
{
    (void)state;
    struct net *net = net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH);
    struct weft_ep_config config;
    struct flood f = {0};
    net_end_close(&net->end[1]);
    net_config(&config, WEFT_MODE_AUTH);
    config.peers_max = 8;
    config.half_open_max = 0;
    net_open(net, 1, &config);
    net->keep = true;
    net->tap = cut_to_server_tap;
    net_connect(net, 0, 1);
    net_run(net, 2 * WEFT_NS_PER_MS);
    net->keep = false;
    struct weft_ep *ep = net->end[1].ep;
    assert_int_equal(half_open(ep), 1);
    assert_true(inspect_peer(ep, 0)->sec.proven);
    ep->config.half_open_max = 2;
    net->tap = flood_tap;
    net->tap_arg = &f;
    struct weft_addr invented = net_addr(1000);
    net_deliver(net, &net->end[1], &invented, net->kept[0].data, net->kept[0].bytes);
    assert_int_equal(half_open(ep), 2);
    net->tap = cut_to_server_tap;
    net_config(&config, WEFT_MODE_AUTH);
    config.incarnation = 77;
    net_open(net, 2, &config);
    for (int i = 0; i < 7; i++) { /* six fill the table; the seventh needs a slot */
        net_connect(net, 2, 1);
        net_run(net, 2 * WEFT_NS_PER_MS);
    }
    assert_int_equal(half_open(ep), 8);
    assert_memory_equal(&inspect_peer(ep, 0)->conn.addr, &net->end[0].addr,
                        sizeof(struct weft_addr));
    assert_memory_equal(&inspect_peer(ep, 1)->conn.addr, &net->end[2].addr,
                        sizeof(struct weft_addr));
    net_free(net);
}

static void a_cookie_is_good_for_one_address_and_a_while(void **state)
{
    (void)state;
    struct net *net = net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH);
    net->end[1].ep->config.half_open_max = 0;
    net->keep = true;
    net_connect(net, 0, 1);
    net_run(net, 10 * WEFT_NS_PER_MS);
    net->keep = false;
    assert_int_equal(net->end[1].ups, 1);
    assert_int_equal(net_counters(net, 1)->cookies_sent, 1);
    const struct net_datagram *hello = &net->kept[2]; /* HELLO, COOKIE, HELLO with it */
    assert_int_equal(hello->data[0] & 15, WEFT_CLASS_HELLO);
    struct weft_addr other = net_addr(1000);
    weft_ep_close(net->end[0].ep, 0, net->now_ns);
    net_run(net, 10 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[1].downs, 1);

    net_deliver(net, &net->end[1], &other, hello->data, hello->bytes);
    assert_int_equal(half_open(net->end[1].ep), 0);
    net_deliver(net, &net->end[1], &net->end[0].addr, hello->data, hello->bytes);
    assert_int_equal(half_open(net->end[1].ep), 1);
    net_run(net, 65 * WEFT_NS_PER_S);
    net_deliver(net, &net->end[1], &other, hello->data, hello->bytes); /* draws a new secret */
    net_deliver(net, &net->end[1], &net->end[0].addr, hello->data, hello->bytes);
    assert_int_equal(half_open(net->end[1].ep), 1); /* the previous secret is valid */
    net_run(net, 65 * WEFT_NS_PER_S);
    net_deliver(net, &net->end[1], &other, hello->data, hello->bytes);
    net_deliver(net, &net->end[1], &net->end[0].addr, hello->data, hello->bytes);
    assert_int_equal(half_open(net->end[1].ep), 0); /* the one before it is not */
    net_free(net);
}

/* ---- restarts -------------------------------------------------------------------------------- */

static void restart(struct net *net, uint32_t end, uint64_t incarnation, uint8_t mode)
{
    struct weft_ep_config config;
    net_end_close(&net->end[end]);
    net_config(&config, mode);
    config.incarnation = incarnation;
    config.seed = incarnation;
    net_open(net, end, &config);
}

static void a_restarted_server_says_unknown(void **state)
{
    (void)state;
    weft_peer peer;
    struct net *net = connected(WEFT_MODE_AUTH, &peer);
    transfer(net, peer);
    restart(net, 1, 99, WEFT_MODE_AUTH);
    data_make();
    net_message(net, 0, peer, 1, source, BYTES, memory);
    net_run(net, 10 * WEFT_NS_PER_MS); /* without waiting for a timeout of seconds */
    assert_int_equal(net->end[0].downs, 1);
    assert_int_equal(net->end[0].why, WEFT_DOWN_RESTARTED);
    assert_int_equal(net->end[0].outcome, WEFT_MSG_UNKNOWN);
    assert_true(net_counters(net, 1)->unknown_sent > 0);
    peer = net_connect(net, 0, 1);
    net_run(net, 10 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].ups, 2);
    net_free(net);
}

static void unknown_is_believed_only_from_a_key_holder_about_news(void **state)
{
    (void)state;
    weft_peer peer;
    struct net *net = connected(WEFT_MODE_AUTH, &peer);
    transfer(net, peer);
    const struct peer *p = inspect_peer(net->end[0].ep, peer);
    struct catch c = {WEFT_CLASS_UNKNOWN, 0, {0}};
    struct weft_toy_crypto *old_toy = net->end[1].toy;
    struct weft_ep *old = net->end[1].ep;
    net->end[1].toy = NULL;
    struct weft_ep_config config;
    net_config(&config, WEFT_MODE_AUTH);
    config.incarnation = 99;
    net_open(net, 1, &config);
    net->tap = catch_tap;
    net->tap_arg = &c;
    net_message(net, 0, peer, 1, source, BYTES, memory);
    net_run(net, 50000);
    /* A change of any bit is rejected. */
    assert_int_equal(net->end[0].downs, 0);
    net->tap = NULL;
    abuse(net, &c);
    /* An UNKNOWN of a server with another name is rejected. */
    uint64_t name = p->conn.name;
    ((struct peer *)p)->conn.name = 5;
    expect_dropped(net, 0, &c.caught.from, c.caught.data, c.caught.bytes);
    ((struct peer *)p)->conn.name = name;
    /* So is an UNKNOWN about an acknowledged packet, because the server knew that connection. */
    uint64_t acked = p->recovery.pn_acked_largest;
    ((struct peer *)p)->recovery.pn_acked_largest = p->recovery.pn_next - 1;
    expect_dropped(net, 0, &c.caught.from, c.caught.data, c.caught.bytes);
    ((struct peer *)p)->recovery.pn_acked_largest = acked;
    net_deliver(net, &net->end[0], &c.caught.from, c.caught.data, c.caught.bytes);
    assert_int_equal(net->end[0].why, WEFT_DOWN_RESTARTED);
    weft_ep_free(old);
    weft_toy_crypto_free(old_toy);
    free(c.caught.data);
    net_free(net);
}

static void open_named(struct net *net, uint32_t end, uint64_t name, uint64_t incarnation)
{
    struct weft_ep_config config;
    net_end_close(&net->end[end]);
    net_config(&config, WEFT_MODE_AUTH);
    config.name = name;
    config.incarnation = incarnation;
    config.seed = incarnation;
    net_open(net, end, &config);
}

/* If both ends have the same name (a server and its replica), an UNKNOWN that an attacker made one
 * of them send to itself would be accepted as from the other. */
static void unknown_of_ones_own_name_is_no_proof(void **state)
{
    (void)state;
    for (uint64_t name = 7; name <= 8; name++) {
        struct net *net = net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH);
        open_named(net, 0, 7, 1);
        open_named(net, 1, name, 2);
        weft_peer peer = net_connect(net, 0, 1);
        net_run(net, 10 * WEFT_NS_PER_MS);
        transfer(net, peer);
        open_named(net, 1, name, 99);
        data_make();
        net_message(net, 0, peer, 1, source, BYTES, memory);
        net_run(net, 10 * WEFT_NS_PER_MS);
        assert_true(net_counters(net, 1)->unknown_sent > 0);
        assert_int_equal(net->end[0].downs, name == 7 ? 0 : 1);
        net_free(net);
    }
}

/* Two jobs with one key have a server of the same name each. An observer forwards the client's last
 * packet to the other server, and its UNKNOWN to the client, which accepts it only from a process
 * that may have taken the place of its server: not from one that started earlier. */
static void unknown_of_an_earlier_process_is_no_proof(void **state)
{
    (void)state;
    static const uint64_t started = UINT64_C(1) << 62, ms = UINT64_C(1) << 22;
    for (uint64_t earlier = 0; earlier < 2; earlier++) {
        struct net *net = net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH);
        open_named(net, 0, 7, started);
        open_named(net, 1, 8, started);
        weft_peer peer = net_connect(net, 0, 1);
        net_run(net, 10 * WEFT_NS_PER_MS);
        transfer(net, peer);
        open_named(net, 1, 8, earlier ? started - ms : started + ms);
        data_make();
        net_message(net, 0, peer, 1, source, BYTES, memory);
        net_run(net, 10 * WEFT_NS_PER_MS);
        assert_true(net_counters(net, 1)->unknown_sent > 0);
        assert_int_equal(net->end[0].downs, earlier ? 0 : 1);
        net_free(net);
    }
}

/* A standby process never sends UNKNOWN: it has the name of the active one, whose connections it
 * does not know. */
static void a_standby_says_unknown_when_it_serves(void **state)
{
    (void)state;
    weft_peer peer;
    struct weft_ep_config config;
    struct net *net = connected(WEFT_MODE_AUTH, &peer);
    transfer(net, peer);
    net_end_close(&net->end[1]);
    net_config(&config, WEFT_MODE_AUTH);
    config.incarnation = config.seed = 99;
    config.is_standby = 1;
    net_open(net, 1, &config);
    data_make();
    net_message(net, 0, peer, 1, source, BYTES, memory);
    net_run(net, 10 * WEFT_NS_PER_MS);
    assert_int_equal(net_counters(net, 1)->unknown_sent, 0);
    assert_int_equal(net->end[0].downs, 0);
    weft_ep_serve(net->end[1].ep);
    net_run(net, WEFT_NS_PER_S);
    assert_int_equal(net->end[0].why, WEFT_DOWN_RESTARTED);
    net_free(net);
}

static void unknown_answers_nothing_short_known_or_in_clear(void **state)
{
    (void)state;
    for (uint8_t mode = WEFT_MODE_NONE; mode <= WEFT_MODE_AUTH; mode++) {
        weft_peer peer;
        struct net *net = connected(mode, &peer);
        const struct peer *p = inspect_peer(net->end[1].ep, net->end[1].peer);
        uint8_t bytes[40] = {0};
        struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
        struct weft_wire_packet header = {.klass = mode, .flags = WEFT_FLAG_DATA, .number = 1};
        header.connection_id = p->conn.id;
        weft_wire_header_encode(&w, &header);
        struct weft_addr other = net_addr(1000);
        /* a known connection, from another address */
        net_deliver(net, &net->end[1], &other, bytes, 40);
        assert_int_equal(net_counters(net, 1)->unknown_sent, 0);
        bytes[7] ^= 1; /* an unknown connection, but too short */
        net_deliver(net, &net->end[1], &other, bytes, WEFT_UNKNOWN_BYTES - 1);
        assert_int_equal(net_counters(net, 1)->unknown_sent, 0);
        for (int i = 0; i < 10000; i++) {
            net_deliver(net, &net->end[1], &other, bytes, 40);
            net_run(net, 1000);
        }
        uint64_t sent = net_counters(net, 1)->unknown_sent;
        assert_true(mode == WEFT_MODE_NONE ? sent == 0 : sent >= 100 && sent <= 140);
        net_free(net);
    }
}

/* A client died and reconnected from its address, or an attacker replays its old HELLO. */
static void a_new_session_replaces_the_old_one_at_its_first_packet(void **state)
{
    (void)state;
    for (uint8_t mode = WEFT_MODE_NONE; mode <= WEFT_MODE_SEAL; mode++) {
        weft_peer peer;
        struct net *net = connected(mode, &peer);
        restart(net, 0, 98, mode);
        net->tap = cut_to_server_tap; /* HELLO arrives, other packets do not */
        peer = net_connect(net, 0, 1);
        net_run(net, 5 * WEFT_NS_PER_MS);
        assert_int_equal(net->end[1].downs, 0);
        assert_int_equal(half_open(net->end[1].ep), 1);
        net->tap = NULL;
        transfer(net, peer);
        assert_int_equal(net->end[1].downs, 1);
        assert_int_equal(net->end[1].why, WEFT_DOWN_RESTARTED);
        assert_int_equal(net->end[1].ups, 2);
        net_free(net);
    }
}

static void crossing_connections_do_not_replace_each_other(void **state)
{
    (void)state;
    struct net *net = net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH);
    net->end[0].ep->config.accept = 1;
    weft_peer peer = net_connect(net, 0, 1);
    net_connect(net, 1, 0);
    net_run(net, 50 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].ups, 2);
    assert_int_equal(net->end[1].ups, 2);
    assert_int_equal(net->end[0].downs + net->end[1].downs, 0);
    transfer(net, peer);
    net_free(net);
}

/* ---- key phases ------------------------------------------------------------------------------ */

static struct net *rotating(uint8_t mode, uint64_t packets, weft_peer *peer_p)
{
    struct net *net = connected(mode, peer_p);
    net->end[0].ep->rekey_packets = packets;
    net->end[1].ep->rekey_packets = packets;
    return net;
}

static void keys_are_replaced_on_the_way(void **state)
{
    (void)state;
    for (uint8_t mode = WEFT_MODE_AUTH; mode <= WEFT_MODE_SEAL; mode++) {
        weft_peer peer;
        struct net *net = rotating(mode, 3, &peer);
        for (int i = 0; i < 10; i++) {
            transfer(net, peer);
        }
        assert_true(net_counters(net, 0)->rekeys > 8);
        assert_true(net_counters(net, 1)->rekeys > 2);
        assert_int_equal(net_drops(net, 0) + net_drops(net, 1), 0);
        const struct peer *a = inspect_peer(net->end[0].ep, peer);
        const struct peer *b = inspect_peer(net->end[1].ep, net->end[1].peer);
        assert_true(b->sec.generation >= net_counters(net, 0)->rekeys - 1);
        /* The newest key may not have sealed a packet yet. */
        assert_true(a->sec.generation + 1 >= net_counters(net, 1)->rekeys);
        net_free(net);
    }
}

static bool no_acks_tap(struct net *net, struct net_datagram *d)
{
    return memcmp(&d->to, &net->end[0].addr, sizeof(d->to)) != 0;
}

static void one_rotation_at_a_time_is_unacknowledged(void **state)
{
    (void)state;
    weft_peer peer;
    struct net *net = rotating(WEFT_MODE_AUTH, 3, &peer);
    transfer(net, peer);
    uint64_t before = net_counters(net, 0)->rekeys;
    net->tap = no_acks_tap;
    data_make();
    net_message(net, 0, peer, 1, source, BYTES, memory);
    net_run(net, WEFT_NS_PER_S);
    assert_true(net_counters(net, 0)->rekeys <= before + 1);
    net->tap = NULL;
    net_run(net, 2 * WEFT_NS_PER_S);
    assert_memory_equal(memory, source, BYTES);
    net_free(net);
}

/* Deliver the first `count` captured packets after the rest. */
static void the_old_key_opens_late_packets_for_three_ptos(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        weft_peer peer;
        struct net *net = rotating(WEFT_MODE_AUTH, 40, &peer);
        struct catch c = {WEFT_CLASS_AUTH, 1, {0}};
        net->tap = catch_tap;
        net->tap_arg = &c;
        transfer(net, peer); /* its first packet is delayed */
        net->tap = NULL;
        const struct peer *b = inspect_peer(net->end[1].ep, net->end[1].peer);
        uint32_t generation = b->sec.generation;
        for (int i = 0; b->sec.generation == generation; i++) {
            net_message(net, 0, peer, 1, source, BYTES, memory);
            while (b->sec.generation == generation && net_step(net, WEFT_NEVER)) {
            }
            assert_true(i < 5);
        }
        assert_int_equal(b->sec.generation, generation + 1);
        if (late) {
            net_run(net, 50 * WEFT_NS_PER_MS);
            assert_int_equal(b->sec.generation, generation + 1);
        }
        uint64_t opened = weft_toy_crypto_opened(net->end[1].toy);
        uint64_t old = net_counters(net, 1)->old_packets;
        net_deliver(net, &net->end[1], &c.caught.from, c.caught.data, c.caught.bytes);
        assert_int_equal(weft_toy_crypto_opened(net->end[1].toy), opened + !late);
        assert_int_equal(net_counters(net, 1)->old_packets, old + (uint64_t)late);
        assert_int_equal(net_counters(net, 1)->bad_tag, 0);
        free(c.caught.data);
        net_free(net);
    }
}

/* ---- a provider that fails (after a fork, say) ----------------------------------------------- */

static void a_failing_provider_takes_the_peer_down(void **state)
{
    (void)state;
    for (uint32_t end = 0; end < 2; end++) {
        weft_peer peer;
        struct net *net = connected(WEFT_MODE_SEAL, &peer);
        data_make();
        net_message(net, 0, peer, 1, source, BYTES, memory);
        weft_toy_crypto_fail(net->end[end].toy, WEFT_STATE);
        net_run(net, 100 * WEFT_NS_PER_MS);
        assert_int_equal(net->end[end].downs, 1);
        assert_int_equal(net->end[end].why, WEFT_DOWN_CRYPTO);
        assert_true(net_counters(net, end)->crypto_failures > 0);
        assert_int_equal(weft_ep_hint(net->end[end].ep), WEFT_HINT_CRYPTO);
        net_free(net);
    }
}

static void a_failing_provider_ends_handshakes(void **state)
{
    (void)state;
    for (uint32_t end = 0; end < 2; end++) {
        struct net *net = net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH);
        weft_toy_crypto_fail(net->end[end].toy, WEFT_STATE);
        net_connect(net, 0, 1);
        net_run(net, 100 * WEFT_NS_PER_MS);
        assert_int_equal(net->end[0].ups + net->end[1].ups, 0);
        assert_int_equal(net->end[0].downs, end == 0);
        assert_true(net_counters(net, end)->crypto_failures > 0);
        if (end == 1) { /* when the cryptography works again, the handshake in progress completes */
            weft_toy_crypto_fail(net->end[end].toy, WEFT_OK);
            net_run(net, 2 * WEFT_NS_PER_S);
            assert_int_equal(net->end[0].ups, 1);
        }
        net_free(net);
    }
}

static void a_mode_without_cryptography_is_refused(void **state)
{
    (void)state;
    struct weft_ep_config config;
    struct weft_ep *ep;
    net_config(&config, WEFT_MODE_AUTH);
    assert_int_equal(weft_ep_new(&config, &ep), WEFT_INVALID);
    config.mode = 3;
    assert_int_equal(weft_ep_new(&config, &ep), WEFT_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_pass_in_every_mode),
        cmocka_unit_test(a_higher_mode_is_taken_and_a_lower_one_told),
        cmocka_unit_test(packets_of_a_lower_mode_are_dropped),
        cmocka_unit_test(no_bit_of_a_handshake_can_be_changed),
        cmocka_unit_test(no_bit_of_a_packet_can_be_changed),
        cmocka_unit_test(replays_change_nothing),
        cmocka_unit_test(a_replay_of_what_was_not_acknowledged_is_a_duplicate),
        cmocka_unit_test(another_job_key_is_told_at_both_ends),
        cmocka_unit_test(another_version_is_told_at_both_ends),
        cmocka_unit_test(a_closed_or_full_end_says_so),
        cmocka_unit_test(every_hint_has_a_sentence),
        cmocka_unit_test(repeated_hellos_make_one_session),
        cmocka_unit_test(another_hello_of_the_same_name_changes_nothing),
        cmocka_unit_test(a_flood_of_hellos_grows_nothing),
        cmocka_unit_test(copies_of_a_hello_are_not_all_searched_for),
        cmocka_unit_test(copies_of_a_hello_with_its_cookie_are_limited),
        cmocka_unit_test(copies_of_a_hello_affect_no_other_cookie),
        cmocka_unit_test(a_batch_of_hellos_is_answered_as_a_whole),
        cmocka_unit_test(a_full_table_never_gives_up_a_live_peer),
        cmocka_unit_test(the_unproven_make_room_first),
        cmocka_unit_test(a_cookie_is_good_for_one_address_and_a_while),
        cmocka_unit_test(a_restarted_server_says_unknown),
        cmocka_unit_test(unknown_is_believed_only_from_a_key_holder_about_news),
        cmocka_unit_test(unknown_of_ones_own_name_is_no_proof),
        cmocka_unit_test(unknown_of_an_earlier_process_is_no_proof),
        cmocka_unit_test(a_standby_says_unknown_when_it_serves),
        cmocka_unit_test(unknown_answers_nothing_short_known_or_in_clear),
        cmocka_unit_test(a_new_session_replaces_the_old_one_at_its_first_packet),
        cmocka_unit_test(crossing_connections_do_not_replace_each_other),
        cmocka_unit_test(keys_are_replaced_on_the_way),
        cmocka_unit_test(one_rotation_at_a_time_is_unacknowledged),
        cmocka_unit_test(the_old_key_opens_late_packets_for_three_ptos),
        cmocka_unit_test(a_failing_provider_takes_the_peer_down),
        cmocka_unit_test(a_failing_provider_ends_handshakes),
        cmocka_unit_test(a_mode_without_cryptography_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
