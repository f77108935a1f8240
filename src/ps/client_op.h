/* An operation of a client: a push, a pull, TABLE, or the order for a checkpoint. It becomes parts
 * (client_part.h), and is done when all of them are. For the client's files alone.
 */
#ifndef WEFT_PS_CLIENT_OP_H
#define WEFT_PS_CLIENT_OP_H

#include "ps/client.h"

struct ps_part;

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

/* Is the caller's memory still ours? */
static inline bool ps_op_lent(const struct ps_op *op)
{
    return !op->abandoned && !op->late;
}

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

/* client_deadline.c */

/* End operations whose time is over. */
void weft_ps_deadlines(struct weft_ps_client *client, uint64_t now_ns);
/* An operation begins: see to its deadline in time. */
void weft_ps_deadline_arm(struct weft_ps_client *client, const struct ps_op *op);
/* A push is not sent: a head alone will be. Of one that was begun nothing is kept. */
void weft_ps_push_void(struct weft_ps_client *client, struct ps_part *part);
/* A push was closed SHORT, without its head: send that alone, so that it is answered. */
void weft_ps_push_headless(struct weft_ps_client *client, uint32_t part);

#endif
