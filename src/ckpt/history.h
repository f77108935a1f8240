/* What the records of a checkpoint directory's log mean together: who may write, which parts of
 * checkpoints are valid, which checkpoints count.
 *
 * Records come in the order of their serial numbers, and every process that has read the same ones has
 * the same history. So the order of two events at different processes is never a question of clocks:
 *
 *  - A claim replaces each earlier one that has a shard of it, or is of another number of shards. What
 *    a replaced process writes later is not valid.
 *  - A claim also settles what its predecessors wrote: checkpoints that count by then stay; newer parts
 *    of the claim's shards are void, or a later part of another server could complete a checkpoint that
 *    the claim's process has not restored.
 *  - A restored record says which checkpoint was read. Newer parts of its shards are void, and so are
 *    all parts of newer checkpoints that counted: one of their files is damaged.
 *  - A checkpoint counts when valid manifests of one number have each shard of the job once, and what
 *    they are based on is valid, too.
 *
 * Pure: no file is read here. The simulator has the same rules (sim/dirlog.h).
 *
 * Thread:  one at a time.
 *
 * Source: docs/CHECKPOINTS.md, "Who may write".
 */
#ifndef WEFT_CKPT_HISTORY_H
#define WEFT_CKPT_HISTORY_H

#include "ckpt/record.h"

struct weft_ckpt_holder {
    uint64_t serial;
    struct weft_ckpt_claim claim;
    uint64_t replaced_by; /* serial of the claim that did; 0 = it is current */
    bool restored;        /* and began to serve */
    bool journal;         /* restored: it keeps journals */
    uint64_t number;      /* restored: that checkpoint; 0 = it began empty */
    bool has_written;     /* a manifest, since */
};

struct weft_ckpt_part {
    uint64_t serial; /* 0 = a file of version 1 */
    bool is_void;
    struct weft_ckpt_manifest manifest;
};

struct weft_ckpt_history {
    struct weft_ckpt_holder *holders; /* by serial */
    size_t holder_count;
    struct weft_ckpt_part *parts; /* in the order in which they came */
    size_t part_count;
};

/* An empty history is all zero. */
void weft_ckpt_history_fini(struct weft_ckpt_history *history);

/* The next record. A manifest of claim 0 is of version 1 and comes before all others.
 * Owns:    takes record->manifest, also after an error.
 * Errors:  WEFT_NOMEM. WEFT_DATA  restored by a claim that is not there: passed over. */
weft_status weft_ckpt_history_add(struct weft_ckpt_history *history, uint64_t serial,
                                  struct weft_ckpt_record *record);

/* Drop the part at this place of history->parts; those behind it move up. */
void weft_ckpt_history_forget(struct weft_ckpt_history *history, size_t place);

/* NULL when there is no such claim. */
const struct weft_ckpt_holder *weft_ckpt_history_holder(const struct weft_ckpt_history *history,
                                                        uint64_t serial);

/* The newest checkpoint below this number that counts; 0 = none. */
uint64_t weft_ckpt_history_newest(const struct weft_ckpt_history *history, uint64_t below);

/* The newest number below this one of which there is a valid part; 0 = none. */
uint64_t weft_ckpt_history_newest_part(const struct weft_ckpt_history *history, uint64_t below);

/* The parts of a checkpoint that counts, in the order of their shards. 0: it does not count.
 * Shape:   places (WEFT_CKPT_SHARDS_MAX,): indices of history->parts. */
uint32_t weft_ckpt_history_complete(const struct weft_ckpt_history *history, uint64_t number,
                                    uint32_t *places);

/* Is the part of this number that the process of this claim wrote there, and valid? */
bool weft_ckpt_history_has(const struct weft_ckpt_history *history, uint64_t claim,
                           uint64_t number);

/* The valid part of this number that has just the shards of `like`; NULL when there is none. */
const struct weft_ckpt_part *weft_ckpt_history_beside(const struct weft_ckpt_history *history,
                                                      const struct weft_ckpt_manifest *like,
                                                      uint64_t number);

/* The last claim before `before` whose process began to serve this shard; NULL = none. It has, or had,
 * what came after the checkpoint that it restored. */
const struct weft_ckpt_holder *weft_ckpt_history_former(const struct weft_ckpt_history *history,
                                                        uint64_t before, uint32_t shard,
                                                        uint32_t shards);

/* A claim of this serial or a later one to a shard of `claim`; NULL = none. */
const struct weft_ckpt_holder *weft_ckpt_history_overtaken(const struct weft_ckpt_history *history,
                                                           const struct weft_ckpt_claim *claim,
                                                           uint64_t since);

/* A server that serves, or served last, from another checkpoint than `number` and has written nothing
 * since: beside it a server that restores `number` would make a mixture. NULL = none. */
const struct weft_ckpt_holder *weft_ckpt_history_mixture(const struct weft_ckpt_history *history,
                                                         const struct weft_ckpt_holder *mine,
                                                         uint64_t number);

#endif
