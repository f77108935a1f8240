/* Convert records to a form that people and programs read: a SQLite database (recdb.h reads it), or
 * lines of JSON. docs/RECORDS.md describes the tables.
 *
 * All input, spool or database, is validated here.
 */
#ifndef WEFT_OBS_RECORDS_DB_H
#define WEFT_OBS_RECORDS_DB_H

#include "obs/recorder.h"

#include <stdio.h>

struct weft_records_sum {
    uint32_t processes;
    uint32_t processes_cut; /* those of them that did not end normally */
    uint64_t records;       /* rows of all kinds */
    uint64_t rpcs;
    uint64_t served;
    uint64_t dropped;       /* by the processes themselves */
    uint64_t bytes_skipped; /* of spools: outside of valid blocks */
};

/* Merge spools, and existing databases, into one file. FILE.jsonl gets lines, any other name is a
 * database. A database is either updated completely or left unchanged; the same is true of a file
 * that is replaced.
 *
 * Shape:   inputs (count,).   command  for `meta`; NULL = that of the first input.   replace  an
 *          existing file is replaced on success; otherwise records are appended to it, which
 *          several processes may do at once.
 * Errors:  WEFT_DATA  an input has no records, or the file to append to is another kind of
 *          database, or has other lines.  WEFT_STATE  an input's process is still writing it.
 *          WEFT_IO  also: an input is FILE.new, FILE.new.jsonl or FILE-journal, which are written
 *          or removed.  WEFT_NOMEM.  Inputs are not removed. */
weft_status weft_records_make(const char *const *inputs, uint32_t count, const char *path,
                              bool replace, const char *command, struct weft_records_sum *sum_p,
                              struct weft_error *error);

/* Check before a run that records may be written there, at the end of links. An existing file is
 * rejected unless it is to be replaced.
 * Errors:  WEFT_EXISTS, WEFT_IO. */
weft_status weft_records_check_path(const char *path, bool replace, struct weft_error *error);

/* True if a file begins like lines of JSON; and the error text for such a file if it cannot be
 * used. */
bool weft_records_is_json(const char *path);

#define WEFT_RECORDS_JSON_WORDS                                                                    \
    "has records as lines of JSON, which weft writes for other programs but does not read; "       \
    "record into a file with a name that does not end in .jsonl (`weft trace export --format "     \
    "jsonl` converts it)"

#endif
