#include "cli/server/deaths.h"

#include "io/clock.h"
#include "job/channel.h"

#include <string.h>

static const char *const names[] = {
    [WEFT_DEATH_WAIT] = "wait", [WEFT_DEATH_SHRINK] = "shrink", [WEFT_DEATH_FAIL] = "fail"};

const char *weft_deaths_parse(const char *text, void *value)
{
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(names); i++) {
        if (strcmp(text, names[i]) == 0) {
            *(enum weft_worker_death *)value = (enum weft_worker_death)i;
            return NULL;
        }
    }
    return "wait, shrink or fail";
}

const char *weft_deaths_name(enum weft_worker_death death)
{
    return names[death];
}

cJSON *weft_deaths_event(uint32_t rank)
{
    cJSON *event = weft_channel_event("worker-died");
    cJSON_AddNumberToObject(event, "rank", rank);
    /* The clock is the host's, so the server on this host has the same one. */
    cJSON_AddNumberToObject(event, "at_ns", (double)weft_clock_now_ns());
    return event;
}

bool weft_deaths_take(const cJSON *message, uint32_t *rank_p, uint64_t *at_ns_p)
{
    if (strcmp(weft_channel_text(message, "event"), "worker-died") != 0) {
        return false;
    }
    *rank_p = (uint32_t)weft_channel_number(message, "rank");
    *at_ns_p = (uint64_t)weft_channel_number(message, "at_ns");
    return true;
}
