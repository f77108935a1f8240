/* Failures of collectives: a rank that dies, leaves, calls a different operation, or is late. All
 * ranks must report the same reason. Also messages that arrive early. */
#include "coll_rig.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>

enum { N = 4, COUNT = 20000 };

static float in[N][COUNT], out[N][COUNT];

static struct weft_coll_call call_of(uint32_t rank)
{
    return (struct weft_coll_call){.count = COUNT, .in = in[rank], .out = out[rank]};
}

static void assert_text(struct rig *r, uint32_t rank, const char *text)
{
    char is[256];
    weft_coll_failure_text(weft_coll_failure(r->coll[rank]), is, sizeof(is));
    assert_string_equal(is, text);
}

static uint32_t closed_all_but(uint32_t rank)
{
    return ((UINT32_C(1) << N) - 1) & ~(UINT32_C(1) << rank);
}

/* All other ranks fail and name the dead rank; connections are closed after all ranks are
 * notified. */
static void test_dies(void **state)
{
    (void)state;
    for (uint32_t steps = 0; steps < 300; steps += 7) {
        struct rig *r = rig_new(N, steps);
        for (uint32_t k = 0; k < N; k++) {
            assert_int_equal(rig_begin(r, k, call_of(k)), WEFT_OK);
        }
        for (uint32_t i = 0; i < steps; i++) {
            fake_step(r->net);
            rig_poll_all(r);
        }
        assert_int_equal(r->done_count[0], 0);
        weft_coll_free(r->coll[2]);
        r->coll[2] = NULL;
        fake_kill(r->net, 2);
        rig_run(r);
        for (uint32_t k = 0; k < N; k++) {
            if (k == 2) {
                continue;
            }
            assert_int_equal(r->done_count[k], 1);
            assert_int_equal(r->done[k][0].status, WEFT_PEER);
            const struct weft_coll_failure *f = weft_coll_failure(r->coll[k]);
            assert_int_equal(f->reason, WEFT_COLL_DOWN);
            assert_int_equal(f->rank, 2);
            assert_int_equal(f->op, 0);
            assert_int_equal(r->closed[k], closed_all_but(k) & ~(UINT32_C(1) << 2));
            assert_int_equal(rig_begin(r, k, call_of(k)), WEFT_PEER);
        }
        assert_text(r, 0, "lost rank 2: it does not respond; operation 0 (seen by rank 0)");
        rig_free(r);
    }
}

/* Only two ranks lose their connection: they notify the two others. */
static void test_told(void **state)
{
    (void)state;
    struct rig *r = rig_new(N, 1);
    assert_int_equal(rig_begin(r, 0, call_of(0)), WEFT_OK);
    fake_break(r->net, 0, 1);
    r->net->nodes[0].events[(r->net->nodes[0].events_tail - 1) % FAKE_EVENTS].down =
        WEFT_DOWN_SILENT;
    r->net->nodes[1].events[(r->net->nodes[1].events_tail - 1) % FAKE_EVENTS].down =
        WEFT_DOWN_SILENT;
    rig_run(r);
    for (uint32_t k = 0; k < N; k++) {
        const struct weft_coll_failure *f = weft_coll_failure(r->coll[k]);
        assert_int_equal(f->reason, WEFT_COLL_DOWN);
        assert_true((f->rank == 0 && f->by == 1) || (f->rank == 1 && f->by == 0));
    }
    assert_int_equal(r->done[0][0].status, WEFT_PEER);
    rig_free(r);
}

/* A rank that closes after all its operations are done causes no failure. Otherwise the failure is
 * delayed, so that another reason can arrive first. No operation can begin with a rank that has
 * left. */
static void test_leaves(void **state)
{
    (void)state;
    struct rig *r = rig_new(N, 2);
    for (uint32_t k = 0; k < N; k++) {
        assert_int_equal(rig_begin(r, k, call_of(k)), WEFT_OK);
    }
    rig_run(r);
    fake_break(r->net, 0, 3); /* its PEER_DOWN has the reason CLOSED */
    rig_run(r);
    assert_int_equal(weft_coll_failure(r->coll[0])->reason, WEFT_COLL_FINE);
    assert_int_equal(rig_begin(r, 1, call_of(1)), WEFT_OK);
    rig_run(r);
    assert_int_equal(rig_begin(r, 0, call_of(0)), WEFT_OK);
    rig_run(r);
    assert_int_equal(r->done[0][0].status, WEFT_PEER);
    assert_text(r, 1, "rank 3 left before operation 1 was done (seen by rank 0)");
    rig_free(r);

    r = rig_new(N, 3);
    assert_int_equal(rig_begin(r, 1, call_of(1)), WEFT_OK);
    rig_run(r);
    fake_break(r->net, 1, 3);
    rig_run(r);
    assert_int_equal(weft_coll_failure(r->coll[1])->reason, WEFT_COLL_FINE);
    assert_int_equal(weft_coll_deadline(r->coll[1]) > r->net->now_ns, true);
    r->net->now_ns = weft_coll_deadline(r->coll[1]);
    rig_run(r);
    assert_text(r, 1, "rank 3 left before operation 0 was done (seen by rank 1)");
    assert_text(r, 0, "rank 3 left before operation 0 was done (seen by rank 1)");
    assert_int_equal(r->done[1][0].status, WEFT_PEER);
    rig_free(r);
}

/* Messages that were unacknowledged when the other end closed have arrived. With feedback the rank
 * would have to know which part. */
static void test_closes_unconfirmed(void **state)
{
    (void)state;
    static float residual[2][COUNT];
    for (int feedback = 0; feedback < 2; feedback++) {
        struct weft_coll_config config = rig_config(2);
        struct rig *r = rig_new_with(&config, 4);
        for (uint32_t k = 0; k < 2; k++) {
            struct weft_coll_call call = call_of(k);
            call.residual = feedback ? residual[k] : NULL;
            assert_int_equal(rig_begin(r, k, call), WEFT_OK);
        }
        for (;;) { /* until rank 1 is done; rank 0 then has all data, but not all
                    * acknowledgements */
            bool moved = fake_step(r->net);
            rig_poll_all(r);
            assert_true(moved);
            bool mine = false;
            for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
                struct fake_message *m = &r->net->messages[i];
                m->held |= m->live && m->from == 0 && m->left == 0 && m->open;
                mine |= m->live && m->from == 1;
            }
            if (!mine) {
                break;
            }
        }
        assert_int_equal(r->done_count[0], 0);
        fake_break(r->net, 0, 1);
        rig_poll_all(r);
        r->net->now_ns += WEFT_NS_PER_S;
        rig_run(r);
        assert_int_equal(r->done_count[0], 1);
        assert_int_equal(r->done[0][0].status == WEFT_OK, false);
        rig_free(r);
    }
}

/* Both errors name both calls. */
static void test_mismatch(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        struct rig *r = rig_new(N, seed);
        static int64_t words[10];
        for (uint32_t k = 0; k < N; k++) {
            assert_int_equal(rig_begin(r, k, (struct weft_coll_call){.kind = WEFT_COLL_BARRIER}),
                             WEFT_OK);
        }
        rig_run(r);
        for (uint32_t k = 0; k < N; k++) {
            struct weft_coll_call call = call_of(k);
            if (k == 3) {
                call = (struct weft_coll_call){.kind = WEFT_COLL_BROADCAST,
                                               .type = WEFT_COLL_I64,
                                               .count = 10,
                                               .root = 3,
                                               .in = words,
                                               .out = words};
            }
            assert_int_equal(rig_begin(r, k, call), WEFT_OK);
            for (uint64_t i = 0; i < 5 * seed; i++) {
                fake_step(r->net);
                rig_poll_all(r);
            }
        }
        rig_run(r);
        char text[256], want[256];
        const struct weft_coll_failure *f = weft_coll_failure(r->coll[3]);
        assert_int_equal(f->reason, WEFT_COLL_MISMATCH);
        assert_int_equal(f->op, 1);
        assert_true(f->rank == 3 || f->by == 3);
        uint32_t other = f->rank == 3 ? f->by : f->rank;
        const char *mine = "broadcast(int64 x 10, root 3)",
                   *theirs = "all_reduce(float32 x 20000, sum)";
        snprintf(want, sizeof(want), "rank %u called %s, rank %u %s, as operation 1", f->rank,
                 f->rank == 3 ? mine : theirs, f->rank == 3 ? other : 3,
                 f->rank == 3 ? theirs : mine);
        weft_coll_failure_text(f, text, sizeof(text));
        assert_string_equal(text, want);
        for (uint32_t k = 0; k < N; k++) {
            const struct weft_coll_failure *g = weft_coll_failure(r->coll[k]);
            assert_int_equal(g->reason, WEFT_COLL_MISMATCH);
            assert_true(g->rank == 3 || g->by == 3);
            assert_true(g->has_called);
        }
        rig_free(r);
    }
}

/* A difference in any field of a call is detected. */
static void test_mismatch_of_each_field(void **state)
{
    (void)state;
    static float residual[COUNT];
    struct weft_coll_call other[6];
    for (int i = 0; i < 6; i++) {
        other[i] = call_of(1);
    }
    other[0].count = COUNT - 1;
    other[1].type = WEFT_COLL_I32;
    other[2].reduction = WEFT_COLL_MAX;
    other[3].bound_ppm = 1000;
    other[4].residual = residual;
    other[5].kind = WEFT_COLL_REDUCE;
    for (int i = 0; i < 6; i++) {
        struct rig *r = rig_new(2, (uint64_t)i);
        assert_int_equal(rig_begin(r, 0, call_of(0)), WEFT_OK);
        assert_int_equal(rig_begin(r, 1, other[i]), WEFT_OK);
        rig_run(r);
        for (uint32_t k = 0; k < 2; k++) {
            assert_int_equal(weft_coll_failure(r->coll[k])->reason, WEFT_COLL_MISMATCH);
            assert_int_equal(r->done_count[k], 1);
        }
        rig_free(r);
    }
    /* and in the group's ranks */
    struct rig *r = rig_new(2, 9);
    const uint32_t ranks[2] = {0, 1}, swapped[2] = {1, 0};
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t group;
        assert_int_equal(weft_coll_group(r->coll[k], k == 0 ? ranks : swapped, 2, &group), WEFT_OK);
        struct weft_coll_call call = call_of(k);
        call.group = group;
        assert_int_equal(rig_begin(r, k, call), WEFT_OK);
    }
    rig_run(r);
    char text[256];
    weft_coll_failure_text(weft_coll_failure(r->coll[0]), text, sizeof(text));
    assert_non_null(strstr(text, "with other ranks in the group"));
    rig_free(r);
}

/* No rank waits longer than the timeout, and all name the missing rank. */
static void test_timeout(void **state)
{
    (void)state;
    struct rig *r = rig_new(N, 5);
    for (uint32_t k = 0; k < N; k++) {
        assert_int_equal(rig_begin(r, k, (struct weft_coll_call){.kind = WEFT_COLL_BARRIER}),
                         WEFT_OK);
    }
    rig_run(r);
    for (uint32_t k = 0; k + 1 < N; k++) {
        struct weft_coll_call call = call_of(k);
        call.timeout_ns = 300 * WEFT_NS_PER_S + k;
        assert_int_equal(rig_begin(r, k, call), WEFT_OK);
    }
    rig_run(r);
    for (uint32_t k = 0; k < N; k++) {
        assert_int_equal(r->done_count[k], 1);
    }
    r->net->now_ns += 299 * WEFT_NS_PER_S;
    rig_run(r);
    assert_int_equal(weft_coll_failure(r->coll[0])->reason, WEFT_COLL_FINE);
    r->net->now_ns += 2 * WEFT_NS_PER_S;
    rig_run(r); /* ranks query each other's progress, and the reply may be late */
    assert_int_equal(weft_coll_failure(r->coll[0])->reason, WEFT_COLL_FINE);
    assert_true(weft_coll_deadline(r->coll[0]) <= r->net->now_ns + WEFT_NS_PER_S);
    r->net->now_ns += WEFT_NS_PER_S;
    rig_run(r);
    for (uint32_t k = 0; k < N; k++) {
        assert_text(r, k, "rank 3 has not entered operation 1; it last entered 0");
        assert_int_equal(r->done_count[k], k == 3 ? 1 : 2);
    }
    rig_free(r);
}

/* Three elements have one owner, rank 3, so no other rank receives from rank 1. Rank 1 does not
 * call. Rank 3 waits for rank 1, and the others wait for rank 3, whose timeout expires last. */
static void test_timeout_behind_another(void **state)
{
    (void)state;
    struct weft_coll_config config = rig_config(N);
    config.small_bytes = 0;
    struct rig *r = rig_new_with(&config, 5);
    for (uint32_t k = 0; k < N; k++) {
        struct weft_coll_call call = call_of(k);
        call.count = 3;
        call.timeout_ns = (k == 3 ? 20 : 10) * WEFT_NS_PER_S;
        if (k != 1) {
            assert_int_equal(rig_begin(r, k, call), WEFT_OK);
        }
    }
    rig_run(r);
    for (int i = 0; i < 12; i++) {
        r->net->now_ns += WEFT_NS_PER_S;
        rig_run(r);
    }
    for (uint32_t k = 0; k < N; k++) {
        assert_text(r, k, "rank 1 has not entered operation 0, nor any before it");
        assert_int_equal(r->done_count[k], k != 1);
    }
    rig_free(r);
}

/* A mismatched call releases its early messages, so that the next ones do not exceed the limit. */
static void test_mismatch_with_much_ahead(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct weft_coll_config config = rig_config(2);
        config.pool_bytes = 64 << 10;
        config.segment_bytes = 1024;
        config.small_bytes = 1024;
        struct rig *r = rig_new_with(&config, seed);
        for (uint32_t i = 0; i < 8; i++) {
            struct weft_coll_call call = call_of(0);
            call.count = i == 0 ? 7380 : 512;
            call.user = i;
            assert_int_equal(rig_begin(r, 0, call), WEFT_OK);
        }
        rig_run(r);
        struct weft_coll_call call = call_of(1);
        call.count = 7413;
        assert_int_equal(rig_begin(r, 1, call), WEFT_OK);
        do { /* the mismatch is reported late */
            for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
                struct fake_message *m = &r->net->messages[i];
                m->held = m->live && m->send.tag >> 60 == 2;
            }
            rig_poll_all(r);
        } while (fake_step(r->net));
        for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
            r->net->messages[i].held = false;
        }
        rig_run(r);
        for (uint32_t k = 0; k < 2; k++) {
            assert_int_equal(weft_coll_failure(r->coll[k])->reason, WEFT_COLL_MISMATCH);
        }
        rig_free(r);
    }
}

/* One rank calls the operation without elements and is done at once: messages that have arrived or
 * arrive later reveal the mismatch. With three elements only their owner sends to rank 1. The owner
 * waits for rank 1 and then queries it. */
static void test_mismatch_with_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 3; seed++) {
        struct weft_coll_config config = rig_config(N);
        config.small_bytes = 0;
        struct rig *r = rig_new_with(&config, seed);
        for (uint32_t k = 0; k < N; k++) {
            struct weft_coll_call call = call_of((k + (uint32_t)seed) % N);
            uint32_t rank = (k + (uint32_t)seed) % N;
            call.count = seed < 2 ? 20000 : 3;
            call.count = rank == 1 ? 0 : call.count;
            weft_status status = rig_begin(r, rank, call); /* PEER: the failure is known already */
            assert_true(status == WEFT_OK || status == WEFT_PEER);
            if (seed > 0) {
                rig_run(r);
            }
        }
        rig_run(r);
        for (int i = 0; i < 2; i++) {
            r->net->now_ns += WEFT_NS_PER_S + 1;
            rig_run(r);
        }
        for (uint32_t k = 0; k < N; k++) {
            const struct weft_coll_failure *f = weft_coll_failure(r->coll[k]);
            assert_int_equal(f->reason, WEFT_COLL_MISMATCH);
            assert_true(f->has_called && (f->rank == 1 || f->by == 1));
            assert_int_equal(f->called[f->rank == 1 ? 0 : 1].count, 0);
        }
        rig_free(r);
    }
}

/* A rank that closes while its early messages are incomplete has left; that is not a protocol
 * violation. */
static void test_leaves_ahead(void **state)
{
    (void)state;
    uint32_t left = 0;
    for (uint32_t steps = 1; steps < 40; steps++) {
        struct weft_coll_config config = rig_config(2);
        struct rig *r = rig_new_with(&config, steps);
        struct weft_coll_call call = call_of(0);
        call.type = WEFT_COLL_F64; /* chunks do not begin on grain boundaries */
        call.count = COUNT / 2;
        assert_int_equal(rig_begin(r, 0, call), WEFT_OK);
        for (uint32_t i = 0; i < steps; i++) {
            fake_step(r->net);
            rig_poll_all(r);
        }
        fake_break(r->net, 1, 0); /* its PEER_DOWN has the reason CLOSED */
        rig_poll_all(r);
        call = call_of(1);
        call.type = WEFT_COLL_F64;
        call.count = COUNT / 2;
        weft_status status = rig_begin(r, 1, call);
        assert_int_equal(status, WEFT_OK);
        r->net->now_ns += WEFT_NS_PER_S;
        rig_run(r);
        assert_int_equal(r->done[1][0].status, WEFT_PEER);
        left += weft_coll_failure(r->coll[1])->reason == WEFT_COLL_LEFT;
        rig_free(r);
    }
    assert_int_equal(left, 39);
}

/* A send from rank 2 to rank 0, and the matching recv. */
static struct weft_coll_call pair_of(enum weft_coll_kind kind)
{
    bool sends = kind == WEFT_COLL_SEND;
    struct weft_coll_call call = call_of(sends ? 2 : 0);
    call.kind = kind;
    call.peer = sends ? 0 : 2;
    call.tag = 7;
    return call;
}

/* The ends disagree in the count, in an empty count, or in the type; each with either end calling
 * first. */
static void test_send_recv_differ(void **state)
{
    (void)state;
    static const struct {
        uint64_t sent, wanted;
        enum weft_coll_type type;
        const char *text;
    } rows[] = {
        {40, 20000, WEFT_COLL_F32,
         "rank 0 called recv(float32 x 20000, tag 7), rank 2 send(float32 x 40, tag 7)"},
        {0, 20000, WEFT_COLL_F32,
         "rank 0 called recv(float32 x 20000, tag 7), rank 2 send(float32 x 0, tag 7)"},
        {40, 0, WEFT_COLL_F32,
         "rank 0 called recv(float32 x 0, tag 7), rank 2 send(float32 x 40, tag 7)"},
        {20000, 20000, WEFT_COLL_I32,
         "rank 0 called recv(float32 x 20000, tag 7), rank 2 send(int32 x 20000, tag 7)"},
    };
    for (uint32_t i = 0; i < 2 * WEFT_ARRAY_COUNT(rows); i++) {
        struct weft_coll_call recv = pair_of(WEFT_COLL_RECV), send = pair_of(WEFT_COLL_SEND);
        bool first = i % 2 == 0;
        send.count = rows[i / 2].sent;
        send.type = rows[i / 2].type;
        recv.count = rows[i / 2].wanted;
        struct rig *r = rig_new(N, i);
        assert_int_equal(rig_begin(r, first ? 2 : 0, first ? send : recv), WEFT_OK);
        rig_run(r);
        assert_int_equal(rig_begin(r, first ? 0 : 2, first ? recv : send), WEFT_OK);
        rig_run(r);
        for (uint32_t k = 0; k < N; k++) {
            assert_text(r, k, rows[i / 2].text);
        }
        assert_int_equal(r->done[0][0].status, WEFT_PEER);
        assert_int_equal(r->done[2][0].status, WEFT_PEER);
        assert_true(out[0][0] == 0 && out[0][39] == 0);
        rig_free(r);
    }
}

/* The other end never calls, leaves, dies or aborts; each for a send and for a recv. */
static void test_send_recv_fails(void **state)
{
    (void)state;
    for (int sends = 0; sends < 2; sends++) {
        uint32_t me = sends ? 2 : 0, other = sends ? 0 : 2;
        struct weft_coll_call call = pair_of(sends ? WEFT_COLL_SEND : WEFT_COLL_RECV);
        struct rig *r = rig_new(N, 2);
        call.timeout_ns = 10 * WEFT_NS_PER_S;
        assert_int_equal(rig_begin(r, me, call), WEFT_OK);
        rig_run(r);
        r->net->now_ns += 11 * WEFT_NS_PER_S;
        rig_run(r);
        assert_int_equal(weft_coll_failure(r->coll[me])->reason, WEFT_COLL_FINE);
        r->net->now_ns += 2 * WEFT_NS_PER_S;
        rig_run(r);
        assert_text(r, 1,
                    sends ? "rank 0 has not done its part of the send(float32 x 20000, tag 7) of "
                            "rank 2"
                          : "rank 2 has not done its part of the recv(float32 x 20000, tag 7) of "
                            "rank 0");
        assert_int_equal(r->done[me][0].status, WEFT_PEER);
        rig_free(r);

        call.timeout_ns = WEFT_NEVER;
        r = rig_new(N, 3);
        assert_int_equal(rig_begin(r, me, call), WEFT_OK);
        rig_run(r);
        fake_break(r->net, 0, 2);
        rig_poll_all(r);
        r->net->now_ns += WEFT_NS_PER_S;
        rig_run(r);
        assert_text(r, 3,
                    sends ? "rank 0 left before a send or recv was done (seen by rank 2)"
                          : "rank 2 left before a send or recv was done (seen by rank 0)");
        assert_int_equal(r->done[me][0].status, WEFT_PEER);
        rig_free(r);

        r = rig_new(N, 3); /* the rank has left before the call */
        fake_break(r->net, 0, 2);
        rig_run(r);
        assert_int_equal(rig_begin(r, me, call), WEFT_OK);
        rig_run(r);
        assert_int_equal(weft_coll_failure(r->coll[1])->reason, WEFT_COLL_LEFT);
        assert_int_equal(weft_coll_failure(r->coll[1])->rank, other);
        rig_free(r);

        r = rig_new(N, 4);
        assert_int_equal(rig_begin(r, me, call), WEFT_OK);
        rig_run(r);
        weft_coll_abort(r->coll[other], "enough", r->net->now_ns);
        rig_run(r);
        assert_int_equal(weft_coll_failure(r->coll[1])->reason, WEFT_COLL_ABORTED);
        assert_int_equal(weft_coll_failure(r->coll[1])->rank, other);
        assert_int_equal(r->done[me][0].status, WEFT_PEER);
        rig_free(r);
    }
    bool ends[2] = {false};
    for (uint32_t i = 0; i < COUNT; i++) {
        in[2][i] = (float)(i + 1);
    }
    for (uint32_t steps = 0; steps < 100; steps += 3) { /* with a part of the message in flight */
        struct rig *r = rig_new(N, steps);
        memset(out[0], 0, sizeof(out[0]));
        assert_int_equal(rig_begin(r, 0, pair_of(WEFT_COLL_RECV)), WEFT_OK);
        assert_int_equal(rig_begin(r, 2, pair_of(WEFT_COLL_SEND)), WEFT_OK);
        for (uint32_t i = 0; i < steps && r->done_count[0] + r->done_count[2] == 0; i++) {
            fake_step(r->net);
            rig_poll_all(r);
        }
        uint32_t dead = steps % 2 == 0 ? 2 : 0, left = 2 - dead;
        bool was_done = r->done_count[left] > 0;
        weft_coll_free(r->coll[dead]);
        r->coll[dead] = NULL;
        fake_kill(r->net, dead);
        rig_run(r);
        assert_int_equal(r->done_count[left], 1);
        /* A receiver with all data can have waited only for the acknowledgement of its READY. */
        bool all = left == 0 && memcmp(out[0], in[2], sizeof(in[2])) == 0;
        assert_int_equal(r->done[left][0].status, was_done || all ? WEFT_OK : WEFT_PEER);
        assert_int_equal(weft_coll_failure(r->coll[1])->reason, WEFT_COLL_DOWN);
        assert_int_equal(weft_coll_failure(r->coll[1])->rank, dead);
        ends[was_done || all] = true;
        rig_free(r);
    }
    assert_true(ends[false] && ends[true]);
    memset(in[2], 0, sizeof(in[2]));
    memset(out[0], 0, sizeof(out[0]));
}

/* Rank 2 has not called the second operation, because it waits in the first one, which rank 3 has
 * not called. The second operation times out slightly earlier, but the first one is reported. */
static void test_names_for_the_oldest(void **state)
{
    (void)state;
    struct rig *r = rig_new(N, 6);
    for (uint32_t k = 0; k < 3; k++) {
        struct weft_coll_call call = call_of(k);
        call.timeout_ns = 10 * WEFT_NS_PER_S;
        assert_int_equal(rig_begin(r, k, call), WEFT_OK);
        call.timeout_ns -= 6 * (WEFT_NS_PER_S / 10);
        call.count = 40;
        call.user = 1;
        assert_true(k == 2 || rig_begin(r, k, call) == WEFT_OK);
    }
    for (int tenth = 0; tenth < 120; tenth++) {
        rig_run(r);
        r->net->now_ns += WEFT_NS_PER_S / 10;
    }
    for (uint32_t k = 0; k < N; k++) {
        assert_text(r, k, "rank 3 has not entered operation 0, nor any before it");
    }
    rig_free(r);
}

/* Rank 2 has not called send, because it waits for rank 3 like all others: rank 3 is reported,
 * although the recv is older. */
static void test_recv_waits_for_collective(void **state)
{
    (void)state;
    struct rig *r = rig_new(N, 5);
    struct weft_coll_call recv = pair_of(WEFT_COLL_RECV);
    recv.timeout_ns = 10 * WEFT_NS_PER_S;
    recv.user = 1;
    assert_int_equal(rig_begin(r, 0, recv), WEFT_OK);
    for (uint32_t k = 0; k < 3; k++) {
        struct weft_coll_call call = call_of(k);
        call.timeout_ns = 10 * WEFT_NS_PER_S;
        assert_int_equal(rig_begin(r, k, call), WEFT_OK);
    }
    rig_run(r);
    for (int half = 0; half < 26; half++) {
        r->net->now_ns += WEFT_NS_PER_S / 2;
        rig_run(r);
    }
    for (uint32_t k = 0; k < N; k++) {
        assert_text(r, k, "rank 3 has not entered operation 0, nor any before it");
    }
    rig_free(r);
}

/* ---- a rank that sends invalid messages ------------------------------------------------------ */

static void put(uint8_t *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        to[i] = (uint8_t)(value >> 8 * (bytes - 1 - i));
    }
}

struct ready {
    uint32_t number, group, slot;
    uint8_t kind;
};

/* Messages from rank 1 to rank 0. Rank 0 has 8 operations, the groups of all ranks, of 0 and 1, of
 * 0 and 2, and of 1 and 2, and room for a fifth group. */
static void ready_in(struct rig *r, struct ready ready)
{
    uint8_t data[112] = {4};
    put(data + 4, ready.number, 4);
    put(data + 12, ready.group, 4);
    put(data + 16, ready.slot, 4);
    data[24] = ready.kind;
    put(data + 28, 3, 4); /* tag */
    put(data + 40, 9, 8); /* count */
    struct weft_msg_event *event = fake_event(&r->net->nodes[0], WEFT_EVENT_CHUNK);
    event->peer = fake_peer(1);
    event->tag = UINT64_C(2) << 60;
    event->total = event->elems = sizeof(data);
    event->elem_bytes = 1;
    event->chunks = 1;
    event->data = data;
    rig_poll_all(r);
}

static struct rig *rig_with_groups(void)
{
    static const uint32_t members[3][2] = {{0, 1}, {2, 0}, {1, 2}};
    struct weft_coll_config config = rig_config(3);
    config.groups_max = 5;
    struct rig *r = rig_new_with(&config, 1);
    for (uint32_t k = 0; k < 3; k++) {
        for (uint32_t i = 0; i < 3; i++) {
            uint32_t group;
            assert_int_equal(weft_coll_group(r->coll[k], members[i], 2, &group), WEFT_OK);
        }
    }
    return r;
}

static void test_bad_ready(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        struct ready ready;
        bool refused;
    } rows[] = {
        {"the first", {.kind = WEFT_COLL_RECV}, false},
        {"one that overtook seven", {.number = 7, .kind = WEFT_COLL_RECV}, false},
        {"of a group not made yet", {.group = 4, .kind = WEFT_COLL_RECV}, false},
        {"far ahead", {.number = 8, .kind = WEFT_COLL_RECV}, true},
        {"of a time before the first", {.number = UINT32_MAX, .kind = WEFT_COLL_RECV}, true},
        {"of no group", {.group = 5, .kind = WEFT_COLL_RECV}, true},
        {"of a group that it is not in", {.group = 2, .kind = WEFT_COLL_RECV}, true},
        {"of a group that this one is not in", {.group = 3, .kind = WEFT_COLL_RECV}, true},
        {"of no place", {.slot = 8, .kind = WEFT_COLL_RECV}, true},
        {"of a send", {.kind = WEFT_COLL_SEND}, true},
    };
    for (uint32_t i = 0; i < WEFT_ARRAY_COUNT(rows); i++) {
        struct rig *r = rig_with_groups();
        ready_in(r, rows[i].ready);
        const struct weft_coll_failure *f = weft_coll_failure(r->coll[0]);
        if ((f->reason == WEFT_COLL_PROTOCOL && f->rank == 1) != rows[i].refused) {
            fail_msg("%s: reason %d, rank %u", rows[i].what, (int)f->reason, f->rank);
        }
        rig_free(r);
    }
    /* The same number twice: a second message after the first one, and before it. */
    for (uint32_t number = 0; number < 2; number++) {
        struct rig *r = rig_with_groups();
        ready_in(r, (struct ready){.number = number, .kind = WEFT_COLL_RECV});
        assert_int_equal(weft_coll_failure(r->coll[0])->reason, WEFT_COLL_FINE);
        ready_in(r, (struct ready){.number = number, .kind = WEFT_COLL_RECV});
        assert_int_equal(weft_coll_failure(r->coll[0])->reason, WEFT_COLL_PROTOCOL);
        rig_free(r);
    }
    /* The maximum number of open operations, and one more. */
    struct rig *r = rig_with_groups();
    for (uint32_t number = 0; number <= 8; number++) {
        assert_int_equal(weft_coll_failure(r->coll[0])->reason, WEFT_COLL_FINE);
        ready_in(r, (struct ready){.number = number, .slot = number % 8, .kind = WEFT_COLL_RECV});
    }
    assert_int_equal(weft_coll_failure(r->coll[0])->reason, WEFT_COLL_PROTOCOL);
    assert_text(r, 0,
                "rank 1 violated the protocol; no operation was open (seen by rank "
                "0)");
    rig_free(r);
}

/* Data for a recv that has not been called, from another rank, of another start of the job, or of
 * the wrong length. */
static void test_bad_pair_data(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        uint32_t from, slot, life, segment, total, elem_bytes;
        bool refused;
    } rows[] = {
        {"what was called", 2, 0, 1, 0, COUNT, 4, false},
        {"of another rank", 1, 0, 1, 0, COUNT, 4, true},
        {"a place without a call", 2, 1, 1, 0, COUNT, 4, true},
        {"no place", 2, 8, 1, 0, COUNT, 4, true},
        {"far from every place", 2, 0xffffff, 1, 0, COUNT, 4, true},
        {"another life", 2, 0, 2, 0, COUNT, 4, true},
        {"another segment", 2, 0, 1, 1, COUNT, 4, true},
        {"too long", 2, 0, 1, 0, COUNT + 1, 4, true},
        {"too short", 2, 0, 1, 0, COUNT - 1, 4, true},
        {"nothing", 2, 0, 1, 0, 0, 4, true},
        {"longer elements", 2, 0, 1, 0, COUNT, 8, true},
    };
    for (uint32_t i = 0; i < WEFT_ARRAY_COUNT(rows); i++) {
        struct weft_coll_config config = rig_config(N);
        config.segment_bytes = COUNT * 4;
        struct rig *r = rig_new_with(&config, i);
        assert_int_equal(rig_begin(r, 0, pair_of(WEFT_COLL_RECV)), WEFT_OK);
        rig_run(r);
        for (int twice = 0; twice < 2; twice++) {
            struct weft_msg_event *event = fake_event(&r->net->nodes[0], WEFT_EVENT_OPEN);
            event->peer = fake_peer(rows[i].from);
            event->tag = UINT64_C(3) << 60 | (uint64_t)rows[i].slot << 36 |
                         (uint64_t)rows[i].life << 20 | (uint64_t)rows[i].segment << 8;
            event->total = rows[i].total;
            event->elem_bytes = (uint16_t)rows[i].elem_bytes;
            rig_poll_all(r);
            const struct weft_coll_failure *f = weft_coll_failure(r->coll[0]);
            bool refused = f->reason == WEFT_COLL_PROTOCOL && f->rank == rows[i].from;
            if (refused != (rows[i].refused || twice)) {
                fail_msg("%s: reason %d, rank %u", rows[i].what, (int)f->reason, f->rank);
            }
        }
        rig_free(r);
    }
}

/* Ranks with different configurations detect that, as for mismatched calls. */
static void test_send_recv_other_configuration(void **state)
{
    (void)state;
    struct weft_coll_config config = rig_config(3);
    struct rig *r = rig_new_with(&config, 1);
    weft_coll_free(r->coll[2]);
    config.rank = 2;
    config.ops_max = 4;
    assert_int_equal(weft_coll_new(&config, fake_msgr(r->net, 2), &r->coll[2]), WEFT_OK);
    for (uint32_t k = 0; k < 2; k++) {
        struct weft_msg_event event = {.type = WEFT_EVENT_PEER_UP,
                                       .peer = fake_peer(k),
                                       .name = weft_coll_name(7, k),
                                       .incarnation = 100 + k};
        weft_coll_event(r->coll[2], &event, 0);
    }
    assert_int_equal(rig_begin(r, 0, pair_of(WEFT_COLL_RECV)), WEFT_OK);
    assert_int_equal(rig_begin(r, 2, pair_of(WEFT_COLL_SEND)), WEFT_OK);
    rig_run(r);
    assert_text(r, 0,
                "rank 0 called recv(float32 x 20000, tag 7), rank 2 send(float32 x 20000, tag 7), "
                "with other ranks in the group, another configuration or another plan");
    rig_free(r);
}

static void test_aborted(void **state)
{
    (void)state;
    struct rig *r = rig_new(N, 6);
    assert_int_equal(rig_begin(r, 0, call_of(0)), WEFT_OK);
    weft_coll_abort(r->coll[1], "interrupted by the keyboard, in the middle of all",
                    r->net->now_ns);
    rig_run(r);
    for (uint32_t k = 0; k < N; k++) {
        assert_text(r, k, "rank 1 gave up: interrupted by the keyboard, in the mid");
    }
    assert_int_equal(r->done[0][0].status, WEFT_PEER);
    rig_free(r);
}

/* A connection of another start of the job, of no rank, or of a connected rank is closed and
 * ignored. */
static void test_strangers(void **state)
{
    (void)state;
    struct rig *r = rig_new(N, 7);
    const uint64_t names[] = {weft_coll_name(6, 1), weft_coll_name(7, N), weft_coll_name(7, 0), 5,
                              weft_coll_name(7, 1)};
    for (uint32_t i = 0; i < 5; i++) {
        struct weft_msg_event *event = fake_event(&r->net->nodes[0], WEFT_EVENT_PEER_UP);
        event->peer = 20 + i;
        event->name = names[i];
        event->incarnation = 101;
    }
    rig_poll_all(r);
    assert_int_equal(weft_coll_counters(r->coll[0])->peers_refused, 5);
    assert_int_equal(r->closed[0], UINT32_C(0x1f) << 10);
    assert_int_equal(weft_coll_failure(r->coll[0])->reason, WEFT_COLL_FINE);
    struct weft_msg_event *event = fake_event(&r->net->nodes[0], WEFT_EVENT_OPEN);
    event->peer = 21;
    event->tag = UINT64_C(1) << 60;
    event->total = 1;
    rig_poll_all(r);
    assert_int_equal(weft_coll_counters(r->coll[0])->ignored, 1);
    /* a later process of a connected rank: the earlier process is dead */
    event = fake_event(&r->net->nodes[0], WEFT_EVENT_PEER_UP);
    event->peer = 26;
    event->name = weft_coll_name(7, 2);
    event->incarnation = 500;
    rig_run(r);
    assert_text(r, 3,
                "lost rank 2: it was restarted, or has closed the connection; no operation was "
                "open (seen by rank 0)");
    rig_free(r);
}

/* Malformed control messages. */
static void test_bad_control(void **state)
{
    (void)state;
    for (uint32_t bytes = 0; bytes < 150; bytes++) {
        struct rig *r = rig_new(2, bytes);
        uint8_t data[150];
        memset(data, 0xff, sizeof(data));
        data[0] = bytes % 5; /* what */
        struct weft_msg_event *event = fake_event(&r->net->nodes[0], WEFT_EVENT_CHUNK);
        event->peer = fake_peer(1);
        event->tag = UINT64_C(2) << 60;
        event->total = event->elems = bytes;
        event->elem_bytes = 1;
        event->chunks = 1;
        event->data = data;
        rig_run(r);
        assert_int_equal(weft_coll_failure(r->coll[0])->reason, WEFT_COLL_PROTOCOL);
        assert_int_equal(weft_coll_failure(r->coll[0])->rank, 1);
        rig_free(r);
    }
}

/* A rank is ahead by the maximum number of operations; the others call later, and all messages are
 * kept. */
static void test_ahead(void **state)
{
    (void)state;
    struct weft_coll_config config = rig_config(2);
    config.pool_bytes = 64 << 10;
    struct rig *r = rig_new_with(&config, 8);
    static float far[8][COUNT];
    for (uint32_t op = 0; op < 8; op++) { /* 640 KB, of which 64 KB may be sent */
        for (uint32_t i = 0; i < COUNT; i++) {
            far[op][i] = (float)(i + op);
        }
        struct weft_coll_call call = {.kind = WEFT_COLL_BROADCAST,
                                      .count = COUNT / 8,
                                      .in = far[op],
                                      .out = far[op],
                                      .user = op};
        assert_int_equal(rig_begin(r, 0, call), WEFT_OK);
    }
    rig_run(r);
    const struct weft_coll_counters *c = weft_coll_counters(r->coll[1]);
    assert_true(c->early_messages > 0 && c->early_messages < 8);
    assert_true(c->early_pages_max <= 16);
    for (uint32_t op = 0; op < 8; op++) {
        struct weft_coll_call call = {
            .kind = WEFT_COLL_BROADCAST, .count = COUNT / 8, .out = out[1], .user = op};
        assert_int_equal(rig_begin(r, 1, call), WEFT_OK);
        rig_run(r);
        assert_int_equal(r->done_count[1], op + 1);
        for (uint32_t i = 0; i < COUNT / 8; i++) {
            assert_true(out[1][i] == (float)(i + op));
        }
    }
    rig_run(r);
    assert_int_equal(r->done_count[0], 8);
    assert_true(weft_coll_counters(r->coll[1])->progress_sent > 0);
    rig_free(r);
}

/* A single message longer than the pool waits at the sender until the receiver calls; with either
 * end calling first. */
static void test_longer_than_the_pool(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        struct weft_coll_config config = rig_config(2);
        config.pool_bytes = 64 << 10;
        config.segment_bytes = 1 << 20;
        struct rig *r = rig_new_with(&config, 9);
        static float big[2][200000];
        for (uint32_t k = 0; k < 2; k++) {
            uint32_t rank = k ^ (uint32_t)first;
            for (uint32_t i = 0; i < 200000; i++) {
                big[rank][i] = (float)(i % 100 + rank);
            }
            struct weft_coll_call call = {.count = 200000, .in = big[rank], .out = big[rank]};
            assert_int_equal(rig_begin(r, rank, call), WEFT_OK);
            rig_run(r);
        }
        for (uint32_t k = 0; k < 2; k++) {
            assert_int_equal(r->done[k][0].status, WEFT_OK);
            assert_int_equal(weft_coll_counters(r->coll[k])->early_messages, 0);
            for (uint32_t i = 0; i < 200000; i++) {
                assert_true(big[k][i] == (float)(2 * (i % 100) + 1));
            }
        }
        rig_free(r);
    }
}

/* Many small operations in one direction: the sender learns the receiver's progress only from its
 * control messages. */
static void test_many_ahead(void **state)
{
    (void)state;
    struct rig *r = rig_new(2, 10);
    float value = 0, got = -1;
    uint32_t sent = 0, taken = 0;
    while (taken < 300) {
        while (sent < 300) {
            struct weft_coll_call call = {.kind = WEFT_COLL_BROADCAST,
                                          .count = 1,
                                          .in = &value,
                                          .out = &value,
                                          .user = sent % 8};
            if (r->work[0][sent % 8] != NULL || rig_begin(r, 0, call) != WEFT_OK) {
                break;
            }
            sent++;
        }
        rig_run(r);
        assert_true(sent - taken <= 32 + 8);
        struct weft_coll_call call = {.kind = WEFT_COLL_BROADCAST, .count = 1, .out = &got};
        assert_int_equal(rig_begin(r, 1, call), WEFT_OK);
        rig_run(r);
        assert_int_equal(r->done_count[1], ++taken);
        assert_true(got == 0);
        got = -1;
    }
    assert_true(weft_coll_counters(r->coll[1])->progress_sent <= 300 / 16 + 2);
    rig_free(r);
}

static void *begin_sum(struct rig *r, uint32_t rank, uint32_t count, float *vector)
{
    struct weft_coll_call call = {
        .count = count, .in = vector, .out = vector, .timeout_ns = WEFT_NEVER};
    size_t bytes = weft_coll_work_bytes(r->coll[rank], &call);
    call.work = aligned_alloc(64, (bytes + 64) / 64 * 64);
    assert_int_equal(weft_coll_begin(r->coll[rank], &call, r->net->now_ns), WEFT_OK);
    weft_coll_progress(r->coll[rank], r->net->now_ns);
    return call.work;
}

/* Rank 1 has begun 100 operations when it queries about the first ones, more than the history of a
 * group has: the query contains the descriptor of that operation, so rank 0, which has called the
 * same, sees no mismatch. Rank 2 is late. */
static void test_late_with_many_open(void **state)
{
    enum { RANKS = 3, OPS = 100, STEPS = 3, LEAST = 500 };
    static const uint32_t begun[STEPS][RANKS] = {{40, 20, 0}, {40, OPS, 0}, {OPS, OPS, OPS}};
    static float vector[RANKS][OPS][LEAST + OPS];
    (void)state;
    struct weft_coll_config config = rig_config(RANKS);
    config.ops_max = 256;
    config.small_bytes = 0; /* rank 1 waits for the slice of rank 0, which waits for rank 2 */
    struct rig *r = rig_new_with(&config, 6);
    void *work[RANKS][OPS];
    uint32_t next[RANKS] = {0};
    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint32_t k = 0; k < RANKS; k++) {
            for (; next[k] < begun[step][k]; next[k]++) {
                uint32_t i = next[k];
                vector[k][i][0] = (float)(k + i);
                work[k][i] = begin_sum(r, k, LEAST + i, vector[k][i]);
            }
        }
        rig_run(r);
        r->net->now_ns += 3 * WEFT_NS_PER_S / 2;
        assert_true(step != 1 || weft_coll_deadline(r->coll[1]) <= r->net->now_ns);
        rig_run(r);
    }
    for (uint32_t k = 0; k < RANKS; k++) {
        assert_int_equal(weft_coll_failure(r->coll[k])->reason, WEFT_COLL_FINE);
        assert_int_equal(r->done_count[k], OPS);
        for (uint32_t i = 0; i < OPS; i++) {
            assert_true(vector[k][i][0] == (float)(RANKS * i + 3));
            free(work[k][i]);
        }
    }
    rig_free(r);
}

/* Rank 0 has 100 operations open, more than the history of a group has, when the data of another
 * first call of rank 1 arrives: the report contains both calls. */
static void test_mismatch_with_many_open(void **state)
{
    enum { OPS = 100 };
    static float vector[2][OPS][600];
    (void)state;
    struct weft_coll_config config = rig_config(2);
    config.ops_max = 256;
    config.small_bytes = 0;
    struct rig *r = rig_new_with(&config, 6);
    void *work[OPS];
    for (uint32_t i = 0; i < OPS; i++) {
        work[i] = begin_sum(r, 0, 500, vector[0][i]);
    }
    void *other = begin_sum(r, 1, 600, vector[1][0]);
    do { /* the data of rank 0 is late */
        for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
            struct fake_message *m = &r->net->messages[i];
            m->held = m->live && m->from == 0;
        }
        rig_poll_all(r);
    } while (fake_step(r->net));
    for (uint32_t i = 0; i < FAKE_MESSAGES; i++) {
        r->net->messages[i].held = false;
    }
    rig_run(r);
    for (uint32_t k = 0; k < 2; k++) {
        const struct weft_coll_failure *f = weft_coll_failure(r->coll[k]);
        assert_int_equal(f->reason, WEFT_COLL_MISMATCH);
        assert_true(f->has_called);
        assert_int_equal(f->called[0].count + f->called[1].count, 500 + 600);
    }
    for (uint32_t i = 0; i < OPS; i++) {
        free(work[i]);
    }
    free(other);
    rig_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dies),
        cmocka_unit_test(test_told),
        cmocka_unit_test(test_leaves),
        cmocka_unit_test(test_closes_unconfirmed),
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_mismatch_of_each_field),
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_timeout_behind_another),
        cmocka_unit_test(test_mismatch_with_much_ahead),
        cmocka_unit_test(test_mismatch_with_nothing),
        cmocka_unit_test(test_leaves_ahead),
        cmocka_unit_test(test_send_recv_differ),
        cmocka_unit_test(test_send_recv_fails),
        cmocka_unit_test(test_recv_waits_for_collective),
        cmocka_unit_test(test_names_for_the_oldest),
        cmocka_unit_test(test_bad_ready),
        cmocka_unit_test(test_bad_pair_data),
        cmocka_unit_test(test_send_recv_other_configuration),
        cmocka_unit_test(test_aborted),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_bad_control),
        cmocka_unit_test(test_ahead),
        cmocka_unit_test(test_longer_than_the_pool),
        cmocka_unit_test(test_many_ahead),
        cmocka_unit_test(test_late_with_many_open),
        cmocka_unit_test(test_mismatch_with_many_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
