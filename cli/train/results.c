#include "cli/train/results.h"

#include "cli/output.h"
#include "file/target.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

weft_status weft_results_init(struct weft_results *results, const struct weft_job *job)
{
    *results = (struct weft_results){
        .job = job,
        .epoch_count = job->epochs,
        .until = {.until = &job->until},
        .epochs = calloc(job->epochs, sizeof(*results->epochs)),
        .workers = calloc(job->workers, sizeof(*results->workers)),
        .counters = cJSON_CreateObject(),
        .latency = calloc(WEFT_REPORT_KINDS, sizeof(*results->latency)),
    };
    if (results->epochs == NULL || results->workers == NULL || results->counters == NULL ||
        results->latency == NULL) {
        weft_results_fini(results);
        return WEFT_NOMEM;
    }
    return WEFT_OK;
}

void weft_results_fini(struct weft_results *results)
{
    free(results->epochs);
    free(results->workers);
    free(results->latency);
    weft_until_log_fini(&results->until);
    cJSON_Delete(results->counters);
    *results = (struct weft_results){0};
}

/* ---- input ----------------------------------------------------------------------------------- */

static struct weft_results_epoch *epoch_of(struct weft_results *results, const cJSON *message)
{
    double number;
    return weft_json_number_at(message, "epoch", &number) && number >= 1.0 &&
                   number <= results->job->epochs
               ? &results->epochs[(uint32_t)number - 1]
               : NULL;
}

static bool predicts_ratings(const struct weft_results *results)
{
    return results->job->kind->predicts_ratings;
}

static bool counts_topics(const struct weft_results *results)
{
    return results->job->kind->counts_topics;
}

/* Mean over the workers; for perplexities the geometric mean. */
static double train_loss(const struct weft_results *results, const struct weft_results_epoch *epoch)
{
    double mean = epoch->train_loss_sum / results->job->workers;
    return counts_topics(results) ? exp(mean) : mean;
}

static weft_status add_epoch(struct weft_results *results, uint32_t rank, const cJSON *message,
                             uint64_t at_ns)
{
    struct weft_results_epoch *epoch = epoch_of(results, message);
    struct weft_results_worker worker;
    double loss;
    if (epoch == NULL || rank >= results->job->workers ||
        !weft_json_number_at(message, weft_job_train_key(results->job), &loss) ||
        !weft_json_number_at(message, "elements", &worker.elements) ||
        !weft_json_number_at(message, "elements_delivered", &worker.elements_delivered)) {
        return WEFT_DATA;
    }
    epoch->workers_ended++;
    epoch->train_loss_sum += counts_topics(results) ? log(loss) : loss;
    epoch->ended_ns = at_ns;
    results->workers[rank] = worker;
    return WEFT_OK;
}

static weft_status add_test(struct weft_results *results, const cJSON *message)
{
    struct weft_results_epoch *epoch = epoch_of(results, message);
    if (epoch == NULL) {
        return WEFT_DATA;
    }
    epoch->tested = predicts_ratings(results)
                        ? weft_json_number_at(message, "test_rmse", &epoch->test_rmse)
                    : counts_topics(results)
                        ? weft_json_number_at(message, "test_perplexity", &epoch->test_perplexity)
                        : weft_json_number_at(message, "test_logloss", &epoch->test_logloss) &&
                              weft_json_number_at(message, "test_auc", &epoch->test_auc);
    return epoch->tested ? WEFT_OK : WEFT_DATA;
}

/* Of a server with replicas. */
static void add_divergence(struct weft_results *results, const cJSON *message)
{
    const cJSON *shard;
    cJSON_ArrayForEach(shard, cJSON_GetObjectItemCaseSensitive(message, "divergence_max"))
    {
        results->replication.is_given = true;
        results->replication.divergence_max_squares += shard->valuedouble * shard->valuedouble;
    }
}

static weft_status add_done(struct weft_results *results, const cJSON *message)
{
    const cJSON *latency = cJSON_GetObjectItemCaseSensitive(message, "latency");
    const cJSON *steps = cJSON_GetObjectItemCaseSensitive(message, "step_ns");
    if ((latency != NULL && weft_report_unpack_add(latency, results->latency) != WEFT_OK) ||
        (steps != NULL && weft_report_unpack_one_add(steps, &results->step_ns) != WEFT_OK)) {
        return WEFT_DATA;
    }
    add_divergence(results, message);
    return weft_report_add_all(results->counters,
                               cJSON_GetObjectItemCaseSensitive(message, "counters"));
}

weft_status weft_results_add(struct weft_results *results, const struct weft_slot *slot,
                             const cJSON *message, uint64_t at_ns)
{
    const char *event = weft_channel_text(message, "event");
    if (strcmp(event, "epoch") == 0) {
        return add_epoch(results, slot->rank, message, at_ns);
    }
    if (strcmp(event, "test") == 0) {
        return add_test(results, message);
    }
    if (strcmp(event, "stopped") == 0 || strcmp(event, "check") == 0) {
        return weft_until_log_add(&results->until, message, at_ns);
    }
    if (strcmp(event, "done") == 0) {
        return add_done(results, message);
    }
    if (strcmp(event, "ready") == 0) {
        if (strcmp(slot->role, "worker") == 0) {
            results->rows_train = (uint32_t)weft_channel_number(message, "rows_train");
            results->rows_test = (uint32_t)weft_channel_number(message, "rows_test");
            results->features = (uint32_t)weft_channel_number(message, "features");
            results->learning_rate = (float)weft_channel_number(message, "learning_rate");
            results->learning_rate_rows =
                (uint32_t)weft_channel_number(message, "learning_rate_rows");
            results->epochs_before = (uint32_t)weft_channel_number(message, "epoch");
            results->epochs_shown = results->epochs_before;
        }
        return WEFT_OK;
    }
    return WEFT_DATA;
}

/* ---- derived values -------------------------------------------------------------------------- */

static double counter(const struct weft_results *results, const char *name)
{
    return weft_channel_number(results->counters, name);
}

/* Examples trained on in all epochs; the last epoch may be incomplete. */
static double samples(const struct weft_results *results)
{
    const struct weft_until_log *log = &results->until;
    double whole = (double)results->rows_train * (results->epoch_count - results->epochs_before);
    if (log->tested == 0 || log->steps_per_epoch == 0) {
        return whole;
    }
    return (double)results->rows_train * log->checks[log->tested - 1].step / log->steps_per_epoch;
}

/* 1 if nothing was sent. */
static double fraction(double delivered, double promised)
{
    return promised > 0.0 ? delivered / promised : 1.0;
}

static double wall_s(const struct weft_results *results)
{
    const struct weft_results_epoch *last = &results->epochs[results->epoch_count - 1];
    return (double)(last->ended_ns - results->begun_ns) / (double)WEFT_NS_PER_S;
}

static double rate(double samples, double seconds)
{
    return seconds > 0.0 ? samples / seconds : 0.0;
}

/* ---- text output ----------------------------------------------------------------------------- */

static void quality_text(const struct weft_results *results, const struct weft_results_epoch *epoch,
                         char *text, size_t bytes)
{
    if (predicts_ratings(results)) {
        snprintf(text, bytes, "test RMSE %.4f", epoch->test_rmse);
    } else if (counts_topics(results)) {
        snprintf(text, bytes, "test perplexity %.1f", epoch->test_perplexity);
    } else {
        snprintf(text, bytes, "test loss %.4f  AUC %.4f", epoch->test_logloss, epoch->test_auc);
    }
}

static void show_epoch(struct weft_results *results, uint32_t index, FILE *out)
{
    const struct weft_results_epoch *epoch = &results->epochs[index];
    uint64_t from_ns = index > results->epochs_before ? epoch[-1].ended_ns : results->begun_ns;
    double seconds = (double)(epoch->ended_ns - from_ns) / (double)WEFT_NS_PER_S;
    double elements = 0.0;
    double delivered = 0.0;
    for (uint32_t w = 0; w < results->job->workers; w++) {
        elements += results->workers[w].elements;
        delivered += results->workers[w].elements_delivered;
    }
    char quality[64];
    quality_text(results, epoch, quality, sizeof(quality));
    fprintf(out, "epoch %u/%u  train %s %.*f  %s  %9.0f samples/s  delivered %.3f %%\n", index + 1,
            results->job->epochs, counts_topics(results) ? "perplexity" : "loss",
            counts_topics(results) ? 1 : 4, train_loss(results, epoch), quality,
            rate(results->rows_train, seconds), 100.0 * fraction(delivered, elements));
    fflush(out);
}

void weft_results_show_epochs(struct weft_results *results, FILE *out)
{
    while (results->epochs_shown < results->epoch_count) {
        const struct weft_results_epoch *epoch = &results->epochs[results->epochs_shown];
        if (!epoch->tested || epoch->workers_ended < results->job->workers) {
            return;
        }
        show_epoch(results, results->epochs_shown++, out);
    }
}

static void show_latencies(const struct weft_results *results, FILE *out)
{
    fprintf(out, "\n  %-10s %10s %10s %10s %10s\n", "us", "push p50", "push p99", "pull p50",
            "pull p99");
    for (unsigned part = 0; part < WEFT_REPORT_PARTS; part++) {
        fprintf(out, "  %-10s", weft_report_parts[part].name);
        for (unsigned kind = 0; kind < WEFT_REPORT_KINDS; kind++) {
            const struct weft_hist *hist = weft_report_part(&results->latency[kind], part);
            fprintf(out, " %10.1f %10.1f",
                    (double)weft_hist_quantile(hist, 500000) / (double)WEFT_NS_PER_US,
                    (double)weft_hist_quantile(hist, 990000) / (double)WEFT_NS_PER_US);
        }
        fprintf(out, "   %s\n", weft_report_parts[part].meaning);
    }
}

static double compute_waits_s(const struct weft_results *results)
{
    return counter(results, "compute_waits_ns") / (double)WEFT_NS_PER_S;
}

static void show_steps(const struct weft_results *results, FILE *out)
{
    const struct weft_hist *hist = &results->step_ns;
    double ms = (double)WEFT_NS_PER_MS;
    if (weft_until_is_set(&results->job->until)) {
        fprintf(out, "  %-30s %12.3f s   %s\n", "until the last check",
                (double)results->until.training_ns / (double)WEFT_NS_PER_S,
                weft_until_is_met(&results->until) ? "target reached" : "target NOT reached");
    }
    fprintf(out, "  %-30s %12.3f ms  p99 %.3f ms\n", "step time, p50",
            (double)weft_hist_quantile(hist, 500000) / ms,
            (double)weft_hist_quantile(hist, 990000) / ms);
    if (results->job->compute.given != NULL) {
        fprintf(out, "  %-30s %12.3f s   all workers together\n", "waited for --compute",
                compute_waits_s(results));
    }
}

static void show_replication(const struct weft_results *results, FILE *out)
{
    const struct weft_results_replication *r = &results->replication;
    if (!r->is_given) {
        return;
    }
    fprintf(out, "  %-30s %12.4g   bound %.4g\n", "divergence of replicas, max",
            sqrt(r->divergence_max_squares), r->div_max);
    fprintf(out, "  %-30s %12.0f   %.1f MB\n", "transfers to replicas",
            counter(results, "replica_transfers"), counter(results, "replica_bytes") / 1e6);
    fprintf(out, "  %-30s %12u   %.0f acknowledged pushes lost\n", "promotions", r->promotions,
            r->pushes_lost);
}

void weft_results_show(const struct weft_results *results, FILE *out)
{
    const struct weft_results_epoch *last = &results->epochs[results->epoch_count - 1];
    double received = counter(results, "datagrams_received");
    double dropped = counter(results, "injected_drops");
    double seconds = wall_s(results);
    if (predicts_ratings(results)) {
        fprintf(out, "\n  %-30s %12.4f\n", "test RMSE", last->test_rmse);
    } else if (counts_topics(results)) {
        fprintf(out, "\n  %-30s %12.1f\n", "test perplexity", last->test_perplexity);
    } else {
        fprintf(out, "\n  %-30s %12.4f\n", "test AUC", last->test_auc);
        fprintf(out, "  %-30s %12.4f\n", "test log-loss", last->test_logloss);
    }
    fprintf(out, "  %-30s %12.3f s\n", "training time", seconds);
    show_steps(results, out);
    fprintf(out, "  %-30s %12.0f /s\n", "samples", rate(samples(results), seconds));
    fprintf(out, "  %-30s %12.3f %%\n", "delivered",
            100.0 * fraction(counter(results, "elements_delivered"), counter(results, "elements")));
    fprintf(out, "  %-30s %12.0f\n", "messages", counter(results, "messages"));
    fprintf(out, "  %-30s %12.0f\n", "of these incomplete", counter(results, "messages_short"));
    fprintf(out, "  %-30s %12.0f\n", "datagrams received", received);
    fprintf(out, "  %-30s %12.0f   %.3f %%\n", "dropped by --inject-loss", dropped,
            received > 0.0 ? 100.0 * dropped / received : 0.0);
    fprintf(out, "  %-30s %12.0f\n", "packets retransmitted",
            counter(results, "retransmitted_packets"));
    show_replication(results, out);
    show_latencies(results, out);
    fflush(out);
}

/* ---- JSON output ----------------------------------------------------------------------------- */

void weft_results_add_rate(cJSON *object, float rate, uint32_t sample_rows)
{
    weft_json_add_float(object, "learning_rate", rate);
    cJSON_AddNumberToObject(object, "learning_rate_rows", sample_rows);
}

static void add_settings(const struct weft_results *results, cJSON *report)
{
    const struct weft_job *job = results->job;
    char mode[32];
    weft_job_mode_text(job->mode, mode, sizeof(mode));
    cJSON_AddStringToObject(report, "weft_version", WEFT_VERSION);
    cJSON_AddStringToObject(report, "model", job->kind->name);
    if (job->kind->has_factors) {
        cJSON_AddNumberToObject(report, "factors", job->settings.factors);
        weft_json_add_float(report, "init_scale", job->settings.init_scale);
    }
    if (counts_topics(results)) {
        weft_json_add_float(report, "alpha", job->settings.alpha);
        weft_json_add_float(report, "beta", job->settings.beta);
    }
    weft_json_add_float(report, "l2", job->settings.l2);
    cJSON_AddStringToObject(report, "dataset", results->dataset);
    cJSON_AddStringToObject(report, "format", job->format);
    cJSON_AddNumberToObject(report, "rows_train", results->rows_train);
    cJSON_AddNumberToObject(report, "rows_test", results->rows_test);
    cJSON_AddNumberToObject(report, "features", results->features);
    cJSON_AddNumberToObject(report, "workers", job->workers);
    cJSON_AddNumberToObject(report, "servers", results->servers);
    cJSON_AddNumberToObject(report, "shards_per_server", results->shards_per_server);
    cJSON_AddStringToObject(report, "mode", mode);
    cJSON_AddStringToObject(report, "security", weft_security_mode_name(job->security.mode));
    cJSON_AddStringToObject(report, "transport", weft_driver_kind_name(job->transport.kind));
    cJSON_AddStringToObject(report, "progress_thread",
                            weft_job_progress_threads[job->progress_thread]);
    cJSON_AddNumberToObject(report, "loss_bound", (double)job->bound_ppm / WEFT_PPM);
    cJSON_AddNumberToObject(report, "injected_loss", (double)job->inject_loss_ppm / WEFT_PPM);
    cJSON_AddNumberToObject(report, "inject_seed", (double)job->inject_seed);
    cJSON_AddStringToObject(report, "average",
                            counts_topics(results) ? "none" : weft_job_averages[job->average]);
    cJSON_AddStringToObject(report, "value_type", weft_job_value_types[job->value_type]);
    cJSON_AddStringToObject(report, "pull_value_type", weft_job_value_types[job->pull_value_type]);
    cJSON_AddStringToObject(report, "optimizer", weft_job_optimizers[job->optimizer]);
    weft_results_add_rate(report, results->learning_rate, results->learning_rate_rows);
    cJSON_AddNumberToObject(report, "batch", job->batch_rows);
    cJSON_AddNumberToObject(report, "seed", (double)job->seed);
    cJSON_AddNumberToObject(report, "epochs", results->epoch_count);
}

static void add_quality(const struct weft_results *results, cJSON *report)
{
    const struct weft_results_epoch *last = &results->epochs[results->epoch_count - 1];
    bool ratings = predicts_ratings(results), topics = counts_topics(results);
    cJSON *train = cJSON_AddArrayToObject(report, weft_job_train_key(results->job));
    cJSON *test = cJSON_AddArrayToObject(report, ratings  ? "epoch_test_rmse"
                                                 : topics ? "epoch_test_perplexity"
                                                          : "epoch_test_auc");
    for (uint32_t e = 0; e < results->epoch_count; e++) {
        const struct weft_results_epoch *epoch = &results->epochs[e];
        if (e < results->epochs_before) {
            cJSON_AddItemToArray(train, cJSON_CreateNull());
            cJSON_AddItemToArray(test, cJSON_CreateNull());
            continue;
        }
        cJSON_AddItemToArray(train, cJSON_CreateNumber(train_loss(results, epoch)));
        cJSON_AddItemToArray(test, cJSON_CreateNumber(ratings  ? epoch->test_rmse
                                                      : topics ? epoch->test_perplexity
                                                               : epoch->test_auc));
    }
    if (ratings) {
        cJSON_AddNumberToObject(report, "test_rmse", last->test_rmse);
        return;
    }
    if (topics) {
        cJSON_AddNumberToObject(report, "test_perplexity", last->test_perplexity);
        return;
    }
    cJSON_AddNumberToObject(report, "test_logloss", last->test_logloss);
    cJSON_AddNumberToObject(report, "test_auc", last->test_auc);
}

static void add_traffic(const struct weft_results *results, cJSON *report)
{
    static const char *const names[] = {"datagrams_received", "injected_drops", "messages",
                                        "messages_short", "retransmitted_packets"};
    double seconds = wall_s(results);
    cJSON_AddNumberToObject(report, "wall_s", seconds);
    cJSON_AddNumberToObject(report, "samples_per_s", rate(samples(results), seconds));
    cJSON_AddNumberToObject(
        report, "delivered_fraction",
        fraction(counter(results, "elements_delivered"), counter(results, "elements")));
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(names); i++) {
        cJSON_AddNumberToObject(report, names[i], counter(results, names[i]));
    }
}

static cJSON *replication_report(const struct weft_results *results)
{
    const struct weft_results_replication *r = &results->replication;
    if (!r->is_given) {
        return cJSON_CreateNull();
    }
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "div_max", r->div_max);
    cJSON_AddNumberToObject(object, "divergence_max", sqrt(r->divergence_max_squares));
    cJSON_AddNumberToObject(object, "transfers", counter(results, "replica_transfers"));
    cJSON_AddNumberToObject(object, "bytes", counter(results, "replica_bytes"));
    cJSON_AddNumberToObject(object, "rows", counter(results, "replica_rows"));
    cJSON_AddNumberToObject(object, "holds", counter(results, "replica_reply_delays"));
    cJSON_AddNumberToObject(object, "promotions", r->promotions);
    cJSON_AddNumberToObject(object, "pushes_lost", r->pushes_lost);
    return object;
}

cJSON *weft_results_report(const struct weft_results *results)
{
    const struct weft_ps_latencies *const latencies[] = {&results->latency[0],
                                                         &results->latency[1]};
    cJSON *report = cJSON_CreateObject();
    add_settings(results, report);
    add_quality(results, report);
    add_traffic(results, report);
    (void)weft_json_add_times(report, "step_ms", &results->step_ns,
                              WEFT_TIMES_COUNT | WEFT_TIMES_MEAN | WEFT_TIMES_P50 | WEFT_TIMES_P90 |
                                  WEFT_TIMES_P99 | WEFT_TIMES_MAX,
                              (double)WEFT_NS_PER_MS);
    cJSON_AddItemToObject(report, "until", weft_until_log_report(&results->until));
    cJSON_AddItemToObject(report, "compute",
                          weft_compute_report(&results->job->compute, compute_waits_s(results)));
    cJSON_AddItemToObject(report, "latency_us", weft_report_quantiles_us(latencies));
    cJSON_AddItemToObject(report, "replicas", replication_report(results));
    cJSON_AddItemToObject(report, "counters", cJSON_Duplicate(results->counters, true));
    return report;
}

/* A pipe that nobody reads is an error: opening it must not wait. */
static int open_stream(const char *path)
{
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    }
    return fd;
}

/* Takes fd. */
static weft_status write_stream(int fd, const char *text)
{
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction before;
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    (void)sigaction(SIGPIPE, &ignore, &before);
    bool good = file != NULL && fprintf(file, "%s\n", text) >= 0 && fflush(file) == 0;
    int why = errno;
    if (file != NULL) {
        (void)fclose(file);
    } else if (fd >= 0) {
        (void)close(fd);
    }
    (void)sigaction(SIGPIPE, &before, NULL);
    errno = why;
    return good ? WEFT_OK : WEFT_IO;
}

static weft_status replace_file(const char *path, const char *text)
{
    char *neighbour = malloc(strlen(path) + sizeof(".new.4294967295"));
    if (neighbour == NULL) {
        return WEFT_IO;
    }
    sprintf(neighbour, "%s.new.%u", path, (unsigned)getpid());
    FILE *file = weft_output_open(neighbour);
    bool good = false;
    if (file != NULL) {
        /* After a power failure an empty report could be mistaken for a run without results: sync
         * it. */
        good = fprintf(file, "%s\n", text) >= 0 && fflush(file) == 0 && fsync(fileno(file)) == 0 &&
               rename(neighbour, path) == 0;
        int why = errno;
        (void)fclose(file);
        if (!good) {
            unlink(neighbour);
        }
        errno = why;
    }
    free(neighbour);
    return good ? WEFT_OK : WEFT_IO;
}

weft_status weft_results_write(const char *path, const char *text)
{
    struct stat about;
    if (stat(path, &about) == 0) {
        int fd = weft_output_given(path);
        if (fd >= 0 || !S_ISREG(about.st_mode)) { /* must not be replaced by a file */
            (void)fflush(stdout);
            return write_stream(fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : open_stream(path), text);
        }
    }
    char *target = NULL; /* a link is kept */
    weft_status status = weft_file_target(path, &target);
    status = status == WEFT_OK ? replace_file(target, text) : status;
    int why = errno;
    free(target);
    errno = why;
    return status;
}
