/* Background traffic: flows of a plan (lab/flow_plan.h) over kernel TCP between the hosts of a lab,
 * all driven by one thread. A socket belongs for good to the network namespace it was made in, so
 * one process can own the sockets of all hosts and nothing needs to be coordinated.
 *
 * Each flow is a new connection: connect, send, and done when the receiving side has its last byte.
 * Its completion time runs from the moment the plan wanted it to start, so what this process is late
 * counts too. A flow that is done is reset rather than closed: ports in TIME_WAIT would soon run out.
 *
 * The traffic is open loop, so an overloaded network piles up flows. flows_max bounds them; what
 * arrives beyond is not sent and counted as refused.
 *
 * It is no measuring tool for TCP (`weft perf` is): its receiver sleeps until 32 KB are there, which
 * saves processor time and makes windows a little coarser.
 */
#ifndef WEFT_LAB_BACKGROUND_H
#define WEFT_LAB_BACKGROUND_H

#include "base/hist.h"
#include "lab/cluster.h"
#include "lab/flow_sizes.h"

#include <stdint.h>

enum { WEFT_BACKGROUND_PORT = 7999, WEFT_BACKGROUND_FLOWS_MAX = 100000 };

/* Classes of size, as papers have them. */
enum weft_background_class {
    WEFT_BACKGROUND_SMALL,  /* below 100 KB */
    WEFT_BACKGROUND_MEDIUM, /* to 10 MB */
    WEFT_BACKGROUND_LARGE,  /* above 10 MB */
    WEFT_BACKGROUND_ALL,
    WEFT_BACKGROUND_CLASSES,
};
extern const char *const weft_background_class_names[WEFT_BACKGROUND_CLASSES];

struct weft_background_config {
    uint32_t hosts;         /* 2 .. WEFT_LAB_HOSTS_MAX */
    const int *netns;       /* (hosts,) descriptors of their network namespaces; borrowed */
    const char (*addresses)[WEFT_LAB_ADDRESS_BYTES]; /* (hosts,) numeric IPv4; borrowed */
    const struct weft_flow_sizes *sizes;             /* borrowed */
    uint64_t rate_bps;      /* of a host's link; what load is a fraction of */
    uint32_t load_ppm;      /* of that rate, each host */
    uint64_t seed;
    const char *cc;         /* congestion control by the kernel's name; NULL = the default */
    uint16_t port;          /* the sinks listen there on every host */
    uint32_t flows_max;     /* at a time, 1 .. WEFT_BACKGROUND_FLOWS_MAX */
    uint64_t duration_ns;   /* flows arrive for so long; WEFT_NEVER = until asked to stop */
    uint64_t drain_ns;      /* wait so long after that for flows still under way */
    int stop_fd;            /* readable = end at once; -1 = none */
    int ready_fd;           /* gets one byte, 'r', once all sinks listen; -1 = none */
};

struct weft_background_report {
    uint64_t span_ns;         /* during which flows arrived */
    uint64_t offered_flows;   /* that arrived, refused ones among them ... */
    uint64_t offered_bytes;   /* ... and their sizes */
    uint64_t delivered_bytes; /* received within the span, of whatever flow */
    uint64_t refused_flows;   /* flows_max were under way */
    uint64_t refused_bytes;
    uint64_t failed_flows;    /* by an error of the kernel's, the last of which is: */
    int failed_errno;
    uint64_t unfinished_flows; /* under way at the end */
    uint64_t under_way_max;
    uint64_t late_ns_max;     /* the latest start of a flow: this process had no turn */
    struct weft_hist completion_ns[WEFT_BACKGROUND_CLASSES]; /* of flows that finished */
};

/* Run to the end of the plan, or until stop_fd is readable.
 *
 * Owns:    borrows everything; closes what it opened; the caller is in its own namespace again.
 * Errors:  WEFT_IO  the sinks cannot listen, the congestion control is unknown, too few file
 *                   descriptors are allowed, setns is not (root), epoll.
 * Thread:  one; the calling thread's network namespace changes meanwhile. */
[[nodiscard]] weft_status weft_background_run(const struct weft_background_config *config,
                                              struct weft_background_report *report_p,
                                              struct weft_error *error);

/* "SIZES:LOAD", as in "websearch:0.3": a distribution (weft_flow_sizes_load) and the load as a
 * fraction, above 0 and below 10. After a failure the outputs hold anything.
 *
 * Errors:  WEFT_INVALID  no such form; and those of weft_flow_sizes_load. */
[[nodiscard]] weft_status weft_background_parse(const char *order, struct weft_flow_sizes *sizes_p,
                                                uint32_t *load_ppm_p, struct weft_error *error);

/* Offered and achieved load: fractions of the hosts' summed rate. */
double weft_background_offered(const struct weft_background_config *config,
                               const struct weft_background_report *report);
double weft_background_achieved(const struct weft_background_config *config,
                                const struct weft_background_report *report);

#endif
