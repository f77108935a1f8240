/* Workers and shards over the fake transport: the values that a pull may return under BSP, SSP and
 * ASP, compared with a slow oracle (gradients are integers, so sums are exact in any order). */
#include "ps_client_rig.h"

/* ---- BSP against an oracle ------------------------------------------------------------------- */

enum { IDS = 500, CLOCKS = 5, WORKERS = 3, ROWS_MAX = 350 };

/* The actions of worker w in clock k, drawn from the seed; the oracle draws the same. */
struct step {
    uint32_t n;
    uint64_t ids[ROWS_MAX];
    float *rows; /* (n, dim) */
};

static void step_draw(struct step *step, uint64_t seed, uint32_t w, uint32_t clock, uint32_t dim)
{
    struct weft_prng prng;
    weft_prng_split(&prng, seed, w * 100 + clock);
    step->n = (uint32_t)weft_prng_below(&prng, dim > 20 ? 40 : ROWS_MAX + 1);
    step->rows = malloc((size_t)step->n * dim * 4 + 1);
    for (uint32_t i = 0; i < step->n; i++) {
        step->ids[i] = id_of(weft_prng_below(&prng, IDS)); /* with repetitions */
        for (uint32_t d = 0; d < dim; d++) {
            step->rows[i * dim + d] = WORKERS * ((float)weft_prng_below(&prng, 21) - 10);
        }
    }
}

/* weights (CLOCKS + 1, IDS, dim): after each number of clocks. */
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
    c.net->expects_max = 1 + (uint32_t)weft_prng_below(&prng, 6); /* sometimes NOMEM */
    c.net->msgs_max = 1 + (uint32_t)weft_prng_below(&prng, 6);    /* sometimes AGAIN */
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
        assert_int_equal(weft_ps_client_counters(c.client[w])->replies_malformed, 0);
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

/* A worker that does not pull runs ahead; its pushes of clock 2 must not be applied in clock 1. */
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

/* A pull of the next clock in three requests, two of which may be sent. It blocks neither later
 * requests nor pulls of this clock, and returns the weights at the beginning of the next clock. */
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

/* Rule 7 if each pull is sent before the reply to the previous one. */
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

/* Every worker adds 1 to one row twice in every clock, so the row counts pushes. A pull must see
 * all pushes of its worker and, in SSP, also those that other workers must have completed. */
enum { SSP_WORKERS = 3, SSP_CLOCKS = 12 };

struct adder {
    uint32_t made;  /* pushes made */
    uint32_t clock; /* finished */
    bool pulling;
    weft_ps_op pushes[2];
    weft_ps_op pull;
    float seen;
};

/* Two pushes, a clock and a pull, without waiting for any. */
static void adder_begin(struct cluster *c, struct adder *a, uint32_t w)
{
    static const uint64_t id = 7;
    static const float row = -SSP_WORKERS;
    if (!weft_ps_clock_accepted(c->client[w], 0)) {
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
    assert_true(waits > 0); /* otherwise the seed tests little */
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

/* The slowest worker blocks the others at its clock + staleness, not earlier. */
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
