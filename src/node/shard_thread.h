/* One shard of a server in a thread of its own: its socket, its endpoint, its slice of the
 * parameters. Threads of one server share nothing but the flag that ends them.
 */
#ifndef WEFT_NODE_SHARD_THREAD_H
#define WEFT_NODE_SHARD_THREAD_H

#include "io/driver.h"
#include "node/checkpoint.h"
#include "node/recording.h"
#include "node/security.h"
#include "node/stats_query.h"
#include "node/tracing.h"
#include "node/transport_options.h"
#include "ps/shard.h"

#include <pthread.h>
#include <stdatomic.h>

struct weft_shard_thread_config {
    const char *host;
    uint16_t port;     /* 0 = any */
    uint32_t shard;
    uint32_t shards;   /* in the whole job */
    uint32_t workers;
    uint32_t rows_max; /* of this shard, for each table */
    uint64_t table_bytes_max; /* of each table; 0 = none */
    uint32_t tables_max;
    uint32_t dim_max;
    uint32_t push_slots; /* this and the next four: 0 = the defaults */
    uint32_t pull_slots;
    uint32_t rows_per_rpc_max;
    uint32_t tx_window_max;
    uint64_t peer_timeout_ns;
    /* Hears of every request that arrives, with its stamp; NULL = nobody. */
    void (*on_request)(void *arg, weft_peer peer, uint64_t at_ns);
    void *on_request_arg;
    struct weft_credit_share *credit_share; /* of the shards of this host; outlives the thread */
    struct weft_loss_config loss;
    uint16_t busy_poll_us;
    uint64_t keepalive_ns;    /* WEFT_NEVER = not */
    uint64_t idle_timeout_ns;
    enum weft_worker_death on_death;
    int lost_fd; /* eventfd, written when lost_rank is; -1 = none */
    struct weft_transport_options transport;
    const struct weft_security *security; /* loaded; borrowed until join */
    uint32_t hot_top; /* rows of each table with most updates that are known; 0 = none */
    struct weft_node_log log; /* of hints about refused peers */
    struct weft_tracing *tracing; /* of the process; borrowed until join */
    struct weft_record_ring *records; /* NULL = none; borrowed until join */
    struct weft_recorder *recorder;   /* for the hot rows at the end; NULL = none, as above */
    uint64_t active_window_ns; /* with records; 0 = the usual */
    struct weft_checkpoint_feed *checkpoint; /* NULL = none are made; borrowed until join */
};

/* What questions are about (node/stats_query.h). */
struct weft_shard_serving {
    struct weft_shard *shard;
    struct weft_driver *driver;
};

struct weft_shard_thread {
    struct weft_shard_thread_config config;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows up to `stop` */
    pthread_cond_t opened;
    bool is_open;           /* or has failed; see status */
    struct weft_driver *driver; /* while the thread may be woken */
    uint16_t port;
    weft_status status;
    struct weft_io_error error;
    atomic_bool stop;
    atomic_bool has_deaths;
    uint64_t *died_ns; /* (workers,): told, and not yet taken; 0 = none. Under the lock */
    _Atomic uint32_t lost_rank; /* whose death ends the job (FAIL); UINT32_MAX = nobody's */
    struct weft_stats_query ask;
    uint32_t hints_said; /* of enum weft_ep_hint: bit by bit */
    struct weft_tracing_feed trace;
    /* Valid after weft_shard_thread_join: */
    struct weft_driver_counters counters;
    struct weft_shard_counters shard_counters;
    struct weft_shard_table_sums table_sums;
    enum weft_ep_hint hint; /* the last */
};

/* Start the thread and wait until it has opened its socket.
 * Owns:    thread is the caller's, at a fixed place until join; after an error nothing is left.
 * Errors:  as weft_driver_open, with error->text; WEFT_IO  no thread. */
weft_status weft_shard_thread_start(struct weft_shard_thread *thread,
                                    const struct weft_shard_thread_config *config,
                                    struct weft_io_error *error);

/* Any thread: the process of this worker has died, at at_ns of the machine's clock. */
void weft_shard_thread_worker_died(struct weft_shard_thread *thread, uint32_t rank, uint64_t at_ns);
/* Have the thread answer a question about its struct weft_shard_serving, between two batches.
 * Thread:  one at a time, not after join.   As weft_stats_query. */
bool weft_shard_thread_query(struct weft_shard_thread *thread, weft_stats_query_fn *question,
                           void *arg, uint64_t timeout_ns);

/* Tell the workers that it is over, give everything back, fill in the counters. */
void weft_shard_thread_join(struct weft_shard_thread *thread);

#endif
