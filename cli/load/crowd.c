#include "cli/load/crowd.h"

#include "cli/stop.h"
#include "io/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum {
    EVENTS = 64,
    LOOK_MS = 20, /* for edges and the wish to stop, when nothing happens */
    /* What a thread has under way at a time: so many connections, but one worker at least and a few
     * at most. Where more of them wait for a processor than are served, both ends ask again, and
     * the answers cost as much as the handshakes: with 8 workers to 60 shards each, 2.2 ms of CPU
     * for a connection instead of 1.3 (bench/NOTEBOOK.md). */
    CONNECTIONS_MAX = 16,
    CONNECTING_MAX = 8,
    CONNECTING_LOOK_MS = 2,
    OPEN_AT_ONCE = 32, /* workers; then one every open_each_ns */
};

static const uint64_t open_each_ns = 5 * WEFT_NS_PER_MS;
static const uint64_t connect_ns = 60 * WEFT_NS_PER_S; /* for the next one */
static const uint64_t drain_ns = WEFT_NS_PER_S;
static const uint64_t tell_each_ns = 2 * WEFT_NS_PER_S; /* while they connect */

/* What the threads and the one that waits for them tell each other. */
struct crowd {
    const struct weft_load_crowd_config *config;
    const float *gradients;
    _Atomic uint32_t ready;  /* workers */
    _Atomic uint32_t failed; /* workers */
    _Atomic uint64_t go_ns;  /* 0 = not yet */
    _Atomic bool stop;
    struct weft_load_live live;
};

enum phase { CONNECTING, WARMING, MEASURING, OVER };

struct gang {
    struct crowd *crowd;
    pthread_t thread;
    uint32_t index;
    struct weft_load_scene scene;
    struct weft_load_seen seen;
    struct weft_load_worker *workers; /* (count,) */
    uint32_t count;
    uint32_t first;   /* rank of the first */
    uint32_t opened;  /* of these */
    uint32_t settled; /* of these: connected, or failed */
    bool *again;      /* (count,): to be turned before the next wait */
    bool *told;       /* (count,): counted as ready or failed */
    bool any_again;
    int epoll_fd;
    enum phase phase;
    struct weft_load_packets packets_from;
    uint64_t cpu_from_ns;
    uint64_t server_cpu_from_ns;
    uint64_t began_ns;
    uint64_t warm_ns; /* the end of the warm-up */
    struct weft_load_outcome *outcome;
};

static uint64_t thread_cpu_ns(void)
{
    struct timespec at = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return (uint64_t)at.tv_sec * WEFT_NS_PER_S + (uint64_t)at.tv_nsec;
}

static uint64_t rss_bytes(void)
{
    unsigned long long pages[2] = {0};
    FILE *file = fopen("/proc/self/statm", "r");
    if (file != NULL) {
        if (fscanf(file, "%llu %llu", &pages[0], &pages[1]) != 2) {
            pages[1] = 0;
        }
        (void)fclose(file);
    }
    return pages[1] * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* ---- turning --------------------------------------------------------------------------------- */

static void note_state(struct gang *gang, uint32_t index)
{
    const struct weft_load_worker *worker = &gang->workers[index];
    if (gang->told[index]) {
        if (worker->state == WEFT_LOAD_FAILED && gang->phase != OVER) {
            atomic_fetch_add(&gang->crowd->failed, 1);
        }
    } else if (worker->state != WEFT_LOAD_OPENING) {
        gang->told[index] = true;
        gang->settled++;
        atomic_fetch_add(
            worker->state == WEFT_LOAD_READY ? &gang->crowd->ready : &gang->crowd->failed, 1);
    }
}

static void turn(struct gang *gang, uint32_t index)
{
    gang->again[index] = !weft_load_worker_turn(&gang->workers[index]);
    gang->any_again = gang->any_again || gang->again[index];
    note_state(gang, index);
}

/* At those that connect: their servers may not be there. */
static void look(struct gang *gang)
{
    uint64_t now_ns = weft_clock_now_ns();
    for (uint32_t i = 0; gang->settled < gang->opened && i < gang->opened; i++) {
        if (!gang->told[i]) {
            weft_load_worker_look(&gang->workers[i], now_ns);
            note_state(gang, i);
        }
    }
}

static void turn_all(struct gang *gang)
{
    for (uint32_t i = 0; i < gang->opened; i++) {
        turn(gang, i);
    }
}

static void wait_and_turn(struct gang *gang)
{
    struct epoll_event events[EVENTS];
    bool again = gang->any_again;
    int look_ms = gang->opened < gang->count ? CONNECTING_LOOK_MS : LOOK_MS;
    gang->any_again = false;
    int ready = epoll_wait(gang->epoll_fd, events, EVENTS, again ? 0 : look_ms);
    for (uint32_t i = 0; again && i < gang->opened; i++) {
        if (gang->again[i]) {
            turn(gang, i);
        }
    }
    for (int i = 0; i < ready; i++) {
        turn(gang, events[i].data.u32);
    }
}

/* ---- edges ----------------------------------------------------------------------------------- */

/* What the endpoints of the gang have counted so far. */
static struct weft_load_packets packets_now(const struct gang *gang)
{
    struct weft_load_packets packets = {0};
    for (uint32_t i = 0; i < gang->opened; i++) {
        struct weft_driver_counters counters;
        weft_driver_counters(gang->workers[i].driver, &counters);
        packets.sent += counters.socket.datagrams_sent;
        packets.received += counters.socket.datagrams_received;
        packets.again += counters.ep.retransmitted_packets;
        packets.dropped += counters.socket.kernel_drops;
    }
    return packets;
}

/* weft_ask_question: of a gang, for weft_load_live. */
static void copy_figures(void *arg, void *object)
{
    struct weft_load_figures *figures = arg;
    const struct gang *gang = object;
    *figures =
        (struct weft_load_figures){.seen = gang->seen, .measuring = gang->phase == MEASURING};
    for (uint32_t i = 0; i < gang->opened; i++) {
        const struct weft_load_worker *worker = &gang->workers[i];
        struct weft_driver_counters transport;
        weft_driver_counters(worker->driver, &transport);
        weft_load_figures_add(figures, &transport, weft_ps_client_counters(worker->client));
        figures->connected += worker->state == WEFT_LOAD_READY;
    }
}

static void begin(struct gang *gang, uint64_t go_ns)
{
    const struct weft_load_workload *workload = gang->crowd->config->workload;
    gang->warm_ns = go_ns + (uint64_t)(workload->warmup * (double)WEFT_NS_PER_S);
    gang->phase = WARMING;
    for (uint32_t i = 0; i < gang->opened; i++) {
        weft_load_worker_go(&gang->workers[i], go_ns);
    }
    turn_all(gang);
}

/* From now and not from when it was meant: a thread that was late measures as long as the others. */
static void measure(struct gang *gang, uint64_t now_ns)
{
    struct weft_load_servers *servers = gang->crowd->config->servers;
    double seconds = gang->crowd->config->workload->seconds;
    gang->scene.measure_from_ns = now_ns;
    gang->scene.measure_to_ns = now_ns + (uint64_t)(seconds * (double)WEFT_NS_PER_S);
    gang->phase = MEASURING;
    for (uint32_t i = 0; i < gang->opened; i++) {
        weft_ps_client_latencies_clear(gang->workers[i].client);
    }
    if (gang->index == 0) {
        gang->outcome->server_cpu_known =
            weft_load_servers_cpu_ns(servers, &gang->server_cpu_from_ns);
        atomic_store(&servers->measure_to_ns, gang->scene.measure_to_ns);
        atomic_store(&servers->measure_from_ns, now_ns);
    }
    gang->packets_from = packets_now(gang);
    gang->cpu_from_ns = thread_cpu_ns();
}

static void latencies_merge(struct weft_ps_latencies *into, const struct weft_ps_latencies *from)
{
    weft_hist_merge(&into->w_proc, &from->w_proc);
    weft_hist_merge(&into->w_queue, &from->w_queue);
    weft_hist_merge(&into->ps_proc, &from->ps_proc);
    weft_hist_merge(&into->ps_queue, &from->ps_queue);
    weft_hist_merge(&into->ps_wait, &from->ps_wait);
    weft_hist_merge(&into->n_tx, &from->n_tx);
    weft_hist_merge(&into->total, &from->total);
}

static void keep(struct gang *gang, uint64_t now_ns)
{
    struct weft_load_outcome *outcome = gang->outcome;
    outcome->worker_cpu_ns = thread_cpu_ns() - gang->cpu_from_ns;
    outcome->span_ns = now_ns - gang->scene.measure_from_ns;
    outcome->is_measured = true;
    struct weft_load_packets packets = packets_now(gang);
    outcome->packets = (struct weft_load_packets){
        .sent = packets.sent - gang->packets_from.sent,
        .received = packets.received - gang->packets_from.received,
        .again = packets.again - gang->packets_from.again,
        .dropped = packets.dropped - gang->packets_from.dropped,
    };
    if (gang->index == 0) {
        uint64_t cpu_ns;
        outcome->server_cpu_known = outcome->server_cpu_known &&
                                    weft_load_servers_cpu_ns(gang->crowd->config->servers, &cpu_ns);
        outcome->server_cpu_ns = outcome->server_cpu_known ? cpu_ns - gang->server_cpu_from_ns : 0;
        outcome->rss_bytes = rss_bytes();
    }
    for (uint32_t i = 0; i < gang->opened; i++) {
        const struct weft_ps_client *client = gang->workers[i].client;
        latencies_merge(&outcome->rpc[WEFT_LOAD_PUSH], weft_ps_client_push_latencies(client));
        latencies_merge(&outcome->rpc[WEFT_LOAD_PULL], weft_ps_client_pull_latencies(client));
    }
}

static void end(struct gang *gang, uint64_t now_ns)
{
    bool measured = gang->phase == MEASURING;
    if (measured) {
        keep(gang, now_ns);
    }
    gang->phase = OVER;
    gang->scene.measure_to_ns = weft_min_u64(gang->scene.measure_to_ns, now_ns);
    if (gang->index == 0) {
        atomic_store(&gang->crowd->config->servers->measure_to_ns, gang->scene.measure_to_ns);
    }
    for (uint32_t i = 0; i < gang->opened; i++) {
        weft_load_worker_halt(&gang->workers[i]);
    }
}

static void cross_edges(struct gang *gang)
{
    struct crowd *crowd = gang->crowd;
    uint64_t now_ns = weft_clock_now_ns();
    if (atomic_load(&crowd->stop) && gang->phase != OVER) {
        end(gang, now_ns);
    } else if (gang->phase == CONNECTING && atomic_load(&crowd->go_ns) != 0) {
        begin(gang, atomic_load(&crowd->go_ns));
    } else if (gang->phase == WARMING && now_ns >= gang->warm_ns) {
        measure(gang, now_ns);
    } else if (gang->phase == MEASURING && now_ns >= gang->scene.measure_to_ns) {
        end(gang, now_ns);
    }
}

/* ---- a thread -------------------------------------------------------------------------------- */

/* False: it could not be opened. */
static bool open_one(struct gang *gang, uint32_t index)
{
    struct weft_load_worker *worker = &gang->workers[index];
    weft_status status = weft_load_worker_init(worker, &gang->scene, gang->first + index);
    if (status == WEFT_OK) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = index};
        int fd = weft_driver_pollable(worker->driver);
        if (epoll_ctl(gang->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0) {
            gang->opened++;
            turn(gang, index);
            return true;
        }
        worker->state = WEFT_LOAD_FAILED;
        snprintf(worker->error, sizeof(worker->error), "epoll: %s", strerror(errno));
    }
    atomic_fetch_add(&gang->crowd->failed, 1);
    return false;
}

static uint32_t connecting_max(const struct gang *gang)
{
    uint32_t workers = CONNECTIONS_MAX / gang->crowd->config->servers->count;
    return workers < 1 ? 1 : workers < CONNECTING_MAX ? workers : CONNECTING_MAX;
}

/* Not all at once: a server does so many handshakes a second (hello_rate_max of core/endpoint.h) and
 * answers so many ahead; over TCP it drops the others. */
static void open_some(struct gang *gang)
{
    uint32_t threads = gang->crowd->config->threads;
    uint64_t elapsed_ns = weft_clock_now_ns() - gang->began_ns;
    uint64_t allowed = OPEN_AT_ONCE / threads + elapsed_ns / (open_each_ns * threads) + 1;
    while (gang->opened < gang->count && gang->opened < allowed &&
           gang->opened - gang->settled < connecting_max(gang) &&
           atomic_load(&gang->crowd->failed) == 0 && open_one(gang, gang->opened)) {
        continue;
    }
}

/* Answers to what is under way: a server must not find its workers gone in the middle. */
static void drain(struct gang *gang)
{
    uint64_t until_ns = weft_clock_now_ns() + drain_ns;
    bool busy = true;
    while (busy && weft_clock_now_ns() < until_ns) {
        wait_and_turn(gang);
        busy = false;
        for (uint32_t i = 0; i < gang->opened; i++) {
            const struct weft_load_worker *worker = &gang->workers[i];
            busy = busy || (worker->state == WEFT_LOAD_READY && worker->busy_count > 0);
        }
    }
}

static void *run_gang(void *arg)
{
    struct gang *gang = arg;
    gang->began_ns = weft_clock_now_ns();
    while (gang->phase != OVER) {
        open_some(gang);
        wait_and_turn(gang);
        look(gang);
        cross_edges(gang);
        weft_load_live_look(&gang->crowd->live, gang->index, gang);
    }
    weft_load_live_leave(&gang->crowd->live, gang->index);
    drain(gang);
    for (uint32_t i = 0; i < gang->count; i++) {
        weft_load_worker_fini(&gang->workers[i]);
    }
    return NULL;
}

static void gang_free(struct gang *gang)
{
    if (gang->epoll_fd >= 0) {
        (void)close(gang->epoll_fd);
    }
    free(gang->workers);
    free(gang->again);
    free(gang->told);
    free(gang->scene.weights);
    free(gang->outcome);
}

static bool gang_new(struct gang *gang, struct crowd *crowd, uint32_t index)
{
    const struct weft_load_crowd_config *config = crowd->config;
    const struct weft_load_workload *w = config->workload;
    uint64_t workers = w->workers;
    gang->crowd = crowd;
    gang->index = index;
    gang->first = (uint32_t)(workers * index / config->threads);
    gang->count = (uint32_t)(workers * (index + 1) / config->threads) - gang->first;
    gang->workers = calloc(gang->count + 1, sizeof(*gang->workers));
    gang->again = calloc(gang->count + 1, sizeof(*gang->again));
    gang->told = calloc(gang->count + 1, sizeof(*gang->told));
    gang->outcome = calloc(1, sizeof(*gang->outcome));
    gang->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    gang->scene = (struct weft_load_scene){
        .workload = w,
        .servers = config->servers,
        .carrier = config->carrier,
        .security = config->security,
        .zipf = config->zipf,
        .records = weft_recording_ring(config->recording),
        .gradients = crowd->gradients,
        .weights = calloc((size_t)w->rows * w->dim + 1, sizeof(float)),
        .sums = gang->outcome != NULL ? &gang->outcome->sums : NULL,
        .seen = config->metrics->host[0] != '\0' ? &gang->seen : NULL,
        .patience_ns = config->patience_ns,
        .measure_from_ns = WEFT_NEVER,
        .measure_to_ns = WEFT_NEVER,
    };
    return gang->workers != NULL && gang->again != NULL && gang->told != NULL &&
           gang->outcome != NULL && gang->epoll_fd >= 0 && gang->scene.weights != NULL;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void sums_add(struct weft_load_outcome *into, const struct weft_load_outcome *from)
{
    for (int kind = 0; kind < WEFT_LOAD_KINDS; kind++) {
        weft_hist_merge(&into->sums.latency[kind], &from->sums.latency[kind]);
        into->sums.rows[kind] += from->sums.rows[kind];
        latencies_merge(&into->rpc[kind], &from->rpc[kind]);
    }
    into->sums.unanswered += from->sums.unanswered;
    into->sums.refused += from->sums.refused;
    into->worker_cpu_ns += from->worker_cpu_ns;
    into->span_ns = weft_max_u64(into->span_ns, from->span_ns);
    into->server_cpu_ns += from->server_cpu_ns;
    into->server_cpu_known = into->server_cpu_known || from->server_cpu_known;
    into->rss_bytes += from->rss_bytes;
    into->is_measured = into->is_measured || from->is_measured;
    into->packets.sent += from->packets.sent;
    into->packets.received += from->packets.received;
    into->packets.again += from->packets.again;
    into->packets.dropped += from->packets.dropped;
}

static const struct weft_load_worker *first_failed(const struct gang *gangs, uint32_t count)
{
    for (uint32_t g = 0; g < count; g++) {
        for (uint32_t i = 0; i < gangs[g].count; i++) {
            if (gangs[g].workers[i].state == WEFT_LOAD_FAILED) {
                return &gangs[g].workers[i];
            }
        }
    }
    return NULL;
}

/* What was said last, and when. */
struct told {
    enum phase phase;
    uint64_t at_ns;
};

/* Say how far the run is: once each, and while many connect from time to time. */
static void tell(const struct crowd *crowd, struct told *told, uint64_t now_ns)
{
    const struct weft_load_workload *w = crowd->config->workload;
    const struct weft_load_servers *servers = crowd->config->servers;
    enum phase *said = &told->phase;
    if (*said == CONNECTING && atomic_load(&crowd->go_ns) != 0) {
        fprintf(stderr, "%u workers are connected to %u shards\n", w->workers, servers->count);
        *said = WARMING;
    } else if (*said == CONNECTING && now_ns - told->at_ns >= tell_each_ns) {
        fprintf(stderr, "connecting: %u of %u workers have reached %s\n",
                atomic_load(&crowd->ready), w->workers,
                servers->count == 1 ? "the shard" : "all shards");
        told->at_ns = now_ns;
    } else if (*said == WARMING && atomic_load(&servers->measure_from_ns) != WEFT_NEVER) {
        fprintf(stderr, "measuring for %g s\n", w->seconds);
        *said = MEASURING;
    }
}

/* Let them connect, go, and wait for their end; stop them when something is wrong.
 * Returns OK, PEER (one failed), TIMEOUT (not all have connected). */
static weft_status supervise(struct crowd *crowd, struct weft_load_outcome *outcome)
{
    const struct weft_load_workload *w = crowd->config->workload;
    const struct timespec nap = {.tv_nsec = 5000000};
    uint64_t until_ns = weft_clock_now_ns() + connect_ns;
    uint32_t ready = 0;
    weft_status status = WEFT_OK;
    struct told told = {.phase = CONNECTING, .at_ns = weft_clock_now_ns()};
    for (;;) {
        uint64_t now_ns = weft_clock_now_ns();
        tell(crowd, &told, now_ns);
        if (atomic_load(&crowd->failed) > 0) {
            status = WEFT_PEER;
            break;
        }
        if (weft_stop_asked()) {
            outcome->is_interrupted = true;
            break;
        }
        if (atomic_load(&crowd->ready) != ready) {
            ready = atomic_load(&crowd->ready);
            until_ns = now_ns + connect_ns;
        }
        if (atomic_load(&crowd->go_ns) == 0 && ready == w->workers) {
            atomic_store(&crowd->go_ns, now_ns);
            until_ns = now_ns + (uint64_t)((w->warmup + w->seconds) * (double)WEFT_NS_PER_S);
        } else if (now_ns >= until_ns) {
            status = atomic_load(&crowd->go_ns) == 0 ? WEFT_TIMEOUT : WEFT_OK;
            break;
        }
        (void)nanosleep(&nap, NULL);
    }
    if (status != WEFT_OK || outcome->is_interrupted) {
        atomic_store(&crowd->stop, true);
    }
    return status;
}

static void explain(const struct crowd *crowd, const struct gang *gangs, weft_status status,
                    char error_p[WEFT_LOAD_ERROR_BYTES])
{
    const struct weft_load_worker *failed = first_failed(gangs, crowd->config->threads);
    if (failed != NULL) {
        snprintf(error_p, WEFT_LOAD_ERROR_BYTES, "%s", failed->error);
    } else if (status == WEFT_TIMEOUT) {
        snprintf(error_p, WEFT_LOAD_ERROR_BYTES,
                 "only %u of %u workers have reached all servers, and none in the last 60 s: are "
                 "all addresses "
                 "right, is the key the servers' own, and does `weft server --workers` allow so "
                 "many?",
                 atomic_load(&crowd->ready), crowd->config->workload->workers);
    } else {
        snprintf(error_p, WEFT_LOAD_ERROR_BYTES, "%s", weft_status_text(status));
    }
}

static weft_status run_gangs(struct crowd *crowd, struct gang *gangs,
                             struct weft_load_outcome *outcome, char *error_p)
{
    uint32_t threads = crowd->config->threads, started = 0;
    weft_status status = WEFT_OK;
    for (; started < threads && status == WEFT_OK; started++) {
        if (!gang_new(&gangs[started], crowd, started)) {
            status = WEFT_NOMEM;
        } else if (pthread_create(&gangs[started].thread, NULL, run_gang, &gangs[started]) != 0) {
            status = WEFT_IO;
        }
        if (status != WEFT_OK) {
            atomic_store(&crowd->stop, true);
            break;
        }
    }
    status = status == WEFT_OK ? supervise(crowd, outcome) : status;
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(gangs[i].thread, NULL);
        sums_add(outcome, gangs[i].outcome);
    }
    if (status != WEFT_OK) {
        explain(crowd, gangs, status, error_p);
    }
    return status;
}

weft_status weft_load_crowd_run(const struct weft_load_crowd_config *config,
                                struct weft_load_outcome *outcome_p,
                                char error_p[WEFT_LOAD_ERROR_BYTES])
{
    const struct weft_load_workload *w = config->workload;
    size_t floats = (size_t)w->rows * w->dim + 1;
    float *gradients = calloc(floats, sizeof(*gradients));
    struct gang *gangs = calloc(config->threads, sizeof(*gangs));
    memset(outcome_p, 0, sizeof(*outcome_p));
    atomic_store(&config->servers->measure_from_ns, WEFT_NEVER);
    weft_status status = WEFT_NOMEM;
    snprintf(error_p, WEFT_LOAD_ERROR_BYTES, "no memory");
    if (gradients != NULL && gangs != NULL) {
        struct weft_prng prng;
        weft_prng_split(&prng, w->seed, UINT64_MAX);
        for (size_t i = 0; i < floats; i++) {
            gradients[i] = (float)((double)(weft_prng_u64(&prng) >> 11) * 0x1p-53 - 0.5) * 0.01F;
        }
        for (uint32_t i = 0; i < config->threads; i++) {
            gangs[i].epoll_fd = -1;
        }
        struct crowd crowd = {.config = config, .gradients = gradients};
        status = weft_load_live_start(&crowd.live, config->metrics, w->workers, config->threads,
                                      copy_figures, error_p);
        if (status == WEFT_OK) {
            if (crowd.live.metrics.http != NULL) {
                fprintf(stderr, "metrics: %s\n", crowd.live.metrics.url);
            }
            status = run_gangs(&crowd, gangs, outcome_p, error_p);
        }
        weft_load_live_stop(&crowd.live);
        for (uint32_t i = 0; i < config->threads; i++) {
            gang_free(&gangs[i]);
        }
    }
    free(gangs);
    free(gradients);
    return status;
}
