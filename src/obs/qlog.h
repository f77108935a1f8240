/* A trace as qlog, one JSON text per record (JSON-SEQ, RFC 7464).
 *
 * Source: draft-ietf-quic-qlog-main-schema (QlogFileSeq) and draft-ietf-quic-qlog-quic-events, as
 * of July 2026. Events that QUIC also has use the namespace "quic", others "weft". Values without a
 * field in QUIC's events are in the event's field "weft".
 */
#ifndef WEFT_OBS_QLOG_H
#define WEFT_OBS_QLOG_H

#include "obs/trace_doc.h"

#include <stdio.h>

/* Write the header and an event for each record.
 * Shape:   title  for the header: the source of the trace.
 * Errors:  WEFT_IO  from out; errno has the reason.  WEFT_NOMEM. */
weft_status weft_qlog_write(const struct weft_trace_doc *doc, const char *title, FILE *out);

#endif
