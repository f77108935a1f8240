/* The planner's events and decisions, one update at a time. */
#include "sched/planner.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define GBIT UINT64_C(1000000000)

/* Three workers on hosts 0-2 and a server on host 3, all links 1 Gbit/s: 125 bytes take 1 us. */
static struct weft_planner *three_workers(uint32_t policy)
{
    const struct weft_planner_host host[4] = {
        {GBIT, GBIT}, {GBIT, GBIT}, {GBIT, GBIT}, {GBIT, GBIT}};
    const uint32_t worker_host[3] = {0, 1, 2}, server_host[1] = {3};
    struct weft_planner_config config;
    weft_planner_config_default(&config);
    config.policy = policy;
    config.hosts = 4;
    config.workers = 3;
    config.servers = 1;
    config.host = host;
    config.worker_host = worker_host;
    config.server_host = server_host;
    struct weft_planner *planner;
    assert_int_equal(weft_planner_new(&config, &planner), WEFT_OK);
    return planner;
}

static void ask(struct weft_planner *planner, uint32_t worker, uint64_t bytes)
{
    struct weft_planner_update update = {.worker = worker, .bytes = bytes, .norm = 1};
    assert_int_equal(weft_planner_update(planner, &update, 0), WEFT_OK);
}

static void expect_order(struct weft_planner *planner, const uint32_t *order)
{
    struct weft_planner_decision decision;
    uint64_t at_ns = 0;
    weft_planner_plan(planner, 0);
    for (int i = 0; i < 3; i++) {
        assert_true(weft_planner_poll(planner, &decision));
        assert_int_equal(decision.kind, WEFT_PLANNER_GRANT);
        assert_int_equal(decision.worker, order[i]);
        assert_int_equal(decision.to_host, 3);
        assert_int_equal(decision.booking.start_ns, at_ns);
        at_ns += weft_transfer_ns(decision.bytes, GBIT);
        assert_int_equal(decision.booking.end_ns, at_ns);
    }
    assert_false(weft_planner_poll(planner, &decision));
    weft_planner_free(planner);
}

static void first_come_first_served(void **state)
{
    (void)state;
    struct weft_planner *planner = three_workers(0);
    ask(planner, 1, 3000);
    ask(planner, 2, 1000);
    ask(planner, 0, 2000);
    expect_order(planner, (uint32_t[]){1, 2, 0});
}

static void shortest_completion_first(void **state)
{
    (void)state;
    struct weft_planner *planner = three_workers(WEFT_PLAN_ORDER);
    ask(planner, 1, 3000);
    ask(planner, 2, 1000);
    ask(planner, 0, 2000);
    expect_order(planner, (uint32_t[]){2, 0, 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_come_first_served),
        cmocka_unit_test(shortest_completion_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
