/* Transfers to replicas in a job with a scheduler: the service and the daemons of one worker and of
 * shards that share a link, in virtual time. */
#include "sched/daemon.h"
#include "sched/planner.h"
#include "sched/service.h"
#include "sched_exchange.h"

enum { SHARDS = 2, PROCESSES = 1 + SHARDS, BYTES = 100000 };

static const uint64_t link_bps = 8000000; /* BYTES need 100 ms */

struct job {
    struct weft_sched_service *service;
    struct weft_sched_daemon *daemons[PROCESSES];
    uint64_t now_ns;
};

/* host: of both shards; 0 = each has its own link. */
static void job_start(struct job *job, uint64_t host)
{
    struct weft_sched_service_config config;
    *job = (struct job){.now_ns = 0};
    weft_sched_service_config_default(&config);
    config.life = 1;
    config.link_bps = link_bps;
    assert_int_equal(weft_sched_service_new(&config, &job->service), WEFT_OK);
    for (uint32_t p = 0; p < PROCESSES; p++) {
        struct weft_sched_daemon_config of;
        const bool is_worker = p == 0;
        weft_sched_daemon_config_default(&of);
        of.role = is_worker ? WEFT_SCHED_WORKER : WEFT_SCHED_SERVER;
        of.index = is_worker ? 0 : p - 1;
        of.workers = 1;
        of.shards = SHARDS;
        of.mode = is_worker ? WEFT_SCHED_ASP : 0;
        of.host = is_worker ? 0 : host;
        assert_int_equal(weft_sched_daemon_new(&of, &job->daemons[p]), WEFT_OK);
        weft_sched_service_connected(job->service, p, of.role, of.index, 1);
        weft_sched_daemon_connected(job->daemons[p], 0);
    }
    sched_exchange(job->service, job->daemons, PROCESSES, 0);
}

static void job_stop(struct job *job)
{
    for (uint32_t p = 0; p < PROCESSES; p++) {
        weft_sched_daemon_free(job->daemons[p]);
    }
    weft_sched_service_free(job->service);
}

static struct weft_sched_daemon *shard(struct job *job, uint32_t s)
{
    return job->daemons[1 + s];
}

static void at(struct job *job, uint64_t ms)
{
    job->now_ns = ms * WEFT_NS_PER_MS;
    sched_exchange(job->service, job->daemons, PROCESSES, job->now_ns);
}

static void asks(struct job *job, uint32_t s, uint32_t number)
{
    weft_sched_daemon_transfer(shard(job, s), number, true, BYTES, job->now_ns);
}

static void has_begun(struct job *job, uint32_t s, uint32_t number)
{
    weft_sched_daemon_transfer(shard(job, s), number, false, BYTES, job->now_ns);
}

static void is_over(struct job *job, uint32_t s)
{
    weft_sched_daemon_transfer(shard(job, s), 0, false, 0, job->now_ns);
}

static bool may(struct job *job, uint32_t s)
{
    return weft_sched_daemon_may_transfer(shard(job, s), job->now_ns);
}

static uint64_t direct(struct job *job, uint32_t s)
{
    return weft_sched_daemon_counters(shard(job, s))->transfers_direct;
}

/* Shards that share a link send one after the other, each once for a grant. */
static void in_turn(void **state)
{
    (void)state;
    struct job job;
    job_start(&job, 7);
    assert_false(may(&job, 0)); /* none is due */
    asks(&job, 0, 1);
    asks(&job, 1, 5);
    assert_false(may(&job, 0));
    at(&job, 1);
    assert_true(may(&job, 0));
    assert_false(may(&job, 0)); /* once */
    assert_false(may(&job, 1));
    has_begun(&job, 0, 1);
    at(&job, 50);
    assert_false(may(&job, 1));
    at(&job, 300); /* longer than planned */
    assert_false(may(&job, 1));
    is_over(&job, 0);
    at(&job, 301);
    assert_true(may(&job, 1));
    has_begun(&job, 1, 5);
    asks(&job, 0, 2); /* the grant of the first one is not valid for it */
    at(&job, 302);
    assert_false(may(&job, 0));
    is_over(&job, 1);
    at(&job, 303);
    assert_true(may(&job, 0));
    assert_int_equal(direct(&job, 0) + direct(&job, 1), 0);
    const struct weft_planner *planner = weft_sched_service_planner(job.service);
    assert_int_equal(weft_planner_counters(planner)->replications, 3);
    job_stop(&job);
}

static void at_once_on_separate_links(void **state)
{
    (void)state;
    struct job job;
    job_start(&job, 0);
    asks(&job, 0, 1);
    asks(&job, 1, 1);
    at(&job, 1);
    assert_true(may(&job, 0) && may(&job, 1));
    job_stop(&job);
}

/* Durability does not wait for the scheduler: without a grant a transfer begins after a second, at
 * once if there is no connection. What began without a grant frees no other's booking. */
static void without_a_grant(void **state)
{
    (void)state;
    struct job job;
    job_start(&job, 7);
    asks(&job, 0, 1);
    asks(&job, 1, 1);
    at(&job, 1);
    assert_true(may(&job, 0));
    has_begun(&job, 0, 1);
    for (uint64_t ms = 10; ms < 1000; ms += 10) {
        at(&job, ms);
        assert_false(may(&job, 1));
    }
    assert_true(weft_sched_daemon_deadline(shard(&job, 1)) <= 1000 * WEFT_NS_PER_MS);
    at(&job, 1000);
    assert_true(may(&job, 1));
    assert_int_equal(direct(&job, 1), 1);
    has_begun(&job, 1, 1);
    is_over(&job, 0);
    at(&job, 1001);
    asks(&job, 0, 2);
    at(&job, 1002);
    assert_true(may(&job, 0));
    weft_sched_daemon_disconnected(shard(&job, 1));
    asks(&job, 1, 2);
    assert_true(may(&job, 1));
    assert_int_equal(direct(&job, 1), 2);
    job_stop(&job);
}

/* Once the scheduler has timed out, later transfers do not wait for it. */
static void a_frozen_scheduler(void **state)
{
    (void)state;
    static struct weft_sched_report report;
    struct job job;
    job_start(&job, 7);
    asks(&job, 0, 1);
    assert_true(weft_sched_daemon_poll(shard(&job, 0), job.now_ns, &report));
    job.now_ns = 999 * WEFT_NS_PER_MS;
    assert_false(may(&job, 0));
    job.now_ns += WEFT_NS_PER_MS;
    assert_true(may(&job, 0));
    is_over(&job, 0);
    asks(&job, 0, 2);
    assert_true(may(&job, 0));
    assert_int_equal(direct(&job, 0), 2);
    is_over(&job, 0);
    at(&job, 1001); /* it replies again */
    asks(&job, 0, 3);
    assert_false(may(&job, 0));
    at(&job, 1002);
    assert_true(may(&job, 0));
    assert_int_equal(direct(&job, 0), 2);
    job_stop(&job);
}

/* A shard whose connection ends in the middle of its transfer does not block the other. */
static void a_dead_shard_blocks_nobody(void **state)
{
    (void)state;
    struct job job;
    job_start(&job, 7);
    asks(&job, 0, 1);
    at(&job, 1);
    assert_true(may(&job, 0));
    has_begun(&job, 0, 1);
    asks(&job, 1, 1);
    at(&job, 2);
    assert_false(may(&job, 1));
    weft_sched_service_disconnected(job.service, 1, job.now_ns);
    weft_sched_daemon_disconnected(shard(&job, 0));
    weft_sched_service_connected(job.service, 1, WEFT_SCHED_SERVER, 0, 2);
    weft_sched_daemon_connected(shard(&job, 0), job.now_ns);
    is_over(&job, 0);
    at(&job, 3);
    at(&job, 203); /* the next report of the other shard */
    assert_true(may(&job, 1));
    job_stop(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_turn),
        cmocka_unit_test(at_once_on_separate_links),
        cmocka_unit_test(without_a_grant),
        cmocka_unit_test(a_frozen_scheduler),
        cmocka_unit_test(a_dead_shard_blocks_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
