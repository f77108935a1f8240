/* Background traffic: flows of a plan (lab/flow_plan.h) over kernel TCP between the hosts of a lab,
 * all driven by one thread. A socket belongs permanently to the network namespace in which it was
 * created, so one process can own the sockets of all hosts, and no coordination is needed.
 *
 * Each flow is a new connection: connect, send, and complete when the receiver has its last byte.
 * Its completion time starts at the planned start, so delays of this process are included. A
 * completed flow is reset rather than closed: otherwise ports in TIME_WAIT would soon run out.
 *
 * The traffic is open loop, so flows accumulate in an overloaded network. flows_max bounds them; a
 * flow that arrives beyond it is not sent and counted as refused.
 *
 * This is not a tool to measure TCP (`weft perf` is): its receiver sleeps until 32 KB are
 * available, which saves CPU time and makes window updates slightly coarser.
 */
#ifndef WEFT_LAB_BACKGROUND_H
#define WEFT_LAB_BACKGROUND_H

#include "base/hist.h"
#include "lab/cluster.h"
#include "lab/flow_sizes.h"

#include <stdint.h>

enum { WEFT_BACKGROUND_PORT = 7999, WEFT_BACKGROUND_FLOWS_MAX = 100000 };

/* Size classes, as used in papers. */
enum weft_background_class {
    WEFT_BACKGROUND_SMALL,  /* below 100 KB */
    WEFT_BACKGROUND_MEDIUM, /* to 10 MB */
    WEFT_BACKGROUND_LARGE,  /* above 10 MB */
    WEFT_BACKGROUND_ALL,
    WEFT_BACKGROUND_CLASSES,
};
extern const char *const weft_background_class_names[WEFT_BACKGROUND_CLASSES];

struct weft_background_config {
    uint32_t hosts;   /* 2 .. WEFT_LAB_HOSTS_MAX */
    const int *netns; /* (hosts,) descriptors of their network namespaces; borrowed */
    const char (*addresses)[WEFT_LAB_ADDRESS_BYTES]; /* (hosts,) numeric IPv4; borrowed */
    const struct weft_flow_sizes *sizes;             /* borrowed */
    uint64_t rate_bps; /* of a host's link; the load is a fraction of it */
    uint32_t load_ppm; /* of that rate, per host */
    uint64_t seed;
    const char *cc;       /* congestion control by its kernel name; NULL = the default */
    uint16_t port;        /* port of the sinks on every host */
    uint32_t flows_max;   /* concurrent, 1 .. WEFT_BACKGROUND_FLOWS_MAX */
    uint64_t duration_ns; /* flows arrive for this time; WEFT_NEVER = until a stop is requested */
    uint64_t drain_ns;    /* time to wait after that for flows in progress */
    int stop_fd;          /* readable = end immediately; -1 = none */
    int ready_fd;         /* receives one byte, 'r', once all sinks listen; -1 = none */
};

struct weft_background_report {
    uint64_t span_ns;         /* during which flows arrived */
    uint64_t offered_flows;   /* flows that arrived, including refused ones ... */
    uint64_t offered_bytes;   /* ... and their sizes */
    uint64_t delivered_bytes; /* received within the span, of any flow */
    uint64_t refused_flows;   /* flows_max were in progress */
    uint64_t refused_bytes;
    uint64_t failed_flows; /* failed with a kernel error, the last of which is: */
    int failed_errno;
    uint64_t unfinished_flows; /* in progress at the end */
    uint64_t under_way_max;
    uint64_t late_ns_max; /* longest delay of a flow's start: this process was not scheduled */
    struct weft_hist completion_ns[WEFT_BACKGROUND_CLASSES]; /* of completed flows */
};

/* Run to the end of the plan, or until stop_fd is readable.
 *
 * Owns:    borrows everything; closes what it opened; the thread is returned to its own namespace.
 * Errors:  WEFT_IO  the sinks cannot listen, the congestion control is unknown, the limit of file
 *                   descriptors is too low, setns is not permitted (root), epoll.
 * Thread:  one; the calling thread's network namespace changes meanwhile. */
[[nodiscard]] weft_status weft_background_run(const struct weft_background_config *config,
                                              struct weft_background_report *report_p,
                                              struct weft_error *error);

/* Parse "SIZES:LOAD", as in "websearch:0.3": a distribution (weft_flow_sizes_load) and the load as
 * a fraction, above 0 and below 10. After a failure the outputs are undefined.
 *
 * Errors:  WEFT_INVALID  not of this form; and those of weft_flow_sizes_load. */
[[nodiscard]] weft_status weft_background_parse(const char *order, struct weft_flow_sizes *sizes_p,
                                                uint32_t *load_ppm_p, struct weft_error *error);

/* Offered and achieved load: fractions of the hosts' summed rate. */
double weft_background_offered(const struct weft_background_config *config,
                               const struct weft_background_report *report);
double weft_background_achieved(const struct weft_background_config *config,
                                const struct weft_background_report *report);

#endif
