/* An aggregation box in memory: the equivalent of bpf/aggregate.bpf.c for a host process and the
 * simulator. It replaces a packet by its reply in the same buffer and sends nothing itself.
 *
 * Besides int32 it supports floats (config.form). Float sums depend on the order of packets.
 */
#ifndef WEFT_AGG_BOX_H
#define WEFT_AGG_BOX_H

#include "agg/receive.h"
#include "base/status.h"

enum { WEFT_AGG_PACKET_MAX = WEFT_AGG_HEADER_BYTES + WEFT_AGG_PAYLOAD_MAX };

struct weft_agg_box {
    struct weft_agg_config config; /* slots and banks may be decreased later, not increased */
    struct weft_agg_dense *slots;  /* (config.slots,) */
    struct weft_agg_bank *banks;   /* (config.banks,): weft_agg_bank_begin opens each bank */
    struct weft_agg_counts counts;
};

/* Owns:    allocates 2.9 KB per slot and 27 KB per bank.  Errors: WEFT_NOMEM. */
[[nodiscard]] weft_status weft_agg_box_init(struct weft_agg_box *box,
                                            const struct weft_agg_config *config);
void weft_agg_box_fini(struct weft_agg_box *box);

/* Process a packet of class WEFT_CLASS_AGG. Invalid packets are dropped.
 *
 * Shape:   bytes (WEFT_AGG_PACKET_MAX,), on input the packet of `count` bytes, on return the reply
 *          of *answer_count_p bytes; no reply with DROP. ANSWER_ALL: the caller sets `member` for
 *          each receiver.
 * Thread:  one.  Cost: O(count), no allocation. */
enum weft_agg_action weft_agg_box_receive(struct weft_agg_box *box, uint8_t *bytes, uint32_t count,
                                          uint32_t *answer_count_p);

#endif
