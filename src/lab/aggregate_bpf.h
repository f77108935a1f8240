/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * The interface between bpf/aggregate.bpf.c and its loader.
 */
#ifndef WEFT_LAB_AGGREGATE_BPF_H
#define WEFT_LAB_AGGREGATE_BPF_H

#include "agg/rows.h"

struct weft_aggregate_settings {
    struct weft_agg_config config;
    uint16_t port; /* UDP, big-endian */
    uint16_t reserved[3];
};

/* Destination of a sum. Big-endian, except for the number. */
struct weft_aggregate_member {
    uint32_t address;
    uint16_t port;
    uint8_t mac[6];
    uint16_t member;
    uint16_t reserved;
};

/* For program `control`; sent in the packet with which it is run. */
enum weft_aggregate_what {
    WEFT_AGGREGATE_FLUSH,
    WEFT_AGGREGATE_COMMITTED,
    WEFT_AGGREGATE_GIVEN_UP,
    WEFT_AGGREGATE_CLOSE,
    WEFT_AGGREGATE_BEGIN,
};

struct weft_aggregate_command {
    uint32_t what;
    uint32_t bank;
    struct weft_agg_bank_epoch epoch;
};

enum { WEFT_AGGREGATE_REFUSED = 0, WEFT_AGGREGATE_DONE = 1 };

#endif
