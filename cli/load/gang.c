#include "cli/load/gang.h"

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
static const uint64_t drain_ns = WEFT_NS_PER_S;

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
        weft_driver_counters(gang->workers[i].node.endpoint.driver, &counters);
        packets.sent += counters.socket.datagrams_sent;
        packets.received += counters.socket.datagrams_received;
        packets.again += counters.ep.retransmitted_packets;
        packets.dropped += counters.socket.kernel_drops;
    }
    return packets;
}

/* weft_stats_query_fn: of a gang, for weft_load_live. */
void weft_load_gang_figures(void *arg, void *object)
{
    struct weft_load_figures *figures = arg;
    const struct gang *gang = object;
    *figures =
        (struct weft_load_figures){.seen = gang->seen, .measuring = gang->phase == MEASURING};
    for (uint32_t i = 0; i < gang->opened; i++) {
        const struct weft_load_worker *worker = &gang->workers[i];
        struct weft_driver_counters transport;
        weft_driver_counters(worker->node.endpoint.driver, &transport);
        weft_load_figures_add(figures, &transport, weft_ps_client_counters(worker->node.client));
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
        weft_ps_client_latencies_clear(gang->workers[i].node.client);
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

void weft_load_latencies_merge(struct weft_ps_latencies *into, const struct weft_ps_latencies *from)
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
        const struct weft_ps_client *client = gang->workers[i].node.client;
        weft_load_latencies_merge(&outcome->rpc[WEFT_LOAD_PUSH],
                                  weft_ps_client_push_latencies(client));
        weft_load_latencies_merge(&outcome->rpc[WEFT_LOAD_PULL],
                                  weft_ps_client_pull_latencies(client));
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
        int fd = weft_driver_pollable(worker->node.endpoint.driver);
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

void *weft_load_gang_run(void *arg)
{
    struct gang *gang = arg;
    gang->began_ns = weft_clock_now_ns();
    while (gang->phase != OVER) {
        open_some(gang);
        wait_and_turn(gang);
        look(gang);
        cross_edges(gang);
        weft_metrics_live_poll(gang->crowd->live.served, gang->index, gang);
    }
    weft_metrics_live_leave(gang->crowd->live.served, gang->index);
    drain(gang);
    for (uint32_t i = 0; i < gang->count; i++) {
        weft_load_worker_fini(&gang->workers[i]);
    }
    return NULL;
}

void weft_load_gang_free(struct gang *gang)
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

bool weft_load_gang_new(struct gang *gang, struct crowd *crowd, uint32_t index)
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
        .transport = config->transport,
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
