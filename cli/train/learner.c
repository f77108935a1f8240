#include "cli/train/learner.h"

#include "cli/output.h"
#include "cli/stop.h"
#include "io/clock.h"
#include "ps/update.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TABLE = 0,
    DIM_LONG_MAX = 32, /* with more values in a row, requests of 16,384 rows are long enough */
};

static const uint64_t step_timeout_ns = 200 * WEFT_NS_PER_MS;
/* Retry interval of a push that could not begin: a shard is down, or a buffer is full. */
static const uint64_t room_ns = 5 * WEFT_NS_PER_MS;

static weft_status fail_status(struct weft_learner *learner, weft_status status, const char *what)
{
    return weft_fail(&learner->worker.error, status, "%s: %s", what, weft_status_text(status));
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Make progress. Fails if a server has failed or the user requested termination. */
static weft_status progress(struct weft_learner *learner, uint64_t timeout_ns)
{
    uint32_t shard;
    weft_worker_progress(&learner->worker, timeout_ns);
    if (weft_stop_requested()) {
        return weft_fail(&learner->worker.error, WEFT_TIMEOUT, "interrupted");
    }
    return weft_worker_is_lost(&learner->worker, &shard) ? weft_worker_lost(&learner->worker)
                                                         : WEFT_OK;
}

/* Wait for an operation and return its result. */
static weft_status finish(struct weft_learner *learner, weft_ps_op op, const char *what,
                          struct weft_ps_result *result_p)
{
    struct weft_ps_client *client = learner->worker.client;
    weft_ps_client_progress(client, weft_clock_now_ns());
    while (!weft_ps_op_done(client, op, result_p)) {
        weft_status status = progress(learner, step_timeout_ns);
        if (status != WEFT_OK) {
            return status;
        }
    }
    weft_ps_op_release(client, op);
    return result_p->status == WEFT_OK ? WEFT_OK
                                       : weft_worker_refused(&learner->worker, what, result_p);
}

/* ---- init and fini --------------------------------------------------------------------------- */

/* Initial values for rows that the first pull loses. */
static void begin_seen(struct weft_learner *learner)
{
    bool is_dense = learner->model.kind->is_dense;
    for (size_t i = 0; i < learner->row_count; i++) {
        weft_ml_model_initial_row(&learner->model, is_dense ? i : learner->dataset->feature_ids[i],
                                  learner->seen + i * learner->model.dim);
    }
}

static weft_status allocate(struct weft_learner *learner, uint32_t rank)
{
    const struct weft_job *job = learner->job;
    const struct weft_ml_dataset *dataset = learner->dataset;
    weft_status status =
        weft_ml_model_init(&learner->model, job->kind, &job->settings, job->seed, dataset);
    if (status != WEFT_OK) {
        return fail_status(learner, status, "the model does not match the data");
    }
    size_t row_bytes = learner->model.dim * sizeof(float);
    learner->row_count = weft_ml_model_rows(&learner->model, dataset->feature_count);
    learner->seen = calloc(learner->row_count, row_bytes);
    learner->ids = calloc(learner->row_count, sizeof(*learner->ids));
    learner->gradient = calloc(learner->row_count, row_bytes);
    for (int i = 0; i < 2; i++) {
        learner->steps[i].weights = calloc(learner->row_count, row_bytes);
    }
    if (learner->seen == NULL || learner->ids == NULL || learner->gradient == NULL ||
        learner->steps[0].weights == NULL || learner->steps[1].weights == NULL) {
        return fail_status(learner, WEFT_NOMEM, "allocating the model");
    }
    begin_seen(learner);
    status = weft_ml_batch_init(&learner->test_batch, dataset);
    for (int i = 0; status == WEFT_OK && i < 2; i++) {
        status = weft_ml_batch_init(&learner->steps[i].batch, dataset);
    }
    if (status == WEFT_OK) {
        status = weft_ml_model_batch(&learner->model, &learner->test_batch, dataset->test_rows,
                                     dataset->test_count);
    }
    if (status == WEFT_OK) {
        status = weft_ml_share_init(&learner->share, dataset, rank, job->workers, job->seed);
    }
    return status == WEFT_OK ? status : fail_status(learner, status, "allocating the batches");
}

static void set_endpoint(struct weft_learner *learner, uint32_t rank,
                         struct weft_endpoint_config *endpoint)
{
    const struct weft_job *job = learner->job;
    struct weft_udp_config *udp = &endpoint->driver.udp;
    char label[32];
    endpoint->security = &job->security;
    endpoint->thread = job->progress_thread == 1;
    weft_transport_options_apply(&job->transport, &endpoint->driver);
    udp->loss.loss_ppm = job->inject_loss_ppm;
    udp->loss.seed = job->inject_seed;
    udp->busy_poll_us = (uint16_t)job->busy_poll_us;
    udp->loopback_packet_bytes = WEFT_UDP_LOOPBACK_BYTES;
    udp->ep.done_later = 1; /* see begin_next */
    udp->ep.keepalive_ns = weft_job_span_ns(job->keepalive_ms);
    snprintf(label, sizeof(label), "worker %u", rank);
    weft_tracing_open(&learner->tracing, job->trace, weft_output_log(NULL, false));
    weft_tracing_attach(&learner->tracing, label, udp, &learner->trace);
}

static void set_client(const struct weft_learner *learner, uint32_t rank, uint32_t shards,
                       struct weft_ps_client_config *client)
{
    client->worker = rank;
    client->shards = shards;
    client->tables_max = 1;
    client->lists_per_op_max = 1;
    client->dim_max = learner->model.dim;
    client->rows_long_max = learner->model.dim <= DIM_LONG_MAX ? WEFT_RPC_ROWS_LONG : 0;
    client->reconnect_ns = learner->job->reconnect_s * WEFT_NS_PER_S;
    client->replay_bytes = learner->job->replay_bytes;
    client->hot_rows = learner->job->hot_rows;
    client->pieces = learner->job->cut_through;
    client->records = learner->job->records;
    client->can &= learner->job->no_key_caching ? ~WEFT_RPC_CAN_LIST : WEFT_RPC_CAN_ALL;
}

/* lda under a delay bound: the counts of updates that are dropped must not be lost. */
static bool keeps_counts(const struct weft_job *job)
{
    return job->kind->counts_topics && job->tau_max > 0;
}

/* Allocate the residuals of error feedback, for at most as many rows as the table has. */
static weft_status keep_remainders(struct weft_learner *learner, const struct weft_table_spec *spec)
{
    const uint64_t most = keeps_counts(learner->job) ? UINT32_MAX : weft_ps_feedback_rows(spec);
    const uint32_t rows = (uint32_t)weft_min_u64(most, learner->row_count);
    if (rows == 0) {
        return WEFT_OK;
    }
    learner->kept = malloc(weft_row_store_bytes(rows, spec->dim));
    if (learner->kept == NULL) {
        return fail_status(learner, WEFT_NOMEM, "allocating error feedback");
    }
    return weft_ps_client_feedback(learner->worker.client, TABLE, learner->kept, rows);
}

/* Open the table of the weights: one row per feature, or one dense vector of all rows. */
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
        .init_skip = job->kind->has_factors && !job->kind->is_dense ? 1 : 0,
        .init_seed = learner->model.init_seed,
    };
    if (job->kind->is_dense) {
        spec.kind = WEFT_TABLE_DENSE;
        spec.length = (uint64_t)learner->row_count * spec.dim;
    }
    if (job->kind->counts_topics) {
        spec.init_scale = 0;
        spec.init_skip = 0;
    }
    spec.average = weft_table_average_of(
        &spec, job->kind->counts_topics ? WEFT_AVERAGE_NONE : WEFT_AVERAGE_WORKERS + job->average);
    spec.push_values = (uint8_t)job->value_type;
    spec.pull_values = (uint8_t)job->pull_value_type;
    weft_ps_op op;
    weft_status status =
        weft_ps_table_open(learner->worker.client, &spec, weft_clock_now_ns(), &op);
    if (status != WEFT_OK) {
        return fail_status(learner, status, "opening the table");
    }
    status = keep_remainders(learner, &spec);
    if (status != WEFT_OK) {
        return status;
    }
    struct weft_ps_result result;
    status = finish(learner, op, "opening the table", &result);
    /* Its previous process may have died before it ended a clock, but after a push. */
    const bool is_again = learner->worker.membership->launch.restart > 0;
    if (status == WEFT_OK && job->kind->counts_topics &&
        (weft_ps_clock_now(learner->worker.client, TABLE) > 0 || is_again)) {
        return weft_fail(&learner->worker.error, WEFT_STATE,
                         "the servers may already count this worker's documents, but the topics of "
                         "their words were lost with its previous process: restart the job with "
                         "empty servers and without WEFT_RESTART");
    }
    if (status == WEFT_DATA && result.rpc_status == WEFT_RPC_SPEC_MISMATCH) {
        size_t used = strlen(learner->worker.error.text);
        snprintf(learner->worker.error.text + used, sizeof(learner->worker.error.text) - used,
                 " (here: learning rate %.7g; another worker or a checkpoint may use a different "
                 "one: give all workers the same --lr)",
                 (double)weft_job_rate(job));
    }
    return status;
}

/* Aggregators for its pushes, if the job or the environment names any; *via_p: to be freed. */
static weft_status set_via(struct weft_learner *learner, struct weft_launch_address **via_p,
                           struct weft_worker_config *config)
{
    const char *text = learner->job->via != NULL ? learner->job->via : getenv("WEFT_VIA");
    return text == NULL || text[0] == '\0' ? WEFT_OK
                                           : weft_worker_via_read(config, "--via or WEFT_VIA", text,
                                                                  via_p, &learner->worker.error);
}

static void set_scheduler(const struct weft_job *job, struct weft_worker_config *config)
{
    static const enum weft_sched_mode modes[] = {[WEFT_JOB_BSP] = WEFT_SCHED_BSP,
                                                 [WEFT_JOB_SSP] = WEFT_SCHED_SSP,
                                                 [WEFT_JOB_ASP] = WEFT_SCHED_ASP};
    if (job->scheduler != NULL) {
        config->scheduler = &job->scheduler_address;
        config->workers = job->workers;
        config->mode = modes[job->mode.kind];
        config->tau_max = job->tau_max > 0 ? job->tau_max : WEFT_NEVER;
        config->link_bps = job->link_mbps * UINT64_C(1000000);
    }
}

weft_status weft_learner_init(struct weft_learner *learner, const struct weft_job *job,
                              uint32_t rank, const struct weft_ml_dataset *dataset,
                              const struct weft_launch_address *servers, uint32_t count,
                              struct weft_membership *membership)
{
    struct weft_worker_config config;
    *learner = (struct weft_learner){.job = job, .dataset = dataset};
    weft_status status = allocate(learner, rank);
    if (status != WEFT_OK) {
        return status;
    }
    weft_worker_config_default(&config);
    set_endpoint(learner, rank, &config.endpoint);
    set_client(learner, rank, count, &config.client);
    set_scheduler(job, &config);
    config.servers = servers;
    config.membership = membership;
    struct weft_launch_address *via = NULL;
    status = set_via(learner, &via, &config);
    status = status == WEFT_OK ? weft_worker_open(&learner->worker, &config) : status;
    free(via);
    weft_stop_wakes(learner->worker.endpoint.driver);
    return status == WEFT_OK ? open_table(learner) : status;
}

void weft_learner_fini(struct weft_learner *learner)
{
    weft_stop_wakes(NULL);
    weft_worker_close(&learner->worker);
    weft_tracing_close(&learner->tracing);
    weft_ml_share_fini(&learner->share);
    weft_ml_model_fini(&learner->model);
    weft_ml_batch_fini(&learner->test_batch);
    for (int i = 0; i < 2; i++) {
        weft_ml_batch_fini(&learner->steps[i].batch);
        free(learner->steps[i].weights);
    }
    free(learner->seen);
    free(learner->ids);
    free(learner->gradient);
    free(learner->kept);
}

/* ---- weights and gradients ------------------------------------------------------------------- */

/* Rows of a batch: those of its ids and, for a dense model, the output rows. */
static uint32_t rows_of(const struct weft_learner *learner, const struct weft_ml_batch *batch)
{
    return weft_ml_model_rows(&learner->model, batch->id_count);
}

/* Copy the rows of a batch from `weights` to `seen` (store) or back. The output rows follow all
 * feature rows, both in the batch (which then has all features) and in the table. */
static void copy_seen(struct weft_learner *learner, const struct weft_ml_batch *batch,
                      float *weights, bool store)
{
    size_t dim = learner->model.dim;
    uint32_t row_count = rows_of(learner, batch);
    for (uint32_t i = 0; i < row_count; i++, weights += dim) {
        size_t column = batch->columns != NULL && i < batch->id_count ? batch->columns[i] : i;
        float *seen = learner->seen + column * dim;
        memcpy(store ? seen : weights, store ? weights : seen, dim * sizeof(float));
    }
}

/* Maximum rows of one operation; longer lists are split. */
static uint32_t part_max(void)
{
    struct weft_ps_client_config config;
    weft_ps_client_config_default(&config);
    return config.rows_per_op_max;
}

/* Rows [at, at + n) of a batch: by their ids, or as a slice of a dense model's vector. */
static struct weft_ps_list pull_list(const struct weft_learner *learner,
                                     const struct weft_ml_batch *batch, float *weights, uint32_t at)
{
    return (struct weft_ps_list){
        .table = TABLE,
        .n = (uint32_t)weft_min_u64(rows_of(learner, batch) - at, part_max()),
        .ids = learner->model.kind->is_dense ? NULL : batch->ids + at,
        .first = at,
        .out = weights + (size_t)at * learner->model.dim,
    };
}

/* Pull all weights of a batch completely. Such pulls are for tests, and not part of a step. */
static weft_status pull_rows(struct weft_learner *learner, const struct weft_ml_batch *batch,
                             float *weights)
{
    for (uint32_t at = 0; at < rows_of(learner, batch); at += part_max()) {
        const struct weft_ps_list list = pull_list(learner, batch, weights, at);
        weft_ps_op op;
        const struct weft_ps_how how = {.aside = true};
        weft_status status = weft_ps_begin(learner->worker.client, WEFT_RPC_PULL, &list, 1, &how,
                                           weft_clock_now_ns(), &op);
        if (status != WEFT_OK) {
            return fail_status(learner, status, "pull");
        }
        struct weft_ps_result result;
        status = finish(learner, op, "pull", &result);
        if (status != WEFT_OK) {
            return status;
        }
        learner->test_elements += result.elements_sent;
        learner->test_elements_delivered += result.elements_delivered;
    }
    return WEFT_OK;
}

static weft_status pull_all(struct weft_learner *learner, const struct weft_ml_batch *batch,
                            float *weights)
{
    copy_seen(learner, batch, weights, false);
    weft_status status = pull_rows(learner, batch, weights);
    if (status == WEFT_OK) {
        copy_seen(learner, batch, weights, true);
    }
    return status;
}

/* Wait for the push in flight, if any, and check its result. */
static weft_status finish_push(struct weft_learner *learner)
{
    if (!learner->is_pushing) {
        return WEFT_OK;
    }
    learner->is_pushing = false;
    struct weft_ps_result result;
    return finish(learner, learner->push, "push", &result);
}

/* Push the gradient of a step's batch; the last part is left in flight. */
static weft_status push(struct weft_learner *learner, const struct weft_ml_batch *batch)
{
    for (uint32_t at = 0; at < rows_of(learner, batch);) {
        /* With a scheduler a push gets a grant only when its update is complete. Complete it,
         * because finish_push waits for the previous part before the clock ends. */
        weft_ps_update_end(learner->worker.client, weft_clock_now_ns());
        weft_status status = finish_push(learner);
        if (status != WEFT_OK) {
            return status;
        }
        const struct weft_ps_list list = {
            .table = TABLE,
            .n = (uint32_t)weft_min_u64(rows_of(learner, batch) - at, part_max()),
            .ids = learner->model.kind->is_dense ? NULL : batch->ids + at,
            .first = at,
            .values = learner->gradient + (size_t)at * learner->model.dim,
        };
        status = weft_ps_push_lists(learner->worker.client, &list, 1, learner->job->bound_ppm,
                                    weft_clock_now_ns(), &learner->push);
        if (status == WEFT_AGAIN) { /* a shard is down, or the buffer of kept pushes is full */
            status = progress(learner, room_ns);
            if (status != WEFT_OK) {
                return status;
            }
            continue;
        }
        if (status == WEFT_NOMEM) {
            return weft_fail(
                &learner->worker.error, status,
                "--replay-bytes is used up and no checkpoint frees it; increase it, or make "
                "checkpoints more frequent");
        }
        if (status != WEFT_OK) {
            return fail_status(learner, status, "push");
        }
        learner->is_pushing = true;
        at += list.n;
    }
    return WEFT_OK;
}

static weft_status end_clock(struct weft_learner *learner)
{
    for (;;) {
        weft_status status = weft_ps_clock(learner->worker.client, TABLE, weft_clock_now_ns());
        if (status == WEFT_OK) {
            weft_ps_client_progress(learner->worker.client, weft_clock_now_ns());
            return WEFT_OK;
        }
        /* progress reports a failed shard (PEER) */
        if (status != WEFT_AGAIN && status != WEFT_PEER) {
            return fail_status(learner, status, "clock");
        }
        status = progress(learner, step_timeout_ns);
        if (status != WEFT_OK) {
            return status;
        }
    }
}

/* ---- a step ---------------------------------------------------------------------------------- */

static weft_status build(struct weft_learner *learner, struct weft_learner_step *step, uint32_t s,
                         uint32_t steps)
{
    const uint32_t *rows;
    uint32_t row_count;
    const uint64_t begun_ns = weft_clock_now_ns();
    weft_ml_share_step(&learner->share, s, steps, &rows, &row_count);
    if (weft_ml_model_batch(&learner->model, &step->batch, rows, row_count) != WEFT_OK) {
        return fail_status(learner, WEFT_NOMEM, "allocating a batch");
    }
    learner->build_ns = weft_clock_now_ns() - begun_ns;
    step->is_built = true;
    return WEFT_OK;
}

/* Pull the weights of a batch, starting at row `at`, at most as many as one operation allows. */
static weft_status begin_pull(struct weft_learner *learner, struct weft_learner_step *step,
                              uint32_t at, uint32_t ahead)
{
    const struct weft_ps_how how = {.bound_ppm = learner->job->bound_ppm, .ahead = ahead};
    const struct weft_ps_list list = pull_list(learner, &step->batch, step->weights, at);
    weft_status status = weft_ps_begin(learner->worker.client, WEFT_RPC_PULL, &list, 1, &how,
                                       weft_clock_now_ns(), &step->pull);
    step->is_pulling = status == WEFT_OK;
    return status == WEFT_OK ? WEFT_OK : fail_status(learner, status, "pull");
}

/* While this worker waits for the others, build the batch of the next step and request its weights.
 * Not if the weights of the current step have arrived already: then the other workers wait for this
 * one, and the next batch is built later. */
static weft_status begin_next(struct weft_learner *learner, uint32_t s, uint32_t steps)
{
    const struct weft_ps_client *client = learner->worker.client;
    struct weft_learner_step *now = &learner->steps[learner->step_at];
    struct weft_learner_step *next = &learner->steps[1 - learner->step_at];
    weft_status status = finish_push(learner);
    while (status == WEFT_OK && !weft_ps_clock_accepted(client, TABLE)) {
        status = progress(learner, step_timeout_ns);
    }
    if (status != WEFT_OK || weft_ps_op_done(client, now->pull, NULL)) {
        return status;
    }
    /* Without a progress thread, no delayed acknowledgement is sent while the batch is built. */
    if (learner->build_ns > WEFT_DONE_LATER_NS / 2) {
        weft_endpoint_acknowledge(&learner->worker.endpoint);
    }
    status = build(learner, next, s, steps);
    uint32_t row_count = status == WEFT_OK ? rows_of(learner, &next->batch) : 0;
    return row_count > 0 && row_count <= part_max() ? begin_pull(learner, next, 0, 1) : status;
}

/* Wait for the weights of a step's batch. The remaining parts are requested after the first
 * arrives. */
static weft_status finish_pull(struct weft_learner *learner, struct weft_learner_step *step)
{
    for (uint32_t at = 0; at < rows_of(learner, &step->batch); at += part_max()) {
        struct weft_ps_result result;
        weft_status status = WEFT_OK;
        if (!step->is_pulling) {
            status = begin_pull(learner, step, at, 0);
        }
        if (status == WEFT_OK) {
            status = finish(learner, step->pull, "pull", &result);
        }
        if (status != WEFT_OK) {
            return status;
        }
        step->is_pulling = false;
    }
    return WEFT_OK;
}

/* Wait until the minimum compute time of the step (--compute) has passed. */
static weft_status finish_compute(struct weft_learner *learner, uint64_t begun_ns, uint32_t step)
{
    const struct weft_job *job = learner->job;
    const uint64_t end_ns =
        begun_ns +
        weft_compute_step_ns(&job->compute, job->seed, learner->worker.rank, job->workers, step);
    const uint64_t from_ns = weft_clock_now_ns();
    uint64_t now_ns = from_ns;
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && now_ns < end_ns) {
        status = progress(learner, weft_min_u64(end_ns - now_ns, step_timeout_ns));
        now_ns = weft_clock_now_ns();
    }
    learner->compute_waits_ns += now_ns - from_ns;
    return status;
}

/* In BSP: does the next step follow without a stop? */
static bool may_begin_next(const struct weft_learner *learner, uint32_t epoch, uint32_t s,
                           uint32_t steps)
{
    const struct weft_job *job = learner->job;
    return job->mode.kind == WEFT_JOB_BSP && s + 1 < steps &&
           !weft_until_is_check(&job->until, epoch, s, steps);
}

static weft_status step(struct weft_learner *learner, uint32_t epoch, uint32_t s, uint32_t steps,
                        double *loss_p)
{
    struct weft_learner_step *now = &learner->steps[learner->step_at];
    weft_status status = now->is_built ? WEFT_OK : build(learner, now, s, steps);
    /* Rows that the pull misses keep these values. The reply to a prefetch arrives later, because
     * it follows this worker's CLOCK, unless the shard has continued without this worker. Rows that
     * have arrived must not be overwritten. */
    if (!now->is_pulling || !weft_ps_op_done(learner->worker.client, now->pull, NULL)) {
        copy_seen(learner, &now->batch, now->weights, false);
    }
    if (status == WEFT_OK && !now->is_pulling && now->batch.id_count > 0) {
        status = begin_pull(learner, now, 0, 0);
    }
    if (status == WEFT_OK && now->is_pulling && may_begin_next(learner, epoch, s, steps)) {
        status = begin_next(learner, s + 1, steps);
    }
    if (status == WEFT_OK) {
        status = finish_pull(learner, now);
    }
    if (status != WEFT_OK) {
        return status;
    }
    const uint64_t begun_ns = weft_clock_now_ns();
    copy_seen(learner, &now->batch, now->weights, true);
    *loss_p = weft_ml_model_gradient(&learner->model, &now->batch, now->weights, learner->gradient);
    status = finish_compute(learner, begun_ns, epoch * steps + s);
    status = status == WEFT_OK ? push(learner, &now->batch) : status;
    now->is_built = false;
    learner->step_at = 1 - learner->step_at;
    return status == WEFT_OK ? end_clock(learner) : status;
}

/* A diverged model must end the run: JSON cannot represent infinity. */
static weft_status check_loss(struct weft_learner *learner, double loss)
{
    if (isfinite(loss)) {
        return WEFT_OK;
    }
    return weft_fail(&learner->worker.error, WEFT_DATA,
                     "training diverged: the loss is not finite; a lower --lr may help");
}

static weft_status finish_clock(struct weft_learner *learner)
{
    weft_status status = finish_push(learner);
    while (status == WEFT_OK && !weft_ps_clock_accepted(learner->worker.client, TABLE)) {
        status = progress(learner, step_timeout_ns);
    }
    return status;
}

/* Push the counts kept of dropped updates, as an update of zeros to which they are added, with the
 * version that it pulls as its base. */
static weft_status push_kept(struct weft_learner *learner)
{
    const struct weft_ml_batch kept = {
        .ids = learner->ids,
        .id_count = weft_ps_client_kept(learner->worker.client, TABLE, learner->ids, NULL,
                                        learner->row_count)};
    weft_status status = pull_rows(learner, &kept, learner->steps[learner->step_at].weights);
    memset(learner->gradient, 0, (size_t)kept.id_count * learner->model.dim * sizeof(float));
    status = status == WEFT_OK ? push(learner, &kept) : status;
    status = status == WEFT_OK ? end_clock(learner) : status;
    learner->kept_clocks++;
    return status == WEFT_OK ? finish_clock(learner) : status;
}

weft_status weft_learner_settle(struct weft_learner *learner)
{
    const struct weft_ps_client_counters *counters =
        weft_ps_client_counters(learner->worker.client);
    weft_status status = finish_clock(learner);
    while (status == WEFT_OK && keeps_counts(learner->job) && counters->feedback_rows_now > 0) {
        status = push_kept(learner);
    }
    return status;
}

static uint32_t steps_of(const struct weft_learner *learner)
{
    return weft_ml_share_steps(learner->dataset, learner->job->workers, learner->job->batch_rows);
}

/* One clock per step, apart from those that pushed what was kept. */
static uint32_t steps_done(const struct weft_learner *learner)
{
    return weft_ps_clock_now(learner->worker.client, TABLE) - learner->kept_clocks;
}

uint32_t weft_learner_first_epoch(const struct weft_learner *learner)
{
    return steps_done(learner) / steps_of(learner);
}

weft_status weft_learner_epoch(struct weft_learner *learner, uint32_t epoch, double *loss_p)
{
    uint32_t steps = steps_of(learner);
    uint32_t first = steps_done(learner) - epoch * steps; /* finished steps of this epoch */
    double loss_sum = 0.0;
    uint32_t s = first;
    weft_ml_share_begin_epoch(&learner->share, epoch);
    for (; s < steps && !learner->is_over; s++) {
        double loss = 0.0;
        weft_status status = step(learner, epoch, s, steps, &loss);
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
    float *weights = learner->steps[learner->step_at].weights;
    weft_status status = pull_all(learner, &learner->test_batch, weights);
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_ml_model_evaluate(&learner->model, &learner->test_batch, weights, quality_p);
    return status == WEFT_OK
               ? check_loss(learner, quality_p->log_loss + quality_p->rmse + quality_p->perplexity)
               : fail_status(learner, status, "testing the model");
}

weft_status weft_learner_tokens(struct weft_learner *learner, uint64_t *counted_p)
{
    const uint64_t id = WEFT_ML_BIAS_ID;
    const uint32_t column = learner->dataset->feature_count - 1; /* words have smaller ids */
    const struct weft_ml_batch totals = {
        .dataset = learner->dataset, .ids = &id, .columns = &column, .id_count = 1};
    float *weights = learner->steps[learner->step_at].weights;
    weft_status status = pull_all(learner, &totals, weights);
    double sum = 0;
    for (uint32_t k = 0; status == WEFT_OK && k < learner->model.dim; k++) {
        sum += (double)weights[k];
    }
    *counted_p = (uint64_t)sum;
    return status;
}

/* Row ids of a saved model. */
static uint64_t *model_ids(struct weft_learner *learner)
{
    uint32_t feature_count = learner->dataset->feature_count;
    memcpy(learner->ids, learner->dataset->feature_ids, feature_count * sizeof(*learner->ids));
    for (uint32_t r = feature_count; r < learner->row_count; r++) {
        learner->ids[r] = WEFT_ML_OUTPUT_ID + r - feature_count;
    }
    return learner->ids;
}

weft_status weft_learner_model(struct weft_learner *learner, struct weft_ckpt_model *model_p)
{
    /* A pull uses only the ids of a batch. */
    const struct weft_ml_batch all = {.dataset = learner->dataset,
                                      .ids = learner->dataset->feature_ids,
                                      .id_count = learner->dataset->feature_count};
    float *weights = learner->steps[learner->step_at].weights;
    weft_status status = pull_all(learner, &all, weights);
    if (status == WEFT_OK) {
        *model_p = (struct weft_ckpt_model){.offset = learner->model.offset,
                                            .alpha = learner->model.settings.alpha,
                                            .beta = learner->model.settings.beta,
                                            .dim = learner->model.dim,
                                            .ids = model_ids(learner),
                                            .rows = weights,
                                            .count = learner->row_count};
        snprintf(model_p->kind, sizeof(model_p->kind), "%s", learner->job->kind->name);
        snprintf(model_p->format, sizeof(model_p->format), "%s", learner->job->format);
    }
    return status;
}

void weft_learner_delivery(const struct weft_learner *learner, uint64_t *elements_p,
                           uint64_t *delivered_p)
{
    const struct weft_ps_client_counters *counters =
        weft_ps_client_counters(learner->worker.client);
    *elements_p =
        counters->push.elements_sent + counters->pull.elements_sent - learner->test_elements;
    *delivered_p = counters->push.elements_delivered + counters->pull.elements_delivered -
                   learner->test_elements_delivered;
}
