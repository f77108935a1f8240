/* --trace: off, a file that cannot be created, and the records of an endpoint. */
#include "node/tracing.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

static void hear(void *arg, enum weft_node_level level, const char *text)
{
    assert_int_equal(level, WEFT_NODE_WARNING);
    (void)snprintf(arg, 256, "%s", text);
}

static void without_a_file_nothing_is_traced(void **state)
{
    (void)state;
    char heard[256] = "";
    struct weft_tracing tracing;
    struct weft_tracing_feed feed;
    struct weft_udp_config config;
    weft_udp_config_default(&config);
    weft_tracing_open(&tracing, NULL, (struct weft_node_log){hear, heard});
    weft_tracing_attach(&tracing, "shard 0", &config, &feed);
    weft_tracing_attach(NULL, "shard 0", &config, &feed);
    assert_int_equal(config.ep.trace_records, 0);
    assert_null(config.observer.observe);
    weft_tracing_close(&tracing);
    assert_string_equal(heard, "");
}

static void a_file_that_cannot_be_made_is_logged(void **state)
{
    (void)state;
    char heard[256] = "";
    struct weft_tracing tracing;
    struct weft_tracing_feed feed;
    struct weft_udp_config config;
    weft_udp_config_default(&config);
    weft_tracing_open(&tracing, "/nowhere/trace", (struct weft_node_log){hear, heard});
    assert_string_equal(heard, "no trace: /nowhere/trace: No such file or directory");
    weft_tracing_attach(&tracing, "shard 0", &config, &feed);
    assert_int_equal(config.ep.trace_records, 0);
    weft_tracing_close(&tracing);
}

/* Once, although three calls follow. */
static void a_full_disk_is_logged(void **state)
{
    (void)state;
    char heard[256] = "";
    struct weft_tracing tracing;
    struct weft_tracing_feed feed[2];
    struct weft_udp_config config;
    struct weft_ep *ep = NULL;
    if (access("/dev/full", W_OK) != 0) {
        skip();
    }
    weft_udp_config_default(&config);
    weft_tracing_open(&tracing, "/dev/full", (struct weft_node_log){hear, heard});
    weft_tracing_attach(&tracing, "shard 0", &config, &feed[0]);
    assert_string_equal(heard, "the trace /dev/full ends here: No space left on device");
    heard[0] = '\0';
    weft_tracing_attach(&tracing, "shard 1", &config, &feed[1]);
    assert_int_equal(weft_ep_new(&config.ep, &ep), WEFT_OK);
    config.observer.observe(config.observer.arg, ep, true);
    weft_ep_free(ep);
    weft_tracing_close(&tracing);
    assert_string_equal(heard, "");
}

/* The file has room for the announcement of the endpoint only. */
static void a_disk_that_becomes_full_is_logged(void **state)
{
    (void)state;
    char path[] = "/tmp/weft-trace-XXXXXX", heard[256] = "", wanted[256];
    struct weft_tracing tracing;
    struct weft_tracing_feed feed;
    struct weft_udp_config config;
    struct weft_ep *ep = NULL;
    struct rlimit before;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit small = {.rlim_cur = 100, .rlim_max = before.rlim_max};
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);

    weft_udp_config_default(&config);
    weft_tracing_open(&tracing, path, (struct weft_node_log){hear, heard});
    weft_tracing_attach(&tracing, "shard 0", &config, &feed);
    assert_string_equal(heard, "");
    assert_int_equal(weft_ep_new(&config.ep, &ep), WEFT_OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    config.observer.observe(config.observer.arg, ep, true);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    (void)snprintf(wanted, sizeof(wanted), "the trace %s ends here: File too large", path);
    assert_string_equal(heard, wanted);
    heard[0] = '\0';
    weft_ep_free(ep);
    weft_tracing_close(&tracing);
    assert_string_equal(heard, "");
    assert_int_equal(unlink(path), 0);
}

static void an_endpoint_is_traced(void **state)
{
    (void)state;
    char path[] = "/tmp/weft-trace-XXXXXX", heard[256] = "";
    static uint8_t bytes[1 << 16];
    struct weft_tracing tracing;
    struct weft_tracing_feed feed;
    struct weft_udp_config config;
    struct weft_ep *ep = NULL;
    const struct weft_addr addr = {.bytes_used = 4};
    uint8_t stranger[] = {0x30}; /* another version: dropped and recorded */
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);

    weft_udp_config_default(&config);
    config.ep.name = 42;
    weft_tracing_open(&tracing, path, (struct weft_node_log){hear, heard});
    weft_tracing_attach(&tracing, "shard 3", &config, &feed);
    assert_int_equal(weft_ep_new(&config.ep, &ep), WEFT_OK);
    weft_ep_recv(ep, &addr, WEFT_ECN_NOT, stranger, sizeof(stranger), 1, 1);
    config.observer.observe(config.observer.arg, ep, true);
    weft_ep_free(ep);
    weft_tracing_close(&tracing);
    assert_string_equal(heard, "");

    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t count = fread(bytes, 1, sizeof(bytes), file);
    (void)fclose(file);
    assert_int_equal(unlink(path), 0);
    struct weft_trace_reader reader;
    struct weft_trace_block block;
    struct weft_trace_endpoint endpoint = {.name = 0};
    uint32_t records = 0;
    weft_trace_reader_init(&reader, bytes, count);
    while (weft_trace_reader_next(&reader, &block)) {
        if (block.kind == WEFT_TRACE_BLOCK_ENDPOINT) {
            weft_trace_block_endpoint(&block, &endpoint);
        }
        records += block.kind == WEFT_TRACE_BLOCK_RECORDS ? block.count : 0;
    }
    assert_false(reader.bad || reader.truncated);
    assert_int_equal(endpoint.name, 42);
    assert_string_equal(endpoint.label, "shard 3");
    assert_int_equal(records, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_file_nothing_is_traced),
        cmocka_unit_test(a_file_that_cannot_be_made_is_logged),
        cmocka_unit_test(a_full_disk_is_logged),
        cmocka_unit_test(a_disk_that_becomes_full_is_logged),
        cmocka_unit_test(an_endpoint_is_traced),
    };
    return cmocka_run_group_tests_name("node/tracing", tests, NULL, NULL);
}
