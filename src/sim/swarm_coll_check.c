/* The final checks of a simulated job of collectives. */
#include "sim/swarm_coll_internal.h"

#include "base/bits.h"
#include "base/prng.h"
#include "coll/fold.h"

#include <inttypes.h>
#include <string.h>

/* ---- values ---------------------------------------------------------------------------------- */

/* Small integers: sums and products over all ranks are exact in every type. If contributions may be
 * missing, either each rank has its own bit or all ranks have the same value. */
double weft_swarm_coll_value(const struct swarm_coll *s, uint32_t o, uint32_t index, uint64_t i)
{
    const struct coll_op *op = &s->op[o];
    uint64_t draw = weft_mix64(s->seed + o * UINT64_C(7919) + index * UINT64_C(104729) + i * 31);
    if (op->bound_ppm > 0 && !op->feedback) {
        return op->reduction == WEFT_COLL_MEAN ? (double)(i % 100) : (double)(1 << index);
    }
    return op->reduction == WEFT_COLL_PRODUCT && coll_reduces(op->kind) ? (double)(draw % 2 + 1)
                                                                        : (double)(draw % 14 + 1);
}

double weft_swarm_coll_get(const void *from, enum weft_coll_type type, uint64_t i)
{
    switch (type) {
    case WEFT_COLL_F32:
        return (double)((const float *)from)[i];
    case WEFT_COLL_F64:
        return ((const double *)from)[i];
    case WEFT_COLL_F16:
        return (double)weft_coll_f16_load(((const uint16_t *)from)[i]);
    case WEFT_COLL_BF16:
        return (double)weft_coll_bf16_load(((const uint16_t *)from)[i]);
    case WEFT_COLL_I8:
        return ((const int8_t *)from)[i];
    case WEFT_COLL_U8:
        return ((const uint8_t *)from)[i];
    case WEFT_COLL_I32:
        return ((const int32_t *)from)[i];
    case WEFT_COLL_I64:
    case WEFT_COLL_TYPES:
        break;
    }
    return (double)((const int64_t *)from)[i];
}

/* Store a value as results are stored: integers wrap, floats are rounded. */
void weft_swarm_coll_put(void *to, enum weft_coll_type type, uint64_t i, double value)
{
    switch (type) {
    case WEFT_COLL_F32:
        ((float *)to)[i] = (float)value;
        break;
    case WEFT_COLL_F64:
        ((double *)to)[i] = value;
        break;
    case WEFT_COLL_F16:
        ((uint16_t *)to)[i] = weft_coll_f16_store((float)value);
        break;
    case WEFT_COLL_BF16:
        ((uint16_t *)to)[i] = weft_coll_bf16_store((float)value);
        break;
    case WEFT_COLL_I8:
    case WEFT_COLL_U8:
        ((uint8_t *)to)[i] = (uint8_t)(int64_t)value;
        break;
    case WEFT_COLL_I32:
        ((int32_t *)to)[i] = (int32_t)value;
        break;
    case WEFT_COLL_I64:
    case WEFT_COLL_TYPES:
        ((int64_t *)to)[i] = (int64_t)value;
        break;
    }
}

static double reduced(const struct swarm_coll *s, uint32_t o, uint64_t i)
{
    const struct coll_op *op = &s->op[o];
    uint32_t n = s->members[op->group];
    double acc = weft_swarm_coll_value(s, o, 0, i);
    for (uint32_t k = 1; k < n; k++) {
        double x = weft_swarm_coll_value(s, o, k, i);
        switch (op->reduction) {
        case WEFT_COLL_MIN:
            acc = x < acc ? x : acc;
            break;
        case WEFT_COLL_MAX:
            acc = x > acc ? x : acc;
            break;
        case WEFT_COLL_PRODUCT:
            acc *= x;
            break;
        case WEFT_COLL_AND:
            acc = (double)((int64_t)acc & (int64_t)x);
            break;
        case WEFT_COLL_OR:
            acc = (double)((int64_t)acc | (int64_t)x);
            break;
        case WEFT_COLL_XOR:
            acc = (double)((int64_t)acc ^ (int64_t)x);
            break;
        default:
            acc += x;
            break;
        }
    }
    bool narrow = op->type != WEFT_COLL_F64;
    if (op->reduction == WEFT_COLL_MEAN) {
        return narrow ? (double)((float)acc / (float)n) : acc / n;
    }
    return acc;
}

/* The expected value of element i of out at member `index`; false: it has no out. */
static bool expected(const struct swarm_coll *s, uint32_t o, uint32_t index, uint64_t i,
                     double *value_p)
{
    const struct coll_op *op = &s->op[o];
    uint64_t count = op->count;
    bool root = index == op->root;
    switch (op->kind) {
    case WEFT_COLL_ALL_REDUCE:
    case WEFT_COLL_REDUCE:
        *value_p = reduced(s, o, i);
        return op->kind != WEFT_COLL_REDUCE || root;
    case WEFT_COLL_REDUCE_SCATTER:
        *value_p = reduced(s, o, index * count + i);
        return true;
    case WEFT_COLL_ALL_GATHER:
    case WEFT_COLL_GATHER:
        *value_p = weft_swarm_coll_value(s, o, (uint32_t)(i / count), i % count);
        return op->kind != WEFT_COLL_GATHER || root;
    case WEFT_COLL_BROADCAST:
        *value_p = weft_swarm_coll_value(s, o, op->root, i);
        return true;
    case WEFT_COLL_SCATTER:
        *value_p = weft_swarm_coll_value(s, o, op->root, index * count + i);
        return true;
    case WEFT_COLL_ALL_TO_ALL:
        *value_p = weft_swarm_coll_value(s, o, (uint32_t)(i / count), index * count + i % count);
        return true;
    case WEFT_COLL_SEND:
    case WEFT_COLL_RECV:
        *value_p = weft_swarm_coll_value(s, o, op->root, i);
        return index == op->receiver;
    case WEFT_COLL_BARRIER:
    case WEFT_COLL_KINDS:
        break;
    }
    return false;
}

/* ---- one operation --------------------------------------------------------------------------- */

static const struct coll_rank *member_of(const struct swarm_coll *s, uint32_t o, uint32_t index)
{
    return &s->rank[s->member[s->op[o].group][index]];
}

static void check_exact(struct swarm_coll *s, uint32_t o)
{
    const struct coll_op *op = &s->op[o];
    uint64_t elems = coll_out_elems(s, op);
    for (uint32_t k = 0; k < s->members[op->group]; k++) {
        const struct coll_rank *rank = member_of(s, o, k);
        for (uint64_t i = 0; i < elems; i++) {
            double value;
            if (!rank->done[o] || rank->result[o].status != WEFT_OK ||
                !expected(s, o, k, i, &value)) {
                break;
            }
            uint64_t want = 0, is = 0; /* in the type, so that all bits are compared */
            uint32_t bytes = weft_coll_type_bytes(op->type);
            weft_swarm_coll_put(&want, op->type, 0, value);
            memcpy(&is, (const uint8_t *)rank->out[o] + i * bytes, bytes);
            if (is != want) {
                weft_world_fail(s->world,
                                "operation %" PRIu32 ": member %" PRIu32 " has %.9g at %" PRIu64
                                ", not %.9g",
                                o, k, weft_swarm_coll_get(rank->out[o], op->type, i), i, value);
                return;
            }
        }
    }
}

/* The rank whose out has element i of the vector, or of all blocks in sequence, and its position
 * there. */
static const struct coll_rank *holder(const struct swarm_coll *s, uint32_t o, uint64_t i,
                                      uint64_t *at_p)
{
    const struct coll_op *op = &s->op[o];
    bool scattered = op->kind == WEFT_COLL_REDUCE_SCATTER;
    uint32_t index = scattered                      ? (uint32_t)(i / op->count)
                     : op->kind == WEFT_COLL_REDUCE ? op->root
                                                    : 0;
    *at_p = scattered ? i % op->count : i;
    return member_of(s, o, index);
}

/* Each element of the result is a sum of some contributions, or a mean that does not depend on
 * which are missing. The missing parts of the sums must equal those reported to the
 * contributors. */
static void check_lossy(struct swarm_coll *s, uint32_t o)
{
    const struct coll_op *op = &s->op[o];
    uint32_t n = s->members[op->group];
    uint64_t missing = 0, told = 0;
    for (uint64_t i = 0; i < coll_in_elems(s, op); i++) {
        uint64_t at;
        const struct coll_rank *rank = holder(s, o, i, &at);
        double is = weft_swarm_coll_get(rank->out[o], op->type, at);
        uint32_t set = (uint32_t)is;
        bool good = op->reduction == WEFT_COLL_MEAN
                        ? is == (double)(i % 100)
                        : (double)set == is && set > 0 && set < UINT32_C(1) << n;
        if (!good) {
            weft_world_fail(s->world,
                            "operation %" PRIu32 ": %.9g at %" PRIu64 " is not a set of ranks", o,
                            is, i);
            return;
        }
        missing += n - (uint32_t)__builtin_popcount(set);
    }
    for (uint32_t k = 0; k < n; k++) {
        told += member_of(s, o, k)->result[o].own_missing;
    }
    if (op->reduction == WEFT_COLL_SUM && missing != told) {
        weft_world_fail(s->world,
                        "operation %" PRIu32 ": %" PRIu64 " elements are missing, %" PRIu64 " told",
                        o, missing, told);
    }
}

/* The inputs must equal the outputs plus the residuals. */
static void check_feedback(struct swarm_coll *s, uint32_t o)
{
    const struct coll_op *op = &s->op[o];
    uint32_t n = s->members[op->group];
    for (uint64_t i = 0; i < coll_in_elems(s, op); i++) {
        uint64_t at;
        double put = 0, kept = 0;
        for (uint32_t k = 0; k < n; k++) {
            const struct coll_rank *rank = member_of(s, o, k);
            put += weft_swarm_coll_value(s, o, k, i) + (double)rank->residual_before[o][i];
            kept += (double)rank->residual[o][i];
        }
        const struct coll_rank *rank = holder(s, o, i, &at);
        double out = weft_swarm_coll_get(rank->out[o], op->type, at);
        float want = (float)(put - kept);
        want = op->reduction == WEFT_COLL_MEAN ? want / (float)n : want;
        if (out != (double)want) {
            weft_world_fail(s->world,
                            "operation %" PRIu32 ": %.9g came out at %" PRIu64
                            ", of %.9g put in %.9g is kept",
                            o, out, i, put, kept);
            return;
        }
    }
}

/* The results of an all_reduce are bit-identical at all ranks, whatever is missing. */
static void check_equal(struct swarm_coll *s, uint32_t o)
{
    const struct coll_op *op = &s->op[o];
    size_t bytes = coll_out_elems(s, op) * weft_coll_type_bytes(op->type);
    const struct coll_rank *first = NULL;
    for (uint32_t k = 0; k < s->members[op->group]; k++) {
        const struct coll_rank *rank = member_of(s, o, k);
        if (!rank->done[o] || rank->result[o].status != WEFT_OK) {
            continue;
        }
        if (first != NULL && memcmp(first->out[o], rank->out[o], bytes) != 0) {
            weft_world_fail(s->world, "operation %" PRIu32 ": member %" PRIu32 " has other bits", o,
                            k);
        }
        first = rank;
    }
}

static void check_op(struct swarm_coll *s, uint32_t o)
{
    const struct coll_op *op = &s->op[o];
    bool all = true;
    for (uint32_t k = 0; k < s->members[op->group]; k++) {
        const struct coll_rank *rank = member_of(s, o, k);
        all &= !coll_takes_part(op, k) || (rank->done[o] && rank->result[o].status == WEFT_OK);
    }
    if (op->kind == WEFT_COLL_ALL_REDUCE && op->count > 0) {
        check_equal(s, o);
    }
    if (op->bound_ppm == 0 && !op->feedback) {
        check_exact(s, o);
    } else if (all && op->feedback) {
        check_feedback(s, o);
    } else if (all) {
        check_lossy(s, o);
    }
    if (!all && s->end == COLL_END_WELL) {
        weft_world_fail(s->world, "operation %" PRIu32 " has not succeeded, but no rank failed", o);
    }
}

/* ---- the failure ----------------------------------------------------------------------------- */

static bool right_failure(const struct swarm_coll *s, const struct weft_coll_failure *f)
{
    static const enum weft_coll_reason reasons[COLL_ENDS] = {
        WEFT_COLL_FINE, WEFT_COLL_DOWN, WEFT_COLL_MISMATCH, WEFT_COLL_TIMEOUT, WEFT_COLL_ABORTED};
    bool named = f->rank == s->culprit || (s->end == COLL_END_MISMATCH && f->by == s->culprit);
    return s->end != COLL_END_WELL && f->reason == reasons[s->end] && named;
}

/* While the network has faults, a rank may not receive a failure within the time that the others
 * take to report it; it then reports that one of them has left. */
static bool follows(const struct swarm_coll *s, const struct weft_coll_failure *f)
{
    bool gone = f->reason == WEFT_COLL_LEFT ||
                (f->reason == WEFT_COLL_DOWN && f->down == WEFT_DOWN_RESTARTED) ||
                (f->reason == WEFT_COLL_DOWN && coll_silent_closes(s));
    const struct coll_rank *rank = &s->rank[f->rank];
    return gone && rank->failed_ns > 0 && rank->failed_ns < s->plan.heal_ns;
}

static void check_failures(struct swarm_coll *s)
{
    for (uint32_t r = 0; r < s->n; r++) {
        const struct weft_coll_failure *f = weft_coll_failure(s->rank[r].coll);
        bool dead = s->end == COLL_END_DEATH && r == s->culprit;
        bool failed = f->reason != WEFT_COLL_FINE;
        if (failed && !dead && !right_failure(s, f) && !follows(s, f)) {
            char text[200];
            weft_coll_failure_text(f, text, sizeof(text));
            weft_world_fail(s->world, "rank %" PRIu32 " says: %s", r, text);
        }
        for (uint32_t o = 0; o < s->ops && !dead; o++) {
            if (s->rank[r].done[o] && s->rank[r].result[o].status != WEFT_OK && !failed) {
                weft_world_fail(s->world,
                                "rank %" PRIu32 ": operation %" PRIu32 " failed without a reason",
                                r, o);
            }
        }
        bool must =
            s->end == COLL_END_MISMATCH || s->end == COLL_END_TIMEOUT || s->end == COLL_END_ABORT;
        /* A rank that has finished may not have been notified. */
        bool escaped = s->rank[r].next == s->ops && s->rank[s->culprit].failed_ns < s->plan.heal_ns;
        if (must && !escaped && !failed) {
            weft_world_fail(s->world, "rank %" PRIu32 " has not failed", r);
        }
        if (weft_coll_counters(s->rank[r].coll)->peers_refused > 0) {
            weft_world_fail(s->world, "rank %" PRIu32 " has refused a peer", r);
        }
    }
}

void weft_swarm_coll_check(struct swarm_coll *s)
{
    check_failures(s);
    for (uint32_t o = 0; o < s->ops; o++) {
        check_op(s, o);
    }
}
