#define _GNU_SOURCE
#include "node/map_guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

/* The handler searches this table, so it is never moved or freed. It has more slots than a process
 * has shards. */
enum { GUARDS_MAX = 256 };

struct weft_map_guard {
    _Atomic uintptr_t begin; /* 0 = free */
    _Atomic size_t bytes;
    _Atomic bool failed;
};

static struct weft_map_guard guards[GUARDS_MAX];
static struct sigaction before;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects installing, and claiming a
                                                          * slot */

static void pass_on(int signal_number, siginfo_t *info, void *context)
{
    if ((before.sa_flags & SA_SIGINFO) != 0) {
        before.sa_sigaction(signal_number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(signal_number);
    } else {
        /* A failed store is repeated on return, and then ends the process as without a handler; a
         * signal that was sent must be sent again. */
        (void)sigaction(SIGBUS, &before, NULL);
        if (info->si_code <= 0) {
            (void)raise(SIGBUS);
        }
    }
}

/* If the address is in this region, replace the region with memory that is never read. */
static bool replace(struct weft_map_guard *guard, uintptr_t at)
{
    uintptr_t begin = atomic_load(&guard->begin);
    size_t bytes = atomic_load(&guard->bytes);
    if (begin == 0 || at < begin || at - begin >= bytes ||
        mmap((void *)begin, bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
        return false;
    }
    atomic_store(&guard->failed, true);
    return true;
}

/* Async-signal-safe: mmap is a plain system call, and the rest is atomics. */
static void on_bus(int signal_number, siginfo_t *info, void *context)
{
    int saved_errno = errno;
    bool replaced = false;
    for (int i = 0; !replaced && info->si_code > 0 && i < GUARDS_MAX; i++) {
        replaced = replace(&guards[i], (uintptr_t)info->si_addr);
    }
    if (!replaced) {
        pass_on(signal_number, info, context);
    }
    errno = saved_errno;
}

/* Install the handler; again when other code has installed its own since. */
static bool install(void)
{
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_ONSTACK}, now;
    (void)sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, NULL, &now) != 0) {
        return false;
    }
    if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_bus) {
        return true;
    }
    before = now;
    return sigaction(SIGBUS, &action, NULL) == 0;
}

static struct weft_map_guard *take_slot(void)
{
    for (int i = 0; i < GUARDS_MAX; i++) {
        if (atomic_load(&guards[i].begin) == 0) {
            return &guards[i];
        }
    }
    errno = ENOSPC;
    return NULL;
}

weft_status weft_map_guard_add(void *memory, size_t bytes, struct weft_map_guard **guard_p)
{
    pthread_mutex_lock(&lock);
    struct weft_map_guard *guard = install() ? take_slot() : NULL;
    if (guard != NULL) {
        atomic_store(&guard->failed, false);
        atomic_store(&guard->bytes, bytes);
        atomic_store(&guard->begin, (uintptr_t)memory);
        *guard_p = guard;
    }
    pthread_mutex_unlock(&lock);
    return guard != NULL ? WEFT_OK : WEFT_IO;
}

bool weft_map_guard_failed(const struct weft_map_guard *guard)
{
    return atomic_load_explicit(&guard->failed, memory_order_relaxed);
}

void weft_map_guard_remove(struct weft_map_guard *guard)
{
    if (guard != NULL) {
        atomic_store(&guard->begin, 0);
    }
}
