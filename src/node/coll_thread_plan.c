/* Plans of all_reduce: the ranks tell each other their links by an all_gather, and each of them
 * makes the same plan from that.
 *
 * What a rank sends is a record of RECORD_VALUES int64: the rates of its link up and down, by how
 * much it calls later, the number of its host, and form and bytes of the plan that it wants, which
 * must be equal at all ranks. weft_collective_plan_make checks the values of all ranks. */
#include "node/coll_thread_internal.h"

#include <assert.h>
#include <stdlib.h>

static_assert((int)WEFT_COLL_PLAN_WHOLE == (int)WEFT_COLLECTIVE_WHOLE);

enum { RECORD_UP, RECORD_DOWN, RECORD_LATE, RECORD_HOST, RECORD_FORM, RECORD_BYTES, RECORD_VALUES };

/* Of a message from host to host; decides only between forms that are about equally fast. */
static const uint64_t hop_ns = 25 * WEFT_NS_PER_US;

/* All its memory is allocated before the all_gather: afterwards the other ranks use the plan. */
struct weft_coll_exchange {
    struct weft_coll_thread_plan mine;
    uint64_t id; /* of the all_gather */
    uint64_t begun_ns;
    uint32_t n;
    struct coll_plan *made;             /* NULL: no plan is wanted, or it is in use */
    struct weft_collective_rank *ranks; /* (n,); with `made` */
    int64_t sent[RECORD_VALUES];
    int64_t records[]; /* (n, RECORD_VALUES) */
};

static const char *plan_check(const struct weft_coll_thread_plan *plan, uint32_t n)
{
    struct weft_collective_rank one = {
        .up_bps = plan->up_bps, .down_bps = plan->down_bps, .ready_ns = plan->late_ns};
    const struct weft_collective_options options = {
        .form = plan->form, .bytes = plan->bytes, .chunk_bytes = 1};
    return weft_collective_check(&one, 1, n, &options);
}

static struct weft_coll_exchange *exchange_new(uint32_t n, bool has_plan)
{
    struct weft_coll_exchange *e = calloc(1, sizeof(*e) + n * sizeof(e->sent));
    if (e != NULL && has_plan) {
        e->made = calloc(1, sizeof(*e->made) + weft_collective_plan_bytes(n));
        e->ranks = calloc(n, sizeof(*e->ranks));
    }
    if (e != NULL && has_plan && (e->made == NULL || e->ranks == NULL)) {
        weft_coll_exchange_free(e);
        return NULL;
    }
    return e;
}

weft_status weft_coll_thread_plan_begin(struct weft_coll_thread *t,
                                        const struct weft_coll_thread_plan *plan, uint32_t n,
                                        uint64_t timeout_ns,
                                        struct weft_coll_exchange **exchange_p,
                                        struct weft_error *error)
{
    const char *wrong = plan->is_none ? NULL : plan_check(plan, n);
    if (wrong != NULL) {
        return weft_fail(error, WEFT_INVALID, "%s", wrong);
    }
    if (weft_coll_thread_open_ops(t) > 0) {
        return weft_fail(error, WEFT_STATE,
                         "operations are in progress; wait for all of them before a plan is set");
    }
    struct weft_coll_exchange *e = exchange_new(n, !plan->is_none);
    if (e == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for a plan of %u ranks", n);
    }
    e->mine = *plan;
    e->n = n;
    e->begun_ns = weft_clock_now_ns();
    e->sent[RECORD_UP] = (int64_t)plan->up_bps;
    e->sent[RECORD_DOWN] = (int64_t)plan->down_bps;
    e->sent[RECORD_LATE] = (int64_t)plan->late_ns;
    e->sent[RECORD_HOST] = (int64_t)plan->host;
    e->sent[RECORD_FORM] = plan->is_none ? -1 : (int64_t)plan->form;
    e->sent[RECORD_BYTES] = (int64_t)plan->bytes;
    const struct weft_coll_call call = {
        .kind = WEFT_COLL_ALL_GATHER,
        .type = WEFT_COLL_I64,
        .group = plan->group,
        .count = RECORD_VALUES,
        .in = e->sent,
        .out = e->records,
        .timeout_ns = timeout_ns,
    };
    weft_status status = weft_coll_thread_begin_internal(t, &call, &e->id);
    if (status != WEFT_OK) {
        char why[COLL_FAILURE_BYTES];
        bool failed = weft_coll_thread_failed(t, why, sizeof(why));
        weft_coll_exchange_free(e);
        return weft_fail(error, status, "%s", failed ? why : weft_status_text(status));
    }
    *exchange_p = e;
    return WEFT_OK;
}

/* ---- the plan -------------------------------------------------------------------------------- */

static weft_status same_wish(const struct weft_coll_exchange *e, struct weft_error *error)
{
    for (uint32_t r = 1; r < e->n; r++) {
        const int64_t *one = e->records, *other = e->records + (size_t)r * RECORD_VALUES;
        if (one[RECORD_FORM] != other[RECORD_FORM] || one[RECORD_BYTES] != other[RECORD_BYTES]) {
            return weft_fail(error, WEFT_INVALID,
                             "rank %u of the group wants another form of a plan, or one for "
                             "vectors of another length, than rank 0; all must want the same",
                             r);
        }
    }
    return WEFT_OK;
}

static weft_status make(struct weft_coll_exchange *e, uint64_t chunk_bytes,
                        struct weft_error *error)
{
    for (uint32_t r = 0; r < e->n; r++) {
        const int64_t *record = e->records + (size_t)r * RECORD_VALUES;
        e->ranks[r] = (struct weft_collective_rank){.up_bps = (uint64_t)record[RECORD_UP],
                                                    .down_bps = (uint64_t)record[RECORD_DOWN],
                                                    .ready_ns = (uint64_t)record[RECORD_LATE],
                                                    .host = (uint64_t)record[RECORD_HOST]};
    }
    const struct weft_collective_options options = {.form = e->mine.form,
                                                    .bytes = e->mine.bytes,
                                                    .chunk_bytes = chunk_bytes,
                                                    .hop_ns = hop_ns};
    const char *wrong =
        weft_collective_plan_make(e->ranks, e->n, &options, e->made->memory, &e->made->made);
    if (wrong != NULL) {
        return weft_fail(error, WEFT_INVALID, "%s", wrong);
    }
    const struct weft_collective_plan *m = &e->made->made;
    e->made->plan = (struct weft_coll_plan){.ranks = m->ranks,
                                            .parts = m->parts,
                                            .trees_bytes_min = WEFT_COLL_PLAN_TREES_BYTES_MIN,
                                            .slice = m->slice,
                                            .part = m->part,
                                            .up = m->up,
                                            .down = m->down,
                                            .row = m->row};
    return WEFT_OK;
}

struct set_request {
    uint32_t group;
    struct coll_plan *plan;
    weft_status status;
};

static void set(struct weft_coll_thread *t, void *arg)
{
    struct set_request *r = arg;
    r->status =
        weft_coll_plan_set(t->coll, r->group, r->plan != NULL ? &r->plan->plan : NULL);
    if (r->status != WEFT_OK) { /* the others set it: do not let them wait for this rank */
        weft_coll_abort(t->coll,
                        r->status == WEFT_STATE ? "an operation began during plan_set"
                                                : "its plan is impossible",
                        weft_clock_now_ns());
        return;
    }
    free(t->plan[r->group]);
    t->plan[r->group] = r->plan;
}

static weft_status use(struct weft_coll_thread *t, struct weft_coll_exchange *e,
                       struct weft_collective_plan *planned_p, struct weft_error *error)
{
    weft_status status = same_wish(e, error);
    if (status == WEFT_OK && e->made != NULL) {
        status = make(e, t->config.coll.segment_bytes / 2, error);
    }
    if (status != WEFT_OK) {
        return status;
    }
    struct set_request r = {.group = e->mine.group, .plan = e->made};
    weft_coll_thread_request(t, set, &r);
    if (r.status != WEFT_OK) {
        return weft_fail(error, r.status, "%s",
                         r.status == WEFT_STATE
                             ? "an operation of the group began while the plan was made; no thread "
                               "may begin one meanwhile"
                             : "the plan that was made is impossible; this is a defect of weft");
    }
    *planned_p = r.plan != NULL ? r.plan->made : (struct weft_collective_plan){.ranks = e->n};
    e->made = NULL;
    return WEFT_OK;
}

struct missing_request {
    const struct weft_coll_exchange *exchange;
    struct coll_rank_list ranks; /* their indices in the group */
};

static void find_missing(struct weft_coll_thread *t, void *arg)
{
    struct missing_request *m = arg;
    for (uint32_t i = 0; i < m->exchange->n; i++) {
        if (weft_coll_waits_for(t->coll, m->exchange->mine.group, i)) {
            weft_coll_rank_list_add(&m->ranks, i);
        }
    }
}

static weft_status not_in_time(struct weft_coll_thread *t, const struct weft_coll_exchange *e,
                               struct weft_error *error)
{
    struct missing_request m = {.exchange = e};
    double waited_s = (double)(weft_clock_now_ns() - e->begun_ns) / 1e9;
    weft_coll_thread_request(t, find_missing, &m);
    if (m.ranks.count == 0) { /* they have just told them, or have not received this rank's */
        return weft_fail(error, WEFT_TIMEOUT,
                         "after %.1f s the links of all %u ranks are not exchanged; wait again",
                         waited_s, e->n);
    }
    return weft_fail(error, WEFT_TIMEOUT,
                     "after %.1f s %u of %u ranks have not told their links: %s; check that all of "
                     "them set a plan, and wait again",
                     waited_s, m.ranks.count, e->n, m.ranks.text);
}

weft_status weft_coll_thread_plan_end(struct weft_coll_thread *t, struct weft_coll_exchange *e,
                                      uint64_t until_ns, struct weft_collective_plan *planned_p,
                                      struct weft_error *error)
{
    struct weft_coll_done done;
    uint64_t id;
    weft_status status = weft_coll_thread_wait(t, e->id, until_ns, &id, &done);
    if (status == WEFT_TIMEOUT) {
        return not_in_time(t, e, error);
    }
    WEFT_ASSERT(status == WEFT_OK);
    if (done.status != WEFT_OK) {
        char why[COLL_FAILURE_BYTES] = "";
        (void)weft_coll_thread_failed(t, why, sizeof(why));
        status = weft_fail(error, done.status, "%s", why);
    } else {
        status = use(t, e, planned_p, error);
    }
    weft_coll_exchange_free(e);
    return status;
}

void weft_coll_exchange_free(struct weft_coll_exchange *e)
{
    if (e != NULL) {
        free(e->made);
        free(e->ranks);
        free(e);
    }
}

void weft_coll_thread_plans_free(struct weft_coll_thread *t)
{
    for (uint32_t i = 0; t->plan != NULL && i < t->plans; i++) {
        free(t->plan[i]);
    }
    free(t->plan);
}
