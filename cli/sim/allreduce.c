/* `weft sim allreduce`: all_reduce rounds in virtual time. */
#include "cli/options.h"
#include "cli/output.h"
#include "cli/sim/report.h"
#include "cli/sim/tap.h"
#include "cli/verbs.h"

#include "core/cc.h"
#include "sim/allreduce.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const plans[] = {"none", "auto", "slices", "trees", NULL};
static const char *const boxes[] = {"none", "switch", "host", NULL};

/* What differs with a box: its ideal beside that of the ranks' own operation, and why packets were
 * sent again. */
static void print_box(const struct weft_allreduce_config *config,
                      const struct weft_allreduce_result *r)
{
    printf("through a box (%s), %" PRIu32 " slots: %.3f of the ideal without one, %.3f ms\n",
           boxes[config->box], config->box_slots,
           weft_cli_ratio(r->mean_ns, r->ideal_without_box_ns),
           weft_cli_ms(r->ideal_without_box_ns));
    printf("sent again by ranks %.3f %%: %" PRIu64 " packets after a timeout, %" PRIu64
           " because later ones were answered; bytes over the ideal's %.3f %%\n",
           weft_cli_percent(r->retransmitted_ppm), r->resent_timeout, r->resent_early,
           weft_cli_percent(r->overhead_ppm));
}

static void print_coll(const struct weft_allreduce_result *r)
{
    printf("contributions delivered %.3f %%, retransmitted %.3f %%, bytes over the ideal's "
           "%.3f %%\n",
           weft_cli_percent(r->delivered_ppm), weft_cli_percent(r->retransmitted_ppm),
           weft_cli_percent(r->overhead_ppm));
}

static void print_plan(const struct weft_allreduce_config *config,
                       const struct weft_allreduce_result *r)
{
    if (config->plan == WEFT_ALLREDUCE_NO_PLAN) {
        return;
    }
    printf("plan: ");
    if (r->plan_trees) {
        printf("trees, %" PRIu32 " parts, depth %" PRIu32, r->plan_parts, r->plan_depth);
    } else {
        printf("slices, %" PRIu32 " ranks own one", r->plan_owners);
    }
    printf("; predicted: equal slices %.3f ms, slices %.3f", weft_cli_ms(r->equal_ns),
           weft_cli_ms(r->slices_ns));
    if (r->trees_ns != WEFT_NEVER && r->trees_ns != 0) {
        printf(", trees %.3f", weft_cli_ms(r->trees_ns));
    }
    printf("\n");
}

static void print_text(const struct weft_allreduce_config *config,
                       const struct weft_allreduce_result *r)
{
    bool box = config->box != WEFT_ALLREDUCE_NO_BOX;
    printf("all_reduce of %" PRIu64 " bytes, %" PRIu32 " ranks: %" PRIu32
           " rounds, ideal %.3f ms\n",
           config->bytes, config->ranks, r->rounds, weft_cli_ms(r->ideal_ns));
    printf("round mean %.3f ms (%.3f x ideal), p50 %.3f (%.3f x), p99 %.3f (%.3f x), max %.3f",
           weft_cli_ms(r->mean_ns), weft_cli_ratio(r->mean_ns, r->ideal_ns), weft_cli_ms(r->p50_ns),
           weft_cli_ratio(r->p50_ns, r->ideal_ns), weft_cli_ms(r->p99_ns),
           weft_cli_ratio(r->p99_ns, r->ideal_ns), weft_cli_ms(r->max_ns));
    if (box) {
        printf("\n");
        print_box(config, r);
    } else {
        printf("; phase 1 %.3f\n", weft_cli_ms(r->phase1_ns_mean));
        print_coll(r);
        print_plan(config, r);
    }
    printf("switch: %" PRIu64 " packets dropped, %" PRIu64 " marked, queue up to %" PRIu64
           " bytes; lost behind it %" PRIu64 "\n",
           r->dropped_full, r->marked, r->queue_bytes_max, r->dropped_wire);
    if (!box) {
        printf("%" PRIu64 " messages before their operation started, %" PRIu64 " probes\n",
               r->early_messages, r->probes);
    }
    printf("%" PRIu64 " packets, %.3f ms of virtual time, trace hash %016" PRIx64 "\n", r->packets,
           weft_cli_ms(r->virtual_ns), r->trace_hash);
}

static cJSON *json_of(const struct weft_allreduce_config *config,
                      const struct weft_allreduce_result *r)
{
    const char *cc = config->cc_name != NULL ? config->cc_name : weft_cc_all[0]->name;
    const bool box = config->box != WEFT_ALLREDUCE_NO_BOX;
    char hash[17];
    snprintf(hash, sizeof(hash), "%016" PRIx64, r->trace_hash);
    cJSON *o = cJSON_CreateObject();
    cJSON_AddItemToObject(o, "cc", box ? cJSON_CreateNull() : cJSON_CreateString(cc));
    cJSON_AddBoolToObject(o, "ok", r->ok);
    cJSON_AddBoolToObject(o, "feedback", config->feedback);
    cJSON_AddBoolToObject(o, "barrier", config->barrier);
    cJSON_AddStringToObject(o, "plan", plans[config->plan]);
    cJSON_AddBoolToObject(o, "plan_trees", r->plan_trees);
    cJSON_AddStringToObject(o, "box", boxes[config->box]);
    cJSON_AddBoolToObject(o, "box_block_float", config->box_block_float);
    const struct {
        const char *key;
        uint64_t value;
    } numbers[] = {
        {"ranks", config->ranks},
        {"bytes", config->bytes},
        {"ops", config->ops},
        {"rate_bps", config->rate_bps},
        {"rtt_ns", config->rtt_ns},
        {"host_delay_ns", config->host_delay_ns},
        {"host_ranks", config->host_ranks},
        {"slow_links", config->slow_links},
        {"slow_rate_bps", config->slow_rate_bps},
        {"late_ranks", config->late_ranks},
        {"late_ns", config->late_ns},
        {"plan_parts", r->plan_parts},
        {"plan_depth", r->plan_depth},
        {"plan_owners", r->plan_owners},
        {"predicted_equal_ns", r->equal_ns},
        {"predicted_slices_ns", r->slices_ns},
        {"predicted_trees_ns", r->trees_ns == WEFT_NEVER ? 0 : r->trees_ns},
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
        {"phase1_ns_mean", r->phase1_ns_mean},
        {"delivered_ppm", r->delivered_ppm},
        {"retransmitted_ppm", r->retransmitted_ppm},
        {"overhead_ppm", r->overhead_ppm},
        {"dropped_full", r->dropped_full},
        {"dropped_wire", r->dropped_wire},
        {"marked", r->marked},
        {"queue_bytes_max", r->queue_bytes_max},
        {"early_messages", r->early_messages},
        {"probes", r->probes},
        {"box_slots", box ? config->box_slots : 0},
        {"box_reorder", box ? config->box_reorder : 0},
        {"ideal_without_box_ns", r->ideal_without_box_ns},
        {"resent_timeout", r->resent_timeout},
        {"resent_early", r->resent_early},
        {"packets", r->packets},
        {"virtual_ns", r->virtual_ns},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        cJSON_AddNumberToObject(o, numbers[i].key, (double)numbers[i].value);
    }
    cJSON_AddNumberToObject(o, "mean_ratio", weft_cli_ratio(r->mean_ns, r->ideal_ns));
    cJSON_AddNumberToObject(o, "p99_ratio", weft_cli_ratio(r->p99_ns, r->ideal_ns));
    cJSON_AddStringToObject(o, "trace_hash", hash);
    return o;
}

static int allreduce_run(struct weft_allreduce_config *config, struct weft_sim_tap *tap, bool json)
{
    static struct weft_allreduce_result result;
    bool good = weft_sim_tap_open(tap);
    if (good) {
        config->tap = config->box == WEFT_ALLREDUCE_NO_BOX ? &tap->tap : NULL;
        weft_allreduce_run(config, &result);
    }
    if (!weft_sim_tap_close(tap) || !good) {
        return WEFT_EXIT_FAILED;
    }
    if (json && !weft_output_json("sim allreduce", json_of(config, &result), false)) {
        return WEFT_EXIT_FAILED;
    }
    if (!json) {
        print_text(config, &result);
    }
    if (!result.ok) {
        fprintf(stderr, "weft sim allreduce: %s\n", result.failure);
    }
    return result.ok ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

int weft_cli_sim_allreduce(int argc, char **argv)
{
    struct weft_allreduce_config config;
    uint64_t rate_mbps = 1000;
    uint64_t rtt_us = 50;
    uint64_t host_us = 0;
    uint64_t buffer_kb = 64;
    uint64_t ecn_kb = 0;
    uint64_t slow_mbps = 100;
    uint64_t late_us = 1000;
    bool json = false;
    struct weft_sim_tap tap = {0};
    weft_allreduce_config_default(&config);
    const struct weft_option options[] = {
        {"ranks", "N", "number of ranks", WEFT_OPTION_U32, &config.ranks, .min = 2,
         .max = WEFT_ALLREDUCE_RANKS_MAX},
        {"bytes", "N", "size of the float32 vector", WEFT_OPTION_U64, &config.bytes, .min = 4,
         .max = 400000000},
        {"ops", "N",
         "number of operations that the vector is divided into, like gradient\n"
         "buckets",
         WEFT_OPTION_U32, &config.ops, .min = 1, .max = 16},
        {"rate-mbps", "N", "rate of every link", WEFT_OPTION_U64, &rate_mbps, .min = 1,
         .max = 1000000},
        {"rtt-us", "N", "base round trip", WEFT_OPTION_U64, &rtt_us, .max = 1000000},
        {"host-us", "N", "delay from a packet's arrival until its host processes it",
         WEFT_OPTION_U64, &host_us, .max = 1000000},
        {"buffer-kb", "N", "buffer of each downlink, in 1,000 bytes", WEFT_OPTION_U64, &buffer_kb,
         .min = 6, .max = 1000000000},
        {"ecn-kb", "N", "marking threshold of each downlink, in 1,000 bytes; 0 = none",
         WEFT_OPTION_U64, &ecn_kb, .max = 1000000000},
        {"loss", "P", "loss rate of packets after each downlink's queue", WEFT_OPTION_PPM,
         .value = &config.loss_ppm},
        {"bound", "P", "fraction of the contributions that may be missing", WEFT_OPTION_PPM,
         .value = &config.bound_ppm},
        {"feedback", NULL, "error feedback: missing elements are added to the next round",
         WEFT_OPTION_FLAG, .value = &config.feedback},
        {"barrier", NULL,
         "as a benchmark of processes does: a rank begins after a barrier, and a\n"
         "round lasts as long as the slowest rank needs from its own begin",
         WEFT_OPTION_FLAG, .value = &config.barrier},
        {"plan", "FORM",
         "how the vector is divided: none = into equal slices; slices = by the rates of\n"
         "links and the lateness of ranks; trees = parts that are summed along trees;\n"
         "auto = slices or trees, whichever is predicted to be faster",
         WEFT_OPTION_CHOICE, &config.plan, .choices = plans},
        {"host-ranks", "N", "ranks of a host, which share its link", WEFT_OPTION_U32,
         &config.host_ranks, .min = 1, .max = WEFT_ALLREDUCE_RANKS_MAX},
        {"slow-links", "N", "number of links with the rate of --slow-mbps, the last ones",
         WEFT_OPTION_U32, &config.slow_links, .max = WEFT_ALLREDUCE_RANKS_MAX},
        {"slow-mbps", "N", "their rate", WEFT_OPTION_U64, &slow_mbps, .min = 1, .max = 1000000},
        {"late-ranks", "N", "number of ranks that begin each round later, the last ones",
         WEFT_OPTION_U32, &config.late_ranks, .max = WEFT_ALLREDUCE_RANKS_MAX},
        {"late-us", "N", "by so much", WEFT_OPTION_U64, &late_us, .max = 1000000},
        {"segment-bytes", "N",
         "size of the segments of a slice, or more if a slice would have more than\n"
         "16 of them",
         WEFT_OPTION_U32, &config.segment_bytes, .min = 2048, .max = 1 << 30},
        {"receivers", "N", "receivers that a rank sends to concurrently; 0 = all", WEFT_OPTION_U32,
         &config.receivers_max, .max = 1024},
        {"rounds", "N", "number of rounds, back to back", WEFT_OPTION_U32, &config.rounds, .min = 1,
         .max = WEFT_ALLREDUCE_ROUNDS_MAX},
        {"seed", "N", "seed of the network and the endpoints", WEFT_OPTION_U64,
         .value = &config.seed},
        {"cc", "NAME", "congestion control", WEFT_OPTION_STRING, &config.cc_name,
         .fallback = weft_cc_all[0]->name},
        {"box", "WHERE",
         "sum through an aggregation box: switch = in the switch; host = on a\n"
         "separate host (docs/AGGREGATION.md). Not with --ops, --bound, --feedback,\n"
         "--barrier, --cc, --ecn-kb, --host-us, --segment-bytes, --receivers, --trace, --pcap",
         WEFT_OPTION_CHOICE, &config.box, .choices = boxes},
        {"slots", "N", "with --box: packets that a rank has in flight", WEFT_OPTION_U32,
         &config.box_slots, .min = 1, .max = 65536},
        {"reorder", "N",
         "with --box: send a packet again when one sent at least N packets later\n"
         "was answered; 0 = only after the timeout",
         WEFT_OPTION_U32, &config.box_reorder, .max = 65536},
        {"block-float", NULL, "with --box: the ranks agree on an exponent for each packet",
         WEFT_OPTION_FLAG, .value = &config.box_block_float},
        {"json", NULL, "print the result as one JSON object", WEFT_OPTION_FLAG, .value = &json},
        WEFT_SIM_TAP_OPTIONS(&tap),
        {0},
    };
    const struct weft_command command = {
        .name = "sim allreduce",
        .summary = "run all_reduce rounds in virtual time",
        .description =
            "Each rank sends every other rank its slice of the vector, reduces the contributions "
            "that\n"
            "it receives, and sends the result to all. A round lasts from the call at all ranks "
            "until\n"
            "the last rank is done. ideal = wire time of 2 (n - 1) slices with packet headers + "
            "two\n"
            "base round trips. With --box switch: wire time of the vector, sent and received at the\n"
            "same time, + half a base round trip. With --box host: wire time of one vector per\n"
            "rank on the link of the box, + a base round trip. Every round is checked: equal bits\n"
            "at all ranks, and correct sums. Exit status 1 if a check fails or a round does not\n"
            "complete. If links or ranks differ, ideal is the time of the best plan instead\n"
            "(docs/COLLECTIVES.md, \"Plans\").",
        .example = "  weft sim allreduce --ranks 8 --bytes 4000000\n"
                   "  weft sim allreduce --ranks 16 --loss 0.01 --bound 0.1 --feedback\n"
                   "  weft sim allreduce --ranks 8 --loss 0.01 --box switch\n"
                   "  weft sim allreduce --ranks 16 --host-ranks 4 --plan auto",
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
    config.slow_rate_bps = slow_mbps * UINT64_C(1000000);
    config.late_ns = late_us * WEFT_NS_PER_US;
    const char *wrong = weft_allreduce_config_check(&config);
    if (config.box != WEFT_ALLREDUCE_NO_BOX && (tap.trace != NULL || tap.pcap != NULL)) {
        wrong = "--trace and --pcap are not possible with --box";
    }
    if (config.box != WEFT_ALLREDUCE_NO_BOX && (weft_options_given(argc, argv, "--segment-bytes") ||
                                                weft_options_given(argc, argv, "--receivers"))) {
        wrong = "with --box there are no segments and no number of receivers";
    }
    if (wrong != NULL) {
        return weft_options_usage(&command, "%s", wrong);
    }
    return allreduce_run(&config, &tap, json);
}
