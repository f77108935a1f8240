/* Selection of the next message: oldest operation first, phase 1 before phase 2, segment by
 * segment. Each rank sends to the others in turn, starting with the next rank, so that not all send
 * to the same one. The transport keeps this order by priority, and by age for messages of equal
 * length.
 *
 * Phase 1 is first: otherwise an owner that has all contributions early fills its uplink with
 * results while others wait for its contributions; these ranks then finish last, and must still
 * send all of their results. Measured: 1.18 times the ideal instead of 1.08 with 8 ranks, 1.6
 * without segments.
 *
 * The number of concurrent receivers is limited: otherwise, with 64 ranks, each rank has 63
 * concurrent senders, and each of them gets little credit. Measured: 1.31 times the ideal instead
 * of 1.15. See docs/COLLECTIVES.md.
 */
#include "coll/internal.h"

enum {
    PRIORITY_CONTROL = 0,
    PRIORITY_FIRST = 1,
    PRIORITY_LAST = 7,
    EVEN_BYTES_MIN = 16384, /* chunks from this length on are made equally long */
};

static const uint8_t *source_of(const struct op *op, uint32_t phase, uint32_t segment,
                                uint32_t slice, struct part part)
{
    const struct shape *s = &op->shape;
    const struct weft_coll_call *call = &op->call;
    const uint8_t *work = call->work;
    const uint8_t *in = call->residual != NULL ? (const uint8_t *)call->residual : call->in;
    uint64_t at = (weft_coll_slice_at(s, slice) + part.at) * s->elem_bytes;
    if (phase == PHASE_1 && op_has_trees(op)) {
        return (op->segment[segment].sums ? (const uint8_t *)call->out : in) + at;
    }
    if (phase == PHASE_1) {
        bool small = s->reduces && s->slices == SLICES_WHOLE;
        return small ? work + op->work.copy + at : in + at;
    }
    switch (s->kind) {
    case WEFT_COLL_ALL_GATHER:
    case WEFT_COLL_GATHER:
        return in + part.at * s->elem_bytes;
    case WEFT_COLL_BROADCAST:
        return (s->me == s->root ? in : (const uint8_t *)call->out) + at;
    case WEFT_COLL_REDUCE:
        return work + op->work.result + part.at * s->elem_bytes;
    default:
        return (const uint8_t *)call->out + at;
    }
}

/* True if this rank may send to that rank, even if that rank has not called the operation yet. */
static bool may_run_ahead(const struct weft_coll *c, const struct op *op, uint32_t rank,
                          uint64_t pages)
{
    const struct member *m = &c->group[op->call.group].member[rank];
    uint32_t number = op->number;
    if (weft_coll_is_pair(op->call.kind)) {
        return op->matched;
    }
    return op_before(number, m->entered) ||
           (number - m->entered < EARLY_OPS && c->rank[rank].early_pages + pages <= c->quota_pages);
}

static void ran_ahead(struct weft_coll *c, const struct op *op, uint32_t rank, uint64_t pages)
{
    struct member *m = &c->group[op->call.group].member[rank];
    if (!weft_coll_is_pair(op->call.kind) && !op_before(op->number, m->entered)) {
        m->early_pages[op->number % EARLY_OPS] += (uint16_t)pages;
        c->rank[rank].early_pages += (uint32_t)pages;
    }
}

struct outgoing {
    struct op *op;
    uint32_t slot;
    uint32_t phase;
    uint32_t segment;
    uint8_t priority;
};

/* Elements of a chunk; 0: the transport decides. Long chunks, as between processes of one host, are
 * made equally long: the rest of a segment in a packet of its own would cost nearly as much as a
 * full packet. Grains are not divided. */
static uint32_t layout_set(struct weft_coll *c, struct weft_msg_send *send)
{
    uint32_t elems = c->msgr.ops->chunk_elems(c->msgr.self, send->peer, send->elem_bytes);
    if ((uint64_t)elems * send->elem_bytes < EVEN_BYTES_MIN || elems % WEFT_COLL_GRAIN != 0) {
        return elems;
    }
    uint64_t chunks = weft_div_ceil_u64(send->total, elems);
    uint64_t grains = weft_div_ceil_u64(weft_div_ceil_u64(send->total, chunks), WEFT_COLL_GRAIN);
    send->chunk_elems = (uint16_t)(grains * WEFT_COLL_GRAIN);
    return send->chunk_elems;
}

/* Loss within a chunk that does not begin on a grain cannot be recorded per grain: such a message
 * must be complete. */
static void bound_set(struct weft_coll *c, const struct outgoing *o, uint32_t index, uint32_t elems,
                      struct weft_msg_send *send)
{
    const struct op *op = o->op;
    if (o->phase != PHASE_1 || !op->lossy || elems == 0 ||
        (elems % WEFT_COLL_GRAIN != 0 && send->total > elems)) {
        return;
    }
    send->bound_ppm = op->call.bound_ppm;
    send->stream = op->call.group << 20 ^ op->call.stream;
    if (weft_div_ceil_u64(send->total, elems) <= c->config.chunks_max) {
        send->critical_mask = weft_coll_critical(c, op, o->segment, index, elems);
        send->chunk_elems = send->critical_mask != NULL ? (uint16_t)elems : send->chunk_elems;
    }
}

static uint64_t tag_of(const struct outgoing *o)
{
    const struct op *op = o->op;
    if (weft_coll_is_pair(op->call.kind)) {
        return weft_coll_pair_tag(op, o->segment);
    }
    return weft_coll_tag_pack(TAG_DATA, (struct tag){.group = op->call.group,
                                                     .op = op->number,
                                                     .segment = o->segment,
                                                     .signature = op->signature,
                                                     .phase = o->phase});
}

static weft_status send_data(struct weft_coll *c, const struct outgoing *o, uint32_t index,
                             uint32_t peer)
{
    struct op *op = o->op;
    const struct shape *s = &op->shape;
    uint32_t slice = op_has_trees(op) ? 0 : shape_slice(s, o->phase, s->me, index);
    struct part part = weft_coll_part(s, slice, o->segment);
    struct weft_msg_send send = {
        .peer = peer,
        .base = source_of(op, o->phase, o->segment, slice, part),
        .total = part.elems,
        .elem_bytes = (uint16_t)s->elem_bytes,
        .priority = o->priority,
        /* Slices of a root and segments of trees are excluded, because others forward them. */
        .together = !op_has_trees(op) && (o->phase == PHASE_2 || s->senders == PARTY_ALL),
        .tag = tag_of(o),
        .deadline_ns = WEFT_NEVER,
        .user = user_pack((struct user){.type = USER_OP,
                                        .slot = o->slot,
                                        .life = op->life,
                                        .phase = o->phase,
                                        .segment = o->segment,
                                        .index = index}),
    };
    bound_set(c, o, index, layout_set(c, &send), &send);
    uint64_t seq;
    weft_status status = c->msgr.ops->send(c->msgr.self, &send, c->now_ns, &seq);
    if (status == WEFT_OK) {
        c->counters.messages_sent++;
        c->counters.bytes_sent += (uint64_t)send.total * send.elem_bytes;
    }
    return status;
}

/* Returns false if nothing can be sent to any rank now. */
static bool send_to(struct weft_coll *c, const struct outgoing *o, uint32_t index)
{
    struct op *op = o->op;
    struct group *g = &c->group[op->call.group];
    uint32_t rank = g->ranks[index];
    struct rank *r = &c->rank[rank];
    uint64_t *sent = op_bits(op, o->phase, BITS_SENT);
    uint32_t bit = op_bit(op, o->segment, index);
    uint32_t elems = shape_elems(&op->shape, o->phase, op->shape.me, index, o->segment);
    uint64_t pages = elems > 0 ? pages_for(elems, op->shape.elem_bytes) : 0;
    if (elems == 0 || weft_bits_test(sent, bit) || r->state != RANK_UP || r->inflight >= DATA_MAX ||
        !may_run_ahead(c, op, rank, pages)) {
        return true;
    }
    if (r->inflight == 0 && c->config.receivers_max > 0 &&
        c->receivers >= c->config.receivers_max) {
        return true;
    }
    weft_status status = send_data(c, o, index, r->peer);
    if (status == WEFT_INVALID) {
        weft_coll_fail_rank(c, WEFT_COLL_TOO_LONG, c->config.rank, op);
        return false;
    }
    if (status != WEFT_OK) {
        return true; /* AGAIN; or PEER, whose event will follow */
    }
    weft_bits_set(sent, bit);
    op->segment[o->segment].unsent[o->phase]--;
    op->unsent_all--;
    op->unconfirmed++;
    c->receivers += r->inflight == 0;
    r->inflight++;
    ran_ahead(c, op, rank, pages);
    return true;
}

/* Segment number i in the order of sending. The fraction of a chunk that the bound of one message
 * leaves goes to the next message, of the next segment (core/bound.h). With the same order in each
 * operation, and a bound of half a chunk for each of two segments, all losses were those of the
 * second segment, at twice the bound. So where parts may be missing, each operation begins with
 * another segment, the same at all ranks. */
static uint32_t segment_at(const struct op *op, uint32_t phase, uint32_t i)
{
    bool varies = phase == PHASE_1 && op->lossy;
    uint64_t first = varies ? weft_mix64(op->number) % op->shape.segments : 0;
    return (uint32_t)((first + i) % op->shape.segments);
}

/* Phase 1 of trees: a rank sends the sum of its children and itself. */
static bool may_send(const struct op *op, uint32_t phase, uint32_t segment)
{
    const struct op_segment *s = &op->segment[segment];
    bool has = phase == PHASE_2 ? s->ready : !op_has_trees(op) || s->left1 == 0;
    return s->unsent[phase] > 0 && has;
}

static bool send_op(struct weft_coll *c, struct op *op, uint32_t age)
{
    const struct shape *s = &op->shape;
    for (uint32_t phase = 0; phase < PHASES; phase++) {
        struct outgoing o = {.op = op, .slot = (uint32_t)(op - c->op), .phase = phase};
        uint32_t priority = PRIORITY_FIRST + 2 * age + (phase == PHASE_2);
        o.priority = (uint8_t)weft_min_u64(priority, PRIORITY_LAST);
        for (uint32_t i = 0; i < s->segments; i++) {
            o.segment = segment_at(op, phase, i);
            if (!may_send(op, phase, o.segment)) {
                continue;
            }
            for (uint32_t k = 1; k < s->n; k++) {
                if (!send_to(c, &o, (s->me + k) % s->n)) {
                    return false;
                }
            }
        }
    }
    return true;
}

void weft_coll_send_all(struct weft_coll *c)
{
    uint32_t age = 0;
    c->dirty = false;
    for (uint32_t i = c->open_head; i != NONE && !coll_failed(c); i = c->op[i].next) {
        if (c->op[i].unsent_all > 0 && !send_op(c, &c->op[i], age)) {
            return;
        }
        age += !weft_coll_is_pair(c->op[i].call.kind);
    }
}

/* A rank that sent CLOSE had received all data that it needed, including the unacknowledged
 * message; it is unknown which of the chunks that may be missing arrived. */
static void sent_unknown(struct op *op, uint32_t phase, uint32_t rank)
{
    bool one = op->unknown_rank == NONE || op->unknown_rank == rank;
    if (!one || (phase == PHASE_1 && op->call.residual != NULL)) {
        op->broken = true;
        return;
    }
    op->unknown++;
    op->unknown_rank = rank;
}

void weft_coll_sent(struct weft_coll *c, const struct weft_msg_event *event, struct user user,
                    uint32_t rank)
{
    struct op *op = &c->op[user.slot];
    WEFT_ASSERT(rank != NONE && c->rank[rank].inflight > 0);
    c->receivers -= --c->rank[rank].inflight == 0;
    c->dirty = true;
    WEFT_ASSERT(op->state == OP_OPEN && op->life == user.life && op->unconfirmed > 0);
    op->unconfirmed--;
    if (event->outcome == WEFT_MSG_UNKNOWN) {
        sent_unknown(op, user.phase, c->group[op->call.group].ranks[user.index]);
    } else if (event->outcome == WEFT_MSG_SHORT) {
        weft_coll_fail_rank(c, WEFT_COLL_PROTOCOL, c->group[op->call.group].ranks[user.index], op);
    } else if (user.phase == PHASE_1 && op->shape.reduces) {
        weft_coll_contributed(c, op, event, user.segment, user.index);
    }
    weft_coll_op_check(c, op);
}
