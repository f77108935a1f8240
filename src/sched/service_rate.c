/* Estimation of link capacities from the receive rates of updates, and of the sizes of sums.
 *
 * A shard measures the rate between the first and the last chunk of an update (ps/update.h). The
 * worker's interval, from the granted start to the shard's acknowledgement, is not used: it
 * includes the delays of both hosts, so the estimate would be lower for shorter transfers. A busy
 * host makes a measurement too low. The estimate is therefore the maximum of the recent
 * measurements, and may be too high where other traffic varies. A sum is sent by an aggregator that
 * has all of it, and sums that arrive together divide the time among them (ps/shard_internal.h), so
 * their measurements are too high as often as too low: if there are recent ones, the estimate is
 * their mean over time, in which each sum counts once.
 *
 * An uplink is measured by the part of a transfer that arrived while no other transfer did.
 * Otherwise the transfer shares the server's downlink, for example because another transfer ends
 * later than planned. The downlink is measured by all data that arrived meanwhile, so that one slow
 * worker does not lower its estimate.
 *
 * If transfers were sent at the estimated rate, no link could be found to be faster, and an
 * estimate that is too low would never recover. The granted rate is therefore the transfer's share
 * of the configured rate of its links, not of the estimate; congestion control limits the actual
 * rate.
 *
 * In BSP without aggregators all updates are sent at once, and the plan does not depend on link
 * capacities.
 */
#include "sched/service_internal.h"

__extension__ typedef unsigned __int128 u128;

/* A measurement is valid for this time; of measurements that are not of sums, also the last two at
 * any age. The end of contention is thus detected within a second. */
static const uint64_t recent_ns = 700 * WEFT_NS_PER_MS;
/* A measurement above this fraction of a rate counts as the full rate. */
static const uint32_t most_ppm = 900000;
/* Smaller changes are ignored. */
static const uint32_t step_ppm = 30000;
/* Lower bound of an estimate, as a fraction of the configured rate, so that the link is still
 * used. */
static const uint64_t floor_share = 100;

static uint64_t scaled(uint64_t value, uint64_t by, uint64_t of)
{
    return of == 0
               ? value
               : (uint64_t)weft_min_u64((uint64_t)((u128)value * by / of), WEFT_TIMELINE_BPS_MAX);
}

static uint64_t given(uint64_t reported_bps, uint64_t fallback_bps)
{
    return reported_bps != 0 ? reported_bps : fallback_bps;
}

void service_rate_init(struct weft_sched_service *service)
{
    uint64_t fallback_bps = service->config.link_bps;
    for (uint32_t i = 0; i < service->config.workers; i++) {
        uint64_t bps = given(service->worker_up_bps[i], fallback_bps);
        service->up[i] = (struct service_link){.given_bps = bps, .now_bps = bps};
    }
    for (uint32_t s = 0; s < service->config.shards; s++) {
        uint64_t bps = given(service->shards[s].down_bps, fallback_bps);
        service->shards[s].down = (struct service_link){.given_bps = bps, .now_bps = bps};
    }
}

void service_rate_given(struct weft_sched_service *service, uint32_t worker, uint64_t up_bps,
                        uint64_t now_ns)
{
    if (up_bps == service->worker_up_bps[worker]) {
        return;
    }
    service->worker_up_bps[worker] = up_bps;
    if (service->planner != NULL) { /* else service_rate_init uses it */
        const uint64_t bps = given(up_bps, service->config.link_bps);
        service->up[worker] = (struct service_link){.given_bps = bps, .now_bps = bps};
        (void)weft_planner_capacity(service->planner, worker, true, bps, now_ns);
        (void)weft_planner_capacity(service->planner, worker, false, bps, now_ns);
    }
}

/* Shards of a host share its downlink, whose state is stored at the first shard. */
static struct service_link *down_of(struct weft_sched_service *service, uint32_t shard)
{
    uint32_t first = 0;
    while (service->shards[first].host_index != service->shards[shard].host_index) {
        first++;
    }
    return &service->shards[first].down;
}

void service_rate_given_shard(struct weft_sched_service *service, uint32_t shard, uint64_t up_bps,
                              uint64_t down_bps, uint64_t now_ns)
{
    struct service_shard *s = &service->shards[shard];
    const bool is_up_news = up_bps != s->up_bps, is_down_news = down_bps != s->down_bps;
    s->up_bps = up_bps;
    s->down_bps = down_bps;
    if (service->planner == NULL) { /* service_rate_init uses them */
        return;
    }
    if (is_up_news) {
        const uint64_t bps = given(up_bps, service->config.link_bps);
        (void)weft_planner_capacity(service->planner, s->host_index, true, bps, now_ns);
    }
    if (is_down_news) {
        const uint64_t bps = given(down_bps, service->config.link_bps);
        *down_of(service, shard) = (struct service_link){.given_bps = bps, .now_bps = bps};
        (void)weft_planner_capacity(service->planner, s->host_index, false, bps, now_ns);
    }
}

/* ---- measurements ---------------------------------------------------------------------------- */

static void set(struct weft_sched_service *service, struct service_link *link, uint32_t host,
                bool is_up, uint64_t bps, uint64_t now_ns)
{
    uint64_t step = scaled(link->now_bps, step_ppm, WEFT_PPM);
    bps = weft_max_u64(bps, weft_max_u64(link->given_bps / floor_share, 1));
    bps = weft_min_u64(bps, link->given_bps);
    bool is_news = bps + step < link->now_bps || bps > link->now_bps + step ||
                   (bps == link->given_bps && bps != link->now_bps);
    if (is_news) {
        service->counters.capacity_lowered += bps < link->now_bps;
        service->counters.capacity_raised += bps > link->now_bps;
        link->now_bps = bps;
        (void)weft_planner_capacity(service->planner, host, is_up, bps, now_ns);
    }
}

/* A sum is reported for each member, and counts once: all members are marked at the first report,
 * and the others may follow much later. */
static bool is_first_report(struct weft_sched_service *service, uint32_t worker, uint32_t shard,
                            const struct weft_sched_event *event)
{
    const struct service_worker *w = &service->workers[worker];
    const struct service_grant *grant = &w->grants[shard];
    for (uint32_t i = 0; i < WEFT_ARRAY_COUNT(grant->measured); i++) {
        if (grant->measured[i].bps == event->all_bps &&
            grant->measured[i].bytes == event->sum_bytes) {
            return false;
        }
    }
    for (uint32_t i = 0; i < service->config.workers; i++) {
        struct service_grant *of = &service->workers[i].grants[shard];
        if (service_is_in_sum(&service->workers[i], w)) {
            of->measured[of->measured_next].bps = event->all_bps;
            of->measured[of->measured_next].bytes = event->sum_bytes;
            of->measured_next = (of->measured_next + 1) % WEFT_ARRAY_COUNT(of->measured);
        }
    }
    return true;
}

/* The sums of a group at several shards of a host arrive over one link, mostly together. They are
 * one sample, whose time is that in which at least one of them arrived: each ended when it was
 * first reported. False: there is no sample of the group at another shard. */
static bool merge(struct service_link *link, const struct service_sample *sample)
{
    for (uint32_t i = 0; i < weft_min_u64(link->count, SERVICE_SAMPLES); i++) {
        struct service_sample *at = &link->samples[i];
        if (sample->group == 0 || at->group != sample->group ||
            (at->shards & sample->shards) != 0 || at->sum_ns == 0 || sample->sum_ns == 0) {
            continue;
        }
        const uint64_t later_ns = weft_min_u64(sample->at_ns - at->at_ns, sample->sum_ns);
        const uint64_t both_ns = weft_min_u64(sample->sum_ns - later_ns, at->sum_ns);
        const u128 sent = (u128)at->bps * at->sum_ns + (u128)sample->bps * sample->sum_ns;
        at->sum_ns += sample->sum_ns - both_ns;
        at->bps = (uint64_t)(sent / at->sum_ns);
        at->bps = weft_min_u64(at->bps, WEFT_TIMELINE_BPS_MAX);
        at->at_ns = sample->at_ns;
        at->shards |= sample->shards;
        return true;
    }
    return false;
}

static void learn(struct weft_sched_service *service, struct service_link *link, uint32_t host,
                  bool is_up, struct service_sample sample)
{
    uint64_t found_bps = 0, sums_ns = 0;
    u128 sums = 0; /* bit/s x ns */
    bool is_of_two = is_up || sample.group != 0;
    if (!merge(link, &sample)) {
        link->samples[link->count++ % SERVICE_SAMPLES] = sample;
    }
    for (uint32_t i = 1; i <= weft_min_u64(link->count, SERVICE_SAMPLES); i++) {
        const struct service_sample *at = &link->samples[(link->count - i) % SERVICE_SAMPLES];
        const bool is_recent = sample.at_ns - at->at_ns < recent_ns;
        if (i <= 2 || is_recent) {
            found_bps = weft_max_u64(found_bps, at->bps);
            is_of_two |= at->worker != sample.worker;
        }
        if (is_recent) {
            sums += (u128)at->bps * at->sum_ns;
            sums_ns += at->sum_ns;
        }
    }
    found_bps = sums_ns > 0 ? (uint64_t)(sums / sums_ns) : found_bps;
    if ((link->count >= 2 || sample.group != 0) && (is_of_two || found_bps > link->now_bps)) {
        set(service, link, host, is_up, found_bps, sample.at_ns);
    }
}

static bool is_most(uint64_t bps, uint64_t of_bps)
{
    return bps >= scaled(of_bps, most_ppm, WEFT_PPM);
}

/* Capacity of an uplink according to a transfer; 0 = unknown. A transfer that was as fast as
 * planned, or that shared the downlink, gives a lower bound. If the downlink is always full there
 * are no other measurements, and the uplink is tried at a rate one sixteenth higher. */
static uint64_t uplink_bps(const struct service_link *up, const struct weft_sched_event *event,
                           uint64_t booked_bps)
{
    uint64_t bps = weft_max_u64(event->alone_bps, event->rate_bps);
    bool is_whole = is_most(booked_bps, up->now_bps);
    bool is_limit = event->alone_bps > 0 && (is_whole || !is_most(event->alone_bps, booked_bps));
    bool is_kept = event->alone_bps == 0 && is_whole && is_most(event->rate_bps, booked_bps);
    return is_limit || bps > up->now_bps ? bps : is_kept ? up->now_bps + up->now_bps / 16 : 0;
}

/* True if a transfer measures the downlink: it was granted all of the link, or always shared it. */
static bool measures_down(const struct service_link *down, const struct weft_sched_event *event,
                          uint64_t booked_bps)
{
    return event->all_bps > 0 && (is_most(booked_bps, down->now_bps) || event->alone_bps == 0 ||
                                  event->all_bps > down->now_bps);
}

/* Time that a sum took to arrive, at most an hour; 0 = unknown. */
static uint64_t sum_ns(const struct weft_sched_event *event)
{
    const uint64_t most_ns = 3600 * WEFT_NS_PER_S;
    return event->rate_bps == 0
               ? 0
               : weft_min_u64(weft_transfer_ns(event->sum_bytes, event->rate_bps), most_ns);
}

void service_rate_measured(struct weft_sched_service *service, uint32_t worker, uint32_t shard,
                           const struct weft_sched_event *event, uint64_t now_ns)
{
    uint64_t booked_bps = service->workers[worker].grants[shard].booked_bps;
    const struct service_worker *w = &service->workers[worker];
    struct service_link *up = &service->up[worker], *down = down_of(service, shard);
    if (w->hop > 0 && event->all_bps > 0) { /* a sum: it does not measure a worker's uplink */
        const bool is_sum = event->members >= 2;
        if (is_sum && (w->is_regrouped || !is_first_report(service, worker, shard, event))) {
            return;
        }
        learn(service, down, service->shards[shard].host_index, false,
              (struct service_sample){.at_ns = now_ns,
                                      .bps = event->all_bps,
                                      .worker = worker,
                                      .sum_ns = sum_ns(event),
                                      .group = is_sum ? w->group : 0,
                                      .shards = UINT64_C(1) << shard});
        return;
    }
    if (booked_bps == 0 || service_sends_at_once(service)) {
        return;
    }
    if (measures_down(down, event, booked_bps)) {
        learn(service, down, service->shards[shard].host_index, false,
              (struct service_sample){
                  .at_ns = now_ns, .bps = event->all_bps, .worker = worker});
    }
    uint64_t up_bps = uplink_bps(up, event, booked_bps);
    if (up_bps > 0) {
        learn(service, up, worker, true,
              (struct service_sample){.at_ns = now_ns, .bps = up_bps, .worker = worker});
    }
}

/* ---- sizes of sums --------------------------------------------------------------------------- */

/* A sum of sparse updates has the rows of all its members, so it is larger than one of them. How
 * much each further member adds depends on the data, and decreases with the number of members: it
 * is learned for each number, as a moving average. A sum that was sent before all its members had
 * arrived has another number of members than granted, and is ignored. */
void service_sum_measured(struct weft_sched_service *service, uint32_t worker, uint32_t shard,
                          const struct weft_sched_event *event)
{
    enum { WEIGHT = 8 };
    const struct service_worker *w = &service->workers[worker];
    const struct service_grant *grant = &w->grants[shard];
    const uint32_t members = event->members;
    if (w->hop == 0 || w->is_regrouped || members < 2 || members > WEFT_PLANNER_WINDOW_MAX ||
        members != grant->members || grant->others == 0) {
        return;
    }
    const uint64_t more = event->sum_bytes - weft_min_u64(grant->largest, event->sum_bytes);
    const u128 share_ppm = (u128)more * WEFT_PPM / grant->others;
    const uint32_t sample =
        share_ppm < WEFT_PLANNER_SHARE_MAX ? (uint32_t)share_ppm : WEFT_PLANNER_SHARE_MAX;
    const uint32_t before = service->has_sum_ppm[members] ? service->sum_ppm[members] : sample;
    service->sum_ppm[members] = before - before / WEIGHT + sample / WEIGHT;
    service->has_sum_ppm[members] = true;
    (void)weft_planner_sum_share(service->planner, members, service->sum_ppm[members]);
}

/* ---- granted rates --------------------------------------------------------------------------- */

/* A link whose estimate is below its configured rate is tried at a quarter more than the
 * estimate. */
uint64_t service_rate_of(struct weft_sched_service *service, uint32_t worker, uint32_t shard,
                         uint64_t booked_bps)
{
    const struct service_link *up = &service->up[worker], *down = down_of(service, shard);
    uint64_t most_bps = weft_min_u64(up->given_bps, down->given_bps);
    if (service_sends_at_once(service)) {
        return most_bps;
    }
    uint64_t bps = weft_min_u64(scaled(booked_bps, up->given_bps, up->now_bps),
                                scaled(booked_bps, down->given_bps, down->now_bps));
    bool is_slower = up->now_bps < up->given_bps || down->now_bps < down->given_bps;
    bps = is_slower ? bps + bps / 4 : bps;
    return weft_min_u64(weft_max_u64(bps, 1), most_bps);
}

/* Number of shards that share the downlink of this one. */
static uint32_t shards_beside(const struct weft_sched_service *service, uint32_t shard)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < service->config.shards; s++) {
        count += service->shards[s].host_index == service->shards[shard].host_index;
    }
    return count;
}

uint64_t service_direct_bps(struct weft_sched_service *service)
{
    uint64_t least_bps = WEFT_TIMELINE_BPS_MAX;
    if (service->planner == NULL) {
        return 0;
    }
    for (uint32_t s = 0; s < service->config.shards; s++) {
        least_bps =
            weft_min_u64(least_bps, down_of(service, s)->now_bps / shards_beside(service, s));
    }
    return weft_max_u64(least_bps / service->config.workers, 1);
}

uint64_t service_capacity(struct weft_sched_service *service, bool is_worker, uint32_t index)
{
    return is_worker ? service->up[index].now_bps : down_of(service, index)->now_bps;
}
