/* What the network reported about a connection that is not established: nothing listens at the
 * port, or the host cannot be reached. Internal to src/io.
 */
#ifndef WEFT_IO_UNREACHED_H
#define WEFT_IO_UNREACHED_H

#include "core/endpoint.h"

struct weft_unreached {
    int number;            /* errno of the last report; 0 = none */
    struct weft_addr addr; /* the address it was about */
};

/* The last report as a sentence with the next action; "" if there is none. */
void weft_unreached_text(const struct weft_unreached *unreached, char *text_p, size_t bytes);

#endif
