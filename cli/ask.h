/* A question to the thread that owns an object, from another one: it is answered by the owner,
 * between two pieces of its work. While nobody asks, the owner reads one flag.
 *
 * That is how /metrics and /hot see a shard without a lock on its path: the shard's thread copies
 * what is wanted, when it is wanted.
 *
 * Thread:  weft_ask_answer, open and close: the owner. weft_ask: any one other thread at a time.
 */
#ifndef WEFT_CLI_ASK_H
#define WEFT_CLI_ASK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The owner runs it on its object. */
typedef void weft_ask_question(void *arg, void *object);

struct weft_ask {
    pthread_mutex_t lock; /* of what follows, and held while a question is answered */
    pthread_cond_t changed;
    atomic_bool waits; /* a question is there; the owner's look without the lock */
    bool is_open;      /* there is an owner */
    weft_ask_question *question;
    void *arg;
};

void weft_ask_init(struct weft_ask *ask);
void weft_ask_fini(struct weft_ask *ask);

void weft_ask_open(struct weft_ask *ask);
/* Whoever waits hears that there is no answer. */
void weft_ask_close(struct weft_ask *ask);

void weft_ask_take(struct weft_ask *ask, void *object);

static inline void weft_ask_answer(struct weft_ask *ask, void *object)
{
    if (atomic_load_explicit(&ask->waits, memory_order_relaxed)) {
        weft_ask_take(ask, object);
    }
}

/* Have the question answered. wake (or NULL) ends a sleep of the owner; it is called without the
 * lock. False: there is no owner, or it did not come to it in timeout_ns; question was not run and
 * will not be.
 * Owns:    borrows arg until return. */
bool weft_ask(struct weft_ask *ask, weft_ask_question *question, void *arg, void (*wake)(void *arg),
              void *wake_arg, uint64_t timeout_ns);

#endif
