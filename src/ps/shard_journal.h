/* The journal of a shard: a log of all changes since its newest checkpoint, in memory that outlives
 * the process. A server that was killed restores the checkpoint and replays the journal. It is then
 * in the state of the dead process: no worker has to resend anything, and it does not matter
 * whether the senders are still alive.
 *
 * A record is written for each change to a table or a window: each applied chunk of a push, chunks
 * that were refused for lack of room after they had changed something, ends of pushes, CLOCKs,
 * TABLEs, and ranks that got a new process or left. Records are written before the shard sends any
 * reply. Replayed in the same order, they produce the same tables, bit for bit. Changes by pulls
 * (when an LRU row was last used) are not recorded; nor are the positions of rows in memory. Both
 * determine which row is evicted, so a record has the ids that its chunk evicted.
 *
 *     weft_shard_new; restore the checkpoint; weft_shard_journal_init; while
 *     (weft_shard_journal_replay(shard)) add slabs, and memory if weft_shard_journal_stalls; after
 *     each batch of events:  if (weft_shard_journal_wants(shard)) weft_shard_journal_grow
 *
 * A process writes a journal of its own, and only reads that of the previous process. Replayed
 * records are copied: when the replay is done, the new journal contains all records of the old one
 * after the checkpoint. Only then may the old one be deleted.
 *
 * A valid checkpoint (weft_shard_durable) frees the records that it covers. When half of the memory
 * is in use, the shard requests a checkpoint (weft_shard_cut_wanted). When three quarters are in
 * use, the journal is full: until the next cut nothing more is written, and this is counted. The
 * existing records still lead to an earlier state of the shard, and workers that keep their pushes
 * resend the rest. These records stay until a checkpoint is valid; the last quarter is reserved for
 * records after the next cut. A server that restarts with a full journal continues with a copy,
 * which is full once a record does not fit.
 *
 * Source: docs/CHECKPOINTS.md, "The journal".
 */
#ifndef WEFT_PS_SHARD_JOURNAL_H
#define WEFT_PS_SHARD_JOURNAL_H

#include "ps/shard.h"

struct weft_shard_journal_config {
    void *memory;          /* (bytes_max,), 8-byte aligned, all zero: of this process */
    uint64_t bytes;        /* usable bytes of it; more with weft_shard_journal_grow */
    uint64_t bytes_max;    /* both multiples of 4,096, at least 8,192 */
    uint64_t job;          /* identifies the job: the journal of another job is refused */
    uint64_t checkpoint;   /* number of the restored checkpoint; 0 = none */
    uint64_t cut;          /* of its order; 0 = unknown: the last of this number is used */
    uint64_t lineage;      /* any number but 0; used unless the journal is copied from one that has
                            * a lineage (weft_shard_journal_lineage) */
    const void *source;    /* (source_bytes,), 8-byte aligned: journal of the previous process; NULL
                            * = none */
    uint64_t source_bytes; /* multiple of 32, at least 8,192 */
};

struct weft_shard_journal_report {
    bool used;           /* the source continues from the checkpoint, and was replayed */
    bool damaged;        /* it ends before its writer's last position */
    bool end_unknown;    /* damaged: that position, and the loss, are unknown */
    uint64_t lost_bytes; /* between the two */
    uint64_t lost_records;
    uint64_t unused_records; /* intact records that continue from a checkpoint that was not
                              * restored */
    uint64_t bytes;          /* copied */
    uint64_t records;        /* replayed */
    uint64_t chunks;         /* of these, chunks of pushes */
    uint64_t refused;        /* records not replayed for lack of memory for their rows */
};

/* Begin the replay of the records after this checkpoint. A source that does not continue from it is
 * ignored, and an empty journal is started.
 * Owns:    borrows config->memory until weft_shard_free, config->source until the replay is done.
 * Errors:  WEFT_DATA  the source is not a journal, or its head is damaged. WEFT_UNSUPPORTED  of
 *          another version. WEFT_EXISTS  of another job or shard. WEFT_INVALID  bytes_max is too
 *          small for what must be copied. WEFT_NOMEM. WEFT_STATE  the shard has no checkpoints.
 *          After an error nothing was written, and it may be called again, for instance without a
 *          source. */
weft_status weft_shard_journal_init(struct weft_shard *shard,
                                    const struct weft_shard_journal_config *config);

/* Replay some records. False: the replay is done. Otherwise add all slabs or more memory, if
 * requested, and call again. A record that needs more rows than there is room for is refused only
 * if no slab was added. Finish the replay before the first worker connects. */
bool weft_shard_journal_replay(struct weft_shard *shard);

/* True: the replay cannot continue before weft_shard_journal_grow. */
bool weft_shard_journal_stalls(const struct weft_shard *shard);

/* After the replay. */
const struct weft_shard_journal_report *weft_shard_journal_report(const struct weft_shard *shard);

/* The lineage in the first 4,096 bytes of a journal's memory; false: none. */
bool weft_shard_journal_lineage(const void *head, uint64_t *lineage_p);

/* wants: more of the memory should be made usable; grow: it is now usable up to `bytes`. */
bool weft_shard_journal_wants(const struct weft_shard *shard);
void weft_shard_journal_grow(struct weft_shard *shard, uint64_t bytes);

/* The memory is no longer reliable: nothing more is written, and the journal ends at its current
 * position. Counted. */
void weft_shard_journal_fail(struct weft_shard *shard);

/* Counters that change when a record is written (changes), and when room is freed (frees). */
uint64_t weft_shard_journal_changes(const struct weft_shard *shard);
uint64_t weft_shard_journal_frees(const struct weft_shard *shard);

/* True: it is full, and new records are not written. False without a journal. */
bool weft_shard_journal_is_full(const struct weft_shard *shard);

/* Bytes in use. */
uint64_t weft_shard_journal_used(const struct weft_shard *shard);

#endif
