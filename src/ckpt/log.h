/* The log of a checkpoint directory: who may write into it, and what was written, in one order that
 * all processes agree on.
 *
 *     DIR/log/000000000001, 000000000002, ...      records (ckpt/record.h)
 *
 * A record is written to a temporary file of its own name, synchronised, and takes the next serial
 * number by link(2), which fails where the name is taken. Then the process reads that record first:
 * nobody can add one without knowing all those before it. So a process that was stopped at any
 * instruction, and another one took its place meanwhile, meets the other's claim before it can add
 * anything. No clock, no lock and no coordinator is needed for that, and check-then-act is not either.
 *
 * Numbers are dense, and none becomes free again: of a checkpoint that was removed (ckpt/directory.h)
 * an empty file stays. After an unclear reply (a network file system that sends a request twice) the
 * link count of the temporary file says whether the link was made.
 *
 * Thread:  one at a time.
 *
 * Source: docs/CHECKPOINTS.md, "Who may write".
 */
#ifndef WEFT_CKPT_LOG_H
#define WEFT_CKPT_LOG_H

#include "ckpt/history.h"

struct weft_ckpt_log;

/* Called for what is passed over; number 0: a record of the log. */
typedef void weft_ckpt_complaint(void *arg, uint64_t number, const char *text);

/* Read the log and the manifests of version 1. A directory without a log has an empty one.
 * Owns:    gives *log_p, to be ended with weft_ckpt_log_close. Borrows directory and complain until
 *          then.
 * Errors:  WEFT_IO, WEFT_NOMEM, WEFT_UNSUPPORTED (a later version): nobody can say what counts, with
 *          error->text. */
weft_status weft_ckpt_log_open(const char *directory, weft_ckpt_complaint *complain, void *arg,
                               struct weft_ckpt_log **log_p, struct weft_error *error);
/* NULL is fine. */
void weft_ckpt_log_close(struct weft_ckpt_log *log);

/* Read what has come since. Errors: as open. */
weft_status weft_ckpt_log_refresh(struct weft_ckpt_log *log, struct weft_error *error);

/* Valid until the next call that takes the log. */
const struct weft_ckpt_history *weft_ckpt_log_history(const struct weft_ckpt_log *log);

/* Add the claim of this process, once. From here on the log is its own.
 *
 * is_new:  the job is new, and the directory must hold no part of a checkpoint.
 * Errors:  WEFT_STATE  somebody has claimed a shard of this process, or (is_new) written a part, since
 *          the log was opened: this process was overtaken while it started, and must end. WEFT_IO,
 *          WEFT_NOMEM, as open; WEFT_UNSUPPORTED  the file system has no hard links. */
weft_status weft_ckpt_log_claim(struct weft_ckpt_log *log, const struct weft_ckpt_claim *claim,
                                bool is_new, struct weft_error *error);

/* Records that were passed over because they are damaged; the largest serial of one, 0 = none. */
uint64_t weft_ckpt_log_damaged(const struct weft_ckpt_log *log);

/* This process's; NULL before the claim. Valid as the history is. */
const struct weft_ckpt_holder *weft_ckpt_log_mine(const struct weft_ckpt_log *log);

/* Another process has claimed a shard of this one, as far as was read: error->text says who. */
bool weft_ckpt_log_replaced(const struct weft_ckpt_log *log, struct weft_error *error);

/* After the shards are as they were: this process begins to serve from checkpoint `number`.
 * Errors:  as commit; WEFT_AGAIN  another server of the job has restored another checkpoint. */
weft_status weft_ckpt_log_restored(struct weft_ckpt_log *log, uint64_t number, bool journal,
                                   struct weft_error *error);

/* A part of a checkpoint is on the disk: synchronise the directory, add the manifest, synchronise the
 * log. manifest->claim is filled in here.
 * Errors:  WEFT_STATE  this process was replaced: nothing was added, and it must stop. WEFT_IO,
 *          WEFT_NOMEM: do not promise anything. When *may_count_p it is not known whether the part
 *          counts: its files must stay as they are, and its number must not be used again. */
weft_status weft_ckpt_log_commit(struct weft_ckpt_log *log, struct weft_ckpt_manifest *manifest,
                                 bool *may_count_p, struct weft_error *error);

/* Put an empty file in the place of a record, whose manifest was removed or moved away.
 * Errors:  WEFT_IO. */
weft_status weft_ckpt_log_clear(struct weft_ckpt_log *log, uint64_t serial,
                                struct weft_error *error);

/* Drop the part at this place of the history, whose record was cleared. */
void weft_ckpt_log_forget(struct weft_ckpt_log *log, size_t place);

/* The path of a record, relative to the directory; out has WEFT_CKPT_FILE_BYTES. */
void weft_ckpt_log_name(uint64_t serial, char *out);

#endif
