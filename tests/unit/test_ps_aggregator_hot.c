/* Workers that send hot rows through an aggregator and cold ones to the shard: every gradient
 * counts once and no pulled row is too old, while hot sets change, and the aggregator, connections
 * and the shard fail. */
#include "fewer.h"
#include "ps_boxes.h"

enum { SEEDS = FEWER(500), WORKERS = 4, HOT = 8, ROUNDS = 5 };

/* ---- the job --------------------------------------------------------------------------------- */

static void open_job(struct bench *b, uint8_t mode, uint64_t seed)
{
    via_timeout_ns = WEFT_NS_PER_S;
    hot_rows = HOT;
    bench_open(b, WORKERS, mode, seed);
    b->box[0].config.push_bytes_max = 4096;
    b->box[0].config.push_slots = 2;
    b->box[0].config.count_max = 0;
    b->box[0].config.age_ns = WEFT_NS_PER_S;
    b->box[0].config.pull_slots = 4;
    b->box[0].config.pull_rows_max = 100;
    b->box[0].config.cache_bytes = 1 << 20;
    b->box[0].config.pull_patience_ns = WEFT_NS_PER_S / 2;
    box_kill(b, &b->box[0]);
    bench_quiet(b);
    box_start(b, &b->box[0]);
    /* until workers reconnect to the aggregator */
    for (uint32_t steps = 0; steps < 200000; steps++) {
        bench_step(b);
    }
}

static void close_job(struct bench *b)
{
    bench_close(b);
    via_timeout_ns = 2 * WEFT_NS_PER_MS;
    hot_rows = hot_rows_most = 0;
}

static uint64_t cold_id(uint32_t w, uint32_t i)
{
    return HOT + (uint64_t)WORKERS * i + w;
}

/* The ids of a push: all hot ones, 0 .. HOT - 1, and some that only this worker uses. */
static uint32_t ids_of(uint32_t w, uint64_t *ids)
{
    uint32_t n = 0;
    for (uint64_t id = 0; id < HOT; id++) {
        ids[n++] = id;
    }
    for (uint32_t i = 0; i < 4; i++) {
        ids[n++] = cold_id(w, i);
    }
    return n;
}

static void push_known(struct bench *b, uint32_t w)
{
    uint64_t ids[PULL_IDS];
    float rows[PULL_IDS][DIM];
    const uint32_t n = ids_of(w, ids);
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t k = 0; k < DIM; k++) {
            rows[r][k] = (float)(1 + w);
            b->want[ids[r]][k] += rows[r][k];
            b->sums[w][ids[r]][k] += rows[r][k];
        }
    }
    assert_false(b->workers[w].busy[0]);
    assert_int_equal(weft_ps_push(b->c.client[w], 0, ids, &rows[0][0], n, 0, b->c.net->now_ns,
                                  &b->workers[w].op[0]),
                     WEFT_OK);
    b->workers[w].busy[0] = true;
}

/* One clock of all workers: each pulls the rows that it then pushes. */
static void round_of_all(struct bench *b)
{
    struct pull pull[WORKERS];
    for (uint32_t w = 0; w < WORKERS; w++) {
        pull[w].n = ids_of(w, pull[w].ids);
        for (uint32_t i = 0; i < pull[w].n; i++) {
            for (uint32_t k = 0; k < DIM; k++) {
                pull[w].must[i][k] = must_be(b, w, pull[w].ids[i], k);
            }
        }
        assert_int_equal(weft_ps_pull(b->c.client[w], 0, pull[w].ids, &pull[w].rows[0][0],
                                      pull[w].n, 0, b->c.net->now_ns, &pull[w].op),
                         WEFT_OK);
    }
    for (uint32_t w = 0; w < WORKERS; w++) {
        pull_check(b, w, &pull[w]);
        push_known(b, w);
    }
    end_clock(b);
    wait_all(b);
}

static void until_split(struct bench *b)
{
    for (uint32_t w = 0; w < WORKERS;) {
        assert_true(b->clock < CLOCKS_MAX - ROUNDS);
        round_of_all(b);
        b->c.net->now_ns += WEFT_NS_PER_MS;
        bench_quiet(b);
        for (w = 0; w < WORKERS && weft_ps_client_hot_epoch(b->c.client[w], 0, SHARD) > 0;) {
            w++;
        }
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Hot rows are summed at the aggregator; cold ones are sent to the shard as pushes with numbers of
 * their own. */
static void split(void **state)
{
    (void)state;
    const uint8_t modes[] = {WEFT_TABLE_BSP, WEFT_TABLE_SSP, WEFT_TABLE_ASP};
    uint64_t listed = 0;
    for (uint32_t seed = 0; seed < 24; seed++) { /* with key caching, and without */
        struct bench b;
        open_job(&b, modes[seed % 3], seed);
        until_split(&b);
        const struct weft_aggregator_counters before = *weft_aggregator_counters(b.box[0].agg);
        const struct weft_shard_counters shard = *weft_shard_counters(b.c.shard[SHARD]);
        for (uint32_t round = 0; round < ROUNDS; round++) {
            round_of_all(&b);
        }
        check_sums(&b);
        const struct weft_aggregator_counters *box = weft_aggregator_counters(b.box[0].agg);
        const struct weft_shard_counters *now = weft_shard_counters(b.c.shard[SHARD]);
        assert_int_equal(box->rows_in - before.rows_in, ROUNDS * WORKERS * HOT);
        assert_int_equal(box->rows_out - before.rows_out, ROUNDS * HOT); /* all were summed */
        assert_int_equal(box->pushes_direct, before.pushes_direct);
        assert_int_equal(box->pull_rows_in - before.pull_rows_in, ROUNDS * WORKERS * HOT);
        assert_int_equal(now->aggregate_rows - shard.aggregate_rows, ROUNDS * HOT);
        assert_int_equal(now->aggregate_gradients - shard.aggregate_gradients,
                         ROUNDS * WORKERS * HOT);
        assert_int_equal(now->pushes - shard.pushes, 2 * ROUNDS * WORKERS);
        for (uint32_t w = 0; w < WORKERS; w++) {
            const struct weft_ps_client_counters *counters = weft_ps_client_counters(b.c.client[w]);
            assert_int_equal(counters->rows_hot * 4, counters->rows_cold * HOT);
            assert_true(counters->rows_hot >= ROUNDS * HOT);
            assert_int_equal(counters->via_direct, 0);
            assert_int_equal(counters->replies_malformed + counters->hot_refused, 0);
            listed += counters->pushes_listed;
        }
        assert_true(now->hot_epochs >= 1 && now->hot_updates <= now->hot_updates_of);
        close_job(&b);
    }
    assert_true(listed > 100); /* cold parts whose ids the shard keeps from the pull */
}

/* Without the aggregator nothing is split, and all rows are sent to the shard; after it reconnects
 * they are split again. */
static void without_it(void **state)
{
    (void)state;
    struct bench b;
    open_job(&b, WEFT_TABLE_BSP, 3);
    until_split(&b);
    box_kill(&b, &b.box[0]);
    bench_quiet(&b);
    const struct weft_shard_counters before = *weft_shard_counters(b.c.shard[SHARD]);
    const uint64_t hot = weft_ps_client_counters(b.c.client[0])->rows_hot;
    round_of_all(&b);
    round_of_all(&b);
    check_sums(&b);
    const struct weft_shard_counters *now = weft_shard_counters(b.c.shard[SHARD]);
    assert_int_equal(now->pushes - before.pushes, 2 * WORKERS);
    assert_int_equal(now->aggregates, before.aggregates);
    assert_int_equal(weft_ps_client_counters(b.c.client[0])->rows_hot, hot);
    close_job(&b);
}

/* The connection to the shard breaks. The epochs of the next process may differ, so no hot set is
 * used before the next reply. */
static void another_connection(void **state)
{
    (void)state;
    struct bench b;
    open_job(&b, WEFT_TABLE_ASP, 3);
    until_split(&b);
    fake_break(b.c.net, SHARD, 1);
    bench_quiet(&b);
    assert_int_equal(weft_ps_client_hot_epoch(b.c.client[0], 0, SHARD), 0);
    assert_true(weft_ps_client_hot_epoch(b.c.client[1], 0, SHARD) > 0);
    round_of_all(&b);
    assert_true(weft_ps_client_hot_epoch(b.c.client[0], 0, SHARD) > 0);
    round_of_all(&b);
    check_sums(&b);
    close_job(&b);
}

/* A set that exceeds the worker's limit: the worker sends whole pushes, and does not request the
 * set again. */
static void too_large(void **state)
{
    (void)state;
    struct bench b;
    hot_rows_most = HOT - 1;
    open_job(&b, WEFT_TABLE_BSP, 3);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        round_of_all(&b);
        b.c.net->now_ns += WEFT_NS_PER_MS;
    }
    check_sums(&b);
    const struct weft_aggregator_counters *box = weft_aggregator_counters(b.box[0].agg);
    assert_int_equal(box->rows_in, ROUNDS * WORKERS * (HOT + 4));
    for (uint32_t w = 0; w < WORKERS; w++) {
        const struct weft_ps_client_counters *counters = weft_ps_client_counters(b.c.client[w]);
        assert_int_equal(counters->hot_refused, 1);
        assert_int_equal(counters->rows_hot + counters->rows_cold, 0);
        assert_int_equal(weft_ps_client_hot_epoch(b.c.client[w], 0, SHARD), 0);
    }
    close_job(&b);
}

/* ---- random jobs ----------------------------------------------------------------------------- */

static void one_job(uint64_t seed, struct weft_shard_counters *sum,
                    struct weft_ps_client_counters *workers)
{
    struct bench b;
    struct weft_prng prng;
    weft_prng_init(&prng, seed * 77);
    const uint8_t modes[] = {WEFT_TABLE_BSP, WEFT_TABLE_SSP, WEFT_TABLE_ASP};
    hot_rows = 1 + (uint32_t)weft_prng_below(&prng, 15);
    hot_rows_most = hot_rows + (uint32_t)weft_prng_below(&prng, 3);
    bench_open(&b, 2 + (uint32_t)weft_prng_below(&prng, WORKERS_MAX - 1),
               modes[weft_prng_below(&prng, 3)], seed);
    random_job(&b, (uint32_t)weft_prng_below(&prng, 8));
    const struct weft_shard_counters *shard = weft_shard_counters(b.c.shard[SHARD]);
    sum->aggregates += shard->aggregates;
    sum->aggregate_pushes += shard->aggregate_pushes;
    sum->pushes += shard->pushes;
    sum->hot_epochs += shard->hot_epochs;
    sum->lists_unknown += shard->lists_unknown;
    for (uint32_t w = 0; w < b.c.workers; w++) {
        const struct weft_ps_client_counters *counters = weft_ps_client_counters(b.c.client[w]);
        workers->rows_hot += counters->rows_hot;
        workers->rows_cold += counters->rows_cold;
        workers->hot_epochs += counters->hot_epochs;
        workers->via_direct += counters->via_direct;
        assert_int_equal(counters->replies_malformed, 0);
        assert_int_equal(counters->hot_refused, 0);
    }
    bench_close(&b);
    hot_rows = hot_rows_most = 0;
}

static void whatever_happens(void **state)
{
    (void)state;
    const struct seeds seeds = seeds_of(SEEDS);
    struct weft_shard_counters sum = {0};
    struct weft_ps_client_counters workers = {0};
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        one_job(seed, &sum, &workers);
    }
    print_message(
        "%llu aggregates of %llu pushes, of %llu in all; %llu hot sets, fetched %llu times\n",
        (unsigned long long)sum.aggregates, (unsigned long long)sum.aggregate_pushes,
        (unsigned long long)sum.pushes, (unsigned long long)sum.hot_epochs,
        (unsigned long long)workers.hot_epochs);
    print_message(
        "rows of pushes that were split: %llu hot, %llu cold; %llu hot parts sent direct\n",
        (unsigned long long)workers.rows_hot, (unsigned long long)workers.rows_cold,
        (unsigned long long)workers.via_direct);
    if (!seeds.is_chosen) { /* the jobs are such that all of this happens */
        assert_true(sum.aggregates > SEEDS && sum.pushes > sum.aggregate_pushes);
        assert_true(sum.hot_epochs > 2 * SEEDS && workers.hot_epochs > 2 * SEEDS);
        assert_true(workers.rows_hot > 10 * SEEDS && workers.rows_cold > 10 * SEEDS);
        assert_true(workers.via_direct > SEEDS / 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split),
        cmocka_unit_test(without_it),
        cmocka_unit_test(another_connection),
        cmocka_unit_test(too_large),
        cmocka_unit_test(whatever_happens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
