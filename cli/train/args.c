#include "cli/train/args.h"

#include <string.h>

enum { DIM_MAX_DEFAULT = 64 /* default of `weft server` */ };

void weft_train_args_path(const struct weft_job *job, struct weft_args *args)
{
    weft_args_add(args, "--inject-loss=%.6f", (double)job->inject_loss_ppm / WEFT_PPM);
    weft_args_add(args, "--inject-seed=%llu", (unsigned long long)job->inject_seed);
    weft_args_add(args, "--busy-poll-us=%u", job->busy_poll_us);
}

void weft_train_args_transport(const struct weft_transport_options *transport,
                               const struct weft_security *security, struct weft_args *args)
{
    weft_args_add(args, "--security=%s", weft_security_mode_name(security->mode));
    weft_args_add(args, "--transport=%s", weft_driver_kind_name(transport->kind));
    if (transport->tcp_cc != NULL) {
        weft_args_add(args, "--tcp-cc=%s", transport->tcp_cc);
    }
    weft_args_add(args, "--tcp-rto-min=%u", transport->tcp_rto_min_ms);
    weft_args_add(args, "--peer-timeout=%u", transport->peer_timeout_s);
}

/* Floats per row of the table. */
static uint32_t job_dim(const struct weft_job *job)
{
    return weft_ml_model_dim(job->kind, job->settings.factors);
}

static void add_checkpoints(const struct weft_checkpoint_options *options, struct weft_args *args)
{
    if (options->directory == NULL) {
        return;
    }
    weft_args_add(args, "--checkpoint=%s", options->directory);
    if (options->every != NULL) {
        weft_args_add(args, "--checkpoint-every=%s", options->every);
    }
    weft_args_add(args, "--checkpoint-full-every=%u", options->full_every);
    weft_args_add(args, "--checkpoint-keep=%u", options->keep);
    weft_args_add(args, "--checkpoint-memory=%u", options->memory_mib);
    if (options->restore) {
        weft_args_add(args, "--restore");
    }
}

static void add_scheduler(const struct weft_job *job, struct weft_args *args)
{
    const char *host = job->scheduler_address.host;
    if (job->scheduler != NULL && job->scheduler_address.port != 0) { /* else from `weft run` */
        weft_args_add(args, strchr(host, ':') != NULL ? "--scheduler=[%s]:%u" : "--scheduler=%s:%u",
                      host, job->scheduler_address.port);
    }
    if (job->scheduler != NULL) {
        weft_args_add(args, "--tau-max=%u", job->tau_max);
    }
}

void weft_train_args_server(const struct weft_job *job,
                            const struct weft_checkpoint_options *checkpoints,
                            struct weft_args *args)
{
    if (job_dim(job) > DIM_MAX_DEFAULT) {
        weft_args_add(args, "--dim-max=%u", job_dim(job));
    }
    add_checkpoints(checkpoints, args);
    add_scheduler(job, args);
    if (job->hot_rows > 0) {
        weft_args_add(args, "--hot-rows=%u", job->hot_rows);
    }
    weft_args_add(args, "--active-window-us=%u", job->recording.window_us);
}

void weft_train_args_worker(const struct weft_job *job, const char *data_path,
                            struct weft_args *args)
{
    char mode[32];
    weft_job_mode_text(job->mode, mode, sizeof(mode));
    weft_args_add(args, "--keepalive-ms=%u", job->keepalive_ms);
    weft_args_add(args, "--model=%s", job->kind->name);
    if (job->kind->has_factors) {
        weft_args_add(args, "--factors=%u", job->settings.factors);
    }
    if (job->kind->has_factors && !job->kind->counts_topics) {
        weft_args_add(args, "--init-scale=%.9g", (double)job->settings.init_scale);
    }
    if (job->kind->counts_topics) {
        weft_args_add(args, "--alpha=%.9g", (double)job->settings.alpha);
        weft_args_add(args, "--beta=%.9g", (double)job->settings.beta);
    } else {
        weft_args_add(args, "--l2=%.9g", (double)job->settings.l2);
    }
    weft_args_add(args, "--data=%s", data_path);
    weft_args_add(args, "--format=%s", job->format);
    weft_args_add(args, "--mode=%s", mode);
    weft_args_add(args, "--loss-bound=%.6f", (double)job->bound_ppm / WEFT_PPM);
    weft_args_add(args, "--key-caching=%s", weft_key_caching_names[job->no_key_caching]);
    weft_args_add(args, "--average=%s", weft_job_averages[job->average]);
    weft_args_add(args, "--value-type=%s", weft_job_value_types[job->value_type]);
    weft_args_add(args, "--pull-value-type=%s", weft_job_value_types[job->pull_value_type]);
    if (!job->kind->counts_topics) {
        weft_args_add(args, "--optimizer=%s", weft_job_optimizers[job->optimizer]);
    }
    weft_args_add(args, "--epochs=%u", job->epochs);
    weft_args_add(args, "--batch=%u", job->batch_rows);
    if (!job->kind->counts_topics && !weft_job_searches_rate(job)) {
        weft_args_add(args, "--lr=%.9g", (double)weft_job_rate(job));
    }
    weft_args_add(args, "--seed=%llu", (unsigned long long)job->seed);
    weft_args_add(args, "--progress-thread=%s", weft_job_progress_threads[job->progress_thread]);
    if (job->cut_through > 0) {
        weft_args_add(args, "--cut-through=%u", job->cut_through);
    }
    if (job->hot_rows > 0) {
        weft_args_add(args, "--hot-rows=%u", job->hot_rows);
    }
    add_scheduler(job, args);
    weft_until_add(&job->until, args);
    weft_compute_add(&job->compute, args);
}
