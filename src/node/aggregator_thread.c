#define _GNU_SOURCE
#include "node/aggregator_thread.h"

#include "io/clock.h"
#include "io/random.h"
#include "node/worker.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const uint64_t connect_pause_ns = 100 * WEFT_NS_PER_MS;
static const uint64_t refused_pause_ns = WEFT_NS_PER_S;
static const uint64_t ask_patience_ns = WEFT_NS_PER_S;

/* The objects of the running thread. */
struct serving {
    struct weft_aggregator_thread *thread;
    struct weft_driver *driver;
    struct weft_provider *provider;
    struct weft_aggregator *aggregator;
    struct weft_msgr msgr;
    weft_peer peer;      /* its connection to the shard, or the last one */
    uint64_t connect_ns; /* do not connect to the shard before this time */
    uint64_t refusals;   /* refusals by the shard or parent, logged so far */
    uint64_t cycles_detected; /* cycles logged so far */
    bool age_noted;
    bool on_apply_noted;
};

static uint64_t clock_now(void *arg)
{
    (void)arg;
    return weft_clock_now_ns();
}

void weft_aggregator_thread_config_default(struct weft_aggregator_thread_config *config_p)
{
    memset(config_p, 0, sizeof(*config_p));
    weft_aggregator_config_default(&config_p->aggregator);
    weft_driver_config_default(&config_p->driver);
    config_p->driver.udp.loopback_packet_bytes = WEFT_UDP_LOOPBACK_BYTES;
    config_p->driver.udp.ep.accept = 1;
}

static void handle(void *arg, uint64_t now_ns)
{
    struct serving *serving = arg;
    struct weft_msg_event event;
    while (serving->msgr.ops->poll(serving->msgr.self, &event)) {
        weft_aggregator_event(serving->aggregator, &event, now_ns);
    }
    weft_aggregator_progress(serving->aggregator, now_ns);
}

static void tell(struct weft_aggregator_thread *thread, weft_status status,
                 struct weft_driver *driver)
{
    pthread_mutex_lock(&thread->lock);
    thread->status = status;
    thread->driver = status == WEFT_OK ? driver : NULL;
    thread->port = status == WEFT_OK ? weft_driver_port(driver) : 0;
    thread->is_open = true;
    pthread_cond_signal(&thread->opened);
    pthread_mutex_unlock(&thread->lock);
}

static void copy_stats(void *arg, void *object)
{
    struct weft_aggregator_stats *stats = arg;
    const struct serving *serving = object;
    struct timespec cpu;
    stats->counters = *weft_aggregator_counters(serving->aggregator);
    weft_aggregator_gauges(serving->aggregator, &stats->gauges);
    weft_driver_counters(serving->driver, &stats->transport);
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu) == 0) {
        stats->cpu_ns = (uint64_t)cpu.tv_sec * WEFT_NS_PER_S + (uint64_t)cpu.tv_nsec;
    }
}

/* The parent is a child of this one, is this one, or has its number. That may change, so retry, but
 * less often. */
static void note_loop(struct serving *serving, uint64_t now_ns)
{
    const struct weft_aggregator_thread_config *config = &serving->thread->config;
    const uint64_t cycles = weft_aggregator_counters(serving->aggregator)->cycles_detected;
    if (cycles == serving->cycles_detected) {
        return;
    }
    if (serving->cycles_detected == 0) {
        weft_node_warn(&config->log,
                       "the aggregators form a cycle, or two of them have the same number: "
                       "this one is number %u%s%s; give each its own --number, and "
                       "one of them --servers. Until then pushes are sent to the server",
                       config->aggregator.number,
                       config->aggregator.has_parent ? ", its parent " : "",
                       config->aggregator.has_parent ? config->server.host : "");
    }
    serving->cycles_detected = cycles;
    serving->connect_ns = now_ns + refused_pause_ns;
}

/* Another process has its number at the shard. That one may end, so retry, but less often. */
static void note_refusal(struct serving *serving, uint64_t now_ns)
{
    const struct weft_aggregator_thread_config *config = &serving->thread->config;
    const uint64_t refusals = weft_aggregator_counters(serving->aggregator)->shard_refusals;
    if (refusals == serving->refusals) {
        return;
    }
    if (serving->refusals == 0 && config->aggregator.has_parent) {
        weft_node_warn(&config->log,
                       "the aggregator at %s:%u has no room for number %u, or has another one; "
                       "give it --children %u or more, or give this one another --number. Until "
                       "then pushes are sent to the server",
                       config->server.host, config->server.port, config->aggregator.number,
                       config->aggregator.number + 1);
    } else if (serving->refusals == 0) {
        weft_node_warn(&config->log,
                       "the server of shard %u (%s:%u) has another aggregator with number %u; end "
                       "that one, or give this one another --number. Until then pushes are "
                       "sent to the server",
                       config->aggregator.shard, config->server.host, config->server.port,
                       config->aggregator.number);
    }
    serving->refusals = refusals;
    serving->connect_ns = now_ns + refused_pause_ns;
}

/* Workers time out before an incomplete sum is old enough to be sent; the parent has reported how
 * long a push waits there. */
static void note_age(struct serving *serving)
{
    const struct weft_aggregator_thread_config *config = &serving->thread->config;
    const uint64_t age_ns = weft_aggregator_age_ns(serving->aggregator);
    if (serving->age_noted || age_ns < WEFT_WORKER_VIA_TIMEOUT_MS * WEFT_NS_PER_MS) {
        return;
    }
    serving->age_noted = true;
    weft_node_warn(&config->log,
                   "a push may wait %llu ms in sums, %llu ms of them here; a worker declares an "
                   "aggregator dead after %d ms (%d with a scheduler) without a reply, and pushes "
                   "to the server. Lower --flush-age-us here or at a parent, until all levels "
                   "together are below that",
                   (unsigned long long)(age_ns / WEFT_NS_PER_MS),
                   (unsigned long long)(config->aggregator.age_ns / WEFT_NS_PER_MS),
                   (int)WEFT_WORKER_VIA_TIMEOUT_MS, (int)WEFT_WORKER_VIA_PLANNED_MS);
}

/* A push that is acknowledged on apply can be lost, which a journal or replay is to prevent. */
static void note_on_apply(struct serving *serving)
{
    const struct weft_aggregator_thread_config *config = &serving->thread->config;
    if (serving->on_apply_noted ||
        weft_aggregator_counters(serving->aggregator)->on_apply_refused == 0) {
        return;
    }
    serving->on_apply_noted = true;
    weft_node_warn(&config->log,
                   "--acknowledge apply is not possible: the server of shard %u has a --journal, "
                   "or a worker --replay-bytes, so that no acknowledged push is lost. Start this "
                   "aggregator with --acknowledge commit, or the servers without --journal and "
                   "the workers without --replay-bytes",
                   config->aggregator.shard);
    atomic_store(&serving->thread->has_failed, true);
}

/* Another process serves the shard, at another address. The connected one is dead or cut off, which
 * its connection may show only after the peer timeout; until then every sum sent to it would be
 * lost, and its members would time out. */
static void follow(struct serving *serving)
{
    struct weft_aggregator_thread *thread = serving->thread;
    struct weft_launch_address *server = &thread->config.server;
    pthread_mutex_lock(&thread->lock);
    const bool has_moved =
        thread->moved.port != 0 &&
        (thread->moved.port != server->port || strcmp(thread->moved.host, server->host) != 0);
    *server = has_moved ? thread->moved : *server;
    pthread_mutex_unlock(&thread->lock);
    if (has_moved && !weft_aggregator_wants_shard(serving->aggregator)) {
        weft_driver_disconnect(serving->driver, serving->peer);
    }
}

/* Call between two steps. Returns the maximum sleep of the next step in ns. */
static uint64_t turn(struct serving *serving)
{
    const struct weft_launch_address *server = &serving->thread->config.server;
    struct weft_error error;
    uint64_t now_ns = weft_clock_now_ns(), due_ns;
    weft_peer peer;
    bool for_good;
    follow(serving);
    while (weft_aggregator_take_closed(serving->aggregator, &peer, &for_good)) {
        if (for_good) {
            weft_driver_refuse(serving->driver, peer);
        } else {
            weft_driver_disconnect(serving->driver, peer);
        }
    }
    weft_stats_query_poll(&serving->thread->query, serving);
    note_refusal(serving, now_ns);
    note_loop(serving, now_ns);
    note_age(serving);
    note_on_apply(serving);
    due_ns = weft_aggregator_deadline(serving->aggregator);
    if (weft_aggregator_wants_shard(serving->aggregator)) {
        if (now_ns >= serving->connect_ns) {
            serving->connect_ns = now_ns + connect_pause_ns;
            if (weft_driver_connect(serving->driver, server->host, server->port, &serving->peer,
                                    &error) == WEFT_OK) {
                weft_aggregator_connect(serving->aggregator, serving->peer);
            }
        }
        due_ns = weft_min_u64(due_ns, serving->connect_ns);
    }
    return due_ns == WEFT_NEVER ? WEFT_NEVER : due_ns > now_ns ? due_ns - now_ns : 0;
}

static void serve(struct weft_aggregator_thread *thread, struct serving *serving)
{
    weft_stats_query_open(&thread->query);
    tell(thread, WEFT_OK, serving->driver);
    while (!atomic_load(&thread->stop)) {
        (void)weft_driver_step(serving->driver, turn(serving), handle, serving);
    }
    copy_stats(&thread->stats, serving);
    weft_stats_query_close(&thread->query);
    pthread_mutex_lock(&thread->lock);
    thread->driver = NULL; /* no thread wakes the driver from here on */
    pthread_mutex_unlock(&thread->lock);
}

static weft_status open_endpoint(struct weft_aggregator_thread *thread, struct serving *serving)
{
    const struct weft_aggregator_config *aggregator = &thread->config.aggregator;
    struct weft_driver_config armed = thread->config.driver;
    struct weft_ep_config *ep = &armed.udp.ep;
    ep->name = weft_rpc_aggregator_name(aggregator->shard, aggregator->number);
    const uint32_t below = aggregator->workers_max + aggregator->children_max;
    ep->senders_expected = (uint16_t)below;
    /* Twice as many: a restarted process may connect before its old connection times out. */
    ep->peers_max = 2 * below + 8;
    ep->expects_max = weft_aggregator_expects_max(aggregator);
    weft_status status =
        weft_security_arm(thread->config.security, &armed.udp, &serving->provider, &thread->error);
    status =
        status == WEFT_OK ? weft_driver_open(&armed, &serving->driver, &thread->error) : status;
    weft_security_disarm(&armed.udp);
    return status;
}

static weft_status make(struct weft_aggregator_thread *thread, struct serving *serving)
{
    struct weft_aggregator_config config = thread->config.aggregator;
    config.clock_ns = clock_now;
    weft_os_random(config.key, sizeof(config.key));
    serving->msgr = weft_driver_msgr(serving->driver);
    weft_status status = weft_aggregator_new(&config, serving->msgr, &serving->aggregator);
    return status == WEFT_OK ? status
                             : weft_fail(&thread->error, status,
                                         "no memory for %u workers; lower --workers or "
                                         "--push-mib",
                                         config.workers_max);
}

static void *run(void *arg)
{
    struct weft_aggregator_thread *thread = arg;
    struct serving serving = {.thread = thread};
    weft_status status = open_endpoint(thread, &serving);
    status = status == WEFT_OK ? make(thread, &serving) : status;
    if (status == WEFT_OK) {
        serve(thread, &serving);
    } else {
        tell(thread, status, NULL);
    }
    weft_driver_close(serving.driver); /* it borrows the aggregator's memory, so it is freed
                                        * first */
    weft_provider_free(serving.provider);
    weft_aggregator_free(serving.aggregator);
    return NULL;
}

static void lock_and_wake(void *arg)
{
    struct weft_aggregator_thread *thread = arg;
    pthread_mutex_lock(&thread->lock);
    if (thread->driver != NULL) {
        weft_driver_wake(thread->driver);
    }
    pthread_mutex_unlock(&thread->lock);
}

static void fini(struct weft_aggregator_thread *thread)
{
    weft_stats_query_fini(&thread->query);
    pthread_cond_destroy(&thread->opened);
    pthread_mutex_destroy(&thread->lock);
}

weft_status weft_aggregator_thread_start(struct weft_aggregator_thread *thread,
                                         const struct weft_aggregator_thread_config *config,
                                         struct weft_error *error)
{
    memset(thread, 0, sizeof(*thread));
    thread->config = *config;
    pthread_mutex_init(&thread->lock, NULL);
    pthread_cond_init(&thread->opened, NULL);
    weft_stats_query_init(&thread->query, &(struct weft_stats_query_config){.wake = lock_and_wake,
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

bool weft_aggregator_thread_ask(struct weft_aggregator_thread *thread,
                                struct weft_aggregator_stats *stats_p)
{
    return weft_stats_query_ask(&thread->query, copy_stats, stats_p, ask_patience_ns);
}

void weft_aggregator_thread_move(struct weft_aggregator_thread *thread,
                                 const struct weft_launch_address *server)
{
    pthread_mutex_lock(&thread->lock);
    thread->moved = *server;
    if (thread->driver != NULL) {
        weft_driver_wake(thread->driver);
    }
    pthread_mutex_unlock(&thread->lock);
}

bool weft_aggregator_thread_failed(struct weft_aggregator_thread *thread)
{
    return atomic_load(&thread->has_failed);
}

void weft_aggregator_thread_join(struct weft_aggregator_thread *thread)
{
    atomic_store(&thread->stop, true);
    lock_and_wake(thread);
    pthread_join(thread->thread, NULL);
    fini(thread);
}
