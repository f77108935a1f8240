#include "cli/train/args.h"

enum { DIM_MAX_DEFAULT = 64 /* of `weft server` */ };

void weft_train_words_path(const struct weft_job *job, struct weft_arguments *arguments)
{
    weft_arguments_add(arguments, "--inject-loss=%.6f", (double)job->inject_loss_ppm / WEFT_PPM);
    weft_arguments_add(arguments, "--inject-seed=%llu", (unsigned long long)job->inject_seed);
    weft_arguments_add(arguments, "--busy-poll-us=%u", job->busy_poll_us);
}

void weft_train_words_carrier(const struct weft_transport_options *transport,
                              const struct weft_security *security,
                              struct weft_arguments *arguments)
{
    weft_arguments_add(arguments, "--security=%s", weft_security_mode_name(security->mode));
    weft_arguments_add(arguments, "--transport=%s", weft_driver_kind_name(transport->kind));
    if (transport->tcp_cc != NULL) {
        weft_arguments_add(arguments, "--tcp-cc=%s", transport->tcp_cc);
    }
    weft_arguments_add(arguments, "--tcp-rto-min=%u", transport->tcp_rto_min_ms);
    weft_arguments_add(arguments, "--peer-timeout=%u", transport->peer_timeout_s);
}

/* Floats in a row of the table. */
static uint32_t job_dim(const struct weft_job *job)
{
    return job->kind->has_factors ? 1 + job->settings.factors : 1;
}

static void add_checkpoints(const struct weft_checkpoint_options *options,
                            struct weft_arguments *arguments)
{
    if (options->directory == NULL) {
        return;
    }
    weft_arguments_add(arguments, "--checkpoint=%s", options->directory);
    if (options->every != NULL) {
        weft_arguments_add(arguments, "--checkpoint-every=%s", options->every);
    }
    weft_arguments_add(arguments, "--checkpoint-whole-every=%u", options->whole_every);
    weft_arguments_add(arguments, "--checkpoint-keep=%u", options->keep);
    weft_arguments_add(arguments, "--checkpoint-memory=%u", options->memory_mib);
    if (options->restore) {
        weft_arguments_add(arguments, "--restore");
    }
}

void weft_train_words_server(const struct weft_job *job,
                             const struct weft_checkpoint_options *checkpoints,
                             struct weft_arguments *arguments)
{
    if (job_dim(job) > DIM_MAX_DEFAULT) {
        weft_arguments_add(arguments, "--dim-max=%u", job_dim(job));
    }
    add_checkpoints(checkpoints, arguments);
    weft_arguments_add(arguments, "--active-window-us=%u", job->recording.window_us);
}

void weft_train_words_worker(const struct weft_job *job, const char *data_path,
                             struct weft_arguments *arguments)
{
    char mode[32];
    weft_job_mode_text(job->mode, mode, sizeof(mode));
    weft_arguments_add(arguments, "--keepalive-ms=%u", job->keepalive_ms);
    weft_arguments_add(arguments, "--model=%s", job->kind->name);
    if (job->kind->has_factors) {
        weft_arguments_add(arguments, "--factors=%u", job->settings.factors);
        weft_arguments_add(arguments, "--init-scale=%.9g", (double)job->settings.init_scale);
    }
    weft_arguments_add(arguments, "--l2=%.9g", (double)job->settings.l2);
    weft_arguments_add(arguments, "--data=%s", data_path);
    weft_arguments_add(arguments, "--format=%s", job->format);
    weft_arguments_add(arguments, "--mode=%s", mode);
    weft_arguments_add(arguments, "--loss-bound=%.6f", (double)job->bound_ppm / WEFT_PPM);
    weft_arguments_add(arguments, "--average=%s", weft_job_average_name(job->contributors));
    weft_arguments_add(arguments, "--optimizer=%s", weft_job_optimizer_name(job->optimizer));
    weft_arguments_add(arguments, "--epochs=%u", job->epochs);
    weft_arguments_add(arguments, "--batch=%u", job->batch_rows);
    if (!weft_job_searches_rate(job)) {
        weft_arguments_add(arguments, "--lr=%.9g", (double)weft_job_rate(job));
    }
    weft_arguments_add(arguments, "--seed=%llu", (unsigned long long)job->seed);
    weft_arguments_add(arguments, "--drive=%s", job->engine ? "engine" : "caller");
    weft_until_add(&job->until, arguments);
}
