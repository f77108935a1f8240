/* Expectations compared with a plain table that is searched linearly: the first posted one that
 * matches is used. */
#include "core/expect.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "base/prng.h"

enum { MAX = 40, PEERS = 5 };

struct plain {
    weft_expect_id id; /* 0 = free */
    struct weft_msg_expect e;
};

static uint8_t memory[64];

/* Tags with first bytes 0 and 6 share a list; the others have one list each. */
static uint64_t draw_tag(struct weft_prng *prng)
{
    uint64_t low = weft_prng_below(prng, 8) * 0x11;
    return weft_prng_below(prng, 7) << 56 | low;
}

/* Masks: the whole tag, all but its first byte, only its first byte, some bits. */
static uint64_t draw_mask(struct weft_prng *prng)
{
    static const uint64_t masks[] = {UINT64_MAX, 0xf0, UINT64_C(0xff) << 56,
                                     UINT64_C(0x03) << 56 | 0xf0};
    return masks[weft_prng_below(prng, 4)];
}

static struct weft_msg_expect draw_expect(struct weft_prng *prng)
{
    bool by_event = weft_prng_chance(prng, 300000);
    uint64_t mask = draw_mask(prng);
    return (struct weft_msg_expect){
        .peer = weft_prng_chance(prng, 200000) ? WEFT_PEER_ANY
                                               : (weft_peer)weft_prng_below(prng, PEERS),
        .sink = by_event                             ? WEFT_SINK_EVENT
                : weft_prng_chance(prng, 300000) ? WEFT_SINK_ADD
                                                 : WEFT_SINK_COPY,
        .tag = draw_tag(prng) & mask,
        .tag_mask = mask,
        .memory = by_event ? NULL : memory,
        .memory_bytes = 8 * weft_prng_below(prng, 8),
        .count = by_event ? 1 + (uint32_t)weft_prng_below(prng, 3) : 1,
    };
}

static struct plain *plain_match(struct plain *all, weft_peer peer, uint64_t tag, uint32_t total,
                                 uint16_t elem_bytes)
{
    struct plain *best = NULL;
    for (uint32_t i = 0; i < MAX; i++) {
        struct plain *x = &all[i];
        bool fits = x->id != 0 && (x->e.peer == WEFT_PEER_ANY || x->e.peer == peer) &&
                    (tag & x->e.tag_mask) == x->e.tag && total * elem_bytes <= x->e.memory_bytes &&
                    (x->e.sink != WEFT_SINK_ADD || elem_bytes % sizeof(float) == 0);
        if (fits && (best == NULL || x->id < best->id)) {
            best = x;
        }
    }
    return best;
}

static void post(struct weft_expects *expects, struct plain *all, struct weft_prng *prng)
{
    struct weft_msg_expect expect = draw_expect(prng);
    struct weft_expect *slot;
    uint32_t place = 0;
    while (place < MAX && all[place].id != 0) {
        place++;
    }
    weft_status status = weft_expects_post(expects, &expect, &slot);
    assert_int_equal(status, place < MAX ? WEFT_OK : WEFT_NOMEM);
    if (status == WEFT_OK) {
        all[place] = (struct plain){.id = slot->id, .e = expect};
    }
}

static void match(struct weft_expects *expects, struct plain *all, struct weft_prng *prng)
{
    weft_peer peer = (weft_peer)weft_prng_below(prng, PEERS);
    uint64_t tag = draw_tag(prng);
    uint32_t total = 1 + (uint32_t)weft_prng_below(prng, 10);
    uint16_t elem_bytes = (uint16_t)(1 + weft_prng_below(prng, 8));
    struct weft_expect *x = weft_expects_match(expects, peer, tag, total, elem_bytes);
    struct plain *wanted = plain_match(all, peer, tag, total, elem_bytes);
    assert_int_equal(x == NULL, wanted == NULL);
    if (x != NULL) {
        assert_int_equal(x->id, wanted->id);
        weft_expects_use(expects, x);
        wanted->id = --wanted->e.count == 0 ? 0 : wanted->id;
    }
}

static void random_operations_agree_with_a_plain_table(void **state)
{
    (void)state;
    struct weft_expects expects;
    struct plain all[MAX] = {0};
    struct weft_prng prng;
    weft_prng_init(&prng, 11);
    assert_int_equal(weft_expects_init(&expects, MAX, PEERS), WEFT_OK);
    for (uint32_t n = 0; n < 200000; n++) {
        uint64_t what = weft_prng_below(&prng, 100);
        if (what < 50) {
            post(&expects, all, &prng);
        } else if (what < 85) {
            match(&expects, all, &prng);
        } else {
            struct plain *x = &all[weft_prng_below(&prng, MAX)];
            weft_expect_id id = x->id;
            assert_int_equal(weft_expects_cancel(&expects, id), id != 0 ? WEFT_OK : WEFT_NOTFOUND);
            x->id = 0;
            assert_int_equal(weft_expects_cancel(&expects, id), WEFT_NOTFOUND);
        }
    }
    weft_expects_fini(&expects);
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    struct weft_expects expects;
    struct weft_expect *slot;
    assert_int_equal(weft_expects_init(&expects, 1, PEERS), WEFT_OK);
    const struct weft_msg_expect good = {
        .peer = 0, .sink = WEFT_SINK_COPY, .memory = memory, .memory_bytes = 8, .count = 1};
    struct weft_msg_expect bad[5] = {good, good, good, good, good};
    bad[0].peer = PEERS;
    bad[1].tag = 1; /* outside its mask */
    bad[2].count = 0;
    bad[3].memory = NULL;
    bad[4].sink = WEFT_SINK_EVENT;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(weft_expects_post(&expects, &bad[i], &slot), WEFT_INVALID);
    }
    assert_int_equal(weft_expects_cancel(&expects, 0), WEFT_NOTFOUND);
    assert_int_equal(weft_expects_cancel(&expects, 1 << 16 | 9), WEFT_NOTFOUND);
    assert_int_equal(weft_expects_post(&expects, &good, &slot), WEFT_OK);
    assert_int_equal(weft_expects_post(&expects, &good, &slot), WEFT_NOMEM);
    weft_expects_fini(&expects);
    weft_expects_fini(&expects);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_agree_with_a_plain_table),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
