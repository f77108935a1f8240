/* `weft trace export`: records for other tools. Everything streams. */
#include "base/units.h"
#include "cli/options.h"
#include "cli/trace/cell.h"
#include "cli/trace/chrome.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum format { FORMAT_NONE, FORMAT_JSONL, FORMAT_CHROME, FORMAT_CSV };

struct query {
    enum format format;
    const char *table;
    const char *out;
    float from_s;
    float to_s;
    uint32_t worker;
    uint32_t server;
};

static const char *const tables[] = {"meta",   "process", "rpc",      "served",
                                     "active", "hot",     "hot_total"};

static const char *parse_format(const char *text, void *value)
{
    static const char *const names[] = {"", "jsonl", "chrome", "csv"};
    for (unsigned i = FORMAT_JSONL; i < WEFT_ARRAY_COUNT(names); i++) {
        if (strcmp(text, names[i]) == 0) {
            *(enum format *)value = i;
            return NULL;
        }
    }
    return "jsonl, chrome or csv";
}

static const char *parse_table(const char *text, void *value)
{
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(tables); i++) {
        if (strcmp(text, tables[i]) == 0) {
            *(const char **)value = tables[i];
            return NULL;
        }
    }
    return "meta, process, rpc, served, active, hot or hot_total";
}

/* The query's part of rpc or served as a WHERE. Seconds count from the first request.
 * Owns: gives it, for sqlite3_free. */
static char *where_of(struct weft_recdb *db, const struct query *query, const char *table)
{
    bool rpc = strcmp(table, "rpc") == 0;
    const char *time = rpc ? "t0_ns" : "arrival_ns";
    char *where = sqlite3_mprintf("WHERE 1");
    if (query->from_s > 0 || query->to_s > 0) {
        uint64_t first_ns = weft_recdb_number(db, "SELECT min(t0_ns) FROM rpc");
        where = sqlite3_mprintf("%z AND %s.%s >= %lld", where, table, time,
                                (long long)(first_ns + (uint64_t)(query->from_s * 1e9)));
        if (query->to_s > 0) {
            where = sqlite3_mprintf("%z AND %s.%s < %lld", where, table, time,
                                    (long long)(first_ns + (uint64_t)(query->to_s * 1e9)));
        }
    }
    if (query->worker != UINT32_MAX) {
        where = sqlite3_mprintf("%z AND %s.worker = %u", where, table, query->worker);
    }
    if (query->server != UINT32_MAX) {
        where = sqlite3_mprintf("%z AND %s.server = %u", where, table, query->server);
    }
    return weft_recdb_need(where);
}

static bool has_where(const char *table)
{
    return strcmp(table, "rpc") == 0 || strcmp(table, "served") == 0;
}

static void put_table(struct weft_recdb *db, const struct query *query, const char *table,
                      FILE *out)
{
    char *where = has_where(table) ? where_of(db, query, table) : NULL;
    char *sql =
        weft_recdb_need(sqlite3_mprintf("SELECT * FROM %s %s", table, where != NULL ? where : ""));
    sqlite3_stmt *statement = weft_recdb_query(db, sql);
    if (query->format == FORMAT_CSV && statement != NULL) {
        weft_recdb_csv_head(out, statement);
    }
    while (weft_recdb_row(db, statement)) {
        if (query->format == FORMAT_CSV) {
            weft_recdb_csv_row(out, statement);
        } else {
            weft_recdb_json_row(out, statement, table);
            fputc('\n', out);
        }
    }
    sqlite3_finalize(statement);
    sqlite3_free(sql);
    sqlite3_free(where);
}

static void put_chrome(struct weft_recdb *db, const struct query *query, FILE *out)
{
    struct weft_recdb_chrome_sum sum;
    char *where = where_of(db, query, "rpc");
    char *served_where = where_of(db, query, "served");
    if (weft_recdb_chrome(db, where, served_where, out, &sum)) {
        if (sum.unmatched > 0) {
            fprintf(stderr,
                    "weft trace export: of %" PRIu64 " RPCs the server's record is missing or on "
                    "another clock; their N_tx is drawn as two halves\n",
                    sum.unmatched);
        }
        if (sum.crowded > 0) {
            fprintf(stderr,
                    "weft trace export: %" PRIu64 " slices are left out: more than 999 at once in "
                    "one stage\n",
                    sum.crowded);
        }
        if (db->refused > 0) {
            fprintf(stderr, "weft trace export: %" PRIu64 " rows that cannot be are left out\n",
                    db->refused);
        }
    }
    sqlite3_free(where);
    sqlite3_free(served_where);
}

static bool put_all(struct weft_recdb *db, const struct query *query, FILE *out)
{
    if (query->format == FORMAT_CHROME) {
        put_chrome(db, query, out);
    } else if (query->table != NULL || query->format == FORMAT_CSV) {
        put_table(db, query, query->table != NULL ? query->table : "rpc", out);
    } else {
        for (size_t i = 0; i < WEFT_ARRAY_COUNT(tables); i++) {
            put_table(db, query, tables[i], out);
        }
    }
    return !db->said;
}

static bool write_out(struct weft_recdb *db, const struct query *query)
{
    FILE *out = query->out != NULL ? fopen(query->out, "we") : stdout;
    bool good = out != NULL;
    bool asked = good && put_all(db, query, out);
    good = good && fflush(out) == 0 && ferror(out) == 0;
    if (out != NULL && out != stdout) {
        good = fclose(out) == 0 && good;
    }
    if (!good) {
        fprintf(stderr, "weft trace export: %s: %s\n",
                query->out != NULL ? query->out : "standard output", strerror(errno));
    }
    return good && asked;
}

static int run(const char *const *files, unsigned count, const struct query *query)
{
    struct weft_recdb db;
    bool good = weft_recdb_open("trace export", files, count, &db) && write_out(&db, query);
    weft_recdb_close(&db);
    return good ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

/* What is wrong with the words, or NULL. */
static const char *objection(unsigned files, const struct query *query)
{
    if (files == 0) {
        return "which file? It comes first: weft trace export FILE --format chrome";
    }
    if (query->format == FORMAT_NONE) {
        return "--format is missing: jsonl, chrome or csv";
    }
    if (query->format == FORMAT_CHROME && query->table != NULL) {
        return "--table is for jsonl and csv";
    }
    if (query->to_s > 0 && query->to_s <= query->from_s) {
        return "--to must be later than --from";
    }
    return NULL;
}

int weft_cli_recdb_export(int argc, char **argv)
{
    struct query q = {.worker = UINT32_MAX, .server = UINT32_MAX};
    const char **files = weft_recdb_need(calloc((size_t)argc, sizeof(*files)));
    unsigned count = weft_recdb_take_words(&argc, argv, files);
    const struct weft_option options[] = {
        {"format", "F",
         "jsonl: a line for each row; csv: one table;\n"
         "chrome: a Chrome trace, for ui.perfetto.dev",
         WEFT_OPTION_CUSTOM, &q.format, .parse = parse_format, .fallback = ""},
        {"out", "OUT", "file to write; also -o OUT", WEFT_OPTION_STRING, .value = &q.out,
         .fallback = "standard output"},
        {"table", "NAME", "only this table of the database", WEFT_OPTION_CUSTOM, &q.table,
         .parse = parse_table, .fallback = "jsonl: all, csv: rpc"},
        {"from", "S", "RPCs that begin so many seconds after the first, or later", WEFT_OPTION_F32,
         &q.from_s, .fallback = "0"},
        {"to", "S", "and before so many seconds", WEFT_OPTION_F32, &q.to_s, .fallback = "the end"},
        {"worker", "W", "RPCs of this worker only", WEFT_OPTION_U32, &q.worker,
         .max = UINT32_MAX - 1, .fallback = "all"},
        {"server", "S", "RPCs to this server only", WEFT_OPTION_U32, &q.server,
         .max = UINT32_MAX - 1, .fallback = "all"},
        {0},
    };
    const struct weft_command command = {
        .name = "trace export FILE...",
        .summary = "records for other tools: Chrome trace, JSON lines, CSV",
        .description =
            "FILE is a database that --records wrote; several are parts of one run. A Chrome "
            "trace\n"
            "has a process for each worker and each server, a thread for each stage; --from, --to\n"
            "and --worker make it small enough for a browser. Nothing is held in memory.",
        .example = "  weft trace export run.db --format chrome --to 2 -o run.json\n"
                   "  weft trace export run.db --format csv --table active >active.csv\n"
                   "  weft trace export run.db --format jsonl | jq -c 'select(.table == \"rpc\")'",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status == WEFT_OPTIONS_RUN) {
        const char *why = objection(count, &q);
        status = why != NULL ? weft_options_usage(&command, "%s", why) : run(files, count, &q);
    }
    free(files);
    return status;
}
