/* The oracles must detect errors: each case breaks one guarantee and expects the failure. */
#include "base/bits.h"
#include "sim/oracle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* Ten chunks of four elements, four bytes each; the last chunk has two elements. */
enum { CHUNKS = 10, CHUNK_ELEMS = 4, ELEM_BYTES = 4, TOTAL = 38, SLACK = 16 };

struct bench {
    struct weft_plan_msg plan;
    struct weft_oracle_msg msg;
    uint64_t mask[1];
};

static void bench_init(struct bench *b, enum weft_msg_sink sink)
{
    *b = (struct bench){.plan = {.total = TOTAL,
                                 .chunks = CHUNKS,
                                 .chunk_elems = CHUNK_ELEMS,
                                 .elem_bytes = ELEM_BYTES,
                                 .critical = 1,
                                 .bound_ppm = 250000, /* K = 9.5 / 4 = 2 */
                                 .sink = sink,
                                 .slack_bytes = SLACK,
                                 .deadline_ns = WEFT_NEVER,
                                 .timeout_ns = WEFT_NEVER}};
    weft_oracle_msg_init(&b->msg, &b->plan, 42);
    b->msg.posted = true;
    struct weft_oracle_streams streams = {0};
    weft_oracle_queued(&b->msg, &streams, 7);
}

static struct weft_msg_event event_of(struct bench *b, enum weft_msg_event_type type)
{
    return (struct weft_msg_event){.type = type,
                                   .seq = 7,
                                   .total = TOTAL,
                                   .chunk_elems = CHUNK_ELEMS,
                                   .elem_bytes = ELEM_BYTES,
                                   .chunks = CHUNKS,
                                   .received = (uint32_t)weft_bits_count(b->mask, CHUNKS),
                                   .mask = b->mask,
                                   .outcome = WEFT_MSG_COMPLETE};
}

/* Apply a chunk as a correct endpoint does. */
static void land(struct bench *b, uint32_t chunk)
{
    size_t first = (size_t)chunk * CHUNK_ELEMS * ELEM_BYTES;
    size_t end = chunk == CHUNKS - 1 ? TOTAL * ELEM_BYTES : first + CHUNK_ELEMS * ELEM_BYTES;
    weft_bits_set(b->mask, chunk);
    for (size_t i = first; b->plan.sink == WEFT_SINK_COPY && i < end; i++) {
        b->msg.memory[i] = b->msg.source[i];
    }
    for (size_t i = first; b->plan.sink == WEFT_SINK_ADD && i < end; i += 4) {
        float value;
        float added;
        memcpy(&value, b->msg.memory + i, 4);
        memcpy(&added, b->msg.source + i, 4);
        value += added;
        memcpy(b->msg.memory + i, &value, 4);
    }
}

static const char *open_it(struct bench *b)
{
    struct weft_msg_event event = event_of(b, WEFT_EVENT_OPEN);
    return weft_oracle_open(&b->msg, &event, 100);
}

static const char *receive_it(struct bench *b, enum weft_msg_outcome outcome, bool died)
{
    struct weft_msg_event event = event_of(b, WEFT_EVENT_RECEIVED);
    event.outcome = outcome;
    return weft_oracle_received(&b->msg, &event, died, 1000);
}

static void a_correct_transfer_passes(void **state)
{
    (void)state;
    for (int sink = WEFT_SINK_COPY; sink <= WEFT_SINK_ADD; sink++) {
        struct bench b;
        bench_init(&b, (enum weft_msg_sink)sink);
        assert_null(open_it(&b));
        for (uint32_t chunk = 0; chunk < CHUNKS; chunk++) {
            if (chunk != 3 && chunk != 9) {
                land(&b, chunk);
            }
        }
        assert_null(receive_it(&b, WEFT_MSG_COMPLETE, false));
        struct weft_msg_event sent = event_of(&b, WEFT_EVENT_SENT);
        assert_null(weft_oracle_sent(&b.msg, &sent, false));
        assert_null(weft_oracle_memory(&b.msg));
        weft_oracle_msg_fini(&b.msg);
    }
}

static void opened_with_chunks(struct bench *b, uint32_t chunks)
{
    bench_init(b, WEFT_SINK_COPY);
    assert_null(open_it(b));
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        land(b, chunk);
    }
}

static void complete_below_the_bound_is_caught(void **state)
{
    (void)state;
    struct bench b;
    opened_with_chunks(&b, CHUNKS - 3);
    assert_non_null(receive_it(&b, WEFT_MSG_COMPLETE, false));
    weft_oracle_msg_fini(&b.msg);
}

static void a_missing_critical_chunk_is_caught(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, WEFT_SINK_COPY);
    assert_null(open_it(&b));
    for (uint32_t chunk = 1; chunk < CHUNKS; chunk++) {
        land(&b, chunk);
    }
    assert_non_null(receive_it(&b, WEFT_MSG_COMPLETE, false));
    weft_oracle_msg_fini(&b.msg);
}

static void short_needs_a_reason(void **state)
{
    (void)state;
    struct bench b;
    opened_with_chunks(&b, 5);
    assert_non_null(receive_it(&b, WEFT_MSG_SHORT, false));
    weft_oracle_msg_fini(&b.msg);

    opened_with_chunks(&b, 5);
    assert_null(receive_it(&b, WEFT_MSG_SHORT, true)); /* the sender died */
    weft_oracle_msg_fini(&b.msg);

    opened_with_chunks(&b, 5);
    b.plan.deadline_ns = 1000;
    assert_null(receive_it(&b, WEFT_MSG_SHORT, false));
    weft_oracle_msg_fini(&b.msg);

    opened_with_chunks(&b, 5);
    b.plan.deadline_ns = 1001; /* before the deadline */
    assert_non_null(receive_it(&b, WEFT_MSG_SHORT, false));
    weft_oracle_msg_fini(&b.msg);

    opened_with_chunks(&b, CHUNKS - 2);
    b.plan.deadline_ns = 1000;
    assert_non_null(receive_it(&b, WEFT_MSG_SHORT, false)); /* enough chunks arrived */
    weft_oracle_msg_fini(&b.msg);
}

static void a_count_that_is_not_the_mask_is_caught(void **state)
{
    (void)state;
    struct bench b;
    opened_with_chunks(&b, CHUNKS);
    struct weft_msg_event event = event_of(&b, WEFT_EVENT_RECEIVED);
    event.received--;
    assert_non_null(weft_oracle_received(&b.msg, &event, false, 1000));
    weft_oracle_msg_fini(&b.msg);
}

static void wrong_memory_is_caught(void **state)
{
    (void)state;
    /* A wrong byte in a received chunk, in a missing one, and after the message. */
    const size_t places[] = {5, 9 * CHUNK_ELEMS * ELEM_BYTES + 1, TOTAL * ELEM_BYTES};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        struct bench b;
        opened_with_chunks(&b, CHUNKS - 1);
        b.msg.memory[places[i]] ^= 1;
        assert_non_null(receive_it(&b, WEFT_MSG_COMPLETE, false));
        weft_oracle_msg_fini(&b.msg);
    }
}

static void adding_twice_is_caught(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, WEFT_SINK_ADD);
    assert_null(open_it(&b));
    for (uint32_t chunk = 0; chunk < CHUNKS; chunk++) {
        land(&b, chunk);
    }
    land(&b, 2);
    assert_non_null(receive_it(&b, WEFT_MSG_COMPLETE, false));
    weft_oracle_msg_fini(&b.msg);
}

static void the_order_of_events_is_checked(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, WEFT_SINK_COPY);
    assert_non_null(receive_it(&b, WEFT_MSG_COMPLETE, false)); /* before OPEN */
    assert_null(open_it(&b));
    assert_non_null(open_it(&b)); /* twice */
    for (uint32_t chunk = 0; chunk < CHUNKS; chunk++) {
        land(&b, chunk);
    }
    struct weft_msg_event sent = event_of(&b, WEFT_EVENT_SENT);
    assert_non_null(weft_oracle_sent(&b.msg, &sent, false)); /* before RECEIVED */
    weft_oracle_msg_fini(&b.msg);
}

static void masks_of_the_two_ends_are_compared(void **state)
{
    (void)state;
    struct bench b;
    opened_with_chunks(&b, CHUNKS - 1);
    assert_null(receive_it(&b, WEFT_MSG_COMPLETE, false));
    weft_bits_clear(b.mask, 4);
    weft_bits_set(b.mask, CHUNKS - 1);
    struct weft_msg_event sent = event_of(&b, WEFT_EVENT_SENT);
    assert_non_null(weft_oracle_sent(&b.msg, &sent, false));
    weft_oracle_msg_fini(&b.msg);
}

static void unknown_needs_a_dead_peer_and_a_subset(void **state)
{
    (void)state;
    struct bench b;
    opened_with_chunks(&b, 5);
    struct weft_msg_event sent = event_of(&b, WEFT_EVENT_SENT);
    sent.outcome = WEFT_MSG_UNKNOWN;
    assert_non_null(weft_oracle_sent(&b.msg, &sent, false));
    weft_oracle_msg_fini(&b.msg);

    opened_with_chunks(&b, 5);
    sent = event_of(&b, WEFT_EVENT_SENT);
    sent.outcome = WEFT_MSG_UNKNOWN;
    assert_null(weft_oracle_sent(&b.msg, &sent, true));
    weft_oracle_msg_fini(&b.msg);

    opened_with_chunks(&b, 5);
    weft_bits_set(b.mask, 6); /* claims a chunk that was never stored */
    sent = event_of(&b, WEFT_EVENT_SENT);
    sent.outcome = WEFT_MSG_UNKNOWN;
    assert_non_null(weft_oracle_sent(&b.msg, &sent, true));
    weft_oracle_msg_fini(&b.msg);
}

static void chunks_are_handed_up_once_and_whole(void **state)
{
    (void)state;
    struct bench b;
    bool refuse;
    bench_init(&b, WEFT_SINK_EVENT);
    assert_null(open_it(&b));
    struct weft_msg_event event = event_of(&b, WEFT_EVENT_CHUNK);
    event.chunk = 9;
    event.elems = 2;
    event.data = b.msg.source + 9 * CHUNK_ELEMS * ELEM_BYTES;
    assert_null(weft_oracle_chunk(&b.msg, &event, &refuse));
    assert_non_null(weft_oracle_chunk(&b.msg, &event, &refuse)); /* twice */
    event.chunk = 8;
    assert_non_null(weft_oracle_chunk(&b.msg, &event, &refuse)); /* wrong number of elements */
    event.elems = CHUNK_ELEMS;
    event.data = b.msg.source + 5 * CHUNK_ELEMS * ELEM_BYTES;
    assert_non_null(weft_oracle_chunk(&b.msg, &event, &refuse)); /* data of another chunk */
    weft_bits_set(b.mask, 0); /* in the mask but never delivered */
    weft_bits_set(b.mask, 9);
    assert_non_null(receive_it(&b, WEFT_MSG_SHORT, true));
    weft_oracle_msg_fini(&b.msg);
}

static void the_accumulator_gets_received_chunks_only(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, WEFT_SINK_ADD);
    b.msg.received = true;
    weft_bits_set(b.msg.mask, 1);
    float sums[TOTAL] = {0};
    weft_oracle_accumulate(&b.msg, sums);
    for (int i = 0; i < TOTAL; i++) {
        float want;
        memcpy(&want, b.msg.source + 4 * i, 4);
        assert_true(sums[i] == (i >= 4 && i < 8 ? want : 0.0F));
    }
    weft_oracle_msg_fini(&b.msg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_correct_transfer_passes),
        cmocka_unit_test(complete_below_the_bound_is_caught),
        cmocka_unit_test(a_missing_critical_chunk_is_caught),
        cmocka_unit_test(short_needs_a_reason),
        cmocka_unit_test(a_count_that_is_not_the_mask_is_caught),
        cmocka_unit_test(wrong_memory_is_caught),
        cmocka_unit_test(adding_twice_is_caught),
        cmocka_unit_test(the_order_of_events_is_checked),
        cmocka_unit_test(masks_of_the_two_ends_are_compared),
        cmocka_unit_test(unknown_needs_a_dead_peer_and_a_subset),
        cmocka_unit_test(chunks_are_handed_up_once_and_whole),
        cmocka_unit_test(the_accumulator_gets_received_chunks_only),
    };
    return cmocka_run_group_tests_name("sim_oracle", tests, NULL, NULL);
}
