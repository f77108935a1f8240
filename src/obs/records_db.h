/* Making records as people and programs read them: a SQLite database (recdb.h reads it), or lines of
 * JSON. docs/RECORDS.md has the tables.
 *
 * Everything read here, spool or database, is checked here.
 */
#ifndef WEFT_OBS_RECORDS_DB_H
#define WEFT_OBS_RECORDS_DB_H

#include "obs/recorder.h"

#include <stdio.h>

struct weft_records_sum {
    uint32_t processes;
    uint32_t processes_cut; /* of these, that did not end in order */
    uint64_t records;       /* rows of all kinds */
    uint64_t rpcs;
    uint64_t served;
    uint64_t dropped;       /* by the processes themselves */
    uint64_t bytes_skipped; /* of spools: belonging to no good block */
};

/* Put spools, and databases made before, into one file. FILE.jsonl gets lines, any other name is a
 * database. A database has all of it afterwards, or is as it was; so has a file that is replaced.
 *
 * Shape:   inputs (count,).   command  for `meta`; NULL = as the first input says.   replace  an existing file is replaced when all went well; else it is
 *          added to, which several processes may do at once.
 * Errors:  WEFT_DATA  an input, or the file to be added to, holds no records.  WEFT_STATE  an
 *          input's process still writes it.  WEFT_IO, WEFT_NOMEM. Inputs stay. */
weft_status weft_records_make(const char *const *inputs, uint32_t count, const char *path,
                              bool replace, const char *command, struct weft_records_sum *sum_p,
                              struct weft_error *error);

/* Before a run: may records be written there? An existing file is refused unless it is replaced.
 * Errors:  WEFT_EXISTS, WEFT_IO. */
weft_status weft_records_check_path(const char *path, bool replace, struct weft_error *error);

/* Whether a file begins as lines of JSON do, and what to say of one where it is of no use. */
bool weft_records_is_json(const char *path);

#define WEFT_RECORDS_JSON_WORDS                                                                    \
    "has records as lines of JSON, which are for other programs: weft reads databases and "        \
    "spools; "                                                                                     \
    "record into a name that does not end in .jsonl (`weft trace export --format jsonl` makes "    \
    "the "                                                                                         \
    "lines of it)"

#endif
