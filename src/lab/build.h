/* Makes the network of a lab: namespaces, cables, addresses, queues, losses.
 *
 * Runs in the holder (lab/holder.h), whose namespaces are private, so there is nothing to undo: when
 * a step fails, the holder ends and everything made so far goes with it.
 *
 *     host h3                     leaf                                   host h5
 *     eth0 htb(up) --- cable ---> h3 | routes | h5 htb(down, buffer) ---> eth0, loss on arrival
 *
 * The bottleneck is the leaf's port towards the receiver: a token bucket with a queue of
 * buffer_bytes that drops what does not fit. Random loss strikes behind it, on arrival at a host, so
 * lost packets have used the link, as on a real one; data and acknowledgements each pass one such
 * place.
 */
#ifndef WEFT_LAB_BUILD_H
#define WEFT_LAB_BUILD_H

#include "lab/spec.h"

/* A folder of the holder's own, empty file system: netns/NODE are the namespaces. */
#define WEFT_LAB_PRIVATE "/run/weft"

/* Errors:  WEFT_UNSUPPORTED  a program or a feature of the kernel is missing.
 *          WEFT_IO           a step was refused; the text quotes who refused it. */
[[nodiscard]] weft_status weft_lab_build(const struct weft_lab_spec *spec,
                                         struct weft_error *error);

/* Whether the buckets of this machine (HTB, of the whole kernel) have hysteresis: a timer for a burst
 * and not for each frame (docs/LAB.md). For spec->hysteresis, before the network is made; what a bucket
 * made without passes at once doubles when it is turned on. Where HTB is a module that nobody has used
 * yet, it is loaded for that, by a process of its own; false also where that is refused (no root, no
 * HTB), and then a lab is refused in words.   Cost: a read; that process once after a boot. */
bool weft_lab_hysteresis(void);

/* Move the calling process into the network of a node ("h3", "leaf0"): holder only. */
[[nodiscard]] weft_status weft_lab_go(const char *node, struct weft_error *error);

/* Give the links of a host other rates, now; links that have no limit get none here, nor is 0
 * allowed. Holder only. Packets that are queued stay queued. */
[[nodiscard]] weft_status weft_lab_reshape(const struct weft_lab_spec *spec, uint32_t host,
                                           const struct weft_lab_link *link,
                                           struct weft_error *error);

#endif
