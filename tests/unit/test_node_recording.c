/* --records of one process and of several: the file that is written at the end, and the log line if
 * it is missing. */
#include "node/recording.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* Each test uses a separate folder. */
struct place {
    char folder[32];
    char file[64]; /* the file of records */
    char heard[2048];
};

static void hear(void *arg, enum weft_node_level level, const char *text)
{
    struct place *place = arg;
    size_t used = strlen(place->heard);
    (void)snprintf(place->heard + used, sizeof(place->heard) - used, "%s%s\n",
                   level == WEFT_NODE_WARNING ? "! " : "", text);
}

static int setup(void **state)
{
    struct place *place = calloc(1, sizeof(*place));
    *state = place;
    if (place == NULL) {
        return -1;
    }
    strcpy(place->folder, "/tmp/weft-test-XXXXXX");
    if (mkdtemp(place->folder) == NULL) {
        return -1;
    }
    (void)snprintf(place->file, sizeof(place->file), "%s/r.jsonl", place->folder);
    return 0;
}

/* Fail if a file is left over. */
static int teardown(void **state)
{
    struct place *place = *state;
    int result = rmdir(place->folder);
    free(place);
    return result;
}

static void open_recording(struct place *place, struct weft_recording *recording, const char *role,
                           uint32_t rank)
{
    struct weft_error error = {.text = ""};
    if (weft_recording_open(recording, role, rank, (struct weft_node_log){hear, place}, &error) !=
        WEFT_OK) {
        fail_msg("%s", error.text);
    }
}

static void put_rpc(struct weft_recording *recording)
{
    const struct weft_rpc_record_client record = {.kind = 2, .t1_ns = 5};
    struct weft_rpc_record_ring *ring = weft_recording_ring(recording);
    assert_non_null(ring);
    weft_rpc_record_put_client(ring, 1, &record);
}

static void without_records_every_call_is_nothing(void **state)
{
    struct place *place = *state;
    struct weft_recording recording = WEFT_RECORDING_DEFAULTS;
    open_recording(place, &recording, "server", 0);
    assert_null(weft_recording_ring(&recording));
    assert_int_equal(weft_recording_finish(&recording).records, 0);
    assert_true(weft_recording_close(&recording));
    assert_string_equal(place->heard, "");
}

static void the_file_is_made_at_the_end(void **state)
{
    struct place *place = *state;
    struct weft_recording recording = WEFT_RECORDING_DEFAULTS;
    struct weft_error error;
    recording.path = place->file;
    open_recording(place, &recording, "worker", 3);
    put_rpc(&recording);
    assert_int_equal(weft_recording_finish(&recording).records, 1);
    assert_true(weft_recording_close(&recording));
    assert_string_equal(place->heard, "");
    assert_int_equal(access(place->file, F_OK), 0);
    /* A second run is refused while the file exists. */
    assert_int_equal(
        weft_recording_open(&recording, "worker", 3, (struct weft_node_log){0}, &error),
        WEFT_EXISTS);
    assert_int_equal(unlink(place->file), 0);
}

static void a_run_without_records_leaves_no_file(void **state)
{
    struct place *place = *state;
    struct weft_recording recording = WEFT_RECORDING_DEFAULTS;
    char wanted[256];
    recording.path = place->file;
    open_recording(place, &recording, "worker", 3);
    assert_true(weft_recording_close(&recording));
    (void)snprintf(wanted, sizeof(wanted), "nothing was recorded; %s was not written\n",
                   place->file);
    assert_string_equal(place->heard, wanted);
}

static void records_are_kept_when_the_file_cannot_be_made(void **state)
{
    struct place *place = *state;
    struct weft_recording recording = WEFT_RECORDING_DEFAULTS;
    char wanted[256], spool[128];
    recording.path = place->file;
    open_recording(place, &recording, "worker", 3);
    put_rpc(&recording);
    assert_int_equal(mkdir(place->file, 0755), 0); /* a directory in place of the file */
    assert_false(weft_recording_close(&recording));
    (void)snprintf(spool, sizeof(spool), "%s.spool-worker-3", place->file);
    (void)snprintf(wanted, sizeof(wanted),
                   "! the records are kept: weft trace merge %s -o NEWFILE\n", spool);
    assert_ptr_equal(strstr(place->heard, "! no records file: "), place->heard);
    assert_non_null(strstr(place->heard, wanted));
    assert_int_equal(unlink(spool), 0);
    assert_int_equal(rmdir(place->file), 0);
}

static void spools_of_several_processes_are_merged(void **state)
{
    struct place *place = *state;
    const struct weft_recording_spools spools = {
        .servers = 2, .shards_per_server = 2, .workers = 1, .aggregators = 2};
    struct weft_records_sum sum;
    static const struct {
        const char *role;
        uint32_t rank;
    } parts[] = {{"server", 2}, {"worker", 0}, {"aggregator", 1}}; /* server 0 never started */
    for (int i = 0; i < 3; i++) {
        struct weft_recording recording = WEFT_RECORDING_DEFAULTS;
        recording.path = place->file;
        recording.spool_only = true;
        open_recording(place, &recording, parts[i].role, parts[i].rank);
        put_rpc(&recording);
        assert_true(weft_recording_close(&recording));
        assert_int_equal(access(place->file, F_OK), -1);
    }
    assert_true(
        weft_recording_merge(place->file, &spools, (struct weft_node_log){hear, place}, &sum));
    assert_int_equal(sum.processes, 3);
    assert_int_equal(sum.rpcs, 3);
    assert_string_equal(place->heard, "");
    assert_int_equal(unlink(place->file), 0);
    /* The spools were removed: nothing is left to merge. */
    assert_false(
        weft_recording_merge(place->file, &spools, (struct weft_node_log){hear, place}, &sum));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(without_records_every_call_is_nothing),
        TEST(the_file_is_made_at_the_end),
        TEST(a_run_without_records_leaves_no_file),
        TEST(records_are_kept_when_the_file_cannot_be_made),
        TEST(spools_of_several_processes_are_merged),
    };
    return cmocka_run_group_tests_name("node/recording", tests, NULL, NULL);
}
