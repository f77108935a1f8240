/* Figures that one thread owns and a server of metrics shows: a copy between them.
 *
 * The owner is a program of somebody else that looks in when it likes: it may compute for a minute
 * between two calls. So it makes the copy, whenever it is there: at once when somebody waits for
 * one, and, once anybody has asked at all, every 100 ms. Who asks while the owner is away gets that
 * copy, told how old it is, and waits for the owner once and not again before it came back.
 * While nobody asks, the owner reads one flag.
 *
 * Differs from node/stats_query.h, whose owner is a loop of ours that comes by within milliseconds.
 *
 * Thread:  look: the owner, who never waits for a reader. The others: one other thread at a time.
 */
#ifndef WEFT_METRICS_FIGURES_H
#define WEFT_METRICS_FIGURES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct weft_figures_config {
    void *stats;                             /* where the copy is; borrowed until fini */
    void (*copy)(void *stats, void *object); /* run by the owner */
    void *object;                            /* its argument, and of wake */
    void (*wake)(void *object);              /* ends a sleep of the owner; NULL = cannot */
    uint64_t patience_ns;                    /* of who asks */
};

struct weft_figures {
    struct weft_figures_config config;
    atomic_bool watched;  /* somebody has asked, ever */
    atomic_bool asked;    /* somebody wants a copy now */
    pthread_mutex_t lock; /* of what follows and of stats */
    pthread_cond_t changed;
    uint64_t taken_ns;
    bool was_missed; /* who asked last waited for nothing */
    pid_t pid;       /* of who made it */
};

/* Makes the first copy, so there is always one. Thread: the owner. */
void weft_figures_init(struct weft_figures *figures, const struct weft_figures_config *config);
/* Also in a forked process, whatever the other thread was doing. */
void weft_figures_fini(struct weft_figures *figures);

void weft_figures_take(struct weft_figures *figures);

static inline void weft_figures_look(struct weft_figures *figures)
{
    if (atomic_load_explicit(&figures->watched, memory_order_relaxed)) {
        weft_figures_take(figures);
    }
}

/* Have a copy made unless it is of the last 100 ms, and hold it still: config.stats may be read until
 * weft_figures_release. Returns its age. */
uint64_t weft_figures_acquire(struct weft_figures *figures);
void weft_figures_release(struct weft_figures *figures);

#endif
