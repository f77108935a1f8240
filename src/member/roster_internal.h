/* Private state of a roster, shared by its files. Internal to these files.
 *
 *     roster.c          requests, the list, and time
 *     roster_journal.c  records for the journal, and restoring them
 *     leases.h          ranks and shards, and their holders aggregator_list.h the aggregators
 */
#ifndef WEFT_MEMBER_ROSTER_INTERNAL_H
#define WEFT_MEMBER_ROSTER_INTERNAL_H

#include "member/aggregator_list.h"
#include "member/leases.h"
#include "member/roster.h"

struct weft_roster {
    struct weft_roster_config config;
    struct weft_roster_counters counters;
    struct weft_leases leases;
    struct weft_aggregator_list aggregators;
    char job[WEFT_MEMBER_JOB_BYTES];
    bool has_job;
};

/* roster.c: these return a status of the reply */

/* The job, its workers and its shards are set by the first member that knows them; all others must
 * agree. */
uint16_t weft_roster_agree(struct weft_roster *roster, const struct weft_member_request *request);
/* Does the job have the rank or the shards in the request? */
uint16_t weft_roster_in_range(const struct weft_roster *roster,
                              const struct weft_member_request *request);
/* A lease for a member that has none; *entry_p is written with OK only. epoch: of a record; 0 = a
 * new one. A refusal sets retry_ms, detail and the holder's address in the reply. */
uint16_t weft_roster_grant(struct weft_roster *roster, const struct weft_member_request *request,
                           uint64_t epoch, uint64_t now_ns, struct weft_member_reply *reply,
                           struct weft_lease **entry_p);

bool weft_roster_epoch_is_likely(const struct weft_roster *roster, uint64_t claimed);
void weft_roster_renew(struct weft_roster *roster, struct weft_lease *entry, uint64_t now_ns);

/* roster_journal.c */

/* A lease as a request for the same lease: for the journal. */
struct weft_member_request weft_roster_record_of(const struct weft_roster *roster,
                                                 const struct weft_lease *entry);

#endif
