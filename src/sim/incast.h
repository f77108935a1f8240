/* Incast on virtual time: many senders, one downlink, one message each a round, rounds back to back.
 *
 *     sender 1 --- uplink ---+
 *     ...                    +-- switch -- downlink (small buffer, loss) --> the receiver's host
 *     sender W --- uplink ---+
 *
 * A round begins with "go" to all senders of an endpoint at the receiver's host, which has posted
 * memory for it, and ends with the last RECEIVED there; the next one begins at that moment. The
 * connections are set up before and live over all rounds. "go" itself takes no time: it stands for
 * the workers' computation ending together. With several endpoints (shards) behind the one
 * downlink, each has senders and rounds of its own, and all stop when the first has done its rounds.
 *
 * All links have one rate. The four delays (up, down, and back) sum to the base round trip. Only
 * the downlink to the receiver has a small buffer and an ECN threshold. Packets are lost behind the
 * queue, on that downlink and, of what the receiver sends, on the receiver's uplink.
 *
 * ideal = for all senders, the sum over all chunks of (payload + all headers, 14 bytes of Ethernet
 * included) / rate, + the base round trip: what a round takes when each chunk crosses the downlink
 * once, without a gap. The headers are those of an authenticated packet; packets without a tag are
 * charged its 16 bytes on the simulated wire, all of them, so that both sides of the ratio agree.
 *
 * Every run checks: masks at both ends are equal for each message whose DONE the sender accepted;
 * with UNKNOWN, the sender's is a subset of the receiver's; a complete message misses at most its K.
 *
 * It is not a model of CPU time: a crank takes none.
 */
#ifndef WEFT_SIM_INCAST_H
#define WEFT_SIM_INCAST_H

#include "base/status.h"
#include "base/units.h"
#include "core/endpoint.h"
#include "sim/world.h"

#include <stdbool.h>

enum {
    WEFT_INCAST_SENDERS_MAX = 256, /* of an endpoint */
    WEFT_INCAST_SHARDS_MAX = 4,
    WEFT_INCAST_ROUNDS_MAX = 10000,
};

struct weft_incast_config {
    uint32_t senders;       /* of each endpoint at the receiver's host */
    uint32_t shards;        /* endpoints there */
    uint64_t message_bytes; /* a multiple of 4: floats */
    uint64_t rate_bps;
    uint64_t rtt_ns;        /* base: without queues and sending times */
    uint64_t buffer_bytes;  /* of the downlink */
    uint64_t ecn_bytes;     /* its marking threshold; 0 = off */
    uint32_t loss_ppm;
    bool burst;             /* the loss comes in bursts: Gilbert, WEFT_INCAST_BURST packets */
    uint32_t bound_ppm;
    bool unannounced;       /* the receiver is not told how many senders a round has */
    uint32_t rounds;
    uint64_t seed;
    const char *cc_name;    /* NULL = the default */
    enum weft_ep_order order;
    /* Called for each message received, with its mask. NULL is fine. */
    void (*seen)(void *self, const uint64_t *mask, uint32_t chunks);
    void *seen_self;
    const struct weft_world_tap *tap; /* who looks on; NULL = nobody */
};

/* Mean length of a burst of losses, in packets. */
#define WEFT_INCAST_BURST 8

struct weft_incast_result {
    bool ok;                /* all rounds done and all checks hold; else `failure` says what not */
    char failure[256];
    uint32_t rounds;        /* done, of all endpoints; the times are theirs */
    uint64_t ideal_ns;
    uint64_t p50_ns;        /* nearest ranks */
    uint64_t p99_ns;
    uint64_t max_ns;
    uint64_t mean_ns;
    uint64_t messages;
    uint32_t delivered_ppm_mean; /* chunks that arrived, over messages */
    uint32_t delivered_ppm_min;
    uint32_t retransmitted_ppm;  /* of the DATA packets sent */
    uint32_t jain_ppm;           /* of goodput_bps over endpoints */
    uint64_t goodput_bps[WEFT_INCAST_SHARDS_MAX]; /* payload of new chunks, while all had rounds */
    uint64_t dropped_full;       /* in the switch, downlink to the receiver */
    uint64_t dropped_wire;       /* behind it, and on the receiver's uplink */
    uint64_t marked;
    uint64_t queue_bytes_max;
    uint64_t data_sent;
    uint64_t data_lost;          /* declared lost by senders */
    uint64_t data_spurious;      /* of these, acknowledged later */
    uint64_t data_duplicate;     /* chunks that were there already */
    uint64_t data_late;          /* chunks of closed messages */
    uint64_t probes;
    uint64_t unknown;            /* messages that the sender reported UNKNOWN */
    uint64_t packets;            /* all, both ways */
    uint64_t virtual_ns;
    uint64_t trace_hash;
};

/* What the issue starts from: 8 x 250 KB at 1 Gbit/s, 50 us, 128 KB, no loss, bound 0. */
void weft_incast_config_default(struct weft_incast_config *config_p);

/* NULL, or what is wrong with the configuration. */
const char *weft_incast_config_check(const struct weft_incast_config *config);

uint64_t weft_incast_ideal_ns(const struct weft_incast_config *config);

/* Depends on nothing but the configuration. Lack of memory ends the process. */
void weft_incast_run(const struct weft_incast_config *config,
                     struct weft_incast_result *result_p);

#endif
