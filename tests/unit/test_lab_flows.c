/* Flow sizes and the plan of background traffic: reading, means, distributions, determinism. */
#include "lab/flow_plan.h"
#include "lab/flow_sizes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct weft_flow_sizes sizes;
static struct weft_error error;

static void parse(const char *text)
{
    error.text[0] = '\0';
    weft_status status = weft_flow_sizes_parse("f", text, &sizes, &error);
    assert_string_equal(error.text, "");
    assert_int_equal(status, WEFT_OK);
}

static void refuse(const char *text, const char *why)
{
    error.text[0] = '\0';
    assert_int_equal(weft_flow_sizes_parse("f", text, &sizes, &error), WEFT_DATA);
    assert_string_equal(error.text, why);
}

static void test_reads_what_is_published(void **state)
{
    (void)state;
    parse("0 0\n100 0.5\n300 1\n");
    assert_int_equal(sizes.count, 3);
    assert_true(fabs(sizes.mean_bytes - (0.5 * 50 + 0.5 * 200)) < 1e-9);
    parse("0 0\n100 50\n300 100"); /* percent; no newline at the end */
    assert_true(fabs(sizes.mean_bytes - 125) < 1e-9);
    assert_true(fabs(sizes.points[1].share - 0.5) < 1e-12);
    /* The file's first line is the mean, which is ignored. */
    parse("# sizes\n\n  777.5 \n0\t0 # none\r\n100 0.5\n300 1.0\n\n");
    assert_true(fabs(sizes.mean_bytes - 125) < 1e-9);
    parse("50 0.25\n150 1\n"); /* a quarter of the flows has exactly 50 bytes */
    assert_true(fabs(sizes.mean_bytes - (0.25 * 50 + 0.75 * 100)) < 1e-9);
    parse("1000 1\n"); /* all of one size */
    assert_true(fabs(sizes.mean_bytes - 1000) < 1e-9);
    assert_int_equal(weft_flow_sizes_at(&sizes, 0), 1000);
    assert_int_equal(weft_flow_sizes_at(&sizes, 0.999), 1000);
}

static void test_says_what_is_wrong_and_where(void **state)
{
    (void)state;
    refuse("", "f: no points in it");
    refuse("# nothing\n12\n", "f: no points in it");
    refuse("0 0\n100 x\n", "f, line 2: want two numbers: size in bytes, probability");
    refuse("0 0\n100\n", "f, line 2: want two numbers: size in bytes, probability");
    refuse("0 0\n100 1 1\n", "f, line 2: want two numbers: size in bytes, probability");
    refuse("5 0\n4 1\n", "f, line 2: sizes and probabilities must not fall from line to line");
    refuse("5 0.5\n9 0.4\n", "f, line 2: sizes and probabilities must not fall from line to line");
    refuse("-1 0\n4 1\n", "f, line 1: a size is 0 to 10^12 bytes");
    refuse("nan 0\n4 1\n", "f, line 1: a size is 0 to 10^12 bytes");
    refuse("1 0\n4 nan\n", "f, line 2: a probability is 0 to 1, or 0 to 100 in percent");
    refuse("1 0\n4 101\n", "f, line 2: a probability is 0 to 1, or 0 to 100 in percent");
    refuse("1 0\n4 0.47\n",
           "f, line 2: the last probability is 0.47; it must be 1, or 100 in percent");
    refuse("0 1\n", "f: all flows have size 0");
    char *many = calloc(4097, 16);
    for (int i = 0; i < 4097; i++) {
        (void)sprintf(many + strlen(many), "%d 0\n", i);
    }
    refuse(many, "f, line 4097: more than 4096 points");
    free(many);
}

static void test_loads_by_name_and_by_path(void **state)
{
    (void)state;
    const double means[] = {1711250, 12658198.6, 120420.75};
    for (size_t i = 0; weft_flow_sizes_names[i] != NULL; i++) {
        assert_int_equal(weft_flow_sizes_load(weft_flow_sizes_names[i], &sizes, &error), WEFT_OK);
        assert_true(fabs(sizes.mean_bytes - means[i]) < 0.01);
    }
    char path[] = "/tmp/weft-flows-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "0 0\n10 1\n", 9), 9);
    assert_int_equal(weft_flow_sizes_load(path, &sizes, &error), WEFT_OK);
    assert_true(fabs(sizes.mean_bytes - 5) < 1e-9);
    assert_int_equal(pwrite(fd, "\0", 1, 2), 1);
    assert_int_equal(weft_flow_sizes_load(path, &sizes, &error), WEFT_DATA);
    close(fd);
    unlink(path);
    assert_int_equal(weft_flow_sizes_load("websurch", &sizes, &error), WEFT_NOTFOUND);
    assert_non_null(strstr(error.text, "websurch"));
    assert_non_null(strstr(error.text, "websearch, datamining, hadoop"));
    assert_int_equal(weft_flow_sizes_load("/tmp", &sizes, &error), WEFT_IO);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The distribution function itself, by a linear search of the points. */
static double share_below(double bytes)
{
    double below = 0;
    double from = 0;
    for (uint32_t i = 0; i < sizes.count; i++) {
        const struct weft_flow_point *p = &sizes.points[i];
        if (bytes < p->bytes) {
            return i == 0 ? 0 : below + (p->share - below) * (bytes - from) / (p->bytes - from);
        }
        below = p->share;
        from = p->bytes;
    }
    return 1;
}

/* Kolmogorov-Smirnov distance of 100,000 samples, and their mean. The distance of a correct sample
 * of that size is below 1.63 / sqrt(n) = 0.0052 with a probability of 99 %; the seed is fixed. */
static void test_samples_follow_the_distribution(void **state)
{
    (void)state;
    enum { SAMPLES = 100000 };
    double *drawn = calloc(SAMPLES, sizeof(*drawn));
    for (int which = 0; weft_flow_sizes_names[which] != NULL; which++) {
        assert_int_equal(weft_flow_sizes_load(weft_flow_sizes_names[which], &sizes, &error),
                         WEFT_OK);
        struct weft_prng prng;
        weft_prng_init(&prng, 7);
        double sum = 0;
        for (int i = 0; i < SAMPLES; i++) {
            drawn[i] = (double)weft_flow_sizes_draw(&sizes, &prng);
            sum += drawn[i];
        }
        qsort(drawn, SAMPLES, sizeof(*drawn), by_size);
        double distance = 0;
        for (int i = 0; i < SAMPLES; i++) {
            /* Sizes are whole bytes: values within half a byte are rounded to one size. */
            distance = fmax(distance, (double)(i + 1) / SAMPLES - share_below(drawn[i] + 0.5));
            distance = fmax(distance, share_below(drawn[i] - 0.5) - (double)(i + 1) / SAMPLES);
        }
        assert_true(distance < 0.0052);
        /* Standard errors of the means: 0.7, 2.1 and 1.8 %. */
        assert_true(fabs(sum / SAMPLES / sizes.mean_bytes - 1) < 0.05);
    }
    free(drawn);
}

static void test_arrivals_are_poisson_at_the_load(void **state)
{
    (void)state;
    enum { FLOWS = 200000, HOSTS = 5 };
    assert_int_equal(weft_flow_sizes_load("hadoop", &sizes, &error), WEFT_OK);
    struct weft_flow_plan plan;
    weft_flow_plan_init(&plan, &sizes, HOSTS, UINT64_C(1000000000), 300000, 3);
    double want_ns = 1e9 / (0.3 * 1e9 / 8 / sizes.mean_bytes * HOSTS);
    double sum = 0;
    double squares = 0;
    uint64_t last = 0;
    uint32_t pairs[HOSTS][HOSTS] = {0};
    for (int i = 0; i < FLOWS; i++) {
        struct weft_flow_arrival a;
        weft_flow_plan_next(&plan, &a);
        assert_true(a.at_ns >= last);
        double gap = (double)(a.at_ns - last);
        last = a.at_ns;
        sum += gap;
        squares += gap * gap;
        assert_true(a.source < HOSTS && a.destination < HOSTS);
        pairs[a.source][a.destination]++;
    }
    double mean = sum / FLOWS;
    double variance = squares / FLOWS - mean * mean;
    assert_true(fabs(mean / want_ns - 1) < 0.01);
    assert_true(fabs(sqrt(variance) / mean - 1) < 0.02); /* 1 for an exponential distribution */
    for (int i = 0; i < HOSTS; i++) {
        assert_int_equal(pairs[i][i], 0);
        for (int j = 0; j < HOSTS; j++) {
            /* Binomial: expected 10,000, standard deviation 98. */
            assert_true(i == j || abs((int)pairs[i][j] - FLOWS / HOSTS / (HOSTS - 1)) < 500);
        }
    }
}

static void test_the_seed_is_the_plan(void **state)
{
    (void)state;
    assert_int_equal(weft_flow_sizes_load("websearch", &sizes, &error), WEFT_OK);
    struct weft_flow_plan a;
    struct weft_flow_plan b;
    struct weft_flow_plan c;
    weft_flow_plan_init(&a, &sizes, 9, UINT64_C(100000000), 500000, 1);
    weft_flow_plan_init(&b, &sizes, 9, UINT64_C(100000000), 500000, 1);
    weft_flow_plan_init(&c, &sizes, 9, UINT64_C(100000000), 500000, 2);
    int same = 0;
    for (int i = 0; i < 1000; i++) {
        struct weft_flow_arrival x;
        struct weft_flow_arrival y;
        struct weft_flow_arrival z;
        weft_flow_plan_next(&a, &x);
        weft_flow_plan_next(&b, &y);
        weft_flow_plan_next(&c, &z);
        assert_true(x.at_ns == y.at_ns && x.bytes == y.bytes && x.source == y.source &&
                    x.destination == y.destination);
        same += x.at_ns == z.at_ns || x.bytes == z.bytes;
    }
    assert_in_range(same, 0, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_what_is_published),
        cmocka_unit_test(test_says_what_is_wrong_and_where),
        cmocka_unit_test(test_loads_by_name_and_by_path),
        cmocka_unit_test(test_samples_follow_the_distribution),
        cmocka_unit_test(test_arrivals_are_poisson_at_the_load),
        cmocka_unit_test(test_the_seed_is_the_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
