/* A box that is off: the ranks sum the vectors, and try the box again (coll/box.h).
 *
 * The ranks must agree when the box is used again: from the same vector on. They exchange nothing
 * for this but operations beside their vectors. Each fourth vector that they sum themselves,
 * and during a trial each second one, is a *step*, the same one at all ranks, as the order of calls
 * is the same. A step has an operation of its own, which is begun just after the vector's, with its
 * deadline, and the vector is done when both are: so no rank waits in an operation for another one
 * that has left. The next step, and what is behind it, is held back until this one's operation is
 * done: then all ranks know its outcome.
 *
 *     WAIT    all_reduce (min) of "my pause is over" and of this rank's clock, negative and
 *             positive
 *     BEGIN   the trial begins: the link sums its numbers, in the new epoch; all_reduce of the same
 *             numbers
 *     TRIAL   all_reduce (min) of the trial's outcome; any rank that has none yet: the next step
 *             asks again
 *     GOOD    the box is used, from this vector on
 *
 * The link sums the trial while the ranks sum vectors, so a box that does not reply costs only the
 * packets to it.
 *
 * A box that passes the trial and fails again costs the time until the ranks give its sum up. A
 * pause is at least COST times as long as the failure before it, and doubles with each failure up
 * to PAUSES_MAX times the first one; it is the first one again if the box was used for as long as
 * the last pause. There is at most one trial a second, as epochs are seconds of a clock. */
#include "coll/box_internal.h"

#include "base/assert.h"
#include "base/prng.h"

enum { STEP_PAUSE = 4, STEP_TRIAL = 2 }; /* vectors from one step to the next */
enum { COST = 16, PAUSES_MAX = 64 };

/* From one epoch to the next: then none is later than the latest clock of the ranks, so the next
 * job's epoch is later than all of this one. */
static const uint64_t epoch_ns_min = WEFT_NS_PER_S;

/* Without a sum for this time a trial has failed, whatever the silence that a vector allows: there
 * may be no limit to that but the vector's deadline, and a trial has none. */
static const uint64_t trial_silence_ns = 16 * WEFT_NS_PER_S;

enum { NOT_YET = 0 }; /* an outcome; others are reasons, or REASONS: passed */

/* ---- failures -------------------------------------------------------------------------------- */

static uint64_t times(uint64_t ns, uint64_t factor)
{
    return ns > WEFT_NEVER / factor ? WEFT_NEVER : ns * factor;
}

/* The box has failed; until then it was used for used_ns, and the failure took lost_ns. */
static void begin_pause(struct weft_coll_box *b, uint64_t used_ns, uint64_t lost_ns,
                        uint64_t now_ns)
{
    struct retry *r = &b->retry;
    uint64_t first_ns = b->config.retry_ns;
    bool again = r->pause_ns != 0 && used_ns < r->pause_ns;
    uint64_t ns = again ? weft_min_u64(times(r->pause_ns, 2), times(first_ns, PAUSES_MAX))
                        : first_ns;
    r->pause_ns = weft_max_u64(ns, times(lost_ns, COST));
    r->due_ns = weft_max_u64(weft_time_add(now_ns, r->pause_ns),
                             weft_time_add(r->epoch_ns, epoch_ns_min));
    r->state = RETRY_WAIT;
}

void weft_coll_box_epoch(struct weft_coll_box *b, uint64_t now_ns)
{
    b->retry.epoch_ns = now_ns;
    b->config.link.epoch(b->config.link.self, b->epoch);
}

void weft_coll_box_off(struct weft_coll_box *b, enum weft_coll_box_reason reason, uint64_t now_ns)
{
    uint64_t used_ns = b->state == WEFT_COLL_BOX_ON ? now_ns - b->retry.on_ns : 0;
    b->reason_of_trial = b->state != WEFT_COLL_BOX_ON;
    b->state = WEFT_COLL_BOX_OFF;
    b->reason = reason;
    b->retry.plain = 0;
    b->retry.step = STEP_PAUSE - 1;
    b->retry.asking = BOX_NONE;
    begin_pause(b, used_ns, now_ns - b->entry[b->head].entered_ns, now_ns);
}

/* ---- trials ---------------------------------------------------------------------------------- */

static struct entry *trial_of(struct weft_coll_box *b)
{
    return &b->entry[b->ops_max];
}

struct entry *weft_coll_box_trial_make(struct weft_coll_box *b, uint64_t now_ns)
{
    b->config.nonce = weft_mix64(b->config.nonce + 1); /* other numbers in each trial */
    weft_coll_box_trial_fill(b);
    *trial_of(b) = (struct entry){
        .state = ENTRY_QUEUED,
        .call = weft_coll_box_all_reduce(b->config.type, WEFT_COLL_SUM, b->trial,
                                         b->trial + trial_bytes(b), trial_count(b)),
        .direct = b->trial_direct,
        .sums = b->trial + trial_bytes(b),
        .chunks = b->config.slots,
        .begun_ns = now_ns,
    };
    return trial_of(b);
}

/* Begin to sum its numbers, through the link. */
static void trial_begin(struct weft_coll_box *b, uint64_t now_ns)
{
    (void)weft_coll_box_trial_make(b, now_ns);
    b->counters.retries++;
    b->broken = false;
    weft_coll_box_sum(b, b->ops_max, now_ns);
}

static int64_t outcome(const struct weft_coll_box *b)
{
    const struct entry *e = &b->entry[b->ops_max];
    if (!e->summed || !e->entered) {
        return NOT_YET;
    }
    if (!e->complete) {
        return WEFT_COLL_BOX_SILENT;
    }
    enum weft_coll_box_reason reason = weft_coll_box_trial_check(b);
    return reason == WEFT_COLL_BOX_FINE ? WEFT_COLL_BOX_REASONS : (int64_t)reason;
}

uint64_t weft_coll_box_trial_silence(const struct weft_coll_box *b)
{
    return weft_min_u64(b->config.silence_ns, trial_silence_ns);
}

uint64_t weft_coll_box_retry_deadline(const struct weft_coll_box *b)
{
    const struct entry *e = &b->entry[b->ops_max];
    if (b->state != WEFT_COLL_BOX_OFF || b->summing != b->ops_max || b->stopping || !e->entered) {
        return WEFT_NEVER;
    }
    return weft_time_add(weft_max_u64(e->entered_ns, b->heard_ns),
                         weft_coll_box_trial_silence(b));
}

static bool is_trying(const struct weft_coll_box *b)
{
    return b->retry.state == RETRY_TRIAL && b->summing == b->ops_max;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static bool is_step(const struct weft_coll_box *b)
{
    return b->config.retry_ns != WEFT_NEVER && b->retry.plain == b->retry.step;
}

/* Begin the operation of a step, beside entry i. */
static void ask(struct weft_coll_box *b, uint32_t i, uint64_t now_ns)
{
    struct retry *r = &b->retry;
    bool trial = r->state == RETRY_BEGIN;
    if (trial) {
        r->state = RETRY_TRIAL;
        trial_begin(b, now_ns);
    } else if (r->state == RETRY_WAIT) {
        bool due = now_ns >= r->due_ns && b->summing == BOX_NONE;
        b->verdict_in[0] = due;
        b->verdict_in[2] = weft_coll_box_clock(b, now_ns);
        b->verdict_in[1] = -b->verdict_in[2];
    } else {
        b->verdict_in[0] = outcome(b);
        b->verdict_in[1] = b->verdict_in[2] = 0;
    }
    bool posted = weft_coll_box_post(b, trial ? WHAT_EXPECT : WHAT_RETRY, i,
                                     trial ? weft_coll_box_expected_call(b)
                                           : weft_coll_box_agree_call(b),
                                     trial ? b->trial_work : b->agree_work,
                                     b->entry[i].deadline_ns, now_ns);
    r->asking = posted ? i : BOX_NONE;
}

/* The ranks have agreed on what they asked. */
static void answered(struct weft_coll_box *b, uint64_t now_ns)
{
    struct retry *r = &b->retry;
    const int64_t *v = b->verdict_out;
    if (r->state == RETRY_WAIT && v[0] != 0) {
        uint32_t after = b->epoch + 1, epoch = weft_coll_box_epoch_of(v[2], -v[1]);
        b->epoch = (int32_t)(epoch - after) > 0 ? epoch : after;
        weft_coll_box_epoch(b, now_ns);
        r->state = RETRY_BEGIN;
    } else if (r->state == RETRY_TRIAL && v[0] == WEFT_COLL_BOX_REASONS) {
        r->state = RETRY_GOOD;
    } else if (r->state == RETRY_TRIAL && v[0] != NOT_YET) {
        bool known = v[0] > NOT_YET && v[0] < WEFT_COLL_BOX_REASONS;
        b->reason = known ? (enum weft_coll_box_reason)v[0] : WEFT_COLL_BOX_DIFFERS;
        b->reason_of_trial = true;
        begin_pause(b, 0, 0, now_ns);
    }
}

/* Of the vectors that wait, the link may have summed some before the box failed, in another epoch:
 * it has got further than the ranks had agreed. */
static void sum_all_again(struct weft_coll_box *b)
{
    WEFT_ASSERT(b->summing == BOX_NONE);
    b->unsummed = b->head;
    for (uint32_t i = b->head; i != BOX_NONE; i = b->entry[i].next) {
        struct entry *e = &b->entry[i];
        e->summed = e->complete = false;
        e->reason = WEFT_COLL_BOX_FINE;
    }
}

static void use_again(struct weft_coll_box *b, uint64_t now_ns)
{
    trial_of(b)->state = ENTRY_FREE;
    b->state = WEFT_COLL_BOX_ON;
    b->reason = WEFT_COLL_BOX_FINE;
    b->retry.on_ns = now_ns;
    b->counters.recoveries++;
    sum_all_again(b);
}

/* ---- vectors --------------------------------------------------------------------------------- */

/* The entries that are held back do not wait for the step longer than for their own operation. */
static void hurry_step(struct weft_coll_box *b)
{
    uint64_t deadline_ns = b->entry[b->urgent].deadline_ns;
    weft_coll_limit(b->coll, weft_coll_box_user(WHAT_EXPECT, b->retry.asking), deadline_ns);
    weft_coll_limit(b->coll, weft_coll_box_user(WHAT_RETRY, b->retry.asking), deadline_ns);
}

static void plain(struct weft_coll_box *b, uint64_t now_ns)
{
    uint32_t i = b->head;
    struct entry *e = &b->entry[i];
    bool step = is_step(b);
    weft_coll_box_drop_head(b);
    e->state = ENTRY_PLAIN;
    e->done.boxed = WEFT_COLL_FALLBACK;
    b->counters.fallbacks++;
    b->retry.step += !step ? 0 : b->retry.state == RETRY_WAIT ? STEP_PAUSE : STEP_TRIAL;
    b->retry.plain++;
    if (!weft_coll_box_post(b, WHAT_PLAIN, i, e->call, e->ordinary, e->deadline_ns, now_ns)) {
        weft_coll_box_finish(b, i, WEFT_PEER, now_ns);
    } else if (step) {
        ask(b, i, now_ns);
    }
}

bool weft_coll_box_plain_all(struct weft_coll_box *b, uint64_t now_ns)
{
    bool any = false;
    if (!is_trying(b)) {
        weft_coll_box_stop(b);
    } else {
        weft_coll_box_hear(b, now_ns);
        if (now_ns >= weft_coll_box_retry_deadline(b)) {
            weft_coll_box_stop(b);
        }
    }
    while (b->head != BOX_NONE && b->head != b->summing) {
        if (b->head == b->ops_max) { /* the first trial, which has failed */
            weft_coll_box_drop_head(b);
            trial_of(b)->state = ENTRY_FREE;
        } else if (is_step(b) && b->retry.asking != BOX_NONE) {
            hurry_step(b);
            break;
        } else if (is_step(b) && b->retry.state == RETRY_GOOD) {
            use_again(b, now_ns);
            return true;
        } else {
            plain(b, now_ns);
        }
        any = true;
    }
    return any;
}

void weft_coll_box_plain_done(struct weft_coll_box *b, enum what what, uint32_t i,
                              const struct weft_coll_done *done, uint64_t now_ns)
{
    struct entry *e = &b->entry[i];
    if (what == WHAT_PLAIN) {
        e->done.status = done->status;
        e->done.contributions_ns = done->contributions_ns;
    } else {
        b->retry.asking = BOX_NONE;
        if (what == WHAT_EXPECT) {
            trial_of(b)->entered = done->status == WEFT_OK;
            trial_of(b)->entered_ns = now_ns;
        } else if (done->status == WEFT_OK) {
            answered(b, now_ns);
        }
    }
    if (e->pending == 0) {
        weft_coll_box_finish(b, i, e->done.status, now_ns);
    }
}
