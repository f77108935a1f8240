#include "core/expect.h"

#include "base/assert.h"

#include <assert.h>
#include <stdlib.h>

#define NONE UINT32_MAX

enum { SLOT_BITS = 16 };
static_assert(WEFT_EXPECTS_MAX <= 1 << SLOT_BITS);

static uint32_t index_of(const struct weft_expects *expects, const struct weft_expect *slot)
{
    return (uint32_t)(slot - expects->slots);
}

static uint32_t kind_of(uint64_t tag)
{
    return 1 + (uint32_t)(tag >> 56) % (WEFT_EXPECT_KINDS - 1);
}

static struct weft_expect_lists *lists_of(const struct weft_expects *expects, weft_peer peer)
{
    return &expects->lists[peer == WEFT_PEER_ANY ? expects->peers_max : peer];
}

static struct weft_expect_list *list_of(const struct weft_expects *expects,
                                        const struct weft_msg_expect *e)
{
    bool one_kind = e->tag_mask >> 56 == UINT8_MAX;
    return &lists_of(expects, e->peer)->of[one_kind ? kind_of(e->tag) : 0];
}

weft_status weft_expects_init(struct weft_expects *expects, uint32_t max, uint32_t peers_max)
{
    WEFT_ASSERT(max <= WEFT_EXPECTS_MAX);
    *expects = (struct weft_expects){.max = max, .peers_max = peers_max, .free_head = NONE};
    expects->slots = calloc(max, sizeof(*expects->slots));
    expects->lists = calloc((size_t)peers_max + 1, sizeof(*expects->lists));
    if (expects->slots == NULL || expects->lists == NULL) {
        weft_expects_fini(expects);
        return WEFT_NOMEM;
    }
    for (uint32_t i = 0; i <= peers_max; i++) {
        for (uint32_t kind = 0; kind < WEFT_EXPECT_KINDS; kind++) {
            expects->lists[i].of[kind] = (struct weft_expect_list){NONE, NONE};
        }
    }
    for (uint32_t i = max; i > 0; i--) {
        expects->slots[i - 1].next = expects->free_head;
        expects->free_head = i - 1;
    }
    return WEFT_OK;
}

void weft_expects_fini(struct weft_expects *expects)
{
    free(expects->slots);
    free(expects->lists);
    *expects = (struct weft_expects){0};
}

static void append(struct weft_expects *expects, struct weft_expect *slot)
{
    struct weft_expect_list *list = list_of(expects, &slot->e);
    uint32_t index = index_of(expects, slot);
    slot->next = NONE;
    slot->prev = list->tail;
    if (list->tail == NONE) {
        list->head = index;
    } else {
        expects->slots[list->tail].next = index;
    }
    list->tail = index;
}

static void release(struct weft_expects *expects, struct weft_expect *slot)
{
    struct weft_expect_list *list = list_of(expects, &slot->e);
    if (slot->prev == NONE) {
        list->head = slot->next;
    } else {
        expects->slots[slot->prev].next = slot->next;
    }
    if (slot->next == NONE) {
        list->tail = slot->prev;
    } else {
        expects->slots[slot->next].prev = slot->prev;
    }
    slot->id = 0;
    slot->next = expects->free_head;
    expects->free_head = index_of(expects, slot);
}

weft_status weft_expects_post(struct weft_expects *expects, const struct weft_msg_expect *expect,
                              struct weft_expect **slot_p)
{
    bool by_event = expect->sink == WEFT_SINK_EVENT;
    bool known = expect->peer == WEFT_PEER_ANY || expect->peer < expects->peers_max;
    if (!known || (expect->tag & ~expect->tag_mask) != 0 || expect->count == 0 ||
        (by_event ? expect->memory != NULL : expect->memory == NULL || expect->count != 1)) {
        return WEFT_INVALID;
    }
    if (expects->free_head == NONE) {
        return WEFT_NOMEM;
    }
    struct weft_expect *slot = &expects->slots[expects->free_head];
    uint32_t index = expects->free_head;
    expects->free_head = slot->next;
    slot->id = ++expects->posted << SLOT_BITS | index;
    slot->e = *expect;
    append(expects, slot);
    *slot_p = slot;
    return WEFT_OK;
}

weft_status weft_expects_cancel(struct weft_expects *expects, weft_expect_id id)
{
    uint32_t index = (uint32_t)(id & ((1 << SLOT_BITS) - 1));
    if (id == 0 || index >= expects->max || expects->slots[index].id != id) {
        return WEFT_NOTFOUND;
    }
    release(expects, &expects->slots[index]);
    return WEFT_OK;
}

static struct weft_expect *first_fit(const struct weft_expects *expects,
                                     const struct weft_expect_list *list, uint64_t tag,
                                     uint32_t total, uint16_t elem_bytes)
{
    uint64_t bytes = (uint64_t)total * elem_bytes;
    for (uint32_t i = list->head; i != NONE; i = expects->slots[i].next) {
        struct weft_expect *x = &expects->slots[i];
        if ((tag & x->e.tag_mask) == x->e.tag && bytes <= x->e.memory_bytes &&
            (x->e.sink != WEFT_SINK_ADD || elem_bytes % sizeof(float) == 0)) {
            return x;
        }
    }
    return NULL;
}

struct weft_expect *weft_expects_match(const struct weft_expects *expects, weft_peer peer,
                                       uint64_t tag, uint32_t total, uint16_t elem_bytes)
{
    uint32_t kinds[2] = {0, kind_of(tag)};
    weft_peer whose[2] = {peer, WEFT_PEER_ANY};
    struct weft_expect *first = NULL;
    for (uint32_t i = 0; i < 4; i++) {
        const struct weft_expect_list *list = &lists_of(expects, whose[i / 2])->of[kinds[i % 2]];
        struct weft_expect *x = first_fit(expects, list, tag, total, elem_bytes);
        first = first == NULL || (x != NULL && x->id < first->id) ? x : first;
    }
    lists_of(expects, peer)->last = kinds[1];
    return first;
}

void weft_expects_use(struct weft_expects *expects, struct weft_expect *slot)
{
    if (--slot->e.count == 0) {
        release(expects, slot);
    }
}
