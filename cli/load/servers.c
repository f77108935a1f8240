#include "cli/load/run.h"

#include <stdlib.h>
#include <time.h>

enum {
    SLOTS = 4,       /* concurrent pushes, and pulls, of one worker */
    TX_WINDOW = 256, /* packets in flight to one worker: the minimum */
    HOT_TOP = 20000, /* as in `weft server` */
};

/* ---- local shards ---------------------------------------------------------------------------- */

static bool on_event(void *arg, struct weft_msgr msgr, const struct weft_msg_event *event)
{
    struct weft_load_local *local = arg;
    struct weft_load_servers *servers = local->servers;
    (void)msgr;
    if (event->type == WEFT_EVENT_OPEN) {
        weft_active_note(&servers->active[local - servers->local], event->peer, event->at_ns,
                         atomic_load_explicit(&servers->measure_from_ns, memory_order_relaxed),
                         atomic_load_explicit(&servers->measure_to_ns, memory_order_relaxed));
    }
    return false;
}

static uint32_t rows_of_shard(const struct weft_load_servers *servers)
{
    uint32_t rows = servers->rows_max / servers->count;
    return rows > 1024 ? rows : 1024;
}

static void thread_config(const struct weft_load *load, struct weft_shard_thread_config *thread_p)
{
    const struct weft_load_workload *workload = &load->workload;
    weft_shard_thread_config_default(thread_p);
    struct weft_shard_config *shard = &thread_p->shard;
    struct weft_udp_config *udp = &thread_p->driver.udp;
    shard->shards = load->servers.count;
    shard->workers_max = workload->workers;
    shard->rows_max = rows_of_shard(&load->servers);
    shard->tables_max = 1;
    shard->dim_max = workload->dim;
    shard->hot_top = HOT_TOP;
    shard->push_slots = shard->pull_slots = SLOTS;
    shard->rows_per_rpc_max = workload->rows > 0 ? workload->rows : 1;
    weft_transport_options_apply(&load->transport, &thread_p->driver);
    udp->busy_poll_us = load->busy_poll_us;
    udp->ep.tx_window_max = TX_WINDOW;
    thread_p->security = &load->security;
    thread_p->recorder = load->recording.recorder;
    thread_p->hooks.on_event = on_event;
}

static weft_status start_one(struct weft_load *load, uint32_t shard, struct weft_error *error)
{
    struct weft_load_servers *servers = &load->servers;
    struct weft_load_local *local = &servers->local[shard];
    struct weft_shard_thread_config thread;
    local->servers = servers;
    thread_config(load, &thread);
    thread.shard.shard = shard;
    thread.shard.records = weft_recording_ring(&load->recording);
    thread.driver.udp.ep.credit_share = &servers->share;
    thread.hooks.arg = local;
    /* Peer indices are below the endpoint's table size: twice the workers plus a reserve. */
    weft_status status = weft_active_init(&servers->active[shard], 2 * load->workload.workers + 8);
    if (status != WEFT_OK) {
        return weft_fail(error, status, "no memory for the statistics of shard %u", shard);
    }
    status = weft_shard_thread_start(&local->thread, &thread, error);
    if (status == WEFT_OK) {
        servers->running++;
        servers->shards[shard] =
            (struct weft_launch_address){.host = "127.0.0.1", .port = local->thread.port};
    }
    return status;
}

weft_status weft_load_servers_start(struct weft_load *load, struct weft_error *error)
{
    struct weft_load_servers *servers = &load->servers;
    servers->count = load->workload.shards;
    atomic_store(&servers->measure_from_ns, WEFT_NEVER); /* before a shard reads it */
    servers->local = calloc(servers->count, sizeof(*servers->local));
    servers->active = calloc(servers->count, sizeof(*servers->active));
    if (servers->local == NULL || servers->active == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for %u shards", servers->count);
    }
    weft_status status = WEFT_OK;
    for (uint32_t s = 0; status == WEFT_OK && s < servers->count; s++) {
        status = start_one(load, s, error);
    }
    return status;
}

void weft_load_servers_stop(struct weft_load_servers *servers)
{
    for (; servers->running > 0; servers->running--) {
        weft_shard_thread_join(&servers->local[servers->running - 1].thread);
    }
}

void weft_load_servers_fini(struct weft_load_servers *servers)
{
    weft_load_servers_stop(servers);
    for (uint32_t s = 0; servers->active != NULL && s < servers->count; s++) {
        weft_active_fini(&servers->active[s]);
    }
    free(servers->active);
    free(servers->local);
}

/* ---- CPU ------------------------------------------------------------------------------------- */

static bool clock_read(clockid_t clock, uint64_t *sum)
{
    struct timespec at;
    if (clock_gettime(clock, &at) != 0) {
        return false;
    }
    *sum += (uint64_t)at.tv_sec * WEFT_NS_PER_S + (uint64_t)at.tv_nsec;
    return true;
}

bool weft_load_servers_cpu_ns(const struct weft_load_servers *servers, uint64_t *cpu_ns_p)
{
    uint64_t sum = 0;
    clockid_t clock;
    bool known = servers->running > 0;
    for (uint32_t s = 0; known && s < servers->running; s++) {
        known = pthread_getcpuclockid(servers->local[s].thread.thread, &clock) == 0 &&
                clock_read(clock, &sum);
    }
    if (servers->running == 0 && servers->server_pid != 0) {
        known =
            clock_getcpuclockid((pid_t)servers->server_pid, &clock) == 0 && clock_read(clock, &sum);
    }
    *cpu_ns_p = known ? sum : 0;
    return known;
}
