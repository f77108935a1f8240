/* One RPC of a client: a part of an operation, at most rows_per_rpc_max rows of one shard. Internal
 * to the client's files.
 *
 *     FREE --built, and added to its shard's queue--> QUEUED
 *     QUEUED --the transport accepts its request--> FLYING
 *     FLYING --SENT: `request_closed`, and the answer: ANSWER_CLOSED, in either order--> DONE
 *     FLYING --the connection breaks, and the client waits for the shard--> QUEUED, to be resent
 *     FLYING --an aggregator refuses it--> QUEUED, to be sent to the shard
 *     FLYING --its LIST is closed and answered, or its list is unknown--> QUEUED
 *     QUEUED, FLYING --the shard is down, or the request cannot be sent--> DONE, failed
 *     QUEUED, FLYING --the same, while a transport owns its memory--> FLYING, `failing`
 *     QUEUED --the pull was abandoned--> DONE, never sent
 *     DONE --its operation is released; of the log: it is durable--> FREE
 *     DONE --of the log: its shard restarted without it--> QUEUED, to be resent
 *     DONE --a clock probe, or RESUME of a table: sent to its shard once more--> QUEUED
 *
 * ps_part_to makes these transitions, and asserts that there is no other.
 *
 * A push counts as open for its clock from when it is queued until its request is closed
 * (weft_ps_push_opened, weft_ps_push_closed); the CLOCK waits for that.
 *
 *     client_part.c   build, complete    client_sent.c   SENT
 *     client_queue.c  order of sending   client_reply.c  the answer
 *     client_send.c   send */
#ifndef WEFT_PS_CLIENT_PART_H
#define WEFT_PS_CLIENT_PART_H

#include "base/assert.h"
#include "ps/client_list.h"
#include "rpc/head.h"

struct ps_link;

enum ps_part_state {
    PART_FREE,
    PART_QUEUED, /* in its shard's queue */
    PART_FLYING, /* the transport owns the request */
    PART_DONE,
};

/* The memory of the answer.
 *
 *     NONE --the memory is posted, before the request is sent--> POSTED
 *     POSTED --RECEIVED--> CLOSED
 *     POSTED, CLOSED --the part will be resent, to another peer or on another connection--> NONE
 *     POSTED --the part is not sent, or is recalled from its aggregator: cancelled--> NONE
 */
enum ps_part_answer {
    ANSWER_NONE,
    ANSWER_POSTED,
    ANSWER_CLOSED,
};

/* Whether the rows of a push are sent with its head.
 *
 *     GO --closed by its deadline, and the head was lost, too--> LOST
 *     LOST --its shard is connected again, and may need all of it--> GO
 *     GO, LOST --its deadline passed before it was sent, or no list can be named--> NEVER */
enum ps_part_rows {
    ROWS_GO,
    ROWS_LOST,  /* the head is sent alone: the shard must learn that the push is over */
    ROWS_NEVER, /* the same, and when resent, too: its rows were counted as missed */
};

/* The message in flight for a part. `answer` and `request_closed` describe this message.
 *
 *     OWN --LIST is sent--> LIST --LIST is closed and answered--> OWN
 *     OWN --the push is sent with its ids--> IDS
 *     LIST, IDS --the connection breaks, or the part fails--> OWN
 */
enum ps_part_message {
    MESSAGE_OWN,  /* the part's request, as laid out when the part was made */
    MESSAGE_LIST, /* PUSH that names a list: LIST, which precedes the push */
    MESSAGE_IDS,  /* PUSH that names a list: the same rows with their ids, from `list_request` */
};

/* The route of a part.
 *
 *     OPEN --an aggregator accepts it--> VIA
 *     VIA --the aggregator commits it--> OPEN
 *     VIA --refused, recalled, the aggregator is gone, or its transport is full--> DIRECT
 *
 * DIRECT is final, so that a part makes at most one detour. weft_ps_part_queue starts at OPEN.
 */
enum ps_part_route {
    ROUTE_OPEN,   /* to the shard, unless an aggregator accepts the part when it is sent */
    ROUTE_VIA,    /* FLYING: sent to an aggregator. The shard may have a PUSH, too */
    ROUTE_DIRECT, /* to the shard only */
};

/* A refusal by the shard that leaves the operation OK: the refused elements count as not delivered.
 * Set with every answer, so that a push sent again has the refusal of its last answer only.
 */
enum ps_part_refusal {
    REFUSAL_NONE,
    REFUSAL_LATE,   /* LATE: the update is too old, and no element was applied */
    REFUSAL_PASSED, /* STALE_CLOCK: after a break the shard ended the clock without this worker */
};

/* The second reply to a push that may be acknowledged on apply, if it has overtaken the first. */
enum ps_part_second { SECOND_NONE, SECOND_COMMITTED, SECOND_LOST };

struct ps_part {
    enum ps_part_state state;
    uint8_t kind; /* enum weft_rpc_op */
    enum ps_part_answer answer;
    bool request_closed; /* SENT arrived */
    bool cut;            /* PULL: requests a checkpoint */
    bool logged;         /* PUSH: kept in the log with its request until it is durable */
    bool begun;   /* PUSH: the shard applied some chunks of it, and must be sent the others */
    bool counted; /* PUSH: its outcome is in the counters and the result */
    enum ps_part_rows rows_state; /* PUSH: set by ps_part_rows_to */
    bool paced;       /* PUSH: given to the transport held, with a pace: client_update.c */
    bool update_open; /* PUSH: counted in `open` of its update: not closed by the transport yet */
    bool resent;      /* PUSH: sent before, with unknown outcome, so now all of it must arrive */
    bool is_cold;     /* to the shard only: its rows are not hot. Set when it is made */
    uint8_t piece;    /* PUSH: number of its piece, from 1; 0 = not cut. Set when it is made */
    bool in_air;      /* PUSH: counted in pushes_flying, also while its list is sent */
    bool is_ahead;    /* PULL: counted in pulls_ahead */
    bool keeps;       /* PULL: the shard is requested to keep its ids as a list, `known` */
    bool listed;      /* PUSH: its chunks name a list; the fields up to list_status need one */
    bool list_given;  /* LIST was sent for it on this connection */
    enum ps_part_message message; /* which is in flight; set by ps_part_message_to */
    enum ps_list_step list_step;
    enum ps_list_doubt list_doubt;
    bool sent_unknown;  /* SENT arrived, with outcome UNKNOWN */
    uint8_t list_tries; /* times that its list was unknown */
    bool list_bad;      /* the answer to LIST was malformed; else its status is list_status */
    uint16_t list_status;
    enum ps_part_refusal refusal; /* PUSH: why the shard refused it and the operation is still OK */
    enum ps_part_route route;     /* set by ps_part_route_to; client_via.c */
    bool via_sending;   /* the transport to the aggregator owns the request's memory until SENT */
    bool via_answering; /* that transport owns the reply's memory; the reply will be discarded */
    bool via_pull;      /* PULL: last sent by an aggregator, so not in the shard's pulls_open */
    uint32_t via_index; /* the aggregator of `route`, via_sending and via_answering, in `vias` */
    bool on_apply;      /* PUSH, VIA: may be acknowledged on apply; counted in applied_asked */
    enum ps_part_second second; /* of that push */
    bool failing;       /* FLYING: fails as soon as via_sending and via_answering are false */
    bool is_short;      /* PUSH: outcome of the request, like the next two */
    uint32_t delivered; /* elements delivered */
    uint32_t refused;   /* chunks refused */
    uint16_t table;
    uint32_t shard;
    uint32_t op; /* WEFT_PS_NONE: a clock probe, RESUME of a table, or a finished push */
    struct weft_ps_list list; /* PULL: ids and out are borrowed until done */
    const uint32_t *order;    /* (rows,): its rows of the list; NULL: all of it, in its order */
    uint32_t rows;
    uint32_t rows_first;    /* PULL: number of leading rows that had been missed before */
    uint32_t rows_critical; /* of these, number of leading rows missed twice in a row */
    uint32_t bound_ppm;     /* PUSH: of the request. PULL: of the answer */
    uint32_t clock;         /* PUSH: of the gradients. PULL: needed */
    uint32_t iteration;     /* the worker's clock in progress when the operation started */
    uint64_t via_sent_ns;   /* via: when it was sent */
    uint32_t rpc_id;
    uint64_t number; /* PUSH: counted for the link, from 1 */
    uint64_t update; /* PUSH: its update; 0 = none */
    uint32_t base;   /* PUSH: number of updates last reported by its shard when the push was
                      * built */
    uint64_t seq;    /* PUSH: of its message */
    uint32_t next;   /* next part in the shard's queue, which is sorted by `born` */
    uint64_t born;   /* counted when first queued; 0 = before all others */
    weft_expect_id expect;
    uint8_t *request;
    uint32_t request_elems;
    uint16_t request_elem_bytes;
    uint16_t request_chunk_elems; /* as laid out; 0 = not laid out in chunks */
    uint16_t chunk_rows;          /* PUSH with packed ids: most rows in a chunk */
    uint16_t ids_chunk_elems;     /* chunk_elems when it was sent with its ids; 0 = it was not */
    uint8_t plain_id_bytes;       /* with packed ids, or a list: id_bytes of the plain form */
    uint32_t known;               /* PULL: index in the client's `known`, */
    uint32_t known_life;          /* its generation there, */
    uint32_t known_part;          /* and the part of that entry */
    uint32_t list_number;         /* PUSH: name of its list; 0 = none, the push carries its ids */
    uint32_t list_rpc_id;         /* of LIST */
    const uint8_t *list_ids;      /* its ids: client_list.c */
    struct ps_held *list_held;    /* memory for SENT, with DOUBT_SENT */
    uint8_t *reply;
    uint32_t reply_bytes;
};

/* Change the state along an arrow of the diagram above; asserts that there is one. */
static inline void ps_part_to(struct ps_part *part, enum ps_part_state to)
{
    static const uint8_t may[] = {
        [PART_FREE] = 1U << PART_FREE | 1U << PART_QUEUED, /* released without having been queued */
        [PART_QUEUED] = 1U << PART_FLYING | 1U << PART_DONE,
        [PART_FLYING] = 1U << PART_FLYING | 1U << PART_QUEUED | 1U << PART_DONE,
        [PART_DONE] = 1U << PART_FREE | 1U << PART_QUEUED,
    };
    WEFT_ASSERT((may[part->state] >> to & 1) != 0);
    part->state = to;
}

/* The memory of the answer was posted. */
static inline void ps_part_posted(struct ps_part *part)
{
    WEFT_ASSERT(part->answer == ANSWER_NONE);
    part->answer = ANSWER_POSTED;
}

/* A reset leads from any state to OWN. */
static inline void ps_part_message_to(struct ps_part *part, enum ps_part_message to)
{
    WEFT_ASSERT(to == MESSAGE_OWN || part->message == MESSAGE_OWN);
    part->message = to;
}

static inline void ps_part_route_to(struct ps_part *part, enum ps_part_route to)
{
    static const uint8_t may[] = {
        [ROUTE_OPEN] = 1U << ROUTE_VIA,
        [ROUTE_VIA] = 1U << ROUTE_OPEN | 1U << ROUTE_DIRECT,
        [ROUTE_DIRECT] = 0,
    };
    WEFT_ASSERT((may[part->route] >> to & 1) != 0);
    part->route = to;
}

static inline bool ps_part_is_via(const struct ps_part *part)
{
    return part->route == ROUTE_VIA;
}

static inline bool ps_part_head_only(const struct ps_part *part)
{
    return part->rows_state != ROWS_GO;
}

/* ROWS_NEVER is final. */
static inline void ps_part_rows_to(struct ps_part *part, enum ps_part_rows to)
{
    part->rows_state = part->rows_state == ROWS_NEVER ? ROWS_NEVER : to;
}

static inline uint32_t ps_part_row(const struct ps_part *part, uint32_t r)
{
    return part->order == NULL ? r : part->order[r];
}

/* True: the push must be sent with its ids. Also true if it was begun that way: the shard has
 * chunks of that grid. */
static inline bool ps_listed_goes_with_ids(const struct ps_part *part)
{
    return !ps_part_head_only(part) &&
           (part->list_step == LIST_NONE || (part->begun && part->ids_chunk_elems != 0));
}

/* True: the transport to the aggregator owns memory of the part. */
static inline bool ps_via_holds(const struct ps_part *part)
{
    return part->via_sending || part->via_answering;
}

static inline bool ps_part_resumes(const struct ps_part *part)
{
    return part->op == WEFT_PS_NONE && part->kind == WEFT_RPC_TABLE;
}

/* client_part.c */

static inline size_t ps_align8(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}
/* Bytes of one operation's buffer. */
size_t weft_ps_op_buffer_bytes(const struct weft_ps_client_config *config, uint32_t parts_per_op);
/* Allocate memory for a request and a reply, from the part's operation or from the log. */
void weft_ps_part_memory(struct weft_ps_client *client, struct ps_part *part,
                         uint32_t request_elems, uint16_t request_elem_bytes, uint32_t reply_bytes);
/* Shrink an allocation of `bytes` bytes, which begins with the request, to its first `used`
 * bytes. */
void weft_ps_part_trim(struct weft_ps_client *client, struct ps_part *part, size_t bytes,
                       size_t used);
/* Add a part to an operation and build its request; it is not queued yet. */
uint32_t weft_ps_part_table(struct weft_ps_client *client, uint32_t op, uint32_t shard);
/* list_number: the list of ids that names its rows; 0 = none. */
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
/* The same for a push without a part. */
void weft_ps_number_closed(struct weft_ps_client *client, struct ps_link *link, uint32_t clock,
                           uint64_t number);
/* The shard is disconnected and the client waits for it: the part will be resent, unless it was
 * answered. */
void weft_ps_part_wait(struct weft_ps_client *client, uint32_t part);
/* The shard is down, or the request cannot be sent. */
void weft_ps_part_fail(struct weft_ps_client *client, uint32_t part, weft_status status);

/* client_queue.c */

/* Queue the part for the first time, and assign its `number` and `born`. */
void weft_ps_part_queue(struct weft_ps_client *client, uint32_t part);
/* Insert the part into its shard's queue, sorted by `born`. */
void weft_ps_part_enqueue(struct weft_ps_client *client, uint32_t part);
/* Remove an unsent pull from the queue; it is done. */
void weft_ps_part_withdraw(struct weft_ps_client *client, uint32_t part);
/* Count the push as open, if it belongs to one of the two clocks after the shard's last CLOCK. */
void weft_ps_push_opened(struct weft_ps_client *client, const struct ps_part *part);
/* True: this pull waits for a clock that the worker has not ended, or for which it still has pushes
 * to send. If a shard restarts without these pushes, they are queued after the pull and may need a
 * clock probe. Therefore nothing may wait for such a pull. */
bool weft_ps_pull_is_ahead(const struct weft_ps_client *client, const struct ps_part *part);
/* This worker has ended a clock of the table: pulls that were prefetching for it are ordinary pulls
 * now. */
void weft_ps_pulls_in_time(struct weft_ps_client *client, uint16_t table);
/* Number of pushes in flight that a pull must see; *rpc_ids_p: XOR of their rpc_ids, so with one
 * push its rpc_id. A push that was sent to an aggregator, and is now resent to the shard, precedes
 * pushes begun since: these wait for it. */
uint32_t weft_ps_pushes_before(const struct weft_ps_client *client, const struct ps_part *part,
                               const struct ps_link *link, uint32_t *rpc_ids_p);
/* Pass everything that may be sent to `shard` now to the transport. */
void weft_ps_shard_send(struct weft_ps_client *client, uint32_t shard, uint64_t now_ns);

/* client_send.c */

/* Pass the part's message to the transport; listed_send: a push that names a list. Errors: as of
 * msgr.send. */
weft_status weft_ps_part_send(struct weft_ps_client *client, struct ps_part *part, uint64_t now_ns);
weft_status weft_ps_listed_send(struct weft_ps_client *client, struct ps_part *part,
                                uint64_t now_ns);
/* Post memory for the answer to this op. */
weft_status weft_ps_part_expect(struct weft_ps_client *client, struct ps_part *part, uint8_t op,
                                uint32_t rpc_id);
/* Latest time at which the answer is closed; 0 = no limit. */
uint64_t weft_ps_reply_until(const struct weft_ps_client *client, const struct ps_part *part);
/* True: this pull requests the number of updates in the model. */
bool weft_ps_counts_updates(const struct ps_part *part, const struct ps_link *link);

/* client_sent.c */

void weft_ps_part_sent(struct weft_ps_client *client, uint32_t part,
                       const struct weft_msg_event *event);
/* The outcome of a push is known: count it, and continue the part. */
void weft_ps_push_sent(struct weft_ps_client *client, uint32_t part,
                       const struct weft_msg_event *event);
/* Only count the outcome. */
void weft_ps_push_count(struct weft_ps_client *client, struct ps_part *part,
                        const struct weft_msg_event *event);
/* Count the outcome of a push or of an answer to a pull, whose head has head_bytes bytes. */
void weft_ps_count_flow(struct weft_ps_client *client, struct ps_part *part,
                        const struct weft_msg_event *event, uint32_t head_bytes);

/* client_reply.c */

void weft_ps_part_reply(struct weft_ps_client *client, uint32_t part,
                        const struct weft_msg_event *event);
/* Unpack the head of an answer; false: it is malformed. */
bool weft_ps_reply_head(const struct ps_part *part, const struct weft_msg_event *event,
                        uint32_t rpc_id, struct weft_rpc_reply *reply_p);

#endif
