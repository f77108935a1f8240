/* The ring between the engine's thread and the application's: order, masks, bounds, two threads. */
#include "base/bits.h"
#include "io/event_ring.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>

enum { CHUNKS = 200 };

static struct weft_msg_event event_of(uint64_t seq, const uint64_t *mask)
{
    return (struct weft_msg_event){
        .type = WEFT_EVENT_RECEIVED, .seq = seq, .chunks = CHUNKS, .mask = mask};
}

static void full_and_empty(void **state)
{
    (void)state;
    struct weft_event_ring ring;
    struct weft_msg_event event = event_of(0, NULL);
    assert_int_equal(weft_event_ring_init(&ring, 4, CHUNKS), WEFT_OK);
    assert_false(weft_event_ring_ready(&ring));
    assert_false(weft_event_ring_pop(&ring, &event));
    for (uint64_t i = 0; i < 4; i++) {
        assert_true(weft_event_ring_has_room(&ring));
        struct weft_msg_event in = event_of(i, NULL);
        weft_event_ring_push(&ring, &in);
    }
    assert_false(weft_event_ring_has_room(&ring));
    for (uint64_t i = 0; i < 4; i++) {
        assert_true(weft_event_ring_ready(&ring));
        assert_true(weft_event_ring_pop(&ring, &event));
        assert_int_equal(event.seq, i);
        assert_null(event.mask);
    }
    assert_false(weft_event_ring_ready(&ring));
    assert_false(weft_event_ring_pop(&ring, &event));
    weft_event_ring_fini(&ring);
}

/* The mask of an event is the ring's own copy, and stays until the next pop, full ring or not. */
static void mask_is_lent_until_the_next_pop(void **state)
{
    (void)state;
    struct weft_event_ring ring;
    struct weft_msg_event event;
    uint64_t mask[WEFT_BITS_WORDS(CHUNKS)] = {1, 2, 3, 4};
    assert_int_equal(weft_event_ring_init(&ring, 2, CHUNKS), WEFT_OK);
    struct weft_msg_event in = event_of(1, mask);
    weft_event_ring_push(&ring, &in);
    mask[3] = 99;
    in = event_of(2, mask);
    weft_event_ring_push(&ring, &in);
    mask[3] = 0;
    assert_true(weft_event_ring_pop(&ring, &event));
    assert_ptr_not_equal(event.mask, mask);
    assert_int_equal(event.mask[0], 1);
    assert_int_equal(event.mask[3], 4);
    assert_false(weft_event_ring_has_room(&ring)); /* lent, not yet returned */
    assert_true(weft_event_ring_pop(&ring, &event));
    assert_true(weft_event_ring_has_room(&ring));
    assert_int_equal(event.mask[3], 99);
    weft_event_ring_fini(&ring);
}

enum { EVENTS = 20000 };

static void *produce(void *arg)
{
    struct weft_event_ring *ring = arg;
    uint64_t mask[WEFT_BITS_WORDS(CHUNKS)];
    for (uint64_t i = 0; i < EVENTS; i++) {
        while (!weft_event_ring_has_room(ring)) {
            (void)sched_yield();
        }
        for (size_t word = 0; word < WEFT_ARRAY_COUNT(mask); word++) {
            mask[word] = i + word;
        }
        struct weft_msg_event event = event_of(i, mask);
        weft_event_ring_push(ring, &event);
    }
    return NULL;
}

static void two_threads(void **state)
{
    (void)state;
    struct weft_event_ring ring;
    pthread_t thread;
    assert_int_equal(weft_event_ring_init(&ring, 8, CHUNKS), WEFT_OK);
    assert_int_equal(pthread_create(&thread, NULL, produce, &ring), 0);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < EVENTS; i++) {
        struct weft_msg_event event;
        while (!weft_event_ring_pop(&ring, &event)) {
            (void)sched_yield();
        }
        wrong += event.seq != i || event.mask[0] != i || event.mask[3] != i + 3;
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(wrong, 0);
    weft_event_ring_fini(&ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_and_empty),
        cmocka_unit_test(mask_is_lent_until_the_next_pop),
        cmocka_unit_test(two_threads),
    };
    return cmocka_run_group_tests_name("io event ring", tests, NULL, NULL);
}
