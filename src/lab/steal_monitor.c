#include "lab/steal_monitor.h"

#include "base/units.h"
#include "lab/clock.h"
#include "lab/wake_probe.h"

#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    PROCESSORS_MAX = 64,
    ROOM_BYTES = 256 * 1024, /* of a ring, a power of two: 16,384 samples */
    ABSENCES_MAX = 65536,
};

static const uint64_t period_ns = 1000000;
static const uint64_t away_ns = 2000000; /* gap between two samples that counts as an absence */

/* The kernel's record: PERF_SAMPLE_TIME alone. Other records (of lost samples) are skipped. */
struct sample {
    struct perf_event_header header;
    uint64_t time_ns;
};

struct watch {
    int fd;
    struct perf_event_mmap_page *ring; /* one page, then ROOM_BYTES */
    struct weft_wake_probe *probe;     /* NULL: none */
    uint64_t last_ns; /* of the last sample or wake-up; initially the time of opening */
};

struct absence {
    uint64_t from_ns;
    uint64_t to_ns;
};

struct weft_steal_monitor {
    uint32_t watches;
    struct watch watch[PROCESSORS_MAX];
    uint32_t count;
    uint64_t full_ns; /* start of an absence that could not be stored; UINT64_MAX: none */
    struct absence absences[ABSENCES_MAX];
};

static size_t ring_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE) + ROOM_BYTES;
}

static bool watch_open(struct watch *watch, int processor)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof(attr),
        .config = PERF_COUNT_SW_CPU_CLOCK,
        .sample_period = period_ns,
        .sample_type = PERF_SAMPLE_TIME,
        .use_clockid = 1,
        .clockid = CLOCK_MONOTONIC,
        .watermark = 1, /* no thread waits for it */
        .wakeup_watermark = ROOM_BYTES,
    };
    watch->last_ns = weft_lab_now_ns();
    watch->fd = (int)syscall(SYS_perf_event_open, &attr, -1, processor, -1, PERF_FLAG_FD_CLOEXEC);
    if (watch->fd < 0) {
        return false;
    }
    void *ring = mmap(NULL, ring_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, watch->fd, 0);
    if (ring == MAP_FAILED) {
        (void)close(watch->fd);
        return false;
    }
    watch->ring = ring;
    /* In phase with the samples: one interrupt serves both. */
    watch->probe = weft_wake_probe_new(processor, weft_lab_now_ns(), period_ns);
    return true;
}

struct weft_steal_monitor *weft_steal_monitor_new(void)
{
    long processors = sysconf(_SC_NPROCESSORS_CONF);
    struct weft_steal_monitor *monitor = calloc(1, sizeof(*monitor));
    if (monitor == NULL) {
        return NULL;
    }
    monitor->full_ns = UINT64_MAX;
    bool good = processors <= PROCESSORS_MAX;
    for (int i = 0; good && i < (int)processors; i++) {
        good = watch_open(&monitor->watch[i], i);
        monitor->watches += good;
    }
    if (!good) {
        weft_steal_monitor_free(monitor);
        return NULL;
    }
    return monitor;
}

void weft_steal_monitor_free(struct weft_steal_monitor *monitor)
{
    for (uint32_t i = 0; monitor != NULL && i < monitor->watches; i++) {
        weft_wake_probe_free(monitor->watch[i].probe);
        (void)munmap(monitor->watch[i].ring, ring_bytes());
        (void)close(monitor->watch[i].fd);
    }
    free(monitor);
}

static void keep(struct weft_steal_monitor *monitor, struct watch *watch, uint64_t time_ns)
{
    if (time_ns >= watch->last_ns + away_ns) {
        if (monitor->count < ABSENCES_MAX) {
            monitor->absences[monitor->count++] =
                (struct absence){watch->last_ns + period_ns, time_ns};
        } else {
            monitor->full_ns = weft_min_u64(monitor->full_ns, watch->last_ns);
        }
    }
    watch->last_ns = weft_max_u64(watch->last_ns, time_ns);
}

static void copy_out(const struct watch *watch, uint64_t at, void *to, size_t bytes)
{
    const char *room = (const char *)watch->ring + watch->ring->data_offset;
    size_t offset = at % ROOM_BYTES;
    size_t first = bytes < ROOM_BYTES - offset ? bytes : ROOM_BYTES - offset;
    memcpy(to, room + offset, first);
    memcpy((char *)to + first, room, bytes - first);
}

/* The time of the next sample before `head`; WEFT_NEVER: none. */
static uint64_t next_sample(struct watch *watch, uint64_t head)
{
    uint64_t tail = watch->ring->data_tail;
    uint64_t time_ns = WEFT_NEVER;
    while (tail < head && time_ns == WEFT_NEVER) {
        struct sample sample;
        copy_out(watch, tail, &sample.header, sizeof(sample.header));
        if (sample.header.type == PERF_RECORD_SAMPLE && sample.header.size == sizeof(sample)) {
            copy_out(watch, tail, &sample, sizeof(sample));
            time_ns = sample.time_ns;
        }
        tail += sample.header.size;
    }
    __atomic_store_n(&watch->ring->data_tail, tail, __ATOMIC_RELEASE);
    return time_ns;
}

static uint64_t next_wake(const struct watch *watch)
{
    return watch->probe != NULL ? weft_wake_probe_next(watch->probe) : WEFT_NEVER;
}

/* Merge samples and wake-ups in the order of their times. If the probe runs meanwhile, only
 * wake-ups can be late, and those before the last sample add no information. */
static void read_both(struct weft_steal_monitor *monitor, struct watch *watch)
{
    uint64_t head = __atomic_load_n(&watch->ring->data_head, __ATOMIC_ACQUIRE);
    uint64_t sample_ns = next_sample(watch, head);
    uint64_t wake_ns = next_wake(watch);
    while (sample_ns != WEFT_NEVER || wake_ns != WEFT_NEVER) {
        keep(monitor, watch, weft_min_u64(sample_ns, wake_ns));
        if (sample_ns <= wake_ns) {
            sample_ns = next_sample(watch, head);
        } else {
            wake_ns = next_wake(watch);
        }
    }
}

void weft_steal_monitor_read(struct weft_steal_monitor *monitor)
{
    for (uint32_t i = 0; i < monitor->watches; i++) {
        read_both(monitor, &monitor->watch[i]);
    }
}

bool weft_steal_monitor_undisturbed(const struct weft_steal_monitor *monitor, uint64_t from_ns,
                                    uint64_t to_ns)
{
    bool undisturbed = to_ns < monitor->full_ns;
    for (uint32_t i = 0; undisturbed && i < monitor->watches; i++) {
        /* Nothing since: the processor is still away, or was taken offline. */
        undisturbed = monitor->watch[i].last_ns + away_ns > to_ns;
    }
    for (uint32_t i = 0; undisturbed && i < monitor->count; i++) {
        undisturbed = monitor->absences[i].from_ns > to_ns || monitor->absences[i].to_ns < from_ns;
    }
    return undisturbed;
}
