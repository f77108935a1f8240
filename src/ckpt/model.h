/* A trained model in one file, for `weft eval`, `weft predict` and other programs: safetensors with
 *
 *     ids   u64 (n,)       features, strictly ascending
 *     rows  f32 (n, dim)   their rows: a weight and `factors` others
 *
 * and the metadata weft_model ("1", the version), model, factors, offset, format and, if the model
 * has them, alpha and beta. The file has all that prediction needs; to continue training, use a
 * checkpoint. The newest checkpoint of a job can be read as a model, too. The names of models and
 * formats are not interpreted here.
 *
 * Source: docs/MODELS.md "A saved model"; docs/CHECKPOINTS.md.
 */
#ifndef WEFT_CKPT_MODEL_H
#define WEFT_CKPT_MODEL_H

#include "ckpt/log.h"

enum { WEFT_CKPT_MODEL_NAME_BYTES = 32, WEFT_CKPT_MODEL_DIM_MAX = 4096 };

struct weft_ckpt_model {
    char kind[WEFT_CKPT_MODEL_NAME_BYTES];   /* "lr" */
    char format[WEFT_CKPT_MODEL_NAME_BYTES]; /* of the training data */
    float offset;                            /* added to every score */
    float alpha, beta;                       /* priors of topics; 0 = none */
    uint32_t dim;                            /* floats per row: 1 and the factors */
    uint64_t *ids;                           /* (count,) strictly ascending */
    float *rows;                             /* (count, dim), all finite */
    uint32_t count;
};

/* Write the file atomically.   Owns: borrows all of *model.
 * Errors:  WEFT_IO, WEFT_NOMEM; error->text has the reason. */
weft_status weft_ckpt_model_save(const char *path, const struct weft_ckpt_model *model,
                                 struct weft_error *error);

/* Owns:    gives *model_p, to be ended by weft_ckpt_model_fini.
 * Errors:  WEFT_IO  it cannot be read. WEFT_DATA  it is damaged, or not a model. WEFT_NOMEM.
 *          error->text begins with the path. */
weft_status weft_ckpt_model_load(const char *path, struct weft_ckpt_model *model_p,
                                 struct weft_error *error);
void weft_ckpt_model_fini(struct weft_ckpt_model *model);

/* Read the newest checkpoint of a directory: the rows of table 0 of all shards, deltas applied. A
 * checkpoint has no information about the model: kind, format and offset stay empty.
 *
 * Shape:   complain  called for each checkpoint that cannot be used; number_p  the one that was
 *          read.
 * Owns:    gives *model_p, as above.
 * Errors:  WEFT_NOTFOUND  there is none. WEFT_DATA  it has no table 0, or its columns are not
 *          those of a table. WEFT_IO, WEFT_NOMEM. error->text begins with the directory. */
weft_status weft_ckpt_model_gather(const char *directory, weft_ckpt_complaint *complain, void *arg,
                                   struct weft_ckpt_model *model_p, uint64_t *number_p,
                                   struct weft_error *error);

/* Copy the row of each id; zeros for an unknown id, as for a feature that is absent.
 *
 * Shape:   ids (count,) strictly ascending; rows_p (count, dim).
 * Returns: number of known ids. */
uint32_t weft_ckpt_model_rows(const struct weft_ckpt_model *model, const uint64_t *ids,
                              uint32_t count, float *rows_p);

#endif
