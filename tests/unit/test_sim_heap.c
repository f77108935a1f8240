/* The event queue compared with a list that is searched linearly. */
#include "base/prng.h"
#include "sim/heap.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void an_empty_heap_has_nothing(void **state)
{
    (void)state;
    struct weft_sim_heap heap = {0};
    struct weft_sim_event event;
    assert_false(weft_sim_heap_pop(&heap, &event));
    assert_true(weft_sim_heap_next_ns(&heap) == WEFT_NEVER);
    weft_sim_heap_fini(&heap);
}

static void one_time_keeps_the_order_of_planning(void **state)
{
    (void)state;
    struct weft_sim_heap heap = {0};
    for (uint32_t i = 0; i < 1000; i++) {
        weft_sim_heap_push(&heap, 7, 0, i, NULL);
    }
    for (uint32_t i = 0; i < 1000; i++) {
        struct weft_sim_event event;
        assert_true(weft_sim_heap_pop(&heap, &event));
        assert_int_equal(event.index, i);
    }
    weft_sim_heap_fini(&heap);
}

/* The oracle: the smallest (time, number) of an unsorted list. */
enum { LIST_MAX = 600 };
struct list {
    uint64_t time_ns[LIST_MAX];
    uint32_t number[LIST_MAX];
    uint32_t count;
};

static uint32_t list_take(struct list *list)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < list->count; i++) {
        if (list->time_ns[i] < list->time_ns[best] ||
            (list->time_ns[i] == list->time_ns[best] && list->number[i] < list->number[best])) {
            best = i;
        }
    }
    uint32_t number = list->number[best];
    list->count--;
    list->time_ns[best] = list->time_ns[list->count];
    list->number[best] = list->number[list->count];
    return number;
}

static void random_operations_match_the_oracle(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct weft_prng prng;
        weft_prng_init(&prng, seed);
        struct weft_sim_heap heap = {0};
        struct list list = {.count = 0};
        uint32_t number = 0;
        for (int step = 0; step < 1500; step++) {
            bool push = list.count == 0 || (list.count < LIST_MAX && weft_prng_below(&prng, 5) < 3);
            if (push) {
                uint64_t time_ns = weft_prng_below(&prng, 40); /* many ties */
                weft_sim_heap_push(&heap, time_ns, 0, number, NULL);
                list.time_ns[list.count] = time_ns;
                list.number[list.count++] = number++;
            } else {
                struct weft_sim_event event;
                assert_true(weft_sim_heap_pop(&heap, &event));
                assert_int_equal(event.index, list_take(&list));
            }
            assert_int_equal(heap.count, list.count);
        }
        weft_sim_heap_fini(&heap);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_heap_has_nothing),
        cmocka_unit_test(one_time_keeps_the_order_of_planning),
        cmocka_unit_test(random_operations_match_the_oracle),
    };
    return cmocka_run_group_tests_name("sim_heap", tests, NULL, NULL);
}
