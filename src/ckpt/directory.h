/* A directory of checkpoints: find what is to be restored, set aside what is void, remove what is old.
 *
 * Three cases are told apart, for what is not restored may be somebody's only copy. A checkpoint is
 * *incomplete* when a part was never written, which is normal after a crash: it is passed over.
 * *Damaged*: bytes that were read without an error are not those that were written, or a file is not
 * there: passed over, and said. *Unreadable*: a call has failed, or the format is of a later version:
 * nobody knows what is there, so the search ends with an error.
 *
 * Source: docs/CHECKPOINTS.md.
 */
#ifndef WEFT_CKPT_DIRECTORY_H
#define WEFT_CKPT_DIRECTORY_H

#include "ckpt/log.h"

/* A checkpoint that was found whole: the files of each of its shards, oldest first. */
struct weft_ckpt_set {
    uint64_t number; /* 0 = there is none */
    uint32_t shards;
    uint32_t file_count;
    struct {
        uint32_t shard;
        struct weft_ckpt_file file;
    } *files; /* shard by shard, in each from the whole one to the last delta */
};

/* Find the newest checkpoint of which every byte is good; set_p->number is 0 when there is none.
 * Complaints name each one that is passed over.
 * Errors:  WEFT_IO, WEFT_NOMEM, WEFT_UNSUPPORTED  unreadable: error->text says what, and why. */
weft_status weft_ckpt_find(const char *directory, const struct weft_ckpt_history *history,
                           weft_ckpt_complaint *complain, void *arg, struct weft_ckpt_set *set_p,
                           struct weft_error *error);
void weft_ckpt_set_fini(struct weft_ckpt_set *set);

/* Move what is void of the shards of this process's claim, and of another number of shards, to
 * DIR/quarantine, with a copy of its manifest: the record stays, for what earlier records mean depends
 * on it. Remove what killed writers left: temporary files, and data files of replaced claims that no
 * manifest names (while a record of the log is damaged, it may have named them: they are moved, too).
 * After weft_ckpt_log_restored.
 * Errors:  WEFT_IO, WEFT_NOMEM: something stays where it was, which does no harm. */
weft_status weft_ckpt_set_aside(const char *directory, struct weft_ckpt_log *log,
                                weft_ckpt_complaint *tell, void *arg, struct weft_error *error);

/* Remove the data files of a manifest that weft_ckpt_log_commit refused with WEFT_STATE: their names are
 * this process's alone, and nothing points to them. Errors: WEFT_IO. */
weft_status weft_ckpt_discard(const char *directory, const struct weft_ckpt_manifest *manifest,
                              struct weft_error *error);

/* Keep the newest `keep` >= 1 checkpoints that count, what their deltas are based on, and what is
 * newer; remove the rest. Only after this process's own manifest has been added.
 * Errors: WEFT_STATE  this process was replaced meanwhile. WEFT_IO, WEFT_NOMEM: something is left over.
 *         Nothing that counts is gone. */
weft_status weft_ckpt_prune(const char *directory, struct weft_ckpt_log *log, uint32_t keep,
                            struct weft_error *error);

#endif
