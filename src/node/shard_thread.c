#include "node/shard_thread.h"

#include "io/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the thread holds while it runs. */
struct serving {
    const struct weft_shard_thread_config *config;
    struct weft_shard *shard;
    struct weft_msgr msgr;
};

static uint64_t clock_now(void *arg)
{
    (void)arg;
    return weft_clock_now_ns();
}

static struct weft_shard_config shard_config(const struct weft_shard_thread_config *config)
{
    struct weft_shard_config shard;
    weft_shard_config_default(&shard);
    shard.shard = config->shard;
    shard.shards = config->shards;
    shard.workers_max = config->workers;
    shard.tables_max = config->tables_max;
    shard.rows_max = config->rows_max;
    shard.table_bytes_max = config->table_bytes_max;
    shard.dim_max = config->dim_max;
    shard.push_slots = config->push_slots != 0 ? config->push_slots : shard.push_slots;
    shard.pull_slots = config->pull_slots != 0 ? config->pull_slots : shard.pull_slots;
    shard.rows_per_rpc_max =
        config->rows_per_rpc_max != 0 ? config->rows_per_rpc_max : shard.rows_per_rpc_max;
    shard.hot_top = config->hot_top;
    shard.clock_ns = clock_now;
    shard.on_death = config->on_death;
    shard.records = config->records;
    shard.active_window_ns =
        config->active_window_ns != 0 ? config->active_window_ns : shard.active_window_ns;
    shard.checkpoints = config->checkpoint != NULL;
    return shard;
}

static struct weft_driver_config driver_config(const struct weft_shard_thread_config *config,
                                               const struct weft_shard_config *shard)
{
    struct weft_driver_config driver;
    weft_driver_config_default(&driver);
    weft_transport_options_apply(&config->transport, &driver);
    driver.udp.host = config->host;
    driver.udp.port = config->port;
    driver.udp.loss = config->loss;
    driver.udp.busy_poll_us = config->busy_poll_us;
    driver.udp.ep.keepalive_ns = config->keepalive_ns;
    driver.udp.ep.idle_timeout_ns = config->idle_timeout_ns;
    if (config->peer_timeout_ns != 0) {
        driver.udp.ep.peer_timeout_ns = config->peer_timeout_ns;
    }
    if (config->tx_window_max != 0) {
        driver.udp.ep.tx_window_max = config->tx_window_max;
    }
    driver.udp.ep.name = weft_rpc_name(WEFT_ROLE_SERVER, config->shard);
    driver.udp.loopback_packet_bytes = WEFT_UDP_LOOPBACK_BYTES;
    driver.udp.lockstep = WEFT_UDP_LOCKSTEP;
    driver.udp.ep.accept = 1;
    driver.udp.ep.senders_expected = (uint16_t)config->workers; /* a round is all of them at once */
    driver.udp.ep.credit_share = config->credit_share;
    /* Twice the workers: one that restarts may connect before its old connection is given up. */
    driver.udp.ep.peers_max = 2 * config->workers + 8;
    driver.udp.ep.expects_max = weft_shard_expects_max(shard);
    return driver;
}

/* Rows live in memory that this driver supplies; without it, new rows are refused and counted. */
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

/* Before answers leave: what they say was done is in the journal, and that on the disk. */
static void commit(void *arg)
{
    struct serving *serving = arg;
    if (serving->shard != NULL) { /* not yet: nothing was done */
        weft_checkpoint_commit(serving->config->checkpoint, serving->shard);
    }
}

static void handle(void *arg, uint64_t now_ns)
{
    struct serving *serving = arg;
    struct weft_msg_event event;
    while (serving->msgr.ops->poll(serving->msgr.self, &event)) {
        if (event.type == WEFT_EVENT_OPEN && serving->config->on_request != NULL) {
            serving->config->on_request(serving->config->on_request_arg, event.peer, event.at_ns);
        }
        weft_shard_event(serving->shard, &event, now_ns);
    }
    weft_shard_progress(serving->shard, now_ns);
    supply_slabs(serving->shard);
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

/* Say each kind of trouble once: anybody who can reach the port can cause more. */
static void note_hint(struct weft_shard_thread *thread, enum weft_ep_hint hint)
{
    if (hint != thread->hint && (thread->hints_said & 1u << hint) == 0) {
        char text[WEFT_SECURITY_HINT_BYTES];
        weft_security_hint(thread->config.security, hint, text, sizeof(text));
        weft_node_info(&thread->config.log, "shard %u: %s", thread->config.shard, text);
        thread->hints_said |= 1u << hint;
    }
    thread->hint = hint;
}

/* What a supervisor has told since the last turn. */
static void take_deaths(struct weft_shard_thread *thread, struct weft_shard *shard)
{
    if (!atomic_exchange(&thread->has_deaths, false)) {
        return;
    }
    pthread_mutex_lock(&thread->lock);
    for (uint32_t rank = 0; rank < thread->config.workers; rank++) {
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

static void serve(struct weft_shard_thread *thread, struct weft_driver *driver,
                  struct serving *serving)
{
    struct weft_checkpoint_feed *feed = thread->config.checkpoint;
    struct weft_shard_serving view = {.shard = serving->shard, .driver = driver};
    bool again = false;
    if (feed != NULL) {
        weft_checkpoint_attach(feed, driver);
    }
    weft_stats_query_open(&thread->ask);
    tell(thread, WEFT_OK, driver);
    bool may_serve = feed == NULL || weft_checkpoint_may_serve(feed);
    while (may_serve && !atomic_load(&thread->stop)) {
        (void)weft_driver_step(
            driver, again || weft_shard_has_work(serving->shard) ? 0 : WEFT_NEVER, handle, serving);
        take_deaths(thread, serving->shard);
        tell_lost(thread, serving->shard);
        again = feed != NULL && weft_checkpoint_turn(feed, serving->shard);
        close_replaced(driver, serving->shard);
        note_hint(thread, weft_driver_hint(driver));
        weft_stats_query_poll(&thread->ask, &view);
    }
    weft_stats_query_close(&thread->ask);
    if (feed != NULL) {
        weft_checkpoint_attach(feed, NULL);
    }
    pthread_mutex_lock(&thread->lock);
    thread->driver = NULL; /* nobody wakes it from here on */
    pthread_mutex_unlock(&thread->lock);
    weft_shard_records_end(serving->shard);
    weft_recording_hot(thread->config.recorder, serving->shard, thread->config.shard);
    weft_driver_counters(driver, &thread->counters);
    thread->shard_counters = *weft_shard_counters(serving->shard);
    weft_shard_table_sums(serving->shard, &thread->table_sums);
}

static weft_status open_endpoint(struct weft_shard_thread *thread,
                                 const struct weft_shard_config *config, struct serving *serving,
                                 struct weft_driver **driver_p,
                                 struct weft_provider **provider_p)
{
    struct weft_driver_config armed = driver_config(&thread->config, config);
    if (thread->config.checkpoint != NULL && weft_checkpoint_commits(thread->config.checkpoint)) {
        armed.udp.before_send = (struct weft_udp_before_send){.call = commit, .arg = serving};
    }
    weft_status status =
        weft_security_arm(thread->config.security, &armed.udp, provider_p, &thread->error);
    if (status == WEFT_OK) {
        char label[32];
        snprintf(label, sizeof(label), "shard %u", thread->config.shard);
        weft_tracing_attach(thread->config.tracing, label, &armed.udp, &thread->trace);
        status = weft_driver_open(&armed, driver_p, &thread->error);
    }
    weft_security_disarm(&armed.udp);
    return status;
}

/* The longest message of the endpoint, in chunks: of its defaults, which open_endpoint keeps. */
static uint32_t chunks_max(void)
{
    struct weft_driver_config driver;
    weft_driver_config_default(&driver);
    return driver.udp.ep.chunks_max;
}

static void *run(void *arg)
{
    struct weft_shard_thread *thread = arg;
    struct weft_shard_config config = shard_config(&thread->config);
    config.chunks_max = chunks_max();
    struct weft_driver *driver = NULL;
    struct weft_provider *provider = NULL;
    struct serving serving = {.config = &thread->config};
    weft_status status =
        weft_security_table_keys(thread->config.security, &config.keys, &thread->error);
    status = status == WEFT_OK ? open_endpoint(thread, &config, &serving, &driver, &provider)
                               : status;
    if (status != WEFT_OK) {
        weft_provider_free(provider);
        tell(thread, status, NULL);
        return NULL;
    }
    serving.msgr = weft_driver_msgr(driver);
    status = weft_shard_new(&config, serving.msgr, &serving.shard);
    if (status == WEFT_OK && thread->config.checkpoint != NULL) {
        struct weft_ckpt_error error = {.text = ""};
        status = weft_checkpoint_restore(thread->config.checkpoint, serving.shard,
                                         config.workers_max, supply_slabs, &error);
        if (status != WEFT_OK) {
            tell(thread, weft_io_fail(&thread->error, status, "%s", error.text), NULL);
        }
    } else if (status != WEFT_OK) {
        tell(thread,
             weft_io_fail(&thread->error, status, "cannot make the shard: %s",
                          weft_status_text(status)),
             NULL);
    }
    if (status == WEFT_OK) {
        serve(thread, driver, &serving);
    }
    /* The endpoint borrows the shard's memory, so it goes first. */
    weft_driver_close(driver);
    weft_provider_free(provider);
    if (serving.shard != NULL) {
        for (void *slab; (slab = weft_shard_take_slab(serving.shard)) != NULL;) {
            free(slab);
        }
    }
    weft_shard_free(serving.shard);
    return NULL;
}

weft_status weft_shard_thread_start(struct weft_shard_thread *thread,
                                    const struct weft_shard_thread_config *config,
                                    struct weft_io_error *error)
{
    memset(thread, 0, sizeof(*thread));
    thread->config = *config;
    thread->lost_rank = UINT32_MAX;
    thread->died_ns = calloc(config->workers, sizeof(*thread->died_ns));
    if (thread->died_ns == NULL) {
        return weft_io_fail(error, WEFT_NOMEM, "out of memory");
    }
    pthread_mutex_init(&thread->lock, NULL);
    pthread_cond_init(&thread->opened, NULL);
    weft_stats_query_init(&thread->ask);
    int why = pthread_create(&thread->thread, NULL, run, thread);
    if (why != 0) {
        free(thread->died_ns);
        return weft_io_fail(error, WEFT_IO, "cannot start a thread: %s", strerror(why));
    }
    pthread_mutex_lock(&thread->lock);
    while (!thread->is_open) {
        pthread_cond_wait(&thread->opened, &thread->lock);
    }
    weft_status status = thread->status;
    pthread_mutex_unlock(&thread->lock);
    if (status != WEFT_OK) {
        pthread_join(thread->thread, NULL);
        free(thread->died_ns);
        *error = thread->error;
    }
    return status;
}

static void wake(struct weft_shard_thread *thread)
{
    if (thread->driver != NULL) {
        weft_driver_wake(thread->driver);
    }
}

void weft_shard_thread_worker_died(struct weft_shard_thread *thread, uint32_t rank, uint64_t at_ns)
{
    if (rank >= thread->config.workers) {
        return;
    }
    pthread_mutex_lock(&thread->lock);
    thread->died_ns[rank] = at_ns;
    atomic_store(&thread->has_deaths, true);
    wake(thread);
    pthread_mutex_unlock(&thread->lock);
}

static void wake_for_question(void *arg)
{
    struct weft_shard_thread *thread = arg;
    pthread_mutex_lock(&thread->lock);
    wake(thread);
    pthread_mutex_unlock(&thread->lock);
}

bool weft_shard_thread_query(struct weft_shard_thread *thread, weft_stats_query_fn *question,
                           void *arg, uint64_t timeout_ns)
{
    return weft_stats_query_ask(&thread->ask, question, arg, wake_for_question, thread, timeout_ns);
}

void weft_shard_thread_join(struct weft_shard_thread *thread)
{
    atomic_store(&thread->stop, true);
    pthread_mutex_lock(&thread->lock);
    wake(thread);
    pthread_mutex_unlock(&thread->lock);
    pthread_join(thread->thread, NULL);
    weft_stats_query_fini(&thread->ask);
    free(thread->died_ns);
}
