/* "delay": the queue is kept below a target delay, as in Swift; loss above the path's floor reduces
 * the window in proportion.
 *
 * The target is 1.5 x the base round trip plus an allowance of 2.5 ms for the queue that receivers'
 * credit keeps on purpose (about 24 packets, and up to 256,000 bytes for hosts that reply late:
 * 2.4 ms at 1 Gbit/s). A receiver whose process waits longer for a processor keeps a longer queue.
 * Its max_ack_delay, which is less than the duration of that queue, indicates this: the allowance
 * is 1.25 x max_ack_delay, at most 15 ms, if that is more than 2.5 ms.
 *
 * If the round trip is above the target, the window is reduced once per round, by 0.8 x the
 * fraction of the round trip that is above it, but at most by half, and to no less than the smaller
 * of 96 packets and 144,000 bytes. Credit already bounds the queue of a window of this size at a
 * receiver's link. While TCP fills the queue of a link on the path, the delay is above the target
 * regardless of weft's window. With a minimum of 24 packets, a reply of 47 packets needed three
 * round trips through such a queue.
 *
 * Source: Swift (Kumar et al., SIGCOMM 2020) section 3.1, without its scaling of the target by hops
 * and flows, and without its pacing below one packet, because credit bounds the number of packets.
 */
#include "core/cc.h"

enum { BETA_PPM = 800000, CUT_PPM_MAX = 500000 };

static const uint64_t queue_ns = 2500 * WEFT_NS_PER_US;
static const uint64_t kept_ns_most = 15 * WEFT_NS_PER_MS;

uint32_t weft_cc_delay_excess(const struct weft_cc_sample *s)
{
    if (s->rtt_ns_min == WEFT_NEVER || s->srtt_ns == 0) {
        return 0;
    }
    uint64_t kept_ns = weft_min_u64(s->kept_ns + s->kept_ns / 4, kept_ns_most);
    kept_ns = weft_max_u64(kept_ns, queue_ns);
    uint64_t target_ns = s->rtt_ns_min + s->rtt_ns_min / 2 + kept_ns;
    if (s->srtt_ns <= target_ns) {
        return 0;
    }
    uint64_t cut = (s->srtt_ns - target_ns) * BETA_PPM / s->srtt_ns;
    return (uint32_t)weft_max_u64(weft_min_u64(cut, CUT_PPM_MAX), 1);
}

uint32_t weft_cc_delay_cut(const struct weft_cc *cc, const struct weft_cc_sample *s)
{
    uint64_t least = (uint64_t)WEFT_CC_PACKETS_DELAY * cc->packet_bytes;
    least = weft_min_u64(least, WEFT_CC_BYTES_DELAY);
    uint64_t over = cc->cwnd_bytes > least ? cc->cwnd_bytes - least : 0;
    uint64_t most_ppm = over * WEFT_PPM / cc->cwnd_bytes;
    return (uint32_t)weft_min_u64(weft_cc_delay_excess(s), most_ppm);
}

static void delay_round(struct weft_cc *cc, const struct weft_cc_sample *s)
{
    uint32_t cut_ppm = weft_cc_delay_cut(cc, s);
    if (cc->loss.excess_ppm / 2 > cut_ppm) {
        cut_ppm = cc->loss.excess_ppm / 2;
    }
    if (cut_ppm > 0) {
        weft_cc_cut(cc, cut_ppm);
    } else if (!cc->slow_start && cc->round_full) {
        cc->cwnd_bytes += cc->packet_bytes;
    }
    cc->loss.excess_ppm = 0;
    cc->round_full = false;
}

static void delay_on_ack(struct weft_cc *cc, const struct weft_cc_sample *s)
{
    weft_cc_loss_measure(&cc->loss, s);
    weft_cc_slow_start(cc, s);
    if (s->round_end) {
        delay_round(cc, s);
    }
    weft_cc_limit(cc, s, WEFT_CC_PACKETS_MIN);
}

const struct weft_cc_ops weft_cc_delay = {
    .name = "delay",
    .init = weft_cc_reset,
    .on_ack = delay_on_ack,
    .on_silence = weft_cc_silence,
};
