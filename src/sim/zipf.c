#include "sim/zipf.h"

#include <math.h>

enum { HEAD = 64, EXPONENT_MAX = 16 };

/* ---- calibration ----------------------------------------------------------------------------- */

/* Sum of k^-s for k in [HEAD, n]: the integral, half of each end, and the next two terms of
 * Euler-Maclaurin. From k = 64 on the third term is below 1e-12 of the sum. */
static double tail(uint64_t n, double s)
{
    double a = HEAD, b = (double)n;
    double integral = fabs(s - 1) < 1e-9 ? log(b / a) : (pow(b, 1 - s) - pow(a, 1 - s)) / (1 - s);
    double fa = pow(a, -s), fb = pow(b, -s);
    double first = -s * (fb / b - fa / a) / 12;
    double third = s * (s + 1) * (s + 2) * (fb / (b * b * b) - fa / (a * a * a)) / 720;
    return integral + (fa + fb) / 2 + first + third;
}

static double harmonic(uint64_t n, double s)
{
    double sum = 0;
    uint64_t head = n < HEAD ? n : HEAD - 1;
    for (uint64_t k = head; k > 0; k--) { /* smallest terms first */
        sum += pow((double)k, -s);
    }
    return n < HEAD ? sum : sum + tail(n, s);
}

double weft_zipf_share(uint64_t top, uint64_t keys, double exponent)
{
    return harmonic(top, exponent) / harmonic(keys, exponent);
}

weft_status weft_zipf_calibrate(uint64_t top, uint64_t keys, double share, double *exponent_p)
{
    if (top == 0 || top >= keys || !(share < 1) || share < (double)top / (double)keys) {
        return WEFT_INVALID;
    }
    double low = 0, high = EXPONENT_MAX; /* the share increases with the exponent */
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (weft_zipf_share(top, keys, middle) < share) {
            low = middle;
        } else {
            high = middle;
        }
    }
    *exponent_p = (low + high) / 2;
    return WEFT_OK;
}

/* ---- sampling -------------------------------------------------------------------------------- */

/* expm1(x) / x and log1p(x) / x, which are 1 at 0. With them the integral of x^-s needs no special
 * case for s = 1. */
static double expm1_by_x(double x)
{
    return fabs(x) > 1e-8 ? expm1(x) / x : 1 + x / 2;
}

static double log1p_by_x(double x)
{
    return fabs(x) > 1e-8 ? log1p(x) / x : 1 - x / 2;
}

static double density(const struct weft_zipf *zipf, double x)
{
    return exp(-zipf->exponent * log(x));
}

/* H of the paper: the integral of the density from 1 to x. */
static double integral(const struct weft_zipf *zipf, double x)
{
    double log_x = log(x);
    return expm1_by_x((1 - zipf->exponent) * log_x) * log_x;
}

static double integral_inverse(const struct weft_zipf *zipf, double area)
{
    double t = area * (1 - zipf->exponent);
    t = t < -1 ? -1 : t; /* rounding at the far end */
    return exp(log1p_by_x(t) * area);
}

weft_status weft_zipf_init(struct weft_zipf *zipf, uint64_t keys, double exponent, uint8_t id_bits,
                           uint64_t seed)
{
    if (keys == 0 || keys > UINT64_C(1) << 40 || (id_bits != 64 && id_bits != 32) ||
        (id_bits == 32 && keys > UINT64_C(1) << 32) || !(exponent >= 0) ||
        exponent > EXPONENT_MAX) {
        return WEFT_INVALID;
    }
    *zipf = (struct weft_zipf){
        .keys = keys, .exponent = exponent, .id_bits = id_bits, .salt = weft_mix64(seed ^ 0x5eed)};
    zipf->h_x1 = integral(zipf, 1.5) - 1;
    zipf->h_n = integral(zipf, (double)keys + 0.5);
    zipf->squeeze = 2 - integral_inverse(zipf, integral(zipf, 2.5) - density(zipf, 2));
    return WEFT_OK;
}

uint64_t weft_zipf_rank(const struct weft_zipf *zipf, struct weft_prng *prng)
{
    for (;;) {
        double uniform = (double)(weft_prng_u64(prng) >> 11) * 0x1p-53;
        double area = zipf->h_n + uniform * (zipf->h_x1 - zipf->h_n);
        double x = integral_inverse(zipf, area);
        double nearest = floor(x + 0.5);
        nearest = nearest < 1 ? 1 : nearest > (double)zipf->keys ? (double)zipf->keys : nearest;
        if (nearest - x <= zipf->squeeze ||
            area >= integral(zipf, nearest + 0.5) - density(zipf, nearest)) {
            return (uint64_t)nearest;
        }
    }
}

/* Every step is invertible, so different ranks stay different (the finalizer of MurmurHash3). */
static uint32_t mix32(uint32_t x)
{
    x ^= x >> 16;
    x *= UINT32_C(0x85ebca6b);
    x ^= x >> 13;
    x *= UINT32_C(0xc2b2ae35);
    return x ^ (x >> 16);
}

uint64_t weft_zipf_id(const struct weft_zipf *zipf, uint64_t rank)
{
    if (zipf->id_bits == 32) {
        return mix32((uint32_t)(rank - 1) ^ (uint32_t)zipf->salt);
    }
    return weft_mix64((rank - 1) ^ zipf->salt);
}
