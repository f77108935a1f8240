/* Synthetic sets with a known optimum, in the layout of MovieLens: every user and every item has a
 * planted weight and planted factors, and a row is drawn from
 *
 *     ratings   2.5 + w_u + w_i + <p_u, p_i> + noise, noise uniform in [-0.4, 0.4): no model has a
 *               test RMSE below the noise's, 0.4 / sqrt(3) = 0.2309, except by chance; one without
 *               factors stays above about 0.38
 *     clicks    rating 5 with probability sigmoid(w_u + w_i + <p_u, p_i>), else 1: no model ranks
 *               better than the planted margin itself, which comes with the set
 *
 * The seed determines everything. For tests only.
 */
#ifndef WEFT_TESTS_PLANTED_H
#define WEFT_TESTS_PLANTED_H

#include "base/prng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    PLANTED_USERS = 300,
    PLANTED_ITEMS = 200,
    PLANTED_FACTORS = 2,
    PLANTED_ROWS = 40000,
    PLANTED_LINE_BYTES = 48,
};

#define PLANTED_NOISE      0.4
#define PLANTED_NOISE_RMSE 0.2309

struct planted {
    char *text; /* the file; free() */
    size_t bytes;
    float *margins; /* (PLANTED_ROWS,): margins without noise; free() */
};

static inline double planted_uniform(struct weft_prng *prng, double scale)
{
    return ((double)(weft_prng_u64(prng) >> 11) * 0x1p-52 - 1.0) * scale;
}

struct planted_feature {
    double weight;
    double factors[PLANTED_FACTORS];
};

static inline void planted_features(struct weft_prng *prng, double scale,
                                    struct planted_feature *features, int count)
{
    for (int i = 0; i < count; i++) {
        features[i].weight = planted_uniform(prng, 0.3);
        for (int f = 0; f < PLANTED_FACTORS; f++) {
            features[i].factors[f] = planted_uniform(prng, scale);
        }
    }
}

/* False: out of memory. */
static inline bool planted_make(uint64_t seed, bool is_clicks, struct planted *planted_p)
{
    static struct planted_feature users[PLANTED_USERS];
    static struct planted_feature items[PLANTED_ITEMS];
    struct planted made = {.text = malloc((size_t)PLANTED_ROWS * PLANTED_LINE_BYTES),
                           .margins = malloc(PLANTED_ROWS * sizeof(float))};
    if (made.text == NULL || made.margins == NULL) {
        return false;
    }
    struct weft_prng prng;
    weft_prng_init(&prng, seed);
    double scale = is_clicks ? 2.0 : 0.8;
    planted_features(&prng, scale, users, PLANTED_USERS);
    planted_features(&prng, scale, items, PLANTED_ITEMS);
    for (int r = 0; r < PLANTED_ROWS; r++) {
        int u = (int)weft_prng_below(&prng, PLANTED_USERS);
        int i = (int)weft_prng_below(&prng, PLANTED_ITEMS);
        double margin = users[u].weight + items[i].weight;
        for (int f = 0; f < PLANTED_FACTORS; f++) {
            margin += users[u].factors[f] * items[i].factors[f];
        }
        double noise = planted_uniform(&prng, 1.0); /* in [-1, 1) */
        double rating = 2.5 + margin + noise * PLANTED_NOISE;
        if (is_clicks) {
            rating = (noise + 1) / 2 < 1 / (1 + exp(-margin)) ? 5 : 1;
        }
        made.margins[r] = (float)margin;
        made.bytes += (size_t)snprintf(made.text + made.bytes, PLANTED_LINE_BYTES,
                                       "%d,%d,%.4f,%d\n", u + 1, i + 1, rating, r);
    }
    *planted_p = made;
    return true;
}

#endif
