/* The state of a planner, and the functions that its files share. planner.h is the contract. */
#ifndef WEFT_SCHED_INTERNAL_H
#define WEFT_SCHED_INTERNAL_H

#include "base/assert.h"
#include "sched/planner.h"

/* Norms are summed as integers, in units of 2^-40 of div_max, each rounded up. Sums are therefore
 * exact, do not drift, and are never too low. */
#define PLANNER_NORM_ONE (UINT64_C(1) << 40)

enum { PLANNER_GROUPS_MAX = 64, PLANNER_COMMITS = 16 };

enum worker_phase {
    WORKER_IDLE,
    WORKER_READ_WAITING,
    WORKER_READING,
    WORKER_COMPUTING,
    WORKER_WAITING, /* has requested to send its update */
    WORKER_FLYING,  /* granted, not committed */
};

struct planner_worker {
    enum worker_phase phase;
    uint32_t host;
    uint32_t group;          /* index while FLYING through a group's aggregator; else
                              * WEFT_PLANNER_NONE */
    uint32_t transfers_left; /* of the current read or update, not delivered */
    uint32_t drops_in_row;
    uint32_t incoming; /* ALL_REDUCE: sums being sent to it */
    uint32_t members;  /* ALL_REDUCE: updates in its sum */
    bool is_gone;
    bool has_clock;
    uint64_t clock; /* of the last update */
    uint64_t step;  /* clock of the update that it reads for, or of its last update */
    uint64_t bytes; /* of the update, or of the waiting read */
    uint64_t base_version;
    uint64_t norm;     /* in PLANNER_NORM_ONE */
    uint64_t since_ns; /* time of the waiting request */
    uint64_t asked;    /* sequence number of that request */
    uint64_t commits;
    uint64_t start_ns; /* by planner_estimate: start time of its update, if this were sent next */
    uint64_t end_ns;   /* end time of the same update; WEFT_NEVER = its path is down */
    bool is_in_trial;  /* scratch of partition.c: it is in a group that is checked */
};

struct planner_transfer {
    uint64_t id; /* 0 = free */
    enum weft_planner_decision_kind kind;
    uint32_t active_idx; /* in planner.active */
    uint32_t worker;
    uint32_t server;
    uint32_t from_host;
    uint32_t to_host;
    uint32_t group;
    uint32_t tree;
    uint32_t trees;
    uint32_t to_worker; /* ALL_REDUCE */
    uint32_t members;   /* ALL_REDUCE: updates in the sum */
    uint64_t round;     /* ALL_REDUCE; else 0 */
    uint64_t bytes;
    uint64_t sent;     /* bytes sent according to the plan, in bookings that were revised since */
    uint64_t late_ns;  /* time at which the transfer is overdue if no report has arrived */
    uint32_t overdue;  /* times that it was, at most 2 */
    bool is_announced; /* its grant was output; false: an aggregate that waits for its members */
    bool needs_announce; /* by the next plan: it is new, or its booking was revised */
    struct weft_booking booking;
};

struct planner_group {
    uint64_t id; /* 0 = free */
    uint32_t aggregator;
    uint32_t members;
    uint32_t members_left;   /* members whose transfer to the aggregator is not delivered */
    uint32_t transfers_left; /* to servers, not delivered */
    uint64_t position;
};

struct weft_planner {
    struct weft_planner_config config; /* the planner owns the arrays in it */
    struct weft_planner_counters counters;
    uint64_t now_ns;

    struct weft_timeline *links; /* (2 * hosts,): uplink of host h at 2h, its downlink at 2h + 1 */
    struct planner_worker *workers;
    uint64_t *server_bytes; /* (workers, servers) of the updates */
    bool *aggregator_gone;  /* (aggregators,) */
    struct planner_group groups[PLANNER_GROUPS_MAX];
    uint64_t groups_made;

    uint32_t *waiting; /* workers with a waiting update, in no order */
    uint32_t waiting_count;
    uint32_t *flying; /* workers with an update in flight */
    uint32_t flying_count;
    uint32_t *reading; /* workers with a waiting read */
    uint32_t reading_count;
    uint32_t outstanding; /* workers between read and commit */
    uint64_t version;     /* committed */
    uint64_t positions;   /* granted in total */
    uint64_t requests;    /* in total */
    uint64_t fast_bps;    /* the fastest worker's uplink */
    uint64_t duration_ns; /* planned duration of an update: a moving average with weight 1/8 */
    uint64_t commit_ns[PLANNER_COMMITS]; /* times of the last commits, a ring */
    uint32_t *due_count;                 /* (workers,): scratch of bound.c */
    struct planner_partition *partition; /* scratch of partition.c */
    /* By number of members, as reported (weft_planner_sum_share). */
    bool has_sum_ppm[WEFT_PLANNER_WINDOW_MAX + 1];
    uint32_t sum_ppm[WEFT_PLANNER_WINDOW_MAX + 1];
    struct planner_reduce *reduce;       /* of mode ALL_REDUCE */

    /* Norms committed at the servers and not sent to the replicas, and those being sent. */
    uint64_t norm_pending;
    uint64_t norm_sent;
    uint64_t norm_flying;    /* of the updates in flight, forecast */
    uint32_t replicas_left;  /* transfers of the current replication */
    uint64_t *replica_bytes; /* (servers,) of the next replication; without WEFT_PLAN_REPLICATE of
                              * the server's requested transfer, 0 = none */
    uint64_t *replica_transfer; /* (servers,): id of the requested transfer once granted, else 0 */

    struct planner_transfer *transfers;
    uint32_t transfers_max;
    uint32_t *free_transfers; /* (transfers_max,): a stack */
    uint32_t free_count;
    uint32_t *active; /* transfers that are not free */
    uint32_t active_count;
    uint32_t *scratch; /* (transfers_max,): used within one call */
    uint64_t transfers_made;
    uint32_t *future; /* (servers,): scratch: number of grants whose start is in the future */

    struct weft_planner_decision *decisions; /* a ring */
    uint32_t decisions_max;
    uint32_t decisions_first;
    uint32_t decisions_count;
};

static inline bool planner_has(const struct weft_planner *planner, uint32_t policy)
{
    return (planner->config.policy & policy) != 0;
}

/* Number of updates granted so far that count as versions: the upper bound of a base version. */
static inline uint64_t planner_opened(const struct weft_planner *planner)
{
    return planner->version + planner->flying_count;
}

static inline struct weft_timeline *planner_link(const struct weft_planner *planner, uint32_t host,
                                                 bool is_up)
{
    return &planner->links[2 * host + (is_up ? 0 : 1)];
}

/* ---- grant.c: transfers and their reservations ----------------------------------------------- */

/* The links between two hosts, trimmed; no links between a host and itself. */
struct weft_path planner_path(struct weft_planner *planner, uint32_t from_host, uint32_t to_host);

/* True if there is space for the decisions and transfers of one update, read or group of `count`
 * transfers. */
bool planner_has_room(struct weft_planner *planner, uint32_t count);

/* Create a transfer and reserve its booking. Returns NULL, with nothing changed, if a table is full
 * (counted). */
struct planner_transfer *planner_transfer_new(struct weft_planner *planner,
                                              const struct planner_transfer *what);
/* The time after the planned end at which a transfer without a report is overdue. */
uint64_t planner_late_at(const struct weft_booking *booking);
/* End a transfer and release the unused part of its reservation. */
void planner_transfer_end(struct weft_planner *planner, struct planner_transfer *transfer);
/* End the transfers created after `first` were active, provided that none ended since. */
void planner_end_from(struct weft_planner *planner, uint32_t first);
void planner_announce_from(struct weft_planner *planner, uint32_t first);
struct planner_transfer *planner_transfer_find(struct weft_planner *planner, uint64_t id);
void planner_rebook(struct weft_planner *planner, struct planner_transfer *transfer,
                    uint64_t left_bytes);
void planner_announce(struct weft_planner *planner, struct planner_transfer *transfer,
                      bool is_revised);
/* Announce all transfers that events have marked: one decision per transfer, regardless of the
 * number of events. If there is no space, the remaining decisions are counted and left for the next
 * plan. */
void planner_announce_due(struct weft_planner *planner);

/* Reserve and announce one transfer per server, between its share and a host; all or nothing. */
bool planner_grant_shares(struct weft_planner *planner, struct planner_transfer what,
                          const uint64_t *server_bytes, bool is_to_servers);

bool planner_grant_direct(struct weft_planner *planner, uint32_t worker);
void planner_drop(struct weft_planner *planner, uint32_t worker, enum weft_planner_drop why);
void planner_depart(struct weft_planner *planner, uint32_t worker); /* WAITING -> FLYING */
void planner_cancel_of(struct weft_planner *planner, uint32_t worker);
void planner_replan_link(struct weft_planner *planner, uint32_t host, bool is_up);
void planner_replan_sum(struct weft_planner *planner, uint32_t group); /* if it was announced */
void planner_overdue(struct weft_planner *planner);
/* A link to a server is free now: sums that are complete at their aggregators, and were to start
 * later, start now, in order. Not with cut-through, where they start as granted. */
void planner_sums_follow(struct weft_planner *planner, uint32_t server_host);
void planner_count_future(struct weft_planner *planner);

/* Sets of workers: (array, count). */
void planner_set_add(uint32_t *set, uint32_t *count, uint32_t worker);
void planner_set_remove(uint32_t *set, uint32_t *count, uint32_t worker);

/* ---- order.c: selection of the next update --------------------------------------------------- */

/* Drop updates that cannot be in time, and grant the next ones, as far ahead as configured. */
void planner_order(struct weft_planner *planner);

/* Set start_ns and end_ns of all waiting updates. */
void planner_estimate(struct weft_planner *planner);

/* ---- bound.c: the delay bound ---------------------------------------------------------------- */

/* Drop updates that are late, for which not enough positions remain, or that have no path and delay
 * others. */
void planner_drop_late(struct weft_planner *planner);

/* True if updates of these base versions may be granted: every update in flight must then be
 * committed with a delay of at most tau_max, in any order of completion. */
bool planner_may_fly(const struct weft_planner *planner, uint32_t count, uint64_t base_version_min);

/* The number of other updates that may be granted before this one; false, and 0, if it is already
 * late. */
bool planner_due_position(const struct weft_planner *planner, const struct planner_worker *w,
                          uint64_t *due_p);

/* The smallest position p such that at least p + 1 + `excess` updates of a set of waiting updates
 * are due by p, if `taken` others are granted first; WEFT_NEVER = none. */
uint64_t planner_crowded_position(struct weft_planner *planner, const uint32_t *set, uint32_t count,
                                  uint32_t taken, uint32_t excess);

/* True if too many other updates would wait for its commit, so that it should be dropped now. */
bool planner_holds_up(const struct weft_planner *planner, const struct planner_worker *w);

/* Least clock of the connected workers; a computing worker counts with the clock after its last
 * one. */
uint64_t planner_least_clock(const struct weft_planner *planner);

/* Whether a set of waiting updates has enough positions if `taken` others are granted first. */
bool planner_positions_left(struct weft_planner *planner, const uint32_t *set, uint32_t count,
                            uint32_t taken);

/* ---- of order.c, for bound.c and partition.c ------------------------------------------------- */

bool planner_is_slow(const struct weft_planner *planner, uint32_t worker);
void planner_find_fastest(struct weft_planner *planner);

static inline bool planner_is_bounded(const struct weft_planner *planner)
{
    return planner_has(planner, WEFT_PLAN_BOUND) && planner->config.mode != WEFT_PLANNER_SYNC;
}

/* value * ppm / 10^6 without wrap. */
static inline uint64_t planner_share(uint64_t value, uint32_t ppm)
{
    return value / WEFT_PPM * ppm + value % WEFT_PPM * ppm / WEFT_PPM;
}

/* ---- partition.c: groups --------------------------------------------------------------------- */

weft_status planner_partition_init(struct weft_planner *planner);
void planner_partition_fini(struct weft_planner *planner);

/* Grant groups if that is better than sending every update directly. */
void planner_partition(struct weft_planner *planner);

/* ---- group.c: groups in flight --------------------------------------------------------------- */

/* The update of a member arrived at the aggregator. */
void planner_group_delivered(struct weft_planner *planner, uint32_t group);
/* A sum arrived at one server. */
void planner_group_at_server(struct weft_planner *planner, uint32_t group);
/* A sum of members was applied at this server. Sums that wait for its link at other aggregators
 * follow it. */
void planner_group_sum_arrived(struct weft_planner *planner, uint32_t group, uint32_t server);
/* End the group if no member is in flight: all were committed, or left. */
void planner_group_over(struct weft_planner *planner, uint32_t group);
/* A member left before its update arrived at the aggregator. */
void planner_group_left(struct weft_planner *planner, uint32_t group);
/* The aggregator failed: its members wait again, or with members_resend stay in flight. */
void planner_group_broken(struct weft_planner *planner, uint32_t group);

/* ---- replicate.c ----------------------------------------------------------------------------- */

/* The distance that an update of this norm moves the model, in PLANNER_NORM_ONE of div_max, rounded
 * up. */
uint64_t planner_norm(const struct weft_planner *planner, double norm);

/* True if updates of this norm may be granted: the divergence of the replicas, including updates in
 * flight, must stay within div_max. Counts refusals. */
bool planner_norm_fits(struct weft_planner *planner, uint64_t norm);

/* Drop an update whose norm alone exceeds div_max. False: it does not, but must wait for a
 * replica. */
bool planner_drop_too_far(struct weft_planner *planner, uint32_t worker);

void planner_norm_committed(struct weft_planner *planner, uint32_t worker, double applied_norm);
void planner_replica_delivered(struct weft_planner *planner);
void planner_replicate(struct weft_planner *planner);
/* Grant the transfers that servers have requested. */
void planner_replicas_asked(struct weft_planner *planner);

/* ---- reduce.c: mode ALL_REDUCE --------------------------------------------------------------- */

weft_status planner_reduce_init(struct weft_planner *planner);
void planner_reduce_fini(struct weft_planner *planner);
void planner_reduce(struct weft_planner *planner);
void planner_reduce_delivered(struct weft_planner *planner,
                              const struct planner_transfer *transfer);
/* End the round for all workers. */
void planner_reduce_worker_left(struct weft_planner *planner);

/* ---- report.c -------------------------------------------------------------------------------- */

/* FLYING -> IDLE. */
void planner_end_flight(struct weft_planner *planner, uint32_t worker);

/* ---- admit.c --------------------------------------------------------------------------------- */

void planner_admit_reads(struct weft_planner *planner);

#endif
