#include "ml/lda.h"

#include "base/assert.h"
#include "base/prng.h"
#include "ml/docword.h"
#include "ml/kinds.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NO_TOPIC = UINT8_MAX, TOPICS_MAX = WEFT_ML_FACTORS_MAX };
static_assert((int)TOPICS_MAX <= (int)NO_TOPIC, "topics are numbered below it");

struct weft_ml_lda {
    uint64_t seed;
    uint64_t *token_begin; /* (row_count + 1,): tokens of document r, word by word */
    uint8_t *topics;       /* (token_count,) */
    uint32_t *draws;       /* (row_count,): how many times the document was drawn */
};

static uint64_t tokens_of(const struct weft_ml_dataset *set, uint32_t row)
{
    uint64_t tokens = 0;
    for (uint64_t i = set->row_begin[row]; i + 1 < set->row_begin[row + 1]; i++) {
        tokens += (uint64_t)set->values[i];
    }
    return tokens;
}

uint64_t weft_ml_lda_tokens(const struct weft_ml_dataset *dataset, bool is_test)
{
    const uint32_t *rows = is_test ? dataset->test_rows : dataset->train_rows;
    uint32_t count = is_test ? dataset->test_count : dataset->train_count;
    uint64_t tokens = 0;
    for (uint32_t r = 0; r < count; r++) {
        tokens += tokens_of(dataset, rows[r]);
    }
    return tokens;
}

weft_status weft_ml_lda_new(const struct weft_ml_dataset *dataset, uint64_t seed,
                            struct weft_ml_lda **lda_p)
{
    uint64_t tokens = weft_ml_lda_tokens(dataset, false) + weft_ml_lda_tokens(dataset, true);
    if (!dataset->has_counts || tokens > WEFT_ML_DOCWORD_COUNT_MAX) {
        return WEFT_INVALID;
    }
    struct weft_ml_lda *lda = calloc(1, sizeof(*lda));
    if (lda == NULL) {
        return WEFT_NOMEM;
    }
    lda->seed = seed;
    lda->token_begin = calloc((size_t)dataset->row_count + 1, sizeof(*lda->token_begin));
    lda->topics = malloc(weft_max_u64(tokens, 1));
    lda->draws = calloc(dataset->row_count, sizeof(*lda->draws));
    if (lda->token_begin == NULL || lda->topics == NULL || lda->draws == NULL) {
        weft_ml_lda_free(lda);
        return WEFT_NOMEM;
    }
    for (uint32_t r = 0; r < dataset->row_count; r++) {
        lda->token_begin[r + 1] = lda->token_begin[r] + tokens_of(dataset, r);
    }
    memset(lda->topics, NO_TOPIC, tokens);
    *lda_p = lda;
    return WEFT_OK;
}

void weft_ml_lda_free(struct weft_ml_lda *lda)
{
    if (lda != NULL) {
        free(lda->token_begin);
        free(lda->topics);
        free(lda->draws);
        free(lda);
    }
}

/* Draw a topic in proportion to weights; *sum_p is their sum. */
static uint32_t draw(const double *weights, uint32_t count, struct weft_prng *prng, double *sum_p)
{
    double sum = 0;
    for (uint32_t k = 0; k < count; k++) {
        sum += weights[k];
    }
    double left = sum * ((double)(weft_prng_u64(prng) >> 11) * 0x1p-53);
    uint32_t topic = 0;
    while (topic + 1 < count && left >= weights[topic]) {
        left -= weights[topic++];
    }
    *sum_p = sum;
    return topic;
}

/* ---- training -------------------------------------------------------------------------------- */

/* The distribution from which a document's tokens are drawn. */
struct document {
    const struct weft_ml_model *model;
    const float *totals;       /* (dim,) as pulled */
    float *totals_changed;     /* (dim,) */
    double topics[TOPICS_MAX]; /* tokens of the document with each topic */
    double tokens;             /* tokens that have a topic */
    struct weft_prng prng;
};

static double at_least_0(double count)
{
    return count > 0 ? count : 0;
}

/* Draw a topic for one token of a word; returns the logarithm of its probability. */
static double draw_token(struct document *document, const float *word, float *word_changed,
                         uint8_t *topic_p)
{
    const struct weft_ml_model_settings *settings = &document->model->settings;
    uint32_t dim = document->model->dim;
    double weights[TOPICS_MAX], sum;
    if (*topic_p != NO_TOPIC) {
        word_changed[*topic_p] -= 1;
        document->totals_changed[*topic_p] -= 1;
        document->topics[*topic_p] -= 1;
        document->tokens -= 1;
    }
    double beta = (double)settings->beta, all = document->model->words * beta;
    for (uint32_t k = 0; k < dim; k++) {
        double of_word = at_least_0((double)word[k] + (double)word_changed[k]);
        double of_topic =
            at_least_0((double)document->totals[k] + (double)document->totals_changed[k]);
        weights[k] =
            (document->topics[k] + (double)settings->alpha) * (of_word + beta) / (of_topic + all);
    }
    uint32_t topic = draw(weights, dim, &document->prng, &sum);
    double given = sum / (document->tokens + dim * (double)settings->alpha);
    word_changed[topic] += 1;
    document->totals_changed[topic] += 1;
    document->topics[topic] += 1;
    document->tokens += 1;
    *topic_p = (uint8_t)topic;
    return log(given);
}

static void begin_document(struct document *document, uint32_t row)
{
    struct weft_ml_lda *lda = document->model->lda;
    memset(document->topics, 0, sizeof(document->topics));
    document->tokens = 0;
    for (uint64_t t = lda->token_begin[row]; t < lda->token_begin[row + 1]; t++) {
        if (lda->topics[t] != NO_TOPIC) {
            document->topics[lda->topics[t]] += 1;
            document->tokens += 1;
        }
    }
    weft_prng_split(&document->prng, lda->seed, ((uint64_t)row << 32) + lda->draws[row]++);
}

double weft_ml_lda_gradient(const struct weft_ml_model *model, const struct weft_ml_batch *batch,
                            const float *rows, float *gradient_p)
{
    if (batch->row_count == 0) {
        return 0;
    }
    const struct weft_ml_dataset *set = batch->dataset;
    struct weft_ml_lda *lda = model->lda;
    uint64_t dim = model->dim, tokens = 0;
    double log_sum = 0;
    const uint32_t *local = batch->local;
    memset(gradient_p, 0, batch->id_count * dim * sizeof(*gradient_p));
    for (uint32_t r = 0; r < batch->row_count; r++) {
        uint32_t row = batch->rows[r];
        uint64_t begin = set->row_begin[row], words = set->row_begin[row + 1] - begin - 1;
        struct document document = {.model = model,
                                    .totals = rows + local[words] * dim,
                                    .totals_changed = gradient_p + local[words] * dim};
        uint8_t *topic = lda->topics + lda->token_begin[row];
        begin_document(&document, row);
        for (uint64_t i = 0; i < words; i++) {
            for (uint64_t n = (uint64_t)set->values[begin + i]; n > 0; n--) {
                log_sum += draw_token(&document, rows + local[i] * dim, gradient_p + local[i] * dim,
                                      topic++);
                tokens++;
            }
        }
        local += words + 1;
    }
    return -log_sum / (double)weft_max_u64(tokens, 1);
}

/* ---- perplexity ------------------------------------------------------------------------------ */

enum { PASSES = 20, PASSES_KEPT = 10 };

/* One document at a time: the word counts are fixed, every second token is given. */
struct completion {
    const struct weft_ml_model *model;
    const float *totals;
    const float *values;   /* (words,): counts of the document's words */
    const uint32_t *local; /* (words,) */
    uint64_t words;
    double counts[TOPICS_MAX]; /* given tokens by topic */
    double kept[TOPICS_MAX];   /* the sum of the same over the last passes */
    uint8_t *topics;           /* of the given tokens */
    struct weft_prng prng;
    uint64_t predicted; /* number of predicted tokens */
    double log_sum;     /* of their probabilities */
};

static double word_given_topic(const struct completion *c, const float *word, uint32_t k)
{
    double beta = (double)c->model->settings.beta;
    return (at_least_0((double)word[k]) + beta) /
           (at_least_0((double)c->totals[k]) + c->model->words * beta);
}

static void draw_given(struct completion *c, const float *word, uint8_t *topic_p)
{
    double weights[TOPICS_MAX], sum;
    if (*topic_p != NO_TOPIC) {
        c->counts[*topic_p] -= 1;
    }
    for (uint32_t k = 0; k < c->model->dim; k++) {
        weights[k] =
            (c->counts[k] + (double)c->model->settings.alpha) * word_given_topic(c, word, k);
    }
    *topic_p = (uint8_t)draw(weights, c->model->dim, &c->prng, &sum);
    c->counts[*topic_p] += 1;
}

static void predict(struct completion *c, const float *word, uint64_t given)
{
    double alpha = (double)c->model->settings.alpha, sum = 0;
    for (uint32_t k = 0; k < c->model->dim; k++) {
        sum += (c->kept[k] / PASSES_KEPT + alpha) * word_given_topic(c, word, k);
    }
    c->log_sum += log(sum / ((double)given + c->model->dim * alpha));
    c->predicted++;
}

/* One pass over all tokens of the document: draws topics for the given ones (positions 0, 2,
 * ...), or predicts the others from the `given` tokens. Returns the number of given tokens. */
static uint64_t pass(struct completion *c, const float *rows, bool predicts, uint64_t given)
{
    uint64_t place = 0;
    for (uint64_t i = 0; i < c->words; i++) {
        const float *word = rows + (uint64_t)c->local[i] * c->model->dim;
        for (uint64_t n = (uint64_t)c->values[i]; n > 0; n--, place++) {
            if (place % 2 == 0 && !predicts) {
                draw_given(c, word, &c->topics[place / 2]);
            } else if (place % 2 == 1 && predicts) {
                predict(c, word, given);
            }
        }
    }
    return (place + 1) / 2;
}

static void complete(struct completion *c, uint32_t row, const float *rows)
{
    uint64_t given = 0;
    memset(c->counts, 0, sizeof(c->counts));
    memset(c->kept, 0, sizeof(c->kept));
    weft_prng_split(&c->prng, 0, row);
    for (int p = 0; p < PASSES; p++) {
        given = pass(c, rows, false, 0);
        for (uint32_t k = 0; p >= PASSES - PASSES_KEPT && k < c->model->dim; k++) {
            c->kept[k] += c->counts[k];
        }
    }
    (void)pass(c, rows, true, given);
}

weft_status weft_ml_lda_perplexity(const struct weft_ml_model *model,
                                   const struct weft_ml_batch *batch, const float *rows,
                                   double *perplexity_p)
{
    const struct weft_ml_dataset *set = batch->dataset;
    uint64_t longest = 0;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        longest = weft_max_u64(longest, tokens_of(set, batch->rows[r]));
    }
    struct completion c = {.model = model, .topics = malloc(longest / 2 + 1)};
    if (c.topics == NULL) {
        return WEFT_NOMEM;
    }
    c.local = batch->local;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        uint32_t row = batch->rows[r];
        c.values = set->values + set->row_begin[row];
        c.words = set->row_begin[row + 1] - set->row_begin[row] - 1;
        c.totals = rows + (uint64_t)c.local[c.words] * model->dim;
        memset(c.topics, NO_TOPIC, longest / 2 + 1);
        complete(&c, row, rows);
        c.local += c.words + 1;
    }
    free(c.topics);
    double perplexity = exp(-c.log_sum / (double)weft_max_u64(c.predicted, 1));
    if (c.predicted == 0 || !isfinite(perplexity)) {
        return WEFT_DATA;
    }
    *perplexity_p = perplexity;
    return WEFT_OK;
}
