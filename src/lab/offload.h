/* Offloads: features with which an interface of the current network namespace passes more than one
 *           packet at a time.
 *
 * A virtual cable passes segments of up to 64 KB as one packet: a queue of 128 KB holds two of
 * them, and one random loss drops 44 packets. So all offloads are turned off, unless the lab is
 * configured with them. GRO is always on, for another effect; lab/build.c prevents it from joining
 * packets.
 */
#ifndef WEFT_LAB_OFFLOAD_H
#define WEFT_LAB_OFFLOAD_H

#include "base/error.h"

#include <stdbool.h>

/* keep_offloads: leave segmentation at the kernel's default, which is on, and set only GRO.
 *
 * Errors:  WEFT_IO  the kernel rejected the change; the text has the reason. */
[[nodiscard]] weft_status weft_lab_offload_set(const char *interface, bool keep_offloads,
                                               struct weft_error *error);

#endif
