/* <weft/ps.h> in a job with a coordinator: assignment of a rank, the list of servers, release of
 * the rank. */
#include "api_ps_calls.h"
#include "api_ps_server.h"
#include "coordinator.h"

#include "io/clock.h"
#include "io/member_thread.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/ps.h>

enum { SHARDS = 2, WORKERS = 2 };

static const uint64_t patience_ns = 300 * WEFT_NS_PER_S;
static const uint64_t lease_ns = 2 * WEFT_NS_PER_S;

/* A coordinator, and two shards that are members of its job. */
struct job {
    struct weft_coordinator coordinator;
    struct test_server servers[SHARDS];
    struct weft_member_thread *member; /* member thread of the servers */
    char address[32];
};

static void job_start(struct job *job)
{
    struct weft_member_thread_config config = {.host = "localhost"};
    struct weft_member_address addresses[SHARDS];
    struct weft_error error;
    config.port = coordinator_start(&job->coordinator, 0, SHARDS, lease_ns);
    snprintf(job->address, sizeof(job->address), "localhost:%u", (unsigned)config.port);
    for (uint32_t s = 0; s < SHARDS; s++) {
        test_server_start(&job->servers[s], (struct ps_server_options){
                                                .shard = s, .shards = SHARDS, .workers = WORKERS});
        assert_int_equal(
            weft_resolve_member_address("127.0.0.1", job->servers[s].port, &addresses[s], NULL),
            WEFT_OK);
    }
    weft_driver_config_default(&config.driver);
    config.member = (struct weft_member_client_config){.role = WEFT_ROLE_SERVER,
                                                       .member = 77,
                                                       .incarnation = 1,
                                                       .rank = WEFT_MEMBER_NONE,
                                                       .first = 0,
                                                       .span = SHARDS};
    assert_int_equal(weft_member_thread_start(&config, &job->member, &error), WEFT_OK);
    weft_member_thread_publish(job->member, addresses);
}

static bool job_is_over(struct job *job, uint64_t wait_ns)
{
    static struct weft_member_state state;
    uint64_t until_ns = weft_clock_now_ns() + wait_ns;
    for (;;) {
        weft_member_thread_state(job->member, &state);
        if (state.is_over || weft_clock_now_ns() >= until_ns) {
            return state.is_over;
        }
        struct timespec pause = {.tv_nsec = (long)WEFT_NS_PER_MS};
        (void)nanosleep(&pause, NULL);
    }
}

static void job_stop(struct job *job)
{
    weft_member_thread_stop(job->member, true);
    for (uint32_t s = 0; s < SHARDS; s++) {
        test_server_stop(&job->servers[s]);
    }
    weft_coordinator_stop(&job->coordinator);
}

static struct weft_ps_config config_for(const struct job *job)
{
    struct weft_ps_config config;
    weft_ps_config_init(&config, sizeof(config));
    config.coordinator = job->address;
    config.security = WEFT_TRANSPORT_NONE;
    config.connect_timeout_ns = patience_ns;
    config.peer_timeout_ns = patience_ns;
    config.rows_max = 256;
    return config;
}

static void must_fail(const struct weft_ps_config *config, weft_status wanted, const char *words)
{
    struct weft_ps *ps = NULL;
    weft_status status = weft_ps_connect(config, &ps);
    if (status != wanted || strstr(weft_ps_error(NULL), words) == NULL) {
        fail_msg("%s, \"%s\" instead of %s, \"%s\"", weft_status_name(status), weft_ps_error(NULL),
                 weft_status_name(wanted), words);
    }
}

/* One step: both pushes are applied. */
static void train(struct weft_ps *const ps[WORKERS])
{
    struct weft_ps_table *tables[WORKERS];
    struct weft_table_options options;
    uint64_t ids[3] = {1, 2, 3};
    float ones[3] = {1, 1, 1}, got[3] = {0};
    weft_table_options_init(&options, sizeof(options), "sgd");
    options.learning_rate = -2.0F; /* a gradient counts half, because there are two workers */
    for (uint32_t w = 0; w < WORKERS; w++) {
        assert_int_equal(weft_table_open(ps[w], &options, &tables[w]), WEFT_OK);
        assert_int_equal(weft_push_wait(tables[w], ids, ones, 3, 0, NULL), WEFT_OK);
        assert_int_equal(weft_clock(tables[w]), WEFT_OK);
        assert_int_equal(weft_ps_flush(ps[w], patience_ns), WEFT_OK);
    }
    assert_int_equal(weft_pull_wait(tables[0], ids, got, 3, 0, NULL), WEFT_OK);
    assert_true(got[0] == 2 && got[1] == 2 && got[2] == 2);
    assert_int_equal(weft_ps_flush(ps[0], patience_ns), WEFT_OK);
}

static void workers_join_and_finish(void **state)
{
    (void)state;
    struct job job;
    job_start(&job);
    struct weft_ps_config config = config_for(&job);
    struct weft_ps *ps[WORKERS];
    for (uint32_t w = 0; w < WORKERS; w++) {
        ps[w] = connect_with(&config); /* the coordinator assigns the rank and the number of
                                        * workers */
        assert_int_equal(weft_ps_worker(ps[w]), w);
        assert_int_equal(weft_ps_workers(ps[w]), WORKERS);
        assert_int_equal(weft_ps_shards(ps[w]), SHARDS);
    }
    train(ps);
    assert_false(job_is_over(&job, 0));
    weft_ps_close(ps[0]);
    weft_ps_close(ps[1]);
    /* Leaving waits half a second for the reply. If this process was stopped during that time, a
     * worker of the same rank leaves again. */
    while (!job_is_over(&job, 5 * WEFT_NS_PER_S)) {
        config.workers = WORKERS;
        for (config.worker = 0; config.worker < WORKERS; config.worker++) {
            struct weft_ps *again = connect_with(&config);
            assert_int_equal(weft_ps_flush(again, patience_ns), WEFT_OK);
            weft_ps_close(again);
        }
    }
    job_stop(&job);
}

static void who_leaves_in_the_middle_is_not_done(void **state)
{
    (void)state;
    struct job job;
    job_start(&job);
    struct weft_ps_config config = config_for(&job);
    config.workers = WORKERS;
    for (uint32_t i = 0; i < 4; i++) {
        config.worker = i % WORKERS;
        struct weft_ps *ps = connect_with(&config); /* the rank is free again */
        assert_int_equal(weft_ps_worker(ps), config.worker);
        weft_ps_abort(ps);
    }
    weft_ps_abort(NULL);
    /* A worker that closes after a server has ended does not hang either. */
    config.worker = 0;
    config.keepalive_ns = 50 * WEFT_NS_PER_MS;
    struct weft_ps *ps = connect_with(&config);
    struct weft_ps_table *table;
    struct weft_table_options options;
    uint64_t id = 1;
    float row;
    weft_table_options_init(&options, sizeof(options), "sgd");
    assert_int_equal(weft_table_open(ps, &options, &table), WEFT_OK);
    test_server_stop(&job.servers[0]);
    test_server_stop(&job.servers[1]);
    assert_int_equal(weft_pull_wait(table, &id, &row, 1, 0, NULL), WEFT_PEER);
    weft_ps_close(ps);
    config.keepalive_ns = WEFT_NS_PER_S;
    for (uint32_t s = 0; s < SHARDS; s++) {
        test_server_start(&job.servers[s], job.servers[s].options);
    }
    assert_false(job_is_over(&job, 0));
    job_stop(&job);
}

static void who_does_not_belong_is_told(void **state)
{
    (void)state;
    struct job job;
    job_start(&job);
    struct weft_ps_config config = config_for(&job);
    config.workers = 3;
    must_fail(&config, WEFT_PEER, "the job has 2 workers, not 3");
    config.workers = 0;
    config.worker = 2;
    must_fail(&config, WEFT_PEER, "rank 2 does not exist in a job of 2 workers");
    config.worker = 5;
    config.workers = 4;
    must_fail(&config, WEFT_INVALID, "ranks go from 0");
    config = config_for(&job);
    setenv("WEFT_JOB", "another", 1);
    must_fail(&config, WEFT_PEER, "named \"\", not \"another\"");
    unsetenv("WEFT_JOB");
    job_stop(&job);
    config.connect_timeout_ns = 200 * WEFT_NS_PER_MS;
    must_fail(&config, WEFT_TIMEOUT, "no answer from the coordinator localhost:");
    config.coordinator = "nowhere";
    must_fail(&config, WEFT_INVALID, "coordinator is \"nowhere\"");
}

static void the_environment_names_it(void **state)
{
    (void)state;
    struct job job;
    char servers[64];
    job_start(&job);
    struct weft_ps_config config = config_for(&job);
    config.coordinator = NULL;
    snprintf(servers, sizeof(servers), "127.0.0.1:%u,127.0.0.1:%u", (unsigned)job.servers[0].port,
             (unsigned)job.servers[1].port);
    setenv("WEFT_COORDINATOR", job.address, 1);
    setenv("WEFT_SERVERS", "127.0.0.1:9", 1); /* the coordinator's list takes precedence */
    struct weft_ps *ps = connect_with(&config);
    assert_int_equal(weft_ps_workers(ps), WORKERS);
    weft_ps_close(ps);
    /* A worker that names the servers or disables the coordinator is not a member. */
    setenv("WEFT_COORDINATOR", "127.0.0.1:9", 1);
    config.servers = servers;
    ps = connect_with(&config);
    assert_int_equal(weft_ps_workers(ps), 1);
    weft_ps_close(ps);
    config.servers = NULL;
    config.coordinator = "";
    setenv("WEFT_SERVERS", servers, 1);
    weft_ps_close(connect_with(&config));
    unsetenv("WEFT_SERVERS");
    must_fail(&config, WEFT_NOTFOUND, "WEFT_COORDINATOR");
    config.coordinator = NULL;
    setenv("WEFT_COORDINATOR", "x", 1);
    must_fail(&config, WEFT_DATA, "WEFT_COORDINATOR is \"x\"");
    unsetenv("WEFT_COORDINATOR");
    job_stop(&job);
}

int main(void)
{
    static const char *const named[] = {"WEFT_WORKERS", "WEFT_RANK",   "WEFT_SERVERS",
                                        "WEFT_JOB",     "WEFT_MEMBER", "WEFT_COORDINATOR"};
    for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++) {
        unsetenv(named[i]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_join_and_finish),
        cmocka_unit_test(who_leaves_in_the_middle_is_not_done),
        cmocka_unit_test(who_does_not_belong_is_told),
        cmocka_unit_test(the_environment_names_it),
    };
    return cmocka_run_group_tests_name("api_ps_join", tests, NULL, NULL);
}
