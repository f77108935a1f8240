/* Startup of a server: joining the job, checkpoints, shards. */
#include "cli/server/internal.h"

#include "cli/output.h"
#include "io/clock.h"
#include "io/random.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static weft_status open_checkpoints(struct server *server, struct weft_error *error)
{
    if (server->checkpoints.directory == NULL) {
        return WEFT_OK;
    }
    server->checkpoints.restarted = server->restarted;
    struct weft_checkpoint_config config = {.options = server->checkpoints,
                                            .first = server->shard_base,
                                            .count = server->shards_here,
                                            .shards = server->each.shard.shards,
                                            .log = {weft_server_say_checkpoint, server}};
    weft_status status = weft_checkpoint_new(&config, &server->checkpoint, error);
    return status == WEFT_OK ? WEFT_OK : WEFT_IO;
}

/* The shards are serving; start the checkpoints. */
static weft_status begin_checkpoints(struct server *server, struct weft_error *error)
{
    if (server->checkpoint == NULL) {
        return WEFT_OK;
    }
    if (weft_checkpoint_restored(server->checkpoint) != 0) {
        char text[64];
        snprintf(text, sizeof(text), "restored from checkpoint %llu",
                 (unsigned long long)weft_checkpoint_restored(server->checkpoint));
        weft_server_say_checkpoint(server, WEFT_NODE_INFO, text);
    }
    weft_status status = weft_checkpoint_begin(server->checkpoint, error);
    return status == WEFT_OK ? WEFT_OK : WEFT_IO;
}

/* Port of the i-th shard of this process; 0 = any. */
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

/* Fill in the shard settings that have no option. */
static void complete(struct server *server)
{
    struct weft_shard_thread_config *each = &server->each;
    struct weft_udp_config *udp = &each->driver.udp;
    weft_transport_options_apply(&server->transport, &each->driver);
    udp->ep.keepalive_ns = weft_job_span_ns(server->keepalive_ms);
    udp->ep.idle_timeout_ns = weft_job_span_ns(server->idle_timeout_ms);
    each->shard.hot_epoch_ns = weft_job_span_ns(server->hot_epoch_ms);
    udp->ep.credit_share = &server->credit_share;
    udp->loss.role = WEFT_ROLE_SERVER;
    each->shard.active_window_ns = server->recording.window_us * WEFT_NS_PER_US;
    if (server->scheduler != NULL) {
        const struct weft_launch *launch = &server->membership.launch;
        bool is_known = launch->workers != WEFT_LAUNCH_UNKNOWN;
        each->scheduler = &server->scheduler_address;
        each->scheduler_workers = is_known ? each->shard.workers_max : each->scheduler_workers;
        weft_os_random(&each->scheduler_host, sizeof(each->scheduler_host));
        each->scheduler_host |= 1; /* 0 = its own link */
        each->scheduler_link_bps = server->link_mbps * UINT64_C(1000000);
    }
    if (server->replicate) {
        each->shard.replicas_max = 1;
        each->shard.div_max = server->div_max / sqrt(each->shard.shards);
    }
    each->security = &server->security;
    each->tracing = &server->tracing;
    each->recorder = server->recording.recorder;
    each->log = weft_output_log("server", server->channel.fd >= 0);
}

static weft_status start_shards(struct server *server, struct weft_error *error)
{
    complete(server);
    for (uint32_t i = 0; i < server->shards_here; i++) {
        struct weft_shard_thread_config config = server->each;
        config.shard.shard = config.driver.udp.loss.rank = server->shard_base + i;
        config.driver.udp.port = port_of(server, i);
        config.replica_of = server->replica_of != NULL ? &server->replicated[i] : NULL;
        config.shard.records = weft_recording_ring(&server->recording);
        if (server->checkpoint != NULL) {
            config.checkpoint = weft_checkpoint_feed(server->checkpoint, i);
        }
        weft_status status = weft_shard_thread_start(&server->threads[i], &config, error);
        if (status != WEFT_OK) {
            return status;
        }
        server->started++;
    }
    return WEFT_OK;
}

static weft_status start_metrics(struct server *server, struct weft_error *error)
{
    return weft_server_metrics_start(
        &server->metrics, &server->metrics_options, server->threads, server->started,
        server->coordinate_port != UINT32_MAX ? &server->coordinator : NULL, error);
}

static int signal_fd_asked = -1; /* for is_asked, which has no argument */

static bool is_asked(void)
{
    struct pollfd fd = {.fd = signal_fd_asked, .events = POLLIN};
    return poll(&fd, 1, 0) > 0;
}

static const uint64_t say_every_ns = 10 * WEFT_NS_PER_S;

/* Like signal_fd_asked. */
static struct {
    const struct weft_launch *launch;
    uint64_t next_ns;
} waiting;

static bool is_asked_while_joining(void)
{
    const uint64_t now_ns = weft_clock_now_ns();
    if (now_ns >= waiting.next_ns) {
        fprintf(stderr,
                "weft server: the coordinator %s:%u has not registered this server yet; is it "
                "running there? Still waiting\n",
                waiting.launch->coordinator_host, waiting.launch->coordinator_port);
        waiting.next_ns = now_ns + say_every_ns;
    }
    return is_asked();
}

/* Run the coordinator of a job that has no separate one. */
static weft_status coordinate(struct server *server, struct weft_error *error)
{
    struct weft_coordinator_config config = {.host = server->each.driver.udp.host,
                                             .port = (uint16_t)server->coordinate_port,
                                             .transport = server->transport,
                                             .security = &server->security,
                                             .log = weft_output_log(
                                                 "server", server->channel.fd >= 0)};
    struct weft_launch *launch = &server->membership.launch;
    weft_roster_config_default(&config.roster);
    config.roster.workers = launch->workers != WEFT_LAUNCH_UNKNOWN ? launch->workers : 0;
    config.roster.shards = launch->shards != WEFT_LAUNCH_UNKNOWN ? launch->shards : 0;
    weft_status status = weft_coordinator_start(&server->coordinator, &config, error);
    if (status != WEFT_OK) {
        return status;
    }
    snprintf(launch->coordinator_host, sizeof(launch->coordinator_host), "%s",
             weft_resolve_is_wildcard(config.host) ? "127.0.0.1" : config.host);
    launch->coordinator_port = weft_coordinator_port(&server->coordinator);
    if (server->channel.fd < 0) {
        printf("coordinator: %s:%u\n", config.host, launch->coordinator_port);
        fflush(stdout);
    }
    return WEFT_OK;
}

/* Acquire the lease first: a rejected server never opens a port. */
weft_status weft_server_join(struct server *server, struct weft_error *error)
{
    struct weft_member_state state;
    const struct weft_launch *launch = &server->membership.launch;
    uint32_t first = server->shard_base;
    if (first == UINT32_MAX && launch->rank != WEFT_LAUNCH_UNKNOWN) {
        first = launch->rank * server->shards_here;
    }
    const struct weft_membership_join join = {
        .security = &server->security,
        .transport = &server->transport,
        .first = first,
        .span = server->shards_here,
        .what = WEFT_MEMBER_WAIT_JOINED,
        .patience_ns = server->membership.patience_s * WEFT_NS_PER_S,
        .stop = is_asked_while_joining,
    };
    waiting.launch = launch;
    waiting.next_ns = weft_clock_now_ns() + say_every_ns;
    weft_status status = weft_membership_join(&server->membership, &join, &state, error);
    if (status != WEFT_OK) {
        return WEFT_PEER;
    }
    server->shard_base = state.grant.first;
    server->each.shard.shards = state.grant.shards;
    if (state.grant.workers != 0) {
        server->each.shard.workers_max = state.grant.workers;
        server->each.scheduler_workers = state.grant.workers;
    }
    return WEFT_OK;
}

/* The address for workers: as given, else as bound, else the local address on the route to the
 * coordinator. */
weft_status weft_server_publish(struct server *server, struct weft_error *error)
{
    struct weft_member_address addresses[WEFT_JOB_SHARDS_MAX];
    char host[WEFT_RESOLVE_TEXT_BYTES];
    const char *named =
        server->advertise != NULL ? server->advertise : server->each.driver.udp.host;
    weft_status status = weft_resolve(named, host, error);
    if (status == WEFT_OK && weft_resolve_is_wildcard(host)) {
        char coordinator[WEFT_RESOLVE_TEXT_BYTES];
        status = weft_resolve(server->membership.launch.coordinator_host, coordinator, error);
        status = status == WEFT_OK ? weft_resolve_local(coordinator, host, error) : status;
    }
    for (uint32_t i = 0; status == WEFT_OK && i < server->started; i++) {
        status = weft_resolve_member_address(host, server->threads[i].port, &addresses[i], error);
    }
    if (status != WEFT_OK) {
        return WEFT_IO;
    }
    weft_member_thread_publish(server->membership.thread, addresses);
    return WEFT_OK;
}

/* The spool's name contains the number of the first shard. */
static weft_status open_records(struct server *server, struct weft_error *error)
{
    weft_status status = weft_recording_open(&server->recording, "server", server->shard_base,
                                             weft_output_log("server", false), error);
    return status == WEFT_OK ? WEFT_OK : WEFT_IO;
}

weft_status weft_server_start(struct server *server, int signal_fd, struct weft_error *error)
{
    signal_fd_asked = signal_fd;
    weft_status status = WEFT_OK;
    if (server->coordinate_port != UINT32_MAX) {
        status = coordinate(server, error);
    }
    bool has_coordinator = weft_membership_has_coordinator(&server->membership);
    /* A replica has no lease yet; its server has it. */
    has_coordinator &= server->replica_of == NULL;
    if (status == WEFT_OK && has_coordinator) {
        status = weft_server_join(server, error);
    }
    /* The shards that this server was assigned determine what is restored. */
    status = status == WEFT_OK ? open_checkpoints(server, error) : status;
    status = status == WEFT_OK ? open_records(server, error) : status;
    status = status == WEFT_OK ? start_shards(server, error) : status;
    status = status == WEFT_OK ? begin_checkpoints(server, error) : status;
    status = status == WEFT_OK ? start_metrics(server, error) : status;
    if (status == WEFT_OK && has_coordinator) {
        status = weft_server_publish(server, error);
    }
    return status;
}
