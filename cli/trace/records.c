#include "cli/trace/records.h"

#include "cli/output.h"
#include "obs/records_db.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const weft_recdb_tables[] = {"meta",   "process", "rpc",       "served",
                                         "active", "hot",     "hot_total", NULL};
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

void *weft_recdb_need(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "weft trace: out of memory\n");
        exit(1);
    }
    return memory;
}

int weft_recdb_parse(struct weft_command *command, struct weft_recdb_files *files_p, int argc,
                     char **argv)
{
    *files_p = (struct weft_recdb_files){0};
    command->arguments = "FILE...";
    command->operands = &files_p->paths;
    command->operand_count = &files_p->count;
    int status = weft_options_parse(command, argc, argv);
    return status == WEFT_OPTIONS_RUN && files_p->count == 0
               ? weft_options_usage(command, "which file? weft %s FILE", command->name)
               : status;
}

int weft_recdb_run(const struct weft_command *command, const struct weft_recdb_files *files,
                   bool (*run)(struct weft_recdb *db, void *arg), void *arg)
{
    struct weft_recdb db;
    bool good = weft_recdb_open(command->name, files->paths, files->count, &db) && run(&db, arg);
    weft_recdb_close(&db);
    return good && weft_output_close(command->name, NULL, stdout, true) ? WEFT_EXIT_OK
                                                                       : WEFT_EXIT_FAILED;
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool said(struct weft_recdb *db, const char *file, const char *what)
{
    if (!db->said) {
        fprintf(stderr, "weft %s: %s%s%s\n", db->verb, file, file[0] != '\0' ? ": " : "", what);
        db->said = true;
    }
    return false;
}

static bool sqlite_said(struct weft_recdb *db)
{
    return said(db, db->file_count == 1 ? db->files[0] : "", sqlite3_errmsg(db->sqlite));
}

static size_t read_start(const char *path, char *start, size_t bytes)
{
    FILE *file = fopen(path, "rbe");
    if (file == NULL) {
        return SIZE_MAX;
    }
    errno = 0; /* a folder opens, and cannot be read */
    size_t got = fread(start, 1, bytes, file);
    bool bad = ferror(file) != 0;
    int error = errno;
    fclose(file);
    errno = error;
    return bad ? SIZE_MAX : got;
}

static const char sqlite_magic[] = "SQLite format 3"; /* with its zero byte */

bool weft_recdb_is_sqlite(const char *path)
{
    char start[sizeof(sqlite_magic)];
    return read_start(path, start, sizeof(start)) == sizeof(start) &&
           memcmp(start, sqlite_magic, sizeof(start)) == 0;
}

static bool check_file(struct weft_recdb *db, const char *path)
{
    char start[sizeof(sqlite_magic)];
    size_t got = read_start(path, start, sizeof(start));
    if (got == SIZE_MAX) {
        return said(db, path, strerror(errno));
    }
    if (got == sizeof(start) && memcmp(start, sqlite_magic, sizeof(start)) == 0) {
        return true;
    }
    if (got >= 4 && memcmp(start, "WEFT", 4) == 0) {
        return said(db, path,
                    "is a trace of packets, not a database of records; `weft trace summary`, "
                    "`msg` and `qlog` read it");
    }
    if (weft_records_is_json(path)) {
        return said(db, path, WEFT_RECORDS_JSON_WORDS);
    }
    return said(db, path, "is no database of records; `--records FILE` of a run makes one");
}

/* As r1, r2, ...; read-only, as the first file was opened. */
static bool attach(struct weft_recdb *db, unsigned idx)
{
    char name[16];
    sqlite3_stmt *statement = NULL;
    snprintf(name, sizeof(name), "r%u", idx);
    bool good =
        sqlite3_prepare_v2(db->sqlite, "ATTACH ? AS ?", -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_bind_text(statement, 1, db->files[idx], -1, SQLITE_STATIC) == SQLITE_OK &&
        sqlite3_bind_text(statement, 2, name, -1, SQLITE_STATIC) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_DONE;
    sqlite3_finalize(statement);
    return good || said(db, db->files[idx], sqlite3_errmsg(db->sqlite));
}

static bool has_table(struct weft_recdb *db, const char *schema, const char *table)
{
    char *sql = weft_recdb_need(sqlite3_mprintf("SELECT 1 FROM %s.%s LIMIT 1", schema, table));
    sqlite3_stmt *statement = NULL;
    bool good = sqlite3_prepare_v2(db->sqlite, sql, -1, &statement, NULL) == SQLITE_OK;
    int result = good ? sqlite3_step(statement) : SQLITE_ERROR;
    sqlite3_finalize(statement);
    sqlite3_free(sql);
    return result == SQLITE_ROW || result == SQLITE_DONE;
}

static bool check_schema(struct weft_recdb *db, unsigned idx)
{
    char schema[16] = "main";
    if (idx > 0) {
        snprintf(schema, sizeof(schema), "r%u", idx);
    }
    for (const char *const *table = weft_recdb_tables; *table != NULL; table++) {
        if (!has_table(db, schema, *table)) {
            char what[96];
            snprintf(what, sizeof(what),
                     "is no database of records: its table %s is missing, or damaged", *table);
            return said(db, db->files[idx], what);
        }
    }
    sqlite3_stmt *statement = weft_recdb_query(
        db, "SELECT 1 FROM %s.meta WHERE key = 'schema_version' AND value = '1'", schema);
    return weft_recdb_number(db, statement) == 1 ||
           said(db, db->files[idx], "is of a version of the schema that this weft does not know");
}

/* "SELECT a, b FROM main.t UNION ALL SELECT a, b FROM r1.t ..." with the first file's columns. */
static char *union_sql(struct weft_recdb *db, const char *table)
{
    char *columns = sqlite3_mprintf("");
    sqlite3_stmt *statement = weft_recdb_query(db, "PRAGMA main.table_info(%s)", table);
    while (weft_recdb_row(db, statement)) {
        columns = sqlite3_mprintf("%z%s\"%w\"", columns, columns[0] != '\0' ? ", " : "",
                                  sqlite3_column_text(statement, 1));
        weft_recdb_need(columns);
    }
    sqlite3_finalize(statement);
    char *sql = sqlite3_mprintf("SELECT %s FROM main.%s", columns, table);
    for (unsigned i = 1; i < db->file_count; i++) {
        sql = sqlite3_mprintf("%z UNION ALL SELECT %s FROM r%u.%s", sql, columns, i, table);
    }
    sqlite3_free(columns);
    return weft_recdb_need(sql);
}

/* A view hides the first file's table of the same name. */
static bool make_view(struct weft_recdb *db, const char *table)
{
    char *select = union_sql(db, table);
    char *sql = weft_recdb_need(sqlite3_mprintf("CREATE TEMP VIEW %s AS %s", table, select));
    sqlite3_stmt *statement = NULL;
    bool good = sqlite3_prepare_v2(db->sqlite, select, -1, &statement, NULL) == SQLITE_OK &&
                sqlite3_exec(db->sqlite, sql, NULL, NULL, NULL) == SQLITE_OK;
    sqlite3_finalize(statement);
    sqlite3_free(select);
    sqlite3_free(sql);
    return good || said(db, "the files' columns differ, so they are not of one run",
                        sqlite3_errmsg(db->sqlite));
}

bool weft_recdb_open(const char *verb, const char *const *files, unsigned count,
                     struct weft_recdb *db_p)
{
    *db_p = (struct weft_recdb){.verb = verb, .files = files, .file_count = count};
    if (count > WEFT_RECDB_FILES_MAX) {
        return said(db_p, "",
                    "these are more than 10 files; make one of them by `weft trace merge`");
    }
    for (unsigned i = 0; i < count; i++) {
        if (!check_file(db_p, files[i])) {
            return false;
        }
    }
    if (sqlite3_open_v2(files[0], &db_p->sqlite, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK) {
        return said(db_p, files[0], sqlite3_errmsg(db_p->sqlite));
    }
    /* The file may be anybody's: its schema runs no functions, a damaged page is noticed. */
    (void)sqlite3_db_config(db_p->sqlite, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    (void)sqlite3_db_config(db_p->sqlite, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    (void)sqlite3_exec(db_p->sqlite, "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0", NULL,
                       NULL, NULL);
    bool good = check_schema(db_p, 0);
    for (unsigned i = 1; good && i < count; i++) {
        good = attach(db_p, i) && check_schema(db_p, i);
    }
    for (size_t i = 0; good && count > 1 && weft_recdb_tables[i] != NULL; i++) {
        good = make_view(db_p, weft_recdb_tables[i]);
    }
    return good;
}

void weft_recdb_close(struct weft_recdb *db)
{
    if (db->sqlite != NULL) {
        (void)sqlite3_close(db->sqlite);
        db->sqlite = NULL;
    }
}

/* ---- questions ------------------------------------------------------------------------------- */

sqlite3_stmt *weft_recdb_query(struct weft_recdb *db, const char *format, ...)
{
    sqlite3_stmt *statement = NULL;
    va_list args;
    va_start(args, format);
    char *sql = weft_recdb_need(sqlite3_vmprintf(format, args));
    va_end(args);
    if (sqlite3_prepare_v2(db->sqlite, sql, -1, &statement, NULL) != SQLITE_OK) {
        (void)sqlite_said(db);
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
    return result == SQLITE_DONE ? false : sqlite_said(db);
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
    static char value[512];
    sqlite3_stmt *statement = weft_recdb_query(db, "SELECT value FROM meta WHERE key = ? LIMIT 1");
    value[0] = '\0';
    if (statement != NULL && sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC) == SQLITE_OK &&
        weft_recdb_row(db, statement)) {
        const unsigned char *text = sqlite3_column_text(statement, 0);
        snprintf(value, sizeof(value), "%s", text != NULL ? (const char *)text : "");
        for (char *at = value; *at != '\0'; at++) {
            bool moves = (unsigned char)*at < ' ' || *at == 0x7f; /* the cursor, or worse */
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

/* Times stay below this, so that sums of them do not wrap: 2^56 ns are two years. */
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

sqlite3_stmt *weft_recdb_served_scan(struct weft_recdb *db, const char *tail)
{
    return weft_recdb_query(db,
                            "SELECT worker, server, kind, ps_queue_ns, ps_wait_ns, ps_proc_ns,"
                            " arrival_ns, rpc FROM served %s",
                            tail);
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
