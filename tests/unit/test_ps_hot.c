/* The rows with most updates: compared with counts of every row, and with the key distribution that
 * the paper measured. */
#include "base/prng.h"
#include "ps/table_internal.h"
#include "ps_table_rig.h"
#include "zipf.h"

enum { CHUNK = 64 };

static struct weft_table_spec spec_of(uint8_t mode)
{
    return (struct weft_table_spec){.dim = 1, .mode = mode, .workers = 1, .learning_rate = 1};
}

static void make(struct weft_table *table, uint32_t rows_max, uint32_t top,
                 const struct weft_table_spec *spec)
{
    const struct weft_table_limits limits = {
        .rows_max = rows_max, .dim_max = 256, .slab_bytes = 1 << 20, .shards = 1, .hot_top = top};
    assert_int_equal(weft_table_init(table, &limits), WEFT_OK);
    assert_int_equal(weft_table_declare(table, spec), WEFT_OK);
    give_slabs(table);
}

static void push(struct weft_table *table, const uint64_t *ids, uint32_t count)
{
    static const float gradients[CHUNK];
    struct weft_table_row *rows[CHUNK];
    give_slabs(table);
    weft_table_begin(table, table->now);
    assert_true(obtain_chunk(table, ids, count, rows));
    assert_int_equal(weft_table_apply(table, rows, 0, count, (const uint8_t *)gradients), count);
}

/* ---- against every count --------------------------------------------------------------------- */

enum { IDS = 300, TOP = 20 };

static int by_updates(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Every count is correct, and no row with a larger count is missing. */
static void check_top(const struct weft_table *table, const uint32_t *counts)
{
    struct weft_hot_row hot[2 * TOP];
    uint32_t sorted[IDS], rows = 0;
    for (uint32_t i = 0; i < IDS; i++) {
        sorted[i] = counts[i];
        rows += counts[i] > 0;
    }
    qsort(sorted, IDS, sizeof(*sorted), by_updates);
    uint32_t n = weft_table_hot(table, hot, TOP);
    assert_int_equal(n, weft_min_u64(rows, TOP));
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(hot[i].updates, sorted[i]);
        assert_int_equal(hot[i].updates, counts[hot[i].id]);
        assert_true(i == 0 || hot[i - 1].updates > hot[i].updates || hot[i - 1].id < hot[i].id);
    }
    assert_in_range(weft_table_hot(table, hot, 2 * TOP), n, 2 * TOP);
    assert_int_equal(weft_table_hot(table, hot, 0), 0);
}

static void check_total(const struct weft_table *table, uint64_t updates, bool exact)
{
    struct weft_hot_total total;
    weft_table_hot_total(table, &total);
    assert_int_equal(total.updates, updates);
    assert_int_equal(total.exact, exact);
}

/* skew 0: all ids are equally frequent, with the maximum number of ties. */
static void run_random(uint64_t seed, uint32_t skew)
{
    struct weft_table_spec spec = spec_of(WEFT_TABLE_ASP);
    struct weft_table table;
    struct weft_prng prng;
    uint32_t counts[IDS] = {0};
    uint64_t updates = 0;
    weft_prng_init(&prng, seed);
    make(&table, IDS, TOP, &spec);
    for (int chunk = 0; chunk < 200; chunk++) {
        uint64_t ids[CHUNK];
        uint32_t n = (uint32_t)weft_prng_range(&prng, 1, CHUNK);
        for (uint32_t i = 0; i < n; i++) {
            ids[i] = weft_prng_below(&prng, IDS);
            for (uint32_t again = 0; again < skew; again++) {
                ids[i] = weft_prng_below(&prng, ids[i] + 1);
            }
            counts[ids[i]]++;
        }
        push(&table, ids, n);
        updates += n;
        check_top(&table, counts);
    }
    check_total(&table, updates, true);
    finish(&table);
}

static void test_random(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        run_random(seed, (uint32_t)(seed % 4));
    }
}

/* Round robin: all counts are equal or differ by one. */
static void test_round_robin(void **state)
{
    (void)state;
    struct weft_table_spec spec = spec_of(WEFT_TABLE_ASP);
    struct weft_table table;
    uint32_t counts[IDS] = {0};
    make(&table, IDS, TOP, &spec);
    for (uint32_t i = 0; i < 20 * IDS; i++) {
        uint64_t id = i % IDS;
        push(&table, &id, 1);
        counts[id]++;
        check_top(&table, counts);
    }
    struct weft_hot_total total;
    weft_table_hot_total(&table, &total);
    /* At least `top` rows are added to the list before each rise. */
    assert_in_range(total.rises, 1, 20 * IDS / TOP);
    finish(&table);
}

/* A row that appears late becomes the hottest. */
static void test_newcomer(void **state)
{
    (void)state;
    struct weft_table_spec spec = spec_of(WEFT_TABLE_ASP);
    struct weft_table table;
    struct weft_hot_row hot;
    make(&table, IDS, TOP, &spec);
    for (uint64_t round = 0; round < 100; round++) {
        for (uint64_t id = 0; id < IDS - 1; id++) {
            push(&table, &id, 1);
        }
    }
    uint64_t late = IDS - 1;
    for (int i = 0; i < 101; i++) {
        push(&table, &late, 1);
    }
    assert_int_equal(weft_table_hot(&table, &hot, 1), 1);
    assert_int_equal(hot.id, late);
    assert_int_equal(hot.updates, 101);
    finish(&table);
}

/* The rows of a vector count once for all their blocks, from the first push on. */
static void test_dense(void **state)
{
    (void)state;
    enum { DIM = 256, ROWS = 3 };
    struct weft_table_spec spec = spec_of(WEFT_TABLE_BSP);
    spec.kind = WEFT_TABLE_DENSE;
    spec.dim = DIM;
    spec.length = (uint64_t)DIM * ROWS;
    struct weft_table table;
    make(&table, ROWS, TOP, &spec);
    float *gradient = calloc(table.block_floats, sizeof(*gradient));
    for (uint64_t id = 0; id < ROWS; id++) {
        for (uint64_t i = 0; i <= id; i++) {
            for (uint32_t block = 0; block < table.blocks; block++) {
                weft_table_accumulate(&table, weft_table_find(&table, id), block, gradient);
            }
        }
    }
    struct weft_hot_row hot[ROWS + 1];
    assert_int_equal(weft_table_hot(&table, hot, ROWS + 1), ROWS);
    assert_int_equal(hot[0].id, 2);
    assert_int_equal(hot[0].updates, 3);
    assert_int_equal(hot[2].updates, 1);
    check_total(&table, 6, true);
    free(gradient);
    finish(&table);
}

/* ---- rows that go and come ------------------------------------------------------------------- */

/* A slot is on the list once, whatever row it contains. */
static void test_removed(void **state)
{
    (void)state;
    struct weft_table_spec spec = spec_of(WEFT_TABLE_ASP);
    struct weft_table table;
    struct weft_prng prng;
    uint32_t counts[IDS] = {0};
    weft_prng_init(&prng, 7);
    make(&table, IDS, TOP, &spec);
    for (int step = 0; step < 20000; step++) {
        uint64_t id = weft_prng_below(&prng, 1 + weft_prng_below(&prng, IDS));
        if (weft_prng_chance(&prng, 200000)) {
            weft_table_record_remove(&table, id);
            counts[id] = 0;
        } else {
            push(&table, &id, 1);
            counts[id]++;
        }
        struct weft_hot_row hot[TOP];
        uint32_t n = weft_table_hot(&table, hot, TOP);
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(hot[i].updates, counts[hot[i].id]);
            assert_true(i == 0 || hot[i - 1].id != hot[i].id);
        }
    }
    finish(&table);
}

/* Counts are restored with the rows of a checkpoint. */
static void test_restored(void **state)
{
    (void)state;
    struct weft_table_spec spec = spec_of(WEFT_TABLE_ASP);
    struct weft_table table, other;
    make(&table, IDS, TOP, &spec);
    make(&other, IDS, TOP, &spec);
    for (uint64_t id = 0; id < IDS; id++) {
        for (uint64_t i = 0; i <= id; i++) {
            push(&table, &id, 1);
        }
    }
    uint8_t *record = malloc(weft_table_record_bytes(&table));
    for (uint32_t number = 0; number < IDS; number++) {
        weft_table_record_read(&table, number, record);
        give_slabs(&other);
        assert_int_equal(weft_table_record_write(&other, record), WEFT_OK);
        /* Overwritten: nothing counts twice. */
        assert_int_equal(weft_table_record_write(&other, record), WEFT_OK);
    }
    struct weft_hot_row a[TOP], b[TOP];
    assert_int_equal(weft_table_hot(&table, a, TOP), TOP);
    assert_int_equal(weft_table_hot(&other, b, TOP), TOP);
    for (uint32_t i = 0; i < TOP; i++) {
        assert_int_equal(a[i].id, b[i].id);
        assert_int_equal(a[i].updates, b[i].updates);
    }
    check_total(&other, (uint64_t)IDS * (IDS + 1) / 2, true);
    free(record);
    finish(&table);
    finish(&other);
}

/* Every update is in the count of a row or in that of the removed rows; so the true number of
 * updates of the top k is at least their counts, and at most these and the removed ones. */
static void check_removed(const struct weft_table *table, const uint32_t *true_counts)
{
    struct weft_hot_row hot[TOP];
    struct weft_hot_total total;
    struct weft_table_view view;
    uint32_t sorted[IDS], cursor = 0;
    uint64_t counted = 0, low = 0, truth = 0;
    const uint64_t removed = weft_table_hot_removed(table);
    while (weft_table_next(table, &cursor, &view)) {
        counted += view.count;
    }
    weft_table_hot_total(table, &total);
    assert_int_equal(counted + removed, total.updates);
    assert_false(total.exact && removed > 0 && table->spec.eviction != WEFT_EVICTION_TTL);
    memcpy(sorted, true_counts, sizeof(sorted));
    qsort(sorted, IDS, sizeof(*sorted), by_updates);
    uint32_t n = weft_table_hot(table, hot, TOP);
    for (uint32_t k = 0; k < n; k++) {
        low += hot[k].updates;
        truth += sorted[k];
        assert_in_range(hot[k].updates, 1, true_counts[hot[k].id]);
        assert_in_range(truth, low, low + removed);
    }
}

static void test_updates_of_removed_rows(void **state)
{
    (void)state;
    const uint8_t evictions[] = {WEFT_EVICTION_LRU, WEFT_EVICTION_TTL};
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct weft_table_spec spec = spec_of(WEFT_TABLE_ASP);
        struct weft_table table;
        struct weft_prng prng;
        uint32_t counts[IDS] = {0};
        spec.eviction = evictions[seed % 2];
        spec.ttl = spec.eviction == WEFT_EVICTION_TTL ? 3 : 0;
        weft_prng_init(&prng, seed);
        make(&table, IDS / 6, TOP, &spec);
        for (uint32_t chunk = 0; chunk < 300; chunk++) {
            uint64_t id = weft_prng_below(&prng, weft_prng_range(&prng, 1, IDS));
            struct weft_table_row *row;
            weft_table_set_now(&table, table.now + (chunk % 20 == 0));
            weft_table_begin(&table, table.now);
            if (obtain_chunk(&table, &id, 1, &row)) {
                push(&table, &id, 1);
                counts[id]++;
            }
            check_removed(&table, counts);
        }
        assert_true(table.hot.removed > 0);
        finish(&table);
    }
}

static void test_off(void **state)
{
    (void)state;
    struct weft_table_spec spec = spec_of(WEFT_TABLE_ASP);
    struct weft_table table;
    struct weft_hot_row hot;
    uint64_t id = 5;
    make(&table, IDS, 0, &spec);
    push(&table, &id, 1);
    assert_int_equal(weft_table_hot(&table, &hot, 1), 0);
    check_total(&table, 1, true);
    finish(&table);
}

/* ---- as in the paper ------------------------------------------------------------------------- */

enum { KEYS = 150000000, HOTTEST = 20000, DRAWS = 2000000, REPORTED = 1000, RANKS = 1 << 20 };

/* Number of reported rows whose exact count is at least that of the REPORTED-th hottest row. */
static uint32_t recalled(const struct weft_hot_row *hot, uint32_t n, const uint32_t *counts)
{
    uint32_t *sorted = malloc(sizeof(*sorted) * RANKS);
    memcpy(sorted, counts, sizeof(*sorted) * RANKS);
    qsort(sorted, RANKS, sizeof(*sorted), by_updates);
    uint32_t found = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t rank = hot[i].id / 2;
        assert_true(rank < RANKS);
        found += counts[rank] >= sorted[REPORTED - 1];
    }
    free(sorted);
    return found;
}

/* Share of the hottest rows, in ppm; ids are 2 x rank. If rows_max is less than the number of drawn
 * keys, rows are evicted. */
static uint32_t run_zipf(double share, uint32_t rows_max, uint32_t *recalled_p)
{
    struct weft_table_spec spec = spec_of(WEFT_TABLE_ASP);
    spec.eviction = WEFT_EVICTION_LRU;
    struct zipf zipf = zipf_make(zipf_exponent(HOTTEST, KEYS, share), KEYS);
    struct weft_table table;
    struct weft_prng prng;
    uint32_t *counts = calloc(RANKS, sizeof(*counts));
    uint32_t of_hottest = 0;
    weft_prng_init(&prng, 11);
    make(&table, rows_max, REPORTED, &spec);
    for (uint32_t drawn = 0; drawn < DRAWS; drawn += CHUNK) {
        uint64_t ids[CHUNK];
        for (uint32_t i = 0; i < CHUNK; i++) {
            uint64_t rank = zipf_draw(&zipf, &prng);
            ids[i] = 2 * rank;
            of_hottest += rank <= HOTTEST;
            if (rank < RANKS) {
                counts[rank]++;
            }
        }
        push(&table, ids, CHUNK);
        if (drawn % (1 << 16) == 0) {
            weft_table_set_now(&table, table.now + 1);
        }
    }
    struct weft_hot_row *hot = calloc(REPORTED, sizeof(*hot));
    uint32_t n = weft_table_hot(&table, hot, REPORTED);
    *recalled_p = recalled(hot, n, counts);
    print_message("share %.1f, exponent %.4f, %u rows: %u of %d recalled, %llu rises\n", share,
                  zipf.s, rows_max, *recalled_p, (int)REPORTED,
                  (unsigned long long)table.hot.rises);
    free(hot);
    free(counts);
    finish(&table);
    return (uint32_t)((uint64_t)of_hottest * WEFT_PPM / DRAWS);
}

static void test_paper(void **state)
{
    (void)state;
    const double shares[] = {0.5, 0.7};
    for (int i = 0; i < 2; i++) {
        uint32_t found;
        uint32_t share = run_zipf(shares[i], 2000000, &found);
        assert_int_equal(found, REPORTED);
        /* Within one percentage point. */
        assert_in_range(share, (uint32_t)(shares[i] * 1e6) - 10000,
                        (uint32_t)(shares[i] * 1e6) + 10000);
    }
}

/* Memory for one row in ten of those pushed. */
static void test_paper_evicting(void **state)
{
    (void)state;
    uint32_t found;
    (void)run_zipf(0.5, 100000, &found);
    assert_in_range(found, REPORTED * 99 / 100, REPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_round_robin),
        cmocka_unit_test(test_newcomer),
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_removed),
        cmocka_unit_test(test_restored),
        cmocka_unit_test(test_updates_of_removed_rows),
        cmocka_unit_test(test_off),
        cmocka_unit_test(test_paper),
        cmocka_unit_test(test_paper_evicting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
