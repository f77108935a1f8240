/* Read a database of records (docs/RECORDS.md). It is opened read-only, and its kind and schema are
 * checked. weft_recdb_next and weft_recdb_served_next check each row. records_db.h writes such a
 * database.
 *
 * Several files are parts of one run. They are read as one, through views that are the union of
 * their tables. The first failure is stored in `status` and `error`; later calls do nothing or
 * fail, so a caller may check once, after its last row.
 *
 * Thread:  one at a time.
 */
#ifndef WEFT_OBS_RECDB_H
#define WEFT_OBS_RECDB_H

#include "obs/recorder.h"

#include <sqlite3.h>

enum {
    WEFT_RECDB_FILES_MAX = 10, /* SQLite's limit for attached databases */
    WEFT_RECDB_MORE = 19,      /* the first additional column of a scan */
};

/* In the order in which an RPC passes through them; the names are the paper's. */
enum weft_recdb_stage {
    WEFT_RECDB_N_TX,
    WEFT_RECDB_PS_QUEUE,
    WEFT_RECDB_PS_WAIT,
    WEFT_RECDB_PS_PROC,
    WEFT_RECDB_W_QUEUE,
    WEFT_RECDB_W_PROC,
    WEFT_RECDB_STAGES,
};

enum weft_recdb_kind { WEFT_RECDB_PUSH, WEFT_RECDB_PULL, WEFT_RECDB_KINDS };

/* Names of the tables; ends with NULL, and so does weft_recdb_about. Every file has the first
 * WEFT_RECDB_TABLES_MUST. Files of earlier releases may lack the others, which are then read as
 * empty. */
extern const char *const weft_recdb_tables[];
enum { WEFT_RECDB_TABLES_MUST = 7 };
extern const char *const weft_recdb_about[];  /* keys of meta that identify the run */
const char *weft_recdb_stage_name(unsigned stage);
const char *weft_recdb_kind_name(unsigned kind);

struct weft_recdb_rpc {
    uint32_t worker;
    uint32_t server;
    uint64_t rpc;
    uint64_t iteration;
    uint64_t rows;
    uint64_t t0_ns;
    uint64_t t1_ns; /* not before t0 */
    uint64_t request_bytes;
    uint64_t reply_bytes;
    uint64_t stage_ns[WEFT_RECDB_STAGES];
    uint64_t overlap_ns; /* part of N_tx */
    uint64_t total_ns;   /* t1 - t0, then W_queue and W_proc: all six stages */
    int64_t status;      /* 0: success */
    uint32_t table;
    unsigned kind;
};

/* An RPC as seen by its server; the stages are between arrival and departure. */
struct weft_recdb_served {
    uint32_t worker;
    uint32_t server;
    uint64_t rpc;
    uint64_t arrival_ns;
    uint64_t queue_ns;
    uint64_t wait_ns;
    uint64_t proc_ns;
    unsigned kind;
};

struct weft_recdb {
    sqlite3 *sqlite;
    const char *const *files;
    unsigned file_count;
    uint64_t refused;        /* invalid rows */
    weft_status status;      /* of the first failure */
    struct weft_error error; /* its text */
    char meta[512];          /* buffer of weft_recdb_meta */
};

/* True if the file begins like an SQLite database; false for any other file, or none. */
bool weft_recdb_is_sqlite(const char *path);

/* Owns:    borrows files; *db_p is closed with weft_recdb_close, also after a failure.
 * Errors:  WEFT_IO    a file cannot be read.
 *          WEFT_DATA  it is not a database of records, or has another version of the schema.
 *          WEFT_INVALID  more than WEFT_RECDB_FILES_MAX.  WEFT_NOMEM. */
weft_status weft_recdb_open(const char *const *files, unsigned count, struct weft_recdb *db_p);
void weft_recdb_close(struct weft_recdb *db);

/* Set WEFT_NOMEM unless there was an earlier failure: for callers that store rows in memory. */
void weft_recdb_no_memory(struct weft_recdb *db);

/* Prepare a statement, from a format of sqlite3_mprintf; NULL on failure. weft_recdb_row returns
 * true with a row, false at the end and on failure; NULL has no rows. */
sqlite3_stmt *weft_recdb_query(struct weft_recdb *db, const char *format, ...);
bool weft_recdb_row(struct weft_recdb *db, sqlite3_stmt *statement);

/* True if the table has this column, which files of earlier releases may lack. */
bool weft_recdb_has_column(struct weft_recdb *db, const char *table, const char *column);

/* Negative values are returned as zero. */
uint64_t weft_recdb_u64(sqlite3_stmt *statement, int column);

/* The first column of the first row, or 0.   Owns: takes the statement. */
uint64_t weft_recdb_number(struct weft_recdb *db, sqlite3_stmt *statement);
/* A value of meta, or "", without control characters.   Owns: valid until the next call. */
const char *weft_recdb_meta(struct weft_recdb *db, const char *key);

/* All RPCs, from `SELECT ..., more FROM rpc` followed by `tail` (JOIN, WHERE, ORDER BY); both may
 * be "". Additional columns start at WEFT_RECDB_MORE. Invalid rows (an unknown kind, a negative
 * time, a reply before its request) are skipped and counted in db->refused.
 *
 *     sqlite3_stmt *scan = weft_recdb_scan(db, "", "");
 *     while (weft_recdb_next(db, scan, &rpc)) { ... }
 *     sqlite3_finalize(scan);
 */
sqlite3_stmt *weft_recdb_scan(struct weft_recdb *db, const char *more, const char *tail);
bool weft_recdb_next(struct weft_recdb *db, sqlite3_stmt *scan, struct weft_recdb_rpc *rpc_p);

/* The same for `served`; WHERE and ORDER BY may be "". */
sqlite3_stmt *weft_recdb_served_scan(struct weft_recdb *db, const char *where, const char *order);
bool weft_recdb_served_next(struct weft_recdb *db, sqlite3_stmt *scan,
                            struct weft_recdb_served *served_p);

#endif
