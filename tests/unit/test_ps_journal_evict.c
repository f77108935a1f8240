/* Tables that are full: a shard restored from a checkpoint and a journal has the rows of the dead
 * one, although its rows are in other slots, pulls are not in the journal, and some chunks were
 * refused after they had changed something. */
#include "ps/shard_internal.h"
#include "ps_journal_churn.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { SHARDS = CHURN_SHARDS, WORKERS = CHURN_WORKERS, IDS = CHURN_IDS, DIM = CHURN_DIM };
enum { BYTES = 1 << 20, ROWS = 12, MANY = 300 };

static struct churn churn;
static uint8_t *memory[SHARDS];
static bool replays; /* attach: replay a copy of the journal, which is not written */
static struct weft_shard_journal_report report;

static void attach(void *arg, uint32_t s)
{
    (void)arg;
    struct weft_shard *shard = churn.c.shard[s];
    uint8_t *source = replays ? aligned_alloc(4096, BYTES) : NULL;
    uint8_t *own = aligned_alloc(4096, BYTES);
    memset(own, 0, BYTES);
    if (replays) {
        memcpy(source, memory[s], BYTES);
    } else {
        memory[s] = own;
    }
    const struct weft_shard_journal_config config = {.memory = own,
                                                     .bytes = BYTES,
                                                     .bytes_max = BYTES,
                                                     .job = 5,
                                                     .checkpoint = churn.saved[s].number,
                                                     .lineage = 8,
                                                     .source = source,
                                                     .source_bytes = BYTES};
    assert_int_equal(weft_shard_journal_init(shard, &config), WEFT_OK);
    while (weft_shard_journal_replay(shard)) {
        assert_false(weft_shard_journal_stalls(shard));
        cluster_slabs(&churn.c, s);
    }
    report = *weft_shard_journal_report(shard);
    free(source);
    if (replays) {
        free(own); /* this shard writes nothing more */
    }
}

/* As journal_churn_start, with another specification. */
static void start(const struct weft_table_spec *like, uint64_t seed)
{
    replays = false;
    churn_init(&churn, like->mode, seed);
    churn.spec.eviction = like->eviction;
    churn.spec.rows_max = like->rows_max;
    churn.spec.ttl = like->ttl;
    churn.spec.admission = like->admission;
    churn.spec.admission_count = like->admission_count;
    churn.spec.admission_cells = like->admission_cells;
    churn.config.shard.slab_bytes = seed % 2 == 0 ? 2048 : 16384;
    churn.config.shard.rows_max = 4 * MANY;
    churn.config.shard.chunks_max = 512;
    if (like->mode == WEFT_TABLE_ASP && like->rows_max >= MANY) {
        churn.config.client.rows_per_rpc_max = MANY;
    }
    churn_start(&churn, seed);
    for (uint32_t s = 0; s < SHARDS; s++) {
        fake_kill(churn.c.net, s);
        churn_shard_free(&churn, s, churn_shard_again(&churn, s));
        attach(NULL, s);
        fake_revive(churn.c.net, s);
    }
    cluster_run(&churn.c);
    churn_reconnect(&churn, WEFT_PPM);
    cluster_run(&churn.c);
    cluster_open(&churn.c, &churn.spec);
}

static void stop(void)
{
    churn_stop(&churn);
    for (uint32_t s = 0; s < SHARDS; s++) {
        free(memory[s]);
    }
}

/* Push random gradients, so that the rows have different norms; returns the reply's status. */
static enum weft_rpc_status push(uint32_t w, uint32_t n)
{
    uint64_t ids[IDS];
    float rows[IDS * DIM];
    weft_ps_op op;
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = churn_id((uint32_t)weft_prng_below(&churn.prng, IDS));
    }
    for (uint32_t i = 0; i < n * DIM; i++) {
        rows[i] = (float)weft_prng_below(&churn.prng, 100) - 50;
    }
    assert_int_equal(weft_ps_push(churn.c.client[w], 0, ids, rows, n, 0, churn.c.net->now_ns, &op),
                     WEFT_OK);
    return (enum weft_rpc_status)cluster_wait(&churn.c, w, op).rpc_status;
}

/* Push rows first .. first + n - 1 of those that shard 0 has. */
static enum weft_rpc_status push_range(uint32_t w, uint32_t first, uint32_t n)
{
    uint64_t ids[MANY];
    float rows[MANY * DIM];
    weft_ps_op op;
    for (uint32_t i = 0, k = 0; k < first + n; i++) {
        if (weft_table_spec_shard(&churn.spec, churn_id(i), SHARDS) == 0) {
            ids[k < first ? 0 : k - first] = churn_id(i);
            k++;
        }
    }
    for (uint32_t i = 0; i < n * DIM; i++) {
        rows[i] = 1;
    }
    assert_int_equal(weft_ps_push(churn.c.client[w], 0, ids, rows, n, 0, churn.c.net->now_ns, &op),
                     WEFT_OK);
    return (enum weft_rpc_status)cluster_wait(&churn.c, w, op).rpc_status;
}

static void pull(uint32_t w)
{
    uint64_t ids[5];
    float rows[5 * DIM];
    weft_ps_op op;
    for (uint32_t i = 0; i < 5; i++) {
        ids[i] = churn_id((uint32_t)weft_prng_below(&churn.prng, IDS));
    }
    assert_int_equal(weft_ps_pull(churn.c.client[w], 0, ids, rows, 5, 0, churn.c.net->now_ns, &op),
                     WEFT_OK);
    cluster_wait(&churn.c, w, op);
}

/* Clocks of pushes and pulls of both workers. Returns the number of pushes without room. */
static uint32_t work(uint32_t clocks, uint32_t rows_max)
{
    uint32_t full = 0;
    for (uint32_t clock = 0; clock < clocks; clock++) {
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t n = 1 + (uint32_t)weft_prng_below(&churn.prng, rows_max);
            full += push(i % WORKERS, n) == WEFT_RPC_FULL;
            if (churn.spec.mode != WEFT_TABLE_BSP) {
                pull(i % WORKERS);
            }
        }
        for (uint32_t w = 0; w < WORKERS; w++) {
            cluster_clock(&churn.c, w, 0);
        }
        cluster_run(&churn.c);
        for (uint32_t w = 0; w < WORKERS && churn.spec.mode == WEFT_TABLE_BSP; w++) {
            pull(w);
        }
    }
    return full;
}

/* Checkpoints, and pushes before the rows are written: the stream has the copied rows first. */
static void save(void)
{
    for (uint32_t s = 0; s < SHARDS; s++) {
        weft_saved_begin(&churn.saved[s], churn.c.shard[s]);
    }
    (void)work(1, 3);
    for (uint32_t s = 0; s < SHARDS; s++) {
        assert_true(weft_saved_poll(&churn.saved[s], churn.c.shard[s]));
        weft_shard_durable(churn.c.shard[s]);
    }
}

/* The same, without pushes. */
static void save_now(void)
{
    for (uint32_t s = 0; s < SHARDS; s++) {
        weft_saved_begin(&churn.saved[s], churn.c.shard[s]);
        assert_true(weft_saved_poll(&churn.saved[s], churn.c.shard[s]));
        weft_shard_durable(churn.c.shard[s]);
    }
}

static void end_clock(void)
{
    for (uint32_t w = 0; w < WORKERS; w++) {
        cluster_clock(&churn.c, w, 0);
    }
    cluster_run(&churn.c);
}

/* Number of rows of a that b does not have, or has with other weights. */
static uint32_t differ(const struct weft_table *a, const struct weft_table *b)
{
    struct weft_table_view view;
    uint32_t count = 0;
    for (uint32_t cursor = 0; weft_table_next(a, &cursor, &view);) {
        float row[DIM];
        count += !weft_table_read(b, view.id, row) || memcmp(row, view.weights, sizeof(row)) != 0;
    }
    return count;
}

static void assert_same(const struct weft_shard *dead, const struct weft_shard *twin)
{
    const struct weft_table *a = weft_shard_table(dead, 0), *b = weft_shard_table(twin, 0);
    assert_int_equal(report.refused, 0);
    assert_true(report.used && report.chunks > 0);
    assert_int_equal(differ(a, b) + differ(b, a), 0);
    if (a->spec.eviction != WEFT_EVICTION_TTL) { /* expired rows may remain in different slots */
        assert_int_equal(weft_table_rows(a), weft_table_rows(b));
    }
    if (a->spec.admission != WEFT_ADMISSION_ALL) {
        assert_memory_equal(a->admission.memory, b->admission.memory,
                            weft_admission_bytes(&a->admission));
    }
    for (uint32_t w = 0; w < WORKERS; w++) {
        assert_int_equal(dead->clocks[w], twin->clocks[w]);
        assert_int_equal(dead->pushes[w].newest, twin->pushes[w].newest);
    }
}

static void assert_twin(uint64_t seed, uint32_t s)
{
    replays = true;
    memset(&churn.config.shard.keys, (int)seed, sizeof(churn.config.shard.keys));
    struct weft_shard *twin = journal_churn_twin(&churn, s, attach, NULL);
    assert_same(churn.c.shard[s], twin);
    churn_shard_free(&churn, s, twin);
}

static void assert_twins(uint64_t seed)
{
    for (uint32_t s = 0; s < SHARDS; s++) {
        assert_twin(seed, s);
    }
}

static uint64_t evicted(void)
{
    uint64_t count = 0;
    for (uint32_t s = 0; s < SHARDS; s++) {
        const struct weft_table_counters *counters = &churn.c.shard[s]->tables[0].counters;
        count += counters->rows_evicted + counters->rows_expired;
    }
    return count;
}

static void evicts_as_the_dead_one(void **state)
{
    (void)state;
    static const uint8_t rules[] = {WEFT_EVICTION_LRU, WEFT_EVICTION_L2, WEFT_EVICTION_TTL};
    for (uint64_t seed = 601; seed <= 624; seed++) {
        const uint8_t rule = rules[seed % 3];
        const struct weft_table_spec like = {.mode = (uint8_t)(seed / 3 % 3),
                                             .eviction = rule,
                                             .rows_max = rule == WEFT_EVICTION_TTL ? 0 : ROWS,
                                             .ttl = rule == WEFT_EVICTION_TTL ? 2 : 0};
        start(&like, seed);
        (void)work(6, 3);
        save();
        (void)work(15, 3);
        assert_true(evicted() > 20);
        assert_twins(seed);
        stop();
    }
}

/* In BSP the rows of the clock cannot be evicted: chunks are refused after they have created and
 * evicted rows, and counted ids. */
static void refused_chunks_have_their_effect(void **state)
{
    (void)state;
    uint32_t full = 0;
    for (uint64_t seed = 651; seed <= 674; seed++) {
        const bool admits = seed % 2 == 0;
        const struct weft_table_spec like = {
            .mode = WEFT_TABLE_BSP,
            .eviction = seed % 3 == 0 ? WEFT_EVICTION_NONE : WEFT_EVICTION_LRU,
            .rows_max = ROWS,
            .admission = admits ? WEFT_ADMISSION_COUNTER : WEFT_ADMISSION_ALL,
            .admission_count = admits ? 3 : 0,
            .admission_cells = admits ? 64 : 0};
        start(&like, seed);
        full += work(4, IDS);
        if (!admits) { /* weft_saved has no counts of admission */
            save();
        }
        full += work(8, IDS);
        assert_twins(seed);
        stop();
    }
    assert_true(full > 100);
}

/* Refused for lack of memory, which the driver adds later: the twin has it from the beginning. */
static void refused_without_memory(void **state)
{
    (void)state;
    uint32_t full = 0;
    for (uint64_t seed = 682; seed <= 704; seed += 2) { /* small slabs */
        const struct weft_table_spec like = {.mode = WEFT_TABLE_ASP,
                                             .admission = WEFT_ADMISSION_COUNTER,
                                             .admission_count = 2,
                                             .admission_cells = 512};
        start(&like, seed);
        (void)work(2, 6); /* it has admission's memory */
        for (uint32_t i = 0; i < 10; i++) {
            churn.c.no_slabs = true;
            for (uint32_t k = 0; k < 2; k++) {
                full += push_range(0, 500 + 50 * i, 100) == WEFT_RPC_FULL;
            }
            churn.c.no_slabs = false;
            (void)work(1, 6);
        }
        assert_twins(seed);
        stop();
    }
    assert_true(full > 20);
}

/* The table is full of rows, of which one half has expired. The dead process found a row to free
 * next to its hand; the hand of the twin is at rows that have not expired. */
static void finds_what_the_dead_one_found(void **state)
{
    (void)state;
    const struct weft_table_spec like = {
        .mode = WEFT_TABLE_ASP, .eviction = WEFT_EVICTION_TTL, .rows_max = 2 * MANY, .ttl = 1};
    start(&like, 700);
    assert_int_equal(push_range(0, 0, MANY), WEFT_RPC_OK);
    assert_int_equal(push_range(0, MANY, MANY), WEFT_RPC_OK);
    churn.c.net->packet_bytes = 32000; /* pushes of one chunk: each looks at 8 rows */
    for (uint32_t i = 0; i < MANY / 8 + 2; i++) {
        assert_int_equal(push_range(0, 0, 1), WEFT_RPC_OK);
    }
    save_now();
    for (uint32_t clock = 0; clock < 3; clock++) {
        end_clock();
        if (clock < 2) {
            assert_int_equal(push_range(0, 0, MANY), WEFT_RPC_OK);
        }
    }
    assert_true(weft_table_rows(weft_shard_table(churn.c.shard[0], 0)) > 2 * MANY - 50);
    assert_int_equal(push_range(0, 2 * MANY, MANY / 2), WEFT_RPC_OK);
    assert_twin(700, 0);
    stop();
}

/* The dead process had memory from rows that were removed before the checkpoint. */
static void waits_for_the_memory_of_the_dead_one(void **state)
{
    (void)state;
    const struct weft_table_spec like = {
        .mode = WEFT_TABLE_ASP, .eviction = WEFT_EVICTION_TTL, .rows_max = 2 * MANY, .ttl = 1};
    start(&like, 702); /* small slabs */
    assert_int_equal(push_range(0, 0, MANY), WEFT_RPC_OK);
    for (uint32_t clock = 0; clock < 3; clock++) {
        end_clock();
    }
    for (uint32_t i = 0; i < MANY / 4; i++) { /* the expired rows are removed */
        assert_int_equal(push_range(0, 0, 1), WEFT_RPC_OK);
    }
    assert_int_equal(weft_table_rows(weft_shard_table(churn.c.shard[0], 0)), 1);
    save_now();
    churn.c.net->packet_bytes = 32000; /* one chunk of more rows than a slab has */
    assert_int_equal(push_range(0, MANY, MANY), WEFT_RPC_OK);
    assert_twin(702, 0);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evicts_as_the_dead_one),
        cmocka_unit_test(refused_chunks_have_their_effect),
        cmocka_unit_test(refused_without_memory),
        cmocka_unit_test(finds_what_the_dead_one_found),
        cmocka_unit_test(waits_for_the_memory_of_the_dead_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
