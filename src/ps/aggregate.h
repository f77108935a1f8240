/* AGGREGATE: the gradients of several pushes, added up on the way, as one message.
 *
 * Only the format: nothing here sends or holds state. Whole, because a merged list of rows matches the
 * chunks of none of its members: a shard applies all of it or nothing, and closes all of its members'
 * numbers together.
 *
 *     bytes         field
 *     40            head of a request; worker = number of the aggregator, rows = rows below
 *     2             members, 1 .. 256
 *     2             clocks: 0 = all members' pushes are of the tag's clock; members = each has its own
 *     4             size: bytes of the packed ids
 *     24 each       members: rank u32, session u32, incarnation u64, number u32, rpc_id u32
 *     4 each        clocks of the members, if there are any: 1 .. that of the tag
 *     size          ids, packed as one list (ps/id_pack.h)
 *     2 each        count of each row: gradients in it, >= 1
 *     4 x dim each  sums, float32
 *
 * Little-endian but for the head.
 *
 * Source: docs/PROTOCOL.md section 7, "Aggregates".
 */
#ifndef WEFT_PS_AGGREGATE_H
#define WEFT_PS_AGGREGATE_H

#include "rpc/head.h"

/* Part of the protocol: a shard has memory for so many messages of so many bytes from each aggregator,
 * with so many members and rows in each. */
enum {
    WEFT_AGGREGATE_SLOTS = 4,
    WEFT_AGGREGATE_PULLS = 4, /* requests for rows that an aggregator has in progress at a shard */
    WEFT_AGGREGATE_BYTES_MAX = 8 << 20,
    WEFT_AGGREGATE_MEMBERS_MAX = 256,
    WEFT_AGGREGATE_ROWS_MAX = 1 << 17,
    WEFT_AGGREGATE_COUNT_MAX = UINT16_MAX,
};

/* What a worker that opens a table at an aggregator says behind the specification: the incarnation of the
 * shard that it is connected to, u64. Its pulls are answered with rows of that process alone. */
enum { WEFT_AGGREGATE_SHARD_BYTES = 8 };

/* What an aggregator says behind that to its parent: the numbers of all aggregators from which requests may come
 * by it, itself included, one bit each. A parent that finds its own number there is below its child. */
enum { WEFT_AGGREGATE_NUMBERS_MAX = 256, WEFT_AGGREGATE_BELOW_BYTES = 32 };

enum {
    WEFT_AGGREGATE_HEAD_BYTES = WEFT_RPC_REQUEST_BYTES + 8,
    WEFT_AGGREGATE_MEMBER_BYTES = 24,
    WEFT_AGGREGATE_CLOCK_BYTES = 4,
};

/* One push in it. */
struct weft_aggregate_member {
    uint32_t rank;
    uint32_t session; /* the worker's connection to the shard: struct weft_rpc_request.after_seq of
                       * TABLE */
    uint64_t incarnation;
    uint32_t number; /* of the push, modulo 2^32 */
    uint32_t rpc_id;
    uint32_t clock; /* of the push; 0 = that of the message's tag. Not in its 24 bytes */
};

struct weft_aggregate_view {
    struct weft_rpc_request request;
    uint32_t members;
    size_t ids_bytes;
    const uint8_t *member; /* (members,), unaligned, as all that follows */
    const uint8_t *clocks; /* (members,) u32; NULL: none are there */
    const uint8_t *ids;
    const uint8_t *counts; /* (rows,) u16 */
    const uint8_t *sums;   /* (rows, dim) */
};

/* In the flags of an AGGREGATE: it has no rows, and the `number` of each member is a clock that this rank has
 * ended: CLOCKs of several workers as one message. */
enum { WEFT_AGGREGATE_ENDS = WEFT_RPC_UPTO };

/* In `can` of an aggregator's answer to TABLE: it takes CLOCK, too. */
enum { WEFT_AGGREGATE_CAN_CLOCK = WEFT_RPC_CAN_AGGREGATE };

/* In the head of a PUSH to an aggregator, in place of a pull's bound (< 10^6): the sum that a scheduler wants
 * it to be in. Of two sums that are made at a time the groups differ modulo 3,900. 0 = none wants that.
 * members 1 .. WEFT_AGGREGATE_MEMBERS_MAX. */
enum { WEFT_AGGREGATE_GROUPS = 3900 };

static inline uint32_t weft_aggregate_sum_pack(uint32_t group, uint32_t members)
{
    return 1 + group % WEFT_AGGREGATE_GROUPS * WEFT_AGGREGATE_MEMBERS_MAX + members - 1;
}

static inline uint32_t weft_aggregate_sum_members(uint32_t sum)
{
    return (sum - 1) % WEFT_AGGREGATE_MEMBERS_MAX + 1;
}

/* May pushes to such a table be added up? Gradients that are rounded, cut at a limit or looked at one by
 * one may not; and rows may not go while the rest of an aggregate is looked at. */
bool weft_aggregate_takes(const struct weft_table_spec *spec);

/* Longest message of so many rows and members. */
uint64_t weft_aggregate_bytes_max(uint32_t members, uint32_t rows, uint32_t dim);

void weft_aggregate_head_pack(const struct weft_rpc_request *request, uint32_t members,
                              size_t ids_bytes, uint8_t *out);
/* Into a head: the members are followed by their clocks. */
void weft_aggregate_head_clocks(uint8_t *head, uint32_t members);
void weft_aggregate_member_pack(const struct weft_aggregate_member *member, uint8_t *out);
struct weft_aggregate_member weft_aggregate_member_at(const struct weft_aggregate_view *view,
                                                      uint32_t i);
uint16_t weft_aggregate_count_at(const struct weft_aggregate_view *view, uint32_t row);

/* WEFT_AGGREGATE_SHARD_BYTES. */
void weft_aggregate_shard_pack(uint64_t incarnation, uint8_t *out);
uint64_t weft_aggregate_shard_unpack(const uint8_t *bytes);

/* Each row has a gradient at least; no sum is infinite or not a number. */
bool weft_aggregate_counts_good(const struct weft_aggregate_view *view);
bool weft_aggregate_sums_finite(const struct weft_aggregate_view *view, uint32_t dim);

/* Another process has connected with the number of one that is connected: is it refused? *since_ns_p: since when
 * one wants the number; used_ns: when the one that has it asked for something last. Most likely there is one too
 * many; or the other has died, perhaps to be replaced by this one, and its connection has not been missed yet. So
 * it is refused, and connects again, until that one has been silent for long enough: one that is idle loses
 * nothing by it. */
bool weft_aggregate_rival_refused(uint64_t *since_ns_p, uint64_t used_ns, uint64_t now_ns);

/* Shape:   bytes (count,): the network's, anything may be in them; dim: of the table.
 * Owns:    *view_p borrows bytes.
 * Errors:  WEFT_PROTO  its parts do not make up its length, or members are not in ascending order of
 *                      rank and number, or clocks that are ended with rows or with clocks of pushes, or one
 *                      of those is 0. The ids are not looked at. */
weft_status weft_aggregate_unpack(const void *bytes, size_t count, uint32_t dim,
                                  struct weft_aggregate_view *view_p);

#endif
