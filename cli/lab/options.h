/* The options that say what a lab shall be: those of `weft lab up` and `weft lab run`. */
#ifndef WEFT_CLI_LAB_OPTIONS_H
#define WEFT_CLI_LAB_OPTIONS_H

#include "cli/options.h"

#include "lab/spec.h"
#include "lab/trace.h"

/* "h3=100mbit", as often as it is given. */
struct weft_lab_rates {
    uint32_t count;
    uint32_t hosts[WEFT_LAB_HOSTS_MAX];
    uint64_t rates_bps[WEFT_LAB_HOSTS_MAX];
};

struct weft_lab_options {
    struct weft_lab_spec spec; /* hosts, leaves, spines as given (0 = not) until options_spec */
    uint32_t topology;         /* 1: spine-leaf */
    uint64_t ecn_bytes;
    struct weft_lab_rates up;
    struct weft_lab_rates down;
    const char *trace_path;
    const char *background; /* "websearch:0.3"; NULL = none */
    struct weft_lab_trace trace; /* what the file says */
};

extern const char *const weft_lab_topologies[];

/* The defaults; what --help shows. */
void weft_lab_options_init(struct weft_lab_options *o);
void weft_lab_options_fini(struct weft_lab_options *o);

const char *weft_lab_option_rate(const char *text, void *value);
const char *weft_lab_option_bytes(const char *text, void *value);
const char *weft_lab_option_rates(const char *text, void *value);
const char *weft_lab_option_bursts(const char *text, void *value);

/* Lines of an option table; `o` is a struct weft_lab_options *. */
#define WEFT_LAB_OPTIONS(o)                                                                        \
    {"topology", "WHICH", "star, or spine-leaf (flows are spread over the spines)",                \
     WEFT_OPTION_CHOICE, &(o)->topology, .choices = weft_lab_topologies},                          \
    {"hosts", "N", "hosts; in spine-leaf: of each leaf", WEFT_OPTION_U32, &(o)->spec.hosts,        \
     .min = 1, .max = WEFT_LAB_HOSTS_MAX},                                                         \
    {"leaves", "N", "leaves of a spine-leaf", WEFT_OPTION_U32, &(o)->spec.leaves, .min = 1,        \
     .max = WEFT_LAB_LEAVES_MAX, .fallback = "2"},                                                 \
    {"spines", "N", "spines of a spine-leaf", WEFT_OPTION_U32, &(o)->spec.spines, .min = 1,        \
     .max = WEFT_LAB_SPINES_MAX, .fallback = "2"},                                                 \
    {"rate", "RATE", "of each host's link, both ways; with Ethernet headers; or none: no limit",   \
     WEFT_OPTION_CUSTOM, &(o)->spec.rate_bps, .fallback = "1gbit", .parse = weft_lab_option_rate}, \
    {"core-rate", "RATE", "of each link between leaf and spine, or none", WEFT_OPTION_CUSTOM,      \
     &(o)->spec.core_bps, .fallback = "1gbit", .parse = weft_lab_option_rate},                     \
    {"uplink", "HOST=RATE", "another rate from that host; may be given often",                     \
     WEFT_OPTION_CUSTOM, &(o)->up, .parse = weft_lab_option_rates},                                \
    {"downlink", "HOST=RATE", "another rate to that host; may be given often",                     \
     WEFT_OPTION_CUSTOM, &(o)->down, .parse = weft_lab_option_rates},                              \
    {"buffer", "BYTES",                                                                            \
     "queue of each switch port; what does not fit is dropped; 1kb = 1024 bytes",                  \
     WEFT_OPTION_CUSTOM, &(o)->spec.buffer_bytes, .fallback = "128kb",                             \
     .parse = weft_lab_option_bytes},                                                              \
    {"loss", "FRACTION", "packets lost at random on arrival at a host", WEFT_OPTION_PPM,           \
     .value = &(o)->spec.loss_ppm},                                                                \
    {"burst-loss", "FRACTION:PACKETS",                                                             \
     "lost on arrival in bursts of so many packets in the mean, as in 0.01:5",                     \
     WEFT_OPTION_CUSTOM, &(o)->spec, .fallback = "", .parse = weft_lab_option_bursts},             \
    {"ecn", "BYTES", "switch ports set CE on ECT packets when their queue is longer; 1kb = 1024",  \
     WEFT_OPTION_CUSTOM, &(o)->ecn_bytes, .fallback = "", .parse = weft_lab_option_bytes},         \
    {"offload", NULL,                                                                              \
     "leave segmentation offload and GRO on: segments of up to 64 KB travel, queue and are\n"      \
     "dropped as one; not with random losses", WEFT_OPTION_FLAG,                                   \
     .value = &(o)->spec.offload},                                                                 \
    {"trace", "FILE", "rates over time: lines \"SECONDS HOST RATE [up|down]\"; the last may be\n"  \
     "\"SECONDS repeat\"", WEFT_OPTION_STRING, &(o)->trace_path, .fallback = ""},                  \
    {"background", "SIZES:LOAD",                                                                   \
     "flows between all hosts for as long as the lab is up: websearch, datamining, hadoop or\n"    \
     "a file, and a fraction of --rate (`weft lab background --help`)",                            \
     WEFT_OPTION_STRING, &(o)->background, .fallback = ""}

/* Make o->spec, of that name, what the options mean together; reads the trace file.
 * Prints and gives WEFT_EXIT_USAGE when they do not fit, else WEFT_OPTIONS_RUN. */
int weft_lab_options_spec(struct weft_lab_options *o, const struct weft_command *command,
                          const char *name);

/* "1gbit", "none"; "128kb". Return `room`. */
const char *weft_lab_rate_text(uint64_t rate_bps, char *room, size_t bytes);
const char *weft_lab_bytes_text(uint64_t count, char *room, size_t bytes);

#endif
