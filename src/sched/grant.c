/* Transfers: creation with their reservation, end, and replanning. */
#include "sched/internal.h"

#include <string.h>

/* A transfer's id consists of its sequence number and its slot. */
enum { SLOT_BITS = 20 };

void planner_set_add(uint32_t *set, uint32_t *count, uint32_t worker)
{
    set[(*count)++] = worker;
}

void planner_set_remove(uint32_t *set, uint32_t *count, uint32_t worker)
{
    for (uint32_t i = 0; i < *count; i++) {
        if (set[i] == worker) {
            set[i] = set[--*count];
            return;
        }
    }
    WEFT_ASSERT(!"not in the set");
}

struct weft_path planner_path(struct weft_planner *planner, uint32_t from_host, uint32_t to_host)
{
    struct weft_path path = {0};
    if (from_host != to_host) {
        path.links[path.count++] = planner_link(planner, from_host, true);
        path.links[path.count++] = planner_link(planner, to_host, false);
    }
    for (uint32_t i = 0; i < path.count; i++) {
        weft_timeline_trim(path.links[i], planner->now_ns);
    }
    return path;
}

static bool has_decisions(struct weft_planner *planner, uint32_t count)
{
    bool has_room = planner->decisions_max - planner->decisions_count >= count;
    planner->counters.full += !has_room;
    return has_room;
}

bool planner_has_room(struct weft_planner *planner, uint32_t count)
{
    if (planner->free_count < count) {
        planner->counters.full++;
        return false;
    }
    return has_decisions(planner, count);
}

/* ---- decisions ------------------------------------------------------------------------------- */

static struct weft_planner_decision *new_decision(struct weft_planner *planner)
{
    WEFT_ASSERT(planner->decisions_count < planner->decisions_max);
    uint32_t at = (planner->decisions_first + planner->decisions_count++) % planner->decisions_max;
    planner->decisions[at] = (struct weft_planner_decision){.trees = 1};
    return &planner->decisions[at];
}

void planner_announce(struct weft_planner *planner, struct planner_transfer *transfer,
                      bool is_revised)
{
    struct weft_planner_decision *decision = new_decision(planner);
    decision->kind = transfer->kind;
    decision->transfer = transfer->id;
    decision->worker = transfer->worker;
    decision->server = transfer->server;
    decision->from_host = transfer->from_host;
    decision->to_host = transfer->to_host;
    decision->bytes = transfer->bytes;
    decision->position = planner->positions;
    decision->is_revised = is_revised;
    decision->is_cut_through = planner_has(planner, WEFT_PLAN_CUT_THROUGH);
    decision->chunk_bytes = planner->config.chunk_bytes;
    decision->booking = transfer->booking;
    if (transfer->group != WEFT_PLANNER_NONE) {
        const struct planner_group *group = &planner->groups[transfer->group];
        decision->group = group->id;
        decision->members = group->members;
        decision->position = group->position;
    }
    if (transfer->round != 0) {
        decision->group = transfer->round;
        decision->members = transfer->members;
        decision->tree = transfer->tree;
        decision->trees = transfer->trees;
    }
    transfer->is_announced = true;
    transfer->needs_announce = false;
}

void planner_drop(struct weft_planner *planner, uint32_t worker, enum weft_planner_drop why)
{
    struct planner_worker *w = &planner->workers[worker];
    struct weft_planner_counters *counters = &planner->counters;
    struct weft_planner_decision *decision = new_decision(planner);
    decision->kind = WEFT_PLANNER_DROP;
    decision->drop = why;
    decision->worker = worker;
    decision->server = WEFT_PLANNER_NONE;
    decision->from_host = decision->to_host = w->host;
    decision->bytes = w->bytes;
    counters->dropped_late += why == WEFT_PLANNER_DROP_LATE;
    counters->dropped_crowded += why == WEFT_PLANNER_DROP_CROWDED;
    counters->dropped_blocking += why == WEFT_PLANNER_DROP_BLOCKING;
    counters->dropped_divergence += why == WEFT_PLANNER_DROP_DIVERGENCE;
    planner_set_remove(planner->waiting, &planner->waiting_count, worker);
    planner->outstanding--;
    w->phase = WORKER_IDLE;
    w->drops_in_row++;
}

/* ---- transfers ------------------------------------------------------------------------------- */

uint64_t planner_late_at(const struct weft_booking *booking)
{
    uint64_t grace_ns = (booking->end_ns - booking->start_ns) / 8 + 100 * WEFT_NS_PER_US;
    return weft_time_add(booking->end_ns, grace_ns);
}

struct planner_transfer *planner_transfer_new(struct weft_planner *planner,
                                              const struct planner_transfer *what)
{
    struct weft_path path = planner_path(planner, what->from_host, what->to_host);
    if (planner->free_count == 0 || !weft_path_reserve(&path, &what->booking)) {
        planner->counters.full++;
        return NULL;
    }
    uint32_t slot = planner->free_transfers[--planner->free_count];
    struct planner_transfer *transfer = &planner->transfers[slot];
    *transfer = *what;
    transfer->id = ++planner->transfers_made << SLOT_BITS | slot;
    transfer->late_ns = planner_late_at(&transfer->booking);
    transfer->active_idx = planner->active_count;
    planner->active[planner->active_count++] = slot;
    return transfer;
}

void planner_transfer_end(struct weft_planner *planner, struct planner_transfer *transfer)
{
    uint32_t slot = (uint32_t)(transfer - planner->transfers);
    struct weft_path path = planner_path(planner, transfer->from_host, transfer->to_host);
    /* If no timeline step remains for the release, the reservation ends as planned. */
    (void)weft_path_release(&path, &transfer->booking, planner->now_ns);
    uint32_t last = planner->active[--planner->active_count];
    planner->active[transfer->active_idx] = last;
    planner->transfers[last].active_idx = transfer->active_idx;
    transfer->id = 0;
    planner->free_transfers[planner->free_count++] = slot;
}

void planner_end_from(struct weft_planner *planner, uint32_t first)
{
    while (planner->active_count > first) {
        uint32_t last = planner->active[planner->active_count - 1];
        planner_transfer_end(planner, &planner->transfers[last]);
    }
}

struct planner_transfer *planner_transfer_find(struct weft_planner *planner, uint64_t id)
{
    uint64_t slot = id & ((UINT64_C(1) << SLOT_BITS) - 1);
    if (id == 0 || slot >= planner->transfers_max || planner->transfers[slot].id != id) {
        return NULL;
    }
    return &planner->transfers[slot];
}

/* ---- one update, read or aggregate over all servers ------------------------------------------ */

/* The server whose share would complete first, among those that are not `done`. */
static bool first_share(struct weft_planner *planner, struct planner_transfer *what,
                        const uint64_t *server_bytes, bool is_to_servers, uint64_t from_ns,
                        uint64_t done)
{
    bool found = false;
    for (uint32_t s = 0; s < planner->config.servers; s++) {
        if ((done >> s & 1) != 0) {
            continue;
        }
        uint32_t server_host = planner->config.server_host[s];
        uint32_t from = is_to_servers ? what->from_host : server_host;
        uint32_t to = is_to_servers ? server_host : what->to_host;
        struct weft_path path = planner_path(planner, from, to);
        struct weft_booking booking;
        if (!weft_path_fit(&path, weft_max_u64(server_bytes[s], 1), from_ns, WEFT_TIMELINE_BPS_MAX,
                           &booking)) {
            return false;
        }
        if (!found || booking.end_ns < what->booking.end_ns) {
            found = true;
            what->booking = booking;
            what->server = s;
        }
    }
    return found;
}

bool planner_grant_shares(struct weft_planner *planner, struct planner_transfer what,
                          const uint64_t *server_bytes, bool is_to_servers)
{
    uint32_t servers = planner->config.servers, first = planner->active_count;
    uint64_t from_ns = weft_max_u64(what.booking.start_ns, planner->now_ns), done = 0;
    if (!planner_has_room(planner, servers)) {
        return false;
    }
    for (uint32_t i = 0; i < servers; i++) {
        struct planner_transfer part = what;
        bool found = first_share(planner, &part, server_bytes, is_to_servers, from_ns, done);
        if (found) {
            uint32_t server_host = planner->config.server_host[part.server];
            *(is_to_servers ? &part.to_host : &part.from_host) = server_host;
            part.bytes = server_bytes[part.server];
            done |= UINT64_C(1) << part.server;
        }
        if (!found || planner_transfer_new(planner, &part) == NULL) {
            planner_end_from(planner, first);
            return false;
        }
    }
    return true;
}

void planner_announce_from(struct weft_planner *planner, uint32_t first)
{
    for (uint32_t i = first; i < planner->active_count; i++) {
        planner_announce(planner, &planner->transfers[planner->active[i]], false);
    }
}

void planner_depart(struct weft_planner *planner, uint32_t worker)
{
    struct planner_worker *w = &planner->workers[worker];
    planner_set_remove(planner->waiting, &planner->waiting_count, worker);
    planner_set_add(planner->flying, &planner->flying_count, worker);
    w->phase = WORKER_FLYING;
    w->group = WEFT_PLANNER_NONE;
    planner->norm_flying += w->norm;
    w->drops_in_row = 0;
    planner->positions++;
    planner->counters.granted++;
    if (w->end_ns != WEFT_NEVER) {
        uint64_t duration_ns = w->end_ns - w->start_ns, average_ns = planner->duration_ns;
        planner->duration_ns =
            average_ns == 0 ? duration_ns : average_ns - average_ns / 8 + duration_ns / 8;
    }
}

bool planner_grant_direct(struct weft_planner *planner, uint32_t worker)
{
    struct planner_worker *w = &planner->workers[worker];
    uint32_t servers = planner->config.servers, first = planner->active_count;
    struct planner_transfer what = {.kind = WEFT_PLANNER_GRANT,
                                    .worker = worker,
                                    .from_host = w->host,
                                    .group = WEFT_PLANNER_NONE};
    if (!planner_grant_shares(planner, what, planner->server_bytes + (size_t)worker * servers,
                              true)) {
        return false;
    }
    planner_depart(planner, worker);
    w->transfers_left = servers;
    planner_announce_from(planner, first);
    return true;
}

/* End all transfers of a worker. */
void planner_cancel_of(struct weft_planner *planner, uint32_t worker)
{
    for (uint32_t i = planner->active_count; i-- > 0;) {
        struct planner_transfer *transfer = &planner->transfers[planner->active[i]];
        if (transfer->worker == worker) {
            planner_transfer_end(planner, transfer);
        }
    }
}

/* ---- replanning ------------------------------------------------------------------------------ */

/* Reserve the remaining bytes of a transfer from now on. Requires that it has no reservation in the
 * future. */
void planner_rebook(struct weft_planner *planner, struct planner_transfer *transfer,
                    uint64_t left_bytes)
{
    struct weft_path path = planner_path(planner, transfer->from_host, transfer->to_host);
    struct weft_booking booking;
    uint64_t from_ns = weft_max_u64(planner->now_ns, transfer->booking.start_ns);
    if (weft_path_fit(&path, left_bytes, from_ns, WEFT_TIMELINE_BPS_MAX, &booking) &&
        weft_path_reserve(&path, &booking)) {
        transfer->booking = booking;
    } else {
        /* The path is down, or has no free steps: retry a little later. */
        uint64_t again_ns = weft_time_add(planner->now_ns, 10 * WEFT_NS_PER_MS);
        transfer->booking = (struct weft_booking){.start_ns = planner->now_ns, .end_ns = again_ns};
    }
    transfer->late_ns = planner_late_at(&transfer->booking);
}

/* Collect the transfers over a link in scratch, by planned start; returns their number. */
static uint32_t over_link(struct weft_planner *planner, uint32_t host, bool is_up)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < planner->active_count; i++) {
        uint32_t slot = planner->active[i];
        const struct planner_transfer *transfer = &planner->transfers[slot];
        if ((is_up ? transfer->from_host : transfer->to_host) != host) {
            continue;
        }
        uint32_t at = count++;
        while (at > 0 && planner->transfers[planner->scratch[at - 1]].booking.start_ns >
                             transfer->booking.start_ns) {
            planner->scratch[at] = planner->scratch[at - 1];
            at--;
        }
        planner->scratch[at] = slot;
    }
    return count;
}

/* Reserve again, from now on and in the order of scratch, those bytes of each transfer in scratch
 * that have not been sent according to its booking. */
static void replan(struct weft_planner *planner, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct planner_transfer *transfer = &planner->transfers[planner->scratch[i]];
        struct weft_path path = planner_path(planner, transfer->from_host, transfer->to_host);
        transfer->sent += weft_booking_sent(&transfer->booking, transfer->bytes, planner->now_ns);
        if (!weft_path_release(&path, &transfer->booking, planner->now_ns)) {
            planner->counters.full++; /* both bookings remain reserved until the old one ends */
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        struct planner_transfer *transfer = &planner->transfers[planner->scratch[i]];
        uint64_t sent = weft_min_u64(transfer->sent, transfer->bytes);
        planner_rebook(planner, transfer, weft_max_u64(transfer->bytes - sent, 1));
        transfer->needs_announce = transfer->needs_announce || transfer->is_announced;
    }
}

void planner_replan_link(struct weft_planner *planner, uint32_t host, bool is_up)
{
    replan(planner, over_link(planner, host, is_up));
}

void planner_replan_sum(struct weft_planner *planner, uint32_t group)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < planner->active_count; i++) {
        const struct planner_transfer *transfer = &planner->transfers[planner->active[i]];
        if (transfer->group == group && transfer->kind == WEFT_PLANNER_GRANT_GROUP &&
            transfer->is_announced) {
            planner->scratch[count++] = planner->active[i];
        }
    }
    replan(planner, count);
}

void planner_announce_due(struct weft_planner *planner)
{
    for (uint32_t i = 0; i < planner->active_count; i++) {
        struct planner_transfer *transfer = &planner->transfers[planner->active[i]];
        if (transfer->needs_announce) {
            if (!has_decisions(planner, 1)) {
                return;
            }
            planner_announce(planner, transfer, transfer->is_announced);
        }
    }
}

/* Sums that were to follow this one on the server's link, in order, have not begun: the aggregators
 * send when the link is free. They are booked again behind it; otherwise a link without gaps in its
 * plan would stay late. Direct updates begin at their granted time, and are not moved. */
static void move_behind(struct weft_planner *planner, struct planner_transfer *sum,
                        uint64_t left_bytes)
{
    const uint64_t end_ns = sum->booking.end_ns;
    const uint32_t all = over_link(planner, sum->to_host, false);
    uint32_t count = 0;
    for (uint32_t i = 0; i < all; i++) {
        struct planner_transfer *next = &planner->transfers[planner->scratch[i]];
        if (next->kind == WEFT_PLANNER_GRANT_GROUP && next != sum &&
            next->booking.start_ns >= end_ns) {
            struct weft_path path = planner_path(planner, next->from_host, next->to_host);
            planner->counters.full +=
                !weft_path_release(&path, &next->booking, planner->now_ns);
            planner->scratch[count++] = planner->scratch[i];
        }
    }
    planner_rebook(planner, sum, left_bytes);
    for (uint32_t i = 0; i < count; i++) {
        struct planner_transfer *next = &planner->transfers[planner->scratch[i]];
        const uint64_t sent = weft_min_u64(next->sent, next->bytes);
        planner_rebook(planner, next, weft_max_u64(next->bytes - sent, 1));
        next->needs_announce = next->needs_announce || next->is_announced;
    }
}

void planner_sums_follow(struct weft_planner *planner, uint32_t server_host)
{
    const uint32_t all = over_link(planner, server_host, false);
    uint32_t count = 0;
    for (uint32_t i = 0; i < all && !planner_has(planner, WEFT_PLAN_CUT_THROUGH); i++) {
        struct planner_transfer *sum = &planner->transfers[planner->scratch[i]];
        if (sum->kind == WEFT_PLANNER_GRANT_GROUP && (sum->is_announced || sum->needs_announce) &&
            sum->booking.start_ns > planner->now_ns) {
            struct weft_path path = planner_path(planner, sum->from_host, sum->to_host);
            planner->counters.full += !weft_path_release(&path, &sum->booking, planner->now_ns);
            planner->scratch[count++] = planner->scratch[i];
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        struct planner_transfer *sum = &planner->transfers[planner->scratch[i]];
        const uint64_t sent = weft_min_u64(sum->sent, sum->bytes);
        sum->booking.start_ns = planner->now_ns;
        planner_rebook(planner, sum, weft_max_u64(sum->bytes - sent, 1));
        sum->needs_announce = true;
    }
}

/* If a transfer should have ended but no report has arrived, an eighth of its bytes is assumed to
 * remain; a quarter if it is overdue again, then a half. A transfer without a booking, because its
 * path was down or had no free steps, is booked again with all that remains. */
void planner_overdue(struct weft_planner *planner)
{
    for (uint32_t i = 0; i < planner->active_count; i++) {
        struct planner_transfer *transfer = &planner->transfers[planner->active[i]];
        if (transfer->late_ns > planner->now_ns) {
            continue;
        }
        const bool was_booked = transfer->booking.count > 0;
        const uint64_t assumed = weft_max_u64(transfer->bytes >> (3 - transfer->overdue), 1);
        const uint64_t sent = weft_min_u64(transfer->sent, transfer->bytes);
        const uint64_t left = was_booked ? assumed : weft_max_u64(transfer->bytes - sent, 1);
        transfer->overdue += transfer->overdue < 2 && was_booked;
        planner->counters.overdue += was_booked;
        transfer->sent = transfer->bytes - weft_min_u64(left, transfer->bytes);
        if (transfer->kind == WEFT_PLANNER_GRANT_GROUP) {
            move_behind(planner, transfer, left);
        } else {
            planner_rebook(planner, transfer, left);
        }
        /* Its sender has the grant from before, or an empty one. */
        transfer->needs_announce |=
            !was_booked && transfer->booking.count > 0 && transfer->is_announced;
    }
}

void planner_count_future(struct weft_planner *planner)
{
    memset(planner->future, 0, planner->config.servers * sizeof(planner->future[0]));
    for (uint32_t i = 0; i < planner->active_count; i++) {
        const struct planner_transfer *transfer = &planner->transfers[planner->active[i]];
        if (transfer->kind == WEFT_PLANNER_GRANT && transfer->group == WEFT_PLANNER_NONE &&
            transfer->booking.start_ns > planner->now_ns) {
            planner->future[transfer->server]++;
        }
    }
}
