/* The network of the endpoint tests injects the requested faults, and two endpoints survive all of
 * them: every message arrives complete and once. */
#include "core_net.h"

enum { MESSAGES = 24, ELEMS = 352 * 30 };

static float source[ELEMS];
static float memory[MESSAGES][ELEMS];

/* Counts of arriving datagrams. */
static struct {
    uint64_t count, hash;
    uint64_t late_ns; /* maximum delay after the due time */
    uint64_t newest;  /* highest packet number from end 0 */
    uint64_t overtaken;
} arrivals;

static uint32_t number_of(const struct net_datagram *d)
{
    struct weft_wire_packet packet;
    return (d->data[0] & 15) < WEFT_CLASS_HELLO &&
                   weft_wire_header_decode(d->data, d->bytes, &packet) == WEFT_OK
               ? (uint32_t)packet.number
               : 0;
}

static bool arrival(struct net *net, struct net_datagram *d)
{
    arrivals.count++;
    for (uint32_t i = 0; i < d->bytes; i++) {
        arrivals.hash = (arrivals.hash ^ d->data[i]) * UINT64_C(0x100000001b3);
    }
    arrivals.hash = (arrivals.hash ^ net->now_ns) * UINT64_C(0x100000001b3);
    if (d->arrived_ns > 0) {
        arrivals.late_ns = weft_max_u64(arrivals.late_ns, net->now_ns - d->arrived_ns);
    }
    if (d->from_end == 0) {
        uint32_t number = number_of(d);
        arrivals.overtaken += number > 0 && number < arrivals.newest;
        arrivals.newest = weft_max_u64(arrivals.newest, number);
    }
    return true;
}

static struct net *faults_net(uint64_t seed)
{
    struct net *net = net_new(WEFT_MODE_NONE, WEFT_MODE_NONE);
    weft_prng_init(&net->prng, seed);
    net->on_arrival = arrival;
    memset(&arrivals, 0, sizeof(arrivals));
    for (uint32_t i = 0; i < ELEMS; i++) {
        source[i] = (float)(i % 1000 + 1);
    }
    return net;
}

/* Number of elements of message i. */
static uint32_t elems_of(uint32_t i)
{
    return 1 + i * (ELEMS - 1) / (MESSAGES - 1);
}

static void messages_send(struct net *net, weft_peer peer)
{
    memset(memory, 0, sizeof(memory));
    for (uint32_t i = 0; i < MESSAGES; i++) {
        net_message(net, 0, peer, 1, source, elems_of(i) * 4, memory[i]);
    }
}

static void messages_check(const struct net *net)
{
    assert_int_equal(net->end[0].sent, MESSAGES);
    assert_int_equal(net->end[1].received, MESSAGES);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        assert_memory_equal(memory[i], source, elems_of(i) * sizeof(float));
    }
    assert_int_equal(net->end[0].downs + net->end[1].downs, 0);
}

static void transfer(struct net *net)
{
    weft_peer peer = net_connect(net, 0, 1);
    messages_send(net, peer);
    net_run(net, 20 * WEFT_NS_PER_S);
    messages_check(net);
}

static void nothing_happens_unless_it_is_asked_for(void **state)
{
    (void)state;
    struct net *net = faults_net(1);
    transfer(net);
    const struct weft_ep_counters *of_0 = net_counters(net, 0), *of_1 = net_counters(net, 1);
    assert_int_equal(arrivals.count, of_0->datagrams_sent + of_1->datagrams_sent);
    assert_int_equal(arrivals.count, of_0->datagrams_received + of_1->datagrams_received);
    assert_int_equal(arrivals.overtaken, 0);
    assert_int_equal(of_0->retransmitted_packets + of_1->duplicate_packets, 0);
    assert_int_equal(net_drops(net, 0) + net_drops(net, 1), 0);
    net_free(net);
}

static void a_datagram_takes_the_delay_of_its_end(void **state)
{
    (void)state;
    struct net *net = faults_net(1);
    net->end[1].delay_ns = 3 * WEFT_NS_PER_MS;
    net_connect(net, 0, 1);
    net_run(net, 3 * WEFT_NS_PER_MS - 1);
    assert_int_equal(arrivals.count, 0);
    net_run(net, 1);
    assert_int_equal(arrivals.count, 1); /* HELLO */
    assert_int_equal(net->end[0].ups, 0);
    net_run(net, NET_DELAY_NS);
    assert_int_equal(net->end[0].ups, 1); /* ACCEPT */
    net_free(net);
}

static void packets_keep_the_gap(void **state)
{
    (void)state;
    struct net *net = faults_net(1);
    net->end[1].gap_ns = WEFT_NS_PER_MS;
    weft_peer peer = net_connect(net, 0, 1);
    net_run(net, 10 * WEFT_NS_PER_MS);
    uint64_t before = net_counters(net, 1)->datagrams_received;
    messages_send(net, peer);
    net_run(net, 50 * WEFT_NS_PER_MS);
    assert_in_range(net_counters(net, 1)->datagrams_received - before, 45, 50);
    net_free(net);
}

/* About a tenth is lost and retransmitted. */
static void datagrams_are_lost(void **state)
{
    (void)state;
    struct net *net = faults_net(2);
    net->loss_ppm = 100000;
    transfer(net);
    uint64_t sent = net_counters(net, 0)->datagrams_sent + net_counters(net, 1)->datagrams_sent;
    assert_in_range((sent - arrivals.count) * 1000 / sent, 60, 140);
    assert_true(net_counters(net, 0)->retransmitted_packets > 0);
    net_free(net);
}

static void datagrams_arrive_twice(void **state)
{
    (void)state;
    struct net *net = faults_net(3);
    net->duplicate_ppm = 100000;
    transfer(net);
    uint64_t sent = net_counters(net, 0)->datagrams_sent + net_counters(net, 1)->datagrams_sent;
    assert_in_range((arrivals.count - sent) * 1000 / sent, 60, 140);
    assert_true(net_counters(net, 1)->duplicate_packets > 0);
    net_free(net);
}

static void datagrams_are_overtaken(void **state)
{
    (void)state;
    struct net *net = faults_net(4);
    net->late_ppm = 100000;
    net->late_ns = WEFT_NS_PER_MS;
    transfer(net);
    assert_true(arrivals.overtaken > 0);
    uint64_t sent = net_counters(net, 0)->datagrams_sent + net_counters(net, 1)->datagrams_sent;
    assert_int_equal(arrivals.count, sent);
    net_free(net);
}

/* A frozen end does nothing, and afterwards receives the datagrams of that time with their arrival
 * times. */
static void a_frozen_end_takes_all_afterwards(void **state)
{
    (void)state;
    struct net *net = faults_net(5);
    weft_peer peer = net_connect(net, 0, 1);
    net_run(net, WEFT_NS_PER_MS);
    uint64_t before = net_counters(net, 1)->datagrams_received;
    uint64_t sent = net_counters(net, 1)->datagrams_sent;
    net->end[1].frozen_until_ns = net->now_ns + 300 * WEFT_NS_PER_MS;
    messages_send(net, peer);
    net_run(net, 299 * WEFT_NS_PER_MS);
    assert_int_equal(net_counters(net, 1)->datagrams_received, before);
    assert_int_equal(net_counters(net, 1)->datagrams_sent, sent);
    assert_true(net->queued > 0);
    net_run(net, 20 * WEFT_NS_PER_S);
    assert_true(arrivals.late_ns > 299 * WEFT_NS_PER_MS);
    messages_check(net);
    net_free(net);
}

static void ends_of_two_sides_do_not_reach_each_other(void **state)
{
    (void)state;
    struct net *net = faults_net(6);
    weft_peer peer = net_connect(net, 0, 1);
    net_run(net, WEFT_NS_PER_MS);
    assert_int_equal(net->end[0].ups + net->end[1].ups, 2);
    net->end[1].side = 1;
    uint64_t before = arrivals.count;
    messages_send(net, peer);
    net_run(net, 60 * WEFT_NS_PER_S);
    assert_int_equal(arrivals.count, before);
    assert_int_equal(net->end[0].downs, 1);
    assert_int_equal(net->end[0].why, WEFT_DOWN_SILENT);
    net->end[0].side = 1; /* both on one side again */
    net_connect(net, 0, 1);
    net_run(net, WEFT_NS_PER_S);
    assert_int_equal(net->end[0].ups, 2);
    net_free(net);
}

static uint64_t all_at_once(uint64_t seed)
{
    struct net *net = faults_net(seed);
    net->loss_ppm = 50000;
    net->duplicate_ppm = 50000;
    net->late_ppm = 50000;
    net->late_ns = weft_prng_range(&net->prng, 1, 2 * WEFT_NS_PER_MS);
    weft_peer peer = net_connect(net, 0, 1);
    messages_send(net, peer);
    for (int i = 0; i < 10; i++) {
        uint32_t end = (uint32_t)weft_prng_below(&net->prng, 2);
        net_run(net, weft_prng_range(&net->prng, 1, 5 * WEFT_NS_PER_MS));
        net->end[end].frozen_until_ns =
            net->now_ns + weft_prng_below(&net->prng, WEFT_NS_PER_S / 5);
        net->end[end].side = (uint32_t)weft_prng_below(&net->prng, 2);
        net_run(net, weft_prng_range(&net->prng, 1, WEFT_NS_PER_S / 5));
        net->end[0].side = net->end[1].side = 0;
    }
    net_run(net, 20 * WEFT_NS_PER_S);
    messages_check(net);
    net_free(net);
    return arrivals.hash;
}

static void all_arrives_whatever_happens(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        (void)all_at_once(seed);
    }
}

static void a_seed_decides_everything(void **state)
{
    (void)state;
    uint64_t hash = all_at_once(1);
    assert_int_equal(all_at_once(1), hash);
    assert_int_not_equal(all_at_once(2), hash);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_happens_unless_it_is_asked_for),
        cmocka_unit_test(a_datagram_takes_the_delay_of_its_end),
        cmocka_unit_test(packets_keep_the_gap),
        cmocka_unit_test(datagrams_are_lost),
        cmocka_unit_test(datagrams_arrive_twice),
        cmocka_unit_test(datagrams_are_overtaken),
        cmocka_unit_test(a_frozen_end_takes_all_afterwards),
        cmocka_unit_test(ends_of_two_sides_do_not_reach_each_other),
        cmocka_unit_test(all_arrives_whatever_happens),
        cmocka_unit_test(a_seed_decides_everything),
    };
    return cmocka_run_group_tests_name("datagram_net", tests, NULL, NULL);
}
