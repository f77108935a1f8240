/* Conversion of a call into an operation, and its completion. */
#include "coll/internal.h"

#include "coll/fold.h"

/* ---- description of the call ----------------------------------------------------------------- */

/* 15 bits, because the lowest bit of the tag's 16-bit field is the phase. */
uint32_t weft_coll_signature(const struct weft_coll_descriptor *d)
{
    uint64_t h = weft_mix64(d->kind | (uint64_t)d->type << 8 | (uint64_t)d->reduction << 16 |
                            (uint64_t)d->feedback << 24 | (uint64_t)d->root << 32);
    h = weft_mix64(h ^ (d->bound_ppm | (uint64_t)d->members << 32));
    h = weft_mix64(h ^ d->count);
    return (uint32_t)(h >> 49);
}

struct weft_coll_descriptor weft_coll_descriptor_of(const struct group *g,
                                                    const struct weft_coll_call *call)
{
    return (struct weft_coll_descriptor){
        .kind = (uint8_t)call->kind,
        .type = (uint8_t)call->type,
        .reduction = (uint8_t)call->reduction,
        .feedback = call->residual != NULL,
        .root = weft_coll_is_pair(call->kind) ? call->tag : call->root,
        .bound_ppm = call->bound_ppm,
        .members = call->kind == WEFT_COLL_ALL_REDUCE ? g->members_hash ^ g->plan_hash
                                                       : g->members_hash,
        .count = call->count,
    };
}

/* Fields that a kind does not use are set to zero, so that the descriptors of all ranks are
 * equal. */
static struct weft_coll_call normalized(const struct weft_coll_call *call)
{
    struct weft_coll_call c = *call;
    bool reduces = c.kind <= WEFT_COLL_REDUCE_SCATTER;
    bool rooted = c.kind == WEFT_COLL_REDUCE || c.kind == WEFT_COLL_BROADCAST ||
                  c.kind == WEFT_COLL_GATHER || c.kind == WEFT_COLL_SCATTER;
    c.reduction = reduces ? c.reduction : WEFT_COLL_SUM;
    c.root = rooted ? c.root : 0;
    if (c.kind == WEFT_COLL_BARRIER) {
        c.type = WEFT_COLL_U8;
        c.count = 1;
    }
    return c;
}

static bool is_aligned(const struct weft_coll_call *call, const void *in, const void *out)
{
    uintptr_t ends = (uintptr_t)in | (uintptr_t)out | (uintptr_t)call->residual;
    return ends % weft_coll_type_bytes(call->type) == 0;
}

static const char *buffers_check(const struct weft_coll_call *call, uint32_t n, uint32_t me)
{
    if (call->kind == WEFT_COLL_BARRIER || call->count == 0) {
        return NULL;
    }
    bool root = me == call->root;
    bool in = root || (call->kind != WEFT_COLL_BROADCAST && call->kind != WEFT_COLL_SCATTER);
    bool out = root || (call->kind != WEFT_COLL_REDUCE && call->kind != WEFT_COLL_GATHER);
    if (weft_coll_is_pair(call->kind)) {
        in = call->kind == WEFT_COLL_SEND;
        out = !in;
    }
    if (in && call->in == NULL) {
        return "in is NULL; it must point to this rank's contribution";
    }
    if (out && call->out == NULL) {
        return "out is NULL; it must point to memory for the result";
    }
    if (!is_aligned(call, in ? call->in : NULL, out ? call->out : NULL)) {
        return "in, out or residual is not aligned to its elements";
    }
    if (call->kind == WEFT_COLL_ALL_TO_ALL && call->in == call->out && n > 1) {
        return "all_to_all does not support in-place operation; use a separate out";
    }
    return NULL;
}

static const char *loss_check(const struct weft_coll_call *call)
{
    bool reduces = call->kind <= WEFT_COLL_REDUCE_SCATTER;
    bool feeds_back = reduces && call->type == WEFT_COLL_F32 &&
                      (call->reduction == WEFT_COLL_SUM || call->reduction == WEFT_COLL_MEAN);
    if (!reduces && call->bound_ppm != 0) {
        return "bound_ppm is not 0, but only what is reduced may be lost: all_reduce, reduce and "
               "reduce_scatter";
    }
    if (call->bound_ppm >= WEFT_PPM) {
        return "bound_ppm is not below 1000000; something must arrive";
    }
    if (call->residual != NULL && !feeds_back) {
        return "residual requires a sum or mean of float32 in all_reduce, reduce or reduce_scatter";
    }
    return NULL;
}

static const char *call_check(const struct weft_coll_config *config,
                              const struct weft_coll_call *call, uint32_t n, uint32_t me,
                              struct shape *shape_p)
{
    if ((unsigned)call->kind >= WEFT_COLL_KINDS) {
        return "unknown kind of operation";
    }
    if ((unsigned)call->type >= WEFT_COLL_TYPES) {
        return "unknown element type";
    }
    if (call->root >= n) {
        return "root is not less than the number of ranks in the group";
    }
    if (call->kind <= WEFT_COLL_REDUCE_SCATTER &&
        ((unsigned)call->reduction >= WEFT_COLL_REDUCTIONS ||
         !weft_coll_fold_has(call->type, call->reduction))) {
        return "this reduction is not for this type: means are for floats, and, or and xor for "
               "integers";
    }
    if (weft_coll_is_pair(call->kind) && (call->peer >= n || call->peer == me)) {
        return "peer must be the index of another rank of the group";
    }
    const char *wrong = buffers_check(call, n, me);
    wrong = wrong != NULL ? wrong : loss_check(call);
    if (wrong == NULL && !weft_coll_shape_make(config, call, n, me, shape_p)) {
        return "count is too large for one operation; divide it into several";
    }
    return wrong;
}

const char *weft_coll_call_check(const struct weft_coll_config *config,
                                 const struct weft_coll_call *call, uint32_t n, uint32_t me)
{
    struct weft_coll_call plain = normalized(call);
    struct shape shape;
    return call_check(config, &plain, n, me, &shape);
}

static bool call_shape(const struct weft_coll *c, const struct weft_coll_call *call,
                       struct shape *shape_p)
{
    if (call->group >= c->groups) {
        return false;
    }
    const struct group *g = &c->group[call->group];
    if (g->me == NONE || call_check(&c->config, call, g->n, g->me, shape_p) != NULL) {
        return false;
    }
    weft_coll_shape_plan(&c->config, call, g->plan, shape_p);
    return true;
}

size_t weft_coll_work_bytes(const struct weft_coll *c, const struct weft_coll_call *call)
{
    struct weft_coll_call plain = normalized(call);
    struct shape shape;
    if (!call_shape(c, &plain, &shape)) {
        return 0;
    }
    struct work work;
    weft_coll_work_make(&shape, weft_coll_shape_lossy(&shape, plain.bound_ppm), &work);
    return work.bytes;
}

size_t weft_coll_missed_bytes(const struct weft_coll *c, const struct weft_coll_call *call)
{
    struct weft_coll_call plain = normalized(call);
    struct shape shape;
    if (!call_shape(c, &plain, &shape) || !shape.reduces) {
        return 0;
    }
    uint64_t slices = shape.slices == SLICES_BLOCKS ? shape.n : 1;
    return slices * weft_div_ceil_u64(shape.count, WEFT_COLL_GRAIN);
}

/* ---- counting messages ----------------------------------------------------------------------- */

static void count_messages(struct op *op)
{
    const struct shape *s = &op->shape;
    for (uint32_t g = 0; g < s->segments; g++) {
        struct op_segment *of = &op->segment[g];
        for (uint32_t i = 0; i < s->n; i++) {
            of->left1 += shape_elems(s, PHASE_1, i, s->me, g) > 0;
            op->left2 += shape_elems(s, PHASE_2, i, s->me, g) > 0;
            for (uint32_t phase = 0; phase < PHASES; phase++) {
                of->unsent[phase] += shape_elems(s, phase, s->me, i, g) > 0;
            }
        }
        op->unsent_all += of->unsent[PHASE_1] + of->unsent[PHASE_2];
    }
    op->segments_left = s->segments;
}

/* Pages of the pool that messages of this operation from another rank may occupy at this rank. */
static uint64_t pages_from(const struct shape *s, uint32_t i)
{
    uint64_t pages = 0;
    for (uint32_t g = 0; g < s->segments; g++) {
        for (uint32_t phase = 0; phase < PHASES; phase++) {
            uint32_t elems = shape_elems(s, phase, i, s->me, g);
            pages += elems > 0 ? pages_for(elems, s->elem_bytes) : 0;
        }
    }
    return pages;
}

/* A rank that sends many bytes, or has received no message for a long time, must be notified that
 * this rank has entered the operation; otherwise it stops sending before its messages fill the
 * pool. Data of this operation serves as notification. The fractions: docs/COLLECTIVES.md, "Early
 * messages". */
static void report_progress(struct weft_coll *c, const struct op *op)
{
    const struct shape *s = &op->shape;
    struct group *g = &c->group[op->call.group];
    for (uint32_t i = 0; i < s->n; i++) {
        if (i == s->me) {
            continue;
        }
        struct member *m = &g->member[g->ranks[i]];
        bool data = weft_coll_shape_tells(s, i);
        uint64_t pages = pages_from(s, i);
        uint64_t unreported = m->unreported_pages + pages;
        bool much = pages > c->quota_pages / 2;
        bool is_due = op->number + 1 - m->reported >= REPORT_OPS ||
                      unreported >= c->quota_pages / 4;
        m->unreported_pages = (uint32_t)weft_min_u64(unreported, UINT32_MAX);
        if (much || (!data && is_due)) {
            weft_coll_tell(c, op->call.group, g->ranks[i]);
        } else if (data) {
            m->reported = op->number + 1;
            m->unreported_pages = 0;
        }
    }
}

/* ---- local data ----------------------------------------------------------------------------- */

static void copy(void *to, const void *from, uint64_t elems, uint32_t elem_bytes)
{
    if (to != from && elems > 0) {
        memmove(to, from, elems * elem_bytes);
    }
}

static void own_part(struct op *op)
{
    const struct shape *s = &op->shape;
    const struct weft_coll_call *call = &op->call;
    uint8_t *out = call->out;
    const uint8_t *in = call->in;
    uint64_t block = s->count * s->elem_bytes;
    bool root = s->me == s->root;
    switch (s->kind) {
    case WEFT_COLL_ALL_GATHER:
        copy(out + s->me * block, in, s->count, s->elem_bytes);
        break;
    case WEFT_COLL_GATHER:
        if (root) {
            copy(out + s->me * block, in, s->count, s->elem_bytes);
        }
        break;
    case WEFT_COLL_BROADCAST:
        if (root) {
            copy(out, in, s->count, s->elem_bytes);
        }
        break;
    case WEFT_COLL_SCATTER:
        if (root) {
            copy(out, in + s->me * block, s->count, s->elem_bytes);
        }
        break;
    case WEFT_COLL_ALL_TO_ALL:
        copy(out + s->me * block, in + s->me * block, s->count, s->elem_bytes);
        break;
    case WEFT_COLL_ALL_REDUCE:
    case WEFT_COLL_REDUCE:
    case WEFT_COLL_REDUCE_SCATTER:
    case WEFT_COLL_BARRIER:
    case WEFT_COLL_SEND:
    case WEFT_COLL_RECV:
    case WEFT_COLL_KINDS:
        break;
    }
}

static void small_part(struct op *op)
{
    const struct shape *s = &op->shape;
    if (s->reduces && s->slices == SLICES_WHOLE) {
        const void *from = op->call.residual != NULL ? op->call.residual : op->call.in;
        copy((uint8_t *)op->call.work + op->work.copy, from, s->count, s->elem_bytes);
        if (op->call.residual != NULL) { /* no part of the contribution can be missing */
            memset(op->call.residual, 0, s->count * s->elem_bytes);
        }
    }
}

/* ---- begin ----------------------------------------------------------------------------------- */

static uint32_t slot_free(const struct weft_coll *c)
{
    for (uint32_t i = 0; i < c->config.ops_max; i++) {
        if (c->op[i].state == OP_FREE) {
            return i;
        }
    }
    return NONE;
}

static void list_add(struct weft_coll *c, uint32_t *head, uint32_t *tail, uint32_t slot)
{
    c->op[slot].next = NONE;
    if (*head == NONE) {
        *head = slot;
    } else {
        c->op[*tail].next = slot;
    }
    *tail = slot;
}

static void list_remove(struct weft_coll *c, uint32_t slot)
{
    uint32_t before = NONE;
    for (uint32_t i = c->open_head; i != slot; i = c->op[i].next) {
        before = i;
    }
    if (before == NONE) {
        c->open_head = c->op[slot].next;
    } else {
        c->op[before].next = c->op[slot].next;
    }
    c->open_tail = c->open_tail == slot ? before : c->open_tail;
}

/* A rank that has left may still have sent all its messages for this operation before this call. */
static void without_who_left(struct weft_coll *c, struct op *op)
{
    const struct group *g = &c->group[op->call.group];
    for (uint32_t i = 0; i < g->n; i++) {
        if (c->rank[g->ranks[i]].state == RANK_LEFT && weft_coll_op_needs(op, i)) {
            weft_coll_fail_rank(c, WEFT_COLL_LEFT, g->ranks[i], op);
        }
    }
}

static void op_start(struct weft_coll *c, struct op *op)
{
    if (op->call.kind == WEFT_COLL_BARRIER || op->call.count == 0) {
        op->call.in = &op->nothing[0];
        op->call.out = &op->nothing[1];
    }
    if (op->work.bytes > 0) {
        memset(op->call.work, 0, op->work.bits_bytes);
    }
    if (op->lossy) {
        memset((uint8_t *)op->call.work + op->work.masks, 0,
               op->shape.n * op->work.mask_words * sizeof(uint64_t));
    }
    for (uint32_t g = 0; g < op->shape.segments; g++) {
        op->segment[g].direct =
            op->shape.reduces && op->shape.n == 2 && !op->lossy && !op_has_trees(op);
    }
    count_messages(op);
    if (op_has_trees(op)) {
        weft_coll_trees_start(op);
    }
    if (op->call.residual != NULL) {
        op->divisor = op->shape.n;
        weft_coll_residual_add(op);
    }
    own_part(op);
    small_part(op);
    if (!weft_coll_is_pair(op->call.kind)) {
        report_progress(c, op);
    }
    for (uint32_t g = 0; g < op->shape.segments; g++) {
        if (op->segment[g].left1 == 0 && !op->segment[g].ready) {
            weft_coll_segment_here(c, op, g);
        }
    }
}

/* Time until an operation queries the ranks that it waits for: longer than any operation that
 * succeeds takes, and short enough to report an error promptly. */
static uint64_t ask_first(const struct weft_coll *c)
{
    return 2 * c->config.abort_ns;
}

weft_status weft_coll_begin(struct weft_coll *c, const struct weft_coll_call *call, uint64_t now_ns)
{
    c->now_ns = now_ns;
    struct weft_coll_call plain = normalized(call);
    struct shape shape;
    if (!call_shape(c, &plain, &shape)) {
        return WEFT_INVALID;
    }
    struct work work;
    weft_coll_work_make(&shape, weft_coll_shape_lossy(&shape, plain.bound_ppm), &work);
    if (work.bytes > 0 && (plain.work == NULL || (uintptr_t)plain.work % WEFT_COLL_ALIGN != 0)) {
        return WEFT_INVALID;
    }
    struct group *g = &c->group[call->group];
    if (coll_failed(c)) {
        return WEFT_PEER;
    }
    uint32_t slot = slot_free(c);
    if (slot == NONE) {
        return WEFT_AGAIN;
    }
    struct op *op = &c->op[slot];
    bool pair = weft_coll_is_pair(plain.kind);
    struct weft_coll_descriptor descriptor = weft_coll_descriptor_of(g, &plain);
    *op = (struct op){
        .state = OP_OPEN,
        .life = (uint16_t)(op->life + 1),
        .number = pair ? NONE : g->next_op,
        .signature = weft_coll_signature(&descriptor),
        .call = plain,
        .shape = shape,
        .work = work,
        .lossy = weft_coll_shape_lossy(&shape, plain.bound_ppm),
        .unknown_rank = NONE,
        .begun_ns = now_ns,
        .deadline_ns = weft_time_add(now_ns, plain.timeout_ns),
        .ask_ns = pair ? WEFT_NEVER : weft_time_add(now_ns, ask_first(c)),
        .ask_step_ns = ask_first(c),
        .done = {.user = plain.user, .contributors_min = g->n},
    };
    op->segment = op_has_trees(op)
                      ? (struct op_segment *)((uint8_t *)plain.work + work.segments)
                      : op->own_segment;
    if (!pair) {
        g->history[g->next_op % HISTORY] = descriptor;
        g->next_op++;
    }
    c->ops_used++;
    c->counters.begun++;
    c->counters.planned += shape.plan != NULL;
    c->counters.trees += shape.slices == SLICES_TREES;
    list_add(c, &c->open_head, &c->open_tail, slot);
    if (shape.count > 0) {
        op_start(c, op);
    }
    if (pair) {
        weft_coll_pair_begin(c, op);
    } else {
        weft_coll_early_adopt(c, op);
    }
    c->dirty = true;
    without_who_left(c, op);
    weft_coll_op_check(c, op);
    return WEFT_OK;
}

void weft_coll_limit(struct weft_coll *c, uint64_t user, uint64_t deadline_ns)
{
    for (uint32_t i = c->open_head; i != NONE; i = c->op[i].next) {
        struct op *op = &c->op[i];
        if (op->call.user == user && !op->overdue) {
            op->deadline_ns = weft_min_u64(op->deadline_ns, deadline_ns);
        }
    }
}

/* ---- completion ------------------------------------------------------------------------------ */

void weft_coll_segment_here(struct weft_coll *c, struct op *op, uint32_t segment)
{
    if (op_has_trees(op)) {
        weft_coll_trees_reduce(op, segment);
    } else if (op->shape.reduces) {
        weft_coll_reduce(op, segment);
    }
    op->segment[segment].ready = !op_has_trees(op) || weft_coll_trees_root(op, segment);
    c->dirty = true;
    if (--op->segments_left == 0 && op->shape.senders != PARTY_NONE) {
        op->done.contributions_ns = c->now_ns - op->begun_ns;
    }
}

bool weft_coll_op_awaits(const struct op *op, uint32_t index)
{
    const struct shape *s = &op->shape;
    for (uint32_t g = 0; g < s->segments && s->count > 0; g++) {
        for (uint32_t phase = 0; phase < PHASES; phase++) {
            if (shape_elems(s, phase, index, s->me, g) > 0 &&
                !weft_bits_test(op_bits(op, phase, BITS_RECEIVED), op_bit(op, g, index))) {
                return true;
            }
        }
    }
    return false;
}

bool weft_coll_op_needs(const struct op *op, uint32_t index)
{
    const struct shape *s = &op->shape;
    for (uint32_t g = 0; g < s->segments && s->count > 0; g++) {
        for (uint32_t phase = 0; phase < PHASES; phase++) {
            if (shape_elems(s, phase, s->me, index, g) > 0 &&
                !weft_bits_test(op_bits(op, phase, BITS_SENT), op_bit(op, g, index))) {
                return true;
            }
        }
    }
    return weft_coll_op_awaits(op, index);
}

void weft_coll_op_check(struct weft_coll *c, struct op *op)
{
    bool failed = coll_failed(c);
    bool all = op->left2 == 0 && op->unsent_all == 0 && !op->broken && op->unknown == 0 &&
               (op->segments_left == 0 || op->shape.count == 0);
    if (op->state != OP_OPEN || op->unconfirmed > 0 || !(all || failed)) {
        return;
    }
    uint32_t slot = (uint32_t)(op - c->op);
    op->done.status = all ? WEFT_OK : WEFT_PEER;
    op->done.total_ns = c->now_ns - op->begun_ns;
    op->state = OP_DONE;
    list_remove(c, slot);
    list_add(c, &c->done_head, &c->done_tail, slot);
    c->counters.done += all;
}

bool weft_coll_poll(struct weft_coll *c, struct weft_coll_done *done_p)
{
    uint32_t slot = c->done_head;
    if (slot == NONE) {
        return false;
    }
    struct op *op = &c->op[slot];
    c->done_head = op->next;
    op->state = OP_FREE;
    c->ops_used--;
    *done_p = op->done;
    return true;
}
