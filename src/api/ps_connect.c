/* A worker (node/worker.h) for a caller's configuration, its progress and its end. */
#include "api/ps_internal.h"

#include "io/clock.h"
#include "obs/recorder.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ROWS_PER_RPC_MAX = 16384,
    RPC_BYTES_MAX = ROWS_PER_RPC_MAX * 264, /* of rows of 64 floats; an RPC has fewer longer rows */
};

/* Of the last connect that failed in this thread: there is no ps to keep it. */
static _Thread_local struct weft_error connect_error;

/* ---- progress -------------------------------------------------------------------------------- */

void weft_api_ps_step(struct weft_ps *ps, uint64_t timeout_ns)
{
    if (weft_endpoint_has_thread(&ps->worker.endpoint)) {
        timeout_ns = weft_api_ps_metrics_sleep(ps, timeout_ns);
    }
    weft_worker_progress(&ps->worker, timeout_ns);
}

weft_status weft_api_ps_wait_and_retry(struct weft_ps *ps, uint64_t most_ns, uint64_t *end_ns_p)
{
    uint64_t now_ns = weft_clock_now_ns();
    *end_ns_p = *end_ns_p == 0 ? weft_time_add(now_ns, ps->call_timeout_ns) : *end_ns_p;
    if (now_ns >= *end_ns_p) {
        weft_api_ps_step(ps, 0); /* make progress even for a caller without a timeout */
        return weft_fail(&ps->worker.error, WEFT_TIMEOUT,
                         "call_timeout_ns has passed: %s; call again to continue waiting",
                         ps->worker.any_away
                             ? "a server is disconnected"
                             : "a clock has not arrived yet, or replay_bytes is full");
    }
    uint64_t left_ns = *end_ns_p == WEFT_NEVER ? WEFT_NEVER : *end_ns_p - now_ns;
    weft_api_ps_step(ps, weft_min_u64(most_ns, left_ns));
    return WEFT_OK;
}

void weft_ps_progress(struct weft_ps *ps, uint64_t timeout_ns)
{
    weft_api_ps_step(ps, timeout_ns);
}

void weft_ps_idle(struct weft_ps *ps)
{
    weft_worker_idle(&ps->worker);
}

/* ---- the worker ------------------------------------------------------------------------------ */

static enum weft_driver_kind transport_kind(const struct weft_ps_config *config)
{
    bool tcp = config->transport != NULL && strcmp(config->transport, "tcp") == 0;
    return tcp ? WEFT_DRIVER_TCP : WEFT_DRIVER_UDP;
}

static void set_client(const struct weft_ps *ps, const struct weft_ps_config *config,
                       struct weft_ps_client_config *client)
{
    uint32_t blocks = (config->dim_max + WEFT_RPC_BLOCK_FLOATS - 1) / WEFT_RPC_BLOCK_FLOATS;
    uint32_t row_bytes = blocks * (uint32_t)sizeof(uint64_t) + config->dim_max * 4;
    client->worker = config->worker;
    client->tables_max = config->tables_max;
    client->ops_max = config->ops_max;
    client->lists_per_op_max = config->lists_max;
    client->rows_per_op_max = config->rows_max;
    client->rows_per_rpc_max = (uint32_t)weft_min_u64(ROWS_PER_RPC_MAX, RPC_BYTES_MAX / row_bytes);
    client->dim_max = config->dim_max;
    client->missed_max = config->missed_max;
    client->reconnect_ns = config->reconnect_timeout_ns;
    client->replay_bytes = config->replay_bytes;
    client->records = ps->records;
    client->hot_rows = (uint32_t)config->hot_rows;
    client->update_bytes_min = config->update_bytes_min;
    if (!ps->has_scheduler && config->update_bytes_min > 0) {
        client->update_bytes_min = UINT64_MAX; /* no update requests a grant */
    }
    bool caches;
    if (weft_api_ps_key_caching(&caches, NULL) == WEFT_OK && !caches) {
        client->can &= ~WEFT_RPC_CAN_LIST;
    }
}

static void set_endpoint(const struct weft_ps *ps, const struct weft_ps_config *config,
                         struct weft_endpoint_config *endpoint)
{
    struct weft_udp_config *udp = &endpoint->driver.udp;
    endpoint->security = &ps->security;
    endpoint->thread = config->thread;
    endpoint->driver.kind = transport_kind(config);
    udp->host = config->host;
    udp->busy_poll_us = (uint16_t)config->busy_poll_us;
    udp->loss.loss_ppm = config->inject_loss_ppm;
    udp->loss.seed = config->inject_seed;
    udp->loopback_packet_bytes = WEFT_UDP_LOOPBACK_BYTES;
    udp->blocking_receive = WEFT_UDP_BLOCKING_RECEIVE;
    udp->delayed_ack_ns = config->thread ? 0 : WEFT_UDP_DELAYED_ACK_NS;
    udp->ep.confirm_later = config->thread ? 1 : 0; /* without a thread, nothing is sent between two
                                                     * calls */
    udp->ep.done_later = config->thread ? 1 : 0;
    udp->ep.peer_timeout_ns = config->peer_timeout_ns;
    udp->ep.keepalive_ns = config->keepalive_ns;
}

static void on_progress(void *arg, uint64_t now_ns)
{
    (void)now_ns;
    weft_api_ps_metrics_look(arg);
}

/* Shape: address_p: memory for the address that `worker` points to. */
static weft_status set_scheduler(struct weft_ps *ps, const struct weft_ps_config *config,
                                 struct weft_launch_address *address_p,
                                 struct weft_worker_config *worker)
{
    static const enum weft_sched_mode modes[] = {[WEFT_TABLE_BSP] = WEFT_SCHED_BSP,
                                                 [WEFT_TABLE_SSP] = WEFT_SCHED_SSP,
                                                 [WEFT_TABLE_ASP] = WEFT_SCHED_ASP};
    weft_status status =
        weft_api_ps_scheduler_read(config, address_p, &ps->scheduled_mode, &ps->worker.error);
    ps->has_scheduler = status == WEFT_OK && config->scheduler != NULL;
    worker->scheduler = ps->has_scheduler ? address_p : NULL;
    worker->workers = config->workers;
    worker->mode = modes[ps->scheduled_mode];
    worker->tau_max = config->tau_max > 0 ? config->tau_max : WEFT_NEVER;
    worker->link_bps = config->link_mbps * 1000000;
    return status;
}

/* Owns: gives *replicas_p (shards,), to be freed; NULL = none. */
static weft_status read_replicas(const struct weft_ps_config *config, uint32_t shards,
                                 struct weft_launch_address **replicas_p, struct weft_error *error)
{
    uint32_t count = shards;
    *replicas_p = NULL;
    if (config->replicas == NULL) {
        return WEFT_OK;
    }
    weft_status status =
        weft_api_ps_servers_parse("replicas", config->replicas, replicas_p, &count, error);
    if (status == WEFT_OK && count != shards) {
        free(*replicas_p);
        *replicas_p = NULL;
        return weft_fail(error, WEFT_INVALID,
                         "replicas names %u shards, and servers %u; name one replica of each",
                         count, shards);
    }
    return status;
}

static weft_status open_worker(struct weft_ps *ps, const struct weft_ps_config *config,
                               const struct weft_launch_address *servers, uint32_t shards)
{
    struct weft_worker_config worker;
    struct weft_launch_address scheduler;
    weft_worker_config_default(&worker);
    weft_status status = set_scheduler(ps, config, &scheduler, &worker);
    if (status != WEFT_OK) {
        return status;
    }
    set_client(ps, config, &worker.client);
    set_endpoint(ps, config, &worker.endpoint);
    worker.client.shards = shards;
    worker.servers = servers;
    worker.membership = &ps->membership;
    /* In the API 0 means one attempt; for a worker it means "do not wait". */
    worker.connect_timeout_ns = weft_max_u64(config->connect_timeout_ns, 1);
    worker.on_progress = on_progress;
    worker.arg = ps;
    if (weft_ps_client_expects_max(&worker.client) > UINT16_MAX) {
        return weft_fail(&ps->worker.error, WEFT_INVALID,
                         "ops_max x (lists_max x shards + rows_max / %u) + tables_max x shards "
                         "is more than 65535; lower one of them",
                         worker.client.rows_per_rpc_max);
    }
    struct weft_launch_address *via = NULL, *replicas;
    status = read_replicas(config, shards, &replicas, &ps->worker.error);
    worker.replicas = replicas;
    if (status == WEFT_OK && config->via != NULL) {
        status = weft_worker_via_read(&worker, "config.via or WEFT_VIA", config->via, &via,
                                      &ps->worker.error);
    }
    status = status == WEFT_OK ? weft_worker_open(&ps->worker, &worker) : status;
    free(via);
    free(replicas);
    return status;
}

/* ---- joining --------------------------------------------------------------------------------- */

/* Become a member of the job: get the rank, the number of workers and the addresses of the shards.
 * A thread renews the lease: a program that computes for a minute does not lose its rank. */
static weft_status join(struct weft_ps *ps, struct weft_ps_config *config,
                        struct weft_launch_address **servers_p, uint32_t *shards_p)
{
    const struct weft_transport_options transport = {.kind = transport_kind(config)};
    const struct weft_membership_join wanted = {
        .rack = config->rack,
        .wants_aggregator = config->via != NULL && strcmp(config->via, "coordinator") == 0,
        .security = &ps->security,
        .transport = &transport,
        .first = WEFT_MEMBER_NONE,
        .what = WEFT_MEMBER_WAIT_LISTED,
        .patience_ns = config->connect_timeout_ns,
    };
    struct weft_member_state state;
    weft_status status = weft_membership_join(&ps->membership, &wanted, &state, &ps->worker.error);
    if (status != WEFT_OK) {
        return status;
    }
    config->worker = state.grant.rank;
    config->workers = state.grant.workers;
    *shards_p = state.list.count;
    *servers_p = calloc(state.list.count, sizeof(**servers_p));
    for (uint32_t s = 0; *servers_p != NULL && s < state.list.count; s++) {
        (void)weft_membership_locate(&ps->membership, s, state.list.count, &(*servers_p)[s]);
    }
    return *servers_p != NULL
               ? WEFT_OK
               : weft_fail(&ps->worker.error, WEFT_NOMEM, "no memory for the list of servers");
}

static weft_status ps_init(struct weft_ps *ps, struct weft_ps_config *config)
{
    const struct weft_api_security security = {config->security, config->key_file, config->key};
    struct weft_launch_address *servers = NULL;
    uint32_t shards = 0;
    struct weft_error *error = &ps->worker.error;
    bool joins = weft_membership_has_coordinator(&ps->membership);
    weft_status status =
        joins ? WEFT_OK
              : weft_api_ps_servers_parse("servers", config->servers, &servers, &shards, error);
    if (status == WEFT_OK) {
        status = weft_api_security_load(&security, &ps->security, error);
    }
    if (status == WEFT_OK && joins) {
        status = join(ps, config, &servers, &shards);
    }
    ps->workers = config->workers;
    if (status == WEFT_OK) {
        status = weft_api_ps_records_open(ps, config);
    }
    status = status == WEFT_OK ? open_worker(ps, config, servers, shards) : status;
    free(servers);
    return status;
}

static weft_status allocate(struct weft_ps *ps, const struct weft_ps_config *config)
{
    ps->tables_max = config->tables_max;
    ps->dim_max = config->dim_max;
    ps->ops_max = config->ops_max;
    ps->rows_max = config->rows_max;
    ps->lists_max = config->lists_max;
    ps->connect_timeout_ns = config->connect_timeout_ns;
    ps->call_timeout_ns = config->call_timeout_ns;
    ps->replay_bytes = config->replay_bytes;
    ps->tables = calloc(config->tables_max, sizeof(*ps->tables));
    if (ps->tables == NULL) {
        return weft_fail(&ps->worker.error, WEFT_NOMEM, "no memory for %u tables",
                         config->tables_max);
    }
    weft_status status = weft_api_ps_missed_begin(ps, config->rows_max);
    ps->missed.rows = 0;
    return status;
}

/* ---- the public functions -------------------------------------------------------------------- */

weft_status weft_ps_connect(const struct weft_ps_config *config, struct weft_ps **ps_p)
{
    struct weft_ps_config ours;
    struct weft_launch launch;
    if (config == NULL || ps_p == NULL) {
        return weft_fail(&connect_error, WEFT_INVALID,
                         "config or ps_p is NULL; fill a config with weft_ps_config_init");
    }
    weft_status status = weft_api_ps_config_read(config, &ours, &launch, &connect_error);
    if (status != WEFT_OK) {
        return status;
    }
    struct weft_ps *ps = calloc(1, sizeof(*ps));
    if (ps == NULL) {
        return weft_fail(&connect_error, WEFT_NOMEM, "no memory for a connection");
    }
    ps->pid = getpid();
    ps->membership.launch = launch;
    status = allocate(ps, &ours);
    if (status == WEFT_OK) {
        status = ps_init(ps, &ours);
    }
    if (status != WEFT_OK) {
        connect_error = ps->worker.error;
        weft_ps_close(ps);
        return status;
    }
    weft_api_ps_metrics_open(ps, ours.metrics);
    *ps_p = ps;
    return WEFT_OK;
}

/* A forked process does nothing: the sockets and the threads are the parent's, and it would end the
 * parent's connections and give up its rank. */
static void end(struct weft_ps *ps, bool done)
{
    if (ps->pid != getpid()) {
        return;
    }
    weft_api_ps_metrics_close(ps);
    weft_worker_close(&ps->worker);
    weft_recorder_free(ps->recorder);
    weft_membership_leave(&ps->membership, done);
    weft_security_fini(&ps->security);
    weft_api_ps_tables_free(ps);
    free(ps->tables);
    free(ps->missed.bits);
    free(ps);
}

void weft_ps_close(struct weft_ps *ps)
{
    if (ps != NULL) {
        end(ps, ps->worker.client != NULL && !ps->worker.any_down && weft_api_ps_is_flushed(ps));
    }
}

void weft_ps_abort(struct weft_ps *ps)
{
    if (ps != NULL) {
        end(ps, false);
    }
}

const char *weft_ps_error(const struct weft_ps *ps)
{
    return ps != NULL ? ps->worker.error.text : connect_error.text;
}

uint32_t weft_ps_worker(const struct weft_ps *ps)
{
    return ps->worker.rank;
}

uint32_t weft_ps_workers(const struct weft_ps *ps)
{
    return ps->workers;
}

uint32_t weft_ps_shards(const struct weft_ps *ps)
{
    return ps->worker.shards;
}

void weft_ps_counters_get(struct weft_ps *ps, struct weft_ps_counters *counters_p)
{
    const struct weft_ps_client_counters *client = weft_ps_client_counters(ps->worker.client);
    struct weft_driver_counters driver;
    weft_endpoint_counters(&ps->worker.endpoint, &driver);
    const struct weft_ps_counters ours = {
        .push_messages = client->push.messages,
        .push_messages_short = client->push.messages_short,
        .push_elements_sent = client->push.elements_sent,
        .push_elements_delivered = client->push.elements_delivered,
        .push_chunks_refused = client->push.chunks_refused,
        .pull_messages = client->pull.messages,
        .pull_messages_short = client->pull.messages_short,
        .pull_elements_sent = client->pull.elements_sent,
        .pull_elements_delivered = client->pull.elements_delivered,
        .missed_ids = client->missed_ids,
        .missed_ids_dropped = client->missed_ids_dropped,
        .clocks = client->clocks,
        .requests_refused = client->rpcs_refused,
        .requests_failed = client->rpcs_failed,
        .replies_malformed = client->replies_malformed,
        .datagrams_sent = driver.socket.datagrams_sent,
        .datagrams_received = driver.socket.datagrams_received,
        .bytes_sent = driver.socket.bytes_sent,
        .bytes_received = driver.socket.bytes_received,
        .retransmitted_packets = driver.ep.retransmitted_packets,
        .lost_packets = driver.ep.lost_packets,
        .injected_drops = driver.socket.injected_drops,
        .server_disconnects = client->shard_disconnects,
        .pushes_resent = client->pushes_resent,
        .pushes_lost = client->pushes_lost,
        .pushes_durable = client->pushes_durable,
        .replay_bytes_now = client->replay_bytes_now,
        .pushes_skipped = client->pushes_skipped,
        .deadlines_expired = client->deadlines_expired,
        .last_values_evicted = client->last_values_evicted,
        .feedback_rows_now = client->feedback_rows_now,
        .feedback_stored = client->feedback_stored,
        .feedback_added = client->feedback_added,
        .feedback_dropped = client->feedback_dropped,
        .residual_dropped = client->residual_dropped,
        .value_bytes_saved = client->value_bytes_saved,
        .updates = client->updates,
        .updates_asked = client->updates_asked,
        .updates_direct = client->updates_direct,
        .updates_dropped = client->updates_dropped,
        .pushes_late = client->pushes_late,
    };
    weft_api_ps_counters_out(counters_p, &ours);
}
