/* Quality metrics of a binary classifier. Pure functions of scores and labels. */
#ifndef WEFT_ML_METRICS_H
#define WEFT_ML_METRICS_H

#include "base/status.h"
#include "base/units.h"

/* 1 / (1 + exp(-margin)), without overflow. */
double weft_ml_sigmoid(double margin);

/* -log P(label) for a row with this margin, without overflow; about |margin| for a large error. */
double weft_ml_log_loss(double margin, uint8_t label);

/* Area under the ROC curve: the probability that a positive row scores above a negative one, ties
 * counting one half. Computed from ranks, equal scores sharing their mean rank.
 *
 * Shape:   scores (count,), labels (count,) of 0 and 1.
 * Errors:  WEFT_DATA    a score is NaN, or one of the classes is missing: the area is undefined.
 *          WEFT_NOMEM
 * Cost:    O(count log count); allocates and frees 8 bytes per row.
 * Source:  the Mann-Whitney statistic; Hanley and McNeil 1982.
 */
weft_status weft_ml_auc(const float *scores, const uint8_t *labels, uint32_t count, double *auc_p);

#endif
