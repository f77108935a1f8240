#include "rpc/rpc_record.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

/* Units after the end of the ring. They are only prefetched. */
enum { BEHIND = 2 * WEFT_RPC_RECORD_CLIENT_UNITS };

/* ---- forms ----------------------------------------------------------------------------------- */

static uint32_t units_of(uint8_t form)
{
    if (form >= WEFT_RPC_RECORD_SERVED_SHORT &&
        form < WEFT_RPC_RECORD_SERVED_SHORT + WEFT_RPC_RECORD_KINDS) {
        return WEFT_RPC_RECORD_SERVED_UNITS;
    }
    if (form >= WEFT_RPC_RECORD_CLIENT_SHORT &&
        form < WEFT_RPC_RECORD_CLIENT_SHORT + WEFT_RPC_RECORD_KINDS) {
        return WEFT_RPC_RECORD_CLIENT_UNITS;
    }
    return form == WEFT_RPC_RECORD_NOTHING ? 1 : WEFT_RPC_RECORD_UNITS;
}

static void read_rpc(const struct weft_rpc_record_client_short *s, struct weft_rpc_record *record_p)
{
    record_p->type = WEFT_RPC_RECORD_CLIENT;
    record_p->table = s->table;
    record_p->rpc = (struct weft_rpc_record_client){
        .worker = s->worker,
        .server = s->server,
        .rpc = s->rpc,
        .iteration = s->iteration,
        .rows = s->rows,
        .status = s->status,
        .kind = s->form - WEFT_RPC_RECORD_CLIENT_SHORT,
        .t0_ns = s->t0_ns,
        .t1_ns = s->t0_ns + s->total_ns,
        .request_bytes = s->request_bytes,
        .reply_bytes = s->reply_bytes,
        .latency = {.w_proc_ns = s->w_proc_ns,
                    .w_queue_ns = s->w_queue_ns,
                    .ps_proc_ns = s->ps_proc_ns,
                    .ps_overlap_ns = s->ps_overlap_ns,
                    .ps_wait_ns = s->ps_wait_ns,
                    .ps_queue_ns = s->ps_queue_ns,
                    .n_tx_ns =
                        (uint64_t)s->total_ns - s->ps_queue_ns - s->ps_proc_ns - s->ps_wait_ns},
    };
}

static void read_served(const struct weft_rpc_record_served_short *s,
                        struct weft_rpc_record *record_p)
{
    record_p->type = WEFT_RPC_RECORD_SERVED;
    record_p->table = s->table;
    record_p->served = (struct weft_rpc_record_served){
        .server = s->server,
        .worker = s->worker,
        .rpc = s->rpc,
        .kind = s->form - WEFT_RPC_RECORD_SERVED_SHORT,
        .arrival_ns = s->arrival_ns,
        .departure_ns = s->arrival_ns + s->inside_ns,
        .ps_proc_ns = s->ps_proc_ns,
        .ps_wait_ns = s->ps_wait_ns,
        .ps_queue_ns = (uint64_t)s->inside_ns - s->ps_proc_ns - s->ps_wait_ns,
    };
}

uint32_t weft_rpc_record_read(const struct weft_rpc_record_unit *units, uint32_t count,
                              struct weft_rpc_record *record_p)
{
    uint32_t need = count > 0 ? units_of(units->bytes[0]) : 1;
    if (need > count) {
        return 0;
    }
    memset(record_p, 0, sizeof(*record_p));
    if (need == WEFT_RPC_RECORD_UNITS) {
        memcpy(record_p, units, sizeof(*record_p));
    } else if (need == WEFT_RPC_RECORD_CLIENT_UNITS) {
        struct weft_rpc_record_client_short s;
        memcpy(&s, units, sizeof(s));
        read_rpc(&s, record_p);
    } else if (units->bytes[0] != WEFT_RPC_RECORD_NOTHING) {
        struct weft_rpc_record_served_short s;
        memcpy(&s, units, sizeof(s));
        read_served(&s, record_p);
    }
    return need;
}

uint32_t weft_rpc_record_count(const struct weft_rpc_record_unit *units, uint32_t count)
{
    uint32_t records = 0;
    for (uint32_t at = 0; at < count; at += units_of(units[at].bytes[0])) {
        records += units[at].bytes[0] != WEFT_RPC_RECORD_NOTHING;
    }
    return records;
}

/* ---- the ring -------------------------------------------------------------------------------- */

weft_status weft_rpc_record_ring_new(uint32_t slots, struct weft_rpc_record_ring **ring_p)
{
    WEFT_ASSERT(slots >= 2 && slots <= UINT32_C(1) << 30 && (slots & (slots - 1)) == 0);
    uint32_t units = slots * WEFT_RPC_RECORD_CLIENT_UNITS;
    struct weft_rpc_record_ring *ring =
        aligned_alloc(_Alignof(struct weft_rpc_record_ring), sizeof(*ring));
    /* The record of an RPC is one cache line. The memory is zeroed now, so that the first pass
     * through the ring causes no page faults. */
    size_t bytes = ((size_t)units + BEHIND) * sizeof(struct weft_rpc_record_unit);
    struct weft_rpc_record_unit *memory = aligned_alloc(64, bytes);
    if (ring == NULL || memory == NULL) {
        free(ring);
        free(memory);
        return WEFT_NOMEM;
    }
    memset(ring, 0, sizeof(*ring));
    memset(memory, 0, bytes);
    ring->units = units;
    ring->memory = memory;
    *ring_p = ring;
    return WEFT_OK;
}

void weft_rpc_record_ring_free(struct weft_rpc_record_ring *ring)
{
    if (ring != NULL) {
        free(ring->memory);
        free(ring);
    }
}

void *weft_rpc_record_claim_slowly(struct weft_rpc_record_ring *ring, uint32_t units)
{
    uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    uint32_t at = tail & (ring->units - 1);
    uint32_t room = ring->units - (tail - head);
    uint32_t rest = at + units > ring->units ? ring->units - at : 0; /* fewer units than needed
                                                                      * remain before the end */
    if (room < rest + units) {
        uint64_t dropped = atomic_load_explicit(&ring->dropped, memory_order_relaxed);
        atomic_store_explicit(&ring->dropped, dropped + 1, memory_order_relaxed);
        return NULL;
    }
    for (uint32_t i = 0; i < rest; i++) {
        ring->memory[at + i].bytes[0] = WEFT_RPC_RECORD_NOTHING;
    }
    atomic_store_explicit(&ring->tail, tail + rest, memory_order_release);
    at = (tail + rest) & (ring->units - 1);
    ring->room = (uint32_t)weft_min_u64(room - rest, ring->units - at);
    ring->next = &ring->memory[at];
    return ring->next;
}

void weft_rpc_record_put(struct weft_rpc_record_ring *ring, const struct weft_rpc_record *record)
{
    void *memory = ring != NULL ? weft_rpc_record_claim(ring, WEFT_RPC_RECORD_UNITS) : NULL;
    if (memory != NULL) {
        memcpy(memory, record, sizeof(*record));
        weft_rpc_record_commit(ring, WEFT_RPC_RECORD_UNITS);
    }
}

const struct weft_rpc_record_unit *weft_rpc_record_ring_peek(struct weft_rpc_record_ring *ring,
                                                             uint32_t *count_p)
{
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    uint32_t waiting = atomic_load_explicit(&ring->tail, memory_order_acquire) - head;
    uint32_t at = head & (ring->units - 1);
    *count_p = (uint32_t)weft_min_u64(waiting, ring->units - at);
    return &ring->memory[at];
}

void weft_rpc_record_ring_take(struct weft_rpc_record_ring *ring, uint32_t count)
{
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    atomic_store_explicit(&ring->head, head + count, memory_order_release);
}

uint64_t weft_rpc_record_ring_dropped(const struct weft_rpc_record_ring *ring)
{
    return atomic_load_explicit(&ring->dropped, memory_order_relaxed);
}
