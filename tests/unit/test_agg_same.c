/* The same random packets through three boxes: the kernel's program (BPF_PROG_TEST_RUN), the
 * host's, and the model of agg_model.h. After each packet, kernel and host must reply with equal
 * bytes, host and model with equal content, and host and model must have equal counters. After each
 * sequence, all three must have equal sums, windows, rounds and counters.
 *
 * The kernel's part needs root and BPF; without them the other two are compared and the case is
 * skipped.
 */
#include "agg/box.h"
#include "agg_frame.h"
#include "agg_model.h"
#include "base/prng.h"
#include "lab/aggregate.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__)
enum { SEQUENCES = 2000 };
#else
enum { SEQUENCES = 10000 };
#endif
enum {
    STEPS = 60,
    STEPS_LONG = 400,
    HISTORY = 48,
    JOB = 77,
    PORT = 7701,
    HEADS = 42,
    FRAME_MAX = 2048,
    XDP_DROP_CODE = 1,
    XDP_PASS_CODE = 2,
    XDP_TX_CODE = 3,
    XDP_REDIRECT_CODE = 4,
};

struct packet {
    uint32_t count;
    uint8_t bytes[WEFT_AGG_PACKET_MAX];
};

struct rig {
    struct weft_prng prng;
    struct weft_aggregate *kernel; /* NULL: not compared */
    struct weft_agg_box host;
    struct model model;
    struct packet history[HISTORY];
    uint32_t history_count;
    uint32_t next_number[MODEL_BANKS][MODEL_MEMBERS];
    bool tight;   /* values near the limits of int32 */
    bool is_long; /* one member, many rows: its windows move */
};

static uint32_t below(struct rig *r, uint32_t n)
{
    return (uint32_t)weft_prng_below(&r->prng, n);
}

static void must(weft_status status, const struct weft_error *error)
{
    if (status != WEFT_OK) {
        fail_msg("%s", error->text);
    }
}

/* ---- packets --------------------------------------------------------------------------------- */

static uint32_t any_member(struct rig *r)
{
    uint32_t member;
    do {
        member = below(r, MODEL_MEMBERS);
    } while (!model_is_member(&r->model, member));
    return member;
}

static uint32_t any_value(struct rig *r)
{
    return r->tight ? (uint32_t)weft_prng_u64(&r->prng) : below(r, 2001) - 1000;
}

static void dense_packet(struct rig *r, struct packet *p)
{
    uint32_t place = below(r, MODEL_SLOTS);
    const struct model_slot *slot = &r->model.slots[place];
    uint32_t set = below(r, 2);
    uint32_t round = slot->begun ? slot->sets[set].round : set;
    /* Mostly the open round; otherwise the next one, the one after it, or an old one. */
    round += (uint32_t[]){0, 0, 0, 2, 2, 4, (uint32_t)-2, 1}[below(r, 8)];
    struct weft_wire_agg head = {
        .kind = WEFT_AGG_DENSE,
        .exponent = r->model.config.exponent,
        .job = JOB,
        .member = (uint16_t)any_member(r),
        .count = below(r, 16) == 0 ? WEFT_AGG_VALUES_MAX : 8,
        .place = place,
        .epoch = r->model.config.dense_epoch,
        .number = round,
    };
    if ((weft_mix64((uint64_t)place << 32 | round) & 1) != 0) {
        head.flags = WEFT_AGG_AGREED;
        head.exponent = (int8_t)(round % 200 - 100);
        head.next = (int8_t)(below(r, 254) - 126);
    }
    if (below(r, 32) == 0) {
        head.exponent = (int8_t)weft_prng_u64(&r->prng);
    }
    if (below(r, 32) == 0) {
        head.flags = 0;
        head.next = 0;
    }
    head.epoch -= below(r, 32) == 0;
    weft_wire_agg_encode(p->bytes, &head);
    p->count = WEFT_AGG_HEADER_BYTES + 4u * head.count;
    for (uint32_t i = 0; i < head.count; i++) {
        weft_wire_store_u32(p->bytes + WEFT_AGG_HEADER_BYTES + 4 * i, any_value(r));
    }
}

static void rows_packet(struct rig *r, struct packet *p)
{
    uint32_t place = below(r, MODEL_BANKS);
    uint32_t member = any_member(r);
    const struct model_bank *bank = &r->model.banks[place];
    uint32_t *next = &r->next_number[place][member];
    uint32_t number = *next;
    *next += !r->is_long && below(r, 8) == 0 ? below(r, 70) : below(r, 300) == 0 ? 260 : 1;
    struct weft_wire_agg head = {
        .kind = WEFT_AGG_ROWS,
        .job = JOB,
        .member = (uint16_t)member,
        .count = (uint16_t)(1 + below(r, below(r, 8) == 0 ? WEFT_AGG_ROWS_MAX : 3)),
        .place = place,
        .epoch = bank->epoch.epoch,
        .number = number,
        .from = number - (uint32_t)weft_prng_below(&r->prng, number < 192 ? number + 1u : 193u),
    };
    head.epoch += below(r, 24) == 0 ? below(r, 3) - 1 : 0;
    weft_wire_agg_encode(p->bytes, &head);
    p->count = WEFT_AGG_HEADER_BYTES + head.count * WEFT_AGG_ROW_BYTES;
    for (uint32_t i = 0; i < head.count; i++) {
        uint8_t *at = p->bytes + WEFT_AGG_HEADER_BYTES + i * WEFT_AGG_ROW_BYTES;
        uint32_t block = below(r, below(r, 64) == 0 ? 300 : 20);
        int8_t exponent = block < WEFT_AGG_BANK_BLOCKS ? bank->epoch.exponents[block] : 0;
        exponent = (int8_t)(exponent + (below(r, 256) == 0));
        weft_wire_agg_row_encode(at, (uint16_t)block, exponent);
        for (uint32_t j = 0; j < WEFT_AGG_BLOCK; j++) {
            weft_wire_store_u32(at + WEFT_AGG_ROW_HEAD_BYTES + 4 * j, any_value(r));
        }
    }
}

/* Change, remove or add bytes. The first byte stays, because the box ignores frames without it. */
static void damage(struct rig *r, struct packet *p)
{
    for (uint32_t n = 1 + below(r, 3); n > 0; n--) {
        uint32_t reach = p->count < 48 ? p->count : 48;
        if (reach > 1) {
            p->bytes[1 + below(r, reach - 1)] = (uint8_t)weft_prng_u64(&r->prng);
        }
    }
    if (below(r, 4) == 0) {
        p->count = 1 + below(r, below(r, 2) == 0 ? p->count : WEFT_AGG_PACKET_MAX);
    }
}

static void garbage(struct rig *r, struct packet *p)
{
    p->count = 1 + below(r, 120);
    for (uint32_t i = 0; i < p->count; i++) {
        p->bytes[i] = (uint8_t)weft_prng_u64(&r->prng);
    }
    p->bytes[0] = WEFT_WIRE_VERSION << 4 | WEFT_CLASS_AGG;
}

static void next_packet(struct rig *r, struct packet *p)
{
    uint32_t lot = below(r, 100);
    if (lot < (r->is_long ? 5 : 45)) {
        dense_packet(r, p);
    } else if (lot < 75) {
        rows_packet(r, p);
    } else if (lot < 95 && r->history_count > 0) {
        /* A duplicate, however late; one in five of them damaged. */
        *p = r->history[below(r, r->history_count)];
        if (lot >= 91) {
            damage(r, p);
        }
        return;
    } else {
        garbage(r, p);
        return;
    }
    uint32_t at = r->history_count < HISTORY ? r->history_count++ : below(r, HISTORY);
    r->history[at] = *p;
}

/* ---- the three boxes ------------------------------------------------------------------------- */

static uint32_t frame_of(const struct packet *p, uint8_t *frame)
{
    memset(frame, 0, HEADS);
    memcpy(frame, "\0\0\0\0\0\0\x02\0\0\0\0\2\x08", 13);
    frame[14] = 0x45;
    weft_wire_put_u16(frame + 16, (uint16_t)(28 + p->count));
    frame[22] = 64;
    frame[23] = 17;
    memcpy(frame + 26, "\x0a\0\0\1\x0a\0\0\2", 8);
    weft_wire_put_u16(frame + 34, 4000);
    weft_wire_put_u16(frame + 36, PORT);
    weft_wire_put_u16(frame + 38, (uint16_t)(8 + p->count));
    memcpy(frame + HEADS, p->bytes, p->count);
    return HEADS + p->count;
}

/* A reply is sent to the source of its request, with correct lengths. */
static void check_heads(const uint8_t *frame, uint32_t count, bool cut)
{
    assert_memory_equal(frame, "\x02\0\0\0\0\2\0\0\0\0\0\0", 12);
    assert_memory_equal(frame + 26, "\x0a\0\0\2\x0a\0\0\1", 8);
    assert_int_equal(weft_wire_get_u16(frame + 34), PORT);
    assert_int_equal(weft_wire_get_u16(frame + 36), 4000);
    assert_int_equal(weft_wire_get_u16(frame + 16), count - 14);
    assert_int_equal(weft_wire_get_u16(frame + 38), count - 34);
    if (cut) {
        assert_int_equal(ip_sum(frame + 14), 0xffff);
    }
}

static void compare_kernel(struct rig *r, const struct packet *p, enum weft_agg_action action,
                           const uint8_t *answer, uint32_t answer_count)
{
    uint8_t frame[FRAME_MAX];
    uint8_t out[FRAME_MAX];
    uint32_t out_count = sizeof(out);
    struct weft_aggregate_run run = {.is_tc = false};
    struct weft_error error;
    uint32_t count = frame_of(p, frame);
    must(weft_aggregate_run(r->kernel, frame, count, 1, out, &out_count, &run, &error), &error);
    static const uint32_t codes[] = {[WEFT_AGG_DROP] = XDP_DROP_CODE,
                                     [WEFT_AGG_ANSWER] = XDP_TX_CODE,
                                     [WEFT_AGG_ANSWER_ALL] = XDP_REDIRECT_CODE};
    assert_int_equal(run.action, codes[action]);
    if (action != WEFT_AGG_DROP) {
        assert_int_equal(out_count, HEADS + answer_count);
        assert_memory_equal(out + HEADS, answer, answer_count);
        check_heads(out, out_count, out_count != count);
    }
}

static enum weft_agg_action action_of(enum weft_agg_verdict verdict)
{
    switch (verdict) {
    case WEFT_AGG_COMPLETE:
        return WEFT_AGG_ANSWER_ALL;
    case WEFT_AGG_RESULT:
    case WEFT_AGG_ADDED:
    case WEFT_AGG_AGAIN:
    case WEFT_AGG_REFUSED_EPOCH:
    case WEFT_AGG_REFUSED_FORM:
    case WEFT_AGG_REFUSED_CLOSED:
    case WEFT_AGG_REFUSED_RANGE:
        return WEFT_AGG_ANSWER;
    default:
        return WEFT_AGG_DROP;
    }
}

/* The ACK has, for each number in the window, the state of the model. */
static void check_ack(const struct rig *r, const struct packet *question, const uint8_t *answer)
{
    uint32_t member = model_be(question->bytes + 6, 2);
    const struct model_bank *bank = &r->model.banks[model_be(question->bytes + 8, 4)];
    struct weft_agg_ack ack;
    assert_int_equal(answer[1], WEFT_AGG_ACK);
    weft_agg_ack_decode(answer + WEFT_AGG_HEADER_BYTES, model_be(answer + 20, 4), &ack);
    assert_int_equal(ack.base, bank->base[member]);
    for (uint32_t i = 0; i < WEFT_AGG_WINDOW; i++) {
        const struct model_number *n = &bank->numbers[member][ack.base + i];
        bool added = ack.added[i / 64] >> i % 64 & 1;
        bool refused = ack.refused[i / 64] >> i % 64 & 1;
        assert_int_equal(added, n->state == NUMBER_ADDED && !n->held);
        assert_int_equal(refused, n->state == NUMBER_REFUSED);
    }
}

static void check_sum(const struct rig *r, const struct packet *question, const uint8_t *answer)
{
    const struct model_slot *slot = &r->model.slots[model_be(question->bytes + 8, 4)];
    const struct model_round *round = &slot->sets[model_be(question->bytes + 16, 4) % 2];
    uint32_t count = model_be(question->bytes + 24, 2);
    assert_int_equal(answer[1], WEFT_AGG_SUM);
    bool direct = round->is_void || count != round->values;
    bool agreed = round->form == WEFT_AGG_AGREED;
    assert_int_equal(answer[2],
                     (direct ? WEFT_AGG_DIRECT : 0) | (agreed ? WEFT_AGG_AGREED : 0));
    assert_int_equal((int8_t)answer[3], agreed ? round->exponent : r->model.config.exponent);
    assert_int_equal((int8_t)answer[26], agreed ? round->next : 0);
    for (uint32_t i = 0; !direct && i < count; i++) {
        assert_int_equal(model_value(answer + WEFT_AGG_HEADER_BYTES + 4 * i), round->sums[i]);
    }
}

static void send(struct rig *r, const struct packet *p)
{
    uint8_t answer[WEFT_AGG_PACKET_MAX];
    uint32_t answer_count;
    memcpy(answer, p->bytes, p->count);
    enum weft_agg_verdict verdict = model_receive(&r->model, p->bytes, p->count);
    enum weft_agg_action action = weft_agg_box_receive(&r->host, answer, p->count, &answer_count);
    assert_int_equal(action, action_of(verdict));
    assert_memory_equal(&r->host.counts, &r->model.counts, sizeof(r->model.counts));
    if (action != WEFT_AGG_DROP && p->bytes[1] == WEFT_AGG_ROWS) {
        check_ack(r, p, answer);
    } else if (action != WEFT_AGG_DROP) {
        check_sum(r, p, answer);
    }
    if (r->kernel != NULL) {
        compare_kernel(r, p, action, answer, answer_count);
    }
}

/* ---- commands -------------------------------------------------------------------------------- */

static void draw_epoch(struct rig *r, struct weft_agg_bank_epoch *epoch, uint32_t number)
{
    memset(epoch, 0, sizeof(*epoch));
    epoch->epoch = number;
    epoch->blocks = (uint16_t)(below(r, 4) == 0 ? WEFT_AGG_BANK_BLOCKS : 20);
    epoch->policy = (uint8_t)below(r, 2);
    for (uint32_t i = 0; i < WEFT_AGG_BANK_BLOCKS; i++) {
        epoch->exponents[i] = (int8_t)(-(int)below(r, 20));
    }
}

static void command(struct rig *r, struct weft_aggregate_command *command)
{
    struct weft_agg_bank *host = &r->host.banks[command->bank];
    struct model_bank *model = &r->model.banks[command->bank];
    bool done[2] = {true, true};
    switch (command->what) {
    case WEFT_AGGREGATE_FLUSH:
        done[0] = weft_agg_bank_flush(host);
        done[1] = model_flush(model);
        break;
    case WEFT_AGGREGATE_COMMITTED:
    case WEFT_AGGREGATE_GIVEN_UP:
        done[0] = weft_agg_bank_settle(host, command->what == WEFT_AGGREGATE_COMMITTED);
        done[1] = model_settle(model, command->what == WEFT_AGGREGATE_COMMITTED);
        break;
    case WEFT_AGGREGATE_CLOSE:
        weft_agg_bank_close(host);
        model->open = false;
        break;
    default:
        done[0] = weft_agg_bank_begin(host, &command->epoch);
        done[1] = model_begin(model, &command->epoch);
        break;
    }
    assert_int_equal(done[0], done[1]);
    if (r->kernel != NULL) {
        bool kernel;
        struct weft_error error;
        must(weft_aggregate_command(r->kernel, command, &kernel, &error), &error);
        assert_int_equal(kernel, done[0]);
    }
}

static void random_command(struct rig *r)
{
    struct weft_aggregate_command c = {.bank = below(r, MODEL_BANKS)};
    uint32_t lot = below(r, 16);
    c.what = lot < 6    ? WEFT_AGGREGATE_FLUSH
             : lot < 10 ? WEFT_AGGREGATE_COMMITTED
             : lot < 12 ? WEFT_AGGREGATE_GIVEN_UP
             : lot < 13 ? WEFT_AGGREGATE_CLOSE
                        : WEFT_AGGREGATE_BEGIN;
    draw_epoch(r, &c.epoch, r->model.banks[c.bank].epoch.epoch + 1);
    command(r, &c);
}

static void new_dense_epoch(struct rig *r)
{
    struct weft_error error;
    r->model.config.dense_epoch++;
    r->host.config = r->model.config;
    if (r->kernel != NULL) {
        must(weft_aggregate_configure(r->kernel, &r->model.config, &error), &error);
    }
}

/* ---- a sequence ------------------------------------------------------------------------------ */

static void compare_slot(const struct model_slot *model, const struct weft_agg_dense *slot)
{
    assert_int_equal(slot->begun != 0, model->begun);
    for (int s = 0; model->begun && s < 2; s++) {
        const struct model_round *round = &model->sets[s];
        const struct weft_agg_dense_set *set = &slot->sets[s];
        assert_int_equal(set->round, round->round);
        assert_int_equal(set->is_void, round->is_void);
        for (uint32_t i = 0; i < MODEL_MEMBERS; i++) {
            assert_int_equal(set->members >> i & 1, round->has[i]);
        }
        for (uint32_t i = 0; !round->is_void && i < round->values; i++) {
            assert_int_equal((int32_t)set->sums[i], round->sums[i]);
        }
    }
}

static void compare_bank(const struct model_bank *model, const struct weft_agg_bank *bank)
{
    assert_int_equal(bank->active, model->active);
    assert_int_equal(bank->draining, model->draining);
    assert_int_equal(bank->open, model->open);
    for (int s = 0; s < 2; s++) {
        assert_int_equal(bank->sets[s].packets, model->packets[s]);
        for (int i = 0; i < WEFT_AGG_BANK_BLOCKS; i++) {
            assert_int_equal(bank->sets[s].updates[i], model->updates[s][i]);
            for (int j = 0; j < WEFT_AGG_BLOCK; j++) {
                assert_int_equal((int32_t)bank->sets[s].sums[i * WEFT_AGG_BLOCK + j],
                                 model->sums[s][i][j]);
            }
        }
    }
    for (int i = 0; i < MODEL_MEMBERS; i++) {
        assert_int_equal(bank->windows[i].base, model->base[i]);
    }
}

static void compare_end(struct rig *r)
{
    struct weft_error error;
    static struct weft_agg_bank bank;
    struct weft_agg_dense slot;
    for (uint32_t i = 0; i < MODEL_SLOTS; i++) {
        compare_slot(&r->model.slots[i], &r->host.slots[i]);
        if (r->kernel != NULL) {
            must(weft_aggregate_read_slot(r->kernel, i, &slot, &error), &error);
            assert_memory_equal(&slot, &r->host.slots[i], sizeof(slot));
        }
    }
    for (uint32_t i = 0; i < MODEL_BANKS; i++) {
        compare_bank(&r->model.banks[i], &r->host.banks[i]);
        if (r->kernel != NULL) {
            must(weft_aggregate_read_bank(r->kernel, i, &bank, &error), &error);
            assert_memory_equal(&bank, &r->host.banks[i], sizeof(bank));
        }
    }
    if (r->kernel != NULL) {
        struct weft_aggregate_counts counts;
        must(weft_aggregate_read_counts(r->kernel, &counts, &error), &error);
        assert_memory_equal(&counts.box, &r->host.counts, sizeof(counts.box));
    }
}

static void begin_sequence(struct rig *r, uint32_t sequence)
{
    struct weft_error error;
    weft_prng_split(&r->prng, 21, sequence);
    memset(&r->model, 0, sizeof(r->model));
    memset(r->next_number, 0, sizeof(r->next_number));
    r->history_count = 0;
    r->tight = below(r, 4) == 0;
    r->model.config = (struct weft_agg_config){
        .dense_epoch = below(r, 3) - 1,
        .slots = MODEL_SLOTS,
        .banks = MODEL_BANKS,
        .job = JOB,
        .exponent = (int8_t)(-(int)below(r, 30)),
    };
    r->is_long = sequence % 20 == 0;
    for (uint32_t n = r->is_long ? 1 : 1 + below(r, 4); n > 0; n--) {
        r->model.config.members |= UINT64_C(1) << below(r, MODEL_MEMBERS);
    }
    r->host.config = r->model.config;
    r->host.counts = (struct weft_agg_counts){.values = 0};
    memset(r->host.slots, 0, MODEL_SLOTS * sizeof(r->host.slots[0]));
    memset(r->host.banks, 0, MODEL_BANKS * sizeof(r->host.banks[0]));
    if (r->kernel != NULL) {
        must(weft_aggregate_reset(r->kernel, &error), &error);
        must(weft_aggregate_configure(r->kernel, &r->model.config, &error), &error);
    }
    for (uint32_t i = 0; i < MODEL_BANKS; i++) {
        struct weft_aggregate_command c = {.what = WEFT_AGGREGATE_BEGIN, .bank = i};
        draw_epoch(r, &c.epoch, below(r, 2));
        command(r, &c);
    }
}

static void run_sequences(struct weft_aggregate *kernel)
{
    struct rig *r = calloc(1, sizeof(*r));
    struct weft_agg_counts all = {.values = 0};
    const struct weft_agg_config config = {.slots = MODEL_SLOTS, .banks = MODEL_BANKS};
    assert_non_null(r);
    assert_int_equal(weft_agg_box_init(&r->host, &config), WEFT_OK);
    r->kernel = kernel;
    for (uint32_t sequence = 0; sequence < SEQUENCES; sequence++) {
        begin_sequence(r, sequence);
        for (uint32_t step = r->is_long ? STEPS_LONG : STEPS; step > 0; step--) {
            struct packet p = {0};
            uint32_t lot = below(r, 40);
            if (lot == 0) {
                new_dense_epoch(r);
            } else if (lot <= 4) {
                random_command(r);
            } else {
                next_packet(r, &p);
                send(r, &p);
            }
        }
        compare_end(r);
        for (int v = 0; v < WEFT_AGG_VERDICTS; v++) {
            all.packets[v] += r->host.counts.packets[v];
        }
        all.voided += r->host.counts.voided;
    }
    /* Check that every case has occurred. */
    for (int v = 0; v < WEFT_AGG_VERDICTS; v++) {
        print_message("verdict %d: %llu packets\n", v, (unsigned long long)all.packets[v]);
    }
    for (int v = 0; v < WEFT_AGG_VERDICTS; v++) {
        assert_true(all.packets[v] >= 10);
    }
    assert_true(all.voided > 100);
    weft_agg_box_fini(&r->host);
    free(r);
}

static void host_and_model_agree(void **state)
{
    (void)state;
    run_sequences(NULL);
}

/* 10.0.0.last */
static uint32_t address_of(uint8_t last)
{
    const uint8_t bytes[] = {10, 0, 0, last};
    uint32_t address;
    memcpy(&address, bytes, sizeof(address));
    return address;
}

/* Skip hosts that do not support the program; on others it must load. Frames arrive at lo, whose
 * MAC address is zero. */
static struct weft_aggregate *open_or_skip(const struct weft_agg_config *config)
{
    struct weft_aggregate *kernel = NULL;
    struct weft_error error;
    if (weft_aggregate_probe(&error) != WEFT_OK) {
        print_message("%s\n", error.text);
        skip();
    }
    const uint32_t addresses[] = {address_of(2), address_of(5)};
    must(weft_aggregate_open(config, PORT, &kernel, &error), &error);
    must(weft_aggregate_accept(kernel, "lo", &error), &error);
    must(weft_aggregate_set_addresses(kernel, addresses, 2, &error), &error);
    return kernel;
}

static void kernel_host_and_model_agree(void **state)
{
    (void)state;
    const struct weft_agg_config config = {.slots = MODEL_SLOTS, .banks = MODEL_BANKS};
    struct weft_aggregate *kernel = open_or_skip(&config);
    run_sequences(kernel);
    weft_aggregate_close(kernel);
}

/* Packets that are not for the aggregator are passed to the kernel's stack, unchanged. */
static void others_pass(void **state)
{
    (void)state;
    const struct weft_agg_config config = {.members = 1, .slots = 1, .job = JOB};
    struct weft_aggregate *kernel = open_or_skip(&config);
    struct weft_error error;
    static const struct {
        const char *text;
        uint32_t at;
        uint8_t value;
    } rows[] = {
        {"IPv6", 12, 0x86},
        {"IP options", 14, 0x46},
        {"a fragment", 20, 0x20},
        {"a later fragment", 21, 1},
        {"TCP", 23, 6},
        {"another port", 37, 1},
        {"a DATA packet", 42, 0x20},
        {"version 3", 42, 0x3d},
        {"another host's MAC", 5, 1},
        {"a group of hosts", 0, 1},
        {"another IP address", 33, 9},
    };
    struct packet p = {.count = 64};
    struct weft_wire_agg head = {.kind = WEFT_AGG_DENSE, .job = JOB, .count = 8};
    weft_wire_agg_encode(p.bytes, &head);
    for (size_t i = 0; i <= WEFT_ARRAY_COUNT(rows); i++) {
        uint8_t frame[FRAME_MAX];
        uint8_t out[FRAME_MAX];
        uint32_t out_count = sizeof(out);
        struct weft_aggregate_run run = {.is_tc = false};
        uint32_t count = frame_of(&p, frame);
        if (i < WEFT_ARRAY_COUNT(rows)) {
            frame[rows[i].at] = rows[i].value;
        }
        must(weft_aggregate_run(kernel, frame, count, 1, out, &out_count, &run, &error), &error);
        if (i == WEFT_ARRAY_COUNT(rows)) {
            /* the unchanged frame is for the box */
            assert_int_equal(run.action, XDP_REDIRECT_CODE);
            break;
        }
        if (run.action != XDP_PASS_CODE || out_count != count || memcmp(out, frame, count) != 0) {
            fail_msg("%s: action %u", rows[i].text, run.action);
        }
    }
    weft_aggregate_close(kernel);
}

/* The addresses of a box can be replaced. */
static void addresses_change(void **state)
{
    (void)state;
    const struct weft_agg_config config = {.members = 1, .slots = 1, .job = JOB};
    struct weft_aggregate *kernel = open_or_skip(&config);
    struct weft_error error;
    const uint32_t to = address_of(2);
    const uint32_t others[] = {address_of(7), address_of(5)};
    static const uint32_t many[WEFT_AGGREGATE_ADDRESSES_MAX + 1];
    struct packet p = {.count = 64};
    struct weft_wire_agg head = {.kind = WEFT_AGG_DENSE, .job = JOB, .count = 8};
    weft_wire_agg_encode(p.bytes, &head);
    for (uint32_t i = 0; i < 4; i++) {
        uint8_t frame[FRAME_MAX];
        uint8_t out[FRAME_MAX];
        uint32_t out_count = sizeof(out);
        struct weft_aggregate_run run = {.is_tc = false};
        uint32_t count = frame_of(&p, frame);
        bool own = i % 2 == 1;
        must(weft_aggregate_set_addresses(kernel, own ? &to : others, own ? 1 : 2, &error), &error);
        must(weft_aggregate_run(kernel, frame, count, 1, out, &out_count, &run, &error), &error);
        assert_int_equal(run.action, i == 1   ? XDP_REDIRECT_CODE
                                     : i == 3 ? XDP_TX_CODE
                                              : XDP_PASS_CODE);
    }
    assert_int_equal(weft_aggregate_set_addresses(kernel, many, WEFT_ARRAY_COUNT(many), &error),
                     WEFT_INVALID);
    weft_aggregate_close(kernel);
}

/* All values are 7. */
static void packet_of_sevens(struct packet *p, const struct weft_wire_agg *head, uint32_t body)
{
    *p = (struct packet){.count = WEFT_AGG_HEADER_BYTES + body};
    weft_wire_agg_encode(p->bytes, head);
    for (uint32_t i = 0; i < body; i += 4) {
        /* In ROWS the head of a block is 0. */
        bool first = head->kind == WEFT_AGG_ROWS && i % WEFT_AGG_ROW_BYTES == 0;
        weft_wire_store_u32(p->bytes + WEFT_AGG_HEADER_BYTES + i, first ? 0 : 7);
    }
}

/* Returns the program's verdict. */
static uint32_t run_sevens(struct weft_aggregate *kernel, const struct weft_wire_agg *head,
                           uint32_t body, uint8_t *answer)
{
    struct packet p;
    uint8_t frame[FRAME_MAX];
    uint32_t answer_count = FRAME_MAX;
    struct weft_aggregate_run run = {.is_tc = false};
    struct weft_error error;
    packet_of_sevens(&p, head, body);
    uint32_t count = frame_of(&p, frame);
    must(weft_aggregate_run(kernel, frame, count, 1, answer, &answer_count, &run, &error), &error);
    return run.action;
}

/* The kernel has no floats: it refuses a configuration or an epoch with floats, and does not add
 * packets with floats. */
static void the_kernel_refuses_floats(void **state)
{
    (void)state;
    struct weft_agg_config config = {.members = 1, .slots = 1, .banks = 1, .job = JOB};
    struct weft_aggregate *kernel = open_or_skip(&config);
    struct weft_aggregate *other = NULL;
    struct weft_error error;
    struct weft_aggregate_command begin = {.what = WEFT_AGGREGATE_BEGIN, .epoch = {.blocks = 8}};
    struct weft_aggregate_counts counts;
    uint8_t answer[FRAME_MAX];
    bool done;
    config.form = WEFT_AGG_FLOAT32;
    assert_int_equal(weft_aggregate_configure(kernel, &config, &error), WEFT_INVALID);
    assert_int_equal(weft_aggregate_open(&config, PORT, &other, &error), WEFT_INVALID);
    begin.epoch.form = WEFT_AGG_FLOAT32;
    must(weft_aggregate_command(kernel, &begin, &done, &error), &error);
    assert_false(done);
    begin.epoch.form = 0;
    must(weft_aggregate_command(kernel, &begin, &done, &error), &error);
    assert_true(done);
    struct weft_wire_agg head = {
        .kind = WEFT_AGG_ROWS, .flags = WEFT_AGG_FLOAT32, .job = JOB, .count = 1};
    assert_int_equal(run_sevens(kernel, &head, WEFT_AGG_ROW_BYTES, answer), XDP_TX_CODE);
    head = (struct weft_wire_agg){
        .kind = WEFT_AGG_DENSE, .flags = WEFT_AGG_FLOAT32, .job = JOB, .count = 8};
    assert_int_equal(run_sevens(kernel, &head, 32, answer), XDP_REDIRECT_CODE);
    assert_int_equal(answer[HEADS + 2], WEFT_AGG_DIRECT);
    must(weft_aggregate_read_counts(kernel, &counts, &error), &error);
    assert_int_equal(counts.box.packets[WEFT_AGG_REFUSED_FORM], 1);
    assert_int_equal(counts.box.voided, 1);
    assert_int_equal(counts.box.values, 0);
    weft_aggregate_close(kernel);
}

/* ---- emptied while packets arrive ------------------------------------------------------------ */

enum { BURST = 500000, BEGUN_MIN = 20000 };

struct traffic {
    struct weft_aggregate *kernel;
    atomic_bool stop;
    atomic_bool failed;
};

/* One of two members: its packet is never answered, so the frame stays unchanged and can be run
 * again. The first after a reset begins the sum, the others are duplicates. */
static void *traffic_run(void *arg)
{
    struct traffic *t = arg;
    struct packet p;
    uint8_t frame[FRAME_MAX];
    uint8_t answer[FRAME_MAX];
    struct weft_error error;
    packet_of_sevens(
        &p,
        &(struct weft_wire_agg){.kind = WEFT_AGG_DENSE, .job = JOB, .count = WEFT_AGG_VALUES_MAX},
        4 * WEFT_AGG_VALUES_MAX);
    uint32_t count = frame_of(&p, frame);
    while (!atomic_load(&t->stop) && !atomic_load(&t->failed)) {
        uint32_t answer_count = FRAME_MAX;
        struct weft_aggregate_run run = {.is_tc = false};
        weft_status status =
            weft_aggregate_run(t->kernel, frame, count, BURST, answer, &answer_count, &run, &error);
        atomic_store(&t->failed, status != WEFT_OK || run.action != XDP_DROP_CODE);
    }
    return NULL;
}

/* The slot is empty or has a complete sum. */
static bool is_torn(const struct weft_agg_dense *slot)
{
    const struct weft_agg_dense_set *set = &slot->sets[0];
    bool torn = set->members != slot->begun;
    for (uint32_t i = 0; i < WEFT_AGG_VALUES_MAX; i++) {
        torn |= set->sums[i] != (slot->begun ? 7 : 0);
    }
    return torn;
}

static void a_slot_is_emptied_whole(void **state)
{
    (void)state;
    const struct weft_agg_config config = {.members = 3, .slots = 1, .job = JOB};
    struct traffic t = {.kernel = open_or_skip(&config)};
    struct weft_agg_dense slot;
    struct weft_error error;
    weft_status status = WEFT_OK;
    uint32_t torn = 0;
    uint32_t begun = 0;
    uint32_t reads = 0;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, traffic_run, &t), 0);
    for (; begun < BEGUN_MIN && status == WEFT_OK; reads++) {
        status = weft_aggregate_reset(t.kernel, &error);
        if (status == WEFT_OK) {
            status = weft_aggregate_read_slot(t.kernel, 0, &slot, &error);
        }
        torn += status == WEFT_OK && is_torn(&slot);
        begun += status == WEFT_OK && slot.begun != 0;
        if (atomic_load(&t.failed)) {
            break;
        }
    }
    atomic_store(&t.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    must(status, &error);
    assert_false(atomic_load(&t.failed));
    print_message("%u of %u reads had a sum, %u were torn\n", begun, reads, torn);
    assert_int_equal(torn, 0);
    weft_aggregate_close(t.kernel);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_and_model_agree),
        cmocka_unit_test(kernel_host_and_model_agree),
        cmocka_unit_test(others_pass),
        cmocka_unit_test(addresses_change),
        cmocka_unit_test(the_kernel_refuses_floats),
        cmocka_unit_test(a_slot_is_emptied_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
