#include "cli/train/latency.h"

#include <stdbool.h>
#include <string.h>

/* JSON numbers are doubles: whole up to here. Counts and nanoseconds of a run stay far below. */
#define WHOLE_MAX 9007199254740992.0

const char *const weft_latency_kind_names[WEFT_LATENCY_KINDS] = {"push", "pull"};
const char *const weft_latency_part_names[WEFT_LATENCY_PARTS] = {
    "W_proc", "W_queue", "PS_proc", "PS_queue", "N_tx", "PS_wait",
};

cJSON *weft_latency_pack_one(const struct weft_hist *hist)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "sum", (double)hist->sum);
    cJSON_AddNumberToObject(object, "max", (double)hist->max);
    cJSON *buckets = cJSON_AddArrayToObject(object, "buckets");
    for (size_t i = 0; i < WEFT_HIST_BUCKETS; i++) {
        if (hist->buckets[i] != 0) {
            cJSON_AddItemToArray(buckets, cJSON_CreateNumber((double)i));
            cJSON_AddItemToArray(buckets, cJSON_CreateNumber((double)hist->buckets[i]));
        }
    }
    return object;
}

cJSON *weft_latency_pack(const struct weft_latency *latency)
{
    cJSON *object = cJSON_CreateObject();
    for (int kind = 0; kind < WEFT_LATENCY_KINDS; kind++) {
        cJSON *parts = cJSON_AddObjectToObject(object, weft_latency_kind_names[kind]);
        for (int part = 0; part < WEFT_LATENCY_PARTS; part++) {
            cJSON_AddItemToObject(parts, weft_latency_part_names[part],
                                  weft_latency_pack_one(&latency->of[kind][part]));
        }
    }
    return object;
}

static bool whole(const cJSON *item, double max, uint64_t *value_p)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0.0 && item->valuedouble <= max)) {
        return false;
    }
    *value_p = (uint64_t)item->valuedouble;
    return true;
}

weft_status weft_latency_unpack_one_add(const cJSON *object, struct weft_hist *hist)
{
    static struct weft_hist one; /* 15 KB, and one thread merges */
    memset(&one, 0, sizeof(one));
    const cJSON *buckets = cJSON_GetObjectItemCaseSensitive(object, "buckets");
    if (!cJSON_IsArray(buckets) ||
        !whole(cJSON_GetObjectItemCaseSensitive(object, "sum"), WHOLE_MAX, &one.sum) ||
        !whole(cJSON_GetObjectItemCaseSensitive(object, "max"), WHOLE_MAX, &one.max)) {
        return WEFT_DATA;
    }
    for (const cJSON *index = buckets->child; index != NULL; index = index->next->next) {
        uint64_t i;
        uint64_t n;
        if (!whole(index, WEFT_HIST_BUCKETS - 1, &i) || index->next == NULL ||
            !whole(index->next, WHOLE_MAX, &n)) {
            return WEFT_DATA;
        }
        one.buckets[i] += n;
        one.count += n;
    }
    weft_hist_merge(hist, &one);
    return WEFT_OK;
}

weft_status weft_latency_unpack_add(const cJSON *object, struct weft_latency *latency)
{
    for (int kind = 0; kind < WEFT_LATENCY_KINDS; kind++) {
        const cJSON *parts =
            cJSON_GetObjectItemCaseSensitive(object, weft_latency_kind_names[kind]);
        for (int part = 0; part < WEFT_LATENCY_PARTS; part++) {
            weft_status status = weft_latency_unpack_one_add(
                cJSON_GetObjectItemCaseSensitive(parts, weft_latency_part_names[part]),
                &latency->of[kind][part]);
            if (status != WEFT_OK) {
                return status;
            }
        }
    }
    return WEFT_OK;
}

static double quantile_us(const struct weft_hist *hist, uint32_t quantile_ppm)
{
    return (double)weft_hist_quantile(hist, quantile_ppm) / (double)WEFT_NS_PER_US;
}

cJSON *weft_latency_quantiles_us(const struct weft_latency *latency)
{
    cJSON *object = cJSON_CreateObject();
    for (int kind = 0; kind < WEFT_LATENCY_KINDS; kind++) {
        cJSON *parts = cJSON_AddObjectToObject(object, weft_latency_kind_names[kind]);
        for (int part = 0; part < WEFT_LATENCY_PARTS; part++) {
            const struct weft_hist *hist = &latency->of[kind][part];
            cJSON *two = cJSON_AddObjectToObject(parts, weft_latency_part_names[part]);
            cJSON_AddNumberToObject(two, "p50", quantile_us(hist, 500000));
            cJSON_AddNumberToObject(two, "p99", quantile_us(hist, 990000));
        }
    }
    return object;
}
