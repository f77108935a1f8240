/* The two threads exchange three things:
 *   - events, through the ring, without locks while neither side sleeps;
 *   - one command at a time, in `mailbox`, handed over by `mailbox_state`;
 *   - sleep and wake: a side sets an atomic flag that it waits, checks once more, then sleeps
 *     on its condition; the other side changes the state first and reads the flag after. All of
 *     these are sequentially consistent, so one of the two always sees the other.
 * The engine thread sleeps in weft_driver_step, or, when the ring is full, on engine_cond.
 */
#include "io/engine.h"

#include "base/assert.h"
#include "io/clock.h"
#include "io/event_ring.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EVENTS_MAX = 256 };

enum mailbox_state { MAILBOX_EMPTY, MAILBOX_POSTED, MAILBOX_DONE };

enum command_type {
    COMMAND_ELEMS,
    COMMAND_SEND,
    COMMAND_PACE,
    COMMAND_WITHDRAW,
    COMMAND_EXPECT,
    COMMAND_CANCEL,
    COMMAND_CONNECT,
    COMMAND_CALL,
};

/* The application's command, with pointers into its own stack: it sleeps until the result is
 * there. */
struct command {
    enum command_type type;
    weft_peer peer;
    uint16_t elem_bytes;
    const struct weft_msg_send *send;
    const struct weft_msg_expect *expect;
    weft_expect_id id; /* or the number of a message */
    const struct weft_msg_pace *pace;
    const char *host;
    uint16_t port;
    struct weft_error *error;
    weft_engine_fn *call;
    void *arg;
    /* The result. */
    weft_status status;
    uint64_t value;
};

struct weft_engine {
    struct weft_driver *driver; /* used by the engine thread only, except for weft_driver_wake */
    struct weft_msgr msgr;      /* of driver */
    uint16_t port;
    pthread_t thread;
    struct weft_event_ring ring;
    struct command *mailbox;
    atomic_int mailbox_state;
    atomic_bool stopping;
    pthread_mutex_t lock; /* held only to sleep and to wake */
    pthread_cond_t app_cond;
    pthread_cond_t engine_cond;
    atomic_bool app_waits;
    atomic_bool engine_waits;
};

/* ---- the engine's side ----------------------------------------------------------------------- */

/* One thread waits; for the broadcast see sleep_until_turn in node/leader.c. */
static void wake(struct weft_engine *engine, atomic_bool *waits, pthread_cond_t *cond)
{
    if (atomic_load(waits)) {
        pthread_mutex_lock(&engine->lock);
        pthread_cond_broadcast(cond);
        pthread_mutex_unlock(&engine->lock);
    }
}

static void execute(struct weft_engine *engine, struct command *c)
{
    const struct weft_msg_ops *ops = engine->msgr.ops;
    void *self = engine->msgr.self;
    switch (c->type) {
    case COMMAND_ELEMS:
        c->value = ops->chunk_elems(self, c->peer, c->elem_bytes);
        break;
    case COMMAND_SEND:
        c->status = ops->send(self, c->send, weft_clock_now_ns(), &c->value);
        break;
    case COMMAND_PACE:
        c->status = ops->pace(self, c->peer, c->id, c->pace, weft_clock_now_ns());
        break;
    case COMMAND_WITHDRAW:
        c->status = ops->withdraw(self, c->peer, c->id, weft_clock_now_ns());
        break;
    case COMMAND_EXPECT:
        c->status = ops->expect(self, c->expect, &c->value);
        break;
    case COMMAND_CANCEL:
        c->status = ops->cancel(self, c->id);
        break;
    case COMMAND_CONNECT:
        c->status = weft_driver_connect(engine->driver, c->host, c->port, &c->peer, c->error);
        break;
    case COMMAND_CALL:
        c->call(engine->driver, c->arg);
        break;
    }
}

static void serve(struct weft_engine *engine)
{
    if (atomic_load(&engine->mailbox_state) == MAILBOX_POSTED) {
        execute(engine, engine->mailbox);
        atomic_store(&engine->mailbox_state, MAILBOX_DONE);
        wake(engine, &engine->app_waits, &engine->app_cond);
    }
}

static bool engine_has_work(struct weft_engine *engine)
{
    return weft_event_ring_has_room(&engine->ring) || atomic_load(&engine->stopping) ||
           atomic_load(&engine->mailbox_state) == MAILBOX_POSTED;
}

/* Execute commands until the ring has room; false when the engine must stop. */
static bool wait_for_room(struct weft_engine *engine)
{
    while (!weft_event_ring_has_room(&engine->ring) && !atomic_load(&engine->stopping)) {
        pthread_mutex_lock(&engine->lock);
        atomic_store(&engine->engine_waits, true);
        while (!engine_has_work(engine)) {
            pthread_cond_wait(&engine->engine_cond, &engine->lock);
        }
        atomic_store(&engine->engine_waits, false);
        pthread_mutex_unlock(&engine->lock);
        serve(engine);
    }
    return !atomic_load(&engine->stopping);
}

/* Move the endpoint's events to the ring. While stopping they are discarded, but still polled,
 * because the endpoint needs its queue emptied. */
static void drain(void *arg, uint64_t now_ns)
{
    (void)now_ns;
    struct weft_engine *engine = arg;
    serve(engine);
    struct weft_msg_event event;
    bool room = wait_for_room(engine);
    while (engine->msgr.ops->poll(engine->msgr.self, &event)) {
        if (room) {
            weft_event_ring_push(&engine->ring, &event);
            wake(engine, &engine->app_waits, &engine->app_cond);
        }
        room = wait_for_room(engine);
    }
}

static void *engine_main(void *arg)
{
    struct weft_engine *engine = arg;
    weft_clock_timers_exact();
    while (!atomic_load(&engine->stopping)) {
        (void)weft_driver_step(engine->driver, WEFT_NEVER, drain, engine);
    }
    return NULL;
}

/* ---- the application's side ------------------------------------------------------------------ */

/* Sleep on app_cond until ready(engine) or end_ns; false when end_ns passed first. */
static bool app_sleep(struct weft_engine *engine, bool (*ready)(struct weft_engine *),
                      uint64_t end_ns)
{
    pthread_mutex_lock(&engine->lock);
    atomic_store(&engine->app_waits, true);
    bool is_ready = ready(engine);
    int rc = 0;
    while (!is_ready && rc != ETIMEDOUT) {
        if (end_ns == WEFT_NEVER) {
            rc = pthread_cond_wait(&engine->app_cond, &engine->lock);
        } else {
            struct timespec end = {.tv_sec = (time_t)(end_ns / WEFT_NS_PER_S),
                                   .tv_nsec = (long)(end_ns % WEFT_NS_PER_S)};
            rc = pthread_cond_timedwait(&engine->app_cond, &engine->lock, &end);
        }
        is_ready = ready(engine);
    }
    atomic_store(&engine->app_waits, false);
    pthread_mutex_unlock(&engine->lock);
    return is_ready;
}

static bool answered(struct weft_engine *engine)
{
    return atomic_load(&engine->mailbox_state) == MAILBOX_DONE;
}

static bool event_ready(struct weft_engine *engine)
{
    return weft_event_ring_ready(&engine->ring);
}

/* Have the engine thread execute a command, and wait for its result. */
static void ask(struct weft_engine *engine, struct command *command)
{
    WEFT_ASSERT(atomic_load(&engine->mailbox_state) == MAILBOX_EMPTY);
    engine->mailbox = command;
    atomic_store(&engine->mailbox_state, MAILBOX_POSTED);
    wake(engine, &engine->engine_waits, &engine->engine_cond);
    weft_driver_wake(engine->driver);
    (void)app_sleep(engine, answered, WEFT_NEVER);
    atomic_store(&engine->mailbox_state, MAILBOX_EMPTY);
}

static uint32_t engine_chunk_elems(void *self, weft_peer peer, uint16_t elem_bytes)
{
    struct command c = {.type = COMMAND_ELEMS, .peer = peer, .elem_bytes = elem_bytes};
    ask(self, &c);
    return (uint32_t)c.value;
}

static weft_status engine_send(void *self, const struct weft_msg_send *send, uint64_t now_ns,
                               uint64_t *seq_p)
{
    (void)now_ns;
    struct command c = {.type = COMMAND_SEND, .send = send};
    ask(self, &c);
    if (c.status == WEFT_OK) {
        *seq_p = c.value;
    }
    return c.status;
}

static weft_status engine_pace(void *self, weft_peer peer, uint64_t seq,
                               const struct weft_msg_pace *pace, uint64_t now_ns)
{
    (void)now_ns;
    struct command c = {.type = COMMAND_PACE, .peer = peer, .id = seq, .pace = pace};
    ask(self, &c);
    return c.status;
}

static weft_status engine_withdraw(void *self, weft_peer peer, uint64_t seq, uint64_t now_ns)
{
    (void)now_ns;
    struct command c = {.type = COMMAND_WITHDRAW, .peer = peer, .id = seq};
    ask(self, &c);
    return c.status;
}

static weft_status engine_expect(void *self, const struct weft_msg_expect *expect,
                                 weft_expect_id *id_p)
{
    if (expect->sink == WEFT_SINK_EVENT) {
        return WEFT_UNSUPPORTED;
    }
    struct command c = {.type = COMMAND_EXPECT, .expect = expect};
    ask(self, &c);
    if (c.status == WEFT_OK) {
        *id_p = c.value;
    }
    return c.status;
}

static weft_status engine_cancel(void *self, weft_expect_id id)
{
    struct command c = {.type = COMMAND_CANCEL, .id = id};
    ask(self, &c);
    return c.status;
}

static void engine_set_user(void *self, weft_peer peer, uint64_t seq, uint64_t user)
{
    (void)self, (void)peer, (void)seq, (void)user;
    WEFT_ASSERT(!"set_user is for WEFT_SINK_EVENT, which an engine does not support");
}

static void engine_refuse(void *self, weft_peer peer, uint64_t seq)
{
    (void)self, (void)peer, (void)seq;
    WEFT_ASSERT(!"refuse is for WEFT_SINK_EVENT, which an engine does not support");
}

static bool engine_poll(void *self, struct weft_msg_event *event_p)
{
    struct weft_engine *engine = self;
    bool got = weft_event_ring_pop(&engine->ring, event_p);
    wake(engine, &engine->engine_waits, &engine->engine_cond); /* a slot may be free again */
    return got;
}

static const struct weft_msg_ops engine_ops = {
    .chunk_elems = engine_chunk_elems,
    .send = engine_send,
    .pace = engine_pace,
    .withdraw = engine_withdraw,
    .expect = engine_expect,
    .cancel = engine_cancel,
    .set_user = engine_set_user,
    .refuse = engine_refuse,
    .poll = engine_poll,
};

struct weft_msgr weft_engine_msgr(struct weft_engine *engine)
{
    return (struct weft_msgr){.ops = &engine_ops, .self = engine};
}

weft_status weft_engine_connect(struct weft_engine *engine, const char *host, uint16_t port,
                                weft_peer *peer_p, struct weft_error *error)
{
    struct command c = {.type = COMMAND_CONNECT, .host = host, .port = port, .error = error};
    ask(engine, &c);
    if (c.status == WEFT_OK) {
        *peer_p = c.peer;
    }
    return c.status;
}

void weft_engine_call(struct weft_engine *engine, weft_engine_fn *call, void *arg)
{
    struct command c = {.type = COMMAND_CALL, .call = call, .arg = arg};
    ask(engine, &c);
}

bool weft_engine_wait(struct weft_engine *engine, uint64_t timeout_ns)
{
    if (event_ready(engine)) {
        return true;
    }
    return app_sleep(engine, event_ready, weft_time_add(weft_clock_now_ns(), timeout_ns));
}

uint16_t weft_engine_port(const struct weft_engine *engine)
{
    return engine->port;
}

/* ---- life ------------------------------------------------------------------------------------ */

void weft_engine_config_default(struct weft_engine_config *config_p)
{
    *config_p = (struct weft_engine_config){.events_max = EVENTS_MAX};
    weft_driver_config_default(&config_p->driver);
}

static void init_sleeping(struct weft_engine *engine)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    rc = rc != 0 ? rc : pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    rc = rc != 0 ? rc : pthread_cond_init(&engine->app_cond, &attr);
    rc = rc != 0 ? rc : pthread_cond_init(&engine->engine_cond, &attr);
    rc = rc != 0 ? rc : pthread_mutex_init(&engine->lock, NULL);
    WEFT_ASSERT(rc == 0); /* on Linux these fail only for wrong arguments */
    pthread_condattr_destroy(&attr);
}

static void release(struct weft_engine *engine)
{
    weft_driver_close(engine->driver);
    weft_event_ring_fini(&engine->ring);
    pthread_mutex_destroy(&engine->lock);
    pthread_cond_destroy(&engine->engine_cond);
    pthread_cond_destroy(&engine->app_cond);
    free(engine);
}

/* The application's signals are for its own threads. */
static int create_thread(struct weft_engine *engine)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&engine->thread, NULL, engine_main, engine);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

weft_status weft_engine_start(const struct weft_engine_config *config,
                              struct weft_engine **engine_p, struct weft_error *error)
{
    if (config->events_max < 2 || (config->events_max & (config->events_max - 1)) != 0) {
        return weft_fail(error, WEFT_INVALID, "events_max %u is not a power of two, 2 or more",
                         config->events_max);
    }
    struct weft_engine *engine = aligned_alloc(alignof(struct weft_engine), sizeof(*engine));
    if (engine == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for an engine");
    }
    memset(engine, 0, sizeof(*engine));
    init_sleeping(engine);
    weft_status status = weft_driver_open(&config->driver, &engine->driver, error);
    if (status == WEFT_OK) {
        status = weft_event_ring_init(&engine->ring, config->events_max,
                                      config->driver.udp.ep.chunks_max);
        if (status != WEFT_OK) {
            (void)weft_fail(error, status, "no memory for %u events", config->events_max);
        }
    }
    if (status != WEFT_OK) {
        release(engine);
        return status;
    }
    engine->msgr = weft_driver_msgr(engine->driver);
    engine->port = weft_driver_port(engine->driver);
    int rc = create_thread(engine);
    if (rc != 0) {
        release(engine);
        return weft_fail(error, WEFT_IO, "pthread_create: %s", strerror(rc));
    }
    *engine_p = engine;
    return WEFT_OK;
}

void weft_engine_stop(struct weft_engine *engine)
{
    if (engine == NULL) {
        return;
    }
    atomic_store(&engine->stopping, true);
    wake(engine, &engine->engine_waits, &engine->engine_cond);
    weft_driver_wake(engine->driver);
    int rc = pthread_join(engine->thread, NULL);
    WEFT_ASSERT(rc == 0);
    release(engine);
}
