/* Allocation failures: the n-th allocation of a whole run fails, for n = 1, 2, 3, ... until a run
 * succeeds. Every failure must be returned as WEFT_NOMEM, and nothing may leak (counted here, and
 * by the address sanitizer). Linked with --wrap for malloc, calloc, realloc and free. Source:
 * libuv's test-loop-oom.
 */
#include "ml/rate.h"
#include "ml/reference.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *block, size_t bytes);
void __real_free(void *block);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes);
void __wrap_free(void *block);

static uint32_t until_failure; /* allocations that still succeed; UINT32_MAX = all */
static int64_t live_blocks;

static bool may_allocate(void)
{
    if (until_failure == 0) {
        return false; /* all later allocations fail, too */
    }
    until_failure -= until_failure != UINT32_MAX;
    live_blocks++;
    return true;
}

void *__wrap_malloc(size_t bytes)
{
    return may_allocate() ? __real_malloc(bytes) : NULL;
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return may_allocate() ? __real_calloc(count, bytes) : NULL;
}

void *__wrap_realloc(void *block, size_t bytes)
{
    if (!may_allocate()) {
        return NULL;
    }
    live_blocks -= block != NULL;
    return __real_realloc(block, bytes);
}

void __wrap_free(void *block)
{
    live_blocks -= block != NULL;
    __real_free(block);
}

static const char text[] = "1 3:1 7:1\n0 3:1 9:2\n1 5:2\n0 6:1\n1 1:1\n0 1:1\n0 4:1\n1 0:1 4:1\n"
                           "0 5:1\n1 8:1\n";

/* Load, train an epoch, evaluate. */
static weft_status whole_run(void)
{
    const struct weft_ml_format *format = NULL;
    struct weft_ml_dataset set;
    struct weft_error error = {0};
    assert_int_equal(weft_ml_format_find("libsvm", NULL, &format), WEFT_OK);
    weft_status status =
        weft_ml_dataset_load_memory("oom", text, strlen(text), format, &error, &set);
    if (status != WEFT_OK) {
        assert_non_null(strstr(error.text, "no memory"));
        return status;
    }
    struct weft_ml_reference_options options = weft_ml_reference_defaults(WEFT_ML_ADAGRAD);
    options.batch_rows = 1;
    struct weft_ml_reference reference;
    status = weft_ml_reference_init(&reference, &set, &options);
    if (status == WEFT_OK) {
        double loss = 0;
        struct weft_ml_quality quality;
        status = weft_ml_reference_epoch(&reference, 0, &loss);
        if (status == WEFT_OK) {
            status = weft_ml_reference_test(&reference, &quality);
        }
        weft_ml_reference_fini(&reference);
    }
    weft_ml_dataset_fini(&set);
    return status;
}

/* Search for a rate with many copies of the text above. */
static weft_status whole_search(void)
{
    enum { TIMES = 60 };
    static char large[TIMES * (sizeof(text) - 1)];
    const struct weft_ml_format *format = NULL;
    struct weft_ml_dataset set;
    struct weft_error error = {0};
    struct weft_ml_rate found;
    for (size_t i = 0; i < TIMES; i++) {
        memcpy(large + i * (sizeof(text) - 1), text, sizeof(text) - 1);
    }
    assert_int_equal(weft_ml_format_find("libsvm", NULL, &format), WEFT_OK);
    weft_status status =
        weft_ml_dataset_load_memory("oom", large, sizeof(large), format, &error, &set);
    if (status == WEFT_OK) {
        status = weft_ml_rate_find(&set, WEFT_ML_ADAGRAD, 0, 4, &found);
        assert_true(status != WEFT_OK || found.rows >= WEFT_ML_RATE_ROWS_MIN);
        weft_ml_dataset_fini(&set);
    }
    return status;
}

static void every_allocation_may_fail_in(weft_status whole(void))
{
    enum { RUNS_MAX = 1000 };
    weft_status status = WEFT_NOMEM;
    uint32_t run = 0;
    for (; status != WEFT_OK && run < RUNS_MAX; run++) {
        int64_t live_before = live_blocks;
        until_failure = run;
        status = whole();
        until_failure = UINT32_MAX;
        if (status != WEFT_OK) {
            assert_int_equal(status, WEFT_NOMEM);
        }
        assert_int_equal(live_blocks, live_before);
    }
    assert_int_equal(status, WEFT_OK);
    assert_true(run > 20); /* fewer allocations would mean that the wrap is not effective */
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    every_allocation_may_fail_in(whole_run);
}

static void every_allocation_of_a_search_may_fail(void **state)
{
    (void)state;
    every_allocation_may_fail_in(whole_search);
}

int main(void)
{
    until_failure = UINT32_MAX;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_allocation_of_a_search_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
