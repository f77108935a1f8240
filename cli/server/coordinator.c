/* `weft scheduler`: the coordinator, through which the members of a job find each other. */
#define _GNU_SOURCE
#include "cli/node_options.h"
#include "cli/output.h"
#include "cli/server/coordinator_metrics.h"
#include "cli/train/job.h"
#include "cli/verbs.h"
#include "job/channel.h"
#include "node/coordinator.h"
#include "node/membership.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { DEFAULT_PORT = 7690 };

struct scheduler {
    const char *host;
    uint32_t port;
    uint32_t workers;
    uint32_t shards;
    uint32_t lease_ms;
    const char *journal;
    bool until_done;
    uint32_t control_fd; /* 0 = none */
    struct weft_transport_options transport;
    struct weft_security security;
    struct weft_membership membership;

    struct weft_metrics_options metrics_options;
    struct weft_channel channel;
    pthread_mutex_t channel_lock;
    struct weft_coordinator coordinator;
    struct weft_scheduler_metrics metrics;
};

/* The main thread's events, and those of the coordinator's, must not mix. */
static void send_event(struct scheduler *scheduler, cJSON *event)
{
    pthread_mutex_lock(&scheduler->channel_lock);
    (void)weft_channel_send(&scheduler->channel, event);
    pthread_mutex_unlock(&scheduler->channel_lock);
}

static int fail(struct scheduler *scheduler, weft_status status, const char *text)
{
    if (scheduler->channel.fd >= 0) {
        cJSON *event = weft_channel_event("error");
        cJSON_AddStringToObject(event, "text", text);
        send_event(scheduler, event);
    } else {
        fprintf(stderr, "weft scheduler: %s\n", text);
    }
    return status == WEFT_UNSUPPORTED ? WEFT_EXIT_USAGE : WEFT_EXIT_FAILED;
}

static void tell_ready(struct scheduler *scheduler)
{
    uint16_t port = weft_coordinator_port(&scheduler->coordinator);
    if (scheduler->channel.fd >= 0) {
        cJSON *event = weft_channel_event("ready");
        cJSON *ports = cJSON_AddArrayToObject(event, "ports");
        cJSON_AddItemToArray(ports, cJSON_CreateNumber(port));
        if (scheduler->metrics.metrics.http != NULL) {
            cJSON_AddStringToObject(event, "metrics", scheduler->metrics.metrics.url);
        }
        send_event(scheduler, event);
        return;
    }
    printf("scheduler: %s:%u\n", scheduler->host, port);
    if (scheduler->metrics.metrics.http != NULL) {
        printf("metrics: %s\n", scheduler->metrics.metrics.url);
    }
    fflush(stdout);
}

/* `weft run` replaces a server whose lease has lapsed. */
static void tell_lapsed(void *arg, const struct weft_member_request *who, bool lapsed)
{
    struct scheduler *scheduler = arg;
    if (who->role != WEFT_ROLE_SERVER) {
        return;
    }
    cJSON *event = weft_channel_event(lapsed ? "lapsed" : "revived");
    cJSON_AddNumberToObject(event, "first", who->first);
    cJSON_AddNumberToObject(event, "incarnation", (double)who->incarnation);
    send_event(scheduler, event);
}

/* Until a signal, the end of the parent, or (with --until-done) that of the work. */
static void wait_for_end(struct scheduler *scheduler, int signal_fd)
{
    struct pollfd fds[] = {
        {.fd = signal_fd, .events = POLLIN},
        {.fd = scheduler->channel.fd, .events = POLLIN}, /* -1 is passed over */
        {.fd = scheduler->until_done ? scheduler->coordinator.over_fd : -1, .events = POLLIN},
    };
    while (poll(fds, WEFT_ARRAY_COUNT(fds), -1) <= 0) {
    }
}

static struct weft_coordinator_config configure(struct scheduler *scheduler)
{
    const struct weft_launch *launch = &scheduler->membership.launch;
    struct weft_coordinator_config config = {.host = scheduler->host,
                                             .port = (uint16_t)scheduler->port,
                                             .journal = scheduler->journal,
                                             .transport = scheduler->transport,
                                             .security = &scheduler->security,
                                             .log = weft_output_log(
                                                 "scheduler", scheduler->channel.fd >= 0)};
    weft_roster_config_default(&config.roster);
    config.roster.workers_max = WEFT_JOB_WORKERS_MAX;
    config.roster.shards_max = WEFT_JOB_SHARDS_MAX;
    config.roster.members_max = 2 * (WEFT_JOB_WORKERS_MAX + WEFT_JOB_SHARDS_MAX);
    config.roster.lease_ns = scheduler->lease_ms * WEFT_NS_PER_MS;
    config.roster.workers = launch->workers != WEFT_LAUNCH_UNKNOWN ? launch->workers : 0;
    config.roster.shards = launch->shards != WEFT_LAUNCH_UNKNOWN ? launch->shards : 0;
    config.roster.tell_over = scheduler->until_done;
    memcpy(config.roster.job, launch->job, sizeof(config.roster.job));
    config.lapsed = scheduler->channel.fd >= 0 ? tell_lapsed : NULL;
    config.arg = scheduler;
    return config;
}

static int serve(struct scheduler *scheduler)
{
    struct weft_io_error error = {.text = ""};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
    if (signal_fd < 0) {
        return fail(scheduler, WEFT_IO, "signalfd is refused");
    }
    struct weft_coordinator_config config = configure(scheduler);
    weft_status status = weft_coordinator_start(&scheduler->coordinator, &config, &error);
    if (status != WEFT_OK) {
        close(signal_fd);
        return fail(scheduler, status, error.text);
    }
    char why[WEFT_HTTP_ERROR_BYTES];
    status = weft_scheduler_metrics_start(&scheduler->metrics, &scheduler->metrics_options,
                                          &scheduler->coordinator, why);
    if (status == WEFT_OK) {
        tell_ready(scheduler);
        wait_for_end(scheduler, signal_fd);
    }
    weft_scheduler_metrics_stop(&scheduler->metrics);
    weft_coordinator_stop(&scheduler->coordinator);
    if (scheduler->channel.fd >= 0) {
        send_event(scheduler, weft_channel_event("done"));
    }
    close(signal_fd);
    return status == WEFT_OK ? WEFT_EXIT_OK : fail(scheduler, status, why);
}

static int load_and_serve(struct scheduler *scheduler)
{
    struct weft_crypto_error error = {.text = ""};
    weft_status status = weft_security_load(&scheduler->security, false, &error);
    int result = status == WEFT_OK ? serve(scheduler) : fail(scheduler, status, error.text);
    weft_security_fini(&scheduler->security);
    return result;
}

/* The port that members are told is the port to listen at. */
static int check(const struct weft_command *command, struct scheduler *scheduler)
{
    struct weft_launch flags = weft_launch_nothing();
    flags.role = WEFT_LAUNCH_SCHEDULER;
    flags.workers = scheduler->workers != 0 ? scheduler->workers : WEFT_LAUNCH_UNKNOWN;
    flags.shards = scheduler->shards != 0 ? scheduler->shards : WEFT_LAUNCH_UNKNOWN;
    int status = weft_membership_detect(&scheduler->membership, command, &flags, 1,
                                        scheduler->control_fd == 0);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    const struct weft_launch *launch = &scheduler->membership.launch;
    if (launch->workers != WEFT_LAUNCH_UNKNOWN && launch->workers > WEFT_JOB_WORKERS_MAX) {
        return weft_options_usage(command, "%u workers (from %s) are too many; at most %d",
                                  launch->workers, launch->workers_from,
                                  (int)WEFT_JOB_WORKERS_MAX);
    }
    if (launch->shards != WEFT_LAUNCH_UNKNOWN && launch->shards > WEFT_JOB_SHARDS_MAX) {
        return weft_options_usage(command, "%u shards (from %s) are too many; at most %d",
                                  launch->shards, launch->shards_from, (int)WEFT_JOB_SHARDS_MAX);
    }
    if (scheduler->port == UINT32_MAX) {
        scheduler->port = launch->coordinator_port != 0 ? launch->coordinator_port : DEFAULT_PORT;
    }
    return weft_security_check(command, &scheduler->security);
}

int weft_cli_scheduler(int argc, char **argv)
{
    static struct scheduler scheduler;
    scheduler = (struct scheduler){.host = "127.0.0.1",
                                   .port = UINT32_MAX,
                                   .lease_ms = 5000,
                                   .transport = WEFT_TRANSPORT_DEFAULTS,
                                   .membership = WEFT_MEMBERSHIP_DEFAULTS,
                                   .security = WEFT_SECURITY_DEFAULTS,
                                   .channel = {.fd = -1},
                                   .channel_lock = PTHREAD_MUTEX_INITIALIZER};
    const struct weft_option options[] = {
        {"host", "ADDRESS", "address to bind, numeric; 0.0.0.0 = every one of this host",
         WEFT_OPTION_STRING, .value = &scheduler.host},
        {"port", "P", "port to listen at (UDP; with --transport tcp TCP); 0 = any free",
         WEFT_OPTION_U32, .value = &scheduler.port, .max = UINT16_MAX,
         .fallback = "that of WEFT_SCHEDULER, else 7690"},
        {"workers", "N", "workers of the job; all members must agree", WEFT_OPTION_U32,
         .value = &scheduler.workers, .min = 1, .max = WEFT_JOB_WORKERS_MAX,
         .fallback = "as the environment or the first member says"},
        {"shards", "N", "shards of the job; the same", WEFT_OPTION_U32, .value = &scheduler.shards,
         .min = 1, .max = WEFT_JOB_SHARDS_MAX,
         .fallback = "as the environment or the first member says"},
        {"lease-ms", "MS",
         "a member that was silent for so long may be replaced; members speak\n"
         "five times as often",
         WEFT_OPTION_U32, .value = &scheduler.lease_ms, .min = 100, .max = 3600000},
        {"journal", "FILE",
         "write members and leases here, and read them at the start: then the\n"
         "scheduler may be killed and started again",
         WEFT_OPTION_STRING, .value = &scheduler.journal, .fallback = "none"},
        {"until-done", NULL,
         "end when every worker has finished and left, and have the servers of\n"
         "the job end, too",
         WEFT_OPTION_FLAG, .value = &scheduler.until_done},
        WEFT_TRANSPORT_ROWS(&scheduler.transport),
        WEFT_SECURITY_NETWORK_ROWS(&scheduler.security),
        WEFT_METRICS_OPTIONS(&scheduler.metrics_options),
        {"control-fd", "FD", "channel to `weft run`", WEFT_OPTION_U32,
         .value = &scheduler.control_fd, .hidden = true},
        {0},
    };
    const struct weft_command command = {
        .name = "scheduler",
        .summary = "run the rendezvous point of a job",
        .description =
            "Servers register their shards here, workers ask where all shards are and get a rank\n"
            "if they have none; whoever is silent for longer than the lease may be replaced. Work\n"
            "that runs goes on without it. Prints one line when it can be reached; Ctrl-C or\n"
            "SIGTERM ends it. docs/RUN.md tells how to start a job.",
        .example = "  weft keygen job.key\n"
                   "  weft scheduler --key-file job.key --workers 1 --shards 1 --until-done &\n"
                   "  weft server --key-file job.key --scheduler 127.0.0.1:7690 --port 0 &\n"
                   "  weft worker --key-file job.key --scheduler 127.0.0.1:7690",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status == WEFT_OPTIONS_RUN) {
        status = check(&command, &scheduler);
    }
    if (status == WEFT_OPTIONS_RUN) {
        status = weft_transport_options_find_cc(&command, &scheduler.transport);
    }
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    if (scheduler.control_fd != 0) {
        scheduler.channel.fd = (int)scheduler.control_fd;
    }
    status = load_and_serve(&scheduler);
    weft_channel_fini(&scheduler.channel);
    return status;
}
