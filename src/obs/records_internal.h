/* The tables of a records file, and the two ways to write them. Internal to this folder. */
#ifndef WEFT_OBS_RECORDS_INTERNAL_H
#define WEFT_OBS_RECORDS_INTERNAL_H

#include "obs/records_db.h"

#include <sqlite3.h>
#include <sys/types.h>

#define WEFT_RECORDS_SCHEMA_VERSION "1"

enum weft_records_table {
    TABLE_RPC,
    TABLE_SERVED,
    TABLE_ACTIVE,
    TABLE_HOT,
    TABLE_HOT_TOTAL,
    TABLE_AGGREGATE_IN,
    TABLE_AGGREGATE_OUT,
    TABLE_COUNT,
};

enum { RECORDS_COLUMNS_MAX = 24 };

/* All columns are integers. */
struct records_table {
    const char *name;
    const char *columns[RECORDS_COLUMNS_MAX]; /* ends with NULL */
    unsigned column_count;
    unsigned process; /* the column with the process, column_count = none */
};

extern const struct records_table weft_records_tables[TABLE_COUNT];

/* A row of `process`. */
struct records_process {
    int64_t id;
    const char *role;
    int64_t rank, pid, records, dropped, cpu_ns, wall_ns, ended;
};

/* The destination of rows: a database, or lines. */
struct records_sink {
    const char *path; /* for messages */
    sqlite3 *db;      /* or: */
    FILE *lines;
    off_t lines_bytes; /* of the file, up to the last addition that was completed */
    char keys[256];    /* of meta lines written: "key\nkey\n" */
    sqlite3_stmt *inserts[TABLE_COUNT];
    int64_t processes_before; /* in the file when it was opened */
    struct weft_records_sum sum;
    struct weft_error *error;
};

/* Convert a record to a row; false if its type is unknown. */
bool weft_records_row(const struct weft_rpc_record *record, int64_t process,
                      enum weft_records_table *table_p, int64_t values_p[RECORDS_COLUMNS_MAX]);

/* Begin a transaction and create the missing tables. */
weft_status weft_records_sink_begin(struct records_sink *sink);
weft_status weft_records_sink_row(struct records_sink *sink, enum weft_records_table table,
                                  const int64_t *values);
weft_status weft_records_sink_process(struct records_sink *sink,
                                      const struct records_process *process);
/* Read existing lines, to continue the numbers of their processes and to keep their facts. What a
 * process that was killed had begun to add is cut off. Another kind of file is an error, and is
 * closed. */
weft_status weft_records_sink_take_lines(struct records_sink *sink);
/* Cut off what was added since the file was opened, also what is not written yet. */
weft_status weft_records_sink_cut_lines(struct records_sink *sink);
/* If the key exists, its value is not changed. */
weft_status weft_records_sink_meta(struct records_sink *sink, const char *key, const char *value);
/* Create the indexes and commit the transaction. */
weft_status weft_records_sink_end(struct records_sink *sink);
void weft_records_sink_fini(struct records_sink *sink);

weft_status weft_records_sql(sqlite3 *db, const char *sql, const char *path,
                             struct weft_error *error);
/* The status for SQLite's last error. */
weft_status weft_records_sql_status(sqlite3 *db);
weft_status weft_records_sql_fail(sqlite3 *db, const char *path, struct weft_error *error);

/* The first bytes of a file; -1: errno has the reason. */
ssize_t weft_records_start(const char *path, char *start_p, size_t bytes);
/* SQLite treats ":memory:" and "file:..." specially: then `name_p` is set to an equivalent plain
 * name. */
const char *weft_records_file_name(const char *path, char name_p[WEFT_RECORDS_PATH_BYTES]);

#endif
