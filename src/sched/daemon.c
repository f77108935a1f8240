#include "sched/daemon.h"

#include "base/assert.h"
#include "sched/planner.h"

#include <stdlib.h>
#include <string.h>

/* Maximum wait of an update after the scheduler replied "waiting", as a multiple of silent_ns. */
enum { QUEUED_TIMEOUTS = 30 };

enum ask_state {
    ASK_NONE,    /* no request, or completed */
    ASK_WAITING, /* requested, no reply yet */
    ASK_GRANTED,
    ASK_DROPPED,
    ASK_DIRECT,
};

enum read_state {
    READ_NONE,
    READ_WAITING,
    READ_BEGUN,
};

struct weft_sched_daemon {
    struct weft_sched_daemon_config config;
    struct weft_sched_daemon_counters counters;
    bool is_connected;
    bool is_silent; /* the scheduler has timed out; until its next message */
    bool is_queued; /* the scheduler replied that the update is waiting */
    bool is_due;
    uint32_t number_in;
    uint32_t number_out;
    uint64_t heartbeat_ns; /* time of the next report */
    uint64_t unheard_ns;   /* time of the oldest report or request without a reply; WEFT_NEVER =
                            * none */
    uint16_t status;
    uint64_t direct_bps;

    enum ask_state state;
    uint64_t clock;
    uint64_t ended;
    double norm;
    uint64_t asked_ns;
    bool is_told;   /* a DROP or SEND_DIRECT was returned */
    bool is_direct; /* reported as sent; later grants of this scheduler are ignored */
    uint8_t why;
    uint32_t aggregators;
    uint32_t reached;
    uint64_t revision;
    uint32_t grants;
    uint32_t grants_told;
    struct weft_sched_share shares[WEFT_SCHED_SHARDS_MAX];
    struct weft_sched_answer answers[WEFT_SCHED_SHARDS_MAX];

    bool admits; /* the last plan of this connection: reads need an admission */
    bool is_admitted;
    enum read_state read_state;
    uint64_t read; /* its clock; 0 = NONE */
    uint64_t read_ns;
    uint32_t read_report; /* number of the first report of this connection that requests it; 0 =
                           * none yet */

    uint32_t transfer; /* 0 = none */
    uint64_t transfer_bytes;
    uint64_t transfer_ns;        /* time since when it waits; WEFT_NEVER = it does not */
    uint32_t transfer_granted;   /* number of the last transfer that was granted */

    uint64_t opened;
    uint64_t closed;
    uint64_t made;                   /* total number of events */
    uint64_t taken;                  /* events acknowledged by the scheduler, or discarded */
    struct weft_sched_event *events; /* a ring of EVENTS_KEPT: event n is at n % EVENTS_KEPT */
};

void weft_sched_daemon_config_default(struct weft_sched_daemon_config *config_p)
{
    *config_p = (struct weft_sched_daemon_config){.shards = 1,
                                                  .tau_max = WEFT_NEVER,
                                                  .silent_ns = WEFT_NS_PER_S,
                                                  .heartbeat_ns = 200 * WEFT_NS_PER_MS};
}

weft_status weft_sched_daemon_new(const struct weft_sched_daemon_config *config,
                                  struct weft_sched_daemon **daemon_p)
{
    bool is_worker = config->role == WEFT_SCHED_WORKER;
    if ((!is_worker && config->role != WEFT_SCHED_SERVER) || config->shards == 0 ||
        config->shards > WEFT_SCHED_SHARDS_MAX || config->workers > WEFT_SCHED_WORKERS_MAX ||
        config->index >= (is_worker ? config->workers : config->shards)) {
        return WEFT_INVALID;
    }
    struct weft_sched_daemon *daemon = calloc(1, sizeof(*daemon));
    if (daemon == NULL) {
        return WEFT_NOMEM;
    }
    daemon->events = is_worker ? NULL : calloc(WEFT_SCHED_EVENTS_KEPT, sizeof(*daemon->events));
    if (!is_worker && daemon->events == NULL) {
        free(daemon);
        return WEFT_NOMEM;
    }
    daemon->config = *config;
    daemon->unheard_ns = WEFT_NEVER;
    daemon->transfer_ns = WEFT_NEVER;
    *daemon_p = daemon;
    return WEFT_OK;
}

void weft_sched_daemon_free(struct weft_sched_daemon *daemon)
{
    if (daemon != NULL) {
        free(daemon->events);
        free(daemon);
    }
}

const struct weft_sched_daemon_counters *
weft_sched_daemon_counters(const struct weft_sched_daemon *daemon)
{
    return &daemon->counters;
}

uint16_t weft_sched_daemon_status(const struct weft_sched_daemon *daemon)
{
    return daemon->status;
}

/* ---- the connection -------------------------------------------------------------------------- */

void weft_sched_daemon_connected(struct weft_sched_daemon *daemon, uint64_t now_ns)
{
    daemon->is_connected = true;
    daemon->is_due = true;
    daemon->number_in = daemon->number_out = 0;
    daemon->read_report = 0;
    daemon->admits = false;
    daemon->heartbeat_ns = now_ns;
}

/* The next connection may be to another scheduler, which did not grant an update that is being
 * sent. */
void weft_sched_daemon_disconnected(struct weft_sched_daemon *daemon)
{
    daemon->is_connected = daemon->admits = false;
    daemon->is_direct |= daemon->state == ASK_GRANTED;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static void take_grants(struct weft_sched_daemon *daemon, const struct weft_sched_plan *plan,
                        uint64_t now_ns)
{
    daemon->revision = plan->revision;
    daemon->grants = plan->count;
    daemon->grants_told = 0;
    for (uint32_t i = 0; i < plan->count; i++) {
        const struct weft_sched_grant *grant = &plan->grants[i];
        daemon->answers[i] =
            (struct weft_sched_answer){.kind = WEFT_SCHED_SEND,
                                       .clock = daemon->clock,
                                       .shard = grant->shard,
                                       .rank = grant->rank,
                                       .start_ns = weft_time_add(now_ns, grant->start_in_ns),
                                       .hop = plan->hop,
                                       .group = plan->group,
                                       .members = grant->members,
                                       .rate_bps = grant->rate_bps};
    }
}

/* Whether the grants cover exactly the shards with a nonempty share. */
static bool grants_fit(const struct weft_sched_daemon *daemon, const struct weft_sched_plan *plan)
{
    uint32_t at = 0;
    for (uint32_t s = 0; s < daemon->config.shards; s++) {
        if (daemon->shares[s].bytes > 0 && (at == plan->count || plan->grants[at++].shard != s)) {
            return false;
        }
    }
    return at == plan->count;
}

static void answered(struct weft_sched_daemon *daemon, enum ask_state state, uint64_t now_ns)
{
    daemon->state = state;
    daemon->is_told = false;
    daemon->is_direct |= state == ASK_DIRECT;
    daemon->counters.granted += state == ASK_GRANTED;
    daemon->counters.dropped += state == ASK_DROPPED;
    daemon->counters.direct += state == ASK_DIRECT;
    daemon->counters.wait_ns += now_ns - weft_min_u64(daemon->asked_ns, now_ns);
    daemon->is_due |= state == ASK_DIRECT;
}

static void take_verdict(struct weft_sched_daemon *daemon, const struct weft_sched_plan *plan,
                         uint64_t now_ns)
{
    bool is_waiting = daemon->state == ASK_WAITING;
    if (plan->clock != daemon->clock || plan->clock == 0 || daemon->is_direct) {
        return;
    }
    if (plan->verdict == WEFT_SCHED_GRANTED && grants_fit(daemon, plan) &&
        plan->hop <= daemon->aggregators &&
        (is_waiting || (daemon->state == ASK_GRANTED && plan->revision > daemon->revision))) {
        take_grants(daemon, plan, now_ns);
        if (is_waiting) {
            answered(daemon, ASK_GRANTED, now_ns);
        }
    } else if (plan->verdict == WEFT_SCHED_DROPPED && is_waiting) {
        daemon->why = plan->why;
        answered(daemon, ASK_DROPPED, now_ns);
    } else if (plan->verdict == WEFT_SCHED_UNPLANNED && is_waiting) {
        answered(daemon, ASK_DIRECT, now_ns);
    } else if (plan->verdict == WEFT_SCHED_WAITING && plan->status == WEFT_SCHED_OK) {
        daemon->is_queued = true;
    }
}

/* Process the admission in a plan. A plan that was sent before the request arrived contains no
 * decision about it. */
static void take_admission(struct weft_sched_daemon *daemon, const struct weft_sched_plan *plan)
{
    daemon->admits = (plan->flags & WEFT_SCHED_ADMITS) != 0;
    daemon->is_admitted |= daemon->read_state == READ_WAITING && plan->admitted == daemon->read &&
                           daemon->read_report != 0 && plan->report >= daemon->read_report;
}

/* True if the worker waits for a decision. */
static bool is_waiting(const struct weft_sched_daemon *daemon)
{
    return daemon->state == ASK_WAITING || daemon->read_state == READ_WAITING;
}

bool weft_sched_daemon_plan(struct weft_sched_daemon *daemon, const uint8_t *bytes, size_t count,
                            uint64_t now_ns)
{
    struct weft_sched_plan plan;
    if (!daemon->is_connected || weft_sched_plan_unpack(bytes, count, &plan) != WEFT_OK ||
        plan.number <= daemon->number_in || plan.report > daemon->number_out) {
        daemon->counters.plans_refused++;
        return false;
    }
    daemon->number_in = plan.number;
    daemon->is_silent = false;
    daemon->unheard_ns = WEFT_NEVER;
    daemon->status = plan.status;
    daemon->direct_bps = plan.direct_bps;
    if ((plan.flags & WEFT_SCHED_MAY_TRANSFER) != 0) {
        daemon->transfer_granted = plan.group;
    }
    if (daemon->config.role == WEFT_SCHED_WORKER) {
        take_verdict(daemon, &plan, now_ns);
        take_admission(daemon, &plan);
        if (is_waiting(daemon)) { /* the scheduler replies but has not decided yet, which may take
                                   * long */
            daemon->unheard_ns = now_ns;
        }
        if (daemon->state == ASK_WAITING && plan.status != WEFT_SCHED_OK &&
            plan.status != WEFT_SCHED_INCOMPLETE) {
            answered(daemon, ASK_DIRECT, now_ns);
        }
    } else if (plan.taken > daemon->taken && plan.taken <= daemon->made) {
        daemon->taken = plan.taken;
        daemon->is_due |= daemon->made > daemon->taken;
    }
    return true;
}

/* ---- reports --------------------------------------------------------------------------------- */

static void fill_worker(const struct weft_sched_daemon *daemon, struct weft_sched_report *q)
{
    q->mode = daemon->config.mode;
    q->tau_max = daemon->config.tau_max;
    q->ended = daemon->ended;
    q->clock = daemon->clock;
    q->aggregators = daemon->aggregators;
    q->reached = daemon->reached;
    q->read = daemon->read;
    q->flags |= daemon->read_state == READ_BEGUN ? WEFT_SCHED_READING : 0;
    if (daemon->clock != 0) {
        q->norm = daemon->norm;
        q->count = daemon->config.shards;
        bool is_sending = daemon->is_direct || daemon->state == ASK_GRANTED;
        q->flags |= is_sending ? WEFT_SCHED_SENDING : 0;
        memcpy(q->shares, daemon->shares, q->count * sizeof(q->shares[0]));
    }
}

static void fill_shard(const struct weft_sched_daemon *daemon, struct weft_sched_report *q)
{
    uint64_t left = daemon->made - daemon->taken;
    q->host = daemon->config.host;
    q->transfer = daemon->transfer;
    q->transfer_bytes = daemon->transfer_bytes;
    q->flags |= daemon->transfer_ns != WEFT_NEVER ? WEFT_SCHED_TRANSFER_WAITS : 0;
    q->opened = daemon->opened;
    q->closed = daemon->closed;
    q->count = (uint32_t)weft_min_u64(left, WEFT_SCHED_EVENTS_MAX);
    q->first = q->count > 0 ? daemon->taken + 1 : 0;
    for (uint32_t i = 0; i < q->count; i++) {
        q->events[i] = daemon->events[(q->first + i) % WEFT_SCHED_EVENTS_KEPT];
    }
}

bool weft_sched_daemon_poll(struct weft_sched_daemon *daemon, uint64_t now_ns,
                            struct weft_sched_report *report_p)
{
    const struct weft_sched_daemon_config *config = &daemon->config;
    if (!daemon->is_connected || !(daemon->is_due || now_ns >= daemon->heartbeat_ns)) {
        return false;
    }
    *report_p = (struct weft_sched_report){.number = ++daemon->number_out,
                                           .role = config->role,
                                           .index = config->index,
                                           .workers = config->workers,
                                           .shards = config->shards,
                                           .up_bps = config->up_bps,
                                           .down_bps = config->down_bps};
    memcpy(report_p->job, config->job, sizeof(report_p->job));
    if (config->role == WEFT_SCHED_WORKER) {
        fill_worker(daemon, report_p);
        if (daemon->read_state == READ_WAITING && daemon->read_report == 0) {
            daemon->read_report = report_p->number;
        }
    } else {
        fill_shard(daemon, report_p);
    }
    daemon->is_due = false;
    daemon->heartbeat_ns = weft_time_add(now_ns, config->heartbeat_ns);
    daemon->unheard_ns = weft_min_u64(daemon->unheard_ns, now_ns);
    return true;
}

void weft_sched_daemon_unsent(struct weft_sched_daemon *daemon)
{
    daemon->heartbeat_ns = 0;
}

bool weft_sched_daemon_has_news(const struct weft_sched_daemon *daemon)
{
    return daemon->made > daemon->taken;
}

/* Time at which a worker stops waiting for a decision, even if the scheduler replies. A scheduler
 * that never decides, for example because a shard of the job does not report to it, must not stop
 * the job. */
static uint64_t decide_by(const struct weft_sched_daemon *daemon)
{
    uint64_t times = daemon->is_queued ? QUEUED_TIMEOUTS : 1;
    return weft_time_add(daemon->asked_ns, times * daemon->config.silent_ns);
}

static uint64_t silent_at(const struct weft_sched_daemon *daemon)
{
    return weft_time_add(daemon->unheard_ns, daemon->config.silent_ns);
}

/* The same time for a read. */
static uint64_t admit_by(const struct weft_sched_daemon *daemon)
{
    return weft_time_add(daemon->read_ns, QUEUED_TIMEOUTS * daemon->config.silent_ns);
}

uint64_t weft_sched_daemon_silence(const struct weft_sched_daemon *daemon)
{
    uint64_t until_ns = WEFT_NEVER;
    if (daemon->state == ASK_WAITING) {
        until_ns = decide_by(daemon);
    }
    if (daemon->read_state == READ_WAITING) {
        bool may_begin = daemon->is_admitted || !weft_sched_daemon_reads_wait(daemon);
        until_ns = may_begin ? 0 : weft_min_u64(until_ns, admit_by(daemon));
    }
    if (!is_waiting(daemon)) {
        return WEFT_NEVER;
    }
    return daemon->is_silent ? 0 : weft_min_u64(silent_at(daemon), until_ns);
}

/* Time at which a transfer no longer waits, because its updates are not durable yet: some time
 * after its request, or at once if the scheduler has timed out. */
static uint64_t transfer_by(const struct weft_sched_daemon *daemon)
{
    const bool waits = daemon->transfer_ns != WEFT_NEVER;
    const uint64_t by_ns = weft_time_add(daemon->transfer_ns, daemon->config.silent_ns);
    return waits ? weft_min_u64(by_ns, silent_at(daemon)) : WEFT_NEVER;
}

uint64_t weft_sched_daemon_deadline(const struct weft_sched_daemon *daemon)
{
    uint64_t due_ns = !daemon->is_connected ? WEFT_NEVER
                      : daemon->is_due      ? 0
                                            : daemon->heartbeat_ns;
    due_ns = weft_min_u64(due_ns, transfer_by(daemon));
    return weft_min_u64(due_ns, weft_sched_daemon_silence(daemon));
}

/* ---- a worker -------------------------------------------------------------------------------- */

void weft_sched_daemon_ask(struct weft_sched_daemon *daemon, uint64_t clock, double norm,
                           const struct weft_sched_share *shares, uint64_t now_ns)
{
    WEFT_ASSERT(daemon->config.role == WEFT_SCHED_WORKER && clock > daemon->clock);
    memcpy(daemon->shares, shares, daemon->config.shards * sizeof(shares[0]));
    for (uint32_t s = 0; s < daemon->config.shards; s++) {
        daemon->shares[s].span_ns = 0;
    }
    daemon->ended = daemon->clock;
    daemon->clock = clock;
    daemon->norm = norm;
    daemon->state = ASK_WAITING;
    daemon->asked_ns = now_ns;
    daemon->is_queued = false;
    daemon->is_direct = false;
    daemon->grants = daemon->grants_told = 0;
    daemon->revision = 0;
    daemon->is_due = true;
    daemon->unheard_ns = weft_min_u64(daemon->unheard_ns, now_ns);
    daemon->counters.asked++;
}

void weft_sched_daemon_aggregators(struct weft_sched_daemon *daemon, uint32_t count,
                                   uint32_t reached)
{
    WEFT_ASSERT(count <= WEFT_SCHED_AGGREGATORS_MAX && (uint64_t)reached >> count == 0);
    daemon->is_due |= count != daemon->aggregators || reached != daemon->reached;
    daemon->aggregators = count;
    daemon->reached = reached;
}

static void look_for_silence(struct weft_sched_daemon *daemon, uint64_t now_ns)
{
    if (is_waiting(daemon) && !daemon->is_silent && now_ns >= silent_at(daemon)) {
        daemon->is_silent = true;
        daemon->counters.timeouts++;
    }
    if (daemon->state == ASK_WAITING && (daemon->is_silent || now_ns >= decide_by(daemon))) {
        answered(daemon, ASK_DIRECT, now_ns);
    }
}

bool weft_sched_daemon_reads_wait(const struct weft_sched_daemon *daemon)
{
    return daemon->is_connected && daemon->admits && !daemon->is_silent;
}

void weft_sched_daemon_read(struct weft_sched_daemon *daemon, uint64_t clock, uint64_t now_ns)
{
    WEFT_ASSERT(daemon->config.role == WEFT_SCHED_WORKER && clock != 0);
    if (daemon->read_state != READ_NONE && daemon->read == clock) {
        return;
    }
    daemon->read_state = READ_WAITING;
    daemon->read = clock;
    daemon->read_ns = now_ns;
    daemon->read_report = 0;
    daemon->is_admitted = false;
    daemon->is_due = true;
    daemon->unheard_ns = weft_min_u64(daemon->unheard_ns, now_ns);
    daemon->counters.reads_waited++;
}

bool weft_sched_daemon_may_read(struct weft_sched_daemon *daemon, uint64_t now_ns)
{
    look_for_silence(daemon, now_ns);
    if (daemon->read_state != READ_WAITING ||
        !(daemon->is_admitted || !weft_sched_daemon_reads_wait(daemon) ||
          now_ns >= admit_by(daemon))) {
        return false;
    }
    daemon->read_state = READ_BEGUN; /* the next report contains it; no reply is needed */
    daemon->counters.reads_direct += !daemon->is_admitted;
    daemon->counters.reads_wait_ns += now_ns - weft_min_u64(daemon->read_ns, now_ns);
    return true;
}

void weft_sched_daemon_read_over(struct weft_sched_daemon *daemon)
{
    daemon->is_due |= daemon->read_state != READ_NONE;
    daemon->read_state = READ_NONE;
    daemon->read = 0;
}

bool weft_sched_daemon_answer(struct weft_sched_daemon *daemon, uint64_t now_ns,
                              struct weft_sched_answer *answer_p)
{
    look_for_silence(daemon, now_ns);
    if (daemon->state == ASK_GRANTED && daemon->grants_told < daemon->grants) {
        *answer_p = daemon->answers[daemon->grants_told++];
        return true;
    }
    if ((daemon->state != ASK_DROPPED && daemon->state != ASK_DIRECT) || daemon->is_told) {
        return false;
    }
    bool is_drop = daemon->state == ASK_DROPPED;
    *answer_p =
        (struct weft_sched_answer){.kind = is_drop ? WEFT_SCHED_DROP : WEFT_SCHED_SEND_DIRECT,
                                   .clock = daemon->clock,
                                   .rate_bps = is_drop ? 0 : daemon->direct_bps,
                                   .why = is_drop ? daemon->why : 0};
    daemon->is_told = true;
    return true;
}

void weft_sched_daemon_delivered(struct weft_sched_daemon *daemon, uint32_t shard, uint64_t span_ns)
{
    WEFT_ASSERT(shard < daemon->config.shards);
    daemon->shares[shard].span_ns = weft_max_u64(span_ns, 1);
    daemon->is_due = true;
}

void weft_sched_daemon_ended(struct weft_sched_daemon *daemon)
{
    daemon->state = ASK_NONE;
    daemon->ended = daemon->clock;
    daemon->is_due = true;
}

/* ---- a shard --------------------------------------------------------------------------------- */

void weft_sched_daemon_counts(struct weft_sched_daemon *daemon, uint64_t opened, uint64_t closed)
{
    daemon->is_due |= opened != daemon->opened || closed != daemon->closed;
    daemon->opened = opened;
    daemon->closed = closed;
}

void weft_sched_daemon_committed(struct weft_sched_daemon *daemon,
                                 const struct weft_sched_event *event)
{
    WEFT_ASSERT(daemon->events != NULL);
    daemon->events[++daemon->made % WEFT_SCHED_EVENTS_KEPT] = *event;
    if (daemon->made - daemon->taken > WEFT_SCHED_EVENTS_KEPT) {
        daemon->taken++;
        daemon->counters.events_lost++;
    }
    daemon->is_due = true;
}

void weft_sched_daemon_transfer(struct weft_sched_daemon *daemon, uint32_t number, bool waits,
                                uint64_t bytes, uint64_t now_ns)
{
    const bool waited = daemon->transfer_ns != WEFT_NEVER;
    if (number == daemon->transfer && waits == waited) {
        return;
    }
    daemon->counters.transfers += waits;
    daemon->transfer = number;
    daemon->transfer_bytes =
        number == 0 ? 0 : weft_min_u64(weft_max_u64(bytes, 1), WEFT_PLANNER_BYTES_MAX);
    daemon->transfer_ns = waits ? now_ns : WEFT_NEVER;
    daemon->is_due = true;
}

bool weft_sched_daemon_may_transfer(struct weft_sched_daemon *daemon, uint64_t now_ns)
{
    const bool is_granted = daemon->transfer_granted == daemon->transfer;
    if (daemon->transfer_ns == WEFT_NEVER ||
        !(is_granted || !daemon->is_connected || now_ns >= transfer_by(daemon))) {
        return false;
    }
    daemon->transfer_ns = WEFT_NEVER;
    daemon->is_due = true;
    daemon->counters.transfers_direct += !is_granted;
    return true;
}
