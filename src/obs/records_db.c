#define _GNU_SOURCE
#include "file/sync.h"
#include "file/target.h"
#include "obs/recdb.h"
#include "obs/records_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The files are untrusted: process numbers that would overflow wrap around. */
static int64_t renumbered(int64_t process, int64_t add)
{
    return (int64_t)((uint64_t)process + (uint64_t)add);
}

/* ---- spools ---------------------------------------------------------------------------------- */

enum { TEXTS = 4, TEXT_MAX = 1024 };

/* Facts about a spool's process, from its last valid block. */
struct spool_facts {
    struct weft_spool_head head;
    uint64_t records;
    char texts[TEXTS][TEXT_MAX];
};

static void add_text(struct spool_facts *facts, const struct weft_rpc_record *record)
{
    uint8_t key = record->bytes[0];
    if (key < TEXTS) {
        char *text = facts->texts[key];
        size_t used = strlen(text);
        snprintf(text + used, TEXT_MAX - used, "%.*s", (int)WEFT_SPOOL_TEXT_BYTES,
                 (const char *)record->bytes + 1);
    }
}

static weft_status spool_block(struct records_sink *sink, const struct weft_spool_reader *reader,
                               int64_t process, struct spool_facts *facts)
{
    int64_t values[RECORDS_COLUMNS_MAX];
    enum weft_records_table table;
    weft_status status = WEFT_OK;
    facts->head = reader->head;
    struct weft_rpc_record record;
    for (uint32_t at = 0; status == WEFT_OK && at < reader->head.units;) {
        at += weft_rpc_record_read(reader->units + at, reader->head.units - at, &record);
        if (record.type == WEFT_RPC_RECORD_TEXT) {
            add_text(facts, &record);
        } else if (weft_records_row(&record, process, &table, values)) {
            facts->records++;
            status = weft_records_sink_row(sink, table, values);
        }
    }
    return status;
}

static weft_status spool_meta(struct records_sink *sink, const struct spool_facts *facts)
{
    char started[32], window[24];
    time_t at = (time_t)(facts->head.started_ns / WEFT_NS_PER_S);
    struct tm parts;
    (void)strftime(started, sizeof(started), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &parts));
    snprintf(window, sizeof(window), "%llu", (unsigned long long)facts->head.window_ns);
    weft_status status = WEFT_OK;
    const struct {
        const char *key, *value;
    } rest[] = {{"weft_version", facts->texts[WEFT_SPOOL_VERSION]},
                {"started_utc", started},
                {"command", facts->texts[WEFT_SPOOL_COMMAND]},
                {"host", facts->texts[WEFT_SPOOL_HOST]},
                {"window_ns", facts->head.window_ns != 0 ? window : ""}};
    for (size_t i = 0; status == WEFT_OK && i < WEFT_ARRAY_COUNT(rest); i++) {
        if (rest[i].value[0] != '\0') {
            status = weft_records_sink_meta(sink, rest[i].key, rest[i].value);
        }
    }
    return status;
}

static bool is_other_spool(const char *path)
{
    char start[8];
    return weft_records_start(path, start, sizeof(start)) == sizeof(start) &&
           memcmp(start, WEFT_SPOOL_MAGIC_START, sizeof(WEFT_SPOOL_MAGIC_START) - 1) == 0 &&
           memcmp(start, WEFT_SPOOL_MAGIC, sizeof(start)) != 0;
}

static weft_status add_spool(struct records_sink *sink, const char *path)
{
    struct weft_spool_reader reader;
    struct spool_facts facts = {.records = 0};
    int64_t process = renumbered(sink->processes_before, sink->sum.processes + INT64_C(1));
    weft_status status = weft_spool_reader_open(path, &reader);
    if (status != WEFT_OK) {
        return weft_fail(sink->error, status, "%.400s: %s", path,
                         status == WEFT_STATE     ? "its process still writes it"
                         : status == WEFT_INVALID ? "it is not a regular file"
                                                  : strerror(errno));
    }
    if (weft_records_is_json(path)) {
        weft_spool_reader_close(&reader);
        return weft_fail(sink->error, WEFT_DATA, "%.200s " WEFT_RECORDS_JSON_WORDS, path);
    }
    uint32_t blocks = 0;
    while (status == WEFT_OK && weft_spool_reader_next(&reader)) {
        status = spool_block(sink, &reader, process, &facts);
        blocks++;
    }
    sink->sum.bytes_skipped += reader.skipped;
    uint64_t bytes = reader.bytes;
    weft_spool_reader_close(&reader);
    if (status != WEFT_OK || (blocks == 0 && bytes == 0)) {
        return status; /* a process that was killed before its first block */
    }
    if (blocks == 0) {
        return weft_fail(sink->error, WEFT_DATA, "%.400s %s", path,
                         is_other_spool(path)
                             ? "is a spool of another release; use `weft trace merge` of that one"
                             : "has no records");
    }
    const struct records_process row = {
        .id = process,
        .role = facts.head.role,
        .rank = facts.head.rank,
        .pid = facts.head.pid,
        .records = (int64_t)facts.records,
        .dropped = (int64_t)facts.head.dropped,
        .cpu_ns = (int64_t)facts.head.cpu_ns,
        .wall_ns = (int64_t)facts.head.wall_ns,
        .ended = facts.head.last,
    };
    status = weft_records_sink_process(sink, &row);
    return status == WEFT_OK ? spool_meta(sink, &facts) : status;
}

/* ---- databases ------------------------------------------------------------------------------- */

const char *weft_records_file_name(const char *path, char name_p[WEFT_RECORDS_PATH_BYTES])
{
    if (path[0] != ':' && strncmp(path, "file:", 5) != 0) {
        return path;
    }
    snprintf(name_p, WEFT_RECORDS_PATH_BYTES, "./%s", path);
    return name_p;
}

static weft_status select_open(sqlite3 *from, const char *path, const char *sql,
                               struct records_sink *sink, sqlite3_stmt **stmt_p)
{
    return sqlite3_prepare_v2(from, sql, -1, stmt_p, NULL) == SQLITE_OK
               ? WEFT_OK
               : weft_records_sql_fail(from, path, sink->error);
}

/* To be called after the last row. */
static weft_status select_close(sqlite3 *from, const char *path, int code,
                                struct records_sink *sink, sqlite3_stmt *stmt, weft_status status)
{
    if (status == WEFT_OK && code != SQLITE_DONE) {
        status = weft_records_sql_fail(from, path, sink->error);
    }
    sqlite3_finalize(stmt);
    return status;
}

static const char *text_of(sqlite3_stmt *stmt, int column)
{
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    return text != NULL ? text : "";
}

static weft_status copy_table(struct weft_recdb *from, const char *path, struct records_sink *sink,
                              enum weft_records_table table, int64_t process_add)
{
    const struct records_table *about = &weft_records_tables[table];
    char text[1024] = "SELECT ";
    for (unsigned c = 0; c < about->column_count; c++) {
        size_t used = strlen(text);
        const bool is_there = weft_recdb_has_column(from, about->name, about->columns[c]);
        snprintf(text + used, sizeof(text) - used, "%s%s", c > 0 ? ", " : "",
                 is_there                                    ? about->columns[c]
                 : strcmp(about->columns[c], "removed") == 0 ? "-1" /* unknown, which is not 0 */
                                                             : "0");
    }
    size_t used = strlen(text);
    snprintf(text + used, sizeof(text) - used, " FROM %s", about->name);
    sqlite3_stmt *stmt = NULL;
    int code = SQLITE_DONE;
    weft_status status = select_open(from->sqlite, path, text, sink, &stmt);
    while (status == WEFT_OK && (code = sqlite3_step(stmt)) == SQLITE_ROW) {
        int64_t values[RECORDS_COLUMNS_MAX];
        for (unsigned c = 0; c < about->column_count; c++) {
            int64_t value = sqlite3_column_int64(stmt, (int)c);
            values[c] = c == about->process ? renumbered(value, process_add) : value;
        }
        status = weft_records_sink_row(sink, table, values);
    }
    return select_close(from->sqlite, path, code, sink, stmt, status);
}

static weft_status copy_processes(sqlite3 *from, const char *path, struct records_sink *sink,
                                  int64_t add)
{
    sqlite3_stmt *stmt = NULL;
    int code = SQLITE_DONE;
    weft_status status = select_open(from, path,
                                     "SELECT id, role, rank, pid, records, dropped, cpu_ns,"
                                     " wall_ns, ended FROM process",
                                     sink, &stmt);
    while (status == WEFT_OK && (code = sqlite3_step(stmt)) == SQLITE_ROW) {
        const struct records_process row = {
            .id = renumbered(sqlite3_column_int64(stmt, 0), add),
            .role = text_of(stmt, 1),
            .rank = sqlite3_column_int64(stmt, 2),
            .pid = sqlite3_column_int64(stmt, 3),
            .records = sqlite3_column_int64(stmt, 4),
            .dropped = sqlite3_column_int64(stmt, 5),
            .cpu_ns = sqlite3_column_int64(stmt, 6),
            .wall_ns = sqlite3_column_int64(stmt, 7),
            .ended = sqlite3_column_int64(stmt, 8),
        };
        status = weft_records_sink_process(sink, &row);
    }
    return select_close(from, path, code, sink, stmt, status);
}

static weft_status copy_meta(sqlite3 *from, const char *path, struct records_sink *sink)
{
    sqlite3_stmt *stmt = NULL;
    int code = SQLITE_DONE;
    weft_status status = select_open(
        from, path, "SELECT key, value FROM meta WHERE key <> 'schema_version'", sink, &stmt);
    while (status == WEFT_OK && (code = sqlite3_step(stmt)) == SQLITE_ROW) {
        status = weft_records_sink_meta(sink, text_of(stmt, 0), text_of(stmt, 1));
    }
    return select_close(from, path, code, sink, stmt, status);
}

static weft_status add_database(struct records_sink *sink, const char *path)
{
    struct weft_recdb from;
    int64_t add = renumbered(sink->processes_before, sink->sum.processes);
    weft_status status = weft_recdb_open(&path, 1, &from);
    if (status != WEFT_OK) {
        *sink->error = from.error;
    } else {
        status = copy_meta(from.sqlite, path, sink);
    }
    for (int t = 0; status == WEFT_OK && t < TABLE_COUNT; t++) {
        status = copy_table(&from, path, sink, (enum weft_records_table)t, add);
    }
    if (status == WEFT_OK) {
        status = copy_processes(from.sqlite, path, sink, add);
    }
    weft_recdb_close(&from);
    return status;
}

/* ---- writing a file -------------------------------------------------------------------------- */

static bool is_lines(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot != NULL && strcmp(dot, ".jsonl") == 0;
}

ssize_t weft_records_start(const char *path, char *start_p, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would wait for a writer */
    ssize_t got = fd >= 0 ? read(fd, start_p, bytes) : -1;
    if (fd >= 0) {
        int why = errno;
        (void)close(fd);
        errno = why;
    }
    return got;
}

bool weft_records_is_json(const char *path)
{
    char start[8];
    return weft_records_start(path, start, sizeof(start)) == sizeof(start) &&
           memcmp(start, "{\"table\"", sizeof(start)) == 0;
}

static weft_status sink_open(struct records_sink *sink, const char *path, bool fresh)
{
    sink->path = path;
    if (is_lines(path)) {
        sink->lines = fopen(path, fresh ? "we" : "a+e");
        if (sink->lines == NULL) {
            return weft_fail(sink->error, WEFT_IO, "cannot write %.400s: %s", path,
                             strerror(errno));
        }
        (void)flock(fileno(sink->lines), LOCK_EX); /* held until it is closed: one process at a
                                                    * time */
        return fresh ? WEFT_OK : weft_records_sink_take_lines(sink);
    }
    char name[WEFT_RECORDS_PATH_BYTES];
    if (sqlite3_open(weft_records_file_name(path, name), &sink->db) != SQLITE_OK) {
        return weft_records_sql_fail(sink->db, path, sink->error);
    }
    /* A new file needs no journal: it is removed on failure. */
    return fresh ? weft_records_sql(sink->db, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF",
                                    path, sink->error)
                 : WEFT_OK;
}

static weft_status make(const char *const *inputs, uint32_t count, const char *path, bool fresh,
                        const char *command, struct weft_records_sum *sum_p,
                        struct weft_error *error)
{
    struct records_sink sink = {.error = error};
    weft_status status = sink_open(&sink, path, fresh);
    status = status == WEFT_OK ? weft_records_sink_begin(&sink) : status;
    if (status == WEFT_OK && command != NULL) {
        status = weft_records_sink_meta(&sink, "command", command);
    }
    for (uint32_t i = 0; status == WEFT_OK && i < count; i++) {
        status = weft_recdb_is_sqlite(inputs[i]) ? add_database(&sink, inputs[i])
                                                 : add_spool(&sink, inputs[i]);
    }
    status = status == WEFT_OK ? weft_records_sink_end(&sink) : status;
    if (status != WEFT_OK && sink.lines != NULL) {
        struct weft_error other = {.text = ""}; /* the first error is the one to report */
        sink.error = &other;
        (void)weft_records_sink_cut_lines(&sink);
    }
    *sum_p = sink.sum;
    weft_records_sink_fini(&sink);
    return status;
}

/* A process that is killed while it adds to a database leaves a journal beside it, which whoever
 * opens the database next rolls back: also one that has taken its name since. So let SQLite do that
 * first. */
static weft_status recover(const char *path, const char *journal, struct weft_error *error)
{
    struct stat about;
    if (is_lines(path) || stat(journal, &about) != 0) {
        return WEFT_OK;
    }
    if (stat(path, &about) != 0) { /* the journal of a file that was removed */
        return unlink(journal) == 0
                   ? WEFT_OK
                   : weft_fail(error, WEFT_IO, "cannot remove %.400s: %s", journal,
                               strerror(errno));
    }
    sqlite3 *db = NULL;
    char address[WEFT_RECORDS_PATH_BYTES];
    weft_status status =
        sqlite3_open_v2(weft_records_file_name(path, address), &db, SQLITE_OPEN_READWRITE, NULL) ==
                SQLITE_OK
            ? weft_records_sql(db, "SELECT count(*) FROM sqlite_schema", path, error)
            : weft_records_sql_fail(db, path, error);
    sqlite3_close(db);
    return status;
}

/* After success the caller may remove the inputs, so the new name is durable, too. */
static weft_status replace_with(const char *made, const char *path, struct weft_error *error)
{
    int fd = open(made, O_RDONLY | O_CLOEXEC);
    bool good = fd >= 0 && fsync(fd) == 0 && rename(made, path) == 0 &&
                weft_file_sync_name(path) == WEFT_OK;
    int why = errno;
    if (fd >= 0) {
        (void)close(fd);
    }
    return good ? WEFT_OK
                : weft_fail(error, WEFT_IO, "cannot make %.400s: %s", path, strerror(why));
}

/* What is made beside a file, and removed before, is no input. */
static weft_status check_beside(const char *const *inputs, uint32_t count, const char *beside,
                                struct weft_error *error)
{
    struct stat about, input;
    const bool is_there = stat(beside, &about) == 0;
    for (uint32_t i = 0; is_there && i < count; i++) {
        if (stat(inputs[i], &input) == 0 && input.st_dev == about.st_dev &&
            input.st_ino == about.st_ino) {
            return weft_fail(error, WEFT_IO,
                             "cannot write %.400s, which is made first: it is an input; rename it, "
                             "or name another output",
                             beside);
        }
    }
    return WEFT_OK;
}

/* `path` is no link. */
static weft_status replace_file(const char *const *inputs, uint32_t count, const char *path,
                                const char *command, struct weft_records_sum *sum_p,
                                struct weft_error *error)
{
    char fresh[WEFT_RECORDS_PATH_BYTES];
    const char *extension = is_lines(path) ? ".jsonl" : "";
    int bytes = snprintf(fresh, sizeof(fresh), "%s.new%s", path, extension);
    if (bytes >= (int)sizeof(fresh)) {
        return weft_fail(error, WEFT_INVALID, "the name of the records is too long");
    }
    char journal[WEFT_RECORDS_PATH_BYTES + sizeof("-journal")];
    (void)snprintf(journal, sizeof(journal), "%s-journal", path);
    weft_status status = check_beside(inputs, count, fresh, error);
    status = status == WEFT_OK ? check_beside(inputs, count, journal, error) : status;
    status = status == WEFT_OK ? recover(path, journal, error) : status;
    if (status != WEFT_OK) {
        return status;
    }
    (void)unlink(fresh); /* left by a run that was killed here */
    status = make(inputs, count, fresh, true, command, sum_p, error);
    status = status == WEFT_OK ? replace_with(fresh, path, error) : status;
    if (status != WEFT_OK) {
        (void)unlink(fresh);
    }
    return status;
}

weft_status weft_records_make(const char *const *inputs, uint32_t count, const char *path,
                              bool replace, const char *command, struct weft_records_sum *sum_p,
                              struct weft_error *error)
{
    if (!replace) {
        return make(inputs, count, path, false, command, sum_p, error);
    }
    char *target = NULL; /* a link is kept */
    if (weft_file_target(path, &target) != WEFT_OK) {
        return weft_fail(error, WEFT_IO, "cannot make %.400s: %s", path, strerror(errno));
    }
    weft_status status = replace_file(inputs, count, target, command, sum_p, error);
    free(target);
    return status;
}

weft_status weft_records_check_path(const char *path, bool replace, struct weft_error *error)
{
    struct stat about;
    if (stat(path, &about) == 0) {
        if (S_ISDIR(about.st_mode)) {
            return weft_fail(error, WEFT_IO, "cannot write %.400s: it is a directory", path);
        }
        if (!S_ISREG(about.st_mode)) { /* a device would be replaced */
            return weft_fail(error, WEFT_IO,
                             "cannot write %.400s: it is not a regular file; name another", path);
        }
        if (!replace) {
            return weft_fail(error, WEFT_EXISTS,
                             "%.400s exists already; name another file, or remove it", path);
        }
    }
    /* A file at the end of a link is created, or replaced, in its own directory. */
    char *target = NULL;
    const bool good =
        weft_file_target(path, &target) == WEFT_OK && access(dirname(target), W_OK | X_OK) == 0;
    weft_status status =
        good ? WEFT_OK
             : weft_fail(error, WEFT_IO, "cannot write %.400s: %s", path, strerror(errno));
    free(target);
    return status;
}
