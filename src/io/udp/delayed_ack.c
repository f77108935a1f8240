#include "io/udp/delayed_ack.h"

#include "base/assert.h"
#include "io/clock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum state {
    OWNED,    /* the owner has the endpoint */
    GIVEN,    /* who comes first gets it */
    SPEAKING, /* the thread has it; only while it holds `lock` */
};

struct weft_hold {
    struct weft_hold_config config;
    /* The owner's alone. */
    bool given; /* and not taken back */
    bool quick; /* the last time it was back within the gap */
    bool has_thread;
    bool no_thread;   /* there is none to be had */
    uint64_t left_ns; /* when it went; WEFT_NEVER = it is here */
    pthread_t thread;
    pid_t maker; /* of the thread: in a forked process it is not there */

    atomic_int state;
    atomic_uint turn;   /* of giving: the thread tells by it whether it is still the same */
    atomic_bool asleep; /* the thread, and must be woken */
    atomic_ullong said;
    bool stopping; /* behind lock */
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

static const uint64_t look_ns = 2 * WEFT_NS_PER_MS;

/* ---- the thread ------------------------------------------------------------------------------ */

static void sleep_until_next_look(struct weft_hold *hold)
{
    uint64_t at_ns = weft_clock_now_ns() + look_ns;
    const struct timespec at = {.tv_sec = (time_t)(at_ns / WEFT_NS_PER_S),
                                .tv_nsec = (long)(at_ns % WEFT_NS_PER_S)};
    while (!hold->stopping && pthread_cond_timedwait(&hold->wake, &hold->lock, &at) != ETIMEDOUT) {
        continue;
    }
}

/* Nothing is held, or has been since the last look. Who gives stores `state` and then reads
 * `asleep`; here it is the other way round, so that one of the two sees the other. */
static void sleep_until_given(struct weft_hold *hold)
{
    atomic_store(&hold->asleep, true);
    while (!hold->stopping && atomic_load(&hold->state) != GIVEN) {
        pthread_cond_wait(&hold->wake, &hold->lock);
    }
    atomic_store(&hold->asleep, false);
}

/* False when the owner has it. */
static bool speak(struct weft_hold *hold)
{
    int given = GIVEN;
    if (!atomic_compare_exchange_strong(&hold->state, &given, SPEAKING)) {
        return false;
    }
    hold->config.say(hold->config.arg);
    atomic_fetch_add(&hold->said, 1);
    atomic_store(&hold->state, OWNED);
    return true;
}

static void *look_after(void *arg)
{
    struct weft_hold *hold = arg;
    pthread_mutex_lock(&hold->lock);
    unsigned seen = atomic_load(&hold->turn);
    while (!hold->stopping) {
        sleep_until_next_look(hold);
        unsigned turn = atomic_load(&hold->turn);
        if (turn != seen) {
            seen = turn; /* the owner comes and goes */
        } else if (!hold->stopping && !speak(hold)) {
            sleep_until_given(hold);
        }
    }
    pthread_mutex_unlock(&hold->lock);
    return NULL;
}

/* The application's signals are for its own threads. */
static bool thread_start(struct weft_hold *hold)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    hold->has_thread = pthread_create(&hold->thread, NULL, look_after, hold) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    hold->maker = getpid();
    hold->no_thread = !hold->has_thread;
    return hold->has_thread;
}

/* ---- the owner ------------------------------------------------------------------------------- */

bool weft_hold_worth(struct weft_hold *hold)
{
    bool worth = hold->quick || hold->config.gap_ns == WEFT_NEVER;
    return worth && !hold->no_thread && (hold->has_thread || thread_start(hold));
}

static void give(struct weft_hold *hold)
{
    hold->given = true;
    atomic_store(&hold->state, GIVEN);
    if (atomic_load(&hold->asleep)) {
        pthread_mutex_lock(&hold->lock);
        pthread_cond_signal(&hold->wake);
        pthread_mutex_unlock(&hold->lock);
    }
}

void weft_hold_leave(struct weft_hold *hold, bool gives, uint64_t now_ns)
{
    hold->left_ns = now_ns;
    if (gives) {
        atomic_fetch_add_explicit(&hold->turn, 1, memory_order_relaxed);
        give(hold);
    }
}

bool weft_hold_take(struct weft_hold *hold)
{
    if (hold == NULL || !hold->given) {
        return false;
    }
    hold->given = false;
    int given = GIVEN;
    if (!atomic_compare_exchange_strong(&hold->state, &given, OWNED) && given == SPEAKING &&
        getpid() == hold->maker) {
        pthread_mutex_lock(&hold->lock);
        pthread_mutex_unlock(&hold->lock);
    }
    return true;
}

void weft_hold_again(struct weft_hold *hold, bool was_given)
{
    if (was_given) {
        give(hold);
    }
}

void weft_hold_back(struct weft_hold *hold, uint64_t now_ns)
{
    (void)weft_hold_take(hold);
    if (hold->left_ns != WEFT_NEVER) {
        hold->quick = now_ns - hold->left_ns <= hold->config.gap_ns;
        hold->left_ns = WEFT_NEVER;
    }
}

uint64_t weft_hold_said(const struct weft_hold *hold)
{
    return hold == NULL ? 0 : atomic_load(&hold->said);
}

/* ---- its message interface ------------------------------------------------------------------- */

static uint32_t hold_chunk_elems(void *self, weft_peer peer, uint16_t elem_bytes)
{
    struct weft_hold *hold = self;
    const struct weft_msgr *inside = &hold->config.inside;
    bool was_given = weft_hold_take(hold);
    uint32_t elems = inside->ops->chunk_elems(inside->self, peer, elem_bytes);
    weft_hold_again(hold, was_given);
    return elems;
}

static weft_status hold_send(void *self, const struct weft_msg_send *send, uint64_t now_ns,
                             uint64_t *seq_p)
{
    struct weft_hold *hold = self;
    const struct weft_msgr *inside = &hold->config.inside;
    bool was_given = weft_hold_take(hold);
    weft_status status = inside->ops->send(inside->self, send, now_ns, seq_p);
    weft_hold_again(hold, was_given);
    return status;
}

static weft_status hold_pace(void *self, weft_peer peer, uint64_t seq,
                             const struct weft_msg_pace *pace, uint64_t now_ns)
{
    struct weft_hold *hold = self;
    const struct weft_msgr *inside = &hold->config.inside;
    bool was_given = weft_hold_take(hold);
    weft_status status = inside->ops->pace(inside->self, peer, seq, pace, now_ns);
    weft_hold_again(hold, was_given);
    return status;
}

static weft_status hold_withdraw(void *self, weft_peer peer, uint64_t seq, uint64_t now_ns)
{
    struct weft_hold *hold = self;
    const struct weft_msgr *inside = &hold->config.inside;
    bool was_given = weft_hold_take(hold);
    weft_status status = inside->ops->withdraw(inside->self, peer, seq, now_ns);
    weft_hold_again(hold, was_given);
    return status;
}

static weft_status hold_expect(void *self, const struct weft_msg_expect *expect,
                               weft_expect_id *id_p)
{
    struct weft_hold *hold = self;
    const struct weft_msgr *inside = &hold->config.inside;
    bool was_given = weft_hold_take(hold);
    weft_status status = inside->ops->expect(inside->self, expect, id_p);
    weft_hold_again(hold, was_given);
    return status;
}

static weft_status hold_cancel(void *self, weft_expect_id id)
{
    struct weft_hold *hold = self;
    const struct weft_msgr *inside = &hold->config.inside;
    bool was_given = weft_hold_take(hold);
    weft_status status = inside->ops->cancel(inside->self, id);
    weft_hold_again(hold, was_given);
    return status;
}

static void hold_set_user(void *self, weft_peer peer, uint64_t seq, uint64_t user)
{
    struct weft_hold *hold = self;
    const struct weft_msgr *inside = &hold->config.inside;
    bool was_given = weft_hold_take(hold);
    inside->ops->set_user(inside->self, peer, seq, user);
    weft_hold_again(hold, was_given);
}

static void hold_refuse(void *self, weft_peer peer, uint64_t seq)
{
    struct weft_hold *hold = self;
    const struct weft_msgr *inside = &hold->config.inside;
    bool was_given = weft_hold_take(hold);
    inside->ops->refuse(inside->self, peer, seq);
    weft_hold_again(hold, was_given);
}

static bool hold_poll(void *self, struct weft_msg_event *event_p)
{
    struct weft_hold *hold = self;
    const struct weft_msgr *inside = &hold->config.inside;
    bool was_given = weft_hold_take(hold);
    bool got = inside->ops->poll(inside->self, event_p);
    weft_hold_again(hold, was_given);
    return got;
}

static const struct weft_msg_ops hold_ops = {
    .chunk_elems = hold_chunk_elems,
    .send = hold_send,
    .pace = hold_pace,
    .withdraw = hold_withdraw,
    .expect = hold_expect,
    .cancel = hold_cancel,
    .set_user = hold_set_user,
    .refuse = hold_refuse,
    .poll = hold_poll,
};

struct weft_msgr weft_hold_msgr(struct weft_hold *hold)
{
    return (struct weft_msgr){.ops = &hold_ops, .self = hold};
}

/* ---- life ------------------------------------------------------------------------------------ */

weft_status weft_hold_new(const struct weft_hold_config *config, struct weft_hold **hold_p)
{
    struct weft_hold *hold = calloc(1, sizeof(*hold));
    if (hold == NULL) {
        return WEFT_NOMEM;
    }
    hold->config = *config;
    hold->left_ns = WEFT_NEVER;
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    rc = rc != 0 ? rc : pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    rc = rc != 0 ? rc : pthread_cond_init(&hold->wake, &attr);
    rc = rc != 0 ? rc : pthread_mutex_init(&hold->lock, NULL);
    WEFT_ASSERT(rc == 0); /* on Linux these fail only for wrong arguments */
    pthread_condattr_destroy(&attr);
    *hold_p = hold;
    return WEFT_OK;
}

void weft_hold_free(struct weft_hold *hold)
{
    if (hold == NULL) {
        return;
    }
    (void)weft_hold_take(hold);
    if (hold->has_thread && getpid() != hold->maker) {
        free(hold); /* forked: nobody is there who could leave what the thread slept on */
        return;
    }
    if (hold->has_thread) {
        pthread_mutex_lock(&hold->lock);
        hold->stopping = true;
        pthread_cond_signal(&hold->wake);
        pthread_mutex_unlock(&hold->lock);
        int rc = pthread_join(hold->thread, NULL);
        WEFT_ASSERT(rc == 0);
    }
    pthread_mutex_destroy(&hold->lock);
    pthread_cond_destroy(&hold->wake);
    free(hold);
}
