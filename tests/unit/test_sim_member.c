/* Simulated jobs with a coordinator: all faults occur (frozen servers are replaced and resume,
 * coordinators die, disks are full), runs are repeatable, and the checks detect a server that
 * continues to write after its replacement. Also the rules of the directory's log alone. */
#include "sim/dirlog.h"
#include "sim/swarm_member.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 25 };

static uint64_t seed_after(uint64_t seed)
{
    do {
        seed += 10;
    } while (!weft_swarm_member_has(seed));
    return seed;
}

/* The number before these words in the plan's first line. */
static uint64_t number_before(const char *plan, const char *words)
{
    const char *at = strstr(plan, words);
    assert_non_null(at);
    while (at > plan && at[-1] >= '0' && at[-1] <= '9') {
        at--;
    }
    return strtoull(at, NULL, 10);
}

static void seeds_do_what_they_are_for(void **state)
{
    static const char *const what[] = {" replaced", " thawed", " killed", " deaths of",
                                       " abandoned"};
    uint64_t seen[WEFT_ARRAY_COUNT(what)] = {0};
    uint64_t seed = 0;
    (void)state;
    for (uint32_t i = 0; i < SEEDS; i++) {
        struct weft_swarm_result result, again;
        seed = seed_after(seed);
        weft_swarm_member_run(seed, false, NULL, &result);
        if (!result.ok) {
            fail_msg("seed %" PRIu64 ": %s", seed, result.failure);
        }
        for (size_t w = 0; w < WEFT_ARRAY_COUNT(what); w++) {
            seen[w] += number_before(result.plan, what[w]);
        }
        if (i % 10 == 0) {
            weft_swarm_member_run(seed, false, NULL, &again);
            assert_true(again.trace_hash == result.trace_hash && again.steps == result.steps);
        }
    }
    for (size_t w = 0; w < WEFT_ARRAY_COUNT(what); w++) {
        assert_true(seen[w] >= 3);
    }
}

/* Without the log's rules the checks detect that durable pushes are missing. */
static void writing_on_is_seen(void **state)
{
    uint64_t seed = 0;
    uint32_t failed = 0;
    (void)state;
    for (uint32_t i = 0; i < SEEDS; i++) {
        struct weft_swarm_result result;
        seed = seed_after(seed);
        weft_swarm_member_run(seed, true, NULL, &result);
        failed += !result.ok;
    }
    assert_true(failed >= 2);
}

/* ---- the log --------------------------------------------------------------------------------- */

static struct weft_saved *some_data(void)
{
    struct weft_saved *data = calloc(1, sizeof(*data));
    assert_non_null(data);
    weft_saved_init(data, 1, 1);
    return data;
}

/* Retry until the record is linked, or the process learns that it was replaced. */
static bool link_all(struct weft_dirlog *log, struct weft_dirlog_reader *reader,
                     enum weft_dirlog_kind kind, uint64_t number)
{
    struct weft_saved *data = kind == WEFT_DIRLOG_MANIFEST ? some_data() : NULL;
    enum weft_dirlog_try tried;
    do {
        tried = weft_dirlog_link(log, reader, kind, number, data);
    } while (tried == WEFT_DIRLOG_TAKEN);
    if (tried == WEFT_DIRLOG_REPLACED && data != NULL) {
        weft_saved_fini(data);
        free(data);
    }
    return tried == WEFT_DIRLOG_LINKED;
}

static void the_later_claim_wins(void **state)
{
    struct weft_dirlog log = {0};
    struct weft_dirlog_reader first = {.shard = 0}, second = {.shard = 0}, other = {.shard = 1};
    (void)state;
    assert_true(link_all(&log, &first, WEFT_DIRLOG_CLAIM, 0));    /* 1 */
    assert_true(link_all(&log, &other, WEFT_DIRLOG_CLAIM, 0));    /* 2 */
    assert_true(link_all(&log, &first, WEFT_DIRLOG_MANIFEST, 1)); /* 3 */
    assert_true(link_all(&log, &other, WEFT_DIRLOG_MANIFEST, 1)); /* 4 */
    assert_true(link_all(&log, &second, WEFT_DIRLOG_CLAIM, 0));   /* 5 */
    assert_int_equal(second.claim, 5);
    assert_int_equal(weft_dirlog_choose(&log, 0, second.claim), 3);
    /* resumed after its replacement */
    assert_false(link_all(&log, &first, WEFT_DIRLOG_MANIFEST, 2));
    assert_true(first.is_replaced);
    assert_true(link_all(&log, &second, WEFT_DIRLOG_RESTORED, 1)); /* 6 */
    assert_true(link_all(&log, &other, WEFT_DIRLOG_MANIFEST, 2));  /* 7 */
    assert_int_equal(log.count, 7);
    weft_dirlog_fini(&log);
}

/* A process restored an older checkpoint: the newer one is invalid for all later processes. */
static void what_was_not_restored_is_dead(void **state)
{
    struct weft_dirlog log = {0};
    struct weft_dirlog_reader first = {.shard = 0}, second = {.shard = 0}, third = {.shard = 0};
    (void)state;
    assert_true(link_all(&log, &first, WEFT_DIRLOG_CLAIM, 0));    /* 1 */
    assert_true(link_all(&log, &first, WEFT_DIRLOG_MANIFEST, 1)); /* 2 */
    assert_true(link_all(&log, &first, WEFT_DIRLOG_MANIFEST, 2)); /* 3 */
    assert_true(link_all(&log, &second, WEFT_DIRLOG_CLAIM, 0));   /* 4 */
    assert_int_equal(weft_dirlog_choose(&log, 0, second.claim), 3);
    assert_true(link_all(&log, &second, WEFT_DIRLOG_RESTORED, 1)); /* 5: 2 could not be used */
    assert_true(link_all(&log, &third, WEFT_DIRLOG_CLAIM, 0));     /* 6 */
    assert_int_equal(weft_dirlog_choose(&log, 0, third.claim), 2);
    assert_false(link_all(&log, &second, WEFT_DIRLOG_MANIFEST, 2));
    assert_true(link_all(&log, &third, WEFT_DIRLOG_RESTORED, 1)); /* 7 */
    assert_true(link_all(&log, &third, WEFT_DIRLOG_MANIFEST, 2)); /* 8 */
    weft_dirlog_prune(&log, 0, 1);
    assert_null(log.records[1].data);
    assert_non_null(log.records[7].data);
    struct weft_dirlog_reader fourth = {.shard = 0};
    assert_true(link_all(&log, &fourth, WEFT_DIRLOG_CLAIM, 0));
    assert_int_equal(weft_dirlog_choose(&log, 0, fourth.claim), 8);
    weft_dirlog_fini(&log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_later_claim_wins), cmocka_unit_test(what_was_not_restored_is_dead),
        cmocka_unit_test(seeds_do_what_they_are_for), cmocka_unit_test(writing_on_is_seen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
