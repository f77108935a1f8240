/* A training job on virtual time: workers read the model, compute and push updates, over links that
 * are shared fairly or by the planner's grants (sched/planner.h). At flow level up to 1,000
 * workers; at packet level 64 hosts with production endpoints, which implement grants as held
 * messages (core/msg.h).
 *
 *   policy           order of sending
 *   fair             all at once; max-min fair shares (sim/fluid.h), or congestion control
 *                    (sim/packet_flows.h)
 *   fifo             the planner, in order of arrival
 *   order ...        the planner, each with one more of its policies: see enum weft_fabric_policy
 *   ring, halving-doubling     sync only, without servers: the usual all-reduce algorithms
 *   tree ...         sync only, without servers: the planner's all-reduce
 *
 * Loop of a worker: read (the model, from all servers) -> compute -> push (an update, to all
 * servers) -> commit -> read. Bytes are divided equally among the servers. An update is committed
 * when all servers have received all of it. Commits are numbered, and this number is the version of
 * the model. An update's base version is the version when its read began. Its delay is the number
 * of other updates committed between its base and its own commit. A dropped update costs its worker
 * the step.
 *
 *   async   the next read begins with the commit
 *   ssp:N   the same, but at most N clocks ahead of the slowest
 *   sync    the next round begins with the last commit of the round. All updates of a round have
 *           the round's model as base and are applied together: delay 0
 *
 * At both levels, requests, grants and reports take the network's delay but no bandwidth. The
 * planner receives a link's new capacity report_ns after the change.
 *
 * Checked in every run, with assertions or as result.failure:
 *   - no link carries more than its capacity (sim/fluid.h);
 *   - the sum of delays over updates that were committed, dropped or are outstanding at the end =
 *     the sum over commits of the number of others then outstanding (outstanding = between its read
 *     and its commit);
 *   - with the planner's bound, no delay above tau_max; with its replicas, no divergence above
 *     div_max.
 *
 * Except for plan_ns, the result depends only on the configuration.
 */
#ifndef WEFT_SIM_FABRIC_H
#define WEFT_SIM_FABRIC_H

#include "base/hist.h"
#include "sim/fabric_settings.h"

enum {
    WEFT_FABRIC_WORKERS_MAX = 1000,
    WEFT_FABRIC_SERVERS_MAX = 16,
    WEFT_FABRIC_BYTES_MAX = 1000000000, /* of an update or a model */
};

enum weft_fabric_mode { WEFT_FABRIC_ASYNC, WEFT_FABRIC_SSP, WEFT_FABRIC_SYNC };

/* Model of the network that carries transfers. */
enum weft_fabric_level {
    WEFT_FABRIC_FLOWS,   /* fluids: sim/fluid.h */
    WEFT_FABRIC_PACKETS, /* messages of production endpoints: sim/packet_flows.h */
};

enum weft_fabric_policy {
    WEFT_FABRIC_FAIR,
    WEFT_FABRIC_FIFO,
    WEFT_FABRIC_ORDER,       /* shortest completion first */
    WEFT_FABRIC_BOUND,       /* also: no delay above tau_max */
    WEFT_FABRIC_AGGREGATION, /* also: sums at aggregators, store and forward */
    WEFT_FABRIC_CUT_THROUGH, /* also: sums forwarded chunk by chunk */
    WEFT_FABRIC_ADMISSION,   /* also: reads by credits */
    WEFT_FABRIC_TREE,        /* all-reduce along the planner's tree, store and forward */
    WEFT_FABRIC_TREE_CUT_THROUGH,
    WEFT_FABRIC_TREE_EARLY, /* also: contributions that are ready early are summed first */
    WEFT_FABRIC_RING,
    WEFT_FABRIC_HALVING_DOUBLING,
    WEFT_FABRIC_POLICIES,
};

enum weft_fabric_span_kind {
    WEFT_FABRIC_SPAN_READ,
    WEFT_FABRIC_SPAN_COMPUTE,
    WEFT_FABRIC_SPAN_WAIT, /* the update is ready and not sent; of an all-reduce, until its end */
    WEFT_FABRIC_SPAN_PUSH,
    WEFT_FABRIC_SPAN_GROUP, /* an aggregate, at its aggregator; to its server */
    WEFT_FABRIC_SPAN_REPLICA,
    WEFT_FABRIC_SPAN_REDUCE,
    WEFT_FABRIC_SPAN_BROADCAST,
    WEFT_FABRIC_SPAN_DROP, /* zero duration: a mark */
    WEFT_FABRIC_SPANS,
};

/* An activity of a host, with start and end times. */
struct weft_fabric_span {
    enum weft_fabric_span_kind kind;
    uint32_t host; /* workers first, then servers, then their replicas */
    uint32_t peer; /* the other end of a transfer; otherwise the host itself */
    uint64_t from_ns;
    uint64_t to_ns;
    uint64_t bytes;
};

struct weft_fabric_config {
    uint32_t workers;
    uint32_t servers;
    enum weft_fabric_level level;
    enum weft_fabric_policy policy;
    enum weft_fabric_mode mode;
    uint32_t staleness; /* ssp */
    struct weft_fabric_compute compute;
    struct weft_fabric_network network;
    uint64_t update_bytes; /* of a worker, to all servers */
    uint64_t model_bytes;  /* of a read, from all servers; 0 = reads take no time */
    uint64_t chunk_bytes;  /* granularity of data that is forwarded while it arrives */
    uint64_t tau_max;      /* delay bound, for policy BOUND and later ones */
    double div_max;        /* divergence bound in mean norms of an update; 0 = no replicas */
    bool is_chained;       /* with replicas: each gets every update before its commit (chain
                            * replication), instead of sums within div_max. Policy FAIR is always */
    uint32_t read_credits; /* policy ADMISSION */
    uint32_t ahead;        /* grants ahead per server; 0 = the planner's default */
    uint64_t report_ns;    /* delay until the planner receives a link's new capacity */
    uint64_t duration_ns;
    uint64_t seed;
    uint64_t (*clock_ns)(void *); /* real time, for plan_ns; NULL = not measured */
    void *clock_arg;
    void (*on_span)(void *, const struct weft_fabric_span *); /* NULL = none */
    void *span_arg;
};

struct weft_fabric_result {
    bool ok;
    char failure[256];
    uint64_t commits;
    uint64_t dropped;
    double delay_mean;
    double delay_sd;
    uint64_t delay_p99; /* nearest-rank percentile */
    uint64_t delay_max;
    double share_min; /* commits of the worker with the fewest, relative to the mean */
    uint64_t commits_by_worker[WEFT_FABRIC_WORKERS_MAX];
    double server_link_utilization; /* downlinks of all servers: bytes carried / bytes available to
                                     * the job */
    bool has_replica;
    double replica_divergence_max;
    uint64_t replica_bytes;
    uint64_t update_bytes;    /* arrived at servers; an aggregate counts once */
    uint64_t rounds;          /* sync: completed rounds */
    uint64_t makespan_ns;     /* sync: mean duration of a round; 0 = none completed */
    uint64_t groups;          /* aggregates committed */
    uint64_t grouped;         /* updates in them */
    uint64_t packets;         /* packet level: sent, all types */
    uint64_t packets_again;   /* retransmitted data packets */
    uint64_t packets_dropped; /* by switches with a full buffer */
    uint64_t trace_hash;      /* of every event of every endpoint */
    uint64_t plans;           /* calls of the planner */
    struct weft_hist plan_ns; /* real time of each call */
};

const char *weft_fabric_policy_name(enum weft_fabric_policy policy);
const char *weft_fabric_level_name(enum weft_fabric_level level);
const char *weft_fabric_mode_name(enum weft_fabric_mode mode);
const char *weft_fabric_span_name(enum weft_fabric_span_kind kind);

/* Without servers and reads: ring, halving-doubling, tree. */
bool weft_fabric_is_all_reduce(enum weft_fabric_policy policy);

/* 30 workers, one server, fair, async, CS1, NS1; 12.5 MB each way; a minute; seed 1. */
void weft_fabric_config_default(struct weft_fabric_config *config_p);

/* Returns NULL, or a description of the configuration error. */
const char *weft_fabric_config_check(const struct weft_fabric_config *config);

/* Running out of memory ends the process. */
void weft_fabric_run(const struct weft_fabric_config *config, struct weft_fabric_result *result_p);

#endif
