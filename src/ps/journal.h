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
 *     while (weft_shard_journal_replay(shard)) give slabs;
 *     after each batch of events:  if (weft_shard_journal_wants(shard)) weft_shard_journal_grow
 *
 * A checkpoint that counts (weft_shard_durable) frees what it holds. When half of the memory is in
 * use the shard asks for a checkpoint (weft_shard_cut_wanted). When three quarters are, it is full: no
 * more is written down until the next cut, and counted. What is there still leads to a state that the
 * shard had, and workers that keep their pushes send again what it lacks; it stays until a checkpoint
 * counts, for the last quarter is for what comes after the next cut. A server that comes back to a full
 * journal goes on with it: it is full again when the first record finds no room, not before.
 *
 * Source: docs/CHECKPOINTS.md, "The journal".
 */
#ifndef WEFT_PS_JOURNAL_H
#define WEFT_PS_JOURNAL_H

#include "ps/shard.h"

struct weft_shard_journal_config {
    void *memory;        /* (bytes_max,), 8-byte aligned; of a new journal all zero */
    uint64_t bytes;      /* of it, that may be touched; more with weft_shard_journal_grow */
    uint64_t bytes_max;  /* both multiples of 4,096, at least 8,192 */
    uint64_t job;        /* names the job: a journal of another one is refused */
    uint64_t checkpoint; /* number of that which was restored; 0 = none */
};

struct weft_shard_journal_report {
    bool used; /* it goes on from the checkpoint; else it was begun anew */
    uint64_t bytes;
    uint64_t records; /* done again */
    uint64_t chunks;  /* of these, of pushes */
    uint64_t refused; /* records that could not be done again: there was no memory for their rows */
};

/* Begin to do again what was done after this checkpoint. A journal that does not know the checkpoint
 * is emptied.
 * Owns:    borrows config->memory until weft_shard_free.
 * Errors:  WEFT_DATA  not a journal, or its head is damaged. WEFT_UNSUPPORTED  of another version.
 *          WEFT_EXISTS  of another job or shard. Of these three the memory is as it was; clear
 *          all of it, the first 4,096 bytes last, to begin anew. WEFT_NOMEM. WEFT_STATE  the shard has no checkpoints. */
weft_status weft_shard_journal_init(struct weft_shard *shard,
                                    const struct weft_shard_journal_config *config);

/* False when all is done; else a slab may be wanted: give it, and call again. To be finished before
 * the first worker connects. */
bool weft_shard_journal_replay(struct weft_shard *shard);

/* After the replay. */
const struct weft_shard_journal_report *weft_shard_journal_report(const struct weft_shard *shard);

/* More of the memory should become touchable; up to so many bytes it is. */
bool weft_shard_journal_wants(const struct weft_shard *shard);
void weft_shard_journal_grow(struct weft_shard *shard, uint64_t bytes);

/* It is full, and what comes is not written down. False without a journal. */
bool weft_shard_journal_is_full(const struct weft_shard *shard);

/* Bytes in use. */
uint64_t weft_shard_journal_used(const struct weft_shard *shard);

#endif
