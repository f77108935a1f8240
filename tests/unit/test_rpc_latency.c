/* Latency arithmetic, spans split at b, and the window of closed RPCs. */
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
    for (uint64_t i = 0; i < 1000; i++) {
        weft_rpc_spans_add(&spans, 1000 + 10 * i, 1003 + 10 * i);
    }
    weft_rpc_spans_split(&spans, 1000 + 10 * 990, &before, &after);
    assert_int_equal(after, 30);
    assert_int_equal(before, 31 + 3000 - 30);
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
        cmocka_unit_test(window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
