#define _GNU_SOURCE
#include "cli/stop.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/signalfd.h>

static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

static atomic_bool asked;
static bool ignores_pipes; /* since weft_stop_ignore_pipes, not before */
static _Atomic(struct weft_driver *) woken;

static void on_signal(int signal)
{
    (void)signal;
    atomic_store(&asked, true);
    struct weft_driver *driver = atomic_load(&woken);
    if (driver != NULL) {
        weft_driver_wake(driver);
    }
}

void weft_stop_install(void)
{
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(signals); i++) {
        struct sigaction action = {0};
        if (sigaction(signals[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN) {
            action = (struct sigaction){.sa_handler = on_signal};
            sigaction(signals[i], &action, NULL);
        }
    }
}

void weft_stop_wakes(struct weft_driver *driver)
{
    atomic_store(&woken, driver);
}

bool weft_stop_requested(void)
{
    return atomic_load(&asked);
}

void weft_stop_ignore_pipes(void)
{
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction before;
    if (sigaction(SIGPIPE, &ignore, &before) == 0 && before.sa_handler != SIG_IGN) {
        ignores_pipes = true;
    }
}

void weft_stop_restore_pipes(void)
{
    if (ignores_pipes) {
        (void)signal(SIGPIPE, SIG_DFL);
    }
}

bool weft_stop_survives(int signal)
{
    struct sigaction action;
    return signal == SIGHUP && sigaction(SIGHUP, NULL, &action) == 0 &&
           action.sa_handler == SIG_IGN;
}

int weft_stop_fd(int more)
{
    weft_stop_ignore_pipes();
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(signals); i++) {
        if (!weft_stop_survives(signals[i])) {
            sigaddset(&set, signals[i]);
        }
    }
    if (more != 0) {
        sigaddset(&set, more);
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC);
}
