/* Overlap of the updates of a topic model: computed by hand in simple cases, and invariants on
 * random documents. */
#include "base/prng.h"
#include "ml/compression.h"
#include "ml/model.h"
#include "ml_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct weft_ml_compression measure(const struct weft_ml_dataset *set, uint32_t workers,
                                          uint32_t batch_rows, uint32_t topics, uint32_t epochs)
{
    const struct weft_ml_compression_config config = {.workers = workers,
                                                      .batch_rows = batch_rows,
                                                      .topics = topics,
                                                      .epochs = epochs,
                                                      .seed = 3};
    struct weft_ml_compression result;
    assert_int_equal(weft_ml_compression_measure(set, &config, &result), WEFT_OK);
    return result;
}

enum { DOCUMENTS = 100, WORDS = 5 };

/* Each document has each word once, and there is one topic: every update changes the same 5 counts
 * and the total. In the first epoch all tokens get the topic, later nothing changes. */
static void equal_documents_are_one(void **state)
{
    (void)state;
    static char text[DOCUMENTS * WORDS * 16 + 64];
    size_t used =
        (size_t)snprintf(text, sizeof(text), "%d\n%d\n%d\n", DOCUMENTS, WORDS, DOCUMENTS * WORDS);
    for (int d = 1; d <= DOCUMENTS; d++) {
        for (int w = 1; w <= WORDS; w++) {
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%d %d 1\n", d, w);
        }
    }
    struct weft_ml_dataset set = ml_load("docword", text);
    struct weft_ml_compression c = measure(&set, 4, 1, 1, 1);
    assert_int_equal(c.steps, (set.train_count + 3) / 4);
    assert_int_equal(c.rows_separate, set.train_count * (WORDS + 1));
    assert_int_equal(c.rows_together, c.steps * (WORDS + 1));
    assert_int_equal(c.entries_separate, c.rows_separate);
    assert_int_equal(c.entries_together, c.rows_together);
    c = measure(&set, 4, 1, 1, 2);
    assert_int_equal(c.rows_separate, set.train_count * (WORDS + 1));
    assert_int_equal(c.entries_separate, 0);
    assert_int_equal(weft_ml_compression_rows_bytes(10, 50), 10 * 204);
    assert_int_equal(weft_ml_compression_entries_bytes(10), 80);
    weft_ml_dataset_fini(&set);
}

static struct weft_ml_dataset drawn(uint32_t words)
{
    enum { TOKENS = 30 };
    static char text[DOCUMENTS * TOKENS * 16 + 64];
    struct weft_prng prng;
    weft_prng_init(&prng, 9);
    size_t used =
        (size_t)snprintf(text, sizeof(text), "%d\n%u\n%d\n", DOCUMENTS, words, DOCUMENTS * TOKENS);
    for (int d = 1; d <= DOCUMENTS; d++) {
        for (int t = 0; t < TOKENS; t++) {
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%d %d 1\n", d,
                                     (int)(1 + weft_prng_below(&prng, words)));
        }
    }
    return ml_load("docword", text);
}

/* Rows do not depend on the topics. With more topics, changes of several workers overlap less often
 * (with very few topics, a token seldom changes its topic). The sum of one update is that update;
 * summing N updates saves at most a factor of N. */
static void more_topics_have_less_in_common(void **state)
{
    (void)state;
    struct weft_ml_dataset set = drawn(60);
    double before = 1e9;
    struct weft_ml_compression first = measure(&set, 8, 4, 8, 3);
    const uint32_t topics[] = {8, 32, 128};
    for (uint32_t i = 0; i < WEFT_ARRAY_COUNT(topics); i++) {
        struct weft_ml_compression c = measure(&set, 8, 4, topics[i], 3);
        double ratio = (double)c.entries_separate / (double)c.entries_together;
        assert_int_equal(c.rows_separate, first.rows_separate);
        assert_int_equal(c.rows_together, first.rows_together);
        assert_true(c.rows_separate <= 8 * c.rows_together);
        assert_true(ratio > 1 && ratio < before);
        before = ratio;
        struct weft_ml_compression alone = measure(&set, 1, 4, topics[i], 2);
        assert_int_equal(alone.rows_separate, alone.rows_together);
        assert_int_equal(alone.entries_separate, alone.entries_together);
        struct weft_ml_compression again = measure(&set, 8, 4, topics[i], 3);
        assert_memory_equal(&again, &c, sizeof(c));
    }
    weft_ml_dataset_fini(&set);
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    struct weft_ml_dataset set = drawn(10);
    struct weft_ml_compression c;
    struct weft_ml_compression_config config = {
        .workers = 1, .batch_rows = 1, .topics = WEFT_ML_FACTORS_MAX + 1, .epochs = 1};
    assert_int_equal(weft_ml_compression_measure(&set, &config, &c), WEFT_INVALID);
    config.topics = 2;
    config.workers = 0;
    assert_int_equal(weft_ml_compression_measure(&set, &config, &c), WEFT_INVALID);
    weft_ml_dataset_fini(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_documents_are_one),
        cmocka_unit_test(more_topics_have_less_in_common),
        cmocka_unit_test(what_is_wrong_is_refused),
    };
    return cmocka_run_group_tests_name("ml_compression", tests, NULL, NULL);
}
