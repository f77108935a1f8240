/* One participant of a run: a process of its own, with sockets of its own, in a host of the lab or
 * on loopback.
 *
 * agent.c receives the coordinator's events, decides when each message is sent, records times and
 * checks contents; a transport (agent_weft.c, agent_tcp.c, agent_udp.c) moves messages. The
 * contents of a message depend on sender and round, so data of an earlier round cannot pass the
 * check. They are generated before the go signal and checked after the round.
 *
 * Not a library: a failure writes its reason to the note and ends the participant.
 */
#ifndef WEFT_CLI_PERF_AGENT_H
#define WEFT_CLI_PERF_AGENT_H

#include "cli/perf/layout.h"
#include "cli/perf/shared.h"
#include "job/channel.h"
#include "node/security.h"

#include <stddef.h>

/* No such end of a flow. */
#define WEFT_PERF_NONE UINT32_MAX

struct weft_perf_agent_ops;
struct weft_perf_live;

/* The settings of a run; the same for all participants, fixed before they are forked. */
struct weft_perf_job {
    const struct weft_perf_agent_ops *transport;
    const struct weft_perf_plan *plan;
    const struct weft_perf_layout *layout;
    uint8_t mode;            /* of weft and tcp: enum weft_wire_mode */
    const char *cc;          /* of weft; NULL = its default */
    const char *tcp_cc;      /* NULL = the kernel's default */
    uint32_t tcp_rto_min_ms; /* 0 = the kernel's */
    uint32_t bytes;          /* of a message: a multiple of 4 */
    uint32_t bound_ppm;
    uint32_t drop_ppm;     /* tcp-raw: fraction of the chunks that the sender omits */
    uint32_t deadline_ms;  /* 0 = none */
    uint32_t idle_ms;      /* udp-raw: a message ends after this time without a datagram */
    uint32_t packet_bytes; /* UDP payload of a full packet */
    uint32_t busy_poll_us;
    uint32_t rounds;
    uint32_t warmup; /* rounds before them */
    uint32_t gap_ms;
    uint32_t round_s;            /* a round that takes longer did not complete */
    uint64_t seed;               /* seed of drops and of send orders */
    struct weft_perf_live *live; /* the coordinator's metrics; never NULL */
    bool realtime;               /* all processes run at a real-time priority */
    bool awake;                  /* and the processors are kept from halting */
    uint32_t busy;               /* CPU-bound processes during the run */
    const char *trace; /* weft: each participant writes this .participant-N; NULL = none */
};

/* This participant's end of a flow. */
struct weft_perf_end {
    uint32_t flow;
    uint32_t other;       /* participant */
    uint8_t *memory;      /* incoming: bytes of a message */
    uint64_t *mask;       /* incoming: chunks that arrived, when chunk_bytes is not 0 */
    uint32_t chunk_bytes; /* incoming: of the mask's grid; 0 = the message is complete */
    bool compact;         /* incoming: missing chunks leave no gap */
    uint32_t trips;       /* received or finished, since go */
};

/* Another participant with which this one has a flow, or two. */
struct weft_perf_peer {
    uint32_t other;
    uint32_t in;   /* from it, as an index of ins; WEFT_PERF_NONE: it does not send */
    uint32_t out;  /* likewise, to it */
    bool connects; /* one connection serves both directions; this end opens it, because it sends
                    * first */
};

struct weft_perf_agent {
    const struct weft_perf_job *job;
    struct weft_perf_shared *shared;
    struct weft_perf_agent_note *note;
    struct weft_error *error; /* the note's */
    uint32_t me;
    struct weft_channel channel;   /* does not block */
    struct weft_security security; /* with the key */
    struct weft_perf_end *ins;
    struct weft_perf_end *outs;
    struct weft_perf_peer *peers;
    uint32_t in_count;
    uint32_t out_count;
    uint32_t peer_count;
    uint32_t *order;  /* outs, as they are sent in this round */
    uint32_t *source; /* what this participant sends: words of a message */
    /* of the current round */
    uint32_t round;
    uint32_t trips; /* rounds without a message of the coordinator between them */
    bool timed;
    uint32_t started; /* messages, over all outs and trips */
    uint32_t finished;
    uint32_t received;
    uint64_t trip_began_ns;
    uint32_t answered; /* queries answered */
    void *self;        /* the transport's */
};

/* A transport. bool: false = failed, and the reason is in the note. */
struct weft_perf_agent_ops {
    const char *name;
    bool secure;  /* accepts --security */
    bool bounded; /* accepts --bound and --deadline */
    bool kernel_tcp;
    size_t self_bytes; /* of agent->self, which is zeros before open and freed after close */
    bool (*open)(struct weft_perf_agent *agent); /* sets note->port */
    bool (*connect)(struct weft_perf_agent *agent);
    bool (*prepare)(struct weft_perf_agent *agent);
    /* Sleep for at most timeout_ns; start messages that may start, receive what has arrived. */
    bool (*turn)(struct weft_perf_agent *agent, uint64_t timeout_ns);
    bool (*busy)(struct weft_perf_agent *agent);    /* messages are outstanding; NULL: never */
    void (*account)(struct weft_perf_agent *agent); /* copy the counters to the note */
    /* All counters; NULL: it has none. */
    void (*counters)(struct weft_perf_agent *agent, struct weft_driver_counters *counters_p);
    void (*close)(struct weft_perf_agent *agent); /* call it after a failed open, too */
};

extern const struct weft_perf_agent_ops weft_perf_agent_weft;
extern const struct weft_perf_agent_ops weft_perf_agent_tcp;
extern const struct weft_perf_agent_ops weft_perf_agent_tcp_raw;
extern const struct weft_perf_agent_ops weft_perf_agent_udp_raw;

/* Run a participant; returns the exit status of its process. The job key is read from `key_fd`, -1
 * in mode none. */
int weft_perf_agent_run(const struct weft_perf_job *job, struct weft_perf_shared *shared,
                        uint32_t me, int channel, int key_fd);

/* ---- for transports -------------------------------------------------------------------------- */

/* The next message that may start now, as an index of outs; it then counts as started.
 * WEFT_PERF_NONE: none now. */
uint32_t weft_perf_agent_next(struct weft_perf_agent *agent);

/* One message of that out is finished at this end. */
void weft_perf_agent_finished(struct weft_perf_agent *agent, uint32_t out);

/* One message of that in has ended: `received` of its `chunks`, `bytes` in total. */
void weft_perf_agent_received(struct weft_perf_agent *agent, uint32_t in, uint32_t received,
                              uint32_t chunks, uint64_t bytes, uint64_t now_ns);

/* This participant has completed its part of the round. */
bool weft_perf_agent_is_through(const struct weft_perf_agent *agent);

/* This end of a flow, as an index of ins; WEFT_PERF_NONE: not of this participant. */
uint32_t weft_perf_agent_in(const struct weft_perf_agent *agent, uint32_t flow);

/* Bind this participant's socket and set its note's port; and the bound address of another one. */
bool weft_perf_agent_bind(struct weft_perf_agent *agent, int fd);
void weft_perf_agent_sockaddr(const struct weft_perf_agent *agent, uint32_t participant,
                              struct sockaddr_in *addr_p);

#endif
