/* The byte source: every compression yields the same bytes, and a stream truncated anywhere is an
 * error, never a shorter file. */
#include "base/prng.h"
#include "ml/source.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

struct bytes {
    uint8_t *at;
    size_t count;
};

static struct bytes bytes_new(size_t count)
{
    struct bytes bytes = {.at = malloc(count + 1), .count = count};
    assert_non_null(bytes.at);
    return bytes;
}

/* Compressible text, but not highly compressible. */
static struct bytes sample(size_t count)
{
    struct bytes text = bytes_new(count);
    struct weft_prng prng;
    weft_prng_init(&prng, 7);
    for (size_t i = 0; i < count; i++) {
        text.at[i] = (uint8_t) "0123456789:\n"[weft_prng_below(&prng, 12)];
    }
    return text;
}

static struct bytes pack_zstd(struct bytes plain)
{
    struct bytes packed = bytes_new(ZSTD_compressBound(plain.count));
    packed.count = ZSTD_compress(packed.at, packed.count, plain.at, plain.count, 3);
    assert_false(ZSTD_isError(packed.count));
    return packed;
}

static struct bytes pack_gzip(struct bytes plain)
{
    struct bytes packed = bytes_new(plain.count + plain.count / 100 + 1000);
    z_stream stream = {0};
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = plain.at;
    stream.avail_in = (uInt)plain.count;
    stream.next_out = packed.at;
    stream.avail_out = (uInt)packed.count;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    packed.count -= stream.avail_out;
    assert_int_equal(deflateEnd(&stream), Z_OK);
    return packed;
}

static struct bytes joined(struct bytes left, struct bytes right)
{
    struct bytes both = bytes_new(left.count + right.count);
    memcpy(both.at, left.at, left.count);
    memcpy(both.at + left.count, right.at, right.count);
    return both;
}

/* Read everything in pieces; *plain_p owns its bytes, also after an error. */
static weft_status read_all(struct bytes packed, size_t piece, struct weft_error *error,
                            struct bytes *plain_p)
{
    *plain_p = bytes_new(1 << 20);
    plain_p->count = 0;
    struct weft_ml_source *source = NULL;
    weft_status status = weft_ml_source_open_memory(packed.at, packed.count, error, &source);
    for (size_t count = 1; status == WEFT_OK && count > 0;) {
        assert_true(plain_p->count + piece <= 1 << 20);
        status = weft_ml_source_read(source, plain_p->at + plain_p->count, piece, error, &count);
        plain_p->count += status == WEFT_OK ? count : 0;
    }
    if (status != WEFT_OK && source != NULL) {
        size_t count = 0;
        assert_int_equal(weft_ml_source_read(source, plain_p->at, 1, NULL, &count), status);
    }
    weft_ml_source_close(source);
    return status;
}

static void check_unpacks_to(struct bytes packed, struct bytes expected)
{
    static const size_t pieces[] = {1, 7, 4096, 65536};
    for (size_t p = 0; p < WEFT_ARRAY_COUNT(pieces); p++) {
        struct weft_error error = {0};
        struct bytes plain;
        assert_int_equal(read_all(packed, pieces[p], &error, &plain), WEFT_OK);
        assert_int_equal(plain.count, expected.count);
        assert_memory_equal(plain.at, expected.at, expected.count);
        free(plain.at);
    }
}

static void every_packing_gives_the_bytes_back(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 2, 3, 1000, 65535, 65536, 65537, 300000};
    for (size_t s = 0; s < WEFT_ARRAY_COUNT(sizes); s++) {
        struct bytes plain = sample(sizes[s]);
        struct bytes zstd = pack_zstd(plain);
        struct bytes gzip = pack_gzip(plain);
        check_unpacks_to(plain, plain);
        check_unpacks_to(zstd, plain);
        check_unpacks_to(gzip, plain);
        free(plain.at);
        free(zstd.at);
        free(gzip.at);
    }
}

static void frames_in_a_row_are_one_stream(void **state)
{
    (void)state;
    struct bytes plain = sample(100000);
    struct bytes twice = joined(plain, plain);
    struct bytes zstd = pack_zstd(plain);
    struct bytes zstd_twice = joined(zstd, zstd);
    struct bytes gzip = pack_gzip(plain);
    struct bytes gzip_twice = joined(gzip, gzip);
    check_unpacks_to(zstd_twice, twice);
    check_unpacks_to(gzip_twice, twice);

    uint8_t skippable_bytes[] = {0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'x', 'y', 'z'};
    struct bytes skippable = {skippable_bytes, sizeof(skippable_bytes)};
    struct bytes with_skippable = joined(skippable, zstd_twice);
    check_unpacks_to(with_skippable, twice);

    free(plain.at);
    free(twice.at);
    free(zstd.at);
    free(zstd_twice.at);
    free(gzip.at);
    free(gzip_twice.at);
    free(with_skippable.at);
}

/* Truncate at every offset after the magic number; the bytes returned before the error are a prefix
 * of the original. */
static void check_every_cut(struct bytes packed, struct bytes plain, size_t step)
{
    for (size_t count = 4; count < packed.count; count += step) {
        struct weft_error error = {0};
        struct bytes cut = {packed.at, count};
        struct bytes got;
        assert_int_equal(read_all(cut, 4096, &error, &got), WEFT_DATA);
        assert_string_equal(error.text, "the compressed stream is cut short");
        assert_true(got.count <= plain.count);
        assert_memory_equal(got.at, plain.at, got.count);
        free(got.at);
    }
}

static void a_cut_stream_is_an_error(void **state)
{
    (void)state;
    struct bytes plain = sample(1500);
    struct bytes zstd = pack_zstd(plain);
    struct bytes gzip = pack_gzip(plain);
    check_every_cut(zstd, plain, 1);
    check_every_cut(gzip, plain, 1);
    free(plain.at);
    free(zstd.at);
    free(gzip.at);

    plain = sample(200000);
    zstd = pack_zstd(plain);
    gzip = pack_gzip(plain);
    check_every_cut(zstd, plain, 4999);
    check_every_cut(gzip, plain, 4999);
    free(plain.at);
    free(zstd.at);
    free(gzip.at);
}

static void what_came_before_the_cut_is_handed_out(void **state)
{
    (void)state;
    struct bytes plain = sample(200000);
    struct bytes gzip = pack_gzip(plain);
    gzip.count -= 8; /* only the trailer is missing */
    struct weft_error error = {0};
    struct bytes got;
    assert_int_equal(read_all(gzip, 1 << 19, &error, &got), WEFT_DATA);
    assert_int_equal(got.count, plain.count);
    free(got.at);
    free(gzip.at);
    free(plain.at);
}

static void check_refused(struct bytes packed, const char *text)
{
    struct weft_error error = {0};
    struct bytes got;
    assert_int_equal(read_all(packed, 4096, &error, &got), WEFT_DATA);
    assert_non_null(strstr(error.text, text));
    free(got.at);
}

static void damage_is_an_error(void **state)
{
    (void)state;
    struct bytes plain = sample(5000);
    struct bytes gzip = pack_gzip(plain);
    gzip.at[gzip.count - 6] ^= 1; /* in the CRC */
    check_refused(gzip, "damaged gzip stream: incorrect data check");
    struct bytes zstd = pack_zstd(plain);
    memset(zstd.at + 10, 0xff, 8);
    check_refused(zstd, "damaged zstd stream");
    free(plain.at);
    free(gzip.at);
    free(zstd.at);
}

static void bytes_after_the_end_are_an_error(void **state)
{
    (void)state;
    struct bytes plain = sample(500);
    uint8_t rest_bytes[] = "not a frame";
    struct bytes rest = {rest_bytes, sizeof(rest_bytes)};
    struct bytes zstd = pack_zstd(plain);
    struct bytes gzip = pack_gzip(plain);
    struct bytes zstd_rest = joined(zstd, rest);
    struct bytes gzip_rest = joined(gzip, rest);
    check_refused(zstd_rest, "damaged zstd stream");
    check_refused(gzip_rest, "damaged gzip stream");
    free(plain.at);
    free(zstd.at);
    free(gzip.at);
    free(zstd_rest.at);
    free(gzip_rest.at);
}

/* Create a file in the working directory with this suffix; the caller unlinks it and frees the
 * name. */
static char *write_file(const char *ending, const void *bytes, size_t count)
{
    char *name = malloc(64);
    assert_non_null(name);
    (void)snprintf(name, 64, "test_ml_source.XXXXXX%s", ending);
    int fd = mkstemps(name, (int)strlen(ending));
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, count), count);
    assert_int_equal(close(fd), 0);
    return name;
}

static void a_wrong_name_is_an_error(void **state)
{
    (void)state;
    static const struct {
        const char *ending;
        weft_status status;
    } cases[] = {{".zst", WEFT_DATA}, {".gz", WEFT_DATA}, {".txt", WEFT_OK}};
    for (size_t c = 0; c < WEFT_ARRAY_COUNT(cases); c++) {
        char *name = write_file(cases[c].ending, "<html>", 6);
        struct weft_error error = {0};
        struct weft_ml_source *source = NULL;
        assert_int_equal(weft_ml_source_open(name, &error, &source), cases[c].status);
        weft_ml_source_close(source);
        assert_int_equal(unlink(name), 0);
        free(name);
    }
}

static void the_first_bytes_decide_not_the_name(void **state)
{
    (void)state;
    struct bytes plain = sample(5000);
    struct bytes zstd = pack_zstd(plain);
    char *name = write_file(".gz", zstd.at, zstd.count);
    struct weft_ml_source *source = NULL;
    assert_int_equal(weft_ml_source_open(name, NULL, &source), WEFT_OK);
    uint8_t got[5001];
    size_t count = 0;
    assert_int_equal(weft_ml_source_read(source, got, sizeof(got), NULL, &count), WEFT_OK);
    assert_int_equal(count, plain.count);
    assert_memory_equal(got, plain.at, plain.count);
    weft_ml_source_close(source);
    assert_int_equal(unlink(name), 0);
    free(name);
    free(plain.at);
    free(zstd.at);
}

static void missing_files_and_directories(void **state)
{
    (void)state;
    struct weft_error error = {0};
    struct weft_ml_source *source = NULL;
    assert_int_equal(weft_ml_source_open("no/such/file", &error, &source), WEFT_NOTFOUND);
    assert_string_equal(error.text, "cannot open: No such file or directory");
    assert_int_equal(weft_ml_source_open(".", &error, &source), WEFT_IO);
    assert_string_equal(error.text, "is a directory, not a data file");
    assert_null(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_packing_gives_the_bytes_back),
        cmocka_unit_test(frames_in_a_row_are_one_stream),
        cmocka_unit_test(a_cut_stream_is_an_error),
        cmocka_unit_test(what_came_before_the_cut_is_handed_out),
        cmocka_unit_test(damage_is_an_error),
        cmocka_unit_test(bytes_after_the_end_are_an_error),
        cmocka_unit_test(a_wrong_name_is_an_error),
        cmocka_unit_test(the_first_bytes_decide_not_the_name),
        cmocka_unit_test(missing_files_and_directories),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
