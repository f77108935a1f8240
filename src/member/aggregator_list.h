/* The coordinator's list of a job's aggregators, and the assignment of one to a member.
 * member/roster.h describes how they differ from other members. Internal to the roster's files.
 *
 * Each has a number, its index here, and is listed until it has been silent for a lease.
 */
#ifndef WEFT_MEMBER_AGGREGATOR_LIST_H
#define WEFT_MEMBER_AGGREGATOR_LIST_H

#include "member/format.h"

/* member 0 = this number is free. */
struct weft_aggregator_entry {
    uint64_t member;
    uint64_t incarnation;
    uint64_t until_ns;
    uint32_t rack;
    uint32_t count;                        /* of addresses; 0 = not reachable yet */
    struct weft_member_address *addresses; /* (WEFT_MEMBER_SPAN_MAX,) */
};

struct weft_aggregator_list {
    struct weft_aggregator_entry *entries; /* (WEFT_MEMBER_AGGREGATORS_MAX,) */
    struct weft_member_address *addresses;
    uint64_t version; /* changes when one registers, leaves or moves; not 0 */
};

/* Errors:  WEFT_NOMEM  fini is still needed. */
weft_status weft_aggregator_list_init(struct weft_aggregator_list *list);
void weft_aggregator_list_fini(struct weft_aggregator_list *list);

/* Register the one of request->rank, for a job of `shards` shards (0 = not known).
 *
 * Returns a status of the reply. CLAIMED: *until_ns_p is the time at which the holder is removed if
 * it stays silent. */
uint16_t weft_aggregator_list_join(struct weft_aggregator_list *list,
                                   const struct weft_member_request *request, uint32_t shards,
                                   uint64_t *until_ns_p);
/* Does request->rank belong to this member, of this incarnation? */
bool weft_aggregator_list_knows(const struct weft_aggregator_list *list,
                                const struct weft_member_request *request);
void weft_aggregator_list_renew(struct weft_aggregator_list *list, uint32_t number,
                                uint64_t until_ns);
void weft_aggregator_list_remove(struct weft_aggregator_list *list, uint32_t number);

/* Remove those whose lease has expired. */
void weft_aggregator_list_expire(struct weft_aggregator_list *list, uint64_t now_ns);
/* When the next lease expires; WEFT_NEVER = none. */
uint64_t weft_aggregator_list_deadline(const struct weft_aggregator_list *list);

/* Assign an aggregator to the member of this rank at this place (0 = not known): write its number,
 * its addresses and a version of this content to the reply. False, and nothing written: there is
 * none. */
bool weft_aggregator_list_near(const struct weft_aggregator_list *list, uint32_t rank,
                               uint32_t rack, struct weft_member_reply *reply_p);

#endif
