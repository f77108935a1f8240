#include "node/endpoint.h"

#include "io/clock.h"

static weft_status open_armed(const struct weft_driver_config *config, bool engine,
                              struct weft_endpoint *endpoint_p, struct weft_io_error *error)
{
    if (!engine) {
        return weft_driver_open(config, &endpoint_p->driver, error);
    }
    struct weft_engine_config with_thread;
    weft_engine_config_default(&with_thread);
    with_thread.driver = *config;
    weft_status status = weft_engine_start(&with_thread, &endpoint_p->engine, error);
    weft_security_disarm(&with_thread.driver.udp);
    return status;
}

weft_status weft_endpoint_open(const struct weft_driver_config *config,
                            const struct weft_security *security, bool engine,
                            struct weft_endpoint *endpoint_p, struct weft_io_error *error)
{
    struct weft_driver_config armed = *config;
    *endpoint_p = (struct weft_endpoint){0};
    weft_status status = weft_security_arm(security, &armed.udp, &endpoint_p->provider, error);
    if (status == WEFT_OK) {
        status = open_armed(&armed, engine, endpoint_p, error);
    }
    weft_security_disarm(&armed.udp);
    if (status != WEFT_OK) {
        weft_endpoint_close(endpoint_p);
    }
    return status;
}

weft_status weft_endpoint_connect(struct weft_endpoint *endpoint, const char *host, uint16_t port,
                               weft_peer *peer_p, struct weft_io_error *error)
{
    if (endpoint->engine != NULL) {
        return weft_engine_connect(endpoint->engine, host, port, peer_p, error);
    }
    return weft_driver_connect(endpoint->driver, host, port, peer_p, error);
}

struct weft_msgr weft_endpoint_msgr(struct weft_endpoint *endpoint)
{
    return endpoint->engine != NULL ? weft_engine_msgr(endpoint->engine)
                                 : weft_driver_msgr(endpoint->driver);
}

void weft_endpoint_step(struct weft_endpoint *endpoint, uint64_t timeout_ns, weft_endpoint_handler *handler,
                     void *arg)
{
    if (endpoint->engine == NULL) {
        (void)weft_driver_step(endpoint->driver, timeout_ns, handler, arg);
        return;
    }
    (void)weft_engine_wait(endpoint->engine, timeout_ns);
    handler(arg, weft_clock_now_ns());
}

void weft_endpoint_counters(struct weft_endpoint *endpoint, struct weft_driver_counters *counters_p)
{
    if (endpoint->engine != NULL) {
        weft_engine_counters(endpoint->engine, counters_p);
    } else {
        weft_driver_counters(endpoint->driver, counters_p);
    }
}

enum weft_ep_hint weft_endpoint_hint(struct weft_endpoint *endpoint)
{
    return endpoint->engine != NULL ? weft_engine_hint(endpoint->engine)
                                 : weft_driver_hint(endpoint->driver);
}

static void ask_unreached(struct weft_driver *driver, void *text)
{
    weft_driver_unreached(driver, text);
}

void weft_endpoint_unreached(struct weft_endpoint *endpoint, char text_p[WEFT_UDP_UNREACHED_BYTES])
{
    if (endpoint->engine != NULL) {
        weft_engine_call(endpoint->engine, ask_unreached, text_p);
    } else {
        weft_driver_unreached(endpoint->driver, text_p);
    }
}

void weft_endpoint_close(struct weft_endpoint *endpoint)
{
    weft_engine_stop(endpoint->engine);
    weft_driver_close(endpoint->driver);
    weft_provider_free(endpoint->provider);
    *endpoint = (struct weft_endpoint){0};
}
