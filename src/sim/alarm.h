/* Alarms: a fixed set of ids, each with one time that may be changed or taken back.
 *
 * The simulator's clockwork beside sim/heap.h: what happens at most once at a time per link or host
 * (the next packet leaves, the next one arrives, the host wakes) is an alarm, so that nothing void
 * waits in a queue. A binary heap ordered by (time, number of the setting): the order is total, and
 * two alarms of one nanosecond go off in the order in which they were set.
 */
#ifndef WEFT_SIM_ALARM_H
#define WEFT_SIM_ALARM_H

#include "base/units.h"

struct weft_sim_alarm {
    uint64_t time_ns;
    uint64_t order; /* number of the setting */
    uint32_t id;
};

struct weft_sim_alarms {
    struct weft_sim_alarm *heap;
    uint32_t *place; /* of an id in the heap; UINT32_MAX = not set */
    uint32_t ids;
    uint32_t count; /* set */
    uint64_t settings;
};

/* Lack of memory ends the process. */
void weft_sim_alarms_init(struct weft_sim_alarms *alarms, uint32_t ids);
void weft_sim_alarms_fini(struct weft_sim_alarms *alarms);

/* WEFT_NEVER takes it back; the time it has already changes nothing, its turn included. */
void weft_sim_alarm_set(struct weft_sim_alarms *alarms, uint32_t id, uint64_t time_ns);

/* Of the first one; WEFT_NEVER when none is set. It stays set until it is set otherwise. */
static inline uint64_t weft_sim_alarms_next_ns(const struct weft_sim_alarms *alarms)
{
    return alarms->count == 0 ? WEFT_NEVER : alarms->heap[0].time_ns;
}

/* Its id; one must be set. */
static inline uint32_t weft_sim_alarms_next(const struct weft_sim_alarms *alarms)
{
    return alarms->heap[0].id;
}

#endif
