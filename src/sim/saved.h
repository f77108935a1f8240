/* A checkpoint of one shard, kept in memory, from which a server that dies in the simulator is
 * restored. Complete checkpoints only; src/ckpt implements deltas and files. */
#ifndef WEFT_SIM_SAVED_H
#define WEFT_SIM_SAVED_H

#include "ps/snapshot.h"

struct weft_saved_table {
    bool present;
    struct weft_table_spec spec;
    uint32_t *clocks;                /* (workers_max,) */
    struct weft_push_window *pushes; /* (workers_max,) */
    uint8_t *records;
    uint32_t count;
    uint32_t record_bytes;
};

struct weft_saved {
    bool present;     /* a checkpoint exists */
    bool begun;       /* a cut is in progress */
    uint64_t number;  /* of the checkpoint; 0 = none */
    uint64_t ordered; /* order number of the last cut that was begun */
    uint32_t tables_max;
    uint32_t workers_max;
    struct weft_saved_table *tables;
    uint64_t *incarnations;
    struct weft_retired *retired;
    struct weft_cut_partial *partials;
    uint32_t partial_count;
    void *cow_memory;
};

/* Running out of memory ends the process, here and below. */
void weft_saved_init(struct weft_saved *saved, uint32_t tables_max, uint32_t workers_max);
void weft_saved_fini(struct weft_saved *saved);

/* Start a cut, which is taken as soon as the tables allow. No effect while a cut is in progress. */
void weft_saved_begin(struct weft_saved *saved, struct weft_shard *shard);

/* Call after each batch of events. Returns true when the cut is complete and has replaced the
 * previous one. */
bool weft_saved_poll(struct weft_saved *saved, struct weft_shard *shard);

/* The same, but the shard is not yet told whether the checkpoint is valid: call weft_shard_cut_end
 * after this has returned true. */
bool weft_saved_take(struct weft_saved *saved, struct weft_shard *shard);

/* Restore into a shard without connections. No effect if there is no checkpoint. A cut in progress
 * is discarded. */
void weft_saved_restore(struct weft_saved *saved, struct weft_shard *shard);

#endif
