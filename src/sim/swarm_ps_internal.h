/* Internals of a simulated parameter server, shared by swarm_ps.c (drawing, the run),
 * swarm_ps_hosts.c (shards and workers, and their deaths), swarm_ps_worker.c (the loop of a
 * worker), swarm_ps_sched.c (the scheduler), swarm_ps_via.c (aggregators), swarm_ps_replica.c
 * (replicas), swarm_ps_kills.c (all kinds of processes die) and swarm_ps_check.c (the checks).
 * Private. */
#ifndef WEFT_SIM_SWARM_PS_INTERNAL_H
#define WEFT_SIM_SWARM_PS_INTERNAL_H

#include "ps/aggregator.h"
#include "ps/client.h"
#include "ps/replica.h"
#include "ps/shard.h"
#include "ps/transfer.h"
#include "sim/plan.h"
#include "sim/saved.h"
#include "sim/swarm_ps.h"
#include "sim/swarm_table.h"
#include "sim/world.h"

/* The bits of a float's mantissa limit workers x clocks. */
enum { SHARDS_MAX = 4, WORKERS_MAX = 6, BITS_MAX = 22, IDS_MAX = 400 };
enum { STEPS_MAX = 20000000 };

/* How pushes that a shard's checkpoint lacks are recovered. */
enum durability {
    DURABILITY_WORKERS,       /* workers resend them */
    DURABILITY_BOTH,          /* from the shard's journal; workers could resend them, too */
    DURABILITY_SMALL_JOURNAL, /* as BOTH, but the journal becomes full, so workers must resend */
    DURABILITY_JOURNAL,       /* from the shard's journal only */
    DURABILITY_NOBODY,        /* they are lost, and counted */
    DURABILITIES
};

enum phase {
    PHASE_OPEN,
    PHASE_OPENING,
    PHASE_PULL,
    PHASE_PULLING,
    PHASE_FETCH, /* pull of the rows of the push, which may refer to them as a list */
    PHASE_FETCHING,
    PHASE_PUSH,
    PHASE_PUSHING,
    PHASE_CLOCK,
    PHASE_DONE
};

enum { SWARM_ASKS = 16 };

/* An update that the scheduler has not completely decided on. */
struct swarm_ps_ask {
    uint64_t update;  /* 0 = none */
    uint64_t at_ns;   /* time of its next decision */
    uint32_t granted; /* shards, as bits */
    bool drop_said;   /* drop was called in time: later grants are refused */
    bool dropped;     /* at least one share was dropped */
    bool unheard;     /* the scheduler has died since, or was dead */
};

struct swarm_ps_worker {
    struct weft_ps_client *client;
    enum phase phase;
    uint32_t clock; /* finished */
    weft_ps_op op;
    bool has_ahead; /* the pull of the next clock is in progress */
    weft_ps_op ahead;
    uint32_t n;         /* rows of the push in progress */
    uint64_t delivered; /* elements reported to the client as delivered */
    uint32_t lives;     /* number of restarts */
    uint32_t cut_off;   /* clocks, as bits, whose push had no reply before its process died: any
                         * part of it may have been applied */
    uint64_t cut_off_elements; /* of these */
    uint32_t dropped;          /* clocks, as bits, whose push was partly dropped or refused as
                                * late */
    struct swarm_ps_ask ask[SWARM_ASKS];
    uint32_t read; /* the step whose read is admitted at read_ns */
    uint64_t read_ns;
    uint64_t resent;           /* resent push messages at the scheduler's last check */
    uint64_t lost;             /* pushes reported as lost to clients that died */
    float *rows;               /* (ids, dim) */
    uint64_t fetched[IDS_MAX]; /* ids of FETCH */
    void *kept;                /* memory of error feedback; NULL if disabled */
    float *fetched_rows;       /* (2, ids, dim): of FETCH, and of a pull whose result is not used */
    weft_peer peer[SHARDS_MAX]; /* with replicas: the connection, and its host */
    uint32_t at_host[SHARDS_MAX];
    uint64_t check_ns[SHARDS_MAX]; /* time when it learns that the shard has moved; 0 = no move */
    uint32_t computed;       /* it computes the push of this clock - 1 until then */
    uint64_t computed_ns;
};

/* An aggregator of a shard. */
struct swarm_ps_box {
    uint32_t above; /* host of the shard or the parent aggregator */
    struct weft_aggregator_config config;
    struct weft_aggregator *aggregator;
    uint32_t lives;      /* number of restarts */
    uint64_t connect_ns; /* earliest time to connect to the shard */
    weft_peer peer;      /* its connection to the shard, or the last one, and that one's host */
    uint32_t at_host;
    uint64_t check_ns; /* with replicas: time when it learns that the shard has moved; 0 = known */
};

enum { SWARM_PEERS = 256 };

/* One of the two hosts of a shard that has replicas. */
struct swarm_ps_seat {
    uint32_t host;
    uint32_t lives;               /* number of restarts */
    struct weft_shard *shard;     /* the replica's, or the one that serves */
    struct weft_replica *replica; /* NULL: has served from the start */
    weft_peer peer;               /* connection to the shard; WEFT_PEER_ANY = none */
    uint64_t connect_ns;          /* earliest time to connect */
    bool was_up;                  /* the replica has had its connection */
    bool is_spent;                /* and there is another one: `up` */
    struct weft_msg_event up;
    bool has_ended;                       /* it serves */
    uint64_t strangers[SWARM_PEERS / 64]; /* bits: connections to be closed */
};

/* Which hosts there are besides shards and workers. */
enum swarm_ps_with { WITH_NOBODY = 0, WITH_AGGREGATORS = 1, WITH_REPLICAS = 2, WITH_BOTH = 3 };

/* Fraction of pushes to rows that were pulled immediately before. */
enum fetches { FETCHES_NONE, FETCHES_SOME, FETCHES_ALL, FETCHES };

struct swarm_ps {
    struct weft_plan plan;
    struct weft_world *world;
    struct weft_swarm_table table;
    uint32_t shards;
    uint32_t rows_per_rpc;
    uint8_t value_type; /* enum weft_value_type: type of values in the table's messages, in one
                         * direction or both */
    uint16_t can;       /* of enum weft_rpc_can: of workers */
    enum fetches fetches;
    uint32_t list_ids;      /* maximum number of ids per worker that shards keep */
    uint64_t pushes_listed; /* of workers that died */
    uint64_t lists_unknown;
    struct weft_shard *shard[SHARDS_MAX];
    struct swarm_ps_worker worker[WORKERS_MAX];
    uint64_t id[IDS_MAX];
    uint64_t picked[IDS_MAX];
    uint64_t closed_ns;
    uint32_t deaths;  /* deaths of shards, which restart from their last checkpoint; workers
                       * replay */
    uint64_t died_ns; /* time of the last death */
    enum durability durability;
    bool mortal; /* workers die, too */
    uint8_t *journal[SHARDS_MAX];
    struct weft_saved saved[SHARDS_MAX];
    uint32_t lives[SHARDS_MAX]; /* number of restarts */
    bool scheduled;             /* updates wait for grants: swarm_ps_sched.c */
    bool drops;                 /* and may be dropped */
    uint64_t update_bytes_min;
    uint32_t delay_max;
    uint64_t positions[SHARDS_MAX]; /* of closed updates in the order of opening, summed */
    uint64_t sched_back_ns; /* no decisions before this time: the scheduler is dead */
    struct weft_prng sched_prng;
    struct weft_prng transfer_prng;
    uint32_t transfer[SHARDS_MAX]; /* number of the transfer to a replica that waits; 0 = none */
    uint64_t transfer_ns[SHARDS_MAX]; /* when it may begin */
    bool admits; /* reads wait for admission, too */
    struct weft_prng read_prng;
    struct weft_swarm_updates told;          /* outcomes of updates */
    uint32_t blocks;                         /* of a row, once a shard has the table */
    bool via;                                /* workers use aggregators: swarm_ps_via.c */
    bool tree;                               /* each shard has two, usually one above the other */
    struct swarm_ps_box box[2 * SHARDS_MAX]; /* box b is of shard b mod shards */
    uint32_t boxes;
    uint64_t lower[SHARDS_MAX]; /* workers that use the second one, as bits */
    uint64_t park_lease_ns;     /* of workers; 0: they stay connected to shards */
    uint64_t park_pause_ns;
    uint64_t parks; /* connections that workers ended, of those that died, too */
    uint64_t unparks;
    uint32_t hot_rows; /* size of hot sets by which workers split pushes and pulls; 0 = no split */
    uint64_t hot_epoch_ns;
    uint64_t rows_hot; /* rows of pushes that were split, of workers that died, too */
    uint64_t rows_cold;
    uint32_t box_deaths; /* remaining deaths of aggregators */
    bool applies; /* aggregators acknowledge pushes on apply, so some may be lost, and counted */
    uint64_t pushes_applied;
    uint32_t lacked[IDS_MAX]; /* applies: pushes that a pulled row should have had and did not */
    uint64_t wake_ns[WEFT_PLAN_HOSTS_MAX];
    uint64_t pushes_absorbed; /* of aggregators, including those that died */
    uint64_t aggregates_in;   /* the same: sums of one for another */
    uint64_t pulls_answered;
    uint64_t pull_rows_spared;
    bool replicas; /* swarm_ps_replica.c */
    double div_max;
    uint64_t replica_lease_ns;
    size_t replica_cow_bytes;
    uint64_t death_gap_ns;
    struct weft_prng replica_prng;
    struct weft_prng kills_prng;
    struct swarm_ps_seat seat[SHARDS_MAX][2];
    uint8_t serving[SHARDS_MAX]; /* which of them serves, or did when it died */
    bool is_vacant[SHARDS_MAX];  /* it has died, and its replica is not promoted yet */
    float *reported[SHARDS_MAX]; /* (ids, dim): rows of the shard that replies may have reported */
    struct weft_swarm_replicas told_replicas;
};

static inline bool ps_has_journal(const struct swarm_ps *ps)
{
    return ps->deaths > 0 && ps->durability != DURABILITY_WORKERS &&
           ps->durability != DURABILITY_NOBODY;
}

static inline uint32_t ps_blocks(const struct swarm_ps *ps)
{
    return ps->blocks;
}

/* Whether the worker's process died before it received the reply to the push of this clock. */
static inline bool ps_was_cut_off(const struct swarm_ps *ps, uint32_t w, uint32_t clock)
{
    return (ps->worker[w].cut_off >> clock & 1) != 0;
}

/* ---- swarm_ps_worker.c ----------------------------------------------------------------------- */

/* Add the list counters of this worker's client to those of ps. */
void weft_swarm_ps_count_lists(struct swarm_ps *ps, uint32_t w);

/* One step of a worker; returns true if it made progress. */
bool weft_swarm_ps_worker_step(struct swarm_ps *ps, uint32_t w, uint64_t now_ns);

/* ---- swarm_ps_hosts.c ------------------------------------------------------------------------ */

/* Owns: gives. */
struct swarm_ps *weft_swarm_ps_new(uint64_t seed, uint8_t value_type, enum swarm_ps_with with,
                                   const struct weft_world_tap *tap);
struct weft_world_host_config weft_swarm_ps_host_config(struct swarm_ps *ps, uint32_t host,
                                                        uint64_t name, uint32_t expects);
void weft_swarm_ps_free(struct swarm_ps *ps);

/* A process dies and is replaced by a new one. */
void weft_swarm_ps_shard_dies(struct swarm_ps *ps, uint32_t s);
void weft_swarm_ps_worker_dies(struct swarm_ps *ps, uint32_t w);

/* Initialize a worker's rows. */
void weft_swarm_ps_worker_init(struct swarm_ps *ps, uint32_t w);

/* Shared with the seeds that have a coordinator (sim/swarm_member.h). */
void weft_swarm_ps_give_slabs(struct weft_shard *shard);
struct weft_shard_config weft_swarm_ps_shard_config(const struct swarm_ps *ps, uint32_t shard);
struct weft_ps_client_config weft_swarm_ps_client_config(const struct swarm_ps *ps, uint32_t w);

/* ---- swarm_ps_sched.c ------------------------------------------------------------------------ */

void weft_swarm_ps_sched_draw(struct swarm_ps *ps);
/* A worker has begun a push. */
void weft_swarm_ps_sched_pushed(struct swarm_ps *ps, uint32_t w, uint64_t now_ns);
/* Process the scheduler's decisions for this worker that are due. */
void weft_swarm_ps_sched_turn(struct swarm_ps *ps, uint32_t w, uint64_t now_ns);
/* A shard is about to die: count the updates that this breaks. */
void weft_swarm_ps_sched_breaks(struct swarm_ps *ps);
/* The scheduler's process dies, and another one replaces it later. */
void weft_swarm_ps_sched_dies(struct swarm_ps *ps, uint64_t dead_ns);
/* With replicas: the transfers of a shard wait for the scheduler. */
void weft_swarm_ps_sched_transfer(struct swarm_ps *ps, uint32_t s, uint64_t now_ns);
void weft_swarm_ps_sched_check_shard(struct swarm_ps *ps, uint32_t s);
void weft_swarm_ps_sched_check_end(struct swarm_ps *ps, uint32_t s);

/* ---- swarm_ps_via.c: no effect without aggregators ------------------------------------------- */

/* Determines the number of hosts. Call first. */
void weft_swarm_ps_via_begin(struct swarm_ps *ps, uint64_t seed);
void weft_swarm_ps_via_draw(struct swarm_ps *ps);
void weft_swarm_ps_boxes_make(struct swarm_ps *ps);
void weft_swarm_ps_boxes_count(struct swarm_ps *ps);
void weft_swarm_ps_boxes_free(struct swarm_ps *ps);
bool weft_swarm_ps_is_box(const struct swarm_ps *ps, uint32_t host);
void weft_swarm_ps_box_event(struct swarm_ps *ps, uint32_t host, const struct weft_msg_event *event,
                             uint64_t now_ns);
void weft_swarm_ps_box_turn(struct swarm_ps *ps, uint32_t host, uint64_t now_ns);
void weft_swarm_ps_via_turn(struct swarm_ps *ps, uint32_t w, uint64_t now_ns);
/* Add the parked connections of this worker's client to those of ps. */
void weft_swarm_ps_count_parks(struct swarm_ps *ps, uint32_t w);
void weft_swarm_ps_shard_closes(struct swarm_ps *ps, uint32_t s, uint64_t now_ns);
/* Returns true if one has died. */
bool weft_swarm_ps_box_may_die(struct swarm_ps *ps, struct weft_prng *prng);
/* The shard has moved: its aggregators learn that later. */
void weft_swarm_ps_boxes_look(struct swarm_ps *ps, uint32_t s, uint64_t within_ns);
uint64_t weft_swarm_ps_box_gap_ns(struct weft_prng *prng);

/* Wake a host at this time, unless it will be woken earlier; WEFT_NEVER = do not. */
void weft_swarm_ps_wake_at(struct swarm_ps *ps, uint32_t host, uint64_t at_ns, uint64_t now_ns);

/* ---- swarm_ps_replica.c: no effect without replicas, except for shard_host and shard_at ------ */

void weft_swarm_ps_replicas_draw(struct swarm_ps *ps);
void weft_swarm_ps_replicas_config(const struct swarm_ps *ps, struct weft_shard_config *config);
void weft_swarm_ps_replicas_make(struct swarm_ps *ps);
void weft_swarm_ps_replicas_free(struct swarm_ps *ps);
/* Whether no push that was acknowledged may be lost. */
bool weft_swarm_ps_replicas_keep_all(const struct swarm_ps *ps);
/* The host of the process that serves a shard, as far as workers can know; the shard of a host. */
uint32_t weft_swarm_ps_shard_host(const struct swarm_ps *ps, uint32_t s);
uint32_t weft_swarm_ps_shard_at(const struct swarm_ps *ps, uint32_t host);
/* Return true if the event, or this host's turn, was that of a replica. */
bool weft_swarm_ps_standby_event(struct swarm_ps *ps, uint32_t host,
                                 const struct weft_msg_event *event, uint64_t now_ns);
bool weft_swarm_ps_standby_turn(struct swarm_ps *ps, uint32_t host, uint64_t now_ns);
/* After the turn of a shard that serves. */
void weft_swarm_ps_replicas_turn(struct swarm_ps *ps, uint32_t s, uint64_t now_ns);
void weft_swarm_ps_replicas_look(struct swarm_ps *ps, uint32_t s);
bool weft_swarm_ps_computes(struct swarm_ps *ps, uint32_t w, uint64_t now_ns);
void weft_swarm_ps_replicas_moves(struct swarm_ps *ps, uint32_t w, uint64_t now_ns);
/* Deaths and promotions. Returns false if a check has already failed. */
bool weft_swarm_ps_run_replicas(struct swarm_ps *ps);
/* Returns NULL if all are ready. */
const char *weft_swarm_ps_replicas_wait(struct swarm_ps *ps);
void weft_swarm_ps_replicas_end(struct swarm_ps *ps);

/* ---- swarm_ps_kills.c: no effect without both aggregators and replicas ----------------------- */

/* Whether workers, aggregators and the scheduler die beside servers and replicas. */
static inline bool ps_kills(const struct swarm_ps *ps)
{
    return ps->via && ps->replicas;
}

void weft_swarm_ps_kills_draw(struct swarm_ps *ps);
/* Any of them may die now. */
void weft_swarm_ps_kills_may(struct swarm_ps *ps);

/* ---- swarm_ps_check.c: errors are reported through the world --------------------------------- */

/* Check the result of a worker's pull. */
void weft_swarm_ps_check_pulled(struct swarm_ps *ps, uint32_t w,
                                const struct weft_ps_result *result);

/* Check the tables at the end. With bound 0 they must contain all pushes; in total they must
 * contain exactly what was reported to the workers as delivered. */
void weft_swarm_ps_check_tables(struct swarm_ps *ps);

/* ---- swarm_ps.c ------------------------------------------------------------------------------ */

/* Draw the configuration from the seed. */
void weft_swarm_ps_draw(struct swarm_ps *ps, uint64_t seed);

/* Returns false if a check has failed. */
bool weft_swarm_ps_run_until(struct swarm_ps *ps, uint64_t until_ns);

#endif
