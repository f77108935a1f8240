/* AGGREGATE: the sum of the gradients of several pushes, as one message from an aggregator.
 *
 * Only the format: nothing here sends or holds state. A shard applies an aggregate whole or not at
 * all, because its merged list of rows matches the chunks of none of its members; it closes the
 * numbers of all members together.
 *
 *     bytes         field
 *     40            head of a request; worker = number of the aggregator, rows = rows below
 *     2             members, 1 .. 256
 *     2             columns: 0 = all members' pushes are of the tag's clock; members = each has its
 *                   own; 2 x members = and a base
 *     4             size: bytes of the packed ids
 *     24 each       members: rank u32, session u32, incarnation u64, number u32, rpc_id u32
 *     4 each        clocks of the members, if there are any: 1 .. that of the tag
 *     4 each        bases of the members' updates, if there are any: 1 + base modulo 2^24, 0 = none
 *     size          ids, packed as one list (ps/id_pack.h)
 *     2 each        count of each row: gradients in it, >= 1
 *     4 x dim each  sums, float32
 *
 * Little-endian except the head.
 *
 * Weights. If the table's optimizer is AdaDelay, an aggregator multiplies each gradient by its
 * weight sqrt(a), a = t / (t + delay), before it adds it (ps/optimizer.h). need_clock of the head
 * is the t that it used for all members; 0 = not weighted. The shard does not apply the weights
 * again: it only multiplies the sum by the ratio of the sum of the members' weights at its own t to
 * that at the aggregator's. An aggregator does the same with its sum when a push of a later clock
 * than its t joins, so t is never below a member's clock. The ratio is 1 if t does not change, and
 * exact if all members so far have the same clock. Otherwise each member's weight is wrong,
 * relatively, by less than
 *     (spread of the members' clocks) x (sum of the changes of t) / (smallest t)^2.
 *
 * Source: docs/PROTOCOL.md section 7, "Aggregates".
 */
#ifndef WEFT_PS_AGGREGATE_H
#define WEFT_PS_AGGREGATE_H

#include "rpc/head.h"

/* Part of the protocol: the memory that a shard has per aggregator limits concurrent messages
 * (SLOTS, PULLS) and the size of each message. */
enum {
    WEFT_AGGREGATE_SLOTS = 4,
    WEFT_AGGREGATE_PULLS = 4, /* pulls that an aggregator has in progress at a shard */
    WEFT_AGGREGATE_BYTES_MAX = 8 << 20,
    WEFT_AGGREGATE_MEMBERS_MAX = 256,
    WEFT_AGGREGATE_ROWS_MAX = 1 << 17,
    WEFT_AGGREGATE_COUNT_MAX = UINT16_MAX,
};

/* Appended to the specification by a worker that opens a table at an aggregator: the incarnation of
 * the shard that the worker is connected to, u64. The aggregator replies to its pulls only with
 * rows of that process. */
enum { WEFT_AGGREGATE_SHARD_BYTES = 8 };

/* Appended to that by an aggregator that opens a table at its parent: a bitmap of the numbers of
 * all aggregators whose requests may arrive through it, itself included. A parent that finds its
 * own number there has detected a cycle. */
enum { WEFT_AGGREGATE_NUMBERS_MAX = 256, WEFT_AGGREGATE_BELOW_BYTES = 32 };

enum {
    WEFT_AGGREGATE_HEAD_BYTES = WEFT_RPC_REQUEST_BYTES + 8,
    WEFT_AGGREGATE_MEMBER_BYTES = 24,
    WEFT_AGGREGATE_CLOCK_BYTES = 4,
    WEFT_AGGREGATE_BASE_BYTES = 4,
};

/* One push in an aggregate. */
struct weft_aggregate_member {
    uint32_t rank;
    uint32_t session; /* identifies the worker's connection to the shard: after_seq of its TABLE
                       * request */
    uint64_t incarnation;
    uint32_t number; /* of the push, modulo 2^32 */
    uint32_t rpc_id;
    uint32_t clock; /* of the push; 0 = that of the message's tag. Not in its 24 bytes */
    uint32_t base;  /* 1 + the base of its update modulo 2^24; 0 = none. Not in its 24 bytes */
};

struct weft_aggregate_view {
    struct weft_rpc_request request;
    uint32_t members;
    size_t ids_bytes;
    const uint8_t *member; /* (members,), unaligned, like the pointers below */
    const uint8_t *clocks; /* (members,) u32; NULL: the message has none */
    const uint8_t *bases;  /* the same */
    const uint8_t *ids;
    const uint8_t *counts; /* (rows,) u16 */
    const uint8_t *sums;   /* (rows, dim) */
};

/* Flag of an AGGREGATE that carries the CLOCKs of several workers. It has no rows; the `number` of
 * each member is a clock that its rank has ended. */
enum { WEFT_AGGREGATE_ENDS = WEFT_RPC_UPTO };

/* Flag in `can` of an aggregator's reply to TABLE: the aggregator accepts CLOCK. */
enum { WEFT_AGGREGATE_CAN_CLOCK = WEFT_RPC_CAN_AGGREGATE };

/* In the head of a PUSH to an aggregator, in place of a pull's bound (< 10^6): the sum to which the
 * scheduler assigns the push. The groups of two simultaneous sums differ modulo 3,900. 0 = not
 * assigned. members 1 .. WEFT_AGGREGATE_MEMBERS_MAX. */
enum { WEFT_AGGREGATE_GROUPS = 3900 };

static inline uint32_t weft_aggregate_sum_pack(uint32_t group, uint32_t members)
{
    return 1 + group % WEFT_AGGREGATE_GROUPS * WEFT_AGGREGATE_MEMBERS_MAX + members - 1;
}

/* Cut-through: the number of a push's piece, from 1, in the high byte of rows_critical; 0 = the
 * push is not cut. The pushes of a sum that have the same piece are summed, and forwarded as soon
 * as those of all members have arrived. */
enum { WEFT_PS_PIECES_MAX = 32 };

static inline uint32_t weft_aggregate_piece_pack(uint32_t piece, uint32_t base)
{
    return piece << 24 | base;
}

static inline uint32_t weft_aggregate_sum_members(uint32_t sum)
{
    return (sum - 1) % WEFT_AGGREGATE_MEMBERS_MAX + 1;
}

/* True: pushes to such a table may be summed. False if single gradients are rounded, clipped or
 * inspected, or if the table evicts rows: eviction could remove a row during the check of an
 * aggregate. */
bool weft_aggregate_takes(const struct weft_table_spec *spec);

/* True: gradients for such a table are multiplied by weights before they are summed. Not in BSP,
 * where all gradients of a clock have the same delay, 0. */
bool weft_aggregate_weighs(const struct weft_table_spec *spec);

/* Weight of a gradient of this clock if t is `newest`; 1 if that is 0. */
double weft_aggregate_weight(uint32_t newest, uint32_t clock);

/* What to multiply the sums of a message by to change their weights from the t of its head to
 * `newest`. clock: of its tag. Between 0.7 and 1.5, whatever the message contains. */
double weft_aggregate_reweigh(const struct weft_aggregate_view *view, uint32_t clock,
                              uint32_t newest);

/* Length of the longest message with this many rows and members. */
uint64_t weft_aggregate_bytes_max(uint32_t members, uint32_t rows, uint32_t dim);
/* Rows that fit a message with any ids and members; a push with more cannot be summed. */
uint32_t weft_aggregate_rows_max(uint32_t dim);

void weft_aggregate_head_pack(const struct weft_rpc_request *request, uint32_t members,
                              size_t ids_bytes, uint8_t *out);
/* Mark the head: the members are followed by `columns` numbers: their clocks, or their clocks and
 * their bases. */
void weft_aggregate_head_columns(uint8_t *head, uint32_t columns);
void weft_aggregate_member_pack(const struct weft_aggregate_member *member, uint8_t *out);
struct weft_aggregate_member weft_aggregate_member_at(const struct weft_aggregate_view *view,
                                                      uint32_t i);
/* True: the push of member i has the rank and clock of that of member i - 1, so it is of the same
 * update. Many rows are several pushes. */
bool weft_aggregate_same_update(const struct weft_aggregate_view *view, uint32_t i);
uint32_t weft_aggregate_updates(const struct weft_aggregate_view *view);
uint16_t weft_aggregate_count_at(const struct weft_aggregate_view *view, uint32_t row);

/* bytes: WEFT_AGGREGATE_SHARD_BYTES long. */
void weft_aggregate_shard_pack(uint64_t incarnation, uint8_t *out);
uint64_t weft_aggregate_shard_unpack(const uint8_t *bytes);

/* True: each row has at least one gradient, and every sum is finite. */
bool weft_aggregate_counts_good(const struct weft_aggregate_view *view);
bool weft_aggregate_sums_finite(const struct weft_aggregate_view *view, uint32_t dim);

/* Decide whether to refuse a process that requests the number of a connected aggregator.
 * *since_ns_p: time since when a second process has requested the number. used_ns: time of the last
 * request of the connected aggregator.
 *
 * Usually one process too many was started. It is also possible that the connected aggregator has
 * died and its connection has not timed out yet. The new process is therefore refused, and retries,
 * until the connected one has been silent for long enough. A live but idle aggregator loses nothing
 * when it is replaced. */
bool weft_aggregate_rival_refused(uint64_t *since_ns_p, uint64_t used_ns, uint64_t now_ns);

/* Read an aggregate; untrusted input. dim: of the table. The ids are not checked.
 * Shape:   bytes (count,).
 * Owns:    *view_p borrows bytes.
 * Errors:  WEFT_PROTO  the length is not the sum of the parts; members are not in ascending order
 *          of rank and number; ended clocks are combined with rows, weights or clocks of pushes;
 *          a clock is 0; or a base is out of range. */
weft_status weft_aggregate_unpack(const void *bytes, size_t count, uint32_t dim,
                                  struct weft_aggregate_view *view_p);

#endif
