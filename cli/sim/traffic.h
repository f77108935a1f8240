/* Other traffic of a simulated exchange: the options --flows and --background. */
#ifndef WEFT_CLI_SIM_TRAFFIC_H
#define WEFT_CLI_SIM_TRAFFIC_H

#include "cli/options.h"
#include "lab/flow_plan.h"
#include "sim/reno.h"

enum { WEFT_SIM_PAIRS_MAX = 16 };

struct weft_sim_pairs {
    uint32_t count;
    uint32_t from[WEFT_SIM_PAIRS_MAX];
    uint32_t to[WEFT_SIM_PAIRS_MAX];
};

struct weft_sim_traffic {
    struct weft_sim_pairs pairs; /* of --flows */
    const char *background;      /* of --background; NULL = none */
    uint32_t next;               /* pair whose flow has not begun */
    struct weft_flow_sizes sizes;
    struct weft_flow_plan plan;
};

/* Parse --flows: "FROM-TO,FROM-TO". */
const char *weft_sim_pairs_parse(const char *text, void *value);

/* Rows of an option table. */
#define WEFT_SIM_TRAFFIC_OPTIONS(t)                                                                \
    {"flows", "FROM-TO,...",                                                                       \
     "TCP flows without end beside the exchange, each between two hosts.\n"                       \
     "Hosts have numbers from 0; 0 is the server of step and outcast, and\n"                      \
     "shuffle's mappers precede its reducers",                                                    \
     WEFT_OPTION_CUSTOM, .value = &(t)->pairs, .fallback = "none",                                 \
     .parse = weft_sim_pairs_parse},                                                               \
    {"background", "SIZES:LOAD",                                                                   \
     "TCP flows between all hosts beside the exchange: websearch,\n"                              \
     "datamining, hadoop or a file of sizes, and the load as a fraction of\n"                     \
     "the links' rate",                                                                            \
     WEFT_OPTION_STRING, .value = &(t)->background, .fallback = "none"}

/* Prepare the traffic. Returns NULL, or the error; the text is valid until the next call. */
const char *weft_sim_traffic_open(struct weft_sim_traffic *traffic, uint32_t hosts,
                                  uint64_t rate_bps, uint64_t seed);
bool weft_sim_traffic_any(const struct weft_sim_traffic *traffic);

/* next_flow of an exchange; self is a struct weft_sim_traffic. */
bool weft_sim_traffic_next(void *self, struct weft_reno_flow *flow_p);

#endif
