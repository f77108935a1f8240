/* The data file of a checkpoint: a shard's snapshot as tensors, and back.
 *
 *     table.T.ids u64 (n), .clock u32 (n), .count u32 (n), .weights f32 (n, dim), .state f32 (n, k)
 *     table.T.worker_clocks u32 (W)
 *     table.T.pushes u64 (W, 18)    struct weft_push_window of each rank
 *     table.T.removed u64 (r)       ids removed since the checkpoint that a delta is based on
 *     table.T.waiting_ids u64 (w), .waiting_counts u32 (w); or table.T.waiting_filter u8 (c)
 *                                   admission counts; absent if there are none
 *     workers.incarnations u64 (W)
 *     workers.retired u64 (W, 17)   struct weft_retired of each rank
 *     partials.head u64 (p, 5), partials.mask u64 (p, m)
 *                                   pushes of which some chunks are applied
 *
 * T is the table's number. docs/CHECKPOINTS.md describes the format for readers in other languages.
 */
#ifndef WEFT_NODE_CHECKPOINT_DATA_H
#define WEFT_NODE_CHECKPOINT_DATA_H

#include "ckpt/directory.h"
#include "ps/snapshot.h"

struct weft_checkpoint_table {
    uint32_t ids; /* number of the tensor; .clock, .count, .weights, .state follow */
    uint32_t dim;
    uint32_t state_floats;
    uint32_t record_bytes;
};

/* One data file being written. Thread: the writer's. */
struct weft_checkpoint_file {
    struct weft_ckpt_writer *writer;
    struct weft_checkpoint_table *tables; /* (tables_max,) */
    uint8_t *columns;                     /* scratch of one batch of records */
    size_t columns_bytes;
};

struct weft_checkpoint_place {
    const char *directory;
    uint64_t number;
    uint64_t base;  /* 0 = whole */
    uint64_t claim; /* of this process */
    uint64_t cut;   /* of the order (ps/snapshot.h) */
    uint32_t shard;
    uint32_t shards;
};

/* True: a table of this cut replaces that of its base. Readers of earlier versions would keep the
 * base's rows, so the manifest is of a version that they refuse. */
bool weft_checkpoint_replaces(const struct weft_cut_view *view);

/* Shape:   batches of rows will have at most batch_bytes.
 * Owns:    borrows view until return.
 * Errors:  those of weft_ckpt_writer_open. */
weft_status weft_checkpoint_file_open(struct weft_checkpoint_file *file,
                                      const struct weft_checkpoint_place *place,
                                      const struct weft_cut_view *view, size_t batch_bytes,
                                      struct weft_error *error);
/* Shape: records as returned by weft_shard_cut_take. */
weft_status weft_checkpoint_file_rows(struct weft_checkpoint_file *file, uint16_t table,
                                      const uint8_t *records, uint32_t count,
                                      struct weft_error *error);
weft_status weft_checkpoint_file_close(struct weft_checkpoint_file *file,
                                       struct weft_ckpt_file *file_p, struct weft_error *error);
/* A zeroed file is allowed. */
void weft_checkpoint_file_abandon(struct weft_checkpoint_file *file);

/* Called when the shard needs slabs. */
typedef void weft_checkpoint_supply(struct weft_shard *shard);

/* The clock at which a checkpoint was ordered. Every server of the job finds the same one.
 * Checkpoints of earlier releases do not have it: then the latest clock that no part contradicts.
 * Errors:  WEFT_DATA, WEFT_IO, WEFT_NOMEM  the files. */
weft_status weft_checkpoint_ordered(const char *directory, const struct weft_ckpt_set *set,
                                    uint32_t *clock_p, struct weft_error *error);

/* Load the part of a checkpoint that is shard `shard` of `shards`, into a shard without
 * connections. *cut_p: the cut of the order; 0 = unknown, or of another number of shards.
 * Errors:  WEFT_DATA, WEFT_IO  the files. WEFT_NOMEM, WEFT_INVALID  it does not fit this shard. */
weft_status weft_checkpoint_load(const char *directory, const struct weft_ckpt_set *set,
                                 struct weft_shard *shard, uint32_t number, uint32_t shards,
                                 uint32_t workers_max, weft_checkpoint_supply *supply,
                                 uint64_t *cut_p, struct weft_error *error);

#endif
