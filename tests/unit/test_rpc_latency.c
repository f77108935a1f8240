/* Latency arithmetic, spans split at b, and the window of closed RPCs. */
#include "base/prng.h"
#include "base/units.h"
#include "rpc/latency.h"
#include "rpc/window.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>

static void worker_side(void **state)
{
    (void)state;
    const struct weft_rpc_reply reply = {.rpc_id = 1,
                                         .t0_ns = 1000,
                                         .ps_proc_ns = 20,
                                         .ps_overlap_ns = 3,
                                         .ps_wait_ns = 100,
                                         .ps_queue_ns = 5};
    struct weft_rpc_latency l = weft_rpc_latency_make(&reply, 2000, 2010, 2050);
    assert_int_equal(l.n_tx_ns, 875);
    assert_int_equal(l.w_queue_ns, 10);
    assert_int_equal(l.w_proc_ns, 40);
    assert_int_equal(l.ps_proc_ns, 20);
    assert_int_equal(l.ps_overlap_ns, 3);
    assert_int_equal(l.ps_wait_ns, 100);
    assert_int_equal(l.ps_queue_ns, 5);
    struct weft_rpc_reply lie = reply;
    lie.ps_proc_ns = UINT64_MAX;
    lie.ps_wait_ns = UINT64_MAX;
    assert_int_equal(weft_rpc_latency_make(&lie, 2000, 2010, 2050).n_tx_ns, 0);
}

static void spans(void **state)
{
    (void)state;
    static struct weft_rpc_spans spans;
    uint64_t before, after;
    weft_rpc_spans_split(&spans, 0, &before, &after);
    assert_int_equal(before + after, 0);
    weft_rpc_spans_add(&spans, 100, 110);
    weft_rpc_spans_add(&spans, 120, 140);
    weft_rpc_spans_add(&spans, 150, 151);
    weft_rpc_spans_split(&spans, 130, &before, &after);
    assert_int_equal(before, 20);
    assert_int_equal(after, 11);
    weft_rpc_spans_split(&spans, 0, &before, &after);
    assert_int_equal(after, 31);
    /* The end of one request and the start of the next. */
    weft_rpc_spans_clear(&spans);
    weft_rpc_spans_split(&spans, 0, &before, &after);
    assert_int_equal(before + after, 0);
}

static void add_batch(struct weft_rpc_spans *spans, uint64_t begin_ns, unsigned chunks)
{
    for (unsigned i = 0; i < chunks; i++) {
        weft_rpc_spans_add(spans, begin_ns + 1000 * i, begin_ns + 1000 * i + 700);
    }
}

/* Batches of more chunks than the list has entries: b, between two batches, divides exactly. */
static void spans_of_batches(void **state)
{
    (void)state;
    static struct weft_rpc_spans spans;
    const uint64_t ms = 1000000;
    uint64_t before, after;
    for (unsigned batch = 0; batch < 10; batch++) {
        add_batch(&spans, 10 * batch * ms, 1400);
    }
    for (unsigned batch = 1; batch <= 10; batch++) {
        weft_rpc_spans_split(&spans, 10 * batch * ms - ms, &before, &after);
        assert_int_equal(before, batch * 1400 * 700);
        assert_int_equal(after, (10 - batch) * 1400 * 700);
    }
    /* b inside a batch: the error is at most the idle time of an entry, here 0.42 ms. */
    weft_rpc_spans_split(&spans, 50 * ms + 700 * 1000, &before, &after);
    assert_in_range(before, 5 * 1400 * 700 + 700 * 700 - 700, 5 * 1400 * 700 + 700 * 700 + 700);
    assert_int_equal(before + after, 10 * 1400 * 700);
}

/* More chunks than entries, one at a time: the last chunk is exact. */
static void spans_one_at_a_time(void **state)
{
    (void)state;
    static struct weft_rpc_spans spans;
    uint64_t before, after;
    for (uint64_t i = 0; i < 5000; i++) {
        weft_rpc_spans_add(&spans, 10000 * i, 10000 * i + 900 + i % 2);
    }
    weft_rpc_spans_split(&spans, 10000 * 4999 - 5000, &before, &after);
    assert_int_equal(after, 901);
    assert_int_equal(before, 2500 * (900 + 901) - 901);
}

/* Any spans, at random: nothing is lost, and the error is at most what the header says. */
static void spans_at_random(void **state)
{
    (void)state;
    static struct weft_rpc_spans spans;
    static uint64_t begin[4000], end[4000];
    struct weft_prng prng;
    weft_prng_init(&prng, 20);
    for (unsigned round = 0; round < 50; round++) {
        const unsigned count = 1 + (unsigned)weft_prng_below(&prng, WEFT_ARRAY_COUNT(begin));
        uint64_t now = 1 + weft_prng_below(&prng, 1000), sum = 0;
        weft_rpc_spans_clear(&spans);
        for (unsigned i = 0; i < count; i++) {
            begin[i] = now += weft_prng_below(&prng, UINT64_C(1) << weft_prng_below(&prng, 24));
            end[i] = now += weft_prng_below(&prng, 2000);
            sum += end[i] - begin[i];
            weft_rpc_spans_add(&spans, begin[i], end[i]);
        }
        uint64_t most_idle = 0;
        for (uint32_t i = 0; i < spans.count; i++) {
            most_idle = weft_max_u64(most_idle, spans.kept[i].idle_ns);
        }
        for (unsigned i = 0; i < 100; i++) {
            const uint64_t b = weft_prng_below(&prng, now + 1000);
            uint64_t before, after, exact = 0;
            for (unsigned s = 0; s < count; s++) {
                exact += begin[s] < b ? weft_min_u64(end[s], b) - begin[s] : 0;
            }
            weft_rpc_spans_split(&spans, b, &before, &after);
            assert_int_equal(before + after, sum);
            assert_in_range(before, exact > most_idle + 1 ? exact - most_idle - 1 : 0,
                            exact + most_idle + 1);
        }
    }
}

static void window(void **state)
{
    (void)state;
    static struct weft_rpc_window w;
    assert_false(weft_rpc_window_test(&w, 1));
    weft_rpc_window_mark(&w, 3);
    assert_false(weft_rpc_window_test(&w, 2));
    assert_true(weft_rpc_window_test(&w, 3));
    assert_false(weft_rpc_window_test(&w, 4));
    weft_rpc_window_mark(&w, 2);
    weft_rpc_window_mark(&w, 1500);
    assert_true(weft_rpc_window_test(&w, 3));     /* left the window */
    assert_true(weft_rpc_window_test(&w, 476));   /* just left it */
    assert_false(weft_rpc_window_test(&w, 477));  /* still in it, and open */
    assert_false(weft_rpc_window_test(&w, 1027)); /* the slot of id 3 */
    weft_rpc_window_mark(&w, 477);
    assert_true(weft_rpc_window_test(&w, 477));
    /* Across the wrap of the ids. */
    memset(&w, 0, sizeof(w));
    w.newest = UINT32_MAX - 2;
    weft_rpc_window_mark(&w, 5);
    assert_false(weft_rpc_window_test(&w, UINT32_MAX));
    assert_true(weft_rpc_window_test(&w, 5));
    assert_false(weft_rpc_window_test(&w, 6));
    /* The first id may be any: the shard was restored, the worker was not. */
    const uint32_t late = UINT32_C(3) << 30;
    memset(&w, 0, sizeof(w));
    assert_false(weft_rpc_window_test(&w, late));
    weft_rpc_window_mark(&w, late);
    assert_true(weft_rpc_window_test(&w, late));
    assert_false(weft_rpc_window_test(&w, late - 1));
    assert_false(weft_rpc_window_test(&w, late + 1));
    assert_true(weft_rpc_window_test(&w, late - WEFT_RPC_WINDOW));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worker_side),
        cmocka_unit_test(spans),
        cmocka_unit_test(spans_of_batches),
        cmocka_unit_test(spans_one_at_a_time),
        cmocka_unit_test(spans_at_random),
        cmocka_unit_test(window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
