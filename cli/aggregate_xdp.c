/* `weft aggregate --xdp`: the aggregation box as an XDP program on interfaces of this host. It
 * loads and configures the program; the kernel does the rest until this process ends. Where that is
 * not possible, the box of a process sums the same packets (cli/box_process.h). */
#include "cli/aggregate_xdp.h"

#include "cli/box_metrics.h"
#include "cli/box_process.h"
#include "cli/box_report.h"
#include "cli/metrics.h"
#include "cli/node_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/stop.h"
#include "lab/aggregate.h"

#include <limits.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PORT = 7701, SLOTS = 512, SLOTS_MAX = 65536 };

/* Addresses of the host and counters are read this often. */
enum { LOOK_MS = 1000 };

struct verb {
    const char *list;
    char interfaces[WEFT_AGG_MEMBERS_MAX][IF_NAMESIZE];
    uint32_t count;
    uint32_t members; /* 0: one for each interface */
    uint32_t port;
    uint32_t job;
    uint32_t slots;
    uint32_t epoch;
    int32_t exponent;
    bool generic;
    bool through_queues;
    bool json;
    bool no_fallback;
    bool warned; /* that the addresses could not be read; until they can be again */
    struct weft_security security;
    struct weft_aggregate *box;
    pthread_mutex_t lock; /* held by a thread that uses the box */
    struct weft_metrics_options metrics_options;
    struct weft_metrics metrics;
    struct weft_box_figures figures; /* the last that /metrics could read */
};

/* ---- /metrics -------------------------------------------------------------------------------- */

/* If the counters cannot be read, such as for lack of memory, they are those of the last time. */
static void add_families(void *arg, struct weft_exposition *text)
{
    struct verb *verb = arg;
    struct weft_aggregate_facts facts;
    struct weft_aggregate_counts counts;
    struct weft_error error;
    pthread_mutex_lock(&verb->lock);
    if (weft_aggregate_read_facts(verb->box, &facts, &error) == WEFT_OK &&
        weft_aggregate_read_counts(verb->box, &counts, &error) == WEFT_OK) {
        verb->figures = (struct weft_box_figures){
            .counts = counts, .members = facts.known, .epoch = facts.config.dense_epoch};
    }
    weft_box_families(text, &verb->figures);
    pthread_mutex_unlock(&verb->lock);
}

/* ---- serving --------------------------------------------------------------------------------- */

static weft_status attach_all(struct verb *verb, struct weft_error *error)
{
    unsigned how = (verb->generic ? WEFT_AGGREGATE_GENERIC : 0) |
                   (verb->through_queues ? WEFT_AGGREGATE_QUEUE : 0);
    weft_status status = WEFT_OK;
    for (uint32_t i = 0; i < verb->count && status == WEFT_OK; i++) {
        status = weft_aggregate_attach(verb->box, verb->interfaces[i], how, error);
    }
    return status;
}

static weft_status use_generic(struct verb *verb, const char *why, struct weft_error *error)
{
    fprintf(stderr,
            "weft aggregate: %s; generic mode on all interfaces instead, which costs more for each "
            "packet\n",
            why);
    weft_aggregate_detach(verb->box);
    verb->generic = true;
    return attach_all(verb, error);
}

/* Native mode, or generic mode on all interfaces if one has no native mode. */
static weft_status attach(struct verb *verb, struct weft_error *error)
{
    weft_status status = attach_all(verb, error);
    if (status != WEFT_UNSUPPORTED || verb->generic) {
        return status;
    }
    const struct weft_error why = *error;
    return use_generic(verb, why.text, error);
}

/* A failure may pass, such as a lack of descriptors, and the box works without this: it keeps the
 * addresses that it has, and the next look tries again. */
static void follow_host(struct verb *verb)
{
    struct weft_error error;
    if (weft_aggregate_follow_host(verb->box, &error) == WEFT_OK) {
        verb->warned = false;
    } else if (!verb->warned) {
        fprintf(stderr,
                "weft aggregate: %s; the box keeps the addresses that it has and tries again each "
                "second\n",
                error.text);
        verb->warned = true;
    }
}

/* Whether a driver has XDP metadata is seen only when it has to keep some. Generic mode has it on
 * every interface. */
static weft_status look_for_metadata(struct verb *verb, struct weft_error *error)
{
    struct weft_aggregate_counts counts;
    if (verb->generic || !verb->through_queues) {
        return WEFT_OK;
    }
    weft_status status = weft_aggregate_read_counts(verb->box, &counts, error);
    return status == WEFT_OK && counts.unnoted > 0
               ? use_generic(verb,
                             "the driver of an interface has no XDP metadata, which "
                             "--through-queues needs in native mode",
                             error)
               : status;
}

static weft_status look(struct verb *verb, struct weft_error *error)
{
    pthread_mutex_lock(&verb->lock);
    follow_host(verb);
    weft_status status = look_for_metadata(verb, error);
    pthread_mutex_unlock(&verb->lock);
    return status;
}

static struct weft_agg_config config_of(const struct verb *verb)
{
    return (struct weft_agg_config){.members = weft_box_members(verb->members),
                                    .dense_epoch = verb->epoch,
                                    .slots = verb->slots,
                                    .job = (uint16_t)verb->job,
                                    .exponent = (int8_t)verb->exponent};
}

/* Errors:  WEFT_UNSUPPORTED  this host cannot run the program. */
static weft_status start(struct verb *verb, struct weft_error *error)
{
    const struct weft_agg_config config = config_of(verb);
    weft_status status = weft_aggregate_open(&config, (uint16_t)verb->port, &verb->box, error);
    if (status == WEFT_OK) {
        status = weft_aggregate_follow_host(verb->box, error);
    }
    if (status == WEFT_OK) {
        status = attach(verb, error);
    }
    return status == WEFT_OK ? weft_aggregate_learn(verb->box, error) : status;
}

static void tell_ready(const struct verb *verb)
{
    printf("box: UDP port %u on %s (%s mode%s), members 0 .. %u, job %u, epoch %u, exponent %d, %u "
           "slots\n",
           verb->port, verb->list, verb->generic ? "generic" : "native",
           verb->through_queues || verb->generic ? ", through queues" : "", verb->members - 1,
           verb->job, verb->epoch, verb->exponent, verb->slots);
    if (verb->metrics.http != NULL) {
        printf("metrics: %s\n", verb->metrics.url);
    }
    fflush(stdout);
}

/* False: an error was printed. */
static bool report_counters(const struct verb *verb)
{
    struct weft_aggregate_facts facts;
    struct weft_aggregate_counts counts;
    struct weft_error error = {.text = ""};
    weft_status status = weft_aggregate_read_facts(verb->box, &facts, &error);
    if (status == WEFT_OK) {
        status = weft_aggregate_read_counts(verb->box, &counts, &error);
    }
    if (status != WEFT_OK) {
        (void)weft_cli_fail("aggregate", "%s", error.text);
        return false;
    }
    if (!verb->json) {
        return weft_box_report_print("aggregate", &counts);
    }
    cJSON *report = cJSON_CreateObject();
    cJSON *interfaces = cJSON_AddArrayToObject(report, "interfaces");
    for (uint32_t i = 0; i < verb->count; i++) {
        cJSON_AddItemToArray(interfaces, cJSON_CreateString(verb->interfaces[i]));
    }
    cJSON_AddStringToObject(report, "mode", verb->generic ? "generic" : "native");
    weft_box_report_json(report, &facts, &counts);
    return weft_output_json("aggregate", report, true);
}

/* The bridge, bond or VRF of an interface, at which a socket sees its packets. False: none. */
static bool master_of(const char *interface, char master_p[IF_NAMESIZE])
{
    char path[sizeof("/sys/class/net//master") + IF_NAMESIZE];
    char target[PATH_MAX];
    snprintf(path, sizeof(path), "/sys/class/net/%s/master", interface);
    ssize_t bytes = readlink(path, target, sizeof(target) - 1);
    if (bytes < 0) {
        return false;
    }
    target[bytes] = '\0';
    const char *slash = strrchr(target, '/');
    snprintf(master_p, IF_NAMESIZE, "%.*s", IF_NAMESIZE - 1, slash != NULL ? slash + 1 : target);
    return true;
}

/* The box as a process, at the same interfaces. */
static int fall_back(const struct verb *verb, const char *why)
{
    static struct weft_box_process process;
    uint32_t interfaces[WEFT_AGG_MEMBERS_MAX];
    for (uint32_t i = 0; i < verb->count; i++) {
        interfaces[i] = if_nametoindex(verb->interfaces[i]);
        if (interfaces[i] == 0) {
            return weft_cli_fail("aggregate", "no interface named %s", verb->interfaces[i]);
        }
        char master[IF_NAMESIZE];
        if (master_of(verb->interfaces[i], master)) {
            return weft_cli_fail("aggregate",
                                 "%s; nor can this process sum the packets of %s, which the kernel "
                                 "delivers as those of %s: name %s instead",
                                 why, verb->interfaces[i], master, master);
        }
    }
    fprintf(stderr,
            "weft aggregate: %s; this process sums the packets instead, which costs more for each "
            "(`weft doctor` checks the host, --no-fallback makes this an error)\n",
            why);
    process = (struct weft_box_process){
        .config = {.host = "0.0.0.0", /* as the program: any IPv4 address of the host */
                   .port = (uint16_t)verb->port,
                   .insecure_network = true, /* --security none, for these interfaces alone */
                   .interfaces = interfaces,
                   .interfaces_count = verb->count,
                   .agg = config_of(verb)},
        .members = verb->members,
        .metrics_options = verb->metrics_options,
        .json = verb->json};
    return weft_box_process_run(&process);
}

static weft_status serve_until(struct verb *verb, struct pollfd *stop, struct weft_error *error)
{
    const struct weft_metrics_source source = {
        .role = "box", .arg = verb, .families = add_families};
    weft_status status =
        weft_metrics_start(&verb->metrics, &verb->metrics_options, &source, error);
    if (status == WEFT_OK) {
        tell_ready(verb);
    }
    while (status == WEFT_OK && poll(stop, 1, LOOK_MS) <= 0) {
        status = look(verb, error);
    }
    weft_metrics_stop(&verb->metrics);
    return status;
}

static int serve(struct verb *verb)
{
    struct weft_error error = {.text = ""};
    struct pollfd stop = {.fd = weft_stop_fd(0), .events = POLLIN}; /* before /metrics' thread */
    weft_status status =
        stop.fd < 0 ? weft_fail(&error, WEFT_IO, "cannot create a signalfd") : start(verb, &error);
    const bool falls_back = status == WEFT_UNSUPPORTED && !verb->no_fallback;
    if (status == WEFT_OK) {
        status = serve_until(verb, &stop, &error);
        weft_aggregate_detach(verb->box);
    }
    bool told = status == WEFT_OK && report_counters(verb);
    weft_aggregate_close(verb->box);
    close(stop.fd);
    if (falls_back) {
        return fall_back(verb, error.text);
    }
    if (status != WEFT_OK) {
        return weft_cli_fail("aggregate", "%s%s", error.text,
                             status == WEFT_UNSUPPORTED ? "; `weft doctor` checks the host" : "");
    }
    return told ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

/* ---- options --------------------------------------------------------------------------------- */

static int split(const struct weft_command *command, struct verb *verb)
{
    for (const char *at = verb->list; at != NULL;) {
        size_t bytes = strcspn(at, ",");
        if (bytes == 0 || bytes >= IF_NAMESIZE) {
            return weft_options_usage(command,
                                      "--xdp \"%.80s\" is not a list of interfaces, such "
                                      "as eth1,eth2",
                                      verb->list);
        }
        if (verb->count == WEFT_AGG_MEMBERS_MAX) {
            return weft_options_usage(command, "--xdp has more than %d interfaces",
                                      WEFT_AGG_MEMBERS_MAX);
        }
        char *name = verb->interfaces[verb->count];
        memcpy(name, at, bytes);
        name[bytes] = '\0';
        for (uint32_t i = 0; i < verb->count; i++) {
            if (strcmp(verb->interfaces[i], name) == 0) {
                return weft_options_usage(command, "--xdp has %s twice", name);
            }
        }
        verb->count++;
        at = at[bytes] == ',' ? at + bytes + 1 : NULL;
    }
    return WEFT_OPTIONS_RUN;
}

static int check(const struct weft_command *command, struct verb *verb)
{
    int status = split(command, verb);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    if (verb->security.mode != WEFT_MODE_NONE) {
        return weft_options_usage(
            command,
            "--xdp needs --security none: BPF has no AES-GCM, so the program cannot verify "
            "who sent a packet. Whoever can send to these interfaces can change the sums; "
            "say so only on links whose every host is trusted");
    }
    verb->members = verb->members != 0 ? verb->members : verb->count;
    if (verb->members > verb->count && !verb->through_queues && !verb->generic) {
        return weft_options_usage(command,
                                  "--members %u with %u interface%s: XDP sends a sum once by each "
                                  "interface, so each member needs one; with --through-queues "
                                  "several can share one",
                                  verb->members, verb->count, verb->count == 1 ? "" : "s");
    }
    return WEFT_OPTIONS_RUN;
}

int weft_cli_aggregate_xdp(int argc, char **argv)
{
    static struct verb verb;
    verb = (struct verb){.port = PORT,
                         .job = 1,
                         .slots = SLOTS,
                         .security = WEFT_SECURITY_DEFAULTS,
                         .lock = PTHREAD_MUTEX_INITIALIZER};
    const struct weft_option options[] = {
        {"xdp", "IFACE,...", "interfaces to the members; packets show which member is at which",
         WEFT_OPTION_STRING, .value = &verb.list, .fallback = "required"},
        {"security", "MODE", "none: the program cannot authenticate packets", WEFT_OPTION_CUSTOM,
         .value = &verb.security.mode, .parse = weft_security_parse_mode, .fallback = "required"},
        {"members", "N", "a round is complete with the values of members 0 to N-1", WEFT_OPTION_U32,
         .value = &verb.members, .min = 1, .max = WEFT_AGG_MEMBERS_MAX,
         .fallback = "one for each interface"},
        {"port", "PORT", "UDP port of the packets to sum; others pass unchanged", WEFT_OPTION_U32,
         .value = &verb.port, .min = 1, .max = UINT16_MAX},
        {"job", "N", "accept packets of this job", WEFT_OPTION_U32, .value = &verb.job,
         .max = UINT16_MAX},
        {"slots", "N", "slots, 2.9 KB each; a member has at most one packet in flight per slot",
         WEFT_OPTION_U32, .value = &verb.slots, .min = 1, .max = SLOTS_MAX},
        {"epoch", "N",
         "first epoch. Packets of earlier epochs are dropped; the first packet of\n"
         "a later one begins that epoch, whose rounds begin at 0",
         WEFT_OPTION_U32, .value = &verb.epoch},
        {"exponent", "E",
         "a value is its integer x 2^E; packets with another E are not added, except\n"
         "where the members agree on exponents (box_block_float)",
         WEFT_OPTION_CUSTOM, .value = &verb.exponent, .parse = weft_box_parse_exponent,
         .fallback = "0"},
        {"through-queues", NULL,
         "send sums through the queues of the interfaces (tc; Linux 6.6) instead of\n"
         "past them. Several members can then share an interface, and the other\n"
         "ends of veth interfaces need no XDP program",
         WEFT_OPTION_FLAG, .value = &verb.through_queues},
        {"generic", NULL,
         "generic mode, which every interface has and which costs more for each\n"
         "packet; includes --through-queues",
         WEFT_OPTION_FLAG, .value = &verb.generic},
        {"no-fallback", NULL,
         "if this host cannot run the program, end with an error instead of summing\n"
         "the packets in this process",
         WEFT_OPTION_FLAG, .value = &verb.no_fallback},
        WEFT_METRICS_OPTIONS(&verb.metrics_options),
        {"json", NULL, "print the counters at the end as a JSON object", WEFT_OPTION_FLAG,
         .value = &verb.json},
        {0},
    };
    const struct weft_command command = {
        .name = "aggregate",
        .summary = "with --xdp: sum packets of workers in the kernel, at network interfaces",
        .description =
            "Loads an XDP program that sums int32 values of all members, packet by packet, and\n"
            "sends each sum to all of them (docs/PROTOCOL.md, section 12). Members send to any\n"
            "IPv4 address of this host; all other packets pass. If an interface has no native\n"
            "mode, generic mode is used on all. The kernel removes the program when this process\n"
            "ends, for any reason.\n"
            "\n"
            "Needs root, and a build and a kernel with BPF; `weft doctor` checks them. Without\n"
            "these, this process prints a warning and itself sums the packets that arrive at the\n"
            "interfaces.\n"
            "\n"
            "Packets are not authenticated, so --security none is required: any host that can\n"
            "send to these interfaces can change sums.\n"
            "\n"
            "Ctrl-C or SIGTERM stops it and prints the counters.",
        .example = "  weft aggregate --xdp eth1,eth2,eth3 --security none\n"
                   "  weft aggregate --xdp eth0 --members 8 --through-queues --epoch 1 "
                   "--security none",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status == WEFT_OPTIONS_RUN) {
        status = check(&command, &verb);
    }
    return status == WEFT_OPTIONS_RUN ? serve(&verb) : status;
}
