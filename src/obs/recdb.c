#include "obs/recdb.h"

#include "obs/records_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

const char *const weft_recdb_tables[] = {"meta",          "process", "rpc",       "served",
                                         "active",        "hot",     "hot_total", "aggregate_in",
                                         "aggregate_out", NULL};
const char *const weft_recdb_about[] = {"command", "host", "started_utc", "weft_version", NULL};

const char *weft_recdb_stage_name(unsigned stage)
{
    static const char *const names[] = {"N_tx",    "PS_queue", "PS_wait",
                                        "PS_proc", "W_queue",  "W_proc"};
    return stage < WEFT_RECDB_STAGES ? names[stage] : "?";
}

const char *weft_recdb_kind_name(unsigned kind)
{
    return kind == WEFT_RECDB_PUSH ? "push" : "pull";
}

/* ---- failures -------------------------------------------------------------------------------- */

static bool fail(struct weft_recdb *db, weft_status status, const char *file, const char *what)
{
    if (db->status == WEFT_OK) {
        db->status =
            weft_fail(&db->error, status, "%.400s%s%s", file, file[0] != '\0' ? ": " : "", what);
    }
    return false;
}

static bool sqlite_failed(struct weft_recdb *db, const char *file)
{
    char what[256];
    const bool is_damaged = weft_records_sql_status(db->sqlite) == WEFT_DATA;
    snprintf(what, sizeof(what), "%s%.200s%s",
             is_damaged ? "the file is truncated or damaged (" : "", sqlite3_errmsg(db->sqlite),
             is_damaged ? ")" : "");
    return fail(db, weft_records_sql_status(db->sqlite), file, what);
}

void weft_recdb_no_memory(struct weft_recdb *db)
{
    (void)fail(db, WEFT_NOMEM, "", "out of memory");
}

/* ---- opening --------------------------------------------------------------------------------- */

static const char sqlite_magic[] = "SQLite format 3"; /* with its zero byte */

bool weft_recdb_is_sqlite(const char *path)
{
    char start[sizeof(sqlite_magic)];
    return weft_records_start(path, start, sizeof(start)) == sizeof(start) &&
           memcmp(start, sqlite_magic, sizeof(start)) == 0;
}

static bool check_file(struct weft_recdb *db, const char *path)
{
    char start[8] = "";
    if (weft_records_start(path, start, sizeof(start)) < 0) {
        return fail(db, WEFT_IO, path, strerror(errno));
    }
    if (weft_recdb_is_sqlite(path)) {
        return true;
    }
    if (memcmp(start, WEFT_SPOOL_MAGIC_START, sizeof(WEFT_SPOOL_MAGIC_START) - 1) == 0) {
        return fail(db, WEFT_DATA, path,
                    "is a spool, of a process that was killed or still runs; convert it with `weft "
                    "trace merge`");
    }
    if (memcmp(start, "WEFT", 4) == 0) {
        return fail(db, WEFT_DATA, path,
                    "is a trace of packets, not a database of records; `weft trace summary`, "
                    "`msg` and `qlog` read it");
    }
    return fail(db, WEFT_DATA, path,
                weft_records_is_json(path)
                    ? WEFT_RECORDS_JSON_WORDS
                    : "is not a database of records; `--records FILE` of a run makes one");
}

/* The first file is SQLite's "main". */
static const char *schema_name(unsigned idx, char name[16])
{
    snprintf(name, 16, idx == 0 ? "main" : "r%u", idx);
    return name;
}

/* Read-only, as the first file was opened. */
static bool attach(struct weft_recdb *db, unsigned idx)
{
    char name[16], path[WEFT_RECORDS_PATH_BYTES];
    sqlite3_stmt *statement = NULL;
    bool good =
        sqlite3_prepare_v2(db->sqlite, "ATTACH ? AS ?", -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_bind_text(statement, 1, weft_records_file_name(db->files[idx], path), -1,
                          SQLITE_STATIC) == SQLITE_OK &&
        sqlite3_bind_text(statement, 2, schema_name(idx, name), -1, SQLITE_STATIC) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_DONE;
    sqlite3_finalize(statement);
    return good || sqlite_failed(db, db->files[idx]);
}

static bool check_schema(struct weft_recdb *db, unsigned idx)
{
    char schema[16], sql[96];
    schema_name(idx, schema);
    for (int t = 0; t < WEFT_RECDB_TABLES_MUST; t++) {
        const char *table = weft_recdb_tables[t];
        snprintf(sql, sizeof(sql), "SELECT 1 FROM %s.%s LIMIT 1", schema, table);
        /* Not a view, which could compute without end. */
        if (sqlite3_table_column_metadata(db->sqlite, schema, table, NULL, NULL, NULL, NULL, NULL,
                                          NULL) != SQLITE_OK ||
            sqlite3_exec(db->sqlite, sql, NULL, NULL, NULL) != SQLITE_OK) {
            char what[128];
            snprintf(what, sizeof(what),
                     "is not a database of records, or is truncated: its table %s is missing or "
                     "damaged",
                     table);
            return fail(db, WEFT_DATA, db->files[idx], what);
        }
    }
    sqlite3_stmt *statement =
        weft_recdb_query(db, "SELECT 1 FROM %s.meta WHERE key = 'schema_version' AND value = '%s'",
                         schema, WEFT_RECORDS_SCHEMA_VERSION);
    return weft_recdb_number(db, statement) == 1 ||
           fail(db, WEFT_DATA, db->files[idx],
                "has a schema version that this weft does not know; use the release that wrote it");
}

/* SQLite notices that pages are missing, but reads the missing end of the last one as zeros. */
static bool check_size(struct weft_recdb *db, unsigned idx)
{
    char schema[16];
    struct stat about;
    const uint64_t page = weft_recdb_number(
        db, weft_recdb_query(db, "PRAGMA %s.page_size", schema_name(idx, schema)));
    return db->status == WEFT_OK &&
           (page == 0 || stat(db->files[idx], &about) != 0 || (uint64_t)about.st_size % page == 0 ||
            fail(db, WEFT_DATA, db->files[idx], "the file is truncated"));
}

static bool has_table(struct weft_recdb *db, unsigned idx, const char *table)
{
    char schema[16];
    return weft_recdb_number(
               db,
               weft_recdb_query(
                   db, "SELECT count(*) FROM %s.sqlite_schema WHERE type = 'table' AND name = %Q",
                   schema_name(idx, schema), table)) > 0;
}

static uint64_t column_count(struct weft_recdb *db, unsigned idx, const char *table)
{
    char schema[16];
    return weft_recdb_number(db,
                             weft_recdb_query(db, "SELECT count(*) FROM pragma_table_info(%Q, %Q)",
                                              table, schema_name(idx, schema)));
}

/* Index of the file whose table has the most columns, the first of several; file_count if none has
 * the table. */
static unsigned widest_with(struct weft_recdb *db, const char *table)
{
    unsigned widest = db->file_count;
    uint64_t most = 0;
    for (unsigned i = 0; i < db->file_count; i++) {
        const uint64_t count = has_table(db, i, table) ? column_count(db, i, table) : 0;
        widest = count > most ? i : widest;
        most = weft_max_u64(most, count);
    }
    return widest;
}

/* Create an empty table in place of one that all files lack. */
static bool make_absent(struct weft_recdb *db, const char *table)
{
    const struct records_table *about = weft_records_tables;
    while (strcmp(about->name, table) != 0) {
        about++;
    }
    sqlite3_str *sql = sqlite3_str_new(db->sqlite);
    sqlite3_str_appendf(sql, "CREATE TEMP TABLE %s(", table);
    for (unsigned c = 0; c < about->column_count; c++) {
        sqlite3_str_appendf(sql, "%s%s INTEGER", c > 0 ? ", " : "", about->columns[c]);
    }
    sqlite3_str_appendall(sql, ")");
    char *text = sqlite3_str_finish(sql);
    if (text == NULL) {
        weft_recdb_no_memory(db);
    } else if (sqlite3_exec(db->sqlite, text, NULL, NULL, NULL) != SQLITE_OK) {
        (void)sqlite_failed(db, db->files[0]);
    }
    sqlite3_free(text);
    return db->status == WEFT_OK;
}

/* "t.a, t.b, NULL AS c": the columns of the widest table, for a file whose table may have fewer.
 * Releases add columns at the end only, so a table with fewer columns has the first of them.
 * Without "t." SQLite treats a quoted name that is not a column as a string. */
static void append_columns(struct weft_recdb *db, sqlite3_str *sql, const char *table,
                           unsigned widest, unsigned idx)
{
    char schema[16];
    const uint64_t own = column_count(db, idx, table);
    sqlite3_stmt *statement =
        weft_recdb_query(db, "PRAGMA %s.table_info(%s)", schema_name(widest, schema), table);
    for (uint64_t c = 0; weft_recdb_row(db, statement); c++) {
        sqlite3_str_appendf(sql, "%s%s\"%w\"", c > 0 ? ", " : "", c < own ? "t." : "NULL AS ",
                            sqlite3_column_text(statement, 1));
    }
    sqlite3_finalize(statement);
}

/* "SELECT t.a, t.b FROM main.rpc AS t UNION ALL SELECT t.a, NULL AS b FROM r1.rpc AS t ...", of the
 * files that have the table.
 * Owns: gives the result, for sqlite3_free; NULL = out of memory. */
static char *union_sql(struct weft_recdb *db, const char *table, unsigned widest)
{
    char schema[16];
    sqlite3_str *sql = sqlite3_str_new(db->sqlite);
    for (unsigned i = 0; i < db->file_count; i++) {
        if (has_table(db, i, table)) {
            sqlite3_str_appendf(sql, "%sSELECT ", sqlite3_str_length(sql) > 0 ? " UNION ALL " : "");
            append_columns(db, sql, table, widest, i);
            sqlite3_str_appendf(sql, " FROM %s.%s AS t", schema_name(i, schema), table);
        }
    }
    return sqlite3_str_finish(sql);
}

/* A view hides the first file's table of the same name. */
static bool make_view(struct weft_recdb *db, const char *table)
{
    const unsigned widest = widest_with(db, table);
    if (widest == db->file_count) {
        return make_absent(db, table);
    }
    char *select = union_sql(db, table, widest);
    char *sql = select != NULL ? sqlite3_mprintf("CREATE TEMP VIEW %s AS %s", table, select) : NULL;
    sqlite3_stmt *statement = NULL;
    if (sql == NULL) {
        weft_recdb_no_memory(db);
    } else if (sqlite3_prepare_v2(db->sqlite, select, -1, &statement, NULL) != SQLITE_OK ||
               sqlite3_exec(db->sqlite, sql, NULL, NULL, NULL) != SQLITE_OK) {
        (void)fail(db, WEFT_DATA, "the files' columns differ, so they are not of one run",
                   sqlite3_errmsg(db->sqlite));
    }
    sqlite3_finalize(statement);
    sqlite3_free(select);
    sqlite3_free(sql);
    return db->status == WEFT_OK;
}

weft_status weft_recdb_open(const char *const *files, unsigned count, struct weft_recdb *db_p)
{
    char path[WEFT_RECORDS_PATH_BYTES];
    *db_p = (struct weft_recdb){.files = files, .file_count = count};
    if (count > WEFT_RECDB_FILES_MAX) {
        (void)fail(db_p, WEFT_INVALID, "",
                   "more than 10 files; merge them with `weft trace merge` first");
        return db_p->status;
    }
    for (unsigned i = 0; i < count; i++) {
        if (!check_file(db_p, files[i])) {
            return db_p->status;
        }
    }
    if (sqlite3_open_v2(weft_records_file_name(files[0], path), &db_p->sqlite, SQLITE_OPEN_READONLY,
                        NULL) != SQLITE_OK) {
        (void)sqlite_failed(db_p, files[0]);
        return db_p->status;
    }
    /* The file is untrusted: its schema must not run functions, and damaged pages must be
     * detected. */
    (void)sqlite3_db_config(db_p->sqlite, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    (void)sqlite3_db_config(db_p->sqlite, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    (void)sqlite3_exec(db_p->sqlite, "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0", NULL,
                       NULL, NULL);
    bool good = check_schema(db_p, 0) && check_size(db_p, 0);
    for (unsigned i = 1; good && i < count; i++) {
        good = attach(db_p, i) && check_schema(db_p, i) && check_size(db_p, i);
    }
    for (size_t i = count > 1 ? 0 : WEFT_RECDB_TABLES_MUST; good && weft_recdb_tables[i] != NULL;
         i++) {
        const char *table = weft_recdb_tables[i];
        good = count > 1 ? make_view(db_p, table)
                         : has_table(db_p, 0, table) || make_absent(db_p, table);
    }
    return db_p->status;
}

void weft_recdb_close(struct weft_recdb *db)
{
    if (db->sqlite != NULL) {
        (void)sqlite3_close(db->sqlite);
        db->sqlite = NULL;
    }
}

/* The file name for an error of SQLite, if there is only one file. */
static const char *only_file(const struct weft_recdb *db)
{
    return db->file_count == 1 ? db->files[0] : "";
}

/* ---- queries --------------------------------------------------------------------------------- */

sqlite3_stmt *weft_recdb_query(struct weft_recdb *db, const char *format, ...)
{
    sqlite3_stmt *statement = NULL;
    va_list args;
    va_start(args, format);
    char *sql = sqlite3_vmprintf(format, args);
    va_end(args);
    if (sql == NULL) {
        weft_recdb_no_memory(db);
    } else if (sqlite3_prepare_v2(db->sqlite, sql, -1, &statement, NULL) != SQLITE_OK) {
        (void)sqlite_failed(db, only_file(db));
    }
    sqlite3_free(sql);
    return statement;
}

bool weft_recdb_row(struct weft_recdb *db, sqlite3_stmt *statement)
{
    int result = statement != NULL ? sqlite3_step(statement) : SQLITE_DONE;
    if (result == SQLITE_ROW) {
        return true;
    }
    return result == SQLITE_DONE ? false : sqlite_failed(db, only_file(db));
}

bool weft_recdb_has_column(struct weft_recdb *db, const char *table, const char *column)
{
    return weft_recdb_number(
               db,
               weft_recdb_query(db, "SELECT count(*) FROM pragma_table_info(%Q) WHERE name = %Q",
                                table, column)) > 0;
}

uint64_t weft_recdb_u64(sqlite3_stmt *statement, int column)
{
    int64_t value = sqlite3_column_int64(statement, column);
    return value > 0 ? (uint64_t)value : 0;
}

uint64_t weft_recdb_number(struct weft_recdb *db, sqlite3_stmt *statement)
{
    uint64_t number = weft_recdb_row(db, statement) ? weft_recdb_u64(statement, 0) : 0;
    sqlite3_finalize(statement);
    return number;
}

const char *weft_recdb_meta(struct weft_recdb *db, const char *key)
{
    char *value = db->meta;
    sqlite3_stmt *statement = weft_recdb_query(db, "SELECT value FROM meta WHERE key = ? LIMIT 1");
    value[0] = '\0';
    if (statement != NULL && sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC) == SQLITE_OK &&
        weft_recdb_row(db, statement)) {
        const unsigned char *text = sqlite3_column_text(statement, 0);
        snprintf(value, sizeof(db->meta), "%s", text != NULL ? (const char *)text : "");
        for (char *at = value; *at != '\0'; at++) {
            bool moves = (unsigned char)*at < ' ' || *at == 0x7f; /* terminal control sequences */
            *at = moves ? '?' : *at;
        }
    }
    sqlite3_finalize(statement);
    return value;
}

/* ---- RPCs ------------------------------------------------------------------------------------ */

sqlite3_stmt *weft_recdb_scan(struct weft_recdb *db, const char *more, const char *tail)
{
    return weft_recdb_query(
        db,
        "SELECT rpc.worker, rpc.server, rpc.rpc, rpc.iteration, rpc.kind, rpc.status, rpc.rows,"
        " rpc.t0_ns, rpc.t1_ns, rpc.request_bytes, rpc.reply_bytes, rpc.n_tx_ns, rpc.ps_queue_ns,"
        " rpc.ps_wait_ns, rpc.ps_proc_ns, rpc.w_queue_ns, rpc.w_proc_ns, rpc.ps_overlap_ns,"
        " rpc.tbl%s FROM rpc %s",
        more, tail);
}

/* Times stay below 2^56 ns (two years), so that sums of them do not overflow. */
static bool fits(int64_t value)
{
    return value >= 0 && value < INT64_C(1) << 56;
}

static bool take(sqlite3_stmt *scan, struct weft_recdb_rpc *rpc_p)
{
    enum { NUMBERS = WEFT_RECDB_MORE, KIND = 4, STATUS = 5, RPC = 2 };
    int64_t n[NUMBERS];
    for (int i = 0; i < NUMBERS; i++) {
        n[i] = sqlite3_column_int64(scan, i);
        if (i != STATUS && i != RPC && !(i == 7 || i == 8 ? n[i] >= 0 : fits(n[i]))) {
            return false;
        }
    }
    if (n[0] > UINT32_MAX || n[1] > UINT32_MAX || n[18] > UINT32_MAX || n[KIND] < 1 ||
        n[KIND] > WEFT_RECDB_KINDS || n[8] < n[7] || !fits(n[8] - n[7])) {
        return false;
    }
    *rpc_p = (struct weft_recdb_rpc){
        .worker = (uint32_t)n[0],
        .server = (uint32_t)n[1],
        .rpc = (uint64_t)n[RPC],
        .iteration = (uint64_t)n[3],
        .kind = (unsigned)n[KIND] - 1,
        .status = n[STATUS],
        .rows = (uint64_t)n[6],
        .t0_ns = (uint64_t)n[7],
        .t1_ns = (uint64_t)n[8],
        .request_bytes = (uint64_t)n[9],
        .reply_bytes = (uint64_t)n[10],
        .overlap_ns = (uint64_t)n[17],
        .table = (uint32_t)n[18],
        .total_ns = (uint64_t)(n[8] - n[7] + n[15] + n[16]),
    };
    for (int i = 0; i < WEFT_RECDB_STAGES; i++) {
        rpc_p->stage_ns[i] = (uint64_t)n[11 + i];
    }
    return true;
}

bool weft_recdb_next(struct weft_recdb *db, sqlite3_stmt *scan, struct weft_recdb_rpc *rpc_p)
{
    while (weft_recdb_row(db, scan)) {
        if (take(scan, rpc_p)) {
            return true;
        }
        db->refused++;
    }
    return false;
}

sqlite3_stmt *weft_recdb_served_scan(struct weft_recdb *db, const char *where, const char *order)
{
    return weft_recdb_query(db,
                            "SELECT worker, server, kind, ps_queue_ns, ps_wait_ns, ps_proc_ns,"
                            " arrival_ns, rpc FROM served %s %s",
                            where, order);
}

bool weft_recdb_served_next(struct weft_recdb *db, sqlite3_stmt *scan,
                            struct weft_recdb_served *served_p)
{
    while (weft_recdb_row(db, scan)) {
        int64_t n[8];
        bool good = true;
        for (int i = 0; i < 8; i++) {
            n[i] = sqlite3_column_int64(scan, i);
            good = good && (i < 3   ? n[i] >= 0 && n[i] <= UINT32_MAX
                            : i < 6 ? fits(n[i])
                                    : n[i] >= 0);
        }
        if (good && n[2] >= 1 && n[2] <= WEFT_RECDB_KINDS && n[6] < INT64_MAX / 2) {
            *served_p = (struct weft_recdb_served){
                .worker = (uint32_t)n[0],
                .server = (uint32_t)n[1],
                .kind = (unsigned)n[2] - 1,
                .queue_ns = (uint64_t)n[3],
                .wait_ns = (uint64_t)n[4],
                .proc_ns = (uint64_t)n[5],
                .arrival_ns = (uint64_t)n[6],
                .rpc = (uint64_t)n[7],
            };
            return true;
        }
        db->refused++;
    }
    return false;
}
