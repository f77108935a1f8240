/* Tags and heads of requests and replies. The specification of a table, which callers of this
 * header also need, is in rpc/table_spec.h.
 *
 * This header defines formats only: it does not send, wait or hold state. All input is decoded
 * through the bounds-checked cursor; a decoder that fails leaves its output unchanged, except
 * weft_rpc_tag_unpack, which always writes the fields of the tag.
 *
 * Source: docs/PROTOCOL.md section 7.
 */
#ifndef WEFT_RPC_HEAD_H
#define WEFT_RPC_HEAD_H

#include "base/status.h"
#include "base/units.h"
#include "rpc/table_spec.h"

#include <stdbool.h>

enum {
    WEFT_RPC_REQUEST_BYTES = 40,
    WEFT_RPC_REPLY_BYTES = 56,
    WEFT_RPC_PUSHES_BYTES = 40,
    WEFT_RPC_DURABLE_UPTO_BYTES =
        8, /* body of DURABLE, u64: all pushes up to and including this number are durable */
    WEFT_RPC_WORKERS_MAX = 65535,
};

/* Upper half of an endpoint's name (HELLO). The lower half is the rank. */
enum weft_rpc_role {
    WEFT_ROLE_SERVER = 1,
    WEFT_ROLE_WORKER = 2,
    WEFT_ROLE_COORDINATOR = 3, /* docs/PROTOCOL.md section 11 */
    WEFT_ROLE_MEMBER = 4,      /* a process of the job, in its connection to the coordinator */
    WEFT_ROLE_SCHEDULER = 5,   /* docs/PROTOCOL.md section 13; role in connections to workers and
                                * shards */
    WEFT_ROLE_AGGREGATOR = 6,  /* sums pushes of workers; weft_rpc_aggregator_name */
};

static inline uint64_t weft_rpc_name(enum weft_rpc_role role, uint32_t rank)
{
    return (uint64_t)role << 32 | rank;
}

/* Name of an aggregator's endpoint for one shard. An aggregator has one endpoint per shard, and
 * each has its own name, so that an UNKNOWN from one does not end a connection with another
 * (section 8.6). number < 256. */
static inline uint64_t weft_rpc_aggregator_name(uint32_t shard, uint32_t number)
{
    return weft_rpc_name(WEFT_ROLE_AGGREGATOR, shard << 8 | number);
}

enum weft_rpc_op {
    WEFT_RPC_PUSH = 1,
    WEFT_RPC_PULL = 2,
    WEFT_RPC_CLOCK = 3,
    WEFT_RPC_TABLE = 4,
    WEFT_RPC_DURABLE_UPTO =
        5,             /* from a server, with WEFT_RPC_REPLY_FLAG: number of the last durable
                        * push */
    WEFT_RPC_LIST = 6, /* the ids of a list, for a PUSH that refers to a list which the shard does
                        * not have */
    WEFT_RPC_AGGREGATE = 7, /* the sum of several pushes; ps/aggregate.h */
    WEFT_RPC_COMMITTED =
        8, /* from an aggregator, with WEFT_RPC_REPLY_FLAG: the second reply to a PUSH that was
            * acknowledged on apply */
    WEFT_RPC_UPDATE = 9,    /* in tags of requests: a PUSH in a job with a scheduler;
                             * weft_rpc_update_pack */
};

/* Priorities of messages. CLOCK is the most urgent: other workers wait for it, and the next PULL
 * gets no reply before CLOCK arrives. It overtakes all requests of its worker that are not sent
 * yet. A PULL for a clock that has not begun is the least urgent: no computation waits for it
 * yet. */
enum { WEFT_RPC_PRIORITY_CLOCK = 0, WEFT_RPC_PRIORITY = 1, WEFT_RPC_PRIORITY_AHEAD = 2 };

/* Status of a reply. X(name, description and remedy) */
#define WEFT_RPC_STATUS_MAP(X)                                                                     \
    X(OK, "done")                                                                                  \
    X(UNKNOWN_TABLE, "the table is not declared on this shard; open it first")                     \
    X(SPEC_MISMATCH, "the table exists with other values; all workers must use the same ones")     \
    X(BAD_SPEC, "a value of the table is out of range, above the server's limits, or "             \
                "unsupported by its release; give all processes the same release")                 \
    X(BAD_REQUEST, "the request is inconsistent")                                                  \
    X(WRONG_WORKER, "the rank is not the one that this connection was opened with")                \
    X(WRONG_SHARD, "an id belongs to another shard; both ends must agree on the number of shards") \
    X(STALE_CLOCK, "a push of a clock that this worker has already finished")                      \
    X(EARLY_CLOCK, "a BSP push of a clock that the other workers have not reached")                \
    X(NOT_FINITE, "a gradient was infinite or not a number; its chunk was not applied")            \
    X(FULL, "no room for new rows; chunks with new rows were not applied")                         \
    X(TOO_LARGE, "more rows than this shard accepts in one request")                               \
    X(NOT_DURABLE, "this server writes no checkpoints, so no push becomes durable; set "           \
                   "--checkpoint or durability none")                                              \
    X(NO_CHECKPOINTS, "this server writes no checkpoints; set --checkpoint DIR")                   \
    X(NOT_KEPT, "the checkpoint could not be written: disk full or failed (see the server's "      \
                "output); earlier checkpoints are kept")                                           \
    X(NO_COPIES, "more rows changed while the checkpoint was written than fit into the server's "  \
                 "--checkpoint-memory")                                                            \
    X(CUT_LATE, "a shard had passed the clock of the checkpoint; request it again")                \
    X(UNKNOWN_LIST, "the shard does not have the list of ids that the push names; send the list")  \
    X(LATE, "an update of a model that is older than the delay bound allows; pull again")          \
    X(SEND_DIRECT, "the aggregator could not add this push to the table; send it directly to "     \
                   "the shard")

enum weft_rpc_status {
#define X(name, text) WEFT_RPC_##name,
    WEFT_RPC_STATUS_MAP(X)
#undef X
        WEFT_RPC_STATUS_COUNT
};

/* The name, such as "FULL", and the description from the list; "unknown" for a number outside the
 * list. Never NULL. */
const char *weft_rpc_status_name(uint16_t status);
const char *weft_rpc_status_text(uint16_t status);

/* ---- tags ---------------------------------------------------------------------------------- */

enum { WEFT_RPC_REPLY_FLAG = 0x80 };

/* Mask for a posted receive that matches every request of one op. */
#define WEFT_RPC_TAG_OP_MASK UINT64_C(0xff00000000000000)

/* Mask for a posted receive that matches PUSH and UPDATE. */
#define WEFT_RPC_TAG_PUSH_MASK UINT64_C(0xf700000000000000)

struct weft_rpc_tag {
    uint8_t op; /* enum weft_rpc_op, with WEFT_RPC_REPLY_FLAG in a reply */
    uint16_t table;
    uint32_t number; /* request: clock; reply: rpc_id */
    uint8_t low;     /* PUSH: low byte of the push's number; else 0 */
};

static inline uint64_t weft_rpc_tag_pack(struct weft_rpc_tag tag)
{
    return (uint64_t)tag.op << 56 | (uint64_t)tag.table << 40 | (uint64_t)tag.low << 32 |
           tag.number;
}

/* Messages with the same op and table form a stream (core/msg.h): pushes to a table are one stream,
 * replies to pulls from it are another. */
static inline uint32_t weft_rpc_stream(uint8_t op, uint16_t table)
{
    return (uint32_t)op << 16 | table;
}

/* Decode a tag. Returns false if `low`, which only PUSH uses, is nonzero in another op. */
static inline bool weft_rpc_tag_unpack(uint64_t bits, struct weft_rpc_tag *tag_p)
{
    *tag_p = (struct weft_rpc_tag){
        .op = (uint8_t)(bits >> 56),
        .low = (uint8_t)(bits >> 32),
        .table = (uint16_t)(bits >> 40),
        .number = (uint32_t)bits,
    };
    return tag_p->low == 0 || tag_p->op == WEFT_RPC_PUSH || tag_p->op == WEFT_RPC_UPDATE;
}

/* The tag of an UPDATE contains the low byte of the clock and 24 bits of its base, the update count
 * of the model from which it was computed. Any chunk may arrive first, so the tag, which every
 * chunk has, must show whether the update is too late. The head, in chunk 0, has the full clock
 * (need_clock). */
#define WEFT_RPC_BASE_MASK UINT32_C(0xffffff)
#define WEFT_RPC_BASE_NONE WEFT_RPC_BASE_MASK /* the worker has not pulled from this shard yet */

static inline uint32_t weft_rpc_update_pack(uint32_t clock, uint32_t base)
{
    return clock << 24 | (base & WEFT_RPC_BASE_MASK);
}

/* The clock closest to the one in progress that has this low byte; 0 if there is none. */
static inline uint32_t weft_rpc_update_clock(uint32_t number, uint32_t in_progress)
{
    int64_t clock = (int64_t)in_progress + (int8_t)(uint8_t)((number >> 24) - in_progress);
    return clock > 0 && clock <= UINT32_MAX ? (uint32_t)clock : 0;
}

/* ---- heads --------------------------------------------------------------------------------- */

/* Number of elements that a head of head_bytes occupies in a message of elem_bytes elements. */
static inline uint32_t weft_rpc_head_elems(uint32_t head_bytes, uint32_t elem_bytes)
{
    return (head_bytes + elem_bytes - 1) / elem_bytes;
}

enum weft_rpc_flag {
    WEFT_RPC_NARROW_IDS = 1,      /* PUSH, PULL: ids are u32 instead of u64 */
    WEFT_RPC_RESUME = 2,          /* TABLE: the worker resumes; see weft_rpc_pushes */
    WEFT_RPC_DURABLE = 4,         /* TABLE: send DURABLE to this worker */
    WEFT_RPC_CUT = 8,             /* PUSH: request a checkpoint soon. PULL of no rows: reply when a
                                   * checkpoint is complete */
    WEFT_RPC_UPTO = 16,           /* CLOCK: ends all clocks up to this one, not only the next one */
    WEFT_RPC_PACKED_IDS = 32,     /* PUSH, PULL: ids are packed; ps/id_pack.h */
    WEFT_RPC_KEEP_IDS = 64,       /* PULL: keep its ids as a list, which a PUSH may refer to */
    WEFT_RPC_COUNT_UPDATES = 128, /* PULL: `rows` of the reply is the number of updates opened */
    WEFT_RPC_PARK = 256, /* CLOCK: ends no clock; the worker is about to close this connection, and
                          * keeps its rank */
    WEFT_RPC_HOT = 512,  /* PULL of no rows: the reply is the table's hot set; ps/hot_rows.h */
    WEFT_RPC_ON_APPLY = 1024, /* PUSH to an aggregator: it may be acknowledged on apply, before the
                               * shard has it; COMMITTED then follows */
    WEFT_RPC_FLAGS_ALL = 2047,
};

/* Maximum lease of a PARK, in milliseconds. */
enum { WEFT_RPC_PARK_MS_MAX = 60000 };

/* Rows of the longest PULL and LIST that every shard with WEFT_RPC_CAN_LONG accepts. */
enum { WEFT_RPC_ROWS_LONG = 32768 };

/* Capabilities of a shard beyond plain ids. A worker requests them in need_clock of a TABLE, and
 * the reply grants them. Earlier releases ignore the request and grant none. */
enum weft_rpc_can {
    WEFT_RPC_CAN_PACK = 1, /* PUSH and PULL with packed ids */
    WEFT_RPC_CAN_LIST = 2, /* PULL with KEEP_IDS, PUSH that refers to a list, LIST. In the reply to
                            * a PULL with KEEP_IDS: the shard has stored its ids as a list, whose
                            * number is the rpc_id */
    WEFT_RPC_CAN_UPDATE = 4, /* UPDATE, PULL with COUNT_UPDATES */
    WEFT_RPC_CAN_AGGREGATE = 8, /* pushes through an aggregator; ps/aggregate.h */
    WEFT_RPC_CAN_HOT = 16,      /* PULL with HOT */
    WEFT_RPC_CAN_LONG = 32,     /* PULL and LIST with up to WEFT_RPC_ROWS_LONG rows */
    WEFT_RPC_CAN_ON_APPLY = 64, /* aggregators may acknowledge pushes on apply: the shard has no
                                 * journal. From an aggregator: in the reply to TABLE, it does so;
                                 * in the reply to a PUSH, this one is acknowledged on apply */
    WEFT_RPC_CAN_ALL = 127,
};

/* The largest clock of a CLOCK with UPTO. A worker that ends clocks one at a time never reaches it.
 */
#define WEFT_RPC_CLOCK_MAX UINT32_C(0x7fffffff)

struct weft_rpc_request {
    uint32_t rpc_id;          /* counted by the worker for each shard, from 1 */
    uint32_t worker;          /* rank */
    uint64_t t0_ns;           /* worker's clock at send; echoed */
    uint32_t rows_critical;   /* PULL: leading rows that must not be lost; <= rows. PUSH to an
                               * aggregator: 1 + the base of its update modulo 2^24, 0 = none; in
                               * the high byte its piece, 0 = not cut (ps/aggregate.h). The receiver
                               * checks the range, not weft_rpc_request_unpack */
    uint32_t after_seq;       /* PULL: rpc_id of a push that must be closed before the reply; 0 =
                               * none. PUSH: number of the push modulo 2^32, ps/push_window.h; 0 =
                               * none. TABLE that requests WEFT_RPC_CAN_AGGREGATE: session,
                               * ps/aggregate.h */
    uint32_t need_clock;      /* PULL: minimum clock of all workers that it waits for. PUSH with the
                               * tag of an UPDATE: its clock; to an aggregator: session; else 0.
                               * AGGREGATE: the t of its weights; 0 = not weighted. TABLE: the
                               * capabilities (enum weft_rpc_can) that the worker requests; other
                               * bits are ignored */
    uint32_t reply_bound_ppm; /* PULL: loss bound of the reply; < 10^6 */
    uint32_t rows;            /* PUSH: blocks of rows; PULL: ids; else 0 */
    uint32_t flags;           /* of enum weft_rpc_flag */
};

struct weft_rpc_reply {
    uint32_t rpc_id;
    uint16_t status; /* enum weft_rpc_status; may be a value that this release does not know */
    uint16_t can;    /* enum weft_rpc_can, in a reply to a TABLE that requested it, a PULL with
                      * KEEP_IDS or a PUSH with ON_APPLY; else 0 */
    uint64_t t0_ns;  /* t0_ns of the request */
    uint32_t clock;  /* minimum clock of all workers */
    uint32_t rows;   /* PULL with status OK: as in the request, or with COUNT_UPDATES the count
                      * modulo 2^32, or with HOT the ids that follow; else 0 */
    uint64_t ps_proc_ns;
    uint64_t ps_overlap_ns;
    uint64_t ps_wait_ns;
    uint64_t ps_queue_ns;
};

/* out must have WEFT_RPC_REQUEST_BYTES / WEFT_RPC_REPLY_BYTES. */
void weft_rpc_request_pack(const struct weft_rpc_request *request, void *out);
void weft_rpc_reply_pack(const struct weft_rpc_reply *reply, void *out);

/* The state of a worker's pushes to one table of a shard, at one end. Both ends exchange it when
 * they reconnect: in a TABLE with RESUME it is placed after the table's specification; in the
 * reply, after the head. */
struct weft_rpc_pushes {
    uint64_t newest;    /* largest number of a push that was begun or closed; 0 = none; < 2^63 */
    uint64_t closed[2]; /* bit i: push newest - i is closed. All older pushes are closed */
    uint64_t begun[2];  /* bit i: some chunks of push newest - i are applied. 0 if sent by a
                         * worker */
};

enum { WEFT_RPC_PUSHES_BITS = 128 };

static inline bool weft_rpc_pushes_test(const struct weft_rpc_pushes *pushes, uint64_t number)
{
    uint64_t back = pushes->newest - number;
    return number <= pushes->newest &&
           (back >= WEFT_RPC_PUSHES_BITS || (pushes->closed[back / 64] >> back % 64 & 1) != 0);
}

/* out and bytes must have WEFT_RPC_PUSHES_BYTES.
 * Errors:  WEFT_PROTO  a number so large that its successor could overflow. */
void weft_rpc_pushes_pack(const struct weft_rpc_pushes *pushes, void *out);
weft_status weft_rpc_pushes_unpack(const void *bytes, struct weft_rpc_pushes *pushes_p);

/* out and bytes must have WEFT_RPC_DURABLE_UPTO_BYTES. */
void weft_rpc_durable_upto_pack(uint64_t number, void *out);
uint64_t weft_rpc_durable_upto_unpack(const void *bytes);

/* Errors:  WEFT_PROTO  too short, a reserved field is nonzero, or a field is out of range. */
weft_status weft_rpc_request_unpack(const void *bytes, size_t count,
                                    struct weft_rpc_request *request_p);
weft_status weft_rpc_reply_unpack(const void *bytes, size_t count, struct weft_rpc_reply *reply_p);

#endif
