/* Eviction of rows: each policy compared with an oracle that examines all rows; the index under
 * removal; rows that must never be evicted; limits in bytes. Tables of at most 16 rows, which are
 * sampled completely, are compared exactly. */
#include "base/prng.h"
#include "ps_table_rig.h"

static struct weft_table_spec spec_of(uint8_t eviction, uint32_t ttl)
{
    return (struct weft_table_spec){.dim = 3,
                                    .mode = WEFT_TABLE_ASP,
                                    .workers = 1,
                                    .learning_rate = 1,
                                    .eviction = eviction,
                                    .ttl = ttl};
}

enum { IDS = 600 };

/* The test's record of an id. */
struct known {
    bool exists;
    uint32_t clock;
    uint32_t count;
    float weights[3];
};

static struct known *known_rows(const struct weft_table *table, struct known *out)
{
    uint32_t cursor = 0, rows = 0;
    struct weft_table_view view;
    memset(out, 0, sizeof(*out) * IDS);
    while (weft_table_next(table, &cursor, &view)) {
        assert_true(view.id < IDS && !out[view.id].exists);
        assert_non_null(weft_table_find(table, view.id));
        out[view.id] = (struct known){.exists = true, .clock = view.clock, .count = view.count};
        memcpy(out[view.id].weights, view.weights, sizeof(out[view.id].weights));
        rows++;
    }
    if (table->spec.eviction != WEFT_EVICTION_TTL) {
        assert_int_equal(rows, weft_table_rows(table));
    }
    return out;
}

/* The smallest is evicted first. */
static double rank(const struct weft_table *table, const struct known *row)
{
    if (table->spec.eviction == WEFT_EVICTION_LRU) {
        return row->clock * 1e6 + row->count;
    }
    double norm = 0;
    for (int i = 0; i < 3; i++) {
        norm += (double)row->weights[i] * (double)row->weights[i];
    }
    return (row->clock == table->now ? 1e9 : 0) + norm;
}

/* Push random ids one at a time into a table that is too small, and check the effect of every
 * push. */
static void churn(uint8_t eviction, uint32_t rows_max, uint64_t seed)
{
    struct weft_prng prng;
    weft_prng_init(&prng, seed);
    struct weft_table table;
    struct weft_table_spec spec = spec_of(eviction, eviction == WEFT_EVICTION_TTL ? 3 : 0);
    table_make(&table, rows_max, &spec);
    static struct known before[IDS], after[IDS];
    static uint32_t used[IDS], pushes[IDS]; /* last use and gradients, counted here */
    memset(used, 0, sizeof(used));
    memset(pushes, 0, sizeof(pushes));
    uint32_t went = 0, made = 0;
    for (int op = 0; op < 4000; op++) {
        uint64_t id = weft_prng_below(&prng, rows_max <= 16 ? 30 : IDS);
        float gradient[3];
        for (int i = 0; i < 3; i++) {
            gradient[i] = (float)weft_prng_below(&prng, 41) - 20;
        }
        if (weft_prng_chance(&prng, 50000)) {
            weft_table_set_now(&table, table.now + 1);
        }
        if (eviction == WEFT_EVICTION_LRU && weft_prng_chance(&prng, 200000)) {
            float out[3]; /* a pull is a use */
            bool exists = weft_table_find(&table, id) != NULL;
            assert_int_equal(weft_table_read_all(&table, &id, 1, out, 3), !exists);
            used[id] = table.now;
            continue;
        }
        known_rows(&table, before);
        struct weft_table_row *row = NULL;
        give_slabs(&table);
        weft_table_begin(&table, table.now);
        bool room = obtain_chunk(&table, &id, 1, &row);
        assert_true(room || eviction == WEFT_EVICTION_TTL);
        if (row != NULL) {
            assert_int_equal(
                weft_table_apply(&table, &row, 0, 1, (const uint8_t *)(void *)gradient), 1);
        }
        known_rows(&table, after);
        assert_true(weft_table_rows(&table) <= rows_max);
        made += room && !before[id].exists;
        used[id] = table.now;
        pushes[id] = before[id].exists ? pushes[id] + 1 : 1;
        for (uint32_t i = 0; i < IDS; i++) {
            float step = i == id && room ? 1 : 0;
            assert_true(!after[i].exists ||
                        (after[i].clock == used[i] && after[i].count == pushes[i]));
            for (int k = 0; k < 3 && after[i].exists; k++) {
                assert_true(after[i].weights[k] == before[i].weights[k] - step * gradient[k]);
            }
            if (before[i].exists && !after[i].exists) {
                went++;
                assert_true(!before[id].exists && i != id); /* only to make room */
                for (uint32_t j = 0; j < IDS && rows_max <= 16; j++) {
                    if (before[j].exists && rank(&table, &before[j]) < rank(&table, &before[i])) {
                        fail_msg("op %d: %u went, %u should have", op, i, j);
                    }
                }
            }
        }
        assert_int_equal(after[id].exists, room);
    }
    assert_true(made > rows_max);
    if (eviction != WEFT_EVICTION_TTL) {
        assert_true(went > 100);
        assert_int_equal(table.counters.rows_evicted, went);
    } else {
        assert_true(table.counters.rows_expired > 100);
    }
    assert_int_equal(table.counters.rows_created, made);
    finish(&table);
}

static void who_goes(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 5, 16, 200};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(sizes); i++) {
        churn(WEFT_EVICTION_LRU, sizes[i], i);
        churn(WEFT_EVICTION_L2, sizes[i], i + 10);
    }
    churn(WEFT_EVICTION_TTL, 200, 30);
}

/* Exact to the clock: a row pushed ttl clocks ago exists; one of ttl + 1 clocks ago reads as
 * initial weights, swept or not. */
static void ttl_is_exact(void **state)
{
    (void)state;
    struct weft_table table;
    struct weft_table_spec spec = spec_of(WEFT_EVICTION_TTL, 2);
    spec.init_scale = 1;
    table_make(&table, 10, &spec);
    const float gradient[3] = {100, 100, 100};
    float start[3], out[3];
    (void)weft_table_read(&table, 7, start);
    weft_table_step(&table, weft_table_obtain(&table, 7), 0, gradient);
    for (uint32_t now = 2; now <= 5; now++) {
        weft_table_set_now(&table, now);
        bool there = now - 1 <= 2;
        assert_int_equal(weft_table_read(&table, 7, out), there);
        assert_true(out[0] == (there ? start[0] - 100 : start[0]));
    }
    assert_int_equal(weft_table_rows(&table), 1); /* its slot is not freed yet */
    weft_table_step(&table, weft_table_obtain(&table, 7), 0, gradient);
    assert_int_equal(weft_table_rows(&table), 1);
    assert_int_equal(table.counters.rows_expired, 1);
    assert_true(weft_table_read(&table, 7, out) && out[0] == start[0] - 100);
    /* Sweeps free slots without a request for room. */
    weft_table_set_now(&table, 20);
    weft_table_begin(&table, 20);
    assert_int_equal(weft_table_rows(&table), 0);
    finish(&table);
}

/* A row restored in the middle of a clock, long after its last push, keeps its pending sum. */
static void waiting_sums_do_not_expire(void **state)
{
    (void)state;
    struct weft_table table;
    struct weft_table_spec spec = spec_of(WEFT_EVICTION_TTL, 2);
    spec.mode = WEFT_TABLE_BSP;
    table_make(&table, 10, &spec);
    weft_table_set_now(&table, 10);
    const float weights[3] = {1, 1, 1}, sums[3] = {5, 5, 5};
    const struct weft_table_view view = {
        .id = 7, .clock = 1, .weights = weights, .state = weights, .sums = sums};
    assert_int_equal(weft_table_restore(&table, &view), WEFT_OK);
    weft_table_begin(&table, 10); /* sweep */
    float out[3];
    assert_true(weft_table_read(&table, 7, out) && out[0] == 1);
    assert_non_null(weft_table_obtain(&table, 7));
    assert_int_equal(weft_table_step_all(&table), 1);
    assert_false(weft_table_read(&table, 7, out)); /* no push in this clock: expired again */
    finish(&table);
}

/* Restoring requests memory; it never evicts restored rows. */
static void restoring_evicts_nothing(void **state)
{
    (void)state;
    for (uint8_t eviction = WEFT_EVICTION_LRU; eviction <= WEFT_EVICTION_L2; eviction++) {
        struct weft_table table;
        struct weft_table_spec spec = spec_of(eviction, 0);
        size_t bytes;
        assert_int_equal(table_init(&table, 10, 3, 4 * 40), WEFT_OK); /* slabs of four rows */
        assert_int_equal(weft_table_declare(&table, &spec), WEFT_OK);
        const float weights[3] = {1, 2, 3};
        struct weft_table_view view = {.clock = 1, .weights = weights, .state = weights};
        for (view.id = 0; view.id < 10; view.id++) {
            while (weft_table_restore(&table, &view) != WEFT_OK) {
                assert_true(weft_table_wants_slab(&table, &bytes));
                assert_int_equal(weft_table_add_slab(&table, malloc(bytes), bytes), WEFT_OK);
            }
            assert_int_equal(weft_table_rows(&table), view.id + 1);
        }
        assert_int_equal(weft_table_restore(&table, &view), WEFT_NOMEM); /* rows_max */
        assert_int_equal(table.counters.rows_evicted, 0);
        finish(&table);
    }
}

/* A chunk needs all its rows at once: none of them is evicted for another. */
static void a_chunk_holds_its_rows(void **state)
{
    (void)state;
    for (uint8_t eviction = WEFT_EVICTION_LRU; eviction <= WEFT_EVICTION_L2; eviction++) {
        struct weft_table table;
        struct weft_table_spec spec = spec_of(eviction, 0);
        table_make(&table, 4, &spec);
        struct weft_table_row *rows[5];
        assert_true(obtain_chunk(&table, (const uint64_t[]){1, 2, 3, 4}, 4, rows));
        assert_true(obtain_chunk(&table, (const uint64_t[]){1, 5, 6, 7}, 4, rows));
        for (uint64_t id = 1; id <= 7; id++) {
            assert_int_equal(weft_table_find(&table, id) != NULL, id == 1 || id >= 5);
        }
        assert_false(obtain_chunk(&table, (const uint64_t[]){10, 11, 12, 13, 14}, 5, rows));
        assert_int_equal(table.counters.rows_refused, 1);
        assert_non_null(weft_table_find(&table, 13));
        /* No row stays pinned, whether the chunk is refused or not. */
        assert_true(obtain_chunk(&table, (const uint64_t[]){20, 21, 22, 20}, 4, rows));
        assert_ptr_equal(rows[0], rows[3]);
        finish(&table);
    }
}

/* A row with gradients of an unfinished BSP clock is never evicted. */
static void waiting_sums_hold_their_row(void **state)
{
    (void)state;
    struct weft_table table;
    struct weft_table_spec spec = spec_of(WEFT_EVICTION_LRU, 0);
    spec.mode = WEFT_TABLE_BSP;
    table_make(&table, 2, &spec);
    const float gradient[3] = {1, 2, 3};
    struct weft_table_row *row;
    weft_table_accumulate(&table, weft_table_obtain(&table, 1), 0, gradient);
    assert_true(obtain_chunk(&table, (const uint64_t[]){2}, 1, &row));
    /* row 2 is evicted, not row 1 */
    assert_true(obtain_chunk(&table, (const uint64_t[]){3}, 1, &row));
    weft_table_accumulate(&table, row, 0, gradient);
    assert_non_null(weft_table_find(&table, 1));
    assert_false(obtain_chunk(&table, (const uint64_t[]){4}, 1, &row));
    assert_int_equal(weft_table_step_all(&table), 2);
    assert_true(obtain_chunk(&table, (const uint64_t[]){4}, 1, &row));
    finish(&table);
}

/* Rows 0 .. rows - 1. */
static void fill(struct weft_table *table, uint32_t rows)
{
    for (uint64_t id = 0; id < rows; id++) {
        give_slabs(table);
        assert_non_null(weft_table_obtain(table, id));
    }
    assert_int_equal(weft_table_rows(table), rows);
}

/* Rows that cannot be evicted are in consecutive slots: those pushed first in this clock, or those
 * of the chunk itself. As long as many others can be, a chunk is not refused. */
static void others_can_go(void **state)
{
    (void)state;
    enum { ROWS = 4000, HALF = ROWS / 2 };
    static uint64_t ids[HALF];
    static struct weft_table_row *rows[HALF];
    const float gradient[3] = {1, 2, 3};
    for (uint32_t i = 0; i < 4; i++) {
        struct weft_table table;
        struct weft_table_spec spec = spec_of(i < 2 ? WEFT_EVICTION_LRU : WEFT_EVICTION_L2, 0);
        spec.mode = i % 2 == 0 ? WEFT_TABLE_BSP : WEFT_TABLE_ASP;
        table_make(&table, ROWS, &spec);
        fill(&table, ROWS);
        for (uint64_t id = 0; spec.mode == WEFT_TABLE_BSP && id < HALF; id++) {
            weft_table_accumulate(&table, weft_table_find(&table, id), 0, gradient);
        }
        for (uint32_t k = 0; k < HALF; k++) {
            ids[k] = ROWS + k;
        }
        const uint32_t count = spec.mode == WEFT_TABLE_BSP ? 100 : HALF;
        assert_true(obtain_chunk(&table, ids, count, rows));
        assert_int_equal(table.counters.rows_refused, 0);
        assert_int_equal(table.counters.rows_evicted, count);
        finish(&table);
    }
}

/* In a table of which nearly all rows wait for the end of the clock, a chunk is refused after a
 * short search. */
static void few_can_go(void **state)
{
    (void)state;
    enum { ROWS = 4000 };
    const float gradient[3] = {1, 2, 3};
    struct weft_table table;
    struct weft_table_spec spec = spec_of(WEFT_EVICTION_LRU, 0);
    struct weft_table_row *row;
    spec.mode = WEFT_TABLE_BSP;
    table_make(&table, ROWS, &spec);
    fill(&table, ROWS);
    for (uint64_t id = 0; id + 1 < ROWS; id++) {
        weft_table_accumulate(&table, weft_table_find(&table, id), 0, gradient);
    }
    uint32_t refused = 0;
    while (!obtain_chunk(&table, (const uint64_t[]){ROWS}, 1, &row)) {
        assert_int_equal(table.hand, ++refused * 256 % ROWS);
    }
    assert_int_equal(refused, ROWS / 256); /* the next search finds the last row */
    finish(&table);
}

/* Exact limit in bytes: index, admission and slabs stay within it and use most of it. */
static void bytes_are_a_limit(void **state)
{
    (void)state;
    for (uint64_t bytes_max = 100; bytes_max < 30000; bytes_max = bytes_max * 5 / 4) {
        struct weft_table_limits limits = {.rows_max = 5000,
                                           .dim_max = 16,
                                           .slab_bytes = 3000,
                                           .bytes_max = bytes_max * 2,
                                           .shards = 1};
        struct weft_table table;
        struct weft_table_spec spec = spec_of(WEFT_EVICTION_NONE, 0);
        spec.bytes_max = bytes_max;
        spec.admission = WEFT_ADMISSION_COUNTER;
        spec.admission_count = 2;
        spec.admission_cells = 64;
        assert_int_equal(weft_table_init(&table, &limits), WEFT_OK);
        weft_status status = weft_table_declare(&table, &spec);
        assert_int_equal(status, bytes_max < 64 * 16 + 64 + 40 ? WEFT_INVALID : WEFT_OK);
        uint64_t given = 0;
        size_t bytes;
        uint64_t id = 0;
        while (status == WEFT_OK) {
            while (weft_table_wants_slab(&table, &bytes)) {
                assert_int_equal(weft_table_add_slab(&table, malloc(bytes), bytes), WEFT_OK);
                given += bytes;
            }
            uint64_t index_bytes = (table.index_mask + UINT64_C(1)) * 64;
            assert_int_equal(weft_table_bytes(&table), given + index_bytes);
            assert_true(given + index_bytes <= bytes_max);
            if (weft_table_obtain(&table, id++) == NULL) {
                break;
            }
        }
        if (status == WEFT_OK) {
            uint64_t rows = weft_table_rows(&table);
            assert_true(rows == id - 1 && rows <= (table.index_mask_max + 1) * 9);
            /* No other index size would allow even one more row. */
            for (uint64_t buckets = 1; buckets < 1000; buckets *= 2) {
                uint64_t taken = buckets * 64 + 1024;
                uint64_t room = taken > bytes_max ? 0 : bytes_max - taken;
                assert_true(weft_min_u64(room / table.row_bytes, buckets * 9) <= rows);
            }
        }
        finish(&table);
    }
}

static void the_smaller_limit_counts(void **state)
{
    (void)state;
    struct weft_table table;
    struct weft_table_spec spec = spec_of(WEFT_EVICTION_NONE, 0);
    spec.rows_max = 5;
    table_make(&table, 10, &spec);
    for (uint64_t id = 0; id < 10; id++) {
        assert_int_equal(weft_table_obtain(&table, id) != NULL, id < 5);
    }
    finish(&table);
    spec.rows_max = 50;
    table_make(&table, 10, &spec);
    for (uint64_t id = 0; id < 20; id++) {
        assert_int_equal(weft_table_obtain(&table, id) != NULL, id < 10);
    }
    finish(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_goes),
        cmocka_unit_test(ttl_is_exact),
        cmocka_unit_test(waiting_sums_do_not_expire),
        cmocka_unit_test(restoring_evicts_nothing),
        cmocka_unit_test(a_chunk_holds_its_rows),
        cmocka_unit_test(waiting_sums_hold_their_row),
        cmocka_unit_test(others_can_go),
        cmocka_unit_test(few_can_go),
        cmocka_unit_test(bytes_are_a_limit),
        cmocka_unit_test(the_smaller_limit_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
