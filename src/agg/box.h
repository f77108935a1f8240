/* An aggregation box in memory: what bpf/aggregate.bpf.c is in the kernel, for a host process and the
 * simulator. Packets go in, answers come out in the same buffer; it sends nothing itself.
 *
 * Beside int32 it knows floats (config.form); sums of floats depend on the order of packets.
 */
#ifndef WEFT_AGG_BOX_H
#define WEFT_AGG_BOX_H

#include "agg/receive.h"
#include "base/status.h"

enum { WEFT_AGG_PACKET_MAX = WEFT_AGG_HEADER_BYTES + WEFT_AGG_PAYLOAD_MAX };

struct weft_agg_box {
    struct weft_agg_config config; /* slots and banks may fall later, not rise */
    struct weft_agg_dense *slots;  /* (config.slots,) */
    struct weft_agg_bank *banks;   /* (config.banks,): weft_agg_bank_begin opens each */
    struct weft_agg_counts counts;
};

/* Owns:    allocates 2.9 KB a slot and 28 KB a bank.  Errors: WEFT_NOMEM. */
[[nodiscard]] weft_status weft_agg_box_init(struct weft_agg_box *box,
                                            const struct weft_agg_config *config);
void weft_agg_box_fini(struct weft_agg_box *box);

/* A packet of class WEFT_CLASS_AGG, or anything.
 *
 * Shape:   bytes (WEFT_AGG_PACKET_MAX,), the first `count` of them the packet; then the first
 *          *answer_count_p the answer, none with DROP. ANSWER_ALL: member is to be set for each.
 * Thread:  one.  Cost: O(count), no allocation. */
enum weft_agg_action weft_agg_box_receive(struct weft_agg_box *box, uint8_t *bytes, uint32_t count,
                                          uint32_t *answer_count_p);

#endif
