#include "ps/retired.h"

bool weft_retired_has(const struct weft_retired *retired, uint64_t incarnation)
{
    if (incarnation == 0) {
        return false;
    }
    for (uint32_t i = 0; i < WEFT_RETIRED_MAX; i++) {
        if (retired->incarnations[i] == incarnation) {
            return true;
        }
    }
    return incarnation <= retired->floor;
}

void weft_retired_add(struct weft_retired *retired, uint64_t incarnation)
{
    if (incarnation == 0 || weft_retired_has(retired, incarnation)) {
        return;
    }
    uint64_t *smallest = &retired->incarnations[0]; /* 0, which is free, is the smallest of all */
    for (uint32_t i = 1; i < WEFT_RETIRED_MAX; i++) {
        uint64_t *at = &retired->incarnations[i];
        smallest = *at < *smallest ? at : smallest;
    }
    uint64_t dropped = incarnation < *smallest ? incarnation : *smallest;
    retired->floor = dropped > retired->floor ? dropped : retired->floor;
    *smallest = incarnation > *smallest ? incarnation : *smallest;
}
