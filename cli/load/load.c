/* `weft load`: load generator with many logical workers on one host, as pgbench for PostgreSQL. */
#include "cli/load/run.h"
#include "cli/node_options.h"
#include "cli/output.h"
#include "cli/stop.h"
#include "cli/verbs.h"
#include "node/recording.h"
#include "ps/hot_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    THREADS_MAX = 64,
    BUSY_POLL_US_MAX = 10000,
    FDS_SPARE = 64,
    PEER_TIMEOUT_S = 60, /* hundreds of endpoints share a few CPUs: slow replies are no failure */
};

/* ---- checks ---------------------------------------------------------------------------------- */

static int check_keys(const struct weft_command *command, struct weft_load *load)
{
    const struct weft_load_workload *w = &load->workload;
    double exponent;
    if (w->id_bits == 32 && w->keys > UINT64_C(1) << 32) {
        return weft_options_usage(command, "--id-bits 32 allows at most 4294967296 keys");
    }
    if (weft_zipf_calibrate(w->top.keys, w->keys, w->top.share, &exponent) != WEFT_OK ||
        weft_zipf_init(&load->zipf, w->keys, exponent, (uint8_t)w->id_bits, w->seed) != WEFT_OK) {
        return weft_options_usage(command,
                                  "--zipf-top %llu:%g cannot be combined with --keys %llu: the "
                                  "most popular keys must be fewer than all keys, and their "
                                  "fraction of the updates must be at least their fraction of the "
                                  "keys (%g)",
                                  (unsigned long long)w->top.keys, w->top.share,
                                  (unsigned long long)w->keys,
                                  (double)w->top.keys / (double)w->keys);
    }
    return WEFT_OPTIONS_RUN;
}

static const char *parse_via(const char *text, void *value)
{
    struct weft_load_vias *vias = value;
    if (vias->count == WEFT_LOAD_VIAS_MAX) {
        return "at most 64 aggregators";
    }
    vias->texts[vias->count++] = text;
    return NULL;
}

static int check_vias(const struct weft_command *command, struct weft_load *load)
{
    struct weft_load_vias *vias = &load->vias;
    if (vias->count > 0 && load->server_list == NULL) {
        return weft_options_usage(command,
                                  "--via requires --servers: an aggregator needs the server "
                                  "addresses before it has workers");
    }
    if (vias->count == 0 && load->hot_rows > 0) {
        return weft_options_usage(command,
                                  "--hot-rows requires --via: hot rows are sent through an "
                                  "aggregator, all others to the servers");
    }
    for (uint32_t i = 0; i < vias->count; i++) {
        if (!weft_worker_via_parse(vias->texts[i], vias->at[i], load->servers.count)) {
            return weft_options_usage(command,
                                      "--via \"%.80s\" is not allowed; it must be the HOST:PORT of "
                                      "`weft aggregate`, or one for each of the %u shards",
                                      vias->texts[i], load->servers.count);
        }
    }
    uint32_t *eviction_p = &load->workload.eviction;
    if (vias->count > 0 && *eviction_p == WEFT_LOAD_LRU) {
        return weft_options_usage(command,
                                  "--eviction lru cannot be combined with --via: aggregators serve "
                                  "only tables that evict no rows; use --eviction none, or leave "
                                  "out --via");
    }
    if (*eviction_p == WEFT_LOAD_EVICTION_AUTO) {
        *eviction_p = vias->count > 0 ? WEFT_LOAD_NO_EVICTION : WEFT_LOAD_LRU;
    }
    return WEFT_OPTIONS_RUN;
}

static int check(const struct weft_command *command, struct weft_load *load)
{
    struct weft_load_workload *w = &load->workload;
    int status = check_keys(command, load);
    if (status != WEFT_OPTIONS_RUN || load->print_workload) {
        return status;
    }
    if (load->server_list != NULL && w->shards != 0) {
        return weft_options_usage(command,
                                  "--servers and --local (or --scale) are mutually exclusive");
    }
    if (load->server_list == NULL && w->shards == 0) {
        return weft_options_usage(command, "--servers or --local is missing: --local S starts S "
                                           "shards, --servers uses running ones");
    }
    if (load->server_list != NULL &&
        weft_launch_servers_parse(load->server_list, load->servers.shards, WEFT_LOAD_SHARDS_MAX,
                                  &load->servers.count) != NULL) {
        return weft_options_usage(command,
                                  "--servers \"%.80s\" is not allowed; it must be HOST:PORT,... "
                                  "with at most %d shards",
                                  load->server_list, (int)WEFT_LOAD_SHARDS_MAX);
    }
    status = check_vias(command, load);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    if (w->shards != 0 && load->servers.server_pid != 0) {
        return weft_options_usage(command, "--server-pid requires --servers");
    }
    load->threads = load->threads < w->workers ? load->threads : w->workers;
    status = weft_security_check(command, &load->security);
    return status != WEFT_OPTIONS_RUN
               ? status
               : weft_transport_options_check(command, &load->transport, 0, NULL);
}

/* An endpoint has a socket, an epoll instance, an eventfd and a timerfd. Over TCP it also has a
 * socket per shard, and so has the shard. */
static bool enough_files(const struct weft_load *load)
{
    const struct weft_load_workload *w = &load->workload;
    bool tcp = load->transport.kind == WEFT_DRIVER_TCP;
    uint64_t shards = load->servers.count != 0 ? load->servers.count : w->shards;
    uint64_t ways = load->vias.count > 0 ? 2 * shards : shards;
    uint64_t wanted = (uint64_t)w->workers * (4 + (tcp ? ways : 0)) +
                      (uint64_t)w->shards * (5 + (tcp ? w->workers : 0)) + FDS_SPARE;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) {
        return true;
    }
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < wanted) {
        fprintf(stderr,
                "weft load: %llu open files are needed, and the limit is %llu: use fewer "
                "--workers%s, or a higher limit (ulimit -Hn)\n",
                (unsigned long long)wanted, (unsigned long long)limit.rlim_cur,
                tcp ? " or shards" : "");
        return false;
    }
    return true;
}

/* ---- the run --------------------------------------------------------------------------------- */

static int report(const struct weft_load *load, const struct weft_load_outcome *outcome)
{
    if (!outcome->is_measured) {
        return weft_cli_fail("load", "interrupted before the measurement began");
    }
    if (load->json) {
        return weft_load_report_json(load, outcome) ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
    }
    weft_load_report_text(load, outcome);
    return WEFT_EXIT_OK;
}

/* Start the shards of this process, if any, and run the workers. */
static int serve_and_run(struct weft_load *load)
{
    struct weft_error error;
    weft_status status = WEFT_OK;
    struct weft_load_outcome *outcome = calloc(1, sizeof(*outcome));
    if (outcome == NULL) {
        status = weft_fail(&error, WEFT_NOMEM, "no memory");
    } else if (load->workload.shards != 0) {
        status = weft_load_servers_start(load, &error);
    }
    if (status == WEFT_OK) {
        status = weft_load_run(load, outcome, &error);
    }
    weft_load_servers_stop(&load->servers);
    int result = WEFT_EXIT_FAILED;
    if (status == WEFT_OK) {
        outcome->records_dropped = weft_recording_finish(&load->recording).dropped;
        result = report(load, outcome);
    } else {
        fprintf(stderr, "weft load: %s\n", error.text);
    }
    free(outcome);
    weft_load_servers_fini(&load->servers);
    return result;
}

static int run(struct weft_load *load)
{
    struct weft_error error;
    bool local = load->workload.shards != 0;
    int result = WEFT_EXIT_FAILED;
    if (!enough_files(load)) {
        return WEFT_EXIT_FAILED;
    }
    weft_stop_install();
    weft_stop_ignore_pipes();
    /* With --local, shards and workers are in this process, so a new key is as good as a given one.
     * The process may have both roles; the server's role includes what it needs. */
    if (weft_security_load(&load->security, local, &error) != WEFT_OK) {
        fprintf(stderr, "weft load: %s\n", error.text);
    } else if (weft_recording_open(&load->recording, local ? "server" : "worker", 0,
                                   weft_output_log("load", false), &error) != WEFT_OK) {
        fprintf(stderr, "weft load: --records: %s\n", error.text);
    } else {
        result = serve_and_run(load);
    }
    if (!weft_recording_close(&load->recording)) {
        result = WEFT_EXIT_FAILED;
    }
    weft_security_fini(&load->security);
    return result;
}

/* ---- the command line ------------------------------------------------------------------------ */

/* Read --workload before all other options, independent of its position, so that they take
 * precedence. */
static int read_workload(const struct weft_command *command, int argc, char **argv)
{
    static const char word[] = "--workload";
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], word) == 0 && i + 1 < argc) {
            return weft_load_workload_read(command, argv[i + 1]);
        }
        if (strncmp(argv[i], word, sizeof(word) - 1) == 0 && argv[i][sizeof(word) - 1] == '=') {
            return weft_load_workload_read(command, argv[i] + sizeof(word));
        }
    }
    return WEFT_OPTIONS_RUN;
}

static uint32_t default_threads(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return cpus < 1 ? 1 : cpus > THREADS_MAX ? THREADS_MAX : (uint32_t)cpus;
}

static int parse_and_run(const struct weft_command *command, struct weft_load *load, int argc,
                         char **argv)
{
    int status = read_workload(command, argc, argv);
    uint32_t shards = load->workload.shards;
    if (status == WEFT_OPTIONS_RUN) {
        load->workload.shards = 0;
        status = weft_options_parse(command, argc, argv);
    }
    /* --servers also takes precedence over `local` in the file. */
    if (load->workload.shards == 0 && load->server_list == NULL) {
        load->workload.shards = shards;
    }
    if (status == WEFT_OPTIONS_RUN) {
        status = check(command, load);
    }
    if (status == WEFT_OPTIONS_RUN && load->print_workload) {
        weft_load_workload_print(&load->workload, stdout);
        return fflush(stdout) == 0 ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
    }
    if (status == WEFT_OPTIONS_RUN) {
        status = weft_transport_options_find_cc(command, &load->transport);
    }
    return status == WEFT_OPTIONS_RUN ? run(load) : status;
}

int weft_cli_load(int argc, char **argv)
{
    static struct weft_load load; /* large, and there is one */
    load = (struct weft_load){.workload = WEFT_LOAD_WORKLOAD_DEFAULTS,
                              .security = WEFT_SECURITY_DEFAULTS,
                              .transport.peer_timeout_s =
                                  weft_launch_peer_timeout_s(PEER_TIMEOUT_S),
                              .threads = default_threads(),
                              .start_timeout_s = 5,
                              .servers = {.rows_max = 1u << 21},
                              .recording = WEFT_RECORDING_DEFAULTS};
    weft_recording_command(argc, argv);
    struct weft_load_workload *w = &load.workload;
    const struct weft_option options[] = {
        {"servers", "LIST",
         "HOST:PORT of every shard of running servers, in shard order,\n"
         "comma-separated; HOST is a numeric address",
         WEFT_OPTION_STRING, .value = &load.server_list, .fallback = ""},
        {"via", "HOST:PORT",
         "send pushes and pulls through this aggregator (`weft aggregate`), or\n"
         "one per shard, comma-separated; if given N times, worker r uses the\n"
         "one with index r modulo N. Needs --eviction none, which is the\n"
         "default with --via",
         WEFT_OPTION_CUSTOM, .value = &load.vias, .parse = parse_via, .fallback = "none"},
        {"hot-rows", "N",
         "with --via: send only hot rows (`weft server --hot-rows`), at most N of\n"
         "each shard, through the aggregator, and all others to the servers; 0 =\n"
         "send all rows through the aggregator",
         WEFT_OPTION_U32, .value = &load.hot_rows, .max = WEFT_HOT_ROWS_MAX},
        {"local", "S", "run S shards in this process, one thread each", WEFT_OPTION_U32,
         .value = &w->shards, .min = 1, .max = WEFT_LOAD_SHARDS_MAX, .fallback = ""},
        {"workers", "W", "logical workers, each with its own endpoint and rank",
         WEFT_OPTION_U32, .value = &w->workers, .min = 1, .max = WEFT_LOAD_WORKERS_MAX},
        {"scale", "NAME",
         "workers and shards of [imc20] Table 2: S1 = 80 + 20, S2 = 120 + 30,\n"
         "S3 = 160 + 40, S4 = 200 + 50, S5 = 240 + 60, S6 = 280 + 70",
         WEFT_OPTION_CUSTOM, .value = w, .parse = weft_load_parse_scale, .fallback = ""},
        {"rows", "N",
         "rows per request, sent to the shards that own them; 0 = empty\n"
         "requests, each to one shard: the minimum cost of an RPC",
         WEFT_OPTION_U32, .value = &w->rows, .max = WEFT_LOAD_ROWS_MAX},
        {"dim", "D", "floats per row", WEFT_OPTION_U32, .value = &w->dim, .min = 1, .max = 1024},
        {"mix", "PUSH:PULL", "ratio of pushes to pulls", WEFT_OPTION_CUSTOM,
         .value = &w->mix, .parse = weft_load_parse_mix, .fallback = "1:1"},
        {"keys", "K", "number of distinct keys", WEFT_OPTION_U64, .value = &w->keys, .min = 2,
         .max = UINT64_C(1) << 40},
        {"zipf-top", "N:F", "popularity by Zipf's law: the N most popular keys get the fraction F",
         WEFT_OPTION_CUSTOM, .value = &w->top, .parse = weft_load_parse_top,
         .fallback = "20000:0.5"},
        {"id-bits", "B", "width of the ids: 64 or 32 bits", WEFT_OPTION_CUSTOM,
         .value = &w->id_bits, .parse = weft_load_parse_id_bits, .fallback = "64"},
        {"eviction", "WHICH",
         "eviction when the table is full: lru = the least recently used row;\n"
         "none = new rows are rejected, and aggregators can be used;\n"
         "auto = none with --via, else lru",
         WEFT_OPTION_CHOICE, .value = &w->eviction, .choices = weft_load_evictions},
        {"in-flight", "N", "outstanding requests per worker", WEFT_OPTION_U32,
         .value = &w->in_flight, .min = 1, .max = WEFT_LOAD_IN_FLIGHT_MAX},
        {"rate", "R",
         "open loop: R requests/s over all workers, with Poisson arrivals\n"
         "independent of replies; latency is measured from the scheduled time",
         WEFT_OPTION_F64, .value = &w->rate, .least = 0.001, .most = 1e8,
         .fallback = "closed loop: the next request follows a reply"},
        {"seconds", "T", "seconds of measurement", WEFT_OPTION_F64, .value = &w->seconds,
         .least = 0.01, .most = 86400},
        {"warmup", "T", "seconds of load before that, which are not measured", WEFT_OPTION_F64,
         .value = &w->warmup, .most = 3600},
        {"seed", "N", "seed of keys, arrivals and the order of pushes and pulls", WEFT_OPTION_U64,
         .value = &w->seed},
        {"workload", "FILE",
         "read the workload from a file of `key = value`; command-line options\n"
         "take precedence",
         WEFT_OPTION_STRING, .value = &load.workload_file, .fallback = ""},
        {"print-workload", NULL, "print the workload in that format and exit", WEFT_OPTION_FLAG,
         .value = &load.print_workload},
        {"threads", "N", "threads that run the workers", WEFT_OPTION_U32, .value = &load.threads,
         .min = 1, .max = THREADS_MAX, .fallback = "one per CPU"},
        {"server-rows", "N",
         "with --local: rows of the table, over all shards; --eviction says what\n"
         "happens when it is full",
         WEFT_OPTION_U32, .value = &load.servers.rows_max, .min = 1024, .max = 1u << 28},
        {"server-pid", "PID", "with --servers: process whose CPU time is reported as the servers'",
         WEFT_OPTION_U32, .value = &load.servers.server_pid, .min = 1, .max = INT32_MAX,
         .fallback = "unknown"},
        {"start-timeout", "S",
         "with --servers: fail if no server replies for S seconds; earlier if\n"
         "the network or a server reports why the connection fails",
         WEFT_OPTION_U32, .value = &load.start_timeout_s, .min = 1, .max = 3600},
        {"busy-poll-us", "US", "with --local: shards busy-poll the socket for US before sleeping",
         WEFT_OPTION_U32, .value = &load.busy_poll_us, .max = BUSY_POLL_US_MAX},
        {"json", NULL, "print one JSON object instead of a table", WEFT_OPTION_FLAG,
         .value = &load.json},
        WEFT_RECORDING_ROWS(&load.recording),
        WEFT_METRICS_OPTIONS(&load.metrics),
        WEFT_TRANSPORT_ROWS(&load.transport),
        WEFT_KEY_CACHING_ROW(&load.workload.no_key_caching),
        WEFT_SECURITY_NETWORK_ROWS(&load.security),
        {0},
    };
    const struct weft_command command = {
        .name = "load",
        .summary = "load-test parameter servers with many simulated workers",
        .description =
        "Each worker has an endpoint, a rank and a connection to every shard; a few threads run\n"
        "all workers. Keys follow Zipf's law as measured in production ([imc20]: the top 20,000\n"
        "of 150 million get half of all updates). Prints throughput, request latencies, the five\n"
        "stages of an RPC, and the CPU time of servers and workers. Ctrl-C ends the run early and\n"
        "prints the result so far. docs/LOAD.md defines every value.",
        .example = "  weft load --local 1 --workers 200 --rows 64 --dim 16 --seconds 5\n"
                   "  weft load --local 1 --workers 200 --rows 0 --transport tcp --json\n"
                   "  weft load --scale S1 --zipf-top 20000:0.7 --rate 20000\n"
                   "  weft load --servers 10.0.0.1:7700,10.0.0.2:7700 --key-file job.key\n"
                   "  weft load --servers 10.0.0.1:7700 --via 10.0.0.3:7800 --key-file job.key",
        .options = options,
    };
    return parse_and_run(&command, &load, argc, argv);
}
