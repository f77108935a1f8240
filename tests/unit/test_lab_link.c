/* Gilbert's model as computed by the kernel's program: the fraction lost, the length of bursts, and
 * that every burst ends. */
#include "lab/link_bpf.h"

#include "base/prng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void check(double loss, double packets)
{
    const uint32_t steps = 4000000;
    const struct weft_gilbert g = {
        .to_bad = (uint32_t)(loss / packets / (1 - loss) * 0x1p32),
        .to_good = packets > 1 ? (uint32_t)(0x1p32 / packets) : UINT32_MAX,
    };
    struct weft_prng prng;
    weft_prng_init(&prng, 5);
    uint32_t bad = 0;
    uint32_t lost = 0;
    uint32_t bursts = 0;
    int before = 0;
    for (uint32_t i = 0; i < steps; i++) {
        int now = weft_gilbert_lost(&g, &bad, (uint32_t)(weft_prng_u64(&prng) >> 32));
        lost += (uint32_t)now;
        bursts += now && !before;
        before = now;
    }
    /* Bursts are independent: allow four standard errors of their number, and a margin for their
     * lengths. */
    double slack = 4 * sqrt(2.0 / bursts);
    assert_true(fabs((double)lost / steps / loss - 1) < slack);
    assert_true(fabs((double)lost / bursts / packets - 1) < slack);
}

static void test_fraction_and_length(void **state)
{
    (void)state;
    check(0.01, 5);
    check(0.2, 3);
    check(0.001, 50);
    check(0.05, 1);
}

static void test_never(void **state)
{
    (void)state;
    const struct weft_gilbert g = {.to_bad = 0, .to_good = 1};
    uint32_t bad = 0;
    assert_false(weft_gilbert_lost(&g, &bad, 0));
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fraction_and_length),
        cmocka_unit_test(test_never),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
