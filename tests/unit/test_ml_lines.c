/* Lines: their ends, their numbers, and the maximum length. Compared with a loop over the whole
 * text. */
#include "base/prng.h"
#include "ml/lines.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All lines as "[1:text][2:text]..." so that a test reads like its expectation. */
static weft_status show(const char *text, size_t bytes, char *out, size_t capacity)
{
    struct weft_ml_source *source = NULL;
    struct weft_ml_lines lines;
    struct weft_ml_line line;
    bool more = true;
    assert_int_equal(weft_ml_source_open_memory(text, bytes, NULL, &source), WEFT_OK);
    assert_int_equal(weft_ml_lines_init(&lines, source, NULL), WEFT_OK);
    weft_status status = WEFT_OK;
    size_t used = 0;
    out[0] = '\0';
    while (more && (status = weft_ml_lines_next(&lines, NULL, &line, &more)) == WEFT_OK && more) {
        int count = snprintf(out + used, capacity - used, "[%d:%.*s]", (int)line.number,
                             (int)line.bytes, line.text);
        assert_true(count > 0 && (size_t)count < capacity - used);
        used += (size_t)count;
    }
    weft_ml_lines_fini(&lines);
    weft_ml_source_close(source);
    return status;
}

static void ends_of_lines(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *lines;
    } cases[] = {
        {"", ""},
        {"a", "[1:a]"},
        {"a\n", "[1:a]"},
        {"a\r\n", "[1:a]"},
        {"a\nb", "[1:a][2:b]"},
        {"a\r\nb\r\n", "[1:a][2:b]"},
        {"\n", "[1:]"},
        {"\r\n", "[1:]"},
        {"\n\na\n", "[1:][2:][3:a]"},
        {"a\r\r\n", "[1:a\r]"}, /* only one line end is removed */
        {"a\rb\n", "[1:a\rb]"},
        {"a\r", "[1:a\r]"}, /* not a line end */
        {" a \t\n", "[1: a \t]"},
    };
    for (size_t c = 0; c < WEFT_ARRAY_COUNT(cases); c++) {
        char shown[128];
        assert_int_equal(show(cases[c].text, strlen(cases[c].text), shown, sizeof(shown)), WEFT_OK);
        assert_string_equal(shown, cases[c].lines);
    }
}

/* Random lengths around the buffer's size: moving and growing must not lose a byte. */
static void lines_of_all_lengths(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20 };
    char *text = malloc(BYTES);
    assert_non_null(text);
    struct weft_prng prng;
    weft_prng_init(&prng, 11);
    memset(text, 'x', BYTES);
    for (size_t at = 0; at < BYTES;) {
        text[at] = '\n';
        bool is_short = weft_prng_below(&prng, 2) == 0;
        at += is_short ? weft_prng_range(&prng, 1, 40) : weft_prng_range(&prng, 60000, 200000);
    }
    struct weft_ml_source *source = NULL;
    struct weft_ml_lines lines;
    struct weft_ml_line line;
    bool more = true;
    assert_int_equal(weft_ml_source_open_memory(text, BYTES, NULL, &source), WEFT_OK);
    assert_int_equal(weft_ml_lines_init(&lines, source, NULL), WEFT_OK);
    size_t at = 0;
    for (uint64_t number = 1; at < BYTES; number++) {
        const char *end = memchr(text + at, '\n', BYTES - at);
        size_t bytes = end != NULL ? (size_t)(end - text) - at : BYTES - at;
        assert_int_equal(weft_ml_lines_next(&lines, NULL, &line, &more), WEFT_OK);
        assert_true(more);
        assert_int_equal(line.number, number);
        assert_int_equal(line.bytes, bytes);
        assert_memory_equal(line.text, text + at, bytes);
        at += bytes + (end != NULL);
    }
    assert_int_equal(weft_ml_lines_next(&lines, NULL, &line, &more), WEFT_OK);
    assert_false(more);
    weft_ml_lines_fini(&lines);
    weft_ml_source_close(source);
    free(text);
}

static weft_status read_one(const char *text, size_t bytes, struct weft_error *error,
                            struct weft_ml_line *line)
{
    struct weft_ml_source *source = NULL;
    struct weft_ml_lines lines;
    bool more = false;
    assert_int_equal(weft_ml_source_open_memory(text, bytes, NULL, &source), WEFT_OK);
    assert_int_equal(weft_ml_lines_init(&lines, source, NULL), WEFT_OK);
    weft_status status = weft_ml_lines_next(&lines, error, line, &more);
    weft_ml_lines_fini(&lines);
    weft_ml_source_close(source);
    return status;
}

static void a_line_has_a_longest(void **state)
{
    (void)state;
    size_t bytes = WEFT_ML_LINE_BYTES_MAX + 3;
    char *text = malloc(bytes);
    assert_non_null(text);
    memset(text, '1', bytes);
    struct weft_error error = {0};
    struct weft_ml_line line = {0};
    assert_int_equal(read_one(text, bytes, &error, &line), WEFT_DATA);
    assert_string_equal(error.text, "line is longer than 16777216 bytes");
    assert_int_equal(read_one(text, WEFT_ML_LINE_BYTES_MAX + 1, &error, &line), WEFT_DATA);
    text[WEFT_ML_LINE_BYTES_MAX + 1] = '\n';
    assert_int_equal(read_one(text, bytes, &error, &line), WEFT_DATA);

    memcpy(text + WEFT_ML_LINE_BYTES_MAX, "\r\n", 2);
    assert_int_equal(read_one(text, bytes, &error, &line), WEFT_OK);
    assert_int_equal(line.bytes, WEFT_ML_LINE_BYTES_MAX);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_of_lines),
        cmocka_unit_test(lines_of_all_lengths),
        cmocka_unit_test(a_line_has_a_longest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
