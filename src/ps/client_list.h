/* Lists inside a client: slices of what an operation was given, the ids that its shards may keep, and
 * pushes that name such a list instead of sending the ids. For the client's files alone.
 */
#ifndef WEFT_PS_CLIENT_LIST_H
#define WEFT_PS_CLIENT_LIST_H

#include "ps/client.h"
#include "ps/layout.h"
#include "ps/table.h"
#include "rpc/head.h"

struct ps_part;

#define WEFT_PS_NONE UINT32_MAX

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

/* A shard's part of a pull: rows first .. first + rows - 1 of its order. */
struct ps_known_part {
    uint32_t shard;
    uint32_t first;
    uint32_t rows;
    uint32_t number; /* of the list that the shard keeps; 0 = none */
    bool is_cold;    /* not of hot rows */
};

/* The ids of a pull. In the ring's memory: ids, parts, and the order where rows were sorted. */
struct ps_known {
    uint32_t life; /* which of those that had this place; 0 = none yet */
    uint16_t table;
    bool is_split; /* parts are of hot rows or of cold ones */
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

/* client_known.c: lists of ids that shards keep */

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
/* Nothing of it is in progress any more. */
void weft_ps_listed_reset(struct weft_ps_client *client, struct ps_part *part);

#endif
