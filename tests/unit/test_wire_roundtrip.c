/* Random valid structs: encoded, decoded, and equal in every field. */
#include "base/prng.h"
#include "wire/packet.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdlib.h>

enum { SEED = 20261121, ROUNDS = 3000, OUT_BYTES = 4096 };

/* Numbers of all magnitudes, because small ones and those near a limit matter most. */
static uint64_t any_u64(struct weft_prng *prng)
{
    uint64_t v = weft_prng_u64(prng) >> weft_prng_below(prng, 64);
    return weft_prng_chance(prng, WEFT_PPM / 8) ? ~v : v;
}

static uint32_t any_u32(struct weft_prng *prng)
{
    return (uint32_t)any_u64(prng);
}

static void any_bytes(struct weft_prng *prng, uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)weft_prng_u64(prng);
    }
}

static void any_ack(struct weft_prng *prng, struct weft_wire_ack *a)
{
    a->largest = any_u64(prng);
    uint64_t words_most = a->largest == 0 ? 0 : weft_min_u64(a->largest / 64 + 1, 32);
    a->word_count = (uint8_t)weft_prng_range(prng, 0, words_most);
    a->note_count = (uint8_t)weft_prng_range(prng, 0, 32);
    a->flags = (uint8_t)weft_prng_below(prng, 4);
    a->delay_step = (uint8_t)weft_prng_below(prng, WEFT_ACK_DELAY_STEPS);
    a->delay = any_u32(prng);
    a->clock = any_u32(prng);
    a->ect = any_u32(prng);
    a->ce = any_u32(prng);
    a->credit = any_u32(prng);
    a->open_from = any_u32(prng);
    for (unsigned i = 0; i < a->word_count; i++) {
        a->words[i] = weft_prng_u64(prng);
    }
    a->words[0] &= UINT64_MAX >> (63 - a->largest % 64);
    for (unsigned i = 0; i < a->note_count; i++) {
        a->notes[i].msg = any_u32(prng);
        a->notes[i].received = any_u32(prng);
    }
}

static void any_ack_short(struct weft_prng *prng, struct weft_wire_ack_short *a)
{
    a->flags = weft_prng_below(prng, 2) == 0 ? 0 : WEFT_ACK_LATER;
    a->delay_step = (uint8_t)weft_prng_below(prng, WEFT_ACK_DELAY_STEPS);
    a->largest = any_u32(prng);
    a->delay = (uint16_t)any_u32(prng);
    a->credit = (uint16_t)any_u32(prng);
    a->open_from = (uint8_t)any_u32(prng);
    a->ce = (uint8_t)any_u32(prng);
    a->mask = weft_prng_u64(prng) | UINT64_C(1) << 63;
}

static void any_done(struct weft_prng *prng, struct weft_wire_done *d)
{
    d->status = (uint8_t)weft_prng_below(prng, 2);
    d->msg = any_u32(prng);
    d->chunks = any_u32(prng);
    d->received = (uint32_t)weft_prng_range(prng, 0, d->chunks);
    d->refused = (uint32_t)weft_prng_range(prng, 0, d->received);
    if (d->received == 0 || d->received == d->chunks) {
        return;
    }
    uint32_t words_all = (uint32_t)weft_div_ceil_u64(d->chunks, 64);
    uint32_t word = (uint32_t)weft_prng_below(prng, words_all);
    d->first = word * 64;
    d->word_count = (uint16_t)weft_prng_range(prng, 1, weft_min_u64(words_all - word, 160));
    for (unsigned i = 0; i < d->word_count; i++) {
        d->words[i] = weft_prng_u64(prng);
    }
    if (word + d->word_count == words_all) {
        d->words[d->word_count - 1] &= UINT64_MAX >> (words_all * UINT64_C(64) - d->chunks);
    }
}

static void any_critical(struct weft_prng *prng, struct weft_wire_critical *c)
{
    c->msg = any_u32(prng);
    c->chunks = (uint32_t)weft_prng_range(prng, 1, 262144);
    uint32_t words_all = (uint32_t)weft_div_ceil_u64(c->chunks, 64);
    uint32_t word = (uint32_t)weft_prng_below(prng, words_all);
    c->first = word * 64;
    c->word_count = (uint16_t)weft_prng_range(prng, 1, weft_min_u64(words_all - word, 160));
    for (unsigned i = 0; i < c->word_count; i++) {
        c->words[i] = weft_prng_u64(prng);
    }
    if (word + c->word_count == words_all) {
        c->words[c->word_count - 1] &= UINT64_MAX >> (words_all * UINT64_C(64) - c->chunks);
    }
}

static void any_message(struct weft_prng *prng, struct weft_wire_message *m)
{
    static uint8_t payload[1024];
    m->priority = (uint8_t)weft_prng_below(prng, 8);
    m->critical = (uint8_t)weft_prng_below(prng, 2);
    m->elem_bytes = (uint16_t)weft_prng_range(prng, 1, 64);
    m->total = (uint32_t)weft_prng_range(prng, 1, sizeof(payload) / m->elem_bytes);
    m->chunk_elems = (uint16_t)weft_prng_range(prng, m->total, UINT16_MAX);
    m->msg = any_u32(prng);
    m->tag = any_u64(prng);
    any_bytes(prng, payload, sizeof(payload));
    m->payload = payload;
}

static void any_frame(struct weft_prng *prng, struct weft_wire_frame *f)
{
    memset(f, 0, sizeof(*f));
    f->type = (enum weft_wire_frame_type)weft_prng_range(prng, 1, WEFT_FRAME_BACKLOG);
    f->type = f->type == 9
                  ? (weft_prng_range(prng, 0, 1) == 0 ? WEFT_FRAME_ACK_SHORT : WEFT_FRAME_MESSAGE)
                  : f->type;
    switch (f->type) {
    case WEFT_FRAME_ACK:
        any_ack(prng, &f->ack);
        break;
    case WEFT_FRAME_ACK_SHORT:
        any_ack_short(prng, &f->ack_short);
        break;
    case WEFT_FRAME_DONE:
        any_done(prng, &f->done);
        break;
    case WEFT_FRAME_FINISH:
        f->finish.flags = (uint8_t)weft_prng_below(prng, 2);
        f->finish.msg = any_u32(prng);
        break;
    case WEFT_FRAME_PING:
        break;
    case WEFT_FRAME_PATH_CHALLENGE:
    case WEFT_FRAME_PATH_RESPONSE:
        f->token = any_u64(prng);
        break;
    case WEFT_FRAME_CLOSE:
        f->close_code = (uint16_t)weft_prng_below(prng, 5);
        break;
    case WEFT_FRAME_PADDING:
        f->padding_bytes = (uint16_t)weft_prng_below(prng, 100);
        break;
    case WEFT_FRAME_BACKLOG:
        f->backlog_end = any_u32(prng);
        break;
    case WEFT_FRAME_CRITICAL:
        any_critical(prng, &f->critical);
        break;
    case WEFT_FRAME_MESSAGE:
        any_message(prng, &f->message);
        break;
    }
}

static void assert_ack_equal(const struct weft_wire_ack *a, const struct weft_wire_ack *b)
{
    assert_int_equal(a->word_count, b->word_count);
    assert_int_equal(a->note_count, b->note_count);
    assert_int_equal(a->flags, b->flags);
    assert_int_equal(a->delay_step, b->delay_step);
    assert_int_equal(a->largest, b->largest);
    assert_int_equal(a->delay, b->delay);
    assert_int_equal(a->clock, b->clock);
    assert_int_equal(a->ect, b->ect);
    assert_int_equal(a->ce, b->ce);
    assert_int_equal(a->credit, b->credit);
    assert_int_equal(a->open_from, b->open_from);
    assert_memory_equal(a->words, b->words, a->word_count * sizeof(a->words[0]));
    assert_memory_equal(a->notes, b->notes, a->note_count * sizeof(a->notes[0]));
}

static void assert_ack_short_equal(const struct weft_wire_ack_short *a,
                                   const struct weft_wire_ack_short *b)
{
    assert_int_equal(a->flags, b->flags);
    assert_int_equal(a->delay_step, b->delay_step);
    assert_int_equal(a->largest, b->largest);
    assert_int_equal(a->delay, b->delay);
    assert_int_equal(a->credit, b->credit);
    assert_int_equal(a->open_from, b->open_from);
    assert_int_equal(a->ce, b->ce);
    assert_int_equal(a->mask, b->mask);
}

static void assert_done_equal(const struct weft_wire_done *a, const struct weft_wire_done *b)
{
    assert_int_equal(a->status, b->status);
    assert_int_equal(a->word_count, b->word_count);
    assert_int_equal(a->msg, b->msg);
    assert_int_equal(a->chunks, b->chunks);
    assert_int_equal(a->received, b->received);
    assert_int_equal(a->refused, b->refused);
    assert_int_equal(a->first, b->first);
    assert_memory_equal(a->words, b->words, a->word_count * sizeof(a->words[0]));
}

static void assert_critical_equal(const struct weft_wire_critical *a,
                                  const struct weft_wire_critical *b)
{
    assert_int_equal(a->word_count, b->word_count);
    assert_int_equal(a->msg, b->msg);
    assert_int_equal(a->chunks, b->chunks);
    assert_int_equal(a->first, b->first);
    assert_memory_equal(a->words, b->words, a->word_count * sizeof(a->words[0]));
}

static void assert_message_equal(const struct weft_wire_message *a,
                                 const struct weft_wire_message *b, bool payload)
{
    assert_int_equal(a->priority, b->priority);
    assert_int_equal(a->critical, b->critical);
    assert_int_equal(a->chunk_elems, b->chunk_elems);
    assert_int_equal(a->elem_bytes, b->elem_bytes);
    assert_int_equal(a->msg, b->msg);
    assert_int_equal(a->total, b->total);
    assert_int_equal(a->tag, b->tag);
    if (payload) { /* the last one built: they share memory */
        assert_memory_equal(a->payload, b->payload, (size_t)a->total * a->elem_bytes);
    }
}

static void assert_frame_equal(const struct weft_wire_frame *a, const struct weft_wire_frame *b,
                               bool payload)
{
    assert_int_equal(a->type, b->type);
    switch (a->type) {
    case WEFT_FRAME_ACK:
        assert_ack_equal(&a->ack, &b->ack);
        break;
    case WEFT_FRAME_ACK_SHORT:
        assert_ack_short_equal(&a->ack_short, &b->ack_short);
        break;
    case WEFT_FRAME_DONE:
        assert_done_equal(&a->done, &b->done);
        break;
    case WEFT_FRAME_CRITICAL:
        assert_critical_equal(&a->critical, &b->critical);
        break;
    case WEFT_FRAME_FINISH:
        assert_int_equal(a->finish.flags, b->finish.flags);
        assert_int_equal(a->finish.msg, b->finish.msg);
        break;
    case WEFT_FRAME_PING:
        break;
    case WEFT_FRAME_PATH_CHALLENGE:
    case WEFT_FRAME_PATH_RESPONSE:
        assert_int_equal(a->token, b->token);
        break;
    case WEFT_FRAME_CLOSE:
        assert_int_equal(a->close_code, b->close_code);
        break;
    case WEFT_FRAME_PADDING:
        assert_int_equal(a->padding_bytes, b->padding_bytes);
        break;
    case WEFT_FRAME_BACKLOG:
        assert_int_equal(a->backlog_end, b->backlog_end);
        break;
    case WEFT_FRAME_MESSAGE:
        assert_message_equal(&a->message, &b->message, payload);
        break;
    }
}

/* Several frames in one block, so that the start of each frame checks the length of the previous
 * one. */
static void frames(void **state)
{
    (void)state;
    print_message("seed %d\n", SEED);
    struct weft_prng prng;
    weft_prng_init(&prng, SEED);
    for (int round = 0; round < ROUNDS; round++) {
        struct weft_wire_frame sent[2];
        uint8_t out[OUT_BYTES];
        struct weft_writer w = weft_writer_make(out, sizeof(out));
        bool eliciting = false;
        for (int i = 0; i < 2; i++) {
            any_frame(&prng, &sent[i]);
            weft_wire_frame_encode(&w, &sent[i]);
            eliciting |= sent[i].type != WEFT_FRAME_ACK && sent[i].type != WEFT_FRAME_ACK_SHORT &&
                         sent[i].type != WEFT_FRAME_CLOSE && sent[i].type != WEFT_FRAME_PADDING;
        }
        assert_false(w.bad);
        bool eliciting_seen = !eliciting;
        assert_int_equal(weft_wire_control_check(out, (size_t)(w.at - out), &eliciting_seen),
                         WEFT_OK);
        assert_int_equal(eliciting_seen, eliciting);
        struct weft_reader r = weft_reader_make(out, (size_t)(w.at - out));
        for (int i = 0; i < 2; i++) {
            struct weft_wire_frame received;
            assert_true(weft_wire_frame_decode(&r, &received));
            assert_frame_equal(&sent[i], &received, i == 1);
        }
        assert_int_equal(weft_reader_left(&r), 0);
    }
}

/* A grid whose chunks fit into `out`, the chunk anywhere in it. */
static struct weft_wire_data any_data(struct weft_prng *prng)
{
    struct weft_wire_data d = {0};
    d.msg = any_u32(prng);
    d.elem_bytes = (uint16_t)weft_prng_range(prng, 1, 64);
    d.chunk_elems = (uint16_t)weft_prng_range(prng, 1, 1408 / d.elem_bytes);
    d.total = (uint32_t)weft_max_u64(any_u32(prng), 1);
    d.chunks = (uint32_t)weft_div_ceil_u64(d.total, d.chunk_elems);
    d.chunk = weft_prng_chance(prng, WEFT_PPM / 4) ? d.chunks - 1
                                                   : (uint32_t)weft_prng_below(prng, d.chunks);
    d.elems = (uint32_t)weft_min_u64(d.total - (uint64_t)d.chunk * d.chunk_elems, d.chunk_elems);
    d.critical = (uint8_t)weft_prng_range(prng, 0, weft_min_u64(d.chunks, 254));
    d.lost_max = (uint32_t)weft_prng_below(prng, weft_min_u64(d.chunks, 1 << 24));
    d.tag = any_u64(prng);
    d.clock = any_u32(prng);
    return d;
}

static void assert_data_equal(const struct weft_wire_data *a, const struct weft_wire_data *b)
{
    assert_int_equal(a->msg, b->msg);
    assert_int_equal(a->chunk, b->chunk);
    assert_int_equal(a->total, b->total);
    assert_int_equal(a->chunk_elems, b->chunk_elems);
    assert_int_equal(a->elem_bytes, b->elem_bytes);
    assert_int_equal(a->critical, b->critical);
    assert_int_equal(a->lost_max, b->lost_max);
    assert_int_equal(a->tag, b->tag);
    assert_int_equal(a->clock, b->clock);
    assert_int_equal(a->chunks, b->chunks);
    assert_int_equal(a->elems, b->elems);
}

/* Header, perhaps a control block, DATA, and a tag where the class has one. */
static void packets_with_data(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, SEED);
    uint8_t payload[1408];
    any_bytes(&prng, payload, sizeof(payload));
    for (int round = 0; round < ROUNDS; round++) {
        struct weft_wire_data sent = any_data(&prng);
        size_t payload_bytes = (size_t)sent.elems * sent.elem_bytes;
        struct weft_wire_packet p = {0};
        p.klass = (uint8_t)weft_prng_below(&prng, 3);
        p.flags = (uint8_t)(weft_prng_u64(&prng) | WEFT_FLAG_DATA);
        p.data_count = (uint16_t)any_u32(&prng);
        p.connection_id = any_u32(&prng);
        p.number = weft_max_u64(any_u64(&prng), 1);
        uint8_t out[OUT_BYTES];
        struct weft_writer w = weft_writer_make(out, sizeof(out));
        weft_wire_header_encode(&w, &p);
        if (p.flags & WEFT_FLAG_CONTROL) {
            weft_write_u16(&w, 1);
            weft_write_u8(&w, WEFT_FRAME_PING);
        }
        weft_wire_data_encode(&w, &sent);
        weft_write_bytes(&w, payload, payload_bytes);
        weft_write_zeros(&w, p.klass == WEFT_CLASS_PLAIN ? 0 : WEFT_TAG_BYTES);
        assert_false(w.bad);

        struct weft_wire_packet q;
        assert_int_equal(weft_wire_packet_decode(out, (size_t)(w.at - out), &q), WEFT_OK);
        assert_int_equal(q.klass, p.klass);
        assert_int_equal(q.flags, p.flags);
        assert_int_equal(q.data_count, p.data_count);
        assert_int_equal(q.connection_id, p.connection_id);
        assert_int_equal(q.number, p.number);
        assert_int_equal(q.control != NULL, (p.flags & WEFT_FLAG_CONTROL) != 0);
        struct weft_wire_data received;
        assert_int_equal(weft_wire_data_decode(q.data, q.data_bytes, &received), WEFT_OK);
        assert_data_equal(&sent, &received);
        assert_memory_equal(received.payload, payload, payload_bytes);
    }
}

static void handshakes(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, SEED);
    for (int round = 0; round < ROUNDS; round++) {
        uint8_t bytes[WEFT_HELLO_BYTES];
        uint8_t out[WEFT_HELLO_BYTES];
        any_bytes(&prng, bytes, sizeof(bytes));
        bool is_hello = weft_prng_chance(&prng, WEFT_PPM / 2);
        size_t count = is_hello ? WEFT_HELLO_BYTES : WEFT_ACCEPT_BYTES;
        bytes[0] = is_hello ? 0x28 : 0x29;
        bytes[1] = (uint8_t)weft_prng_below(&prng, 3);
        if (!is_hello) {
            memset(bytes + 44, 0, 4);
        }
        if (bytes[1] == WEFT_MODE_NONE) {
            memset(bytes + 2, 0, 2);
            memset(bytes + count - 64, 0, 64);
        }
        struct weft_writer w = weft_writer_make(out, sizeof(out));
        struct weft_wire_hello hello;
        struct weft_wire_accept accept;
        if (is_hello) {
            assert_int_equal(weft_wire_hello_decode(bytes, count, &hello), WEFT_OK);
            weft_wire_hello_encode(&w, &hello);
        } else {
            assert_int_equal(weft_wire_accept_decode(bytes, count, &accept), WEFT_OK);
            weft_wire_accept_encode(&w, &accept);
        }
        assert_int_equal(w.at - out, count);
        assert_memory_equal(out, bytes, count);
    }
}

/* A writer that is too small by any number of bytes reports the overflow and writes no byte
 * beyond. */
static void small_writers_are_marked(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, SEED);
    static const struct weft_wire_hello hello = {.connection_id = 7};
    static const struct weft_wire_accept accept = {.connection_id = 7};
    static const struct weft_wire_cookie cookie = {.connection_id = 7};
    for (size_t count = 0; count < WEFT_HELLO_BYTES; count++) {
        uint8_t *out = malloc(count + 1);
        assert_non_null(out);
        struct weft_writer w = weft_writer_make(out, count);
        weft_wire_hello_encode(&w, &hello);
        assert_true(w.bad);
        w = weft_writer_make(out, count);
        weft_wire_accept_encode(&w, &accept);
        assert_int_equal(w.bad, count < WEFT_ACCEPT_BYTES);
        w = weft_writer_make(out, count);
        weft_wire_cookie_encode(&w, &cookie);
        assert_int_equal(w.bad, count < WEFT_COOKIE_BYTES);
        struct weft_wire_frame f;
        any_frame(&prng, &f);
        w = weft_writer_make(out, count);
        weft_wire_frame_encode(&w, &f);
        assert_true(w.at <= out + count);
        free(out);
    }
}

/* Steps of the delay that an ACK announces: four per octave, from 100 us on. */
static void delays_of_acks(void **state)
{
    (void)state;
    assert_int_equal(weft_wire_ack_delay_ns(0), 100000);
    assert_int_equal(weft_wire_ack_delay_ns(1), 125000);
    assert_int_equal(weft_wire_ack_delay_ns(4), 200000);
    assert_int_equal(weft_wire_ack_delay_ns(7), 350000);
    assert_int_equal(weft_wire_ack_delay_ns(63), UINT64_C(5734400000));
    assert_int_equal(weft_wire_ack_delay_step(0), 0);
    assert_int_equal(weft_wire_ack_delay_step(99999), 0);
    assert_int_equal(weft_wire_ack_delay_step(UINT64_MAX), 63);
    for (uint8_t step = 0; step < WEFT_ACK_DELAY_STEPS; step++) {
        uint64_t ns = weft_wire_ack_delay_ns(step);
        assert_int_equal(weft_wire_ack_delay_step(ns), step);
        assert_int_equal(weft_wire_ack_delay_step(ns + 24999), step);
        assert_true(step == 0 || weft_wire_ack_delay_step(ns - 1) == step - 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames),         cmocka_unit_test(packets_with_data),
        cmocka_unit_test(handshakes),     cmocka_unit_test(small_writers_are_marked),
        cmocka_unit_test(delays_of_acks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
