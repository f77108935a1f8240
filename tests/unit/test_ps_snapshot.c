/* Snapshots under load compared with separate copies: every row as of the cut, whatever is pushed
 * meanwhile; deltas; too little memory for copies; BSP at its boundary; restoring on other numbers
 * of shards. Gradients are integers and the rate is 1, so weights are exact. */
#include "ps/snapshot.h"
#include "ps_cluster.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { IDS = 700, DIM = 3, COW_BYTES = 1 << 20, BUFFER = 512, HEAD = WEFT_TABLE_RECORD_HEAD };

/* Rows by id: contents of a checkpoint or of a shard. */
struct rows {
    bool present[IDS];
    float weights[IDS][DIM];
    float slots[IDS][DIM];
};

static uint64_t id_of(uint32_t i)
{
    return i == 0 ? UINT64_MAX : i * UINT64_C(0x9e3779b97f4a7c15);
}

static uint32_t place_of(uint64_t id)
{
    for (uint32_t i = 0; i < IDS; i++) {
        if (id_of(i) == id) {
            return i;
        }
    }
    fail_msg("an id that nobody pushed");
    return 0;
}

static void rows_add(struct rows *rows, const uint8_t *record, bool twice)
{
    uint64_t id;
    memcpy(&id, record, 8);
    uint32_t i = place_of(id);
    assert_true(twice || !rows->present[i]);
    rows->present[i] = true;
    memcpy(rows->weights[i], record + HEAD, sizeof(rows->weights[i]));
    memcpy(rows->slots[i], record + HEAD + sizeof(rows->weights[i]), sizeof(rows->slots[i]));
}

/* Read a shard's current contents row by row. */
static void rows_now(struct rows *rows, const struct weft_shard *shard)
{
    const struct weft_table *table = weft_shard_table(shard, 0);
    uint8_t record[HEAD + 8 * DIM];
    struct weft_table_view view;
    assert_int_equal(weft_table_record_bytes(table), sizeof(record));
    for (uint32_t cursor = 0; weft_table_next(table, &cursor, &view);) {
        weft_table_record_read(table, cursor - 1, record);
        rows_add(rows, record, false);
    }
}

static void assert_rows_equal(const struct rows *a, const struct rows *b)
{
    for (uint32_t i = 0; i < IDS; i++) {
        assert_int_equal(a->present[i], b->present[i]);
        if (a->present[i]) {
            assert_memory_equal(a->weights[i], b->weights[i], sizeof(a->weights[i]));
            assert_memory_equal(a->slots[i], b->slots[i], sizeof(a->slots[i]));
        }
    }
}

static struct weft_table_spec spec_of(uint8_t mode, uint32_t workers)
{
    return (struct weft_table_spec){.dim = DIM,
                                    .optimizer = WEFT_OPTIMIZER_ADAGRAD,
                                    .mode = mode,
                                    .workers = (uint16_t)workers,
                                    .learning_rate = 1,
                                    .epsilon = 1};
}

static void start(struct cluster *c, uint32_t shards, uint32_t workers, uint64_t seed)
{
    struct cluster_config config = cluster_config(shards, workers);
    config.shard.checkpoints = true;
    config.shard.chunks_max = 512;
    config.shard.rows_max = 2000;
    cluster_start(c, &config, workers, seed);
}

static weft_ps_op push_some(struct cluster *c, uint32_t w, uint32_t n)
{
    uint64_t ids[200];
    float rows[200 * DIM];
    assert_true(n <= 200);
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = id_of((uint32_t)weft_prng_below(&c->net->prng, IDS));
        for (uint32_t d = 0; d < DIM; d++) {
            rows[i * DIM + d] = (float)weft_prng_below(&c->net->prng, 9) - 4;
        }
    }
    weft_ps_op op;
    assert_int_equal(weft_ps_push(c->client[w], 0, ids, rows, n, 0, c->net->now_ns, &op), WEFT_OK);
    return op;
}

/* Push randomly, and meanwhile read the stream in small pieces to its end. */
static void drain(struct cluster *c, uint32_t s, struct rows *rows, bool load)
{
    uint8_t buffer[BUFFER];
    uint16_t table;
    weft_ps_op op = 0;
    bool open = false;
    uint32_t end = 0, idle = 0;
    while (end == 0 || idle++ < 20) {
        if (load && !open) {
            op = push_some(c, 0, 150);
            open = true;
        }
        for (int i = 0; i < 3; i++) {
            cluster_step(c);
        }
        if (open && weft_ps_op_done(c->client[0], op, NULL)) {
            weft_ps_op_release(c->client[0], op);
            open = false;
        }
        if (end == 0) {
            uint32_t count = weft_shard_cut_take(c->shard[s], buffer, sizeof(buffer), &table);
            for (uint32_t i = 0; i < count; i++) {
                rows_add(rows, buffer + i * (HEAD + 8 * DIM), false);
            }
            end = count == 0;
        }
    }
    if (open) {
        cluster_wait(c, 0, op);
    }
}

static void *order(struct weft_cut_order *order_p, bool whole, size_t bytes)
{
    *order_p = (struct weft_cut_order){.now = true, .whole = whole, .memory = malloc(bytes)};
    order_p->bytes = bytes;
    return order_p->memory;
}

static void stream_is_the_cut(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct cluster c;
        struct weft_table_spec spec = spec_of(WEFT_TABLE_ASP, 1);
        start(&c, 2, 1, seed);
        cluster_open(&c, &spec);
        for (uint32_t i = 0; i < 3 + seed; i++) {
            cluster_wait(&c, 0, push_some(&c, 0, 100));
        }
        static struct rows base, want, got;
        for (uint32_t round = 0; round < 4; round++) {
            struct weft_cut_order cut;
            void *memory = order(&cut, round == 0, COW_BYTES);
            weft_ps_op op = push_some(&c, 0, 200); /* partly applied */
            for (uint32_t i = 0; i < seed; i++) {
                cluster_step(&c);
            }
            assert_int_equal(weft_shard_cut_begin(c.shard[1], &cut), WEFT_OK);
            assert_int_equal(weft_shard_cut_begin(c.shard[1], &cut), WEFT_STATE);
            assert_int_equal(weft_shard_cut_state(c.shard[1]), WEFT_CUT_READY);
            memset(&want, 0, sizeof(want));
            rows_now(&want, c.shard[1]);
            const struct weft_cut_view *view = weft_shard_cut_view(c.shard[1]);
            uint32_t promised = view->tables[0].rows;
            assert_false(view->tables[1].present);
            memset(&got, 0, sizeof(got));
            cluster_wait(&c, 0, op);
            drain(&c, 1, &got, true);
            uint32_t came = 0;
            for (uint32_t i = 0; i < IDS; i++) {
                came += got.present[i];
                if (!got.present[i] && round > 0) { /* a delta: other rows are unchanged */
                    got.present[i] = base.present[i];
                    memcpy(got.weights[i], base.weights[i], sizeof(got.weights[i]));
                    memcpy(got.slots[i], base.slots[i], sizeof(got.slots[i]));
                }
            }
            assert_int_equal(came, promised);
            assert_true(weft_shard_cut_peak(c.shard[1]) > 0);
            assert_rows_equal(&want, &got);
            weft_shard_cut_end(c.shard[1], true);
            base = got;
            free(memory);
        }
        cluster_stop(&c);
    }
}

/* Too little memory: only that snapshot fails, and the next delta contains its rows. */
static void memory_too_small(void **state)
{
    (void)state;
    struct cluster c;
    struct weft_table_spec spec = spec_of(WEFT_TABLE_ASP, 1);
    static struct rows want, got;
    start(&c, 1, 1, 77);
    cluster_open(&c, &spec);
    cluster_wait(&c, 0, push_some(&c, 0, 200));
    struct weft_cut_order cut;
    uint8_t buffer[BUFFER];
    uint16_t table;
    for (uint32_t round = 0; round < 3; round++) {
        void *memory = order(&cut, round == 0, round == 1 ? 64 : COW_BYTES);
        memset(&want, 0, sizeof(want));
        rows_now(&want, c.shard[0]);
        assert_int_equal(weft_shard_cut_begin(c.shard[0], &cut), WEFT_OK);
        if (round == 1) {
            assert_true(weft_shard_cut_take(c.shard[0], buffer, sizeof(buffer), &table) > 0);
            for (int i = 0; i < 4; i++) {
                cluster_wait(&c, 0, push_some(&c, 0, 200));
            }
            assert_int_equal(weft_shard_cut_state(c.shard[0]), WEFT_CUT_FAILED);
            assert_int_equal(weft_shard_cut_why(c.shard[0]), WEFT_CUT_NO_MEMORY);
            assert_int_equal(weft_shard_cut_take(c.shard[0], buffer, sizeof(buffer), &table), 0);
        } else {
            uint32_t count;
            while ((count = weft_shard_cut_take(c.shard[0], buffer, sizeof(buffer), &table)) > 0) {
                for (uint32_t i = 0; i < count; i++) {
                    rows_add(&got, buffer + i * (HEAD + 8 * DIM), round == 2);
                }
            }
            assert_rows_equal(&want, &got);
        }
        weft_shard_cut_end(c.shard[0], round != 1);
        assert_int_equal(weft_shard_cut_state(c.shard[0]), WEFT_CUT_NONE);
        free(memory);
        if (round == 0) { /* the only change of these rows before the failed cut */
            cluster_wait(&c, 0, push_some(&c, 0, 200));
        }
    }
    cluster_stop(&c);
}

/* BSP: all shards are cut at the same clock, with pushes of the next clock in flight. */
static void bsp_boundary(void **state)
{
    (void)state;
    enum { WORKERS = 2, CLOCKS = 6, AT = 3 };
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct cluster c;
        struct weft_table_spec spec = spec_of(WEFT_TABLE_BSP, WORKERS);
        spec.optimizer = WEFT_OPTIMIZER_SGD;
        spec.epsilon = 0;
        start(&c, 3, WORKERS, seed);
        cluster_open(&c, &spec);
        void *memory[3];
        struct weft_cut_order cut;
        for (uint32_t s = 0; s < 3; s++) {
            memory[s] = order(&cut, true, COW_BYTES);
            cut.now = false;
            cut.clock = AT;
            assert_int_equal(weft_shard_cut_begin(c.shard[s], &cut), WEFT_OK);
            assert_int_equal(weft_shard_cut_state(c.shard[s]), WEFT_CUT_WAITING);
        }
        uint64_t ids[IDS];
        static float ones[IDS * DIM];
        for (uint32_t i = 0; i < IDS * DIM; i++) {
            ones[i] = -1;
        }
        for (uint32_t i = 0; i < IDS; i++) {
            ids[i] = id_of(i);
        }
        for (uint32_t k = 0; k < CLOCKS; k++) {
            weft_ps_op op[WORKERS];
            for (uint32_t w = 0; w < WORKERS; w++) {
                assert_int_equal(
                    weft_ps_push(c.client[w], 0, ids, ones, IDS, 0, c.net->now_ns, &op[w]),
                    WEFT_OK);
            }
            for (uint32_t w = 0; w < WORKERS; w++) {
                cluster_wait(&c, w, op[w]);
                cluster_clock(&c, w, 0);
            }
        }
        cluster_run(&c);
        uint32_t rows = 0;
        for (uint32_t s = 0; s < 3; s++) {
            assert_int_equal(weft_shard_clock(c.shard[s], 0), CLOCKS);
            assert_int_equal(weft_shard_cut_state(c.shard[s]), WEFT_CUT_READY);
            const struct weft_cut_view *view = weft_shard_cut_view(c.shard[s]);
            assert_int_equal(view->tables[0].clock, AT);
            assert_int_equal(view->partial_count, 0);
            uint8_t buffer[BUFFER];
            uint16_t table;
            uint32_t count;
            while ((count = weft_shard_cut_take(c.shard[s], buffer, sizeof(buffer), &table)) > 0) {
                for (uint32_t i = 0; i < count; i++) {
                    float weights[DIM];
                    memcpy(weights, buffer + i * (HEAD + 4 * DIM) + HEAD, sizeof(weights));
                    assert_true(weights[0] == AT && weights[2] == AT);
                }
                rows += count;
            }
            weft_shard_cut_end(c.shard[s], true);
            free(memory[s]);
        }
        assert_int_equal(rows, IDS);
        /* That clock has ended: the order is late and fails with that reason. */
        memory[0] = order(&cut, true, COW_BYTES);
        cut.now = false;
        cut.clock = AT;
        assert_int_equal(weft_shard_cut_begin(c.shard[0], &cut), WEFT_OK);
        assert_int_equal(weft_shard_cut_state(c.shard[0]), WEFT_CUT_FAILED);
        assert_int_equal(weft_shard_cut_why(c.shard[0]), WEFT_CUT_LATE);
        weft_shard_cut_end(c.shard[0], false);
        free(memory[0]);
        cluster_stop(&c);
    }
}

/* BSP with `now`: not in the middle of a clock. */
static void bsp_now_waits(void **state)
{
    (void)state;
    struct cluster c;
    struct weft_table_spec spec = spec_of(WEFT_TABLE_BSP, 2);
    struct weft_cut_order cut;
    start(&c, 1, 2, 9);
    cluster_open(&c, &spec);
    cluster_wait(&c, 0, push_some(&c, 0, 100));
    void *memory = order(&cut, true, COW_BYTES);
    assert_int_equal(weft_shard_cut_begin(c.shard[0], &cut), WEFT_OK);
    cluster_clock(&c, 0, 0);
    cluster_run(&c);
    assert_int_equal(weft_shard_cut_state(c.shard[0]), WEFT_CUT_WAITING);
    cluster_clock(&c, 1, 0);
    cluster_run(&c);
    assert_int_equal(weft_shard_cut_state(c.shard[0]), WEFT_CUT_READY);
    assert_int_equal(weft_shard_cut_view(c.shard[0])->tables[0].clock, 1);
    weft_shard_cut_end(c.shard[0], false);
    /* At a boundary it need not wait. */
    assert_int_equal(weft_shard_cut_begin(c.shard[0], &cut), WEFT_OK);
    assert_int_equal(weft_shard_cut_state(c.shard[0]), WEFT_CUT_READY);
    weft_shard_cut_end(c.shard[0], false);
    free(memory);
    cluster_stop(&c);
}

/* Restore a whole stream into a shard: removed ids first, then rows. */
static void pass_on(struct cluster *from, struct cluster *to)
{
    uint8_t buffer[BUFFER];
    uint16_t table;
    uint32_t count;
    const struct weft_cut_table *cut = &weft_shard_cut_view(from->shard[0])->tables[0];
    weft_shard_restore_removed(to->shard[0], 0, cut->removed, cut->removed_count);
    weft_shard_restore_clocks(to->shard[0], 0, cut->clocks, 1);
    while ((count = weft_shard_cut_take(from->shard[0], buffer, sizeof(buffer), &table)) > 0) {
        for (uint32_t at = 0, used; at < count; at += used) {
            cluster_slabs(to, 0);
            weft_status status = weft_shard_restore_rows(
                to->shard[0], 0, buffer + at * (HEAD + 8 * DIM), count - at, &used);
            assert_true(status == WEFT_OK || status == WEFT_AGAIN);
        }
    }
}

/* Rows that are evicted, some before they are emitted, and some created again: the chain of deltas
 * has the table's contents at the last cut. */
static void rows_that_go(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct cluster c, to;
        struct weft_table_spec spec = spec_of(WEFT_TABLE_ASP, 1);
        static struct rows want, got;
        bool by_time = seed % 2 == 0;
        spec.eviction = by_time ? WEFT_EVICTION_TTL : WEFT_EVICTION_LRU;
        spec.rows_max = by_time ? 0 : 200;
        spec.ttl = by_time ? 2 : 0;
        start(&c, 1, 1, seed);
        start(&to, 1, 1, seed);
        cluster_open(&c, &spec);
        assert_int_equal(weft_shard_restore_table(to.shard[0], &spec), WEFT_OK);
        uint32_t removed = 0;
        for (uint32_t round = 0; round < 5; round++) {
            struct weft_cut_order cut;
            for (uint32_t i = 0; i < 4; i++) {
                cluster_wait(&c, 0, push_some(&c, 0, 100));
                cluster_clock(&c, 0, 0);
            }
            cluster_run(&c);
            void *memory = order(&cut, round == 0, COW_BYTES);
            memset(&want, 0, sizeof(want));
            rows_now(&want, c.shard[0]);
            assert_int_equal(weft_shard_cut_begin(c.shard[0], &cut), WEFT_OK);
            removed += weft_shard_cut_view(c.shard[0])->tables[0].removed_count;
            cluster_wait(&c, 0, push_some(&c, 0, 150)); /* pushes that evict */
            if (round == 2) { /* lost: the next delta must list the removals of both */
                weft_shard_cut_end(c.shard[0], false);
                free(memory);
                continue;
            }
            pass_on(&c, &to);
            weft_shard_cut_end(c.shard[0], true);
            memset(&got, 0, sizeof(got));
            rows_now(&got, to.shard[0]);
            assert_rows_equal(&want, &got);
            free(memory);
        }
        assert_true(removed > 100);
        cluster_stop(&c);
        cluster_stop(&to);
    }
}

/* Restore records of two shards on one, three and two shards. */
static void restored_on_other_shards(void **state)
{
    (void)state;
    struct cluster c;
    struct weft_table_spec spec = spec_of(WEFT_TABLE_SSP, 2);
    spec.staleness = 1;
    static struct rows want;
    static uint8_t stream[IDS][HEAD + 8 * DIM];
    uint32_t total = 0;
    memset(&want, 0, sizeof(want));
    start(&c, 2, 2, 5);
    cluster_open(&c, &spec);
    for (int i = 0; i < 10; i++) {
        cluster_wait(&c, 0, push_some(&c, 0, 200));
    }
    cluster_clock(&c, 0, 0);
    cluster_run(&c);
    struct weft_push_window pushes[2];
    for (uint32_t s = 0; s < 2; s++) {
        struct weft_cut_order cut;
        void *memory = order(&cut, true, COW_BYTES);
        uint16_t table;
        uint32_t count;
        assert_int_equal(weft_shard_cut_begin(c.shard[s], &cut), WEFT_OK);
        memcpy(pushes, weft_shard_cut_view(c.shard[s])->tables[0].pushes, sizeof(pushes));
        assert_int_equal(weft_shard_cut_view(c.shard[s])->tables[0].clocks[0], 1);
        while ((count = weft_shard_cut_take(c.shard[s], stream[total],
                                            sizeof(stream) - total * sizeof(stream[0]), &table)) >
               0) {
            total += count;
        }
        weft_shard_cut_end(c.shard[s], true);
        rows_now(&want, c.shard[s]);
        free(memory);
    }
    assert_int_equal(weft_push_window_prefix(&pushes[0]), 10);
    assert_true(weft_push_window_test(&pushes[0], 10));
    assert_false(weft_push_window_test(&pushes[0], 11));
    cluster_stop(&c);

    for (uint32_t shards = 1; shards <= 3; shards++) {
        static struct rows got;
        memset(&got, 0, sizeof(got));
        start(&c, shards, 2, 6);
        for (uint32_t s = 0; s < shards; s++) {
            assert_int_equal(weft_shard_restore_table(c.shard[s], &spec), WEFT_OK);
            assert_int_equal(weft_shard_restore_table(c.shard[s], &spec), WEFT_EXISTS);
            for (uint32_t at = 0; at < total;) {
                uint32_t used;
                weft_status status =
                    weft_shard_restore_rows(c.shard[s], 0, stream[at], total - at, &used);
                assert_true(status == WEFT_OK || status == WEFT_AGAIN);
                at += used;
                cluster_slabs(&c, s);
            }
            uint32_t clocks[2] = {1, 0};
            weft_shard_restore_clocks(c.shard[s], 0, clocks, 2);
            rows_now(&got, c.shard[s]);
        }
        assert_rows_equal(&want, &got);
        /* A worker that connects now gets its rank's clock. */
        cluster_open(&c, &spec);
        assert_int_equal(weft_ps_clock_now(c.client[0], 0), 1);
        assert_int_equal(weft_ps_clock_now(c.client[1], 0), 0);
        cluster_stop(&c);
    }
}

/* Ids not admitted yet: counts as of the cut, and restored from one shard on two. */
static void counts_of_admission(void **state)
{
    (void)state;
    for (uint8_t kind = WEFT_ADMISSION_COUNTER; kind <= WEFT_ADMISSION_BLOOM; kind++) {
        struct cluster c, to;
        struct weft_table_spec spec = spec_of(WEFT_TABLE_ASP, 1);
        uint64_t ids[IDS];
        static float rows[IDS * DIM];
        spec.admission = kind;
        spec.admission_count = 3;
        spec.admission_cells = kind == WEFT_ADMISSION_BLOOM ? 40000 : 2000;
        for (uint32_t i = 0; i < IDS; i++) {
            ids[i] = id_of(i);
            rows[i * DIM] = 1;
        }
        start(&c, 1, 1, 5);
        cluster_open(&c, &spec);
        weft_ps_op op;
        for (int i = 0; i < 2; i++) { /* the first hundred again */
            uint32_t n = i == 0 ? IDS : 100;
            assert_int_equal(weft_ps_push(c.client[0], 0, ids, rows, n, 0, c.net->now_ns, &op),
                             WEFT_OK);
            cluster_wait(&c, 0, op);
        }
        struct weft_cut_order cut;
        void *memory = order(&cut, true, 64); /* too little to copy them */
        assert_int_equal(weft_shard_cut_begin(c.shard[0], &cut), WEFT_OK);
        assert_int_equal(weft_shard_cut_state(c.shard[0]), WEFT_CUT_FAILED);
        assert_int_equal(weft_shard_cut_why(c.shard[0]), WEFT_CUT_NO_MEMORY);
        weft_shard_cut_end(c.shard[0], false);
        free(memory);
        memory = order(&cut, true, COW_BYTES + 3);
        assert_int_equal(weft_shard_cut_begin(c.shard[0], &cut), WEFT_OK);
        /* The cut does not contain later pushes. */
        assert_int_equal(weft_ps_push(c.client[0], 0, ids, rows, 150, 0, c.net->now_ns, &op),
                         WEFT_OK);
        cluster_wait(&c, 0, op);
        const struct weft_cut_view *view = weft_shard_cut_view(c.shard[0]);
        assert_int_equal(view->tables[0].rows, 0);
        assert_true(weft_shard_cut_peak(c.shard[0]) >= IDS * 8);
        start(&to, 2, 1, 6);
        for (uint32_t s = 0; s < 2; s++) {
            assert_int_equal(weft_shard_restore_table(to.shard[s], &spec), WEFT_OK);
            assert_int_equal(weft_shard_restore_counted(to.shard[s], 0, &view->tables[0].counted),
                             WEFT_AGAIN);
            cluster_slabs(&to, s);
            assert_int_equal(weft_shard_restore_counted(to.shard[s], 0, &view->tables[0].counted),
                             WEFT_OK);
        }
        struct weft_admission_counts odd = view->tables[0].counted;
        odd.filter = (const uint8_t *)rows;
        odd.cells = 7;
        assert_int_equal(weft_shard_restore_counted(to.shard[0], 0, &odd),
                         kind == WEFT_ADMISSION_BLOOM ? WEFT_INVALID : WEFT_OK);
        odd = view->tables[0].counted; /* ids identify themselves; the bytes of a filter do not */
        odd.key[5] ^= 1;
        assert_int_equal(weft_shard_restore_counted(to.shard[1], 0, &odd),
                         kind == WEFT_ADMISSION_BLOOM ? WEFT_EXISTS : WEFT_OK);
        weft_shard_cut_end(c.shard[0], true);
        cluster_open(&to, &spec);
        assert_int_equal(weft_ps_push(to.client[0], 0, ids, rows, IDS, 0, to.net->now_ns, &op),
                         WEFT_OK);
        cluster_wait(&to, 0, op);
        uint32_t got = weft_table_rows(weft_shard_table(to.shard[0], 0)) +
                       weft_table_rows(weft_shard_table(to.shard[1], 0));
        assert_int_equal(got, 100);
        free(memory);
        cluster_stop(&c);
        cluster_stop(&to);
    }
}

/* The first worker to open a restored table may change the rate, unless rows depend on it. */
static void another_rate(void **state)
{
    (void)state;
    for (uint8_t optimizer = WEFT_OPTIMIZER_SGD; optimizer < WEFT_OPTIMIZERS_COUNT; optimizer++) {
        struct cluster c;
        start(&c, 1, 1, 1);
        struct weft_table_spec spec = spec_of(WEFT_TABLE_ASP, 1);
        bool betas = optimizer == WEFT_OPTIMIZER_ADAM;
        bool plain = optimizer == WEFT_OPTIMIZER_SGD || optimizer == WEFT_OPTIMIZER_MOMENTUM;
        spec.optimizer = optimizer;
        spec.epsilon = plain ? 0 : 1;
        spec.beta1 = betas ? 0.5F : 0;
        spec.beta2 = betas ? 0.5F : 0;
        assert_int_equal(weft_shard_restore_table(c.shard[0], &spec), WEFT_OK);
        spec.learning_rate = 0.5F;
        spec.push_values = WEFT_VALUE_BF16; /* rows do not depend on the encoding of values */
        weft_ps_op op;
        assert_int_equal(weft_ps_table_open(c.client[0], &spec, 0, &op), WEFT_OK);
        bool may = optimizer != WEFT_OPTIMIZER_FTRL;
        assert_int_equal(cluster_wait(&c, 0, op).rpc_status,
                         may ? WEFT_RPC_OK : WEFT_RPC_SPEC_MISMATCH);
        assert_true(weft_shard_table(c.shard[0], 0)->spec.learning_rate == (may ? 0.5F : 1));
        assert_int_equal(weft_shard_table(c.shard[0], 0)->spec.push_values, may);
        cluster_stop(&c);
    }
}

/* A complete cut whose records are discarded. */
static void cut_once(struct cluster *c, uint32_t s, bool kept, bool counts)
{
    struct weft_cut_order cut;
    void *memory = order(&cut, true, COW_BYTES);
    uint8_t buffer[BUFFER];
    uint16_t table;
    assert_int_equal(weft_shard_cut_begin(c->shard[s], &cut), WEFT_OK);
    assert_int_equal(weft_shard_cut_state(c->shard[s]), WEFT_CUT_READY);
    while (weft_shard_cut_take(c->shard[s], buffer, sizeof(buffer), &table) > 0) {
    }
    weft_shard_cut_end(c->shard[s], kept);
    if (counts) {
        weft_shard_durable(c->shard[s]);
    }
    free(memory);
    cluster_poll(c);
    cluster_run(c);
}

static bool is_wanted(const struct cluster *c, uint32_t s)
{
    uint32_t clock;
    return weft_shard_cut_wanted(c->shard[s], &clock);
}

static weft_ps_op ask(struct cluster *c)
{
    weft_ps_op op;
    assert_int_equal(weft_ps_client_checkpoint(c->client[0], c->net->now_ns, &op), WEFT_OK);
    cluster_run(c);
    return op;
}

/* The request is answered when a later cut is valid on every shard; work continues meanwhile. */
static void asked_for(void **state)
{
    (void)state;
    struct cluster c;
    struct weft_table_spec spec = spec_of(WEFT_TABLE_ASP, 1);
    weft_ps_op op;
    start(&c, 2, 1, 1);
    assert_int_equal(weft_ps_client_checkpoint(c.client[0], c.net->now_ns, &op), WEFT_STATE);
    cluster_open(&c, &spec);
    cluster_wait(&c, 0, push_some(&c, 0, 200));
    weft_ps_op asked = ask(&c);
    assert_int_equal(weft_ps_client_checkpoint(c.client[0], c.net->now_ns, &op), WEFT_EXISTS);
    assert_true(is_wanted(&c, 0) && is_wanted(&c, 1));
    for (uint32_t i = 0; i < 20; i++) {
        uint64_t id = id_of(i);
        float row[DIM];
        cluster_wait(&c, 0, push_some(&c, 0, 50));
        assert_int_equal(weft_ps_pull(c.client[0], 0, &id, row, 1, 0, c.net->now_ns, &op), WEFT_OK);
        assert_int_equal(cluster_wait(&c, 0, op).status, WEFT_OK);
    }
    cut_once(&c, 0, true, true);
    assert_true(!is_wanted(&c, 0) && is_wanted(&c, 1));
    cut_once(&c, 1, false, false); /* not kept: still wanted */
    assert_true(is_wanted(&c, 1) && !weft_ps_op_done(c.client[0], asked, NULL));
    cut_once(&c, 1, true, false); /* other servers' parts are missing */
    assert_false(is_wanted(&c, 1) || weft_ps_op_done(c.client[0], asked, NULL));
    weft_shard_durable(c.shard[1]);
    cluster_poll(&c);
    assert_int_equal(cluster_wait(&c, 0, asked).status, WEFT_OK);
    asked = ask(&c); /* earlier cuts do not count */
    weft_shard_durable(c.shard[0]);
    weft_shard_durable(c.shard[1]);
    cluster_poll(&c);
    cluster_run(&c);
    assert_false(weft_ps_op_done(c.client[0], asked, NULL));
    weft_shard_cut_refused(c.shard[1], WEFT_RPC_NOT_KEPT);
    cut_once(&c, 0, true, true);
    struct weft_ps_result result = cluster_wait(&c, 0, asked);
    assert_int_equal(result.status, WEFT_DATA);
    assert_int_equal(result.rpc_status, WEFT_RPC_NOT_KEPT);
    assert_int_equal(result.shard, 1);
    (void)ask(&c); /* a worker that requests and dies leaves no state */
    fake_kill(c.net, 2);
    cluster_run(&c);
    assert_false(weft_shard_busy(c.shard[0]) || weft_shard_busy(c.shard[1]));
    cluster_stop(&c);
}

/* In BSP the reported clock is one that this worker has not finished. */
static void asked_for_in_step(void **state)
{
    (void)state;
    struct cluster c;
    struct weft_table_spec spec = spec_of(WEFT_TABLE_BSP, 1);
    start(&c, 1, 1, 1);
    cluster_open(&c, &spec);
    for (uint32_t i = 0; i < 5; i++) {
        cluster_clock(&c, 0, 0);
    }
    cluster_run(&c);
    weft_ps_op asked = ask(&c);
    uint32_t clock;
    assert_true(weft_shard_cut_wanted(c.shard[0], &clock));
    assert_int_equal(clock, 7);
    cut_once(&c, 0, true, true); /* no worker is active, so it does not wait */
    assert_int_equal(cluster_wait(&c, 0, asked).status, WEFT_OK);
    assert_false(is_wanted(&c, 0));
    cluster_stop(&c);
}

static void nobody_makes_one(void **state)
{
    (void)state;
    struct cluster c;
    struct cluster_config config = cluster_config(1, 1);
    struct weft_table_spec spec = spec_of(WEFT_TABLE_ASP, 1);
    cluster_start(&c, &config, 1, 1);
    cluster_open(&c, &spec);
    struct weft_ps_result result = cluster_wait(&c, 0, ask(&c));
    assert_int_equal(result.status, WEFT_DATA);
    assert_int_equal(result.rpc_status, WEFT_RPC_NO_CHECKPOINTS);
    cluster_stop(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream_is_the_cut),   cmocka_unit_test(memory_too_small),
        cmocka_unit_test(bsp_boundary),        cmocka_unit_test(bsp_now_waits),
        cmocka_unit_test(rows_that_go),        cmocka_unit_test(restored_on_other_shards),
        cmocka_unit_test(counts_of_admission), cmocka_unit_test(another_rate),
        cmocka_unit_test(asked_for),           cmocka_unit_test(asked_for_in_step),
        cmocka_unit_test(nobody_makes_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
