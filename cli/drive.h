/* A worker's endpoint either turned by the training thread (io/driver.h), or by a thread of its own
 * (io/engine.h). The training loop sees one interface.
 */
#ifndef WEFT_CLI_DRIVE_H
#define WEFT_CLI_DRIVE_H

#include "cli/security.h"
#include "io/engine.h"

/* Polls the message interface until it has no event. */
typedef void weft_drive_handler(void *arg, uint64_t now_ns);

struct weft_drive {
    struct weft_driver *driver; /* one of the two */
    struct weft_engine *engine;
    struct weft_provider *provider; /* NULL in mode none */
};

/* Errors:  as weft_security_arm and weft_driver_open. */
weft_status weft_drive_open(const struct weft_driver_config *config,
                            const struct weft_security *security, bool engine,
                            struct weft_drive *drive_p, struct weft_io_error *error);

/* Errors:  as weft_driver_connect. */
weft_status weft_drive_connect(struct weft_drive *drive, const char *host, uint16_t port,
                               weft_peer *peer_p, struct weft_io_error *error);

struct weft_msgr weft_drive_msgr(struct weft_drive *drive);

/* Sleep until something happens, at most timeout_ns, then call handler. */
void weft_drive_step(struct weft_drive *drive, uint64_t timeout_ns, weft_drive_handler *handler,
                     void *arg);

void weft_drive_counters(struct weft_drive *drive, struct weft_driver_counters *counters_p);

/* Why connections do not come about, as far as the endpoint can tell. */
enum weft_ep_hint weft_drive_hint(struct weft_drive *drive);

/* As weft_udp_unreached: what the network says of connections that do not come about. */
void weft_drive_unreached(struct weft_drive *drive, char text_p[WEFT_UDP_UNREACHED_BYTES]);

/* A zeroed drive is fine. */
void weft_drive_close(struct weft_drive *drive);

#endif
