/* Congestion control: the bytes that may be in flight to a peer, and their rate.
 *
 * An algorithm is a const struct of functions with a name. It gets one sample for each ACK that
 * newly acknowledged packets or declared them lost. All arithmetic is in integers, so that the
 * simulator gives the same results in every build.
 *
 *   dctcp      the default: ECN marks; delay on paths that have never marked a packet
 *   delay      keeps the queue below a target delay; needs no support from the network
 *   reno-fair  halves the window once per round trip with loss: gets the share of one TCP flow
 *
 * dctcp and delay ignore loss that does not depend on the sending rate (cc_loss.c). No algorithm
 * uses credit (the receiver's control of incast) or the pacing timers.
 */
#ifndef WEFT_CORE_CC_H
#define WEFT_CORE_CC_H

#include "base/units.h"

#include <stdbool.h>

struct weft_cc_sample {
    uint64_t now_ns;
    uint64_t acked_bytes; /* newly acknowledged by this ACK */
    uint32_t acked_packets;
    uint32_t lost_packets;    /* newly declared lost */
    uint64_t lost_sent_ns;    /* send time of the last lost packet */
    uint32_t ce_packets;      /* CE marks newly reported */
    uint64_t srtt_ns;         /* smoothed, without the peer's ACK delay */
    uint64_t kept_ns;         /* the peer's max_ack_delay; the peer grants credit for a queue that
                               * is longer by this time */
    uint64_t rtt_ns_min;      /* over the life of the path */
    uint64_t in_flight_bytes; /* before this ACK was processed */
    bool round_end;           /* a packet sent after the end of the last round was acknowledged */
};

struct weft_cc_ops;

/* Loss rate of the path: smoothed, and its minimum. */
struct weft_cc_loss {
    uint32_t span_acked; /* counts within the current span */
    uint32_t span_lost;
    uint32_t ppm;          /* smoothed, g = 1/8; UINT32_MAX = no span yet */
    uint32_t floor_ppm[2]; /* minimum of ppm in the current and the previous 5 s */
    uint64_t floor_since_ns;
    uint32_t excess_ppm; /* excess over the floor in the last span, not yet used */
};

struct weft_cc {
    const struct weft_cc_ops *ops;
    uint64_t cwnd_bytes; /* never below the algorithm's minimum */
    uint64_t rate_bps;   /* pacing rate; 0 = not paced yet */
    uint32_t packet_bytes;
    bool slow_start;
    bool round_full; /* the window was fully used in this round */
    bool marks;      /* this path has marked a packet; not set by "delay" */
    struct weft_cc_loss loss;
    /* dctcp */
    uint32_t alpha_ppm; /* smoothed fraction of marked packets, g = 1/16 */
    uint32_t round_ce;  /* counts within the current round */
    uint32_t round_acked;
    /* reno-fair */
    uint64_t recovery_ns; /* time of the last reduction; it covers losses of packets sent earlier */
    bool recovering;      /* the window was reduced in this round */
};

struct weft_cc_ops {
    const char *name;
    void (*init)(struct weft_cc *cc, uint32_t packet_bytes, uint64_t now_ns);
    void (*on_ack)(struct weft_cc *cc, const struct weft_cc_sample *sample);
    /* Several consecutive probe timeouts without a reply. */
    void (*on_silence)(struct weft_cc *cc);
};

/* Initialize, or reset on another path. */
static inline void weft_cc_begin(struct weft_cc *cc, const struct weft_cc_ops *ops,
                                 uint32_t packet_bytes, uint64_t now_ns)
{
    cc->ops = ops;
    ops->init(cc, packet_bytes, now_ns);
}
/* Set the packet size, after a change of the path's packet size. */
static inline void weft_cc_resize(struct weft_cc *cc, uint32_t packet_bytes)
{
    cc->packet_bytes = packet_bytes;
}
/* Ignore ECN marks of this path. */
static inline void weft_cc_unmarked(struct weft_cc *cc)
{
    cc->marks = false;
}

/* All algorithms, terminated by NULL; the first is the default. */
extern const struct weft_cc_ops *const weft_cc_all[];

/* The algorithm with this name; NULL name = the default. Returns NULL if there is none. */
const struct weft_cc_ops *weft_cc_find(const char *name);

/* Smoothed loss of the path in ppm, 0 before the first span. */
uint32_t weft_cc_loss_ppm(const struct weft_cc *cc);

/* ---- for algorithms -------------------------------------------------------------------------- */

enum {
    WEFT_CC_PACKETS_FIRST = 32,
    WEFT_CC_PACKETS_MIN = 4,
    /* Minimum window after a reduction by delay without marks or loss: the smaller of the next
     * two. */
    WEFT_CC_PACKETS_DELAY = 96,
    WEFT_CC_BYTES_DELAY = 144000,
};

/* Initial state of all algorithms. */
void weft_cc_reset(struct weft_cc *cc, uint32_t packet_bytes, uint64_t now_ns);
void weft_cc_silence(struct weft_cc *cc);

void weft_cc_loss_measure(struct weft_cc_loss *loss, const struct weft_cc_sample *sample);
/* The fraction (ppm) by which a delay above the target reduces the window in a round; 0 if the
 * delay is below the target. */
uint32_t weft_cc_delay_excess(const struct weft_cc_sample *sample);
/* weft_cc_delay_excess, limited so that WEFT_CC_PACKETS_DELAY packets remain: credit bounds the
 * queue of such windows (cc_delay.c). */
uint32_t weft_cc_delay_cut(const struct weft_cc *cc, const struct weft_cc_sample *sample);
void weft_cc_cut(struct weft_cc *cc, uint32_t fraction_ppm);
/* Growth in slow start for this ACK; weft_cc_limit then applies the window's limits and sets the
 * pacing rate. */
void weft_cc_slow_start(struct weft_cc *cc, const struct weft_cc_sample *sample);
void weft_cc_limit(struct weft_cc *cc, const struct weft_cc_sample *sample, uint32_t packets_min);

#endif
