/* The coordinator's journal: a file of records that must survive the coordinator. Records are
 * appended; when the file has grown long, it is rewritten with an equivalent shorter list of
 * records.
 *
 *     "weft members 1\n\0"
 *     then records: body length u32, op u8, check of these two u24, XXH64 of the rest u64, body
 *
 * Integers are big-endian. The check is the low bits of XXH64 over the five bytes before it: a
 * damaged length must not make the following records look torn. A record that was not written
 * completely, because the machine or the process died, is a torn tail: it is truncated when the
 * file is opened. A torn record extends past the end of the file, or ends in zeros from a 512-byte
 * boundary on, where the disk did not write. Any other unreadable record is damage, and the file is
 * rejected: the missing leases cannot be guessed.
 *
 * A rewrite creates FILE.new, syncs it, renames it to FILE and syncs the folder: at each moment
 * FILE is the complete old or the complete new file.
 *
 * One process at a time: the file is locked while it is open.
 */
#ifndef WEFT_JOB_COORDINATOR_JOURNAL_H
#define WEFT_JOB_COORDINATOR_JOURNAL_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weft_coordinator_journal;

enum { WEFT_COORDINATOR_JOURNAL_BODY_MAX = 4096 };

/* Called with each record, oldest first; any status but OK ends the reading with that status. */
typedef weft_status weft_coordinator_journal_apply(void *arg, uint8_t op, const uint8_t *bytes,
                                                   size_t count);

/* Open or create a journal, and read its records.
 *
 * Owns:    gives *journal_p, to be ended with weft_coordinator_journal_close.
 * Shape:   *torn_bytes_p: bytes truncated.
 * Errors:  WEFT_IO      it cannot be opened, read or locked.
 *          WEFT_DATA    it is not a journal, or is damaged.
 *          WEFT_EXISTS  another process has it open.   WEFT_NOMEM.   Those of apply. */
weft_status weft_coordinator_journal_open(const char *path, weft_coordinator_journal_apply *apply,
                                          void *arg, struct weft_coordinator_journal **journal_p,
                                          uint64_t *torn_bytes_p, struct weft_error *error);

/* Errors:  WEFT_IO  errno has the reason. The file may have a torn tail now; nothing more may be
 *          appended. */
weft_status weft_coordinator_journal_append(struct weft_coordinator_journal *journal, uint8_t op,
                                            const uint8_t *bytes, size_t count);

/* Sync the appended records, and the journal's name if needed.   Errors: WEFT_IO. */
weft_status weft_coordinator_journal_sync(struct weft_coordinator_journal *journal);

/* True if a rewrite is worthwhile: at least 1 MiB, and twice the size at the last rewrite or
 * attempt. */
bool weft_coordinator_journal_is_long(const struct weft_coordinator_journal *journal);

/* The i-th record of a list equivalent to all appended records; returns its bytes in body, 0 =
 * end of the list. */
typedef size_t weft_coordinator_journal_supply(void *arg, uint32_t i, uint8_t *op_p,
                                               uint8_t body[WEFT_COORDINATOR_JOURNAL_BODY_MAX]);

/* Rewrite the journal. On success the appended records are durable, as after
 * weft_coordinator_journal_sync. On failure the journal is either unchanged or, if only the folder
 * could not be synced, rewritten. In both cases it can be appended to, and
 * weft_coordinator_journal_sync is still due.
 * Errors:  WEFT_IO, WEFT_NOMEM. */
weft_status weft_coordinator_journal_compact(struct weft_coordinator_journal *journal,
                                             weft_coordinator_journal_supply *supply, void *arg,
                                             struct weft_error *error);

/* NULL is allowed. */
void weft_coordinator_journal_close(struct weft_coordinator_journal *journal);

#endif
