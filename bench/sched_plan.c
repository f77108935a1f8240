/* Time of the transfer planner for an event and the plan after it.
 *
 *   sched_plan [--smoke] [--events N] [--seed N]
 *
 * A closed loop in virtual time: every worker reads, computes for a random time and pushes 1 MB,
 * over links of 10 Gbit/s; one worker in ten has 1 Gbit/s. Transfers take exactly the planned time.
 * The mean compute time is the time in which the servers' links carry the pushes of half of the
 * workers, so that about half of the workers wait. A measurement is one event: an update, a
 * delivery, a commit with the read request after it, or a deadline of the planner. It includes
 * weft_planner_plan, all weft_planner_poll after it, and the cost of reading the clock.
 *
 * One row for each combination of workers, servers and policy: median, 99 % quantile and maximum
 * over the events, without the first tenth (warm-up). `burst` is the time of the first requests of
 * all workers and one plan after them.
 */
#define _GNU_SOURCE
#include "base/prng.h"
#include "sched/planner.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WORKERS_MAX = 1000, SERVERS_MAX = 4, AGGREGATORS = 8, TRANSFERS_MAX = 16000, GROUPS = 64 };

#define GBIT UINT64_C(1000000000)

struct job {
    struct weft_planner *planner;
    struct weft_prng prng;
    uint32_t workers;
    uint32_t servers;
    uint64_t now_ns;
    uint64_t compute_ns;
    uint64_t *took_ns; /* of the events, in order */
    uint32_t events;
    uint64_t compute_until_ns[WORKERS_MAX];
    uint32_t left[WORKERS_MAX];
    uint64_t base[WORKERS_MAX];
    uint64_t clock[WORKERS_MAX];
    struct weft_planner_decision transfers[TRANSFERS_MAX];
    uint32_t count;
    struct {
        uint64_t id;
        uint32_t members[WORKERS_MAX];
        uint32_t count;
        uint32_t servers_left;
    } groups[GROUPS];
};

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * WEFT_NS_PER_S + (uint64_t)t.tv_nsec;
}

static void must(weft_status status, const char *what)
{
    if (status != WEFT_OK) {
        fprintf(stderr, "sched_plan: %s: %s\n", what, weft_status_text(status));
        exit(1);
    }
}

/* ---- the job --------------------------------------------------------------------------------- */

static uint32_t group_of(struct job *job, uint64_t id)
{
    uint32_t found = 0;
    for (uint32_t g = 0; g < GROUPS; g++) {
        if (job->groups[g].id == id) {
            return g;
        }
        found = job->groups[g].id == 0 ? g : found;
    }
    job->groups[found].id = id;
    job->groups[found].count = 0;
    job->groups[found].servers_left = job->servers;
    return found;
}

static void compute(struct job *job, uint32_t worker)
{
    job->compute_until_ns[worker] =
        job->now_ns + weft_prng_range(&job->prng, job->compute_ns / 2, job->compute_ns * 3 / 2);
}

static void decided(struct job *job, const struct weft_planner_decision *d)
{
    if (d->kind == WEFT_PLANNER_DROP) {
        must(weft_planner_read(job->planner, d->worker, 1000000, job->now_ns), "read");
        return;
    }
    if (d->kind == WEFT_PLANNER_GRANT_READ) {
        job->base[d->worker] = weft_planner_version(job->planner);
        job->left[d->worker] += 1;
    } else if (d->kind == WEFT_PLANNER_GRANT) {
        job->left[d->worker] += 1;
        if (d->group != 0) {
            uint32_t g = group_of(job, d->group);
            job->groups[g].members[job->groups[g].count++] = d->worker;
        }
    }
    if (job->count == TRANSFERS_MAX) {
        fprintf(stderr, "sched_plan: more than %d transfers\n", TRANSFERS_MAX);
        exit(1);
    }
    job->transfers[job->count++] = *d;
}

/* After one report: plan, and poll all decisions. began_ns: time before the report. */
static void plan(struct job *job, uint64_t began_ns)
{
    static struct weft_planner_decision decisions[TRANSFERS_MAX];
    uint32_t count = 0;
    weft_planner_plan(job->planner, job->now_ns);
    while (count < TRANSFERS_MAX && weft_planner_poll(job->planner, &decisions[count])) {
        count++;
    }
    job->took_ns[job->events++] = clock_ns() - began_ns;
    for (uint32_t i = 0; i < count; i++) {
        decided(job, &decisions[i]);
    }
}

static void commit(struct job *job, uint32_t worker)
{
    uint64_t began_ns = clock_ns();
    must(weft_planner_committed(job->planner, worker, -1, job->now_ns), "committed");
    must(weft_planner_read(job->planner, worker, 1000000, job->now_ns), "read");
    plan(job, began_ns);
}

static void push(struct job *job, uint32_t worker)
{
    struct weft_planner_update update = {.worker = worker,
                                         .clock = job->clock[worker]++,
                                         .bytes = 1000000,
                                         .base_version = job->base[worker],
                                         .norm = 1};
    job->compute_until_ns[worker] = WEFT_NEVER;
    uint64_t began_ns = clock_ns();
    must(weft_planner_update(job->planner, &update, job->now_ns), "update");
    plan(job, began_ns);
}

static void deliver(struct job *job, uint32_t idx)
{
    struct weft_planner_decision d = job->transfers[idx];
    job->transfers[idx] = job->transfers[--job->count];
    uint64_t began_ns = clock_ns();
    must(weft_planner_delivered(job->planner, d.transfer, job->now_ns), "delivered");
    plan(job, began_ns);
    if (d.kind == WEFT_PLANNER_GRANT_READ && --job->left[d.worker] == 0) {
        compute(job, d.worker);
    } else if (d.kind == WEFT_PLANNER_GRANT && --job->left[d.worker] == 0 && d.group == 0) {
        commit(job, d.worker);
    } else if (d.kind == WEFT_PLANNER_GRANT_GROUP) {
        uint32_t g = group_of(job, d.group);
        for (uint32_t i = 0; --job->groups[g].servers_left == 0 && i < job->groups[g].count; i++) {
            job->groups[g].servers_left = 1;
            commit(job, job->groups[g].members[i]);
            job->groups[g].id = i + 1 == job->groups[g].count ? 0 : job->groups[g].id;
        }
    }
}

static void step(struct job *job)
{
    uint64_t next_ns = weft_planner_deadline(job->planner);
    uint32_t transfer = UINT32_MAX, worker = UINT32_MAX;
    for (uint32_t i = 0; i < job->count; i++) {
        if (job->transfers[i].booking.end_ns <= next_ns) {
            next_ns = job->transfers[i].booking.end_ns;
            transfer = i;
        }
    }
    for (uint32_t w = 0; w < job->workers; w++) {
        if (job->compute_until_ns[w] < next_ns) {
            next_ns = job->compute_until_ns[w];
            worker = w;
        }
    }
    job->now_ns = weft_max_u64(job->now_ns, next_ns);
    if (worker != UINT32_MAX) {
        push(job, worker);
    } else if (transfer != UINT32_MAX) {
        deliver(job, transfer);
    } else {
        plan(job, clock_ns());
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static struct weft_planner *make(uint32_t workers, uint32_t servers, uint32_t policy)
{
    static struct weft_planner_host host[WORKERS_MAX + 2 * SERVERS_MAX + AGGREGATORS];
    static uint32_t at[WORKERS_MAX + 2 * SERVERS_MAX + AGGREGATORS];
    struct weft_planner_config config;
    struct weft_planner *planner;
    weft_planner_config_default(&config);
    config.policy = policy;
    config.workers = workers;
    config.servers = servers;
    config.aggregators = AGGREGATORS;
    config.hosts = workers + 2 * servers + AGGREGATORS;
    for (uint32_t h = 0; h < config.hosts; h++) {
        uint64_t bps = h < workers && h % 10 == 9 ? GBIT : 10 * GBIT;
        host[h] = (struct weft_planner_host){bps, bps};
        at[h] = h;
    }
    config.host = host;
    config.worker_host = at;
    config.server_host = at + workers;
    config.replica_host = at + workers + servers;
    config.aggregator_host = at + workers + 2 * servers;
    config.tau_max = 2 * workers;
    config.read_credits = workers / 2;
    config.div_max = 1000;
    must(weft_planner_new(&config, &planner), "new");
    return planner;
}

static void row(uint32_t workers, uint32_t servers, const char *name, uint32_t policy,
                uint32_t events, uint64_t seed)
{
    static struct job job;
    memset(&job, 0, sizeof(job));
    weft_prng_init(&job.prng, seed);
    job.planner = make(workers, servers, policy);
    job.workers = workers;
    job.servers = servers;
    job.compute_ns = workers * weft_transfer_ns(1000000, 10 * GBIT) / servers / 2;
    job.took_ns = calloc(2 * (size_t)events + 2 * WORKERS_MAX, sizeof(job.took_ns[0]));
    if (job.took_ns == NULL) {
        exit(1);
    }
    uint64_t began_ns = clock_ns();
    for (uint32_t w = 0; w < workers; w++) {
        struct weft_planner_update update = {
            .worker = w, .clock = job.clock[w]++, .bytes = 1000000, .norm = 1};
        job.compute_until_ns[w] = WEFT_NEVER;
        must(weft_planner_update(job.planner, &update, 0), "update");
    }
    plan(&job, began_ns);
    uint64_t burst_ns = job.took_ns[0];
    while (job.events < events) {
        step(&job);
    }
    uint64_t *took_ns = job.took_ns + events / 10;
    uint32_t count = events - events / 10;
    qsort(took_ns, count, sizeof(took_ns[0]), by_value);
    const struct weft_planner_counters *c = weft_planner_counters(job.planner);
    printf("%7u %7u  %-28s %8.1f %8.1f %8.1f %8.1f %8llu %7llu\n", workers, servers, name,
           (double)took_ns[count / 2] / 1e3, (double)took_ns[(uint64_t)count * 99 / 100] / 1e3,
           (double)took_ns[count - 1] / 1e3, (double)burst_ns / 1e3, (unsigned long long)c->commits,
           (unsigned long long)c->grouped);
    free(job.took_ns);
    weft_planner_free(job.planner);
}

int main(int argc, char **argv)
{
    uint32_t events = 20000;
    uint64_t seed = 1;
    bool is_smoke = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--smoke") == 0) {
            is_smoke = true;
        } else if (strcmp(argv[i], "--events") == 0 && i + 1 < argc) {
            events = (uint32_t)strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            seed = strtoull(argv[++i], NULL, 10);
        } else {
            fprintf(stderr, "usage: sched_plan [--smoke] [--events N] [--seed N]\n");
            return 2;
        }
    }
    static const struct {
        const char *name;
        uint32_t policy;
    } policies[] = {
        {"order", WEFT_PLAN_ORDER},
        {"order, bound", WEFT_PLAN_ORDER | WEFT_PLAN_BOUND},
        {"order, bound, groups", WEFT_PLAN_ORDER | WEFT_PLAN_BOUND | WEFT_PLAN_AGGREGATE},
        {"everything", 2 * WEFT_PLAN_REPLICATE - 1},
    };
    static const uint32_t workers[] = {100, 1000};
    events = is_smoke ? 200 : events;
    printf("seed %llu, %u events a row; microseconds for an event and its plan\n",
           (unsigned long long)seed, events);
    printf("%7s %7s  %-28s %8s %8s %8s %8s %8s %7s\n", "workers", "servers", "policy", "median",
           "p99", "max", "burst", "commits", "grouped");
    for (size_t w = 0; w < WEFT_ARRAY_COUNT(workers); w++) {
        for (uint32_t servers = 1; servers <= SERVERS_MAX; servers += SERVERS_MAX - 1) {
            for (size_t p = 0; p < WEFT_ARRAY_COUNT(policies); p++) {
                row(is_smoke ? workers[w] / 10 : workers[w], servers, policies[p].name,
                    policies[p].policy, events, seed);
            }
        }
    }
    return 0;
}
