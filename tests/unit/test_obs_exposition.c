#include "obs/exposition.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static void test_samples(void **state)
{
    (void)state;
    struct weft_exposition text = {0};
    weft_exposition_family(&text, "weft_a_total", "counter", "What it counts.");
    weft_exposition_u64(&text, "weft_a_total", NULL, 0);
    weft_exposition_u64(&text, "weft_a_total", "kind=\"push\"", UINT64_MAX);
    weft_exposition_real(&text, "weft_b_seconds", "", 1795341600.25);
    weft_exposition_one(&text, "weft_c", "gauge", "How many.", 3);
    assert_string_equal(text.text, "# HELP weft_a_total What it counts.\n"
                                   "# TYPE weft_a_total counter\n"
                                   "weft_a_total 0\n"
                                   "weft_a_total{kind=\"push\"} 18446744073709551615\n"
                                   "weft_b_seconds 1795341600.25\n"
                                   "# HELP weft_c How many.\n"
                                   "# TYPE weft_c gauge\n"
                                   "weft_c 3\n");
    assert_int_equal(text.bytes, strlen(text.text));
    weft_exposition_fini(&text);
    assert_null(text.text);
}

static void test_labels(void **state)
{
    (void)state;
    char label[32];
    assert_string_equal(weft_exposition_label(label, sizeof(label), "k", "a\"b\\c\nd"),
                        "k=\"a\\\"b\\\\c\\nd\"");
    /* Truncated, but with a closing quote. */
    char small[8];
    assert_string_equal(weft_exposition_label(small, sizeof(small), "k", "abcdefgh"), "k=\"ab\"");
}

static const char *line_with(const char *text, const char *begin)
{
    const char *at = strstr(text, begin);
    assert_non_null(at);
    return at + strlen(begin);
}

static void test_histogram(void **state)
{
    (void)state;
    static struct weft_hist hist;
    struct weft_exposition text = {0};
    weft_hist_add(&hist, 1);
    weft_hist_add(&hist, 1023);
    weft_hist_add(&hist, 1024); /* on the edge: counted above it */
    weft_hist_add(&hist, 3000000);
    weft_hist_add(&hist, UINT64_C(60000000000));
    weft_exposition_hist(&text, "h", "part=\"x\"", &hist);
    assert_int_equal(atoi(line_with(text.text, "h_bucket{part=\"x\",le=\"1.024e-06\"} ")), 2);
    assert_int_equal(atoi(line_with(text.text, "h_bucket{part=\"x\",le=\"2.048e-06\"} ")), 3);
    assert_int_equal(atoi(line_with(text.text, "h_bucket{part=\"x\",le=\"0.004194304\"} ")), 4);
    assert_int_equal(atoi(line_with(text.text, "h_bucket{part=\"x\",le=\"17.179869184\"} ")), 4);
    assert_int_equal(atoi(line_with(text.text, "h_bucket{part=\"x\",le=\"+Inf\"} ")), 5);
    assert_int_equal(atoi(line_with(text.text, "h_count{part=\"x\"} ")), 5);
    assert_int_equal(strncmp(line_with(text.text, "h_sum{part=\"x\"} "), "60.003002048\n", 13), 0);
    weft_exposition_fini(&text);
}

/* Longer than any initial buffer. */
static void test_long(void **state)
{
    (void)state;
    struct weft_exposition text = {0};
    for (int i = 0; i < 10000; i++) {
        weft_exposition_u64(&text, "weft_name_of_some_length_total", NULL, 7);
    }
    assert_int_equal(text.bytes, 10000 * strlen("weft_name_of_some_length_total 7\n"));
    assert_int_equal(strlen(text.text), text.bytes);
    weft_exposition_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_histogram),
        cmocka_unit_test(test_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
