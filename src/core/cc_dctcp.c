/* "dctcp": once per round trip, the window is reduced by half the smoothed fraction of marked
 * packets, or increased by one packet. Loss above the path's floor reduces it in proportion, too.
 *
 * Many Ethernet switches do not mark packets, and an endpoint cannot detect that. On a path that
 * has never marked a packet, the target delay of the algorithm "delay" therefore applies, too.
 *
 * Source: DCTCP (Alizadeh et al., SIGCOMM 2010; RFC 8257) with g = 1/16. It differs in the response
 * to loss: RFC 8257 halves.
 */
#include "core/cc.h"

static uint32_t marked_ppm(const struct weft_cc *cc)
{
    if (cc->round_acked == 0) {
        return 0;
    }
    uint64_t ce = weft_min_u64(cc->round_ce, cc->round_acked);
    return (uint32_t)(ce * WEFT_PPM / cc->round_acked);
}

static void dctcp_round(struct weft_cc *cc, const struct weft_cc_sample *s)
{
    uint32_t marked = marked_ppm(cc);
    uint32_t delay_ppm = cc->marks ? 0 : weft_cc_delay_cut(cc, s);
    cc->alpha_ppm = (uint32_t)(((uint64_t)cc->alpha_ppm * 15 + marked) / 16);
    if (marked > 0) {
        weft_cc_cut(cc, cc->alpha_ppm / 2);
    } else if (cc->loss.excess_ppm > 0 || delay_ppm > 0) {
        weft_cc_cut(cc, (uint32_t)weft_max_u64(cc->loss.excess_ppm / 2, delay_ppm));
    } else if (!cc->slow_start && cc->round_full) {
        cc->cwnd_bytes += cc->packet_bytes;
    }
    cc->loss.excess_ppm = 0;
    cc->round_ce = 0;
    cc->round_acked = 0;
    cc->round_full = false;
}

static void dctcp_on_ack(struct weft_cc *cc, const struct weft_cc_sample *s)
{
    weft_cc_loss_measure(&cc->loss, s);
    cc->round_acked += s->acked_packets;
    cc->round_ce += s->ce_packets;
    cc->marks |= s->ce_packets > 0;
    weft_cc_slow_start(cc, s);
    if (s->round_end) {
        dctcp_round(cc, s);
    }
    weft_cc_limit(cc, s, WEFT_CC_PACKETS_MIN);
}

const struct weft_cc_ops weft_cc_dctcp = {
    .name = "dctcp",
    .init = weft_cc_reset,
    .on_ack = dctcp_on_ack,
    .on_silence = weft_cc_silence,
};
