/* `weft server`: serves shards of the parameters, one thread and one port each, until it is
 * stopped. */
#include "cli/child.h"
#include "cli/node_options.h"
#include "cli/server/internal.h"

#include "cli/server/deaths.h"
#include "cli/verbs.h"
#include "ps/hot_rows.h"

enum {
    DEFAULT_WORKERS = 16,
    KEEPALIVE_MS = 5000, /* not with --on-death wait, which needs no early report of a death */
};

static int check_rest(const struct weft_command *command, struct server *server)
{
    if (server->port != 0 && server->port + server->shards_here - 1 > UINT16_MAX) {
        return weft_options_usage(command, "--port %u leaves too few ports for %u shards",
                                  server->port, server->shards_here);
    }
    if (server->checkpoints.restore && server->checkpoints.directory == NULL) {
        return weft_options_usage(command, "--restore requires --checkpoint DIR");
    }
    if (server->checkpoints.journal.directory != NULL && server->checkpoints.directory == NULL) {
        return weft_options_usage(command, "--journal requires --checkpoint: the journal has the "
                                           "changes since the newest checkpoint");
    }
    if (server->replicate && server->checkpoints.directory != NULL) {
        return weft_options_usage(command,
                                  "--replicate cannot be combined with --checkpoint: a promoted "
                                  "replica does not know which rows the newest checkpoint "
                                  "has, has no journal to continue, and no claim on the "
                                  "directory");
    }
    /* Hot rows are selected among the tracked ones: track at least 1.5 times as many. */
    if (server->each.shard.hot_rows > 0) {
        server->each.shard.hot_top = (uint32_t)weft_max_u64(
            server->each.shard.hot_top, (uint64_t)server->each.shard.hot_rows * 3 / 2 + 1);
    }
    server->checkpoints.journal.job = weft_journal_job(server->membership.launch.job);
    if (server->keepalive_ms == UINT32_MAX) {
        server->keepalive_ms = server->each.shard.on_death == WEFT_DEATH_WAIT ? 0 : KEEPALIVE_MS;
    }
    int status = WEFT_OPTIONS_RUN;
    if (server->scheduler != NULL) {
        status = weft_scheduler_address(command, server->scheduler, &server->scheduler_address);
    } else if (server->each.shard.delay_max > 0) {
        status = weft_options_usage(command, "--tau-max requires --scheduler: only workers with a "
                                             "scheduler send the model version of an update");
    } else if (server->link_mbps > 0) {
        status = weft_options_usage(command, "--link-mbps requires --scheduler, which plans with "
                                             "it");
    }
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    status = weft_transport_options_check(command, &server->transport,
                                          server->each.driver.udp.loss.loss_ppm, server->trace);
    return status != WEFT_OPTIONS_RUN ? status : weft_security_check(command, &server->security);
}

/* Options or the environment determine the shards of a replica, since it has no lease yet. */
static int check_replica(const struct weft_command *command, struct server *server)
{
    const struct weft_launch *launch = &server->membership.launch;
    uint32_t count = 0;
    if (launch->coordinator_port == 0) {
        return weft_options_usage(command,
                                  "--replica-of requires --coordinator: a replica must not "
                                  "replace a server without its lease");
    }
    if (!server->replicate) {
        return weft_options_usage(command, "--replica-of requires --replicate and --div-max, with "
                                           "the values of its server");
    }
    if (weft_launch_servers_parse(server->replica_of, server->replicated, WEFT_JOB_SHARDS_MAX,
                                  &count) != NULL ||
        count != server->shards_here) {
        return weft_options_usage(command,
                                  "--replica-of \"%.80s\" is not allowed; it must be the "
                                  "HOST:PORT of each of the %u shards here, "
                                  "comma-separated, with numeric hosts",
                                  server->replica_of, server->shards_here);
    }
    if (server->shard_base == UINT32_MAX) {
        server->shard_base =
            launch->rank != WEFT_LAUNCH_UNKNOWN ? launch->rank * server->shards_here : 0;
    }
    server->each.shard.shards = launch->shards != WEFT_LAUNCH_UNKNOWN
                                    ? launch->shards
                                    : server->shard_base + server->shards_here;
    return server->shard_base + server->shards_here <= server->each.shard.shards
               ? WEFT_OPTIONS_RUN
               : weft_options_usage(
                     command, "shards %u to %u are not within --shards %u", server->shard_base,
                     server->shard_base + server->shards_here - 1, server->each.shard.shards);
}

/* Checks that concern several options. */
static int check(const struct weft_command *command, struct server *server)
{
    struct weft_shard_config *shard = &server->each.shard;
    struct weft_launch flags = weft_launch_nothing();
    flags.role = WEFT_LAUNCH_SERVER;
    flags.shards = shard->shards != 0 ? shard->shards : WEFT_LAUNCH_UNKNOWN;
    flags.workers = shard->workers_max != 0 ? shard->workers_max : WEFT_LAUNCH_UNKNOWN;
    /* A child of `weft train` gets all settings as options; one of `weft run` has a coordinator. */
    bool environment = server->control_fd == 0 || server->membership.coordinator != NULL;
    int detected = weft_membership_detect(&server->membership, command, &flags, server->shards_here,
                                          environment);
    if (detected != WEFT_OPTIONS_RUN) {
        return detected;
    }
    const struct weft_launch *launch = &server->membership.launch;
    shard->workers_max = launch->workers != WEFT_LAUNCH_UNKNOWN ? launch->workers : DEFAULT_WORKERS;
    if (server->replica_of != NULL) {
        int status = check_replica(command, server);
        return status != WEFT_OPTIONS_RUN ? status : check_rest(command, server);
    }
    bool in_job = launch->coordinator_port != 0 || server->coordinate_port != UINT32_MAX;
    if (in_job) {
        return check_rest(command, server);
    }
    shard->shards = launch->shards != WEFT_LAUNCH_UNKNOWN ? launch->shards : 0;
    if (server->shard_base == UINT32_MAX) {
        bool has_rank = launch->rank != WEFT_LAUNCH_UNKNOWN;
        server->shard_base = has_rank ? launch->rank * server->shards_here : 0;
    }
    if (shard->shards == 0) {
        shard->shards = server->shard_base + server->shards_here;
    }
    if (server->shard_base + server->shards_here > shard->shards) {
        return weft_options_usage(command, "shards %u to %u are not within --shards %u",
                                  server->shard_base, server->shard_base + server->shards_here - 1,
                                  shard->shards);
    }
    return check_rest(command, server);
}

static int load_and_serve(struct server *server)
{
    struct weft_error error = {.text = ""};
    weft_status status = weft_security_load(&server->security, false, &error);
    int result = status == WEFT_OK ? weft_server_serve(server)
                                   : weft_child_exit(&server->channel, "server", status, &error);
    weft_security_fini(&server->security);
    return result;
}

int weft_cli_server(int argc, char **argv)
{
    static struct server server; /* static because it is large */
    server = (struct server){.port = 7700,
                             .transport = WEFT_TRANSPORT_DEFAULTS,
                             .shards_here = 1,
                             .shard_base = UINT32_MAX,
                             .coordinate_port = UINT32_MAX,
                             .membership = WEFT_MEMBERSHIP_DEFAULTS,
                             .keepalive_ms = UINT32_MAX,
                             .hot_epoch_ms = 10000,
                             .security = WEFT_SECURITY_DEFAULTS,
                             .recording = WEFT_RECORDING_DEFAULTS,
                             .checkpoints = WEFT_CHECKPOINT_DEFAULTS,
                             .channel = {.fd = -1}};
    weft_shard_thread_config_default(&server.each);
    struct weft_shard_config *shard = &server.each.shard;
    struct weft_udp_config *udp = &server.each.driver.udp;
    shard->shards = 0; /* 0 = not given; the same for workers_max */
    shard->workers_max = 0;
    shard->rows_max = 4194304;
    shard->tables_max = 4;
    shard->dim_max = 64;
    shard->hot_top = 20000;
    udp->loss.seed = 1;
    const struct weft_option options[] = {
        {"host", "ADDRESS",
         "numeric address to bind; 0.0.0.0 = every address of this host",
         WEFT_OPTION_STRING, .value = &udp->host},
        {"port", "P",
         "port of the first shard (UDP, or TCP with --transport tcp); further\n"
         "shards use the next ports; 0 = any free",
         WEFT_OPTION_U32, .value = &server.port, .max = UINT16_MAX},
        {"shards-per-server", "N", "shards to serve; each has a thread and a port", WEFT_OPTION_U32,
         .value = &server.shards_here, .min = 1, .max = WEFT_JOB_SHARDS_MAX},
        {"shard-base", "I", "number of this server's first shard", WEFT_OPTION_U32,
         .value = &server.shard_base, .max = WEFT_JOB_SHARDS_MAX - 1,
         .fallback = "the launcher's rank times --shards-per-server, else 0"},
        {"shards", "N", "shards in the whole job", WEFT_OPTION_U32, .value = &shard->shards,
         .min = 1, .max = WEFT_JOB_SHARDS_MAX, .fallback = "--shard-base plus --shards-per-server"},
        {"workers", "N", "ranks 0 to N-1 may connect", WEFT_OPTION_U32,
         .value = &shard->workers_max, .min = 1, .max = WEFT_JOB_WORKERS_MAX,
         .fallback = "from the coordinator, else 16"},
        WEFT_MEMBERSHIP_ROWS(&server.membership),
        WEFT_SCHEDULER_ROW(&server.scheduler, "none"),
        WEFT_LINK_MBPS_ROW(&server.link_mbps),
        {"tau-max", "N",
         "with a scheduler: reject an update if more than N other updates would\n"
         "be applied between its base version (the model that it is computed\n"
         "from) and the update; 0 = no bound",
         WEFT_OPTION_U32, .value = &shard->delay_max, .max = WEFT_TAU_MAX_MAX},
        {"advertise", "ADDRESS", "name or address of this host that workers connect to",
         WEFT_OPTION_STRING, .value = &server.advertise,
         .fallback = "--host; if it is a wildcard, the local address on the route to the "
                     "coordinator"},
        {"coordinate", "P", "also run the coordinator, on this port; 0 = any free. For a job\n"
                            "without `weft coordinator`; the membership is lost when this server\n"
                            "ends",
         WEFT_OPTION_U32, .value = &server.coordinate_port, .max = UINT16_MAX,
         .fallback = "none"},
        {"rows-max", "N", "maximum number of rows of each table per shard; more are rejected and\n"
                          "counted",
         WEFT_OPTION_U32, .value = &shard->rows_max, .min = 1, .max = 1u << 28},
        {"table-bytes", "N",
         "maximum memory in bytes of a table per shard, including its index and\n"
         "its admission counters; 0 = as needed for --rows-max rows, plus at most\n"
         "as much again for the admission counters",
         WEFT_OPTION_U64, .value = &shard->table_bytes_max},
        {"tables", "N", "tables that workers may create, numbered 0 to N-1", WEFT_OPTION_U32,
         .value = &shard->tables_max, .min = 1, .max = 4096},
        {"list-ids", "N", "row ids that each shard caches per worker, from its latest pulls, 8\n"
                          "bytes each, so that pushes of the same rows need not send them; 0 =\n"
                          "none",
         WEFT_OPTION_U32, .value = &shard->list_ids, .max = 1u << 30},
        {"aggregators", "N",
         "accept connections of the aggregators with --number 0 to N-1; each\n"
         "shard uses up to 32 MiB for the sums of each aggregator, and memory\n"
         "for 4 of its pulls",
         WEFT_OPTION_U32, .value = &shard->aggregators_max,
         .min = 1, .max = WEFT_SHARD_AGGREGATORS_MAX},
        {"dim-max", "N", "floats in the longest row of any table", WEFT_OPTION_U32,
         .value = &shard->dim_max, .min = 1, .max = WEFT_RPC_DIM_MAX},
        WEFT_TRANSPORT_ROWS(&server.transport),
        WEFT_SECURITY_NETWORK_ROWS(&server.security),
        {"inject-loss", "F", "drop this fraction of arriving datagrams on purpose", WEFT_OPTION_PPM,
         .value = &udp->loss.loss_ppm},
        {"inject-seed", "N", "seed of the random choice of dropped datagrams", WEFT_OPTION_U64,
         .value = &udp->loss.seed},
        {"busy-poll-us", "N", WEFT_JOB_BUSY_POLL_HELP, WEFT_OPTION_U32,
         .value = &udp->busy_poll_us, .max = WEFT_JOB_BUSY_POLL_US_MAX},
        {"keepalive-ms", "N",
         "probe a worker that sent nothing for N ms; without a reply within\n"
         "--peer-timeout it is declared dead. 0 = probe only workers with\n"
         "outstanding replies. Choose N larger than the longest step of a\n"
         "worker, or use --progress-thread engine in the workers",
         WEFT_OPTION_U32, .value = &server.keepalive_ms, .max = WEFT_JOB_SPAN_MS_MAX,
         .fallback = "0, but 5000 with --on-worker-death shrink or fail"},
        {"idle-timeout-ms", "N",
         "close a worker's connection after N ms without a packet, if nothing is\n"
         "outstanding; 0 = never",
         WEFT_OPTION_U32, .value = &server.idle_timeout_ms, .max = WEFT_JOB_SPAN_MS_MAX},
        WEFT_DEATHS_OPTION(&shard->on_death),
        WEFT_CHECKPOINT_ROWS(&server.checkpoints),
        WEFT_JOURNAL_ROWS(&server.checkpoints.journal),
        {"restore", NULL, "start from the newest valid checkpoint of --checkpoint, which may have\n"
                          "a different number of shards", WEFT_OPTION_FLAG,
                          .value = &server.checkpoints.restore},
        {"replicate", NULL, "accept a replica of each shard (`weft server --replica-of`); replies\n"
                            "are delayed while the divergence from the replica would exceed\n"
                            "--div-max", WEFT_OPTION_FLAG,
         .value = &server.replicate},
        {"div-max", "D", "with --replicate: maximum divergence, the Euclidean norm of the\n"
                         "difference over all weights of the job; 0 = every update is replicated\n"
                         "before the reply", WEFT_OPTION_F64,
         .value = &server.div_max},
        {"replica-of", "HOST:PORT,...",
         "run as a replica of the server with these shards; when `weft run`\n"
         "requests promotion, take over that server's lease at the coordinator",
         WEFT_OPTION_STRING, .value = &server.replica_of, .fallback = "none"},
        WEFT_METRICS_OPTIONS(&server.metrics_options),
        {"hot-top", "N",
         "number of rows that a shard tracks in each table, those with the most\n"
         "updates, for the URL /hot of --metrics and for --records; 16 bytes each;\n"
         "0 = none",
         WEFT_OPTION_U32, .value = &shard->hot_top, .max = WEFT_HOT_TOP_MAX},
        {"hot-rows", "N",
         "select the N rows of each table per shard with the most updates as hot.\n"
         "Workers with --hot-rows send hot rows through aggregators, and other\n"
         "rows directly to this server. 0 = workers send whole pushes through\n"
         "aggregators",
         WEFT_OPTION_U32, .value = &shard->hot_rows, .max = WEFT_HOT_ROWS_MAX},
        {"hot-epoch-ms", "N", "with --hot-rows: select the hot rows at most once in N ms",
         WEFT_OPTION_U32, .value = &server.hot_epoch_ms, .min = 1, .max = WEFT_JOB_SPAN_MS_MAX},
        {"trace", "FILE", WEFT_TRACING_HELP, WEFT_OPTION_STRING, .value = &server.trace,
         .fallback = "none"},
        WEFT_RECORDING_ROWS(&server.recording),
        WEFT_RECORDING_WINDOW_ROW(&server.recording),
        WEFT_RECORDING_CHILD_ROW(&server.recording),
        {"ports", "P,...", "one port per shard, from `weft run`", WEFT_OPTION_STRING,
         .value = &server.ports, .hidden = true},
        {"restarted", NULL, "replaces a server that was ready and died, from `weft run`",
         WEFT_OPTION_FLAG,
         .value = &server.restarted, .hidden = true},
        {"control-fd", "FD", "channel to `weft train`", WEFT_OPTION_U32,
         .value = &server.control_fd, .hidden = true},
        {0},
    };
    const struct weft_command command = {
        .name = "server",
        .summary = "serve shards of the parameters",
        .description =
            "Each shard is one thread with one port and a slice of all rows; workers list the\n"
            "addresses of all shards in order. Prints a line for each shard when it is ready. "
            "Ctrl-C\n"
            "or SIGTERM stops the server; it then prints its counters as a JSON object.",
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
        status = weft_transport_options_find_cc(&command, &server.transport);
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
