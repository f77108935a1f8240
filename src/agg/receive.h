/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * The first and last steps of every box: before the lookup of a slot or bank, and after the update.
 * The lock is held between the two, by the caller.
 */
#ifndef WEFT_AGG_RECEIVE_H
#define WEFT_AGG_RECEIVE_H

#include "agg/dense.h"
#include "agg/rows.h"

/* Decode a packet. Returns true if it is for slot (DENSE) or bank (ROWS) packet_p->place of this
 * box. Returns false if it is dropped, with the reason in *verdict_p. Shape: as
 * weft_wire_agg_decode. */
WEFT_AGG_INLINE bool weft_agg_open(const struct weft_agg_config *config, const uint8_t *bytes,
                                   const uint8_t *end, uint32_t count,
                                   struct weft_wire_agg *packet_p, uint8_t *verdict_p)
{
    *verdict_p = WEFT_AGG_MALFORMED;
    if (!weft_wire_agg_decode(bytes, end, count, packet_p) ||
        (packet_p->kind != WEFT_AGG_DENSE && packet_p->kind != WEFT_AGG_ROWS)) {
        return false;
    }
    *verdict_p = WEFT_AGG_FOREIGN;
    uint32_t places = packet_p->kind == WEFT_AGG_DENSE ? config->slots : config->banks;
    return packet_p->job == config->job && packet_p->member < WEFT_AGG_MEMBERS_MAX &&
           ((config->members >> packet_p->member) & 1) != 0 && packet_p->place < places;
}

/* Write the head of the ACK for *packet. weft_agg_ack_encode writes its body. */
WEFT_AGG_INLINE void weft_agg_ack_head(struct weft_wire_agg *packet, const struct weft_agg_ack *ack)
{
    packet->kind = WEFT_AGG_ACK;
    packet->flags = 0;
    packet->exponent = 0;
    packet->next = 0;
    packet->count = 0;
    packet->from = ack->base;
    packet->payload_bytes = WEFT_AGG_ACK_BYTES;
}

/* Shape:   body (WEFT_AGG_ACK_BYTES,). */
WEFT_AGG_INLINE void weft_agg_ack_encode(uint8_t *body, const struct weft_agg_ack *ack)
{
    for (uint32_t i = 0; i < WEFT_AGG_WINDOW_WORDS; i++) {
        weft_wire_put_u64(body + 8 * i, ack->added[i]);
        weft_wire_put_u64(body + 8 * (WEFT_AGG_WINDOW_WORDS + i), ack->refused[i]);
    }
}

WEFT_AGG_INLINE void weft_agg_ack_decode(const uint8_t *body, uint32_t base,
                                         struct weft_agg_ack *ack_p)
{
    ack_p->base = base;
    for (uint32_t i = 0; i < WEFT_AGG_WINDOW_WORDS; i++) {
        ack_p->added[i] = weft_wire_get_u64(body + 8 * i);
        ack_p->refused[i] = weft_wire_get_u64(body + 8 * (WEFT_AGG_WINDOW_WORDS + i));
    }
}

#endif
