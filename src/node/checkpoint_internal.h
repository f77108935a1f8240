/* Private state of the checkpoints of one process, shared by checkpoint.c (lifecycle, the main
 * thread), checkpoint_order.c (when they begin, and requests to the shards), checkpoint_write.c
 * (the writer's thread) and checkpoint_feed.c (the shards' side). Internal to these files. */
#ifndef WEFT_NODE_CHECKPOINT_INTERNAL_H
#define WEFT_NODE_CHECKPOINT_INTERNAL_H

#include "node/checkpoint.h"

#include "io/clock.h"

/* A failed checkpoint is retried after this time. */
#define WEFT_CHECKPOINT_AGAIN_NS (5 * WEFT_NS_PER_S)

/* A requested checkpoint is cut at a future clock. If that clock is not reached in this time (twice
 * as long for the next one), it is cut at the tables' current clocks. Those may differ between
 * shards, but not when no worker is active. */
#define WEFT_CHECKPOINT_PATIENCE_NS     (300 * WEFT_NS_PER_MS)
#define WEFT_CHECKPOINT_PATIENCE_MAX_NS (60 * WEFT_NS_PER_S)

enum weft_checkpoint_gate {
    WEFT_CHECKPOINT_GATE_CLOSED, /* the shards may have started, and are waiting */
    WEFT_CHECKPOINT_GATE_OPEN,
    WEFT_CHECKPOINT_GATE_SHUT, /* the server ends before it served */
};

struct weft_checkpoint {
    struct weft_checkpoint_config config;
    struct weft_ckpt_log *log; /* used by the main thread until the writer starts, then by the
                                * writer */
    int replaced_fd;           /* eventfd, written when `replaced` is */
    uint32_t every_clocks;     /* one of the two is 0 */
    uint64_t every_ns;
    struct weft_ckpt_set set; /* restored from; number 0 = none */
    uint32_t set_clock;       /* the clock of its snapshot, reported by the shards. Under the
                               * lock */
    uint32_t set_ordered;     /* the clock at which it was ordered, the same on all servers of the
                               * job: a shard of SSP or ASP tables may have been cut later */

    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* protects the fields below, and the feeds */
    pthread_cond_t changed;
    enum weft_checkpoint_gate gate;
    bool replaced; /* another process has claimed these shards */
    struct weft_error replaced_why;
    bool stop;
    bool requested;
    bool last; /* the last one is requested */
    bool last_done;
    struct weft_checkpoint_feed *feeds; /* (count,) */

    /* Written by the writer, except wanted_clock and next_ns, which other threads also write.
     * Other threads read and write these fields, and under_way and ahead, with the lock held. */
    bool under_way;
    bool ahead; /* it waits for a future clock */
    bool by_request;
    bool at_once; /* the next requested one: at the tables' current clocks */
    uint64_t patience_ns;
    uint64_t impatient_ns; /* when the requested one in progress is started again */
    uint32_t wanted_clock; /* requested by a worker that keeps its pushes, 0 = none; not with
                            * has_all */
    bool set_pending;      /* committed here; parts of others may be missing */
    uint64_t number;       /* of the one in progress */
    uint32_t clock;        /* at which it was ordered */
    uint64_t cut;          /* another one for each order, also of other processes */
    uint64_t cuts;         /* orders so far */
    uint64_t base;
    uint64_t kept;    /* the last one committed here in this run; 0 = none */
    uint64_t unclear; /* the last number that may or may not be valid; 0 = none */
    bool log_said;    /* that the log cannot be read */
    uint64_t newest;  /* valid checkpoint known; 0 = none */
    uint32_t unmatched; /* parts committed here since that one became valid */
    uint32_t kept_clock;
    bool kept_any;
    uint32_t since_whole;
    uint32_t last_clock; /* the clock of the last periodic order */
    uint64_t next_ns;
    uint64_t retry_ns; /* after a failure: none before this time, not even by request */
    uint64_t begun_ns;
    void **memory; /* (count,): lent to the shards for copies */
};

static inline bool weft_checkpoint_has_all(const struct weft_checkpoint *checkpoint)
{
    return checkpoint->config.count == checkpoint->config.shards;
}

/* Claim this process's shards and choose the checkpoint to restore: once, on the first shard's
 * thread, while the main thread waits for it. The shard has bound its port by then: a server that
 * is started twice by mistake fails at that point, before it claims the shards of the running
 * one. */
weft_status weft_checkpoint_claim(struct weft_checkpoint *checkpoint, struct weft_error *error);

/* ---- checkpoint_order.c: with the lock held -------------------------------------------------- */

struct weft_checkpoint_standing {
    uint32_t clock; /* of the fastest shard */
    bool has_tables;
    bool has_bsp;
};

struct weft_checkpoint_standing weft_checkpoint_standing(const struct weft_checkpoint *checkpoint);

void weft_checkpoint_wake(struct weft_checkpoint_feed *feed);

/* True: a checkpoint is due. */
void weft_checkpoint_consider(struct weft_checkpoint *checkpoint);

/* Report to waiting programs that there will be none. */
void weft_checkpoint_refuse(struct weft_checkpoint *checkpoint, enum weft_rpc_status why);

/* Memory lent for copies; without the lock. */
void weft_checkpoint_take_back(struct weft_checkpoint *checkpoint);

/* ---- checkpoint_write.c: the thread ---------------------------------------------------------- */

void *weft_checkpoint_write_all(void *checkpoint);

#endif
