/* The divisor of a sum of gradients: the number of workers, the number of gradients, or 1. With
 * integer values, for every kind and mode of a table, for rows of one and of two blocks, and across
 * a checkpoint in the middle of a clock. */
#include "ps_table_rig.h"

enum { WORKERS = 4, WIDE = 300 };

static struct weft_table_spec spec_of(uint8_t kind, uint8_t mode, uint32_t dim, bool contributors)
{
    struct weft_table_spec spec = {.dim = dim,
                                   .mode = mode,
                                   .workers = WORKERS,
                                   /* a weight is the sum of the applied gradients */
                                   .learning_rate = -1,
                                   .kind = kind,
                                   .length = kind == WEFT_TABLE_DENSE ? 8 * dim : 0};
    spec.average = weft_table_average_of(&spec, contributors ? WEFT_AVERAGE_CONTRIBUTORS
                                                             : WEFT_AVERAGE_WORKERS);
    return spec;
}

/* One gradient, all its floats g, of the given block of row `id`. */
static void push(struct weft_table *table, uint64_t id, uint32_t block, float g)
{
    float gradient[WEFT_RPC_BLOCK_FLOATS];
    uint64_t hash = weft_table_hash(table, id);
    struct weft_table_row *row;
    for (uint32_t i = 0; i < WEFT_RPC_BLOCK_FLOATS; i++) {
        gradient[i] = g;
    }
    assert_true(weft_table_obtain_chunk(table, &id, &hash, block, 1, &row));
    weft_table_begin(table, table->now);
    assert_int_equal(
        weft_table_apply(table, &row, block, 1, (const uint8_t *)(const void *)gradient), 1);
}

/* Check the first and the last weight of row `id`. */
static void row_is(const struct weft_table *table, uint64_t id, float first, float last)
{
    float out[WIDE];
    (void)weft_table_read(table, id, out);
    if (out[0] != first || out[table->spec.dim - 1] != last) {
        fail_msg("row %llu is %g .. %g, not %g .. %g", (unsigned long long)id, (double)out[0],
                 (double)out[table->spec.dim - 1], (double)first, (double)last);
    }
}

/* Row 1: gradients 3, 6 and 9; row 2: one of 8; row 3: none. The second clock has one of 8 for row
 * 1: the first clock leaves no residue. */
static void bsp_run(uint8_t kind, uint32_t dim, bool contributors)
{
    struct weft_table_spec spec = spec_of(kind, WEFT_TABLE_BSP, dim, contributors);
    struct weft_table table;
    table_make(&table, 8, &spec);
    for (uint32_t w = 1; w <= 3; w++) {
        push(&table, 1, 0, 3.0F * (float)w);
    }
    push(&table, 2, 0, 8);
    assert_int_equal(weft_table_step_all(&table), 2);
    row_is(&table, 1, contributors ? 6 : 4.5F, contributors ? 6 : 4.5F);
    row_is(&table, 2, contributors ? 8 : 2, contributors ? 8 : 2);
    row_is(&table, 3, 0, 0);
    push(&table, 1, 0, 8);
    assert_int_equal(weft_table_step_all(&table), 1);
    row_is(&table, 1, contributors ? 14 : 6.5F, contributors ? 14 : 6.5F);
    row_is(&table, 2, contributors ? 8 : 2, contributors ? 8 : 2);
    finish(&table);
}

static void a_clock_is_divided_by_either(void **state)
{
    (void)state;
    static const uint32_t dims[] = {1, 3, 16, 64};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(dims); i++) {
        for (int contributors = 0; contributors <= 1; contributors++) {
            bsp_run(WEFT_TABLE_SPARSE, dims[i], contributors != 0);
            bsp_run(WEFT_TABLE_DENSE, dims[i], contributors != 0);
        }
    }
}

/* Outside BSP a gradient is one step: divided by W, or whole. Momentum uses the general code path,
 * SGD the fast one. */
static void by_arrival_it_is_a_part_or_whole(void **state)
{
    (void)state;
    static const uint8_t optimizers[] = {WEFT_OPTIMIZER_SGD, WEFT_OPTIMIZER_MOMENTUM};
    for (int kind = WEFT_TABLE_SPARSE; kind <= WEFT_TABLE_DENSE; kind++) {
        for (int i = 0; i < 8; i++) {
            bool contributors = i % 2 == 1;
            uint8_t mode = i / 2 % 2 == 0 ? WEFT_TABLE_SSP : WEFT_TABLE_ASP;
            struct weft_table_spec spec = spec_of((uint8_t)kind, mode, 5, contributors);
            struct weft_table table;
            spec.optimizer = optimizers[i / 4];
            table_make(&table, 8, &spec);
            push(&table, 1, 0, 8);
            push(&table, 1, 0, 4);
            row_is(&table, 1, contributors ? 12 : 3, contributors ? 12 : 3);
            finish(&table);
        }
    }
}

/* Undivided: the row is the sum of the pushes, in every kind and mode, whichever worker has
 * left. */
static void a_sum_is_not_divided(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        uint8_t kind = i % 2 == 0 ? WEFT_TABLE_SPARSE : WEFT_TABLE_DENSE;
        uint8_t mode = (uint8_t)(WEFT_TABLE_BSP + i / 2 % 3);
        uint32_t dim = i < 6 ? 5 : WIDE;
        struct weft_table_spec spec = spec_of(kind, mode, dim, false);
        struct weft_table table;
        spec.average = weft_table_average_of(&spec, WEFT_AVERAGE_NONE);
        assert_int_equal(spec.average, WEFT_AVERAGE_NONE);
        table_make(&table, 8, &spec);
        for (uint32_t block = 0; block < (dim + 255) / 256; block++) {
            push(&table, 1, block, 8);
            push(&table, 1, block, 3);
            give_slabs(&table); /* a slab has room for only a few of these wide rows */
            push(&table, 2, block, -1);
        }
        weft_table_set_averaged(&table, 2);
        (void)weft_table_step_all(&table);
        row_is(&table, 1, 11, 11);
        row_is(&table, 2, -1, -1);
        finish(&table);
    }
}

/* A worker that left is not counted; received contributions stay. */
static void fewer_workers_change_one_of_them(void **state)
{
    (void)state;
    for (int contributors = 0; contributors <= 1; contributors++) {
        struct weft_table_spec spec =
            spec_of(WEFT_TABLE_SPARSE, WEFT_TABLE_BSP, 2, contributors != 0);
        struct weft_table table;
        table_make(&table, 8, &spec);
        weft_table_set_averaged(&table, 2);
        push(&table, 1, 0, 8);
        (void)weft_table_step_all(&table);
        row_is(&table, 1, contributors ? 8 : 4, contributors ? 8 : 4);
        finish(&table);
    }
}

/* Two blocks; the second gets two gradients, then none. Each block has its own count. Without a
 * gradient a block does not change; a step with an empty sum would move it by its momentum. */
static void each_block_has_its_own_count(void **state)
{
    (void)state;
    for (int contributors = 0; contributors <= 1; contributors++) {
        struct weft_table_spec spec =
            spec_of(WEFT_TABLE_SPARSE, WEFT_TABLE_BSP, WIDE, contributors != 0);
        struct weft_table table;
        spec.optimizer = WEFT_OPTIMIZER_MOMENTUM;
        spec.beta1 = 0.5F;
        table_make(&table, 8, &spec);
        push(&table, 7, 0, 8);
        push(&table, 7, 1, 8);
        push(&table, 7, 1, 16);
        (void)weft_table_step_all(&table);
        row_is(&table, 7, contributors ? 8 : 2, contributors ? 12 : 6);
        push(&table, 7, 0, 0);
        (void)weft_table_step_all(&table);
        row_is(&table, 7, contributors ? 12 : 3, contributors ? 12 : 9);
        finish(&table);
    }
}

/* The view of a row in an unfinished clock is sufficient to continue. */
static void counts_survive_a_checkpoint(void **state)
{
    (void)state;
    for (uint32_t dim = 2; dim <= WIDE; dim += WIDE - 2) {
        struct weft_table_spec spec = spec_of(WEFT_TABLE_SPARSE, WEFT_TABLE_BSP, dim, true);
        struct weft_table from, to;
        struct weft_table_view view;
        uint32_t cursor = 0;
        table_make(&from, 8, &spec);
        table_make(&to, 8, &spec);
        assert_int_equal(weft_table_sums_floats(&from), dim + from.blocks);
        push(&from, 5, 0, 1);
        push(&from, 5, 0, 2);
        push(&from, 5, from.blocks - 1, 3);
        assert_true(weft_table_next(&from, &cursor, &view));
        assert_int_equal(weft_table_restore(&to, &view), WEFT_OK);
        push(&to, 5, 0, 6);
        assert_int_equal(weft_table_step_all(&to), 1);
        row_is(&to, 5, 3, 3); /* (1 + 2 + 3 + 6) / 4, or (1 + 2 + 6) / 3 and 3 / 1 */
        finish(&from);
        finish(&to);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clock_is_divided_by_either),
        cmocka_unit_test(by_arrival_it_is_a_part_or_whole),
        cmocka_unit_test(a_sum_is_not_divided),
        cmocka_unit_test(fewer_workers_change_one_of_them),
        cmocka_unit_test(each_block_has_its_own_count),
        cmocka_unit_test(counts_survive_a_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
