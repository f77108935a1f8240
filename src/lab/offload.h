/* What lets an interface of the calling process's network carry more than one packet at a time.
 *
 * A virtual cable passes segments of up to 64 KB as one: a queue of 128 KB holds two, and one random
 * loss takes 44 packets. So all of it is turned off, unless the lab is to have it. GRO is on either way,
 * for another of its effects; lab/build.c keeps it from joining anything where it shall not.
 */
#ifndef WEFT_LAB_OFFLOAD_H
#define WEFT_LAB_OFFLOAD_H

#include "base/error.h"

#include <stdbool.h>

/* keep: leave segmentation as the kernel has it, which is on.
 *
 * Errors:  WEFT_IO  the kernel does not take it, in words. */
[[nodiscard]] weft_status weft_lab_offload_set(const char *interface, bool keep,
                                               struct weft_error *error);

#endif
