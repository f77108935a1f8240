/* "reno-fair": for links shared with TCP. The window is halved once per round trip with a loss or a
 * mark, and increased by two thirds of a packet per round trip without either. Every loss counts;
 * there is no loss floor.
 *
 * Two thirds, because with losses that hit all flows at once the share of an AIMD flow is
 * proportional to increase / decrease. CUBIC in its Reno-friendly region (the windows of a LAN) has
 * 0.53 / 0.3 = 1.77, Reno 1 / 0.5 = 2. Two thirds give 1.33, or 43 % of a link shared with one
 * CUBIC flow: slightly less than half.
 *
 * On a lossy path reno-fair is intentionally as slow as TCP.
 *
 * Source: RFC 5681 section 3 (without its slow start after a timeout: packets here are acknowledged
 * one by one); RFC 9002 section 7.3.2 for the definition of a loss event; RFC 3168 for marks.
 */
#include "core/cc.h"

enum { PACKETS_FIRST = 10, PACKETS_MIN = 2, INCREASE_PERCENT = 67 };

static void reno_init(struct weft_cc *cc, uint32_t packet_bytes, uint64_t now_ns)
{
    weft_cc_reset(cc, packet_bytes, now_ns);
    cc->cwnd_bytes = (uint64_t)PACKETS_FIRST * packet_bytes; /* RFC 6928 */
}

/* The first loss or mark of a packet sent after the last reduction. */
static bool is_event(const struct weft_cc *cc, const struct weft_cc_sample *s)
{
    bool lost = s->lost_packets > 0 && s->lost_sent_ns > cc->recovery_ns;
    bool marked = s->ce_packets > 0 && s->now_ns > cc->recovery_ns + s->srtt_ns;
    return lost || marked;
}

static void reno_on_ack(struct weft_cc *cc, const struct weft_cc_sample *s)
{
    weft_cc_loss_measure(&cc->loss, s); /* used by rule 2 of the bound */
    cc->marks |= s->ce_packets > 0;     /* used by the pacer */
    if (is_event(cc, s)) {
        weft_cc_cut(cc, WEFT_PPM / 2);
        cc->recovery_ns = s->now_ns;
        cc->recovering = true;
    } else {
        weft_cc_slow_start(cc, s);
    }
    if (s->round_end) {
        if (!cc->recovering && !cc->slow_start && cc->round_full) {
            cc->cwnd_bytes += cc->packet_bytes * INCREASE_PERCENT / 100;
        }
        cc->recovering = false;
        cc->round_full = false;
    }
    weft_cc_limit(cc, s, PACKETS_MIN);
}

const struct weft_cc_ops weft_cc_reno = {
    .name = "reno-fair",
    .init = reno_init,
    .on_ack = reno_on_ack,
    .on_silence = weft_cc_silence,
};
