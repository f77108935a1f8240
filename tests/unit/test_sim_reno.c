/* TCP flows of the simulator: complete transfers, the share of a link, losses and their repair, and
 * equal runs. */
#include "sim/reno.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { HOSTS = 3, OVERHEAD = 58, RATE_MBPS = 200, BUFFER = 150000 };

struct run {
    const struct weft_reno_flow *flows;
    uint32_t count;
    uint32_t next;
    uint32_t loss_ppm;
    uint64_t seed;
    struct weft_world *world;
    struct weft_reno *reno;
};

static bool next_flow(void *self, struct weft_reno_flow *flow_p)
{
    struct run *run = self;
    if (run->next == run->count) {
        return false;
    }
    *flow_p = run->flows[run->next++];
    return true;
}

static void open_run(struct run *run)
{
    const struct weft_world_config config = {
        .hosts = 2 * HOSTS,
        .seed = run->seed,
        .steps_max = UINT64_MAX,
        .lean = true,
    };
    run->next = 0;
    run->world = weft_world_new(&config);
    struct weft_net *net = weft_world_net(run->world);
    weft_net_overhead_set(net, OVERHEAD);
    for (uint32_t i = 0; i < HOSTS; i++) {
        struct weft_net_link_config link = {
            .rate_bps = RATE_MBPS * UINT64_C(1000000),
            .delay_ns = 50 * WEFT_NS_PER_US,
            .buffer_bytes = UINT64_C(1) << 40,
        };
        weft_net_link_set(net, i, WEFT_NET_UP, &link);
        link.buffer_bytes = BUFFER;
        weft_net_link_set(net, i, WEFT_NET_DOWN, &link);
        struct weft_net_faults faults = {.loss_ppm = run->loss_ppm};
        weft_net_faults_set(net, i, WEFT_NET_DOWN, &faults);
    }
    run->reno = weft_reno_new(&(struct weft_reno_config){
        .world = run->world,
        .hosts = HOSTS,
        .overhead_bytes = OVERHEAD,
        .rate_bps = RATE_MBPS * UINT64_C(1000000),
        .next = next_flow,
        .self = run,
    });
    weft_reno_begin(run->reno);
}

static void run_for(struct run *run, uint64_t ns)
{
    (void)weft_world_run(run->world, ns);
    assert_string_equal(weft_world_wrong(run->world), "");
    assert_null(weft_net_check(weft_world_net(run->world), true));
}

static void close_run(struct run *run)
{
    weft_reno_free(run->reno);
    weft_world_free(run->world);
}

static const struct weft_net_link_counters *down(const struct run *run, uint32_t host)
{
    return weft_net_link_counters(weft_world_net(run->world), host, WEFT_NET_DOWN);
}

static void a_flow_ends_when_all_of_it_is_acknowledged(void **state)
{
    (void)state;
    const struct weft_reno_flow flows[] = {{0, 1, 0, 1}, {WEFT_NS_PER_MS, 1000000, 1, 2}};
    struct run run = {.flows = flows, .count = 2, .seed = 1};
    open_run(&run);
    run_for(&run, WEFT_NS_PER_S);
    const struct weft_reno_counters *c = weft_reno_counters(run.reno);
    assert_int_equal(c->flows, 2);
    assert_int_equal(c->complete, 2);
    assert_int_equal(c->segments, 1 + 691);
    assert_int_equal(c->again, 0);
    assert_int_equal(c->timeouts, 0);
    assert_int_equal(c->bytes, 692 * WEFT_RENO_SEGMENT_BYTES);
    assert_int_equal(weft_net_packets(weft_world_net(run.world)), 0);
    close_run(&run);
}

/* Two flows to one host keep its link busy and its buffer full, and lose packets there. */
static void flows_without_end_fill_a_port(void **state)
{
    (void)state;
    const struct weft_reno_flow flows[] = {{.from = 1, .to = 0}, {.from = 2, .to = 0}};
    struct run run = {.flows = flows, .count = 2, .seed = 1};
    open_run(&run);
    run_for(&run, WEFT_NS_PER_S);
    uint64_t before = down(&run, 0)->left_bytes;
    run_for(&run, 5 * WEFT_NS_PER_S);
    uint64_t full = RATE_MBPS * UINT64_C(1000000) / 8 * 4;
    assert_true(down(&run, 0)->left_bytes - before > full / 100 * 98);
    assert_true(down(&run, 0)->queued_bytes_max > BUFFER - 1514);
    assert_true(down(&run, 0)->dropped_full > 0);
    const struct weft_reno_counters *c = weft_reno_counters(run.reno);
    assert_true(c->again > 0);
    weft_reno_end(run.reno);
    uint64_t segments = c->segments;
    run_for(&run, 6 * WEFT_NS_PER_S);
    assert_int_equal(c->segments, segments);
    assert_int_equal(weft_net_packets(weft_world_net(run.world)), 0);
    close_run(&run);
}

static void a_host_queues_little(void **state)
{
    (void)state;
    const struct weft_reno_flow flows[] = {{.from = 1, .to = 0}};
    struct run run = {.flows = flows, .count = 1, .seed = 1};
    open_run(&run);
    run_for(&run, WEFT_NS_PER_S);
    const struct weft_net_link_counters *up =
        weft_net_link_counters(weft_world_net(run.world), 1, WEFT_NET_UP);
    assert_true(up->queued_bytes_max > WEFT_RENO_HOST_BYTES / 2);
    assert_true(up->queued_bytes_max <= WEFT_RENO_HOST_BYTES + 1514);
    assert_int_equal(weft_net_queued_bytes(weft_world_net(run.world), 1), 0);
    assert_int_equal(weft_net_queued_bytes(weft_world_net(run.world), HOSTS + 1),
                     up->queued_bytes);
    close_run(&run);
}

static void losses_are_repaired(void **state)
{
    (void)state;
    const struct weft_reno_flow flows[] = {{0, 3000000, 0, 1}, {0, 1, 1, 2}, {0, 20000, 2, 0}};
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct run run = {.flows = flows, .count = 3, .seed = seed, .loss_ppm = 30000};
        open_run(&run);
        run_for(&run, 30 * WEFT_NS_PER_S);
        const struct weft_reno_counters *c = weft_reno_counters(run.reno);
        assert_int_equal(c->complete, 3);
        assert_true(c->again > 0);
        assert_int_equal(c->bytes, (2072 + 1 + 14) * WEFT_RENO_SEGMENT_BYTES);
        close_run(&run);
    }
}

static struct weft_reno_counters counters_of(uint64_t seed)
{
    const struct weft_reno_flow flows[] = {{0, 3000000, 0, 1}, {0, 2000000, 2, 1}};
    struct run run = {.flows = flows, .count = 2, .seed = seed, .loss_ppm = 10000};
    open_run(&run);
    run_for(&run, WEFT_NS_PER_S);
    struct weft_reno_counters counters = *weft_reno_counters(run.reno);
    close_run(&run);
    return counters;
}

static void a_seed_is_a_run(void **state)
{
    (void)state;
    struct weft_reno_counters a = counters_of(1);
    struct weft_reno_counters b = counters_of(1);
    assert_memory_equal(&a, &b, sizeof(a));
    b = counters_of(2);
    assert_memory_not_equal(&a, &b, sizeof(a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flow_ends_when_all_of_it_is_acknowledged),
        cmocka_unit_test(flows_without_end_fill_a_port),
        cmocka_unit_test(a_host_queues_little),
        cmocka_unit_test(losses_are_repaired),
        cmocka_unit_test(a_seed_is_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
