/* The coordinator's journal: a file of records that must survive it, appended to, and written anew from
 * what they say together when it has become long.
 *
 *     "weft members 1\n\0"
 *     then records: body length u32, op u8, check of these two u24, XXH64 of all but itself u64, body
 *
 * Integers big-endian. The check is the low bits of XXH64 over the five bytes before it: a length
 * that is wrong must not make what follows look torn. What was not written to its end (the machine or
 * the process died) is a torn tail: cut off when the file is opened. Such a record goes beyond the end
 * of the file, or it ends in zeros from a boundary of 512 bytes on, which is what a disk did not write.
 * Any other record that cannot be read is damage, and the file is refused: nobody may guess which
 * leases are missing.
 *
 * It is written anew as FILE.new, synced, renamed to FILE, and its folder synced: at each moment FILE is
 * the old one or the new one, whole.
 *
 * One process at a time: the file is locked while it is open.
 */
#ifndef WEFT_JOB_JOURNAL_H
#define WEFT_JOB_JOURNAL_H

#include "base/error.h"

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
                              struct weft_error *error);

/* Errors:  WEFT_IO  errno says why. The file may have a torn tail now; nothing may be appended. */
weft_status weft_journal_append(struct weft_journal *journal, uint8_t op, const uint8_t *bytes,
                                size_t count);

/* What was appended is on the disk, in a file that has the journal's name there.   Errors: WEFT_IO. */
weft_status weft_journal_sync(struct weft_journal *journal);

/* It is worth writing anew: at least 1 MiB, and twice what it was when that was last done or tried. */
bool weft_journal_is_long(const struct weft_journal *journal);

/* The i-th record of those that say the same as all that were appended; returns its bytes in body, 0 =
 * there are no more. */
typedef size_t weft_journal_supply(void *arg, uint32_t i, uint8_t *op_p,
                                   uint8_t body[WEFT_JOURNAL_BODY_MAX]);

/* Write it anew. What was appended is safe then, as after weft_journal_sync, which is still due when this
 * fails: then the journal is what it was, and can be appended to.
 * Errors:  WEFT_IO, WEFT_NOMEM. */
weft_status weft_journal_compact(struct weft_journal *journal, weft_journal_supply *supply,
                                 void *arg, struct weft_error *error);

/* NULL is fine. */
void weft_journal_close(struct weft_journal *journal);

#endif
