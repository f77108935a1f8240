#include "ps/id_pack.h"

#include "base/assert.h"
#include "base/units.h"

#include <string.h>

enum {
    BITS_MAX = 56, /* these bits, after up to 7 other bits, are in one load of 8 bytes */
    BELOW = 0x80,
    VARINT_BYTES_MAX = 10,
    SIZE_ALL = 1 << 20, /* most bytes to unpack: no chunk is longer */
    JUMP = 4096         /* a gap longer than JUMP x the sum of the block's gaps begins a block */
};

/* ---- packing --------------------------------------------------------------------------------- */

/* Number of ids in the next block: ascending, and without a gap that would make all codes long. */
static uint32_t block_count(const uint64_t *ids, uint32_t count)
{
    uint32_t n = 1;
    while (n < count && ids[n] >= ids[n - 1] &&
           (n == 1 || (ids[n] - ids[n - 1]) / JUMP <= ids[n - 1] - ids[0])) {
        n++;
    }
    return n;
}

/* The optimal k for geometric gaps: the largest with 2^k <= mean x ln 2. So for any gaps, the unary
 * part has fewer than 3 zeros per gap on average. */
static uint32_t best_bits(uint64_t span, uint32_t gaps)
{
    uint64_t mean = gaps > 0 ? span / gaps : 0;
    uint64_t scaled = mean / 16 * 11 + mean % 16 * 11 / 16;
    uint32_t bits = scaled > 1 ? 63 - (uint32_t)__builtin_clzll(scaled) : 0;
    return bits < BITS_MAX ? bits : BITS_MAX;
}

static uint8_t *put_varint(uint8_t *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) {
        *out++ = (uint8_t)(value | 0x80);
    }
    *out++ = (uint8_t)value;
    return out;
}

static uint8_t *put_lows(uint8_t *out, const uint64_t *ids, uint32_t n, uint32_t bits)
{
    const uint64_t mask = (UINT64_C(1) << bits) - 1;
    uint64_t held = 0;
    uint32_t used = 0; /* bits of `held`, below 8 between gaps */
    for (uint32_t i = 1; i < n; i++) {
        held |= ((ids[i] - ids[i - 1]) & mask) << used;
        memcpy(out, &held, sizeof(held));
        uint32_t whole = (used + bits) / 8; /* at most 7: 7 + BITS_MAX bits are 63 */
        out += whole;
        held >>= 8 * whole;
        used = (used + bits) % 8;
    }
    return out + (used > 0);
}

static uint8_t *put_unary(uint8_t *out, const uint64_t *ids, uint32_t n, uint32_t bits,
                          const uint8_t *end)
{
    uint64_t position = 0;
    memset(out, 0, (size_t)(end - out));
    for (uint32_t i = 1; i < n; i++) {
        position += (ids[i] - ids[i - 1]) >> bits;
        out[position / 8] |= (uint8_t)(1 << position % 8);
        position++;
    }
    return out + (position + 7) / 8;
}

size_t weft_ids_pack_block(const uint64_t *ids, uint32_t count, uint64_t before, uint8_t *out,
                           uint32_t *taken_p)
{
    WEFT_ASSERT(count >= 1 && count <= WEFT_IDS_BLOCK);
    uint32_t n = block_count(ids, count);
    uint32_t bits = best_bits(ids[n - 1] - ids[0], n - 1);
    bool below = ids[0] < before;
    uint8_t *at = out;
    *at++ = (uint8_t)((n - 1) | (below ? BELOW : 0));
    *at++ = (uint8_t)bits;
    at = put_varint(at, below ? before - ids[0] : ids[0] - before);
    if (bits > 0) {
        at = put_lows(at, ids, n, bits);
    }
    if (n > 1) {
        uint64_t unary = (n - 1) + ((ids[n - 1] - ids[0]) >> bits);
        uint8_t *end = at + unary / 8 + 1;
        WEFT_ASSERT(end <= out + WEFT_IDS_BLOCK_BYTES_MAX);
        at = put_unary(at, ids, n, bits, end);
    }
    *taken_p = n;
    return (size_t)(at - out);
}

/* ---- unpacking ------------------------------------------------------------------------------- */

/* The next 8 bytes, zeros beyond the end. */
static inline uint64_t load(const uint8_t *at, const uint8_t *end)
{
    uint64_t word = 0;
    if (end - at >= (ptrdiff_t)sizeof(word)) {
        memcpy(&word, at, sizeof(word));
    } else if (at < end) {
        memcpy(&word, at, (size_t)(end - at));
    }
    return word;
}

struct block {
    const uint8_t *at;
    const uint8_t *end;
    uint32_t gaps;
    uint32_t bits;
    uint64_t first;
};

/* NULL: malformed. */
static const uint8_t *get_varint(const uint8_t *at, const uint8_t *end, uint64_t *value_p)
{
    uint64_t value = 0;
    for (uint32_t i = 0; i < VARINT_BYTES_MAX && at < end; i++) {
        uint8_t byte = *at++;
        if (i == VARINT_BYTES_MAX - 1 && byte > 1) {
            return NULL; /* beyond 64 bits */
        }
        value |= (uint64_t)(byte & 0x7f) << 7 * i;
        if (byte < 0x80) {
            *value_p = value;
            return at;
        }
    }
    return NULL;
}

static bool begin(struct block *block, uint64_t before)
{
    uint64_t distance;
    if (block->end - block->at < 3) {
        return false;
    }
    bool below = (block->at[0] & BELOW) != 0;
    block->gaps = block->at[0] & (BELOW - 1);
    block->bits = block->at[1];
    block->at = get_varint(block->at + 2, block->end, &distance);
    if (block->at == NULL || block->bits > BITS_MAX ||
        distance > (below ? before : UINT64_MAX - before)) {
        return false;
    }
    block->first = below ? before - distance : before + distance;
    return true;
}

/* The sum of the quotients of gaps 0 to i is the number of zeros before the one bit that ends gap
 * i: the position of that bit minus i. inside: the 8 bytes from any remainder on are within the
 * bytes. Moves block->at after the unary codes. False: the bytes end first, or an id is above
 * 2^64 - 1; ids ascend, so checking the last one suffices. */
static inline bool get_ids(struct block *block, const uint8_t *lows, bool inside, uint64_t *ids)
{
    const size_t left = (size_t)(block->end - block->at);
    const uint64_t mask = (UINT64_C(1) << block->bits) - 1, first = block->first;
    const uint32_t gaps = block->gaps, bits = block->bits;
    uint64_t low = 0; /* the sum of up to 127 values of 56 bits is less than 2^63 */
    uint32_t done = 0, position = 0, bit = 0;
    for (uint32_t offset = 0; done < gaps; offset += sizeof(uint64_t)) {
        if (offset >= left) {
            return false;
        }
        uint64_t word = load(block->at + offset, block->end);
        for (; word != 0 && done < gaps; word &= word - 1, bit += bits) {
            uint64_t some;
            if (inside) {
                memcpy(&some, lows + bit / 8, sizeof(some));
            } else {
                some = load(lows + bit / 8, block->end);
            }
            low += some >> bit % 8 & mask;
            position = offset * 8 + (uint32_t)__builtin_ctzll(word);
            ids[done] = first + ((uint64_t)(position - done) << bits) + low;
            done++;
        }
    }
    block->at += position / 8 + 1;
    return low <= UINT64_MAX - first &&
           position - (gaps - 1) <= (UINT64_MAX - first - low) >> bits;
}

bool weft_ids_unpack(const uint8_t *bytes, size_t size, uint32_t count, uint64_t *ids)
{
    struct block block = {.at = bytes, .end = bytes + size};
    uint64_t before = 0;
    if (size > SIZE_ALL) {
        return false;
    }
    for (uint32_t done = 0; done < count;) {
        if (!begin(&block, before) || block.gaps >= count - done) {
            return false;
        }
        ids[done++] = before = block.first;
        if (block.gaps == 0) {
            continue;
        }
        const uint8_t *lows = block.at;
        size_t lows_bytes = ((size_t)block.gaps * block.bits + 7) / 8;
        if ((size_t)(block.end - block.at) < lows_bytes) {
            return false;
        }
        block.at += lows_bytes;
        const bool inside = (size_t)(block.end - lows) >= lows_bytes + sizeof(uint64_t);
        if (!(inside ? get_ids(&block, lows, true, ids + done)
                     : get_ids(&block, lows, false, ids + done))) {
            return false;
        }
        done += block.gaps;
        before = ids[done - 1];
    }
    return block.at == block.end;
}
