#include "core/misses.h"

#include "base/assert.h"
#include "base/bits.h"

#include <stdlib.h>
#include <string.h>

weft_status weft_misses_init(struct weft_misses *misses, uint32_t chunks_max, uint8_t limit)
{
    WEFT_ASSERT(limit >= 1 && chunks_max >= 1);
    *misses = (struct weft_misses){.chunks_max = chunks_max, .limit = limit};
    misses->counts = calloc(chunks_max, sizeof(*misses->counts));
    misses->mask = calloc(WEFT_BITS_WORDS((size_t)chunks_max), sizeof(*misses->mask));
    if (misses->counts == NULL || misses->mask == NULL) {
        weft_misses_fini(misses);
        return WEFT_NOMEM;
    }
    return WEFT_OK;
}

void weft_misses_fini(struct weft_misses *misses)
{
    free(misses->counts);
    free(misses->mask);
    *misses = (struct weft_misses){0};
}

void weft_misses_note(struct weft_misses *misses, const uint64_t *mask, uint32_t chunks)
{
    WEFT_ASSERT(chunks <= misses->chunks_max);
    if (chunks != misses->chunks) {
        memset(misses->counts, 0, misses->chunks_max);
        misses->chunks = chunks;
    }
    memset(misses->mask, 0, WEFT_BITS_WORDS((size_t)chunks) * sizeof(*misses->mask));
    for (uint32_t i = 0; i < chunks; i++) {
        if (weft_bits_test(mask, i)) {
            misses->counts[i] = 0;
        } else if (misses->counts[i] < misses->limit) {
            misses->counts[i]++;
        }
        if (misses->counts[i] >= misses->limit) {
            weft_bits_set(misses->mask, i);
        }
    }
}

const uint64_t *weft_misses_critical(const struct weft_misses *misses, uint32_t chunks)
{
    if (chunks != misses->chunks ||
        weft_bits_next_one(misses->mask, misses->chunks, 0) == misses->chunks) {
        return NULL;
    }
    return misses->mask;
}
