#include "cli/drive.h"

#include "cli/stop.h"
#include "io/clock.h"

static weft_status open_armed(const struct weft_driver_config *config, bool engine,
                              struct weft_drive *drive_p, struct weft_io_error *error)
{
    if (!engine) {
        weft_status status = weft_driver_open(config, &drive_p->driver, error);
        weft_stop_wakes(status == WEFT_OK ? drive_p->driver : NULL);
        return status;
    }
    struct weft_engine_config with_thread;
    weft_engine_config_default(&with_thread);
    with_thread.driver = *config;
    weft_status status = weft_engine_start(&with_thread, &drive_p->engine, error);
    weft_security_disarm(&with_thread.driver.udp);
    return status;
}

weft_status weft_drive_open(const struct weft_driver_config *config,
                            const struct weft_security *security, bool engine,
                            struct weft_drive *drive_p, struct weft_io_error *error)
{
    struct weft_driver_config armed = *config;
    *drive_p = (struct weft_drive){0};
    weft_status status = weft_security_arm(security, &armed.udp, &drive_p->provider, error);
    if (status == WEFT_OK) {
        status = open_armed(&armed, engine, drive_p, error);
    }
    weft_security_disarm(&armed.udp);
    if (status != WEFT_OK) {
        weft_drive_close(drive_p);
    }
    return status;
}

weft_status weft_drive_connect(struct weft_drive *drive, const char *host, uint16_t port,
                               weft_peer *peer_p, struct weft_io_error *error)
{
    if (drive->engine != NULL) {
        return weft_engine_connect(drive->engine, host, port, peer_p, error);
    }
    return weft_driver_connect(drive->driver, host, port, peer_p, error);
}

struct weft_msgr weft_drive_msgr(struct weft_drive *drive)
{
    return drive->engine != NULL ? weft_engine_msgr(drive->engine)
                                 : weft_driver_msgr(drive->driver);
}

void weft_drive_step(struct weft_drive *drive, uint64_t timeout_ns, weft_drive_handler *handler,
                     void *arg)
{
    if (drive->engine == NULL) {
        (void)weft_driver_step(drive->driver, timeout_ns, handler, arg);
        return;
    }
    (void)weft_engine_wait(drive->engine, timeout_ns);
    handler(arg, weft_clock_now_ns());
}

void weft_drive_counters(struct weft_drive *drive, struct weft_driver_counters *counters_p)
{
    if (drive->engine != NULL) {
        weft_engine_counters(drive->engine, counters_p);
    } else {
        weft_driver_counters(drive->driver, counters_p);
    }
}

enum weft_ep_hint weft_drive_hint(struct weft_drive *drive)
{
    return drive->engine != NULL ? weft_engine_hint(drive->engine)
                                 : weft_driver_hint(drive->driver);
}

static void ask_unreached(struct weft_driver *driver, void *text)
{
    weft_driver_unreached(driver, text);
}

void weft_drive_unreached(struct weft_drive *drive, char text_p[WEFT_UDP_UNREACHED_BYTES])
{
    if (drive->engine != NULL) {
        weft_engine_call(drive->engine, ask_unreached, text_p);
    } else {
        weft_driver_unreached(drive->driver, text_p);
    }
}

void weft_drive_close(struct weft_drive *drive)
{
    weft_stop_wakes(NULL);
    weft_engine_stop(drive->engine);
    weft_driver_close(drive->driver);
    weft_provider_free(drive->provider);
    *drive = (struct weft_drive){0};
}
