/* `weft coordinator`: runs the coordinator, through which the members of a job find each other. */
#define _GNU_SOURCE
#include "metrics/coordinator.h"
#include "cli/child.h"
#include "cli/metrics.h"
#include "cli/node_options.h"
#include "cli/output.h"
#include "cli/stop.h"
#include "cli/train/job.h"
#include "cli/verbs.h"
#include "job/channel.h"
#include "node/membership.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_PORT = 7690 };

struct verb {
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
    struct weft_coordinator_metrics metrics;
};

/* Serializes the events of the main thread and of the coordinator's thread. */
static void send_event(struct verb *verb, cJSON *event)
{
    pthread_mutex_lock(&verb->channel_lock);
    (void)weft_channel_send(&verb->channel, event);
    pthread_mutex_unlock(&verb->channel_lock);
}

static int leave(struct verb *verb, weft_status status, const struct weft_error *error)
{
    pthread_mutex_lock(&verb->channel_lock);
    int result = weft_child_exit(&verb->channel, "coordinator", status, error);
    pthread_mutex_unlock(&verb->channel_lock);
    return result;
}

static void tell_ready(struct verb *verb)
{
    const char *metrics = verb->metrics.metrics.http != NULL ? verb->metrics.metrics.url : "";
    uint16_t port = weft_coordinator_port(&verb->coordinator);
    if (verb->channel.fd >= 0) {
        send_event(verb, weft_child_ready(&port, 1, metrics));
        return;
    }
    printf("coordinator: %s:%u\n", verb->host, port);
    if (metrics[0] != '\0') {
        printf("metrics: %s\n", metrics);
    }
    fflush(stdout);
}

/* Report an expired lease: `weft run` replaces the server. */
static void report_expired(void *arg, const struct weft_member_request *who, bool expired)
{
    struct verb *verb = arg;
    if (who->role != WEFT_ROLE_SERVER) {
        return;
    }
    cJSON *event = weft_channel_event(expired ? "expired" : "reclaimed");
    cJSON_AddNumberToObject(event, "first", who->first);
    cJSON_AddNumberToObject(event, "incarnation", (double)who->incarnation);
    send_event(verb, event);
}

/* Wait for a signal, for the end of the parent, or (with --until-done) for the end of the job. */
static void wait_for_end(struct verb *verb, int signal_fd)
{
    struct pollfd fds[] = {
        {.fd = signal_fd, .events = POLLIN},
        {.fd = verb->channel.fd, .events = POLLIN}, /* -1 is skipped */
        {.fd = verb->until_done ? verb->coordinator.over_fd : -1, .events = POLLIN},
    };
    while (poll(fds, WEFT_ARRAY_COUNT(fds), -1) <= 0) {
    }
}

static struct weft_coordinator_config configure(struct verb *verb)
{
    const struct weft_launch *launch = &verb->membership.launch;
    struct weft_coordinator_config config = {.host = verb->host,
                                             .port = (uint16_t)verb->port,
                                             .journal = verb->journal,
                                             .transport = verb->transport,
                                             .security = &verb->security,
                                             .log = weft_output_log(
                                                 "coordinator", verb->channel.fd >= 0)};
    weft_roster_config_default(&config.roster);
    config.roster.workers_max = WEFT_JOB_WORKERS_MAX;
    config.roster.shards_max = WEFT_JOB_SHARDS_MAX;
    config.roster.members_max = 2 * (WEFT_JOB_WORKERS_MAX + WEFT_JOB_SHARDS_MAX);
    config.roster.lease_ns = verb->lease_ms * WEFT_NS_PER_MS;
    config.roster.workers = launch->workers != WEFT_LAUNCH_UNKNOWN ? launch->workers : 0;
    config.roster.shards = launch->shards != WEFT_LAUNCH_UNKNOWN ? launch->shards : 0;
    config.roster.tell_over = verb->until_done;
    memcpy(config.roster.job, launch->job, sizeof(config.roster.job));
    config.expired = verb->channel.fd >= 0 ? report_expired : NULL;
    config.arg = verb;
    return config;
}

static weft_status serve(struct verb *verb, struct weft_error *error)
{
    int signal_fd = weft_stop_fd(0);
    if (signal_fd < 0) {
        return weft_fail(error, WEFT_IO, "cannot create a signalfd");
    }
    struct weft_coordinator_config config = configure(verb);
    weft_status status = weft_coordinator_start(&verb->coordinator, &config, error);
    if (status != WEFT_OK) {
        close(signal_fd);
        return status;
    }
    status = weft_coordinator_metrics_start(&verb->metrics, &verb->metrics_options,
                                            &verb->coordinator, error);
    if (status == WEFT_OK) {
        tell_ready(verb);
        wait_for_end(verb, signal_fd);
    }
    weft_coordinator_metrics_stop(&verb->metrics);
    weft_coordinator_stop(&verb->coordinator);
    if (verb->channel.fd >= 0) {
        send_event(verb, weft_channel_event("done"));
    }
    close(signal_fd);
    return status;
}

static int load_and_serve(struct verb *verb)
{
    struct weft_error error = {.text = ""};
    weft_status status = weft_security_load(&verb->security, false, &error);
    status = status == WEFT_OK ? serve(verb, &error) : status;
    weft_security_fini(&verb->security);
    return leave(verb, status, &error);
}

/* The port given to members is the port to listen on. */
static int check(const struct weft_command *command, struct verb *verb)
{
    struct weft_launch flags = weft_launch_nothing();
    flags.role = WEFT_LAUNCH_COORDINATOR;
    flags.workers = verb->workers != 0 ? verb->workers : WEFT_LAUNCH_UNKNOWN;
    flags.shards = verb->shards != 0 ? verb->shards : WEFT_LAUNCH_UNKNOWN;
    int status =
        weft_membership_detect(&verb->membership, command, &flags, 1, verb->control_fd == 0);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    const struct weft_launch *launch = &verb->membership.launch;
    if (verb->port == UINT32_MAX) {
        verb->port = launch->coordinator_port != 0 ? launch->coordinator_port : DEFAULT_PORT;
    }
    return weft_security_check(command, &verb->security);
}

int weft_cli_coordinator(int argc, char **argv)
{
    static struct verb verb;
    verb = (struct verb){.host = "127.0.0.1",
                                   .port = UINT32_MAX,
                                   .lease_ms = 5000,
                                   .transport = WEFT_TRANSPORT_DEFAULTS,
                                   .membership = WEFT_MEMBERSHIP_DEFAULTS,
                                   .security = WEFT_SECURITY_DEFAULTS,
                                   .channel = {.fd = -1},
                                   .channel_lock = PTHREAD_MUTEX_INITIALIZER};
    const struct weft_option options[] = {
        {"host", "ADDRESS", "numeric address to bind; 0.0.0.0 = every address of this host",
         WEFT_OPTION_STRING, .value = &verb.host},
        {"port", "P", "port to listen on (UDP, or TCP with --transport tcp); 0 = any free",
         WEFT_OPTION_U32, .value = &verb.port, .max = UINT16_MAX,
         .fallback = "from WEFT_COORDINATOR, else 7690"},
        {"workers", "N", "number of workers in the job, the same for all members", WEFT_OPTION_U32,
         .value = &verb.workers, .min = 1, .max = WEFT_JOB_WORKERS_MAX,
         .fallback = "from the environment or the first member"},
        {"shards", "N", "number of shards in the job, the same for all members", WEFT_OPTION_U32,
         .value = &verb.shards,
         .min = 1, .max = WEFT_JOB_SHARDS_MAX,
         .fallback = "from the environment or the first member"},
        {"lease-ms", "MS",
         "lease duration: a member that did not renew its lease for this long\n"
         "may be replaced; members renew five times per lease",
         WEFT_OPTION_U32, .value = &verb.lease_ms, .min = 100, .max = 3600000},
        {"journal", "FILE",
         "store members and leases in FILE, and read them at startup, so that\n"
         "the coordinator can be killed and restarted",
         WEFT_OPTION_STRING, .value = &verb.journal, .fallback = "none"},
        {"until-done", NULL,
         "exit when every worker has finished and left, and make the servers of\n"
         "the job exit",
         WEFT_OPTION_FLAG, .value = &verb.until_done},
        WEFT_TRANSPORT_ROWS(&verb.transport),
        WEFT_SECURITY_NETWORK_ROWS(&verb.security),
        WEFT_METRICS_OPTIONS(&verb.metrics_options),
        {"control-fd", "FD", "channel to `weft run`", WEFT_OPTION_U32,
         .value = &verb.control_fd, .hidden = true},
        {0},
    };
    const struct weft_command command = {
        .name = "coordinator",
        .summary = "run the rendezvous point of a job",
        .description =
            "Servers register their shards here. Workers query the addresses of the shards, and "
            "get a\n"
            "rank if they have none. A member whose lease expired may be replaced. A running job\n"
            "continues without the coordinator. Prints one line when it is ready; Ctrl-C or "
            "SIGTERM\n"
            "stops it. docs/RUN.md describes how to start a job.",
        .example = "  weft keygen job.key\n"
                   "  weft coordinator --key-file job.key --workers 1 --shards 1 --until-done &\n"
                   "  weft server --key-file job.key --coordinator 127.0.0.1:7690 --port 0 &\n"
                   "  weft worker --key-file job.key --coordinator 127.0.0.1:7690",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status == WEFT_OPTIONS_RUN) {
        status = check(&command, &verb);
    }
    if (status == WEFT_OPTIONS_RUN) {
        status = weft_transport_options_find_cc(&command, &verb.transport);
    }
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    if (verb.control_fd != 0) {
        verb.channel.fd = (int)verb.control_fd;
    }
    status = load_and_serve(&verb);
    weft_channel_fini(&verb.channel);
    return status;
}
