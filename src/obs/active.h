/* How many different workers sent a request to one shard within 1 ms: [imc20] Fig. 7(b).
 *
 * The shard's thread records every request that arrives, with the kernel's timestamp. Windows are
 * contiguous; those without a request are not counted (as in the records of a run). Counts are
 * exact. One thread writes; others read after that thread has ended.
 */
#ifndef WEFT_OBS_ACTIVE_H
#define WEFT_OBS_ACTIVE_H

#include "base/status.h"
#include "base/units.h"

struct weft_active {
    uint32_t peers_max;
    uint64_t window;   /* number of the current one */
    uint32_t count;    /* different peers in it */
    uint64_t *last;    /* (peers_max,): window of its last request, + 1 */
    uint64_t *windows; /* (peers_max + 1,): number of windows with that many peers */
};

enum { WEFT_ACTIVE_WINDOW_NS = 1000000 };

/* Errors:  WEFT_NOMEM. */
weft_status weft_active_init(struct weft_active *active, uint32_t peers_max);
void weft_active_fini(struct weft_active *active);

/* Record a request of a peer at at_ns. Requests before `from_ns` or from `to_ns` on, and peers from
 * peers_max on, are ignored. */
void weft_active_note(struct weft_active *active, uint32_t peer, uint64_t at_ns, uint64_t from_ns,
                      uint64_t to_ns);

/* Nearest rank over the windows of all (count,) shards; 0 if there is none. */
uint32_t weft_active_quantile(const struct weft_active *shards, uint32_t count,
                              uint32_t quantile_ppm);

#endif
