/* Records: what happened to every RPC, for whoever wants to see it later, and the ring that carries
 * them from the thread that made them to the one that writes them down (obs/recorder.h).
 *
 * Making a record is filling in one struct of fixed size in the ring: no lock, no call, no text.
 * A full ring drops the record and counts it; nobody waits for the instrument.
 *
 * Times are ns on the clock of the process' driver; on one host all processes have the same.
 *
 * Source: docs/RECORDS.md; docs/PROTOCOL.md section 7, "Latencies"; [imc20] section 3.
 */
#ifndef WEFT_RPC_RECORD_H
#define WEFT_RPC_RECORD_H

#include "base/status.h"
#include "rpc/latency.h"

#include <assert.h>
#include <stdatomic.h>

enum weft_record_type {
    WEFT_RECORD_RPC = 1,       /* by the worker, when the answer was handed over */
    WEFT_RECORD_SERVED = 2,    /* by the server, when the answer was given to the transport */
    WEFT_RECORD_ACTIVE = 3,    /* by the server, at the end of a window with requests */
    WEFT_RECORD_HOT = 4,       /* by the server, at the end: one id with many updates */
    WEFT_RECORD_HOT_TOTAL = 5, /* by the server, at the end: all updates of a table */
};

struct weft_record_rpc {
    uint32_t worker;
    uint32_t server;    /* shard */
    uint32_t rpc;       /* rpc_id: counted by the worker for each shard, from 1 */
    uint32_t iteration; /* the worker's clock in progress when it asked, from 1 */
    uint32_t rows;
    uint16_t status; /* enum weft_rpc_status of the answer */
    uint8_t kind;    /* enum weft_rpc_op */
    uint64_t t0_ns;
    uint64_t t1_ns;
    uint64_t request_bytes; /* of the message, its head included */
    uint64_t reply_bytes;
    struct weft_rpc_latency latency;
};

struct weft_record_served {
    uint32_t server;
    uint32_t worker;
    uint32_t rpc;
    uint8_t kind;
    uint64_t arrival_ns; /* b: of the chunk that completed the request */
    uint64_t departure_ns;
    uint64_t ps_proc_ns;
    uint64_t ps_wait_ns;
    uint64_t ps_queue_ns;
};

struct weft_record_active {
    uint32_t server;
    uint32_t workers; /* different ones that began a request in [start_ns, start_ns + window_ns) */
    uint64_t start_ns;
    uint64_t window_ns;
};

struct weft_record_hot {
    uint32_t server;
    uint64_t id;
    uint64_t updates; /* too large by `error` at most */
    uint64_t error;
};

struct weft_record_hot_total {
    uint32_t server;
    bool exact; /* updates of ids were counted one by one */
    uint64_t updates;
};

struct weft_record {
    uint16_t type; /* enum weft_record_type */
    uint16_t table;
    union {
        struct weft_record_rpc rpc;
        struct weft_record_served served;
        struct weft_record_active active;
        struct weft_record_hot hot;
        struct weft_record_hot_total hot_total;
        uint8_t bytes[120];
    };
};

static_assert(sizeof(struct weft_record) == 128, "two cache lines; the spool's format");

/* One producer, one consumer; each index is written by one of them, and has a cache line of its
 * own. */
struct weft_record_ring {
    uint32_t slots; /* power of two */
    struct weft_record *records;
    _Alignas(64) atomic_uint tail; /* producer's: next to fill; free-running */
    uint32_t head_seen;            /* producer's: what head was at least */
    atomic_ullong dropped;         /* producer's: records that found no room */
    _Alignas(64) atomic_uint head; /* consumer's: next to take */
};

/* Shape:   slots  a power of two.
 * Owns:    gives *ring_p. Allocates all memory it will use: 128 bytes a slot.
 * Errors:  WEFT_NOMEM. */
weft_status weft_record_ring_new(uint32_t slots, struct weft_record_ring **ring_p);
void weft_record_ring_free(struct weft_record_ring *ring);

/* Producer: memory for one record, to be filled and committed; NULL when the ring is full, and then
 * it is counted as dropped. ring = NULL: nothing is recorded.   Cost: no call, no system call. */
static inline struct weft_record *weft_record_claim(struct weft_record_ring *ring)
{
    if (ring == NULL) {
        return NULL;
    }
    uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    if (tail - ring->head_seen == ring->slots) {
        ring->head_seen = atomic_load_explicit(&ring->head, memory_order_acquire);
        if (tail - ring->head_seen == ring->slots) {
            uint64_t dropped = atomic_load_explicit(&ring->dropped, memory_order_relaxed);
            atomic_store_explicit(&ring->dropped, dropped + 1, memory_order_relaxed);
            return NULL;
        }
    }
    return &ring->records[tail & (ring->slots - 1)];
}

static inline void weft_record_commit(struct weft_record_ring *ring)
{
    uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
    /* The next record's two lines were last seen a ring ago: have them here when it is made. */
    const uint8_t *next = (const uint8_t *)&ring->records[(tail + 1) & (ring->slots - 1)];
    __builtin_prefetch(next, 1);
    __builtin_prefetch(next + 64, 1);
}

/* Consumer: the oldest records that lie in one piece, *count_p of them, 0 when there are none.
 * They stay until weft_record_ring_take. */
const struct weft_record *weft_record_ring_peek(struct weft_record_ring *ring, uint32_t *count_p);
void weft_record_ring_take(struct weft_record_ring *ring, uint32_t count);

/* Any thread: records dropped so far. */
uint64_t weft_record_ring_dropped(const struct weft_record_ring *ring);

#endif
