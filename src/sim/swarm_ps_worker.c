/* The workers of a simulated parameter server: they pull, push and clock. */
#include "sim/swarm_ps_internal.h"

#include "base/assert.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool finished(struct swarm_ps *ps, uint32_t w, struct weft_ps_result *result_p)
{
    struct swarm_ps_worker *worker = &ps->worker[w];
    if (!weft_ps_op_done(worker->client, worker->op, result_p)) {
        return false;
    }
    weft_ps_op_release(worker->client, worker->op);
    if (result_p->status != WEFT_OK) {
        weft_world_fail(ps->world, "worker %" PRIu32 " phase %d: %s, reason %u", w,
                        (int)worker->phase, weft_status_name(result_p->status),
                        result_p->rpc_status);
    }
    return true;
}

/* Advance if the call was accepted, stay if it returned AGAIN. */
static bool taken(struct swarm_ps *ps, uint32_t w, weft_status status)
{
    if (status != WEFT_OK && status != WEFT_AGAIN) {
        weft_world_fail(ps->world, "worker %" PRIu32 " phase %d: %s", w, (int)ps->worker[w].phase,
                        weft_status_name(status));
    }
    return status == WEFT_OK;
}

/* Drawn for each clock of each worker, independent of earlier draws. */
static uint64_t drawn(const struct swarm_ps *ps, uint32_t w, uint32_t what)
{
    uint64_t clock = ps->worker[w].clock;
    return weft_mix64(ps->table.seed ^ weft_mix64(clock << 32 | w << 8 | what));
}

static bool fetches(const struct swarm_ps *ps, uint32_t w)
{
    return ps->fetches == FETCHES_ALL || (ps->fetches == FETCHES_SOME && drawn(ps, w, 1) % 2 == 0);
}

/* Pull the rows of the next push. */
static weft_status start_fetch(struct swarm_ps *ps, uint32_t w, uint64_t now_ns)
{
    struct swarm_ps_worker *worker = &ps->worker[w];
    uint32_t n = 0;
    for (uint32_t i = 0; i < ps->table.ids; i++) {
        if (weft_swarm_table_pushes(&ps->table, w, worker->clock, i)) {
            worker->fetched[n++] = ps->id[i];
        }
    }
    const struct weft_ps_list list = {
        .table = ps->table.spec.table, .n = n, .ids = worker->fetched, .out = worker->fetched_rows};
    return weft_ps_pull_lists(worker->client, &list, 1, ps->table.pull_bound_ppm, now_ns,
                              &worker->op);
}

/* Pull all rows without waiting for them: the shard may have to drop the list of the fetch. */
static void pull_aside(struct swarm_ps *ps, uint32_t w, uint64_t now_ns)
{
    struct swarm_ps_worker *worker = &ps->worker[w];
    weft_ps_op op;
    float *rows = worker->fetched_rows + (size_t)IDS_MAX * ps->table.spec.dim;
    if (drawn(ps, w, 2) % 4 != 0 || weft_ps_pull(worker->client, ps->table.spec.table, ps->id, rows,
                                                 ps->table.ids, 0, now_ns, &op) != WEFT_OK) {
        return;
    }
    if (weft_ps_op_done(worker->client, op, NULL)) {
        weft_ps_op_release(worker->client, op);
    } else {
        weft_ps_op_abandon(worker->client, op);
    }
}

void weft_swarm_ps_count_lists(struct swarm_ps *ps, uint32_t w)
{
    const struct weft_ps_client_counters *counters = weft_ps_client_counters(ps->worker[w].client);
    ps->pushes_listed += counters->pushes_listed;
    ps->lists_unknown += counters->lists_unknown;
}

static weft_status start_push(struct swarm_ps *ps, uint32_t w, uint64_t now_ns)
{
    struct swarm_ps_worker *worker = &ps->worker[w];
    float *rows = malloc((size_t)IDS_MAX * ps->table.spec.dim * sizeof(*rows));
    WEFT_ASSERT(rows != NULL);
    worker->n = 0;
    for (uint32_t i = 0; i < ps->table.ids; i++) {
        if (!weft_swarm_table_pushes(&ps->table, w, worker->clock, i)) {
            continue;
        }
        float *row = rows + (size_t)worker->n * ps->table.spec.dim;
        for (uint32_t d = 0; d < ps->table.spec.dim; d++) {
            uint32_t bit = weft_swarm_table_bit(&ps->table, w, worker->clock);
            row[d] = (float)(ps->table.workers * weft_swarm_table_sum(&ps->table, d, bit));
        }
        ps->picked[worker->n++] = ps->id[i];
    }
    /* A pull of a whole vector needs no ids. */
    bool vector = ps->table.flavour == WEFT_SWARM_DENSE && worker->n == ps->table.ids;
    const struct weft_ps_list list = {.table = ps->table.spec.table,
                                      .n = worker->n,
                                      .ids = vector ? NULL : ps->picked,
                                      .values = rows};
    weft_status status =
        weft_ps_push_lists(worker->client, &list, 1, ps->table.push_bound_ppm, now_ns, &worker->op);
    free(rows);
    return status;
}

static weft_status start_pull(struct swarm_ps *ps, uint32_t w, uint32_t ahead, weft_ps_op *op_p,
                              uint64_t now_ns)
{
    struct swarm_ps_worker *worker = &ps->worker[w];
    bool vector = ps->table.flavour == WEFT_SWARM_DENSE;
    const struct weft_ps_list list = {.table = ps->table.spec.table,
                                      .n = ps->table.ids,
                                      .ids = vector ? NULL : ps->id,
                                      .out = worker->rows};
    const struct weft_ps_how how = {.bound_ppm = ps->table.pull_bound_ppm, .ahead = ahead};
    memset(worker->rows, 0, (size_t)IDS_MAX * ps->table.spec.dim * sizeof(float));
    return weft_ps_begin(worker->client, WEFT_RPC_PULL, &list, 1, &how, now_ns, op_p);
}

/* In half of the clocks the next clock's pull is sent before this clock's push. */
static void start_ahead(struct swarm_ps *ps, uint32_t w, uint64_t now_ns)
{
    struct swarm_ps_worker *worker = &ps->worker[w];
    bool wants = ps->table.spec.mode == WEFT_TABLE_BSP && drawn(ps, w, 3) % 2 == 0;
    if (wants && !worker->has_ahead) {
        worker->has_ahead = start_pull(ps, w, 1, &worker->ahead, now_ns) == WEFT_OK;
    }
}

/* Use the pull that was sent ahead, or start one now. */
static bool pull_begun(struct swarm_ps *ps, uint32_t w, uint64_t now_ns)
{
    struct swarm_ps_worker *worker = &ps->worker[w];
    if (worker->has_ahead) {
        worker->has_ahead = false;
        worker->op = worker->ahead;
        return true;
    }
    return taken(ps, w, start_pull(ps, w, 0, &worker->op, now_ns));
}

static void pushed(struct swarm_ps *ps, uint32_t w, const struct weft_ps_result *result)
{
    struct swarm_ps_worker *worker = &ps->worker[w];
    worker->delivered += result->elements_delivered;
    uint64_t elements = (uint64_t)worker->n * ps_blocks(ps);
    if (ps_was_cut_off(ps, w, worker->clock)) { /* none of it was applied before, and this is all of
                                                 * it */
        worker->cut_off &= ~(UINT32_C(1) << worker->clock);
        worker->cut_off_elements -= elements;
    }
    bool whole = result->elements_delivered == elements;
    bool dropped = result->rpcs_dropped > 0;
    worker->dropped |= (uint32_t)dropped << worker->clock;
    if (result->elements_sent != elements ||
        (ps->table.push_bound_ppm == 0 && !whole && !dropped) || (dropped && !ps->drops) ||
        (result->chunks_refused != 0 && !dropped)) {
        weft_world_fail(ps->world,
                        "worker %" PRIu32 ": pushed %" PRIu32 " rows, sent %" PRIu64
                        ", delivered %" PRIu64,
                        w, worker->n, result->elements_sent, result->elements_delivered);
    }
}

static weft_status start_open(struct swarm_ps *ps, uint32_t w, uint64_t now_ns)
{
    struct swarm_ps_worker *worker = &ps->worker[w];
    const struct weft_table_spec *spec = &ps->table.spec;
    weft_status status = weft_ps_table_open(worker->client, spec, now_ns, &worker->op);
    if (status == WEFT_OK && worker->kept != NULL) {
        weft_status lent =
            weft_ps_client_feedback(worker->client, spec->table, worker->kept, IDS_MAX);
        WEFT_ASSERT(lent == WEFT_OK);
    }
    return status;
}

/* One step of a worker; returns true if it made progress. */
bool weft_swarm_ps_worker_step(struct swarm_ps *ps, uint32_t w, uint64_t now_ns)
{
    struct swarm_ps_worker *worker = &ps->worker[w];
    struct weft_ps_result result;
    enum phase before = worker->phase;
    switch (worker->phase) {
    case PHASE_OPEN:
        worker->phase += taken(ps, w, start_open(ps, w, now_ns));
        break;
    case PHASE_PULL:
        worker->phase += pull_begun(ps, w, now_ns);
        break;
    case PHASE_PUSH:
        start_ahead(ps, w, now_ns);
        if (taken(ps, w, start_push(ps, w, now_ns))) {
            worker->phase++;
            weft_swarm_ps_sched_pushed(ps, w, now_ns);
        }
        break;
    case PHASE_OPENING:
        worker->phase += finished(ps, w, &result);
        worker->clock = weft_ps_clock_now(worker->client, ps->table.spec.table);
        break;
    case PHASE_PULLING:
        if (finished(ps, w, &result)) {
            weft_swarm_ps_check_pulled(ps, w, &result);
            worker->phase = worker->clock == ps->table.clocks ? PHASE_DONE
                            : fetches(ps, w)                  ? PHASE_FETCH
                                                              : PHASE_PUSH;
            ps->closed_ns = now_ns;
        }
        break;
    case PHASE_FETCH:
        worker->phase += taken(ps, w, start_fetch(ps, w, now_ns));
        break;
    case PHASE_FETCHING:
        if (finished(ps, w, &result)) {
            worker->phase = PHASE_PUSH;
            pull_aside(ps, w, now_ns);
        }
        break;
    case PHASE_PUSHING:
        if (finished(ps, w, &result)) {
            pushed(ps, w, &result);
            worker->phase = PHASE_CLOCK;
        }
        break;
    case PHASE_CLOCK:
        if (taken(ps, w, weft_ps_clock(worker->client, ps->table.spec.table, now_ns))) {
            worker->clock++;
            worker->phase = PHASE_PULL;
        }
        break;
    case PHASE_DONE:
        break;
    }
    return worker->phase != before;
}
