/* The log of a directory of checkpoints, in memory: who may write, and which checkpoints count.
 *
 * Its records are numbered without a gap, and a record takes the next number as link(2) takes a name:
 * whoever comes second finds it taken, reads that record, and tries the next. So all processes see one
 * order, and one that finds a claim of its shard by a later process knows that it was replaced, whatever
 * its clock and the coordinator say.
 *
 *     CLAIM     from here on this process writes the shard's checkpoints
 *     MANIFEST  a checkpoint; it counts if its claim was the shard's last one at this place
 *     RESTORED  the process has read this checkpoint (0 = none), and the newer ones do not count any more
 *
 * A model of the rules alone: what a file is made of is src/ckpt's.
 */
#ifndef WEFT_SIM_DIRLOG_H
#define WEFT_SIM_DIRLOG_H

#include "sim/saved.h"

enum weft_dirlog_kind { WEFT_DIRLOG_CLAIM, WEFT_DIRLOG_MANIFEST, WEFT_DIRLOG_RESTORED };

struct weft_dirlog_record {
    enum weft_dirlog_kind kind;
    uint32_t shard;
    uint32_t claim;          /* serial of the writer's claim; of a CLAIM its own */
    uint64_t number;         /* of the checkpoint */
    struct weft_saved *data; /* MANIFEST: owned by the log; NULL = pruned */
};

/* Zeroed = empty. Lack of memory ends the process. */
struct weft_dirlog {
    struct weft_dirlog_record *records; /* (room,): serial 1 is the first */
    uint32_t count;
    uint32_t room;
    /* For tests of the tests: nobody looks at the claims of others, as where a file is only renamed. */
    bool is_lax;
};

/* How far a process has read, and what it found. */
struct weft_dirlog_reader {
    uint32_t shard;
    uint32_t seen;    /* records up to this serial */
    uint32_t claim;   /* its own; 0 = none yet */
    bool is_replaced; /* a later process has claimed its shard */
};

enum weft_dirlog_try {
    WEFT_DIRLOG_LINKED,
    WEFT_DIRLOG_TAKEN,    /* somebody else's record has this serial: it was read; try the next */
    WEFT_DIRLOG_REPLACED, /* that one was a claim of this shard: nothing may be written any more */
};

void weft_dirlog_fini(struct weft_dirlog *log);

/* Try to put a record at the next serial that the process has not seen.
 * Owns:    takes data when LINKED. */
enum weft_dirlog_try weft_dirlog_link(struct weft_dirlog *log, struct weft_dirlog_reader *reader,
                                      enum weft_dirlog_kind kind, uint64_t number,
                                      struct weft_saved *data);

/* What the holder of a claim has to restore: the shard's newest manifest before it that counts; 0 =
 * none. */
uint32_t weft_dirlog_choose(const struct weft_dirlog *log, uint32_t shard, uint32_t claim);

/* Drop the data of the shard's checkpoints that count, all but the newest `keep`. */
void weft_dirlog_prune(struct weft_dirlog *log, uint32_t shard, uint32_t keep);

#endif
