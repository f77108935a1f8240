#include "sim/fabric_settings.h"

#include <string.h>

#define MS     WEFT_NS_PER_MS
#define ONE    WEFT_PPM
#define GBIT   UINT64_C(1000000000)
#define FACTOR (WEFT_FABRIC_FACTOR_MAX * WEFT_PPM)

/* Label of a stream; no worker has one this large. */
#define STREAM_SLOW_WORKERS UINT64_MAX

/* ---- built-in settings ----------------------------------------------------------------------- */

/* One transfer of the default 12.5 MB takes 0.1 s on a link of 1 Gbit/s, so a step of 2 s equals 20
 * transfers: 30 workers offer one server one and a half times its link's capacity. */
static const struct weft_fabric_compute fixed = {"fixed", 2000 * MS, 2000 * MS, 0, ONE, 0, ONE};
static const struct weft_fabric_compute uniform = {"uniform", 1500 * MS, 2500 * MS, 0, ONE, 0, ONE};
static const struct weft_fabric_compute bimodal = {"bimodal", 1600 * MS, 1600 * MS, 100000,
                                                   4 * ONE,   0,         ONE};
static const struct weft_fabric_compute slow_20 = {"slow-20", 1900 * MS, 2100 * MS, 0,
                                                   ONE,       200000,    2 * ONE};
/* A tenth of a transfer up to five: the offered load is far above the capacity of the server's
 * link. */
static const struct weft_fabric_compute brief = {"brief", 10 * MS, 500 * MS, 0, ONE, 0, ONE};

/* As in the grid: uniform workers, occasionally slow, some always slow. */
static const struct weft_fabric_compute cs1 = {"CS1", 1900 * MS, 2100 * MS, 0, ONE, 0, ONE};
static const struct weft_fabric_compute cs2 = {"CS2",   1900 * MS, 2100 * MS, 100000,
                                               3 * ONE, 0,         ONE};
static const struct weft_fabric_compute cs3 = {"CS3", 1900 * MS, 2100 * MS, 0,
                                               ONE,   200000,    2 * ONE};

const struct weft_fabric_compute *const weft_fabric_computes[] = {
    &fixed, &uniform, &bimodal, &slow_20, &brief, &cs1, &cs2, &cs3, NULL};

static const struct weft_fabric_network homogeneous = {.name = "homogeneous",
                                                       .rate_bps = GBIT,
                                                       .delay_ns = 50000,
                                                       .slow_uplink_factor_ppm = ONE,
                                                       .rate_factor_ppm_min = ONE};
static const struct weft_fabric_network slow_uplinks = {.name = "slow-uplinks",
                                                        .rate_bps = GBIT,
                                                        .delay_ns = 50000,
                                                        .slow_uplinks_ppm = 200000,
                                                        .slow_uplink_factor_ppm = 100000,
                                                        .rate_factor_ppm_min = ONE};
static const struct weft_fabric_network contended = {.name = "contended",
                                                     .rate_bps = GBIT,
                                                     .delay_ns = 50000,
                                                     .slow_uplink_factor_ppm = ONE,
                                                     .contended_workers_ppm = 300000,
                                                     .outside_ppm = 600000,
                                                     .outside_on_ns = 2000 * MS,
                                                     .outside_off_ns = 2000 * MS,
                                                     .rate_factor_ppm_min = ONE};
static const struct weft_fabric_network varying = {.name = "varying",
                                                   .rate_bps = GBIT,
                                                   .delay_ns = 50000,
                                                   .slow_uplink_factor_ppm = ONE,
                                                   .rate_factor_ppm_min = 300000,
                                                   .rate_every_ns = 1000 * MS};

/* As in the grid: uniform hosts, slow uplinks, contention at half of the workers and servers. */
static const struct weft_fabric_network ns1 = {.name = "NS1",
                                               .rate_bps = GBIT,
                                               .delay_ns = 50000,
                                               .slow_uplink_factor_ppm = ONE,
                                               .rate_factor_ppm_min = ONE};
static const struct weft_fabric_network ns2 = {.name = "NS2",
                                               .rate_bps = GBIT,
                                               .delay_ns = 50000,
                                               .slow_uplinks_ppm = 200000,
                                               .slow_uplink_factor_ppm = 100000,
                                               .rate_factor_ppm_min = ONE};
static const struct weft_fabric_network ns3 = {.name = "NS3",
                                               .rate_bps = GBIT,
                                               .delay_ns = 50000,
                                               .slow_uplink_factor_ppm = ONE,
                                               .contended_workers_ppm = 500000,
                                               .contended_servers_ppm = ONE,
                                               .outside_ppm = 600000,
                                               .outside_on_ns = 3000 * MS,
                                               .outside_off_ns = 3000 * MS,
                                               .rate_factor_ppm_min = ONE};

const struct weft_fabric_network *const weft_fabric_networks[] = {
    &homogeneous, &slow_uplinks, &contended, &varying, &ns1, &ns2, &ns3, NULL};

const struct weft_fabric_compute *weft_fabric_compute_find(const char *name)
{
    for (uint32_t i = 0; weft_fabric_computes[i] != NULL; i++) {
        if (strcmp(weft_fabric_computes[i]->name, name) == 0) {
            return weft_fabric_computes[i];
        }
    }
    return NULL;
}

const struct weft_fabric_network *weft_fabric_network_find(const char *name)
{
    for (uint32_t i = 0; weft_fabric_networks[i] != NULL; i++) {
        if (strcmp(weft_fabric_networks[i]->name, name) == 0) {
            return weft_fabric_networks[i];
        }
    }
    return NULL;
}

void weft_fabric_compute_default(struct weft_fabric_compute *compute_p)
{
    *compute_p = fixed;
}

void weft_fabric_network_default(struct weft_fabric_network *network_p)
{
    *network_p = homogeneous;
}

/* ---- checks ---------------------------------------------------------------------------------- */

const char *weft_fabric_compute_check(const struct weft_fabric_compute *compute)
{
    if (compute->step_ns_min > compute->step_ns_max) {
        return "the minimum time of a step is above the maximum";
    }
    if (compute->step_ns_max == 0 || compute->step_ns_max > 3600 * WEFT_NS_PER_S) {
        return "a step must take more than 0 s and at most an hour";
    }
    if (compute->slow_steps_ppm > ONE || compute->slow_workers_ppm > ONE) {
        return "a share is at most one";
    }
    if (compute->slow_step_factor_ppm < ONE || compute->slow_step_factor_ppm > FACTOR ||
        compute->slow_worker_factor_ppm < ONE || compute->slow_worker_factor_ppm > FACTOR) {
        return "a factor of slowness is from 1 to 100";
    }
    return NULL;
}

const char *weft_fabric_network_check(const struct weft_fabric_network *network)
{
    if (network->rate_bps < 1000000 || network->rate_bps > 1000 * GBIT) {
        return "a rate lies between 1 Mbit/s and 1 Tbit/s";
    }
    if (network->delay_ns > WEFT_NS_PER_S) {
        return "a delay is at most a second";
    }
    if (network->slow_uplinks_ppm > ONE || network->contended_workers_ppm > ONE ||
        network->contended_servers_ppm > ONE) {
        return "a share is at most one";
    }
    if (network->slow_uplink_factor_ppm < ONE / 1000 || network->slow_uplink_factor_ppm > ONE ||
        network->rate_factor_ppm_min < ONE / 1000 || network->rate_factor_ppm_min > ONE) {
        return "a factor of a rate is from 0.001 to 1";
    }
    if (network->outside_ppm >= ONE) {
        return "outside traffic must be less than 100 % of a link";
    }
    bool contended_some = network->contended_workers_ppm > 0 || network->contended_servers_ppm > 0;
    if (contended_some && (network->outside_ppm == 0 || network->outside_on_ns < MS ||
                           network->outside_off_ns < MS)) {
        return "contended links need the share of the outside traffic, and durations of its on and "
               "off intervals of 1 ms or more";
    }
    if (network->rate_factor_ppm_min < ONE && network->rate_every_ns < MS) {
        return "varying rates need the interval between changes, 1 ms or more";
    }
    return NULL;
}

/* ---- draws ----------------------------------------------------------------------------------- */

static uint64_t chosen_of(uint32_t share_ppm, uint32_t count)
{
    return ((uint64_t)share_ppm * count + ONE / 2) / ONE;
}

/* Sequential sampling: *chosen is the number still to be chosen from the `left` remaining ones. */
static bool choose_next(struct weft_prng *prng, uint64_t *chosen, uint32_t left)
{
    bool is_chosen = weft_prng_below(prng, left) < *chosen;
    *chosen -= is_chosen;
    return is_chosen;
}

void weft_fabric_choose(struct weft_prng *prng, uint32_t share_ppm, uint32_t count, bool *is_p)
{
    uint64_t chosen = chosen_of(share_ppm, count);
    for (uint32_t i = 0; i < count; i++) {
        is_p[i] = choose_next(prng, &chosen, count - i);
    }
}

static uint64_t times(uint64_t value, uint32_t factor_ppm)
{
    return (uint64_t)((__extension__(unsigned __int128) value * factor_ppm) / ONE);
}

uint64_t weft_fabric_step_ns(const struct weft_fabric_compute *compute, bool slow_worker,
                             struct weft_prng *prng)
{
    uint64_t ns = weft_prng_range(prng, compute->step_ns_min, compute->step_ns_max);
    if (weft_prng_chance(prng, compute->slow_steps_ppm)) {
        ns = times(ns, compute->slow_step_factor_ppm);
    }
    return slow_worker ? times(ns, compute->slow_worker_factor_ppm) : ns;
}

bool weft_fabric_worker_is_slow(const struct weft_fabric_compute *compute, uint64_t seed,
                                uint32_t worker, uint32_t workers)
{
    struct weft_prng prng;
    uint64_t chosen = chosen_of(compute->slow_workers_ppm, workers);
    bool is_slow = false;
    weft_prng_split(&prng, seed, STREAM_SLOW_WORKERS);
    for (uint32_t i = 0; i <= worker; i++) {
        is_slow = choose_next(&prng, &chosen, workers - i);
    }
    return is_slow;
}

uint64_t weft_fabric_worker_step_ns(const struct weft_fabric_compute *compute, uint64_t seed,
                                    uint32_t worker, bool is_slow, uint32_t step)
{
    struct weft_prng prng;
    weft_prng_split(&prng, seed, (uint64_t)worker << 32 | step);
    return weft_fabric_step_ns(compute, is_slow, &prng);
}

static uint64_t about(struct weft_prng *prng, uint64_t mean_ns)
{
    return weft_prng_range(prng, mean_ns / 2, mean_ns + mean_ns / 2);
}

static void draw_factor(struct weft_fabric_link *link, const struct weft_fabric_network *network,
                        uint64_t now_ns)
{
    link->factor_ppm = (uint32_t)weft_prng_range(&link->prng, network->rate_factor_ppm_min, ONE);
    link->factor_next_ns = now_ns + network->rate_every_ns;
}

void weft_fabric_link_init(struct weft_fabric_link *link, const struct weft_fabric_network *network,
                           bool slow, bool is_contended, uint64_t seed, uint64_t label)
{
    *link = (struct weft_fabric_link){
        .base_bps =
            slow ? times(network->rate_bps, network->slow_uplink_factor_ppm) : network->rate_bps,
        .factor_ppm = ONE,
        .contended = is_contended,
        .factor_next_ns = WEFT_NEVER,
        .outside_next_ns = WEFT_NEVER,
    };
    weft_prng_split(&link->prng, seed, label);
    if (network->rate_factor_ppm_min < ONE) {
        draw_factor(link, network, 0);
    }
    if (is_contended) {
        /* Start at a random point of an interval with or without outside traffic. */
        uint64_t both_ns = network->outside_on_ns + network->outside_off_ns;
        link->outside = weft_prng_below(&link->prng, both_ns) < network->outside_on_ns;
        link->outside_next_ns =
            weft_prng_below(&link->prng,
                            link->outside ? network->outside_on_ns : network->outside_off_ns) +
            1;
    }
}

uint64_t weft_fabric_link_capacity(const struct weft_fabric_link *link,
                                   const struct weft_fabric_network *network)
{
    uint64_t bps = times(link->base_bps, link->factor_ppm);
    return link->outside ? times(bps, ONE - network->outside_ppm) : bps;
}

uint64_t weft_fabric_link_next_ns(const struct weft_fabric_link *link)
{
    return weft_min_u64(link->factor_next_ns, link->outside_next_ns);
}

void weft_fabric_link_step(struct weft_fabric_link *link, const struct weft_fabric_network *network,
                           uint64_t now_ns)
{
    if (link->factor_next_ns <= now_ns) {
        draw_factor(link, network, now_ns);
    }
    if (link->outside_next_ns <= now_ns) {
        link->outside = !link->outside;
        link->outside_next_ns =
            now_ns +
            about(&link->prng, link->outside ? network->outside_on_ns : network->outside_off_ns);
    }
}
