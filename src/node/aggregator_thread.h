/* The aggregator of one shard in a thread of its own: its socket, its connection to the shard, and
 * the state machine (ps/aggregator.h) between them. Threads of one process share only the flag that
 * ends them.
 */
#ifndef WEFT_NODE_AGGREGATOR_THREAD_H
#define WEFT_NODE_AGGREGATOR_THREAD_H

#include "io/driver.h"
#include "job/launch.h"
#include "node/log.h"
#include "node/security.h"
#include "node/stats_query.h"
#include "ps/aggregator.h"

#include <pthread.h>
#include <stdatomic.h>

struct weft_aggregator_thread_config {
    struct weft_aggregator_config aggregator; /* except its clock and its key */
    struct weft_driver_config
        driver; /* except security, the name and the sizes of the endpoint's tables */
    const struct weft_security *security; /* loaded; borrowed until join */
    struct weft_launch_address server;    /* of the shard, or of the parent */
    struct weft_node_log log;
};

/* The state of a thread that is visible to others, as last copied. */
struct weft_aggregator_stats {
    struct weft_aggregator_counters counters;
    struct weft_aggregator_gauges gauges;
    struct weft_driver_counters transport;
    uint64_t cpu_ns; /* of the thread */
};

struct weft_aggregator_thread {
    struct weft_aggregator_thread_config config;
    pthread_t thread;
    pthread_mutex_t lock; /* protects the fields up to `stop` */
    pthread_cond_t opened;
    bool is_open;
    struct weft_driver *driver; /* set while the thread may be woken */
    uint16_t port;
    weft_status status;
    struct weft_error error;
    struct weft_launch_address moved; /* the server's current address; port 0 = unchanged */
    atomic_bool stop;
    atomic_bool has_failed;
    struct weft_stats_query query;      /* of its struct weft_aggregator_stats */
    struct weft_aggregator_stats stats; /* valid after join */
};

/* Defaults of both configurations; the endpoint accepts connections, over UDP on a free port of
 * 127.0.0.1. */
void weft_aggregator_thread_config_default(struct weft_aggregator_thread_config *config_p);

/* Start the thread and wait until it has opened its socket; the shard may start later.
 * Owns:    thread is the caller's, at a fixed place until join; after an error nothing needs to be
 *          freed.
 * Errors:  as weft_driver_open, with error->text; WEFT_IO  no thread. */
weft_status weft_aggregator_thread_start(struct weft_aggregator_thread *thread,
                                         const struct weft_aggregator_thread_config *config,
                                         struct weft_error *error);

/* Copy the visible state; false: the thread did not answer, and *stats_p is unchanged. Thread:
 * any. */
bool weft_aggregator_thread_ask(struct weft_aggregator_thread *thread,
                                struct weft_aggregator_stats *stats_p);

/* The shard is at this address now: end a connection to another one, and connect. Thread: any. */
void weft_aggregator_thread_move(struct weft_aggregator_thread *thread,
                                 const struct weft_launch_address *server);

/* True: its configuration does not fit the job; it has logged what to do, and acknowledges pushes
 * on commit. Thread: any. */
bool weft_aggregator_thread_failed(struct weft_aggregator_thread *thread);

void weft_aggregator_thread_join(struct weft_aggregator_thread *thread);

#endif
