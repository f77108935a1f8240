/* What a process of a job says: to the parent that started it, over its channel, or to a person where
 * it has none. */
#ifndef WEFT_CLI_CHILD_H
#define WEFT_CLI_CHILD_H

#include "base/error.h"
#include "job/channel.h"

/* The exit status of a process that ends so. With an error the text is said first: as an event of the
 * channel, or as "weft VERB: text" on standard error. An address that this release refuses
 * (WEFT_UNSUPPORTED) is a wrong command line, not a failed run. */
int weft_child_exit(struct weft_channel *channel, const char *verb, weft_status status,
                    const struct weft_error *error);

/* "ready": the ports, and where the metrics are; "" = nowhere. */
cJSON *weft_child_ready(const uint16_t *ports, uint32_t count, const char *metrics);

/* Send the object, or print it as a line on standard output.   Owns: takes object. */
void weft_child_say(struct weft_channel *channel, cJSON *object);

#endif
