/* The members of a job: the coordinator's state machine.
 *
 * A member holds a *lease* on its rank (a worker) or on its run of shards (a server), numbered by
 * an *epoch* that only grows. Every request renews it. A lease that was not renewed for lease_ns
 * has *expired*: it may then be given to any member that requests it, and its shards are no longer
 * listed. If its holder sends a request before that, it gets the lease back, with its epoch. A
 * lease that has not expired is given only to a later incarnation of the same member, started by a
 * supervisor that saw the former one die.
 *
 * Sans-I/O, one thread. State that must survive the coordinator is returned as a record (a request
 * with the chosen rank, shards and epoch), which is written before the reply is sent, and is read
 * back by restore. The roster resolves no names and sends nothing (member/service.h does).
 *
 * Aggregators are members of another kind: the job's state does not depend on them, so they have no
 * epoch and are not in the journal. Each is listed until it has been silent for lease_ns; one that
 * a new coordinator does not know registers with it at its next heartbeat. A worker is assigned an
 * aggregator of its own rack or host, if members report those; otherwise any. Workers are spread
 * over them by rank.
 *
 * It is not consensus: there is one coordinator, and a server that cannot reach it continues to
 * serve. A member that was replaced meanwhile is informed by the reply to its next heartbeat, and
 * must then end.
 *
 * Source: docs/PROTOCOL.md section 11.
 */
#ifndef WEFT_MEMBER_ROSTER_H
#define WEFT_MEMBER_ROSTER_H

#include "member/format.h"

/* A member may claim an epoch at most this far above all that this coordinator knows, because a
 * coordinator that lost its journal learns epochs from claims. No job needs as many leases; a
 * larger claim is false, and would exhaust the numbers. */
#define WEFT_MEMBER_EPOCHS_AHEAD (UINT64_C(1) << 32)

struct weft_roster;

struct weft_roster_config {
    uint32_t members_max;            /* table size */
    uint32_t workers_max;            /* largest W accepted */
    uint32_t shards_max;             /* largest S accepted, <= WEFT_MEMBER_SHARDS_MAX */
    uint32_t workers;                /* W; 0 = from the first member that knows it */
    uint32_t shards;                 /* S; the same */
    char job[WEFT_MEMBER_JOB_BYTES]; /* "" = from the first member */
    uint64_t lease_ns;
    bool tell_over; /* tell members when all workers are done (WEFT_MEMBER_JOB_DONE) */
};

/* 192 members, 64 workers and 32 shards at most, leases of 5 s. */
void weft_roster_config_default(struct weft_roster_config *config_p);

struct weft_roster_counters {
    uint64_t granted;    /* leases given */
    uint64_t taken_over; /* of these, from an earlier incarnation of the same member */
    uint64_t expired;
    uint64_t reclaimed; /* expired ones that their holder renewed */
    uint64_t refused;   /* requests answered with a status other than OK */
    uint64_t left;
};

/* Errors:  WEFT_INVALID  a limit is out of range.   WEFT_NOMEM. */
weft_status weft_roster_new(const struct weft_roster_config *config, struct weft_roster **roster_p);
void weft_roster_free(struct weft_roster *roster);

/* Answer REGISTER, HEARTBEAT or LEAVE.
 *
 * Owns:    *reply_p is written completely, rpc_id included. Returns true when *record_p must be on
 * the disk before the reply is sent. */
bool weft_roster_handle(struct weft_roster *roster, uint8_t op,
                        const struct weft_member_request *request, uint64_t now_ns,
                        struct weft_member_reply *reply_p, struct weft_member_request *record_p);

/* Fill in the addresses of all shards; false (and nothing written) when one is missing. The caller
 * sets rpc_id. */
bool weft_roster_list(const struct weft_roster *roster, struct weft_member_reply *reply_p);

/* Changes when aggregators register, leave or move; not 0. */
uint64_t weft_roster_aggregators_version(const struct weft_roster *roster);

/* The aggregator for this member: count 0, version 0 if there is none. The caller sets rpc_id. */
void weft_roster_aggregator(const struct weft_roster *roster, uint32_t rank, uint32_t rack,
                            struct weft_member_reply *reply_p);

/* Version of the list's content; 0 = it is not complete. */
uint64_t weft_roster_version(const struct weft_roster *roster);

/* Remove aggregators that have been silent for a lease. */
void weft_roster_remove_silent(struct weft_roster *roster, uint64_t now_ns);

/* When the next lease expires, or the next aggregator is removed; WEFT_NEVER = none. */
uint64_t weft_roster_deadline(const struct weft_roster *roster);

/* Let one overdue lease expire, and return its holder; false when there is none. */
bool weft_roster_expire_next(struct weft_roster *roster, uint64_t now_ns,
                             struct weft_member_request *who_p);

/* Apply a record of the journal, oldest first; leases begin at now_ns.
 * Errors:  WEFT_DATA  it does not fit this roster (a journal of another job). */
weft_status weft_roster_restore(struct weft_roster *roster, uint8_t op,
                                const struct weft_member_request *record, uint64_t now_ns);

/* The i-th of the records that, restored in this order, give a new roster this one's state: for
 * rewriting the journal. False: there are no more. */
bool weft_roster_record(const struct weft_roster *roster, uint32_t i, uint8_t *op_p,
                        struct weft_member_request *record_p);

uint32_t weft_roster_members(const struct weft_roster *roster);
uint32_t weft_roster_workers(const struct weft_roster *roster); /* W, 0 = not known */

/* Every worker has left with DONE. */
bool weft_roster_is_over(const struct weft_roster *roster);

const struct weft_roster_counters *weft_roster_counters(const struct weft_roster *roster);

#endif
