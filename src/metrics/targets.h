/* The metrics addresses of a job's processes: the list read by Prometheus' HTTP service discovery
 * and by `weft top`. A supervisor receives them from its children or reads them from files
 * (target_file.h).
 *
 * Thread: any; the functions lock the mutex.
 */
#ifndef WEFT_METRICS_TARGETS_H
#define WEFT_METRICS_TARGETS_H

#include "metrics/serve.h"

#include <pthread.h>
#include <stdint.h>

enum { WEFT_TARGETS_MAX = 160 };

struct weft_target {
    const char *role; /* "server", "worker": static */
    uint32_t rank;
    char at[WEFT_METRICS_URL_BYTES]; /* "127.0.0.1:41234" */
};

struct weft_targets {
    pthread_mutex_t lock; /* protects the following fields, and related data of the owner */
    struct weft_target list[WEFT_TARGETS_MAX];
    uint32_t count;
    /* Worker programs without a channel to the supervisor write their addresses into files in this
     * folder, which are read for ranks below `workers`. NULL = none. Borrowed. */
    const char *folder;
    uint32_t workers;
};

void weft_targets_init(struct weft_targets *targets);

/* url: "http://127.0.0.1:41234/metrics"; it replaces the earlier one of this role and rank. If it
 * is "", or if it is new and the list is full, nothing changes. */
void weft_targets_set(struct weft_targets *targets, const char *role, uint32_t rank,
                      const char *url);

/* The process of this role and rank has ended: its address is not served until it is set again. */
void weft_targets_drop(struct weft_targets *targets, const char *role, uint32_t rank);

/* [{"targets": ["127.0.0.1:41234"], "labels": {"role": "server", "rank": "0"}}, ...]. The caller
 * frees it. The workers' files are read in each call. */
char *weft_targets_json(struct weft_targets *targets);

/* Call `add` with each "HOST:PORT" of such a list; entries of another form are skipped. */
void weft_targets_parse(const char *text, void (*add)(void *arg, const char *at), void *arg);

#endif
