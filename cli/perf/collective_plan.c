#include "cli/perf/collective_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

const char *const weft_perf_plan_forms[] = {"none", "auto", "slices", "trees", NULL};

/* The rates in bits/s, by rank; false: not a list of rates. */
static bool parse_rates(const char *list, uint32_t ranks, uint64_t *bps_p)
{
    uint64_t mbps = 0;
    const char *at = list;
    for (uint32_t r = 0; r < ranks; r++) {
        char *end = NULL;
        if (*at != '\0') {
            if (*at < '0' || *at > '9') {
                return false;
            }
            mbps = strtoull(at, &end, 10);
            if ((*end != ',' && *end != '\0') || (*end == ',' && end[1] == '\0') || mbps < 1 ||
                mbps > WEFT_COLLECTIVE_BPS_MAX / 1000000) {
                return false;
            }
            at = *end == ',' ? end + 1 : end;
        }
        bps_p[r] = mbps * 1000000;
    }
    return *at == '\0';
}

const char *weft_perf_plan_check(const struct weft_perf_plan_options *options, uint32_t ranks)
{
    uint64_t bps[WEFT_PERF_PARTICIPANTS_MAX];
    bool planned = options->form != 0;
    if (!planned && (options->mbps != NULL || options->host_ranks > 1)) {
        return "--link-mbps and --host-ranks require --plan";
    }
    if (options->mbps != NULL && !parse_rates(options->mbps, ranks, bps)) {
        return "--link-mbps is a list of rates in Mbit/s, 1 to 10000000, at most one for each "
               "rank, such as 1000,1000,100";
    }
    return NULL;
}

bool weft_perf_plan_set(const struct weft_perf_plan_options *options,
                        struct weft_coll_thread *const *threads, uint32_t ranks, uint64_t bytes,
                        uint64_t timeout_ns, struct weft_collective_plan *planned_p,
                        struct weft_error *error)
{
    struct weft_coll_exchange *exchange[WEFT_PERF_PARTICIPANTS_MAX];
    uint64_t bps[WEFT_PERF_PARTICIPANTS_MAX] = {0};
    uint32_t begun = 0;
    bool good = options->mbps == NULL || parse_rates(options->mbps, ranks, bps);
    while (good && begun < ranks) {
        const struct weft_coll_thread_plan plan = {
            .form = (enum weft_collective_form)(options->form - 1),
            .bytes = bytes,
            .up_bps = bps[begun],
            .host = 1 + begun / options->host_ranks,
        };
        good = weft_coll_thread_plan_begin(threads[begun], &plan, ranks, timeout_ns,
                                           &exchange[begun], error) == WEFT_OK;
        begun += good;
    }
    for (uint32_t r = 0; r < begun; r++) {
        struct weft_error other;
        good &= weft_coll_thread_plan_end(threads[r], exchange[r], WEFT_NEVER, planned_p,
                                          good ? error : &other) == WEFT_OK;
    }
    return good;
}

static const char *made(const struct weft_collective_plan *planned)
{
    return planned->parts > 0 ? "trees" : "slices";
}

void weft_perf_plan_print(const struct weft_perf_plan_options *options,
                          const struct weft_collective_plan *planned, uint64_t bytes)
{
    if (options->form == 0) {
        return;
    }
    printf("plan: %s, %u parts, depth %u; predicted for %" PRIu64
           " bytes: equal slices %.3f ms, slices %.3f",
           made(planned), planned->parts, planned->depth, bytes, (double)planned->equal_ns / 1e6,
           (double)planned->slices_ns / 1e6);
    if (planned->trees_ns != WEFT_NEVER) {
        printf(", trees %.3f", (double)planned->trees_ns / 1e6);
    }
    printf("\n");
}

void weft_perf_plan_report(const struct weft_perf_plan_options *options,
                           const struct weft_collective_plan *planned, cJSON *root)
{
    bool planned_any = options->form != 0;
    cJSON_AddStringToObject(root, "plan", weft_perf_plan_forms[options->form]);
    weft_json_add_text(root, "planned", planned_any ? made(planned) : NULL);
    cJSON_AddNumberToObject(root, "plan_parts", planned->parts);
    cJSON_AddNumberToObject(root, "plan_depth", planned->depth);
}
