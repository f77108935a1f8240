/* <weft/ps.h> against real shards in threads: what arrives, what is lost, what is refused, and the
 * words for it. */
#include "api_ps_server.h"
#include "base/bits.h"
#include "free_port.h"
#include "io/clock.h"
#include "rpc/record.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/ps.h>

enum { DIM = 4 };

static const uint64_t ms_ns = WEFT_NS_PER_MS;

/* Up to two shards, and the list of them. */
struct site {
    struct test_server servers[2];
    uint32_t count;
    char list[64];
};

static void site_start(struct site *site, uint32_t shards, struct ps_server_options options)
{
    size_t used = 0;
    site->count = shards;
    for (uint32_t s = 0; s < shards; s++) {
        options.shard = s;
        options.shards = shards;
        test_server_start(&site->servers[s], options);
        used += (size_t)snprintf(site->list + used, sizeof(site->list) - used, "%s127.0.0.1:%u",
                                 s > 0 ? "," : "", (unsigned)site->servers[s].port);
    }
}

static void site_stop(struct site *site)
{
    for (uint32_t s = 0; s < site->count; s++) {
        test_server_stop(&site->servers[s]);
    }
}

static struct weft_ps_config config_for(const char *servers)
{
    struct weft_ps_config config;
    weft_ps_config_init(&config, sizeof(config));
    config.servers = servers;
    config.security = WEFT_TRANSPORT_NONE;
    config.connect_timeout_ns = 120 * WEFT_NS_PER_S;
    config.rows_max = 2048; /* meson's MALLOC_PERTURB_ makes calloc touch all that is reserved */
    return config;
}

static struct weft_ps *connect_with(const struct weft_ps_config *config)
{
    struct weft_ps *ps = NULL;
    weft_status status = weft_ps_connect(config, &ps);
    if (status != WEFT_OK) {
        fail_msg("%s: %s", weft_status_name(status), weft_ps_error(NULL));
    }
    return ps;
}

static void must(const struct weft_ps *ps, weft_status status)
{
    if (status != WEFT_OK) {
        fail_msg("%s: %s", weft_status_name(status), weft_ps_error(ps));
    }
}

static void says(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", text, part);
    }
}

static void must_fail(const struct weft_ps *ps, weft_status status, weft_status wanted,
                      const char *words)
{
    if (status != wanted) {
        fail_msg("%s instead of %s: %s", weft_status_name(status), weft_status_name(wanted),
                 weft_ps_error(ps));
    }
    says(weft_ps_error(ps), words);
}

/* SGD with rate -1: a push adds what it holds, divided by the workers. */
static struct weft_table_options adding(const char *consistency)
{
    struct weft_table_options options;
    weft_table_options_init(&options, sizeof(options), "sgd");
    options.consistency = consistency;
    options.dim = DIM;
    options.learning_rate = -1.0F;
    return options;
}

static struct weft_ps_table *open_table(struct weft_ps *ps,
                                        const struct weft_table_options *options)
{
    struct weft_ps_table *table = NULL;
    must(ps, weft_table_open(ps, options, &table));
    return table;
}

static void fill(uint64_t *ids, float *rows, size_t n, float value)
{
    for (size_t i = 0; i < n; i++) {
        ids[i] = i * 7919;
        for (uint32_t d = 0; rows != NULL && d < DIM; d++) {
            rows[i * DIM + d] = value + (float)i + (float)d / 8;
        }
    }
}

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

/* Two minutes end what hangs; the worker is in none of its functions meanwhile. */
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
    /* All places are taken, also of what is done but not waited for. */
    must_fail(ps, weft_pull(table, ids, got[0], N, 0, &ops[3]), WEFT_AGAIN, "weft_wait");
    must_fail(ps, weft_push_wait(table, ids, rows, N, 0, NULL), WEFT_AGAIN, "ops_max");
    must(ps, weft_wait(ps, ops[2], 120000 * ms_ns, NULL));
    assert_memory_equal(got[2], rows, sizeof(rows)); /* it sees the push before it */
    must(ps, weft_pull(table, ids, got[0], N, 0, &ops[3]));
    assert_true(ops[3] != ops[2]);
    must_fail(ps, weft_wait(ps, ops[2], 0, NULL), WEFT_INVALID, "no such operation");
    weft_status status = WEFT_AGAIN;
    for (uint32_t i = 0; i < 5000 && status == WEFT_AGAIN; i++) {
        status = weft_test(ps, ops[3], NULL);
        weft_ps_progress(ps, status == WEFT_AGAIN ? ms_ns : 0);
    }
    must(ps, status);
    must_fail(ps, weft_test(ps, ops[3], NULL), WEFT_INVALID, "no such operation");
    must_fail(ps, weft_wait(ps, 0, 0, NULL), WEFT_INVALID, "no such operation");
    must_fail(ps, weft_wait(ps, UINT64_MAX, 0, NULL), WEFT_INVALID, "no such operation");
    must(ps, weft_wait(ps, ops[0], WEFT_NEVER, NULL));
    must(ps, weft_wait(ps, ops[1], WEFT_NEVER, NULL));
    /* Under way at the end: their memory is ours again. */
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
    must_fail(ps, weft_pull(table, &id, NULL, 1, 0, &op), WEFT_INVALID,
              "memory of the rows is NULL");
    must_fail(ps, weft_push_wait(table, &id, NULL, 1, 0, NULL), WEFT_INVALID, "NULL");
    must_fail(ps, weft_push(table, &id, row, 1, 0, NULL), WEFT_INVALID, "op_p is NULL");
    must_fail(ps, weft_push(table, &id, row, 1, 1000000, &op), WEFT_INVALID, "bound_ppm");
    must_fail(ps, weft_pull_wait(table, &id, row, SIZE_MAX, 0, NULL), WEFT_INVALID, "negative");
    must_fail(ps, weft_push(table, &id, row, SIZE_MAX / 2, 0, &op), WEFT_INVALID, "negative");
    must(ps, weft_push_wait(table, &id, row, 1, 0, NULL));
    weft_ps_close(ps);
    weft_ps_close(NULL);
    site_stop(&site);
}

/* ---- pieces of a vector, several tables ------------------------------------------------------ */

/* 1,030 floats in rows of DIM: 257 full ones and one of two floats. */
enum { LENGTH = 1030, ROWS = 258 };

static struct weft_table_options vector(uint32_t number)
{
    struct weft_table_options options = adding("asp");
    options.number = number;
    options.length = LENGTH;
    return options;
}

static void count_up(float *values, size_t n, float from)
{
    for (size_t i = 0; i < n; i++) {
        values[i] = from + (float)i;
    }
}

static void a_vector_needs_no_ids(void **state)
{
    (void)state;
    static float values[LENGTH], got[LENGTH + 1];
    struct site site;
    site_start(&site, 2, (struct ps_server_options){.workers = 1});
    struct weft_ps_config config = config_for(site.list);
    config.rows_max = 100; /* the whole of it goes in three parts */
    struct weft_ps *ps = connect_with(&config);
    struct weft_table_options options = vector(0);
    struct weft_ps_table *table = open_table(ps, &options);
    struct weft_result result = {.size = sizeof(result)};
    uint64_t op = 0;
    count_up(values, LENGTH, 1);
    got[LENGTH] = -7; /* behind the end: nobody's */
    must(ps, weft_push_range_wait(table, 0, values, ROWS, 0, &result));
    assert_int_equal(result.elements_delivered, ROWS);
    must(ps, weft_pull_range_wait(table, 0, got, ROWS, 0, &result));
    assert_int_equal(result.rows_missed, 0);
    assert_memory_equal(got, values, sizeof(values));
    assert_true(got[LENGTH] == -7);
    /* A piece in the middle, and the short row at the end. */
    must(ps, weft_push_range(table, 10, values + 10 * DIM, 3, 0, &op));
    must(ps, weft_wait(ps, op, WEFT_NEVER, NULL));
    memset(got, 0, sizeof(got));
    must(ps, weft_pull_range(table, 9, got, 5, 0, &op));
    must(ps, weft_wait(ps, op, WEFT_NEVER, NULL));
    for (uint32_t i = 0; i < 5 * DIM; i++) {
        bool twice = i >= DIM && i < 4 * DIM;
        assert_true(got[i] == values[9 * DIM + i] * (twice ? 2.0F : 1.0F));
    }
    got[2] = -7;
    must(ps, weft_pull_range_wait(table, ROWS - 1, got, 1, 0, NULL));
    assert_true(got[0] == LENGTH - 1 && got[1] == LENGTH && got[2] == -7);
    must(ps, weft_pull_range_wait(table, ROWS, got, 0, 0, NULL));
    weft_ps_close(ps);
    site_stop(&site);
}

static void a_piece_must_be_there(void **state)
{
    (void)state;
    uint64_t id = 1, op = 0;
    static float values[LENGTH];
    struct site site;
    site_start(&site, 1, (struct ps_server_options){.workers = 1});
    struct weft_ps_config config = config_for(site.list);
    struct weft_ps *ps = connect_with(&config);
    struct weft_table_options options = vector(0), sparse = adding("asp");
    sparse.number = 1;
    sparse.name = "clicks";
    struct weft_ps_table *table = open_table(ps, &options);
    struct weft_ps_table *other = open_table(ps, &sparse);
    must_fail(ps, weft_push_range(table, 1, values, ROWS, 0, &op), WEFT_INVALID,
              "258 rows from 1 on are asked of table 0, which has 258");
    must_fail(ps, weft_pull_range_wait(table, UINT64_MAX, values, 2, 0, NULL), WEFT_INVALID,
              "which has 258");
    must_fail(ps, weft_push_range(table, 0, NULL, 1, 0, &op), WEFT_INVALID, "rows is NULL");
    must_fail(ps, weft_pull_range(other, 0, values, 1, 0, &op), WEFT_INVALID,
              "lists without them are of dense tables (options.length), and clicks is sparse");
    must_fail(ps, weft_push(table, NULL, values, 1, 0, &op), WEFT_INVALID, "ids is NULL");
    id = ROWS;
    must_fail(ps, weft_push(table, &id, values, 1, 0, &op), WEFT_INVALID, "beyond the end");
    must(ps, weft_push_range_wait(table, 0, values, ROWS, 0, NULL));
    weft_ps_close(ps);
    site_stop(&site);
}

static void several_tables_in_one_operation(void **state)
{
    (void)state;
    enum { N = 200 };
    static uint64_t ids[N];
    static float rows[N * DIM], values[LENGTH], got[N * DIM], piece[LENGTH];
    struct site site;
    site_start(&site, 2, (struct ps_server_options){.workers = 1});
    struct weft_ps_config config = config_for(site.list);
    struct weft_ps *ps = connect_with(&config);
    struct weft_table_options options = adding("asp"), dense = vector(1);
    options.name = "weights";
    struct weft_ps_table *sparse = open_table(ps, &options);
    struct weft_ps_table *whole = open_table(ps, &dense);
    struct weft_result result = {.size = sizeof(result)};
    fill(ids, rows, N, 1);
    count_up(values, LENGTH, 5);
    const struct weft_push_list push[] = {
        {.table = sparse, .ids = ids, .rows = rows, .n = N},
        {.table = whole, .rows = values, .n = ROWS},
        {.table = sparse, .ids = ids, .rows = rows, .n = 10}, /* a table twice: both count */
    };
    must(ps, weft_push_lists_wait(ps, push, 3, 0, &result));
    assert_int_equal(result.elements_delivered, N + ROWS + 10);
    const struct weft_pull_list pull[] = {
        {.table = whole, .rows_p = piece, .n = ROWS},
        {.table = sparse, .ids = ids, .rows_p = got, .n = N},
    };
    must(ps, weft_pull_lists_wait(ps, pull, 2, 0, &result));
    assert_int_equal(result.elements_delivered, N + ROWS);
    assert_memory_equal(piece, values, sizeof(values));
    for (uint32_t i = 0; i < N * DIM; i++) {
        assert_true(got[i] == rows[i] * (i < 10 * DIM ? 2.0F : 1.0F));
    }
    must(ps, weft_push_lists_wait(ps, NULL, 0, 0, &result));
    assert_int_equal(result.requests, 0);
    rows[0] = NAN;
    must_fail(ps, weft_push_lists_wait(ps, push, 3, 0, &result), WEFT_DATA,
              "push to weights and 2 more lists: refused by shard");
    weft_ps_close(ps);
    site_stop(&site);
}

/* One worker of a table that counts two: the mean over workers halves what it pushes, that over
 * contributors does not, and a sum is not divided. */
static void means_are_over_workers_or_contributors(void **state)
{
    (void)state;
    static const char *const averages[] = {NULL, "workers", "contributors", "none"};
    const uint64_t id = 5;
    const float eights[DIM] = {8, 8, 8};
    struct site site;
    site_start(&site, 1, (struct ps_server_options){.workers = 2});
    struct weft_ps_config config = config_for(site.list);
    config.tables_max = 8;
    struct weft_ps *ps = connect_with(&config);
    for (uint32_t i = 0; i < WEFT_ARRAY_COUNT(averages); i++) {
        struct weft_table_options options = adding("asp");
        float got[DIM];
        options.number = i;
        options.workers = 2;
        options.average = averages[i];
        struct weft_ps_table *table = open_table(ps, &options);
        must(ps, weft_push_wait(table, &id, eights, 1, 0, NULL));
        must(ps, weft_pull_wait(table, &id, got, 1, 0, NULL));
        assert_true(got[0] == (i >= 2 ? 8 : 4));
    }
    struct weft_table_options options = adding("bsp");
    struct weft_ps_table *table;
    options.number = 4;
    options.average = "median";
    must_fail(ps, weft_table_open(ps, &options, &table), WEFT_INVALID,
              "average is \"median\"; choose \"workers\", \"contributors\" or \"none\"");
    weft_ps_close(ps);
    site_stop(&site);
}

/* Gradients and weights as bf16: what is not there is kept, and zeros send it. */
static void values_may_be_half_as_long(void **state)
{
    (void)state;
    const uint64_t id = 5;
    const float ones[DIM] = {1001, 1002, -1003}, zeros[DIM] = {0};
    float got[DIM], kept[DIM];
    struct site site;
    site_start(&site, 1, (struct ps_server_options){.workers = 1});
    struct weft_ps_config config = config_for(site.list);
    config.tables_max = 8;
    struct weft_ps *ps = connect_with(&config);
    struct weft_table_options options = adding("asp");
    options.value_type = "bf16";
    struct weft_ps_table *table = open_table(ps, &options);
    uint64_t kept_id;
    must(ps, weft_push_wait(table, &id, ones, 1, 0, NULL));
    must(ps, weft_pull_wait(table, &id, got, 1, 0, NULL));
    assert_int_equal(weft_table_kept(table, &kept_id, kept, 1), 1);
    for (uint32_t d = 0; d < DIM; d++) {
        assert_true(fmodf(got[d], 4) == 0 && got[d] + kept[d] == ones[d]);
    }
    must(ps, weft_push_wait(table, &id, zeros, 1, 0, NULL));
    must(ps, weft_pull_wait(table, &id, got, 1, 0, NULL));
    assert_memory_equal(got, ones, sizeof(got));
    assert_int_equal(weft_table_kept(table, &kept_id, kept, 1), 0);
    struct weft_ps_counters counters = {.size = sizeof(counters)};
    weft_ps_counters_get(ps, &counters);
    assert_int_equal(counters.value_bytes_saved, 2 * 2 * DIM);
    assert_int_equal(counters.residual_dropped, 0);
    options.number = 1;
    options.value_type = "float32";
    options.pull_value_type = "bf16";
    table = open_table(ps, &options);
    must(ps, weft_push_wait(table, &id, ones, 1, 0, NULL));
    must(ps, weft_pull_wait(table, &id, got, 1, 0, NULL));
    assert_true(got[0] == 1000 && got[1] == 1000 && got[2] == -1004);
    assert_int_equal(weft_table_kept(table, NULL, NULL, 0), 0);
    options.number = 2;
    options.value_type = "float16";
    must_fail(ps, weft_table_open(ps, &options, &table), WEFT_INVALID,
              "value_type is \"float16\"; choose \"float32\", \"bf16\" or \"int8\"");
    options.value_type = "bf16";
    options.pull_value_type = "int8";
    must_fail(ps, weft_table_open(ps, &options, &table), WEFT_INVALID,
              "pull_value_type is \"int8\"; choose \"float32\" or \"bf16\"; int8 is for gradients");
    options.value_type = "int8";
    options.pull_value_type = NULL;
    table = open_table(ps, &options);
    const float steps[DIM] = {127, 5.25F, -3}, whole[DIM] = {127, 5, -3};
    must(ps, weft_push_wait(table, &id, steps, 1, 0, NULL));
    must(ps, weft_pull_wait(table, &id, got, 1, 0, NULL));
    assert_memory_equal(got, whole, sizeof(got));
    assert_int_equal(weft_table_kept(table, &kept_id, kept, 1), 1);
    assert_true(kept[0] == 0 && kept[1] == 0.25F && kept[2] == 0);
    weft_ps_close(ps);
    site_stop(&site);
}

static void lists_go_as_a_whole_or_not_at_all(void **state)
{
    (void)state;
    enum { N = 40 };
    static uint64_t ids[N];
    static float rows[N * DIM], got[N * DIM];
    struct site site;
    site_start(&site, 1, (struct ps_server_options){.workers = 2});
    struct weft_ps_config config = config_for(site.list);
    config.rows_max = 64;
    config.lists_max = 2;
    struct weft_ps *ps = connect_with(&config);
    config.worker = 1;
    config.workers = 2;
    struct weft_ps *stranger = connect_with(&config);
    struct weft_table_options options = adding("asp");
    options.workers = 1;
    struct weft_ps_table *table = open_table(ps, &options);
    struct weft_ps_table *theirs = open_table(stranger, &options);
    uint64_t op = 0;
    fill(ids, rows, N, 1);
    struct weft_push_list lists[3] = {{table, ids, 0, rows, N}, {table, ids, 0, rows, N}};
    must_fail(ps, weft_push_lists(ps, lists, 3, 0, &op), WEFT_INVALID, "lists_max");
    must_fail(ps, weft_push_lists(ps, NULL, 1, 0, &op), WEFT_INVALID, "lists is NULL");
    must_fail(ps, weft_push_lists(ps, lists, 2, 0, &op), WEFT_INVALID, "80 rows together");
    must_fail(ps, weft_push_lists(ps, lists, 1, 0, NULL), WEFT_INVALID, "op_p is NULL");
    lists[1] = (struct weft_push_list){theirs, ids, 0, rows, 1};
    must_fail(ps, weft_push_lists(ps, lists, 2, 0, &op), WEFT_INVALID, "another ps");
    lists[1] = (struct weft_push_list){NULL, ids, 0, rows, 1};
    must_fail(ps, weft_push_lists(ps, lists, 2, 0, &op), WEFT_INVALID, "no table");
    lists[1] = (struct weft_push_list){table, NULL, 0, rows, 1};
    must_fail(ps, weft_push_lists(ps, lists, 2, 0, &op), WEFT_INVALID, "is sparse");
    must(ps, weft_pull_wait(table, ids, got, N, 0, NULL));
    for (uint32_t i = 0; i < N * DIM; i++) {
        assert_true(got[i] == 0);
    }
    config.lists_max = 0;
    assert_int_equal(weft_ps_connect(&config, &ps), WEFT_INVALID);
    says(weft_ps_error(NULL), "lists_max");
    weft_ps_close(stranger);
    weft_ps_close(ps);
    site_stop(&site);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void gradients_must_be_finite(void **state)
{
    (void)state;
    uint64_t id = 5;
    float row[DIM] = {1, NAN, 3, 4}, got[DIM];
    struct site site;
    site_start(&site, 1, (struct ps_server_options){.workers = 1});
    struct weft_ps_config config = config_for(site.list);
    struct weft_ps *ps = connect_with(&config);
    struct weft_table_options options = adding("asp");
    options.name = "clicks";
    struct weft_ps_table *table = open_table(ps, &options);
    struct weft_result result = {.size = sizeof(result)};
    weft_status status = weft_push_wait(table, &id, row, 1, 0, &result);
    must_fail(ps, status, WEFT_DATA, "push to clicks: refused by shard 0 at 127.0.0.1:");
    says(weft_ps_error(ps), "not a number");
    assert_int_equal(result.chunks_refused, 1);
    row[1] = 2;
    must(ps, weft_push_wait(table, &id, row, 1, 0, NULL)); /* it goes on */
    must(ps, weft_pull_wait(table, &id, got, 1, 0, NULL));
    assert_memory_equal(got, row, sizeof(row));
    weft_ps_close(ps);
    site_stop(&site);
}

static void a_full_table_says_so(void **state)
{
    (void)state;
    enum { N = 64 };
    static uint64_t ids[N];
    static float rows[N * DIM];
    struct site site;
    site_start(&site, 1, (struct ps_server_options){.workers = 1, .rows_max = 8});
    struct weft_ps_config config = config_for(site.list);
    struct weft_ps *ps = connect_with(&config);
    struct weft_table_options options = adding("asp");
    struct weft_ps_table *table = open_table(ps, &options);
    fill(ids, rows, N, 1);
    must_fail(ps, weft_push_wait(table, ids, rows, N, 0, NULL), WEFT_DATA, "no room for new rows");
    weft_ps_close(ps);
    site_stop(&site);
}

static void tables_must_be_meant_alike(void **state)
{
    (void)state;
    struct site site;
    site_start(&site, 2, (struct ps_server_options){.workers = 2});
    struct weft_ps_config config = config_for(site.list);
    config.workers = 2;
    config.worker = 0;
    config.dim_max = 1024;
    struct weft_ps *a = connect_with(&config);
    config.worker = 1;
    struct weft_ps *b = connect_with(&config);
    struct weft_table_options options = adding("bsp");
    struct weft_ps_table *table = open_table(a, &options);
    must_fail(a, weft_table_open(a, &options, &table), WEFT_EXISTS, "opened already");
    options.dim = DIM + 1;
    must_fail(b, weft_table_open(b, &options, &table), WEFT_DATA, "exists with other values");
    options.dim = DIM;
    options.optimizer = "adagrad";
    options.accumulator = 0.1F;
    must_fail(b, weft_table_open(b, &options, &table), WEFT_DATA, "exists with other values");
    options = adding("bsp");
    options.number = 1;
    options.dim = 100; /* the shard's limit is 64 */
    must_fail(b, weft_table_open(b, &options, &table), WEFT_DATA, "above the server's limits");
    options = adding("bsp");
    (void)open_table(b, &options);
    weft_ps_close(a);
    weft_ps_close(b);
    site_stop(&site);
}

static void options_are_checked_here(void **state)
{
    (void)state;
    struct site site;
    site_start(&site, 1, (struct ps_server_options){.workers = 1});
    struct weft_ps_config config = config_for(site.list);
    struct weft_ps *ps = connect_with(&config);
    struct weft_ps_table *table = NULL;
    struct weft_table_options good = adding("bsp"), o;
    must_fail(ps, weft_table_open(ps, NULL, &table), WEFT_INVALID, "options");
    must_fail(ps, weft_table_open(ps, &good, NULL), WEFT_INVALID, "table_p");
    o = (struct weft_table_options){0};
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "weft_table_options_init first");
    o = good, o.optimizer = "newton";
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "\"sgd\", \"");
    o = good, o.optimizer = NULL;
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "(NULL)");
    static const char *const bad[] = {
        "", "SSP:1", "ssp", "ssp:", "ssp:-1", "ssp:1x", "ssp:99999999999999999999", "bspx"};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(bad); i++) {
        o = good, o.consistency = bad[i];
        must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "consistency is");
    }
    o = good, o.dim = 0;
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "dim is 0");
    o = good, o.dim = 65;
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "dim is 65");
    o = good, o.number = 4; /* of 4 */
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "number is 4");
    o = good, o.workers = 65536;
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "workers is 65536");
    o = good, o.learning_rate = INFINITY;
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "learning_rate");
    o = good, o.epsilon = 1; /* not of SGD */
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "do not fit each other");
    o = good, o.admission = "some";
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "\"all\", \"counter\", \"bloom\"");
    o = good, o.eviction = "fifo";
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "\"lru\", \"l2\"");
    o = good, o.not_finite = "";
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "not_finite is \"\"");
    o = good, o.eviction = "ttl"; /* of how many clocks? */
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "docs/TABLES.md");
    o = good, o.clip = NAN;
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "clip is not a finite number");
    o = good, o.reserved = 1;
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_UNSUPPORTED, "reserved");
    o = good, o.consistency = "ssp:3";
    (void)open_table(ps, &o);
    weft_ps_close(ps);
    site_stop(&site);
}

/* Words become what the specification has: each option does something. */
static void options_reach_the_server(void **state)
{
    (void)state;
    static const char *const optimizers[] = {"sgd",  "momentum", "adagrad",
                                             "adam", "ftrl",     "adadelay"};
    uint64_t ids[4] = {0, 1, 2, 3};
    float rows[2][4 * DIM], ones[4 * DIM];
    struct site site;
    site_start(&site, 2, (struct ps_server_options){.workers = 1});
    struct weft_ps_config config = config_for(site.list);
    config.tables_max = 8;
    struct weft_ps *ps = connect_with(&config);
    struct weft_table_options o;
    struct weft_ps_table *table = NULL;
    for (uint32_t i = 0; i < 4 * DIM; i++) {
        ones[i] = 1.0F;
    }
    for (uint32_t i = 0; i < WEFT_ARRAY_COUNT(optimizers); i++) {
        weft_table_options_init(&o, sizeof(o), optimizers[i]);
        o.number = i;
        o.dim = DIM;
        o.consistency = "asp";
        o.init_scale = 0.5F;
        o.init_skip = 1;
        o.init_seed = 5;
        table = open_table(ps, &o);
        must(ps, weft_pull_wait(table, ids, rows[0], 4, 0, NULL));
        must(ps, weft_push_wait(table, ids, ones, 4, 0, NULL));
        must(ps, weft_pull_wait(table, ids, rows[1], 4, 0, NULL));
        for (uint32_t e = 0; e < 4 * DIM; e++) {
            assert_true(fabsf(rows[0][e]) <= 0.5F && (rows[0][e] == 0) == (e % DIM == 0));
            assert_true(rows[1][e] < rows[0][e]); /* a step against the gradient */
        }
    }
    o = adding("asp");
    o.number = 6;
    o.length = 3 * DIM - 1; /* rows 0, 1, 2 */
    table = open_table(ps, &o);
    must(ps, weft_push_wait(table, ids, ones, 3, 0, NULL));
    must(ps, weft_pull_wait(table, ids, rows[0], 3, 0, NULL));
    assert_true(rows[0][0] == 1.0F && rows[0][3 * DIM - 2] == 1.0F);
    must_fail(ps, weft_push_wait(table, ids, ones, 4, 0, NULL), WEFT_INVALID, "dense table");
    o = adding("asp");
    o.number = 7;
    o.not_finite = "drop";
    o.admission = "counter";
    o.admission_count = 2;
    o.admission_cells = 64;
    o.eviction = "lru";
    o.rows_max = 2;
    table = open_table(ps, &o);
    ones[0] = NAN;
    must(ps, weft_push_wait(table, ids, ones, 1, 0, NULL)); /* left out */
    ones[0] = 1.0F;
    must(ps, weft_push_wait(table, ids + 1, ones, 1, 0, NULL));
    must(ps, weft_pull_wait(table, ids + 1, rows[0], 1, 0, NULL));
    assert_true(rows[0][0] == 0.0F); /* counted, no row yet */
    must(ps, weft_push_wait(table, ids + 1, ones, 1, 0, NULL));
    must(ps, weft_pull_wait(table, ids + 1, rows[0], 1, 0, NULL));
    assert_true(rows[0][0] == 1.0F);
    weft_ps_close(ps);
    site_stop(&site);
}

static void configs_are_checked(void **state)
{
    (void)state;
    struct weft_ps *ps = NULL;
    struct weft_ps_config good = config_for("127.0.0.1:1"), c;
    must_fail(NULL, weft_ps_connect(NULL, &ps), WEFT_INVALID, "config");
    c = (struct weft_ps_config){0};
    must_fail(NULL, weft_ps_connect(&c, &ps), WEFT_INVALID, "weft_ps_config_init first");
    static const char *const bad[] = {
        "",        "127.0.0.1",    "127.0.0.1:",   "127.0.0.1:0",     ":7700", "127.0.0.1:7x",
        "a:65536", "127.0.0.1:1,", ",127.0.0.1:1", "127.0.0.1:123456"};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(bad); i++) {
        c = good, c.servers = bad[i];
        must_fail(NULL, weft_ps_connect(&c, &ps), WEFT_INVALID, "is not host:port");
    }
    c = good, c.servers = "no.such.name:7700";
    must_fail(NULL, weft_ps_connect(&c, &ps), WEFT_INVALID, "no.such.name");
    c = good, c.servers = "10.1.2.3:7700";
    must_fail(NULL, weft_ps_connect(&c, &ps), WEFT_UNSUPPORTED, "10.1.2.3 is beyond loopback");
    c = good, c.worker = 2, c.workers = 2;
    must_fail(NULL, weft_ps_connect(&c, &ps), WEFT_INVALID, "ranks go from 0");
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
    must_fail(NULL, weft_ps_connect(&c, &ps), WEFT_INVALID, "lower one of them");
    assert_null(ps);
}

/* What a program leaves out comes from the environment. */
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
    must_fail(NULL, weft_ps_connect(&config, &ps), WEFT_NOTFOUND, "nobody says which one");
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

/* ---- what is lost ---------------------------------------------------------------------------- */

/* Rows that the push before named as missed are those that did not change. */
static void lost_pushes_are_named(struct weft_ps *ps, struct weft_ps_table *table,
                                  const struct weft_result *result,
                                  const uint64_t *ids, const float *rows, size_t n)
{
    uint64_t *bits = calloc(n / 64 + 2, sizeof(*bits));
    float *got = calloc(n * DIM, sizeof(*got));
    bits[n / 64 + 1] = UINT64_MAX; /* beyond what it needs: cleared */
    assert_int_equal(weft_result_missed(ps, bits, n / 64 + 2), n);
    assert_int_equal(bits[n / 64 + 1], 0);
    assert_int_equal(weft_bits_count(bits, n), result->rows_missed);
    must(ps, weft_pull_wait(table, ids, got, n, 0, NULL));
    for (size_t i = 0; i < n; i++) {
        float times = weft_bits_test(bits, i) ? 1 : 2;
        assert_true(got[i * DIM] == times * rows[i * DIM]);
    }
    size_t first, count;
    assert_false(weft_result_gap(ps, 0, &first, &count)); /* of the pull, which had bound 0 */
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
    /* Bound 0: all of it, whatever the network does. */
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
    assert_int_equal(counters.missed_now, kept);
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
    must_fail(a, weft_wait(a, op, 50 * ms_ns, NULL), WEFT_TIMEOUT, "slowest worker");
    must_fail(a, weft_test(a, op, NULL), WEFT_AGAIN, "under way");
    must(a, weft_ps_flush(a, 120000 * ms_ns)); /* a pull that waits is not in its way */
    must(b, weft_push_wait(table_b, &id, one, 1, 0, NULL));
    must(b, weft_clock(table_b));
    must(b, weft_ps_flush(b, 120000 * ms_ns));
    must(a, weft_wait(a, op, 120000 * ms_ns, NULL));
    assert_true(got[0] == 2.0F); /* the mean */
    weft_ps_close(a);
    weft_ps_close(b);
    site_stop(&site);
}

/* A program that is started again goes on where all its workers were. */
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

/* ---- who is there ---------------------------------------------------------------------------- */

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
    config.peer_timeout_ns = WEFT_NS_PER_S; /* it gives up once, and tries again */
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
    must_fail(NULL, weft_ps_connect(&config, &ps), WEFT_TIMEOUT, "start `weft server` there");
    says(weft_ps_error(NULL), "(shard 0 of 1)");
    config.connect_timeout_ns = 0; /* one look */
    must_fail(NULL, weft_ps_connect(&config, &ps), WEFT_TIMEOUT, "start `weft server` there");
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
    must_fail(NULL, weft_ps_connect(&config, &ps), WEFT_INVALID, "in the list of servers");
    site_stop(&site);
    site_start(&site, 1, (struct ps_server_options){.workers = 1, .name = 77});
    config.servers = site.list;
    must_fail(NULL, weft_ps_connect(&config, &ps), WEFT_INVALID, "is no `weft server`");
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
    config.connect_timeout_ns = 1000 * ms_ns; /* of opening a table, too */
    struct weft_ps *ps = NULL;
    while (weft_ps_connect(&config, &ps) == WEFT_TIMEOUT) { /* a machine that stood still for it */
    }
    assert_non_null(ps);
    struct weft_ps_table *table = NULL;
    struct weft_table_options options = adding("asp");
    must_fail(ps, weft_table_open(ps, &options, &table), WEFT_TIMEOUT,
              "--workers above the highest rank");
    must_fail(ps, weft_table_open(ps, &options, &table), WEFT_TIMEOUT, "worker 1");
    options.dim = 2;
    must_fail(ps, weft_table_open(ps, &options, &table), WEFT_EXISTS, "table 0");
    weft_ps_close(ps);
    site_stop(&site);
}

/* Two processes with one rank: the older one is told, and does not come back. */
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
    must_fail(older, weft_push_wait(table, &id, one, 1, 0, NULL), WEFT_PEER,
              "another process has the rank of worker 0");
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

/* Shard 1 is not there yet when another process takes the rank at shard 0. */
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
    says(early.words, "another process has the rank of worker 0");
    site.count = 1;
    site_stop(&site);
}

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
    says(weft_ps_error(NULL), "another process");
    weft_ps_close(ps);
    assert_int_equal(stat(spool, &about), 0);
    assert_int_equal(about.st_size % WEFT_RECORD_UNIT_BYTES, 0);
    assert_true(about.st_size >= (4 + RPCS * WEFT_RECORD_RPC_UNITS) * WEFT_RECORD_UNIT_BYTES);
    config.records = "/nowhere/r.db";
    assert_int_equal(weft_ps_connect(&config, &second), WEFT_IO);
    says(weft_ps_error(NULL), "/nowhere/r.db");
    site_stop(&site);
    assert_int_equal(unlink(spool), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* What the pull that was given up had borrowed is ours: the answer of the shard that lives, which
 * comes when the second worker ends its clock, must not be written there. */
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

/* A killed server says nothing: what waits for it ends within the time-outs, with its name. */
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
    /* The pull is at the servers and waits for the other worker, who never comes: only the question
     * whether they live can tell. */
    must(ps, weft_pull(table, ids, rows, N, 0, &op));
    must_fail(ps, weft_wait(ps, op, 300 * ms_ns, NULL), WEFT_TIMEOUT, "under way");
    test_server_go_deaf(&site.servers[1]);
    must(ps, weft_push(table, ids, rows, N, 0, &push)); /* for the next clock: it cannot arrive */
    must_fail(ps, weft_ps_flush(ps, WEFT_NEVER), WEFT_PEER, "is gone");
    must_fail(ps, weft_wait(ps, op, WEFT_NEVER, NULL), WEFT_PEER,
              "the server of shard 1 at 127.0.0.1:");
    must_fail(ps, weft_test(ps, op, NULL), WEFT_INVALID, "no such operation");
    must_fail(ps, weft_test(ps, push, NULL), WEFT_PEER, "is gone");
    check_given_up(&site, ps, rows);
    must_fail(ps, weft_clock(table), WEFT_PEER, "shard 1");
    must_fail(ps, weft_push_wait(table, ids, rows, N, 0, NULL), WEFT_PEER, "is gone");
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
    must_fail(ps, weft_pull_wait(table, &id, row, 1, 0, NULL), WEFT_PEER, "is gone");
    weft_ps_close(ps);
}

/* Longer than a server's patience: this one says that it will be deaf; nothing is outstanding. */
/* A server that knows another clock of this worker: whatever waits for clocks ends, and says so. */
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
    must_fail(ps, weft_pull_wait(table, &id, row, 1, 0, NULL), WEFT_PEER, "refused clock 2");
    must_fail(ps, weft_ps_flush(ps, WEFT_NEVER), WEFT_PEER, "start the job anew");
    must_fail(ps, weft_clock(table), WEFT_PEER, "of worker 0 in table 0");
    weft_ps_close(ps);
    site_stop(&site);
}

/* Checkpoints are made by `weft server` (tests/python/test_ps.py): here is one that makes none. */
static void a_checkpoint_is_asked_for(void **state)
{
    (void)state;
    struct site site;
    site_start(&site, 2, (struct ps_server_options){.workers = 1});
    struct weft_ps_config config = config_for(site.list);
    struct weft_ps *ps = connect_with(&config);
    uint64_t op;
    must_fail(ps, weft_ps_checkpoint(ps, &op), WEFT_INVALID, "open one with weft_table_open");
    struct weft_table_options options = adding("asp");
    (void)open_table(ps, &options);
    must_fail(ps, weft_ps_checkpoint(ps, NULL), WEFT_INVALID, "op_p is NULL");
    must(ps, weft_ps_checkpoint(ps, &op));
    must_fail(ps, weft_wait(ps, op, WEFT_NEVER, NULL), WEFT_DATA, "a checkpoint: refused by shard");
    says(weft_ps_error(ps), "--checkpoint DIR");
    weft_ps_close(ps);
    site_stop(&site);
}

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
        cmocka_unit_test(pushes_add_and_pulls_read),
        cmocka_unit_test(a_progress_thread),
        cmocka_unit_test(over_tcp),
        cmocka_unit_test(what_is_begun_leaves_before_it_is_waited_for),
        cmocka_unit_test(long_lists_are_cut),
        cmocka_unit_test(operations_have_places),
        cmocka_unit_test(nothing_is_allowed_and_nonsense_is_not),
        cmocka_unit_test(a_vector_needs_no_ids),
        cmocka_unit_test(a_piece_must_be_there),
        cmocka_unit_test(several_tables_in_one_operation),
        cmocka_unit_test(means_are_over_workers_or_contributors),
        cmocka_unit_test(values_may_be_half_as_long),
        cmocka_unit_test(lists_go_as_a_whole_or_not_at_all),
        cmocka_unit_test(gradients_must_be_finite),
        cmocka_unit_test(a_full_table_says_so),
        cmocka_unit_test(tables_must_be_meant_alike),
        cmocka_unit_test(options_are_checked_here),
        cmocka_unit_test(options_reach_the_server),
        cmocka_unit_test(configs_are_checked),
        cmocka_unit_test(the_environment_fills_in),
        cmocka_unit_test(losses_are_counted_and_old_values_stay),
        cmocka_unit_test(a_pull_waits_for_the_slowest_worker),
        cmocka_unit_test(a_second_life_joins_the_table),
        cmocka_unit_test(the_server_may_come_later),
        cmocka_unit_test(nobody_there_is_said_in_time),
        cmocka_unit_test(the_order_of_shards_is_checked),
        cmocka_unit_test(a_rank_beyond_the_servers_workers),
        cmocka_unit_test(a_rank_is_for_one_without_reconnect),
        cmocka_unit_test(a_rank_is_for_one_with_reconnect),
        cmocka_unit_test(a_rank_is_taken_while_connecting),
        cmocka_unit_test(its_rpcs_are_recorded),
        cmocka_unit_test(a_dead_server_is_noticed),
        cmocka_unit_test(a_server_that_ends_says_so),
        cmocka_unit_test(a_refused_clock_is_said),
        cmocka_unit_test(a_checkpoint_is_asked_for),
        cmocka_unit_test(idle_is_allowed_any_time),
    };
    return cmocka_run_group_tests_name("api_ps", tests, NULL, NULL);
}
