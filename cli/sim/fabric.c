/* `weft sim fabric`: a training job at flow or packet level, under a transfer scheduling policy. */
#include "cli/sim/fabric.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"

#include "io/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mode {
    enum weft_fabric_mode mode;
    uint32_t staleness;
};

struct fabric {
    struct weft_fabric_config config;
    struct mode mode;
    const char *compute;
    const char *network;
    double div_max;
    double seconds;
    const char *gantt;
    const char *chrome;
    bool grid;
    bool json;
};

static const char *parse_mode(const char *text, void *value)
{
    static const char allowed[] = "async, ssp:N (such as ssp:2) or sync";
    struct mode *mode = value;
    char *end = NULL;
    if (strcmp(text, "async") == 0 || strcmp(text, "sync") == 0) {
        *mode = (struct mode){text[0] == 'a' ? WEFT_FABRIC_ASYNC : WEFT_FABRIC_SYNC, 0};
        return NULL;
    }
    if (strncmp(text, "ssp:", 4) != 0 || text[4] < '0' || text[4] > '9') {
        return allowed;
    }
    errno = 0;
    unsigned long staleness = strtoul(text + 4, &end, 10);
    if (errno != 0 || *end != '\0' || staleness > 1000000) {
        return allowed;
    }
    *mode = (struct mode){WEFT_FABRIC_SSP, (uint32_t)staleness};
    return NULL;
}

static uint64_t clock_ns(void *arg)
{
    (void)arg;
    return weft_clock_now_ns();
}

/* ---- figures --------------------------------------------------------------------------------- */

void weft_cli_fabric_add_result(cJSON *o, const struct weft_fabric_config *config,
                                const struct weft_fabric_result *r)
{
    bool served = !weft_fabric_is_all_reduce(config->policy);
    cJSON_AddNumberToObject(o, "commits", (double)r->commits);
    cJSON_AddNumberToObject(o, "commits_per_s",
                            (double)r->commits / ((double)config->duration_ns / 1e9));
    cJSON_AddNumberToObject(o, "dropped", (double)r->dropped);
    cJSON *delay = cJSON_AddObjectToObject(o, "delay");
    cJSON_AddNumberToObject(delay, "mean", r->delay_mean);
    cJSON_AddNumberToObject(delay, "sd", r->delay_sd);
    cJSON_AddNumberToObject(delay, "p99", (double)r->delay_p99);
    cJSON_AddNumberToObject(delay, "max", (double)r->delay_max);
    cJSON_AddNumberToObject(o, "share_min", r->share_min);
    weft_json_add_known(o, "server_link_utilization", r->server_link_utilization, served);
    if (!r->has_replica) {
        cJSON_AddNullToObject(o, "replication");
    } else {
        cJSON_AddStringToObject(
            o, "replication",
            config->is_chained || config->policy == WEFT_FABRIC_FAIR ? "chain" : "bounded");
    }
    weft_json_add_known(o, "replica_divergence_max", r->replica_divergence_max, r->has_replica);
    cJSON_AddNumberToObject(o, "replica_bytes", (double)r->replica_bytes);
    cJSON_AddNumberToObject(o, "update_bytes", (double)r->update_bytes);
    cJSON_AddNumberToObject(o, "aggregates", (double)r->groups);
    cJSON_AddNumberToObject(o, "aggregated", (double)r->grouped);
    weft_json_add_known(o, "rounds", (double)r->rounds, config->mode == WEFT_FABRIC_SYNC);
    weft_json_add_known(o, "makespan_s", (double)r->makespan_ns / 1e9, r->makespan_ns > 0);
}

static cJSON *json_of(const struct weft_fabric_config *config, const struct weft_fabric_result *r)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddBoolToObject(o, "ok", r->ok);
    cJSON_AddStringToObject(o, "level", weft_fabric_level_name(config->level));
    cJSON_AddStringToObject(o, "policy", weft_fabric_policy_name(config->policy));
    cJSON_AddStringToObject(o, "mode", weft_fabric_mode_name(config->mode));
    weft_json_add_known(o, "staleness", config->staleness, config->mode == WEFT_FABRIC_SSP);
    cJSON_AddStringToObject(o, "compute", config->compute.name);
    cJSON_AddStringToObject(o, "network", config->network.name);
    cJSON_AddNumberToObject(o, "workers", config->workers);
    cJSON_AddNumberToObject(o, "servers", config->servers);
    cJSON_AddNumberToObject(o, "seconds", (double)config->duration_ns / 1e9);
    cJSON_AddNumberToObject(o, "seed", (double)config->seed);
    weft_cli_fabric_add_result(o, config, r);
    bool has_packets = config->level == WEFT_FABRIC_PACKETS;
    weft_json_add_known(o, "packets", (double)r->packets, has_packets);
    weft_json_add_known(o, "packets_retransmitted", (double)r->packets_again, has_packets);
    weft_json_add_known(o, "packets_dropped", (double)r->packets_dropped, has_packets);
    cJSON *by_worker = cJSON_AddArrayToObject(o, "commits_by_worker");
    for (uint32_t i = 0; i < config->workers; i++) {
        cJSON_AddItemToArray(by_worker, cJSON_CreateNumber((double)r->commits_by_worker[i]));
    }
    if (r->plan_ns.count > 0) {
        (void)weft_json_add_times(o, "plan_us", &r->plan_ns, WEFT_TIMES_P50 | WEFT_TIMES_P99, 1000);
    } else {
        cJSON_AddNullToObject(o, "plan_us");
    }
    return o;
}

static void print_text(const struct weft_fabric_config *config, const struct weft_fabric_result *r)
{
    printf("%s, %s", weft_fabric_policy_name(config->policy), weft_fabric_mode_name(config->mode));
    if (config->mode == WEFT_FABRIC_SSP) {
        printf(":%" PRIu32, config->staleness);
    }
    printf(": %" PRIu32 " workers, %" PRIu32 " servers, compute %s, network %s, %g s, seed %" PRIu64
           "\n",
           config->workers, config->servers, config->compute.name, config->network.name,
           (double)config->duration_ns / 1e9, config->seed);
    printf("commits   %" PRIu64 ", %.3f a second; %" PRIu64 " updates dropped; minimum of a worker "
           "%.3f of the mean\n",
           r->commits, (double)r->commits / ((double)config->duration_ns / 1e9), r->dropped,
           r->share_min);
    printf("delay     mean %.2f, sd %.2f, p99 %" PRIu64 ", max %" PRIu64 "\n", r->delay_mean,
           r->delay_sd, r->delay_p99, r->delay_max);
    if (!weft_fabric_is_all_reduce(config->policy)) {
        printf("servers   %.1f %% of their links used, %.1f MB of updates; %" PRIu64
               " of them in %" PRIu64 " aggregates\n",
               100 * r->server_link_utilization, (double)r->update_bytes / 1e6, r->grouped,
               r->groups);
    }
    if (r->has_replica) {
        printf("replicas  at most %.2f mean norms behind, %.1f MB\n", r->replica_divergence_max,
               (double)r->replica_bytes / 1e6);
    }
    if (r->makespan_ns > 0) {
        printf("rounds    %" PRIu64 ", %.6f s each\n", r->rounds, (double)r->makespan_ns / 1e9);
    }
    if (config->level == WEFT_FABRIC_PACKETS) {
        printf("packets   %" PRIu64 ", %" PRIu64 " of them retransmitted, %" PRIu64
               " dropped by switches\n",
               r->packets, r->packets_again, r->packets_dropped);
    }
    if (r->plan_ns.count > 0) {
        printf("planning  %" PRIu64 " times, p50 %.1f us, p99 %.1f us of this machine\n", r->plans,
               (double)weft_hist_quantile(&r->plan_ns, 500000) / 1e3,
               (double)weft_hist_quantile(&r->plan_ns, 990000) / 1e3);
    }
}

/* ---- one run --------------------------------------------------------------------------------- */

static bool draw(const struct fabric *fabric, const struct weft_cli_fabric_spans *spans)
{
    if (spans->lost) {
        (void)weft_cli_fail("sim fabric", "out of memory; try fewer --seconds");
        return false;
    }
    return (fabric->gantt == NULL ||
            weft_cli_fabric_gantt(fabric->gantt, &fabric->config, spans)) &&
           (fabric->chrome == NULL ||
            weft_cli_fabric_chrome(fabric->chrome, &fabric->config, spans));
}

static int fabric_run(struct fabric *fabric)
{
    static struct weft_fabric_result result;
    struct weft_cli_fabric_spans spans = {0};
    fabric->config.clock_ns = clock_ns;
    if (fabric->gantt != NULL || fabric->chrome != NULL) {
        fabric->config.on_span = weft_cli_fabric_take_span;
        fabric->config.span_arg = &spans;
    }
    weft_fabric_run(&fabric->config, &result);
    bool drawn = draw(fabric, &spans);
    free(spans.spans);
    if (fabric->json && !weft_output_json("sim fabric", json_of(&fabric->config, &result), false)) {
        return WEFT_EXIT_FAILED;
    }
    if (!fabric->json) {
        print_text(&fabric->config, &result);
    }
    if (!result.ok) {
        return weft_cli_fail("sim fabric", "%s", result.failure);
    }
    return drawn ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

/* Checks between options. NULL, or the error. */
static const char *settle(struct fabric *fabric, char error[WEFT_CLI_FABRIC_ERROR_BYTES])
{
    struct weft_fabric_config *config = &fabric->config;
    config->mode = fabric->mode.mode;
    config->staleness = fabric->mode.staleness;
    config->div_max = fabric->div_max;
    config->tau_max = config->tau_max > 0 ? config->tau_max : UINT64_C(2) * config->workers;
    config->read_credits =
        config->read_credits > 0 ? config->read_credits : (2 * config->workers + 4) / 5;
    config->duration_ns = (uint64_t)(fabric->seconds * 1e9);
    if (fabric->compute != NULL &&
        !weft_cli_fabric_compute(fabric->compute, &config->compute, error)) {
        return error;
    }
    if (fabric->network != NULL &&
        !weft_cli_fabric_network(fabric->network, &config->network, error)) {
        return error;
    }
    if (fabric->grid && (fabric->compute != NULL || fabric->network != NULL)) {
        return "--grid has its own settings: omit --compute and --network";
    }
    if (fabric->grid && (fabric->gantt != NULL || fabric->chrome != NULL)) {
        return "--gantt and --chrome require a single run: omit --grid";
    }
    const char *wrong = weft_fabric_config_check(config);
    return wrong == NULL && fabric->grid ? weft_cli_fabric_grid_check(config, error) : wrong;
}

int weft_cli_sim_fabric(int argc, char **argv)
{
    static const char *policies[WEFT_FABRIC_POLICIES + 1];
    static const char *const levels[] = {"flow", "packet", NULL};
    static struct fabric fabric;
    char error[WEFT_CLI_FABRIC_ERROR_BYTES];
    weft_fabric_config_default(&fabric.config);
    struct weft_fabric_config *config = &fabric.config;
    fabric.seconds = (double)config->duration_ns / 1e9;
    config->tau_max = 0; /* not given */
    config->read_credits = 0;
    for (uint32_t i = 0; i < WEFT_FABRIC_POLICIES; i++) {
        policies[i] = weft_fabric_policy_name((enum weft_fabric_policy)i);
    }
    const struct weft_option options[] = {
        {"level", "L",
         "flow: a transfer is a rate on each link of its path, up to 1,000\n"
         "workers. packet: packets of weft's endpoints on simulated links, up to\n"
         "64 hosts; a large run takes minutes",
         WEFT_OPTION_CHOICE, &config->level, .choices = levels},
        {"workers", "N", "worker hosts", WEFT_OPTION_U32, &config->workers, .min = 1,
         .max = WEFT_FABRIC_WORKERS_MAX},
        {"servers", "S", "server hosts, each with an equal part of the model", WEFT_OPTION_U32,
         &config->servers, .min = 1, .max = WEFT_FABRIC_SERVERS_MAX},
        {"policy", "P",
         "scheduling policy: fair, fifo, order, order+bound, +aggregation,\n"
         "+cut-through, +admission, tree, tree+cut-through, tree+early-sums, ring\n"
         "or halving-doubling. +X adds X to the policy before it in this list",
         WEFT_OPTION_CHOICE, &config->policy, .choices = policies},
        {"mode", "M", "async, ssp:N or sync", WEFT_OPTION_CUSTOM, &fabric.mode, .fallback = "async",
         .parse = parse_mode},
        {"compute", "FILE|NAME",
         "compute times of steps: fixed, uniform, bimodal, slow-20, brief, CS1,\n"
         "CS2, CS3, or a JSON file",
         WEFT_OPTION_STRING, &fabric.compute, .fallback = "CS1"},
        {"network", "FILE|NAME",
         "link rates: homogeneous, slow-uplinks, contended, varying, NS1, NS2,\n"
         "NS3, or a JSON file",
         WEFT_OPTION_STRING, &fabric.network, .fallback = "NS1"},
        {"update-bytes", "N", "bytes of an update, over all servers", WEFT_OPTION_U64,
         &config->update_bytes, .min = 1000, .max = WEFT_FABRIC_BYTES_MAX},
        {"model-bytes", "N", "bytes of a model read, over all servers; 0 = reads take no time",
         WEFT_OPTION_U64, &config->model_bytes, .max = WEFT_FABRIC_BYTES_MAX},
        {"chunk-bytes", "N", "size of the chunks that a host forwards during reception",
         WEFT_OPTION_U64, &config->chunk_bytes, .min = 1000, .max = WEFT_FABRIC_BYTES_MAX},
        {"tau-max", "T", "delay bound, for order+bound and the policies after it", WEFT_OPTION_U64,
         &config->tau_max, .min = 1, .max = 1000000000, .fallback = "twice the workers"},
        {"div-max", "D",
         "divergence bound of replicas; 1 = the mean norm of an update, 0 = no\n"
         "replicas. With fair, every update is copied before it is committed",
         WEFT_OPTION_F64, &fabric.div_max, .most = 1e9},
        {"chain", NULL,
         "with --div-max, for fifo to order+bound: copy every update to the\n"
         "replicas before it is committed, as with fair (chain replication)",
         WEFT_OPTION_FLAG, .value = &config->is_chained},
        {"read-credits", "N", "with +admission: maximum number of workers between read and commit",
         WEFT_OPTION_U32, &config->read_credits, .min = 1, .max = WEFT_FABRIC_WORKERS_MAX,
         .fallback = "two fifths of the workers"},
        {"ahead", "N", "pushes granted in advance for each server; 0 = the planner's default",
         WEFT_OPTION_U32, &config->ahead, .max = 1000},
        {"seconds", "T", "seconds of virtual time", WEFT_OPTION_F64, &fabric.seconds,
         .least = 0.001,
         .most = 100000},
        {"seed", "N", "seed of all random values", WEFT_OPTION_U64, .value = &config->seed},
        {"grid", NULL,
         "CS1-CS3 x NS1-NS3: speed-up of --policy over the best of fair, ring and\n"
         "halving-doubling in each cell",
         WEFT_OPTION_FLAG, .value = &fabric.grid},
        {"json", NULL, "print the result as one JSON object", WEFT_OPTION_FLAG,
         .value = &fabric.json},
        {"gantt", "FILE",
         "draw a Gantt chart of the hosts: FILE.png, with its gnuplot script FILE.gp",
         WEFT_OPTION_STRING, &fabric.gantt, .fallback = "none"},
        {"chrome", "FILE", "write the hosts' activity as a Chrome trace, for ui.perfetto.dev",
         WEFT_OPTION_STRING, &fabric.chrome, .fallback = "none"},
        {0},
    };
    const struct weft_command command = {
        .name = "sim fabric",
        .summary = "simulate a training job with the transfer scheduler, at flow or packet level",
        .description =
            "Workers repeat, in virtual time: read the model from the servers, compute, push an\n"
            "update. --policy selects who sends when:\n"
            "  fair              all hosts send at once and share the links\n"
            "  fifo              the transfer scheduler grants transfers in the order of requests\n"
            "  order             it grants the transfer first that would complete first\n"
            "  order+bound       and promotes or drops updates, so that no delay exceeds --tau-max\n"
            "  +aggregation      and workers' hosts sum updates of other workers on the way\n"
            "  +cut-through      and sums are forwarded chunk by chunk\n"
            "  +admission        and at most --read-credits workers are between read and commit\n"
            "  tree...           all-reduce without servers, planned by the scheduler; --mode sync\n"
            "  ring, halving-doubling\n"
            "                    all-reduce without servers and scheduler; --mode sync\n"
            "\n"
            "With --level flow transfers are rates on links; with --level packet they are messages of\n"
            "weft's endpoints, each with the start and the rate that the planner grants.\n"
            "\n"
            "The delay of an update is the number of other updates that were applied (committed)\n"
            "between its worker's read and its own commit. The same seed gives the same result,\n"
            "except for the times of planning, which are measured on this machine. Exit status 1 if\n"
            "a check of the run fails. docs/SIMULATOR.md describes policies and settings.",
        .example = "  weft sim fabric --compute fixed --model-bytes 0 --policy order\n"
                   "  weft sim fabric --network NS2 --policy order+bound --tau-max 45 --json\n"
                   "  weft sim fabric --grid --mode sync --policy tree+cut-through",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    const char *const inputs[] = {fabric.compute, fabric.network};
    if (!weft_cli_fabric_outputs_good(fabric.gantt, fabric.chrome, inputs,
                                      WEFT_ARRAY_COUNT(inputs))) {
        return WEFT_EXIT_FAILED;
    }
    const char *invalid = settle(&fabric, error);
    if (invalid != NULL) {
        return weft_options_usage(&command, "%s", invalid);
    }
    return fabric.grid ? weft_cli_fabric_grid(config, fabric.json) : fabric_run(&fabric);
}
