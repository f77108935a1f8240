/* The pacer: a token bucket at the congestion controller's rate.
 *
 * Its depth is 100 us at that rate, and at least ten packets. Kernel timers are not more precise,
 * and with a shallower bucket a late timer would reduce throughput. On a long path that marks
 * packets, the minimum is two packets (bursts_cost).
 */
#include "core/internal.h"

enum {
    BUCKET_PACKETS = 10,
    STANDING_RTTS = 4,
    BUCKET_PACKETS_MARKED = 2, /* one packet, and one more for a late timer */
};

static const uint64_t bucket_ns = 100 * WEFT_NS_PER_US;
static const uint64_t burst_bytes = 65536;
static const uint64_t refill_ns_max = 5 * WEFT_NS_PER_MS;

/* Both functions use 64 bits if possible, which is nearly always the case: a division of 128 bits
 * is a function call. */
static uint64_t bytes_in(uint64_t rate_bps, uint64_t ns)
{
    uint64_t product;
    if (!__builtin_mul_overflow(rate_bps, ns, &product)) {
        return product / (8 * WEFT_NS_PER_S);
    }
    return (uint64_t)((__extension__(unsigned __int128) rate_bps * ns) / (8 * WEFT_NS_PER_S));
}

uint64_t weft_core_time_of(uint64_t rate_bps, uint64_t bytes)
{
    uint64_t product;
    if (!__builtin_mul_overflow(bytes, 8 * WEFT_NS_PER_S, &product)) {
        return product / rate_bps;
    }
    return (uint64_t)((__extension__(unsigned __int128) bytes * 8 * WEFT_NS_PER_S) / rate_bps);
}

/* A switch port that is slower than this end's link, with a marking threshold of a few packets,
 * marks a burst even if the port is otherwise idle. Such marks keep the window at the size of a
 * burst: 10 packets in 13 ms on a link of 10 Gbit/s. If the path is more than half of the
 * round-trip time, the window can be sent packet by packet, so the bucket is shallow (RFC 9002
 * section 7.7). If most of the round-trip time is the delay of the hosts, bursts are not
 * limited. */
static bool bursts_cost(const struct peer *p)
{
    return p->cc.marks && p->recovery.srtt_ns / 2 < p->recovery.rtt_ns_min;
}

/* Most of the round trip is a queue, without the delay of the peer. Packets that join it later do
 * not make it shorter, and a window sent over most of a long round trip ends later. */
static bool queue_stands(const struct peer *p)
{
    return p->recovery.path_rtt_ns / STANDING_RTTS > p->recovery.rtt_ns_min;
}

/* The maximum of 100 us at the rate, ten packets, and half a window up to one GSO burst; where a
 * queue stands, a window up to the minimum that delay leaves. If the window is far larger than the
 * bandwidth-delay product, as with hosts that answer late, a grant of credit may be sent as one
 * burst. With a depth of only 100 us each grant waited for a timer, and eight senders left a link
 * idle for an eighth of the time although all of them held credit. */
static uint64_t bucket_depth(const struct peer *p)
{
    uint64_t least = queue_stands(p) ? weft_min_u64(p->cc.cwnd_bytes, WEFT_CC_BYTES_DELAY)
                                     : weft_min_u64(p->cc.cwnd_bytes / 2, burst_bytes);
    least = weft_max_u64(least, BUCKET_PACKETS * (uint64_t)p->path.packet_bytes);
    if (bursts_cost(p)) {
        least = BUCKET_PACKETS_MARKED * (uint64_t)p->path.packet_bytes;
    }
    return weft_max_u64(bytes_in(p->cc.rate_bps, bucket_ns), least);
}

void weft_core_pacer_refill(struct peer *p, uint64_t now_ns)
{
    if (p->cc.rate_bps == 0) {
        p->pacer.tokens_ns = now_ns;
        return;
    }
    /* Tokens beyond the depth need not be computed. */
    const uint64_t depth = bucket_depth(p);
    uint64_t most_ns = weft_max_u64(refill_ns_max, weft_core_time_of(p->cc.rate_bps, 2 * depth));
    if (now_ns - p->pacer.tokens_ns > most_ns) {
        p->pacer.tokens_ns = now_ns - most_ns;
    }
    uint64_t bytes = bytes_in(p->cc.rate_bps, now_ns - p->pacer.tokens_ns);
    /* Advance by the time of whole bytes only; otherwise slow rates would lose a fraction at each
     * refill. */
    p->pacer.tokens_ns += weft_core_time_of(p->cc.rate_bps, bytes);
    p->pacer.tokens_bytes += (int64_t)bytes;
    if (p->pacer.tokens_bytes > (int64_t)depth) {
        p->pacer.tokens_bytes = (int64_t)depth;
    }
}

bool weft_core_pacer_allows(struct peer *p, uint32_t bytes, uint64_t now_ns)
{
    if (p->cc.rate_bps == 0 || p->pacer.tokens_bytes >= (int64_t)bytes) {
        return true;
    }
    /* A chunk may be longer than the depth of the bucket if the packet size has decreased since the
     * message was divided. It is sent when the bucket is full, and the bucket is then overdrawn. */
    uint64_t depth = bucket_depth(p);
    uint64_t enough = weft_min_u64(bytes, depth);
    if (p->pacer.tokens_bytes >= (int64_t)enough) {
        return true;
    }
    /* Wait for half a bucket, not for one packet. */
    int64_t want = (int64_t)weft_max_u64(enough, depth / 2);
    uint64_t wait_ns = weft_core_time_of(p->cc.rate_bps, (uint64_t)(want - p->pacer.tokens_bytes));
    p->pacer.until_ns = now_ns + weft_max_u64(wait_ns, 1);
    return false;
}
