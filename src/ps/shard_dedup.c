/* Duplicate detection for pushes that are resent over a new connection of the same process, or to a
 * restored shard. The window records complete pushes; a mask records the chunks of each incomplete
 * push.
 *
 * Masks exist if chunks_max > 0, which is their length in bits. Without them a worker that resumes
 * is refused.
 *
 * Source: docs/PROTOCOL.md section 7, "Resending". */
#include "base/assert.h"
#include "ps/shard_internal.h"

#include <stdlib.h>
#include <string.h>

weft_status weft_shard_partials_init(struct weft_shard *shard)
{
    size_t words = WEFT_BITS_WORDS((size_t)shard->config.chunks_max);
    /* Pushes in progress, and as many left over by a broken connection. */
    shard->partials_per_worker = 2 * shard->config.push_slots;
    shard->partial_count = shard->config.workers_max * shard->partials_per_worker;
    shard->partials = calloc(shard->partial_count, sizeof(*shard->partials));
    uint64_t *masks = calloc(shard->partial_count * words, sizeof(*masks));
    if (shard->partials == NULL || masks == NULL) {
        free(masks);
        return WEFT_NOMEM;
    }
    for (uint32_t i = 0; i < shard->partial_count; i++) {
        shard->partials[i].mask = masks + i * words;
    }
    return WEFT_OK;
}

void weft_shard_partials_fini(struct weft_shard *shard)
{
    if (shard->partials != NULL) {
        free(shard->partials[0].mask);
    }
    free(shard->partials);
}

struct shard_partial *weft_shard_partial_take(struct weft_shard *shard, uint32_t worker)
{
    struct shard_partial *first = shard->partials + (size_t)worker * shard->partials_per_worker;
    for (uint32_t i = 0; i < shard->partials_per_worker; i++) {
        if (!first[i].live) {
            first[i].live = true;
            return &first[i];
        }
    }
    return NULL;
}

static struct shard_partial *find(struct weft_shard *shard, uint16_t table, uint32_t worker,
                                  uint64_t number)
{
    struct shard_partial *first = shard->partials + (size_t)worker * shard->partials_per_worker;
    for (uint32_t i = 0; i < shard->partials_per_worker; i++) {
        if (first[i].live && first[i].table == table && first[i].number == number) {
            return &first[i];
        }
    }
    return NULL;
}

bool weft_shard_dedup_begun(struct weft_shard *shard, uint16_t table, uint32_t worker,
                            uint64_t number)
{
    return shard->partial_count > 0 && find(shard, table, worker, number) != NULL;
}

static struct shard_partial *make(struct weft_shard *shard, const struct shard_slot *slot,
                                  const struct weft_msg_event *event)
{
    if (event->chunks > shard->config.chunks_max) {
        return NULL;
    }
    struct shard_partial *partial = weft_shard_partial_take(shard, slot->worker);
    if (partial != NULL) {
        partial->table = slot->table;
        partial->number = slot->number;
        partial->chunks = event->chunks;
        partial->chunk_elems = event->chunk_elems;
        memset(partial->mask, 0, WEFT_BITS_WORDS((size_t)event->chunks) * sizeof(uint64_t));
    }
    return partial;
}

void weft_shard_dedup_open(struct weft_shard *shard, struct shard_slot *slot, uint8_t low,
                           const struct weft_msg_event *event)
{
    slot->number = weft_push_window_number(shard_pushes(shard, slot->table, slot->worker), low);
    weft_shard_dedup_begin(shard, slot, event);
}

void weft_shard_dedup_begin(struct weft_shard *shard, struct shard_slot *slot,
                            const struct weft_msg_event *event)
{
    struct weft_push_window *window = shard_pushes(shard, slot->table, slot->worker);
    if (slot->number == 0) {
        return; /* the worker does not number its pushes, and does not resend */
    }
    slot->again = weft_push_window_test(window, slot->number);
    weft_push_window_open(window, slot->number);
    if (slot->again || shard->partial_count == 0) {
        return;
    }
    struct shard_partial *partial = find(shard, slot->table, slot->worker, slot->number);
    partial = partial != NULL ? partial : make(shard, slot, event);
    /* A message with only a head ends a push with any grid: the worker abandons the missing
     * chunks. */
    bool head_alone = event->total == shard_request_head_elems(event);
    if (partial == NULL || (!head_alone && (partial->chunks != event->chunks ||
                                            partial->chunk_elems != event->chunk_elems))) {
        /* Another grid, or more open pushes than this worker may have: applied chunks cannot be
         * identified. */
        slot->status = WEFT_RPC_BAD_REQUEST;
        slot->dead = true;
        return;
    }
    slot->partial = (uint32_t)(partial - shard->partials);
}

bool weft_shard_dedup_chunk(const struct weft_shard *shard, const struct shard_slot *slot,
                            uint32_t chunk)
{
    return slot->again || (slot->partial != WEFT_SHARD_NONE &&
                           weft_bits_test(shard->partials[slot->partial].mask, chunk));
}

void weft_shard_dedup_applied(struct weft_shard *shard, const struct shard_slot *slot,
                              uint32_t chunk)
{
    struct weft_push_window *window = shard_pushes(shard, slot->table, slot->worker);
    window->clock = slot->clock > window->clock ? slot->clock : window->clock;
    if (slot->partial != WEFT_SHARD_NONE) {
        weft_bits_set(shard->partials[slot->partial].mask, chunk);
    }
}

void weft_shard_dedup_closed(struct weft_shard *shard, const struct shard_slot *slot, bool is_short)
{
    if (slot->number == 0 || is_short) {
        return;
    }
    weft_shard_journal_closed(shard, slot->table, slot->worker, slot->number);
    weft_push_window_close(shard_pushes(shard, slot->table, slot->worker), slot->number);
    if (slot->partial != WEFT_SHARD_NONE) {
        shard->partials[slot->partial].live = false;
    }
}

void weft_shard_dedup_later(struct weft_shard *shard, const struct shard_slot *slot)
{
    struct shard_partial *partial =
        slot->partial == WEFT_SHARD_NONE ? NULL : &shard->partials[slot->partial];
    /* Without applied chunks the entry is not kept, so a worker may have any number of such
     * pushes. */
    if (partial != NULL && weft_bits_count(partial->mask, partial->chunks) == 0) {
        partial->live = false;
    }
}

void weft_shard_dedup_close(struct weft_shard *shard, uint16_t table, uint32_t worker,
                            uint64_t number)
{
    struct shard_partial *partial = find(shard, table, worker, number);
    weft_push_window_close(shard_pushes(shard, table, worker), number);
    if (partial != NULL) {
        partial->live = false;
    }
}

enum weft_rpc_status weft_shard_dedup_resume(struct weft_shard *shard, uint16_t table,
                                             uint32_t worker, const struct weft_rpc_pushes *theirs)
{
    if (shard->partial_count == 0) {
        return WEFT_RPC_BAD_REQUEST;
    }
    struct shard_partial *first = shard->partials + (size_t)worker * shard->partials_per_worker;
    for (uint32_t i = 0; i < shard->partials_per_worker; i++) {
        if (!first[i].live || first[i].table != table) {
            continue;
        }
        if (weft_bits_count(first[i].mask, first[i].chunks) == first[i].chunks) {
            /* The checkpoint was cut between its last chunk and its end. */
            weft_push_window_close(shard_pushes(shard, table, worker), first[i].number);
            first[i].live = false;
        } else if (weft_rpc_pushes_test(theirs, first[i].number) ||
                   weft_bits_count(first[i].mask, first[i].chunks) == 0) {
            first[i].live = false;
        }
    }
    return WEFT_RPC_OK;
}

struct weft_rpc_pushes weft_shard_dedup_pushes(const struct weft_shard *shard,
                                               const struct shard_slot *slot)
{
    struct weft_rpc_pushes pushes =
        weft_push_window_pushes(shard_pushes(shard, slot->table, slot->worker));
    const struct shard_partial *first =
        shard->partials + (size_t)slot->worker * shard->partials_per_worker;
    for (uint32_t i = 0; i < shard->partials_per_worker; i++) {
        uint64_t back = pushes.newest - first[i].number;
        if (first[i].live && first[i].table == slot->table && back < WEFT_RPC_PUSHES_BITS) {
            pushes.begun[back / 64] |= UINT64_C(1) << back % 64;
        }
    }
    return pushes;
}

void weft_shard_dedup_forget(struct weft_shard *shard, uint16_t table, uint32_t worker)
{
    struct shard_partial *first = shard->partials + (size_t)worker * shard->partials_per_worker;
    *shard_pushes(shard, table, worker) = (struct weft_push_window){0};
    for (uint32_t i = 0; i < shard->partials_per_worker; i++) {
        first[i].live &= first[i].table != table;
    }
}
