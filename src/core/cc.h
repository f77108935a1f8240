/* Congestion control: how many bytes may be in flight to a peer, and how fast they leave.
 *
 * An algorithm is a const struct of functions with a name. It sees one sample per ACK that
 * acknowledged or lost something. Integers only: the simulator's runs must be equal in every build.
 *
 *   dctcp      the default: marks of the switches (ECN); where none was ever seen, delay
 *   delay      keeps the queue under a target delay; needs nothing from the network
 *   reno-fair  a halving per round trip with loss: takes a TCP's share of a link, and no more
 *
 * The first two treat loss that the path shows whatever we do as no signal (cc_loss.c). None knows
 * about credits (the receiver's control of incast) nor about pacing's timers.
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
    uint64_t lost_sent_ns;     /* when the last of these was sent */
    uint32_t ce_packets;       /* newly reported as marked */
    uint64_t srtt_ns;          /* smoothed, without the peer's ACK delay */
    uint64_t kept_ns;          /* the peer's max_ack_delay; its credit keeps a longer queue
                                * on purpose */
    uint64_t rtt_ns_min;       /* over the life of the path */
    uint64_t in_flight_bytes;  /* before this ACK */
    bool round_end;            /* a packet sent after the last round's end was acknowledged */
};

struct weft_cc_ops;

/* Loss of the path, smoothed, and the least that it shows. */
struct weft_cc_loss {
    uint32_t span_acked;       /* counts within the current span */
    uint32_t span_lost;
    uint32_t ppm;              /* smoothed, g = 1/8; UINT32_MAX = no span yet */
    uint32_t floor_ppm[2];     /* least ppm of this and the previous 5 s */
    uint64_t floor_since_ns;
    uint32_t excess_ppm;       /* above the floor in the last span, not yet acted upon */
};

struct weft_cc {
    const struct weft_cc_ops *ops;
    uint64_t cwnd_bytes;       /* never below the algorithm's least */
    uint64_t rate_bps;         /* pacing rate; 0 = not paced yet */
    uint32_t packet_bytes;
    bool slow_start;
    bool round_full;           /* the window was in use in this round */
    bool marks;                /* this path has marked a packet; "delay" does not look */
    struct weft_cc_loss loss;
    /* of dctcp */
    uint32_t alpha_ppm;        /* smoothed fraction of marked packets, g = 1/16 */
    uint32_t round_ce;         /* counts within the current round */
    uint32_t round_acked;
    /* of reno-fair */
    uint64_t recovery_ns;      /* last cut: losses of packets sent before are the same event */
    bool recovering;           /* a cut in this round */
};

struct weft_cc_ops {
    const char *name;
    void (*init)(struct weft_cc *cc, uint32_t packet_bytes, uint64_t now_ns);
    void (*on_ack)(struct weft_cc *cc, const struct weft_cc_sample *sample);
    /* Nothing was heard for several probe timeouts. */
    void (*on_silence)(struct weft_cc *cc);
};

/* Begin, or begin again on another path. */
static inline void weft_cc_begin(struct weft_cc *cc, const struct weft_cc_ops *ops,
                                 uint32_t packet_bytes, uint64_t now_ns)
{
    cc->ops = ops;
    ops->init(cc, packet_bytes, now_ns);
}
/* Packets have another size from now on. */
static inline void weft_cc_resize(struct weft_cc *cc, uint32_t packet_bytes)
{
    cc->packet_bytes = packet_bytes;
}
/* Marks of this path do not count. */
static inline void weft_cc_unmarked(struct weft_cc *cc)
{
    cc->marks = false;
}

/* All algorithms, ended by NULL; the first is the default. */
extern const struct weft_cc_ops *const weft_cc_all[];

/* By name; NULL name = the default; NULL result = no such algorithm. */
const struct weft_cc_ops *weft_cc_find(const char *name);

/* Smoothed loss of the path in ppm, 0 before the first span. */
uint32_t weft_cc_loss_ppm(const struct weft_cc *cc);

/* ---- for algorithms -------------------------------------------------------------------------- */

enum {
    WEFT_CC_PACKETS_FIRST = 32,
    WEFT_CC_PACKETS_MIN = 4,
    WEFT_CC_PACKETS_DELAY = 24,  /* delay alone cuts a window no further, */
    WEFT_CC_BYTES_DELAY = 36000, /* or than this where packets are long */
};

/* The state that all of them begin with. */
void weft_cc_reset(struct weft_cc *cc, uint32_t packet_bytes, uint64_t now_ns);
void weft_cc_silence(struct weft_cc *cc);

void weft_cc_loss_measure(struct weft_cc_loss *loss, const struct weft_cc_sample *sample);
/* Above the target: the share of the window that delay alone asks to cut in a round, else 0. */
uint32_t weft_cc_delay_excess(const struct weft_cc_sample *sample);
/* The same, but no more than leaves WEFT_CC_PACKETS_DELAY: credit bounds the queue then, and where
 * acknowledgements wait for each other (ack.c) a sender needs so many on their way. */
uint32_t weft_cc_delay_cut(const struct weft_cc *cc, const struct weft_cc_sample *sample);
void weft_cc_cut(struct weft_cc *cc, uint32_t fraction_ppm);
/* Slow start's growth for this ACK; in the end the window's limits and the pacing rate. */
void weft_cc_slow_start(struct weft_cc *cc, const struct weft_cc_sample *sample);
void weft_cc_limit(struct weft_cc *cc, const struct weft_cc_sample *sample, uint32_t packets_min);

#endif
