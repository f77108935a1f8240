#include "ml/number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool weft_ml_number_u64(const char *text, size_t bytes, uint64_t *value_p)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (!is_digit(text[i]) || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(text[i] - '0'), &value)) {
            return false;
        }
    }
    if (bytes > 0) {
        *value_p = value;
    }
    return bytes > 0;
}

/* Accept only characters of a decimal number: strtof would also accept " 1", "0x1p3", "inf" and
 * "nan". */
static bool is_decimal(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (!is_digit(text[i]) && memchr("+-.eE", text[i], 5) == NULL) {
            return false;
        }
    }
    return bytes > 0 && bytes <= WEFT_ML_NUMBER_BYTES_MAX;
}

bool weft_ml_number_f32(const char *text, size_t bytes, float *value_p)
{
    if (bytes == 1 && is_digit(text[0])) {
        *value_p = (float)(text[0] - '0'); /* fast path for nearly all values of common files */
        return true;
    }
    if (!is_decimal(text, bytes)) {
        return false;
    }
    char copy[WEFT_ML_NUMBER_BYTES_MAX + 1];
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    /* In a locale with another decimal point strtof stops early: the number is rejected, never
     * misread. */
    char *end = NULL;
    float value = strtof(copy, &end);
    if (end != copy + bytes || !isfinite(value)) {
        return false;
    }
    *value_p = value;
    return true;
}
