/* Checkpoint files: every byte counts, the newest good one is found, a full disk leaves what was
 * there, pruning never takes the last one. */
#include "ckpt/manifest.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { ROWS = 20, DIM = 3 };

static char dir[64];

static int dir_make(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/weft-ckpt-XXXXXX");
    return mkdtemp(dir) == NULL;
}

static int dir_remove(void **state)
{
    (void)state;
    char path[512];
    DIR *list = opendir(dir);
    for (const struct dirent *item; (item = readdir(list)) != NULL;) {
        snprintf(path, sizeof(path), "%s/%s", dir, item->d_name);
        unlink(path);
    }
    closedir(list);
    return rmdir(dir);
}

static uint32_t files_in_dir(const char *part)
{
    uint32_t count = 0;
    DIR *list = opendir(dir);
    for (const struct dirent *item; (item = readdir(list)) != NULL;) {
        count += item->d_name[0] != '.' && strstr(item->d_name, part) != NULL;
    }
    closedir(list);
    return count;
}

static weft_status write_data(uint64_t number, uint32_t shard, struct weft_ckpt_file *file_p,
                              struct weft_ckpt_error *error)
{
    struct weft_ckpt_head head = {.tensors = NULL};
    struct weft_ckpt_writer *writer;
    uint64_t ids[ROWS];
    float weights[ROWS][DIM];
    char name[WEFT_CKPT_FILE_BYTES];
    assert_int_equal(weft_ckpt_head_add(&head, "ids", WEFT_CKPT_U64, ROWS, 0), WEFT_OK);
    assert_int_equal(weft_ckpt_head_add(&head, "weights", WEFT_CKPT_F32, ROWS, DIM), WEFT_OK);
    assert_int_equal(weft_ckpt_head_add(&head, "none", WEFT_CKPT_U32, 0, 5), WEFT_OK);
    assert_int_equal(weft_ckpt_head_note(&head, "number", "%" PRIu64, number), WEFT_OK);
    for (uint32_t i = 0; i < ROWS; i++) {
        ids[i] = i * 1000 + shard;
        weights[i][0] = weights[i][1] = weights[i][2] = (float)(number * 10 + i);
    }
    weft_ckpt_data_name(number, shard, name);
    weft_status status = weft_ckpt_writer_open(dir, name, &head, &writer, error);
    for (uint32_t i = 0; status == WEFT_OK && i < 2; i++) { /* two halves, in turn */
        status = weft_ckpt_writer_put(writer, 1, weights[i * 10], sizeof(weights) / 2, error);
        if (status == WEFT_OK) {
            status = weft_ckpt_writer_put(writer, 0, ids + i * 10, sizeof(ids) / 2, error);
        }
        if (status != WEFT_OK) {
            weft_ckpt_writer_abandon(writer);
            return status;
        }
    }
    return status == WEFT_OK ? weft_ckpt_writer_close(writer, file_p, error) : status;
}

static weft_status make(uint64_t number, uint64_t base, uint32_t shards, uint32_t first,
                        uint32_t count, struct weft_ckpt_error *error)
{
    struct weft_ckpt_file files[4];
    struct weft_ckpt_manifest m = {
        .number = number, .base = base, .shards = shards, .first = first, .count = count};
    m.files = files;
    weft_status status = WEFT_OK;
    for (uint32_t i = 0; status == WEFT_OK && i < count; i++) {
        status = write_data(number, first + i, &files[i], error);
    }
    return status == WEFT_OK ? weft_ckpt_manifest_commit(dir, &m, error) : status;
}

static void must(weft_status status, const struct weft_ckpt_error *error)
{
    if (status != WEFT_OK) {
        fail_msg("%s", error->text);
    }
}

/* Larger than what the writer passes on to the disk at a time, in pieces that end within pages. */
static void large_tensors(void **state)
{
    (void)state;
    enum { WORDS = 3 << 20, PIECE = 100003 };
    struct weft_ckpt_error error = {.text = ""};
    struct weft_ckpt_head head = {.tensors = NULL};
    struct weft_ckpt_writer *writer;
    struct weft_ckpt_reader *reader;
    struct weft_ckpt_file file;
    uint64_t *words = malloc(WORDS * sizeof(*words)), *back = malloc(PIECE * sizeof(*back));
    assert_true(words != NULL && back != NULL);
    for (uint64_t i = 0; i < WORDS; i++) {
        words[i] = i * UINT64_C(0x9e3779b97f4a7c15);
    }
    assert_int_equal(weft_ckpt_head_add(&head, "a", WEFT_CKPT_U64, WORDS, 0), WEFT_OK);
    assert_int_equal(weft_ckpt_head_add(&head, "b", WEFT_CKPT_U64, WORDS, 0), WEFT_OK);
    must(weft_ckpt_writer_open(dir, "large", &head, &writer, &error), &error);
    for (size_t at = 0; at < WORDS; at += PIECE) {
        size_t bytes = (at + PIECE < WORDS ? PIECE : WORDS - at) * sizeof(*words);
        must(weft_ckpt_writer_put(writer, 1, words + at, bytes, &error), &error);
        must(weft_ckpt_writer_put(writer, 0, words + at, bytes, &error), &error);
    }
    must(weft_ckpt_writer_close(writer, &file, &error), &error);
    must(weft_ckpt_reader_open(dir, &file, &reader, &error), &error);
    must(weft_ckpt_reader_verify(reader, &error), &error);
    for (size_t at = 0; at < 2 * (WORDS / PIECE); at++) {
        const struct weft_ckpt_tensor *t = &weft_ckpt_reader_head(reader)->tensors[at % 2];
        size_t from = at / 2 * PIECE;
        must(weft_ckpt_reader_get(reader, t, from * 8, back, PIECE * 8, &error), &error);
        assert_memory_equal(back, words + from, PIECE * 8);
    }
    weft_ckpt_reader_close(reader);
    free(words);
    free(back);
}

static uint32_t complaints;

static void complain(void *arg, uint64_t number, const char *text)
{
    (void)arg;
    (void)number;
    assert_true(strlen(text) > 0);
    complaints++;
}

static uint64_t find(struct weft_ckpt_set *set)
{
    struct weft_ckpt_error error = {.text = ""};
    complaints = 0;
    must(weft_ckpt_find(dir, complain, NULL, set, &error), &error);
    return set->number;
}

static uint64_t found(void)
{
    struct weft_ckpt_set set;
    uint64_t number = find(&set);
    weft_ckpt_set_fini(&set);
    return number;
}

static void written_and_read(void **state)
{
    (void)state;
    struct weft_ckpt_error error = {.text = ""};
    struct weft_ckpt_set set;
    assert_int_equal(found(), 0);
    must(make(7, 0, 2, 0, 2, &error), &error);
    assert_int_equal(find(&set), 7);
    assert_int_equal(set.shards, 2);
    assert_int_equal(set.file_count, 2);
    for (uint32_t s = 0; s < 2; s++) {
        struct weft_ckpt_reader *reader;
        assert_int_equal(set.files[s].shard, s);
        must(weft_ckpt_reader_open(dir, &set.files[s].file, &reader, &error), &error);
        const struct weft_ckpt_head *head = weft_ckpt_reader_head(reader);
        assert_string_equal(weft_ckpt_head_text(head, "number"), "7");
        assert_null(weft_ckpt_head_find(head, "other"));
        const struct weft_ckpt_tensor *t = weft_ckpt_head_find(head, "weights");
        assert_int_equal(t->shape[1], DIM);
        float row[DIM];
        must(weft_ckpt_reader_get(reader, t, 12 * sizeof(row), row, sizeof(row), &error), &error);
        assert_true(row[0] == 82 && row[2] == 82);
        uint64_t id;
        must(weft_ckpt_reader_get(reader, weft_ckpt_head_find(head, "ids"), 8 * 11, &id, 8, &error),
             &error);
        assert_int_equal(id, 11000 + s);
        assert_int_equal(weft_ckpt_head_find(head, "none")->bytes, 0);
        weft_ckpt_reader_close(reader);
    }
    weft_ckpt_set_fini(&set);
    assert_int_equal(files_in_dir(".tmp"), 0);
}

static void flip(const char *path, long at, int bits)
{
    FILE *file = fopen(path, "r+");
    fseek(file, at, SEEK_SET);
    int byte = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(byte ^ bits, file);
    fclose(file);
}

/* Every byte of every file, and every length: the checkpoint before is found instead. */
static void every_byte(void **state)
{
    (void)state;
    struct weft_ckpt_error error = {.text = ""};
    must(make(1, 0, 1, 0, 1, &error), &error);
    must(make(2, 0, 1, 0, 1, &error), &error);
    assert_int_equal(found(), 2);
    char names[2][WEFT_CKPT_FILE_BYTES];
    weft_ckpt_manifest_name(2, 0, 1, names[0]);
    weft_ckpt_data_name(2, 0, names[1]);
    for (uint32_t f = 0; f < 2; f++) {
        char path[256];
        struct stat info;
        snprintf(path, sizeof(path), "%s/%s", dir, names[f]);
        assert_int_equal(stat(path, &info), 0);
        assert_true(info.st_size > 200);
        for (long at = 0; at < info.st_size; at++) {
            int bits = 1 << (at % 8);
            flip(path, at, bits);
            if (found() != 1 || complaints != 1) {
                fail_msg("%s: byte %ld", names[f], at);
            }
            flip(path, at, bits);
        }
        assert_int_equal(found(), 2);
    }
    /* Torn: a file that ends anywhere. */
    for (uint32_t f = 0; f < 2; f++) {
        char path[256];
        struct stat info;
        snprintf(path, sizeof(path), "%s/%s", dir, names[f]);
        assert_int_equal(stat(path, &info), 0);
        for (long size = info.st_size - 1; size >= 0; size -= 1 + size / 50) {
            assert_int_equal(truncate(path, size), 0);
            assert_int_equal(found(), 1);
        }
        unlink(path);
        assert_int_equal(found(), 1);
        must(make(2, 0, 1, 0, 1, &error), &error);
        assert_int_equal(found(), 2);
    }
}

static void version_is_checked(void **state)
{
    (void)state;
    char text[] = "{\"format\": \"weft-checkpoint\", \"version\": 2,\n"
                  "  \"xxh3_64\": \"0000000000000000\"\n}\n";
    struct weft_ckpt_manifest manifest;
    struct weft_ckpt_error error = {.text = ""};
    assert_int_equal(weft_ckpt_manifest_parse(text, sizeof(text) - 1, &manifest, &error), WEFT_DATA);
    assert_non_null(strstr(error.text, "damaged"));
    char digits[17];
    snprintf(digits, sizeof(digits), "%016" PRIx64, (uint64_t)XXH3_64bits(text, sizeof(text) - 1));
    memcpy(strstr(text, "0000"), digits, 16);
    assert_int_equal(weft_ckpt_manifest_parse(text, sizeof(text) - 1, &manifest, &error), WEFT_DATA);
    assert_string_equal(error.text, "it is of version 2; this release reads version 1");
}

/* Two servers: it counts when both have committed. */
static void parts_of_servers(void **state)
{
    (void)state;
    struct weft_ckpt_error error = {.text = ""};
    uint64_t newest;
    must(make(5, 0, 3, 0, 2, &error), &error);
    assert_int_equal(found(), 0);
    must(weft_ckpt_newest(dir, &newest, &error), &error);
    assert_int_equal(newest, 0);
    must(make(5, 0, 3, 2, 1, &error), &error);
    must(make(6, 0, 3, 2, 1, &error), &error);
    must(weft_ckpt_newest(dir, &newest, &error), &error);
    assert_int_equal(newest, 5);
    assert_int_equal(found(), 5);
    must(weft_ckpt_drop_after(dir, 5, 0, UINT32_MAX, &error), &error);
    assert_int_equal(files_in_dir("000006-0002-0002.manifest"), 0);
    must(make(6, 0, 4, 0, 2, &error), &error); /* of another number of shards */
    must(make(6, 0, 3, 2, 1, &error), &error);
    assert_int_equal(found(), 5);
}

static void deltas_and_pruning(void **state)
{
    (void)state;
    struct weft_ckpt_error error = {.text = ""};
    struct weft_ckpt_set set;
    bool any = true;
    must(weft_ckpt_any(dir, &any, &error), &error);
    assert_false(any);
    must(make(1, 0, 2, 0, 2, &error), &error);
    must(make(2, 0, 2, 0, 2, &error), &error);
    must(make(3, 2, 2, 0, 2, &error), &error);
    must(make(5, 3, 2, 0, 2, &error), &error);
    must(weft_ckpt_any(dir, &any, &error), &error);
    assert_true(any);
    assert_int_equal(find(&set), 5);
    assert_int_equal(set.file_count, 6);
    static const char *const order[] = {"000000000002-0000", "000000000003-0000",
                                        "000000000005-0000", "000000000002-0001",
                                        "000000000003-0001", "000000000005-0001"};
    for (uint32_t i = 0; i < 6; i++) {
        assert_memory_equal(set.files[i].file.name, order[i], 17);
        assert_int_equal(set.files[i].shard, i / 3);
    }
    weft_ckpt_set_fini(&set);
    must(weft_ckpt_prune(dir, 5, &error), &error);
    assert_int_equal(files_in_dir("manifest"), 4);
    must(weft_ckpt_prune(dir, 1, &error), &error);
    assert_int_equal(files_in_dir("manifest"), 3); /* what 5 is based on stays */
    assert_int_equal(files_in_dir("safetensors"), 6);
    assert_int_equal(found(), 5);
    must(make(8, 0, 2, 0, 1, &error), &error); /* does not count yet */
    must(weft_ckpt_prune(dir, 1, &error), &error);
    assert_int_equal(found(), 5);
    must(make(8, 0, 2, 1, 1, &error), &error);
    must(weft_ckpt_prune(dir, 1, &error), &error);
    assert_int_equal(files_in_dir("manifest"), 2);
    assert_int_equal(files_in_dir("safetensors"), 2);
    assert_int_equal(found(), 8);
    /* Each server has its own chain: that of the one does not hold on to the other's. */
    must(make(10, 8, 2, 0, 1, &error), &error);
    must(make(10, 0, 2, 1, 1, &error), &error);
    must(make(11, 0, 2, 0, 1, &error), &error);
    must(make(11, 10, 2, 1, 1, &error), &error);
    must(weft_ckpt_prune(dir, 1, &error), &error);
    assert_int_equal(files_in_dir("manifest"), 3);
    assert_int_equal(files_in_dir("safetensors"), 3);
    assert_int_equal(found(), 11);
    must(make(8, 0, 2, 0, 2, &error), &error);
    must(weft_ckpt_drop_after(dir, 8, 0, UINT32_MAX, &error), &error);
    assert_int_equal(found(), 8);
    /* A delta whose base is gone is no checkpoint. */
    must(make(9, 7, 2, 0, 2, &error), &error);
    assert_int_equal(found(), 8);
}

/* A write that fails at any point: said in words, nothing left over, the one before is found. */
static void disk_full(void **state)
{
    (void)state;
    struct weft_ckpt_error error = {.text = ""};
    struct rlimit before, limit;
    must(make(1, 0, 1, 0, 1, &error), &error);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    uint32_t failed = 0;
    for (rlim_t bytes = 0; bytes < 1200; bytes += 25) {
        limit.rlim_cur = bytes;
        setrlimit(RLIMIT_FSIZE, &limit);
        error.text[0] = '\0';
        weft_status status = make(2, 0, 1, 0, 1, &error);
        setrlimit(RLIMIT_FSIZE, &before);
        if (status == WEFT_OK) {
            break;
        }
        failed++;
        assert_int_equal(status, WEFT_IO);
        assert_non_null(strstr(error.text, "cannot write"));
        assert_int_equal(files_in_dir(".tmp"), 0);
        assert_int_equal(found(), 1);
    }
    assert_true(failed > 20);
    must(make(2, 0, 1, 0, 1, &error), &error);
    assert_int_equal(found(), 2);
    assert_int_equal(weft_ckpt_sync_directory("/nowhere/at/all", &error), WEFT_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(written_and_read, dir_make, dir_remove),
        cmocka_unit_test_setup_teardown(large_tensors, dir_make, dir_remove),
        cmocka_unit_test_setup_teardown(every_byte, dir_make, dir_remove),
        cmocka_unit_test_setup_teardown(parts_of_servers, dir_make, dir_remove),
        cmocka_unit_test_setup_teardown(deltas_and_pruning, dir_make, dir_remove),
        cmocka_unit_test_setup_teardown(disk_full, dir_make, dir_remove),
        cmocka_unit_test(version_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
