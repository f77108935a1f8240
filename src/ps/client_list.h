/* Lists of a client: slices of an operation's rows, the ids that its shards may keep, and pushes
 * that name such a list instead of sending the ids. Internal to the client's files. */
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

/* Number of floats of a row's block in the caller's memory; they begin at *offset_p. */
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

/* How the shard obtains the ids of a push that names a list.
 *
 *     THERE ---- UNKNOWN_LIST, or a new connection ----> BEFORE
 *     BEFORE --- LIST was accepted --------------------> THERE
 *     BEFORE --- LIST was refused, or cannot be sent --> NONE
 *     any ------ its rows are not sent ----------------> THERE: only the head is sent
 */
enum ps_list_step {
    LIST_THERE,  /* its shard is assumed to have the list; also the value for pushes without a
                  * list */
    LIST_BEFORE, /* its shard may lack the list: LIST is sent first */
    LIST_NONE,   /* its shard accepts no list for it: it is sent with its ids */
};

/* The answer reports whether the list is known, SENT reports which chunks arrived. They come in
 * either order.
 *
 *     NONE ---- SENT with a refusal, without the answer --> SENT ------- the answer --> NONE
 *     NONE ---- the answer is UNKNOWN_LIST ---------------> UNKNOWN ---- SENT --------> NONE
 */
enum ps_list_doubt {
    DOUBT_NONE,
    DOUBT_SENT,    /* SENT arrived; its meaning depends on the answer */
    DOUBT_UNKNOWN, /* the answer was UNKNOWN_LIST; SENT is outstanding */
};

/* A shard's part of a pull: rows first .. first + rows - 1 of its order. */
struct ps_known_part {
    uint32_t shard;
    uint32_t first;
    uint32_t rows;
    uint32_t number; /* of the list that the shard keeps; 0 = none */
    bool is_cold;    /* the part has cold rows */
};

/* The ids of a pull. In the ring's memory: ids, parts, and the order where rows were sorted. */
struct ps_known {
    uint32_t life; /* generation of this slot; 0 = never used */
    uint16_t table;
    bool is_split; /* hot and cold rows are in separate parts */
    uint32_t n;
    uint32_t parts;
    uint64_t at; /* in the memory */
    uint64_t bytes;
    uint64_t *ids;              /* (n,) */
    struct ps_known_part *part; /* (parts,) */
    uint32_t *order;            /* (n,): rows of the caller's list, sorted by shard; NULL = in
                                 * the list's order */
};

/* As many as a shard has lists (ps/list_store.h), so every list that a shard has is here. */
enum { PS_KNOWN_MAX = 512 };

/* The last pulls, whose ids the shards may have kept. */
struct ps_knowns {
    uint8_t *memory; /* NULL: no lists */
    uint64_t bytes;
    uint32_t first; /* slot of the oldest */
    uint32_t count;
    uint32_t lives;
    struct ps_known of[PS_KNOWN_MAX]; /* a ring */
};

/* client_known.c: lists of ids that shards keep */

/* Errors: WEFT_NOMEM. */
weft_status weft_ps_known_init(struct weft_ps_client *client);
void weft_ps_known_fini(struct weft_ps_client *client);
/* Remember a list of a pull, split into the operation's parts from `first` on, with the `order` of
 * its rows or NULL. The parts request their shards to keep the ids. */
void weft_ps_known_add(struct weft_ps_client *client, uint32_t op, const struct weft_ps_list *list,
                       uint32_t first, const uint32_t *order);
/* The shard has kept the ids of this PULL. */
void weft_ps_known_kept(struct weft_ps_client *client, const struct ps_part *part);
/* The newest pull of exactly these ids; NULL = none. Owns: valid until the next pull begins. */
const struct ps_known *weft_ps_known_find(const struct weft_ps_client *client,
                                          const struct weft_ps_list *list);
/* The shard does not have this list (0: any list) of this table (UINT32_MAX: of any). */
void weft_ps_known_drop(struct weft_ps_client *client, uint32_t table, uint32_t shard,
                        uint32_t number);

/* client_list.c: pushes that name a list */

/* Most bytes that a push with a list needs beyond the same push with plain ids. */
static inline uint64_t ps_listed_extra(uint64_t plain_bytes)
{
    return 256 + plain_bytes / 32;
}
/* Lay out the push in chunks that name this list. False: it must be built with ids. */
bool weft_ps_listed_make(struct weft_ps_client *client, struct ps_part *part, uint32_t list);
/* Write the ids of a chunk of it to out. */
void weft_ps_listed_ids(const struct ps_part *part, uint32_t chunk,
                        const struct weft_ps_chunk_rows *rows, uint64_t *out);
/* True: the list of the push does not prevent sending it. */
bool weft_ps_listed_may_go(const struct weft_ps_client *client, const struct ps_part *part);
/* A request as passed to the transport. */
struct ps_message {
    uint8_t *base;
    uint32_t total;
    uint16_t elem_bytes;
    uint16_t chunk_elems;
    uint8_t id_bytes;
};
/* Build the same rows with their ids, in the memory of the LIST in progress. False: they do not fit
 * the packets, or the shard has begun the push with another grid. */
bool weft_ps_listed_with_ids(struct weft_ps_client *client, struct ps_part *part,
                             struct ps_message *message_p);
/* Pass its LIST to the transport. Errors: as of msgr.send; INVALID: it cannot be sent. */
weft_status weft_ps_list_send(struct weft_ps_client *client, struct ps_part *part, uint64_t now_ns);
/* The shard will not get the list: void the push, for this reason. If it is queued, it keeps its
 * place and is sent as a head only. */
void weft_ps_list_void(struct weft_ps_client *client, struct ps_part *part, weft_status status,
                       uint16_t rpc_status);
/* The push no longer needs its LIST. */
void weft_ps_list_drop(struct weft_ps_client *client, struct ps_part *part);
/* Events of LIST. */
void weft_ps_list_sent(struct weft_ps_client *client, uint32_t part,
                       const struct weft_msg_event *event);
void weft_ps_list_reply(struct weft_ps_client *client, uint32_t part,
                        const struct weft_msg_event *event);
/* SENT of a push that names a list. True: its meaning is still unknown, or it was handled here. */
bool weft_ps_listed_sent(struct weft_ps_client *client, uint32_t part,
                         const struct weft_msg_event *event);
/* True if every chunk that arrived was refused and the head did not arrive. Then nothing counts as
 * arrived: *event_p is the SENT to process instead. */
bool weft_ps_listed_lost(struct weft_ps_client *client, const struct ps_part *part,
                         const struct weft_msg_event *event, struct weft_msg_event *event_p);
/* A request was answered OK: record whether it stored or used a list. */
void weft_ps_list_used(struct weft_ps_client *client, const struct ps_part *part,
                       const struct weft_rpc_reply *reply);
/* The answer is UNKNOWN_LIST. */
void weft_ps_listed_unknown(struct weft_ps_client *client, uint32_t part,
                            const struct weft_rpc_reply *reply);
/* The answer is another one: the meaning of SENT is known now. */
void weft_ps_listed_answered(struct weft_ps_client *client, uint32_t part);
/* Reset its list state: nothing of it is in progress. */
void weft_ps_listed_reset(struct weft_ps_client *client, struct ps_part *part);

#endif
