/* Open the UDP or the TCP driver, and call it through its function table. The indirect call has no
 * measurable cost. */
#include "io/driver.h"

#include "io/driver_base.h"
#include "io/sock_addr.h"
#include "io/tcp/tcp.h"

#include <string.h>

const char *weft_driver_kind_name(enum weft_driver_kind kind)
{
    return kind == WEFT_DRIVER_TCP ? "tcp" : "weft";
}

void weft_driver_config_default(struct weft_driver_config *config_p)
{
    *config_p = (struct weft_driver_config){.kind = WEFT_DRIVER_UDP};
    weft_udp_config_default(&config_p->udp);
}

static weft_status open_tcp(const struct weft_driver_config *config, struct weft_driver **driver_p,
                            struct weft_error *error)
{
    if (config->udp.loss.loss_ppm != 0) {
        return weft_fail(error, WEFT_UNSUPPORTED,
                         "loss cannot be injected over TCP: the kernel retransmits what is "
                         "lost; use UDP for injected loss");
    }
    struct weft_tcp_config tcp = {
        .before_send = config->udp.before_send,
        .host = config->udp.host,
        .port = config->udp.port,
        .busy_poll_us = config->udp.busy_poll_us,
        .insecure_network = config->udp.insecure_network,
        .cc = config->tcp_cc,
        .rto_min_ns = config->tcp_rto_min_ns,
        .ep = config->udp.ep,
    };
    weft_status status = weft_tcp_open(&tcp, driver_p, error);
    explicit_bzero(tcp.ep.psk, sizeof(tcp.ep.psk));
    return status;
}

weft_status weft_driver_open(const struct weft_driver_config *config, struct weft_driver **driver_p,
                             struct weft_error *error)
{
    return config->kind == WEFT_DRIVER_TCP ? open_tcp(config, driver_p, error)
                                           : weft_udp_open(&config->udp, driver_p, error);
}

/* ---- common to all drivers ------------------------------------------------------------------- */

enum weft_driver_kind weft_driver_kind(const struct weft_driver *driver)
{
    return driver->ops->kind;
}

uint16_t weft_driver_port(const struct weft_driver *driver)
{
    return driver->port;
}

struct weft_msgr weft_driver_msgr(struct weft_driver *driver)
{
    return driver->msgr;
}

int weft_driver_pollable(const struct weft_driver *driver)
{
    return driver->poller.epoll_fd;
}

void weft_driver_unreached(const struct weft_driver *driver, char text_p[WEFT_UNREACHED_BYTES])
{
    weft_unreached_text(&driver->unreached, text_p, WEFT_UNREACHED_BYTES);
}

weft_status weft_driver_connect(struct weft_driver *driver, const char *host, uint16_t port,
                                weft_peer *peer_p, struct weft_error *error)
{
    struct weft_addr addr;
    weft_status status =
        weft_sock_addr_target(host, port, driver->loopback_only, driver->family, &addr, error);
    if (status != WEFT_OK) {
        return status;
    }
    status = driver->ops->connect(driver, &addr, peer_p);
    if (status != WEFT_OK) {
        return weft_fail(error, status, "connect to %s port %u: %s", host, (unsigned)port,
                         weft_status_text(status));
    }
    return WEFT_OK;
}

/* ---- operations of a driver ------------------------------------------------------------------ */

void weft_driver_disconnect(struct weft_driver *driver, weft_peer peer)
{
    driver->ops->disconnect(driver, peer, false);
}

void weft_driver_refuse(struct weft_driver *driver, weft_peer peer)
{
    driver->ops->disconnect(driver, peer, true);
}

uint32_t weft_driver_step(struct weft_driver *driver, uint64_t timeout_ns,
                          weft_driver_handler *handler, void *arg)
{
    return driver->ops->step(driver, timeout_ns, handler, arg);
}

bool weft_driver_rest(struct weft_driver *driver, uint64_t until_ns)
{
    return driver->ops->rest(driver, until_ns);
}

void weft_driver_wake(struct weft_driver *driver)
{
    driver->ops->wake(driver);
}

void weft_driver_flush(struct weft_driver *driver)
{
    driver->ops->flush(driver);
}

void weft_driver_idle(struct weft_driver *driver)
{
    driver->ops->idle(driver);
}

void weft_driver_acknowledge(struct weft_driver *driver)
{
    if (driver->ops->acknowledge != NULL) {
        driver->ops->acknowledge(driver);
    }
}

void weft_driver_close(struct weft_driver *driver)
{
    if (driver != NULL) {
        driver->ops->close(driver);
    }
}

void weft_driver_counters(struct weft_driver *driver, struct weft_driver_counters *counters_p)
{
    driver->ops->counters(driver, counters_p);
}

bool weft_driver_busy(struct weft_driver *driver)
{
    return driver->ops->busy(driver);
}

enum weft_ep_hint weft_driver_hint(struct weft_driver *driver)
{
    return driver->ops->hint(driver);
}

uint64_t weft_driver_srtt_ns(struct weft_driver *driver, weft_peer peer)
{
    return driver->ops->srtt_ns(driver, peer);
}

uint32_t weft_driver_grid(struct weft_driver *driver, weft_peer peer, uint16_t elem_bytes,
                          uint32_t total)
{
    return driver->ops->grid(driver, peer, elem_bytes, total);
}
