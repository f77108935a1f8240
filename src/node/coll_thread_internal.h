/* Private state of coll_thread, internal to its files.
 *
 *   coll_thread.c           lifecycle: memory, the driver, the thread, stop
 *   coll_thread_progress.c  progress: one step of the leader, and the thread's loop
 *   coll_thread_join.c      connections to the other ranks
 *   coll_thread_plan.c      plans of all_reduce
 *   coll_thread_post.c      posting: beginning operations, requests to the leader
 *   coll_thread_wait.c      waiting for an operation, leading or following
 *   coll_thread_box.c       the aggregation box: its link, and operations that go through it
 *
 * One thread leads at a time (node/leader.h): the endpoint's own, one that waits, or one that
 * begins an operation. The fields above the lock are used by the leader only, those below it need
 * the lock. The slot of an operation is the leader's while it is OPEN:
 *
 *     FREE --begin--> QUEUED --leader takes it--> OPEN --done--> DONE --waited for--> FREE
 */
#ifndef WEFT_NODE_COLL_THREAD_INTERNAL_H
#define WEFT_NODE_COLL_THREAD_INTERNAL_H

#include "node/box_link.h"
#include "node/coll_thread.h"

#include "base/assert.h"
#include "io/clock.h"
#include "node/leader.h"

#include <pthread.h>
#include <stdatomic.h>

enum { COLL_NONE = UINT32_MAX, COLL_FAILURE_BYTES = 800 };

enum coll_slot_state { SLOT_FREE, SLOT_QUEUED, SLOT_OPEN, SLOT_DONE };

/* Of one operation, from begin until it has been waited for. */
struct coll_slot {
    enum coll_slot_state state;
    uint32_t life;
    uint32_t waiters; /* of this operation alone; one of them gets the result, not a wait_any */
    bool is_offered;  /* in done */
    bool is_internal; /* of the thread itself: never offered to a wait_any */
    uint32_t next;    /* in its queue */
    struct weft_coll_call call;
    struct weft_coll_done done;
    uint32_t block; /* used by the leader: index, or COLL_NONE */
};

/* Memory that calls need beyond their buffers. */
struct coll_block {
    void *memory;
    size_t bytes;
    bool used;
};

/* The plan of a group. */
struct coll_plan {
    struct weft_collective_plan made;
    struct weft_coll_plan plan;
    uint64_t memory[]; /* of both */
};

struct coll_queue {
    uint32_t head, tail;
};

/* Ranks for the text of an error: "1, 2, 5", or "1, 2, ..." if the text has no room for all. */
struct coll_rank_list {
    char text[160];
    size_t used;
    uint32_t count;
};

/* A function that the leader calls for a waiting thread. */
struct coll_request {
    void (*run)(struct weft_coll_thread *thread, void *arg);
    void *arg;
    bool is_done;
    struct coll_request *next;
};

/* The address of a rank. */
struct coll_dial {
    struct weft_launch_address address;
    weft_peer peer; /* the connection being made; COLL_NONE = none */
};

struct weft_coll_thread {
    /* Used by the leader only. */
    struct weft_coll_thread_config config;
    struct weft_driver *driver;
    struct weft_provider *provider;
    struct weft_coll *coll;
    struct weft_coll_box *box; /* NULL = none; also the next field */
    struct weft_box_link *box_link;
    char box_host[WEFT_LAUNCH_ADDRESS_BYTES];
    struct weft_msgr msgr;
    struct coll_block *block; /* (ops_max,) */
    struct coll_dial *dial;   /* (ranks,) */
    struct coll_plan **plan;  /* (plans,), by group: NULL = none */
    uint32_t plans;
    bool links_changed;       /* since publish */
    uint64_t stop_ns;         /* when stopping after a failure: notify the others until then */

    pthread_t thread;
    uint16_t port;
    atomic_bool stopping;
    atomic_bool has_work; /* queued or requests is not empty */

    pthread_mutex_t lock; /* protects all fields below */
    pthread_cond_t changed;
    struct weft_leader leader;
    uint32_t waiters;       /* threads that sleep on changed */
    struct coll_slot *slot; /* (ops_max,) */
    uint32_t free_head;
    struct coll_queue queued, done;
    uint32_t open_ops; /* begun, and not waited for */
    uint32_t internal_ops; /* of open_ops */
    struct coll_request *requests, **requests_end;
    int fd; /* eventfd; -1 = not requested */
    bool is_joining;
    uint64_t join_end_ns; /* failed connections are retried until then */
    uint32_t ranks_met;
    bool failed; /* the reason is in failure */
    char failure[COLL_FAILURE_BYTES];
};

/* ---- queues of slots, under the lock --------------------------------------------------------- */

static inline void coll_queue_add(struct weft_coll_thread *t, struct coll_queue *q, uint32_t i)
{
    t->slot[i].next = COLL_NONE;
    if (q->head == COLL_NONE) {
        q->head = i;
    } else {
        t->slot[q->tail].next = i;
    }
    q->tail = i;
}

static inline uint32_t coll_queue_take(struct weft_coll_thread *t, struct coll_queue *q)
{
    uint32_t i = q->head;
    if (i != COLL_NONE) {
        q->head = t->slot[i].next;
    }
    return i;
}

static inline void coll_queue_remove(struct weft_coll_thread *t, struct coll_queue *q, uint32_t i)
{
    uint32_t before = COLL_NONE;
    for (uint32_t at = q->head; at != i; at = t->slot[at].next) {
        before = at;
    }
    if (before == COLL_NONE) {
        q->head = t->slot[i].next;
    } else {
        t->slot[before].next = t->slot[i].next;
    }
    q->tail = q->tail == i ? before : q->tail;
}

static inline uint64_t coll_id_of(const struct weft_coll_thread *t, uint32_t i)
{
    return (uint64_t)t->slot[i].life << 32 | i;
}
/* ---- coll_thread_progress.c ------------------------------------------------------------------ */

/* Leader only: sleep until something happens, or until end_ns (0 = do not sleep), and handle it. */
void weft_coll_thread_step(struct weft_coll_thread *t, uint64_t end_ns);
/* The thread's loop. */
void *weft_coll_thread_run(void *arg);

/* ---- coll_thread_join.c ---------------------------------------------------------------------- */

/* Leader only: PEER_UP or PEER_DOWN of a connection being made. */
void weft_coll_thread_on_event(struct weft_coll_thread *t, const struct weft_msg_event *event,
                               uint64_t now_ns);
void weft_coll_rank_list_add(struct coll_rank_list *list, uint32_t rank);

/* ---- coll_thread_box.c ----------------------------------------------------------------------- */

/* Change the configuration of coll for a box. */
void weft_coll_thread_box_prepare(const struct weft_coll_thread_config *config,
                                  struct weft_coll_config *coll_p);
/* Open the link, and make the object. coll: its configuration. */
weft_status weft_coll_thread_box_open(struct weft_coll_thread *t,
                                      const struct weft_coll_config *coll,
                                      struct weft_error *error);
/* Leader only: the calls of coll/coll.h with or without a box. */
size_t weft_coll_thread_work_bytes(const struct weft_coll_thread *t,
                                   const struct weft_coll_call *call);
weft_status weft_coll_thread_call(struct weft_coll_thread *t, const struct weft_coll_call *call,
                                  uint64_t now_ns);
bool weft_coll_thread_poll(struct weft_coll_thread *t, struct weft_coll_done *done_p);
void weft_coll_thread_progress(struct weft_coll_thread *t, uint64_t now_ns);
uint64_t weft_coll_thread_deadline(const struct weft_coll_thread *t);
void weft_coll_thread_box_counters(struct weft_coll_thread *t,
                                   struct weft_coll_thread_counters *counters_p);

/* ---- coll_thread_plan.c ---------------------------------------------------------------------- */

/* When coll has ended. */
void weft_coll_thread_plans_free(struct weft_coll_thread *t);

/* ---- coll_thread_post.c ---------------------------------------------------------------------- */

/* There is work for the leader, or for the endpoint's thread if no thread leads. With the lock
 * held. */
void weft_coll_thread_wake(struct weft_coll_thread *t);

/* Have the leader run `what`, and wait until it has. */
void weft_coll_thread_request(struct weft_coll_thread *t,
                              void (*what)(struct weft_coll_thread *, void *), void *arg);

/* As weft_coll_thread_begin, for an operation of the thread itself: only a wait for its id returns
 * it. */
weft_status weft_coll_thread_begin_internal(struct weft_coll_thread *t,
                                            const struct weft_coll_call *call, uint64_t *id_p);

/* ---- coll_thread_wait.c, all with the lock held ---------------------------------------------- */

/* The leader gives the lead up. */
void weft_coll_thread_leave(struct weft_coll_thread *t);
/* Sleep until the condition is broadcast; false at end_ns. */
bool weft_coll_thread_wait_changed(struct weft_coll_thread *t, uint64_t end_ns);

#endif
