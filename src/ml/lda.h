/* Topics of documents: latent Dirichlet allocation by collapsed Gibbs sampling, with the word
 * counts on the parameter server.
 *
 * Every token (a word at a position of a document) has a topic. For each word the table has the
 * number of its tokens with each topic. The row of the bias feature, which every document has,
 * contains the total number of tokens of each topic. The counts per document are needed only by its
 * worker. A step draws new topics for the tokens of its documents:
 *
 *     P(k) ~ (n_dk + alpha) (n_wk + beta) / (n_k + W beta)       each n without the token itself
 *
 * with n_wk and n_k as pulled, plus the step's own changes so far. It pushes the changes: integers,
 * which the server adds without division. A token has no topic before its first step.
 *
 * Topics depend on (seed, document, number of draws) and the pulled counts, not on the worker that
 * draws them. The counts may lack concurrent changes of other workers (AD-LDA). Negative counts,
 * which occur when changes are reordered, are treated as 0.
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

/* Perplexity of documents: in each document every second token is given, and its topic is drawn
 * with fixed word counts; the other tokens are predicted from these. exp(-mean log P).
 *
 * Shape:   rows (id_count, dim) of batch->ids, the totals among them.
 * Errors:  WEFT_DATA  no token to predict, or a row is not finite.   WEFT_NOMEM */
weft_status weft_ml_lda_perplexity(const struct weft_ml_model *model,
                                   const struct weft_ml_batch *batch, const float *rows,
                                   double *perplexity_p);

#endif
