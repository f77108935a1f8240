#include "cli/box_report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

const char *weft_box_parse_exponent(const char *text, void *value)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || number < -126 || number > 127) {
        return "a number from -126 to 127";
    }
    *(int32_t *)value = (int32_t)number;
    return NULL;
}

uint64_t weft_box_members(uint32_t count)
{
    return UINT64_MAX >> (WEFT_AGG_MEMBERS_MAX - count);
}

static uint32_t count_members(uint64_t members)
{
    return (uint32_t)__builtin_popcountll(members);
}

void weft_box_report_json(cJSON *object, const struct weft_aggregate_facts *facts,
                          const struct weft_aggregate_counts *counts)
{
    cJSON_AddNumberToObject(object, "port", facts->port);
    cJSON_AddNumberToObject(object, "members", count_members(facts->config.members));
    cJSON_AddNumberToObject(object, "job", facts->config.job);
    cJSON_AddNumberToObject(object, "epoch", facts->config.dense_epoch);
    cJSON_AddNumberToObject(object, "exponent", facts->config.exponent);
    cJSON_AddNumberToObject(object, "slots", facts->config.slots);
    cJSON_AddNumberToObject(object, "program", facts->program);
    cJSON *packets = cJSON_AddObjectToObject(object, "packets");
    for (int v = 0; v < WEFT_AGG_VERDICTS; v++) {
        cJSON_AddNumberToObject(packets, weft_aggregate_verdict_names[v],
                                (double)counts->box.packets[v]);
    }
    cJSON_AddNumberToObject(object, "values", (double)counts->box.values);
    cJSON_AddNumberToObject(object, "rounds_void", (double)counts->box.voided);
    cJSON_AddNumberToObject(object, "members_moved", (double)counts->moved);
    cJSON_AddNumberToObject(object, "replies_unnoted", (double)counts->unnoted);
}

static unsigned long long sum_of(const struct weft_agg_counts *counts, int first, int last)
{
    unsigned long long sum = 0;
    for (int v = first; v <= last; v++) {
        sum += counts->packets[v];
    }
    return sum;
}

bool weft_box_report_print(const char *verb, const struct weft_aggregate_counts *all)
{
    const struct weft_agg_counts *counts = &all->box;
    const uint64_t *packets = counts->packets;
    printf("packets added: %llu; rounds complete: %llu, of them void: %llu; values added: %llu\n"
           "duplicates: %llu answered with the sum, %llu of open rounds; dropped: %llu of past or "
           "future rounds, %llu of other epochs, %llu of other jobs, members or slots, %llu "
           "malformed\n",
           (unsigned long long)(packets[WEFT_AGG_SUMMED] + packets[WEFT_AGG_COMPLETE]),
           (unsigned long long)packets[WEFT_AGG_COMPLETE], (unsigned long long)counts->voided,
           (unsigned long long)counts->values, (unsigned long long)packets[WEFT_AGG_RESULT],
           (unsigned long long)packets[WEFT_AGG_WAITING],
           sum_of(counts, WEFT_AGG_STALE, WEFT_AGG_EARLY),
           (unsigned long long)packets[WEFT_AGG_EPOCH],
           (unsigned long long)packets[WEFT_AGG_FOREIGN],
           (unsigned long long)packets[WEFT_AGG_MALFORMED]);
    if (all->moved > 0) {
        printf("members that moved within an epoch: %llu times; do two processes have one rank?\n",
               (unsigned long long)all->moved);
    }
    if (all->unnoted > 0) {
        printf("replies to their sender alone, as a driver has no XDP metadata: %llu; use generic "
               "mode\n",
               (unsigned long long)all->unnoted);
    }
    bool good = ferror(stdout) == 0 && fflush(stdout) == 0;
    if (!good) {
        fprintf(stderr, "weft %s: cannot write the report on standard output\n", verb);
    }
    return good;
}
