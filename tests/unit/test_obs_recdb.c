/* Reading a database of records: invalid rows are skipped, several files are merged, and the output
 * matches the rows. The verbs are tested in tests/cli/trace_records.sh. */
#include "obs/recdb_aggregation.h"
#include "obs/recdb_chrome.h"
#include "obs/recdb_digest.h"
#include "obs/recdb_hotness.h"
#include "obs/records_db.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct place {
    char folder[64];
    char first[80];
    char second[80];
};

static void run_sql(const char *path, const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        fail_msg("%s", sqlite3_errmsg(db));
    }
    sqlite3_close(db);
}

static void make_empty(const char *path)
{
    struct weft_records_sum sum;
    struct weft_error error;
    assert_int_equal(weft_records_make(NULL, 0, path, true, "a test", &sum, &error), WEFT_OK);
}

/* Pushes of one worker to one server: 6 us each, 1 us per stage; in the last one PS_wait is 100 us
 * longer. */
#define RPCS                                                                                       \
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20)"                 \
    " INSERT INTO rpc SELECT 3, 5, i, i, 1, 0, 0, 10, i * 1000000, i * 1000000 + 4000 + wait,"     \
    " 100, 50, 1000, 1000, 1000, 0, 1000 + wait, 1000, 1000, 1"                                    \
    " FROM (SELECT i, (i = 20) * 100000 AS wait FROM n)"

static int place_make(void **state)
{
    struct place *place = calloc(1, sizeof(*place));
    assert_non_null(place);
    snprintf(place->folder, sizeof(place->folder), "/tmp/weft-recdb-XXXXXX");
    assert_non_null(mkdtemp(place->folder));
    snprintf(place->first, sizeof(place->first), "%s/a.db", place->folder);
    snprintf(place->second, sizeof(place->second), "%s/b.db", place->folder);
    make_empty(place->first);
    make_empty(place->second);
    run_sql(place->first, RPCS);
    *state = place;
    return 0;
}

static int place_clear(void **state)
{
    struct place *place = *state;
    (void)unlink(place->first);
    (void)unlink(place->second);
    int status = rmdir(place->folder);
    free(place);
    return status;
}

static void a_digest_is_the_sum_of_the_rows(void **state)
{
    const struct place *place = *state;
    static struct weft_recdb_digest digest;
    const char *file = place->first;
    struct weft_recdb db;
    run_sql(place->first, "INSERT INTO process VALUES(1, 'server', 0, 9, 20, 2, 500, 1000, 1);"
                          "INSERT INTO process VALUES(2, 'aggregator', 0, 9, 20, 3, 70, 1000, 0);"
                          "INSERT INTO active VALUES(5, 0, 1000000, 7, 1, 2),"
                          " (5, 1000000, 1000000, 0, 1, 1);"
                          "UPDATE rpc SET status = -1 WHERE rpc = 1");
    assert_int_equal(weft_recdb_open(&file, 1, &db), WEFT_OK);
    assert_string_equal(weft_recdb_meta(&db, "command"), "a test");
    assert_int_equal(weft_recdb_digest_make(&db, NULL, &digest), WEFT_OK);
    const struct weft_recdb_kind_digest *push = &digest.kinds[WEFT_RECDB_PUSH];
    assert_int_equal(weft_recdb_digest_rpcs(&digest), 20);
    assert_int_equal(push->failed, 1);
    assert_int_equal(push->total.count, 19);
    assert_int_equal(push->total.sum, 19 * 6000 + 100000);
    assert_int_equal(push->stages[WEFT_RECDB_PS_WAIT].sum, 19 * 1000 + 100000);
    assert_int_equal(push->rows, 190);
    assert_int_equal(digest.kinds[WEFT_RECDB_PULL].total.count, 0);
    assert_int_equal(digest.odd, 0);
    assert_int_equal(digest.servers.count, 1);
    assert_int_equal(digest.servers.list[0].id, 5);
    assert_int_equal(digest.servers.list[0].max_ns, 106000);
    assert_int_equal(digest.workers.list[0].rpcs, 19);
    assert_int_equal(digest.roles[WEFT_RECDB_SERVERS].dropped, 2);
    assert_int_equal(digest.roles[WEFT_RECDB_AGGREGATORS].cpu_ns, 70);
    assert_int_equal(digest.roles[WEFT_RECDB_WORKERS].processes, 0);
    assert_int_equal(weft_recdb_digest_dropped(&digest), 5);
    assert_int_equal(weft_recdb_digest_cut(&digest), 1);
    assert_int_equal(digest.active.max, 7);
    assert_int_equal(digest.active.count, 1); /* the other window has no worker's request */
    assert_int_equal(digest.connections.count, 2);
    assert_int_equal(digest.connections.max, 2);
    weft_recdb_digest_fini(&digest);
    weft_recdb_close(&db);
}

static void the_slowest_are_found_and_why(void **state)
{
    const struct place *place = *state;
    static struct weft_recdb_digest digest;
    struct weft_recdb_slowest slowest = {.wanted = 3};
    const char *file = place->first;
    struct weft_recdb db;
    assert_int_equal(weft_recdb_open(&file, 1, &db), WEFT_OK);
    assert_int_equal(weft_recdb_digest_make(&db, &slowest, &digest), WEFT_OK);
    assert_int_equal(slowest.count, 3);
    assert_int_equal(slowest.list[0].rpc, 20);
    assert_int_equal(slowest.list[0].total_ns, 106000);
    assert_int_equal(slowest.list[1].rpc, 1); /* the first of equal ones */
    assert_int_equal(slowest.list[2].rpc, 2);
    struct weft_recdb_blame blame = weft_recdb_blame(&digest, &slowest.list[0]);
    assert_int_equal(blame.stage, WEFT_RECDB_PS_WAIT);
    assert_true(blame.part > 0.99);
    free(slowest.list);
    weft_recdb_digest_fini(&digest);
    weft_recdb_close(&db);
}

static uint64_t next_all(const char *file, uint64_t *refused_p)
{
    struct weft_recdb db;
    struct weft_recdb_rpc rpc;
    uint64_t rpcs = 0;
    assert_int_equal(weft_recdb_open(&file, 1, &db), WEFT_OK);
    sqlite3_stmt *scan = weft_recdb_scan(&db, "", "");
    while (weft_recdb_next(&db, scan, &rpc)) {
        rpcs++;
    }
    sqlite3_finalize(scan);
    assert_int_equal(db.status, WEFT_OK);
    *refused_p = db.refused;
    weft_recdb_close(&db);
    return rpcs;
}

static void rows_that_cannot_be_are_refused(void **state)
{
    const struct place *place = *state;
    static const char *const changes[] = {"kind = 3", "kind = 0", "t1_ns = t0_ns - 1",
                                          "n_tx_ns = -1", "worker = 4294967296",
                                          "ps_proc_ns = 72057594037927936", "t0_ns = -1"};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(changes); i++) {
        char sql[128];
        uint64_t refused;
        run_sql(place->first, "DELETE FROM rpc;" RPCS);
        snprintf(sql, sizeof(sql), "UPDATE rpc SET %s WHERE rpc = 7", changes[i]);
        run_sql(place->first, sql);
        assert_int_equal(next_all(place->first, &refused), 19);
        assert_int_equal(refused, 1);
    }
}

static void several_files_are_one(void **state)
{
    const struct place *place = *state;
    const char *const both[] = {place->first, place->second};
    struct weft_recdb db;
    struct weft_recdb_hotness hotness;
    struct weft_recdb_hot_share shares[WEFT_RECDB_HOT_LEVELS];
    run_sql(place->first, "INSERT INTO hot VALUES(0, 0, 8, 30, 0), (0, 0, 9, 10, 0);"
                          "INSERT INTO hot_total VALUES(0, 0, 50, 1, 0)");
    run_sql(place->second, "INSERT INTO hot VALUES(1, 0, 8, 50, 0);"
                           "INSERT INTO hot_total VALUES(1, 0, 50, 1, 0)");
    assert_int_equal(weft_recdb_open(both, 2, &db), WEFT_OK);
    assert_int_equal(weft_recdb_hotness_make(&db, UINT32_MAX, &hotness), WEFT_OK);
    assert_int_equal(hotness.count, 2);
    assert_int_equal(hotness.list[0].id, 8);
    assert_int_equal(hotness.list[0].updates, 80);
    assert_int_equal(hotness.updates, 100);
    assert_true(hotness.exact);
    assert_int_equal(weft_recdb_hot_shares(&hotness, shares), 2);
    /* The first server's list has 40 of its 50 updates, so it does not contain every row. */
    assert_int_equal(hotness.sure, 2);
    assert_true(shares[0].k == 1 && shares[0].low == 0.8 && shares[0].high == 0.8);
    weft_recdb_hotness_fini(&hotness);
    weft_recdb_close(&db);
    run_sql(place->second, "ALTER TABLE hot RENAME COLUMN error TO mistake");
    assert_int_equal(weft_recdb_open(both, 2, &db), WEFT_DATA);
    assert_non_null(strstr(db.error.text, "columns differ"));
    weft_recdb_close(&db);
}

/* The share of the top k with these totals of server 0; its list has two rows with 40 updates. */
static struct weft_recdb_hot_share share_of(const char *file, const char *totals, unsigned level)
{
    struct weft_recdb db;
    struct weft_recdb_hotness hotness;
    struct weft_recdb_hot_share shares[WEFT_RECDB_HOT_LEVELS];
    run_sql(file, "DELETE FROM hot; DELETE FROM hot_total;"
                  "INSERT INTO hot VALUES(0, 0, 8, 30, 0), (0, 0, 9, 10, 0)");
    run_sql(file, totals);
    assert_int_equal(weft_recdb_open(&file, 1, &db), WEFT_OK);
    assert_int_equal(weft_recdb_hotness_make(&db, UINT32_MAX, &hotness), WEFT_OK);
    assert_int_equal(weft_recdb_hot_shares(&hotness, shares), 2);
    weft_recdb_hotness_fini(&hotness);
    weft_recdb_close(&db);
    return shares[level];
}

#define HOT_TOTAL(values) "INSERT INTO hot_total VALUES(" values ")"

static void shares_have_bounds(void **state)
{
    const struct place *place = *state;
    struct weft_recdb_hot_share share;
    /* Of 50 updates 10 were of removed rows: they may all have been of the top row. */
    share = share_of(place->first, HOT_TOTAL("0, 0, 50, 0, 10"), 0);
    assert_true(share.low == 0.6 && share.high == 0.8);
    /* None was: pushes of ids without a row were. */
    share = share_of(place->first, HOT_TOTAL("0, 0, 50, 0, 0"), 0);
    assert_true(share.low == 0.6 && share.high == 0.6);
    /* The list of another server, without a row, is shorter. */
    share = share_of(place->first, HOT_TOTAL("0, 0, 25, 1, 0), (1, 0, 25, 1, 0"), 0);
    assert_true(share.low == 0.6 && share.high == 1);
    /* A merged record of a release that did not count them, then one of that release. */
    share = share_of(place->first, HOT_TOTAL("0, 0, 50, 0, -1"), 0);
    assert_true(share.low == 0.6 && share.high == 1);
    run_sql(place->first, "DELETE FROM hot_total; ALTER TABLE hot_total DROP COLUMN removed");
    share = share_of(place->first, HOT_TOTAL("0, 0, 50, 0"), 0);
    assert_true(share.low == 0.6 && share.high == 1);
    share = share_of(place->first, HOT_TOTAL("0, 0, 50, 1"), 0);
    assert_true(share.low == 0.6 && share.high == 0.6);
}

/* ---- aggregators ----------------------------------------------------------------------------- */

/* Of the 20 pushes of 10 rows, each with 1 us of PS_proc, 12 came through aggregator 2: in two sums
 * of six, which have 40 of their 60 rows. One was refused with its sum, and one was too large; 6
 * never came there. */
#define AGGREGATED                                                                                 \
    "UPDATE rpc SET ps_proc_ns = 400, n_tx_ns = n_tx_ns + 600, ps_overlap_ns = 100"                \
    " WHERE rpc <= 12;"                                                                            \
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12)"                 \
    " INSERT INTO aggregate_in"                                                                    \
    " SELECT 2, 5, 0, 3, i, 0, 0, 0, 1, 10, 80, i * 1000, 9000000, 1 + i / 7, 1 FROM n;"           \
    "INSERT INTO aggregate_in VALUES"                                                              \
    " (2, 5, 0, 3, 13, 0, 16, 5, 1, 10, 80, 7, 9, 9, 1),"                                          \
    " (2, 5, 0, 3, 14, 0, 16, 3, 1, 10, 80, 7, 9, 0, 1);"                                          \
    "INSERT INTO aggregate_out VALUES"                                                             \
    " (2, 5, 1, 0, 1, 0, 1, 6, 6, 60, 40, 500, 400, 1000, 3000, 9000, 1),"                         \
    " (2, 5, 2, 0, 1, 0, 3, 6, 6, 60, 40, 500, 400, 2000, 8000, 9000, 1),"                         \
    " (2, 5, 9, 0, 1, 16, 3, 1, 1, 10, 5, 90, 95, 2000, 4000, 9000, 1),"                          \
    " (2, 5, 0, 0, 1, 16, 0, 3, 3, 30, 30, 500, 0, 2000, 0, 9000, 1)"

static void what_aggregators_absorb(void **state)
{
    const struct place *place = *state;
    struct weft_recdb_aggregation a;
    const char *file = place->first;
    struct weft_recdb db;
    run_sql(place->first, AGGREGATED);
    assert_int_equal(weft_recdb_open(&file, 1, &db), WEFT_OK);
    assert_int_equal(weft_recdb_aggregation_make(&db, &a), WEFT_OK);
    weft_recdb_close(&db);
    assert_int_equal(a.count, 1);
    const struct weft_recdb_aggregator *one = &a.list[0];
    assert_int_equal(one->number, 2);
    assert_int_equal(one->server, 5);
    assert_int_equal(one->pushes, 14);
    assert_int_equal(one->direct[WEFT_RPC_RECORD_ABSORBED], 12);
    assert_int_equal(one->direct[WEFT_RPC_RECORD_DIRECT_LARGE], 1);
    assert_int_equal(one->direct[WEFT_RPC_RECORD_DIRECT_REFUSED], 1);
    assert_int_equal(weft_recdb_direct(one), 2);
    assert_int_equal(one->sums, 3); /* not the one that was dropped */
    assert_int_equal(one->flushed[WEFT_RPC_RECORD_FLUSH_AGE], 2);
    assert_int_equal(one->messages, 13);
    assert_int_equal(one->rows_in, 130);
    assert_int_equal(one->rows_out, 85);
    assert_int_equal(one->age_ns, 2000 + 6000 + 2000);
    assert_int_equal(one->age_ns_max, 6000);
    assert_true(weft_recdb_absorbed(one) == 1 - 5.0 / 14);
    assert_true(weft_recdb_combined(one) == 1 - 85.0 / 130);
    assert_true(weft_recdb_removed(&a) == 40.0 / 200); /* without the sum that was refused */
    assert_int_equal(a.paths[WEFT_RECDB_AGGREGATED].pushes, 12);
    assert_int_equal(a.paths[WEFT_RECDB_AGGREGATED].updates, 120);
    assert_int_equal(a.paths[WEFT_RECDB_DIRECT].updates, 80);
    assert_true(weft_recdb_path_ns(&a, WEFT_RECDB_AGGREGATED) == 50);
    assert_true(weft_recdb_path_ns(&a, WEFT_RECDB_DIRECT) == 100);
    assert_true(weft_recdb_path_ns(&a, WEFT_RECDB_PATHS) == 70);
    assert_int_equal(a.refused, 0);
    weft_recdb_aggregation_fini(&a);
}

static void invalid_rows_of_aggregators_are_refused(void **state)
{
    const struct place *place = *state;
    static const char *const changes[] = {
        "aggregate_in SET reason = 6 WHERE rpc = 2",
        "aggregate_in SET pushes = -1 WHERE rpc = 2",
        "aggregate_in SET server = -1 WHERE rpc = 2",
        "aggregate_out SET reason = 5 WHERE rpc = 2",
        "aggregate_out SET rows_in = 4294967296 WHERE rpc = 2",
        "aggregate_out SET sent_ns = 1999 WHERE rpc = 2",
        "aggregate_out SET sent_ns = 9223372036854775807 WHERE rpc = 2"};
    const char *file = place->first;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(changes); i++) {
        char sql[160];
        struct weft_recdb db;
        struct weft_recdb_aggregation a;
        run_sql(place->first, "DELETE FROM aggregate_in; DELETE FROM aggregate_out;" AGGREGATED);
        snprintf(sql, sizeof(sql), "UPDATE %s", changes[i]);
        run_sql(place->first, sql);
        assert_int_equal(weft_recdb_open(&file, 1, &db), WEFT_OK);
        assert_int_equal(weft_recdb_aggregation_make(&db, &a), WEFT_OK);
        assert_int_equal(a.refused, 1);
        assert_int_equal(a.all.pushes + a.all.sums, 14 + 3 - 1);
        weft_recdb_aggregation_fini(&a);
        weft_recdb_close(&db);
    }
}

/* Files of earlier releases have neither tables of aggregators nor counts of connections. */
static void files_of_earlier_releases(void **state)
{
    const struct place *place = *state;
    static struct weft_recdb_digest digest;
    const char *old = place->second;
    struct weft_recdb_aggregation a;
    struct weft_records_sum sum;
    struct weft_error error = {.text = ""};
    struct weft_recdb db;
    run_sql(place->second, "DROP TABLE aggregate_in; DROP TABLE aggregate_out;"
                           "ALTER TABLE active DROP COLUMN connections;"
                           "ALTER TABLE process DROP COLUMN ended;"
                           "INSERT INTO process VALUES(1, 'server', 0, 9, 20, 2, 500, 1000);"
                           "INSERT INTO active VALUES(5, 0, 1000000, 7, 1)");
    assert_int_equal(weft_recdb_open(&old, 1, &db), WEFT_OK);
    assert_int_equal(weft_recdb_digest_make(&db, NULL, &digest), WEFT_OK);
    assert_int_equal(digest.active.count, 1);
    assert_int_equal(digest.connections.count, 0);
    assert_int_equal(weft_recdb_digest_cut(&digest), 0);
    weft_recdb_digest_fini(&digest);
    assert_int_equal(weft_recdb_aggregation_make(&db, &a), WEFT_OK);
    assert_int_equal(a.count, 0);
    assert_true(weft_recdb_removed(&a) == -1);
    weft_recdb_aggregation_fini(&a);
    weft_recdb_close(&db);

    /* Together with a file that has them, in both orders: what is missing is unknown, and what the
     * other file has is not. */
    run_sql(place->first, AGGREGATED
            ";INSERT INTO process VALUES(1, 'server', 1, 9, 20, 3, 500, 1000, 0);"
            "INSERT INTO active VALUES(6, 0, 1000000, 4, 1, 2)");
    for (unsigned order = 0; order < 2; order++) {
        const char *const both[] = {order == 0 ? place->second : place->first,
                                    order == 0 ? place->first : place->second};
        assert_int_equal(weft_recdb_open(both, 2, &db), WEFT_OK);
        assert_int_equal(weft_recdb_aggregation_make(&db, &a), WEFT_OK);
        assert_int_equal(a.all.pushes, 14);
        weft_recdb_aggregation_fini(&a);
        assert_int_equal(weft_recdb_digest_make(&db, NULL, &digest), WEFT_OK);
        assert_int_equal(digest.active.count, 2);
        assert_int_equal(digest.active.max, 7);
        assert_int_equal(digest.connections.count, 1);
        assert_int_equal(digest.connections.max, 2);
        assert_int_equal(weft_recdb_digest_dropped(&digest), 5);
        assert_int_equal(weft_recdb_digest_cut(&digest), 1);
        weft_recdb_digest_fini(&digest);
        weft_recdb_close(&db);
    }

    /* Merged into a file of this release: the counts are zero, which means unknown. */
    run_sql(place->second, "ALTER TABLE process ADD COLUMN ended INTEGER");
    assert_int_equal(weft_records_make(&old, 1, place->first, true, NULL, &sum, &error), WEFT_OK);
    const char *made = place->first;
    assert_int_equal(weft_recdb_open(&made, 1, &db), WEFT_OK);
    assert_int_equal(
        weft_recdb_number(&db, weft_recdb_query(&db, "SELECT sum(workers) * 10 + sum(connections)"
                                                     " FROM active")),
        70);
    weft_recdb_close(&db);
}

/* Of the last page, and of one before it. */
static void a_truncated_file_is_refused(void **state)
{
    const struct place *place = *state;
    const char *const both[] = {place->second, place->first};
    struct weft_recdb db;
    struct stat about;
    assert_int_equal(stat(place->first, &about), 0);
    const off_t cuts[] = {1, 300, 4096, 5000};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(cuts); i++) {
        assert_int_equal(truncate(place->first, about.st_size - cuts[i]), 0);
        for (unsigned count = 1; count <= 2; count++) {
            assert_int_equal(weft_recdb_open(both + 2 - count, count, &db), WEFT_DATA);
            assert_non_null(strstr(db.error.text, place->first));
            assert_non_null(strstr(db.error.text, "truncated"));
            weft_recdb_close(&db);
        }
    }
}

/* The first failure is kept; later calls neither hide it nor crash. */
static void a_failure_is_kept(void **state)
{
    const struct place *place = *state;
    const char *file = place->first;
    struct weft_recdb db;
    assert_int_equal(weft_recdb_open(&file, 1, &db), WEFT_OK);
    sqlite3_stmt *none = weft_recdb_query(&db, "SELECT nothing FROM rpc");
    assert_null(none);
    assert_int_equal(db.status, WEFT_IO);
    assert_non_null(strstr(db.error.text, "nothing"));
    assert_false(weft_recdb_row(&db, none));
    weft_recdb_no_memory(&db);
    assert_int_equal(db.status, WEFT_IO);
    weft_recdb_close(&db);
    const char *missing = "/nowhere/r.db";
    assert_int_equal(weft_recdb_open(&missing, 1, &db), WEFT_IO);
    assert_non_null(strstr(db.error.text, missing));
    weft_recdb_close(&db);
    run_sql(place->second, "UPDATE meta SET value = '9' WHERE key = 'schema_version'");
    file = place->second;
    assert_int_equal(weft_recdb_open(&file, 1, &db), WEFT_DATA);
    assert_non_null(strstr(db.error.text, "version"));
    weft_recdb_close(&db);
    run_sql(place->second, "DROP TABLE served");
    assert_int_equal(weft_recdb_open(&file, 1, &db), WEFT_DATA);
    assert_non_null(strstr(db.error.text, "served"));
    weft_recdb_close(&db);
    /* A view that has no row, and looks for one forever. */
    run_sql(place->second, "CREATE VIEW served AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT"
                           " i + 1 FROM n) SELECT i AS server FROM n WHERE i < 0;"
                           "UPDATE meta SET value = '1' WHERE key = 'schema_version'");
    alarm(30);
    assert_int_equal(weft_recdb_open(&file, 1, &db), WEFT_DATA);
    alarm(0);
    assert_non_null(strstr(db.error.text, "its table served is missing"));
    weft_recdb_close(&db);
}

static void a_chrome_trace_has_every_stage(void **state)
{
    const struct place *place = *state;
    struct weft_recdb_chrome_sum sum;
    struct weft_recdb db;
    const char *file = place->first;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    run_sql(place->first,
            "INSERT INTO served SELECT server, worker, rpc, kind, t0_ns + 500, t1_ns - 500,"
            " ps_proc_ns, ps_wait_ns, ps_queue_ns, 1 FROM rpc WHERE rpc > 1");
    assert_int_equal(weft_recdb_open(&file, 1, &db), WEFT_OK);
    assert_int_equal(weft_recdb_chrome(&db, "", "", out, &sum), WEFT_OK);
    weft_recdb_close(&db);
    fclose(out);
    assert_int_equal(sum.unmatched, 1); /* the first RPC has no record of its server */
    assert_int_equal(sum.crowded, 0);
    assert_int_equal(sum.slices, 20 * 5 + 19 * 3);
    assert_non_null(strstr(text, "\"name\":\"worker 3\""));
    assert_non_null(strstr(text, "half of N_tx"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_digest_is_the_sum_of_the_rows, place_make, place_clear),
        cmocka_unit_test_setup_teardown(the_slowest_are_found_and_why, place_make, place_clear),
        cmocka_unit_test_setup_teardown(rows_that_cannot_be_are_refused, place_make, place_clear),
        cmocka_unit_test_setup_teardown(several_files_are_one, place_make, place_clear),
        cmocka_unit_test_setup_teardown(shares_have_bounds, place_make, place_clear),
        cmocka_unit_test_setup_teardown(what_aggregators_absorb, place_make, place_clear),
        cmocka_unit_test_setup_teardown(invalid_rows_of_aggregators_are_refused, place_make,
                                        place_clear),
        cmocka_unit_test_setup_teardown(files_of_earlier_releases, place_make, place_clear),
        cmocka_unit_test_setup_teardown(a_truncated_file_is_refused, place_make, place_clear),
        cmocka_unit_test_setup_teardown(a_failure_is_kept, place_make, place_clear),
        cmocka_unit_test_setup_teardown(a_chrome_trace_has_every_stage, place_make, place_clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
