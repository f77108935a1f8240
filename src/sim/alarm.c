#include "sim/alarm.h"

#include "base/assert.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NOWHERE UINT32_MAX

void weft_sim_alarms_init(struct weft_sim_alarms *alarms, uint32_t ids)
{
    *alarms = (struct weft_sim_alarms){.ids = ids};
    alarms->heap = calloc(ids, sizeof(*alarms->heap));
    alarms->place = malloc(ids * sizeof(*alarms->place));
    WEFT_ASSERT(alarms->heap != NULL && alarms->place != NULL);
    memset(alarms->place, 0xff, ids * sizeof(*alarms->place));
}

void weft_sim_alarms_fini(struct weft_sim_alarms *alarms)
{
    free(alarms->heap);
    free(alarms->place);
    *alarms = (struct weft_sim_alarms){0};
}

static bool before(const struct weft_sim_alarm *a, const struct weft_sim_alarm *b)
{
    return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->order < b->order;
}

static void put(struct weft_sim_alarms *alarms, uint32_t at, const struct weft_sim_alarm *alarm)
{
    alarms->heap[at] = *alarm;
    alarms->place[alarm->id] = at;
}

/* Move an alarm at position `at` up or down to its place in the heap. */
static void settle(struct weft_sim_alarms *alarms, uint32_t at, struct weft_sim_alarm alarm)
{
    while (at > 0 && before(&alarm, &alarms->heap[(at - 1) / 2])) {
        put(alarms, at, &alarms->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= alarms->count) {
            break;
        }
        if (child + 1 < alarms->count && before(&alarms->heap[child + 1], &alarms->heap[child])) {
            child++;
        }
        if (!before(&alarms->heap[child], &alarm)) {
            break;
        }
        put(alarms, at, &alarms->heap[child]);
        at = child;
    }
    put(alarms, at, &alarm);
}

static void take_back(struct weft_sim_alarms *alarms, uint32_t at)
{
    alarms->place[alarms->heap[at].id] = NOWHERE;
    struct weft_sim_alarm last = alarms->heap[--alarms->count];
    if (at < alarms->count) {
        settle(alarms, at, last);
    }
}

void weft_sim_alarm_set(struct weft_sim_alarms *alarms, uint32_t id, uint64_t time_ns)
{
    WEFT_ASSERT(id < alarms->ids);
    uint32_t at = alarms->place[id];
    bool is_set = at != NOWHERE;
    if (time_ns == (is_set ? alarms->heap[at].time_ns : WEFT_NEVER)) {
        return;
    }
    if (time_ns == WEFT_NEVER) {
        take_back(alarms, at);
        return;
    }
    at = is_set ? at : alarms->count++;
    settle(alarms, at, (struct weft_sim_alarm){time_ns, alarms->settings++, id});
}
