/* A trained model in one file, for `weft eval`, `weft predict` and other programs: safetensors with
 *
 *     ids   u64 (n,)       features, strictly ascending
 *     rows  f32 (n, dim)   their rows, as src/ml/model.h describes them
 *
 * and the metadata weft_model ("1", the version), model, factors, offset and format. What is needed
 * to predict is here, and nothing to go on training with: that is a checkpoint's.
 *
 * Source: docs/MODELS.md "A saved model".
 */
#ifndef WEFT_CLI_TRAIN_MODEL_FILE_H
#define WEFT_CLI_TRAIN_MODEL_FILE_H

#include "ckpt/error.h"
#include "ml/model.h"

struct weft_model_file {
    struct weft_ml_model model; /* kind, factors, dim, offset; of the settings no others */
    const struct weft_ml_format *format; /* of the data it was trained on */
    uint64_t *ids;
    float *rows;
    uint32_t count;
};

/* Write it whole or not at all.
 *
 * Shape:   ids (count,) strictly ascending; rows (count, model->dim).
 * Errors:  WEFT_IO, WEFT_NOMEM; error->text says what. */
weft_status weft_model_file_save(const char *path, const struct weft_ml_model *model,
                                 const char *format, const uint64_t *ids, const float *rows,
                                 uint32_t count, struct weft_ckpt_error *error);

/* Errors:  WEFT_IO  it cannot be read. WEFT_DATA  it is damaged, or something else. WEFT_NOMEM.
 *          error->text begins with the path. */
weft_status weft_model_file_load(const char *path, struct weft_model_file *file_p,
                                 struct weft_ckpt_error *error);
void weft_model_file_fini(struct weft_model_file *file);

/* The row of each id, zeros for one that the model does not know: a feature that is not there.
 *
 * Shape:   ids (count,) strictly ascending; rows_p (count, dim).
 * Returns: how many are known. */
uint32_t weft_model_file_rows(const struct weft_model_file *file, const uint64_t *ids,
                              uint32_t count, float *rows_p);

#endif
