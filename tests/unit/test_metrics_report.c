/* Counters and latencies as JSON: sums, a lossless round trip, and malformed input. */
#include "metrics/report.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static double at(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name)->valuedouble;
}

static void counters_of_several_are_summed(void **state)
{
    (void)state;
    struct weft_driver_counters transport = {.socket = {.datagrams_received = 5},
                                             .ep = {.data_sent = 3, .messages_received = 2}};
    struct weft_shard_counters shard = {.pushes = 7};
    struct weft_ps_client_counters client = {.clocks = 11, .pull = {.elements_delivered = 13}};
    cJSON *sum = cJSON_CreateObject();
    cJSON *one = cJSON_CreateObject();
    weft_report_add_transport(one, &transport);
    weft_report_add_shard(one, &shard);
    weft_report_add_client(one, &client);
    weft_report_add(one, "records", 4);
    assert_int_equal(weft_report_add_all(sum, one), WEFT_OK);
    assert_int_equal(weft_report_add_all(sum, one), WEFT_OK);
    assert_int_equal(cJSON_GetArraySize(sum), cJSON_GetArraySize(one));
    assert_true(at(sum, "datagrams_received") == 10 && at(sum, "data_sent") == 6);
    assert_true(at(sum, "messages") == 4 && at(sum, "shard_pushes") == 14);
    assert_true(at(sum, "client_clocks") == 22 && at(sum, "pull_elements_delivered") == 26);
    assert_true(at(sum, "records") == 8 && at(sum, "bad_key") == 0);
    cJSON_AddStringToObject(one, "odd", "text");
    assert_int_equal(weft_report_add_all(sum, one), WEFT_DATA);
    assert_int_equal(weft_report_add_all(sum, NULL), WEFT_DATA);
    cJSON_Delete(one);
    cJSON_Delete(sum);
}

static void latencies_go_there_and_back(void **state)
{
    (void)state;
    struct weft_ps_latencies *all = calloc(2 * WEFT_REPORT_KINDS, sizeof(*all));
    struct weft_ps_latencies *back = all + WEFT_REPORT_KINDS;
    const struct weft_ps_latencies *const of[] = {&all[0], &all[1]};
    for (uint64_t i = 1; i <= 1000; i++) {
        weft_hist_add(&all[0].w_proc, i * 1000);
        weft_hist_add(&all[1].ps_wait, i * i * i);
    }
    cJSON *packed = weft_report_pack(of);
    char *text = cJSON_PrintUnformatted(packed);
    cJSON *object = cJSON_Parse(text);
    assert_int_equal(weft_report_unpack_add(object, back), WEFT_OK);
    assert_memory_equal(&back[0].w_proc, &all[0].w_proc, sizeof(all[0].w_proc));
    assert_memory_equal(&back[1].ps_wait, &all[1].ps_wait, sizeof(all[1].ps_wait));
    assert_int_equal(back[0].n_tx.count, 0);
    /* the report of another worker */
    assert_int_equal(weft_report_unpack_add(object, back), WEFT_OK);
    assert_int_equal(back[0].w_proc.count, 2000);
    cJSON *quantiles = weft_report_quantiles_us(of);
    const cJSON *push = cJSON_GetObjectItemCaseSensitive(quantiles, "push");
    double p50 = at(cJSON_GetObjectItemCaseSensitive(push, "W_proc"), "p50");
    assert_true(p50 >= 500 && p50 < 520);
    assert_int_equal(cJSON_GetArraySize(push), WEFT_REPORT_PARTS);
    cJSON_Delete(quantiles);
    cJSON_Delete(object);
    cJSON_Delete(packed);
    cJSON_free(text);
    free(all);
}

static void what_is_no_histogram_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}",
        "{\"sum\": 1, \"max\": 1, \"buckets\": 7}",
        "{\"sum\": 1, \"max\": 1, \"buckets\": [0]}",
        "{\"sum\": 1, \"max\": 1, \"buckets\": [100000000, 1]}",
        "{\"sum\": 1, \"max\": 1, \"buckets\": [-1, 1]}",
        "{\"sum\": 1, \"max\": 1, \"buckets\": [1, 1e300]}",
        "{\"sum\": \"1\", \"max\": 1, \"buckets\": []}",
    };
    struct weft_hist hist = {0};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(texts); i++) {
        cJSON *object = cJSON_Parse(texts[i]);
        assert_non_null(object);
        assert_int_equal(weft_report_unpack_one_add(object, &hist), WEFT_DATA);
        cJSON_Delete(object);
    }
    assert_int_equal(weft_report_unpack_one_add(NULL, &hist), WEFT_DATA);
    assert_int_equal(hist.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_of_several_are_summed),
        cmocka_unit_test(latencies_go_there_and_back),
        cmocka_unit_test(what_is_no_histogram_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
