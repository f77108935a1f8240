/* The rules of slots, windows and banks, one situation at a time; test_agg_same compares them with
 * a model in random situations. */
#include "agg/box.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { JOB = 3 };

static struct weft_agg_box box;
static uint8_t bytes[WEFT_AGG_PACKET_MAX];

static int set_up(void **state)
{
    (void)state;
    const struct weft_agg_config config = {
        .members = 3, .dense_epoch = 9, .slots = 1, .banks = 1, .job = JOB};
    return weft_agg_box_init(&box, &config) == WEFT_OK ? 0 : 1;
}

static int tear_down(void **state)
{
    (void)state;
    weft_agg_box_fini(&box);
    return 0;
}

static enum weft_agg_verdict give(uint32_t count)
{
    struct weft_agg_counts before = box.counts;
    uint32_t answer_count;
    (void)weft_agg_box_receive(&box, bytes, count, &answer_count);
    for (uint32_t v = 0; v < WEFT_AGG_VERDICTS; v++) {
        if (box.counts.packets[v] != before.packets[v]) {
            return (enum weft_agg_verdict)v;
        }
    }
    fail_msg("no verdict");
    return WEFT_AGG_MALFORMED;
}

static enum weft_agg_verdict dense(uint16_t member, uint32_t round, int32_t value)
{
    struct weft_wire_agg head = {.kind = WEFT_AGG_DENSE,
                                 .flags = box.config.form,
                                 .job = JOB,
                                 .member = member,
                                 .count = 8,
                                 .epoch = box.config.dense_epoch,
                                 .number = round};
    weft_wire_agg_encode(bytes, &head);
    for (uint32_t i = 0; i < 8; i++) {
        weft_wire_store_u32(bytes + WEFT_AGG_HEADER_BYTES + 4 * i, (uint32_t)value);
    }
    return give(WEFT_AGG_HEADER_BYTES + 32);
}

static enum weft_agg_verdict row(uint16_t member, uint32_t number, uint32_t epoch, int32_t value)
{
    struct weft_wire_agg head = {.kind = WEFT_AGG_ROWS,
                                 .job = JOB,
                                 .member = member,
                                 .count = 1,
                                 .epoch = epoch,
                                 .number = number,
                                 .from = number};
    weft_wire_agg_encode(bytes, &head);
    weft_wire_agg_row_encode(bytes + WEFT_AGG_HEADER_BYTES, 1, 0);
    for (uint32_t i = 0; i < 8; i++) {
        weft_wire_store_u32(bytes + WEFT_AGG_HEADER_BYTES + 4 + 4 * i, (uint32_t)value);
    }
    return give(WEFT_AGG_HEADER_BYTES + WEFT_AGG_ROW_BYTES);
}

static void begin(uint32_t epoch, enum weft_agg_policy policy)
{
    struct weft_agg_bank_epoch e = {.epoch = epoch, .blocks = 4, .policy = (uint8_t)policy};
    assert_true(weft_agg_bank_begin(&box.banks[0], &e));
}

static int32_t sum_of(uint32_t set)
{
    return (int32_t)box.banks[0].sets[set].sums[WEFT_AGG_BLOCK];
}

/* A flaw of SwitchML: with a one-bit round number the last packet here would begin the sum of round
 * 2. */
static void a_duplicate_two_rounds_late_is_not_added(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 3; round++) {
        assert_int_equal(dense(0, round, 10), WEFT_AGG_SUMMED);
        assert_int_equal(dense(1, round, 1), WEFT_AGG_COMPLETE);
    }
    assert_int_equal(dense(0, 0, 10), WEFT_AGG_STALE);
    assert_int_equal(box.slots[0].sets[0].sums[0], 11);
    assert_int_equal(dense(0, 1, 10), WEFT_AGG_RESULT); /* the previous round is still available */
    assert_int_equal(weft_wire_load_u32(bytes + WEFT_AGG_HEADER_BYTES), 11);
}

static void a_round_is_not_replaced_before_it_is_complete(void **state)
{
    (void)state;
    assert_int_equal(dense(0, 0, 10), WEFT_AGG_SUMMED);
    assert_int_equal(dense(0, 2, 20), WEFT_AGG_EARLY);
    assert_int_equal(dense(0, UINT32_MAX, 20), WEFT_AGG_STALE);
    assert_int_equal(dense(1, 0, 1), WEFT_AGG_COMPLETE);
    assert_int_equal(box.slots[0].sets[0].sums[0], 11);
}

static void rounds_wrap(void **state)
{
    (void)state;
    assert_int_equal(dense(0, 0, 1), WEFT_AGG_SUMMED);
    assert_int_equal(dense(1, 0, 1), WEFT_AGG_COMPLETE);
    box.slots[0].sets[0].round = UINT32_MAX - 1;
    assert_int_equal(dense(0, 0, 5), WEFT_AGG_SUMMED);
    assert_int_equal(dense(0, UINT32_MAX - 1, 5), WEFT_AGG_STALE);
}

static void an_overflow_makes_the_round_void_and_it_still_completes(void **state)
{
    (void)state;
    assert_int_equal(dense(0, 0, INT32_MAX), WEFT_AGG_SUMMED);
    assert_int_equal(dense(1, 0, 1), WEFT_AGG_COMPLETE);
    assert_int_equal(bytes[1], WEFT_AGG_SUM);
    assert_int_equal(bytes[2], WEFT_AGG_DIRECT);
    assert_int_equal(box.counts.voided, 1);
    assert_int_equal(dense(0, 2, 1), WEFT_AGG_SUMMED);
    assert_int_equal(dense(1, 2, 1), WEFT_AGG_COMPLETE);
    assert_int_equal(bytes[2], 0);
}

static void floats_are_added_and_infinity_is_not(void **state)
{
    (void)state;
    box.config.form = WEFT_AGG_FLOAT32;
    assert_int_equal(dense(0, 0, (int32_t)weft_agg_bits(1.5f)), WEFT_AGG_SUMMED);
    assert_int_equal(dense(1, 0, (int32_t)weft_agg_bits(-0.25f)), WEFT_AGG_COMPLETE);
    assert_true(weft_agg_real(weft_wire_load_u32(bytes + WEFT_AGG_HEADER_BYTES)) == 1.25f);
    assert_int_equal(dense(0, 1, 0x7f800000), WEFT_AGG_SUMMED);
    assert_int_equal(dense(1, 1, 0), WEFT_AGG_COMPLETE);
    assert_int_equal(bytes[2], WEFT_AGG_FLOAT32 | WEFT_AGG_DIRECT);
    assert_int_equal(dense(0, 2, (int32_t)weft_agg_bits(3e38f)), WEFT_AGG_SUMMED);
    assert_int_equal(dense(1, 2, (int32_t)weft_agg_bits(3e38f)), WEFT_AGG_COMPLETE);
    assert_int_equal(bytes[2], WEFT_AGG_FLOAT32 | WEFT_AGG_DIRECT);
}

static void on_commit_a_packet_is_acknowledged_when_the_server_has_it(void **state)
{
    (void)state;
    struct weft_agg_ack ack;
    struct weft_agg_window *w = &box.banks[0].windows[0];
    begin(1, WEFT_AGG_ON_COMMIT);
    assert_int_equal(row(0, 0, 1, 7), WEFT_AGG_ADDED);
    weft_agg_window_ack(w, &ack);
    assert_int_equal(ack.added[0], 0);
    assert_int_equal(row(0, 0, 1, 7), WEFT_AGG_AGAIN);
    assert_true(weft_agg_bank_flush(&box.banks[0]));
    assert_int_equal(sum_of(0), 7);
    /* New packets continue in the other set. */
    assert_int_equal(row(0, 1, 1, 5), WEFT_AGG_ADDED);
    assert_int_equal(sum_of(1), 5);
    assert_false(weft_agg_bank_flush(&box.banks[0]));
    assert_true(weft_agg_bank_settle(&box.banks[0], true));
    weft_agg_window_ack(w, &ack);
    assert_int_equal(ack.added[0], 1);
    assert_int_equal(sum_of(0), 0);
    assert_int_equal(row(0, 0, 1, 7), WEFT_AGG_AGAIN);
    assert_int_equal(sum_of(1), 5);
}

static void what_the_server_never_got_is_refused_after_the_fact(void **state)
{
    (void)state;
    struct weft_agg_ack ack;
    begin(1, WEFT_AGG_ON_COMMIT);
    assert_int_equal(row(0, 0, 1, 7), WEFT_AGG_ADDED);
    assert_true(weft_agg_bank_flush(&box.banks[0]));
    assert_true(weft_agg_bank_settle(&box.banks[0], false));
    weft_agg_window_ack(&box.banks[0].windows[0], &ack);
    assert_int_equal(ack.added[0], 0);
    assert_int_equal(ack.refused[0], 1);
    assert_int_equal(row(0, 0, 1, 7), WEFT_AGG_AGAIN);
    assert_int_equal(sum_of(box.banks[0].active), 0);
}

static void on_apply_a_packet_is_acknowledged_at_once(void **state)
{
    (void)state;
    struct weft_agg_ack ack;
    begin(1, WEFT_AGG_ON_APPLY);
    assert_int_equal(row(1, 0, 1, 7), WEFT_AGG_ADDED);
    weft_agg_window_ack(&box.banks[0].windows[1], &ack);
    assert_int_equal(ack.added[0], 1);
}

/* The sender has sent the packet directly to the server; a later duplicate must not be added when
 * memory is available again. */
static void what_was_refused_stays_refused(void **state)
{
    (void)state;
    begin(1, WEFT_AGG_ON_APPLY);
    assert_int_equal(row(0, 0, 1, INT32_MAX), WEFT_AGG_ADDED);
    assert_int_equal(row(1, 0, 1, 1), WEFT_AGG_REFUSED_RANGE);
    assert_int_equal(sum_of(0), INT32_MAX);
    assert_int_equal(box.banks[0].sets[0].updates[1], 1);
    assert_true(weft_agg_bank_flush(&box.banks[0]));
    assert_int_equal(row(1, 0, 1, 1), WEFT_AGG_AGAIN);
    assert_int_equal(sum_of(1), 0);
}

static void the_old_epoch_drains_first(void **state)
{
    (void)state;
    struct weft_agg_bank *bank = &box.banks[0];
    struct weft_agg_bank_epoch next = {.epoch = 2, .blocks = 4};
    struct weft_agg_bank_epoch large = {.epoch = 3, .blocks = WEFT_AGG_BANK_BLOCKS + 1};
    begin(1, WEFT_AGG_ON_COMMIT);
    assert_int_equal(row(0, 0, 1, 7), WEFT_AGG_ADDED);
    weft_agg_bank_close(bank);
    assert_int_equal(row(0, 1, 1, 7), WEFT_AGG_REFUSED_CLOSED);
    assert_false(weft_agg_bank_begin(bank, &next));
    assert_true(weft_agg_bank_flush(bank));
    assert_false(weft_agg_bank_begin(bank, &next));
    assert_true(weft_agg_bank_settle(bank, true));
    assert_false(weft_agg_bank_begin(bank, &large));
    assert_true(weft_agg_bank_begin(bank, &next));
    /* A packet of the old epoch is recognized if it was added, else refused. */
    assert_int_equal(row(0, 0, 1, 7), WEFT_AGG_AGAIN);
    assert_int_equal(row(0, 2, 1, 7), WEFT_AGG_REFUSED_EPOCH);
    assert_int_equal(row(0, 3, 2, 7), WEFT_AGG_ADDED);
}

/* A lost reply can be requested again until the receiver acknowledges it. */
static void the_window_moves_when_the_sender_says_so(void **state)
{
    (void)state;
    struct weft_agg_window w = {.base = UINT32_MAX - 63};
    for (uint32_t n = 0; n < 64; n++) {
        assert_int_equal(weft_agg_window_look(&w, w.base + n), WEFT_AGG_WINDOW_NEW);
        weft_agg_window_take(&w, w.base + n, n == 5, 1);
    }
    weft_agg_window_advance(&w, UINT32_MAX);
    assert_int_equal(w.base, UINT32_MAX - 63); /* one number short of 64 */
    weft_agg_window_advance(&w, 0);
    assert_int_equal(w.base, UINT32_MAX - 63); /* one packet is still held */
    weft_agg_window_settle(&w, 1, true);
    weft_agg_window_advance(&w, 0);
    assert_int_equal(w.base, 0);
    assert_int_equal(weft_agg_window_look(&w, UINT32_MAX), WEFT_AGG_WINDOW_PASSED);
    assert_int_equal(weft_agg_window_look(&w, 255), WEFT_AGG_WINDOW_NEW);
    assert_int_equal(weft_agg_window_look(&w, 256), WEFT_AGG_WINDOW_AHEAD);
    weft_agg_window_advance(&w, 200); /* unsettled numbers do not advance it */
    assert_int_equal(w.base, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_duplicate_two_rounds_late_is_not_added, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_round_is_not_replaced_before_it_is_complete, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(rounds_wrap, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_overflow_makes_the_round_void_and_it_still_completes,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(floats_are_added_and_infinity_is_not, set_up, tear_down),
        cmocka_unit_test_setup_teardown(on_commit_a_packet_is_acknowledged_when_the_server_has_it,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_the_server_never_got_is_refused_after_the_fact, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(on_apply_a_packet_is_acknowledged_at_once, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_was_refused_stays_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_old_epoch_drains_first, set_up, tear_down),
        cmocka_unit_test(the_window_moves_when_the_sender_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
