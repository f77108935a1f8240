/* Dense tables: placement of rows, initial values, the mean over received contributions, pushes in
 * arrival order, checkpoints; through a whole cluster of shards and workers. */
#include "base/init.h"
#include "ps_table_rig.h"

static struct weft_table_spec spec_of(uint8_t mode, uint64_t length, uint32_t dim)
{
    return (struct weft_table_spec){.dim = dim,
                                    .mode = mode,
                                    .workers = 4,
                                    .learning_rate = 1,
                                    .kind = WEFT_TABLE_DENSE,
                                    .length = length};
}

static void make(struct weft_table *table, const struct weft_table_spec *spec, uint32_t shard,
                 uint32_t shards)
{
    const struct weft_table_limits limits = {
        .rows_max = 100, .dim_max = 1024, .slab_bytes = 3000, .shard = shard, .shards = shards};
    assert_int_equal(weft_table_init(table, &limits), WEFT_OK);
    assert_int_equal(weft_table_declare(table, spec), WEFT_OK);
    give_slabs(table);
}

/* Every block is on exactly one shard and exists from the beginning; none exists beyond the end. */
static void every_block_has_its_shard(void **state)
{
    (void)state;
    struct weft_table_spec spec = spec_of(WEFT_TABLE_ASP, 5 * 10 - 3, 10);
    spec.init_scale = 1;
    for (uint32_t shards = 1; shards <= 7; shards++) {
        uint32_t rows = 0;
        for (uint32_t shard = 0; shard < shards; shard++) {
            struct weft_table table;
            make(&table, &spec, shard, shards);
            rows += weft_table_rows(&table);
            for (uint64_t id = 0; id < 20; id++) {
                bool here = id < 5 && id % shards == shard;
                float out[10];
                assert_int_equal(weft_table_owns(&table, id), here);
                assert_int_equal(weft_table_find(&table, id) != NULL, here);
                assert_int_equal(weft_table_read(&table, id, out), here);
                assert_true(out[3] == weft_init_value(0, id, 3, 1));
                assert_int_equal(weft_table_spec_shard(&spec, id, shards), id % shards);
            }
            assert_false(weft_table_owns(&table, UINT64_MAX));
            finish(&table);
        }
        assert_int_equal(rows, 5);
    }
}

/* BSP: the sum of a block is divided by the number of received gradients: 3 of 4 workers, 1,
 * none. */
static void the_mean_of_what_came(void **state)
{
    (void)state;
    struct weft_table_spec spec = spec_of(WEFT_TABLE_BSP, 600, 300);
    struct weft_table table;
    make(&table, &spec, 0, 1);
    float gradient[256];
    for (int w = 0; w < 3; w++) {
        for (int i = 0; i < 256; i++) {
            gradient[i] = (float)(w + 1);
        }
        weft_table_accumulate(&table, weft_table_find(&table, 0), 0, gradient);
        if (w == 2) {
            weft_table_accumulate(&table, weft_table_find(&table, 0), 1, gradient);
        }
    }
    for (int clock = 0; clock < 2; clock++) { /* no residue for a second clock */
        assert_int_equal(weft_table_step_all(&table), clock == 0);
        float out[300];
        assert_true(weft_table_read(&table, 0, out));
        assert_true(out[0] == -2 && out[255] == -2);
        assert_true(out[256] == -3 && out[299] == -3);
        assert_true(weft_table_read(&table, 1, out));
        assert_true(out[0] == 0 && out[299] == 0);
    }
    finish(&table);
    /* In arrival order: each gradient is divided by W. */
    spec.mode = WEFT_TABLE_ASP;
    make(&table, &spec, 0, 1);
    gradient[0] = 4;
    weft_table_step(&table, weft_table_find(&table, 1), 0, gradient);
    float out[300];
    assert_true(weft_table_read(&table, 1, out));
    assert_true(out[0] == -1);
    finish(&table);
}

/* Without a gradient momentum does not move the block; with the rule of sparse sums it would. */
static void a_block_without_gradient_stands_still(void **state)
{
    (void)state;
    struct weft_table_spec spec = spec_of(WEFT_TABLE_BSP, 300, 300);
    spec.optimizer = WEFT_OPTIMIZER_MOMENTUM;
    spec.beta1 = 0.5F;
    struct weft_table table;
    make(&table, &spec, 0, 1);
    float gradient[256] = {1};
    struct weft_table_row *row = weft_table_find(&table, 0);
    weft_table_accumulate(&table, row, 0, gradient);
    weft_table_accumulate(&table, row, 1, gradient);
    (void)weft_table_step_all(&table);
    weft_table_accumulate(&table, row, 1, gradient);
    (void)weft_table_step_all(&table);
    const float *weights = weft_table_weights(&table, row);
    assert_true(weights[0] == -1 && weights[256] == -2.5F);
    finish(&table);
}

static void checkpoints_replace(void **state)
{
    (void)state;
    struct weft_table_spec spec = spec_of(WEFT_TABLE_BSP, 50, 10);
    struct weft_table from, to;
    make(&from, &spec, 1, 2);
    make(&to, &spec, 1, 2);
    const float gradient[10] = {8, 0, 4};
    weft_table_accumulate(&from, weft_table_find(&from, 3), 0, gradient);
    weft_table_accumulate(&from, weft_table_find(&from, 3), 0, gradient);
    (void)weft_table_step_all(&from);
    weft_table_accumulate(&from, weft_table_find(&from, 1), 0, gradient);
    uint32_t cursor = 0, rows = 0;
    struct weft_table_view view;
    while (weft_table_next(&from, &cursor, &view)) {
        rows++;
        assert_int_equal(weft_table_restore(&to, &view), WEFT_OK);
    }
    assert_int_equal(rows, 2);
    assert_int_equal(weft_table_step_all(&to), 1);
    float out[10];
    assert_true(weft_table_read(&to, 3, out) && out[0] == -8 && out[2] == -4);
    assert_true(weft_table_read(&to, 1, out) && out[0] == -8 && out[2] == -4);
    view.id = 2; /* belongs to the other shard */
    assert_int_equal(weft_table_restore(&to, &view), WEFT_INVALID);
    view.id = 5; /* beyond the end */
    assert_int_equal(weft_table_restore(&to, &view), WEFT_INVALID);
    finish(&from);
    finish(&to);
}

static void limits_hold(void **state)
{
    (void)state;
    struct weft_table_limits limits = {.rows_max = 4, .dim_max = 10, .slab_bytes = 100, .shards = 1};
    struct weft_table table;
    struct weft_table_spec spec = spec_of(WEFT_TABLE_ASP, 41, 10);
    assert_int_equal(weft_table_init(&table, &limits), WEFT_OK);
    assert_int_equal(weft_table_declare(&table, &spec), WEFT_INVALID);
    spec.length = 40;
    assert_int_equal(weft_table_declare(&table, &spec), WEFT_OK);
    /* Memory supplied late: pushes are refused until then, and no missing row is visible. */
    assert_null(weft_table_find(&table, 0));
    struct weft_table_row *row;
    assert_false(obtain_chunk(&table, (const uint64_t[]){3}, 1, &row));
    give_slabs(&table);
    assert_true(obtain_chunk(&table, (const uint64_t[]){3}, 1, &row));
    assert_non_null(row);
    finish(&table);
    limits.bytes_max = 4 * 64 - 1;
    assert_int_equal(weft_table_init(&table, &limits), WEFT_OK);
    assert_int_equal(weft_table_declare(&table, &spec), WEFT_INVALID);
    finish(&table);
    limits.bytes_max = 4 * 64;
    assert_int_equal(weft_table_init(&table, &limits), WEFT_OK);
    assert_int_equal(weft_table_declare(&table, &spec), WEFT_OK);
    finish(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_block_has_its_shard),
        cmocka_unit_test(the_mean_of_what_came),
        cmocka_unit_test(a_block_without_gradient_stands_still),
        cmocka_unit_test(checkpoints_replace),
        cmocka_unit_test(limits_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
