#include "cli/sim/report.h"

#include "core/cc.h"

#include <inttypes.h>
#include <stdio.h>

void weft_cli_incast_print_json(const struct weft_incast_config *config,
                                const struct weft_incast_result *r)
{
    const char *cc = config->cc_name != NULL ? config->cc_name : weft_cc_all[0]->name;
    printf("\"senders\": %" PRIu32 ", \"shards\": %" PRIu32 ", \"bytes\": %" PRIu64
           ", \"rate_bps\": %" PRIu64 ", \"rtt_ns\": %" PRIu64 ", \"buffer_bytes\": %" PRIu64
           ", \"ecn_bytes\": %" PRIu64 ", \"loss_ppm\": %" PRIu32
           ", \"burst\": %s, \"bound_ppm\": %" PRIu32 ", \"cc\": \"%s\", \"seed\": %" PRIu64 ",",
           config->senders, config->shards, config->message_bytes, config->rate_bps, config->rtt_ns,
           config->buffer_bytes, config->ecn_bytes, config->loss_ppm,
           config->burst ? "true" : "false", config->bound_ppm, cc, config->seed);
    printf(" \"ok\": %s, \"rounds\": %" PRIu32 ", \"ideal_ns\": %" PRIu64 ", \"p50_ns\": %" PRIu64
           ", \"p99_ns\": %" PRIu64 ", \"max_ns\": %" PRIu64 ", \"mean_ns\": %" PRIu64
           ", \"p50_ratio\": %.4f, \"p99_ratio\": %.4f, \"max_ratio\": %.4f,",
           r->ok ? "true" : "false", r->rounds, r->ideal_ns, r->p50_ns, r->p99_ns, r->max_ns,
           r->mean_ns, weft_cli_ratio(r->p50_ns, r->ideal_ns),
           weft_cli_ratio(r->p99_ns, r->ideal_ns), weft_cli_ratio(r->max_ns, r->ideal_ns));
    printf(" \"delivered_ppm_mean\": %" PRIu32 ", \"delivered_ppm_min\": %" PRIu32
           ", \"retransmitted_ppm\": %" PRIu32 ", \"dropped_full\": %" PRIu64
           ", \"dropped_wire\": %" PRIu64 ", \"marked\": %" PRIu64 ", \"queue_bytes_max\": %" PRIu64
           ",",
           r->delivered_ppm_mean, r->delivered_ppm_min, r->retransmitted_ppm, r->dropped_full,
           r->dropped_wire, r->marked, r->queue_bytes_max);
    printf(" \"data_sent\": %" PRIu64 ", \"data_lost\": %" PRIu64 ", \"data_spurious\": %" PRIu64
           ", \"data_duplicate\": %" PRIu64 ", \"data_late\": %" PRIu64 ", \"probes\": %" PRIu64
           ", \"unknown\": %" PRIu64 ", \"goodput_bps\": [",
           r->data_sent, r->data_lost, r->data_spurious, r->data_duplicate, r->data_late, r->probes,
           r->unknown);
    for (uint32_t i = 0; i < config->shards; i++) {
        printf("%s%" PRIu64, i > 0 ? ", " : "", r->goodput_bps[i]);
    }
    printf("], \"jain_ppm\": %" PRIu32 ", \"packets\": %" PRIu64 ", \"virtual_ns\": %" PRIu64
           ", \"trace_hash\": \"%016" PRIx64 "\"",
           r->jain_ppm, r->packets, r->virtual_ns, r->trace_hash);
}
