/* The inside of a swarm, shared by swarm.c (making the world, the run), swarm_app.c (what the hosts'
 * applications do), swarm_event.c (what the events mean to them) and swarm_check.c (what must hold).
 * Not for others. */
#ifndef WEFT_SIM_SWARM_INTERNAL_H
#define WEFT_SIM_SWARM_INTERNAL_H

#include "sim/cut.h"
#include "sim/oracle.h"
#include "sim/plan.h"
#include "sim/world.h"

#define NOBODY UINT32_MAX

/* Tags. A private message has its own; those of a host's common expectation share the high half. */
#define TAG_PRIVATE (UINT64_C(1) << 32)
#define TAG_SHARED  (UINT64_C(2) << 32)
#define TAG_HIGH    (UINT64_C(0xffffffff) << 32)

/* `user` of a common expectation, until OPEN says which message it is. */
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
    uint32_t peer_of[WEFT_PLAN_HOSTS_MAX];  /* whom to send with; NOBODY */
    uint32_t accepted[WEFT_PLAN_HOSTS_MAX]; /* the peer that its HELLO made; NOBODY */
    uint32_t *host_of;                      /* by peer; NOBODY */
    struct weft_oracle_streams *streams;    /* by peer: of what is sent to it */
    bool connecting[WEFT_PLAN_HOSTS_MAX];
    bool down[WEFT_PLAN_HOSTS_MAX]; /* PEER_DOWN came; do not try again */
    bool anew;                      /* the peer that was reborn is to be connected anew */
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
    uint8_t flows[WEFT_PLAN_HOSTS_MAX][WEFT_PLAN_HOSTS_MAX]; /* [src][dst]: there are messages */
    uint64_t closed_ns;
    uint64_t cut;
    uint64_t cut_messages;
    uint64_t noticed;
    bool draining;
    bool reborn; /* the victim's new process is up */
};

/* The process that the plan is about. Another one may have come up at its address. */
static inline bool swarm_died(const struct swarm *s, uint32_t host)
{
    return !weft_world_alive(s->world, host) || (s->reborn && host == s->plan.victim);
}

/* The plan has closed this connection, so it may end here. */
static inline bool swarm_may_end(const struct swarm *s, uint32_t host, uint32_t peer,
                                 uint32_t other)
{
    return other != NOBODY && s->plan.closes > 0 && weft_cuts_may_end(&s->cuts, host, peer, other);
}

/* Who opens the connection of a pair: the one who sends; if both do, the lower or both. */
static inline bool swarm_connects(const struct swarm *s, uint32_t host, uint32_t to)
{
    return s->flows[host][to] && (!s->flows[to][host] || s->plan.crossing || host < to);
}

/* ---- swarm_app.c ----------------------------------------------------------------------------- */

/* Message idx has gone wrong. */
void weft_swarm_fail_msg(struct swarm *s, uint32_t idx, const char *wrong);

void weft_swarm_connect(struct swarm *s, uint32_t host, uint32_t to, uint64_t now_ns);

/* What was posted for a peer that is gone must be posted anew: its number will be another's. */
void weft_swarm_take_back(struct swarm *s, uint32_t host, uint32_t peer);

/* One expectation for all messages that this host has handed up and does not tell apart. */
void weft_swarm_post_shared(struct swarm *s, uint32_t host);

/* Do everything whose time has come at this host. */
void weft_swarm_advance(struct swarm *s, uint32_t host, uint64_t now_ns);

/* A caller-driven host leaves its wait when nothing is outstanding, and computes. */
void weft_swarm_maybe_sleep(struct swarm *s, uint32_t host, uint64_t now_ns);

void weft_swarm_on_wake(void *swarm, uint32_t host, uint64_t now_ns);

/* ---- swarm_event.c --------------------------------------------------------------------------- */

void weft_swarm_on_event(void *swarm, uint32_t host, const struct weft_msg_event *event,
                         uint64_t now_ns);

/* ---- swarm_check.c --------------------------------------------------------------------------- */

/* True when all is closed; else, if asked, the first failure says what is not. */
bool weft_swarm_all_closed(struct swarm *s, bool complain);

/* Memory, counters and the network, when all is closed. */
void weft_swarm_check_end(struct swarm *s);

#endif
