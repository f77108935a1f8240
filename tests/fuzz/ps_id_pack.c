/* Packed ids from arbitrary bytes: they are refused, or the unpacked ids pack into the same bytes;
 * unpacked one by one they are the same. The first two bytes are the expected number of ids. */
#include "base/assert.h"
#include "ps/id_pack.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { IDS_MAX = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t block[WEFT_IDS_BLOCK_BYTES_MAX];
    if (size < 2) {
        return 0;
    }
    uint32_t count = (uint32_t)(data[0] | data[1] << 8) % (IDS_MAX + 1);
    uint64_t *ids = malloc(count * sizeof(*ids) + 1);
    uint64_t back[WEFT_IDS_BLOCK];
    WEFT_ASSERT(ids != NULL);
    uint64_t *plain = malloc(count * sizeof(*plain) + 1);
    WEFT_ASSERT(plain != NULL);
    bool good = weft_ids_unpack(data + 2, size - 2, count, ids);
    WEFT_ASSERT(good == weft_ids_unpack_plain(data + 2, size - 2, count, plain));
    WEFT_ASSERT(!good || memcmp(ids, plain, count * sizeof(*ids)) == 0);
    free(plain);
    for (uint32_t i = 0, n; good && i < count; i += n) {
        uint32_t left = count - i;
        size_t bytes = weft_ids_pack_block(ids + i, left < WEFT_IDS_BLOCK ? left : WEFT_IDS_BLOCK,
                                           0, block, &n);
        WEFT_ASSERT(n >= 1 && n <= left && bytes <= sizeof(block));
        WEFT_ASSERT(weft_ids_unpack(block, bytes, n, back));
        WEFT_ASSERT(memcmp(back, ids + i, n * sizeof(*ids)) == 0);
    }
    free(ids);
    return 0;
}
