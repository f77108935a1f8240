/* Makes the network of a lab: namespaces, cables, addresses, queues, losses.
 *
 * Runs in the holder (lab/holder.h), whose namespaces are private, so there is nothing to undo:
 * when a step fails, the holder exits and the kernel removes everything made so far.
 *
 *     host h3                     leaf                                   host h5
 *     eth0 htb(up) --- cable ---> h3 | routes | h5 htb(down, buffer) ---> eth0, loss on arrival
 *
 * The bottleneck is the leaf's port towards the receiver: a token bucket with a drop-tail queue of
 * buffer_bytes. Random loss is applied after it, on arrival at a host, so lost packets have used
 * the link, as on a real one. Data and acknowledgements each pass one such point.
 */
#ifndef WEFT_LAB_BUILD_H
#define WEFT_LAB_BUILD_H

#include "lab/spec.h"

/* A file system private to the holder: netns/NODE are the namespaces. */
#define WEFT_LAB_PRIVATE "/run/weft"

/* Errors:  WEFT_UNSUPPORTED  a program or a feature of the kernel is missing.
 *          WEFT_IO           a step failed; the text quotes the message of the program. */
[[nodiscard]] weft_status weft_lab_build(const struct weft_lab_spec *spec,
                                         struct weft_error *error);

/* True if the token buckets of this machine (HTB, kernel-wide) have hysteresis: one timer per
 * burst instead of per frame (docs/LAB.md). Needed for spec->hysteresis before the network is
 * made; the burst of a bucket made without hysteresis doubles when it is turned on. If HTB is a
 * module that has not been used yet, a separate process loads it. Also false if that fails (no
 * root, no HTB); then making a lab fails with an error text.   Cost: a read; that process once
 * after a boot. */
bool weft_lab_hysteresis(void);

/* Move the calling process to the network of a node ("h3", "leaf0"): holder only. */
[[nodiscard]] weft_status weft_lab_go(const char *node, struct weft_error *error);

/* Change the rates of a host's links immediately. A link without a limit stays unlimited, and 0
 * is not allowed. Holder only. Queued packets stay queued. */
[[nodiscard]] weft_status weft_lab_reshape(const struct weft_lab_spec *spec, uint32_t host,
                                           const struct weft_lab_link *link,
                                           struct weft_error *error);

#endif
