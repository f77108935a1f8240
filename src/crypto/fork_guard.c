#include "crypto/fork_guard.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define CANARY UINT64_C(0x77656674666f726b)

static _Atomic uint64_t forks; /* number of forks from the first process to this one */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int why_not_counted;

static void count_fork(void)
{
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static void watch_forks(void)
{
    why_not_counted = pthread_atfork(NULL, NULL, count_fork);
}

weft_status weft_fork_guard_new(struct weft_fork_guard **guard_p)
{
    struct weft_fork_guard *guard;
    (void)pthread_once(&once, watch_forks);
    guard = mmap(NULL, sizeof(*guard), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (guard == MAP_FAILED) {
        return WEFT_NOMEM;
    }
    bool wipes = madvise(guard, sizeof(*guard), MADV_WIPEONFORK) == 0;
    if (!wipes && why_not_counted != 0) {
        (void)munmap(guard, sizeof(*guard)); /* a fork would not be detected */
        return WEFT_NOMEM;
    }
    (void)madvise(guard, sizeof(*guard), MADV_DONTDUMP); /* an unsupported value does no harm */
    guard->canary = CANARY;
    guard->fork_count = atomic_load_explicit(&forks, memory_order_relaxed);
    *guard_p = guard;
    return WEFT_OK;
}

bool weft_fork_guard_holds(const struct weft_fork_guard *guard)
{
    return guard->canary == CANARY &&
           guard->fork_count == atomic_load_explicit(&forks, memory_order_relaxed);
}

void weft_fork_guard_free(struct weft_fork_guard *guard)
{
    if (guard != NULL) {
        OPENSSL_cleanse(guard->secret, sizeof(guard->secret));
        (void)munmap(guard, sizeof(*guard));
    }
}
