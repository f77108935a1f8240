/* The ring of records of a journal, with everything that can be wrong in its memory. */
#include "base/assert.h"
#include "base/prng.h"
#include "ps/journal_ring.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RING_BYTES = WEFT_RING_HEAD_BYTES + 2048 };

static const struct weft_ring_owner owner = {.shard = 1, .shards = 3, .job = 77};

static uint8_t *ring_memory(void)
{
    uint8_t *memory = aligned_alloc(4096, 8192);
    assert_non_null(memory);
    memset(memory, 0, 8192);
    return memory;
}

static void open_ring(struct weft_ring *ring, uint8_t *memory)
{
    assert_int_equal(weft_ring_open(ring, memory, RING_BYTES, RING_BYTES, &owner), WEFT_OK);
}

static bool put(struct weft_ring *ring, uint32_t rank, size_t bytes)
{
    static uint8_t data[4096];
    memset(data, (int)rank, bytes);
    const struct weft_ring_record head = {.type = 5, .table = 6, .rank = rank};
    return weft_ring_append(ring, &head, NULL, 0, data, bytes);
}

/* Reads to the end; ranks of the records must be first, first + 1, ... Returns how many. */
static uint32_t count(struct weft_ring *ring, uint32_t first)
{
    const struct weft_ring_record *record;
    uint32_t n = 0, life = 0;
    ring->end = ring->begin;
    while ((record = weft_ring_next(ring, &life, &ring->end)) != NULL) {
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

static void reads_what_was_written(void **state)
{
    (void)state;
    uint8_t *memory = ring_memory();
    struct weft_ring ring, again;
    open_ring(&ring, memory);
    assert_int_equal(ring.life, 1);
    for (uint32_t i = 0; i < 10; i++) {
        assert_true(put(&ring, i, i * 7));
    }
    open_ring(&again, memory);
    assert_int_equal(again.life, 2);
    assert_int_equal(count(&again, 0), 10);
    assert_true(again.end.position == ring.end.position && again.end.at == ring.end.at);
    free(memory);
}

/* Laps without end, and a process that dies at any of them. */
static void goes_round(void **state)
{
    (void)state;
    uint8_t *memory = ring_memory();
    struct weft_ring ring;
    struct weft_prng prng;
    struct weft_ring_place places[64];
    uint32_t first = 0, next = 0;
    weft_prng_init(&prng, 3);
    open_ring(&ring, memory);
    for (uint32_t step = 0; step < 20000; step++) {
        if (weft_prng_below(&prng, 3) > 0 && next - first < 60) {
            places[next % 64] = ring.end;
            next += put(&ring, next, weft_prng_below(&prng, 300));
        } else if (first < next) {
            first += 1 + (uint32_t)weft_prng_below(&prng, next - first);
            weft_ring_drop(&ring, first == next ? ring.end : places[first % 64]);
        }
        if (weft_prng_below(&prng, 50) == 0) {
            open_ring(&ring, memory);
            assert_int_equal(count(&ring, first), next - first);
        }
    }
    assert_true(next > 4000);
    free(memory);
}

static void refuses_what_is_not_its_own(void **state)
{
    (void)state;
    uint8_t *memory = ring_memory();
    struct weft_ring ring;
    open_ring(&ring, memory);
    struct weft_ring_owner other = owner;
    other.job++;
    assert_int_equal(weft_ring_open(&ring, memory, RING_BYTES, RING_BYTES, &other), WEFT_EXISTS);
    other = owner;
    other.shard++;
    assert_int_equal(weft_ring_open(&ring, memory, RING_BYTES, RING_BYTES, &other), WEFT_EXISTS);
    memory[8] ^= 3; /* version */
    assert_int_equal(weft_ring_open(&ring, memory, RING_BYTES, RING_BYTES, &owner),
                     WEFT_UNSUPPORTED);
    memory[8] ^= 3;
    for (uint32_t i = 12; i < 40; i++) {
        memory[i] ^= 0x10;
        assert_int_equal(weft_ring_open(&ring, memory, RING_BYTES, RING_BYTES, &owner), WEFT_DATA);
        memory[i] ^= 0x10;
    }
    memory[0] ^= 1;
    assert_int_equal(weft_ring_open(&ring, memory, RING_BYTES, RING_BYTES, &owner), WEFT_DATA);
    memory[0] ^= 1;
    open_ring(&ring, memory);
    /* One of the two begins may be damaged, not both. */
    memset(memory + 64, 0xff, 64);
    open_ring(&ring, memory);
    memset(memory + 64, 0xff, 128);
    assert_int_equal(weft_ring_open(&ring, memory, RING_BYTES, RING_BYTES, &owner), WEFT_DATA);
    free(memory);
}

/* Any byte of a record that is not as it was ends the journal in front of it. */
static void ends_at_damage(void **state)
{
    (void)state;
    uint8_t *memory = ring_memory();
    struct weft_ring ring;
    open_ring(&ring, memory);
    assert_true(put(&ring, 0, 40) && put(&ring, 1, 90) && put(&ring, 2, 10));
    uint32_t begin = WEFT_RING_HEAD_BYTES + 32 + 64, end = begin + 32 + 96;
    for (uint32_t i = begin; i < end; i++) {
        memory[i] ^= 0x81;
        assert_int_equal(count(&ring, 0), 1);
        memory[i] ^= 0x81;
    }
    assert_int_equal(count(&ring, 0), 3);
    free(memory);
}

/* What an earlier process left behind the place where a later one went on is not taken. */
static void leftovers_are_not_taken(void **state)
{
    (void)state;
    uint8_t *memory = ring_memory();
    struct weft_ring ring;
    open_ring(&ring, memory);
    assert_true(put(&ring, 0, 40) && put(&ring, 1, 40) && put(&ring, 2, 40));
    memory[WEFT_RING_HEAD_BYTES + 96 + 40] ^= 1; /* the second is damaged */
    open_ring(&ring, memory);
    assert_int_equal(count(&ring, 0), 1);
    assert_true(put(&ring, 1, 40)); /* just where it was; behind it lies the whole third */
    assert_int_equal(count(&ring, 0), 2);
    free(memory);
}

/* What lies behind a place that was cut back to is not read, of whatever length the next record is. */
static void cut_back_it_forgets(void **state)
{
    (void)state;
    for (uint32_t bytes = 0; bytes < 200; bytes += 8) {
        uint8_t *memory = ring_memory();
        struct weft_ring ring, again;
        open_ring(&ring, memory);
        assert_true(put(&ring, 0, 40));
        struct weft_ring_place place = ring.end;
        assert_true(put(&ring, 1, 40) && put(&ring, 2, 40) && put(&ring, 3, 40));
        weft_ring_cut_back(&ring, place);
        assert_true(put(&ring, 1, bytes));
        assert_int_equal(count(&ring, 0), 2);
        open_ring(&again, memory);
        assert_int_equal(count(&again, 0), 2);
        free(memory);
    }
}

static void says_when_it_is_full(void **state)
{
    (void)state;
    uint8_t *memory = ring_memory();
    struct weft_ring ring;
    open_ring(&ring, memory);
    uint32_t n = 0;
    while (put(&ring, n, 100)) {
        n++;
    }
    assert_true(n >= 12);
    assert_int_equal(count(&ring, 0), n);
    assert_false(put(&ring, n, 100));
    weft_ring_drop(&ring, ring.end);
    assert_int_equal(weft_ring_used(&ring), 0);
    assert_true(put(&ring, 0, 100) && put(&ring, 1, 500));
    assert_int_equal(count(&ring, 0), 2);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_was_written),      cmocka_unit_test(goes_round),
        cmocka_unit_test(refuses_what_is_not_its_own), cmocka_unit_test(ends_at_damage),
        cmocka_unit_test(leftovers_are_not_taken),     cmocka_unit_test(cut_back_it_forgets),
        cmocka_unit_test(says_when_it_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
