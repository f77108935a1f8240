/* The table of each transport's functions. UDP's need no more than a cast: its functions are called
 * once a step, so the indirection costs nothing that could be measured. */
#include "io/driver.h"

#include "io/clock.h"
#include "io/tcp/tcp.h"

#include <stdlib.h>
#include <string.h>

struct weft_driver_ops {
    enum weft_driver_kind kind;
    uint16_t (*port)(const void *self);
    weft_status (*connect)(void *self, const char *host, uint16_t port, weft_peer *peer_p,
                           struct weft_error *error);
    void (*disconnect)(void *self, weft_peer peer);
    void (*refuse)(void *self, weft_peer peer);
    struct weft_msgr (*msgr)(void *self);
    uint32_t (*step)(void *self, uint64_t timeout_ns, weft_driver_handler *handler, void *arg);
    int (*pollable)(const void *self);
    bool (*rest)(void *self, uint64_t until_ns);
    void (*wake)(void *self);
    void (*flush)(void *self);
    void (*idle)(void *self);
    void (*close)(void *self);
    void (*counters)(void *self, struct weft_driver_counters *counters_p);
    bool (*busy)(void *self);
    enum weft_ep_hint (*hint)(void *self);
    void (*unreached)(void *self, char *text_p);
    uint64_t (*srtt_ns)(void *self, weft_peer peer);
    uint32_t (*grid)(void *self, weft_peer peer, uint16_t elem_bytes, uint32_t total);
};

struct weft_driver {
    const struct weft_driver_ops *ops;
    void *self;
};

/* ---- UDP ------------------------------------------------------------------------------------- */

static uint16_t udp_port(const void *self)
{
    return weft_udp_port(self);
}

static weft_status udp_connect(void *self, const char *host, uint16_t port, weft_peer *peer_p,
                               struct weft_error *error)
{
    return weft_udp_connect(self, host, port, peer_p, error);
}

static void udp_disconnect(void *self, weft_peer peer)
{
    bool entered = weft_udp_enter(self);
    weft_ep_close(weft_udp_ep(self), peer, weft_clock_now_ns());
    weft_udp_exit(self, entered);
}

static void udp_refuse(void *self, weft_peer peer)
{
    bool entered = weft_udp_enter(self);
    weft_ep_refuse(weft_udp_ep(self), peer, weft_clock_now_ns());
    weft_udp_exit(self, entered);
}

static struct weft_msgr udp_msgr(void *self)
{
    return weft_udp_msgr(self);
}

static uint32_t udp_step(void *self, uint64_t timeout_ns, weft_driver_handler *handler, void *arg)
{
    return weft_udp_step(self, timeout_ns, handler, arg);
}

static int udp_pollable(const void *self)
{
    return weft_udp_pollable(self);
}

static bool udp_rest(void *self, uint64_t until_ns)
{
    return weft_udp_rest(self, until_ns);
}

static void udp_wake(void *self)
{
    weft_udp_wake(self);
}

static void udp_flush(void *self)
{
    weft_udp_flush(self);
}

static void udp_idle(void *self)
{
    weft_udp_idle(self);
}

static void udp_close(void *self)
{
    weft_udp_close(self);
}

static void udp_counters(void *self, struct weft_driver_counters *counters_p)
{
    bool entered = weft_udp_enter(self);
    counters_p->socket = *weft_udp_counters(self);
    counters_p->ep = *weft_ep_counters(weft_udp_ep(self));
    weft_udp_exit(self, entered);
}

static bool udp_busy(void *self)
{
    bool entered = weft_udp_enter(self);
    bool busy = weft_ep_busy(weft_udp_ep(self));
    weft_udp_exit(self, entered);
    return busy;
}

static enum weft_ep_hint udp_hint(void *self)
{
    bool entered = weft_udp_enter(self);
    enum weft_ep_hint hint = weft_ep_hint(weft_udp_ep(self));
    weft_udp_exit(self, entered);
    return hint;
}

static void udp_unreached(void *self, char *text_p)
{
    weft_udp_unreached(self, text_p);
}

static uint64_t udp_srtt_ns(void *self, weft_peer peer)
{
    bool entered = weft_udp_enter(self);
    uint64_t srtt_ns = weft_ep_srtt_ns(weft_udp_ep(self), peer);
    weft_udp_exit(self, entered);
    return srtt_ns;
}

static uint32_t udp_grid(void *self, weft_peer peer, uint16_t elem_bytes, uint32_t total)
{
    bool entered = weft_udp_enter(self);
    uint32_t elems = weft_ep_grid(weft_udp_ep(self), peer, elem_bytes, total);
    weft_udp_exit(self, entered);
    return elems;
}

static const struct weft_driver_ops udp_ops = {
    .kind = WEFT_DRIVER_UDP,
    .port = udp_port,
    .connect = udp_connect,
    .disconnect = udp_disconnect,
    .refuse = udp_refuse,
    .msgr = udp_msgr,
    .step = udp_step,
    .pollable = udp_pollable,
    .rest = udp_rest,
    .wake = udp_wake,
    .flush = udp_flush,
    .idle = udp_idle,
    .close = udp_close,
    .counters = udp_counters,
    .busy = udp_busy,
    .hint = udp_hint,
    .unreached = udp_unreached,
    .srtt_ns = udp_srtt_ns,
    .grid = udp_grid,
};

/* ---- TCP ------------------------------------------------------------------------------------- */

static uint16_t tcp_port(const void *self)
{
    return weft_tcp_port(self);
}

static weft_status tcp_connect(void *self, const char *host, uint16_t port, weft_peer *peer_p,
                               struct weft_error *error)
{
    return weft_tcp_connect(self, host, port, peer_p, error);
}

static void tcp_disconnect(void *self, weft_peer peer)
{
    weft_tcp_disconnect(self, peer);
}

static void tcp_refuse(void *self, weft_peer peer)
{
    weft_tcp_refuse_peer(self, peer);
}

static struct weft_msgr tcp_msgr(void *self)
{
    return weft_tcp_msgr(self);
}

static uint32_t tcp_step(void *self, uint64_t timeout_ns, weft_driver_handler *handler, void *arg)
{
    return weft_tcp_step(self, timeout_ns, handler, arg);
}

static int tcp_pollable(const void *self)
{
    return weft_tcp_pollable(self);
}

static bool tcp_rest(void *self, uint64_t until_ns)
{
    return weft_tcp_rest(self, until_ns);
}

static void tcp_wake(void *self)
{
    weft_tcp_wake(self);
}

static void tcp_flush(void *self)
{
    weft_tcp_flush(self);
}

static void tcp_idle(void *self)
{
    weft_tcp_idle(self);
}

static void tcp_close(void *self)
{
    weft_tcp_close(self);
}

static void tcp_counters(void *self, struct weft_driver_counters *counters_p)
{
    weft_tcp_counters(self, counters_p);
}

static bool tcp_busy(void *self)
{
    return weft_tcp_busy(self);
}

static enum weft_ep_hint tcp_hint(void *self)
{
    return weft_tcp_hint(self);
}

static void tcp_unreached(void *self, char *text_p)
{
    weft_tcp_unreached(self, text_p);
}

static uint64_t tcp_srtt_ns(void *self, weft_peer peer)
{
    return weft_tcp_srtt_ns(self, peer);
}

static uint32_t tcp_grid(void *self, weft_peer peer, uint16_t elem_bytes, uint32_t total)
{
    (void)total;
    return weft_tcp_grid(self, peer, elem_bytes);
}

static const struct weft_driver_ops tcp_ops = {
    .kind = WEFT_DRIVER_TCP,
    .port = tcp_port,
    .connect = tcp_connect,
    .disconnect = tcp_disconnect,
    .refuse = tcp_refuse,
    .msgr = tcp_msgr,
    .step = tcp_step,
    .pollable = tcp_pollable,
    .rest = tcp_rest,
    .wake = tcp_wake,
    .flush = tcp_flush,
    .idle = tcp_idle,
    .close = tcp_close,
    .counters = tcp_counters,
    .busy = tcp_busy,
    .hint = tcp_hint,
    .unreached = tcp_unreached,
    .srtt_ns = tcp_srtt_ns,
    .grid = tcp_grid,
};

/* ---- either ---------------------------------------------------------------------------------- */

const char *weft_driver_kind_name(enum weft_driver_kind kind)
{
    return kind == WEFT_DRIVER_TCP ? "tcp" : "weft";
}

void weft_driver_config_default(struct weft_driver_config *config_p)
{
    *config_p = (struct weft_driver_config){.kind = WEFT_DRIVER_UDP};
    weft_udp_config_default(&config_p->udp);
}

static weft_status open_tcp(const struct weft_driver_config *config, struct weft_driver *driver,
                            struct weft_error *error)
{
    if (config->udp.loss.loss_ppm != 0) {
        return weft_fail(error, WEFT_UNSUPPORTED,
                         "loss cannot be injected into TCP: what arrives is what the kernel "
                         "has made whole");
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
    struct weft_tcp *self = NULL;
    weft_status status = weft_tcp_open(&tcp, &self, error);
    explicit_bzero(tcp.ep.psk, sizeof(tcp.ep.psk));
    *driver = (struct weft_driver){.ops = &tcp_ops, .self = self};
    return status;
}

static weft_status open_kind(const struct weft_driver_config *config, struct weft_driver *driver,
                             struct weft_error *error)
{
    if (config->kind == WEFT_DRIVER_TCP) {
        return open_tcp(config, driver, error);
    }
    struct weft_udp *udp = NULL;
    weft_status status = weft_udp_open(&config->udp, &udp, error);
    *driver = (struct weft_driver){.ops = &udp_ops, .self = udp};
    return status;
}

weft_status weft_driver_open(const struct weft_driver_config *config, struct weft_driver **driver_p,
                             struct weft_error *error)
{
    struct weft_driver *driver = calloc(1, sizeof(*driver));
    if (driver == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for a transport");
    }
    weft_status status = open_kind(config, driver, error);
    if (status != WEFT_OK) {
        free(driver);
        return status;
    }
    *driver_p = driver;
    return WEFT_OK;
}

enum weft_driver_kind weft_driver_kind(const struct weft_driver *driver)
{
    return driver->ops->kind;
}

uint16_t weft_driver_port(const struct weft_driver *driver)
{
    return driver->ops->port(driver->self);
}

weft_status weft_driver_connect(struct weft_driver *driver, const char *host, uint16_t port,
                                weft_peer *peer_p, struct weft_error *error)
{
    return driver->ops->connect(driver->self, host, port, peer_p, error);
}

void weft_driver_disconnect(struct weft_driver *driver, weft_peer peer)
{
    driver->ops->disconnect(driver->self, peer);
}

void weft_driver_refuse(struct weft_driver *driver, weft_peer peer)
{
    driver->ops->refuse(driver->self, peer);
}

struct weft_msgr weft_driver_msgr(struct weft_driver *driver)
{
    return driver->ops->msgr(driver->self);
}

uint32_t weft_driver_step(struct weft_driver *driver, uint64_t timeout_ns,
                          weft_driver_handler *handler, void *arg)
{
    return driver->ops->step(driver->self, timeout_ns, handler, arg);
}

int weft_driver_pollable(const struct weft_driver *driver)
{
    return driver->ops->pollable(driver->self);
}

bool weft_driver_rest(struct weft_driver *driver, uint64_t until_ns)
{
    return driver->ops->rest(driver->self, until_ns);
}

void weft_driver_wake(struct weft_driver *driver)
{
    driver->ops->wake(driver->self);
}

void weft_driver_flush(struct weft_driver *driver)
{
    driver->ops->flush(driver->self);
}

void weft_driver_idle(struct weft_driver *driver)
{
    driver->ops->idle(driver->self);
}

void weft_driver_close(struct weft_driver *driver)
{
    if (driver != NULL) {
        driver->ops->close(driver->self);
        free(driver);
    }
}

void weft_driver_counters(struct weft_driver *driver, struct weft_driver_counters *counters_p)
{
    driver->ops->counters(driver->self, counters_p);
}

bool weft_driver_busy(struct weft_driver *driver)
{
    return driver->ops->busy(driver->self);
}

enum weft_ep_hint weft_driver_hint(const struct weft_driver *driver)
{
    return driver->ops->hint(driver->self);
}

void weft_driver_unreached(const struct weft_driver *driver, char text_p[WEFT_UDP_UNREACHED_BYTES])
{
    driver->ops->unreached(driver->self, text_p);
}

uint64_t weft_driver_srtt_ns(const struct weft_driver *driver, weft_peer peer)
{
    return driver->ops->srtt_ns(driver->self, peer);
}

uint32_t weft_driver_grid(const struct weft_driver *driver, weft_peer peer, uint16_t elem_bytes,
                          uint32_t total)
{
    return driver->ops->grid(driver->self, peer, elem_bytes, total);
}

struct weft_udp *weft_driver_udp(struct weft_driver *driver)
{
    return driver->ops->kind == WEFT_DRIVER_UDP ? driver->self : NULL;
}
