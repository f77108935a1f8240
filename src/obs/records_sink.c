/* Write rows to a database, or as lines of JSON. */
#include "obs/recdb_text.h"
#include "obs/records_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SQL_BYTES = 1024, BUSY_MS = 60000 };

weft_status weft_records_sql_status(sqlite3 *db)
{
    int code = sqlite3_errcode(db) & 0xff;
    return code == SQLITE_NOMEM                              ? WEFT_NOMEM
           : code == SQLITE_NOTADB || code == SQLITE_CORRUPT ? WEFT_DATA
                                                             : WEFT_IO;
}

weft_status weft_records_sql_fail(sqlite3 *db, const char *path, struct weft_error *error)
{
    return weft_fail(error, weft_records_sql_status(db), "%.400s: %s", path, sqlite3_errmsg(db));
}

weft_status weft_records_sql(sqlite3 *db, const char *sql, const char *path,
                             struct weft_error *error)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK
               ? WEFT_OK
               : weft_records_sql_fail(db, path, error);
}

static weft_status sql(struct records_sink *sink, const char *text)
{
    return weft_records_sql(sink->db, text, sink->path, sink->error);
}

/* ---- the database ---------------------------------------------------------------------------- */

static weft_status make_table(struct records_sink *sink, enum weft_records_table table)
{
    const struct records_table *about = &weft_records_tables[table];
    char make[SQL_BYTES], insert[SQL_BYTES];
    int m = snprintf(make, sizeof(make), "CREATE TABLE IF NOT EXISTS %s(", about->name);
    int n = snprintf(insert, sizeof(insert), "INSERT INTO %s VALUES(", about->name);
    for (unsigned c = 0; c < about->column_count; c++) {
        const char *end = c + 1 < about->column_count ? ", " : ")";
        m += snprintf(make + m, sizeof(make) - (size_t)m, "%s INTEGER%s", about->columns[c], end);
        n += snprintf(insert + n, sizeof(insert) - (size_t)n, "?%s", end);
    }
    weft_status status = sql(sink, make);
    if (status == WEFT_OK &&
        sqlite3_prepare_v2(sink->db, insert, -1, &sink->inserts[table], NULL) != SQLITE_OK) {
        status = (sqlite3_errcode(sink->db) & 0xff) == SQLITE_ERROR
                     ? weft_fail(sink->error, WEFT_DATA,
                                 "%.400s is of another release: its table %s has other columns; "
                                 "name another file",
                                 sink->path, about->name)
                     : weft_records_sql_fail(sink->db, sink->path, sink->error);
    }
    return status;
}

/* An existing file may be a database of another kind. */
static weft_status check_there(struct records_sink *sink)
{
    sqlite3_stmt *stmt = NULL;
    weft_status status = WEFT_OK;
    if (sqlite3_prepare_v2(sink->db,
                           "SELECT (SELECT count(*) FROM sqlite_schema),"
                           " (SELECT count(*) FROM sqlite_schema WHERE name = 'served')",
                           -1, &stmt, NULL) != SQLITE_OK ||
        sqlite3_step(stmt) != SQLITE_ROW) {
        status = weft_records_sql_fail(sink->db, sink->path, sink->error);
    } else if (sqlite3_column_int64(stmt, 0) > 0 && sqlite3_column_int64(stmt, 1) == 0) {
        status = weft_fail(sink->error, WEFT_DATA, "%.400s is a database, but not of records",
                           sink->path);
    }
    sqlite3_finalize(stmt);
    return status;
}

static int64_t count_processes(sqlite3 *db)
{
    sqlite3_stmt *stmt = NULL;
    int64_t count = 0;
    if (sqlite3_prepare_v2(db, "SELECT coalesce(max(id), 0) FROM process", -1, &stmt, NULL) ==
            SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW) {
        count = sqlite3_column_int64(stmt, 0);
    }
    sqlite3_finalize(stmt);
    return count;
}

weft_status weft_records_sink_begin(struct records_sink *sink)
{
    if (sink->db == NULL) {
        return weft_records_sink_meta(sink, "schema_version", WEFT_RECORDS_SCHEMA_VERSION);
    }
    sqlite3_busy_timeout(sink->db, BUSY_MS);
    /* Acquire the write lock at once: another process of the job may be adding its records. */
    weft_status status = sql(sink, "BEGIN IMMEDIATE");
    status = status == WEFT_OK ? check_there(sink) : status;
    if (status == WEFT_OK) {
        status = sql(sink, "CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT);"
                           "CREATE TABLE IF NOT EXISTS process(id INTEGER PRIMARY KEY, role TEXT,"
                           " rank INTEGER, pid INTEGER, records INTEGER, dropped INTEGER,"
                           " cpu_ns INTEGER, wall_ns INTEGER, ended INTEGER)");
    }
    for (int t = 0; status == WEFT_OK && t < TABLE_COUNT; t++) {
        status = make_table(sink, (enum weft_records_table)t);
    }
    sink->processes_before = count_processes(sink->db);
    return status == WEFT_OK
               ? weft_records_sink_meta(sink, "schema_version", WEFT_RECORDS_SCHEMA_VERSION)
               : status;
}

static weft_status run_once(struct records_sink *sink, sqlite3_stmt *stmt)
{
    bool good = sqlite3_step(stmt) == SQLITE_DONE;
    return good ? WEFT_OK : weft_records_sql_fail(sink->db, sink->path, sink->error);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static weft_status line_end(struct records_sink *sink)
{
    fputs("}\n", sink->lines);
    return ferror(sink->lines) == 0
               ? WEFT_OK
               : weft_fail(sink->error, WEFT_IO, "%.400s: %s", sink->path, strerror(errno));
}

static weft_status row_line(struct records_sink *sink, enum weft_records_table table,
                            const int64_t *values)
{
    const struct records_table *about = &weft_records_tables[table];
    fprintf(sink->lines, "{\"table\":\"%s\"", about->name);
    for (unsigned c = 0; c < about->column_count; c++) {
        fprintf(sink->lines, ",\"%s\":%" PRId64, about->columns[c], values[c]);
    }
    return line_end(sink);
}

/* ---- both ------------------------------------------------------------------------------------ */

weft_status weft_records_sink_row(struct records_sink *sink, enum weft_records_table table,
                                  const int64_t *values)
{
    sink->sum.records++;
    sink->sum.rpcs += table == TABLE_RPC;
    sink->sum.served += table == TABLE_SERVED;
    if (sink->db == NULL) {
        return row_line(sink, table, values);
    }
    sqlite3_stmt *stmt = sink->inserts[table];
    for (unsigned c = 0; c < weft_records_tables[table].column_count; c++) {
        sqlite3_bind_int64(stmt, (int)c + 1, values[c]);
    }
    weft_status status = run_once(sink, stmt);
    sqlite3_reset(stmt);
    return status;
}

weft_status weft_records_sink_process(struct records_sink *sink,
                                      const struct records_process *process)
{
    const int64_t numbers[] = {process->rank,    process->pid,    process->records,
                               process->dropped, process->cpu_ns, process->wall_ns,
                               process->ended};
    static const char *const names[] = {"rank",   "pid",     "records", "dropped",
                                        "cpu_ns", "wall_ns", "ended"};
    sink->sum.processes++;
    sink->sum.processes_cut += process->ended == 0;
    sink->sum.dropped += (uint64_t)process->dropped;
    if (sink->db == NULL) {
        fprintf(sink->lines, "{\"table\":\"process\",\"id\":%" PRId64 ",\"role\":", process->id);
        weft_recdb_json_text(sink->lines, process->role);
        for (size_t i = 0; i < WEFT_ARRAY_COUNT(names); i++) {
            fprintf(sink->lines, ",\"%s\":%" PRId64, names[i], numbers[i]);
        }
        return line_end(sink);
    }
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(sink->db, "INSERT INTO process VALUES(?,?,?,?,?,?,?,?,?)", -1, &stmt,
                           NULL) != SQLITE_OK) {
        return weft_records_sql_fail(sink->db, sink->path, sink->error);
    }
    sqlite3_bind_int64(stmt, 1, process->id);
    sqlite3_bind_text(stmt, 2, process->role, -1, SQLITE_TRANSIENT);
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(numbers); i++) {
        sqlite3_bind_int64(stmt, (int)i + 3, numbers[i]);
    }
    weft_status status = run_once(sink, stmt);
    sqlite3_finalize(stmt);
    return status;
}

/* Returns true if the line of this key was written before; marks it as written. */
static bool mark_written(struct records_sink *sink, const char *key)
{
    char line[64];
    size_t used = strlen(sink->keys);
    snprintf(line, sizeof(line), "%s\n", key);
    if (strstr(sink->keys, line) != NULL) {
        return true;
    }
    snprintf(sink->keys + used, sizeof(sink->keys) - used, "%s", line);
    return false;
}

/* An existing file may be of another program: it must not be cut. One of records begins with this
 * line, or a part of it, if the process that wrote it was killed. */
static weft_status check_lines(struct records_sink *sink)
{
    static const char first[] = "{\"table\":\"meta\",\"key\":\"schema_version\",";
    char start[sizeof(first) - 1];
    rewind(sink->lines);
    const size_t bytes = fread(start, 1, sizeof(start), sink->lines);
    if (ferror(sink->lines) == 0 && memcmp(start, first, bytes) == 0) {
        return WEFT_OK;
    }
    weft_status status =
        ferror(sink->lines) != 0
            ? weft_fail(sink->error, WEFT_IO, "%.400s: %s", sink->path, strerror(errno))
            : weft_fail(sink->error, WEFT_DATA,
                        "%.400s exists, and is not a file of records; name another file",
                        sink->path);
    (void)fclose(sink->lines); /* or it would be cut */
    sink->lines = NULL;
    return status;
}

weft_status weft_records_sink_take_lines(struct records_sink *sink)
{
    static const char process[] = "{\"table\":\"process\",\"id\":";
    static const char meta[] = "{\"table\":\"meta\",\"key\":\"";
    char *line = NULL;
    size_t room = 0;
    ssize_t bytes;
    off_t at = 0;
    weft_status status = check_lines(sink);
    if (status != WEFT_OK) {
        return status;
    }
    rewind(sink->lines);
    while ((bytes = getline(&line, &room, sink->lines)) > 0) {
        at += bytes;
        if (line[bytes - 1] != '\n') {
            break; /* the last line, cut short */
        }
        if (strncmp(line, process, sizeof(process) - 1) == 0) {
            int64_t id = strtoll(line + sizeof(process) - 1, NULL, 10);
            sink->processes_before = id > sink->processes_before ? id : sink->processes_before;
        } else if (strncmp(line, meta, sizeof(meta) - 1) == 0) {
            char *key = line + sizeof(meta) - 1;
            key[strcspn(key, "\"")] = '\0';
            (void)mark_written(sink, key);
        } else {
            continue;
        }
        sink->lines_bytes = at; /* these lines end what a process has added */
    }
    free(line);
    /* Rows without a line of their process: it was killed while it added them. Its spool is left,
     * with all of them, and its number is used again. */
    return weft_records_sink_cut_lines(sink);
}

weft_status weft_records_sink_cut_lines(struct records_sink *sink)
{
    (void)fflush(sink->lines);
    __fpurge(sink->lines); /* what cannot be written now must not be written by fclose */
    clearerr(sink->lines);
    bool good = ftruncate(fileno(sink->lines), sink->lines_bytes) == 0 &&
                fseeko(sink->lines, 0, SEEK_END) == 0; /* switches from reading to writing */
    return good ? WEFT_OK
                : weft_fail(sink->error, WEFT_IO, "%.400s: %s", sink->path, strerror(errno));
}

weft_status weft_records_sink_meta(struct records_sink *sink, const char *key, const char *value)
{
    if (sink->db == NULL && mark_written(sink, key)) {
        return WEFT_OK;
    }
    if (sink->db == NULL) {
        fputs("{\"table\":\"meta\",\"key\":", sink->lines);
        weft_recdb_json_text(sink->lines, key);
        fputs(",\"value\":", sink->lines);
        weft_recdb_json_text(sink->lines, value);
        return line_end(sink);
    }
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(sink->db, "INSERT OR IGNORE INTO meta VALUES(?,?)", -1, &stmt, NULL) !=
        SQLITE_OK) {
        return weft_records_sql_fail(sink->db, sink->path, sink->error);
    }
    sqlite3_bind_text(stmt, 1, key, -1, SQLITE_TRANSIENT);
    sqlite3_bind_text(stmt, 2, value, -1, SQLITE_TRANSIENT);
    weft_status status = run_once(sink, stmt);
    sqlite3_finalize(stmt);
    return status;
}

weft_status weft_records_sink_end(struct records_sink *sink)
{
    if (sink->db == NULL) {
        return fflush(sink->lines) == 0 && fsync(fileno(sink->lines)) == 0
                   ? WEFT_OK
                   : weft_fail(sink->error, WEFT_IO, "%.400s: %s", sink->path, strerror(errno));
    }
    /* Last: building an index row by row takes several times as long. */
    return sql(sink, "CREATE INDEX IF NOT EXISTS rpc_name ON rpc(server, worker, rpc);"
                     "CREATE INDEX IF NOT EXISTS served_name ON served(server, worker, rpc);"
                     "CREATE INDEX IF NOT EXISTS rpc_time ON rpc(kind, t0_ns);"
                     "CREATE INDEX IF NOT EXISTS active_time ON active(server, start_ns);"
                     "CREATE INDEX IF NOT EXISTS hot_updates ON hot(tbl, updates);"
                     "CREATE INDEX IF NOT EXISTS aggregate_in_name ON"
                     " aggregate_in(server, sender, rpc);"
                     "CREATE INDEX IF NOT EXISTS aggregate_out_name ON"
                     " aggregate_out(aggregator, server, rpc);"
                     "COMMIT");
}

void weft_records_sink_fini(struct records_sink *sink)
{
    for (int t = 0; t < TABLE_COUNT; t++) {
        sqlite3_finalize(sink->inserts[t]);
    }
    sqlite3_close(sink->db); /* uncommitted changes are rolled back */
    if (sink->lines != NULL) {
        (void)fclose(sink->lines);
    }
}
