/* Packets from a box to a member of dense rounds that sums a vector: each of the input is two bytes
 * of length and a packet. No packet may write beyond the vector, or complete more than its
 * chunk. */
#include "agg/dense_member.h"
#include "base/assert.h"
#include "base/bits.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT = 100, VALUES = 16, CHUNKS = 7, SLOTS = 3 };

/* With BLOCK_FLOATS each slot begins with a round that completes no chunk. */
static void run(uint8_t element, const uint8_t *data, size_t size)
{
    const uint32_t opening = element == WEFT_AGG_BLOCK_FLOATS ? SLOTS : 0;
    uint8_t bytes[WEFT_AGG_HEADER_BYTES + 4 * VALUES];
    float in[COUNT] = {0}, out[COUNT] = {0};
    uint64_t direct[WEFT_BITS_WORDS(CHUNKS)];
    uint64_t now_ns = 0;
    struct weft_agg_member_config config;
    struct weft_agg_member member;
    weft_agg_member_config_default(&config);
    config.members = 2;
    config.slots = SLOTS;
    config.values = VALUES;
    config.element = element;
    WEFT_ASSERT(weft_agg_member_init(&member, &config) == WEFT_OK);
    WEFT_ASSERT(weft_agg_member_begin(&member, in, out, COUNT, direct) == WEFT_OK);
    while (size >= 2) {
        while (weft_agg_member_send(&member, bytes, now_ns) > 0) {
        }
        size_t count = weft_min_u64(data[0] | (size_t)data[1] << 8, size - 2);
        uint8_t *packet = malloc(count + 1); /* of exact size, but for an empty one */
        WEFT_ASSERT(packet != NULL);
        memcpy(packet + 1, data + 2, count);
        uint32_t left = member.left;
        struct weft_wire_agg head;
        bool opens = weft_wire_agg_decode(packet + 1, packet + 1 + count, (uint32_t)count, &head) &&
                     head.place < SLOTS && member.slots[head.place].opens;
        bool taken = weft_agg_member_receive(&member, packet + 1, (uint32_t)count, now_ns++);
        WEFT_ASSERT(member.left == left - (taken && !opens));
        free(packet);
        data += 2 + count;
        size -= 2 + count;
    }
    WEFT_ASSERT(member.counters.sums + member.left >= CHUNKS);
    WEFT_ASSERT(member.counters.sums + member.left <= CHUNKS + opening);
    weft_agg_member_fini(&member);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    run(WEFT_AGG_FIXED, data, size);
    run(WEFT_AGG_BLOCK_FLOATS, data, size);
    return 0;
}
