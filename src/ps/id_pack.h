/* Compressed ids of a PULL or a PUSH: gaps between neighbours, Rice-coded in blocks.
 *
 * Batches of sparse models name each id once, in ascending order. The gaps of n ids drawn at random
 * from u are geometric; a Rice code is within 2 % of their entropy: 7.5 bits for u / n = 61.
 * Packing each block of 128 gaps with the bits of its largest (frame of reference) takes 9.2, a
 * byte-wise code 9.2, too.
 *
 *     block   | count - 1: 7 bits, below: 1 bit | bits k: u8, 0 .. 56 | LEB128 u64: distance |
 *             | low k bits of each gap, from bit 0 of the first byte on, padded to a byte     |
 *             | gap >> k of each in unary: that many zeros, then a one; padded to a byte      |
 *
 * The first id of a block is `distance` above the previous id, or below it if the bit `below` is
 * set; before the first block of a chunk the previous id is 0. Its count - 1 gaps follow. So ids in
 * any order can be packed: a new block begins where they descend. Every chunk of a message is
 * packed independently.
 *
 * Unordered ids are longer packed than unpacked, so the caller must compare both.
 *
 * Source: docs/PROTOCOL.md section 7, "Packed ids"; [rice79].
 */
#ifndef WEFT_PS_ID_PACK_H
#define WEFT_PS_ID_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WEFT_IDS_BLOCK = 128,           /* ids in a block at most */
    WEFT_IDS_BLOCK_BYTES_MAX = 1024 /* most bytes that weft_ids_pack_block writes */
};

/* Pack the first ids of a list as one block.
 *
 * Shape:   ids (count,), 1 <= count <= WEFT_IDS_BLOCK; before: the previous id, or 0.
 *          out: WEFT_IDS_BLOCK_BYTES_MAX bytes.
 * Returns the number of bytes written; *taken_p: ids in them, at least one. A block ends where
 * ids descend, and before a gap far longer than the previous ones. */
size_t weft_ids_pack_block(const uint64_t *ids, uint32_t count, uint64_t before, uint8_t *out,
                           uint32_t *taken_p);

/* Unpack blocks of exactly `count` ids in exactly `size` bytes. The bytes are untrusted input.
 * False: malformed; ids is then undefined.
 *
 * Shape:   ids (count,).   Cost: O(count + size). */
[[nodiscard]] bool weft_ids_unpack(const uint8_t *bytes, size_t size, uint32_t count,
                                   uint64_t *ids);

/* The same one id after the other, on any processor. Not for callers: weft_ids_unpack uses it where
 * the processor has no AVX2, and for blocks that it cannot unpack eight ids at a time. */
[[nodiscard]] bool weft_ids_unpack_plain(const uint8_t *bytes, size_t size, uint32_t count,
                                         uint64_t *ids);

#endif
