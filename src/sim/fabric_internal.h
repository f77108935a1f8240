/* What the files of the fabric simulation share. fabric.c has the events and the result, fabric_worker.c
 * the loop of workers and servers, fabric_transfer.c transfers and what is forwarded, fabric_sched.c
 * what goes to and comes from the planner, fabric_collective.c ring and halving-doubling,
 * fabric_carrier.c the level: flows or packets. */
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
    WEFT_FABRIC_EVENT_REPORT,   /* object: of fabric_sched.c; so the next */
    WEFT_FABRIC_EVENT_DECISION,
    WEFT_FABRIC_EVENT_PLAN,
    WEFT_FABRIC_EVENT_END,
};

enum weft_fabric_state {
    WEFT_FABRIC_IDLE,   /* waits for other workers */
    WEFT_FABRIC_ASKING, /* for a read, of the planner */
    WEFT_FABRIC_READING,
    WEFT_FABRIC_COMPUTING,
    WEFT_FABRIC_PUSHING, /* has an update */
};

struct weft_fabric_worker {
    enum weft_fabric_state state;
    bool slow;
    bool outstanding; /* has a base version, and is not committed */
    bool chained;     /* its update is on its way to the replicas */
    struct weft_prng steps;
    struct weft_prng norms;
    uint64_t clock; /* updates committed */
    uint64_t base;
    double norm;
    uint32_t left;     /* transfers of its read, or of its push, that have not arrived */
    uint64_t group;    /* its update is summed in this; 0 = not */
    uint64_t since_ns; /* of its state */
    uint64_t sent_ns;  /* first transfer of its push; WEFT_NEVER = not yet */
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
    bool done;    /* all has arrived; kept for the others of its group */
    bool granted; /* the booking says when to send */
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
    uint32_t step; /* of STEP: its receiver's number */
    uint64_t bytes;
    uint64_t arrived;
    uint64_t released; /* of what is forwarded: so much has come */
    uint64_t id;       /* the planner's; 0 = not its own */
    uint64_t group;
    uint64_t rank;
    uint32_t next_input; /* of the same host; NOBODY = no more */
    uint64_t from_ns;    /* its first byte may be sent from here on */
    uint64_t pace_ns;    /* of its next change of rate; other events are void */
    double norm;         /* replica: what it brings */
    struct weft_booking booking;
};

/* What a host may forward. */
struct weft_fabric_relay {
    uint32_t inputs; /* those of `grouped` that come here: a list by next_input */
    bool stale;      /* some has come since outputs were released */
};

struct weft_fabric_shard {
    double pending; /* norms applied here, and not at the replica */
};

/* What a booking says of a time, and of what comes then. */
struct weft_fabric_rate {
    uint64_t bps;
    uint64_t next_ns; /* WEFT_NEVER = it stays so */
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
    uint32_t *spare; /* indices of transfers that are not used */
    uint32_t spare_count;
    uint32_t *grouped; /* of those that are forwarded, or that forwarding waits for */
    uint32_t grouped_count;
    struct weft_fabric_relay *relays; /* (hosts,) */
    uint64_t started;                 /* transfers; ranks of those that the planner did not grant */
    bool relays_stale;                /* of some host */
    /* Versions and delays. */
    uint64_t version; /* updates committed */
    uint32_t outstanding;
    uint64_t others_sum; /* over commits: the others that were outstanding */
    uint64_t delay_sum;  /* of updates committed or dropped */
    uint32_t *delays;    /* of each commit */
    uint64_t delay_room;
    uint32_t round_done; /* sync: updates of the round that have arrived */
    uint64_t round_ns;   /* when the round began */
    uint64_t rounds_ns;  /* of all that are complete */
    /* Ring and halving-doubling. */
    uint32_t steps;    /* of a worker in a round */
    uint32_t *step_at; /* (workers,): steps begun */
    bool *step_has;    /* (workers x steps,): received, or nothing comes */
    /* The planner. */
    struct weft_planner *planner;
    bool plan_due;
    uint64_t plan_at_ns; /* its deadline, for which there is an event */
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

static inline uint32_t weft_fabric_replica_host(const struct weft_fabric *f, uint32_t server)
{
    return f->config.workers + f->config.servers + server;
}

/* What one server has of so many bytes; the first ones have the odd bytes. */
static inline uint64_t weft_fabric_part(const struct weft_fabric *f, uint64_t bytes,
                                        uint32_t server)
{
    return bytes / f->config.servers + (server < bytes % f->config.servers);
}

/* Go to the next time at which something happens: all of that, and then, once, what follows from it. */
void weft_fabric_moment(struct weft_fabric *f);
bool weft_fabric_is_planned(enum weft_fabric_policy policy);
void weft_fabric_event(struct weft_fabric *f, uint64_t time_ns, enum weft_fabric_event kind,
                       uint32_t index, void *object);
[[gnu::format(printf, 2, 3)]] void weft_fabric_fail(struct weft_fabric *f, const char *format, ...);
/* Until now; and until the time that it says. */
void weft_fabric_span(struct weft_fabric *f, enum weft_fabric_span_kind kind, uint32_t host,
                      uint32_t peer, uint64_t from_ns, uint64_t bytes);
void weft_fabric_span_until(struct weft_fabric *f, const struct weft_fabric_span *span);
void *weft_fabric_zeroed(size_t count, size_t bytes);

/* ---- fabric_worker.c ------------------------------------------------------------------------- */

void weft_fabric_workers_start(struct weft_fabric *f);
void weft_fabric_read_granted(struct weft_fabric *f, uint32_t worker);
void weft_fabric_computed(struct weft_fabric *f, uint32_t worker);
void weft_fabric_dropped(struct weft_fabric *f, uint32_t worker);
/* A transfer of its read, push or chain has arrived. */
void weft_fabric_part_arrived(struct weft_fabric *f, const struct weft_fabric_transfer *transfer);
void weft_fabric_group_arrived(struct weft_fabric *f, uint64_t group, uint32_t server);
/* An all-reduce is over: every worker has the sum. */
void weft_fabric_all_reduced(struct weft_fabric *f);
void weft_fabric_replicated(struct weft_fabric *f, const struct weft_fabric_transfer *transfer);

/* ---- fabric_transfer.c ----------------------------------------------------------------------- */

/* From now on; gives its index. granted: by the booking; else at once, with a fair share for rank 0.
 * What is forwarded (GROUP, REDUCE, BROADCAST) is sent as it arrives at `from`. */
uint32_t weft_fabric_transfer_start(struct weft_fabric *f,
                                    const struct weft_fabric_transfer *transfer);
void weft_fabric_transfer_regrant(struct weft_fabric *f, uint32_t transfer,
                                  const struct weft_booking *booking);
void weft_fabric_transfer_pace(struct weft_fabric *f, uint32_t transfer);
void weft_fabric_transfer_sent(struct weft_fabric *f, const struct weft_fluid_event *event);
void weft_fabric_transfer_arrived(struct weft_fabric *f, uint32_t transfer, uint64_t bytes);
/* Release what can be forwarded by hosts at which something has changed. */
void weft_fabric_relay(struct weft_fabric *f);
void weft_fabric_relay_stale(struct weft_fabric *f, uint32_t host);
/* Forget the transfers of a group. */
void weft_fabric_group_over(struct weft_fabric *f, uint64_t group);

/* ---- fabric_carrier.c ------------------------------------------------------------------------ */

void weft_fabric_carrier_new(struct weft_fabric *f);
/* When all links have their capacities: time 0. */
void weft_fabric_carrier_begin(struct weft_fabric *f);
void weft_fabric_carrier_free(struct weft_fabric *f);
void weft_fabric_carrier_set_capacity(struct weft_fabric *f, uint32_t link, uint64_t bps);
/* What updates can have of the link, as a daemon would report it. */
uint64_t weft_fabric_carrier_payload_bps(const struct weft_fabric *f, uint32_t link);
/* From the event that the last byte was sent until it is there. */
uint64_t weft_fabric_carrier_delay_ns(const struct weft_fabric *f);
uint32_t weft_fabric_carrier_start(struct weft_fabric *f, const struct weft_fluid_flow *flow,
                                   uint64_t released);
void weft_fabric_carrier_release(struct weft_fabric *f, uint32_t flow, uint64_t bytes);
void weft_fabric_carrier_limit(struct weft_fabric *f, uint32_t flow,
                               const struct weft_fabric_rate *rate, uint64_t rank);
uint64_t weft_fabric_carrier_next_ns(const struct weft_fabric *f);
void weft_fabric_carrier_advance(struct weft_fabric *f);
bool weft_fabric_carrier_poll(struct weft_fabric *f, struct weft_fluid_event *event_p);
/* Of the servers' downlinks: carried over what was there for us. */
double weft_fabric_carrier_utilization(const struct weft_fabric *f);
/* Into the result. */
void weft_fabric_carrier_count(const struct weft_fabric *f);

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
/* A round begins. */
void weft_fabric_collective_round(struct weft_fabric *f);
/* Go on with what this worker can do: its update is ready, or something came. */
void weft_fabric_collective_go_on(struct weft_fabric *f, uint32_t worker);
void weft_fabric_step_arrived(struct weft_fabric *f, const struct weft_fabric_transfer *transfer);

#endif
