#include "member/roster.h"

#include "base/assert.h"
#include "base/prng.h"

#include <stdlib.h>
#include <string.h>

/* One holder of a lease. member 0 = a free place in the table. */
struct entry {
    uint64_t member;
    uint64_t incarnation;
    uint64_t epoch;
    uint64_t until_ns; /* end of the lease */
    uint32_t rank;
    uint32_t first;
    uint32_t span;
    uint8_t role;
    bool lapsed;
};

struct shard {
    struct entry *holder; /* NULL = nobody */
    struct weft_member_address address; /* port 0 = not reachable yet */
};

/* member 0 = nobody has this number. */
struct aggregator {
    uint64_t member;
    uint64_t incarnation;
    uint64_t until_ns;
    uint32_t place;
    uint32_t count; /* of addresses; 0 = not reachable yet */
    struct weft_member_address *addresses; /* (WEFT_MEMBER_SPAN_MAX,) */
};

struct weft_roster {
    struct weft_roster_config config;
    struct weft_roster_counters counters;
    struct entry *entries; /* (members_max,) */
    struct shard *shards;  /* (shards_max,) */
    bool *done;            /* (workers_max,): rank has left with DONE */
    struct aggregator *aggregators; /* (WEFT_MEMBER_AGGREGATORS_MAX,) */
    struct weft_member_address *aggregator_addresses;
    uint64_t aggregators_version;
    uint32_t workers;
    uint32_t shard_count;
    char job[WEFT_MEMBER_JOB_BYTES];
    bool has_job;
    uint64_t epoch_last;
};

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
    roster->entries = calloc(config->members_max, sizeof(*roster->entries));
    roster->shards = calloc(config->shards_max, sizeof(*roster->shards));
    roster->done = calloc(config->workers_max, sizeof(*roster->done));
    roster->aggregators = calloc(WEFT_MEMBER_AGGREGATORS_MAX, sizeof(*roster->aggregators));
    roster->aggregator_addresses =
        calloc((size_t)WEFT_MEMBER_AGGREGATORS_MAX * WEFT_MEMBER_SPAN_MAX,
               sizeof(*roster->aggregator_addresses));
    if (roster->entries == NULL || roster->shards == NULL || roster->done == NULL ||
        roster->aggregators == NULL || roster->aggregator_addresses == NULL) {
        weft_roster_free(roster);
        return WEFT_NOMEM;
    }
    for (uint32_t i = 0; i < WEFT_MEMBER_AGGREGATORS_MAX; i++) {
        roster->aggregators[i].addresses = roster->aggregator_addresses + i * WEFT_MEMBER_SPAN_MAX;
    }
    roster->aggregators_version = 1;
    roster->workers = config->workers;
    roster->shard_count = config->shards;
    memcpy(roster->job, config->job, sizeof(roster->job));
    roster->has_job = config->job[0] != '\0';
    *roster_p = roster;
    return WEFT_OK;
}

void weft_roster_free(struct weft_roster *roster)
{
    if (roster != NULL) {
        free(roster->entries);
        free(roster->shards);
        free(roster->done);
        free(roster->aggregators);
        free(roster->aggregator_addresses);
        free(roster);
    }
}

/* ---- the table ------------------------------------------------------------------------------- */

static struct entry *find_member(const struct weft_roster *roster, uint64_t member)
{
    for (uint32_t i = 0; i < roster->config.members_max; i++) {
        if (roster->entries[i].member == member) {
            return &roster->entries[i];
        }
    }
    return NULL;
}

static struct entry *find_worker(const struct weft_roster *roster, uint32_t rank)
{
    for (uint32_t i = 0; i < roster->config.members_max; i++) {
        struct entry *entry = &roster->entries[i];
        if (entry->member != 0 && entry->role == WEFT_ROLE_WORKER && entry->rank == rank) {
            return entry;
        }
    }
    return NULL;
}

static void remove_entry(struct weft_roster *roster, struct entry *entry)
{
    for (uint32_t s = 0; entry->role == WEFT_ROLE_SERVER && s < entry->span; s++) {
        roster->shards[entry->first + s] = (struct shard){.holder = NULL};
    }
    *entry = (struct entry){0};
}

/* A place for a new member: a free one, else that of a lapsed worker, whom nobody can miss. */
static struct entry *make_room(struct weft_roster *roster)
{
    struct entry *entry = find_member(roster, 0);
    for (uint32_t i = 0; entry == NULL && i < roster->config.members_max; i++) {
        if (roster->entries[i].lapsed && roster->entries[i].role == WEFT_ROLE_WORKER) {
            entry = &roster->entries[i];
            remove_entry(roster, entry);
        }
    }
    return entry;
}

/* ---- what is asked for, and who has it ------------------------------------------------------- */

/* A rank that nobody has, else one whose holder has lapsed; NONE when all live. */
static uint32_t choose_rank(const struct weft_roster *roster)
{
    for (uint32_t rank = 0; rank < roster->workers; rank++) {
        if (find_worker(roster, rank) == NULL && !roster->done[rank]) {
            return rank;
        }
    }
    for (uint32_t rank = 0; rank < roster->workers; rank++) {
        const struct entry *holder = find_worker(roster, rank);
        if (holder != NULL && holder->lapsed) {
            return rank;
        }
    }
    return WEFT_MEMBER_NONE;
}

static bool run_is_free(const struct weft_roster *roster, uint32_t first, uint32_t span,
                        bool lapsed_too)
{
    for (uint32_t s = first; s < first + span; s++) {
        const struct entry *holder = roster->shards[s].holder;
        if (holder != NULL && !(lapsed_too && holder->lapsed)) {
            return false;
        }
    }
    return true;
}

/* Runs begin at multiples of their length, so that servers of one size leave no holes. */
static uint32_t choose_first(const struct weft_roster *roster, uint32_t span)
{
    for (unsigned pass = 0; pass < 2; pass++) {
        for (uint32_t first = 0; first + span <= roster->shard_count; first += span) {
            if (run_is_free(roster, first, span, pass == 1)) {
                return first;
            }
        }
    }
    return WEFT_MEMBER_NONE;
}

/* Whoever holds something of what is asked for and may not be replaced by `member`. Those who may
 * are removed. */
static struct entry *clear_way(struct weft_roster *roster, uint32_t rank, uint32_t first,
                               uint32_t span, uint32_t *detail_p)
{
    for (uint32_t s = first; span > 0 && s < first + span; s++) {
        struct entry *holder = roster->shards[s].holder;
        if (holder != NULL && !holder->lapsed) {
            *detail_p = s;
            return holder;
        }
    }
    for (uint32_t s = first; span > 0 && s < first + span; s++) {
        if (roster->shards[s].holder != NULL) {
            remove_entry(roster, roster->shards[s].holder);
        }
    }
    struct entry *holder = span == 0 ? find_worker(roster, rank) : NULL;
    if (holder != NULL && !holder->lapsed) {
        *detail_p = rank;
        return holder;
    }
    if (holder != NULL) {
        remove_entry(roster, holder);
    }
    return NULL;
}

/* ---- REGISTER -------------------------------------------------------------------------------- */

static uint32_t ms_until(uint64_t then_ns, uint64_t now_ns)
{
    return then_ns > now_ns ? (uint32_t)((then_ns - now_ns) / WEFT_NS_PER_MS) + 1 : 1;
}

/* The first that knows tells; all others must agree. */
static uint16_t agree(struct weft_roster *roster, const struct weft_member_request *request)
{
    if (roster->has_job && memcmp(roster->job, request->job, sizeof(roster->job)) != 0) {
        return WEFT_MEMBER_OTHER_JOB;
    }
    if (request->workers != 0 && roster->workers != 0 && request->workers != roster->workers) {
        return WEFT_MEMBER_OTHER_WORKERS;
    }
    if (request->shards != 0 && roster->shard_count != 0 &&
        request->shards != roster->shard_count) {
        return WEFT_MEMBER_OTHER_SHARDS;
    }
    if (request->workers > roster->config.workers_max ||
        request->shards > roster->config.shards_max) {
        return WEFT_MEMBER_RANGE;
    }
    memcpy(roster->job, request->job, sizeof(roster->job));
    roster->has_job = true;
    roster->workers = roster->workers != 0 ? roster->workers : request->workers;
    roster->shard_count = roster->shard_count != 0 ? roster->shard_count : request->shards;
    return WEFT_MEMBER_OK;
}

static uint16_t in_range(const struct weft_roster *roster,
                         const struct weft_member_request *request)
{
    bool is_server = request->role == WEFT_ROLE_SERVER;
    uint32_t count = is_server ? roster->shard_count : roster->workers;
    uint32_t wanted = is_server ? request->first : request->rank;
    uint32_t span = is_server ? request->span : 1;
    if (count == 0) {
        return WEFT_MEMBER_UNTOLD;
    }
    bool fits = span <= count && (wanted == WEFT_MEMBER_NONE || wanted <= count - span);
    return fits ? WEFT_MEMBER_OK : WEFT_MEMBER_RANGE;
}

/* When the next lease ends for which somebody who found nothing free may wait. */
static uint64_t next_end_ns(const struct weft_roster *roster, uint8_t role)
{
    uint64_t end_ns = WEFT_NEVER;
    for (uint32_t i = 0; i < roster->config.members_max; i++) {
        const struct entry *entry = &roster->entries[i];
        if (entry->member != 0 && entry->role == role && entry->until_ns < end_ns) {
            end_ns = entry->until_ns;
        }
    }
    return end_ns;
}

static bool epoch_is_likely(const struct weft_roster *roster, uint64_t claimed)
{
    return claimed <= roster->epoch_last ||
           claimed - roster->epoch_last <= WEFT_MEMBER_EPOCHS_AHEAD;
}

/* An epoch above all that were given. A coordinator that lost its journal learns from the members
 * how far the numbers were. */
static uint64_t next_epoch(const struct weft_roster *roster, uint64_t claimed)
{
    return claimed > roster->epoch_last ? claimed : roster->epoch_last + 1;
}

/* A lease for somebody who has none. epoch: of a record; 0 = a new one. */
static uint16_t grant(struct weft_roster *roster, const struct weft_member_request *request,
                      uint64_t epoch, uint64_t now_ns, struct weft_member_reply *reply,
                      struct entry **entry_p)
{
    bool is_server = request->role == WEFT_ROLE_SERVER;
    uint32_t rank = request->rank;
    uint32_t first = request->first;
    if (is_server ? first == WEFT_MEMBER_NONE : rank == WEFT_MEMBER_NONE) {
        first = is_server ? choose_first(roster, request->span) : WEFT_MEMBER_NONE;
        rank = is_server ? rank : choose_rank(roster);
        if (is_server ? first == WEFT_MEMBER_NONE : rank == WEFT_MEMBER_NONE) {
            reply->retry_ms = ms_until(next_end_ns(roster, request->role), now_ns);
            return WEFT_MEMBER_FULL;
        }
    }
    struct entry *holder = clear_way(roster, rank, first, request->span, &reply->detail);
    if (holder != NULL) {
        reply->retry_ms = ms_until(holder->until_ns, now_ns);
        if (is_server && roster->shards[reply->detail].address.port != 0) {
            reply->addresses[0] = roster->shards[reply->detail].address;
            reply->count = 1;
        }
        /* Who had a lease and finds it given away has been replaced, and must end. */
        return request->epoch != 0 ? WEFT_MEMBER_SUPERSEDED : WEFT_MEMBER_CLAIMED;
    }
    struct entry *entry = make_room(roster);
    if (entry == NULL) {
        reply->retry_ms = ms_until(next_end_ns(roster, request->role), now_ns);
        return WEFT_MEMBER_FULL;
    }
    epoch = epoch != 0 ? epoch : next_epoch(roster, request->epoch);
    roster->epoch_last = epoch > roster->epoch_last ? epoch : roster->epoch_last;
    *entry = (struct entry){.member = request->member,
                            .incarnation = request->incarnation,
                            .epoch = epoch,
                            .rank = rank,
                            .first = first,
                            .span = request->span,
                            .role = request->role};
    for (uint32_t s = 0; s < entry->span; s++) {
        roster->shards[first + s] = (struct shard){.holder = entry};
    }
    if (!is_server) {
        roster->done[rank] = false;
    }
    roster->counters.granted++;
    *entry_p = entry;
    return WEFT_MEMBER_OK;
}

/* Does what a member asks for contradict what it has? */
static bool contradicts(const struct entry *entry, const struct weft_member_request *request)
{
    return entry->role != request->role || entry->span != request->span ||
           (request->rank != WEFT_MEMBER_NONE && request->rank != entry->rank) ||
           (request->first != WEFT_MEMBER_NONE && request->first != entry->first);
}

static bool place_shards(struct weft_roster *roster, const struct entry *entry,
                         const struct weft_member_request *request)
{
    bool changed = false;
    for (uint32_t i = 0; i < request->count; i++) {
        struct weft_member_address *address = &roster->shards[entry->first + i].address;
        const struct weft_member_address *now = &request->addresses[i];
        if (address->port != now->port || memcmp(address->ip, now->ip, sizeof(now->ip)) != 0) {
            *address = *now;
            changed = true;
        }
    }
    return changed;
}

static uint16_t join(struct weft_roster *roster, const struct weft_member_request *request,
                     uint64_t now_ns, struct weft_member_reply *reply, struct entry **entry_p,
                     bool *changed_p)
{
    if (!epoch_is_likely(roster, request->epoch)) {
        return WEFT_MEMBER_BAD_REQUEST;
    }
    uint16_t status = agree(roster, request);
    status = status == WEFT_MEMBER_OK ? in_range(roster, request) : status;
    if (status != WEFT_MEMBER_OK) {
        return status;
    }
    struct entry *entry = find_member(roster, request->member);
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
        anew.epoch = 0; /* a new lease, so that the former process can be told from this one */
        remove_entry(roster, entry);
        status = grant(roster, &anew, 0, now_ns, reply, &entry);
        WEFT_ASSERT(status == WEFT_MEMBER_OK); /* what it asks for was just given back */
        roster->counters.taken_over++;
        *changed_p = true;
    } else if (entry == NULL) {
        status = grant(roster, request, 0, now_ns, reply, &entry);
        *changed_p = status == WEFT_MEMBER_OK;
    }
    if (status == WEFT_MEMBER_OK) {
        *changed_p |= place_shards(roster, entry, request);
        *entry_p = entry;
    }
    return status;
}

/* ---- the other two --------------------------------------------------------------------------- */

/* The lease that a heartbeat or a farewell is about. */
static uint16_t find_lease(const struct weft_roster *roster,
                           const struct weft_member_request *request, struct entry **entry_p)
{
    struct entry *entry = find_member(roster, request->member);
    if (entry != NULL && (request->incarnation < entry->incarnation ||
                          (request->incarnation == entry->incarnation &&
                           request->epoch != entry->epoch))) {
        return WEFT_MEMBER_SUPERSEDED;
    }
    if (entry == NULL || request->incarnation != entry->incarnation) {
        return WEFT_MEMBER_UNKNOWN_MEMBER;
    }
    *entry_p = entry;
    return WEFT_MEMBER_OK;
}

static void leave(struct weft_roster *roster, struct entry *entry, bool done)
{
    if (entry->role == WEFT_ROLE_WORKER) {
        roster->done[entry->rank] = done;
    }
    remove_entry(roster, entry);
    roster->counters.left++;
}

static void renew(struct weft_roster *roster, struct entry *entry, uint64_t now_ns)
{
    roster->counters.revived += entry->lapsed;
    entry->lapsed = false;
    entry->until_ns = weft_time_add(now_ns, roster->config.lease_ns);
}

static struct weft_member_request record_of(const struct weft_roster *roster,
                                            const struct entry *entry)
{
    struct weft_member_request record = {.rpc_id = 1,
                                         .role = entry->role,
                                         .member = entry->member,
                                         .incarnation = entry->incarnation,
                                         .rank = entry->rank,
                                         .workers = roster->workers,
                                         .shards = roster->shard_count,
                                         .first = entry->first,
                                         .span = entry->span,
                                         .epoch = entry->epoch};
    memcpy(record.job, roster->job, sizeof(record.job));
    bool is_reachable = entry->span > 0;
    for (uint32_t s = 0; s < entry->span; s++) {
        record.addresses[s] = roster->shards[entry->first + s].address;
        is_reachable = is_reachable && record.addresses[s].port != 0;
    }
    record.count = is_reachable ? entry->span : 0;
    return record;
}

static void fill_in(const struct weft_roster *roster, const struct entry *entry,
                    struct weft_member_reply *reply)
{
    reply->rank = entry != NULL ? entry->rank : WEFT_MEMBER_NONE;
    reply->first = entry != NULL ? entry->first : WEFT_MEMBER_NONE;
    reply->epoch = entry != NULL ? entry->epoch : 0;
    reply->workers = roster->workers;
    reply->shards = roster->shard_count;
    reply->version = weft_roster_version(roster);
    reply->lease_ms = (uint32_t)(roster->config.lease_ns / WEFT_NS_PER_MS);
    bool is_over = roster->config.tell_over && weft_roster_is_over(roster);
    reply->flags = is_over ? WEFT_MEMBER_OVER : 0;
    memcpy(reply->job, roster->job, sizeof(reply->job));
}

/* ---- aggregators ----------------------------------------------------------------------------- */

static bool is_there(const struct aggregator *a, const struct weft_member_request *request)
{
    return a->member == request->member && a->incarnation == request->incarnation;
}

static void aggregator_goes(struct weft_roster *roster, struct aggregator *a)
{
    a->member = 0;
    a->count = 0;
    roster->aggregators_version++;
}

static uint16_t aggregator_joins(struct weft_roster *roster,
                                 const struct weft_member_request *request, uint64_t now_ns,
                                 struct weft_member_reply *reply)
{
    struct aggregator *a = &roster->aggregators[request->rank];
    uint16_t status = agree(roster, request);
    if (status != WEFT_MEMBER_OK) {
        return status;
    }
    if (request->count > 0 && request->count != roster->shard_count) {
        return roster->shard_count == 0 ? WEFT_MEMBER_UNTOLD : WEFT_MEMBER_OTHER_SHARDS;
    }
    if (a->member == request->member && request->incarnation < a->incarnation) {
        return WEFT_MEMBER_SUPERSEDED;
    }
    if (a->member != 0 && a->member != request->member) {
        reply->detail = request->rank;
        reply->retry_ms = ms_until(a->until_ns, now_ns);
        return WEFT_MEMBER_CLAIMED;
    }
    a->count = is_there(a, request) && request->count == 0 ? a->count : request->count;
    a->member = request->member;
    a->incarnation = request->incarnation;
    a->place = request->place;
    memcpy(a->addresses, request->addresses, request->count * sizeof(*a->addresses));
    roster->aggregators_version++;
    return WEFT_MEMBER_OK;
}

static uint16_t aggregator_handle(struct weft_roster *roster, uint8_t op,
                                  const struct weft_member_request *request, uint64_t now_ns,
                                  struct weft_member_reply *reply)
{
    struct aggregator *a = &roster->aggregators[request->rank];
    weft_roster_expire(roster, now_ns);
    uint16_t status = op == WEFT_MEMBER_REGISTER ? aggregator_joins(roster, request, now_ns, reply)
                      : is_there(a, request)     ? WEFT_MEMBER_OK
                                                 : WEFT_MEMBER_UNKNOWN_MEMBER;
    if (status == WEFT_MEMBER_OK) {
        a->until_ns = weft_time_add(now_ns, roster->config.lease_ns);
    }
    if (status == WEFT_MEMBER_OK && op == WEFT_MEMBER_LEAVE) {
        aggregator_goes(roster, a);
    }
    const uint32_t detail = reply->detail, retry_ms = reply->retry_ms;
    fill_in(roster, NULL, reply);
    reply->detail = detail;
    reply->retry_ms = retry_ms;
    reply->rank = request->rank;
    return status;
}

void weft_roster_expire(struct weft_roster *roster, uint64_t now_ns)
{
    for (uint32_t i = 0; i < WEFT_MEMBER_AGGREGATORS_MAX; i++) {
        struct aggregator *a = &roster->aggregators[i];
        if (a->member != 0 && a->until_ns <= now_ns) {
            aggregator_goes(roster, a);
        }
    }
}

uint64_t weft_roster_aggregators_version(const struct weft_roster *roster)
{
    return roster->aggregators_version;
}

/* May this one be the aggregator of a member there? place 0: of anybody. */
static bool serves(const struct aggregator *a, uint32_t place)
{
    return a->member != 0 && a->count > 0 && (place == 0 || a->place == place);
}

static uint32_t count_serving(const struct weft_roster *roster, uint32_t place)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < WEFT_MEMBER_AGGREGATORS_MAX; i++) {
        count += serves(&roster->aggregators[i], place);
    }
    return count;
}

void weft_roster_near(const struct weft_roster *roster, uint32_t rank, uint32_t place,
                      struct weft_member_reply *reply_p)
{
    const uint32_t near = place != 0 ? count_serving(roster, place) : 0;
    const uint32_t count = near > 0 ? near : count_serving(roster, 0);
    uint32_t skip = count > 0 ? rank % count : 0, i = 0;
    *reply_p = (struct weft_member_reply){0};
    fill_in(roster, NULL, reply_p);
    reply_p->version = 0;
    for (; count > 0; i++) {
        if (serves(&roster->aggregators[i], near > 0 ? place : 0) && skip-- == 0) {
            break;
        }
    }
    if (count == 0) {
        return;
    }
    const struct aggregator *a = &roster->aggregators[i];
    reply_p->rank = i;
    reply_p->count = a->count;
    reply_p->version = weft_mix64(a->member ^ weft_mix64(a->incarnation));
    memcpy(reply_p->addresses, a->addresses, a->count * sizeof(*a->addresses));
    for (uint32_t s = 0; s < a->count; s++) {
        uint64_t words[2];
        memcpy(words, a->addresses[s].ip, sizeof(words));
        reply_p->version = weft_mix64(reply_p->version ^ words[0] ^ weft_mix64(words[1]));
        reply_p->version = weft_mix64(reply_p->version ^ a->addresses[s].port);
    }
    reply_p->version |= 1;
}

/* ---- all requests ---------------------------------------------------------------------------- */

bool weft_roster_handle(struct weft_roster *roster, uint8_t op,
                        const struct weft_member_request *request, uint64_t now_ns,
                        struct weft_member_reply *reply_p, struct weft_member_request *record_p)
{
    struct entry *entry = NULL;
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
        renew(roster, entry, now_ns);
    }
    fill_in(roster, entry, reply_p);
    if (reply_p->status != WEFT_MEMBER_OK) {
        roster->counters.refused++;
        return false;
    }
    *record_p = record_of(roster, entry);
    if (op == WEFT_MEMBER_LEAVE) {
        record_p->count = 0;
        record_p->flags = request->flags;
        leave(roster, entry, (request->flags & WEFT_MEMBER_DONE) != 0);
        changed = true;
    }
    return changed;
}

/* ---- the list -------------------------------------------------------------------------------- */

static bool is_complete(const struct weft_roster *roster)
{
    for (uint32_t s = 0; s < roster->shard_count; s++) {
        const struct shard *shard = &roster->shards[s];
        if (shard->holder == NULL || shard->holder->lapsed || shard->address.port == 0) {
            return false;
        }
    }
    return roster->shard_count > 0;
}

/* From the content, so that a coordinator that starts anew names the same list the same. */
uint64_t weft_roster_version(const struct weft_roster *roster)
{
    uint64_t version = roster->shard_count;
    if (!is_complete(roster)) {
        return 0;
    }
    for (uint32_t s = 0; s < roster->shard_count; s++) {
        const struct shard *shard = &roster->shards[s];
        uint64_t words[2];
        memcpy(words, shard->address.ip, sizeof(words));
        version = weft_mix64(version ^ words[0]);
        version = weft_mix64(version ^ words[1]);
        version = weft_mix64(version ^ shard->address.port ^ shard->holder->epoch << 16);
    }
    return version != 0 ? version : 1;
}

bool weft_roster_list(const struct weft_roster *roster, struct weft_member_reply *reply_p)
{
    if (!is_complete(roster)) {
        return false;
    }
    *reply_p = (struct weft_member_reply){.count = roster->shard_count};
    fill_in(roster, NULL, reply_p);
    for (uint32_t s = 0; s < roster->shard_count; s++) {
        reply_p->addresses[s] = roster->shards[s].address;
    }
    return true;
}

/* ---- time ------------------------------------------------------------------------------------ */

static struct entry *next_to_lapse(const struct weft_roster *roster)
{
    struct entry *next = NULL;
    for (uint32_t i = 0; i < roster->config.members_max; i++) {
        struct entry *entry = &roster->entries[i];
        if (entry->member != 0 && !entry->lapsed &&
            (next == NULL || entry->until_ns < next->until_ns)) {
            next = entry;
        }
    }
    return next;
}

uint64_t weft_roster_deadline(const struct weft_roster *roster)
{
    const struct entry *next = next_to_lapse(roster);
    uint64_t first_ns = next != NULL ? next->until_ns : WEFT_NEVER;
    for (uint32_t i = 0; i < WEFT_MEMBER_AGGREGATORS_MAX; i++) {
        const struct aggregator *a = &roster->aggregators[i];
        first_ns = a->member != 0 ? weft_min_u64(first_ns, a->until_ns) : first_ns;
    }
    return first_ns;
}

bool weft_roster_lapse(struct weft_roster *roster, uint64_t now_ns,
                       struct weft_member_request *who_p)
{
    struct entry *next = next_to_lapse(roster);
    if (next == NULL || next->until_ns > now_ns) {
        return false;
    }
    next->lapsed = true;
    roster->counters.lapsed++;
    *who_p = record_of(roster, next);
    return true;
}

/* ---- the journal ----------------------------------------------------------------------------- */

weft_status weft_roster_restore(struct weft_roster *roster, uint8_t op,
                                const struct weft_member_request *record, uint64_t now_ns)
{
    struct weft_member_reply reply;
    struct entry *entry = find_member(roster, record->member);
    if (!epoch_is_likely(roster, record->epoch) || agree(roster, record) != WEFT_MEMBER_OK ||
        in_range(roster, record) != WEFT_MEMBER_OK) {
        return WEFT_DATA;
    }
    if (op == WEFT_MEMBER_LEAVE) {
        roster->epoch_last =
            record->epoch > roster->epoch_last ? record->epoch : roster->epoch_last;
        if (record->role == WEFT_ROLE_WORKER && record->rank < roster->workers) {
            roster->done[record->rank] = (record->flags & WEFT_MEMBER_DONE) != 0;
        }
        if (entry != NULL) {
            remove_entry(roster, entry);
        }
        return WEFT_OK;
    }
    bool is_server = record->role == WEFT_ROLE_SERVER;
    if (op != WEFT_MEMBER_REGISTER || record->epoch == 0 ||
        (is_server ? record->first : record->rank) == WEFT_MEMBER_NONE) {
        return WEFT_DATA;
    }
    /* What was granted later was free then, however it became so. */
    if (entry != NULL) {
        remove_entry(roster, entry);
    }
    for (uint32_t i = 0; i < roster->config.members_max; i++) {
        struct entry *other = &roster->entries[i];
        other->lapsed = other->member != 0;
    }
    uint16_t status = grant(roster, record, record->epoch, now_ns, &reply, &entry);
    for (uint32_t i = 0; i < roster->config.members_max; i++) {
        roster->entries[i].lapsed = false;
    }
    if (status != WEFT_MEMBER_OK) {
        return WEFT_DATA;
    }
    (void)place_shards(roster, entry, record);
    renew(roster, entry, now_ns);
    return WEFT_OK;
}

/* A farewell of nobody who is in the table: it says how far the epochs were, and, with a rank, that its
 * work is done. */
static struct weft_member_request farewell(const struct weft_roster *roster, uint32_t rank)
{
    uint64_t member = 1;
    while (find_member(roster, member) != NULL) {
        member++;
    }
    struct weft_member_request record = {.rpc_id = 1,
                                         .role = WEFT_ROLE_WORKER,
                                         .flags = rank != WEFT_MEMBER_NONE ? WEFT_MEMBER_DONE : 0,
                                         .member = member,
                                         .rank = rank,
                                         .workers = roster->workers,
                                         .shards = roster->shard_count,
                                         .first = WEFT_MEMBER_NONE,
                                         .epoch = roster->epoch_last};
    if (roster->workers == 0) { /* of which nothing can be said then */
        record.role = WEFT_ROLE_SERVER;
        record.span = 1;
    }
    memcpy(record.job, roster->job, sizeof(record.job));
    return record;
}

bool weft_roster_record(const struct weft_roster *roster, uint32_t i, uint8_t *op_p,
                        struct weft_member_request *record_p)
{
    if (roster->epoch_last == 0) {
        return false; /* nobody was ever here */
    }
    *op_p = WEFT_MEMBER_LEAVE;
    if (i-- == 0) {
        *record_p = farewell(roster, WEFT_MEMBER_NONE);
        return true;
    }
    for (uint32_t rank = 0; rank < roster->workers; rank++) {
        if (roster->done[rank] && i-- == 0) {
            *record_p = farewell(roster, rank);
            return true;
        }
    }
    *op_p = WEFT_MEMBER_REGISTER;
    for (uint32_t e = 0; e < roster->config.members_max; e++) {
        if (roster->entries[e].member != 0 && i-- == 0) {
            *record_p = record_of(roster, &roster->entries[e]);
            return true;
        }
    }
    return false;
}

uint32_t weft_roster_members(const struct weft_roster *roster)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < roster->config.members_max; i++) {
        count += roster->entries[i].member != 0;
    }
    return count;
}

uint32_t weft_roster_workers(const struct weft_roster *roster)
{
    return roster->workers;
}

bool weft_roster_is_over(const struct weft_roster *roster)
{
    for (uint32_t rank = 0; rank < roster->workers; rank++) {
        if (!roster->done[rank]) {
            return false;
        }
    }
    return roster->workers > 0;
}

const struct weft_roster_counters *weft_roster_counters(const struct weft_roster *roster)
{
    return &roster->counters;
}
