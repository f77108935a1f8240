/* Packets to an aggregation box with dense slots and banks of hot rows. Its answers are no longer
 * than the packet, and decode as what a member expects; every packet has one verdict.
 *
 * The first byte chooses floats, the exponent and the policy of the banks. Then packets, each with
 * two bytes of length before it; a length of 65535 flushes the banks, or acknowledges the set. */
#include "agg/box.h"
#include "base/assert.h"
#include "base/units.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SLOTS = 2, BANKS = 2, BLOCKS = 5, TURN = 65535 };

static struct weft_agg_box box;

static void begin(uint8_t choice)
{
    const struct weft_agg_config config = {.members = 0x8000000000000003,
                                           .dense_epoch = 1,
                                           .slots = SLOTS,
                                           .banks = BANKS,
                                           .job = 7,
                                           .form = choice & 1 ? WEFT_AGG_FLOAT32 : 0,
                                           .exponent = choice & 1 ? 0 : (int8_t)(choice >> 4)};
    WEFT_ASSERT(weft_agg_box_init(&box, &config) == WEFT_OK);
    const struct weft_agg_bank_epoch epoch = {
        .epoch = 1, .blocks = BLOCKS, .form = config.form, .policy = choice >> 1 & 1};
    for (int i = 0; i < BANKS; i++) {
        WEFT_ASSERT(weft_agg_bank_begin(&box.banks[i], &epoch));
    }
}

static void turn(void)
{
    for (int i = 0; i < BANKS; i++) {
        if (!weft_agg_bank_flush(&box.banks[i])) {
            (void)weft_agg_bank_settle(&box.banks[i], i == 0);
        }
    }
}

static uint64_t verdicts(void)
{
    uint64_t count = 0;
    for (int i = 0; i < WEFT_AGG_VERDICTS; i++) {
        count += box.counts.packets[i];
    }
    return count;
}

/* A packet in memory of the room that a driver gives it: an ACK may be longer than the packet. */
static void packet(const uint8_t *data, uint32_t count)
{
    const uint64_t before = verdicts();
    struct weft_wire_agg head;
    uint32_t answer;
    uint8_t *bytes = malloc(WEFT_AGG_PACKET_MAX);
    WEFT_ASSERT(bytes != NULL);
    memcpy(bytes, data, count);
    const enum weft_agg_action action = weft_agg_box_receive(&box, bytes, count, &answer);
    WEFT_ASSERT(verdicts() == before + 1);
    WEFT_ASSERT((action == WEFT_AGG_DROP) == (answer == 0) && answer <= WEFT_AGG_PACKET_MAX);
    if (answer > 0) {
        WEFT_ASSERT(weft_wire_agg_decode(bytes, bytes + answer, answer, &head));
        WEFT_ASSERT(head.kind == WEFT_AGG_SUM || head.kind == WEFT_AGG_ACK);
        WEFT_ASSERT(head.kind == WEFT_AGG_ACK || answer == count);
    }
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    begin(data[0]);
    data++;
    size--;
    while (size >= 2) {
        const uint32_t length = data[0] | (uint32_t)data[1] << 8;
        const uint32_t count = (uint32_t)weft_min_u64(length, size - 2);
        if (length == TURN) {
            turn();
        } else if (count <= WEFT_AGG_PACKET_MAX) {
            packet(data + 2, count);
        }
        const uint32_t used = length == TURN ? 0 : count;
        data += 2 + used;
        size -= 2 + used;
    }
    weft_agg_box_fini(&box);
    return 0;
}
