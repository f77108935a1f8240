/* Values in messages: the rounding to bf16; tables whose pushes and replies use bf16, or whose
 * pushes use int8, in every layout.
 *
 * Gradients are whole numbers with so many bits that bf16 rounds them and float32 sums do not. The
 * tables' contents plus the workers' residuals then equal exactly what was pushed. With int8, whose
 * steps are arbitrary, they are equal except for the rounding of these sums. */
#include "ps/values.h"
#include "ps_cluster.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* ---- rounding -------------------------------------------------------------------------------- */

static float of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static void what_bf16_can_say_stays(void **state)
{
    (void)state;
    for (uint32_t half = 0; half <= UINT16_MAX; half++) {
        const float value = weft_bf16_load((uint16_t)half);
        if (isnan(value)) {
            assert_true(isnan(weft_bf16_load(weft_bf16_store(value))));
        } else {
            assert_int_equal(weft_bf16_store(value), half);
        }
    }
}

static void the_edges(void **state)
{
    (void)state;
    const struct {
        uint32_t bits;
        uint16_t half;
    } cases[] = {
        {0x3f800000, 0x3f80}, /* 1 */
        {0x3f808000, 0x3f80},
        {0x3f818000, 0x3f82}, /* ties: to even */
        {0x3f808001, 0x3f81},
        {0x3f817fff, 0x3f81}, /* next to a tie */
        {0xbf808001, 0xbf81},
        {0x80000000, 0x8000},
        {0x3fffffff, 0x4000}, /* rounded up to the next exponent */
        {0x00000001, 0x0000},
        {0x00008001, 0x0001},
        {0x007fffff, 0x0080}, /* subnormal */
        /* finite values stay finite */
        {0x7f7f0000, 0x7f7f},
        {0x7f7f8000, 0x7f7f},
        {0x7f7fffff, 0x7f7f},
        {0xff7fffff, 0xff7f},
        {0x7f800000, 0x7f80},
        {0xff800000, 0xff80},
        {0x7f800001, 0x7fc0},
        {0xff800001, 0xffc0},
        {0x7fc12345, 0x7fc1}, /* NaN stays NaN, quiet */
    };
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(cases); i++) {
        assert_int_equal(weft_bf16_store(of_bits(cases[i].bits)), cases[i].half);
    }
}

/* Rounded to nearest, as computed with doubles; the remainder is a float32. */
static void nearest_and_the_remainder(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 7);
    for (uint32_t i = 0; i < 2000000; i++) {
        const float value = of_bits((uint32_t)weft_prng_u64(&prng));
        if (!isfinite(value)) {
            continue;
        }
        const uint16_t half = weft_bf16_store(value);
        const float rounded = weft_bf16_load(half), rest = value - rounded;
        assert_true(isfinite(rounded));
        assert_true((double)rest == (double)value - (double)rounded);
        const float up = weft_bf16_load((uint16_t)(half + 1));
        const float down = weft_bf16_load((uint16_t)(half - 1));
        assert_true(!isfinite(up) || fabs((double)rest) <= fabs((double)value - (double)up));
        assert_true((half & 0x7fff) == 0 ||
                    fabs((double)rest) <= fabs((double)value - (double)down));
    }
}

static void many_at_a_time(void **state)
{
    (void)state;
    float from[100], back[100];
    uint8_t message[401];
    for (uint32_t i = 0; i < 100; i++) {
        from[i] = 1.0F / (float)(i + 3);
    }
    weft_values_store(WEFT_VALUE_FLOAT32, from, 100, message + 1);
    weft_values_load(WEFT_VALUE_FLOAT32, message + 1, 100, back);
    assert_memory_equal(back, from, sizeof(from));
    weft_values_store(WEFT_VALUE_BF16, from, 100, message + 1);
    weft_values_load(WEFT_VALUE_BF16, message + 1, 100, back);
    for (uint32_t i = 0; i < 100; i++) {
        assert_true(back[i] == weft_bf16_load(weft_bf16_store(from[i])));
        assert_int_equal(message[1 + 2 * i] | message[2 + 2 * i] << 8, weft_bf16_store(from[i]));
    }
}

/* ---- pushes and pulls ------------------------------------------------------------------------ */

enum { IDS = 600, N = 400 };

struct rig {
    struct cluster c;
    struct weft_prng prng;
    struct weft_table_spec spec;
    uint32_t dim, rows_max;
    void *memory;
    uint64_t ids[IDS];
    double *pushed; /* (IDS, dim) */
};

struct shape {
    uint32_t shards;
    uint32_t dim;
    uint16_t block_floats;
    uint16_t can;
    bool wide; /* ids beyond 32 bits */
    bool dense;
};

static const struct shape shapes[] = {
    {1, 1, 0, 0, false, false},
    {3, 1, 0, 0, true, false},
    {1, 2, 0, 0, true, false},
    {3, 3, 0, WEFT_RPC_CAN_PACK, false, false},
    {1, 1, 0, WEFT_RPC_CAN_ALL, false, false},
    {3, 16, 0, WEFT_RPC_CAN_ALL, true, false},
    {1, 60, 17, WEFT_RPC_CAN_ALL, false, false},
    {3, 300, 0, 0, true, false},
    {3, 5, 0, WEFT_RPC_CAN_ALL, false, true},
    {1, 40, 9, 0, false, true},
};

static const uint8_t types[] = {WEFT_VALUE_BF16, WEFT_VALUE_INT8};

static void rig_start(struct rig *r, const struct shape *shape, uint8_t type, uint32_t rows_max,
                      uint64_t seed)
{
    struct cluster_config config = cluster_config(shape->shards, 1);
    *r = (struct rig){.dim = shape->dim, .rows_max = rows_max};
    config.client.can = shape->can;
    config.client.dim_max = config.shard.dim_max = shape->dim;
    config.shard.slab_bytes = 8 << 20;
    config.shard.chunks_max = 4096;
    weft_prng_init(&r->prng, seed);
    cluster_start(&r->c, &config, 1, seed);
    r->c.net->packet_bytes = shape->dim > 100 ? 1408 : 300;
    r->spec = (struct weft_table_spec){.dim = shape->dim,
                                       .block_floats = shape->block_floats,
                                       .mode = WEFT_TABLE_ASP,
                                       .workers = 1,
                                       .learning_rate = -1,
                                       .push_values = type,
                                       .pull_values = WEFT_VALUE_BF16};
    if (shape->dense) { /* the vector ends within a row */
        r->spec.kind = WEFT_TABLE_DENSE;
        r->spec.length = (uint64_t)IDS * shape->dim - 2;
    }
    cluster_open(&r->c, &r->spec);
    r->memory = rows_max > 0 ? malloc(weft_row_store_bytes(rows_max, shape->dim)) : NULL;
    if (rows_max > 0) {
        assert_int_equal(weft_ps_client_feedback(r->c.client[0], 0, r->memory, rows_max), WEFT_OK);
    }
    for (uint32_t i = 0; i < IDS; i++) {
        r->ids[i] = shape->dense ? i : shape->wide ? weft_mix64(i + seed) : i * 5;
    }
    r->pushed = calloc((size_t)IDS * shape->dim, sizeof(*r->pushed));
}

static void rig_stop(struct rig *r)
{
    cluster_stop(&r->c);
    free(r->memory);
    free(r->pushed);
}

static const struct weft_ps_client_counters *counted(const struct rig *r)
{
    return weft_ps_client_counters(r->c.client[0]);
}

/* Number of existing columns of row k. */
static uint32_t columns(const struct rig *r, uint32_t k)
{
    return r->spec.kind == WEFT_TABLE_DENSE && k == IDS - 1 ? r->dim - 2 : r->dim;
}

/* Push whole numbers of up to 14 bits: to all rows of a dense table, or to N random ids of a sparse
 * one. After a pull of the same ids the push may use key caching. */
static weft_ps_op push_some(struct rig *r, uint32_t bound_ppm, bool pull_first)
{
    const bool dense = r->spec.kind == WEFT_TABLE_DENSE;
    const uint32_t n = dense ? IDS : N;
    uint64_t ids[IDS];
    float *rows = calloc((size_t)n * r->dim, sizeof(*rows));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = dense ? i : (uint32_t)weft_prng_below(&r->prng, IDS); /* some of them twice */
        ids[i] = r->ids[k];
        for (uint32_t d = 0; d < columns(r, k); d++) {
            int32_t value = (int32_t)weft_prng_below(&r->prng, 16384) - 8000;
            rows[(size_t)i * r->dim + d] = (float)value;
            r->pushed[(size_t)k * r->dim + d] += value;
        }
    }
    weft_ps_op op;
    if (pull_first) {
        float *back = calloc((size_t)n * r->dim, sizeof(*back));
        assert_int_equal(weft_ps_pull(r->c.client[0], 0, ids, back, n, 0, r->c.net->now_ns, &op),
                         WEFT_OK);
        assert_int_equal(cluster_wait(&r->c, 0, op).status, WEFT_OK);
        free(back);
    }
    const struct weft_ps_list list = {
        .table = 0, .n = n, .ids = dense ? NULL : ids, .values = rows};
    assert_int_equal(weft_ps_push_lists(r->c.client[0], &list, 1, bound_ppm, r->c.net->now_ns, &op),
                     WEFT_OK);
    free(rows);
    return op;
}

/* Sum of |pushed - tables - kept|. */
static double lacking(const struct rig *r)
{
    double sum = 0;
    uint32_t room = r->rows_max + 1;
    uint64_t *ids = calloc(room, sizeof(*ids));
    float *kept = calloc((size_t)room * r->dim, sizeof(*kept)), row[WEFT_RPC_DIM_MAX];
    uint32_t n = weft_ps_client_kept(r->c.client[0], 0, ids, kept, r->rows_max);
    assert_int_equal(n, counted(r)->feedback_rows_now);
    for (uint32_t k = 0; k < IDS; k++) {
        const double *pushed = r->pushed + (size_t)k * r->dim;
        uint32_t s = weft_table_spec_shard(&r->spec, r->ids[k], r->c.shards);
        (void)weft_table_read(weft_shard_table(r->c.shard[s], 0), r->ids[k], row);
        for (uint32_t d = 0; d < columns(r, k); d++) {
            double there = (double)row[d];
            for (uint32_t i = 0; i < n; i++) {
                there += ids[i] == r->ids[k] ? (double)kept[(size_t)i * r->dim + d] : 0;
            }
            sum += fabs(pushed[d] - there);
        }
    }
    free(ids);
    free(kept);
    return sum;
}

/* With int8 a value of up to 48,000 is the result of about 10 sums in float32. With 13 to 16 bits
 * before the binary point, 24 bits leave 11 to 8 after it. */
static bool nothing_lacks(const struct rig *r)
{
    const bool exact = r->spec.push_values == WEFT_VALUE_BF16;
    return lacking(r) <= (exact ? 0 : IDS * r->dim * 0.005);
}

/* A pull returns the tables' values, rounded. */
static void check_pulled(struct rig *r)
{
    weft_ps_op op;
    float *back = malloc((size_t)IDS * r->dim * sizeof(*back)), row[WEFT_RPC_DIM_MAX];
    memset(back, 0x7f, (size_t)IDS * r->dim * sizeof(*back));
    const struct weft_ps_list list = {
        .table = 0, .n = IDS, .ids = r->spec.kind == WEFT_TABLE_DENSE ? NULL : r->ids, .out = back};
    assert_int_equal(weft_ps_pull_lists(r->c.client[0], &list, 1, 0, r->c.net->now_ns, &op),
                     WEFT_OK);
    assert_int_equal(cluster_wait(&r->c, 0, op).status, WEFT_OK);
    for (uint32_t k = 0; k < IDS; k++) {
        uint32_t s = weft_table_spec_shard(&r->spec, r->ids[k], r->c.shards);
        (void)weft_table_read(weft_shard_table(r->c.shard[s], 0), r->ids[k], row);
        for (uint32_t d = 0; d < columns(r, k); d++) {
            assert_true(back[(size_t)k * r->dim + d] == weft_bf16_load(weft_bf16_store(row[d])));
        }
    }
    free(back);
}

/* Compared with float32. With int8 and packed ids the saving depends on the chunks: one scale for 1
 * to 64 values. */
static void check_saved(const struct rig *r, uint64_t pushed, uint64_t pulled, bool packed)
{
    const uint64_t floats = weft_table_blocks(&r->spec) * weft_table_block_floats(&r->spec);
    const uint64_t saved = counted(r)->value_bytes_saved - pulled * floats * 2;
    if (r->spec.push_values == WEFT_VALUE_BF16) {
        assert_int_equal(saved, pushed * floats * 2);
    } else if (!packed) {
        assert_int_equal(saved, pushed * (floats * 4 - weft_table_blocks(&r->spec) *
                                                           weft_table_push_block_bytes(&r->spec)));
    } else {
        assert_true(saved < pushed * floats * 3 && saved > pushed * floats * 290 / 100);
    }
}

static void nothing_is_lost_to_rounding(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(shapes) * WEFT_ARRAY_COUNT(types); i++) {
        const struct shape *shape = &shapes[i / WEFT_ARRAY_COUNT(types)];
        struct rig r;
        rig_start(&r, shape, types[i % WEFT_ARRAY_COUNT(types)], IDS, 10 + i);
        for (uint32_t round = 0; round < 6; round++) {
            weft_ps_op op = push_some(&r, 0, round % 2 == 1 && r.spec.kind == WEFT_TABLE_SPARSE);
            assert_int_equal(cluster_wait(&r.c, 0, op).status, WEFT_OK);
            assert_true(nothing_lacks(&r));
        }
        assert_true(counted(&r)->feedback_added > 0 && counted(&r)->feedback_rows_now > 0);
        assert_int_equal(counted(&r)->residual_dropped, 0);
        bool lists = (shape->can & WEFT_RPC_CAN_LIST) != 0 && !shape->dense &&
                     weft_table_blocks(&r.spec) == 1;
        assert_int_equal(counted(&r)->pushes_listed > 0, lists);
        check_pulled(&r);
        uint64_t pushed = 6 * (r.spec.kind == WEFT_TABLE_DENSE ? IDS : N);
        uint64_t pulled = IDS + (r.spec.kind == WEFT_TABLE_DENSE ? 0 : 3 * N);
        const bool packs = (shape->can & WEFT_RPC_CAN_PACK) != 0 && !shape->dense;
        check_saved(&r, pushed, pulled, packs && weft_table_blocks(&r.spec) == 1);
        rig_stop(&r);
    }
}

/* The same with lost chunks, within the bound and at deadlines. */
static void nor_to_the_network(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(shapes) * WEFT_ARRAY_COUNT(types); i++) {
        struct rig r;
        rig_start(&r, &shapes[i / WEFT_ARRAY_COUNT(types)], types[i % WEFT_ARRAY_COUNT(types)], IDS,
                  30 + i);
        uint64_t short_ones = 0;
        r.c.net->loss_ppm = 400000;
        for (uint32_t round = 0; round < 10; round++) {
            weft_ps_op op = push_some(&r, round % 3 == 0 ? 0 : 500000,
                                      round % 2 == 1 && r.spec.kind == WEFT_TABLE_SPARSE);
            struct weft_ps_result result = cluster_wait(&r.c, 0, op);
            assert_int_equal(result.status, WEFT_OK);
            short_ones += result.rpcs_short;
        }
        assert_true(short_ones > 0 && counted(&r)->feedback_stored > 0);
        assert_int_equal(counted(&r)->feedback_dropped + counted(&r)->residual_dropped, 0);
        assert_true(nothing_lacks(&r));
        rig_stop(&r);
    }
}

/* Without room the remainder is dropped and counted. */
static void no_room(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t rows_max = i / 2 * 20;
        const double half = types[i % 2] == WEFT_VALUE_BF16 ? 16 : 8384 / 127.0 * 1.01 / 2;
        struct rig r;
        rig_start(&r, &shapes[4], types[i % 2], rows_max, 50);
        assert_int_equal(cluster_wait(&r.c, 0, push_some(&r, 0, false)).status, WEFT_OK);
        assert_true(counted(&r)->residual_dropped > N / 2);
        assert_int_equal(counted(&r)->feedback_rows_now, rows_max);
        double lost = lacking(&r);
        assert_true(lost > 0 && lost <= (double)counted(&r)->residual_dropped * half);
        rig_stop(&r);
    }
}

/* A value that bf16 represents exactly leaves no remainder. */
static void small_numbers_take_no_memory(void **state)
{
    (void)state;
    struct rig r;
    rig_start(&r, &shapes[3], WEFT_VALUE_BF16, IDS, 51);
    float rows[3 * IDS];
    weft_ps_op op;
    for (uint32_t i = 0; i < 3 * IDS; i++) {
        rows[i] = i == 3 ? 1001 : (float)(i % 200);
    }
    for (uint32_t round = 0; round < 2; round++) {
        assert_int_equal(weft_ps_push(r.c.client[0], 0, r.ids, rows, IDS, 0, r.c.net->now_ns, &op),
                         WEFT_OK);
        assert_int_equal(cluster_wait(&r.c, 0, op).status, WEFT_OK);
        /* 1001 is 1000 and 1, then 1002 is 1000 and 2, or 1004 and -2. */
        assert_int_equal(counted(&r)->feedback_rows_now, 1);
    }
    memset(rows, 0, sizeof(rows));
    assert_int_equal(weft_ps_push(r.c.client[0], 0, r.ids, rows, IDS, 0, r.c.net->now_ns, &op),
                     WEFT_OK);
    assert_int_equal(cluster_wait(&r.c, 0, op).status, WEFT_OK);
    assert_int_equal(counted(&r)->feedback_rows_now, 0); /* a push of zeros has sent it */
    rig_stop(&r);
}

/* An infinite gradient is refused as usual, and no kept gradient is lost with it. */
static void not_finite(void **state)
{
    (void)state;
    const struct shape shape = {1, 1, 0, 0, false, false};
    struct rig r;
    rig_start(&r, &shape, WEFT_VALUE_BF16, IDS, 52);
    float row = 1001, kept;
    uint64_t id;
    weft_ps_op op;
    assert_int_equal(weft_ps_push(r.c.client[0], 0, r.ids, &row, 1, 0, r.c.net->now_ns, &op),
                     WEFT_OK);
    assert_int_equal(cluster_wait(&r.c, 0, op).status, WEFT_OK);
    const float bad[] = {INFINITY, -INFINITY, NAN};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(bad); i++) {
        assert_int_equal(weft_ps_push(r.c.client[0], 0, r.ids, &bad[i], 1, 0, r.c.net->now_ns, &op),
                         WEFT_OK);
        struct weft_ps_result result = cluster_wait(&r.c, 0, op);
        assert_int_equal(result.rpc_status, WEFT_RPC_NOT_FINITE);
        assert_int_equal(weft_ps_client_kept(r.c.client[0], 0, &id, &kept, 1), 1);
        assert_true(kept == 1);
    }
    row = 3.4e38F; /* finite and beyond the largest bf16: it arrives completely, in two parts */
    assert_int_equal(weft_ps_push(r.c.client[0], 0, r.ids, &row, 1, 0, r.c.net->now_ns, &op),
                     WEFT_OK);
    assert_int_equal(cluster_wait(&r.c, 0, op).status, WEFT_OK);
    assert_int_equal(weft_ps_client_kept(r.c.client[0], 0, &id, &kept, 1), 1);
    assert_true((double)kept == (double)row - (double)weft_bf16_load(0x7f7f));
    rig_stop(&r);
}

/* The same with int8: the values of a row share a step, and a value that is not finite does not
 * affect the step. */
static void not_finite_steps(void **state)
{
    (void)state;
    const struct shape shape = {1, 3, 0, WEFT_RPC_CAN_ALL, false, false};
    struct rig r;
    rig_start(&r, &shape, WEFT_VALUE_INT8, IDS, 53);
    const float first[] = {127, 1.25F, 2};
    float kept[3];
    uint64_t id;
    weft_ps_op op;
    assert_int_equal(weft_ps_push(r.c.client[0], 0, r.ids, first, 1, 0, r.c.net->now_ns, &op),
                     WEFT_OK);
    assert_int_equal(cluster_wait(&r.c, 0, op).status, WEFT_OK);
    const float bad[] = {INFINITY, -INFINITY, NAN};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(bad); i++) {
        const float row[] = {127, bad[i], 1};
        assert_int_equal(weft_ps_push(r.c.client[0], 0, r.ids, row, 1, 0, r.c.net->now_ns, &op),
                         WEFT_OK);
        struct weft_ps_result result = cluster_wait(&r.c, 0, op);
        assert_int_equal(result.rpc_status, WEFT_RPC_NOT_FINITE);
        assert_int_equal(weft_ps_client_kept(r.c.client[0], 0, &id, kept, 1), 1);
        assert_true(kept[0] == 0 && kept[1] == 0.25F && kept[2] == 0);
    }
    const float more[] = {0, 0.75F, 0};
    assert_int_equal(weft_ps_push(r.c.client[0], 0, r.ids, more, 1, 0, r.c.net->now_ns, &op),
                     WEFT_OK);
    assert_int_equal(cluster_wait(&r.c, 0, op).status, WEFT_OK);
    float row[3];
    (void)weft_table_read(weft_shard_table(r.c.shard[0], 0), r.ids[0], row);
    weft_ps_client_kept(r.c.client[0], 0, &id, kept, 1);
    assert_true(row[0] == 127 && row[1] + kept[1] == 2 && row[2] == 2);
    rig_stop(&r);
}

/* An id may occur twice, even if only the second occurrence has a remainder to keep. */
static void twice_in_a_push(void **state)
{
    (void)state;
    const struct shape shape = {1, 1, 0, WEFT_RPC_CAN_ALL, false, false};
    struct rig r;
    rig_start(&r, &shape, WEFT_VALUE_INT8, IDS, 54);
    const uint64_t ids[] = {0, 5, 10, 5, 15, 5, 10};
    const float rounds[][7] = {{127, 1.25F, 1.25F, 1.5F, 0, 0, 0},
                               {127, -0.75F, 0.75F, 0, 0.25F, 1.25F, 0},
                               {127, 0, 0, 0, 0, 0, 0},
                               {127, 0.25F, 0, 0.5F, 3.25F, -0.5F, 1}};
    double pushed[4] = {0}, there[4] = {0};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(rounds); i++) {
        weft_ps_op op;
        assert_int_equal(weft_ps_push(r.c.client[0], 0, ids, rounds[i], 7, 0, r.c.net->now_ns, &op),
                         WEFT_OK);
        assert_int_equal(cluster_wait(&r.c, 0, op).status, WEFT_OK);
        uint64_t kept_ids[IDS];
        float kept[IDS], row;
        uint32_t n = weft_ps_client_kept(r.c.client[0], 0, kept_ids, kept, IDS);
        assert_int_equal(n, counted(&r)->feedback_rows_now);
        memset(there, 0, sizeof(there));
        for (uint32_t k = 0; k < 7; k++) {
            pushed[ids[k] / 5] += (double)rounds[i][k];
            (void)weft_table_read(weft_shard_table(r.c.shard[0], 0), ids[k], &row);
            there[ids[k] / 5] = (double)row;
        }
        for (uint32_t k = 0; k < n; k++) {
            there[kept_ids[k] / 5] += (double)kept[k];
        }
        assert_memory_equal(there, pushed, sizeof(there)); /* multiples of 1/4: sums are exact */
    }
    rig_stop(&r);
}

/* All workers must use the same type. An unknown type is refused, like these types by older
 * releases. */
static void types_are_of_the_table(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(1, 2);
    struct cluster c;
    weft_ps_op op;
    cluster_start(&c, &config, 2, 1);
    struct weft_table_spec spec = {.dim = 1,
                                   .mode = WEFT_TABLE_ASP,
                                   .workers = 2,
                                   .learning_rate = -1,
                                   .push_values = WEFT_VALUE_BF16};
    assert_int_equal(weft_ps_table_open(c.client[0], &spec, c.net->now_ns, &op), WEFT_OK);
    assert_int_equal(cluster_wait(&c, 0, op).status, WEFT_OK);
    spec.push_values = WEFT_VALUE_FLOAT32;
    assert_int_equal(weft_ps_table_open(c.client[1], &spec, c.net->now_ns, &op), WEFT_OK);
    assert_int_equal(cluster_wait(&c, 1, op).rpc_status, WEFT_RPC_SPEC_MISMATCH);
    spec.table = 1;
    spec.pull_values = 2;
    assert_int_equal(weft_ps_table_open(c.client[1], &spec, c.net->now_ns, &op), WEFT_INVALID);
    cluster_stop(&c);
}

/* As many rows as fit 16 MiB, at most those of a dense table, and none without rounding. */
static void how_many_rows_are_kept(void **state)
{
    (void)state;
    struct weft_table_spec spec = {.dim = 1};
    assert_int_equal(weft_ps_feedback_rows(&spec), 0);
    spec.push_values = WEFT_VALUE_BF16;
    assert_int_equal(weft_ps_feedback_rows(&spec), (16 << 20) / 24);
    spec.dim = 1024;
    assert_int_equal(weft_ps_feedback_rows(&spec), (16 << 20) / 4116);
    for (uint32_t dim = 1; dim <= WEFT_RPC_DIM_MAX; dim++) {
        spec.dim = dim;
        assert_true(weft_row_store_bytes(weft_ps_feedback_rows(&spec), dim) <= (16 << 20) + 64);
    }
    spec.kind = WEFT_TABLE_DENSE;
    spec.dim = 64;
    spec.length = 6401;
    assert_int_equal(weft_ps_feedback_rows(&spec), 101);
}

/* One value that is not finite, at each place of arrays of each length, and none. */
static void finite_or_not(void **state)
{
    (void)state;
    static const uint32_t finite[] = {0, 0x80000000, 1, 0x7f7fffff, 0xff7fffff, 0x3f800000};
    static const uint32_t not_finite[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffffffff,
                                          0x7f800001};
    uint8_t bytes[1 + 70 * sizeof(uint32_t)];
    for (uint32_t count = 0; count <= 70; count++) {
        for (uint32_t i = 0; i < count; i++) {
            memcpy(bytes + 1 + i * 4, &finite[(i + count) % 6], 4);
        }
        assert_true(weft_values_finite(bytes + 1, count));
        for (uint32_t i = 0; i < count; i++) {
            memcpy(bytes + 1 + i * 4, &not_finite[(i + count) % 5], 4);
            assert_false(weft_values_finite(bytes + 1, count));
            assert_true(weft_values_finite(bytes + 1, i));
            memcpy(bytes + 1 + i * 4, &finite[i % 6], 4);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_bf16_can_say_stays),
        cmocka_unit_test(the_edges),
        cmocka_unit_test(nearest_and_the_remainder),
        cmocka_unit_test(many_at_a_time),
        cmocka_unit_test(nothing_is_lost_to_rounding),
        cmocka_unit_test(nor_to_the_network),
        cmocka_unit_test(no_room),
        cmocka_unit_test(small_numbers_take_no_memory),
        cmocka_unit_test(finite_or_not),
        cmocka_unit_test(not_finite),
        cmocka_unit_test(not_finite_steps),
        cmocka_unit_test(twice_in_a_push),
        cmocka_unit_test(types_are_of_the_table),
        cmocka_unit_test(how_many_rows_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
