/* Training in one worker: it builds batches from its share of the examples, pulls weights and
 * pushes gradients. A step is
 *
 * rows -> ids; pull their table rows (bound); gradient; push it (bound); CLOCK
 *
 * With --compute a worker waits after the gradient until the minimum compute time of the step has
 * passed (compute.h).
 *
 * In BSP the next batch is built, and its pull is sent, while this worker waits for the others. At
 * that time the links towards the servers are mostly idle, and no gradient waits for the CPU. This
 * is not done across the end of an epoch or a check, where all workers stop, because the measured
 * training time excludes such a stop, and thus would exclude the pull.
 *
 * A weight that is lost in a pull keeps the value that this worker saw last. A gradient that is
 * lost in a push is not resent. If gradients are rounded (--value-type), lost gradients and
 * rounding errors are added to the next gradient of the row. So are the counts of lda that the
 * scheduler or a server drops (--tau-max); what is left of them is pushed when the workers stop.
 *
 * The model (ml/model.h) defines the width of a table row, its initial values and the gradient.
 * Connections are managed by node/worker.h.
 *
 * Source: docs/MODELS.md section 2; ps/client.h. */
#ifndef WEFT_CLI_TRAIN_LEARNER_H
#define WEFT_CLI_TRAIN_LEARNER_H

#include "cli/train/job.h"
#include "ckpt/model.h"
#include "ml/model.h"
#include "ml/share.h"
#include "node/worker.h"

struct weft_learner_step {
    struct weft_ml_batch batch;
    float *weights; /* (row_count, model.dim): weights of the batch */
    bool is_built;  /* the batch is built for the step */
    bool is_pulling;
    weft_ps_op pull;
};

struct weft_learner {
    const struct weft_job *job;            /* borrowed; so is its security, which is loaded */
    const struct weft_ml_dataset *dataset; /* borrowed */
    struct weft_worker worker;      /* its error has one line, after a status other than OK */
    struct weft_tracing tracing;    /* of this process */
    struct weft_tracing_feed trace; /* of its endpoint */
    struct weft_ml_model model;
    struct weft_ml_share share;
    struct weft_learner_step steps[2]; /* current and next step */
    uint32_t step_at;                  /* index of the current step */
    struct weft_ml_batch test_batch;   /* all test rows */
    uint32_t row_count; /* rows of the table: one per feature, and the output rows of a dense
                         * model */
    float *seen;        /* (row_count, model.dim): the weights as last pulled, by column */
    float *gradient;    /* (row_count, model.dim): gradient of a batch */
    uint64_t *ids;      /* (row_count,): ids of a saved model */
    void *kept;         /* residuals of error feedback; NULL = none */
    uint32_t kept_clocks; /* ended to push residuals, in no step */
    bool is_pushing;    /* a push is in flight; its result was not checked yet */
    weft_ps_op push;
    /* Called after each step, unless NULL. If it sets is_over, no step follows. */
    weft_status (*stepped)(void *arg, uint32_t epoch, uint32_t step, uint32_t steps);
    void *stepped_arg;
    bool is_over;
    uint64_t compute_waits_ns; /* waited for --compute */
    uint64_t build_ns;         /* time of building the last batch */
    uint64_t test_elements;    /* in pulls for tests only */
    uint64_t test_elements_delivered;
};

/* Connect to all shards and declare the table.
 *
 * Shape:   servers (count,), shard 0 first.
 * Owns:    borrows membership, which provides new addresses of servers after a connection is lost.
 * Errors:  WEFT_PEER a server does not reply; worker.error names it.
 * WEFT_UNSUPPORTED without security beyond loopback. WEFT_TIMEOUT termination was requested.
 * WEFT_DATA a server rejected a request, or the model diverged.
 * Others as the functions called. Call weft_learner_fini also after an error. */
weft_status weft_learner_init(struct weft_learner *learner, const struct weft_job *job,
                              uint32_t rank, const struct weft_ml_dataset *dataset,
                              const struct weft_launch_address *servers, uint32_t count,
                              struct weft_membership *membership);
void weft_learner_fini(struct weft_learner *learner);

/* The epoch, from 0, in which a resumed job continues; 0 for a new job. */
uint32_t weft_learner_first_epoch(const struct weft_learner *learner);

/* Train one epoch, numbered from 0. A resumed epoch starts at the step where it stopped; the epoch
 * ends early if is_over is set. Returns when all pushes and clocks are acknowledged. *loss_p is the
 * mean loss over steps, each before its update. Errors: as init. */
weft_status weft_learner_epoch(struct weft_learner *learner, uint32_t epoch, double *loss_p);

/* Wait until all pushes and clocks are acknowledged, as at the end of an epoch; for lda, until all
 * counts are committed. Errors: as init. */
weft_status weft_learner_settle(struct weft_learner *learner);

/* Evaluate the servers' weights, pulled without loss, on the test rows. Errors: as init. */
weft_status weft_learner_test(struct weft_learner *learner, struct weft_ml_quality *quality_p);

/* lda: tokens counted by the servers, over all topics. Errors: as init. */
weft_status weft_learner_tokens(struct weft_learner *learner, uint64_t *counted_p);

/* The model: every row that the data set uses, pulled without loss. Valid until the next step or
 * test.
 * Owns: the data of *model_p belongs to the learner and the data set. Errors: as init. */
weft_status weft_learner_model(struct weft_learner *learner, struct weft_ckpt_model *model_p);

/* Elements sent and delivered in pushes and pull replies, tests excluded. */
void weft_learner_delivery(const struct weft_learner *learner, uint64_t *elements_p,
                           uint64_t *delivered_p);

#endif
