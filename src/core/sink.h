/* The arithmetic of the ADD sink, for every transport that implements core/msg.h, and for the plain
 * socket programs that benchmarks compare with these transports. */
#ifndef WEFT_CORE_SINK_H
#define WEFT_CORE_SINK_H

#include <stddef.h>
#include <stdint.h>

/* Add the floats (binary32, little-endian) at from to those at to. Any alignment; bytes after the
 * last whole float are not changed. Cost: O(bytes). */
void weft_sink_add(uint8_t *to, const uint8_t *from, size_t bytes);

#endif
