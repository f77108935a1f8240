/* <weft/ps.h> in a job with a transfer scheduler: the scheduler and two shards in threads, two
 * workers. Dropped updates, the report to the caller, and the gradients that the next push
 * contains. Values are integers, so that sums are exact. */
#include "api_ps_calls.h"
#include "api_ps_server.h"
#include "io/clock.h"
#include "node/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/ps.h>

enum { SHARDS = 2, WORKERS = 2, DIM = 4, N = 500, TAU_MAX = 2 };

static uint32_t loss_ppm; /* loss of packets sent by servers */
static uint32_t read_credits;
static uint64_t worker_mbps[WORKERS], server_bps; /* reported rates of links; 0 = none is */

static const struct weft_security none = {.mode = WEFT_MODE_NONE};

struct job {
    struct weft_scheduler scheduler;
    struct weft_launch_address at;
    struct test_server servers[SHARDS];
    struct weft_ps *ps[WORKERS];
    struct weft_ps_table *table[WORKERS];
    char list[64];
    char scheduler_text[32];
};

static struct weft_ps_config config_for(const struct job *job, uint32_t worker)
{
    struct weft_ps_config config;
    weft_ps_config_init(&config, sizeof(config));
    config.servers = job->list;
    config.security = WEFT_TRANSPORT_NONE;
    config.worker = worker;
    config.workers = WORKERS;
    config.rows_max = 2048;
    config.connect_timeout_ns = 120 * WEFT_NS_PER_S;
    config.peer_timeout_ns = 60 * WEFT_NS_PER_S; /* one thread runs both workers */
    config.scheduler = job->scheduler_text;
    config.consistency = "asp";
    config.tau_max = TAU_MAX;
    config.update_bytes_min = 1000;
    config.link_mbps = worker_mbps[worker];
    return config;
}

/* SGD with rate -1: a push adds half of its values, because there are two workers. */
static struct weft_table_options adding(uint32_t feedback_rows)
{
    struct weft_table_options options;
    weft_table_options_init(&options, sizeof(options), "sgd");
    options.consistency = "asp";
    options.dim = DIM;
    options.learning_rate = -1.0F;
    options.feedback_rows = feedback_rows;
    return options;
}

static void job_start(struct job *job, uint32_t feedback_rows)
{
    struct weft_error error = {.text = ""};
    struct weft_scheduler_config config = {.host = "127.0.0.1", .security = &none};
    *job = (struct job){.at = {.host = "127.0.0.1"}};
    weft_sched_service_config_default(&config.service);
    config.service.read_credits = read_credits;
    assert_int_equal(weft_scheduler_start(&job->scheduler, &config, &error), WEFT_OK);
    job->at.port = weft_scheduler_port(&job->scheduler);
    snprintf(job->scheduler_text, sizeof(job->scheduler_text), "127.0.0.1:%u", job->at.port);
    for (uint32_t s = 0; s < SHARDS; s++) {
        size_t used = strlen(job->list);
        test_server_start(&job->servers[s], (struct ps_server_options){.shard = s,
                                                                       .shards = SHARDS,
                                                                       .workers = WORKERS,
                                                                       .loss_ppm = loss_ppm,
                                                                       .scheduler = &job->at,
                                                                       .delay_max = TAU_MAX,
                                                                       .link_bps = server_bps});
        snprintf(job->list + used, sizeof(job->list) - used, "%s127.0.0.1:%u", s > 0 ? "," : "",
                 (unsigned)job->servers[s].port);
    }
    for (uint32_t w = 0; w < WORKERS; w++) {
        const struct weft_ps_config worker = config_for(job, w);
        const struct weft_table_options options = adding(feedback_rows);
        must(NULL, weft_ps_connect(&worker, &job->ps[w]));
        must(job->ps[w], weft_table_open(job->ps[w], &options, &job->table[w]));
    }
}

/* Uses worker 0. */
static void count(void *arg, void *object)
{
    const struct weft_scheduler *scheduler = object;
    *(uint64_t *)arg = weft_planner_commits(weft_sched_service_planner(scheduler->service), 0);
}

static uint64_t commits(struct job *job)
{
    uint64_t commits;
    assert_true(weft_stats_query_ask(&job->scheduler.query, count, &commits, 60 * WEFT_NS_PER_S));
    return commits;
}

static void servers_stop(struct job *job)
{
    for (uint32_t s = 0; s < SHARDS; s++) {
        test_server_stop(&job->servers[s]);
    }
}

static void job_stop(struct job *job)
{
    for (uint32_t w = 0; w < WORKERS; w++) {
        must(job->ps[w], weft_ps_flush(job->ps[w], 60 * WEFT_NS_PER_S));
        weft_ps_close(job->ps[w]);
    }
    servers_stop(job);
    weft_scheduler_stop(&job->scheduler);
}

static void fill(uint64_t *ids, float *rows, float value)
{
    for (size_t i = 0; i < N; i++) {
        ids[i] = i * 7919;
    }
    for (size_t i = 0; i < N * DIM; i++) {
        rows[i] = value;
    }
}

static float pull(struct job *job, uint32_t worker)
{
    uint64_t ids[N];
    float rows[N * DIM];
    fill(ids, rows, -1);
    must(job->ps[worker], weft_pull_wait(job->table[worker], ids, rows, N, 0, NULL));
    for (size_t i = 0; i < N * DIM; i++) {
        assert_true(rows[i] == rows[0]);
    }
    return rows[0];
}

/* One push and the end of its clock. */
static weft_status update(struct job *job, uint32_t worker, float value,
                          struct weft_result *result_p)
{
    uint64_t ids[N];
    float rows[N * DIM];
    uint64_t op;
    fill(ids, rows, value);
    *result_p = (struct weft_result){.size = sizeof(*result_p)};
    must(job->ps[worker], weft_push(job->table[worker], ids, rows, N, 0, &op));
    must(job->ps[worker], weft_clock(job->table[worker]));
    return weft_wait(job->ps[worker], op, WEFT_NEVER, result_p);
}

static struct weft_ps_counters counters(struct job *job, uint32_t worker)
{
    struct weft_ps_counters c = {.size = sizeof(c)};
    weft_ps_counters_get(job->ps[worker], &c);
    return c;
}

/* Both workers send updates until the scheduler has granted some of each. Returns the number of
 * updates. */
static uint32_t until_granted(struct job *job)
{
    uint64_t until_ns = weft_clock_now_ns() + 120 * WEFT_NS_PER_S;
    struct weft_result result;
    uint32_t count = 0;
    for (uint32_t w = 0; w < WORKERS; w++) {
        struct weft_ps_counters c;
        do {
            (void)pull(job, w);
            must(job->ps[w], update(job, w, 2, &result));
            c = counters(job, w);
            count++;
            assert_true(weft_clock_now_ns() < until_ns);
        } while (c.updates_asked == c.updates_direct);
    }
    return count;
}

/* Worker 1 computes with a model that is 3 updates old. Its update is dropped by the scheduler or,
 * if the scheduler answers too late, by the servers. */
static void it_is_dropped(struct job *job, float *model_p)
{
    struct weft_result result;
    size_t first, rows;
    float model = (float)until_granted(job);
    assert_true(pull(job, 1) == model);
    for (int i = 0; i < TAU_MAX + 1; i++) {
        (void)pull(job, 0);
        must(job->ps[0], update(job, 0, 2, &result));
        assert_int_equal(result.requests_dropped, 0);
        model += 1;
    }
    weft_status status = update(job, 1, 4, &result);
    assert_int_equal(status, WEFT_DROPPED);
    assert_non_null(strstr(weft_ps_error(job->ps[1]), "pull again"));
    assert_int_equal(result.requests, SHARDS);
    assert_int_equal(result.requests_dropped, SHARDS);
    assert_int_equal(result.rows_missed, N);
    assert_true(weft_result_gap(job->ps[1], 0, &first, &rows));
    assert_true(first == 0 && rows == N);
    struct weft_ps_counters c = counters(job, 1);
    assert_true(c.updates_dropped == 1 || c.pushes_late == SHARDS);
    assert_true(pull(job, 1) == model); /* with this model the worker may continue */
    *model_p = model;
}

static void what_is_dropped_is_told_and_gone(void **state)
{
    (void)state;
    static struct job job;
    struct weft_result result;
    float model;
    job_start(&job, 0);
    it_is_dropped(&job, &model);
    must(job.ps[1], update(&job, 1, 2, &result));
    assert_int_equal(result.requests_dropped, 0);
    assert_true(pull(&job, 0) == model + 1);
    job_stop(&job);
}

static void what_is_dropped_comes_with_the_next_push(void **state)
{
    (void)state;
    static struct job job;
    struct weft_result result;
    float model;
    job_start(&job, N);
    it_is_dropped(&job, &model);
    assert_int_equal(weft_table_residuals(job.table[1], NULL, NULL, 0), N);
    must(job.ps[1], update(&job, 1, 2, &result));
    assert_true(pull(&job, 0) == model + 3); /* (4 + 2) / 2 */
    assert_int_equal(weft_table_residuals(job.table[1], NULL, NULL, 0), 0);
    job_stop(&job);
}

struct rate {
    enum weft_sched_role role;
    uint32_t index;
    uint64_t bps;
};

static void look_at_rate(void *arg, void *object)
{
    const struct weft_scheduler *scheduler = object;
    struct rate *rate = arg;
    rate->bps = weft_sched_service_capacity(scheduler->service, rate->role, rate->index);
}

/* Wait until the scheduler plans with this rate of a link. Nothing is measured. */
static void is_planned(struct job *job, enum weft_sched_role role, uint32_t index, uint64_t bps)
{
    struct rate rate = {.role = role, .index = index};
    for (uint32_t i = 0; rate.bps != bps; i++) {
        if (i == 60 * 1000) {
            fail_msg("%llu bit/s are planned", (unsigned long long)rate.bps);
        }
        weft_ps_progress(job->ps[i % WORKERS], WEFT_NS_PER_MS);
        assert_true(weft_stats_query_ask(&job->scheduler.query, look_at_rate, &rate,
                                         60 * WEFT_NS_PER_S));
    }
}

/* Hosts that know the rates of their links report them; the others have the scheduler's. */
static void rates_of_links_are_reported(void **state)
{
    (void)state;
    static struct job job;
    struct weft_sched_service_config config;
    weft_sched_service_config_default(&config);
    worker_mbps[0] = 3000;
    server_bps = 2000000000;
    job_start(&job, 0);
    is_planned(&job, WEFT_SCHED_WORKER, 0, 3000000000);
    is_planned(&job, WEFT_SCHED_WORKER, 1, config.link_bps);
    for (uint32_t s = 0; s < SHARDS; s++) {
        is_planned(&job, WEFT_SCHED_SERVER, s, 2000000000);
    }
    job_stop(&job);
    worker_mbps[0] = server_bps = 0;
}

static void must_fail(const struct weft_ps_config *config, const char *words)
{
    struct weft_ps *ps = NULL;
    assert_int_equal(weft_ps_connect(config, &ps), WEFT_INVALID);
    if (strstr(weft_ps_error(NULL), words) == NULL) {
        fail_msg("\"%s\" does not contain \"%s\"", weft_ps_error(NULL), words);
    }
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    static struct job job;
    struct weft_ps_config config;
    struct weft_table_options options;
    struct weft_ps_table *table;
    struct weft_op_options how;
    uint64_t op;
    job_start(&job, 0);
    config = config_for(&job, 0);
    config.scheduler = "here";
    must_fail(&config, "scheduler is \"here\"; it must be the host:port");
    config = config_for(&job, 0);
    config.scheduler = "";
    must_fail(&config, "tau_max goes with scheduler");
    config = config_for(&job, 0);
    config.consistency = NULL;
    must_fail(&config, "in \"bsp\" every update is waited for");
    config = config_for(&job, 0);
    config.consistency = "ssp:x";
    must_fail(&config, "consistency is \"ssp:x\"");
    config = config_for(&job, 0);
    config.tau_max = 1 << 23;
    must_fail(&config, "tau_max is 8388608");
    config = config_for(&job, 0);
    config.hot_rows = 1;
    must_fail(&config, "hot_rows does not go with scheduler");
    config.scheduler = "";
    config.tau_max = 0;
    must_fail(&config, "hot_rows does not go with update_bytes_min");
    config.update_bytes_min = 0;
    config.hot_rows = 65537;
    must_fail(&config, "hot_rows is 65537");
    config = config_for(&job, 0);
    config.link_mbps = 10000001;
    must_fail(&config, "link_mbps is 10000001");
    config = config_for(&job, 0);
    config.reconnect_timeout_ns = 0;
    config.replicas = "127.0.0.1:9";
    must_fail(&config, "replicas needs reconnect_timeout_ns");
    config.reconnect_timeout_ns = 1;
    config.replicas = "127.0.0.1:9";
    must_fail(&config, "replicas names 1 shards, and servers 2");
    config.replicas = "here";
    must_fail(&config, "\"here\" in replicas is not host:port");
    config.coordinator = "127.0.0.1:9";
    must_fail(&config, "replicas does not go with a coordinator");
    config = config_for(&job, 0);
    config.via = "nowhere"; /* also with tau_max */
    must_fail(&config, "config.via or WEFT_VIA is \"nowhere\"");
    config.via = "127.0.0.1:9//127.0.0.1:8";
    must_fail(&config, "config.via or WEFT_VIA is \"127.0.0.1:9//127.0.0.1:8\"");
    config.via = "coordinator";
    must_fail(&config, "leave out the scheduler");
    config.tau_max = 0;
    config.scheduler = "";
    must_fail(&config, "start `weft coordinator`");
    config.via = "127.0.0.1:9/127.0.0.1:8";
    must_fail(&config, "names 2 aggregators");
    config.scheduler = NULL;
    setenv("WEFT_SCHEDULER", "there", 1);
    must_fail(&config, "scheduler is \"there\"");
    unsetenv("WEFT_SCHEDULER");
    options = adding(0);
    options.number = 1;
    options.consistency = "bsp";
    assert_int_equal(weft_table_open(job.ps[0], &options, &table), WEFT_INVALID);
    assert_non_null(strstr(weft_ps_error(job.ps[0]), "config.consistency"));
    weft_op_options_init(&how, sizeof(how));
    how.norm = (double)INFINITY;
    assert_int_equal(weft_push_with(job.ps[0], NULL, 0, &how, &op), WEFT_INVALID);
    assert_non_null(strstr(weft_ps_error(job.ps[0]), "norm is inf"));
    job_stop(&job);
}

/* Servers can count updates and enforce a bound of their own without a scheduler. */
static void servers_alone_keep_a_bound(void **state)
{
    (void)state;
    static struct job job;
    struct weft_result result;
    job_start(&job, 0);
    for (uint32_t w = 0; w < WORKERS; w++) {
        struct weft_ps_config config = config_for(&job, w);
        const struct weft_table_options options = adding(0);
        weft_ps_close(job.ps[w]);
        config.scheduler = NULL;
        config.tau_max = 0;
        must(NULL, weft_ps_connect(&config, &job.ps[w]));
        must(job.ps[w], weft_table_open(job.ps[w], &options, &job.table[w]));
    }
    assert_true(pull(&job, 1) == 0);
    for (int i = 0; i < TAU_MAX + 1; i++) {
        (void)pull(&job, 0);
        must(job.ps[0], update(&job, 0, 2, &result));
    }
    assert_int_equal(update(&job, 1, 4, &result), WEFT_DROPPED);
    assert_int_equal(counters(&job, 1).pushes_late, SHARDS);
    assert_int_equal(counters(&job, 1).updates_asked, 0);
    assert_true(pull(&job, 1) == TAU_MAX + 1);
    job_stop(&job);
    for (uint32_t s = 0; s < SHARDS; s++) {
        assert_int_equal(job.servers[s].thread.shard_counters.updates_opened, TAU_MAX + 1);
        assert_int_equal(job.servers[s].thread.shard_counters.updates_late, 1);
    }
}

/* Workers leave and servers end while their last reports are in flight, or are lost and must be
 * resent. */
static void the_last_commit_is_reported(void **state)
{
    (void)state;
    uint32_t granted = 0;
    for (int round = 0; round < 8; round++) {
        static struct job job;
        struct weft_result result;
        loss_ppm = 500000;
        job_start(&job, 0);
        (void)until_granted(&job);
        (void)pull(&job, 0);
        const uint64_t before = commits(&job), direct = counters(&job, 0).updates_direct;
        must(job.ps[0], update(&job, 0, 2, &result));
        must(job.ps[0], weft_ps_flush(job.ps[0], 60 * WEFT_NS_PER_S));
        const bool is_granted = counters(&job, 0).updates_direct == direct;
        for (uint32_t w = 0; w < WORKERS; w++) {
            weft_ps_close(job.ps[w]);
        }
        servers_stop(&job);
        assert_true(!is_granted || commits(&job) > before);
        granted += is_granted;
        weft_scheduler_stop(&job.scheduler);
    }
    loss_ppm = 0;
    assert_true(granted > 0);
}

static void count_reads(void *arg, void *object)
{
    const struct weft_scheduler *scheduler = object;
    *(uint64_t *)arg =
        weft_planner_counters(weft_sched_service_planner(scheduler->service))->reads_granted;
}

/* One credit: the read of each step waits until the other worker's update is committed, and
 * contains it. */
static void reads_are_admitted(void **state)
{
    (void)state;
    static struct job job;
    struct weft_result result;
    uint64_t reads = 0;
    read_credits = 1;
    job_start(&job, 0);
    read_credits = 0;
    float model = (float)until_granted(&job);
    for (int i = 0; i < 40; i++) {
        assert_true(pull(&job, i % 2) == model);
        must(job.ps[i % 2], update(&job, i % 2, 2, &result));
        model += 1;
    }
    assert_true(
        weft_stats_query_ask(&job.scheduler.query, count_reads, &reads, 60 * WEFT_NS_PER_S));
    assert_true(reads >= 20); /* workers do not wait for a scheduler that is not scheduled for a
                               * second */
    job_stop(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_dropped_is_told_and_gone),
        cmocka_unit_test(what_is_dropped_comes_with_the_next_push),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(the_last_commit_is_reported),
        cmocka_unit_test(servers_alone_keep_a_bound),
        cmocka_unit_test(reads_are_admitted),
        cmocka_unit_test(rates_of_links_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
