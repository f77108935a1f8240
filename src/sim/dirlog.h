/* In-memory model of the log of a checkpoint directory, which determines the current writer and the
 * valid checkpoints.
 *
 * Records are numbered consecutively. A record is added under the next number, in the way link(2)
 * creates a name: of two writers, the second finds the name in use, reads that record, and tries
 * the next number. All processes therefore see one order. A process that finds a later claim of its
 * shard by another process knows that it was replaced, independently of clocks and of the
 * coordinator.
 *
 *     CLAIM     from this record on, this process writes the shard's checkpoints
 *     MANIFEST  a checkpoint; valid if its claim is the shard's latest claim before this record
 *     RESTORED  the process has read this checkpoint (0 = none), and newer ones become invalid
 *
 * This models only the rules; src/ckpt implements the file format.
 */
#ifndef WEFT_SIM_DIRLOG_H
#define WEFT_SIM_DIRLOG_H

#include "sim/saved.h"

enum weft_dirlog_kind { WEFT_DIRLOG_CLAIM, WEFT_DIRLOG_MANIFEST, WEFT_DIRLOG_RESTORED };

struct weft_dirlog_record {
    enum weft_dirlog_kind kind;
    uint32_t shard;
    uint32_t claim;          /* serial of the writer's claim; of a CLAIM, its own serial */
    uint64_t number;         /* number of the checkpoint */
    struct weft_saved *data; /* MANIFEST: owned by the log; NULL = pruned */
};

/* Empty if zeroed. Running out of memory ends the process. */
struct weft_dirlog {
    struct weft_dirlog_record *records; /* (room,): serial 1 is the first record */
    uint32_t count;
    uint32_t room;
    /* For tests of the checks: claims of other processes are ignored, as if files were only
     * renamed. */
    bool is_lax;
};

/* The state of a process that reads the log. */
struct weft_dirlog_reader {
    uint32_t shard;
    uint32_t seen;    /* records up to this serial were read */
    uint32_t claim;   /* its own; 0 = none yet */
    bool is_replaced; /* a later process has claimed its shard */
};

enum weft_dirlog_try {
    WEFT_DIRLOG_LINKED,
    WEFT_DIRLOG_TAKEN,    /* another process's record has this serial; it was read; try the next
                           * serial */
    WEFT_DIRLOG_REPLACED, /* the record was a claim of this shard: the process must not write any
                           * more */
};

void weft_dirlog_fini(struct weft_dirlog *log);

/* Try to add a record at the next serial that the process has not read.
 * Owns:    takes data if the result is LINKED. */
enum weft_dirlog_try weft_dirlog_link(struct weft_dirlog *log, struct weft_dirlog_reader *reader,
                                      enum weft_dirlog_kind kind, uint64_t number,
                                      struct weft_saved *data);

/* The manifest that the holder of a claim must restore: the shard's newest valid manifest before
 * the claim; 0 = none. */
uint32_t weft_dirlog_choose(const struct weft_dirlog *log, uint32_t shard, uint32_t claim);

/* Drop the data of the shard's valid checkpoints, except the newest `keep`. */
void weft_dirlog_prune(struct weft_dirlog *log, uint32_t shard, uint32_t keep);

#endif
