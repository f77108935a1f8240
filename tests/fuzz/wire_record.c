/* One record of arbitrary bytes: a decoded record encodes to the same bytes, so no two records have
 * the same meaning and no field is ignored. */
#include "base/assert.h"
#include "wire/tcp_record.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_control(const struct weft_wire_record *record, struct weft_writer *out)
{
    struct weft_reader r = weft_reader_make(record->control, record->control_bytes);
    struct weft_wire_record_frame frame;
    const uint8_t *start = r.at;
    while (weft_wire_record_frame_decode(&r, &frame)) {
        WEFT_ASSERT(r.at > start);
        start = r.at;
        if (frame.type == WEFT_FRAME_BLOCKED || frame.type == WEFT_FRAME_READY) {
            weft_wire_blocked_encode(out, (enum weft_wire_record_frame_type)frame.type, frame.msg);
        } else {
            WEFT_ASSERT((uint8_t)frame.other.type == frame.type);
            weft_wire_frame_encode(out, &frame.other);
        }
    }
    weft_status status = weft_wire_record_check(record->control, record->control_bytes);
    WEFT_ASSERT((status == WEFT_OK) == !r.bad);
    if (r.bad) {
        size_t left = (size_t)(record->control + record->control_bytes - start);
        weft_write_bytes(out, start, left);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weft_wire_record record;
    if (size < WEFT_WIRE_RECORD_HEAD_BYTES || weft_wire_record_head(data, &record) != WEFT_OK) {
        return 0;
    }
    size_t tag = record.klass == WEFT_CLASS_PLAIN ? 0 : WEFT_TAG_BYTES;
    size_t body = record.bytes - tag;
    if (size < WEFT_WIRE_RECORD_HEAD_BYTES + record.bytes ||
        weft_wire_record_body(data + WEFT_WIRE_RECORD_HEAD_BYTES, body, &record) != WEFT_OK) {
        return 0;
    }
    uint8_t *again =
        /* exact size, so that ASan detects one byte more */
        malloc(WEFT_WIRE_RECORD_HEAD_BYTES + body);
    WEFT_ASSERT(again != NULL);
    weft_wire_record_head_encode(again, record.klass, record.flags, record.bytes);
    struct weft_writer w = weft_writer_make(again + WEFT_WIRE_RECORD_HEAD_BYTES, body);
    if (record.control != NULL) {
        weft_write_u16(&w, (uint16_t)record.control_bytes);
        check_control(&record, &w);
    }
    if (record.data != NULL) {
        weft_write_bytes(&w, record.data, record.data_bytes);
    }
    WEFT_ASSERT(!w.bad && weft_writer_left(&w) == 0);
    WEFT_ASSERT(memcmp(again, data, WEFT_WIRE_RECORD_HEAD_BYTES + body) == 0);
    free(again);
    return 0;
}
