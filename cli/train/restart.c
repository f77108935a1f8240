/* `weft train --restart` and --replicas: restarts processes that die, or promotes replicas, using
 * the coordinator and the servers' journals, as `weft run` does. With --restart it writes no
 * report: the sums of a report require that all workers run from start to end, and the counters of
 * a killed process are lost. With --replicas only servers may die, and the report says how many
 * did. */
#include "cli/train/args.h"
#include "cli/train/internal.h"

int weft_train_restart_check(const struct weft_command *command, const struct train *train)
{
    const struct {
        const char *name;
        bool given;
    } alone[] = {
        {"report", train->report != NULL && train->restarts > 0},
        {"json", train->json && train->restarts > 0},
        {"quiet", train->quiet},
        {"lab", train->hosts.lab != NULL},
        {"port", train->port != 0},
        {"trace", train->job.trace != NULL},
        {"records", train->job.recording.path != NULL},
        {"until-loss, --until-perplexity or --until-auc", weft_until_is_set(&train->job.until)},
    };
    const struct weft_run_options run = {.replicas = train->replicas,
                                         .div_max = train->div_max,
                                         .on_server_death = train->on_server_death};
    int status = weft_run_check_replicas(command, &run, train->checkpoints.directory != NULL);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    if (train->replicas > 0 && train->job.kind->counts_topics &&
        (train->div_max > 0 || train->job.mode.kind == WEFT_JOB_BSP)) {
        return weft_options_usage(command,
                                  "--replicas with --model lda requires --div-max 0, and --mode "
                                  "ssp or asp: otherwise a promotion loses counts");
    }
    if (train->restarts == 0 && train->replicas == 0) {
        return train->durability == WEFT_RUN_DURABILITY_UNSAID
                   ? WEFT_OPTIONS_RUN
                   : weft_options_usage(command, "--durability requires --restart");
    }
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(alone); i++) {
        if (alone[i].given) {
            return weft_options_usage(command,
                                      "--%s cannot be used with --%s: it requires a run without "
                                      "deaths",
                                      alone[i].name, train->restarts > 0 ? "restart" : "replicas");
        }
    }
    if (train->checkpoints.directory == NULL && train->replicas == 0) {
        return weft_options_usage(command,
                                  "--restart requires --checkpoint DIR: a restarted server "
                                  "continues from a checkpoint");
    }
    return WEFT_OPTIONS_RUN;
}

static void add_worker(const struct train *train, struct weft_args *args)
{
    const struct weft_job *job = &train->job;
    weft_args_add(args, "/proc/self/exe");
    weft_args_add(args, "worker");
    weft_train_args_path(job, args);
    weft_train_args_transport(&job->transport, &job->security, args);
    weft_train_args_worker(job, train->data_path, args);
    if (job->via != NULL && train->aggregators == 0) { /* else WEFT_VIA */
        weft_args_add(args, "--via=%s", job->via);
    }
    if (train->has_reconnect) {
        weft_args_add(args, "--reconnect-s=%u", job->reconnect_s);
    }
    if (train->has_replay) {
        weft_args_add(args, "--replay-bytes=%llu", (unsigned long long)job->replay_bytes);
    }
    if (job->save != NULL) {
        weft_args_add(args, "--save=%s", job->save); /* only rank 0 saves */
    }
}

int weft_train_restart(struct train *train)
{
    struct weft_run_options run = WEFT_RUN_DEFAULTS;
    run.workers = train->job.workers;
    run.servers = train->servers;
    run.shards_per_server = train->shards_per_server;
    run.restarts = train->restarts;
    run.replicas = train->replicas;
    run.div_max = train->div_max;
    run.on_server_death = train->on_server_death;
    run.durability = train->durability;
    run.transport = train->job.transport;
    run.security = train->job.security;
    run.metrics = train->metrics_options;
    run.aggregators = train->aggregators;
    run.scheduler = train->job.scheduler;
    if (train->has_own_scheduler) {
        weft_args_add(&run.scheduler_args, "--read-credits=%u", train->read_credits);
        weft_args_add(&run.scheduler_args, "--cut-through=%u", train->job.cut_through);
    }
    struct weft_run_watch watch;
    if (train->report != NULL || train->json) {
        weft_train_follow(train, &watch);
        run.watch = &watch;
    }
    const struct weft_launch_address scheduler = train->job.scheduler_address;
    train->job.scheduler_address.port = 0; /* the run tells its processes */
    weft_train_args_path(&train->job, &run.server_args);
    weft_train_args_server(&train->job, &train->checkpoints, &run.server_args);
    if (train->aggregators > 0) {
        weft_train_args_path(&train->job, &run.aggregator_args);
        if (train->job.cut_through > 0) {
            weft_args_add(&run.aggregator_args, "--cut-through=%u", train->job.cut_through);
        }
        if (train->flush_age_us > 0) {
            weft_args_add(&run.aggregator_args, "--flush-age-us=%u", train->flush_age_us);
        }
    }
    add_worker(train, &run.worker_args);
    train->job.scheduler_address = scheduler;
    int status = weft_run(&run);
    if (status == WEFT_EXIT_OK && run.watch != NULL) {
        status = weft_train_follow_end(train, &watch);
    }
    weft_args_fini(&run.server_args);
    weft_args_fini(&run.aggregator_args);
    weft_args_fini(&run.scheduler_args);
    weft_args_fini(&run.worker_args);
    return status;
}
