/* Alarms: a fixed set of ids, each with one time that may be changed or canceled.
 *
 * Complements sim/heap.h. Events of which each link or host has at most one pending (the next
 * packet leaves, the next one arrives, the host wakes) are alarms, so that no obsolete events wait
 * in a queue. A binary heap ordered by (time, sequence number of the setting). The order is total:
 * two alarms at the same nanosecond fire in the order in which they were set.
 */
#ifndef WEFT_SIM_ALARM_H
#define WEFT_SIM_ALARM_H

#include "base/units.h"

struct weft_sim_alarm {
    uint64_t time_ns;
    uint64_t order; /* sequence number of the setting */
    uint32_t id;
};

struct weft_sim_alarms {
    struct weft_sim_alarm *heap;
    uint32_t *place; /* position of each id in the heap; UINT32_MAX = not set */
    uint32_t ids;
    uint32_t count; /* number of alarms set */
    uint64_t settings;
};

/* Running out of memory ends the process. */
void weft_sim_alarms_init(struct weft_sim_alarms *alarms, uint32_t ids);
void weft_sim_alarms_fini(struct weft_sim_alarms *alarms);

/* Set an alarm; WEFT_NEVER cancels it. Setting the time that it already has changes nothing,
 * including its position among equal times. */
void weft_sim_alarm_set(struct weft_sim_alarms *alarms, uint32_t id, uint64_t time_ns);

/* Time of the first alarm; WEFT_NEVER if none is set. The alarm stays set until it is changed. */
static inline uint64_t weft_sim_alarms_next_ns(const struct weft_sim_alarms *alarms)
{
    return alarms->count == 0 ? WEFT_NEVER : alarms->heap[0].time_ns;
}

/* Id of the first alarm; at least one must be set. */
static inline uint32_t weft_sim_alarms_next(const struct weft_sim_alarms *alarms)
{
    return alarms->heap[0].id;
}

#endif
