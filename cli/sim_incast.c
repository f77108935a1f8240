/* `weft sim incast`: one cell of the incast grid, with all its figures. */
#include "cli/options.h"
#include "cli/sim_verbs.h"

#include "core/cc.h"
#include "sim/incast.h"

#include <inttypes.h>
#include <stdio.h>

static double ratio(uint64_t ns, uint64_t ideal_ns)
{
    return (double)ns / (double)ideal_ns;
}

static double ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

static double percent(uint32_t ppm)
{
    return (double)ppm / 1e4;
}

static void print_text(const struct weft_incast_config *config,
                       const struct weft_incast_result *r)
{
    printf("%" PRIu32 " rounds, ideal %.3f ms\n", r->rounds, ms(r->ideal_ns));
    printf("round p50 %.3f ms (%.3f x ideal), p99 %.3f (%.3f x), max %.3f (%.3f x)\n",
           ms(r->p50_ns), ratio(r->p50_ns, r->ideal_ns), ms(r->p99_ns),
           ratio(r->p99_ns, r->ideal_ns), ms(r->max_ns), ratio(r->max_ns, r->ideal_ns));
    printf("delivered %.3f %% (least %.3f %%), retransmitted %.3f %%\n",
           percent(r->delivered_ppm_mean), percent(r->delivered_ppm_min),
           percent(r->retransmitted_ppm));
    printf("switch: %" PRIu64 " packets dropped, %" PRIu64 " marked, queue up to %" PRIu64
           " bytes; lost behind it %" PRIu64 "\n",
           r->dropped_full, r->marked, r->queue_bytes_max, r->dropped_wire);
    printf("DATA: %" PRIu64 " sent, %" PRIu64 " declared lost, %" PRIu64 " of these wrongly; %"
           PRIu64 " chunks came twice, %" PRIu64 " late; %" PRIu64 " probes, %" PRIu64
           " UNKNOWN\n",
           r->data_sent, r->data_lost, r->data_spurious, r->data_duplicate, r->data_late,
           r->probes, r->unknown);
    for (uint32_t i = 0; i < config->shards; i++) {
        printf("goodput of endpoint %" PRIu32 ": %.1f Mbit/s\n", i,
               (double)r->goodput_bps[i] / 1e6);
    }
    printf("Jain's index %.4f\n", (double)r->jain_ppm / 1e6);
    printf("%" PRIu64 " packets, %.3f ms of virtual time, trace hash %016" PRIx64 "\n", r->packets,
           ms(r->virtual_ns), r->trace_hash);
}

static void print_json(const struct weft_incast_config *config,
                       const struct weft_incast_result *r)
{
    const char *cc = config->cc_name != NULL ? config->cc_name : weft_cc_all[0]->name;
    printf("{\"senders\": %" PRIu32 ", \"shards\": %" PRIu32 ", \"bytes\": %" PRIu64
           ", \"rate_bps\": %" PRIu64 ", \"rtt_ns\": %" PRIu64 ", \"buffer_bytes\": %" PRIu64
           ", \"ecn_bytes\": %" PRIu64 ", \"loss_ppm\": %" PRIu32 ", \"burst\": %s, \"bound_ppm\": %"
           PRIu32 ", \"cc\": \"%s\", \"seed\": %" PRIu64 ",\n",
           config->senders, config->shards, config->message_bytes, config->rate_bps,
           config->rtt_ns, config->buffer_bytes, config->ecn_bytes, config->loss_ppm,
           config->burst ? "true" : "false", config->bound_ppm, cc, config->seed);
    printf(" \"ok\": %s, \"rounds\": %" PRIu32 ", \"ideal_ns\": %" PRIu64 ", \"p50_ns\": %" PRIu64
           ", \"p99_ns\": %" PRIu64 ", \"max_ns\": %" PRIu64 ", \"mean_ns\": %" PRIu64
           ", \"p50_ratio\": %.4f, \"p99_ratio\": %.4f, \"max_ratio\": %.4f,\n",
           r->ok ? "true" : "false", r->rounds, r->ideal_ns, r->p50_ns, r->p99_ns, r->max_ns,
           r->mean_ns, ratio(r->p50_ns, r->ideal_ns), ratio(r->p99_ns, r->ideal_ns),
           ratio(r->max_ns, r->ideal_ns));
    printf(" \"delivered_ppm_mean\": %" PRIu32 ", \"delivered_ppm_min\": %" PRIu32
           ", \"retransmitted_ppm\": %" PRIu32 ", \"dropped_full\": %" PRIu64
           ", \"dropped_wire\": %" PRIu64 ", \"marked\": %" PRIu64 ", \"queue_bytes_max\": %" PRIu64
           ",\n",
           r->delivered_ppm_mean, r->delivered_ppm_min, r->retransmitted_ppm, r->dropped_full,
           r->dropped_wire, r->marked, r->queue_bytes_max);
    printf(" \"data_sent\": %" PRIu64 ", \"data_lost\": %" PRIu64 ", \"data_spurious\": %" PRIu64
           ", \"data_duplicate\": %" PRIu64 ", \"data_late\": %" PRIu64 ", \"probes\": %" PRIu64
           ", \"unknown\": %" PRIu64 ", \"goodput_bps\": [",
           r->data_sent, r->data_lost, r->data_spurious, r->data_duplicate, r->data_late,
           r->probes, r->unknown);
    for (uint32_t i = 0; i < config->shards; i++) {
        printf("%s%" PRIu64, i > 0 ? ", " : "", r->goodput_bps[i]);
    }
    printf("], \"jain_ppm\": %" PRIu32 ", \"packets\": %" PRIu64 ", \"virtual_ns\": %" PRIu64
           ", \"trace_hash\": \"%016" PRIx64 "\"}\n",
           r->jain_ppm, r->packets, r->virtual_ns, r->trace_hash);
}

static int incast_run(const struct weft_incast_config *config, bool json)
{
    static struct weft_incast_result result;
    weft_incast_run(config, &result);
    if (json) {
        print_json(config, &result);
    } else {
        print_text(config, &result);
    }
    if (!result.ok) {
        fprintf(stderr, "weft sim incast: %s\n", result.failure);
    }
    return result.ok ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

int weft_cli_sim_incast(int argc, char **argv)
{
    struct weft_incast_config config;
    uint64_t rate_gbps = 1;
    uint64_t rtt_us = 50;
    uint64_t buffer_kb = 128;
    uint64_t ecn_kb = 0;
    bool json = false;
    weft_incast_config_default(&config);
    const struct weft_option options[] = {
        {"senders", "N", "senders of each endpoint", WEFT_OPTION_U32, &config.senders, .min = 1,
         .max = WEFT_INCAST_SENDERS_MAX},
        {"shards", "N", "endpoints behind the one downlink", WEFT_OPTION_U32, &config.shards,
         .min = 1, .max = WEFT_INCAST_SHARDS_MAX},
        {"bytes", "N", "of a message; a multiple of 4", WEFT_OPTION_U64, &config.message_bytes,
         .min = 4, .max = 100000000},
        {"rate-gbps", "N", "of every link", WEFT_OPTION_U64, &rate_gbps, .min = 1, .max = 1000},
        {"rtt-us", "N", "base round trip", WEFT_OPTION_U64, &rtt_us, .max = 1000000},
        {"buffer-kb", "N", "of the downlink, in 1,000 bytes", WEFT_OPTION_U64, &buffer_kb,
         .min = 6, .max = 1000000000},
        {"ecn-kb", "N", "marking threshold of the downlink, in 1,000 bytes; 0 = none",
         WEFT_OPTION_U64, &ecn_kb, .max = 1000000000},
        {"loss", "P", "of packets behind the downlink's queue and on the way back",
         WEFT_OPTION_PPM, .value = &config.loss_ppm},
        {"burst", NULL, "this loss comes in bursts of 8 packets on average (Gilbert)",
         WEFT_OPTION_FLAG, .value = &config.burst},
        {"bound", "P", "fraction of a message that may be missing", WEFT_OPTION_PPM,
         .value = &config.bound_ppm},
        {"rounds", "N", "back to back", WEFT_OPTION_U32, &config.rounds, .min = 1,
         .max = WEFT_INCAST_ROUNDS_MAX},
        {"seed", "N", "of the network and the endpoints", WEFT_OPTION_U64,
         .value = &config.seed},
        {"cc", "NAME", "congestion control", WEFT_OPTION_STRING, &config.cc_name,
         .fallback = weft_cc_all[0]->name},
        {"json", NULL, "print the result as one JSON object", WEFT_OPTION_FLAG,
         .value = &json},
        {0},
    };
    const struct weft_command command = {
        .name = "sim incast",
        .summary = "many senders, one downlink, one message each a round, on virtual time",
        .description =
            "A round runs from the word to all senders to the last completion at the receiver.\n"
            "ideal = wire time of all chunks once, with all headers, + the base round trip.\n"
            "Exit status 1 when a round has no end or the two ends disagree about a message.",
        .example = "  weft sim incast --senders 8 --buffer-kb 450 --loss 0.01 --bound 0.10\n"
                   "  weft sim incast --senders 64 --bytes 10000000 --rate-gbps 40 --rtt-us 10 "
                   "--rounds 20",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    config.rate_bps = rate_gbps * UINT64_C(1000000000);
    config.rtt_ns = rtt_us * WEFT_NS_PER_US;
    config.buffer_bytes = buffer_kb * 1000;
    config.ecn_bytes = ecn_kb * 1000;
    const char *wrong = weft_incast_config_check(&config);
    if (wrong != NULL) {
        return weft_options_usage(&command, "%s", wrong);
    }
    return incast_run(&config, json);
}
