/* Shares: every training row exactly once per epoch, in batches on which all processes agree. */
#include "ml/share.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

/* A data set that has only a training list; row numbers differ from positions. */
static struct weft_ml_dataset bare_dataset(uint32_t train_count)
{
    struct weft_ml_dataset set = {.train_count = train_count, .row_count = train_count * 3};
    set.train_rows = malloc((train_count + 1) * sizeof(*set.train_rows));
    assert_non_null(set.train_rows);
    for (uint32_t i = 0; i < train_count; i++) {
        set.train_rows[i] = i * 3;
    }
    return set;
}

static void every_row_once_per_epoch(void **state)
{
    (void)state;
    static const uint32_t counts[] = {0, 1, 3, 4, 5, 7, 64, 100, 1000, 1025};
    for (size_t c = 0; c < WEFT_ARRAY_COUNT(counts); c++) {
        for (uint32_t workers = 1; workers <= 9; workers += 2) {
            struct weft_ml_dataset set = bare_dataset(counts[c]);
            uint8_t *seen = calloc(set.row_count + 1, 1);
            assert_non_null(seen);
            const uint32_t batch_rows = 16;
            uint32_t steps = weft_ml_share_steps(&set, workers, batch_rows);
            for (uint32_t w = 0; w < workers; w++) {
                struct weft_ml_share share;
                assert_int_equal(weft_ml_share_init(&share, &set, w, workers, 1), WEFT_OK);
                weft_ml_share_begin_epoch(&share, 2);
                uint32_t least = UINT32_MAX;
                uint32_t most = 0;
                for (uint32_t s = 0; s < steps; s++) {
                    const uint32_t *rows = NULL;
                    uint32_t count = 0;
                    weft_ml_share_step(&share, s, steps, &rows, &count);
                    least = count < least ? count : least;
                    most = count > most ? count : most;
                    for (uint32_t r = 0; r < count; r++) {
                        assert_int_equal(rows[r] / 3 % workers, w);
                        seen[rows[r]]++;
                    }
                }
                assert_true(most <= batch_rows && most - least <= 1);
                assert_true(least > 0 || share.row_count < steps);
                weft_ml_share_fini(&share);
            }
            for (uint32_t r = 0; r < set.row_count; r++) {
                assert_int_equal(seen[r], r % 3 == 0);
            }
            free(seen);
            weft_ml_dataset_fini(&set);
        }
    }
}

static void check_order(const struct weft_ml_dataset *set, uint64_t seed, uint32_t worker,
                        uint32_t epoch, const uint32_t *expected, bool equal)
{
    struct weft_ml_share share;
    assert_int_equal(weft_ml_share_init(&share, set, worker, 2, seed), WEFT_OK);
    weft_ml_share_begin_epoch(&share, 7); /* must not depend on earlier epochs */
    weft_ml_share_begin_epoch(&share, epoch);
    bool is_equal = memcmp(share.order, expected, share.row_count * sizeof(*expected)) == 0;
    assert_int_equal(is_equal, equal);
    weft_ml_share_fini(&share);
}

static void the_order_depends_on_seed_epoch_and_worker_alone(void **state)
{
    (void)state;
    struct weft_ml_dataset set = bare_dataset(200);
    struct weft_ml_share share;
    assert_int_equal(weft_ml_share_init(&share, &set, 0, 2, 5), WEFT_OK);
    weft_ml_share_begin_epoch(&share, 3);
    check_order(&set, 5, 0, 3, share.order, true);
    check_order(&set, 6, 0, 3, share.order, false);
    check_order(&set, 5, 0, 4, share.order, false);
    check_order(&set, 5, 1, 3, share.order, false);
    weft_ml_share_fini(&share);
    weft_ml_dataset_fini(&set);
}

/* Computed by a program written from docs/MODELS.md alone. A change of the generator or of the
 * shuffle would make old and new workers use different batches. */
static void a_known_order(void **state)
{
    (void)state;
    struct weft_ml_dataset set = bare_dataset(8);
    struct weft_ml_share share;
    assert_int_equal(weft_ml_share_init(&share, &set, 0, 1, 1), WEFT_OK); /* epoch 0 */
    static const uint32_t whole[] = {0, 12, 9, 21, 6, 15, 3, 18};
    assert_memory_equal(share.order, whole, sizeof(whole));
    weft_ml_share_fini(&share);

    assert_int_equal(weft_ml_share_init(&share, &set, 1, 2, 1), WEFT_OK);
    weft_ml_share_begin_epoch(&share, 5);
    static const uint32_t half[] = {15, 21, 9, 3};
    assert_memory_equal(share.order, half, sizeof(half));
    weft_ml_share_fini(&share);
    weft_ml_dataset_fini(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_once_per_epoch),
        cmocka_unit_test(the_order_depends_on_seed_epoch_and_worker_alone),
        cmocka_unit_test(a_known_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
