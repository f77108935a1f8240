/* Status output of a job process: events on the channel to its parent or, without a channel, lines
 * on standard output and standard error. */
#ifndef WEFT_CLI_CHILD_H
#define WEFT_CLI_CHILD_H

#include "base/error.h"
#include "job/channel.h"

/* Return the exit status of a process that ends with `status`. On an error, first report its text:
 * as an event on the channel, or as "weft VERB: text" on standard error. An address that this
 * release does not support (WEFT_UNSUPPORTED) is an invalid command line, not a failed run. */
int weft_child_exit(struct weft_channel *channel, const char *verb, weft_status status,
                    const struct weft_error *error);

/* The "ready" event: the ports and the metrics address; "" = no metrics. */
cJSON *weft_child_ready(const uint16_t *ports, uint32_t count, const char *metrics);

/* Send the object, or print it as a line on standard output.   Owns: takes object. */
void weft_child_report(struct weft_channel *channel, cJSON *object);

#endif
