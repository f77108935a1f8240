/* Updates of a job with a transfer scheduler, at the shard: opened, checked, closed (ps/update.h).
 *
 * An update opens with its first chunk here, whichever chunk of whichever push that is. Chunks are applied
 * as they come, so its delay has to be known by then: it is in the tag, not in the head, which is in one
 * chunk only (rpc/head.h). It closes with the CLOCKs that end its clock in all tables that it has pushes
 * for, since a worker says CLOCK when its pushes are closed.
 *
 * Of a rank at most the two clocks behind its last CLOCK can be open, in a table; tables whose clocks went
 * apart may have a few more.
 *
 * Counts are of this process. Checkpoints have none: a restored model is older than what workers have
 * pulled, so a base from before means nothing. It is above the count, and counts as no delay.
 *
 * Source: docs/PROTOCOL.md section 7, "Updates".
 */
#include "ps/shard_internal.h"
#include "ps/update.h"

#include <math.h>
#include <stdlib.h>

enum { PER_RANK = 4, RING_MIN = 1024 };

struct shard_update {
    bool live;
    bool late;
    uint32_t clock;
    uint32_t tables; /* with pushes of it, and no CLOCK yet */
    uint64_t number;
    uint64_t base;
    double squares; /* of what was applied */
};

struct weft_shard_updates {
    struct shard_update *of; /* (workers_max, PER_RANK) */
    uint32_t *clocks; /* (tables_max, workers_max, 2), by parity: of an open update with pushes in
                              * the table; 0 = none */
    struct weft_shard_committed *ring;
    uint32_t ring_size;
    uint32_t ring_head;
    uint32_t ring_count;
};

weft_status weft_shard_updates_init(struct weft_shard *shard)
{
    const struct weft_shard_config *config = &shard->config;
    struct weft_shard_updates *u = shard->updates = calloc(1, sizeof(*u));
    if (u == NULL) {
        return WEFT_NOMEM;
    }
    size_t links = (size_t)config->tables_max * config->workers_max;
    u->ring_size = config->workers_max > RING_MIN ? config->workers_max : RING_MIN;
    u->of = calloc((size_t)config->workers_max * PER_RANK, sizeof(*u->of));
    u->clocks = calloc(links * 2, sizeof(*u->clocks));
    u->ring = calloc(u->ring_size, sizeof(*u->ring));
    return u->of != NULL && u->clocks != NULL && u->ring != NULL ? WEFT_OK : WEFT_NOMEM;
}

void weft_shard_updates_fini(struct weft_shard *shard)
{
    if (shard->updates != NULL) {
        free(shard->updates->of);
        free(shard->updates->clocks);
        free(shard->updates->ring);
    }
    free(shard->updates);
}

static struct shard_update *find(const struct weft_shard *shard, uint32_t rank, uint32_t clock)
{
    struct shard_update *of = &shard->updates->of[(size_t)rank * PER_RANK];
    for (int i = 0; i < PER_RANK; i++) {
        if (of[i].live && of[i].clock == clock) {
            return &of[i];
        }
    }
    return NULL;
}

static void tell(struct weft_shard *shard, uint32_t rank, const struct shard_update *update)
{
    struct weft_shard_updates *u = shard->updates;
    if (u->ring_count == u->ring_size) {
        u->ring_head = (u->ring_head + 1) % u->ring_size;
        u->ring_count--;
        shard->counters.updates_untold++;
    }
    u->ring[(u->ring_head + u->ring_count++) % u->ring_size] = (struct weft_shard_committed){
        .rank = rank,
        .clock = update->clock,
        .number = update->number,
        .base = update->base,
        .opened = shard->counters.updates_opened,
        .closed = shard->counters.updates_closed,
        .late = update->late,
        .norm = sqrt(update->squares),
    };
}

static void close_update(struct weft_shard *shard, uint32_t rank, struct shard_update *update)
{
    shard->counters.updates_closed += !update->late;
    tell(shard, rank, update);
    update->live = false;
}

/* A free place; the oldest closes for it, which only a worker that breaks the rules of clocks brings
 * about. */
static struct shard_update *take(struct weft_shard *shard, uint32_t rank)
{
    struct shard_update *of = &shard->updates->of[(size_t)rank * PER_RANK], *oldest = of;
    for (int i = 0; i < PER_RANK; i++) {
        if (!of[i].live) {
            return &of[i];
        }
        oldest = of[i].number < oldest->number ? &of[i] : oldest;
    }
    close_update(shard, rank, oldest);
    return oldest;
}

static void open_update(struct weft_shard *shard, struct shard_update *update, uint32_t clock,
                        uint32_t base)
{
    uint64_t opened = shard->counters.updates_opened, behind = 0;
    if (base != WEFT_RPC_BASE_NONE) {
        uint32_t apart = (uint32_t)(opened - base) & WEFT_RPC_BASE_MASK;
        behind = apart > WEFT_RPC_BASE_MASK / 2 || apart > opened ? 0 : apart;
    }
    *update = (struct shard_update){.live = true, .clock = clock, .base = opened - behind};
    update->late = shard->config.delay_max > 0 && behind > shard->config.delay_max;
    shard->counters.updates_late += update->late;
    shard->counters.updates_opened += !update->late;
    update->number = shard->counters.updates_opened;
}

void weft_shard_update_open(struct weft_shard *shard, struct shard_slot *slot, uint32_t base)
{
    struct shard_update *update = find(shard, slot->worker, slot->clock);
    if (update == NULL) {
        update = take(shard, slot->worker);
        open_update(shard, update, slot->clock, base);
    }
    size_t link = (size_t)slot->table * shard->config.workers_max + slot->worker;
    uint32_t *clock = &shard->updates->clocks[link * 2 + (slot->clock & 1)];
    update->tables += *clock != slot->clock;
    *clock = slot->clock;
    if (update->late) {
        shard_slot_reject(slot, WEFT_RPC_LATE);
    }
}

void weft_shard_update_applied(struct weft_shard *shard, const struct shard_slot *slot,
                               double squares)
{
    struct shard_update *update = find(shard, slot->worker, slot->clock);
    if (update != NULL) {
        update->squares += squares;
    }
}

void weft_shard_update_clock(struct weft_shard *shard, uint16_t table, uint32_t rank,
                             uint32_t finished)
{
    size_t link = (size_t)table * shard->config.workers_max + rank;
    for (int parity = 0; parity < 2; parity++) {
        uint32_t *clock = &shard->updates->clocks[link * 2 + (size_t)parity];
        if (*clock == 0 || *clock > finished) {
            continue;
        }
        struct shard_update *update = find(shard, rank, *clock);
        *clock = 0;
        if (update != NULL && --update->tables == 0) {
            close_update(shard, rank, update);
        }
    }
}

void weft_shard_updates_forget(struct weft_shard *shard, uint32_t rank)
{
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        weft_shard_update_clock(shard, (uint16_t)t, rank, UINT32_MAX);
    }
}

bool weft_shard_take_committed(struct weft_shard *shard, struct weft_shard_committed *committed_p)
{
    struct weft_shard_updates *u = shard->updates;
    if (u->ring_count == 0) {
        return false;
    }
    *committed_p = u->ring[u->ring_head];
    u->ring_head = (u->ring_head + 1) % u->ring_size;
    u->ring_count--;
    return true;
}

uint64_t weft_shard_updates_opened(const struct weft_shard *shard)
{
    return shard->counters.updates_opened;
}
