/* A scheduler for a simulated parameter server that decides at random: late, in any order of
 * workers and shards, at any rate, and at different times for the shards of one update. It drops
 * updates before and after grants, and releases some updates without a grant. In some jobs it
 * admits reads, late, and sometimes stops doing so. The checks do not depend on its decisions. */
#include "sim/swarm_ps_internal.h"

#include "ps/update.h"

#include <inttypes.h>

/* If shards die, it often makes no decision for as long as a death and the recovery take. */
enum {
    ASK_DELAY_US = 8000,
    ASK_DELAY_DEATHS_US = 80000,
    START_DELAY_US = 4000,
    TRANSFER_DELAY_US = 20000,
    KINDS = 8,
    KIND_DROP = 0,
    KIND_DIRECT = 1
};

/* A worker without a decision for this long sends without a grant. */
static const uint64_t silence_ns = WEFT_NS_PER_S;

/* A dropped push must be distinguishable from a missing one: only if a row identifies the pushes in
 * it, and only drops keep pushes out. */
static bool may_drop(const struct swarm_ps *ps)
{
    return ps->table.flavour == WEFT_SWARM_PLAIN && !ps->table.is_odd && ps->deaths == 0;
}

void weft_swarm_ps_sched_draw(struct swarm_ps *ps)
{
    struct weft_prng *prng = &ps->sched_prng;
    weft_prng_split(prng, ps->table.seed, UINT64_C(0x7363686564));
    /* Without replicas, runs with hot rows use aggregators for all of these. Pushes that a
     * scheduler grants are not acknowledged on apply. */
    const bool is_split = ps->via && !ps->replicas && ps->hot_rows > 0;
    ps->scheduled = weft_prng_below(prng, 2) == 0 && !is_split && !ps->applies;
    if (!ps->scheduled) {
        return;
    }
    ps->update_bytes_min = weft_prng_range(prng, 1, 4000);
    ps->can |= weft_prng_below(prng, 4) > 0 ? WEFT_RPC_CAN_UPDATE : 0;
    /* A separate random stream, so that seeds without read admission are unchanged. */
    weft_prng_split(&ps->read_prng, ps->table.seed, UINT64_C(0x7265616473));
    weft_prng_split(&ps->transfer_prng, ps->table.seed, UINT64_C(0x7472616e73666572));
    ps->admits = ps->table.spec.mode != WEFT_TABLE_BSP && weft_prng_below(&ps->read_prng, 2) == 0;
    ps->drops = may_drop(ps);
    ps->delay_max = ps->drops ? (uint32_t)weft_prng_below(prng, 4) : 0;
    /* The second member of a sum has a delay of at least 1. */
    ps->delay_max = ps->drops && ps->via ? (uint32_t)weft_prng_range(prng, 1, 3) : ps->delay_max;
}

/* Every worker waits for its push before it ends its clock, so the update must be marked as
 * complete. */
void weft_swarm_ps_sched_pushed(struct swarm_ps *ps, uint32_t w, uint64_t now_ns)
{
    if (ps->scheduled) {
        weft_ps_update_end(ps->worker[w].client, now_ns);
    }
}

static uint64_t think_ns(struct swarm_ps *ps)
{
    uint64_t most_us = ps->deaths > 0 ? ASK_DELAY_DEATHS_US : ASK_DELAY_US;
    return weft_prng_below(&ps->sched_prng, most_us) * WEFT_NS_PER_US;
}

static void asked(struct swarm_ps *ps, uint32_t w, uint64_t update, uint64_t now_ns)
{
    struct swarm_ps_worker *worker = &ps->worker[w];
    for (int i = 0; i < SWARM_ASKS; i++) {
        if (worker->ask[i].update == 0) {
            const bool unheard = now_ns < ps->sched_back_ns;
            uint64_t at_ns = now_ns + (unheard ? silence_ns : think_ns(ps));
            worker->ask[i] = (struct swarm_ps_ask){
                .update = update, .at_ns = at_ns, .unheard = unheard};
            weft_world_wake(ps->world, ps->shards + w, at_ns);
            return;
        }
    }
    weft_world_fail(ps->world, "worker %" PRIu32 " has more undecided updates than SWARM_ASKS", w);
}

/* Returns true if the decision was in time. */
static bool drop(struct swarm_ps *ps, uint32_t w, uint64_t update, uint64_t now_ns)
{
    weft_status status = weft_ps_update_drop(ps->worker[w].client, update, now_ns);
    if (status != WEFT_OK && status != WEFT_STATE && status != WEFT_NOTFOUND) {
        weft_world_fail(ps->world, "drop of update %" PRIu64 ": %s", update,
                        weft_status_name(status));
    }
    return status == WEFT_OK;
}

static void grant(struct swarm_ps *ps, uint32_t w, uint64_t update, uint32_t shard, uint64_t now_ns)
{
    static const uint64_t rates_bps[] = {0, 2000000, 50000000, 1000000000};
    struct weft_prng *prng = &ps->sched_prng;
    const struct weft_msg_pace pace = {.start_ns = now_ns + weft_prng_below(prng, START_DELAY_US) *
                                                                WEFT_NS_PER_US,
                                       .rate_bps = rates_bps[weft_prng_below(prng, 4)],
                                       .rank = (uint8_t)weft_prng_below(prng, 10)};
    weft_status status = weft_ps_update_grant(ps->worker[w].client, update, shard, &pace, now_ns);
    if (status != WEFT_OK && status != WEFT_NOTFOUND) {
        weft_world_fail(ps->world, "grant of update %" PRIu64 ": %s", update,
                        weft_status_name(status));
    }
}

/* Without replicas all updates, with replicas half of them, are assigned to a sum of this clock,
 * with too few, too many, or the exact number of members. */
static void by_aggregator(struct swarm_ps *ps, uint32_t w, const struct swarm_ps_ask *ask)
{
    struct weft_prng *prng = &ps->sched_prng;
    if (!ps->via || ask->granted != 0 || (ps->replicas && weft_prng_below(prng, 2) == 0)) {
        return;
    }
    const uint32_t group = 1 + ps->worker[w].clock;
    const uint64_t least = weft_min_u64(ps->replicas ? 1 : 2, ps->table.workers);
    const uint32_t members = (uint32_t)weft_prng_range(prng, least, ps->table.workers);
    for (uint32_t s = 0; s < ps->shards; s++) {
        weft_status status =
            weft_ps_update_by(ps->worker[w].client, ask->update, s, 0, group, members);
        if (status != WEFT_OK && status != WEFT_NOTFOUND && status != WEFT_STATE) {
            weft_world_fail(ps->world, "update %" PRIu64 " by an aggregator: %s", ask->update,
                            weft_status_name(status));
        }
    }
}

/* Decide on some shards now and on the rest later, sometimes with a revision. Returns true if
 * nothing is left to decide. */
static bool decide(struct swarm_ps *ps, uint32_t w, struct swarm_ps_ask *ask, uint64_t now_ns)
{
    struct weft_prng *prng = &ps->sched_prng;
    if (ask->unheard && now_ns < ps->sched_back_ns) {
        (void)!weft_ps_update_direct(ps->worker[w].client, ask->update, 0, now_ns);
        return true;
    }
    ask->unheard = false;
    by_aggregator(ps, w, ask);
    uint64_t kind = weft_prng_below(prng, KINDS);
    if (kind == KIND_DROP && ps->drops) {
        ask->drop_said |= drop(ps, w, ask->update, now_ns);
        ask->granted = 0; /* if it was too late, the rest must be granted */
    } else if (kind == KIND_DIRECT) {
        uint64_t rate_bps = weft_prng_below(prng, 2) * 20000000;
        (void)!weft_ps_update_direct(ps->worker[w].client, ask->update, rate_bps, now_ns);
        return true;
    }
    struct weft_ps_update_part part;
    uint32_t all = (UINT32_C(1) << ps->shards) - 1;
    if (weft_ps_update_part(ps->worker[w].client, ask->update, 0, &part) != WEFT_OK ||
        ask->dropped) {
        return true;
    }
    for (uint32_t s = 0; s < ps->shards; s++) {
        if (weft_prng_below(prng, 3) > 0) {
            weft_status status = WEFT_OK;
            if (ask->drop_said) {
                /* Dropped: a grant is refused, which is how a scheduler that lags behind learns of
                 * it. */
                const struct weft_msg_pace pace = {.start_ns = now_ns};
                status = weft_ps_update_grant(ps->worker[w].client, ask->update, s, &pace, now_ns);
                ask->dropped |= status == WEFT_STATE;
            } else {
                grant(ps, w, ask->update, s, now_ns);
            }
            ask->granted |= UINT32_C(1) << s;
        }
    }
    return ask->granted == all || ask->dropped;
}

/* Number of updates of this worker that are not completely decided. */
static uint32_t undecided(const struct swarm_ps_worker *worker)
{
    uint32_t count = 0;
    for (int i = 0; i < SWARM_ASKS; i++) {
        count += worker->ask[i].update != 0;
    }
    return count;
}

void weft_swarm_ps_sched_breaks(struct swarm_ps *ps)
{
    for (uint32_t w = 0; w < ps->table.workers; w++) {
        ps->told.broken += undecided(&ps->worker[w]);
    }
}

/* Earlier decisions remain valid; open ones are decided by the next process or not at all. */
void weft_swarm_ps_sched_dies(struct swarm_ps *ps, uint64_t dead_ns)
{
    const uint64_t now_ns = weft_world_now_ns(ps->world);
    ps->sched_back_ns = now_ns + dead_ns;
    for (uint32_t w = 0; w < ps->table.workers; w++) {
        for (int i = 0; i < SWARM_ASKS; i++) {
            struct swarm_ps_ask *ask = &ps->worker[w].ask[i];
            if (ask->update != 0) {
                ask->unheard = true;
                ask->at_ns = now_ns + silence_ns;
                weft_world_wake(ps->world, ps->shards + w, ask->at_ns);
            }
        }
    }
}

static void count_replayed(struct swarm_ps *ps, struct swarm_ps_worker *worker)
{
    uint64_t again = weft_ps_client_counters(worker->client)->pushes_resent;
    ps->told.replayed += again > worker->resent ? undecided(worker) : 0;
    worker->resent = again;
}

static void admit(struct swarm_ps *ps, uint32_t w, uint64_t now_ns)
{
    enum { SILENT = 8, AGAIN = 4 };
    struct swarm_ps_worker *worker = &ps->worker[w];
    uint32_t clock;
    if (weft_prng_below(&ps->read_prng, AGAIN) == 0) {
        weft_ps_reads_wait(worker->client, weft_prng_below(&ps->read_prng, SILENT) > 0, now_ns);
    }
    (void)weft_ps_read_over(worker->client);
    if (!weft_ps_read_wanted(worker->client, &clock)) {
        return;
    }
    if (worker->read != clock) {
        worker->read = clock;
        worker->read_ns = now_ns + weft_prng_below(&ps->read_prng, ASK_DELAY_US) * WEFT_NS_PER_US;
        weft_world_wake(ps->world, ps->shards + w, worker->read_ns);
    } else if (worker->read_ns <= now_ns) {
        ps->told.reads++;
        weft_ps_read_begin(worker->client, clock, now_ns);
    }
}

void weft_swarm_ps_sched_turn(struct swarm_ps *ps, uint32_t w, uint64_t now_ns)
{
    struct swarm_ps_worker *worker = &ps->worker[w];
    struct weft_ps_update_event event;
    count_replayed(ps, worker);
    while (ps->scheduled && weft_ps_update_poll(worker->client, &event)) {
        if (event.type == WEFT_PS_UPDATE_ASK) {
            asked(ps, w, event.update, now_ns);
        }
        ps->told.asked += event.type == WEFT_PS_UPDATE_ASK;
        ps->told.dropped += event.type == WEFT_PS_UPDATE_OVER && event.dropped;
        ps->told.late += event.type == WEFT_PS_UPDATE_OVER && event.late;
        if (event.type == WEFT_PS_UPDATE_OVER && event.dropped && event.late) {
            weft_world_fail(ps->world, "update %" PRIu64 " was dropped, and refused as late",
                            event.update);
        }
    }
    for (int i = 0; ps->scheduled && i < SWARM_ASKS; i++) {
        struct swarm_ps_ask *ask = &worker->ask[i];
        if (ask->update == 0 || ask->at_ns > now_ns) {
            continue;
        }
        if (decide(ps, w, ask, now_ns)) {
            ask->update = 0;
        } else {
            ask->at_ns = now_ns + 1 + think_ns(ps);
            weft_world_wake(ps->world, ps->shards + w, ask->at_ns);
        }
    }
    if (ps->scheduled && ps->admits) {
        admit(ps, w, now_ns);
    }
}

/* A transfer to a replica that is due is granted within 20 ms, or begins after a second while the
 * scheduler is dead. */
void weft_swarm_ps_sched_transfer(struct swarm_ps *ps, uint32_t s, uint64_t now_ns)
{
    bool waits;
    uint64_t bytes = 0;
    if (!ps->scheduled || !ps->replicas || ps->is_vacant[s]) {
        return;
    }
    weft_shard_transfers_wait(ps->shard[s], true);
    const uint32_t number = weft_shard_transfer_now(ps->shard[s], &waits, &bytes);
    if (!waits) {
        ps->transfer[s] = 0;
        return;
    }
    if (ps->transfer[s] != number) {
        const uint64_t wait_ns =
            weft_prng_below(&ps->transfer_prng, TRANSFER_DELAY_US) * WEFT_NS_PER_US;
        ps->transfer[s] = number;
        ps->transfer_ns[s] = now_ns + (now_ns < ps->sched_back_ns ? silence_ns : wait_ns);
        ps->told.transfers++;
    }
    if (now_ns >= ps->transfer_ns[s]) {
        weft_shard_transfer_begin(ps->shard[s], now_ns);
    } else {
        weft_swarm_ps_wake_at(ps, weft_swarm_ps_shard_host(ps, s), ps->transfer_ns[s], now_ns);
    }
}

/* Check that no update is closed that was opened too far after its base, and none twice. */
void weft_swarm_ps_sched_check_shard(struct swarm_ps *ps, uint32_t s)
{
    struct weft_shard_committed c;
    while (ps->scheduled && weft_shard_take_committed(ps->shard[s], &c)) {
        uint64_t delay = c.late ? 0 : c.number - 1 - c.base;
        ps->told.in_sums += c.members > 1 && delay > 0;
        ps->positions[s] += c.late ? 0 : c.number;
        if ((ps->delay_max > 0 && delay > ps->delay_max) || c.closed > c.opened ||
            c.base > c.number) {
            weft_world_fail(ps->world,
                            "shard %" PRIu32 " closed update %" PRIu64 " of rank %" PRIu32
                            " with base %" PRIu64 ", %" PRIu64 " of %" PRIu64,
                            s, c.number, c.rank, c.base, c.closed, c.opened);
        }
    }
}

void weft_swarm_ps_sched_check_end(struct swarm_ps *ps, uint32_t s)
{
    const struct weft_shard_counters *c = weft_shard_counters(ps->shard[s]);
    if (c->updates_opened != c->updates_closed || (!ps->scheduled && c->updates_opened > 0)) {
        weft_world_fail(ps->world,
                        "shard %" PRIu32 " has opened %" PRIu64 " updates and closed %" PRIu64, s,
                        c->updates_opened, c->updates_closed);
    }
    /* Each update has one position, also in a sum, so delays are conserved. */
    const uint64_t opened = c->updates_opened;
    if (ps->scheduled && ps->deaths == 0 && !ps->replicas &&
        ps->positions[s] != opened * (opened + 1) / 2) {
        weft_world_fail(ps->world,
                        "shard %" PRIu32 ": the positions of %" PRIu64 " updates sum to %" PRIu64,
                        s, opened, ps->positions[s]);
    }
}
