/* Strict parsing of numbers in text that is not terminated. Decimal only: no hexadecimal, no "inf"
 * or "nan", no surrounding blanks, no trailing bytes.
 */
#ifndef WEFT_ML_NUMBER_H
#define WEFT_ML_NUMBER_H

#include "base/units.h"

#include <stdbool.h>

enum { WEFT_ML_NUMBER_BYTES_MAX = 63 };

/* Digits only; false if it is empty, has another character, or exceeds UINT64_MAX. */
bool weft_ml_number_u64(const char *text, size_t bytes, uint64_t *value_p);

/* [+-] digits [. digits] [e [+-] digits], to the nearest float32; false if it has another form,
 * is longer than WEFT_ML_NUMBER_BYTES_MAX, or is not finite as a float32. */
bool weft_ml_number_f32(const char *text, size_t bytes, float *value_p);

#endif
