/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * The part of the wire format that BPF programs share: the first byte of a packet, and the packets
 * between workers and an aggregation box (docs/PROTOCOL.md section 12). Freestanding: no C library.
 *
 * weft_wire_agg_decode is the only code that turns such a packet into a struct, in the kernel, in a
 * host process and in the simulator. It checks everything that can be checked without the box's
 * state.
 */
#ifndef WEFT_WIRE_WEFT_WIRE_H
#define WEFT_WIRE_WEFT_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WEFT_WIRE_VERSION = 2 };

enum weft_wire_class {
    WEFT_CLASS_PLAIN = 0,
    WEFT_CLASS_AUTH = 1,
    WEFT_CLASS_SEAL = 2,
    WEFT_CLASS_HELLO = 8,
    WEFT_CLASS_ACCEPT = 9,
    WEFT_CLASS_COOKIE = 10,
    WEFT_CLASS_UNKNOWN = 11,
    WEFT_CLASS_REFUSED = 12,
    WEFT_CLASS_AGG = 13,
};

enum weft_wire_agg_kind {
    WEFT_AGG_DENSE = 1, /* worker to box: values for a slot, in a round */
    WEFT_AGG_ROWS = 2,  /* worker to box: blocks of hot rows, all of one bank */
    WEFT_AGG_SUM = 3,   /* box to worker: the sum of a slot's round */
    WEFT_AGG_ACK = 4,   /* box to worker: the window of that worker and bank */
};

enum weft_wire_agg_flags {
    WEFT_AGG_FLOAT32 = 0x01, /* values are IEEE-754 floats; else int32 with an exponent */
    WEFT_AGG_DIRECT = 0x02,  /* SUM only: the sum is void, every member sends its values to the
                              * server itself */
    WEFT_AGG_AGREED = 0x04,  /* DENSE and SUM of int32: the members have agreed on the exponent in
                              * the round before; see `next` */
};

enum weft_wire_agg_sizes {
    WEFT_AGG_HEADER_BYTES = 32,
    WEFT_AGG_BLOCK = 8, /* the number of values is a multiple of eight, so that each bounds check
                         * covers eight values */
    WEFT_AGG_BLOCK_BYTES = 4 * WEFT_AGG_BLOCK,
    WEFT_AGG_VALUES_MAX = 352, /* maximum number of values of a DENSE packet, the same as in a DATA
                                * packet */
    WEFT_AGG_ROW_HEAD_BYTES = 4,
    WEFT_AGG_ROW_BYTES = WEFT_AGG_ROW_HEAD_BYTES + WEFT_AGG_BLOCK_BYTES,
    WEFT_AGG_ROWS_MAX = 39, /* blocks of a ROWS packet */
    WEFT_AGG_PAYLOAD_MAX = 4 * WEFT_AGG_VALUES_MAX,
    WEFT_AGG_WINDOW = 256,
    WEFT_AGG_WINDOW_WORDS = WEFT_AGG_WINDOW / 64,
    /* Largest `number - from`: the window's base is a multiple of 64 at or below `from`. */
    WEFT_AGG_OUTSTANDING_MAX = WEFT_AGG_WINDOW - 64,
    WEFT_AGG_ACK_BYTES = 2 * 8 * WEFT_AGG_WINDOW_WORDS,
    WEFT_AGG_EXPONENT_MIN = -126,
    WEFT_AGG_EXPONENT_MAX = 127,
};

struct weft_wire_agg {
    uint8_t kind;     /* enum weft_wire_agg_kind */
    uint8_t flags;    /* enum weft_wire_agg_flags */
    int8_t exponent;  /* of a DENSE or SUM packet's values: a value is q x 2^exponent */
    int8_t next;      /* with AGREED, of DENSE: the exponent that the sender needs for its values in
                       * the slot's next round; of SUM: the largest of these. Else zero */
    uint16_t job;
    uint16_t member; /* sender, or receiver of a packet from the box */
    uint16_t count;  /* values; of ROWS: blocks; of ACK: 0 */
    uint32_t place;  /* slot, or bank */
    uint32_t epoch;
    uint32_t number; /* round, or the packet's number in the window */
    uint32_t from;   /* ROWS: the worker knows that all packets below were added or refused; ACK:
                      * the window's base */
    uint32_t payload_bytes;
};

/* Precedes each block of a ROWS packet. */
struct weft_wire_agg_row {
    uint16_t block; /* in the bank */
    int8_t exponent;
    uint8_t reserved; /* zero */
};

/* On the machines where BPF programs run, a four-byte load at any address is one instruction,
 * but the compiler does not know that. Values and row heads are little-endian; the fields of a
 * header and the words of an ACK are big-endian (weft_wire_get_u32). */
static inline uint32_t weft_wire_load_u32(const uint8_t *at)
{
#ifdef __bpf__
    return *(const uint32_t *)at;
#else
    uint32_t v;
    __builtin_memcpy(&v, at, sizeof(v));
    return v;
#endif
}

static inline void weft_wire_store_u32(uint8_t *at, uint32_t v)
{
#ifdef __bpf__
    *(uint32_t *)at = v;
#else
    __builtin_memcpy(at, &v, sizeof(v));
#endif
}

static inline uint32_t weft_wire_get_u32(const uint8_t *at)
{
    return __builtin_bswap32(weft_wire_load_u32(at));
}

static inline void weft_wire_put_u32(uint8_t *at, uint32_t v)
{
    weft_wire_store_u32(at, __builtin_bswap32(v));
}

static inline void weft_wire_put_u64(uint8_t *at, uint64_t v)
{
    weft_wire_put_u32(at, (uint32_t)(v >> 32));
    weft_wire_put_u32(at + 4, (uint32_t)v);
}

static inline uint64_t weft_wire_get_u64(const uint8_t *at)
{
    return (uint64_t)weft_wire_get_u32(at) << 32 | weft_wire_get_u32(at + 4);
}

static inline uint16_t weft_wire_get_u16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static inline void weft_wire_put_u16(uint8_t *at, uint16_t v)
{
    at[0] = (uint8_t)(v >> 8);
    at[1] = (uint8_t)v;
}

/* Payload bytes according to a header; UINT32_MAX if the header is invalid. */
static inline uint32_t weft_wire_agg_payload(const struct weft_wire_agg *a)
{
    bool fits = false;
    uint8_t form = a->flags;
    switch (a->kind) {
    case WEFT_AGG_SUM:
        form = a->flags & (uint8_t)~WEFT_AGG_DIRECT;
        /* fall through */
    case WEFT_AGG_DENSE:
        fits = (form <= WEFT_AGG_FLOAT32 || form == WEFT_AGG_AGREED) && a->from == 0 &&
               (form == WEFT_AGG_AGREED ? a->next >= WEFT_AGG_EXPONENT_MIN : a->next == 0);
        break;
    case WEFT_AGG_ROWS:
        fits = a->flags <= WEFT_AGG_FLOAT32 && a->exponent == 0 && a->next == 0 && a->count != 0 &&
               a->count <= WEFT_AGG_ROWS_MAX && a->number - a->from <= WEFT_AGG_OUTSTANDING_MAX;
        return fits ? (uint32_t)a->count * WEFT_AGG_ROW_BYTES : UINT32_MAX;
    case WEFT_AGG_ACK:
        fits = a->flags == 0 && a->exponent == 0 && a->next == 0 && a->count == 0 &&
               a->from % 64 == 0;
        return fits ? WEFT_AGG_ACK_BYTES : UINT32_MAX;
    default:
        break;
    }
    fits = fits && a->exponent >= WEFT_AGG_EXPONENT_MIN && a->count != 0 &&
           a->count % WEFT_AGG_BLOCK == 0 && a->count <= WEFT_AGG_VALUES_MAX;
    return fits ? 4u * a->count : UINT32_MAX;
}

/* True if the first byte is that of an aggregation packet of this version. */
static inline bool weft_wire_is_agg(uint8_t first)
{
    return first == (WEFT_WIRE_VERSION << 4 | WEFT_CLASS_AGG);
}

/* Decode the header of a packet. False if it is malformed; then *agg_p must not be used.
 *
 * Shape:   bytes (count,); `end` is bytes + count, a separate argument because the kernel's
 *          verifier requires a comparison of pointers.  Payload: at bytes + WEFT_AGG_HEADER_BYTES,
 *          payload_bytes long. */
static inline bool weft_wire_agg_decode(const uint8_t *bytes, const uint8_t *end, uint32_t count,
                                        struct weft_wire_agg *agg_p)
{
    if (bytes + WEFT_AGG_HEADER_BYTES > end || !weft_wire_is_agg(bytes[0])) {
        return false;
    }
    agg_p->kind = bytes[1];
    agg_p->flags = bytes[2];
    agg_p->exponent = (int8_t)bytes[3];
    agg_p->job = weft_wire_get_u16(bytes + 4);
    agg_p->member = weft_wire_get_u16(bytes + 6);
    agg_p->place = weft_wire_get_u32(bytes + 8);
    agg_p->epoch = weft_wire_get_u32(bytes + 12);
    agg_p->number = weft_wire_get_u32(bytes + 16);
    agg_p->from = weft_wire_get_u32(bytes + 20);
    agg_p->count = weft_wire_get_u16(bytes + 24);
    agg_p->next = (int8_t)bytes[26];
    uint32_t reserved = bytes[27] | weft_wire_load_u32(bytes + 28);
    agg_p->payload_bytes = weft_wire_agg_payload(agg_p);
    return reserved == 0 && agg_p->payload_bytes == count - WEFT_AGG_HEADER_BYTES;
}

/* Encode a header into WEFT_AGG_HEADER_BYTES bytes. */
static inline void weft_wire_agg_encode(uint8_t *bytes, const struct weft_wire_agg *agg)
{
    bytes[0] = WEFT_WIRE_VERSION << 4 | WEFT_CLASS_AGG;
    bytes[1] = agg->kind;
    bytes[2] = agg->flags;
    bytes[3] = (uint8_t)agg->exponent;
    weft_wire_put_u16(bytes + 4, agg->job);
    weft_wire_put_u16(bytes + 6, agg->member);
    weft_wire_put_u32(bytes + 8, agg->place);
    weft_wire_put_u32(bytes + 12, agg->epoch);
    weft_wire_put_u32(bytes + 16, agg->number);
    weft_wire_put_u32(bytes + 20, agg->from);
    weft_wire_put_u16(bytes + 24, agg->count);
    bytes[26] = (uint8_t)agg->next;
    bytes[27] = 0;
    weft_wire_store_u32(bytes + 28, 0);
}

/* Change the member of an encoded header: a sum is sent to each. */
static inline void weft_wire_agg_put_member(uint8_t *bytes, uint16_t member)
{
    weft_wire_put_u16(bytes + 6, member);
}

static inline struct weft_wire_agg_row weft_wire_agg_row_decode(const uint8_t *at)
{
    uint32_t word = weft_wire_load_u32(at);
    return (struct weft_wire_agg_row){
        .block = (uint16_t)word,
        .exponent = (int8_t)(word >> 16),
        .reserved = (uint8_t)(word >> 24),
    };
}

static inline void weft_wire_agg_row_encode(uint8_t *at, uint16_t block, int8_t exponent)
{
    weft_wire_store_u32(at, block | (uint32_t)(uint8_t)exponent << 16);
}

#endif
