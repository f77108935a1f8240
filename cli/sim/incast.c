/* `weft sim incast`: one cell of the incast grid, with all its statistics. */
#include "cli/options.h"
#include "cli/sim/report.h"
#include "cli/sim/tap.h"
#include "cli/verbs.h"

#include "core/cc.h"
#include "sim/incast.h"

#include <inttypes.h>
#include <stdio.h>

static void print_text(const struct weft_incast_config *config, const struct weft_incast_result *r)
{
    printf("%" PRIu32 " rounds, ideal %.3f ms\n", r->rounds, weft_cli_ms(r->ideal_ns));
    printf("round p50 %.3f ms (%.3f x ideal), p99 %.3f (%.3f x), max %.3f (%.3f x)\n",
           weft_cli_ms(r->p50_ns), weft_cli_ratio(r->p50_ns, r->ideal_ns), weft_cli_ms(r->p99_ns),
           weft_cli_ratio(r->p99_ns, r->ideal_ns), weft_cli_ms(r->max_ns),
           weft_cli_ratio(r->max_ns, r->ideal_ns));
    printf("delivered %.3f %% (minimum %.3f %%), retransmitted %.3f %%\n",
           weft_cli_percent(r->delivered_ppm_mean), weft_cli_percent(r->delivered_ppm_min),
           weft_cli_percent(r->retransmitted_ppm));
    printf("switch: %" PRIu64 " packets dropped, %" PRIu64 " marked, queue up to %" PRIu64
           " bytes; lost behind it %" PRIu64 "\n",
           r->dropped_full, r->marked, r->queue_bytes_max, r->dropped_wire);
    printf("DATA: %" PRIu64 " sent, %" PRIu64 " declared lost, %" PRIu64
           " of these spuriously; %" PRIu64 " duplicate chunks, %" PRIu64 " late; %" PRIu64
           " probes, %" PRIu64 " UNKNOWN\n",
           r->data_sent, r->data_lost, r->data_spurious, r->data_duplicate, r->data_late, r->probes,
           r->unknown);
    for (uint32_t i = 0; i < config->shards; i++) {
        printf("goodput of endpoint %" PRIu32 ": %.1f Mbit/s\n", i,
               (double)r->goodput_bps[i] / 1e6);
    }
    printf("Jain's index %.4f\n", (double)r->jain_ppm / 1e6);
    printf("%" PRIu64 " packets, %.3f ms of virtual time, trace hash %016" PRIx64 "\n", r->packets,
           weft_cli_ms(r->virtual_ns), r->trace_hash);
}

/* False: no run, or a file is incomplete. */
static bool run_tapped(struct weft_incast_config *config, struct weft_sim_tap *tap,
                       struct weft_incast_result *result)
{
    bool good = weft_sim_tap_open(tap);
    if (good) {
        config->tap = &tap->tap;
        weft_incast_run(config, result);
    }
    return weft_sim_tap_close(tap) && good;
}

static int incast_run(struct weft_incast_config *config, struct weft_sim_tap *tap, bool json)
{
    static struct weft_incast_result result;
    if (!run_tapped(config, tap, &result)) {
        return WEFT_EXIT_FAILED;
    }
    if (json) {
        printf("{");
        weft_cli_incast_print_json(config, &result);
        printf("}\n");
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
    struct weft_sim_tap tap = {0};
    weft_incast_config_default(&config);
    const struct weft_option options[] = {
        {"senders", "N", "senders to each endpoint", WEFT_OPTION_U32, &config.senders, .min = 1,
         .max = WEFT_INCAST_SENDERS_MAX},
        {"shards", "N", "endpoints that share the downlink", WEFT_OPTION_U32, &config.shards,
         .min = 1, .max = WEFT_INCAST_SHARDS_MAX},
        {"bytes", "N", "bytes of a message; a multiple of 4", WEFT_OPTION_U64,
         &config.message_bytes,
         .min = 4, .max = 100000000},
        {"rate-gbps", "N", "rate of every link", WEFT_OPTION_U64, &rate_gbps, .min = 1,
         .max = 1000},
        {"rtt-us", "N", "base round trip", WEFT_OPTION_U64, &rtt_us, .max = 1000000},
        {"buffer-kb", "N", "buffer of the downlink, in 1,000 bytes", WEFT_OPTION_U64, &buffer_kb,
         .min = 6, .max = 1000000000},
        {"ecn-kb", "N", "marking threshold of the downlink, in 1,000 bytes; 0 = none",
         WEFT_OPTION_U64, &ecn_kb, .max = 1000000000},
        {"loss", "P",
         "loss rate of packets after the downlink's queue and in the reverse direction",
         WEFT_OPTION_PPM, .value = &config.loss_ppm},
        {"burst", NULL, "lose packets in bursts of 8 on average (Gilbert)",
         WEFT_OPTION_FLAG, .value = &config.burst},
        {"bound", "P", "fraction of a message that may be missing", WEFT_OPTION_PPM,
         .value = &config.bound_ppm},
        {"unannounced", NULL, "do not announce the number of senders to the receiver",
         WEFT_OPTION_FLAG, .value = &config.unannounced},
        {"rounds", "N", "number of rounds, back to back", WEFT_OPTION_U32, &config.rounds, .min = 1,
         .max = WEFT_INCAST_ROUNDS_MAX},
        {"seed", "N", "seed of the network and the endpoints", WEFT_OPTION_U64,
         .value = &config.seed},
        {"cc", "NAME", "congestion control", WEFT_OPTION_STRING, &config.cc_name,
         .fallback = weft_cc_all[0]->name},
        {"json", NULL, "print the result as one JSON object", WEFT_OPTION_FLAG,
         .value = &json},
        WEFT_SIM_TAP_OPTIONS(&tap),
        {0},
    };
    const struct weft_command command = {
        .name = "sim incast",
        .summary = "run incast rounds (one message per sender) in virtual time",
        .description =
            "A round lasts from the start signal to all senders to the last completion at the\n"
            "receiver. ideal = wire time of all chunks once, with all headers, + the base round "
            "trip.\n"
            "Exit status 1 if a round does not complete or the two ends disagree about a message.",
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
    return incast_run(&config, &tap, json);
}
