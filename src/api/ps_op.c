/* Push, pull, clock, and what became of them.
 *
 * An operation is a place in the client and a ticket here. The handle that callers hold is the
 * ticket's place and a stamp that each use changes, so that a handle which is over is told from the
 * one that came after it.
 */
#include "api/ps_internal.h"

#include "io/clock.h"

#include <stdio.h>

/* ---- tickets --------------------------------------------------------------------------------- */

static struct ps_ticket *ticket_free(struct weft_ps *ps)
{
    for (uint32_t i = 0; i < ps->ops_max; i++) {
        if (!ps->tickets[i].in_use) {
            return &ps->tickets[i];
        }
    }
    return NULL;
}

static uint64_t ticket_take(struct weft_ps *ps, struct ps_ticket *ticket,
                            const struct weft_ps_table *table, bool is_pull, weft_ps_op op)
{
    *ticket = (struct ps_ticket){
        .in_use = true, .stamp = ticket->stamp + 1, .op = op, .table = table, .is_pull = is_pull};
    return (uint64_t)ticket->stamp << 32 | ((uint64_t)(ticket - ps->tickets) + 1);
}

static struct ps_ticket *ticket_find(struct weft_ps *ps, uint64_t handle)
{
    uint32_t place = (uint32_t)handle - 1;
    if (place >= ps->ops_max) {
        return NULL;
    }
    struct ps_ticket *ticket = &ps->tickets[place];
    return ticket->in_use && ticket->stamp == handle >> 32 ? ticket : NULL;
}

/* ---- beginning ------------------------------------------------------------------------------- */

static weft_status begin_check(const struct weft_ps_table *table, const void *ids, const void *rows,
                               size_t n, uint32_t bound_ppm)
{
    struct weft_ps *ps = table->ps;
    if (n > SIZE_MAX / (sizeof(float) * table->spec.dim)) {
        return weft_io_fail(&ps->error, WEFT_INVALID,
                            "n is %zu, and no memory holds so many rows; is it a negative number?",
                            n);
    }
    if (n > 0 && (ids == NULL || rows == NULL)) {
        return weft_io_fail(&ps->error, WEFT_INVALID,
                            "%s is NULL and n is %zu; name memory of n rows",
                            ids == NULL ? "ids" : "the memory of the rows", n);
    }
    if (bound_ppm >= WEFT_PPM) {
        return weft_io_fail(&ps->error, WEFT_INVALID,
                            "bound_ppm is %u; it must be below 1000000, for something must arrive",
                            bound_ppm);
    }
    return WEFT_OK;
}

static weft_status begin_failed(struct weft_ps *ps, const char *what, weft_status status)
{
    uint32_t shard = ps->shards;
    if (status == WEFT_AGAIN) {
        return weft_io_fail(&ps->error, status,
                            "%s: %u operations are under way or not waited for; end one with "
                            "weft_wait or weft_test, or raise ops_max",
                            what, ps->ops_max);
    }
    if (status == WEFT_PEER) {
        return weft_api_ps_gone(ps, shard);
    }
    if (status == WEFT_UNSUPPORTED) {
        return weft_io_fail(&ps->error, status,
                            "%s: a row of this table does not fit the packets that the network "
                            "takes; see `weft doctor` for its MTU",
                            what);
    }
    if (status == WEFT_INVALID) {
        return weft_io_fail(&ps->error, status,
                            "%s: an id is beyond the end of this dense table; its ids are the "
                            "numbers of its rows, from 0",
                            what);
    }
    return weft_io_fail(&ps->error, status, "%s: %s", what, weft_status_text(status));
}

static weft_status rows_check(struct weft_ps *ps, size_t n)
{
    if (n > ps->rows_max) {
        return weft_io_fail(
            &ps->error, WEFT_INVALID,
            "n is %zu and rows_max of the config is %u; raise that, or cut the list, "
            "as weft_push_wait and weft_pull_wait do",
            n, ps->rows_max);
    }
    return WEFT_OK;
}

/* The common part of weft_push and weft_pull; one of in and out is used. */
static weft_status begin(struct weft_ps_table *table, const uint64_t *ids, const float *in,
                         float *out, uint32_t n, uint32_t bound_ppm, uint64_t *op_p)
{
    struct weft_ps *ps = table->ps;
    struct ps_ticket *ticket = ticket_free(ps);
    const char *what = out != NULL ? "pull" : "push";
    uint32_t shard;
    if (weft_api_ps_any_down(ps, &shard)) {
        return weft_api_ps_gone(ps, shard);
    }
    if (ticket == NULL) {
        return begin_failed(ps, what, WEFT_AGAIN);
    }
    uint64_t now_ns = weft_clock_now_ns();
    weft_ps_op op;
    weft_status status =
        out != NULL
            ? weft_ps_pull(ps->client, table->spec.table, ids, out, n, bound_ppm, now_ns, &op)
            : weft_ps_push(ps->client, table->spec.table, ids, in, n, bound_ppm, now_ns, &op);
    if (status != WEFT_OK) {
        return begin_failed(ps, what, status);
    }
    *op_p = ticket_take(ps, ticket, table, out != NULL, op);
    return WEFT_OK;
}

static weft_status begin_checked(struct weft_ps_table *table, const uint64_t *ids, const float *in,
                                 float *out, bool is_pull, size_t n, uint32_t bound_ppm,
                                 uint64_t *op_p)
{
    static const uint64_t no_ids[1];
    static float no_rows[1]; /* n = 0: never touched, only unlike NULL */
    struct weft_ps *ps = table->ps;
    if (op_p == NULL) {
        return weft_io_fail(&ps->error, WEFT_INVALID,
                            "op_p is NULL; the forms that need none are weft_push_wait and "
                            "weft_pull_wait");
    }
    weft_status status = begin_check(table, ids, is_pull ? out : in, n, bound_ppm);
    if (status == WEFT_OK) {
        status = rows_check(ps, n);
    }
    if (status != WEFT_OK) {
        return status;
    }
    if (n == 0) {
        ids = no_ids;
        in = no_rows;
        out = is_pull ? no_rows : NULL;
    }
    return begin(table, ids, in, out, (uint32_t)n, bound_ppm, op_p);
}

weft_status weft_push(struct weft_ps_table *table, const uint64_t *ids, const float *rows, size_t n,
                      uint32_t bound_ppm, uint64_t *op_p)
{
    return begin_checked(table, ids, rows, NULL, false, n, bound_ppm, op_p);
}

weft_status weft_pull(struct weft_ps_table *table, const uint64_t *ids, float *rows_p, size_t n,
                      uint32_t bound_ppm, uint64_t *op_p)
{
    return begin_checked(table, ids, NULL, rows_p, true, n, bound_ppm, op_p);
}

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
    };
}

/* The operation is over: give its place back. */
static weft_status end(struct weft_ps *ps, struct ps_ticket *ticket,
                       const struct weft_ps_result *result, struct weft_result *result_p)
{
    struct weft_result ours = result_of(result);
    weft_ps_op_release(ps->client, ticket->op);
    ticket->in_use = false;
    weft_api_ps_result_out(result_p, &ours);
    if (result->status == WEFT_OK) {
        return WEFT_OK;
    }
    char what[WEFT_PS_NAME_BYTES + 16];
    snprintf(what, sizeof(what), ticket->is_pull ? "pull of %s" : "push to %s",
             ticket->table->name);
    return weft_api_ps_refused(ps, what, result);
}

/* A shard is gone. Another one may make it wait yet, for a slow worker: no need to wait with it. */
static weft_status give_up(struct weft_ps *ps, struct ps_ticket *ticket, uint32_t shard,
                           struct weft_result *result_p)
{
    const struct weft_result nothing = {.shard = shard};
    weft_ps_op_abandon(ps->client, ticket->op);
    ticket->in_use = false;
    weft_api_ps_result_out(result_p, &nothing);
    return weft_api_ps_gone(ps, shard);
}

static weft_status no_such_op(struct weft_ps *ps)
{
    return weft_io_fail(&ps->error, WEFT_INVALID,
                        "there is no such operation: it was waited for already, or is of another "
                        "ps");
}

weft_status weft_wait(struct weft_ps *ps, uint64_t op, uint64_t timeout_ns,
                      struct weft_result *result_p)
{
    struct ps_ticket *ticket = ticket_find(ps, op);
    struct weft_ps_result result;
    if (ticket == NULL) {
        return no_such_op(ps);
    }
    uint64_t end_ns = weft_time_add(weft_clock_now_ns(), timeout_ns);
    while (!weft_ps_op_done(ps->client, ticket->op, &result)) {
        uint64_t now_ns = weft_clock_now_ns();
        uint32_t shard;
        if (weft_api_ps_any_down(ps, &shard)) {
            return give_up(ps, ticket, shard, result_p);
        }
        if (now_ns >= end_ns) {
            return weft_io_fail(&ps->error, WEFT_TIMEOUT,
                                "%s %s is under way still; wait again (in \"bsp\" and \"ssp\" a "
                                "pull waits for the slowest worker)",
                                ticket->is_pull ? "the pull of" : "the push to",
                                ticket->table->name);
        }
        weft_api_ps_step(ps, end_ns == WEFT_NEVER ? WEFT_NEVER : end_ns - now_ns);
    }
    return end(ps, ticket, &result, result_p);
}

weft_status weft_test(struct weft_ps *ps, uint64_t op, struct weft_result *result_p)
{
    struct ps_ticket *ticket = ticket_find(ps, op);
    struct weft_ps_result result;
    if (ticket == NULL) {
        return no_such_op(ps);
    }
    if (!weft_ps_op_done(ps->client, ticket->op, &result)) {
        weft_api_ps_step(ps, 0);
    }
    if (!weft_ps_op_done(ps->client, ticket->op, &result)) {
        uint32_t shard;
        return weft_api_ps_any_down(ps, &shard)
                   ? give_up(ps, ticket, shard, result_p)
                   : weft_io_fail(&ps->error, WEFT_AGAIN, "the operation is under way still");
    }
    return end(ps, ticket, &result, result_p);
}

/* ---- both in one ----------------------------------------------------------------------------- */

static void result_add(struct weft_result *sum, const struct weft_result *part, bool is_first)
{
    sum->elements_sent += part->elements_sent;
    sum->elements_delivered += part->elements_delivered;
    sum->rows_missed += part->rows_missed;
    sum->chunks_refused += part->chunks_refused;
    sum->requests += part->requests;
    sum->requests_short += part->requests_short;
    sum->clock = is_first ? part->clock : (uint32_t)weft_min_u64(sum->clock, part->clock);
    sum->shard = part->shard;
    sum->latency = part->latency;
}

/* One part after the other, up to the first that fails. */
static weft_status all_parts(struct weft_ps_table *table, const uint64_t *ids, const float *in,
                             float *out, bool is_pull, size_t n, uint32_t bound_ppm,
                             struct weft_result *result_p)
{
    struct weft_ps *ps = table->ps;
    struct weft_result sum = {.size = sizeof(sum)};
    weft_status status = begin_check(table, ids, is_pull ? out : in, n, bound_ppm);
    if (status != WEFT_OK) {
        return status;
    }
    size_t at = 0;
    do {
        size_t count = weft_min_u64(n - at, ps->rows_max);
        size_t offset = at * table->spec.dim;
        struct weft_result part = {.size = sizeof(part)};
        uint64_t op;
        status =
            begin_checked(table, n > 0 ? ids + at : NULL, is_pull || n == 0 ? NULL : in + offset,
                          is_pull && n > 0 ? out + offset : NULL, is_pull, count, bound_ppm, &op);
        if (status != WEFT_OK && at == 0) {
            return status;
        }
        if (status == WEFT_OK) {
            status = weft_wait(ps, op, WEFT_NEVER, &part);
            result_add(&sum, &part, at == 0);
        }
        at += count;
    } while (status == WEFT_OK && at < n);
    weft_api_ps_result_out(result_p, &sum);
    return status;
}

weft_status weft_push_wait(struct weft_ps_table *table, const uint64_t *ids, const float *rows,
                           size_t n, uint32_t bound_ppm, struct weft_result *result_p)
{
    return all_parts(table, ids, rows, NULL, false, n, bound_ppm, result_p);
}

weft_status weft_pull_wait(struct weft_ps_table *table, const uint64_t *ids, float *rows_p,
                           size_t n, uint32_t bound_ppm, struct weft_result *result_p)
{
    return all_parts(table, ids, NULL, rows_p, true, n, bound_ppm, result_p);
}

/* ---- clocks ---------------------------------------------------------------------------------- */

static weft_status clock_gone(struct weft_ps *ps)
{
    uint32_t shard;
    if (weft_api_ps_any_down(ps, &shard)) {
        return weft_api_ps_gone(ps, shard);
    }
    return weft_io_fail(&ps->error, WEFT_PEER,
                        "a server refused the clock of worker %u: it knows another one of this "
                        "worker. Another process has this rank, or had it before in this table; "
                        "start the servers anew, or take another table number",
                        ps->worker);
}

weft_status weft_clock(struct weft_ps_table *table)
{
    struct weft_ps *ps = table->ps;
    for (;;) {
        weft_status status = weft_ps_clock(ps->client, table->spec.table, weft_clock_now_ns());
        if (status == WEFT_OK) {
            return status;
        }
        if (status == WEFT_PEER) {
            return clock_gone(ps);
        }
        if (status != WEFT_AGAIN) {
            return weft_io_fail(&ps->error, status, "clock: %s", weft_status_text(status));
        }
        weft_api_ps_step(ps, WEFT_NEVER);
    }
}

uint32_t weft_clock_ended(const struct weft_ps_table *table)
{
    return weft_ps_clock_now(table->ps->client, table->spec.table);
}

/* ---- flush ----------------------------------------------------------------------------------- */

static bool is_flushed(const struct weft_ps *ps)
{
    for (uint32_t i = 0; i < ps->ops_max; i++) {
        const struct ps_ticket *ticket = &ps->tickets[i];
        if (ticket->in_use && !ticket->is_pull && !weft_ps_op_done(ps->client, ticket->op, NULL)) {
            return false;
        }
    }
    for (uint32_t t = 0; t < ps->tables_max; t++) {
        if (ps->tables[t].open && !weft_ps_clock_known(ps->client, (uint16_t)t)) {
            return false;
        }
    }
    return true;
}

weft_status weft_ps_flush(struct weft_ps *ps, uint64_t timeout_ns)
{
    uint64_t end_ns = weft_time_add(weft_clock_now_ns(), timeout_ns);
    while (!is_flushed(ps)) {
        uint64_t now_ns = weft_clock_now_ns();
        uint32_t shard;
        if (weft_api_ps_any_down(ps, &shard)) {
            return weft_api_ps_gone(ps, shard);
        }
        if (now_ns >= end_ns) {
            return weft_io_fail(
                &ps->error, WEFT_TIMEOUT,
                "pushes or clocks have not arrived yet; wait again, or give them up "
                "with weft_ps_close");
        }
        weft_api_ps_step(ps, end_ns == WEFT_NEVER ? WEFT_NEVER : end_ns - now_ns);
    }
    return WEFT_OK;
}
