/* Where the processes of a job serve their metrics, as a supervisor hears it from them: the list that
 * Prometheus' HTTP service discovery and `weft top` read.
 *
 * Thread: the caller's lock.
 */
#ifndef WEFT_CLI_TARGETS_H
#define WEFT_CLI_TARGETS_H

#include "cli/metrics.h"
#include "job/args.h"

enum { WEFT_TARGETS_MAX = 160 };

struct weft_targets {
    struct {
        const char *role; /* "server", "worker": static */
        uint32_t rank;
        char at[WEFT_METRICS_URL_BYTES]; /* "127.0.0.1:41234" */
    } list[WEFT_TARGETS_MAX];
    uint32_t count;
};

/* url: "http://127.0.0.1:41234/metrics", in place of what this rank of the role said before; "", or a
 * list that is full: nothing changes. */
void weft_targets_set(struct weft_targets *targets, const char *role, uint32_t rank,
                      const char *url);

/* [{"targets": ["127.0.0.1:41234"], "labels": {"role": "server", "rank": "0"}}, ...], from malloc. */
char *weft_targets_json(const struct weft_targets *targets);

/* What a child is told so that it takes a free port of the same host; nothing without --metrics. */
void weft_targets_add(const struct weft_metrics_options *options, struct weft_args *args);

#endif
