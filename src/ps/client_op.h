/* An operation of a client: a push, a pull, TABLE, or a request for a checkpoint. It is split into
 * parts (client_part.h), and is done when all of them are done. Internal to the client's files. */
#ifndef WEFT_PS_CLIENT_OP_H
#define WEFT_PS_CLIENT_OP_H

#include "ps/client.h"

struct ps_part;

enum ps_op_state { OP_FREE, OP_ACTIVE, OP_DONE };

struct ps_op {
    enum ps_op_state state;
    uint8_t kind;
    bool abandoned; /* release it when it is done; ids and rows belong to the caller again */
    bool cut;       /* it requests a checkpoint */
    uint16_t table; /* TABLE: the table; else the table of the first list */
    uint32_t lists;
    uint32_t life; /* generation: how often this slot was used */
    uint32_t bound_ppm;
    uint32_t parts; /* number of parts built */
    bool logged;    /* its parts are in the log, from part log_first on */
    uint32_t log_first;
    uint32_t parts_open;
    uint32_t *order; /* (rows_per_op_max,): rows of its lists, list by list, by shard */
    uint8_t *buffer; /* requests and replies of its parts */
    size_t buffer_used;
    uint64_t *missed; /* (rows_per_op_max,) bits: rows with a missed element */
    uint32_t rows;    /* rows of all its lists */
    uint64_t deadline_ns;
    bool expired;   /* the deadline was handled */
    bool has_norm;  /* PUSH: the caller gave the norm, as `squares` */
    double squares; /* the norm squared; 0 after a part has added it to its update */
    bool aside;     /* PULL: not of a step */
    bool late;      /* PULL: the caller has the result `told`; replies are outstanding */
    struct weft_ps_result told;
    struct weft_ps_result result;
};

/* True: the caller's memory is still borrowed. */
static inline bool ps_op_lent(const struct ps_op *op)
{
    return !op->abandoned && !op->late;
}

/* client_op.c */

/* Allocate an operation. WEFT_PS_NONE: all slots are in use. */
uint32_t weft_ps_op_take(struct weft_ps_client *client, uint8_t kind, uint16_t table);
/* Queue all parts, which have been built. False: the operation has none, and is done. */
bool weft_ps_op_start(struct weft_ps_client *client, uint32_t op);
void weft_ps_op_part_done(struct weft_ps_client *client, uint32_t op);
/* Complete a result for the caller: no further reply will change it. */
void weft_ps_result_settle(const struct ps_op *op, struct weft_ps_result *result);
/* True: a shard is disconnected, so the capacity of its packets is unknown. */
bool weft_ps_any_away(const struct weft_ps_client *client);

/* client_split.c */

/* A push is laid out in chunks here, so every shard's packets must hold its head and a row. A shard
 * that is down fails later, in its part. */
bool weft_ps_push_fits(const struct weft_ps_client *client, const struct weft_table_spec *spec,
                       uint32_t id_bytes);

/* client_piece.c */

/* Number of pieces that a push of this list is cut into; 1 = it is not cut. */
uint8_t weft_ps_pieces(const struct weft_ps_client *client, const struct weft_ps_list *list);
/* The piece of a row, from 0. */
uint32_t weft_ps_piece_of(const struct weft_table_spec *spec, uint32_t pieces, uint64_t id);

/* client_deadline.c */

/* End the operations whose deadline has passed. */
void weft_ps_deadlines(struct weft_ps_client *client, uint64_t now_ns);
/* Schedule the deadline of a new operation. */
void weft_ps_deadline_arm(struct weft_ps_client *client, const struct ps_op *op);
/* Send only the head of a push. Its rows are missed; a push that was begun keeps no residual. */
void weft_ps_push_void(struct weft_ps_client *client, struct ps_part *part);
/* A push was closed SHORT before its head arrived: send the head alone, so that the shard replies.
 */
void weft_ps_push_headless(struct weft_ps_client *client, uint32_t part);

#endif
