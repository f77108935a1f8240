/* Common base of the drivers: struct weft_driver, which each driver embeds as its first member, and
 * the table of functions that each driver fills in once.
 *
 * io/driver.c calls these functions, and implements what all drivers share: addresses, the port,
 * the message interface, the descriptor to poll, the text about an unreachable peer. This header
 * also has the shared steps of drivers: watching a socket, the last steps before a close.
 *
 * A driver includes this header, but never the other driver nor io/driver.h, which includes both
 * (tests/check/includes.sh). Internal to src/io.
 */
#ifndef WEFT_IO_DRIVER_BASE_H
#define WEFT_IO_DRIVER_BASE_H

#include "base/error.h"
#include "io/busy_poll.h"
#include "io/driver_types.h"
#include "io/poller.h"
#include "io/unreached.h"

/* Each is the function of the same name in io/driver.h. */
struct weft_driver_ops {
    enum weft_driver_kind kind;
    /* addr: checked, and of the socket's family. Errors: WEFT_NOMEM the peer table is full. */
    weft_status (*connect)(struct weft_driver *driver, const struct weft_addr *addr,
                           weft_peer *peer_p);
    /* replaced: as weft_driver_refuse. */
    void (*disconnect)(struct weft_driver *driver, weft_peer peer, bool replaced);
    uint32_t (*step)(struct weft_driver *driver, uint64_t timeout_ns, weft_driver_handler *handler,
                     void *arg);
    bool (*rest)(struct weft_driver *driver, uint64_t until_ns);
    void (*wake)(struct weft_driver *driver);
    void (*flush)(struct weft_driver *driver);
    void (*idle)(struct weft_driver *driver);
    void (*acknowledge)(struct weft_driver *driver); /* NULL: nothing is acknowledged late */
    void (*close)(struct weft_driver *driver);
    void (*counters)(struct weft_driver *driver, struct weft_driver_counters *counters_p);
    bool (*busy)(struct weft_driver *driver);
    enum weft_ep_hint (*hint)(struct weft_driver *driver);
    uint64_t (*srtt_ns)(struct weft_driver *driver, weft_peer peer);
    uint32_t (*grid)(struct weft_driver *driver, weft_peer peer, uint16_t elem_bytes,
                     uint32_t total);
};

struct weft_driver {
    const struct weft_driver_ops *ops;
    struct weft_msgr msgr;
    struct weft_poller poller;
    struct weft_busy_poll busy_poll;
    struct weft_before_send before_send;
    struct weft_unreached unreached;
    struct weft_socket_counters socket;
    int family;         /* of the address bound */
    uint16_t port;      /* bound port, host byte order; 0 = not listening */
    bool loopback_only; /* mode none, and use of the network is not allowed */
};

/* The part of a driver's configuration that its base needs. */
struct weft_driver_setup {
    struct weft_before_send before_send;
    uint32_t busy_poll_us;
    uint8_t mode; /* enum weft_wire_mode */
    uint8_t insecure_network;
};

/* Call this first: the poller must be closed even if a later step fails. */
void weft_driver_init(struct weft_driver *driver, const struct weft_driver_ops *ops,
                      const struct weft_driver_setup *setup);

/* Have the poller watch fd; -1: opening it failed. Errors:  WEFT_IO, by errno. */
weft_status weft_driver_watch(struct weft_driver *driver, int fd, struct weft_error *error);

/* Packets are about to leave. */
static inline void weft_driver_call_before_send(const struct weft_driver *driver)
{
    if (driver->before_send.call != NULL) {
        driver->before_send.call(driver->before_send.arg);
    }
}

/* Before a close: step while waits() is true, for 50 ms at most, and drop the events. */
void weft_driver_finish(struct weft_driver *driver, bool (*waits)(struct weft_driver *driver));

#endif
