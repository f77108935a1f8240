/* Loss as a worker sees it: the rows of an operation that did not arrive complete, the residuals
 * kept for later pushes, and operations that end at their deadline. Values are integers, so that
 * sums are exact. */
#include "ps_cluster.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>

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

/* Ascending ids are packed. */
static bool ascending;

static void ids_fill(uint64_t *ids, uint32_t n, uint32_t salt)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t id = i + (uint64_t)salt * 100000;
        ids[i] = ascending ? id * 977 : weft_mix64(id);
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

/* Two tables in one operation: rows that arrive are 1, others stay 0, and the bitmap marks the
 * missing ones. */
static void missed_rows_run(uint32_t shards, uint32_t dim, uint64_t seed)
{
    struct cluster_config config = config_of(shards, 1, dim);
    struct cluster c;
    cluster_start(&c, &config, 1, seed);
    c.net->packet_bytes = ascending && dim < 100 ? 352 : c.net->packet_bytes; /* several chunks */
    struct two_tables *t = calloc(1, sizeof(*t));
    const uint32_t counts[TABLES] = {N, N / 2 - 7};
    uint64_t missed[WEFT_BITS_WORDS(TABLES * N)];
    struct weft_ps_list pushes[TABLES];
    struct weft_ps_list pulls[TABLES];
    for (uint16_t i = 0; i < TABLES; i++) {
        struct weft_table_spec spec = adding(i, dim, WEFT_TABLE_ASP, 1);
        cluster_open(&c, &spec);
        ids_fill(t->ids[i], N, i);
        t->rows[i] = calloc((size_t)N * dim, sizeof(float));
        values_fill(t->rows[i], (size_t)N * dim, 1);
        pushes[i] = (struct weft_ps_list){
            .table = i, .n = counts[i], .ids = t->ids[i], .values = t->rows[i]};
        pulls[i] =
            (struct weft_ps_list){.table = i, .n = counts[i], .ids = t->ids[i], .out = t->rows[i]};
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
            pulls[i].out = t->rows[i];
        }
        assert_int_equal(weft_ps_pull_lists(c.client[0], pulls, TABLES, 0, c.net->now_ns, &op),
                         WEFT_OK);
        assert_int_equal(finish(&c, op, ignored).rows_missed, 0);
        /* Subtract the tables' contents, so that each round begins at 0. */
        missed_check(t, counts, dim, missed, 1);
        for (uint32_t i = 0; i < TABLES; i++) {
            for (size_t k = 0; k < (size_t)counts[i] * dim; k++) {
                t->rows[i][k] = -t->rows[i][k];
            }
            pushes[i].values = t->rows[i];
        }
        assert_int_equal(weft_ps_push_lists(c.client[0], pushes, TABLES, 0, c.net->now_ns, &op),
                         WEFT_OK);
        assert_int_equal(finish(&c, op, ignored).rows_missed, 0);
        for (uint32_t i = 0; i < TABLES; i++) {
            free(t->rows[i]);
            t->rows[i] = before[i];
            pushes[i].values = before[i];
        }
    }
    assert_true(short_ones > 0);
    /* The same for a pull: rows initially hold 5, the tables hold 0. */
    for (uint32_t i = 0; i < TABLES; i++) {
        values_fill(t->rows[i], (size_t)N * dim, 5);
        pulls[i].out = t->rows[i];
    }
    c.net->loss_ppm = 1000000; /* as much as the bound allows */
    assert_int_equal(weft_ps_pull_lists(c.client[0], pulls, TABLES, 700000, c.net->now_ns, &op),
                     WEFT_OK);
    uint64_t lost = finish(&c, op, missed).rows_missed;
    assert_true(lost > 0 || dim == 1); /* so few floats fit one chunk */
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

/* A request that is refused as a whole: all rows. A dead shard: all rows not known to have
 * arrived. */
static void failed_rows_are_named(void **state)
{
    (void)state;
    struct cluster_config config = config_of(2, 1, 1);
    config.shard.rows_per_rpc_max = 100; /* less than the client's part size */
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

/* ---- error feedback -------------------------------------------------------------------------- */

enum { FEW = 150 };

struct feedback {
    struct cluster c;
    struct weft_prng prng;
    uint32_t dim, rows_max;
    void *memory;
    uint64_t ids[FEW];
    double pushed[FEW];
};

static void feedback_start(struct feedback *f, uint32_t shards, uint32_t dim, uint32_t rows_max,
                           uint64_t seed)
{
    struct cluster_config config = config_of(shards, 1, dim);
    *f = (struct feedback){.dim = dim, .rows_max = rows_max};
    weft_prng_init(&f->prng, seed);
    cluster_start(&f->c, &config, 1, seed);
    f->c.net->packet_bytes = dim > 200 ? 1408 : 200;
    f->memory = malloc(weft_row_store_bytes(rows_max, dim));
    assert_int_equal(weft_ps_client_feedback(f->c.client[0], 0, f->memory, rows_max), WEFT_STATE);
    struct weft_table_spec spec = adding(0, dim, WEFT_TABLE_ASP, 1);
    cluster_open(&f->c, &spec);
    assert_int_equal(weft_ps_client_feedback(f->c.client[0], 0, f->memory, 0), WEFT_INVALID);
    assert_int_equal(weft_ps_client_feedback(f->c.client[0], 0, f->memory, rows_max), WEFT_OK);
    ids_fill(f->ids, FEW, 9);
}

/* Push up to 200 rows of whole numbers, with ids in any order and repeated. */
static weft_ps_op feedback_push(struct feedback *f, uint32_t bound_ppm)
{
    uint64_t ids[200];
    uint32_t n = 1 + (uint32_t)weft_prng_below(&f->prng, 200);
    float *rows = malloc((size_t)n * f->dim * sizeof(*rows));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = (uint32_t)weft_prng_below(&f->prng, FEW);
        float value = 1 + (float)weft_prng_below(&f->prng, 9);
        ids[i] = f->ids[k];
        f->pushed[k] += value;
        values_fill(rows + (size_t)i * f->dim, f->dim, value);
    }
    weft_ps_op op;
    assert_int_equal(
        weft_ps_push(f->c.client[0], 0, ids, rows, n, bound_ppm, f->c.net->now_ns, &op), WEFT_OK);
    free(rows); /* borrowed until return */
    return op;
}

/* Returns the missing elements: pushed, and neither applied nor kept. Blocks of one row may
 * differ. */
static double feedback_lacking(struct feedback *f)
{
    double lacking = 0;
    float *kept = malloc((size_t)f->rows_max * f->dim * sizeof(*kept));
    float *row = malloc(f->dim * sizeof(*row));
    uint64_t *ids = malloc(f->rows_max * sizeof(*ids));
    uint32_t n = weft_ps_client_kept(f->c.client[0], 0, ids, kept, f->rows_max);
    assert_int_equal(n, weft_ps_client_counters(f->c.client[0])->feedback_rows_now);
    for (uint32_t k = 0; k < FEW; k++) {
        struct weft_table_spec spec = adding(0, f->dim, WEFT_TABLE_ASP, 1);
        uint32_t s = weft_table_spec_shard(&spec, f->ids[k], f->c.shards);
        (void)weft_table_read(weft_shard_table(f->c.shard[s], 0), f->ids[k], row);
        for (uint32_t d = 0; d < f->dim; d++) {
            double sum = row[d];
            for (uint32_t i = 0; i < n; i++) {
                sum += ids[i] == f->ids[k] ? kept[(size_t)i * f->dim + d] : 0;
            }
            assert_true(sum <= f->pushed[k]);
            lacking += f->pushed[k] - sum;
        }
    }
    free(kept);
    free(row);
    free(ids);
    return lacking;
}

static void feedback_stop(struct feedback *f)
{
    cluster_stop(&f->c);
    free(f->memory);
}

/* Several pushes in flight, one in three with bound 0. */
static void feedback_pushes(struct feedback *f, uint32_t rounds)
{
    for (uint32_t round = 0; round < rounds; round++) {
        weft_ps_op ops[3];
        for (uint32_t i = 0; i < 3; i++) {
            ops[i] = feedback_push(f, weft_prng_below(&f->prng, 3) == 0 ? 0 : 600000);
            for (uint64_t step = weft_prng_below(&f->prng, 10); step > 0; step--) {
                (void)cluster_step(&f->c);
            }
        }
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(cluster_wait(&f->c, 0, ops[i]).status, WEFT_OK);
        }
    }
}

static void feedback_run(uint32_t shards, uint32_t dim, uint64_t seed)
{
    struct feedback f;
    feedback_start(&f, shards, dim, FEW, seed);
    f.c.net->loss_ppm = 500000;
    feedback_pushes(&f, 12);
    const struct weft_ps_client_counters *counters = weft_ps_client_counters(f.c.client[0]);
    assert_true(feedback_lacking(&f) == 0);
    assert_true(counters->feedback_added > 0 && counters->feedback_rows_now > 0);
    assert_int_equal(counters->feedback_dropped, 0);
    /* A push of zeros sends the kept gradients. */
    f.c.net->loss_ppm = 0;
    float *zeros = calloc((size_t)FEW * dim, sizeof(*zeros));
    weft_ps_op op;
    assert_int_equal(weft_ps_push(f.c.client[0], 0, f.ids, zeros, FEW, 0, f.c.net->now_ns, &op),
                     WEFT_OK);
    assert_int_equal(cluster_wait(&f.c, 0, op).status, WEFT_OK);
    assert_int_equal(counters->feedback_rows_now, 0);
    assert_true(feedback_lacking(&f) == 0);
    free(zeros);
    feedback_stop(&f);
}

static void what_is_lost_is_pushed_later(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t shards = 1; shards <= 3; shards += 2) {
            feedback_run(shards, dims[i], 200 + i);
        }
    }
}

/* Room for five rows; all gradients are 1, so that missing elements can be counted. */
static void more_than_fits_is_counted(void **state)
{
    (void)state;
    struct feedback f;
    feedback_start(&f, 2, 4, 5, 3);
    f.c.net->loss_ppm = 500000;
    float rows[FEW * 4];
    values_fill(rows, FEW * 4, 1);
    const struct weft_ps_client_counters *counters = weft_ps_client_counters(f.c.client[0]);
    for (uint32_t round = 0; round < 20; round++) {
        weft_ps_op op;
        uint32_t n = 20 + (uint32_t)weft_prng_below(&f.prng, FEW - 20);
        for (uint32_t k = 0; k < n; k++) {
            f.pushed[k] += 1;
        }
        assert_int_equal(
            weft_ps_push(f.c.client[0], 0, f.ids, rows, n, 600000, f.c.net->now_ns, &op), WEFT_OK);
        (void)cluster_wait(&f.c, 0, op);
        assert_true(counters->feedback_rows_now <= 5);
        /* A dropped element is 4 floats of 1 plus kept residuals. */
        double lacking = feedback_lacking(&f) / 4;
        assert_true(lacking >= (double)counters->feedback_dropped &&
                    lacking <= (double)(counters->feedback_dropped + counters->feedback_added));
    }
    assert_true(counters->feedback_dropped > 0);
    feedback_stop(&f);
}

/* A value that is not finite would make later pushes invalid. */
static void only_numbers_are_kept(void **state)
{
    (void)state;
    struct feedback f;
    feedback_start(&f, 1, 4, FEW, 4);
    f.c.net->loss_ppm = 1000000;
    float rows[FEW * 4];
    values_fill(rows, FEW * 4, INFINITY);
    weft_ps_op op;
    assert_int_equal(weft_ps_push(f.c.client[0], 0, f.ids, rows, FEW, 600000, f.c.net->now_ns, &op),
                     WEFT_OK);
    assert_int_equal(cluster_wait(&f.c, 0, op).status, WEFT_DATA);
    const struct weft_ps_client_counters *counters = weft_ps_client_counters(f.c.client[0]);
    assert_true(counters->feedback_dropped > 0);
    assert_int_equal(counters->feedback_stored, 0);
    feedback_stop(&f);
}

/* ---- deadlines ------------------------------------------------------------------------------- */

/* Pulls that end while their replies arrive: rows not reported as missed have arrived, missed rows
 * are unchanged, and later replies change nothing. */
static void pulls_end_in_time(void **state)
{
    (void)state;
    uint64_t missed[WEFT_BITS_WORDS(TABLES * N)], lost = 0, came = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        uint32_t dim = dims[seed % 3];
        struct cluster_config config = config_of(2, 1, dim);
        config.client.ops_max = 3;
        struct cluster c;
        cluster_start(&c, &config, 1, seed);
        struct weft_table_spec spec = adding(0, dim, WEFT_TABLE_ASP, 1);
        cluster_open(&c, &spec);
        static uint64_t ids[N];
        float *rows = malloc((size_t)N * dim * sizeof(*rows));
        ids_fill(ids, N, 0);
        values_fill(rows, (size_t)N * dim, 1);
        weft_ps_op op;
        assert_int_equal(weft_ps_push(c.client[0], 0, ids, rows, N, 0, 0, &op), WEFT_OK);
        assert_int_equal(cluster_wait(&c, 0, op).status, WEFT_OK);
        for (uint32_t round = 0; round < 10; round++) {
            const struct weft_ps_list list = {.n = N, .ids = ids, .out = rows};
            struct weft_ps_how how = {.deadline_ns = c.net->now_ns + 1000 * (1 + 40 * round)};
            weft_status status;
            values_fill(rows, (size_t)N * dim, -3);
            while ((status = weft_ps_begin(c.client[0], WEFT_RPC_PULL, &list, 1, &how,
                                           c.net->now_ns, &op)) == WEFT_AGAIN) {
                assert_true(cluster_step(&c)); /* slots are kept until the replies have arrived */
            }
            assert_int_equal(status, WEFT_OK);
            struct weft_ps_result result = finish(&c, op, missed);
            assert_int_equal(result.status, WEFT_OK);
            assert_true(result.elements_delivered <= result.elements_sent);
            for (uint32_t i = 0; i < N; i++) {
                bool whole = row_is(rows + (size_t)i * dim, dim, 1);
                assert_int_equal(weft_bits_test(missed, i), !whole);
                assert_true(whole || dim > 256 || row_is(rows + (size_t)i * dim, dim, -3));
                lost += !whole;
                came += whole;
            }
            values_fill(rows, (size_t)N * dim, 9);
            for (uint32_t step = 0; step < 20; step++) {
                (void)cluster_step(&c);
            }
            assert_true(row_is(rows, N * dim, 9)); /* the caller owns the memory again */
        }
        cluster_run(&c);
        assert_false(weft_ps_client_busy(c.client[0]));
        assert_int_equal(weft_ps_client_counters(c.client[0])->replies_malformed, 0);
        weft_ps_client_progress(c.client[0], WEFT_NEVER - 1);
        assert_int_equal(weft_ps_client_deadline(c.client[0]), WEFT_NEVER);
        free(rows);
        cluster_stop(&c);
    }
    assert_true(lost > 1000 && came > 1000);
}

/* A pull that waits for another worker, or for a disconnected shard, ends at its deadline. */
static void nobody_is_waited_for(void **state)
{
    (void)state;
    struct cluster_config config = config_of(1, 2, 4);
    config.client.reconnect_ns = 1000 * WEFT_NS_PER_S;
    struct cluster c;
    cluster_start(&c, &config, 2, 1);
    struct weft_table_spec spec = adding(0, 4, WEFT_TABLE_BSP, 2);
    spec.init_scale = 0.5F;
    cluster_open(&c, &spec);
    cluster_clock(&c, 0, 0);
    cluster_run(&c);
    uint64_t missed[WEFT_BITS_WORDS(TABLES * N)], id = 5;
    float row[4] = {0}, begins[4];
    weft_table_fill_initial(&spec, id, begins);
    const struct weft_ps_list list = {.n = 1, .ids = &id, .out = row};
    for (uint32_t away = 0; away < 2; away++) {
        struct weft_ps_how how = {.fill = 1, .deadline_ns = c.net->now_ns + WEFT_NS_PER_MS};
        weft_ps_op op;
        assert_int_equal(
            weft_ps_begin(c.client[0], WEFT_RPC_PULL, &list, 1, &how, c.net->now_ns, &op), WEFT_OK);
        cluster_run(&c);
        assert_false(weft_ps_op_done(c.client[0], op, NULL));
        assert_true(weft_ps_client_deadline(c.client[0]) >= how.deadline_ns);
        c.net->now_ns = weft_ps_client_deadline(c.client[0]);
        struct weft_ps_result result = finish(&c, op, missed);
        assert_int_equal(result.status, WEFT_OK);
        assert_int_equal(result.rows_missed, 1);
        assert_memory_equal(row, begins, sizeof(row));
        memset(row, 0, sizeof(row));
        if (away == 0) {
            assert_true(weft_ps_client_busy(c.client[0]));
            fake_break(c.net, 0, 1);
            cluster_poll(&c);
        }
    }
    assert_false(weft_ps_client_busy(c.client[0])); /* the replies ended with the connection */
    cluster_stop(&c);
}

/* The deadline passes before any message can be sent: nothing counts, and all gradients are
 * kept. */
static void what_was_not_sent_never_counts(void **state)
{
    (void)state;
    struct feedback f;
    feedback_start(&f, 2, 300, FEW, 7);
    float *rows = malloc((size_t)FEW * 300 * sizeof(*rows));
    values_fill(rows, (size_t)FEW * 300, 2);
    for (uint32_t k = 0; k < FEW; k++) {
        f.pushed[k] = 2;
    }
    uint64_t missed[WEFT_BITS_WORDS(TABLES * N)];
    const struct weft_ps_list list = {.n = FEW, .ids = f.ids, .values = rows};
    struct weft_ps_how how = {.deadline_ns = 1};
    weft_ps_op op;
    assert_int_equal(
        weft_ps_begin(f.c.client[0], WEFT_RPC_PUSH, &list, 1, &how, f.c.net->now_ns, &op), WEFT_OK);
    struct weft_ps_result result = finish(&f.c, op, missed);
    assert_int_equal(result.status, WEFT_OK);
    assert_int_equal(result.elements_delivered, 0);
    assert_int_equal(result.elements_sent, FEW * 2);
    assert_int_equal(result.rows_missed, FEW);
    assert_int_equal(weft_shard_counters(f.c.shard[0])->elements_applied, 0);
    assert_int_equal(weft_ps_client_counters(f.c.client[0])->feedback_rows_now, FEW);
    assert_true(feedback_lacking(&f) == 0);
    free(rows);
    feedback_stop(&f);
}

/* ---- not three times ------------------------------------------------------------------------- */

static void again_start(struct cluster *c)
{
    struct cluster_config config = config_of(1, 1, 256);
    config.incarnation = 1;
    config.shard.chunks_max = 64;
    config.client.reconnect_ns = 1000 * WEFT_NS_PER_S;
    cluster_start(c, &config, 1, 1);
    struct weft_table_spec spec = adding(0, 256, WEFT_TABLE_ASP, 1);
    cluster_open(c, &spec);
    c->net->loss_ppm = 1000000;
}

/* A row is a chunk: one of two may be lost, the first that is not critical. */
static weft_ps_op two_rows(struct cluster *c)
{
    static const float rows[2 * 256];
    const uint64_t ids[] = {5, 6};
    weft_ps_op op;
    assert_int_equal(weft_ps_push(c->client[0], 0, ids, rows, 2, 400000, c->net->now_ns, &op),
                     WEFT_OK);
    return op;
}

static void must_miss(struct cluster *c, weft_ps_op op, uint64_t wanted)
{
    uint64_t missed[WEFT_BITS_WORDS(TABLES * N)];
    assert_int_equal(finish(c, op, missed).status, WEFT_OK);
    assert_int_equal(missed[0], wanted);
}

static struct fake_message *answer_find(struct cluster *c)
{
    for (;;) {
        for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
            struct fake_message *m = &c->net->messages[i];
            if (m->live && m->from == 0 && m->to == 1) {
                return m;
            }
        }
        assert_true(cluster_step(c));
    }
}

/* A resent push has zeros in place of lost rows, so its arrival does not add them twice. */
static void zeros_that_arrive_are_no_row(void **state)
{
    (void)state;
    struct cluster c;
    again_start(&c);
    weft_ps_op op = two_rows(&c);
    answer_find(&c)->held = true;
    cluster_run(&c);
    fake_break(c.net, 0, 1);
    cluster_poll(&c);
    assert_int_equal(weft_ps_client_reconnect(c.client[0], 0, fake_peer(0), c.net->now_ns),
                     WEFT_OK);
    fake_connect(c.net, 0, 1);
    cluster_poll(&c);
    must_miss(&c, op, 1);
    assert_int_equal(weft_ps_client_counters(c.client[0])->pushes_resent, 1);
    must_miss(&c, two_rows(&c), 1);
    must_miss(&c, two_rows(&c), 2);
    cluster_stop(&c);
}

static void what_was_not_sent_is_missing(void **state)
{
    (void)state;
    struct cluster c;
    again_start(&c);
    static const float rows[256];
    const uint64_t id = 5;
    const struct weft_ps_list list = {.n = 1, .ids = &id, .values = rows};
    struct weft_ps_how how = {.deadline_ns = 1};
    for (uint32_t i = 0; i < 2; i++) {
        weft_ps_op op;
        assert_int_equal(
            weft_ps_begin(c.client[0], WEFT_RPC_PUSH, &list, 1, &how, c.net->now_ns, &op), WEFT_OK);
        must_miss(&c, op, 1);
    }
    must_miss(&c, two_rows(&c), 2);
    cluster_stop(&c);
}

/* ---- a shard that breaks the protocol -------------------------------------------------------- */

/* Chunks first .. end - 1 of the next reply arrive; there the shard ends it. */
static void answer_ends(struct cluster *c, uint32_t first, uint32_t end)
{
    struct fake_message *m = answer_find(c);
    assert_true(fake_match(c->net, m));
    for (uint32_t k = first; k < end; k++) {
        fake_deliver(c->net, m, k);
    }
    fake_close(c->net, m, WEFT_MSG_SHORT);
    cluster_poll(c);
}

static void bad_answer(struct cluster *c, weft_ps_op op, uint32_t first, uint32_t end)
{
    uint64_t before = weft_ps_client_counters(c->client[0])->replies_malformed;
    answer_ends(c, first, end);
    assert_int_equal(cluster_wait(c, 0, op).status, WEFT_PROTO);
    assert_int_equal(weft_ps_client_counters(c->client[0])->replies_malformed, before + 1);
}

static void answers_that_end_too_early_are_bad(void **state)
{
    (void)state;
    struct cluster_config config = config_of(1, 1, 300);
    struct cluster c;
    cluster_start(&c, &config, 1, 1);
    struct weft_table_spec spec = adding(0, 300, WEFT_TABLE_ASP, 1), other = spec;
    other.table = 1;
    cluster_open(&c, &spec);
    uint64_t ids[4];
    static float rows[4 * 300];
    ids_fill(ids, 4, 0);
    weft_ps_op op;
    assert_int_equal(weft_ps_table_open(c.client[0], &other, c.net->now_ns, &op), WEFT_OK);
    bad_answer(&c, op, 0, 0);
    assert_int_equal(weft_ps_push(c.client[0], 0, ids, rows, 4, 0, c.net->now_ns, &op), WEFT_OK);
    bad_answer(&c, op, 0, 0);
    for (uint32_t end = 0; end <= 3; end++) { /* nothing; the head; rows without the head; rows with
                                               * the head */
        assert_int_equal(weft_ps_pull(c.client[0], 0, ids, rows, 4, 0, c.net->now_ns, &op),
                         WEFT_OK);
        bad_answer(&c, op, end == 2, end);
    }
    assert_int_equal(weft_ps_pull(c.client[0], 0, ids, rows, 4, 0, c.net->now_ns, &op), WEFT_OK);
    assert_int_equal(cluster_wait(&c, 0, op).status, WEFT_OK);
    cluster_stop(&c);
}

/* Operations that wait for the reply to RESUME end with a report, and do not wait forever. */
static void resuming_ends_with_a_bad_answer(void **state)
{
    (void)state;
    struct cluster_config config = config_of(1, 1, 4);
    config.incarnation = 1;
    config.client.reconnect_ns = 1000 * WEFT_NS_PER_S;
    struct cluster c;
    cluster_start(&c, &config, 1, 1);
    struct weft_table_spec spec = adding(0, 4, WEFT_TABLE_ASP, 1);
    cluster_open(&c, &spec);
    fake_break(c.net, 0, 1);
    cluster_poll(&c);
    const uint64_t id = 5;
    float row[4] = {0};
    weft_ps_op op;
    assert_int_equal(weft_ps_pull(c.client[0], 0, &id, row, 1, 0, c.net->now_ns, &op), WEFT_OK);
    assert_int_equal(weft_ps_client_reconnect(c.client[0], 0, fake_peer(0), c.net->now_ns),
                     WEFT_OK);
    fake_connect(c.net, 0, 1);
    cluster_poll(&c);
    bad_answer(&c, op, 0, 0);
    cluster_stop(&c);
}

/* Repeat all of it. */
static void now_with_packed_ids(void **state)
{
    (void)state;
    ascending = true;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missed_rows_are_named),
        cmocka_unit_test(failed_rows_are_named),
        cmocka_unit_test(what_is_lost_is_pushed_later),
        cmocka_unit_test(more_than_fits_is_counted),
        cmocka_unit_test(only_numbers_are_kept),
        cmocka_unit_test(pulls_end_in_time),
        cmocka_unit_test(nobody_is_waited_for),
        cmocka_unit_test(what_was_not_sent_never_counts),
        cmocka_unit_test(zeros_that_arrive_are_no_row),
        cmocka_unit_test(what_was_not_sent_is_missing),
        cmocka_unit_test(answers_that_end_too_early_are_bad),
        cmocka_unit_test(resuming_ends_with_a_bad_answer),
        cmocka_unit_test(now_with_packed_ids),
        cmocka_unit_test(missed_rows_are_named),
        cmocka_unit_test(failed_rows_are_named),
        cmocka_unit_test(what_is_lost_is_pushed_later),
        cmocka_unit_test(more_than_fits_is_counted),
        cmocka_unit_test(only_numbers_are_kept),
        cmocka_unit_test(pulls_end_in_time),
        cmocka_unit_test(nobody_is_waited_for),
        cmocka_unit_test(what_was_not_sent_never_counts),
        cmocka_unit_test(zeros_that_arrive_are_no_row),
        cmocka_unit_test(what_was_not_sent_is_missing),
        cmocka_unit_test(answers_that_end_too_early_are_bad),
        cmocka_unit_test(resuming_ends_with_a_bad_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
