/* Whether this endpoint has the host's link to itself (egress_share.c). Internal to src/core. */
#ifndef WEFT_CORE_EGRESS_SHARE_H
#define WEFT_CORE_EGRESS_SHARE_H

#include <stdbool.h>
#include <stdint.h>

struct egress_share {
    bool siblings;        /* other endpoints of this process use the queue: no trials */
    bool shared;          /* other traffic is, or seems to be, in the host's queue */
    uint32_t units;       /* while shared, the limit is this many milliseconds of the link */
    uint64_t raised_bps;  /* drain rate before the units were raised; 0 = not in the last phase */
    uint64_t raise_ns;    /* they are not raised before */
    uint64_t raise_pause_ns;
    uint32_t receivers;   /* the most receivers with chunks to be sent in this phase */
    bool trial;           /* the limit is doubled */
    uint8_t equal;        /* consecutive trials that did not change the drain rate */
    uint64_t limit_bytes; /* limit of the last interval */
    uint32_t samples;     /* intervals measured in this phase */
    uint64_t bytes;       /* drained in these intervals */
    uint64_t ns;          /* and their duration */
    uint64_t counted_bytes; /* sent by the interface for all programs, in counted_ns of these */
    uint64_t counted_ns;
    uint64_t steady_bps;  /* drain rate before the trial */
    uint64_t rate_bps;    /* smoothed drain rate; 0 = unknown */
    uint64_t link_bps;    /* rate of the link: the highest of a phase, or estimated by a trial */
    uint64_t pause_ns;    /* time between two trials */
    uint64_t next_ns;     /* earliest time of the next trial */
};

void egress_share_init(struct egress_share *share);
void egress_share_siblings(struct egress_share *share, bool siblings);
/* Record that `bytes` of this endpoint drained from the host's queue in `ns` while it was limited
 * to `limit_bytes`, twice that in a trial. counted_bytes: sent meanwhile by the interface, for all
 * programs; 0 = not known. */
void egress_share_sample(struct egress_share *share, uint64_t limit_bytes, uint64_t bytes,
                         uint64_t counted_bytes, uint64_t ns, uint64_t now_ns);
/* Record the number of receivers with chunks to be sent. */
void egress_share_receivers(struct egress_share *share, uint32_t receivers);
/* Whether counted_bytes would be of use. */
bool egress_share_asks(const struct egress_share *share);
/* The drain rate is unknown again; what is known of the link remains. */
void egress_share_forget(struct egress_share *share);
/* Maximum of the limit on the host's queue, in bytes; UINT64_MAX while no rate is known. */
uint64_t egress_share_limit(const struct egress_share *share);

#endif
