/* The specification of a lab: topology, rates, buffers, losses. Plain data, validated before
 * anything is created.
 *
 * Both topologies have the same structure. Hosts are connected to leaves; with more than one leaf,
 * every leaf is connected to every spine. A star is one leaf and no spine. Leaves and spines are
 * routers (IP forwarding), not bridges: every next hop is then known in advance, which keeps ARP,
 * flooding and spanning trees out of the measurement, and 256 hosts need 512 neighbour entries
 * instead of 65,280.
 */
#ifndef WEFT_LAB_SPEC_H
#define WEFT_LAB_SPEC_H

#include "lab/address.h"
#include "lab/cluster.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    WEFT_LAB_LEAVES_MAX = 64,
    WEFT_LAB_SPINES_MAX = 16,
    WEFT_LAB_NODE_BYTES = 12, /* "h255", "leaf63", "spine15", "switch" */
    WEFT_LAB_PATH_BYTES = 512,
    WEFT_LAB_BACKGROUND_BYTES = WEFT_LAB_PATH_BYTES + 32,
};

/* Rates of one host's link; 0 = unlimited. */
struct weft_lab_link {
    uint64_t up_bps;   /* host to leaf: the host's own queue */
    uint64_t down_bps; /* leaf to host: the drop-tail queue of the leaf's port */
};

struct weft_lab_spec {
    char name[WEFT_LAB_NAME_BYTES];
    uint32_t hosts;
    uint32_t leaves;       /* at least 1; hosts is a multiple of it */
    uint32_t spines;       /* 0 with one leaf, else at least 1 */
    uint64_t rate_bps;     /* of hosts' links; links[] may differ */
    uint64_t core_bps;     /* of each link between a leaf and a spine; 0 = unlimited */
    uint64_t buffer_bytes; /* of each router port */
    uint32_t loss_ppm;     /* on arrival at a host */
    uint32_t burst_ppm;    /* lost in bursts, also on arrival; 0 = none */
    double burst_packets;  /* mean length of a burst, at least 1 */
    uint32_t ecn_bytes;    /* router ports mark above this queue length; 0 = no marks */
    bool offload;          /* cables carry segments of up to 64 KB as one packet: offload.h */
    bool has_boxes;        /* an aggregation box on every leaf: box.h */
    bool hysteresis;       /* the machine's HTB has hysteresis: build.h */
    struct weft_lab_link links[WEFT_LAB_HOSTS_MAX];
    char trace[WEFT_LAB_PATH_BYTES];            /* file of rates over time; "" = none */
    uint64_t trace_hash;                        /* of its contents */
    char background[WEFT_LAB_BACKGROUND_BYTES]; /* "websearch:0.3"; "" = none */
};

/* Letters, digits and dashes, at most 31; the first is not a dash. */
bool weft_lab_name_ok(const char *name);

/* "1gbit", "100mbit", "64kbit", "9600bit"; powers of ten, as in tc. 8 kbit to 100 Gbit/s. */
bool weft_lab_parse_rate(const char *text, uint64_t *rate_bps_p);

/* "128kb", "2mb", "9000b" or a plain number of bytes; powers of two, as in tc. */
bool weft_lab_parse_bytes(const char *text, uint64_t *bytes_p);

/* One host: "3" or "h3". */
bool weft_lab_parse_host(const char *text, uint32_t hosts, uint32_t *host_p);

/* Fill links[] with rate_bps. */
void weft_lab_spec_links(struct weft_lab_spec *spec);

static inline uint32_t weft_lab_leaf_of(const struct weft_lab_spec *spec, uint32_t host)
{
    return host / (spec->hosts / spec->leaves);
}

/* Routers count leaves first, then spines. */
static inline uint32_t weft_lab_routers(const struct weft_lab_spec *spec)
{
    return spec->leaves + spec->spines;
}

/* "star" or "spine-leaf". */
const char *weft_lab_topology(const struct weft_lab_spec *spec);

/* Names of nodes, also those of the ports towards them. */
void weft_lab_host_name(uint32_t host, char out[WEFT_LAB_NODE_BYTES]);
void weft_lab_router_name(const struct weft_lab_spec *spec, uint32_t router,
                          char out[WEFT_LAB_NODE_BYTES]);

/* A hash of all parameters except the name, as text: labs whose texts are equal are alike, but a
 * file of flow sizes (background) counts by its path, not by its contents. */
void weft_lab_spec_settings(const struct weft_lab_spec *spec, char out[WEFT_LAB_SETTINGS_BYTES]);

/* The parameters, with units in their names; NULL = out of memory. Owns: gives. */
cJSON *weft_lab_spec_json(const struct weft_lab_spec *spec);

#endif
