#include "agg/hot_set.h"

static uint32_t fresh(const struct weft_agg_candidate *c)
{
    return c->now >= c->before ? c->now - c->before : c->now;
}

static bool ranks_after(const struct weft_agg_candidate *a, const struct weft_agg_candidate *b)
{
    uint32_t fresh_a = fresh(a);
    uint32_t fresh_b = fresh(b);
    return fresh_a != fresh_b ? fresh_a < fresh_b : a->id > b->id;
}

/* Sift down in a heap with the last rank on top, as heapsort requires. */
static void sift(struct weft_agg_candidate *heap, size_t count, size_t at)
{
    struct weft_agg_candidate moved = heap[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= count) {
            break;
        }
        if (child + 1 < count && ranks_after(&heap[child + 1], &heap[child])) {
            child++;
        }
        if (!ranks_after(&heap[child], &moved)) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

/* Heapsort, because the library's qsort allocates. */
static void sort(struct weft_agg_candidate *candidates, size_t count)
{
    for (size_t i = count / 2; i-- > 0;) {
        sift(candidates, count, i);
    }
    for (size_t left = count; left > 1; left--) {
        struct weft_agg_candidate last = candidates[0];
        candidates[0] = candidates[left - 1];
        candidates[left - 1] = last;
        sift(candidates, left - 1, 0);
    }
}

void weft_agg_hot_choose(struct weft_agg_candidate *candidates, uint32_t count, uint32_t room,
                         struct weft_agg_hot_change *change_p)
{
    sort(candidates, count);
    uint32_t were = 0;
    for (uint32_t i = 0; i < count; i++) {
        were += candidates[i].is_hot;
    }
    uint64_t enter = were == 0 ? room : (uint64_t)room * 4 / 5;
    uint64_t stay = (uint64_t)room * 6 / 5;
    struct weft_agg_hot_change change = {0};
    /* The first `enter` candidates fit, because `enter` <= `room`. The remaining slots are
     * assigned, by rank, to rows that were in the set. */
    uint32_t kept_max = 0;
    for (uint32_t i = 0; i < count && i < enter; i++) {
        kept_max += fresh(&candidates[i]) > 0;
    }
    kept_max = room - kept_max;
    for (uint32_t i = 0; i < count; i++) {
        struct weft_agg_candidate *c = &candidates[i];
        bool was = c->is_hot;
        bool hot = fresh(c) > 0 && (i < enter || (was && i < stay && kept_max > 0));
        kept_max -= hot && i >= enter;
        c->is_hot = hot;
        change.hot += hot;
        change.came += hot && !was;
        change.left += was && !hot;
    }
    *change_p = change;
}
