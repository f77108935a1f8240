/* Job names that every protocol accepts, and names for unknown statuses. */
#include "base/names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

static bool valid(const char *text)
{
    char job[WEFT_JOB_NAME_BYTES] = "";
    memcpy(job, text, strlen(text));
    return weft_job_name_valid(job);
}

static void job_names(void **state)
{
    (void)state;
    assert_true(valid(""));
    assert_true(valid("Az09._-"));
    assert_true(valid("0123456789012345678901234567890"));
    assert_false(valid("01234567890123456789012345678901")); /* not terminated */
    assert_false(valid("a b"));
    assert_false(valid("a/b"));
    assert_false(valid("\xc3\xa4"));
}

static void nothing_follows_the_end(void **state)
{
    (void)state;
    for (size_t i = 1; i < WEFT_JOB_NAME_BYTES; i++) {
        char job[WEFT_JOB_NAME_BYTES] = "";
        job[i] = 'x';
        assert_false(weft_job_name_valid(job));
    }
}

static void unknown_statuses_have_words(void **state)
{
    (void)state;
    static const struct weft_status_words words[] = {{"OK", "done"}, {"FULL", "try later"}};
    assert_string_equal(weft_status_words_name(words, 2, 1), "FULL");
    assert_string_equal(weft_status_words_text(words, 2, 1), "try later");
    assert_string_equal(weft_status_words_name(words, 2, 2), "unknown");
    assert_non_null(strstr(weft_status_words_text(words, 2, 65535), "unknown to this release"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(job_names),
        cmocka_unit_test(nothing_follows_the_end),
        cmocka_unit_test(unknown_statuses_have_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
