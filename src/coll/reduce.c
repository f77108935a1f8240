/* Reduction of contributions to a result, and update of the residual with the part of this rank's
 * contribution that did not arrive.
 *
 * Error feedback: the residual is also the send buffer. At the beginning `in` is added to it. When
 * the owner has received a chunk, that chunk is set to zero; a missing chunk keeps its values. Lost
 * values are thus kept even if phase 2 overwrites `in` before the sender knows which chunks were
 * lost. */
#include "coll/internal.h"

#include "coll/fold.h"

enum { MISSED_LIMIT = 2 };

/* ---- the result ------------------------------------------------------------------------------ */

static uint8_t *result_at(const struct op *op, struct part part)
{
    const struct shape *s = &op->shape;
    uint64_t at = part.at * s->elem_bytes;
    uint8_t *out = op->call.out;
    if (s->kind == WEFT_COLL_REDUCE_SCATTER) {
        return out + at;
    }
    if (s->kind == WEFT_COLL_REDUCE && s->me != s->root) {
        return (uint8_t *)op->call.work + op->work.result + at;
    }
    return out + weft_coll_slice_at(s, s->me) * s->elem_bytes + at;
}

static const uint8_t *own_at(const struct op *op, struct part part)
{
    const struct shape *s = &op->shape;
    if (s->slices == SLICES_WHOLE) {
        return (const uint8_t *)op->call.work + op->work.copy + part.at * s->elem_bytes;
    }
    const uint8_t *in =
        op->call.residual != NULL ? (const uint8_t *)op->call.residual : op->call.in;
    return in + (weft_coll_slice_at(s, s->me) + part.at) * s->elem_bytes;
}

/* Reduce elements [at, at + elems) of a segment, without the ranks whose grain is missing. */
static uint32_t reduce_range(struct op *op, uint32_t segment, uint64_t at, uint64_t elems,
                             bool gaps)
{
    const struct shape *s = &op->shape;
    struct part part = weft_coll_part(s, s->me, segment);
    const void *from[WEFT_COLL_RANKS_MAX];
    uint32_t sources = 0;
    uint64_t grain = (part.at + at) / WEFT_COLL_GRAIN;
    for (uint32_t i = 0; i < s->n; i++) {
        if (i == s->me) {
            from[sources++] = own_at(op, part) + at * s->elem_bytes;
        } else if (!gaps || weft_bits_test(weft_coll_mask(op, i), grain)) {
            from[sources++] = weft_coll_place(op, PHASE_1, segment, i) + at * s->elem_bytes;
        }
    }
    weft_coll_fold(op->call.type, op->call.reduction, result_at(op, part) + at * s->elem_bytes,
                   from, sources, elems, op->divisor > 0 ? op->divisor : sources);
    return sources;
}

/* The order of the ranks, as in reduce_range: the results are the same. */
void weft_coll_reduce_chunk(struct op *op, uint32_t segment, uint64_t at, uint64_t elems,
                            const uint8_t *data)
{
    const struct shape *s = &op->shape;
    struct part part = weft_coll_part(s, s->me, segment);
    const void *from[2];
    from[s->me] = own_at(op, part) + at * s->elem_bytes;
    from[1 - s->me] = data;
    weft_coll_fold(op->call.type, op->call.reduction, result_at(op, part) + at * s->elem_bytes,
                   from, 2, elems, op->divisor > 0 ? op->divisor : 2);
}

static uint64_t zero_if_infinite(float *values, uint64_t n)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (values[i] - values[i] != 0) {
            values[i] = 0;
            count++;
        }
    }
    return count;
}

void weft_coll_reduce(struct op *op, uint32_t segment)
{
    const struct shape *s = &op->shape;
    struct part part = weft_coll_part(s, s->me, segment);
    const struct op_segment *g = &op->segment[segment];
    uint64_t step = g->gaps ? WEFT_COLL_GRAIN : part.elems;
    for (uint64_t at = 0; at < part.elems && !g->direct; at += step) {
        uint64_t elems = weft_min_u64(step, part.elems - at);
        uint32_t sources = reduce_range(op, segment, at, elems, g->gaps);
        op->done.contributors_min = (uint32_t)weft_min_u64(op->done.contributors_min, sources);
    }
    if (op->call.residual != NULL && s->slices != SLICES_WHOLE && part.elems > 0) {
        float *own = op->call.residual + weft_coll_slice_at(s, s->me) + part.at;
        memset(own, 0, part.elems * sizeof(*own));
    }
}

/* ---- data to send ---------------------------------------------------------------------------- */

void weft_coll_residual_add(struct op *op)
{
    const struct shape *s = &op->shape;
    uint64_t elems = s->slices == SLICES_BLOCKS ? s->count * s->n : s->count;
    const float *in = op->call.in;
    for (uint64_t i = 0; i < elems; i++) {
        op->call.residual[i] += in[i];
    }
}

const uint64_t *weft_coll_critical(struct weft_coll *c, const struct op *op, uint32_t segment,
                                   uint32_t index, uint32_t chunk_elems)
{
    const struct shape *s = &op->shape;
    if (op->call.missed == NULL || op->call.residual == NULL || chunk_elems < WEFT_COLL_GRAIN) {
        return NULL;
    }
    struct part part = weft_coll_part(s, index, segment);
    const uint8_t *missed = op->call.missed + weft_coll_grain(s, index, part.at);
    uint64_t grains = weft_div_ceil_u64(part.elems, WEFT_COLL_GRAIN);
    uint64_t chunks = weft_div_ceil_u64(part.elems, chunk_elems);
    bool any = false;
    memset(c->critical, 0, WEFT_BITS_WORDS(chunks) * sizeof(*c->critical));
    for (uint64_t i = 0; i < grains; i++) {
        if (missed[i] >= MISSED_LIMIT) {
            weft_bits_set(c->critical, i * WEFT_COLL_GRAIN / chunk_elems);
            any = true;
        }
    }
    return any ? c->critical : NULL;
}

/* ---- arrived parts --------------------------------------------------------------------------- */

static void feed_back(struct op *op, uint32_t segment, uint32_t index, uint64_t at, uint64_t elems,
                      bool arrived)
{
    const struct shape *s = &op->shape;
    struct part part = weft_coll_part(s, index, segment);
    float *values = op->call.residual + weft_coll_slice_at(s, index) + part.at + at;
    if (arrived) {
        memset(values, 0, elems * sizeof(*values));
    } else {
        op->done.nonfinite += zero_if_infinite(values, elems);
    }
    if (op->call.missed == NULL) {
        return;
    }
    uint8_t *missed = op->call.missed + weft_coll_grain(s, index, part.at + at);
    uint64_t grains = weft_div_ceil_u64(elems, WEFT_COLL_GRAIN);
    for (uint64_t i = 0; i < grains; i++) {
        missed[i] = arrived ? 0 : (uint8_t)weft_min_u64(missed[i] + 1u, UINT8_MAX);
    }
}

void weft_coll_contributed(struct weft_coll *c, struct op *op, const struct weft_msg_event *event,
                           uint32_t segment, uint32_t index)
{
    bool whole = event->received == event->chunks;
    if ((whole && op->call.residual == NULL) || op->shape.slices == SLICES_WHOLE) {
        return;
    }
    uint64_t nonfinite = op->done.nonfinite;
    for (uint32_t i = 0; i < event->chunks; i++) {
        uint64_t at = (uint64_t)i * event->chunk_elems;
        uint64_t elems = weft_min_u64(event->chunk_elems, event->total - at);
        bool arrived = whole || weft_bits_test(event->mask, i);
        op->done.own_missing += arrived ? 0 : elems;
        c->counters.own_elements_missing += arrived ? 0 : elems;
        if (op->call.residual != NULL) {
            feed_back(op, segment, index, at, elems, arrived);
        }
    }
    c->counters.nonfinite += op->done.nonfinite - nonfinite;
}
