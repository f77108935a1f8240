/* Rule 7: a chunk of a dense tensor that was missing m times in a row becomes critical in the next
 * message, so that no slice of the tensor stays stale for long.
 *
 * The sender has one object per tensor and receiver. Its only input is the masks of SENT events.
 *
 * Source: docs/PROTOCOL.md section 6, rule 7.
 */
#ifndef WEFT_CORE_MISSES_H
#define WEFT_CORE_MISSES_H

#include "base/status.h"

#include <stdint.h>

struct weft_misses {
    uint32_t chunks_max;
    uint32_t chunks; /* chunks of the last message; another number resets all counts */
    uint8_t limit;   /* m */
    uint8_t *counts; /* consecutive times that each chunk was missing */
    uint64_t *mask;  /* bit = the count of this chunk has reached the limit */
};

/* limit >= 1; 2 is the protocol's default. Owns: memory until weft_misses_fini. WEFT_NOMEM. */
weft_status weft_misses_init(struct weft_misses *misses, uint32_t chunks_max, uint8_t limit);
void weft_misses_fini(struct weft_misses *misses);

/* Record the mask of a SENT event (COMPLETE or SHORT) of `chunks` chunks, <= chunks_max. */
void weft_misses_note(struct weft_misses *misses, const uint64_t *mask, uint32_t chunks);

/* For weft_msg_send.critical_mask of the next message of this tensor; NULL = none.
 * Owns: borrowed until the next call on misses. */
const uint64_t *weft_misses_critical(const struct weft_misses *misses, uint32_t chunks);

#endif
