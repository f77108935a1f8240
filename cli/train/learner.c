#include "cli/train/learner.h"

#include "cli/stop.h"
#include "io/clock.h"
#include "io/random.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TABLE = 0,
    STEP_TIMEOUT_MS = 200,
    ROOM_MS = 5,
    PAUSE_MS = 100, /* from one attempt to reach a server that is away to the next */
    PEERS_SPARE = 4, /* a connection that ended keeps its place for a moment */
};

[[gnu::format(printf, 3, 4)]] static weft_status fail(struct weft_learner *learner,
                                                      weft_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(learner->error, sizeof(learner->error), format, list);
    va_end(list);
    return status;
}

static weft_status fail_status(struct weft_learner *learner, weft_status status, const char *what)
{
    return fail(learner, status, "%s: %s", what, weft_status_text(status));
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void note_down(struct weft_learner *learner, const struct weft_msg_event *event)
{
    for (uint32_t s = 0; s < learner->shard_count; s++) {
        if (learner->shards[s].peer == event->peer) {
            learner->shards[s].is_down = true;
            learner->shards[s].down = event->down;
        }
    }
}

/* False when what answers at the place of a shard is not that. */
static bool note_up(struct weft_learner *learner, const struct weft_msg_event *event)
{
    for (uint32_t s = 0; s < learner->shard_count; s++) {
        struct weft_learner_shard *shard = &learner->shards[s];
        if (shard->until_ns != 0 && shard->peer == event->peer) {
            if (event->name != weft_rpc_name(WEFT_ROLE_SERVER, s)) {
                return false;
            }
            shard->until_ns = 0;
        }
    }
    return true;
}

static void handle(void *arg, uint64_t now_ns)
{
    struct weft_learner *learner = arg;
    struct weft_msg_event event;
    while (learner->msgr.ops->poll(learner->msgr.self, &event)) {
        if (event.type == WEFT_EVENT_PEER_DOWN) {
            note_down(learner, &event);
        } else if (event.type == WEFT_EVENT_PEER_UP && !note_up(learner, &event)) {
            continue; /* in time the shard is given up */
        }
        weft_ps_client_event(learner->client, &event, now_ns);
    }
    weft_ps_client_progress(learner->client, now_ns);
}

static bool is_replaced(const struct weft_learner_shard *shard)
{
    return shard->is_down && shard->down == WEFT_DOWN_REPLACED;
}

static weft_status fail_shard(struct weft_learner *learner, uint32_t shard)
{
    static const char *const reasons[] = {
        [WEFT_DOWN_CLOSED] = "it closed the connection",
        [WEFT_DOWN_SILENT] = "it has not answered for",
        [WEFT_DOWN_PROTOCOL] = "it broke the protocol",
        [WEFT_DOWN_LOCAL] = "the connection was closed here",
        [WEFT_DOWN_RESTARTED] = "it was restarted, or has dropped this connection",
        [WEFT_DOWN_CRYPTO] = "the cryptography of this process failed",
        [WEFT_DOWN_IDLE] = "nothing was outstanding for too long",
        [WEFT_DOWN_REPLACED] = "", /* has words of its own */
    };
    if (shard >= learner->shard_count) {
        return fail(learner, WEFT_PEER, "a server is gone");
    }
    const struct weft_learner_shard *gone = &learner->shards[shard];
    if (is_replaced(gone)) {
        return fail(learner, WEFT_PEER,
                    "the server of shard %u at %s:%u closed the connection: another process has rank "
                    "%u now. Give each worker a --rank of its own. A process that was replaced "
                    "because it did not answer cannot go on",
                    shard, gone->host, gone->port, learner->rank);
    }
    char hint[WEFT_SECURITY_HINT_BYTES];
    weft_security_hint(&learner->job->security, weft_endpoint_hint(&learner->endpoint), hint,
                       sizeof(hint));
    if (hint[0] == '\0') {
        static_assert(sizeof(hint) >= WEFT_UDP_UNREACHED_BYTES, "the network's words fit");
        weft_endpoint_unreached(&learner->endpoint, hint);
    }
    char span[16] = "";
    if (gone->is_down && gone->down == WEFT_DOWN_SILENT) {
        (void)snprintf(span, sizeof(span), " %u s", learner->job->transport.peer_timeout_s);
    }
    return fail(learner, WEFT_PEER, "the server of shard %u at %s:%u is gone: %s%s%s%s", shard,
                gone->host, gone->port,
                gone->is_down ? reasons[gone->down] : "its connection is down", span,
                hint[0] != '\0' ? "; " : "", hint);
}

/* A shard that is there, and takes no clock of this worker any more. */
static weft_status fail_clock(struct weft_learner *learner,
                              const struct weft_ps_clock_refusal *refusal)
{
    const struct weft_learner_shard *shard = &learner->shards[refusal->shard];
    if (refusal->status != WEFT_STATE) {
        return fail(learner, WEFT_PEER,
                    "the server of shard %u at %s:%u came back and does not go on with this job: "
                    "%s; start it from the job's checkpoints, or the job anew",
                    refusal->shard, shard->host, shard->port,
                    refusal->status == WEFT_DATA ? weft_rpc_status_text(refusal->rpc_status)
                                                 : weft_status_text(refusal->status));
    }
    return fail(learner, WEFT_PEER,
                "the server of shard %u at %s:%u refused clock %u of this worker: it knows another "
                "one. Another process has the same --rank, or the server lost what it knew; end "
                "the other process, or start the job anew",
                refusal->shard, shard->host, shard->port, refusal->clock);
}

/* Connect to a shard that is away. */
static void connect_again(struct weft_learner *learner, uint32_t s, uint64_t now_ns)
{
    struct weft_learner_shard *shard = &learner->shards[s];
    struct weft_io_error error = {.text = ""};
    if (learner->locate != NULL) {
        learner->locate(learner->locate_arg, s, shard);
    }
    shard->again_ns = now_ns + PAUSE_MS * WEFT_NS_PER_MS; /* if it cannot even begin */
    if (weft_endpoint_connect(&learner->endpoint, shard->host, shard->port, &shard->peer, &error) ==
            WEFT_OK &&
        weft_ps_client_reconnect(learner->client, s, shard->peer, now_ns) == WEFT_OK) {
        shard->is_down = false;
        shard->again_ns = 0;
    }
}

/* A shard that is down, or was and is not up yet: false when it is gone for good. */
static bool look_after(struct weft_learner *learner, uint32_t s)
{
    struct weft_learner_shard *shard = &learner->shards[s];
    uint64_t now_ns = weft_clock_now_ns(), until_ns;
    if (!shard->is_down && shard->until_ns == 0) {
        return true;
    }
    if (is_replaced(shard)) {
        return false;
    }
    if (weft_ps_client_away(learner->client, s, &until_ns)) {
        shard->until_ns = until_ns;
        if (now_ns >= weft_max_u64(shard->again_ns, weft_ps_client_again_ns(learner->client, s))) {
            connect_again(learner, s, now_ns);
        }
        return true;
    }
    return shard->until_ns > now_ns;
}

/* One turn of the crank; fails when a server is gone or the user wants an end. */
static weft_status turn_for(struct weft_learner *learner, uint64_t most_ms)
{
    uint32_t away = 0;
    for (uint32_t s = 0; s < learner->shard_count; s++) {
        away += learner->shards[s].until_ns != 0;
    }
    most_ms = away > 0 && most_ms > PAUSE_MS ? PAUSE_MS : most_ms;
    weft_endpoint_step(&learner->endpoint, most_ms * WEFT_NS_PER_MS, handle, learner);
    if (weft_stop_asked()) {
        return fail(learner, WEFT_TIMEOUT, "interrupted");
    }
    for (uint32_t s = 0; s < learner->shard_count; s++) {
        if (!look_after(learner, s)) {
            return fail_shard(learner, s);
        }
    }
    struct weft_ps_clock_refusal refusal;
    return weft_ps_clock_refused(learner->client, &refusal) ? fail_clock(learner, &refusal)
                                                            : WEFT_OK;
}

static weft_status turn(struct weft_learner *learner)
{
    return turn_for(learner, STEP_TIMEOUT_MS);
}

/* Wait for an operation and give it back. */
static weft_status finish(struct weft_learner *learner, weft_ps_op op, const char *what,
                          struct weft_ps_result *result_p)
{
    weft_ps_client_progress(learner->client, weft_clock_now_ns());
    while (!weft_ps_op_done(learner->client, op, result_p)) {
        weft_status status = turn(learner);
        if (status != WEFT_OK) {
            return status;
        }
    }
    weft_ps_op_release(learner->client, op);
    if (result_p->status == WEFT_PEER) {
        return fail_shard(learner, result_p->shard);
    }
    if (result_p->status != WEFT_OK) {
        return fail(learner, result_p->status, "%s refused by shard %u: %s", what, result_p->shard,
                    result_p->status == WEFT_DATA ? weft_rpc_status_text(result_p->rpc_status)
                                                  : weft_status_text(result_p->status));
    }
    return WEFT_OK;
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static uint64_t clock_now(void *arg)
{
    (void)arg;
    return weft_clock_now_ns();
}

/* What a first pull that loses a row leaves in its place. */
static void begin_seen(struct weft_learner *learner)
{
    const struct weft_ml_dataset *dataset = learner->dataset;
    for (size_t i = 0; i < dataset->feature_count; i++) {
        weft_ml_model_initial_row(&learner->model, dataset->feature_ids[i],
                                  learner->seen + i * learner->model.dim);
    }
}

static weft_status allocate(struct weft_learner *learner, uint32_t rank)
{
    const struct weft_job *job = learner->job;
    const struct weft_ml_dataset *dataset = learner->dataset;
    weft_status status = weft_ml_model_init(&learner->model, job->kind, &job->settings, job->seed,
                                            dataset);
    if (status != WEFT_OK) {
        return fail_status(learner, status, "the model does not fit the data");
    }
    size_t row_bytes = learner->model.dim * sizeof(float);
    learner->seen = calloc(dataset->feature_count, row_bytes);
    learner->weights = calloc(dataset->feature_count, row_bytes);
    learner->gradient = calloc(dataset->feature_count, row_bytes);
    if (learner->seen == NULL || learner->weights == NULL || learner->gradient == NULL) {
        return fail_status(learner, WEFT_NOMEM, "memory of the model");
    }
    begin_seen(learner);
    status = weft_ml_batch_init(&learner->batch, dataset);
    if (status == WEFT_OK) {
        status = weft_ml_batch_init(&learner->test_batch, dataset);
    }
    if (status == WEFT_OK) {
        status = weft_ml_batch_build(&learner->test_batch, dataset->test_rows, dataset->test_count);
    }
    if (status == WEFT_OK) {
        status = weft_ml_share_init(&learner->share, dataset, rank, job->workers, job->seed);
    }
    return status == WEFT_OK ? status : fail_status(learner, status, "memory of the batches");
}

/* Without security the wildcard would be refused before the server's address, which explains more. */
static const char *bind_host(const struct weft_learner *learner)
{
    const char *hosts[WEFT_JOB_SHARDS_MAX];
    const struct weft_security *security = &learner->job->security;
    for (uint32_t s = 0; s < learner->shard_count; s++) {
        hosts[s] = learner->shards[s].host;
    }
    const char *host = weft_udp_bind_towards(hosts, learner->shard_count);
    if (security->mode != WEFT_MODE_NONE || security->insecure_network) {
        return host;
    }
    return host[0] == ':' ? "::1" : "127.0.0.1";
}

static weft_status open_endpoint(struct weft_learner *learner, uint32_t rank,
                                 const struct weft_ps_client_config *client)
{
    struct weft_endpoint_config endpoint;
    weft_endpoint_config_default(&endpoint);
    endpoint.security = &learner->job->security;
    endpoint.thread = learner->job->engine;
    weft_transport_options_apply(&learner->job->transport, &endpoint.driver);
    struct weft_udp_config *config = &endpoint.driver.udp;
    config->host = bind_host(learner);
    config->loss = (struct weft_loss_config){.loss_ppm = learner->job->inject_loss_ppm,
                                             .role = WEFT_ROLE_WORKER,
                                             .rank = rank,
                                             .seed = learner->job->inject_seed};
    config->busy_poll_us = (uint16_t)learner->job->busy_poll_us;
    config->ep.keepalive_ns = weft_job_span_ns(learner->job->keepalive_ms);
    config->loopback_packet_bytes = WEFT_UDP_LOOPBACK_BYTES;
    config->ep.name = weft_rpc_name(WEFT_ROLE_WORKER, rank);
    config->ep.peers_max = learner->shard_count + PEERS_SPARE;
    config->ep.expects_max = weft_ps_client_expects_max(client);
    struct weft_io_error error = {.text = ""};
    char label[32];
    snprintf(label, sizeof(label), "worker %u", rank);
    weft_tracing_open(&learner->tracing, learner->job->trace);
    weft_tracing_attach(&learner->tracing, label, config, &learner->trace);
    weft_status status = weft_endpoint_open(&endpoint, &learner->endpoint, &error);
    weft_stop_wakes(learner->endpoint.driver);
    for (uint32_t s = 0; status == WEFT_OK && s < learner->shard_count; s++) {
        status = weft_endpoint_connect(&learner->endpoint, learner->shards[s].host,
                                    learner->shards[s].port, &learner->shards[s].peer, &error);
    }
    return status == WEFT_OK ? status : fail(learner, status, "%s", error.text);
}

static weft_status open_client(struct weft_learner *learner, uint32_t rank)
{
    weft_peer peers[WEFT_JOB_SHARDS_MAX];
    struct weft_ps_client_config config;
    weft_ps_client_config_default(&config);
    config.worker = rank;
    weft_os_random(config.missed_key, sizeof(config.missed_key));
    config.shards = learner->shard_count;
    config.tables_max = 1;
    config.lists_per_op_max = 1;
    config.dim_max = learner->model.dim;
    config.clock_ns = clock_now;
    config.reconnect_ns = learner->job->reconnect_s * WEFT_NS_PER_S;
    config.replay_bytes = learner->job->replay_bytes;
    config.records = learner->job->records;
    weft_status status = open_endpoint(learner, rank, &config);
    if (status != WEFT_OK) {
        return status;
    }
    for (uint32_t s = 0; s < learner->shard_count; s++) {
        peers[s] = learner->shards[s].peer;
    }
    learner->msgr = learner->endpoint.msgr;
    status = weft_ps_client_new(&config, learner->msgr, peers, &learner->client);
    return status == WEFT_OK ? status : fail_status(learner, status, "parameter-server client");
}

/* The table of the weights: one row per feature. */
static weft_status open_table(struct weft_learner *learner)
{
    static const uint8_t modes[] = {[WEFT_JOB_BSP] = WEFT_TABLE_BSP,
                                    [WEFT_JOB_SSP] = WEFT_TABLE_SSP,
                                    [WEFT_JOB_ASP] = WEFT_TABLE_ASP};
    const struct weft_job *job = learner->job;
    bool adagrad = job->optimizer == WEFT_ML_ADAGRAD;
    struct weft_table_spec spec = {
        .table = TABLE,
        .dim = learner->model.dim,
        .optimizer = adagrad ? WEFT_OPTIMIZER_ADAGRAD : WEFT_OPTIMIZER_SGD,
        .mode = modes[job->mode.kind],
        .workers = (uint16_t)job->workers,
        .staleness = job->mode.staleness,
        .learning_rate = weft_job_rate(job),
        .epsilon = adagrad ? WEFT_ML_DEFAULT_ADAGRAD_EPSILON : 0.0F,
        .accumulator = adagrad ? job->kind->pace.adagrad_accumulator : 0.0F,
        .init_scale = learner->model.settings.init_scale,
        .init_skip = learner->model.kind->has_factors ? 1 : 0,
        .init_seed = learner->model.init_seed,
    };
    spec.average = weft_table_average_of(&spec, job->contributors);
    weft_ps_op op;
    weft_status status = weft_ps_table_open(learner->client, &spec, weft_clock_now_ns(), &op);
    if (status != WEFT_OK) {
        return fail_status(learner, status, "opening the table");
    }
    struct weft_ps_result result;
    status = finish(learner, op, "the table was", &result);
    if (status == WEFT_DATA && result.rpc_status == WEFT_RPC_SPEC_MISMATCH) {
        return fail(learner, status,
                    "the table was refused by shard %u: %s (here: learning rate %.7g; another "
                    "worker or a checkpoint may have another: give all workers the same --lr)",
                    result.shard, weft_rpc_status_text(result.rpc_status),
                    (double)weft_job_rate(job));
    }
    return status;
}

weft_status weft_learner_init(struct weft_learner *learner, const struct weft_job *job,
                              uint32_t rank, const struct weft_ml_dataset *dataset,
                              struct weft_learner_shard *shards, uint32_t shard_count)
{
    *learner = (struct weft_learner){
        .job = job,
        .dataset = dataset,
        .shards = shards,
        .shard_count = shard_count,
        .rank = rank,
    };
    weft_status status = allocate(learner, rank);
    if (status == WEFT_OK) {
        status = open_client(learner, rank);
    }
    return status == WEFT_OK ? open_table(learner) : status;
}

void weft_learner_fini(struct weft_learner *learner)
{
    weft_stop_wakes(NULL);
    /* The endpoint borrows the client's memory, so it goes first. */
    weft_endpoint_close(&learner->endpoint);
    weft_tracing_close(&learner->tracing);
    weft_ps_client_free(learner->client);
    weft_ml_share_fini(&learner->share);
    weft_ml_batch_fini(&learner->batch);
    weft_ml_batch_fini(&learner->test_batch);
    free(learner->seen);
    free(learner->weights);
    free(learner->gradient);
}

/* ---- weights and gradients ------------------------------------------------------------------- */

/* Columns of a batch's ids: both lists ascend, so each search begins behind the last find. */
static uint32_t column_of(const struct weft_ml_dataset *dataset, uint64_t id, uint32_t from)
{
    uint32_t low = from;
    uint32_t high = dataset->feature_count - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (dataset->feature_ids[middle] < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void load_seen(struct weft_learner *learner, const struct weft_ml_batch *batch)
{
    size_t dim = learner->model.dim;
    uint32_t column = 0;
    for (uint32_t i = 0; i < batch->id_count; i++) {
        column = column_of(learner->dataset, batch->ids[i], column);
        memcpy(learner->weights + i * dim, learner->seen + column * dim, dim * sizeof(float));
    }
}

static void store_seen(struct weft_learner *learner, const struct weft_ml_batch *batch)
{
    size_t dim = learner->model.dim;
    uint32_t column = 0;
    for (uint32_t i = 0; i < batch->id_count; i++) {
        column = column_of(learner->dataset, batch->ids[i], column);
        memcpy(learner->seen + column * dim, learner->weights + i * dim, dim * sizeof(float));
    }
}

/* Rows in one operation; longer lists are cut. */
static uint32_t part_max(void)
{
    struct weft_ps_client_config config;
    weft_ps_client_config_default(&config);
    return config.rows_per_op_max;
}

/* The weights of a batch into learner->weights. */
static weft_status pull(struct weft_learner *learner, const struct weft_ml_batch *batch,
                        uint32_t bound_ppm, bool is_test)
{
    load_seen(learner, batch);
    for (uint32_t at = 0; at < batch->id_count;) {
        uint32_t n = (uint32_t)weft_min_u64(batch->id_count - at, part_max());
        weft_ps_op op;
        weft_status status =
            weft_ps_pull(learner->client, TABLE, batch->ids + at,
                         learner->weights + (size_t)at * learner->model.dim, n, bound_ppm, weft_clock_now_ns(), &op);
        if (status != WEFT_OK) {
            return fail_status(learner, status, "pull");
        }
        struct weft_ps_result result;
        status = finish(learner, op, "a pull was", &result);
        if (status != WEFT_OK) {
            return status;
        }
        if (is_test) {
            learner->test_elements += result.elements_sent;
            learner->test_elements_delivered += result.elements_delivered;
        }
        at += n;
    }
    store_seen(learner, batch);
    return WEFT_OK;
}

/* Look at the outcome of the push that is under way, if any. */
static weft_status finish_push(struct weft_learner *learner)
{
    if (!learner->is_pushing) {
        return WEFT_OK;
    }
    learner->is_pushing = false;
    struct weft_ps_result result;
    return finish(learner, learner->push, "a push was", &result);
}

/* Start pushing the gradient of the step's batch; its last part stays under way. */
static weft_status push(struct weft_learner *learner)
{
    const struct weft_ml_batch *batch = &learner->batch;
    for (uint32_t at = 0; at < batch->id_count;) {
        weft_status status = finish_push(learner);
        if (status != WEFT_OK) {
            return status;
        }
        uint32_t n = (uint32_t)weft_min_u64(batch->id_count - at, part_max());
        status = weft_ps_push(learner->client, TABLE, batch->ids + at,
                              learner->gradient + (size_t)at * learner->model.dim, n,
                              learner->job->bound_ppm, weft_clock_now_ns(), &learner->push);
        if (status == WEFT_AGAIN) { /* a shard is away, or kept pushes leave no room */
            status = turn_for(learner, ROOM_MS);
            if (status != WEFT_OK) {
                return status;
            }
            continue;
        }
        if (status == WEFT_NOMEM) {
            return fail(learner, status, "--replay-bytes is full, and no checkpoint empties it; make it "
                                         "larger, or checkpoints more frequent");
        }
        if (status != WEFT_OK) {
            return fail_status(learner, status, "push");
        }
        learner->is_pushing = true;
        at += n;
    }
    return WEFT_OK;
}

static weft_status end_clock(struct weft_learner *learner)
{
    for (;;) {
        weft_status status = weft_ps_clock(learner->client, TABLE, weft_clock_now_ns());
        if (status == WEFT_OK) {
            weft_ps_client_progress(learner->client, weft_clock_now_ns());
            return WEFT_OK;
        }
        /* A shard that is gone (PEER) is named by the turn. */
        if (status != WEFT_AGAIN && status != WEFT_PEER) {
            return fail_status(learner, status, "clock");
        }
        status = turn(learner);
        if (status != WEFT_OK) {
            return status;
        }
    }
}

static weft_status step(struct weft_learner *learner, const uint32_t *rows, uint32_t row_count,
                        double *loss_p)
{
    weft_status status = weft_ml_batch_build(&learner->batch, rows, row_count);
    if (status != WEFT_OK) {
        return fail_status(learner, status, "memory of a batch");
    }
    status = pull(learner, &learner->batch, learner->job->bound_ppm, false);
    if (status != WEFT_OK) {
        return status;
    }
    *loss_p = weft_ml_model_gradient(&learner->model, &learner->batch, learner->weights,
                                     learner->gradient);
    status = push(learner);
    return status == WEFT_OK ? end_clock(learner) : status;
}

/* A diverged model must end the run: JSON has no infinity to report. */
static weft_status check_loss(struct weft_learner *learner, double loss)
{
    if (isfinite(loss)) {
        return WEFT_OK;
    }
    return fail(learner, WEFT_DATA,
                "training diverged: the loss is no finite number; a lower --lr may help");
}

weft_status weft_learner_settle(struct weft_learner *learner)
{
    weft_status status = finish_push(learner);
    while (status == WEFT_OK && !weft_ps_clock_known(learner->client, TABLE)) {
        status = turn(learner);
    }
    return status;
}

static uint32_t steps_of(const struct weft_learner *learner)
{
    return weft_ml_share_steps(learner->dataset, learner->job->workers, learner->job->batch_rows);
}

uint32_t weft_learner_first_epoch(const struct weft_learner *learner)
{
    return weft_ps_clock_now(learner->client, TABLE) / steps_of(learner);
}

weft_status weft_learner_epoch(struct weft_learner *learner, uint32_t epoch, double *loss_p)
{
    uint32_t steps = steps_of(learner);
    /* A clock is a step: this rank has finished so many of this epoch. */
    uint32_t first = weft_ps_clock_now(learner->client, TABLE) - epoch * steps;
    double loss_sum = 0.0;
    uint32_t s = first;
    weft_ml_share_begin_epoch(&learner->share, epoch);
    for (; s < steps && !learner->is_over; s++) {
        const uint32_t *rows;
        uint32_t row_count;
        double loss = 0.0;
        weft_ml_share_step(&learner->share, s, steps, &rows, &row_count);
        weft_status status = step(learner, rows, row_count, &loss);
        if (status == WEFT_OK && learner->stepped != NULL) {
            status = learner->stepped(learner->stepped_arg, epoch, s, steps);
        }
        if (status != WEFT_OK) {
            return status;
        }
        loss_sum += loss;
    }
    weft_status status = weft_learner_settle(learner);
    *loss_p = loss_sum / (s - first);
    return status == WEFT_OK ? check_loss(learner, *loss_p) : status;
}

weft_status weft_learner_test(struct weft_learner *learner, struct weft_ml_quality *quality_p)
{
    weft_status status = pull(learner, &learner->test_batch, 0, true);
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_ml_model_evaluate(&learner->model, &learner->test_batch, learner->weights,
                                    quality_p);
    return status == WEFT_OK ? check_loss(learner, quality_p->log_loss + quality_p->rmse)
                             : fail_status(learner, status, "test of the model");
}

weft_status weft_learner_rows(struct weft_learner *learner, const uint64_t **ids_p,
                              const float **rows_p, uint32_t *count_p)
{
    /* All that a pull looks at in a batch are its ids. */
    const struct weft_ml_batch all = {.dataset = learner->dataset,
                                      .ids = learner->dataset->feature_ids,
                                      .id_count = learner->dataset->feature_count};
    weft_status status = pull(learner, &all, 0, true);
    if (status == WEFT_OK) {
        *ids_p = all.ids;
        *rows_p = learner->weights;
        *count_p = all.id_count;
    }
    return status;
}

void weft_learner_idle(struct weft_learner *learner, uint64_t timeout_ns)
{
    weft_endpoint_step(&learner->endpoint, timeout_ns, handle, learner);
    for (uint32_t s = 0; s < learner->shard_count; s++) {
        (void)look_after(learner, s); /* who is gone is named by the next turn */
    }
}

void weft_learner_delivery(const struct weft_learner *learner, uint64_t *elements_p,
                           uint64_t *delivered_p)
{
    const struct weft_ps_client_counters *counters = weft_ps_client_counters(learner->client);
    *elements_p =
        counters->push.elements_sent + counters->pull.elements_sent - learner->test_elements;
    *delivered_p = counters->push.elements_delivered + counters->pull.elements_delivered -
                   learner->test_elements_delivered;
}
