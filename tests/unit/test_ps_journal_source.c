/* The journal of the previous process: read, never written, and copied from the first record that
 * the checkpoint may lack; and the report if it is damaged or does not continue from the
 * checkpoint. */
#include "ps/shard_journal_internal.h"
#include "ps_journal_churn.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { JOURNAL_BYTES = 256 * 1024, SMALL_BYTES = 5 * 4096 };

static struct churn churn;

/* Input and result of attach. */
static struct {
    const uint8_t *source;
    uint64_t source_bytes;
    uint64_t bytes; /* size of the new journal: initial and maximum */
    uint64_t bytes_max;
    uint64_t job;
    uint64_t cut; /* of the checkpoint */
    weft_status status;
    uint8_t *memory[CHURN_SHARDS]; /* the current journal of each shard */
    struct weft_shard_journal_report report;
} give;

static void give_default(void)
{
    for (uint32_t s = 0; s < CHURN_SHARDS; s++) {
        free(give.memory[s]);
    }
    memset(&give, 0, sizeof(give));
    give.bytes = give.bytes_max = give.source_bytes = JOURNAL_BYTES;
    give.job = 5;
}

static void attach(void *arg, uint32_t s)
{
    (void)arg;
    uint8_t *memory = aligned_alloc(4096, JOURNAL_BYTES);
    assert_non_null(memory);
    memset(memory, 0, JOURNAL_BYTES);
    struct weft_shard *shard = churn.c.shard[s];
    const struct weft_shard_journal_config config = {.memory = memory,
                                                     .bytes = give.bytes,
                                                     .bytes_max = give.bytes_max,
                                                     .job = give.job,
                                                     .checkpoint = churn.saved[s].number,
                                                     .cut = give.cut,
                                                     .lineage = 31,
                                                     .source = give.source,
                                                     .source_bytes = give.source_bytes};
    give.memory[s] = memory;
    give.status = weft_shard_journal_init(shard, &config);
    uint64_t bytes = give.bytes;
    while (give.status == WEFT_OK && weft_shard_journal_replay(shard)) {
        cluster_slabs(&churn.c, s);
        if (weft_shard_journal_stalls(shard)) {
            assert_true(weft_shard_journal_wants(shard) && bytes < give.bytes_max);
            weft_shard_journal_grow(shard, bytes += 4096);
        }
    }
    if (give.status == WEFT_OK) {
        give.report = *weft_shard_journal_report(shard);
    }
}

/* Copy the shard's current journal. */
static uint8_t *journal_copy(uint32_t s)
{
    uint8_t *copy = aligned_alloc(4096, JOURNAL_BYTES);
    assert_non_null(copy);
    memcpy(copy, give.memory[s], JOURNAL_BYTES);
    return copy;
}

static void start(uint64_t seed, uint64_t bytes)
{
    give_default();
    give.bytes = give.bytes_max = bytes;
    journal_churn_start(&churn, seed, attach, NULL);
    assert_int_equal(give.status, WEFT_OK);
    assert_false(give.report.used);
}

/* Create another shard from this journal; the living one keeps its own memory. */
static struct weft_shard *twin_of(const uint8_t *source)
{
    uint8_t *own = give.memory[0];
    give.source = source;
    struct weft_shard *twin = journal_churn_twin(&churn, 0, attach, NULL);
    give.source = NULL;
    free(give.memory[0]);
    give.memory[0] = own;
    return twin;
}

static void stop(void)
{
    churn_stop(&churn);
    give_default();
}

static void it_is_read_and_not_written(void **state)
{
    (void)state;
    start(1, JOURNAL_BYTES);
    journal_churn_push(&churn, 20);
    uint8_t *source = journal_copy(0), *before = journal_copy(0);
    for (int times = 0; times < 3; times++) { /* a process that dies during the replay has no
                                               * effect */
        struct weft_shard *twin = twin_of(source);
        assert_true(give.report.used && give.report.chunks > 0);
        assert_false(give.report.damaged);
        assert_int_equal(give.report.unused_records, 0);
        assert_int_equal(journal_churn_differ(churn.c.shard[0], twin), 0);
        assert_memory_equal(source, before, JOURNAL_BYTES);
        churn_shard_free(&churn, 0, twin);
    }
    free(source);
    free(before);
    stop();
}

/* A successor's journal contains all records of its predecessor after the checkpoint: both
 * journals, each alone, lead to the same state. */
static void it_is_copied_through_many_lives(void **state)
{
    (void)state;
    start(2, JOURNAL_BYTES);
    journal_churn_push(&churn, 10);
    journal_churn_save(&churn, 0);
    journal_churn_push(&churn, 10);
    uint8_t *source = journal_copy(0);
    uint64_t lineage, first;
    assert_true(weft_shard_journal_lineage(source, &first));
    for (int lives = 0; lives < 5; lives++) {
        uint8_t *own = give.memory[0];
        give.source = source;
        struct weft_shard *twin = journal_churn_twin(&churn, 0, attach, NULL);
        give.source = NULL;
        assert_true(give.report.used && give.report.chunks > 0);
        assert_int_equal(journal_churn_differ(churn.c.shard[0], twin), 0);
        assert_true(weft_shard_journal_lineage(give.memory[0], &lineage) && lineage == first);
        memcpy(source, give.memory[0], JOURNAL_BYTES);
        free(give.memory[0]);
        give.memory[0] = own;
        churn_shard_free(&churn, 0, twin);
    }
    free(source);
    stop();
}

/* Changed bytes: the records before them are replayed, and the size of the loss is known. */
static void damage_is_told_with_what_is_lost(void **state)
{
    (void)state;
    start(3, JOURNAL_BYTES);
    journal_churn_push(&churn, 20);
    uint8_t *source = journal_copy(0);
    struct weft_shard *twin = twin_of(source);
    uint64_t records = give.report.records, bytes = give.report.bytes;
    churn_shard_free(&churn, 0, twin);
    uint32_t some = 0;
    for (uint64_t at = WEFT_RING_HEAD_BYTES; at < WEFT_RING_HEAD_BYTES + bytes; at += 997) {
        source[at] ^= 4;
        twin = twin_of(source);
        assert_true(give.report.damaged);
        assert_false(give.report.end_unknown);
        assert_true(give.report.lost_records > 0 && give.report.lost_bytes > 0);
        if (give.report.used) { /* otherwise the MARK, or a record before it, was damaged */
            assert_int_equal(give.report.records + give.report.lost_records, records);
            some++;
        }
        churn_shard_free(&churn, 0, twin);
        source[at] ^= 4;
    }
    assert_true(some > 5);
    memset(source + 192, 0x77, 128);
    twin = twin_of(source);
    assert_true(give.report.used && give.report.damaged && give.report.end_unknown);
    assert_int_equal(journal_churn_differ(churn.c.shard[0], twin), 0);
    churn_shard_free(&churn, 0, twin);
    free(source);
    stop();
}

/* A journal of another checkpoint is ignored and reported; so is one of another job or of a later
 * version, and nothing is written. */
static void what_does_not_fit_is_left_alone(void **state)
{
    (void)state;
    start(4, JOURNAL_BYTES);
    journal_churn_push(&churn, 100);
    uint8_t *source = journal_copy(0), *before = journal_copy(0);
    uint64_t number = churn.saved[0].number;
    churn.saved[0].number = 77;
    struct weft_shard *twin = twin_of(source);
    assert_false(give.report.used);
    assert_true(give.report.unused_records > 20);
    churn_shard_free(&churn, 0, twin);
    churn.saved[0].number = number;

    give.job = 6;
    twin = twin_of(source);
    assert_int_equal(give.status, WEFT_EXISTS);
    churn_shard_free(&churn, 0, twin);
    give.job = 5;
    give.bytes_max = give.bytes = SMALL_BYTES;
    give.source_bytes = JOURNAL_BYTES;
    twin = twin_of(source);
    assert_int_equal(give.status, WEFT_INVALID);
    churn_shard_free(&churn, 0, twin);
    give.bytes_max = give.bytes = JOURNAL_BYTES;
    assert_memory_equal(source, before, JOURNAL_BYTES);
    source[8] = WEFT_RING_VERSION + 1;
    twin = twin_of(source);
    assert_int_equal(give.status, WEFT_UNSUPPORTED);
    churn_shard_free(&churn, 0, twin);
    free(source);
    free(before);
    stop();
}

/* The copy waits for room, which is added during the replay. */
static void it_grows_while_it_is_copied(void **state)
{
    (void)state;
    start(5, JOURNAL_BYTES);
    journal_churn_push(&churn, 30);
    uint8_t *source = journal_copy(0);
    give.bytes = 8192;
    struct weft_shard *twin = twin_of(source);
    assert_int_equal(give.status, WEFT_OK);
    assert_true(give.report.used && give.report.bytes > 8192);
    assert_int_equal(journal_churn_differ(churn.c.shard[0], twin), 0);
    assert_false(weft_shard_journal_is_full(twin));
    churn_shard_free(&churn, 0, twin);
    free(source);
    stop();
}

/* A full journal, and a cut that did not become a checkpoint: records after the cut are not
 * replayed, and this is reported. */
static void behind_a_gap_is_said(void **state)
{
    (void)state;
    static uint64_t cow_memory[1 << 17];
    start(6, SMALL_BYTES);
    for (uint32_t pushes = 0; !weft_shard_journal_is_full(churn.c.shard[0]); pushes++) {
        assert_true(pushes < 1000);
        journal_churn_push(&churn, 1);
    }
    uint8_t *full = journal_copy(0);
    give.source_bytes = SMALL_BYTES;
    struct weft_shard *then = twin_of(full);
    assert_int_equal(give.report.unused_records, 0);
    const struct weft_cut_order order = {.number = 1000,
                                         .now = true,
                                         .whole = true,
                                         .memory = cow_memory,
                                         .bytes = sizeof(cow_memory)};
    assert_int_equal(weft_shard_cut_begin(churn.c.shard[0], &order), WEFT_OK);
    assert_int_equal(weft_shard_cut_state(churn.c.shard[0]), WEFT_CUT_READY);
    journal_churn_push(&churn, 4);
    uint8_t *behind = journal_copy(0);
    struct weft_shard *now = twin_of(behind);
    assert_true(give.report.used && !give.report.damaged);
    assert_true(give.report.unused_records > 4);
    assert_int_equal(journal_churn_differ(then, now), 0);
    weft_shard_cut_end(churn.c.shard[0], false);
    churn_shard_free(&churn, 0, then);
    churn_shard_free(&churn, 0, now);
    free(full);
    free(behind);
    stop();
}

/* The journal's memory has failed: nothing more is written, and the existing records still lead to
 * the state at that time. */
static void failed_it_writes_nothing(void **state)
{
    (void)state;
    start(7, JOURNAL_BYTES);
    journal_churn_push(&churn, 10);
    struct weft_shard *shard = churn.c.shard[0];
    uint8_t *then = journal_copy(0);
    struct weft_shard *twin = twin_of(then);
    assert_int_equal(journal_churn_differ(shard, twin), 0);
    uint64_t changes = weft_shard_journal_changes(shard);
    weft_shard_journal_fail(shard);
    weft_shard_journal_fail(shard);
    assert_int_equal(shard->counters.journal_failed, 1);
    journal_churn_push(&churn, 10);
    weft_saved_begin(&churn.saved[0], shard);
    while (!weft_saved_poll(&churn.saved[0], shard)) {
        (void)cluster_step(&churn.c);
    }
    weft_shard_durable(shard);
    journal_churn_push(&churn, 10);
    assert_false(weft_shard_journal_is_full(shard) || weft_shard_journal_wants(shard));
    assert_int_equal(weft_shard_journal_changes(shard), changes);
    assert_memory_equal(give.memory[0], then, JOURNAL_BYTES);
    assert_true(journal_churn_differ(shard, twin) > 0);
    churn_shard_free(&churn, 0, twin);
    /* None of its records contains the later checkpoint. */
    twin = twin_of(then);
    assert_false(give.report.used);
    assert_true(give.report.unused_records > 0);
    churn_shard_free(&churn, 0, twin);
    free(then);
    stop();
}

/* ---- the last release's ---------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Version 2 stores its head and both begins as four words and their checksum. */
static void put_words(uint8_t *to, const uint64_t words[4])
{
    uint64_t sum = UINT64_C(0x6c6e726a74666577);
    for (int i = 0; i < 4; i++) {
        sum = mix(sum ^ words[i]);
    }
    memcpy(to, words, 32);
    memcpy(to + 32, &sum, 8);
}

/* Its records have the same format; it has no lineage, no count and no end. */
static void make_version_2(uint8_t *memory)
{
    uint64_t head[4], begins[2][4];
    memcpy(head, memory, sizeof(head));
    memcpy(begins[0], memory + 64, sizeof(begins[0]));
    memcpy(begins[1], memory + 128, sizeof(begins[1]));
    uint32_t version = 2;
    memset(memory, 0, WEFT_RING_HEAD_BYTES);
    memcpy((uint8_t *)head + 8, &version, sizeof(version));
    uint32_t shard, shards; /* the checksum covers them in swapped halves of a word */
    memcpy(&shard, (uint8_t *)head + 12, 4);
    memcpy(&shards, (uint8_t *)head + 16, 4);
    const uint64_t checked[4] = {head[0], (uint64_t)version << 32 | shard, (uint64_t)shards << 32,
                                 head[3]};
    put_words(memory, checked);
    memcpy(memory, head, sizeof(head)); /* the checksum stays */
    put_words(memory + 64, begins[0]);
    put_words(memory + 128, begins[1]);
}

/* Equal to version 4 except for the version number. */
static void make_version_3(uint8_t *memory)
{
    uint32_t half[2];
    uint64_t words[5];
    memory[8] = 3;
    memcpy(words, memory, sizeof(words));
    memcpy(half, memory + 8, sizeof(half)); /* the checksum covers them in swapped halves of a
                                             * word */
    words[1] = (uint64_t)half[0] << 32 | half[1];
    memcpy(half, memory + 16, sizeof(half));
    words[2] = (uint64_t)half[0] << 32 | half[1];
    uint64_t sum = UINT64_C(0x6c6e726a74666577);
    for (int i = 0; i < 5; i++) {
        sum = mix(sum ^ words[i]);
    }
    memcpy(memory + 40, &sum, sizeof(sum));
}

static void version_3_is_read(void **state)
{
    (void)state;
    start(9, JOURNAL_BYTES);
    journal_churn_push(&churn, 20);
    journal_churn_save(&churn, 0);
    journal_churn_push(&churn, 20);
    uint8_t *source = journal_copy(0);
    uint64_t lineage, lineage_before;
    assert_true(weft_shard_journal_lineage(source, &lineage_before));
    make_version_3(source);
    assert_true(weft_shard_journal_lineage(source, &lineage));
    assert_true(lineage == lineage_before);
    struct weft_shard *twin = twin_of(source);
    assert_int_equal(give.status, WEFT_OK);
    assert_true(give.report.used && give.report.chunks > 0 && !give.report.damaged);
    assert_int_equal(journal_churn_differ(churn.c.shard[0], twin), 0);
    churn_shard_free(&churn, 0, twin);
    free(source);
    stop();
}

static void version_2_is_read(void **state)
{
    (void)state;
    start(8, JOURNAL_BYTES);
    journal_churn_push(&churn, 20);
    journal_churn_save(&churn, 0); /* both begins are written */
    journal_churn_push(&churn, 20);
    uint8_t *source = journal_copy(0);
    uint64_t lineage;
    make_version_2(source);
    assert_false(weft_shard_journal_lineage(source, &lineage));
    struct weft_shard *twin = twin_of(source);
    assert_int_equal(give.status, WEFT_OK);
    assert_true(give.report.used && give.report.chunks > 0 && !give.report.damaged);
    assert_int_equal(journal_churn_differ(churn.c.shard[0], twin), 0);
    churn_shard_free(&churn, 0, twin);
    free(source);
    stop();
}

/* Of two checkpoints with one number the first was abandoned after its cut: its MARK is not that of
 * the second. */
static void an_abandoned_cut_is_not_the_checkpoint(void **state)
{
    (void)state;
    static uint64_t copies[1 << 14];
    struct weft_cut_order order = {
        .number = 9, .cut = 101, .now = true, .memory = copies, .bytes = sizeof(copies)};
    start(7, JOURNAL_BYTES);
    journal_churn_push(&churn, 20);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(weft_shard_cut_begin(churn.c.shard[0], &order), WEFT_OK);
        assert_int_equal(weft_shard_cut_state(churn.c.shard[0]), WEFT_CUT_READY);
        weft_shard_cut_end(churn.c.shard[0], false);
        journal_churn_push(&churn, 20);
        uint8_t *source = journal_copy(0);
        const uint64_t number = churn.saved[0].number;
        churn.saved[0].number = order.number;
        for (uint64_t cut = 101; cut <= 103; cut++) {
            give.cut = cut;
            struct weft_shard *twin = twin_of(source);
            assert_int_equal(give.report.used, cut <= order.cut);
            churn_shard_free(&churn, 0, twin);
        }
        give.cut = 0; /* a checkpoint of an earlier release: the last one */
        struct weft_shard *twin = twin_of(source);
        assert_true(give.report.used);
        churn_shard_free(&churn, 0, twin);
        churn.saved[0].number = number;
        free(source);
        order.cut++;
    }
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_read_and_not_written),
        cmocka_unit_test(it_is_copied_through_many_lives),
        cmocka_unit_test(damage_is_told_with_what_is_lost),
        cmocka_unit_test(what_does_not_fit_is_left_alone),
        cmocka_unit_test(it_grows_while_it_is_copied),
        cmocka_unit_test(an_abandoned_cut_is_not_the_checkpoint),
        cmocka_unit_test(behind_a_gap_is_said),
        cmocka_unit_test(failed_it_writes_nothing),
        cmocka_unit_test(version_2_is_read),
        cmocka_unit_test(version_3_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
