#include "obs/recdb_hotness.h"

#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>

static void take_list(struct weft_recdb *db, const char *where, struct weft_recdb_hotness *hotness)
{
    sqlite3_stmt *statement =
        weft_recdb_query(db,
                         "SELECT id, sum(updates), tbl FROM hot %s GROUP BY tbl, id"
                         " ORDER BY 2 DESC, tbl, id",
                         where);
    size_t room = 0;
    while (weft_recdb_row(db, statement)) {
        if (hotness->count == room) {
            room = room * 2 + 256;
            struct weft_recdb_hot *list = realloc(hotness->list, room * sizeof(*list));
            if (list == NULL) {
                weft_recdb_no_memory(db);
                break;
            }
            hotness->list = list;
        }
        hotness->list[hotness->count++] = (struct weft_recdb_hot){
            .id = (uint64_t)sqlite3_column_int64(statement, 0),
            .updates = weft_recdb_u64(statement, 1),
            .table = (uint32_t)weft_recdb_u64(statement, 2),
        };
    }
    sqlite3_finalize(statement);
}

/* Records of releases without the column `removed`, and those merged from them (-1), are known only
 * if they are exact. */
static const char *removed_sql(struct weft_recdb *db)
{
    return weft_recdb_has_column(db, "hot_total", "removed")
               ? "CASE WHEN exact = 1 THEN 0 WHEN removed >= 0 THEN removed END"
               : "CASE WHEN exact = 1 THEN 0 END";
}

static void take_total(struct weft_recdb *db, const char *where, struct weft_recdb_hotness *hotness)
{
    sqlite3_stmt *statement =
        weft_recdb_query(db,
                         "SELECT sum(updates), min(exact), sum(r), count(*) = count(r) FROM"
                         " (SELECT updates, exact, %s AS r FROM hot_total %s)",
                         removed_sql(db), where);
    if (weft_recdb_row(db, statement)) {
        hotness->updates = weft_recdb_u64(statement, 0);
        hotness->exact = sqlite3_column_int(statement, 1) == 1;
        hotness->removed = weft_recdb_u64(statement, 2);
        hotness->has_removed = sqlite3_column_int(statement, 3) == 1;
    }
    sqlite3_finalize(statement);
}

/* The k most updated parameters of all servers are among the k most updated of each server, if
 * each server has stored k, or all that it has. */
static size_t shortest_list(struct weft_recdb *db, const char *where)
{
    sqlite3_stmt *statement = weft_recdb_query(
        db,
        "WITH total AS (SELECT server, tbl, sum(updates) AS u, coalesce(sum(%s), 0) AS r"
        " FROM hot_total %s GROUP BY server, tbl),"
        " list AS (SELECT server, tbl, count(*) AS n, sum(updates) AS u FROM hot"
        " GROUP BY server, tbl)"
        " SELECT min(coalesce(list.n, 0)) FROM total LEFT JOIN list USING (server, tbl)"
        " WHERE coalesce(list.u, 0) < total.u - total.r",
        removed_sql(db), where);
    size_t shortest = SIZE_MAX;
    if (weft_recdb_row(db, statement) && sqlite3_column_type(statement, 0) != SQLITE_NULL) {
        shortest = (size_t)weft_recdb_u64(statement, 0);
    }
    sqlite3_finalize(statement);
    return shortest;
}

weft_status weft_recdb_hotness_make(struct weft_recdb *db, uint32_t table,
                                    struct weft_recdb_hotness *hotness_p)
{
    char where[32] = "";
    if (table != UINT32_MAX) {
        snprintf(where, sizeof(where), "WHERE tbl = %u", table);
    }
    *hotness_p = (struct weft_recdb_hotness){0};
    take_list(db, where, hotness_p);
    take_total(db, where, hotness_p);
    hotness_p->sure = shortest_list(db, where);
    return db->status;
}

void weft_recdb_hotness_fini(struct weft_recdb_hotness *hotness)
{
    free(hotness->list);
}

static double part(uint64_t of, uint64_t all)
{
    return all == 0 ? 0 : of >= all ? 1 : (double)of / (double)all;
}

unsigned weft_recdb_hot_shares(const struct weft_recdb_hotness *hotness,
                               struct weft_recdb_hot_share shares_p[WEFT_RECDB_HOT_LEVELS])
{
    static const uint64_t levels[] = {1, 10, 100, 1000, 10000, 20000, 100000, 1000000, 10000000};
    unsigned count = 0;
    size_t next = 0;
    uint64_t updates = 0;
    for (size_t i = 0; i < hotness->count; i++) {
        updates += hotness->list[i].updates;
        bool is_level = next < WEFT_ARRAY_COUNT(levels) && i + 1 == levels[next];
        next += is_level;
        if (is_level || i + 1 == hotness->count) {
            const bool is_bounded = hotness->has_removed && i + 1 <= hotness->sure;
            shares_p[count++] = (struct weft_recdb_hot_share){
                .k = i + 1,
                .low = part(updates, hotness->updates),
                .high = is_bounded ? part(updates + hotness->removed, hotness->updates) : 1,
                .has_high = is_bounded,
            };
        }
    }
    return count;
}
