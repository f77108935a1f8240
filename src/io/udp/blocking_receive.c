#include "io/udp/blocking_receive.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

enum { TICK_US = 1000 /* rounded up to a tick of the kernel's clock */ };

/* Nearer deadlines need a timer. The probe timeout is at least 200 us. */
static const uint64_t sleep_ns_min = 150 * WEFT_NS_PER_US;

void weft_blocking_receive_init(struct weft_blocking_receive *blocking)
{
    atomic_init(&blocking->asleep, 0);
    blocking->fd = -1;
}

weft_status weft_blocking_receive_open(struct weft_blocking_receive *blocking, int fd,
                                       const struct weft_addr *self, uint32_t need)
{
    const struct timeval tick = {.tv_usec = TICK_US};
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tick, sizeof(tick)) != 0 ||
        fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0) {
        return WEFT_IO;
    }
    blocking->self = *self;
    blocking->need = need;
    blocking->answers = 0;
    blocking->fd = fd;
    return WEFT_OK;
}

bool weft_blocking_receive_due(const struct weft_blocking_receive *blocking, uint64_t sleep_ns)
{
    return blocking->fd >= 0 && blocking->answers >= blocking->need && sleep_ns >= sleep_ns_min;
}

void weft_blocking_receive_begin(struct weft_blocking_receive *blocking)
{
    atomic_store(&blocking->asleep, 1);
}

void weft_blocking_receive_end(struct weft_blocking_receive *blocking)
{
    atomic_store(&blocking->asleep, 0);
}

void weft_blocking_receive_note(struct weft_blocking_receive *blocking, bool answered)
{
    blocking->answers = answered ? blocking->answers + (blocking->answers < blocking->need) : 0;
}

bool weft_blocking_receive_is_wake(const struct weft_blocking_receive *blocking,
                                   const struct weft_addr *from, uint32_t bytes)
{
    return bytes == 0 && blocking->fd >= 0 && memcmp(from, &blocking->self, sizeof(*from)) == 0;
}

void weft_blocking_receive_wake(struct weft_blocking_receive *blocking)
{
    if (atomic_load(&blocking->asleep) == 0) {
        return;
    }
    int before = errno;
    /* If it is refused, the sleep ends at the next tick. */
    (void)!sendto(blocking->fd, "", 0, MSG_DONTWAIT | MSG_NOSIGNAL,
                  (const struct sockaddr *)(const void *)blocking->self.bytes,
                  blocking->self.bytes_used);
    errno = before;
}
