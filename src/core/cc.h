/* Congestion control: how many bytes may be in flight to a peer, and how fast they leave.
 *
 * An algorithm is a const struct of functions with a name. It sees one sample per ACK that
 * acknowledged or lost something. Integers only: the simulator's runs must be equal in every build.
 *
 * It does not know about credits (the receiver's control of incast) nor about pacing's timers.
 */
#ifndef WEFT_CORE_CC_H
#define WEFT_CORE_CC_H

#include "base/units.h"

#include <stdbool.h>

struct weft_cc_sample {
    uint64_t now_ns;
    uint64_t acked_bytes;      /* newly acknowledged by this ACK */
    uint32_t acked_packets;
    uint32_t lost_packets;     /* newly declared lost */
    uint32_t ce_packets;       /* newly reported as marked */
    uint64_t srtt_ns;
    uint64_t rtt_ns_min;       /* over the life of the path */
    uint64_t in_flight_bytes;  /* before this ACK */
    bool round_end;            /* a packet sent after the last round's end was acknowledged */
};

struct weft_cc_ops;

struct weft_cc {
    const struct weft_cc_ops *ops;
    uint64_t cwnd_bytes;       /* never below two packets */
    uint64_t rate_bps;         /* pacing rate; 0 = not paced yet */
    uint32_t packet_bytes;
    bool slow_start;
    /* of the algorithm "window" */
    uint32_t alpha_ppm;        /* smoothed fraction of marked packets, g = 1/16 */
    uint32_t round_ce;         /* counts within the current round */
    uint32_t round_acked;
    bool round_full;           /* the window was in use in this round */
    uint32_t span_acked;       /* counts within the current loss span */
    uint32_t span_lost;
    uint32_t loss_ppm;         /* smoothed loss, g = 1/8; UINT32_MAX = no span yet */
    uint32_t floor_ppm[2];     /* least loss_ppm of this and the previous 5 s */
    uint64_t floor_since_ns;
    uint32_t excess_ppm;       /* loss above the floor in the last span, not yet acted upon */
};

struct weft_cc_ops {
    const char *name;
    void (*init)(struct weft_cc *cc, uint32_t packet_bytes, uint64_t now_ns);
    void (*on_ack)(struct weft_cc *cc, const struct weft_cc_sample *sample);
    /* Nothing was heard for several probe timeouts. */
    void (*on_silence)(struct weft_cc *cc);
};

/* All algorithms, ended by NULL; the first is the default. */
extern const struct weft_cc_ops *const weft_cc_all[];

/* By name; NULL name = the default; NULL result = no such algorithm. */
const struct weft_cc_ops *weft_cc_find(const char *name);

/* Smoothed loss of the path in ppm, 0 before the first span. */
uint32_t weft_cc_loss_ppm(const struct weft_cc *cc);

#endif
