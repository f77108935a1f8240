/* `weft aggregate --dense`: the aggregation box of dense rounds as a process with a UDP socket
 * (io/dense_box.h). It needs neither BPF nor root. */
#include "cli/aggregate_dense.h"

#include "cli/box_process.h"
#include "cli/box_report.h"
#include "cli/node_options.h"
#include "cli/options.h"

enum { PORT = 7701, SLOTS = 512, SLOTS_MAX = 65536 };

struct verb {
    const char *listen;
    char host[WEFT_METRICS_HOST_BYTES];
    uint32_t job;
    int32_t exponent;
    bool floats;
    struct weft_security security;
    struct weft_box_process box;
};

/* ---- options --------------------------------------------------------------------------------- */

static int check(const struct weft_command *command, struct verb *verb)
{
    struct weft_dense_box_config *config = &verb->box.config;
    if (verb->listen == NULL || !weft_metrics_address(verb->listen, verb->host, &config->port)) {
        return weft_options_usage(command, "--dense %.80s is not HOST:PORT, such as 127.0.0.1:%d",
                                  verb->listen != NULL ? verb->listen : "", PORT);
    }
    if (verb->security.mode != WEFT_MODE_NONE) {
        return weft_options_usage(
            command, "--dense needs --security none: packets of dense rounds have no "
                     "authentication, so any host that can send to this address can change sums; "
                     "give it only where every host is trusted");
    }
    if (verb->box.members == 0) {
        return weft_options_usage(command, "--members N is missing: a round is complete with the "
                                           "values of members 0 to N-1");
    }
    if (verb->floats && verb->exponent != 0) {
        return weft_options_usage(command,
                                  "--exponent is for integers; --float32 packets have none");
    }
    config->host = verb->host;
    config->insecure_network = verb->security.insecure_network;
    config->agg.job = (uint16_t)verb->job;
    config->agg.form = verb->floats ? WEFT_AGG_FLOAT32 : 0;
    config->agg.exponent = (int8_t)verb->exponent;
    return weft_security_check(command, &verb->security);
}

int weft_cli_aggregate_dense(int argc, char **argv)
{
    static struct verb verb;
    verb = (struct verb){
        .job = 1, .security = WEFT_SECURITY_DEFAULTS, .box.config.agg.slots = SLOTS};
    struct weft_dense_box_config *config = &verb.box.config;
    const struct weft_option options[] = {
        {"dense", "HOST:PORT",
         "address for the packets of members, numeric; 0.0.0.0 = every address\n"
         "of this host; port 0 = any free one",
         WEFT_OPTION_STRING, .value = &verb.listen, .fallback = "required"},
        {"security", "MODE", "none: packets are not authenticated", WEFT_OPTION_CUSTOM,
         .value = &verb.security.mode, .parse = weft_security_parse_mode, .fallback = "required"},
        {"insecure-network", NULL,
         "allow this beyond loopback, where any host on the network can change\n"
         "the sums",
         WEFT_OPTION_FLAG, .value = &verb.security.insecure_network},
        {"members", "N", "a round is complete with the values of members 0 to N-1", WEFT_OPTION_U32,
         .value = &verb.box.members, .min = 1, .max = WEFT_AGG_MEMBERS_MAX, .fallback = "required"},
        {"job", "N", "accept packets of this job", WEFT_OPTION_U32, .value = &verb.job,
         .max = UINT16_MAX},
        {"slots", "N", "slots, 2.9 KB each; a member has at most one packet in flight per slot",
         WEFT_OPTION_U32, .value = &config->agg.slots, .min = 1, .max = SLOTS_MAX},
        {"epoch", "N",
         "first epoch. Packets of earlier epochs are dropped; the first packet of\n"
         "a later one begins that epoch, whose rounds begin at 0",
         WEFT_OPTION_U32, .value = &config->agg.dense_epoch},
        {"exponent", "E",
         "a value is its integer x 2^E; packets with another E are not added, except\n"
         "where the members agree on exponents (box_block_float)",
         WEFT_OPTION_CUSTOM, .value = &verb.exponent, .parse = weft_box_parse_exponent,
         .fallback = "0"},
        {"float32", NULL,
         "sum floats instead of integers; the order of packets then decides how\n"
         "sums are rounded",
         WEFT_OPTION_FLAG, .value = &verb.floats},
        WEFT_METRICS_OPTIONS(&verb.box.metrics_options),
        {"json", NULL, "print the counters at the end as a JSON object", WEFT_OPTION_FLAG,
         .value = &verb.box.json},
        {"inject-loss", "F", "drop this fraction of arriving datagrams on purpose", WEFT_OPTION_PPM,
         .value = &config->loss.loss_ppm},
        {"inject-seed", "N", "seed of the random choice of dropped datagrams", WEFT_OPTION_U64,
         .value = &config->loss.seed},
        {0},
    };
    const struct weft_command command = {
        .name = "aggregate",
        .summary = "with --dense: sum packets of workers in this process",
        .description =
            "Sums int32 or float32 values of all members, packet by packet, and sends each sum to\n"
            "all of them (docs/PROTOCOL.md, section 12): what --xdp does in the kernel, for hosts\n"
            "without BPF and without root. A member's sums are sent to the address from which its\n"
            "last accepted packet came.\n"
            "\n"
            "Packets are not authenticated, so --security none is required: any host that can\n"
            "send to this address can change sums.\n"
            "\n"
            "Ctrl-C or SIGTERM stops it and prints the counters.",
        .example = "  weft aggregate --dense 127.0.0.1:7701 --members 4 --security none\n"
                   "  weft aggregate --dense 0.0.0.0:7701 --members 8 --security none "
                   "--insecure-network",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status == WEFT_OPTIONS_RUN) {
        status = check(&command, &verb);
    }
    return status == WEFT_OPTIONS_RUN ? weft_box_process_run(&verb.box) : status;
}
