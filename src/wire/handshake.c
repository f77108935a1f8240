/* HELLO, ACCEPT, COOKIE, UNKNOWN: docs/PROTOCOL.md sections 2.2 to 2.4. */
#include "wire/packet.h"

static uint8_t first_byte(enum weft_wire_class klass)
{
    return (uint8_t)(WEFT_WIRE_VERSION << 4 | (uint8_t)klass);
}

static void read_into(struct weft_reader *r, uint8_t *to, size_t count)
{
    const uint8_t *from = weft_read_bytes(r, count);
    if (from != NULL) {
        memcpy(to, from, count);
    }
}

/* Key and tag are zero in mode none: they would mean nothing, and a peer that fills them believes
 * that it speaks another mode. */
static bool mode_valid(uint8_t mode, const uint8_t *ephemeral, const uint8_t *tag)
{
    uint8_t any = 0;
    for (size_t i = 0; i < WEFT_KEY_BYTES; i++) {
        any |= ephemeral[i];
    }
    for (size_t i = 0; i < WEFT_TAG_BYTES; i++) {
        any |= tag[i];
    }
    return mode <= WEFT_MODE_SEAL && (mode != WEFT_MODE_NONE || any == 0);
}

weft_status weft_wire_hello_decode(const void *bytes, size_t count, struct weft_wire_hello *hello_p)
{
    struct weft_reader r = weft_reader_make(bytes, count);
    struct weft_wire_hello h = {0};
    uint8_t first = weft_read_u8(&r);
    h.mode = weft_read_u8(&r);
    uint16_t reserved = weft_read_u16(&r);
    h.connection_id = weft_read_u32(&r);
    h.incarnation = weft_read_u64(&r);
    h.name = weft_read_u64(&r);
    h.open_from = weft_read_u64(&r);
    h.clock = weft_read_u32(&r);
    h.unscheduled = weft_read_u16(&r);
    h.packet_bytes_max = weft_read_u16(&r);
    read_into(&r, h.cookie, sizeof(h.cookie));
    read_into(&r, h.ephemeral, sizeof(h.ephemeral));
    read_into(&r, h.tag, sizeof(h.tag));
    if (r.bad || weft_reader_left(&r) != 0 || first != first_byte(WEFT_CLASS_HELLO) ||
        reserved != 0 || !mode_valid(h.mode, h.ephemeral, h.tag)) {
        return WEFT_PROTO;
    }
    *hello_p = h;
    return WEFT_OK;
}

void weft_wire_hello_encode(struct weft_writer *w, const struct weft_wire_hello *hello)
{
    weft_write_u8(w, first_byte(WEFT_CLASS_HELLO));
    weft_write_u8(w, hello->mode);
    weft_write_u16(w, 0);
    weft_write_u32(w, hello->connection_id);
    weft_write_u64(w, hello->incarnation);
    weft_write_u64(w, hello->name);
    weft_write_u64(w, hello->open_from);
    weft_write_u32(w, hello->clock);
    weft_write_u16(w, hello->unscheduled);
    weft_write_u16(w, hello->packet_bytes_max);
    weft_write_bytes(w, hello->cookie, sizeof(hello->cookie));
    weft_write_bytes(w, hello->ephemeral, sizeof(hello->ephemeral));
    weft_write_bytes(w, hello->tag, sizeof(hello->tag));
}

weft_status weft_wire_accept_decode(const void *bytes, size_t count,
                                    struct weft_wire_accept *accept_p)
{
    struct weft_reader r = weft_reader_make(bytes, count);
    struct weft_wire_accept a = {0};
    uint8_t first = weft_read_u8(&r);
    a.mode = weft_read_u8(&r);
    uint32_t reserved = weft_read_u16(&r);
    a.connection_id = weft_read_u32(&r);
    a.own_connection_id = weft_read_u32(&r);
    a.clock = weft_read_u32(&r);
    a.incarnation = weft_read_u64(&r);
    a.name = weft_read_u64(&r);
    a.open_from = weft_read_u64(&r);
    a.unscheduled = weft_read_u16(&r);
    a.packet_bytes_max = weft_read_u16(&r);
    reserved |= weft_read_u32(&r);
    read_into(&r, a.ephemeral, sizeof(a.ephemeral));
    read_into(&r, a.tag, sizeof(a.tag));
    if (r.bad || weft_reader_left(&r) != 0 || first != first_byte(WEFT_CLASS_ACCEPT) ||
        reserved != 0 || !mode_valid(a.mode, a.ephemeral, a.tag)) {
        return WEFT_PROTO;
    }
    *accept_p = a;
    return WEFT_OK;
}

void weft_wire_accept_encode(struct weft_writer *w, const struct weft_wire_accept *accept)
{
    weft_write_u8(w, first_byte(WEFT_CLASS_ACCEPT));
    weft_write_u8(w, accept->mode);
    weft_write_u16(w, 0);
    weft_write_u32(w, accept->connection_id);
    weft_write_u32(w, accept->own_connection_id);
    weft_write_u32(w, accept->clock);
    weft_write_u64(w, accept->incarnation);
    weft_write_u64(w, accept->name);
    weft_write_u64(w, accept->open_from);
    weft_write_u16(w, accept->unscheduled);
    weft_write_u16(w, accept->packet_bytes_max);
    weft_write_u32(w, 0);
    weft_write_bytes(w, accept->ephemeral, sizeof(accept->ephemeral));
    weft_write_bytes(w, accept->tag, sizeof(accept->tag));
}

weft_status weft_wire_short_decode(const void *bytes, size_t count, struct weft_wire_short *short_p)
{
    struct weft_reader r = weft_reader_make(bytes, count);
    struct weft_wire_short s = {0};
    uint8_t first = weft_read_u8(&r);
    uint32_t reserved = weft_read_u8(&r);
    reserved |= weft_read_u16(&r);
    s.connection_id = weft_read_u32(&r);
    read_into(&r, s.value, sizeof(s.value));
    bool mine = first == first_byte(WEFT_CLASS_COOKIE) || first == first_byte(WEFT_CLASS_UNKNOWN);
    if (r.bad || weft_reader_left(&r) != 0 || !mine || reserved != 0) {
        return WEFT_PROTO;
    }
    *short_p = s;
    return WEFT_OK;
}

void weft_wire_short_encode(struct weft_writer *w, enum weft_wire_class klass,
                            const struct weft_wire_short *s)
{
    weft_write_u8(w, first_byte(klass));
    weft_write_u8(w, 0);
    weft_write_u16(w, 0);
    weft_write_u32(w, s->connection_id);
    weft_write_bytes(w, s->value, sizeof(s->value));
}
