/* `weft run`: a job on this machine. Starts the coordinator, the servers, and W copies of a command;
 * starts again what dies, as often as allowed; ends everything together.
 *
 * The order of things: scheduler ready; servers ready; workers started. When all workers have ended
 * with status 0, servers and scheduler are told to end. Ports are chosen at the first start and kept
 * at the next ones, so that a process in a dead one's place is found where that was.
 *
 * It knows nothing of what the command does: that learns from the environment who it is
 * (docs/RUN.md section 1).
 */
#define _GNU_SOURCE
#include "cli/node_options.h"
#include "cli/run/internal.h"

#include "cli/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The key's text, to be handed to children in their environment. */
static weft_status copy_key(struct run *run)
{
    int ends[2];
    if (run->security.key == NULL) {
        return WEFT_OK;
    }
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return WEFT_IO;
    }
    weft_status status = weft_job_key_write_fd(run->security.key, ends[1]);
    if (status == WEFT_OK &&
        read(ends[0], run->key, sizeof(run->key) - 1) != (ssize_t)sizeof(run->key) - 1) {
        status = WEFT_IO;
    }
    (void)close(ends[0]);
    (void)close(ends[1]);
    return status;
}

static int prepare_and_run(struct run *run)
{
    struct weft_crypto_error error = {.text = ""};
    const char *temporary = getenv("TMPDIR");
    /* All processes are our children, so a key that nobody else ever sees is as good as any. */
    if (weft_security_load(&run->security, true, &error) != WEFT_OK) {
        fprintf(stderr, "weft run: %s\n", error.text);
        return WEFT_EXIT_FAILED;
    }
    if (copy_key(run) != WEFT_OK) {
        fprintf(stderr, "weft run: cannot hand on the job key: %s\n", strerror(errno));
        return WEFT_EXIT_FAILED;
    }
    int used = snprintf(run->folder, sizeof(run->folder), "%s/weft-run-XXXXXX",
                        temporary != NULL && temporary[0] == '/' ? temporary : "/tmp");
    if (used >= (int)sizeof(run->folder) || mkdtemp(run->folder) == NULL) {
        fprintf(stderr, "weft run: cannot make the folder %s: %s\n", run->folder, strerror(errno));
        return WEFT_EXIT_FAILED;
    }
    int result = WEFT_EXIT_FAILED;
    if (weft_squad_init(&run->squad, 1 + run->servers + run->workers, run->servers, run->folder) ==
        WEFT_OK) {
        result = weft_run_all(run);
    } else {
        fprintf(stderr, "weft run: out of memory or descriptors: %s\n", strerror(errno));
    }
    weft_squad_fini(&run->squad); /* its keeper removes the folder */
    weft_arguments_fini(&run->scheduler_words);
    for (uint32_t s = 0; s < run->servers; s++) {
        weft_arguments_fini(&run->server_words[s]);
    }
    weft_job_key_wipe(run->key, sizeof(run->key));
    return result;
}

/* ---- the command line ------------------------------------------------------------------------ */

static const char *parse_durability(const char *text, void *value)
{
    bool replay = strcmp(text, "replay") == 0;
    if (!replay && strcmp(text, "none") != 0) {
        return "none or replay";
    }
    *(enum durability *)value = replay ? DURABILITY_REPLAY : DURABILITY_NONE;
    return NULL;
}

/* What workers heed, and passes through. */
static int check_variable(const char *name, uint64_t max)
{
    const char *text = getenv(name);
    char *end;
    if (text == NULL || text[0] == '\0') {
        return WEFT_OPTIONS_RUN;
    }
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value > max) {
        fprintf(stderr, "weft run: %s is \"%.40s\"; it must be a number from 0 to %llu\n", name, text,
                (unsigned long long)max);
        return WEFT_EXIT_FAILED;
    }
    return WEFT_OPTIONS_RUN;
}

static int check_environment(void)
{
    int status = check_variable("WEFT_RECONNECT_S", 86400);
    return status != WEFT_OPTIONS_RUN ? status
                                      : check_variable("WEFT_REPLAY_BYTES", UINT64_C(1) << 40);
}

static int check(const struct weft_command *command, struct run *run)
{
    run->durability_said = run->durability != DURABILITY_UNSAID;
    if (run->durability == DURABILITY_REPLAY && !run_has_checkpoints(run)) {
        return weft_options_usage(command, "--durability replay goes with checkpoints: "
                                           "--server-options \"--checkpoint DIR\"");
    }
    if (run->durability == DURABILITY_UNSAID) {
        run->durability = run_has_checkpoints(run) ? DURABILITY_REPLAY : DURABILITY_NONE;
    }
    if (run->words == NULL || run->words[0] == NULL) {
        return weft_options_usage(command, "the command is missing: weft run -n W -- CMD args");
    }
    if (run->servers * run->shards_per_server > WEFT_JOB_SHARDS_MAX) {
        return weft_options_usage(
            command, "%u servers of %u shards are too many; at most %d shards", run->servers,
            run->shards_per_server, (int)WEFT_JOB_SHARDS_MAX);
    }
    uint32_t blanks = 0;
    for (const char *at = run->server_options; at != NULL && *at != '\0'; at++) {
        blanks += *at == ' ';
    }
    if (blanks >= SERVER_OPTIONS_MAX) {
        return weft_options_usage(command, "--server-options has more than %d words",
                                  (int)SERVER_OPTIONS_MAX);
    }
    int status = weft_metrics_check(command, &run->metrics_options);
    if (status == WEFT_OPTIONS_RUN) {
        status = weft_transport_options_check(command, &run->transport, 0, NULL);
    }
    status = status == WEFT_OPTIONS_RUN ? check_environment() : status;
    return status != WEFT_OPTIONS_RUN ? status : weft_security_check(command, &run->security);
}

/* The words behind "--" are the command; -n and -s, which everybody expects, as the parser spells
 * them. Returns the words before. */
static int split(struct run *run, int argc, char **argv)
{
    static char workers[] = "--workers";
    static char servers[] = "--servers";
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            run->words = argv + i + 1;
            return i;
        }
        if (strcmp(argv[i], "-n") == 0 || strcmp(argv[i], "-s") == 0) {
            argv[i] = argv[i][1] == 'n' ? workers : servers;
        }
    }
    return argc;
}

int weft_cli_run(int argc, char **argv)
{
    static struct run run; /* large, and there is one */
    run = (struct run){.workers = 1,
                       .servers = 1,
                       .shards_per_server = 1,
                       .lease_ms = 5000,
                       .replay_bytes = UINT64_MAX,
                       .transport = WEFT_TRANSPORT_DEFAULTS,
                       .security = WEFT_SECURITY_DEFAULTS};
    const struct weft_option options[] = {
        {"workers", "N", "copies of CMD; -n N is the same", WEFT_OPTION_U32, .value = &run.workers,
         .min = 1, .max = WEFT_JOB_WORKERS_MAX},
        {"servers", "N", "processes of `weft server`; -s N is the same", WEFT_OPTION_U32,
         .value = &run.servers, .min = 1, .max = WEFT_JOB_SHARDS_MAX},
        {"shards-per-server", "N", "shards of each server, each a thread and a port",
         WEFT_OPTION_U32, .value = &run.shards_per_server, .min = 1, .max = WEFT_JOB_SHARDS_MAX},
        {"restart", "N", "start a process that died again, so often for each; 0 = the first death\n"
         "ends the run", WEFT_OPTION_U32, .value = &run.restarts, .max = 1000000},
        WEFT_DEATHS_OPTION(&run.on_death),
        {"durability", "WHAT", "with --restart, of pushes that a killed server's last checkpoint lacks:\n"
         "replay = the server keeps a journal of them, and workers keep and send\n"
         "again what that lacks; none = they are lost",
         WEFT_OPTION_CUSTOM, .value = &run.durability, .parse = parse_durability,
         .fallback = "replay when --server-options has --checkpoint, else none"},
        {"replay-bytes", "N", "memory of each worker for kept pushes: at least four times what it\n"
         "pushes from one checkpoint to the next", WEFT_OPTION_U64, .value = &run.replay_bytes,
         .min = 65536, .max = UINT64_C(1) << 40, .fallback = "WEFT_REPLAY_BYTES, else 256 MiB"},
        {"lease-ms", "MS", "as for `weft scheduler`", WEFT_OPTION_U32, .value = &run.lease_ms,
         .min = 100, .max = 3600000},
        WEFT_METRICS_OPTIONS(&run.metrics_options),
        {"server-options", "WORDS", "for every `weft server`, in one argument with blanks between them:\n"
         "\"--tables 8 --checkpoint /data/run\"", WEFT_OPTION_STRING, .value = &run.server_options,
         .fallback = "none"},
        {"job", "NAME", "WEFT_JOB of all processes", WEFT_OPTION_STRING, .value = &run.job,
         .fallback = "none"},
        WEFT_TRANSPORT_ROWS(&run.transport),
        WEFT_SECURITY_ROWS(&run.security),
        {0},
    };
    const struct weft_command command = {
        .name = "run",
        .summary = "run your own workers on this machine, with servers and restarts",
        .arguments = "-- CMD [ARGUMENTS]",
        .description =
            "CMD is anything that takes who it is from the environment: `weft worker`, or a\n"
            "program of yours (docs/RUN.md). What the processes write comes out line by line with\n"
            "their names before it. A process in a dead one's place gets its rank. The run ends\n"
            "with status 0 when every worker has ended with 0; Ctrl-C or SIGTERM ends it before.",
        .example = "  weft run -n 4 -s 2 -- weft worker --epochs 2\n"
                   "  weft run -n 8 -s 2 --restart 3 -- python3 train.py",
        .options = options,
    };
    int status = weft_options_parse(&command, split(&run, argc, argv), argv);
    if (status == WEFT_OPTIONS_RUN) {
        status = check(&command, &run);
    }
    if (status == WEFT_OPTIONS_RUN) {
        status = weft_transport_options_find_cc(&command, &run.transport);
    }
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    status = prepare_and_run(&run);
    weft_security_fini(&run.security);
    return status;
}
