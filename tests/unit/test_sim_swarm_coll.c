/* The swarm's seeds with collectives: they end and are repeatable. To run many seeds manually:
 *     test_sim_swarm_coll FIRST LAST */
#include "sim/memory.h"
#include "sim/swarm_coll.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void seeds_end_well(void **state)
{
    (void)state;
    static struct weft_swarm_result r;
    uint64_t messages = 0;
    for (uint64_t seed = 1; seed <= 120; seed++) {
        weft_swarm_coll_run(seed, NULL, &r);
        if (!r.ok) {
            fail_msg("seed %llu: %s\n%s", (unsigned long long)seed, r.failure, r.plan);
        }
        messages += r.messages;
    }
    assert_true(messages > 10000);
}

static void the_same_seed_is_the_same_run(void **state)
{
    (void)state;
    static struct weft_swarm_result a, b;
    for (uint64_t seed = 1000; seed < 1010; seed++) {
        weft_swarm_coll_run(seed, NULL, &a);
        weft_swarm_coll_run(seed, NULL, &b);
        assert_int_equal(a.trace_hash, b.trace_hash);
        assert_int_equal(a.steps, b.steps);
        assert_string_equal(a.plan, b.plan);
    }
}

static int by_hand(uint64_t first, uint64_t last)
{
    static struct weft_swarm_result r;
    uint64_t failed = 0;
    for (uint64_t seed = first; seed <= last; seed++) {
        weft_swarm_coll_run(seed, NULL, &r);
        if (!r.ok) {
            failed++;
            printf("seed %llu: %s\n%s\n", (unsigned long long)seed, r.failure, r.plan);
        }
    }
    printf("%llu of %llu seeds failed\n", (unsigned long long)failed,
           (unsigned long long)(last - first + 1));
    return failed > 0;
}

int main(int argc, char **argv)
{
    weft_sim_memory_init();
    if (argc == 3) {
        return by_hand(strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10));
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seeds_end_well),
        cmocka_unit_test(the_same_seed_is_the_same_run),
    };
    return cmocka_run_group_tests_name("sim_swarm_coll", tests, NULL, NULL);
}
