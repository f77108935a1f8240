/* `weft aggregate --dense`: the aggregation box of dense rounds as a process with a UDP socket
 * (io/dense_box.h). It needs neither BPF nor root. */
#include "cli/aggregate_dense.h"

#include "cli/box_report.h"
#include "cli/metrics.h"
#include "cli/node_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/stop.h"
#include "io/clock.h"
#include "io/dense_box.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PORT = 7701, SLOTS = 512, SLOTS_MAX = 65536 };

struct verb {
    const char *listen;
    char host[WEFT_METRICS_HOST_BYTES];
    uint16_t port;
    uint32_t members;
    uint32_t job;
    uint32_t slots;
    uint32_t epoch;
    int32_t exponent;
    bool floats;
    bool json;
    struct weft_security security;
    struct weft_inject_loss_config loss;
    struct weft_metrics_options metrics_options;
    struct weft_metrics metrics;
    struct weft_dense_box *box;
    struct weft_agg_config config;
};

/* ---- counters -------------------------------------------------------------------------------- */

static const struct figure {
    const char *name; /* in /metrics: weft_box_<name> */
    const char *type;
    const char *help;
    size_t offset; /* in struct weft_dense_box_stats */
    bool is_u32;
} figures[] = {
#define FIGURE(name, type, field, help)                                                            \
    {                                                                                              \
        name, type, help, offsetof(struct weft_dense_box_stats, field),                            \
            sizeof(((struct weft_dense_box_stats *)0)->field) == sizeof(uint32_t)                  \
    }
    FIGURE("values_total", "counter", counts.values, "Values added to a sum, or starting one."),
    FIGURE("rounds_void_total", "counter", counts.voided,
           "Rounds whose sum is not valid: members sum these values in another way."),
    FIGURE("members_moved_total", "counter", moved,
           "Times that packets of a member began to come from another address in the same epoch: "
           "two members have one number."),
    FIGURE("sums_unsent_total", "counter", unsent,
           "Sums not sent to a member, as nothing was received from it."),
    FIGURE("datagrams_received_total", "counter", socket.datagrams_received,
           "Datagrams received."),
    FIGURE("datagrams_sent_total", "counter", socket.datagrams_sent, "Datagrams sent."),
    FIGURE("send_dropped_total", "counter", socket.send_dropped,
           "Datagrams that the kernel refused to send."),
    FIGURE("kernel_drops_total", "counter", socket.kernel_drops,
           "Datagrams dropped by the kernel because the receive buffer was full."),
    FIGURE("members", "gauge", members, "Members from which packets were received."),
    FIGURE("epoch", "gauge", epoch, "The epoch."),
#undef FIGURE
};

static uint64_t figure_of(const struct figure *figure, const struct weft_dense_box_stats *stats)
{
    const char *at = (const char *)stats + figure->offset;
    return figure->is_u32 ? *(const uint32_t *)(const void *)at
                          : *(const uint64_t *)(const void *)at;
}

static void add_families(void *arg, struct weft_exposition *text)
{
    struct verb *verb = arg;
    struct weft_dense_box_stats stats;
    char name[64], label[48];
    weft_dense_box_read(verb->box, &stats);
    weft_exposition_family(text, "weft_box_packets_total", "counter",
                           "Packets received, by what became of them.");
    for (int v = 0; v < WEFT_AGG_VERDICTS; v++) {
        snprintf(label, sizeof(label), "verdict=\"%s\"", weft_aggregate_verdict_names[v]);
        weft_exposition_u64(text, "weft_box_packets_total", label, stats.counts.packets[v]);
    }
    for (size_t f = 0; f < WEFT_ARRAY_COUNT(figures); f++) {
        snprintf(name, sizeof(name), "weft_box_%s", figures[f].name);
        weft_exposition_family(text, name, figures[f].type, figures[f].help);
        weft_exposition_u64(text, name, NULL, figure_of(&figures[f], &stats));
    }
}

static bool tell_counters(struct verb *verb)
{
    struct weft_dense_box_stats stats;
    weft_dense_box_read(verb->box, &stats);
    const struct weft_aggregate_counts counts = {.box = stats.counts, .moved = stats.moved};
    if (!verb->json) {
        return weft_box_report_print("aggregate", &counts);
    }
    struct weft_aggregate_facts facts = {.config = verb->config,
                                         .port = weft_dense_box_port(verb->box)};
    facts.config.dense_epoch = stats.epoch;
    cJSON *report = cJSON_CreateObject();
    cJSON_AddStringToObject(report, "mode", "process");
    weft_box_report_json(report, &facts, &counts);
    cJSON_DeleteItemFromObject(report, "program"); /* of the kernel; also the next one */
    cJSON_DeleteItemFromObject(report, "replies_unnoted");
    cJSON_AddBoolToObject(report, "float32", verb->floats);
    cJSON_AddNumberToObject(report, "members_known", stats.members);
    cJSON_AddNumberToObject(report, "sums_unsent", (double)stats.unsent);
    cJSON_AddNumberToObject(report, "datagrams_received", (double)stats.socket.datagrams_received);
    cJSON_AddNumberToObject(report, "datagrams_sent", (double)stats.socket.datagrams_sent);
    cJSON_AddNumberToObject(report, "send_dropped", (double)stats.socket.send_dropped);
    cJSON_AddNumberToObject(report, "kernel_drops", (double)stats.socket.kernel_drops);
    cJSON_AddNumberToObject(report, "injected_drops", (double)stats.socket.injected_drops);
    cJSON_AddNumberToObject(report, "cpu_s", (double)weft_clock_cpu_ns() / WEFT_NS_PER_S);
    return weft_output_json("aggregate", report, true);
}

/* ---- serving --------------------------------------------------------------------------------- */

static weft_status start(struct verb *verb, struct weft_error *error)
{
    verb->config = (struct weft_agg_config){.members = weft_box_members(verb->members),
                                            .dense_epoch = verb->epoch,
                                            .slots = verb->slots,
                                            .job = (uint16_t)verb->job,
                                            .form = verb->floats ? WEFT_AGG_FLOAT32 : 0,
                                            .exponent = (int8_t)verb->exponent};
    const struct weft_dense_box_config config = {.host = verb->host,
                                                 .port = verb->port,
                                                 .insecure_network =
                                                     verb->security.insecure_network,
                                                 .agg = verb->config,
                                                 .loss = verb->loss};
    weft_status status = weft_dense_box_open(&config, &verb->box, error);
    const struct weft_metrics_source source = {
        .role = "box", .arg = verb, .families = add_families};
    return status == WEFT_OK
               ? weft_metrics_start(&verb->metrics, &verb->metrics_options, &source, error)
               : status;
}

static void tell_ready(const struct verb *verb)
{
    bool v6 = strchr(verb->host, ':') != NULL;
    printf("box: %s%s%s:%u, members 0 .. %u, job %u, epoch %u, ", v6 ? "[" : "", verb->host,
           v6 ? "]" : "", weft_dense_box_port(verb->box), verb->members - 1, verb->job,
           verb->epoch);
    if (verb->floats) {
        printf("float32, ");
    } else {
        printf("exponent %d, ", verb->exponent);
    }
    printf("%u slots\n", verb->slots);
    if (verb->metrics.http != NULL) {
        printf("metrics: %s\n", verb->metrics.url);
    }
    fflush(stdout);
}

static int serve(struct verb *verb)
{
    struct weft_error error = {.text = ""};
    int stop_fd = weft_stop_fd(0); /* before the thread of /metrics, which inherits the mask */
    weft_status status = stop_fd < 0 ? weft_fail(&error, WEFT_IO, "cannot create a signalfd")
                                     : start(verb, &error);
    bool told = true;
    if (status == WEFT_OK) {
        tell_ready(verb);
        weft_dense_box_run(verb->box, stop_fd);
        told = tell_counters(verb);
    }
    weft_metrics_stop(&verb->metrics);
    weft_dense_box_close(verb->box);
    close(stop_fd);
    if (status != WEFT_OK) {
        return weft_cli_fail("aggregate", "%s", error.text);
    }
    return told ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

/* ---- options --------------------------------------------------------------------------------- */

static int check(const struct weft_command *command, struct verb *verb)
{
    if (verb->listen == NULL || !weft_metrics_address(verb->listen, verb->host, &verb->port)) {
        return weft_options_usage(command, "--dense %.80s is not HOST:PORT, such as 127.0.0.1:%d",
                                  verb->listen != NULL ? verb->listen : "", PORT);
    }
    if (verb->security.mode != WEFT_MODE_NONE) {
        return weft_options_usage(
            command, "--dense needs --security none: packets of dense rounds have no "
                     "authentication, so whoever can send to this address can change the sums; "
                     "say so only where every host is trusted");
    }
    if (verb->members == 0) {
        return weft_options_usage(command, "--members N is missing: a round is complete with the "
                                           "values of members 0 to N-1");
    }
    if (verb->floats && verb->exponent != 0) {
        return weft_options_usage(command,
                                  "--exponent is for integers; --float32 packets have none");
    }
    return weft_security_check(command, &verb->security);
}

int weft_cli_aggregate_dense(int argc, char **argv)
{
    static struct verb verb;
    verb = (struct verb){.job = 1, .slots = SLOTS, .security = WEFT_SECURITY_DEFAULTS};
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
         .value = &verb.members, .min = 1, .max = WEFT_AGG_MEMBERS_MAX, .fallback = "required"},
        {"job", "N", "accept packets of this job", WEFT_OPTION_U32, .value = &verb.job,
         .max = UINT16_MAX},
        {"slots", "N", "slots, 2.9 KB each; a member has at most one packet in flight per slot",
         WEFT_OPTION_U32, .value = &verb.slots, .min = 1, .max = SLOTS_MAX},
        {"epoch", "N",
         "first epoch. Packets of earlier epochs are dropped; the first packet of\n"
         "a later one begins that epoch, whose rounds begin at 0",
         WEFT_OPTION_U32, .value = &verb.epoch},
        {"exponent", "E", "a value is its integer x 2^E; packets with another one are not added",
         WEFT_OPTION_CUSTOM, .value = &verb.exponent, .parse = weft_box_parse_exponent,
         .fallback = "0"},
        {"float32", NULL,
         "sum floats instead of integers; the order of packets then decides how\n"
         "sums are rounded",
         WEFT_OPTION_FLAG, .value = &verb.floats},
        WEFT_METRICS_OPTIONS(&verb.metrics_options),
        {"json", NULL, "print the counters at the end as a JSON object", WEFT_OPTION_FLAG,
         .value = &verb.json},
        {"inject-loss", "F", "drop this fraction of arriving datagrams on purpose", WEFT_OPTION_PPM,
         .value = &verb.loss.loss_ppm},
        {"inject-seed", "N", "seed of the random choice of dropped datagrams", WEFT_OPTION_U64,
         .value = &verb.loss.seed},
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
            "Packets are not authenticated, which --security none must acknowledge: whoever can\n"
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
    return status == WEFT_OPTIONS_RUN ? serve(&verb) : status;
}
