#define _GNU_SOURCE // syscall
#include "cli/perf/shared.h"

#include "io/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct weft_perf_shared *weft_perf_shared_new(void)
{
    void *memory = mmap(NULL, sizeof(struct weft_perf_shared), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void weft_perf_shared_free(struct weft_perf_shared *shared)
{
    if (shared != NULL) {
        (void)munmap(shared, sizeof(*shared));
    }
}

uint64_t weft_perf_shared_go(struct weft_perf_shared *shared)
{
    uint64_t now_ns = weft_clock_now_ns();
    atomic_fetch_add(&shared->go, 1);
    (void)syscall(SYS_futex, &shared->go, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    return now_ns;
}

bool weft_perf_shared_wait(struct weft_perf_shared *shared, uint32_t seen)
{
    static const struct timespec look = {.tv_nsec = 50000000}; /* for `stopping` */
    while (atomic_load(&shared->go) == seen && !atomic_load(&shared->stopping)) {
        (void)syscall(SYS_futex, &shared->go, FUTEX_WAIT, seen, &look, NULL, 0);
    }
    return !atomic_load(&shared->stopping);
}
