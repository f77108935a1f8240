/* A saved model is read as it was written, or refused; tests/cli/models.sh tests checkpoints as
 * models. */
#define _GNU_SOURCE
#include "ckpt/model.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTES = 4096 };

static char folder[] = "/tmp/weft-model-XXXXXX";
static char path[64];

static int setup(void **state)
{
    (void)state;
    return mkdtemp(folder) != NULL && snprintf(path, sizeof(path), "%s/m", folder) > 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

static const uint64_t ids[] = {3, 7, UINT64_MAX};
static const float rows[] = {0.5F, 1.0F, 0.1F, -2.0F, 3e-30F, 4.0F};

static struct weft_ckpt_model some(void)
{
    return (struct weft_ckpt_model){.kind = "fm",
                                    .format = "adult",
                                    .offset = 0.1F,
                                    .dim = 2,
                                    .ids = (uint64_t *)(uintptr_t)ids,
                                    .rows = (float *)(uintptr_t)rows,
                                    .count = 3};
}

static size_t save(struct weft_ckpt_model model, char bytes_p[BYTES])
{
    struct weft_error error = {.text = ""};
    if (weft_ckpt_model_save(path, &model, &error) != WEFT_OK) {
        fail_msg("%s", error.text);
    }
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    size_t bytes = fread(bytes_p, 1, BYTES, in);
    fclose(in);
    return bytes;
}

static weft_status load_bytes(const char *bytes, size_t count)
{
    struct weft_error error = {.text = ""};
    struct weft_ckpt_model model;
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, count, out), count);
    fclose(out);
    weft_status status = weft_ckpt_model_load(path, &model, &error);
    if (status == WEFT_OK) {
        weft_ckpt_model_fini(&model);
    } else {
        assert_int_equal(strncmp(error.text, path, strlen(path)), 0);
    }
    return status;
}

static void it_is_read_as_it_was_written(void **state)
{
    (void)state;
    char bytes[BYTES];
    struct weft_error error = {.text = ""};
    struct weft_ckpt_model read;
    (void)save(some(), bytes);
    assert_int_equal(weft_ckpt_model_load(path, &read, &error), WEFT_OK);
    assert_string_equal(read.kind, "fm");
    assert_string_equal(read.format, "adult");
    assert_true(read.offset == 0.1F);
    assert_int_equal(read.dim, 2);
    assert_int_equal(read.count, 3);
    assert_memory_equal(read.ids, ids, sizeof(ids));
    assert_memory_equal(read.rows, rows, sizeof(rows));
    static const uint64_t wanted[] = {1, 7, 8, UINT64_MAX};
    float of[8];
    assert_int_equal(weft_ckpt_model_rows(&read, wanted, 4, of), 2);
    assert_true(of[0] == 0 && of[1] == 0 && of[2] == 0.1F && of[3] == -2.0F);
    assert_true(of[4] == 0 && of[6] == 3e-30F && of[7] == 4.0F);
    weft_ckpt_model_fini(&read);
}

/* A change of any byte of the head or of a tensor, or of the length, is detected. */
static void a_damaged_one_is_refused(void **state)
{
    (void)state;
    char bytes[BYTES];
    size_t count = save(some(), bytes);
    assert_int_equal(load_bytes(bytes, count), WEFT_OK);
    for (size_t cut = 0; cut < count; cut++) {
        assert_int_equal(load_bytes(bytes, cut), WEFT_DATA);
    }
    for (size_t at = count - sizeof(rows) - sizeof(ids); at < count; at++) {
        bytes[at] ^= 1;
        assert_int_equal(load_bytes(bytes, count), WEFT_DATA);
        bytes[at] ^= 1;
    }
}

static weft_status load_with(const char *note, const char *other)
{
    char bytes[BYTES];
    size_t count = save(some(), bytes);
    bytes[count < BYTES ? count : BYTES - 1] = '\0';
    char *at = memmem(bytes, count, note, strlen(note));
    assert_non_null(at);
    assert_int_equal(strlen(note), strlen(other));
    memcpy(at, other, strlen(other));
    return load_bytes(bytes, count);
}

static void odd_notes_are_refused(void **state)
{
    (void)state;
    assert_int_equal(load_with("\"weft_model\":\"1\"", "\"weft_model\":\"2\""), WEFT_DATA);
    assert_int_equal(load_with("\"factors\":\"1\"", "\"factors\":\"2\""), WEFT_DATA);
    assert_int_equal(load_with("\"factors\":\"1\"", "\"factors\":\"-\""), WEFT_DATA);
    assert_int_equal(load_with("\"factors\":\"1\"", "\"factorz\":\"1\""), WEFT_DATA);
    assert_int_equal(load_with("\"offset\":\"0.1", "\"offset\":\"nan"), WEFT_DATA);
    assert_int_equal(load_with("\"format\":", "\"forma_\":"), WEFT_DATA);
}

static void odd_rows_are_refused(void **state)
{
    (void)state;
    static const uint64_t unsorted[] = {3, 9, 7};
    static const float infinite[] = {0, 0, 0, 1e30F * 1e30F, 0, 0};
    char bytes[BYTES];
    struct weft_ckpt_model model = some();
    model.ids = (uint64_t *)(uintptr_t)unsorted;
    size_t count = save(model, bytes);
    assert_int_equal(load_bytes(bytes, count), WEFT_DATA);
    model = some();
    model.rows = (float *)(uintptr_t)infinite;
    count = save(model, bytes);
    assert_int_equal(load_bytes(bytes, count), WEFT_DATA);
    struct weft_error error = {.text = ""};
    assert_int_equal(weft_ckpt_model_load("/nowhere/m", &model, &error), WEFT_IO);
    assert_non_null(strstr(error.text, "/nowhere/m"));
}

/* A device must not become a file. */
static void only_files_are_replaced(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    struct weft_ckpt_model model = some();
    struct stat about;
    (void)unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(weft_ckpt_model_save(path, &model, &error), WEFT_IO);
    assert_non_null(strstr(error.text, path));
    assert_int_equal(stat(path, &about), 0);
    assert_true(S_ISFIFO(about.st_mode));
}

static void links_are_kept(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    struct weft_ckpt_model model = some();
    char link[sizeof(path) + 8];
    struct stat about;
    (void)unlink(path);
    assert_int_equal(weft_ckpt_model_save(path, &model, &error), WEFT_OK);
    snprintf(link, sizeof(link), "%s.link", path);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(weft_ckpt_model_save(link, &model, &error), WEFT_OK);
    assert_int_equal(lstat(link, &about), 0);
    assert_true(S_ISLNK(about.st_mode));
    assert_int_equal(unlink(link), 0);
}

/* Another program that is saving the same model has locked its unfinished file. */
static void unfinished_file_of_another_writer_is_left_alone(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    struct weft_ckpt_model model = some();
    char temporary[sizeof(path) + 8], other[sizeof(path) + 8], bytes[8] = "";
    snprintf(temporary, sizeof(temporary), "%s.tmp", path);
    snprintf(other, sizeof(other), "%s.1.tmp", path);
    int fd = open(temporary, O_CREAT | O_RDWR, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "theirs", 6), 6);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(weft_ckpt_model_save(path, &model, &error), WEFT_OK);
    assert_int_equal(pread(fd, bytes, sizeof(bytes), 0), 6);
    assert_string_equal(bytes, "theirs");
    assert_int_equal(access(other, F_OK), -1);
    /* A file that nobody locks is one that a killed program left. */
    assert_int_equal(close(fd), 0);
    assert_int_equal(weft_ckpt_model_save(path, &model, &error), WEFT_OK);
    assert_int_equal(access(temporary, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_read_as_it_was_written),
        cmocka_unit_test(a_damaged_one_is_refused),
        cmocka_unit_test(odd_notes_are_refused),
        cmocka_unit_test(odd_rows_are_refused),
        cmocka_unit_test(only_files_are_replaced),
        cmocka_unit_test(links_are_kept),
        cmocka_unit_test(unfinished_file_of_another_writer_is_left_alone),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
