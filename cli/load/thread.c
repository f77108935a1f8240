#include "cli/load/internal.h"

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
    CHECK_MS = 20, /* poll interval for the fixed times and for termination */
    /* Connections that a thread sets up concurrently: up to this number, but at least one worker
     * and at most a few workers. If more handshakes wait for a CPU than are served, both ends
     * retransmit, and the replies cost as much as the handshakes: with 8 workers and 60 shards
     * each, 2.2 ms of CPU per connection instead of 1.3 (bench/NOTEBOOK.md). */
    CONNECTIONS_MAX = 16,
    CONNECTING_MAX = 8,
    CONNECTING_CHECK_MS = 2,
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

/* ---- running workers ------------------------------------------------------------------------- */

static void note_state(struct load_thread *thread, uint32_t index)
{
    const struct weft_load_worker *worker = &thread->workers[index];
    if (thread->counted[index]) {
        if (worker->state == WEFT_LOAD_FAILED && thread->phase != OVER) {
            atomic_fetch_add(&thread->shared->failed, 1);
        }
    } else if (worker->state != WEFT_LOAD_OPENING) {
        thread->counted[index] = true;
        thread->settled++;
        atomic_fetch_add(
            worker->state == WEFT_LOAD_READY ? &thread->shared->ready : &thread->shared->failed, 1);
    }
}

static void turn(struct load_thread *thread, uint32_t index)
{
    thread->again[index] = !weft_load_worker_turn(&thread->workers[index]);
    thread->any_again = thread->any_again || thread->again[index];
    note_state(thread, index);
}

/* Check the workers that are connecting: their servers may be unreachable. */
static void check_connecting(struct load_thread *thread)
{
    uint64_t now_ns = weft_clock_now_ns();
    for (uint32_t i = 0; thread->settled < thread->opened && i < thread->opened; i++) {
        if (!thread->counted[i]) {
            weft_load_worker_check(&thread->workers[i], now_ns);
            note_state(thread, i);
        }
    }
}

static void turn_all(struct load_thread *thread)
{
    for (uint32_t i = 0; i < thread->opened; i++) {
        turn(thread, i);
    }
}

static void wait_and_turn(struct load_thread *thread)
{
    struct epoll_event events[EVENTS];
    bool again = thread->any_again;
    int look_ms = thread->opened < thread->count ? CONNECTING_CHECK_MS : CHECK_MS;
    thread->any_again = false;
    int ready = epoll_wait(thread->epoll_fd, events, EVENTS, again ? 0 : look_ms);
    for (uint32_t i = 0; again && i < thread->opened; i++) {
        if (thread->again[i]) {
            turn(thread, i);
        }
    }
    for (int i = 0; i < ready; i++) {
        turn(thread, events[i].data.u32);
    }
}

/* ---- the fixed times ------------------------------------------------------------------------- */

/* Sum of the counters of the thread's endpoints. */
static struct weft_driver_counters transport_now(const struct load_thread *thread)
{
    struct weft_driver_counters sum = {0};
    for (uint32_t i = 0; i < thread->opened; i++) {
        struct weft_driver_counters counters;
        weft_driver_counters(thread->workers[i].node.endpoint.driver, &counters);
        weft_load_counters_add(&sum, &counters, sizeof(sum));
    }
    return sum;
}

static struct weft_ps_client_counters client_now(const struct load_thread *thread)
{
    struct weft_ps_client_counters sum = {0};
    for (uint32_t i = 0; i < thread->opened; i++) {
        weft_load_counters_add(&sum, weft_ps_client_counters(thread->workers[i].node.client),
                               sizeof(sum));
    }
    return sum;
}

/* weft_stats_query_fn of a thread, for weft_load_live. */
void weft_load_thread_figures(void *arg, void *object)
{
    struct weft_load_figures *figures = arg;
    const struct load_thread *thread = object;
    *figures =
        (struct weft_load_figures){.transport = transport_now(thread),
                                   .client = client_now(thread),
                                   .seen = thread->seen,
                                   .measuring = thread->phase == MEASURING};
    for (uint32_t i = 0; i < thread->opened; i++) {
        figures->connected += thread->workers[i].state == WEFT_LOAD_READY;
    }
}

static void begin(struct load_thread *thread, uint64_t go_ns)
{
    const struct weft_load_workload *workload = &thread->shared->load->workload;
    thread->warm_ns = go_ns + (uint64_t)(workload->warmup * (double)WEFT_NS_PER_S);
    thread->phase = WARMING;
    for (uint32_t i = 0; i < thread->opened; i++) {
        weft_load_worker_go(&thread->workers[i], go_ns);
    }
    turn_all(thread);
}

/* Measure from now, not from the scheduled time: a thread that is late measures as long as the
 * others. */
static void measure(struct load_thread *thread, uint64_t now_ns)
{
    struct weft_load_servers *servers = &thread->shared->load->servers;
    double seconds = thread->shared->load->workload.seconds;
    thread->context.measure_from_ns = now_ns;
    thread->context.measure_to_ns = now_ns + (uint64_t)(seconds * (double)WEFT_NS_PER_S);
    thread->phase = MEASURING;
    for (uint32_t i = 0; i < thread->opened; i++) {
        weft_ps_client_latencies_clear(thread->workers[i].node.client);
    }
    if (thread->index == 0) {
        thread->outcome->server_cpu_known =
            weft_load_servers_cpu_ns(servers, &thread->server_cpu_from_ns);
        atomic_store(&servers->measure_to_ns, thread->context.measure_to_ns);
        atomic_store(&servers->measure_from_ns, now_ns);
    }
    thread->transport_from = transport_now(thread);
    thread->client_from = client_now(thread);
    thread->cpu_from_ns = thread_cpu_ns();
}

/* The struct consists of histograms only. */
void weft_load_latencies_merge(struct weft_ps_latencies *into, const struct weft_ps_latencies *from)
{
    for (size_t i = 0; i < sizeof(*into) / sizeof(struct weft_hist); i++) {
        weft_hist_merge((struct weft_hist *)into + i, (const struct weft_hist *)from + i);
    }
}

static void keep(struct load_thread *thread, uint64_t now_ns)
{
    struct weft_load_outcome *outcome = thread->outcome;
    outcome->worker_cpu_ns = thread_cpu_ns() - thread->cpu_from_ns;
    outcome->span_ns = now_ns - thread->context.measure_from_ns;
    outcome->is_measured = true;
    outcome->transport = transport_now(thread);
    weft_load_counters_sub(&outcome->transport, &thread->transport_from,
                           sizeof(outcome->transport));
    outcome->client = client_now(thread);
    weft_load_counters_sub(&outcome->client, &thread->client_from, sizeof(outcome->client));
    if (thread->index == 0) {
        uint64_t cpu_ns;
        outcome->server_cpu_known =
            outcome->server_cpu_known &&
            weft_load_servers_cpu_ns(&thread->shared->load->servers, &cpu_ns);
        outcome->server_cpu_ns =
            outcome->server_cpu_known ? cpu_ns - thread->server_cpu_from_ns : 0;
        outcome->rss_bytes = rss_bytes();
    }
    for (uint32_t i = 0; i < thread->opened; i++) {
        const struct weft_ps_client *client = thread->workers[i].node.client;
        weft_load_latencies_merge(&outcome->rpc[WEFT_LOAD_PUSH],
                                  weft_ps_client_push_latencies(client));
        weft_load_latencies_merge(&outcome->rpc[WEFT_LOAD_PULL],
                                  weft_ps_client_pull_latencies(client));
    }
}

static void end(struct load_thread *thread, uint64_t now_ns)
{
    bool measured = thread->phase == MEASURING;
    if (measured) {
        keep(thread, now_ns);
    }
    thread->phase = OVER;
    thread->context.measure_to_ns = weft_min_u64(thread->context.measure_to_ns, now_ns);
    if (thread->index == 0) {
        atomic_store(&thread->shared->load->servers.measure_to_ns, thread->context.measure_to_ns);
    }
    for (uint32_t i = 0; i < thread->opened; i++) {
        weft_load_worker_halt(&thread->workers[i]);
    }
}

static void cross_edges(struct load_thread *thread)
{
    struct load_shared *shared = thread->shared;
    uint64_t now_ns = weft_clock_now_ns();
    if (atomic_load(&shared->stop) && thread->phase != OVER) {
        end(thread, now_ns);
    } else if (thread->phase == CONNECTING && atomic_load(&shared->go_ns) != 0) {
        begin(thread, atomic_load(&shared->go_ns));
    } else if (thread->phase == WARMING && now_ns >= thread->warm_ns) {
        measure(thread, now_ns);
    } else if (thread->phase == MEASURING && now_ns >= thread->context.measure_to_ns) {
        end(thread, now_ns);
    }
}

/* ---- a thread -------------------------------------------------------------------------------- */

/* False: the worker could not be opened. */
static bool open_one(struct load_thread *thread, uint32_t index)
{
    struct weft_load_worker *worker = &thread->workers[index];
    weft_status status = weft_load_worker_init(worker, &thread->context, thread->first + index);
    if (status == WEFT_OK) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = index};
        int fd = weft_driver_pollable(worker->node.endpoint.driver);
        if (epoll_ctl(thread->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0) {
            thread->opened++;
            turn(thread, index);
            return true;
        }
        worker->state = WEFT_LOAD_FAILED;
        (void)weft_fail(&worker->error, WEFT_IO, "epoll: %s", strerror(errno));
    }
    atomic_fetch_add(&thread->shared->failed, 1);
    return false;
}

static uint32_t connecting_max(const struct load_thread *thread)
{
    uint32_t workers = CONNECTIONS_MAX / thread->shared->load->servers.count;
    return workers < 1 ? 1 : workers < CONNECTING_MAX ? workers : CONNECTING_MAX;
}

/* Open workers gradually: a server accepts a limited rate of handshakes (hello_rate_max of
 * core/endpoint.h) with a limited burst; over TCP it drops the excess. */
static void open_some(struct load_thread *thread)
{
    uint32_t threads = thread->shared->load->threads;
    uint64_t elapsed_ns = weft_clock_now_ns() - thread->began_ns;
    uint64_t allowed = OPEN_AT_ONCE / threads + elapsed_ns / (open_each_ns * threads) + 1;
    while (thread->opened < thread->count && thread->opened < allowed &&
           thread->opened - thread->settled < connecting_max(thread) &&
           atomic_load(&thread->shared->failed) == 0 && open_one(thread, thread->opened)) {
        continue;
    }
}

/* Wait for outstanding replies, so that a server does not lose its workers in the middle of a
 * request. */
static void drain(struct load_thread *thread)
{
    uint64_t until_ns = weft_clock_now_ns() + drain_ns;
    bool busy = true;
    while (busy && weft_clock_now_ns() < until_ns) {
        wait_and_turn(thread);
        busy = false;
        for (uint32_t i = 0; i < thread->opened; i++) {
            const struct weft_load_worker *worker = &thread->workers[i];
            busy = busy || (worker->state == WEFT_LOAD_READY && worker->busy_count > 0);
        }
    }
}

void *weft_load_thread_run(void *arg)
{
    struct load_thread *thread = arg;
    thread->began_ns = weft_clock_now_ns();
    while (thread->phase != OVER) {
        open_some(thread);
        wait_and_turn(thread);
        check_connecting(thread);
        cross_edges(thread);
        weft_metrics_live_poll(thread->shared->live.served, thread->index, thread);
    }
    weft_metrics_live_leave(thread->shared->live.served, thread->index);
    drain(thread);
    for (uint32_t i = 0; i < thread->count; i++) {
        weft_load_worker_fini(&thread->workers[i]);
    }
    return NULL;
}

void weft_load_thread_free(struct load_thread *thread)
{
    if (thread->epoll_fd >= 0) {
        (void)close(thread->epoll_fd);
    }
    free(thread->workers);
    free(thread->again);
    free(thread->counted);
    free(thread->context.weights);
    free(thread->outcome);
}

bool weft_load_thread_new(struct load_thread *thread, struct load_shared *shared, uint32_t index)
{
    struct weft_load *load = shared->load;
    const struct weft_load_workload *w = &load->workload;
    uint64_t workers = w->workers;
    thread->shared = shared;
    thread->index = index;
    thread->first = (uint32_t)(workers * index / load->threads);
    thread->count = (uint32_t)(workers * (index + 1) / load->threads) - thread->first;
    thread->workers = calloc(thread->count + 1, sizeof(*thread->workers));
    thread->again = calloc(thread->count + 1, sizeof(*thread->again));
    thread->counted = calloc(thread->count + 1, sizeof(*thread->counted));
    thread->outcome = calloc(1, sizeof(*thread->outcome));
    thread->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    thread->context = (struct weft_load_context){
        .load = load,
        .records = weft_recording_ring(&load->recording),
        .gradients = shared->gradients,
        .weights = calloc((size_t)w->rows * w->dim + 1, sizeof(float)),
        .sums = thread->outcome != NULL ? &thread->outcome->sums : NULL,
        .seen = load->metrics.host[0] != '\0' ? &thread->seen : NULL,
        .measure_from_ns = WEFT_NEVER,
        .measure_to_ns = WEFT_NEVER,
    };
    return thread->workers != NULL && thread->again != NULL && thread->counted != NULL &&
           thread->outcome != NULL && thread->epoll_fd >= 0 && thread->context.weights != NULL;
}
