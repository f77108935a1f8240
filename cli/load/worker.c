#include "cli/load/worker.h"

#include "io/clock.h"
#include "io/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TABLE = 0,
    TX_WINDOW = 256, /* packets in flight to one shard: the least that there is */
    PEER_TIMEOUT_S = 60,
    WHY_BYTES = WEFT_UDP_UNREACHED_BYTES,
    SOCKET_BUFFER_BYTES = 1 << 20,
};

/* Between two looks: a process that was stopped has not waited. */
static const uint64_t look_ns_max = 100 * WEFT_NS_PER_MS;

static uint64_t clock_now(void *arg)
{
    (void)arg;
    return weft_clock_now_ns();
}

static weft_status fail(struct weft_load_worker *worker, weft_status status, const char *what)
{
    if (worker->state != WEFT_LOAD_FAILED) {
        snprintf(worker->error, sizeof(worker->error), "worker %u: %s", worker->rank, what);
    }
    worker->state = WEFT_LOAD_FAILED;
    return status;
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static struct weft_ps_client_config client_config(const struct weft_load_worker *worker)
{
    const struct weft_load_workload *workload = worker->scene->workload;
    struct weft_ps_client_config config;
    weft_ps_client_config_default(&config);
    config.worker = worker->rank;
    weft_os_random(config.missed_key, sizeof(config.missed_key));
    config.shards = worker->scene->servers->count;
    config.tables_max = 1;
    config.ops_max = workload->in_flight;
    config.lists_per_op_max = 1;
    config.rows_per_op_max = workload->rows > 0 ? workload->rows : 1;
    config.rows_per_rpc_max = config.rows_per_op_max;
    config.dim_max = workload->dim;
    config.missed_max = 1; /* every pull is asked for whole */
    config.records = worker->scene->records;
    config.clock_ns = clock_now;
    return config;
}

static struct weft_driver_config driver_config(const struct weft_load_worker *worker,
                                               const struct weft_ps_client_config *client)
{
    const struct weft_load_scene *scene = worker->scene;
    const char *hosts[WEFT_LOAD_SHARDS_MAX];
    for (uint32_t s = 0; s < scene->servers->count; s++) {
        hosts[s] = scene->servers->shards[s].host;
    }
    struct weft_driver_config config;
    weft_driver_config_default(&config);
    weft_transport_options_apply(scene->transport, &config);
    config.udp.host = weft_udp_bind_towards(hosts, scene->servers->count);
    config.udp.socket_buffer_bytes = SOCKET_BUFFER_BYTES;
    config.udp.loopback_packet_bytes = WEFT_UDP_LOOPBACK_BYTES;
    config.udp.ep.name = weft_rpc_name(WEFT_ROLE_WORKER, worker->rank);
    config.udp.ep.peers_max = scene->servers->count;
    config.udp.ep.expects_max = weft_ps_client_expects_max(client);
    config.udp.ep.tx_window_max = TX_WINDOW;
    config.udp.ep.peer_timeout_ns = PEER_TIMEOUT_S * WEFT_NS_PER_S;
    config.udp.ep.keepalive_ns = WEFT_NEVER;
    config.udp.ep.idle_timeout_ns = WEFT_NEVER;
    config.udp.ep.confirm_later = 1; /* its thread turns it whenever something comes */
    return config;
}

static weft_status connect_all(struct weft_load_worker *worker,
                               const struct weft_ps_client_config *client)
{
    const struct weft_load_scene *scene = worker->scene;
    struct weft_io_error error = {.text = ""};
    struct weft_driver_config config = driver_config(worker, client);
    weft_status status = weft_security_arm(scene->security, &config.udp, &worker->provider, &error);
    if (status == WEFT_OK) {
        status = weft_driver_open(&config, &worker->driver, &error);
    }
    weft_security_disarm(&config.udp);
    for (uint32_t s = 0; status == WEFT_OK && s < scene->servers->count; s++) {
        const struct weft_load_shard *shard = &scene->servers->shards[s];
        status = weft_driver_connect(worker->driver, shard->host, shard->port, &worker->peers[s],
                                     &error);
    }
    return status == WEFT_OK ? status : fail(worker, status, error.text);
}

/* Rows as a model's embeddings have them; who waits for nobody. When the shard is full the row that
 * was used longest ago goes, so that a run may be as long as one likes. */
static weft_status declare(struct weft_load_worker *worker)
{
    struct weft_table_spec spec = {
        .table = TABLE,
        .dim = worker->scene->workload->dim,
        .optimizer = WEFT_OPTIMIZER_SGD,
        .mode = WEFT_TABLE_ASP,
        .workers = (uint16_t)worker->scene->workload->workers,
        .learning_rate = 0.01F,
        .eviction = WEFT_EVICTION_LRU,
    };
    weft_status status =
        weft_ps_table_open(worker->client, &spec, weft_clock_now_ns(), &worker->opening);
    return status == WEFT_OK ? status : fail(worker, status, weft_status_text(status));
}

static weft_status allocate(struct weft_load_worker *worker)
{
    const struct weft_load_workload *workload = worker->scene->workload;
    worker->peers = calloc(worker->scene->servers->count, sizeof(*worker->peers));
    worker->requests = calloc(workload->in_flight, sizeof(*worker->requests));
    worker->ids = calloc((size_t)workload->in_flight * workload->rows + 1, sizeof(*worker->ids));
    if (worker->peers == NULL || worker->requests == NULL || worker->ids == NULL) {
        return fail(worker, WEFT_NOMEM, "no memory");
    }
    for (uint32_t i = 0; i < workload->in_flight; i++) {
        worker->requests[i].ids = worker->ids + (size_t)i * workload->rows;
    }
    return WEFT_OK;
}

weft_status weft_load_worker_init(struct weft_load_worker *worker,
                                  const struct weft_load_scene *scene, uint32_t rank)
{
    *worker = (struct weft_load_worker){.scene = scene, .rank = rank};
    weft_prng_split(&worker->prng, scene->workload->seed, rank);
    struct weft_ps_client_config config = client_config(worker);
    weft_status status = allocate(worker);
    if (status == WEFT_OK) {
        status = connect_all(worker, &config);
    }
    if (status != WEFT_OK) {
        return status;
    }
    worker->msgr = weft_driver_msgr(worker->driver);
    status = weft_ps_client_new(&config, worker->msgr, worker->peers, &worker->client);
    return status == WEFT_OK ? declare(worker) : fail(worker, status, weft_status_text(status));
}

void weft_load_worker_fini(struct weft_load_worker *worker)
{
    weft_driver_close(worker->driver); /* it borrows the client's memory, so it goes first */
    weft_provider_free(worker->provider);
    weft_ps_client_free(worker->client);
    free(worker->peers);
    free(worker->requests);
    free(worker->ids);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void draw_ids(struct weft_load_worker *worker, uint64_t *ids)
{
    const struct weft_zipf *zipf = worker->scene->zipf;
    for (uint32_t i = 0; i < worker->scene->workload->rows; i++) {
        ids[i] = weft_zipf_id(zipf, weft_zipf_rank(zipf, &worker->prng));
    }
}

static enum weft_load_kind draw_kind(struct weft_load_worker *worker)
{
    const struct weft_load_mix *mix = &worker->scene->workload->mix;
    bool push = weft_prng_below(&worker->prng, mix->push + mix->pull) < mix->push;
    return push && worker->scene->workload->rows > 0 ? WEFT_LOAD_PUSH : WEFT_LOAD_PULL;
}

static weft_status send_request(struct weft_load_worker *worker, struct weft_load_request *request,
                                uint64_t now_ns)
{
    const struct weft_load_scene *scene = worker->scene;
    uint32_t rows = scene->workload->rows;
    if (rows == 0) {
        uint32_t shard = (uint32_t)weft_prng_below(&worker->prng, scene->servers->count);
        return weft_ps_ask(worker->client, TABLE, shard, now_ns, &request->op);
    }
    draw_ids(worker, request->ids);
    if (request->kind == WEFT_LOAD_PUSH) {
        return weft_ps_push(worker->client, TABLE, request->ids, scene->gradients, rows, 0, now_ns,
                            &request->op);
    }
    return weft_ps_pull(worker->client, TABLE, request->ids, scene->weights, rows, 0, now_ns,
                        &request->op);
}

static void begin(struct weft_load_worker *worker, struct weft_load_request *request,
                  uint64_t due_ns)
{
    request->kind = draw_kind(worker);
    request->due_ns = due_ns;
    weft_status status = send_request(worker, request, weft_clock_now_ns());
    if (status != WEFT_OK) {
        (void)fail(worker, status, weft_status_text(status));
        return;
    }
    request->busy = true;
    worker->busy_count++;
}

/* Time until the next of arrivals with the rate of one worker: exponential. */
static uint64_t draw_gap_ns(struct weft_load_worker *worker)
{
    const struct weft_load_workload *workload = worker->scene->workload;
    double uniform = (double)((weft_prng_u64(&worker->prng) >> 11) + 1) * 0x1p-53; /* (0, 1] */
    double mean_ns = (double)WEFT_NS_PER_S * workload->workers / workload->rate;
    return (uint64_t)fmin(-log(uniform) * mean_ns, 1e17) + 1;
}

static void begin_due(struct weft_load_worker *worker)
{
    const struct weft_load_workload *workload = worker->scene->workload;
    uint64_t now_ns = weft_clock_now_ns();
    for (uint32_t i = 0; i < workload->in_flight; i++) {
        struct weft_load_request *request = &worker->requests[i];
        if (!worker->is_running || request->busy || worker->state != WEFT_LOAD_READY) {
            continue;
        }
        if (workload->rate <= 0) {
            begin(worker, request, weft_clock_now_ns());
        } else if (worker->next_ns <= now_ns) {
            uint64_t due_ns = worker->next_ns;
            worker->next_ns += draw_gap_ns(worker);
            begin(worker, request, due_ns);
        }
    }
}

/* Closed loop: begun and answered in the span. Open loop: due in it; those that are late are what
 * the open loop is for. */
static bool counts(const struct weft_load_scene *scene, uint64_t due_ns, uint64_t done_ns)
{
    uint64_t until_ns = scene->workload->rate > 0 ? due_ns : done_ns;
    return due_ns >= scene->measure_from_ns && until_ns < scene->measure_to_ns;
}

static void finished(struct weft_load_worker *worker, struct weft_load_request *request,
                     const struct weft_ps_result *result)
{
    const struct weft_load_scene *scene = worker->scene;
    uint64_t now_ns = weft_clock_now_ns();
    weft_ps_op_release(worker->client, request->op);
    request->busy = false;
    worker->busy_count--;
    if (result->status == WEFT_PEER || result->status == WEFT_PROTO) {
        (void)fail(worker, result->status, "a server is gone");
        return;
    }
    if (scene->seen != NULL) {
        weft_hist_add(&scene->seen->latency[request->kind], now_ns - request->due_ns);
        scene->seen->refused += result->status != WEFT_OK;
    }
    if (counts(scene, request->due_ns, now_ns)) {
        weft_hist_add(&scene->sums->latency[request->kind], now_ns - request->due_ns);
        scene->sums->rows[request->kind] += scene->workload->rows;
        scene->sums->refused += result->status != WEFT_OK;
    }
}

static void take_finished(struct weft_load_worker *worker)
{
    struct weft_ps_result result;
    for (uint32_t i = 0; i < worker->scene->workload->in_flight; i++) {
        struct weft_load_request *request = &worker->requests[i];
        if (request->busy && weft_ps_op_done(worker->client, request->op, &result)) {
            finished(worker, request, &result);
        }
    }
}

static void take_opened(struct weft_load_worker *worker)
{
    struct weft_ps_result result;
    if (!weft_ps_op_done(worker->client, worker->opening, &result)) {
        return;
    }
    weft_ps_op_release(worker->client, worker->opening);
    if (result.status == WEFT_OK) {
        worker->state = WEFT_LOAD_READY;
    } else if (result.status == WEFT_DATA) {
        (void)fail(worker, result.status, weft_rpc_status_text(result.rpc_status));
    } else {
        (void)fail(worker, result.status, "a server cannot be reached");
    }
}

/* ---- turning --------------------------------------------------------------------------------- */

static void handle(void *arg, uint64_t now_ns)
{
    struct weft_load_worker *worker = arg;
    struct weft_msg_event event;
    while (worker->msgr.ops->poll(worker->msgr.self, &event)) {
        weft_ps_client_event(worker->client, &event, now_ns);
    }
    weft_ps_client_progress(worker->client, now_ns);
    if (worker->state == WEFT_LOAD_OPENING) {
        take_opened(worker);
    }
    if (worker->state == WEFT_LOAD_READY) {
        take_finished(worker);
        begin_due(worker);
    }
}

/* Nobody knows more than this: what was told, by whom; "" = nothing, and nobody has answered; false:
 * they are only slow. */
static bool is_hopeless(const struct weft_load_worker *worker, char why_p[WHY_BYTES])
{
    struct weft_driver_counters counters;
    enum weft_ep_hint hint = weft_driver_hint(worker->driver);
    if (hint != WEFT_HINT_NONE) {
        snprintf(why_p, WHY_BYTES, "%s", weft_ep_hint_text(hint));
        return true;
    }
    weft_driver_unreached(worker->driver, why_p);
    weft_driver_counters(worker->driver, &counters);
    return why_p[0] != '\0' || counters.socket.datagrams_received == 0;
}

void weft_load_worker_look(struct weft_load_worker *worker, uint64_t now_ns)
{
    char why[WHY_BYTES], text[WEFT_LOAD_WHY_BYTES];
    uint64_t patience_ns = worker->scene->patience_ns;
    uint64_t since_ns = worker->looked_ns != 0 ? now_ns - worker->looked_ns : 0;
    worker->looked_ns = now_ns;
    worker->waited_ns += weft_min_u64(since_ns, look_ns_max);
    if (worker->state != WEFT_LOAD_OPENING || worker->waited_ns < patience_ns ||
        !is_hopeless(worker, why)) {
        return;
    }
    snprintf(text, sizeof(text), "%s after %llu s: %s (--start-timeout waits longer)",
             worker->scene->servers->count == 1 ? "the server cannot be reached"
                                                : "not all servers can be reached",
             (unsigned long long)(patience_ns / WEFT_NS_PER_S),
             why[0] != '\0' ? why
                            : "no answer at all; check --servers, and that a firewall lets UDP or, "
                              "with --transport tcp, TCP through");
    (void)fail(worker, WEFT_TIMEOUT, text);
}

void weft_load_worker_go(struct weft_load_worker *worker, uint64_t now_ns)
{
    worker->is_running = true;
    worker->next_ns = worker->scene->workload->rate > 0 ? now_ns + draw_gap_ns(worker) : WEFT_NEVER;
}

bool weft_load_worker_turn(struct weft_load_worker *worker)
{
    (void)weft_driver_step(worker->driver, 0, handle, worker);
    bool waits = worker->busy_count < worker->scene->workload->in_flight;
    bool open = worker->is_running && worker->scene->workload->rate > 0;
    return weft_driver_rest(worker->driver, open && waits ? worker->next_ns : WEFT_NEVER);
}

static void unanswered(struct weft_load_worker *worker, enum weft_load_kind kind, uint64_t due_ns)
{
    const struct weft_load_scene *scene = worker->scene;
    if (due_ns >= scene->measure_from_ns && due_ns < scene->measure_to_ns) {
        weft_hist_add(&scene->sums->latency[kind], scene->measure_to_ns - due_ns);
        scene->sums->unanswered++;
    }
}

void weft_load_worker_halt(struct weft_load_worker *worker)
{
    const struct weft_load_workload *workload = worker->scene->workload;
    if (workload->rate > 0 && worker->is_running) {
        for (uint32_t i = 0; i < workload->in_flight; i++) {
            if (worker->requests[i].busy) {
                unanswered(worker, worker->requests[i].kind, worker->requests[i].due_ns);
            }
        }
        for (; worker->next_ns < worker->scene->measure_to_ns;
             worker->next_ns += draw_gap_ns(worker)) {
            unanswered(worker, draw_kind(worker), worker->next_ns);
        }
    }
    worker->is_running = false;
}
