#include "io/driver_base.h"

#include "io/clock.h"
#include "wire/packet.h"

#include <errno.h>
#include <string.h>

static const uint64_t close_wait_ns = 50 * WEFT_NS_PER_MS;

void weft_driver_init(struct weft_driver *driver, const struct weft_driver_ops *ops,
                      const struct weft_driver_setup *setup)
{
    driver->ops = ops;
    driver->before_send = setup->before_send;
    driver->loopback_only = setup->mode == WEFT_MODE_NONE && setup->insecure_network == 0;
    weft_busy_poll_init(&driver->busy_poll, setup->busy_poll_us * WEFT_NS_PER_US);
    weft_poller_init(&driver->poller);
}

weft_status weft_driver_watch(struct weft_driver *driver, int fd, struct weft_error *error)
{
    weft_status status = fd < 0 ? WEFT_IO : weft_poller_open(&driver->poller, fd);
    return status == WEFT_OK
               ? status
               : weft_fail(error, status, "epoll, eventfd and timerfd: %s", strerror(errno));
}

static void drop_events(void *arg, uint64_t now_ns)
{
    (void)now_ns;
    const struct weft_msgr *msgr = &((struct weft_driver *)arg)->msgr;
    struct weft_msg_event event;
    while (msgr->ops->poll(msgr->self, &event)) {
        continue;
    }
}

void weft_driver_finish(struct weft_driver *driver, bool (*waits)(struct weft_driver *driver))
{
    uint64_t now_ns = weft_clock_now_ns();
    uint64_t end_ns = now_ns + close_wait_ns;
    while (waits(driver) && now_ns < end_ns) {
        (void)driver->ops->step(driver, end_ns - now_ns, drop_events, driver);
        now_ns = weft_clock_now_ns();
    }
}
