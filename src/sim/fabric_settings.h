/* Cluster models for `weft sim fabric`: computation times of workers, and capacities of links.
 *
 * There are two kinds of setting. Each has a name, and is built in (weft_fabric_compute_find) or
 * read from a file by the caller. A setting contains distributions. Each run draws from them, with
 * a separate random stream per worker and per link, so that two policies with one seed get the
 * same steps and links.
 * docs/SIMULATOR.md lists the built-in settings.
 */
#ifndef WEFT_SIM_FABRIC_SETTINGS_H
#define WEFT_SIM_FABRIC_SETTINGS_H

#include "base/prng.h"
#include "base/units.h"

#include <stdbool.h>

enum { WEFT_FABRIC_NAME_BYTES = 64, WEFT_FABRIC_FACTOR_MAX = 100 };

/* The duration of a step is uniform in [min, max], multiplied by the factors that apply. */
struct weft_fabric_compute {
    char name[WEFT_FABRIC_NAME_BYTES];
    uint64_t step_ns_min;
    uint64_t step_ns_max;
    uint32_t slow_steps_ppm;         /* of steps, drawn for each step */
    uint32_t slow_step_factor_ppm;   /* 1,000,000 or more */
    uint32_t slow_workers_ppm;       /* of workers, drawn once */
    uint32_t slow_worker_factor_ppm; /* 1,000,000 or more */
};

/* Every host has an uplink and a downlink of `rate`. `outside` is cross traffic, which is not
 * adaptive: its bandwidth is not available to the job. It starts and stops independently on each
 * link. */
struct weft_fabric_network {
    char name[WEFT_FABRIC_NAME_BYTES];
    uint64_t rate_bps;
    uint64_t delay_ns;               /* host to host */
    uint32_t slow_uplinks_ppm;       /* of workers, drawn once */
    uint32_t slow_uplink_factor_ppm; /* of the rate; above 0, at most 1,000,000 */
    uint32_t contended_workers_ppm;  /* of workers, both links; drawn once */
    uint32_t contended_servers_ppm;  /* of servers, both links; drawn once */
    uint32_t outside_ppm;            /* fraction of a contended link's rate used while there is
                                      * cross traffic */
    uint64_t outside_on_ns;          /* means; each duration is uniform in [0.5, 1.5] of its mean */
    uint64_t outside_off_ns;
    uint32_t rate_factor_ppm_min; /* a link's rate is redrawn uniformly from [this, 1,000,000] of
                                   * `rate` */
    uint64_t rate_every_ns;       /* interval of redrawing; 0 = constant rates */
};

/* The built-in settings, in the order of the documentation; the list ends with NULL. */
extern const struct weft_fabric_compute *const weft_fabric_computes[];
extern const struct weft_fabric_network *const weft_fabric_networks[];

/* Returns NULL if there is no setting of that name. */
const struct weft_fabric_compute *weft_fabric_compute_find(const char *name);
const struct weft_fabric_network *weft_fabric_network_find(const char *name);

/* The neutral setting, a rate of 1 Gbit/s and factors of one: the initial values for a file. */
void weft_fabric_compute_default(struct weft_fabric_compute *compute_p);
void weft_fabric_network_default(struct weft_fabric_network *network_p);

/* Returns NULL, or a description of the error. */
const char *weft_fabric_compute_check(const struct weft_fabric_compute *compute);
const char *weft_fabric_network_check(const struct weft_fabric_network *network);

/* ---- draws ----------------------------------------------------------------------------------- */

/* Set round(share x count) randomly chosen elements of is_p[0 .. count) to true, all others to
 * false. */
void weft_fabric_choose(struct weft_prng *prng, uint32_t share_ppm, uint32_t count, bool *is_p);

uint64_t weft_fabric_step_ns(const struct weft_fabric_compute *compute, bool slow_worker,
                             struct weft_prng *prng);

/* The same for workers of real jobs, which are separate processes and may be restarted at any step:
 * the draws depend on the arguments alone. Not the draws of a simulation with this seed.
 *
 * Shape:   worker < workers; steps count from 0. */
bool weft_fabric_worker_is_slow(const struct weft_fabric_compute *compute, uint64_t seed,
                                uint32_t worker, uint32_t workers);
uint64_t weft_fabric_worker_step_ns(const struct weft_fabric_compute *compute, uint64_t seed,
                                    uint32_t worker, bool is_slow, uint32_t step);

/* One direction of a host's link over time. */
struct weft_fabric_link {
    struct weft_prng prng;
    uint64_t base_bps;
    uint32_t factor_ppm;
    bool contended;
    bool outside; /* cross traffic is present */
    uint64_t factor_next_ns;
    uint64_t outside_next_ns;
};

void weft_fabric_link_init(struct weft_fabric_link *link, const struct weft_fabric_network *network,
                           bool slow, bool contended, uint64_t seed, uint64_t label);
uint64_t weft_fabric_link_capacity(const struct weft_fabric_link *link,
                                   const struct weft_fabric_network *network);
/* Time of the next change; WEFT_NEVER = none. */
uint64_t weft_fabric_link_next_ns(const struct weft_fabric_link *link);
/* Apply the change at weft_fabric_link_next_ns. */
void weft_fabric_link_step(struct weft_fabric_link *link, const struct weft_fabric_network *network,
                           uint64_t now_ns);

#endif
