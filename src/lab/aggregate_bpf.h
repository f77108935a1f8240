/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * The interface between bpf/aggregate.bpf.c and its loader.
 */
#ifndef WEFT_LAB_AGGREGATE_BPF_H
#define WEFT_LAB_AGGREGATE_BPF_H

#include "agg/rows.h"

struct weft_aggregate_settings {
    struct weft_agg_config config;
    uint16_t port;         /* UDP, big-endian */
    uint8_t learns;        /* 1: a member is where its last accepted packet came from, and the
                            * first packet of a later epoch begins that epoch */
    uint8_t through_queue; /* 1: replies are sent by program `spread`, through the queue of their
                            * interface; 0: by XDP, past it */
    uint32_t mark;         /* of this box's notes, drawn at random */
};

/* Destination of a sum. Address and port are big-endian. */
struct weft_aggregate_member {
    uint32_t address;
    uint16_t port;
    uint8_t mac[6];
    uint16_t member;
    uint16_t reserved;
    uint32_t ifindex; /* 0: not known yet */
    uint32_t epoch;   /* of the packet from which it was learnt */
};

/* Per processor, cumulative. */
struct weft_aggregate_counts {
    struct weft_agg_counts box;
    uint64_t moved; /* a member was found elsewhere than by its packet before in the same epoch */
    uint64_t unnoted; /* replies through a queue that reached `spread` without a note, or could not
                       * have one: the driver has no XDP metadata. They go to their sender alone */
};

/* An interface of the box. */
struct weft_aggregate_interface {
    uint8_t mac[6]; /* its own; frames with another destination are not for the box */
    uint16_t reserved;
    uint32_t member; /* behind it, for `toward`; with several, the last that was learnt. At first
                      * WEFT_AGG_MEMBERS_MAX: none */
};

enum { WEFT_AGGREGATE_ADDRESSES_MAX = 256 };

/* What `aggregate` leaves in front of a reply for `spread`. Only XDP and tc programs can write
 * there, so no packet can pretend to be a reply. But it stays with the packet on its way over a
 * veth, where another box may be at the far end. */
struct weft_aggregate_note {
    uint32_t mark; /* that of the settings */
    uint32_t to;   /* enum weft_aggregate_to */
};

enum weft_aggregate_to { WEFT_AGGREGATE_TO_SENDER, WEFT_AGGREGATE_TO_ALL };

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
