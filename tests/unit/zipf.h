/* Zipf draws for tests, exact: rank k of n with probability proportional to k^-s, by rejection
 * inversion. Independent of the load generator, so that the two can be compared.
 *
 * Source: W. Hoermann and G. Derflinger, "Rejection-inversion to generate variates from monotone
 * discrete distributions", ACM TOMACS 6(3), 1996. */
#ifndef WEFT_TEST_ZIPF_H
#define WEFT_TEST_ZIPF_H

#include "base/prng.h"

#include <math.h>

struct zipf {
    double s;
    double n;
    double h_first;
    double h_last;
};

/* Integral of x^-s from 1. */
static inline double zipf_h(double s, double x)
{
    double t = (1 - s) * log(x);
    return fabs(t) < 1e-12 ? log(x) : expm1(t) / (1 - s);
}

static inline double zipf_h_inverse(double s, double y)
{
    double t = (1 - s) * y;
    return fabs(t) < 1e-12 ? exp(y) : exp(log1p(t) / (1 - s));
}

static inline struct zipf zipf_make(double s, uint64_t n)
{
    return (struct zipf){
        .s = s,
        .n = (double)n,
        .h_first = zipf_h(s, 1.5) - 1,
        .h_last = zipf_h(s, (double)n + 0.5),
    };
}

/* A rank in [1, n]. */
static inline uint64_t zipf_draw(const struct zipf *zipf, struct weft_prng *prng)
{
    for (;;) {
        double u = (double)(weft_prng_u64(prng) >> 11) * 0x1p-53;
        double y = zipf->h_last + u * (zipf->h_first - zipf->h_last);
        double x = zipf_h_inverse(zipf->s, y);
        double k = floor(x + 0.5);
        k = k < 1 ? 1 : k > zipf->n ? zipf->n : k;
        if (y >= zipf_h(zipf->s, k + 0.5) - pow(k, -zipf->s)) {
            return (uint64_t)k;
        }
    }
}

/* Sum of k^-s for k = 1 to n: the first terms, then Euler and Maclaurin's formula. */
static inline double zipf_sum(double s, uint64_t n)
{
    uint64_t first = n < 100 ? n : 100;
    double sum = 0;
    for (uint64_t k = 1; k < first; k++) {
        sum += pow((double)k, -s);
    }
    double a = (double)first, b = (double)n;
    return sum + zipf_h(s, b) - zipf_h(s, a) + (pow(a, -s) + pow(b, -s)) / 2 +
           s * (pow(a, -s - 1) - pow(b, -s - 1)) / 12;
}

/* The exponent for which the first `top` of n ranks have `share`. */
static inline double zipf_exponent(uint64_t top, uint64_t n, double share)
{
    double low = 0.01, high = 3;
    for (int i = 0; i < 60; i++) {
        double s = (low + high) / 2;
        if (zipf_sum(s, top) / zipf_sum(s, n) < share) {
            low = s;
        } else {
            high = s;
        }
    }
    return low;
}

#endif
