/* The simulated network alone: timing to the nanosecond, queues, marks, faults, conservation. */
#include "sim/hash.h"
#include "sim/net.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { PAYLOAD = 958, WIRE = PAYLOAD + WEFT_NET_OVERHEAD_BYTES }; /* 1,000 bytes on the wire */

#define SECOND WEFT_NS_PER_S

static const struct weft_net_link_config gigabit = {
    .rate_bps = 1000000000, .delay_ns = 5000, .buffer_bytes = 1000000};

static struct weft_net *net_of(uint32_t hosts, uint64_t seed)
{
    struct weft_net *net = weft_net_new(hosts, seed);
    for (uint32_t i = 0; i < hosts; i++) {
        weft_net_link_set(net, i, WEFT_NET_UP, &gigabit);
        weft_net_link_set(net, i, WEFT_NET_DOWN, &gigabit);
    }
    return net;
}

static void send(struct weft_net *net, uint32_t from, uint32_t to, enum weft_ecn ecn)
{
    struct weft_net_packet *packet = weft_net_packet_new(from, to, ecn, PAYLOAD);
    memset(packet->bytes, (int)from, PAYLOAD);
    weft_net_send(net, packet);
}

/* Process events until a packet or a wake; NONE: no event is left. */
static struct weft_net_event next(struct weft_net *net)
{
    struct weft_net_event event = {WEFT_NET_NONE, 0, NULL};
    while (weft_net_step(net, &event) && event.type == WEFT_NET_NONE) {
        assert_null(weft_net_check(net, false));
    }
    assert_null(weft_net_check(net, true));
    return event;
}

/* Number of packets that arrive from now on, and a hash of their contents and times. */
static uint64_t drain(struct weft_net *net, uint64_t *hash_p)
{
    uint64_t count = 0;
    uint64_t hash = WEFT_SIM_HASH_INIT;
    for (;;) {
        struct weft_net_event event = next(net);
        if (event.type == WEFT_NET_NONE) {
            break;
        }
        hash = weft_sim_hash_u64(hash, event.packet->at_ns);
        hash = weft_sim_hash_u64(hash, event.packet->ecn);
        hash = weft_sim_hash_bytes(hash, event.packet->bytes, event.packet->count);
        weft_net_packet_free(event.packet);
        count++;
    }
    if (hash_p != NULL) {
        *hash_p = hash;
    }
    return count;
}

static void a_packet_takes_its_serialization_and_delay_twice(void **state)
{
    (void)state;
    struct weft_net *net = net_of(2, 1);
    send(net, 0, 1, WEFT_ECN_NOT);
    struct weft_net_event event = next(net);
    assert_int_equal(event.type, WEFT_NET_PACKET);
    assert_int_equal(event.host, 1);
    assert_int_equal(event.packet->at_ns, 2 * (8000 + 5000)); /* 1,000 bytes at 1 Gbit/s = 8 us */
    assert_int_equal(event.packet->from, 0);
    weft_net_packet_free(event.packet);
    weft_net_free(net);
}

/* Hosts 0 and 1 share links: to each other they send past these, to host 2 over them. */
static void packets_within_a_machine_bypass_its_links(void **state)
{
    (void)state;
    struct weft_net *net = net_of(3, 1);
    struct weft_net_faults all = {.loss_ppm = 1000000};
    weft_net_share(net, 1, 0);
    weft_net_local_set(net, 700);
    weft_net_faults_set(net, 0, WEFT_NET_DOWN, &all);
    send(net, 1, 2, WEFT_ECN_NOT);
    send(net, 0, 1, WEFT_ECN_NOT);
    send(net, 1, 0, WEFT_ECN_NOT);
    for (uint32_t i = 0; i < 3; i++) {
        struct weft_net_event event = next(net);
        assert_int_equal(event.type, WEFT_NET_PACKET);
        assert_int_equal(event.host, i == 0 ? 1 : i == 1 ? 0 : 2);
        assert_int_equal(event.packet->at_ns, i < 2 ? 700 : 26000);
        weft_net_packet_free(event.packet);
    }
    assert_int_equal(next(net).type, WEFT_NET_NONE);
    assert_int_equal(weft_net_link_counters(net, 0, WEFT_NET_UP)->in, 1);
    assert_int_equal(weft_net_link_counters(net, 0, WEFT_NET_DOWN)->delivered, 2);
    weft_net_free(net);
}

static void packets_queue_behind_each_other_at_the_slower_link(void **state)
{
    (void)state;
    struct weft_net *net = net_of(2, 1);
    struct weft_net_link_config slow = gigabit;
    slow.rate_bps = 100000000; /* 80 us per packet */
    weft_net_link_set(net, 1, WEFT_NET_DOWN, &slow);
    for (int i = 0; i < 5; i++) {
        send(net, 0, 1, WEFT_ECN_NOT);
    }
    for (uint64_t i = 0; i < 5; i++) {
        struct weft_net_event event = next(net);
        assert_int_equal(event.packet->at_ns, 8000 + 5000 + (i + 1) * 80000 + 5000);
        weft_net_packet_free(event.packet);
    }
    weft_net_free(net);
}

static void serialization_rounds_up(void **state)
{
    (void)state;
    struct weft_net *net = net_of(2, 1);
    struct weft_net_link_config odd = gigabit;
    odd.rate_bps = 3000000000; /* 8,000 bits: 2,666.67 ns */
    odd.delay_ns = 0;
    weft_net_link_set(net, 0, WEFT_NET_UP, &odd);
    weft_net_link_set(net, 1, WEFT_NET_DOWN, &odd);
    send(net, 0, 1, WEFT_ECN_NOT);
    struct weft_net_event event = next(net);
    assert_int_equal(event.packet->at_ns, 2 * 2667);
    weft_net_packet_free(event.packet);
    weft_net_free(net);
}

static void a_full_buffer_drops_the_tail(void **state)
{
    (void)state;
    struct weft_net *net = net_of(2, 1);
    struct weft_net_link_config tight = gigabit;
    tight.buffer_bytes = 4 * WIRE + WIRE - 1; /* four packets and almost a fifth */
    weft_net_link_set(net, 0, WEFT_NET_UP, &tight);
    for (int i = 0; i < 10; i++) {
        send(net, 0, 1, WEFT_ECN_NOT);
    }
    const struct weft_net_link_counters *up = weft_net_link_counters(net, 0, WEFT_NET_UP);
    assert_int_equal(up->dropped_full, 6);
    assert_int_equal(up->queued_bytes, 4 * WIRE);
    assert_int_equal(drain(net, NULL), 4);
    assert_int_equal(up->queued_bytes_max, 4 * WIRE);
    assert_int_equal(weft_net_packets(net), 0);
    weft_net_free(net);
}

static void ecn_marks_from_the_threshold_on_and_only_ect(void **state)
{
    (void)state;
    struct weft_net *net = net_of(2, 1);
    struct weft_net_link_config marking = gigabit;
    marking.ecn_mark_bytes = 3 * WIRE;
    weft_net_link_set(net, 0, WEFT_NET_UP, &marking);
    /* Packets 0, 1, 2 have 0, 1, 2 packets queued before them; packet 3 and later ones three or
     * more. */
    for (int i = 0; i < 6; i++) {
        send(net, 0, 1, i == 4 ? WEFT_ECN_NOT : WEFT_ECN_ECT0);
    }
    enum weft_ecn want[6] = {WEFT_ECN_ECT0, WEFT_ECN_ECT0, WEFT_ECN_ECT0,
                             WEFT_ECN_CE,   WEFT_ECN_NOT,  WEFT_ECN_CE};
    for (int i = 0; i < 6; i++) {
        struct weft_net_event event = next(net);
        assert_int_equal(event.packet->ecn, want[i]);
        weft_net_packet_free(event.packet);
    }
    assert_int_equal(weft_net_link_counters(net, 0, WEFT_NET_UP)->marked, 2);
    weft_net_free(net);
}

/* |seen - n p| <= 4 sqrt(n p (1 - p)), in integers. */
static void assert_rate(uint64_t seen, uint64_t n, uint64_t ppm)
{
    uint64_t expected_millionths = n * ppm;
    uint64_t seen_millionths = seen * WEFT_PPM;
    uint64_t off = seen_millionths > expected_millionths ? seen_millionths - expected_millionths
                                                         : expected_millionths - seen_millionths;
    uint64_t variance = n * ppm * (WEFT_PPM - ppm) / WEFT_PPM; /* in packets x 10^6 */
    uint64_t off_packets = off / WEFT_PPM;
    assert_true(off_packets * off_packets * WEFT_PPM <= 16 * variance);
}

static void send_paced(struct weft_net *net, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        send(net, 0, 1, WEFT_ECN_NOT);
        if (i % 500 == 499) {
            /* Let the queue become empty, so that only faults have effects. */
            (void)drain(net, NULL);
        }
    }
    (void)drain(net, NULL);
}

static void random_faults_come_at_their_rates(void **state)
{
    (void)state;
    const uint32_t n = 40000;
    struct weft_net *net = net_of(2, 99);
    struct weft_net_faults faults = {.loss_ppm = 100000,
                                     .corrupt_ppm = 20000,
                                     .duplicate_ppm = 50000,
                                     .reorder_ppm = 30000,
                                     .reorder_ns_max = 1000};
    weft_net_faults_set(net, 0, WEFT_NET_UP, &faults);
    send_paced(net, n);
    const struct weft_net_link_counters *up = weft_net_link_counters(net, 0, WEFT_NET_UP);
    uint64_t left = n - up->dropped_loss - up->dropped_corrupt;
    assert_rate(up->dropped_loss, n, 100000);
    assert_rate(up->dropped_corrupt, n - up->dropped_loss, 20000);
    assert_rate(up->duplicated, left, 50000);
    assert_rate(up->reordered, left + up->duplicated, 30000);
    assert_int_equal(up->delivered, left + up->duplicated);
    assert_int_equal(up->dropped_full + up->dropped_burst + up->dropped_partition, 0);
    weft_net_free(net);
}

static void burst_loss_has_its_rate_and_its_run_length(void **state)
{
    (void)state;
    /* In the bad state 1 / (1 + 9) of the time, in runs of 10 packets on average, all lost. */
    const uint32_t n = 40000;
    struct weft_net *net = net_of(2, 7);
    struct weft_net_faults faults = {
        .burst_enter_ppm = 11111, .burst_leave_ppm = 100000, .burst_loss_ppm = WEFT_PPM};
    weft_net_faults_set(net, 0, WEFT_NET_UP, &faults);
    uint32_t runs = 0;
    uint64_t lost_before = 0;
    bool losing = false;
    const struct weft_net_link_counters *up = weft_net_link_counters(net, 0, WEFT_NET_UP);
    for (uint32_t i = 0; i < n; i++) {
        send(net, 0, 1, WEFT_ECN_NOT);
        (void)drain(net, NULL);
        bool lost = up->dropped_burst > lost_before;
        lost_before = up->dropped_burst;
        runs += lost && !losing;
        losing = lost;
    }
    assert_in_range(up->dropped_burst, n / 10 - n / 50, n / 10 + n / 50);
    assert_in_range(up->dropped_burst / runs, 8, 12);
    weft_net_free(net);
}

static void reordering_lets_later_packets_pass(void **state)
{
    (void)state;
    struct weft_net *net = net_of(2, 3);
    struct weft_net_faults faults = {.reorder_ppm = 200000, .reorder_ns_max = 100000};
    weft_net_faults_set(net, 1, WEFT_NET_DOWN, &faults);
    for (uint32_t i = 0; i < 200; i++) {
        struct weft_net_packet *packet = weft_net_packet_new(0, 1, WEFT_ECN_NOT, PAYLOAD);
        memset(packet->bytes, (int)i, PAYLOAD);
        weft_net_send(net, packet);
    }
    uint32_t backwards = 0;
    uint8_t last = 0;
    for (uint32_t i = 0; i < 200; i++) {
        struct weft_net_event event = next(net);
        backwards += event.packet->bytes[0] < last;
        last = event.packet->bytes[0];
        weft_net_packet_free(event.packet);
    }
    assert_true(backwards > 10);
    assert_int_equal(next(net).type, WEFT_NET_NONE);
    weft_net_free(net);
}

static void a_partition_drops_exactly_its_window(void **state)
{
    (void)state;
    struct weft_net *net = net_of(2, 3);
    weft_net_partition_add(net, 0, WEFT_NET_UP, 16000, 32000);
    for (int i = 0; i < 6; i++) { /* they leave at 8, 16, 24, 32, 40, 48 us */
        send(net, 0, 1, WEFT_ECN_NOT);
    }
    assert_int_equal(drain(net, NULL), 4);
    assert_int_equal(weft_net_link_counters(net, 0, WEFT_NET_UP)->dropped_partition, 2);
    weft_net_free(net);
}

static void healing_ends_every_fault(void **state)
{
    (void)state;
    struct weft_net *net = net_of(2, 3);
    struct weft_net_faults faults = {.loss_ppm = WEFT_PPM,
                                     .burst_enter_ppm = WEFT_PPM,
                                     .burst_loss_ppm = WEFT_PPM,
                                     .corrupt_ppm = WEFT_PPM,
                                     .duplicate_ppm = WEFT_PPM};
    weft_net_faults_set(net, 0, WEFT_NET_UP, &faults);
    weft_net_partition_add(net, 1, WEFT_NET_DOWN, 0, SECOND);
    send(net, 0, 1, WEFT_ECN_NOT);
    assert_int_equal(drain(net, NULL), 0);
    weft_net_heal(net);
    for (int i = 0; i < 100; i++) {
        send(net, 0, 1, WEFT_ECN_NOT);
    }
    assert_int_equal(drain(net, NULL), 100);
    weft_net_free(net);
}

static void wakes_come_in_time_and_in_order(void **state)
{
    (void)state;
    struct weft_net *net = net_of(3, 3);
    weft_net_wake(net, 2, 50);
    weft_net_wake(net, 1, 50);
    weft_net_wake(net, 0, 20);
    uint32_t want[3] = {0, 2, 1};
    for (int i = 0; i < 3; i++) {
        struct weft_net_event event = next(net);
        assert_int_equal(event.type, WEFT_NET_WAKE);
        assert_int_equal(event.host, want[i]);
        assert_int_equal(weft_net_now_ns(net), i == 0 ? 20 : 50);
    }
    assert_true(weft_net_next_ns(net) == WEFT_NEVER);
    weft_net_free(net);
}

static uint64_t hash_of_faulty_run(uint64_t seed)
{
    struct weft_net *net = net_of(4, seed);
    struct weft_net_faults faults = {
        .loss_ppm = 50000, .duplicate_ppm = 50000, .reorder_ppm = 50000, .reorder_ns_max = 50000};
    for (uint32_t i = 0; i < 4; i++) {
        weft_net_faults_set(net, i, WEFT_NET_DOWN, &faults);
    }
    for (uint32_t i = 0; i < 400; i++) {
        send(net, i % 4, (i + 1) % 4, WEFT_ECN_ECT0);
    }
    uint64_t hash;
    (void)drain(net, &hash);
    weft_net_free(net);
    return hash;
}

static void the_same_seed_gives_the_same_run(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        assert_true(hash_of_faulty_run(seed) == hash_of_faulty_run(seed));
        assert_true(hash_of_faulty_run(seed) != hash_of_faulty_run(seed + 1));
    }
}

static void the_hash_is_the_same_everywhere(void **state)
{
    (void)state;
    /* Bytes are hashed as little-endian words after their count; a change would invalidate old
     * hashes. */
    uint64_t hash = weft_sim_hash_bytes(WEFT_SIM_HASH_INIT, "weft hash", 9);
    uint64_t same = weft_sim_hash_u64(WEFT_SIM_HASH_INIT, 9);
    same = weft_sim_hash_u64(same, UINT64_C(0x7361682074666577)); /* "weft has" */
    same = weft_sim_hash_u64(same, UINT64_C(0x68));               /* "h" */
    assert_true(hash == same);
    assert_true(weft_sim_hash_u64(weft_sim_hash_u64(0, 1), 2) !=
                weft_sim_hash_u64(weft_sim_hash_u64(0, 2), 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_packet_takes_its_serialization_and_delay_twice),
        cmocka_unit_test(packets_within_a_machine_bypass_its_links),
        cmocka_unit_test(packets_queue_behind_each_other_at_the_slower_link),
        cmocka_unit_test(serialization_rounds_up),
        cmocka_unit_test(a_full_buffer_drops_the_tail),
        cmocka_unit_test(ecn_marks_from_the_threshold_on_and_only_ect),
        cmocka_unit_test(random_faults_come_at_their_rates),
        cmocka_unit_test(burst_loss_has_its_rate_and_its_run_length),
        cmocka_unit_test(reordering_lets_later_packets_pass),
        cmocka_unit_test(a_partition_drops_exactly_its_window),
        cmocka_unit_test(healing_ends_every_fault),
        cmocka_unit_test(wakes_come_in_time_and_in_order),
        cmocka_unit_test(the_same_seed_gives_the_same_run),
        cmocka_unit_test(the_hash_is_the_same_everywhere),
    };
    return cmocka_run_group_tests_name("sim_net", tests, NULL, NULL);
}
