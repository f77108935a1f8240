/* `weft worker`: one worker of a training job, using servers that are already running. */
#include "cli/child.h"
#include "cli/metrics.h"
#include "cli/node_options.h"
#include "cli/output.h"
#include "cli/stop.h"
#include "cli/train/learner.h"
#include "job/channel.h"
#include "cli/train/results.h"
#include "cli/verbs.h"
#include "ps/aggregate.h"
#include "ps/hot_rows.h"
#include "io/clock.h"
#include "metrics/live.h"
#include "metrics/report.h"
#include "metrics/text.h"
#include "ml/docword.h"
#include "ml/lda.h"
#include "ml/rate.h"
#include "node/membership.h"

#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Poll interval of the parent's channel while the transport's own thread makes progress, and the
 * interval of checks otherwise. */
#define WORD_POLL_NS (500 * WEFT_NS_PER_US)
#define WORD_CHECK_NS (20 * WEFT_NS_PER_MS)

struct worker {
    struct weft_job job;
    uint32_t rank;
    const char *servers;
    const char *rack;
    uint32_t control_fd; /* 0 = none */
    bool by_environment; /* rank and job come from the environment, also with control_fd */
    struct weft_membership membership;
    struct weft_metrics_options metrics_options;

    struct weft_metrics_live *metrics; /* NULL = off */
    uint32_t epochs_done;
    struct weft_channel channel;
    struct weft_launch_address addresses[WEFT_JOB_SHARDS_MAX]; /* of the servers */
    uint32_t shard_count;
    struct weft_ml_dataset dataset;
    uint32_t rate_rows; /* size of the sample for the learning rate search; 0 = no search */
    struct weft_learner learner;

    struct weft_hist step_ns; /* from the end of a step to the end of the next */
    uint64_t step_begun_ns;
    struct weft_ml_quality quality; /* of the last check of --until-... */
};

/* ---- events ---------------------------------------------------------------------------------- */

static void say(struct worker *worker, cJSON *event)
{
    weft_child_report(&worker->channel, event);
}

/* Make progress, and wait for a message of the parent or for the transport, but not for long. */
static void wait_for_any(struct worker *worker)
{
    struct weft_driver *driver = worker->learner.worker.endpoint.driver;
    weft_worker_progress(&worker->learner.worker, driver == NULL ? WORD_POLL_NS : 0);
    if (driver != NULL && weft_driver_rest(driver, weft_clock_now_ns() + WORD_CHECK_NS)) {
        struct pollfd fds[] = {{.fd = worker->channel.fd, .events = POLLIN},
                               {.fd = weft_driver_pollable(driver), .events = POLLIN}};
        (void)poll(fds, WEFT_ARRAY_COUNT(fds), -1);
    }
}

/* Wait for one of two messages of the parent. Progress continues meanwhile, since a peer without
 * replies would declare this worker dead. Returns the message that arrived; NULL: interrupted, or
 * the parent has exited. */
static const char *wait_for_either(struct worker *worker, const char *word, const char *other)
{
    for (;;) {
        struct pollfd fd = {.fd = worker->channel.fd, .events = POLLIN};
        cJSON *object = NULL;
        if (poll(&fd, 1, 0) > 0) {
            if (weft_channel_next(&worker->channel, &object) != WEFT_OK) {
                return NULL;
            }
            const char *event = weft_channel_text(object, "event");
            bool is_word = strcmp(event, word) == 0;
            bool is_other = strcmp(event, other) == 0;
            cJSON_Delete(object);
            if (is_word || is_other) {
                return is_word ? word : other;
            }
        }
        if (weft_stop_requested()) {
            return NULL;
        }
        weft_metrics_live_poll(worker->metrics, 0, worker);
        wait_for_any(worker);
    }
}

/* Returns at once if there is no parent. */
static bool wait_for_word(struct worker *worker, const char *word)
{
    return worker->channel.fd < 0 || wait_for_either(worker, word, word) != NULL;
}

/* ---- the data -------------------------------------------------------------------------------- */

static weft_status check_data(const struct weft_ml_model_kind *kind,
                              const struct weft_ml_dataset *dataset, const char *path,
                              struct weft_error *error)
{
    uint32_t positive = 0;
    for (uint32_t i = 0; i < dataset->test_count; i++) {
        positive += dataset->labels[dataset->test_rows[i]];
    }
    if (dataset->train_count == 0) {
        return weft_fail(error, WEFT_DATA, "%s: all %u rows are test rows; nothing to train on",
                         path, dataset->row_count);
    }
    bool has_labels = !kind->predicts_ratings && !kind->counts_topics;
    if (!has_labels && dataset->test_count == 0) {
        return weft_fail(error, WEFT_DATA, "%s: none of the %u rows is a test row", path,
                         dataset->row_count);
    }
    if (kind->counts_topics &&
        weft_ml_lda_tokens(dataset, false) + weft_ml_lda_tokens(dataset, true) >
            WEFT_ML_DOCWORD_COUNT_MAX) {
        return weft_fail(error, WEFT_DATA,
                         "%s: more than 2^24 tokens, more than the float32 values of a table can "
                         "count",
                         path);
    }
    if (has_labels && (positive == 0 || positive == dataset->test_count)) {
        return weft_fail(error, WEFT_DATA,
                         "%s: %u of the %u test rows are positive; an AUC needs both classes", path,
                         positive, dataset->test_count);
    }
    return WEFT_OK;
}

/* Every worker of a job searches independently on the same data and finds the same rate. The
 * servers reject a worker with different data, since its table differs. */
static weft_status find_rate(struct worker *worker, struct weft_error *error)
{
    struct weft_ml_rate found;
    if (!weft_job_searches_rate(&worker->job)) {
        return WEFT_OK;
    }
    uint32_t steps =
        weft_ml_share_steps(&worker->dataset, worker->job.workers, worker->job.batch_rows);
    weft_status status = weft_ml_rate_find(&worker->dataset, worker->job.optimizer,
                                           worker->job.settings.l2, steps, &found);
    if (status != WEFT_OK) {
        return weft_fail(error, status, "learning rate search: %s; set --lr",
                         weft_status_text(status));
    }
    worker->job.learning_rate = found.rate;
    worker->rate_rows = found.rows;
    return WEFT_OK;
}

static weft_status load(struct worker *worker, struct weft_error *error)
{
    char path[WEFT_ML_PATH_BYTES];
    const struct weft_ml_format *format;
    weft_status status = weft_job_locate(&worker->job, error, path);
    if (status == WEFT_OK) {
        status = weft_ml_format_find(worker->job.format, error, &format);
    }
    if (status == WEFT_OK) {
        status = weft_ml_dataset_load(path, format, error, &worker->dataset);
    }
    return status == WEFT_OK ? check_data(worker->job.kind, &worker->dataset, path, error) : status;
}

/* ---- metrics --------------------------------------------------------------------------------- */

static void copy_stats(void *arg, void *object)
{
    struct weft_worker_stats *stats = arg;
    struct worker *worker = object;
    struct weft_learner *learner = &worker->learner;
    stats->has_gauges =
        weft_endpoint_stats(&learner->worker.endpoint, &stats->transport, &stats->gauges);
    stats->client = *weft_ps_client_counters(learner->worker.client);
    stats->push = *weft_ps_client_push_latencies(learner->worker.client);
    stats->pull = *weft_ps_client_pull_latencies(learner->worker.client);
    stats->step_ns = worker->step_ns;
    stats->epochs = worker->epochs_done;
    stats->has_epochs = true;
    stats->rank = worker->rank;
}

static void write_stats(void *arg, const void *stats, struct weft_exposition *text)
{
    (void)arg;
    weft_metrics_text_worker(text, stats);
}

/* The parent gets the address with "ready". Without --metrics, WEFT_METRICS is used, as in programs
 * of the C API; there, failing to listen is not an error. */
static weft_status start_metrics(struct worker *worker, struct weft_error *error)
{
    const struct weft_metrics_live_config config = {.role = "worker",
                                                    .rank = worker->rank,
                                                    .has_target = true,
                                                    .threads = 1,
                                                    .stats_bytes = sizeof(struct weft_worker_stats),
                                                    .copy = copy_stats,
                                                    .write = write_stats,
                                                    .object = worker,
                                                    .timeout_ns = WEFT_NS_PER_S};
    struct weft_metrics_options options = worker->metrics_options;
    bool is_given = options.host[0] != '\0';
    if (!is_given && !weft_metrics_environment(&options)) {
        return WEFT_OK;
    }
    weft_status status = weft_metrics_live_start(&config, &options, &worker->metrics, error);
    if (status != WEFT_OK && !is_given) {
        fprintf(stderr, "weft worker %u: %s; continuing without metrics\n", worker->rank,
                error->text);
        return WEFT_OK;
    }
    return status;
}

/* ---- the run --------------------------------------------------------------------------------- */

static void say_ready(struct worker *worker)
{
    cJSON *event = weft_channel_event("ready");
    cJSON_AddNumberToObject(event, "rows_train", worker->dataset.train_count);
    cJSON_AddNumberToObject(event, "rows_test", worker->dataset.test_count);
    cJSON_AddNumberToObject(event, "features", worker->dataset.feature_count);
    cJSON_AddNumberToObject(event, "epoch", weft_learner_first_epoch(&worker->learner));
    weft_results_add_rate(event, weft_job_rate(&worker->job), worker->rate_rows);
    if (worker->metrics != NULL) {
        cJSON_AddStringToObject(event, "metrics", weft_metrics_live_url(worker->metrics));
    }
    say(worker, event);
}

static void say_epoch(struct worker *worker, uint32_t epoch, double loss)
{
    uint64_t elements;
    uint64_t delivered;
    weft_learner_delivery(&worker->learner, &elements, &delivered);
    cJSON *event = weft_channel_event("epoch");
    cJSON_AddNumberToObject(event, "epoch", epoch + 1);
    cJSON_AddNumberToObject(event, weft_job_train_key(&worker->job),
                            worker->job.kind->counts_topics ? exp(loss) : loss);
    cJSON_AddNumberToObject(event, "elements", (double)elements);
    cJSON_AddNumberToObject(event, "elements_delivered", (double)delivered);
    say(worker, event);
}

static void add_quality(const struct worker *worker, cJSON *event,
                        const struct weft_ml_quality *quality)
{
    if (worker->job.kind->predicts_ratings) {
        cJSON_AddNumberToObject(event, "test_rmse", quality->rmse);
    } else if (worker->job.kind->counts_topics) {
        cJSON_AddNumberToObject(event, "test_perplexity", quality->perplexity);
    } else {
        cJSON_AddNumberToObject(event, "test_logloss", quality->log_loss);
        cJSON_AddNumberToObject(event, "test_auc", quality->auc);
    }
}

static void say_test(struct worker *worker, uint32_t epoch, const struct weft_ml_quality *quality)
{
    cJSON *event = weft_channel_event("test");
    cJSON_AddNumberToObject(event, "epoch", epoch + 1);
    add_quality(worker, event, quality);
    say(worker, event);
}

static void say_done(struct worker *worker)
{
    struct weft_recorder_counts records = weft_recording_finish(&worker->job.recording);
    struct weft_learner *learner = &worker->learner;
    const struct weft_ps_latencies *const latencies[] = {
        weft_ps_client_push_latencies(learner->worker.client),
        weft_ps_client_pull_latencies(learner->worker.client),
    };
    struct weft_driver_counters transport;
    uint64_t elements;
    uint64_t delivered;
    weft_endpoint_counters(&learner->worker.endpoint, &transport);
    weft_learner_delivery(learner, &elements, &delivered);

    cJSON *event = weft_channel_event("done");
    cJSON *counters = cJSON_AddObjectToObject(event, "counters");
    weft_report_add_transport(counters, &transport);
    weft_report_add_client(counters, weft_ps_client_counters(learner->worker.client));
    weft_report_add_sched(counters, weft_worker_sched(&learner->worker));
    weft_report_add(counters, "elements", elements);
    weft_report_add(counters, "elements_delivered", delivered);
    if (worker->job.compute.given != NULL) {
        weft_report_add(counters, "compute_waits_ns", learner->compute_waits_ns);
    }
    weft_report_add(counters, "records", records.records);
    weft_report_add(counters, "records_dropped", records.dropped);
    if (worker->channel.fd >= 0) {
        cJSON_AddItemToObject(event, "latency", weft_report_pack(latencies));
        cJSON_AddItemToObject(event, "step_ns", weft_report_pack_one(&worker->step_ns));
    } else {
        cJSON_AddItemToObject(event, "latency_us", weft_report_quantiles_us(latencies));
    }
    say(worker, event);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static void say_unsaved(struct worker *worker)
{
    cJSON *event = weft_channel_event("unsaved");
    cJSON_AddStringToObject(event, "text", worker->learner.worker.error.text);
    say(worker, event);
}

static void say_stopped(struct worker *worker, uint32_t epoch, uint32_t step, uint32_t steps)
{
    bool last = step + 1 == steps && epoch + 1 == worker->job.epochs;
    cJSON *event = weft_channel_event("stopped");
    cJSON_AddNumberToObject(event, "epoch", epoch + 1);
    cJSON_AddNumberToObject(event, "step", (double)epoch * steps + step + 1);
    cJSON_AddNumberToObject(event, "steps", steps);
    cJSON_AddBoolToObject(event, "last", last);
    say(worker, event);
}

static void say_check(struct worker *worker)
{
    cJSON *event = weft_channel_event("check");
    add_quality(worker, event, &worker->quality);
    say(worker, event);
}

/* Report shards that were reconnected since the last step. */
static void say_resumed(struct worker *worker)
{
    struct weft_ps_resumed resumed;
    while (weft_ps_client_take_resumed(worker->learner.worker.client, &resumed)) {
        cJSON *event = weft_channel_event("resumed");
        cJSON_AddNumberToObject(event, "shard", resumed.shard);
        cJSON_AddNumberToObject(event, "clock", resumed.clock);
        cJSON_AddNumberToObject(event, "clocks_resent", resumed.clocks_resent);
        cJSON_AddNumberToObject(event, "pushes_resent", (double)resumed.pushes_resent);
        cJSON_AddNumberToObject(event, "pushes_lost", (double)resumed.pushes_lost);
        say(worker, event);
    }
}

static weft_status interrupted(struct worker *worker)
{
    return weft_fail(&worker->learner.worker.error, WEFT_TIMEOUT, "interrupted");
}

/* Check that no push was lost or counted twice: the servers' token count must equal that of the
 * documents. */
static weft_status count_tokens(struct worker *worker)
{
    uint64_t counted = 0, tokens = weft_ml_lda_tokens(&worker->dataset, false);
    weft_status status = weft_learner_tokens(&worker->learner, &counted);
    return status != WEFT_OK || counted == tokens
               ? status
               : weft_fail(&worker->learner.worker.error, WEFT_DATA,
                           "the servers count %" PRIu64 " tokens, but the documents have %" PRIu64,
                           counted, tokens);
}

/* All workers stop; rank 0 tests after the parent has received this from all; continue or end
 * (until.h). */
static weft_status check_model(struct worker *worker, uint32_t epoch, uint32_t step, uint32_t steps)
{
    weft_status status = weft_learner_settle(&worker->learner);
    if (status != WEFT_OK) {
        return status;
    }
    say_stopped(worker, epoch, step, steps);
    if (worker->rank == 0) {
        if (!wait_for_word(worker, "test")) {
            return interrupted(worker);
        }
        /* In the first epoch not every token has a topic yet. */
        bool all_are_counted = worker->job.kind->counts_topics && (epoch > 0 || step + 1 == steps);
        status = weft_learner_test(&worker->learner, &worker->quality);
        status = status == WEFT_OK && all_are_counted ? count_tokens(worker) : status;
        if (status != WEFT_OK) {
            return status;
        }
        say_check(worker);
    }
    const char *word = wait_for_either(worker, "go", "stop");
    worker->learner.is_over = word != NULL && strcmp(word, "stop") == 0;
    if (word == NULL) {
        return interrupted(worker);
    }
    return WEFT_OK;
}

static weft_status stepped(void *arg, uint32_t epoch, uint32_t step, uint32_t steps)
{
    struct worker *worker = arg;
    say_resumed(worker);
    uint64_t now_ns = weft_clock_now_ns();
    weft_hist_add(&worker->step_ns, now_ns - worker->step_begun_ns);
    worker->step_begun_ns = now_ns;
    weft_metrics_live_poll(worker->metrics, 0, worker);
    if (!weft_until_is_check(&worker->job.until, epoch, step, steps)) {
        return WEFT_OK;
    }
    weft_status status = check_model(worker, epoch, step, steps);
    worker->step_begun_ns = weft_clock_now_ns();
    return status;
}

/* Rank 0 tests after each epoch. After the last one it waits for the parent's message that all
 * workers have finished, so that the final values are those of the final model in every mode. */
static weft_status test(struct worker *worker, uint32_t epoch)
{
    bool is_last = epoch + 1 == worker->job.epochs;
    if (worker->rank != 0) {
        return WEFT_OK;
    }
    if (weft_until_is_set(&worker->job.until)) {
        say_test(worker, epoch, &worker->quality); /* from the check that ended the epoch */
        return WEFT_OK;
    }
    if (is_last && !wait_for_word(worker, "test")) {
        return interrupted(worker);
    }
    struct weft_ml_quality quality;
    weft_status status = weft_learner_test(&worker->learner, &quality);
    /* In BSP all have finished the epoch; in other modes only after the last one, if the parent has
     * said so. */
    bool all_are_through =
        worker->job.mode.kind == WEFT_JOB_BSP || (is_last && worker->channel.fd >= 0);
    if (status == WEFT_OK && all_are_through && worker->job.kind->counts_topics) {
        status = count_tokens(worker);
    }
    if (status == WEFT_OK) {
        say_test(worker, epoch, &quality);
    }
    return status;
}

/* Rank 0 saves the model after the last test. */
static weft_status save(struct worker *worker)
{
    struct weft_learner *learner = &worker->learner;
    struct weft_ckpt_model model;
    if (worker->job.save == NULL || worker->rank != 0) {
        return WEFT_OK;
    }
    weft_status status = weft_learner_model(learner, &model);
    return status == WEFT_OK
               ? weft_ckpt_model_save(worker->job.save, &model, &learner->worker.error)
               : status;
}

static weft_status train(struct worker *worker)
{
    struct weft_learner *learner = &worker->learner;
    struct weft_error *error = &learner->worker.error;
    weft_status status =
        weft_learner_init(learner, &worker->job, worker->rank, &worker->dataset, worker->addresses,
                          worker->shard_count, &worker->membership);
    status = status == WEFT_OK ? start_metrics(worker, error) : status;
    if (status != WEFT_OK) {
        return status;
    }
    say_ready(worker);
    if (!wait_for_word(worker, "go")) {
        return interrupted(worker);
    }
    uint32_t first = weft_learner_first_epoch(learner);
    /* A restarted process may find that its predecessor had finished everything. */
    if (first >= worker->job.epochs && worker->membership.launch.restart == 0) {
        return weft_fail(error, WEFT_STATE,
                         "the servers have already finished all --epochs; increase --epochs to "
                         "continue");
    }
    if (first >= worker->job.epochs) {
        status = test(worker, worker->job.epochs - 1); /* its predecessor may not have reported
                                                        * it */
    }
    learner->stepped = stepped;
    learner->stepped_arg = worker;
    for (uint32_t epoch = first;
         status == WEFT_OK && epoch < worker->job.epochs && !learner->is_over; epoch++) {
        double loss;
        if (weft_learner_first_epoch(learner) > epoch) {
            continue; /* finished by the others while the servers had declared this worker dead */
        }
        worker->step_begun_ns = weft_clock_now_ns();
        status = weft_learner_epoch(learner, epoch, &loss);
        if (status == WEFT_OK) {
            worker->epochs_done++;
            say_epoch(worker, epoch, loss);
            status = test(worker, epoch);
        }
    }
    if (status != WEFT_OK) {
        return status;
    }
    /* A model that cannot be written takes nothing from the results of the training. */
    status = save(worker);
    if (status != WEFT_OK && worker->channel.fd >= 0) {
        say_unsaved(worker);
        status = WEFT_OK;
    }
    say_done(worker);
    return status;
}

/* ---- the job --------------------------------------------------------------------------------- */

/* Determine the addresses of the shards, the rank and the number of workers. */
static weft_status join_job(struct worker *worker, struct weft_error *error)
{
    struct weft_member_state state;
    if (!weft_membership_has_coordinator(&worker->membership)) {
        return WEFT_OK;
    }
    const char *via = worker->job.via != NULL ? worker->job.via : getenv("WEFT_VIA");
    const struct weft_membership_join join = {
        .rack = worker->rack,
        .wants_aggregator = via != NULL && strcmp(via, "coordinator") == 0,
        .security = &worker->job.security,
        .transport = &worker->job.transport,
        .first = WEFT_MEMBER_NONE,
        .what = WEFT_MEMBER_WAIT_LISTED,
        .patience_ns = worker->membership.patience_s * WEFT_NS_PER_S,
        .stop = weft_stop_requested,
    };
    weft_status status = weft_membership_join(&worker->membership, &join, &state, error);
    if (status != WEFT_OK) {
        return WEFT_PEER;
    }
    if (state.list.count > WEFT_JOB_SHARDS_MAX || state.grant.workers > WEFT_JOB_WORKERS_MAX) {
        return weft_fail(error, WEFT_DATA,
                         "the job has %u shards and %u workers; the maximum of this release is %d "
                         "and %d",
                         state.list.count, state.grant.workers, (int)WEFT_JOB_SHARDS_MAX,
                         (int)WEFT_JOB_WORKERS_MAX);
    }
    worker->rank = state.grant.rank;
    worker->job.workers = state.grant.workers;
    worker->shard_count = state.list.count;
    for (uint32_t s = 0; s < state.list.count; s++) {
        (void)weft_membership_locate(&worker->membership, s, state.list.count,
                                     &worker->addresses[s]);
    }
    return WEFT_OK;
}

/* Open the records when the rank, which is part of the spool's name, is known. */
static weft_status open_records(struct worker *worker, struct weft_error *error)
{
    struct weft_error why = {.text = ""};
    weft_status status = weft_recording_open(&worker->job.recording, "worker", worker->rank,
                                             weft_output_log("worker", false), &why);
    if (status != WEFT_OK) {
        return weft_fail(error, WEFT_IO, "--records: %s", why.text);
    }
    worker->job.records = weft_recording_ring(&worker->job.recording);
    return WEFT_OK;
}

/* Of a worker started by hand: `weft train` has checked its own. Rank 0 saves the model. */
static weft_status check_output(const struct worker *worker, struct weft_error *error)
{
    char path[WEFT_ML_PATH_BYTES];
    const char *data = path;
    if (worker->channel.fd >= 0 || worker->rank != 0) {
        return WEFT_OK;
    }
    weft_status status = weft_output_check(worker->job.save, false, error);
    status = status == WEFT_OK ? weft_job_locate(&worker->job, error, path) : status;
    return status == WEFT_OK ? weft_output_check_inputs(worker->job.save, &data, 1, error) : status;
}

static int run(struct worker *worker)
{
    struct weft_error *error = &worker->learner.worker.error;
    weft_stop_install();
    weft_stop_ignore_pipes();
    weft_status status = weft_security_load(&worker->job.security, false, error);
    if (status != WEFT_OK) {
        return weft_child_exit(&worker->channel, "worker", status, error);
    }
    status = load(worker, error);
    status = status == WEFT_OK ? join_job(worker, error) : status;
    status = status == WEFT_OK ? check_output(worker, error) : status;
    status = status == WEFT_OK ? find_rate(worker, error) : status;
    status = status == WEFT_OK ? open_records(worker, error) : status;
    status = status == WEFT_OK ? train(worker) : status;
    int result = weft_child_exit(&worker->channel, "worker", status, error);
    weft_metrics_live_stop(worker->metrics);
    weft_learner_fini(&worker->learner);
    if (!weft_recording_close(&worker->job.recording)) {
        result = WEFT_EXIT_FAILED;
    }
    weft_membership_leave(&worker->membership, result == WEFT_EXIT_OK);
    weft_ml_dataset_fini(&worker->dataset);
    weft_security_fini(&worker->job.security);
    return result;
}

/* ---- the command line ------------------------------------------------------------------------ */

/* Determine role and rank from options and the environment. */
static int detect(const struct weft_command *command, struct worker *worker)
{
    struct weft_launch flags = weft_launch_nothing();
    flags.role = WEFT_LAUNCH_WORKER;
    flags.rank = worker->rank;
    flags.workers = worker->job.workers != 0 ? worker->job.workers : WEFT_LAUNCH_UNKNOWN;
    flags.servers = worker->servers;
    int status = weft_membership_detect(&worker->membership, command, &flags, 1,
                                        worker->control_fd == 0 || worker->by_environment);
    const struct weft_launch *launch = &worker->membership.launch;
    if (status == WEFT_OPTIONS_RUN) {
        worker->servers = launch->servers;
        worker->rank = launch->rank != WEFT_LAUNCH_UNKNOWN ? launch->rank : 0;
        worker->job.workers = launch->workers != WEFT_LAUNCH_UNKNOWN ? launch->workers : 1;
    }
    return status;
}

static int check(const struct weft_command *command, struct worker *worker)
{
    if (worker->rank != WEFT_LAUNCH_UNKNOWN && worker->job.workers != 0 &&
        worker->rank >= worker->job.workers) {
        return weft_options_usage(command,
                                  "--rank %u is not allowed; with --workers %u it must be "
                                  "from 0 to %u",
                                  worker->rank, worker->job.workers, worker->job.workers - 1);
    }
    int status = weft_metrics_check(command, &worker->metrics_options);
    status = status == WEFT_OPTIONS_RUN ? detect(command, worker) : status;
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    bool has_coordinator = weft_membership_has_coordinator(&worker->membership);
    if (worker->servers == NULL && !has_coordinator) {
        return weft_options_usage(command, "--servers or --coordinator is missing");
    }
    if (!has_coordinator &&
        weft_launch_servers_parse(worker->servers, worker->addresses, WEFT_JOB_SHARDS_MAX,
                                  &worker->shard_count) != NULL) {
        return weft_options_usage(command,
                                  "--servers \"%.80s\" is not allowed; it must be HOST:PORT,... "
                                  "with at most %d shards",
                                  worker->servers, (int)WEFT_JOB_SHARDS_MAX);
    }
    if (!has_coordinator && worker->rank >= worker->job.workers) {
        return weft_options_usage(command, "--rank %u requires --workers", worker->rank);
    }
    if (worker->control_fd != 0) {
        worker->channel.fd = (int)worker->control_fd;
    } else if (weft_until_is_set(&worker->job.until)) {
        return weft_options_usage(command,
                                  "--until-loss, --until-auc and --until-perplexity require `weft "
                                  "train`, which stops all workers at the same step");
    }
    const char *scheduler = getenv("WEFT_SCHEDULER");
    if (worker->job.scheduler == NULL && scheduler != NULL && scheduler[0] != '\0') {
        worker->job.scheduler = scheduler;
    }
    if (worker->job.link_mbps > 0 && worker->job.scheduler == NULL) {
        return weft_options_usage(command, "--link-mbps requires --scheduler, which plans with it");
    }
    status = worker->job.scheduler != NULL ? weft_scheduler_address(command, worker->job.scheduler,
                                                                    &worker->job.scheduler_address)
                                           : WEFT_OPTIONS_RUN;
    status = status == WEFT_OPTIONS_RUN ? weft_job_settle(command, &worker->job) : status;
    if (status == WEFT_OPTIONS_RUN) {
        status = weft_security_check(command, &worker->job.security);
    }
    return status != WEFT_OPTIONS_RUN ? status : weft_job_check(command, &worker->job);
}

int weft_cli_worker(int argc, char **argv)
{
    static struct worker worker; /* large, and there is one */
    worker = (struct worker){.job = WEFT_JOB_DEFAULTS,
                             .rank = WEFT_LAUNCH_UNKNOWN,
                             .membership = WEFT_MEMBERSHIP_DEFAULTS,
                             .channel = {.fd = -1}};
    worker.job.workers = 0;
    const struct weft_option options[] = {
        {"servers", "LIST",
         "HOST:PORT of every shard, in shard order, comma-separated; HOST is a\n"
         "numeric address",
         WEFT_OPTION_STRING, .value = &worker.servers, .fallback = "from the coordinator"},
        {"via", "HOST:PORT",
         "send pushes and pulls through this aggregator (`weft aggregate`); shard s\n"
         "is at PORT + s, or give one HOST:PORT per shard. coordinator = use an\n"
         "aggregator assigned by the coordinator, if any: one with the same\n"
         "--rack, else chosen by rank",
         WEFT_OPTION_STRING, .value = &worker.job.via, .fallback = "WEFT_VIA, else none"},
        {"rack", "NAME", "location of this worker for --via coordinator: any rack or host name",
         WEFT_OPTION_STRING, .value = &worker.rack, .fallback = "none"},
        {"cut-through", "N",
         "with --via and --scheduler: cut updates into up to N pieces, which the\n"
         "aggregator adds and sends on one by one, before the rest of the update\n"
         "has arrived (docs/SCHEDULER.md). Dense updates below 128 KiB for each\n"
         "shard and small sparse ones are not cut. All processes of the job have\n"
         "the same N. 0 and 1 = do not cut",
         WEFT_OPTION_U32, .value = &worker.job.cut_through, .max = WEFT_PS_PIECES_MAX},
        {"hot-rows", "N",
         "with --via: send only hot rows, those with many updates, through the\n"
         "aggregator, at most N of each shard, and all others to the servers. The\n"
         "servers select the hot rows (`weft server --hot-rows`, at most N). 0 =\n"
         "send whole pushes through the aggregator",
         WEFT_OPTION_U32, .value = &worker.job.hot_rows, .max = WEFT_HOT_ROWS_MAX},
        WEFT_SCHEDULER_ROW(&worker.job.scheduler, "WEFT_SCHEDULER, else none"),
        WEFT_LINK_MBPS_ROW(&worker.job.link_mbps),
        {"rank", "R", "this worker's number, from 0", WEFT_OPTION_U32, .value = &worker.rank,
         .max = WEFT_JOB_WORKERS_MAX - 1,
         .fallback = "from the launcher's environment or the coordinator, else 0"},
        WEFT_MEMBERSHIP_ROWS(&worker.membership),
        WEFT_JOB_OPTIONS(&worker.job),
        WEFT_SECURITY_NETWORK_ROWS(&worker.job.security),
        WEFT_RECORDING_CHILD_ROW(&worker.job.recording),
        WEFT_METRICS_OPTIONS(&worker.metrics_options),
        {"control-fd", "FD", "channel to `weft train`", WEFT_OPTION_U32,
         .value = &worker.control_fd, .hidden = true},
        {"environment", NULL, "the environment of `weft run` counts, also with a channel",
         WEFT_OPTION_FLAG, .value = &worker.by_environment, .hidden = true},
        {0},
    };
    const struct weft_command command = {
        .name = "worker",
        .summary = "train on one part of the data, using servers that are already running",
        .description =
         "All workers of a job must be started with the same options except --rank; worker r of W\n"
         "trains on the rows r, r + W, r + 2W, ... of the training rows. Prints one JSON object\n"
         "per line: ready, epoch (its own training loss), test (rank 0: quality on the test rows,\n"
         "with weights pulled without loss), resumed (reconnected to a server) and done\n"
         "(counters and latencies).\n"
         "\n"
         "The worker exits with status 1 if a server does not reply within --peer-timeout and no\n"
         "reconnection succeeds within --reconnect-s. Options not given are read from the\n"
         "environment of torchrun, mpirun, srun or `weft run` (docs/RUN.md).",
        .example = "  weft keygen job.key\n"
                   "  weft server --key-file job.key --workers 2 &\n"
                   "  weft worker --key-file job.key --servers 127.0.0.1:7700 --workers 2 --rank 0 &\n"
                   "  weft worker --key-file job.key --servers 127.0.0.1:7700 --workers 2 --rank 1",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status == WEFT_OPTIONS_RUN) {
        status = check(&command, &worker);
    }
    if (status == WEFT_OPTIONS_RUN) {
        status = weft_transport_options_find_cc(&command, &worker.job.transport);
    }
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    status = run(&worker);
    weft_channel_fini(&worker.channel);
    return status;
}
