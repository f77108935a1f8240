/* A bounds-checked cursor. All bytes from and to the network are read and written through it.
 *
 * Big-endian. A read or write past the end sets `bad`, returns zero / writes nothing, and makes
 * every later call fail. So a decoder checks once, at its end. Source: the stuffer of s2n-tls.
 */
#ifndef WEFT_BASE_CURSOR_H
#define WEFT_BASE_CURSOR_H

#include "base/units.h"

#include <stdbool.h>
#include <string.h>

struct weft_reader {
    const uint8_t *at;
    const uint8_t *end;
    bool bad; /* a read went past the end; everything read since is zero */
};

struct weft_writer {
    uint8_t *at;
    uint8_t *end;
    bool bad; /* a write did not fit; nothing was written since */
};

static inline struct weft_reader weft_reader_make(const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    return (struct weft_reader){.at = at, .end = at + count};
}

static inline size_t weft_reader_left(const struct weft_reader *r)
{
    return (size_t)(r->end - r->at);
}

/* Skip the next `count` bytes and return a pointer to them; NULL if fewer remain. */
static inline const uint8_t *weft_read_bytes(struct weft_reader *r, size_t count)
{
    if (r->bad || weft_reader_left(r) < count) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *bytes = r->at;
    r->at += count;
    return bytes;
}

static inline uint8_t weft_read_u8(struct weft_reader *r)
{
    const uint8_t *b = weft_read_bytes(r, 1);
    return b == NULL ? 0 : b[0];
}

/* Read big-endian integers without a bounds check: for consecutive fields of known length, whose
 * total length was checked once. */
static inline uint16_t weft_get_u16(const uint8_t *at)
{
    uint16_t v;
    memcpy(&v, at, sizeof(v));
    return __builtin_bswap16(v);
}

static inline uint32_t weft_get_u32(const uint8_t *at)
{
    uint32_t v;
    memcpy(&v, at, sizeof(v));
    return __builtin_bswap32(v);
}

static inline uint64_t weft_get_u64(const uint8_t *at)
{
    uint64_t v;
    memcpy(&v, at, sizeof(v));
    return __builtin_bswap64(v);
}

static inline void weft_put_u16(uint8_t *at, uint16_t v)
{
    v = __builtin_bswap16(v);
    memcpy(at, &v, sizeof(v));
}

static inline void weft_put_u32(uint8_t *at, uint32_t v)
{
    v = __builtin_bswap32(v);
    memcpy(at, &v, sizeof(v));
}

static inline void weft_put_u64(uint8_t *at, uint64_t v)
{
    v = __builtin_bswap64(v);
    memcpy(at, &v, sizeof(v));
}

static inline uint16_t weft_read_u16(struct weft_reader *r)
{
    const uint8_t *b = weft_read_bytes(r, sizeof(uint16_t));
    return b == NULL ? 0 : weft_get_u16(b);
}

static inline uint32_t weft_read_u32(struct weft_reader *r)
{
    const uint8_t *b = weft_read_bytes(r, sizeof(uint32_t));
    return b == NULL ? 0 : weft_get_u32(b);
}

static inline uint64_t weft_read_u64(struct weft_reader *r)
{
    const uint8_t *b = weft_read_bytes(r, sizeof(uint64_t));
    return b == NULL ? 0 : weft_get_u64(b);
}

static inline struct weft_writer weft_writer_make(void *bytes, size_t count)
{
    uint8_t *at = bytes;
    return (struct weft_writer){.at = at, .end = at + count};
}

static inline size_t weft_writer_left(const struct weft_writer *w)
{
    return (size_t)(w->end - w->at);
}

/* Reserve the next `count` bytes for the caller to fill in; NULL if fewer remain. */
static inline uint8_t *weft_write_take(struct weft_writer *w, size_t count)
{
    if (w->bad || weft_writer_left(w) < count) {
        w->bad = true;
        return NULL;
    }
    uint8_t *bytes = w->at;
    w->at += count;
    return bytes;
}

static inline void weft_write_bytes(struct weft_writer *w, const void *bytes, size_t count)
{
    if (w->bad || weft_writer_left(w) < count) {
        w->bad = true;
        return;
    }
    if (count > 0) {
        memcpy(w->at, bytes, count);
    }
    w->at += count;
}

static inline void weft_write_zeros(struct weft_writer *w, size_t count)
{
    if (w->bad || weft_writer_left(w) < count) {
        w->bad = true;
        return;
    }
    memset(w->at, 0, count);
    w->at += count;
}

static inline void weft_write_u8(struct weft_writer *w, uint8_t v)
{
    weft_write_bytes(w, &v, sizeof(v));
}

static inline void weft_write_u16(struct weft_writer *w, uint16_t v)
{
    v = __builtin_bswap16(v);
    weft_write_bytes(w, &v, sizeof(v));
}

static inline void weft_write_u32(struct weft_writer *w, uint32_t v)
{
    v = __builtin_bswap32(v);
    weft_write_bytes(w, &v, sizeof(v));
}

static inline void weft_write_u64(struct weft_writer *w, uint64_t v)
{
    v = __builtin_bswap64(v);
    weft_write_bytes(w, &v, sizeof(v));
}

#endif
