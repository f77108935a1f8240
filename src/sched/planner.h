/* The planner of transfers: it decides when each worker sends, at which rate, and through which
 * aggregator.
 *
 * Every push and every model read of a job must be requested first. The planner orders the updates
 * in time instead of letting them share links (shortest completion first). It drops an update that
 * could only be applied too late, groups updates to be summed on the path (aggregators), keeps a
 * replica within a bound of its server, and admits reads. Its inputs are events and the time, its
 * outputs decisions; it does no I/O, and no allocation after weft_planner_new. The simulator and
 * the scheduler process (service.h) link it.
 *
 * What it is not: it does not send, measure or estimate bandwidth. The caller reports capacities
 * and carries out the decisions.
 *
 *     struct weft_planner *planner;
 *     weft_planner_config_default(&config);               then hosts, workers, servers, policy
 *     weft_planner_new(&config, &planner);
 *     for each message, and at weft_planner_deadline:
 *         weft_planner_update(planner, &update, now);      or _read, _delivered, _committed, ...
 *         weft_planner_plan(planner, now);                 once for all messages that have arrived
 *         while (weft_planner_poll(planner, &decision)) {
 *             switch (decision.kind) ...                   send it to decision.from_host's process
 *         }
 *
 * ALL_REDUCE: _update of every worker -> REDUCE and BROADCAST -> _delivered of each; no _committed.
 * The worker's part in the round ends when it has received the whole result; `group` is the round.
 *
 * The life of one update (other modes):
 *     _read -> GRANT_READ for each server -> _delivered of each -> the worker computes ->
 *     _update -> DROP, or GRANT to each server (or one to an aggregator, then GRANT_GROUP to each
 *     server) -> _delivered of each transfer -> _committed, and the next round.
 * The transfers of a group's members and of its sum have the same `group`. With
 * WEFT_PLAN_CUT_THROUGH, GRANT_GROUP is issued immediately, otherwise by the plan after the last
 * member was reported delivered. Reads need not be reported when WEFT_PLAN_ADMISSION is off: then
 * start with _update.
 *
 * Versions: a server counts the updates that it has applied. All servers apply them in one order,
 * so one count suffices. The base version of an update is the least count in the pull replies from
 * which it was computed. The delay of an update is the number of other updates committed between
 * its base version and its own commit. With WEFT_PLAN_BOUND, an update is granted only if no
 * completion order of the granted updates can give a delay above tau_max.
 *
 * Source: [mlfabric]; docs/SCHEDULER.md lists the differences from the paper.
 */
#ifndef WEFT_SCHED_PLANNER_H
#define WEFT_SCHED_PLANNER_H

#include "base/status.h"
#include "sched/timeline.h"

enum {
    WEFT_PLANNER_HOSTS_MAX = 4096,
    WEFT_PLANNER_WORKERS_MAX = 2048,
    WEFT_PLANNER_SERVERS_MAX = 64,
    WEFT_PLANNER_AHEAD_MAX = 2048,
    WEFT_PLANNER_PIECES_MAX = 32, /* as of updates: ps/aggregate.h */
    WEFT_PLANNER_WINDOW_MAX = 64,
};

#define WEFT_PLANNER_NONE UINT32_MAX
/* Largest update or model: 1 TB. */
#define WEFT_PLANNER_BYTES_MAX (UINT64_C(1) << 40)
/* Largest share of weft_planner_sum_share: 16. */
#define WEFT_PLANNER_SHARE_MAX UINT32_C(16000000)

enum weft_planner_mode {
    WEFT_PLANNER_ASYNC,
    /* As ASYNC, but updates of workers at the least clock are first, and are dropped only if the
     * delay bound or div_max could not be met otherwise. */
    WEFT_PLANNER_SSP,
    /* Every update of a clock is applied. Only an update whose norm alone exceeds div_max is
     * dropped, because it could never be granted. */
    WEFT_PLANNER_SYNC,
    WEFT_PLANNER_ALL_REDUCE, /* no servers: a tree of the workers' hosts, selected for each round */
};

/* Optional policies of the planner. Without any, it grants in order of arrival, one update at a
 * time per link. */
enum weft_planner_policy {
    WEFT_PLAN_ORDER = 1,       /* shortest completion first, minimum shares for slow uplinks */
    WEFT_PLAN_BOUND = 2,       /* keep the delay within tau_max: promote, hold, drop; not in SYNC */
    WEFT_PLAN_AGGREGATE = 4,   /* let aggregators sum groups on the path */
    WEFT_PLAN_CUT_THROUGH = 8, /* an aggregator forwards each chunk when it has received it from all
                                * members */
    WEFT_PLAN_ADMISSION = 16,  /* grant reads within read_credits */
    WEFT_PLAN_REPLICATE = 32,  /* keep replicas within div_max */
};

struct weft_planner_host {
    uint64_t up_bps;
    uint64_t down_bps;
};

/* Arrays are borrowed until weft_planner_new returns. */
struct weft_planner_config {
    enum weft_planner_mode mode;
    uint32_t policy; /* WEFT_PLAN_... */
    uint32_t hosts;
    uint32_t workers;
    uint32_t servers;                     /* 0 in mode ALL_REDUCE */
    uint32_t aggregators;                 /* may be 0 */
    const struct weft_planner_host *host; /* (hosts,) */
    const uint32_t *worker_host;          /* (workers,) */
    const uint32_t *server_host;          /* (servers,) */
    const uint32_t *replica_host;         /* (servers,) or NULL; WEFT_PLANNER_NONE = no replica */
    const uint32_t *aggregator_host;      /* (aggregators,): may be workers' hosts */
    uint32_t ahead;        /* maximum number of grants per server with a start in the future (late
                            * binding). 0: a direct update is granted only when it can start */
    uint32_t groups_ahead; /* maximum number of groups in flight */
    uint32_t window;       /* number of updates considered for a partition into groups */
    uint32_t tie_ppm;      /* completions that differ by less than this fraction of the time from
                            * now are ties: the oldest base version is first */
    uint32_t slow_ppm;     /* an uplink below this fraction of the fastest worker's is slow */
    uint32_t floor_ppm;    /* slow uplinks get this fraction of the share that their number entitles
                            * them to */
    uint64_t age_ns;       /* an update that has waited for this time is first; WEFT_NEVER =
                            * disabled */
    uint32_t hold_max;     /* drop an update if more than this number of other updates would wait
                            * for it */
    uint32_t drops_max;    /* consecutive drops of a worker due to hold_max; after that its update
                            * is sent */
    uint64_t tau_max;      /* delay bound */
    uint32_t read_credits; /* maximum number of workers between read and commit; see
                            * weft_planner_read_at */
    uint64_t chunk_bytes;  /* size of a chunk in cut-through */
    uint32_t pieces; /* > 0: the members of a sum are sent at once, in this many equal chunks, or
                      * fewer if these would be smaller than chunk_bytes for each server. They
                      * arrive interleaved */
    /* Bytes that each further member adds to a sum, as a share of its own bytes: 0 = dense, 10^6 =
     * disjoint. For sums until a report (weft_planner_sum_share). */
    uint32_t aggregate_ppm;
    bool groups_of_a_clock; /* all members of a group have the same clock; needed in BSP only */
    /* A member of a group sends when it is granted, and if its aggregator fails it sends directly,
     * without another grant. It then stays granted. */
    bool members_resend;
    double div_max;         /* divergence bound, in the norm of the model */
    double step_size;       /* eta: a committed update changes the model by eta * norm */
    double momentum;  /* beta in [0, 1): in total an update changes the model by eta / (1 - beta) *
                       * norm */
    uint64_t version; /* number of updates that count as committed before the first */
};

/* Defaults: ASYNC; policy ORDER; ahead 3; groups_ahead 2; window 32; ties 5 %; slow below a half;
 * floor of the whole share; age_ns never; hold_max 1; drops_max 2; chunks of 64 KB; dense; tau_max
 * and read_credits without limit. */
void weft_planner_config_default(struct weft_planner_config *config_p);

/* Number of pieces into which an update with these bytes for each server is cut: 1 = it is stored
 * and forwarded. As a worker decides for a dense table (ps/client_piece.c). */
static inline uint32_t weft_planner_pieces(const struct weft_planner_config *config,
                                           uint64_t server_bytes)
{
    const uint64_t most = server_bytes / config->chunk_bytes;
    const uint64_t pieces = most < config->pieces ? most : config->pieces;
    return pieces > 1 ? (uint32_t)pieces : 1;
}

struct weft_planner;

/* Errors:  WEFT_INVALID  a field is out of range, a host does not exist, a rate is above
 *                        WEFT_TIMELINE_BPS_MAX, or a factor of the norm is not finite.
 *          WEFT_NOMEM. */
weft_status weft_planner_new(const struct weft_planner_config *config,
                             struct weft_planner **planner_p);
void weft_planner_free(struct weft_planner *planner);

/* ---- events ----------------------------------------------------------------------------------
 *
 * Events are reports of other processes, and are validated here. WEFT_DATA: the report contradicts
 * itself or the planner's state; only a counter `refused_` has changed. A delivery that is reported
 * after its commit is refused in this way, without harm. `now_ns` is monotonic; a smaller value is
 * replaced by the last one. Events are only recorded: weft_planner_plan decides. */

struct weft_planner_update {
    uint32_t worker;
    uint64_t clock; /* of the worker; increasing */
    uint64_t bytes; /* over all servers, > 0 */
    /* (servers,) whose sum is bytes; NULL = equal parts. Borrowed. */
    const uint64_t *server_bytes;
    uint64_t base_version; /* not above the number of granted updates */
    double norm;           /* of the update, finite, >= 0; a forecast of the change by its commit */
};

/* A worker requests an update. WEFT_DATA: its previous update is neither committed nor dropped. */
weft_status weft_planner_update(struct weft_planner *planner,
                                const struct weft_planner_update *update, uint64_t now_ns);

/* A worker requests the model: bytes over all servers, in equal parts. */
weft_status weft_planner_read(struct weft_planner *planner, uint32_t worker, uint64_t bytes,
                              uint64_t now_ns);

/* The same for a worker whose next update will have this clock (weft_planner_read: the clock after
 * that of its last update). In SSP the lowest clock is admitted first. If all workers between read
 * and commit are at later clocks, it is admitted even without a free credit, because these workers
 * may wait for it. */
weft_status weft_planner_read_at(struct weft_planner *planner, uint32_t worker, uint64_t clock,
                                 uint64_t bytes, uint64_t now_ns);

/* A worker has begun to read without a grant: from now on it counts as between read and commit. A
 * read that it has requested is cancelled. WEFT_DATA: it already counts as between read and
 * commit. */
weft_status weft_planner_has_read(struct weft_planner *planner, uint32_t worker, uint64_t clock,
                                  uint64_t now_ns);

/* A worker no longer requests a read, or will not report an update after its read; its credit is
 * free. WEFT_DATA: the worker has neither a read request nor a credit. */
weft_status weft_planner_read_over(struct weft_planner *planner, uint32_t worker, uint64_t now_ns);

/* All bytes of a transfer have arrived at its to_host. */
weft_status weft_planner_delivered(struct weft_planner *planner, uint64_t transfer,
                                   uint64_t now_ns);

/* A worker's update is applied at all servers (a group: one report for each member).
 * applied_norm is the norm of the step as applied over all servers; negative = unknown, the
 * forecast is used. */
weft_status weft_planner_committed(struct weft_planner *planner, uint32_t worker,
                                   double applied_norm, uint64_t now_ns);

/* A server has applied a sum with this update, which was granted as a member of a group. For
 * callers that do not report the deliveries of sums: a commit does not say that a sum arrived,
 * because the member may have been sent directly instead. The sum's transfer to the server ends,
 * and sums that wait for the server's link follow. WEFT_DATA: the update is in no group in
 * flight. */
weft_status weft_planner_sum_arrived(struct weft_planner *planner, uint32_t worker,
                                     uint32_t server, uint64_t now_ns);

/* A worker left; its transfers end. An update of which bytes may have reached a server counts as a
 * version. When all members of a sum have left or are committed, the sum's transfers end too. The
 * worker may return with a read or an update. ALL_REDUCE: the round ends for all workers, and all
 * must request again. */
weft_status weft_planner_worker_left(struct weft_planner *planner, uint32_t worker,
                                     uint64_t now_ns);

/* Without WEFT_PLAN_REPLICATE, in a job whose servers measure the divergence themselves: a server
 * requests a transfer of so many bytes to its replica. It is granted (REPLICATE) when the server's
 * uplink and the replica's downlink have no reservation, and no other server's transfer over them
 * is in progress. weft_planner_replica_over: the transfer has ended, or is not requested any more.
 * WEFT_DATA: the server has no replica, or has requested a transfer; _over: it has not. */
weft_status weft_planner_replica(struct weft_planner *planner, uint32_t server, uint64_t bytes,
                                 uint64_t now_ns);
weft_status weft_planner_replica_over(struct weft_planner *planner, uint32_t server,
                                      uint64_t now_ns);

/* The aggregator at aggregator_host[idx] failed or is available again. After a failure the members
 * of its groups wait again, or with members_resend stay in flight. */
weft_status weft_planner_aggregator(struct weft_planner *planner, uint32_t idx, bool is_there,
                                    uint64_t now_ns);

/* The capacity of a link was measured or has changed; 0 = it is down. Transfers in flight on it are
 * planned again; the next plan has one GRANT with is_revised for each, regardless of the number of
 * reports. */
weft_status weft_planner_capacity(struct weft_planner *planner, uint32_t host, bool is_up,
                                  uint64_t capacity_bps, uint64_t now_ns);

/* In sums of this number of members each further member has added this share of its bytes to those
 * of the largest; it replaces aggregate_ppm for later sums of this number, and for those of other
 * numbers without a report of their own. At most WEFT_PLANNER_SHARE_MAX: a sum may have more bytes
 * than its members together, because it has a count for each row. */
weft_status weft_planner_sum_share(struct weft_planner *planner, uint32_t members,
                                   uint32_t share_ppm);

/* Make all decisions that are possible now. Call also at weft_planner_deadline. */
void weft_planner_plan(struct weft_planner *planner, uint64_t now_ns);

/* Grant only reads and the transfers that servers have requested (weft_planner_replica), for a
 * caller that postpones the plan. */
void weft_planner_plan_reads(struct weft_planner *planner, uint64_t now_ns);

/* Time to call weft_planner_plan without a report; WEFT_NEVER = not needed. */
uint64_t weft_planner_deadline(const struct weft_planner *planner);

/* ---- decisions ------------------------------------------------------------------------------- */

enum weft_planner_decision_kind {
    WEFT_PLANNER_GRANT,       /* a worker's update: to a server, or the whole update to an
                               * aggregator */
    WEFT_PLANNER_GRANT_GROUP, /* an aggregate, from the aggregator to a server */
    WEFT_PLANNER_GRANT_READ,  /* the model, from a server to a worker */
    WEFT_PLANNER_REPLICATE,   /* the replica's missing updates, from a server to its replica */
    WEFT_PLANNER_REDUCE,      /* ALL_REDUCE: the sum of a host, to its parent */
    WEFT_PLANNER_BROADCAST,   /* ALL_REDUCE: the result, from parent to child */
    WEFT_PLANNER_DROP, /* the worker discards its update and reads again; ignored if it has left */
};

enum weft_planner_drop {
    WEFT_PLANNER_DROP_NONE,
    /* The update can no longer be committed within tau_max; or it must be the next, but its path is
     * down and others could be sent. */
    WEFT_PLANNER_DROP_LATE,
    WEFT_PLANNER_DROP_CROWDED,    /* more updates are due by a position than there are positions */
    WEFT_PLANNER_DROP_BLOCKING,   /* waiting for it would delay too many others (Fig. 5) */
    WEFT_PLANNER_DROP_DIVERGENCE, /* it alone moves the model by more than div_max */
};

struct weft_planner_decision {
    enum weft_planner_decision_kind kind;
    enum weft_planner_drop drop;
    uint64_t transfer; /* id for weft_planner_delivered; 0 = a DROP */
    /* The worker whose update or read this is; REDUCE: the sender, BROADCAST: the receiver;
     * WEFT_PLANNER_NONE for groups and replicas. */
    uint32_t worker;
    uint32_t server; /* index; WEFT_PLANNER_NONE if neither end is a server */
    uint32_t from_host;
    uint32_t to_host; /* the next hop */
    uint64_t bytes;
    uint64_t group;    /* id of the group, the same for the members and the aggregate; 0 = direct */
    uint32_t members;  /* GRANT_GROUP, REDUCE: updates in the sum */
    uint64_t position; /* position of the update in the order of grants; of a group, that of its
                        * first member */
    /* REDUCE, BROADCAST: the vector is divided into `trees` parts, and this transfer is part
     * `tree`. Else tree = 0, trees = 1. */
    uint32_t tree;
    uint32_t trees;
    bool is_cut_through;  /* send a chunk as soon as it has arrived from all members */
    uint64_t chunk_bytes; /* size of a chunk in cut-through */
    /* This decision replaces an earlier one for the same transfer: its booking is valid from now
     * on, for the bytes that the plan has not sent yet. A sum now waits for `members` updates,
     * because a member may have left. */
    bool is_revised;
    struct weft_booking booking; /* times and rates of sending */
};

/* Get the next decision, in the order in which they were made; false = none. Fetch all of them
 * after each plan: the queue holds the decisions of one plan only. */
bool weft_planner_poll(struct weft_planner *planner, struct weft_planner_decision *decision_p);

/* ---- counters -------------------------------------------------------------------------------- */

/* All are cumulative. */
struct weft_planner_counters {
    uint64_t updates; /* requested */
    uint64_t reads;
    uint64_t granted; /* number of updates granted, not of transfers */
    uint64_t grouped; /* updates granted through an aggregator */
    uint64_t groups;
    uint64_t commits;
    uint64_t delay_sum; /* sum over all commits */
    uint64_t delay_max;
    uint64_t dropped_late;
    uint64_t dropped_crowded;
    uint64_t dropped_blocking;
    uint64_t dropped_divergence;
    uint64_t promoted;   /* selected before a shorter update because of the bound */
    uint64_t slow_first; /* selected before a shorter update because of the floor or the age */
    uint64_t held;       /* plans that granted nothing in order to keep the bound of an update in
                          * flight */
    uint64_t reads_granted;
    uint64_t replications;
    uint64_t held_divergence;     /* plans that waited for a replica */
    uint64_t divergence_exceeded; /* commits whose applied norm was above forecast and div_max */
    uint64_t rounds;              /* of ALL_REDUCE */
    uint64_t overdue;             /* times the deadline of a transfer was extended because no report
                                   * arrived */
    uint64_t full;                /* times a table was full and a decision was postponed */
    uint64_t refused_unknown;     /* reports about unknown transfers or requests */
    uint64_t refused_range;       /* sizes, hosts, rates out of range */
    uint64_t refused_norm;        /* not finite, or negative */
    uint64_t refused_version;     /* base versions above the number of granted updates, or clocks
                                   * that decreased */
    uint64_t refused_twice;       /* a second request before the first has ended */
};

const struct weft_planner_counters *weft_planner_counters(const struct weft_planner *planner);

/* Number of updates committed: the version. */
uint64_t weft_planner_version(const struct weft_planner *planner);

/* Number of commits of one worker. */
uint64_t weft_planner_commits(const struct weft_planner *planner, uint32_t worker);

/* Sum of the norms committed at the servers but not at their replicas, relative to div_max in ppm,
 * rounded up. At most 10^6, except for commits in `divergence_exceeded`. 0 without
 * WEFT_PLAN_REPLICATE. */
uint64_t weft_planner_divergence_ppm(const struct weft_planner *planner);

/* The timeline of a link, for checks and plots. Owns: gives a view, valid until the next call. */
const struct weft_timeline *weft_planner_link(const struct weft_planner *planner, uint32_t host,
                                              bool is_up);

#endif
