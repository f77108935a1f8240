/* What a worker knows of loss: which rows of an operation did not arrive whole. Values are whole
 * numbers, so that sums are exact. */
#include "ps_cluster.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { N = 600, TABLES = 2 };

static const uint32_t dims[] = {1, 8, 300};

static struct weft_table_spec adding(uint16_t table, uint32_t dim, uint8_t mode, uint16_t workers)
{
    return (struct weft_table_spec){
        .table = table, .dim = dim, .mode = mode, .workers = workers, .learning_rate = -1};
}

static struct cluster_config config_of(uint32_t shards, uint32_t workers, uint32_t dim)
{
    struct cluster_config config = cluster_config(shards, workers);
    config.shard.dim_max = config.client.dim_max = dim;
    return config;
}

static void ids_fill(uint64_t *ids, uint32_t n, uint32_t salt)
{
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = weft_mix64(i + (uint64_t)salt * 100000);
    }
}

static void values_fill(float *rows, size_t n, float value)
{
    for (size_t i = 0; i < n; i++) {
        rows[i] = value;
    }
}

static bool row_is(const float *row, uint32_t dim, float value)
{
    for (uint32_t d = 0; d < dim; d++) {
        if (row[d] != value) {
            return false;
        }
    }
    return true;
}

static struct weft_ps_result finish(struct cluster *c, weft_ps_op op, uint64_t *missed_p)
{
    struct weft_ps_result result;
    while (!weft_ps_op_done(c->client[0], op, &result)) {
        WEFT_ASSERT(cluster_step(c) || weft_ps_op_done(c->client[0], op, NULL));
    }
    uint32_t rows;
    const uint64_t *bits = weft_ps_op_missed(c->client[0], op, &rows);
    memset(missed_p, 0, WEFT_BITS_WORDS(TABLES * N) * sizeof(*missed_p));
    if (bits != NULL) {
        memcpy(missed_p, bits, WEFT_BITS_WORDS(rows) * sizeof(*bits));
    }
    assert_int_equal(weft_bits_count(missed_p, rows), result.rows_missed);
    weft_ps_op_release(c->client[0], op);
    return result;
}

/* ---- which rows ------------------------------------------------------------------------------ */

struct two_tables {
    uint64_t ids[TABLES][N];
    float *rows[TABLES];
};

static void missed_check(const struct two_tables *t, const uint32_t counts[TABLES], uint32_t dim,
                         const uint64_t *missed, float whole)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < TABLES; i++) {
        for (uint32_t r = 0; r < counts[i]; r++, at++) {
            bool is_whole = row_is(t->rows[i] + (size_t)r * dim, dim, whole);
            assert_int_equal(weft_bits_test(missed, at), !is_whole);
        }
    }
}

/* Two tables in one operation; what arrives is 1, what does not stays 0, and the bits say which. */
static void missed_rows_run(uint32_t shards, uint32_t dim, uint64_t seed)
{
    struct cluster_config config = config_of(shards, 1, dim);
    struct cluster c;
    cluster_start(&c, &config, 1, seed);
    struct two_tables *t = calloc(1, sizeof(*t));
    const uint32_t counts[TABLES] = {N, N / 2 - 7};
    uint64_t missed[WEFT_BITS_WORDS(TABLES * N)];
    struct weft_ps_push_list pushes[TABLES];
    struct weft_ps_pull_list pulls[TABLES];
    for (uint16_t i = 0; i < TABLES; i++) {
        struct weft_table_spec spec = adding(i, dim, WEFT_TABLE_ASP, 1);
        cluster_open(&c, &spec);
        ids_fill(t->ids[i], N, i);
        t->rows[i] = calloc((size_t)N * dim, sizeof(float));
        values_fill(t->rows[i], (size_t)N * dim, 1);
        pushes[i] = (struct weft_ps_push_list){
            .table = i, .n = counts[i], .ids = t->ids[i], .rows = t->rows[i]};
        pulls[i] = (struct weft_ps_pull_list){
            .table = i, .n = counts[i], .ids = t->ids[i], .rows_out = t->rows[i]};
    }
    weft_ps_op op;
    uint64_t ignored[WEFT_BITS_WORDS(TABLES * N)];
    uint32_t short_ones = 0;
    for (uint32_t round = 1; round <= 4; round++) {
        c.net->loss_ppm = round < 4 ? 400000 : 0;
        assert_int_equal(
            weft_ps_push_lists(c.client[0], pushes, TABLES, 500000, c.net->now_ns, &op), WEFT_OK);
        struct weft_ps_result pushed = finish(&c, op, missed);
        assert_int_equal(pushed.rows_missed > 0, round < 4 && pushed.rpcs_short > 0);
        short_ones += pushed.rpcs_short;
        c.net->loss_ppm = 0;
        float *before[TABLES];
        for (uint32_t i = 0; i < TABLES; i++) {
            before[i] = t->rows[i];
            t->rows[i] = calloc((size_t)N * dim, sizeof(float));
            pulls[i].rows_out = t->rows[i];
        }
        assert_int_equal(weft_ps_pull_lists(c.client[0], pulls, TABLES, 0, c.net->now_ns, &op),
                         WEFT_OK);
        assert_int_equal(finish(&c, op, ignored).rows_missed, 0);
        /* What the tables have is taken out again, so that each round begins at 0. */
        missed_check(t, counts, dim, missed, 1);
        for (uint32_t i = 0; i < TABLES; i++) {
            for (size_t k = 0; k < (size_t)counts[i] * dim; k++) {
                t->rows[i][k] = -t->rows[i][k];
            }
            pushes[i].rows = t->rows[i];
        }
        assert_int_equal(weft_ps_push_lists(c.client[0], pushes, TABLES, 0, c.net->now_ns, &op),
                         WEFT_OK);
        assert_int_equal(finish(&c, op, ignored).rows_missed, 0);
        for (uint32_t i = 0; i < TABLES; i++) {
            free(t->rows[i]);
            t->rows[i] = before[i];
            pushes[i].rows = before[i];
        }
    }
    assert_true(short_ones > 0);
    /* The same of a pull: rows hold 5, the tables 0. */
    for (uint32_t i = 0; i < TABLES; i++) {
        values_fill(t->rows[i], (size_t)N * dim, 5);
        pulls[i].rows_out = t->rows[i];
    }
    c.net->loss_ppm = 1000000; /* as much as the bound allows */
    assert_int_equal(weft_ps_pull_lists(c.client[0], pulls, TABLES, 700000, c.net->now_ns, &op),
                     WEFT_OK);
    uint64_t lost = finish(&c, op, missed).rows_missed;
    assert_true(lost > 0 || dim == 1); /* so few floats are one chunk */
    missed_check(t, counts, dim, missed, 0);
    for (uint32_t i = 0; i < TABLES; i++) {
        free(t->rows[i]);
    }
    free(t);
    cluster_stop(&c);
}

static void missed_rows_are_named(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t shards = 1; shards <= 3; shards += 2) {
            missed_rows_run(shards, dims[i], 100 + i);
        }
    }
}

/* A whole request refused: all of it. A shard that died: what is not known to have arrived. */
static void failed_rows_are_named(void **state)
{
    (void)state;
    struct cluster_config config = config_of(2, 1, 1);
    config.shard.rows_per_rpc_max = 100; /* less than the client sends at a time */
    struct cluster c;
    cluster_start(&c, &config, 1, 5);
    struct weft_table_spec spec = adding(0, 1, WEFT_TABLE_ASP, 1);
    cluster_open(&c, &spec);
    static uint64_t ids[N];
    static float rows[N];
    uint64_t missed[WEFT_BITS_WORDS(TABLES * N)];
    ids_fill(ids, N, 0);
    values_fill(rows, N, 5);
    weft_ps_op op;
    assert_int_equal(weft_ps_pull(c.client[0], 0, ids, rows, N, 0, c.net->now_ns, &op), WEFT_OK);
    struct weft_ps_result result = finish(&c, op, missed);
    assert_int_equal(result.status, WEFT_DATA);
    assert_true(result.rows_missed > N / 2);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(weft_bits_test(missed, i), rows[i] == 5);
    }
    assert_int_equal(weft_ps_push(c.client[0], 0, ids, rows, N, 0, c.net->now_ns, &op), WEFT_OK);
    fake_kill(c.net, 1);
    cluster_poll(&c);
    result = finish(&c, op, missed);
    assert_int_equal(result.status, WEFT_PEER);
    for (uint32_t i = 0; i < N; i++) {
        bool of_dead = weft_table_spec_shard(&spec, ids[i], 2) == 1;
        assert_int_equal(weft_bits_test(missed, i), of_dead);
    }
    cluster_stop(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missed_rows_are_named),
        cmocka_unit_test(failed_rows_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
