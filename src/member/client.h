/* A member of a job: registers with the coordinator, renews its lease, receives the addresses of
 * the shards.
 *
 * A polled state machine on a message interface. It outlives connections: when the coordinator is
 * lost it requests a new connection from the driver, registers again, and keeps the lease that it
 * had, independently of the process's own work. If another member has its rank or shard, it repeats
 * the request until that one's lease would have ended; a refusal after that is final.
 *
 * Sans-I/O, one thread. The driver connects (io/member_thread.h), and gives the time.
 *
 * Source: docs/PROTOCOL.md section 11.
 */
#ifndef WEFT_MEMBER_CLIENT_H
#define WEFT_MEMBER_CLIENT_H

#include "core/msg.h"
#include "member/format.h"

struct weft_member_client;

struct weft_member_client_config {
    uint8_t role;    /* WEFT_ROLE_SERVER, WEFT_ROLE_WORKER, WEFT_ROLE_AGGREGATOR */
    uint64_t member; /* not 0 */
    uint64_t incarnation;
    uint32_t rank;         /* or WEFT_MEMBER_NONE */
    uint32_t workers;      /* 0 = not known */
    uint32_t shards;       /* the same */
    uint32_t first;        /* server; or WEFT_MEMBER_NONE */
    uint32_t span;         /* server: its shards; worker, aggregator: 0 */
    uint32_t rack;         /* weft_member_rack; 0 = not given */
    bool wants_aggregator; /* worker: it requests an aggregator */
    char job[WEFT_MEMBER_JOB_BYTES];
    uint64_t heartbeat_ns; /* 0 = a fifth of the lease */
};

enum weft_member_phase {
    WEFT_MEMBER_JOINING,    /* not registered yet */
    WEFT_MEMBER_JOINED,     /* has a lease; also while the coordinator is away */
    WEFT_MEMBER_IS_REFUSED, /* final: state.refusal has the reason */
    WEFT_MEMBER_REPLACED,   /* had a lease that another process has now: the process must end */
    WEFT_MEMBER_IS_GONE,    /* has left */
};

struct weft_member_state {
    enum weft_member_phase phase;
    bool is_connected;                /* to the coordinator, now */
    bool is_over;                     /* all workers are done */
    bool is_other;                    /* the process at the coordinator's address is none: */
    uint64_t other;                   /* its name */
    struct weft_member_reply grant;   /* JOINED: the last OK reply to REGISTER */
    struct weft_member_reply refusal; /* the last other reply; status OK = none yet */
    struct weft_member_reply list;    /* version 0 = none yet */
    struct weft_member_reply
        aggregator; /* the aggregator for this worker; count 0 = there is none */
};

enum { WEFT_MEMBER_CLIENT_EXPECTS = 3 };

/* Errors:  WEFT_INVALID  a field is out of range.   WEFT_NOMEM. */
weft_status weft_member_client_new(const struct weft_member_client_config *config,
                                   struct weft_msgr msgr, struct weft_member_client **client_p);
/* Call after the endpoint was closed: the endpoint borrows memory of the client. */
void weft_member_client_free(struct weft_member_client *client);

void weft_member_client_event(struct weft_member_client *client, const struct weft_msg_event *event,
                              uint64_t now_ns);

/* Send what is due. */
void weft_member_client_progress(struct weft_member_client *client, uint64_t now_ns);

/* When progress or a connection is due; WEFT_NEVER = after an event only. */
uint64_t weft_member_client_deadline(const struct weft_member_client *client);

/* A connection is due; the driver passes its peer number to `connecting`, or WEFT_PEER_ANY if it
 * cannot begin one. */
bool weft_member_client_wants_peer(const struct weft_member_client *client, uint64_t now_ns);
void weft_member_client_connecting(struct weft_member_client *client, weft_peer peer,
                                   uint64_t now_ns);

/* The connection to be ended: the process there is not a coordinator. False: there is none. */
bool weft_member_client_take_close(struct weft_member_client *client, weft_peer *peer_p);

/* Server: the shards can be reached at these addresses, `span` of them. */
void weft_member_client_publish(struct weft_member_client *client,
                                const struct weft_member_address *addresses);

/* Aggregator: it has endpoints for this many shards, at these addresses; <=
 *             WEFT_MEMBER_SPAN_MAX. */
void weft_member_client_offer(struct weft_member_client *client,
                              const struct weft_member_address *addresses, uint32_t count);

/* Give the lease back; `done`: the work is finished. Phase IS_GONE follows when the coordinator has
 * confirmed it. */
void weft_member_client_leave(struct weft_member_client *client, bool done);

const struct weft_member_state *weft_member_client_state(const struct weft_member_client *client);

#endif
