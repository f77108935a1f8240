/* A table compared with a simple array under random operations; slabs supplied late or never; rows
 * as seen by checkpoints; the set of missed ids compared with a simple one. */
#include "base/init.h"
#include "ps/missed.h"
#include "ps_table_rig.h"

enum { IDS = 300 };

static struct weft_table_spec spec_of(uint32_t dim, uint8_t mode)
{
    return (struct weft_table_spec){.dim = dim, .mode = mode, .workers = 2, .learning_rate = 1};
}

static uint64_t id_of(uint64_t i)
{
    /* Includes the extremes of the id space. */
    return i == 0 ? 0 : i == 1 ? UINT64_MAX : i == 2 ? 1 : i * UINT64_C(0x9e3779b97f4a7c15);
}

/* SGD, rate 1, W 2, even integer gradients: weights are exact integers. */
static void random_operations(uint64_t seed, uint32_t dim, uint8_t mode)
{
    struct weft_prng prng;
    weft_prng_init(&prng, seed);
    struct weft_table table;
    struct weft_table_spec spec = spec_of(dim, mode);
    assert_int_equal(table_init(&table, IDS, WEFT_RPC_DIM_MAX, 40000), WEFT_OK);
    assert_int_equal(weft_table_declare(&table, &spec), WEFT_OK);
    float *weights = calloc((size_t)IDS * dim, 4), *sums = calloc((size_t)IDS * dim, 4);
    float *out = calloc(dim, 4), gradient[WEFT_RPC_BLOCK_FLOATS];
    bool exists[IDS] = {false}, touched[IDS] = {false};
    for (int op = 0; op < 3000; op++) {
        uint32_t i = (uint32_t)weft_prng_below(&prng, IDS);
        uint32_t block = (uint32_t)weft_prng_below(&prng, weft_table_blocks(&spec));
        uint32_t used = weft_table_block_used(&spec, block),
                 what = (uint32_t)weft_prng_below(&prng, 100);
        give_slabs(&table);
        if (what < 60) {
            struct weft_table_row *row = weft_table_obtain(&table, id_of(i));
            assert_non_null(row);
            for (uint32_t k = 0; k < used; k++) {
                gradient[k] = 2 * (float)weft_prng_below(&prng, 9) - 8;
                (mode == WEFT_TABLE_BSP ? sums : weights)[i * dim + block * 256 + k] +=
                    mode == WEFT_TABLE_BSP ? gradient[k] : -gradient[k] / 2;
            }
            (mode == WEFT_TABLE_BSP ? weft_table_accumulate : weft_table_step)(&table, row, block,
                                                                               gradient);
            exists[i] = touched[i] = true;
        } else if (what < 98) {
            assert_int_equal(weft_table_read(&table, id_of(i), out), exists[i]);
            assert_memory_equal(out, weights + (size_t)i * dim, dim * 4);
            assert_int_equal(weft_table_find(&table, id_of(i)) != NULL, exists[i]);
        } else if (mode == WEFT_TABLE_BSP) {
            uint32_t count = 0;
            for (uint32_t j = 0; j < IDS * dim; j++) {
                weights[j] -= sums[j] / 2;
                sums[j] = 0;
            }
            for (uint32_t j = 0; j < IDS; j++) {
                count += touched[j];
                touched[j] = false;
            }
            assert_int_equal(weft_table_step_all(&table), count);
        }
    }
    assert_int_equal(table.counters.rows_refused, 0);
    free(weights);
    free(sums);
    free(out);
    finish(&table);
}

static void against_the_array(void **state)
{
    (void)state;
    static const uint32_t dims[] = {1, 3, 256, 300, 1024};
    for (size_t d = 0; d < WEFT_ARRAY_COUNT(dims); d++) {
        random_operations(d, dims[d], WEFT_TABLE_BSP);
        random_operations(d + 10, dims[d], WEFT_TABLE_ASP);
    }
}

static void slabs_run_out(void **state)
{
    (void)state;
    struct weft_table table;
    struct weft_table_spec spec = spec_of(1, WEFT_TABLE_ASP);
    assert_int_equal(table_init(&table, 100, 4, 32 * 32), WEFT_OK);
    size_t bytes;
    assert_false(weft_table_wants_slab(&table, &bytes)); /* not declared */
    assert_int_equal(weft_table_declare(&table, &spec), WEFT_OK);
    assert_true(weft_table_wants_slab(&table, &bytes));
    assert_int_equal(bytes, 32 * 32);
    assert_null(weft_table_obtain(&table, 5));
    assert_int_equal(table.counters.rows_refused, 1);
    void *memory = malloc(bytes);
    assert_int_equal(weft_table_add_slab(&table, memory, bytes - 1), WEFT_INVALID);
    assert_int_equal(weft_table_add_slab(&table, (char *)memory + 4, bytes), WEFT_INVALID);
    assert_int_equal(weft_table_add_slab(&table, memory, bytes), WEFT_OK);
    assert_false(weft_table_wants_slab(&table, &bytes));
    assert_int_equal(weft_table_add_slab(&table, memory, bytes), WEFT_STATE);
    for (uint64_t id = 0; id < 32; id++) {
        assert_int_equal(weft_table_wants_slab(&table, &bytes), id > 16);
        assert_non_null(weft_table_obtain(&table, id));
    }
    assert_null(weft_table_obtain(&table, 32)); /* no memory was supplied in time */
    assert_non_null(weft_table_obtain(&table, 31));
    assert_int_equal(table.counters.rows_refused, 2);
    give_slabs(&table);
    for (uint64_t id = 32; id < 100; id++) {
        give_slabs(&table);
        assert_non_null(weft_table_obtain(&table, id));
    }
    /* rows_max: neither rows nor slabs beyond it. */
    assert_null(weft_table_obtain(&table, 100));
    assert_false(weft_table_wants_slab(&table, &bytes));
    finish(&table);
}

/* An aggregate contains more new rows than half a slab. */
static void room_for_many_rows(void **state)
{
    (void)state;
    struct weft_table table;
    struct weft_table_spec spec = spec_of(1, WEFT_TABLE_ASP);
    assert_int_equal(table_init(&table, 1000, 4, 32 * 32), WEFT_OK);
    assert_int_equal(weft_table_declare(&table, &spec), WEFT_OK);
    give_slabs(&table);
    assert_int_equal(table.slab_count, 1); /* 32 rows */
    weft_table_want_rows(&table, 200);
    give_slabs(&table);
    for (uint64_t id = 0; id < 200; id++) {
        assert_non_null(weft_table_obtain(&table, id));
    }
    give_slabs(&table);
    for (uint64_t id = 200; id < 400; id++) {
        assert_non_null(weft_table_obtain(&table, id));
    }
    weft_table_want_rows(&table, 100); /* no less than before */
    weft_table_want_rows(&table, 100000);
    give_slabs(&table); /* ends at rows_max */
    for (uint64_t id = 400; id < 1000; id++) {
        assert_non_null(weft_table_obtain(&table, id));
    }
    assert_null(weft_table_obtain(&table, 1000));
    finish(&table);
}

static void adagrad_rows_start_with_the_accumulator(void **state)
{
    (void)state;
    struct weft_table table;
    struct weft_table_spec spec = {.dim = 2,
                                   .optimizer = WEFT_OPTIMIZER_ADAGRAD,
                                   .mode = WEFT_TABLE_ASP,
                                   .workers = 1,
                                   .learning_rate = 1,
                                   .epsilon = 1,
                                   .accumulator = 5};
    assert_int_equal(table_init(&table, 10, 4, 4096), WEFT_OK);
    assert_int_equal(weft_table_declare(&table, &spec), WEFT_OK);
    give_slabs(&table);
    struct weft_table_row *row = weft_table_obtain(&table, 9);
    weft_table_step(&table, row, 0, (const float[]){2, 0});
    assert_true(weft_table_weights(&table, row)[0] == -0.5F); /* 2 / (sqrt(5 + 4) + 1) */
    assert_true(weft_table_weights(&table, row)[1] == 0);
    finish(&table);
}

/* Reading a missing row does not create it. When it is created, it has the weights that were read,
 * in all columns except the skipped ones. */
static void rows_begin_as_they_were_read(void **state)
{
    (void)state;
    struct weft_table table;
    struct weft_table_spec spec = spec_of(5, WEFT_TABLE_ASP);
    spec.init_scale = 0.5F;
    spec.init_skip = 2;
    spec.init_seed = 77;
    assert_int_equal(table_init(&table, 10, 8, 4096), WEFT_OK);
    assert_int_equal(weft_table_declare(&table, &spec), WEFT_OK);
    give_slabs(&table);
    float out[5], zeros[5] = {0};
    assert_false(weft_table_read(&table, 9, out));
    assert_null(weft_table_find(&table, 9));
    for (uint32_t column = 0; column < 5; column++) {
        assert_true(out[column] == (column < 2 ? 0 : weft_init_value(77, 9, column, 0.5F)));
    }
    assert_true(out[3] != 0 && out[3] != out[4]);
    struct weft_table_row *row = weft_table_obtain(&table, 9);
    assert_memory_equal(weft_table_weights(&table, row), out, sizeof(out));
    weft_table_step(&table, row, 0, zeros);
    float again[5];
    assert_true(weft_table_read(&table, 9, again));
    assert_memory_equal(again, out, sizeof(out));
    finish(&table);
}

/* Two tables step identically after the rows of one were copied to the other at any time. */
static void restore_run(uint8_t optimizer, uint8_t mode)
{
    struct weft_table_spec spec = spec_of(300, mode);
    spec.optimizer = optimizer;
    spec.init_scale = 0.25F;
    spec.learning_rate = 0.1F;
    spec.epsilon = optimizer == WEFT_OPTIMIZER_SGD || optimizer == WEFT_OPTIMIZER_MOMENTUM ? 0 : 1;
    spec.beta1 =
        optimizer == WEFT_OPTIMIZER_MOMENTUM || optimizer == WEFT_OPTIMIZER_ADAM ? 0.5F : 0;
    spec.beta2 = optimizer == WEFT_OPTIMIZER_ADAM ? 0.75F : 0;
    struct weft_table a, b;
    struct weft_table *tables[] = {&a, &b};
    for (int t = 0; t < 2; t++) {
        assert_int_equal(table_init(tables[t], 100, 300, 20000), WEFT_OK);
        assert_int_equal(weft_table_declare(tables[t], &spec), WEFT_OK);
    }
    float gradient[WEFT_RPC_BLOCK_FLOATS];
    struct weft_prng prng;
    weft_prng_init(&prng, 3);
    uint32_t rows = 0;
    for (int op = 0; op < 400; op++) {
        if (op == 237) { /* in the middle of a BSP clock */
            uint32_t cursor = 0;
            struct weft_table_view view;
            while (weft_table_next(&a, &cursor, &view)) {
                give_slabs(&b);
                assert_int_equal(weft_table_restore(&b, &view), WEFT_OK);
                assert_int_equal(weft_table_restore(&b, &view), WEFT_EXISTS);
                rows++;
            }
            assert_int_equal(rows, weft_table_rows(&a));
            weft_table_set_now(&b, a.now);
        }
        uint64_t id = id_of(weft_prng_below(&prng, 80));
        uint32_t block = (uint32_t)weft_prng_below(&prng, 2);
        for (uint32_t i = 0; i < WEFT_RPC_BLOCK_FLOATS; i++) {
            gradient[i] = (float)weft_prng_below(&prng, 100) - 50;
        }
        for (int t = 0; t < 2 && (t == 0 || op >= 237); t++) {
            give_slabs(tables[t]);
            struct weft_table_row *row = weft_table_obtain(tables[t], id);
            weft_table_begin(tables[t], tables[t]->now - (tables[t]->now > 3));
            (mode == WEFT_TABLE_BSP ? weft_table_accumulate : weft_table_step)(tables[t], row,
                                                                               block, gradient);
            if (op % 50 == 49) {
                (void)weft_table_step_all(tables[t]);
                weft_table_set_now(tables[t], tables[t]->now + 1);
            }
        }
    }
    uint32_t cursor = 0;
    struct weft_table_view of_a, of_b;
    size_t state_bytes = 4 * (size_t)weft_table_state_floats(&a);
    while (weft_table_next(&a, &cursor, &of_a)) {
        uint32_t other = 0;
        while (weft_table_next(&b, &other, &of_b) && of_b.id != of_a.id) {
        }
        assert_int_equal(of_b.id, of_a.id);
        assert_memory_equal(of_b.weights, of_a.weights, 300 * 4);
        assert_memory_equal(of_b.state, of_a.state, state_bytes);
        assert_int_equal(of_b.clock, of_a.clock);
        assert_int_equal(of_b.count, of_a.count);
    }
    assert_true(rows > 50);
    finish(&a);
    finish(&b);
}

static void restored_rows_go_on(void **state)
{
    (void)state;
    for (uint8_t optimizer = 0; optimizer < WEFT_OPTIMIZERS_COUNT; optimizer++) {
        restore_run(optimizer, WEFT_TABLE_BSP);
        restore_run(optimizer, WEFT_TABLE_ASP);
    }
}

static void refused_limits(void **state)
{
    (void)state;
    struct weft_table table;
    assert_int_equal(table_init(&table, 0, 4, 4096), WEFT_INVALID);
    assert_int_equal(table_init(&table, 10, WEFT_RPC_DIM_MAX + 1, 4096), WEFT_INVALID);
    assert_int_equal(table_init(&table, 10, 4, 0), WEFT_INVALID);
    assert_int_equal(table_init(&table, 10, 4, 1), WEFT_OK); /* one row per slab */
    struct weft_table_spec spec = spec_of(5, WEFT_TABLE_ASP);
    assert_int_equal(weft_table_declare(&table, &spec), WEFT_INVALID);
    spec.dim = 4;
    assert_int_equal(weft_table_declare(&table, &spec), WEFT_OK);
    give_slabs(&table);
    for (uint64_t id = 0; id < 10; id++) {
        assert_non_null(weft_table_obtain(&table, id));
        give_slabs(&table);
    }
    finish(&table);
}

static void missed_against_a_list(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 4);
    struct weft_ps_missed missed;
    const uint8_t key[WEFT_HASH_KEY_BYTES] = {1};
    assert_int_equal(weft_ps_missed_init(&missed, 100, key), WEFT_OK);
    bool in[IDS] = {false}, twice[IDS] = {false};
    uint32_t count = 0, message = 0, added[IDS];
    for (int op = 0; op < 20000; op++) {
        uint32_t i = (uint32_t)weft_prng_below(&prng, IDS);
        if (weft_prng_chance(&prng, 20000)) {
            weft_ps_missed_begin(&missed);
            message++;
        }
        if (weft_prng_chance(&prng, 500000)) {
            bool room = in[i] || count < 100;
            assert_int_equal(weft_ps_missed_add(&missed, id_of(i)), room);
            count += room && !in[i];
            twice[i] = twice[i] || (in[i] && added[i] != message);
            in[i] = room;
            added[i] = message;
        } else {
            weft_ps_missed_remove(&missed, id_of(i));
            count -= in[i];
            in[i] = twice[i] = false;
        }
        i = (uint32_t)weft_prng_below(&prng, IDS);
        assert_int_equal(weft_ps_missed_twice(&missed, id_of(i)), twice[i]);
        assert_int_equal(weft_ps_missed_has(&missed, id_of(i)), in[i]);
        assert_int_equal(weft_ps_missed_now(&missed, id_of(i)), in[i] && added[i] == message);
        assert_int_equal(missed.count, count);
    }
    weft_ps_missed_fini(&missed);
}

/* Steps in slices of any size equal a step at once, whether few or most rows were touched. */
static void slices_like_at_once(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct weft_prng prng;
        struct weft_table once, sliced;
        struct weft_table *tables[] = {&once, &sliced};
        struct weft_table_spec spec = spec_of(3, WEFT_TABLE_BSP);
        weft_prng_init(&prng, seed);
        table_make(&once, IDS, &spec);
        table_make(&sliced, IDS, &spec);
        for (int clock = 0; clock < 6; clock++) {
            uint64_t touched_max = clock % 2 == 0 ? IDS : IDS / 8;
            uint32_t count = 0;
            for (int i = 0; i < 200; i++) {
                uint64_t id = id_of(weft_prng_below(&prng, touched_max));
                const float gradient[3] = {(float)i, 1, -2};
                for (int t = 0; t < 2; t++) {
                    give_slabs(tables[t]);
                    weft_table_accumulate(tables[t], weft_table_obtain(tables[t], id), 0, gradient);
                }
            }
            weft_table_step_begin(&sliced);
            while (weft_table_stepping(&sliced)) {
                assert_false(weft_table_settled(&sliced));
                uint32_t max = (uint32_t)weft_prng_range(&prng, 1, 40);
                uint32_t stepped = weft_table_step_some(&sliced, max);
                assert_true(stepped >= 1 && stepped <= max);
                count += stepped;
            }
            assert_true(weft_table_settled(&sliced));
            assert_int_equal(weft_table_step_all(&once), count);
        }
        for (uint32_t i = 0; i < IDS; i++) {
            float a[3], b[3];
            assert_int_equal(weft_table_read(&once, id_of(i), a),
                             weft_table_read(&sliced, id_of(i), b));
            assert_memory_equal(a, b, sizeof(a));
        }
        finish(&once);
        finish(&sliced);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_the_array),
        cmocka_unit_test(slices_like_at_once),
        cmocka_unit_test(slabs_run_out),
        cmocka_unit_test(room_for_many_rows),
        cmocka_unit_test(adagrad_rows_start_with_the_accumulator),
        cmocka_unit_test(rows_begin_as_they_were_read),
        cmocka_unit_test(restored_rows_go_on),
        cmocka_unit_test(refused_limits),
        cmocka_unit_test(missed_against_a_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
