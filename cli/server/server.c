/* `weft server`: shards of the parameters, one thread and one port each, until told to end. */
#include "cli/child.h"
#include "cli/node_options.h"
#include "cli/server/internal.h"

#include "cli/server/deaths.h"
#include "cli/verbs.h"

enum { DEFAULT_WORKERS = 16, KEEPALIVE_MS = 5000 /* where a worker's death matters */ };

static int check_rest(const struct weft_command *command, struct server *server)
{
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
    if (server->replicate && server->checkpoints.directory != NULL) {
        return weft_options_usage(command, "--replicate does not go with --checkpoint yet: what a "
                                           "replica takes over is not in the directory");
    }
    server->checkpoints.journal.job = weft_journal_job(server->membership.launch.job);
    if (server->keepalive_ms == UINT32_MAX) {
        server->keepalive_ms =
            server->each.shard.on_death == WEFT_DEATH_WAIT ? 0 : KEEPALIVE_MS;
    }
    int status = WEFT_OPTIONS_RUN;
    if (server->scheduler != NULL) {
        status = weft_scheduler_address(command, server->scheduler, &server->scheduler_address);
    } else if (server->each.shard.delay_max > 0) {
        status = weft_options_usage(command, "--tau-max needs --scheduler: only workers that have "
                                             "one tell which model an update is of");
    }
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    status = weft_transport_options_check(command, &server->transport,
                                              server->each.driver.udp.loss.loss_ppm,
                                              server->trace);
    return status != WEFT_OPTIONS_RUN ? status
                                      : weft_security_check(command, &server->security);
}

/* Which shards a replica has is said by its options or its environment: it has no lease yet. */
static int check_replica(const struct weft_command *command, struct server *server)
{
    const struct weft_launch *launch = &server->membership.launch;
    uint32_t count = 0;
    if (launch->coordinator_port == 0) {
        return weft_options_usage(command, "--replica-of needs --coordinator: without its lease a "
                                           "replica must not take the place of a server");
    }
    if (!server->replicate) {
        return weft_options_usage(command, "--replica-of needs --replicate and --div-max, as its "
                                           "server has them");
    }
    if (weft_launch_servers_parse(server->replica_of, server->replicated, WEFT_JOB_SHARDS_MAX,
                                  &count) != NULL ||
        count != server->shards_here) {
        return weft_options_usage(command, "--replica-of \"%.80s\" is not allowed; it must be "
                                           "HOST:PORT of each of the %u shards here, with numeric "
                                           "hosts and commas between them",
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
               : weft_options_usage(command, "shards %u to %u do not lie within --shards %u",
                                    server->shard_base,
                                    server->shard_base + server->shards_here - 1,
                                    server->each.shard.shards);
}

/* What the table of options cannot say: how the options fit together. */
static int check(const struct weft_command *command, struct server *server)
{
    struct weft_shard_config *shard = &server->each.shard;
    struct weft_launch flags = weft_launch_nothing();
    flags.role = WEFT_LAUNCH_SERVER;
    flags.shards = shard->shards != 0 ? shard->shards : WEFT_LAUNCH_UNKNOWN;
    flags.workers = shard->workers_max != 0 ? shard->workers_max : WEFT_LAUNCH_UNKNOWN;
    /* A child of `weft train` is told everything; one of `weft run` has a coordinator. */
    bool environment = server->control_fd == 0 || server->membership.coordinator != NULL;
    int detected = weft_membership_detect(&server->membership, command, &flags,
                                          server->shards_here, environment);
    if (detected != WEFT_OPTIONS_RUN) {
        return detected;
    }
    const struct weft_launch *launch = &server->membership.launch;
    shard->workers_max =
        launch->workers != WEFT_LAUNCH_UNKNOWN ? launch->workers : DEFAULT_WORKERS;
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
        return weft_options_usage(command, "shards %u to %u do not lie within --shards %u",
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
    static struct server server; /* large, and there is one */
    server = (struct server){.port = 7700,
                             .transport = WEFT_TRANSPORT_DEFAULTS,
                             .shards_here = 1,
                             .shard_base = UINT32_MAX,
                             .coordinate_port = UINT32_MAX,
                             .membership = WEFT_MEMBERSHIP_DEFAULTS,
                             .keepalive_ms = UINT32_MAX,
                             .security = WEFT_SECURITY_DEFAULTS,
                             .recording = WEFT_RECORDING_DEFAULTS,
                             .checkpoints = WEFT_CHECKPOINT_DEFAULTS,
                             .channel = {.fd = -1}};
    weft_shard_thread_config_default(&server.each);
    struct weft_shard_config *shard = &server.each.shard;
    struct weft_udp_config *udp = &server.each.driver.udp;
    shard->shards = 0; /* not given; so is workers */
    shard->workers_max = 0;
    shard->rows_max = 4194304;
    shard->tables_max = 4;
    shard->dim_max = 64;
    shard->hot_top = 20000;
    udp->loss.seed = 1;
    const struct weft_option options[] = {
        {"host", "ADDRESS",
         "address to bind, numeric; 0.0.0.0 = every one of this host",
         WEFT_OPTION_STRING, .value = &udp->host},
        {"port", "P", "port (UDP; with --transport tcp TCP) of the first shard; the next ones follow; 0 = any free",
         WEFT_OPTION_U32, .value = &server.port, .max = UINT16_MAX},
        {"shards-per-server", "N", "shards, each a thread and a port", WEFT_OPTION_U32,
         .value = &server.shards_here, .min = 1, .max = WEFT_JOB_SHARDS_MAX},
        {"shard-base", "I", "number of the first shard here", WEFT_OPTION_U32,
         .value = &server.shard_base, .max = WEFT_JOB_SHARDS_MAX - 1,
         .fallback = "the launcher's rank times --shards-per-server, else 0"},
        {"shards", "N", "shards in the whole job", WEFT_OPTION_U32, .value = &shard->shards,
         .min = 1, .max = WEFT_JOB_SHARDS_MAX, .fallback = "those here and before"},
        {"workers", "N", "ranks 0 to N-1 may connect", WEFT_OPTION_U32,
         .value = &shard->workers_max, .min = 1, .max = WEFT_JOB_WORKERS_MAX, .fallback = "as the job says, else 16"},
        WEFT_MEMBERSHIP_ROWS(&server.membership),
        WEFT_SCHEDULER_ROW(&server.scheduler),
        {"tau-max", "N",
         "with a scheduler: refuse updates that would be applied more than N others\n"
         "after the model that they are computed from; 0 = none",
         WEFT_OPTION_U32, .value = &shard->delay_max, .max = WEFT_TAU_MAX_MAX},
        {"advertise", "ADDRESS", "a name or address of this host that workers reach it by",
         WEFT_OPTION_STRING, .value = &server.advertise,
         .fallback = "--host, or the way to the coordinator"},
        {"coordinate", "P", "be the coordinator, too, at this port; 0 = any free: for a job\n"
         "without `weft coordinator`; its members are lost when this ends",
         WEFT_OPTION_U32, .value = &server.coordinate_port, .max = UINT16_MAX,
         .fallback = "not"},
        {"rows-max", "N", "rows that a shard takes for each table; further ones are refused and\n"
         "counted",
         WEFT_OPTION_U32, .value = &shard->rows_max, .min = 1, .max = 1u << 28},
        {"table-bytes", "N",
         "bytes that a shard's part of a table may take, its index and the counts\n"
         "of its admission included; 0 = as many as rows-max rows need, and at\n"
         "most as many again for those counts",
         WEFT_OPTION_U64, .value = &shard->table_bytes_max},
        {"tables", "N", "tables that workers may make, numbered 0 to N-1", WEFT_OPTION_U32,
         .value = &shard->tables_max, .min = 1, .max = 4096},
        {"list-ids", "N", "ids of its newest pulls that each shard keeps of each worker, 8 bytes each,\n"
         "so that pushes of the same rows need not send them; 0 = none",
         WEFT_OPTION_U32, .value = &shard->list_ids, .max = 1u << 30},
        {"aggregators", "N", "take aggregates of `weft aggregate --number` 0 to N-1. Each shard has 32 MiB\n"
         "for each, used as needed", WEFT_OPTION_U32, .value = &shard->aggregators_max,
         .min = 1, .max = WEFT_SHARD_AGGREGATORS_MAX},
        {"dim-max", "N", "floats in the longest row of any table", WEFT_OPTION_U32,
         .value = &shard->dim_max, .min = 1, .max = WEFT_RPC_DIM_MAX},
        WEFT_TRANSPORT_ROWS(&server.transport),
        WEFT_SECURITY_NETWORK_ROWS(&server.security),
        {"inject-loss", "F", "drop this fraction of arriving datagrams on purpose", WEFT_OPTION_PPM,
         .value = &udp->loss.loss_ppm},
        {"inject-seed", "N", "of the dropped datagrams", WEFT_OPTION_U64,
         .value = &udp->loss.seed},
        {"busy-poll-us", "N", WEFT_JOB_BUSY_POLL_HELP, WEFT_OPTION_U32,
         .value = &udp->busy_poll_us, .max = WEFT_JOB_BUSY_POLL_US_MAX},
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
        WEFT_DEATHS_OPTION(&shard->on_death),
        WEFT_CHECKPOINT_ROWS(&server.checkpoints),
        WEFT_JOURNAL_ROWS(&server.checkpoints.journal),
        {"restore", NULL, "begin with the newest good checkpoint of --checkpoint, which may be of\n"
         "another number of shards", WEFT_OPTION_FLAG, .value = &server.checkpoints.restore},
        {"replicate", NULL, "take a replica of each shard, a `weft server --replica-of`: then answers wait\n"
         "while the model would be farther than --div-max from it", WEFT_OPTION_FLAG,
         .value = &server.replicate},
        {"div-max", "D", "with --replicate: Euclidean norm, over all weights of the job; 0 = every\n"
         "update is at the replica before it is answered", WEFT_OPTION_F64,
         .value = &server.div_max},
        {"replica-of", "HOST:PORT,...", "be a replica of the server with these shards, and take its place when\n"
         "the parent process says so, by the coordinator's lease",
         WEFT_OPTION_STRING, .value = &server.replica_of, .fallback = "not"},
        WEFT_METRICS_OPTIONS(&server.metrics_options),
        {"hot-top", "N",
         "rows of each table with most updates that a shard knows, for /hot and\n"
         "records; 16 bytes each; 0 = none",
         WEFT_OPTION_U32, .value = &shard->hot_top, .max = WEFT_HOT_TOP_MAX},
        {"trace", "FILE", WEFT_TRACING_HELP, WEFT_OPTION_STRING, .value = &server.trace,
         .fallback = "none"},
        WEFT_RECORDING_ROWS(&server.recording),
        WEFT_RECORDING_WINDOW_ROW(&server.recording),
        WEFT_RECORDING_CHILD_ROW(&server.recording),
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
