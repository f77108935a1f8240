/* The first congestion control, "window": a window cut in proportion to the marks and to the loss
 * above the path's own floor, grown by one packet a round trip.
 *
 * Why not a halving per loss event: random loss of p would hold the window at about 1/sqrt(p)
 * packets, and a response proportional to *all* loss at 2/p packets; on a 40 Gbit/s path with 10 us
 * that is a fraction of the link. Loss that the path shows whatever we do (the least smoothed loss
 * of the last 5 to 10 s) is therefore not a signal, unless the delay rises with it: a queue that
 * overflows is full first.
 *
 * The receiver's credits and the algorithms dctcp, delay and reno-fair come with the transport
 * issue; this one is what they will be measured against.
 */
#include "core/cc.h"

enum {
    INITIAL_PACKETS = 32,
    MIN_PACKETS = 4,
    SPAN_PACKETS = 64,            /* loss is measured over at least as many */
};

static const uint64_t cwnd_bytes_max = UINT64_C(64) << 20;
static const uint64_t floor_half_life_ns = 5 * WEFT_NS_PER_S;

static void window_init(struct weft_cc *cc, uint32_t packet_bytes, uint64_t now_ns)
{
    *cc = (struct weft_cc){
        .ops = cc->ops,
        .packet_bytes = packet_bytes,
        .cwnd_bytes = (uint64_t)INITIAL_PACKETS * packet_bytes,
        .slow_start = true,
        .alpha_ppm = WEFT_PPM, /* the first mark halves the window, as in DCTCP */
        .loss_ppm = UINT32_MAX,
        .floor_ppm = {UINT32_MAX, UINT32_MAX},
        .floor_since_ns = now_ns,
    };
}

/* The queue holds more than half a base round trip, and more than timer noise. */
static bool delay_is_high(const struct weft_cc_sample *s)
{
    return s->srtt_ns > s->rtt_ns_min + s->rtt_ns_min / 2 + 100 * WEFT_NS_PER_US;
}

static void floor_update(struct weft_cc *cc, uint64_t now_ns)
{
    if (now_ns - cc->floor_since_ns >= floor_half_life_ns) {
        cc->floor_ppm[1] = cc->floor_ppm[0];
        cc->floor_ppm[0] = UINT32_MAX;
        cc->floor_since_ns = now_ns;
    }
    if (cc->loss_ppm < cc->floor_ppm[0]) {
        cc->floor_ppm[0] = cc->loss_ppm;
    }
}

static void loss_measure(struct weft_cc *cc, const struct weft_cc_sample *s)
{
    cc->span_acked += s->acked_packets;
    cc->span_lost += s->lost_packets;
    uint64_t packets = (uint64_t)cc->span_acked + cc->span_lost;
    if (packets < SPAN_PACKETS) {
        return;
    }
    uint32_t now_ppm = (uint32_t)((uint64_t)cc->span_lost * WEFT_PPM / packets);
    if (cc->loss_ppm == UINT32_MAX) {
        cc->loss_ppm = now_ppm;
    } else {
        cc->loss_ppm = (uint32_t)(((uint64_t)cc->loss_ppm * 7 + now_ppm) / 8);
    }
    floor_update(cc, s->now_ns);
    uint32_t floor_ppm = cc->floor_ppm[0] < cc->floor_ppm[1] ? cc->floor_ppm[0] : cc->floor_ppm[1];
    if (delay_is_high(s)) {
        cc->excess_ppm = now_ppm;
    } else {
        /* The floor is the least of many noisy measurements, so it lies below the true loss: at
         * 10 % by about three points. Half as much again, and a point, is noise. */
        uint32_t noise_ppm = floor_ppm + floor_ppm / 2 + WEFT_PPM / 100;
        cc->excess_ppm = cc->loss_ppm > noise_ppm ? cc->loss_ppm - noise_ppm : 0;
    }
    cc->span_acked = 0;
    cc->span_lost = 0;
}

static void window_cut(struct weft_cc *cc, uint32_t fraction_ppm)
{
    cc->cwnd_bytes -= cc->cwnd_bytes * fraction_ppm / WEFT_PPM;
    cc->slow_start = false;
}

static void window_round(struct weft_cc *cc)
{
    uint32_t marked_ppm = 0;
    if (cc->round_acked > 0) {
        uint64_t ce = weft_min_u64(cc->round_ce, cc->round_acked);
        marked_ppm = (uint32_t)(ce * WEFT_PPM / cc->round_acked);
    }
    cc->alpha_ppm = (uint32_t)(((uint64_t)cc->alpha_ppm * 15 + marked_ppm) / 16);
    if (marked_ppm > 0) {
        window_cut(cc, cc->alpha_ppm / 2);
    } else if (cc->excess_ppm > 0) {
        window_cut(cc, cc->excess_ppm / 2);
    } else if (!cc->slow_start && cc->round_full) {
        cc->cwnd_bytes += cc->packet_bytes;
    }
    cc->excess_ppm = 0;
    cc->round_ce = 0;
    cc->round_acked = 0;
    cc->round_full = false;
}

static void window_on_ack(struct weft_cc *cc, const struct weft_cc_sample *s)
{
    loss_measure(cc, s);
    cc->round_acked += s->acked_packets;
    cc->round_ce += s->ce_packets;
    bool full = s->in_flight_bytes * 2 >= cc->cwnd_bytes;
    cc->round_full |= full;
    if (cc->slow_start && full) {
        if (delay_is_high(s) && s->lost_packets > 0) {
            cc->slow_start = false;
        } else {
            cc->cwnd_bytes += s->acked_bytes;
        }
    }
    if (s->round_end) {
        window_round(cc);
    }
    cc->cwnd_bytes = weft_max_u64(cc->cwnd_bytes, (uint64_t)MIN_PACKETS * cc->packet_bytes);
    cc->cwnd_bytes = weft_min_u64(cc->cwnd_bytes, cwnd_bytes_max);
    if (s->srtt_ns > 0) {
        /* Twice the window per round trip while probing for the rate, 5/4 afterwards; a window is
         * at most 2^26 bytes, so this stays below 2^64. */
        uint64_t bits = cc->cwnd_bytes * 8 * (cc->slow_start ? 8 : 5) / 4;
        cc->rate_bps = weft_max_u64(bits * WEFT_NS_PER_S / s->srtt_ns, UINT64_C(1000000));
    }
}

static void window_on_silence(struct weft_cc *cc)
{
    cc->cwnd_bytes = (uint64_t)MIN_PACKETS * cc->packet_bytes;
    cc->slow_start = true;
}

const struct weft_cc_ops weft_cc_window = {
    .name = "window",
    .init = window_init,
    .on_ack = window_on_ack,
    .on_silence = window_on_silence,
};
