/* Pure functions over the mask of a message: gaps, residuals of error feedback, counts of
 * consecutive misses, contribution counts.
 *
 * Source: [apnet19] section 3.2 (the receiver reports the missing ranges to the application);
 * docs/PROTOCOL.md section 6, rules 6 and 7; docs/API.md.
 */
#include "base/assert.h"
#include "base/bits.h"

#include <string.h>
#include <weft/transport.h>

/* First element of a chunk; `elements` for the one after the last. */
static uint32_t chunk_first(const struct weft_mask *mask, size_t chunk)
{
    return (uint32_t)weft_min_u64((uint64_t)chunk * mask->chunk_elems, mask->elements);
}

bool weft_mask_gap(const struct weft_mask *mask, uint32_t from, uint32_t *first_p,
                   uint32_t *count_p)
{
    if (from >= mask->elements) {
        return false;
    }
    size_t chunk = weft_bits_next_zero(mask->bits, mask->chunks, from / mask->chunk_elems);
    if (chunk == mask->chunks) {
        return false;
    }
    size_t end = weft_bits_next_one(mask->bits, mask->chunks, chunk);
    uint32_t first = chunk_first(mask, chunk);
    first = first < from ? from : first;
    *count_p = chunk_first(mask, end) - first;
    *first_p = first;
    return true;
}

uint32_t weft_mask_missing(const struct weft_mask *mask)
{
    uint32_t missing = 0;
    uint32_t first;
    uint32_t count;
    for (uint32_t at = 0; weft_mask_gap(mask, at, &first, &count); at = first + count) {
        missing += count;
    }
    return missing;
}

/* ---- error feedback -------------------------------------------------------------------------- */

void weft_residual_add(const float *residual, float *vector, uint32_t elements)
{
    for (uint32_t i = 0; i < elements; i++) {
        vector[i] += residual[i];
    }
}

weft_status weft_residual_keep(float *residual, const float *vector, const struct weft_mask *mask)
{
    if (mask->elem_bytes != sizeof(float)) {
        return WEFT_INVALID;
    }
    memset(residual, 0, mask->elements * sizeof(*residual));
    uint32_t first;
    uint32_t count;
    for (uint32_t at = 0; weft_mask_gap(mask, at, &first, &count); at = first + count) {
        memcpy(residual + first, vector + first, count * sizeof(*residual));
    }
    return WEFT_OK;
}

/* ---- grains ---------------------------------------------------------------------------------- */

size_t weft_grains(uint32_t elements)
{
    return (size_t)weft_div_ceil_u64(elements, WEFT_GRAIN);
}

static bool splits_grains(const struct weft_mask *mask)
{
    return mask->chunk_elems % WEFT_GRAIN != 0 && mask->chunks > 1;
}

weft_status weft_missed_note(uint8_t *missed, const struct weft_mask *mask)
{
    if (splits_grains(mask)) {
        return WEFT_INVALID;
    }
    for (size_t chunk = 0; chunk < mask->chunks; chunk++) {
        bool here = weft_bits_test(mask->bits, chunk);
        size_t end = weft_grains(chunk_first(mask, chunk + 1));
        for (size_t g = chunk_first(mask, chunk) / WEFT_GRAIN; g < end; g++) {
            missed[g] = here ? 0 : (uint8_t)(missed[g] + (missed[g] < UINT8_MAX));
        }
    }
    return WEFT_OK;
}

uint32_t weft_missed_ranges(const uint8_t *missed, uint32_t elements, uint8_t limit,
                            struct weft_range *ranges_p, uint32_t ranges_max)
{
    WEFT_ASSERT(limit >= 1 && ranges_max >= 1);
    uint32_t count = 0;
    for (uint32_t g = 0; g < weft_grains(elements); g++) {
        if (missed[g] < limit) {
            continue;
        }
        uint32_t first = g * WEFT_GRAIN;
        uint32_t end = (uint32_t)weft_min_u64((uint64_t)first + WEFT_GRAIN, elements);
        struct weft_range *last = count > 0 ? &ranges_p[count - 1] : NULL;
        if (last != NULL && (last->first + last->count == first || count == ranges_max)) {
            last->count = end - last->first;
        } else {
            ranges_p[count++] = (struct weft_range){.first = first, .count = end - first};
        }
    }
    return count;
}

/* ---- contribution counts --------------------------------------------------------------------- */

weft_status weft_counts_add(uint16_t *counts, const struct weft_mask *mask)
{
    if (splits_grains(mask)) {
        return WEFT_INVALID;
    }
    for (size_t chunk = weft_bits_next_one(mask->bits, mask->chunks, 0); chunk < mask->chunks;
         chunk = weft_bits_next_one(mask->bits, mask->chunks, chunk + 1)) {
        size_t grain = chunk_first(mask, chunk) / WEFT_GRAIN;
        size_t end = weft_grains(chunk_first(mask, chunk + 1));
        for (; grain < end; grain++) {
            WEFT_ASSERT(counts[grain] < UINT16_MAX);
            counts[grain]++;
        }
    }
    return WEFT_OK;
}

void weft_counts_divide(const uint16_t *counts, float *values, uint32_t elements)
{
    for (uint32_t i = 0; i < elements; i++) {
        uint16_t count = counts[i / WEFT_GRAIN];
        if (count > 1) {
            values[i] /= (float)count;
        }
    }
}
