/* The host names that a metrics server accepts in requests, and the syntax of a list of them. */
#include "metrics/hosts.h"

#include "base/units.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_allowed(void **state)
{
    static const struct {
        const char *header, *local, *bound, *list;
        bool allowed;
    } rows[] = {
        {NULL, "127.0.0.1", "127.0.0.1", "", true},
        {"localhost", "127.0.0.1", "127.0.0.1", "", true},
        {"LocalHost.:9100", "127.0.0.1", "127.0.0.1", "", true},
        {"127.0.0.1:9100", "127.0.0.1", "127.0.0.1", "", true},
        {"127.9.9.9", "127.0.0.1", "127.0.0.1", "", true},
        {"[::1]:9100", "::1", "::1", "", true},
        {"::1", "::1", "::1", "", true},
        {"10.0.0.1:9100", "10.0.0.1", "0.0.0.0", "", true},
        {"10.0.0.1:9100", "::ffff:10.0.0.1", "::", "", true},
        {"[fd00::1]", "fd00:0::1", "::", "", true},
        {"node7:9100", "10.0.0.1", "node7", "", true},
        {"NODE7", "10.0.0.1", "node7", "", true},
        {"node7", "10.0.0.1", "0.0.0.0", "a,node7,b", true},
        {"b:80", "10.0.0.1", "0.0.0.0", "a,node7,b", true},
        {"192.0.2.1:80", "10.0.0.1", "0.0.0.0", "192.0.2.1", true},
        {"[fd00::2]:80", "10.0.0.1", "0.0.0.0", "[fd00:0::2]", true},
        {"attacker.example", "127.0.0.1", "127.0.0.1", "", false},
        {"attacker.example:9100", "127.0.0.1", "127.0.0.1", "node7", false},
        {"localhost.attacker.example", "127.0.0.1", "127.0.0.1", "", false},
        {"127.0.0.1.attacker.example", "127.0.0.1", "127.0.0.1", "", false},
        {"node7.attacker.example", "10.0.0.1", "node7", "node7", false},
        {"ode7", "10.0.0.1", "0.0.0.0", "node7", false},
        {"node", "10.0.0.1", "0.0.0.0", "node7", false},
        {"10.0.0.2:9100", "10.0.0.1", "0.0.0.0", "", false},
        {"0.0.0.0:9100", "127.0.0.1", "0.0.0.0", "", false},
        {"[::]:9100", "::1", "::", "", false},
        {"", "127.0.0.1", "127.0.0.1", "", false},
        {":9100", "127.0.0.1", "127.0.0.1", "", false},
        {"[::1", "::1", "::1", "", false},
        {"[::1]x", "::1", "::1", "", false},
        {"localhost:http", "127.0.0.1", "127.0.0.1", "", false},
        {"localhost@attacker.example", "127.0.0.1", "127.0.0.1", "", false},
        {"localhost,attacker.example", "127.0.0.1", "127.0.0.1", "", false},
    };
    (void)state;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(rows); i++) {
        const struct weft_metrics_hosts hosts = {rows[i].bound, rows[i].list};
        if (weft_metrics_hosts_allow(&hosts, rows[i].header, rows[i].local) != rows[i].allowed) {
            fail_msg("row %zu: %s", i, rows[i].header != NULL ? rows[i].header : "no header");
        }
    }
}

static void test_lists(void **state)
{
    char text[WEFT_METRICS_HOSTS_BYTES + 1];
    (void)state;
    assert_true(weft_metrics_hosts_valid(""));
    assert_true(weft_metrics_hosts_valid("node7"));
    assert_true(weft_metrics_hosts_valid("node7,node7.example.org,192.0.2.1,[fd00::1],fd00::1"));
    assert_false(weft_metrics_hosts_valid(","));
    assert_false(weft_metrics_hosts_valid("a,,b"));
    assert_false(weft_metrics_hosts_valid("a,"));
    assert_false(weft_metrics_hosts_valid("a b"));
    assert_false(weft_metrics_hosts_valid("http://a"));
    assert_false(weft_metrics_hosts_valid("*"));
    memset(text, 'a', sizeof(text) - 1);
    for (size_t i = 100; i < sizeof(text) - 1; i += 100) {
        text[i] = ',';
    }
    text[sizeof(text) - 1] = '\0';
    assert_false(weft_metrics_hosts_valid(text));
    text[WEFT_METRICS_HOSTS_BYTES - 1] = '\0';
    assert_true(weft_metrics_hosts_valid(text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allowed),
        cmocka_unit_test(test_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
