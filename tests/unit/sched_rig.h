/* A training job around a planner, in virtual time: workers read, compute and push; every transfer
 * takes the planned time, or longer (jitter). Every step checks invariants against the rig's own
 * counts of versions, delays and norms. One seed determines the run. */
#ifndef WEFT_TESTS_UNIT_SCHED_RIG_H
#define WEFT_TESTS_UNIT_SCHED_RIG_H

#include "base/prng.h"
#include "sched/planner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define GBIT UINT64_C(1000000000)

enum { RIG_WORKERS = 64, RIG_SERVERS = 4, RIG_HOSTS = 80, RIG_TRANSFERS = 1024, RIG_GROUPS = 64 };

/* Parameters of a run; drawn or set before rig_begin. */
struct rig_setting {
    uint64_t seed;
    uint64_t compute_ns_min;
    uint64_t compute_ns_max;
    uint64_t bytes_min;
    uint64_t bytes_max;
    double norm_max;
    uint32_t jitter_ppm;  /* maximum excess of a transfer's duration over the plan */
    uint32_t trouble_ppm; /* share of steps in which a worker leaves, an aggregator is lost or a
                           * capacity changes */
    bool has_reads;       /* workers also request reads */
};

struct rig_worker {
    bool is_outstanding; /* between read and commit */
    bool is_computing;
    bool is_sending;   /* has requested a transfer, or sends */
    uint64_t until_ns; /* end of computing */
    uint64_t base;
    uint64_t clock;
    double norm;
    uint32_t left; /* transfers not delivered yet */
    uint64_t commits;
    uint64_t drops;
};

struct rig_transfer {
    struct weft_planner_decision decision;
    uint64_t due_ns;
};

struct rig_group {
    uint64_t id; /* 0 = free */
    uint32_t host;
    uint32_t members[RIG_WORKERS];
    uint32_t count;
    uint32_t here; /* members at the aggregator */
    uint32_t servers_left;
};

struct rig {
    struct rig_setting setting;
    struct weft_planner_config config;
    struct weft_planner_host host[RIG_HOSTS];
    uint32_t worker_host[RIG_WORKERS];
    uint32_t server_host[RIG_SERVERS];
    uint32_t replica_host[RIG_SERVERS];
    uint32_t aggregator_host[RIG_HOSTS];
    struct weft_planner *planner;
    struct weft_prng prng;
    uint64_t now_ns;
    struct rig_worker workers[RIG_WORKERS];
    struct rig_transfer transfers[RIG_TRANSFERS];
    uint32_t transfers_count;
    struct rig_group groups[RIG_GROUPS];
    uint64_t version;
    uint64_t delay_sum; /* sum over commits */
    uint64_t delay_max;
    uint64_t others_sum; /* sum over commits: other outstanding workers */
    uint64_t dropped_delay_sum;
    bool had_leavers;
    double norm_pending; /* sum of norms committed and not yet at the replicas */
    double norm_sent;
    uint32_t replicas_left;
    uint64_t aggregator_gone_until_ns[RIG_HOSTS];
};

/* Hosts: one per worker, then servers, replicas, aggregators. All links are equal. */
static inline void rig_hosts(struct rig *rig, uint32_t workers, uint32_t servers,
                             uint32_t aggregators, uint64_t bps)
{
    memset(rig, 0, sizeof(*rig));
    weft_planner_config_default(&rig->config);
    rig->config.workers = workers;
    rig->config.servers = servers;
    rig->config.aggregators = aggregators;
    rig->config.hosts = workers + 2 * servers + aggregators;
    rig->config.host = rig->host;
    rig->config.worker_host = rig->worker_host;
    rig->config.server_host = rig->server_host;
    rig->config.replica_host = rig->replica_host;
    rig->config.aggregator_host = rig->aggregator_host;
    assert_true(rig->config.hosts <= RIG_HOSTS);
    for (uint32_t i = 0; i < RIG_HOSTS; i++) {
        rig->host[i] = (struct weft_planner_host){bps, bps};
    }
    for (uint32_t i = 0; i < workers; i++) {
        rig->worker_host[i] = i;
    }
    for (uint32_t i = 0; i < servers; i++) {
        rig->server_host[i] = workers + i;
        rig->replica_host[i] = workers + servers + i;
    }
    for (uint32_t i = 0; i < aggregators; i++) {
        rig->aggregator_host[i] = workers + 2 * servers + i;
    }
    rig->setting = (struct rig_setting){.compute_ns_min = WEFT_NS_PER_MS,
                                        .compute_ns_max = WEFT_NS_PER_MS,
                                        .bytes_min = 1000000,
                                        .bytes_max = 1000000,
                                        .norm_max = 1,
                                        .has_reads = true};
}

/* ---- what must hold -------------------------------------------------------------------------- */

static inline void rig_check_links(const struct rig *rig)
{
    for (uint32_t h = 0; h < rig->config.hosts; h++) {
        for (int up = 0; up < 2; up++) {
            const struct weft_timeline *line = weft_planner_link(rig->planner, h, up);
            assert_true(weft_timeline_peak(line, rig->now_ns) <= line->capacity_bps);
        }
    }
}

/* Every commit adds one to the delay of each other worker that has read and not committed. */
static inline void rig_check_conservation(const struct rig *rig)
{
    uint64_t sum = rig->delay_sum + rig->dropped_delay_sum;
    for (uint32_t i = 0; i < rig->config.workers; i++) {
        const struct rig_worker *w = &rig->workers[i];
        sum += w->is_outstanding ? rig->version - w->base : 0;
    }
    if (!rig->had_leavers) {
        assert_int_equal(sum, rig->others_sum);
        assert_int_equal(weft_planner_counters(rig->planner)->delay_sum, rig->delay_sum);
    }
    assert_int_equal(weft_planner_version(rig->planner), rig->version);
}

static inline void rig_check_divergence(const struct rig *rig)
{
    if ((rig->config.policy & WEFT_PLAN_REPLICATE) != 0) {
        assert_true(rig->norm_pending + rig->norm_sent <= rig->config.div_max * (1 + 1e-9));
        assert_true(weft_planner_divergence_ppm(rig->planner) <= WEFT_PPM);
    }
}

/* ---- workers --------------------------------------------------------------------------------- */

static inline void rig_compute(struct rig *rig, uint32_t worker)
{
    struct rig_worker *w = &rig->workers[worker];
    w->is_computing = true;
    w->until_ns = rig->now_ns + weft_prng_range(&rig->prng, rig->setting.compute_ns_min,
                                                rig->setting.compute_ns_max);
}

/* Read the model; without has_reads immediately. */
static inline void rig_read(struct rig *rig, uint32_t worker)
{
    struct rig_worker *w = &rig->workers[worker];
    if (rig->setting.has_reads) {
        assert_int_equal(
            weft_planner_read(rig->planner, worker, rig->setting.bytes_max, rig->now_ns), WEFT_OK);
        return;
    }
    w->is_outstanding = true;
    w->base = rig->version;
    rig_compute(rig, worker);
}

static inline void rig_push(struct rig *rig, uint32_t worker)
{
    struct rig_worker *w = &rig->workers[worker];
    w->is_computing = false;
    w->is_sending = true;
    w->norm = rig->setting.norm_max * (double)weft_prng_below(&rig->prng, 1000) / 1000;
    struct weft_planner_update update = {
        .worker = worker,
        .clock = w->clock++,
        .bytes = weft_prng_range(&rig->prng, rig->setting.bytes_min, rig->setting.bytes_max),
        .base_version = w->base,
        .norm = w->norm};
    assert_int_equal(weft_planner_update(rig->planner, &update, rig->now_ns), WEFT_OK);
}

static inline void rig_commit(struct rig *rig, uint32_t worker)
{
    struct rig_worker *w = &rig->workers[worker];
    uint64_t delay = rig->version - w->base;
    if ((rig->config.policy & WEFT_PLAN_BOUND) != 0 && rig->config.mode != WEFT_PLANNER_SYNC) {
        assert_true(delay <= rig->config.tau_max);
    }
    rig->delay_sum += delay;
    rig->delay_max = weft_max_u64(rig->delay_max, delay);
    for (uint32_t i = 0; i < rig->config.workers; i++) {
        rig->others_sum += i != worker && rig->workers[i].is_outstanding;
    }
    rig->norm_pending += rig->config.step_size / (1 - rig->config.momentum) * w->norm;
    rig_check_divergence(rig);
    rig->version++;
    w->is_outstanding = w->is_sending = false;
    w->commits++;
    assert_int_equal(weft_planner_committed(rig->planner, worker, -1, rig->now_ns), WEFT_OK);
    rig_read(rig, worker);
}

/* ---- decisions ------------------------------------------------------------------------------- */

static inline struct rig_group *rig_group(struct rig *rig, uint64_t id)
{
    struct rig_group *found = NULL;
    for (uint32_t g = 0; g < RIG_GROUPS; g++) {
        if (rig->groups[g].id == id) {
            return &rig->groups[g];
        }
        found = rig->groups[g].id == 0 ? &rig->groups[g] : found;
    }
    assert_non_null(found);
    *found = (struct rig_group){.id = id, .servers_left = rig->config.servers};
    return found;
}

static inline uint64_t rig_due(struct rig *rig, const struct weft_booking *booking)
{
    uint64_t span_ns = booking->end_ns - booking->start_ns;
    return booking->end_ns +
           weft_prng_below(&rig->prng, 1 + span_ns / WEFT_PPM * rig->setting.jitter_ppm);
}

static inline void rig_dropped(struct rig *rig, const struct weft_planner_decision *d)
{
    struct rig_worker *w = &rig->workers[d->worker];
    assert_true(w->is_sending &&
                (rig->config.mode != WEFT_PLANNER_SYNC || d->drop == WEFT_PLANNER_DROP_DIVERGENCE));
    rig->dropped_delay_sum += rig->version - w->base;
    w->is_outstanding = w->is_sending = false;
    w->drops++;
    rig_read(rig, d->worker);
}

static inline void rig_begin_transfer(struct rig *rig, const struct weft_planner_decision *d)
{
    struct rig_worker *w = d->worker < RIG_WORKERS ? &rig->workers[d->worker] : NULL;
    if (d->kind == WEFT_PLANNER_GRANT_READ && !w->is_outstanding) {
        w->is_outstanding = true;
        w->base = rig->version;
        w->left = rig->config.servers;
    } else if (d->kind == WEFT_PLANNER_GRANT && d->group != 0) {
        struct rig_group *group = rig_group(rig, d->group);
        group->host = d->to_host;
        group->members[group->count++] = d->worker;
        w->left = 1;
    } else if (d->kind == WEFT_PLANNER_GRANT && w->left == 0) {
        w->left = rig->config.servers;
    } else if (d->kind == WEFT_PLANNER_REPLICATE && rig->replicas_left++ == 0) {
        rig->norm_sent = rig->norm_pending;
        rig->norm_pending = 0;
    }
    for (uint32_t i = 0; d->kind == WEFT_PLANNER_GRANT_GROUP && i < rig->transfers_count; i++) {
        /* Check that all members of a sum are at the aggregator. */
        const struct weft_planner_decision *member = &rig->transfers[i].decision;
        assert_true(member->group != d->group || member->kind != WEFT_PLANNER_GRANT ||
                    member->booking.end_ns <= d->booking.end_ns);
    }
    assert_true(rig->transfers_count < RIG_TRANSFERS);
    rig->transfers[rig->transfers_count++] =
        (struct rig_transfer){.decision = *d, .due_ns = rig_due(rig, &d->booking)};
}

static inline void rig_revised(struct rig *rig, const struct weft_planner_decision *d)
{
    for (uint32_t i = 0; i < rig->transfers_count; i++) {
        if (rig->transfers[i].decision.transfer == d->transfer) {
            rig->transfers[i].due_ns = weft_max_u64(rig_due(rig, &d->booking), rig->now_ns);
            return;
        }
    }
    /* Cancelled meanwhile: nothing to do. */
}

static inline void rig_plan(struct rig *rig)
{
    struct weft_planner_decision d;
    do {
        weft_planner_plan(rig->planner, rig->now_ns);
        rig_check_links(rig);
        bool again = false;
        while (weft_planner_poll(rig->planner, &d)) {
            if (d.kind == WEFT_PLANNER_DROP) {
                rig_dropped(rig, &d);
                again = true;
            } else if (d.is_revised) {
                rig_revised(rig, &d);
            } else {
                rig_begin_transfer(rig, &d);
            }
        }
        if (!again) {
            return;
        }
    } while (true);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static inline void rig_group_at_servers(struct rig *rig, struct rig_group *group)
{
    for (uint32_t i = 0; i < group->count; i++) {
        if (group->members[i] != WEFT_PLANNER_NONE) {
            rig_commit(rig, group->members[i]);
        }
    }
    group->id = 0;
}

static inline void rig_deliver(struct rig *rig, uint32_t idx)
{
    struct rig_transfer t = rig->transfers[idx];
    const struct weft_planner_decision *d = &t.decision;
    struct rig_worker *w = d->worker < RIG_WORKERS ? &rig->workers[d->worker] : NULL;
    struct rig_group *group = d->group == 0 ? NULL : rig_group(rig, d->group);
    if (d->kind == WEFT_PLANNER_GRANT_GROUP && group->here < group->count) {
        /* Cut-through: the last chunk of every member has not arrived yet. */
        rig->transfers[idx].due_ns = rig->now_ns + WEFT_NS_PER_US;
        return;
    }
    rig->transfers[idx] = rig->transfers[--rig->transfers_count];
    assert_int_equal(weft_planner_delivered(rig->planner, d->transfer, rig->now_ns), WEFT_OK);
    if (d->kind == WEFT_PLANNER_GRANT_READ && --w->left == 0) {
        rig_compute(rig, d->worker);
    } else if (d->kind == WEFT_PLANNER_GRANT && --w->left == 0) {
        if (group == NULL) {
            rig_commit(rig, d->worker);
        } else {
            group->here++;
        }
    } else if (d->kind == WEFT_PLANNER_GRANT_GROUP && --group->servers_left == 0) {
        rig_group_at_servers(rig, group);
    } else if (d->kind == WEFT_PLANNER_REPLICATE && --rig->replicas_left == 0) {
        rig->norm_sent = 0;
    }
}

/* Remove transfers of a worker, or of a group. */
static inline void rig_forget(struct rig *rig, uint32_t worker, uint64_t group)
{
    for (uint32_t i = rig->transfers_count; i-- > 0;) {
        const struct weft_planner_decision *d = &rig->transfers[i].decision;
        if (group != 0 ? d->group == group : d->worker == worker) {
            rig->transfers[i] = rig->transfers[--rig->transfers_count];
        }
    }
}

static inline void rig_leave(struct rig *rig, uint32_t worker)
{
    struct rig_worker *w = &rig->workers[worker];
    for (uint32_t g = 0; g < RIG_GROUPS; g++) {
        struct rig_group *group = &rig->groups[g];
        for (uint32_t i = 0; group->id != 0 && i < group->count; i++) {
            if (group->members[i] != worker) {
                continue;
            }
            /* At the aggregator the update is part of the sum, and is not reported separately. */
            group->members[i] = w->left == 0 ? WEFT_PLANNER_NONE : group->members[--group->count];
            break;
        }
        bool has_member = false;
        for (uint32_t i = 0; group->id != 0 && i < group->count; i++) {
            has_member |= group->members[i] != WEFT_PLANNER_NONE;
        }
        if (group->id != 0 && !has_member) { /* the planner does not wait for its sum any more */
            rig_forget(rig, worker, group->id);
            group->id = 0;
        }
    }
    uint64_t before = weft_planner_version(rig->planner);
    assert_int_equal(weft_planner_worker_left(rig->planner, worker, rig->now_ns), WEFT_OK);
    rig->version = weft_planner_version(rig->planner);
    assert_true(rig->version - before <= (w->is_sending ? 1 : 0));
    if (rig->version > before) {
        rig->norm_pending += rig->config.step_size / (1 - rig->config.momentum) * w->norm;
    }
    rig_forget(rig, worker, 0);
    rig->had_leavers = true;
    w->is_outstanding = w->is_sending = w->is_computing = false;
    w->left = 0;
    w->clock = 0;
    rig_read(rig, worker);
}

static inline void rig_lose_aggregator(struct rig *rig, uint32_t idx, bool is_there)
{
    assert_int_equal(weft_planner_aggregator(rig->planner, idx, is_there, rig->now_ns), WEFT_OK);
    for (uint32_t g = 0; g < RIG_GROUPS && !is_there; g++) {
        struct rig_group *group = &rig->groups[g];
        if (group->id == 0 || group->host != rig->aggregator_host[idx]) {
            continue;
        }
        for (uint32_t i = 0; i < group->count; i++) {
            if (group->members[i] != WEFT_PLANNER_NONE) {
                rig->workers[group->members[i]].left = 0;
            }
        }
        rig_forget(rig, WEFT_PLANNER_NONE, group->id);
        group->id = 0;
    }
}

static inline void rig_trouble(struct rig *rig)
{
    uint64_t kind = weft_prng_below(&rig->prng, 3);
    if (kind == 0) {
        rig_leave(rig, (uint32_t)weft_prng_below(&rig->prng, rig->config.workers));
    } else if (kind == 1 && rig->config.aggregators > 0) {
        rig_lose_aggregator(rig, (uint32_t)weft_prng_below(&rig->prng, rig->config.aggregators),
                            weft_prng_chance(&rig->prng, 500000));
    } else {
        uint32_t host = (uint32_t)weft_prng_below(&rig->prng, rig->config.hosts);
        uint64_t bps = weft_prng_range(&rig->prng, GBIT / 10, GBIT);
        assert_int_equal(weft_planner_capacity(rig->planner, host,
                                               weft_prng_chance(&rig->prng, 500000), bps,
                                               rig->now_ns),
                         WEFT_OK);
    }
}

static inline uint64_t rig_next_ns(const struct rig *rig)
{
    uint64_t next_ns = weft_planner_deadline(rig->planner);
    for (uint32_t i = 0; i < rig->transfers_count; i++) {
        next_ns = weft_min_u64(next_ns, rig->transfers[i].due_ns);
    }
    for (uint32_t i = 0; i < rig->config.workers; i++) {
        const struct rig_worker *w = &rig->workers[i];
        next_ns = w->is_computing ? weft_min_u64(next_ns, w->until_ns) : next_ns;
    }
    return next_ns;
}

/* Process all that is due at one instant, then plan. */
static inline void rig_step(struct rig *rig)
{
    uint64_t next_ns = rig_next_ns(rig);
    assert_true(next_ns != WEFT_NEVER); /* every wait ends */
    rig->now_ns = weft_max_u64(rig->now_ns, next_ns);
    for (uint32_t i = 0; i < rig->transfers_count;) {
        uint32_t count = rig->transfers_count;
        uint64_t due_ns = rig->transfers[i].due_ns;
        if (due_ns <= rig->now_ns) {
            rig_deliver(rig, i);
        }
        i = due_ns <= rig->now_ns && rig->transfers_count < count ? 0 : i + 1;
    }
    for (uint32_t i = 0; i < rig->config.workers; i++) {
        if (rig->workers[i].is_computing && rig->workers[i].until_ns <= rig->now_ns) {
            rig_push(rig, i);
        }
    }
    if (weft_prng_chance(&rig->prng, rig->setting.trouble_ppm)) {
        rig_trouble(rig);
    }
    rig_plan(rig);
    rig_check_conservation(rig);
    rig_check_divergence(rig);
}

static inline void rig_begin(struct rig *rig)
{
    weft_prng_init(&rig->prng, rig->setting.seed);
    assert_int_equal(weft_planner_new(&rig->config, &rig->planner), WEFT_OK);
    for (uint32_t i = 0; i < rig->config.workers; i++) {
        rig_read(rig, i);
    }
    rig_plan(rig);
}

static inline void rig_end(struct rig *rig)
{
    weft_planner_free(rig->planner);
}

#endif
