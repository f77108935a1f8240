#include "sched/wire.h"

#include "base/cursor.h"
#include "sched/planner.h"

#include <assert.h>
#include <float.h>
#include <string.h>

static_assert((int)WEFT_SCHED_SHARDS_MAX == (int)WEFT_PLANNER_SERVERS_MAX);
static_assert((int)WEFT_SCHED_WORKERS_MAX == (int)WEFT_PLANNER_WORKERS_MAX);
static_assert(WEFT_SCHED_SHARDS_MAX * WEFT_SCHED_SHARE_BYTES <=
              WEFT_SCHED_EVENTS_MAX * WEFT_SCHED_EVENT_BYTES);

static const struct weft_status_words statuses[] = {
#define X(name, text) {#name, text},
    WEFT_SCHED_STATUS_MAP(X)
#undef X
};

const char *weft_sched_status_name(uint16_t status)
{
    return weft_status_words_name(statuses, WEFT_SCHED_STATUS_COUNT, status);
}

const char *weft_sched_status_text(uint16_t status)
{
    return weft_status_words_text(statuses, WEFT_SCHED_STATUS_COUNT, status);
}

/* ---- fields ---------------------------------------------------------------------------------- */

static void write_f64(struct weft_writer *w, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    weft_write_u64(w, bits);
}

static double read_f64(struct weft_reader *r)
{
    uint64_t bits = weft_read_u64(r);
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* False for NaN, because every comparison with NaN is false. */
static bool is_norm(double norm)
{
    return norm >= 0 && norm <= DBL_MAX;
}

/* ---- reports --------------------------------------------------------------------------------- */

static void write_entries(struct weft_writer *w, const struct weft_sched_report *report)
{
    for (uint32_t i = 0; i < report->count; i++) {
        const struct weft_sched_event *event = &report->events[i];
        if (report->role == WEFT_SCHED_WORKER) {
            weft_write_u64(w, report->shares[i].bytes);
            weft_write_u64(w, report->shares[i].base);
            weft_write_u64(w, report->shares[i].span_ns);
            continue;
        }
        weft_write_u32(w, event->worker);
        weft_write_u8(w, event->flags);
        weft_write_zeros(w, 1);
        weft_write_u16(w, (uint16_t)event->members);
        weft_write_u64(w, event->clock);
        write_f64(w, event->norm);
        weft_write_u64(w, event->rate_bps);
        weft_write_u64(w, event->alone_bps);
        weft_write_u64(w, event->all_bps);
        weft_write_u64(w, event->sum_bytes);
    }
}

size_t weft_sched_report_pack(const struct weft_sched_report *report, uint8_t *out)
{
    bool is_worker = report->role == WEFT_SCHED_WORKER;
    struct weft_writer w = weft_writer_make(out, WEFT_SCHED_REPORT_BYTES_MAX);
    weft_write_u32(&w, report->number);
    weft_write_u8(&w, (uint8_t)report->role);
    weft_write_u8(&w, report->flags);
    weft_write_u16(&w, (uint16_t)report->count);
    weft_write_u32(&w, report->index);
    weft_write_u32(&w, report->workers);
    weft_write_u32(&w, report->shards);
    weft_write_u8(&w, (uint8_t)report->mode);
    weft_write_zeros(&w, 3);
    weft_write_u64(&w, is_worker ? report->tau_max : report->transfer_bytes);
    weft_write_u64(&w, report->up_bps);
    weft_write_u64(&w, report->down_bps);
    weft_write_u64(&w, is_worker ? report->clock : report->first);
    weft_write_u64(&w, is_worker ? report->ended : report->opened);
    if (is_worker) {
        write_f64(&w, report->norm);
    } else {
        weft_write_u64(&w, report->host);
    }
    weft_write_u64(&w, is_worker ? report->read : report->closed);
    weft_write_u32(&w, is_worker ? report->aggregators : report->transfer);
    weft_write_u32(&w, is_worker ? report->reached : 0);
    weft_write_bytes(&w, report->job, sizeof(report->job));
    write_entries(&w, report);
    return (size_t)(w.at - out);
}

static bool read_shares(struct weft_reader *r, struct weft_sched_report *q)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < q->count; i++) {
        q->shares[i].bytes = weft_read_u64(r);
        q->shares[i].base = weft_read_u64(r);
        q->shares[i].span_ns = weft_read_u64(r);
        if (q->shares[i].bytes > WEFT_PLANNER_BYTES_MAX) {
            return false;
        }
        bytes += q->shares[i].bytes;
    }
    return q->count == 0 || (bytes > 0 && bytes <= WEFT_PLANNER_BYTES_MAX);
}

static bool read_events(struct weft_reader *r, struct weft_sched_report *q)
{
    for (uint32_t i = 0; i < q->count; i++) {
        struct weft_sched_event *event = &q->events[i];
        event->worker = weft_read_u32(r);
        event->flags = weft_read_u8(r);
        bool zero = weft_read_u8(r) == 0;
        event->members = weft_read_u16(r);
        event->clock = weft_read_u64(r);
        event->norm = read_f64(r);
        event->rate_bps = weft_read_u64(r);
        event->alone_bps = weft_read_u64(r);
        event->all_bps = weft_read_u64(r);
        event->sum_bytes = weft_read_u64(r);
        if (!zero || event->worker >= WEFT_SCHED_WORKERS_MAX || event->clock == 0 ||
            (event->flags & ~WEFT_SCHED_LATE) != 0 ||
            !(is_norm(event->norm) || event->norm == -1) || event->rate_bps > event->all_bps ||
            event->alone_bps > WEFT_TIMELINE_BPS_MAX || event->all_bps > WEFT_TIMELINE_BPS_MAX ||
            event->members > WEFT_SCHED_MEMBERS_MAX || event->sum_bytes > WEFT_PLANNER_BYTES_MAX ||
            (event->members == 0) != (event->sum_bytes == 0)) {
            return false;
        }
    }
    return true;
}

static bool worker_fits(const struct weft_sched_report *q)
{
    bool asks = q->clock != 0;
    return q->index < q->workers && q->mode <= WEFT_SCHED_ASP && is_norm(q->norm) &&
           (!asks || q->ended <= q->clock) && q->count == (asks ? q->shards : 0) &&
           q->aggregators <= WEFT_SCHED_AGGREGATORS_MAX &&
           (uint64_t)q->reached >> q->aggregators == 0 &&
           (q->read != 0 || (q->flags & WEFT_SCHED_READING) == 0) &&
           (q->flags & WEFT_SCHED_TRANSFER_WAITS) == 0 &&
           (asks || ((q->flags & WEFT_SCHED_SENDING) == 0 && q->norm == 0));
}

static bool server_fits(const struct weft_sched_report *q)
{
    return q->index < q->shards && q->mode == 0 && q->reached == 0 &&
           (q->transfer == 0) == (q->transfer_bytes == 0) &&
           q->transfer_bytes <= WEFT_PLANNER_BYTES_MAX &&
           (q->transfer != 0 || (q->flags & WEFT_SCHED_TRANSFER_WAITS) == 0) &&
           (q->flags & (WEFT_SCHED_SENDING | WEFT_SCHED_READING)) == 0 &&
           q->closed <= q->opened && q->count <= WEFT_SCHED_EVENTS_MAX &&
           (q->first != 0) == (q->count != 0) && q->first <= UINT64_MAX - WEFT_SCHED_EVENTS_MAX;
}

static bool head_fits(const struct weft_sched_report *q)
{
    const uint8_t flags = WEFT_SCHED_SENDING | WEFT_SCHED_LEAVE | WEFT_SCHED_READING |
                          WEFT_SCHED_TRANSFER_WAITS;
    return q->number != 0 && (q->flags & ~flags) == 0 && q->workers <= WEFT_SCHED_WORKERS_MAX &&
           q->shards >= 1 && q->shards <= WEFT_SCHED_SHARDS_MAX &&
           q->up_bps <= WEFT_TIMELINE_BPS_MAX && q->down_bps <= WEFT_TIMELINE_BPS_MAX &&
           weft_job_name_valid(q->job) &&
           (q->role == WEFT_SCHED_WORKER   ? worker_fits(q)
            : q->role == WEFT_SCHED_SERVER ? server_fits(q)
                                           : false);
}

weft_status weft_sched_report_unpack(const uint8_t *bytes, size_t count,
                                     struct weft_sched_report *report_p)
{
    struct weft_reader r = weft_reader_make(bytes, count);
    struct weft_sched_report q = {.number = weft_read_u32(&r)};
    q.role = (enum weft_sched_role)weft_read_u8(&r);
    q.flags = weft_read_u8(&r);
    q.count = weft_read_u16(&r);
    q.index = weft_read_u32(&r);
    q.workers = weft_read_u32(&r);
    q.shards = weft_read_u32(&r);
    q.mode = (enum weft_sched_mode)weft_read_u8(&r);
    uint64_t reserved = weft_read_u8(&r);
    reserved |= weft_read_u16(&r);
    bool is_worker = q.role == WEFT_SCHED_WORKER;
    *(is_worker ? &q.tau_max : &q.transfer_bytes) = weft_read_u64(&r);
    q.up_bps = weft_read_u64(&r);
    q.down_bps = weft_read_u64(&r);
    *(is_worker ? &q.clock : &q.first) = weft_read_u64(&r);
    *(is_worker ? &q.ended : &q.opened) = weft_read_u64(&r);
    if (is_worker) {
        q.norm = read_f64(&r);
    } else {
        q.host = weft_read_u64(&r);
    }
    *(is_worker ? &q.read : &q.closed) = weft_read_u64(&r);
    *(is_worker ? &q.aggregators : &q.transfer) = weft_read_u32(&r);
    q.reached = weft_read_u32(&r);
    const uint8_t *job = weft_read_bytes(&r, sizeof(q.job));
    if (job == NULL || reserved != 0) {
        return WEFT_PROTO;
    }
    memcpy(q.job, job, sizeof(q.job));
    size_t each = is_worker ? WEFT_SCHED_SHARE_BYTES : WEFT_SCHED_EVENT_BYTES;
    if (!head_fits(&q) || weft_reader_left(&r) != q.count * each ||
        !(is_worker ? read_shares(&r, &q) : read_events(&r, &q))) {
        return WEFT_PROTO;
    }
    *report_p = q;
    return WEFT_OK;
}

/* ---- plans ----------------------------------------------------------------------------------- */

size_t weft_sched_plan_pack(const struct weft_sched_plan *plan, uint8_t *out)
{
    bool admits = (plan->flags & WEFT_SCHED_ADMITS) != 0;
    struct weft_writer w = weft_writer_make(out, WEFT_SCHED_PLAN_BYTES_MAX);
    weft_write_u32(&w, plan->number);
    weft_write_u16(&w, plan->status);
    weft_write_u16(&w, (uint16_t)plan->count);
    weft_write_u32(&w, plan->report);
    weft_write_u8(&w, (uint8_t)plan->verdict);
    weft_write_u8(&w, plan->why);
    weft_write_u8(&w, plan->flags);
    weft_write_zeros(&w, 1);
    weft_write_u64(&w, plan->life);
    weft_write_u64(&w, plan->clock);
    weft_write_u64(&w, plan->revision);
    weft_write_u64(&w, plan->direct_bps);
    weft_write_u64(&w, admits ? plan->admitted : plan->taken);
    weft_write_u16(&w, (uint16_t)plan->hop);
    weft_write_u16(&w, (uint16_t)plan->members);
    weft_write_u32(&w, plan->group);
    for (uint32_t i = 0; i < plan->count; i++) {
        weft_write_u32(&w, plan->grants[i].shard);
        weft_write_u16(&w, (uint16_t)plan->grants[i].rank);
        weft_write_u16(&w, (uint16_t)plan->grants[i].members);
        weft_write_u64(&w, plan->grants[i].start_in_ns);
        weft_write_u64(&w, plan->grants[i].rate_bps);
    }
    return (size_t)(w.at - out);
}

static bool hop_fits(const struct weft_sched_plan *a)
{
    if (a->hop == 0) {
        bool may_transfer = (a->flags & WEFT_SCHED_MAY_TRANSFER) != 0;
        return (a->group != 0) == may_transfer && a->members == 0;
    }
    return a->verdict == WEFT_SCHED_GRANTED && (a->flags & WEFT_SCHED_MAY_TRANSFER) == 0 &&
           a->hop <= WEFT_SCHED_AGGREGATORS_MAX &&
           a->group != 0 && a->members >= 2 && a->members <= WEFT_SCHED_MEMBERS_MAX;
}

static bool plan_fits(const struct weft_sched_plan *a)
{
    bool is_granted = a->verdict == WEFT_SCHED_GRANTED;
    return a->number != 0 && a->life != 0 && a->verdict < WEFT_SCHED_VERDICT_COUNT &&
           (a->flags & ~(WEFT_SCHED_ADMITS | WEFT_SCHED_MAY_TRANSFER)) == 0 &&
           (a->clock != 0) == (a->verdict != WEFT_SCHED_NONE) &&
           (is_granted ? a->count >= 1 && a->count <= WEFT_SCHED_SHARDS_MAX : a->count == 0) &&
           (a->revision != 0) == is_granted && hop_fits(a) &&
           a->direct_bps <= WEFT_TIMELINE_BPS_MAX &&
           (a->verdict == WEFT_SCHED_DROPPED ? a->why <= WEFT_PLANNER_DROP_DIVERGENCE
                                             : a->why == 0);
}

/* Shards must be in increasing order, which excludes duplicates. */
static bool read_grants(struct weft_reader *r, struct weft_sched_plan *a)
{
    if (weft_reader_left(r) != (size_t)a->count * WEFT_SCHED_GRANT_BYTES) {
        return false;
    }
    for (uint32_t i = 0; i < a->count; i++) {
        struct weft_sched_grant *grant = &a->grants[i];
        grant->shard = weft_read_u32(r);
        grant->rank = weft_read_u16(r);
        grant->members = weft_read_u16(r);
        grant->start_in_ns = weft_read_u64(r);
        grant->rate_bps = weft_read_u64(r);
        if (grant->shard >= WEFT_SCHED_SHARDS_MAX ||
            (i > 0 && grant->shard <= a->grants[i - 1].shard) || grant->rate_bps == 0 ||
            grant->rate_bps > WEFT_TIMELINE_BPS_MAX || grant->members > a->members ||
            (grant->members == 0) != (a->hop == 0) ||
            grant->start_in_ns > WEFT_SCHED_START_S_MAX * WEFT_NS_PER_S) {
            return false;
        }
    }
    return true;
}

weft_status weft_sched_plan_unpack(const uint8_t *bytes, size_t count,
                                   struct weft_sched_plan *plan_p)
{
    struct weft_reader r = weft_reader_make(bytes, count);
    struct weft_sched_plan a = {.number = weft_read_u32(&r)};
    a.status = weft_read_u16(&r);
    a.count = weft_read_u16(&r);
    a.report = weft_read_u32(&r);
    a.verdict = (enum weft_sched_verdict)weft_read_u8(&r);
    a.why = weft_read_u8(&r);
    a.flags = weft_read_u8(&r);
    uint64_t reserved = weft_read_u8(&r);
    a.life = weft_read_u64(&r);
    a.clock = weft_read_u64(&r);
    a.revision = weft_read_u64(&r);
    a.direct_bps = weft_read_u64(&r);
    *((a.flags & WEFT_SCHED_ADMITS) != 0 ? &a.admitted : &a.taken) = weft_read_u64(&r);
    a.hop = weft_read_u16(&r);
    a.members = weft_read_u16(&r);
    a.group = weft_read_u32(&r);
    if (r.bad || reserved != 0 || !plan_fits(&a) || !read_grants(&r, &a)) {
        return WEFT_PROTO;
    }
    *plan_p = a;
    return WEFT_OK;
}
