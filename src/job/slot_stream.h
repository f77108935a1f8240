/* One output of a slot's process on its way to the supervisor's: line by line, with the process's
 * name. Internal to the supervisor. */
#ifndef WEFT_JOB_SLOT_STREAM_H
#define WEFT_JOB_SLOT_STREAM_H

#include "job/supervisor.h"

/* Forward the result of one read, so that a process with endless output does not starve the
 * others; at its end the stream is closed. Returns the bytes. */
size_t weft_slot_stream_forward(const struct weft_slot *slot, struct weft_slot_stream *stream);

/* Forward the bytes in the pipe now, without those added meanwhile. */
void weft_slot_stream_drain(const struct weft_slot *slot, struct weft_slot_stream *stream);

/* An unfinished line is printed, too. */
void weft_slot_stream_close(const struct weft_slot *slot, struct weft_slot_stream *stream);

#endif
