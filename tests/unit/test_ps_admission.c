/* Admission: exact counts compared with an array, eviction when cells run out, the Bloom filter's
 * guarantee (never later) and its error; and a table with admission. */
#include "base/prng.h"
#include "ps_table_rig.h"

enum { IDS = 400 };

static void *begin(struct weft_admission *admission, uint8_t kind, uint32_t count, uint32_t cells)
{
    struct weft_table_spec spec = {
        .admission = kind, .admission_count = count, .admission_cells = cells};
    const uint8_t key[WEFT_HASH_KEY_BYTES] = {1};
    weft_admission_init(admission, &spec, key);
    size_t bytes = weft_admission_bytes(admission);
    void *memory = malloc(bytes);
    memset(memory, 0x5a, bytes);
    weft_admission_begin(admission, memory);
    return memory;
}

/* All ids fit: counts are exact while some ids are removed. */
static void counter_is_exact(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct weft_prng prng;
        weft_prng_init(&prng, seed);
        struct weft_admission a;
        uint32_t threshold = 2 + (uint32_t)seed;
        /* At most 7/8 of the cells are used. */
        void *memory = begin(&a, WEFT_ADMISSION_COUNTER, threshold, IDS * 8 / 7 + 1);
        uint32_t counts[IDS] = {0};
        for (int op = 0; op < 20000; op++) {
            uint64_t i = weft_prng_below(&prng, IDS);
            uint64_t id = i == 0 ? UINT64_MAX : i * UINT64_C(0x9e3779b97f4a7c15) * (seed & 1) + i;
            bool admitted = weft_admission_count(&a, id);
            assert_int_equal(admitted, ++counts[i] >= threshold);
            if (admitted && weft_prng_chance(&prng, 800000)) {
                weft_admission_done(&a, id);
                counts[i] = 0;
            }
        }
        assert_int_equal(a.forgotten, 0);
        free(memory);
    }
}

/* With a long stream of ids pushed once, repeated ids are still counted. */
static void counter_forgets_the_rare(void **state)
{
    (void)state;
    struct weft_admission a;
    void *memory = begin(&a, WEFT_ADMISSION_COUNTER, 10, 64);
    uint32_t admitted_regulars = 0;
    for (uint64_t op = 0; op < 10000; op++) {
        uint64_t once = (UINT64_C(1) << 40) + op, regular = op % 20;
        assert_false(weft_admission_count(&a, once));
        admitted_regulars += weft_admission_count(&a, regular);
        assert_true(a.used <= 56);
    }
    assert_true(a.forgotten > 9000 && a.forgotten < 10000 + 500);
    assert_true(admitted_regulars > 8000);
    free(memory);
}

static void bloom_is_never_later(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        struct weft_prng prng;
        weft_prng_init(&prng, seed);
        struct weft_admission a;
        uint32_t threshold = 2 + (uint32_t)seed;
        void *memory = begin(&a, WEFT_ADMISSION_BLOOM, threshold, 64 + 300 * (uint32_t)seed);
        uint32_t counts[IDS] = {0};
        for (int op = 0; op < 5000; op++) {
            uint64_t id = weft_prng_below(&prng, IDS);
            bool admitted = weft_admission_count(&a, id);
            assert_true(admitted || ++counts[id] < threshold);
        }
        free(memory);
    }
}

/* 8 cells an id, threshold 2: the header states that about one id in forty is admitted too early
 * once all have been pushed. */
static void bloom_is_seldom_earlier(void **state)
{
    (void)state;
    enum { MANY = 20000 };
    struct weft_admission a;
    void *memory = begin(&a, WEFT_ADMISSION_BLOOM, 2, 8 * MANY);
    uint32_t early = 0, early_late = 0;
    for (uint64_t id = 0; id < MANY; id++) {
        early += weft_admission_count(&a, id);
    }
    for (uint64_t id = MANY; id < MANY + 1000; id++) {
        early_late += weft_admission_count(&a, id);
    }
    assert_in_range(early, 1, MANY / 60);
    assert_in_range(early_late, 10, 45);
    free(memory);
}

/* Copied and restored: counting continues, id by id. */
static void counts_are_kept(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        struct weft_prng prng;
        weft_prng_init(&prng, seed);
        struct weft_admission a, b;
        void *memory = begin(&a, WEFT_ADMISSION_COUNTER, 4, IDS * 8 / 7 + 1);
        void *other = begin(&b, WEFT_ADMISSION_COUNTER, 4, IDS * 8 / 7 + 1);
        uint32_t counts[IDS] = {0}, waiting = 0;
        assert_int_equal(weft_admission_copy_bytes(&a), 0);
        for (int op = 0; op < 500; op++) {
            uint64_t id = weft_prng_below(&prng, IDS);
            if (++counts[id] <= 4 && weft_admission_count(&a, id)) {
                weft_admission_done(&a, id);
            }
        }
        struct weft_admission_counts copy;
        void *copied = malloc(weft_admission_copy_bytes(&a) + 1);
        weft_admission_copy(&a, copied, &copy);
        for (uint32_t i = 0; i < copy.count; i++) {
            assert_int_equal(copy.counts[i], counts[copy.ids[i]]);
            weft_admission_restore_count(&b, copy.ids[i], copy.counts[i]);
            /* The larger count stays, and a count of 0 is invalid. */
            weft_admission_restore_count(&b, copy.ids[i], 1);
            weft_admission_restore_count(&b, IDS + i, 0);
        }
        for (uint64_t id = 0; id < IDS; id++) {
            bool waits = counts[id] > 0 && counts[id] < 4;
            waiting += waits;
            assert_true(!waits || weft_admission_count(&b, id) == (counts[id] + 1 == 4));
        }
        assert_int_equal(copy.count, waiting);
        assert_int_equal(b.used, waiting);
        free(copied);
        free(memory);
        free(other);
    }
}

/* A full set is copied and restored with each id in its old cell, so the same ids are evicted from
 * here on. */
static void full_it_goes_on_alike(void **state)
{
    (void)state;
    enum { CELLS = 128 };
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct weft_prng prng;
        weft_prng_init(&prng, seed);
        struct weft_admission a, b;
        void *memory = begin(&a, WEFT_ADMISSION_COUNTER, 4, CELLS);
        void *other = begin(&b, WEFT_ADMISSION_COUNTER, 4, CELLS);
        b.key[0]++; /* the key of another process */
        b.hash_key = weft_hash_key(b.key);
        for (int op = 0; op < 3000; op++) {
            uint64_t id = weft_prng_below(&prng, IDS);
            if (weft_admission_count(&a, id)) {
                weft_admission_done(&a, id);
            }
        }
        assert_true(a.forgotten > 100);
        struct weft_admission_counts copy;
        void *copied = malloc(weft_admission_copy_bytes(&a));
        weft_admission_copy(&a, copied, &copy);
        assert_int_equal(weft_admission_restore_key(&b, copy.key), WEFT_OK);
        for (uint32_t i = 0; i < copy.count; i++) {
            weft_admission_restore_count(&b, copy.ids[i], copy.counts[i]);
        }
        weft_admission_restore_hand(&b, copy.hand);
        for (int op = 0; op < 3000; op++) {
            uint64_t id = weft_prng_below(&prng, IDS);
            bool admitted = weft_admission_count(&a, id);
            assert_int_equal(weft_admission_count(&b, id), admitted);
            if (admitted) {
                weft_admission_done(&a, id);
                weft_admission_done(&b, id);
            }
        }
        free(copied);
        free(memory);
        free(other);
    }
}

/* A key is accepted for a filter only while it has counted nothing, and for ids only if it is not
 * zero. */
static void keys_are_taken_once(void **state)
{
    (void)state;
    const uint8_t zeros[WEFT_HASH_KEY_BYTES] = {0}, two[WEFT_HASH_KEY_BYTES] = {2};
    for (uint8_t kind = WEFT_ADMISSION_COUNTER; kind <= WEFT_ADMISSION_BLOOM; kind++) {
        bool is_filter = kind == WEFT_ADMISSION_BLOOM;
        struct weft_admission a;
        void *memory = begin(&a, kind, 2, 1000);
        assert_int_equal(weft_admission_restore_key(&a, zeros), WEFT_OK);
        assert_int_equal(a.keyed,
                         !is_filter); /* a filter of an earlier release keeps its function */
        assert_int_equal(weft_admission_restore_key(&a, two), WEFT_OK);
        assert_true(a.keyed && a.key[0] == 2);
        assert_false(weft_admission_count(&a, 1));
        assert_int_equal(weft_admission_restore_key(&a, two), WEFT_OK);
        assert_int_equal(weft_admission_restore_key(&a, zeros), is_filter ? WEFT_EXISTS : WEFT_OK);
        assert_int_equal(a.key[0], 2);
        free(memory);
    }
}

/* Merged filters of three shards: no id is admitted later than before. */
static void filters_join(void **state)
{
    (void)state;
    enum { SHARDS = 3, CELLS = 3000 };
    for (uint64_t seed = 0; seed < 10; seed++) {
        struct weft_prng prng;
        weft_prng_init(&prng, seed);
        struct weft_admission a[SHARDS], joined;
        void *memory[SHARDS], *copied = malloc(CELLS);
        void *other = begin(&joined, WEFT_ADMISSION_BLOOM, 5, CELLS);
        uint32_t counts[IDS] = {0};
        for (uint32_t s = 0; s < SHARDS; s++) {
            memory[s] = begin(&a[s], WEFT_ADMISSION_BLOOM, 5, CELLS);
        }
        for (int op = 0; op < 300; op++) {
            uint64_t id = weft_prng_below(&prng, IDS);
            (void)weft_admission_count(&a[id % SHARDS], id);
            counts[id]++;
        }
        for (uint32_t s = 0; s < SHARDS; s++) {
            struct weft_admission_counts copy;
            assert_int_equal(weft_admission_copy_bytes(&a[s]), CELLS);
            weft_admission_copy(&a[s], copied, &copy);
            assert_int_equal(copy.cells, CELLS);
            weft_admission_restore_filter(&joined, copy.filter);
            free(memory[s]);
        }
        for (uint64_t id = 0; id < IDS; id++) {
            bool admitted = false;
            for (uint32_t more = counts[id]; more < 5; more++) {
                admitted = weft_admission_count(&joined, id);
            }
            assert_true(admitted || counts[id] >= 5);
        }
        free(copied);
        free(other);
    }
}

static void a_table_asks(void **state)
{
    (void)state;
    for (uint8_t kind = WEFT_ADMISSION_COUNTER; kind <= WEFT_ADMISSION_BLOOM; kind++) {
        struct weft_table_spec spec = {.dim = 2,
                                       .mode = WEFT_TABLE_ASP,
                                       .workers = 1,
                                       .learning_rate = 1,
                                       .admission = kind,
                                       .admission_count = 3,
                                       .admission_cells = 4096};
        struct weft_table table;
        size_t bytes;
        assert_int_equal(table_init(&table, 3000, 2, 4096), WEFT_OK);
        assert_int_equal(weft_table_declare(&table, &spec), WEFT_OK);
        struct weft_table_row *rows[4];
        /* Without memory for counts, no id is admitted. */
        for (int i = 0; i < 5; i++) {
            assert_true(obtain_chunk(&table, (const uint64_t[]){9}, 1, rows));
            assert_null(rows[0]);
        }
        assert_true(weft_table_wants_slab(&table, &bytes));
        assert_int_equal(bytes, kind == WEFT_ADMISSION_BLOOM ? 4096 : 4096 * 16);
        give_slabs(&table);
        /* Every occurrence counts; the third one and all later ones find a row. */
        assert_true(obtain_chunk(&table, (const uint64_t[]){9, 9, 8, 9}, 4, rows));
        assert_true(rows[0] == NULL && rows[1] == NULL && rows[2] == NULL && rows[3] != NULL);
        assert_int_equal(table.counters.unadmitted, 5 + 3);
        /* Only id 8 is counted: an id with a row needs no cell. */
        assert_int_equal(table.admission.used, kind == WEFT_ADMISSION_COUNTER);
        float block[8] = {1, 1, 1, 1, 1, 1, 2, 3};
        assert_int_equal(weft_table_apply(&table, rows, 0, 4, (const uint8_t *)(void *)block), 1);
        float out[2];
        assert_true(weft_table_read(&table, 9, out));
        assert_true(out[0] == -2 && out[1] == -3);
        assert_false(weft_table_read(&table, 8, out)); /* a pull is not counted */
        assert_false(weft_table_read(&table, 8, out));
        assert_true(obtain_chunk(&table, (const uint64_t[]){8, 9}, 2, rows));
        assert_true(rows[0] == NULL && rows[1] != NULL);
        /* Admission does not apply to a checkpoint's rows. */
        const float state_of[2] = {5, 6};
        const struct weft_table_view view = {.id = 77, .weights = state_of, .state = state_of};
        assert_int_equal(weft_table_restore(&table, &view), WEFT_OK);
        assert_int_equal(weft_table_rows(&table), 2);
        finish(&table);
    }
}

/* A row of several blocks is one push, whichever blocks of it arrive first. */
static void a_row_of_blocks_counts_once(void **state)
{
    (void)state;
    struct weft_table_spec spec = {.dim = 24,
                                   .block_floats = 8,
                                   .mode = WEFT_TABLE_ASP,
                                   .workers = 1,
                                   .learning_rate = 1,
                                   .admission = WEFT_ADMISSION_COUNTER,
                                   .admission_count = 2,
                                   .admission_cells = 64};
    struct weft_table table;
    table_make(&table, 100, &spec);
    const uint64_t ids[] = {5, 5, 5, 5, 5};
    uint64_t hashes[5];
    for (int i = 0; i < 5; i++) {
        hashes[i] = weft_table_hash(&table, 5);
    }
    struct weft_table_row *rows[5];
    /* Blocks 1 2 | 0 1 2 of two pushes. */
    assert_true(weft_table_obtain_chunk(&table, ids, hashes, 1, 5, rows));
    for (int i = 0; i < 5; i++) {
        assert_null(rows[i]);
    }
    assert_int_equal(table.counters.unadmitted, 1);
    assert_true(weft_table_obtain_chunk(&table, ids, hashes, 2, 4, rows));
    assert_true(rows[0] == NULL && rows[1] != NULL && rows[2] == rows[1] && rows[3] == rows[1]);
    finish(&table);
}

/* A table cannot use more memory for its cells than for the rows that the server allows; a limit in
 * bytes covers both. */
static void cells_are_limited(void **state)
{
    (void)state;
    struct weft_table_spec spec = {.dim = 2,
                                   .mode = WEFT_TABLE_ASP,
                                   .workers = 1,
                                   .learning_rate = 1,
                                   .admission = WEFT_ADMISSION_COUNTER,
                                   .admission_count = 2};
    /* 100 rows of 24 + 8 bytes are 200 cells of 16, or 3,200 of one byte. */
    const struct {
        uint8_t kind;
        uint32_t cells;
        uint64_t bytes_max;
        weft_status status;
    } cases[] = {
        {WEFT_ADMISSION_COUNTER, 200, 0, WEFT_OK},
        {WEFT_ADMISSION_COUNTER, 201, 0, WEFT_INVALID},
        {WEFT_ADMISSION_COUNTER, 201, 10000, WEFT_OK},
        {WEFT_ADMISSION_BLOOM, 3200, 0, WEFT_OK},
        {WEFT_ADMISSION_BLOOM, 3201, 0, WEFT_INVALID},
        {WEFT_ADMISSION_COUNTER, WEFT_RPC_CELLS_MAX, 0, WEFT_INVALID},
    };
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(cases); i++) {
        const struct weft_table_limits limits = {.rows_max = 100,
                                                 .dim_max = 1024,
                                                 .slab_bytes = 4096,
                                                 .bytes_max = cases[i].bytes_max,
                                                 .shards = 1};
        struct weft_table table;
        assert_int_equal(weft_table_init(&table, &limits), WEFT_OK);
        spec.admission = cases[i].kind;
        spec.admission_cells = cases[i].cells;
        spec.bytes_max = 1 << 30; /* the worker's limit does not raise the server's */
        assert_int_equal(weft_table_declare(&table, &spec), cases[i].status);
        weft_table_fini(&table);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counter_is_exact),     cmocka_unit_test(counter_forgets_the_rare),
        cmocka_unit_test(bloom_is_never_later), cmocka_unit_test(bloom_is_seldom_earlier),
        cmocka_unit_test(counts_are_kept),      cmocka_unit_test(full_it_goes_on_alike),
        cmocka_unit_test(keys_are_taken_once),  cmocka_unit_test(filters_join),
        cmocka_unit_test(a_table_asks),         cmocka_unit_test(a_row_of_blocks_counts_once),
        cmocka_unit_test(cells_are_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
