/* A member of dense rounds (io/dense_link.h) with a thread of its own: it sums one vector at a time
 * through an aggregation box, while its owner does other work.
 *
 *     begin -> ... poll or wait -> begin ...        stop ends the sum in progress early
 *
 * After a sum that did not complete the link can sum again only in another epoch.
 *
 * Thread:  open and close: one. All others: one at a time; counters: any.
 */
#ifndef WEFT_NODE_BOX_LINK_H
#define WEFT_NODE_BOX_LINK_H

#include "io/dense_link.h"

struct weft_box_link;

struct weft_box_link_config {
    struct weft_dense_link_config dense; /* is_stopped is asked, too; open sets what calls it */
    void (*ended)(void *arg); /* by the link's thread, when a sum has ended; NULL = none */
    void *arg;
};

/* The end of a sum. */
struct weft_box_link_end {
    weft_status status; /* of weft_dense_link_sum */
    uint64_t at_ns;
    struct weft_error error;
};

/* Cumulative, as of the link's last batch of packets. */
struct weft_box_link_counters {
    uint64_t sums;   /* chunks whose sum has arrived */
    uint64_t resent; /* packets that were sent again */
};

/* A number for the epoch of a job's packets: the time in seconds. It sleeps until the next second
 * begins, so that jobs that follow each other on this host have increasing epochs. */
uint32_t weft_box_link_epoch_now(void);

/* Open the socket, in the network namespace of the caller, and start the thread.
 * Owns:    gives *link_p.   Errors:  as weft_dense_link_open; WEFT_IO  no thread. */
[[nodiscard]] weft_status weft_box_link_open(const struct weft_box_link_config *config,
                                             struct weft_box_link **link_p,
                                             struct weft_error *error);

/* A sum in progress is stopped first. NULL is allowed. */
void weft_box_link_close(struct weft_box_link *link);

/* Begin another epoch; no sum is in progress. */
void weft_box_link_epoch(struct weft_box_link *link, uint32_t epoch);

/* Begin to sum; none is in progress. Arguments as for weft_dense_link_sum.
 * Owns:    borrows in, out and direct until poll or wait has returned the end. */
void weft_box_link_begin(struct weft_box_link *link, const void *in, void *out, uint64_t count,
                         uint64_t *direct, uint64_t timeout_ns);

/* The sum in progress ends with WEFT_AGAIN within 50 ms, unless it is complete before. */
void weft_box_link_stop(struct weft_box_link *link);

/* Whether the sum has ended; each end is returned once. wait: sleep until then. */
bool weft_box_link_poll(struct weft_box_link *link, struct weft_box_link_end *end_p);
void weft_box_link_wait(struct weft_box_link *link, struct weft_box_link_end *end_p);

void weft_box_link_counters(const struct weft_box_link *link,
                            struct weft_box_link_counters *counters_p);

/* While no sum is in progress. */
const struct weft_agg_member *weft_box_link_member(const struct weft_box_link *link);

#endif
