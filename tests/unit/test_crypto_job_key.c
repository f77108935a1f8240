/* Valid and invalid key files, the environment; no message contains a digit of a key. */
#include "crypto/job_key.h"

#include "base/units.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes 0, 1, ... 31; the fingerprint is the beginning of python3 -c 'import hashlib as h;
 * print(h.sha256(b"weft key id" + bytes(range(32))).hexdigest())' */
#define KEY_TEXT "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define KEY_FINGERPRINT "a3177379"

static char folder[] = "/tmp/weft-key-XXXXXX";
static char path[sizeof(folder) + 16];
static struct weft_error error;

static int make_folder(void **state)
{
    (void)state;
    bool made = mkdtemp(folder) != NULL;
    snprintf(path, sizeof(path), "%s/key", folder);
    return made ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

static void put_file(const char *text, mode_t mode)
{
    (void)unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    assert_int_equal(close(fd), 0);
}

static void assert_is_the_key(struct weft_job_key *key)
{
    uint8_t bytes[WEFT_PSK_BYTES];
    char text[WEFT_JOB_KEY_FINGERPRINT_BYTES];
    assert_int_equal(weft_job_key_copy(key, bytes), WEFT_OK);
    for (int i = 0; i < WEFT_PSK_BYTES; i++) {
        assert_int_equal(bytes[i], i);
    }
    assert_int_equal(weft_job_key_fingerprint(key, text), WEFT_OK);
    assert_string_equal(text, KEY_FINGERPRINT);
    weft_job_key_free(key);
}

static void assert_refused(weft_status wanted, const char *sentence)
{
    struct weft_job_key *key = NULL;
    assert_int_equal(weft_job_key_read(path, &key, &error), wanted);
    assert_null(key);
    if (strstr(error.text, sentence) == NULL) {
        fail_msg("\"%s\" does not contain \"%s\"", error.text, sentence);
    }
    assert_null(strstr(error.text, "0001020304")); /* no digits of the key */
}

static void good_files(void **state)
{
    (void)state;
    static const char *const texts[] = {
        KEY_TEXT "\n",
        KEY_TEXT, /* as a secret store may write it */
        "000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F\n",
    };
    static const mode_t modes[] = {0600, 0400, 0700};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(texts); i++) {
        struct weft_job_key *key;
        put_file(texts[i], modes[i]);
        assert_int_equal(weft_job_key_read(path, &key, &error), WEFT_OK);
        assert_is_the_key(key);
    }
}

static void bad_texts_are_told_apart(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *sentence;
    } rows[] = {
        {"", "is empty"},
        {"\n", "is empty"},
        {"00010203040506070809", "cut short: 20 hexadecimal digits instead of 64"},
        {"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1\n", "cut short: 63"},
        {KEY_TEXT "0\n", "too long"},
        {KEY_TEXT KEY_TEXT, "too long"},
        {"0001020304x", "character 11 is not a hexadecimal digit"},
        {"g" KEY_TEXT, "character 1 is not"},
        {KEY_TEXT "\n\n", "character 65 is not"},
        {KEY_TEXT "\r\n", "character 65 is not"},
        {" " KEY_TEXT "\n", "character 1 is not"},
        {"0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e\n", "character 2 is not"},
    };
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(rows); i++) {
        put_file(rows[i].text, 0600);
        assert_refused(WEFT_DATA, rows[i].sentence);
    }
}

static void modes_open_to_others(void **state)
{
    (void)state;
    static const mode_t modes[] = {0640, 0604, 0620, 0602, 0644, 0666, 0610};
    char sentence[64];
    snprintf(sentence, sizeof(sentence), "run: chmod 600 %s", path);
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(modes); i++) {
        put_file(KEY_TEXT "\n", modes[i]);
        assert_refused(WEFT_DATA, sentence);
    }
}

static void what_is_no_file(void **state)
{
    (void)state;
    (void)unlink(path);
    assert_refused(WEFT_NOTFOUND, "`weft keygen ");
    assert_int_equal(mkdir(path, 0700), 0);
    assert_refused(WEFT_DATA, "not a regular file");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0); /* reading must not wait for a writer */
    assert_refused(WEFT_DATA, "not a regular file");
    assert_int_equal(unlink(path), 0);
}

static void links(void **state)
{
    (void)state;
    char target[sizeof(path) + 8];
    struct weft_job_key *key;
    put_file(KEY_TEXT "\n", 0600);
    snprintf(target, sizeof(target), "%s.target", path);
    assert_int_equal(rename(path, target), 0);
    assert_int_equal(symlink(target, path), 0);
    assert_int_equal(weft_job_key_read(path, &key, &error), WEFT_OK);
    assert_is_the_key(key);
    bool is_root = geteuid() == 0;
    if (is_root) {
        assert_int_equal(lchown(path, 12345, 12345), 0);
        assert_refused(WEFT_DATA, "symbolic link that belongs to user 12345");
        assert_int_equal(lchown(path, 0, 0), 0);
    }
    assert_int_equal(unlink(target), 0);
    assert_refused(WEFT_NOTFOUND, "cannot open"); /* a dangling link */
    assert_int_equal(unlink(path), 0);
    if (!is_root) {
        print_message("only root can make a link owned by another user\n");
        skip();
    }
}

static void environment(void **state)
{
    (void)state;
    struct weft_job_key *key;
    assert_int_equal(unsetenv("WEFT_JOB_KEY"), 0);
    assert_int_equal(weft_job_key_take_environment(&key, &error), WEFT_NOTFOUND);
    assert_int_equal(setenv("WEFT_JOB_KEY", KEY_TEXT, 1), 0);
    const char *text = getenv("WEFT_JOB_KEY");
    assert_int_equal(weft_job_key_take_environment(&key, &error), WEFT_OK);
    assert_is_the_key(key);
    assert_null(getenv("WEFT_JOB_KEY"));
    assert_int_equal(text[0], 0); /* overwritten, because the C library keeps the memory of
                                   * setenv */
    assert_int_equal(text[63], 0);
    /* An invalid one is removed as well. */
    assert_int_equal(setenv("WEFT_JOB_KEY", "0123", 1), 0);
    assert_int_equal(weft_job_key_take_environment(&key, &error), WEFT_DATA);
    assert_non_null(strstr(error.text, "WEFT_JOB_KEY is cut short: 4 "));
    assert_null(getenv("WEFT_JOB_KEY"));
}

static void write_then_read(void **state)
{
    (void)state;
    struct weft_job_key *key;
    struct weft_job_key *again;
    char texts[2][WEFT_JOB_KEY_FINGERPRINT_BYTES];
    struct stat about;
    (void)unlink(path);
    mode_t mask = umask(0777); /* whatever the umask */
    assert_int_equal(weft_job_key_random(&key, &error), WEFT_OK);
    assert_int_equal(weft_job_key_write(key, path, &error), WEFT_OK);
    umask(mask);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 07777, 0600);
    assert_int_equal(about.st_size, WEFT_JOB_KEY_TEXT_BYTES + 1);
    assert_int_equal(weft_job_key_read(path, &again, &error), WEFT_OK);
    assert_int_equal(weft_job_key_fingerprint(key, texts[0]), WEFT_OK);
    assert_int_equal(weft_job_key_fingerprint(again, texts[1]), WEFT_OK);
    assert_string_equal(texts[0], texts[1]);
    weft_job_key_free(again);
    /* Do not overwrite an existing file, and do not follow a dangling link. */
    assert_int_equal(weft_job_key_write(key, path, &error), WEFT_EXISTS);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_size, WEFT_JOB_KEY_TEXT_BYTES + 1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("nowhere", path), 0);
    assert_int_equal(weft_job_key_write(key, path, &error), WEFT_EXISTS);
    assert_int_equal(unlink(path), 0);
    weft_job_key_free(key);
}

static void nowhere_to_write(void **state)
{
    (void)state;
    struct weft_job_key *key;
    assert_int_equal(weft_job_key_random(&key, &error), WEFT_OK);
    assert_int_equal(weft_job_key_write(key, "/nonexistent/key", &error), WEFT_IO);
    assert_non_null(strstr(error.text, "cannot make /nonexistent/key: "));
    assert_int_equal(weft_job_key_write_fd(key, -1), WEFT_IO);
    /* A full disk. */
    int full = open("/dev/full", O_WRONLY);
    if (full >= 0) {
        assert_int_equal(weft_job_key_write_fd(key, full), WEFT_IO);
        assert_int_equal(close(full), 0);
    }
    weft_job_key_free(key);
    weft_job_key_free(NULL);
}

static void through_a_pipe(void **state)
{
    (void)state;
    struct weft_job_key *key;
    int ends[2];
    put_file(KEY_TEXT "\n", 0600);
    assert_int_equal(weft_job_key_read(path, &key, &error), WEFT_OK);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(weft_job_key_write_fd(key, ends[1]), WEFT_OK);
    assert_int_equal(close(ends[1]), 0);
    weft_job_key_free(key);
    assert_int_equal(weft_job_key_read_fd(ends[0], "the pipe", &key, &error), WEFT_OK);
    assert_is_the_key(key);
    assert_int_equal(weft_job_key_read_fd(ends[0], "the pipe", &key, &error), WEFT_DATA);
    assert_non_null(strstr(error.text, "the pipe is empty"));
    assert_int_equal(close(ends[0]), 0);
    assert_int_equal(weft_job_key_read_fd(-1, "the pipe", &key, &error), WEFT_IO);
}

static void two_keys_differ(void **state)
{
    (void)state;
    struct weft_job_key *keys[2];
    uint8_t bytes[2][WEFT_PSK_BYTES];
    char texts[2][WEFT_JOB_KEY_FINGERPRINT_BYTES];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weft_job_key_random(&keys[i], &error), WEFT_OK);
        assert_int_equal(weft_job_key_copy(keys[i], bytes[i]), WEFT_OK);
        assert_int_equal(weft_job_key_fingerprint(keys[i], texts[i]), WEFT_OK);
        weft_job_key_free(keys[i]);
    }
    assert_memory_not_equal(bytes[0], bytes[1], WEFT_PSK_BYTES);
    assert_string_not_equal(texts[0], texts[1]);
    weft_job_key_wipe(bytes, sizeof(bytes));
    assert_int_equal(bytes[0][0] | bytes[1][31], 0);
}

/* Computed with Python: hmac.new(bytes(range(32)), b"weft admission filter\1", "sha256"). */
static void secrets_are_derived(void **state)
{
    (void)state;
    static const uint8_t wanted[WEFT_HASH_BYTES] = {0x04, 0xff, 0x6a, 0xc4, 0x72, 0x84, 0x96, 0x65,
                                                    0x6c, 0x74, 0xf9, 0x86, 0x2e, 0x7b, 0xae, 0x01,
                                                    0xd0, 0xf7, 0xa5, 0xcb, 0xd5, 0x2e, 0x14, 0xb0,
                                                    0xd5, 0xdd, 0xdb, 0x29, 0xf2, 0x1a, 0x8b, 0xc4};
    struct weft_job_key *key = NULL;
    uint8_t made[WEFT_HASH_BYTES], other[WEFT_HASH_BYTES];
    put_file(KEY_TEXT, 0600);
    assert_int_equal(weft_job_key_read(path, &key, &error), WEFT_OK);
    assert_int_equal(weft_job_key_derive(key, "weft admission filter", made), WEFT_OK);
    assert_memory_equal(made, wanted, sizeof(made));
    assert_int_equal(weft_job_key_derive(key, "weft admission filters", other), WEFT_OK);
    assert_memory_not_equal(made, other, sizeof(made));
    weft_job_key_free(key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_files),
        cmocka_unit_test(bad_texts_are_told_apart),
        cmocka_unit_test(modes_open_to_others),
        cmocka_unit_test(what_is_no_file),
        cmocka_unit_test(links),
        cmocka_unit_test(environment),
        cmocka_unit_test(write_then_read),
        cmocka_unit_test(nowhere_to_write),
        cmocka_unit_test(through_a_pipe),
        cmocka_unit_test(two_keys_differ),
        cmocka_unit_test(secrets_are_derived),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
