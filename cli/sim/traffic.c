#include "cli/sim/traffic.h"

#include "lab/background.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static bool number(const char **text, char end, uint32_t *value_p)
{
    char *after = NULL;
    if (**text < '0' || **text > '9') {
        return false;
    }
    unsigned long value = strtoul(*text, &after, 10);
    if (value >= WEFT_NET_HOSTS_MAX || (*after != end && *after != '\0')) {
        return false;
    }
    *value_p = (uint32_t)value;
    *text = after;
    return true;
}

const char *weft_sim_pairs_parse(const char *text, void *value)
{
    static const char allowed[] = "up to 16 pairs FROM-TO of different hosts, with commas between";
    struct weft_sim_pairs *pairs = value;
    pairs->count = 0;
    for (;;) {
        uint32_t i = pairs->count;
        if (i == WEFT_SIM_PAIRS_MAX || !number(&text, '-', &pairs->from[i]) || *text++ != '-' ||
            !number(&text, ',', &pairs->to[i]) || pairs->from[i] == pairs->to[i]) {
            return allowed;
        }
        pairs->count++;
        if (*text++ == '\0') {
            return NULL;
        }
    }
}

const char *weft_sim_traffic_open(struct weft_sim_traffic *traffic, uint32_t hosts,
                                  uint64_t rate_bps, uint64_t seed)
{
    static char wrong[96];
    static struct weft_error error;
    for (uint32_t i = 0; i < traffic->pairs.count; i++) {
        if (traffic->pairs.from[i] >= hosts || traffic->pairs.to[i] >= hosts) {
            snprintf(wrong, sizeof(wrong),
                     "--flows: %" PRIu32 "-%" PRIu32 ": the hosts are 0 to %" PRIu32,
                     traffic->pairs.from[i], traffic->pairs.to[i], hosts - 1);
            return wrong;
        }
    }
    uint32_t load_ppm = 0;
    if (traffic->background == NULL) {
        return NULL;
    }
    if (weft_background_parse(traffic->background, &traffic->sizes, &load_ppm, &error) != WEFT_OK) {
        return error.text;
    }
    weft_flow_plan_init(&traffic->plan, &traffic->sizes, hosts, rate_bps, load_ppm, seed);
    return NULL;
}

bool weft_sim_traffic_any(const struct weft_sim_traffic *traffic)
{
    return traffic->pairs.count > 0 || traffic->background != NULL;
}

bool weft_sim_traffic_next(void *self, struct weft_reno_flow *flow_p)
{
    struct weft_sim_traffic *traffic = self;
    if (traffic->next < traffic->pairs.count) {
        uint32_t i = traffic->next++;
        *flow_p = (struct weft_reno_flow){.from = traffic->pairs.from[i],
                                          .to = traffic->pairs.to[i]};
        return true;
    }
    if (traffic->background == NULL) {
        return false;
    }
    struct weft_flow_arrival arrival;
    weft_flow_plan_next(&traffic->plan, &arrival);
    *flow_p = (struct weft_reno_flow){arrival.at_ns, arrival.bytes, arrival.source,
                                      arrival.destination};
    return true;
}
