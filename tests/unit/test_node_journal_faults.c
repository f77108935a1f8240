/* Every call on a journal's files fails in turn, with each of several errors, while a process takes
 * over from one that has written its journal. Either this start reaches the expected state, or it
 * fails with a message and the next start, on a working disk, reaches it. In no case is a record of
 * the previous process lost. */
#include "fault_journal.h"

#include "node_journal_rig.h"

#include <setjmp.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>

enum { CALLS_MAX = 400, CLAIM_FORMER = 1, CLAIM_LEFT = 2, CLAIM_OWN = 3, CLAIM_NEXT = 4 };

/* All errors for the plain scenario, some for the others. */
static const int whys[] = {EIO, EMFILE, 0, ENOSPC, ENOMEM, ESTALE, EINTR};
enum { WHYS_SOME = 3 };

/* Contents of the directory when the process starts. */
enum scenario {
    SCENARIO_PLAIN,   /* the journal of the previous process */
    SCENARIO_LEFT,    /* and an incomplete one of another process */
    SCENARIO_TAKEN,   /* and a file with the name of this process's journal */
    SCENARIO_DAMAGED, /* a journal with a damaged record */
    SCENARIO_OTHER,   /* a journal of another job */
    SCENARIOS,
};

static struct weft_shard *alive;
static uint8_t *former; /* contents of the previous process's journal */
static off_t former_bytes;
static struct {
    uint32_t calls, failed, went_on;
} sum;

static void read_former(void)
{
    struct stat info;
    int fd = open(rig_path(CLAIM_FORMER), O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &info) == 0);
    former_bytes = info.st_size;
    former = malloc((size_t)former_bytes);
    assert_non_null(former);
    assert_int_equal(pread(fd, former, (size_t)former_bytes, 0), former_bytes);
    (void)close(fd);
}

/* True: the previous journal still exists, byte for byte. */
static bool former_is_at(const char *path)
{
    struct stat info;
    int fd = open(path, O_RDONLY);
    if (fd < 0) {
        return false;
    }
    uint8_t *bytes = malloc((size_t)former_bytes);
    assert_non_null(bytes);
    bool same = fstat(fd, &info) == 0 && info.st_size == former_bytes &&
                pread(fd, bytes, (size_t)former_bytes, 0) == former_bytes &&
                memcmp(bytes, former, (size_t)former_bytes) == 0;
    free(bytes);
    (void)close(fd);
    return same;
}

static bool former_is_aside(void)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/quarantine/journal-0000-%012d", rig.directory,
                   CLAIM_FORMER);
    return former_is_at(path);
}

static void set_scenario(enum scenario scenario)
{
    rig_start(100 + scenario, true);
    journal_churn_push(&churn, 60);
    alive = churn.c.shard[0];
    if (scenario == SCENARIO_LEFT) {
        struct weft_journal_file first = rig.files[0];
        rig.release = false;
        rig_twin_end(rig_twin(CLAIM_LEFT, CLAIM_FORMER), &rig.files[0]);
        rig.release = true;
        rig.files[0] = first;
    } else if (scenario == SCENARIO_TAKEN) {
        (void)close(open(rig_path(CLAIM_OWN), O_CREAT | O_EXCL | O_WRONLY, 0600));
    } else if (scenario == SCENARIO_DAMAGED) {
        rig_flip(rig_path(CLAIM_FORMER), 12000);
    }
    rig.options.job = scenario == SCENARIO_OTHER ? 6 : 5;
    read_former();
}

/* Another start, on a working disk, after the failed one. */
static uint32_t differ_next(uint64_t before)
{
    struct weft_shard *next = rig_twin(CLAIM_NEXT, before);
    assert_int_equal(rig.replayed, WEFT_OK);
    uint32_t differ = journal_churn_differ(alive, next);
    rig_twin_end(next, &rig.files[0]);
    return differ;
}

/* Make call number `at` fail. False: the run has fewer calls. */
static bool one(enum scenario scenario, uint32_t call, int why)
{
    set_scenario(scenario);
    struct weft_journal_file first = rig.files[0];
    bool exact =
        scenario != SCENARIO_DAMAGED && scenario != SCENARIO_OTHER; /* the start can be repeated */
    fault_arm(call, why);
    struct weft_shard *twin = rig_twin(CLAIM_OWN, CLAIM_FORMER);
    uint32_t calls = fault_disarm();
    bool hit = fault.name != NULL, took_over = rig.replayed == WEFT_OK;
    bool ended_well = took_over && rig.released == WEFT_OK;
    if (!ended_well) {
        assert_true(strlen(rig.error.text) > 10);
    }
    /* Records that were not replayed still exist, and so does a journal that was not replaced. */
    bool there = former_is_at(rig_path(CLAIM_FORMER));
    assert_true(there || former_is_aside() || (exact && took_over));
    assert_true(ended_well || there);
    uint32_t differ = took_over ? journal_churn_differ(alive, twin) : 0;
    rig_twin_end(twin, &rig.files[0]);
    if (exact) {
        assert_int_equal(differ, 0);
        assert_int_equal(differ_next(took_over ? CLAIM_OWN : CLAIM_FORMER), 0);
    } else if (took_over && !ended_well) {
        assert_true(rig.news.text[0] != '\0');
    }
    sum.calls += hit;
    sum.failed += hit && !ended_well;
    sum.went_on += hit && ended_well;
    rig.files[0] = first;
    rig_stop();
    free(former);
    assert_true(calls < CALLS_MAX);
    return hit;
}

static void every_call_of_a_start_fails_in_turn(void **state)
{
    (void)state;
    uint32_t places = 0;
    for (enum scenario scenario = 0; scenario < SCENARIOS; scenario++) {
        size_t kinds = scenario == SCENARIO_PLAIN ? WEFT_ARRAY_COUNT(whys) : WHYS_SOME;
        for (size_t w = 0; w < kinds; w++) {
            uint32_t call = 1;
            while (one(scenario, call, whys[w])) {
                call++;
            }
            places += w == 0 ? call - 1 : 0;
        }
    }
    print_message("%u calls in %d scenes; %u faults: %u ended the start, %u did not\n", places,
                  SCENARIOS, sum.calls, sum.failed, sum.went_on);
    assert_true(places > 60 && sum.failed > 150 && sum.went_on > 50);
}

/* While it serves: the next process recovers the operations acknowledged before the failed call, or
 * the shard has detected that its journal has ended. */
static void every_call_of_a_server_fails_in_turn(void **state)
{
    (void)state;
    uint32_t hits = 0, ended = 0;
    for (size_t w = 0; w < WEFT_ARRAY_COUNT(whys); w++) {
        for (uint32_t call = 1;; call++) {
            rig_start(200, true);
            struct weft_journal_file *file = &rig.files[0];
            struct weft_shard *shard = churn.c.shard[0];
            uint64_t committed = 0;
            bool was_told = true;
            fault_arm(call, whys[w]);
            for (uint32_t i = 0; i < 12; i++) {
                journal_churn_push(&churn, 1);
                weft_journal_commit(file, shard);
                if (i == 6) {
                    journal_churn_save(&churn, 0);
                    weft_journal_commit_freed(file, shard);
                }
                weft_journal_turn(file, shard);
                was_told &= fault.name == NULL || whys[w] == 0 || file->failed;
                committed = file->failed ? committed : weft_shard_counters(shard)->journal_records;
            }
            uint32_t calls = fault_disarm();
            bool hit = fault.name != NULL;
            assert_true((hit || calls > 6) && was_told);
            assert_int_equal(file->failed, weft_shard_counters(shard)->journal_failed == 1);
            assert_true(weft_shard_counters(shard)->journal_records >= committed);
            ended += file->failed;
            hits += hit;
            struct weft_journal_file first = rig.files[0];
            bool failed = file->failed;
            struct weft_shard *twin = rig_twin(2, 1);
            assert_int_equal(rig.released, WEFT_OK);
            assert_true(failed || journal_churn_differ(shard, twin) == 0);
            rig_twin_end(twin, &rig.files[0]);
            rig.files[0] = first;
            rig_stop();
            if (!hit) {
                break;
            }
        }
    }
    print_message("%u faults of fdatasync, %u of them ended the journal\n", hits, ended);
    assert_true(hits > 40 && ended > 40);
}

/* A full disk when the file should grow: the file does not grow, and grows later when there is
 * space. */
static void a_full_disk_is_no_failure(void **state)
{
    (void)state;
    rig_start(300, false);
    rig.options.mib = 64;
    rig.fresh = true;
    struct weft_journal_file first = rig.files[0];
    struct weft_shard *twin = rig_twin(9, 0);
    assert_int_equal(rig.released, WEFT_OK);
    struct weft_journal_file *file = &rig.files[0];
    assert_int_equal(file->bytes, 16 << 20);
    assert_true(weft_shard_journal_wants(twin));
    fault_arm(1, ENOSPC);
    weft_journal_turn(file, twin);
    (void)fault_disarm();
    assert_string_equal(fault.name, "posix_fallocate64");
    assert_true(file->bytes == 16 << 20 && !file->failed);
    weft_journal_turn(file, twin);
    assert_true(file->bytes == 32 << 20);
    rig_twin_end(twin, file);
    rig.files[0] = first;
    rig_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_of_a_start_fails_in_turn),
        cmocka_unit_test(every_call_of_a_server_fails_in_turn),
        cmocka_unit_test(a_full_disk_is_no_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
