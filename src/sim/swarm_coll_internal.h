/* Internals of a simulated job of collectives, shared by swarm_coll.c (drawing, the run),
 * swarm_coll_hosts.c (the ranks) and swarm_coll_check.c (the checks). Private. */
#ifndef WEFT_SIM_SWARM_COLL_INTERNAL_H
#define WEFT_SIM_SWARM_COLL_INTERNAL_H

#include "coll/coll.h"
#include "sim/plan.h"
#include "sim/swarm_coll.h"
#include "sim/world.h"
#include "wire/packet.h"

enum {
    COLL_RANKS_MAX = 8,
    COLL_OPS_MAX = 12,
    COLL_GROUPS_MAX = 2,
    COLL_EPOCH = 3,
    COLL_PARTS_MAX = 6, /* of a plan */
};

/* How the job ends. */
enum coll_end {
    COLL_END_WELL,
    COLL_END_DEATH,    /* the culprit dies without a message */
    COLL_END_MISMATCH, /* it calls one operation with a different count */
    COLL_END_TIMEOUT,  /* it makes no more calls, from one operation on */
    COLL_END_ABORT,    /* its program aborts */
    COLL_ENDS
};

struct coll_op {
    enum weft_coll_kind kind;
    enum weft_coll_type type;
    enum weft_coll_reduction reduction;
    uint32_t group;
    uint32_t root;
    uint32_t receiver; /* SEND; root is the sender */
    uint32_t tag;
    uint32_t count;
    uint32_t bound_ppm;
    bool feedback;
    bool in_place;
};

/* A plan of a group, as coll/plan.h describes it. */
struct coll_plan {
    bool is_set;
    bool differs; /* at the culprit, which ends the job */
    struct weft_coll_plan plan;
    uint32_t slice[COLL_RANKS_MAX + 1];
    uint32_t part[COLL_PARTS_MAX + 1];
    uint16_t up[COLL_PARTS_MAX * COLL_RANKS_MAX];
    uint16_t down[COLL_PARTS_MAX * COLL_RANKS_MAX];
    uint16_t row[COLL_PARTS_MAX * COLL_RANKS_MAX];
};

struct coll_rank {
    struct weft_coll *coll;
    uint32_t next; /* next operation of the script */
    uint32_t order[COLL_OPS_MAX];
    uint32_t open;
    uint64_t next_ns;
    uint64_t close_ns; /* time at which it has finished and closes its connections */
    bool closed;
    bool gave_up;
    uint64_t failed_ns; /* 0 = it has not failed */
    void *in[COLL_OPS_MAX];
    void *out[COLL_OPS_MAX];
    void *work[COLL_OPS_MAX];
    float *residual[COLL_OPS_MAX];
    float *residual_before[COLL_OPS_MAX];
    uint8_t *missed[COLL_OPS_MAX];
    bool done[COLL_OPS_MAX];
    struct weft_coll_done result[COLL_OPS_MAX];
};

struct swarm_coll {
    struct weft_plan plan;
    struct weft_world *world;
    struct weft_prng prng; /* of the delays of calls */
    uint64_t seed;
    uint32_t n;
    uint32_t groups;
    uint32_t members[COLL_GROUPS_MAX];                /* of each group */
    uint32_t member[COLL_GROUPS_MAX][COLL_RANKS_MAX]; /* their ranks, in order */
    struct coll_plan made[COLL_GROUPS_MAX];
    struct weft_coll_plan other; /* the culprit's, if they differ */
    uint32_t ops;
    struct coll_op op[COLL_OPS_MAX];
    struct weft_coll_config config;
    uint32_t pairs_percent;
    uint32_t ops_at_a_time;
    uint64_t gap_ns_max; /* longest pause between two calls of a rank */
    enum coll_end end;
    uint32_t culprit;
    uint32_t end_op;
    uint64_t end_ns;
    uint64_t timeout_ns;
    bool healed;
    struct coll_rank rank[COLL_RANKS_MAX];
    uint64_t closed_ns;
    uint64_t messages;
};

/* Index of a rank in a group; WEFT_COLL_NONE if it is not a member. */
static inline uint32_t coll_index(const struct swarm_coll *s, uint32_t group, uint32_t rank)
{
    for (uint32_t i = 0; i < s->members[group]; i++) {
        if (s->member[group][i] == rank) {
            return i;
        }
    }
    return WEFT_COLL_NONE;
}

/* Whether a member takes part in an operation: not in a send between two others. */
static inline bool coll_takes_part(const struct coll_op *op, uint32_t index)
{
    return index != WEFT_COLL_NONE &&
           (op->kind != WEFT_COLL_SEND || index == op->root || index == op->receiver);
}

/* Number of elements of in and of out. */
static inline uint64_t coll_in_elems(const struct swarm_coll *s, const struct coll_op *op)
{
    bool blocks = op->kind == WEFT_COLL_REDUCE_SCATTER || op->kind == WEFT_COLL_SCATTER ||
                  op->kind == WEFT_COLL_ALL_TO_ALL;
    return (uint64_t)op->count * (blocks ? s->members[op->group] : 1);
}

static inline uint64_t coll_out_elems(const struct swarm_coll *s, const struct coll_op *op)
{
    bool blocks = op->kind == WEFT_COLL_ALL_GATHER || op->kind == WEFT_COLL_GATHER ||
                  op->kind == WEFT_COLL_ALL_TO_ALL;
    return (uint64_t)op->count * (blocks ? s->members[op->group] : 1);
}

/* In mode none no host replies for a connection whose CLOSE was lost: the other end times out. */
static inline bool coll_silent_closes(const struct swarm_coll *s)
{
    return s->plan.host[0].ep.mode == WEFT_MODE_NONE;
}

static inline bool coll_reduces(enum weft_coll_kind kind)
{
    return kind <= WEFT_COLL_REDUCE_SCATTER;
}

/* ---- swarm_coll.c ---------------------------------------------------------------------------- */

void weft_swarm_coll_draw(struct swarm_coll *s, uint64_t seed);

/* Whether all ranks are connected to each other, as seen by both ends. */
bool weft_swarm_coll_all_up(const struct swarm_coll *s);

/* ---- swarm_coll_plan.c ----------------------------------------------------------------------- */

/* After the end of the job was drawn. */
void weft_swarm_coll_plans_draw(struct swarm_coll *s, struct weft_prng *prng);
/* The plan of a group at a rank; NULL = none. */
const struct weft_coll_plan *weft_swarm_coll_plan(const struct swarm_coll *s, uint32_t group,
                                                  uint32_t rank);
uint32_t weft_swarm_coll_plans_describe(const struct swarm_coll *s, char *text, size_t bytes);

/* ---- swarm_coll_hosts.c ---------------------------------------------------------------------- */

/* Owns: gives. */
struct swarm_coll *weft_swarm_coll_new(uint64_t seed, const struct weft_world_tap *tap);
void weft_swarm_coll_free(struct swarm_coll *s);

/* ---- swarm_coll_check.c: errors are reported through the world ------------------------------- */

/* The contribution of a rank: element i of its in. */
double weft_swarm_coll_value(const struct swarm_coll *s, uint32_t op, uint32_t index, uint64_t i);
double weft_swarm_coll_get(const void *from, enum weft_coll_type type, uint64_t i);
void weft_swarm_coll_put(void *to, enum weft_coll_type type, uint64_t i, double value);

/* Check every operation that is done at all members, and the failures. */
void weft_swarm_coll_check(struct swarm_coll *s);

#endif
