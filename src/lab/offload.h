/* Turns off whatever lets an interface of the calling process's network carry more than one packet
 * at a time. But GRO stays on, for another of its effects: lab/build.c keeps it from joining anything.
 *
 * A virtual cable otherwise passes segments of up to 64 KB as one: a queue of 128 KB would hold two,
 * and one random loss would take 44 packets.
 */
#ifndef WEFT_LAB_OFFLOAD_H
#define WEFT_LAB_OFFLOAD_H

#include "lab/error.h"

/* Errors:  WEFT_IO  the kernel does not take it, in words. */
[[nodiscard]] weft_status weft_lab_offload_off(const char *interface, struct weft_lab_error *error);

#endif
