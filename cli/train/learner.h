/* One worker's training: batches from its share of the rows, weights from the servers, gradients to
 * them. The step is
 *
 *     rows -> ids;  pull their rows of the table (bound);  gradient;  push it (bound);  CLOCK
 *
 * In BSP the next batch is built, and its ids are sent, while this worker waits for the others: then
 * hardly anybody else needs the link towards the servers, and no gradient waits for the processor. Not
 * across the end of an epoch or a check, where everybody stops: what a pull did meanwhile would cost
 * time that nobody counts. A weight that a bounded pull leaves
 * out keeps the value this worker saw last. A gradient that a bounded push leaves out is gone; where
 * gradients are rounded (--value-type), that and what rounding takes goes with the next one of its row.
 *
 * The model (ml/model.h) says how wide a row of the table is, where it begins, and what the gradient
 * is; nothing here knows more of it.
 *
 * Connections are node/worker.h's matter.
 *
 * Source: docs/MODELS.md section 2; ps/client.h.
 */
#ifndef WEFT_CLI_TRAIN_LEARNER_H
#define WEFT_CLI_TRAIN_LEARNER_H

#include "cli/train/job.h"
#include "ckpt/model.h"
#include "ml/model.h"
#include "ml/share.h"
#include "node/worker.h"

struct weft_learner_step {
    struct weft_ml_batch batch;
    float *weights; /* (row_count, model.dim): of the batch */
    bool is_built;  /* the batch is that of the step */
    bool is_pulling;
    weft_ps_op pull;
};

struct weft_learner {
    const struct weft_job *job;             /* borrowed; so is its security, loaded */
    const struct weft_ml_dataset *dataset;  /* borrowed */
    struct weft_worker worker; /* its error is one line, after a status other than OK */
    struct weft_tracing tracing;    /* of this process */
    struct weft_tracing_feed trace; /* of its endpoint */
    struct weft_ml_model model;
    struct weft_ml_share share;
    struct weft_learner_step steps[2]; /* the one under way, and the next */
    uint32_t step_at;                  /* which of them is under way */
    struct weft_ml_batch test_batch;   /* all test rows */
    uint32_t row_count; /* of the table: for each feature, and those of a dense model's output */
    float *seen;      /* (row_count, model.dim): the weights as last pulled, by column */
    float *gradient;  /* (row_count, model.dim): of a batch */
    uint64_t *ids;    /* (row_count,): of a saved model */
    void *kept;       /* memory of error feedback; NULL: gradients are not rounded */
    bool is_pushing;  /* a push is under way; its result is not looked at yet */
    weft_ps_op push;
    /* Called after each step, unless NULL; it may set is_over: then no step follows. */
    weft_status (*stepped)(void *arg, uint32_t epoch, uint32_t step, uint32_t steps);
    void *stepped_arg;
    bool is_over;
    uint64_t test_elements;           /* of pulls that were for tests alone */
    uint64_t test_elements_delivered;
};

/* Connect to all shards and declare the table.
 *
 * Shape:   servers (count,), shard 0 first.
 * Owns:    borrows membership, which is asked where a server that went away is now.
 * Errors:  WEFT_PEER         a server does not answer; worker.error names it.
 *          WEFT_UNSUPPORTED  without security beyond loopback.   WEFT_TIMEOUT  asked to stop.
 *          WEFT_DATA         a server refused, or the model diverged.
 *          Others as the functions called. weft_learner_fini is due also after an error. */
weft_status weft_learner_init(struct weft_learner *learner, const struct weft_job *job,
                              uint32_t rank, const struct weft_ml_dataset *dataset,
                              const struct weft_launch_address *servers, uint32_t count,
                              struct weft_membership *membership);
void weft_learner_fini(struct weft_learner *learner);

/* The epoch, from 0, in which a job that was resumed goes on; 0 for a new one. */
uint32_t weft_learner_first_epoch(const struct weft_learner *learner);

/* One epoch, from 0 (where the job was resumed, from that step on), or its beginning when is_over was
 * set. Returns when all its pushes and clocks are closed; *loss_p is the mean loss
 * over steps, before their updates.   Errors: as init. */
weft_status weft_learner_epoch(struct weft_learner *learner, uint32_t epoch, double *loss_p);

/* Wait until all pushes and clocks are closed, as at the end of an epoch.   Errors: as init. */
weft_status weft_learner_settle(struct weft_learner *learner);

/* Quality on the test rows with the servers' weights, pulled whole.   Errors: as init. */
weft_status weft_learner_test(struct weft_learner *learner, struct weft_ml_quality *quality_p);

/* lda: tokens that the servers count, all topics together.   Errors: as init. */
weft_status weft_learner_tokens(struct weft_learner *learner, uint64_t *counted_p);

/* The model, every row that the data set names pulled whole; valid until the next step or test.
 * Owns:    what *model_p points to stays the learner's and the data set's.   Errors: as init. */
weft_status weft_learner_model(struct weft_learner *learner, struct weft_ckpt_model *model_p);

/* Elements promised and delivered in pushes and pull replies, tests left out. */
void weft_learner_delivery(const struct weft_learner *learner, uint64_t *elements_p,
                           uint64_t *delivered_p);

#endif
