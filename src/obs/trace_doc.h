/* A trace file (trace_file.h) in memory, its records ordered by time; and totals of one endpoint.
 *
 * Thread:  any; reading is const.
 */
#ifndef WEFT_OBS_TRACE_DOC_H
#define WEFT_OBS_TRACE_DOC_H

#include "obs/trace_file.h"

enum { WEFT_TRACE_COUNTERS_MAX = 64 };

struct weft_trace_entry {
    struct weft_trace_record record;
    uint16_t endpoint;
    uint32_t order; /* in the file */
};

struct weft_trace_doc_endpoint {
    struct weft_trace_endpoint about;
    uint64_t records;
    uint64_t overwritten;
    uint32_t counters; /* 0: the process did not end normally */
    char names[WEFT_TRACE_COUNTERS_MAX][WEFT_TRACE_NAME_BYTES + 1];
    uint64_t values[WEFT_TRACE_COUNTERS_MAX];
};

struct weft_trace_doc {
    struct weft_trace_entry *entries; /* of all endpoints, by time */
    size_t count;
    struct weft_trace_doc_endpoint *endpoints;
    uint32_t endpoint_count;
    bool truncated; /* the file ends inside a block; the complete entries before are here */
    size_t bad_at;  /* after WEFT_DATA: the offset at which reading ended */
};

/* Read the bytes of a whole file.
 * Owns:    borrows bytes until return; *doc_p is freed with weft_trace_doc_fini, also after a
 *          failure.
 * Errors:  WEFT_DATA  it is not a trace file, or is damaged.  WEFT_NOMEM. */
weft_status weft_trace_doc_make(const void *bytes, size_t count, struct weft_trace_doc *doc_p);
void weft_trace_doc_fini(struct weft_trace_doc *doc);

/* The direction of a message, and how it ended. */
const char *weft_trace_direction_name(unsigned flags);
const char *weft_trace_outcome_name(unsigned flags);

/* ---- totals of one endpoint ------------------------------------------------------------------ */

/* A message that was both opened and closed within the trace. */
struct weft_trace_life {
    uint64_t seq;
    uint64_t ns;
    uint16_t peer;
    uint8_t direction; /* WEFT_TRACE_OUTGOING, _INCOMING */
};

struct weft_trace_tally {
    uint64_t types[WEFT_TRACE_TYPE_END];
    uint64_t unknown_types; /* of a later version */
    uint64_t drops[WEFT_TRACE_DROP_END];
    uint64_t data_sent;      /* packets with DATA */
    uint64_t outcomes[2][3]; /* messages, by direction: complete, short, unknown */
    uint64_t first_ns;
    uint64_t last_ns;
    uint64_t *rtts_ns; /* ascending */
    size_t rtt_count;
    struct weft_trace_life *lives; /* shortest first */
    size_t life_count;
    uint64_t *times_ns[2]; /* (lives of one direction,) ascending */
    size_t time_count[2];
};

/* Owns:    *tally_p is freed with weft_trace_tally_fini, also after a failure.
 * Errors:  WEFT_NOMEM. */
weft_status weft_trace_tally_make(const struct weft_trace_doc *doc, uint32_t endpoint,
                                  struct weft_trace_tally *tally_p);
void weft_trace_tally_fini(struct weft_trace_tally *tally);

#endif
