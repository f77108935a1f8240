/* One connection packet of arbitrary bytes: a decoded packet satisfies the contract of
 * wire/packet.h, and encodes to the same bytes, so no two packets have the same meaning and no
 * field is ignored. */
#include "base/assert.h"
#include "wire/packet.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A heap buffer of exactly `count` bytes: AddressSanitizer detects an encoder that writes one byte
 * more. */
static struct weft_writer writer_new(size_t count, uint8_t **buffer_p)
{
    *buffer_p = malloc(count > 0 ? count : 1);
    WEFT_ASSERT(*buffer_p != NULL);
    return weft_writer_make(*buffer_p, count);
}

/* An encoder must detect a buffer that is one byte too short. */
static void check_frame_too_long(const struct weft_wire_frame *frame, size_t count)
{
    uint8_t *small = NULL;
    struct weft_writer w = writer_new(count - 1, &small);
    weft_wire_frame_encode(&w, frame);
    WEFT_ASSERT(w.bad);
    free(small);
}

static void check_control(const struct weft_wire_packet *packet, struct weft_writer *out)
{
    struct weft_reader r = weft_reader_make(packet->control, packet->control_bytes);
    struct weft_wire_frame frame;
    bool eliciting_walked = false;
    const uint8_t *frame_start = r.at;
    while (weft_wire_frame_decode(&r, &frame)) {
        WEFT_ASSERT(r.at > frame_start);
        eliciting_walked |= frame.type != WEFT_FRAME_ACK && frame.type != WEFT_FRAME_ACK_SHORT &&
                            frame.type != WEFT_FRAME_CLOSE && frame.type != WEFT_FRAME_PADDING;
        weft_wire_frame_encode(out, &frame);
        check_frame_too_long(&frame, (size_t)(r.at - frame_start));
        frame_start = r.at;
    }
    bool eliciting = false;
    weft_status status =
        weft_wire_control_check(packet->control, packet->control_bytes, &eliciting);
    WEFT_ASSERT((status == WEFT_OK) == !r.bad);
    WEFT_ASSERT(r.bad || eliciting == eliciting_walked);
    if (r.bad) {
        /* Refused: copy it undecoded, so that the comparison can continue. */
        weft_write_bytes(out, frame_start,
                         (size_t)(packet->control + packet->control_bytes - frame_start));
    }
}

static void check_data(const struct weft_wire_packet *packet, struct weft_writer *out)
{
    struct weft_wire_data d;
    if (weft_wire_data_decode(packet->data, packet->data_bytes, &d) != WEFT_OK) {
        weft_write_bytes(out, packet->data, packet->data_bytes);
        return;
    }
    WEFT_ASSERT(d.chunk < d.chunks && d.lost_max < d.chunks &&
                (d.critical <= d.chunks || d.critical == WEFT_CRITICAL_MASKED));
    WEFT_ASSERT((uint64_t)d.chunks * d.chunk_elems >= d.total);
    WEFT_ASSERT((uint64_t)(d.chunks - 1) * d.chunk_elems < d.total);
    WEFT_ASSERT(d.elems > 0 && (uint64_t)d.chunk * d.chunk_elems + d.elems <= d.total);
    WEFT_ASSERT(d.payload == packet->data + WEFT_DATA_BYTES);
    WEFT_ASSERT(WEFT_DATA_BYTES + (uint64_t)d.elems * d.elem_bytes == packet->data_bytes);
    weft_wire_data_encode(out, &d);
    weft_write_bytes(out, d.payload, (size_t)d.elems * d.elem_bytes);
}

/* As a chunk of a message whose chunks have this payload's length. */
static void check_brief(const struct weft_wire_packet *packet, struct weft_writer *out)
{
    struct weft_wire_brief b;
    if (weft_wire_brief_decode(packet->data, packet->data_bytes, &b) != WEFT_OK ||
        b.payload_bytes > UINT16_MAX) {
        weft_write_bytes(out, packet->data, packet->data_bytes);
        return;
    }
    WEFT_ASSERT(b.msg < 1 << 14 && b.chunk < 1 << 18 && b.payload_bytes > 0);
    WEFT_ASSERT(b.payload == packet->data + WEFT_BRIEF_BYTES);
    struct weft_wire_data d = {
        .msg = b.msg | UINT32_C(5) << 14, /* only the low bits are encoded */
        .total = b.chunk + 1,
        .chunk_elems = 1,
        .elem_bytes = (uint16_t)b.payload_bytes,
    };
    WEFT_ASSERT(weft_wire_brief_complete(&b, &d) == WEFT_OK);
    WEFT_ASSERT(d.chunk == b.chunk && d.elems == 1 && d.chunks == b.chunk + 1);
    weft_wire_brief_encode(out, &d);
    weft_write_bytes(out, d.payload, b.payload_bytes);
    d.total = b.chunk; /* one too few */
    WEFT_ASSERT(weft_wire_brief_complete(&b, &d) == WEFT_PROTO);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t version = 0;
    uint8_t klass = 0;
    weft_status classified = weft_wire_classify(data, size, &version, &klass);
    struct weft_wire_packet packet;
    if (weft_wire_packet_decode(data, size, &packet) != WEFT_OK) {
        return 0;
    }
    WEFT_ASSERT(classified == WEFT_OK && version == WEFT_WIRE_VERSION && klass == packet.klass);
    WEFT_ASSERT(packet.control != NULL || packet.data != NULL);
    uint8_t *again = NULL;
    struct weft_writer out = writer_new(size, &again);
    weft_wire_header_encode(&out, &packet);
    if (packet.control != NULL) {
        weft_write_u16(&out, (uint16_t)packet.control_bytes);
        check_control(&packet, &out);
    }
    if (packet.data != NULL && weft_wire_is_brief(packet.flags)) {
        check_brief(&packet, &out);
    } else if (packet.data != NULL) {
        check_data(&packet, &out);
    }
    size_t tag_bytes = klass == WEFT_CLASS_PLAIN ? 0 : WEFT_TAG_BYTES;
    WEFT_ASSERT(!out.bad && weft_writer_left(&out) == tag_bytes);
    WEFT_ASSERT(memcmp(again, data, size - tag_bytes) == 0);
    free(again);
    return 0;
}
