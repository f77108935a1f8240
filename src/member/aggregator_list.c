#include "member/aggregator_list.h"

#include "base/prng.h"

#include <stdlib.h>
#include <string.h>

weft_status weft_aggregator_list_init(struct weft_aggregator_list *list)
{
    *list = (struct weft_aggregator_list){
        .entries = calloc(WEFT_MEMBER_AGGREGATORS_MAX, sizeof(*list->entries)),
        .addresses = calloc((size_t)WEFT_MEMBER_AGGREGATORS_MAX * WEFT_MEMBER_SPAN_MAX,
                            sizeof(*list->addresses)),
        .version = 1,
    };
    if (list->entries == NULL || list->addresses == NULL) {
        return WEFT_NOMEM;
    }
    for (uint32_t i = 0; i < WEFT_MEMBER_AGGREGATORS_MAX; i++) {
        list->entries[i].addresses = list->addresses + i * WEFT_MEMBER_SPAN_MAX;
    }
    return WEFT_OK;
}

void weft_aggregator_list_fini(struct weft_aggregator_list *list)
{
    free(list->entries);
    free(list->addresses);
}

/* ---- registered aggregators ------------------------------------------------------------------ */

static bool is_there(const struct weft_aggregator_entry *a,
                     const struct weft_member_request *request)
{
    return a->member == request->member && a->incarnation == request->incarnation;
}

bool weft_aggregator_list_knows(const struct weft_aggregator_list *list,
                                const struct weft_member_request *request)
{
    return is_there(&list->entries[request->rank], request);
}

uint16_t weft_aggregator_list_join(struct weft_aggregator_list *list,
                                   const struct weft_member_request *request, uint32_t shards,
                                   uint64_t *until_ns_p)
{
    struct weft_aggregator_entry *a = &list->entries[request->rank];
    if (request->count > 0 && request->count != shards) {
        return shards == 0 ? WEFT_MEMBER_SIZE_UNKNOWN : WEFT_MEMBER_OTHER_SHARDS;
    }
    if (a->member == request->member && request->incarnation < a->incarnation) {
        return WEFT_MEMBER_SUPERSEDED;
    }
    if (a->member != 0 && a->member != request->member) {
        *until_ns_p = a->until_ns;
        return WEFT_MEMBER_CLAIMED;
    }
    a->count = is_there(a, request) && request->count == 0 ? a->count : request->count;
    a->member = request->member;
    a->incarnation = request->incarnation;
    a->rack = request->rack;
    memcpy(a->addresses, request->addresses, request->count * sizeof(*a->addresses));
    list->version++;
    return WEFT_MEMBER_OK;
}

void weft_aggregator_list_renew(struct weft_aggregator_list *list, uint32_t number,
                                uint64_t until_ns)
{
    list->entries[number].until_ns = until_ns;
}

void weft_aggregator_list_remove(struct weft_aggregator_list *list, uint32_t number)
{
    list->entries[number].member = 0;
    list->entries[number].count = 0;
    list->version++;
}

/* ---- time ------------------------------------------------------------------------------------ */

void weft_aggregator_list_expire(struct weft_aggregator_list *list, uint64_t now_ns)
{
    for (uint32_t i = 0; i < WEFT_MEMBER_AGGREGATORS_MAX; i++) {
        if (list->entries[i].member != 0 && list->entries[i].until_ns <= now_ns) {
            weft_aggregator_list_remove(list, i);
        }
    }
}

uint64_t weft_aggregator_list_deadline(const struct weft_aggregator_list *list)
{
    uint64_t first_ns = WEFT_NEVER;
    for (uint32_t i = 0; i < WEFT_MEMBER_AGGREGATORS_MAX; i++) {
        const struct weft_aggregator_entry *a = &list->entries[i];
        first_ns = a->member != 0 ? weft_min_u64(first_ns, a->until_ns) : first_ns;
    }
    return first_ns;
}

/* ---- assignment to a member ------------------------------------------------------------------ */

/* May this aggregator be assigned to a member at this place? place 0: to any member. */
static bool serves(const struct weft_aggregator_entry *a, uint32_t rack)
{
    return a->member != 0 && a->count > 0 && (rack == 0 || a->rack == rack);
}

static uint32_t count_serving(const struct weft_aggregator_list *list, uint32_t rack)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < WEFT_MEMBER_AGGREGATORS_MAX; i++) {
        count += serves(&list->entries[i], rack);
    }
    return count;
}

static uint64_t version_of(const struct weft_aggregator_entry *a)
{
    uint64_t version = weft_mix64(a->member ^ weft_mix64(a->incarnation));
    for (uint32_t s = 0; s < a->count; s++) {
        uint64_t words[2];
        memcpy(words, a->addresses[s].ip, sizeof(words));
        version = weft_mix64(version ^ words[0] ^ weft_mix64(words[1]));
        version = weft_mix64(version ^ a->addresses[s].port);
    }
    return version | 1;
}

bool weft_aggregator_list_near(const struct weft_aggregator_list *list, uint32_t rank,
                               uint32_t rack, struct weft_member_reply *reply_p)
{
    const uint32_t aggregator = rack != 0 ? count_serving(list, rack) : 0;
    const uint32_t count = aggregator > 0 ? aggregator : count_serving(list, 0);
    if (count == 0) {
        return false;
    }
    uint32_t skip = rank % count, i = 0;
    while (!serves(&list->entries[i], aggregator > 0 ? rack : 0) || skip-- > 0) {
        i++;
    }
    const struct weft_aggregator_entry *a = &list->entries[i];
    reply_p->rank = i;
    reply_p->count = a->count;
    reply_p->version = version_of(a);
    memcpy(reply_p->addresses, a->addresses, a->count * sizeof(*a->addresses));
    return true;
}
