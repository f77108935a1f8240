/* A directory of checkpoints: find the one to restore, move void ones aside, remove old ones.
 *
 * Three cases are distinguished, because a checkpoint that is not restored may be the only copy. A
 * checkpoint is *incomplete* if a part was never written. This is normal after a crash; it is
 * skipped. It is *damaged* if the bytes read differ from the bytes written, or a file is missing.
 * It is skipped and reported. It is *unreadable* if a call failed, or its format is of a later
 * version. Its content is unknown, so the search ends with an error.
 *
 * Source: docs/CHECKPOINTS.md.
 */
#ifndef WEFT_CKPT_DIRECTORY_H
#define WEFT_CKPT_DIRECTORY_H

#include "ckpt/log.h"

/* A complete checkpoint: the files of each of its shards, oldest first. */
struct weft_ckpt_set {
    uint64_t number; /* 0 = none */
    uint32_t shards;
    bool has_clock; /* false: of an earlier release */
    uint32_t clock; /* at which it was ordered */
    uint32_t file_count;
    struct {
        uint32_t shard;
        struct weft_ckpt_file file;
    } * files; /* ordered by shard; within a shard from the whole file to the last delta */
};

/* Find the newest checkpoint without any damaged byte; set_p->number is 0 if there is none.
 * `complain` is called for each one that is skipped.
 * Errors:  WEFT_IO, WEFT_NOMEM, WEFT_UNSUPPORTED  unreadable: error->text names the file and the
 *          reason. */
weft_status weft_ckpt_find(const char *directory, const struct weft_ckpt_history *history,
                           weft_ckpt_complaint *complain, void *arg, struct weft_ckpt_set *set_p,
                           struct weft_error *error);
void weft_ckpt_set_fini(struct weft_ckpt_set *set);

/* Move void parts to DIR/quarantine: those of this process's shards, and those of another number of
 * shards. The manifest is copied, not moved: the log keeps its record, because the meaning of
 * earlier records depends on it. Remove the files left by killed writers: temporary files, and data
 * files of replaced claims that no manifest names. While a record of the log is damaged it may have
 * named them, so they are moved, too. Call after weft_ckpt_log_restored.
 * Errors:  WEFT_IO, WEFT_NOMEM: a file stays where it was, which does no harm. */
weft_status weft_ckpt_set_aside(const char *directory, struct weft_ckpt_log *log,
                                weft_ckpt_complaint *tell, void *arg, struct weft_error *error);

/* Remove the data files of a manifest that weft_ckpt_log_commit rejected with WEFT_STATE. Their
 * names are unique to this process, and nothing refers to them. Errors: WEFT_IO. */
weft_status weft_ckpt_discard(const char *directory, const struct weft_ckpt_manifest *manifest,
                              struct weft_error *error);

/* Keep the newest `keep` >= 1 complete checkpoints, the parts that their deltas are based on, and
 * everything newer; remove the others. Call only after this process's own manifest was added.
 * Errors:  WEFT_STATE  this process was replaced meanwhile. WEFT_IO, WEFT_NOMEM: some files were
 *          not removed. No complete checkpoint that must be kept is lost. */
weft_status weft_ckpt_prune(const char *directory, struct weft_ckpt_log *log, uint32_t keep,
                            struct weft_error *error);

#endif
