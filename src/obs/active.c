#include "obs/active.h"

#include <stdlib.h>

weft_status weft_active_init(struct weft_active *active, uint32_t peers_max)
{
    *active = (struct weft_active){.peers_max = peers_max};
    active->last = calloc(peers_max, sizeof(*active->last));
    active->windows = calloc((size_t)peers_max + 1, sizeof(*active->windows));
    if (active->last == NULL || active->windows == NULL) {
        weft_active_fini(active);
        return WEFT_NOMEM;
    }
    return WEFT_OK;
}

void weft_active_fini(struct weft_active *active)
{
    free(active->last);
    free(active->windows);
    *active = (struct weft_active){0};
}

/* Stamps within a batch may be slightly out of order; one that belongs to the previous window is
 * counted in the current one. */
void weft_active_note(struct weft_active *active, uint32_t peer, uint64_t at_ns, uint64_t from_ns,
                      uint64_t to_ns)
{
    if (at_ns < from_ns || at_ns >= to_ns || peer >= active->peers_max) {
        return;
    }
    uint64_t window = at_ns / WEFT_ACTIVE_WINDOW_NS;
    if (window > active->window) {
        active->windows[active->count]++;
        active->window = window;
        active->count = 0;
    }
    if (active->last[peer] != active->window + 1) {
        active->last[peer] = active->window + 1;
        active->count++;
    }
}

static uint64_t windows_with(const struct weft_active *shard, uint32_t peers)
{
    /* The current window is not counted yet. */
    return peers > shard->peers_max ? 0 : shard->windows[peers] + (shard->count == peers);
}

uint32_t weft_active_quantile(const struct weft_active *shards, uint32_t count,
                              uint32_t quantile_ppm)
{
    uint64_t all = 0, seen = 0;
    uint32_t most = 0;
    for (uint32_t s = 0; s < count; s++) {
        most = (uint32_t)weft_max_u64(most, shards[s].peers_max);
        for (uint32_t peers = 1; peers <= shards[s].peers_max; peers++) {
            all += windows_with(&shards[s], peers);
        }
    }
    uint64_t rank = weft_div_ceil_u64(all * quantile_ppm, WEFT_PPM);
    for (uint32_t peers = 1; peers <= most; peers++) {
        for (uint32_t s = 0; s < count; s++) {
            seen += windows_with(&shards[s], peers);
        }
        if (seen >= rank && seen > 0) {
            return peers;
        }
    }
    return 0;
}
