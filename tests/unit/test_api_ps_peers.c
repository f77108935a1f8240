/* Connections of <weft/ps.h> to real shards in threads: their configuration, ownership of a rank,
 * and the errors if a shard is absent, ends or refuses. */
#include "api_ps_rig.h"
#include "free_port.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- refusals -------------------------------------------------------------------------------- */

static void configs_are_checked(void **state)
{
    (void)state;
    struct weft_ps *ps = NULL;
    struct weft_ps_config good = config_for("127.0.0.1:1"), c;
    must_fail(NULL, weft_ps_connect(NULL, &ps), WEFT_INVALID, "config");
    c = (struct weft_ps_config){0};
    must_fail(NULL, weft_ps_connect(&c, &ps), WEFT_INVALID, "size");
    static const struct {
        const char *servers, *culprit;
    } bad[] = {
        {"", "\"\""},
        {"127.0.0.1", "\"127.0.0.1\""},
        {"127.0.0.1:", "\"127.0.0.1:\""},
        {"127.0.0.1:0", "\"127.0.0.1:0\""},
        {":7700", "\":7700\""},
        {"127.0.0.1:7x", "\"127.0.0.1:7x\""},
        {"a:65536", "\"a:65536\""},
        {"127.0.0.1:1,", "\"\""},
        {",127.0.0.1:1", "\"\""},
        {"127.0.0.1:123456", "\"127.0.0.1:123456\""},
    };
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(bad); i++) {
        c = good, c.servers = bad[i].servers;
        must_fail(NULL, weft_ps_connect(&c, &ps), WEFT_INVALID, bad[i].culprit);
        says(weft_ps_error(NULL), "servers");
    }
    c = good, c.servers = "no.such.name:7700";
    must_fail(NULL, weft_ps_connect(&c, &ps), WEFT_INVALID, "no.such.name");
    c = good, c.servers = "10.1.2.3:7700";
    must_fail(NULL, weft_ps_connect(&c, &ps), WEFT_UNSUPPORTED, "10.1.2.3");
    c = good, c.worker = 2, c.workers = 2;
    must_fail(NULL, weft_ps_connect(&c, &ps), WEFT_INVALID, "config.worker");
    c = good, c.transport = "carrier pigeon";
    must_fail(NULL, weft_ps_connect(&c, &ps), WEFT_INVALID, "transport");
    c = good, c.ops_max = 0;
    must_fail(NULL, weft_ps_connect(&c, &ps), WEFT_INVALID, "ops_max is 0");
    c = good, c.keepalive_ns = 5;
    must_fail(NULL, weft_ps_connect(&c, &ps), WEFT_INVALID, "keepalive_ns");
    c = good, c.security = WEFT_TRANSPORT_AUTH, c.key_file = "/nonexistent.key";
    must_fail(NULL, weft_ps_connect(&c, &ps), WEFT_NOTFOUND, "/nonexistent.key");
    c = good, c.thread = 2;
    must_fail(NULL, weft_ps_connect(&c, &ps), WEFT_INVALID, "thread is 2");
    c = good, c.ops_max = 4096, c.rows_max = 1 << 20;
    must_fail(NULL, weft_ps_connect(&c, &ps), WEFT_INVALID, "ops_max");
    assert_null(ps);
}

/* Settings that the program omits are read from the environment. */
static void the_environment_fills_in(void **state)
{
    (void)state;
    struct site site;
    struct weft_ps *ps = NULL;
    unsetenv("WEFT_SERVERS");
    site_start(&site, 1, (struct ps_server_options){.workers = 4});
    struct weft_ps_config config = config_for(NULL);
    must_fail(NULL, weft_ps_connect(&config, &ps), WEFT_NOTFOUND, "WEFT_SERVERS");
    setenv("WEFT_SERVERS", site.list, 1);
    setenv("WEFT_WORKERS", "4", 1);
    must_fail(NULL, weft_ps_connect(&config, &ps), WEFT_NOTFOUND, "WEFT_RANK");
    setenv("WEFT_RANK", "3 ", 1);
    must_fail(NULL, weft_ps_connect(&config, &ps), WEFT_DATA, "WEFT_RANK is \"3 \"");
    setenv("WEFT_RANK", "3", 1);
    ps = connect_with(&config);
    assert_int_equal(weft_ps_worker(ps), 3);
    assert_int_equal(weft_ps_workers(ps), 4);
    weft_ps_close(ps);
    unsetenv("WEFT_WORKERS");
    unsetenv("WEFT_RANK");
    setenv("RANK", "2", 1); /* torchrun's */
    setenv("WORLD_SIZE", "3", 1);
    ps = connect_with(&config);
    assert_int_equal(weft_ps_worker(ps), 2);
    assert_int_equal(weft_ps_workers(ps), 3);
    weft_ps_close(ps);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    setenv("WEFT_ROLE", "server", 1);
    must_fail(NULL, weft_ps_connect(&config, &ps), WEFT_DATA, "WEFT_ROLE");
    unsetenv("WEFT_ROLE");
    setenv("WEFT_PEER_TIMEOUT_S", "77", 1);
    assert_int_equal(config_for(NULL).peer_timeout_ns, 77 * WEFT_NS_PER_S);
    setenv("WEFT_PEER_TIMEOUT_S", "7 s", 1);
    config = config_for(NULL);
    must_fail(NULL, weft_ps_connect(&config, &ps), WEFT_DATA, "WEFT_PEER_TIMEOUT_S is \"7 s\"");
    unsetenv("WEFT_PEER_TIMEOUT_S");
    unsetenv("WEFT_SERVERS");
    site_stop(&site);
}

/* ---- connections ----------------------------------------------------------------------------- */

static void *start_late(void *arg)
{
    struct site *site = arg;
    struct timespec pause = {.tv_sec = 1, .tv_nsec = 500 * 1000 * 1000};
    (void)nanosleep(&pause, NULL);
    test_server_start(&site->servers[0], site->servers[0].options);
    return NULL;
}

static void the_server_may_come_later(void **state)
{
    (void)state;
    struct site site;
    pthread_t thread;
    site_start(&site, 1, (struct ps_server_options){.workers = 1, .port = free_port()});
    test_server_stop(&site.servers[0]);
    assert_int_equal(pthread_create(&thread, NULL, start_late, &site), 0);
    struct weft_ps_config config = config_for(site.list);
    config.peer_timeout_ns = WEFT_NS_PER_S; /* it times out once, and retries */
    struct weft_ps *ps = connect_with(&config);
    (void)pthread_join(thread, NULL);
    struct weft_table_options options = adding("asp");
    (void)open_table(ps, &options);
    weft_ps_close(ps);
    site_stop(&site);
}

static void nobody_there_is_said_in_time(void **state)
{
    (void)state;
    struct site site;
    struct weft_ps *ps = NULL;
    site_start(&site, 1, (struct ps_server_options){.workers = 1});
    test_server_stop(&site.servers[0]);
    struct weft_ps_config config = config_for(site.list);
    config.connect_timeout_ns = 300 * ms_ns;
    must_fail(NULL, weft_ps_connect(&config, &ps), WEFT_TIMEOUT, site.list);
    says(weft_ps_error(NULL), "shard 0 of 1");
    config.connect_timeout_ns = 0; /* one attempt */
    must_fail(NULL, weft_ps_connect(&config, &ps), WEFT_TIMEOUT, site.list);
}

static void the_order_of_shards_is_checked(void **state)
{
    (void)state;
    struct site site;
    struct weft_ps *ps = NULL;
    char swapped[64];
    site_start(&site, 2, (struct ps_server_options){.workers = 1});
    snprintf(swapped, sizeof(swapped), "127.0.0.1:%u,127.0.0.1:%u", (unsigned)site.servers[1].port,
             (unsigned)site.servers[0].port);
    struct weft_ps_config config = config_for(swapped);
    must_fail(NULL, weft_ps_connect(&config, &ps), WEFT_INVALID, "127.0.0.1:");
    site_stop(&site);
    site_start(&site, 1, (struct ps_server_options){.workers = 1, .name = 77});
    config.servers = site.list;
    must_fail(NULL, weft_ps_connect(&config, &ps), WEFT_INVALID, site.list);
    site_stop(&site);
}

static void a_rank_beyond_the_servers_workers(void **state)
{
    (void)state;
    struct site site;
    site_start(&site, 1, (struct ps_server_options){.workers = 1});
    struct weft_ps_config config = config_for(site.list);
    config.worker = 1;
    config.workers = 2;
    config.connect_timeout_ns = 1000 * ms_ns; /* also for opening a table */
    struct weft_ps *ps = NULL;
    /* retry: the machine was suspended for that time */
    while (weft_ps_connect(&config, &ps) == WEFT_TIMEOUT) {
    }
    assert_non_null(ps);
    struct weft_ps_table *table = NULL;
    struct weft_table_options options = adding("asp");
    must_fail(ps, weft_table_open(ps, &options, &table), WEFT_TIMEOUT, "--workers");
    must_fail(ps, weft_table_open(ps, &options, &table), WEFT_TIMEOUT, "worker 1");
    options.dim = 2;
    must_fail(ps, weft_table_open(ps, &options, &table), WEFT_EXISTS, "table 0");
    weft_ps_close(ps);
    site_stop(&site);
}

/* Two processes with the same rank: the older one is notified and does not reconnect. */
static void a_rank_is_for_one(uint64_t reconnect_ns)
{
    uint64_t id = 9;
    float one[DIM] = {1, 1, 1, 1}, got[DIM];
    struct site site;
    site_start(&site, 2, (struct ps_server_options){.workers = 1});
    struct weft_ps_config config = config_for(site.list);
    config.reconnect_timeout_ns = reconnect_ns;
    struct weft_table_options options = adding("asp");
    struct weft_ps *older = connect_with(&config);
    struct weft_ps_table *table = open_table(older, &options);
    struct weft_ps *newer = connect_with(&config);
    struct weft_ps_table *other = open_table(newer, &options);
    must(newer, weft_push_wait(other, &id, one, 1, 0, NULL));
    must_fail(older, weft_push_wait(table, &id, one, 1, 0, NULL), WEFT_PEER, "worker 0");
    must(newer, weft_pull_wait(other, &id, got, 1, 0, NULL));
    assert_true(got[0] == 1.0F);
    weft_ps_close(older);
    must(newer, weft_push_wait(other, &id, one, 1, 0, NULL));
    weft_ps_close(newer);
    site_stop(&site);
}

static void a_rank_is_for_one_without_reconnect(void **state)
{
    (void)state;
    a_rank_is_for_one(0);
}

static void a_rank_is_for_one_with_reconnect(void **state)
{
    (void)state;
    a_rank_is_for_one(3600 * WEFT_NS_PER_S);
}

/* A spool of blocks: a head of four units each, then two units for each usual RPC. */
struct early {
    struct weft_ps_config config;
    pthread_t thread;
    atomic_bool over;
    weft_status status;
    char words[512];
};

static void *connect_early(void *arg)
{
    struct early *early = arg;
    struct weft_ps *ps = NULL;
    early->status = weft_ps_connect(&early->config, &ps);
    snprintf(early->words, sizeof(early->words), "%s", weft_ps_error(NULL));
    atomic_store(&early->over, true);
    return NULL;
}

/* Shard 1 has not started yet when another process takes the rank at shard 0. */
static void a_rank_is_taken_while_connecting(void **state)
{
    (void)state;
    struct site site;
    site_start(&site, 2, (struct ps_server_options){.workers = 1});
    test_server_stop(&site.servers[1]);
    struct early early = {.config = config_for(site.list)};
    early.config.connect_timeout_ns = 20 * WEFT_NS_PER_S;
    assert_int_equal(pthread_create(&early.thread, NULL, connect_early, &early), 0);
    struct weft_ps_config config = config_for(site.list);
    config.connect_timeout_ns = 1000 * ms_ns;
    while (!atomic_load(&early.over)) {
        struct weft_ps *ps = NULL;
        assert_int_not_equal(weft_ps_connect(&config, &ps), WEFT_OK);
    }
    (void)pthread_join(early.thread, NULL);
    assert_int_equal(early.status, WEFT_PEER);
    says(early.words, "worker 0");
    site.count = 1;
    site_stop(&site);
}

/* The abandoned pull no longer borrows its memory: the reply of the live shard, which arrives when
 * the second worker ends its clock, must not be written there. */
static void check_given_up(struct site *site, struct weft_ps *ps, const float *rows)
{
    static float before[4096];
    size_t bytes = 40 * DIM * sizeof(float);
    struct weft_ps_config config = config_for(site->list);
    char first[64];
    snprintf(first, sizeof(first), "127.0.0.1:%u", (unsigned)site->servers[0].port);
    config.servers = first;
    config.worker = 1;
    config.workers = 2;
    struct weft_ps *other = connect_with(&config);
    struct weft_table_options options = adding("bsp");
    struct weft_ps_table *table = open_table(other, &options);
    memcpy(before, rows, bytes);
    must(other, weft_clock(table));
    must(other, weft_ps_flush(other, 120000 * ms_ns));
    for (uint32_t i = 0; i < 20; i++) {
        weft_ps_progress(ps, 10 * ms_ns);
    }
    assert_memory_equal(before, rows, bytes);
    weft_ps_close(other);
}

/* A killed server sends nothing: operations that wait for it end within the timeouts, and the error
 * names it. */
static void a_dead_server_is_noticed(void **state)
{
    (void)state;
    enum { N = 40 };
    static uint64_t ids[N];
    static float rows[N * DIM];
    struct site site;
    site_start(&site, 2, (struct ps_server_options){.workers = 2});
    struct weft_ps_config config = config_for(site.list);
    config.workers = 2;
    config.worker = 0;
    config.keepalive_ns = 500 * ms_ns;
    config.peer_timeout_ns = 2000 * ms_ns;
    struct weft_ps *ps = connect_with(&config);
    struct weft_table_options options = adding("bsp");
    struct weft_ps_table *table = open_table(ps, &options);
    uint64_t op = 0, push = 0;
    fill(ids, rows, N, 1);
    must(ps, weft_push_wait(table, ids, rows, N, 0, NULL));
    must(ps, weft_clock(table));
    for (uint32_t i = 0; i < N * DIM; i++) {
        rows[i] = -1;
    }
    /* The pull is at the servers and waits for the other worker, which never connects: only a
     * keep-alive can detect the death. */
    must(ps, weft_pull(table, ids, rows, N, 0, &op));
    must_fail(ps, weft_wait(ps, op, 300 * ms_ns, NULL), WEFT_TIMEOUT, "pull of table 0");
    test_server_go_deaf(&site.servers[1]);
    /* for the next clock: it cannot be applied */
    must(ps, weft_push(table, ids, rows, N, 0, &push));
    must_fail(ps, weft_ps_flush(ps, WEFT_NEVER), WEFT_PEER, "shard 1");
    must_fail(ps, weft_wait(ps, op, WEFT_NEVER, NULL), WEFT_PEER,
              "the server of shard 1 at 127.0.0.1:");
    must_fail(ps, weft_test(ps, op, NULL), WEFT_INVALID, "operation");
    must_fail(ps, weft_test(ps, push, NULL), WEFT_PEER, "shard 1");
    check_given_up(&site, ps, rows);
    must_fail(ps, weft_clock(table), WEFT_PEER, "shard 1");
    must_fail(ps, weft_push_wait(table, ids, rows, N, 0, NULL), WEFT_PEER, "shard 1");
    weft_ps_close(ps);
    site_stop(&site);
}

static void a_server_that_ends_says_so(void **state)
{
    (void)state;
    uint64_t id = 1;
    float row[DIM] = {0};
    struct site site;
    site_start(&site, 1, (struct ps_server_options){.workers = 1});
    struct weft_ps_config config = config_for(site.list);
    struct weft_ps *ps = connect_with(&config);
    struct weft_table_options options = adding("asp");
    struct weft_ps_table *table = open_table(ps, &options);
    site_stop(&site);
    must_fail(ps, weft_pull_wait(table, &id, row, 1, 0, NULL), WEFT_PEER, "shard 0");
    weft_ps_close(ps);
}

/* A server has another clock of this worker: all operations that wait for clocks end with that
 * error. */
static void a_refused_clock_is_said(void **state)
{
    (void)state;
    uint64_t id = 1;
    float row[DIM] = {1, 1, 1, 1};
    struct site site;
    site_start(&site, 2, (struct ps_server_options){.workers = 1, .clocks_max = 1});
    struct weft_ps_config config = config_for(site.list);
    config.peer_timeout_ns = 60 * WEFT_NS_PER_S;
    struct weft_ps *ps = connect_with(&config);
    struct weft_table_options options = adding("bsp");
    struct weft_ps_table *table = open_table(ps, &options);
    must(ps, weft_push_wait(table, &id, row, 1, 0, NULL));
    must(ps, weft_clock(table));
    must(ps, weft_ps_flush(ps, WEFT_NEVER));
    must(ps, weft_push_wait(table, &id, row, 1, 0, NULL));
    must(ps, weft_clock(table));
    must_fail(ps, weft_pull_wait(table, &id, row, 1, 0, NULL), WEFT_PEER, "clock 2");
    must_fail(ps, weft_ps_flush(ps, WEFT_NEVER), WEFT_PEER, "worker 0 in table 0");
    must_fail(ps, weft_clock(table), WEFT_PEER, "worker 0 in table 0");
    weft_ps_close(ps);
    site_stop(&site);
}

/* `weft server` writes checkpoints (tests/python/test_ps.py); this server writes none. */
static void a_checkpoint_is_asked_for(void **state)
{
    (void)state;
    struct site site;
    site_start(&site, 2, (struct ps_server_options){.workers = 1});
    struct weft_ps_config config = config_for(site.list);
    struct weft_ps *ps = connect_with(&config);
    uint64_t op;
    must_fail(ps, weft_ps_checkpoint(ps, &op), WEFT_INVALID, "weft_table_open");
    struct weft_table_options options = adding("asp");
    (void)open_table(ps, &options);
    must_fail(ps, weft_ps_checkpoint(ps, NULL), WEFT_INVALID, "op_p is NULL");
    must(ps, weft_ps_checkpoint(ps, &op));
    must_fail(ps, weft_wait(ps, op, WEFT_NEVER, NULL), WEFT_DATA, "shard");
    says(weft_ps_error(ps), "--checkpoint");
    weft_ps_close(ps);
    site_stop(&site);
}

/* Longer than the server's timeout. The worker has announced IDLE, and nothing is outstanding. */
static void idle_is_allowed_any_time(void **state)
{
    (void)state;
    uint64_t id = 1;
    float row[DIM] = {1, 1, 1, 1}, got[DIM];
    struct site site;
    site_start(&site, 1, (struct ps_server_options){.workers = 1});
    for (uint8_t thread = 0; thread <= 1; thread++) {
        struct weft_ps_config config = config_for(site.list);
        config.thread = thread;
        struct weft_ps *ps = connect_with(&config);
        struct weft_table_options options = adding("asp");
        options.number = thread;
        struct weft_ps_table *table = open_table(ps, &options);
        weft_ps_idle(ps);
        must(ps, weft_push_wait(table, &id, row, 1, 0, NULL));
        weft_ps_idle(ps);
        must(ps, weft_pull_wait(table, &id, got, 1, 0, NULL));
        assert_memory_equal(got, row, sizeof(row));
        weft_ps_close(ps);
    }
    site_stop(&site);
}

int main(void)
{
    unsetenv("WEFT_WORKERS");
    unsetenv("WEFT_RANK");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configs_are_checked),
        cmocka_unit_test(the_environment_fills_in),
        cmocka_unit_test(the_server_may_come_later),
        cmocka_unit_test(nobody_there_is_said_in_time),
        cmocka_unit_test(the_order_of_shards_is_checked),
        cmocka_unit_test(a_rank_beyond_the_servers_workers),
        cmocka_unit_test(a_rank_is_for_one_without_reconnect),
        cmocka_unit_test(a_rank_is_for_one_with_reconnect),
        cmocka_unit_test(a_rank_is_taken_while_connecting),
        cmocka_unit_test(a_dead_server_is_noticed),
        cmocka_unit_test(a_server_that_ends_says_so),
        cmocka_unit_test(a_refused_clock_is_said),
        cmocka_unit_test(a_checkpoint_is_asked_for),
        cmocka_unit_test(idle_is_allowed_any_time),
    };
    return cmocka_run_group_tests_name("api_ps_peers", tests, NULL, NULL);
}
