/* Push and pull: checks the caller's lists, passes them to the client, and returns a handle.
 *
 * All forms - ids, slices of a vector, several tables - are converted to the client's lists. So
 * each rule is checked in one place, on exactly the lists that the client receives.
 */
#include "api/ps_internal.h"

#include "io/clock.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- checks ---------------------------------------------------------------------------------- */

static bool is_dense(const struct weft_ps_table *table)
{
    return table->spec.kind == WEFT_TABLE_DENSE;
}

static weft_status check_ids(struct weft_ps *ps, const struct weft_ps_list *list)
{
    const struct weft_ps_table *table = &ps->tables[list->table];
    if (list->ids == NULL && !is_dense(table)) {
        return weft_fail(&ps->worker.error, WEFT_INVALID,
                         "ids is NULL and n is %zu; pass an array of n ids: only a list of a dense "
                         "table (options.length) may be without ids, and %s is sparse",
                         list->n, table->name);
    }
    if (list->ids == NULL) {
        uint64_t rows = weft_table_dense_rows(&table->spec);
        if (list->first > rows || list->n > rows - list->first) {
            return weft_fail(&ps->worker.error, WEFT_INVALID,
                             "first is %llu and n is %zu, and %s has %llu rows; both count rows of "
                             "dim floats",
                             (unsigned long long)list->first, list->n, table->name,
                             (unsigned long long)rows);
        }
    }
    return WEFT_OK;
}

static weft_status check_list(struct weft_ps *ps, const struct weft_ps_list *list, bool is_pull)
{
    if (list->n > SIZE_MAX / (sizeof(float) * ps->tables[list->table].spec.dim)) {
        return weft_fail(&ps->worker.error, WEFT_INVALID,
                         "n is %zu, which is more rows than fit into memory; pass the number of "
                         "rows, which is not negative",
                         list->n);
    }
    if (list->n == 0) {
        return WEFT_OK;
    }
    if (is_pull ? list->out == NULL : list->values == NULL) {
        return weft_fail(&ps->worker.error, WEFT_INVALID,
                         "rows is NULL and n is %zu; pass an array of n rows", list->n);
    }
    return check_ids(ps, list);
}

weft_status weft_api_ps_check(struct weft_ps *ps, const struct ps_call *call)
{
    weft_status status = WEFT_OK;
    for (uint32_t i = 0; status == WEFT_OK && i < call->count; i++) {
        status = check_list(ps, &call->lists[i], call->is_pull);
    }
    if (status == WEFT_OK && call->how.bound_ppm >= WEFT_PPM) {
        return weft_fail(
            &ps->worker.error, WEFT_INVALID,
            "bound_ppm is %u; it must be below 1000000, because some elements must arrive",
            call->how.bound_ppm);
    }
    return status;
}

static size_t rows_of(const struct ps_call *call)
{
    size_t rows = 0;
    for (uint32_t i = 0; i < call->count; i++) {
        size_t n = call->lists[i].n;
        rows = n > SIZE_MAX - rows ? SIZE_MAX : rows + n;
    }
    return rows;
}

static weft_status check_rows(struct weft_ps *ps, const struct ps_call *call)
{
    size_t rows = rows_of(call);
    if (rows <= ps->rows_max) {
        return WEFT_OK;
    }
    if (call->count > 1) {
        return weft_fail(&ps->worker.error, WEFT_INVALID,
                         "the lists have %zu rows together and rows_max of the config is %u; "
                         "increase it, or split them into several operations",
                         rows, ps->rows_max);
    }
    return weft_fail(&ps->worker.error, WEFT_INVALID,
                     "n is %zu and rows_max of the config is %u; increase it, or split the "
                     "list, as weft_push_wait and weft_pull_wait do",
                     rows, ps->rows_max);
}

/* ---- beginning ------------------------------------------------------------------------------- */

static weft_status begin_failed(struct weft_ps *ps, const char *what, weft_status status)
{
    if (status == WEFT_AGAIN) {
        return weft_fail(&ps->worker.error, status,
                         "%s: %u operations are in progress or not waited for; complete one with "
                         "weft_wait or weft_test, or raise ops_max",
                         what, ps->ops_max);
    }
    if (status == WEFT_NOMEM) {
        return weft_fail(
            &ps->worker.error, status,
            "%s: replay_bytes is full, and no checkpoint frees space in it; make it at "
            "least four times what a worker pushes from one checkpoint to the next",
            what);
    }
    if (status == WEFT_UNSUPPORTED) {
        return weft_fail(&ps->worker.error, status,
                         "%s: a row of this table does not fit into a packet of this network; see "
                         "`weft doctor` for its MTU",
                         what);
    }
    if (status == WEFT_INVALID) {
        return weft_fail(&ps->worker.error, status,
                         "%s: an id is beyond the end of this dense table; its ids are the "
                         "numbers of its rows, from 0",
                         what);
    }
    return weft_fail(&ps->worker.error, status, "%s: %s", what, weft_status_text(status));
}

static struct weft_ps_how how_of(const struct weft_ps *ps, const struct ps_call *call)
{
    uint64_t after_ns = call->how.deadline_ns;
    for (uint32_t i = 0; call->how.deadline_ns == 0 && i < call->count; i++) {
        uint64_t of_table_ns = ps->tables[call->lists[i].table].deadline_ns;
        after_ns = i == 0 ? of_table_ns : weft_min_u64(after_ns, of_table_ns);
    }
    bool timed = after_ns != WEFT_NEVER && after_ns > 0;
    return (struct weft_ps_how){
        .bound_ppm = call->how.bound_ppm,
        .fill = call->how.fill,
        .has_norm = call->how.norm >= 0,
        .norm = call->how.norm,
        .deadline_ns = timed ? weft_time_add(weft_clock_now_ns(), after_ns) : 0,
    };
}

/* ops_max is reached: the program must complete an operation first. */
static bool is_full(const struct weft_ps *ps)
{
    for (uint32_t i = 0; i < ps->ops_max; i++) {
        if (!weft_ps_op_held(ps->worker.client, i)) {
            return false;
        }
    }
    return true;
}

static weft_status begin_now(struct weft_ps *ps, const struct ps_call *call, uint64_t *op_p)
{
    if (op_p == NULL) {
        return weft_fail(&ps->worker.error, WEFT_INVALID,
                         "op_p is NULL; pass a place for the handle, or call a function that ends "
                         "in _wait");
    }
    weft_status status = weft_api_ps_check(ps, call);
    if (status == WEFT_OK) {
        status = check_rows(ps, call);
    }
    if (status != WEFT_OK) {
        return status;
    }
    uint32_t shard;
    if (weft_worker_is_down(&ps->worker, &shard)) {
        return weft_worker_gone(&ps->worker, shard);
    }
    weft_ps_op op;
    status = WEFT_AGAIN;
    if (!is_full(ps)) {
        const struct weft_ps_how how = how_of(ps, call);
        status = weft_ps_begin(ps->worker.client, call->is_pull ? WEFT_RPC_PULL : WEFT_RPC_PUSH,
                               call->lists, call->count, &how, weft_clock_now_ns(), &op);
    }
    if (status != WEFT_OK) {
        return begin_failed(ps, call->is_pull ? "pull" : "push", status);
    }
    *op_p = weft_ps_op_handle(ps->worker.client, op);
    return WEFT_OK;
}

/* Interval between checks for room. */
#define RETRY_NS (5 * WEFT_NS_PER_MS)

weft_status weft_api_ps_begin(struct weft_ps *ps, const struct ps_call *call, uint64_t *op_p)
{
    uint64_t end_ns = 0;
    for (;;) {
        bool waits = !is_full(ps);
        weft_status status = begin_now(ps, call, op_p);
        if (status == WEFT_OK && !call->waits) {
            weft_endpoint_flush(&ps->worker.endpoint);
        }
        if (status != WEFT_AGAIN || !waits) {
            return status;
        }
        /* A push waits until the server is connected again, or is given up, or until a checkpoint
         * has made room for it. All operations wait for outstanding replies to pulls that a
         * deadline has ended. */
        status = weft_api_ps_wait_and_retry(ps, RETRY_NS, &end_ns);
        if (status != WEFT_OK) {
            return status;
        }
    }
}

weft_status weft_ps_checkpoint(struct weft_ps *ps, uint64_t *op_p)
{
    uint32_t shard;
    weft_ps_op op;
    if (op_p == NULL) {
        return weft_fail(&ps->worker.error, WEFT_INVALID,
                         "op_p is NULL; weft_wait needs the handle that it returns");
    }
    if (weft_worker_is_down(&ps->worker, &shard)) {
        return weft_worker_gone(&ps->worker, shard);
    }
    weft_status status =
        is_full(ps) ? WEFT_AGAIN
                    : weft_ps_client_checkpoint(ps->worker.client, weft_clock_now_ns(), &op);
    if (status == WEFT_STATE) {
        return weft_fail(&ps->worker.error, WEFT_INVALID,
                         "there is no table to checkpoint; open one with weft_table_open first");
    }
    if (status == WEFT_EXISTS) {
        return weft_fail(&ps->worker.error, status,
                         "a checkpoint is already in progress; complete it with weft_wait first");
    }
    if (status != WEFT_OK) {
        return begin_failed(ps, "checkpoint", status);
    }
    *op_p = weft_ps_op_handle(ps->worker.client, op);
    weft_endpoint_flush(&ps->worker.endpoint);
    return WEFT_OK;
}

/* ---- one table ------------------------------------------------------------------------------- */

static struct ps_call call_one(const struct weft_ps_list *list, bool is_pull, uint32_t bound_ppm)
{
    return (struct ps_call){.lists = list,
                            .count = 1,
                            .is_pull = is_pull,
                            .how = {.bound_ppm = bound_ppm, .norm = -1}};
}

weft_status weft_api_ps_need_ids(struct weft_ps_table *table, const uint64_t *ids, size_t n)
{
    if (ids == NULL && n > 0) {
        return weft_fail(&table->ps->worker.error, WEFT_INVALID,
                         "ids is NULL and n is %zu; pass an array of n ids", n);
    }
    return WEFT_OK;
}

weft_status weft_push(struct weft_ps_table *table, const uint64_t *ids, const float *rows, size_t n,
                      uint32_t bound_ppm, uint64_t *op_p)
{
    const struct weft_ps_list list = {
        .table = table->spec.table, .ids = ids, .values = rows, .n = n};
    weft_status status = weft_api_ps_need_ids(table, ids, n);
    const struct ps_call call = call_one(&list, false, bound_ppm);
    return status == WEFT_OK ? weft_api_ps_begin(table->ps, &call, op_p) : status;
}

weft_status weft_pull(struct weft_ps_table *table, const uint64_t *ids, float *rows_p, size_t n,
                      uint32_t bound_ppm, uint64_t *op_p)
{
    const struct weft_ps_list list = {
        .table = table->spec.table, .ids = ids, .out = rows_p, .n = n};
    weft_status status = weft_api_ps_need_ids(table, ids, n);
    const struct ps_call call = call_one(&list, true, bound_ppm);
    return status == WEFT_OK ? weft_api_ps_begin(table->ps, &call, op_p) : status;
}

weft_status weft_push_range(struct weft_ps_table *table, uint64_t first, const float *values,
                            size_t n, uint32_t bound_ppm, uint64_t *op_p)
{
    const struct weft_ps_list list = {
        .table = table->spec.table, .first = first, .values = values, .n = n};
    const struct ps_call call = call_one(&list, false, bound_ppm);
    return weft_api_ps_begin(table->ps, &call, op_p);
}

weft_status weft_pull_range(struct weft_ps_table *table, uint64_t first, float *values_p, size_t n,
                            uint32_t bound_ppm, uint64_t *op_p)
{
    const struct weft_ps_list list = {
        .table = table->spec.table, .first = first, .out = values_p, .n = n};
    const struct ps_call call = call_one(&list, true, bound_ppm);
    return weft_api_ps_begin(table->ps, &call, op_p);
}

/* ---- several tables -------------------------------------------------------------------------- */

static weft_status check_call(struct weft_ps *ps, const void *lists, uint32_t count,
                              const struct weft_op_options *options, struct weft_op_options *how_p)
{
    if (count > ps->lists_max) {
        return weft_fail(&ps->worker.error, WEFT_INVALID,
                         "count is %u and lists_max of the config is %u; raise lists_max, or split "
                         "the lists into several operations",
                         count, ps->lists_max);
    }
    if (lists == NULL && count > 0) {
        return weft_fail(&ps->worker.error, WEFT_INVALID,
                         "lists is NULL and count is %u; pass an array of count lists", count);
    }
    return weft_api_ps_op_options_read(options, how_p, &ps->worker.error);
}

static weft_status check_table(struct weft_ps *ps, const struct weft_ps_table *table)
{
    return table != NULL && table->ps == ps
               ? WEFT_OK
               : weft_fail(&ps->worker.error, WEFT_INVALID,
                           "a list names %s; all tables of an operation must belong to the ps that "
                           "is passed to the call",
                           table == NULL ? "no table" : "a table of another ps");
}

weft_status weft_push_with(struct weft_ps *ps, const struct weft_push_list *lists, uint32_t count,
                           const struct weft_op_options *options, uint64_t *op_p)
{
    struct weft_ps_list inside[WEFT_PS_LISTS_MAX];
    struct ps_call call = {.lists = inside, .count = count};
    weft_status status = check_call(ps, lists, count, options, &call.how);
    for (uint32_t i = 0; status == WEFT_OK && i < count; i++) {
        status = check_table(ps, lists[i].table);
        if (status == WEFT_OK) {
            inside[i] = (struct weft_ps_list){.table = lists[i].table->spec.table,
                                              .ids = lists[i].ids,
                                              .first = lists[i].first,
                                              .values = lists[i].rows,
                                              .n = lists[i].n};
        }
    }
    return status == WEFT_OK ? weft_api_ps_begin(ps, &call, op_p) : status;
}

weft_status weft_pull_with(struct weft_ps *ps, const struct weft_pull_list *lists, uint32_t count,
                           const struct weft_op_options *options, uint64_t *op_p)
{
    struct weft_ps_list inside[WEFT_PS_LISTS_MAX];
    struct ps_call call = {.lists = inside, .count = count, .is_pull = true};
    weft_status status = check_call(ps, lists, count, options, &call.how);
    for (uint32_t i = 0; status == WEFT_OK && i < count; i++) {
        status = check_table(ps, lists[i].table);
        if (status == WEFT_OK) {
            inside[i] = (struct weft_ps_list){.table = lists[i].table->spec.table,
                                              .ids = lists[i].ids,
                                              .first = lists[i].first,
                                              .out = lists[i].rows_p,
                                              .n = lists[i].n};
        }
    }
    return status == WEFT_OK ? weft_api_ps_begin(ps, &call, op_p) : status;
}

weft_status weft_push_lists(struct weft_ps *ps, const struct weft_push_list *lists, uint32_t count,
                            uint32_t bound_ppm, uint64_t *op_p)
{
    const struct weft_op_options options = {
        .size = sizeof(options), .bound_ppm = bound_ppm, .norm = -1};
    return weft_push_with(ps, lists, count, &options, op_p);
}

weft_status weft_pull_lists(struct weft_ps *ps, const struct weft_pull_list *lists, uint32_t count,
                            uint32_t bound_ppm, uint64_t *op_p)
{
    const struct weft_op_options options = {
        .size = sizeof(options), .bound_ppm = bound_ppm, .norm = -1};
    return weft_pull_with(ps, lists, count, &options, op_p);
}
