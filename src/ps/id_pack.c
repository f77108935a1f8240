#include "ps/id_pack.h"

#include "base/assert.h"
#include "base/units.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

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

/* ---- unpacking several ids at a time --------------------------------------------------------- */

/* Where the processor has AVX2: first all quotients of a block, then four ids at a time. A group of
 * eight remainders begins with a byte. */
enum { AT_ONCE = 8 };

/* True: get_at_once reads within the bytes, writes at most `room` ids, and pays. */
static inline bool is_at_once(const struct block *block, const uint8_t *lows, uint32_t room)
{
    const uint32_t groups = (block->gaps + AT_ONCE - 1) / AT_ONCE;
    return block->gaps >= AT_ONCE && room >= groups * AT_ONCE &&
           (size_t)(block->end - lows) >= (size_t)groups * block->bits + sizeof(uint64_t);
}

#if defined(__x86_64__) && defined(__GNUC__)

#define WITH_AVX2 __attribute__((target("avx2,bmi,popcnt")))

static bool has_at_once(void)
{
    return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("bmi") != 0 &&
           __builtin_cpu_supports("popcnt") != 0;
}

/* A block's gaps, and what is written beyond them: the other ones of the last word, in groups. */
enum { QUOTIENTS = WEFT_IDS_BLOCK + 64 + AT_ONCE };

/* The position of the lowest one, which is cleared; 64: there is none. */
WITH_AVX2 static inline uint32_t take_bit(uint64_t *word)
{
    const uint32_t at = (uint32_t)_tzcnt_u64(*word);
    *word = _blsr_u64(*word);
    return at;
}

/* The sums of the quotients of gaps 0 to i, for each i. False: the bytes end first. */
WITH_AVX2 static bool get_quotients(const struct block *block, uint32_t *quotients)
{
    const size_t left = (size_t)(block->end - block->at);
    uint32_t done = 0;
    for (uint32_t offset = 0; done < block->gaps; offset += sizeof(uint64_t)) {
        if (offset >= left) {
            return false;
        }
        uint64_t word = load(block->at + offset, block->end);
        const uint32_t ones = (uint32_t)_mm_popcnt_u64(word);
        for (uint32_t i = done; i < done + ones; i += AT_ONCE) {
            const uint32_t zeros = offset * 8 - i; /* modulo 2^32 */
            uint32_t *out = quotients + i;
            out[0] = zeros + take_bit(&word);
            out[1] = zeros + take_bit(&word) - 1;
            out[2] = zeros + take_bit(&word) - 2;
            out[3] = zeros + take_bit(&word) - 3;
            out[4] = zeros + take_bit(&word) - 4;
            out[5] = zeros + take_bit(&word) - 5;
            out[6] = zeros + take_bit(&word) - 6;
            out[7] = zeros + take_bit(&word) - 7;
        }
        done += ones;
    }
    return true;
}

static inline long long load_word(const uint8_t *at)
{
    long long word;
    memcpy(&word, at, sizeof(word));
    return word;
}

/* Of four remainders the sums up to each of them, and *base_p, which is that of the last one then.
 * from: the bytes in which they begin. */
WITH_AVX2 static inline __m256i sum_four(const uint8_t *lows, const size_t *from, __m256i shifts,
                                         __m256i mask, __m256i *base_p)
{
    const __m256i words = _mm256_setr_epi64x(load_word(lows + from[0]), load_word(lows + from[1]),
                                             load_word(lows + from[2]), load_word(lows + from[3]));
    __m256i four = _mm256_and_si256(_mm256_srlv_epi64(words, shifts), mask);
    four = _mm256_add_epi64(four, _mm256_slli_si256(four, 8));
    const __m256i lower = _mm256_permute2x128_si256(four, four, 0x08);
    four = _mm256_add_epi64(four, _mm256_unpackhi_epi64(lower, lower));
    four = _mm256_add_epi64(four, *base_p);
    *base_p = _mm256_permute4x64_epi64(four, 0xff);
    return four;
}

/* ids = sums + (quotients << by), four of each. */
WITH_AVX2 static inline void put_four(uint64_t *ids, __m256i sums, const uint32_t *quotients,
                                      __m128i by)
{
    const __m128i four = _mm_loadu_si128((const __m128i *)(const void *)quotients);
    const __m256i highs = _mm256_sll_epi64(_mm256_cvtepu32_epi64(four), by);
    _mm256_storeu_si256((__m256i *)(void *)ids, _mm256_add_epi64(sums, highs));
}

/* As get_ids. Precondition: is_at_once. Writes up to 7 ids more than the block has. */
WITH_AVX2 static bool get_at_once(struct block *block, const uint8_t *lows, uint64_t *ids)
{
    uint32_t quotients[QUOTIENTS];
    const uint32_t gaps = block->gaps, bits = block->bits;
    if (!get_quotients(block, quotients)) {
        return false;
    }
    const size_t from[AT_ONCE] = {0,            bits / 8,     bits * 2 / 8, bits * 3 / 8,
                                  bits * 4 / 8, bits * 5 / 8, bits * 6 / 8, bits * 7 / 8};
    const __m256i width = _mm256_set1_epi64x(bits), seven = _mm256_set1_epi64x(7);
    const __m256i shifts[2] = {
        _mm256_and_si256(_mm256_mul_epu32(width, _mm256_setr_epi64x(0, 1, 2, 3)), seven),
        _mm256_and_si256(_mm256_mul_epu32(width, _mm256_setr_epi64x(4, 5, 6, 7)), seven)};
    const __m256i mask = _mm256_set1_epi64x((long long)((UINT64_C(1) << bits) - 1));
    const __m128i by = _mm_cvtsi32_si128((int)bits);
    __m256i base = _mm256_set1_epi64x((long long)block->first);
    for (uint32_t i = 0; i < gaps; i += AT_ONCE, lows += bits) {
        put_four(ids + i, sum_four(lows, from, shifts[0], mask, &base), quotients + i, by);
        put_four(ids + i + 4, sum_four(lows, from + 4, shifts[1], mask, &base), quotients + i + 4,
                 by);
    }
    const uint64_t first = block->first, quotient = quotients[gaps - 1];
    const uint64_t low = ids[gaps - 1] - first - (quotient << bits);
    block->at += (quotient + gaps - 1) / 8 + 1;
    return low <= UINT64_MAX - first && quotient <= (UINT64_MAX - first - low) >> bits;
}

#else

static bool has_at_once(void)
{
    return false;
}

static bool get_at_once(struct block *block, const uint8_t *lows, uint64_t *ids)
{
    return get_ids(block, lows, true, ids);
}

#endif

/* ---- lists ----------------------------------------------------------------------------------- */

static bool unpack(const uint8_t *bytes, size_t size, uint32_t count, uint64_t *ids, bool at_once)
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
        if (!(at_once && is_at_once(&block, lows, count - done)
                  ? get_at_once(&block, lows, ids + done)
              : inside ? get_ids(&block, lows, true, ids + done)
                       : get_ids(&block, lows, false, ids + done))) {
            return false;
        }
        done += block.gaps;
        before = ids[done - 1];
    }
    return block.at == block.end;
}

bool weft_ids_unpack(const uint8_t *bytes, size_t size, uint32_t count, uint64_t *ids)
{
    return unpack(bytes, size, count, ids, has_at_once());
}

bool weft_ids_unpack_plain(const uint8_t *bytes, size_t size, uint32_t count, uint64_t *ids)
{
    return unpack(bytes, size, count, ids, false);
}
