#include "io/poller.h"

#include "base/assert.h"
#include "io/clock.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { EARLY_SHARE = 4 };

static bool watch(int epoll_fd, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return fd >= 0 && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

void weft_poller_init(struct weft_poller *poller)
{
    atomic_init(&poller->woken, 0);
    poller->armed_ns = WEFT_NEVER;
    poller->epoll_fd = -1;
    poller->wake_fd = -1;
    poller->timer_fd = -1;
}

weft_status weft_poller_open(struct weft_poller *poller, int fd)
{
    poller->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    poller->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    poller->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    bool good = poller->epoll_fd >= 0 && watch(poller->epoll_fd, poller->wake_fd) &&
                watch(poller->epoll_fd, poller->timer_fd) &&
                (fd < 0 || watch(poller->epoll_fd, fd));
    return good ? WEFT_OK : WEFT_IO;
}

static void close_fd(int fd)
{
    if (fd >= 0) {
        (void)close(fd);
    }
}

void weft_poller_close(struct weft_poller *poller)
{
    int before = errno;
    close_fd(poller->epoll_fd);
    close_fd(poller->wake_fd);
    close_fd(poller->timer_fd);
    errno = before;
}

static void arm(struct weft_poller *poller, uint64_t until_ns)
{
    struct itimerspec at = {.it_value = {.tv_sec = (time_t)(until_ns / WEFT_NS_PER_S),
                                         .tv_nsec = (long)(until_ns % WEFT_NS_PER_S)}};
    int rc = timerfd_settime(poller->timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
    WEFT_ASSERT(rc == 0); /* fails only for wrong arguments */
    poller->armed_ns = until_ns;
}

/* Read the descriptor empty; true when it was readable. */
static bool read_off(int fd)
{
    uint64_t value;
    return read(fd, &value, sizeof(value)) == (ssize_t)sizeof(value);
}

/* The timer has fired, or will before a quarter of the sleep is over, and that would only wake this
 * thread up to set the timer again. */
static bool fires_early(const struct weft_poller *poller, uint64_t until_ns)
{
    uint64_t now_ns = weft_clock_now_ns();
    uint64_t armed_ns = poller->armed_ns;
    return armed_ns < until_ns &&
           (armed_ns <= now_ns || armed_ns - now_ns < (until_ns - now_ns) / EARLY_SHARE);
}

bool weft_poller_wait(struct weft_poller *poller, uint64_t until_ns)
{
    for (;;) {
        if (until_ns < poller->armed_ns || fires_early(poller, until_ns)) {
            arm(poller, until_ns);
        }
        struct epoll_event events[3];
        int ready = epoll_wait(poller->epoll_fd, events, 3, -1);
        WEFT_ASSERT(ready > 0 || errno == EINTR);
        bool early = ready == 1 && events[0].data.fd == poller->timer_fd;
        bool woken = false;
        for (int i = 0; i < ready; i++) {
            if (events[i].data.fd == poller->timer_fd) {
                (void)read_off(poller->timer_fd);
                poller->armed_ns = WEFT_NEVER;
            } else if (events[i].data.fd == poller->wake_fd) {
                /* The flag is cleared before the descriptor is read: a wake in between is then seen
                 * twice, never lost. */
                atomic_store(&poller->woken, 0);
                woken = read_off(poller->wake_fd);
            }
        }
        if (!early || weft_clock_now_ns() >= until_ns) {
            return woken;
        }
    }
}

bool weft_poller_nap(struct weft_poller *poller, uint64_t ns)
{
    struct pollfd wake = {.fd = poller->wake_fd, .events = POLLIN};
    struct timespec time = {.tv_sec = (time_t)(ns / WEFT_NS_PER_S),
                            .tv_nsec = (long)(ns % WEFT_NS_PER_S)};
    (void)ppoll(&wake, 1, &time, NULL);
    return weft_poller_woken(poller);
}

void weft_poller_prepare(struct weft_poller *poller, uint64_t until_ns)
{
    /* Setting a timer also clears a pending expiration. */
    if (until_ns < poller->armed_ns || poller->armed_ns <= weft_clock_now_ns()) {
        arm(poller, until_ns);
    }
    (void)weft_poller_woken(poller);
}

bool weft_poller_woken(struct weft_poller *poller)
{
    if (atomic_load(&poller->woken) == 0) {
        return false;
    }
    atomic_store(&poller->woken, 0); /* before the descriptor is read, as in weft_poller_wait */
    (void)read_off(poller->wake_fd);
    return true;
}

void weft_poller_note_wake(struct weft_poller *poller)
{
    atomic_store(&poller->woken, 1);
}

void weft_poller_wake(struct weft_poller *poller)
{
    int before = errno;
    uint64_t one = 1;
    weft_poller_note_wake(poller);
    /* Fails only when the counter is at its maximum, and then the sleep ends anyway. */
    ssize_t wrote = write(poller->wake_fd, &one, sizeof(one));
    (void)wrote;
    errno = before;
}
