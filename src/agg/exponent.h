/* Fixed-point encoding of floats as int32: a value x is sent as q = x / 2^e, rounded, with one
 * exponent e per block. For workers and servers, which have floats; the box adds q and compares e.
 *
 * Choice. If no |x| is above `largest` and at most `adds` values are summed before a flush, then
 *
 *     e = the least with  adds x largest <= 2^30 x 2^e
 *
 * leaves one bit spare. Larger values are rejected, here (weft_agg_quantize) or in the box (its
 * sums overflow), and sent directly to the server; no value saturates.
 *
 * Error. Rounding is to nearest, so one value is off by at most 2^(e-1), and the sum of n values by
 * at most n x 2^(e-1). With the exponent chosen as above this is at most n x largest x adds x
 * 2^-30, unless e is EXPONENT_MIN. The box adds no error, and the result does not depend on the
 * order of packets. Integers below 2^31 are exact with e = 0, and with e < 0 as long as they fit.
 */
#ifndef WEFT_AGG_EXPONENT_H
#define WEFT_AGG_EXPONENT_H

#include "agg/add.h"

/* 2^e, exact, e from -1022 to 1023. */
static inline double weft_agg_power(int e)
{
    uint64_t bits = (uint64_t)(1023 + e) << 52;
    double power;
    __builtin_memcpy(&power, &bits, sizeof(power));
    return power;
}

/* The exponent for sums of `adds` values of at most `largest` each. Returns EXPONENT_MAX if even
 * that is too small; values may then be rejected. `largest` must not be negative; a `largest` that
 * is not finite gives EXPONENT_MAX. */
static inline int8_t weft_agg_exponent(float largest, uint32_t adds)
{
    double need = (double)largest * adds;
    uint64_t bits;
    __builtin_memcpy(&bits, &need, sizeof(bits));
    /* need >= 2^log, except for 0; so no smaller exponent will do. */
    int log = (int)(bits >> 52 & 0x7ff) - 1023;
    int e = log - 30 > WEFT_AGG_EXPONENT_MIN ? log - 30 : WEFT_AGG_EXPONENT_MIN;
    while (e < WEFT_AGG_EXPONENT_MAX && !(need <= 0x1p30 * weft_agg_power(e))) {
        e++;
    }
    return (int8_t)(e < WEFT_AGG_EXPONENT_MAX ? e : WEFT_AGG_EXPONENT_MAX);
}

/* Round x / 2^e to the nearest integer, ties to even. Returns false, and writes nothing, if the
 * result does not fit int32 or x is not finite. */
static inline bool weft_agg_quantize(float x, int8_t e, int32_t *q_p)
{
    double scaled = (double)x * weft_agg_power(-e);
    if (!(scaled >= -0x1p31 && scaled <= 0x1p31 - 1)) {
        return false;
    }
    /* Adding 1.5 x 2^52 leaves no mantissa bits for a fraction. */
    double rounded = scaled + 0x1.8p52;
    *q_p = (int32_t)(rounded - 0x1.8p52);
    return true;
}

/* Convert back; exact in double. */
static inline double weft_agg_value(int32_t q, int8_t e)
{
    return q * weft_agg_power(e);
}

/* Upper bound of the error of a sum of n values. */
static inline double weft_agg_error_bound(uint32_t n, int8_t e)
{
    return n * weft_agg_power(e - 1);
}

#endif
