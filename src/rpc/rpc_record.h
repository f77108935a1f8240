/* Records of RPCs, and the ring that passes them from the thread that creates them to the thread
 * that writes them to a file (obs/recorder.h).
 *
 * Creating a record fills in a struct in the ring: no lock, no call, no formatting. If the ring is
 * full, the record is dropped and counted; the producer never blocks.
 *
 * The cost of a record is mainly determined by its size: cache lines and pages of a file. The two
 * record types that are created once per RPC therefore have a short form, which omits derivable
 * values and stores durations in 32 bits (up to 4.29 s). A record with a value that does not fit is
 * written in the full form. Units are 32 bytes, in the machine's byte order:
 *
 *   form      units
 *   0         1      padding before the end of the ring
 *   1-7, 255  4      struct weft_rpc_record in the full form (255: obs/record_spool.h)
 *   64-79     2      struct weft_rpc_record_client_short; 64 + kind
 *   128-143   1      struct weft_rpc_record_served_short; 128 + kind
 *
 * Times are ns on the clock of the process's driver, which all processes of a host share.
 *
 * Source: docs/RECORDS.md; docs/PROTOCOL.md section 7, "Latencies"; [imc20] section 2.2.
 */
#ifndef WEFT_RPC_RPC_RECORD_H
#define WEFT_RPC_RPC_RECORD_H

#include "base/status.h"
#include "rpc/latency.h"

#include <assert.h>
#include <stdatomic.h>

enum weft_rpc_record_type {
    WEFT_RPC_RECORD_CLIENT = 1,       /* by the worker, when the reply is delivered */
    WEFT_RPC_RECORD_SERVED = 2,       /* by the server, when the reply is passed to the transport */
    WEFT_RPC_RECORD_ACTIVE = 3,       /* by the server, at the end of an interval (`window`) with
                                       * requests; --active-window-us */
    WEFT_RPC_RECORD_HOT = 4,          /* by the server, at the end: one id with many updates */
    WEFT_RPC_RECORD_HOT_TOTAL = 5,    /* by the server, at the end: all updates of a table */
    WEFT_RPC_RECORD_AGGREGATE_IN = 6, /* by an aggregator, with its reply to a push of a worker or
                                       * to an aggregate of a child */
    WEFT_RPC_RECORD_AGGREGATE_OUT = 7, /* by an aggregator, when an aggregate has its reply or is
                                        * dropped */
};

/* Why the sender of a message had to send it to the server itself. */
enum weft_rpc_record_direct {
    WEFT_RPC_RECORD_ABSORBED,       /* it need not: the server has committed it inside an
                                     * aggregate */
    WEFT_RPC_RECORD_DIRECT_TABLE,   /* the aggregator has not opened the table, or cannot sum it */
    WEFT_RPC_RECORD_DIRECT_FORM,    /* the message uses a cached list, is malformed, repeats a
                                     * push number or has a value that is not finite */
    WEFT_RPC_RECORD_DIRECT_LARGE,   /* the message is too large to be summed */
    WEFT_RPC_RECORD_DIRECT_SHARD,   /* the shard was not connected, or its connection ended */
    WEFT_RPC_RECORD_DIRECT_REFUSED, /* the shard refused the aggregate */
    WEFT_RPC_RECORD_DIRECTS,
};

/* Why an aggregate was sent. */
enum weft_rpc_record_flush {
    WEFT_RPC_RECORD_UNFLUSHED,      /* it was not sent: the connection to the server ended before */
    WEFT_RPC_RECORD_FLUSH_COMPLETE, /* it had a push of every worker that has opened the table,
                                     * or of every member of a sum of the scheduler */
    WEFT_RPC_RECORD_FLUSH_COUNT,    /* it had enough pushes */
    WEFT_RPC_RECORD_FLUSH_AGE,      /* its first push had waited long enough */
    WEFT_RPC_RECORD_FLUSH_MEMORY,   /* its memory was needed, or the next push did not fit */
    WEFT_RPC_RECORD_FLUSHES,
};

struct weft_rpc_record_client {
    uint32_t worker;
    uint32_t server;    /* shard */
    uint32_t rpc;       /* rpc_id: counted by the worker for each shard, from 1 */
    uint32_t iteration; /* the clock in progress at the worker when it sent the request, from 1 */
    uint32_t rows;
    uint16_t status; /* enum weft_rpc_status of the reply */
    uint8_t kind;    /* enum weft_rpc_op */
    uint8_t zero;
    uint64_t t0_ns;
    uint64_t t1_ns;
    uint64_t request_bytes; /* of the message, including its head */
    uint64_t reply_bytes;
    struct weft_rpc_latency latency;
};

struct weft_rpc_record_served {
    uint32_t server;
    uint32_t worker;
    uint32_t rpc;
    uint8_t kind;
    uint8_t zero[3];
    uint64_t arrival_ns; /* b: arrival of the chunk that completed the request */
    uint64_t departure_ns;
    uint64_t ps_proc_ns;
    uint64_t ps_wait_ns;
    uint64_t ps_queue_ns;
};

struct weft_rpc_record_active {
    uint32_t server;
    uint32_t workers; /* number of distinct workers with a request in [start_ns, start_ns +
                       * window_ns), also in accepted messages of aggregators */
    uint64_t start_ns;
    uint64_t window_ns;
    uint32_t connections; /* number of distinct connections, of workers and aggregators, with a
                           * request in it */
    uint32_t zero;
};

struct weft_rpc_record_hot {
    uint32_t server;
    uint64_t id;
    uint64_t updates; /* never too high; too low if its row was removed earlier */
    uint64_t zero;
};

struct weft_rpc_record_hot_total {
    uint32_t server;
    uint8_t exact; /* not 0: the updates of each id were counted exactly */
    uint64_t updates;
    uint64_t removed; /* of these, the updates of rows that no longer exist: no
                       * weft_rpc_record_hot counts them */
};

struct weft_rpc_record_aggregate_in {
    uint32_t server;
    uint32_t aggregator; /* its number */
    uint32_t sender;     /* rank of the worker, or number of the child */
    uint32_t rpc;        /* rpc_id of the sender */
    uint32_t aggregate;  /* rpc_id of the aggregate that contained it; 0 = none was sent */
    uint32_t pushes;     /* 1, or those in the child's aggregate */
    uint32_t rows;
    uint16_t status;     /* enum weft_rpc_status of the reply */
    uint8_t is_child;    /* from a child */
    uint8_t reason;      /* enum weft_rpc_record_direct */
    uint64_t bytes;      /* of the message */
    uint64_t arrival_ns; /* of the chunk that completed it */
    uint64_t answer_ns;
};

struct weft_rpc_record_aggregate_out {
    uint32_t server;
    uint32_t aggregator;
    uint32_t rpc;   /* rpc_id of the aggregate; 0 = it was not sent */
    uint32_t clock; /* highest clock of its pushes */
    uint32_t messages;
    uint32_t pushes;
    uint32_t rows_in; /* of those messages */
    uint32_t rows_out;
    uint16_t status; /* enum weft_rpc_status of the server's reply */
    uint8_t reason;  /* enum weft_rpc_record_flush */
    uint8_t zero;
    uint32_t zero_too;
    uint64_t first_ns; /* when its first push was added */
    uint64_t sent_ns;  /* 0 = it was not sent */
    uint64_t answer_ns;
    uint64_t bytes_in;
    uint64_t bytes_out;
};

struct weft_rpc_record {
    uint8_t type; /* enum weft_rpc_record_type */
    uint8_t zero;
    uint16_t table;
    uint32_t zero_too;
    union {
        struct weft_rpc_record_client rpc;
        struct weft_rpc_record_served served;
        struct weft_rpc_record_active active;
        struct weft_rpc_record_hot hot;
        struct weft_rpc_record_hot_total hot_total;
        struct weft_rpc_record_aggregate_in aggregate_in;
        struct weft_rpc_record_aggregate_out aggregate_out;
        uint8_t bytes[120];
    };
};

/* ---- formats in the ring and in the file ----------------------------------------------------- */

enum {
    WEFT_RPC_RECORD_UNIT_BYTES = 32,
    WEFT_RPC_RECORD_UNITS = 4, /* units of a struct weft_rpc_record */
    WEFT_RPC_RECORD_CLIENT_UNITS = 2,
    WEFT_RPC_RECORD_SERVED_UNITS = 1,
    WEFT_RPC_RECORD_NOTHING = 0,
    WEFT_RPC_RECORD_CLIENT_SHORT = 64,
    WEFT_RPC_RECORD_SERVED_SHORT = 128,
    WEFT_RPC_RECORD_KINDS = 16,
};

struct weft_rpc_record_unit {
    _Alignas(8) uint8_t bytes[WEFT_RPC_RECORD_UNIT_BYTES];
};

/* t1 = t0 + total; n_tx = total - ps_queue - ps_proc - ps_wait. */
struct weft_rpc_record_client_short {
    uint8_t form;
    uint8_t status;
    uint16_t table;
    uint16_t worker;
    uint16_t server;
    uint32_t rpc;
    uint32_t iteration;
    uint64_t t0_ns;
    uint32_t total_ns;
    uint32_t rows;
    uint32_t request_bytes;
    uint32_t reply_bytes;
    uint32_t w_proc_ns;
    uint32_t w_queue_ns;
    uint32_t ps_proc_ns;
    uint32_t ps_overlap_ns;
    uint32_t ps_wait_ns;
    uint32_t ps_queue_ns;
};

/* departure = arrival + inside; ps_queue = inside - ps_proc - ps_wait. */
struct weft_rpc_record_served_short {
    uint8_t form;
    uint8_t zero;
    uint16_t table;
    uint16_t worker;
    uint16_t server;
    uint64_t arrival_ns;
    uint32_t rpc;
    uint32_t inside_ns;
    uint32_t ps_proc_ns;
    uint32_t ps_wait_ns;
};

static_assert(sizeof(struct weft_rpc_record) ==
                      WEFT_RPC_RECORD_UNITS * WEFT_RPC_RECORD_UNIT_BYTES &&
                  sizeof(struct weft_rpc_record_client_short) ==
                      WEFT_RPC_RECORD_CLIENT_UNITS * WEFT_RPC_RECORD_UNIT_BYTES &&
                  sizeof(struct weft_rpc_record_served_short) ==
                      WEFT_RPC_RECORD_SERVED_UNITS * WEFT_RPC_RECORD_UNIT_BYTES,
              "the spool's format");

/* Decode the first record of units (count,) into a struct; its type is WEFT_RPC_RECORD_NOTHING for
 * padding. Returns the number of units consumed; 0 if units are missing. An unknown form is read as
 * the full form: the caller checks the type. */
uint32_t weft_rpc_record_read(const struct weft_rpc_record_unit *units, uint32_t count,
                              struct weft_rpc_record *record_p);

/* Number of records in units (count,), which came from a ring. */
uint32_t weft_rpc_record_count(const struct weft_rpc_record_unit *units, uint32_t count);

/* ---- the ring -------------------------------------------------------------------------------- */

/* A ring with one producer and one consumer. Each position is written by one of them and has its
 * own cache line. A record is contiguous. */
struct weft_rpc_record_ring {
    uint32_t units; /* power of two */
    struct weft_rpc_record_unit *memory;
    _Alignas(64) atomic_uint tail; /* producer's: next unit to fill; free-running */
    uint32_t room;                 /* producer's: contiguous units from `tail` that are known to be
                                    * free */
    struct weft_rpc_record_unit *next; /* producer's: address of `tail`, if room > 0 */
    atomic_ullong dropped;             /* producer's: records dropped because the ring was full */
    _Alignas(64) atomic_uint head;     /* consumer's: next unit to read; free-running */
};

/* Shape:   slots  a power of two; a slot has 64 bytes, for one RPC of a worker or two replies of a
 *                 server. A record in the full form uses two slots.
 * Owns:    gives *ring_p. Allocates all memory that it will use.
 * Errors:  WEFT_NOMEM. */
weft_status weft_rpc_record_ring_new(uint32_t slots, struct weft_rpc_record_ring **ring_p);
void weft_rpc_record_ring_free(struct weft_rpc_record_ring *ring);

/* Producer, if no room is known: reread the consumer's position, wrap to the beginning, or count
 * the record as dropped and return NULL. */
void *weft_rpc_record_claim_slowly(struct weft_rpc_record_ring *ring, uint32_t units);

/* Producer: reserve memory for one record of this many units, to be filled and committed. Returns
 * NULL if the ring is full; the record is then counted as dropped. Cost: no system call; rarely a
 * function call. */
static inline void *weft_rpc_record_claim(struct weft_rpc_record_ring *ring, uint32_t units)
{
    return __builtin_expect(ring->room >= units, 1) ? ring->next
                                                    : weft_rpc_record_claim_slowly(ring, units);
}

static inline void weft_rpc_record_commit(struct weft_rpc_record_ring *ring, uint32_t units)
{
    uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    atomic_store_explicit(&ring->tail, tail + units, memory_order_release);
    ring->room -= units;
    ring->next += units;
    /* The line after this one was last accessed one round of the ring ago: prefetch it. */
    __builtin_prefetch(ring->next + WEFT_RPC_RECORD_CLIENT_UNITS, 1);
}

/* Producer: write a record in the full form. ring = NULL: do nothing, also in the functions
 * below. */
void weft_rpc_record_put(struct weft_rpc_record_ring *ring, const struct weft_rpc_record *record);

static inline bool weft_rpc_record_client_fits(const struct weft_rpc_record_client *r)
{
    const struct weft_rpc_latency *l = &r->latency;
    uint64_t total_ns = r->t1_ns - r->t0_ns;
    uint64_t longs = total_ns | r->request_bytes | r->reply_bytes | l->w_proc_ns | l->w_queue_ns |
                     l->ps_proc_ns | l->ps_overlap_ns | l->ps_wait_ns | l->ps_queue_ns;
    return (longs >> 32 | (r->worker | r->server) >> 16 | r->status >> 8) == 0 &&
           r->kind < WEFT_RPC_RECORD_KINDS &&
           l->n_tx_ns == total_ns - l->ps_queue_ns - l->ps_proc_ns - l->ps_wait_ns;
}

static inline void weft_rpc_record_put_client(struct weft_rpc_record_ring *ring, uint16_t table,
                                              const struct weft_rpc_record_client *r)
{
    if (ring == NULL) {
        return;
    }
    if (__builtin_expect(!weft_rpc_record_client_fits(r), 0)) {
        struct weft_rpc_record whole = {.type = WEFT_RPC_RECORD_CLIENT, .table = table};
        whole.rpc = *r;
        weft_rpc_record_put(ring, &whole);
        return;
    }
    struct weft_rpc_record_client_short *record =
        weft_rpc_record_claim(ring, WEFT_RPC_RECORD_CLIENT_UNITS);
    if (record == NULL) {
        return;
    }
    *record = (struct weft_rpc_record_client_short){
        .form = WEFT_RPC_RECORD_CLIENT_SHORT | r->kind,
        .status = (uint8_t)r->status,
        .table = table,
        .worker = (uint16_t)r->worker,
        .server = (uint16_t)r->server,
        .rpc = r->rpc,
        .iteration = r->iteration,
        .t0_ns = r->t0_ns,
        .total_ns = (uint32_t)(r->t1_ns - r->t0_ns),
        .rows = r->rows,
        .request_bytes = (uint32_t)r->request_bytes,
        .reply_bytes = (uint32_t)r->reply_bytes,
        .w_proc_ns = (uint32_t)r->latency.w_proc_ns,
        .w_queue_ns = (uint32_t)r->latency.w_queue_ns,
        .ps_proc_ns = (uint32_t)r->latency.ps_proc_ns,
        .ps_overlap_ns = (uint32_t)r->latency.ps_overlap_ns,
        .ps_wait_ns = (uint32_t)r->latency.ps_wait_ns,
        .ps_queue_ns = (uint32_t)r->latency.ps_queue_ns,
    };
    weft_rpc_record_commit(ring, WEFT_RPC_RECORD_CLIENT_UNITS);
}

static inline bool weft_rpc_record_served_fits(const struct weft_rpc_record_served *r)
{
    uint64_t inside_ns = r->departure_ns - r->arrival_ns;
    uint64_t longs = inside_ns | r->ps_proc_ns | r->ps_wait_ns;
    return (longs >> 32 | (r->worker | r->server) >> 16) == 0 && r->kind < WEFT_RPC_RECORD_KINDS &&
           r->ps_queue_ns == inside_ns - r->ps_proc_ns - r->ps_wait_ns;
}

static inline void weft_rpc_record_put_served(struct weft_rpc_record_ring *ring, uint16_t table,
                                              const struct weft_rpc_record_served *r)
{
    if (ring == NULL) {
        return;
    }
    if (__builtin_expect(!weft_rpc_record_served_fits(r), 0)) {
        struct weft_rpc_record whole = {.type = WEFT_RPC_RECORD_SERVED, .table = table};
        whole.served = *r;
        weft_rpc_record_put(ring, &whole);
        return;
    }
    struct weft_rpc_record_served_short *record =
        weft_rpc_record_claim(ring, WEFT_RPC_RECORD_SERVED_UNITS);
    if (record == NULL) {
        return;
    }
    *record = (struct weft_rpc_record_served_short){
        .form = WEFT_RPC_RECORD_SERVED_SHORT | r->kind,
        .table = table,
        .worker = (uint16_t)r->worker,
        .server = (uint16_t)r->server,
        .arrival_ns = r->arrival_ns,
        .rpc = r->rpc,
        .inside_ns = (uint32_t)(r->departure_ns - r->arrival_ns),
        .ps_proc_ns = (uint32_t)r->ps_proc_ns,
        .ps_wait_ns = (uint32_t)r->ps_wait_ns,
    };
    weft_rpc_record_commit(ring, WEFT_RPC_RECORD_SERVED_UNITS);
}

/* Consumer: the oldest contiguous units, *count_p of them, 0 if the ring is empty. They contain
 * whole records and stay valid until weft_rpc_record_ring_take. */
const struct weft_rpc_record_unit *weft_rpc_record_ring_peek(struct weft_rpc_record_ring *ring,
                                                             uint32_t *count_p);
void weft_rpc_record_ring_take(struct weft_rpc_record_ring *ring, uint32_t count);

/* Any thread: records dropped so far. */
uint64_t weft_rpc_record_ring_dropped(const struct weft_rpc_record_ring *ring);

#endif
