#include "io/member_thread.h"

#include "io/clock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static const uint64_t look_around_ns = 50 * WEFT_NS_PER_MS;
static const uint64_t retry_ns = 200 * WEFT_NS_PER_MS;
static const uint64_t farewell_ns = 500 * WEFT_NS_PER_MS;

struct weft_member_thread {
    struct weft_member_thread_config config;
    struct weft_member_client *client; /* used by the thread only, like the driver */
    struct weft_driver *driver;
    char target[WEFT_RESOLVE_TEXT_BYTES]; /* the coordinator's address as last looked up */
    pthread_t thread;
    int fd;
    atomic_bool stop;

    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t changed;
    struct weft_driver *awake; /* the driver, while it may be woken */
    struct weft_member_state state;
    weft_status status;      /* result of opening the endpoint */
    struct weft_error error; /* from opening, or why there is no connection yet */
    bool publishes;
    uint32_t offered; /* aggregator: addresses */
    bool leaves;
    bool done;
    struct weft_member_address addresses[WEFT_MEMBER_SPAN_MAX];
};

/* ---- the thread ------------------------------------------------------------------------------ */

/* The owner must be notified: this process was replaced or refused, or all workers are done. */
static bool is_news(const struct weft_member_state *state)
{
    return state->phase == WEFT_MEMBER_REPLACED || state->phase == WEFT_MEMBER_IS_REFUSED ||
           state->is_over;
}

static void show_state(struct weft_member_thread *thread)
{
    const struct weft_member_state *state = weft_member_client_state(thread->client);
    char unreached[WEFT_UNREACHED_BYTES];
    weft_driver_unreached(thread->driver, unreached);
    enum weft_ep_hint hint = weft_driver_hint(thread->driver);
    pthread_mutex_lock(&thread->lock);
    bool was_news = is_news(&thread->state);
    thread->state = *state;
    if (!state->is_connected && hint != WEFT_HINT_NONE) {
        (void)weft_fail(&thread->error, WEFT_PEER, "%s", weft_ep_hint_text(hint));
    } else if (!state->is_connected && unreached[0] != '\0') {
        (void)weft_fail(&thread->error, WEFT_PEER, "%s", unreached);
    }
    pthread_cond_broadcast(&thread->changed);
    pthread_mutex_unlock(&thread->lock);
    if (is_news(state) && !was_news) {
        uint64_t one = 1;
        (void)!write(thread->fd, &one, sizeof(one));
    }
}

static void take_commands(struct weft_member_thread *thread)
{
    pthread_mutex_lock(&thread->lock);
    if (thread->publishes) {
        if (thread->config.member.role == WEFT_ROLE_AGGREGATOR) {
            weft_member_client_offer(thread->client, thread->addresses, thread->offered);
        } else {
            weft_member_client_publish(thread->client, thread->addresses);
        }
    }
    if (thread->leaves) {
        weft_member_client_leave(thread->client, thread->done);
    }
    thread->publishes = false;
    thread->leaves = false;
    pthread_mutex_unlock(&thread->lock);
}

static void handle(void *arg, uint64_t now_ns)
{
    struct weft_member_thread *thread = arg;
    struct weft_msgr msgr = weft_driver_msgr(thread->driver);
    struct weft_msg_event event;
    while (msgr.ops->poll(msgr.self, &event)) {
        weft_member_client_event(thread->client, &event, now_ns);
    }
    take_commands(thread);
    weft_member_client_progress(thread->client, now_ns);
}

/* The name is resolved each time: a coordinator that was moved has another address. */
static void connect_if_due(struct weft_member_thread *thread)
{
    struct weft_error error = {.text = ""};
    weft_peer peer;
    if (!weft_member_client_wants_peer(thread->client, weft_clock_now_ns())) {
        return;
    }
    weft_status status = weft_resolve(thread->config.host, thread->target, &error);
    if (status == WEFT_OK) {
        status =
            weft_driver_connect(thread->driver, thread->target, thread->config.port, &peer, &error);
    }
    weft_member_client_connecting(thread->client, status == WEFT_OK ? peer : WEFT_PEER_ANY,
                                  weft_clock_now_ns());
    if (status != WEFT_OK) {
        pthread_mutex_lock(&thread->lock);
        thread->error = error;
        pthread_mutex_unlock(&thread->lock);
    }
}

static void serve(struct weft_member_thread *thread)
{
    weft_peer peer;
    while (!atomic_load(&thread->stop)) {
        connect_if_due(thread);
        uint64_t until_ns = weft_member_client_deadline(thread->client);
        uint64_t now_ns = weft_clock_now_ns();
        uint64_t timeout_ns = until_ns == WEFT_NEVER ? WEFT_NEVER
                              : until_ns > now_ns    ? until_ns - now_ns
                                                     : 0;
        (void)weft_driver_step(thread->driver, timeout_ns, handle, thread);
        show_state(thread);
        if (weft_member_client_take_close(thread->client, &peer)) {
            weft_driver_disconnect(thread->driver, peer);
        }
    }
}

static weft_status open_driver(struct weft_member_thread *thread, struct weft_error *error)
{
    const struct weft_member_thread_config *config = &thread->config;
    struct weft_driver_config driver = config->driver;
    const char *hosts[] = {thread->target};
    driver.udp.host = weft_udp_bind_towards(hosts, 1);
    driver.udp.port = 0;
    driver.udp.socket_buffer_bytes = 1u << 18;
    driver.udp.ep.name = weft_rpc_name(WEFT_ROLE_MEMBER, (uint32_t)config->member.member);
    driver.udp.ep.accept = 0;
    driver.udp.ep.peers_max = 4; /* the coordinator, and earlier connections to it that are still
                                  * closing */
    driver.udp.ep.chunks_max = 256;
    driver.udp.ep.expects_max = WEFT_MEMBER_CLIENT_EXPECTS;
    driver.udp.ep.tx_window_max = 256;
    weft_status status =
        config->arm != NULL ? config->arm(config->arg, &driver.udp, error) : WEFT_OK;
    if (status == WEFT_OK) {
        status = weft_driver_open(&driver, &thread->driver, error);
    }
    if (config->disarm != NULL) {
        config->disarm(config->arg, &driver.udp);
    }
    if (status == WEFT_OK) {
        status = weft_member_client_new(&config->member, weft_driver_msgr(thread->driver),
                                        &thread->client);
        if (status != WEFT_OK) {
            (void)weft_fail(error, status, "cannot make a member of the job: %s",
                            weft_status_text(status));
        }
    }
    return status;
}

/* Record why there is no connection yet, and retry a little later. */
static void resolve_first(struct weft_member_thread *thread)
{
    struct weft_error error = {.text = ""};
    while (!atomic_load(&thread->stop) &&
           weft_resolve(thread->config.host, thread->target, &error) != WEFT_OK) {
        pthread_mutex_lock(&thread->lock);
        thread->error = error;
        pthread_mutex_unlock(&thread->lock);
        const struct timespec pause = {.tv_nsec = (long)retry_ns};
        nanosleep(&pause, NULL);
    }
}

static void *run(void *arg)
{
    struct weft_member_thread *thread = arg;
    struct weft_error error = {.text = ""};
    weft_status status = WEFT_OK;
    resolve_first(thread);
    if (!atomic_load(&thread->stop)) {
        status = open_driver(thread, &error);
        pthread_mutex_lock(&thread->lock);
        thread->status = status;
        thread->error = status != WEFT_OK ? error : thread->error;
        thread->awake = status == WEFT_OK ? thread->driver : NULL;
        pthread_cond_broadcast(&thread->changed);
        pthread_mutex_unlock(&thread->lock);
        if (status == WEFT_OK) {
            serve(thread);
        }
    }
    pthread_mutex_lock(&thread->lock);
    thread->awake = NULL;
    pthread_mutex_unlock(&thread->lock);
    /* The endpoint borrows the client's memory, so it is freed first. */
    weft_driver_close(thread->driver);
    weft_member_client_free(thread->client);
    if (thread->config.closed != NULL) {
        thread->config.closed(thread->config.arg);
    }
    return NULL;
}

/* ---- the owner ------------------------------------------------------------------------------- */

weft_status weft_member_thread_start(const struct weft_member_thread_config *config,
                                     struct weft_member_thread **thread_p, struct weft_error *error)
{
    struct weft_member_thread *thread = calloc(1, sizeof(*thread));
    if (thread == NULL) {
        return weft_fail(error, WEFT_NOMEM, "out of memory");
    }
    thread->config = *config;
    thread->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (thread->fd < 0) {
        free(thread);
        return weft_fail(error, WEFT_IO, "eventfd: %s", strerror(errno));
    }
    pthread_mutex_init(&thread->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&thread->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    /* Signals belong to the application: this thread must not receive one in place of the
     * application's threads. */
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int why = pthread_create(&thread->thread, NULL, run, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (why != 0) {
        close(thread->fd);
        free(thread);
        return weft_fail(error, WEFT_IO, "cannot start a thread: %s", strerror(why));
    }
    *thread_p = thread;
    return WEFT_OK;
}

static void doze(struct weft_member_thread *thread, uint64_t until_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(until_ns / WEFT_NS_PER_S),
                                   .tv_nsec = (long)(until_ns % WEFT_NS_PER_S)};
    (void)pthread_cond_timedwait(&thread->changed, &thread->lock, &until);
}

static void refusal_text(const struct weft_member_thread *thread, char *text_p, size_t bytes)
{
    const struct weft_member_reply *no = &thread->state.refusal;
    const struct weft_member_client_config *me = &thread->config.member;
    char holder[WEFT_RESOLVE_TEXT_BYTES];
    char where[WEFT_RESOLVE_TEXT_BYTES + 32] = "";
    int used = snprintf(
        text_p, bytes, "the coordinator %.100s:%u %s: ", thread->config.host, thread->config.port,
        thread->state.phase == WEFT_MEMBER_REPLACED ? "replaced this process" : "refuses");
    size_t at = used < 0 ? 0 : (size_t)used < bytes ? (size_t)used : bytes;
    switch (no->status) {
    case WEFT_MEMBER_CLAIMED:
        if (no->count > 0) {
            weft_resolve_member_host(&no->addresses[0], holder);
            (void)snprintf(where, sizeof(where), ", at %s port %u,", holder, no->addresses[0].port);
        }
        (void)snprintf(text_p + at, bytes - at,
                       "%s %u belongs to another process%s that is alive (its lease of %u ms is "
                       "being renewed)",
                       me->role == WEFT_ROLE_SERVER       ? "shard"
                       : me->role == WEFT_ROLE_AGGREGATOR ? "aggregator"
                                                          : "rank",
                       no->detail, where, no->lease_ms);
        break;
    case WEFT_MEMBER_OTHER_WORKERS:
        (void)snprintf(text_p + at, bytes - at, "the job has %u workers, not %u", no->workers,
                       me->workers);
        break;
    case WEFT_MEMBER_OTHER_SHARDS:
        (void)snprintf(text_p + at, bytes - at, "the job has %u shards, not %u", no->shards,
                       me->shards);
        break;
    case WEFT_MEMBER_OTHER_JOB:
        (void)snprintf(text_p + at, bytes - at, "its job is named \"%s\", not \"%s\" (WEFT_JOB)",
                       no->job, me->job);
        break;
    case WEFT_MEMBER_RANGE:
        (void)snprintf(
            text_p + at, bytes - at, "%s %u does not exist in a job of %u workers and %u shards",
            me->role == WEFT_ROLE_SERVER ? "shard" : "rank",
            me->role == WEFT_ROLE_SERVER ? me->first : me->rank, no->workers, no->shards);
        break;
    default:
        (void)snprintf(text_p + at, bytes - at, "%s", weft_member_status_text(no->status));
        break;
    }
}

void weft_member_thread_words(struct weft_member_thread *thread, char *text_p, size_t bytes)
{
    pthread_mutex_lock(&thread->lock);
    refusal_text(thread, text_p, bytes);
    pthread_mutex_unlock(&thread->lock);
}

static const char *kind_of(uint64_t name)
{
    switch (name >> 32) {
    case WEFT_ROLE_SERVER:
        return "a `weft server`";
    case WEFT_ROLE_WORKER:
        return "a worker";
    case WEFT_ROLE_SCHEDULER:
        return "a `weft scheduler`";
    case WEFT_ROLE_AGGREGATOR:
        return "a `weft aggregate`";
    default:
        return "another program";
    }
}

/* WEFT_OK: the awaited state is reached. WEFT_AGAIN: keep waiting. Another status ends the
 * wait. Called with the lock held. */
static weft_status check_wait(const struct weft_member_thread *thread, enum weft_member_wait what,
                              struct weft_error *error)
{
    const struct weft_member_state *state = &thread->state;
    if (thread->status != WEFT_OK) {
        return weft_fail(error, thread->status, "%s", thread->error.text);
    }
    if (state->phase == WEFT_MEMBER_IS_REFUSED || state->phase == WEFT_MEMBER_REPLACED) {
        char text[WEFT_ERROR_BYTES];
        refusal_text(thread, text, sizeof(text));
        return weft_fail(error, WEFT_PEER, "%s", text);
    }
    if (state->phase == WEFT_MEMBER_JOINING && state->is_other) {
        return weft_fail(
            error, WEFT_PEER,
            "the process at %.100s:%u is %s and not a coordinator; name the address that "
            "`weft coordinator` prints",
            thread->config.host, thread->config.port, kind_of(state->other));
    }
    bool is_there = state->phase == WEFT_MEMBER_JOINED &&
                    (what == WEFT_MEMBER_WAIT_JOINED || state->list.version != 0);
    return is_there ? WEFT_OK : WEFT_AGAIN;
}

static weft_status give_up(const struct weft_member_thread *thread, struct weft_error *error)
{
    const struct weft_member_state *state = &thread->state;
    const char *host = thread->config.host;
    uint16_t port = thread->config.port;
    if (state->phase == WEFT_MEMBER_JOINED) {
        return weft_fail(error, WEFT_TIMEOUT,
                         "the coordinator %.100s:%u does not have all shards yet", host, port);
    }
    if (state->refusal.status != WEFT_MEMBER_OK) {
        return weft_fail(error, WEFT_TIMEOUT, "the coordinator %.100s:%u: %s", host, port,
                         weft_member_status_text(state->refusal.status));
    }
    return weft_fail(error, WEFT_TIMEOUT, "no answer from the coordinator %.100s:%u%s%.160s", host,
                     port, thread->error.text[0] != '\0' ? ": " : "", thread->error.text);
}

weft_status weft_member_thread_wait(struct weft_member_thread *thread, enum weft_member_wait what,
                                    uint64_t patience_ns, bool (*stop)(void),
                                    struct weft_member_state *state_p, struct weft_error *error)
{
    uint64_t until_ns = weft_time_add(weft_clock_now_ns(), patience_ns);
    pthread_mutex_lock(&thread->lock);
    weft_status status = check_wait(thread, what, error);
    while (status == WEFT_AGAIN) {
        uint64_t now_ns = weft_clock_now_ns();
        if (stop != NULL && stop()) {
            status = weft_fail(error, WEFT_TIMEOUT, "interrupted");
        } else if (now_ns >= until_ns) {
            status = give_up(thread, error);
        } else {
            doze(thread, now_ns + weft_min_u64(look_around_ns, until_ns - now_ns));
            status = check_wait(thread, what, error);
        }
    }
    if (status == WEFT_OK) {
        *state_p = thread->state;
    }
    pthread_mutex_unlock(&thread->lock);
    return status;
}

static void publish(struct weft_member_thread *thread, const struct weft_member_address *addresses,
                    uint32_t count)
{
    pthread_mutex_lock(&thread->lock);
    memcpy(thread->addresses, addresses, count * sizeof(thread->addresses[0]));
    thread->offered = count;
    thread->publishes = true;
    if (thread->awake != NULL) {
        weft_driver_wake(thread->awake);
    }
    pthread_mutex_unlock(&thread->lock);
}

void weft_member_thread_publish(struct weft_member_thread *thread,
                                const struct weft_member_address *addresses)
{
    publish(thread, addresses, thread->config.member.span);
}

void weft_member_thread_offer(struct weft_member_thread *thread,
                              const struct weft_member_address *addresses, uint32_t count)
{
    publish(thread, addresses, count);
}

void weft_member_thread_state(struct weft_member_thread *thread, struct weft_member_state *state_p)
{
    pthread_mutex_lock(&thread->lock);
    *state_p = thread->state;
    pthread_mutex_unlock(&thread->lock);
}

int weft_member_thread_fd(const struct weft_member_thread *thread)
{
    return thread->fd;
}

void weft_member_thread_stop(struct weft_member_thread *thread, bool done)
{
    if (thread == NULL) {
        return;
    }
    uint64_t until_ns = weft_clock_now_ns() + farewell_ns;
    pthread_mutex_lock(&thread->lock);
    thread->leaves = true;
    thread->done = done;
    if (thread->awake != NULL) {
        weft_driver_wake(thread->awake);
    }
    while (thread->state.phase == WEFT_MEMBER_JOINED && thread->state.is_connected &&
           weft_clock_now_ns() < until_ns) {
        doze(thread, until_ns);
    }
    atomic_store(&thread->stop, true);
    if (thread->awake != NULL) {
        weft_driver_wake(thread->awake);
    }
    pthread_mutex_unlock(&thread->lock);
    pthread_join(thread->thread, NULL);
    pthread_cond_destroy(&thread->changed);
    pthread_mutex_destroy(&thread->lock);
    close(thread->fd);
    free(thread);
}
