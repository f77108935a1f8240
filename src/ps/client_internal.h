/* The inside of a client, shared by client.c (life, events), client_op.c (operations), client_split.c
 * (pushes and pulls into parts), client_clock.c (clocks), client_part.c (one RPC: made and ended),
 * client_queue.c (when its turn has come), client_send.c (to the transport), client_sent.c (its request
 * is closed), client_reply.c (its answer), client_known.c (lists of ids that shards keep), client_list.c
 * (pushes that name them), client_missed.c (pushes that were missing twice), client_loss.c
 * (which rows were missed), client_last.c (what they were before), residual.c (gradients that were
 * lost), client_deadline.c (operations whose time is over) and client_resume.c (a shard that goes away
 * and comes back). Not for others.
 *
 * An operation becomes parts: one RPC each, at most rows_per_rpc_max rows of one shard. Between a
 * table and a shard there is a link with the state that orders pushes, clocks and pulls.
 */
#ifndef WEFT_PS_CLIENT_INTERNAL_H
#define WEFT_PS_CLIENT_INTERNAL_H

#include "base/prng.h"
#include "ps/client.h"
#include "ps/layout.h"
#include "ps/missed.h"
#include "ps/once.h"
#include "ps/table.h"

#define WEFT_PS_NONE UINT32_MAX

enum {
    PS_RESUME_REQUEST_BYTES = WEFT_RPC_REQUEST_BYTES + WEFT_RPC_SPEC_BYTES + WEFT_RPC_PUSHES_BYTES
};

enum ps_part_state {
    PART_FREE,
    PART_QUEUED, /* in its shard's queue */
    PART_FLYING, /* the transport has the request */
    PART_DONE,
};

static inline uint64_t ps_list_id(const struct weft_ps_list *list, uint32_t row)
{
    return list->ids == NULL ? list->first + row : list->ids[row];
}

/* Floats of a row's block that are in the caller's memory, at *offset_p. */
static inline uint32_t ps_list_used(const struct weft_ps_list *list,
                                    const struct weft_table_spec *spec, uint32_t row,
                                    uint32_t block, size_t *offset_p)
{
    uint64_t at = (uint64_t)row * spec->dim + (uint64_t)block * weft_table_block_floats(spec);
    uint32_t used = weft_table_block_used(spec, block);
    *offset_p = at;
    return at + used <= list->floats ? used : at < list->floats ? (uint32_t)(list->floats - at) : 0;
}

/* The list's rows first .. first + count - 1 as a list. */
static inline struct weft_ps_list ps_list_slice(const struct weft_ps_list *list, uint32_t dim,
                                                uint32_t first, uint32_t count)
{
    struct weft_ps_list slice = *list;
    uint64_t skipped = (uint64_t)first * dim;
    slice.n = count;
    slice.at += first;
    slice.first += first;
    slice.ids = list->ids == NULL ? NULL : list->ids + first;
    slice.floats = list->floats > skipped ? list->floats - skipped : 0;
    slice.values = list->values == NULL ? NULL : list->values + skipped;
    slice.out = list->out == NULL ? NULL : list->out + skipped;
    return slice;
}

/* How the ids of a push that names a list get to its shard.
 *
 *     THERE ---- UNKNOWN_LIST, or a new connection ----> BEFORE
 *     BEFORE --- LIST was taken -----------------------> THERE
 *     BEFORE --- LIST was refused, or cannot be sent --> NONE
 *     any ------ its rows are not sent ----------------> THERE: the head goes alone
 */
enum ps_list_step {
    LIST_THERE,  /* its shard has the list, as far as we know; so, too, of pushes without a list */
    LIST_BEFORE, /* its shard may not have the list: LIST comes before it */
    LIST_NONE,   /* its shard takes no list for it: it goes with its ids */
};

/* The answer says whether the list is known, SENT what came of the chunks, in either order.
 *
 *     NONE ---- SENT with a refusal, without the answer --> SENT ------- the answer --> NONE
 *     NONE ---- the answer is UNKNOWN_LIST ---------------> UNKNOWN ---- SENT --------> NONE
 */
enum ps_list_doubt {
    DOUBT_NONE,
    DOUBT_SENT,    /* SENT came; what it means depends on the answer */
    DOUBT_UNKNOWN, /* the answer said that the list is unknown; SENT is still to come */
};

struct ps_part {
    enum ps_part_state state;
    uint8_t kind;        /* enum weft_rpc_op */
    bool expected;       /* the reply's memory is posted */
    bool request_closed; /* SENT came */
    bool cut;            /* PULL: it asks for a checkpoint */
    bool logged;         /* PUSH: in the log: it and its request stay until they are durable */
    bool begun;          /* PUSH: some chunks of it are applied, and must not be forgotten */
    bool counted;        /* PUSH: closed before its shard went away, and counted then */
    bool head_only;      /* PUSH: its rows stay here: they were lost at its deadline */
    bool voided;         /* PUSH: they were never sent, and never are */
    bool paced;          /* PUSH: given to the transport held, with a pace: client_update.c */
    bool update_open;    /* PUSH: counted among those of its update that are not confirmed */
    bool resent;         /* PUSH: sent before; what arrived then is not known, so all of it must */
    bool reply_closed;   /* RECEIVED came */
    bool in_air;         /* PUSH: counted in pushes_flying, also while its list is sent */
    bool is_ahead;       /* PULL: counted in pulls_ahead */
    bool keeps;          /* PULL: its shard is to keep its ids as a list, `known` */
    bool listed;         /* PUSH: its chunks name a list; all that follows is of such */
    bool list_flying;    /* FLYING is LIST; so are `expected` and the two `closed` */
    bool list_given;     /* LIST was sent for it */
    bool with_ids;       /* it was sent so, from `list_request` */
    enum ps_list_step list_step;
    enum ps_list_doubt list_doubt;
    bool sent_unknown;   /* SENT came, and said UNKNOWN */
    uint8_t list_tries;  /* times that its list was unknown */
    bool list_bad;       /* the answer to LIST made no sense; else it is list_status */
    uint16_t list_status;
    bool late;           /* PUSH: refused whole, as of an update that is too late */
    bool via;            /* FLYING: the aggregator has it; a PUSH the shard may, too; client_via.c */
    bool via_sending;    /* the transport to the aggregator has its memory */
    bool via_answering;  /* and the memory of its answer, which nobody waits for */
    bool via_pull;       /* PULL: sent so last, and not counted among the shard's */
    bool direct;         /* by an aggregator it did not get there */
    bool failing;        /* it fails when its memory comes back */
    bool passed;         /* PUSH: its clock was over on the shard, which went on without this worker */
    bool is_short;       /* PUSH: of the request; so are the next two */
    uint32_t delivered;  /* elements that arrived */
    uint32_t refused;    /* chunks */
    uint16_t table;
    uint32_t shard;
    uint32_t op;    /* WEFT_PS_NONE: a gate, what resumes a table, or a push that was finished */
    struct weft_ps_list list; /* PULL: ids and out are borrowed until done */
    const uint32_t *order; /* (rows,): its rows of the list; NULL: all of it, in its order */
    uint32_t rows;
    uint32_t rows_first; /* PULL: so many of them, at its beginning, had been missed */
    uint32_t rows_must;  /* and of these so many twice running */
    uint32_t bound_ppm; /* PUSH: of the request. PULL: of the answer */
    uint32_t clock;     /* PUSH: of the gradients. PULL: needed */
    uint32_t iteration; /* the worker's clock in progress when the operation was started */
    uint32_t rpc_id;
    uint64_t number; /* PUSH: counted for the link, from 1 */
    uint64_t update; /* PUSH: that it is of; 0 = none */
    uint32_t base;   /* PUSH: updates that its shard had told of, when it was made */
    uint64_t seq;    /* PUSH: of its message */
    uint32_t next;   /* in the shard's queue, which is in the order of `born` */
    uint64_t born;   /* counted when first queued; 0 = before all others */
    weft_expect_id expect;
    uint8_t *request;
    uint32_t request_elems;
    uint16_t request_elem_bytes;
    uint16_t request_chunk_elems; /* as laid out; 0 = not laid out in chunks */
    uint16_t chunk_rows;          /* PUSH with packed ids: most rows in a chunk */
    uint16_t ids_chunk_elems;     /* as laid out when it was sent with its ids; 0 = it was not */
    uint8_t plain_id_bytes;       /* with packed ids, or a list: what they would have without */
    uint32_t known;               /* PULL: place in the client's `known`, */
    uint32_t known_life;          /* if it still is that one, */
    uint32_t known_part;          /* and which of its parts */
    uint32_t list_number;         /* PUSH: name of its list; 0 = none, its ids are in it */
    uint32_t list_rpc_id;         /* of LIST */
    const uint8_t *list_ids;      /* its ids: client_list.c */
    struct ps_held *list_held;    /* memory for `held` */
    uint8_t *reply;
    uint32_t reply_bytes;
};

enum ps_op_state { OP_FREE, OP_ACTIVE, OP_DONE };

struct ps_op {
    enum ps_op_state state;
    uint8_t kind;
    bool abandoned; /* released when it is done; ids and rows are not ours any more */
    bool cut;       /* it asks for a checkpoint */
    uint16_t table; /* TABLE; or of the first list */
    uint32_t lists;
    uint32_t life; /* which of those that had this place */
    uint32_t bound_ppm;
    uint32_t parts; /* made */
    bool logged;    /* they are in the log, from part log_first on */
    uint32_t log_first;
    uint32_t parts_open;
    uint32_t *order; /* (rows_per_op_max,): rows of its lists, list by list, by shard */
    uint8_t *buffer; /* requests and replies of its parts */
    size_t buffer_used;
    uint64_t *missed; /* (rows_per_op_max,) bits: rows of which something was missed */
    uint32_t rows;    /* of all its lists */
    uint64_t deadline_ns;
    bool expired; /* the deadline was seen to */
    bool has_norm; /* PUSH: the caller has said what its parts are together: */
    double squares; /* the square of the norm, until a part has taken it to its update */
    bool late;    /* PULL: done for the caller, with `told`; answers are still to come */
    struct weft_ps_result told;
    struct weft_ps_result result;
};

/* Between one table and one shard. */
struct ps_link {
    uint32_t pushes_open[2]; /* begun and not closed, by parity of their clock: those of the two
                              * clocks behind clock_closed. Later ones, of a shard that has to be
                              * told many clocks again, are counted when it is their turn */
    uint32_t pushes_flying;  /* of these, given to the transport */
    uint32_t flying_xor;     /* of their rpc_ids: with one flying, its rpc_id */
    uint64_t number;         /* of the last push made */
    uint64_t number_closed;  /* all pushes up to this one are closed */
    uint64_t pushed_ns;      /* when one was closed last; 0 = never, or there are no aggregators */
    struct weft_once closed; /* and of those behind it, these */
    uint32_t clock_closed;   /* last CLOCK that the shard has taken */
    uint32_t clock_known;    /* highest version seen in an answer */
    uint32_t clock_passed;   /* that the shard named when it went on after a break: pushes up to it that
                              * were under way may be too late */
    uint64_t blocked_round;  /* round in which a part of it could not go; later ones must wait */
    uint32_t clock_said;     /* the CLOCK that is under way */
    bool clock_sending;
    bool clock_refused;
    uint8_t clock_request[WEFT_RPC_REQUEST_BYTES];
    uint8_t gate_request[WEFT_RPC_REQUEST_BYTES];
    uint8_t gate_reply[WEFT_RPC_REPLY_BYTES];
    uint16_t can;            /* of enum weft_rpc_can: what the shard takes */
    uint8_t list_misses;     /* pushes whose list was unknown, since the last that was known */
    uint32_t list_pause;     /* so many pushes go with their ids */
    uint64_t durable;        /* pushes up to this number are */
    uint64_t durable_early;  /* the same, said before the shard's answer that it goes on */
    bool opened;             /* the shard has this table, as far as we know */
    bool resuming;       /* it has gone and has to say what it knows: all else waits */
    bool gone;           /* it could not go on: gone_status of gone_rpc_status */
    bool resumed_untold; /* `resumed` waits for the caller */
    weft_status gone_status;
    uint16_t gone_rpc_status;
    struct weft_once
        lost; /* numbers that are counted as lost; those behind `number` mean nothing */
    struct weft_ps_resumed resumed;
    uint8_t resume_request[PS_RESUME_REQUEST_BYTES];
    uint8_t resume_reply[WEFT_RPC_REPLY_BYTES + WEFT_RPC_PUSHES_BYTES];
};

struct ps_shard_end {
    weft_peer peer;
    bool down;       /* for good */
    bool away;       /* waited for; nothing of it is in the transport */
    bool connecting; /* away, but `peer` is a new connection that is not up yet */
    uint64_t away_until_ns;
    uint64_t up_ns;             /* when the last connection came up */
    uint64_t again_ns;          /* away: no attempt to connect before */
    uint64_t again_interval_ns; /* 0: the last connection held */
    uint32_t begun_open; /* parts that are `begun`: others wait for them, for a shard keeps the
                          * chunks of few at a time */
    uint32_t resuming;   /* its links that are */
    bool safe_expected; /* memory is posted for what it says is durable */
    weft_expect_id safe_expect;
    uint32_t session;    /* of its connections; ps/aggregate.h */
    uint64_t incarnation; /* of its process */
    uint32_t rpc_id;     /* last used */
    uint32_t pulls_open; /* requests given to the transport and not closed */
    uint32_t pulls_asked; /* pulls given to the transport and not answered */
    uint32_t pulls_ahead; /* and of these, which wait for a clock that this worker has not ended */
    uint32_t list_part;  /* push whose list was given last, until it is closed; WEFT_PS_NONE */
    uint32_t queue_head;
    uint32_t queue_tail;
};

static inline void ps_pull_answered(struct ps_shard_end *end, struct ps_part *part)
{
    if (part->via_pull) {
        return;
    }
    end->pulls_asked--;
    end->pulls_ahead -= part->is_ahead;
    part->is_ahead = false;
}

enum ps_table_state { TABLE_CLOSED, TABLE_OPENING, TABLE_OPEN };

struct ps_table {
    enum ps_table_state state;
    struct weft_table_spec spec;
    uint32_t clock; /* finished by this worker */
    bool passed;    /* a shard has finished it for this worker, which has not ended its step since,
                     * nor pushed for the next clock */
    struct weft_ps_missed missed;
    struct weft_ps_missed push_missed; /* of pushes */
    struct weft_row_store last; /* values that were pulled */
    struct weft_row_store kept; /* gradients that were lost */
};

/* Pushes that are kept: a ring of parts, and one of bytes with their requests, in the same order. */
struct ps_log {
    uint8_t *memory;
    uint64_t bytes;
    uint64_t end;        /* where the next request begins, if it fits there */
    uint32_t first;      /* part number of the ring's first place */
    uint32_t places;
    uint32_t head;       /* place of the oldest */
    uint32_t count;
    uint64_t slow_ns;    /* nearly full: not before this time; 0 = it is not */
    uint64_t full_ns;    /* full since; 0 = it is not */
};

/* A shard's part of a pull: rows first .. first + rows - 1 of its order. */
struct ps_known_part {
    uint32_t shard;
    uint32_t first;
    uint32_t rows;
    uint32_t number; /* of the list that the shard keeps; 0 = none */
};

/* The ids of a pull. In the ring's memory: ids, parts, and the order where rows were sorted. */
struct ps_known {
    uint32_t life; /* which of those that had this place; 0 = none yet */
    uint16_t table;
    uint32_t n;
    uint32_t parts;
    uint64_t at; /* in the memory */
    uint64_t bytes;
    uint64_t *ids;                 /* (n,) */
    struct ps_known_part *part;    /* (parts,) */
    uint32_t *order;               /* (n,): rows of the caller's list; NULL = as they are */
};

/* As many as of the lists of a shard (ps/list_store.h): no shard has a list that is not here. */
enum { PS_KNOWN_MAX = 512 };

/* What was pulled last, as the shards may have kept it. */
struct ps_knowns {
    uint8_t *memory; /* NULL: no lists */
    uint64_t bytes;
    uint32_t first; /* place of the oldest */
    uint32_t count;
    uint32_t lives;
    struct ps_known of[PS_KNOWN_MAX]; /* a ring of places */
};

/* A slice of a chunk whose values are rounded, scratch: elements, at most so many values of them. */
enum { PS_SLICE_VALUES = 1024 };
struct ps_slice {
    float values[PS_SLICE_VALUES]; /* (elements, block_floats); so is the next */
    float sent[PS_SLICE_VALUES];   /* as the other end will read them */
    uint64_t ids[PS_SLICE_VALUES];
    float *kept[PS_SLICE_VALUES]; /* their rows; NULL: nothing is kept */
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
    struct ps_part *parts;     /* operation by operation, then one gate and one to resume for each
                                * link, then those of the log */
    uint32_t parts_per_op;
    uint32_t gates_first;   /* part number of the first gate */
    uint32_t resumes_first; /* and of the first that resumes */
    uint32_t parts_total;
    uint64_t born;           /* of parts */
    uint32_t resumed_untold; /* links */
    uint32_t again_open;     /* pushes that were finished, and are under way again */
    struct ps_log log;
    struct ps_updates *updates; /* NULL: the job has no scheduler */
    uint64_t now_ns;         /* of the last event */
    struct ps_via *vias;     /* (shards,); NULL: no aggregators */
    uint32_t *sort_start;    /* (3 x shards + 1,) scratch */
    uint64_t *sort_first;    /* (rows_per_op_max,) bits, scratch */
    uint64_t *sort_must;     /* the same */
    uint64_t *critical;      /* (WEFT_PS_CHUNKS_MAX,) bits, scratch */
    struct ps_knowns known;
    uint8_t *list_request; /* the LIST that is under way, or the push with ids; NULL: no lists */
    uint32_t list_part;    /* whose that is, WEFT_PS_NONE */
    struct ps_slice *slice;
    uint64_t *unpacked; /* (WEFT_PS_CHUNK_ROWS_MAX or rows_per_rpc_max,) ids, scratch */
    uint32_t ops_active;
    uint32_t clocks_open; /* links whose shard does not know this worker's clock */
    uint32_t clocks_refused; /* links that are `clock_refused` */
    uint64_t round;       /* of progress */
    struct weft_prng prng; /* of the pauses between attempts to connect */
    uint64_t deadline_ns; /* when the next operation expires; may be too early */
};

static inline struct ps_link *ps_link_of(struct weft_ps_client *client, uint16_t table,
                                         uint32_t shard)
{
    return &client->links[(size_t)table * client->config.shards + shard];
}

/* A push is under way from now on, or will be when its list is there. */
static inline void ps_part_take_off(struct ps_link *link, struct ps_part *part)
{
    link->pushes_flying += !part->in_air;
    link->flying_xor ^= part->in_air ? 0 : part->rpc_id;
    part->in_air = true;
}

static inline uint32_t ps_part_row(const struct ps_part *part, uint32_t r)
{
    return part->order == NULL ? r : part->order[r];
}

static inline uint64_t ps_clock_ns(const struct weft_ps_client *client)
{
    return client->config.clock_ns(client->config.clock_arg);
}

/* The client's own values of `user`. */
#define WEFT_PS_USER       (UINT64_C(1) << 63)
#define WEFT_PS_USER_CLOCK (UINT64_C(1) << 62) /* the rest is a link, else a part */
#define WEFT_PS_USER_SAFE  (UINT64_C(1) << 61) /* the rest is a shard */

/* client_via.c: pushes and pulls by way of an aggregator */

#define WEFT_PS_USER_VIA (UINT64_C(1) << 60) /* TABLE to an aggregator; the rest is a link */

/* Errors: WEFT_NOMEM. */
weft_status weft_ps_via_init(struct weft_ps_client *client);
void weft_ps_via_fini(struct weft_ps_client *client);
/* PEER_UP or PEER_DOWN. False: it is not an aggregator's. */
bool weft_ps_via_peer(struct weft_ps_client *client, const struct weft_msg_event *event,
                      uint64_t now_ns);
void weft_ps_via_table_event(struct weft_ps_client *client, const struct weft_msg_event *event);
void weft_ps_via_progress(struct weft_ps_client *client, uint64_t now_ns);
/* When an aggregator has been silent for too long; WEFT_NEVER. */
uint64_t weft_ps_via_deadline(const struct weft_ps_client *client);
/* Do pushes of this table go to the shard's aggregator now? */
bool weft_ps_via_open(const struct weft_ps_client *client, uint16_t table, uint32_t shard);
/* Does this one? */
bool weft_ps_via_takes(const struct weft_ps_client *client, const struct ps_part *part);
/* The same of a pull, where its turn has not come yet. */
bool weft_ps_via_takes_pull(const struct weft_ps_client *client, const struct ps_part *part);
/* How old its rows may be, in microseconds: not older than this worker's last push. UINT32_MAX: any age. */
uint32_t weft_ps_via_age(const struct weft_ps_client *client, const struct ps_part *part);
weft_peer weft_ps_via_peer_of(const struct weft_ps_client *client, const struct ps_part *part);
/* It was given to the transport; it is not the aggregator's any more. */
void weft_ps_via_went(struct weft_ps_client *client, struct ps_part *part, uint64_t now_ns);
void weft_ps_via_leave(struct weft_ps_client *client, struct ps_part *part);
/* The same while the aggregator is there; an answer may be arriving. */
void weft_ps_via_recall(struct weft_ps_client *client, struct ps_part *part);
/* The transport to the aggregator has memory of it. */
static inline bool ps_via_holds(const struct ps_part *part)
{
    return part->via_sending || part->via_answering;
}
/* The answer to a push that was recalled. */
void weft_ps_via_answer_over(struct weft_ps_client *client, uint32_t part);
/* The connection is to end. */
void weft_ps_via_close(struct weft_ps_client *client, uint32_t shard);
void weft_ps_via_sent(struct weft_ps_client *client, uint32_t part,
                      const struct weft_msg_event *event);
/* Its answer came; committed: the shard has it. */
void weft_ps_via_answered(struct weft_ps_client *client, uint32_t part, bool committed);

/* client_missed.c: rule 7 of docs/PROTOCOL.md section 6, for pushes */

enum { WEFT_PS_CHUNKS_MAX = 1 << 18 };

/* For weft_msg_send.critical_mask of this push; NULL = no chunk. Owns: borrowed until the next
 * call. */
const uint64_t *weft_ps_push_critical(struct weft_ps_client *client, const struct ps_part *part);
/* The push was SENT. */
void weft_ps_push_note(struct weft_ps_client *client, const struct ps_part *part,
                       const struct weft_msg_event *event);
/* The push is not sent at all. */
void weft_ps_push_note_all(struct weft_ps_client *client, const struct ps_part *part);

/* client_known.c: lists of ids that shards keep */

static inline bool ps_lists_on(const struct weft_ps_client *client)
{
    return (client->config.can & WEFT_RPC_CAN_LIST) != 0;
}
/* Errors: WEFT_NOMEM. */
weft_status weft_ps_known_init(struct weft_ps_client *client);
void weft_ps_known_fini(struct weft_ps_client *client);
/* A list of a pull was made into parts, from number `first` of the operation on; `order` of its rows,
 * where they have one. Their shards are asked to keep the ids. */
void weft_ps_known_add(struct weft_ps_client *client, uint32_t op, const struct weft_ps_list *list,
                       uint32_t first, const uint32_t *order);
/* The shard has kept the ids of this PULL. */
void weft_ps_known_kept(struct weft_ps_client *client, const struct ps_part *part);
/* The newest pull of just these ids; NULL = there is none. Owns: valid until the next pull begins. */
const struct ps_known *weft_ps_known_find(const struct weft_ps_client *client,
                                          const struct weft_ps_list *list);
/* The shard does not have this list (0: any list) of this table (UINT32_MAX: of any). */
void weft_ps_known_drop(struct weft_ps_client *client, uint32_t table, uint32_t shard,
                        uint32_t number);

/* client_list.c: pushes that name a list */

/* What a push that names a list may take beyond the same with plain ids. */
static inline uint64_t ps_listed_extra(uint64_t plain_bytes)
{
    return 256 + plain_bytes / 32;
}
/* Lay the push out in chunks that name this list. False: it is to be made with ids. */
bool weft_ps_listed_make(struct weft_ps_client *client, struct ps_part *part, uint32_t list);
/* Ids of a chunk of it, into out. */
void weft_ps_listed_ids(const struct ps_part *part, uint32_t chunk,
                        const struct weft_ps_chunk_rows *rows, uint64_t *out);
/* May it go, as to its list? */
bool weft_ps_listed_may_go(const struct weft_ps_client *client, const struct ps_part *part);
/* A request as it is given to the transport. */
struct ps_message {
    uint8_t *base;
    uint32_t total;
    uint16_t elem_bytes;
    uint16_t chunk_elems;
    uint8_t id_bytes;
};
/* Is it to go with its ids? Of one that was begun so, its shard knows chunks of that grid. */
static inline bool ps_listed_goes_with_ids(const struct ps_part *part)
{
    return !part->head_only && (part->list_step == LIST_NONE || (part->begun && part->ids_chunk_elems != 0));
}
/* The same rows with their ids, where the LIST that is under way would be. False: the packets do not
 * hold them, or its shard has begun it in other chunks. */
bool weft_ps_listed_with_ids(struct weft_ps_client *client, struct ps_part *part,
                             struct ps_message *message_p);
/* Give its LIST to the transport. Errors: as of msgr.send; INVALID: it cannot be sent. */
weft_status weft_ps_list_send(struct weft_ps_client *client, struct ps_part *part, uint64_t now_ns);
/* Its shard will not have the list: it is voided, and this is the reason. It is in no queue, or goes on
 * from where it is there, as a head alone. */
void weft_ps_list_void(struct weft_ps_client *client, struct ps_part *part, weft_status status,
                       uint16_t rpc_status);
/* No LIST is wanted for it any more. */
void weft_ps_list_drop(struct weft_ps_client *client, struct ps_part *part);
/* Events of LIST. */
void weft_ps_list_sent(struct weft_ps_client *client, uint32_t part,
                       const struct weft_msg_event *event);
void weft_ps_list_reply(struct weft_ps_client *client, uint32_t part,
                        const struct weft_msg_event *event);
/* SENT of a push that names a list. True: it means nothing yet, or was seen to. */
bool weft_ps_listed_sent(struct weft_ps_client *client, uint32_t part,
                         const struct weft_msg_event *event);
/* Every chunk that came was refused, and the head did not come: as if nothing had come. *event_p is what
 * to take SENT for. */
bool weft_ps_listed_lost(struct weft_ps_client *client, const struct ps_part *part,
                         const struct weft_msg_event *event, struct weft_msg_event *event_p);
/* A request was answered OK: was a list made, or used? */
void weft_ps_list_used(struct weft_ps_client *client, const struct ps_part *part,
                       const struct weft_rpc_reply *reply);
/* The answer is UNKNOWN_LIST. */
void weft_ps_listed_unknown(struct weft_ps_client *client, uint32_t part,
                            const struct weft_rpc_reply *reply);
/* The answer is another one: what SENT means is clear now. */
void weft_ps_listed_answered(struct weft_ps_client *client, uint32_t part);
/* Nothing of it is under way any more. */
void weft_ps_listed_reset(struct weft_ps_client *client, struct ps_part *part);

/* client_part.c */

static inline size_t ps_align8(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}
static inline uint32_t ps_part_index(const struct weft_ps_client *client,
                                     const struct ps_part *part)
{
    return (uint32_t)(part - client->parts);
}
/* Bytes of one operation's buffer. */
size_t weft_ps_op_buffer_bytes(const struct weft_ps_client_config *config, uint32_t parts_per_op);
/* Memory of the part's operation, or of the log, for a request and a reply. */
void weft_ps_part_memory(struct weft_ps_client *client, struct ps_part *part,
                         uint32_t request_elems, uint16_t request_elem_bytes, uint32_t reply_bytes);
/* The request, which is at the beginning of `bytes` bytes, and what else is there up to `used`, became
 * shorter. */
void weft_ps_part_trim(struct weft_ps_client *client, struct ps_part *part, size_t bytes,
                       size_t used);
/* Add a part to an operation and build its request; it is not queued yet. */
uint32_t weft_ps_part_table(struct weft_ps_client *client, uint32_t op, uint32_t shard);
/* list_number: of the list that its rows are; 0 = none. */
uint32_t weft_ps_part_push(struct weft_ps_client *client, uint32_t op,
                           const struct weft_ps_list *list, uint32_t shard, const uint32_t *order,
                           uint32_t rows, uint32_t list_number);
uint32_t weft_ps_part_pull(struct weft_ps_client *client, uint32_t op,
                           const struct weft_ps_list *list, uint32_t shard, const uint32_t *order,
                           uint32_t rows);
void weft_ps_note_status(struct weft_ps_client *client, const struct ps_part *part,
                         weft_status status, uint16_t rpc_status);
void weft_ps_part_done(struct weft_ps_client *client, struct ps_part *part);
/* A push stops counting as open. */
void weft_ps_push_closed(struct weft_ps_client *client, struct ps_part *part);
/* Its shard has gone away and is waited for: it will be sent again, unless it was answered. */
void weft_ps_part_wait(struct weft_ps_client *client, uint32_t part);
/* The shard is gone, or the request cannot be sent. */
void weft_ps_part_fail(struct weft_ps_client *client, uint32_t part, weft_status status);

/* client_queue.c */

/* For the first time: it gets its number and its birth. */
void weft_ps_part_queue(struct weft_ps_client *client, uint32_t part);
/* Into the queue of its shard, where its birth says. */
void weft_ps_part_enqueue(struct weft_ps_client *client, uint32_t part);
/* Out of it: a pull that is never sent, and done. */
void weft_ps_part_withdraw(struct weft_ps_client *client, uint32_t part);
/* A push of the two clocks behind the last that the shard has taken counts as open. */
void weft_ps_push_opened(struct weft_ps_client *client, const struct ps_part *part);
/* A pull of a clock that this worker has not ended, or of which it has still to send pushes: when a shard
 * comes back without them, they are behind it in the queue, and may need a gate. Nothing has to wait for
 * it. */
bool weft_ps_pull_is_ahead(const struct weft_ps_client *client, const struct ps_part *part);
/* This worker has ended a clock of the table: pulls that went ahead of it are as others now. */
void weft_ps_pulls_in_time(struct weft_ps_client *client, uint16_t table);
/* The pushes under way that a pull has to see; *rpc_ids_p: their rpc_ids, with one its own. One that went by
 * an aggregator, and now goes to the shard, went before those that were begun since: these wait for it here. */
uint32_t weft_ps_pushes_before(const struct weft_ps_client *client, const struct ps_part *part,
                               const struct ps_link *link, uint32_t *rpc_ids_p);
/* Give to the transport what may go to `shard` now. */
void weft_ps_shard_send(struct weft_ps_client *client, uint32_t shard, uint64_t now_ns);

/* client_send.c */

/* Give its message to the transport; a push that names a list by the second. Errors: as of msgr.send. */
weft_status weft_ps_part_send(struct weft_ps_client *client, struct ps_part *part, uint64_t now_ns);
weft_status weft_ps_listed_send(struct weft_ps_client *client, struct ps_part *part,
                                uint64_t now_ns);
/* Post the memory of an answer of this op. */
weft_status weft_ps_part_expect(struct weft_ps_client *client, struct ps_part *part, uint8_t op,
                                uint32_t rpc_id);
/* When an answer is closed at the latest; 0 = never. */
uint64_t weft_ps_reply_until(const struct weft_ps_client *client, const struct ps_part *part);
/* A pull of the model asks how many updates are in it. */
bool weft_ps_counts_updates(const struct ps_part *part, const struct ps_link *link);

/* client_sent.c */

void weft_ps_part_sent(struct weft_ps_client *client, uint32_t part,
                       const struct weft_msg_event *event);
/* What came of a push is known: count it. */
void weft_ps_push_sent(struct weft_ps_client *client, uint32_t part,
                       const struct weft_msg_event *event);
/* The same, and nothing else. */
void weft_ps_push_count(struct weft_ps_client *client, struct ps_part *part,
                        const struct weft_msg_event *event);
/* What came of a message, of a push or of an answer to a pull, whose head is as long. */
void weft_ps_count_flow(struct weft_ps_client *client, struct ps_part *part,
                        const struct weft_msg_event *event, uint32_t head_bytes);

/* client_reply.c */

void weft_ps_part_reply(struct weft_ps_client *client, uint32_t part,
                        const struct weft_msg_event *event);
/* The head of an answer; false: it makes no sense. */
bool weft_ps_reply_head(const struct ps_part *part, const struct weft_msg_event *event,
                        uint32_t rpc_id, struct weft_rpc_reply *reply_p);

/* Is the caller's memory still ours? */
static inline bool ps_op_lent(const struct ps_op *op)
{
    return !op->abandoned && !op->late;
}

/* client_rows.c: between the caller's rows and messages */

/* The rows of one chunk of a PUSH: n ids, then n blocks; the one copy that a push makes. */
void weft_ps_rows_gather(const struct ps_part *part, const struct weft_table_spec *spec,
                         uint8_t *chunk, struct weft_ps_chunk_rows place);
/* The ids of a PULL. */
void weft_ps_rows_ids(const struct ps_part *part, uint8_t *out);
/* Blocks of rows first .. first + count - 1 of the part, which are whole, to out. */
void weft_ps_rows_blocks(const struct ps_part *part, const struct weft_table_spec *spec,
                         uint32_t first, uint32_t count, uint8_t *out);
/* Are all of the list's rows in one block each and whole, in any order? */
bool weft_ps_rows_whole(const struct ps_part *part, const struct weft_table_spec *spec);
/* Remember that a pull has missed a row, to ask for it first next time. */
void weft_ps_missed_note(struct weft_ps_client *client, struct ps_table *table, uint64_t id);
/* Copy what came into the caller's rows; what did not come keeps its old value, and is remembered. */
void weft_ps_rows_scatter(struct weft_ps_client *client, const struct ps_part *part,
                          const struct weft_msg_event *event);

/* client_pack.c: requests with packed ids */

/* Lay the part's request out with packed ids, in the memory that it has for plain ones; its shard takes
 * such. False: it would not be shorter, and is to be made with plain ids. */
bool weft_ps_pack(struct weft_ps_client *client, struct ps_part *part, uint32_t bytes_max);
/* A PULL with packed ids, not under way, with plain ones again: the packets of another connection may be
 * shorter. */
void weft_ps_unpack(struct weft_ps_client *client, struct ps_part *part);

/* Chunks of a push that would have this length with plain ids, so that its bound is of use. */
uint32_t weft_ps_chunks_wanted(const struct ps_part *part, uint32_t plain_bytes);

/* The rows of a chunk of a PUSH that was laid out. */
struct ps_chunk {
    uint8_t *bytes;
    struct weft_ps_chunk_rows rows;
    const uint64_t *ids; /* where they are packed; until the next call */
    uint8_t id_bytes; /* WEFT_RPC_ID_PACKED: and blocks are encoded together */
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

/* Of the part. Says so of each once. */
void weft_ps_row_missed(struct weft_ps_client *client, const struct ps_part *part, uint32_t r);
/* All of its rows: it failed, or was refused. */
void weft_ps_part_missed(struct weft_ps_client *client, const struct ps_part *part);
/* The same of a pull; nothing of a push, whose mask tells. */
void weft_ps_pull_missed(struct weft_ps_client *client, const struct ps_part *part);
/* A push is closed: those of the chunks that its mask lacks, or all when all were refused. */
void weft_ps_push_missed(struct weft_ps_client *client, const struct ps_part *part,
                         const struct weft_msg_event *event);

/* client_deadline.c */

/* End operations whose time is over. */
void weft_ps_deadlines(struct weft_ps_client *client, uint64_t now_ns);
/* An operation begins: see to its deadline in time. */
void weft_ps_deadline_arm(struct weft_ps_client *client, const struct ps_op *op);
/* A push is not sent: a head alone will be. Of one that was begun nothing is kept. */
void weft_ps_push_void(struct weft_ps_client *client, struct ps_part *part);
/* A push was closed SHORT, without its head: send that alone, so that it is answered. */
void weft_ps_push_headless(struct weft_ps_client *client, uint32_t part);

/* residual.c */

/* A chunk of a push was gathered: add what is kept of its rows. */
void weft_ps_residual_add(struct weft_ps_client *client, const struct ps_part *part, uint32_t chunk);
/* A push is closed: keep what its mask lacks, if the table does that, and never send it again. */
void weft_ps_residual_keep(struct weft_ps_client *client, const struct ps_part *part,
                           const struct weft_msg_event *event);
/* A push is not sent at all: keep all of it. */
void weft_ps_residual_keep_all(struct weft_ps_client *client, const struct ps_part *part);

/* client_last.c */

/* A block of a row came. Only where table->last.rows_max > 0. */
void weft_ps_last_put(struct weft_ps_client *client, struct ps_table *table, uint64_t id,
                      uint32_t offset, const void *floats, uint32_t count);
/* Row r of a PULL's part, a block of it, did not come: where its operation wants that, the last value. */
void weft_ps_last_fill(struct weft_ps_client *client, const struct ps_part *part, uint32_t r,
                       uint32_t block);

/* client_op.c */

/* A free place of an operation; WEFT_PS_NONE. */
uint32_t weft_ps_op_take(struct weft_ps_client *client, uint8_t kind, uint16_t table);
/* All parts are made: they are queued. False: there are none, so it is done. */
bool weft_ps_op_start(struct weft_ps_client *client, uint32_t op);
void weft_ps_op_part_done(struct weft_ps_client *client, uint32_t op);
/* As the caller sees it, when no more will come. */
void weft_ps_result_settle(const struct ps_op *op, struct weft_ps_result *result);
/* Of a shard that is away nobody can say what its packets hold. */
bool weft_ps_any_away(const struct weft_ps_client *client);

/* client_split.c */

/* A push is laid out in chunks here, so every shard's packets must hold its head and a row. A shard
 * that is gone fails later, in its part. */
bool weft_ps_push_fits(const struct weft_ps_client *client, const struct weft_table_spec *spec,
                       uint32_t id_bytes);

/* client.c */

/* Next rpc_id towards a shard; never 0. */
uint32_t weft_ps_rpc_id(struct weft_ps_client *client, uint32_t shard);

/* client_clock.c */

/* Tell the link's shard of a clock that is over, if its turn has come. */
void weft_ps_clock_send(struct weft_ps_client *client, uint32_t link, uint64_t now_ns);
/* SENT of it. */
void weft_ps_clock_sent(struct weft_ps_client *client, uint32_t link,
                        const struct weft_msg_event *event);
/* clocks_open anew. */
void weft_ps_clocks_count(struct weft_ps_client *client);
/* The shard takes no CLOCK of this table any more; or, after a break, it may again. */
void weft_ps_clock_refuse(struct weft_ps_client *client, struct ps_link *link, bool refused);

/* client_update.c: updates of a job with a scheduler; each with client->updates only */
weft_status weft_ps_updates_init(struct weft_ps_client *client);
void weft_ps_updates_fini(struct weft_ps_client *client);
/* A push is queued for the first time. */
void weft_ps_update_join(struct weft_ps_client *client, struct ps_part *part);
/* An answer said how many updates its shard has opened. */
void weft_ps_update_told(struct weft_ps_client *client, uint32_t shard, uint32_t count);
/* Somebody waits for a push of this table. True: that completed the update that gathers. */
bool weft_ps_update_waited_for(struct weft_ps_client *client, uint16_t table);
/* Some update was completed since the last call. */
bool weft_ps_updates_completed(struct weft_ps_client *client);
/* A clock was ended. Nothing without updates. */
void weft_ps_update_clocked(struct weft_ps_client *client);
/* Must this CLOCK wait for pushes of other tables? */
bool weft_ps_update_keeps_clock(const struct weft_ps_client *client, uint16_t table, uint32_t shard,
                                uint32_t clock);
bool weft_ps_update_may_go(const struct weft_ps_client *client, const struct ps_part *part);
/* How it goes; NULL: at once. */
const struct weft_msg_pace *weft_ps_update_pace(const struct weft_ps_client *client,
                                                const struct ps_part *part);
void weft_ps_update_sending(struct weft_ps_client *client, const struct ps_part *part,
                            uint64_t now_ns);
/* A push of one is confirmed; done; or its shard refused it as late. */
void weft_ps_update_closed(struct weft_ps_client *client, struct ps_part *part);
void weft_ps_update_part_done(struct weft_ps_client *client, struct ps_part *part);
void weft_ps_update_late(struct weft_ps_client *client, const struct ps_part *part);
/* Its rows are not sent: it was dropped. */
void weft_ps_update_void(struct weft_ps_client *client, struct ps_part *part);
/* The transport has given a held push back. */
void weft_ps_update_withdrawn(struct weft_ps_client *client, uint32_t part);

/* client_log.c: pushes that are kept until they are durable */
static inline bool ps_log_on(const struct weft_ps_client *client)
{
    return client->config.replay_bytes > 0;
}
weft_status weft_ps_log_init(struct weft_ps_client *client);
void weft_ps_log_fini(struct weft_ps_client *client);
/* Is there room for a push of these lists? Errors: WEFT_AGAIN, WEFT_NOMEM: as weft_ps_push. */
weft_status weft_ps_log_room(struct weft_ps_client *client, const struct weft_ps_list *lists,
                             uint32_t count, uint64_t now_ns);
/* The next place, and memory for its request and reply: there is room. */
struct ps_part *weft_ps_log_take(struct weft_ps_client *client);
uint8_t *weft_ps_log_memory(struct weft_ps_client *client, size_t bytes);
/* The last `bytes` of what was taken last are not needed. */
void weft_ps_log_give_back(struct weft_ps_client *client, size_t bytes);
/* A part of it is finished, or has failed: it goes when nobody needs it any more. */
void weft_ps_log_done(struct weft_ps_client *client, struct ps_part *part);
/* Those that `theirs` lacks are unfinished again. Returns how many. */
uint32_t weft_ps_log_again(struct weft_ps_client *client, uint16_t table, uint32_t shard,
                           const struct weft_rpc_pushes *theirs);
/* Those that are kept are not over. */
void weft_ps_log_hold(const struct weft_ps_client *client, uint16_t table, uint32_t shard,
                      struct weft_rpc_pushes *ours);
/* What is not needed any more goes. */
void weft_ps_log_sweep(struct weft_ps_client *client, uint16_t table, uint32_t shard);
/* Ask for a checkpoint? */
bool weft_ps_log_filling(const struct weft_ps_client *client);
/* Post memory for what a shard says is durable; take it back. */
void weft_ps_safe_expect(struct weft_ps_client *client, uint32_t shard);
void weft_ps_safe_cancel(struct weft_ps_client *client, uint32_t shard);
void weft_ps_safe_event(struct weft_ps_client *client, const struct weft_msg_event *event);

static inline uint32_t ps_op_part(const struct weft_ps_client *client, uint32_t op, uint32_t i)
{
    const struct ps_op *o = &client->ops[op];
    return o->logged ? client->log.first +
                           (o->log_first - client->log.first + i) % client->log.places
                     : op * client->parts_per_op + i;
}

/* client_resume.c */
void weft_ps_resumes_init(struct weft_ps_client *client);
/* The connection to a shard that is waited for has ended, by PEER_DOWN. */
void weft_ps_shard_away(struct weft_ps_client *client, uint32_t shard, uint64_t now_ns);
/* The new connection is up. */
void weft_ps_shard_back(struct weft_ps_client *client, uint32_t shard);
/* The shard is gone for good: what is unfinished of it fails. */
void weft_ps_shard_down(struct weft_ps_client *client, uint32_t shard);
/* Give those up that were away too long. */
void weft_ps_shards_overdue(struct weft_ps_client *client, uint64_t now_ns);
static inline bool ps_part_resumes(const struct ps_part *part)
{
    return part->op == WEFT_PS_NONE && part->kind == WEFT_RPC_TABLE;
}
/* The answer to what resumes a table; NULL: it made no sense. */
void weft_ps_resume_answered(struct weft_ps_client *client, const struct ps_part *part,
                             const struct weft_rpc_reply *reply);
/* CLOCK was taken, the one before was `from`: pushes of later clocks have come into reach. */
void weft_ps_clock_moved(struct weft_ps_client *client, uint16_t table, uint32_t shard,
                         uint32_t from);
/* Of the first push that is not sent; UINT32_MAX: there is none. */
uint32_t weft_ps_first_push_clock(const struct weft_ps_client *client, uint16_t table,
                                  uint32_t shard);

#endif
