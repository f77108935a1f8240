/* `weft trace export`: converts records for other tools. All output is streamed. */
#include "cli/trace/trace.h"
#include "obs/recdb_chrome.h"
#include "obs/recdb_text.h"

#include <inttypes.h>
#include <string.h>

enum { FORMAT_JSONL, FORMAT_CHROME, FORMAT_CSV };
enum { NOT_GIVEN = UINT32_MAX };

struct query {
    uint32_t format;
    uint32_t table; /* of weft_recdb_tables */
    const char *out;
    float from_s;
    float to_s;
    uint32_t worker;
    uint32_t server;
};

/* The time `seconds` after first_ns, as SQLite has it. */
static long long time_after(uint64_t first_ns, float seconds)
{
    const double ns = (double)first_ns + (double)seconds * 1e9;
    return ns < 0x1p63 ? (long long)(first_ns + (uint64_t)((double)seconds * 1e9)) : INT64_MAX;
}

/* The query's filter on rpc or served, as a WHERE clause. Seconds are relative to the first
 * request; without records of workers, to its arrival at a server.
 * Owns: gives it, for sqlite3_free. */
static char *where_of(struct weft_recdb *db, const struct query *query, const char *table)
{
    bool rpc = strcmp(table, "rpc") == 0;
    const char *time = rpc ? "t0_ns" : "arrival_ns";
    char *where = sqlite3_mprintf("WHERE 1");
    if (query->from_s > 0 || query->to_s > 0) {
        uint64_t first_ns = weft_recdb_number(
            db, weft_recdb_query(db, "SELECT coalesce((SELECT min(t0_ns) FROM rpc WHERE t0_ns >= 0),"
                                     " (SELECT min(arrival_ns) FROM served WHERE arrival_ns >= 0))"));
        where = sqlite3_mprintf("%z AND %s.%s >= %lld", where, table, time,
                                time_after(first_ns, query->from_s));
        if (query->to_s > 0) {
            where = sqlite3_mprintf("%z AND %s.%s < %lld", where, table, time,
                                    time_after(first_ns, query->to_s));
        }
    }
    if (query->worker != NOT_GIVEN) {
        where = sqlite3_mprintf("%z AND %s.worker = %u", where, table, query->worker);
    }
    if (query->server != NOT_GIVEN) {
        where = sqlite3_mprintf("%z AND %s.server = %u", where, table, query->server);
    }
    return weft_trace_need(where);
}

static bool has_where(const char *table)
{
    return strcmp(table, "rpc") == 0 || strcmp(table, "served") == 0;
}

static void put_table(struct weft_recdb *db, const struct query *query, const char *table,
                      FILE *out)
{
    char *where = has_where(table) ? where_of(db, query, table) : NULL;
    sqlite3_stmt *statement =
        weft_recdb_query(db, "SELECT * FROM %s %s", table, where != NULL ? where : "");
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
    sqlite3_free(where);
}

static void put_chrome(struct weft_recdb *db, const struct query *query, FILE *out)
{
    struct weft_recdb_chrome_sum sum;
    char *where = where_of(db, query, "rpc");
    char *served_where = where_of(db, query, "served");
    if (weft_recdb_chrome(db, where, served_where, out, &sum) == WEFT_OK) {
        if (sum.unmatched > 0) {
            fprintf(stderr,
                    "weft trace export: for %" PRIu64 " RPCs the server's record is missing or "
                    "from another clock; their N_tx is drawn as two halves\n",
                    sum.unmatched);
        }
        if (sum.crowded > 0) {
            fprintf(stderr,
                    "weft trace export: %" PRIu64 " slices are omitted: more than 999 at once in "
                    "one stage\n",
                    sum.crowded);
        }
        if (db->refused > 0) {
            fprintf(stderr, "weft trace export: %" PRIu64 " invalid rows are omitted\n",
                    db->refused);
        }
    }
    sqlite3_free(where);
    sqlite3_free(served_where);
}

static bool run(struct weft_recdb *db, void *arg)
{
    const struct query *query = arg;
    FILE *out = weft_output_open(query->out);
    if (out == NULL) {
        return weft_output_close("trace export", query->out, NULL, false);
    }
    bool all = query->table == NOT_GIVEN && query->format == FORMAT_JSONL;
    if (query->format == FORMAT_CHROME) {
        put_chrome(db, query, out);
    } else if (!all) {
        bool is_given = query->table != NOT_GIVEN;
        put_table(db, query, is_given ? weft_recdb_tables[query->table] : "rpc", out);
    }
    for (size_t i = 0; all && weft_recdb_tables[i] != NULL; i++) {
        put_table(db, query, weft_recdb_tables[i], out);
    }
    return weft_output_close("trace export", query->out, out, true);
}

/* The error in the options, or NULL. */
static const char *objection(const struct query *query)
{
    if (query->format == NOT_GIVEN) {
        return "--format is missing: jsonl, chrome or csv";
    }
    if (query->format == FORMAT_CHROME && query->table != NOT_GIVEN) {
        return "--table is for jsonl and csv";
    }
    if (query->to_s > 0 && query->to_s <= query->from_s) {
        return "--to must be later than --from";
    }
    return NULL;
}

int weft_cli_trace_export(int argc, char **argv)
{
    static const char *const formats[] = {"jsonl", "chrome", "csv", NULL};
    struct query q = {
        .format = NOT_GIVEN, .table = NOT_GIVEN, .worker = NOT_GIVEN, .server = NOT_GIVEN};
    struct weft_trace_files files;
    const struct weft_option options[] = {
        {"format", "F",
         "required: jsonl (one line per row), csv (one table), or chrome (a Chrome\n"
         "trace, for ui.perfetto.dev)",
         WEFT_OPTION_CHOICE, &q.format, .choices = formats, .fallback = ""},
        {"out", "OUT", "file to write; also -o OUT", WEFT_OPTION_STRING, .value = &q.out,
         .fallback = "standard output", .letter = 'o'},
        {"table", "NAME", "only this table of the database", WEFT_OPTION_CHOICE, &q.table,
         .choices = weft_recdb_tables, .fallback = "jsonl: all, csv: rpc"},
        {"from", "S", "RPCs that start at least S seconds after the first", WEFT_OPTION_F32,
         &q.from_s, .fallback = "0"},
        {"to", "S", "RPCs that start before S seconds", WEFT_OPTION_F32, &q.to_s,
         .fallback = "the end"},
        {"worker", "W", "RPCs of this worker only", WEFT_OPTION_U32, &q.worker,
         .max = UINT32_MAX - 1, .fallback = "all"},
        {"server", "S", "RPCs to this server only", WEFT_OPTION_U32, &q.server,
         .max = UINT32_MAX - 1, .fallback = "all"},
        {0},
    };
    struct weft_command command = {
        .name = "trace export",
        .summary = "convert records for other tools: Chrome trace, JSON lines, CSV",
        .description =
            "FILE is a database written by --records; several files are parts of one run. A "
            "Chrome\n"
            "trace has a process for each worker and each server, and a thread for each stage; "
            "reduce\n"
            "its size for a browser with --from, --to and --worker. All output is streamed.",
        .example = "  weft trace export run.db --format chrome --to 2 -o run.json\n"
                   "  weft trace export run.db --format csv --table active >active.csv\n"
                   "  weft trace export run.db --format jsonl | jq -c 'select(.table == \"rpc\")'",
        .options = options,
    };
    int status = weft_trace_parse(&command, &files, argc, argv);
    const char *why = objection(&q);
    if (status == WEFT_OPTIONS_RUN && why != NULL) {
        status = weft_options_usage(&command, "%s", why);
    }
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    return weft_output_distinct("trace export", q.out, files.paths, files.count)
               ? weft_trace_run(&command, &files, run, &q)
               : WEFT_EXIT_FAILED;
}
