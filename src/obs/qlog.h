/* A trace as qlog, one JSON text a record (JSON-SEQ, RFC 7464).
 *
 * Source: draft-ietf-quic-qlog-main-schema (QlogFileSeq) and draft-ietf-quic-qlog-quic-events, as
 * of July 2026. Names of the namespace "quic" are used where QUIC has the same thing; "weft" is for
 * the rest. What QUIC's events have no field for is the event's field "weft".
 */
#ifndef WEFT_OBS_QLOG_H
#define WEFT_OBS_QLOG_H

#include "obs/trace_doc.h"

#include <stdio.h>

/* Stream the head and an event for each record.
 * Shape:   title  of the head: where the trace came from.
 * Errors:  WEFT_IO  from out; errno says why.  WEFT_NOMEM. */
weft_status weft_qlog_write(const struct weft_trace_doc *doc, const char *title, FILE *out);

#endif
