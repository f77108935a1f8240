/* Proves that a fresh lab works: every host hears every other, and how long a small packet takes.
 *
 * Small UDP datagrams over the finished network, with its losses and queues; what is lost is sent
 * again. Holder only (it opens a socket on every host).
 */
#ifndef WEFT_LAB_VERIFY_H
#define WEFT_LAB_VERIFY_H

#include "lab/spec.h"

/* Errors:  WEFT_TIMEOUT  some pair never heard of each other; the text names the first.
 *          WEFT_IO       a socket could not be made. */
[[nodiscard]] weft_status weft_lab_verify(const struct weft_lab_spec *spec, uint64_t *base_rtt_ns_p,
                                          struct weft_error *error);

#endif
