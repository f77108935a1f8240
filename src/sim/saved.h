/* A checkpoint of one shard, kept in memory: what a server that dies in the simulator comes back
 * from. Whole checkpoints only; deltas and files are src/ckpt's.
 */
#ifndef WEFT_SIM_SAVED_H
#define WEFT_SIM_SAVED_H

#include "ps/snapshot.h"

struct weft_saved_table {
    bool present;
    struct weft_table_spec spec;
    uint32_t *clocks;         /* (workers_max,) */
    struct weft_once *pushes; /* (workers_max,) */
    uint8_t *records;
    uint32_t count;
    uint32_t record_bytes;
};

struct weft_saved {
    bool present;     /* there is a checkpoint */
    bool begun;       /* a cut is under way */
    uint64_t number;  /* of the checkpoint; 0 = none */
    uint64_t ordered; /* of the last cut that was begun */
    uint32_t tables_max;
    uint32_t workers_max;
    struct weft_saved_table *tables;
    uint64_t *incarnations;
    struct weft_retired *retired;
    struct weft_cut_partial *partials;
    uint32_t partial_count;
    void *spill;
};

/* Lack of memory ends the process, here and below. */
void weft_saved_init(struct weft_saved *saved, uint32_t tables_max, uint32_t workers_max);
void weft_saved_fini(struct weft_saved *saved);

/* Cut as soon as its tables allow. Nothing happens while a cut is under way. */
void weft_saved_begin(struct weft_saved *saved, struct weft_shard *shard);

/* After each batch of events. True when the cut is complete: it has taken the place of the one
 * before. */
bool weft_saved_poll(struct weft_saved *saved, struct weft_shard *shard);

/* The same, but the shard does not hear yet whether the checkpoint counts: weft_shard_cut_end is due when
 * this has returned true. */
bool weft_saved_take(struct weft_saved *saved, struct weft_shard *shard);

/* Into a shard that nobody has connected to; nothing where there is no checkpoint. A cut that was
 * under way is forgotten. */
void weft_saved_restore(struct weft_saved *saved, struct weft_shard *shard);

#endif
