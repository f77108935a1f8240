/* The ADD sink's arithmetic, for every transport that implements core/msg.h, and for what is measured
 * against them. */
#ifndef WEFT_CORE_SINK_H
#define WEFT_CORE_SINK_H

#include <stddef.h>
#include <stdint.h>

/* Add the floats (binary32, little-endian) at from to those at to. Any alignment; bytes beyond the
 * last whole float are left alone.
 * Cost:    about 35 ns per KB in cache. */
void weft_sink_add(uint8_t *to, const uint8_t *from, size_t bytes);

#endif
