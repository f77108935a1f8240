/* The scheduler in its thread and links to it over loopback: a worker and a shard, each on its own
 * endpoint, with a job key; a scheduler that ends, and one that restarts. */
#include "io/clock.h"
#include "node/sched_link.h"
#include "node/scheduler.h"
#include "rpc/head.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const uint64_t patience_ns = 60 * WEFT_NS_PER_S;

struct end {
    struct weft_driver *driver;
    struct weft_sched_link *link;
    uint16_t port; /* the scheduler's port */
};

static const struct weft_security none = {.mode = WEFT_MODE_NONE};

static void start(struct weft_scheduler *scheduler, uint16_t port)
{
    struct weft_error error = {.text = ""};
    struct weft_scheduler_config config = {.host = "127.0.0.1", .port = port, .security = &none};
    weft_sched_service_config_default(&config.service);
    if (weft_scheduler_start(scheduler, &config, &error) != WEFT_OK) {
        fail_msg("%s", error.text);
    }
}

static void end_open(struct end *end, enum weft_sched_role role, uint16_t port)
{
    struct weft_error error = {.text = ""};
    struct weft_driver_config driver;
    struct weft_sched_daemon_config config;
    weft_driver_config_default(&driver);
    driver.udp.ep.name =
        weft_rpc_name(role == WEFT_SCHED_WORKER ? WEFT_ROLE_WORKER : WEFT_ROLE_SERVER, 0);
    driver.udp.ep.expects_max = WEFT_SCHED_LINK_EXPECTS;
    driver.udp.ep.peers_max = 4;
    assert_int_equal(weft_driver_open(&driver, &end->driver, &error), WEFT_OK);
    weft_sched_daemon_config_default(&config);
    config.role = role;
    config.workers = 1;
    config.mode = role == WEFT_SCHED_WORKER ? WEFT_SCHED_ASP : 0;
    config.tau_max = role == WEFT_SCHED_WORKER ? 4 : 0;
    assert_int_equal(weft_sched_link_new(&config, weft_driver_msgr(end->driver), &end->link),
                     WEFT_OK);
    end->port = port;
}

static void handle(void *arg, uint64_t now_ns)
{
    struct end *end = arg;
    struct weft_msgr msgr = weft_driver_msgr(end->driver);
    struct weft_msg_event event;
    while (msgr.ops->poll(msgr.self, &event)) {
        assert_true(weft_sched_link_event(end->link, &event, now_ns) ||
                    event.type == WEFT_EVENT_PEER_DOWN);
    }
    weft_sched_link_progress(end->link, now_ns);
}

static void step(struct end *end)
{
    struct weft_error error = {.text = ""};
    uint64_t now_ns = weft_clock_now_ns();
    weft_peer peer = WEFT_PEER_ANY;
    if (weft_sched_link_wants_peer(end->link, now_ns)) {
        (void)weft_driver_connect(end->driver, "127.0.0.1", end->port, &peer, &error);
        weft_sched_link_connecting(end->link, peer, now_ns);
    }
    uint64_t due_ns = weft_sched_link_deadline(end->link);
    uint64_t wait_ns = due_ns > now_ns ? due_ns - now_ns : 0;
    (void)weft_driver_step(end->driver, weft_min_u64(wait_ns, 5 * WEFT_NS_PER_MS), handle, end);
}

/* Wait for the next reply to the worker. */
static struct weft_sched_answer answer(struct end *worker, struct end *shard)
{
    struct weft_sched_answer answer;
    uint64_t until_ns = weft_clock_now_ns() + patience_ns;
    while (!weft_sched_daemon_answer(weft_sched_link_daemon(worker->link), weft_clock_now_ns(),
                                     &answer)) {
        if (weft_clock_now_ns() > until_ns) {
            fail_msg("no answer");
        }
        step(worker);
        step(shard);
    }
    return answer;
}

static void ask(struct end *worker, uint64_t clock)
{
    const struct weft_sched_share share = {.bytes = 1000000, .base = clock - 1};
    weft_sched_daemon_ask(weft_sched_link_daemon(worker->link), clock, 1, &share,
                          weft_clock_now_ns());
}

static void finish(struct end *worker, struct end *shard, uint64_t clock)
{
    const struct weft_sched_event closed = {.worker = 0, .clock = clock, .norm = 1};
    weft_sched_daemon_delivered(weft_sched_link_daemon(worker->link), 0, WEFT_NS_PER_MS);
    weft_sched_daemon_ended(weft_sched_link_daemon(worker->link));
    weft_sched_daemon_counts(weft_sched_link_daemon(shard->link), clock, clock);
    weft_sched_daemon_committed(weft_sched_link_daemon(shard->link), &closed);
}

static void count(void *arg, void *object)
{
    const struct weft_scheduler *scheduler = object;
    *(struct weft_planner_counters *)arg =
        *weft_planner_counters(weft_sched_service_planner(scheduler->service));
}

/* End clocks from `clock` on until one is granted, which must happen once the scheduler is
 * connected. */
static uint64_t until_granted(struct end *worker, struct end *shard, uint64_t clock)
{
    uint64_t until_ns = weft_clock_now_ns() + patience_ns;
    for (;; clock++) {
        step(worker);
        step(shard);
        ask(worker, clock);
        struct weft_sched_answer a = answer(worker, shard);
        assert_int_equal(a.clock, clock);
        finish(worker, shard, clock);
        if (a.kind == WEFT_SCHED_SEND) {
            assert_true(a.rate_bps > 0);
            return clock + 1;
        }
        assert_int_equal(a.kind, WEFT_SCHED_SEND_DIRECT);
        assert_true(weft_clock_now_ns() < until_ns);
    }
}

static void killed_and_started_again(void **state)
{
    (void)state;
    static struct weft_scheduler scheduler;
    struct end worker, shard;
    start(&scheduler, 0);
    uint16_t port = weft_scheduler_port(&scheduler);
    end_open(&worker, WEFT_SCHED_WORKER, port);
    end_open(&shard, WEFT_SCHED_SERVER, port);
    uint64_t clock = until_granted(&worker, &shard, 1);
    /* Updates closed by the shard are committed in time. */
    struct weft_planner_counters counters = {0};
    uint64_t until_ns = weft_clock_now_ns() + patience_ns;
    while (counters.commits == 0) {
        assert_true(weft_clock_now_ns() < until_ns);
        step(&worker);
        step(&shard);
        assert_true(weft_stats_query_ask(&scheduler.query, count, &counters, patience_ns));
    }
    weft_scheduler_stop(&scheduler);
    uint64_t asked_ns = weft_clock_now_ns();
    ask(&worker, clock);
    assert_int_equal(answer(&worker, &shard).kind, WEFT_SCHED_SEND_DIRECT);
    assert_true(weft_clock_now_ns() - asked_ns >= WEFT_NS_PER_S * 9 / 10);
    finish(&worker, &shard, clock++);
    start(&scheduler, port);
    (void)until_granted(&worker, &shard, clock);
    weft_scheduler_stop(&scheduler);
    weft_driver_close(worker.driver);
    weft_driver_close(shard.driver);
    weft_sched_link_free(worker.link);
    weft_sched_link_free(shard.link);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_and_started_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
