/* A batch of separate datagrams to any addresses, sent by few system calls: for packets outside of
 * connections. A datagram that the kernel refuses is dropped and counted, as if lost. Internal to
 * src/io.
 */
#ifndef WEFT_IO_UDP_DATAGRAMS_H
#define WEFT_IO_UDP_DATAGRAMS_H

#include "io/driver_types.h"

enum { WEFT_DATAGRAM_HEAD_BYTES = 32 };

struct weft_datagrams;

/* Owns:    borrows fd, a non-blocking socket.  Errors: WEFT_NOMEM. */
weft_status weft_datagrams_new(int fd, struct weft_datagrams **datagrams_p);
void weft_datagrams_free(struct weft_datagrams *datagrams);

/* Add a datagram of a head, which is copied, and a body; a full batch is sent first.
 *
 * Shape:   head (head_count <= WEFT_DATAGRAM_HEAD_BYTES,), body (body_count,).
 * Owns:    borrows body until the next flush. */
void weft_datagrams_add(struct weft_datagrams *datagrams, const struct weft_addr *to,
                        const void *head, uint32_t head_count, const void *body,
                        uint32_t body_count, struct weft_socket_counters *counters);

/* Send all. When the socket has no room for 10 ms, the rest is dropped. */
void weft_datagrams_flush(struct weft_datagrams *datagrams, struct weft_socket_counters *counters);

#endif
