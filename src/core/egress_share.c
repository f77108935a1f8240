/* Detection of other traffic on the host's link.
 *
 * The limit on the host's queue (egress.c) is the number of bytes that the link transmits in a
 * millisecond. An endpoint can observe only its own bytes in that queue, and their drain rate. If
 * another program fills the same queue, that rate is this endpoint's share of the link. A limit of
 * a millisecond at this rate reduces the share, which reduces the limit again: beside one TCP
 * connection a server's share fell to 6 % of a 200 Mbit/s link.
 *
 * Therefore the highest drain rate over several intervals is remembered as the rate of the link. If
 * the drain rate falls below half of it, either other traffic has arrived or the link has become
 * slower. A trial distinguishes the two cases: for some intervals the limit is doubled. With L
 * bytes of this endpoint and Q bytes of other traffic in a queue that a link of rate C drains in
 * order, this endpoint's bytes drain at
 *
 *     R1 = C L / (L + Q), and with the doubled limit at R2 = C 2L / (2L + Q).
 *
 * If Q = 0, both are C; after two such trials in a row the remembered rate is discarded. Otherwise
 * R2 exceeds R1, and both together determine C: 1 / C = 2 / R2 - 1 / R1.
 *
 * Trials also run, ever more rarely, if the limit takes longer than it should and nothing is
 * suspected: the other traffic may have been there from the beginning.
 *
 * TCP reacts within a trial, so C is often wrong by a factor of two. Where the driver can count the
 * bytes that the interface sends for all programs, no trial is needed: bytes of this endpoint are
 * in the queue at the end of each interval, so the link was busy throughout, and the count divided
 * by the time is C. Where programs share a link but not an interface, as in containers, the count
 * equals this endpoint's own bytes, and trials decide.
 *
 * While the link is shared, the limit is a time at the rate C, in units of a millisecond. At first
 * it is one unit, as for an endpoint alone. When this endpoint's part falls below two fifths, it
 * becomes one unit for each receiver with chunks to be sent, three to eight, because that many TCP
 * connections would each keep a small queue there. While the part is above three fifths, the limit
 * is reduced by a quarter at a time. Two endpoints of one host have a half each, and keep one unit.
 * If at least twice the units do not increase the drain rate by a quarter, the queue is not drained
 * in order: fq_codel, the default of many hosts, serves flows in turn. The limit is then one unit
 * again, and the time until the next attempt doubles.
 *
 * Endpoints of one process, as the shards of a server, are other traffic to each other, and would
 * each keep several milliseconds in the queue: a job with four shards took 1.15 times as long. With
 * such siblings the limit follows the drain rate alone.
 *
 * Source: TCP small queues (Dumazet, 2012), in which the limit does not shrink in this way, because
 * it depends on the pacing rate, not on the drain rate.
 */
#include "core/egress_share.h"

#include "base/units.h"

enum {
    SKIPPED = 2,   /* first intervals of a phase: the queue is still that of the other phase */
    INTERVALS = 8, /* minimum number of intervals measured in a phase */
    PHASE_BYTES_MIN = 64000, /* minimum of the bytes drained in them: an interval of two packets is
                              * wrong by half of one */
    INTERVALS_FIRST = 4,     /* these two while nothing is known of the link */
    FIRST_BYTES_MIN = 16000,
    UNITS_MIN = 3, /* while the part is below PART_LOW_PERCENT */
    UNITS_MAX = 8,
    EQUAL_MAX = 2,
    PART_SUSPECT_PERCENT = 50,
    PART_ALONE_PERCENT = 75,
    PART_LOW_PERCENT = 40,
    PART_ENOUGH_PERCENT = 60
};

static const uint64_t unit_ns = WEFT_NS_PER_MS; /* TCP small queues: the same */
static const uint64_t pause_ns_min = 250 * WEFT_NS_PER_MS;
static const uint64_t pause_ns_shared = 100 * WEFT_NS_PER_MS;
static const uint64_t pause_ns_max = 32 * WEFT_NS_PER_S;

void egress_share_init(struct egress_share *share)
{
    *share = (struct egress_share){
        .pause_ns = pause_ns_min,
        .units = 1,
        .raise_pause_ns = pause_ns_min,
    };
}

static void phase_begin(struct egress_share *share, bool trial)
{
    share->trial = trial;
    share->samples = 0;
    share->bytes = 0;
    share->ns = 0;
    share->counted_bytes = 0;
    share->counted_ns = 0;
}

void egress_share_siblings(struct egress_share *share, bool siblings)
{
    if (siblings && !share->siblings) {
        share->shared = false;
        share->units = 1;
        share->link_bps = 0;
        phase_begin(share, false);
    }
    share->siblings = siblings;
}

static uint64_t bits_per_s(uint64_t bytes, uint64_t ns)
{
    return bytes * 8 * WEFT_NS_PER_MS / ns * 1000;
}

/* The steady rate in percent of the link's. */
static uint64_t part_percent(const struct egress_share *share)
{
    return share->steady_bps / (share->link_bps / 100 + 1);
}

static void units_raise(struct egress_share *share)
{
    uint64_t units = weft_min_u64(weft_max_u64(share->receivers, UNITS_MIN), UNITS_MAX);
    share->raised_bps = units >= 2 * (uint64_t)share->units ? share->steady_bps : 0;
    share->units = (uint32_t)units;
}

static void units_follow(struct egress_share *share, uint64_t now_ns)
{
    uint64_t percent = part_percent(share);
    uint64_t raised_bps = share->raised_bps;
    share->raised_bps = 0;
    if (!share->shared) {
        share->units = 1;
    } else if (raised_bps > 0 && share->steady_bps < raised_bps + raised_bps / 4) {
        share->units = 1;
        share->raise_pause_ns = weft_min_u64(2 * share->raise_pause_ns, pause_ns_max);
        share->raise_ns = now_ns + share->raise_pause_ns;
    } else if (percent < PART_LOW_PERCENT && now_ns >= share->raise_ns) {
        units_raise(share);
    } else if (percent > PART_ENOUGH_PERCENT && share->units > 1) {
        share->units -= (share->units + 3) / 4;
    }
    if (raised_bps > 0 && share->units > 1) {
        share->raise_pause_ns = pause_ns_min;
    }
}

/* At most twice the former estimate: near 2 R1 = R2 a small error of either rate is a large one of
 * C. The next trial, with a longer queue, is more precise. */
static uint64_t link_rate(const struct egress_share *share, uint64_t trial_bps)
{
    uint64_t steady_kbps = share->steady_bps / 1000;
    uint64_t trial_kbps = trial_bps / 1000;
    uint64_t most_kbps = 2 * share->link_bps / 1000;
    if (2 * steady_kbps <= trial_kbps) {
        return most_kbps * 1000;
    }
    uint64_t link_kbps = steady_kbps * trial_kbps / (2 * steady_kbps - trial_kbps);
    return weft_min_u64(link_kbps, most_kbps) * 1000;
}

static void trial_end(struct egress_share *share, uint64_t trial_bps, uint64_t now_ns)
{
    bool faster = trial_bps > share->steady_bps + share->steady_bps / 4;
    if (faster) {
        uint64_t link_bps = link_rate(share, trial_bps);
        share->link_bps = weft_max_u64(link_bps, share->link_bps - share->link_bps / 8);
        share->shared = true;
        share->equal = 0;
    } else if (++share->equal >= EQUAL_MAX) {
        share->link_bps = share->steady_bps;
        share->shared = false;
        share->equal = 0;
    }
    share->pause_ns =
        share->shared ? pause_ns_shared : weft_min_u64(2 * share->pause_ns, pause_ns_max);
    share->next_ns = now_ns + share->pause_ns;
}

/* A queue as long as the limit should drain in a millisecond. If it takes longer, other traffic is
 * in it, or the link is so slow that the least limit takes longer. */
static bool doubtful(const struct egress_share *share)
{
    return share->shared || share->rate_bps == 0 ||
           share->limit_bytes * 8 * WEFT_NS_PER_S / share->rate_bps >
               unit_ns + unit_ns / 2;
}

bool egress_share_asks(const struct egress_share *share)
{
    return !share->siblings && doubtful(share);
}

/* Rate of the link by the driver's count; 0 = not known, or the count is of this endpoint alone. */
static uint64_t counted_rate(const struct egress_share *share)
{
    if (share->counted_ns < share->ns) {
        return 0;
    }
    uint64_t rate_bps = bits_per_s(share->counted_bytes, share->counted_ns);
    return share->steady_bps < rate_bps / 100 * PART_ALONE_PERCENT ? rate_bps : 0;
}

static void part_follow(struct egress_share *share, uint64_t now_ns)
{
    uint64_t counted_bps = counted_rate(share);
    share->link_bps = weft_max_u64(share->link_bps, share->steady_bps);
    if (counted_bps > 0) {
        share->link_bps = counted_bps;
        share->shared = true;
        share->next_ns = now_ns + pause_ns_shared; /* no trial */
    } else if (!share->shared && part_percent(share) < PART_SUSPECT_PERCENT) {
        share->shared = true;
        share->next_ns = now_ns;
    } else if (share->units <= 1 && part_percent(share) > PART_ALONE_PERCENT) {
        share->shared = false;
    }
    units_follow(share, now_ns);
}

static void phase_sample(struct egress_share *share, uint64_t bytes, uint64_t counted_bytes,
                         uint64_t ns, uint64_t now_ns)
{
    share->samples++;
    if (share->samples <= SKIPPED) {
        return;
    }
    share->bytes += bytes;
    share->ns += ns;
    share->counted_bytes += counted_bytes;
    share->counted_ns += counted_bytes > 0 ? ns : 0;
    bool first = share->link_bps == 0;
    if (share->samples < SKIPPED + (first ? INTERVALS_FIRST : INTERVALS) ||
        share->bytes < (first ? FIRST_BYTES_MIN : PHASE_BYTES_MIN)) {
        return;
    }
    uint64_t rate_bps = bits_per_s(share->bytes, share->ns);
    if (share->trial) {
        trial_end(share, rate_bps, now_ns);
        phase_begin(share, false);
    } else {
        share->steady_bps = rate_bps;
        part_follow(share, now_ns);
        share->receivers = 0;
        phase_begin(share, now_ns >= share->next_ns && doubtful(share));
    }
}

void egress_share_sample(struct egress_share *share, uint64_t limit_bytes, uint64_t bytes,
                         uint64_t counted_bytes, uint64_t ns, uint64_t now_ns)
{
    share->limit_bytes = limit_bytes;
    uint64_t rate_bps = bits_per_s(bytes, ns);
    share->rate_bps = share->rate_bps == 0 ? rate_bps : (7 * share->rate_bps + rate_bps) / 8;
    if (!share->siblings) {
        phase_sample(share, bytes, counted_bytes, ns, now_ns);
    }
}

void egress_share_receivers(struct egress_share *share, uint32_t receivers)
{
    share->receivers = receivers > share->receivers ? receivers : share->receivers;
}

void egress_share_forget(struct egress_share *share)
{
    share->rate_bps = 0;
    phase_begin(share, false);
}

uint64_t egress_share_limit(const struct egress_share *share)
{
    uint64_t bytes_per_s = (share->shared ? share->link_bps : share->rate_bps) / 8;
    uint64_t limit_ns = share->units * unit_ns;
    return bytes_per_s == 0 ? UINT64_MAX : bytes_per_s * limit_ns / WEFT_NS_PER_S;
}
