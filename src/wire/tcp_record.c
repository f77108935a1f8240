#include "wire/tcp_record.h"

enum { FLAGS = WEFT_FLAG_KEY_PHASE | WEFT_FLAG_CONTROL | WEFT_FLAG_DATA };

static size_t tag_bytes(uint8_t klass)
{
    return klass == WEFT_CLASS_PLAIN ? 0 : WEFT_TAG_BYTES;
}

weft_status weft_wire_record_head(const uint8_t head[WEFT_WIRE_RECORD_HEAD_BYTES],
                                  struct weft_wire_record *record_p)
{
    struct weft_wire_record r = {
        .klass = head[0] & 15,
        .flags = head[1],
        .bytes = weft_get_u16(head + 2),
    };
    bool phased = (r.flags & WEFT_FLAG_KEY_PHASE) != 0;
    size_t least = tag_bytes(r.klass);
    least += (r.flags & WEFT_FLAG_CONTROL) != 0 ? 3 : 0; /* its length field and one frame of one
                                                          * byte */
    least += (r.flags & WEFT_FLAG_DATA) != 0 ? WEFT_DATA_BYTES + 1 : 0;
    if (head[0] >> 4 != WEFT_WIRE_VERSION || r.klass > WEFT_CLASS_SEAL || (r.flags & ~FLAGS) != 0 ||
        (r.flags & (WEFT_FLAG_CONTROL | WEFT_FLAG_DATA)) == 0 ||
        (phased && r.klass == WEFT_CLASS_PLAIN) || r.bytes < least ||
        r.bytes > WEFT_WIRE_RECORD_BYTES_MAX - WEFT_WIRE_RECORD_HEAD_BYTES) {
        return WEFT_PROTO;
    }
    *record_p = r;
    return WEFT_OK;
}

weft_status weft_wire_record_body(const uint8_t *body, size_t count,
                                  struct weft_wire_record *record)
{
    struct weft_reader r = weft_reader_make(body, count);
    struct weft_wire_record out = *record;
    if ((out.flags & WEFT_FLAG_CONTROL) != 0) {
        out.control_bytes = weft_read_u16(&r);
        out.control = weft_read_bytes(&r, out.control_bytes);
        if (r.bad || out.control_bytes == 0) {
            return WEFT_PROTO;
        }
    }
    if ((out.flags & WEFT_FLAG_DATA) != 0) {
        out.data_bytes = weft_reader_left(&r);
        out.data = weft_read_bytes(&r, out.data_bytes);
    }
    if (r.bad || weft_reader_left(&r) != 0) {
        return WEFT_PROTO;
    }
    *record = out;
    return WEFT_OK;
}

/* True for the packet frames that are allowed over a transport without loss. */
static bool allowed(const struct weft_wire_frame *frame)
{
    switch (frame->type) {
    case WEFT_FRAME_ACK:
        return frame->ack.word_count == 0 && frame->ack.note_count == 0;
    case WEFT_FRAME_FINISH: /* without SHORT it is not allowed: the receiver detects the end of the
                             * pass without it */
        return (frame->finish.flags & WEFT_FINISH_SHORT) != 0;
    case WEFT_FRAME_DONE:
    case WEFT_FRAME_PING:
    case WEFT_FRAME_CLOSE:
        return true;
    case WEFT_FRAME_PATH_CHALLENGE:
    case WEFT_FRAME_PATH_RESPONSE:
    case WEFT_FRAME_CRITICAL:
    case WEFT_FRAME_PADDING:
    case WEFT_FRAME_BACKLOG:
    case WEFT_FRAME_ACK_SHORT:
    case WEFT_FRAME_MESSAGE:
        break;
    }
    return false;
}

bool weft_wire_record_frame_decode(struct weft_reader *reader,
                                   struct weft_wire_record_frame *frame_p)
{
    if (reader->bad || weft_reader_left(reader) == 0) {
        return false;
    }
    uint8_t type = reader->at[0];
    frame_p->type = type;
    if (type == WEFT_FRAME_BLOCKED || type == WEFT_FRAME_READY) {
        (void)weft_read_u8(reader);
        frame_p->msg = weft_read_u32(reader);
        return !reader->bad;
    }
    if (!weft_wire_frame_decode(reader, &frame_p->other)) {
        return false;
    }
    reader->bad = !allowed(&frame_p->other);
    return !reader->bad;
}

weft_status weft_wire_record_check(const uint8_t *control, size_t count)
{
    struct weft_reader r = weft_reader_make(control, count);
    struct weft_wire_record_frame frame;
    while (weft_wire_record_frame_decode(&r, &frame)) {
        continue;
    }
    return r.bad ? WEFT_PROTO : WEFT_OK;
}

void weft_wire_record_head_encode(uint8_t head_p[WEFT_WIRE_RECORD_HEAD_BYTES], uint8_t klass,
                                  uint8_t flags, uint32_t bytes)
{
    head_p[0] = (uint8_t)(WEFT_WIRE_VERSION << 4 | klass);
    head_p[1] = flags;
    weft_put_u16(head_p + 2, (uint16_t)bytes);
}

void weft_wire_blocked_encode(struct weft_writer *w, enum weft_wire_record_frame_type type,
                              uint32_t msg)
{
    weft_write_u8(w, (uint8_t)type);
    weft_write_u32(w, msg);
}
