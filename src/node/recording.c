#include "node/recording.h"

#include "base/units.h"
#include "ps/hot.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char command_line[1024];

void weft_recording_command(int argc, char **argv)
{
    size_t used = (size_t)snprintf(command_line, sizeof(command_line), "weft");
    for (int i = 0; i < argc && used < sizeof(command_line); i++) {
        used += (size_t)snprintf(command_line + used, sizeof(command_line) - used, " %s", argv[i]);
    }
}

weft_status weft_recording_open(struct weft_recording *recording, const char *role, uint32_t rank,
                                struct weft_node_log log, struct weft_error *error)
{
    recording->log = log;
    if (recording->path == NULL) {
        return WEFT_OK;
    }
    if (!recording->spool_only) {
        weft_status status = weft_records_check_path(recording->path, false, error);
        if (status != WEFT_OK) {
            return status;
        }
    }
    struct weft_recorder_config config;
    weft_recorder_config_default(&config);
    config.path = recording->path;
    config.role = role;
    config.rank = rank;
    config.version = WEFT_VERSION;
    config.command = command_line;
    config.window_ns = strcmp(role, "server") == 0 ? recording->window_us * WEFT_NS_PER_US : 0;
    return weft_recorder_open(&config, &recording->recorder, error);
}

struct weft_rpc_record_ring *weft_recording_ring(struct weft_recording *recording)
{
    if (recording->recorder == NULL) {
        return NULL;
    }
    struct weft_rpc_record_ring *ring = weft_recorder_ring(recording->recorder);
    if (ring == NULL) {
        weft_node_warn(&recording->log, "no memory for records: this thread is not recorded");
    }
    return ring;
}

static void record_hot_table(struct weft_recorder *recorder, const struct weft_table *table,
                             uint32_t number, uint16_t t, struct weft_hot_row *rows, uint32_t max)
{
    struct weft_hot_total total;
    struct weft_rpc_record record = {.type = WEFT_RPC_RECORD_HOT_TOTAL, .table = t};
    weft_table_hot_total(table, &total);
    const uint64_t removed = weft_table_hot_removed(table);
    record.hot_total = (struct weft_rpc_record_hot_total){.server = number,
                                                          .exact = total.exact && removed == 0,
                                                          .updates = total.updates,
                                                          .removed = removed};
    weft_recorder_add(recorder, &record, 1);
    uint32_t count = weft_table_hot(table, rows, max);
    record.type = WEFT_RPC_RECORD_HOT;
    for (uint32_t i = 0; i < count; i++) {
        record.hot = (struct weft_rpc_record_hot){
            .server = number, .id = rows[i].id, .updates = rows[i].updates};
        weft_recorder_add(recorder, &record, 1);
    }
}

void weft_recording_hot(struct weft_recorder *recorder, const struct weft_shard *shard,
                        uint32_t number)
{
    uint32_t max = weft_shard_hot_top(shard);
    struct weft_hot_row *rows =
        recorder != NULL ? malloc((max + UINT64_C(1)) * sizeof(*rows)) : NULL;
    for (uint32_t t = 0; rows != NULL && t < weft_shard_tables_max(shard); t++) {
        const struct weft_table *table = weft_shard_table(shard, (uint16_t)t);
        if (table != NULL) {
            record_hot_table(recorder, table, number, (uint16_t)t, rows, max);
        }
    }
    free(rows);
}

struct weft_recorder_counts weft_recording_finish(struct weft_recording *recording)
{
    struct weft_recorder_counts counts = {0};
    if (recording->recorder != NULL) {
        weft_recorder_finish(recording->recorder);
        weft_recorder_counts(recording->recorder, &counts);
    }
    return counts;
}

/* Log what is missing in a written file. */
static void say_sum(const struct weft_node_log *log, const char *path,
                    const struct weft_records_sum *sum)
{
    if (sum->dropped > 0) {
        weft_node_warn(log, "%s lacks %" PRIu64 " records for which there was no room", path,
                       sum->dropped);
    }
    if (sum->bytes_skipped > 0) {
        weft_node_warn(log, "%" PRIu64 " bytes of damaged records were left out of %s",
                       sum->bytes_skipped, path);
    }
}

static bool make(const char *const *spools, uint32_t count, const char *path, bool replace,
                 const struct weft_node_log *log, struct weft_records_sum *sum_p)
{
    struct weft_error error = {.text = ""};
    if (weft_records_make(spools, count, path, replace, replace ? command_line : NULL, sum_p,
                          &error) != WEFT_OK) {
        weft_node_warn(log, "no records file: %s", error.text);
        weft_node_warn(log, "the records are kept: weft trace merge %s%s -o NEWFILE", spools[0],
                       count > 1 ? " ..." : "");
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        (void)unlink(spools[i]);
    }
    say_sum(log, path, sum_p);
    return true;
}

bool weft_recording_close(struct weft_recording *recording)
{
    struct weft_recorder *recorder = recording->recorder;
    bool good = true;
    if (recorder == NULL) {
        return true;
    }
    recording->recorder = NULL;
    struct weft_recorder_counts counts;
    weft_recorder_finish(recorder);
    weft_recorder_counts(recorder, &counts);
    char *spool = strdup(weft_recorder_spool(recorder));
    weft_recorder_free(recorder);
    /* For a process that failed to start: the next attempt must not find an existing file. */
    bool nothing = counts.records == 0 && counts.dropped == 0;
    if (spool != NULL && !recording->spool_only && nothing) {
        weft_node_info(&recording->log, "nothing was recorded; %s was not written",
                       recording->path);
        (void)unlink(spool);
    } else if (spool != NULL && !recording->spool_only) {
        struct weft_records_sum sum;
        good = make((const char *const[]){spool}, 1, recording->path, false, &recording->log, &sum);
    }
    free(spool);
    return good;
}

static uint32_t add_spool(char **spools, uint32_t count, const char *path, const char *role,
                          uint32_t rank)
{
    char *name = malloc(WEFT_RECORDS_PATH_BYTES);
    if (name == NULL) {
        return count;
    }
    snprintf(name, WEFT_RECORDS_PATH_BYTES, "%s.spool-%s-%u", path, role, rank);
    if (access(name, F_OK) != 0) {
        free(name); /* it never began */
        return count;
    }
    spools[count] = name;
    return count + 1;
}

bool weft_recording_merge(const char *path, const struct weft_recording_spools *spools,
                          struct weft_node_log log, struct weft_records_sum *sum_p)
{
    uint32_t count = 0;
    *sum_p = (struct weft_records_sum){0};
    char **names =
        calloc(spools->servers + spools->workers + spools->aggregators + 1, sizeof(*names));
    if (names == NULL) {
        return false;
    }
    for (uint32_t s = 0; s < spools->servers; s++) {
        count = add_spool(names, count, path, "server", s * spools->shards_per_server);
    }
    for (uint32_t w = 0; w < spools->workers; w++) {
        count = add_spool(names, count, path, "worker", w);
    }
    for (uint32_t a = 0; a < spools->aggregators; a++) {
        count = add_spool(names, count, path, "aggregator", a);
    }
    bool good = count > 0 && make((const char *const *)names, count, path, true, &log, sum_p);
    for (uint32_t i = 0; i < count; i++) {
        free(names[i]);
    }
    free(names);
    return good;
}
