/* "reno-fair": for links shared with TCP. One halving per round trip that shows a loss or a mark,
 * one packet more per round trip without; every loss counts, whatever the path's floor.
 *
 * On a lossy path it is as slow as TCP is: that is its purpose.
 *
 * Source: RFC 5681 section 3 (without its slow start after a timeout: packets here are
 * acknowledged one by one); RFC 3168 for marks.
 */
#include "core/cc.h"

enum { PACKETS_FIRST = 10, PACKETS_MIN = 2, RECOVERY_ROUNDS = 2 };

static void reno_init(struct weft_cc *cc, uint32_t packet_bytes, uint64_t now_ns)
{
    weft_cc_reset(cc, packet_bytes, now_ns);
    cc->cwnd_bytes = (uint64_t)PACKETS_FIRST * packet_bytes; /* RFC 6928 */
}

static void reno_on_ack(struct weft_cc *cc, const struct weft_cc_sample *s)
{
    weft_cc_loss_measure(&cc->loss, s); /* rule 2 of the bound asks for it */
    if ((s->lost_packets > 0 || s->ce_packets > 0) && cc->recovery_rounds == 0) {
        weft_cc_cut(cc, WEFT_PPM / 2);
        cc->recovery_rounds = RECOVERY_ROUNDS;
    } else {
        weft_cc_slow_start(cc, s);
    }
    if (s->round_end) {
        if (cc->recovery_rounds > 0) {
            cc->recovery_rounds--;
        } else if (!cc->slow_start && cc->round_full) {
            cc->cwnd_bytes += cc->packet_bytes;
        }
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
