/* Helpers for tests of models and formats: data sets from text, and lines that a format must
 * refuse. */
#ifndef WEFT_TESTS_ML_TEXT_H
#define WEFT_TESTS_ML_TEXT_H

#include "base/prng.h"
#include "ml/dataset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static inline struct weft_ml_dataset ml_load(const char *format_name, const char *text)
{
    const struct weft_ml_format *format = NULL;
    struct weft_ml_dataset set;
    struct weft_error error = {0};
    assert_int_equal(weft_ml_format_find(format_name, NULL, &format), WEFT_OK);
    if (weft_ml_dataset_load_memory("text", text, strlen(text), format, &error, &set) != WEFT_OK) {
        fail_msg("%s", error.text);
    }
    return set;
}

/* Rows of libsvm with 0 to 5 features, whose values are not 1 and whose ids are up to id_step
 * apart. */
static inline struct weft_ml_dataset ml_random_rows(struct weft_prng *prng, int rows,
                                                    uint64_t id_step)
{
    char text[8192];
    size_t used = 0;
    for (int r = 0; r < rows; r++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%d", r % 2);
        uint64_t id = 0;
        for (uint64_t n = weft_prng_below(prng, 6); n > 0; n--) {
            id += 1 + weft_prng_below(prng, id_step);
            used += (size_t)snprintf(text + used, sizeof(text) - used, " %d:%d.%d", (int)id,
                                     (int)weft_prng_below(prng, 2) - 1,
                                     (int)weft_prng_range(prng, 1, 9));
        }
        used += (size_t)snprintf(text + used, sizeof(text) - used, "\n");
    }
    return ml_load("libsvm", text);
}

/* The line is refused, and the text has the reason. */
static inline void ml_check_refused(weft_ml_parse_fn *parse, const char *line, uint64_t number,
                                    const char *text)
{
    struct weft_ml_row row = {0};
    struct weft_error error = {0};
    bool is_row = false;
    assert_int_equal(parse(line, strlen(line), number, &row, &error, &is_row), WEFT_DATA);
    assert_string_equal(error.text, text);
    assert_false(is_row);
    weft_ml_row_fini(&row);
}

#endif
