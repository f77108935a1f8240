/* The newest checkpoint of `weft train` as a model, for `weft eval` and `weft predict`: the rows of
 * table 0 of all shards, deltas applied. A checkpoint knows nothing of models: which one it is, and
 * the format of its data, the caller says.
 *
 * Source: docs/CHECKPOINTS.md; docs/MODELS.md "A saved model".
 */
#ifndef WEFT_CLI_TRAIN_MODEL_CHECKPOINT_H
#define WEFT_CLI_TRAIN_MODEL_CHECKPOINT_H

#include "cli/train/model_file.h"

/* Fills in ids, rows, count and model.dim alone, and says on standard error which checkpoint it
 * is, and which newer ones are damaged.
 *
 * Owns:    gives *file_p, to be ended by weft_model_file_fini.
 * Errors:  WEFT_NOTFOUND  there is none. WEFT_DATA  it has no table 0, or other columns than a
 *          table has. WEFT_IO, WEFT_NOMEM. error->text begins with the directory. */
weft_status weft_model_checkpoint_load(const char *directory, struct weft_model_file *file_p,
                                       struct weft_ckpt_error *error);

#endif
