/* The journal: appended records are read back, a tail torn at any byte is truncated, damage is
 * refused. It is rewritten without losing a record, whichever system call fails, and whichever is
 * the last one executed. */
#define _GNU_SOURCE
#include "job/coordinator_journal.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 4096 };

struct heard {
    uint32_t count;
    uint8_t ops[16];
    size_t bytes[16];
    weft_status answer;
};

static char path[64];

static weft_status hear(void *arg, uint8_t op, const uint8_t *bytes, size_t count)
{
    struct heard *heard = arg;
    assert_true(heard->count < 16);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(bytes[i], op); /* as written below */
    }
    heard->ops[heard->count] = op;
    heard->bytes[heard->count++] = count;
    return heard->answer;
}

static int setup(void **state)
{
    (void)state;
    strcpy(path, "/tmp/weft-journal-XXXXXX");
    int fd = mkstemp(path);
    return fd >= 0 && close(fd) == 0 && unlink(path) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    char name[80];
    (void)state;
    unlink(path);
    snprintf(name, sizeof(name), "%s.new", path);
    unlink(name);
    return 0;
}

static weft_status open_it(struct weft_coordinator_journal **journal_p, struct heard *heard,
                           uint64_t *torn_p)
{
    struct weft_error error = {.text = ""};
    *heard = (struct heard){.answer = heard->answer};
    weft_status status =
        weft_coordinator_journal_open(path, hear, heard, journal_p, torn_p, &error);
    assert_true((status == WEFT_OK) == (error.text[0] == '\0'));
    return status;
}

static void append(struct weft_coordinator_journal *journal, uint8_t op, size_t count)
{
    uint8_t bytes[256];
    memset(bytes, op, sizeof(bytes));
    assert_int_equal(weft_coordinator_journal_append(journal, op, bytes, count), WEFT_OK);
}

static size_t slurp(uint8_t *bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t count = fread(bytes, 1, FILE_MAX, file);
    fclose(file);
    return count;
}

static void spit(const uint8_t *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    fclose(file);
}

static void comes_back(void **state)
{
    (void)state;
    struct weft_coordinator_journal *journal;
    struct weft_coordinator_journal *second;
    struct heard heard = {0};
    struct stat about;
    uint64_t torn;
    assert_int_equal(open_it(&journal, &heard, &torn), WEFT_OK);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    append(journal, 32, 96);
    append(journal, 35, 1);
    assert_int_equal(weft_coordinator_journal_sync(journal), WEFT_OK);
    assert_int_equal(open_it(&second, &heard, &torn), WEFT_EXISTS); /* one at a time */
    assert_int_equal(weft_coordinator_journal_append(journal, 1, NULL, 0), WEFT_INVALID);
    weft_coordinator_journal_close(journal);
    assert_int_equal(open_it(&journal, &heard, &torn), WEFT_OK);
    assert_int_equal(torn, 0);
    assert_int_equal(heard.count, 2);
    assert_true(heard.ops[0] == 32 && heard.bytes[0] == 96);
    assert_true(heard.ops[1] == 35 && heard.bytes[1] == 1);
    append(journal, 33, 2);
    weft_coordinator_journal_close(journal);
    assert_int_equal(open_it(&journal, &heard, &torn), WEFT_OK);
    assert_int_equal(heard.count, 3);
    weft_coordinator_journal_close(journal);
    weft_coordinator_journal_close(NULL);
    heard.answer = WEFT_DATA; /* another job's */
    assert_int_equal(open_it(&journal, &heard, &torn), WEFT_DATA);
}

static void torn_at_any_byte(void **state)
{
    (void)state;
    uint8_t whole[FILE_MAX];
    struct weft_coordinator_journal *journal;
    struct heard heard = {0};
    uint64_t torn;
    assert_int_equal(open_it(&journal, &heard, &torn), WEFT_OK);
    append(journal, 32, 20);
    append(journal, 33, 30);
    weft_coordinator_journal_close(journal);
    size_t count = slurp(whole);
    assert_int_equal(count, 16 + 16 + 20 + 16 + 30);
    for (size_t cut = 0; cut <= count; cut++) {
        spit(whole, cut);
        assert_int_equal(open_it(&journal, &heard, &torn), WEFT_OK);
        assert_int_equal(heard.count, cut >= count ? 2 : cut >= 52 ? 1 : 0);
        append(journal, 34, 3); /* later records are valid again */
        weft_coordinator_journal_close(journal);
        uint32_t before = heard.count;
        assert_int_equal(open_it(&journal, &heard, &torn), WEFT_OK);
        assert_int_equal(torn, 0);
        assert_int_equal(heard.count, before + 1);
        weft_coordinator_journal_close(journal);
    }
    /* A tail of zeros, as a file system may leave. */
    memset(whole + count, 0, 500);
    spit(whole, count + 500);
    assert_int_equal(open_it(&journal, &heard, &torn), WEFT_OK);
    assert_int_equal(heard.count, 2);
    assert_int_equal(torn, 500);
    weft_coordinator_journal_close(journal);
}

static void damage_is_refused(void **state)
{
    (void)state;
    uint8_t whole[FILE_MAX];
    uint8_t bad[FILE_MAX];
    struct weft_coordinator_journal *journal;
    struct heard heard = {0};
    uint64_t torn;
    assert_int_equal(open_it(&journal, &heard, &torn), WEFT_OK);
    append(journal, 32, 20);
    append(journal, 33, 30);
    weft_coordinator_journal_close(journal);
    size_t count = slurp(whole);
    for (size_t at = 0; at < 52; at++) { /* magic and the first record */
        memcpy(bad, whole, count);
        bad[at] ^= 0x41;
        spit(bad, count);
        assert_int_equal(open_it(&journal, &heard, &torn), WEFT_DATA);
    }
    spit((const uint8_t *)"hello", 5);
    assert_int_equal(open_it(&journal, &heard, &torn), WEFT_DATA);
    assert_int_equal(slurp(bad), 5); /* and unchanged */
}

/* Damage in the last synced record: its length is complete, so it was not torn, and may have been
 * acknowledged. */
static void damage_at_the_end_is_refused(void **state)
{
    (void)state;
    uint8_t whole[FILE_MAX];
    uint8_t bad[FILE_MAX];
    struct weft_coordinator_journal *journal;
    struct heard heard = {0};
    uint64_t torn;
    assert_int_equal(open_it(&journal, &heard, &torn), WEFT_OK);
    append(journal, 32, 200);
    append(journal, 33, 250);
    append(journal, 34, 200); /* crosses a 512-byte boundary */
    weft_coordinator_journal_close(journal);
    size_t count = slurp(whole);
    size_t last = count - 16 - 200;
    for (size_t at = last; at < count; at++) {
        memcpy(bad, whole, count);
        bad[at] ^= 0x41;
        spit(bad, count);
        assert_int_equal(open_it(&journal, &heard, &torn), WEFT_DATA);
        assert_int_equal(slurp(bad), count); /* and unchanged */
    }
    /* Zeros from a sector boundary on: sectors that the disk did not write. */
    memcpy(bad, whole, count);
    memset(bad + 512, 0, count - 512);
    assert_true(last < 512 && 512 < count);
    spit(bad, count);
    assert_int_equal(open_it(&journal, &heard, &torn), WEFT_OK);
    assert_int_equal(heard.count, 2);
    assert_int_equal(torn, count - last);
    weft_coordinator_journal_close(journal);
}

/* ---- compaction ------------------------------------------------------------------------------ */

/* Calls that may fail are counted; call number fail_at fails, or that call and all later ones (a
 * crash: later calls have no effect). 0 = none. */
static struct {
    uint32_t count;
    uint32_t fail_at;
    bool crash;
} calls;

static bool fails(void)
{
    calls.count++;
    bool bad = calls.fail_at != 0 &&
               (calls.crash ? calls.count >= calls.fail_at : calls.count == calls.fail_at);
    errno = bad ? EIO : errno;
    return bad;
}

ssize_t __real_write(int fd, const void *bytes, size_t count);
ssize_t __wrap_write(int fd, const void *bytes, size_t count);
ssize_t __wrap_write(int fd, const void *bytes, size_t count)
{
    if (fails()) { /* write only half */
        (void)!__real_write(fd, bytes, calls.crash && calls.count > calls.fail_at ? 0 : count / 2);
        return -1;
    }
    return __real_write(fd, bytes, count);
}

int __real_open64(const char *name, int flags, ...);
int __wrap_open64(const char *name, int flags, mode_t mode);
int __wrap_open64(const char *name, int flags, mode_t mode)
{
    return fails() ? -1 : __real_open64(name, flags, mode);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    return fails() ? -1 : __real_fsync(fd);
}

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
    return fails() ? -1 : __real_fdatasync(fd);
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    return fails() ? -1 : __real_rename(from, to);
}

int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);
int __wrap_flock(int fd, int operation)
{
    return fails() ? -1 : __real_flock(fd, operation);
}

int __real_unlink(const char *name);
int __wrap_unlink(const char *name);
int __wrap_unlink(const char *name)
{
    return fails() ? -1 : __real_unlink(name);
}

int __real_vasprintf(char **text_p, const char *format, va_list list);
int __wrap_asprintf(char **text_p, const char *format, ...);
int __wrap_asprintf(char **text_p, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int result = fails() ? -1 : vasprintf(text_p, format, list);
    va_end(list);
    return result;
}

/* A million bytes are compacted to three records. */
enum { LEFT = 3 };

static size_t supply(void *arg, uint32_t i, uint8_t *op_p,
                     uint8_t body[WEFT_COORDINATOR_JOURNAL_BODY_MAX])
{
    (void)arg;
    *op_p = (uint8_t)(60 + i);
    memset(body, *op_p, 100);
    return i < LEFT ? 100 : 0;
}

struct tally {
    uint32_t old;  /* records of 100 ... */
    uint32_t left; /* and those of supply */
    uint32_t later;
};

static weft_status tally(void *arg, uint8_t op, const uint8_t *bytes, size_t count)
{
    struct tally *t = arg;
    assert_true(count > 0 && bytes[0] == op);
    t->old += op == 50;
    t->left += op >= 60 && op < 60 + LEFT;
    t->later += op == 70;
    return WEFT_OK;
}

static struct weft_coordinator_journal *open_tally(struct tally *t, weft_status expected)
{
    struct weft_coordinator_journal *journal = NULL;
    struct weft_error error = {.text = ""};
    uint64_t torn;
    *t = (struct tally){0};
    weft_status status = weft_coordinator_journal_open(path, tally, t, &journal, &torn, &error);
    assert_int_equal(status, expected);
    return journal;
}

static uint32_t fill_until_long(struct weft_coordinator_journal *journal)
{
    uint8_t body[WEFT_COORDINATOR_JOURNAL_BODY_MAX];
    uint32_t count = 0;
    memset(body, 50, sizeof(body));
    while (!weft_coordinator_journal_is_long(journal)) {
        assert_int_equal(weft_coordinator_journal_append(journal, 50, body, sizeof(body)), WEFT_OK);
        count++;
    }
    return count;
}

static void append_later(struct weft_coordinator_journal *journal, weft_status expected)
{
    const uint8_t body[20] = {70};
    assert_int_equal(weft_coordinator_journal_append(journal, 70, body, sizeof(body)), WEFT_OK);
    assert_int_equal(weft_coordinator_journal_sync(journal), expected);
}

static void written_anew(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    struct tally t;
    struct stat about;
    struct weft_coordinator_journal *journal = open_tally(&t, WEFT_OK);
    assert_int_equal(fill_until_long(journal), 255);
    assert_int_equal(weft_coordinator_journal_compact(journal, supply, NULL, &error), WEFT_OK);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_size, 16 + LEFT * 116);
    assert_int_equal(about.st_mode & 0777, 0600);
    assert_false(weft_coordinator_journal_is_long(journal));
    struct tally other;
    assert_null(open_tally(&other, WEFT_EXISTS)); /* the new file is locked, too */
    append_later(journal, WEFT_OK);
    weft_coordinator_journal_close(journal);
    journal = open_tally(&t, WEFT_OK);
    assert_true(t.old == 0 && t.left == LEFT && t.later == 1);
    weft_coordinator_journal_close(journal);
}

/* The calls of a rewrite: asprintf, unlink (which may fail), open, flock, the magic and three
 * records, fsync, rename, fdatasync, the folder's open and fsync. If one of them fails, or all
 * later ones are not executed, the journal has all records, in the old or the new form, and can be
 * appended to. */
static void whatever_fails(bool crash)
{
    struct weft_error error;
    struct tally t;
    uint32_t steps = 13; /* checked below */
    for (uint32_t at = 1; at <= steps + 1; at++) {
        (void)unlink(path);
        struct weft_coordinator_journal *journal = open_tally(&t, WEFT_OK);
        uint32_t count = fill_until_long(journal);
        calls.count = 0;
        calls.fail_at = at;
        calls.crash = crash;
        error.text[0] = '\0';
        weft_status status = weft_coordinator_journal_compact(journal, supply, NULL, &error);
        assert_true(at <= steps ? status != WEFT_OK || at == 2 : calls.count == steps);
        calls.fail_at = crash ? 1 : 0;
        assert_true((status == WEFT_OK) == (error.text[0] == '\0'));
        if (!crash) {
            append_later(journal, WEFT_OK); /* synced now, the folder too if that was it */
        }
        calls.fail_at = 0;
        weft_coordinator_journal_close(journal);
        journal = open_tally(&t, WEFT_OK);
        bool is_old = t.old == count && t.left == 0, is_new = t.old == 0 && t.left == LEFT;
        assert_true(is_old || is_new);
        assert_true(is_new || status != WEFT_OK);
        assert_int_equal(t.later, crash ? 0 : 1);
        /* Leftovers of a crash have no effect. */
        if (is_old) {
            assert_int_equal(weft_coordinator_journal_compact(journal, supply, NULL, &error),
                             WEFT_OK);
        }
        weft_coordinator_journal_close(journal);
    }
}

static void any_call_fails(void **state)
{
    (void)state;
    whatever_fails(false);
}

static void any_call_is_the_last(void **state)
{
    (void)state;
    whatever_fails(true);
}

/* The name must be on the disk before a reply depends on the new file. */
static void the_folder_cannot_be_synced(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    struct tally t;
    struct weft_coordinator_journal *journal = open_tally(&t, WEFT_OK);
    fill_until_long(journal);
    calls.count = 0;
    calls.fail_at = 0;
    assert_int_equal(weft_coordinator_journal_compact(journal, supply, NULL, &error), WEFT_OK);
    uint32_t steps = calls.count; /* the last call is the folder's fsync */
    fill_until_long(journal);
    calls.count = 0;
    calls.fail_at = steps;
    assert_int_equal(weft_coordinator_journal_compact(journal, supply, NULL, &error), WEFT_IO);
    calls.count = 0;
    calls.fail_at = 4; /* write; fdatasync, the folder's open, its fsync */
    append_later(journal, WEFT_IO);
    calls.fail_at = 0;
    append_later(journal, WEFT_OK);
    weft_coordinator_journal_close(journal);
}

/* From an earlier release without compaction. */
static void a_long_one_is_read(void **state)
{
    (void)state;
    struct tally t;
    uint8_t body[WEFT_COORDINATOR_JOURNAL_BODY_MAX];
    struct weft_coordinator_journal *journal = open_tally(&t, WEFT_OK);
    memset(body, 50, sizeof(body));
    uint32_t count = (66 << 20) / sizeof(body);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(weft_coordinator_journal_append(journal, 50, body, sizeof(body)), WEFT_OK);
    }
    weft_coordinator_journal_close(journal);
    journal = open_tally(&t, WEFT_OK);
    assert_int_equal(t.old, count);
    assert_true(weft_coordinator_journal_is_long(journal));
    weft_coordinator_journal_close(journal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(comes_back, setup, teardown),
        cmocka_unit_test_setup_teardown(torn_at_any_byte, setup, teardown),
        cmocka_unit_test_setup_teardown(damage_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(damage_at_the_end_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(written_anew, setup, teardown),
        cmocka_unit_test_setup_teardown(any_call_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(any_call_is_the_last, setup, teardown),
        cmocka_unit_test_setup_teardown(the_folder_cannot_be_synced, setup, teardown),
        cmocka_unit_test_setup_teardown(a_long_one_is_read, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
