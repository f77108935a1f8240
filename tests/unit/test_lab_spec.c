/* The hash of a lab's settings: of links, of the contents of a file of rates, not of the name. */
#include "lab/rate_trace.h"
#include "lab/spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct weft_lab_spec spec_of(const char *name)
{
    struct weft_lab_spec spec = {
        .hosts = 4, .leaves = 1, .rate_bps = 200000000, .buffer_bytes = 65536, .loss_ppm = 10000};
    snprintf(spec.name, sizeof(spec.name), "%s", name);
    weft_lab_spec_links(&spec);
    return spec;
}

static bool alike(const struct weft_lab_spec *a, const struct weft_lab_spec *b)
{
    char of_a[WEFT_LAB_SETTINGS_BYTES], of_b[WEFT_LAB_SETTINGS_BYTES];
    weft_lab_spec_settings(a, of_a);
    weft_lab_spec_settings(b, of_b);
    assert_int_equal(strlen(of_a), WEFT_LAB_SETTINGS_BYTES - 1);
    return strcmp(of_a, of_b) == 0;
}

static void settings_are_compared_without_the_name(void **state)
{
    (void)state;
    struct weft_lab_spec a = spec_of("a"), b = spec_of("b");
    assert_true(alike(&a, &b));
    b.links[3].up_bps /= 2;
    assert_false(alike(&a, &b));
    a.links[3].down_bps /= 2;
    assert_false(alike(&a, &b));
    b = a;
    b.burst_ppm = 1000;
    b.burst_packets = 2;
    assert_false(alike(&a, &b));
    a = b;
    b.burst_packets = 3;
    assert_false(alike(&a, &b));
    b = a;
    strcpy(b.background, "websearch:0.3");
    assert_false(alike(&a, &b));
}

static uint64_t hash_of(const char *path, const char *text)
{
    struct weft_lab_rate_trace trace;
    struct weft_error error;
    FILE *file = fopen(path, "w");
    assert_true(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
    assert_int_equal(weft_lab_rate_trace_read(path, 4, &trace, &error), WEFT_OK);
    uint64_t hash = weft_lab_rate_trace_hash(&trace);
    weft_lab_rate_trace_free(&trace);
    return hash;
}

static void files_of_rates_are_compared_by_their_contents(void **state)
{
    (void)state;
    char path[] = "/tmp/weft-rates-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    struct weft_lab_spec a = spec_of("a"), b = a;
    a.trace_hash = hash_of(path, "0 h1 1gbit\n2 h1 100mbit\n");
    b.trace_hash = hash_of(path, "# the same\n0 h1 1gbit\n2 h1 100mbit\n");
    assert_true(alike(&a, &b));
    b.trace_hash = hash_of(path, "0 h1 1gbit\n3 h1 100mbit\n");
    assert_false(alike(&a, &b));
    b.trace_hash = hash_of(path, "0 h1 1gbit\n2 h1 100mbit\n4 repeat\n");
    assert_false(alike(&a, &b));
    b.trace_hash = 0; /* none */
    assert_false(alike(&a, &b));
    (void)close(fd);
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_are_compared_without_the_name),
        cmocka_unit_test(files_of_rates_are_compared_by_their_contents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
