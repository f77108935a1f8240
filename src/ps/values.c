#include "ps/values.h"

void weft_values_store(uint8_t type, const float *from, size_t count, void *out)
{
    uint8_t *restrict to = out;
    if (type == WEFT_VALUE_FLOAT32) {
        memcpy(to, from, count * sizeof(*from));
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const uint16_t half = weft_bf16_store(from[i]);
        memcpy(to + i * sizeof(half), &half, sizeof(half));
    }
}

void weft_values_load(uint8_t type, const void *from, size_t count, float *out)
{
    const uint8_t *restrict at = from;
    if (type == WEFT_VALUE_FLOAT32) {
        memcpy(out, at, count * sizeof(*out));
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, at + i * sizeof(half), sizeof(half));
        out[i] = weft_bf16_load(half);
    }
}
