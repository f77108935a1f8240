/* Incast on virtual time: many senders share one downlink; each sends one message per round, and
 * rounds are back to back.
 *
 *     sender 1 --- uplink ---+
 *     ...                    +-- switch -- downlink (small buffer, loss) --> the receiver's host
 *     sender W --- uplink ---+
 *
 * In each round the receiver posts a receive for each sender and sends "go" to all senders of an
 * endpoint. The round ends with the last RECEIVED event, and the next one begins at that time.
 * Connections are set up before the first round and stay open. "go" takes no virtual time: it
 * models that all workers finish computing at the same time. If several endpoints (shards) share
 * the downlink, each has its own senders and rounds. All stop when the first endpoint has finished
 * its rounds.
 *
 * All links have one rate. The four delays (up, down, and back) sum to the base round trip. Only
 * the downlink to the receiver has a small buffer and an ECN threshold. Random loss applies after
 * the queue: on that downlink, and on the receiver's uplink for packets that the receiver sends.
 *
 * ideal = for all senders, the sum over all chunks of (payload + all headers, 14 bytes of Ethernet
 * included) / rate, + the base round trip: the duration of a round in which each chunk crosses the
 * downlink once, without gaps. The headers are those of an authenticated packet. On the simulated
 * wire every packet without a tag counts 16 bytes more, so that measured and ideal time use the
 * same packet sizes.
 *
 * Every run checks: the masks at both ends are equal for each message whose DONE the sender
 * accepted; with UNKNOWN, the sender's mask is a subset of the receiver's; a complete message
 * misses at most K chunks.
 *
 * CPU time is not modeled: processing takes no virtual time.
 */
#ifndef WEFT_SIM_INCAST_H
#define WEFT_SIM_INCAST_H

#include "base/status.h"
#include "base/units.h"
#include "core/endpoint.h"
#include "sim/world.h"

#include <stdbool.h>

enum {
    WEFT_INCAST_SENDERS_MAX = 256, /* per endpoint */
    WEFT_INCAST_SHARDS_MAX = 4,
    WEFT_INCAST_ROUNDS_MAX = 10000,
};

struct weft_incast_config {
    uint32_t senders;       /* per endpoint at the receiver's host */
    uint32_t shards;        /* endpoints at the receiver's host */
    uint64_t message_bytes; /* a multiple of 4 (floats) */
    uint64_t rate_bps;
    uint64_t rtt_ns;       /* base: without queueing and transmission times */
    uint64_t buffer_bytes; /* of the downlink */
    uint64_t ecn_bytes;    /* its marking threshold; 0 = off */
    uint32_t loss_ppm;
    bool burst; /* losses occur in bursts: Gilbert model, WEFT_INCAST_BURST packets */
    uint32_t bound_ppm;
    bool unannounced; /* the receiver does not set senders_expected */
    uint32_t rounds;
    uint64_t seed;
    const char *cc_name; /* NULL = the default */
    enum weft_ep_order order;
    /* Called for each message received, with its mask. May be NULL. */
    void (*seen)(void *self, const uint64_t *mask, uint32_t chunks);
    void *seen_self;
    const struct weft_world_tap *tap; /* observer of all packets; NULL = none */
};

/* Mean length of a burst of losses, in packets. */
#define WEFT_INCAST_BURST 8

struct weft_incast_result {
    bool ok; /* all rounds completed and all checks passed; else `failure` describes
              * the failed check */
    char failure[256];
    uint32_t rounds; /* completed, all endpoints together; the times below are over these */
    uint64_t ideal_ns;
    uint64_t p50_ns; /* nearest-rank percentiles of the round times */
    uint64_t p99_ns;
    uint64_t max_ns;
    uint64_t mean_ns;
    uint64_t messages;
    uint32_t delivered_ppm_mean; /* chunks that arrived, mean over messages */
    uint32_t delivered_ppm_min;
    uint32_t retransmitted_ppm;                   /* relative to the DATA packets sent */
    uint32_t jain_ppm;                            /* of goodput_bps over endpoints */
    uint64_t goodput_bps[WEFT_INCAST_SHARDS_MAX]; /* payload of first copies, until the first
                                                   * endpoint has finished its rounds */
    uint64_t dropped_full; /* by the full buffer of the downlink to the receiver */
    uint64_t dropped_wire; /* by random loss after the queue, or on the receiver's uplink */
    uint64_t marked;
    uint64_t queue_bytes_max;
    uint64_t data_sent;
    uint64_t data_lost;      /* declared lost by senders */
    uint64_t data_spurious;  /* of these, acknowledged later */
    uint64_t data_duplicate; /* chunks that had been received before */
    uint64_t data_late;      /* chunks of closed messages */
    uint64_t probes;
    uint64_t unknown; /* messages with result UNKNOWN at the sender */
    uint64_t packets; /* all, both directions */
    uint64_t virtual_ns;
    uint64_t trace_hash;
};

/* Defaults: 8 x 250 KB at 1 Gbit/s, 50 us, 128 KB, no loss, bound 0. */
void weft_incast_config_default(struct weft_incast_config *config_p);

/* Returns NULL, or a description of the configuration error. */
const char *weft_incast_config_check(const struct weft_incast_config *config);

uint64_t weft_incast_ideal_ns(const struct weft_incast_config *config);

/* The result depends only on the configuration. Running out of memory ends the process. */
void weft_incast_run(const struct weft_incast_config *config, struct weft_incast_result *result_p);

#endif
