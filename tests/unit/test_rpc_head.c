/* Heads, tags and table specifications: exact bytes, round trips, refusals. */
#include "rpc/head.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

static void request_bytes(void **state)
{
    (void)state;
    const struct weft_rpc_request request = {0x01020304, 7,          0x1112131415161718,
                                             0x5152,     0x21,       0x31323334,
                                             250000,     0x41424344, WEFT_RPC_NARROW_IDS};
    static const uint8_t wanted[WEFT_RPC_REQUEST_BYTES] = {
        1,    2,    3,    4,    0,    0,    0,    7,    0x11, 0x12, 0x13, 0x14, 0x15, 0x16,
        0x17, 0x18, 0,    0,    0x51, 0x52, 0,    0,    0,    0x21, 0x31, 0x32, 0x33, 0x34,
        0,    3,    0xd0, 0x90, 0x41, 0x42, 0x43, 0x44, 0,    0,    0,    1};
    uint8_t bytes[WEFT_RPC_REQUEST_BYTES];
    weft_rpc_request_pack(&request, bytes);
    assert_memory_equal(bytes, wanted, sizeof(wanted));
    struct weft_rpc_request back;
    memset(&back, 0xee, sizeof(back));
    assert_int_equal(weft_rpc_request_unpack(bytes, sizeof(bytes), &back), WEFT_OK);
    uint8_t again[WEFT_RPC_REQUEST_BYTES];
    weft_rpc_request_pack(&back, again);
    assert_memory_equal(again, wanted, sizeof(wanted));
}

static void request_refused(void **state)
{
    (void)state;
    const struct weft_rpc_request request = {.rpc_id = 1, .worker = 2, .reply_bound_ppm = 999999};
    uint8_t good[WEFT_RPC_REQUEST_BYTES], bad[WEFT_RPC_REQUEST_BYTES];
    struct weft_rpc_request out = {.rpc_id = 77};
    weft_rpc_request_pack(&request, good);
    for (size_t cut = 0; cut < sizeof(good); cut++) {
        assert_int_equal(weft_rpc_request_unpack(good, cut, &out), WEFT_PROTO);
    }
    static const struct {
        size_t at;
        uint8_t value;
    } breaks[] = {{3, 0} /* rpc_id 0 */,
                  {28, 1} /* bound >= 10^6 */,
                  {38, 8} /* an unknown flag */,
                  {36, 1} /* another unknown flag */};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(breaks); i++) {
        memcpy(bad, good, sizeof(bad));
        bad[breaks[i].at] = breaks[i].value;
        assert_int_equal(weft_rpc_request_unpack(bad, sizeof(bad), &out), WEFT_PROTO);
    }
    assert_int_equal(out.rpc_id, 77);
    assert_int_equal(weft_rpc_request_unpack(good, sizeof(good), &out), WEFT_OK);
}

static void reply_bytes(void **state)
{
    (void)state;
    const struct weft_rpc_reply reply = {.rpc_id = 0xa1a2a3a4,
                                         .status = 0x0102,
                                         .t0_ns = 5,
                                         .clock = 6,
                                         .rows = 7,
                                         .ps_proc_ns = 8,
                                         .ps_overlap_ns = 9,
                                         .ps_wait_ns = 10,
                                         .ps_queue_ns = 0x0b00000000000000};
    uint8_t bytes[WEFT_RPC_REPLY_BYTES];
    weft_rpc_reply_pack(&reply, bytes);
    static const uint8_t wanted[WEFT_RPC_REPLY_BYTES] = {
        0xa1, 0xa2, 0xa3, 0xa4, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0,  7, 0,
        0,    0,    0,    0,    0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 10, 11};
    assert_memory_equal(bytes, wanted, sizeof(wanted));
    struct weft_rpc_reply back = {.rpc_id = 3};
    for (size_t cut = 0; cut < sizeof(bytes); cut++) {
        assert_int_equal(weft_rpc_reply_unpack(bytes, cut, &back), WEFT_PROTO);
    }
    assert_int_equal(weft_rpc_reply_unpack(bytes, sizeof(bytes), &back), WEFT_OK);
    assert_memory_equal(&back, &reply, sizeof(reply));
    bytes[7] = WEFT_RPC_CAN_ALL;
    assert_int_equal(weft_rpc_reply_unpack(bytes, sizeof(bytes), &back), WEFT_OK);
    assert_int_equal(back.can, WEFT_RPC_CAN_ALL);
    bytes[7] = WEFT_RPC_CAN_ALL + 1;
    assert_int_equal(weft_rpc_reply_unpack(bytes, sizeof(bytes), &back), WEFT_PROTO);
}

static void tags(void **state)
{
    (void)state;
    struct weft_rpc_tag tag = {
        .op = WEFT_RPC_PULL | WEFT_RPC_REPLY_FLAG, .table = 0xabcd, .number = 0x12345678};
    assert_int_equal(weft_rpc_tag_pack(tag), 0x82abcd0012345678);
    struct weft_rpc_tag back;
    assert_true(weft_rpc_tag_unpack(0x82abcd0012345678, &back));
    assert_int_equal(back.op, 0x82);
    assert_int_equal(back.table, 0xabcd);
    assert_int_equal(back.number, 0x12345678);
    assert_false(weft_rpc_tag_unpack(0x82abcd0112345678, &back));
}

static struct weft_table_spec spec_good(void)
{
    return (struct weft_table_spec){.table = 3,
                                    .dim = 16,
                                    .optimizer = WEFT_OPTIMIZER_ADAGRAD,
                                    .mode = WEFT_TABLE_SSP,
                                    .workers = 4,
                                    .staleness = 2,
                                    .learning_rate = 0.5F,
                                    .epsilon = 1e-8F,
                                    .accumulator = 0.1F};
}

static void specs(void **state)
{
    (void)state;
    struct weft_table_spec spec = spec_good(), back;
    uint8_t bytes[WEFT_RPC_SPEC_BYTES];
    weft_table_spec_pack(&spec, bytes);
    static const uint8_t begin[16] = {0, 0, 0, 16, 1, 1, 0, 4, 0, 0, 0, 2, 0x3f, 0, 0, 0};
    assert_memory_equal(bytes, begin, sizeof(begin));
    assert_int_equal(weft_table_spec_unpack(3, bytes, sizeof(bytes), &back), WEFT_OK);
    assert_true(weft_table_spec_equal(&spec, &back));
    for (size_t cut = 0; cut < sizeof(bytes); cut++) {
        assert_int_equal(weft_table_spec_unpack(3, bytes, cut, &back), WEFT_PROTO);
    }
    /* The comparison covers every byte. */
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] ^= 1;
        if (weft_table_spec_unpack(3, bytes, sizeof(bytes), &back) == WEFT_OK) {
            assert_false(weft_table_spec_equal(&spec, &back));
        }
        bytes[i] ^= 1;
    }
    back = spec;
    back.table = 4;
    assert_false(weft_table_spec_equal(&spec, &back));
}

static void specs_refused(void **state)
{
    (void)state;
    struct weft_table_spec bad[12 + 1];
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(bad); i++) {
        bad[i] = spec_good();
    }
    bad[0].dim = 0;
    bad[1].dim = WEFT_RPC_DIM_MAX + 1;
    bad[2].optimizer = 6;
    bad[3].mode = 3;
    bad[4].workers = 0;
    bad[5].mode = WEFT_TABLE_BSP; /* staleness without SSP */
    bad[6].learning_rate = NAN;
    bad[7].epsilon = -1;
    bad[8].accumulator = INFINITY;
    bad[9].epsilon = bad[9].accumulator = 0;
    bad[10].optimizer = WEFT_OPTIMIZER_SGD; /* with parameters of Adagrad */
    bad[11].epsilon = NAN;
    bad[12].optimizer = WEFT_OPTIMIZER_MOMENTUM;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(bad); i++) {
        assert_false(weft_table_spec_valid(&bad[i]));
    }
    struct weft_table_spec good = spec_good();
    assert_true(weft_table_spec_valid(&good));
}

/* A plain table with one field changed: once valid, once invalid. */
struct change {
    struct weft_table_spec good;
    struct weft_table_spec bad;
};

#define PLAIN .dim = 16, .workers = 1, .learning_rate = 1

static const struct change changes[] = {
    {{PLAIN, .optimizer = WEFT_OPTIMIZER_MOMENTUM, .beta1 = 0.9F},
     {PLAIN, .optimizer = WEFT_OPTIMIZER_MOMENTUM, .beta1 = 1}},
    {{PLAIN, .optimizer = WEFT_OPTIMIZER_MOMENTUM},
     {PLAIN, .optimizer = WEFT_OPTIMIZER_MOMENTUM, .beta1 = -0.0F}},
    {{PLAIN, .optimizer = WEFT_OPTIMIZER_ADAM, .beta2 = 0.9F, .epsilon = 1e-8F},
     {PLAIN, .optimizer = WEFT_OPTIMIZER_ADAM, .beta2 = 0.9F}}, /* 0 / 0 at g = 0 */
    {{PLAIN, .optimizer = WEFT_OPTIMIZER_ADAM, .beta1 = 0.9F, .epsilon = 1},
     {PLAIN, .optimizer = WEFT_OPTIMIZER_ADAM, .beta1 = 0.9F, .epsilon = 1, .l2 = 1}},
    {{PLAIN, .optimizer = WEFT_OPTIMIZER_FTRL, .l1 = 1, .l2 = 1},
     {PLAIN, .optimizer = WEFT_OPTIMIZER_FTRL, .l1 = 1}},
    {{PLAIN, .optimizer = WEFT_OPTIMIZER_FTRL, .epsilon = 1},
     {.dim = 16, .workers = 1, .optimizer = WEFT_OPTIMIZER_FTRL, .epsilon = 1}}, /* rate 0 */
    {{PLAIN, .optimizer = WEFT_OPTIMIZER_ADADELAY, .accumulator = 1},
     {PLAIN, .optimizer = WEFT_OPTIMIZER_ADADELAY}},
    {{PLAIN, .init_scale = 0.1F, .init_skip = 15, .init_seed = 9},
     {PLAIN, .init_scale = 0.1F, .init_skip = 16}},
    {{PLAIN, .init_scale = 0.1F}, {PLAIN, .init_scale = -0.1F}},
    {{PLAIN, .init_scale = 0.1F}, {PLAIN, .init_seed = 1}},
    {{PLAIN, .admission = WEFT_ADMISSION_COUNTER, .admission_count = 2, .admission_cells = 64},
     {PLAIN, .admission = WEFT_ADMISSION_COUNTER, .admission_count = 1, .admission_cells = 64}},
    {{PLAIN, .admission = WEFT_ADMISSION_COUNTER, .admission_count = 256, .admission_cells = 64},
     {PLAIN, .admission = WEFT_ADMISSION_BLOOM, .admission_count = 256, .admission_cells = 64}},
    {{PLAIN, .admission = WEFT_ADMISSION_BLOOM, .admission_count = 255, .admission_cells = 64},
     {PLAIN, .admission = WEFT_ADMISSION_BLOOM, .admission_count = 255, .admission_cells = 63}},
    {{PLAIN}, {PLAIN, .admission = 3, .admission_count = 2, .admission_cells = 64}},
    {{PLAIN}, {PLAIN, .admission_count = 2}},
    {{PLAIN, .eviction = WEFT_EVICTION_TTL, .ttl = 1}, {PLAIN, .eviction = WEFT_EVICTION_TTL}},
    {{PLAIN, .eviction = WEFT_EVICTION_LRU, .rows_max = 10},
     {PLAIN, .eviction = WEFT_EVICTION_LRU, .ttl = 1}},
    {{PLAIN, .eviction = WEFT_EVICTION_L2, .bytes_max = 10}, {PLAIN, .eviction = 4}},
    {{PLAIN, .not_finite = WEFT_NOT_FINITE_CLIP, .clip = 1},
     {PLAIN, .not_finite = WEFT_NOT_FINITE_CLIP}},
    {{PLAIN, .not_finite = WEFT_NOT_FINITE_DROP},
     {PLAIN, .not_finite = WEFT_NOT_FINITE_DROP, .clip = 1}},
    {{PLAIN}, {PLAIN, .not_finite = 3}},
    {{PLAIN, .kind = WEFT_TABLE_DENSE, .length = 1}, {PLAIN, .kind = WEFT_TABLE_DENSE}},
    {{PLAIN, .kind = WEFT_TABLE_DENSE, .length = UINT64_C(16) << 30},
     {PLAIN, .kind = WEFT_TABLE_DENSE, .length = (UINT64_C(16) << 30) + 1}},
    {{PLAIN}, {PLAIN, .kind = 2, .length = 5}},
    {{PLAIN}, {PLAIN, .length = 5}},
    {{PLAIN, .kind = WEFT_TABLE_DENSE, .length = 5},
     {PLAIN, .kind = WEFT_TABLE_DENSE, .length = 5, .eviction = WEFT_EVICTION_L2}},
    {{PLAIN, .kind = WEFT_TABLE_DENSE, .length = 5},
     {PLAIN, .kind = WEFT_TABLE_DENSE, .length = 5, .rows_max = 1}},
    {{PLAIN, .rows_max = 1 << 30}, {PLAIN, .rows_max = (1 << 30) + 1}},
    {{PLAIN, .block_floats = 8}, {PLAIN, .block_floats = 7}},
    {{PLAIN, .block_floats = 16}, {PLAIN, .block_floats = 17}},
    /* The default has one encoding only: 0. */
    {{PLAIN, .average = WEFT_AVERAGE_CONTRIBUTORS}, {PLAIN, .average = WEFT_AVERAGE_WORKERS}},
    {{PLAIN, .mode = WEFT_TABLE_ASP, .average = WEFT_AVERAGE_CONTRIBUTORS},
     {PLAIN, .mode = WEFT_TABLE_ASP, .average = WEFT_AVERAGE_WORKERS}},
    {{PLAIN, .kind = WEFT_TABLE_DENSE, .length = 5, .average = WEFT_AVERAGE_WORKERS},
     {PLAIN, .kind = WEFT_TABLE_DENSE, .length = 5, .average = WEFT_AVERAGE_CONTRIBUTORS}},
    {{PLAIN, .mode = WEFT_TABLE_ASP, .kind = WEFT_TABLE_DENSE, .length = 5,
      .average = WEFT_AVERAGE_CONTRIBUTORS},
     {PLAIN, .mode = WEFT_TABLE_ASP, .kind = WEFT_TABLE_DENSE, .length = 5,
      .average = WEFT_AVERAGE_WORKERS}},
    {{PLAIN, .average = WEFT_AVERAGE_NONE}, {PLAIN, .average = WEFT_AVERAGE_NONE + 1}},
    {{PLAIN, .push_values = WEFT_VALUE_INT8}, {PLAIN, .push_values = WEFT_VALUE_INT8 + 1}},
    {{PLAIN, .pull_values = WEFT_VALUE_BF16}, {PLAIN, .pull_values = WEFT_VALUE_BF16 + 1}},
};

static void one_change(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(changes); i++) {
        uint8_t bytes[WEFT_RPC_SPEC_BYTES], again[WEFT_RPC_SPEC_BYTES];
        struct weft_table_spec back = {.table = 9};
        if (!weft_table_spec_valid(&changes[i].good) || weft_table_spec_valid(&changes[i].bad)) {
            fail_msg("change %zu", i);
        }
        weft_table_spec_pack(&changes[i].bad, bytes);
        assert_int_equal(weft_table_spec_unpack(0, bytes, sizeof(bytes), &back), WEFT_PROTO);
        assert_int_equal(back.table, 9);
        weft_table_spec_pack(&changes[i].good, bytes);
        assert_int_equal(weft_table_spec_unpack(0, bytes, sizeof(bytes), &back), WEFT_OK);
        weft_table_spec_pack(&back, again);
        assert_memory_equal(again, bytes, sizeof(bytes));
    }
}

/* The offset of each field: the table of PROTOCOL section 7. */
static void spec_bytes(void **state)
{
    (void)state;
    const struct weft_table_spec spec = {.dim = 0x01020304,
                                         .optimizer = 5,
                                         .mode = 6,
                                         .workers = 0x0708,
                                         .staleness = 0x09,
                                         .learning_rate = 1,
                                         .epsilon = 2,
                                         .accumulator = 4,
                                         .beta1 = 8,
                                         .beta2 = 16,
                                         .l1 = 32,
                                         .l2 = 64,
                                         .init_scale = 128,
                                         .init_skip = 0x11121314,
                                         .init_seed = 0x2122232425262728,
                                         .kind = 0x31,
                                         .admission = 0x32,
                                         .eviction = 0x33,
                                         .not_finite = 0x34,
                                         .clip = 256,
                                         .admission_count = 0x41424344,
                                         .admission_cells = 0x51525354,
                                         .ttl = 0x61626364,
                                         .rows_max = 0x71727374,
                                         .bytes_max = 0x8182838485868788,
                                         .length = 0x9192939495969798,
                                         .block_floats = 0xa1a2,
                                         .average = 0xb1,
                                         .push_values = 0xc1,
                                         .pull_values = 0xd1};
    static const uint8_t wanted[WEFT_RPC_SPEC_BYTES] = {
        1,    2,    3,    4,    5,    6,    7,    8,    0,    0,    0,    9,    0x3f, 0x80, 0,
        0,    0x40, 0,    0,    0,    0x40, 0x80, 0,    0,    0x41, 0,    0,    0,    0x41, 0x80,
        0,    0,    0x42, 0,    0,    0,    0x42, 0x80, 0,    0,    0x43, 0,    0,    0,    0x11,
        0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34,
        0x43, 0x80, 0,    0,    0x41, 0x42, 0x43, 0x44, 0x51, 0x52, 0x53, 0x54, 0x61, 0x62, 0x63,
        0x64, 0x71, 0x72, 0x73, 0x74, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x91, 0x92,
        0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0xa1, 0xa2, 0xb1, 0xc1, 0xd1, 0,    0,    0};
    uint8_t bytes[WEFT_RPC_SPEC_BYTES];
    weft_table_spec_pack(&spec, bytes);
    assert_memory_equal(bytes, wanted, sizeof(wanted));
}

/* Blocks shorter than packets of 256 bytes require; and the packet size for the longest blocks. */
static void short_blocks(void **state)
{
    (void)state;
    struct weft_table_spec spec = {.dim = 100, .block_floats = 32};
    assert_int_equal(weft_table_blocks(&spec), 4);
    assert_int_equal(weft_table_block_used(&spec, 3), 4);
    assert_int_equal(weft_table_push_elem_bytes(&spec, WEFT_RPC_ID_WIDE), 136);
    struct weft_table_spec halves = spec;
    halves.push_values = WEFT_VALUE_BF16;
    assert_int_equal(weft_table_push_elem_bytes(&halves, WEFT_RPC_ID_WIDE), 72);
    assert_int_equal(weft_table_pull_elem_bytes(&halves), 128);
    halves.pull_values = WEFT_VALUE_BF16;
    assert_int_equal(weft_table_pull_elem_bytes(&halves), 64);
    for (uint32_t dim = 1; dim <= WEFT_RPC_DIM_MAX; dim++) {
        uint32_t most = dim < WEFT_RPC_BLOCK_FLOATS ? dim : WEFT_RPC_BLOCK_FLOATS;
        for (uint32_t block = WEFT_RPC_BLOCK_FLOATS_MIN - 1; block <= most; block++) {
            spec.dim = dim;
            spec.block_floats =
                block < WEFT_RPC_BLOCK_FLOATS_MIN ? 0 : (uint16_t)block; /* 0 first */
            size_t elem_bytes = weft_table_push_elem_bytes(&spec, WEFT_RPC_ID_WIDE);
            assert_true(weft_table_blocks(&spec) * elem_bytes <=
                        weft_table_row_push_bytes_max(dim));
        }
    }
}

static void blocks_and_shards(void **state)
{
    (void)state;
    static const uint32_t dims[][4] = {/* dim, blocks, floats per block, used floats of the last */
                                       {1, 1, 1, 1},     {255, 1, 255, 255}, {256, 1, 256, 256},
                                       {257, 2, 256, 1}, {300, 2, 256, 44},  {1024, 4, 256, 256}};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(dims); i++) {
        struct weft_table_spec spec = {.dim = dims[i][0]};
        assert_int_equal(weft_table_blocks(&spec), dims[i][1]);
        assert_int_equal(weft_table_block_floats(&spec), dims[i][2]);
        assert_int_equal(weft_table_block_used(&spec, dims[i][1] - 1), dims[i][3]);
    }
    assert_int_equal(weft_rpc_head_elems(40, 12), 4);
    assert_int_equal(weft_rpc_head_elems(40, 8), 5);
    assert_int_equal(weft_rpc_head_elems(56, 1024), 1);
    uint32_t counts[3] = {0};
    for (uint64_t id = 0; id < 30000; id++) {
        uint32_t shard = weft_table_shard_of(id, 3);
        assert_true(shard < 3);
        assert_int_equal(weft_table_shard_of(id, 1), 0);
        counts[shard]++;
    }
    for (int s = 0; s < 3; s++) {
        assert_in_range(counts[s], 9700, 10300);
    }
    assert_int_equal(weft_table_shard_of(UINT64_MAX, 3), /* mix = b4d055fcf2cbbd7b */ 2);
}

static void status_texts(void **state)
{
    (void)state;
    assert_string_equal(weft_rpc_status_name(WEFT_RPC_FULL), "FULL");
    assert_string_equal(weft_rpc_status_name(WEFT_RPC_STATUS_COUNT), "unknown");
    assert_string_equal(weft_rpc_status_text(60000), "unknown");
    assert_true(strlen(weft_rpc_status_text(WEFT_RPC_OK)) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_bytes), cmocka_unit_test(request_refused),
        cmocka_unit_test(reply_bytes),   cmocka_unit_test(tags),
        cmocka_unit_test(specs),         cmocka_unit_test(specs_refused),
        cmocka_unit_test(one_change),        cmocka_unit_test(spec_bytes),
        cmocka_unit_test(short_blocks),
        cmocka_unit_test(status_texts),  cmocka_unit_test(blocks_and_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
