/* The coordinator in a thread: an endpoint that members connect to, the roster, its journal.
 *
 * `weft coordinator` runs it and waits; `weft server --coordinate` runs it beside its shards.
 */
#ifndef WEFT_NODE_COORDINATOR_H
#define WEFT_NODE_COORDINATOR_H

#include "job/coordinator_journal.h"
#include "member/service.h"
#include "node/log.h"
#include "node/security.h"
#include "node/stats_query.h"
#include "node/transport_options.h"

#include <pthread.h>
#include <stdatomic.h>

struct weft_coordinator_config {
    const char *host;
    uint16_t port;       /* 0 = any */
    const char *journal; /* NULL = none */
    struct weft_roster_config roster;
    struct weft_transport_options transport;
    const struct weft_security *security; /* loaded; borrowed until stop */
    struct weft_node_log log;
    /* Called when the lease of a member expired (`expired`), or when the member was heard from
     * again before another process got its slot. On the coordinator's thread. NULL = none. */
    void (*expired)(void *arg, const struct weft_member_request *who, bool expired);
    void *arg;
};

struct weft_coordinator {
    struct weft_coordinator_config config;
    struct weft_roster *roster;
    struct weft_member_service *service;
    struct weft_coordinator_journal *journal;
    struct weft_driver *driver;
    struct weft_provider *provider;
    pthread_t thread;
    bool is_running;
    int over_fd; /* readable when all workers have finished, and all servers have left or had time
                  * to learn it */
    bool said_broken;
    uint64_t over_ns; /* when the last worker left; 0 = not yet */
    atomic_bool stop;
    struct weft_stats_query query; /* of the coordinator */
    pthread_mutex_t lock;          /* of awake */
    struct weft_driver *awake;
};

/* Open everything, in this thread; then start the thread that serves.
 * Owns:    coordinator is the caller's, at a fixed place until stop, which must be called only
 *          after OK.
 * Errors:  as weft_driver_open and weft_coordinator_journal_open, with error->text. */
weft_status weft_coordinator_start(struct weft_coordinator *coordinator,
                                   const struct weft_coordinator_config *config,
                                   struct weft_error *error);

uint16_t weft_coordinator_port(const struct weft_coordinator *coordinator);

void weft_coordinator_stop(struct weft_coordinator *coordinator);

#endif
