#include "io/udp/blocking_receive.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

enum { TICK_US = 1000 /* rounded up to a tick of the kernel's clock */ };

/* Nearer moments are worth a timer. The probe timeout is at least 200 us after what it asks for. */
static const uint64_t sleep_ns_min = 150 * WEFT_NS_PER_US;

void weft_lockstep_init(struct weft_lockstep *lockstep)
{
    atomic_init(&lockstep->asleep, 0);
    lockstep->fd = -1;
}

weft_status weft_lockstep_open(struct weft_lockstep *lockstep, int fd, const struct weft_addr *self,
                               uint32_t need)
{
    const struct timeval tick = {.tv_usec = TICK_US};
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tick, sizeof(tick)) != 0 ||
        fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0) {
        return WEFT_IO;
    }
    lockstep->self = *self;
    lockstep->need = need;
    lockstep->answers = 0;
    lockstep->fd = fd;
    return WEFT_OK;
}

bool weft_lockstep_due(const struct weft_lockstep *lockstep, uint64_t sleep_ns)
{
    return lockstep->fd >= 0 && lockstep->answers >= lockstep->need && sleep_ns >= sleep_ns_min;
}

void weft_lockstep_begin(struct weft_lockstep *lockstep)
{
    atomic_store(&lockstep->asleep, 1);
}

void weft_lockstep_end(struct weft_lockstep *lockstep)
{
    atomic_store(&lockstep->asleep, 0);
}

void weft_lockstep_note(struct weft_lockstep *lockstep, bool answered)
{
    lockstep->answers = answered ? lockstep->answers + (lockstep->answers < lockstep->need) : 0;
}

bool weft_lockstep_is_wake(const struct weft_lockstep *lockstep, const struct weft_addr *from,
                           uint32_t bytes)
{
    return bytes == 0 && lockstep->fd >= 0 && memcmp(from, &lockstep->self, sizeof(*from)) == 0;
}

void weft_lockstep_wake(struct weft_lockstep *lockstep)
{
    if (atomic_load(&lockstep->asleep) == 0) {
        return;
    }
    int before = errno;
    /* Where it is refused, the sleep ends with the tick. */
    (void)!sendto(lockstep->fd, "", 0, MSG_DONTWAIT | MSG_NOSIGNAL,
                  (const struct sockaddr *)(const void *)lockstep->self.bytes,
                  lockstep->self.bytes_used);
    errno = before;
}
