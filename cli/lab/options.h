/* Options that describe a lab, shared by `weft lab up` and `weft lab run`. */
#ifndef WEFT_CLI_LAB_OPTIONS_H
#define WEFT_CLI_LAB_OPTIONS_H

#include "cli/options.h"

#include "lab/spec.h"
#include "lab/rate_trace.h"

/* Values of a repeatable option such as "h3=100mbit". */
struct weft_lab_rates {
    uint32_t count;
    uint32_t hosts[WEFT_LAB_HOSTS_MAX];
    uint64_t rates_bps[WEFT_LAB_HOSTS_MAX];
};

struct weft_lab_options {
    struct weft_lab_spec spec; /* until weft_lab_options_spec, hosts, leaves and spines are the
                                * option values; leaves and spines: 0 = not given */
    uint32_t topology;         /* 1: spine-leaf */
    uint64_t ecn_bytes;
    uint32_t aggregate; /* 1: xdp */
    struct weft_lab_rates up;
    struct weft_lab_rates down;
    const char *trace_path;
    const char *background;           /* "websearch:0.3"; NULL = none */
    struct weft_lab_rate_trace trace; /* parsed contents of trace_path */
};

extern const char *const weft_lab_topologies[];
extern const char *const weft_lab_aggregates[];

/* Set the defaults, which --help shows. */
void weft_lab_options_init(struct weft_lab_options *o);
void weft_lab_options_fini(struct weft_lab_options *o);

const char *weft_lab_option_rate(const char *text, void *value);
const char *weft_lab_option_bytes(const char *text, void *value);
const char *weft_lab_option_rates(const char *text, void *value);
const char *weft_lab_option_bursts(const char *text, void *value);

/* Rows of an option table; `o` is a struct weft_lab_options *. */
#define WEFT_LAB_OPTIONS(o)                                                                        \
    {"topology", "WHICH", "star, or spine-leaf (flows are spread over the spines)",                \
     WEFT_OPTION_CHOICE, &(o)->topology, .choices = weft_lab_topologies},                          \
    {"hosts", "N", "number of hosts; with spine-leaf, hosts per leaf", WEFT_OPTION_U32,            \
     &(o)->spec.hosts,                                                                             \
     .min = 1, .max = WEFT_LAB_HOSTS_MAX},                                                         \
    {"leaves", "N", "number of leaf switches", WEFT_OPTION_U32, &(o)->spec.leaves, .min = 1,       \
     .max = WEFT_LAB_LEAVES_MAX, .fallback = "2"},                                                 \
    {"spines", "N", "number of spine switches", WEFT_OPTION_U32, &(o)->spec.spines, .min = 1,      \
     .max = WEFT_LAB_SPINES_MAX, .fallback = "2"},                                                 \
    {"rate", "RATE",                                                                               \
     "rate of each host's link in each direction; Ethernet headers count as\n"                     \
     "bytes of the packet. none = unlimited",                                                      \
     WEFT_OPTION_CUSTOM, &(o)->spec.rate_bps, .fallback = "1gbit", .parse = weft_lab_option_rate}, \
    {"core-rate", "RATE", "rate of each link between leaf and spine; none = unlimited",            \
     WEFT_OPTION_CUSTOM, &(o)->spec.core_bps, .fallback = "1gbit", .parse = weft_lab_option_rate}, \
    {"uplink", "HOST=RATE", "rate from HOST, overrides --rate; may be repeated",                   \
     WEFT_OPTION_CUSTOM, &(o)->up, .parse = weft_lab_option_rates},                                \
    {"downlink", "HOST=RATE", "rate to HOST, overrides --rate; may be repeated",                   \
     WEFT_OPTION_CUSTOM, &(o)->down, .parse = weft_lab_option_rates},                              \
    {"buffer", "BYTES",                                                                            \
     "queue size of each switch port (drop-tail); 1kb = 1024 bytes",                               \
     WEFT_OPTION_CUSTOM, &(o)->spec.buffer_bytes, .fallback = "128kb",                             \
     .parse = weft_lab_option_bytes},                                                              \
    {"loss", "FRACTION", "fraction of packets lost at random on arrival at a host",                \
     WEFT_OPTION_PPM,                                                                              \
     .value = &(o)->spec.loss_ppm},                                                                \
    {"burst-loss", "FRACTION:PACKETS",                                                             \
     "fraction lost on arrival, in bursts of PACKETS on average, as in 0.01:5",                    \
     WEFT_OPTION_CUSTOM, &(o)->spec, .fallback = "", .parse = weft_lab_option_bursts},             \
    {"ecn", "BYTES", "switch ports set CE on ECT packets when their queue is longer; 1kb = 1024",  \
     WEFT_OPTION_CUSTOM, &(o)->ecn_bytes, .fallback = "", .parse = weft_lab_option_bytes},         \
    {"offload", NULL,                                                                              \
     "leave segmentation offload and GRO on: segments of up to 64 KB are\n"                        \
     "sent, queued and dropped as a unit; cannot be combined with random\n"                        \
     "losses", WEFT_OPTION_FLAG,                                                                   \
     .value = &(o)->spec.offload},                                                                 \
    {"aggregate", "WHERE",                                                                         \
     "xdp: on every leaf, a box that sums what its hosts send to it (needs\n"                      \
     "BPF). Its packets are not authenticated. `weft lab box` configures it",                      \
     WEFT_OPTION_CHOICE, .value = &(o)->aggregate, .choices = weft_lab_aggregates},                \
    {"trace", "FILE", "rates over time: lines \"SECONDS HOST RATE [up|down]\"; the last may be\n"  \
     "\"SECONDS repeat\"", WEFT_OPTION_STRING, &(o)->trace_path, .fallback = ""},                  \
    {"background", "SIZES:LOAD",                                                                   \
     "background flows between all hosts while the lab is up: websearch,\n"                        \
     "datamining, hadoop or a file, and a fraction of --rate (`weft lab\n"                         \
     "background --help`)",                                                                        \
     WEFT_OPTION_STRING, &(o)->background, .fallback = ""}

/* Fill o->spec from the options, with the given lab name; reads the trace file. If the options are
 * inconsistent, prints an error and returns WEFT_EXIT_USAGE, else WEFT_OPTIONS_RUN. */
int weft_lab_options_spec(struct weft_lab_options *o, const struct weft_command *command,
                          const char *name);

/* Format a rate as "1gbit" or "none", and a size as "128kb". Return `room`. */
const char *weft_lab_rate_text(uint64_t rate_bps, char *room, size_t bytes);
const char *weft_lab_bytes_text(uint64_t count, char *room, size_t bytes);

#endif
