/* Replicas in a simulated parameter server: each shard has two hosts. One serves; the process on
 * the other is the shard's replica, or connects to become it. Servers and replicas die. A server
 * dies only while its replica may be promoted, because otherwise the job would end. The replica
 * takes its place later, at its own address, and a new process on the dead one's host becomes its
 * replica.
 *
 * Checks:
 *   at every step  the distance between a shard and its replica is at most the divergence that the
 *                  shard computes, and replies are held if that exceeds the bound
 *   at promotions  what replies have reported and the promoted replica lacks is at most div_max /
 *                  sqrt(shards), as a norm over all weights
 *   at the end     each push is in its rows once, or its worker knows that it is lost
 *                  (swarm_ps_check.c); with div_max 0, except in BSP, none is lost
 *
 * The process around a replica is src/node/standby.c, reproduced here without its driver. */
#include "sim/swarm_ps_internal.h"

#include "base/assert.h"
#include "base/bits.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEATHS_MAX = 5, LOOKS_MAX = 20, COW_BYTES_SMALL = 2000 };

static const uint64_t connect_pause_ns = 5 * WEFT_NS_PER_MS;
static const uint64_t move_check_ns = 200 * WEFT_NS_PER_MS;

/* ---- drawing --------------------------------------------------------------------------------- */

/* With BSP the pushes of the clock in progress are in no weights and therefore in no bound. */
bool weft_swarm_ps_replicas_keep_all(const struct swarm_ps *ps)
{
    return ps->replicas && ps->div_max == 0 && ps->table.spec.mode != WEFT_TABLE_BSP;
}

/* As for deaths without replicas (swarm_ps.c): nothing else may keep pushes out of a row, and if
 * some are lost, rows must identify the others. */
static bool identifies(const struct swarm_ps *ps)
{
    return ps->table.flavour == WEFT_SWARM_PLAIN || ps->table.flavour == WEFT_SWARM_DENSE;
}

static bool may_die(const struct swarm_ps *ps)
{
    return identifies(ps) && ps->table.push_bound_ppm == 0 &&
           (ps->table.flavour == WEFT_SWARM_PLAIN || weft_swarm_ps_replicas_keep_all(ps));
}

void weft_swarm_ps_replicas_draw(struct swarm_ps *ps)
{
    static const uint64_t leases_ms[] = {100, 500, 2000};
    struct weft_prng prng;
    weft_prng_split(&prng, ps->table.seed, UINT64_C(0x7265706c696361));
    if (identifies(ps) && weft_prng_below(&prng, 4) > 0) {
        ps->table.push_bound_ppm = 0;
    }
    /* From a part of one push to more than all of them. */
    const uint64_t pushes = (uint64_t)ps->table.workers * ps->table.clocks;
    ps->div_max = weft_prng_below(&prng, 4) == 0
                      ? 0
                      : exp2((double)weft_prng_below(&prng, pushes + 2)) *
                            sqrt(1 + (double)weft_prng_below(&prng, ps->table.ids));
    ps->replica_lease_ns = leases_ms[weft_prng_below(&prng, 3)] * WEFT_NS_PER_MS;
    ps->replica_cow_bytes = weft_prng_below(&prng, 4) == 0 ? COW_BYTES_SMALL : 1 << 20;
    ps->death_gap_ns = 100 * WEFT_NS_PER_US << weft_prng_below(&prng, 10);
    ps->deaths = may_die(ps) ? (uint32_t)weft_prng_range(&prng, 1, DEATHS_MAX) : 0;
    ps->durability = DURABILITY_NOBODY;
    ps->mortal = false;
    weft_prng_split(&ps->replica_prng, ps->table.seed, UINT64_C(0x7365617473));
    weft_swarm_ps_kills_draw(ps);
}

void weft_swarm_ps_replicas_config(const struct swarm_ps *ps, struct weft_shard_config *config)
{
    if (ps->replicas) {
        config->replicas_max = 1;
        config->div_max = ps->div_max / sqrt(ps->shards);
        config->replica_lease_ns = ps->replica_lease_ns;
        config->replica_cow_bytes = ps->replica_cow_bytes;
        config->checkpoints = false;
        config->chunks_max = 4 * IDS_MAX;
    }
}

/* ---- processes ------------------------------------------------------------------------------- */

static struct swarm_ps_seat *seat_at(struct swarm_ps *ps, uint32_t host, uint32_t *shard_p)
{
    const uint32_t behind = ps->shards + ps->table.workers;
    if (!ps->replicas || (host >= ps->shards && host < behind) || host >= behind + ps->shards) {
        return NULL;
    }
    *shard_p = host < ps->shards ? host : host - behind;
    return &ps->seat[*shard_p][host >= behind];
}

static struct swarm_ps_seat *serving_of(struct swarm_ps *ps, uint32_t s)
{
    return &ps->seat[s][ps->serving[s]];
}

static struct swarm_ps_seat *standby_of(struct swarm_ps *ps, uint32_t s)
{
    return &ps->seat[s][1 - ps->serving[s]];
}

uint32_t weft_swarm_ps_shard_host(const struct swarm_ps *ps, uint32_t s)
{
    return ps->replicas && ps->serving[s] == 1 ? ps->shards + ps->table.workers + s : s;
}

uint32_t weft_swarm_ps_shard_at(const struct swarm_ps *ps, uint32_t host)
{
    return host < ps->shards ? host : host - ps->shards - ps->table.workers;
}

static void shard_free(struct weft_shard *shard)
{
    void *slab;
    while (shard != NULL && (slab = weft_shard_take_slab(shard)) != NULL) {
        free(slab);
    }
    weft_shard_free(shard);
}

static void replica_free(struct swarm_ps_seat *seat)
{
    void *piece;
    while (seat->replica != NULL &&
           (piece = weft_replica_take_piece(seat->replica, true)) != NULL) {
        free(piece);
    }
    weft_replica_free(seat->replica);
    seat->replica = NULL;
}

static struct weft_world_host_config host_config(struct swarm_ps *ps, uint32_t s,
                                                 const struct swarm_ps_seat *seat)
{
    const struct weft_shard_config config = weft_swarm_ps_shard_config(ps, s);
    struct weft_world_host_config host =
        weft_swarm_ps_host_config(ps, seat->host, weft_rpc_name(WEFT_ROLE_SERVER, s),
                                  weft_shard_expects_max(&config) + WEFT_REPLICA_EXPECTS);
    host.ep.incarnation += seat->lives;
    host.ep.seed += seat->lives;
    host.ep.is_standby = 1;
    return host;
}

/* A shard without contents, and the replica in front of it. */
static void make_replica(struct swarm_ps *ps, uint32_t s, struct swarm_ps_seat *seat)
{
    struct weft_msgr msgr = weft_ep_msgr(weft_world_ep(ps->world, seat->host));
    struct weft_replica_config replica;
    ps->lives[s]++; /* gives the process new keys */
    const struct weft_shard_config config = weft_swarm_ps_shard_config(ps, s);
    weft_status status = weft_shard_new(&config, msgr, &seat->shard);
    WEFT_ASSERT(status == WEFT_OK);
    weft_replica_config_default(&replica);
    replica.supply = weft_swarm_ps_give_slabs;
    status = weft_replica_new(&replica, seat->shard, msgr, &seat->replica);
    WEFT_ASSERT(status == WEFT_OK);
}

static void standby_start(struct swarm_ps *ps, uint32_t s, struct swarm_ps_seat *seat)
{
    const uint32_t host = seat->host, lives = seat->lives;
    *seat = (struct swarm_ps_seat){.host = host, .lives = lives, .peer = WEFT_PEER_ANY};
    make_replica(ps, s, seat);
    weft_world_wake(ps->world, host, weft_world_now_ns(ps->world));
}

/* The process at this seat dies; a new one, without contents, starts at its address. */
static void seat_dies(struct swarm_ps *ps, uint32_t s, struct swarm_ps_seat *seat)
{
    seat->lives++;
    const struct weft_world_host_config host = host_config(ps, s, seat);
    weft_status status = weft_world_restart(ps->world, seat->host, &host);
    WEFT_ASSERT(status == WEFT_OK);
    replica_free(seat);
    shard_free(seat->shard);
    standby_start(ps, s, seat);
}

void weft_swarm_ps_replicas_make(struct swarm_ps *ps)
{
    const size_t floats = (size_t)IDS_MAX * ps->table.spec.dim;
    for (uint32_t s = 0; ps->replicas && s < ps->shards; s++) {
        struct swarm_ps_seat *first = &ps->seat[s][0], *second = &ps->seat[s][1];
        *first = (struct swarm_ps_seat){
            .host = s, .shard = ps->shard[s], .has_ended = true, .peer = WEFT_PEER_ANY};
        second->host = ps->shards + ps->table.workers + s;
        const struct weft_world_host_config host = host_config(ps, s, second);
        weft_status status = weft_world_host_init(ps->world, second->host, &host);
        WEFT_ASSERT(status == WEFT_OK);
        standby_start(ps, s, second);
        ps->reported[s] = calloc(floats, sizeof(float));
        WEFT_ASSERT(ps->reported[s] != NULL);
    }
}

void weft_swarm_ps_replicas_free(struct swarm_ps *ps)
{
    for (uint32_t s = 0; ps->replicas && s < ps->shards; s++) {
        replica_free(&ps->seat[s][0]);
        replica_free(&ps->seat[s][1]);
        /* The other one is ps->shard[s]: for a vacant shard, that of the replica to be promoted. */
        shard_free((ps->is_vacant[s] ? serving_of(ps, s) : standby_of(ps, s))->shard);
        free(ps->reported[s]);
    }
}

/* ---- what a replica's process does ----------------------------------------------------------- */

static bool is_serving(struct swarm_ps *ps, uint32_t s, const struct swarm_ps_seat *seat)
{
    return !ps->is_vacant[s] && seat == serving_of(ps, s);
}

/* The shard has a new connection, and sends everything again. */
static void renew(struct swarm_ps *ps, uint32_t s, struct swarm_ps_seat *seat, uint64_t now_ns)
{
    replica_free(seat);
    shard_free(seat->shard);
    seat->is_spent = false;
    make_replica(ps, s, seat);
    (void)weft_replica_event(seat->replica, &seat->up, now_ns);
}

/* Returns true if the event is not for a serving shard. */
static bool standby_takes(struct swarm_ps *ps, uint32_t s, struct swarm_ps_seat *seat,
                          const struct weft_msg_event *event, uint64_t now_ns)
{
    const bool is_mine = event->peer == seat->peer;
    if (seat->replica == NULL) {
        return false;
    }
    if (event->type == WEFT_EVENT_PEER_UP && is_mine && seat->was_up && !seat->has_ended) {
        seat->is_spent = true;
        seat->up = *event;
        return true;
    }
    const bool is_stranger = event->type == WEFT_EVENT_PEER_UP && !is_mine;
    const bool is_taken = !is_stranger && weft_replica_event(seat->replica, event, now_ns);
    seat->was_up |= event->type == WEFT_EVENT_PEER_UP && is_taken;
    if (event->type == WEFT_EVENT_PEER_DOWN && is_mine) {
        seat->peer = WEFT_PEER_ANY;
        seat->is_spent = false;
        seat->connect_ns = now_ns + connect_pause_ns;
        return true;
    }
    if (event->type == WEFT_EVENT_PEER_DOWN && event->peer < SWARM_PEERS) {
        weft_bits_clear(seat->strangers, event->peer);
    }
    if (seat->has_ended) {
        return is_taken || is_mine;
    }
    if (event->type == WEFT_EVENT_PEER_UP && !is_taken) {
        WEFT_ASSERT(event->peer < SWARM_PEERS);
        weft_bits_set(seat->strangers, event->peer);
    }
    if (weft_replica_state(seat->replica)->pieces_bad > 0) {
        weft_world_fail(ps->world, "shard %" PRIu32 ": its replica received an invalid piece", s);
    }
    return true;
}

static void close_strangers(struct swarm_ps *ps, struct swarm_ps_seat *seat, uint64_t now_ns)
{
    for (size_t peer = weft_bits_next_one(seat->strangers, SWARM_PEERS, 0); peer < SWARM_PEERS;
         peer = weft_bits_next_one(seat->strangers, SWARM_PEERS, peer + 1)) {
        weft_bits_clear(seat->strangers, peer);
        weft_ep_close(weft_world_ep(ps->world, seat->host), (weft_peer)peer, now_ns);
    }
}

static void standby_connects(struct swarm_ps *ps, uint32_t s, struct swarm_ps_seat *seat,
                             uint64_t now_ns)
{
    const struct weft_addr addr = weft_world_addr(serving_of(ps, s)->host);
    if (ps->is_vacant[s] || seat->peer != WEFT_PEER_ANY || seat->has_ended) {
        return;
    }
    if (now_ns < seat->connect_ns) {
        weft_swarm_ps_wake_at(ps, seat->host, seat->connect_ns, now_ns);
    } else if (weft_ep_connect(weft_world_ep(ps->world, seat->host), &addr, now_ns, &seat->peer) !=
               WEFT_OK) {
        seat->peer = WEFT_PEER_ANY;
        seat->connect_ns = now_ns + connect_pause_ns;
        weft_swarm_ps_wake_at(ps, seat->host, seat->connect_ns, now_ns);
    }
}

static void standby_progress(struct swarm_ps *ps, uint32_t s, struct swarm_ps_seat *seat,
                             uint64_t now_ns)
{
    void *piece;
    close_strangers(ps, seat, now_ns);
    /* For a vacant shard it has the state to be promoted, and no more data arrives over a
     * connection that the dead server had accepted. */
    if (seat->is_spent && !ps->is_vacant[s]) {
        renew(ps, s, seat, now_ns);
    }
    while (weft_replica_wants_piece(seat->replica)) {
        piece = malloc(WEFT_PIECE_BYTES_MAX);
        WEFT_ASSERT(piece != NULL);
        weft_replica_add_piece(seat->replica, piece);
    }
    weft_replica_progress(seat->replica, now_ns);
    while ((piece = weft_replica_take_piece(seat->replica, false)) != NULL) {
        free(piece);
    }
    standby_connects(ps, s, seat, now_ns);
}

/* ---- the bound ------------------------------------------------------------------------------- */

static float *row_of(struct swarm_ps *ps, const struct weft_shard *shard, uint32_t i, float *row)
{
    const struct weft_table *table = weft_shard_table(shard, ps->table.spec.table);
    if (table == NULL) {
        weft_table_fill_initial(&ps->table.spec, ps->id[i], row);
    } else {
        (void)weft_table_read(table, ps->id[i], row);
    }
    return row;
}

static bool is_of(const struct swarm_ps *ps, uint32_t i, uint32_t s)
{
    return weft_table_spec_shard(&ps->table.spec, ps->id[i], ps->shards) == s;
}

static double distance(struct swarm_ps *ps, uint32_t s)
{
    double squares = 0;
    for (uint32_t i = 0; i < ps->table.ids; i++) {
        float a[WEFT_RPC_DIM_MAX], b[WEFT_RPC_DIM_MAX];
        if (!is_of(ps, i, s)) {
            continue;
        }
        (void)row_of(ps, ps->shard[s], i, a);
        (void)row_of(ps, standby_of(ps, s)->shard, i, b);
        for (uint32_t d = 0; d < ps->table.spec.dim; d++) {
            squares += ((double)a[d] - b[d]) * ((double)a[d] - b[d]);
        }
    }
    return sqrt(squares);
}

/* A row that a server evicts or lets expire changes later at the replica. */
static bool keeps_rows(const struct swarm_ps *ps)
{
    return ps->table.flavour != WEFT_SWARM_EVICTING && ps->table.flavour != WEFT_SWARM_EXPIRING;
}

static void note_reported(struct swarm_ps *ps, uint32_t s)
{
    for (uint32_t i = 0; i < ps->table.ids; i++) {
        if (is_of(ps, i, s)) {
            (void)row_of(ps, ps->shard[s], i, ps->reported[s] + (size_t)i * ps->table.spec.dim);
        }
    }
}

/* Check the serving shard now, and record what its replies may have reported. */
void weft_swarm_ps_replicas_look(struct swarm_ps *ps, uint32_t s)
{
    const double bound = ps->div_max / sqrt(ps->shards);
    struct weft_replication state;
    if (!ps->replicas || ps->is_vacant[s]) {
        return;
    }
    weft_shard_replication(ps->shard[s], &state);
    if (state.divergence_max > bound || (state.ready && state.held != (state.divergence > bound))) {
        weft_world_fail(
            ps->world, "shard %" PRIu32 ": divergence %g, %g at a reply, bound %g, replies %s", s,
            state.divergence, state.divergence_max, bound, state.held ? "held" : "not held");
    }
    if (state.ready && weft_replica_state(standby_of(ps, s)->replica)->ready && keeps_rows(ps)) {
        const double apart = distance(ps, s);
        if (apart > state.divergence * (1 + 1e-6)) {
            weft_world_fail(ps->world,
                            "shard %" PRIu32 " and its replica are %g apart; it computes %g", s,
                            apart, state.divergence);
        }
    }
    if (!state.held) {
        note_reported(ps, s);
    }
}

/* The squared difference between a row and its reported state: in the first column exactly the lost
 * pushes. */
static double lost_of_row(const struct swarm_ps *ps, const float *reported, const float *row)
{
    const uint32_t set = (uint32_t)-reported[0] & ~(uint32_t)-row[0];
    double squares = (double)set * set;
    for (uint32_t d = 1; d < ps->table.spec.dim; d++) {
        const double lacks = (double)row[d] - reported[d];
        squares += lacks > 0 ? lacks * lacks : 0;
    }
    return squares;
}

static void check_lost(struct swarm_ps *ps, uint32_t s, const struct weft_shard *promoted)
{
    const double bound = ps->div_max / sqrt(ps->shards);
    double squares = 0;
    for (uint32_t i = 0; i < ps->table.ids; i++) {
        float row[WEFT_RPC_DIM_MAX];
        if (is_of(ps, i, s)) {
            (void)row_of(ps, promoted, i, row);
            squares += lost_of_row(ps, ps->reported[s] + (size_t)i * ps->table.spec.dim, row);
        }
    }
    if (sqrt(squares) > bound * (1 + 1e-6)) {
        weft_world_fail(ps->world,
                        "shard %" PRIu32 ": the promoted replica lacks %g of what was reported, "
                        "and the bound is %g",
                        s, sqrt(squares), bound);
    }
    ps->told_replicas.lost_some += squares > 0;
    ps->told_replicas.lost_share_max =
        bound > 0 ? fmax(ps->told_replicas.lost_share_max, sqrt(squares) / bound) : 0;
}

/* ---- events of hosts ------------------------------------------------------------------------- */

bool weft_swarm_ps_standby_event(struct swarm_ps *ps, uint32_t host,
                                 const struct weft_msg_event *event, uint64_t now_ns)
{
    uint32_t s;
    struct swarm_ps_seat *seat = seat_at(ps, host, &s);
    return seat != NULL && standby_takes(ps, s, seat, event, now_ns);
}

bool weft_swarm_ps_standby_turn(struct swarm_ps *ps, uint32_t host, uint64_t now_ns)
{
    uint32_t s;
    struct swarm_ps_seat *seat = seat_at(ps, host, &s);
    if (seat == NULL || is_serving(ps, s, seat)) {
        return false;
    }
    standby_progress(ps, s, seat, now_ns);
    return true;
}

void weft_swarm_ps_replicas_turn(struct swarm_ps *ps, uint32_t s, uint64_t now_ns)
{
    if (ps->replicas) {
        weft_swarm_ps_replicas_look(ps, s);
        weft_swarm_ps_wake_at(ps, serving_of(ps, s)->host, weft_shard_deadline(ps->shard[s]),
                              now_ns);
    }
}

/* A worker is connected to a process that no longer serves the shard, and learns that. */
void weft_swarm_ps_replicas_moves(struct swarm_ps *ps, uint32_t w, uint64_t now_ns)
{
    struct swarm_ps_worker *worker = &ps->worker[w];
    const uint32_t host = ps->shards + w;
    for (uint32_t s = 0; ps->replicas && s < ps->shards; s++) {
        uint64_t until_ns;
        if (worker->check_ns[s] == 0) {
            continue;
        }
        if (now_ns < worker->check_ns[s]) {
            weft_swarm_ps_wake_at(ps, host, worker->check_ns[s], now_ns);
            continue;
        }
        worker->check_ns[s] = 0;
        if (worker->at_host[s] != serving_of(ps, s)->host &&
            !weft_ps_client_parked(worker->client, s) &&
            !weft_ps_client_away(worker->client, s, &until_ns)) {
            weft_ep_close(weft_world_ep(ps->world, host), worker->peer[s], now_ns);
        }
    }
}

/* A worker computes before it pushes, so that servers die in the middle of a run. */
bool weft_swarm_ps_computes(struct swarm_ps *ps, uint32_t w, uint64_t now_ns)
{
    struct swarm_ps_worker *worker = &ps->worker[w];
    if (!ps->replicas || worker->phase != PHASE_PUSH) {
        return false;
    }
    if (worker->computed != worker->clock + 1) {
        worker->computed = worker->clock + 1;
        worker->computed_ns = now_ns + weft_prng_below(&ps->replica_prng, 2 * ps->death_gap_ns);
    }
    if (now_ns < worker->computed_ns) {
        weft_swarm_ps_wake_at(ps, ps->shards + w, worker->computed_ns, now_ns);
    }
    return now_ns < worker->computed_ns;
}

/* ---- deaths ---------------------------------------------------------------------------------- */

static void promote(struct swarm_ps *ps, uint32_t s, uint64_t died_ns)
{
    struct swarm_ps_seat *seat = standby_of(ps, s);
    const uint64_t now_ns = weft_world_now_ns(ps->world);
    const enum weft_replica_why why = weft_replica_may_be_promoted(seat->replica, died_ns);
    if (why != WEFT_REPLICA_GOOD) {
        weft_world_fail(ps->world, "shard %" PRIu32 ": its replica could be promoted, but now %s",
                        s, weft_replica_why_text(why));
        return;
    }
    check_lost(ps, s, seat->shard);
    weft_ep_serve(weft_world_ep(ps->world, seat->host));
    weft_replica_end(seat->replica);
    seat->has_ended = true;
    seat->is_spent = false;
    if (seat->peer != WEFT_PEER_ANY) {
        weft_ep_close(weft_world_ep(ps->world, seat->host), seat->peer, now_ns);
    }
    ps->serving[s] = 1 - ps->serving[s];
    ps->is_vacant[s] = false;
    note_reported(ps, s);
    weft_world_wake(ps->world, seat->host, now_ns);
    weft_world_wake(ps->world, standby_of(ps, s)->host, now_ns);
    for (uint32_t w = 0; w < ps->table.workers; w++) {
        ps->worker[w].check_ns[s] = now_ns + 1 + weft_prng_below(&ps->replica_prng, move_check_ns);
        weft_world_wake(ps->world, ps->shards + w, ps->worker[w].check_ns[s]);
    }
    weft_swarm_ps_boxes_look(ps, s, move_check_ns);
    ps->told_replicas.promotions++;
}

static void count(struct swarm_ps *ps, const struct weft_shard *shard)
{
    struct weft_replication state;
    weft_shard_replication(shard, &state);
    ps->told_replicas.transfers += state.transfers;
    ps->told_replicas.failed += state.failed;
    ps->told_replicas.holds += state.holds;
    ps->told_replicas.bytes += state.bytes;
}

static bool may_promote(struct swarm_ps *ps, uint32_t s)
{
    return weft_replica_may_be_promoted(standby_of(ps, s)->replica, weft_world_now_ns(ps->world)) ==
           WEFT_REPLICA_GOOD;
}

static void server_dies(struct swarm_ps *ps, uint32_t s)
{
    struct swarm_ps_seat *seat = serving_of(ps, s);
    weft_swarm_ps_sched_breaks(ps);
    weft_swarm_ps_replicas_look(ps, s);
    count(ps, seat->shard);
    for (uint32_t w = 0; w < ps->table.workers; w++) {
        ps->told_replicas.mid_run += ps->worker[w].phase != PHASE_DONE;
    }
    ps->is_vacant[s] = true;
    ps->shard[s] = standby_of(ps, s)->shard;
    seat_dies(ps, s, seat);
}

static bool wait_for(struct swarm_ps *ps, uint64_t ns)
{
    ps->died_ns = weft_max_u64(ps->died_ns, weft_world_now_ns(ps->world)) + ns;
    if (!weft_swarm_ps_run_until(ps, ps->died_ns)) {
        return false;
    }
    weft_swarm_ps_kills_may(ps);
    return true;
}

/* Kill the server of a shard as soon as allowed; its replica is promoted later. */
static bool run_death(struct swarm_ps *ps, uint32_t s, struct weft_prng *prng)
{
    for (uint32_t i = 0; i < LOOKS_MAX && !may_promote(ps, s); i++) {
        if (!wait_for(ps, 1 + weft_prng_below(prng, ps->death_gap_ns))) {
            return false;
        }
    }
    if (!may_promote(ps, s)) {
        ps->told_replicas.refused++;
        return true;
    }
    server_dies(ps, s);
    const uint64_t died_ns = weft_world_now_ns(ps->world);
    if (!wait_for(ps, weft_prng_below(prng, 2 * ps->death_gap_ns))) {
        return false;
    }
    promote(ps, s, died_ns);
    return true;
}

bool weft_swarm_ps_run_replicas(struct swarm_ps *ps)
{
    struct weft_prng prng;
    weft_prng_split(&prng, ps->table.seed, UINT64_C(0x70726f6d6f7465));
    for (uint32_t i = 0; ps->replicas && i < 2 * DEATHS_MAX; i++) {
        const uint32_t s = (uint32_t)weft_prng_below(&prng, ps->shards);
        if (!wait_for(ps, weft_prng_below(&prng, ps->death_gap_ns))) {
            return false;
        }
        if (weft_prng_below(&prng, 4) == 0) {
            seat_dies(ps, s, standby_of(ps, s));
            ps->told_replicas.replica_deaths++;
        } else if (ps->told_replicas.promotions < ps->deaths && !run_death(ps, s, &prng)) {
            return false;
        }
    }
    return true;
}

/* ---- the end --------------------------------------------------------------------------------- */

const char *weft_swarm_ps_replicas_wait(struct swarm_ps *ps)
{
    for (uint32_t s = 0; ps->replicas && s < ps->shards; s++) {
        struct weft_replication state;
        weft_shard_replication(ps->shard[s], &state);
        if (!state.ready || !weft_replica_state(standby_of(ps, s)->replica)->ready) {
            return "a replica is not ready";
        }
        if (state.held) {
            return "replies are held for a replica that has everything";
        }
    }
    return NULL;
}

void weft_swarm_ps_replicas_end(struct swarm_ps *ps)
{
    for (uint32_t s = 0; ps->replicas && s < ps->shards; s++) {
        weft_swarm_ps_replicas_look(ps, s);
        count(ps, ps->shard[s]);
    }
}
