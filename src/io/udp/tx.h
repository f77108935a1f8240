/* The sending half of weft_udp: it writes bursts to the socket. A burst has been sent or dropped
 * when the call returns. A drop is the same as a loss in the network, so no call fails. Internal to
 * src/io.
 */
#ifndef WEFT_IO_UDP_TX_H
#define WEFT_IO_UDP_TX_H

#include "io/driver_types.h"

enum { WEFT_TX_BATCH = 4 }; /* bursts for each system call */

struct mmsghdr;

struct weft_sender {
    int fd;
    int family;
    /* sendmmsg, unless a test replaces it. */
    int (*send)(int fd, struct mmsghdr *messages, unsigned int count, int flags);
    bool gso;         /* becomes false, permanently, when the kernel or the route refuses a burst */
    bool fragmenting; /* the socket's setting: DF clear */
    enum weft_ecn ecn; /* the socket's setting: the ECN mark of messages without one of their own */
    uint32_t unlike;   /* consecutive short datagrams that needed another mark */
    /* The last datagram that was too long for the route (EMSGSIZE). The owner reports it to the
     * endpoint and clears it; bytes 0 = none. */
    struct weft_addr too_big_addr;
    uint32_t too_big_bytes;
};

/* For a socket of weft_sock_open. */
void weft_sender_init(struct weft_sender *sender, int fd, int family, bool gso);

/* Send count <= WEFT_TX_BATCH bursts, in order. */
void weft_sender_send(struct weft_sender *sender, const struct weft_tx *bursts, uint32_t count,
                      struct weft_socket_counters *counters);

#endif
