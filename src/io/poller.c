#include "io/poller.h"

#include "base/assert.h"
#include "io/clock.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

static bool watch(int epoll_fd, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return fd >= 0 && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

void weft_sleeper_init(struct weft_sleeper *sleeper)
{
    atomic_init(&sleeper->woken, 0);
    sleeper->armed_ns = WEFT_NEVER;
    sleeper->epoll_fd = -1;
    sleeper->wake_fd = -1;
    sleeper->timer_fd = -1;
}

weft_status weft_sleeper_open(struct weft_sleeper *sleeper, int fd)
{
    sleeper->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    sleeper->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    sleeper->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    bool good = sleeper->epoll_fd >= 0 && watch(sleeper->epoll_fd, sleeper->wake_fd) &&
                watch(sleeper->epoll_fd, sleeper->timer_fd) &&
                (fd < 0 || watch(sleeper->epoll_fd, fd));
    return good ? WEFT_OK : WEFT_IO;
}

static void close_fd(int fd)
{
    if (fd >= 0) {
        (void)close(fd);
    }
}

void weft_sleeper_close(struct weft_sleeper *sleeper)
{
    int before = errno;
    close_fd(sleeper->epoll_fd);
    close_fd(sleeper->wake_fd);
    close_fd(sleeper->timer_fd);
    errno = before;
}

static void arm(struct weft_sleeper *sleeper, uint64_t until_ns)
{
    struct itimerspec at = {.it_value = {.tv_sec = (time_t)(until_ns / WEFT_NS_PER_S),
                                         .tv_nsec = (long)(until_ns % WEFT_NS_PER_S)}};
    int rc = timerfd_settime(sleeper->timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
    WEFT_ASSERT(rc == 0); /* it fails for wrong arguments only */
    sleeper->armed_ns = until_ns;
}

/* Clear what made fd readable; true when there was something. */
static bool read_off(int fd)
{
    uint64_t value;
    return read(fd, &value, sizeof(value)) == (ssize_t)sizeof(value);
}

bool weft_sleeper_sleep(struct weft_sleeper *sleeper, uint64_t until_ns)
{
    for (;;) {
        if (until_ns < sleeper->armed_ns) {
            arm(sleeper, until_ns);
        }
        struct epoll_event events[3];
        int ready = epoll_wait(sleeper->epoll_fd, events, 3, -1);
        WEFT_ASSERT(ready > 0 || errno == EINTR);
        bool early = ready == 1 && events[0].data.fd == sleeper->timer_fd;
        bool woken = false;
        for (int i = 0; i < ready; i++) {
            if (events[i].data.fd == sleeper->timer_fd) {
                (void)read_off(sleeper->timer_fd);
                sleeper->armed_ns = WEFT_NEVER;
            } else if (events[i].data.fd == sleeper->wake_fd) {
                /* Cleared before it is read off: a wake in between is then seen twice, never lost. */
                atomic_store(&sleeper->woken, 0);
                woken = read_off(sleeper->wake_fd);
            }
        }
        if (!early || weft_clock_now_ns() >= until_ns) {
            return woken;
        }
    }
}

bool weft_sleeper_nap(struct weft_sleeper *sleeper, uint64_t ns)
{
    struct pollfd wake = {.fd = sleeper->wake_fd, .events = POLLIN};
    struct timespec time = {.tv_sec = (time_t)(ns / WEFT_NS_PER_S),
                            .tv_nsec = (long)(ns % WEFT_NS_PER_S)};
    (void)ppoll(&wake, 1, &time, NULL);
    return weft_sleeper_woken(sleeper);
}

void weft_sleeper_prepare(struct weft_sleeper *sleeper, uint64_t until_ns)
{
    /* Setting a timer also takes off that it has fired. */
    if (until_ns < sleeper->armed_ns || sleeper->armed_ns <= weft_clock_now_ns()) {
        arm(sleeper, until_ns);
    }
    (void)weft_sleeper_woken(sleeper);
}

bool weft_sleeper_woken(struct weft_sleeper *sleeper)
{
    if (atomic_load(&sleeper->woken) == 0) {
        return false;
    }
    atomic_store(&sleeper->woken, 0); /* as in sleep: before it is read off */
    (void)read_off(sleeper->wake_fd);
    return true;
}

void weft_sleeper_note_wake(struct weft_sleeper *sleeper)
{
    atomic_store(&sleeper->woken, 1);
}

void weft_sleeper_wake(struct weft_sleeper *sleeper)
{
    int before = errno;
    uint64_t one = 1;
    weft_sleeper_note_wake(sleeper);
    /* Fails only when the count is at its top, and then the sleep ends anyhow. */
    ssize_t wrote = write(sleeper->wake_fd, &one, sizeof(one));
    (void)wrote;
    errno = before;
}
