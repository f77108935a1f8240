/* One shard of a server in a thread of its own: its socket, its endpoint, its slice of the
 * parameters. Threads of one server share only the flag that ends them.
 */
#ifndef WEFT_NODE_SHARD_THREAD_H
#define WEFT_NODE_SHARD_THREAD_H

#include "io/driver.h"
#include "job/launch.h"
#include "node/checkpoint.h"
#include "node/log.h"
#include "node/recording.h"
#include "node/sched_link.h"
#include "node/security.h"
#include "node/standby.h"
#include "node/stats_query.h"
#include "node/tracing.h"
#include "ps/replica.h"
#include "ps/transfer.h"
#include "ps/update.h"

#include <pthread.h>
#include <stdatomic.h>

/* Hooks of a benchmark or a test, called on the shard's thread. NULL = none. */
struct weft_shard_hooks {
    /* The shard was created and is empty; nothing is served yet. */
    void (*prepare)(void *arg, struct weft_shard *shard);
    /* Called with every event before the shard. True: the event is consumed. */
    bool (*on_event)(void *arg, struct weft_msgr msgr, const struct weft_msg_event *event);
    /* After each step of the driver. */
    void (*turn)(void *arg, struct weft_shard *shard);
    void *arg;
    /* An update is closed (ps/update.h). */
    void (*committed)(void *arg, const struct weft_shard_committed *committed);
};

struct weft_shard_thread_config {
    /* Set by the caller, except fields that the thread sets: clock, keys, checkpoints. */
    struct weft_shard_config shard;
    /* The same, except before_send, observer, security and the sizes of the endpoint's tables.
     * ep.name 0 = the shard's name. */
    struct weft_driver_config driver;
    const struct weft_security *security;    /* loaded; borrowed until join */
    struct weft_checkpoint_feed *checkpoint; /* NULL = none are made; borrowed until join */
    struct weft_tracing *tracing;            /* of the process; NULL = none; borrowed until join */
    struct weft_recorder *recorder;          /* for the hot rows at the end; NULL = none; borrowed
                                              * until join */
    struct weft_node_log log;                /* for hints about refused peers */
    /* The address of the job's transfer scheduler, to which updates are reported (ps/update.h);
     * NULL = there is none. Borrowed until join. */
    const struct weft_launch_address *scheduler;
    uint32_t scheduler_workers; /* of the job; 0 = not known */
    uint64_t scheduler_host;    /* names the host whose link the shards of this process share */
    uint64_t scheduler_link_bps; /* of its links; 0 = not known */
    /* Not NULL: this is a replica of the shard at this address until weft_shard_thread_promote. Not
     * with checkpoint. Borrowed until join. */
    const struct weft_launch_address *replica_of;
    int lost_fd; /* eventfd, written when lost_rank is; -1 = none */
    struct weft_shard_hooks hooks;
};

/* Defaults of shard and driver; the endpoint accepts connections, over UDP on a free port of
 * 127.0.0.1, without security. */
void weft_shard_thread_config_default(struct weft_shard_thread_config *config_p);

/* The arguments of a stats query. */
struct weft_shard_serving {
    struct weft_shard *shard;
    struct weft_driver *driver;
    struct weft_standby *standby; /* NULL = it never was a replica */
};

struct weft_shard_thread {
    struct weft_shard_thread_config config;
    pthread_t thread;
    pthread_mutex_t lock; /* protects the fields up to `stop` */
    pthread_cond_t opened;
    bool is_open;               /* opened, or failed; see status */
    struct weft_driver *driver; /* set while the thread may be woken */
    uint16_t port;
    weft_status status;
    struct weft_error error;
    atomic_bool stop;
    _Atomic uint64_t flush_until_ns; /* set before `stop`: the thread ends by then, unless it was
                                      * blocked */
    atomic_bool has_deaths;
    uint64_t *died_ns; /* (workers,): reported, and not yet processed; 0 = none. Under the lock */
    _Atomic uint32_t lost_rank; /* the rank whose death ends the job (FAIL); UINT32_MAX = none */
    struct weft_stats_query promotion; /* of its struct weft_shard_serving, for one thread alone */
    struct weft_stats_query query;     /* of its struct weft_shard_serving, between two steps */
    uint32_t hints_logged;             /* of enum weft_ep_hint: one bit each */
    bool refusal_logged;
    bool no_scheduler_logged;
    struct weft_tracing_feed trace;
    /* Valid after weft_shard_thread_join: */
    struct weft_driver_counters counters;
    struct weft_shard_counters shard_counters;
    struct weft_shard_table_sums table_sums;
    struct weft_replication replication;
    struct weft_replica_state replica; /* all zero: the shard was not a replica */
    enum weft_ep_hint hint;            /* the last */
};

/* Start the thread and wait until it has opened its socket.
 * Owns:    thread is the caller's, at a fixed place until join; after an error nothing needs to be
 *          freed.
 * Errors:  as weft_driver_open, with error->text; WEFT_IO  no thread. */
weft_status weft_shard_thread_start(struct weft_shard_thread *thread,
                                    const struct weft_shard_thread_config *config,
                                    struct weft_error *error);

/* The process of this worker died at at_ns of the machine's clock. Thread: any. */
void weft_shard_thread_worker_died(struct weft_shard_thread *thread, uint32_t rank, uint64_t at_ns);

/* Promote this replica if it may serve instead of its shard, whose process was dead at at_ns of the
 * machine's clock (WEFT_NEVER: unknown). *why_p is GOOD also for a shard that is not a replica.
 * Thread: the one that started it. Errors: *why_p is not GOOD: nothing has changed. WEFT_TIMEOUT
 * the thread did not answer. */
weft_status weft_shard_thread_may_be_promoted(struct weft_shard_thread *thread, uint64_t at_ns,
                                              enum weft_replica_why *why_p);
weft_status weft_shard_thread_promote(struct weft_shard_thread *thread, uint64_t at_ns,
                                      enum weft_replica_why *why_p);

/* Request the end of the thread without waiting. The thread sends its outstanding reports to the
 * scheduler for at most half a second from now; a thread that was blocked for longer still gets a
 * tenth of a second. To stop several threads, end all, then join each. Thread: any. More than once:
 * the first counts. */
void weft_shard_thread_end(struct weft_shard_thread *thread);

/* End the thread, if not yet requested, and wait for it. It sends CLOSE to the workers, frees its
 * memory, and sets the counters. */
void weft_shard_thread_join(struct weft_shard_thread *thread);

#endif
