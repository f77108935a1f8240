#include "agg/box.h"

#include "base/assert.h"

#include <stdlib.h>

weft_status weft_agg_box_init(struct weft_agg_box *box, const struct weft_agg_config *config)
{
    *box = (struct weft_agg_box){.config = *config};
    box->slots = calloc(config->slots > 0 ? config->slots : 1, sizeof(box->slots[0]));
    box->banks = calloc(config->banks > 0 ? config->banks : 1, sizeof(box->banks[0]));
    if (box->slots == NULL || box->banks == NULL) {
        weft_agg_box_fini(box);
        return WEFT_NOMEM;
    }
    return WEFT_OK;
}

void weft_agg_box_fini(struct weft_agg_box *box)
{
    free(box->slots);
    free(box->banks);
    box->slots = NULL;
    box->banks = NULL;
}

static enum weft_agg_action dense(struct weft_agg_box *box, uint8_t *bytes, uint32_t count,
                                  struct weft_wire_agg *packet, uint32_t *answer_count_p)
{
    struct weft_agg_dense *slot = &box->slots[packet->place];
    uint8_t *values = bytes + WEFT_AGG_HEADER_BYTES;
    struct weft_agg_outcome out =
        weft_agg_dense_receive(slot, &box->config, packet, values, bytes + count, &box->counts);
    weft_agg_count(&box->counts, out.verdict);
    if (out.action != WEFT_AGG_DROP) {
        weft_agg_dense_answer(slot, &box->config, packet, values, bytes + count);
        weft_wire_agg_encode(bytes, packet);
        *answer_count_p = count;
    }
    return (enum weft_agg_action)out.action;
}

static enum weft_agg_action rows(struct weft_agg_box *box, uint8_t *bytes, uint32_t count,
                                 struct weft_wire_agg *packet, uint32_t *answer_count_p)
{
    struct weft_agg_bank *bank = &box->banks[packet->place];
    uint8_t *body = bytes + WEFT_AGG_HEADER_BYTES;
    struct weft_agg_outcome out =
        weft_agg_rows_receive(bank, packet, body, bytes + count, &box->counts);
    weft_agg_count(&box->counts, out.verdict);
    if (out.action != WEFT_AGG_DROP) {
        struct weft_agg_ack ack;
        weft_agg_window_ack(&bank->windows[packet->member], &ack);
        weft_agg_ack_head(packet, &ack);
        weft_wire_agg_encode(bytes, packet);
        weft_agg_ack_encode(body, &ack);
        *answer_count_p = WEFT_AGG_HEADER_BYTES + WEFT_AGG_ACK_BYTES;
    }
    return (enum weft_agg_action)out.action;
}

enum weft_agg_action weft_agg_box_receive(struct weft_agg_box *box, uint8_t *bytes, uint32_t count,
                                          uint32_t *answer_count_p)
{
    WEFT_ASSERT(count <= WEFT_AGG_PACKET_MAX);
    struct weft_wire_agg packet;
    uint8_t verdict;
    *answer_count_p = 0;
    if (!weft_agg_open(&box->config, bytes, bytes + count, count, &packet, &verdict)) {
        weft_agg_count(&box->counts, verdict);
        return WEFT_AGG_DROP;
    }
    return packet.kind == WEFT_AGG_DENSE ? dense(box, bytes, count, &packet, answer_count_p)
                                         : rows(box, bytes, count, &packet, answer_count_p);
}
