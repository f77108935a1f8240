/* The files of a journal: a successor beside a live predecessor, removal and quarantine of files,
 * pages that fail, and data on the disk before a reply is sent. */
#include "node/map_guard.h"
#include "node_journal_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { HEAD_BYTES = 4096 };

/* The previous process is still alive and has its file locked and open. The next one starts
 * nevertheless, and later records of the first one are not read. */
static void a_frozen_process_is_in_nobodys_way(void **state)
{
    (void)state;
    rig_start(1, false);
    journal_churn_push(&churn, 20);
    struct weft_journal_file frozen = rig.files[0];
    struct weft_shard *twin = rig_twin(2, 1);
    assert_int_equal(rig.released, WEFT_OK);
    assert_string_equal(rig.news.text, "");
    assert_true(rig.report.used && rig.report.chunks > 0);
    assert_int_equal(journal_churn_differ(churn.c.shard[0], twin), 0);
    assert_int_equal(access(rig_path(1), F_OK), -1);
    assert_int_equal(access(rig_path(2), F_OK), 0);
    journal_churn_push(&churn, 20); /* it resumes */
    assert_true(journal_churn_differ(churn.c.shard[0], twin) > 0);
    struct weft_journal_file second = rig.files[0];
    struct weft_shard *third = rig_twin(3, 2);
    assert_int_equal(rig.released, WEFT_OK);
    assert_int_equal(journal_churn_differ(twin, third), 0);
    rig_twin_end(third, &rig.files[0]);
    rig_twin_end(twin, &second);
    rig.files[0] = frozen;
    assert_int_equal(rig_files(false), 1);
    assert_int_equal(rig_files(true), 0);
    rig_stop();
}

/* A process that dies at any point of its start leaves existing files intact; its own files are
 * removed by the next process that starts. */
static void a_start_that_dies_takes_nothing(void **state)
{
    (void)state;
    rig_start(2, false);
    journal_churn_push(&churn, 20);
    struct weft_journal_file first = rig.files[0];
    rig.release = false;
    for (uint64_t claim = 2; claim < 6; claim++) {
        struct weft_shard *twin = rig_twin(claim, 1);
        assert_int_equal(rig.replayed, WEFT_OK);
        assert_int_equal(journal_churn_differ(churn.c.shard[0], twin), 0);
        rig_twin_end(twin, &rig.files[0]);
        assert_int_equal(rig_files(false), 2); /* the files of the first process and of this one */
    }
    int fd = open(rig_path(6), O_CREAT | O_EXCL | O_RDWR, 0600); /* died before it wrote anything */
    assert_true(fd >= 0 && ftruncate(fd, 1 << 20) == 0);
    (void)close(fd);
    rig.release = true;
    struct weft_shard *twin = rig_twin(7, 1);
    assert_int_equal(rig.released, WEFT_OK);
    assert_int_equal(journal_churn_differ(churn.c.shard[0], twin), 0);
    rig_twin_end(twin, &rig.files[0]);
    assert_int_equal(rig_files(false), 1);
    rig.files[0] = first;
    rig_stop();
}

/* A damaged record may have said that a process served only if it is after that one's claim. */
static void only_claims_before_a_damaged_record_are_doubted(void **state)
{
    (void)state;
    rig_start(8, false);
    journal_churn_push(&churn, 20);
    struct weft_journal_file first = rig.files[0];
    rig.release = false;
    struct weft_shard *twin = rig_twin(5, 1); /* its start was interrupted */
    assert_int_equal(rig.replayed, WEFT_OK);
    rig_twin_end(twin, &rig.files[0]);
    rig.release = true;
    rig.damaged = 6;
    twin = rig_twin(8, 1);
    assert_int_equal(rig.opened, WEFT_DATA);
    assert_non_null(strstr(rig.error.text, "may be the journal of the previous process"));
    rig_twin_end(twin, &rig.files[0]);
    assert_int_equal(rig_files(false), 2);
    rig.damaged = 4;
    twin = rig_twin(9, 1);
    assert_int_equal(rig.released, WEFT_OK);
    assert_int_equal(journal_churn_differ(churn.c.shard[0], twin), 0);
    rig_twin_end(twin, &rig.files[0]);
    assert_int_equal(rig_files(false), 1);
    rig.files[0] = first;
    rig_stop();
}

/* Files of another job in the same directory are not touched, whatever their numbers. */
static void another_jobs_files_stay(void **state)
{
    (void)state;
    rig_start(3, false);
    journal_churn_push(&churn, 5);
    struct weft_journal_file first = rig.files[0];
    rig.fresh = true;
    struct weft_shard *other = rig_twin(2, 0);
    struct weft_journal_file others = rig.files[0];
    rig.fresh = false;
    struct weft_shard *twin = rig_twin(3, 1);
    assert_int_equal(rig.released, WEFT_OK);
    rig_twin_end(twin, &rig.files[0]);
    assert_int_equal(access(rig_path(2), F_OK), 0);
    assert_int_equal(rig_files(false), 2);
    /* The file name is in use while the process is alive; afterwards the file is moved to
     * quarantine. */
    rig.fresh = true;
    twin = rig_twin(2, 0);
    assert_int_equal(rig.opened, WEFT_IO);
    assert_non_null(strstr(rig.error.text, "in use by another process"));
    assert_int_equal(rig_files(true), 0);
    rig_twin_end(twin, &rig.files[0]);
    rig_twin_end(other, &others);
    for (uint32_t times = 1; times < 4; times++) {
        twin = rig_twin(2, 0);
        assert_int_equal(rig.opened, WEFT_OK);
        assert_non_null(strstr(rig.news.text, "already existed"));
        assert_int_equal(rig_files(true), times);
        rig_twin_end(twin, &rig.files[0]);
    }
    rig.files[0] = first;
    rig_stop();
}

/* Records that are not replayed are not removed. */
static void what_is_not_done_again_is_kept(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        off_t flip; /* 0 = none */
        uint64_t job, number;
    } cases[] = {
        {"its head is damaged", 20, 5, 0},
        {"is damaged, or the host lost its power: its last", 9000, 5, 0},
        {"it is of another job", 0, 6, 0},
        {"does not continue from checkpoint 77", 0, 5, 77},
    };
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(cases); i++) {
        rig_start(10 + i, false);
        journal_churn_push(&churn, 60);
        struct weft_journal_file first = rig.files[0];
        struct stat before, after;
        char aside[256];
        if (cases[i].flip > 0) {
            rig_flip(rig_path(1), cases[i].flip);
        }
        assert_int_equal(stat(rig_path(1), &before), 0);
        rig.options.job = cases[i].job;
        churn.saved[0].number = cases[i].number;
        struct weft_shard *twin = rig_twin(2, 1);
        churn.saved[0].number = 0;
        assert_int_equal(rig.released, WEFT_OK);
        assert_non_null(strstr(rig.news.text, cases[i].words));
        assert_int_equal(rig_files(false), 1);
        (void)snprintf(aside, sizeof(aside), "%s/quarantine/journal-0000-000000000001",
                       rig.directory);
        assert_int_equal(stat(aside, &after), 0);
        assert_true(before.st_ino == after.st_ino && before.st_size == after.st_size);
        rig_twin_end(twin, &rig.files[0]);
        rig.files[0] = first;
        rig_stop();
    }
}

/* A file that may be of a later release ends the start, and is not moved. */
static void what_cannot_be_read_ends_the_start(void **state)
{
    (void)state;
    rig_start(20, false);
    journal_churn_push(&churn, 20);
    struct weft_journal_file first = rig.files[0];
    rig_flip(rig_path(1), 8); /* version */
    struct weft_shard *twin = rig_twin(2, 1);
    assert_int_equal(rig.replayed, WEFT_UNSUPPORTED);
    assert_non_null(strstr(rig.error.text, "has another format version"));
    rig_twin_end(twin, &rig.files[0]);
    assert_int_equal(access(rig_path(2), F_OK), -1);
    rig_flip(rig_path(1), 8);
    char other[256];
    (void)snprintf(other, sizeof(other), "%s/elsewhere", rig.directory);
    assert_int_equal(link(rig_path(1), other), 0); /* a foreign file under this name */
    twin = rig_twin(3, 1);
    assert_int_equal(rig.opened, WEFT_IO);
    assert_non_null(strstr(rig.error.text, "is not a regular file of this user"));
    rig_twin_end(twin, &rig.files[0]);
    assert_int_equal(unlink(other), 0);
    assert_int_equal(rename(rig_path(1), other), 0);
    assert_int_equal(mkfifo(rig_path(1), 0600), 0); /* no process writes to it */
    twin = rig_twin(3, 1);
    assert_int_equal(rig.opened, WEFT_IO);
    assert_non_null(strstr(rig.error.text, "is not a regular file of this user"));
    rig_twin_end(twin, &rig.files[0]);
    assert_int_equal(rename(other, rig_path(1)), 0);
    twin = rig_twin(4, 1);
    assert_int_equal(rig.released, WEFT_OK);
    assert_int_equal(journal_churn_differ(churn.c.shard[0], twin), 0);
    rig_twin_end(twin, &rig.files[0]);
    twin = rig_twin(6, 5); /* a file that does not exist */
    assert_int_equal(rig.released, WEFT_OK);
    assert_non_null(strstr(rig.news.text, "does not exist"));
    rig_twin_end(twin, &rig.files[0]);
    rig.files[0] = first;
    rig_stop();
}

/* The file name of the last release. Only the name is old here; test_ps_journal_source.c tests the
 * old format. */
static void the_last_releases_name_is_found(void **state)
{
    (void)state;
    rig_start(21, false);
    journal_churn_push(&churn, 20);
    struct weft_journal_file first = rig.files[0];
    char old[256];
    (void)snprintf(old, sizeof(old), "%s/journal-0000", rig.directory);
    assert_int_equal(rename(rig_path(1), old), 0);
    struct weft_shard *twin = rig_twin(2, 0);
    assert_int_equal(rig.released, WEFT_OK);
    assert_string_equal(rig.news.text, "");
    assert_int_equal(journal_churn_differ(churn.c.shard[0], twin), 0);
    assert_int_equal(access(old, F_OK), -1);
    rig_twin_end(twin, &rig.files[0]);
    rig.files[0] = first;
    rig_stop();
}

/* ---- pages that fail ------------------------------------------------------------------------- */

/* Truncate the file to `bytes` while the shard writes: each store beyond raises SIGBUS. The shard
 * continues, its journal fails, and the failure is reported. */
static void lose_pages(uint64_t bytes)
{
    struct weft_journal_file *file = &rig.files[0];
    struct weft_shard *shard = churn.c.shard[0];
    assert_int_equal(ftruncate(file->fd, (off_t)bytes), 0);
    weft_journal_turn(file, shard);
    assert_false(file->failed); /* nothing was stored yet */
    journal_churn_push(&churn, 60);
    assert_true(weft_map_guard_failed(file->guard));
    weft_journal_turn(file, shard);
    assert_true(file->failed);
    assert_int_equal(weft_shard_counters(shard)->journal_failed, 1);
    uint64_t changes = weft_shard_journal_changes(shard);
    journal_churn_push(&churn, 20);
    weft_journal_turn(file, shard);
    assert_int_equal(weft_shard_counters(shard)->journal_failed, 1);
    assert_int_equal(weft_shard_journal_changes(shard), changes);
}

static void a_page_that_fails_ends_the_journal_alone(void **state)
{
    (void)state;
    rig_start(30, false);
    journal_churn_push(&churn, 40);
    struct weft_journal_file first = rig.files[0];
    uint64_t used = HEAD_BYTES + weft_shard_journal_used(churn.c.shard[0]);
    rig.release = false;
    struct weft_shard *then = rig_twin(2, 1);
    uint64_t records = rig.report.records;
    rig_twin_end(then, &rig.files[0]);
    rig.files[0] = first;
    lose_pages((used + 4095) / 4096 * 4096); /* all written records stay */
    first = rig.files[0];
    struct weft_shard *twin = rig_twin(3, 1);
    assert_int_equal(rig.replayed, WEFT_OK);
    assert_true(rig.report.used && !rig.report.damaged);
    assert_true(rig.report.records >= records);
    assert_true(journal_churn_differ(churn.c.shard[0], twin) > 0);
    rig_twin_end(twin, &rig.files[0]);
    rig.files[0] = first;
    rig_stop();
}

static void pages_that_are_gone_are_told(void **state)
{
    (void)state;
    static const uint64_t bytes[] = {0, 4096, 3 * 4096};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(bytes); i++) {
        rig_start(31, false);
        journal_churn_push(&churn, 100);
        lose_pages(bytes[i]);
        struct weft_journal_file first = rig.files[0];
        struct weft_shard *twin = rig_twin(2, 1);
        assert_int_equal(rig.released, WEFT_OK);
        assert_non_null(strstr(rig.news.text, bytes[i] == 0 ? "head is damaged" : "records ("));
        assert_int_equal(rig_files(true), 1);
        assert_true(bytes[i] == 0 || rig.report.lost_records > 20);
        assert_int_equal(rig.report.used, bytes[i] == 3 * 4096);
        rig_twin_end(twin, &rig.files[0]);
        rig.files[0] = first;
        rig_stop();
    }
}

/* ---- the guard ------------------------------------------------------------------------------- */

static sigjmp_buf back;
static volatile sig_atomic_t others;

static void on_others(int signal_number)
{
    (void)signal_number;
    others++;
    siglongjmp(back, 1);
}

static uint8_t *map_nothing(int *fd_p)
{
    char path[] = "/tmp/weft-map-XXXXXX";
    *fd_p = mkstemp(path);
    assert_true(*fd_p >= 0 && unlink(path) == 0);
    uint8_t *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, *fd_p, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

/* Installed before the guard, so it is the previous handler. */
static void elsewhere_the_old_handler_is_called(void **state)
{
    (void)state;
    int fd, other_fd;
    struct weft_map_guard *guard = NULL;
    (void)signal(SIGBUS, on_others);
    volatile uint8_t *memory = map_nothing(&fd), *other = map_nothing(&other_fd);
    assert_int_equal(weft_map_guard_add((void *)memory, 8192, &guard), WEFT_OK);
    memory[5] = 1;
    memory[4097] = 2;
    assert_true(weft_map_guard_failed(guard));
    assert_int_equal(others, 0);
    assert_true(memory[5] == 1 && memory[4097] == 2);
    if (sigsetjmp(back, 1) == 0) {
        other[0] = 1;
        fail();
    }
    assert_int_equal(others, 1);
    if (sigsetjmp(back, 1) == 0) {
        raise(SIGBUS); /* sent by raise, not caused by a store */
        fail();
    }
    assert_int_equal(others, 2);
    weft_map_guard_remove(guard);
    assert_int_equal(munmap((void *)memory, 8192) | munmap((void *)other, 8192), 0);
    (void)close(fd);
    (void)close(other_fd);
}

static void there_are_so_many_guards(void **state)
{
    (void)state;
    struct weft_map_guard *guards[300];
    uint32_t n = 0;
    static uint8_t memory[8192];
    while (n < 300 && weft_map_guard_add(memory, 1, &guards[n]) == WEFT_OK) {
        n++;
    }
    assert_true(n >= 32 && n < 300);
    assert_int_equal(errno, ENOSPC);
    for (uint32_t i = 0; i < n; i++) {
        weft_map_guard_remove(guards[i]);
    }
    assert_int_equal(weft_map_guard_add(memory, 1, &guards[0]), WEFT_OK);
    weft_map_guard_remove(guards[0]);
    weft_map_guard_remove(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elsewhere_the_old_handler_is_called),
        cmocka_unit_test(there_are_so_many_guards),
        cmocka_unit_test(a_frozen_process_is_in_nobodys_way),
        cmocka_unit_test(a_start_that_dies_takes_nothing),
        cmocka_unit_test(only_claims_before_a_damaged_record_are_doubted),
        cmocka_unit_test(another_jobs_files_stay),
        cmocka_unit_test(what_is_not_done_again_is_kept),
        cmocka_unit_test(what_cannot_be_read_ends_the_start),
        cmocka_unit_test(the_last_releases_name_is_found),
        cmocka_unit_test(a_page_that_fails_ends_the_journal_alone),
        cmocka_unit_test(pages_that_are_gone_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
