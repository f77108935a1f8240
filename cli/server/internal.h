/* The inside of `weft server`, shared by server.c (options), server_start.c (from the job's word to
 * shards that serve) and server_serve.c (until the end). Not for others. */
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
    struct weft_shard_thread_config each; /* of every shard, but what tells one from the others */
    uint32_t port;
    uint32_t shards_here;
    uint32_t shard_base;
    struct weft_credit_share credit_share;
    uint32_t keepalive_ms;
    uint32_t idle_timeout_ms;
    bool restarted; /* in place of one that died */
    const char *trace;
    struct weft_recording recording;
    uint32_t control_fd; /* 0 = none: standard input is never a channel */
    struct weft_transport_options transport;
    struct weft_security security;
    struct weft_checkpoint_options checkpoints;
    struct weft_membership membership;
    const char *scheduler; /* HOST:PORT; NULL = none */
    struct weft_launch_address scheduler_address;
    bool replicate;         /* take replicas */
    double div_max;         /* of the job */
    bool has_told;          /* the replica, that it could take its server's place */
    const char *replica_of; /* "HOST:PORT,..." of the shards replicated; NULL = it is no replica */
    struct weft_launch_address replicated[WEFT_JOB_SHARDS_MAX];
    uint32_t coordinate_port; /* UINT32_MAX = be no coordinator */
    const char *ports;        /* "p,p,...", from `weft run`; NULL = as port says */
    const char *advertise;    /* what workers are told to connect to; NULL = host */
    struct weft_metrics_options metrics_options;

    struct weft_server_metrics metrics;
    struct weft_checkpoint *checkpoint; /* NULL = none are made */
    struct weft_coordinator coordinator;
    struct weft_tracing tracing;
    struct weft_channel channel;
    uint32_t started;
    struct weft_shard_thread threads[WEFT_JOB_SHARDS_MAX];
};

/* ---- server_start.c -------------------------------------------------------------------------- */

/* All of it: coordinator, lease, checkpoints, shards, metrics. signal_fd: a signal that comes on it
 * ends the waiting. What was started is to be ended in each case. */
weft_status weft_server_start(struct server *server, int signal_fd, struct weft_error *error);

/* The lease. Errors: WEFT_PEER. */
weft_status weft_server_join(struct server *server, struct weft_error *error);
/* Tell the coordinator where the shards are. */
weft_status weft_server_publish(struct server *server, struct weft_error *error);

/* ---- promote.c ------------------------------------------------------------------------------- */

/* The parent says: take the place of your server. */
struct weft_server_promotion {
    uint32_t restart; /* its slot was started so often */
    uint64_t died_ns; /* it was dead then, by the machine's clock; 0 = not known */
};
bool weft_server_is_promotion(const cJSON *message, struct weft_server_promotion *promotion_p);
/* Tell the parent, once, that this replica could take its server's place. */
void weft_server_tell_replica(struct server *server);
/* Do, or tell it why not. Errors: WEFT_PEER, WEFT_IO, WEFT_STATE: this process is of no use now. */
weft_status weft_server_promote(struct server *server, const struct weft_server_promotion *promotion,
                                struct weft_error *error);

/* ---- server_serve.c -------------------------------------------------------------------------- */

/* From the checkpoints' own thread, too; the main thread says nothing meanwhile. */
void weft_server_say_checkpoint(void *server, enum weft_node_level level, const char *text);

/* The exit status. */
int weft_server_serve(struct server *server);

#endif
