/* Internals of `weft server`, shared by server.c (options), start.c (from joining the job to
 * serving shards), serve.c (until shutdown) and promote.c. */
#ifndef WEFT_CLI_SERVER_INTERNAL_H
#define WEFT_CLI_SERVER_INTERNAL_H

#include "cli/train/job.h"
#include "cli/metrics.h"
#include "job/channel.h"
#include "metrics/server.h"
#include "node/checkpoint.h"
#include "node/coordinator.h"
#include "node/membership.h"
#include "node/recording.h"
#include "node/security.h"
#include "node/shard_thread.h"
#include "node/transport_options.h"

struct server {
    struct weft_shard_thread_config each; /* of every shard; fields that differ are set per shard */
    uint32_t port;
    uint32_t shards_here;
    uint32_t shard_base;
    struct weft_credit_share credit_share;
    uint32_t keepalive_ms;
    uint32_t idle_timeout_ms;
    uint32_t hot_epoch_ms; /* minimum time between two selections of the hot rows */
    bool restarted;        /* replaces a process that died */
    const char *trace;
    struct weft_recording recording;
    uint32_t control_fd; /* 0 = none: standard input is never a channel */
    struct weft_transport_options transport;
    struct weft_security security;
    struct weft_checkpoint_options checkpoints;
    struct weft_membership membership;
    const char *scheduler; /* HOST:PORT; NULL = none */
    struct weft_launch_address scheduler_address;
    uint32_t link_mbps; /* of this host's links; 0 = not known */
    bool replicate;         /* accept replicas */
    double div_max;         /* divergence bound of the job */
    bool has_reported;      /* this replica has reported that it can be promoted */
    const char *replica_of; /* "HOST:PORT,..." of the replicated shards; NULL = not a replica */
    struct weft_launch_address replicated[WEFT_JOB_SHARDS_MAX];
    uint32_t coordinate_port; /* UINT32_MAX = run no coordinator */
    const char *ports;        /* "p,p,...", from `weft run`; NULL = use `port` */
    const char *advertise;    /* address given to workers; NULL = each.driver.udp.host */
    struct weft_metrics_options metrics_options;

    struct weft_server_metrics metrics;
    struct weft_checkpoint *checkpoint; /* NULL = no checkpoints */
    struct weft_coordinator coordinator;
    struct weft_tracing tracing;
    struct weft_channel channel;
    uint32_t started; /* threads that have been started */
    struct weft_shard_thread threads[WEFT_JOB_SHARDS_MAX];
};

/* ---- start.c --------------------------------------------------------------------------------- */

/* Start the coordinator, acquire the lease, then start checkpoints, shards and metrics. A signal on
 * signal_fd ends the wait for the lease. The caller stops whatever was started, also after an
 * error. */
weft_status weft_server_start(struct server *server, int signal_fd, struct weft_error *error);

/* Acquire the lease. Errors: WEFT_PEER. */
weft_status weft_server_join(struct server *server, struct weft_error *error);
/* Publish the addresses of the shards at the coordinator. */
weft_status weft_server_publish(struct server *server, struct weft_error *error);

/* ---- promote.c ------------------------------------------------------------------------------- */

/* The parent's request to promote this replica. */
struct weft_server_promotion {
    uint32_t restart; /* number of starts of the server's slot */
    uint64_t died_ns; /* a time at which the server had died, CLOCK_MONOTONIC; 0 = unknown */
};
bool weft_server_is_promotion(const cJSON *message, struct weft_server_promotion *promotion_p);
/* Report to the parent, once, that this replica can be promoted. */
void weft_server_report_replica(struct server *server);
/* Promote this replica, or report the reason for a failure to the parent. Errors: WEFT_PEER,
 * WEFT_IO, WEFT_STATE: this process cannot continue. */
weft_status weft_server_promote(struct server *server,
                                const struct weft_server_promotion *promotion,
                                struct weft_error *error);

/* ---- serve.c --------------------------------------------------------------------------------- */

/* Also called from the checkpoint thread; the main thread does not log meanwhile. */
void weft_server_say_checkpoint(void *server, enum weft_node_level level, const char *text);

/* Returns the exit status. */
int weft_server_serve(struct server *server);

#endif
