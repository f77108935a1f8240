/* Records of a roster: what its journal must contain, and restoring it.
 *
 * A record is a request with the chosen rank, shards and epoch. A grant is a REGISTER. Grants are
 * repeated in the order of the journal. A lease that conflicts with a later grant is removed: it
 * had ended by then, because the grant was made. A member that left is a LEAVE. A rewritten journal
 * has a LEAVE with the highest epoch, one for each rank whose work is done, and a REGISTER for each
 * lease.
 */
#include "member/roster_internal.h"

#include <string.h>

struct weft_member_request weft_roster_record_of(const struct weft_roster *roster,
                                                 const struct weft_lease *entry)
{
    struct weft_member_request record = {.rpc_id = 1,
                                         .role = entry->role,
                                         .member = entry->member,
                                         .incarnation = entry->incarnation,
                                         .rank = entry->rank,
                                         .workers = roster->leases.workers,
                                         .shards = roster->leases.shard_count,
                                         .first = entry->first,
                                         .span = entry->span,
                                         .epoch = entry->epoch};
    memcpy(record.job, roster->job, sizeof(record.job));
    bool is_reachable = entry->span > 0;
    for (uint32_t s = 0; s < entry->span; s++) {
        record.addresses[s] = roster->leases.shards[entry->first + s].address;
        is_reachable = is_reachable && record.addresses[s].port != 0;
    }
    record.count = is_reachable ? entry->span : 0;
    return record;
}

weft_status weft_roster_restore(struct weft_roster *roster, uint8_t op,
                                const struct weft_member_request *record, uint64_t now_ns)
{
    struct weft_member_reply reply;
    struct weft_leases *leases = &roster->leases;
    struct weft_lease *entry = weft_leases_find(leases, record->member);
    if (record->role == WEFT_ROLE_AGGREGATOR || /* never in a journal */
        !weft_roster_epoch_is_likely(roster, record->epoch) ||
        weft_roster_agree(roster, record) != WEFT_MEMBER_OK ||
        weft_roster_in_range(roster, record) != WEFT_MEMBER_OK) {
        return WEFT_DATA;
    }
    if (op == WEFT_MEMBER_LEAVE) {
        weft_leases_note_epoch(leases, record->epoch);
        if (record->role == WEFT_ROLE_WORKER && record->rank < leases->workers) {
            weft_leases_set_done(leases, record->rank, (record->flags & WEFT_MEMBER_DONE) != 0);
        }
        if (entry != NULL) {
            weft_leases_remove(leases, entry);
        }
        return WEFT_OK;
    }
    bool is_server = record->role == WEFT_ROLE_SERVER;
    if (op != WEFT_MEMBER_REGISTER || record->epoch == 0 ||
        (is_server ? record->first : record->rank) == WEFT_MEMBER_NONE) {
        return WEFT_DATA;
    }
    /* A later grant means that the rank or shards were free then, for whatever reason. */
    if (entry != NULL) {
        weft_leases_remove(leases, entry);
    }
    weft_leases_set_all_expired(leases, true);
    uint16_t status = weft_roster_grant(roster, record, record->epoch, now_ns, &reply, &entry);
    weft_leases_set_all_expired(leases, false);
    if (status != WEFT_MEMBER_OK) {
        return WEFT_DATA;
    }
    (void)weft_leases_set_addresses(leases, entry, record);
    weft_roster_renew(roster, entry, now_ns);
    return WEFT_OK;
}

/* A LEAVE of a member id that is not in the table. The record contains the highest epoch and, if a
 * rank is given, that the work of this rank is done. */
static struct weft_member_request farewell(const struct weft_roster *roster, uint32_t rank)
{
    uint64_t member = 1;
    while (weft_leases_find(&roster->leases, member) != NULL) {
        member++;
    }
    struct weft_member_request record = {.rpc_id = 1,
                                         .role = WEFT_ROLE_WORKER,
                                         .flags = rank != WEFT_MEMBER_NONE ? WEFT_MEMBER_DONE : 0,
                                         .member = member,
                                         .rank = rank,
                                         .workers = roster->leases.workers,
                                         .shards = roster->leases.shard_count,
                                         .first = WEFT_MEMBER_NONE,
                                         .epoch = roster->leases.epoch_last};
    if (roster->leases.workers == 0) { /* nothing is known about them then */
        record.role = WEFT_ROLE_SERVER;
        record.span = 1;
    }
    memcpy(record.job, roster->job, sizeof(record.job));
    return record;
}

bool weft_roster_record(const struct weft_roster *roster, uint32_t i, uint8_t *op_p,
                        struct weft_member_request *record_p)
{
    if (roster->leases.epoch_last == 0) {
        return false; /* no member ever registered */
    }
    *op_p = WEFT_MEMBER_LEAVE;
    if (i-- == 0) {
        *record_p = farewell(roster, WEFT_MEMBER_NONE);
        return true;
    }
    for (uint32_t rank = 0; rank < roster->leases.workers; rank++) {
        if (roster->leases.done[rank] && i-- == 0) {
            *record_p = farewell(roster, rank);
            return true;
        }
    }
    *op_p = WEFT_MEMBER_REGISTER;
    for (uint32_t e = 0; e < roster->leases.members_max; e++) {
        if (roster->leases.entries[e].member != 0 && i-- == 0) {
            *record_p = weft_roster_record_of(roster, &roster->leases.entries[e]);
            return true;
        }
    }
    return false;
}
