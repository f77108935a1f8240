/* Completion of pushes and pulls; clocks.
 *
 * An operation is a slot in the client. The caller's handle contains the slot and its generation,
 * so that an old handle differs from that of the slot's next operation.
 */
#include "api/ps_internal.h"

#include "base/assert.h"
#include "io/clock.h"
#include "ps/update.h"

#include <stdio.h>

enum { LISTS_NAME_BYTES = WEFT_PS_NAME_BYTES + 32 };

/* ---- ending ---------------------------------------------------------------------------------- */

static struct weft_result result_of(const struct weft_ps_result *from)
{
    const struct weft_rpc_latency *latency = &from->latency;
    return (struct weft_result){
        .elements_sent = from->elements_sent,
        .elements_delivered = from->elements_delivered,
        .rows_missed = from->rows_missed,
        .chunks_refused = from->chunks_refused,
        .requests = from->rpcs,
        .requests_short = from->rpcs_short,
        .clock = from->clock,
        .shard = from->shard,
        .latency = {.w_proc_ns = latency->w_proc_ns,
                    .w_queue_ns = latency->w_queue_ns,
                    .ps_proc_ns = latency->ps_proc_ns,
                    .ps_queue_ns = latency->ps_queue_ns,
                    .n_tx_ns = latency->n_tx_ns,
                    .ps_overlap_ns = latency->ps_overlap_ns,
                    .ps_wait_ns = latency->ps_wait_ns},
        .requests_dropped = from->rpcs_dropped,
    };
}

/* "weights and 2 more lists". */
static void name_lists(const struct weft_ps *ps, const struct weft_ps_op_about *about, char *name_p,
                       size_t bytes)
{
    const char *first = about->lists > 0 ? ps->tables[about->table].name : "no table";
    if (about->lists > 1) {
        snprintf(name_p, bytes, "%s and %u more list%s", first, about->lists - 1,
                 about->lists > 2 ? "s" : "");
    } else {
        snprintf(name_p, bytes, "%s", first);
    }
}

/* Reset the missed rows, unless this operation is a part of a longer list. */
static void missed_begin(struct weft_ps *ps, size_t rows)
{
    if (!ps->in_parts) {
        weft_status status = weft_api_ps_missed_begin(ps, rows);
        WEFT_ASSERT(status == WEFT_OK); /* there is memory for rows_max rows */
    }
}

/* The operation has ended: release it. */
static weft_status end(struct weft_ps *ps, weft_ps_op op, const struct weft_ps_result *result,
                       struct weft_result *result_p)
{
    struct weft_result ours = result_of(result);
    const struct weft_ps_op_about about = weft_ps_op_about(ps->worker.client, op);
    missed_begin(ps, about.rows);
    weft_api_ps_missed_take(ps, op);
    weft_ps_op_release(ps->worker.client, op);
    weft_api_ps_result_out(result_p, &ours);
    if (result->status == WEFT_OK && result->rpcs_dropped == 0) {
        return WEFT_OK;
    }
    char name[LISTS_NAME_BYTES], what[LISTS_NAME_BYTES + 16];
    name_lists(ps, &about, name, sizeof(name));
    snprintf(what, sizeof(what),
             about.is_checkpoint ? "a checkpoint"
             : about.is_push     ? "push to %s"
                                 : "pull of %s",
             name);
    if (result->status == WEFT_OK) {
        return weft_fail(&ps->worker.error, WEFT_DROPPED,
                         "%s: %u of %u messages were dropped, because their update would have been "
                         "too late; pull again before the next step (weft_result_gap names the "
                         "rows)",
                         what, result->rpcs_dropped, result->rpcs);
    }
    return weft_worker_refused(&ps->worker, what, result);
}

/* A shard is lost, or refuses the CLOCKs of this worker (weft_worker_is_lost). The operation may
 * still wait at another shard for a slow worker; the caller need not wait for that. */
static weft_status end_lost(struct weft_ps *ps, weft_ps_op op, uint32_t shard,
                           struct weft_result *result_p)
{
    const uint32_t rows = weft_ps_op_about(ps->worker.client, op).rows;
    const struct weft_result nothing = {.shard = shard, .rows_missed = rows};
    missed_begin(ps, rows);
    weft_api_ps_missed_all(ps, rows);
    weft_ps_op_abandon(ps->worker.client, op);
    weft_api_ps_result_out(result_p, &nothing);
    return weft_worker_lost(&ps->worker);
}

static weft_status no_such_op(struct weft_ps *ps)
{
    return weft_fail(&ps->worker.error, WEFT_INVALID,
                     "there is no such operation: it has been waited for already, or belongs to "
                     "another parameter server handle (weft_ps)");
}

static weft_status fail_unfinished(struct weft_ps *ps, weft_ps_op op)
{
    const struct weft_ps_op_about about = weft_ps_op_about(ps->worker.client, op);
    char name[LISTS_NAME_BYTES];
    if (about.is_checkpoint) {
        return weft_fail(&ps->worker.error, WEFT_TIMEOUT,
                         "the checkpoint is still in progress; continue with the next step, then wait "
                         "again (the snapshot of a \"bsp\" table is taken at the end of a clock)");
    }
    name_lists(ps, &about, name, sizeof(name));
    return weft_fail(&ps->worker.error, WEFT_TIMEOUT,
                     "%s %s is still in progress; wait again (in \"bsp\" and \"ssp\" a pull "
                     "waits for the slowest worker)",
                     about.is_push ? "the push to" : "the pull of", name);
}

/* In a job with a transfer scheduler the pushes of an update are sent when the update is complete,
 * usually when its clock ends (ps/update.h). A caller that waits for an operation may end its clock
 * only afterwards, so this declares the update complete. */
static void update_end(struct weft_ps *ps)
{
    if (weft_ps_update_is_open(ps->worker.client)) {
        weft_ps_update_end(ps->worker.client, weft_clock_now_ns());
    }
}

weft_status weft_wait(struct weft_ps *ps, uint64_t handle, uint64_t timeout_ns,
                      struct weft_result *result_p)
{
    weft_ps_op op;
    struct weft_ps_result result;
    if (!weft_ps_op_find(ps->worker.client, handle, &op)) {
        return no_such_op(ps);
    }
    bool timed = timeout_ns != WEFT_NEVER;
    uint64_t end_ns = timed ? weft_time_add(weft_clock_now_ns(), timeout_ns) : WEFT_NEVER;
    while (!weft_ps_op_done(ps->worker.client, op, &result)) {
        uint64_t now_ns = timed ? weft_clock_now_ns() : 0;
        uint32_t shard;
        if (weft_worker_is_lost(&ps->worker, &shard)) {
            return end_lost(ps, op, shard, result_p);
        }
        update_end(ps);
        if (now_ns >= end_ns) {
            return fail_unfinished(ps, op);
        }
        weft_api_ps_step(ps, end_ns == WEFT_NEVER ? WEFT_NEVER : end_ns - now_ns);
    }
    return end(ps, op, &result, result_p);
}

weft_status weft_test(struct weft_ps *ps, uint64_t handle, struct weft_result *result_p)
{
    weft_ps_op op;
    struct weft_ps_result result;
    if (!weft_ps_op_find(ps->worker.client, handle, &op)) {
        return no_such_op(ps);
    }
    if (!weft_ps_op_done(ps->worker.client, op, &result)) {
        update_end(ps);
        weft_api_ps_step(ps, 0);
    }
    if (!weft_ps_op_done(ps->worker.client, op, &result)) {
        uint32_t shard;
        return weft_worker_is_lost(&ps->worker, &shard)
                   ? end_lost(ps, op, shard, result_p)
                   : weft_fail(&ps->worker.error, WEFT_AGAIN, "the operation is still in progress");
    }
    return end(ps, op, &result, result_p);
}

/* ---- begin and wait -------------------------------------------------------------------------- */

static void result_add(struct weft_result *sum, const struct weft_result *part, bool is_first)
{
    sum->elements_sent += part->elements_sent;
    sum->elements_delivered += part->elements_delivered;
    sum->rows_missed += part->rows_missed;
    sum->chunks_refused += part->chunks_refused;
    sum->requests += part->requests;
    sum->requests_short += part->requests_short;
    sum->requests_dropped += part->requests_dropped;
    sum->clock = is_first ? part->clock : (uint32_t)weft_min_u64(sum->clock, part->clock);
    sum->shard = part->shard;
    sum->latency = part->latency;
}

/* Begin without a time limit. */
static weft_status begin_untimed(struct weft_ps *ps, const struct ps_call *call, uint64_t *op_p)
{
    weft_status status;
    do {
        status = weft_api_ps_begin(ps, call, op_p);
    } while (status == WEFT_TIMEOUT);
    return status;
}

/* `count` rows of a list, from row number `at` on. NULL stays NULL. */
static struct weft_ps_list part_of(const struct weft_ps_list *whole, uint32_t dim, size_t at,
                                   size_t count)
{
    size_t floats = at * dim;
    return (struct weft_ps_list){
        .table = whole->table,
        .ids = whole->ids != NULL ? whole->ids + at : NULL,
        .first = whole->ids != NULL ? 0 : whole->first + at,
        .values = whole->values != NULL ? whole->values + floats : NULL,
        .out = whole->out != NULL ? whole->out + floats : NULL,
        .n = count,
    };
}

static weft_status wait_part(struct weft_ps *ps, uint64_t op, size_t at, struct weft_result *part_p)
{
    ps->missed.base = at;
    ps->in_parts = true;
    weft_status status = weft_wait(ps, op, WEFT_NEVER, part_p);
    ps->in_parts = false;
    return status;
}

/* Run the parts in sequence, up to the first that fails. */
static weft_status all_parts(struct weft_ps_table *table, const struct weft_ps_list *whole,
                             bool is_pull, uint32_t bound_ppm, struct weft_result *result_p)
{
    struct weft_ps *ps = table->ps;
    struct weft_result sum = {.size = sizeof(sum)};
    struct ps_call call = {.lists = whole,
                           .count = 1,
                           .is_pull = is_pull,
                           .waits = true,
                           .how = {.bound_ppm = bound_ppm, .norm = -1}};
    weft_status status = weft_api_ps_check(ps, &call);
    if (status == WEFT_OK) {
        status = weft_api_ps_missed_begin(ps, whole->n);
    }
    if (status != WEFT_OK) {
        return status;
    }
    size_t at = 0;
    bool dropped = false;
    do {
        const struct weft_ps_list list =
            part_of(whole, table->spec.dim, at, weft_min_u64(whole->n - at, ps->rows_max));
        struct weft_result part = {.size = sizeof(part)};
        uint64_t op;
        call.lists = &list;
        status = begin_untimed(ps, &call, &op);
        if (status != WEFT_OK && at == 0) {
            return status;
        }
        if (status == WEFT_OK) {
            status = wait_part(ps, op, at, &part);
            result_add(&sum, &part, at == 0);
        }
        at += list.n;
        dropped |= status == WEFT_DROPPED;
        status = status == WEFT_DROPPED ? WEFT_OK : status;
    } while (status == WEFT_OK && at < whole->n);
    weft_api_ps_result_out(result_p, &sum);
    return status == WEFT_OK && dropped ? WEFT_DROPPED : status;
}

weft_status weft_push_wait(struct weft_ps_table *table, const uint64_t *ids, const float *rows,
                           size_t n, uint32_t bound_ppm, struct weft_result *result_p)
{
    const struct weft_ps_list list = {
        .table = table->spec.table, .ids = ids, .values = rows, .n = n};
    weft_status status = weft_api_ps_need_ids(table, ids, n);
    return status == WEFT_OK ? all_parts(table, &list, false, bound_ppm, result_p) : status;
}

weft_status weft_pull_wait(struct weft_ps_table *table, const uint64_t *ids, float *rows_p,
                           size_t n, uint32_t bound_ppm, struct weft_result *result_p)
{
    const struct weft_ps_list list = {
        .table = table->spec.table, .ids = ids, .out = rows_p, .n = n};
    weft_status status = weft_api_ps_need_ids(table, ids, n);
    return status == WEFT_OK ? all_parts(table, &list, true, bound_ppm, result_p) : status;
}

weft_status weft_push_range_wait(struct weft_ps_table *table, uint64_t first, const float *values,
                                 size_t n, uint32_t bound_ppm, struct weft_result *result_p)
{
    const struct weft_ps_list list = {
        .table = table->spec.table, .first = first, .values = values, .n = n};
    return all_parts(table, &list, false, bound_ppm, result_p);
}

weft_status weft_pull_range_wait(struct weft_ps_table *table, uint64_t first, float *values_p,
                                 size_t n, uint32_t bound_ppm, struct weft_result *result_p)
{
    const struct weft_ps_list list = {
        .table = table->spec.table, .first = first, .out = values_p, .n = n};
    return all_parts(table, &list, true, bound_ppm, result_p);
}

weft_status weft_push_lists_wait(struct weft_ps *ps, const struct weft_push_list *lists,
                                 uint32_t count, uint32_t bound_ppm, struct weft_result *result_p)
{
    uint64_t op;
    weft_status status;
    do {
        status = weft_push_lists(ps, lists, count, bound_ppm, &op);
    } while (status == WEFT_TIMEOUT);
    return status == WEFT_OK ? weft_wait(ps, op, WEFT_NEVER, result_p) : status;
}

weft_status weft_pull_lists_wait(struct weft_ps *ps, const struct weft_pull_list *lists,
                                 uint32_t count, uint32_t bound_ppm, struct weft_result *result_p)
{
    uint64_t op;
    weft_status status;
    do {
        status = weft_pull_lists(ps, lists, count, bound_ppm, &op);
    } while (status == WEFT_TIMEOUT);
    return status == WEFT_OK ? weft_wait(ps, op, WEFT_NEVER, result_p) : status;
}

/* ---- clocks ---------------------------------------------------------------------------------- */

weft_status weft_clock(struct weft_ps_table *table)
{
    struct weft_ps *ps = table->ps;
    uint64_t end_ns = 0;
    for (;;) {
        weft_status status =
            weft_ps_clock(ps->worker.client, table->spec.table, weft_clock_now_ns());
        if (status == WEFT_OK) {
            weft_api_ps_metrics_step(ps, table);
            return status;
        }
        if (status == WEFT_PEER) {
            return weft_worker_lost(&ps->worker);
        }
        if (status != WEFT_AGAIN) {
            return weft_fail(&ps->worker.error, status, "clock: %s", weft_status_text(status));
        }
        status = weft_api_ps_wait_and_retry(ps, WEFT_NEVER, &end_ns);
        if (status != WEFT_OK) {
            return status;
        }
    }
}

uint32_t weft_clock_ended(const struct weft_ps_table *table)
{
    return weft_ps_clock_now(table->ps->worker.client, table->spec.table);
}

/* ---- flush ----------------------------------------------------------------------------------- */

bool weft_api_ps_is_flushed(const struct weft_ps *ps)
{
    for (uint32_t i = 0; i < ps->ops_max; i++) {
        if (weft_ps_op_held(ps->worker.client, i) &&
            weft_ps_op_about(ps->worker.client, i).is_push &&
            !weft_ps_op_done(ps->worker.client, i, NULL)) {
            return false;
        }
    }
    for (uint32_t t = 0; t < ps->tables_max; t++) {
        if (ps->tables[t].open && !weft_ps_clock_accepted(ps->worker.client, (uint16_t)t)) {
            return false;
        }
    }
    return weft_ps_client_applied(ps->worker.client) == 0;
}

weft_status weft_ps_flush(struct weft_ps *ps, uint64_t timeout_ns)
{
    uint64_t end_ns = weft_time_add(weft_clock_now_ns(), timeout_ns);
    while (!weft_api_ps_is_flushed(ps)) {
        uint64_t now_ns = weft_clock_now_ns();
        uint32_t shard;
        if (weft_worker_is_lost(&ps->worker, &shard)) {
            return weft_worker_lost(&ps->worker);
        }
        update_end(ps);
        if (now_ns >= end_ns) {
            return weft_fail(&ps->worker.error, WEFT_TIMEOUT,
                             "pushes or clocks have not arrived yet; wait again, or discard them "
                             "with weft_ps_close");
        }
        weft_api_ps_step(ps, end_ns == WEFT_NEVER ? WEFT_NEVER : end_ns - now_ns);
    }
    return WEFT_OK;
}
