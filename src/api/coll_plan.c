/* <weft/coll.h>: plans of all_reduce (node/coll_thread.h makes them). */
#include "api/coll_internal.h"

#include "base/prng.h"
#include "io/clock.h"

#include <stddef.h>
#include <string.h>

enum {
    PLAN_BYTES_MIN = offsetof(struct weft_comm_plan, timeout_ns) + sizeof(uint64_t),
    PLANNED_BYTES_MIN = offsetof(struct weft_comm_planned, trees_ns) + sizeof(uint64_t),
};

void weft_comm_plan_init(struct weft_comm_plan *plan_p, size_t size)
{
    const struct weft_comm_plan plan = {.form = WEFT_COMM_PLAN_AUTO, .bytes = 4 << 20};
    weft_api_struct_init(plan_p, size, &plan, sizeof(plan), PLAN_BYTES_MIN);
}

/* Of the host in the address, without the port. */
static uint64_t host_of(const struct weft_comm *comm)
{
    const char *end = strrchr(comm->address, ':');
    uint64_t h = 1;
    for (const char *at = comm->address; at < end; at++) {
        h = weft_mix64(h ^ (uint64_t)(uint8_t)*at);
    }
    return h;
}

static weft_status begin(struct weft_comm *comm, const struct weft_comm_plan *plan,
                         struct weft_coll_exchange **exchange_p, struct weft_error *error)
{
    const struct weft_api_range fields[] = {
        {"form", plan->form, WEFT_COMM_PLAN_NONE, WEFT_COMM_PLAN_TREES},
        {"bytes", plan->bytes, 1, WEFT_COLLECTIVE_BYTES_MAX},
        {"late_ns", plan->late_ns, 0, WEFT_COLLECTIVE_READY_MAX},
    };
    weft_status status = weft_api_ranges_check(fields, WEFT_ARRAY_COUNT(fields), error);
    if (status != WEFT_OK) {
        return status;
    }
    const struct weft_api_comm_group *group =
        plan->group < comm->groups_max ? &comm->group[plan->group] : NULL;
    if (group == NULL || group->n == 0 || group->me == UINT32_MAX) {
        return weft_fail(error, WEFT_INVALID,
                         "group %u does not exist, or this rank is not in it; only its members set "
                         "its plan",
                         plan->group);
    }
    bool none = plan->form == WEFT_COMM_PLAN_NONE;
    const struct weft_coll_thread_plan ours = {
        .group = plan->group,
        .is_none = none,
        .form = none ? WEFT_COLLECTIVE_AUTO : (enum weft_collective_form)(plan->form - 1),
        .bytes = plan->bytes,
        .up_bps = plan->up_bps,
        .down_bps = plan->down_bps,
        .late_ns = plan->late_ns,
        .host = plan->host != 0 ? plan->host : host_of(comm),
    };
    return weft_coll_thread_plan_begin(
        comm->thread, &ours, group->n,
        plan->timeout_ns != 0 ? plan->timeout_ns : comm->op_timeout_ns, exchange_p, error);
}

weft_status weft_api_comm_plan_first(struct weft_comm *comm, uint64_t until_ns,
                                     struct weft_error *error)
{
    struct weft_collective_plan planned;
    if (comm->exchange == NULL) {
        weft_status status = begin(comm, &comm->first, &comm->exchange, error);
        if (status != WEFT_OK) {
            return status;
        }
    }
    weft_status status =
        weft_coll_thread_plan_end(comm->thread, comm->exchange, until_ns, &planned, error);
    if (status != WEFT_TIMEOUT) {
        comm->exchange = NULL;
    }
    if (status == WEFT_OK) {
        comm->first.form = WEFT_COMM_PLAN_NONE;
    }
    return status;
}

static void write_planned(const struct weft_comm *comm, const struct weft_comm_plan *plan,
                          const struct weft_collective_plan *made,
                          struct weft_comm_planned *planned_p)
{
    struct weft_comm_planned ours = {.size = sizeof(ours), .form = WEFT_COMM_PLAN_NONE};
    if (plan->form != WEFT_COMM_PLAN_NONE) {
        uint32_t me = comm->group[plan->group].me;
        uint64_t own = made->slice[me + 1] - made->slice[me];
        ours.form = (uint32_t)made->form + 1;
        ours.hosts = made->hosts;
        ours.own_ppm = (uint32_t)(own * WEFT_PPM / WEFT_COLLECTIVE_WHOLE);
        ours.parts = made->parts;
        ours.depth = made->depth;
        ours.equal_ns = made->equal_ns;
        ours.slices_ns = made->slices_ns;
        ours.trees_ns = made->trees_ns;
        for (uint32_t r = 0; r < made->ranks; r++) {
            ours.owners += made->slice[r + 1] > made->slice[r];
        }
    }
    weft_api_struct_out(planned_p, &ours, sizeof(ours), PLANNED_BYTES_MIN);
}

weft_status weft_comm_plan_set(struct weft_comm *comm, const struct weft_comm_plan *plan,
                               struct weft_comm_planned *planned_p)
{
    struct weft_error *error = weft_api_comm_error();
    struct weft_comm_plan ours;
    struct weft_coll_exchange *exchange;
    struct weft_collective_plan made;
    if (comm->pid != getpid()) {
        return weft_api_comm_forked();
    }
    weft_comm_plan_init(&ours, sizeof(ours));
    weft_status status = weft_api_struct_in(&ours, sizeof(ours), PLAN_BYTES_MIN, plan, "plan",
                                            "weft_comm_plan_init", error);
    status = status == WEFT_OK ? begin(comm, &ours, &exchange, error) : status;
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_coll_thread_plan_end(comm->thread, exchange, WEFT_NEVER, &made, error);
    if (status == WEFT_OK && planned_p != NULL) {
        write_planned(comm, &ours, &made, planned_p);
    }
    return status;
}
