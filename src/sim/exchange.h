/* Exchanges on virtual time: rounds in which links carry data both ways and hosts have several
 * peers, which incast rounds (sim/incast.h) do not show.
 *
 *   alltoall  each of N hosts sends a message to each other, the next one first
 *   outcast   one host sends a message to each of N others
 *   shuffle   each of N mappers sends a message to each of N reducers, all at once
 *   step      the traffic of a synchronous training step with a parameter server: the server sends
 *             a reply to each of N workers; a worker that has it sends its push and the request
 *             (list of ids) of its next pull, and CLOCK when its push is confirmed; when the server has
 *             all of these it begins the next round
 *
 * All hosts hang on one switch, with equal links (sim/net.h). Every downlink has the small buffer,
 * the ECN threshold and, behind its queue, the loss. Rounds are back to back: one begins when the last
 * message of the one before has been received. "go" itself takes no time.
 *
 * ideal = the wire time of all that the busiest link carries, headers included, each chunk once, +
 * the base round trip. Of a step: until the first worker has its reply, the wire time of that reply;
 * then that of all that the workers send; and a round trip more, for CLOCK follows the confirmation.
 * Headers are counted as in sim/incast.h.
 *
 * Every run checks that each message closes complete at both ends and misses at most its K.
 */
#ifndef WEFT_SIM_EXCHANGE_H
#define WEFT_SIM_EXCHANGE_H

#include "core/endpoint.h"
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
    uint64_t message_bytes; /* of a message, in a step of a push; a multiple of 4, as all of these */
    uint64_t request_bytes; /* step: the request of a pull */
    uint64_t reply_bytes;   /* step */
    uint64_t rate_bps;      /* of every link */
    uint64_t rtt_ns;        /* base */
    uint64_t host_delay_ns; /* from a packet's arrival at an idle host until the host looks at it */
    uint64_t buffer_bytes;  /* of each downlink */
    uint64_t ecn_bytes;     /* its marking threshold; 0 = off */
    uint32_t loss_ppm;
    uint32_t bound_ppm;     /* of messages, pushes and replies; requests and CLOCKs have none */
    uint32_t rounds;
    uint64_t seed;
    const char *cc_name;    /* NULL = the default */
    const struct weft_world_tap *tap; /* NULL = nobody */
};

struct weft_exchange_result {
    bool ok;
    char failure[256];
    uint32_t rounds;
    uint64_t ideal_ns;
    uint64_t p50_ns; /* nearest ranks */
    uint64_t p99_ns;
    uint64_t max_ns;
    uint64_t mean_ns;
    uint64_t messages;
    uint32_t delivered_ppm_mean;
    uint32_t retransmitted_ppm; /* of the DATA packets sent */
    uint32_t overhead_ppm;      /* bytes on all links beyond those of the ideal, of the latter */
    uint64_t dropped_full;      /* in the switch */
    uint64_t dropped_wire;      /* behind it */
    uint64_t marked;
    uint64_t queue_bytes_max;
    uint64_t data_sent;
    uint64_t data_lost;
    uint64_t data_spurious;
    uint64_t probes;
    uint64_t packets;
    uint64_t virtual_ns;
    uint64_t trace_hash;
};

const char *weft_exchange_pattern_name(enum weft_exchange_pattern pattern);

/* alltoall of 8 x 500 KB at 1 Gbit/s, 50 us, 64 KB buffers. */
void weft_exchange_config_default(struct weft_exchange_config *config_p);

/* NULL, or what is wrong with the configuration. */
const char *weft_exchange_config_check(const struct weft_exchange_config *config);

uint64_t weft_exchange_ideal_ns(const struct weft_exchange_config *config);

/* Depends on nothing but the configuration. Lack of memory ends the process. */
void weft_exchange_run(const struct weft_exchange_config *config,
                       struct weft_exchange_result *result_p);

#endif
