/* Exchanges on virtual time. In contrast to incast rounds (sim/incast.h), links carry data in both
 * directions and hosts have several peers.
 *
 *   alltoall  each of N hosts sends a message to each other, the next one first
 *   outcast   one host sends a message to each of N others
 *   shuffle   each of N mappers sends a message to each of N reducers, all at once
 *   step      the traffic of a synchronous training step with a parameter server: the server sends
 *             a reply to each of N workers; a worker that received it sends its push and the
 *             request (list of ids) of its next pull, and CLOCK when its push is acknowledged; when
 *             the server has received all of these, the next round begins. As a shard does
 *             (ps/shard_wait.c), the server replies first to the worker that needs the longest time
 *
 * All hosts are connected to one switch by equal links (sim/net.h). Every downlink has a small
 * buffer, an ECN threshold and, after its queue, random loss. Rounds are back to back: a round
 * begins when the last message of the previous round has been received. The start signal "go" takes
 * no virtual time.
 *
 * ideal = the wire time of all data on the busiest link, with headers, each chunk once, + the base
 * round trip. For a step: the wire time of the first reply, plus the wire time of all data from the
 * workers, plus one more round trip, because CLOCK follows the acknowledgement. Headers are counted
 * as in sim/incast.h.
 *
 * Every run checks that each message is closed as complete at both ends and misses at most K
 * chunks.
 */
#ifndef WEFT_SIM_EXCHANGE_H
#define WEFT_SIM_EXCHANGE_H

#include "core/endpoint.h"
#include "sim/reno.h"
#include "sim/step_times.h"
#include "sim/world.h"

#include <stdbool.h>

enum {
    WEFT_EXCHANGE_HOSTS_MAX = 64, /* N */
    WEFT_EXCHANGE_ROUNDS_MAX = 10000,
};

enum weft_exchange_pattern {
    WEFT_EXCHANGE_ALLTOALL,
    WEFT_EXCHANGE_OUTCAST,
    WEFT_EXCHANGE_SHUFFLE,
    WEFT_EXCHANGE_STEP,
};

struct weft_exchange_config {
    enum weft_exchange_pattern pattern;
    uint32_t hosts;         /* N >= 2 */
    uint64_t message_bytes; /* of a message (step: of a push); a multiple of 4, like the next two */
    uint64_t request_bytes; /* step: the request of a pull */
    uint64_t reply_bytes;   /* step */
    uint64_t rate_bps;      /* of every link */
    uint64_t rtt_ns;        /* base */
    uint64_t host_delay_ns; /* delay from a packet's arrival at an idle host until the host
                             * processes it */
    uint64_t buffer_bytes;  /* of each downlink */
    uint64_t ecn_bytes;     /* its marking threshold; 0 = off */
    uint32_t loss_ppm;
    uint32_t bound_ppm; /* of messages, pushes and replies; requests and CLOCKs have none */
    uint32_t rounds;
    uint64_t seed;
    const char *cc_name;              /* NULL = the default */
    /* Other traffic on the hosts' links, from the first round on: returns the next flow, false =
     * none. NULL = no other traffic. In a step, host 0 is the server. */
    bool (*next_flow)(void *self, struct weft_reno_flow *flow_p);
    void *flows_self;
    const struct weft_world_tap *tap; /* NULL = none */
};

struct weft_exchange_result {
    bool ok;
    char failure[256];
    uint32_t rounds;
    uint64_t ideal_ns;
    uint64_t p50_ns; /* nearest-rank percentiles */
    uint64_t p99_ns;
    uint64_t max_ns;
    uint64_t mean_ns;
    uint64_t messages;
    uint32_t delivered_ppm_mean;
    uint32_t retransmitted_ppm; /* relative to the DATA packets sent */
    uint32_t overhead_ppm;      /* bytes on all links beyond the ideal, relative to the ideal */
    uint64_t dropped_full;      /* by full buffers in the switch */
    uint64_t dropped_wire;      /* by random loss after the queue */
    uint64_t marked;
    uint64_t queue_bytes_max;
    uint64_t data_sent;
    uint64_t data_lost;
    uint64_t data_spurious;
    uint64_t probes;
    uint64_t packets;
    uint64_t virtual_ns;
    uint64_t trace_hash;
    struct weft_reno_counters flows;
    struct weft_step_worker workers[WEFT_EXCHANGE_HOSTS_MAX]; /* step; (hosts,) */
    struct weft_step_bin bins[WEFT_STEP_BINS];                /* step */
};

/* Number of hosts of an exchange, servers included. */
uint32_t weft_exchange_hosts(const struct weft_exchange_config *config);

const char *weft_exchange_pattern_name(enum weft_exchange_pattern pattern);

/* alltoall of 8 x 500 KB at 1 Gbit/s, 50 us, 64 KB buffers. */
void weft_exchange_config_default(struct weft_exchange_config *config_p);

/* Returns NULL, or a description of the configuration error. */
const char *weft_exchange_config_check(const struct weft_exchange_config *config);

uint64_t weft_exchange_ideal_ns(const struct weft_exchange_config *config);

/* The result depends only on the configuration. Running out of memory ends the process. */
void weft_exchange_run(const struct weft_exchange_config *config,
                       struct weft_exchange_result *result_p);

#endif
