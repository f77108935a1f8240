/* Workers and shards against each other: what a pull may see under BSP, SSP and ASP compared with a
 * slow oracle (gradients are whole numbers, so sums are exact in any order), losses, limits, deaths. */
#include "ps_cluster.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>

/* SGD with rate 1: a row is minus the sum of its gradients / W. */
static struct weft_table_spec sgd_spec(uint32_t dim, uint8_t mode, uint16_t workers)
{
    return (struct weft_table_spec){.dim = dim,
                                    .mode = mode,
                                    .workers = workers,
                                    .learning_rate = 1,
                                    .staleness = mode == WEFT_TABLE_SSP ? 2 : 0};
}

static uint32_t blocks_of(uint32_t dim)
{
    return weft_table_blocks(&(struct weft_table_spec){.dim = dim});
}

static struct weft_ps_result push(struct cluster *c, uint32_t w, const uint64_t *ids,
                                  const float *rows, uint32_t n)
{
    weft_ps_op op;
    assert_int_equal(weft_ps_push(c->client[w], 0, ids, rows, n, 0, c->net->now_ns, &op), WEFT_OK);
    return cluster_wait(c, w, op);
}

static struct weft_ps_result pull(struct cluster *c, uint32_t w, const uint64_t *ids, float *rows,
                                  uint32_t n)
{
    weft_ps_op op;
    assert_int_equal(weft_ps_pull(c->client[w], 0, ids, rows, n, 0, c->net->now_ns, &op), WEFT_OK);
    return cluster_wait(c, w, op);
}

/* ---- BSP against an oracle ------------------------------------------------------------------- */

enum { IDS = 500, CLOCKS = 5, WORKERS = 3, ROWS_MAX = 350 };

/* What worker w does in clock k, drawn from the seed: the oracle draws the same. */
struct step {
    uint32_t n;
    uint64_t ids[ROWS_MAX];
    float *rows; /* (n, dim) */
};

static uint64_t id_of(uint64_t i)
{
    return i == 0 ? UINT64_MAX : i * UINT64_C(0x9e3779b97f4a7c15);
}

static void step_draw(struct step *step, uint64_t seed, uint32_t w, uint32_t clock, uint32_t dim)
{
    struct weft_prng prng;
    weft_prng_split(&prng, seed, w * 100 + clock);
    step->n = (uint32_t)weft_prng_below(&prng, dim > 20 ? 40 : ROWS_MAX + 1);
    step->rows = malloc((size_t)step->n * dim * 4 + 1);
    for (uint32_t i = 0; i < step->n; i++) {
        step->ids[i] = id_of(weft_prng_below(&prng, IDS)); /* repeats happen */
        for (uint32_t d = 0; d < dim; d++) {
            step->rows[i * dim + d] = WORKERS * ((float)weft_prng_below(&prng, 21) - 10);
        }
    }
}

/* weights (CLOCKS + 1, IDS, dim): after so many clocks. */
static float *oracle(uint64_t seed, uint32_t dim)
{
    float *all = calloc((size_t)(CLOCKS + 1) * IDS * dim, 4);
    for (uint32_t k = 1; k <= CLOCKS; k++) {
        float *now = all + (size_t)k * IDS * dim;
        memcpy(now, now - (size_t)IDS * dim, (size_t)IDS * dim * 4);
        for (uint32_t w = 0; w < WORKERS; w++) {
            struct step step;
            step_draw(&step, seed, w, k, dim);
            for (uint32_t i = 0; i < step.n; i++) {
                for (uint32_t j = 0; j < IDS; j++) {
                    for (uint32_t d = 0; j < IDS && id_of(j) == step.ids[i] && d < dim; d++) {
                        now[j * dim + d] -= step.rows[i * dim + d] / WORKERS;
                    }
                }
            }
            free(step.rows);
        }
    }
    return all;
}

/* A worker as a state machine, so that all of them interleave. */
struct trainer {
    uint32_t clock; /* in progress, from 1 */
    int phase;      /* 0 pull, 1 wait, 2 push, 3 wait, 4 clock */
    weft_ps_op op;
    struct step step;
    uint64_t ids[IDS];
    float *rows;
};

static void trainer_turn(struct cluster *c, struct trainer *t, uint32_t w, uint64_t seed,
                         uint32_t dim, const float *truth)
{
    struct weft_ps_client *client = c->client[w];
    struct weft_ps_result result;
    uint64_t now = c->net->now_ns;
    switch (t->phase) {
    case 0:
        memset(t->rows, 0x7f, (size_t)IDS * dim * 4);
        t->phase += weft_ps_pull(client, 0, t->ids, t->rows, IDS, 0, now, &t->op) == WEFT_OK;
        break;
    case 1:
        if (weft_ps_op_done(client, t->op, &result)) {
            assert_int_equal(result.status, WEFT_OK);
            assert_int_equal(result.clock, t->clock - 1);
            assert_int_equal(result.elements_delivered, IDS * blocks_of(dim));
            assert_memory_equal(t->rows, truth + (size_t)(t->clock - 1) * IDS * dim,
                                (size_t)IDS * dim * 4);
            weft_ps_op_release(client, t->op);
            t->phase = t->clock > CLOCKS ? 5 : 2;
        }
        break;
    case 2:
        step_draw(&t->step, seed, w, t->clock, dim);
        t->phase += weft_ps_push(client, 0, t->step.ids, t->step.rows, t->step.n, 0, now, &t->op) ==
                    WEFT_OK;
        free(t->step.rows);
        break;
    case 3:
        if (weft_ps_op_done(client, t->op, &result)) {
            assert_int_equal(result.status, WEFT_OK);
            assert_int_equal(result.elements_delivered, t->step.n * blocks_of(dim));
            weft_ps_op_release(client, t->op);
            t->phase = 4;
        }
        break;
    case 4:
        if (weft_ps_clock(client, 0, now) == WEFT_OK) {
            t->clock++;
            t->phase = 0;
        }
        break;
    }
}

static void bsp_run(uint64_t seed, uint32_t dim, uint32_t shards)
{
    struct weft_prng prng;
    weft_prng_init(&prng, seed);
    struct cluster_config config = cluster_config(shards, WORKERS);
    config.shard.dim_max = config.client.dim_max = dim;
    config.shard.push_slots = 1 + (uint32_t)weft_prng_below(&prng, 4);
    config.shard.pull_slots = 1 + (uint32_t)weft_prng_below(&prng, 4);
    config.client.rows_per_rpc_max = 20 + (uint32_t)weft_prng_below(&prng, 280);
    struct cluster c;
    cluster_start(&c, &config, WORKERS, seed);
    c.net->expects_limited_from = shards;
    c.net->expects_max = 1 + (uint32_t)weft_prng_below(&prng, 6); /* NOMEM now and then */
    c.net->msgs_max = 1 + (uint32_t)weft_prng_below(&prng, 6);    /* AGAIN, too */
    struct weft_table_spec spec = sgd_spec(dim, WEFT_TABLE_BSP, WORKERS);
    cluster_open(&c, &spec);
    float *truth = oracle(seed, dim);
    struct trainer trainers[WORKERS] = {0};
    for (uint32_t w = 0; w < WORKERS; w++) {
        trainers[w].clock = 1;
        trainers[w].rows = malloc((size_t)IDS * dim * 4);
        for (uint32_t i = 0; i < IDS; i++) {
            trainers[w].ids[i] = id_of(i);
        }
    }
    uint32_t done = 0, idle = 0;
    while (done < WORKERS && idle < 100) {
        idle = cluster_step(&c) ? 0 : idle + 1;
        done = 0;
        for (uint32_t w = 0; w < WORKERS; w++) {
            if (weft_prng_chance(&prng, 300000)) {
                trainer_turn(&c, &trainers[w], w, seed, dim, truth);
            }
            done += trainers[w].phase == 5;
        }
    }
    assert_int_equal(done, WORKERS);
    cluster_run(&c);
    for (uint32_t w = 0; w < WORKERS; w++) {
        free(trainers[w].rows);
        assert_false(weft_ps_client_busy(c.client[w]));
        assert_int_equal(weft_ps_client_counters(c.client[w])->replies_bad, 0);
    }
    for (uint32_t s = 0; s < shards; s++) {
        assert_false(weft_shard_busy(c.shard[s]));
        assert_int_equal(weft_shard_clock(c.shard[s], 0), CLOCKS);
        assert_int_equal(weft_shard_counters(c.shard[s])->chunks_refused, 0);
    }
    free(truth);
    cluster_stop(&c);
}

static void bsp_like_the_oracle(void **state)
{
    (void)state;
    static const uint32_t dims[] = {1, 5, 16, 300, 1024};
    for (uint64_t seed = 1; seed <= 15; seed++) {
        print_message("seed %u\n", (unsigned)seed);
        bsp_run(seed, dims[seed % 5], 1 + (uint32_t)seed % 3);
    }
}

/* Without pulling, a worker runs ahead; its pushes of clock 2 must not count in clock 1. */
static void bsp_pushes_ahead_wait(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(1, 2);
    struct cluster c;
    cluster_start(&c, &config, 2, 1);
    struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_BSP, 2);
    cluster_open(&c, &spec);
    const uint64_t id = 7;
    float row = 0;
    assert_int_equal(push(&c, 0, &id, (const float[]){-2}, 1).status, WEFT_OK);
    cluster_clock(&c, 0, 0);
    weft_ps_op ahead;
    assert_int_equal(weft_ps_push(c.client[0], 0, &id, (const float[]){-200}, 1, 0, 0, &ahead),
                     WEFT_OK);
    cluster_run(&c);
    assert_false(weft_ps_op_done(c.client[0], ahead, NULL));
    assert_int_equal(weft_ps_client_counters(c.client[0])->clock_probes, 1);
    assert_int_equal(push(&c, 1, &id, (const float[]){-20}, 1).status, WEFT_OK);
    cluster_clock(&c, 1, 0);
    assert_int_equal(pull(&c, 1, &id, &row, 1).status, WEFT_OK);
    assert_true(row == 11);
    assert_int_equal(cluster_wait(&c, 0, ahead).status, WEFT_OK);
    cluster_clock(&c, 0, 0);
    cluster_clock(&c, 1, 0);
    assert_int_equal(pull(&c, 1, &id, &row, 1).status, WEFT_OK);
    assert_true(row == 111);
    cluster_stop(&c);
}

static weft_status pull_ahead(struct cluster *c, uint32_t w, const uint64_t *ids, float *rows,
                              uint32_t n, uint32_t ahead, uint32_t bound_ppm, weft_ps_op *op_p)
{
    const struct weft_ps_list list = {.n = n, .ids = ids, .out = rows};
    const struct weft_ps_how how = {.bound_ppm = bound_ppm, .ahead = ahead};
    return weft_ps_begin(c->client[w], WEFT_RPC_PULL, &list, 1, &how, c->net->now_ns, op_p);
}

/* A pull of the next clock, in three requests, of which two may go: it holds up neither what is behind it
 * nor pulls of this clock, and sees what the clock after this one begins with. */
static void bsp_pulls_ahead(void **state)
{
    (void)state;
    enum { N = 900 };
    struct cluster_config config = cluster_config(1, 2);
    struct cluster c;
    cluster_start(&c, &config, 2, 1);
    struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_BSP, 2);
    cluster_open(&c, &spec);
    static uint64_t ids[N];
    static float minus[N], now[N], next[N];
    for (uint32_t i = 0; i < N; i++) {
        ids[i] = i;
        minus[i] = -2;
    }
    weft_ps_op ahead, again;
    assert_int_equal(pull_ahead(&c, 0, ids, next, N, 2, 0, &ahead), WEFT_INVALID);
    for (uint32_t clock = 1; clock <= 3; clock++) {
        assert_int_equal(pull_ahead(&c, 0, ids, next, N, 1, 0, &ahead), WEFT_OK);
        cluster_run(&c);
        assert_int_equal(push(&c, 0, ids, minus, N).status, WEFT_OK);
        assert_int_equal(push(&c, 1, ids, minus, N).status, WEFT_OK);
        assert_int_equal(pull(&c, 0, ids, now, N).status, WEFT_OK);
        assert_true(now[0] == 2 * (float)(clock - 1) && now[N - 1] == now[0]);
        cluster_clock(&c, 0, 0);
        cluster_run(&c);
        assert_false(weft_ps_op_done(c.client[0], ahead, NULL));
        cluster_clock(&c, 1, 0);
        assert_int_equal(cluster_wait(&c, 0, ahead).status, WEFT_OK);
        for (uint32_t i = 0; i < N; i++) {
            assert_true(next[i] == 2 * (float)clock);
        }
    }
    spec = sgd_spec(1, WEFT_TABLE_ASP, 2);
    spec.table = 1;
    cluster_open(&c, &spec);
    const struct weft_ps_list list = {.table = 1, .n = N, .ids = ids, .out = next};
    const struct weft_ps_how how = {.ahead = 1};
    assert_int_equal(
        weft_ps_begin(c.client[0], WEFT_RPC_PULL, &list, 1, &how, c.net->now_ns, &again),
        WEFT_INVALID);
    cluster_stop(&c);
}

/* Rule 7 where each pull is asked for before the one before is answered. */
static void ahead_nothing_is_missing_three_times(void **state)
{
    (void)state;
    enum { N = 1000, ROUNDS = 30 };
    struct cluster_config config = cluster_config(1, 1);
    config.client.rows_per_rpc_max = config.shard.rows_per_rpc_max = N;
    struct cluster c;
    cluster_start(&c, &config, 1, 5);
    struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_BSP, 1);
    cluster_open(&c, &spec);
    static uint64_t ids[N];
    static float minus[N], rows[2][N];
    uint32_t running[N] = {0}, twice = 0;
    for (uint32_t i = 0; i < N; i++) {
        ids[i] = i;
        minus[i] = -1;
    }
    assert_int_equal(push(&c, 0, ids, minus, N).status, WEFT_OK);
    cluster_clock(&c, 0, 0);
    c.net->loss_ppm = 1000000; /* as much as the bound allows */
    weft_ps_op op[2];
    assert_int_equal(pull_ahead(&c, 0, ids, rows[0], N, 0, 400000, &op[0]), WEFT_OK);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t now = round % 2, next = 1 - now;
        memset(rows[next], 0, sizeof(rows[next]));
        assert_int_equal(pull_ahead(&c, 0, ids, rows[next], N, 1, 400000, &op[next]), WEFT_OK);
        assert_true(cluster_wait(&c, 0, op[now]).rpcs_short > 0);
        for (uint32_t i = 0; i < N; i++) {
            running[i] = rows[now][i] == 1 ? 0 : running[i] + 1;
            twice += running[i] == 2;
            assert_true(running[i] < 3);
        }
        cluster_clock(&c, 0, 0);
    }
    assert_true(twice > 0);
    assert_true(cluster_wait(&c, 0, op[ROUNDS % 2]).rpcs_short > 0);
    cluster_stop(&c);
}

/* ---- SSP and ASP ----------------------------------------------------------------------------- */

/* Every worker adds 1 to one row twice in every clock, so the row counts pushes. A pull must see all
 * of one's own, in SSP also those that the others must have made. */
enum { SSP_WORKERS = 3, SSP_CLOCKS = 12 };

struct adder {
    uint32_t made;  /* pushes */
    uint32_t clock; /* finished */
    bool pulling;
    weft_ps_op pushes[2];
    weft_ps_op pull;
    float seen;
};

/* Two pushes, the clock, a pull, nothing of it waited for. */
static void adder_begin(struct cluster *c, struct adder *a, uint32_t w)
{
    static const uint64_t id = 7;
    static const float row = -SSP_WORKERS;
    if (!weft_ps_clock_known(c->client[w], 0)) {
        return;
    }
    for (int i = 0; i < 2; i++, a->made++) {
        assert_int_equal(weft_ps_push(c->client[w], 0, &id, &row, 1, 0, 0, &a->pushes[i]), WEFT_OK);
    }
    assert_int_equal(weft_ps_clock(c->client[w], 0, 0), WEFT_OK);
    assert_int_equal(weft_ps_pull(c->client[w], 0, &id, &a->seen, 1, 0, 0, &a->pull), WEFT_OK);
    a->clock++;
    a->pulling = true;
}

static void adder_end(struct cluster *c, struct adder *all, uint32_t w, uint8_t mode)
{
    struct adder *a = &all[w];
    struct weft_ps_result result;
    if (!weft_ps_op_done(c->client[w], a->pull, &result) ||
        !weft_ps_op_done(c->client[w], a->pushes[0], NULL) ||
        !weft_ps_op_done(c->client[w], a->pushes[1], NULL)) {
        return;
    }
    assert_int_equal(result.status, WEFT_OK);
    uint32_t least = a->made, most = 0;
    for (uint32_t v = 0; v < SSP_WORKERS; v++) {
        most += all[v].made;
        least += mode == WEFT_TABLE_SSP && v != w && a->clock > 2 ? 2 * (a->clock - 2) : 0;
    }
    assert_in_range((uint32_t)a->seen, least, most);
    weft_ps_op_release(c->client[w], a->pull);
    weft_ps_op_release(c->client[w], a->pushes[0]);
    weft_ps_op_release(c->client[w], a->pushes[1]);
    a->pulling = false;
}

static void ssp_asp_run(uint64_t seed, uint8_t mode)
{
    struct weft_prng prng;
    weft_prng_init(&prng, seed);
    struct cluster_config config = cluster_config(2, SSP_WORKERS);
    struct cluster c;
    cluster_start(&c, &config, SSP_WORKERS, seed);
    struct weft_table_spec spec = sgd_spec(1, mode, SSP_WORKERS);
    cluster_open(&c, &spec);
    struct adder all[SSP_WORKERS] = {0};
    uint32_t finished = 0, idle = 0;
    while (finished < SSP_WORKERS && idle < 1000) {
        idle = cluster_step(&c) ? 0 : idle + 1;
        uint32_t w = (uint32_t)weft_prng_below(&prng, SSP_WORKERS);
        if (all[w].pulling) {
            adder_end(&c, all, w, mode);
            finished += !all[w].pulling && all[w].clock == SSP_CLOCKS;
        } else if (all[w].clock < SSP_CLOCKS) {
            adder_begin(&c, &all[w], w);
        }
    }
    assert_int_equal(finished, SSP_WORKERS);
    uint64_t waits = 0;
    for (uint32_t s = 0; s < 2; s++) {
        waits += weft_shard_counters(c.shard[s])->waits;
    }
    assert_true(waits > 0); /* or this seed has not tested much */
    cluster_stop(&c);
}

static void ssp_sees_enough(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        ssp_asp_run(seed, WEFT_TABLE_SSP);
    }
}

static void asp_sees_its_own(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        ssp_asp_run(seed, WEFT_TABLE_ASP);
    }
}

/* The slowest worker holds the others at its clock + staleness, not earlier. */
static void ssp_holds_at_the_bound(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(1, 2);
    struct cluster c;
    cluster_start(&c, &config, 2, 5);
    struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_SSP, 2); /* staleness 2 */
    cluster_open(&c, &spec);
    const uint64_t id = 1;
    float row;
    for (int k = 0; k < 2; k++) {
        cluster_clock(&c, 0, 0);
        assert_int_equal(pull(&c, 0, &id, &row, 1).status, WEFT_OK);
    }
    cluster_clock(&c, 0, 0);
    weft_ps_op op;
    assert_int_equal(weft_ps_pull(c.client[0], 0, &id, &row, 1, 0, 0, &op), WEFT_OK);
    cluster_run(&c);
    assert_false(weft_ps_op_done(c.client[0], op, NULL));
    cluster_clock(&c, 1, 0);
    struct weft_ps_result result = cluster_wait(&c, 0, op);
    assert_int_equal(result.status, WEFT_OK);
    assert_int_equal(result.clock, 1);
    assert_true(result.latency.ps_wait_ns > 0);
    cluster_stop(&c);
}

/* ---- loss ------------------------------------------------------------------------------------ */

enum { MANY = 1000 };

static void fill_ids(uint64_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = id_of(i);
    }
}

static void gaps_keep_old_values_run(uint32_t dim, uint64_t seed)
{
    struct cluster_config config = cluster_config(2, 1);
    config.shard.dim_max = config.client.dim_max = dim;
    config.client.rows_per_rpc_max = config.shard.rows_per_rpc_max = MANY;
    struct cluster c;
    cluster_start(&c, &config, 1, seed);
    struct weft_table_spec spec = sgd_spec(dim, WEFT_TABLE_ASP, 1);
    cluster_open(&c, &spec);
    static uint64_t ids[MANY];
    float *rows = malloc((size_t)MANY * dim * 4);
    fill_ids(ids, MANY);
    for (uint32_t i = 0; i < MANY * dim; i++) {
        rows[i] = -(float)(i % 1000 + 1);
    }
    assert_int_equal(push(&c, 0, ids, rows, MANY).status, WEFT_OK);
    uint64_t got_all = 0, sent_all = 0;
    uint32_t first = 0;
    for (uint32_t round = 0; round < 6; round++) {
        for (uint32_t i = 0; i < MANY * dim; i++) {
            rows[i] = -5;
        }
        c.net->loss_ppm = round == 5 ? 0 : 1000000;
        weft_ps_op op;
        assert_int_equal(weft_ps_pull(c.client[0], 0, ids, rows, MANY, 700000, 0, &op), WEFT_OK);
        struct weft_ps_result result = cluster_wait(&c, 0, op);
        assert_int_equal(result.status, WEFT_OK);
        uint32_t blocks = blocks_of(dim), new_blocks = 0, missed_rows = 0;
        for (uint32_t r = 0; r < MANY; r++) {
            bool whole = true;
            for (uint32_t b = 0; b < blocks; b++) {
                bool is_new = rows[r * dim + b * 256] != -5;
                for (uint32_t d = 0; d < weft_table_block_used(&spec, b); d++) {
                    uint32_t i = r * dim + b * 256 + d;
                    assert_true(rows[i] == (is_new ? (float)(i % 1000 + 1) : -5));
                }
                new_blocks += is_new;
                whole &= is_new;
            }
            missed_rows += !whole;
        }
        assert_int_equal(result.elements_sent, MANY * blocks);
        assert_int_equal(result.elements_delivered, new_blocks);
        const struct weft_ps_client_counters *counters = weft_ps_client_counters(c.client[0]);
        assert_int_equal(counters->missed_now, missed_rows);
        assert_int_equal(counters->missed_first, first);
        first += missed_rows;
        assert_true((missed_rows > 0) == (round < 5));
        got_all += new_blocks;
        sent_all += MANY * blocks;
        assert_int_equal(counters->pull.elements_delivered, got_all);
        assert_int_equal(counters->pull.elements_sent, sent_all);
    }
    free(rows);
    cluster_stop(&c);
}

static void gaps_keep_old_values(void **state)
{
    (void)state;
    gaps_keep_old_values_run(1, 1);
    gaps_keep_old_values_run(8, 2);
    gaps_keep_old_values_run(300, 3);
}

/* As long as they fit the first chunk, rows missed once are not missed again. */
static void missed_rows_come_first(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(1, 1);
    config.client.rows_per_rpc_max = config.shard.rows_per_rpc_max = MANY;
    struct cluster c;
    cluster_start(&c, &config, 1, 9);
    struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_ASP, 1);
    cluster_open(&c, &spec);
    static uint64_t ids[MANY];
    static float rows[MANY];
    fill_ids(ids, MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        rows[i] = -1;
    }
    assert_int_equal(push(&c, 0, ids, rows, MANY).status, WEFT_OK);
    c.net->loss_ppm = 1000000; /* as much as the bound allows: 1 chunk of 3 */
    bool missed[MANY] = {false};
    for (int round = 0; round < 4; round++) {
        memset(rows, 0, sizeof(rows));
        weft_ps_op op;
        assert_int_equal(weft_ps_pull(c.client[0], 0, ids, rows, MANY, 400000, 0, &op), WEFT_OK);
        struct weft_ps_result result = cluster_wait(&c, 0, op);
        assert_int_equal(result.rpcs_short, 1);
        uint32_t again = 0, count = 0;
        for (uint32_t i = 0; i < MANY; i++) {
            again += missed[i] && rows[i] == 0;
            missed[i] = rows[i] == 0;
            count += missed[i];
        }
        /* 352 were missed, 338 of them fit behind the head in chunk 0; the rest is in chunk 1. */
        assert_int_equal(count, 352);
        assert_true(round == 0 || again <= 352 - 338);
    }
    cluster_stop(&c);
}

/* Rule 7: what was missing twice running is there the third time, however many rows that are. */
static void nothing_is_missing_three_times(bool is_push, uint32_t dim, uint32_t shards)
{
    enum { ROUNDS = 30 };
    struct cluster_config config = cluster_config(shards, 1);
    config.shard.dim_max = config.client.dim_max = dim;
    config.client.rows_per_rpc_max = config.shard.rows_per_rpc_max = MANY;
    struct cluster c;
    cluster_start(&c, &config, 1, dim);
    struct weft_table_spec spec = sgd_spec(dim, WEFT_TABLE_ASP, 1);
    cluster_open(&c, &spec);
    static uint64_t ids[MANY];
    static float before[MANY][3];
    uint8_t running[MANY] = {0};
    uint32_t twice = 0;
    float *rows = calloc((size_t)MANY * dim, sizeof(float));
    fill_ids(ids, MANY);
    memset(before, 0, sizeof(before));
    for (uint32_t i = 0; !is_push && i < MANY * dim; i++) {
        rows[i] = -1;
    }
    assert_true(is_push || push(&c, 0, ids, rows, MANY).status == WEFT_OK);
    for (int round = 0; round < ROUNDS; round++) {
        weft_ps_op op;
        for (uint32_t i = 0; i < MANY * dim; i++) {
            rows[i] = is_push ? -1 : 0;
        }
        c.net->loss_ppm = is_push && dim > 256 ? 400000 : 1000000; /* some blocks of a row */
        assert_int_equal(is_push
                             ? weft_ps_push(c.client[0], 0, ids, rows, MANY, 400000, 0, &op)
                             : weft_ps_pull(c.client[0], 0, ids, rows, MANY, 400000, 0, &op),
                         WEFT_OK);
        assert_true(cluster_wait(&c, 0, op).rpcs_short > 0);
        c.net->loss_ppm = 0;
        assert_true(!is_push || pull(&c, 0, ids, rows, MANY).status == WEFT_OK);
        for (uint32_t i = 0; i < MANY; i++) {
            bool came = true;
            for (uint32_t b = 0; b * 256 < dim; b++) {
                float now = rows[i * dim + b * 256];
                came = came && now != (is_push ? before[i][b] : 0);
                before[i][b] = now;
            }
            running[i] = came ? 0 : running[i] + 1;
            twice += running[i] == 2;
            assert_true(running[i] <= 2);
        }
    }
    assert_true(twice > 0); /* it was put to the test */
    free(rows);
    cluster_stop(&c);
}

static void rows_are_not_missing_three_times(void **state)
{
    (void)state;
    nothing_is_missing_three_times(false, 1, 1);
    nothing_is_missing_three_times(false, 16, 2);
    nothing_is_missing_three_times(false, 256, 1);
    nothing_is_missing_three_times(false, 600, 2);
}

static void gradients_are_not_missing_three_times(void **state)
{
    (void)state;
    nothing_is_missing_three_times(true, 1, 1);
    nothing_is_missing_three_times(true, 16, 2);
    nothing_is_missing_three_times(true, 256, 1);
    nothing_is_missing_three_times(true, 512, 1);
    nothing_is_missing_three_times(true, 600, 2);
}

/* Four blocks are pushed, each in a chunk of its own, and the first two that may be missing are.
 * wanted: bits of the rows, push by push. */
static void missing_in_turn(uint32_t dim, uint32_t n, const uint64_t *ids, const uint64_t wanted[3])
{
    struct cluster_config config = cluster_config(1, 1);
    config.shard.dim_max = config.client.dim_max = dim;
    struct cluster c;
    cluster_start(&c, &config, 1, 3);
    struct weft_table_spec spec = sgd_spec(dim, WEFT_TABLE_ASP, 1);
    cluster_open(&c, &spec);
    static const float rows[4 * 256];
    c.net->loss_ppm = 1000000;
    for (uint32_t round = 0; round < 3; round++) {
        weft_ps_op op;
        uint32_t count;
        assert_int_equal(weft_ps_push(c.client[0], 0, ids, rows, n, 500000, 0, &op), WEFT_OK);
        cluster_run(&c);
        assert_true(weft_ps_op_done(c.client[0], op, NULL));
        const uint64_t *missed = weft_ps_op_missed(c.client[0], op, &count);
        assert_int_equal(missed == NULL ? 0 : missed[0], wanted[round]);
        weft_ps_op_release(c.client[0], op);
    }
    cluster_stop(&c);
}

/* Twice is two pushes: not two blocks of a row, nor an id that is there twice. */
static void a_row_is_missing_once_a_push(void **state)
{
    (void)state;
    missing_in_turn(512, 2, (const uint64_t[]){5, 6}, (const uint64_t[]){1, 1, 2});
    missing_in_turn(256, 4, (const uint64_t[]){5, 5, 6, 6}, (const uint64_t[]){3, 3, 12});
    missing_in_turn(256, 4, (const uint64_t[]){5, 6, 5, 6}, (const uint64_t[]){3, 3, 0});
}

/* What the client says was delivered is what the shards applied, each element once. */
static void lossy_pushes_are_counted(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct cluster_config config = cluster_config(2, 2);
        struct cluster c;
        cluster_start(&c, &config, 2, seed);
        struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_ASP, 2);
        cluster_open(&c, &spec);
        static uint64_t ids[MANY];
        static float rows[MANY];
        fill_ids(ids, MANY);
        for (uint32_t i = 0; i < MANY; i++) {
            rows[i] = -2;
        }
        c.net->loss_ppm = 400000;
        uint64_t delivered = 0, applied = 0;
        for (uint32_t w = 0; w < 2; w++) {
            weft_ps_op op;
            assert_int_equal(weft_ps_push(c.client[w], 0, ids, rows, MANY, 350000, 0, &op),
                             WEFT_OK);
            struct weft_ps_result result = cluster_wait(&c, w, op);
            assert_int_equal(result.elements_sent, MANY);
            assert_int_equal(result.status, WEFT_OK);
            delivered += result.elements_delivered;
        }
        assert_true(delivered < 2 * MANY);
        c.net->loss_ppm = 0;
        assert_int_equal(pull(&c, 0, ids, rows, MANY).status, WEFT_OK);
        for (uint32_t i = 0; i < MANY; i++) {
            applied += (uint64_t)rows[i];
        }
        assert_int_equal(applied, delivered);
        assert_int_equal(weft_shard_counters(c.shard[0])->elements_applied +
                             weft_shard_counters(c.shard[1])->elements_applied,
                         delivered);
        cluster_stop(&c);
    }
}

/* ---- limits and refusals --------------------------------------------------------------------- */

static void empty_operations(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(2, 1);
    struct cluster c;
    cluster_start(&c, &config, 1, 1);
    weft_ps_op op;
    assert_int_equal(weft_ps_push(c.client[0], 0, NULL, NULL, 0, 0, 0, &op), WEFT_STATE);
    struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_ASP, 1);
    cluster_open(&c, &spec);
    uint64_t steps = c.net->seq;
    assert_int_equal(push(&c, 0, NULL, NULL, 0).status, WEFT_OK);
    assert_int_equal(pull(&c, 0, NULL, NULL, 0).rpcs, 0);
    assert_int_equal(c.net->seq, steps); /* no message */
    /* One id: the other shard gets no message. */
    const uint64_t id = 3;
    const float row = 1;
    assert_int_equal(push(&c, 0, &id, &row, 1).rpcs, 1);
    assert_int_equal(weft_ps_push(c.client[0], 0, &id, &row, 1001, 0, 0, &op), WEFT_INVALID);
    assert_int_equal(weft_ps_push(c.client[0], 0, &id, &row, 1, WEFT_PPM, 0, &op), WEFT_INVALID);
    assert_int_equal(weft_ps_table_open(c.client[0], &spec, 0, &op), WEFT_EXISTS);
    c.net->packet_bytes = 32; /* a head of 40 bytes does not fit */
    assert_int_equal(weft_ps_push(c.client[0], 0, &id, &row, 1, 0, 0, &op), WEFT_UNSUPPORTED);
    cluster_stop(&c);
}

static void tables_must_agree(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(1, 2);
    struct cluster c;
    cluster_start(&c, &config, 2, 1);
    struct weft_table_spec spec = sgd_spec(4, WEFT_TABLE_ASP, 2);
    weft_ps_op op;
    assert_int_equal(weft_ps_table_open(c.client[0], &spec, 0, &op), WEFT_OK);
    assert_int_equal(cluster_wait(&c, 0, op).status, WEFT_OK);
    spec.learning_rate = 2;
    assert_int_equal(weft_ps_table_open(c.client[1], &spec, 0, &op), WEFT_OK);
    struct weft_ps_result result = cluster_wait(&c, 1, op);
    assert_int_equal(result.status, WEFT_DATA);
    assert_int_equal(result.rpc_status, WEFT_RPC_SPEC_MISMATCH);
    assert_int_equal(weft_ps_push(c.client[1], 0, NULL, NULL, 0, 0, 0, &op), WEFT_STATE);
    spec.learning_rate = 1;
    assert_int_equal(weft_ps_table_open(c.client[1], &spec, 0, &op), WEFT_OK);
    assert_int_equal(cluster_wait(&c, 1, op).status, WEFT_OK);
    spec.table = 1;
    spec.workers = 3; /* more than the server takes */
    assert_int_equal(weft_ps_table_open(c.client[1], &spec, 0, &op), WEFT_OK);
    assert_int_equal(cluster_wait(&c, 1, op).rpc_status, WEFT_RPC_BAD_SPEC);
    cluster_stop(&c);
}

static void full_slots_are_back_pressure(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(1, 1);
    config.shard.push_slots = config.shard.pull_slots = 1;
    config.client.rows_per_rpc_max = 10;
    struct cluster c;
    cluster_start(&c, &config, 1, 1);
    struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_ASP, 1);
    cluster_open(&c, &spec);
    static uint64_t ids[MANY];
    static float rows[MANY];
    fill_ids(ids, MANY);
    weft_ps_op ops[9];
    for (int i = 0; i < 8; i++) {
        assert_int_equal(weft_ps_push(c.client[0], 0, ids, rows, 200, 0, 0, &ops[i]), WEFT_OK);
    }
    assert_int_equal(weft_ps_push(c.client[0], 0, ids, rows, 200, 0, 0, &ops[8]), WEFT_AGAIN);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(cluster_wait(&c, 0, ops[i]).status, WEFT_OK);
    }
    assert_true(c.net->unmatched > 0);
    assert_int_equal(weft_shard_counters(c.shard[0])->elements_applied, 8 * 200);
    assert_true(weft_ps_client_counters(c.client[0])->again > 0);
    assert_false(weft_shard_busy(c.shard[0]));
    cluster_stop(&c);
}

/* More pulls than messages may be unconfirmed, all waiting for this worker's own CLOCK, which waits
 * for a push that is slow. */
static void pulls_leave_room_for_the_clock(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(1, 1);
    config.shard.pull_slots = 1;
    config.client.rows_per_rpc_max = 10;
    struct cluster c;
    cluster_start(&c, &config, 1, 1);
    struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_BSP, 1);
    cluster_open(&c, &spec);
    static uint64_t ids[MANY];
    static float rows[MANY];
    fill_ids(ids, MANY);
    rows[0] = -1;
    weft_ps_op slow, op;
    assert_int_equal(weft_ps_push(c.client[0], 0, ids, rows, 1, 0, 0, &slow), WEFT_OK);
    struct fake_message *m = fake_find(c.net, c.net->seq);
    m->held = true;
    assert_int_equal(weft_ps_clock(c.client[0], 0, 0), WEFT_OK);
    assert_int_equal(weft_ps_pull(c.client[0], 0, ids, rows, MANY, 0, 0, &op), WEFT_OK);
    cluster_run(&c);
    assert_false(weft_ps_op_done(c.client[0], op, NULL));
    m->held = false;
    assert_int_equal(cluster_wait(&c, 0, op).status, WEFT_OK);
    assert_true(rows[0] == 1 && rows[1] == 0);
    cluster_stop(&c);
}

static void no_slab_no_new_rows(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(1, 1);
    struct cluster c;
    cluster_start(&c, &config, 1, 1);
    c.slabs_allowed = 1; /* 16,384 bytes: 512 rows of 32 bytes */
    struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_ASP, 1);
    cluster_open(&c, &spec);
    static uint64_t ids[MANY];
    static float rows[MANY];
    fill_ids(ids, MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        rows[i] = -1;
    }
    struct weft_ps_result result = push(&c, 0, ids, rows, MANY);
    assert_int_equal(result.status, WEFT_DATA);
    assert_int_equal(result.rpc_status, WEFT_RPC_FULL);
    assert_true(result.chunks_refused > 0);
    const struct weft_shard_counters *counters = weft_shard_counters(c.shard[0]);
    assert_int_equal(counters->rows_refused, result.chunks_refused);
    assert_int_equal(counters->chunks_refused, result.chunks_refused);
    float total = 0;
    assert_int_equal(pull(&c, 0, ids, rows, MANY).status, WEFT_OK);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_true(rows[i] == 0 || rows[i] == 1);
        total += rows[i];
    }
    assert_true((uint64_t)total == counters->elements_applied && total > 0);
    c.slabs_allowed = 100; /* memory comes: it goes on */
    cluster_poll(&c);
    for (uint32_t i = 0; i < MANY; i++) {
        rows[i] = -1;
    }
    assert_int_equal(push(&c, 0, ids, rows, MANY).status, WEFT_OK);
    cluster_stop(&c);
}

static void not_a_number_is_refused(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(1, 1);
    struct cluster c;
    cluster_start(&c, &config, 1, 1);
    struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_ASP, 1);
    cluster_open(&c, &spec);
    static uint64_t ids[250];
    static float rows[250];
    fill_ids(ids, 250);
    for (uint32_t i = 0; i < 250; i++) {
        rows[i] = -1;
    }
    rows[240] = NAN; /* chunks of 96, the first with 92 rows: it lies in the third */
    struct weft_ps_result result = push(&c, 0, ids, rows, 250);
    assert_int_equal(result.rpc_status, WEFT_RPC_NOT_FINITE);
    assert_int_equal(result.chunks_refused, 1);
    assert_int_equal(pull(&c, 0, ids, rows, 250).status, WEFT_OK);
    for (uint32_t i = 0; i < 250; i++) {
        assert_true(rows[i] == (i < 92 + 96 ? 1 : 0));
    }
    cluster_stop(&c);
}

/* ---- deaths ---------------------------------------------------------------------------------- */

static void a_shard_dies(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct cluster_config config = cluster_config(2, 1);
        struct cluster c;
        cluster_start(&c, &config, 1, seed);
        struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_BSP, 1);
        cluster_open(&c, &spec);
        static uint64_t ids[MANY];
        static float rows[MANY], out[MANY];
        fill_ids(ids, MANY);
        weft_ps_op a, b, late;
        assert_int_equal(weft_ps_push(c.client[0], 0, ids, rows, MANY, 0, 0, &a), WEFT_OK);
        assert_int_equal(weft_ps_clock(c.client[0], 0, 0), WEFT_OK);
        assert_int_equal(weft_ps_pull(c.client[0], 0, ids, out, MANY, 0, 0, &b), WEFT_OK);
        for (uint64_t i = 0; i < seed; i++) {
            (void)cluster_step(&c);
        }
        fake_kill(c.net, 1);
        cluster_poll(&c);
        assert_int_equal(weft_ps_pull(c.client[0], 0, ids, out, MANY, 0, 0, &late), WEFT_OK);
        cluster_run(&c);
        struct weft_ps_result result = cluster_wait(&c, 0, b);
        assert_int_equal(result.status, WEFT_PEER);
        assert_int_equal(result.shard, 1);
        assert_int_equal(cluster_wait(&c, 0, late).status, WEFT_PEER);
        (void)cluster_wait(&c, 0, a);
        assert_int_equal(weft_ps_clock(c.client[0], 0, 0), WEFT_PEER);
        assert_false(weft_ps_client_busy(c.client[0]));
        assert_false(weft_shard_busy(c.shard[0]));
        /* Nothing stays posted towards the dead. */
        for (uint32_t i = 0; i < FAKE_EXPECTS; i++) {
            assert_false(c.net->nodes[2].expects[i].live);
        }
        cluster_stop(&c);
    }
}

static void a_worker_dies_and_comes_back(void **state)
{
    (void)state;
    uint64_t applied = 0, shorts = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct cluster_config config = cluster_config(1, 2);
        struct cluster c;
        cluster_start(&c, &config, 2, seed);
        struct weft_table_spec spec = sgd_spec(1, WEFT_TABLE_BSP, 2);
        cluster_open(&c, &spec);
        static uint64_t ids[MANY];
        static float rows[MANY], out[MANY];
        fill_ids(ids, MANY);
        weft_ps_op op;
        assert_int_equal(weft_ps_push(c.client[0], 0, ids, rows, MANY, 0, 0, &op), WEFT_OK);
        cluster_clock(&c, 1, 0); /* runs until worker 1's clock has gone out */
        assert_int_equal(weft_ps_pull(c.client[1], 0, ids, out, MANY, 0, 0, &op), WEFT_OK);
        for (uint64_t i = 0; i < 2 * seed; i++) {
            (void)cluster_step(&c);
        }
        const struct weft_shard_counters *counters = weft_shard_counters(c.shard[0]);
        fake_kill(c.net, 1);
        cluster_poll(&c);
        assert_int_equal(counters->workers_replaced, 0);
        /* What had arrived stays; the other one still waits for the dead one. */
        cluster_run(&c);
        applied += counters->elements_applied;
        assert_false(weft_ps_op_done(c.client[1], op, NULL));
        assert_int_equal(weft_shard_clock(c.shard[0], 0), 0);
        for (uint32_t i = 0; i < FAKE_EXPECTS; i++) {
            const struct fake_expect *e = &c.net->nodes[0].expects[i];
            assert_false(e->live && e->expect.peer == fake_peer(1));
        }
        /* A new process of that rank: on another node, as after a restart. */
        c.net->nodes[4].name = weft_rpc_name(WEFT_ROLE_WORKER, 0);
        fake_connect(c.net, 4, 0);
        cluster_poll(&c);
        struct weft_ps_client_config config2 = config.client;
        config2.clock_ns = fake_clock_ns;
        config2.clock_arg = c.net;
        weft_ps_client_free(c.client[0]);
        c.client[0] = NULL;
        struct weft_ps_client *again;
        weft_peer peer = fake_peer(0);
        assert_int_equal(weft_ps_client_new(&config2, fake_msgr(c.net, 4), &peer, &again), WEFT_OK);
        weft_ps_op open;
        assert_int_equal(weft_ps_table_open(again, &spec, 0, &open), WEFT_OK);
        struct weft_msg_event event;
        bool clocked = false;
        c.workers = 0; /* cluster_poll would feed the dead one */
        for (int i = 0; i < 3000; i++) {
            (void)fake_step(c.net);
            cluster_poll(&c);
            while (fake_poll(&c.net->nodes[4], &event)) {
                weft_ps_client_event(again, &event, 0);
            }
            while (fake_poll(&c.net->nodes[2], &event)) {
                weft_ps_client_event(c.client[1], &event, 0);
            }
            weft_ps_client_progress(again, 0);
            weft_ps_client_progress(c.client[1], 0);
            if (!clocked && weft_ps_op_done(again, open, NULL)) {
                clocked = weft_ps_clock(again, 0, 0) == WEFT_OK;
            }
        }
        assert_true(clocked && weft_ps_op_done(c.client[1], op, NULL));
        assert_int_equal(weft_shard_clock(c.shard[0], 0), 1);
        shorts += counters->requests_short;
        weft_ps_client_free(again);
        c.workers = 2;
        cluster_stop(&c);
    }
    assert_true(applied > 0 && shorts > 0);
}

/* ---- latencies ------------------------------------------------------------------------------- */

static void latencies_add_up(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(2, 1);
    struct cluster c;
    cluster_start(&c, &config, 1, 3);
    struct weft_table_spec spec = sgd_spec(16, WEFT_TABLE_ASP, 1);
    cluster_open(&c, &spec);
    static uint64_t ids[MANY];
    static float rows[MANY * 16];
    fill_ids(ids, MANY);
    uint32_t pushes = push(&c, 0, ids, rows, MANY).rpcs;
    struct weft_ps_result result = pull(&c, 0, ids, rows, MANY);
    const struct weft_ps_latencies *push_all = weft_ps_client_push_latencies(c.client[0]);
    const struct weft_ps_latencies *pull_all = weft_ps_client_pull_latencies(c.client[0]);
    assert_int_equal(push_all->n_tx.count, pushes);
    assert_int_equal(pull_all->n_tx.count, result.rpcs);
    assert_true(pushes >= 4); /* 300 rows an RPC at most */
    /* The clock moves only when looked at or with a step, so each figure is there, and the parts sum
     * up to the whole: nothing was clamped. */
    assert_int_equal(pull_all->total.sum, pull_all->n_tx.sum + pull_all->ps_proc.sum +
                                              pull_all->ps_queue.sum + pull_all->ps_wait.sum);
    assert_int_equal(push_all->total.sum, push_all->n_tx.sum + push_all->ps_proc.sum +
                                              push_all->ps_queue.sum + push_all->ps_wait.sum);
    assert_true(pull_all->ps_proc.sum > 0 && pull_all->w_proc.sum > 0 && pull_all->n_tx.sum > 0);
    assert_int_equal(pull_all->ps_wait.sum, 0);
    assert_true(result.latency.ps_overlap_ns > 0);
    cluster_stop(&c);
}

static void an_rpc_that_carries_nothing(void **state)
{
    (void)state;
    struct cluster_config config = cluster_config(2, 1);
    struct cluster c;
    cluster_start(&c, &config, 1, 3);
    struct weft_table_spec spec = sgd_spec(16, WEFT_TABLE_ASP, 1);
    uint64_t now = c.net->now_ns;
    weft_ps_op op;
    assert_int_equal(weft_ps_ask(c.client[0], 0, 0, now, &op), WEFT_STATE);
    cluster_open(&c, &spec);
    assert_int_equal(weft_ps_ask(c.client[0], 0, 2, now, &op), WEFT_INVALID);
    assert_int_equal(weft_ps_ask(c.client[0], 9, 0, now, &op), WEFT_STATE);
    for (uint32_t s = 0; s < 2; s++) {
        assert_int_equal(weft_ps_ask(c.client[0], 0, s, c.net->now_ns, &op), WEFT_OK);
        struct weft_ps_result result = cluster_wait(&c, 0, op);
        assert_int_equal(result.status, WEFT_OK);
        assert_int_equal(result.rpcs, 1);
        assert_int_equal(result.elements_delivered, 0);
    }
    const struct weft_ps_latencies *pulls = weft_ps_client_pull_latencies(c.client[0]);
    assert_int_equal(pulls->total.count, 2);
    weft_ps_client_latencies_clear(c.client[0]);
    assert_int_equal(pulls->total.count, 0);
    assert_int_equal(pulls->n_tx.sum, 0);
    cluster_stop(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bsp_like_the_oracle),
        cmocka_unit_test(bsp_pushes_ahead_wait),
        cmocka_unit_test(bsp_pulls_ahead),
        cmocka_unit_test(ahead_nothing_is_missing_three_times),
        cmocka_unit_test(ssp_sees_enough),
        cmocka_unit_test(asp_sees_its_own),
        cmocka_unit_test(ssp_holds_at_the_bound),
        cmocka_unit_test(gaps_keep_old_values),
        cmocka_unit_test(missed_rows_come_first),
        cmocka_unit_test(rows_are_not_missing_three_times),
        cmocka_unit_test(gradients_are_not_missing_three_times),
        cmocka_unit_test(a_row_is_missing_once_a_push),
        cmocka_unit_test(lossy_pushes_are_counted),
        cmocka_unit_test(empty_operations),
        cmocka_unit_test(tables_must_agree),
        cmocka_unit_test(full_slots_are_back_pressure),
        cmocka_unit_test(pulls_leave_room_for_the_clock),
        cmocka_unit_test(no_slab_no_new_rows),
        cmocka_unit_test(not_a_number_is_refused),
        cmocka_unit_test(a_shard_dies),
        cmocka_unit_test(a_worker_dies_and_comes_back),
        cmocka_unit_test(latencies_add_up),
        cmocka_unit_test(an_rpc_that_carries_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
