/* The option --trace FILE of the verbs that run endpoints: all endpoints of a process write to one
 * file. */
#ifndef WEFT_NODE_TRACING_H
#define WEFT_NODE_TRACING_H

#include "io/udp/udp.h"
#include "node/log.h"
#include "obs/trace_file.h"

struct weft_tracing {
    struct weft_trace_writer *writer; /* NULL = off */
    const char *path;
    struct weft_node_log log;
};

/* For one endpoint; must not be moved while the endpoint is open. */
struct weft_tracing_feed {
    struct weft_trace_feed feed;
    const struct weft_tracing *tracing;
    uint32_t ring_records;
};

/* path = NULL: off. If the file cannot be created or extended, that is logged once, and the run
 * continues without it. path is borrowed until close; tracing must not be moved until then. */
void weft_tracing_open(struct weft_tracing *tracing, const char *path, struct weft_node_log log);

/* Trace the endpoint that will be opened with this configuration. */
void weft_tracing_attach(struct weft_tracing *tracing, const char *label,
                         struct weft_udp_config *config, struct weft_tracing_feed *feed_p);

/* Call after the endpoints were closed. */
void weft_tracing_close(struct weft_tracing *tracing);

#endif
