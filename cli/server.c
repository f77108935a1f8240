/* `weft server`: shards of the parameters, one thread and one port each, until told to end. */
#define _GNU_SOURCE
#include "cli/checkpoint.h"
#include "cli/coordinator.h"
#include "cli/counters.h"
#include "cli/deaths.h"
#include "cli/job.h"
#include "cli/membership.h"
#include "cli/process.h"
#include "cli/recording.h"
#include "cli/security.h"
#include "cli/server_metrics.h"
#include "cli/shard_thread.h"
#include "cli/verbs.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { DEFAULT_WORKERS = 16, KEEPALIVE_MS = 5000 /* where a worker's death matters */ };

struct server {
    const char *host;
    uint32_t port;
    uint32_t shards_here;
    uint32_t shard_base;
    uint32_t shards;
    struct weft_credit_share credit_share;
    uint32_t workers;
    uint32_t rows_max;
    uint64_t table_bytes;
    uint32_t tables_max;
    uint32_t dim_max;
    uint32_t inject_loss_ppm;
    uint64_t inject_seed;
    uint32_t busy_poll_us;
    uint32_t keepalive_ms;
    uint32_t idle_timeout_ms;
    enum weft_worker_death on_death;
    bool restarted; /* in place of one that died */
    int lost_fd; /* FAIL: who died; else -1 */
    const char *trace;
    struct weft_recording recording;
    uint32_t control_fd; /* 0 = none: standard input is never a channel */
    struct weft_carrier carrier;
    struct weft_security security;
    struct weft_checkpoint_options checkpoints;
    struct weft_membership membership;
    uint32_t coordinate_port; /* UINT32_MAX = be no coordinator */
    const char *ports;        /* "p,p,...", from `weft run`; NULL = as port says */
    const char *advertise;    /* what workers are told to connect to; NULL = host */

    struct weft_metrics_options metrics_options;
    uint32_t hot_top;

    struct weft_server_metrics metrics;
    struct weft_checkpoint *checkpoint; /* NULL = none are made */
    struct weft_coordinator coordinator;
    struct weft_tracing tracing;
    struct weft_channel channel;
    uint32_t started;
    struct weft_shard_thread threads[WEFT_JOB_SHARDS_MAX];
};

/* On a channel the parent speaks for us; else we speak on standard error. */
static int fail(struct server *server, weft_status status, const char *text)
{
    if (server->channel.fd >= 0) {
        cJSON *event = weft_channel_event("error");
        cJSON_AddStringToObject(event, "text", text);
        (void)weft_channel_send(&server->channel, event);
    } else {
        fprintf(stderr, "weft server: %s\n", text);
    }
    /* An address that this release refuses is a wrong command line, not a failed run. */
    return status == WEFT_UNSUPPORTED ? WEFT_EXIT_USAGE : WEFT_EXIT_FAILED;
}

/* A server that never let anybody in, although somebody knocked, has failed, and says why. */
static int judge(struct server *server)
{
    enum weft_ep_hint hint = WEFT_HINT_NONE;
    for (uint32_t i = 0; i < server->started; i++) {
        const struct weft_shard_thread *thread = &server->threads[i];
        if (thread->counters.ep.data_received > 0) {
            return WEFT_EXIT_OK;
        }
        hint = thread->hint != WEFT_HINT_NONE ? thread->hint : hint;
    }
    if (hint == WEFT_HINT_NONE) {
        return WEFT_EXIT_OK;
    }
    char why[WEFT_SECURITY_HINT_BYTES];
    char text[WEFT_SECURITY_HINT_BYTES + 32];
    weft_security_hint(&server->security, hint, why, sizeof(why));
    snprintf(text, sizeof(text), "no worker ever got in: %s", why);
    return fail(server, WEFT_PEER, text);
}

/* From the checkpoints' own thread, too; the main thread says nothing meanwhile. */
static void say_checkpoint(void *arg, bool good, const char *text)
{
    struct server *server = arg;
    if (server->channel.fd >= 0) {
        cJSON *event = weft_channel_event("checkpoint");
        cJSON_AddBoolToObject(event, "good", good);
        cJSON_AddStringToObject(event, "text", text);
        (void)weft_channel_send(&server->channel, event);
    } else {
        fprintf(stderr, "weft server: %s\n", text);
    }
}

static int open_checkpoints(struct server *server)
{
    if (server->checkpoints.directory == NULL) {
        return WEFT_EXIT_OK;
    }
    server->checkpoints.restarted = server->restarted;
    struct weft_checkpoint_config config = {.options = server->checkpoints,
                                            .first = server->shard_base,
                                            .count = server->shards_here,
                                            .shards = server->shards,
                                            .say = say_checkpoint,
                                            .say_arg = server};
    struct weft_ckpt_error error = {.text = ""};
    weft_status status = weft_checkpoint_new(&config, &server->checkpoint, &error);
    return status == WEFT_OK ? WEFT_EXIT_OK : fail(server, status, error.text);
}

/* The shards serve. */
static int begin_checkpoints(struct server *server)
{
    if (server->checkpoint == NULL) {
        return WEFT_EXIT_OK;
    }
    if (weft_checkpoint_restored(server->checkpoint) != 0) {
        char text[64];
        snprintf(text, sizeof(text), "restored from checkpoint %llu",
                 (unsigned long long)weft_checkpoint_restored(server->checkpoint));
        say_checkpoint(server, true, text);
    }
    return weft_checkpoint_begin(server->checkpoint) == WEFT_OK
               ? WEFT_EXIT_OK
               : fail(server, WEFT_IO, "cannot start a thread");
}

/* Of the i-th shard here; 0 = any. */
static uint16_t port_of(const struct server *server, uint32_t i)
{
    const char *at = server->ports;
    if (at == NULL) {
        return (uint16_t)(server->port != 0 ? server->port + i : 0);
    }
    for (; i > 0 && at != NULL; i--) {
        at = strchr(at, ',');
        at = at != NULL ? at + 1 : NULL;
    }
    return at != NULL ? (uint16_t)strtoul(at, NULL, 10) : 0;
}

static int start_shards(struct server *server)
{
    for (uint32_t i = 0; i < server->shards_here; i++) {
        struct weft_shard_thread_config config = {
            .host = server->host,
            .port = port_of(server, i),
            .shard = server->shard_base + i,
            .shards = server->shards,
            .workers = server->workers,
            .rows_max = server->rows_max,
            .table_bytes_max = server->table_bytes,
            .tables_max = server->tables_max,
            .dim_max = server->dim_max,
            .credit_share = &server->credit_share,
            .busy_poll_us = (uint16_t)server->busy_poll_us,
            .keepalive_ns = weft_job_span_ns(server->keepalive_ms),
            .idle_timeout_ns = weft_job_span_ns(server->idle_timeout_ms),
            .on_death = server->on_death,
            .lost_fd = server->lost_fd,
            .loss = {.loss_ppm = server->inject_loss_ppm,
                     .role = WEFT_ROLE_SERVER,
                     .rank = server->shard_base + i,
                     .seed = server->inject_seed},
            .carrier = server->carrier,
            .security = &server->security,
            .hot_top = server->hot_top,
            .quiet = server->channel.fd >= 0,
            .tracing = &server->tracing,
            .records = weft_recording_ring(&server->recording),
            .recorder = server->recording.recorder,
            .active_window_ns = server->recording.window_us * WEFT_NS_PER_US,
            .checkpoint = server->checkpoint != NULL ? weft_checkpoint_feed(server->checkpoint, i)
                                                     : NULL,
        };
        struct weft_io_error error = {.text = ""};
        weft_status status = weft_shard_thread_start(&server->threads[i], &config, &error);
        if (status != WEFT_OK) {
            return fail(server, status, error.text);
        }
        server->started++;
    }
    return WEFT_EXIT_OK;
}

static void tell_ready(struct server *server)
{
    cJSON *event = weft_channel_event("ready");
    cJSON *ports = cJSON_AddArrayToObject(event, "ports");
    for (uint32_t i = 0; i < server->started; i++) {
        cJSON_AddItemToArray(ports, cJSON_CreateNumber(server->threads[i].port));
    }
    if (server->metrics.metrics.http != NULL) {
        cJSON_AddStringToObject(event, "metrics", server->metrics.metrics.url);
    }
    if (server->channel.fd >= 0) {
        (void)weft_channel_send(&server->channel, event);
        return;
    }
    cJSON_Delete(event);
    for (uint32_t i = 0; i < server->started; i++) {
        printf("shard %u of %u: %s:%u\n", server->shard_base + i, server->shards, server->host,
               server->threads[i].port);
    }
    if (server->metrics.metrics.http != NULL) {
        printf("metrics: %s\n", server->metrics.metrics.url);
    }
    fflush(stdout);
}

static int start_metrics(struct server *server)
{
    char error[WEFT_HTTP_ERROR_BYTES];
    weft_status status = weft_server_metrics_start(
        &server->metrics, &server->metrics_options, server->threads, server->started,
        server->coordinate_port != UINT32_MAX ? &server->coordinator : NULL, error);
    return status == WEFT_OK ? WEFT_EXIT_OK : fail(server, status, error);
}

/* ---- the job ---------------------------------------------------------------------------------- */

static int signal_fd_asked = -1; /* for is_asked, which takes no argument */

static bool is_asked(void)
{
    struct pollfd fd = {.fd = signal_fd_asked, .events = POLLIN};
    return poll(&fd, 1, 0) > 0;
}

/* The coordinator of a job that has none of its own. */
static int coordinate(struct server *server)
{
    struct weft_io_error error = {.text = ""};
    struct weft_coordinator_config config = {.host = server->host,
                                             .port = (uint16_t)server->coordinate_port,
                                             .carrier = server->carrier,
                                             .security = &server->security,
                                             .name = "server",
                                             .quiet = server->channel.fd >= 0};
    struct weft_launch *launch = &server->membership.launch;
    weft_roster_config_default(&config.roster);
    config.roster.workers = launch->workers != WEFT_LAUNCH_UNKNOWN ? launch->workers : 0;
    config.roster.shards = launch->shards != WEFT_LAUNCH_UNKNOWN ? launch->shards : 0;
    weft_status status = weft_coordinator_start(&server->coordinator, &config, &error);
    if (status != WEFT_OK) {
        return fail(server, status, error.text);
    }
    snprintf(launch->coordinator_host, sizeof(launch->coordinator_host), "%s",
             weft_resolve_is_wildcard(server->host) ? "127.0.0.1" : server->host);
    launch->coordinator_port = weft_coordinator_port(&server->coordinator);
    if (server->channel.fd < 0) {
        printf("scheduler: %s:%u\n", server->host, launch->coordinator_port);
        fflush(stdout);
    }
    return WEFT_EXIT_OK;
}

/* The lease comes first: a server that is refused never opens a port. */
static int join_job(struct server *server)
{
    struct weft_io_error error = {.text = ""};
    struct weft_member_state state;
    const struct weft_launch *launch = &server->membership.launch;
    uint32_t first = server->shard_base;
    if (first == UINT32_MAX && launch->rank != WEFT_LAUNCH_UNKNOWN) {
        first = launch->rank * server->shards_here;
    }
    weft_status status =
        weft_membership_join(&server->membership, &server->security, &server->carrier, first,
                             server->shards_here, WEFT_MEMBER_WAIT_JOINED, is_asked, &state,
                             &error);
    if (status != WEFT_OK) {
        return fail(server, WEFT_PEER, error.text);
    }
    server->shard_base = state.grant.first;
    server->shards = state.grant.shards;
    server->workers = state.grant.workers != 0 ? state.grant.workers : server->workers;
    return WEFT_EXIT_OK;
}

/* Where workers reach this server: as said, or as bound, or the way to the coordinator. */
static int publish(struct server *server)
{
    struct weft_member_address addresses[WEFT_JOB_SHARDS_MAX];
    char host[WEFT_RESOLVE_TEXT_BYTES];
    struct weft_io_error error = {.text = ""};
    const char *named = server->advertise != NULL ? server->advertise : server->host;
    weft_status status = weft_resolve(named, host, &error);
    if (status == WEFT_OK && weft_resolve_is_wildcard(host)) {
        char coordinator[WEFT_RESOLVE_TEXT_BYTES];
        status = weft_resolve(server->membership.launch.coordinator_host, coordinator, &error);
        status = status == WEFT_OK ? weft_resolve_local(coordinator, host, &error) : status;
    }
    for (uint32_t i = 0; status == WEFT_OK && i < server->started; i++) {
        status = weft_resolve_member_address(host, server->threads[i].port, &addresses[i], &error);
    }
    if (status != WEFT_OK) {
        return fail(server, WEFT_IO, error.text);
    }
    weft_member_thread_publish(server->membership.thread, addresses);
    return WEFT_EXIT_OK;
}

/* The first shard's number is in the spool's name. */
static int open_records(struct server *server)
{
    struct weft_records_error error = {.text = ""};
    weft_status status =
        weft_recording_open(&server->recording, "server", server->shard_base, &error);
    return status == WEFT_OK ? WEFT_EXIT_OK : fail(server, WEFT_IO, error.text);
}

static int start_in_job(struct server *server)
{
    int status = WEFT_EXIT_OK;
    if (server->coordinate_port != UINT32_MAX) {
        status = coordinate(server);
    }
    bool has_coordinator = weft_membership_has_coordinator(&server->membership);
    if (status == WEFT_EXIT_OK && has_coordinator) {
        status = join_job(server);
    }
    /* What is restored depends on which shards these are. */
    status = status == WEFT_EXIT_OK ? open_checkpoints(server) : status;
    status = status == WEFT_EXIT_OK ? open_records(server) : status;
    status = status == WEFT_EXIT_OK ? start_shards(server) : status;
    status = status == WEFT_EXIT_OK ? begin_checkpoints(server) : status;
    status = status == WEFT_EXIT_OK ? start_metrics(server) : status;
    if (status == WEFT_EXIT_OK && has_coordinator) {
        status = publish(server);
    }
    return status;
}

/* Another process has this one's shards: serving on would show workers two truths. */
static int look_at_membership(struct server *server)
{
    char text[WEFT_IO_ERROR_BYTES];
    struct weft_member_state state;
    if (server->membership.thread == NULL) {
        return WEFT_EXIT_OK;
    }
    weft_member_thread_state(server->membership.thread, &state);
    if (state.phase != WEFT_MEMBER_REPLACED && state.phase != WEFT_MEMBER_IS_REFUSED) {
        return WEFT_EXIT_OK;
    }
    weft_member_thread_words(server->membership.thread, text, sizeof(text));
    return fail(server, WEFT_PEER, text);
}

/* SIGUSR1 came; or another one, which is left in the descriptor's word: false. */
static bool is_request(struct server *server, int signal_fd)
{
    struct signalfd_siginfo info;
    if (read(signal_fd, &info, sizeof(info)) != sizeof(info) || info.ssi_signo != SIGUSR1) {
        return false;
    }
    if (server->checkpoint == NULL) {
        say_checkpoint(server, false, "SIGUSR1 asks for a checkpoint, but there is no --checkpoint");
    } else if (!weft_checkpoint_request(server->checkpoint)) {
        say_checkpoint(server, false,
                       "SIGUSR1: this server has not all shards; see --checkpoint-every");
    }
    return true;
}

/* The parent says that a worker has died; false: it is gone itself. */
static bool is_word(struct server *server)
{
    struct weft_channel *channel = &server->channel;
    weft_status status;
    do {
        cJSON *message = NULL;
        uint32_t rank;
        uint64_t at_ns;
        status = weft_channel_next(channel, &message);
        if (message != NULL && weft_deaths_take(message, &rank, &at_ns)) {
            for (uint32_t i = 0; i < server->started; i++) {
                weft_shard_thread_worker_died(&server->threads[i], rank, at_ns);
            }
        }
        cJSON_Delete(message);
        /* What came in the same bytes: no poll would tell. */
    } while (status == WEFT_OK && channel->count > 0 &&
             memchr(channel->bytes, '\n', channel->count) != NULL);
    return status == WEFT_OK;
}

/* Sleep until a signal asks us to end, the parent is gone, the coordinator says so, or a worker has
 * died whose death ends the job. */
static void wait_for_end(struct server *server, int signal_fd)
{
    const struct weft_member_thread *member = server->membership.thread;
    struct pollfd fds[] = {
        {.fd = signal_fd, .events = POLLIN},
        {.fd = server->channel.fd, .events = POLLIN}, /* -1 is passed over */
        {.fd = member != NULL ? weft_member_thread_fd(member) : -1, .events = POLLIN},
        {.fd = server->lost_fd, .events = POLLIN},
    };
    for (bool more = true; more;) {
        if (poll(fds, WEFT_ARRAY_COUNT(fds), -1) <= 0) {
            continue;
        }
        more = fds[2].revents == 0 && fds[3].revents == 0 &&
               (fds[0].revents == 0 || is_request(server, signal_fd)) &&
               (fds[1].revents == 0 || is_word(server));
    }
}

/* --on-worker-death fail, and one has. */
static int look_for_lost(struct server *server)
{
    char text[96];
    for (uint32_t i = 0; i < server->started; i++) {
        uint32_t rank = atomic_load(&server->threads[i].lost_rank);
        if (rank != UINT32_MAX) {
            snprintf(text, sizeof(text), "worker %u has died; --on-worker-death fail ends the job",
                     rank);
            return fail(server, WEFT_PEER, text);
        }
    }
    return WEFT_EXIT_OK;
}

static void tell_counters(struct server *server)
{
    struct weft_recorder_counts records = weft_recording_finish(&server->recording);
    cJSON *event = weft_channel_event("done");
    cJSON *counters = cJSON_AddObjectToObject(event, "counters");
    for (uint32_t i = 0; i < server->started; i++) {
        const struct weft_shard_thread *thread = &server->threads[i];
        weft_counters_add_transport(counters, &thread->counters);
        weft_counters_add_shard(counters, &thread->shard_counters);
        weft_counters_add_tables(counters, &thread->table_sums);
    }
    weft_counters_add(counters, "records", records.records);
    weft_counters_add(counters, "records_dropped", records.dropped);
    if (server->channel.fd >= 0) {
        (void)weft_channel_send(&server->channel, event);
        return;
    }
    char *text = cJSON_Print(counters);
    cJSON_Delete(event);
    if (text != NULL) {
        puts(text);
        cJSON_free(text);
    }
}

static int serve(struct server *server)
{
    /* Before the threads start: they inherit the mask; signals come to this descriptor alone. */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
    if (signal_fd < 0) {
        return fail(server, WEFT_IO, "signalfd is refused");
    }
    weft_tracing_open(&server->tracing, server->trace);
    signal_fd_asked = signal_fd;
    server->lost_fd = server->on_death == WEFT_DEATH_FAIL ? eventfd(0, EFD_CLOEXEC) : -1;
    int status = start_in_job(server);
    if (status == WEFT_EXIT_OK) {
        tell_ready(server);
        wait_for_end(server, signal_fd);
        status = look_at_membership(server);
        status = status == WEFT_EXIT_OK ? look_for_lost(server) : status;
    }
    weft_membership_leave(&server->membership, true);
    weft_server_metrics_stop(&server->metrics);
    weft_checkpoint_end(server->checkpoint);
    for (uint32_t i = 0; i < server->started; i++) {
        weft_shard_thread_join(&server->threads[i]);
    }
    if (status == WEFT_EXIT_OK) {
        tell_counters(server);
        status = judge(server);
    }
    if (!weft_recording_close(&server->recording, "server")) {
        status = WEFT_EXIT_FAILED;
    }
    weft_checkpoint_free(server->checkpoint);
    weft_coordinator_stop(&server->coordinator);
    weft_tracing_close(&server->tracing);
    close(signal_fd);
    if (server->lost_fd >= 0) {
        close(server->lost_fd);
    }
    return status;
}

static int check_rest(const struct weft_command *command, struct server *server)
{
    if (server->workers > WEFT_JOB_WORKERS_MAX) {
        return weft_options_usage(command, "%u workers (from %s) are too many; at most %d",
                                  server->workers, server->membership.launch.workers_from,
                                  (int)WEFT_JOB_WORKERS_MAX);
    }
    if (server->port != 0 && server->port + server->shards_here - 1 > UINT16_MAX) {
        return weft_options_usage(command, "there are no %u ports from --port %u on",
                                  server->shards_here, server->port);
    }
    if (server->checkpoints.restore && server->checkpoints.directory == NULL) {
        return weft_options_usage(command, "--restore needs --checkpoint: from where?");
    }
    if (server->checkpoints.journal.directory != NULL && server->checkpoints.directory == NULL) {
        return weft_options_usage(command, "--journal goes with --checkpoint: it keeps what came "
                                           "after the newest one");
    }
    server->checkpoints.journal.job = weft_journal_job(server->membership.launch.job);
    if (server->keepalive_ms == UINT32_MAX) {
        server->keepalive_ms = server->on_death == WEFT_DEATH_WAIT ? 0 : KEEPALIVE_MS;
    }
    int status =
        weft_carrier_check(command, &server->carrier, server->inject_loss_ppm, server->trace);
    return status != WEFT_OPTIONS_RUN ? status
                                      : weft_security_check(command, &server->security);
}

/* What the table of options cannot say: how the options fit together. */
static int check(const struct weft_command *command, struct server *server)
{
    struct weft_launch flags = weft_launch_nothing();
    flags.role = WEFT_LAUNCH_SERVER;
    flags.shards = server->shards != 0 ? server->shards : WEFT_LAUNCH_UNKNOWN;
    flags.workers = server->workers != 0 ? server->workers : WEFT_LAUNCH_UNKNOWN;
    /* A child of `weft train` is told everything; one of `weft run` has a coordinator. */
    bool environment = server->control_fd == 0 || server->membership.scheduler != NULL;
    int detected = weft_membership_detect(&server->membership, command, &flags,
                                          server->shards_here, environment);
    if (detected != WEFT_OPTIONS_RUN) {
        return detected;
    }
    const struct weft_launch *launch = &server->membership.launch;
    server->workers = launch->workers != WEFT_LAUNCH_UNKNOWN ? launch->workers : DEFAULT_WORKERS;
    bool in_job = launch->coordinator_port != 0 || server->coordinate_port != UINT32_MAX;
    if (in_job) {
        return check_rest(command, server);
    }
    server->shards = launch->shards != WEFT_LAUNCH_UNKNOWN ? launch->shards : 0;
    if (server->shard_base == UINT32_MAX) {
        bool has_rank = launch->rank != WEFT_LAUNCH_UNKNOWN;
        server->shard_base = has_rank ? launch->rank * server->shards_here : 0;
    }
    if (server->shards == 0) {
        server->shards = server->shard_base + server->shards_here;
    }
    if (server->shard_base + server->shards_here > server->shards) {
        return weft_options_usage(command, "shards %u to %u do not lie within --shards %u",
                                  server->shard_base, server->shard_base + server->shards_here - 1,
                                  server->shards);
    }
    return check_rest(command, server);
}

static int load_and_serve(struct server *server)
{
    struct weft_crypto_error error = {.text = ""};
    weft_status status = weft_security_load(&server->security, false, &error);
    int result = status == WEFT_OK ? serve(server) : fail(server, status, error.text);
    weft_security_fini(&server->security);
    return result;
}

int weft_cli_server(int argc, char **argv)
{
    static struct server server; /* large, and there is one */
    server = (struct server){.host = "127.0.0.1",
                             .port = 7700,
                             .carrier = WEFT_CARRIER_DEFAULTS,
                             .shards_here = 1,
                             .shard_base = UINT32_MAX,
                             .coordinate_port = UINT32_MAX,
                             .membership = WEFT_MEMBERSHIP_DEFAULTS,
                             .rows_max = 4194304,
                             .tables_max = 4,
                             .dim_max = 64,
                             .keepalive_ms = UINT32_MAX,
                             .lost_fd = -1,
                             .inject_seed = 1,
                             .hot_top = 20000,
                             .security = WEFT_SECURITY_DEFAULTS,
                             .recording = WEFT_RECORDING_DEFAULTS,
                             .checkpoints = WEFT_CHECKPOINT_DEFAULTS,
                             .channel = {.fd = -1}};
    const struct weft_option options[] = {
        {"host", "ADDRESS",
         "address to bind, numeric; 0.0.0.0 = every one of this host",
         WEFT_OPTION_STRING, .value = &server.host},
        {"port", "P", "port (UDP; with --transport tcp TCP) of the first shard; the next ones follow; 0 = any free",
         WEFT_OPTION_U32, .value = &server.port, .max = UINT16_MAX},
        {"shards-per-server", "N", "shards, each a thread and a port", WEFT_OPTION_U32,
         .value = &server.shards_here, .min = 1, .max = WEFT_JOB_SHARDS_MAX},
        {"shard-base", "I", "number of the first shard here", WEFT_OPTION_U32,
         .value = &server.shard_base, .max = WEFT_JOB_SHARDS_MAX - 1,
         .fallback = "the launcher's rank times --shards-per-server, else 0"},
        {"shards", "N", "shards in the whole job", WEFT_OPTION_U32, .value = &server.shards,
         .min = 1, .max = WEFT_JOB_SHARDS_MAX, .fallback = "those here and before"},
        {"workers", "N", "ranks 0 to N-1 may connect", WEFT_OPTION_U32, .value = &server.workers,
         .min = 1, .max = WEFT_JOB_WORKERS_MAX, .fallback = "as the job says, else 16"},
        WEFT_MEMBERSHIP_OPTIONS(&server.membership),
        {"advertise", "ADDRESS", "a name or address of this host that workers reach it by",
         WEFT_OPTION_STRING, .value = &server.advertise,
         .fallback = "--host, or the way to the coordinator"},
        {"coordinate", "P", "be the coordinator, too, at this port; 0 = any free: for a job\n"
         "without `weft scheduler`; its members are lost when this ends",
         WEFT_OPTION_U32, .value = &server.coordinate_port, .max = UINT16_MAX,
         .fallback = "not"},
        {"rows-max", "N", "rows that a shard takes for each table; further ones are refused and\n"
         "counted",
         WEFT_OPTION_U32, .value = &server.rows_max, .min = 1, .max = 1u << 28},
        {"table-bytes", "N",
         "bytes that a shard's part of a table may take, its index and the counts\n"
         "of its admission included; 0 = as many as rows-max rows need, and at\n"
         "most as many again for those counts",
         WEFT_OPTION_U64, .value = &server.table_bytes},
        {"tables", "N", "tables that workers may make, numbered 0 to N-1", WEFT_OPTION_U32,
         .value = &server.tables_max, .min = 1, .max = 4096},
        {"dim-max", "N", "floats in the longest row of any table", WEFT_OPTION_U32,
         .value = &server.dim_max, .min = 1, .max = WEFT_RPC_DIM_MAX},
        WEFT_CARRIER_OPTIONS(&server.carrier),
        WEFT_SECURITY_NETWORK_OPTIONS(&server.security),
        {"inject-loss", "F", "drop this fraction of arriving datagrams on purpose", WEFT_OPTION_PPM,
         .value = &server.inject_loss_ppm},
        {"inject-seed", "N", "of the dropped datagrams", WEFT_OPTION_U64,
         .value = &server.inject_seed},
        {"busy-poll-us", "N", WEFT_JOB_BUSY_POLL_HELP, WEFT_OPTION_U32,
         .value = &server.busy_poll_us, .max = WEFT_JOB_BUSY_POLL_US_MAX},
        {"keepalive-ms", "N",
         "ask a worker that was silent for so many ms whether it is there; when\n"
         "nothing comes for --peer-timeout then, it is given up. 0 = only a worker that\n"
         "owes an answer is asked. Longer than the longest step of workers, or\n"
         "with their --drive engine",
         WEFT_OPTION_U32, .value = &server.keepalive_ms, .max = WEFT_JOB_SPAN_MS_MAX,
         .fallback = "0; with --on-worker-death shrink or fail 5000"},
        {"idle-timeout-ms", "N",
         "close a worker's connection over which nothing was heard for so many\n"
         "ms, with nothing outstanding; 0 = never",
         WEFT_OPTION_U32, .value = &server.idle_timeout_ms, .max = WEFT_JOB_SPAN_MS_MAX},
        WEFT_DEATHS_OPTION(&server.on_death),
        WEFT_CHECKPOINT_OPTIONS(&server.checkpoints),
        WEFT_JOURNAL_OPTIONS(&server.checkpoints.journal),
        {"restore", NULL, "begin with the newest good checkpoint of --checkpoint, which may be of\n"
         "another number of shards", WEFT_OPTION_FLAG, .value = &server.checkpoints.restore},
        WEFT_METRICS_OPTIONS(&server.metrics_options),
        {"hot-top", "N",
         "rows of each table with most updates that a shard knows, for /hot and\n"
         "records; 16 bytes each; 0 = none",
         WEFT_OPTION_U32, .value = &server.hot_top, .max = WEFT_HOT_TOP_MAX},
        {"trace", "FILE", WEFT_TRACING_HELP, WEFT_OPTION_STRING, .value = &server.trace,
         .fallback = "none"},
        WEFT_RECORDING_OPTIONS(&server.recording),
        WEFT_RECORDING_WINDOW_OPTION(&server.recording),
        WEFT_RECORDING_CHILD_OPTION(&server.recording),
        {"ports", "P,...", "one for each shard, from `weft run`", WEFT_OPTION_STRING,
         .value = &server.ports, .hidden = true},
        {"restarted", NULL, "in place of one that was ready and died, from `weft run`", WEFT_OPTION_FLAG,
         .value = &server.restarted, .hidden = true},
        {"control-fd", "FD", "channel to `weft train`", WEFT_OPTION_U32,
         .value = &server.control_fd, .hidden = true},
        {0},
    };
    const struct weft_command command = {
        .name = "server",
        .summary = "serve shards of the parameters",
        .description =
            "Each shard is one thread with one port and a slice of all rows; workers name the\n"
            "ports of all shards in order. Prints a line for each shard when it can be reached.\n"
            "Ctrl-C or SIGTERM ends it; then the counters are printed as a JSON object.",
        .example = "  weft keygen job.key\n"
                   "  weft server --key-file job.key --shards-per-server 2 --workers 1 &\n"
                   "  weft worker --key-file job.key --servers 127.0.0.1:7700,127.0.0.1:7701",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status == WEFT_OPTIONS_RUN) {
        status = check(&command, &server);
    }
    if (status == WEFT_OPTIONS_RUN) {
        status = weft_carrier_find_cc(&command, &server.carrier);
    }
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    if (server.control_fd != 0) {
        server.channel.fd = (int)server.control_fd;
    }
    status = load_and_serve(&server);
    weft_channel_fini(&server.channel);
    return status;
}
