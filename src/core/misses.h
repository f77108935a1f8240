/* Rule 7: a chunk of a dense tensor that was missing m times running becomes critical the next
 * time, so that bad luck never holds one slice back for long.
 *
 * One of these per tensor and receiver, at the sender. Pure bookkeeping on the masks of SENT.
 *
 * Source: docs/PROTOCOL.md section 6, rule 7.
 */
#ifndef WEFT_CORE_MISSES_H
#define WEFT_CORE_MISSES_H

#include "base/status.h"

#include <stdint.h>

struct weft_misses {
    uint32_t chunks_max;
    uint32_t chunks;    /* of the last message; a new grid begins anew */
    uint8_t limit;      /* m */
    uint8_t *counts;    /* times that each chunk was missing, running */
    uint64_t *mask;     /* counts that reached the limit */
};

/* limit >= 1; 2 is the protocol's default. Owns: memory until weft_misses_fini. WEFT_NOMEM. */
weft_status weft_misses_init(struct weft_misses *misses, uint32_t chunks_max, uint8_t limit);
void weft_misses_fini(struct weft_misses *misses);

/* Take in the mask of a SENT event (COMPLETE or SHORT) of `chunks` chunks, <= chunks_max. */
void weft_misses_note(struct weft_misses *misses, const uint64_t *mask, uint32_t chunks);

/* For weft_msg_send.critical_mask of the next message of this tensor; NULL = no chunk.
 * Owns: borrowed until the next call on misses. */
const uint64_t *weft_misses_critical(const struct weft_misses *misses, uint32_t chunks);

#endif
