/* From ring to database: no record is lost on the way; records that cannot be stored are counted
 * and reported. */
#include "obs/recdb.h"
#include "obs/records_db.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, EACH = 5000 };

struct place {
    char folder[64];
    char file[128];  /* the database to create */
    char lines[128]; /* the same as lines of JSON */
    char spool[160]; /* spool of worker 7 */
};

static int place_make(void **state)
{
    struct place *place = calloc(1, sizeof(*place));
    assert_non_null(place);
    snprintf(place->folder, sizeof(place->folder), "/tmp/weft-records-XXXXXX");
    assert_non_null(mkdtemp(place->folder));
    snprintf(place->file, sizeof(place->file), "%s/r.db", place->folder);
    snprintf(place->lines, sizeof(place->lines), "%s/r.jsonl", place->folder);
    snprintf(place->spool, sizeof(place->spool), "%s.spool-worker-7", place->file);
    *state = place;
    return 0;
}

static int place_clear(void **state)
{
    struct place *place = *state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", place->folder);
    int status = system(command);
    free(place);
    return status;
}

static struct weft_recorder *recorder_open_at(const struct place *place, uint32_t period_us)
{
    struct weft_recorder_config config;
    struct weft_recorder *recorder;
    struct weft_error error = {.text = ""};
    weft_recorder_config_default(&config);
    config.path = place->file;
    config.rank = 7;
    config.version = "1.2.3";
    config.command = "weft test \"quoted\"";
    config.window_ns = 1000000;
    config.ring_slots = 1024;
    config.period_us = period_us;
    if (weft_recorder_open(&config, &recorder, &error) != WEFT_OK) {
        fail_msg("%s", error.text);
    }
    return recorder;
}

static struct weft_recorder *recorder_open(const struct place *place)
{
    return recorder_open_at(place, 1000);
}

static void put_rpc(struct weft_rpc_record_ring *ring, uint32_t worker, uint32_t rpc)
{
    /* Every third record is long. */
    const struct weft_rpc_record_client record = {.worker = worker,
                                           .rpc = rpc,
                                           .kind = 2,
                                           .t1_ns = rpc % 3 == 0 ? UINT64_MAX : rpc,
                                           .latency = {.n_tx_ns = rpc}};
    while (weft_rpc_record_claim(ring, WEFT_RPC_RECORD_UNITS) == NULL) {
        sched_yield(); /* drops are counted; this test requires all records */
    }
    weft_rpc_record_put_client(ring, 1, &record);
}

struct feeder {
    pthread_t thread;
    struct weft_rpc_record_ring *ring;
    uint32_t worker;
};

static void *feed(void *arg)
{
    const struct feeder *feeder = arg;
    for (uint32_t i = 1; i <= EACH; i++) {
        put_rpc(feeder->ring, feeder->worker, i);
    }
    return NULL;
}

/* The single number that a query returns. */
static int64_t ask(const char *path, const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *stmt;
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK ||
        sqlite3_step(stmt) != SQLITE_ROW) {
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    }
    int64_t number = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return number;
}

static struct weft_records_sum make_of(const char *const *inputs, uint32_t count, const char *path,
                                       bool replace)
{
    struct weft_records_sum sum;
    struct weft_error error = {.text = ""};
    if (weft_records_make(inputs, count, path, replace, NULL, &sum, &error) != WEFT_OK) {
        fail_msg("%s", error.text);
    }
    return sum;
}

static struct weft_records_sum make(const struct place *place, bool replace)
{
    return make_of((const char *const[]){place->spool}, 1, place->file, replace);
}

/* Some records of one ring, and a normal end. */
static void record_some(const struct place *place, uint32_t count)
{
    struct weft_recorder *recorder = recorder_open(place);
    struct weft_rpc_record_ring *ring = weft_recorder_ring(recorder);
    for (uint32_t i = 1; i <= count; i++) {
        put_rpc(ring, 0, i);
    }
    weft_recorder_free(recorder);
}

/* ---- from ring to database ------------------------------------------------------------------- */

static void all_that_was_made_is_there(void **state)
{
    const struct place *place = *state;
    struct feeder feeders[THREADS];
    struct weft_recorder *recorder = recorder_open(place);
    for (uint32_t i = 0; i < THREADS; i++) {
        feeders[i] = (struct feeder){.ring = weft_recorder_ring(recorder), .worker = i};
        assert_non_null(feeders[i].ring);
        assert_int_equal(pthread_create(&feeders[i].thread, NULL, feed, &feeders[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(feeders[i].thread, NULL);
    }
    const struct weft_rpc_record hot[] = {
        {.type = WEFT_RPC_RECORD_HOT,
         .table = 2,
         .hot = {.server = 3, .id = UINT64_MAX, .updates = 9}},
        {.type = WEFT_RPC_RECORD_HOT_TOTAL, .table = 2, .hot_total = {.server = 3, .updates = 10}},
    };
    weft_recorder_add(recorder, hot, 2);
    weft_recorder_finish(recorder);
    struct weft_recorder_counts counts;
    weft_recorder_counts(recorder, &counts);
    assert_int_equal(counts.records, THREADS * EACH + 2);
    assert_true(counts.cpu_ns > 0); /* also of a thread that has ended */
    weft_recorder_free(recorder);

    struct weft_records_sum sum = make(place, false);
    assert_int_equal(sum.rpcs, THREADS * EACH);
    assert_int_equal(sum.records, THREADS * EACH + 2);
    assert_int_equal(sum.bytes_skipped, 0);
    assert_int_equal(sum.processes, 1);
    assert_int_equal(sum.processes_cut, 0);
    assert_int_equal(ask(place->file, "SELECT count(*) FROM rpc WHERE n_tx_ns = rpc AND tbl = 1"),
                     THREADS * EACH);
    assert_int_equal(ask(place->file, "SELECT count(DISTINCT worker * 10000 + rpc) FROM rpc"),
                     THREADS * EACH);
    assert_int_equal(ask(place->file, "SELECT count(*) FROM rpc WHERE t1_ns = -1"),
                     THREADS * (EACH / 3));
    assert_int_equal(ask(place->file, "SELECT count(*) FROM rpc WHERE t1_ns = rpc"),
                     THREADS * (EACH - EACH / 3));
    assert_int_equal(ask(place->file, "SELECT id FROM hot WHERE updates = 9 AND tbl = 2"), -1);
    assert_int_equal(ask(place->file, "SELECT updates FROM hot_total WHERE exact = 0"), 10);
    assert_int_equal(ask(place->file, "SELECT count(*) FROM process WHERE role = 'worker' AND "
                                      "rank = 7 AND ended = 1 AND wall_ns > 0"),
                     1);
    assert_int_equal(ask(place->file, "SELECT count(*) FROM meta WHERE "
                                      "(key = 'schema_version' AND value = '1') OR "
                                      "(key = 'weft_version' AND value = '1.2.3') OR "
                                      "(key = 'command' AND value = 'weft test \"quoted\"') OR "
                                      "(key = 'window_ns' AND value = '1000000')"),
                     4);
}

/* A full ring drops records, and the process's row contains their number. */
static void dropped_are_counted(void **state)
{
    const struct place *place = *state;
    struct weft_recorder *recorder = recorder_open_at(place, UINT32_MAX);
    struct weft_rpc_record_ring *ring = weft_recorder_ring(recorder);
    for (uint32_t i = 0; i < 1024 + 76; i++) {
        weft_rpc_record_put_client(ring, 0, &(struct weft_rpc_record_client){.rpc = i});
    }
    weft_recorder_free(recorder);
    struct weft_records_sum sum = make(place, false);
    assert_int_equal(sum.rpcs, 1024);
    assert_int_equal(sum.dropped, 76);
    assert_int_equal(ask(place->file, "SELECT dropped FROM process"), 76);
}

/* ---- several processes ----------------------------------------------------------------------- */

static void one_file_of_several(void **state)
{
    const struct place *place = *state;
    char other[200];
    snprintf(other, sizeof(other), "%s/other", place->folder);
    record_some(place, 10);
    make(place, false);
    assert_int_equal(unlink(place->spool), 0);
    record_some(place, 20);
    assert_int_equal(make(place, false).rpcs, 20); /* appended to */
    assert_int_equal(ask(place->file, "SELECT count(*) FROM rpc"), 30);
    assert_int_equal(ask(place->file, "SELECT count(*) FROM process"), 2);
    assert_int_equal(ask(place->file, "SELECT count(*) FROM rpc WHERE process = 2"), 20);
    /* Merge a database and a spool into a third file. */
    struct weft_records_sum sum =
        make_of((const char *const[]){place->file, place->spool}, 2, other, true);
    assert_int_equal(sum.processes, 3);
    assert_int_equal(ask(other, "SELECT count(*) FROM rpc"), 50);
    assert_int_equal(ask(other, "SELECT count(*) FROM rpc JOIN process ON process = id"), 50);
    assert_int_equal(make(place, true).rpcs, 20); /* replaced */
    assert_int_equal(ask(place->file, "SELECT count(*) FROM rpc"), 20);
}

/* Number of lines of the file that contain the words. */
static uint32_t lines_with(const char *path, const char *words)
{
    char line[1024];
    uint32_t count = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        count += strstr(line, words) != NULL;
    }
    fclose(file);
    return count;
}

static void one_file_of_lines_of_several(void **state)
{
    const struct place *place = *state;
    const char *const spool = place->spool;
    record_some(place, 10);
    make_of(&spool, 1, place->lines, false);
    assert_int_equal(unlink(place->spool), 0);
    record_some(place, 20);
    make_of(&spool, 1, place->lines, false); /* appended to */
    assert_int_equal(lines_with(place->lines, "\"table\":\"process\""), 2);
    assert_int_equal(lines_with(place->lines, "\"table\":\"process\",\"id\":2,"), 1);
    assert_int_equal(lines_with(place->lines, "\"process\":1}"), 10);
    assert_int_equal(lines_with(place->lines, "\"process\":2}"), 20);
    assert_int_equal(lines_with(place->lines, "\"key\":\"schema_version\""), 1);
    assert_int_equal(lines_with(place->lines, "\"key\":\"started_utc\""), 1);
}

/* Append bytes to a file. */
static void append(const char *path, const char *text)
{
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Its rows have no process, and its spool has them all. */
static void unfinished_addition_of_lines_is_cut_off(void **state)
{
    const struct place *place = *state;
    const char *const spool = place->spool;
    record_some(place, 10);
    make_of(&spool, 1, place->lines, false);
    append(place->lines, "{\"table\":\"rpc\",\"worker\":0,\"process\":2}\n{\"table\":\"rp");
    make_of(&spool, 1, place->lines, false);
    assert_int_equal(lines_with(place->lines, "\"table\":\"process\",\"id\":2,"), 1);
    assert_int_equal(lines_with(place->lines, "\"process\":2}"), 10);
    assert_int_equal(lines_with(place->lines, "\"table\":"), lines_with(place->lines, "}\n"));
    /* The line of the process itself, cut short, does not complete its addition. */
    append(place->lines, "{\"table\":\"rpc\",\"worker\":0,\"process\":3}\n"
                         "{\"table\":\"process\",\"id\":3,\"ro");
    make_of(&spool, 1, place->lines, false);
    assert_int_equal(lines_with(place->lines, "\"table\":\"process\",\"id\":3,"), 1);
    assert_int_equal(lines_with(place->lines, "\"process\":3}"), 10);
    assert_int_equal(lines_with(place->lines, "\"table\":"), lines_with(place->lines, "}\n"));
}

static void lines_that_do_not_fit_are_cut_off(void **state)
{
    const struct place *place = *state;
    const char *const spool = place->spool;
    struct stat before, after;
    record_some(place, 10);
    make_of(&spool, 1, place->lines, false);
    assert_int_equal(unlink(place->spool), 0);
    record_some(place, 500);
    assert_int_equal(stat(place->lines, &before), 0);
    pid_t child = fork();
    if (child == 0) {
        struct weft_records_sum sum;
        struct weft_error error = {.text = ""};
        struct rlimit limit = {.rlim_cur = (rlim_t)before.st_size + 9000,
                               .rlim_max = RLIM_INFINITY};
        signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0) {
            _exit(2);
        }
        _exit(weft_records_make(&spool, 1, place->lines, false, NULL, &sum, &error) != WEFT_IO);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(stat(place->lines, &after), 0);
    assert_int_equal(after.st_size, before.st_size);
}

/* A process that is killed while it adds to the database leaves a journal. It must not be applied
 * to the database that takes the name. */
static void journal_of_a_killed_process_does_not_harm_the_next_file(void **state)
{
    const struct place *place = *state;
    record_some(place, 2000);
    make(place, false);
    pid_t child = fork();
    if (child == 0) {
        sqlite3 *db;
        bool good = sqlite3_open(place->file, &db) == SQLITE_OK &&
                    sqlite3_exec(db,
                                 "PRAGMA cache_size = 1; BEGIN; UPDATE rpc SET worker = 5;"
                                 "DELETE FROM process",
                                 NULL, NULL, NULL) == SQLITE_OK;
        _exit(good ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    char journal[160];
    snprintf(journal, sizeof(journal), "%s-journal", place->file);
    assert_int_equal(access(journal, F_OK), 0);
    struct weft_records_sum sum =
        make_of((const char *const[]){place->file, place->spool}, 2, place->file, true);
    assert_int_equal(sum.rpcs, 4000); /* the unfinished transaction was rolled back */
    assert_int_equal(access(journal, F_OK), -1);
    sqlite3 *db;
    assert_int_equal(sqlite3_open(place->file, &db), SQLITE_OK); /* for writing: applies journals */
    assert_int_equal(sqlite3_exec(db, "UPDATE rpc SET worker = 6", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(ask(place->file, "SELECT count(*) FROM rpc WHERE worker = 6"), 4000);
}

/* The file is untrusted. */
static void numbers_of_processes_may_be_any(void **state)
{
    const struct place *place = *state;
    char other[200];
    sqlite3 *db;
    snprintf(other, sizeof(other), "%s/other", place->folder);
    record_some(place, 10);
    make(place, false);
    assert_int_equal(sqlite3_open(place->file, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                                  "UPDATE process SET id = 9223372036854775807;"
                                  "UPDATE rpc SET process = 9223372036854775807",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
    make_of((const char *const[]){place->file, place->file}, 2, other, true);
    assert_int_equal(ask(other, "SELECT count(*) FROM rpc JOIN process ON process = id"), 20);
}

static void several_are_read_as_one(void **state)
{
    const struct place *place = *state;
    struct weft_recdb db;
    record_some(place, 10);
    make(place, false);
    const char *const both[] = {place->file, place->file};
    assert_int_equal(weft_recdb_open(both, 2, &db), WEFT_OK);
    sqlite3_stmt *count = weft_recdb_query(&db, "SELECT count(*) FROM rpc");
    assert_int_equal(weft_recdb_number(&db, count), 20);
    assert_int_equal(db.status, WEFT_OK);
    weft_recdb_close(&db);
}

static void spool_of_another_release_is_refused(void **state)
{
    const struct place *place = *state;
    struct weft_records_sum sum;
    struct weft_error error = {.text = ""};
    struct weft_recdb db;
    uint8_t head[128] = "WEFTREC2";
    FILE *file = fopen(place->spool, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(head, sizeof(head), 1, file), 1);
    assert_int_equal(fclose(file), 0);
    const char *spool = place->spool;
    assert_int_equal(weft_records_make(&spool, 1, place->file, false, NULL, &sum, &error),
                     WEFT_DATA);
    assert_non_null(strstr(error.text, "is a spool of another release"));
    assert_int_equal(weft_recdb_open(&spool, 1, &db), WEFT_DATA);
    assert_non_null(strstr(db.error.text, "weft trace merge"));
    weft_recdb_close(&db);
}

static void spool_in_use_is_refused(void **state)
{
    const struct place *place = *state;
    struct weft_recorder *recorder = recorder_open(place);
    struct weft_recorder *second;
    struct weft_recorder_config config;
    struct weft_error error = {.text = ""};
    struct weft_records_sum sum;
    const char *spool = place->spool;
    weft_recorder_config_default(&config);
    config.path = place->file;
    config.rank = 7;
    assert_int_equal(weft_recorder_open(&config, &second, &error), WEFT_EXISTS);
    assert_non_null(strstr(error.text, "another process"));
    assert_int_equal(weft_records_make(&spool, 1, place->file, false, NULL, &sum, &error),
                     WEFT_STATE);
    weft_recorder_free(recorder);
}

/* ---- a spool that is deleted ----------------------------------------------------------------- */

static void put_some(struct weft_rpc_record_ring *ring, uint32_t from, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        put_rpc(ring, 0, from + i);
    }
}

static void await_counts(struct weft_recorder *recorder, uint64_t records, uint64_t dropped)
{
    struct weft_recorder_counts counts = {.records = UINT64_MAX};
    while (counts.records != records || counts.dropped != dropped) {
        weft_recorder_counts(recorder, &counts);
        (void)usleep(1000);
    }
}

static void deleted_spool_is_made_again(void **state)
{
    const struct place *place = *state;
    struct weft_recorder *recorder = recorder_open(place);
    struct weft_rpc_record_ring *ring = weft_recorder_ring(recorder);
    put_some(ring, 1, 300);
    await_counts(recorder, 300, 0);
    assert_int_equal(unlink(place->spool), 0);
    while (access(place->spool, F_OK) != 0) {
        (void)usleep(1000);
    }
    put_some(ring, 301, 200);
    await_counts(recorder, 500, 0);
    assert_int_equal(unlink(place->spool), 0); /* finish also checks the file */
    weft_recorder_free(recorder);
    struct weft_records_sum sum = make(place, false);
    assert_int_equal(sum.rpcs, 500);
    assert_int_equal(sum.bytes_skipped, 0);
    assert_int_equal(sum.processes_cut, 0);
    assert_int_equal(ask(place->file, "SELECT count(DISTINCT rpc) FROM rpc"), 500);
}

static void spool_without_a_folder_is_counted(void **state)
{
    const struct place *place = *state;
    char away[80], spool[200];
    struct weft_recorder *recorder = recorder_open(place);
    struct weft_rpc_record_ring *ring = weft_recorder_ring(recorder);
    put_some(ring, 1, 300);
    await_counts(recorder, 300, 0);
    snprintf(away, sizeof(away), "%s-away", place->folder);
    snprintf(spool, sizeof(spool), "%s%s", away, place->spool + strlen(place->folder));
    assert_int_equal(rename(place->folder, away), 0);
    assert_int_equal(unlink(spool), 0);
    await_counts(recorder, 0, 300);
    assert_int_equal(rename(away, place->folder), 0);
    put_some(ring, 301, 200);
    await_counts(recorder, 0, 500);
    weft_recorder_free(recorder);
}

static void spool_of_a_killed_process_is_kept(void **state)
{
    const struct place *place = *state;
    char kept[200];
    record_some(place, 10);
    record_some(place, 20);
    snprintf(kept, sizeof(kept), "%s.1", place->spool);
    const char *const both[] = {place->spool, kept};
    assert_int_equal(make_of(both, 2, place->file, false).rpcs, 30);
}

static void files_in_the_way(void **state)
{
    const struct place *place = *state;
    struct weft_error error = {.text = ""};
    struct weft_records_sum sum;
    const char *spool = place->spool;
    assert_int_equal(weft_records_check_path(place->file, false, &error), WEFT_OK);
    assert_int_equal(weft_records_check_path(place->folder, true, &error), WEFT_IO);
    assert_int_equal(weft_records_check_path("/nowhere/r.db", true, &error), WEFT_IO);
    assert_int_equal(weft_records_check_path("/dev/null", true, &error), WEFT_IO);
    char link[300]; /* its directory exists, the directory that it names does not */
    snprintf(link, sizeof(link), "%s/link.db", place->folder);
    assert_int_equal(symlink("no-folder/r.db", link), 0);
    assert_int_equal(weft_records_check_path(link, true, &error), WEFT_IO);
    assert_int_equal(weft_records_check_path(link, false, &error), WEFT_IO);
    assert_int_equal(unlink(link), 0);
    record_some(place, 10);
    make(place, false);
    assert_int_equal(weft_records_check_path(place->file, false, &error), WEFT_EXISTS);
    assert_int_equal(weft_records_check_path(place->file, true, &error), WEFT_OK);
    FILE *other = fopen(place->file, "w");
    fputs("this is somebody's letter, longer than the hundred bytes of a database's header, ....",
          other);
    fputs("and it must not be touched.\n", other);
    fclose(other);
    assert_int_equal(weft_records_make(&spool, 1, place->file, false, NULL, &sum, &error),
                     WEFT_DATA);
    sqlite3 *db;
    assert_int_equal(unlink(place->file), 0);
    make(place, false);
    assert_int_equal(sqlite3_open(place->file, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db, "ALTER TABLE hot_total DROP COLUMN removed", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(weft_records_make(&spool, 1, place->file, false, NULL, &sum, &error),
                     WEFT_DATA);
    assert_non_null(strstr(error.text, "is of another release: its table hot_total has other"));
    assert_int_equal(ask(place->file, "SELECT count(*) FROM rpc"), 10);
    assert_int_equal(unlink(place->file), 0);
    assert_int_equal(sqlite3_open(place->file, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE recipes(a)", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(weft_records_make(&spool, 1, place->file, false, NULL, &sum, &error),
                     WEFT_DATA);
    assert_int_equal(ask(place->file, "SELECT count(*) FROM sqlite_schema"), 1);
    const char *file = place->file;
    struct weft_recdb read;
    assert_int_equal(weft_recdb_open(&file, 1, &read), WEFT_DATA);
    assert_non_null(strstr(read.error.text, "not a database of records"));
    weft_recdb_close(&read);
}

/* ---- damage ---------------------------------------------------------------------------------- */

/* Blocks of `each` records: the recorder is told to write at once. */
static void record_blocks(const struct place *place, uint32_t blocks, uint32_t each)
{
    struct weft_recorder *recorder = recorder_open(place);
    struct weft_rpc_record *records = calloc(each, sizeof(*records));
    for (uint32_t b = 0; b < blocks; b++) {
        for (uint32_t i = 0; i < each; i++) {
            records[i].type = WEFT_RPC_RECORD_CLIENT;
            records[i].rpc.rpc = b * each + i;
        }
        weft_recorder_add(recorder, records, each);
    }
    free(records);
    weft_recorder_free(recorder);
}

static uint64_t bytes_of(const char *path)
{
    struct stat about;
    assert_int_equal(stat(path, &about), 0);
    return (uint64_t)about.st_size;
}

static void damage(const char *path, uint64_t at)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    uint8_t byte;
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= 0x40;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    close(fd);
}

/* If any byte is wrong, its block is skipped and no other. */
static void damaged_block_is_left_out(void **state)
{
    const struct place *place = *state;
    record_blocks(place, 4, 3);
    uint64_t bytes = bytes_of(place->spool);
    uint64_t third = bytes - 128 - 2 * 4 * 128; /* the last block is the end mark, after one more
                                                 * block */
    const uint64_t places[] = {0, 9, 40, 64, 66, 80, 88, 127, 128, 300, 511};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(places); i++) {
        damage(place->spool, third + places[i]);
        struct weft_records_sum sum = make(place, true);
        assert_int_equal(sum.rpcs, 9);
        assert_int_equal(sum.bytes_skipped, 512);
        assert_int_equal(ask(place->file, "SELECT count(*) FROM rpc WHERE rpc BETWEEN 6 AND 8"), 0);
        damage(place->spool, third + places[i]);
    }
    assert_int_equal(make(place, true).rpcs, 12);
}

/* The spool of a killed process: complete records are read, at every length. */
static void cut_at_every_length(void **state)
{
    const struct place *place = *state;
    struct weft_error error = {.text = ""};
    struct weft_records_sum sum;
    const char *spool = place->spool;
    record_blocks(place, 2, 2);
    uint64_t all = bytes_of(place->spool), rpcs_before = 4;
    for (uint64_t bytes = all; bytes-- > 0;) {
        assert_int_equal(truncate(place->spool, (off_t)bytes), 0);
        if (bytes % 64 > 1) {
            continue; /* only near block boundaries, because each length needs a file */
        }
        weft_status status = weft_records_make(&spool, 1, place->lines, true, NULL, &sum, &error);
        if (status == WEFT_DATA) {
            assert_true(bytes > 0 && bytes < 384); /* no complete block */
            continue;
        }
        assert_int_equal(status, WEFT_OK);
        assert_true(sum.rpcs <= rpcs_before);
        assert_int_equal(sum.processes_cut, bytes == 0 ? 0 : 1);
        rpcs_before = sum.rpcs;
    }
    assert_int_equal(rpcs_before, 0);
}

static void what_is_no_spool_is_refused(void **state)
{
    const struct place *place = *state;
    struct weft_error error = {.text = ""};
    struct weft_records_sum sum;
    const char *text = "/etc/passwd";
    assert_int_equal(weft_records_make(&text, 1, place->file, true, NULL, &sum, &error), WEFT_DATA);
    assert_int_not_equal(access(place->file, F_OK), 0);
    text = "/nowhere";
    assert_int_equal(weft_records_make(&text, 1, place->file, true, NULL, &sum, &error), WEFT_IO);
}

/* ---- a full disk ----------------------------------------------------------------------------- */

/* In a child process whose files are limited to a few blocks: the job continues, the loss is logged
 * once and counted, and existing records stay valid. */
static void full_disk_is_counted(void **state)
{
    const struct place *place = *state;
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {.rlim_cur = 100 * 128, .rlim_max = 100 * 128};
        signal(SIGXFSZ, SIG_IGN);
        if (freopen("/dev/null", "w", stderr) == NULL || setrlimit(RLIMIT_FSIZE, &limit) != 0) {
            _exit(2);
        }
        struct weft_recorder *recorder = recorder_open(place);
        struct weft_rpc_record records[30];
        memset(records, 0, sizeof(records));
        for (uint32_t i = 0; i < 10; i++) {
            for (uint32_t k = 0; k < 30; k++) {
                records[k].type = WEFT_RPC_RECORD_CLIENT;
            }
            weft_recorder_add(recorder, records, 30);
        }
        struct weft_recorder_counts counts;
        weft_recorder_finish(recorder);
        weft_recorder_counts(recorder, &counts);
        bool good = counts.records == 90 && counts.dropped == 210;
        weft_recorder_free(recorder);
        _exit(good ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    struct weft_records_sum sum = make(place, false);
    assert_int_equal(sum.rpcs, 90);
    assert_int_equal(sum.bytes_skipped, 0);
    assert_int_equal(sum.dropped, 210);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void lines_are_the_same(void **state)
{
    const struct place *place = *state;
    char line[2048];
    uint32_t rpcs = 0, metas = 0;
    record_some(place, 10);
    make(place, false);
    make_of((const char *const[]){place->file}, 1, place->lines, true);
    FILE *out = fopen(place->lines, "r");
    assert_non_null(out);
    while (fgets(line, sizeof(line), out) != NULL) {
        rpcs += strstr(line, "{\"table\":\"rpc\",\"worker\":0,\"server\":0,\"rpc\":") == line;
        metas += strstr(line, "{\"table\":\"meta\"") == line;
        assert_string_equal(line + strlen(line) - 2, "}\n");
    }
    fclose(out);
    assert_int_equal(rpcs, 10);
    assert_int_equal(metas, 6);
}

/* A command line may contain any bytes; JSON may not. */
static void lines_are_json_whatever_was_typed(void **state)
{
    const struct place *place = *state;
    struct weft_records_sum sum;
    struct weft_error error = {.text = ""};
    char line[2048], found[2048] = "";
    record_some(place, 1);
    const char *spool = place->spool;
    assert_int_equal(
        weft_records_make(&spool, 1, place->lines, true, "a \xff\t\x7f \xc3\xa9\"", &sum, &error),
        WEFT_OK);
    FILE *in = fopen(place->lines, "r");
    assert_non_null(in);
    while (fgets(line, sizeof(line), in) != NULL) {
        if (strstr(line, "\"command\"") != NULL) {
            strcpy(found, line);
        }
    }
    fclose(in);
    assert_string_equal(found, "{\"table\":\"meta\",\"key\":\"command\",\"value\":"
                               "\"a \\ufffd\\u0009\\u007f \xc3\xa9\\\"\"}\n");
}

/* JSON lines are for other programs; weft refuses them as input, with that reason. */
static void lines_are_no_input(void **state)
{
    const struct place *place = *state;
    struct weft_error error = {.text = ""};
    struct weft_records_sum sum;
    const char *const spool = place->spool, *const lines = place->lines;
    record_some(place, 10);
    make_of(&spool, 1, lines, false);
    make(place, false);
    assert_true(weft_records_is_json(lines));
    assert_false(weft_records_is_json(spool));
    assert_false(weft_records_is_json(place->file));
    assert_false(weft_records_is_json(place->folder));
    assert_int_equal(weft_records_make(&lines, 1, place->file, true, NULL, &sum, &error),
                     WEFT_DATA);
    assert_non_null(strstr(error.text, "r.jsonl has records as lines of JSON"));
    assert_int_equal(ask(place->file, "SELECT count(*) FROM rpc"), 10); /* unchanged */
}

/* What make writes beside the file, and removes first, may be all that is left of a run: a merge
 * that was killed leaves FILE.new. */
static void an_input_is_never_removed(void **state)
{
    const struct place *place = *state;
    static const char *const besides[] = {"%s/x.db.new", "%s/x.db-journal", "%s/x.jsonl.new.jsonl"};
    static const char *const files[] = {"%s/x.db", "%s/x.db", "%s/x.jsonl"};
    record_some(place, 10);
    make(place, false);
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(besides); i++) {
        char input[128], file[128];
        struct weft_records_sum sum;
        struct weft_error error = {.text = ""};
        snprintf(input, sizeof(input), besides[i], place->folder);
        snprintf(file, sizeof(file), files[i], place->folder);
        const char *const inputs[] = {input};
        assert_int_equal(link(place->file, input), 0);
        assert_int_equal(weft_records_make(inputs, 1, file, true, NULL, &sum, &error), WEFT_IO);
        assert_non_null(strstr(error.text, "it is an input; "));
        assert_int_equal(access(file, F_OK), -1);
        assert_int_equal(access(input, F_OK), 0);
        assert_int_equal(unlink(input), 0);
    }
}

/* A file that another program has made during the run. */
static void lines_of_others_are_not_touched(void **state)
{
    const struct place *place = *state;
    static const char *const others[] = {"{\"loss\":0.5}\n{\"loss\":0.25}\n", "a note", "\n",
                                         "{\"table\":\"rpc\",\"worker\":0}\n"};
    record_some(place, 10);
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(others); i++) {
        const char *const spool = place->spool;
        char text[128] = "";
        struct weft_records_sum sum;
        struct weft_error error = {.text = ""};
        append(place->lines, others[i]);
        assert_int_equal(weft_records_make(&spool, 1, place->lines, false, NULL, &sum, &error),
                         WEFT_DATA);
        assert_non_null(strstr(error.text, "r.jsonl exists, and is not a file of records; "));
        FILE *in = fopen(place->lines, "r");
        assert_non_null(in);
        (void)fread(text, 1, sizeof(text) - 1, in);
        fclose(in);
        assert_string_equal(text, others[i]);
        assert_int_equal(unlink(place->lines), 0);
    }
    /* Killed while it wrote the first line. */
    append(place->lines, "{\"table\":\"meta\",\"key\":\"schema_ver");
    make_of((const char *const[]){place->spool}, 1, place->lines, false);
    assert_int_equal(lines_with(place->lines, "\"table\":\"process\",\"id\":1,"), 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, place_make, place_clear)
    const struct CMUnitTest tests[] = {
        TEST(all_that_was_made_is_there),
        TEST(dropped_are_counted),
        TEST(one_file_of_several),
        TEST(several_are_read_as_one),
        TEST(spool_of_another_release_is_refused),
        TEST(spool_in_use_is_refused),
        TEST(deleted_spool_is_made_again),
        TEST(spool_without_a_folder_is_counted),
        TEST(spool_of_a_killed_process_is_kept),
        TEST(files_in_the_way),
        TEST(damaged_block_is_left_out),
        TEST(cut_at_every_length),
        TEST(what_is_no_spool_is_refused),
        TEST(full_disk_is_counted),
        TEST(lines_are_the_same),
        TEST(lines_are_json_whatever_was_typed),
        TEST(lines_are_no_input),
        TEST(an_input_is_never_removed),
        TEST(lines_of_others_are_not_touched),
        TEST(one_file_of_lines_of_several),
        TEST(unfinished_addition_of_lines_is_cut_off),
        TEST(lines_that_do_not_fit_are_cut_off),
        TEST(journal_of_a_killed_process_does_not_harm_the_next_file),
        TEST(numbers_of_processes_may_be_any),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
