/* The planner as a scheduler process would run it: requests and reports arrive after the network's
 * delay, decisions are returned after the same delay, and all messages that arrive at one time are
 * planned together. */
#include "sim/fabric_internal.h"

#include "base/assert.h"

#include <inttypes.h>
#include <stdlib.h>

enum report_kind {
    REPORT_UPDATE,
    REPORT_READ,
    REPORT_DELIVERED,
    REPORT_COMMITTED,
    REPORT_CAPACITY,
};

struct report {
    enum report_kind kind;
    uint32_t index; /* worker or link */
    uint64_t id;    /* transfer */
    uint64_t version;
    uint64_t clock;
    uint64_t capacity_bps; /* after the reported change */
    double norm;
};

static const uint64_t asked_max = UINT64_C(1) << 62;

/* ---- the planner ----------------------------------------------------------------------------- */

/* The transfers of a chain are not planned. */
static bool replicates(const struct weft_fabric_config *config)
{
    return config->div_max > 0 && !weft_fabric_is_chained(config);
}

static uint32_t policy_of(const struct weft_fabric_config *config)
{
    static const uint32_t policies[WEFT_FABRIC_POLICIES] = {
        [WEFT_FABRIC_FIFO] = 0,
        [WEFT_FABRIC_ORDER] = WEFT_PLAN_ORDER,
        [WEFT_FABRIC_BOUND] = WEFT_PLAN_ORDER | WEFT_PLAN_BOUND,
        [WEFT_FABRIC_AGGREGATION] = WEFT_PLAN_ORDER | WEFT_PLAN_BOUND | WEFT_PLAN_AGGREGATE,
        [WEFT_FABRIC_CUT_THROUGH] =
            WEFT_PLAN_ORDER | WEFT_PLAN_BOUND | WEFT_PLAN_AGGREGATE | WEFT_PLAN_CUT_THROUGH,
        [WEFT_FABRIC_ADMISSION] = WEFT_PLAN_ORDER | WEFT_PLAN_BOUND | WEFT_PLAN_AGGREGATE |
                                  WEFT_PLAN_CUT_THROUGH | WEFT_PLAN_ADMISSION,
        [WEFT_FABRIC_TREE] = WEFT_PLAN_ORDER,
        [WEFT_FABRIC_TREE_CUT_THROUGH] = WEFT_PLAN_ORDER | WEFT_PLAN_CUT_THROUGH,
        [WEFT_FABRIC_TREE_EARLY] = WEFT_PLAN_ORDER | WEFT_PLAN_CUT_THROUGH | WEFT_PLAN_AGGREGATE,
    };
    return policies[config->policy] | (replicates(config) ? (uint32_t)WEFT_PLAN_REPLICATE : 0);
}

static enum weft_planner_mode mode_of(const struct weft_fabric_config *config)
{
    if (weft_fabric_is_all_reduce(config->policy)) {
        return WEFT_PLANNER_ALL_REDUCE;
    }
    return config->mode == WEFT_FABRIC_ASYNC ? WEFT_PLANNER_ASYNC
           : config->mode == WEFT_FABRIC_SSP ? WEFT_PLANNER_SSP
                                             : WEFT_PLANNER_SYNC;
}

/* Every worker's host may aggregate: hosts 0 .. workers - 1. */
void weft_fabric_planner_new(struct weft_fabric *f)
{
    const struct weft_fabric_config *config = &f->config;
    struct weft_planner_config planner;
    struct weft_planner_host *hosts = weft_fabric_zeroed(f->hosts, sizeof(*hosts));
    uint32_t *number = weft_fabric_zeroed(f->hosts, sizeof(*number));
    for (uint32_t h = 0; h < f->hosts; h++) {
        hosts[h].up_bps = weft_fabric_network_payload_bps(f, weft_fabric_up(h));
        hosts[h].down_bps = weft_fabric_network_payload_bps(f, weft_fabric_down(h));
        number[h] = h;
    }
    weft_planner_config_default(&planner);
    planner.mode = mode_of(config);
    planner.policy = policy_of(config);
    planner.hosts = f->hosts;
    planner.host = hosts;
    planner.workers = config->workers;
    planner.worker_host = number;
    planner.servers = planner.mode == WEFT_PLANNER_ALL_REDUCE ? 0 : config->servers;
    planner.server_host = planner.servers > 0 ? number + config->workers : NULL;
    planner.replica_host = replicates(config) ? number + config->workers + config->servers : NULL;
    planner.aggregators = config->workers;
    planner.aggregator_host = number;
    planner.ahead = config->ahead > 0 ? config->ahead : planner.ahead;
    planner.tau_max = config->tau_max;
    planner.read_credits = config->read_credits;
    planner.chunk_bytes = config->chunk_bytes;
    planner.div_max = replicates(config) ? config->div_max : planner.div_max;
    planner.step_size = 1;
    planner.momentum = 0;
    weft_status status = weft_planner_new(&planner, &f->planner);
    if (status != WEFT_OK) {
        weft_fabric_fail(f, "the planner refuses its configuration: %s", weft_status_name(status));
        f->planner = NULL;
    }
    f->plan_at_ns = WEFT_NEVER;
    free(hosts);
    free(number);
}

/* ---- reports --------------------------------------------------------------------------------- */

static void report(struct weft_fabric *f, uint64_t after_ns, struct report what)
{
    struct report *copy = weft_fabric_zeroed(1, sizeof(*copy));
    *copy = what;
    weft_fabric_event(f, f->now_ns + after_ns, WEFT_FABRIC_EVENT_REPORT, what.index, copy);
}

void weft_fabric_report_update(struct weft_fabric *f, uint32_t worker)
{
    const struct weft_fabric_worker *w = &f->workers[worker];
    report(f, f->config.network.delay_ns,
           (struct report){.kind = REPORT_UPDATE,
                           .index = worker,
                           .version = w->base,
                           .clock = w->clock,
                           .norm = w->norm});
}

void weft_fabric_report_read(struct weft_fabric *f, uint32_t worker)
{
    report(f, f->config.network.delay_ns, (struct report){.kind = REPORT_READ, .index = worker});
}

void weft_fabric_report_delivered(struct weft_fabric *f, uint64_t id)
{
    report(f, f->config.network.delay_ns, (struct report){.kind = REPORT_DELIVERED, .id = id});
}

void weft_fabric_report_committed(struct weft_fabric *f, uint32_t worker, double norm)
{
    report(f, f->config.network.delay_ns,
           (struct report){.kind = REPORT_COMMITTED, .index = worker, .norm = norm});
}

void weft_fabric_report_capacity(struct weft_fabric *f, uint32_t link)
{
    report(f, f->config.report_ns,
           (struct report){.kind = REPORT_CAPACITY,
                           .index = link,
                           .capacity_bps = weft_fabric_network_payload_bps(f, link)});
}

static weft_status hand_over(struct weft_fabric *f, const struct report *r)
{
    const struct weft_planner_update update = {
        .worker = r->index,
        .clock = r->clock,
        .bytes = f->config.update_bytes,
        .base_version = r->version,
        .norm = r->norm,
    };
    switch (r->kind) {
    case REPORT_UPDATE:
        return weft_planner_update(f->planner, &update, f->now_ns);
    case REPORT_READ:
        return weft_planner_read(f->planner, r->index, f->config.model_bytes, f->now_ns);
    case REPORT_DELIVERED:
        return weft_planner_delivered(f->planner, r->id, f->now_ns);
    case REPORT_COMMITTED:
        return weft_planner_committed(f->planner, r->index, r->norm, f->now_ns);
    case REPORT_CAPACITY:
        break;
    }
    return weft_planner_capacity(f->planner, r->index / 2, r->index % 2 == 0, r->capacity_bps,
                                 f->now_ns);
}

void weft_fabric_report_comes(struct weft_fabric *f, void *what)
{
    static const char *const names[] = {"update", "read", "delivery", "commit", "capacity"};
    struct report *r = what;
    weft_status status = hand_over(f, r);
    if (status != WEFT_OK) {
        weft_fabric_fail(f, "the planner refuses the report of a %s (%" PRIu32 "): %s",
                         names[r->kind], r->index, weft_status_name(status));
    }
    f->plan_due = true;
    free(r);
}

/* ---- decisions ------------------------------------------------------------------------------- */

static void send_decisions(struct weft_fabric *f)
{
    struct weft_planner_decision decision;
    while (weft_planner_poll(f->planner, &decision)) {
        struct weft_planner_decision *copy = weft_fabric_zeroed(1, sizeof(*copy));
        *copy = decision;
        weft_fabric_event(f, f->now_ns + f->config.network.delay_ns, WEFT_FABRIC_EVENT_DECISION,
                          decision.from_host, copy);
    }
}

void weft_fabric_plan(struct weft_fabric *f)
{
    if (f->planner == NULL || (!f->plan_due && f->plan_at_ns > f->now_ns)) {
        return;
    }
    uint64_t begin_ns = f->config.clock_ns != NULL ? f->config.clock_ns(f->config.clock_arg) : 0;
    weft_planner_plan(f->planner, f->now_ns);
    if (f->config.clock_ns != NULL) {
        weft_hist_add(&f->result->plan_ns, f->config.clock_ns(f->config.clock_arg) - begin_ns);
    }
    f->result->plans++;
    f->plan_due = false;
    send_decisions(f);
    uint64_t deadline_ns = weft_planner_deadline(f->planner);
    f->plan_at_ns = deadline_ns;
    if (deadline_ns != WEFT_NEVER) {
        /* A deadline in the past would stop virtual time. */
        f->plan_at_ns = weft_max_u64(deadline_ns, f->now_ns + 1);
        weft_fabric_event(f, f->plan_at_ns, WEFT_FABRIC_EVENT_PLAN, 0, NULL);
    }
}

static uint32_t transfer_of(const struct weft_fabric *f, uint64_t id)
{
    for (uint32_t i = 0; i < f->transfer_room; i++) {
        if (f->transfers[i].used && f->transfers[i].id == id) {
            return i;
        }
    }
    return WEFT_FABRIC_NOBODY;
}

static const enum weft_fabric_kind kinds[] = {
    [WEFT_PLANNER_GRANT] = WEFT_FABRIC_PUSH,      [WEFT_PLANNER_GRANT_GROUP] = WEFT_FABRIC_GROUP,
    [WEFT_PLANNER_GRANT_READ] = WEFT_FABRIC_READ, [WEFT_PLANNER_REPLICATE] = WEFT_FABRIC_REPLICA,
    [WEFT_PLANNER_REDUCE] = WEFT_FABRIC_REDUCE,   [WEFT_PLANNER_BROADCAST] = WEFT_FABRIC_BROADCAST,
};

/* The effect of a grant on the worker whose update or read it is. */
static void note_grant(struct weft_fabric *f, const struct weft_planner_decision *d)
{
    struct weft_fabric_worker *w = d->worker < f->config.workers ? &f->workers[d->worker] : NULL;
    if (d->kind == WEFT_PLANNER_GRANT) {
        WEFT_ASSERT(w != NULL && w->state == WEFT_FABRIC_PUSHING);
        if (w->sent_ns == WEFT_NEVER) {
            w->sent_ns = weft_max_u64(f->now_ns, d->booking.start_ns);
            w->group = d->group;
        }
    } else if (d->kind == WEFT_PLANNER_GRANT_READ && w->state == WEFT_FABRIC_ASKING) {
        weft_fabric_read_granted(f, d->worker);
    }
}

static void start(struct weft_fabric *f, const struct weft_planner_decision *d)
{
    bool tree = d->kind == WEFT_PLANNER_REDUCE || d->kind == WEFT_PLANNER_BROADCAST;
    struct weft_fabric_transfer transfer = {
        .kind = kinds[d->kind],
        .granted = true,
        .cut_through = d->is_cut_through,
        .from = d->from_host,
        .to = d->to_host,
        .worker = d->worker,
        .server = d->server,
        .members = d->members,
        .tree = d->tree,
        .trees = d->trees,
        .bytes = d->bytes,
        .id = d->transfer,
        /* Rounds of an all-reduce do not overlap. */
        .group = tree ? asked_max + f->result->rounds : d->group,
        /* Earlier grants get credit first. The transfers of one all-reduce run side by side, each
         * at its share of the links, and have the same rank. */
        .rank = tree ? f->result->rounds + 1 : f->started + 1,
        .booking = d->booking,
    };
    if (d->kind == WEFT_PLANNER_GRANT && d->group > 0) {
        transfer.kind = WEFT_FABRIC_MEMBER;
    }
    if (d->kind == WEFT_PLANNER_REPLICATE) {
        transfer.norm = f->shards[d->server].pending;
    }
    (void)weft_fabric_transfer_start(f, &transfer);
}

void weft_fabric_decision_comes(struct weft_fabric *f, void *what)
{
    struct weft_planner_decision *d = what;
    if (d->kind == WEFT_PLANNER_DROP) {
        weft_fabric_dropped(f, d->worker);
    } else if (d->is_revised) {
        uint32_t transfer = transfer_of(f, d->transfer);
        if (transfer !=
            WEFT_FABRIC_NOBODY) { /* otherwise it has arrived, and the report is in flight */
            weft_fabric_transfer_regrant(f, transfer, &d->booking);
        }
    } else {
        note_grant(f, d);
        start(f, d);
    }
    free(d);
}
