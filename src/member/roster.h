/* Who is in the job: the coordinator's state machine.
 *
 * A member holds a *lease* on its rank (a worker) or on its run of shards (a server), numbered by an
 * *epoch* that only grows. Every request renews it. A lease that was not renewed for lease_ns has
 * *expired*: it may then be given to whoever asks, and its shards are no longer listed; a member that
 * speaks again before that gets it back, epoch and all. What is not expired is not given away but to
 * a later incarnation of the same member, which a supervisor names that has seen the former die.
 *
 * Sans-I/O, one thread. Whatever must survive the coordinator comes out as a record (a request with
 * the chosen rank, shards and epoch) to be written before the reply is sent, and goes in again by
 * restore. It does not know addresses from names, and sends nothing (member/service.h does).
 *
 * Aggregators are members of another kind: nothing of the job rests on them, so they have no epoch and are not
 * in the journal. Each is there until it has been silent for lease_ns; one that a new coordinator does not know
 * registers with it at its next heartbeat. A worker is given one of those in its own rack or host, where members
 * say that; else of all: those are spread by rank.
 *
 * It is not consensus: one coordinator, and a server that cannot reach it goes on serving. Who was
 * replaced meanwhile learns that from the answer to its next heartbeat, and must end then.
 *
 * Source: docs/PROTOCOL.md section 11.
 */
#ifndef WEFT_MEMBER_ROSTER_H
#define WEFT_MEMBER_ROSTER_H

#include "member/format.h"

/* A member may claim an epoch so far above all that this coordinator knows of, for a coordinator
 * that lost its journal learns from claims. No job comes to as many leases; what is beyond is a
 * lie, and would use up the numbers. */
#define WEFT_MEMBER_EPOCHS_AHEAD (UINT64_C(1) << 32)

struct weft_roster;

struct weft_roster_config {
    uint32_t members_max;            /* table size */
    uint32_t workers_max;            /* largest W taken */
    uint32_t shards_max;             /* largest S taken, <= WEFT_MEMBER_SHARDS_MAX */
    uint32_t workers;                /* W; 0 = as the first member that knows says */
    uint32_t shards;                 /* S; the same */
    char job[WEFT_MEMBER_JOB_BYTES]; /* "" = as the first member says */
    uint64_t lease_ns;
    bool tell_over; /* tell members when all workers are done (WEFT_MEMBER_JOB_DONE) */
};

/* 192 members, 64 workers and 32 shards at most, leases of 5 s. */
void weft_roster_config_default(struct weft_roster_config *config_p);

struct weft_roster_counters {
    uint64_t granted;    /* leases given */
    uint64_t taken_over; /* of these, from an earlier incarnation of the same member */
    uint64_t expired;
    uint64_t reclaimed;    /* expired ones whose holder spoke again */
    uint64_t refused;    /* requests answered with another status than OK */
    uint64_t left;
};

/* Errors:  WEFT_INVALID  a limit is out of range.   WEFT_NOMEM. */
weft_status weft_roster_new(const struct weft_roster_config *config, struct weft_roster **roster_p);
void weft_roster_free(struct weft_roster *roster);

/* Answer REGISTER, HEARTBEAT or LEAVE.
 *
 * Owns:    *reply_p is written whole, rpc_id included.
 * Returns true when *record_p must be on the disk before the reply is sent. */
bool weft_roster_handle(struct weft_roster *roster, uint8_t op,
                        const struct weft_member_request *request, uint64_t now_ns,
                        struct weft_member_reply *reply_p, struct weft_member_request *record_p);

/* Fill in where all shards are; false (and nothing written) when one is missing. rpc_id is the
 * caller's. */
bool weft_roster_list(const struct weft_roster *roster, struct weft_member_reply *reply_p);

/* Changes when aggregators register, leave or move; not 0. */
uint64_t weft_roster_aggregators_version(const struct weft_roster *roster);

/* The aggregator for this member: count 0, version 0 where there is none. rpc_id is the caller's. */
void weft_roster_aggregator(const struct weft_roster *roster, uint32_t rank, uint32_t rack,
                      struct weft_member_reply *reply_p);

/* Names the content of the list; 0 = it is not complete. */
uint64_t weft_roster_version(const struct weft_roster *roster);

/* Aggregators that have been silent are gone. */
void weft_roster_expire(struct weft_roster *roster, uint64_t now_ns);

/* When the next lease lapses, or the next aggregator is gone; WEFT_NEVER = none. */
uint64_t weft_roster_deadline(const struct weft_roster *roster);

/* Let one lease lapse whose time has come, and say whose; false when there is none. */
bool weft_roster_lapse(struct weft_roster *roster, uint64_t now_ns,
                       struct weft_member_request *who_p);

/* Apply a record of the journal, oldest first; leases begin at now_ns.
 * Errors:  WEFT_DATA  it does not fit this roster (a journal of another job). */
weft_status weft_roster_restore(struct weft_roster *roster, uint8_t op,
                                const struct weft_member_request *record, uint64_t now_ns);

/* The i-th of the records that bring a new roster to this one's state when they are restored in this
 * order: for a journal that is compacted. False: there are no more. */
bool weft_roster_record(const struct weft_roster *roster, uint32_t i, uint8_t *op_p,
                        struct weft_member_request *record_p);

uint32_t weft_roster_members(const struct weft_roster *roster);
uint32_t weft_roster_workers(const struct weft_roster *roster); /* W, 0 = not known */

/* Every worker has left with DONE. */
bool weft_roster_is_over(const struct weft_roster *roster);

const struct weft_roster_counters *weft_roster_counters(const struct weft_roster *roster);

#endif
