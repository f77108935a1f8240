/* Rows by id, compared with a plain array of the stored rows. */
#include "ps/row_store.h"

#include "base/prng.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdlib.h>

enum { IDS = 200, DIM = 3 };

/* values[i] > 0: id i is stored, with this value in each float. */
static void compare(const struct weft_row_store *store, const uint32_t *values)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < IDS; i++) {
        const float *row = weft_row_store_find(store, i * UINT64_C(0x123456789));
        assert_int_equal(row != NULL, values[i] > 0);
        count += row != NULL;
        for (uint32_t d = 0; row != NULL && d < DIM; d++) {
            assert_true(row[d] == (float)values[i]);
        }
    }
    assert_int_equal(store->count, count);
}

static void set(float *row, uint32_t value)
{
    for (uint32_t d = 0; d < DIM; d++) {
        row[d] = (float)value;
    }
}

static const uint8_t key[WEFT_HASH_KEY_BYTES] = {7};

static void rows_come_and_go(void **state)
{
    (void)state;
    for (uint32_t rows_max = 1; rows_max <= IDS; rows_max = rows_max * 3 + 1) {
        struct weft_prng prng;
        weft_prng_init(&prng, rows_max);
        void *memory = malloc(weft_row_store_bytes(rows_max, DIM));
        struct weft_row_store store;
        weft_row_store_init(&store, memory, rows_max, DIM, key);
        uint32_t values[IDS] = {0};
        for (uint32_t step = 1; step <= 3000; step++) {
            uint32_t i = (uint32_t)weft_prng_below(&prng, IDS);
            uint64_t id = i * UINT64_C(0x123456789);
            if (values[i] > 0) {
                weft_row_store_remove(&store, id);
                values[i] = 0;
            } else {
                bool full = store.count == rows_max;
                float *row = weft_row_store_add(&store, id);
                assert_int_equal(row == NULL, full);
                if (row != NULL) {
                    set(row, step);
                    values[i] = step;
                }
            }
            weft_row_store_remove(&store, UINT64_MAX); /* was never stored */
            if (step % 50 == 0) {
                compare(&store, values);
            }
        }
        free(memory);
    }
}

/* Without room the oldest row is evicted. */
static void the_oldest_makes_room(void **state)
{
    (void)state;
    enum { MAX = 30 };
    void *memory = malloc(weft_row_store_bytes(MAX, DIM));
    struct weft_row_store store;
    weft_row_store_init(&store, memory, MAX, DIM, key);
    uint32_t values[IDS] = {0};
    for (uint32_t i = 0; i < IDS; i++) {
        set(weft_row_store_replace(&store, i * UINT64_C(0x123456789)), i + 1);
        values[i] = i + 1;
        if (i >= MAX) {
            values[i - MAX] = 0;
        }
        compare(&store, values);
    }
    free(memory);
}

static void nothing_is_there_without_memory(void **state)
{
    (void)state;
    struct weft_row_store store = {0};
    assert_null(weft_row_store_find(&store, 0));
    weft_row_store_remove(&store, 0);
    assert_null(weft_row_store_add(&store, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_and_go),
        cmocka_unit_test(the_oldest_makes_room),
        cmocka_unit_test(nothing_is_there_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
