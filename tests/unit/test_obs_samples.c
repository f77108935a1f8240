/* Parsing of an exposition from another program. */
#include "obs/exposition.h"
#include "obs/samples.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct weft_samples parse(const char *text)
{
    struct weft_samples samples;
    assert_int_equal(weft_samples_parse(strdup(text), &samples), WEFT_OK);
    return samples;
}

static void is_near(double seen, double wanted)
{
    assert_true(fabs(seen - wanted) <= 1e-9 * (1 + fabs(wanted)));
}

static void test_sums(void **state)
{
    (void)state;
    struct weft_samples samples = parse("# HELP a words\n# TYPE a counter\n"
                                        "a{kind=\"push\",shard=\"0\"} 1\n"
                                        "a{kind=\"push\",shard=\"1\"} 2.5e3\n"
                                        "a{kind=\"pull\",shard=\"1\"} 4 1795341600000\r\n"
                                        "ab 8\n");
    assert_int_equal(samples.count, 4);
    is_near(weft_samples_sum(&samples, "a", NULL), 2505);
    is_near(weft_samples_sum(&samples, "a", "kind=\"push\""), 2501);
    is_near(weft_samples_sum(&samples, "a", "kind=\"none\""), 0);
    is_near(weft_samples_sum(&samples, "b", NULL), 0);
    assert_true(weft_samples_have(&samples, "ab"));
    assert_false(weft_samples_have(&samples, "b"));
    weft_samples_fini(&samples);
}

static void test_labels(void **state)
{
    (void)state;
    char value[8];
    struct weft_samples samples = parse("a{xrole=\"no\",role=\"server\",w=\"}\\\"{\"} 1\n");
    assert_true(weft_samples_label(&samples, "a", "role", value, sizeof(value)));
    assert_string_equal(value, "server");
    assert_false(weft_samples_label(&samples, "a", "ole", value, sizeof(value)));
    assert_false(weft_samples_label(&samples, "b", "role", value, sizeof(value)));
    weft_samples_fini(&samples);
    /* A value that does not fit the buffer is truncated. */
    samples = parse("a{role=\"a long value\"} 1\n");
    assert_true(weft_samples_label(&samples, "a", "role", value, sizeof(value)));
    assert_string_equal(value, "a long ");
    weft_samples_fini(&samples);
}

/* Invalid lines are skipped, and so are metrics that weft does not have. */
static void test_strange(void **state)
{
    (void)state;
    static const char *const none[] = {
        "",       "\n\n",   "# a 1\n", "a",       "a{",       "a{b=\"c\" 1",
        "a x\n",  "a 1x\n", "a -1\n",  "a nan\n", "a +Inf\n", "a 1e300\n",
        "{} 1\n", " a 1\n", "a{} \n",  "\xff 1",  "a{b=\"\\", "a{b=\"}\" 1"};
    struct weft_samples samples;
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        assert_int_equal(weft_samples_parse(strdup(none[i]), &samples), WEFT_DATA);
    }
    samples = parse("no\na{} 1\n= 2\nb 0x10\n");
    is_near(weft_samples_sum(&samples, "a", NULL), 1);
    weft_samples_fini(&samples);
}

/* The output of our own writer is read back unchanged. */
static void test_round(void **state)
{
    (void)state;
    static struct weft_hist hist;
    struct weft_exposition text = {0};
    struct weft_samples samples;
    weft_hist_add(&hist, 5000);
    weft_hist_add(&hist, 7000);
    weft_exposition_family(&text, "h_seconds", "histogram", "What.");
    weft_exposition_hist(&text, "h_seconds", "part=\"x\"", &hist);
    assert_int_equal(weft_samples_parse(text.text, &samples), WEFT_OK);
    is_near(weft_samples_sum(&samples, "h_seconds_count", "part=\"x\""), 2);
    is_near(weft_samples_sum(&samples, "h_seconds_sum", NULL), 12e-6);
    is_near(weft_samples_sum(&samples, "h_seconds_bucket", "le=\"4.096e-06\""), 0);
    is_near(weft_samples_sum(&samples, "h_seconds_bucket", "le=\"8.192e-06\""), 2);
    weft_samples_fini(&samples);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_strange),
        cmocka_unit_test(test_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
