/* Links that mark or lose in bursts: BPF programs on interfaces of the network the process is in.
 *
 * A program is attached for the life of its interface and goes with it; nothing is pinned, and no
 * descriptor needs to be kept.
 */
#ifndef WEFT_LAB_LINK_H
#define WEFT_LAB_LINK_H

#include "base/error.h"

#include <stdint.h>

/* From now on packets of ECN-capable transports (ECT) that leave through `port` are marked CE when its
 * queue, the root qdisc, holds more than queue_bytes. Others pass as they are.
 *
 * Errors:  WEFT_UNSUPPORTED  this build has no BPF, the kernel is older than Linux 6.2 or came without
 *                            its types (BTF).
 *          WEFT_IO           not root; no such port; what libbpf said. */
[[nodiscard]] weft_status weft_link_mark(const char *port, uint32_t queue_bytes,
                                         struct weft_error *error);

/* From now on packets that arrive at `port` are lost in bursts of burst_packets in the mean (at least
 * 1), loss_ppm of all packets (below 10^6).
 *
 * Errors:  as weft_link_mark. */
[[nodiscard]] weft_status weft_link_lose(const char *port, uint32_t loss_ppm, double burst_packets,
                                         struct weft_error *error);

#endif
