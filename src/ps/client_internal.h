/* Private state of a client, shared by all of its files. Internal to these files.
 *
 *   client.c        lifecycle and events
 *   client_op.h     operations: client_op.c, client_split.c (lists into parts),
 *                   client_deadline.c
 *   client_part.h   one RPC: client_part.c, client_queue.c, client_send.c, client_sent.c,
 *                   client_reply.c
 *   client_link.h   order of pushes, clocks and pulls: client_clock.c; client_resume.c
 *                   (reconnection)
 *   client_list.h   lists of ids that shards keep: client_known.c, client_list.c
 *   client_log.h    pushes kept until they are durable: client_log.c
 *   client_via.h    requests through an aggregator: client_via.c, client_via_clock.c; pushes that
 *                   it acknowledges on apply: client_applied.c; hot rows: client_hot.c; parked
 *                   connections to shards: client_park.c
 *   this header     rows and messages: client_rows.c, client_pack.c; missed rows:
 *                   client_missed.c, client_loss.c, client_last.c, residual.c; updates of a job
 *                   with a scheduler: client_update.c; their reads: client_read.c
 *
 * An operation becomes parts: one RPC each, at most rows_per_rpc_max rows of one shard. Between a
 * table and a shard there is a link with the state that orders pushes, clocks and pulls. */
#ifndef WEFT_PS_CLIENT_INTERNAL_H
#define WEFT_PS_CLIENT_INTERNAL_H

#include "base/prng.h"
#include "ps/client.h"
#include "ps/client_link.h"
#include "ps/client_list.h"
#include "ps/client_log.h"
#include "ps/client_op.h"
#include "ps/client_part.h"
#include "ps/client_via.h"
#include "ps/layout.h"
#include "ps/missed.h"
#include "ps/push_window.h"
#include "ps/table.h"

/* Scratch: a slice of a chunk whose values are rounded, as many whole elements as fit this many
 * values. */
enum { PS_SLICE_VALUES = 1024 };
struct ps_slice {
    float values[PS_SLICE_VALUES]; /* (elements, block_floats); `sent` has the same shape */
    float sent[PS_SLICE_VALUES];   /* as the peer will decode them */
    uint64_t ids[PS_SLICE_VALUES];
    float *kept[PS_SLICE_VALUES]; /* their rows in the store of kept values; NULL: nothing is
                                   * kept */
};

/* Read admission in a job with a scheduler. The number of a step is the clock of its pushes. */
struct ps_reads {
    bool wait;
    bool over_due;
    uint32_t begun;  /* the step whose pulls may be sent; 0 = none */
    uint32_t wanted; /* the step whose pulls wait; 0 = none */
};

struct weft_ps_client {
    struct weft_ps_client_config config;
    struct weft_msgr msgr;
    struct weft_ps_client_counters counters;
    struct weft_ps_latencies push_latencies;
    struct weft_ps_latencies pull_latencies;
    struct ps_shard_end *ends; /* (shards,) */
    struct ps_table *tables;   /* (tables_max,) */
    struct ps_link *links;     /* (tables_max, shards) */
    struct ps_op *ops;         /* (ops_max,) */
    struct ps_part *parts; /* ordered by operation, then one clock probe and one RESUME per link,
                            * then the log's parts */
    uint32_t parts_per_op;
    uint32_t clock_probes_first; /* part number of the first clock probe */
    uint32_t resumes_first;      /* and of the first RESUME */
    uint32_t parts_total;
    uint64_t born;           /* last value of a part's `born` */
    uint32_t resumed_unreported; /* links with an unreported `resumed` */
    uint32_t resent_open;    /* finished pushes that are in progress again */
    struct ps_log log;
    struct ps_updates *updates; /* NULL: the job has no scheduler */
    struct ps_reads reads;
    uint64_t now_ns;     /* of the last event */
    struct ps_via *vias; /* (via_total,), index aggregator x shards + shard; NULL: none */
    uint32_t via_total;
    struct ps_applied *applied; /* pushes acknowledged on apply and not committed */
    uint32_t applied_count;
    uint32_t applied_asked; /* parts in flight that may be acknowledged on apply */
    struct ps_hots *hots;    /* NULL: pushes are not split by hot rows */
    bool parks;              /* connections to shards may be parked: client_park.c */
    bool parks_no_more;      /* reopen parked connections */
    uint32_t *sort_start;    /* (3 x shards + 1,) scratch; twice as large with hots */
    uint64_t *sort_first;    /* (rows_per_op_max,) bits, scratch */
    uint64_t *sort_critical; /* (rows_per_op_max,) bits, scratch */
    uint64_t *sort_cold;     /* (rows_per_op_max,) bits, scratch; NULL without hots */
    uint64_t *critical;      /* (WEFT_PS_CHUNKS_MAX,) bits, scratch */
    struct ps_knowns known;
    uint8_t *list_request; /* memory of the LIST, or of the push with ids, in progress; NULL: no
                            * lists */
    uint32_t list_part;    /* the part that uses list_request; WEFT_PS_NONE */
    struct ps_slice *slice;
    uint64_t *unpacked; /* (WEFT_PS_CHUNK_ROWS_MAX or rows_per_rpc_max,) ids, scratch */
    uint32_t ops_active;
    uint32_t clocks_open;    /* links whose shard has not accepted this worker's last CLOCK */
    uint32_t clocks_refused; /* links that are `clock_refused` */
    uint64_t round;          /* number of calls of weft_ps_client_progress */
    struct weft_prng prng;   /* for the pauses between connection attempts */
    uint64_t deadline_ns;    /* earliest deadline of an operation; may be too early */
};

static inline struct ps_link *ps_link_of(struct weft_ps_client *client, uint16_t table,
                                         uint32_t shard)
{
    return &client->links[(size_t)table * client->config.shards + shard];
}

/* Rows of the largest request that the client sends to any shard. */
static inline uint32_t ps_rows_most(const struct weft_ps_client_config *config)
{
    return (uint32_t)weft_max_u64(config->rows_per_rpc_max, config->rows_long_max);
}

/* The same for this table of this shard. An aggregator has less memory. */
static inline uint32_t ps_rows_most_of(struct weft_ps_client *client, uint16_t table,
                                       uint32_t shard)
{
    bool is_long = (ps_link_of(client, table, shard)->can & WEFT_RPC_CAN_LONG) != 0;
    return is_long && client->vias == NULL ? ps_rows_most(&client->config)
                                           : client->config.rows_per_rpc_max;
}

static inline uint64_t ps_clock_ns(const struct weft_ps_client *client)
{
    return client->config.clock_ns(client->config.clock_arg);
}

static inline uint32_t ps_part_index(const struct weft_ps_client *client,
                                     const struct ps_part *part)
{
    return (uint32_t)(part - client->parts);
}

static inline bool ps_lists_on(const struct weft_ps_client *client)
{
    return (client->config.can & WEFT_RPC_CAN_LIST) != 0;
}

static inline bool ps_log_on(const struct weft_ps_client *client)
{
    return client->config.replay_bytes > 0;
}

static inline uint32_t ps_op_part(const struct weft_ps_client *client, uint32_t op, uint32_t i)
{
    const struct ps_op *o = &client->ops[op];
    return o->logged
               ? client->log.first + (o->log_first - client->log.first + i) % client->log.slots
               : op * client->parts_per_op + i;
}

/* The client's own values of `user`. */
#define WEFT_PS_USER       (UINT64_C(1) << 63)
#define WEFT_PS_USER_CLOCK (UINT64_C(1) << 62) /* the rest is a link, else a part */
#define WEFT_PS_USER_DURABLE (UINT64_C(1) << 61) /* the rest is a shard */
#define WEFT_PS_USER_VIA   (UINT64_C(1) << 60) /* TABLE to an aggregator; the rest is a link */
#define WEFT_PS_USER_HOT   (UINT64_C(1) << 59) /* PULL with HOT; the rest is a link */
#define WEFT_PS_USER_APPLIED (UINT64_C(1) << 58) /* COMMITTED; the rest is an aggregator */

/* Minimum number of requests for the rows of one shard: 2 if hot and cold rows are split. */
static inline uint32_t weft_ps_ways(const struct weft_ps_client_config *config)
{
    return config->hot_rows > 0 && config->via_timeout_ns > 0 && config->update_bytes_min == 0 ? 2
                                                                                               : 1;
}

/* True: pushes may be cut into pieces. */
static inline bool weft_ps_cuts(const struct weft_ps_client_config *config)
{
    return config->pieces > 1 && config->via_timeout_ns > 0 && config->update_bytes_min > 0;
}

/* Maximum number of groups of a list's rows for one shard, each of which becomes requests of its
 * own. */
static inline uint32_t weft_ps_groups(const struct weft_ps_client_config *config)
{
    return weft_ps_cuts(config) ? config->pieces : weft_ps_ways(config);
}

static inline uint32_t weft_ps_vias(const struct weft_ps_client_config *config)
{
    return config->shards * (config->aggregators > 1 ? config->aggregators : 1);
}

/* client_missed.c: rule 7 of docs/PROTOCOL.md section 6, for pushes */

enum { WEFT_PS_CHUNKS_MAX = 1 << 18 };

/* The weft_msg_send.critical_mask of this push; NULL = no chunk is critical. Owns: borrowed until
 * the next call. */
const uint64_t *weft_ps_push_critical(struct weft_ps_client *client, const struct ps_part *part);
/* The push was SENT. */
void weft_ps_push_note(struct weft_ps_client *client, const struct ps_part *part,
                       const struct weft_msg_event *event);
/* The push will not be sent. */
void weft_ps_push_note_all(struct weft_ps_client *client, const struct ps_part *part);

/* client_rows.c: copies between the caller's rows and messages */

/* Write the rows of one chunk of a PUSH: n ids, then n blocks. A push copies its rows only here. */
void weft_ps_rows_gather(const struct ps_part *part, const struct weft_table_spec *spec,
                         uint8_t *chunk, struct weft_ps_chunk_rows place);
/* Write the ids of a PULL. */
void weft_ps_rows_ids(const struct ps_part *part, uint8_t *out);
/* Copy the blocks of rows first .. first + count - 1 of the part to out. The rows must be whole. */
void weft_ps_rows_blocks(const struct ps_part *part, const struct weft_table_spec *spec,
                         uint32_t first, uint32_t count, uint8_t *out);
/* True: every row of the list is complete and one block long. */
bool weft_ps_rows_whole(const struct ps_part *part, const struct weft_table_spec *spec);
/* Remember a row that a pull has missed; the next pull requests it first. */
void weft_ps_missed_note(struct weft_ps_client *client, struct ps_table *table, uint64_t id);
/* Copy the received values to the caller's rows; missing ones keep the old value and are
 * remembered. */
void weft_ps_rows_scatter(struct weft_ps_client *client, const struct ps_part *part,
                          const struct weft_msg_event *event);

/* client_pack.c: requests with packed ids */

/* Lay out the part's request with packed ids, in its memory for plain ids; the shard must accept
 * packed ids. False: it would not be shorter, so use plain ids. */
bool weft_ps_pack(struct weft_ps_client *client, struct ps_part *part, uint32_t bytes_max);
/* Convert a queued PULL from packed to plain ids: the packets of a new connection may be
 * shorter. */
void weft_ps_unpack(struct weft_ps_client *client, struct ps_part *part);

/* Minimum number of chunks of a push that has this length with plain ids. With fewer, its loss
 * bound would have no effect. */
uint32_t weft_ps_chunks_wanted(const struct ps_part *part, uint32_t plain_bytes);

/* The rows of a chunk of a PUSH after layout. */
struct ps_chunk {
    uint8_t *bytes;
    struct weft_ps_chunk_rows rows;
    const uint64_t *ids; /* packed ids, unpacked; valid until the next call */
    uint8_t id_bytes;    /* WEFT_RPC_ID_PACKED: blocks are encoded together, too */
};

struct ps_chunk weft_ps_chunk_of(struct weft_ps_client *client, const struct ps_part *part,
                                 uint32_t chunk, bool with_ids);

static inline uint64_t ps_chunk_id(const struct ps_chunk *chunk, uint32_t i)
{
    uint64_t id;
    if (chunk->ids != NULL) {
        return chunk->ids[i];
    }
    weft_ps_load_ids(chunk->bytes + chunk->rows.ids_offset + (size_t)i * chunk->id_bytes,
                     chunk->id_bytes, 1, &id);
    return id;
}

static inline uint32_t ps_part_chunks(const struct ps_part *part)
{
    return (part->request_elems + part->request_chunk_elems - 1) / part->request_chunk_elems;
}

/* client_loss.c: which rows of an operation did not arrive whole */

/* Mark row r of the part as missed; each row counts once. */
void weft_ps_row_missed(struct weft_ps_client *client, const struct ps_part *part, uint32_t r);
/* Mark all rows of a part that failed or was refused. */
void weft_ps_part_missed(struct weft_ps_client *client, const struct ps_part *part);
/* The same for a pull. No effect for a push: its mask decides. */
void weft_ps_pull_missed(struct weft_ps_client *client, const struct ps_part *part);
/* A push is closed: mark the rows of chunks missing from its mask, or all rows if all chunks were
 * refused. */
void weft_ps_push_missed(struct weft_ps_client *client, const struct ps_part *part,
                         const struct weft_msg_event *event);

/* residual.c */

/* A chunk of a push was gathered: add the kept residuals of its rows. */
void weft_ps_residual_add(struct weft_ps_client *client, const struct ps_part *part,
                          uint32_t chunk);
/* A push is closed: if the table has error feedback, keep the rows of chunks missing from its mask.
 * The push must not be resent. */
void weft_ps_residual_keep(struct weft_ps_client *client, const struct ps_part *part,
                           const struct weft_msg_event *event);
/* A push will not be sent: keep all of its rows. */
void weft_ps_residual_keep_all(struct weft_ps_client *client, const struct ps_part *part);

/* client_last.c */

/* Remember a received block of a row. Requires table->last.rows_max > 0. */
void weft_ps_last_put(struct weft_ps_client *client, struct ps_table *table, uint64_t id,
                      uint32_t offset, const void *floats, uint32_t count);
/* A block of row r of a PULL is missing: set it to the last value, if the operation requests
 * that. */
void weft_ps_last_fill(struct weft_ps_client *client, const struct ps_part *part, uint32_t r,
                       uint32_t block);

/* client.c */

/* Next rpc_id for a shard; never 0. */
uint32_t weft_ps_rpc_id(struct weft_ps_client *client, uint32_t shard);

/* client_hot.c: hot rows; no effect without client->hots */

/* Errors: WEFT_NOMEM. */
weft_status weft_ps_hots_init(struct weft_ps_client *client);
void weft_ps_hots_fini(struct weft_ps_client *client);
/* True: operations on this table are split at one shard at least. */
bool weft_ps_hot_splits(const struct weft_ps_client *client, uint16_t table, bool is_pull);
/* True: this row is cold, so it is sent to the shard. Requires client->hots. */
bool weft_ps_hot_is_cold(const struct weft_ps_client *client, uint16_t table, uint32_t shard,
                         uint64_t id);
/* Rows of this table are pushed: request its hot set if due. */
void weft_ps_hot_want(struct weft_ps_client *client, uint16_t table, uint64_t now_ns);
void weft_ps_hot_progress(struct weft_ps_client *client, uint64_t now_ns);
void weft_ps_hot_event(struct weft_ps_client *client, const struct weft_msg_event *event);
/* The connection to the shard has ended. */
void weft_ps_hot_away(struct weft_ps_client *client, uint32_t shard);

/* client_update.c: updates of a job with a scheduler; these require client->updates */
weft_status weft_ps_updates_init(struct weft_ps_client *client);
void weft_ps_updates_fini(struct weft_ps_client *client);
/* A push is queued for the first time. */
void weft_ps_update_join(struct weft_ps_client *client, struct ps_part *part);
/* A reply reported the number of updates that its shard has opened. */
void weft_ps_update_set_count(struct weft_ps_client *client, uint32_t shard, uint32_t count);
/* An operation waits for a push of this table. True: this completed the update that was still
 * collecting pushes. */
bool weft_ps_update_waited_for(struct weft_ps_client *client, uint16_t table);
/* True: an update was completed since the last call. */
bool weft_ps_updates_completed(struct weft_ps_client *client);
/* A clock was ended. No effect without updates. */
void weft_ps_update_clocked(struct weft_ps_client *client);
/* True: this CLOCK must wait for pushes of other tables. */
bool weft_ps_update_keeps_clock(const struct weft_ps_client *client, uint16_t table, uint32_t shard,
                                uint32_t clock);
bool weft_ps_update_may_go(const struct weft_ps_client *client, const struct ps_part *part);
/* The pace of the push; NULL: send at once. */
const struct weft_msg_pace *weft_ps_update_pace(const struct weft_ps_client *client,
                                                const struct ps_part *part);
void weft_ps_update_sending(struct weft_ps_client *client, const struct ps_part *part,
                            uint64_t now_ns);
/* Events of a push of an update: closed by the transport; done; refused as late
 * (weft_ps_update_late). */
void weft_ps_update_closed(struct weft_ps_client *client, struct ps_part *part);
void weft_ps_update_part_done(struct weft_ps_client *client, struct ps_part *part);
/* hop: index of the granted aggregator plus 1; 0 = none. sum: the sum field of the request head. */
uint32_t weft_ps_update_hop(const struct weft_ps_client *client, const struct ps_part *part);
uint32_t weft_ps_update_sum(const struct weft_ps_client *client, const struct ps_part *part);
/* The aggregator has received the push. No effect if the push is of no update. */
void weft_ps_update_at_hop(struct weft_ps_client *client, const struct ps_part *part);
void weft_ps_update_late(struct weft_ps_client *client, const struct ps_part *part);
/* The update was dropped: the rows of the push will not be sent. */
void weft_ps_update_void(struct weft_ps_client *client, struct ps_part *part);
/* The transport has returned a held push. */
void weft_ps_update_withdrawn(struct weft_ps_client *client, uint32_t part);
/* An update of this clock or a later one is in progress. */
bool weft_ps_update_of(const struct weft_ps_client *client, uint32_t clock);
/* True: an update without a grant is in progress. */
bool weft_ps_updates_ungranted(const struct weft_ps_client *client);
/* True: the last complete update with a grant had a push with too many rows for a sum. */
bool weft_ps_updates_too_long(const struct weft_ps_client *client);

/* client_read.c */

/* True: this part waits for admission of its step's read. */
bool weft_ps_read_holds(const struct weft_ps_client *client, const struct ps_part *part);
/* True: a pull that is otherwise ready may be sent. False: it waits; admission of its step's read
 * is requested. */
bool weft_ps_read_may_go(struct weft_ps_client *client, const struct ps_part *part);
/* read_pushes: the step has queued a push. read_pushed: all its pushes are done. */
void weft_ps_read_pushes(struct weft_ps_client *client, uint32_t clock);
void weft_ps_read_pushed(struct weft_ps_client *client, uint32_t clock);

#endif
