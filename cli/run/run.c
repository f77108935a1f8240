/* `weft run`: runs a job on this machine. It starts the coordinator, the servers, and W copies of a
 * command, restarts failed processes up to a limit, and stops all processes at the end.
 *
 * The phases: coordinator ready; servers ready; workers started. When all workers have exited with
 * status 0, servers and coordinator are told to stop. A slot's port is chosen at its first start
 * and kept, so that a restarted process has the address of its predecessor.
 *
 * It does not interpret the command, which reads its role and rank from the environment
 * (docs/RUN.md section 1). */
#define _GNU_SOURCE
#include "cli/node_options.h"
#include "cli/run/internal.h"

#include "cli/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Delay before a restart. */
static const uint64_t restart_pause_ns = 50 * WEFT_NS_PER_MS;
enum { RESTART_DOUBLINGS = 5 };

static const uint64_t grace_ns = 3 * WEFT_NS_PER_S;

bool weft_run_servers_have(const struct weft_run_options *options, const char *name)
{
    size_t bytes = strlen(name);
    for (uint32_t i = 0; i < options->server_args.count; i++) {
        const char *text = options->server_args.list[i];
        if (strncmp(text, "--", 2) == 0 && strncmp(text + 2, name, bytes) == 0 &&
            (text[2 + bytes] == '=' || text[2 + bytes] == '\0')) {
            return true;
        }
    }
    return false;
}

/* Copy the key's text, which children get in their environment. */
static weft_status copy_key(struct run *run)
{
    int fd;
    weft_status status = weft_security_key_pipe(&run->security, &fd);
    if (status == WEFT_OK && fd > 0) {
        ssize_t bytes = (ssize_t)sizeof(run->key) - 1;
        status = read(fd, run->key, (size_t)bytes) == bytes ? WEFT_OK : WEFT_IO;
        (void)close(fd);
    }
    return status;
}

static weft_status prepare(struct run *run)
{
    const char *temporary = getenv("TMPDIR");
    uint64_t number;
    /* Check variables that only the workers use. */
    if (weft_launch_number("WEFT_RECONNECT_S", 0, 86400, &number, &run->error) != WEFT_OK ||
        weft_launch_number("WEFT_REPLAY_BYTES", 0, UINT64_C(1) << 40, &number, &run->error) !=
            WEFT_OK) {
        return WEFT_IO;
    }
    /* All processes are children of this one, so a new key is as good as a given one. */
    if (weft_security_load(&run->security, true, &run->error) != WEFT_OK) {
        return WEFT_IO;
    }
    if (copy_key(run) != WEFT_OK) {
        return weft_fail(&run->error, WEFT_IO, "cannot pass on the job key: %s", strerror(errno));
    }
    int used = snprintf(run->folder, sizeof(run->folder), "%s/weft-run-XXXXXX",
                        temporary != NULL && temporary[0] == '/' ? temporary : "/tmp");
    if (used >= (int)sizeof(run->folder) || mkdtemp(run->folder) == NULL) {
        return weft_fail(&run->error, WEFT_IO, "cannot create the directory %s: %s", run->folder,
                         strerror(errno));
    }
    return WEFT_OK;
}

int weft_run(const struct weft_run_options *options)
{
    static struct run run; /* large, and there is one */
    run = (struct run){
        .options = options,
        .security = options->security,
        .replays = options->durability == WEFT_RUN_DURABILITY_UNSAID
                       ? weft_run_servers_have(options, "checkpoint")
                       : options->durability == WEFT_RUN_DURABILITY_REPLAY,
    };
    int result = WEFT_EXIT_FAILED;
    if (prepare(&run) != WEFT_OK) {
        (void)weft_cli_fail("run", "%s", run.error.text);
    } else {
        const struct weft_supervisor_policy policy = {.grace_ns = grace_ns,
                                                      .restarts = options->restarts,
                                                      .restart_pause_ns = restart_pause_ns,
                                                      .doublings = RESTART_DOUBLINGS,
                                                      .takes_signals = true,
                                                      .folder = run.folder};
        const uint32_t servers = options->servers * (1 + options->replicas);
        if (weft_supervisor_init(&run.supervisor, &policy,
                                 1 + servers + options->workers + options->aggregators +
                                     run_has_own_scheduler(&run),
                                 options->servers) == WEFT_OK) {
            result = weft_run_all(&run);
        } else {
            (void)weft_cli_fail("run", "out of memory or descriptors: %s", strerror(errno));
        }
        weft_supervisor_fini(&run.supervisor); /* its watchdog removes the directory */
    }
    weft_job_key_wipe(run.key, sizeof(run.key));
    weft_security_fini(&run.security);
    return result;
}

/* ---- the command line ------------------------------------------------------------------------ */

const char *const weft_run_durabilities[] = {"none", "replay", NULL};
const char *const weft_run_server_deaths[] = {"restart", "promote", NULL};

static int check(const struct weft_command *command, const struct weft_run_options *options)
{
    if (options->durability == WEFT_RUN_DURABILITY_REPLAY &&
        !weft_run_servers_have(options, "checkpoint")) {
        return weft_options_usage(command, "--durability replay requires checkpoints: "
                                           "--server-options \"--checkpoint DIR\"");
    }
    if (options->worker_args.count == 0) {
        return weft_options_usage(command, "the command is missing: weft run -n W -- CMD args");
    }
    if (options->servers * options->shards_per_server > WEFT_JOB_SHARDS_MAX) {
        return weft_options_usage(
            command, "%u servers of %u shards are too many; the maximum is %d shards",
            options->servers, options->shards_per_server, (int)WEFT_JOB_SHARDS_MAX);
    }
    int status = weft_metrics_check(command, &options->metrics);
    if (status == WEFT_OPTIONS_RUN) {
        status =
            weft_run_check_replicas(command, options, weft_run_servers_have(options, "checkpoint"));
    }
    if (status == WEFT_OPTIONS_RUN) {
        status = weft_run_check_aggregators(command, options);
    }
    if (status == WEFT_OPTIONS_RUN) {
        status = weft_run_check_scheduler(command, options);
    }
    if (status == WEFT_OPTIONS_RUN) {
        status = weft_transport_options_check(command, &options->transport, 0, NULL);
    }
    return status != WEFT_OPTIONS_RUN ? status : weft_security_check(command, &options->security);
}

/* The command follows "--". Returns the number of arguments before it. */
static int split(struct weft_run_options *run, int argc, char **argv)
{
    int count = 1;
    while (count < argc && strcmp(argv[count], "--") != 0) {
        count++;
    }
    weft_args_add_all(&run->worker_args, argv + (count < argc ? count + 1 : argc));
    return count;
}

/* Arguments separated by blanks. */
static const char *parse_words(const char *text, void *value)
{
    struct weft_args *args = value;
    weft_args_fini(args);
    for (text += strspn(text, " "); *text != '\0'; text += strspn(text, " ")) {
        size_t bytes = strcspn(text, " ");
        weft_args_add(args, "%.*s", (int)bytes, text);
        text += bytes;
    }
    return args->count > 0 ? NULL : "a non-empty string";
}

int weft_cli_run(int argc, char **argv)
{
    struct weft_run_options run = WEFT_RUN_DEFAULTS;
    const struct weft_option options[] = {
        {"workers", "N", "copies of CMD; -n N is the same", WEFT_OPTION_U32, .value = &run.workers,
         .min = 1, .max = WEFT_JOB_WORKERS_MAX, .letter = 'n'},
        {"servers", "N", "processes of `weft server`; -s N is the same", WEFT_OPTION_U32,
         .value = &run.servers, .min = 1, .max = WEFT_JOB_SHARDS_MAX, .letter = 's'},
        {"shards-per-server", "N", "shards of each server, each a thread and a port",
         WEFT_OPTION_U32, .value = &run.shards_per_server, .min = 1, .max = WEFT_JOB_SHARDS_MAX},
        {"restart", "N", "restart a failed process, at most N times each; 0 = the run ends when\n"
                         "a process dies", WEFT_OPTION_U32, .value = &run.restarts, .max = 1000000},
        WEFT_DEATHS_OPTION(&run.on_death),
        {"durability", "WHAT",
         "with --restart: what happens to pushes that are not in a killed\n"
         "server's last checkpoint. replay = they are restored from the server's\n"
         "journal, and workers resend those that the journal lacks; none = they\n"
         "are lost",
         WEFT_OPTION_CHOICE, .value = &run.durability, .choices = weft_run_durabilities,
         .fallback = "replay if --server-options has --checkpoint, else none"},
        {"replay-bytes", "N",
         "memory of each worker for copies of pushes: at least four times the\n"
         "bytes that it pushes between two checkpoints",
         WEFT_OPTION_U64, .value = &run.replay_bytes,
         .min = 65536, .max = UINT64_C(1) << 40, .fallback = "WEFT_REPLAY_BYTES, else 256 MiB"},
        WEFT_REPLICA_ROWS(&run),
        {"lease-ms", "MS", "lease duration, as for `weft coordinator`", WEFT_OPTION_U32,
         .value = &run.lease_ms,
         .min = 100, .max = 3600000},
        WEFT_METRICS_OPTIONS(&run.metrics),
        {"server-options", "WORDS",
         "options for every `weft server`, in one argument, separated by spaces:\n"
         "\"--tables 8 --checkpoint /data/run\"", WEFT_OPTION_CUSTOM, .value = &run.server_args,
         .parse = parse_words, .fallback = "none"},
        {"aggregators", "N", "processes of `weft aggregate`, which sum the pushes of workers on their\n"
         "way to the servers. Without a scheduler the coordinator assigns one to\n"
         "each worker (WEFT_VIA=coordinator)", WEFT_OPTION_U32, .value = &run.aggregators,
         .max = WEFT_SHARD_AGGREGATORS_MAX},
        {"aggregator-options", "WORDS", "for every `weft aggregate`, as --server-options",
         WEFT_OPTION_CUSTOM, .value = &run.aggregator_args, .parse = parse_words, .fallback = "none"},
        {"scheduler", "on|off|HOST:PORT",
         "the job's transfer scheduler: on = start `weft scheduler` as a process\n"
         "of the run, HOST:PORT = use a running one, off = none, even if\n"
         "WEFT_SCHEDULER is set. With a scheduler workers get its address in\n"
         "WEFT_SCHEDULER, and the addresses of all aggregators in WEFT_VIA",
         WEFT_OPTION_STRING, .value = &run.scheduler, .fallback = "WEFT_SCHEDULER, else none"},
        {"scheduler-options", "WORDS", "for `weft scheduler`, as --server-options", WEFT_OPTION_CUSTOM,
         .value = &run.scheduler_args, .parse = parse_words, .fallback = "none"},
        {"job", "NAME", "name of the job, passed to all processes in WEFT_JOB",
         WEFT_OPTION_STRING, .value = &run.job,
         .fallback = "none"},
        WEFT_TRANSPORT_ROWS(&run.transport),
        WEFT_KEY_CACHING_ROW(&run.no_key_caching),
        WEFT_SECURITY_ROWS(&run.security),
        {0},
    };
    const struct weft_command command = {
        .name = "run",
        .summary = "start servers and your own worker program; restart failed processes",
        .arguments = "-- CMD [ARGUMENTS]",
        .description =
        "CMD is any program that reads its role and rank from the environment: `weft worker`, or\n"
        "your own program (docs/RUN.md). Output of the processes is printed line by line,\n"
        "prefixed with their names. A restarted process gets the rank of its predecessor. The run\n"
        "ends with status 0 when every worker has exited with status 0; Ctrl-C or SIGTERM ends it\n"
        "earlier.",
        .example = "  weft run -n 4 -s 2 -- weft worker --epochs 2\n"
                   "  weft run -n 8 -s 2 --restart 3 -- python3 train.py",
        .options = options,
    };
    int status = weft_options_parse(&command, split(&run, argc, argv), argv);
    if (status == WEFT_OPTIONS_RUN) {
        status = weft_run_settle_scheduler(&command, &run);
    }
    if (status == WEFT_OPTIONS_RUN) {
        status = check(&command, &run);
    }
    if (status == WEFT_OPTIONS_RUN) {
        status = weft_transport_options_find_cc(&command, &run.transport);
    }
    if (status == WEFT_OPTIONS_RUN) {
        status = weft_run(&run);
    }
    weft_args_fini(&run.server_args);
    weft_args_fini(&run.aggregator_args);
    weft_args_fini(&run.scheduler_args);
    weft_args_fini(&run.worker_args);
    return status;
}
