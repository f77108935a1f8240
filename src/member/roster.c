#include "member/roster_internal.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

void weft_roster_config_default(struct weft_roster_config *config_p)
{
    *config_p = (struct weft_roster_config){.members_max = 192,
                                            .workers_max = 64,
                                            .shards_max = 32,
                                            .lease_ns = 5 * WEFT_NS_PER_S};
}

weft_status weft_roster_new(const struct weft_roster_config *config, struct weft_roster **roster_p)
{
    if (config->members_max == 0 || config->workers_max == 0 || config->shards_max == 0 ||
        config->shards_max > WEFT_MEMBER_SHARDS_MAX || config->workers > config->workers_max ||
        config->shards > config->shards_max || config->lease_ns < WEFT_NS_PER_MS ||
        config->lease_ns > UINT32_MAX * WEFT_NS_PER_MS || !weft_job_name_valid(config->job)) {
        return WEFT_INVALID;
    }
    struct weft_roster *roster = calloc(1, sizeof(*roster));
    if (roster == NULL) {
        return WEFT_NOMEM;
    }
    roster->config = *config;
    weft_status leases = weft_leases_init(&roster->leases, config->members_max, config->workers_max,
                                          config->shards_max);
    weft_status aggregators = weft_aggregator_list_init(&roster->aggregators);
    if (leases != WEFT_OK || aggregators != WEFT_OK) {
        weft_roster_free(roster);
        return WEFT_NOMEM;
    }
    roster->leases.workers = config->workers;
    roster->leases.shard_count = config->shards;
    memcpy(roster->job, config->job, sizeof(roster->job));
    roster->has_job = config->job[0] != '\0';
    *roster_p = roster;
    return WEFT_OK;
}

void weft_roster_free(struct weft_roster *roster)
{
    if (roster != NULL) {
        weft_leases_fini(&roster->leases);
        weft_aggregator_list_fini(&roster->aggregators);
        free(roster);
    }
}

/* ---- REGISTER -------------------------------------------------------------------------------- */

static uint32_t ms_until(uint64_t then_ns, uint64_t now_ns)
{
    return then_ns > now_ns ? (uint32_t)((then_ns - now_ns) / WEFT_NS_PER_MS) + 1 : 1;
}

uint16_t weft_roster_agree(struct weft_roster *roster, const struct weft_member_request *request)
{
    struct weft_leases *leases = &roster->leases;
    if (roster->has_job && memcmp(roster->job, request->job, sizeof(roster->job)) != 0) {
        return WEFT_MEMBER_OTHER_JOB;
    }
    if (request->workers != 0 && leases->workers != 0 && request->workers != leases->workers) {
        return WEFT_MEMBER_OTHER_WORKERS;
    }
    if (request->shards != 0 && leases->shard_count != 0 &&
        request->shards != leases->shard_count) {
        return WEFT_MEMBER_OTHER_SHARDS;
    }
    if (request->workers > roster->config.workers_max ||
        request->shards > roster->config.shards_max) {
        return WEFT_MEMBER_RANGE;
    }
    memcpy(roster->job, request->job, sizeof(roster->job));
    roster->has_job = true;
    leases->workers = leases->workers != 0 ? leases->workers : request->workers;
    leases->shard_count = leases->shard_count != 0 ? leases->shard_count : request->shards;
    return WEFT_MEMBER_OK;
}

uint16_t weft_roster_in_range(const struct weft_roster *roster,
                              const struct weft_member_request *request)
{
    bool is_server = request->role == WEFT_ROLE_SERVER;
    uint32_t count = is_server ? roster->leases.shard_count : roster->leases.workers;
    uint32_t wanted = is_server ? request->first : request->rank;
    uint32_t span = is_server ? request->span : 1;
    if (count == 0) {
        return WEFT_MEMBER_SIZE_UNKNOWN;
    }
    bool fits = span <= count && (wanted == WEFT_MEMBER_NONE || wanted <= count - span);
    return fits ? WEFT_MEMBER_OK : WEFT_MEMBER_RANGE;
}

bool weft_roster_epoch_is_likely(const struct weft_roster *roster, uint64_t claimed)
{
    return claimed <= roster->leases.epoch_last ||
           claimed - roster->leases.epoch_last <= WEFT_MEMBER_EPOCHS_AHEAD;
}

/* The claimed epoch if it is above all known ones: a coordinator that lost its journal learns the
 * epochs from the members. Otherwise a new epoch above all known ones. */
static uint64_t next_epoch(const struct weft_roster *roster, uint64_t claimed)
{
    return claimed > roster->leases.epoch_last ? claimed : roster->leases.epoch_last + 1;
}

uint16_t weft_roster_grant(struct weft_roster *roster, const struct weft_member_request *request,
                           uint64_t epoch, uint64_t now_ns, struct weft_member_reply *reply,
                           struct weft_lease **entry_p)
{
    struct weft_leases *leases = &roster->leases;
    bool is_server = request->role == WEFT_ROLE_SERVER;
    uint32_t rank = request->rank;
    uint32_t first = request->first;
    if (is_server ? first == WEFT_MEMBER_NONE : rank == WEFT_MEMBER_NONE) {
        first = is_server ? weft_leases_choose_first(leases, request->span) : WEFT_MEMBER_NONE;
        rank = is_server ? rank : weft_leases_choose_rank(leases);
        if (is_server ? first == WEFT_MEMBER_NONE : rank == WEFT_MEMBER_NONE) {
            reply->retry_ms = ms_until(weft_leases_next_end_ns(leases, request->role), now_ns);
            return WEFT_MEMBER_FULL;
        }
    }
    struct weft_lease *holder =
        weft_leases_remove_expired(leases, rank, first, request->span, &reply->detail);
    if (holder != NULL) {
        reply->retry_ms = ms_until(holder->until_ns, now_ns);
        if (is_server && leases->shards[reply->detail].address.port != 0) {
            reply->addresses[0] = leases->shards[reply->detail].address;
            reply->count = 1;
        }
        /* A member whose lease was given away has been replaced, and must end. */
        return request->epoch != 0 ? WEFT_MEMBER_SUPERSEDED : WEFT_MEMBER_CLAIMED;
    }
    struct weft_lease *entry = weft_leases_make_room(leases);
    if (entry == NULL) {
        reply->retry_ms = ms_until(weft_leases_next_end_ns(leases, request->role), now_ns);
        return WEFT_MEMBER_FULL;
    }
    epoch = epoch != 0 ? epoch : next_epoch(roster, request->epoch);
    const struct weft_lease holds = {.member = request->member,
                                     .incarnation = request->incarnation,
                                     .epoch = epoch,
                                     .rank = rank,
                                     .first = first,
                                     .span = request->span,
                                     .role = request->role};
    weft_leases_grant(leases, entry, &holds);
    roster->counters.granted++;
    *entry_p = entry;
    return WEFT_MEMBER_OK;
}

/* Does a member's request contradict its lease? */
static bool contradicts(const struct weft_lease *entry, const struct weft_member_request *request)
{
    return entry->role != request->role || entry->span != request->span ||
           (request->rank != WEFT_MEMBER_NONE && request->rank != entry->rank) ||
           (request->first != WEFT_MEMBER_NONE && request->first != entry->first);
}

static uint16_t join(struct weft_roster *roster, const struct weft_member_request *request,
                     uint64_t now_ns, struct weft_member_reply *reply, struct weft_lease **entry_p,
                     bool *changed_p)
{
    if (!weft_roster_epoch_is_likely(roster, request->epoch)) {
        return WEFT_MEMBER_BAD_REQUEST;
    }
    uint16_t status = weft_roster_agree(roster, request);
    status = status == WEFT_MEMBER_OK ? weft_roster_in_range(roster, request) : status;
    if (status != WEFT_MEMBER_OK) {
        return status;
    }
    struct weft_lease *entry = weft_leases_find(&roster->leases, request->member);
    if (entry != NULL && request->incarnation < entry->incarnation) {
        return WEFT_MEMBER_SUPERSEDED;
    }
    if (entry != NULL && contradicts(entry, request)) {
        return WEFT_MEMBER_BAD_REQUEST;
    }
    if (entry != NULL && request->incarnation > entry->incarnation) {
        struct weft_member_request anew = *request;
        anew.rank = entry->rank;
        anew.first = entry->first;
        anew.epoch = 0; /* a new lease, so that the former process can be distinguished from this
                         * one */
        weft_leases_remove(&roster->leases, entry);
        status = weft_roster_grant(roster, &anew, 0, now_ns, reply, &entry);
        WEFT_ASSERT(status == WEFT_MEMBER_OK); /* its requested lease was just released */
        roster->counters.taken_over++;
        *changed_p = true;
    } else if (entry == NULL) {
        status = weft_roster_grant(roster, request, 0, now_ns, reply, &entry);
        *changed_p = status == WEFT_MEMBER_OK;
    }
    if (status == WEFT_MEMBER_OK) {
        *changed_p |= weft_leases_set_addresses(&roster->leases, entry, request);
        *entry_p = entry;
    }
    return status;
}

/* ---- HEARTBEAT and LEAVE --------------------------------------------------------------------- */

/* The lease of a HEARTBEAT or LEAVE. */
static uint16_t find_lease(const struct weft_roster *roster,
                           const struct weft_member_request *request, struct weft_lease **entry_p)
{
    struct weft_lease *entry = weft_leases_find(&roster->leases, request->member);
    if (entry != NULL &&
        (request->incarnation < entry->incarnation ||
         (request->incarnation == entry->incarnation && request->epoch != entry->epoch))) {
        return WEFT_MEMBER_SUPERSEDED;
    }
    if (entry == NULL || request->incarnation != entry->incarnation) {
        return WEFT_MEMBER_UNKNOWN_MEMBER;
    }
    *entry_p = entry;
    return WEFT_MEMBER_OK;
}

static void leave(struct weft_roster *roster, struct weft_lease *entry, bool done)
{
    if (entry->role == WEFT_ROLE_WORKER) {
        weft_leases_set_done(&roster->leases, entry->rank, done);
    }
    weft_leases_remove(&roster->leases, entry);
    roster->counters.left++;
}

void weft_roster_renew(struct weft_roster *roster, struct weft_lease *entry, uint64_t now_ns)
{
    roster->counters.reclaimed += entry->expired;
    entry->expired = false;
    entry->until_ns = weft_time_add(now_ns, roster->config.lease_ns);
}

static void fill_in(const struct weft_roster *roster, const struct weft_lease *entry,
                    struct weft_member_reply *reply)
{
    reply->rank = entry != NULL ? entry->rank : WEFT_MEMBER_NONE;
    reply->first = entry != NULL ? entry->first : WEFT_MEMBER_NONE;
    reply->epoch = entry != NULL ? entry->epoch : 0;
    reply->workers = roster->leases.workers;
    reply->shards = roster->leases.shard_count;
    reply->version = weft_roster_version(roster);
    reply->lease_ms = (uint32_t)(roster->config.lease_ns / WEFT_NS_PER_MS);
    bool is_over = roster->config.tell_over && weft_roster_is_over(roster);
    reply->flags = is_over ? WEFT_MEMBER_JOB_DONE : 0;
    memcpy(reply->job, roster->job, sizeof(reply->job));
}

/* ---- aggregators ----------------------------------------------------------------------------- */

static uint16_t aggregator_joins(struct weft_roster *roster,
                                 const struct weft_member_request *request, uint64_t now_ns,
                                 struct weft_member_reply *reply)
{
    uint64_t until_ns = 0;
    uint16_t status = weft_roster_agree(roster, request);
    if (status == WEFT_MEMBER_OK) {
        status = weft_aggregator_list_join(&roster->aggregators, request,
                                           roster->leases.shard_count, &until_ns);
    }
    if (status == WEFT_MEMBER_CLAIMED) {
        reply->detail = request->rank;
        reply->retry_ms = ms_until(until_ns, now_ns);
    }
    return status;
}

static uint16_t aggregator_handle(struct weft_roster *roster, uint8_t op,
                                  const struct weft_member_request *request, uint64_t now_ns,
                                  struct weft_member_reply *reply)
{
    struct weft_aggregator_list *list = &roster->aggregators;
    weft_aggregator_list_expire(list, now_ns);
    uint16_t status = op == WEFT_MEMBER_REGISTER ? aggregator_joins(roster, request, now_ns, reply)
                      : weft_aggregator_list_knows(list, request) ? WEFT_MEMBER_OK
                                                                  : WEFT_MEMBER_UNKNOWN_MEMBER;
    if (status == WEFT_MEMBER_OK) {
        weft_aggregator_list_renew(list, request->rank,
                                   weft_time_add(now_ns, roster->config.lease_ns));
    }
    if (status == WEFT_MEMBER_OK && op == WEFT_MEMBER_LEAVE) {
        weft_aggregator_list_remove(list, request->rank);
    }
    fill_in(roster, NULL, reply);
    reply->rank = request->rank;
    return status;
}

void weft_roster_remove_silent(struct weft_roster *roster, uint64_t now_ns)
{
    weft_aggregator_list_expire(&roster->aggregators, now_ns);
}

uint64_t weft_roster_aggregators_version(const struct weft_roster *roster)
{
    return roster->aggregators.version;
}

void weft_roster_aggregator(const struct weft_roster *roster, uint32_t rank, uint32_t rack,
                            struct weft_member_reply *reply_p)
{
    *reply_p = (struct weft_member_reply){0};
    fill_in(roster, NULL, reply_p);
    reply_p->version = 0;
    (void)weft_aggregator_list_near(&roster->aggregators, rank, rack, reply_p);
}

/* ---- all requests ---------------------------------------------------------------------------- */

bool weft_roster_handle(struct weft_roster *roster, uint8_t op,
                        const struct weft_member_request *request, uint64_t now_ns,
                        struct weft_member_reply *reply_p, struct weft_member_request *record_p)
{
    struct weft_lease *entry = NULL;
    bool changed = false;
    *reply_p = (struct weft_member_reply){.rpc_id = request->rpc_id};
    *record_p = *request;
    if (request->role == WEFT_ROLE_AGGREGATOR) {
        reply_p->status = aggregator_handle(roster, op, request, now_ns, reply_p);
        roster->counters.refused += reply_p->status != WEFT_MEMBER_OK;
        return false;
    }
    if (op == WEFT_MEMBER_REGISTER) {
        reply_p->status = join(roster, request, now_ns, reply_p, &entry, &changed);
    } else {
        reply_p->status = find_lease(roster, request, &entry);
    }
    if (entry != NULL && op != WEFT_MEMBER_LEAVE) {
        weft_roster_renew(roster, entry, now_ns);
    }
    fill_in(roster, entry, reply_p);
    if (reply_p->status != WEFT_MEMBER_OK) {
        roster->counters.refused++;
        return false;
    }
    *record_p = weft_roster_record_of(roster, entry);
    if (op == WEFT_MEMBER_LEAVE) {
        record_p->count = 0;
        record_p->flags = request->flags;
        leave(roster, entry, (request->flags & WEFT_MEMBER_DONE) != 0);
        changed = true;
    }
    return changed;
}

/* ---- the list -------------------------------------------------------------------------------- */

uint64_t weft_roster_version(const struct weft_roster *roster)
{
    return weft_leases_version(&roster->leases);
}

bool weft_roster_list(const struct weft_roster *roster, struct weft_member_reply *reply_p)
{
    if (!weft_leases_complete(&roster->leases)) {
        return false;
    }
    *reply_p = (struct weft_member_reply){.count = roster->leases.shard_count};
    fill_in(roster, NULL, reply_p);
    for (uint32_t s = 0; s < roster->leases.shard_count; s++) {
        reply_p->addresses[s] = roster->leases.shards[s].address;
    }
    return true;
}

/* ---- time ------------------------------------------------------------------------------------ */

uint64_t weft_roster_deadline(const struct weft_roster *roster)
{
    const struct weft_lease *next = weft_leases_next_to_expire(&roster->leases);
    uint64_t first_ns = next != NULL ? next->until_ns : WEFT_NEVER;
    return weft_min_u64(first_ns, weft_aggregator_list_deadline(&roster->aggregators));
}

bool weft_roster_expire_next(struct weft_roster *roster, uint64_t now_ns,
                             struct weft_member_request *who_p)
{
    struct weft_lease *next = weft_leases_next_to_expire(&roster->leases);
    if (next == NULL || next->until_ns > now_ns) {
        return false;
    }
    next->expired = true;
    roster->counters.expired++;
    *who_p = weft_roster_record_of(roster, next);
    return true;
}

uint32_t weft_roster_members(const struct weft_roster *roster)
{
    return weft_leases_count(&roster->leases);
}

uint32_t weft_roster_workers(const struct weft_roster *roster)
{
    return roster->leases.workers;
}

bool weft_roster_is_over(const struct weft_roster *roster)
{
    return weft_leases_all_done(&roster->leases);
}

const struct weft_roster_counters *weft_roster_counters(const struct weft_roster *roster)
{
    return &roster->counters;
}
