#include "wire/packet.h"

static uint8_t class_byte(uint8_t klass)
{
    return (uint8_t)(WEFT_WIRE_VERSION << 4 | klass);
}

weft_status weft_wire_classify(const void *bytes, size_t count, uint8_t *version_p,
                               uint8_t *class_p)
{
    if (count == 0) {
        return WEFT_PROTO;
    }
    uint8_t first = *(const uint8_t *)bytes;
    *version_p = first >> 4;
    *class_p = first & 15;
    return *version_p == WEFT_WIRE_VERSION ? WEFT_OK : WEFT_PROTO;
}

/* The flags of a message have no meaning without a chunk, so they must be zero then. */
static bool flags_valid(uint8_t flags)
{
    uint8_t of_message = WEFT_FLAG_PASS_END | WEFT_FLAG_SENDER_LIMITED | WEFT_FLAG_PRIORITY;
    if (flags & WEFT_FLAG_DATA) {
        return true;
    }
    if (flags & WEFT_FLAG_BRIEF) {
        return (flags & WEFT_FLAG_PRIORITY & ~WEFT_FLAG_SHARED) == WEFT_FLAG_BRIEF;
    }
    return (flags & WEFT_FLAG_CONTROL) && !(flags & of_message);
}

weft_status weft_wire_header_decode(const void *bytes, size_t count,
                                    struct weft_wire_packet *packet_p)
{
    struct weft_reader r = weft_reader_make(bytes, count);
    size_t header_bytes =
        count < 2 ? WEFT_HEADER_BYTES : weft_wire_header_bytes(((const uint8_t *)bytes)[1]);
    const uint8_t *at = weft_read_bytes(&r, header_bytes);
    if (at == NULL) {
        return WEFT_PROTO;
    }
    bool whole = header_bytes == WEFT_HEADER_BYTES;
    struct weft_wire_packet p = {
        .klass = at[0] & 15,
        .flags = at[1],
        .data_count = weft_get_u16(at + 2),
        .connection_id = weft_get_u32(at + 4),
        .number = whole ? weft_get_u64(at + 8) : weft_get_u32(at + 8),
    };
    if (at[0] >> 4 != WEFT_WIRE_VERSION || p.klass > WEFT_CLASS_SEAL || (whole && p.number == 0) ||
        !flags_valid(p.flags) ||
        (p.klass != WEFT_CLASS_PLAIN && weft_reader_left(&r) < WEFT_TAG_BYTES)) {
        return WEFT_PROTO;
    }
    *packet_p = p;
    return WEFT_OK;
}

weft_status weft_wire_body_decode(const void *bytes, size_t count, struct weft_wire_packet *packet)
{
    struct weft_reader r = weft_reader_make(bytes, count);
    size_t tag_bytes = packet->klass != WEFT_CLASS_PLAIN ? WEFT_TAG_BYTES : 0;
    if (weft_read_bytes(&r, weft_wire_header_bytes(packet->flags)) == NULL ||
        weft_reader_left(&r) < tag_bytes) {
        return WEFT_PROTO;
    }
    r.end -= tag_bytes;
    if (packet->flags & WEFT_FLAG_CONTROL) {
        packet->control_bytes = weft_read_u16(&r);
        packet->control = weft_read_bytes(&r, packet->control_bytes);
        if (packet->control == NULL || packet->control_bytes == 0) {
            return WEFT_PROTO;
        }
    }
    if (weft_wire_has_chunk(packet->flags)) {
        packet->data_bytes = weft_reader_left(&r);
        packet->data = weft_read_bytes(&r, packet->data_bytes);
    }
    return weft_reader_left(&r) == 0 ? WEFT_OK : WEFT_PROTO;
}

weft_status weft_wire_packet_decode(const void *bytes, size_t count,
                                    struct weft_wire_packet *packet_p)
{
    struct weft_wire_packet p;
    if (weft_wire_header_decode(bytes, count, &p) != WEFT_OK ||
        weft_wire_body_decode(bytes, count, &p) != WEFT_OK) {
        return WEFT_PROTO;
    }
    *packet_p = p;
    return WEFT_OK;
}

uint8_t weft_wire_ack_delay_step(uint64_t ns)
{
    uint64_t units = ns / 25000;
    if (units < 4) {
        return 0;
    }
    unsigned octave = 61 - (unsigned)__builtin_clzll(units);
    uint64_t step = 4 * (uint64_t)octave + (units >> octave) - 4;
    return (uint8_t)(step < WEFT_ACK_DELAY_STEPS ? step : WEFT_ACK_DELAY_STEPS - 1);
}

static bool ack_decode(struct weft_reader *r, struct weft_wire_ack *a)
{
    a->word_count = weft_read_u8(r);
    a->note_count = weft_read_u8(r);
    uint8_t flags = weft_read_u8(r);
    a->flags = flags & ((1 << WEFT_ACK_DELAY_SHIFT) - 1);
    a->delay_step = flags >> WEFT_ACK_DELAY_SHIFT;
    a->largest = weft_read_u64(r);
    a->delay = weft_read_u32(r);
    a->clock = weft_read_u32(r);
    a->ect = weft_read_u32(r);
    a->ce = weft_read_u32(r);
    a->credit = weft_read_u32(r);
    a->open_from = weft_read_u32(r);
    if (r->bad || a->word_count > WEFT_ACK_WORDS_MAX || a->note_count > WEFT_ACK_NOTES_MAX) {
        return false;
    }
    for (unsigned i = 0; i < a->word_count; i++) {
        a->words[i] = weft_read_u64(r);
    }
    for (unsigned i = 0; i < a->note_count; i++) {
        a->notes[i].msg = weft_read_u32(r);
        a->notes[i].received = weft_read_u32(r);
    }
    if (a->largest == 0) {
        return a->word_count == 0;
    }
    /* The blocks must not extend below number 0, and the first must not acknowledge numbers
     * above largest. */
    if (a->word_count > 0 && a->largest / 64 + 1 < a->word_count) {
        return false;
    }
    uint64_t above = a->largest % 64 == 63 ? 0 : UINT64_MAX << (a->largest % 64 + 1);
    return a->word_count == 0 || (a->words[0] & above) == 0;
}

static bool ack_short_decode(struct weft_reader *r, struct weft_wire_ack_short *a)
{
    uint8_t flags = weft_read_u8(r);
    a->flags = flags & ((1 << WEFT_ACK_DELAY_SHIFT) - 1);
    a->delay_step = flags >> WEFT_ACK_DELAY_SHIFT;
    a->largest = weft_read_u32(r);
    a->delay = weft_read_u16(r);
    a->credit = weft_read_u16(r);
    a->open_from = weft_read_u8(r);
    a->ce = weft_read_u8(r);
    a->mask = weft_read_u64(r);
    return (a->flags & WEFT_ACK_IDLE) == 0 && a->mask >> 63 != 0;
}

/* Part of a mask of `chunks` bits, starting at chunk `first`. Bits of chunks that do not exist
 * must be zero, so that counts of set bits are right. */
static bool mask_valid(uint32_t chunks, uint32_t first, const uint64_t *words, size_t word_count)
{
    uint64_t words_all = weft_div_ceil_u64(chunks, 64);
    uint64_t words_end = first / 64 + (uint64_t)word_count;
    if (word_count == 0 || words_end > words_all) {
        return false;
    }
    uint64_t beyond = chunks % 64 == 0 ? 0 : UINT64_MAX << (chunks % 64);
    return words_end < words_all || (words[word_count - 1] & beyond) == 0;
}

static bool done_decode(struct weft_reader *r, struct weft_wire_done *d)
{
    d->status = weft_read_u8(r);
    d->word_count = weft_read_u16(r);
    d->msg = weft_read_u32(r);
    d->chunks = weft_read_u32(r);
    d->received = weft_read_u32(r);
    d->refused = weft_read_u32(r);
    d->first = weft_read_u32(r);
    if (r->bad || d->word_count > WEFT_DONE_WORDS_MAX || d->status > WEFT_DONE_SHORT ||
        d->received > d->chunks || d->refused > d->received || d->first % 64 != 0) {
        return false;
    }
    for (unsigned i = 0; i < d->word_count; i++) {
        d->words[i] = weft_read_u64(r);
    }
    if (d->received == d->chunks || d->received == 0) {
        return d->word_count == 0 && d->first == 0;
    }
    return mask_valid(d->chunks, d->first, d->words, d->word_count);
}

static bool critical_decode(struct weft_reader *r, struct weft_wire_critical *c)
{
    uint8_t reserved = weft_read_u8(r);
    c->word_count = weft_read_u16(r);
    c->msg = weft_read_u32(r);
    c->chunks = weft_read_u32(r);
    c->first = weft_read_u32(r);
    if (r->bad || reserved != 0 || c->word_count > WEFT_CRITICAL_WORDS_MAX || c->first % 64 != 0) {
        return false;
    }
    for (unsigned i = 0; i < c->word_count; i++) {
        c->words[i] = weft_read_u64(r);
    }
    return mask_valid(c->chunks, c->first, c->words, c->word_count);
}

static bool finish_decode(struct weft_reader *r, struct weft_wire_finish *f)
{
    f->flags = weft_read_u8(r);
    f->msg = weft_read_u32(r);
    return (f->flags & ~WEFT_FINISH_SHORT) == 0;
}

static bool padding_decode(struct weft_reader *r, uint16_t *bytes_p)
{
    *bytes_p = weft_read_u16(r);
    const uint8_t *zeros = weft_read_bytes(r, *bytes_p);
    uint8_t any = 0;
    for (size_t i = 0; zeros != NULL && i < *bytes_p; i++) {
        any |= zeros[i];
    }
    return any == 0;
}

static bool message_decode(struct weft_reader *r, struct weft_wire_message *m)
{
    m->priority = weft_read_u8(r);
    m->critical = weft_read_u8(r);
    uint8_t reserved = weft_read_u8(r);
    m->msg = weft_read_u32(r);
    m->total = weft_read_u32(r);
    m->chunk_elems = weft_read_u16(r);
    m->elem_bytes = weft_read_u16(r);
    m->tag = weft_read_u64(r);
    if (r->bad || reserved != 0 || m->priority > 7 || m->critical > 1 || m->total == 0 ||
        m->total > m->chunk_elems || m->elem_bytes == 0) {
        return false;
    }
    m->payload = weft_read_bytes(r, (size_t)m->total * m->elem_bytes);
    return m->payload != NULL;
}

bool weft_wire_frame_decode(struct weft_reader *reader, struct weft_wire_frame *frame_p)
{
    if (reader->bad || weft_reader_left(reader) == 0) {
        return false;
    }
    bool ok = true;
    frame_p->type = (enum weft_wire_frame_type)weft_read_u8(reader);
    switch (frame_p->type) {
    case WEFT_FRAME_ACK:
        ok = ack_decode(reader, &frame_p->ack);
        break;
    case WEFT_FRAME_ACK_SHORT:
        ok = ack_short_decode(reader, &frame_p->ack_short);
        break;
    case WEFT_FRAME_DONE:
        ok = done_decode(reader, &frame_p->done);
        break;
    case WEFT_FRAME_FINISH:
        ok = finish_decode(reader, &frame_p->finish);
        break;
    case WEFT_FRAME_PING:
        break;
    case WEFT_FRAME_PATH_CHALLENGE:
    case WEFT_FRAME_PATH_RESPONSE:
        frame_p->token = weft_read_u64(reader);
        break;
    case WEFT_FRAME_CLOSE:
        frame_p->close_code = weft_read_u16(reader);
        ok = frame_p->close_code <= WEFT_CLOSE_REPLACED;
        break;
    case WEFT_FRAME_CRITICAL:
        ok = critical_decode(reader, &frame_p->critical);
        break;
    case WEFT_FRAME_BACKLOG:
        frame_p->backlog_end = weft_read_u32(reader);
        break;
    case WEFT_FRAME_PADDING:
        ok = padding_decode(reader, &frame_p->padding_bytes);
        break;
    case WEFT_FRAME_MESSAGE:
        ok = message_decode(reader, &frame_p->message);
        break;
    default:
        ok = false;
    }
    if (!ok) {
        reader->bad = true;
    }
    return !reader->bad;
}

weft_status weft_wire_control_check(const uint8_t *control, size_t count, bool *eliciting_p)
{
    struct weft_reader r = weft_reader_make(control, count);
    struct weft_wire_frame frame;
    bool eliciting = false;
    while (weft_wire_frame_decode(&r, &frame)) {
        eliciting |= weft_wire_frame_eliciting(frame.type);
    }
    if (r.bad) {
        return WEFT_PROTO;
    }
    *eliciting_p = eliciting;
    return WEFT_OK;
}

/* Check that the chunk lies within its grid and has the length that the grid requires. Sets the
 * derived fields. */
static bool grid_valid(struct weft_wire_data *d, uint64_t payload_bytes)
{
    if (d->total == 0 || d->chunk_elems == 0 || d->elem_bytes == 0) {
        return false;
    }
    d->chunks = (d->total - 1) / d->chunk_elems + 1;
    bool masked = d->critical == WEFT_CRITICAL_MASKED;
    if (d->chunk >= d->chunks || d->lost_max >= d->chunks || (d->critical > d->chunks && !masked)) {
        return false;
    }
    uint64_t left = d->total - (uint64_t)d->chunk * d->chunk_elems;
    d->elems = (uint32_t)weft_min_u64(left, d->chunk_elems);
    return payload_bytes == (uint64_t)d->elems * d->elem_bytes;
}

weft_status weft_wire_data_decode(const uint8_t *bytes, size_t count, struct weft_wire_data *data_p)
{
    if (count < WEFT_DATA_BYTES) {
        return WEFT_PROTO;
    }
    uint32_t bound = weft_get_u32(bytes + 16);
    struct weft_wire_data d = {
        .msg = weft_get_u32(bytes),
        .chunk = weft_get_u32(bytes + 4),
        .total = weft_get_u32(bytes + 8),
        .chunk_elems = weft_get_u16(bytes + 12),
        .elem_bytes = weft_get_u16(bytes + 14),
        .critical = (uint8_t)(bound >> 24),
        .lost_max = bound & 0xffffff,
        .tag = weft_get_u64(bytes + 20),
        .clock = weft_get_u32(bytes + 28),
        .payload = bytes + WEFT_DATA_BYTES,
    };
    if (!grid_valid(&d, count - WEFT_DATA_BYTES)) {
        return WEFT_PROTO;
    }
    *data_p = d;
    return WEFT_OK;
}

weft_status weft_wire_brief_decode(const uint8_t *bytes, size_t count,
                                   struct weft_wire_brief *brief_p)
{
    if (count <= WEFT_BRIEF_BYTES) {
        return WEFT_PROTO;
    }
    uint32_t place = weft_get_u32(bytes);
    *brief_p = (struct weft_wire_brief){
        .msg = (uint16_t)(place >> WEFT_BRIEF_CHUNK_BITS),
        .chunk = place & ((UINT32_C(1) << WEFT_BRIEF_CHUNK_BITS) - 1),
        .clock = weft_get_u32(bytes + 4),
        .payload = bytes + WEFT_BRIEF_BYTES,
        .payload_bytes = count - WEFT_BRIEF_BYTES,
    };
    return WEFT_OK;
}

weft_status weft_wire_brief_complete(const struct weft_wire_brief *brief,
                                     struct weft_wire_data *data)
{
    struct weft_wire_data d = *data;
    d.chunk = brief->chunk;
    d.clock = brief->clock;
    d.payload = brief->payload;
    if (!grid_valid(&d, brief->payload_bytes)) {
        return WEFT_PROTO;
    }
    *data = d;
    return WEFT_OK;
}

void weft_wire_header_encode(struct weft_writer *w, const struct weft_wire_packet *packet)
{
    size_t header_bytes = weft_wire_header_bytes(packet->flags);
    uint8_t *at = weft_write_take(w, header_bytes);
    if (at == NULL) {
        return;
    }
    at[0] = class_byte(packet->klass);
    at[1] = packet->flags;
    weft_put_u16(at + 2, packet->data_count);
    weft_put_u32(at + 4, packet->connection_id);
    if (header_bytes == WEFT_HEADER_BYTES) {
        weft_put_u64(at + 8, packet->number);
    } else {
        weft_put_u32(at + 8, (uint32_t)packet->number);
    }
}

void weft_wire_data_encode(struct weft_writer *w, const struct weft_wire_data *data)
{
    uint8_t *at = weft_write_take(w, WEFT_DATA_BYTES);
    if (at != NULL) {
        weft_put_u32(at, data->msg);
        weft_put_u32(at + 4, data->chunk);
        weft_put_u32(at + 8, data->total);
        weft_put_u16(at + 12, data->chunk_elems);
        weft_put_u16(at + 14, data->elem_bytes);
        weft_put_u32(at + 16, (uint32_t)data->critical << 24 | data->lost_max);
        weft_put_u64(at + 20, data->tag);
        weft_put_u32(at + 28, data->clock);
    }
}

void weft_wire_brief_encode(struct weft_writer *w, const struct weft_wire_data *data)
{
    uint8_t *at = weft_write_take(w, WEFT_BRIEF_BYTES);
    if (at != NULL) {
        weft_put_u32(at, data->msg << WEFT_BRIEF_CHUNK_BITS | data->chunk);
        weft_put_u32(at + 4, data->clock);
    }
}

static void ack_encode(struct weft_writer *w, const struct weft_wire_ack *a)
{
    weft_write_u8(w, a->word_count);
    weft_write_u8(w, a->note_count);
    weft_write_u8(w, (uint8_t)(a->flags | a->delay_step << WEFT_ACK_DELAY_SHIFT));
    weft_write_u64(w, a->largest);
    weft_write_u32(w, a->delay);
    weft_write_u32(w, a->clock);
    weft_write_u32(w, a->ect);
    weft_write_u32(w, a->ce);
    weft_write_u32(w, a->credit);
    weft_write_u32(w, a->open_from);
    for (unsigned i = 0; i < a->word_count; i++) {
        weft_write_u64(w, a->words[i]);
    }
    for (unsigned i = 0; i < a->note_count; i++) {
        weft_write_u32(w, a->notes[i].msg);
        weft_write_u32(w, a->notes[i].received);
    }
}

static void ack_short_encode(struct weft_writer *w, const struct weft_wire_ack_short *a)
{
    weft_write_u8(w, (uint8_t)(a->flags | a->delay_step << WEFT_ACK_DELAY_SHIFT));
    weft_write_u32(w, a->largest);
    weft_write_u16(w, a->delay);
    weft_write_u16(w, a->credit);
    weft_write_u8(w, a->open_from);
    weft_write_u8(w, a->ce);
    weft_write_u64(w, a->mask);
}

static void done_encode(struct weft_writer *w, const struct weft_wire_done *d)
{
    weft_write_u8(w, d->status);
    weft_write_u16(w, d->word_count);
    weft_write_u32(w, d->msg);
    weft_write_u32(w, d->chunks);
    weft_write_u32(w, d->received);
    weft_write_u32(w, d->refused);
    weft_write_u32(w, d->first);
    for (unsigned i = 0; i < d->word_count; i++) {
        weft_write_u64(w, d->words[i]);
    }
}

static void critical_encode(struct weft_writer *w, const struct weft_wire_critical *c)
{
    weft_write_u8(w, 0);
    weft_write_u16(w, c->word_count);
    weft_write_u32(w, c->msg);
    weft_write_u32(w, c->chunks);
    weft_write_u32(w, c->first);
    for (unsigned i = 0; i < c->word_count; i++) {
        weft_write_u64(w, c->words[i]);
    }
}

static void message_encode(struct weft_writer *w, const struct weft_wire_message *m)
{
    weft_write_u8(w, m->priority);
    weft_write_u8(w, m->critical);
    weft_write_u8(w, 0);
    weft_write_u32(w, m->msg);
    weft_write_u32(w, m->total);
    weft_write_u16(w, m->chunk_elems);
    weft_write_u16(w, m->elem_bytes);
    weft_write_u64(w, m->tag);
    weft_write_bytes(w, m->payload, (size_t)m->total * m->elem_bytes);
}

void weft_wire_frame_encode(struct weft_writer *w, const struct weft_wire_frame *frame)
{
    weft_write_u8(w, (uint8_t)frame->type);
    switch (frame->type) {
    case WEFT_FRAME_ACK:
        ack_encode(w, &frame->ack);
        break;
    case WEFT_FRAME_ACK_SHORT:
        ack_short_encode(w, &frame->ack_short);
        break;
    case WEFT_FRAME_DONE:
        done_encode(w, &frame->done);
        break;
    case WEFT_FRAME_FINISH:
        weft_write_u8(w, frame->finish.flags);
        weft_write_u32(w, frame->finish.msg);
        break;
    case WEFT_FRAME_PING:
        break;
    case WEFT_FRAME_PATH_CHALLENGE:
    case WEFT_FRAME_PATH_RESPONSE:
        weft_write_u64(w, frame->token);
        break;
    case WEFT_FRAME_CLOSE:
        weft_write_u16(w, frame->close_code);
        break;
    case WEFT_FRAME_PADDING:
        weft_write_u16(w, frame->padding_bytes);
        for (unsigned i = 0; i < frame->padding_bytes; i++) {
            weft_write_u8(w, 0);
        }
        break;
    case WEFT_FRAME_BACKLOG:
        weft_write_u32(w, frame->backlog_end);
        break;
    case WEFT_FRAME_CRITICAL:
        critical_encode(w, &frame->critical);
        break;
    case WEFT_FRAME_MESSAGE:
        message_encode(w, &frame->message);
        break;
    }
}
