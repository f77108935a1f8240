/* The journal of a shard: what was done to it since its newest checkpoint, in memory that outlives
 * the process. A server that is killed comes back from the checkpoint, does all of it again, and is
 * where the dead one was: no worker has to send anything twice, and whether those that sent it still
 * live does not matter.
 *
 * Written down is what changes a table or a window: each chunk of a push that was applied, ends of
 * pushes, CLOCKs, TABLEs, and the ranks that came as another process or went. All of it is there
 * before any answer leaves the shard. Done again in the same order it makes the same tables, bit for
 * bit; what pulls change (when an LRU row was last used) is not in it.
 *
 *     weft_shard_new; restore the checkpoint; weft_shard_journal_init;
 *     while (weft_shard_journal_replay(shard)) give slabs, and memory if weft_shard_journal_stalls;
 *     after each batch of events:  if (weft_shard_journal_wants(shard)) weft_shard_journal_grow
 *
 * A process writes into memory of its own, and only reads that of the process before it. What it does
 * again it copies: when the replay is done its own journal holds all that the other one held behind
 * the checkpoint. The other one may be given up then, not earlier.
 *
 * A checkpoint that counts (weft_shard_durable) frees what it holds. When half of the memory is in
 * use the shard asks for a checkpoint (weft_shard_cut_wanted). When three quarters are, it is full: no
 * more is written down until the next cut, and counted. What is there still leads to a state that the
 * shard had, and workers that keep their pushes send again what it lacks; it stays until a checkpoint
 * counts, for the last quarter is for what comes after the next cut. A server that comes back to a full
 * journal goes on with a copy: that is full when the first record finds no room, not before.
 *
 * Source: docs/CHECKPOINTS.md, "The journal".
 */
#ifndef WEFT_PS_SHARD_JOURNAL_H
#define WEFT_PS_SHARD_JOURNAL_H

#include "ps/shard.h"

struct weft_shard_journal_config {
    void *memory;          /* (bytes_max,), 8-byte aligned, all zero: this process's own */
    uint64_t bytes;        /* of it, that may be touched; more with weft_shard_journal_grow */
    uint64_t bytes_max;    /* both multiples of 4,096, at least 8,192 */
    uint64_t job;          /* names the job: a journal of another one is refused */
    uint64_t checkpoint;   /* number of that which was restored; 0 = none */
    uint64_t lineage;      /* any number, for a journal that is not copied from one that has its own
                            * (weft_shard_journal_lineage); not 0 */
    const void *source;    /* (source_bytes,), 8-byte aligned: of the process before; NULL = none */
    uint64_t source_bytes; /* multiple of 32, at least 8,192 */
};

struct weft_shard_journal_report {
    bool used;               /* the source leads on from the checkpoint, and was done again */
    bool damaged;            /* it ends before the place where its writer was */
    bool end_unknown;        /* damaged: where that was is not known, nor what is lost */
    uint64_t lost_bytes;     /* between the two */
    uint64_t lost_records;
    uint64_t unused_records; /* whole; they lead on from a checkpoint that was not restored */
    uint64_t bytes;          /* copied */
    uint64_t records;        /* done again */
    uint64_t chunks;         /* of these, of pushes */
    uint64_t refused;        /* could not be done again: there was no memory for their rows */
};

/* Begin to do again what was done after this checkpoint. A source that does not lead on from it is
 * left alone, and a journal begun.
 * Owns:    borrows config->memory until weft_shard_free, config->source until the replay is done.
 * Errors:  WEFT_DATA  the source is not a journal, or its head is damaged. WEFT_UNSUPPORTED  of another
 *          version. WEFT_EXISTS  of another job or shard. WEFT_INVALID  bytes_max is too small for what
 *          must be copied. WEFT_NOMEM. WEFT_STATE  the shard has no checkpoints. After each of them
 *          nothing was written, and it may be called again, without a source for instance. */
weft_status weft_shard_journal_init(struct weft_shard *shard,
                                    const struct weft_shard_journal_config *config);

/* False when all is done; else a slab or more memory may be wanted: give it, and call again. To be
 * finished before the first worker connects. */
bool weft_shard_journal_replay(struct weft_shard *shard);

/* The replay cannot go on before more memory may be touched. */
bool weft_shard_journal_stalls(const struct weft_shard *shard);

/* After the replay. */
const struct weft_shard_journal_report *weft_shard_journal_report(const struct weft_shard *shard);

/* The lineage in the first 4,096 bytes of a journal's memory; false: there is none. */
bool weft_shard_journal_lineage(const void *head, uint64_t *lineage_p);

/* More of the memory should become touchable; up to so many bytes it is. */
bool weft_shard_journal_wants(const struct weft_shard *shard);
void weft_shard_journal_grow(struct weft_shard *shard, uint64_t bytes);

/* The memory cannot be relied on any more: nothing is written from here on, and what is there ends
 * where it was. Counted. */
void weft_shard_journal_fail(struct weft_shard *shard);

/* Each differs from what it was when, since then: anything was written; room was freed. */
uint64_t weft_shard_journal_changes(const struct weft_shard *shard);
uint64_t weft_shard_journal_frees(const struct weft_shard *shard);

/* It is full, and what comes is not written down. False without a journal. */
bool weft_shard_journal_is_full(const struct weft_shard *shard);

/* Bytes in use. */
uint64_t weft_shard_journal_used(const struct weft_shard *shard);

#endif
