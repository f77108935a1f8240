/* Checkpoint files: every changed byte is detected, the newest valid checkpoint is found, a full
 * disk leaves existing files intact, pruning never removes the last checkpoint. */
#include "ckpt_rig.h"

#include <signal.h>
#include <sys/resource.h>
#include <xxhash.h>

/* Write a part of a checkpoint as the server that has these shards. */
static weft_status make(struct server *server, uint64_t number, uint64_t base,
                        struct weft_error *error)
{
    return server_write(server, number, base, error);
}

/* Tensors larger than the parts in which the writer flushes them (4 MiB), written in pieces that
 * end within pages. */
static void large_tensors(void **state)
{
    (void)state;
    enum { WORDS = 3 << 20, PIECE = 100003 };
    struct weft_error error = {.text = ""};
    struct weft_ckpt_head head = {.tensors = NULL};
    struct weft_ckpt_writer *writer;
    struct weft_ckpt_reader *reader;
    struct weft_ckpt_file file;
    uint64_t *words = malloc(WORDS * sizeof(*words)), *back = malloc(PIECE * sizeof(*back));
    assert_true(words != NULL && back != NULL);
    for (uint64_t i = 0; i < WORDS; i++) {
        words[i] = i * UINT64_C(0x9e3779b97f4a7c15);
    }
    weft_ckpt_head_add(&head, "a", WEFT_CKPT_U64, WORDS, 0);
    weft_ckpt_head_add(&head, "b", WEFT_CKPT_U64, WORDS, 0);
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

static void written_and_read(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    struct weft_ckpt_set set;
    struct server server;
    assert_int_equal(found(), 0);
    server_start(&server, 2, 0, 2);
    must(make(&server, 7, 0, &error), &error);
    server_end(&server);
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
    assert_int_equal(files_in(".", ".tmp") + files_in("log", ".tmp"), 0);
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

/* Change every byte of a manifest and of a data file, and truncate them to many lengths: the
 * previous checkpoint is found instead. */
static void every_byte(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    struct server server;
    server_start(&server, 1, 0, 1);
    must(make(&server, 1, 0, &error), &error);
    must(make(&server, 2, 0, &error), &error);
    assert_int_equal(found(), 2);
    char names[2][WEFT_CKPT_FILE_BYTES];
    weft_ckpt_log_name(4, names[0]); /* claim, restored, 1, 2 */
    weft_ckpt_data_name(2, 0, 1, names[1]);
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
    /* Torn: a file truncated anywhere; a missing data file. */
    for (uint32_t f = 0; f < 2; f++) {
        char path[256], bytes[4096];
        snprintf(path, sizeof(path), "%s/%s", dir, names[f]);
        FILE *file = fopen(path, "r");
        size_t count = fread(bytes, 1, sizeof(bytes), file);
        fclose(file);
        assert_true(count > 200 && count < sizeof(bytes));
        for (long size = (long)count - 1; size >= 0; size -= 1 + size / 50) {
            assert_int_equal(truncate(path, size), 0);
            assert_int_equal(found(), 1);
        }
        unlink(path);
        assert_int_equal(found(), 1);
        must(weft_ckpt_write_new(path, bytes, count, &error), &error);
        assert_int_equal(found(), 2);
    }
    server_end(&server);
}

static void version_is_checked(void **state)
{
    (void)state;
    char text[] = "{\"format\": \"weft-checkpoint\", \"version\": 4,\n"
                  "  \"xxh3_64\": \"0000000000000000\"\n}\n";
    struct weft_ckpt_manifest manifest;
    struct weft_error error = {.text = ""};
    assert_int_equal(weft_ckpt_manifest_parse(text, sizeof(text) - 1, &manifest, &error),
                     WEFT_DATA);
    assert_non_null(strstr(error.text, "damaged"));
    char digits[17];
    snprintf(digits, sizeof(digits), "%016" PRIx64, (uint64_t)XXH3_64bits(text, sizeof(text) - 1));
    memcpy(strstr(text, "0000"), digits, 16);
    assert_int_equal(weft_ckpt_manifest_parse(text, sizeof(text) - 1, &manifest, &error),
                     WEFT_UNSUPPORTED);
    assert_non_null(strstr(error.text, "version 4"));
}

/* Two servers: a checkpoint is valid when both have added their manifests. */
static void parts_of_servers(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    struct server a, b;
    server_start(&a, 3, 0, 2);
    server_start(&b, 3, 2, 1);
    must(make(&a, 5, 0, &error), &error);
    assert_int_equal(found(), 0);
    must(make(&b, 5, 0, &error), &error);
    must(make(&b, 6, 0, &error), &error);
    assert_int_equal(found(), 5);
    assert_int_equal(complaints, 1);
    server_end(&a);
    server_end(&b);
}

static void deltas_and_pruning(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    struct weft_ckpt_set set;
    struct server a;
    server_start(&a, 2, 0, 2);
    must(make(&a, 1, 0, &error), &error);
    must(make(&a, 2, 0, &error), &error);
    must(make(&a, 3, 2, &error), &error);
    must(make(&a, 5, 3, &error), &error);
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
    must(server_look(&a, 5, 5, &error), &error);
    assert_int_equal(files_in(".", "safetensors"), 8);
    must(server_look(&a, 5, 1, &error), &error);
    assert_int_equal(files_in(".", "safetensors"), 6); /* the files on which 5 is based stay */
    assert_int_equal(found(), 5);
    must(make(&a, 8, 0, &error), &error);
    must(server_look(&a, 8, 1, &error), &error);
    assert_int_equal(files_in(".", "safetensors"), 2);
    assert_int_equal(found(), 8);
    /* A delta without its base is not a checkpoint. */
    must(make(&a, 9, 7, &error), &error);
    assert_int_equal(found(), 8);
    server_end(&a);
}

/* Each server has its own chain of deltas: one server's chain does not retain the other's files. */
static void chains_of_servers(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    struct server a, b;
    server_start(&a, 2, 0, 1);
    server_start(&b, 2, 1, 1);
    must(make(&a, 8, 0, &error), &error);
    must(make(&b, 8, 0, &error), &error);
    must(make(&a, 10, 8, &error), &error);
    must(server_look(&a, 10, 1, &error), &error); /* not valid yet */
    assert_int_equal(found(), 8);
    must(make(&b, 10, 0, &error), &error);
    must(make(&a, 11, 0, &error), &error);
    must(make(&b, 11, 10, &error), &error);
    must(server_look(&a, 11, 1, &error), &error);
    assert_int_equal(files_in(".", "safetensors"), 3);
    assert_int_equal(found(), 11);
    server_end(&a);
    server_end(&b);
}

/* Files of an earlier release: manifests beside the data files, and no log. */
static void version_1(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    struct weft_ckpt_file files[2];
    struct server a;
    for (uint64_t number = 3; number <= 4; number++) {
        struct weft_ckpt_manifest m = {
            .number = number, .base = number == 4 ? 3 : 0, .shards = 2, .count = 2, .files = files};
        const struct weft_ckpt_record record = {.kind = WEFT_CKPT_RECORD_MANIFEST, .manifest = m};
        char name[WEFT_CKPT_FILE_BYTES], path[256], *bytes;
        size_t count;
        for (uint32_t s = 0; s < 2; s++) {
            must(write_data(number, s, 0, &files[s], &error), &error);
        }
        must(weft_ckpt_record_print(&record, &bytes, &count, &error), &error);
        weft_ckpt_manifest_name(number, 0, 2, name);
        snprintf(path, sizeof(path), "%s/%s", dir, name);
        must(weft_ckpt_write_new(path, bytes, count, &error), &error);
        free(bytes);
    }
    assert_int_equal(found(), 4);
    server_start(&a, 2, 0, 2);
    assert_int_equal(a.set.number, 4);
    assert_int_equal(a.set.file_count, 4);
    must(make(&a, 5, 0, &error), &error);
    must(server_look(&a, 5, 2, &error), &error);
    assert_int_equal(files_in(".", "manifest"), 2); /* 4, and 3 on which it is based */
    must(make(&a, 6, 0, &error), &error);
    must(server_look(&a, 6, 2, &error), &error);
    assert_int_equal(files_in(".", "manifest"), 0);
    assert_int_equal(files_in(".", "safetensors"), 4);
    assert_int_equal(found(), 6);
    server_end(&a);
}

/* A write that fails at any point: an error text, no leftover files, and the previous checkpoint is
 * found. */
static void disk_full(void **state)
{
    (void)state;
    struct weft_error error = {.text = ""};
    struct rlimit before, limit;
    struct server server;
    server_start(&server, 1, 0, 1);
    must(make(&server, 1, 0, &error), &error);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    uint32_t failed = 0;
    for (rlim_t bytes = 0; bytes < 1200; bytes += 25) {
        limit.rlim_cur = bytes;
        setrlimit(RLIMIT_FSIZE, &limit);
        error.text[0] = '\0';
        weft_status status = make(&server, 2, 0, &error);
        setrlimit(RLIMIT_FSIZE, &before);
        if (status == WEFT_OK) {
            break;
        }
        failed++;
        assert_int_equal(status, WEFT_IO);
        assert_non_null(strstr(error.text, "cannot write"));
        assert_int_equal(files_in(".", ".tmp") + files_in("log", ".tmp"), 0);
        assert_int_equal(found(), 1);
    }
    assert_true(failed > 20);
    must(make(&server, 2, 0, &error), &error);
    assert_int_equal(found(), 2);
    server_end(&server);
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
        cmocka_unit_test_setup_teardown(chains_of_servers, dir_make, dir_remove),
        cmocka_unit_test_setup_teardown(version_1, dir_make, dir_remove),
        cmocka_unit_test_setup_teardown(disk_full, dir_make, dir_remove),
        cmocka_unit_test(version_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
