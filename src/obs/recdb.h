/* A database of records (docs/RECORDS.md) to be read: opened read-only, its kind and schema checked,
 * its rows checked one by one in weft_recdb_next and weft_recdb_served_next. records_db.h makes one.
 *
 * Several files are parts of one run: they are read as one, through views that are the union of
 * their tables. The first failure is kept in `status` and `error`; every call after it does nothing
 * or fails, so that a caller may ask once, behind its last row.
 *
 * Thread:  one at a time.
 */
#ifndef WEFT_OBS_RECDB_H
#define WEFT_OBS_RECDB_H

#include "obs/recorder.h"

#include <sqlite3.h>

enum {
    WEFT_RECDB_FILES_MAX = 10, /* what SQLite attaches */
    WEFT_RECDB_MORE = 19,      /* the first further column of a scan */
};

/* In the order in which an RPC goes through them; the names are the paper's. */
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

extern const char *const weft_recdb_tables[]; /* ends with NULL, as the next */
extern const char *const weft_recdb_about[];  /* keys of meta: of which run it is */
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
    uint64_t overlap_ns; /* inside N_tx */
    uint64_t total_ns;   /* t1 - t0, then W_queue and W_proc: all six stages */
    int64_t status;      /* 0: it went well */
    uint32_t table;
    unsigned kind;
};

/* An RPC as its server saw it; the stages lie between arrival and departure. */
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
    uint64_t refused;                /* rows that cannot be */
    weft_status status;              /* of the first failure */
    struct weft_error error;         /* its words */
    char meta[512];                  /* weft_recdb_meta's */
};

/* True when the file begins as an SQLite database does; false for any other, or none. */
bool weft_recdb_is_sqlite(const char *path);

/* Owns:    borrows files; *db_p is closed with weft_recdb_close, also after a failure.
 * Errors:  WEFT_IO    a file cannot be read.
 *          WEFT_DATA  it is no database of records, or of another version of the schema.
 *          WEFT_INVALID  more than WEFT_RECDB_FILES_MAX.  WEFT_NOMEM. */
weft_status weft_recdb_open(const char *const *files, unsigned count, struct weft_recdb *db_p);
void weft_recdb_close(struct weft_recdb *db);

/* Keep WEFT_NOMEM, unless there was a failure before: for who reads rows into memory. */
void weft_recdb_no_memory(struct weft_recdb *db);

/* A statement, from a format of sqlite3_mprintf; NULL on a failure. weft_recdb_row is true with a row,
 * false at the end and on a failure; NULL has no rows. */
sqlite3_stmt *weft_recdb_query(struct weft_recdb *db, const char *format, ...);
bool weft_recdb_row(struct weft_recdb *db, sqlite3_stmt *statement);

/* Never negative: what is, counts as zero. */
uint64_t weft_recdb_u64(sqlite3_stmt *statement, int column);

/* The first column of the first row, or 0.   Owns: takes the statement. */
uint64_t weft_recdb_number(struct weft_recdb *db, sqlite3_stmt *statement);
/* A value of meta, or "", without control characters.   Owns: valid until the next call. */
const char *weft_recdb_meta(struct weft_recdb *db, const char *key);

/* All RPCs, from `SELECT ..., more FROM rpc` with `tail` behind it (JOIN, WHERE, ORDER BY); both may
 * be "". Further columns begin at WEFT_RECDB_MORE. Rows that cannot be (an unknown kind, a time below
 * zero, a reply before its request) are left out and counted in db->refused.
 *
 *     sqlite3_stmt *scan = weft_recdb_scan(db, "", "");
 *     while (weft_recdb_next(db, scan, &rpc)) { ... }
 *     sqlite3_finalize(scan);
 */
sqlite3_stmt *weft_recdb_scan(struct weft_recdb *db, const char *more, const char *tail);
bool weft_recdb_next(struct weft_recdb *db, sqlite3_stmt *scan, struct weft_recdb_rpc *rpc_p);

/* Likewise, from `served`; WHERE and ORDER BY may be "". */
sqlite3_stmt *weft_recdb_served_scan(struct weft_recdb *db, const char *where, const char *order);
bool weft_recdb_served_next(struct weft_recdb *db, sqlite3_stmt *scan,
                            struct weft_recdb_served *served_p);

#endif
