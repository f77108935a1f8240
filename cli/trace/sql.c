/* `weft trace sql`: a user's query to a records database, read-only.
 *
 * The table on the terminal needs its column widths before its first line; they are computed from
 * the first LOOK_AHEAD rows, so that a long result can be streamed.
 */
#include "base/units.h"
#include "cli/trace/trace.h"
#include "obs/recdb_text.h"

#include <stdlib.h>
#include <string.h>

enum { LOOK_AHEAD = 200, WIDTH_MAX = 60 };

struct query {
    const char *question; /* NULL: show the schema */
    bool json;
    bool csv;
};

/* Allow only reading; the file is also opened read-only. */
static int authorize(void *context, int action, const char *first, const char *second,
                     const char *database, const char *trigger)
{
    (void)context;
    (void)database;
    (void)trigger;
    switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_RECURSIVE:
        return SQLITE_OK;
    case SQLITE_FUNCTION:
        return second != NULL && sqlite3_stricmp(second, "load_extension") == 0 ? SQLITE_DENY
                                                                                : SQLITE_OK;
    case SQLITE_PRAGMA:
        return first != NULL && (sqlite3_stricmp(first, "table_info") == 0 ||
                                 sqlite3_stricmp(first, "index_list") == 0)
                   ? SQLITE_OK
                   : SQLITE_DENY;
    default:
        return SQLITE_DENY;
    }
}

static bool bad_query(const char *what)
{
    fprintf(stderr, "weft trace sql: %s\n`weft trace sql FILE --schema` lists tables and columns\n",
            what);
    return false;
}

/* ---- the table ------------------------------------------------------------------------------- */

struct sheet {
    int columns;
    unsigned *widths;
    bool *right; /* numbers */
    char **cells;
    size_t rows;
};

/* A copy for a terminal, without control characters except those of `kept`: names and values may be
 * from another host. C1 has two bytes in UTF-8. */
static char *plain(const char *text, const char *kept)
{
    char *copy = weft_trace_need(strdup(text));
    for (unsigned char *at = (unsigned char *)copy; *at != '\0'; at++) {
        const bool c1 = at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0;
        if (c1) {
            *at++ = ' ';
        }
        const bool moves = c1 || *at < ' ' || *at == 0x7f;
        *at = moves && strchr(kept, *at) == NULL ? ' ' : *at;
    }
    return copy;
}

static char *cell_text(sqlite3_stmt *statement, int column)
{
    const unsigned char *text = sqlite3_column_text(statement, column);
    return plain(text != NULL ? (const char *)text : "-", "");
}

static void sheet_row(struct sheet *sheet, sqlite3_stmt *statement)
{
    for (int c = 0; c < sheet->columns; c++) {
        char *cell = cell_text(statement, c);
        int type = sqlite3_column_type(statement, c);
        unsigned width = (unsigned)weft_min_u64(strlen(cell), WIDTH_MAX);
        sheet->widths[c] = width > sheet->widths[c] ? width : sheet->widths[c];
        sheet->right[c] = sheet->right[c] || type == SQLITE_INTEGER || type == SQLITE_FLOAT;
        sheet->cells[sheet->rows * (size_t)sheet->columns + (size_t)c] = cell;
    }
    sheet->rows++;
}

static void print_cell(const struct sheet *sheet, int column, const char *text)
{
    int width = (int)sheet->widths[column];
    bool last = column + 1 == sheet->columns;
    printf("%*s%s", sheet->right[column] ? width : last ? 0 : -width, text, last ? "\n" : "  ");
}

static void sheet_print(struct sheet *sheet, sqlite3_stmt *statement)
{
    for (int c = 0; c < sheet->columns; c++) {
        char *name = plain(sqlite3_column_name(statement, c), "");
        print_cell(sheet, c, name);
        free(name);
    }
    for (size_t i = 0; i < sheet->rows * (size_t)sheet->columns; i++) {
        print_cell(sheet, (int)(i % (size_t)sheet->columns), sheet->cells[i]);
        free(sheet->cells[i]);
    }
}

static void print_table(struct weft_recdb *db, sqlite3_stmt *statement)
{
    int columns = sqlite3_column_count(statement);
    struct sheet sheet = {.columns = columns};
    sheet.widths = weft_trace_need(calloc((size_t)columns, sizeof(*sheet.widths)));
    sheet.right = weft_trace_need(calloc((size_t)columns, sizeof(*sheet.right)));
    sheet.cells = weft_trace_need(calloc((size_t)columns * LOOK_AHEAD, sizeof(*sheet.cells)));
    for (int c = 0; c < columns; c++) {
        sheet.widths[c] =
            (unsigned)weft_min_u64(strlen(sqlite3_column_name(statement, c)), WIDTH_MAX);
    }
    bool more;
    while ((more = weft_recdb_row(db, statement)) && sheet.rows < LOOK_AHEAD) {
        sheet_row(&sheet, statement);
    }
    sheet_print(&sheet, statement);
    for (; more; more = weft_recdb_row(db, statement)) {
        for (int c = 0; c < columns; c++) {
            char *cell = cell_text(statement, c);
            print_cell(&sheet, c, cell);
            free(cell);
        }
    }
    free(sheet.widths);
    free(sheet.right);
    free(sheet.cells);
}

/* ---- others ---------------------------------------------------------------------------------- */

static void print_json(struct weft_recdb *db, sqlite3_stmt *statement)
{
    const char *comma = "[";
    while (weft_recdb_row(db, statement)) {
        fputs(comma, stdout);
        weft_recdb_json_row(stdout, statement, NULL);
        comma = ",\n";
    }
    puts(comma[0] == '[' ? "[]" : "]");
}

static void print_csv(struct weft_recdb *db, sqlite3_stmt *statement)
{
    weft_recdb_csv_head(stdout, statement);
    while (weft_recdb_row(db, statement)) {
        weft_recdb_csv_row(stdout, statement);
    }
}

static bool print_schema(struct weft_recdb *db)
{
    sqlite3_stmt *statement = weft_recdb_query(
        db, "SELECT sql FROM main.sqlite_master WHERE sql IS NOT NULL ORDER BY type DESC, rowid");
    while (weft_recdb_row(db, statement)) {
        char *text = plain((const char *)sqlite3_column_text(statement, 0), "\n\t");
        printf("%s;\n", text);
        free(text);
    }
    sqlite3_finalize(statement);
    return true;
}

static bool run(struct weft_recdb *db, void *arg)
{
    const struct query *query = arg;
    if (query->question == NULL) {
        return print_schema(db);
    }
    sqlite3_stmt *statement = NULL;
    const char *rest = "";
    (void)sqlite3_set_authorizer(db->sqlite, authorize, NULL);
    int result = sqlite3_prepare_v2(db->sqlite, query->question, -1, &statement, &rest);
    if (result == SQLITE_AUTH) {
        return bad_query("only SELECT is allowed; the file is read-only");
    }
    if (result != SQLITE_OK) {
        return bad_query(sqlite3_errmsg(db->sqlite));
    }
    if (statement == NULL || rest[strspn(rest, " \t\r\n;")] != '\0' ||
        sqlite3_column_count(statement) == 0) {
        sqlite3_finalize(statement);
        return bad_query("exactly one SELECT is required");
    }
    (query->json ? print_json : query->csv ? print_csv : print_table)(db, statement);
    sqlite3_finalize(statement);
    return true;
}

int weft_cli_trace_sql(int argc, char **argv)
{
    struct query query = {0};
    bool schema = false;
    struct weft_trace_files files = {0};
    const struct weft_option options[] = {
        {"json", NULL, "print an array of objects", WEFT_OPTION_FLAG, .value = &query.json},
        {"csv", NULL, "print comma-separated values, names first", WEFT_OPTION_FLAG,
         .value = &query.csv},
        {"schema", NULL, "show the tables, columns and indexes instead", WEFT_OPTION_FLAG,
         .value = &schema},
        {0},
    };
    const struct weft_command command = {
        .name = "trace sql",
        .summary = "query a records database in SQL, read-only",
        .arguments = "FILE... 'SELECT ...'",
        .operands = &files.paths,
        .operand_count = &files.count,
        .description = "FILE is a database written by --records; several files are parts of one "
                       "run, and their tables\n"
                       "are read as one. docs/RECORDS.md defines the columns. kind is 1 for push, "
                       "2 for pull.",
        .example =
            "  weft trace sql run.db --schema\n"
            "  weft trace sql run.db 'SELECT kind, avg(n_tx_ns) / 1e3 AS us FROM rpc GROUP BY "
            "kind'\n"
            "  weft trace sql run.db 'SELECT * FROM rpc WHERE worker = 3' --csv >worker-3.csv",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status == WEFT_OPTIONS_RUN && !schema && files.count > 0) {
        query.question = files.paths[--files.count];
    }
    if (status == WEFT_OPTIONS_RUN && query.json && query.csv) {
        status = weft_options_usage(&command, "--json and --csv are mutually exclusive");
    } else if (status == WEFT_OPTIONS_RUN && files.count == 0) {
        status = weft_options_usage(&command, schema ? "FILE is missing"
                                                     : "FILE or SELECT is missing: give both, in "
                                                       "this order");
    }
    return status == WEFT_OPTIONS_RUN ? weft_trace_run(&command, &files, run, &query) : status;
}
