/* The kernel's count of all bytes that a network interface has sent, for all programs.
 *
 * It is read from /proc/thread-self/net/dev, not from /sys: in a network namespace /sys may still
 * show the interfaces of another one. Nor is it read with RTM_GETSTATS: that waits for the kernel's
 * lock of network configuration, which programs in any network namespace hold for milliseconds when
 * they create or remove interfaces.
 *
 * Internal to src/io. Thread: all functions are the socket's owner's.
 * Source: proc(5), /proc/net/dev; seq_file in the kernel's documentation. */
#ifndef WEFT_IO_UDP_LINK_COUNTER_H
#define WEFT_IO_UDP_LINK_COUNTER_H

#include "core/endpoint.h"

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

struct weft_link_counter {
    int fd;                 /* /proc/thread-self/net/dev; -1 = none */
    uint32_t pause;         /* calls without a look-up after the next failure */
    uint32_t left;          /* calls without a look-up that are still to come */
    char name[IF_NAMESIZE]; /* of the interface */
    size_t text_bytes;      /* of /proc/net/dev, up to its count, the last time */
};

void weft_link_counter_init(struct weft_link_counter *counter);
void weft_link_counter_close(struct weft_link_counter *counter);

/* Total of bytes that the interface towards `to` has sent; 0 = not known here. The interface is
 * looked up at the first call, and kept: packets to other addresses may use another one. If the
 * interface is gone or has another name, it is looked up again, ever more rarely. */
uint64_t weft_link_counter_sent(struct weft_link_counter *counter, const struct weft_addr *to);

/* The sent bytes of this interface in a text like /proc/net/dev, and the bytes of the text up to
 * there; 0 = the text has no such line, or ends within it. */
uint64_t weft_link_counter_parse(const char *text, const char *name, size_t *bytes_p);

#endif
