#include "cli/lab/options.h"

#include "agg/agg.h"
#include "base/units.h"
#include "lab/background.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two frames: with less, a port could not queue one frame while it sends another. */
static const uint64_t buffer_bytes_min = UINT64_C(2) * 1514;

/* Two segments, likewise. */
static const uint64_t offload_buffer_bytes_min = UINT64_C(2) * 65536;

static const char rate_allowed[] = "a rate such as 1gbit, 100mbit or 64kbit (8kbit .. 100gbit), "
                                   "or none";

static const uint64_t core_bps_default = UINT64_C(1000000000);
static const uint64_t core_not_given = UINT64_MAX;

const char *const weft_lab_topologies[] = {"star", "spine-leaf", NULL};
const char *const weft_lab_aggregates[] = {"none", "xdp", NULL};

void weft_lab_options_init(struct weft_lab_options *o)
{
    *o = (struct weft_lab_options){.spec = {.hosts = 4,
                                            .core_bps = core_not_given,
                                            .rate_bps = UINT64_C(1000000000),
                                            .buffer_bytes = UINT64_C(128) * 1024}};
}

void weft_lab_options_fini(struct weft_lab_options *o)
{
    weft_lab_rate_trace_free(&o->trace);
}

const char *weft_lab_option_rate(const char *text, void *value)
{
    uint64_t *rate_bps = value;
    if (strcmp(text, "none") == 0) {
        *rate_bps = 0;
        return NULL;
    }
    return weft_lab_parse_rate(text, rate_bps) ? NULL : rate_allowed;
}

const char *weft_lab_option_bytes(const char *text, void *value)
{
    uint64_t *bytes = value;
    return weft_lab_parse_bytes(text, bytes) && *bytes >= buffer_bytes_min
               ? NULL
               : "a size such as 128kb or 9000, from 3028 bytes (two frames) to 1024mb";
}

const char *weft_lab_option_rates(const char *text, void *value)
{
    static const char allowed[] = "HOST=RATE, such as 0=100mbit";
    struct weft_lab_rates *rates = value;
    char host[WEFT_LAB_NODE_BYTES];
    const char *equals = strchr(text, '=');
    if (equals == NULL || (size_t)(equals - text) >= sizeof(host) ||
        rates->count == WEFT_LAB_HOSTS_MAX) {
        return allowed;
    }
    snprintf(host, sizeof(host), "%.*s", (int)(equals - text), text);
    bool good = weft_lab_parse_host(host, WEFT_LAB_HOSTS_MAX, &rates->hosts[rates->count]) &&
                weft_lab_option_rate(equals + 1, &rates->rates_bps[rates->count]) == NULL;
    rates->count += good;
    return good ? NULL : allowed;
}

/* Bursts of one packet can lose at most every other packet: after each loss one packet passes. */
const char *weft_lab_option_bursts(const char *text, void *value)
{
    static const char allowed[] =
        "FRACTION:PACKETS, such as 0.01:5: up to 0.3, bursts of 1 to 10000";
    struct weft_lab_spec *spec = value;
    char *end;
    double loss = strtod(text, &end);
    if (end == text || *end != ':' || !(loss >= 1e-6 && loss <= 0.3)) {
        return allowed;
    }
    const char *packets_text = end + 1;
    double packets = strtod(packets_text, &end);
    if (end == packets_text || *end != '\0' || !(packets >= 1 && packets <= 10000)) {
        return allowed;
    }
    spec->burst_ppm = (uint32_t)(loss * WEFT_PPM + 0.5);
    spec->burst_packets = packets;
    return NULL;
}

/* ---- together -------------------------------------------------------------------------------- */

static int set_links(struct weft_lab_options *o, const struct weft_command *command)
{
    struct weft_lab_spec *spec = &o->spec;
    weft_lab_spec_links(spec);
    const struct weft_lab_rates *both[] = {&o->up, &o->down};
    for (size_t way = 0; way < 2; way++) {
        for (uint32_t i = 0; i < both[way]->count; i++) {
            uint32_t host = both[way]->hosts[i];
            if (host >= spec->hosts) {
                return weft_options_usage(command, "--%s: host %u does not exist; the last is %u",
                                          way == 0 ? "uplink" : "downlink", host, spec->hosts - 1);
            }
            struct weft_lab_link *link = &spec->links[host];
            *(way == 0 ? &link->up_bps : &link->down_bps) = both[way]->rates_bps[i];
        }
    }
    return WEFT_OPTIONS_RUN;
}

static int read_trace(struct weft_lab_options *o, const struct weft_command *command)
{
    struct weft_lab_spec *spec = &o->spec;
    struct weft_error error = {.text = ""};
    if (o->trace_path == NULL) {
        return WEFT_OPTIONS_RUN;
    }
    if (weft_lab_rate_trace_read(o->trace_path, spec->hosts, &o->trace, &error) != WEFT_OK) {
        return weft_options_usage(command, "--trace: %s", error.text);
    }
    for (size_t i = 0; i < o->trace.count; i++) {
        const struct weft_lab_step *step = &o->trace.steps[i];
        const struct weft_lab_link *link = &spec->links[step->host];
        if ((step->link.up_bps != 0 && link->up_bps == 0) ||
            (step->link.down_bps != 0 && link->down_bps == 0)) {
            return weft_options_usage(command,
                                      "--trace: the link of h%u has no rate limit; set a rate that "
                                      "can change",
                                      step->host);
        }
    }
    snprintf(spec->trace, sizeof(spec->trace), "%s", o->trace_path);
    spec->trace_hash = weft_lab_rate_trace_hash(&o->trace);
    return WEFT_OPTIONS_RUN;
}

/* The holder reads a file of sizes from another directory, so make its path absolute. */
static int check_background(struct weft_lab_options *o, const struct weft_command *command)
{
    struct weft_lab_spec *spec = &o->spec;
    static struct weft_flow_sizes sizes;
    struct weft_error error = {.text = ""};
    uint32_t load_ppm;
    char path[PATH_MAX];
    if (o->background == NULL) {
        return WEFT_OPTIONS_RUN;
    }
    if (weft_background_parse(o->background, &sizes, &load_ppm, &error) != WEFT_OK) {
        return weft_options_usage(command, "--background: %s", error.text);
    }
    if (spec->rate_bps == 0 || spec->hosts < 2) {
        return weft_options_usage(command, "--background requires --rate and at least two hosts");
    }
    int name_bytes = (int)(strrchr(o->background, ':') - o->background);
    snprintf(path, sizeof(path), "%.*s", name_bytes, o->background);
    char *full = weft_flow_sizes_published(path) ? NULL : realpath(path, NULL);
    int length = snprintf(spec->background, sizeof(spec->background), "%s%s",
                          full != NULL ? full : path, o->background + name_bytes);
    free(full);
    return length < (int)sizeof(spec->background)
               ? WEFT_OPTIONS_RUN
               : weft_options_usage(command, "--background: the file's path is too long");
}

/* Options of spine-leaf given for a star are probably a mistake. */
static int set_topology(struct weft_lab_spec *spec, bool spine_leaf,
                        const struct weft_command *command)
{
    bool core_given = spec->core_bps != core_not_given;
    if (!spine_leaf && (spec->leaves != 0 || spec->spines != 0 || core_given)) {
        return weft_options_usage(command, "--leaves, --spines and --core-rate require --topology "
                                           "spine-leaf");
    }
    if (!spine_leaf) {
        spec->leaves = 1;
        spec->core_bps = 0;
        return WEFT_OPTIONS_RUN;
    }
    spec->leaves = spec->leaves != 0 ? spec->leaves : 2;
    spec->spines = spec->spines != 0 ? spec->spines : 2;
    spec->core_bps = core_given ? spec->core_bps : core_bps_default;
    if (spec->hosts * spec->leaves > WEFT_LAB_HOSTS_MAX) {
        return weft_options_usage(command, "%u leaves of %u hosts are more than %d hosts",
                                  spec->leaves, spec->hosts, WEFT_LAB_HOSTS_MAX);
    }
    spec->hosts *= spec->leaves;
    return WEFT_OPTIONS_RUN;
}

/* Without marks the network would look uncongested. */
static int set_ecn(struct weft_lab_options *o, const struct weft_command *command)
{
    const struct weft_lab_spec *spec = &o->spec;
    if (o->ecn_bytes >= spec->buffer_bytes) {
        return weft_options_usage(command,
                                  "--ecn %llu is not below --buffer %llu: no packet would "
                                  "be marked",
                                  (unsigned long long)o->ecn_bytes,
                                  (unsigned long long)spec->buffer_bytes);
    }
    if (o->ecn_bytes > 0 && spec->rate_bps == 0 && o->down.count == 0 && spec->spines == 0) {
        return weft_options_usage(command,
                                  "--ecn requires --rate: without a limit no queue builds up");
    }
    o->spec.ecn_bytes = (uint32_t)o->ecn_bytes;
    return WEFT_OPTIONS_RUN;
}

/* Losses and drops must have the requested granularity. */
static int check_offload(const struct weft_lab_spec *spec, const struct weft_command *command)
{
    if (spec->offload && (spec->loss_ppm > 0 || spec->burst_ppm > 0)) {
        return weft_options_usage(command,
                                  "--offload cannot be combined with --%s: a loss would "
                                  "drop a segment of up to 64 KB, 44 packets at once",
                                  spec->loss_ppm > 0 ? "loss" : "burst-loss");
    }
    if (spec->offload && spec->buffer_bytes < offload_buffer_bytes_min) {
        return weft_options_usage(command, "--offload requires a --buffer of at least 128kb: "
                                           "segments have up to 64 KB, and their headers");
    }
    return WEFT_OPTIONS_RUN;
}

/* A member of a box is one bit of a word, and a packet is one frame. */
static int set_boxes(struct weft_lab_options *o, const struct weft_command *command)
{
    struct weft_lab_spec *spec = &o->spec;
    spec->has_boxes = o->aggregate == 1;
    if (spec->has_boxes && spec->hosts / spec->leaves > WEFT_AGG_MEMBERS_MAX) {
        return weft_options_usage(command, "--aggregate xdp: a box has at most %d hosts, not %u",
                                  WEFT_AGG_MEMBERS_MAX, spec->hosts / spec->leaves);
    }
    if (spec->has_boxes && spec->offload) {
        return weft_options_usage(command, "--aggregate xdp cannot be combined with --offload: an "
                                           "XDP program gets single frames");
    }
    return WEFT_OPTIONS_RUN;
}

int weft_lab_options_spec(struct weft_lab_options *o, const struct weft_command *command,
                          const char *name)
{
    if (!weft_lab_name_ok(name)) {
        return weft_options_usage(command,
                                  "\"%.40s\" is not a valid lab name; use letters, digits "
                                  "and dashes, at most %d",
                                  name, WEFT_LAB_NAME_BYTES - 1);
    }
    snprintf(o->spec.name, sizeof(o->spec.name), "%s", name);
    int status = set_topology(&o->spec, o->topology == 1, command);
    status = status == WEFT_OPTIONS_RUN ? set_ecn(o, command) : status;
    status = status == WEFT_OPTIONS_RUN ? check_offload(&o->spec, command) : status;
    status = status == WEFT_OPTIONS_RUN ? set_boxes(o, command) : status;
    status = status == WEFT_OPTIONS_RUN ? check_background(o, command) : status;
    status = status == WEFT_OPTIONS_RUN ? set_links(o, command) : status;
    return status == WEFT_OPTIONS_RUN ? read_trace(o, command) : status;
}

/* ---- texts ----------------------------------------------------------------------------------- */

const char *weft_lab_rate_text(uint64_t rate_bps, char *room, size_t bytes)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}};
    size_t i = 0;
    while (i < 3 && (double)rate_bps < units[i].factor) {
        i++;
    }
    if (rate_bps == 0) {
        snprintf(room, bytes, "none");
    } else {
        snprintf(room, bytes, "%.6g%s", (double)rate_bps / units[i].factor, units[i].name);
    }
    return room;
}

const char *weft_lab_bytes_text(uint64_t count, char *room, size_t bytes)
{
    if (count % 1024 == 0) {
        snprintf(room, bytes, "%llukb", (unsigned long long)(count / 1024));
    } else {
        snprintf(room, bytes, "%llub", (unsigned long long)count);
    }
    return room;
}
