#include "cli/drive.h"

#include "cli/stop.h"
#include "io/clock.h"

static weft_status open_armed(const struct weft_udp_config *config, bool engine,
                              struct weft_drive *drive_p, struct weft_io_error *error)
{
    if (!engine) {
        weft_status status = weft_udp_open(config, &drive_p->udp, error);
        weft_stop_wakes(status == WEFT_OK ? drive_p->udp : NULL);
        return status;
    }
    struct weft_engine_config with_thread;
    weft_engine_config_default(&with_thread);
    with_thread.udp = *config;
    weft_status status = weft_engine_start(&with_thread, &drive_p->engine, error);
    weft_security_disarm(&with_thread.udp);
    return status;
}

weft_status weft_drive_open(const struct weft_udp_config *config,
                            const struct weft_security *security, bool engine,
                            struct weft_drive *drive_p, struct weft_io_error *error)
{
    struct weft_udp_config armed = *config;
    *drive_p = (struct weft_drive){0};
    weft_status status = weft_security_arm(security, &armed, &drive_p->provider, error);
    if (status == WEFT_OK) {
        status = open_armed(&armed, engine, drive_p, error);
    }
    weft_security_disarm(&armed);
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
    return weft_udp_connect(drive->udp, host, port, peer_p, error);
}

struct weft_msgr weft_drive_msgr(struct weft_drive *drive)
{
    return drive->engine != NULL ? weft_engine_msgr(drive->engine) : weft_udp_msgr(drive->udp);
}

void weft_drive_step(struct weft_drive *drive, uint64_t timeout_ns, weft_drive_handler *handler,
                     void *arg)
{
    if (drive->engine == NULL) {
        (void)weft_udp_step(drive->udp, timeout_ns, handler, arg);
        return;
    }
    (void)weft_engine_wait(drive->engine, timeout_ns);
    handler(arg, weft_clock_now_ns());
}

void weft_drive_counters(struct weft_drive *drive, struct weft_udp_counters *udp_p,
                         struct weft_ep_counters *ep_p)
{
    if (drive->engine != NULL) {
        weft_engine_counters(drive->engine, udp_p, ep_p);
    } else {
        *udp_p = *weft_udp_counters(drive->udp);
        *ep_p = *weft_ep_counters(weft_udp_ep(drive->udp));
    }
}

enum weft_ep_hint weft_drive_hint(struct weft_drive *drive)
{
    return drive->engine != NULL ? weft_engine_hint(drive->engine)
                                 : weft_ep_hint(weft_udp_ep(drive->udp));
}

static void ask_unreached(struct weft_udp *udp, void *text)
{
    weft_udp_unreached(udp, text);
}

void weft_drive_unreached(struct weft_drive *drive, char text_p[WEFT_UDP_UNREACHED_BYTES])
{
    if (drive->engine != NULL) {
        weft_engine_call(drive->engine, ask_unreached, text_p);
    } else {
        weft_udp_unreached(drive->udp, text_p);
    }
}

void weft_drive_close(struct weft_drive *drive)
{
    weft_stop_wakes(NULL);
    weft_engine_stop(drive->engine);
    weft_udp_close(drive->udp);
    weft_provider_free(drive->provider);
    *drive = (struct weft_drive){0};
}
