#include "core/cc.h"

#include <string.h>

static const uint64_t cwnd_bytes_max = UINT64_C(64) << 20;
static const uint64_t rate_bps_min = 1000000;

extern const struct weft_cc_ops weft_cc_dctcp;
extern const struct weft_cc_ops weft_cc_delay;
extern const struct weft_cc_ops weft_cc_reno;

const struct weft_cc_ops *const weft_cc_all[] = {&weft_cc_dctcp, &weft_cc_delay, &weft_cc_reno,
                                                 NULL};

const struct weft_cc_ops *weft_cc_find(const char *name)
{
    if (name == NULL) {
        return weft_cc_all[0];
    }
    for (size_t i = 0; weft_cc_all[i] != NULL; i++) {
        if (strcmp(weft_cc_all[i]->name, name) == 0) {
            return weft_cc_all[i];
        }
    }
    return NULL;
}

uint32_t weft_cc_loss_ppm(const struct weft_cc *cc)
{
    return cc->loss.ppm == UINT32_MAX ? 0 : cc->loss.ppm;
}

void weft_cc_reset(struct weft_cc *cc, uint32_t packet_bytes, uint64_t now_ns)
{
    *cc = (struct weft_cc){
        .ops = cc->ops,
        .packet_bytes = packet_bytes,
        .cwnd_bytes = (uint64_t)WEFT_CC_PACKETS_FIRST * packet_bytes,
        .slow_start = true,
        .alpha_ppm = WEFT_PPM, /* the first mark halves the window, as in DCTCP */
        .loss = {.ppm = UINT32_MAX,
                 .floor_ppm = {UINT32_MAX, UINT32_MAX},
                 .floor_since_ns = now_ns},
    };
}

void weft_cc_silence(struct weft_cc *cc)
{
    cc->cwnd_bytes = (uint64_t)WEFT_CC_PACKETS_MIN * cc->packet_bytes;
    cc->slow_start = true;
}

void weft_cc_cut(struct weft_cc *cc, uint32_t fraction_ppm)
{
    cc->cwnd_bytes -= cc->cwnd_bytes * fraction_ppm / WEFT_PPM;
    cc->slow_start = false;
}

void weft_cc_slow_start(struct weft_cc *cc, const struct weft_cc_sample *s)
{
    bool full = s->in_flight_bytes * 2 >= cc->cwnd_bytes;
    cc->round_full |= full;
    if (cc->slow_start && full) {
        cc->cwnd_bytes += s->acked_bytes;
    }
}

void weft_cc_limit(struct weft_cc *cc, const struct weft_cc_sample *s, uint32_t packets_min)
{
    cc->cwnd_bytes = weft_max_u64(cc->cwnd_bytes, (uint64_t)packets_min * cc->packet_bytes);
    cc->cwnd_bytes = weft_min_u64(cc->cwnd_bytes, cwnd_bytes_max);
    if (s->srtt_ns > 0) {
        /* Twice the window per round trip while probing for the rate, 5/4 afterwards; a window is
         * at most 2^26 bytes, so this stays below 2^64. */
        uint64_t bits = cc->cwnd_bytes * 8 * (cc->slow_start ? 8 : 5) / 4;
        cc->rate_bps = weft_max_u64(bits * WEFT_NS_PER_S / s->srtt_ns, rate_bps_min);
    }
}
