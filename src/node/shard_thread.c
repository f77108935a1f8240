#include "node/shard_thread.h"

#include "io/clock.h"
#include "ps/transfer.h"
#include "ps/update.h"
#include "sched/planner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint64_t flush_patience_ns = WEFT_NS_PER_S / 2;
static const uint64_t flush_least_ns = WEFT_NS_PER_S / 10;

/* Objects of the running thread. */
struct serving {
    struct weft_shard_thread *thread;
    struct weft_driver *driver;
    struct weft_provider *provider;
    struct weft_shard *shard;
    struct weft_msgr msgr;
    struct weft_sched_link *link; /* NULL = no scheduler */
    struct weft_standby *standby; /* NULL = not a replica */
};

void weft_shard_thread_config_default(struct weft_shard_thread_config *config_p)
{
    static const struct weft_security none = {.mode = WEFT_MODE_NONE};
    *config_p = (struct weft_shard_thread_config){.security = &none, .lost_fd = -1};
    weft_shard_config_default(&config_p->shard);
    weft_driver_config_default(&config_p->driver);
    config_p->driver.udp.loopback_packet_bytes = WEFT_UDP_LOOPBACK_BYTES;
    config_p->driver.udp.blocking_receive = WEFT_UDP_BLOCKING_RECEIVE;
    config_p->driver.udp.ep.accept = 1;
    config_p->driver.udp.ep.done_later = 1;
    config_p->shard.chunks_max = config_p->driver.udp.ep.chunks_max;
}

static uint64_t clock_now(void *arg)
{
    (void)arg;
    return weft_clock_now_ns();
}

/* Allocate memory for rows; if there is none, new rows are refused and counted. */
static void supply_slabs(struct weft_shard *shard)
{
    uint16_t table;
    size_t bytes;
    while (weft_shard_wants_slab(shard, &table, &bytes)) {
        void *slab = malloc(bytes);
        if (slab == NULL || weft_shard_add_slab(shard, table, slab, bytes) != WEFT_OK) {
            free(slab);
            return;
        }
    }
}

/* Before replies are sent: the operations that they confirm are in the journal, and the journal is
 * on the disk. */
static void commit(void *arg)
{
    struct serving *serving = arg;
    if (serving->shard != NULL) { /* NULL before creation: nothing has changed */
        weft_checkpoint_commit(serving->thread->config.checkpoint, serving->shard);
    }
}

static void report_committed(struct serving *serving, const struct weft_shard_committed *committed)
{
    const struct weft_sched_event event = {
        .worker = committed->rank,
        .flags = committed->late ? WEFT_SCHED_LATE : 0,
        .clock = committed->clock,
        .norm = isfinite(committed->norm) ? committed->norm : -1,
        .rate_bps = weft_min_u64(committed->rate_bps, WEFT_TIMELINE_BPS_MAX),
        .alone_bps = weft_min_u64(committed->alone_bps, WEFT_TIMELINE_BPS_MAX),
        .all_bps = weft_min_u64(committed->all_bps, WEFT_TIMELINE_BPS_MAX),
        .members = committed->members,
        .sum_bytes = weft_min_u64(committed->sum_bytes, WEFT_PLANNER_BYTES_MAX),
    };
    weft_sched_daemon_committed(weft_sched_link_daemon(serving->link), &event);
}

/* Transfers to the replica wait for the scheduler. Not called while the shard is ending: it handles
 * no messages of the replica then, so a transfer could not end. */
static void plan_transfers(struct serving *serving, uint64_t now_ns)
{
    struct weft_sched_daemon *daemon = weft_sched_link_daemon(serving->link);
    bool waits;
    uint64_t bytes = 0;
    weft_shard_transfers_wait(serving->shard, true);
    const uint32_t number = weft_shard_transfer_now(serving->shard, &waits, &bytes);
    weft_sched_daemon_transfer(daemon, number, waits, bytes, now_ns);
    if (weft_sched_daemon_may_transfer(daemon, now_ns)) {
        weft_shard_transfer_begin(serving->shard, now_ns);
    }
}

/* Pass news of updates to the scheduler and to the owner of this shard. */
static void report_updates(struct serving *serving, uint64_t now_ns)
{
    const struct weft_shard_hooks *hooks = &serving->thread->config.hooks;
    const struct weft_shard_counters *counters = weft_shard_counters(serving->shard);
    struct weft_shard_committed committed;
    while (weft_shard_take_committed(serving->shard, &committed)) {
        if (serving->link != NULL) {
            report_committed(serving, &committed);
        }
        if (hooks->committed != NULL) {
            hooks->committed(hooks->arg, &committed);
        }
    }
    if (serving->link != NULL) {
        weft_sched_daemon_counts(weft_sched_link_daemon(serving->link), counters->updates_opened,
                                 counters->updates_closed);
        weft_sched_link_progress(serving->link, now_ns);
    }
}

/* Call before a step. Returns its maximum sleep in ns. */
static uint64_t maintain_link(struct serving *serving)
{
    const struct weft_launch_address *address = serving->thread->config.scheduler;
    uint64_t now_ns = weft_clock_now_ns();
    /* The scheduler knows a replica by the name of its shard, so the replica reports nothing while
     * that shard serves. */
    if (serving->link == NULL ||
        (serving->standby != NULL && !weft_standby_has_ended(serving->standby))) {
        return WEFT_NEVER;
    }
    if (weft_sched_link_wants_peer(serving->link, now_ns)) {
        struct weft_error error; /* ignored: nothing waits for the scheduler */
        weft_peer peer;
        if (weft_driver_connect(serving->driver, address->host, address->port, &peer, &error) !=
            WEFT_OK) {
            peer = WEFT_PEER_ANY;
        }
        weft_sched_link_connecting(serving->link, peer, now_ns);
    }
    uint64_t due_ns = weft_sched_link_deadline(serving->link);
    return due_ns == WEFT_NEVER ? WEFT_NEVER : due_ns > now_ns ? due_ns - now_ns : 0;
}

static void handle(void *arg, uint64_t now_ns)
{
    struct serving *serving = arg;
    const struct weft_shard_hooks *hooks = &serving->thread->config.hooks;
    struct weft_msg_event event;
    while (serving->msgr.ops->poll(serving->msgr.self, &event)) {
        if (serving->standby != NULL && weft_standby_event(serving->standby, &event, now_ns)) {
            continue;
        }
        if (serving->link != NULL && weft_sched_link_event(serving->link, &event, now_ns)) {
            continue;
        }
        if (hooks->on_event == NULL || !hooks->on_event(hooks->arg, serving->msgr, &event)) {
            weft_shard_event(serving->shard, &event, now_ns);
        }
    }
    if (serving->standby != NULL) {
        weft_standby_progress(serving->standby, now_ns);
    }
    weft_shard_progress(serving->shard, now_ns);
    supply_slabs(serving->shard);
    if (serving->link != NULL) {
        plan_transfers(serving, now_ns);
    }
    if (serving->link != NULL || hooks->committed != NULL) {
        report_updates(serving, now_ns);
    }
}

/* Publish the outcome of opening. */
static void tell(struct weft_shard_thread *thread, weft_status status, struct weft_driver *driver)
{
    pthread_mutex_lock(&thread->lock);
    thread->status = status;
    thread->driver = status == WEFT_OK ? driver : NULL;
    thread->port = status == WEFT_OK ? weft_driver_port(driver) : 0;
    thread->is_open = true;
    pthread_cond_signal(&thread->opened);
    pthread_mutex_unlock(&thread->lock);
}

/* Log each kind of hint once: any host that can reach the port could cause many. */
static void log_hint(struct weft_shard_thread *thread, enum weft_ep_hint hint)
{
    if (hint != thread->hint && (thread->hints_logged & 1u << hint) == 0) {
        char text[WEFT_SECURITY_HINT_BYTES];
        weft_security_hint(thread->config.security, hint, text, sizeof(text));
        weft_node_info(&thread->config.log, "shard %u: %s", thread->config.shard.shard, text);
        thread->hints_logged |= 1u << hint;
    }
    thread->hint = hint;
}

/* Process the deaths that a supervisor has reported since the last iteration. */
static void take_deaths(struct weft_shard_thread *thread, struct weft_shard *shard)
{
    if (!atomic_load_explicit(&thread->has_deaths, memory_order_relaxed)) {
        return;
    }
    atomic_store(&thread->has_deaths, false);
    pthread_mutex_lock(&thread->lock);
    for (uint32_t rank = 0; rank < thread->config.shard.workers_max; rank++) {
        if (thread->died_ns[rank] != 0) {
            weft_shard_worker_died(shard, rank, thread->died_ns[rank], weft_clock_now_ns());
            thread->died_ns[rank] = 0;
        }
    }
    pthread_mutex_unlock(&thread->lock);
}

static void tell_lost(struct weft_shard_thread *thread, const struct weft_shard *shard)
{
    uint32_t rank;
    const uint64_t one = 1;
    if (thread->lost_rank == UINT32_MAX && weft_shard_has_lost(shard, &rank)) {
        atomic_store(&thread->lost_rank, rank);
        (void)!write(thread->config.lost_fd, &one, sizeof(one));
    }
}

static void close_replaced(struct weft_driver *driver, struct weft_shard *shard)
{
    weft_peer peer;
    bool for_good;
    while (weft_shard_take_replaced(shard, &peer, &for_good)) {
        if (for_good) {
            weft_driver_refuse(driver, peer);
        } else {
            weft_driver_disconnect(driver, peer);
        }
    }
}

static void free_shard(struct weft_shard *shard)
{
    for (void *slab; shard != NULL && (slab = weft_shard_take_slab(shard)) != NULL;) {
        free(slab);
    }
    weft_shard_free(shard);
}

/* A replica whose shard has reconnected receives a full transfer. */
static void renew(struct weft_shard_thread *thread, struct serving *serving)
{
    if (serving->standby == NULL || !weft_standby_is_spent(serving->standby)) {
        return;
    }
    struct weft_shard *shard;
    weft_status status = weft_shard_new(&thread->config.shard, serving->msgr, &shard);
    if (status == WEFT_OK) {
        free_shard(serving->shard);
        serving->shard = shard;
        status = weft_standby_renew(serving->standby, shard, weft_clock_now_ns());
    }
    if (status != WEFT_OK) {
        weft_node_info(&thread->config.log, "shard %u: this replica ends: %s",
                       thread->config.shard.shard, weft_status_text(status));
        weft_shard_thread_end(thread);
    }
}

/* A replica that cannot apply its shard's stream logs that, once. */
static void log_refusal(struct weft_shard_thread *thread, const struct serving *serving)
{
    const struct weft_replica *replica =
        serving->standby != NULL ? weft_standby_replica(serving->standby) : NULL;
    if (replica != NULL && weft_replica_state(replica)->refused && !thread->refusal_logged) {
        thread->refusal_logged = true;
        weft_node_info(&thread->config.log, "shard %u: this process is not a replica: %s",
                       thread->config.shard.shard,
                       weft_replica_why_text(weft_replica_may_be_promoted(replica, 0)));
    }
}

static void log_scheduler(struct weft_shard_thread *thread, const struct weft_sched_link *link)
{
    const struct weft_launch_address *address = thread->config.scheduler;
    if (link != NULL && weft_sched_link_is_other(link) && !thread->no_scheduler_logged) {
        thread->no_scheduler_logged = true;
        weft_node_warn(&thread->config.log,
                       "shard %u: the process at %s:%u is not a scheduler, and gets no reports; "
                       "name the address that `weft scheduler` prints",
                       thread->config.shard.shard, address->host, address->port);
    }
}

/* Call before a step. Returns its maximum sleep in ns, at most timeout_ns. */
static uint64_t sleep_of(const struct serving *serving, uint64_t timeout_ns)
{
    uint64_t now_ns = weft_clock_now_ns();
    uint64_t due_ns = weft_shard_deadline(serving->shard);
    if (serving->standby != NULL) {
        due_ns = weft_min_u64(due_ns, weft_standby_maintain(serving->standby, now_ns));
    }
    uint64_t left_ns = due_ns == WEFT_NEVER ? WEFT_NEVER : due_ns > now_ns ? due_ns - now_ns : 0;
    return weft_min_u64(timeout_ns, left_ns);
}

/* Between two steps of the driver. True: do not sleep in the next one. */
static bool turn(struct weft_shard_thread *thread, struct serving *serving)
{
    const struct weft_shard_thread_config *config = &thread->config;
    renew(thread, serving);
    log_refusal(thread, serving);
    log_scheduler(thread, serving->link);
    struct weft_shard_serving view = {
        .shard = serving->shard, .driver = serving->driver, .standby = serving->standby};
    take_deaths(thread, serving->shard);
    tell_lost(thread, serving->shard);
    bool again =
        config->checkpoint != NULL && weft_checkpoint_turn(config->checkpoint, serving->shard);
    close_replaced(serving->driver, serving->shard);
    log_hint(thread, weft_driver_hint(serving->driver));
    weft_stats_query_poll(&thread->query, &view);
    weft_stats_query_poll(&thread->promotion, &view);
    if (config->hooks.turn != NULL) {
        config->hooks.turn(config->hooks.arg, serving->shard);
    }
    return again || weft_shard_has_work(serving->shard);
}

/* The events of a shard that is ending: only its last reports are sent. Requests that arrive now
 * are left to the server that its workers reconnect to, because the last checkpoint may have been
 * written. */
static void handle_link(void *arg, uint64_t now_ns)
{
    struct serving *serving = arg;
    struct weft_msg_event event;
    while (serving->msgr.ops->poll(serving->msgr.self, &event)) {
        (void)weft_sched_link_event(serving->link, &event, now_ns);
    }
    report_updates(serving, now_ns);
}

/* Report the last commits before the connection ends, unless the scheduler does not answer. The
 * timeout starts when the thread is told to end, so that threads told together end together. A
 * thread that was blocked for longer than the timeout, for example by a disk, still gets the
 * minimum time for a reply. */
static void flush_link(struct serving *serving)
{
    static const uint64_t step_ns = 10 * WEFT_NS_PER_MS;
    const uint64_t end_ns = weft_max_u64(atomic_load(&serving->thread->flush_until_ns),
                                         weft_time_add(weft_clock_now_ns(), flush_least_ns));
    bool more = serving->link != NULL;
    for (uint64_t sleep_ns = 0; more; sleep_ns = step_ns) {
        (void)weft_driver_step(serving->driver, sleep_ns, handle_link, serving);
        more = weft_sched_link_is_sending(serving->link) && weft_clock_now_ns() < end_ns;
    }
}

static void serve(struct weft_shard_thread *thread, struct serving *serving)
{
    struct weft_checkpoint_feed *feed = thread->config.checkpoint;
    bool has_work = weft_shard_has_work(serving->shard);
    if (feed != NULL) {
        weft_checkpoint_attach(feed, serving->driver);
    }
    weft_stats_query_open(&thread->query);
    weft_stats_query_open(&thread->promotion);
    tell(thread, WEFT_OK, serving->driver);
    bool may_serve = feed == NULL || weft_checkpoint_may_serve(feed);
    while (may_serve && !atomic_load(&thread->stop)) {
        uint64_t timeout_ns = sleep_of(serving, maintain_link(serving));
        (void)weft_driver_step(serving->driver, has_work ? 0 : timeout_ns, handle, serving);
        has_work = turn(thread, serving);
    }
    flush_link(serving);
    weft_stats_query_close(&thread->query);
    weft_stats_query_close(&thread->promotion);
    if (feed != NULL) {
        weft_checkpoint_attach(feed, NULL);
    }
    pthread_mutex_lock(&thread->lock);
    thread->driver = NULL; /* no thread wakes the driver from here on */
    pthread_mutex_unlock(&thread->lock);
    weft_shard_records_end(serving->shard);
    weft_recording_hot(thread->config.recorder, serving->shard, thread->config.shard.shard);
    weft_driver_counters(serving->driver, &thread->counters);
    thread->shard_counters = *weft_shard_counters(serving->shard);
    weft_shard_table_sums(serving->shard, &thread->table_sums);
    weft_shard_replication(serving->shard, &thread->replication);
    if (serving->standby != NULL && weft_standby_replica(serving->standby) != NULL) {
        thread->replica = *weft_replica_state(weft_standby_replica(serving->standby));
    }
}

static weft_status open_endpoint(struct weft_shard_thread *thread, struct serving *serving)
{
    const struct weft_shard_config *shard = &thread->config.shard;
    struct weft_driver_config armed = thread->config.driver;
    struct weft_ep_config *ep = &armed.udp.ep;
    char label[32];
    ep->name = ep->name != 0 ? ep->name : weft_rpc_name(WEFT_ROLE_SERVER, shard->shard);
    ep->senders_expected = (uint16_t)shard->workers_max; /* in a round, all of them at once */
    /* Twice the workers: a restarted worker may connect before its old connection times out. */
    ep->peers_max = 2 * (shard->workers_max + shard->aggregators_max) + 8;
    ep->expects_max = weft_shard_expects_max(shard);
    if (thread->config.replica_of != NULL) {
        ep->peers_max += 2;
        ep->expects_max += WEFT_REPLICA_EXPECTS;
        ep->is_standby = 1;
    }
    if (thread->config.scheduler != NULL) {
        ep->peers_max += 2; /* and one closed connection */
        ep->expects_max += WEFT_SCHED_LINK_EXPECTS;
    }
    if (thread->config.checkpoint != NULL && weft_checkpoint_commits(thread->config.checkpoint)) {
        armed.udp.before_send = (struct weft_before_send){.call = commit, .arg = serving};
    }
    weft_status status =
        weft_security_arm(thread->config.security, &armed.udp, &serving->provider, &thread->error);
    if (status == WEFT_OK) {
        snprintf(label, sizeof(label), "shard %u", shard->shard);
        weft_tracing_attach(thread->config.tracing, label, &armed.udp, &thread->trace);
        status = weft_driver_open(&armed, &serving->driver, &thread->error);
    }
    weft_security_disarm(&armed.udp);
    return status;
}

static weft_status make_link(struct weft_shard_thread *thread, struct serving *serving)
{
    const struct weft_shard_thread_config *config = &thread->config;
    struct weft_sched_daemon_config daemon;
    if (config->scheduler == NULL) {
        return WEFT_OK;
    }
    weft_sched_daemon_config_default(&daemon);
    daemon.role = WEFT_SCHED_SERVER;
    daemon.index = config->shard.shard;
    daemon.workers = config->scheduler_workers;
    daemon.shards = config->shard.shards;
    daemon.host = config->scheduler_host;
    daemon.up_bps = daemon.down_bps = config->scheduler_link_bps;
    weft_status status = weft_sched_link_new(&daemon, serving->msgr, &serving->link);
    return status == WEFT_OK ? status
                             : weft_fail(&thread->error, status,
                                         "the scheduler plans at most %d shards; here: shard %u of "
                                         "%u: %s",
                                         (int)WEFT_SCHED_SHARDS_MAX, config->shard.shard,
                                         config->shard.shards, weft_status_text(status));
}

static weft_status make_shard(struct weft_shard_thread *thread, struct serving *serving)
{
    const struct weft_shard_thread_config *config = &thread->config;
    serving->msgr = weft_driver_msgr(serving->driver);
    weft_status status = weft_shard_new(&config->shard, serving->msgr, &serving->shard);
    if (status != WEFT_OK) {
        return weft_fail(&thread->error, status, "cannot make the shard: %s",
                         weft_status_text(status));
    }
    if (config->replica_of != NULL) {
        status = weft_standby_new(serving->driver, serving->shard, config->replica_of, supply_slabs,
                                  &serving->standby);
        if (status != WEFT_OK) {
            return weft_fail(&thread->error, status, "cannot make the replica: %s",
                             weft_status_text(status));
        }
    }
    if (config->hooks.prepare != NULL) {
        config->hooks.prepare(config->hooks.arg, serving->shard);
    }
    if (config->checkpoint != NULL) {
        status = weft_checkpoint_restore(config->checkpoint, serving->shard,
                                         config->shard.workers_max, supply_slabs, &thread->error);
    }
    return status;
}

static void *run(void *arg)
{
    struct weft_shard_thread *thread = arg;
    struct serving serving = {.thread = thread};
    weft_status status = weft_security_table_keys(thread->config.security,
                                                  &thread->config.shard.keys, &thread->error);
    status = status == WEFT_OK ? open_endpoint(thread, &serving) : status;
    status = status == WEFT_OK ? make_shard(thread, &serving) : status;
    status = status == WEFT_OK ? make_link(thread, &serving) : status;
    if (status == WEFT_OK) {
        serve(thread, &serving);
    } else {
        tell(thread, status, NULL);
    }
    /* The endpoint borrows the shard's memory, so it is freed first. */
    weft_driver_close(serving.driver);
    weft_provider_free(serving.provider);
    weft_sched_link_free(serving.link);
    weft_standby_free(serving.standby);
    free_shard(serving.shard);
    return NULL;
}

/* With the lock held. */
static void wake(struct weft_shard_thread *thread)
{
    if (thread->driver != NULL) {
        weft_driver_wake(thread->driver);
    }
}

static void lock_and_wake(void *arg)
{
    struct weft_shard_thread *thread = arg;
    pthread_mutex_lock(&thread->lock);
    wake(thread);
    pthread_mutex_unlock(&thread->lock);
}

static void fini(struct weft_shard_thread *thread)
{
    weft_stats_query_fini(&thread->query);
    weft_stats_query_fini(&thread->promotion);
    pthread_cond_destroy(&thread->opened);
    pthread_mutex_destroy(&thread->lock);
    free(thread->died_ns);
}

weft_status weft_shard_thread_start(struct weft_shard_thread *thread,
                                    const struct weft_shard_thread_config *config,
                                    struct weft_error *error)
{
    memset(thread, 0, sizeof(*thread));
    thread->config = *config;
    thread->config.shard.clock_ns = clock_now;
    thread->config.shard.checkpoints |= config->checkpoint != NULL;
    thread->lost_rank = UINT32_MAX;
    thread->died_ns = calloc(config->shard.workers_max, sizeof(*thread->died_ns));
    if (thread->died_ns == NULL) {
        return weft_fail(error, WEFT_NOMEM, "out of memory");
    }
    pthread_mutex_init(&thread->lock, NULL);
    pthread_cond_init(&thread->opened, NULL);
    weft_stats_query_init(&thread->query, &(struct weft_stats_query_config){.wake = lock_and_wake,
                                                                            .wake_arg = thread});
    weft_stats_query_init(&thread->promotion,
                          &(struct weft_stats_query_config){.wake = lock_and_wake,
                                                            .wake_arg = thread});
    int why = pthread_create(&thread->thread, NULL, run, thread);
    if (why != 0) {
        fini(thread);
        return weft_fail(error, WEFT_IO, "cannot start a thread: %s", strerror(why));
    }
    pthread_mutex_lock(&thread->lock);
    while (!thread->is_open) {
        pthread_cond_wait(&thread->opened, &thread->lock);
    }
    weft_status status = thread->status;
    pthread_mutex_unlock(&thread->lock);
    if (status != WEFT_OK) {
        pthread_join(thread->thread, NULL);
        fini(thread);
        *error = thread->error;
    }
    return status;
}

void weft_shard_thread_worker_died(struct weft_shard_thread *thread, uint32_t rank, uint64_t at_ns)
{
    if (rank >= thread->config.shard.workers_max) {
        return;
    }
    pthread_mutex_lock(&thread->lock);
    thread->died_ns[rank] = at_ns;
    atomic_store(&thread->has_deaths, true);
    wake(thread);
    pthread_mutex_unlock(&thread->lock);
}

struct promotion {
    uint64_t at_ns;
    enum weft_replica_why why;
};

/* On the shard's thread. */
static void may_be_promoted(void *arg, void *object)
{
    const struct weft_shard_serving *serving = object;
    struct promotion *promotion = arg;
    const uint64_t at_ns = weft_min_u64(promotion->at_ns, weft_clock_now_ns());
    promotion->why = serving->standby == NULL ? WEFT_REPLICA_GOOD
                                              : weft_standby_may_end(serving->standby, at_ns);
}

static void promote(void *arg, void *object)
{
    const struct weft_shard_serving *serving = object;
    struct promotion *promotion = arg;
    const uint64_t at_ns = weft_min_u64(promotion->at_ns, weft_clock_now_ns());
    promotion->why =
        serving->standby == NULL ? WEFT_REPLICA_GOOD : weft_standby_end(serving->standby, at_ns);
    if (promotion->why == WEFT_REPLICA_GOOD && weft_driver_udp(serving->driver) != NULL) {
        weft_ep_serve(weft_udp_ep(weft_driver_udp(serving->driver)));
    }
}

static weft_status ask_for_promotion(struct weft_shard_thread *thread,
                                     weft_stats_query_fn *question, uint64_t at_ns,
                                     enum weft_replica_why *why_p)
{
    const uint64_t patience_ns = 10 * WEFT_NS_PER_S; /* on a busy machine a thread may wait for a
                                                      * processor */
    struct promotion promotion = {.at_ns = at_ns, .why = *why_p};
    if (!weft_stats_query_ask(&thread->promotion, question, &promotion, patience_ns)) {
        return WEFT_TIMEOUT;
    }
    *why_p = promotion.why;
    return WEFT_OK;
}

weft_status weft_shard_thread_may_be_promoted(struct weft_shard_thread *thread, uint64_t at_ns,
                                              enum weft_replica_why *why_p)
{
    return ask_for_promotion(thread, may_be_promoted, at_ns, why_p);
}

weft_status weft_shard_thread_promote(struct weft_shard_thread *thread, uint64_t at_ns,
                                      enum weft_replica_why *why_p)
{
    return ask_for_promotion(thread, promote, at_ns, why_p);
}

void weft_shard_thread_end(struct weft_shard_thread *thread)
{
    const uint64_t until_ns = weft_time_add(weft_clock_now_ns(), flush_patience_ns);
    uint64_t never = 0; /* unless a request to end set it */
    (void)atomic_compare_exchange_strong(&thread->flush_until_ns, &never, until_ns);
    atomic_store(&thread->stop, true);
    lock_and_wake(thread);
}

void weft_shard_thread_join(struct weft_shard_thread *thread)
{
    weft_shard_thread_end(thread);
    pthread_join(thread->thread, NULL);
    fini(thread);
}
