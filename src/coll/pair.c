/* Send and recv: a message between two ranks, matched by its tag in the order of the calls.
 *
 * The receiver sends READY (control.c) with the slot of its operation; the sender then sends to
 * exactly that operation. Data therefore never arrives before its recv is called, and needs no
 * buffer. A message starts half a round trip after the later of the two calls.
 *
 * READYs of a rank are numbered, because the transport does not preserve order. READYs after a
 * missing one are held back; otherwise two calls with the same tag could be swapped. A recv remains
 * open until its READY is matched and the data has arrived. A rank therefore has at most ops_max
 * READYs at the sender, and at most ops_max are held back. */
#include "coll/internal.h"

#include <stdlib.h>

weft_status weft_coll_pair_init(struct weft_coll *c)
{
    size_t count = (size_t)c->config.ranks * c->config.ops_max;
    c->want = calloc(count, sizeof(*c->want));
    if (c->want == NULL) {
        return WEFT_NOMEM;
    }
    for (uint32_t i = 0; i < count; i++) {
        c->want[i].next = i + 1 < count ? i + 1 : NONE;
    }
    return WEFT_OK;
}

void weft_coll_pair_fini(struct weft_coll *c)
{
    free(c->want);
}

/* ---- the receiver ---------------------------------------------------------------------------- */

void weft_coll_pair_begin(struct weft_coll *c, struct op *op)
{
    if (op->call.kind == WEFT_COLL_SEND) {
        weft_coll_pair_match(c, weft_coll_pair_rank(c, op));
    } else {
        op->ready_seq = c->rank[weft_coll_pair_rank(c, op)].want_next++;
        op->ready_due = true;
    }
}

uint64_t weft_coll_pair_tag(const struct op *op, uint32_t segment)
{
    return (uint64_t)TAG_PAIR << TAG_KIND_SHIFT | (uint64_t)op->far_slot << PAIR_SLOT_SHIFT |
           (uint64_t)op->far_life << PAIR_LIFE_SHIFT | (uint64_t)segment << PAIR_SEGMENT_SHIFT;
}

/* The only place where a message for a recv is checked against it. */
void weft_coll_pair_open(struct weft_coll *c, uint32_t rank, const struct weft_msg_event *event)
{
    uint32_t slot = event->tag >> PAIR_SLOT_SHIFT & PAIR_SLOT_MASK;
    uint16_t life = (uint16_t)(event->tag >> PAIR_LIFE_SHIFT);
    uint32_t segment = event->tag >> PAIR_SEGMENT_SHIFT & TAG_SEGMENT_MASK;
    if (coll_failed(c) || rank == NONE) {
        c->counters.ignored++;
        return;
    }
    struct op *op = slot < c->config.ops_max ? &c->op[slot] : NULL;
    if (op == NULL || op->state != OP_OPEN || op->life != life || op->call.kind != WEFT_COLL_RECV ||
        weft_coll_pair_rank(c, op) != rank) {
        weft_coll_fail_rank(c, WEFT_COLL_PROTOCOL, rank, NULL);
        return;
    }
    const struct shape *s = &op->shape;
    if (segment >= s->segments || event->elem_bytes != s->elem_bytes || event->total == 0 ||
        shape_elems(s, PHASE_1, s->root, s->me, segment) != event->total ||
        weft_bits_test(op_bits(op, PHASE_1, BITS_OPENED), op_bit(op, segment, s->root))) {
        weft_coll_fail_rank(c, WEFT_COLL_PROTOCOL, rank, op);
        return;
    }
    weft_bits_set(op_bits(op, PHASE_1, BITS_OPENED), op_bit(op, segment, s->root));
    struct user user = {.type = USER_OP,
                        .slot = slot,
                        .life = life,
                        .phase = PHASE_1,
                        .segment = segment,
                        .index = s->root};
    c->msgr.ops->set_user(c->msgr.self, event->peer, event->seq, user_pack(user));
}

/* ---- the sender ------------------------------------------------------------------------------ */

static void want_free(struct weft_coll *c, struct rank *r, uint32_t *at)
{
    uint32_t slot = *at;
    *at = c->want[slot].next;
    c->want[slot].next = c->want_free;
    c->want_free = slot;
    r->wants--;
}

/* The first matching READY of a rank; NULL: none yet. */
static uint32_t *want_of(struct weft_coll *c, struct rank *r, const struct op *op)
{
    for (uint32_t *at = &r->want_head; *at != NONE; at = &c->want[*at].next) {
        const struct want *w = &c->want[*at];
        if (!op_before(w->seq, r->want_frontier)) {
            break;
        }
        if (w->group == op->call.group && w->called.root == op->call.tag) {
            return at;
        }
    }
    return NULL;
}

static void fail_mismatch(struct weft_coll *c, uint32_t rank, const struct op *op,
                          const struct want *w)
{
    const struct group *g = &c->group[op->call.group];
    struct weft_coll_failure failure = {
        .reason = WEFT_COLL_MISMATCH,
        .rank = rank,
        .by = c->config.rank,
        .group = op->call.group,
        .op = NONE,
        .last_op = NONE,
        .has_called = true,
        .called = {w->called, weft_coll_descriptor_of(g, &op->call)},
    };
    weft_coll_fail(c, &failure);
}

void weft_coll_pair_match(struct weft_coll *c, uint32_t rank)
{
    struct rank *r = &c->rank[rank];
    for (uint32_t i = c->open_head; i != NONE && !coll_failed(c); i = c->op[i].next) {
        struct op *op = &c->op[i];
        if (op->call.kind != WEFT_COLL_SEND || op->matched || weft_coll_pair_rank(c, op) != rank) {
            continue;
        }
        uint32_t *at = want_of(c, r, op);
        if (at == NULL) {
            continue;
        }
        const struct want *w = &c->want[*at];
        if (w->called.type != op->call.type || w->called.count != op->call.count ||
            w->called.members != c->group[op->call.group].members_hash) {
            fail_mismatch(c, rank, op, w);
            return;
        }
        op->matched = true;
        op->far_slot = w->slot;
        op->far_life = w->life;
        want_free(c, r, at);
        c->dirty = true;
    }
}

/* The only place where a READY is validated. Its group may be one that this rank creates later. */
static bool want_valid(const struct weft_coll *c, uint32_t rank, const struct want *want)
{
    const struct rank *r = &c->rank[rank];
    const struct group *g = &c->group[want->group];
    bool member = g->n == 0 || (g->me != NONE && g->index_of[rank] != NONE);
    return member && want->called.kind == WEFT_COLL_RECV && want->slot < c->config.ops_max &&
           want->seq - r->want_frontier < c->config.ops_max && r->wants < c->config.ops_max;
}

/* READYs are stored in the order of their numbers. */
void weft_coll_pair_ready(struct weft_coll *c, uint32_t rank, const struct want *want)
{
    struct rank *r = &c->rank[rank];
    uint32_t *at = &r->want_head;
    while (*at != NONE && op_before(c->want[*at].seq, want->seq)) {
        at = &c->want[*at].next;
    }
    bool is_duplicate = *at != NONE && c->want[*at].seq == want->seq;
    if (is_duplicate || !want_valid(c, rank, want)) {
        weft_coll_fail_rank(c, WEFT_COLL_PROTOCOL, rank, NULL);
        return;
    }
    uint32_t slot = c->want_free;
    c->want_free = c->want[slot].next;
    c->want[slot] = *want;
    c->want[slot].next = *at;
    *at = slot;
    r->wants++;
    for (uint32_t i = r->want_head; i != NONE; i = c->want[i].next) {
        r->want_frontier += c->want[i].seq == r->want_frontier;
    }
    weft_coll_pair_match(c, rank);
}
