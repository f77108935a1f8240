/* The coordinator's journal: an append-only file of records that must survive it.
 *
 *     "weft members 1\n\0"
 *     then records: body length u32, op u8, check of these two u24, XXH64 of all but itself u64, body
 *
 * Integers big-endian. The check is the low bits of XXH64 over the five bytes before it: a length
 * that is wrong must not make what follows look torn. What was not written to its end (the machine or the process died) is a torn
 * tail: cut off when the file is opened. A record that is damaged and has others behind it is
 * damage, and the file is refused: nobody may guess which leases are missing.
 *
 * One process at a time: the file is locked while it is open.
 */
#ifndef WEFT_JOB_JOURNAL_H
#define WEFT_JOB_JOURNAL_H

#include "job/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weft_journal;

enum { WEFT_JOURNAL_BODY_MAX = 4096 };

/* Takes a record, oldest first; anything but OK ends the reading with that status. */
typedef weft_status weft_journal_apply(void *arg, uint8_t op, const uint8_t *bytes, size_t count);

/* Open or begin a journal, and read what is in it.
 *
 * Owns:    gives *journal_p, to be ended with weft_journal_close. *torn_bytes_p: cut off.
 * Errors:  WEFT_IO      it cannot be opened, read or locked.
 *          WEFT_DATA    it is something else, or damaged.
 *          WEFT_EXISTS  another process has it open.   WEFT_NOMEM.   Those of apply. */
weft_status weft_journal_open(const char *path, weft_journal_apply *apply, void *arg,
                              struct weft_journal **journal_p, uint64_t *torn_bytes_p,
                              struct weft_job_error *error);

/* Errors:  WEFT_IO  errno says why. The file may have a torn tail now; nothing may be appended. */
weft_status weft_journal_append(struct weft_journal *journal, uint8_t op, const uint8_t *bytes,
                                size_t count);

/* What was appended is on the disk.   Errors: WEFT_IO. */
weft_status weft_journal_sync(struct weft_journal *journal);

/* NULL is fine. */
void weft_journal_close(struct weft_journal *journal);

#endif
