/* Members of dense rounds and the box in memory, over a network that loses, duplicates and delays
 * packets, in virtual time. */
#include "agg/dense_member.h"
#include "agg/exponent.h"
#include "base/bits.h"
#include "fake_box_net.h"
#include "print_seed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBERS = 8, COUNT_MAX = 2000, JOB = 5, SLOTS = 16 };

static const uint64_t patience_ns = 1000 * WEFT_NS_PER_S;

union element {
    int32_t q;
    float x;
};

/* One job: its members, their vectors, the box, and what is between them. */
static struct rig {
    struct weft_agg_member_config config;
    uint32_t members;
    struct weft_agg_member member[MEMBERS];
    union element in[MEMBERS][COUNT_MAX];
    union element out[MEMBERS][COUNT_MAX];
    uint64_t direct[MEMBERS][WEFT_BITS_WORDS(COUNT_MAX)];
    struct weft_agg_box box;
    struct box_net net;
    uint64_t now_ns;
    uint64_t rounds;
    struct weft_prng prng;
} rig;

/* ---- the network ----------------------------------------------------------------------------- */

static void deliver(void)
{
    static struct box_packet p;
    assert_true(box_net_take(&rig.net, rig.now_ns, &p));
    if (p.to == BOX_NET_BOX) {
        box_net_receive(&rig.net, &rig.prng, rig.now_ns, &rig.box, rig.members, &p);
    } else {
        (void)weft_agg_member_receive(&rig.member[p.to], p.bytes, p.count, rig.now_ns);
    }
}

static void send_all(void)
{
    uint8_t bytes[WEFT_AGG_PACKET_MAX];
    uint32_t count;
    for (uint32_t m = 0; m < rig.members; m++) {
        while ((count = weft_agg_member_send(&rig.member[m], bytes, rig.now_ns)) > 0) {
            box_net_send(&rig.net, &rig.prng, rig.now_ns, m, BOX_NET_BOX, bytes, count);
        }
    }
}

static bool is_done(void)
{
    bool done = true;
    for (uint32_t m = 0; m < rig.members; m++) {
        done = done && weft_agg_member_is_done(&rig.member[m]);
    }
    return done;
}

/* Sum rig.in of all members into `out`, which may be rig.in. */
static void sum_into(union element (*out)[COUNT_MAX], uint64_t count)
{
    uint64_t start_ns = rig.now_ns;
    for (uint32_t m = 0; m < rig.members; m++) {
        assert_int_equal(
            weft_agg_member_begin(&rig.member[m], rig.in[m], out[m], count, rig.direct[m]),
            WEFT_OK);
    }
    uint32_t chunks = weft_agg_member_chunks(&rig.member[0], count);
    rig.rounds += chunks;
    if (rig.config.element == WEFT_AGG_BLOCK_FLOATS) { /* each slot begins with one */
        rig.rounds += chunks < rig.config.slots ? chunks : rig.config.slots;
    }
    while (!is_done()) {
        send_all();
        uint64_t next_ns = WEFT_NEVER;
        for (uint32_t m = 0; m < rig.members; m++) {
            next_ns = weft_min_u64(next_ns, weft_agg_member_deadline(&rig.member[m]));
        }
        assert_true(next_ns > rig.now_ns);
        uint64_t arrival_ns = box_net_next_ns(&rig.net);
        if (arrival_ns <= next_ns && arrival_ns != WEFT_NEVER) {
            rig.now_ns = weft_max_u64(rig.now_ns, arrival_ns);
            deliver();
        } else {
            assert_true(next_ns != WEFT_NEVER);
            rig.now_ns = next_ns;
        }
        assert_true(rig.now_ns < start_ns + patience_ns);
    }
}

enum { UNWRITTEN = 0x7a7a7a7a };

static void sum_vector(uint64_t count)
{
    memset(rig.out, UNWRITTEN & 0xff, sizeof(rig.out));
    sum_into(rig.out, count);
}

/* ---- set up ---------------------------------------------------------------------------------- */

static void rig_init(uint32_t members, const struct weft_agg_member_config *config)
{
    rig.members = members;
    rig.config = *config;
    rig.config.members = members;
    rig.config.job = JOB;
    rig.net.packets = 0;
    rig.rounds = 0;
    rig.now_ns = WEFT_NS_PER_S;
    const struct weft_agg_config box = {
        .members = UINT64_MAX >> (64 - members),
        .dense_epoch = config->epoch,
        .slots = SLOTS,
        .job = JOB,
        .form = config->element == WEFT_AGG_FLOATS ? WEFT_AGG_FLOAT32 : 0,
        .exponent = config->exponent,
    };
    assert_int_equal(weft_agg_box_init(&rig.box, &box), WEFT_OK);
    for (uint32_t m = 0; m < members; m++) {
        rig.config.member = (uint16_t)m;
        assert_int_equal(weft_agg_member_init(&rig.member[m], &rig.config), WEFT_OK);
    }
}

static void rig_fini(void)
{
    for (uint32_t m = 0; m < rig.members; m++) {
        weft_agg_member_fini(&rig.member[m]);
    }
    weft_agg_box_fini(&rig.box);
}

/* A perfect network, two members. */
static void rig_quiet(uint8_t element, int8_t exponent)
{
    struct weft_agg_member_config config;
    weft_agg_member_config_default(&config);
    config.values = 8;
    config.slots = 4;
    config.epoch = 3;
    config.element = element;
    config.exponent = exponent;
    rig.net.loss_ppm = 0;
    rig.net.duplicate_ppm = 0;
    rig.net.slow_ppm = 0;
    weft_prng_init(&rig.prng, 1);
    rig_init(2, &config);
}

static void rig_random(uint8_t element, int8_t exponent)
{
    struct weft_agg_member_config config;
    weft_prng_init(&rig.prng, seed);
    weft_agg_member_config_default(&config);
    config.slots = (uint32_t)weft_prng_range(&rig.prng, 1, SLOTS);
    config.values = 8 * (uint32_t)weft_prng_range(&rig.prng, 1, 8);
    config.epoch = (uint32_t)weft_prng_u64(&rig.prng);
    config.reorder = weft_prng_chance(&rig.prng, WEFT_PPM / 2) ? 3 : 0;
    config.element = element;
    config.exponent = exponent;
    bool clean = weft_prng_chance(&rig.prng, WEFT_PPM / 4);
    rig.net.loss_ppm = clean ? 0 : (uint32_t)weft_prng_below(&rig.prng, 300000);
    rig.net.duplicate_ppm = clean ? 0 : (uint32_t)weft_prng_below(&rig.prng, 200000);
    rig.net.slow_ppm = clean ? 0 : (uint32_t)weft_prng_below(&rig.prng, 50000);
    rig_init((uint32_t)weft_prng_range(&rig.prng, 1, MEMBERS), &config);
}

static uint64_t random_count(void)
{
    return weft_prng_range(&rig.prng, 1, COUNT_MAX);
}

static int32_t random_integer(int32_t most)
{
    return (int32_t)((int64_t)weft_prng_below(&rig.prng, 2 * (uint64_t)most + 1) - most);
}

/* Every chunk was summed once: the box completed as many rounds, and each member took each sum
 * once. */
static void check_counters(void)
{
    assert_int_equal(rig.box.counts.packets[WEFT_AGG_COMPLETE], rig.rounds);
    for (uint32_t m = 0; m < rig.members; m++) {
        const struct weft_agg_member_counters *c = &rig.member[m].counters;
        assert_int_equal(c->sums, rig.rounds);
        assert_int_equal(c->foreign, 0);
        assert_true(c->sent <= rig.rounds + c->resent_timeout + c->resent_early);
        if (rig.net.loss_ppm == 0 && rig.net.duplicate_ppm == 0 && rig.config.reorder == 0) {
            assert_int_equal(c->late + c->resent_timeout, 0);
        }
    }
    assert_int_equal(rig.box.counts.packets[WEFT_AGG_EARLY], 0);
    assert_int_equal(rig.box.counts.packets[WEFT_AGG_MALFORMED], 0);
    assert_int_equal(rig.box.counts.packets[WEFT_AGG_FOREIGN], 0);
}

/* ---- sums ------------------------------------------------------------------------------------ */

static void test_integers(void **state)
{
    (void)state;
    uint64_t stale = 0, late = 0, timeouts = 0, early = 0, again = 0;
    for (seed = 1; seed <= 300; seed++) {
        rig_random(WEFT_AGG_INTEGERS, 0);
        for (uint32_t v = 0; v < 4; v++) {
            uint64_t count = random_count();
            for (uint32_t m = 0; m < rig.members; m++) {
                for (uint64_t i = 0; i < count; i++) {
                    rig.in[m][i].q = random_integer(INT32_MAX / MEMBERS);
                }
            }
            sum_vector(count);
            for (uint64_t i = 0; i < count; i++) {
                int32_t sum = 0;
                for (uint32_t m = 0; m < rig.members; m++) {
                    sum += rig.in[m][i].q;
                }
                for (uint32_t m = 0; m < rig.members; m++) {
                    assert_int_equal(rig.out[m][i].q, sum);
                }
            }
        }
        check_counters();
        stale += rig.box.counts.packets[WEFT_AGG_STALE];
        again += rig.box.counts.packets[WEFT_AGG_RESULT];
        for (uint32_t m = 0; m < rig.members; m++) {
            assert_int_equal(rig.member[m].counters.direct, 0);
            late += rig.member[m].counters.late;
            timeouts += rig.member[m].counters.resent_timeout;
            early += rig.member[m].counters.resent_early;
        }
        rig_fini();
    }
    assert_true(stale > 0 && late > 0 && timeouts > 0 && early > 0 && again > 0);
}

static void test_fixed(void **state)
{
    (void)state;
    for (seed = 1; seed <= 200; seed++) {
        float largest = ldexpf(1.0f, (int)(seed % 60) - 30);
        rig_random(WEFT_AGG_FIXED, weft_agg_exponent(largest, MEMBERS));
        uint64_t count = random_count();
        for (uint32_t m = 0; m < rig.members; m++) {
            for (uint64_t i = 0; i < count; i++) {
                rig.in[m][i].x =
                    (float)random_integer(INT32_MAX) / (float)INT32_MAX * largest;
            }
        }
        sum_vector(count);
        for (uint64_t i = 0; i < count; i++) {
            double sum = 0;
            for (uint32_t m = 0; m < rig.members; m++) {
                sum += (double)rig.in[m][i].x;
            }
            double most = weft_agg_error_bound(rig.members, rig.config.exponent) +
                          fabs(sum) * 0x1p-23; /* of the result as a float */
            for (uint32_t m = 0; m < rig.members; m++) {
                assert_true(fabs((double)rig.out[m][i].x - sum) <= most);
                assert_int_equal(rig.out[m][i].q, rig.out[0][i].q);
            }
        }
        check_counters();
        rig_fini();
    }
}

static void test_floats_in_place(void **state)
{
    (void)state;
    static float sums[COUNT_MAX];
    for (seed = 1; seed <= 100; seed++) {
        rig_random(WEFT_AGG_FLOATS, 0);
        uint64_t count = random_count();
        for (uint64_t i = 0; i < count; i++) {
            sums[i] = 0;
            for (uint32_t m = 0; m < rig.members; m++) {
                rig.in[m][i].x = (float)random_integer(1000);
                sums[i] += rig.in[m][i].x;
            }
        }
        sum_into(rig.in, count);
        sum_into(rig.in, count);
        for (uint32_t m = 0; m < rig.members; m++) {
            for (uint64_t i = 0; i < count; i++) {
                assert_true(rig.in[m][i].x == sums[i] * (float)rig.members);
            }
        }
        check_counters();
        rig_fini();
    }
}

/* Element i of member m: each chunk has values of another size, from 2^-130 to 2^100, some 0. */
static float block_value(uint32_t m, uint64_t i)
{
    uint64_t chunk = i / rig.config.values;
    uint64_t random = weft_mix64(seed ^ (chunk << 20));
    int size = (int)(random % 231) - 130;
    bool zero = (random >> 32) % 8 == 0 || weft_mix64(random + m) % 4 == 0;
    return zero ? 0 : ldexpf((float)random_integer(1000000) / 1e6f, size);
}

/* Members agree on the exponents of chunks, whatever packets are lost: no chunk is direct, and the
 * error is that of the largest value of the chunk. */
static void test_block_floats(void **state)
{
    (void)state;
    for (seed = 1; seed <= 300; seed++) {
        rig_random(WEFT_AGG_BLOCK_FLOATS, 0);
        for (uint32_t v = 0; v < 3; v++) {
            uint64_t count = random_count();
            for (uint64_t i = 0; i < count; i++) {
                for (uint32_t m = 0; m < rig.members; m++) {
                    rig.in[m][i].x = block_value(m, i);
                }
            }
            sum_vector(count);
            for (uint64_t i = 0; i < count; i++) {
                uint64_t first = i - i % rig.config.values;
                uint64_t end = weft_min_u64(first + rig.config.values, count);
                double sum = 0;
                float largest = 0;
                for (uint32_t m = 0; m < rig.members; m++) {
                    sum += (double)rig.in[m][i].x;
                    for (uint64_t j = first; j < end; j++) {
                        largest = fmaxf(largest, fabsf(rig.in[m][j].x));
                    }
                }
                int8_t exponent = weft_agg_exponent(largest, rig.members);
                double most = weft_agg_error_bound(rig.members, exponent) +
                              fabs(sum) * 0x1p-23 + 0x1p-149;
                for (uint32_t m = 0; m < rig.members; m++) {
                    assert_true(fabs((double)rig.out[m][i].x - sum) <= most);
                    assert_int_equal(rig.out[m][i].q, rig.out[0][i].q);
                }
            }
            check_counters();
            for (uint32_t m = 0; m < rig.members; m++) {
                assert_int_equal(rig.member[m].counters.direct, 0);
            }
        }
        assert_int_equal(rig.box.counts.voided, 0);
        rig_fini();
    }
}

/* ---- direct chunks --------------------------------------------------------------------------- */

/* Make the sum of element i impossible, in the way of the number format. */
static void spoil(uint64_t i)
{
    uint32_t m = (uint32_t)weft_prng_below(&rig.prng, rig.members);
    if (rig.config.element != WEFT_AGG_INTEGERS) {
        rig.in[m][i].x = weft_prng_chance(&rig.prng, WEFT_PPM / 2) ? 3e38f : NAN;
        if (rig.config.element == WEFT_AGG_FLOATS) {
            rig.in[m][i].x = INFINITY;
        } else if (rig.config.element == WEFT_AGG_BLOCK_FLOATS) {
            rig.in[m][i].x = weft_prng_chance(&rig.prng, WEFT_PPM / 2) ? -INFINITY : NAN;
        }
        return;
    }
    for (m = 0; m < rig.members; m++) {
        rig.in[m][i].q = INT32_MAX;
    }
}

static void test_direct(void **state)
{
    (void)state;
    uint64_t some = 0, others = 0;
    for (seed = 1; seed <= 200; seed++) {
        uint64_t spoilt[WEFT_BITS_WORDS(COUNT_MAX)] = {0};
        rig_random((uint8_t)(seed % 4), 0);
        if (rig.members == 1) {
            rig_fini();
            continue; /* its integers always fit */
        }
        uint64_t count = random_count();
        for (uint32_t m = 0; m < rig.members; m++) {
            for (uint64_t i = 0; i < count; i++) {
                rig.in[m][i].q = random_integer(100);
                if (rig.config.element != WEFT_AGG_INTEGERS) {
                    rig.in[m][i].x = (float)rig.in[m][i].q;
                }
            }
        }
        for (uint32_t n = 0; n < 3; n++) {
            uint64_t i = weft_prng_below(&rig.prng, count);
            spoil(i);
            weft_bits_set(spoilt, i / rig.config.values);
        }
        sum_vector(count);
        for (uint64_t i = 0; i < count; i++) {
            bool direct = weft_bits_test(spoilt, i / rig.config.values);
            int32_t sum = 0;
            for (uint32_t m = 0; m < rig.members && !direct; m++) {
                sum += rig.config.element == WEFT_AGG_INTEGERS ? rig.in[m][i].q
                                                               : (int32_t)rig.in[m][i].x;
            }
            for (uint32_t m = 0; m < rig.members; m++) {
                const union element *out = &rig.out[m][i];
                assert_int_equal(weft_bits_test(rig.direct[m], i / rig.config.values), direct);
                assert_int_equal(direct                                         ? out->q
                                 : rig.config.element == WEFT_AGG_INTEGERS ? out->q
                                                                           : (int32_t)out->x,
                                 direct ? UNWRITTEN : sum);
            }
            some += direct;
            others += !direct;
        }
        check_counters();
        rig_fini();
    }
    assert_true(some > 0 && others > 0);
}

/* Values grow: the exponent does not fit them; that of the next epoch, as the members propose it,
 * does. */
static void test_next_exponent(void **state)
{
    (void)state;
    rig_quiet(WEFT_AGG_FIXED, weft_agg_exponent(1.0f, 2));
    for (uint32_t m = 0; m < 2; m++) {
        for (uint64_t i = 0; i < 8; i++) {
            rig.in[m][i].x = m == 1 && i == 3 ? -9.0f : 0.25f;
        }
    }
    assert_int_equal(weft_agg_member_exponent(&rig.member[0]), rig.config.exponent);
    sum_vector(8);
    assert_true(weft_bits_test(rig.direct[0], 0) && weft_bits_test(rig.direct[1], 0));
    assert_int_equal(rig.member[0].counters.unfit, 0);
    assert_int_equal(rig.member[1].counters.unfit, 1);
    int8_t small = weft_agg_member_exponent(&rig.member[0]);
    int8_t large = weft_agg_member_exponent(&rig.member[1]);
    assert_true(small < rig.config.exponent && large > rig.config.exponent);
    assert_int_equal(large, weft_agg_exponent(9.0f, 4));
    rig.box.config.dense_epoch = rig.config.epoch + 1;
    rig.box.config.exponent = large;
    for (uint32_t m = 0; m < 2; m++) {
        weft_agg_member_epoch(&rig.member[m], rig.config.epoch + 1, large);
        assert_int_equal(weft_agg_member_exponent(&rig.member[m]), large);
    }
    sum_vector(8);
    assert_false(weft_bits_test(rig.direct[0], 0));
    assert_true(rig.out[0][3].x == -8.75f && rig.out[1][3].x == -8.75f);
    assert_true(rig.out[0][0].x == 0.5f);
    rig_fini();
}

/* The exponent that marks a chunk as unfit is the box's, and no member has values that fit. The box
 * then completes the round with what was not encoded, and its sum must not be used. */
static void test_exponent_of_the_mark(void **state)
{
    (void)state;
    rig_quiet(WEFT_AGG_FIXED, 0);
    rig.box.config.exponent = 1;
    for (uint32_t m = 0; m < 2; m++) {
        for (uint64_t i = 0; i < 16; i++) {
            rig.in[m][i].x = i == 3 ? 1e30f : 0.25f;
        }
    }
    sum_vector(16);
    for (uint32_t m = 0; m < 2; m++) {
        assert_true(weft_bits_test(rig.direct[m], 0) && weft_bits_test(rig.direct[m], 1));
        assert_int_equal(rig.member[m].counters.direct, 2);
        assert_int_equal(rig.out[m][0].q, UNWRITTEN);
    }
    assert_int_equal(rig.box.counts.voided, 1); /* the second chunk's round alone */
    rig_fini();
}

/* A sum that fits int32, but is no finite float: direct, and the vector is as it was. */
static void test_sum_beyond_float(void **state)
{
    (void)state;
    rig_quiet(WEFT_AGG_FIXED, WEFT_AGG_EXPONENT_MAX);
    for (uint32_t m = 0; m < 2; m++) {
        for (uint64_t i = 0; i < 16; i++) {
            rig.in[m][i].x = i == 7 || (m == 0 && i == 12) ? 0x1p127f : 0;
        }
    }
    sum_into(rig.in, 16);
    for (uint32_t m = 0; m < 2; m++) {
        assert_true(weft_bits_test(rig.direct[m], 0) && !weft_bits_test(rig.direct[m], 1));
        assert_true(rig.in[m][7].x == 0x1p127f && rig.in[m][12].x == 0x1p127f);
    }
    rig_fini();
}

/* ---- time ------------------------------------------------------------------------------------ */

static void begin_one(uint64_t count)
{
    assert_int_equal(
        weft_agg_member_begin(&rig.member[0], rig.in[0], rig.out[0], count, rig.direct[0]),
        WEFT_OK);
}

static uint32_t send_one(struct weft_wire_agg *head_p, uint64_t now_ns)
{
    uint8_t bytes[WEFT_AGG_PACKET_MAX];
    uint32_t count = weft_agg_member_send(&rig.member[0], bytes, now_ns);
    if (count > 0) {
        assert_true(weft_wire_agg_decode(bytes, bytes + count, count, head_p));
    }
    return count;
}

static bool answer(uint32_t slot, uint32_t round, uint64_t now_ns)
{
    uint8_t bytes[WEFT_AGG_PACKET_MAX] = {0};
    const struct weft_wire_agg head = {.kind = WEFT_AGG_SUM,
                                       .job = JOB,
                                       .count = 8,
                                       .place = slot,
                                       .epoch = rig.config.epoch,
                                       .number = round};
    weft_wire_agg_encode(bytes, &head);
    return weft_agg_member_receive(&rig.member[0], bytes, WEFT_AGG_HEADER_BYTES + 32, now_ns);
}

/* Without a sum the timeout doubles up to its maximum, and is shortened by up to a half; a measured
 * round trip sets it. */
static void test_timeouts(void **state)
{
    (void)state;
    struct weft_wire_agg head;
    rig_quiet(WEFT_AGG_INTEGERS, 0);
    const struct weft_agg_member_config *c = &rig.config;
    uint64_t now_ns = 5, timeout_ns = c->timeout_ns_first;
    uint64_t shortest_ns = WEFT_NEVER, longest_ns = 0;
    assert_true(weft_agg_member_deadline(&rig.member[0]) == WEFT_NEVER);
    begin_one(8);
    assert_int_equal(weft_agg_member_deadline(&rig.member[0]), 0);
    for (uint32_t tries = 0; tries < 300; tries++) {
        assert_int_equal(send_one(&head, now_ns), WEFT_AGG_HEADER_BYTES + 32);
        assert_int_equal(send_one(&head, now_ns), 0);
        uint64_t due_ns = weft_agg_member_deadline(&rig.member[0]);
        assert_true(due_ns <= now_ns + timeout_ns);
        assert_true(due_ns >= now_ns + (tries == 0 ? timeout_ns : timeout_ns / 2));
        shortest_ns = weft_min_u64(shortest_ns, due_ns - now_ns);
        longest_ns = weft_max_u64(longest_ns, due_ns - now_ns);
        assert_int_equal(send_one(&head, due_ns - 1), 0);
        now_ns = due_ns;
        timeout_ns = weft_min_u64(2 * timeout_ns, c->timeout_ns_max);
    }
    assert_true(longest_ns > c->timeout_ns_max * 9 / 10 && longest_ns <= c->timeout_ns_max);
    assert_true(shortest_ns <= c->timeout_ns_first);
    assert_int_equal(timeout_ns, c->timeout_ns_max);
    assert_int_equal(rig.member[0].counters.resent_timeout, 299);
    rig_fini();

    rig_quiet(WEFT_AGG_INTEGERS, 0);
    const uint64_t trip_ns = WEFT_NS_PER_MS;
    begin_one(16);
    assert_true(send_one(&head, 0) > 0 && send_one(&head, 0) > 0);
    assert_true(answer(0, 0, trip_ns) && answer(1, 0, trip_ns));
    begin_one(8);
    assert_true(send_one(&head, trip_ns) > 0);
    assert_int_equal(weft_agg_member_deadline(&rig.member[0]), trip_ns + 4 * trip_ns);
    rig_fini();
}

/* The round before the first chunk has short packets, so its round trip says nothing about the
 * next. */
static void test_opening_is_not_measured(void **state)
{
    (void)state;
    struct weft_wire_agg head;
    rig_quiet(WEFT_AGG_BLOCK_FLOATS, 0);
    begin_one(8);
    assert_true(send_one(&head, 0) > 0 && head.flags == WEFT_AGG_AGREED);
    assert_true(answer(0, 0, 1000));
    assert_false(weft_agg_member_is_done(&rig.member[0]));
    assert_true(send_one(&head, 1000) > 0);
    assert_int_equal(rig.member[0].slots[0].due_ns, 1000 + rig.config.timeout_ns_first);
    rig_fini();
}

/* If round trips become longer than the timeout, the timeout follows. */
static void test_longer_round_trips(void **state)
{
    (void)state;
    struct weft_wire_agg head;
    rig_quiet(WEFT_AGG_INTEGERS, 0);
    uint64_t now_ns = 0;
    for (uint32_t round = 0; round < 400; round++) {
        uint64_t trip_ns = round < 20 ? WEFT_NS_PER_MS / 10 : 5 * WEFT_NS_PER_MS;
        uint64_t resent = rig.member[0].counters.resent_timeout;
        begin_one(8);
        for (uint64_t at = now_ns; at < now_ns + trip_ns; at += WEFT_NS_PER_US * 50) {
            (void)send_one(&head, at);
        }
        now_ns += trip_ns;
        assert_true(answer(0, round, now_ns));
        resent = rig.member[0].counters.resent_timeout - resent;
        if (round == 20) {
            assert_true(resent > 0);
        }
        if (round > 300) {
            assert_int_equal(resent, 0);
        }
    }
    rig_fini();
}

/* The packet of slot 0 is lost: it is sent again, once, when the second after it was answered. */
static void test_reorder(void **state)
{
    (void)state;
    struct weft_wire_agg head;
    rig_quiet(WEFT_AGG_INTEGERS, 0);
    rig.member[0].config.reorder = 2;
    begin_one(8 * 12);
    for (uint32_t slot = 0; slot < 4; slot++) {
        assert_true(send_one(&head, 0) > 0);
        assert_int_equal(head.place, slot);
    }
    assert_true(answer(1, 0, 10));
    assert_true(send_one(&head, 10) > 0 && head.place == 1 && head.number == 1);
    assert_int_equal(send_one(&head, 10), 0);
    assert_true(answer(2, 0, 11));
    assert_true(send_one(&head, 11) > 0 && head.place == 2 && head.number == 1);
    assert_true(send_one(&head, 11) > 0 && head.place == 0 && head.number == 0);
    assert_int_equal(rig.member[0].counters.resent_early, 1);
    assert_true(answer(3, 0, 12) && answer(1, 1, 13) && answer(2, 1, 14));
    while (send_one(&head, 15) > 0) {
        assert_true(head.place != 0);
    }
    assert_int_equal(rig.member[0].counters.resent_early, 1);
    assert_true(answer(0, 0, 16));
    rig_fini();
}

/* One answer is enough if it is that of a packet so much later. */
static void test_reorder_by_one_answer(void **state)
{
    (void)state;
    struct weft_wire_agg head;
    rig_quiet(WEFT_AGG_INTEGERS, 0);
    rig.member[0].config.reorder = 3;
    begin_one(8 * 4);
    while (send_one(&head, 0) > 0) {
    }
    assert_true(answer(2, 0, 10));
    assert_int_equal(send_one(&head, 10), 0);
    assert_true(answer(3, 0, 11));
    assert_true(send_one(&head, 11) > 0 && head.place == 0 && head.number == 0);
    assert_int_equal(send_one(&head, 11), 0);
    rig_fini();
}

/* ---- what is not accepted -------------------------------------------------------------------- */

static void test_foreign(void **state)
{
    (void)state;
    struct weft_wire_agg head;
    rig_quiet(WEFT_AGG_INTEGERS, 0);
    begin_one(8);
    assert_false(answer(0, 0, 1)); /* before this member has sent */
    assert_true(send_one(&head, 0) > 0);
    const struct weft_wire_agg good = {.kind = WEFT_AGG_SUM,
                                       .job = JOB,
                                       .count = 8,
                                       .epoch = rig.config.epoch};
    struct weft_wire_agg bad[6];
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(bad); i++) {
        bad[i] = good;
    }
    bad[0].kind = WEFT_AGG_DENSE;
    bad[1].job++;
    bad[2].member++;
    bad[3].place = rig.config.slots;
    bad[4].number++;
    bad[5].count = 16;
    uint8_t bytes[WEFT_AGG_PACKET_MAX] = {0};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(bad); i++) {
        uint32_t count = WEFT_AGG_HEADER_BYTES + 4 * bad[i].count;
        weft_wire_agg_encode(bytes, &bad[i]);
        assert_false(weft_agg_member_receive(&rig.member[0], bytes, count, 1));
    }
    assert_int_equal(rig.member[0].counters.foreign, 7);
    struct weft_wire_agg old = good;
    old.epoch--;
    weft_wire_agg_encode(bytes, &old);
    assert_false(weft_agg_member_receive(&rig.member[0], bytes, WEFT_AGG_HEADER_BYTES + 32, 1));
    assert_true(answer(0, 0, 2));
    assert_false(answer(0, 0, 3));
    assert_int_equal(rig.member[0].counters.late, 2);
    assert_int_equal(rig.member[0].counters.sums, 1);
    assert_true(weft_agg_member_is_done(&rig.member[0]));
    rig_fini();
}

/* The members' packets also reach a box of a later epoch, and its sums reach them: no value of one
 * epoch is in a sum of the other. */
static void test_two_boxes(void **state)
{
    (void)state;
    static uint8_t bytes[WEFT_AGG_PACKET_MAX], copy[WEFT_AGG_PACKET_MAX];
    const int32_t strange[8] = {1 << 20, -7, 99, 5, 6, 7, 8, 9};
    int32_t sum[2][8];
    uint64_t direct[2];
    struct weft_agg_member stranger[2];
    struct weft_agg_box box;
    rig_quiet(WEFT_AGG_INTEGERS, 0);
    struct weft_agg_config box_config = rig.box.config;
    box_config.dense_epoch++;
    assert_int_equal(weft_agg_box_init(&box, &box_config), WEFT_OK);
    for (uint32_t m = 0; m < 2; m++) {
        rig.config.member = (uint16_t)m;
        rig.config.epoch = box_config.dense_epoch;
        assert_int_equal(weft_agg_member_init(&stranger[m], &rig.config), WEFT_OK);
        assert_int_equal(weft_agg_member_begin(&stranger[m], strange, sum[m], 8, &direct[m]),
                         WEFT_OK);
        assert_int_equal(
            weft_agg_member_begin(&rig.member[m], rig.in[m], rig.out[m], 8, rig.direct[m]),
            WEFT_OK);
        for (uint32_t i = 0; i < 8; i++) {
            rig.in[m][i].q = random_integer(1000);
        }
    }
    for (uint32_t m = 0; m < 2; m++) {
        /* The packet reaches both boxes. */
        uint32_t answer_bytes = 0, count = weft_agg_member_send(&rig.member[m], bytes, 1);
        memcpy(copy, bytes, count);
        assert_int_equal(weft_agg_box_receive(&box, copy, count, &answer_bytes), WEFT_AGG_DROP);
        enum weft_agg_action action = weft_agg_box_receive(&rig.box, bytes, count, &answer_bytes);
        assert_int_equal(action, m == 0 ? WEFT_AGG_DROP : WEFT_AGG_ANSWER_ALL);
        count = weft_agg_member_send(&stranger[m], copy, 1);
        action = weft_agg_box_receive(&box, copy, count, &answer_bytes);
        assert_int_equal(action, m == 0 ? WEFT_AGG_DROP : WEFT_AGG_ANSWER_ALL);
    }
    for (uint32_t m = 0; m < 2; m++) {
        weft_wire_agg_put_member(copy, (uint16_t)m);
        weft_wire_agg_put_member(bytes, (uint16_t)m);
        const uint32_t count = WEFT_AGG_HEADER_BYTES + 4 * 8;
        assert_false(weft_agg_member_receive(&rig.member[m], copy, count, 2));
        assert_false(weft_agg_member_receive(&stranger[m], bytes, count, 2));
        assert_true(weft_agg_member_receive(&rig.member[m], bytes, count, 2));
        assert_true(weft_agg_member_receive(&stranger[m], copy, count, 2));
        assert_int_equal(rig.member[m].counters.late, 1);
        assert_int_equal(stranger[m].counters.late, 1);
        assert_true(weft_agg_member_is_done(&rig.member[m]) && rig.direct[m][0] == 0);
        for (uint32_t i = 0; i < 8; i++) {
            assert_int_equal(rig.out[m][i].q, rig.in[0][i].q + rig.in[1][i].q);
            assert_int_equal(sum[m][i], 2 * strange[i]);
        }
        weft_agg_member_fini(&stranger[m]);
    }
    assert_int_equal(box.counts.packets[WEFT_AGG_EPOCH], 2);
    weft_agg_box_fini(&box);
    rig_fini();
}

/* A sum of this round with another exponent or format: there will be no other, so the chunk is
 * direct. So is a float32 sum that is not finite. */
static void test_sums_of_another_form(void **state)
{
    (void)state;
    const struct {
        uint8_t element;
        uint8_t flags;
        int8_t exponent;
        uint32_t bits; /* of a value */
    } rows[] = {
        {WEFT_AGG_INTEGERS, 0, 1, 5},
        {WEFT_AGG_INTEGERS, WEFT_AGG_FLOAT32, 0, 5},
        {WEFT_AGG_FIXED, 0, -2, 5},
        {WEFT_AGG_FLOATS, 0, 0, 5},
        {WEFT_AGG_FLOATS, WEFT_AGG_FLOAT32, 0, 0x7f800000},
    };
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(rows); i++) {
        uint8_t bytes[WEFT_AGG_PACKET_MAX] = {0};
        struct weft_wire_agg head;
        rig_quiet(rows[i].element, 0);
        memset(rig.out, UNWRITTEN & 0xff, sizeof(rig.out));
        begin_one(8);
        assert_true(send_one(&head, 0) > 0);
        const struct weft_wire_agg sum = {.kind = WEFT_AGG_SUM,
                                          .flags = rows[i].flags,
                                          .exponent = rows[i].exponent,
                                          .job = JOB,
                                          .count = 8,
                                          .epoch = rig.config.epoch};
        weft_wire_agg_encode(bytes, &sum);
        weft_wire_store_u32(bytes + WEFT_AGG_HEADER_BYTES + 12, rows[i].bits);
        assert_true(
            weft_agg_member_receive(&rig.member[0], bytes, WEFT_AGG_HEADER_BYTES + 32, 1));
        assert_true(weft_agg_member_is_done(&rig.member[0]));
        assert_true(weft_bits_test(rig.direct[0], 0));
        assert_int_equal(rig.out[0][0].q, UNWRITTEN);
        assert_int_equal(rig.member[0].counters.direct, 1);
        assert_int_equal(rig.member[0].counters.foreign, 0);
        rig_fini();
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct weft_agg_member member;
    struct weft_agg_member_config good, bad[7];
    weft_agg_member_config_default(&good);
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(bad); i++) {
        bad[i] = good;
    }
    bad[0].members = 65;
    bad[1].member = 1;
    bad[2].slots = 0;
    bad[3].values = 12;
    bad[4].values = 360;
    bad[5].exponent = 1; /* without FIXED */
    bad[6].timeout_ns_min = good.timeout_ns_max + 1;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(bad); i++) {
        assert_int_equal(weft_agg_member_init(&member, &bad[i]), WEFT_INVALID);
    }
    rig_quiet(WEFT_AGG_INTEGERS, 0);
    assert_int_equal(
        weft_agg_member_begin(&rig.member[0], rig.in[0], rig.out[0], 0, rig.direct[0]),
        WEFT_INVALID);
    begin_one(8);
    assert_int_equal(
        weft_agg_member_begin(&rig.member[0], rig.in[0], rig.out[0], 8, rig.direct[0]),
        WEFT_STATE);
    weft_agg_member_epoch(&rig.member[0], 4, 0); /* gives the vector up */
    begin_one(8);
    rig_fini();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_integers, print_seed),
        cmocka_unit_test_teardown(test_fixed, print_seed),
        cmocka_unit_test_teardown(test_block_floats, print_seed),
        cmocka_unit_test_teardown(test_floats_in_place, print_seed),
        cmocka_unit_test_teardown(test_direct, print_seed),
        cmocka_unit_test(test_next_exponent),
        cmocka_unit_test(test_exponent_of_the_mark),
        cmocka_unit_test(test_sum_beyond_float),
        cmocka_unit_test(test_timeouts),
        cmocka_unit_test(test_opening_is_not_measured),
        cmocka_unit_test(test_longer_round_trips),
        cmocka_unit_test(test_reorder),
        cmocka_unit_test(test_reorder_by_one_answer),
        cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_two_boxes),
        cmocka_unit_test(test_sums_of_another_form),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
