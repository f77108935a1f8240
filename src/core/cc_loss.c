/* Loss as a congestion signal, and loss that does not indicate congestion.
 *
 * With random loss at a rate p, halving the window per loss event keeps it at about 1/sqrt(p)
 * packets, and a reduction in proportion to *all* loss keeps it at 2/p packets: on a 40 Gbit/s path
 * with 10 us and p = 10 % that is 61 % of the link. The loss that does not depend on the sending
 * rate, estimated as the minimum of the smoothed loss of the last 5 to 10 s, is therefore not a
 * signal, unless the delay rises with it: a queue is full before it overflows.
 */
#include "core/cc.h"

enum { SPAN_PACKETS = 64 /* minimum number of packets for a measurement of loss */ };

static const uint64_t floor_half_life_ns = 5 * WEFT_NS_PER_S;

static void floor_update(struct weft_cc_loss *loss, uint64_t now_ns)
{
    if (now_ns - loss->floor_since_ns >= floor_half_life_ns) {
        loss->floor_ppm[1] = loss->floor_ppm[0];
        loss->floor_ppm[0] = UINT32_MAX;
        loss->floor_since_ns = now_ns;
    }
    if (loss->ppm < loss->floor_ppm[0]) {
        loss->floor_ppm[0] = loss->ppm;
    }
}

void weft_cc_loss_measure(struct weft_cc_loss *loss, const struct weft_cc_sample *s)
{
    loss->span_acked += s->acked_packets;
    loss->span_lost += s->lost_packets;
    uint64_t packets = (uint64_t)loss->span_acked + loss->span_lost;
    if (packets < SPAN_PACKETS) {
        return;
    }
    uint32_t now_ppm = (uint32_t)((uint64_t)loss->span_lost * WEFT_PPM / packets);
    if (loss->ppm == UINT32_MAX) {
        loss->ppm = now_ppm;
    } else {
        loss->ppm = (uint32_t)(((uint64_t)loss->ppm * 7 + now_ppm) / 8);
    }
    floor_update(loss, s->now_ns);
    uint32_t floor_ppm =
        loss->floor_ppm[0] < loss->floor_ppm[1] ? loss->floor_ppm[0] : loss->floor_ppm[1];
    if (weft_cc_delay_excess(s) > 0) {
        loss->excess_ppm = now_ppm;
    } else {
        /* The floor is the minimum of many noisy measurements, so it is below the true loss: at
         * 10 % by about three percentage points. Up to half the floor plus one point is noise. */
        uint32_t noise_ppm = floor_ppm + floor_ppm / 2 + WEFT_PPM / 100;
        loss->excess_ppm = loss->ppm > noise_ppm ? loss->ppm - noise_ppm : 0;
    }
    loss->span_acked = 0;
    loss->span_lost = 0;
}
