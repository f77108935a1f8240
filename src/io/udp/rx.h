/* The receiving half of weft_udp: it reads batches of buffers from the socket, with what the kernel
 * reports about each. Internal to src/io.
 */
#ifndef WEFT_IO_UDP_RX_H
#define WEFT_IO_UDP_RX_H

#include "io/clock.h"
#include "io/driver_types.h"

/* A slot must hold the longest buffer that GRO can merge, or the buffer is truncated. Eight long
 * buffers fit into a second-level cache, so the layers above read what the kernel has just copied
 * there. Of Ethernet-sized packets more fit, and a batch is larger: a late receiver has a hundred
 * waiting, and acknowledges them together. */
enum { WEFT_RX_SLOTS = 32, WEFT_RX_SLOTS_LONG = 8, WEFT_RX_SLOT_BYTES = 65536 };

/* One buffer of a batch: one datagram, or several of the same sender that GRO merged. */
struct weft_rx_buffer {
    struct weft_addr from;
    enum weft_ecn ecn; /* of all its datagrams */
    uint8_t *bytes;
    uint32_t count;
    uint32_t segment_bytes; /* length of each datagram but the last; >= 1 unless count is 0 */
    uint64_t at_ns;
};

struct weft_rx;

/* Errors:  WEFT_NOMEM. */
weft_status weft_rx_new(int fd, struct weft_rx **rx_p);
void weft_rx_free(struct weft_rx *rx);

/* Receive what has arrived; `sleep`: on a blocking socket, sleep until a datagram arrives or the
 * socket's timeout expires. Returns the number of messages received from the system call; truncated
 * ones are counted, and left out of buffers.
 *
 * Owns:    buffers_p points into rx until the next batch. */
uint32_t weft_rx_batch(struct weft_rx *rx, bool sleep, struct weft_socket_counters *counters,
                       uint64_t *now_ns_p, const struct weft_rx_buffer **buffers_p,
                       uint32_t *count_p);

/* More may be waiting: the last batch was full. */
bool weft_rx_more(const struct weft_rx *rx);

/* A signal ended the last batch before a datagram arrived. */
bool weft_rx_interrupted(const struct weft_rx *rx);

#endif
