/* The ring of records of a journal, with every kind of damage in its memory. */
#include "base/assert.h"
#include "base/prng.h"
#include "ps/journal_ring.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RING_BYTES = WEFT_RING_HEAD_BYTES + 2048, MEMORY_BYTES = 8192, LINEAGE = 99 };

static const struct weft_ring_owner owner = {.shard = 1, .shards = 3, .job = 77};

static uint8_t *ring_memory(void)
{
    uint8_t *memory = aligned_alloc(4096, MEMORY_BYTES);
    assert_non_null(memory);
    memset(memory, 0, MEMORY_BYTES);
    return memory;
}

static void make_ring(struct weft_ring *ring, uint8_t *memory)
{
    weft_ring_make(ring, memory, RING_BYTES, RING_BYTES, &owner, LINEAGE, 0);
}

static weft_status read_ring(struct weft_ring_reader *reader, const uint8_t *memory)
{
    return weft_ring_read(reader, memory, RING_BYTES, &owner);
}

static bool put(struct weft_ring *ring, uint32_t rank, size_t bytes)
{
    static uint8_t data[4096];
    memset(data, (int)rank, bytes);
    const struct weft_ring_record head = {.type = 5, .table = 6, .rank = rank};
    return weft_ring_append(ring, &head, NULL, 0, data, bytes);
}

/* Read to the end; the ranks of the records must be first, first + 1, ... Returns their number. */
static uint32_t count(const uint8_t *memory, uint32_t first, struct weft_ring_reader *reader,
                      struct weft_ring_cursor *end_p)
{
    const struct weft_ring_record *record;
    uint32_t n = 0, life = 0;
    assert_int_equal(read_ring(reader, memory), WEFT_OK);
    *end_p = reader->begin;
    while ((record = weft_ring_next(reader, &life, end_p)) != NULL) {
        assert_int_equal(record->rank, first + n);
        assert_int_equal(record->type, 5);
        assert_int_equal(record->table, 6);
        if (record->bytes > sizeof(*record)) {
            assert_int_equal(*(const uint8_t *)(record + 1), (uint8_t)record->rank);
        }
        n++;
    }
    return n;
}

/* Nothing was lost: the reader reaches the writer's position. */
static uint32_t count_all(const uint8_t *memory, uint32_t first)
{
    struct weft_ring_reader reader;
    struct weft_ring_cursor end;
    uint32_t n = count(memory, first, &reader, &end);
    assert_true(reader.has_last && end.position >= reader.last.position);
    assert_int_equal(end.records - reader.begin.records, n);
    return n;
}

static void reads_what_was_written(void **state)
{
    (void)state;
    uint8_t *memory = ring_memory();
    struct weft_ring ring;
    struct weft_ring_reader reader;
    struct weft_ring_cursor end;
    make_ring(&ring, memory);
    assert_int_equal(count_all(memory, 0), 0);
    for (uint32_t i = 0; i < 10; i++) {
        assert_true(put(&ring, i, i * 7));
    }
    assert_int_equal(count(memory, 0, &reader, &end), 10);
    assert_true(end.position == ring.end.position && end.at == ring.end.at);
    assert_true(reader.last.position == ring.end.position && reader.last.records == 10);
    assert_int_equal(reader.lineage, LINEAGE);
    assert_int_equal(reader.version, WEFT_RING_VERSION);
    free(memory);
}

/* Many laps, read at any of them. */
static void goes_round(void **state)
{
    (void)state;
    uint8_t *memory = ring_memory();
    struct weft_ring ring;
    struct weft_prng prng;
    struct weft_ring_cursor places[64];
    uint32_t first = 0, next = 0;
    weft_prng_init(&prng, 3);
    make_ring(&ring, memory);
    for (uint32_t step = 0; step < 20000; step++) {
        if (weft_prng_below(&prng, 3) > 0 && next - first < 60) {
            places[next % 64] = ring.end;
            next += put(&ring, next, weft_prng_below(&prng, 300));
        } else if (first < next) {
            first += 1 + (uint32_t)weft_prng_below(&prng, next - first);
            weft_ring_drop(&ring, first == next ? ring.end : places[first % 64]);
        }
        if (weft_prng_below(&prng, 50) == 0) {
            assert_int_equal(count_all(memory, first), next - first);
        }
    }
    assert_true(next > 4000);
    free(memory);
}

/* Copied records keep their positions, whatever wraps are in between, and the copy can be
 * continued. */
static void a_copy_stands_alone(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 4);
    uint32_t wrapped = 0;
    for (uint32_t round = 0; round < 300; round++) {
        uint8_t *memory = ring_memory(), *other = ring_memory();
        struct weft_ring ring, own;
        struct weft_ring_reader reader;
        const struct weft_ring_record *record;
        uint32_t first = 0, next = 0, life = 0;
        struct weft_ring_cursor places[300];
        make_ring(&ring, memory);
        for (uint32_t step = 0; step < round; step++) {
            places[next] = ring.end;
            next += put(&ring, next, weft_prng_below(&prng, 300));
            if (next - first > 3) {
                weft_ring_drop(&ring, places[first += 2]);
            }
        }
        assert_int_equal(read_ring(&reader, memory), WEFT_OK);
        weft_ring_make(&own, other, RING_BYTES, RING_BYTES, &owner, LINEAGE, reader.begin.position);
        for (struct weft_ring_cursor at = reader.begin;
             (record = weft_ring_next(&reader, &life, &at)) != NULL;) {
            assert_true(weft_ring_copy(&own, record));
            assert_true(own.end.position == record->position + record->bytes);
        }
        wrapped += ring.end.at <= ring.begin.at && next > first;
        assert_true(own.end.position == ring.end.position);
        assert_int_equal(count_all(other, first), next - first);
        weft_ring_drop(&own, own.end);
        assert_true(put(&own, next, 100) && put(&own, next + 1, 200));
        assert_int_equal(count_all(other, next), 2);
        free(memory);
        free(other);
    }
    assert_true(wrapped > 50);
}

static void a_copy_that_does_not_fit_changes_nothing(void **state)
{
    (void)state;
    uint8_t *memory = ring_memory(), *other = ring_memory(), *before = ring_memory();
    struct weft_ring ring, own;
    struct weft_ring_reader reader;
    uint32_t life = 0;
    make_ring(&ring, memory);
    assert_true(put(&ring, 0, 900) && put(&ring, 1, 900));
    assert_int_equal(read_ring(&reader, memory), WEFT_OK);
    weft_ring_make(&own, other, WEFT_RING_HEAD_BYTES + 1024, RING_BYTES, &owner, LINEAGE, 0);
    struct weft_ring_cursor at = reader.begin;
    assert_true(weft_ring_copy(&own, weft_ring_next(&reader, &life, &at)));
    const struct weft_ring_record *record = weft_ring_next(&reader, &life, &at);
    memcpy(before, other, MEMORY_BYTES);
    assert_false(weft_ring_copy(&own, record));
    assert_memory_equal(before, other, MEMORY_BYTES);
    own.bytes = RING_BYTES;
    assert_true(weft_ring_copy(&own, record));
    assert_int_equal(count_all(other, 0), 2);
    free(memory);
    free(other);
    free(before);
}

static void refuses_what_is_not_its_own(void **state)
{
    (void)state;
    uint8_t *memory = ring_memory();
    struct weft_ring ring;
    struct weft_ring_reader reader;
    uint64_t lineage;
    make_ring(&ring, memory);
    assert_true(weft_ring_lineage(memory, &lineage) && lineage == LINEAGE);
    struct weft_ring_owner other = owner;
    other.job++;
    assert_int_equal(weft_ring_read(&reader, memory, RING_BYTES, &other), WEFT_EXISTS);
    other = owner;
    other.shard++;
    assert_int_equal(weft_ring_read(&reader, memory, RING_BYTES, &other), WEFT_EXISTS);
    memory[8]++; /* version */
    assert_int_equal(read_ring(&reader, memory), WEFT_UNSUPPORTED);
    memory[8]--;
    for (uint32_t i = 12; i < 48; i++) {
        memory[i] ^= 0x10;
        assert_int_equal(read_ring(&reader, memory), WEFT_DATA);
        assert_false(weft_ring_lineage(memory, &lineage));
        memory[i] ^= 0x10;
    }
    memory[0] ^= 1;
    assert_int_equal(read_ring(&reader, memory), WEFT_DATA);
    memory[0] ^= 1;
    assert_int_equal(read_ring(&reader, memory), WEFT_OK);
    /* One of the two copies of begin may be damaged, not both. */
    weft_ring_drop(&ring, ring.end);
    assert_true(put(&ring, 0, 1));
    memset(memory + 64, 0xff, 64);
    assert_int_equal(read_ring(&reader, memory), WEFT_OK);
    memset(memory + 64, 0xff, 128);
    assert_int_equal(read_ring(&reader, memory), WEFT_DATA);
    free(memory);
}

/* A changed byte in a record ends the journal before it, and the size of the lost part is known. */
static void damage_is_told_from_the_end(void **state)
{
    (void)state;
    uint8_t *memory = ring_memory();
    struct weft_ring ring;
    struct weft_ring_reader reader;
    struct weft_ring_cursor end;
    make_ring(&ring, memory);
    assert_true(put(&ring, 0, 40) && put(&ring, 1, 90) && put(&ring, 2, 10));
    uint32_t begin = WEFT_RING_HEAD_BYTES + 32 + 64, behind = begin + 32 + 96;
    for (uint32_t i = begin; i < behind; i++) {
        memory[i] ^= 0x81;
        assert_int_equal(count(memory, 0, &reader, &end), 1);
        assert_true(reader.has_last);
        assert_int_equal(reader.last.records - end.records, 2);
        assert_int_equal(reader.last.position - end.position, 32 + 96 + 32 + 32);
        memory[i] ^= 0x81;
    }
    assert_int_equal(count_all(memory, 0), 3);
    free(memory);
}

/* A process killed after writing a record and before its end; and one killed while writing the end,
 * so that the previous one is valid. */
static void an_end_that_lags_is_no_damage(void **state)
{
    (void)state;
    uint8_t *memory = ring_memory(), head[512];
    struct weft_ring ring;
    struct weft_ring_reader reader;
    struct weft_ring_cursor end;
    make_ring(&ring, memory);
    assert_true(put(&ring, 0, 40) && put(&ring, 1, 90));
    memcpy(head, memory, sizeof(head));
    assert_true(put(&ring, 2, 10));
    uint8_t *slot = memory + 192 + ring.end_seq % 2 * 64;
    for (uint32_t i = 0; i < 40; i++) {
        slot[i] ^= 0x40;
        assert_int_equal(count_all(memory, 0), 3);
        slot[i] ^= 0x40;
    }
    memcpy(memory, head, sizeof(head));
    assert_int_equal(count_all(memory, 0), 3);
    memset(memory + 192, 0xff, 128); /* both: damage of unknown extent */
    assert_int_equal(count(memory, 0, &reader, &end), 3);
    assert_false(reader.has_last);
    free(memory);
}

/* Records after a cut-back position are not read, whatever the length of the next record. */
static void cut_back_it_forgets(void **state)
{
    (void)state;
    for (uint32_t bytes = 0; bytes < 200; bytes += 8) {
        uint8_t *memory = ring_memory();
        struct weft_ring ring;
        make_ring(&ring, memory);
        assert_true(put(&ring, 0, 40));
        struct weft_ring_cursor place = ring.end;
        assert_true(put(&ring, 1, 40) && put(&ring, 2, 40) && put(&ring, 3, 40));
        weft_ring_cut_back(&ring, place);
        assert_int_equal(count_all(memory, 0), 4); /* the old records are still readable */
        assert_true(put(&ring, 1, bytes));
        assert_int_equal(count_all(memory, 0), 2);
        free(memory);
    }
}

static void says_when_it_is_full(void **state)
{
    (void)state;
    uint8_t *memory = ring_memory();
    struct weft_ring ring;
    make_ring(&ring, memory);
    uint32_t n = 0;
    while (put(&ring, n, 100)) {
        n++;
    }
    assert_true(n >= 12);
    assert_int_equal(count_all(memory, 0), n);
    assert_false(put(&ring, n, 100));
    weft_ring_drop(&ring, ring.end);
    assert_int_equal(weft_ring_used(&ring), 0);
    assert_true(put(&ring, 0, 100) && put(&ring, 1, 500));
    assert_int_equal(count_all(memory, 0), 2);
    free(memory);
}

/* Memory of any length with arbitrary changes: the reader always terminates. */
static void reads_nothing_outside(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 5);
    uint8_t *memory = ring_memory();
    struct weft_ring ring;
    make_ring(&ring, memory);
    for (uint32_t i = 0; i < 14; i++) {
        assert_true(put(&ring, i, i * 9));
    }
    uint32_t opened = 0;
    for (uint32_t round = 0; round < 20000; round++) {
        uint64_t bytes = WEFT_RING_HEAD_BYTES + 32 * weft_prng_range(&prng, 1, 64);
        uint8_t *copy = malloc(bytes); /* of exact size, so that a sanitizer detects reads beyond */
        assert_non_null(copy);
        memcpy(copy, memory, bytes);
        for (uint64_t k = weft_prng_below(&prng, 4); k > 0; k--) {
            uint64_t at =
                weft_prng_below(&prng, 2) == 0
                    ? weft_prng_below(&prng, 320)
                    : WEFT_RING_HEAD_BYTES + weft_prng_below(&prng, bytes - WEFT_RING_HEAD_BYTES);
            copy[at] = (uint8_t)weft_prng_u64(&prng);
        }
        struct weft_ring_reader reader;
        if (weft_ring_read(&reader, copy, bytes, &owner) == WEFT_OK) {
            struct weft_ring_cursor at = reader.begin;
            uint32_t life = 0;
            while (weft_ring_next(&reader, &life, &at) != NULL) {
                assert_true(at.at <= bytes);
            }
            opened++;
        }
        free(copy);
    }
    assert_true(opened > 1000);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_was_written),
        cmocka_unit_test(goes_round),
        cmocka_unit_test(a_copy_stands_alone),
        cmocka_unit_test(a_copy_that_does_not_fit_changes_nothing),
        cmocka_unit_test(refuses_what_is_not_its_own),
        cmocka_unit_test(damage_is_told_from_the_end),
        cmocka_unit_test(an_end_that_lags_is_no_damage),
        cmocka_unit_test(cut_back_it_forgets),
        cmocka_unit_test(says_when_it_is_full),
        cmocka_unit_test(reads_nothing_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
