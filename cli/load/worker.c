#include "cli/load/worker.h"

#include "io/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    TABLE = 0,
    TX_WINDOW = 256, /* packets in flight to one shard: the minimum */
    SOCKET_BUFFER_BYTES = 1 << 20,
};

/* Maximum time counted between two checks: a process that was stopped did not wait. */
static const uint64_t check_ns_max = 100 * WEFT_NS_PER_MS;

static weft_status fail(struct weft_load_worker *worker, weft_status status, const char *what)
{
    if (worker->state != WEFT_LOAD_FAILED) {
        (void)weft_fail(&worker->error, status, "worker %u: %s", worker->rank, what);
    }
    worker->state = WEFT_LOAD_FAILED;
    return status;
}

/* Fail with the error of node/worker.h. */
static weft_status fail_node(struct weft_load_worker *worker, weft_status status)
{
    return fail(worker, status, worker->node.error.text);
}

/* ---- settings of the endpoint ---------------------------------------------------------------- */

static void set_client(const struct weft_load_worker *worker, struct weft_ps_client_config *client)
{
    const struct weft_load_workload *workload = &worker->context->load->workload;
    client->worker = worker->rank;
    client->shards = worker->context->load->servers.count;
    client->tables_max = 1;
    client->ops_max = workload->in_flight;
    client->lists_per_op_max = 1;
    client->rows_per_op_max = workload->rows > 0 ? workload->rows : 1;
    client->rows_per_rpc_max = client->rows_per_op_max;
    client->dim_max = workload->dim;
    client->missed_max = 1; /* every pull is requested completely */
    client->records = worker->context->records;
    client->can &= workload->no_key_caching ? ~WEFT_RPC_CAN_LIST : WEFT_RPC_CAN_ALL;
}

static void set_endpoint(const struct weft_load_worker *worker,
                         struct weft_endpoint_config *endpoint)
{
    struct weft_udp_config *udp = &endpoint->driver.udp;
    endpoint->security = &worker->context->load->security;
    weft_transport_options_apply(&worker->context->load->transport, &endpoint->driver);
    udp->socket_buffer_bytes = SOCKET_BUFFER_BYTES;
    udp->loopback_packet_bytes = WEFT_UDP_LOOPBACK_BYTES;
    udp->ep.tx_window_max = TX_WINDOW;
    udp->ep.keepalive_ns = WEFT_NEVER;
    udp->ep.idle_timeout_ns = WEFT_NEVER;
    udp->ep.confirm_later = 1; /* its thread makes progress on every packet that arrives */
    udp->ep.done_later = 1;
}

/* Declare a table with rows like the embeddings of a model, without synchronization between
 * workers. When the shard is full, the least recently used row is evicted, so that a run can have
 * any length; not with --eviction none, which aggregators require. */
static weft_status declare(struct weft_load_worker *worker)
{
    struct weft_table_spec spec = {
        .table = TABLE,
        .dim = worker->context->load->workload.dim,
        .optimizer = WEFT_OPTIMIZER_SGD,
        .mode = WEFT_TABLE_ASP,
        .workers = (uint16_t)worker->context->load->workload.workers,
        .learning_rate = 0.01F,
        .eviction = worker->context->load->workload.eviction == WEFT_LOAD_LRU
                        ? WEFT_EVICTION_LRU
                        : WEFT_EVICTION_NONE,
    };
    weft_status status =
        weft_ps_table_open(worker->node.client, &spec, weft_clock_now_ns(), &worker->opening);
    return status == WEFT_OK ? status : fail(worker, status, weft_status_text(status));
}

static weft_status allocate(struct weft_load_worker *worker)
{
    const struct weft_load_workload *workload = &worker->context->load->workload;
    worker->requests = calloc(workload->in_flight, sizeof(*worker->requests));
    worker->ids = calloc((size_t)workload->in_flight * workload->rows + 1, sizeof(*worker->ids));
    if (worker->requests == NULL || worker->ids == NULL) {
        return fail(worker, WEFT_NOMEM, "no memory");
    }
    for (uint32_t i = 0; i < workload->in_flight; i++) {
        worker->requests[i].ids = worker->ids + (size_t)i * workload->rows;
    }
    return WEFT_OK;
}

/* ---- requests -------------------------------------------------------------------------------- */

static void draw_ids(struct weft_load_worker *worker, uint64_t *ids)
{
    const struct weft_zipf *zipf = &worker->context->load->zipf;
    for (uint32_t i = 0; i < worker->context->load->workload.rows; i++) {
        ids[i] = weft_zipf_id(zipf, weft_zipf_rank(zipf, &worker->prng));
    }
}

static enum weft_load_kind draw_kind(struct weft_load_worker *worker)
{
    const struct weft_load_mix *mix = &worker->context->load->workload.mix;
    bool push = weft_prng_below(&worker->prng, mix->push + mix->pull) < mix->push;
    return push && worker->context->load->workload.rows > 0 ? WEFT_LOAD_PUSH : WEFT_LOAD_PULL;
}

static weft_status send_request(struct weft_load_worker *worker, struct weft_load_request *request,
                                uint64_t now_ns)
{
    const struct weft_load_context *context = worker->context;
    uint32_t rows = context->load->workload.rows;
    if (rows == 0) {
        uint32_t shard = (uint32_t)weft_prng_below(&worker->prng, context->load->servers.count);
        return weft_ps_ask(worker->node.client, TABLE, shard, now_ns, &request->op);
    }
    if (request->kind == WEFT_LOAD_PUSH) {
        return weft_ps_push(worker->node.client, TABLE, request->ids, context->gradients, rows, 0,
                            now_ns, &request->op);
    }
    return weft_ps_pull(worker->node.client, TABLE, request->ids, context->weights, rows, 0, now_ns,
                        &request->op);
}

/* AGAIN: a connection to a shard that was parked is being reopened. */
static void try_to_send(struct weft_load_worker *worker, struct weft_load_request *request)
{
    weft_status status = send_request(worker, request, weft_clock_now_ns());
    request->unsent = status != WEFT_OK;
    if (request->unsent && status != WEFT_AGAIN) {
        (void)fail(worker, status, weft_status_text(status));
    }
}

static void begin(struct weft_load_worker *worker, struct weft_load_request *request,
                  uint64_t due_ns)
{
    request->kind = draw_kind(worker);
    request->due_ns = due_ns;
    if (worker->context->load->workload.rows > 0) {
        draw_ids(worker, request->ids);
    }
    request->busy = true;
    worker->busy_count++;
    try_to_send(worker, request);
}

/* Exponentially distributed time to the next arrival, at the rate of one worker. */
static uint64_t draw_gap_ns(struct weft_load_worker *worker)
{
    const struct weft_load_workload *workload = &worker->context->load->workload;
    double uniform = (double)((weft_prng_u64(&worker->prng) >> 11) + 1) * 0x1p-53; /* (0, 1] */
    double mean_ns = (double)WEFT_NS_PER_S * workload->workers / workload->rate;
    return (uint64_t)fmin(-log(uniform) * mean_ns, 1e17) + 1;
}

static void begin_due(struct weft_load_worker *worker)
{
    const struct weft_load_workload *workload = &worker->context->load->workload;
    uint64_t now_ns = weft_clock_now_ns();
    for (uint32_t i = 0; i < workload->in_flight; i++) {
        struct weft_load_request *request = &worker->requests[i];
        if (!worker->is_running || worker->state != WEFT_LOAD_READY) {
            return;
        }
        if (request->busy) {
            if (request->unsent) {
                try_to_send(worker, request);
            }
        } else if (workload->rate <= 0) {
            begin(worker, request, weft_clock_now_ns());
        } else if (worker->next_ns <= now_ns) {
            uint64_t due_ns = worker->next_ns;
            worker->next_ns += draw_gap_ns(worker);
            begin(worker, request, due_ns);
        }
    }
}

/* Closed loop: started and replied to in the interval. Open loop: scheduled in the interval; late
 * replies are included. */
static bool counts(const struct weft_load_context *context, uint64_t due_ns, uint64_t done_ns)
{
    uint64_t until_ns = context->load->workload.rate > 0 ? due_ns : done_ns;
    return due_ns >= context->measure_from_ns && until_ns < context->measure_to_ns;
}

static void finished(struct weft_load_worker *worker, struct weft_load_request *request,
                     const struct weft_ps_result *result)
{
    const struct weft_load_context *context = worker->context;
    uint64_t now_ns = weft_clock_now_ns();
    weft_ps_op_release(worker->node.client, request->op);
    request->busy = false;
    worker->busy_count--;
    if (result->status == WEFT_PEER || result->status == WEFT_PROTO) {
        (void)fail_node(worker, weft_worker_gone(&worker->node, result->shard));
        return;
    }
    if (context->seen != NULL) {
        weft_hist_add(&context->seen->latency[request->kind], now_ns - request->due_ns);
        context->seen->refused += result->status != WEFT_OK;
    }
    if (counts(context, request->due_ns, now_ns)) {
        weft_hist_add(&context->sums->latency[request->kind], now_ns - request->due_ns);
        context->sums->rows[request->kind] += context->load->workload.rows;
        context->sums->refused += result->status != WEFT_OK;
    }
}

static void take_finished(struct weft_load_worker *worker)
{
    struct weft_ps_result result;
    for (uint32_t i = 0; i < worker->context->load->workload.in_flight; i++) {
        struct weft_load_request *request = &worker->requests[i];
        if (request->busy && !request->unsent &&
            weft_ps_op_done(worker->node.client, request->op, &result)) {
            finished(worker, request, &result);
        }
    }
}

static void take_opened(struct weft_load_worker *worker)
{
    struct weft_ps_result result;
    if (!weft_ps_op_done(worker->node.client, worker->opening, &result)) {
        return;
    }
    weft_ps_op_release(worker->node.client, worker->opening);
    if (result.status == WEFT_OK) {
        worker->state = WEFT_LOAD_READY;
    } else {
        (void)fail_node(worker, weft_worker_refused(&worker->node, "opening the table", &result));
    }
}

/* ---- progress -------------------------------------------------------------------------------- */

static void on_progress(void *arg, uint64_t now_ns)
{
    (void)now_ns;
    struct weft_load_worker *worker = arg;
    if (worker->state == WEFT_LOAD_OPENING) {
        take_opened(worker);
    }
    if (worker->state == WEFT_LOAD_READY) {
        take_finished(worker);
        begin_due(worker);
    }
}

/* True if a peer or the network reported a reason, or no server has replied at all; false if the
 * servers are only slow. */
static bool is_hopeless(struct weft_load_worker *worker, char why_p[WEFT_SECURITY_HINT_BYTES])
{
    struct weft_driver_counters counters;
    (void)weft_worker_hint(&worker->node, why_p);
    weft_endpoint_counters(&worker->node.endpoint, &counters);
    return why_p[0] != '\0' || counters.socket.datagrams_received == 0;
}

void weft_load_worker_check(struct weft_load_worker *worker, uint64_t now_ns)
{
    char why[WEFT_SECURITY_HINT_BYTES], text[WEFT_ERROR_BYTES];
    const struct weft_load *load = worker->context->load;
    bool local = load->workload.shards != 0; /* local servers exist */
    uint64_t patience_ns = local ? WEFT_NEVER : load->start_timeout_s * WEFT_NS_PER_S;
    uint64_t since_ns = worker->checked_ns != 0 ? now_ns - worker->checked_ns : 0;
    worker->checked_ns = now_ns;
    worker->waited_ns += weft_min_u64(since_ns, check_ns_max);
    if (worker->state != WEFT_LOAD_OPENING || worker->waited_ns < patience_ns ||
        !is_hopeless(worker, why)) {
        return;
    }
    snprintf(text, sizeof(text), "%s after %llu s: %s (see --start-timeout)",
             load->servers.count == 1 ? "the server cannot be reached"
                                      : "not all servers can be reached",
             (unsigned long long)(patience_ns / WEFT_NS_PER_S),
             why[0] != '\0' ? why
                            : "no reply at all; check --servers, and that firewalls pass UDP or, "
                              "with --transport tcp, TCP");
    (void)fail(worker, WEFT_TIMEOUT, text);
}

void weft_load_worker_go(struct weft_load_worker *worker, uint64_t now_ns)
{
    worker->is_running = true;
    bool open = worker->context->load->workload.rate > 0;
    worker->next_ns = open ? now_ns + draw_gap_ns(worker) : WEFT_NEVER;
}

bool weft_load_worker_turn(struct weft_load_worker *worker)
{
    weft_worker_progress(&worker->node, 0);
    bool waits = worker->busy_count < worker->context->load->workload.in_flight;
    bool open = worker->is_running && worker->context->load->workload.rate > 0;
    return weft_driver_rest(worker->node.endpoint.driver,
                            open && waits ? worker->next_ns : WEFT_NEVER);
}

static void unanswered(struct weft_load_worker *worker, enum weft_load_kind kind, uint64_t due_ns)
{
    const struct weft_load_context *context = worker->context;
    if (due_ns >= context->measure_from_ns && due_ns < context->measure_to_ns) {
        weft_hist_add(&context->sums->latency[kind], context->measure_to_ns - due_ns);
        context->sums->unanswered++;
    }
}

void weft_load_worker_halt(struct weft_load_worker *worker)
{
    const struct weft_load_workload *workload = &worker->context->load->workload;
    if (workload->rate > 0 && worker->is_running) {
        for (uint32_t i = 0; i < workload->in_flight; i++) {
            if (worker->requests[i].busy) {
                unanswered(worker, worker->requests[i].kind, worker->requests[i].due_ns);
            }
        }
        for (; worker->next_ns < worker->context->measure_to_ns;
             worker->next_ns += draw_gap_ns(worker)) {
            unanswered(worker, draw_kind(worker), worker->next_ns);
        }
    }
    worker->is_running = false;
    for (uint32_t i = 0; i < workload->in_flight; i++) {
        struct weft_load_request *request = &worker->requests[i];
        worker->busy_count -= request->busy && request->unsent;
        request->busy = request->busy && !request->unsent;
    }
}

/* ---- beginning and end ----------------------------------------------------------------------- */

weft_status weft_load_worker_init(struct weft_load_worker *worker,
                                  const struct weft_load_context *context, uint32_t rank)
{
    *worker = (struct weft_load_worker){.context = context, .rank = rank};
    weft_prng_split(&worker->prng, context->load->workload.seed, rank);
    weft_status status = allocate(worker);
    if (status != WEFT_OK) {
        return status;
    }
    struct weft_worker_config config;
    weft_worker_config_default(&config);
    set_client(worker, &config.client);
    set_endpoint(worker, &config.endpoint);
    config.servers = context->load->servers.shards;
    const struct weft_load_vias *vias = &context->load->vias;
    if (vias->count > 0) {
        config.via = vias->at[rank % vias->count];
        config.client.hot_rows = context->load->hot_rows;
        config.client.via_timeout_ns = WEFT_WORKER_VIA_TIMEOUT_MS * WEFT_NS_PER_MS;
    }
    config.on_progress = on_progress;
    config.arg = worker;
    status = weft_worker_open(&worker->node, &config);
    return status == WEFT_OK ? declare(worker) : fail_node(worker, status);
}

void weft_load_worker_fini(struct weft_load_worker *worker)
{
    weft_worker_close(&worker->node);
    free(worker->requests);
    free(worker->ids);
}
