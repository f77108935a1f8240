#include "ml/metrics.h"

#include <math.h>
#include <stdlib.h>

double weft_ml_sigmoid(double margin)
{
    if (margin >= 0) {
        return 1.0 / (1.0 + exp(-margin));
    }
    double e = exp(margin);
    return e / (1.0 + e);
}

double weft_ml_log_loss(double margin, uint8_t label)
{
    double wrong = label != 0 ? -margin : margin; /* positive = on the wrong side */
    return (wrong > 0 ? wrong : 0) + log1p(exp(-fabs(wrong)));
}

struct scored {
    float score;
    uint32_t label;
};

static int compare_scored(const void *left_p, const void *right_p)
{
    float left = ((const struct scored *)left_p)->score;
    float right = ((const struct scored *)right_p)->score;
    return (left > right) - (left < right);
}

/* Sum of the ranks (from 1) of the positive rows, doubled so that mean ranks are integers. */
static uint64_t doubled_rank_sum(const struct scored *sorted, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t begin = 0; begin < count;) {
        uint64_t positives = 0;
        uint32_t end = begin;
        for (; end < count && sorted[end].score == sorted[begin].score; end++) {
            positives += sorted[end].label;
        }
        /* Ranks begin + 1 .. end have the mean (begin + 1 + end) / 2. */
        sum += positives * ((uint64_t)begin + 1 + end);
        begin = end;
    }
    return sum;
}

weft_status weft_ml_auc(const float *scores, const uint8_t *labels, uint32_t count, double *auc_p)
{
    uint64_t positives = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (isnan(scores[i])) {
            return WEFT_DATA;
        }
        positives += labels[i];
    }
    uint64_t negatives = count - positives;
    if (positives == 0 || negatives == 0) {
        return WEFT_DATA;
    }
    struct scored *sorted = malloc(count * sizeof(*sorted));
    if (sorted == NULL) {
        return WEFT_NOMEM;
    }
    for (uint32_t i = 0; i < count; i++) {
        sorted[i] = (struct scored){.score = scores[i], .label = labels[i]};
    }
    qsort(sorted, count, sizeof(*sorted), compare_scored);
    /* Subtract the positives ranked before positives: U = rank sum - positives (positives + 1) /
     * 2. */
    uint64_t doubled_u = doubled_rank_sum(sorted, count) - positives * (positives + 1);
    free(sorted);
    *auc_p = (double)doubled_u / 2 / ((double)positives * (double)negatives);
    return WEFT_OK;
}
