/* Admission of reads in real jobs: the planner's order in SSP, and the service with its daemons, in
 * virtual time: which worker may read when, and every way in which a credit is returned. */
#include "sched/daemon.h"
#include "sched/planner.h"
#include "sched/service.h"
#include "sched_exchange.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* ---- the planner ----------------------------------------------------------------------------- */

static struct weft_planner *planner_new(enum weft_planner_mode mode, uint32_t credits)
{
    static const struct weft_planner_host host[5] = {{1000000000, 1000000000},
                                                     {1000000000, 1000000000},
                                                     {1000000000, 1000000000},
                                                     {1000000000, 1000000000},
                                                     {1000000000, 1000000000}};
    static const uint32_t worker_host[] = {0, 1, 2, 3}, server_host[] = {4};
    struct weft_planner *planner;
    struct weft_planner_config config;
    weft_planner_config_default(&config);
    config.mode = mode;
    config.policy = WEFT_PLAN_ORDER | WEFT_PLAN_ADMISSION;
    config.read_credits = credits;
    config.hosts = 5;
    config.workers = 4;
    config.servers = 1;
    config.host = host;
    config.worker_host = worker_host;
    config.server_host = server_host;
    assert_int_equal(weft_planner_new(&config, &planner), WEFT_OK);
    return planner;
}

/* Bitmap of the workers that a plan admits; their reads are delivered. */
static uint32_t admitted(struct weft_planner *planner)
{
    uint32_t bits = 0;
    struct weft_planner_decision d;
    weft_planner_plan_reads(planner, 0);
    while (weft_planner_poll(planner, &d)) {
        assert_int_equal(d.kind, WEFT_PLANNER_GRANT_READ);
        bits |= UINT32_C(1) << d.worker;
        assert_int_equal(weft_planner_delivered(planner, d.transfer, 0), WEFT_OK);
    }
    return bits;
}

static void wants(struct weft_planner *planner, uint32_t worker, uint64_t clock)
{
    assert_int_equal(weft_planner_read_at(planner, worker, clock, 1, 0), WEFT_OK);
}

/* ASP: the oldest request first, never more than there are credits, however far behind a worker is.
 */
static void asp_admits_in_order(void **state)
{
    (void)state;
    struct weft_planner *planner = planner_new(WEFT_PLANNER_ASYNC, 1);
    wants(planner, 2, 9);
    wants(planner, 0, 3);
    wants(planner, 1, 1);
    assert_int_equal(admitted(planner), 1U << 2);
    assert_int_equal(admitted(planner), 0);
    assert_int_equal(weft_planner_read_over(planner, 2, 0), WEFT_OK);
    assert_int_equal(admitted(planner), 1U << 0);
    /* the worker no longer needs the read */
    assert_int_equal(weft_planner_read_over(planner, 1, 0), WEFT_OK);
    assert_int_equal(weft_planner_worker_left(planner, 0, 0), WEFT_OK);
    assert_int_equal(admitted(planner), 0);
    wants(planner, 3, 1);
    assert_int_equal(admitted(planner), 1U << 3);
    weft_planner_free(planner);
}

/* SSP: workers ahead may hold all credits while they wait at the servers for a slower worker; the
 * slower one is admitted nevertheless. */
static void ssp_admits_who_is_behind(void **state)
{
    (void)state;
    struct weft_planner *planner = planner_new(WEFT_PLANNER_SSP, 1);
    wants(planner, 0, 10);
    assert_int_equal(admitted(planner), 1U << 0);
    wants(planner, 1, 11);
    wants(planner, 2, 5);
    wants(planner, 3, 5);
    /* beyond the credits; worker 3 is not behind it */
    assert_int_equal(admitted(planner), 1U << 2);
    assert_int_equal(weft_planner_read_over(planner, 2, 0), WEFT_OK);
    assert_int_equal(admitted(planner), 1U << 3);
    assert_int_equal(weft_planner_read_over(planner, 3, 0), WEFT_OK);
    assert_int_equal(admitted(planner), 0); /* worker 1 is ahead */
    assert_int_equal(weft_planner_read_over(planner, 0, 0), WEFT_OK);
    wants(planner, 0, 10);
    assert_int_equal(admitted(planner), 1U << 0); /* the lowest clock, not the oldest request */
    weft_planner_free(planner);
}

/* A read without a wait counts nevertheless. */
static void an_unadmitted_read_counts(void **state)
{
    (void)state;
    struct weft_planner *planner = planner_new(WEFT_PLANNER_ASYNC, 1);
    const struct weft_planner_counters *c = weft_planner_counters(planner);
    wants(planner, 0, 1);
    assert_int_equal(weft_planner_has_read(planner, 0, 1, 0), WEFT_OK);
    assert_int_equal(weft_planner_has_read(planner, 0, 1, 0), WEFT_DATA);
    assert_int_equal(c->refused_twice, 1);
    wants(planner, 1, 1);
    assert_int_equal(admitted(planner), 0);
    assert_int_equal(weft_planner_read_over(planner, 0, 0), WEFT_OK);
    assert_int_equal(weft_planner_read_over(planner, 0, 0), WEFT_DATA);
    assert_int_equal(weft_planner_read_over(planner, 4, 0), WEFT_DATA);
    assert_int_equal(weft_planner_has_read(planner, 4, 1, 0), WEFT_DATA);
    assert_int_equal(c->refused_unknown, 3);
    assert_int_equal(admitted(planner), 1U << 1);
    /* two reads without admission */
    assert_int_equal(weft_planner_has_read(planner, 2, 1, 0), WEFT_OK);
    assert_int_equal(weft_planner_read_over(planner, 1, 0), WEFT_OK);
    wants(planner, 3, 1);
    assert_int_equal(admitted(planner), 0);
    weft_planner_free(planner);
}

/* ---- a job ----------------------------------------------------------------------------------- */

enum { WORKERS = 3, SHARDS = 2, PROCESSES = WORKERS + SHARDS };

struct job {
    struct weft_sched_service *service;
    struct weft_sched_daemon *daemon[PROCESSES];
    enum weft_sched_mode mode;
    uint64_t tau_max;
    uint64_t now_ns;
    uint64_t opened;
    uint64_t incarnation;
};

static void start_daemon(struct job *job, uint32_t p)
{
    job->daemon[p] = sched_daemon_of(p, WORKERS, SHARDS, job->mode, job->tau_max, 0);
}

static void connect_process(struct job *job, uint32_t p)
{
    const bool is_worker = p < WORKERS;
    weft_sched_service_connected(job->service, p, is_worker ? WEFT_SCHED_WORKER : WEFT_SCHED_SERVER,
                                 is_worker ? p : p - WORKERS, ++job->incarnation);
    weft_sched_daemon_connected(job->daemon[p], job->now_ns);
}

static void start_scheduler(struct job *job, uint32_t credits)
{
    struct weft_sched_service_config config;
    weft_sched_service_config_default(&config);
    config.conns_max = PROCESSES;
    config.life = 1 + job->now_ns;
    config.read_credits = credits;
    assert_int_equal(weft_sched_service_new(&config, &job->service), WEFT_OK);
    for (uint32_t p = 0; p < PROCESSES; p++) {
        connect_process(job, p);
    }
}

static void exchange(struct job *job)
{
    for (int i = 0; i < 3; i++) { /* a report, its effect, and the effect of that */
        sched_exchange(job->service, job->daemon, PROCESSES, job->now_ns);
    }
}

/* Advance time in steps of a heartbeat. */
static void pass(struct job *job, uint64_t span_ns)
{
    for (uint64_t end_ns = job->now_ns + span_ns; job->now_ns < end_ns;) {
        job->now_ns += 200 * WEFT_NS_PER_MS;
        exchange(job);
    }
}

static void begin(struct job *job, enum weft_sched_mode mode, uint64_t tau_max, uint32_t credits)
{
    *job = (struct job){.mode = mode, .tau_max = tau_max, .now_ns = WEFT_NS_PER_S};
    for (uint32_t p = 0; p < PROCESSES; p++) {
        start_daemon(job, p);
    }
    start_scheduler(job, credits);
    exchange(job);
    pass(job, WEFT_NS_PER_S);
}

static void end(struct job *job)
{
    weft_sched_service_free(job->service);
    for (uint32_t p = 0; p < PROCESSES; p++) {
        weft_sched_daemon_free(job->daemon[p]);
    }
}

static void ask_to_read(struct job *job, uint32_t worker, uint64_t clock)
{
    assert_true(weft_sched_daemon_reads_wait(job->daemon[worker]));
    weft_sched_daemon_read(job->daemon[worker], clock, job->now_ns);
    exchange(job);
}

static bool may_read(struct job *job, uint32_t worker)
{
    return weft_sched_daemon_may_read(job->daemon[worker], job->now_ns);
}

static enum weft_sched_answer_kind ask(struct job *job, uint32_t worker, uint64_t clock,
                                       uint64_t base)
{
    struct weft_sched_share shares[SHARDS] = {{.bytes = 100000, .base = base},
                                              {.bytes = 100000, .base = base}};
    struct weft_sched_answer answer;
    weft_sched_daemon_ask(job->daemon[worker], clock, 1, shares, job->now_ns);
    exchange(job);
    assert_true(weft_sched_daemon_answer(job->daemon[worker], job->now_ns, &answer));
    return answer.kind;
}

/* The worker's update opens and closes at all shards. */
static void close_update(struct job *job, uint32_t worker, uint64_t clock)
{
    const struct weft_sched_event event = {.worker = worker, .clock = clock, .norm = 1};
    job->opened++;
    for (uint32_t s = 0; s < SHARDS; s++) {
        weft_sched_daemon_counts(job->daemon[WORKERS + s], job->opened, job->opened);
        weft_sched_daemon_committed(job->daemon[WORKERS + s], &event);
    }
    exchange(job);
}

static uint64_t direct_of(const struct job *job, uint32_t worker)
{
    return weft_sched_daemon_counters(job->daemon[worker])->reads_direct;
}

static void a_commit_returns_the_credit(void **state)
{
    (void)state;
    struct job job;
    begin(&job, WEFT_SCHED_ASP, WEFT_NEVER, 1);
    ask_to_read(&job, 0, 1);
    assert_true(may_read(&job, 0));
    assert_false(may_read(&job, 0)); /* reported once */
    ask_to_read(&job, 1, 1);
    pass(&job, 5 * WEFT_NS_PER_S);
    assert_false(may_read(&job, 1));
    assert_int_equal(ask(&job, 0, 1, 0), WEFT_SCHED_SEND);
    assert_false(may_read(&job, 1));
    /* A worker requests its next read while its update is in progress: it is queued after worker
     * 1. */
    ask_to_read(&job, 0, 2);
    assert_false(may_read(&job, 0));
    close_update(&job, 0, 1);
    assert_true(may_read(&job, 1));
    assert_false(may_read(&job, 0));
    weft_sched_daemon_ended(job.daemon[0]);
    assert_int_equal(ask(&job, 1, 1, 1), WEFT_SCHED_SEND);
    close_update(&job, 1, 1);
    assert_true(may_read(&job, 0));
    assert_int_equal(direct_of(&job, 0) + direct_of(&job, 1), 0);
    const struct weft_sched_daemon_counters *c = weft_sched_daemon_counters(job.daemon[1]);
    assert_int_equal(c->reads_waited, 1);
    assert_true(c->reads_wait_ns >= 5 * WEFT_NS_PER_S);
    end(&job);
}

static void a_drop_returns_the_credit(void **state)
{
    (void)state;
    struct job job;
    begin(&job, WEFT_SCHED_ASP, 1, 1);
    ask_to_read(&job, 0, 1);
    assert_true(may_read(&job, 0));
    ask_to_read(&job, 1, 1);
    for (uint64_t i = 0; i < 3; i++) { /* updates of workers without the scheduler */
        close_update(&job, 2, 1 + i);
    }
    assert_int_equal(ask(&job, 0, 1, 0), WEFT_SCHED_DROP);
    exchange(&job);
    assert_true(may_read(&job, 1));
    end(&job);
}

/* An update unknown to the scheduler, or one that is never made: the worker reports the end of the
 * step. */
static void a_worker_returns_the_credit(void **state)
{
    (void)state;
    struct job job;
    begin(&job, WEFT_SCHED_ASP, WEFT_NEVER, 1);
    ask_to_read(&job, 0, 1);
    assert_true(may_read(&job, 0));
    ask_to_read(&job, 1, 1);
    assert_false(may_read(&job, 1));
    weft_sched_daemon_read_over(job.daemon[0]);
    exchange(&job);
    assert_true(may_read(&job, 1));
    /* The same with a constant clock, for a program that never ends one. */
    ask_to_read(&job, 0, 1);
    assert_false(may_read(&job, 0));
    weft_sched_daemon_read_over(job.daemon[1]);
    weft_sched_daemon_read(job.daemon[1], 1, job.now_ns);
    exchange(&job);
    assert_int_equal(may_read(&job, 0) + may_read(&job, 1), 1);
    end(&job);
}

/* A worker that dies, leaves, or becomes silent. */
static void who_is_gone_keeps_no_credit(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct job job;
        begin(&job, WEFT_SCHED_ASP, WEFT_NEVER, 1);
        ask_to_read(&job, 0, 1);
        ask_to_read(&job, 2, 1);
        assert_true(how == 1 || may_read(&job, 0)); /* or it dies before it has read */
        ask_to_read(&job, 1, 1);
        if (how < 2) {
            weft_sched_daemon_disconnected(job.daemon[0]);
            weft_sched_service_disconnected(job.service, 0, job.now_ns);
            weft_sched_daemon_disconnected(job.daemon[2]); /* the worker waited */
            weft_sched_service_disconnected(job.service, 2, job.now_ns);
            exchange(&job);
        } else { /* only worker 1 and the shards send */
            weft_sched_daemon_disconnected(job.daemon[0]);
            weft_sched_daemon_disconnected(job.daemon[2]);
            pass(&job, 9 * WEFT_NS_PER_S); /* a computing worker may be silent for a long time */
            assert_int_equal(weft_sched_service_counters(job.service)->expired, 1);
            assert_false(may_read(&job, 1));
            pass(&job, 2 * WEFT_NS_PER_S);
            assert_int_equal(weft_sched_service_counters(job.service)->reads_expired, 1);
        }
        exchange(&job);
        assert_true(may_read(&job, 1));
        end(&job);
    }
}

/* A worker has requested its next read and becomes silent while its update is in progress. */
static void who_is_silent_gets_no_credit(void **state)
{
    (void)state;
    struct job job;
    begin(&job, WEFT_SCHED_ASP, WEFT_NEVER, 1);
    ask_to_read(&job, 0, 1);
    assert_true(may_read(&job, 0));
    assert_int_equal(ask(&job, 0, 1, 0), WEFT_SCHED_SEND);
    ask_to_read(&job, 0, 2);
    weft_sched_daemon_disconnected(job.daemon[0]);
    pass(&job, 4 * WEFT_NS_PER_S);
    assert_int_equal(weft_sched_service_counters(job.service)->expired, 1);
    ask_to_read(&job, 1, 1);
    assert_true(may_read(&job, 1));
    end(&job);
}

/* A worker has read for another purpose, and is alive. */
static void a_credit_expires(void **state)
{
    (void)state;
    struct job job;
    begin(&job, WEFT_SCHED_ASP, WEFT_NEVER, 1);
    ask_to_read(&job, 0, 1);
    assert_true(may_read(&job, 0));
    ask_to_read(&job, 1, 1);
    pass(&job, 9 * WEFT_NS_PER_S);
    assert_false(may_read(&job, 1));
    pass(&job, 2 * WEFT_NS_PER_S);
    assert_true(may_read(&job, 1));
    assert_int_equal(weft_sched_service_counters(job.service)->reads_expired, 1);
    /* The worker was computing: its update counts, and its timeout is longer the next time. */
    assert_int_equal(ask(&job, 0, 1, 0), WEFT_SCHED_SEND);
    close_update(&job, 0, 1);
    weft_sched_daemon_ended(job.daemon[0]);
    weft_sched_daemon_read_over(job.daemon[1]);
    ask_to_read(&job, 0, 2);
    assert_true(may_read(&job, 0));
    ask_to_read(&job, 1, 1);
    pass(&job, 20 * WEFT_NS_PER_S);
    assert_false(may_read(&job, 1));
    assert_int_equal(ask(&job, 0, 2, 1), WEFT_SCHED_SEND);
    close_update(&job, 0, 2);
    assert_true(may_read(&job, 1));
    end(&job);
}

/* The scheduler is silent: reads begin, and are counted when it is back. */
static void a_silent_scheduler_stops_nobody(void **state)
{
    (void)state;
    struct job job;
    begin(&job, WEFT_SCHED_ASP, WEFT_NEVER, 1);
    ask_to_read(&job, 0, 1);
    assert_true(may_read(&job, 0));
    ask_to_read(&job, 1, 1);
    struct weft_sched_report unheard;
    for (int i = 0; i < 4; i++) {
        job.now_ns += 200 * WEFT_NS_PER_MS;
        (void)weft_sched_daemon_poll(job.daemon[1], job.now_ns, &unheard);
        assert_false(may_read(&job, 1));
    }
    job.now_ns += 400 * WEFT_NS_PER_MS;
    assert_true(weft_sched_daemon_silence(job.daemon[1]) <= job.now_ns);
    assert_true(may_read(&job, 1));
    assert_false(weft_sched_daemon_reads_wait(job.daemon[1])); /* nor do the next reads */
    assert_int_equal(direct_of(&job, 1), 1);
    assert_int_equal(weft_sched_daemon_counters(job.daemon[1])->timeouts, 1);
    /* A restarted scheduler learns from the reports which worker has read, and admits no other. */
    weft_sched_service_free(job.service);
    for (uint32_t p = 0; p < PROCESSES; p++) {
        weft_sched_daemon_disconnected(job.daemon[p]);
    }
    start_scheduler(&job, 2);
    exchange(&job);
    pass(&job, WEFT_NS_PER_S);
    ask_to_read(&job, 2, 1);
    pass(&job, WEFT_NS_PER_S);
    assert_false(may_read(&job, 2));
    weft_sched_daemon_read_over(job.daemon[0]);
    exchange(&job);
    assert_true(may_read(&job, 2));
    assert_int_equal(direct_of(&job, 2), 0);
    end(&job);
}

/* A scheduler that replies without admitting, and one that replies to an earlier request. */
static void a_daemon_waits_for_its_own_admission(void **state)
{
    (void)state;
    struct weft_sched_daemon_config config;
    struct weft_sched_daemon *daemon;
    struct weft_sched_report report;
    uint8_t bytes[WEFT_SCHED_PLAN_BYTES_MAX];
    weft_sched_daemon_config_default(&config);
    config.role = WEFT_SCHED_WORKER;
    config.workers = config.shards = 1;
    config.mode = WEFT_SCHED_ASP;
    assert_int_equal(weft_sched_daemon_new(&config, &daemon), WEFT_OK);
    uint64_t now_ns = WEFT_NS_PER_S;
    weft_sched_daemon_connected(daemon, now_ns);
    assert_true(weft_sched_daemon_poll(daemon, now_ns, &report));
    struct weft_sched_plan plan = {
        .number = 1, .life = 1, .report = 1, .flags = WEFT_SCHED_ADMITS, .admitted = 4};
#define TAKE() weft_sched_daemon_plan(daemon, bytes, weft_sched_plan_pack(&plan, bytes), now_ns)
    assert_true(TAKE());
    assert_true(weft_sched_daemon_reads_wait(daemon));
    weft_sched_daemon_read(daemon, 4, now_ns);
    plan.number++; /* from before the request: about an old read 4 */
    assert_true(TAKE());
    assert_false(weft_sched_daemon_may_read(daemon, now_ns));
    assert_true(weft_sched_daemon_poll(daemon, now_ns, &report));
    assert_int_equal(report.read, 4);
    assert_int_equal(report.flags & WEFT_SCHED_READING, 0);
    plan.number++;
    assert_true(TAKE()); /* sent while the request was in flight */
    assert_false(weft_sched_daemon_may_read(daemon, now_ns));
    plan = (struct weft_sched_plan){
        .number = 4, .life = 1, .report = 2, .flags = WEFT_SCHED_ADMITS, .admitted = 3};
    assert_true(TAKE());
    assert_false(weft_sched_daemon_may_read(daemon, now_ns));
    plan.number++;
    plan.admitted = 4;
    assert_true(TAKE());
    assert_true(weft_sched_daemon_may_read(daemon, now_ns));
    /* Never admitted. */
    weft_sched_daemon_read(daemon, 5, now_ns);
    const uint64_t begin_ns = now_ns;
    plan.admitted = 0;
    while (!weft_sched_daemon_may_read(daemon, now_ns)) {
        now_ns += 200 * WEFT_NS_PER_MS;
        assert_true(now_ns <= begin_ns + 31 * WEFT_NS_PER_S);
        plan.report += weft_sched_daemon_poll(daemon, now_ns, &report);
        plan.number++;
        assert_true(TAKE());
    }
    assert_true(now_ns >= begin_ns + 30 * WEFT_NS_PER_S);
    assert_int_equal(weft_sched_daemon_counters(daemon)->reads_direct, 1);
    assert_true(weft_sched_daemon_poll(daemon, now_ns + WEFT_NS_PER_S, &report));
    assert_int_equal(report.flags & WEFT_SCHED_READING, WEFT_SCHED_READING);
    /* The scheduler no longer has credits: all waiting reads begin. */
    weft_sched_daemon_read(daemon, 6, now_ns);
    plan.flags = 0;
    plan.number++;
    assert_true(TAKE());
    assert_true(weft_sched_daemon_may_read(daemon, now_ns));
    weft_sched_daemon_free(daemon);
}

/* Without credits, and in BSP: workers get no read flags, and reports have the old format. */
static void without_credits_nobody_waits(void **state)
{
    (void)state;
    struct job job;
    begin(&job, WEFT_SCHED_ASP, WEFT_NEVER, 0);
    assert_false(weft_sched_daemon_reads_wait(job.daemon[0]));
    struct weft_sched_report report;
    static uint8_t bytes[WEFT_SCHED_REPORT_BYTES_MAX];
    const uint8_t zero[8] = {0};
    job.now_ns += WEFT_NS_PER_S;
    assert_true(weft_sched_daemon_poll(job.daemon[0], job.now_ns, &report));
    size_t size = weft_sched_report_pack(&report, bytes);
    assert_int_equal(bytes[5], 0); /* flags */
    assert_memory_equal(bytes + 72, zero, sizeof(zero));
    assert_true(weft_sched_service_report(job.service, 0, bytes, size, job.now_ns));
    struct weft_sched_plan plan;
    uint32_t conn;
    assert_true(weft_sched_service_poll(job.service, job.now_ns, &conn, &plan));
    (void)weft_sched_plan_pack(&plan, bytes);
    assert_int_equal(bytes[14], 0);
    assert_memory_equal(bytes + 48, zero, sizeof(zero));
    end(&job);
    begin(&job, WEFT_SCHED_BSP, WEFT_NEVER, 2);
    assert_false(weft_sched_daemon_reads_wait(job.daemon[0]));
    end(&job);
}

/* A worker pushes without having used its requested read: its update is planned nevertheless. */
static void who_pushes_does_not_wait(void **state)
{
    (void)state;
    struct job job;
    begin(&job, WEFT_SCHED_ASP, WEFT_NEVER, 1);
    ask_to_read(&job, 0, 1);
    assert_true(may_read(&job, 0));
    ask_to_read(&job, 1, 1);
    assert_int_equal(ask(&job, 1, 1, 0), WEFT_SCHED_SEND);
    assert_int_equal(weft_sched_service_counters(job.service)->unplanned, 0);
    weft_sched_daemon_read_over(job.daemon[1]);
    close_update(&job, 1, 1);
    assert_int_equal(ask(&job, 0, 1, 0), WEFT_SCHED_SEND);
    close_update(&job, 0, 1);
    ask_to_read(&job, 2, 1);
    assert_true(may_read(&job, 2));
    end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asp_admits_in_order),
        cmocka_unit_test(ssp_admits_who_is_behind),
        cmocka_unit_test(an_unadmitted_read_counts),
        cmocka_unit_test(a_commit_returns_the_credit),
        cmocka_unit_test(a_drop_returns_the_credit),
        cmocka_unit_test(a_worker_returns_the_credit),
        cmocka_unit_test(who_is_gone_keeps_no_credit),
        cmocka_unit_test(who_is_silent_gets_no_credit),
        cmocka_unit_test(a_credit_expires),
        cmocka_unit_test(a_silent_scheduler_stops_nobody),
        cmocka_unit_test(a_daemon_waits_for_its_own_admission),
        cmocka_unit_test(without_credits_nobody_waits),
        cmocka_unit_test(who_pushes_does_not_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
