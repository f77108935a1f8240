#include "cli/trace/figure.h"

#include <ctype.h>
#include <string.h>

/* The file's name without folders and extension; characters special to a shell or gnuplot become
 * '-'. */
static void take_name(const char *file, char name[WEFT_FIGURE_NAME])
{
    const char *slash = strrchr(file, '/');
    snprintf(name, WEFT_FIGURE_NAME, "%s", slash != NULL ? slash + 1 : file);
    char *dot = strrchr(name, '.');
    if (dot != NULL && dot != name) {
        *dot = '\0';
    }
    for (char *at = name; *at != '\0'; at++) {
        bool good = isalnum((unsigned char)*at) || *at == '_' || *at == '.';
        *at = good ? *at : '-';
    }
}

static void take_title(struct weft_recdb *db, struct weft_figure_run *run)
{
    const char *command = weft_recdb_meta(db, "command");
    snprintf(run->title, sizeof(run->title), "%.*s", 140, command[0] != '\0' ? command : run->file);
    bool tcp =
        strstr(command, "--transport tcp") != NULL || strstr(command, "--transport=tcp") != NULL;
    snprintf(run->transport, sizeof(run->transport), "%s", tcp ? "tcp" : "weft");
}

/* Ordered by time, not by number: a restarted worker numbers its requests from the beginning. */
static void take_intervals(struct weft_recdb *db, struct weft_figure_run *run)
{
    sqlite3_stmt *statement = weft_recdb_query(
        db, "SELECT worker, server, t0_ns FROM rpc WHERE kind IN (1, 2) AND t0_ns >= 0"
            " ORDER BY worker, server, t0_ns");
    int64_t worker = -1;
    int64_t server = -1;
    int64_t last_ns = 0;
    while (weft_recdb_row(db, statement)) {
        int64_t t0_ns = sqlite3_column_int64(statement, 2);
        bool same = sqlite3_column_int64(statement, 0) == worker &&
                    sqlite3_column_int64(statement, 1) == server;
        if (same && t0_ns >= last_ns) {
            weft_hist_add(&run->intervals_ns, (uint64_t)(t0_ns - last_ns));
        }
        worker = sqlite3_column_int64(statement, 0);
        server = sqlite3_column_int64(statement, 1);
        last_ns = t0_ns;
    }
    sqlite3_finalize(statement);
}

bool weft_figure_run_make(const char *file, struct weft_figure_run *run_p)
{
    struct weft_recdb db;
    memset(run_p, 0, sizeof(*run_p));
    run_p->file = file;
    take_name(file, run_p->name);
    if (weft_recdb_open(&run_p->file, 1, &db) == WEFT_OK) {
        take_title(&db, run_p);
        (void)weft_recdb_digest_make(&db, NULL, &run_p->digest);
        take_intervals(&db, run_p);
        (void)weft_recdb_hotness_make(&db, UINT32_MAX, &run_p->hotness);
        (void)weft_recdb_aggregation_make(&db, &run_p->aggregation);
        run_p->refused = db.refused + run_p->aggregation.refused;
    }
    if (db.status != WEFT_OK) {
        fprintf(stderr, "weft trace figures: %s\n", db.error.text);
    }
    weft_recdb_close(&db);
    return db.status == WEFT_OK;
}

void weft_figure_run_fini(struct weft_figure_run *run)
{
    weft_recdb_digest_fini(&run->digest);
    weft_recdb_hotness_fini(&run->hotness);
    weft_recdb_aggregation_fini(&run->aggregation);
}
