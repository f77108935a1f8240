/* Far senders: those whose round trips other traffic makes long.
 *
 * Credit limits the packets that may queue at this end's link. Where TCP fills the queue of another
 * link, in front of a sender or behind it, the round trip to that sender takes 5 to 20 ms instead
 * of a fraction of one, and for most of that time its credit and its packets are not at this end's
 * link. With the allowance of a near sender, which is a few packets, it sends these, and waits a
 * long round trip for each further grant. By then the messages of other senders have fewer packets
 * left and are served first: in a step of eight workers with 66 packets each, a worker beside one
 * TCP flow had its first grant after most others had ended, and the step took 60 ms instead of 36.
 *
 * A sender is far by as many packets as the link transmits in the excess of its round trip. Its
 * allowance is larger by this, so that a whole message may be sent without a grant, and as much of
 * its credit does not count against the budget. The excess is counted from the nearest sender's
 * round trip. What all senders have in common may be the queue of this end's own link, or late
 * processes, and then the additional packets of all would arrive at the same time; so they share
 * half of this part. The queue that credit itself allows is no excess. The packets of one far
 * sender do not overflow the link: they arrive over one uplink. Those of several may, and a peer
 * may claim any round trip, so the sum over all is limited.
 *
 * The nearest round trip is that of the last windows of measurement. With the least of a round, the
 * queue of an incast with loss counted as excess, which made it longer: 32 senders at 5 % loss lost
 * 1,330 packets in 20 rounds at a port that lost none before.
 *
 * To order grants as if a far sender had fewer packets left gained nothing beyond that.
 *
 * In round-robin mode senders have other receivers, whose queues are in the round trip, too, and
 * credit is spread over all; no sender counts as far then.
 *
 * Source: docs/PROTOCOL.md section 5, "Far senders".
 */
#include "core/internal.h"

enum {
    FAR_ALLOWANCES = 2, /* far senders together have at most this many times `unscheduled` */
    FAR_COMMON = 2,     /* of the common excess half is shared, so that it does not keep itself */
    WIRE_BYTES = 42,    /* Ethernet, IPv4 and UDP headers */
    FAR_OF_WINDOW = 4,  /* and at most this fraction of the receive buffer */
};

/* Bytes that the link transmits in this time, beyond those that credit allows to queue. */
static uint64_t beyond(const struct credit *c, uint64_t ns)
{
    uint64_t bytes = c->rate_bps / 8000 * ns / WEFT_NS_PER_MS;
    uint64_t own = c->at_once_host * (c->packet_bytes + WIRE_BYTES);
    return bytes > own ? bytes - own : 0;
}

/* Packets that the peer may have as a far sender: its part of the limit that others left. */
static uint64_t far_left(const struct weft_ep *ep, const struct peer *p)
{
    uint64_t most = weft_min_u64((uint64_t)FAR_ALLOWANCES * ep->config.unscheduled,
                                 ep->config.rx_window / FAR_OF_WINDOW);
    uint64_t others = ep->credit.far - p->credit.far_out;
    return most > others ? most - others : 0;
}

uint32_t weft_core_credit_far(const struct weft_ep *ep, const struct peer *p)
{
    const struct credit *c = &ep->credit;
    uint64_t senders = weft_max_u64(weft_core_credit_senders(ep), c->active);
    uint64_t least_ns = p->recovery.rtt_ns_min;
    uint64_t rtt_ns = weft_min_u64(p->recovery.srtt_ns, p->recovery.rtt_latest_ns);
    rtt_ns = weft_max_u64(rtt_ns, least_ns); /* before the first sample: WEFT_NEVER */
    if (ep->config.same_host || (c->turns && senders > 1) || beyond(c, rtt_ns - least_ns) == 0) {
        return 0;
    }
    uint64_t near_ns = senders > 1 ? weft_min_u64(c->near_ns[0], c->near_ns[1]) : rtt_ns;
    near_ns = weft_max_u64(weft_min_u64(near_ns, rtt_ns), least_ns);
    uint64_t bytes = beyond(c, rtt_ns - near_ns);
    bytes += beyond(c, near_ns - least_ns) / (FAR_COMMON * senders);
    bytes = weft_min_u64(bytes, c->far_ceiling);
    const struct weft_credit_share *host = ep->config.credit_share;
    uint64_t ends = host == NULL ? 1 : atomic_load_explicit(&host->endpoints, memory_order_relaxed);
    uint64_t packets = bytes / weft_max_u64(ends, 1) / (c->packet_bytes + WIRE_BYTES);
    return (uint32_t)weft_min_u64(packets, far_left(ep, p));
}

void weft_core_credit_far_out(struct weft_ep *ep, struct peer *p, uint32_t packets)
{
    ep->credit.far = ep->credit.far - p->credit.far_out + packets;
    p->credit.far_out = packets;
}
