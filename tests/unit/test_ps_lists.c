/* Operations over several tables, vectors of dense tables, and rows in short packets: workers and
 * shards compared with arrays. */
#include "base/init.h"
#include "ps_cluster.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { TABLES = 3, LENGTH = 1005, DIM = 64, ROWS = (LENGTH + DIM - 1) / DIM };

static struct weft_table_spec sparse_spec(uint16_t table, uint32_t dim, uint8_t mode)
{
    return (struct weft_table_spec){
        .table = table, .dim = dim, .mode = mode, .workers = 1, .learning_rate = 1};
}

static struct weft_table_spec dense_spec(uint16_t table, uint8_t mode, uint16_t workers)
{
    struct weft_table_spec spec = sparse_spec(table, DIM, mode);
    spec.kind = WEFT_TABLE_DENSE;
    spec.length = LENGTH;
    spec.workers = workers;
    return spec;
}

static void start(struct cluster *c, uint32_t shards, uint32_t workers, uint64_t seed)
{
    struct cluster_config config = cluster_config(shards, workers);
    config.shard.tables_max = config.client.tables_max = TABLES;
    config.shard.dim_max = config.client.dim_max = 1024;
    config.client.rows_per_rpc_max = 50;
    config.shard.rows_per_rpc_max = 50;
    cluster_start(c, &config, workers, seed);
}

/* ---- several tables -------------------------------------------------------------------------- */

enum { IDS = 40 };

/* Expected contents of the tables. */
struct truth {
    float small[IDS][2];
    float wide[IDS][300];
    float *vector; /* (LENGTH,): the memory after it is not accessible */
};

static float draw(struct weft_prng *prng)
{
    return (float)weft_prng_below(prng, 41) - 20;
}

static void push_random(struct cluster *c, struct weft_prng *prng, struct truth *truth)
{
    uint64_t ids[2][100];
    static float small[100][2], wide[100][300];
    uint32_t first = (uint32_t)weft_prng_below(prng, ROWS);
    uint32_t rows = 1 + (uint32_t)weft_prng_below(prng, ROWS - first);
    size_t floats = weft_min_u64((uint64_t)rows * DIM, LENGTH - first * DIM);
    float *piece = malloc(floats * sizeof(float));
    struct weft_ps_list lists[4] = {
        {.table = 0, .n = (uint32_t)weft_prng_below(prng, 100), .ids = ids[0], .values = small[0]},
        {.table = 1, .n = (uint32_t)weft_prng_below(prng, 20), .ids = ids[1], .values = wide[0]},
        {.table = 2, .n = rows, .first = first, .values = piece},
        {.table = 0, .n = 1, .ids = ids[0], .values = small[0]}, /* the same table again */
    };
    for (uint32_t i = 0; i < lists[0].n || i == 0; i++) {
        ids[0][i] = weft_prng_below(prng, IDS);
        for (int d = 0; d < 2; d++) {
            small[i][d] = draw(prng);
            truth->small[ids[0][i]][d] -= small[i][d] * (i == 0 && lists[0].n > 0 ? 2 : 1);
        }
    }
    for (uint32_t i = 0; i < lists[1].n; i++) {
        ids[1][i] = weft_prng_below(prng, IDS);
        for (int d = 0; d < 300; d++) {
            wide[i][d] = draw(prng);
            truth->wide[ids[1][i]][d] -= wide[i][d];
        }
    }
    for (size_t i = 0; i < floats; i++) {
        piece[i] = draw(prng);
        truth->vector[first * DIM + i] -= piece[i];
    }
    weft_ps_op op;
    assert_int_equal(weft_ps_push_lists(c->client[0], lists, 4, 0, c->net->now_ns, &op), WEFT_OK);
    free(piece); /* already copied by the push */
    struct weft_ps_result result = cluster_wait(c, 0, op);
    assert_int_equal(result.status, WEFT_OK);
    assert_int_equal(result.elements_delivered, lists[0].n + 2 * lists[1].n + rows + 1);
}

static void pull_all(struct cluster *c, const struct truth *truth)
{
    uint64_t ids[IDS];
    static float small[IDS][2], wide[IDS][300];
    float *vector = malloc(LENGTH * sizeof(float));
    for (uint64_t i = 0; i < IDS; i++) {
        ids[i] = i;
    }
    memset(vector, 0x7f, LENGTH * sizeof(float));
    const struct weft_ps_list lists[3] = {
        {.table = 1, .n = IDS, .ids = ids, .out = wide[0]},
        {.table = 2, .n = ROWS, .out = vector},
        {.table = 0, .n = IDS, .ids = ids, .out = small[0]},
    };
    weft_ps_op op;
    assert_int_equal(weft_ps_pull_lists(c->client[0], lists, 3, 0, c->net->now_ns, &op), WEFT_OK);
    assert_int_equal(cluster_wait(c, 0, op).status, WEFT_OK);
    assert_memory_equal(small, truth->small, sizeof(small));
    assert_memory_equal(wide, truth->wide, sizeof(wide));
    assert_memory_equal(vector, truth->vector, LENGTH * sizeof(float));
    free(vector);
}

static void tables_in_one_operation(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct weft_prng prng;
        weft_prng_init(&prng, seed);
        struct cluster c;
        start(&c, 1 + (uint32_t)seed % 3, 1, seed);
        struct weft_table_spec specs[TABLES] = {sparse_spec(0, 2, WEFT_TABLE_ASP),
                                                sparse_spec(1, 300, WEFT_TABLE_SSP),
                                                dense_spec(2, WEFT_TABLE_ASP, 1)};
        static struct truth truth;
        memset(&truth, 0, sizeof(truth));
        truth.vector = calloc(LENGTH, sizeof(float));
        for (int t = 0; t < TABLES; t++) {
            cluster_open(&c, &specs[t]);
        }
        for (int round = 0; round < 8; round++) {
            push_random(&c, &prng, &truth);
            pull_all(&c, &truth);
        }
        free(truth.vector);
        cluster_stop(&c);
    }
}

static void lists_are_checked_together(void **state)
{
    (void)state;
    struct cluster c;
    start(&c, 2, 1, 1);
    struct weft_table_spec spec = sparse_spec(0, 2, WEFT_TABLE_ASP);
    cluster_open(&c, &spec);
    spec = dense_spec(2, WEFT_TABLE_ASP, 1);
    cluster_open(&c, &spec);
    static float rows[1001 * DIM];
    const uint64_t ids[] = {ROWS, ROWS - 1};
    static uint64_t zeros[1001];
    weft_ps_op op;
#define PUSH(second)                                                                               \
    weft_ps_push_lists(                                                                            \
        c.client[0],                                                                               \
        (const struct weft_ps_list[]){{.table = 0, .n = 1, .ids = zeros, .values = rows}, second}, \
        2, 0, 0, &op)
#define LIST(...) ((struct weft_ps_list){.values = rows, __VA_ARGS__})
    assert_int_equal(PUSH(LIST(.table = 1, .n = 1, .ids = zeros)), WEFT_STATE);
    assert_int_equal(PUSH(LIST(.table = 0, .n = 1)), WEFT_INVALID); /* sparse, no ids */
    assert_int_equal(PUSH(LIST(.table = 2, .n = 1, .ids = ids)), WEFT_INVALID);
    assert_int_equal(PUSH(LIST(.table = 2, .n = ROWS + 1)), WEFT_INVALID);
    assert_int_equal(PUSH(LIST(.table = 2, .n = 1, .first = ROWS)), WEFT_INVALID);
    assert_int_equal(PUSH(LIST(.table = 2, .n = 1, .first = UINT64_MAX)), WEFT_INVALID);
    assert_int_equal(PUSH(LIST(.table = 0, .n = 1000, .ids = zeros)), WEFT_INVALID); /* 1,001 */
    assert_false(weft_ps_client_busy(c.client[0])); /* no operation has begun */
    static struct weft_ps_list many[5];
    assert_int_equal(weft_ps_push_lists(c.client[0], many, 5, 0, 0, &op), WEFT_INVALID);
    assert_int_equal(PUSH(LIST(.table = 2, .n = 1, .ids = ids + 1)), WEFT_OK);
    assert_int_equal(cluster_wait(&c, 0, op).rpcs, 2);
    assert_int_equal(PUSH(LIST(.table = 0, .n = 999, .ids = zeros)), WEFT_OK);
    assert_int_equal(cluster_wait(&c, 0, op).status, WEFT_OK);
    assert_int_equal(weft_ps_push_lists(c.client[0], NULL, 0, 0, 0, &op), WEFT_OK);
    assert_int_equal(cluster_wait(&c, 0, op).rpcs, 0);
    cluster_stop(&c);
}

/* ---- means ----------------------------------------------------------------------------------- */

/* Two workers push all rows, and chunks are lost: each row changes by the mean of the received
 * gradients, and these match the reports to the workers. ids: NULL for a dense table. */
static void mean_under_loss(const struct weft_table_spec *spec, const uint64_t *ids)
{
    uint32_t seen[4] = {0};
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct cluster c;
        start(&c, 2, 2, seed);
        cluster_open(&c, spec);
        c.net->loss_ppm = 500000;
        uint64_t delivered = 0;
        for (uint32_t w = 0; w < 2; w++) {
            float vector[ROWS * DIM];
            for (int i = 0; i < ROWS * DIM; i++) {
                vector[i] = w == 0 ? -3 : -5;
            }
            const struct weft_ps_list list = {.table = 2, .ids = ids, .n = ROWS, .values = vector};
            weft_ps_op op;
            assert_int_equal(weft_ps_push_lists(c.client[w], &list, 1, 600000, 0, &op), WEFT_OK);
            struct weft_ps_result result = cluster_wait(&c, w, op);
            assert_int_equal(result.status, WEFT_OK);
            delivered += result.elements_delivered;
            cluster_clock(&c, w, 2);
        }
        c.net->loss_ppm = 0;
        float out[ROWS * DIM];
        const struct weft_ps_list all = {.table = 2, .ids = ids, .n = ROWS, .out = out};
        weft_ps_op op;
        assert_int_equal(weft_ps_pull_lists(c.client[0], &all, 1, 0, 0, &op), WEFT_OK);
        assert_int_equal(cluster_wait(&c, 0, op).status, WEFT_OK);
        for (int i = 0; i < LENGTH; i++) {
            float v = out[i - i % DIM];
            assert_true(out[i] == v && (v == 0 || v == 3 || v == 4 || v == 5));
            if (i % DIM == 0) {
                delivered -= v == 0 ? 0 : v == 4 ? 2 : 1;
                seen[v == 0 ? 0 : (int)v - 2]++;
            }
        }
        assert_int_equal(delivered, 0);
        cluster_stop(&c);
    }
    assert_true(seen[0] > 0 && seen[1] > 0 && seen[2] > 0 && seen[3] > 0);
}

static void dense_mean_under_loss(void **state)
{
    (void)state;
    struct weft_table_spec spec = dense_spec(2, WEFT_TABLE_BSP, 2);
    mean_under_loss(&spec, NULL);
}

static void sparse_mean_under_loss(void **state)
{
    (void)state;
    uint64_t ids[ROWS];
    struct weft_table_spec spec = sparse_spec(2, DIM, WEFT_TABLE_BSP);
    spec.workers = 2;
    spec.average = WEFT_AVERAGE_CONTRIBUTORS;
    for (uint32_t i = 0; i < ROWS; i++) {
        ids[i] = 1000 + 7 * i;
    }
    mean_under_loss(&spec, ids);
}

/* ---- short packets --------------------------------------------------------------------------- */

/* 192 bytes per chunk, as with packets of 256 bytes: rows of any length are split to fit. */
static void rows_in_short_packets(void **state)
{
    (void)state;
    static const uint32_t dims[] = {1, 33, 46, 47, 300, 1024};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(dims); i++) {
        uint32_t dim = dims[i];
        struct cluster c;
        start(&c, 2, 1, i);
        c.net->packet_bytes = 192;
        struct weft_table_spec spec = sparse_spec(0, dim, WEFT_TABLE_ASP);
        spec.init_scale = 1;
        cluster_open(&c, &spec);
        const struct weft_table *table = weft_shard_table(c.shard[0], 0);
        assert_int_equal(table->spec.block_floats, dim <= 46 ? 0 : 32);
        uint64_t ids[30];
        float *rows = malloc(30 * dim * sizeof(float)), *out = malloc(30 * dim * sizeof(float));
        for (uint32_t k = 0; k < 30 * dim; k++) {
            rows[k] = (float)k;
            ids[k / dim] = k / dim * 7;
        }
        weft_ps_op op;
        assert_int_equal(weft_ps_push(c.client[0], 0, ids, rows, 30, 0, 0, &op), WEFT_OK);
        assert_int_equal(cluster_wait(&c, 0, op).status, WEFT_OK);
        assert_int_equal(weft_ps_pull(c.client[0], 0, ids, out, 30, 0, 0, &op), WEFT_OK);
        assert_int_equal(cluster_wait(&c, 0, op).status, WEFT_OK);
        for (uint32_t k = 0; k < 30 * dim; k++) {
            assert_true(out[k] == weft_init_value(0, ids[k / dim], k % dim, 1) - (float)k);
        }
        free(rows);
        free(out);
        cluster_stop(&c);
    }
}

/* A block length set by the caller is used; if blocks do not fit, that is an error. */
static void blocks_as_asked(void **state)
{
    (void)state;
    struct cluster c;
    start(&c, 1, 1, 1);
    c.net->packet_bytes = 192;
    struct weft_table_spec spec = sparse_spec(0, 100, WEFT_TABLE_ASP);
    spec.block_floats = 64;
    cluster_open(&c, &spec);
    const uint64_t id = 1;
    float row[100] = {0};
    weft_ps_op op;
    assert_int_equal(weft_ps_push(c.client[0], 0, &id, row, 1, 0, 0, &op), WEFT_UNSUPPORTED);
    spec.table = 1;
    spec.block_floats = 20;
    cluster_open(&c, &spec);
    assert_int_equal(weft_ps_push(c.client[0], 1, &id, row, 1, 0, 0, &op), WEFT_OK);
    assert_int_equal(cluster_wait(&c, 0, op).elements_delivered, 5);
    cluster_stop(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_in_one_operation), cmocka_unit_test(lists_are_checked_together),
        cmocka_unit_test(sparse_mean_under_loss),  cmocka_unit_test(dense_mean_under_loss),
        cmocka_unit_test(rows_in_short_packets),   cmocka_unit_test(blocks_as_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
