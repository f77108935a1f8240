#include "node/endpoint.h"

#include "io/clock.h"

void weft_endpoint_config_default(struct weft_endpoint_config *config_p)
{
    *config_p = (struct weft_endpoint_config){.thread = false};
    weft_driver_config_default(&config_p->driver);
}

static weft_status open_armed(const struct weft_endpoint_config *config,
                              const struct weft_driver_config *armed,
                              struct weft_endpoint *endpoint_p, struct weft_error *error)
{
    if (!config->thread) {
        return weft_driver_open(armed, &endpoint_p->driver, error);
    }
    struct weft_engine_config engine;
    weft_engine_config_default(&engine);
    engine.driver = *armed;
    while (engine.events_max < config->events_max) {
        engine.events_max *= 2;
    }
    weft_status status = weft_engine_start(&engine, &endpoint_p->engine, error);
    weft_security_disarm(&engine.driver.udp);
    return status;
}

weft_status weft_endpoint_open(const struct weft_endpoint_config *config,
                               struct weft_endpoint *endpoint_p, struct weft_error *error)
{
    struct weft_driver_config armed = config->driver;
    *endpoint_p = (struct weft_endpoint){0};
    weft_status status =
        weft_security_arm(config->security, &armed.udp, &endpoint_p->provider, error);
    if (status == WEFT_OK) {
        status = open_armed(config, &armed, endpoint_p, error);
    }
    weft_security_disarm(&armed.udp);
    if (status != WEFT_OK) {
        weft_endpoint_close(endpoint_p);
        return status;
    }
    endpoint_p->msgr = endpoint_p->engine != NULL ? weft_engine_msgr(endpoint_p->engine)
                                                  : weft_driver_msgr(endpoint_p->driver);
    return WEFT_OK;
}

uint16_t weft_endpoint_port(const struct weft_endpoint *endpoint)
{
    return endpoint->engine != NULL ? weft_engine_port(endpoint->engine)
                                    : weft_driver_port(endpoint->driver);
}

weft_status weft_endpoint_connect(struct weft_endpoint *endpoint, const char *host, uint16_t port,
                                  weft_peer *peer_p, struct weft_error *error)
{
    return endpoint->engine != NULL
               ? weft_engine_connect(endpoint->engine, host, port, peer_p, error)
               : weft_driver_connect(endpoint->driver, host, port, peer_p, error);
}

void weft_endpoint_step(struct weft_endpoint *endpoint, uint64_t timeout_ns,
                        weft_driver_handler *handler, void *arg)
{
    if (endpoint->engine == NULL) {
        (void)weft_driver_step(endpoint->driver, timeout_ns, handler, arg);
        return;
    }
    (void)weft_engine_wait(endpoint->engine, timeout_ns);
    handler(arg, weft_clock_now_ns());
}

void weft_endpoint_flush(struct weft_endpoint *endpoint)
{
    if (endpoint->driver != NULL) {
        weft_driver_flush(endpoint->driver);
    }
}

void weft_endpoint_idle(struct weft_endpoint *endpoint)
{
    if (endpoint->driver != NULL) {
        weft_driver_idle(endpoint->driver);
    }
}

void weft_endpoint_acknowledge(struct weft_endpoint *endpoint)
{
    if (endpoint->driver != NULL) {
        weft_driver_acknowledge(endpoint->driver);
    }
}

void weft_endpoint_wake(struct weft_endpoint *endpoint)
{
    if (endpoint->driver != NULL) {
        weft_driver_wake(endpoint->driver);
    }
}

/* ---- on the thread that owns the driver ------------------------------------------------------ */

void weft_endpoint_call(struct weft_endpoint *endpoint, weft_engine_fn *call, void *arg)
{
    if (endpoint->engine != NULL) {
        weft_engine_call(endpoint->engine, call, arg);
    } else {
        call(endpoint->driver, arg);
    }
}

static void close_peer(struct weft_driver *driver, void *arg)
{
    weft_driver_disconnect(driver, *(const weft_peer *)arg);
}

void weft_endpoint_disconnect(struct weft_endpoint *endpoint, weft_peer peer)
{
    weft_endpoint_call(endpoint, close_peer, &peer);
}

static void read_counters(struct weft_driver *driver, void *arg)
{
    weft_driver_counters(driver, arg);
}

void weft_endpoint_counters(struct weft_endpoint *endpoint, struct weft_driver_counters *counters_p)
{
    weft_endpoint_call(endpoint, read_counters, counters_p);
}

struct stats {
    struct weft_driver_counters *counters;
    struct weft_ep_gauges *gauges;
    bool has_gauges;
};

static void read_stats(struct weft_driver *driver, void *arg)
{
    struct stats *stats = arg;
    struct weft_udp *udp = weft_driver_udp(driver);
    bool entered = udp != NULL && weft_udp_enter(udp);
    weft_driver_counters(driver, stats->counters);
    stats->has_gauges = udp != NULL;
    if (udp != NULL) {
        weft_ep_gauges(weft_udp_ep(udp), stats->gauges);
        weft_udp_exit(udp, entered);
    }
}

bool weft_endpoint_stats(struct weft_endpoint *endpoint, struct weft_driver_counters *counters_p,
                         struct weft_ep_gauges *gauges_p)
{
    struct stats stats = {.counters = counters_p, .gauges = gauges_p};
    weft_endpoint_call(endpoint, read_stats, &stats);
    return stats.has_gauges;
}

static void read_hint(struct weft_driver *driver, void *arg)
{
    *(enum weft_ep_hint *)arg = weft_driver_hint(driver);
}

enum weft_ep_hint weft_endpoint_hint(struct weft_endpoint *endpoint)
{
    enum weft_ep_hint hint;
    weft_endpoint_call(endpoint, read_hint, &hint);
    return hint;
}

static void read_unreached(struct weft_driver *driver, void *text)
{
    weft_driver_unreached(driver, text);
}

void weft_endpoint_unreached(struct weft_endpoint *endpoint, char text_p[WEFT_UNREACHED_BYTES])
{
    weft_endpoint_call(endpoint, read_unreached, text_p);
}

void weft_endpoint_close(struct weft_endpoint *endpoint)
{
    weft_engine_stop(endpoint->engine);
    weft_driver_close(endpoint->driver);
    weft_provider_free(endpoint->provider);
    *endpoint = (struct weft_endpoint){0};
}
