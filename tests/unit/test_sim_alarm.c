/* Alarms compared with a list that is searched linearly. */
#include "base/prng.h"
#include "sim/alarm.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { IDS = 37 };

/* The oracle: times and settings by id. */
struct list {
    uint64_t time_ns[IDS];
    uint64_t order[IDS];
    uint64_t settings;
};

static void list_set(struct list *list, uint32_t id, uint64_t time_ns)
{
    if (list->time_ns[id] != time_ns) {
        list->time_ns[id] = time_ns;
        list->order[id] = list->settings++;
    }
}

static uint32_t list_next(const struct list *list)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < IDS; i++) {
        if (list->time_ns[i] < list->time_ns[best] ||
            (list->time_ns[i] == list->time_ns[best] && list->order[i] < list->order[best])) {
            best = i;
        }
    }
    return best;
}

static void agree(const struct weft_sim_alarms *alarms, const struct list *list)
{
    uint32_t want = list_next(list);
    assert_true(weft_sim_alarms_next_ns(alarms) == list->time_ns[want]);
    if (list->time_ns[want] != WEFT_NEVER) {
        assert_int_equal(weft_sim_alarms_next(alarms), want);
    }
}

static void random_settings_match_the_oracle(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct weft_prng prng;
        struct weft_sim_alarms alarms;
        struct list list = {.settings = 0};
        weft_prng_init(&prng, seed);
        weft_sim_alarms_init(&alarms, IDS);
        for (uint32_t i = 0; i < IDS; i++) {
            list.time_ns[i] = WEFT_NEVER;
        }
        for (int step = 0; step < 2000; step++) {
            bool first = alarms.count > 0 && weft_prng_below(&prng, 3) == 0;
            uint32_t id =
                first ? weft_sim_alarms_next(&alarms) : (uint32_t)weft_prng_below(&prng, IDS);
            uint64_t time_ns = weft_prng_below(&prng, 40); /* many ties */
            time_ns = time_ns < 10 ? WEFT_NEVER : time_ns;
            weft_sim_alarm_set(&alarms, id, time_ns);
            list_set(&list, id, time_ns);
            agree(&alarms, &list);
        }
        weft_sim_alarms_fini(&alarms);
    }
}

static void one_time_keeps_the_order_of_setting(void **state)
{
    (void)state;
    struct weft_sim_alarms alarms;
    weft_sim_alarms_init(&alarms, IDS);
    for (uint32_t i = 0; i < IDS; i++) {
        weft_sim_alarm_set(&alarms, i * 5 % IDS, 7);
    }
    weft_sim_alarm_set(&alarms, 0, 7); /* no change: keeps its order */
    for (uint32_t i = 0; i < IDS; i++) {
        assert_int_equal(weft_sim_alarms_next(&alarms), i * 5 % IDS);
        weft_sim_alarm_set(&alarms, i * 5 % IDS, WEFT_NEVER);
    }
    assert_true(weft_sim_alarms_next_ns(&alarms) == WEFT_NEVER);
    weft_sim_alarms_fini(&alarms);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_settings_match_the_oracle),
        cmocka_unit_test(one_time_keeps_the_order_of_setting),
    };
    return cmocka_run_group_tests_name("sim_alarm", tests, NULL, NULL);
}
