/* What links carry, learned from how fast updates came.
 *
 * A transfer that came clearly slower than it was granted has met something that the plan does not
 * know: on its worker's uplink or its server's downlink. The one that has lately carried another
 * transfer at full rate, with another end, is not to blame. Where neither has, the uplink is, unless
 * transfers of another worker were slow at the server, too.
 *
 * A link that is thought to be slower than it was given is tried again: each transfer that comes as
 * fast as granted raises it by an eighth. That is how the end of a contention is found out, since
 * nobody sends faster than granted.
 */
#include "sched/service_internal.h"

__extension__ typedef unsigned __int128 u128;

static const uint32_t slow_ppm = 800000; /* below this share of the granted rate */
static const uint64_t recent_ns = WEFT_NS_PER_S;
/* A link is not thought slower than this share of what it was given: then nothing would be tried. */
static const uint64_t floor_share = 100;
/* Shorter transfers measure the path's delay. */
static const uint64_t span_ns_min = WEFT_NS_PER_MS;

static uint64_t given(uint64_t reported_bps, uint64_t fallback_bps)
{
    return reported_bps != 0 ? reported_bps : fallback_bps;
}

void service_rate_init(struct weft_sched_service *service)
{
    uint64_t fallback_bps = service->config.link_bps;
    for (uint32_t i = 0; i < service->config.workers; i++) {
        uint64_t bps = given(service->worker_up_bps[i], fallback_bps);
        service->up[i] =
            (struct service_link){.given_bps = bps, .now_bps = bps, .slow_with = WEFT_PLANNER_NONE};
    }
    for (uint32_t s = 0; s < service->config.shards; s++) {
        uint64_t bps = given(service->shards[s].down_bps, fallback_bps);
        service->shards[s].down =
            (struct service_link){.given_bps = bps, .now_bps = bps, .slow_with = WEFT_PLANNER_NONE};
    }
}

static bool is_recent(uint64_t at_ns, uint64_t now_ns)
{
    return at_ns != 0 && now_ns - at_ns < recent_ns;
}

static void set(struct weft_sched_service *service, struct service_link *link, uint32_t host,
                bool is_up, uint64_t bps, uint64_t now_ns)
{
    bps = weft_max_u64(bps, weft_max_u64(link->given_bps / floor_share, 1));
    bps = weft_min_u64(bps, link->given_bps);
    if (bps != link->now_bps) {
        service->counters.capacity_lowered += bps < link->now_bps;
        service->counters.capacity_raised += bps > link->now_bps;
        link->now_bps = bps;
        (void)weft_planner_capacity(service->planner, host, is_up, bps, now_ns);
    }
}

static void try_faster(struct weft_sched_service *service, struct service_link *link, uint32_t host,
                       bool is_up, uint64_t now_ns)
{
    link->good_ns = now_ns;
    if (link->now_bps < link->given_bps) {
        set(service, link, host, is_up, link->now_bps + link->now_bps / 8 + 1, now_ns);
    }
}

void service_rate_delivered(struct weft_sched_service *service, uint32_t worker, uint32_t shard,
                            uint64_t span_ns, uint64_t now_ns)
{
    uint64_t bytes = service->workers[worker].shares[shard].bytes;
    const struct service_grant *grant = &service->workers[worker].grants[shard];
    struct service_link *up = &service->up[worker], *down = &service->shards[shard].down;
    uint32_t server_host = service->shards[shard].host_index;
    uint64_t needed_ns = grant->rate_bps != 0 ? weft_transfer_ns(bytes, grant->rate_bps) : 0;
    if (span_ns < span_ns_min || bytes == 0) {
        return;
    }
    uint64_t share_ppm = (uint64_t)((u128)needed_ns * WEFT_PPM / span_ns);
    if (share_ppm >= slow_ppm) {
        try_faster(service, up, worker, true, now_ns);
        try_faster(service, down, server_host, false, now_ns);
        return;
    }
    uint64_t measured_bps = weft_rate_bps(bytes, span_ns);
    bool others_slow = is_recent(down->slow_ns, now_ns) && down->slow_with != worker;
    bool is_down =
        !is_recent(down->good_ns, now_ns) && (others_slow || is_recent(up->good_ns, now_ns));
    if (is_down) {
        set(service, down, server_host, false, measured_bps, now_ns);
    } else {
        set(service, up, worker, true, measured_bps, now_ns);
    }
    down->slow_ns = now_ns;
    down->slow_with = worker;
}

uint64_t service_direct_bps(const struct weft_sched_service *service)
{
    uint64_t least_bps = WEFT_TIMELINE_BPS_MAX;
    if (service->planner == NULL) {
        return 0;
    }
    for (uint32_t s = 0; s < service->config.shards; s++) {
        least_bps = weft_min_u64(least_bps, service->shards[s].down.now_bps);
    }
    return weft_max_u64(least_bps / service->config.workers, 1);
}
