/* Checking the configuration of an endpoint, so that the error names the field. Internal to src/io.
 *
 * The core refuses the same values (weft_ep_new), by its status alone;
 * tests/unit/test_io_ep_config.c compares the two.
 */
#ifndef WEFT_IO_EP_CONFIG_H
#define WEFT_IO_EP_CONFIG_H

#include "base/error.h"
#include "io/driver_types.h"

/* The fields that a driver of this kind uses.
 * Errors:  WEFT_INVALID  error->text has the field's name, its value and what it may be. */
weft_status weft_ep_config_check(const struct weft_ep_config *config, enum weft_driver_kind kind,
                                 struct weft_error *error);

#endif
