/* all_reduce with a plan, over a transport that reorders chunks: sums along random trees and with
 * random slices, in every type, in place and not; what trees are not used for; impossible plans;
 * plans that differ between ranks; and a rank of a tree that dies. */
#include "coll/fold.h"
#include "coll_rig.h"
#include "coll/shape.h"
#include "print_seed.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { RANKS = 6, PARTS = 4, COUNT_MAX = 80000 };

struct arrays {
    struct weft_coll_plan plan;
    uint32_t slice[RANKS + 1];
    uint32_t part[PARTS + 1];
    uint16_t up[PARTS * RANKS];
    uint16_t down[PARTS * RANKS];
    uint16_t row[PARTS * RANKS];
};

static void rows_set(struct arrays *a)
{
    for (uint32_t p = 0; p < a->plan.parts; p++) {
        uint16_t children[RANKS] = {0};
        for (uint32_t r = 0; r < a->plan.ranks; r++) {
            uint32_t at = p * a->plan.ranks + r;
            a->row[at] = a->up[at] == r ? 0 : children[a->up[at]]++;
        }
    }
}

/* Equal slices, and one chain in each part: rank p, p + 1, ... down, and p, p - 1, ... up. */
static void chains(struct arrays *a, uint32_t n, uint32_t parts)
{
    *a = (struct arrays){.plan = {.ranks = n, .parts = parts}};
    a->plan.slice = a->slice;
    a->plan.part = a->part;
    a->plan.up = a->up;
    a->plan.down = a->down;
    a->plan.row = a->row;
    for (uint32_t i = 0; i <= n; i++) {
        a->slice[i] = WEFT_COLL_PLAN_WHOLE / n * i;
    }
    a->slice[n] = WEFT_COLL_PLAN_WHOLE;
    for (uint32_t p = 0; p < parts; p++) {
        a->part[p + 1] = p + 1 == parts ? WEFT_COLL_PLAN_WHOLE : (WEFT_COLL_PLAN_WHOLE >> (3 - p));
        for (uint32_t i = 0; i < n; i++) {
            uint32_t r = (p + i) % n;
            a->up[p * n + r] = (uint16_t)(i == 0 ? r : (r + n - 1) % n);
            a->down[p * n + r] = (uint16_t)(i == 0 ? r : i + 1 == n ? p % n : (r + 1) % n);
        }
    }
    rows_set(a);
}

static void random_plan(struct arrays *a, uint32_t n, struct weft_prng *prng)
{
    chains(a, n, (uint32_t)weft_prng_range(prng, 1, PARTS));
    for (uint32_t i = 1; i < n; i++) {
        uint32_t left = WEFT_COLL_PLAN_WHOLE - a->slice[i - 1];
        bool empty = weft_prng_below(prng, 3) == 0;
        a->slice[i] = a->slice[i - 1] + (empty ? 0 : (uint32_t)weft_prng_below(prng, left));
    }
    for (uint32_t p = 0; p < a->plan.parts; p++) {
        uint32_t root = (uint32_t)weft_prng_below(prng, n);
        for (uint32_t both = 0; both < 2; both++) {
            uint16_t *parent = (both == 0 ? a->up : a->down) + p * n;
            parent[root] = (uint16_t)root;
            for (uint32_t i = 1; i < n; i++) {
                uint32_t to = (root + (uint32_t)weft_prng_below(prng, i)) % n;
                parent[(root + i) % n] = (uint16_t)to;
            }
        }
    }
    rows_set(a);
}

static struct rig *planned_rig(const struct weft_coll_config *config, uint64_t salt,
                               const struct arrays *a)
{
    struct rig *r = rig_new_with(config, salt);
    for (uint32_t k = 0; k < r->n; k++) {
        assert_int_equal(weft_coll_plan_set(r->coll[k], 0, &a->plan), WEFT_OK);
    }
    return r;
}

static int64_t value_of(uint32_t rank, uint64_t i)
{
    return (int64_t)(weft_mix64(rank * UINT64_C(1000003) + i) % 2001) - 1000;
}

/* ---- results --------------------------------------------------------------------------------- */

static void run_one(const struct weft_coll_config *config, const struct arrays *a, uint64_t count,
                    bool in_place, uint64_t salt)
{
    uint32_t n = config->ranks;
    struct rig *r = planned_rig(config, salt, a);
    int64_t *in[RANKS], *out[RANKS];
    for (uint32_t k = 0; k < n; k++) {
        in[k] = malloc(count * sizeof(**in));
        out[k] = in_place ? in[k] : malloc(count * sizeof(**out));
        for (uint64_t i = 0; i < count; i++) {
            in[k][i] = value_of(k, i);
        }
        struct weft_coll_call call = {
            .type = WEFT_COLL_I64, .count = count, .in = in[k], .out = out[k]};
        assert_int_equal(rig_begin(r, k, call), WEFT_OK);
        for (uint32_t steps = 0; steps < 20 * (salt % 7); steps++) { /* the next rank calls late */
            fake_step(r->net);
            rig_poll_all(r);
        }
    }
    rig_run(r);
    for (uint32_t k = 0; k < n; k++) {
        assert_int_equal(r->done_count[k], 1);
        assert_int_equal(r->done[k][0].status, WEFT_OK);
        assert_int_equal(r->done[k][0].contributors_min, n);
        for (uint64_t i = 0; i < count; i++) {
            int64_t sum = 0;
            for (uint32_t other = 0; other < n; other++) {
                sum += value_of(other, i);
            }
            assert_int_equal(out[k][i], sum);
            assert_true(in_place || in[k][i] == value_of(k, i)); /* not written to */
        }
        if (!in_place) {
            free(out[k]);
        }
        free(in[k]);
    }
    assert_int_equal(r->net->unmatched, 0);
    rig_free(r);
}

static void sums_along_trees_are_complete(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1, 33, 352, 1000, 5000, 80000};
    for (seed = 1; seed <= 60; seed++) {
        struct weft_prng prng;
        struct arrays a;
        weft_prng_init(&prng, seed);
        uint32_t n = (uint32_t)weft_prng_range(&prng, 2, RANKS);
        struct weft_coll_config config = rig_config(n);
        config.small_bytes = seed % 3 == 0 ? 0 : config.small_bytes;
        config.pool_bytes = seed % 5 == 0 ? (n - 1) * (64 << 10) : config.pool_bytes;
        random_plan(&a, n, &prng);
        a.plan.trees_bytes_min = seed % 4 == 0 ? 20000 : 0; /* 0: never with slices */
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            /* Many segments, but not more messages than the transport in memory can store. */
            config.segment_bytes = seed % 2 == 0 ? 2048 << (counts[i] > 5000 ? 4 : 0) : 126 << 10;
            run_one(&config, &a, counts[i], (seed + i) % 2 == 0, seed + i);
        }
    }
}

static bool is_narrow(enum weft_coll_type type)
{
    return type == WEFT_COLL_F16 || type == WEFT_COLL_BF16;
}

/* 1 to 4, in any type. */
static void value_put(enum weft_coll_type type, void *to, uint32_t i)
{
    uint64_t whole = i % 4 + 1;
    float single = (float)whole;
    double twice = single;
    uint16_t half =
        type == WEFT_COLL_F16 ? weft_coll_f16_store(single) : weft_coll_bf16_store(single);
    const void *from = is_narrow(type)          ? (const void *)&half
                       : type == WEFT_COLL_F32 ? (const void *)&single
                       : type == WEFT_COLL_F64 ? (const void *)&twice
                                               : &whole;
    memcpy(to, from, weft_coll_type_bytes(type));
}

static void run_type(enum weft_coll_type type, enum weft_coll_reduction reduction)
{
    enum { N = 4, COUNT = 3000 };
    struct arrays a;
    struct weft_coll_config config = rig_config(N);
    chains(&a, N, 3);
    struct rig *r = planned_rig(&config, type, &a);
    static uint64_t in[N][COUNT], out[N][COUNT], want[COUNT];
    uint32_t bytes = weft_coll_type_bytes(type);
    const void *from[N];
    for (uint32_t k = 0; k < N; k++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            value_put(type, (uint8_t *)in[k] + (size_t)i * bytes, i + k);
        }
        from[k] = in[k];
        struct weft_coll_call call = {
            .type = type, .reduction = reduction, .count = COUNT, .in = in[k], .out = out[k]};
        assert_int_equal(rig_begin(r, k, call), WEFT_OK);
    }
    rig_run(r);
    weft_coll_fold(type, reduction, want, from, N, COUNT, N);
    for (uint32_t k = 0; k < N; k++) {
        assert_int_equal(r->done[k][0].status, WEFT_OK);
        assert_memory_equal(out[k], want, (size_t)COUNT * bytes);
        assert_int_equal(weft_coll_counters(r->coll[k])->trees, !is_narrow(type));
        assert_int_equal(weft_coll_counters(r->coll[k])->planned, 1);
    }
    rig_free(r);
}

/* A mean is divided once, by the number of ranks; the order of the sums is that of the trees. */
static void every_type_is_summed(void **state)
{
    (void)state;
    for (uint32_t type = 0; type < WEFT_COLL_TYPES; type++) {
        for (uint32_t reduction = 0; reduction < WEFT_COLL_REDUCTIONS; reduction++) {
            if (weft_coll_fold_has(type, reduction)) {
                run_type(type, reduction);
            }
        }
    }
}

/* Which form an operation has. */
static void trees_are_for_exact_long_all_reduces(void **state)
{
    (void)state;
    struct weft_coll_config config = rig_config(4);
    struct arrays a;
    static float residual[20000];
    chains(&a, 4, 2);
    a.slice[1] = a.slice[2] = a.slice[3] = 0; /* rank 3 owns all */
    a.plan.trees_bytes_min = 40000;
    const struct {
        struct weft_coll_call call;
        enum slices slices;
        bool planned;
    } rows[] = {
        {{.count = 20000}, SLICES_TREES, true},
        {{.count = 10000}, SLICES_TREES, true},
        {{.count = 9999}, SLICES_VECTOR, true},
        {{.count = 100}, SLICES_WHOLE, false},
        {{.count = 20000, .bound_ppm = 1}, SLICES_VECTOR, true},
        {{.count = 20000, .residual = residual}, SLICES_VECTOR, true},
        {{.count = 40000, .type = WEFT_COLL_F16}, SLICES_VECTOR, true},
        {{.count = 40000, .type = WEFT_COLL_BF16}, SLICES_VECTOR, true},
        {{.count = 40000, .type = WEFT_COLL_I8}, SLICES_TREES, true},
        {{.count = 20000, .kind = WEFT_COLL_REDUCE}, SLICES_VECTOR, false},
        {{.count = 20000, .kind = WEFT_COLL_ALL_GATHER}, SLICES_BLOCKS, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct shape shape;
        assert_true(weft_coll_shape_make(&config, &rows[i].call, 4, 1, &shape));
        weft_coll_shape_plan(&config, &rows[i].call, &a.plan, &shape);
        assert_int_equal(shape.slices, rows[i].slices);
        assert_int_equal(shape.plan != NULL, rows[i].planned);
        if (rows[i].planned && shape.slices == SLICES_VECTOR) {
            assert_int_equal(weft_coll_slice_elems(&shape, 3), shape.count);
            assert_int_equal(weft_coll_slice_elems(&shape, 1), 0);
        }
    }
    /* A segment of a slice that only one rank owns would be too long for a message. */
    config.chunks_max = 60;
    struct weft_coll_call call = {.count = 60000};
    struct shape shape;
    assert_true(weft_coll_shape_make(&config, &call, 4, 1, &shape));
    weft_coll_shape_plan(&config, &(struct weft_coll_call){.count = 60000, .bound_ppm = 1}, &a.plan,
                         &shape);
    assert_null(shape.plan);
    assert_in_range(weft_coll_slice_elems(&shape, 1), 14990, 15010);
}

/* With a bound: the slices of the plan, and the masks of both ends agree. */
static void with_a_bound_slices_lose_what_is_told(void **state)
{
    (void)state;
    enum { N = 4, COUNT = 60000 };
    struct weft_coll_config config = rig_config(N);
    struct arrays a;
    chains(&a, N, 2);
    a.slice[1] = a.slice[2] = 100000; /* rank 1 owns nothing */
    struct rig *r = planned_rig(&config, 3, &a);
    r->net->loss_ppm = 200000;
    static float in[N][COUNT], out[N][COUNT];
    for (uint32_t k = 0; k < N; k++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            in[k][i] = (float)(1 << k);
        }
        struct weft_coll_call call = {
            .count = COUNT, .in = in[k], .out = out[k], .bound_ppm = 300000};
        assert_int_equal(rig_begin(r, k, call), WEFT_OK);
    }
    rig_run(r);
    uint64_t missing = 0, told = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        missing += N - (uint32_t)__builtin_popcount((uint32_t)out[0][i]);
    }
    for (uint32_t k = 0; k < N; k++) {
        assert_int_equal(r->done[k][0].status, WEFT_OK);
        assert_memory_equal(out[k], out[0], sizeof(out[0]));
        told += r->done[k][0].own_missing;
        assert_int_equal(weft_coll_counters(r->coll[k])->trees, 0);
    }
    assert_true(missing > 0);
    assert_int_equal(missing, told);
    rig_free(r);
}

/* In a chain rank 0 sends nothing to rank 1, whose sums it gets. If rank 0 did not report that it
 * has entered an operation, rank 1 would soon have no space left in its pool. */
static void a_rank_that_sends_nothing_reports_its_progress(void **state)
{
    (void)state;
    enum { N = 4, COUNT = 5000, OPS = 20 };
    static float in[N][COUNT], out[N][COUNT];
    struct weft_coll_config config = rig_config(N);
    struct arrays a;
    config.pool_bytes = (N - 1) * (64 << 10);
    chains(&a, N, 1);
    struct rig *r = planned_rig(&config, 1, &a);
    for (uint32_t i = 1; i <= OPS; i++) {
        for (uint32_t k = N; k-- > 0;) { /* rank 0 calls last */
            struct weft_coll_call call = {.count = COUNT, .in = in[k], .out = out[k]};
            assert_int_equal(rig_begin(r, k, call), WEFT_OK);
        }
        rig_run(r);
        for (uint32_t k = 0; k < N; k++) {
            assert_int_equal(r->done_count[k], i);
        }
    }
    assert_true(weft_coll_counters(r->coll[0])->progress_sent > 0);
    rig_free(r);
}

/* ---- plans ----------------------------------------------------------------------------------- */

static void impossible_plans_are_refused(void **state)
{
    (void)state;
    struct rig *r = rig_new(4, 1);
    struct arrays a;
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        chains(&a, 4, 2);                                                                          \
        assert_int_equal(weft_coll_plan_set(r->coll[0], 0, &a.plan), WEFT_OK);                     \
        change;                                                                                    \
        assert_int_equal(weft_coll_plan_set(r->coll[0], 0, &a.plan), WEFT_INVALID);                \
    } while (0)
    REFUSED(a.plan.ranks = 3);
    REFUSED(a.plan.parts = WEFT_COLL_PLAN_PARTS_MAX + 1);
    REFUSED(a.slice[0] = 1);
    REFUSED(a.slice[4]--);
    REFUSED(a.slice[2] = a.slice[3] + 1);
    REFUSED(a.part[2]++);
    REFUSED(a.part[1] = WEFT_COLL_PLAN_WHOLE + 1);
    REFUSED(a.up[2] = 4);           /* no such rank */
    REFUSED(a.up[0] = 3);           /* a cycle */
    REFUSED(a.up[3] = 3);           /* two roots */
    REFUSED(a.down[4 + 1] = 2; a.down[4 + 2] = 2; a.down[4 + 3] = 2); /* another root */
    REFUSED(a.row[2]++);
    assert_int_equal(weft_coll_plan_set(r->coll[0], 1, &a.plan), WEFT_INVALID);
    assert_int_equal(weft_coll_plan_set(r->coll[0], 0, NULL), WEFT_OK);
    rig_free(r);
}

static void a_plan_is_not_changed_under_an_operation(void **state)
{
    (void)state;
    struct rig *r = rig_new(2, 1);
    struct arrays a;
    static float in[2][5000], out[2][5000];
    chains(&a, 2, 1);
    assert_int_equal(
        rig_begin(r, 0, (struct weft_coll_call){.count = 5000, .in = in[0], .out = out[0]}),
        WEFT_OK);
    assert_int_equal(weft_coll_plan_set(r->coll[0], 0, &a.plan), WEFT_STATE);
    assert_int_equal(
        rig_begin(r, 1, (struct weft_coll_call){.count = 5000, .in = in[1], .out = out[1]}),
        WEFT_OK);
    rig_run(r);
    assert_int_equal(weft_coll_plan_set(r->coll[0], 0, &a.plan), WEFT_OK);
    rig_free(r);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void begin_all(struct rig *r, float *in, float *out, uint32_t count)
{
    for (uint32_t k = 0; k < r->n; k++) {
        struct weft_coll_call call = {
            .count = count, .in = in + (size_t)k * count, .out = out + (size_t)k * count};
        assert_int_equal(rig_begin(r, k, call), WEFT_OK);
    }
}

/* One tree, one slice or the limit differs, or one rank has no plan: all fail, with both calls. */
static void plans_that_differ_are_a_mismatch(void **state)
{
    (void)state;
    enum { N = 4, COUNT = 5000 };
    static float in[N * COUNT], out[N * COUNT];
    for (uint32_t what = 0; what < 4; what++) {
        struct weft_coll_config config = rig_config(N);
        struct arrays a, other;
        chains(&a, N, 2);
        chains(&other, N, 2);
        struct rig *r = planned_rig(&config, what, &a);
        other.down[1] = what == 0 ? 0 : other.down[1];
        other.slice[2] += what == 1;
        other.plan.trees_bytes_min += what == 2;
        assert_int_equal(weft_coll_plan_set(r->coll[2], 0, what == 3 ? NULL : &other.plan),
                         WEFT_OK);
        begin_all(r, in, out, COUNT);
        rig_run(r);
        for (uint32_t k = 0; k < N; k++) {
            const struct weft_coll_failure *f = weft_coll_failure(r->coll[k]);
            char text[300];
            if (f->reason != WEFT_COLL_MISMATCH) {
                fail_msg("case %u: rank %u: reason %d", what, k, (int)f->reason);
            }
            assert_true(f->rank == 2 || f->by == 2);
            weft_coll_failure_text(f, text, sizeof(text));
            assert_non_null(strstr(text, "another plan"));
        }
        rig_free(r);
    }
}

/* The second rank of a chain of four dies at any time: the others name it. */
static void a_dead_rank_of_a_tree_is_named(void **state)
{
    (void)state;
    enum { N = 4, COUNT = 20000 };
    static float in[N * COUNT], out[N * COUNT];
    for (uint32_t steps = 0; steps < 60; steps += 3) {
        struct weft_coll_config config = rig_config(N);
        struct arrays a;
        config.segment_bytes = 8192;
        chains(&a, N, 1);
        struct rig *r = planned_rig(&config, steps, &a);
        begin_all(r, in, out, COUNT);
        for (uint32_t i = 0; i < steps; i++) {
            fake_step(r->net);
            rig_poll_all(r);
        }
        uint32_t finished = 0;
        for (uint32_t k = 0; k < N; k++) {
            finished += r->done_count[k];
        }
        assert_int_equal(finished, 0);
        weft_coll_free(r->coll[1]);
        r->coll[1] = NULL;
        fake_kill(r->net, 1);
        rig_run(r);
        for (uint32_t k = 0; k < N; k++) {
            if (k == 1) {
                continue;
            }
            const struct weft_coll_failure *f = weft_coll_failure(r->coll[k]);
            assert_int_equal(f->reason, WEFT_COLL_DOWN);
            assert_int_equal(f->rank, 1);
            assert_int_equal(r->done_count[k], 1);
            assert_int_equal(r->done[k][0].status, WEFT_PEER);
        }
        rig_free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(sums_along_trees_are_complete, print_seed),
        cmocka_unit_test(every_type_is_summed),
        cmocka_unit_test(trees_are_for_exact_long_all_reduces),
        cmocka_unit_test(with_a_bound_slices_lose_what_is_told),
        cmocka_unit_test(a_rank_that_sends_nothing_reports_its_progress),
        cmocka_unit_test(impossible_plans_are_refused),
        cmocka_unit_test(a_plan_is_not_changed_under_an_operation),
        cmocka_unit_test(plans_that_differ_are_a_mismatch),
        cmocka_unit_test(a_dead_rank_of_a_tree_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
