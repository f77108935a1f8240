/* Every status has a unique name and a text with the next action; unknown values are handled. */
#include "base/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

static void names_are_the_constants(void **state)
{
    (void)state;
    assert_int_equal(WEFT_OK, 0);
    assert_int_equal(WEFT_STATUS_COUNT, 14);
    assert_string_equal(weft_status_name(WEFT_OK), "WEFT_OK");
    assert_string_equal(weft_status_name(WEFT_AGAIN), "WEFT_AGAIN");
    assert_string_equal(weft_status_name(WEFT_PROTO), "WEFT_PROTO");
    assert_string_equal(weft_status_name(WEFT_UNSUPPORTED), "WEFT_UNSUPPORTED");
    assert_string_equal(weft_status_name(WEFT_DROPPED), "WEFT_DROPPED");
}

static void names_and_texts_differ(void **state)
{
    (void)state;
    for (unsigned a = 0; a < WEFT_STATUS_COUNT; a++) {
        const char *name = weft_status_name((weft_status)a);
        const char *text = weft_status_text((weft_status)a);
        assert_memory_equal(name, "WEFT_", 5);
        assert_true(strlen(name) > 6 && strlen(text) > 6);
        for (unsigned b = 0; b < a; b++) {
            assert_string_not_equal(name, weft_status_name((weft_status)b));
            assert_string_not_equal(text, weft_status_text((weft_status)b));
        }
    }
}

/* One line without a full stop, so that a caller can embed it in a sentence. */
static void texts_are_one_line(void **state)
{
    (void)state;
    for (unsigned i = 0; i < WEFT_STATUS_COUNT; i++) {
        const char *text = weft_status_text((weft_status)i);
        assert_null(strchr(text, '\n'));
        assert_true(text[strlen(text) - 1] != '.');
    }
}

static void unknown_values_have_a_name(void **state)
{
    (void)state;
    static const int unknown[] = {WEFT_STATUS_COUNT, WEFT_STATUS_COUNT + 1, 1000, -1};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        /* Copied with memcpy: the value is external, for instance from a file. */
        weft_status status;
        memcpy(&status, &unknown[i], sizeof(status));
        assert_string_equal(weft_status_name(status), "WEFT_?");
        assert_string_equal(weft_status_text(status), "unknown status");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_the_constants),
        cmocka_unit_test(names_and_texts_differ),
        cmocka_unit_test(texts_are_one_line),
        cmocka_unit_test(unknown_values_have_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
