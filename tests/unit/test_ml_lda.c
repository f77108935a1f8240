/* Topics of documents: counts are conserved in every draw, a planted set is learnt as well as
 * possible, and one step samples the formula's distribution. */
#include "base/prng.h"
#include "ml/lda.h"
#include "ml/reference.h"
#include "ml_text.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More topics than planted: with the same number, two planted topics may be merged. */
enum { DOCUMENTS = 240, TOKENS = 40, PLANTED = 4, WORDS_OF_TOPIC = 12, TOPICS = 8 };

static const struct weft_ml_model_kind *lda(void)
{
    const struct weft_ml_model_kind *kind = NULL;
    assert_int_equal(weft_ml_model_find("lda", NULL, &kind), WEFT_OK);
    return kind;
}

/* Every document has one topic and only words of that topic, all equally frequent: no model
 * predicts better than 1 / WORDS_OF_TOPIC. */
static struct weft_ml_dataset planted(uint64_t seed)
{
    static char text[DOCUMENTS * TOKENS * 16];
    struct weft_prng prng;
    weft_prng_init(&prng, seed);
    size_t used = (size_t)snprintf(text, sizeof(text), "%d\n%d\n%d\n", DOCUMENTS,
                                   PLANTED * WORDS_OF_TOPIC, DOCUMENTS * TOKENS);
    for (int d = 1; d <= DOCUMENTS; d++) {
        uint64_t topic = weft_prng_below(&prng, PLANTED);
        for (int t = 0; t < TOKENS; t++) {
            uint64_t word = 1 + topic * WORDS_OF_TOPIC + weft_prng_below(&prng, WORDS_OF_TOPIC);
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%d %d 1\n", d, (int)word);
        }
    }
    return ml_load("docword", text);
}

static struct weft_ml_reference_options options_for(uint32_t workers, uint64_t seed)
{
    struct weft_ml_reference_options options = weft_ml_reference_defaults_of(lda(), WEFT_ML_SGD);
    options.settings.factors = TOPICS;
    options.worker_count = workers;
    options.batch_rows = 16;
    options.seed = seed;
    return options;
}

/* Each word has as many topic counts as tokens, and the totals are the sums over the words. */
static void check_counts(const struct weft_ml_reference *reference)
{
    const struct weft_ml_dataset *set = reference->dataset;
    uint32_t totals = set->feature_count - 1; /* the totals have the id of the bias, the largest
                                               * one */
    double tokens[PLANTED * WORDS_OF_TOPIC] = {0}, of_topic[TOPICS] = {0};
    assert_true(set->feature_ids[totals] == WEFT_ML_BIAS_ID);
    for (uint32_t r = 0; r < set->train_count; r++) {
        uint32_t row = set->train_rows[r];
        for (uint64_t i = set->row_begin[row]; i + 1 < set->row_begin[row + 1]; i++) {
            tokens[set->columns[i]] += (double)set->values[i];
        }
    }
    for (uint32_t w = 0; w < totals; w++) {
        double sum = 0;
        for (uint32_t k = 0; k < TOPICS; k++) {
            double count = (double)reference->weights[w * TOPICS + k];
            assert_true(count >= 0 && count == floor(count));
            sum += count;
            of_topic[k] += count;
        }
        assert_true(sum == tokens[w]);
    }
    for (uint32_t k = 0; k < TOPICS; k++) {
        assert_true((double)reference->weights[totals * TOPICS + k] == of_topic[k]);
    }
}

static void planted_topics_are_found(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct weft_ml_dataset set = planted(seed);
        struct weft_ml_reference_options options = options_for(seed % 2 == 0 ? 1 : 3, seed);
        struct weft_ml_reference reference;
        struct weft_ml_quality quality;
        double first = 0, last = 0;
        assert_int_equal(weft_ml_reference_init(&reference, &set, &options), WEFT_OK);
        for (uint32_t e = 0; e < 30; e++) {
            assert_int_equal(weft_ml_reference_epoch(&reference, e, &last), WEFT_OK);
            first = e == 0 ? last : first;
            check_counts(&reference);
        }
        assert_int_equal(weft_ml_reference_test(&reference, &quality), WEFT_OK);
        assert_true(last < first - 0.2);
        assert_true(quality.perplexity > 0.97 * WORDS_OF_TOPIC);
        assert_true(quality.perplexity < 1.08 * WORDS_OF_TOPIC);
        weft_ml_reference_fini(&reference);
        weft_ml_dataset_fini(&set);
    }
}

static void a_seed_repeats_the_run(void **state)
{
    (void)state;
    double perplexity[3];
    struct weft_ml_dataset set = planted(7);
    for (int run = 0; run < 3; run++) {
        struct weft_ml_reference_options options = options_for(2, run < 2 ? 5 : 6);
        struct weft_ml_reference reference;
        struct weft_ml_quality quality;
        double loss;
        assert_int_equal(weft_ml_reference_init(&reference, &set, &options), WEFT_OK);
        assert_int_equal(weft_ml_reference_epoch(&reference, 0, &loss), WEFT_OK);
        assert_int_equal(weft_ml_reference_test(&reference, &quality), WEFT_OK);
        perplexity[run] = quality.perplexity;
        weft_ml_reference_fini(&reference);
    }
    assert_true(perplexity[0] == perplexity[1] && perplexity[0] != perplexity[2]);
    weft_ml_dataset_fini(&set);
}

/* One token, drawn many times with constant counts: topic k in proportion to (0 + alpha) (n_wk +
 * beta) / (n_k + W beta). A count below 0 counts as 0. */
static void draws_follow_the_formula(void **state)
{
    (void)state;
    enum { DRAWS = 40000 };
    enum { FEW = 4 };
    static const float pulled[] = {3, 0, 1, -2, /* the word */ 10, 4, 30, -2 /* the totals */};
    struct weft_ml_dataset set = ml_load("docword", "1\n1\n1\n2 5 1\n");
    struct weft_ml_model_settings settings = {.factors = FEW, .alpha = 0.5F, .beta = 0.25F};
    struct weft_ml_batch batch;
    struct weft_ml_model model;
    const uint32_t row = 0;
    double expected[FEW], sum = 0, found[FEW] = {0}, loss = 0;
    assert_int_equal(weft_ml_batch_init(&batch, &set), WEFT_OK);
    assert_int_equal(weft_ml_batch_build(&batch, &row, 1), WEFT_OK);
    for (int k = 0; k < FEW; k++) {
        expected[k] =
            0.5 * (fmax((double)pulled[k], 0) + 0.25) / (fmax((double)pulled[FEW + k], 0) + 0.25);
        sum += expected[k];
    }
    for (int n = 0; n < DRAWS; n++) { /* each draw as if it were the first */
        float changed[2 * FEW];
        assert_int_equal(weft_ml_model_init(&model, lda(), &settings, (uint64_t)n, &set), WEFT_OK);
        loss = weft_ml_model_gradient(&model, &batch, pulled, changed);
        for (int k = 0; k < FEW; k++) {
            found[k] += (double)changed[k];
            assert_true(changed[k] == changed[FEW + k]);
        }
        weft_ml_model_fini(&model);
    }
    assert_true(fabs(loss + log(sum / (FEW * 0.5))) < 1e-12);
    for (int k = 0; k < FEW; k++) {
        double p = expected[k] / sum;
        assert_true(fabs(found[k] / DRAWS - p) < 5 * sqrt(p * (1 - p) / DRAWS));
    }
    weft_ml_batch_fini(&batch);
    weft_ml_dataset_fini(&set);
}

/* A token that is drawn again leaves its old topic: the pushed changes sum to zero. */
static void a_second_draw_moves_tokens(void **state)
{
    (void)state;
    struct weft_ml_dataset set = planted(3);
    struct weft_ml_model_settings settings = {.factors = TOPICS, .alpha = 0.1F, .beta = 0.05F};
    struct weft_ml_batch batch;
    struct weft_ml_model model;
    size_t floats = (size_t)set.feature_count * TOPICS;
    float *rows = calloc(floats, sizeof(*rows)), *changed = calloc(floats, sizeof(*changed));
    assert_int_equal(weft_ml_model_init(&model, lda(), &settings, 1, &set), WEFT_OK);
    assert_int_equal(weft_ml_batch_init(&batch, &set), WEFT_OK);
    assert_int_equal(weft_ml_batch_build(&batch, set.train_rows, 50), WEFT_OK);
    for (int pass = 0; pass < 3; pass++) {
        double sum = 0, moved = 0;
        (void)weft_ml_model_gradient(&model, &batch, rows, changed);
        for (size_t i = 0; i < (size_t)batch.id_count * TOPICS; i++) {
            rows[i] += changed[i];
            sum += (double)changed[i];
            moved += fabs((double)changed[i]);
        }
        assert_true(sum == (pass == 0 ? 2 * 50 * TOKENS : 0));
        assert_true(moved > 0);
    }
    weft_ml_batch_fini(&batch);
    weft_ml_model_fini(&model);
    weft_ml_dataset_fini(&set);
    free(rows);
    free(changed);
}

static void what_does_not_fit(void **state)
{
    (void)state;
    struct weft_ml_dataset small = ml_load("docword", "2\n1\n2\n1 1 1\n3 1 1\n");
    struct weft_ml_dataset large = ml_load("docword", "1\n1\n2\n1 1 16777216\n2 1 1\n");
    struct weft_ml_model_settings settings = lda()->settings;
    struct weft_ml_model model;
    struct weft_ml_reference reference;
    struct weft_ml_reference_options options = options_for(1, 1);
    const struct weft_ml_model_kind *other = NULL;
    assert_int_equal(weft_ml_model_init(&model, lda(), &settings, 1, &large), WEFT_INVALID);
    assert_int_equal(weft_ml_model_find("lr", NULL, &other), WEFT_OK);
    assert_int_equal(weft_ml_model_init(&model, other, &other->settings, 1, &small), WEFT_INVALID);
    options.loss_ppm = 1;
    assert_int_equal(weft_ml_reference_init(&reference, &small, &options), WEFT_INVALID);
    options.loss_ppm = 0;
    options.optimizer = WEFT_ML_ADAGRAD;
    assert_int_equal(weft_ml_reference_init(&reference, &small, &options), WEFT_INVALID);
    weft_ml_dataset_fini(&small);
    weft_ml_dataset_fini(&large);
}

/* Documents of one word have no second half to predict. */
static void nothing_to_predict(void **state)
{
    (void)state;
    struct weft_ml_dataset set = ml_load("docword", "1\n1\n1\n2 5 1\n");
    struct weft_ml_model_settings settings = {.factors = TOPICS, .alpha = 0.5F, .beta = 0.25F};
    struct weft_ml_batch batch;
    struct weft_ml_model model;
    struct weft_ml_quality quality;
    float rows[2 * TOPICS] = {0};
    const uint32_t row = 0;
    assert_int_equal(weft_ml_model_init(&model, lda(), &settings, 1, &set), WEFT_OK);
    assert_int_equal(weft_ml_batch_init(&batch, &set), WEFT_OK);
    assert_int_equal(weft_ml_batch_build(&batch, &row, 1), WEFT_OK);
    assert_int_equal(weft_ml_model_evaluate(&model, &batch, rows, &quality), WEFT_DATA);
    assert_int_equal(weft_ml_batch_build(&batch, &row, 0), WEFT_OK);
    assert_int_equal(weft_ml_model_evaluate(&model, &batch, rows, &quality), WEFT_DATA);
    weft_ml_batch_fini(&batch);
    weft_ml_model_fini(&model);
    weft_ml_dataset_fini(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planted_topics_are_found), cmocka_unit_test(a_seed_repeats_the_run),
        cmocka_unit_test(draws_follow_the_formula), cmocka_unit_test(a_second_draw_moves_tokens),
        cmocka_unit_test(what_does_not_fit),        cmocka_unit_test(nothing_to_predict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
