/* `weft train`: runs a whole job on this machine. It starts servers and workers as processes, shows
 * progress, and writes the report.
 *
 * The phases: servers ready; workers ready (data read, table declared); "go" to all workers, the
 * time of the run begins; epochs; after all workers have finished the last epoch, "test" to worker
 * 0; workers done; servers are told to stop and report their counters; results are printed, and the
 * report is written. A process that exits unexpectedly ends the run. With --restart or --replicas
 * these phases do not apply: see restart.c. */
#define _GNU_SOURCE
#include "base/utf8.h"
#include "cli/node_options.h"
#include "cli/output.h"
#include "cli/train/internal.h"
#include "cli/verbs.h"
#include "file/target.h"
#include "ps/aggregate.h"
#include "ps/hot_rows.h"
#include "io/clock.h"
#include "node/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* A server that does not become ready, or does not report its counters, within this time hangs. */
#define SERVER_PATIENCE_NS (120 * WEFT_NS_PER_S)

/* Wait after the first error for further errors, which may have the actual cause. */
#define DIAGNOSIS_NS (300 * WEFT_NS_PER_MS)

#define SCHEDULER_PATIENCE_NS (2 * WEFT_NS_PER_S)

#define STOP_GRACE_NS (2 * WEFT_NS_PER_S)

enum { TRAIN_PEER_TIMEOUT_S = 60 };

/* ---- the run --------------------------------------------------------------------------------- */

/* Append the address of shard s, on a process, to the list. */
static void add_address(const struct train *train, char list[WEFT_JOB_SHARDS_MAX * 24], uint32_t s,
                        uint32_t process, uint16_t port)
{
    const size_t used = strlen(list);
    char host[WEFT_LAB_ADDRESS_BYTES];
    weft_train_hosts_address(&train->hosts, process, host);
    snprintf(list + used, WEFT_JOB_SHARDS_MAX * 24 - used, "%s%s:%u", s > 0 ? "," : "", host, port);
}

static weft_status start_aggregators(struct train *train)
{
    weft_status status = WEFT_OK;
    for (uint32_t a = 0; status == WEFT_OK && a < train->aggregators; a++) {
        status = weft_train_start_aggregator(train, a);
    }
    if (status == WEFT_OK) {
        status = weft_train_await(train, &train->aggregators_ready, train->aggregators,
                                  SERVER_PATIENCE_NS, "aggregators were ready");
    }
    for (uint32_t a = 0; status == WEFT_OK && a < train->aggregators; a++) {
        for (uint32_t s = 0; s < train->servers * train->shards_per_server; s++) {
            add_address(train, train->via[a], s, train_aggregator_process(train, a),
                        train->aggregator_ports[a][s]);
        }
    }
    return status;
}

/* Stop aggregators before servers, whose replies they may still need. */
static weft_status end_aggregators(struct train *train)
{
    for (uint32_t a = 0; a < train->aggregators; a++) {
        struct weft_slot *slot = &train->supervisor.slots[train_aggregator_process(train, a)];
        if (slot->is_running) {
            kill(slot->pid, SIGTERM);
        }
    }
    return weft_train_await(train, &train->aggregators_ended, train->aggregators,
                            SERVER_PATIENCE_NS, "aggregators reported their counters");
}

/* Start the scheduler before the processes that need its address. */
static weft_status start_scheduler(struct train *train)
{
    if (!train->has_own_scheduler) {
        return WEFT_OK;
    }
    if (weft_train_start_scheduler(train) != WEFT_OK) {
        return WEFT_IO;
    }
    char host[WEFT_LAB_ADDRESS_BYTES];
    struct weft_launch_address *address = &train->job.scheduler_address;
    weft_train_hosts_address(&train->hosts, train_scheduler_process(train), host);
    snprintf(address->host, sizeof(address->host), "%s", host);
    return weft_train_await(train, &train->schedulers_ready, 1, SERVER_PATIENCE_NS,
                            "schedulers were ready");
}

static weft_status start_all(struct train *train)
{
    if (start_scheduler(train) != WEFT_OK) {
        return WEFT_IO;
    }
    for (uint32_t s = 0; s < train->servers; s++) {
        if (weft_train_start_server(train, s) != WEFT_OK) {
            return WEFT_IO;
        }
    }
    weft_status status = weft_train_await(train, &train->servers_ready, train->servers,
                                          SERVER_PATIENCE_NS, "servers were ready");
    if (status != WEFT_OK) {
        return status;
    }
    for (uint32_t s = 0; s < train->servers * train->shards_per_server; s++) {
        add_address(train, train->addresses, s, s / train->shards_per_server, train->ports[s]);
    }
    fprintf(train->progress, "shards: %s\n", train->addresses);
    status = start_aggregators(train);
    if (status != WEFT_OK) {
        return status;
    }
    for (uint32_t w = 0; w < train->job.workers; w++) {
        if (weft_train_start_worker(train, w) != WEFT_OK) {
            return WEFT_IO;
        }
    }
    /* No time limit: a large file takes long to read, and a worker that fails reports it. */
    return weft_train_await(train, &train->workers_ready, train->job.workers, WEFT_NEVER, "");
}

/* Train from check to check (until.h). */
static weft_status train_until(struct train *train)
{
    struct weft_until_log *log = &train->results.until;
    uint32_t workers = train->job.workers;
    weft_status status = WEFT_OK;
    do {
        weft_until_log_go(log, weft_clock_now_ns());
        weft_train_send(train, "worker", UINT32_MAX, "go");
        status = weft_train_await(train, &log->stopped, workers, WEFT_NEVER, "");
        if (status == WEFT_OK) {
            weft_train_send(train, "worker", 0, "test");
            status = weft_train_await(train, &log->tested, log->count, WEFT_NEVER, "");
        }
    } while (status == WEFT_OK && !weft_until_is_over(log));
    if (status != WEFT_OK) {
        return status;
    }
    train->results.epoch_count = log->epoch;
    weft_train_send(train, "worker", UINT32_MAX, "stop");
    return weft_train_await(train, &train->workers_done, workers, WEFT_NEVER, "");
}

static weft_status train_all(struct train *train)
{
    uint32_t workers = train->job.workers;
    train->results.begun_ns = weft_clock_now_ns();
    fprintf(train->progress, "training on %u rows, testing on %u; %u features\n",
            train->results.rows_train, train->results.rows_test, train->results.features);
    if (train->results.learning_rate_rows > 0) {
        fprintf(train->progress,
                "learning rate %.4g, found on a sample of %u rows; override with --lr\n",
                (double)train->results.learning_rate, train->results.learning_rate_rows);
    }
    fflush(train->progress);
    if (weft_until_is_set(&train->job.until)) {
        return train_until(train);
    }
    weft_train_send(train, "worker", UINT32_MAX, "go");
    weft_status status =
        weft_train_await(train, &train->last_epoch_workers, workers, WEFT_NEVER, "");
    if (status == WEFT_OK) {
        weft_train_send(train, "worker", 0, "test");
        status = weft_train_await(train, &train->workers_done, workers, WEFT_NEVER, "");
    }
    return status;
}

static weft_status end_servers(struct train *train)
{
    for (uint32_t s = 0; s < train->servers; s++) {
        if (train->supervisor.slots[s].is_running) {
            kill(train->supervisor.slots[s].pid, SIGTERM);
        }
    }
    /* The final checkpoint takes as long as the disk needs. */
    uint64_t patience_ns = train->checkpoints.directory != NULL ? WEFT_NEVER : SERVER_PATIENCE_NS;
    return weft_train_await(train, &train->servers_done, train->servers, patience_ns,
                            "servers reported their counters");
}

/* Nothing depends on the scheduler any more: do not wait for one that hangs. */
static void end_scheduler(struct train *train)
{
    uint64_t until_ns = weft_time_add(weft_clock_now_ns(), SCHEDULER_PATIENCE_NS);
    const struct weft_slot *slot = train_scheduler(train);
    if (!train->has_own_scheduler || !slot->is_running) {
        return;
    }
    kill(slot->pid, SIGTERM);
    for (uint64_t now_ns;
         slot->is_running && !slot->is_done && (now_ns = weft_clock_now_ns()) < until_ns;) {
        (void)weft_train_next_event(train, until_ns - now_ns);
    }
}

/* For the report: null without a scheduler. Its statistics are null if it is external or has
 * died. */
static cJSON *scheduler_report(struct train *train)
{
    const struct weft_launch_address *address = &train->job.scheduler_address;
    if (train->job.scheduler == NULL) {
        return cJSON_CreateNull();
    }
    char text[sizeof(address->host) + 8];
    cJSON *object = cJSON_CreateObject();
    snprintf(text, sizeof(text), strchr(address->host, ':') != NULL ? "[%s]:%u" : "%s:%u",
             address->host, address->port);
    cJSON_AddStringToObject(object, "address", text);
    cJSON_AddNumberToObject(object, "tau_max", train->job.tau_max);
    cJSON_AddNumberToObject(object, "read_credits", train->read_credits);
    cJSON_AddItemToObject(object, "planned",
                          train->scheduler_report != NULL ? train->scheduler_report
                                                          : cJSON_CreateNull());
    train->scheduler_report = NULL;
    return object;
}

/* Print the most specific reason for the failure: a killed process explains the errors of others,
 * and a reported error explains an exit. */
static void print_failure(struct train *train)
{
    uint64_t until_ns = weft_clock_now_ns() + DIAGNOSIS_NS;
    bool more = true; /* also process events that are already queued, however late it is */
    while (train->interrupted == 0 && train->killed == NULL && more) {
        uint64_t now_ns = weft_clock_now_ns();
        more = weft_train_next_event(train, now_ns < until_ns ? until_ns - now_ns : 0);
    }
    const struct weft_slot *slot = train->killed != NULL ? train->killed : train->ended;
    char ending[128];
    if (train->interrupted != 0) {
        weft_supervisor_say(&train->supervisor, "weft train: interrupted by signal %d (%s)\n",
                            train->interrupted, strsignal(train->interrupted));
    } else if (slot != NULL && (train->killed != NULL || train->error.text[0] == '\0')) {
        weft_slot_ending(slot, ending, sizeof(ending));
        weft_supervisor_say(&train->supervisor, "weft train: %s %u (pid %d) %s\n", slot->role,
                            slot->rank, (int)slot->pid, ending);
    } else {
        weft_supervisor_say(&train->supervisor, "weft train: %s\n", train->error.text);
    }
}

static int report(struct train *train)
{
    weft_results_show(&train->results, train->progress);
    cJSON *object = weft_results_report(&train->results);
    cJSON_AddItemToObject(object, "scheduler", scheduler_report(train));
    cJSON_AddItemToObject(object, "lab", weft_train_hosts_report(&train->hosts));
    char *text = cJSON_Print(object);
    cJSON_Delete(object);
    if (text == NULL) {
        return weft_cli_fail("train", "out of memory for the report");
    }
    weft_utf8_repair(text);
    int result = WEFT_EXIT_OK;
    if (train->json || (train->report != NULL && weft_output_given(train->report) >= 0)) {
        /* The report follows it. */
        result = weft_train_progress_finish(train) ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
    }
    if (train->report != NULL && weft_results_write(train->report, text) != WEFT_OK) {
        fprintf(stderr, "weft train: cannot write %s: %s\n", train->report, strerror(errno));
        result = WEFT_EXIT_FAILED;
    } else if (train->report != NULL) {
        fprintf(train->progress, "\nreport: %s\n", train->report);
    }
    if (train->json) {
        if (puts(text) < 0 || fflush(stdout) != 0) {
            fprintf(stderr, "weft train: cannot write the report to standard output: %s\n",
                    strerror(errno));
            result = WEFT_EXIT_FAILED;
        }
    }
    cJSON_free(text);
    if (train->unsaved.text[0] != '\0') {
        fprintf(stderr, "weft train: the model was not saved: %s\n", train->unsaved.text);
        result = WEFT_EXIT_FAILED;
    }
    return result;
}

/* Make the database after all processes have ended, for whatever reason: records are most useful
 * after a failure. */
static bool make_records(struct train *train)
{
    const struct weft_recording_spools spools = {.servers = train->servers,
                                                 .shards_per_server = train->shards_per_server,
                                                 .workers = train->job.workers,
                                                 .aggregators = train->aggregators};
    const char *path = train->job.recording.path;
    struct weft_records_sum sum;
    if (path == NULL) {
        return true;
    }
    if (!weft_recording_merge(path, &spools, weft_output_log("train", false), &sum)) {
        return false;
    }
    fprintf(train->progress, "\nrecords: %s: %llu RPCs, %llu records dropped\n", path,
            (unsigned long long)sum.rpcs, (unsigned long long)sum.dropped);
    return true;
}

static weft_status start_metrics(struct train *train)
{
    weft_status status =
        weft_train_metrics_start(&train->metrics, &train->metrics_options, &train->error);
    if (status == WEFT_OK && train->metrics.metrics.http != NULL) {
        fprintf(train->progress, "metrics: %s\n", train->metrics.metrics.url);
        fflush(train->progress);
    }
    return status;
}

static int run(struct train *train)
{
    weft_status status = start_metrics(train);
    status = status == WEFT_OK ? start_all(train) : status;
    if (status == WEFT_OK) {
        status = train_all(train);
    }
    if (status == WEFT_OK) {
        status = end_aggregators(train);
    }
    if (status == WEFT_OK) {
        status = end_servers(train);
    }
    if (status == WEFT_OK) {
        end_scheduler(train);
    } else {
        print_failure(train);
    }
    weft_train_metrics_stop(&train->metrics);
    weft_train_stop(train);
    bool recorded = make_records(train);
    if (status != WEFT_OK) {
        weft_supervisor_say(
            &train->supervisor,
            "weft train: stopped all processes of the run; no report was written\n");
    }
    int result = status == WEFT_OK ? report(train) : WEFT_EXIT_FAILED;
    bool shown = weft_train_progress_finish(train);
    const int lost = weft_supervisor_lost(&train->supervisor);
    if (lost != 0 && train->interrupted == 0) {
        fprintf(stderr, "weft train: cannot write all output: %s\n", strerror(lost));
    }
    return recorded && shown && lost == 0 ? result : WEFT_EXIT_FAILED;
}

/* ---- before the run -------------------------------------------------------------------------- */

static bool can_be_written(const char *path, bool may_be_stream)
{
    struct weft_error error;
    if (weft_output_check(path, may_be_stream, &error) == WEFT_OK) {
        return true;
    }
    fprintf(stderr, "weft train: %s\n", error.text);
    return false;
}

/* False: the output would replace the data. */
static bool is_new(const struct train *train, const char *path)
{
    const char *data = train->data_path;
    return weft_output_distinct("train", path, &data, 1);
}

/* The name of the file without its directory and compression suffix. */
static void name_dataset(struct train *train)
{
    const char *slash = strrchr(train->data_path, '/');
    const char *name = slash != NULL ? slash + 1 : train->data_path;
    char *out = train->results.dataset;
    snprintf(out, sizeof(train->results.dataset), "%.*s", (int)sizeof(train->results.dataset) - 1,
             name);
    char *dot = strrchr(out, '.');
    if (dot != NULL && dot != out && (strcmp(dot, ".zst") == 0 || strcmp(dot, ".gz") == 0)) {
        *dot = '\0';
    }
}

static bool begin_results(struct train *train)
{
    if (weft_results_init(&train->results, &train->job) != WEFT_OK) {
        return false;
    }
    train->results.servers = train->servers;
    train->results.shards_per_server = train->shards_per_server;
    name_dataset(train);
    return true;
}

static int run_with_deaths(struct train *train)
{
    if (!begin_results(train)) {
        return weft_cli_fail("train", "out of memory");
    }
    int status = weft_train_restart(train);
    if (status == WEFT_EXIT_OK && (train->report != NULL || train->json)) {
        status = report(train);
    }
    weft_results_fini(&train->results);
    return status;
}

static int prepare_and_run(struct train *train)
{
    const char *records = train->job.recording.path;
    struct weft_error *error = &train->error;
    if (weft_job_locate(&train->job, error, train->data_path) != WEFT_OK) {
        return weft_cli_fail("train", "%s", error->text);
    }
    if (!can_be_written(train->report, true) || !can_be_written(train->job.save, false)) {
        return WEFT_EXIT_FAILED;
    }
    if (!is_new(train, train->report) || !is_new(train, train->job.save) ||
        !is_new(train, records)) {
        return WEFT_EXIT_FAILED;
    }
    if (records != NULL && weft_records_check_path(records, true, error) != WEFT_OK) {
        return weft_cli_fail("train", "%s", error->text);
    }
    if (!weft_output_replaceable("train", records)) {
        return WEFT_EXIT_FAILED;
    }
    if (train->restarts > 0 || train->replicas > 0) {
        return run_with_deaths(train);
    }
    /* All processes are children of this one, so a new key is as good as a given one. */
    if (weft_security_load(&train->job.security, true, error) != WEFT_OK ||
        weft_train_hosts_find(&train->hosts, train->servers, train->job.workers, error) !=
            WEFT_OK) {
        return weft_cli_fail("train", "%s", error->text);
    }
    if (!begin_results(train)) {
        return weft_cli_fail("train", "out of memory");
    }
    const struct weft_supervisor_policy policy = {
        .grace_ns = STOP_GRACE_NS,
        .takes_signals = true,
        .fork = train->hosts.lab != NULL ? weft_train_hosts_fork : NULL,
        .context = &train->hosts};
    int result = WEFT_EXIT_FAILED;
    const uint32_t processes = train_scheduler_process(train) + train->has_own_scheduler;
    if (weft_supervisor_init(&train->supervisor, &policy, processes, 0) == WEFT_OK) {
        train->output = &train->supervisor;
        result = run(train);
    } else {
        fprintf(stderr, "weft train: out of memory or descriptors: %s\n", strerror(errno));
    }
    train->output = NULL;
    weft_supervisor_fini(&train->supervisor);
    weft_results_fini(&train->results);
    return result;
}

static int check_scheduler(const struct weft_command *command, struct train *train)
{
    struct weft_job *job = &train->job;
    if (job->scheduler == NULL || strcmp(job->scheduler, "off") == 0) {
        job->scheduler = NULL;
        return WEFT_OPTIONS_RUN;
    }
    train->has_own_scheduler = strcmp(job->scheduler, "on") == 0;
    return train->has_own_scheduler
               ? WEFT_OPTIONS_RUN
               : weft_scheduler_address(command, job->scheduler, &job->scheduler_address);
}

static int check_read_credits(const struct weft_command *command, const struct train *train)
{
    if (train->read_credits > 0 && !train->has_own_scheduler) {
        return weft_options_usage(command, "--read-credits requires --scheduler on; give it to "
                                           "`weft scheduler` if that runs already");
    }
    if (train->read_credits > 0 && train->job.mode.kind == WEFT_JOB_BSP) {
        return weft_options_usage(command, "--read-credits requires --mode ssp or asp; in bsp all "
                                           "workers read the same model");
    }
    if (train->read_credits > train->job.workers) {
        return weft_options_usage(command,
                                  "--read-credits %u is more than --workers %u, and would have no "
                                  "effect",
                                  train->read_credits, train->job.workers);
    }
    return WEFT_OPTIONS_RUN;
}

/* True if both are written to one file, as paths or through links. */
static bool is_same(const char *path, const char *other)
{
    if (path == NULL || other == NULL) {
        return false;
    }
    char *target = NULL, *other_target = NULL;
    bool known = weft_file_target(path, &target) == WEFT_OK &&
                 weft_file_target(other, &other_target) == WEFT_OK;
    bool same = strcmp(known ? target : path, known ? other_target : other) == 0;
    free(target);
    free(other_target);
    return same;
}

static int check(const struct weft_command *command, struct train *train)
{
    uint32_t shards = train->servers * train->shards_per_server;
    if (shards > WEFT_JOB_SHARDS_MAX) {
        return weft_options_usage(
            command, "%u servers of %u shards are too many; the maximum is %d shards",
            train->servers, train->shards_per_server, (int)WEFT_JOB_SHARDS_MAX);
    }
    if (train->port != 0 && train->port + shards - 1 > UINT16_MAX) {
        return weft_options_usage(command, "--port %u leaves too few ports for %u shards",
                                  train->port, shards);
    }
    if (train->checkpoints.restore && train->checkpoints.directory == NULL) {
        return weft_options_usage(command, "--resume requires --checkpoint DIR");
    }
    int status = check_scheduler(command, train);
    (void)unsetenv("WEFT_SCHEDULER"); /* workers would read it, servers would not */
    status = status == WEFT_OPTIONS_RUN ? check_read_credits(command, train) : status;
    status = status == WEFT_OPTIONS_RUN ? weft_train_restart_check(command, train) : status;
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    if (is_same(train->report, train->job.save) ||
        is_same(train->report, train->job.recording.path) ||
        is_same(train->job.save, train->job.recording.path)) {
        return weft_options_usage(command, "--report, --save and --records need a file each");
    }
    bool via_on = train->job.via != NULL && strcmp(train->job.via, "on") == 0;
    train->aggregators = via_on ? train->aggregators_wanted : 0;
    if (train->aggregators_wanted != 1 && !via_on) {
        return weft_options_usage(command, "--aggregators requires --via on");
    }
    if (train->job.via != NULL && !via_on &&
        !weft_worker_via_parse(train->job.via, (struct weft_launch_address[WEFT_JOB_SHARDS_MAX]){0},
                               shards)) {
        return weft_options_usage(command,
                                  "--via \"%.80s\" is neither on nor the HOST:PORT of `weft "
                                  "aggregate`, or a list of one for each of the %u shards",
                                  train->job.via, shards);
    }
    train->has_reconnect = train->job.reconnect_s != UINT32_MAX;
    train->has_replay = train->job.replay_bytes != UINT64_MAX;
    status = weft_job_settle(command, &train->job);
    /* Workers in a lab get no --metrics (start.c). */
    bool in_lab = train->hosts.lab != NULL;
    if (status == WEFT_OPTIONS_RUN) {
        status = weft_metrics_check(command, in_lab ? NULL : &train->metrics_options);
    }
    if (status == WEFT_OPTIONS_RUN) {
        status = weft_security_check(command, &train->job.security);
    }
    return status != WEFT_OPTIONS_RUN ? status : weft_job_check(command, &train->job);
}

int weft_cli_train(int argc, char **argv)
{
    static struct train train; /* large, and there is one */
    train = (struct train){.job = WEFT_JOB_DEFAULTS, .servers = 2, .shards_per_server = 1,
                           .durability = WEFT_RUN_DURABILITY_UNSAID, .aggregators_wanted = 1,
                           .checkpoints = WEFT_CHECKPOINT_DEFAULTS};
    /* A child that died is detected at once; one that does not reply may be waiting for a CPU on a
     * busy machine. */
    train.job.transport.peer_timeout_s = weft_launch_peer_timeout_s(TRAIN_PEER_TIMEOUT_S);
    const struct weft_option options[] = {
        WEFT_JOB_OPTIONS(&train.job),
        WEFT_RECORDING_WINDOW_ROW(&train.job.recording),
        WEFT_OPTIONS_HEADING("security"),
        WEFT_SECURITY_LAB_ROWS(&train.job.security),
        WEFT_OPTIONS_HEADING("process"),
        {"servers", "N", "number of server processes", WEFT_OPTION_U32, .value = &train.servers, .min = 1,
         .max = WEFT_JOB_SHARDS_MAX},
        {"shards-per-server", "N", "shards of each server; each is a thread with its own port",
         WEFT_OPTION_U32, .value = &train.shards_per_server, .min = 1, .max = WEFT_JOB_SHARDS_MAX},
        {"port", "P", "port of the first server's first shard; the others, server by server,\n"
         "use the ports after it; 0 = any",
         WEFT_OPTION_U32, .value = &train.port, .max = UINT16_MAX},
        {"scheduler", "WHAT",
         "transfer scheduler, which orders the workers' updates: on = start\n"
         "`weft scheduler` as a process of the job; HOST:PORT = use a running\n"
         "one with the same job key; off (docs/SCHEDULER.md)",
         WEFT_OPTION_STRING, .value = &train.job.scheduler, .fallback = "off"},
        {"read-credits", "N",
         "with --scheduler on, in ssp and asp: at most N workers are between\n"
         "reading the model and the end of their update; 0 = workers do not wait",
         WEFT_OPTION_U32, .value = &train.read_credits, .max = WEFT_JOB_WORKERS_MAX},
        WEFT_CHECKPOINT_ROWS(&train.checkpoints),
        {"resume", NULL, "continue from the newest complete checkpoint in the directory of\n"
                         "--checkpoint; --workers, --batch and --seed must be the same as in the\n"
                         "run that wrote it, --servers may differ", WEFT_OPTION_FLAG,
         .value = &train.checkpoints.restore},
        {"restart", "N", "restart processes that die, each up to N times; requires --checkpoint\n"
                         "and excludes --report. 0 = the run ends when a process dies",
                         WEFT_OPTION_U32,
         .value = &train.restarts, .max = 1000000},
        WEFT_REPLICA_ROWS(&train),
        {"durability", "WHAT",
         "with --restart: what happens to pushes received after a failed\n"
         "server's last checkpoint. replay = they are applied again from a\n"
         "journal that the server keeps in a directory in $TMPDIR; none = they\n"
         "are lost",
         WEFT_OPTION_CHOICE, .value = &train.durability, .choices = weft_run_durabilities,
         .fallback = "replay"},
        {"via", "on|HOST:PORT", "aggregate pushes on the path to the servers: on = start `weft\n"
                                "aggregate` as a process of the run, HOST:PORT = use a running one",
                                WEFT_OPTION_STRING,
         .value = &train.job.via, .fallback = "WEFT_VIA, else workers push to the servers"},
        {"aggregators", "N", "processes started by --via on; worker w uses number w modulo N",
         WEFT_OPTION_U32,
         .value = &train.aggregators_wanted, .min = 1, .max = TRAIN_AGGREGATORS_MAX},
        {"flush-age-us", "US",
         "with --via on: send a sum at the latest this long after its first push,\n"
         "even if pushes of some workers are missing. With --scheduler the limit\n"
         "is at least 300 ms, and a sum waits for pushes that are arriving",
         WEFT_OPTION_U32, .value = &train.flush_age_us, .max = 10000000, .fallback = "2000"},
        {"cut-through", "N",
         "with --via and --scheduler: cut updates into up to N pieces, which the\n"
         "aggregator adds and sends on one by one, before the rest of the update\n"
         "has arrived (docs/SCHEDULER.md). Dense updates below 128 KiB for each\n"
         "shard and small sparse ones are not cut. All processes of the job have\n"
         "the same N. 0 and 1 = do not cut",
         WEFT_OPTION_U32, .value = &train.job.cut_through, .max = WEFT_PS_PIECES_MAX},
        {"hot-rows", "N",
         "with --via: send only hot rows, the N rows of each table per shard with\n"
         "the most updates, through the aggregator, and all others to the servers.\n"
         "The servers select the hot rows every 10 s. 0 = send whole pushes\n"
         "through the aggregator",
         WEFT_OPTION_U32, .value = &train.job.hot_rows, .max = WEFT_HOT_ROWS_MAX},
        {"lab", "NAME", "run the servers on the first hosts of this emulated cluster (`weft lab\n"
         "up`), the workers on the following ones, wrapping around to the first host",
         WEFT_OPTION_STRING, .value = &train.hosts.lab, .fallback = "loopback"},
        WEFT_METRICS_OPTIONS(&train.metrics_options),
        {"report", "FILE", "write the JSON report to FILE (docs/REPORT.md)", WEFT_OPTION_STRING,
         .value = &train.report},
        {"json", NULL, "print the report, and nothing else, on standard output",
         WEFT_OPTION_FLAG, .value = &train.json},
        {"quiet", NULL, "show no progress", WEFT_OPTION_FLAG, .value = &train.quiet},
        {0},
    };
    const struct weft_command command = {
        .name = "train",
        .summary = "train a model on this machine, with servers and workers as separate processes",
        .description =
        "Every worker and every server is a separate process. They communicate over UDP on\n"
        "loopback, or between the emulated hosts of `weft lab`. Packets are authenticated with\n"
        "the job key: --key-file, else the environment variable WEFT_JOB_KEY, else a key\n"
        "generated for this run. Each push and each pull reply is accepted with up to\n"
        "--loss-bound of its elements missing, by default a tenth (lda: none). Loopback almost\n"
        "never loses packets, so use --inject-loss to see an effect.\n"
        "\n"
        "The run prints a line per epoch, then results and latencies. Ctrl-C stops all processes;\n"
        "with --checkpoint it waits up to two minutes for the servers' last checkpoint, and a\n"
        "second Ctrl-C ends the wait.\n"
        "If a process dies, the run ends; if it wrote checkpoints (--checkpoint), a later run can\n"
        "continue from them (--resume). With --restart, processes that die are restarted instead,\n"
        "and --report cannot be used.",
        .example = "  weft train --workers 4 --servers 2 --batch 1024 --loss-bound 0.10 \\\n"
                   "      --inject-loss 0.02 --report report.json\n"
                   "  weft train --workers 4 --servers 2 --restart 3 --checkpoint ckpt",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status == WEFT_OPTIONS_RUN) {
        status = check(&command, &train);
    }
    if (status == WEFT_OPTIONS_RUN) {
        status = weft_transport_options_find_cc(&command, &train.job.transport);
    }
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    if (!weft_train_progress_open(&train)) {
        return weft_cli_fail("train", "cannot show progress: %s", strerror(errno));
    }
    status = prepare_and_run(&train);
    (void)fclose(train.progress);
    weft_security_fini(&train.job.security);
    return status;
}
