/* The combined meaning of the records of a checkpoint directory's log: which process may write,
 * which parts of checkpoints are valid, which checkpoints are complete.
 *
 * Records are added in the order of their serial numbers, and every process that has read the same
 * records has the same history. So the order of two events in different processes never depends on
 * clocks:
 *
 *  - A claim replaces each earlier claim that has one of its shards, or has another number of
 *    shards. Parts that a replaced process writes later are invalid.
 *  - A claim also fixes the state of its predecessors: checkpoints that are complete by then stay.
 *    Newer parts of the claim's shards are void. Otherwise a later part of another server could
 *    complete a checkpoint that the claim's process has not restored.
 *  - A restored record names the checkpoint that was read. Newer parts of its shards are void, and
 *    so are all parts of newer complete checkpoints: one of their files is damaged.
 *  - A checkpoint is complete when valid manifests of one number contain each shard of the job
 *    exactly once, and the parts that they are based on are valid, too.
 *
 * Pure: no file is read here. The simulator has the same rules (sim/dirlog.h).
 *
 * Thread:  one at a time.
 *
 * Source: docs/CHECKPOINTS.md, "Who may write".
 */
#ifndef WEFT_CKPT_HISTORY_H
#define WEFT_CKPT_HISTORY_H

#include "ckpt/log_record.h"

struct weft_ckpt_holder {
    uint64_t serial;
    struct weft_ckpt_claim claim;
    uint64_t replaced_by; /* serial of the claim that replaced it; 0 = it is current */
    bool restored;        /* it has restored and started to serve */
    bool journal;         /* if restored: it writes journals */
    uint64_t number;      /* if restored: the checkpoint; 0 = it started empty */
    bool has_written;     /* a manifest was written after the restore */
};

struct weft_ckpt_part {
    uint64_t serial; /* 0 = a file of version 1 */
    bool is_void;
    struct weft_ckpt_manifest manifest;
};

struct weft_ckpt_history {
    struct weft_ckpt_holder *holders; /* by serial */
    size_t holder_count;
    struct weft_ckpt_part *parts; /* in the order of arrival */
    size_t part_count;
};

/* An empty history is all zero. */
void weft_ckpt_history_fini(struct weft_ckpt_history *history);

/* Add the next record. A manifest of claim 0 is of version 1 and precedes all others.
 * Owns:    takes record->manifest, also after an error.
 * Errors:  WEFT_NOMEM. WEFT_DATA  a restored record of an unknown claim: skipped. */
weft_status weft_ckpt_history_add(struct weft_ckpt_history *history, uint64_t serial,
                                  struct weft_ckpt_record *record);

/* Remove the part at this index of history->parts; later parts move down by one index. */
void weft_ckpt_history_forget(struct weft_ckpt_history *history, size_t place);

/* NULL if there is no such claim. */
const struct weft_ckpt_holder *weft_ckpt_history_holder(const struct weft_ckpt_history *history,
                                                        uint64_t serial);

/* The newest complete checkpoint below this number; 0 = none. */
uint64_t weft_ckpt_history_newest(const struct weft_ckpt_history *history, uint64_t below);

/* The newest number below this one that has a valid part; 0 = none. */
uint64_t weft_ckpt_history_newest_part(const struct weft_ckpt_history *history, uint64_t below);

/* The parts of a complete checkpoint, in the order of their shards. 0: it is not complete.
 * Shape:   places (WEFT_CKPT_SHARDS_MAX,): indices of history->parts. */
uint32_t weft_ckpt_history_complete(const struct weft_ckpt_history *history, uint64_t number,
                                    uint32_t *places);

/* True if this claim's process wrote a part with this number and the part is valid. */
bool weft_ckpt_history_has(const struct weft_ckpt_history *history, uint64_t claim,
                           uint64_t number);

/* The valid part of this number with exactly the shards of `like`; NULL if there is none. */
const struct weft_ckpt_part *weft_ckpt_history_beside(const struct weft_ckpt_history *history,
                                                      const struct weft_ckpt_manifest *like,
                                                      uint64_t number);

/* The last claim before `before` whose process started to serve this shard; NULL = none. That
 * process has, or had, the updates made after the checkpoint that it restored. */
const struct weft_ckpt_holder *weft_ckpt_history_former(const struct weft_ckpt_history *history,
                                                        uint64_t before, uint32_t shard,
                                                        uint32_t shards);

/* A claim with this serial or a later one to a shard of `claim`; NULL = none. */
const struct weft_ckpt_holder *weft_ckpt_history_overtaken(const struct weft_ckpt_history *history,
                                                           const struct weft_ckpt_claim *claim,
                                                           uint64_t since);

/* A server that serves, or served last, from another checkpoint than `number` and has written
 * nothing since. A server that restores `number` next to it would give the job an inconsistent
 * state. NULL = none. */
const struct weft_ckpt_holder *weft_ckpt_history_mixture(const struct weft_ckpt_history *history,
                                                         const struct weft_ckpt_holder *mine,
                                                         uint64_t number);

#endif
