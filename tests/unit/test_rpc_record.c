/* The ring of records: what goes in comes out in order, and a full ring drops and counts. */
#include "rpc/record.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { SLOTS = 8 };

static bool put(struct weft_record_ring *ring, uint32_t number)
{
    struct weft_record *record = weft_record_claim(ring);
    if (record == NULL) {
        return false;
    }
    record->type = WEFT_RECORD_SERVED;
    record->served = (struct weft_record_served){.rpc = number};
    weft_record_commit(ring);
    return true;
}

/* Take all; the first must be `number`, and each one more than the one before. Returns how many. */
static uint32_t take(struct weft_record_ring *ring, uint32_t number)
{
    uint32_t all = 0;
    for (uint32_t count; weft_record_ring_peek(ring, &count), count > 0; all += count) {
        const struct weft_record *records = weft_record_ring_peek(ring, &count);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(records[i].served.rpc, number + all + i);
        }
        weft_record_ring_take(ring, count);
    }
    return all;
}

static void in_order_over_the_edge(void **state)
{
    (void)state;
    struct weft_record_ring *ring;
    assert_int_equal(weft_record_ring_new(SLOTS, &ring), WEFT_OK);
    uint32_t made = 0;
    uint32_t taken = 0;
    for (uint32_t n = 0; n <= SLOTS; n++) {
        for (uint32_t i = 0; i < n; i++) {
            assert_true(put(ring, made++));
        }
        taken += take(ring, taken);
        assert_int_equal(taken, made);
    }
    assert_int_equal(weft_record_ring_dropped(ring), 0);
    weft_record_ring_free(ring);
}

static void full_drops_and_counts(void **state)
{
    (void)state;
    struct weft_record_ring *ring;
    assert_int_equal(weft_record_ring_new(SLOTS, &ring), WEFT_OK);
    for (uint32_t i = 0; i < SLOTS; i++) {
        assert_true(put(ring, i));
    }
    assert_false(put(ring, 100));
    assert_false(put(ring, 101));
    assert_int_equal(weft_record_ring_dropped(ring), 2);
    assert_int_equal(take(ring, 0), SLOTS);
    assert_true(put(ring, SLOTS));
    assert_int_equal(take(ring, SLOTS), 1);
    assert_int_equal(weft_record_ring_dropped(ring), 2);
    weft_record_ring_free(ring);
}

/* A record that is claimed and not committed is not there; without a ring nothing is. */
static void claimed_is_not_there(void **state)
{
    (void)state;
    struct weft_record_ring *ring;
    uint32_t count;
    assert_int_equal(weft_record_ring_new(SLOTS, &ring), WEFT_OK);
    assert_non_null(weft_record_claim(ring));
    (void)weft_record_ring_peek(ring, &count);
    assert_int_equal(count, 0);
    assert_true(put(ring, 7));
    assert_int_equal(take(ring, 7), 1);
    weft_record_ring_free(ring);
    assert_null(weft_record_claim(NULL));
    weft_record_ring_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_order_over_the_edge),
        cmocka_unit_test(full_drops_and_counts),
        cmocka_unit_test(claimed_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
