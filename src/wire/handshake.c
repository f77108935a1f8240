/* HELLO, ACCEPT, COOKIE, UNKNOWN, REFUSED: docs/PROTOCOL.md sections 2.2 to 2.4. */
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

static uint8_t any_of(const uint8_t *bytes, size_t count)
{
    uint8_t any = 0;
    for (size_t i = 0; i < count; i++) {
        any |= bytes[i];
    }
    return any;
}

/* Keys and tags must be zero in mode none, where they have no meaning: a peer that sets them is
 * configured for another mode. */
static bool mode_valid(uint8_t mode, uint16_t key_id, const uint8_t *ephemeral, const uint8_t *tag,
                       const uint8_t *mac)
{
    uint8_t any = any_of(ephemeral, WEFT_KEY_BYTES) | any_of(tag, WEFT_TAG_BYTES) |
                  any_of(mac, WEFT_MAC_BYTES);
    return mode <= WEFT_MODE_SEAL && (mode != WEFT_MODE_NONE || (any == 0 && key_id == 0));
}

weft_status weft_wire_hello_decode(const void *bytes, size_t count, struct weft_wire_hello *hello_p)
{
    struct weft_reader r = weft_reader_make(bytes, count);
    struct weft_wire_hello h = {0};
    uint8_t first = weft_read_u8(&r);
    h.mode = weft_read_u8(&r);
    h.key_id = weft_read_u16(&r);
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
    read_into(&r, h.mac, sizeof(h.mac));
    if (r.bad || weft_reader_left(&r) != 0 || first != first_byte(WEFT_CLASS_HELLO) ||
        !mode_valid(h.mode, h.key_id, h.ephemeral, h.tag, h.mac)) {
        return WEFT_PROTO;
    }
    *hello_p = h;
    return WEFT_OK;
}

void weft_wire_hello_encode(struct weft_writer *w, const struct weft_wire_hello *hello)
{
    weft_write_u8(w, first_byte(WEFT_CLASS_HELLO));
    weft_write_u8(w, hello->mode);
    weft_write_u16(w, hello->key_id);
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
    weft_write_bytes(w, hello->mac, sizeof(hello->mac));
}

weft_status weft_wire_accept_decode(const void *bytes, size_t count,
                                    struct weft_wire_accept *accept_p)
{
    struct weft_reader r = weft_reader_make(bytes, count);
    struct weft_wire_accept a = {0};
    uint8_t first = weft_read_u8(&r);
    a.mode = weft_read_u8(&r);
    a.key_id = weft_read_u16(&r);
    a.connection_id = weft_read_u32(&r);
    a.own_connection_id = weft_read_u32(&r);
    a.clock = weft_read_u32(&r);
    a.incarnation = weft_read_u64(&r);
    a.name = weft_read_u64(&r);
    a.open_from = weft_read_u64(&r);
    a.unscheduled = weft_read_u16(&r);
    a.packet_bytes_max = weft_read_u16(&r);
    uint32_t reserved = weft_read_u32(&r);
    read_into(&r, a.ephemeral, sizeof(a.ephemeral));
    read_into(&r, a.tag, sizeof(a.tag));
    read_into(&r, a.mac, sizeof(a.mac));
    if (r.bad || weft_reader_left(&r) != 0 || first != first_byte(WEFT_CLASS_ACCEPT) ||
        reserved != 0 || !mode_valid(a.mode, a.key_id, a.ephemeral, a.tag, a.mac)) {
        return WEFT_PROTO;
    }
    *accept_p = a;
    return WEFT_OK;
}

void weft_wire_accept_encode(struct weft_writer *w, const struct weft_wire_accept *accept)
{
    weft_write_u8(w, first_byte(WEFT_CLASS_ACCEPT));
    weft_write_u8(w, accept->mode);
    weft_write_u16(w, accept->key_id);
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
    weft_write_bytes(w, accept->mac, sizeof(accept->mac));
}

/* The first four bytes of the short packets: class, three zeros. */
static bool short_head(struct weft_reader *r, enum weft_wire_class klass)
{
    uint8_t first = weft_read_u8(r);
    uint32_t reserved = weft_read_u8(r);
    reserved |= weft_read_u16(r);
    return first == first_byte(klass) && reserved == 0;
}

weft_status weft_wire_cookie_decode(const void *bytes, size_t count,
                                    struct weft_wire_cookie *cookie_p)
{
    struct weft_reader r = weft_reader_make(bytes, count);
    struct weft_wire_cookie c = {0};
    bool mine = short_head(&r, WEFT_CLASS_COOKIE);
    c.connection_id = weft_read_u32(&r);
    read_into(&r, c.cookie, sizeof(c.cookie));
    read_into(&r, c.mac, sizeof(c.mac));
    if (r.bad || weft_reader_left(&r) != 0 || !mine) {
        return WEFT_PROTO;
    }
    *cookie_p = c;
    return WEFT_OK;
}

weft_status weft_wire_unknown_decode(const void *bytes, size_t count,
                                     struct weft_wire_unknown *unknown_p)
{
    struct weft_reader r = weft_reader_make(bytes, count);
    struct weft_wire_unknown u = {0};
    uint8_t first = weft_read_u8(&r);
    uint8_t reserved = weft_read_u8(&r);
    uint64_t high = weft_read_u16(&r);
    u.connection_id = weft_read_u32(&r);
    u.number = weft_read_u32(&r);
    u.incarnation = high << 48 | (uint64_t)weft_read_u32(&r) << 16;
    bool mine = first == first_byte(WEFT_CLASS_UNKNOWN) && reserved == 0;
    read_into(&r, u.mac, sizeof(u.mac));
    if (r.bad || weft_reader_left(&r) != 0 || !mine) {
        return WEFT_PROTO;
    }
    *unknown_p = u;
    return WEFT_OK;
}

weft_status weft_wire_refused_decode(const void *bytes, size_t count,
                                     struct weft_wire_refused *refused_p)
{
    struct weft_reader r = weft_reader_make(bytes, count);
    struct weft_wire_refused f = {0};
    uint8_t first = weft_read_u8(&r);
    f.version = first >> 4;
    f.reason = weft_read_u8(&r);
    f.mode = weft_read_u8(&r);
    uint8_t reserved = weft_read_u8(&r);
    f.connection_id = weft_read_u32(&r);
    if (r.bad || weft_reader_left(&r) != 0 || (first & 15) != WEFT_CLASS_REFUSED || reserved != 0) {
        return WEFT_PROTO;
    }
    *refused_p = f;
    return WEFT_OK;
}

static void short_head_write(struct weft_writer *w, enum weft_wire_class klass)
{
    weft_write_u8(w, first_byte(klass));
    weft_write_u8(w, 0);
    weft_write_u16(w, 0);
}

void weft_wire_cookie_encode(struct weft_writer *w, const struct weft_wire_cookie *cookie)
{
    short_head_write(w, WEFT_CLASS_COOKIE);
    weft_write_u32(w, cookie->connection_id);
    weft_write_bytes(w, cookie->cookie, sizeof(cookie->cookie));
    weft_write_bytes(w, cookie->mac, sizeof(cookie->mac));
}

void weft_wire_unknown_encode(struct weft_writer *w, const struct weft_wire_unknown *unknown)
{
    weft_write_u8(w, first_byte(WEFT_CLASS_UNKNOWN));
    weft_write_u8(w, 0);
    weft_write_u16(w, (uint16_t)(unknown->incarnation >> 48));
    weft_write_u32(w, unknown->connection_id);
    weft_write_u32(w, unknown->number);
    weft_write_u32(w, (uint32_t)(unknown->incarnation >> 16));
    weft_write_bytes(w, unknown->mac, sizeof(unknown->mac));
}

void weft_wire_refused_encode(struct weft_writer *w, const struct weft_wire_refused *refused)
{
    weft_write_u8(w, first_byte(WEFT_CLASS_REFUSED));
    weft_write_u8(w, refused->reason);
    weft_write_u8(w, refused->mode);
    weft_write_u8(w, 0);
    weft_write_u32(w, refused->connection_id);
}
