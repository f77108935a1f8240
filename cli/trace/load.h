/* A trace file in memory, ready to be looked through: what the verbs of `weft trace` share. */
#ifndef WEFT_CLI_TRACE_LOAD_H
#define WEFT_CLI_TRACE_LOAD_H

#include "obs/trace_file.h"

#include <stdio.h>

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
    uint32_t counters; /* 0: the process did not end in order */
    char names[WEFT_TRACE_COUNTERS_MAX][WEFT_TRACE_NAME_BYTES + 1];
    uint64_t values[WEFT_TRACE_COUNTERS_MAX];
};

struct weft_trace_doc {
    struct weft_trace_entry *entries; /* of all endpoints, by time */
    size_t count;
    struct weft_trace_doc_endpoint *endpoints;
    uint32_t endpoint_count;
    bool truncated;
};

/* Read a whole file. What is wrong with it is said on standard error: a truncated file gives what
 * is there, true; a file that is no trace or is damaged false.
 * Owns:    doc_p is freed with weft_trace_doc_fini, also after false. */
bool weft_trace_doc_load(const char *path, struct weft_trace_doc *doc_p);
void weft_trace_doc_fini(struct weft_trace_doc *doc);

/* The direction of a message, and how it ended. */
const char *weft_trace_direction_name(unsigned flags);
const char *weft_trace_outcome_name(unsigned flags);

#endif
