/* Topics of documents: latent Dirichlet allocation by collapsed Gibbs sampling, the words' counts at the
 * parameter server.
 *
 * Every token (a word at its place in a document) has a topic. The table has, for each word, how many
 * of its tokens have each topic; the bias feature, which every document has, names the row of the
 * totals: tokens of each topic. How many tokens of a document have each topic only its worker needs.
 * A step draws new topics for the tokens of its documents:
 *
 *     P(k) ~ (n_dk + alpha) (n_wk + beta) / (n_k + W beta)       each n without the token itself
 *
 * with n_wk and n_k as pulled, plus what the step has changed so far, and pushes what changed: whole
 * numbers, added up by the server without division. A token has no topic before its first step.
 *
 * Topics depend on (seed, document, how often it was drawn) and the counts that were pulled, not on
 * which worker draws them. Counts that others changed meanwhile may be behind (AD-LDA); below 0, as
 * when changes overtake each other, they count as 0.
 *
 * Source: Griffiths and Steyvers 2004, equation 5; Newman et al. 2009, AD-LDA; Wallach et al. 2009,
 *         document completion.
 */
#ifndef WEFT_ML_LDA_H
#define WEFT_ML_LDA_H

#include "ml/model.h"

/* Tokens of the training rows, or of the test rows. */
uint64_t weft_ml_lda_tokens(const struct weft_ml_dataset *dataset, bool is_test);

/* Errors:  WEFT_NOMEM; WEFT_INVALID  no documents, or more tokens than float32 counts exactly. */
weft_status weft_ml_lda_new(const struct weft_ml_dataset *dataset, uint64_t seed,
                            struct weft_ml_lda **lda_p);
void weft_ml_lda_free(struct weft_ml_lda *lda);

/* Perplexity of documents: of each, every second token is given and draws topics of its own, against
 * words that stay as they are; the others are predicted from these. exp(-mean log P).
 *
 * Shape:   rows (id_count, dim) of batch->ids, the totals among them.
 * Errors:  WEFT_DATA  no token to predict, or a row is not finite.   WEFT_NOMEM */
weft_status weft_ml_lda_perplexity(const struct weft_ml_model *model,
                                   const struct weft_ml_batch *batch, const float *rows,
                                   double *perplexity_p);

#endif
