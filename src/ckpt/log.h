/* The log of a checkpoint directory: which process may write into it, and what was written, in one
 * order on which all processes agree.
 *
 *     DIR/log/000000000001, 000000000002, ...      records (ckpt/log_record.h)
 *
 * A record is written to a temporary file with a unique name and synchronised. Then link(2) gives
 * it the next serial number, and fails if that name exists. In this case the process first reads
 * the existing record: no process can add a record without having read all earlier ones. So a
 * process that was suspended at any instruction, and was replaced meanwhile, reads the claim of its
 * replacement before it can add anything. This needs no clock, no lock, no coordinator and no
 * check-then-act.
 *
 * Numbers are dense, and none is reused: the record of a removed checkpoint (ckpt/directory.h) is
 * replaced by a file that says so. After an ambiguous result (a network file system that sends a
 * request twice) the link count of the temporary file shows whether the link was made.
 *
 * Thread:  one at a time.
 *
 * Source: docs/CHECKPOINTS.md, "Who may write".
 */
#ifndef WEFT_CKPT_LOG_H
#define WEFT_CKPT_LOG_H

#include "ckpt/history.h"

struct weft_ckpt_log;

/* Called for each skipped checkpoint; number 0: a record of the log. */
typedef void weft_ckpt_complaint(void *arg, uint64_t number, const char *text);

/* Read the log and the manifests of version 1. A directory without a log is treated as one with an
 * empty log.
 * Owns:    gives *log_p, to be ended with weft_ckpt_log_close. Borrows directory and complain until
 *          then.
 * Errors:  WEFT_IO, WEFT_NOMEM, WEFT_UNSUPPORTED (a later version): the set of complete
 *          checkpoints is unknown; error->text has the reason. */
weft_status weft_ckpt_log_open(const char *directory, weft_ckpt_complaint *complain, void *arg,
                               struct weft_ckpt_log **log_p, struct weft_error *error);
/* NULL is allowed. */
void weft_ckpt_log_close(struct weft_ckpt_log *log);

/* Read the records added since. Errors: as open. */
weft_status weft_ckpt_log_refresh(struct weft_ckpt_log *log, struct weft_error *error);

/* Valid until the next call with the log as an argument. */
const struct weft_ckpt_history *weft_ckpt_log_history(const struct weft_ckpt_log *log);

/* Add the claim of this process, once. From here on this process may write to the log.
 *
 * is_new:  the job is new, and the directory must not contain any part of a checkpoint.
 * Errors:  WEFT_STATE  since the log was opened another process has claimed a shard of this
 *          process or (is_new) has written a part: this process was overtaken while it started,
 *          and must exit. WEFT_IO, WEFT_NOMEM, as open; WEFT_UNSUPPORTED  the file system has no
 *          hard links. */
weft_status weft_ckpt_log_claim(struct weft_ckpt_log *log, const struct weft_ckpt_claim *claim,
                                bool is_new, struct weft_error *error);

/* Largest serial of the damaged records that were skipped; 0 = none. */
uint64_t weft_ckpt_log_damaged(const struct weft_ckpt_log *log);

/* The claim of this process; NULL before it was added. Valid as long as the history. */
const struct weft_ckpt_holder *weft_ckpt_log_mine(const struct weft_ckpt_log *log);

/* True if another process has claimed a shard of this one, in the records read so far:
 * error->text names it. */
bool weft_ckpt_log_replaced(const struct weft_ckpt_log *log, struct weft_error *error);

/* Record that this process starts to serve from checkpoint `number`; its shards must be restored.
 * Errors:  as commit; WEFT_AGAIN  another server of the job has restored another checkpoint. */
weft_status weft_ckpt_log_restored(struct weft_ckpt_log *log, uint64_t number, bool journal,
                                   struct weft_error *error);

/* Commit a part of a checkpoint whose data is on the disk: synchronise the directory, add the
 * manifest, synchronise the log. Sets manifest->claim.
 * Errors:  WEFT_STATE  this process was replaced: nothing was added, and it must stop. WEFT_IO,
 *          WEFT_NOMEM: the checkpoint must not be reported as saved. If *may_count_p, it is
 *          unknown whether the part is in the log: its files must not be changed, and its number
 *          must not be reused. */
weft_status weft_ckpt_log_commit(struct weft_ckpt_log *log, struct weft_ckpt_manifest *manifest,
                                 bool *may_count_p, struct weft_error *error);

/* Put a file that says so in place of a record whose manifest was removed or moved, and synchronise
 * it.
 * Errors:  WEFT_IO. */
weft_status weft_ckpt_log_clear(struct weft_ckpt_log *log, uint64_t serial,
                                struct weft_error *error);

/* Remove the part at this index from the history after its record was cleared. */
void weft_ckpt_log_forget(struct weft_ckpt_log *log, size_t place);

/* Path of a record, relative to the directory; out has WEFT_CKPT_FILE_BYTES. */
void weft_ckpt_log_name(uint64_t serial, char *out);

#endif
