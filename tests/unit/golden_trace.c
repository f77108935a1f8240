/* Traces: the file of an endpoint's trace, records of RPCs from the ring to the database, captures
 * of packets; and the journal of the coordinator, which has its own format, too. */
#include "golden.h"

#include "core_inspect.h"
#include "job/coordinator_journal.h"
#include "obs/pcap.h"
#include "obs/records_db.h"
#include "obs/trace_file.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the trace of an endpoint ---------------------------------------------------------------- */

/* A record of each type. */
static void trace_fill(struct weft_ep *ep)
{
    for (unsigned type = WEFT_TRACE_NONE + 1; type < WEFT_TRACE_TYPE_END; type++) {
        ep->trace.now_ns = UINT64_C(0x0102030405060700) + type;
        weft_core_trace_write(ep, type % 2 == 0 ? NULL : inspect_peer(ep, 0),
                              (enum weft_trace_type)type, 0x80 + type, UINT64_C(0x1112131415161718),
                              0x21222324, 0x31323334, UINT64_MAX);
    }
}

/* The numeric values of types and reasons are stored in files. */
static void trace_names(struct golden *g)
{
    char names[4096] = "";
    for (unsigned i = 1; weft_trace_type_name(i) != NULL; i++) {
        size_t used = strlen(names);
        (void)snprintf(names + used, sizeof(names) - used, "%u %s\n", i, weft_trace_type_name(i));
    }
    for (unsigned i = 0; weft_trace_drop_name(i) != NULL; i++) {
        size_t used = strlen(names);
        (void)snprintf(names + used, sizeof(names) - used, "%u %s\n", i, weft_trace_drop_name(i));
    }
    golden_item(g, names, strlen(names), "types, and reasons to drop");
}

void golden_trace(void **state)
{
    (void)state;
    struct golden *g = golden_begin("trace");
    struct weft_trace_writer *writer;
    struct weft_trace_feed feed;
    struct weft_ep_config config;
    struct weft_ep *ep;
    char folder[64], path[128];
    golden_folder_make(folder);
    (void)snprintf(path, sizeof(path), "%s/t", folder);
    weft_ep_config_default(&config);
    config.trace_records = 64;
    assert_int_equal(weft_ep_new(&config, &ep), WEFT_OK);
    assert_int_equal(weft_trace_writer_open(path, UINT64_MAX, &writer), WEFT_OK);
    assert_int_equal(weft_trace_feed_init(writer, "worker 0", 0x0102030405060708,
                                          0x1112131415161718, 0x2122232425262728, &feed),
                     WEFT_OK);
    trace_fill(ep);
    assert_int_equal(weft_trace_feed_drain(&feed, ep, 64, false), WEFT_OK);
    trace_fill(ep); /* three times, so that the ring wraps */
    trace_fill(ep);
    trace_fill(ep);
    assert_int_equal(weft_trace_feed_drain(&feed, ep, 64, true), WEFT_OK);
    assert_int_equal(weft_trace_writer_close(writer), WEFT_OK);
    weft_ep_free(ep);
    golden_file(g, path, "trace file");
    trace_names(g);
    golden_folder_remove(folder);
    golden_end(g);
}

/* ---- records of RPCs ------------------------------------------------------------------------- */

static const struct weft_rpc_record_client rpc = {.worker = 1,
                                           .server = 2,
                                           .rpc = 3,
                                           .iteration = 4,
                                           .rows = 5,
                                           .status = 6,
                                           .kind = WEFT_RPC_PULL,
                                           .t0_ns = 0x0102030405060708,
                                           .t1_ns = 0x0102030405060708 + 21,
                                           .request_bytes = 9,
                                           .reply_bytes = 10,
                                           .latency = {.w_proc_ns = 11,
                                                       .w_queue_ns = 12,
                                                       .ps_proc_ns = 1,
                                                       .ps_overlap_ns = 14,
                                                       .ps_wait_ns = 2,
                                                       .ps_queue_ns = 3,
                                                       .n_tx_ns = 15}};
static const struct weft_rpc_record_served served = {.server = 2,
                                                 .worker = 1,
                                                 .rpc = 3,
                                                 .kind = WEFT_RPC_PULL,
                                                 .arrival_ns = 0x1112131415161718,
                                                 .departure_ns = 0x1112131415161718 + 6,
                                                 .ps_proc_ns = 1,
                                                 .ps_wait_ns = 2,
                                                 .ps_queue_ns = 3};

/* Short records, and records with a value that makes them long. */
static void ring_fill(struct weft_rpc_record_ring *ring)
{
    struct weft_rpc_record_client long_rpc = rpc;
    struct weft_rpc_record_served long_served = served;
    long_rpc.worker = long_served.worker = 0x010203;
    weft_rpc_record_put_client(ring, 7, &rpc);
    weft_rpc_record_put_client(ring, 7, &long_rpc);
    weft_rpc_record_put_served(ring, 7, &served);
    weft_rpc_record_put_served(ring, 7, &long_served);
}

static const struct weft_rpc_record others[] = {
    {.type = WEFT_RPC_RECORD_ACTIVE,
     .active = {.server = 2, .workers = 3, .start_ns = 4000, .window_ns = 1000, .connections = 4}},
    {.type = WEFT_RPC_RECORD_HOT,
     .table = 7,
     .hot = {.server = 2, .id = 99, .updates = 5}},
    {.type = WEFT_RPC_RECORD_HOT_TOTAL,
     .table = 7,
     .hot_total = {.server = 2, .exact = false, .updates = 6, .removed = 1}},
    {.type = WEFT_RPC_RECORD_AGGREGATE_IN,
     .table = 7,
     .aggregate_in = {.server = 2,
                      .aggregator = 3,
                      .sender = 4,
                      .rpc = 5,
                      .aggregate = 6,
                      .pushes = 8,
                      .rows = 9,
                      .status = WEFT_RPC_SEND_DIRECT,
                      .is_child = 1,
                      .reason = WEFT_RPC_RECORD_DIRECT_REFUSED,
                      .bytes = 10,
                      .arrival_ns = 11,
                      .answer_ns = 12}},
    {.type = WEFT_RPC_RECORD_AGGREGATE_OUT,
     .table = 7,
     .aggregate_out = {.server = 2,
                       .aggregator = 3,
                       .rpc = 4,
                       .clock = 5,
                       .messages = 6,
                       .pushes = 8,
                       .rows_in = 9,
                       .rows_out = 10,
                       .status = WEFT_RPC_SEND_DIRECT,
                       .reason = WEFT_RPC_RECORD_FLUSH_MEMORY,
                       .first_ns = 11,
                       .sent_ns = 12,
                       .answer_ns = 13,
                       .bytes_in = 14,
                       .bytes_out = 15}},
};

/* Convert records through a process's spool into a database. */
static void records_make(const char *database)
{
    struct weft_recorder_config config;
    struct weft_recorder *recorder;
    struct weft_error error = {.text = ""};
    struct weft_records_sum sum;
    char name[256];
    const char *const spool = name;
    weft_recorder_config_default(&config);
    config.path = database;
    config.rank = 7;
    config.version = "1.2.3";
    config.command = "weft test";
    config.window_ns = 1000;
    config.ring_slots = 1024;
    assert_int_equal(weft_recorder_open(&config, &recorder, &error), WEFT_OK);
    ring_fill(weft_recorder_ring(recorder));
    weft_recorder_add(recorder, others, WEFT_ARRAY_COUNT(others));
    weft_recorder_finish(recorder);
    (void)snprintf(name, sizeof(name), "%s", weft_recorder_spool(recorder));
    weft_recorder_free(recorder);
    assert_int_equal(weft_records_make(&spool, 1, database, false, NULL, &sum, &error), WEFT_OK);
}

/* All rows of a query, as text. */
static void query_add(struct golden *g, sqlite3 *db, const char *name, const char *sql)
{
    char text[8192] = "";
    sqlite3_stmt *stmt;
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        for (int c = 0; c < sqlite3_column_count(stmt); c++) {
            size_t used = strlen(text);
            const unsigned char *value = sqlite3_column_text(stmt, c);
            (void)snprintf(text + used, sizeof(text) - used, "%s=%s\n",
                           sqlite3_column_name(stmt, c),
                           value != NULL ? (const char *)value : "NULL");
        }
    }
    sqlite3_finalize(stmt);
    assert_true(strlen(text) + 1 < sizeof(text));
    golden_item(g, text, strlen(text), "%s", name);
}

/* Put the spool's records into the ring. */
static void ring_add(struct golden *g)
{
    struct weft_rpc_record_ring *ring;
    uint32_t count;
    assert_int_equal(weft_rpc_record_ring_new(1024, &ring), WEFT_OK);
    ring_fill(ring);
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(others); i++) {
        weft_rpc_record_put(ring, &others[i]);
    }
    const struct weft_rpc_record_unit *units = weft_rpc_record_ring_peek(ring, &count);
    golden_item(g, units, count * sizeof(*units), "records in a ring and in a spool");
    weft_rpc_record_ring_free(ring);
}

void golden_records(void **state)
{
    (void)state;
    struct golden *g = golden_begin("records");
    sqlite3 *db;
    char folder[64], path[128];
    golden_folder_make(folder);
    (void)snprintf(path, sizeof(path), "%s/r.db", folder);
    ring_add(g);
    records_make(path);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    query_add(g, db, "schema", "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name");
    query_add(g, db, "meta", "SELECT key FROM meta ORDER BY key");
    query_add(g, db, "schema version", "SELECT value FROM meta WHERE key = 'schema_version'");
    query_add(g, db, "process", "SELECT id, role, rank, records, dropped, ended FROM process");
    query_add(g, db, "rpc", "SELECT * FROM rpc ORDER BY worker");
    query_add(g, db, "served", "SELECT * FROM served ORDER BY worker");
    query_add(g, db, "active", "SELECT * FROM active");
    query_add(g, db, "hot", "SELECT * FROM hot");
    query_add(g, db, "hot_total", "SELECT * FROM hot_total");
    query_add(g, db, "aggregate_in", "SELECT * FROM aggregate_in");
    query_add(g, db, "aggregate_out", "SELECT * FROM aggregate_out");
    sqlite3_close(db);
    golden_folder_remove(folder);
    golden_end(g);
}

/* ---- captures of packets --------------------------------------------------------------------- */

void golden_pcap(void **state)
{
    (void)state;
    struct golden *g = golden_begin("pcap");
    char folder[64], path[128];
    FILE *file;
    golden_folder_make(folder);
    (void)snprintf(path, sizeof(path), "%s/p", folder);
    assert_int_equal(weft_pcap_open(path, &file), WEFT_OK);
    weft_pcap_write(file, 3 * WEFT_NS_PER_S + 5, 1, 0x0102, WEFT_ECN_CE, "weft", 4);
    weft_pcap_write(file, 4 * WEFT_NS_PER_S + 6, 0x0102, 1, WEFT_ECN_ECT0, "and back", 8);
    assert_int_equal(fclose(file), 0);
    golden_file(g, path, "capture");
    golden_folder_remove(folder);
    golden_end(g);
}

/* ---- the coordinator's journal --------------------------------------------------------------- */

static weft_status hear(void *arg, uint8_t op, const uint8_t *bytes, size_t count)
{
    (void)arg, (void)op, (void)bytes, (void)count;
    return WEFT_OK;
}

void golden_members(void **state)
{
    (void)state;
    struct golden *g = golden_begin("members");
    struct weft_coordinator_journal *journal;
    struct weft_error error = {.text = ""};
    uint8_t body[96];
    uint64_t torn;
    char folder[64], path[128];
    golden_folder_make(folder);
    (void)snprintf(path, sizeof(path), "%s/m", folder);
    for (size_t i = 0; i < sizeof(body); i++) {
        body[i] = (uint8_t)i;
    }
    assert_int_equal(weft_coordinator_journal_open(path, hear, NULL, &journal, &torn, &error),
                     WEFT_OK);
    assert_int_equal(weft_coordinator_journal_append(journal, 32, body, sizeof(body)), WEFT_OK);
    assert_int_equal(weft_coordinator_journal_append(journal, 35, body, 1), WEFT_OK);
    assert_int_equal(weft_coordinator_journal_sync(journal), WEFT_OK);
    weft_coordinator_journal_close(journal);
    golden_file(g, path, "coordinator's journal");
    golden_folder_remove(folder);
    golden_end(g);
}
