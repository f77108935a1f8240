#include "coll/box_internal.h"

#include "base/assert.h"

#include <stdlib.h>

enum { SEGMENTS_BITS = 6 }; /* bitmaps of an operation: three for each phase */

static const uint32_t none = BOX_NONE;

void weft_coll_box_config_default(struct weft_coll_box_config *config_p)
{
    *config_p = (struct weft_coll_box_config){
        .type = WEFT_COLL_F32,
        .slots = 32,
        .values = 352,
        .bytes_min = 256 << 10,
        .silence_ns = WEFT_NS_PER_S,
        .retry_ns = 16 * WEFT_NS_PER_S,
    };
}

/* ---- life ------------------------------------------------------------------------------------ */

static struct weft_coll_call setup_call(struct weft_coll_box *b)
{
    return weft_coll_box_all_reduce(WEFT_COLL_I64, WEFT_COLL_MAX, b->setup_in, b->setup_out,
                                    BOX_SETUP);
}

static bool work_init(struct weft_coll_box *b, struct weft_coll_call call, void **work_p)
{
    call.group = b->group;
    size_t bytes = weft_coll_work_bytes(b->coll, &call);
    *work_p = aligned_alloc(WEFT_COLL_ALIGN, weft_div_ceil_u64(bytes + 1, WEFT_COLL_ALIGN) *
                                                 WEFT_COLL_ALIGN);
    return *work_p != NULL;
}

static bool memory_init(struct weft_coll_box *b)
{
    b->others_max = b->coll_config.ops_max;
    b->entry = calloc(b->ops_max + 1, sizeof(*b->entry));
    b->other = calloc(b->others_max, sizeof(*b->other));
    b->trial = calloc(3, trial_bytes(b));
    b->trial_direct = calloc(WEFT_BITS_WORDS((size_t)b->config.slots), sizeof(uint64_t));
    return b->entry != NULL && b->other != NULL && b->trial != NULL && b->trial_direct != NULL &&
           work_init(b, setup_call(b), &b->setup_work) &&
           work_init(b, weft_coll_box_agree_call(b), &b->agree_work) &&
           work_init(b, (struct weft_coll_call){.kind = WEFT_COLL_BARRIER}, &b->enter_work) &&
           work_init(b, weft_coll_box_expected_call(b), &b->trial_work);
}

static bool is_valid(const struct weft_coll_box_config *c, const struct weft_coll_config *coll,
                     uint32_t ops_max)
{
    return (c->type == WEFT_COLL_F32 || (c->type == WEFT_COLL_I32 && c->exponent == 0)) &&
           c->slots >= 1 && c->values >= 1 && c->silence_ns > 0 && c->retry_ns > 0 &&
           ops_max >= 1 && coll->ops_max >= ops_max + WEFT_COLL_BOX_OPS &&
           coll->groups_max >= 1 + WEFT_COLL_BOX_GROUPS;
}

weft_status weft_coll_box_new(const struct weft_coll_box_config *config, struct weft_coll *coll,
                              const struct weft_coll_config *coll_config, uint32_t ops_max,
                              struct weft_coll_box **box_p)
{
    if (!is_valid(config, coll_config, ops_max)) {
        return WEFT_INVALID;
    }
    struct weft_coll_box *b = calloc(1, sizeof(*b));
    if (b == NULL) {
        return WEFT_NOMEM;
    }
    b->config = *config;
    b->coll = coll;
    b->coll_config = *coll_config;
    b->ops_max = ops_max;
    b->head = b->tail = b->urgent = none;
    b->unsummed = b->summing = b->done_head = b->done_tail = none;
    uint32_t all[WEFT_COLL_RANKS_MAX];
    for (uint32_t i = 0; i < coll_config->ranks; i++) {
        all[i] = i;
    }
    weft_status status = weft_coll_group(coll, all, coll_config->ranks, &b->group);
    if (status == WEFT_OK && !memory_init(b)) {
        status = WEFT_NOMEM;
    }
    if (status != WEFT_OK) {
        weft_coll_box_free(b);
        return status;
    }
    *box_p = b;
    return WEFT_OK;
}

void weft_coll_box_free(struct weft_coll_box *b)
{
    if (b == NULL) {
        return;
    }
    free(b->entry);
    free(b->other);
    free(b->setup_work);
    free(b->enter_work);
    free(b->agree_work);
    free(b->trial);
    free(b->trial_direct);
    free(b->trial_work);
    free(b);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static size_t aligned(size_t bytes)
{
    return weft_div_ceil_u64(bytes, WEFT_COLL_ALIGN) * WEFT_COLL_ALIGN;
}

/* Enough for the ordinary operation on this vector, and for one on any part of it: a vector of the
 * same number of grains at each rank has the longest slices of all that are not longer, and that
 * which every rank sends to all has a limit of its own. 0: the call is not valid. */
static size_t ordinary_bytes(const struct weft_coll_box *b, const struct weft_coll_call *call)
{
    const struct weft_coll_config *c = &b->coll_config;
    struct weft_coll_call part = *call;
    uint64_t grains = weft_div_ceil_u64(call->count, (uint64_t)WEFT_COLL_GRAIN * c->ranks);
    part.group = b->group;
    part.count = grains * WEFT_COLL_GRAIN * c->ranks;
    size_t most = weft_coll_work_bytes(b->coll, &part);
    part.count = weft_max_u64(c->small_bytes / BOX_ELEMENT_BYTES, 1);
    size_t small = weft_coll_work_bytes(b->coll, &part);
    size_t bits = WEFT_BITS_WORDS((size_t)WEFT_COLL_SEGMENTS_MAX * c->ranks) * sizeof(uint64_t);
    return most == 0 ? 0 : most + small + SEGMENTS_BITS * bits;
}

bool weft_coll_box_takes(const struct weft_coll_box *b, const struct weft_coll_call *call)
{
    return call->kind == WEFT_COLL_ALL_REDUCE && call->group == 0 && call->bound_ppm == 0 &&
           call->residual == NULL && call->type == b->config.type &&
           (call->reduction == WEFT_COLL_SUM || call->reduction == WEFT_COLL_MEAN) &&
           b->coll_config.ranks > 1 && call->count > 0 &&
           call->count * BOX_ELEMENT_BYTES >= b->config.bytes_min && ordinary_bytes(b, call) > 0;
}

static uint32_t chunks_of(const struct weft_coll_box *b, uint64_t count)
{
    return (uint32_t)weft_div_ceil_u64(count, b->config.values);
}

static size_t direct_bytes(const struct weft_coll_box *b, uint64_t count)
{
    return aligned(WEFT_BITS_WORDS((size_t)chunks_of(b, count)) * sizeof(uint64_t));
}

size_t weft_coll_box_work_bytes(const struct weft_coll_box *b, const struct weft_coll_call *call)
{
    return direct_bytes(b, call->count) + aligned(call->count * BOX_ELEMENT_BYTES) +
           ordinary_bytes(b, call);
}

static bool is_failed(const struct weft_coll_box *b)
{
    return weft_coll_failure(b->coll)->reason != WEFT_COLL_FINE;
}

static uint32_t more_urgent(const struct weft_coll_box *b, uint32_t one, uint32_t other)
{
    return one == none || b->entry[other].deadline_ns < b->entry[one].deadline_ns ? other : one;
}

static void queue_add(struct weft_coll_box *b, uint32_t i)
{
    b->entry[i].next = none;
    *(b->head == none ? &b->head : &b->entry[b->tail].next) = i;
    b->tail = i;
    b->urgent = more_urgent(b, b->urgent, i);
    b->unsummed = b->unsummed == none ? i : b->unsummed;
}

void weft_coll_box_drop_head(struct weft_coll_box *b)
{
    uint32_t i = b->head;
    b->unsummed = b->unsummed == i ? b->entry[i].next : b->unsummed;
    b->head = b->entry[i].next;
    b->tail = b->head == none ? none : b->tail;
    if (b->urgent == i) {
        b->urgent = none;
        for (i = b->head; i != none; i = b->entry[i].next) {
            b->urgent = more_urgent(b, b->urgent, i);
        }
    }
}

/* An entry does not wait for the head's operation longer than for its own. */
static void hurry_head(struct weft_coll_box *b)
{
    for (int what = WHAT_SETUP; what <= WHAT_AGREE; what++) {
        weft_coll_limit(b->coll, weft_coll_box_user((enum what)what, b->head),
                        b->entry[b->urgent].deadline_ns);
    }
}

weft_status weft_coll_box_begin(struct weft_coll_box *b, const struct weft_coll_call *call,
                                uint64_t now_ns)
{
    uint32_t i = 0;
    if (is_failed(b)) {
        return WEFT_PEER;
    }
    while (i < b->ops_max && b->entry[i].state != ENTRY_FREE) {
        i++;
    }
    if (i == b->ops_max) {
        return WEFT_AGAIN;
    }
    if (call->work == NULL || (uintptr_t)call->work % WEFT_COLL_ALIGN != 0) {
        return WEFT_INVALID;
    }
    WEFT_ASSERT((call->user & USER_OWN) == 0 && weft_coll_box_takes(b, call));
    uint8_t *work = call->work;
    uint8_t *spare = work + direct_bytes(b, call->count);
    b->entry[i] = (struct entry){
        .state = ENTRY_QUEUED,
        .call = *call,
        .direct = (uint64_t *)(void *)work,
        .spare = spare,
        .ordinary = spare + aligned(call->count * BOX_ELEMENT_BYTES),
        .sums = call->in == call->out ? spare : call->out,
        .chunks = chunks_of(b, call->count),
        .begun_ns = now_ns,
        .deadline_ns = weft_time_add(now_ns, call->timeout_ns),
        .done = {.user = call->user, .contributors_min = b->coll_config.ranks},
    };
    b->counters.begun++;
    queue_add(b, i);
    if (b->urgent == i) {
        hurry_head(b);
    }
    return WEFT_OK;
}

/* ---- operations of its own ------------------------------------------------------------------- */

/* The earliest deadline of the entries that wait for the head's operation; hurry_head has those
 * that come later. */
static uint64_t queue_deadline(const struct weft_coll_box *b)
{
    return b->urgent == none ? WEFT_NEVER : b->entry[b->urgent].deadline_ns;
}

/* False: coll has failed, which the next step finds. */
bool weft_coll_box_post(struct weft_coll_box *b, enum what what, uint32_t i,
                        struct weft_coll_call call, void *work, uint64_t deadline_ns,
                        uint64_t now_ns)
{
    call.group = b->group;
    call.work = work;
    call.user = weft_coll_box_user(what, i);
    call.timeout_ns = deadline_ns == WEFT_NEVER ? WEFT_NEVER
                      : deadline_ns > now_ns    ? deadline_ns - now_ns
                                                : 1;
    weft_status status = weft_coll_begin(b->coll, &call, now_ns);
    WEFT_ASSERT(status == WEFT_OK || status == WEFT_PEER);
    b->entry[i].pending += status == WEFT_OK;
    b->counters.own_begun += status == WEFT_OK;
    return status == WEFT_OK;
}

void weft_coll_box_finish(struct weft_coll_box *b, uint32_t i, weft_status status,
                          uint64_t now_ns)
{
    struct entry *e = &b->entry[i];
    e->state = ENTRY_DONE;
    e->done.status = status;
    e->done.total_ns = now_ns - e->begun_ns;
    b->counters.done += status == WEFT_OK;
    e->next = none;
    *(b->done_head == none ? &b->done_head : &b->entry[b->done_tail].next) = i;
    b->done_tail = i;
}

/* ---- the trial ------------------------------------------------------------------------------- */

/* Before all other entries. */
static void trial_begin(struct weft_coll_box *b, uint64_t now_ns)
{
    struct entry *e = weft_coll_box_trial_make(b, now_ns);
    e->next = b->head;
    e->deadline_ns = queue_deadline(b);
    b->head = b->unsummed = b->ops_max;
    b->state = WEFT_COLL_BOX_TRIAL;
}

static bool is_trial(const struct weft_coll_box *b, uint32_t i)
{
    return i == b->ops_max;
}

/* ---- agreement ------------------------------------------------------------------------------- */

static void agree(struct weft_coll_box *b, uint64_t now_ns)
{
    struct entry *e = &b->entry[b->head];
    enum weft_coll_box_reason reason = e->complete                 ? WEFT_COLL_BOX_FINE
                                       : e->reason != WEFT_COLL_BOX_FINE ? e->reason
                                                                         : WEFT_COLL_BOX_SILENT;
    if (e->complete && is_trial(b, b->head)) {
        reason = weft_coll_box_trial_check(b);
    }
    int64_t hash = e->complete ? weft_coll_box_hash(b, e) : 0;
    b->verdict_in[0] = reason == WEFT_COLL_BOX_FINE ? WEFT_COLL_BOX_REASONS : reason;
    b->verdict_in[1] = hash;
    b->verdict_in[2] = -hash;
    e->agreeing = true;
    (void)weft_coll_box_post(b, WHAT_AGREE, b->head, weft_coll_box_agree_call(b), b->agree_work,
                             queue_deadline(b), now_ns);
}

static enum weft_coll_box_reason verdict(const struct weft_coll_box *b)
{
    const int64_t *v = b->verdict_out;
    if (v[0] == WEFT_COLL_BOX_REASONS) {
        return v[1] == -v[2] ? WEFT_COLL_BOX_FINE : WEFT_COLL_BOX_DIFFERS;
    }
    return v[0] > WEFT_COLL_BOX_FINE && v[0] < WEFT_COLL_BOX_REASONS
               ? (enum weft_coll_box_reason)v[0]
               : WEFT_COLL_BOX_DIFFERS;
}

/* The head's sum is used. */
static void accept(struct weft_coll_box *b, uint64_t now_ns)
{
    uint32_t i = b->head;
    struct entry *e = &b->entry[i];
    weft_coll_box_drop_head(b);
    e->direct_elements = weft_coll_box_direct(b, e);
    e->done.boxed = WEFT_COLL_BOXED;
    e->done.contributions_ns = e->summed_ns - e->begun_ns;
    b->counters.operations++;
    b->counters.direct_elements += e->direct_elements;
    weft_coll_box_take(b, e);
    if (e->direct_elements == 0) {
        weft_coll_box_finish(b, i, WEFT_OK, now_ns);
        return;
    }
    weft_coll_box_gather(b, e);
    e->state = ENTRY_REST;
    struct weft_coll_call rest = weft_coll_box_all_reduce(
        e->call.type, e->call.reduction, e->spare, e->spare, e->direct_elements);
    if (!weft_coll_box_post(b, WHAT_REST, i, rest, e->ordinary, e->deadline_ns, now_ns)) {
        weft_coll_box_finish(b, i, WEFT_PEER, now_ns);
    }
}

static void agreed(struct weft_coll_box *b, uint64_t now_ns)
{
    enum weft_coll_box_reason reason = verdict(b);
    if (reason != WEFT_COLL_BOX_FINE) {
        weft_coll_box_off(b, reason, now_ns);
    } else if (is_trial(b, b->head)) {
        b->entry[b->head].state = ENTRY_FREE;
        weft_coll_box_drop_head(b);
        b->state = WEFT_COLL_BOX_ON;
        b->retry.on_ns = now_ns;
    } else {
        accept(b, now_ns);
    }
}

/* ---- operations of its own that are done ----------------------------------------------------- */

static void own_done(struct weft_coll_box *b, const struct weft_coll_done *done, uint64_t now_ns)
{
    enum what what = (enum what)(done->user >> USER_WHAT_SHIFT & 0xff);
    uint32_t i = (uint32_t)done->user;
    struct entry *e = &b->entry[i];
    bool good = done->status == WEFT_OK;
    e->pending--;
    b->counters.own_done += good;
    switch (what) {
    case WHAT_SETUP:
        if (good) {
            b->epoch = weft_coll_box_epoch_of(-b->setup_out[1], b->setup_out[0]);
            weft_coll_box_epoch(b, now_ns);
            trial_begin(b, now_ns);
        }
        break;
    case WHAT_ENTER:
        e->entered = good;
        e->entered_ns = now_ns;
        break;
    case WHAT_AGREE:
        if (good) {
            agreed(b, now_ns);
        }
        break;
    case WHAT_REST:
        if (good) {
            weft_coll_box_scatter(b, e);
        }
        weft_coll_box_finish(b, i, done->status, now_ns);
        break;
    case WHAT_PLAIN:
    case WHAT_EXPECT:
    case WHAT_RETRY:
        weft_coll_box_plain_done(b, what, i, done, now_ns);
        break;
    }
}

static bool take_done(struct weft_coll_box *b, uint64_t now_ns)
{
    struct weft_coll_done done;
    bool any = false;
    while (weft_coll_poll(b->coll, &done)) {
        any = true;
        if ((done.user & USER_OWN) != 0) {
            own_done(b, &done, now_ns);
            continue;
        }
        WEFT_ASSERT(b->others < b->others_max);
        b->other[(b->other_at + b->others++) % b->others_max] = done;
    }
    return any;
}

/* ---- progress -------------------------------------------------------------------------------- */

/* The head's sum is given up then; NEVER: not yet known. A vector may take half of the time that is
 * left to it and to those behind it, so that the ranks can sum in the other half. A rank that has
 * left cannot agree: AGREE fails, and names it. */
static uint64_t give_up_ns(const struct weft_coll_box *b, bool *slow_p)
{
    *slow_p = false;
    if (b->head == none || b->summing != b->head || b->stopping || !b->entry[b->head].entered) {
        return WEFT_NEVER;
    }
    if (weft_coll_has_left(b->coll)) {
        return 0;
    }
    const struct entry *urgent = &b->entry[b->urgent];
    uint64_t from_ns = weft_max_u64(b->entry[b->head].entered_ns, b->started_ns);
    uint64_t begun_ns = weft_max_u64(from_ns, urgent->begun_ns);
    uint64_t left_ns = urgent->deadline_ns > begun_ns ? urgent->deadline_ns - begun_ns : 0;
    uint64_t slow_ns =
        urgent->deadline_ns == WEFT_NEVER ? WEFT_NEVER : weft_time_add(begun_ns, left_ns / 2);
    uint64_t silence_ns =
        is_trial(b, b->head) ? weft_coll_box_trial_silence(b) : b->config.silence_ns;
    uint64_t silent_ns = weft_time_add(weft_max_u64(from_ns, b->heard_ns), silence_ns);
    *slow_p = slow_ns < silent_ns;
    return weft_min_u64(slow_ns, silent_ns);
}

void weft_coll_box_hear(struct weft_coll_box *b, uint64_t now_ns)
{
    uint64_t progress = b->config.link.progress(b->config.link.self);
    if (progress != b->progress) {
        b->progress = progress;
        b->heard_ns = now_ns;
    }
}

void weft_coll_box_stop(struct weft_coll_box *b)
{
    if (b->summing != none && !b->stopping) {
        b->stopping = true;
        b->config.link.stop(b->config.link.self);
    }
}

void weft_coll_box_summed(struct weft_coll_box *b, bool complete, uint64_t now_ns)
{
    WEFT_ASSERT(b->summing != none);
    struct entry *e = &b->entry[b->summing];
    e->summed = true;
    e->complete = complete;
    e->summed_ns = now_ns;
    b->broken = b->broken || !complete;
    b->summing = none;
    b->stopping = false;
}

void weft_coll_box_sum(struct weft_coll_box *b, uint32_t i, uint64_t now_ns)
{
    const struct entry *e = &b->entry[i];
    b->summing = i;
    b->started_ns = b->heard_ns = now_ns;
    b->config.link.begin(b->config.link.self, e->call.in, e->sums, e->call.count, e->direct);
}

/* Give the next vector to the link. */
static bool sum_next(struct weft_coll_box *b, uint64_t now_ns)
{
    uint32_t i = b->unsummed;
    if (b->summing != none || b->broken || i == none ||
        (b->state == WEFT_COLL_BOX_TRIAL && !is_trial(b, i))) {
        return false;
    }
    b->unsummed = b->entry[i].next;
    weft_coll_box_sum(b, i, now_ns);
    return true;
}

static void enter(struct weft_coll_box *b, uint64_t now_ns)
{
    bool trial = is_trial(b, b->head);
    b->entry[b->head].entering = true;
    (void)weft_coll_box_post(b, WHAT_ENTER, b->head,
                             trial ? weft_coll_box_expected_call(b)
                                   : (struct weft_coll_call){.kind = WEFT_COLL_BARRIER},
                             trial ? b->trial_work : b->enter_work, queue_deadline(b), now_ns);
}

/* Returns whether anything was begun. */
static bool head_step(struct weft_coll_box *b, uint64_t now_ns)
{
    if (b->head == none) {
        return false;
    }
    struct entry *e = &b->entry[b->head];
    bool begun = !e->entering;
    bool slow;
    if (begun) {
        enter(b, now_ns);
    }
    weft_coll_box_hear(b, now_ns);
    if (now_ns >= give_up_ns(b, &slow)) {
        e->reason = slow ? WEFT_COLL_BOX_SLOW : WEFT_COLL_BOX_SILENT;
        weft_coll_box_stop(b);
    }
    if (e->summed && e->entered && !e->agreeing) {
        agree(b, now_ns);
        begun = true;
    }
    return begun;
}

/* coll has failed: an entry ends when neither coll nor the link uses its buffers. */
static bool fail_all(struct weft_coll_box *b, uint64_t now_ns)
{
    bool any = false;
    weft_coll_box_stop(b);
    while (b->head != none && b->head != b->summing && b->entry[b->head].pending == 0) {
        uint32_t i = b->head;
        weft_coll_box_drop_head(b);
        if (is_trial(b, i)) {
            b->entry[i].state = ENTRY_FREE;
        } else {
            weft_coll_box_finish(b, i, WEFT_PEER, now_ns);
        }
        any = true;
    }
    return any;
}

static bool advance(struct weft_coll_box *b, uint64_t now_ns)
{
    if (is_failed(b)) {
        return fail_all(b, now_ns);
    }
    switch (b->state) {
    case WEFT_COLL_BOX_NEW:
        if (b->head == none) {
            return false;
        }
        b->state = WEFT_COLL_BOX_SETUP;
        b->setup_in[0] = weft_coll_box_clock(b, now_ns);
        b->setup_in[1] = -b->setup_in[0];
        (void)weft_coll_box_post(b, WHAT_SETUP, b->head, setup_call(b), b->setup_work,
                                 queue_deadline(b), now_ns);
        return true;
    case WEFT_COLL_BOX_SETUP:
        return false;
    case WEFT_COLL_BOX_TRIAL:
    case WEFT_COLL_BOX_ON: {
        bool summing = sum_next(b, now_ns);
        return head_step(b, now_ns) || summing;
    }
    case WEFT_COLL_BOX_OFF:
        return weft_coll_box_plain_all(b, now_ns);
    }
    return false;
}

void weft_coll_box_progress(struct weft_coll_box *b, uint64_t now_ns)
{
    bool any;
    do {
        weft_coll_progress(b->coll, now_ns);
        any = take_done(b, now_ns);
        any = advance(b, now_ns) || any;
    } while (any);
}

uint64_t weft_coll_box_deadline(const struct weft_coll_box *b)
{
    bool slow;
    bool counts = b->state == WEFT_COLL_BOX_TRIAL || b->state == WEFT_COLL_BOX_ON;
    return counts ? give_up_ns(b, &slow) : weft_coll_box_retry_deadline(b);
}

bool weft_coll_box_poll(struct weft_coll_box *b, struct weft_coll_done *done_p)
{
    if (b->done_head != none) {
        struct entry *e = &b->entry[b->done_head];
        *done_p = e->done;
        b->done_head = e->next;
        e->state = ENTRY_FREE;
        return true;
    }
    if (b->others == 0) {
        return false;
    }
    *done_p = b->other[b->other_at];
    b->other_at = (b->other_at + 1) % b->others_max;
    b->others--;
    return true;
}

/* ---- facts ----------------------------------------------------------------------------------- */

enum weft_coll_box_state weft_coll_box_state(const struct weft_coll_box *b)
{
    return b->state;
}

enum weft_coll_box_reason weft_coll_box_reason(const struct weft_coll_box *b)
{
    return b->reason;
}

const struct weft_coll_box_counters *weft_coll_box_counters(const struct weft_coll_box *b)
{
    return &b->counters;
}
