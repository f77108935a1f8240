/* Ring and halving-doubling: all-reduce algorithms without a scheduler. Each worker has a list of
 * steps. In a step it sends to one other worker, or receives from one, or both. A step begins when
 * the worker's update is ready and the data of all earlier steps has been received.
 *
 * Ring, n workers: 2 (n - 1) steps of a part of bytes / n each, to the next worker.
 * Halving-doubling: of p, the largest power of two, workers; log2 p steps with halves, quarters,
 * ... of the vector, and back. The n - p others send their update to a neighbor first, and receive
 * the result at the end.
 */
#include "sim/fabric_internal.h"

#include "base/assert.h"

#include <string.h>

struct step {
    uint32_t to;      /* NOBODY = no send */
    uint32_t to_step; /* the step's index at the receiver */
    uint64_t bytes;
    bool receives;
};

/* ---- the lists ------------------------------------------------------------------------------- */

static uint32_t log2_floor(uint32_t n)
{
    uint32_t log = 0;
    while (n >> (log + 1) > 0) {
        log++;
    }
    return log;
}

static struct step ring_step(const struct weft_fabric *f, uint32_t worker, uint32_t at)
{
    uint32_t n = f->config.workers;
    return (struct step){(worker + 1) % n, at, weft_div_ceil_u64(f->config.update_bytes, n), true};
}

/* Step 0 folds, the last one unfolds; between them are the exchanges of p workers. Of the first 2 r
 * workers only the odd ones take part; all later ones do. */
static struct step exchange_step(const struct weft_fabric *f, uint32_t worker, uint32_t at)
{
    uint32_t log = log2_floor(f->config.workers);
    uint32_t folded = f->config.workers - (1u << log);
    bool pair = worker < 2 * folded;
    bool fold = at == 0;
    if (fold || at == 2 * log + 1) {
        bool sends = pair && (worker % 2 == 0) == fold;
        return (struct step){sends ? worker ^ 1 : WEFT_FABRIC_NOBODY, at, f->config.update_bytes,
                             pair && !sends};
    }
    if (pair && worker % 2 == 0) {
        return (struct step){WEFT_FABRIC_NOBODY, at, 0, false};
    }
    uint32_t rank = pair ? worker / 2 : worker - folded;
    uint32_t halved = at <= log ? at : 2 * log + 1 - at; /* number of halvings */
    uint32_t other = rank ^ (1u << (log - halved));
    return (struct step){other < folded ? 2 * other + 1 : other + folded, at,
                         weft_div_ceil_u64(f->config.update_bytes, UINT64_C(1) << halved), true};
}

static struct step step_of(const struct weft_fabric *f, uint32_t worker, uint32_t at)
{
    return f->config.policy == WEFT_FABRIC_RING ? ring_step(f, worker, at)
                                                : exchange_step(f, worker, at);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

void weft_fabric_collective_init(struct weft_fabric *f)
{
    uint32_t n = f->config.workers;
    f->steps = f->config.policy == WEFT_FABRIC_RING ? 2 * (n - 1) : 2 * log2_floor(n) + 2;
    f->step_at = weft_fabric_zeroed(n, sizeof(*f->step_at));
    f->step_has = weft_fabric_zeroed((size_t)n * f->steps, sizeof(*f->step_has));
}

void weft_fabric_collective_round(struct weft_fabric *f)
{
    for (uint32_t i = 0; i < f->config.workers; i++) {
        f->step_at[i] = 0;
        for (uint32_t at = 0; at < f->steps; at++) {
            f->step_has[(size_t)i * f->steps + at] = !step_of(f, i, at).receives;
        }
    }
}

static void send_step(struct weft_fabric *f, uint32_t worker, const struct step *step, uint32_t at)
{
    if (step->to == WEFT_FABRIC_NOBODY) {
        return;
    }
    struct weft_fabric_transfer transfer = {
        .kind = WEFT_FABRIC_STEP,
        .from = worker,
        .to = step->to,
        .worker = worker,
        .bytes = step->bytes,
        .step = step->to_step,
        .rank = at + 1, /* earlier steps go first */
    };
    (void)weft_fabric_transfer_start(f, &transfer);
}

static bool all_have_all(const struct weft_fabric *f)
{
    for (uint32_t i = 0; i < f->config.workers; i++) {
        if (f->step_at[i] < f->steps || !f->step_has[(size_t)(i + 1) * f->steps - 1]) {
            return false;
        }
    }
    return true;
}

void weft_fabric_collective_go_on(struct weft_fabric *f, uint32_t worker)
{
    const bool *has = &f->step_has[(size_t)worker * f->steps];
    uint32_t *at = &f->step_at[worker];
    if (f->workers[worker].state != WEFT_FABRIC_PUSHING) {
        return;
    }
    while (*at < f->steps && (*at == 0 || has[*at - 1])) {
        struct step step = step_of(f, worker, *at);
        send_step(f, worker, &step, *at);
        ++*at;
    }
    if (*at == f->steps && has[f->steps - 1] && all_have_all(f)) {
        weft_fabric_all_reduced(f);
    }
}

void weft_fabric_step_arrived(struct weft_fabric *f, const struct weft_fabric_transfer *transfer)
{
    bool *has = &f->step_has[(size_t)transfer->to * f->steps + transfer->step];
    WEFT_ASSERT(!*has);
    *has = true;
    weft_fabric_collective_go_on(f, transfer->to);
}
