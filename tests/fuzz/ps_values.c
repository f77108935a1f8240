/* Blocks of gradients from any bytes: they are refused, or each block extracted alone decodes to
 * the same values. Blocks encoded from any floats can be decoded, and the remainder is a float32.
 * The first bytes are the type and the block length. */
#include "base/assert.h"
#include "ps/values.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool same(float a, float b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Each in memory of exact size, so that a sanitizer detects accesses beyond. */
static void read_any(uint8_t type, uint32_t floats, const uint8_t *data, size_t size)
{
    const size_t blocks = weft_blocks_within(type, floats, size);
    const size_t bytes = weft_blocks_bytes(type, floats, blocks);
    const size_t one_bytes = weft_blocks_bytes(type, floats, 1);
    WEFT_ASSERT(bytes <= size);
    uint8_t *from = malloc(bytes + 1), *one = malloc(one_bytes);
    float *all = malloc(blocks * floats * sizeof(*all) + 1),
          *alone = malloc(floats * sizeof(*alone));
    WEFT_ASSERT(from != NULL && one != NULL && all != NULL && alone != NULL);
    memcpy(from, data, bytes);
    bool good = weft_blocks_load(type, floats, from, blocks, all);
    for (size_t b = 0; good && b < blocks; b++) {
        weft_blocks_take(type, floats, from, b, one);
        WEFT_ASSERT(weft_blocks_load(type, floats, one, 1, alone));
        for (uint32_t i = 0; i < floats; i++) {
            WEFT_ASSERT(same(alone[i], all[b * floats + i]));
        }
    }
    free(from);
    free(one);
    free(all);
    free(alone);
}

static void write_any(uint8_t type, uint32_t floats, const uint8_t *data, size_t size)
{
    const size_t blocks = size / sizeof(float) / floats, values = blocks * floats;
    const size_t bytes = weft_blocks_bytes(type, floats, blocks);
    float *from = malloc(values * sizeof(*from) + 1), *back = malloc(values * sizeof(*back) + 1);
    uint8_t *out = malloc(bytes + 1);
    WEFT_ASSERT(from != NULL && back != NULL && out != NULL);
    memcpy(from, data, values * sizeof(*from));
    weft_blocks_store(type, floats, from, blocks, out);
    WEFT_ASSERT(weft_blocks_load(type, floats, out, blocks, back));
    for (size_t i = 0; i < values; i++) {
        WEFT_ASSERT(isfinite(from[i]) == isfinite(back[i]));
        const double rest = (double)from[i] - (double)back[i];
        WEFT_ASSERT(!isfinite(from[i]) || rest == (double)(from[i] - back[i]));
    }
    free(from);
    free(back);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    const uint8_t type = data[0] % (WEFT_VALUE_INT8 + 1);
    const uint32_t floats = data[1] + 1U;
    read_any(type, floats, data + 2, size - 2);
    write_any(type, floats, data + 2, size - 2);
    return 0;
}
