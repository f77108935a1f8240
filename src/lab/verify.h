/* Verifies that a new lab works: every host receives from every other; and measures the round-trip
 * time of a small packet.
 *
 * Sends small UDP datagrams over the finished network, with its losses and queues; lost ones are
 * resent. Holder only (it opens a socket on every host).
 */
#ifndef WEFT_LAB_VERIFY_H
#define WEFT_LAB_VERIFY_H

#include "lab/spec.h"

/* Errors:  WEFT_TIMEOUT  no datagram arrived between some pair; the text names the first one.
 *          WEFT_IO       a socket could not be created. */
[[nodiscard]] weft_status weft_lab_verify(const struct weft_lab_spec *spec, uint64_t *base_rtt_ns_p,
                                          struct weft_error *error);

#endif
