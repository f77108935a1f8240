/* A trained model in one file, for `weft eval`, `weft predict` and other programs: safetensors with
 *
 *     ids   u64 (n,)       features, strictly ascending
 *     rows  f32 (n, dim)   their rows: a weight and `factors` others
 *
 * and the metadata weft_model ("1", the version), model, factors, offset, format and, where the model
 * has them, alpha and beta. What is needed
 * to predict is here, and nothing to go on training with: that is a checkpoint's. The newest
 * checkpoint of a job is read as a model, too. Which models and formats there are is not known here:
 * they are names.
 *
 * Source: docs/MODELS.md "A saved model"; docs/CHECKPOINTS.md.
 */
#ifndef WEFT_CKPT_MODEL_H
#define WEFT_CKPT_MODEL_H

#include "ckpt/log.h"

enum { WEFT_CKPT_MODEL_NAME_BYTES = 32, WEFT_CKPT_MODEL_DIM_MAX = 4096 };

struct weft_ckpt_model {
    char kind[WEFT_CKPT_MODEL_NAME_BYTES];   /* "lr" */
    char format[WEFT_CKPT_MODEL_NAME_BYTES]; /* of the data it was trained on */
    float offset;                            /* of every score */
    float alpha, beta;                       /* priors of topics; 0 = none */
    uint32_t dim;                            /* floats of a row: 1 and the factors */
    uint64_t *ids;                           /* (count,) strictly ascending */
    float *rows;                             /* (count, dim), all finite */
    uint32_t count;
};

/* Write it whole or not at all.   Owns: borrows all of *model.
 * Errors:  WEFT_IO, WEFT_NOMEM; error->text says what. */
weft_status weft_ckpt_model_save(const char *path, const struct weft_ckpt_model *model,
                                 struct weft_error *error);

/* Owns:    gives *model_p, to be ended by weft_ckpt_model_fini.
 * Errors:  WEFT_IO  it cannot be read. WEFT_DATA  it is damaged, or something else. WEFT_NOMEM.
 *          error->text begins with the path. */
weft_status weft_ckpt_model_load(const char *path, struct weft_ckpt_model *model_p,
                                 struct weft_error *error);
void weft_ckpt_model_fini(struct weft_ckpt_model *model);

/* The newest checkpoint of a directory: the rows of table 0 of all shards, deltas applied. A checkpoint
 * knows nothing of models: kind, format and offset stay empty.
 *
 * Shape:   complain  for each checkpoint that cannot be used; number_p  which one it is.
 * Owns:    gives *model_p, as above.
 * Errors:  WEFT_NOTFOUND  there is none. WEFT_DATA  it has no table 0, or other columns than a
 *          table has. WEFT_IO, WEFT_NOMEM. error->text begins with the directory. */
weft_status weft_ckpt_model_gather(const char *directory, weft_ckpt_complaint *complain, void *arg,
                                   struct weft_ckpt_model *model_p, uint64_t *number_p,
                                   struct weft_error *error);

/* The row of each id, zeros for one that the model does not know: a feature that is not there.
 *
 * Shape:   ids (count,) strictly ascending; rows_p (count, dim).
 * Returns: how many are known. */
uint32_t weft_ckpt_model_rows(const struct weft_ckpt_model *model, const uint64_t *ids,
                              uint32_t count, float *rows_p);

#endif
