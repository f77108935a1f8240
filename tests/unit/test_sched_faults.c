/* A scheduled job whose messages are lost, duplicated and reordered, whose scheduler is killed,
 * frozen and restarted, and whose workers are killed: hundreds of runs in virtual time, one seed
 * each.
 *
 * Always: an update gets exactly one decision in bounded time. A worker is never told to drop an
 * update that it is sending. A scheduler commits an update at most once, and commits only updates
 * that a worker sent. Without faults: every update is granted or dropped, none waits for a timeout,
 * and no shard has a delay above tau_max. After the faults: the scheduler plans again. The same
 * seed gives the same run.
 *
 * In two of three jobs reads are admitted by credits; in SSP a read then also waits at the shards
 * for slower workers. A read begins in bounded time; without faults each is admitted, and no more
 * workers than credits are between read and commit, in SSP a few more. */
#include "base/hash_key.h"
#include "base/prng.h"
#include "sched/daemon.h"
#include "sched/service.h"
#include "sched_exchange.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    WORKERS = 6,
    SHARDS = 3,
    PROCESSES = WORKERS + SHARDS,
    MESSAGES = 512,
};

static const uint64_t tick_ns = WEFT_NS_PER_MS;
/* Longest wait for a decision: a worker that died after its grant expires after 3 s. */
static const uint64_t wait_ns_max = 60 * WEFT_NS_PER_S;

struct message {
    uint64_t at_ns; /* 0 = free */
    uint32_t process;
    uint32_t generation; /* generation of the connection */
    bool to_scheduler;
    size_t count;
    uint8_t bytes[WEFT_SCHED_REPORT_BYTES_MAX];
};

enum { STALENESS = 2 };

/* TESTING: evaluates its model between two steps, without a credit; READING: waits for admission;
 * LOADING: waits for the shards. */
enum phase { TESTING, READING, LOADING, COMPUTING, ASKING, SENDING };

struct worker {
    enum phase phase;
    uint64_t until_ns; /* TESTING, COMPUTING: end; ASKING, READING: start */
    bool is_admitted;  /* its read was admitted while the scheduler required admission */
    bool is_small;     /* its update is not requested */
    bool asks_early;   /* it requests its next read while its update is in progress */
    uint64_t clock;
    uint64_t base[SHARDS];
    struct {
        bool is_to_send, is_begun, is_done;
        uint64_t start_ns, rate_bps, end_ns;
    } part[SHARDS];
    bool was_granted;
    uint64_t planned_after_heal; /* grants and drops after the faults */
    uint64_t dead_until_ns;
};

struct process {
    struct weft_sched_daemon *daemon;
    bool is_connected;
    uint32_t generation;
    uint64_t connect_ns;
    uint64_t incarnation;
};

struct job {
    struct weft_prng prng;
    uint64_t now_ns;
    uint32_t workers, shards;
    uint64_t tau_max;
    enum weft_sched_mode mode;
    uint32_t credits; /* 0 = reads do not wait */
    bool has_small;   /* some updates request no grant; the bound would not hold for the others */
    bool has_faults;
    uint32_t loss_ppm, repeat_ppm;
    uint64_t delay_ns_max;
    uint64_t heal_ns;
    struct weft_sched_service *service; /* NULL = dead */
    uint64_t service_up_ns;             /* dead: time of the restart */
    uint64_t frozen_until_ns;
    uint64_t life;
    struct process process[PROCESSES];
    struct worker worker[WORKERS];
    uint64_t opened[SHARDS], closed[SHARDS];
    uint64_t link_free_ns[SHARDS];
    struct message message[MESSAGES];
    uint64_t hash;
    uint64_t granted, dropped, direct, late, sent; /* true counts */
    /* granted and closed updates in this life of the scheduler */
    uint64_t sent_in_life;
    uint64_t longest_wait_ns, longest_read_ns;
    uint64_t reads, reads_admitted, reads_expired, reads_direct;
    uint64_t kills, freezes, deaths, commits;
};

static bool chance(struct job *job, uint32_t ppm)
{
    return weft_prng_below(&job->prng, WEFT_PPM) < ppm;
}

static void note(struct job *job, uint64_t value)
{
    job->hash = weft_mix64(job->hash ^ value);
}

/* ---- the network ----------------------------------------------------------------------------- */

static void put(struct job *job, uint32_t process, bool to_scheduler, const uint8_t *bytes,
                size_t count)
{
    uint32_t copies = chance(job, job->loss_ppm) ? 0 : chance(job, job->repeat_ppm) ? 2 : 1;
    for (uint32_t i = 0; i < MESSAGES && copies > 0; i++) {
        struct message *m = &job->message[i];
        if (m->at_ns == 0) {
            *m = (struct message){.at_ns = job->now_ns + tick_ns +
                                           weft_prng_below(&job->prng, job->delay_ns_max),
                                  .process = process,
                                  .generation = job->process[process].generation,
                                  .to_scheduler = to_scheduler,
                                  .count = count};
            memcpy(m->bytes, bytes, count);
            copies--;
        }
    }
    assert_true(copies == 0 || count > 0);
}

static bool is_serving(const struct job *job)
{
    return job->service != NULL && job->now_ns >= job->frozen_until_ns;
}

static void break_connection(struct job *job, uint32_t p)
{
    struct process *process = &job->process[p];
    if (process->is_connected) {
        process->is_connected = false;
        process->generation++;
        process->connect_ns = job->now_ns + 100 * WEFT_NS_PER_MS;
        weft_sched_daemon_disconnected(process->daemon);
        if (job->service != NULL) {
            weft_sched_service_disconnected(job->service, p, job->now_ns);
        }
    }
}

static void connect_process(struct job *job, uint32_t p)
{
    struct process *process = &job->process[p];
    bool is_worker = p < job->workers;
    process->is_connected = true;
    weft_sched_service_connected(job->service, p, is_worker ? WEFT_SCHED_WORKER : WEFT_SCHED_SERVER,
                                 is_worker ? p : p - job->workers, process->incarnation);
    weft_sched_daemon_connected(process->daemon, job->now_ns);
}

static void deliver(struct job *job)
{
    for (uint32_t i = 0; i < MESSAGES; i++) {
        struct message *m = &job->message[i];
        struct process *process = &job->process[m->process];
        if (m->at_ns == 0 || m->at_ns > job->now_ns ||
            (m->to_scheduler && !is_serving(job) && job->service != NULL)) {
            continue;
        }
        bool is_current = process->is_connected && m->generation == process->generation;
        if (is_current && m->to_scheduler && job->service != NULL) {
            (void)weft_sched_service_report(job->service, m->process, m->bytes, m->count,
                                            job->now_ns);
        } else if (is_current && !m->to_scheduler) {
            (void)weft_sched_daemon_plan(process->daemon, m->bytes, m->count, job->now_ns);
        }
        m->at_ns = 0;
    }
}

/* ---- processes ------------------------------------------------------------------------------- */

static void start_daemon(struct job *job, uint32_t p)
{
    job->process[p].incarnation++;
    job->process[p].daemon = sched_daemon_of(p, job->workers, job->shards, job->mode, job->tau_max,
                                             UINT64_C(1000000000));
}

static void start_scheduler(struct job *job)
{
    struct weft_sched_service_config config;
    weft_sched_service_config_default(&config);
    config.conns_max = PROCESSES;
    config.life = ++job->life;
    config.read_credits = job->credits;
    job->sent_in_life = 0;
    assert_int_equal(weft_sched_service_new(&config, &job->service), WEFT_OK);
}

/* Compare a scheduler's counts with the updates sent during its life. */
static void end_scheduler(struct job *job)
{
    const struct weft_planner *planner = weft_sched_service_planner(job->service);
    if (planner != NULL) {
        const struct weft_planner_counters *c = weft_planner_counters(planner);
        assert_true(c->commits <= c->granted);
        job->commits += c->commits;
        if (!job->has_faults) {
            assert_true(job->mode == WEFT_SCHED_BSP || c->delay_max <= job->tau_max);
            assert_true(c->commits + job->workers >= job->sent_in_life);
            assert_true(c->commits <= job->sent_in_life);
        }
    }
    job->reads_expired += weft_sched_service_counters(job->service)->reads_expired;
    weft_sched_service_free(job->service);
    job->service = NULL;
}

/* Number of admitted workers between read and commit. */
static uint32_t admitted_now(const struct job *job)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < job->workers; i++) {
        const struct worker *w = &job->worker[i];
        count += w->is_admitted && w->phase != READING && w->phase != TESTING;
    }
    return count;
}

/* SSP: the shards hold the reply until the slowest worker is at most STALENESS clocks behind. */
static bool shards_reply(const struct job *job, const struct worker *w)
{
    for (uint32_t i = 0; job->mode == WEFT_SCHED_SSP && i < job->workers; i++) {
        if (job->worker[i].clock + STALENESS < w->clock) {
            return false;
        }
    }
    return true;
}

static void load_model(struct job *job, struct worker *w)
{
    for (uint32_t s = 0; s < job->shards; s++) {
        w->base[s] = job->opened[s];
    }
    /* Some workers keep their credit for a long time without an update. */
    bool is_idle = job->credits > 0 && job->mode == WEFT_SCHED_ASP && chance(job, 2000);
    w->phase = COMPUTING;
    w->until_ns = job->now_ns + weft_prng_range(&job->prng, 1, 60) * WEFT_NS_PER_MS +
                  (is_idle ? 12 * WEFT_NS_PER_S : 0);
}

static void read_model(struct job *job, struct worker *w)
{
    struct weft_sched_daemon *daemon = job->process[w - job->worker].daemon;
    w->is_admitted = false;
    if (!weft_sched_daemon_reads_wait(daemon)) {
        w->phase = LOADING;
        return;
    }
    w->phase = READING;
    w->until_ns = job->now_ns;
    weft_sched_daemon_read(daemon, w->clock + 1, job->now_ns);
    job->reads++;
}

static void begin_read(struct job *job, struct worker *w)
{
    struct weft_sched_daemon *daemon = job->process[w - job->worker].daemon;
    uint64_t direct = weft_sched_daemon_counters(daemon)->reads_direct;
    if (!weft_sched_daemon_may_read(daemon, job->now_ns)) {
        return;
    }
    uint64_t wait_ns = job->now_ns - w->until_ns;
    job->longest_read_ns = weft_max_u64(job->longest_read_ns, wait_ns);
    assert_true(wait_ns <= wait_ns_max);
    w->is_admitted = weft_sched_daemon_counters(daemon)->reads_direct == direct;
    job->reads_admitted += w->is_admitted;
    job->reads_direct += !w->is_admitted;
    w->phase = LOADING;
    note(job, 99 << 8 | (uint64_t)(w - job->worker));
    if (!job->has_faults) {
        assert_true(w->is_admitted);
        /* Only if no worker has expired: an expired worker continues without a credit. */
        assert_true(weft_sched_service_counters(job->service)->reads_expired > 0 ||
                    admitted_now(job) <=
                        job->credits + (job->mode == WEFT_SCHED_SSP ? STALENESS + 1 : 0));
    }
}

static void ask(struct job *job, uint32_t i)
{
    struct worker *w = &job->worker[i];
    struct weft_sched_share shares[SHARDS] = {0};
    for (uint32_t s = 0; s < job->shards; s++) {
        bool is_empty = s > 0 && chance(job, 200000);
        shares[s].bytes = is_empty ? 0 : weft_prng_range(&job->prng, 100000, 3000000);
        shares[s].base = w->base[s];
        memset(&w->part[s], 0, sizeof(w->part[s]));
        w->part[s].is_done = is_empty;
        w->part[s].end_ns = shares[s].bytes; /* stores the number of bytes until the part begins */
    }
    w->phase = ASKING;
    w->until_ns = job->now_ns;
    w->was_granted = false;
    w->clock++;
    w->asks_early = chance(job, 500000);
    w->is_small = job->has_small && chance(job, 200000);
    if (w->is_small) {
        for (uint32_t s = 0; s < job->shards; s++) {
            w->part[s].is_to_send = !w->part[s].is_done;
            w->part[s].start_ns = job->now_ns;
            w->part[s].rate_bps = 1000000000;
        }
        w->phase = SENDING;
        return;
    }
    weft_sched_daemon_ask(job->process[i].daemon, w->clock, 1.0, shares, job->now_ns);
}

static void answered(struct job *job, uint32_t i, const struct weft_sched_answer *answer)
{
    struct worker *w = &job->worker[i];
    assert_int_equal(answer->clock, w->clock);
    note(job, answer->kind << 8 | i);
    if (w->phase == ASKING) {
        uint64_t wait_ns = job->now_ns - w->until_ns;
        job->longest_wait_ns = weft_max_u64(job->longest_wait_ns, wait_ns);
        if (wait_ns > wait_ns_max) {
            fail_msg("worker %u waited %llu ms", i, (unsigned long long)(wait_ns / WEFT_NS_PER_MS));
        }
        assert_true(job->has_faults || answer->kind != WEFT_SCHED_SEND_DIRECT ||
                    job->now_ns < 2 * WEFT_NS_PER_S);
        job->granted += answer->kind == WEFT_SCHED_SEND;
        job->dropped += answer->kind == WEFT_SCHED_DROP;
        job->direct += answer->kind == WEFT_SCHED_SEND_DIRECT;
        w->was_granted = answer->kind == WEFT_SCHED_SEND;
        w->planned_after_heal +=
            job->now_ns > job->heal_ns && answer->kind != WEFT_SCHED_SEND_DIRECT;
    } else {
        assert_int_equal(answer->kind, WEFT_SCHED_SEND); /* a new rate for an update in flight */
    }
    if (answer->kind == WEFT_SCHED_DROP) {
        assert_true(job->mode != WEFT_SCHED_BSP);
        weft_sched_daemon_ended(job->process[i].daemon);
        weft_sched_daemon_read_over(job->process[i].daemon);
        read_model(job, w);
        return;
    }
    w->phase = SENDING;
    if (w->asks_early && weft_sched_daemon_reads_wait(job->process[i].daemon)) {
        weft_sched_daemon_read(job->process[i].daemon, w->clock + 1, job->now_ns);
    }
    for (uint32_t s = 0; s < job->shards; s++) {
        bool is_meant = answer->kind == WEFT_SCHED_SEND_DIRECT || answer->shard == s;
        if (is_meant && !w->part[s].is_begun && !w->part[s].is_done) {
            w->part[s].is_to_send = true;
            w->part[s].start_ns = answer->start_ns;
            w->part[s].rate_bps = answer->rate_bps != 0 ? answer->rate_bps : 1000000000;
        }
    }
}

static void begin_part(struct job *job, uint32_t i, uint32_t s)
{
    struct worker *w = &job->worker[i];
    uint64_t took_ns = weft_transfer_ns(w->part[s].end_ns, w->part[s].rate_bps);
    uint64_t delay = job->opened[s] - w->base[s];
    w->part[s].is_begun = true;
    w->part[s].end_ns = job->now_ns + took_ns + weft_prng_below(&job->prng, took_ns / 4 + 1);
    if (w->was_granted && job->mode != WEFT_SCHED_BSP && delay > job->tau_max) {
        job->late++; /* the shard refuses it */
    }
    job->opened[s]++;
}

static void end_part(struct job *job, uint32_t i, uint32_t s)
{
    struct worker *w = &job->worker[i];
    struct weft_sched_daemon *shard = job->process[job->workers + s].daemon;
    w->part[s].is_done = true;
    job->closed[s]++;
    const struct weft_sched_event event = {.worker = i, .clock = w->clock, .norm = 1};
    weft_sched_daemon_committed(shard, &event);
    weft_sched_daemon_delivered(job->process[i].daemon, s, 1 + job->now_ns - w->part[s].start_ns);
}

static void work(struct job *job, uint32_t i)
{
    struct worker *w = &job->worker[i];
    struct weft_sched_answer answer;
    if (job->now_ns < w->dead_until_ns) {
        return;
    }
    while (weft_sched_daemon_answer(job->process[i].daemon, job->now_ns, &answer)) {
        answered(job, i, &answer);
    }
    if (w->phase == TESTING && job->now_ns >= w->until_ns) {
        read_model(job, w);
    }
    if (w->phase == READING) {
        begin_read(job, w);
    }
    if (w->phase == LOADING && shards_reply(job, w)) {
        load_model(job, w);
    }
    if (w->phase == COMPUTING && job->now_ns >= w->until_ns) {
        ask(job, i);
    }
    bool all_done = w->phase == SENDING;
    for (uint32_t s = 0; w->phase == SENDING && s < job->shards; s++) {
        if (w->part[s].is_to_send && !w->part[s].is_begun && job->now_ns >= w->part[s].start_ns) {
            begin_part(job, i, s);
        }
        if (w->part[s].is_begun && !w->part[s].is_done && job->now_ns >= w->part[s].end_ns) {
            end_part(job, i, s);
        }
        all_done &= w->part[s].is_done;
    }
    if (all_done) {
        job->sent++;
        job->sent_in_life += w->was_granted;
        if (!w->is_small) {
            weft_sched_daemon_ended(job->process[i].daemon);
        }
        if (w->is_small || !w->asks_early) {
            weft_sched_daemon_read_over(job->process[i].daemon);
            if (job->mode == WEFT_SCHED_SSP && job->credits > 0 && chance(job, 30000)) {
                w->phase = TESTING;
                w->until_ns = job->now_ns + 400 * WEFT_NS_PER_MS;
                return;
            }
        }
        read_model(job, w);
    }
}

/* The shards close what was begun, as after RESUME; the next process of the rank starts again. */
static void kill_worker(struct job *job, uint32_t i)
{
    struct worker *w = &job->worker[i];
    for (uint32_t s = 0; s < job->shards; s++) {
        job->closed[s] += w->phase == SENDING && w->part[s].is_begun && !w->part[s].is_done;
    }
    break_connection(job, i);
    weft_sched_daemon_free(job->process[i].daemon);
    start_daemon(job, i);
    w->dead_until_ns = job->now_ns + weft_prng_below(&job->prng, 2 * WEFT_NS_PER_S);
    job->process[i].connect_ns = w->dead_until_ns;
    w->clock = job->mode == WEFT_SCHED_SSP ? w->clock : 0; /* the shards report the clock */
    read_model(job, w);
    job->deaths++;
}

static void kill_scheduler(struct job *job)
{
    for (uint32_t p = 0; p < job->workers + job->shards; p++) {
        struct process *process = &job->process[p];
        if (process->is_connected) {
            process->is_connected = false;
            process->generation++;
            process->connect_ns = job->now_ns + 100 * WEFT_NS_PER_MS;
            weft_sched_daemon_disconnected(process->daemon);
        }
    }
    end_scheduler(job);
    job->service_up_ns = job->now_ns + weft_prng_below(&job->prng, 4 * WEFT_NS_PER_S);
    job->kills++;
}

static void make_trouble(struct job *job)
{
    if (!job->has_faults || job->now_ns > job->heal_ns || !chance(job, 3000)) {
        return;
    }
    switch (weft_prng_below(&job->prng, 4)) {
    case 0:
        if (job->service != NULL) {
            kill_scheduler(job);
        }
        break;
    case 1:
        job->frozen_until_ns = job->now_ns + weft_prng_below(&job->prng, 5 * WEFT_NS_PER_S);
        job->freezes++;
        break;
    case 2:
        kill_worker(job, (uint32_t)weft_prng_below(&job->prng, job->workers));
        break;
    default:
        break_connection(job, (uint32_t)weft_prng_below(&job->prng, job->workers + job->shards));
        break;
    }
}

static void schedule(struct job *job)
{
    uint8_t bytes[WEFT_SCHED_REPORT_BYTES_MAX];
    struct weft_sched_plan plan;
    uint32_t conn;
    if (job->service == NULL && job->now_ns >= job->service_up_ns) {
        start_scheduler(job);
    }
    if (!is_serving(job)) {
        return;
    }
    if (weft_sched_service_is_ready(job->service)) {
        assert_int_equal(weft_sched_job_new(job->service), WEFT_OK);
    }
    weft_sched_service_progress(job->service, job->now_ns);
    while (weft_sched_service_poll(job->service, job->now_ns, &conn, &plan)) {
        put(job, conn, false, bytes, weft_sched_plan_pack(&plan, bytes));
    }
}

static void step(struct job *job)
{
    static struct weft_sched_report report;
    uint8_t bytes[WEFT_SCHED_REPORT_BYTES_MAX];
    make_trouble(job);
    schedule(job);
    for (uint32_t p = 0; p < job->workers + job->shards; p++) {
        struct process *process = &job->process[p];
        if (!process->is_connected && is_serving(job) && job->now_ns >= process->connect_ns) {
            connect_process(job, p);
        }
        if (p < job->workers) {
            work(job, p);
        } else {
            weft_sched_daemon_counts(process->daemon, job->opened[p - job->workers],
                                     job->closed[p - job->workers]);
        }
        while (weft_sched_daemon_poll(process->daemon, job->now_ns, &report)) {
            put(job, p, true, bytes, weft_sched_report_pack(&report, bytes));
        }
    }
    deliver(job);
    job->now_ns += tick_ns;
}

static bool is_over(const struct job *job)
{
    bool over = job->now_ns > job->heal_ns + 10 * WEFT_NS_PER_S;
    for (uint32_t i = 0; i < job->workers; i++) {
        over &= job->worker[i].planned_after_heal >= 5 && job->worker[i].clock >= 10;
    }
    return over;
}

static void draw(struct job *job, uint64_t seed, bool has_faults)
{
    weft_prng_split(&job->prng, seed, UINT64_C(0x7363686564));
    job->workers = (uint32_t)weft_prng_range(&job->prng, 2, WORKERS);
    job->shards = (uint32_t)weft_prng_range(&job->prng, 1, SHARDS);
    job->mode = (enum weft_sched_mode)weft_prng_below(&job->prng, 3);
    job->tau_max = job->workers - 1 + weft_prng_below(&job->prng, job->workers);
    job->has_faults = has_faults;
    job->loss_ppm = has_faults ? (uint32_t)weft_prng_below(&job->prng, 200000) : 0;
    job->repeat_ppm = has_faults ? (uint32_t)weft_prng_below(&job->prng, 200000) : 0;
    job->delay_ns_max = weft_prng_range(&job->prng, 1, has_faults ? 30 : 3) * WEFT_NS_PER_MS;
    job->heal_ns = has_faults ? 12 * WEFT_NS_PER_S : 0;
    job->life = seed << 8;
    job->credits = (uint32_t)weft_prng_below(&job->prng, 3) == 0
                       ? 0
                       : (uint32_t)weft_prng_range(&job->prng, 1, job->workers);
    job->has_small = job->credits > 0 && chance(job, 500000);
    job->tau_max = job->has_small ? WEFT_NEVER : job->tau_max;
}

static struct job *run(uint64_t seed, bool has_faults)
{
    struct job *job = calloc(1, sizeof(*job));
    assert_non_null(job);
    draw(job, seed, has_faults);
    start_scheduler(job);
    for (uint32_t p = 0; p < job->workers + job->shards; p++) {
        start_daemon(job, p);
    }
    for (uint32_t i = 0; i < job->workers; i++) {
        read_model(job, &job->worker[i]);
    }
    while (!is_over(job)) {
        step(job);
        if (job->now_ns > job->heal_ns + 120 * WEFT_NS_PER_S) {
            print_message("seed %llu\n", (unsigned long long)seed);
            fail_msg("a worker waits for ever");
        }
    }
    if (job->service != NULL) {
        end_scheduler(job);
    }
    for (uint32_t p = 0; p < job->workers + job->shards; p++) {
        weft_sched_daemon_free(job->process[p].daemon);
    }
    return job;
}

static void healthy_jobs(void **state)
{
    (void)state;
    uint64_t granted = 0, dropped = 0, reads = 0, expired = 0, longest_ns = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct job *job = run(seed, false);
        assert_int_equal(job->late, 0);
        granted += job->granted;
        dropped += job->dropped;
        reads += job->reads_admitted;
        expired += job->reads_expired;
        longest_ns = weft_max_u64(longest_ns, job->longest_read_ns);
        assert_true(job->reads_admitted + job->workers >= job->reads);
        if (job->mode == WEFT_SCHED_SSP) { /* no worker waits for a credit to expire */
            assert_int_equal(job->reads_expired, 0);
            assert_true(job->longest_read_ns < 3 * WEFT_NS_PER_S);
        }
        free(job);
    }
    print_message("# %llu granted, %llu dropped; %llu reads, %llu expired, longest wait %llu ms\n",
                  (unsigned long long)granted, (unsigned long long)dropped,
                  (unsigned long long)reads, (unsigned long long)expired,
                  (unsigned long long)(longest_ns / WEFT_NS_PER_MS));
    assert_true(granted > 10000 && reads > 5000);
}

static void faults(void **state)
{
    (void)state;
    uint64_t kills = 0, freezes = 0, deaths = 0, direct = 0, granted = 0, longest_ns = 0;
    uint64_t reads = 0, reads_direct = 0, reads_ns = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct job *job = run(seed, true);
        kills += job->kills;
        freezes += job->freezes;
        deaths += job->deaths;
        direct += job->direct;
        granted += job->granted;
        longest_ns = weft_max_u64(longest_ns, job->longest_wait_ns);
        reads += job->reads_admitted;
        reads_direct += job->reads_direct;
        reads_ns = weft_max_u64(reads_ns, job->longest_read_ns);
        free(job);
    }
    print_message("# %llu kills, %llu freezes of the scheduler, %llu deaths of workers; %llu "
                  "granted, %llu direct, longest wait %llu ms\n",
                  (unsigned long long)kills, (unsigned long long)freezes,
                  (unsigned long long)deaths, (unsigned long long)granted,
                  (unsigned long long)direct, (unsigned long long)(longest_ns / WEFT_NS_PER_MS));
    print_message("# reads: %llu admitted, %llu not, longest wait %llu ms\n",
                  (unsigned long long)reads, (unsigned long long)reads_direct,
                  (unsigned long long)(reads_ns / WEFT_NS_PER_MS));
    assert_true(reads > 10000 && reads_direct > 100);
    assert_true(kills > 100 && freezes > 100 && deaths > 100 && direct > 100 && granted > 10000);
}

static void same_seed_same_run(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct job *one = run(seed, true), *two = run(seed, true);
        assert_int_equal(one->hash, two->hash);
        assert_int_equal(one->now_ns, two->now_ns);
        free(one);
        free(two);
    }
}

/* The scheduler replies every 200 ms without a decision. Returns the time when the worker was told
 * to send directly. */
static uint64_t direct_after(enum weft_sched_verdict verdict, uint16_t status, uint64_t most_ns)
{
    struct weft_sched_daemon_config config;
    weft_sched_daemon_config_default(&config);
    config.role = WEFT_SCHED_WORKER;
    config.workers = config.shards = 1;
    config.mode = WEFT_SCHED_ASP;
    (void)snprintf(config.job, sizeof(config.job), "job");
    struct weft_sched_daemon *daemon;
    assert_int_equal(weft_sched_daemon_new(&config, &daemon), WEFT_OK);
    const struct weft_sched_share share = {.bytes = 100000};
    uint64_t now_ns = WEFT_NS_PER_S;
    weft_sched_daemon_connected(daemon, now_ns);
    weft_sched_daemon_ask(daemon, 1, 1, &share, now_ns);
    struct weft_sched_answer answer;
    struct weft_sched_plan plan = {.life = 1, .verdict = verdict, .status = status};
    plan.clock = verdict == WEFT_SCHED_NONE ? 0 : 1;
    while (!weft_sched_daemon_answer(daemon, now_ns, &answer)) {
        assert_true(now_ns < WEFT_NS_PER_S + most_ns);
        struct weft_sched_report report;
        plan.report += weft_sched_daemon_poll(daemon, now_ns, &report);
        plan.number++;
        uint8_t bytes[WEFT_SCHED_PLAN_BYTES_MAX];
        size_t count = weft_sched_plan_pack(&plan, bytes);
        assert_true(weft_sched_daemon_plan(daemon, bytes, count, now_ns));
        now_ns = weft_min_u64(weft_sched_daemon_silence(daemon), now_ns + 200 * WEFT_NS_PER_MS);
    }
    assert_int_equal(answer.kind, WEFT_SCHED_SEND_DIRECT);
    assert_int_equal(weft_sched_daemon_counters(daemon)->timeouts, 0);
    weft_sched_daemon_free(daemon);
    return now_ns - WEFT_NS_PER_S;
}

/* The scheduler replies, so it is not silent; a worker still stops waiting for a decision that
 * never arrives. */
static void who_never_decides_is_not_waited_for(void **state)
{
    (void)state;
    static const uint64_t s = WEFT_NS_PER_S;
    assert_int_equal(direct_after(WEFT_SCHED_NONE, WEFT_SCHED_OK, 2 * s), s);
    assert_int_equal(direct_after(WEFT_SCHED_WAITING, WEFT_SCHED_INCOMPLETE, 2 * s), s);
    assert_int_equal(direct_after(WEFT_SCHED_WAITING, WEFT_SCHED_OK, 40 * s), 30 * s);
}

/* Updates whose base version no shard has reported yet: they are planned when the reports arrive,
 * and refused if these do not arrive in time. Meanwhile nothing is tried again unless a report
 * changes the counts. */
static void held_updates_wait_for_reports(void **state)
{
    enum { LATE = WORKERS - 1 }; /* the worker whose base version no shard reaches */
    (void)state;
    struct weft_sched_service_config config;
    struct weft_sched_service *service;
    struct weft_sched_daemon *daemons[PROCESSES];
    uint64_t now_ns = WEFT_NS_PER_S;
    weft_sched_service_config_default(&config);
    config.life = 1;
    config.workers = WORKERS;
    config.shards = SHARDS;
    assert_int_equal(weft_sched_service_new(&config, &service), WEFT_OK);
    for (uint32_t p = 0; p < PROCESSES; p++) {
        const bool is_worker = p < WORKERS;
        daemons[p] = sched_daemon_of(p, WORKERS, SHARDS, WEFT_SCHED_ASP, WEFT_NEVER, 0);
        weft_sched_daemon_connected(daemons[p], now_ns);
        weft_sched_service_connected(service, p, is_worker ? WEFT_SCHED_WORKER : WEFT_SCHED_SERVER,
                                     is_worker ? p : p - WORKERS, 1);
        if (!is_worker) {
            weft_sched_daemon_counts(daemons[p], 5, 5);
        }
    }
    sched_exchange(service, daemons, PROCESSES, now_ns);
    for (uint32_t w = 0; w < WORKERS; w++) {
        struct weft_sched_share shares[SHARDS];
        for (uint32_t s = 0; s < SHARDS; s++) {
            shares[s] = (struct weft_sched_share){.bytes = 1000, .base = w == LATE ? 100 : 9};
        }
        weft_sched_daemon_ask(daemons[w], 1, 1, shares, now_ns);
    }
    sched_exchange(service, daemons, PROCESSES, now_ns);
    const struct weft_sched_service_counters *c = weft_sched_service_counters(service);
    const uint64_t before = c->retried;
    for (int i = 0; i < 100; i++) {
        now_ns += WEFT_NS_PER_MS;
        weft_sched_service_progress(service, now_ns);
    }
    assert_int_equal(c->retried, before);
    assert_int_equal(c->updates, WORKERS);
    for (uint32_t s = 0; s < SHARDS; s++) {
        weft_sched_daemon_counts(daemons[WORKERS + s], 9, 9);
    }
    now_ns += 200 * WEFT_NS_PER_MS; /* the daemons report */
    sched_exchange(service, daemons, PROCESSES, now_ns);
    assert_int_equal(c->retried, before + WORKERS);
    const struct weft_planner *planner = weft_sched_service_planner(service);
    assert_int_equal(weft_planner_counters(planner)->updates, WORKERS - 1);
    assert_int_equal(c->unplanned, 0);
    assert_true(weft_sched_service_deadline(service) <= now_ns + 200 * WEFT_NS_PER_MS);
    now_ns += 200 * WEFT_NS_PER_MS;
    sched_exchange(service, daemons, PROCESSES, now_ns);
    assert_int_equal(c->unplanned, 1);
    assert_int_equal(c->refused_version, 1);
    for (uint32_t p = 0; p < PROCESSES; p++) {
        weft_sched_daemon_free(daemons[p]);
    }
    weft_sched_service_free(service);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(healthy_jobs),
        cmocka_unit_test(faults),
        cmocka_unit_test(same_seed_same_run),
        cmocka_unit_test(who_never_decides_is_not_waited_for),
        cmocka_unit_test(held_updates_wait_for_reports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
