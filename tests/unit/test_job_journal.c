/* The journal: what was appended comes back, a torn tail at any byte is cut off, damage is refused. */
#include "job/journal.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

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
    (void)state;
    unlink(path);
    return 0;
}

static weft_status open_it(struct weft_journal **journal_p, struct heard *heard, uint64_t *torn_p)
{
    struct weft_job_error error = {.text = ""};
    *heard = (struct heard){.answer = heard->answer};
    weft_status status = weft_journal_open(path, hear, heard, journal_p, torn_p, &error);
    assert_true((status == WEFT_OK) == (error.text[0] == '\0'));
    return status;
}

static void append(struct weft_journal *journal, uint8_t op, size_t count)
{
    uint8_t bytes[256];
    memset(bytes, op, sizeof(bytes));
    assert_int_equal(weft_journal_append(journal, op, bytes, count), WEFT_OK);
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
    struct weft_journal *journal;
    struct weft_journal *second;
    struct heard heard = {0};
    struct stat about;
    uint64_t torn;
    assert_int_equal(open_it(&journal, &heard, &torn), WEFT_OK);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    append(journal, 32, 96);
    append(journal, 35, 1);
    assert_int_equal(weft_journal_sync(journal), WEFT_OK);
    assert_int_equal(open_it(&second, &heard, &torn), WEFT_EXISTS); /* one at a time */
    assert_int_equal(weft_journal_append(journal, 1, NULL, 0), WEFT_INVALID);
    weft_journal_close(journal);
    assert_int_equal(open_it(&journal, &heard, &torn), WEFT_OK);
    assert_int_equal(torn, 0);
    assert_int_equal(heard.count, 2);
    assert_true(heard.ops[0] == 32 && heard.bytes[0] == 96);
    assert_true(heard.ops[1] == 35 && heard.bytes[1] == 1);
    append(journal, 33, 2);
    weft_journal_close(journal);
    assert_int_equal(open_it(&journal, &heard, &torn), WEFT_OK);
    assert_int_equal(heard.count, 3);
    weft_journal_close(journal);
    weft_journal_close(NULL);
    heard.answer = WEFT_DATA; /* another job's */
    assert_int_equal(open_it(&journal, &heard, &torn), WEFT_DATA);
}

static void torn_at_any_byte(void **state)
{
    (void)state;
    uint8_t whole[FILE_MAX];
    struct weft_journal *journal;
    struct heard heard = {0};
    uint64_t torn;
    assert_int_equal(open_it(&journal, &heard, &torn), WEFT_OK);
    append(journal, 32, 20);
    append(journal, 33, 30);
    weft_journal_close(journal);
    size_t count = slurp(whole);
    assert_int_equal(count, 16 + 16 + 20 + 16 + 30);
    for (size_t cut = 0; cut <= count; cut++) {
        spit(whole, cut);
        assert_int_equal(open_it(&journal, &heard, &torn), WEFT_OK);
        assert_int_equal(heard.count, cut >= count ? 2 : cut >= 52 ? 1 : 0);
        append(journal, 34, 3); /* what comes behind is whole again */
        weft_journal_close(journal);
        uint32_t before = heard.count;
        assert_int_equal(open_it(&journal, &heard, &torn), WEFT_OK);
        assert_int_equal(torn, 0);
        assert_int_equal(heard.count, before + 1);
        weft_journal_close(journal);
    }
    /* A tail of zeros, which a file system leaves. */
    memset(whole + count, 0, 500);
    spit(whole, count + 500);
    assert_int_equal(open_it(&journal, &heard, &torn), WEFT_OK);
    assert_int_equal(heard.count, 2);
    assert_int_equal(torn, 500);
    weft_journal_close(journal);
}

static void damage_is_refused(void **state)
{
    (void)state;
    uint8_t whole[FILE_MAX];
    uint8_t bad[FILE_MAX];
    struct weft_journal *journal;
    struct heard heard = {0};
    uint64_t torn;
    assert_int_equal(open_it(&journal, &heard, &torn), WEFT_OK);
    append(journal, 32, 20);
    append(journal, 33, 30);
    weft_journal_close(journal);
    size_t count = slurp(whole);
    for (size_t at = 0; at < 52; at++) { /* magic and the first record */
        memcpy(bad, whole, count);
        bad[at] ^= 0x41;
        spit(bad, count);
        assert_int_equal(open_it(&journal, &heard, &torn), WEFT_DATA);
    }
    spit((const uint8_t *)"hello", 5);
    assert_int_equal(open_it(&journal, &heard, &torn), WEFT_DATA);
    assert_int_equal(slurp(bad), 5); /* and left alone */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(comes_back, setup, teardown),
        cmocka_unit_test_setup_teardown(torn_at_any_byte, setup, teardown),
        cmocka_unit_test_setup_teardown(damage_is_refused, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
