/* Liveness: dead peers, idle peers, and the packets sent to peers whose state is unknown. */
#include "core_net.h"

static bool lose_all(struct net *net, struct net_datagram *d)
{
    (void)net;
    (void)d;
    return false;
}

/* End 0 sends nothing more, like a process that computes or was killed. */
static bool lose_from_0(struct net *net, struct net_datagram *d)
{
    return !addr_equal(&d->from, &net->end[0].addr);
}

static void end_open(struct net *net, uint32_t end, struct weft_ep_config *config)
{
    config->incarnation = 10 + end;
    net_open(net, end, config);
}

static struct net *net_empty(void)
{
    struct net *net = calloc(1, sizeof(*net));
    net->now_ns = WEFT_NS_PER_S;
    return net;
}

/* ---- peers that sent IDLE -------------------------------------------------------------------- */

static struct net *asleep(struct weft_ep_config *server)
{
    struct net *net = net_empty();
    struct weft_ep_config config;
    net_config(&config, WEFT_MODE_AUTH);
    end_open(net, 0, &config);
    end_open(net, 1, server);
    (void)net_connect(net, 0, 1);
    net_run(net, 10 * WEFT_NS_PER_MS);
    weft_ep_idle(net->end[0].ep, net->now_ns);
    net_run(net, WEFT_NS_PER_MS);
    assert_true(inspect_peer(net->end[1].ep, 0)->conn.idle);
    return net;
}

static void a_sleeper_has_ten_minutes(void **state)
{
    (void)state;
    struct weft_ep_config config;
    net_config(&config, WEFT_MODE_AUTH);
    struct net *net = asleep(&config);
    uint64_t sent = net_counters(net, 1)->datagrams_sent;
    net_run(net, 599 * WEFT_NS_PER_S);
    assert_int_equal(net_counters(net, 1)->datagrams_sent, sent);
    assert_int_equal(net->end[1].downs, 0);
    assert_false(weft_ep_busy(net->end[1].ep));
    net->tap = lose_from_0; /* it stays asleep: the three CLOSEs are in its socket */
    net_run(net, 2 * WEFT_NS_PER_S);
    assert_int_equal(net->end[1].downs, 1);
    assert_int_equal(net->end[1].why, WEFT_DOWN_SILENT);
    assert_int_equal(net_counters(net, 1)->datagrams_sent, sent + 3);
    assert_int_equal(inspect_peer(net->end[1].ep, 0)->conn.state, PEER_FREE);
    assert_int_equal(net->end[0].downs, 1);
    assert_int_equal(net->end[0].why, WEFT_DOWN_CLOSED); /* detected when it wakes */
    net_free(net);
}

static void a_sleeper_that_speaks_has_them_anew(void **state)
{
    (void)state;
    struct weft_ep_config config;
    net_config(&config, WEFT_MODE_AUTH);
    config.sleep_timeout_ns = 10 * WEFT_NS_PER_S;
    struct net *net = asleep(&config);
    for (int step = 0; step < 5; step++) {
        net_run(net, 9 * WEFT_NS_PER_S);
        static const float value = 1;
        static float got;
        net_message(net, 0, 0, 1, &value, sizeof(value), &got);
        net_run(net, 10 * WEFT_NS_PER_MS);
        weft_ep_idle(net->end[0].ep, net->now_ns);
    }
    assert_int_equal(net->end[1].received, 5);
    assert_int_equal(net->end[1].downs, 0);
    net_free(net);
}

/* A peer that sends IDLE in the middle of its own message must not hold memory forever. */
static void a_sleeper_in_the_middle_of_a_message(void **state)
{
    (void)state;
    struct weft_ep_config config;
    net_config(&config, WEFT_MODE_AUTH);
    struct net *net = net_empty();
    config.sleep_timeout_ns = WEFT_NS_PER_S;
    end_open(net, 1, &config);
    net_config(&config, WEFT_MODE_AUTH);
    end_open(net, 0, &config);
    weft_peer peer = net_connect(net, 0, 1);
    net_run(net, 10 * WEFT_NS_PER_MS);
    static float values[352 * 100];
    static float got[352 * 100];
    net_message(net, 0, peer, 1, values, sizeof(values), got);
    net_pump(net); /* as much as credit allows, not all */
    inspect_peer(net->end[0].ep, peer)->conn.announce_idle = 3;
    inspect_peer(net->end[0].ep, peer)->ack.at_once = true;
    weft_core_peer_ready(net->end[0].ep, inspect_peer(net->end[0].ep, peer));
    net_pump(net);
    net->tap = lose_from_0;
    net_run(net, 10 * WEFT_NS_PER_MS);
    assert_true(inspect_peer(net->end[1].ep, 0)->conn.idle);
    assert_true(inspect_peer(net->end[1].ep, 0)->rx.live != 0);
    net_run(net, 2 * WEFT_NS_PER_S);
    assert_int_equal(net->end[1].received, 1);
    assert_int_equal(net->end[1].downs, 1);
    net_free(net);
}

/* A table of two: a sleeper and one that died awake. New peers first replace the dead one, and the
 * sleeping one only after a minute. */
static void a_full_table_gives_up_a_sleeper_last(void **state)
{
    (void)state;
    struct weft_ep_config config;
    net_config(&config, WEFT_MODE_AUTH);
    config.peers_max = 2;
    struct net *net = asleep(&config);
    const struct peer *slots = net->end[1].ep->peers;
    net_config(&config, WEFT_MODE_AUTH);
    end_open(net, 2, &config);
    (void)net_connect(net, 2, 1);
    net_run(net, 10 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[1].ups, 2);
    net_end_close(&net->end[2]); /* killed, awake */
    net_run(net, 10 * WEFT_NS_PER_S);
    assert_int_equal(net->end[1].downs, 0);
    for (uint32_t life = 0; life < 2; life++) {
        net_config(&config, WEFT_MODE_AUTH);
        config.incarnation = 77 + life;
        config.peer_timeout_ns = 100 * WEFT_NS_PER_S;
        net_open(net, 2, &config);
        net->end[2].addr = net_addr(7 + life);
        (void)net_connect(net, 2, 1);
        net_run(net, 4 * WEFT_NS_PER_S);
        assert_int_equal(net->end[1].downs, 1); /* the dead peer */
        assert_true(slots[0].conn.state == PEER_OPEN && slots[0].conn.idle);
        if (life == 0) {
            assert_int_equal(net->end[1].ups, 3);
            weft_ep_idle(net->end[2].ep, net->now_ns);
            net_run(net, WEFT_NS_PER_MS);
            net_end_close(&net->end[2]); /* killed, asleep, after the first */
        }
    }
    assert_int_equal(net->end[1].ups, 3);
    net_run(net, 50 * WEFT_NS_PER_S); /* the minute of the first is over, not that of the second */
    assert_int_equal(net->end[1].downs, 2);
    assert_int_equal(net->end[1].why, WEFT_DOWN_SILENT);
    assert_int_equal(net->end[1].ups, 4);
    assert_true(slots[1].conn.state == PEER_OPEN && slots[1].conn.idle);
    net_free(net);
}

static void the_longest_sleeper_goes_first(void **state)
{
    (void)state;
    struct weft_ep_config config;
    net_config(&config, WEFT_MODE_AUTH);
    config.peers_max = 2;
    struct net *net = asleep(&config);
    net_run(net, 10 * WEFT_NS_PER_S);
    for (uint32_t life = 0; life < 2; life++) {
        net_config(&config, WEFT_MODE_AUTH);
        end_open(net, 2, &config);
        net->end[2].addr = net_addr(7 + life);
        (void)net_connect(net, 2, 1);
        net_run(net, 2 * WEFT_NS_PER_S);
        assert_int_equal(net->end[1].ups, 2 + life);
        weft_ep_idle(net->end[2].ep, net->now_ns);
        net_run(net, 200 * WEFT_NS_PER_S);
        net_end_close(&net->end[2]);
    }
    struct weft_addr second = net_addr(7);
    assert_int_equal(net->end[1].downs, 1);
    assert_memory_equal(&inspect_peer(net->end[1].ep, 1)->conn.addr, &second, sizeof(second));
    net_free(net);
}

/* ---- keep-alive ------------------------------------------------------------------------------ */

static struct net *kept_alive(struct weft_ep_config *client)
{
    struct net *net = net_empty();
    struct weft_ep_config config;
    end_open(net, 0, client);
    net_config(&config, WEFT_MODE_AUTH);
    end_open(net, 1, &config);
    (void)net_connect(net, 0, 1);
    net_run(net, 10 * WEFT_NS_PER_MS);
    return net;
}

/* Within the keep-alive interval and the peer timeout, 1 s and 5 s, of its last packet. */
static void a_keepalive_finds_the_dead(void **state)
{
    (void)state;
    struct weft_ep_config config;
    net_config(&config, WEFT_MODE_AUTH);
    config.keepalive_ns = WEFT_NS_PER_S;
    struct net *net = kept_alive(&config);
    net_run(net, 60 * WEFT_NS_PER_S);
    assert_int_equal(net->end[0].downs, 0);
    assert_int_equal(net_counters(net, 0)->probes, 0);
    net->tap = lose_all;
    uint64_t sent = net_counters(net, 0)->datagrams_sent;
    net_run(net, 5900 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].downs, 0);
    assert_false(weft_ep_busy(net->end[0].ep));
    /* The interval doubles, so that the socket of a merely slow peer does not fill. */
    assert_in_range(net_counters(net, 0)->datagrams_sent - sent, 10, 25);
    net_run(net, 100 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].downs, 1);
    assert_int_equal(net->end[0].why, WEFT_DOWN_SILENT);
    net_free(net);
}

static void a_slow_answer_to_a_keepalive_is_one(void **state)
{
    (void)state;
    struct weft_ep_config config;
    net_config(&config, WEFT_MODE_AUTH);
    config.keepalive_ns = WEFT_NS_PER_S;
    struct net *net = kept_alive(&config);
    for (int i = 0; i < 5; i++) {
        net->tap = lose_all;
        net_run(net, 4 * WEFT_NS_PER_S);
        net->tap = NULL;
        net_run(net, 2 * WEFT_NS_PER_S);
    }
    uint64_t probes = net_counters(net, 0)->probes;
    assert_true(probes > 0);
    net_run(net, 20 * WEFT_NS_PER_S); /* the challenge is answered: only PINGs are sent */
    assert_int_equal(net_counters(net, 0)->probes, probes);
    assert_int_equal(net->end[0].downs, 0);
    net_free(net);
}

static void a_sleeper_is_asked_nothing(void **state)
{
    (void)state;
    struct weft_ep_config config;
    net_config(&config, WEFT_MODE_AUTH);
    config.keepalive_ns = WEFT_NS_PER_S;
    struct net *net = asleep(&config);
    uint64_t sent = net_counters(net, 1)->datagrams_sent;
    net_run(net, 60 * WEFT_NS_PER_S);
    assert_int_equal(net_counters(net, 1)->datagrams_sent, sent);
    assert_int_equal(net->end[1].downs, 0);
    net_free(net);
}

/* ---- an address that is not proven ----------------------------------------------------------- */

static void a_half_open_peer_is_closed_without_a_word(void **state)
{
    for (int own = 0; own < 2; own++) { /* 1: the application has already sent to it */
        (void)state;
        struct weft_ep_config config;
        struct net *net = net_empty();
        net_config(&config, WEFT_MODE_AUTH);
        end_open(net, 0, &config);
        net_config(&config, WEFT_MODE_AUTH);
        end_open(net, 1, &config);
        struct net_end *server = &net->end[1];
        (void)net_connect(net, 0, 1);
        net_run(net, NET_DELAY_NS); /* HELLO has arrived, ACCEPT is in flight, or not sent yet */
        assert_int_equal(inspect_peer(server->ep, 0)->conn.state, PEER_HALF_OPEN);
        static const float value = 1;
        uint64_t seq;
        struct weft_msg_send send = {
            .base = &value, .total = 1, .elem_bytes = 4, .deadline_ns = WEFT_NEVER};
        if (own == 1) {
            assert_int_equal(server->msgr.ops->send(server->msgr.self, &send, net->now_ns, &seq),
                             WEFT_OK);
        }
        net_pump(net);
        net->tap = lose_from_0;
        uint64_t sent = net_counters(net, 1)->datagrams_sent;
        inspect_peer(server->ep, 0)->conn.need_accept = true; /* its HELLO arrived again */
        weft_ep_close(server->ep, 0, net->now_ns);
        net_run(net, WEFT_NS_PER_S);
        assert_int_equal(net_counters(net, 1)->datagrams_sent, sent);
        assert_int_equal(server->ups + server->downs, 0);
        assert_int_equal(server->sent, own);
        assert_int_equal(inspect_peer(server->ep, 0)->conn.state, PEER_FREE);
        assert_false(weft_ep_busy(server->ep));
        net_free(net);
    }
}

/* ---- a sleeper that moves -------------------------------------------------------------------- */

/* End 0 sends, but its new address loses the first datagrams, and datagrams to it wait. */
static bool asleep_elsewhere(struct net *net, struct net_datagram *d)
{
    uint32_t *lose = net->tap_arg;
    if (!addr_equal(&d->from, &net->end[0].addr)) {
        return false;
    }
    *lose -= *lose > 0;
    return *lose == 0;
}

/* DONE is the last packet that end 0 receives at its first address; it moves, sends IDLE and
 * sleeps. */
static struct net *moved_to_sleep(uint8_t mode, uint64_t rekey_packets, uint32_t *lose)
{
    static const float values[352];
    static float got[352];
    struct net *net = net_empty();
    for (uint32_t end = 0; end < 2; end++) {
        struct weft_ep_config config;
        net_config(&config, mode);
        config.rekey_packets = rekey_packets;
        end_open(net, end, &config);
    }
    weft_peer peer = net_connect(net, 0, 1);
    net_run(net, 10 * WEFT_NS_PER_MS);
    net_message(net, 0, peer, 1, values, sizeof(values), got);
    while (net->end[0].sent == 0) {
        assert_true(net_step(net, net->now_ns + WEFT_NS_PER_S));
    }
    net->end[0].addr = net_addr(7);
    net->tap = asleep_elsewhere;
    net->tap_arg = lose;
    weft_ep_idle(net->end[0].ep, net->now_ns);
    return net;
}

static void a_sleeper_that_moved_is_waited_for(void **state)
{
    (void)state;
    static const float values[352];
    static float got[352];
    for (uint8_t mode = WEFT_MODE_NONE; mode <= WEFT_MODE_SEAL; mode++) {
        for (uint32_t lost = 0; lost <= 2; lost += 2) {
            uint32_t lose = lost + 1;
            struct net *net = moved_to_sleep(mode, lost == 0 ? 0 : 2, &lose);
            uint64_t rekeys = net_counters(net, 0)->rekeys;
            net_run(net, 60 * WEFT_NS_PER_S);
            assert_int_equal(net->end[1].downs, 0);
            assert_true(inspect_peer(net->end[1].ep, 0)->conn.idle);
            assert_int_equal(inspect_peer(net->end[1].ep, 0)->conn.addr.bytes[0],
                             1); /* the address is not updated yet */
            net->tap = NULL;
            net_message(net, 0, 0, 1, values, sizeof(values), got);
            net_run(net, WEFT_NS_PER_S);
            assert_int_equal(net->end[0].sent, 2);
            assert_int_equal(net->end[1].received, 2);
            assert_int_equal(net->end[1].downs, 0);
            assert_int_equal(net_counters(net, 1)->path_changes, 1);
            assert_true(mode == WEFT_MODE_NONE || lost == 0 ||
                        net_counters(net, 0)->rekeys > rekeys);
            net_free(net);
        }
    }
}

/* The peer is awake again, but no packet to it arrives: the peer timeout applies as usual. */
static void a_sleeper_that_wakes_elsewhere_must_answer(void **state)
{
    (void)state;
    static const float values[352];
    static float got[352];
    uint32_t lose = 0;
    struct net *net = moved_to_sleep(WEFT_MODE_AUTH, 0, &lose);
    net_run(net, 60 * WEFT_NS_PER_S);
    net_message(net, 0, 0, 1, values, sizeof(values), got);
    net_run(net, 4900 * WEFT_NS_PER_MS);
    assert_false(inspect_peer(net->end[1].ep, 0)->conn.idle);
    assert_int_equal(net->end[1].downs, 0);
    net_run(net, 2 * WEFT_NS_PER_S);
    assert_int_equal(net->end[1].downs, 1);
    assert_int_equal(net->end[1].why, WEFT_DOWN_SILENT);
    net_free(net);
}

static void ping_kept(struct net *net)
{
    inspect_ping(net->end[0].ep, 0);
    net_pump(net);
}

/* PING, IDLE three times, PING: in any order of arrival, the newest packet counts. */
static void the_newest_packet_says_who_sleeps(void **state)
{
    (void)state;
    enum { PING, IDLE_1, IDLE_2, IDLE_3, PING_AFTER, PACKETS };
    static const struct {
        uint8_t packet;
        bool idle;
    } order[] = {
        {IDLE_2, true}, {PING, true}, {IDLE_1, true}, {PING_AFTER, false}, {IDLE_3, false}};
    for (int moved = 0; moved < 2; moved++) {
        struct net *net = net_new(WEFT_MODE_AUTH, WEFT_MODE_AUTH);
        struct weft_addr first = net->end[0].addr;
        net_connect(net, 0, 1);
        net_run(net, 10 * WEFT_NS_PER_MS);
        net->keep = true;
        net->tap = lose_all;
        ping_kept(net);
        weft_ep_idle(net->end[0].ep, net->now_ns);
        net_pump(net);
        ping_kept(net);
        assert_int_equal(net->kept_count, PACKETS);
        for (size_t i = 0; i < WEFT_ARRAY_COUNT(order); i++) {
            const struct net_datagram *d = &net->kept[order[i].packet];
            struct weft_addr second = net_addr(7);
            bool from_first = !moved || order[i].packet == PING;
            net_deliver(net, &net->end[1], from_first ? &first : &second, d->data, d->bytes);
            assert_int_equal(inspect_peer(net->end[1].ep, 0)->conn.idle, order[i].idle);
        }
        net_free(net);
    }
}

/* A size probe that is due when the peer goes to sleep: the probe would be the newest packet,
 * without IDLE. */
static void a_sleeper_asks_for_no_sizes(void **state)
{
    (void)state;
    struct weft_ep_config config;
    struct net *net = net_empty();
    net_config(&config, WEFT_MODE_AUTH);
    config.packet_bytes = 8972;
    config.packet_bytes_sure = 1200;
    end_open(net, 0, &config);
    net_config(&config, WEFT_MODE_AUTH);
    config.keepalive_ns = WEFT_NS_PER_S;
    end_open(net, 1, &config);
    weft_peer peer = net_connect(net, 0, 1);
    net_run(net, 100 * WEFT_NS_PER_MS);
    struct peer *p = inspect_peer(net->end[0].ep, peer);
    p->path.packet_bytes = 1200; /* as if the search had ended at that size ten minutes ago */
    p->path.raise_ns = net->now_ns;
    uint64_t probes = net_counters(net, 0)->mtu_probes;
    weft_ep_idle(net->end[0].ep, net->now_ns);
    net_pump(net);
    net->tap = lose_from_0;
    net_run(net, 60 * WEFT_NS_PER_S);
    assert_true(inspect_peer(net->end[1].ep, 0)->conn.idle);
    assert_int_equal(net->end[1].downs, 0);
    assert_int_equal(net_counters(net, 0)->mtu_probes, probes);
    net->tap = NULL; /* awake: it probes as soon as it has received something */
    static const float values[352];
    static float got[352];
    net_message(net, 0, peer, 1, values, sizeof(values), got);
    net_run(net, WEFT_NS_PER_S);
    assert_int_equal(net->end[0].sent, 1);
    assert_true(net_counters(net, 0)->mtu_probes > probes);
    net_free(net);
}

/* It goes to sleep as soon as nothing is outstanding, which it checks when it polls PEER_UP: the
 * first PING is not sent yet then, so no packet can carry IDLE. */
static void a_sleeper_waits_for_its_first_answer(void **state)
{
    (void)state;
    static const uint8_t modes[] = {WEFT_MODE_NONE, WEFT_MODE_AUTH, WEFT_MODE_SEAL};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(modes); i++) {
        struct weft_ep_config config;
        struct net *net = net_empty();
        net_config(&config, modes[i]);
        end_open(net, 0, &config);
        net_config(&config, modes[i]);
        config.keepalive_ns = WEFT_NS_PER_S;
        end_open(net, 1, &config);
        weft_peer peer = net_connect(net, 0, 1);
        while (net->end[0].ups == 0) {
            assert_true(net_step(net, 2 * WEFT_NS_PER_S));
        }
        assert_int_equal(inspect_peer(net->end[0].ep, peer)->recovery.in_flight_count, 0);
        while (weft_ep_busy(net->end[0].ep)) {
            assert_true(net_step(net, 2 * WEFT_NS_PER_S));
        }
        weft_ep_idle(net->end[0].ep, net->now_ns);
        net_pump(net);
        net->tap = lose_from_0;
        net_run(net, 60 * WEFT_NS_PER_S);
        assert_int_equal(net->end[1].ups, 1);
        assert_int_equal(net->end[1].downs, 0);
        assert_true(inspect_peer(net->end[1].ep, 0)->conn.idle);
        net_free(net);
    }
}

/* ---- unpredictable values -------------------------------------------------------------------- */

static bool redirect(struct net *net, struct net_datagram *d)
{
    if (addr_equal(&d->from, &net->end[0].addr)) {
        d->from = net_addr(66);
    }
    return true;
}

/* A public number, the connection id, must not reveal the next challenge. */
static void a_challenge_is_drawn_by_the_provider(void **state)
{
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        struct weft_ep_config config;
        struct net *net = net_empty();
        net_config(&config, WEFT_MODE_AUTH);
        end_open(net, 0, &config);
        net_config(&config, WEFT_MODE_AUTH);
        end_open(net, 1, &config);
        weft_peer peer = net_connect(net, 0, 1);
        net_run(net, 10 * WEFT_NS_PER_MS);
        struct weft_prng before = net->end[1].ep->prng;
        net->tap = redirect;
        if (fails == 1) {
            weft_toy_crypto_fail(net->end[1].toy, WEFT_IO);
        }
        inspect_ping(net->end[0].ep, peer);
        net_pump(net);
        struct peer *p = inspect_peer(net->end[1].ep, 0);
        net->now_ns += NET_DELAY_NS;
        if (fails == 1) { /* verification still works; only the random number fails */
            struct weft_wire_packet stray = {.klass = WEFT_CLASS_AUTH, .data_bytes = 100};
            struct weft_addr from = net_addr(66);
            assert_false(weft_core_path_stray(net->end[1].ep, p, &from, &stray, net->now_ns));
            assert_int_equal(p->path.challenge[0].at_ns, 0);
            assert_int_equal(p->path.challenges_due, 0);
            assert_int_equal(net_counters(net, 1)->crypto_failures, 1);
        } else {
            net_run(net, NET_DELAY_NS);
            assert_int_equal(net_counters(net, 1)->path_challenges, 1);
            assert_memory_equal(&net->end[1].ep->prng, &before, sizeof(before));
            uint64_t token = p->path.challenge[0].token;
            assert_true(token != 0 && token != weft_prng_u64(&before));
        }
        net_free(net);
    }
}

/* Two endpoints with the same seed use different ids in a mode with secrets. */
static void connection_ids_are_drawn_by_the_provider(void **state)
{
    (void)state;
    uint32_t ids[2];
    for (uint32_t i = 0; i < 2; i++) {
        struct weft_ep_config config;
        struct net *net = net_empty();
        net_config(&config, WEFT_MODE_SEAL);
        config.incarnation = 10;
        net->end[0].toy = weft_toy_crypto_new(i, weft_ep_crypto_slots(config.peers_max));
        net_open(net, 0, &config);
        weft_peer peer;
        struct weft_addr to = net_addr(2);
        assert_int_equal(weft_ep_connect(net->end[0].ep, &to, net->now_ns, &peer), WEFT_OK);
        ids[i] = inspect_peer(net->end[0].ep, peer)->conn.id;
        net_free(net);
    }
    assert_int_not_equal(ids[0], ids[1]);
}

/* End 1 receives only HELLOs of end 0. */
static bool only_hellos(struct net *net, struct net_datagram *d)
{
    return !addr_equal(&d->from, &net->end[0].addr) || d->bytes == WEFT_HELLO_BYTES;
}

/* The last packet of a connection that its initiator abandoned arrives after the next
 * connection. */
static void what_was_given_up_does_not_replace(void **state)
{
    (void)state;
    struct weft_ep_config config;
    struct net *net = net_empty();
    for (uint32_t end = 0; end < 2; end++) {
        net_config(&config, WEFT_MODE_AUTH);
        end_open(net, end, &config);
    }
    net->tap = only_hellos;
    net->keep = true;
    weft_peer first = net_connect(net, 0, 1);
    net_run(net, 10 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].ups, 1); /* and half open at the other end */
    weft_ep_close(net->end[0].ep, first, net->now_ns);
    net_run(net, 10 * WEFT_NS_PER_MS);
    uint32_t of_first = net->kept_count;
    net->keep = false;
    net->tap = NULL;
    (void)net_connect(net, 0, 1);
    net_run(net, 10 * WEFT_NS_PER_MS);
    assert_int_equal(net->end[1].ups, 1);
    uint32_t late = 0;
    for (uint32_t i = 0; i < of_first; i++) {
        const struct net_datagram *d = &net->kept[i];
        if (addr_equal(&d->from, &net->end[0].addr) && d->bytes != WEFT_HELLO_BYTES) {
            net_deliver(net, &net->end[1], &d->from, d->data, d->bytes);
            late++;
        }
    }
    net_run(net, 10 * WEFT_NS_PER_MS);
    assert_true(late > 0);
    assert_int_equal(net->end[1].ups, 1);
    assert_int_equal(net->end[1].downs, 0);
    net_free(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sleeper_has_ten_minutes),
        cmocka_unit_test(a_sleeper_that_speaks_has_them_anew),
        cmocka_unit_test(a_sleeper_in_the_middle_of_a_message),
        cmocka_unit_test(a_full_table_gives_up_a_sleeper_last),
        cmocka_unit_test(the_longest_sleeper_goes_first),
        cmocka_unit_test(a_keepalive_finds_the_dead),
        cmocka_unit_test(a_slow_answer_to_a_keepalive_is_one),
        cmocka_unit_test(a_sleeper_is_asked_nothing),
        cmocka_unit_test(a_sleeper_that_moved_is_waited_for),
        cmocka_unit_test(a_sleeper_that_wakes_elsewhere_must_answer),
        cmocka_unit_test(the_newest_packet_says_who_sleeps),
        cmocka_unit_test(a_sleeper_asks_for_no_sizes),
        cmocka_unit_test(a_sleeper_waits_for_its_first_answer),
        cmocka_unit_test(a_half_open_peer_is_closed_without_a_word),
        cmocka_unit_test(what_was_given_up_does_not_replace),
        cmocka_unit_test(a_challenge_is_drawn_by_the_provider),
        cmocka_unit_test(connection_ids_are_drawn_by_the_provider),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
