/* Links with ECN marks or burst losses: BPF programs on interfaces of the current network
 * namespace.
 *
 * A program stays attached for the lifetime of its interface; nothing is pinned, and no descriptor
 * needs to be kept open.
 */
#ifndef WEFT_LAB_LINK_H
#define WEFT_LAB_LINK_H

#include "base/error.h"

#include <stdint.h>

/* From now on packets of ECN-capable transports (ECT) that leave through `port` are marked CE if
 * its queue, the root qdisc, holds more than queue_bytes. Other packets are unchanged.
 *
 * Errors:  WEFT_UNSUPPORTED  this build has no BPF, the kernel is older than Linux 6.2 or has no
 *                            type information (BTF).
 *          WEFT_IO           not root; no such port; an error of libbpf. */
[[nodiscard]] weft_status weft_link_mark(const char *port, uint32_t queue_bytes,
                                         struct weft_error *error);

/* From now on packets that arrive at `port` are lost in bursts with a mean of burst_packets (at
 * least 1); loss_ppm of all packets are lost (below 10^6).
 *
 * Errors:  as weft_link_mark. */
[[nodiscard]] weft_status weft_link_lose(const char *port, uint32_t loss_ppm, double burst_packets,
                                         struct weft_error *error);

#endif
