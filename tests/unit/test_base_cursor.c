/* Reading and writing: big-endian, and never past the end. After the first attempt to pass the end
 * all calls fail. */
#include "base/cursor.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdlib.h>

static const uint8_t BYTES[15] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static void reads_are_big_endian(void **state)
{
    (void)state;
    struct weft_reader r = weft_reader_make(BYTES, sizeof(BYTES));
    assert_int_equal(weft_read_u8(&r), 0x01);
    assert_int_equal(weft_read_u16(&r), 0x0203);
    assert_int_equal(weft_read_u32(&r), 0x04050607);
    assert_int_equal(weft_read_u64(&r), UINT64_C(0x08090a0b0c0d0e0f));
    assert_int_equal(weft_reader_left(&r), 0);
    assert_false(r.bad);
}

static void writes_are_big_endian(void **state)
{
    (void)state;
    uint8_t out[sizeof(BYTES)];
    struct weft_writer w = weft_writer_make(out, sizeof(out));
    weft_write_u8(&w, 0x01);
    weft_write_u16(&w, 0x0203);
    weft_write_u32(&w, 0x04050607);
    weft_write_u64(&w, UINT64_C(0x08090a0b0c0d0e0f));
    assert_int_equal(weft_writer_left(&w), 0);
    assert_false(w.bad);
    assert_memory_equal(out, BYTES, sizeof(BYTES));
}

static void bytes_are_borrowed_not_copied(void **state)
{
    (void)state;
    struct weft_reader r = weft_reader_make(BYTES, 5);
    assert_ptr_equal(weft_read_bytes(&r, 0), BYTES);
    assert_ptr_equal(weft_read_bytes(&r, 3), BYTES);
    assert_ptr_equal(weft_read_bytes(&r, 2), BYTES + 3);
    /* Reading 0 bytes of an empty buffer succeeds. */
    assert_ptr_equal(weft_read_bytes(&r, 0), BYTES + 5);
    assert_false(r.bad);
}

enum operation { U8, U16, U32, U64, FIVE_BYTES, OPERATIONS };
static const size_t OPERATION_BYTES[OPERATIONS] = {1, 2, 4, 8, 5};

static uint64_t read_one(struct weft_reader *r, enum operation operation)
{
    switch (operation) {
    case U8:
        return weft_read_u8(r);
    case U16:
        return weft_read_u16(r);
    case U32:
        return weft_read_u32(r);
    case U64:
        return weft_read_u64(r);
    default:
        return weft_read_bytes(r, 5) != NULL;
    }
}

static void write_one(struct weft_writer *w, enum operation operation, bool zeros)
{
    switch (operation) {
    case U8:
        weft_write_u8(w, UINT8_MAX);
        break;
    case U16:
        weft_write_u16(w, UINT16_MAX);
        break;
    case U32:
        weft_write_u32(w, UINT32_MAX);
        break;
    case U64:
        weft_write_u64(w, UINT64_MAX);
        break;
    default:
        if (zeros) {
            weft_write_zeros(w, 5);
        } else {
            weft_write_bytes(w, BYTES, 5);
        }
    }
}

/* Heap copies of the exact size, so that AddressSanitizer detects a read of one byte too many. */
static void every_read_past_the_end_is_refused(void **state)
{
    (void)state;
    for (int operation = 0; operation < OPERATIONS; operation++) {
        for (size_t count = 0; count < OPERATION_BYTES[operation]; count++) {
            uint8_t *bytes = malloc(count + 1);
            assert_non_null(bytes);
            memset(bytes, 0xff, count + 1);
            struct weft_reader r = weft_reader_make(bytes + 1, count);
            assert_int_equal(read_one(&r, operation), 0);
            assert_true(r.bad);
            assert_int_equal(weft_reader_left(&r), count);
            /* After a failure even a read that would fit fails. */
            for (int next = 0; next < OPERATIONS; next++) {
                assert_int_equal(read_one(&r, next), 0);
            }
            assert_null(weft_read_bytes(&r, 0));
            assert_int_equal(weft_reader_left(&r), count);
            free(bytes);
        }
    }
}

static void every_write_past_the_end_writes_nothing(void **state)
{
    (void)state;
    for (int operation = 0; operation < OPERATIONS; operation++) {
        for (size_t count = 0; count < OPERATION_BYTES[operation]; count++) {
            for (int zeros = 0; zeros < 2; zeros++) {
                uint8_t out[16];
                memset(out, 0xa5, sizeof(out));
                struct weft_writer w = weft_writer_make(out, count);
                write_one(&w, operation, zeros);
                assert_true(w.bad);
                for (int next = 0; next < OPERATIONS; next++) {
                    write_one(&w, next, zeros);
                }
                assert_int_equal(weft_writer_left(&w), count);
                for (size_t i = 0; i < sizeof(out); i++) {
                    assert_int_equal(out[i], 0xa5);
                }
            }
        }
    }
}

static void a_length_near_the_largest_does_not_wrap(void **state)
{
    (void)state;
    struct weft_reader r = weft_reader_make(BYTES, sizeof(BYTES));
    assert_null(weft_read_bytes(&r, SIZE_MAX));
    assert_true(r.bad);
    uint8_t out[4] = {1, 2, 3, 4};
    struct weft_writer w = weft_writer_make(out, sizeof(out));
    weft_write_zeros(&w, SIZE_MAX - 1);
    assert_true(w.bad);
    assert_int_equal(out[0], 1);
}

static void zeros_are_written(void **state)
{
    (void)state;
    uint8_t out[4] = {1, 2, 3, 4};
    struct weft_writer w = weft_writer_make(out, sizeof(out));
    weft_write_zeros(&w, 3);
    assert_int_equal(weft_writer_left(&w), 1);
    assert_memory_equal(out, ((uint8_t[]){0, 0, 0, 4}), 4);
    weft_write_bytes(&w, NULL, 0);
    assert_false(w.bad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_are_big_endian),
        cmocka_unit_test(writes_are_big_endian),
        cmocka_unit_test(bytes_are_borrowed_not_copied),
        cmocka_unit_test(every_read_past_the_end_is_refused),
        cmocka_unit_test(every_write_past_the_end_writes_nothing),
        cmocka_unit_test(a_length_near_the_largest_does_not_wrap),
        cmocka_unit_test(zeros_are_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
