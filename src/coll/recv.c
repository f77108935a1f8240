/* Data messages: their operations and destinations. weft_coll_data_open checks the fields of
 * a message against this rank's calls; for an early message early.c does so once the operation is
 * called. */
#include "coll/internal.h"

uint64_t weft_coll_tag_pack(uint32_t kind, struct tag tag)
{
    return (uint64_t)kind << TAG_KIND_SHIFT | (uint64_t)tag.group << TAG_GROUP_SHIFT |
           (uint64_t)(tag.op & TAG_OP_MASK) << TAG_OP_SHIFT |
           (uint64_t)tag.segment << TAG_SEGMENT_SHIFT | (uint64_t)tag.signature << 1 | tag.phase;
}

struct tag weft_coll_tag_unpack(uint64_t tag)
{
    return (struct tag){
        .group = tag >> TAG_GROUP_SHIFT & TAG_GROUP_MASK,
        .op = tag >> TAG_OP_SHIFT & TAG_OP_MASK,
        .segment = tag >> TAG_SEGMENT_SHIFT & TAG_SEGMENT_MASK,
        .signature = tag >> 1 & 0x7fff,
        .phase = tag & 1,
    };
}

/* ---- destination ----------------------------------------------------------------------------- */

uint8_t *weft_coll_place(const struct op *op, uint32_t phase, uint32_t segment, uint32_t index)
{
    const struct shape *s = &op->shape;
    if (op_has_trees(op) && phase == PHASE_1) {
        return weft_coll_trees_place(op, segment, index);
    }
    uint8_t *out = op->call.out;
    uint32_t slice = phase == PHASE_1 ? s->me : index;
    struct part part = weft_coll_part(s, slice, segment);
    uint64_t at = part.at * s->elem_bytes;
    if (phase == PHASE_2) {
        return out + weft_coll_slice_at(s, slice) * s->elem_bytes + at;
    }
    if (s->reduces) {
        uint32_t row = index < s->me ? index : index - 1;
        return (uint8_t *)op->call.work + op->work.staging + row * op->work.stage_bytes + at;
    }
    switch (s->landing) {
    case LAND_BY_SENDER:
        return out + index * s->count * s->elem_bytes + at;
    case LAND_AT_START:
        return out + at;
    case LAND_STAGED:
    case LAND_IN_SLICE:
        break;
    }
    return out + weft_coll_slice_at(s, slice) * s->elem_bytes + at;
}

void weft_coll_land(struct op *op, uint32_t phase, uint32_t segment, uint32_t index, uint64_t at,
                    const uint8_t *data, uint64_t bytes)
{
    uint32_t elem_bytes = op->shape.elem_bytes;
    if (phase == PHASE_1 && op->segment[segment].direct) {
        weft_coll_reduce_chunk(op, segment, at / elem_bytes, bytes / elem_bytes, data);
    } else {
        memcpy(weft_coll_place(op, phase, segment, index) + at, data, bytes);
    }
}

bool weft_coll_fits(const struct op *op, struct tag tag, uint32_t index, uint32_t total,
                    uint32_t elem_bytes)
{
    const struct shape *s = &op->shape;
    return tag.signature == op->signature && tag.segment < s->segments &&
           elem_bytes == s->elem_bytes && total > 0 &&
           shape_elems(s, tag.phase, index, s->me, tag.segment) == total &&
           !weft_bits_test(op_bits(op, tag.phase, BITS_OPENED), op_bit(op, tag.segment, index));
}

/* ---- received grains ------------------------------------------------------------------------- */

uint64_t *weft_coll_mask(const struct op *op, uint32_t index)
{
    return (uint64_t *)((uint8_t *)op->call.work + op->work.masks) + index * op->work.mask_words;
}

/* chunk_mask NULL: the message is complete. Chunks must begin on grain boundaries. */
void weft_coll_mask_put(struct weft_coll *c, struct op *op, uint32_t segment, uint32_t index,
                        const uint64_t *chunk_mask, uint32_t chunk_elems, uint32_t total)
{
    struct part part = weft_coll_part(&op->shape, op->shape.me, segment);
    uint64_t *mask = weft_coll_mask(op, index);
    uint64_t first = part.at / WEFT_COLL_GRAIN;
    uint64_t grains = weft_div_ceil_u64(total, WEFT_COLL_GRAIN);
    for (uint64_t i = 0; i < grains; i++) {
        if (chunk_mask == NULL || weft_bits_test(chunk_mask, i * WEFT_COLL_GRAIN / chunk_elems)) {
            weft_bits_set(mask, first + i);
        } else {
            op->segment[segment].gaps = true;
            c->counters.elements_missing +=
                weft_min_u64(WEFT_COLL_GRAIN, total - i * WEFT_COLL_GRAIN);
        }
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

void weft_coll_arrived(struct weft_coll *c, struct op *op, uint32_t phase, uint32_t segment,
                       uint32_t index)
{
    weft_bits_set(op_bits(op, phase, BITS_RECEIVED), op_bit(op, segment, index));
    if (phase == PHASE_2) {
        op->left2--;
        if (op_has_trees(op)) { /* its children get it */
            op->segment[segment].ready = true;
            c->dirty = true;
        }
    } else if (--op->segment[segment].left1 == 0) {
        weft_coll_segment_here(c, op, segment);
    }
}

static void take(struct weft_coll *c, const struct weft_msg_event *event, struct user user)
{
    c->msgr.ops->set_user(c->msgr.self, event->peer, event->seq, user_pack(user));
}

void weft_coll_data_open(struct weft_coll *c, uint32_t rank, const struct weft_msg_event *event)
{
    struct tag tag = weft_coll_tag_unpack(event->tag);
    if (coll_failed(c) || rank == NONE) {
        c->counters.ignored++;
        return;
    }
    if (tag.group >= c->config.groups_max) {
        weft_coll_fail_rank(c, WEFT_COLL_PROTOCOL, rank, NULL);
        return;
    }
    struct group *g = &c->group[tag.group];
    uint32_t number = weft_coll_op_number(g, tag.op);
    weft_coll_entered(c, tag.group, rank, number + 1);
    if (!op_before(number, g->next_op)) {
        weft_coll_early_open(c, rank, event, tag, number);
        return;
    }
    struct op *op = weft_coll_find(c, tag.group, number);
    uint32_t index = g->index_of[rank];
    if (op == NULL || index == NONE || op->call.count == 0 ||
        !weft_coll_fits(op, tag, index, event->total, event->elem_bytes)) {
        weft_coll_mismatch(c, rank, tag.group, number);
        return;
    }
    weft_bits_set(op_bits(op, tag.phase, BITS_OPENED), op_bit(op, tag.segment, index));
    take(c, event,
         (struct user){.type = USER_OP,
                       .slot = (uint32_t)(op - c->op),
                       .life = op->life,
                       .phase = tag.phase,
                       .segment = tag.segment,
                       .index = index});
}

static struct op *op_of(struct weft_coll *c, struct user user)
{
    struct op *op = &c->op[user.slot];
    return op->state == OP_OPEN && op->life == user.life && !coll_failed(c) ? op : NULL;
}

void weft_coll_data_chunk(struct weft_coll *c, uint32_t rank, const struct weft_msg_event *event)
{
    (void)rank;
    struct user user = user_unpack(event->user);
    if (user.type == USER_EARLY) {
        weft_coll_early_chunk(c, user.slot, event);
        return;
    }
    struct op *op = user.type == USER_OP ? op_of(c, user) : NULL;
    if (op == NULL) {
        return;
    }
    uint64_t at = (uint64_t)event->chunk * event->chunk_elems * event->elem_bytes;
    uint64_t bytes = (uint64_t)event->elems * event->elem_bytes;
    weft_coll_land(op, user.phase, user.segment, user.index, at, event->data, bytes);
}

/* A message may have missing chunks only in phase 1 of a lossy operation, and only if its chunks
 * begin on grain boundaries: otherwise its sender did not allow loss. */
bool weft_coll_missing_valid(const struct op *op, uint32_t phase, bool whole, bool complete,
                             uint32_t chunk_elems)
{
    bool may = phase == PHASE_1 && op->lossy && chunk_elems % WEFT_COLL_GRAIN == 0;
    return whole || (complete && may);
}

void weft_coll_data_received(struct weft_coll *c, uint32_t rank, const struct weft_msg_event *event)
{
    struct user user = user_unpack(event->user);
    if (user.type == USER_EARLY) {
        weft_coll_early_received(c, user.slot, event);
        return;
    }
    struct op *op = user.type == USER_OP ? op_of(c, user) : NULL;
    if (op == NULL) {
        return;
    }
    if (event->outcome == WEFT_MSG_SHORT && event->sender_gone) {
        op->broken = true; /* PEER_DOWN follows */
        return;
    }
    bool whole = event->received == event->chunks;
    if (!weft_coll_missing_valid(op, user.phase, whole, event->outcome == WEFT_MSG_COMPLETE,
                                 event->chunk_elems)) {
        weft_coll_fail_rank(c, WEFT_COLL_PROTOCOL, rank, op);
        return;
    }
    if (user.phase == PHASE_1 && op->lossy) {
        weft_coll_mask_put(c, op, user.segment, user.index, whole ? NULL : event->mask,
                           event->chunk_elems, event->total);
    }
    weft_coll_arrived(c, op, user.phase, user.segment, user.index);
    weft_coll_op_check(c, op);
}
