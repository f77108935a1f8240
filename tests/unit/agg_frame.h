/* The IPv4 header of a frame to or from an aggregation box. */
#ifndef WEFT_TEST_AGG_FRAME_H
#define WEFT_TEST_AGG_FRAME_H

#include "wire/weft_wire.h"

/* The sum over a header without options; 0xffff if its checksum is right. */
static inline uint16_t ip_sum(const uint8_t *ip)
{
    uint32_t sum = 0;
    for (int i = 0; i < 20; i += 2) {
        sum += weft_wire_get_u16(ip + i);
    }
    while (sum >> 16 != 0) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return (uint16_t)sum;
}

#endif
