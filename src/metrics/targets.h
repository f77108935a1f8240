/* Where the processes of a job serve their metrics: the list that Prometheus' HTTP service discovery
 * and `weft top` read, as a supervisor hears it from its children or finds it in files
 * (target_file.h).
 *
 * Thread: any; the functions take the lock.
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
    pthread_mutex_t lock; /* of what follows, and of what its owner keeps beside it */
    struct weft_target list[WEFT_TARGETS_MAX];
    uint32_t count;
    /* Workers may be programs of somebody else, with no channel to us, that write files into this
     * folder: those of ranks below `workers`. NULL = there are none. Borrowed. */
    const char *folder;
    uint32_t workers;
};

void weft_targets_init(struct weft_targets *targets);

/* url: "http://127.0.0.1:41234/metrics", in place of what this rank of the role said before; "", or a
 * list that is full: nothing changes. */
void weft_targets_set(struct weft_targets *targets, const char *role, uint32_t rank,
                      const char *url);

/* [{"targets": ["127.0.0.1:41234"], "labels": {"role": "server", "rank": "0"}}, ...], from malloc; the
 * workers' files are read each time. */
char *weft_targets_json(struct weft_targets *targets);

/* Call `add` with each "HOST:PORT" of such a list; what is not of that form is passed over. */
void weft_targets_parse(const char *text, void (*add)(void *arg, const char *at), void *arg);

#endif
