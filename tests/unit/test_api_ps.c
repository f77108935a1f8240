/* <weft/ps.h> with real shards in threads: delivery, loss, operations and clocks. */
#include "api_ps_rig.h"
#include "base/bits.h"
#include "io/clock.h"
#include "rpc/rpc_record.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- what arrives ---------------------------------------------------------------------------- */

static void add_and_read(struct weft_ps_config config)
{
    enum { N = 300 };
    static uint64_t ids[N];
    static float rows[N * DIM], got[N * DIM];
    struct weft_ps *ps = connect_with(&config);
    struct weft_table_options options = adding("bsp");
    struct weft_ps_table *table = open_table(ps, &options);
    struct weft_result result = {.size = sizeof(result)};
    fill(ids, rows, N, 1);
    must(ps, weft_push_wait(table, ids, rows, N, 0, &result));
    assert_int_equal(result.elements_sent, N);
    assert_int_equal(result.elements_delivered, N);
    assert_int_equal(result.requests, weft_ps_shards(ps));
    assert_true(result.latency.n_tx_ns > 0);
    must(ps, weft_push_wait(table, ids, rows, 10, 0, NULL));
    must(ps, weft_clock(table));
    assert_int_equal(weft_clock_ended(table), 1);
    must(ps, weft_pull_wait(table, ids, got, N, 0, &result));
    assert_int_equal(result.clock, 1);
    assert_int_equal(result.rows_missed, 0);
    for (uint32_t i = 0; i < N * DIM; i++) {
        assert_true(got[i] == rows[i] * (i < 10 * DIM ? 2.0F : 1.0F));
    }
    struct weft_ps_counters counters = {.size = sizeof(counters)};
    must(ps, weft_ps_flush(ps, 120000 * ms_ns));
    weft_ps_counters_get(ps, &counters);
    assert_int_equal(counters.push_elements_sent, N + 10);
    assert_int_equal(counters.pull_elements_delivered, N);
    assert_int_equal(counters.clocks, weft_ps_shards(ps));
    assert_true(counters.datagrams_sent > 0 || counters.bytes_sent > 0);
    weft_ps_close(ps);
}

static void pushes_add_and_pulls_read(void **state)
{
    (void)state;
    struct site site;
    site_start(&site, 2, (struct ps_server_options){.workers = 1});
    add_and_read(config_for(site.list));
    site_stop(&site);
}

static void a_progress_thread(void **state)
{
    (void)state;
    struct site site;
    site_start(&site, 2, (struct ps_server_options){.workers = 1});
    struct weft_ps_config config = config_for(site.list);
    config.thread = 1;
    add_and_read(config);
    site_stop(&site);
}

static void over_tcp(void **state)
{
    (void)state;
    struct site site;
    site_start(&site, 2, (struct ps_server_options){.workers = 1, .tcp = true});
    struct weft_ps_config config = config_for(site.list);
    config.transport = "tcp";
    add_and_read(config);
    site_stop(&site);
}

/* Timeout of two minutes for a test that hangs. Meanwhile the worker calls none of its
 * functions. */
static void must_be_requested(struct test_server *server, uint32_t requests)
{
    uint64_t end_ns = weft_clock_now_ns() + 120 * WEFT_NS_PER_S;
    while (atomic_load(&server->requests) < requests) {
        if (weft_clock_now_ns() > end_ns) {
            fail_msg("of %u requests the server has seen %u", requests,
                     atomic_load(&server->requests));
        }
        usleep(1000);
    }
}

static void a_child_ends(void (*how)(struct weft_ps *ps), uint32_t thread)
{
    enum { N = 300 };
    static uint64_t ids[N];
    static float rows[N * DIM];
    struct site site;
    int status;
    site_start(&site, 1, (struct ps_server_options){.workers = 1});
    struct weft_ps_config config = config_for(site.list);
    config.thread = thread;
    struct weft_ps *ps = connect_with(&config);
    struct weft_table_options options = adding("asp");
    struct weft_ps_table *table = open_table(ps, &options);
    fill(ids, rows, N, 1);
    must(ps, weft_push_wait(table, ids, rows, N, 0, NULL));
    pid_t pid = fork();
    if (pid == 0) {
        how(ps);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    must(ps, weft_push_wait(table, ids, rows, N, 0, NULL));
    weft_ps_close(ps);
    site_stop(&site);
}

/* A forked child, such as one of a Python DataLoader: the connections belong to its parent. */
static void a_forked_child_ends_no_connection(void **state)
{
    (void)state;
    a_child_ends(weft_ps_close, 0);
    a_child_ends(weft_ps_abort, 0);
    a_child_ends(weft_ps_close, 1);
}

static void leave_at_once(bool tcp, uint32_t thread)
{
    enum { N = 300 };
    static uint64_t ids[N];
    static float rows[N * DIM], got[N * DIM];
    struct site site;
    struct test_server *server = &site.servers[0];
    site_start(&site, 1, (struct ps_server_options){.workers = 1, .tcp = tcp});
    struct weft_ps_config config = config_for(site.list);
    config.transport = tcp ? "tcp" : "weft";
    config.thread = thread;
    struct weft_ps *ps = connect_with(&config);
    struct weft_table_options options = adding("asp");
    struct weft_ps_table *table = open_table(ps, &options);
    uint64_t push, pull;
    fill(ids, rows, N, 1);
    must(ps, weft_push(table, ids, rows, N, 0, &push));
    must_be_requested(server, 1);
    must(ps, weft_pull(table, ids, got, N, 0, &pull));
    must_be_requested(server, 2);
    must(ps, weft_wait(ps, push, WEFT_NEVER, NULL));
    must(ps, weft_wait(ps, pull, WEFT_NEVER, NULL));
    const struct weft_push_list pushed = {.table = table, .ids = ids, .rows = rows, .n = N};
    must(ps, weft_push_lists(ps, &pushed, 1, 0, &push));
    must_be_requested(server, 3);
    const struct weft_pull_list pulled = {.table = table, .ids = ids, .rows_p = got, .n = N};
    must(ps, weft_pull_lists(ps, &pulled, 1, 0, &pull));
    must_be_requested(server, 4);
    must(ps, weft_wait(ps, push, WEFT_NEVER, NULL));
    must(ps, weft_wait(ps, pull, WEFT_NEVER, NULL));
    assert_true(got[0] == 2 * rows[0]);
    weft_ps_close(ps);
    site_stop(&site);
}

static void what_is_begun_leaves_before_it_is_waited_for(void **state)
{
    (void)state;
    leave_at_once(false, 0);
    leave_at_once(true, 0);
    leave_at_once(false, 1);
}

static void long_lists_are_cut(void **state)
{
    (void)state;
    enum { N = 1000 };
    static uint64_t ids[N];
    static float rows[N * DIM], got[N * DIM];
    struct site site;
    site_start(&site, 2, (struct ps_server_options){.workers = 1});
    struct weft_ps_config config = config_for(site.list);
    config.rows_max = 64;
    struct weft_ps *ps = connect_with(&config);
    struct weft_table_options options = adding("asp");
    struct weft_ps_table *table = open_table(ps, &options);
    struct weft_result result = {.size = sizeof(result)};
    uint64_t op = 0;
    fill(ids, rows, N, 3);
    must(ps, weft_push_wait(table, ids, rows, N, 0, &result));
    assert_int_equal(result.elements_delivered, N);
    assert_int_equal(result.requests, 2 * ((N + 63) / 64));
    must(ps, weft_pull_wait(table, ids, got, N, 0, &result));
    assert_int_equal(result.elements_delivered, N);
    assert_memory_equal(got, rows, sizeof(rows));
    must_fail(ps, weft_push(table, ids, rows, 65, 0, &op), WEFT_INVALID, "rows_max");
    must_fail(ps, weft_pull(table, ids, got, N, 0, &op), WEFT_INVALID, "weft_pull_wait");
    must(ps, weft_push(table, ids, rows, 64, 0, &op));
    must(ps, weft_wait(ps, op, WEFT_NEVER, NULL));
    weft_ps_close(ps);
    site_stop(&site);
}

/* ---- operations ------------------------------------------------------------------------------ */

static void operations_have_places(void **state)
{
    (void)state;
    enum { N = 50 };
    static uint64_t ids[N];
    static float rows[N * DIM], got[3][N * DIM];
    struct site site;
    site_start(&site, 1, (struct ps_server_options){.workers = 1});
    struct weft_ps_config config = config_for(site.list);
    config.ops_max = 3;
    struct weft_ps *ps = connect_with(&config);
    struct weft_table_options options = adding("asp");
    struct weft_ps_table *table = open_table(ps, &options);
    uint64_t ops[4] = {0};
    fill(ids, rows, N, 1);
    must(ps, weft_push(table, ids, rows, N, 0, &ops[0]));
    must(ps, weft_pull(table, ids, got[1], N, 0, &ops[1]));
    must(ps, weft_pull(table, ids, got[2], N, 0, &ops[2]));
    /* All slots are in use, also by completed operations that were not waited for. */
    must_fail(ps, weft_pull(table, ids, got[0], N, 0, &ops[3]), WEFT_AGAIN, "weft_wait");
    must_fail(ps, weft_push_wait(table, ids, rows, N, 0, NULL), WEFT_AGAIN, "ops_max");
    must(ps, weft_wait(ps, ops[2], 120000 * ms_ns, NULL));
    assert_memory_equal(got[2], rows, sizeof(rows)); /* the pull sees the preceding push */
    must(ps, weft_pull(table, ids, got[0], N, 0, &ops[3]));
    assert_true(ops[3] != ops[2]);
    must_fail(ps, weft_wait(ps, ops[2], 0, NULL), WEFT_INVALID, "operation");
    weft_status status = WEFT_AGAIN;
    for (uint32_t i = 0; i < 5000 && status == WEFT_AGAIN; i++) {
        status = weft_test(ps, ops[3], NULL);
        weft_ps_progress(ps, status == WEFT_AGAIN ? ms_ns : 0);
    }
    must(ps, status);
    must_fail(ps, weft_test(ps, ops[3], NULL), WEFT_INVALID, "operation");
    must_fail(ps, weft_wait(ps, 0, 0, NULL), WEFT_INVALID, "operation");
    must_fail(ps, weft_wait(ps, UINT64_MAX, 0, NULL), WEFT_INVALID, "operation");
    must(ps, weft_wait(ps, ops[0], WEFT_NEVER, NULL));
    must(ps, weft_wait(ps, ops[1], WEFT_NEVER, NULL));
    /* In progress at the end: their memory is released. */
    must(ps, weft_pull(table, ids, got[0], N, 0, &ops[0]));
    weft_ps_close(ps);
    site_stop(&site);
}

static void nothing_is_allowed_and_nonsense_is_not(void **state)
{
    (void)state;
    uint64_t id = 5;
    float row[DIM] = {1, 2, 3, 4};
    struct site site;
    site_start(&site, 1, (struct ps_server_options){.workers = 1});
    struct weft_ps_config config = config_for(site.list);
    struct weft_ps *ps = connect_with(&config);
    struct weft_table_options options = adding("asp");
    struct weft_ps_table *table = open_table(ps, &options);
    struct weft_result result = {.size = sizeof(result)};
    uint64_t op = 0;
    must(ps, weft_push_wait(table, NULL, NULL, 0, 0, &result));
    assert_int_equal(result.requests, 0);
    must(ps, weft_pull_wait(table, NULL, NULL, 0, 0, NULL));
    uint64_t none[2] = {UINT64_MAX, UINT64_MAX};
    assert_int_equal(weft_result_missed(ps, none, 2), 0);
    assert_true(none[0] == 0 && none[1] == 0);
    must(ps, weft_pull(table, &id, row, 0, 0, &op));
    must(ps, weft_test(ps, op, NULL));
    must_fail(ps, weft_push(table, NULL, row, 1, 0, &op), WEFT_INVALID, "ids is NULL");
    must_fail(ps, weft_pull(table, &id, NULL, 1, 0, &op), WEFT_INVALID, "rows is NULL");
    must_fail(ps, weft_push_wait(table, &id, NULL, 1, 0, NULL), WEFT_INVALID, "NULL");
    must_fail(ps, weft_push(table, &id, row, 1, 0, NULL), WEFT_INVALID, "op_p is NULL");
    must_fail(ps, weft_push(table, &id, row, 1, 1000000, &op), WEFT_INVALID, "bound_ppm");
    must_fail(ps, weft_pull_wait(table, &id, row, SIZE_MAX, 0, NULL), WEFT_INVALID,
              "n is 18446744073709551615");
    must_fail(ps, weft_push(table, &id, row, SIZE_MAX / 2, 0, &op), WEFT_INVALID,
              "n is 9223372036854775807");
    must(ps, weft_push_wait(table, &id, row, 1, 0, NULL));
    weft_ps_close(ps);
    weft_ps_close(NULL);
    site_stop(&site);
}

/* ---- loss ------------------------------------------------------------------------------------ */

/* The rows that the previous push reported as missed are exactly those that did not change. */
static void lost_pushes_are_named(struct weft_ps *ps, struct weft_ps_table *table,
                                  const struct weft_result *result, const uint64_t *ids,
                                  const float *rows, size_t n)
{
    uint64_t *bits = calloc(n / 64 + 2, sizeof(*bits));
    float *got = calloc(n * DIM, sizeof(*got));
    bits[n / 64 + 1] = UINT64_MAX; /* beyond the required words: cleared */
    assert_int_equal(weft_result_missed(ps, bits, n / 64 + 2), n);
    assert_int_equal(bits[n / 64 + 1], 0);
    assert_int_equal(weft_bits_count(bits, n), result->rows_missed);
    must(ps, weft_pull_wait(table, ids, got, n, 0, NULL));
    for (size_t i = 0; i < n; i++) {
        float times = weft_bits_test(bits, i) ? 1 : 2;
        assert_true(got[i * DIM] == times * rows[i * DIM]);
    }
    size_t first, count;
    assert_false(weft_result_gap(ps, 0, &first, &count)); /* the pull had bound 0 */
    free(bits);
    free(got);
}

static void losses_are_counted_and_old_values_stay(void **state)
{
    (void)state;
    enum { N = 20000 };
    static uint64_t ids[N];
    static float rows[N * DIM], got[N * DIM];
    struct site site;
    site_start(&site, 1, (struct ps_server_options){.workers = 1, .loss_ppm = 100000});
    struct weft_ps_config config = config_for(site.list);
    config.inject_loss_ppm = 100000;
    config.rows_max = N;
    struct weft_ps *ps = connect_with(&config);
    struct weft_table_options options = adding("asp");
    struct weft_ps_table *table = open_table(ps, &options);
    struct weft_result result = {.size = sizeof(result)};
    fill(ids, rows, N, 1);
    /* Bound 0: all rows arrive, whatever the network does. */
    must(ps, weft_push_wait(table, ids, rows, N, 0, &result));
    assert_int_equal(result.elements_delivered, N);
    must(ps, weft_pull_wait(table, ids, got, N, 0, &result));
    assert_memory_equal(got, rows, sizeof(rows));
    must(ps, weft_push_wait(table, ids, rows, N, 400000, &result));
    assert_int_equal(result.elements_sent, N);
    assert_true(result.elements_delivered >= N * 6 / 10 && result.elements_delivered < N);
    assert_int_equal(result.rows_missed, N - result.elements_delivered);
    lost_pushes_are_named(ps, table, &result, ids, rows, N);
    assert_int_equal(result.requests_short, result.requests);
    for (uint32_t i = 0; i < N * DIM; i++) {
        got[i] = -7;
    }
    must(ps, weft_pull_wait(table, ids, got, N, 400000, &result));
    uint32_t kept = 0;
    for (uint32_t i = 0; i < N; i++) {
        kept += got[i * DIM] == -7 && got[i * DIM + DIM - 1] == -7;
    }
    assert_true(kept > 0);
    assert_int_equal(result.rows_missed, kept);
    assert_int_equal(result.elements_delivered, N - kept);
    size_t named = 0, first, count;
    for (size_t at = 0; weft_result_gap(ps, at, &first, &count); at = first + count) {
        for (size_t i = first; i < first + count; i++) {
            assert_true(got[i * DIM] == -7);
        }
        named += count;
    }
    assert_int_equal(named, kept);
    struct weft_ps_counters counters = {.size = sizeof(counters)};
    weft_ps_counters_get(ps, &counters);
    assert_int_equal(counters.missed_ids, kept);
    assert_true(counters.injected_drops > 0);
    weft_ps_close(ps);
    site_stop(&site);
}

/* ---- clocks ---------------------------------------------------------------------------------- */

static void a_pull_waits_for_the_slowest_worker(void **state)
{
    (void)state;
    uint64_t id = 9, op = 0;
    float one[DIM] = {2, 2, 2, 2}, got[DIM];
    struct site site;
    site_start(&site, 2, (struct ps_server_options){.workers = 2});
    struct weft_ps_config config = config_for(site.list);
    config.workers = 2;
    config.worker = 0;
    struct weft_ps *a = connect_with(&config);
    config.worker = 1;
    struct weft_ps *b = connect_with(&config);
    struct weft_table_options options = adding("bsp");
    struct weft_ps_table *table_a = open_table(a, &options), *table_b = open_table(b, &options);
    must(a, weft_push_wait(table_a, &id, one, 1, 0, NULL));
    must(a, weft_clock(table_a));
    must(a, weft_pull(table_a, &id, got, 1, 0, &op));
    must_fail(a, weft_wait(a, op, 50 * ms_ns, NULL), WEFT_TIMEOUT, "pull of table 0");
    must_fail(a, weft_test(a, op, NULL), WEFT_AGAIN, "operation");
    must(a, weft_ps_flush(a, 120000 * ms_ns)); /* a waiting pull does not block it */
    must(b, weft_push_wait(table_b, &id, one, 1, 0, NULL));
    must(b, weft_clock(table_b));
    must(b, weft_ps_flush(b, 120000 * ms_ns));
    must(a, weft_wait(a, op, 120000 * ms_ns, NULL));
    assert_true(got[0] == 2.0F); /* the mean */
    weft_ps_close(a);
    weft_ps_close(b);
    site_stop(&site);
}

/* A restarted program continues at its rank's clock. */
static void a_second_life_joins_the_table(void **state)
{
    (void)state;
    uint64_t id = 9;
    float one[DIM] = {1, 1, 1, 1}, got[DIM];
    struct site site;
    site_start(&site, 2, (struct ps_server_options){.workers = 1});
    struct weft_ps_config config = config_for(site.list);
    struct weft_table_options options = adding("bsp");
    for (uint32_t life = 0; life < 3; life++) {
        struct weft_ps *ps = connect_with(&config);
        struct weft_ps_table *table = open_table(ps, &options);
        assert_int_equal(weft_clock_ended(table), 2 * life);
        for (uint32_t step = 0; step < 2; step++) {
            must(ps, weft_push_wait(table, &id, one, 1, 0, NULL));
            must(ps, weft_clock(table));
        }
        must(ps, weft_pull_wait(table, &id, got, 1, 0, NULL));
        assert_true(got[0] == 2.0F * (float)(life + 1));
        must(ps, weft_ps_flush(ps, 120000 * ms_ns));
        weft_ps_close(ps);
    }
    site_stop(&site);
}

/* ---- records --------------------------------------------------------------------------------- */

static void its_rpcs_are_recorded(void **state)
{
    (void)state;
    enum { RPCS = 500 };
    char folder[] = "/tmp/weft-records-XXXXXX", file[64], spool[96];
    uint64_t id = 9;
    float one[DIM] = {1, 1, 1, 1};
    struct site site;
    struct stat about;
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof(file), "%s/r.db", folder);
    snprintf(spool, sizeof(spool), "%s.spool-worker-0", file);
    site_start(&site, 1, (struct ps_server_options){.workers = 1});
    struct weft_ps_config config = config_for(site.list);
    struct weft_table_options options = adding("asp");
    config.records = file;
    struct weft_ps *ps = connect_with(&config);
    struct weft_ps_table *table = open_table(ps, &options);
    for (int i = 0; i < RPCS; i++) {
        must(ps, weft_push_wait(table, &id, one, 1, 0, NULL));
    }
    must(ps, weft_ps_flush(ps, WEFT_NEVER));
    struct weft_ps *second;
    assert_int_equal(weft_ps_connect(&config, &second), WEFT_EXISTS);
    says(weft_ps_error(NULL), spool);
    weft_ps_close(ps);
    assert_int_equal(stat(spool, &about), 0);
    assert_int_equal(about.st_size % WEFT_RPC_RECORD_UNIT_BYTES, 0);
    assert_true(about.st_size >=
                (4 + RPCS * WEFT_RPC_RECORD_CLIENT_UNITS) * WEFT_RPC_RECORD_UNIT_BYTES);
    config.records = "/nowhere/r.db";
    assert_int_equal(weft_ps_connect(&config, &second), WEFT_IO);
    says(weft_ps_error(NULL), "/nowhere/r.db");
    site_stop(&site);
    assert_int_equal(unlink(spool), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    unsetenv("WEFT_WORKERS");
    unsetenv("WEFT_RANK");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pushes_add_and_pulls_read),
        cmocka_unit_test(a_progress_thread),
        cmocka_unit_test(over_tcp),
        cmocka_unit_test(a_forked_child_ends_no_connection),
        cmocka_unit_test(what_is_begun_leaves_before_it_is_waited_for),
        cmocka_unit_test(long_lists_are_cut),
        cmocka_unit_test(operations_have_places),
        cmocka_unit_test(nothing_is_allowed_and_nonsense_is_not),
        cmocka_unit_test(losses_are_counted_and_old_values_stay),
        cmocka_unit_test(a_pull_waits_for_the_slowest_worker),
        cmocka_unit_test(a_second_life_joins_the_table),
        cmocka_unit_test(its_rpcs_are_recorded),
    };
    return cmocka_run_group_tests_name("api_ps", tests, NULL, NULL);
}
