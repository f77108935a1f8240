/* The fabric at packet level: flows as messages compared with times computed by hand, and whole
 * runs compared with the flow level. The differences between the two levels are known, and small
 * for granted transfers:
 *
 *   - headers: 1,408 of 1,486 bytes of a packet are payload, so a link carries 0.9475 of its rate.
 * The flow level is run on links of that rate;
 *   - acknowledgements share links with the opposite direction: up to 0.02 if both directions are
 * full;
 *   - a transfer begins with one round trip for credit and ends with one for its acknowledgement:
 * 0.1 of 10 ms, the time of an update here;
 *   - reads are not granted. Credit serves the shortest remainder first, fluids share equally: some
 *     workers get their model earlier, none later. Workers that begin together thereby get out of
 *     phase, which changes short runs like these by 4 to 8 % if links are not full: such runs have
 * no reads.
 *
 * Hence the bound of 5 %. If links are not full, the last difference dominates, and runs with
 * packets are faster. */
#include "fabric_run.h"
#include "sim/packet_flows.h"
#include "sim/wire_time.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- flows ----------------------------------------------------------------------------------- */

enum { FLOW_BYTES = 1250000, CHUNK_BYTES = 125000, HOSTS = 3 };

static const uint64_t link_bps = 1000000000;
static const uint64_t delay_ns = 50000;
/* Tolerance: credit, acknowledgements, one packet in transmission on each link, a rate in steps. */
static const uint64_t spare_ns = 500000;

static struct weft_packet_flows *flows_new(void)
{
    const struct weft_packet_flows_config config = {
        .hosts = HOSTS, .delay_ns = delay_ns, .bytes_max = FLOW_BYTES, .seed = 1};
    struct weft_packet_flows *flows = weft_packet_flows_new(&config);
    for (uint32_t i = 0; i < HOSTS; i++) {
        weft_packet_flows_connect(flows, i, (i + 1) % HOSTS);
    }
    for (uint32_t l = 0; l < 2 * HOSTS; l++) {
        weft_packet_flows_set_capacity(flows, l, link_bps);
    }
    assert_true(weft_packet_flows_begin(flows));
    return flows;
}

static struct weft_fluid_flow flow_of(uint32_t from, uint32_t to, uint64_t rank, uint64_t user)
{
    return (struct weft_fluid_flow){.up = 2 * from,
                                    .down = 2 * to + 1,
                                    .bytes = FLOW_BYTES,
                                    .limit_bps = rank > 0 ? 0 : WEFT_FLUID_NO_LIMIT,
                                    .rank = rank,
                                    .user = user};
}

/* Time of the next event of any flow until then, or WEFT_NEVER. */
static uint64_t next_event(struct weft_packet_flows *flows, uint64_t until_ns,
                           struct weft_fluid_event *event_p)
{
    while (!weft_packet_flows_poll(flows, event_p)) {
        uint64_t next_ns = weft_packet_flows_next_ns(flows);
        if (next_ns > until_ns) {
            return WEFT_NEVER;
        }
        weft_packet_flows_advance(flows, next_ns);
        assert_string_equal(weft_packet_flows_wrong(flows), "");
    }
    return weft_packet_flows_next_ns(flows);
}

static void assert_time(uint64_t ns, uint64_t least_ns)
{
    assert_in_range(ns, least_ns, least_ns + spare_ns);
}

static uint64_t wire_ns(uint64_t bytes, uint64_t bps)
{
    return weft_sim_wire_ns(weft_sim_wire_bytes(bytes), bps);
}

static void a_flow_takes_what_its_packets_take(void **state)
{
    (void)state;
    struct weft_packet_flows *flows = flows_new();
    struct weft_fluid_event event;
    struct weft_fluid_flow flow = flow_of(0, 1, 0, 77);
    (void)weft_packet_flows_start(flows, &flow, FLOW_BYTES);
    assert_time(next_event(flows, WEFT_NS_PER_S, &event), wire_ns(FLOW_BYTES, link_bps) + delay_ns);
    assert_int_equal(event.user, 77);
    assert_int_equal(event.bytes, FLOW_BYTES);
    assert_true(event.finished);
    assert_int_equal(next_event(flows, WEFT_NS_PER_S, &event), WEFT_NEVER);
    /* Two flows at half the rate of a link each: their sum on the downlink. */
    flow = flow_of(0, 2, 0, 1);
    (void)weft_packet_flows_start(flows, &flow, FLOW_BYTES);
    flow = flow_of(1, 2, 0, 2);
    (void)weft_packet_flows_start(flows, &flow, FLOW_BYTES);
    uint64_t from_ns = weft_packet_flows_next_ns(flows);
    assert_true(next_event(flows, 2 * WEFT_NS_PER_S, &event) != WEFT_NEVER);
    assert_time(next_event(flows, 2 * WEFT_NS_PER_S, &event) - from_ns,
                2 * wire_ns(FLOW_BYTES, link_bps) + delay_ns);
    weft_packet_flows_free(flows);
}

/* A held flow sends nothing before its start, and then at its rate; a limit of 0 stops it. */
static void a_grant_is_kept(void **state)
{
    (void)state;
    struct weft_packet_flows *flows = flows_new();
    struct weft_fluid_event event;
    const uint64_t ms = WEFT_NS_PER_MS;
    struct weft_fluid_flow flow = flow_of(0, 1, 1, 0);
    uint32_t number = weft_packet_flows_start(flows, &flow, FLOW_BYTES);
    assert_int_equal(next_event(flows, 20 * ms, &event), WEFT_NEVER);
    weft_packet_flows_advance(flows, 20 * ms);
    /* 10 Mbit at 100 Mbit/s from 30 ms on. */
    weft_packet_flows_limit(flows, number, 30 * ms, 100000000);
    assert_int_equal(next_event(flows, 80 * ms, &event), WEFT_NEVER);
    uint64_t half = (uint64_t)weft_packet_flows_carried(flows, 0) / 8000000000;
    assert_in_range(half, FLOW_BYTES / 2, FLOW_BYTES / 2 * 1.07);
    weft_packet_flows_advance(flows, 80 * ms);
    weft_packet_flows_limit(flows, number, WEFT_NEVER, 0);
    assert_int_equal(next_event(flows, 200 * ms, &event), WEFT_NEVER);
    uint64_t stopped = (uint64_t)weft_packet_flows_carried(flows, 0) / 8000000000;
    assert_in_range(stopped, half, half + 10000);
    weft_packet_flows_advance(flows, 200 * ms);
    weft_packet_flows_limit(flows, number, 200 * ms, 100000000);
    /* Packets may be 100 us ahead of the rate (core/pace.c). */
    assert_time(next_event(flows, 400 * ms, &event), 250 * ms - ms / 10);
    assert_true(event.finished);
    weft_packet_flows_free(flows);
}

/* Forwarded data arrives in whole chunks, and only as far as it was released. */
static void only_what_was_released_is_sent(void **state)
{
    (void)state;
    struct weft_packet_flows *flows = flows_new();
    struct weft_fluid_event event;
    struct weft_fluid_flow flow = flow_of(0, 1, 1, 0);
    flow.chunk_bytes = CHUNK_BYTES;
    uint32_t number = weft_packet_flows_start(flows, &flow, 0);
    weft_packet_flows_limit(flows, number, 0, weft_sim_goodput_bps(link_bps));
    assert_int_equal(next_event(flows, WEFT_NS_PER_S, &event), WEFT_NEVER);
    uint64_t at_ns = WEFT_NS_PER_S;
    for (uint64_t chunk = 1; chunk <= FLOW_BYTES / CHUNK_BYTES; chunk++) {
        weft_packet_flows_advance(flows, at_ns);
        weft_packet_flows_release(flows, number, chunk * CHUNK_BYTES);
        assert_time(next_event(flows, at_ns + WEFT_NS_PER_S, &event),
                    at_ns + wire_ns(CHUNK_BYTES, link_bps));
        assert_int_equal(event.bytes, chunk * CHUNK_BYTES);
        assert_int_equal(event.finished, chunk == FLOW_BYTES / CHUNK_BYTES);
        assert_int_equal(next_event(flows, at_ns + WEFT_NS_PER_S, &event), WEFT_NEVER);
        at_ns += WEFT_NS_PER_S;
    }
    weft_packet_flows_free(flows);
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* A tenth of the settings' values: updates of 10 ms, steps of 200 ms. */
static struct weft_fabric_config config_of(enum weft_fabric_policy policy, const char *compute,
                                           const char *network)
{
    struct weft_fabric_config config;
    weft_fabric_config_default(&config);
    config.level = WEFT_FABRIC_PACKETS;
    config.policy = policy;
    config.compute = *weft_fabric_compute_find(compute);
    config.compute.step_ns_min /= 10;
    config.compute.step_ns_max /= 10;
    config.network = *weft_fabric_network_find(network);
    config.workers = 10;
    config.update_bytes = FLOW_BYTES;
    config.model_bytes = FLOW_BYTES;
    config.tau_max = 20;
    config.read_credits = 6;
    config.duration_ns = 3 * WEFT_NS_PER_S;
    return config;
}

struct setting {
    enum weft_fabric_policy policy;
    const char *compute;
    const char *network;
    uint64_t model_bytes;
};

static void both_levels_commit_as_much(void **state)
{
    (void)state;
    static const struct setting settings[] = {
        {WEFT_FABRIC_ORDER, "fixed", "homogeneous", 0},
        {WEFT_FABRIC_ORDER, "brief", "homogeneous", FLOW_BYTES},
        {WEFT_FABRIC_FIFO, "CS2", "contended", 0},
        {WEFT_FABRIC_BOUND, "bimodal", "varying", 0},
        {WEFT_FABRIC_CUT_THROUGH, "CS2", "contended", 0},
        {WEFT_FABRIC_ADMISSION, "brief", "homogeneous", FLOW_BYTES},
    };
    for (uint32_t i = 0; i < WEFT_ARRAY_COUNT(settings); i++) {
        struct weft_fabric_config config =
            config_of(settings[i].policy, settings[i].compute, settings[i].network);
        config.model_bytes = settings[i].model_bytes;
        run(&config);
        uint64_t commits = result.commits;
        assert_true(result.packets > commits * (FLOW_BYTES / 1500));
        config.level = WEFT_FABRIC_FLOWS;
        config.network.rate_bps = weft_sim_goodput_bps(config.network.rate_bps);
        run(&config);
        assert_int_equal(result.packets, 0);
        print_message("%s, %s, %s: %lu and %lu commits\n", weft_fabric_policy_name(config.policy),
                      config.compute.name, config.network.name, (unsigned long)commits,
                      (unsigned long)result.commits);
        if (commits * 100 < result.commits * 95 || commits * 100 > result.commits * 105) {
            fail_msg("%s, %s, %s: %lu commits with packets, %lu with flows",
                     weft_fabric_policy_name(config.policy), config.compute.name,
                     config.network.name, (unsigned long)commits, (unsigned long)result.commits);
        }
    }
}

/* A ring of full links: the steps' packets and round trips. Fair shares: weft's transport serves
 * the shortest remainder first, so workers get out of phase. There are never fewer commits than
 * with an ideal TCP at the payload's rate. */
static void nobody_asks_the_planner(void **state)
{
    (void)state;
    struct weft_fabric_config config = config_of(WEFT_FABRIC_RING, "fixed", "homogeneous");
    config.mode = WEFT_FABRIC_SYNC;
    config.workers = 6;
    config.update_bytes = 6 * FLOW_BYTES;
    run(&config);
    uint64_t packets_ns = result.makespan_ns;
    config.level = WEFT_FABRIC_FLOWS;
    config.network.rate_bps = weft_sim_goodput_bps(config.network.rate_bps);
    run(&config);
    assert_in_range(packets_ns, result.makespan_ns - 10 * delay_ns, result.makespan_ns * 105 / 100);

    config = config_of(WEFT_FABRIC_FAIR, "fixed", "homogeneous");
    run(&config);
    uint64_t commits = result.commits;
    config.level = WEFT_FABRIC_FLOWS;
    config.network.rate_bps = weft_sim_goodput_bps(config.network.rate_bps);
    run(&config);
    assert_true(commits * 100 >= result.commits * 95);
}

/* Time of one all-reduce of 30 workers. */
static uint64_t all_reduce_ns(enum weft_fabric_policy policy)
{
    struct weft_fabric_config config = config_of(policy, "fixed", "homogeneous");
    config.mode = WEFT_FABRIC_SYNC;
    config.workers = 30;
    config.update_bytes = 4000000;
    config.duration_ns = WEFT_NS_PER_S;
    run(&config);
    return result.makespan_ns - config.compute.step_ns_min;
}

/* The transfers of an all-reduce share links: none waits for the credit of one that was granted
 * earlier. Cut-through is about three times as fast as store-and-forward. */
static void trees_share_links(void **state)
{
    (void)state;
    const uint64_t whole_ns = all_reduce_ns(WEFT_FABRIC_TREE);
    const uint64_t chunks_ns = all_reduce_ns(WEFT_FABRIC_TREE_CUT_THROUGH);
    print_message("store and forward %.1f ms, cut-through %.1f ms\n", (double)whole_ns / 1e6,
                  (double)chunks_ns / 1e6);
    assert_true(whole_ns * 10 >= chunks_ns * 29);
}

/* A run has the same checks: delays are conserved, and bounds hold at packet level, too. */
static void every_policy_runs_with_packets(void **state)
{
    (void)state;
    uint64_t dropped = 0;
    uint64_t groups = 0;
    for (int policy = WEFT_FABRIC_FAIR; policy < WEFT_FABRIC_POLICIES; policy++) {
        struct weft_fabric_config config = config_of((enum weft_fabric_policy)policy, "bimodal",
                                                     policy % 2 == 0 ? "varying" : "slow-uplinks");
        bool served = !weft_fabric_is_all_reduce(config.policy);
        config.mode = served ? WEFT_FABRIC_ASYNC : WEFT_FABRIC_SYNC;
        config.servers = served ? 2 : 1;
        config.tau_max = 9;
        config.div_max = served && policy % 3 == 0 ? 4 : 0;
        config.model_bytes = config.policy == WEFT_FABRIC_CUT_THROUGH ? 0 : FLOW_BYTES;
        config.duration_ns = 2 * WEFT_NS_PER_S;
        run(&config);
        assert_true(result.commits >= config.workers);
        assert_true(result.server_link_utilization <= 1);
        assert_true((result.replica_bytes > 0) == (config.div_max > 0));
        dropped += result.dropped;
        groups += result.groups;
    }
    assert_true(dropped > 0);
    assert_true(groups > 0);
}

static void one_seed_is_one_run(void **state)
{
    (void)state;
    static struct weft_fabric_result first;
    struct weft_fabric_config config = config_of(WEFT_FABRIC_CUT_THROUGH, "bimodal", "varying");
    config.model_bytes = 0;
    run(&config);
    first = result;
    run(&config);
    assert_memory_equal(&first, &result, sizeof(result));
    assert_true(result.trace_hash != 0);
    config.seed++;
    run(&config);
    assert_true(first.trace_hash != result.trace_hash);
}

static void large_runs_are_for_the_flow_level(void **state)
{
    (void)state;
    struct weft_fabric_config config = config_of(WEFT_FABRIC_FAIR, "fixed", "homogeneous");
    config.workers = 63;
    assert_null(weft_fabric_config_check(&config));
    config.div_max = 1;
    assert_non_null(strstr(weft_fabric_config_check(&config), "64 hosts"));
    config.div_max = 0;
    config.update_bytes = 300000001;
    assert_non_null(strstr(weft_fabric_config_check(&config), "300,000,000"));
    config.level = WEFT_FABRIC_FLOWS;
    assert_null(weft_fabric_config_check(&config));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flow_takes_what_its_packets_take),
        cmocka_unit_test(a_grant_is_kept),
        cmocka_unit_test(only_what_was_released_is_sent),
        cmocka_unit_test(both_levels_commit_as_much),
        cmocka_unit_test(nobody_asks_the_planner),
        cmocka_unit_test(trees_share_links),
        cmocka_unit_test(every_policy_runs_with_packets),
        cmocka_unit_test(one_seed_is_one_run),
        cmocka_unit_test(large_runs_are_for_the_flow_level),
    };
    return cmocka_run_group_tests_name("sim_fabric_packets", tests, NULL, NULL);
}
