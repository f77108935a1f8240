#include "obs/recdb_aggregation.h"

#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of counters and bytes, and of ages: so that sums over a file's rows do not overflow. */
#define COUNT_MAX "4294967295"
#define AGE_MAX   "17592186044416"

/* ---- reading --------------------------------------------------------------------------------- */

/* NULL = out of memory. */
static struct weft_recdb_aggregator *aggregator_of(struct weft_recdb_aggregation *a,
                                                   uint32_t number, uint32_t server)
{
    size_t at = 0;
    while (at < a->count && (a->list[at].number < number ||
                             (a->list[at].number == number && a->list[at].server < server))) {
        at++;
    }
    if (at < a->count && a->list[at].number == number && a->list[at].server == server) {
        return &a->list[at];
    }
    struct weft_recdb_aggregator *list = realloc(a->list, (a->count + 1) * sizeof(*list));
    if (list == NULL) {
        return NULL;
    }
    a->list = list;
    memmove(&list[at + 1], &list[at], (a->count - at) * sizeof(*list));
    a->count++;
    list[at] = (struct weft_recdb_aggregator){.number = number, .server = server};
    return &list[at];
}

/* The two queries have one row for each aggregator, server and reason. */

static bool add_in(struct weft_recdb_aggregation *a, sqlite3_stmt *row)
{
    struct weft_recdb_aggregator *aggregator =
        aggregator_of(a, (uint32_t)weft_recdb_u64(row, 0), (uint32_t)weft_recdb_u64(row, 1));
    if (aggregator != NULL) {
        const uint64_t pushes = weft_recdb_u64(row, 3);
        aggregator->direct[weft_recdb_u64(row, 2)] += pushes;
        aggregator->pushes += pushes;
    }
    return aggregator != NULL;
}

static bool add_out(struct weft_recdb_aggregation *a, sqlite3_stmt *row)
{
    struct weft_recdb_aggregator *aggregator =
        aggregator_of(a, (uint32_t)weft_recdb_u64(row, 0), (uint32_t)weft_recdb_u64(row, 1));
    if (aggregator != NULL) {
        const uint64_t sums = weft_recdb_u64(row, 3);
        aggregator->flushed[weft_recdb_u64(row, 2)] += sums;
        aggregator->sums += sums;
        aggregator->messages += weft_recdb_u64(row, 4);
        aggregator->rows_in += weft_recdb_u64(row, 5);
        aggregator->rows_out += weft_recdb_u64(row, 6);
        aggregator->bytes_in += weft_recdb_u64(row, 7);
        aggregator->bytes_out += weft_recdb_u64(row, 8);
        aggregator->age_ns += weft_recdb_u64(row, 9);
        aggregator->age_ns_max = weft_max_u64(aggregator->age_ns_max, weft_recdb_u64(row, 10));
        aggregator->rows_removed += weft_recdb_u64(row, 11);
    }
    return aggregator != NULL;
}

#define IS_COUNT(column) column " BETWEEN 0 AND " COUNT_MAX

static const struct {
    const char *table;
    const char *sums;
    int reasons;
    const char *valid;
    const char *counted; /* rows that are included */
    bool (*add)(struct weft_recdb_aggregation *a, sqlite3_stmt *row);
} sources[] = {
    {"aggregate_in", "sum(pushes)", WEFT_RPC_RECORD_DIRECTS, IS_COUNT("pushes"), "1", add_in},
    {"aggregate_out",
     "count(*), sum(messages), sum(rows_in), sum(rows_out), sum(bytes_in), sum(bytes_out),"
     " sum(sent_ns - first_ns), max(sent_ns - first_ns),"
     " sum(CASE WHEN status = 0 THEN max(rows_in - rows_out, 0) ELSE 0 END)",
     WEFT_RPC_RECORD_FLUSHES,
     IS_COUNT("messages") " AND " IS_COUNT("rows_in") " AND " IS_COUNT("rows_out") " AND " IS_COUNT(
         "bytes_in") " AND " IS_COUNT("bytes_out") " AND "
                                                   "(sent_ns = 0 OR (first_ns >= 0 AND sent_ns - "
                                                   "first_ns BETWEEN 0 AND " AGE_MAX "))",
     "sent_ns <> 0", add_out},
};

static void read_source(struct weft_recdb *db, struct weft_recdb_aggregation *a, size_t s)
{
    char valid[640];
    snprintf(
        valid, sizeof(valid),
        IS_COUNT("aggregator") " AND " IS_COUNT("server") " AND reason BETWEEN 0 AND %d AND %s",
        sources[s].reasons - 1, sources[s].valid);
    sqlite3_stmt *statement = weft_recdb_query(
        db, "SELECT aggregator, server, reason, %s FROM %s WHERE %s AND %s GROUP BY 1, 2, 3",
        sources[s].sums, sources[s].table, sources[s].counted, valid);
    while (weft_recdb_row(db, statement)) {
        if (!sources[s].add(a, statement)) {
            weft_recdb_no_memory(db);
            break;
        }
    }
    sqlite3_finalize(statement);
    a->refused +=
        weft_recdb_number(db, weft_recdb_query(db, "SELECT count(*) FROM %s WHERE NOT (%s)",
                                               sources[s].table, valid));
}

static void add_paths(struct weft_recdb *db, struct weft_recdb_aggregation *a)
{
    const uint64_t refused = db->refused; /* the digest reports these rows */
    struct weft_recdb_rpc rpc;
    sqlite3_stmt *scan = weft_recdb_scan(
        db,
        ", EXISTS(SELECT 1 FROM aggregate_in AS a WHERE a.server = rpc.server AND"
        " a.sender = rpc.worker AND a.rpc = rpc.rpc AND a.child = 0 AND a.status = 0)",
        "WHERE rpc.kind = 1 AND rpc.status = 0");
    while (weft_recdb_next(db, scan, &rpc)) {
        struct weft_recdb_path_sums *path =
            &a->paths[sqlite3_column_int(scan, WEFT_RECDB_MORE) != 0 ? WEFT_RECDB_AGGREGATED
                                                                     : WEFT_RECDB_DIRECT];
        path->pushes++;
        path->updates += rpc.rows;
        path->ps_proc_ns += rpc.stage_ns[WEFT_RECDB_PS_PROC];
        path->ps_overlap_ns += rpc.overlap_ns;
    }
    sqlite3_finalize(scan);
    db->refused = refused;
}

static void add_all(struct weft_recdb_aggregation *a)
{
    for (size_t i = 0; i < a->count; i++) {
        const struct weft_recdb_aggregator *one = &a->list[i];
        struct weft_recdb_aggregator *all = &a->all;
        all->pushes += one->pushes;
        all->sums += one->sums;
        all->messages += one->messages;
        all->rows_in += one->rows_in;
        all->rows_out += one->rows_out;
        all->rows_removed += one->rows_removed;
        all->bytes_in += one->bytes_in;
        all->bytes_out += one->bytes_out;
        all->age_ns += one->age_ns;
        all->age_ns_max = weft_max_u64(all->age_ns_max, one->age_ns_max);
        for (int r = 0; r < WEFT_RPC_RECORD_DIRECTS; r++) {
            all->direct[r] += one->direct[r];
        }
        for (int r = 0; r < WEFT_RPC_RECORD_FLUSHES; r++) {
            all->flushed[r] += one->flushed[r];
        }
    }
}

weft_status weft_recdb_aggregation_make(struct weft_recdb *db,
                                        struct weft_recdb_aggregation *aggregation_p)
{
    memset(aggregation_p, 0, sizeof(*aggregation_p));
    for (size_t s = 0; s < WEFT_ARRAY_COUNT(sources); s++) {
        read_source(db, aggregation_p, s);
    }
    add_all(aggregation_p);
    add_paths(db, aggregation_p);
    return db->status;
}

void weft_recdb_aggregation_fini(struct weft_recdb_aggregation *aggregation)
{
    free(aggregation->list);
}

/* ---- shares ---------------------------------------------------------------------------------- */

uint64_t weft_recdb_direct(const struct weft_recdb_aggregator *aggregator)
{
    return aggregator->pushes - aggregator->direct[WEFT_RPC_RECORD_ABSORBED];
}

double weft_recdb_absorbed(const struct weft_recdb_aggregator *aggregator)
{
    const double messages = (double)aggregator->sums + (double)weft_recdb_direct(aggregator);
    return aggregator->pushes > 0 ? 1 - messages / (double)aggregator->pushes : 0;
}

double weft_recdb_combined(const struct weft_recdb_aggregator *aggregator)
{
    return aggregator->rows_in > 0 ? 1 - (double)aggregator->rows_out / (double)aggregator->rows_in
                                   : 0;
}

double weft_recdb_removed(const struct weft_recdb_aggregation *aggregation)
{
    const uint64_t updates = aggregation->paths[WEFT_RECDB_DIRECT].updates +
                             aggregation->paths[WEFT_RECDB_AGGREGATED].updates;
    const double all = updates > 0 ? (double)updates : (double)aggregation->all.rows_in;
    /* In a tree the rows out of a child are rows into its parent, so each row removed counts once.
     */
    return all > 0 ? (double)aggregation->all.rows_removed / all : -1;
}

double weft_recdb_path_ns(const struct weft_recdb_aggregation *aggregation,
                          enum weft_recdb_path path)
{
    double ns = 0, updates = 0;
    for (int p = 0; p < WEFT_RECDB_PATHS; p++) {
        const struct weft_recdb_path_sums *sums = &aggregation->paths[p];
        if (path == WEFT_RECDB_PATHS || (int)path == p) {
            ns += (double)sums->ps_proc_ns + (double)sums->ps_overlap_ns;
            updates += (double)sums->updates;
        }
    }
    return updates > 0 ? ns / updates : 0;
}
