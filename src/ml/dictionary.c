#include "ml/dictionary.h"

#include "base/prng.h"

#include <stdlib.h>

enum { SLOTS_MIN = 1024 };

static const uint32_t count_max = UINT32_C(1) << 31;

/* The slot with the id, or the free slot for it. */
static uint64_t slot_of(const struct weft_ml_dictionary *dictionary, uint64_t id)
{
    uint64_t mask = dictionary->slot_count - 1;
    uint64_t slot = weft_mix64(id) & mask;
    while (dictionary->slots[slot] != 0 && dictionary->ids[dictionary->slots[slot] - 1] != id) {
        slot = (slot + 1) & mask;
    }
    return slot;
}

static weft_status grow_slots(struct weft_ml_dictionary *dictionary)
{
    uint64_t slot_count = weft_max_u64(dictionary->slot_count * 2, SLOTS_MIN);
    uint32_t *slots = calloc(slot_count, sizeof(*slots));
    if (slots == NULL) {
        return WEFT_NOMEM;
    }
    free(dictionary->slots);
    dictionary->slots = slots;
    dictionary->slot_count = slot_count;
    for (uint32_t number = 0; number < dictionary->count; number++) {
        slots[slot_of(dictionary, dictionary->ids[number])] = number + 1;
    }
    return WEFT_OK;
}

static weft_status grow_ids(struct weft_ml_dictionary *dictionary)
{
    uint32_t capacity = (uint32_t)weft_max_u64((uint64_t)dictionary->ids_capacity * 2, SLOTS_MIN);
    uint64_t *ids = realloc(dictionary->ids, capacity * sizeof(*ids));
    if (ids == NULL) {
        return WEFT_NOMEM;
    }
    dictionary->ids = ids;
    dictionary->ids_capacity = capacity;
    return WEFT_OK;
}

static weft_status reserve(struct weft_ml_dictionary *dictionary)
{
    if (dictionary->count == count_max) {
        return WEFT_NOMEM;
    }
    weft_status status = WEFT_OK;
    if ((uint64_t)dictionary->count * 2 >= dictionary->slot_count) {
        status = grow_slots(dictionary);
    }
    if (status == WEFT_OK && dictionary->count == dictionary->ids_capacity) {
        status = grow_ids(dictionary);
    }
    return status;
}

weft_status weft_ml_dictionary_number(struct weft_ml_dictionary *dictionary, uint64_t id,
                                      uint32_t *number_p)
{
    if (dictionary->slot_count > 0) {
        uint32_t found = dictionary->slots[slot_of(dictionary, id)];
        if (found != 0) {
            *number_p = found - 1;
            return WEFT_OK;
        }
    }
    weft_status status = reserve(dictionary);
    if (status != WEFT_OK) {
        return status;
    }
    dictionary->ids[dictionary->count] = id;
    dictionary->slots[slot_of(dictionary, id)] = dictionary->count + 1;
    *number_p = dictionary->count;
    dictionary->count++;
    return WEFT_OK;
}

void weft_ml_dictionary_fini(struct weft_ml_dictionary *dictionary)
{
    free(dictionary->ids);
    free(dictionary->slots);
    *dictionary = (struct weft_ml_dictionary){0};
}
