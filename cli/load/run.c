#include "cli/load/internal.h"

#include "cli/stop.h"
#include "io/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const uint64_t connect_ns = 60 * WEFT_NS_PER_S;  /* for the next worker */
static const uint64_t report_each_ns = 2 * WEFT_NS_PER_S; /* while workers connect */

static void sums_add(struct weft_load_outcome *into, const struct weft_load_outcome *from)
{
    for (int kind = 0; kind < WEFT_LOAD_KINDS; kind++) {
        weft_hist_merge(&into->sums.latency[kind], &from->sums.latency[kind]);
        into->sums.rows[kind] += from->sums.rows[kind];
        weft_load_latencies_merge(&into->rpc[kind], &from->rpc[kind]);
    }
    into->sums.unanswered += from->sums.unanswered;
    into->sums.refused += from->sums.refused;
    into->worker_cpu_ns += from->worker_cpu_ns;
    into->span_ns = weft_max_u64(into->span_ns, from->span_ns);
    into->server_cpu_ns += from->server_cpu_ns;
    into->server_cpu_known = into->server_cpu_known || from->server_cpu_known;
    into->rss_bytes += from->rss_bytes;
    into->is_measured = into->is_measured || from->is_measured;
    weft_load_counters_add(&into->transport, &from->transport, sizeof(into->transport));
    weft_load_counters_add(&into->client, &from->client, sizeof(into->client));
}

static const struct weft_load_worker *first_failed(const struct load_thread *pool, uint32_t count)
{
    for (uint32_t g = 0; g < count; g++) {
        for (uint32_t i = 0; i < pool[g].count; i++) {
            if (pool[g].workers[i].state == WEFT_LOAD_FAILED) {
                return &pool[g].workers[i];
            }
        }
    }
    return NULL;
}

/* Last progress report, and its time. */
struct report {
    enum phase phase;
    uint64_t at_ns;
};

/* Report the progress: each phase once, and the number of connected workers periodically. */
static void report_progress(const struct load_shared *shared, struct report *last,
                            uint64_t now_ns)
{
    const struct weft_load_workload *w = &shared->load->workload;
    const struct weft_load_servers *servers = &shared->load->servers;
    enum phase *phase = &last->phase;
    if (*phase == CONNECTING && atomic_load(&shared->go_ns) != 0) {
        fprintf(stderr, "%u workers are connected to %u shards\n", w->workers, servers->count);
        *phase = WARMING;
    } else if (*phase == CONNECTING && now_ns - last->at_ns >= report_each_ns) {
        fprintf(stderr, "connecting: %u of %u workers are connected to %s\n",
                atomic_load(&shared->ready), w->workers,
                servers->count == 1 ? "the shard" : "all shards");
        last->at_ns = now_ns;
    } else if (*phase == WARMING && atomic_load(&servers->measure_from_ns) != WEFT_NEVER) {
        fprintf(stderr, "measuring for %g s\n", w->seconds);
        *phase = MEASURING;
    }
}

/* Let the workers connect, start them, and wait for the end of the run; stop them on an error.
 * Returns OK, PEER (a worker failed), TIMEOUT (not all have connected). */
static weft_status supervise(struct load_shared *shared, struct weft_load_outcome *outcome)
{
    const struct weft_load_workload *w = &shared->load->workload;
    const struct timespec nap = {.tv_nsec = 5000000};
    uint64_t until_ns = weft_clock_now_ns() + connect_ns;
    uint32_t ready = 0;
    weft_status status = WEFT_OK;
    struct report last = {.phase = CONNECTING, .at_ns = weft_clock_now_ns()};
    for (;;) {
        uint64_t now_ns = weft_clock_now_ns();
        report_progress(shared, &last, now_ns);
        if (atomic_load(&shared->failed) > 0) {
            status = WEFT_PEER;
            break;
        }
        if (weft_stop_requested()) {
            outcome->is_interrupted = true;
            break;
        }
        if (atomic_load(&shared->ready) != ready) {
            ready = atomic_load(&shared->ready);
            until_ns = now_ns + connect_ns;
        }
        if (atomic_load(&shared->go_ns) == 0 && ready == w->workers) {
            atomic_store(&shared->go_ns, now_ns);
            until_ns = now_ns + (uint64_t)((w->warmup + w->seconds) * (double)WEFT_NS_PER_S);
        } else if (now_ns >= until_ns) {
            status = atomic_load(&shared->go_ns) == 0 ? WEFT_TIMEOUT : WEFT_OK;
            break;
        }
        (void)nanosleep(&nap, NULL);
    }
    if (status != WEFT_OK || outcome->is_interrupted) {
        atomic_store(&shared->stop, true);
    }
    return status;
}

static void explain(const struct load_shared *shared, const struct load_thread *pool,
                    weft_status status, struct weft_error *error)
{
    const struct weft_load_worker *failed = first_failed(pool, shared->load->threads);
    if (failed != NULL) {
        *error = failed->error;
    } else if (status == WEFT_TIMEOUT) {
        (void)weft_fail(
            error, status,
            "only %u of %u workers have reached all servers, and none in the last 60 s: are "
            "all addresses "
            "right, is the key the servers' own, and does `weft server --workers` allow so "
            "many?",
            atomic_load(&shared->ready), shared->load->workload.workers);
    } else {
        (void)weft_fail(error, status, "%s", weft_status_text(status));
    }
}

static weft_status run_threads(struct load_shared *shared, struct load_thread *pool,
                               struct weft_load_outcome *outcome, struct weft_error *error)
{
    uint32_t threads = shared->load->threads, started = 0;
    weft_status status = WEFT_OK;
    for (; started < threads && status == WEFT_OK; started++) {
        if (!weft_load_thread_new(&pool[started], shared, started)) {
            status = WEFT_NOMEM;
        } else if (pthread_create(&pool[started].pthread, NULL, weft_load_thread_run,
                                  &pool[started]) != 0) {
            status = WEFT_IO;
        }
        if (status != WEFT_OK) {
            atomic_store(&shared->stop, true);
            break;
        }
    }
    status = status == WEFT_OK ? supervise(shared, outcome) : status;
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(pool[i].pthread, NULL);
        sums_add(outcome, pool[i].outcome);
    }
    if (status != WEFT_OK) {
        explain(shared, pool, status, error);
    }
    return status;
}

weft_status weft_load_run(struct weft_load *load, struct weft_load_outcome *outcome_p,
                          struct weft_error *error)
{
    const struct weft_load_workload *w = &load->workload;
    size_t floats = (size_t)w->rows * w->dim + 1;
    float *gradients = calloc(floats, sizeof(*gradients));
    struct load_thread *pool = calloc(load->threads, sizeof(*pool));
    memset(outcome_p, 0, sizeof(*outcome_p));
    atomic_store(&load->servers.measure_from_ns, WEFT_NEVER);
    weft_status status = weft_fail(error, WEFT_NOMEM, "no memory");
    if (gradients != NULL && pool != NULL) {
        struct weft_prng prng;
        weft_prng_split(&prng, w->seed, UINT64_MAX);
        for (size_t i = 0; i < floats; i++) {
            gradients[i] = (float)((double)(weft_prng_u64(&prng) >> 11) * 0x1p-53 - 0.5) * 0.01F;
        }
        for (uint32_t i = 0; i < load->threads; i++) {
            pool[i].epoll_fd = -1;
        }
        struct load_shared shared = {.load = load, .gradients = gradients};
        status = weft_load_live_start(&shared.live, &load->metrics, w->workers, load->threads,
                                      weft_load_thread_figures, error);
        if (status == WEFT_OK) {
            if (shared.live.served != NULL) {
                fprintf(stderr, "metrics: %s\n", weft_metrics_live_url(shared.live.served));
            }
            status = run_threads(&shared, pool, outcome_p, error);
        }
        weft_metrics_live_stop(shared.live.served);
        for (uint32_t i = 0; i < load->threads; i++) {
            weft_load_thread_free(&pool[i]);
        }
    }
    free(pool);
    free(gradients);
    return status;
}
