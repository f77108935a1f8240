/* Packets of dense rounds, of two workers and of the box that sums their values; packets of hot
 * rows of one worker, and their acknowledgements. */
#include "golden.h"

#include "agg/box.h"
#include "agg/dense_member.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { MEMBERS = 2, COUNT = 12 };

struct dense {
    struct golden *g;
    const char *name;
    struct weft_agg_box box;
    struct weft_agg_member member[MEMBERS];
};

/* The first packet of each round from each worker, and the sum to worker 1. */
static void play(struct dense *d, uint32_t round)
{
    static uint8_t bytes[WEFT_AGG_PACKET_MAX];
    uint32_t count, sum_bytes = 0;
    enum weft_agg_action action = WEFT_AGG_DROP;
    for (uint32_t m = 0; m < MEMBERS; m++) {
        count = weft_agg_member_send(&d->member[m], bytes, round);
        assert_true(count > 0);
        golden_item(d->g, bytes, count, "%s: packet %u of worker %u", d->name, round, m);
        action = weft_agg_box_receive(&d->box, bytes, count, &sum_bytes);
    }
    assert_int_equal(action, WEFT_AGG_ANSWER_ALL);
    for (uint32_t m = 0; m < MEMBERS; m++) {
        weft_wire_agg_put_member(bytes, (uint16_t)m);
        assert_true(weft_agg_member_receive(&d->member[m], bytes, sum_bytes, round));
    }
    golden_item(d->g, bytes, sum_bytes, "%s: sum %u", d->name, round);
}

/* Two chunks in one slot. The second is filled up with zeros, and its values are larger. */
static void dense(struct golden *g, const char *name, enum weft_agg_element element,
                  int8_t exponent, uint32_t rounds)
{
    static const float in[COUNT] = {1,      -2,         0.5F,    0,  0x1p-10F, -0.25F,
                                    1.125F, -0x1.8p-5F, 1000.5F, -3, 0x1p19F,  0};
    struct dense d = {.g = g, .name = name};
    float out[MEMBERS][COUNT];
    uint64_t direct[MEMBERS];
    struct weft_agg_member_config config;
    const struct weft_agg_config box = {.members = (1 << MEMBERS) - 1,
                                        .dense_epoch = 0x21222324,
                                        .slots = 1,
                                        .job = 0x0102,
                                        .form = element == WEFT_AGG_FLOATS ? WEFT_AGG_FLOAT32 : 0,
                                        .exponent = exponent};
    weft_agg_member_config_default(&config);
    config.job = box.job;
    config.members = MEMBERS;
    config.slots = 1;
    config.values = 8;
    config.epoch = box.dense_epoch;
    config.element = (uint8_t)element;
    config.exponent = exponent;
    assert_int_equal(weft_agg_box_init(&d.box, &box), WEFT_OK);
    for (uint32_t m = 0; m < MEMBERS; m++) {
        config.member = (uint16_t)m;
        assert_int_equal(weft_agg_member_init(&d.member[m], &config), WEFT_OK);
        assert_int_equal(weft_agg_member_begin(&d.member[m], in, out[m], COUNT, &direct[m]),
                         WEFT_OK);
    }
    for (uint32_t round = 0; round < rounds; round++) {
        assert_false(weft_agg_member_is_done(&d.member[0]));
        play(&d, round);
    }
    for (uint32_t m = 0; m < MEMBERS; m++) {
        assert_true(weft_agg_member_is_done(&d.member[m]) && direct[m] == 0);
        for (uint32_t i = 0; i < COUNT; i++) {
            assert_true(out[m][i] == MEMBERS * in[i]);
        }
        weft_agg_member_fini(&d.member[m]);
    }
    weft_agg_box_fini(&d.box);
}

/* A packet with two blocks of hot rows, and its ACK. */
static void rows(struct golden *g, struct weft_agg_box *box, uint32_t number, int8_t exponent,
                 const char *what)
{
    static uint8_t bytes[WEFT_AGG_PACKET_MAX];
    const struct weft_wire_agg head = {.kind = WEFT_AGG_ROWS,
                                       .job = 0x0102,
                                       .member = 1,
                                       .epoch = 0x21222324,
                                       .number = number,
                                       .from = 64,
                                       .count = 2};
    uint32_t count = WEFT_AGG_HEADER_BYTES + 2 * WEFT_AGG_ROW_BYTES, ack_bytes = 0;
    weft_wire_agg_encode(bytes, &head);
    for (uint32_t i = 0; i < 2; i++) {
        uint8_t *at = bytes + WEFT_AGG_HEADER_BYTES + i * WEFT_AGG_ROW_BYTES;
        weft_wire_agg_row_encode(at, (uint16_t)(2 * i), exponent);
        for (uint32_t j = 0; j < WEFT_AGG_BLOCK; j++) {
            weft_wire_store_u32(at + WEFT_AGG_ROW_HEAD_BYTES + 4 * j, number * (j + 1) - i);
        }
    }
    golden_item(g, bytes, count, "hot rows: packet %u", number);
    assert_int_equal(weft_agg_box_receive(box, bytes, count, &ack_bytes), WEFT_AGG_ANSWER);
    golden_item(g, bytes, ack_bytes, "hot rows: ACK, %s", what);
}

static void hot_rows(struct golden *g)
{
    const struct weft_agg_config config = {.members = 3, .banks = 1, .job = 0x0102};
    struct weft_agg_bank_epoch epoch = {
        .epoch = 0x21222324, .blocks = 3, .policy = WEFT_AGG_ON_COMMIT};
    struct weft_agg_box box;
    assert_int_equal(weft_agg_box_init(&box, &config), WEFT_OK);
    epoch.exponents[0] = epoch.exponents[2] = -10;
    assert_true(weft_agg_bank_begin(&box.banks[0], &epoch));
    box.banks[0].windows[1].base = 64;
    rows(g, &box, 64, -10, "64 is held");
    rows(g, &box, 66, -9, "66 is refused");
    assert_true(weft_agg_bank_flush(&box.banks[0]));
    assert_true(weft_agg_bank_settle(&box.banks[0], true));
    rows(g, &box, 65, -10, "64 is committed");
    weft_agg_box_fini(&box);
}

void golden_agg(void **state)
{
    (void)state;
    struct golden *g = golden_begin("agg");
    dense(g, "int32, exponent -10", WEFT_AGG_FIXED, -10, 2);
    dense(g, "float32", WEFT_AGG_FLOATS, 0, 2);
    dense(g, "int32, agreed exponents", WEFT_AGG_BLOCK_FLOATS, 0, 3);
    hot_rows(g);
    golden_end(g);
}
