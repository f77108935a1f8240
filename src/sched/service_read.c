/* Admission of reads: workers' requests become reads of the planner, whose credits bound the number
 * of workers between read and commit.
 *
 * Only the permission to begin is planned, not the transfer of the model: a read is one byte from
 * each server, delivered when it is granted.
 */
#include "sched/service_internal.h"

/* The credit is returned when the update is not requested within this time after the admission, or
 * within STEPS times the time that the worker took last, if that is longer. */
static const uint64_t step_ns_min = 10 * WEFT_NS_PER_S;
enum { STEPS = 4 };

/* In BSP all workers of a clock must read. */
bool service_admits(const struct weft_sched_service *service)
{
    return service->config.read_credits > 0 && service->mode != WEFT_SCHED_BSP &&
           service_is_planning(service);
}

/* End the worker's read in the planner. */
static void release(struct weft_sched_service *service, uint32_t worker, enum read_state state,
                    uint64_t now_ns)
{
    struct service_worker *w = &service->workers[worker];
    if (w->read_state == READ_QUEUED || w->read_state == READ_HELD) {
        (void)weft_planner_read_over(service->planner, worker, now_ns);
    }
    w->read_state = state;
}

void service_read_forget(struct weft_sched_service *service, uint32_t worker, uint64_t now_ns)
{
    release(service, worker, READ_NONE, now_ns);
    service->workers[worker].read = 0;
}

/* Pass the read to the planner, which accepts one request of a worker at a time. */
static void pass(struct weft_sched_service *service, uint32_t worker, uint64_t now_ns)
{
    struct service_worker *w = &service->workers[worker];
    /* An expired worker gets no credit: its request waits until a report of it arrives. */
    if (!service_admits(service) || !w->is_here || service_has_update(w) ||
        w->state == UPDATE_HELD) {
        return;
    }
    if (w->read_state == READ_WANTED &&
        weft_planner_read_at(service->planner, worker, w->read, service->config.shards, now_ns) ==
            WEFT_OK) {
        w->read_state = READ_QUEUED;
    } else if (w->read_state == READ_BEGUN &&
               weft_planner_has_read(service->planner, worker, w->read, now_ns) == WEFT_OK) {
        w->read_state = READ_HELD;
        w->has_read = true;
        w->read_ns = now_ns;
    }
}

void service_read_says(struct weft_sched_service *service, uint32_t worker,
                       const struct weft_sched_report *q, uint64_t now_ns)
{
    struct service_worker *w = &service->workers[worker];
    bool has_begun = (q->flags & WEFT_SCHED_READING) != 0;
    /* If the worker requests a read of the same clock again, it is another read: the update of the
     * first has ended. */
    bool is_same = q->read == w->read &&
                   (has_begun || w->read_state == READ_WANTED || w->read_state == READ_QUEUED ||
                    (w->read_state == READ_HELD && !w->has_read));
    if (q->read == 0) {
        service_read_forget(service, worker, now_ns);
    } else if (!is_same) {
        release(service, worker, has_begun ? READ_BEGUN : READ_WANTED, now_ns);
        w->read = q->read;
        w->has_read = false;
    } else if (has_begun && w->read_state == READ_WANTED) {
        w->read_state = READ_BEGUN; /* the worker did not wait for the admission */
    } else if (has_begun && w->read_state == READ_QUEUED) {
        release(service, worker, READ_BEGUN, now_ns);
    } else if (w->read_state == READ_HELD) {
        w->has_read = has_begun;
    }
    /* This scheduler was started after the read began: the update for which the worker has read is
     * already requested. */
    if (w->read_state == READ_BEGUN && w->read <= w->clock) {
        w->read_state = READ_OVER;
    }
    pass(service, worker, now_ns);
}

void service_read_waits(struct weft_sched_service *service, uint32_t worker, uint64_t now_ns)
{
    if (service->workers[worker].read_state == READ_QUEUED) {
        release(service, worker, READ_WANTED, now_ns);
    }
}

void service_read_passes(struct weft_sched_service *service, uint32_t worker, uint64_t now_ns)
{
    struct service_worker *w = &service->workers[worker];
    if (w->read_state == READ_HELD) {
        w->step_ns = now_ns - weft_min_u64(w->read_ns, now_ns);
        w->read_state = READ_OVER;
    }
}

uint64_t service_read_progress(struct weft_sched_service *service, uint64_t now_ns)
{
    uint64_t due_ns = WEFT_NEVER;
    if (service->config.read_credits == 0) {
        return due_ns;
    }
    for (uint32_t i = 0; i < service->config.workers; i++) {
        struct service_worker *w = &service->workers[i];
        if (w->read_state == READ_HELD) {
            uint64_t span_ns = weft_max_u64(step_ns_min, STEPS * w->step_ns);
            uint64_t end_ns = weft_time_add(w->read_ns, span_ns);
            if (now_ns >= end_ns) {
                w->step_ns = span_ns; /* if the worker only computes longer, its next timeout is
                                       * longer */
                service->counters.reads_expired++;
                release(service, i, READ_OVER, now_ns);
            } else {
                due_ns = weft_min_u64(due_ns, end_ns);
            }
        }
        pass(service, i, now_ns);
    }
    return due_ns;
}

void service_read_admitted(struct weft_sched_service *service, uint32_t worker, uint64_t transfer,
                           uint64_t now_ns)
{
    struct service_worker *w = &service->workers[worker];
    (void)weft_planner_delivered(service->planner, transfer, now_ns);
    if (w->read_state == READ_QUEUED) {
        w->read_state = READ_HELD;
        w->has_read = false;
        w->read_ns = now_ns;
        service_due(service, w->conn);
    }
}
