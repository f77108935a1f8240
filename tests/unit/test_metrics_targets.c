/* The metrics addresses of the processes of a job: the last report is used, workers' files are read
 * each time, and lists from other sources are validated. */
#include "metrics/target_file.h"
#include "metrics/targets.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void expect(struct weft_targets *targets, const char *wanted)
{
    char *text = weft_targets_json(targets);
    assert_string_equal(text, wanted);
    free(text);
}

#define GROUP(at, role, rank)                                                                      \
    "{\"targets\":[\"" at "\"],\"labels\":{\"role\":\"" role "\",\"rank\":\"" rank "\"}}"

static void what_was_said_last_counts(void **state)
{
    (void)state;
    static struct weft_targets targets;
    weft_targets_init(&targets);
    expect(&targets, "[]");
    weft_targets_set(&targets, "server", 0, "http://127.0.0.1:41/metrics");
    weft_targets_set(&targets, "worker", 0, "http://[::1]:42/metrics");
    weft_targets_set(&targets, "server", 0, "http://127.0.0.1:43/metrics");
    weft_targets_set(&targets, "server", 1, "");
    weft_targets_set(&targets, "server", 1, "https://elsewhere:1/");
    expect(&targets,
           "[" GROUP("127.0.0.1:43", "server", "0") "," GROUP("[::1]:42", "worker", "0") "]");
    for (uint32_t rank = 0; rank < 2 * WEFT_TARGETS_MAX; rank++) {
        weft_targets_set(&targets, "server", rank, "http://127.0.0.1:9/metrics");
    }
    assert_int_equal(targets.count, WEFT_TARGETS_MAX);
}

/* JSON is UTF-8, an address need not be. */
static void the_list_is_utf8(void **state)
{
    (void)state;
    static struct weft_targets targets;
    weft_targets_init(&targets);
    weft_targets_set(&targets, "server", 0, "http://n\xffx:41/metrics");
    expect(&targets, "[" GROUP("n?x:41", "server", "0") "]");
}

static void a_process_that_ended_is_no_target(void **state)
{
    (void)state;
    static struct weft_targets targets;
    weft_targets_init(&targets);
    weft_targets_drop(&targets, "aggregator", 0); /* unknown: no effect */
    weft_targets_set(&targets, "aggregator", 0, "http://127.0.0.1:41/metrics");
    weft_targets_set(&targets, "aggregator", 1, "http://127.0.0.1:42/metrics");
    weft_targets_set(&targets, "server", 0, "http://127.0.0.1:43/metrics");
    weft_targets_drop(&targets, "aggregator", 2);
    weft_targets_drop(&targets, "aggregator", 0);
    expect(&targets, "[" GROUP("127.0.0.1:42", "aggregator", "1") "," GROUP("127.0.0.1:43",
                                                                            "server", "0") "]");
    weft_targets_set(&targets, "aggregator", 0, "http://127.0.0.1:44/metrics");
    weft_targets_drop(&targets, "aggregator", 1);
    weft_targets_drop(&targets, "server", 0);
    expect(&targets, "[" GROUP("127.0.0.1:44", "aggregator", "0") "]");
    for (uint32_t rank = 0; rank < WEFT_TARGETS_MAX; rank++) {
        weft_targets_set(&targets, "server", rank, "http://127.0.0.1:9/metrics");
    }
    weft_targets_drop(&targets, "server", WEFT_TARGETS_MAX - 2); /* the last of a full list */
    weft_targets_drop(&targets, "aggregator", 0);
    assert_int_equal(targets.count, WEFT_TARGETS_MAX - 2);
}

static void workers_write_files(void **state)
{
    (void)state;
    static struct weft_targets targets;
    struct weft_target_file file;
    char folder[] = "/tmp/weft-targets-XXXXXX";
    assert_non_null(mkdtemp(folder));
    weft_targets_init(&targets);
    targets.folder = folder;
    targets.workers = 3;
    assert_int_equal(setenv("WEFT_METRICS_TARGETS", folder, 1), 0);
    weft_target_file_write(&file, "worker", 2, "http://127.0.0.1:50/metrics");
    expect(&targets, "[" GROUP("127.0.0.1:50", "worker", "2") "]");
    targets.workers = 2; /* not a rank of this job */
    expect(&targets, "[]");
    targets.workers = 3;
    weft_target_file_remove(&file);
    expect(&targets, "[]");
    assert_int_equal(rmdir(folder), 0);
}

static void note(void *arg, const char *at)
{
    strcat(arg, at);
    strcat(arg, " ");
}

static void lists_of_others_name_addresses_alone(void **state)
{
    (void)state;
    char found[256] = "";
    weft_targets_parse("[{\"targets\": [\"a:1\", \"/etc/passwd\", \"b\", 7, \"c:2\"]},"
                       " {\"labels\": {}}, 5, {\"targets\": [\"d:3\"]}]",
                       note, found);
    assert_string_equal(found, "a:1 c:2 d:3 ");
    weft_targets_parse("no JSON", note, found);
    weft_targets_parse("{\"targets\": [\"e:4\"]}", note, found);
    assert_string_equal(found, "a:1 c:2 d:3 ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_said_last_counts),
        cmocka_unit_test(the_list_is_utf8),
        cmocka_unit_test(a_process_that_ended_is_no_target),
        cmocka_unit_test(workers_write_files),
        cmocka_unit_test(lists_of_others_name_addresses_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
