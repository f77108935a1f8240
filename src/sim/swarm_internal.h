/* Internals of a swarm, shared by swarm.c (creation of the world, the run), swarm_app.c (the hosts'
 * applications), swarm_event.c (handling of events) and swarm_check.c (the checks). Private. */
#ifndef WEFT_SIM_SWARM_INTERNAL_H
#define WEFT_SIM_SWARM_INTERNAL_H

#include "sim/cut.h"
#include "sim/oracle.h"
#include "sim/plan.h"
#include "sim/world.h"

#define NOBODY UINT32_MAX

/* Tags. A private message has a tag that no other message has; messages for a host's shared receive
 * have tags with the same upper half. */
#define TAG_PRIVATE (UINT64_C(1) << 32)
#define TAG_SHARED  (UINT64_C(2) << 32)
#define TAG_HIGH    (UINT64_C(0xffffffff) << 32)

/* `user` of a shared receive, until OPEN identifies the message. */
#define USER_SHARED UINT64_C(1000000)

struct swarm_totals {
    uint64_t sent;
    uint64_t unknown;
    uint64_t received;
    uint64_t received_short;
    uint64_t missing;
    uint64_t chunks;
};

struct swarm_host {
    uint32_t peer_of[WEFT_PLAN_HOSTS_MAX];  /* the peer to send with; NOBODY */
    uint32_t accepted[WEFT_PLAN_HOSTS_MAX]; /* the peer created by its HELLO; NOBODY */
    uint32_t *host_of;                      /* by peer; NOBODY */
    struct weft_oracle_streams *streams;    /* by peer: streams of the data sent to it */
    bool connecting[WEFT_PLAN_HOSTS_MAX];
    bool down[WEFT_PLAN_HOSTS_MAX]; /* PEER_DOWN was received; do not retry */
    bool reconnecting;              /* to the restarted host, until PEER_UP of its new process */
    bool close_done[WEFT_PLAN_CLOSES_MAX];
    float *accumulator;
    uint64_t accumulator_bytes;
    struct swarm_totals totals;
};

struct swarm {
    struct weft_plan plan;
    struct weft_world *world;
    struct weft_oracle_msg *msgs;
    struct swarm_host host[WEFT_PLAN_HOSTS_MAX];
    struct weft_cuts cuts;
    struct posted {
        weft_expect_id id;
        uint32_t peer;
    } * posted; /* by message: where its memory was posted */
    uint8_t flows[WEFT_PLAN_HOSTS_MAX][WEFT_PLAN_HOSTS_MAX]; /* [src][dst]: whether there are
                                                              * messages */
    uint64_t closed_ns;
    uint64_t cut; /* this and the next two: see struct weft_swarm_result */
    uint64_t cut_messages;
    uint64_t noticed;
    bool draining;
    bool reborn; /* the victim's new process has started */
};

/* Whether the host's first process has died. A new one may have started at its address. */
static inline bool swarm_died(const struct swarm *s, uint32_t host)
{
    return !weft_world_alive(s->world, host) || (s->reborn && host == s->plan.victim);
}

/* Whether the plan has closed this connection, so that it may end. */
static inline bool swarm_may_end(const struct swarm *s, uint32_t host, uint32_t peer,
                                 uint32_t other)
{
    return other != NOBODY && s->plan.closes > 0 && weft_cuts_may_end(&s->cuts, host, peer, other);
}

/* Which host opens the connection of a pair: the sender; if both send, the lower one or both. */
static inline bool swarm_connects(const struct swarm *s, uint32_t host, uint32_t to)
{
    return s->flows[host][to] && (!s->flows[to][host] || s->plan.crossing || host < to);
}

/* ---- swarm_app.c ----------------------------------------------------------------------------- */

/* Report a failure of message idx. */
void weft_swarm_fail_msg(struct swarm *s, uint32_t idx, const char *wrong);

void weft_swarm_connect(struct swarm *s, uint32_t host, uint32_t to, uint64_t now_ns);

/* Cancel the receives posted for a peer that is gone; they must be posted again for its new
 * number. */
void weft_swarm_take_back(struct swarm *s, uint32_t host, uint32_t peer);

/* Post one receive for all messages with sink EVENT that this host does not distinguish. */
void weft_swarm_post_shared(struct swarm *s, uint32_t host);

/* Do everything that is due at this host. */
void weft_swarm_advance(struct swarm *s, uint32_t host, uint64_t now_ns);

/* A caller-driven host stops waiting when nothing is outstanding, and computes. */
void weft_swarm_maybe_sleep(struct swarm *s, uint32_t host, uint64_t now_ns);

void weft_swarm_on_wake(void *swarm, uint32_t host, uint64_t now_ns);

/* ---- swarm_event.c --------------------------------------------------------------------------- */

void weft_swarm_on_event(void *swarm, uint32_t host, const struct weft_msg_event *event,
                         uint64_t now_ns);

/* ---- swarm_check.c --------------------------------------------------------------------------- */

/* Whether everything is closed. If requested, the first failure describes what is open. */
bool weft_swarm_all_closed(struct swarm *s, bool complain);

/* Check memory, counters and the network after everything is closed. */
void weft_swarm_check_end(struct swarm *s);

#endif
