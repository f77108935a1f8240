/* A trace file is written and read; its size limit; truncated and invalid files; totals of its
 * records. */
#include "obs/qlog.h"
#include "obs/trace_file.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct weft_ep *ep_make(void)
{
    struct weft_ep_config config;
    struct weft_ep *ep;
    weft_ep_config_default(&config);
    config.trace_records = 64;
    assert_int_equal(weft_ep_new(&config, &ep), WEFT_OK);
    return ep;
}

/* One record: a packet of another version was dropped. */
static void drop_one(struct weft_ep *ep, uint64_t now_ns)
{
    struct weft_addr addr = {.bytes_used = 4};
    static struct weft_tx tx;
    uint8_t stranger[] = {0x30}; /* another version of the file */
    weft_ep_recv(ep, &addr, WEFT_ECN_NOT, stranger, 1, now_ns, now_ns);
    (void)weft_ep_send(ep, now_ns, &tx);
}

/* Created and removed by each test. */
static char path[64];

static int setup(void **state)
{
    (void)state;
    strcpy(path, "/tmp/weft-trace-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int teardown(void **state)
{
    (void)state;
    return unlink(path);
}

static size_t file_read(uint8_t *bytes, size_t max)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t count = fread(bytes, 1, max, file);
    fclose(file);
    return count;
}

static void test_roundtrip(void **state)
{
    (void)state;
    static uint8_t bytes[65536];
    struct weft_trace_writer *writer;
    struct weft_trace_feed feed;
    struct weft_trace_reader reader;
    struct weft_trace_block block;
    struct weft_trace_endpoint about;
    struct weft_trace_record record;
    struct weft_ep *ep = ep_make();
    assert_int_equal(weft_trace_writer_open(path, UINT64_MAX, &writer), WEFT_OK);
    assert_int_equal(
        weft_trace_feed_init(writer, "a label", 5, 6, UINT64_C(0x8899aabbccddeeff), &feed),
        WEFT_OK);
    for (uint64_t i = 0; i < 100; i++) {
        drop_one(ep, UINT64_C(0x0102030405060700) + i);
    }
    assert_int_equal(weft_trace_feed_drain(&feed, ep, 64, true), WEFT_OK);
    assert_int_equal(weft_trace_writer_close(writer), WEFT_OK);
    weft_ep_free(ep);

    size_t count = file_read(bytes, sizeof(bytes));
    weft_trace_reader_init(&reader, bytes, count);
    assert_true(weft_trace_reader_next(&reader, &block));
    assert_int_equal(block.kind, WEFT_TRACE_BLOCK_ENDPOINT);
    weft_trace_block_endpoint(&block, &about);
    assert_string_equal(about.label, "a label");
    assert_int_equal(about.name, 5);
    assert_int_equal(about.incarnation, 6);
    assert_true(about.wall_ns == UINT64_C(0x8899aabbccddeeff));
    assert_true(weft_trace_reader_next(&reader, &block));
    assert_int_equal(block.kind, WEFT_TRACE_BLOCK_RECORDS);
    assert_int_equal(block.overwritten, 36);
    assert_int_equal(block.first, 36);
    assert_int_equal(block.count, 64);
    weft_trace_block_record(&block, 63, &record);
    assert_int_equal(record.time_ns, UINT64_C(0x0102030405060700) + 99);
    assert_int_equal(record.type, WEFT_TRACE_DROPPED);
    assert_int_equal(record.flags, WEFT_TRACE_DROP_bad_version);
    assert_int_equal(record.peer, WEFT_TRACE_NO_PEER);
    assert_int_equal(record.a, 1);
    /* The byte order is the file's, not the machine's. */
    assert_memory_equal(block.entries, "\x24\x07\x06\x05\x04\x03\x02\x01", 8);
    assert_true(weft_trace_reader_next(&reader, &block));
    assert_int_equal(block.kind, WEFT_TRACE_BLOCK_COUNTERS);
    char name[WEFT_TRACE_NAME_BYTES + 1];
    uint64_t versions = 0;
    for (uint32_t i = 0; i < block.count; i++) {
        uint64_t value = weft_trace_block_counter(&block, i, name);
        versions = strcmp(name, "bad_version") == 0 ? value : versions;
    }
    assert_int_equal(versions, 100);
    assert_false(weft_trace_reader_next(&reader, &block));
    assert_false(reader.bad || reader.truncated);

    /* A file truncated anywhere yields only its complete records, and the truncation is
     * reported. */
    for (size_t cut = 1; cut < count; cut++) {
        weft_trace_reader_init(&reader, bytes, cut);
        uint64_t records = 0;
        size_t whole = 0;
        while (weft_trace_reader_next(&reader, &block)) {
            records += block.kind == WEFT_TRACE_BLOCK_RECORDS ? block.count : 0;
            whole = reader.at;
        }
        assert_true(records <= 64 && !reader.bad);
        assert_true(reader.truncated || whole == cut);
    }
    bytes[4] = 2; /* another version of the file */
    weft_trace_reader_init(&reader, bytes, count);
    assert_false(weft_trace_reader_next(&reader, &block));
    assert_true(reader.bad);
}

static void test_limit(void **state)
{
    (void)state;
    static uint8_t bytes[2 << 20];
    struct weft_trace_writer *writer;
    struct weft_trace_feed feed;
    struct weft_trace_reader reader;
    struct weft_trace_block block;
    struct weft_ep *ep = ep_make();
    assert_int_equal(weft_trace_writer_open(path, 0, &writer), WEFT_OK); /* the minimum: 1 MB */
    assert_int_equal(weft_trace_feed_init(writer, "x", 0, 0, 0, &feed), WEFT_OK);
    uint32_t errors = 0;
    for (uint64_t i = 0; i < 40000; i++) {
        drop_one(ep, i);
        if (weft_trace_feed_drain(&feed, ep, 64, false) != WEFT_OK) {
            assert_int_equal(errno, EFBIG);
            errors++;
        }
    }
    assert_int_equal(errors, 1); /* the first call after it only */
    assert_int_equal(weft_trace_feed_drain(&feed, ep, 64, true), WEFT_OK);
    assert_int_equal(weft_trace_writer_close(writer), WEFT_OK);
    weft_ep_free(ep);
    size_t count = file_read(bytes, sizeof(bytes));
    assert_true(count <= 1 << 20 && count > (1 << 20) - 4096);
    weft_trace_reader_init(&reader, bytes, count);
    uint64_t next = 0;
    while (weft_trace_reader_next(&reader, &block)) {
        if (block.kind == WEFT_TRACE_BLOCK_RECORDS) {
            assert_int_equal(block.first, next);
            assert_int_equal(block.overwritten, 0);
            next += block.count;
        }
    }
    assert_false(reader.bad || reader.truncated); /* whole blocks only */
}

static void test_refused(void **state)
{
    (void)state;
    struct weft_trace_writer *writer = NULL;
    assert_int_equal(weft_trace_writer_open("/no/such/place", 0, &writer), WEFT_IO);
    assert_int_equal(weft_trace_writer_close(NULL), WEFT_OK);
    struct weft_trace_feed feed;
    struct weft_ep *ep = ep_make();
    assert_int_equal(weft_trace_feed_init(NULL, "off", 0, 0, 0, &feed), WEFT_OK);
    assert_int_equal(weft_trace_feed_drain(&feed, ep, 64, true), WEFT_OK); /* no new records */
    weft_ep_free(ep);
}

static void make_some(uint8_t *bytes, size_t max, size_t *count_p)
{
    struct weft_trace_writer *writer;
    struct weft_trace_feed feed;
    struct weft_ep *ep = ep_make();
    assert_int_equal(weft_trace_writer_open(path, UINT64_MAX, &writer), WEFT_OK);
    assert_int_equal(weft_trace_feed_init(writer, "one", 5, 6, 0, &feed), WEFT_OK);
    for (uint64_t i = 0; i < 10; i++) {
        drop_one(ep, 100 - i); /* in descending order */
    }
    assert_int_equal(weft_trace_feed_drain(&feed, ep, 64, true), WEFT_OK);
    assert_int_equal(weft_trace_writer_close(writer), WEFT_OK);
    weft_ep_free(ep);
    *count_p = file_read(bytes, max);
}

static void test_doc(void **state)
{
    (void)state;
    static uint8_t bytes[65536];
    size_t count;
    struct weft_trace_doc doc;
    make_some(bytes, sizeof(bytes), &count);
    assert_int_equal(weft_trace_doc_make(bytes, count, &doc), WEFT_OK);
    assert_int_equal(doc.endpoint_count, 1);
    assert_string_equal(doc.endpoints[0].about.label, "one");
    assert_int_equal(doc.endpoints[0].records, 10);
    assert_true(doc.endpoints[0].counters > 0 && !doc.truncated);
    assert_int_equal(doc.count, 10);
    for (size_t i = 0; i < 10; i++) {
        assert_int_equal(doc.entries[i].record.time_ns, 91 + i);
    }
    weft_trace_doc_fini(&doc);
    assert_int_equal(weft_trace_doc_make(bytes, 100, &doc), WEFT_OK); /* one head, half a block */
    assert_true(doc.truncated);
    weft_trace_doc_fini(&doc);
    assert_int_equal(weft_trace_doc_make(bytes, 0, &doc), WEFT_DATA);
    bytes[6] = 1; /* the first endpoint is missing */
    assert_int_equal(weft_trace_doc_make(bytes, count, &doc), WEFT_DATA);
    weft_trace_doc_fini(&doc);
}

/* Message 1 took 30 ns, message 2 is still open, the beginning of 3 was overwritten; message 1 of
 * the other direction took 5 ns. */
static void test_tally(void **state)
{
    (void)state;
    const struct weft_trace_record records[] = {
        {.time_ns = 10, .number = 1, .type = WEFT_TRACE_MSG_OPENED},
        {.time_ns = 11, .number = 2, .type = WEFT_TRACE_MSG_OPENED},
        {.time_ns = 12, .number = 1, .type = WEFT_TRACE_MSG_OPENED, .flags = WEFT_TRACE_INCOMING},
        {.time_ns = 13, .type = WEFT_TRACE_PACKET_SENT, .flags = WEFT_TRACE_HAS_DATA},
        {.time_ns = 14, .type = WEFT_TRACE_PACKET_SENT},
        {.time_ns = 15, .a = 900, .type = WEFT_TRACE_RTT},
        {.time_ns = 16, .a = 700, .type = WEFT_TRACE_RTT},
        {.time_ns = 17, .number = 1, .type = WEFT_TRACE_MSG_CLOSED, .flags = WEFT_TRACE_INCOMING},
        {.time_ns = 18, .number = 3, .type = WEFT_TRACE_MSG_CLOSED, .flags = 1 << 1},
        {.time_ns = 19, .type = WEFT_TRACE_TYPE_END},
        {.time_ns = 20, .a = 1, .type = WEFT_TRACE_RTT}, /* another endpoint */
        {.time_ns = 40, .number = 1, .type = WEFT_TRACE_MSG_CLOSED},
    };
    struct weft_trace_entry entries[WEFT_ARRAY_COUNT(records)] = {0};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(records); i++) {
        entries[i].record = records[i];
        entries[i].endpoint = i == 10;
    }
    const struct weft_trace_doc doc = {.entries = entries, .count = WEFT_ARRAY_COUNT(entries)};
    struct weft_trace_tally tally;
    assert_int_equal(weft_trace_tally_make(&doc, 0, &tally), WEFT_OK);
    assert_int_equal(tally.first_ns, 10);
    assert_int_equal(tally.last_ns, 40);
    assert_int_equal(tally.types[WEFT_TRACE_PACKET_SENT], 2);
    assert_int_equal(tally.data_sent, 1);
    assert_int_equal(tally.unknown_types, 1);
    assert_int_equal(tally.rtt_count, 2);
    assert_int_equal(tally.rtts_ns[0], 700);
    assert_int_equal(tally.outcomes[WEFT_TRACE_OUTGOING][0], 1);
    assert_int_equal(tally.outcomes[WEFT_TRACE_OUTGOING][1], 1);
    assert_int_equal(tally.life_count, 2);
    assert_int_equal(tally.lives[0].ns, 5);
    assert_int_equal(tally.lives[1].ns, 30);
    assert_int_equal(tally.time_count[WEFT_TRACE_INCOMING], 1);
    assert_int_equal(tally.times_ns[WEFT_TRACE_OUTGOING][0], 30);
    weft_trace_tally_fini(&tally);
}

static void test_qlog(void **state)
{
    (void)state;
    static uint8_t bytes[65536];
    size_t count, lines = 0;
    char line[1024];
    struct weft_trace_doc doc;
    make_some(bytes, sizeof(bytes), &count);
    assert_int_equal(weft_trace_doc_make(bytes, count, &doc), WEFT_OK);
    FILE *out = tmpfile();
    assert_int_equal(weft_qlog_write(&doc, "a title", out), WEFT_OK);
    rewind(out);
    while (fgets(line, sizeof(line), out) != NULL) {
        assert_int_equal(line[0], 0x1e);
        assert_non_null(strstr(line, lines == 0 ? "a title" : "\"reason\":\"bad_version\""));
        lines++;
    }
    fclose(out);
    assert_int_equal(lines, 11);
    FILE *full = fopen("/dev/full", "w");
    setvbuf(full, NULL, _IONBF, 0);
    assert_int_equal(weft_qlog_write(&doc, "a title", full), WEFT_IO);
    fclose(full);
    weft_trace_doc_fini(&doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_roundtrip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limit, setup, teardown),
        cmocka_unit_test(test_refused),
        cmocka_unit_test_setup_teardown(test_doc, setup, teardown),
        cmocka_unit_test(test_tally),
        cmocka_unit_test_setup_teardown(test_qlog, setup, teardown),
    };
    return cmocka_run_group_tests_name("obs_trace", tests, NULL, NULL);
}
