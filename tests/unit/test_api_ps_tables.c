/* The tables of <weft/ps.h> against real shards in threads: vectors, several tables, 16-bit values,
 * refused tables and refused values. */
#include "api_ps_rig.h"

#include <math.h>
#include <stdlib.h>

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
    config.rows_max = 100; /* the vector is transferred in three parts */
    struct weft_ps *ps = connect_with(&config);
    struct weft_table_options options = vector(0);
    struct weft_ps_table *table = open_table(ps, &options);
    struct weft_result result = {.size = sizeof(result)};
    uint64_t op = 0;
    count_up(values, LENGTH, 1);
    got[LENGTH] = -7; /* beyond the end: unused */
    must(ps, weft_push_range_wait(table, 0, values, ROWS, 0, &result));
    assert_int_equal(result.elements_delivered, ROWS);
    must(ps, weft_pull_range_wait(table, 0, got, ROWS, 0, &result));
    assert_int_equal(result.rows_missed, 0);
    assert_memory_equal(got, values, sizeof(values));
    assert_true(got[LENGTH] == -7);
    /* A slice in the middle, and the short row at the end. */
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
              "table 0 has 258 rows");
    must_fail(ps, weft_pull_range_wait(table, UINT64_MAX, values, 2, 0, NULL), WEFT_INVALID,
              "table 0 has 258 rows");
    must_fail(ps, weft_push_range(table, 0, NULL, 1, 0, &op), WEFT_INVALID, "rows is NULL");
    must_fail(ps, weft_pull_range(other, 0, values, 1, 0, &op), WEFT_INVALID, "clicks");
    must_fail(ps, weft_push(table, NULL, values, 1, 0, &op), WEFT_INVALID, "ids is NULL");
    id = ROWS;
    must_fail(ps, weft_push(table, &id, values, 1, 0, &op), WEFT_INVALID, "id");
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
        /* one table twice: both lists are applied */
        {.table = sparse, .ids = ids, .rows = rows, .n = 10},
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

/* One worker of a table with two: the mean over workers halves its pushes; the mean over
 * contributors and the sum do not. */
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

/* Gradients and weights as bf16: rounding errors are kept, and a push of zeros sends them. */
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
    assert_int_equal(weft_table_residuals(table, &kept_id, kept, 1), 1);
    for (uint32_t d = 0; d < DIM; d++) {
        assert_true(fmodf(got[d], 4) == 0 && got[d] + kept[d] == ones[d]);
    }
    must(ps, weft_push_wait(table, &id, zeros, 1, 0, NULL));
    must(ps, weft_pull_wait(table, &id, got, 1, 0, NULL));
    assert_memory_equal(got, ones, sizeof(got));
    assert_int_equal(weft_table_residuals(table, &kept_id, kept, 1), 0);
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
    assert_int_equal(weft_table_residuals(table, NULL, NULL, 0), 0);
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
    assert_int_equal(weft_table_residuals(table, &kept_id, kept, 1), 1);
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
    must_fail(ps, weft_push_lists(ps, lists, 2, 0, &op), WEFT_INVALID, "table 0");
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

/* ---- refusals -------------------------------------------------------------------------------- */

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
    says(weft_ps_error(ps), "gradient");
    assert_int_equal(result.chunks_refused, 1);
    row[1] = 2;
    must(ps, weft_push_wait(table, &id, row, 1, 0, NULL)); /* the worker continues */
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
    must_fail(ps, weft_push_wait(table, ids, rows, N, 0, NULL), WEFT_DATA, "push to table 0");
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
    must_fail(a, weft_table_open(a, &options, &table), WEFT_EXISTS, "table 0");
    options.dim = DIM + 1;
    must_fail(b, weft_table_open(b, &options, &table), WEFT_DATA, "opening table 0");
    options.dim = DIM;
    options.optimizer = "adagrad";
    options.accumulator = 0.1F;
    must_fail(b, weft_table_open(b, &options, &table), WEFT_DATA, "opening table 0");
    options = adding("bsp");
    options.number = 1;
    options.dim = 100; /* the shard's limit is 64 */
    must_fail(b, weft_table_open(b, &options, &table), WEFT_DATA, "opening table 1");
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
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "size");
    o = good, o.optimizer = "newton";
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "\"sgd\", \"");
    o = good, o.optimizer = NULL;
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "(NULL)");
    static const char *const bad[] = {
        "", "SSP:1", "ssp", "ssp:", "ssp:-1", "ssp:1x", "ssp:99999999999999999999", "bspx"};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(bad); i++) {
        o = good, o.consistency = bad[i];
        must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "consistency");
        says(weft_ps_error(ps), bad[i]);
    }
    o = good, o.dim = 0;
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "dim is 0");
    o = good, o.dim = 65;
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "dim is 65");
    o = good, o.number = 4; /* only 4 exist */
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "number is 4");
    o = good, o.workers = 65536;
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "workers is 65536");
    o = good, o.learning_rate = INFINITY;
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "learning_rate");
    o = good, o.epsilon = 1; /* SGD has no epsilon */
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "\"sgd\"");
    o = good, o.admission = "some";
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "\"all\", \"counter\", \"bloom\"");
    o = good, o.eviction = "fifo";
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "\"lru\", \"l2\"");
    o = good, o.not_finite = "";
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "not_finite is \"\"");
    o = good, o.eviction = "ttl"; /* ttl requires a number of clocks */
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "docs/TABLES.md");
    o = good, o.clip = NAN;
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_INVALID, "clip");
    o = good, o.reserved = 1;
    must_fail(ps, weft_table_open(ps, &o, &table), WEFT_UNSUPPORTED, "reserved");
    o = good, o.consistency = "ssp:3";
    (void)open_table(ps, &o);
    weft_ps_close(ps);
    site_stop(&site);
}

/* Options are converted to the specification: each option has an effect. */
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
    must(ps, weft_push_wait(table, ids, ones, 1, 0, NULL)); /* not admitted: dropped */
    ones[0] = 1.0F;
    must(ps, weft_push_wait(table, ids + 1, ones, 1, 0, NULL));
    must(ps, weft_pull_wait(table, ids + 1, rows[0], 1, 0, NULL));
    assert_true(rows[0][0] == 0.0F); /* counted, but no row yet */
    must(ps, weft_push_wait(table, ids + 1, ones, 1, 0, NULL));
    must(ps, weft_pull_wait(table, ids + 1, rows[0], 1, 0, NULL));
    assert_true(rows[0][0] == 1.0F);
    weft_ps_close(ps);
    site_stop(&site);
}

int main(void)
{
    unsetenv("WEFT_WORKERS");
    unsetenv("WEFT_RANK");
    const struct CMUnitTest tests[] = {
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
    };
    return cmocka_run_group_tests_name("api_ps_tables", tests, NULL, NULL);
}
