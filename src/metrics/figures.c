#include "metrics/figures.h"

#include "base/units.h"
#include "io/clock.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

static const uint64_t fresh_ns = 100 * WEFT_NS_PER_MS;

void weft_figures_init(struct weft_figures *figures, const struct weft_figures_config *config)
{
    pthread_condattr_t attributes;
    *figures = (struct weft_figures){.config = *config, .pid = getpid()};
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&figures->lock, NULL);
    pthread_cond_init(&figures->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    config->copy(config->stats, config->object);
    figures->taken_ns = weft_clock_now_ns();
}

/* In a forked process who waits is not there, and destroying would wait for it for ever. */
void weft_figures_fini(struct weft_figures *figures)
{
    if (getpid() != figures->pid) {
        return;
    }
    pthread_cond_destroy(&figures->changed);
    pthread_mutex_destroy(&figures->lock);
}

/* taken_ns is written by the owner alone, so it may read it without the lock. In a forked process the
 * lock may be held by a thread that is not there: then nothing happens, here as ever. */
void weft_figures_take(struct weft_figures *figures)
{
    uint64_t now_ns = weft_clock_now_ns();
    if (!atomic_load_explicit(&figures->asked, memory_order_relaxed) &&
        now_ns - figures->taken_ns < fresh_ns) {
        return;
    }
    if (pthread_mutex_trylock(&figures->lock) != 0) {
        return;
    }
    figures->config.copy(figures->config.stats, figures->config.object);
    figures->taken_ns = now_ns;
    figures->was_missed = false;
    atomic_store_explicit(&figures->asked, false, memory_order_relaxed);
    pthread_cond_broadcast(&figures->changed);
    pthread_mutex_unlock(&figures->lock);
}

static struct timespec at(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / WEFT_NS_PER_S),
                             .tv_nsec = (long)(ns % WEFT_NS_PER_S)};
}

/* Behind lock. The clock of weft_clock_now_ns is the monotonic one. */
static void wait_for_owner(struct weft_figures *figures)
{
    const struct timespec end = at(weft_clock_now_ns() + figures->config.patience_ns);
    while (atomic_load_explicit(&figures->asked, memory_order_relaxed)) {
        if (pthread_cond_timedwait(&figures->changed, &figures->lock, &end) == ETIMEDOUT) {
            figures->was_missed = true;
            return;
        }
    }
}

uint64_t weft_figures_acquire(struct weft_figures *figures)
{
    atomic_store_explicit(&figures->watched, true, memory_order_relaxed);
    pthread_mutex_lock(&figures->lock);
    bool is_old = weft_clock_now_ns() - figures->taken_ns >= fresh_ns;
    if (is_old) {
        atomic_store_explicit(&figures->asked, true, memory_order_relaxed);
    }
    if (is_old && !figures->was_missed) {
        pthread_mutex_unlock(&figures->lock);
        if (figures->config.wake != NULL) {
            figures->config.wake(figures->config.object);
        }
        pthread_mutex_lock(&figures->lock);
        wait_for_owner(figures);
    }
    uint64_t now_ns = weft_clock_now_ns();
    return now_ns > figures->taken_ns ? now_ns - figures->taken_ns : 0;
}

void weft_figures_release(struct weft_figures *figures)
{
    pthread_mutex_unlock(&figures->lock);
}
