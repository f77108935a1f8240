/* The options --trace and --pcap of the simulator's verbs: files written by an observer of the
 * simulated world. */
#ifndef WEFT_CLI_SIM_TAP_H
#define WEFT_CLI_SIM_TAP_H

#include "cli/options.h"
#include "sim/world.h"

struct weft_sim_tap {
    const char *trace; /* of the options; NULL = none */
    const char *pcap;
    struct weft_world_tap tap; /* pass it to the run */
    struct weft_sim_tap_state *state;
};

/* Rows of an option table. */
#define WEFT_SIM_TAP_OPTIONS(t)                                                                    \
    {"trace", "FILE", "write a trace of all packets and messages, for `weft trace`",               \
     WEFT_OPTION_STRING, .value = &(t)->trace, .fallback = "none"},                                \
    {"pcap", "FILE", "write all packets, as they leave their hosts, for Wireshark",                \
     WEFT_OPTION_STRING, .value = &(t)->pcap, .fallback = "none"}

/* Create the requested files. False: an error was printed. */
bool weft_sim_tap_open(struct weft_sim_tap *tap);

/* False: a file is incomplete, and an error was printed. Valid also after a failed open. */
bool weft_sim_tap_close(struct weft_sim_tap *tap);

#endif
