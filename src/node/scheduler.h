/* The transfer scheduler in a thread: an endpoint that workers and shards connect to, and the
 * service (sched/service.h) on it.
 *
 * `weft scheduler` runs it and waits. It keeps nothing on disk: a restarted scheduler rebuilds its
 * state from the next reports, within a heartbeat.
 */
#ifndef WEFT_NODE_SCHEDULER_H
#define WEFT_NODE_SCHEDULER_H

#include "node/log.h"
#include "node/security.h"
#include "node/stats_query.h"
#include "node/transport_options.h"
#include "sched/service.h"

#include <pthread.h>
#include <stdatomic.h>

struct weft_scheduler_config {
    const char *host;
    uint16_t port;                            /* 0 = any */
    struct weft_sched_service_config service; /* set by start: life, note, arg */
    struct weft_transport_options transport;
    const struct weft_security *security; /* loaded; borrowed until stop */
    struct weft_node_log log;
};

struct weft_scheduler {
    struct weft_scheduler_config config;
    struct weft_sched_service *service;
    struct weft_driver *driver;
    struct weft_provider *provider;
    struct weft_scheduler_slot *slots;     /* buffers for reports */
    struct weft_scheduler_answer *answers; /* buffers for plans */
    struct weft_sched_plan plan;           /* as last polled */
    pthread_t thread;
    bool is_running;
    atomic_bool stop;
    struct weft_stats_query query; /* of the scheduler */
    pthread_mutex_t lock;          /* protects awake */
    struct weft_driver *awake;
};

/* Open everything, in this thread; then start the thread that serves.
 * Owns:    scheduler is the caller's, and must not be moved until stop; call stop only after OK.
 * Errors:  as weft_driver_open and weft_sched_service_new, with the text in error. */
weft_status weft_scheduler_start(struct weft_scheduler *scheduler,
                                 const struct weft_scheduler_config *config,
                                 struct weft_error *error);

uint16_t weft_scheduler_port(const struct weft_scheduler *scheduler);

void weft_scheduler_stop(struct weft_scheduler *scheduler);

#endif
