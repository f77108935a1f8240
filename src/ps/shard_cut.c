/* Checkpoint requests of workers: a PULL without rows and with CUT waits here until a checkpoint is
 * valid that was cut after the request arrived, or until the driver reports why there will be none.
 *
 * Cuts are numbered. A request that arrives after a cut was taken waits for the next one.
 *
 * Source: docs/PROTOCOL.md section 7, "Checkpoint requests"; docs/CHECKPOINTS.md.
 */
#include "ps/shard_internal.h"
#include "ps/snapshot_internal.h"

void weft_shard_cut_ask(struct weft_shard *shard, struct shard_slot *slot)
{
    slot->cut_after = shard->cut_instants;
    slot->state = SLOT_WAITING;
    slot->wait_begin_ns = shard_clock_ns(shard);
    shard->cut_asked = true;
    shard->cut_asked_clock = slot->request.need_clock;
    weft_shard_queue_push(shard, &shard->asking, (uint32_t)(slot - shard->slots));
}

void weft_shard_cut_instant(struct weft_shard *shard)
{
    shard->cut_instants++;
    shard->cut_asked = false;
}

static bool any_unanswered(const struct weft_shard *shard)
{
    uint32_t index = shard->asking.head;
    while (index != WEFT_SHARD_NONE && shard->slots[index].status != WEFT_RPC_OK) {
        index = shard->slots[index].next;
    }
    return index != WEFT_SHARD_NONE;
}

void weft_shard_cut_over(struct weft_shard *shard, bool kept)
{
    if (kept) {
        shard->cut_kept = shard->cut_instants;
    } else {
        shard->cut_asked = any_unanswered(shard);
    }
}

void weft_shard_cut_counts(struct weft_shard *shard)
{
    shard->cut_counting = shard->cut_kept;
    shard->cut_told = true;
}

void weft_shard_cut_refused(struct weft_shard *shard, enum weft_rpc_status status)
{
    for (uint32_t i = shard->asking.head; i != WEFT_SHARD_NONE; i = shard->slots[i].next) {
        shard_slot_note(&shard->slots[i], status);
    }
    shard->cut_asked = false;
    shard->cut_told = true;
}

void weft_shard_cut_tell(struct weft_shard *shard, uint64_t now_ns)
{
    struct shard_queue still = {WEFT_SHARD_NONE, WEFT_SHARD_NONE};
    uint32_t index;
    shard->cut_told = false;
    while ((index = weft_shard_queue_pop(shard, &shard->asking)) != WEFT_SHARD_NONE) {
        struct shard_slot *slot = &shard->slots[index];
        if (slot->status == WEFT_RPC_OK && slot->cut_after >= shard->cut_counting) {
            weft_shard_queue_push(shard, &still, index);
            continue;
        }
        slot->wait_ns = shard_clock_ns(shard) - slot->wait_begin_ns;
        weft_shard_answer_head(shard, slot);
    }
    shard->asking = still;
    weft_shard_send_ready(shard, now_ns);
}

bool weft_shard_cut_wanted(const struct weft_shard *shard, uint32_t *clock_p)
{
    uint32_t asked = shard->cut_asked ? shard->cut_asked_clock : 0;
    *clock_p = shard->cut_wanted > asked ? shard->cut_wanted : asked;
    enum weft_cut_state state = weft_shard_cut_state(shard);
    return (shard->cut_wanted > 0 || shard->cut_asked) &&
           (state == WEFT_CUT_NONE || state == WEFT_CUT_WAITING);
}
