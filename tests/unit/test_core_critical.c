/* Critical chunks by mask, and rule 7: critical chunks arrive under every pattern of losses. */
#include "core/misses.h"

#include "core_pair.h"

enum { N = 3000, CHUNKS = 9, BIG = 352 * 2600, BIG_CHUNKS = 2600 };

/* Half of the chunks may be missing, except these. The grid does not change, although this much
 * loss may look like a smaller path MTU. */
static uint64_t send_masked(struct pair *t, const float *values, uint32_t n, const uint64_t *mask,
                            uint8_t leading)
{
    struct weft_msg_send send = {
        .peer = t->peer_of_0,
        .base = values,
        .total = n,
        .elem_bytes = sizeof(float),
        .chunk_elems = 352,
        .bound_ppm = 500000,
        .critical = leading,
        .critical_mask = mask,
        .tag = 42,
        .deadline_ns = WEFT_NEVER,
    };
    uint64_t seq = 0;
    assert_int_equal(net_msg_send(&t->net, 0, &send, &seq), WEFT_OK);
    return seq;
}

static bool contains(const uint64_t *mask, const uint64_t *must, uint32_t chunks)
{
    for (uint32_t i = 0; i < chunks; i++) {
        if (weft_bits_test(must, i) && !weft_bits_test(mask, i)) {
            return false;
        }
    }
    return true;
}

/* 40 % loss and a bound of 50 %: without the mask a given chunk would be missing in about every
 * third run. Counting those runs shows that the test can fail. */
static void one_of_many_sizes(struct pair *t, uint32_t n, uint32_t chunks, uint32_t seeds)
{
    float *values = floats_new(n);
    float *memory = malloc(n * sizeof(*memory));
    uint64_t must[64] = {0};
    uint32_t chosen[] = {0, 3, chunks / 2, chunks - 1};
    for (size_t i = 0; i < 4; i++) {
        weft_bits_set(must, chosen[i]);
    }
    uint32_t others_missing = 0;
    t->net.loss_ppm = 400000;
    for (uint32_t seed = 0; seed < seeds; seed++) {
        weft_prng_init(&t->net.prng, seed + 1);
        uint32_t before = t->sent_count;
        expect_floats(t, WEFT_SINK_COPY, memory, n);
        send_masked(t, values, n, must, 2);
        for (int i = 0; i < 100 && t->sent_count == before; i++) {
            run_for(t, WEFT_NS_PER_S / 10);
        }
        assert_int_equal(t->sent_count, before + 1);
        assert_int_equal(t->sent.outcome, WEFT_MSG_COMPLETE);
        assert_int_equal(t->received.outcome, WEFT_MSG_COMPLETE);
        assert_memory_equal(t->sent_mask, t->received_mask, WEFT_BITS_WORDS((size_t)chunks) * 8);
        assert_true(contains(t->received_mask, must, chunks));
        assert_true(weft_bits_test(t->received_mask, 1)); /* the second leading chunk */
        others_missing += chunks - t->received.received;
    }
    assert_true(others_missing > seeds / 2);
    free(memory);
    free(values);
}

static void test_masked_chunks_are_never_missing(void **state)
{
    one_of_many_sizes(*state, N, CHUNKS, 200);
}

/* Several parts of CRITICAL, of which some are lost. */
static void test_masks_of_many_parts(void **state)
{
    one_of_many_sizes(*state, BIG, BIG_CHUNKS, 12);
}

static void test_an_empty_mask_costs_nothing(void **state)
{
    struct pair *t = *state;
    float *values = floats_new(N);
    float *memory = malloc(N * sizeof(*memory));
    uint64_t none[1] = {0};
    expect_floats(t, WEFT_SINK_COPY, memory, N);
    uint64_t seq = send_masked(t, values, N, none, 1);
    const struct tx_msg *m = &inspect_peer(t->net.end[0].ep, t->peer_of_0)->tx.msgs[seq & MSG_MASK];
    assert_false(m->masked);
    assert_int_equal(m->critical, 1);
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(t->sent.outcome, WEFT_MSG_COMPLETE);
    free(memory);
    free(values);
}

/* K is reduced if the critical chunks leave fewer chunks than the bound allows to miss. */
static void test_the_bound_leaves_room_for_the_critical(void **state)
{
    struct pair *t = *state;
    float *values = floats_new(N);
    uint64_t most[1] = {0xff};
    uint64_t seq = send_masked(t, values, N, most, 0);
    const struct tx_msg *m = &inspect_peer(t->net.end[0].ep, t->peer_of_0)->tx.msgs[seq & MSG_MASK];
    uint32_t chunks = m->chunks;
    assert_int_equal(m->critical_left, 8);
    assert_int_equal(m->lost_max, chunks - 8 < chunks / 2 ? chunks - 8 : chunks / 2);
    free(values);
}

/* False claims of a peer about parts are counted and have no other effect. */
static void test_lies_are_refused(void **state)
{
    struct pair *t = *state;
    float *values = floats_new(BIG);
    float *memory = malloc(BIG * sizeof(*memory));
    expect_floats(t, WEFT_SINK_COPY, memory, BIG);
    uint64_t must[64] = {4};
    send_masked(t, values, BIG, must, 0);
    struct peer *p = inspect_peer(t->net.end[1].ep, t->peer_of_1);
    struct weft_wire_critical frame = {.word_count = 1, .msg = 1, .chunks = 9, .words = {4}};
    assert_false(weft_core_critical_recv(t->net.end[1].ep, p, &frame)); /* not open yet */
    net_pump(&t->net);
    for (uint32_t i = 0; t->net.queued > 0 && p->rx.live == 0 && i < 100; i++) {
        net_step(&t->net, WEFT_NEVER - 1);
    }
    assert_int_not_equal(p->rx.live, 0);
    struct rx_msg *m = &p->rx.msgs[1];
    assert_false(m->critical_known); /* so that the next two are checked */
    uint64_t before = weft_ep_counters(t->net.end[1].ep)->bad_range;
    frame.chunks = m->chunks + 1;
    assert_true(weft_core_critical_recv(t->net.end[1].ep, p, &frame));
    frame.chunks = m->chunks;
    frame.first = 64;
    assert_true(weft_core_critical_recv(t->net.end[1].ep, p, &frame));
    assert_int_equal(weft_ep_counters(t->net.end[1].ep)->bad_range, before + 2);
    assert_false(m->critical_known);
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(t->sent.outcome, WEFT_MSG_COMPLETE);
    free(memory);
    free(values);
}

static void test_misses_become_critical_after_m(void **state)
{
    (void)state;
    struct weft_misses misses;
    assert_int_equal(weft_misses_init(&misses, 100, 2), WEFT_OK);
    assert_null(weft_misses_critical(&misses, 70));
    uint64_t mask[2] = {UINT64_MAX & ~UINT64_C(9), UINT64_MAX}; /* 0 and 3 missing */
    weft_misses_note(&misses, mask, 70);
    assert_null(weft_misses_critical(&misses, 70));
    mask[0] = UINT64_MAX & ~UINT64_C(10); /* 1 and 3 */
    mask[1] = ~UINT64_C(0x20);            /* 69 */
    weft_misses_note(&misses, mask, 70);
    const uint64_t *critical = weft_misses_critical(&misses, 70);
    assert_non_null(critical);
    assert_int_equal(critical[0], 8);
    assert_int_equal(critical[1], 0);
    assert_null(weft_misses_critical(&misses, 71)); /* another grid */
    weft_misses_note(&misses, mask, 70);
    assert_int_equal(weft_misses_critical(&misses, 70)[0], 10);
    assert_int_equal(weft_misses_critical(&misses, 70)[1], 0x20);
    mask[0] = UINT64_MAX;
    mask[1] = UINT64_MAX;
    weft_misses_note(&misses, mask, 70);
    assert_null(weft_misses_critical(&misses, 70));
    weft_misses_fini(&misses);
}

/* Over a lossy path with a bound, no chunk is missing more than twice in a row. */
static void test_rule_7_end_to_end(void **state)
{
    struct pair *t = *state;
    float *values = floats_new(N);
    float *memory = malloc(N * sizeof(*memory));
    uint32_t missing[CHUNKS] = {0};
    uint32_t twice = 0;
    struct weft_misses misses;
    assert_int_equal(weft_misses_init(&misses, CHUNKS, 2), WEFT_OK);
    t->net.loss_ppm = 400000;
    for (int step_no = 0; step_no < 150; step_no++) {
        uint32_t before = t->sent_count;
        expect_floats(t, WEFT_SINK_COPY, memory, N);
        send_masked(t, values, N, weft_misses_critical(&misses, CHUNKS), 0);
        for (int i = 0; i < 100 && t->sent_count == before; i++) {
            run_for(t, WEFT_NS_PER_S / 10);
        }
        assert_int_equal(t->sent_count, before + 1);
        assert_int_equal(t->sent.chunks, CHUNKS);
        weft_misses_note(&misses, t->sent_mask, CHUNKS);
        for (uint32_t i = 0; i < CHUNKS; i++) {
            missing[i] = weft_bits_test(t->sent_mask, i) ? 0 : missing[i] + 1;
            assert_true(missing[i] <= 2);
            twice += missing[i] == 2;
        }
    }
    assert_true(twice > 10);
    weft_misses_fini(&misses);
    free(memory);
    free(values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_masked_chunks_are_never_missing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_masks_of_many_parts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_empty_mask_costs_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_bound_leaves_room_for_the_critical, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_lies_are_refused, setup, teardown),
        cmocka_unit_test(test_misses_become_critical_after_m),
        cmocka_unit_test_setup_teardown(test_rule_7_end_to_end, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
