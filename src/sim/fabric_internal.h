/* Definitions shared by the files of the fabric simulation. fabric.c: events and results;
 * fabric_worker.c: the loops of workers and servers; fabric_transfer.c: transfers and forwarding;
 * fabric_sched.c: communication with the planner; fabric_collective.c: ring and halving-doubling;
 * fabric_network.c: the level, flows or packets. */
#ifndef WEFT_SIM_FABRIC_INTERNAL_H
#define WEFT_SIM_FABRIC_INTERNAL_H

#include "base/prng.h"
#include "sched/planner.h"
#include "sim/fabric.h"
#include "sim/fluid.h"
#include "sim/heap.h"

#define WEFT_FABRIC_NOBODY UINT32_MAX

enum weft_fabric_event {
    WEFT_FABRIC_EVENT_LINK,     /* index: a link whose capacity changes */
    WEFT_FABRIC_EVENT_COMPUTED, /* a worker */
    WEFT_FABRIC_EVENT_ARRIVED,  /* a transfer; object: bytes */
    WEFT_FABRIC_EVENT_PACE,     /* a transfer's rate changes by its grant */
    WEFT_FABRIC_EVENT_REPORT,   /* object: of fabric_sched.c; also the next */
    WEFT_FABRIC_EVENT_DECISION,
    WEFT_FABRIC_EVENT_PLAN,
    WEFT_FABRIC_EVENT_END,
};

enum weft_fabric_state {
    WEFT_FABRIC_IDLE,   /* waiting for other workers */
    WEFT_FABRIC_ASKING, /* requesting a read from the planner */
    WEFT_FABRIC_READING,
    WEFT_FABRIC_COMPUTING,
    WEFT_FABRIC_PUSHING, /* has an update */
};

struct weft_fabric_worker {
    enum weft_fabric_state state;
    bool slow;
    bool outstanding; /* has a base version and is not committed */
    bool chained;     /* its update is being sent to the replicas */
    struct weft_prng steps;
    struct weft_prng norms;
    uint64_t clock; /* updates committed */
    uint64_t base;
    double norm;
    uint32_t left;     /* transfers of its read or push that have not arrived */
    uint64_t group;    /* the group that sums its update; 0 = none */
    uint64_t since_ns; /* start of its state */
    uint64_t sent_ns;  /* start of the first transfer of its push; WEFT_NEVER = none yet */
};

enum weft_fabric_kind {
    WEFT_FABRIC_READ,
    WEFT_FABRIC_PUSH,
    WEFT_FABRIC_CHAIN,  /* an update, from a server to its replica, before its commit */
    WEFT_FABRIC_MEMBER, /* an update, to an aggregator */
    WEFT_FABRIC_GROUP,  /* an aggregate, to a server */
    WEFT_FABRIC_REPLICA,
    WEFT_FABRIC_REDUCE,
    WEFT_FABRIC_BROADCAST,
    WEFT_FABRIC_STEP, /* of ring or halving-doubling */
};

struct weft_fabric_transfer {
    bool used;
    bool done;    /* complete; kept until its group is complete */
    bool granted; /* the booking determines the sending times */
    bool cut_through;
    enum weft_fabric_kind kind;
    uint32_t flow;
    uint32_t from;
    uint32_t to;
    uint32_t worker;
    uint32_t server;
    uint32_t members;
    uint32_t tree; /* of REDUCE and BROADCAST */
    uint32_t trees;
    uint32_t step; /* of STEP: the sequence number at its receiver */
    uint64_t bytes;
    uint64_t arrived;
    uint64_t released; /* of forwarded data: bytes received so far */
    uint64_t id;       /* the planner's id; 0 = not granted by the planner */
    uint64_t group;
    uint64_t rank;
    uint32_t next_input; /* of the same host; NOBODY = none */
    uint64_t from_ns;    /* earliest time of its first byte */
    uint64_t pace_ns;    /* time of its next rate change; other events are obsolete */
    double norm;         /* replica: norm of the update in it */
    struct weft_booking booking;
};

/* Forwarding state of a host. */
struct weft_fabric_relay {
    uint32_t inputs; /* those of `grouped` that arrive here: a list by next_input */
    bool stale;      /* data has arrived since outputs were released */
};

struct weft_fabric_shard {
    double pending; /* norms applied at this server but not at the replica */
};

/* Rate of a booking at a given time, and the time of the next change. */
struct weft_fabric_rate {
    uint64_t bps;
    uint64_t next_ns; /* WEFT_NEVER = no further change */
    uint64_t next_bps;
};

struct weft_fabric {
    struct weft_fabric_config config;
    struct weft_fabric_result *result;
    struct weft_fluid *fluid; /* one of these two, by config.level */
    struct weft_packet_flows *packets;
    struct weft_sim_heap heap;
    uint64_t now_ns;
    bool ended;
    uint32_t hosts;
    struct weft_fabric_link *links; /* (2 hosts,): uplink of host h at 2h, downlink at 2h + 1 */
    struct weft_fabric_worker *workers;
    struct weft_fabric_shard shards[WEFT_FABRIC_SERVERS_MAX];
    struct weft_fabric_transfer *transfers;
    uint32_t transfer_room;
    uint32_t *spare; /* indices of unused transfers */
    uint32_t spare_count;
    uint32_t *grouped; /* transfers that are forwarded, or that forwarding waits for */
    uint32_t grouped_count;
    struct weft_fabric_relay *relays; /* (hosts,) */
    uint64_t started;                 /* number of transfers started; source of ranks for transfers
                                       * that the planner did not grant */
    bool relays_stale;                /* of at least one host */
    /* Versions and delays. */
    uint64_t version; /* updates committed */
    uint32_t outstanding;
    uint64_t others_sum; /* over commits: number of other outstanding updates */
    uint64_t delay_sum;  /* over updates committed or dropped */
    uint32_t *delays;    /* of each commit */
    uint64_t delay_room;
    uint32_t round_done; /* sync: updates of the round that have arrived */
    uint64_t round_ns;   /* start of the round */
    uint64_t rounds_ns;  /* sum over completed rounds */
    /* Ring and halving-doubling. */
    uint32_t steps;    /* of a worker in a round */
    uint32_t *step_at; /* (workers,): steps begun */
    bool *step_has;    /* (workers x steps,): received, or nothing to receive */
    /* The planner. */
    struct weft_planner *planner;
    bool plan_due;
    uint64_t plan_at_ns; /* the planner's deadline, for which an event is queued */
};

/* ---- fabric.c -------------------------------------------------------------------------------- */

static inline uint32_t weft_fabric_up(uint32_t host)
{
    return 2 * host;
}

static inline uint32_t weft_fabric_down(uint32_t host)
{
    return 2 * host + 1;
}

static inline uint32_t weft_fabric_server_host(const struct weft_fabric *f, uint32_t server)
{
    return f->config.workers + server;
}

/* Chain replication: an update is committed when the replicas have it, too. */
static inline bool weft_fabric_is_chained(const struct weft_fabric_config *config)
{
    return config->div_max > 0 && (config->is_chained || config->policy == WEFT_FABRIC_FAIR);
}

static inline uint32_t weft_fabric_replica_host(const struct weft_fabric *f, uint32_t server)
{
    return f->config.workers + f->config.servers + server;
}

/* Share of one server in this many bytes; the first servers get the remainder. */
static inline uint64_t weft_fabric_part(const struct weft_fabric *f, uint64_t bytes,
                                        uint32_t server)
{
    return bytes / f->config.servers + (server < bytes % f->config.servers);
}

/* Advance to the next event time: process all its events, and then, once, their consequences. */
void weft_fabric_moment(struct weft_fabric *f);
bool weft_fabric_is_planned(enum weft_fabric_policy policy);
void weft_fabric_event(struct weft_fabric *f, uint64_t time_ns, enum weft_fabric_event kind,
                       uint32_t index, void *object);
[[gnu::format(printf, 2, 3)]] void weft_fabric_fail(struct weft_fabric *f, const char *format, ...);
/* Record a span that ends now; and one with a given end. */
void weft_fabric_span(struct weft_fabric *f, enum weft_fabric_span_kind kind, uint32_t host,
                      uint32_t peer, uint64_t from_ns, uint64_t bytes);
void weft_fabric_span_until(struct weft_fabric *f, const struct weft_fabric_span *span);
void *weft_fabric_zeroed(size_t count, size_t bytes);

/* ---- fabric_worker.c ------------------------------------------------------------------------- */

void weft_fabric_workers_start(struct weft_fabric *f);
void weft_fabric_read_granted(struct weft_fabric *f, uint32_t worker);
void weft_fabric_computed(struct weft_fabric *f, uint32_t worker);
void weft_fabric_dropped(struct weft_fabric *f, uint32_t worker);
/* A transfer of a read, push or chain has arrived. */
void weft_fabric_part_arrived(struct weft_fabric *f, const struct weft_fabric_transfer *transfer);
void weft_fabric_group_arrived(struct weft_fabric *f, uint64_t group, uint32_t server);
/* An all-reduce completed: every worker has the sum. */
void weft_fabric_all_reduced(struct weft_fabric *f);
void weft_fabric_replicated(struct weft_fabric *f, const struct weft_fabric_transfer *transfer);

/* ---- fabric_transfer.c ----------------------------------------------------------------------- */

/* Start a transfer now; returns its index. If granted, it follows its booking; otherwise it starts
 * at once, with a fair share if rank is 0. Forwarded data (GROUP, REDUCE, BROADCAST) is sent as it
 * arrives at `from`. */
uint32_t weft_fabric_transfer_start(struct weft_fabric *f,
                                    const struct weft_fabric_transfer *transfer);
void weft_fabric_transfer_regrant(struct weft_fabric *f, uint32_t transfer,
                                  const struct weft_booking *booking);
void weft_fabric_transfer_pace(struct weft_fabric *f, uint32_t transfer);
void weft_fabric_transfer_sent(struct weft_fabric *f, const struct weft_fluid_event *event);
void weft_fabric_transfer_arrived(struct weft_fabric *f, uint32_t transfer, uint64_t bytes);
/* Release forwardable data at hosts whose state has changed. */
void weft_fabric_relay(struct weft_fabric *f);
void weft_fabric_relay_stale(struct weft_fabric *f, uint32_t host);
/* Remove the transfers of a group. */
void weft_fabric_group_over(struct weft_fabric *f, uint64_t group);

/* ---- fabric_network.c ------------------------------------------------------------------------ */

void weft_fabric_network_new(struct weft_fabric *f);
/* Call after all links have their capacities: time 0. */
void weft_fabric_network_begin(struct weft_fabric *f);
void weft_fabric_network_free(struct weft_fabric *f);
void weft_fabric_network_set_capacity(struct weft_fabric *f, uint32_t link, uint64_t bps);
/* The payload rate of the link that is available to updates, as a daemon would report it. */
uint64_t weft_fabric_network_payload_bps(const struct weft_fabric *f, uint32_t link);
/* Time from the event of the last byte sent until its arrival. */
uint64_t weft_fabric_network_delay_ns(const struct weft_fabric *f);
uint32_t weft_fabric_network_start(struct weft_fabric *f, const struct weft_fluid_flow *flow,
                                   uint64_t released);
void weft_fabric_network_release(struct weft_fabric *f, uint32_t flow, uint64_t bytes);
void weft_fabric_network_limit(struct weft_fabric *f, uint32_t flow,
                               const struct weft_fabric_rate *rate, uint64_t rank);
uint64_t weft_fabric_network_next_ns(const struct weft_fabric *f);
void weft_fabric_network_advance(struct weft_fabric *f);
bool weft_fabric_network_poll(struct weft_fabric *f, struct weft_fluid_event *event_p);
/* Of the servers' downlinks: bytes carried / bytes available to the job. */
double weft_fabric_network_utilization(const struct weft_fabric *f);
/* Add the counters to the result. */
void weft_fabric_network_count(const struct weft_fabric *f);

/* ---- fabric_sched.c -------------------------------------------------------------------------- */

void weft_fabric_planner_new(struct weft_fabric *f);
void weft_fabric_report_update(struct weft_fabric *f, uint32_t worker);
void weft_fabric_report_read(struct weft_fabric *f, uint32_t worker);
void weft_fabric_report_delivered(struct weft_fabric *f, uint64_t id);
void weft_fabric_report_committed(struct weft_fabric *f, uint32_t worker, double norm);
void weft_fabric_report_capacity(struct weft_fabric *f, uint32_t link);
void weft_fabric_report_comes(struct weft_fabric *f, void *report);
void weft_fabric_decision_comes(struct weft_fabric *f, void *decision);
/* Plan if something was reported, or at its deadline; send the decisions. */
void weft_fabric_plan(struct weft_fabric *f);

/* ---- fabric_collective.c --------------------------------------------------------------------- */

void weft_fabric_collective_init(struct weft_fabric *f);
/* Start a round. */
void weft_fabric_collective_round(struct weft_fabric *f);
/* Continue with the next possible steps of this worker: its update is ready, or a transfer
 * arrived. */
void weft_fabric_collective_go_on(struct weft_fabric *f, uint32_t worker);
void weft_fabric_step_arrived(struct weft_fabric *f, const struct weft_fabric_transfer *transfer);

#endif
