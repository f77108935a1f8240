/* The index of a sparse table: comparing all tags at once equals comparing them one by one; rows
 * are found, or not, during growth, overflowing buckets and removals; the fast code paths equal the
 * general ones, bit for bit. */
#include "ps/table_index.h"
#include "ps/table_internal.h"
#include "ps_table_rig.h"

enum { IDS = 3000, OPS = 40000 };

static void tags_at_once_like_one_by_one(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 1);
    for (int i = 0; i < 10000; i++) {
        struct weft_table_bucket bucket = {.passed = (uint8_t)weft_prng_below(&prng, 4)};
        for (int k = 0; k < TABLE_BUCKET_SLOTS; k++) {
            /* Few different tags, among them the values of `passed` and of the zero bytes. */
            bucket.tags[k] = (uint8_t)(weft_prng_below(&prng, 3) * 127 + weft_prng_below(&prng, 2));
        }
        for (uint32_t tag = 0; tag < 256; tag++) {
            assert_int_equal(table_bucket_match(&bucket, (uint8_t)tag),
                             table_bucket_match_plain(&bucket, (uint8_t)tag));
        }
    }
}

/* Half of the ids have their home in one of a few buckets, for any index size in this test. */
static void choose_ids(const struct weft_table *table, uint64_t *ids)
{
    uint64_t next = 0;
    for (uint32_t i = 0; i < IDS; i++) {
        do {
            next++;
        } while (i % 2 == 0 && (weft_table_hash(table, next) & 0x1ff) >= 4);
        ids[i] = next;
    }
}

static void found_through_growth_and_removal(void **state)
{
    (void)state;
    static uint64_t ids[IDS];
    bool exists[IDS] = {false};
    struct weft_prng prng;
    struct weft_table table;
    const struct weft_table_spec spec = {.dim = 1, .mode = WEFT_TABLE_ASP, .workers = 1};
    weft_prng_init(&prng, 2);
    table_make(&table, IDS, &spec);
    choose_ids(&table, ids);
    assert_int_equal(table.index_mask, 63);
    uint32_t count = 0;
    for (int op = 0; op < OPS; op++) {
        uint32_t i = (uint32_t)weft_prng_below(&prng, IDS);
        /* First more insertions than removals, then the reverse. */
        if (weft_prng_below(&prng, 10) < (op < OPS / 2 ? 8 : 3)) {
            give_slabs(&table);
            assert_non_null(weft_table_obtain(&table, ids[i]));
            count += !exists[i];
            exists[i] = true;
        } else {
            weft_table_record_remove(&table, ids[i]);
            count -= exists[i];
            exists[i] = false;
        }
        assert_int_equal(weft_table_rows(&table), count);
        if (op % 5000 == 4999) {
            for (uint32_t k = 0; k < IDS; k++) {
                struct weft_table_row *row = weft_table_find(&table, ids[k]);
                assert_int_equal(row != NULL, exists[k]);
                assert_true(row == NULL || row->id == ids[k]);
            }
        }
    }
    assert_int_equal(table.index_mask, table.index_mask_max);
    finish(&table);
}

/* Chunks with repeated and new ids, and rows removed in between: obtain_chunk verifies its
 * candidate rows. */
static void chunks_find_what_is_there(void **state)
{
    (void)state;
    static uint64_t ids[IDS];
    struct weft_prng prng;
    struct weft_table table;
    const struct weft_table_spec spec = {
        .dim = 1, .mode = WEFT_TABLE_ASP, .workers = 1, .eviction = WEFT_EVICTION_LRU};
    weft_prng_init(&prng, 3);
    table_make(&table, 400, &spec);
    choose_ids(&table, ids);
    for (int op = 0; op < 2000; op++) {
        uint64_t chunk[200];
        struct weft_table_row *rows[200];
        uint32_t count = (uint32_t)weft_prng_range(&prng, 1, WEFT_ARRAY_COUNT(chunk));
        for (uint32_t i = 0; i < count; i++) {
            chunk[i] = ids[weft_prng_below(&prng, 600)];
        }
        give_slabs(&table);
        assert_true(obtain_chunk(&table, chunk, count, rows));
        float out[200];
        for (uint32_t i = 0; i < count; i++) {
            assert_true(rows[i] != NULL && rows[i]->id == chunk[i]);
            assert_ptr_equal(rows[i], weft_table_find(&table, chunk[i]));
            *table_weights(rows[i]) = (float)chunk[i];
        }
        assert_int_equal(weft_table_read_all(&table, chunk, count, out, 1), 0);
        for (uint32_t i = 0; i < count; i++) {
            assert_true(out[i] == (float)chunk[i]);
        }
        weft_table_set_now(&table, table.now + 1);
    }
    finish(&table);
}

/* Ids created in order, some of them removed or expired, looked up in runs: the run lookup returns
 * correct rows, and complete runs continue across slabs. */
static void rows_in_line_are_followed(void **state)
{
    (void)state;
    enum { ROWS = 1000, CHUNK = 200 };
    struct weft_prng prng;
    struct weft_table table;
    const struct weft_table_spec spec = {
        .dim = 1, .mode = WEFT_TABLE_ASP, .workers = 1, .eviction = WEFT_EVICTION_TTL, .ttl = 3};
    struct weft_table_row *rows[CHUNK];
    uint64_t ids[CHUNK];
    uint32_t followed = 0;
    weft_prng_init(&prng, 4);
    table_make(&table, ROWS + 1, &spec);
    for (uint64_t id = 0; id < ROWS; id++) {
        give_slabs(&table);
        assert_non_null(weft_table_obtain(&table, id * 3));
    }
    assert_true(table.slab_count > CHUNK / 100);
    /* Old contents of a slab's memory are not taken for rows. */
    struct weft_table_row *stale = table_row_at(&table, ROWS);
    *stale = (struct weft_table_row){.id = ROWS * 3, .number = ROWS | TABLE_ROW_LIVE};
    assert_false(
        weft_table_lookup_run(&table, (const uint64_t[]){ROWS * 3 - 3, ROWS * 3}, 2, rows));
    for (uint64_t first = 0; first + CHUNK <= ROWS; first++) {
        for (uint32_t i = 0; i < CHUNK; i++) {
            ids[i] = (first + i) * 3;
        }
        assert_true(weft_table_lookup_run(&table, ids, CHUNK, rows));
        assert_ptr_equal(rows[CHUNK - 1], weft_table_find(&table, ids[CHUNK - 1]));
    }
    for (int op = 0; op < 20000; op++) {
        uint32_t count = (uint32_t)weft_prng_range(&prng, 1, op % 4 == 0 ? CHUNK : 20), missing = 0;
        uint64_t next = weft_prng_below(&prng, ROWS);
        for (uint32_t i = 0; i < count; i++) {
            next = weft_prng_below(&prng, 100) == 0 ? weft_prng_below(&prng, ROWS) : next + 1;
            ids[i] = next * 3;
            missing += weft_table_find(&table, ids[i]) == NULL;
        }
        bool follows = weft_table_lookup_run(&table, ids, count, rows);
        assert_false(follows && missing > 0);
        for (uint32_t i = 0; follows && i < count; i++) {
            assert_ptr_equal(rows[i], weft_table_find(&table, ids[i]));
            rows[i]->clock = table.now; /* used, so it does not expire */
        }
        followed += follows;
        if (op % 8 == 0) {
            weft_table_record_remove(&table, weft_prng_below(&prng, ROWS) * 3);
        }
        if (op % 20 == 0) {
            weft_table_set_now(&table, table.now + 1);
        }
        if (op % 100 == 0) { /* create all again; removed ones get other slots */
            for (uint64_t id = 0; id < ROWS; id++) {
                give_slabs(&table);
                assert_non_null(weft_table_obtain(&table, id * 3));
            }
        }
    }
    assert_in_range(followed, 1000, 19000);
    finish(&table);
}

static float any_float(struct weft_prng *prng)
{
    /* Large and small values of both signs, some denormal. */
    return ((float)weft_prng_below(prng, 2000000) - 1000000) *
           (weft_prng_below(prng, 4) == 0 ? 0x1p-140F : 0x1p-19F);
}

static void apply_run(uint32_t dim, uint8_t mode, uint32_t workers, uint8_t average)
{
    enum { N = 64 };
    static uint8_t bytes[1 + N * 64 * 4];
    struct weft_prng prng;
    struct weft_table quick, slow;
    const struct weft_table_spec spec = {.dim = dim,
                                         .mode = mode,
                                         .workers = (uint16_t)workers,
                                         .learning_rate = 0.3F,
                                         .average = average};
    struct weft_table *tables[] = {&quick, &slow};
    weft_prng_init(&prng, dim * 7 + mode);
    for (int t = 0; t < 2; t++) {
        assert_int_equal(table_init(tables[t], N, dim, 1 << 16), WEFT_OK);
        assert_int_equal(weft_table_declare(tables[t], &spec), WEFT_OK);
    }
    for (int round = 0; round < 20; round++) {
        uint64_t ids[N];
        for (uint32_t i = 0; i < N; i++) {
            ids[i] = weft_prng_below(&prng, N);
        }
        for (uint32_t k = 0; k < N * dim; k++) {
            float g = any_float(&prng);
            memcpy(bytes + 1 + k * 4, &g, 4); /* at an odd address, as in a packet */
        }
        for (int t = 0; t < 2; t++) {
            struct weft_table_row *rows[N];
            give_slabs(tables[t]);
            assert_true(obtain_chunk(tables[t], ids, N, rows));
            rows[N / 2] = NULL;
            weft_table_begin(tables[t], tables[t]->now);
            assert_int_equal((t == 0 ? weft_table_apply : weft_table_apply_any)(tables[t], rows, 0,
                                                                                N, bytes + 1),
                             N - 1);
            if (round % 4 == 3) {
                (void)weft_table_step_all(tables[t]);
                weft_table_set_now(tables[t], tables[t]->now + 1);
            }
        }
        for (uint32_t i = 0; i < N; i++) {
            const struct weft_table_row *a = weft_table_find(&quick, i);
            const struct weft_table_row *b = weft_table_find(&slow, i);
            assert_int_equal(a != NULL, b != NULL);
            if (a != NULL) {
                assert_memory_equal(a, b, quick.row_bytes);
            }
        }
    }
    finish(&quick);
    finish(&slow);
}

static void quick_like_slow_bit_for_bit(void **state)
{
    (void)state;
    static const uint32_t dims[] = {1, 2, 5, 16, 17, 64};
    for (uint32_t i = 0; i < WEFT_ARRAY_COUNT(dims); i++) {
        static const uint8_t averages[] = {WEFT_AVERAGE_USUAL, WEFT_AVERAGE_CONTRIBUTORS,
                                           WEFT_AVERAGE_NONE};
        for (uint32_t a = 0; a < WEFT_ARRAY_COUNT(averages); a++) {
            uint8_t average = averages[a];
            apply_run(dims[i], WEFT_TABLE_ASP, 3, average);
            apply_run(dims[i], WEFT_TABLE_BSP, 3, average);
            apply_run(dims[i], WEFT_TABLE_BSP, 1, average);
        }
    }
}

/* A table with room for all rows obtains them some at a time, one that may be full obtains them all
 * before it applies any. */
static void sums_run(uint32_t dim, uint8_t mode)
{
    enum { N = 1000 };
    static uint8_t sums[1 + N * 16 * 4], counts[1 + N * 2];
    static uint64_t ids[N + 1], hashes[N + 1];
    static struct weft_table_row *rows[N + 1];
    struct weft_prng prng;
    struct weft_table wide, narrow;
    const struct weft_table_spec spec = {.dim = dim, .mode = mode, .workers = 3,
                                         .learning_rate = 0.3F,
                                         .average = WEFT_AVERAGE_CONTRIBUTORS};
    struct weft_table *tables[] = {&wide, &narrow};
    uint32_t wanted[N] = {0};
    weft_prng_init(&prng, dim + mode);
    for (uint32_t i = 0; i <= N; i++) {
        ids[i] = (uint64_t)i * 0x9e3779b97f4a7c15;
    }
    for (int t = 0; t < 2; t++) {
        assert_int_equal(table_init(tables[t], t == 0 ? 4 * N : N, dim, 1 << 16), WEFT_OK);
        assert_int_equal(weft_table_declare(tables[t], &spec), WEFT_OK);
        weft_table_want_rows(tables[t], N);
    }
    for (uint32_t count = N / 2; count <= N; count += N / 4) {
        uint64_t gradients = 0;
        for (uint32_t k = 0; k < count * dim; k++) {
            float g = any_float(&prng);
            memcpy(sums + 1 + k * 4, &g, 4);
        }
        for (uint32_t i = 0; i < count; i++) {
            bool one = weft_prng_below(&prng, 4) != 0; /* as in most sums */
            uint16_t of_row = one ? 1 : (uint16_t)weft_prng_range(&prng, 1, UINT16_MAX);
            memcpy(counts + 1 + i * 2, &of_row, 2);
            gradients += of_row;
            wanted[i] += of_row;
        }
        for (int t = 0; t < 2; t++) {
            give_slabs(tables[t]);
            weft_table_begin(tables[t], tables[t]->now);
            assert_true(weft_table_obtain_sums(tables[t], ids, count, hashes, rows));
            assert_int_equal(weft_table_rows(tables[t]),
                             t == 1 && count > N / 2 ? count : count == N / 2 ? 0 : count - N / 4);
            assert_int_equal(weft_table_apply_sums(tables[t], ids, count, sums + 1, counts + 1,
                                                   hashes, rows),
                             gradients);
        }
        for (uint32_t i = 0; i < count; i++) {
            assert_memory_equal(weft_table_find(&wide, ids[i]), weft_table_find(&narrow, ids[i]),
                                wide.row_bytes);
            assert_int_equal(weft_table_find(&wide, ids[i])->count, wanted[i]);
        }
    }
    give_slabs(&wide);
    assert_true(weft_table_obtain_sums(&wide, ids, N + 1, hashes, rows));
    assert_false(weft_table_obtain_sums(&narrow, ids, N + 1, hashes, rows));
    finish(&wide);
    finish(&narrow);
}

/* Room for sums of a length is made when the first have arrived, whether these were refused or, as
 * their rows existed, applied. */
static void room_for_sums(void **state)
{
    (void)state;
    enum { N = 2000, PIECE = 16 };
    static uint64_t ids[2 * N], hashes[N];
    static struct weft_table_row *rows[N];
    static uint8_t sums[N * 4], counts[N * 2];
    struct weft_table table;
    const struct weft_table_spec spec = {.dim = 1, .mode = WEFT_TABLE_ASP, .workers = 1};
    for (uint32_t i = 0; i < 2 * N; i++) {
        ids[i] = i;
        counts[2 * (i % N)] = 1;
    }
    for (int existed = 0; existed < 2; existed++) {
        table_make(&table, 4 * N, &spec);
        for (uint32_t from = 0; existed && from < N; from += PIECE) {
            give_slabs(&table);
            assert_true(weft_table_obtain_sums(&table, ids + from, PIECE, hashes, rows));
            (void)weft_table_apply_sums(&table, ids + from, PIECE, sums, counts, hashes, rows);
        }
        give_slabs(&table);
        assert_in_range(weft_table_room(&table), 1, N - 1);
        assert_int_equal(weft_table_obtain_sums(&table, ids, N, hashes, rows), existed);
        give_slabs(&table);
        const uint32_t before = weft_table_rows(&table);
        assert_true(weft_table_obtain_sums(&table, ids + N, N, hashes, rows));
        assert_int_equal(weft_table_rows(&table), before); /* not before they are applied */
        assert_int_equal(weft_table_apply_sums(&table, ids + N, N, sums, counts, hashes, rows), N);
        assert_int_equal(weft_table_rows(&table), before + N);
        finish(&table);
    }
}

static void sums_in_pieces_like_at_once(void **state)
{
    (void)state;
    sums_run(1, WEFT_TABLE_ASP);
    sums_run(16, WEFT_TABLE_ASP);
    sums_run(5, WEFT_TABLE_BSP);
    sums_run(16, WEFT_TABLE_BSP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tags_at_once_like_one_by_one),
        cmocka_unit_test(found_through_growth_and_removal),
        cmocka_unit_test(chunks_find_what_is_there),
        cmocka_unit_test(rows_in_line_are_followed),
        cmocka_unit_test(quick_like_slow_bit_for_bit),
        cmocka_unit_test(sums_in_pieces_like_at_once),
        cmocka_unit_test(room_for_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
