#include "member/leases.h"

#include "base/prng.h"

#include <stdlib.h>
#include <string.h>

weft_status weft_leases_init(struct weft_leases *leases, uint32_t members_max, uint32_t workers_max,
                             uint32_t shards_max)
{
    *leases = (struct weft_leases){
        .entries = calloc(members_max, sizeof(*leases->entries)),
        .shards = calloc(shards_max, sizeof(*leases->shards)),
        .done = calloc(workers_max, sizeof(*leases->done)),
        .members_max = members_max,
    };
    bool have = leases->entries != NULL && leases->shards != NULL && leases->done != NULL;
    return have ? WEFT_OK : WEFT_NOMEM;
}

void weft_leases_fini(struct weft_leases *leases)
{
    free(leases->entries);
    free(leases->shards);
    free(leases->done);
}

/* ---- holders of leases ----------------------------------------------------------------------- */

struct weft_lease *weft_leases_find(const struct weft_leases *leases, uint64_t member)
{
    for (uint32_t i = 0; i < leases->members_max; i++) {
        if (leases->entries[i].member == member) {
            return &leases->entries[i];
        }
    }
    return NULL;
}

struct weft_lease *weft_leases_find_worker(const struct weft_leases *leases, uint32_t rank)
{
    for (uint32_t i = 0; i < leases->members_max; i++) {
        struct weft_lease *entry = &leases->entries[i];
        if (entry->member != 0 && entry->role == WEFT_ROLE_WORKER && entry->rank == rank) {
            return entry;
        }
    }
    return NULL;
}

struct weft_lease *weft_leases_next_to_expire(const struct weft_leases *leases)
{
    struct weft_lease *next = NULL;
    for (uint32_t i = 0; i < leases->members_max; i++) {
        struct weft_lease *entry = &leases->entries[i];
        if (entry->member != 0 && !entry->expired &&
            (next == NULL || entry->until_ns < next->until_ns)) {
            next = entry;
        }
    }
    return next;
}

uint64_t weft_leases_next_end_ns(const struct weft_leases *leases, uint8_t role)
{
    uint64_t end_ns = WEFT_NEVER;
    for (uint32_t i = 0; i < leases->members_max; i++) {
        const struct weft_lease *entry = &leases->entries[i];
        if (entry->member != 0 && entry->role == role && entry->until_ns < end_ns) {
            end_ns = entry->until_ns;
        }
    }
    return end_ns;
}

uint32_t weft_leases_count(const struct weft_leases *leases)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < leases->members_max; i++) {
        count += leases->entries[i].member != 0;
    }
    return count;
}

/* ---- free ranks and shards ------------------------------------------------------------------- */

uint32_t weft_leases_choose_rank(const struct weft_leases *leases)
{
    for (uint32_t rank = 0; rank < leases->workers; rank++) {
        if (weft_leases_find_worker(leases, rank) == NULL && !leases->done[rank]) {
            return rank;
        }
    }
    for (uint32_t rank = 0; rank < leases->workers; rank++) {
        const struct weft_lease *holder = weft_leases_find_worker(leases, rank);
        if (holder != NULL && holder->expired) {
            return rank;
        }
    }
    return WEFT_MEMBER_NONE;
}

static bool run_is_free(const struct weft_leases *leases, uint32_t first, uint32_t span,
                        bool expired_too)
{
    for (uint32_t s = first; s < first + span; s++) {
        const struct weft_lease *holder = leases->shards[s].holder;
        if (holder != NULL && !(expired_too && holder->expired)) {
            return false;
        }
    }
    return true;
}

/* Runs begin at multiples of their length, so that servers of equal size leave no gaps. */
uint32_t weft_leases_choose_first(const struct weft_leases *leases, uint32_t span)
{
    for (unsigned pass = 0; pass < 2; pass++) {
        for (uint32_t first = 0; first + span <= leases->shard_count; first += span) {
            if (run_is_free(leases, first, span, pass == 1)) {
                return first;
            }
        }
    }
    return WEFT_MEMBER_NONE;
}

/* ---- changes --------------------------------------------------------------------------------- */

struct weft_lease *weft_leases_remove_expired(struct weft_leases *leases, uint32_t rank,
                                              uint32_t first, uint32_t span, uint32_t *detail_p)
{
    for (uint32_t s = first; span > 0 && s < first + span; s++) {
        struct weft_lease *holder = leases->shards[s].holder;
        if (holder != NULL && !holder->expired) {
            *detail_p = s;
            return holder;
        }
    }
    for (uint32_t s = first; span > 0 && s < first + span; s++) {
        if (leases->shards[s].holder != NULL) {
            weft_leases_remove(leases, leases->shards[s].holder);
        }
    }
    struct weft_lease *holder = span == 0 ? weft_leases_find_worker(leases, rank) : NULL;
    if (holder != NULL && !holder->expired) {
        *detail_p = rank;
        return holder;
    }
    if (holder != NULL) {
        weft_leases_remove(leases, holder);
    }
    return NULL;
}

struct weft_lease *weft_leases_make_room(struct weft_leases *leases)
{
    struct weft_lease *entry = weft_leases_find(leases, 0);
    for (uint32_t i = 0; entry == NULL && i < leases->members_max; i++) {
        if (leases->entries[i].expired && leases->entries[i].role == WEFT_ROLE_WORKER) {
            entry = &leases->entries[i];
            weft_leases_remove(leases, entry);
        }
    }
    return entry;
}

void weft_leases_grant(struct weft_leases *leases, struct weft_lease *entry,
                       const struct weft_lease *holder)
{
    *entry = *holder;
    weft_leases_note_epoch(leases, holder->epoch);
    for (uint32_t s = 0; s < entry->span; s++) {
        leases->shards[entry->first + s] = (struct weft_lease_shard){.holder = entry};
    }
    if (entry->role != WEFT_ROLE_SERVER) {
        weft_leases_set_done(leases, entry->rank, false);
    }
}

void weft_leases_remove(struct weft_leases *leases, struct weft_lease *lease)
{
    for (uint32_t s = 0; lease->role == WEFT_ROLE_SERVER && s < lease->span; s++) {
        leases->shards[lease->first + s] = (struct weft_lease_shard){.holder = NULL};
    }
    *lease = (struct weft_lease){0};
}

void weft_leases_set_done(struct weft_leases *leases, uint32_t rank, bool done)
{
    leases->done[rank] = done;
}

void weft_leases_note_epoch(struct weft_leases *leases, uint64_t epoch)
{
    leases->epoch_last = epoch > leases->epoch_last ? epoch : leases->epoch_last;
}

void weft_leases_set_all_expired(struct weft_leases *leases, bool expired)
{
    for (uint32_t i = 0; i < leases->members_max; i++) {
        leases->entries[i].expired = expired && leases->entries[i].member != 0;
    }
}

bool weft_leases_set_addresses(struct weft_leases *leases, const struct weft_lease *lease,
                               const struct weft_member_request *request)
{
    bool changed = false;
    for (uint32_t i = 0; i < request->count; i++) {
        struct weft_member_address *address = &leases->shards[lease->first + i].address;
        const struct weft_member_address *now = &request->addresses[i];
        if (address->port != now->port || memcmp(address->ip, now->ip, sizeof(now->ip)) != 0) {
            *address = *now;
            changed = true;
        }
    }
    return changed;
}

/* ---- the list of all shards ------------------------------------------------------------------ */

bool weft_leases_complete(const struct weft_leases *leases)
{
    for (uint32_t s = 0; s < leases->shard_count; s++) {
        const struct weft_lease_shard *shard = &leases->shards[s];
        if (shard->holder == NULL || shard->holder->expired || shard->address.port == 0) {
            return false;
        }
    }
    return leases->shard_count > 0;
}

/* Computed from the content, so that a restarted coordinator gives the same list the same
 * version. */
uint64_t weft_leases_version(const struct weft_leases *leases)
{
    uint64_t version = leases->shard_count;
    if (!weft_leases_complete(leases)) {
        return 0;
    }
    for (uint32_t s = 0; s < leases->shard_count; s++) {
        const struct weft_lease_shard *shard = &leases->shards[s];
        uint64_t words[2];
        memcpy(words, shard->address.ip, sizeof(words));
        version = weft_mix64(version ^ words[0]);
        version = weft_mix64(version ^ words[1]);
        version = weft_mix64(version ^ shard->address.port ^ shard->holder->epoch << 16);
    }
    return version != 0 ? version : 1;
}

bool weft_leases_all_done(const struct weft_leases *leases)
{
    for (uint32_t rank = 0; rank < leases->workers; rank++) {
        if (!leases->done[rank]) {
            return false;
        }
    }
    return leases->workers > 0;
}
