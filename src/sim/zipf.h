/* Keys whose popularity falls by Zipf's law: rank k of n is drawn with probability k^-s / H(n, s).
 *
 * Calibrated from measurements instead of a given exponent: of 150 million keys the top 20,000
 * receive half of all updates ([imc20] section 4, Fig. 10; docs/papers.md on its sizes), which
 * determines s. Sampling takes constant time for any n and needs no table. A bijection scrambles
 * ranks into ids, so that popular keys are adjacent neither in a range nor in their low bits.
 *
 * Popularity does not change over time: every draw is independent of earlier ones.
 *
 * Source: [imc20] section 4; W. Hoermann, G. Derflinger, "Rejection-inversion to generate variates
 * from monotone discrete distributions", ACM TOMACS 6(3), 1996.
 */
#ifndef WEFT_SIM_ZIPF_H
#define WEFT_SIM_ZIPF_H

#include "base/prng.h"
#include "base/status.h"

struct weft_zipf {
    uint64_t keys;
    double exponent; /* 0 = all keys alike */
    uint8_t id_bits; /* 64 or 32 */
    uint64_t salt;   /* of the scrambling, from the seed */
    /* State of the sampler, with the paper's names. */
    double h_x1;
    double h_n;
    double squeeze;
};

/* Fraction of all draws that fall on the first `top` of `keys` ranks; top <= keys, exponent >= 0.
 * Exact to about 1e-12 (Euler-Maclaurin after an exact head). Cost: thousands of pow(). */
double weft_zipf_share(uint64_t top, uint64_t keys, double exponent);

/* The exponent for which the first `top` of `keys` ranks receive `share`, to 1e-9 of the share.
 * Errors:  WEFT_INVALID  top or keys is 0, top >= keys, or share is not in [top / keys, 1): below
 *          that range the popular keys would be less popular than the others. */
weft_status weft_zipf_calibrate(uint64_t top, uint64_t keys, double share, double *exponent_p);

/* Errors:  WEFT_INVALID  keys is 0 or above 2^40, id_bits is not 32 or 64, keys do not fit id_bits,
 *          or the exponent is not in [0, 16]. */
weft_status weft_zipf_init(struct weft_zipf *zipf, uint64_t keys, double exponent, uint8_t id_bits,
                           uint64_t seed);

/* Draw a rank, 1 .. keys. Cost: 1.1 uniform numbers on average, a few exp() and log(). */
uint64_t weft_zipf_rank(const struct weft_zipf *zipf, struct weft_prng *prng);

/* The id of a rank; different ranks have different ids. */
uint64_t weft_zipf_id(const struct weft_zipf *zipf, uint64_t rank);

#endif
