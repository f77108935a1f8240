/* K and the fraction lost by rounding it: the number of chunks that any run of messages of a stream
 * may miss. */
#include "core/bound.h"

#include "core_pair.h"

enum { MESSAGES = 300, SEEDS = 200, ELEMS = 352 };

/* bound x chunks and K of each message, the former in 10^-6 of a chunk, rounded up or down. */
struct run {
    uint64_t least[MESSAGES];
    uint64_t most[MESSAGES];
    uint64_t lost_max[MESSAGES];
};

static uint32_t reserve(struct weft_bounds *bounds, uint32_t stream, uint32_t bound_ppm,
                        uint32_t total, uint32_t chunk_elems, uint8_t critical)
{
    struct weft_msg_send send = {
        .stream = stream, .bound_ppm = bound_ppm, .total = total, .critical = critical};
    uint32_t chunks = (uint32_t)weft_div_ceil_u64(total, chunk_elems);
    return weft_bound_reserve(bounds, &send, chunk_elems, chunks);
}

static void draw(struct weft_prng *prng, struct weft_bounds *bounds, struct run *run_p,
                 bool one_grid, bool one_bound)
{
    static const uint32_t lengths[] = {1, 7, 20, 400};
    uint32_t elems = 1 + (uint32_t)weft_prng_below(prng, 2000);
    uint32_t bound_ppm = 1 + (uint32_t)weft_prng_below(prng, 500000);
    for (int i = 0; i < MESSAGES; i++) {
        elems = one_grid ? elems : 1 + (uint32_t)weft_prng_below(prng, 2000);
        bound_ppm = one_bound ? bound_ppm : (uint32_t)weft_prng_below(prng, 500000);
        uint64_t most = (uint64_t)lengths[weft_prng_below(prng, 4)] * elems;
        /* Messages of at least two chunks with bounds up to one half: only the bound limits K. */
        uint32_t total = elems + 1 + (uint32_t)weft_prng_below(prng, most);
        uint64_t exact = (uint64_t)bound_ppm * total;
        run_p->least[i] = exact / elems;
        run_p->most[i] = weft_div_ceil_u64(exact, elems);
        run_p->lost_max[i] = reserve(bounds, 9, bound_ppm, total, elems, 0);
    }
}

/* Sum of K <= bound x (sum of chunks) + 1 for every run of consecutive messages, and, from the
 * first message on, >= that - 1. With any mixture of lengths, bounds and grids. */
static void test_any_run_of_messages_keeps_the_bound(void **state)
{
    (void)state;
    uint64_t alone = 0;
    uint64_t together = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct weft_prng prng;
        struct weft_bounds bounds = {0};
        struct run r;
        weft_prng_init(&prng, seed);
        draw(&prng, &bounds, &r, seed % 2 == 0, seed % 3 == 0);
        for (int from = 0; from < MESSAGES; from++) {
            uint64_t lost_max = 0;
            uint64_t most = 0;
            uint64_t least = 0;
            for (int to = from; to < MESSAGES; to++) {
                lost_max += r.lost_max[to] * WEFT_PPM;
                most += r.most[to];
                least += r.least[to];
                assert_true(lost_max <= most + WEFT_PPM);
                /* A change of grid rounds down, by less than 10^-6 of a chunk. */
                assert_true(lost_max + WEFT_PPM + MESSAGES >= least);
                if (from == 0) {
                    assert_true(lost_max <= most);
                }
            }
            alone += r.least[from] / WEFT_PPM;
            together += r.lost_max[from];
        }
    }
    print_message("K of each message alone %llu, with the remainder of the others %llu\n",
                  (unsigned long long)alone, (unsigned long long)together);
    assert_true(together > alone + SEEDS * MESSAGES / 3);
}

/* Seven chunks at 10 %: seven of ten messages may miss one. */
static void test_short_messages_have_their_turn(void **state)
{
    (void)state;
    struct weft_bounds bounds = {0};
    static const uint32_t expected[] = {0, 1, 1, 0, 1, 1, 0, 1, 1, 1, 0, 1};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(expected); i++) {
        assert_int_equal(reserve(&bounds, 0, 100000, 7 * ELEMS, ELEMS, 0), expected[i]);
    }
}

static void test_bound_0_leaves_its_stream_alone(void **state)
{
    (void)state;
    struct weft_bounds bounds = {0};
    assert_int_equal(reserve(&bounds, 0, 100000, 9 * ELEMS, ELEMS, 0), 0);
    struct weft_bounds before = bounds;
    assert_int_equal(reserve(&bounds, 0, 0, 900 * ELEMS, ELEMS, 0), 0);
    assert_int_equal(reserve(&bounds, 1, 0, 900 * ELEMS, ELEMS, 0), 0);
    assert_memory_equal(&bounds, &before, sizeof(before));
    assert_int_equal(reserve(&bounds, 0, 100000, 9 * ELEMS, ELEMS, 0), 1);
}

/* Loss that critical chunks prevent is not saved: only the fraction is carried over to the next
 * message. */
static void test_unused_chunks_are_not_kept(void **state)
{
    (void)state;
    struct weft_bounds bounds = {0};
    assert_int_equal(reserve(&bounds, 0, 450000, 10 * ELEMS, ELEMS, 9), 1); /* of 4.5 */
    assert_int_equal(reserve(&bounds, 0, 450000, 10 * ELEMS, ELEMS, 0), 5); /* 0.5 + 4.5 */
    assert_int_equal(reserve(&bounds, 0, 900000, ELEMS, ELEMS, 0), 0);      /* one chunk must
                                                                             * arrive */
    assert_int_equal(reserve(&bounds, 0, 900000, ELEMS, ELEMS, 0), 0);      /* 1.8: 1 is lost */
    assert_int_equal(reserve(&bounds, 0, 100000, 2 * ELEMS, ELEMS, 0), 1);  /* 0.8 + 0.2 */
}

/* Each stream has its own fraction, in any order. Beyond the maximum number of streams, the least
 * recently used one starts again. */
static void test_streams_are_apart(void **state)
{
    (void)state;
    struct weft_bounds bounds = {0};
    for (uint32_t turn = 0; turn < 40; turn++) {
        for (uint32_t stream = 0; stream < WEFT_BOUND_STREAMS_MAX; stream++) {
            uint32_t which = turn % 2 == 0 ? stream : WEFT_BOUND_STREAMS_MAX - 1 - stream;
            uint32_t ppm = 10000 * (which + 1);
            uint32_t before = turn * 3 * ppm / WEFT_PPM;
            uint32_t after = (turn + 1) * 3 * ppm / WEFT_PPM;
            assert_int_equal(reserve(&bounds, 1000 * which, ppm, 3 * ELEMS, ELEMS, 0),
                             after - before);
        }
    }
    struct weft_bounds more = {0};
    for (uint32_t stream = 0; stream <= WEFT_BOUND_STREAMS_MAX; stream++) {
        assert_int_equal(reserve(&more, stream, 300000, 3 * ELEMS, ELEMS, 0), 0);
    }
    assert_int_equal(reserve(&more, 1, 300000, 3 * ELEMS, ELEMS, 0), 1);
    /* its fraction was dropped */
    assert_int_equal(reserve(&more, 0, 300000, 3 * ELEMS, ELEMS, 0), 0);
}

/* ---- in an endpoint -------------------------------------------------------------------------- */

static uint32_t lost_max_of(const struct pair *t, uint64_t seq)
{
    return inspect_peer(t->net.end[0].ep, t->peer_of_0)->tx.msgs[seq & MSG_MASK].lost_max;
}

/* A refused send reserves nothing, and the next connection begins at zero. */
static void test_a_connection_has_its_own(void **state)
{
    struct pair *t = *state;
    float *values = floats_new(7 * ELEMS);
    uint32_t sum = 0;
    for (uint32_t i = 0; i < WEFT_MSGS_MAX; i++) {
        sum += lost_max_of(t, send_floats(t, values, 7 * ELEMS, 100000));
    }
    assert_int_equal(sum, WEFT_MSGS_MAX * 7 / 10); /* 44.8 */
    struct weft_msg_send send = {.peer = t->peer_of_0, .base = values, .total = 7 * ELEMS,
                                 .elem_bytes = sizeof(float), .bound_ppm = 100000, .tag = 42,
                                 .deadline_ns = WEFT_NEVER};
    struct weft_bounds before = inspect_peer(t->net.end[0].ep, t->peer_of_0)->tx.bounds;
    uint64_t seq;
    assert_int_equal(net_msg_send(&t->net, 0, &send, &seq), WEFT_AGAIN);
    assert_memory_equal(&inspect_peer(t->net.end[0].ep, t->peer_of_0)->tx.bounds, &before,
                        sizeof(before));
    weft_ep_close(t->net.end[0].ep, t->peer_of_0, t->net.now_ns);
    run_for(t, WEFT_NS_PER_S);
    assert_int_equal(pair_connect(t), WEFT_OK);
    assert_int_equal(lost_max_of(t, send_floats(t, values, 7 * ELEMS, 100000)), 0);
    assert_int_equal(lost_max_of(t, send_floats(t, values, 7 * ELEMS, 100000)), 1);
    free(values);
}

/* Over a lossy path messages of seven chunks with a bound of 10 % miss some chunks, but no more
 * than the bound. */
static void test_short_messages_use_their_bound(void **state)
{
    enum { COUNT = 400, CHUNKS = 7 };
    struct pair *t = *state;
    float *values = floats_new(CHUNKS * ELEMS);
    float *memory = malloc(CHUNKS * ELEMS * sizeof(*memory));
    uint32_t missing = 0;
    t->net.loss_ppm = 100000;
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t before = t->sent_count;
        expect_floats(t, WEFT_SINK_COPY, memory, CHUNKS * ELEMS);
        send_floats(t, values, CHUNKS * ELEMS, 100000);
        for (int wait = 0; wait < 100 && t->sent_count == before; wait++) {
            run_for(t, WEFT_NS_PER_S / 10);
        }
        assert_int_equal(t->sent_count, before + 1);
        assert_int_equal(t->sent.outcome, WEFT_MSG_COMPLETE);
        missing += t->sent.chunks - t->sent.received;
        assert_true(missing <= (i + 1) * CHUNKS / 10);
    }
    print_message("%u of %u chunks were missing\n", missing, COUNT * CHUNKS);
    assert_true(missing > COUNT * CHUNKS / 50);
    free(memory);
    free(values);
}

static bool in_order(const struct pair *t, const float *values, uint32_t bound_ppm,
                     uint64_t deadline_ns, bool cut)
{
    struct weft_msg_send send = {.peer = t->peer_of_0,
                                 .base = values,
                                 .total = 100 * ELEMS,
                                 .elem_bytes = sizeof(float),
                                 .bound_ppm = bound_ppm,
                                 .tag = 1,
                                 .cut = cut,
                                 .deadline_ns = deadline_ns};
    uint64_t seq;
    assert_int_equal(net_msg_send(&t->net, 0, &send, &seq), WEFT_OK);
    const struct tx_msg *m = &inspect_peer(t->net.end[0].ep, t->peer_of_0)->tx.msgs[seq & MSG_MASK];
    struct weft_perm perm = m->perm;
    bool ordered = true;
    for (uint32_t i = 0; i < m->chunks; i++) {
        ordered &= weft_perm_next(&perm) == i;
    }
    return ordered;
}

/* Chunks may be sent in order only if no chunk may be missing at the end. */
static void test_a_message_that_may_miss_nothing_goes_in_order(void **state)
{
    struct pair *t = *state;
    float *values = floats_new(100 * ELEMS);
    assert_true(in_order(t, values, 0, WEFT_NEVER, false));
    assert_false(in_order(t, values, 0, WEFT_NEVER, true)); /* the receiver may end it SHORT */
    /* It may end SHORT. */
    assert_false(in_order(t, values, 0, t->net.now_ns + WEFT_NS_PER_S, false));
    assert_false(in_order(t, values, 100000, WEFT_NEVER, false));
    assert_true(in_order(t, values, 5000, WEFT_NEVER, false)); /* half a chunk of 100: K = 0 */
    free(values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_run_of_messages_keeps_the_bound),
        cmocka_unit_test(test_short_messages_have_their_turn),
        cmocka_unit_test(test_bound_0_leaves_its_stream_alone),
        cmocka_unit_test(test_unused_chunks_are_not_kept),
        cmocka_unit_test(test_streams_are_apart),
        cmocka_unit_test_setup_teardown(test_a_connection_has_its_own, setup, teardown),
        cmocka_unit_test_setup_teardown(test_short_messages_use_their_bound, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_message_that_may_miss_nothing_goes_in_order, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
