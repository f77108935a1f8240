#define _GNU_SOURCE
#include "cli/stop.h"

#include <signal.h>
#include <stdatomic.h>

static atomic_bool asked;
static _Atomic(struct weft_udp *) woken;

static void on_signal(int signal)
{
    (void)signal;
    atomic_store(&asked, true);
    struct weft_udp *udp = atomic_load(&woken);
    if (udp != NULL) {
        weft_udp_wake(udp);
    }
}

void weft_stop_install(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(signals); i++) {
        struct sigaction action = {0};
        if (sigaction(signals[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN) {
            action = (struct sigaction){.sa_handler = on_signal};
            sigaction(signals[i], &action, NULL);
        }
    }
}

void weft_stop_wakes(struct weft_udp *udp)
{
    atomic_store(&woken, udp);
}

bool weft_stop_asked(void)
{
    return atomic_load(&asked);
}
