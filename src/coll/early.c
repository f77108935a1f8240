/* Messages of operations that this rank has not called yet are stored in a pool of pages. A sender
 * limits the messages that it sends ahead to a quota (send.c), so the pool cannot be exhausted
 * unless a rank is configured differently; in that case the operation fails with an error. When the
 * operation is called, stored data is copied to its destination, and data still in flight is
 * received there directly. */
#include "coll/internal.h"

#include <stdlib.h>

weft_status weft_coll_early_init(struct weft_coll *c)
{
    uint32_t others = c->config.ranks > 1 ? c->config.ranks - 1 : 1;
    uint64_t pages = c->config.pool_bytes / PAGE_BYTES;
    if (pages / others < QUOTA_PAGES_MIN || pages > 0xffffff) {
        return WEFT_INVALID;
    }
    c->pages = (uint32_t)pages;
    c->quota_pages = (uint32_t)weft_min_u64(pages / others, UINT16_MAX);
    c->pool = malloc(pages * PAGE_BYTES);
    c->page_next = malloc(pages * sizeof(*c->page_next));
    c->early = calloc(pages, sizeof(*c->early));
    if (c->pool == NULL || c->page_next == NULL || c->early == NULL) {
        return WEFT_NOMEM;
    }
    for (uint32_t i = 0; i < c->pages; i++) {
        c->page_next[i] = i + 1 < c->pages ? i + 1 : NONE;
        c->early[i].next = c->page_next[i];
    }
    c->page_free = 0;
    c->early_free = 0;
    return WEFT_OK;
}

void weft_coll_early_fini(struct weft_coll *c)
{
    free(c->pool);
    free(c->page_next);
    free(c->early);
}

/* ---- pages ----------------------------------------------------------------------------------- */

static uint32_t page_take(struct weft_coll *c)
{
    uint32_t page = c->page_free;
    c->page_free = c->page_next[page];
    c->page_next[page] = NONE;
    c->pages_used++;
    c->counters.early_pages_max = weft_max_u64(c->counters.early_pages_max, c->pages_used);
    return page;
}

static void pages_free(struct weft_coll *c, struct early *e)
{
    while (e->page_first != NONE) {
        uint32_t page = e->page_first;
        e->page_first = c->page_next[page];
        c->page_next[page] = c->page_free;
        c->page_free = page;
        c->pages_used--;
    }
    c->rank[e->rank].pool_pages -= e->pages;
    e->pages = 0;
}

/* Pass the data of a message to its operation. */
static void pages_land(const struct weft_coll *c, struct op *op, const struct early *e,
                       uint32_t index)
{
    uint64_t bytes = (uint64_t)e->total * e->elem_bytes;
    uint32_t page = e->page_first;
    for (uint64_t at = 0; at < bytes; at += PAGE_BYTES) {
        weft_coll_land(op, e->tag.phase, e->tag.segment, index, at,
                       c->pool + (uint64_t)page * PAGE_BYTES, weft_min_u64(bytes - at, PAGE_BYTES));
        page = c->page_next[page];
    }
}

/* Copy bytes [at, at + bytes) of a message's pages to `to`, or from `from` if `to` is NULL. */
static void pages_copy(struct weft_coll *c, const struct early *e, uint64_t at, uint64_t bytes,
                       uint8_t *to, const uint8_t *from)
{
    uint32_t page = e->page_first;
    for (uint64_t i = at / PAGE_BYTES; i > 0; i--) {
        page = c->page_next[page];
    }
    uint64_t offset = at % PAGE_BYTES;
    while (bytes > 0) {
        uint64_t run = weft_min_u64(bytes, PAGE_BYTES - offset);
        uint8_t *memory = c->pool + (uint64_t)page * PAGE_BYTES + offset;
        if (to != NULL) {
            memcpy(to, memory, run);
            to += run;
        } else {
            memcpy(memory, from, run);
            from += run;
        }
        bytes -= run;
        offset = 0;
        page = c->page_next[page];
    }
}

/* Offset of the mask, which follows the data. */
static uint64_t mask_at(const struct early *e)
{
    return ((uint64_t)e->total * e->elem_bytes + 7) / 8 * 8;
}

/* ---- messages -------------------------------------------------------------------------------- */

static void early_free(struct weft_coll *c, uint32_t slot)
{
    struct early *e = &c->early[slot];
    uint32_t *at = &c->rank[e->rank].early_head;
    while (*at != slot) {
        at = &c->early[*at].next;
    }
    *at = e->next;
    pages_free(c, e);
    *e = (struct early){.life = e->life, .next = c->early_free};
    c->early_free = slot;
}

void weft_coll_early_open(struct weft_coll *c, uint32_t rank, const struct weft_msg_event *event,
                          struct tag tag, uint32_t number)
{
    struct rank *r = &c->rank[rank];
    uint64_t pages = pages_for(event->total, event->elem_bytes);
    bool far = number - c->group[tag.group].next_op >= 2 * EARLY_OPS;
    if (far || pages > c->quota_pages - weft_min_u64(r->pool_pages, c->quota_pages) ||
        pages > c->pages - c->pages_used || c->early_free == NONE) {
        weft_coll_fail_rank(c, WEFT_COLL_PROTOCOL, rank, NULL);
        return;
    }
    uint32_t slot = c->early_free;
    struct early *e = &c->early[slot];
    c->early_free = e->next;
    *e = (struct early){
        .used = true,
        .next = r->early_head,
        .rank = rank,
        .group = tag.group,
        .number = number,
        .tag = tag,
        .total = event->total,
        .chunk_elems = event->chunk_elems,
        .elem_bytes = event->elem_bytes,
        .pages = (uint32_t)pages,
        .page_first = NONE,
        .slot = NONE,
    };
    for (uint32_t i = 0; i < pages; i++) {
        uint32_t page = page_take(c);
        c->page_next[page] = e->page_first;
        e->page_first = page;
    }
    r->early_head = slot;
    r->pool_pages += (uint32_t)pages;
    c->counters.early_messages++;
    c->msgr.ops->set_user(c->msgr.self, event->peer, event->seq,
                          user_pack((struct user){.type = USER_EARLY, .slot = slot}));
}

static struct op *op_of(struct weft_coll *c, const struct early *e)
{
    struct op *op = e->slot == NONE ? NULL : &c->op[e->slot];
    return op != NULL && op->state == OP_OPEN && op->life == e->life && !coll_failed(c) ? op : NULL;
}

void weft_coll_early_chunk(struct weft_coll *c, uint32_t slot, const struct weft_msg_event *event)
{
    struct early *e = &c->early[slot];
    uint64_t at = (uint64_t)event->chunk * event->chunk_elems * event->elem_bytes;
    uint64_t bytes = (uint64_t)event->elems * event->elem_bytes;
    if (e->page_first != NONE) {
        pages_copy(c, e, at, bytes, NULL, event->data);
        return;
    }
    struct op *op = op_of(c, e);
    if (op != NULL) {
        uint32_t index = c->group[e->group].index_of[e->rank];
        weft_coll_land(op, e->tag.phase, e->tag.segment, index, at, event->data, bytes);
    }
}

/* The operation now has all information about the message. */
static void hand_over(struct weft_coll *c, struct op *op, const struct early *e,
                      const uint64_t *chunk_mask)
{
    uint32_t index = c->group[e->group].index_of[e->rank];
    if (!weft_coll_missing_valid(op, e->tag.phase, e->whole, e->complete, e->chunk_elems)) {
        weft_coll_fail_rank(c, WEFT_COLL_PROTOCOL, e->rank, op);
        return;
    }
    if (e->tag.phase == PHASE_1 && op->lossy) {
        weft_coll_mask_put(c, op, e->tag.segment, index, e->whole ? NULL : chunk_mask,
                           e->chunk_elems, e->total);
    }
    weft_coll_arrived(c, op, e->tag.phase, e->tag.segment, index);
}

/* Pages have space for one bit per grain, and so per chunk if chunks begin on grain boundaries.
 * Other messages need no mask, because no chunk of them may be missing. */
static bool has_mask(const struct early *e)
{
    return e->chunk_elems % WEFT_COLL_GRAIN == 0;
}

/* A message whose sender has left is reported with its operation, if that is called. */
void weft_coll_early_received(struct weft_coll *c, uint32_t slot,
                              const struct weft_msg_event *event)
{
    struct early *e = &c->early[slot];
    e->closed = true;
    e->whole = event->received == event->chunks;
    e->complete = event->outcome == WEFT_MSG_COMPLETE;
    if (e->page_first != NONE) {
        uint64_t words = WEFT_BITS_WORDS((uint64_t)event->chunks);
        if (!e->whole && has_mask(e)) {
            pages_copy(c, e, mask_at(e), words * sizeof(uint64_t), NULL,
                       (const uint8_t *)event->mask);
        }
        return;
    }
    struct op *op = op_of(c, e);
    if (op != NULL && !e->complete && event->sender_gone) {
        op->broken = true; /* PEER_DOWN follows */
    } else if (op != NULL) {
        hand_over(c, op, e, event->mask);
        weft_coll_op_check(c, op);
    }
    early_free(c, slot);
}

static void adopt(struct weft_coll *c, struct op *op, uint32_t slot)
{
    struct early *e = &c->early[slot];
    uint32_t index = c->group[e->group].index_of[e->rank];
    if (index == NONE || op->call.count == 0 ||
        !weft_coll_fits(op, e->tag, index, e->total, e->elem_bytes)) {
        weft_coll_mismatch(c, e->rank, e->group, e->number);
        if (e->closed) {
            early_free(c, slot);
        } else {
            pages_free(c, e); /* the sender no longer counts these pages either */
        }
        return;
    }
    weft_bits_set(op_bits(op, e->tag.phase, BITS_OPENED), op_bit(op, e->tag.segment, index));
    /* Which chunks of an open message the pages contain is not recorded. */
    op->segment[e->tag.segment].direct &= e->tag.phase == PHASE_2 || e->whole;
    pages_land(c, op, e, index);
    if (e->closed && !e->whole && !e->complete) {
        weft_coll_fail_rank(c, WEFT_COLL_LEFT, e->rank, op);
        return;
    }
    if (e->closed) {
        uint64_t chunks =
            e->whole || !has_mask(e) ? 0 : weft_div_ceil_u64(e->total, e->chunk_elems);
        uint64_t words = WEFT_BITS_WORDS(weft_min_u64(chunks, c->config.chunks_max));
        pages_copy(c, e, mask_at(e), words * sizeof(uint64_t), (uint8_t *)c->critical, NULL);
        hand_over(c, op, e, c->critical);
        early_free(c, slot);
        return;
    }
    pages_free(c, e);
    e->slot = (uint32_t)(op - c->op);
    e->life = op->life;
}

void weft_coll_early_adopt(struct weft_coll *c, struct op *op)
{
    for (uint32_t i = 0; i < c->config.ranks; i++) {
        uint32_t next;
        for (uint32_t slot = c->rank[i].early_head; slot != NONE && !coll_failed(c); slot = next) {
            struct early *e = &c->early[slot];
            next = e->next;
            if (e->group == op->call.group && e->number == op->number && e->slot == NONE) {
                adopt(c, op, slot);
            }
        }
    }
}
