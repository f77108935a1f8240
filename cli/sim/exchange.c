/* `weft sim exchange`: rounds with bidirectional traffic and several peers per host. */
#include "cli/options.h"
#include "cli/output.h"
#include "cli/sim/report.h"
#include "cli/sim/tap.h"
#include "cli/sim/traffic.h"
#include "cli/verbs.h"

#include "core/cc.h"
#include "sim/exchange.h"

#include <inttypes.h>
#include <stdio.h>

/* The last part of a step's timeline that any step reached, plus one. */
static uint32_t bins_used(const struct weft_exchange_result *r)
{
    uint32_t count = WEFT_STEP_BINS;
    while (count > 0 && r->bins[count - 1].ns == 0) {
        count--;
    }
    return count;
}

static void print_use(const char *name, const struct weft_exchange_result *r, bool up)
{
    printf("%-5s", name);
    for (uint32_t i = 0; i < bins_used(r); i++) {
        printf(" %.2f", (double)(up ? r->bins[i].up_ppm : r->bins[i].down_ppm) / WEFT_PPM);
    }
    printf("\n");
}

static void print_step(const struct weft_exchange_config *config,
                       const struct weft_exchange_result *r)
{
    printf("\nmean times in ms since the beginning of the step: the worker has the reply; the "
           "server has\nthe push, the request, CLOCK; the worker has the acknowledgement of the "
           "push. Last column:\nnumber of steps that the CLOCK of this worker ended\n");
    for (uint32_t i = 0; i < config->hosts; i++) {
        const struct weft_step_worker *w = &r->workers[i];
        printf("worker %-3" PRIu32 " %8.3f %8.3f %8.3f %8.3f %8.3f %6" PRIu32 "\n", i + 1,
               weft_cli_ms(w->reply_ns), weft_cli_ms(w->push_ns), weft_cli_ms(w->request_ns),
               weft_cli_ms(w->clock_ns), weft_cli_ms(w->closed_ns), w->last);
    }
    printf("use of the server's link in each %.0f ms of the step, from it and to it\n",
           weft_cli_ms(WEFT_STEP_BIN_NS));
    print_use("from", r, true);
    print_use("to", r, false);
    printf("\n");
}

static void print_flows(const struct weft_reno_counters *c)
{
    printf("TCP: %" PRIu64 " flows, %" PRIu64 " complete, %" PRIu64 " refused, %" PRIu64
           " bytes, %" PRIu64 " segments, %" PRIu64 " of these again, %" PRIu64 " timeouts\n",
           c->flows, c->complete, c->refused, c->bytes, c->segments, c->again, c->timeouts);
}

static void print_text(const struct weft_exchange_config *config,
                       const struct weft_exchange_result *r)
{
    printf("%s of %" PRIu32 ": %" PRIu32 " rounds, ideal %.3f ms\n",
           weft_exchange_pattern_name(config->pattern), config->hosts, r->rounds,
           weft_cli_ms(r->ideal_ns));
    printf("round mean %.3f ms (%.3f x ideal), p50 %.3f (%.3f x), p99 %.3f (%.3f x), max %.3f\n",
           weft_cli_ms(r->mean_ns), weft_cli_ratio(r->mean_ns, r->ideal_ns), weft_cli_ms(r->p50_ns),
           weft_cli_ratio(r->p50_ns, r->ideal_ns), weft_cli_ms(r->p99_ns),
           weft_cli_ratio(r->p99_ns, r->ideal_ns), weft_cli_ms(r->max_ns));
    printf("delivered %.3f %%, retransmitted %.3f %%, bytes over the ideal's %.3f %%\n",
           weft_cli_percent(r->delivered_ppm_mean), weft_cli_percent(r->retransmitted_ppm),
           weft_cli_percent(r->overhead_ppm));
    printf("switch: %" PRIu64 " packets dropped, %" PRIu64 " marked, queue up to %" PRIu64
           " bytes; lost behind it %" PRIu64 "\n",
           r->dropped_full, r->marked, r->queue_bytes_max, r->dropped_wire);
    printf("DATA: %" PRIu64 " sent, %" PRIu64 " declared lost, %" PRIu64
           " of these spuriously; %" PRIu64 " probes\n",
           r->data_sent, r->data_lost, r->data_spurious, r->probes);
    if (config->pattern == WEFT_EXCHANGE_STEP) {
        print_step(config, r);
    }
    if (config->next_flow != NULL) {
        print_flows(&r->flows);
    }
    printf("%" PRIu64 " packets, %.3f ms of virtual time, trace hash %016" PRIx64 "\n", r->packets,
           weft_cli_ms(r->virtual_ns), r->trace_hash);
}

static void json_flows(cJSON *o, const struct weft_reno_counters *c)
{
    cJSON *flows = cJSON_AddObjectToObject(o, "flows");
    cJSON_AddNumberToObject(flows, "begun", (double)c->flows);
    cJSON_AddNumberToObject(flows, "complete", (double)c->complete);
    cJSON_AddNumberToObject(flows, "refused", (double)c->refused);
    cJSON_AddNumberToObject(flows, "bytes", (double)c->bytes);
    cJSON_AddNumberToObject(flows, "segments", (double)c->segments);
    cJSON_AddNumberToObject(flows, "segments_again", (double)c->again);
    cJSON_AddNumberToObject(flows, "timeouts", (double)c->timeouts);
}

static void json_step(cJSON *o, const struct weft_exchange_config *config,
                      const struct weft_exchange_result *r)
{
    cJSON *workers = cJSON_AddArrayToObject(o, "workers");
    for (uint32_t i = 0; i < config->hosts; i++) {
        const struct weft_step_worker *w = &r->workers[i];
        cJSON *worker = cJSON_CreateObject();
        cJSON_AddNumberToObject(worker, "reply_ns", (double)w->reply_ns);
        cJSON_AddNumberToObject(worker, "push_ns", (double)w->push_ns);
        cJSON_AddNumberToObject(worker, "request_ns", (double)w->request_ns);
        cJSON_AddNumberToObject(worker, "clock_ns", (double)w->clock_ns);
        cJSON_AddNumberToObject(worker, "closed_ns", (double)w->closed_ns);
        cJSON_AddNumberToObject(worker, "last", w->last);
        cJSON_AddItemToArray(workers, worker);
    }
    cJSON_AddNumberToObject(o, "bin_ns", WEFT_STEP_BIN_NS);
    cJSON *from = cJSON_AddArrayToObject(o, "from_server_ppm");
    cJSON *to = cJSON_AddArrayToObject(o, "to_server_ppm");
    for (uint32_t i = 0; i < bins_used(r); i++) {
        cJSON_AddItemToArray(from, cJSON_CreateNumber(r->bins[i].up_ppm));
        cJSON_AddItemToArray(to, cJSON_CreateNumber(r->bins[i].down_ppm));
    }
}

static cJSON *json_of(const struct weft_exchange_config *config,
                      const struct weft_exchange_result *r)
{
    const char *cc = config->cc_name != NULL ? config->cc_name : weft_cc_all[0]->name;
    char hash[17];
    snprintf(hash, sizeof(hash), "%016" PRIx64, r->trace_hash);
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "pattern", weft_exchange_pattern_name(config->pattern));
    cJSON_AddStringToObject(o, "cc", cc);
    cJSON_AddBoolToObject(o, "ok", r->ok);
    const struct {
        const char *key;
        uint64_t value;
    } numbers[] = {
        {"hosts", config->hosts},
        {"bytes", config->message_bytes},
        {"request_bytes", config->request_bytes},
        {"reply_bytes", config->reply_bytes},
        {"rate_bps", config->rate_bps},
        {"rtt_ns", config->rtt_ns},
        {"host_delay_ns", config->host_delay_ns},
        {"buffer_bytes", config->buffer_bytes},
        {"ecn_bytes", config->ecn_bytes},
        {"loss_ppm", config->loss_ppm},
        {"bound_ppm", config->bound_ppm},
        {"seed", config->seed},
        {"rounds", r->rounds},
        {"ideal_ns", r->ideal_ns},
        {"mean_ns", r->mean_ns},
        {"p50_ns", r->p50_ns},
        {"p99_ns", r->p99_ns},
        {"max_ns", r->max_ns},
        {"messages", r->messages},
        {"delivered_ppm_mean", r->delivered_ppm_mean},
        {"retransmitted_ppm", r->retransmitted_ppm},
        {"overhead_ppm", r->overhead_ppm},
        {"dropped_full", r->dropped_full},
        {"dropped_wire", r->dropped_wire},
        {"marked", r->marked},
        {"queue_bytes_max", r->queue_bytes_max},
        {"data_sent", r->data_sent},
        {"data_lost", r->data_lost},
        {"data_spurious", r->data_spurious},
        {"probes", r->probes},
        {"packets", r->packets},
        {"virtual_ns", r->virtual_ns},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        cJSON_AddNumberToObject(o, numbers[i].key, (double)numbers[i].value);
    }
    cJSON_AddNumberToObject(o, "mean_ratio", weft_cli_ratio(r->mean_ns, r->ideal_ns));
    cJSON_AddNumberToObject(o, "p99_ratio", weft_cli_ratio(r->p99_ns, r->ideal_ns));
    if (config->pattern == WEFT_EXCHANGE_STEP) {
        json_step(o, config, r);
    }
    if (config->next_flow != NULL) {
        json_flows(o, &r->flows);
    }
    cJSON_AddStringToObject(o, "trace_hash", hash);
    return o;
}

static int exchange_run(struct weft_exchange_config *config, struct weft_sim_tap *tap, bool json)
{
    static struct weft_exchange_result result;
    bool good = weft_sim_tap_open(tap);
    if (good) {
        config->tap = &tap->tap;
        weft_exchange_run(config, &result);
    }
    if (!weft_sim_tap_close(tap) || !good) {
        return WEFT_EXIT_FAILED;
    }
    if (json && !weft_output_json("sim exchange", json_of(config, &result), false)) {
        return WEFT_EXIT_FAILED;
    }
    if (!json) {
        print_text(config, &result);
    }
    if (!result.ok) {
        fprintf(stderr, "weft sim exchange: %s\n", result.failure);
    }
    return result.ok ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

int weft_cli_sim_exchange(int argc, char **argv)
{
    static const char *const patterns[] = {"alltoall", "outcast", "shuffle", "step", NULL};
    struct weft_exchange_config config;
    uint64_t rate_mbps = 1000;
    uint64_t rtt_us = 50;
    uint64_t host_us = 0;
    uint64_t buffer_kb = 64;
    uint64_t ecn_kb = 0;
    bool json = false;
    struct weft_sim_tap tap = {0};
    static struct weft_sim_traffic traffic;
    weft_exchange_config_default(&config);
    const struct weft_option options[] = {
        {"pattern", "NAME", "traffic pattern of a round", WEFT_OPTION_CHOICE, &config.pattern,
         .choices = patterns},
        {"hosts", "N", "alltoall: hosts; outcast: receivers; shuffle: mappers, and as many\n"
                       "reducers; step: workers",
         WEFT_OPTION_U32, &config.hosts, .min = 2, .max = WEFT_EXCHANGE_HOSTS_MAX},
        {"bytes", "N", "bytes of a message, or of a push in a step; a multiple of 4",
         WEFT_OPTION_U64, &config.message_bytes, .min = 4, .max = 100000000},
        {"request-bytes", "N", "step: bytes of a request", WEFT_OPTION_U64,
         &config.request_bytes, .min = 4, .max = 100000000},
        {"reply-bytes", "N", "step: bytes of a reply", WEFT_OPTION_U64,
         &config.reply_bytes,
         .min = 4, .max = 100000000},
        {"rate-mbps", "N", "rate of every link", WEFT_OPTION_U64, &rate_mbps, .min = 1,
         .max = 1000000},
        {"rtt-us", "N", "round-trip time without queueing (base round trip)", WEFT_OPTION_U64, &rtt_us, .max = 1000000},
        {"host-us", "N", "delay from a packet's arrival until its host processes it",
         WEFT_OPTION_U64, &host_us, .max = 1000000},
        {"buffer-kb", "N", "buffer of each downlink, in 1,000 bytes", WEFT_OPTION_U64, &buffer_kb,
         .min = 6, .max = 1000000000},
        {"ecn-kb", "N", "marking threshold of each downlink, in 1,000 bytes; 0 = none",
         WEFT_OPTION_U64, &ecn_kb, .max = 1000000000},
        {"loss", "P", "loss rate of packets after each downlink's queue", WEFT_OPTION_PPM,
         .value = &config.loss_ppm},
        {"bound", "P", "fraction of a message that may be missing", WEFT_OPTION_PPM,
         .value = &config.bound_ppm},
        WEFT_SIM_TRAFFIC_OPTIONS(&traffic),
        {"rounds", "N", "number of rounds, back to back", WEFT_OPTION_U32, &config.rounds, .min = 1,
         .max = WEFT_EXCHANGE_ROUNDS_MAX},
        {"seed", "N", "seed of the network and the endpoints", WEFT_OPTION_U64,
         .value = &config.seed},
        {"cc", "NAME", "congestion control", WEFT_OPTION_STRING, &config.cc_name,
         .fallback = weft_cc_all[0]->name},
        {"json", NULL, "print the result as one JSON object", WEFT_OPTION_FLAG, .value = &json},
        WEFT_SIM_TAP_OPTIONS(&tap),
        {0},
    };
    const struct weft_command command = {
        .name = "sim exchange",
        .summary = "measure rounds of all-to-all, one-to-many and training traffic, in virtual time",
        .description =
        "All hosts are connected to one switch. A round begins when the previous one has ended, and\n"
        "ends when every message of the pattern is complete at its receiver:\n"
        "  alltoall  every host sends a message to every other host\n"
        "  outcast   one host sends a message to each of the others\n"
        "  shuffle   every mapper sends a message to every reducer\n"
        "  step      a training step: a parameter server sends the model to each worker (the\n"
        "            reply), and each worker sends its update (the push), the list of ids that it\n"
        "            reads next (the request) and, when its push is acknowledged, the end of its\n"
        "            step (CLOCK)\n"
        "\n"
        "Round times are printed in ms and divided by the ideal: the time that all data of a round,\n"
        "with packet headers, takes on the busiest link, plus one base round trip; for a step also\n"
        "the time of the first reply on the link, and another round trip before CLOCK. Exit status\n"
        "1 if a round does not complete.",
        .example = "  weft sim exchange --hosts 8 --rate-mbps 25 --bytes 62500 --buffer-kb 450\n"
                   "  weft sim exchange --pattern step --rate-mbps 200 --bytes 148000",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    config.rate_bps = rate_mbps * UINT64_C(1000000);
    config.rtt_ns = rtt_us * WEFT_NS_PER_US;
    config.host_delay_ns = host_us * WEFT_NS_PER_US;
    config.buffer_bytes = buffer_kb * 1000;
    config.ecn_bytes = ecn_kb * 1000;
    const char *wrong = weft_exchange_config_check(&config);
    if (wrong == NULL) {
        wrong = weft_sim_traffic_open(&traffic, weft_exchange_hosts(&config), config.rate_bps,
                                      config.seed);
    }
    if (weft_sim_traffic_any(&traffic)) {
        config.next_flow = weft_sim_traffic_next;
        config.flows_self = &traffic;
    }
    if (wrong != NULL) {
        return weft_options_usage(&command, "%s", wrong);
    }
    return exchange_run(&config, &tap, json);
}
