/* Snapshot state of a shard, shared by snapshot.c, restore.c, members.c and those shard*.c files
 * that cut or report checkpoints. Internal to these files. */
#ifndef WEFT_PS_SNAPSHOT_INTERNAL_H
#define WEFT_PS_SNAPSHOT_INTERNAL_H

#include "ps/shard_internal.h"
#include "ps/snapshot.h"
#include "ps/dirty_set.h"

struct weft_snapshot {
    enum weft_cut_state state;
    enum weft_cut_why why;
    struct weft_cut_order order;
    bool begun; /* the first table is cut */
    struct weft_cow_buffer cow;
    struct weft_cut_view view;
    struct weft_dirty_set *dirty_sets; /* (tables_max,) */
    uint64_t *masks;                   /* of view.partials */
    size_t mask_words;
    uint64_t *kept;              /* (tables_max, workers_max): pushes up to this number are in the
                                  * last cut that was kept */
    uint64_t *kept_incarnations; /* (workers_max,): of those */
};

/* shard.c creates and frees it with the shard; all memory is allocated here. Errors: WEFT_NOMEM. */
weft_status weft_snapshot_init(struct weft_shard *shard);
void weft_snapshot_fini(struct weft_shard *shard);

/* The slowest worker of `table` has finished a clock, and its rows are stepped. */
void weft_snapshot_boundary(struct weft_shard *shard, uint16_t table);

/* A new process has this rank. Before any clock can advance. */
void weft_snapshot_renewed(struct weft_shard *shard, uint32_t rank);

#endif
