/* Checking the configuration of an endpoint, so that the error names the field. Internal to src/io.
 *
 * The core refuses the same values (weft_ep_new), but returns only a status;
 * tests/unit/test_io_ep_config.c compares the two.
 */
#ifndef WEFT_IO_EP_CONFIG_H
#define WEFT_IO_EP_CONFIG_H

#include "base/error.h"
#include "io/driver_types.h"

/* The fields that a driver of this kind uses.
 * Errors:  WEFT_INVALID  error->text has the field's name, its value and its range. */
weft_status weft_ep_config_check(const struct weft_ep_config *config, enum weft_driver_kind kind,
                                 struct weft_error *error);

/* loopback_packet_bytes of a UDP configuration (io/udp/udp.h): 0, or what packet_bytes may be.
 * Errors:  as weft_ep_config_check. */
weft_status weft_ep_config_check_loopback(uint16_t packet_bytes, struct weft_error *error);

/* A row of the table of fields that are checked, for the test. */
struct weft_ep_config_field {
    const char *name;
    uint32_t drivers; /* bits 1 << enum weft_driver_kind: those that check it */
    bool has_least;   /* some value is too small */
    bool has_most;    /* some value of its type is too large */
    uint64_t least;
    uint64_t most;
};

/* False: the table has no row i. */
bool weft_ep_config_field(size_t i, struct weft_ep_config_field *field_p);

#endif
