/* The sending half of weft_udp: bursts into the socket. Whatever it is given it has sent or dropped
 * when it returns; a drop is what a network does, so nothing fails here. Internal to this folder.
 */
#ifndef WEFT_IO_UDP_TX_H
#define WEFT_IO_UDP_TX_H

#include "io/udp.h"

enum { WEFT_TX_BATCH = 4 }; /* bursts for each system call */

struct weft_sender {
    int fd;
    bool gso; /* turns false for good when the kernel or the route refuses a burst */
};

/* Send count <= WEFT_TX_BATCH bursts, in order. */
void weft_sender_send(struct weft_sender *sender, const struct weft_tx *bursts, uint32_t count,
                      struct weft_udp_counters *counters);

#endif
