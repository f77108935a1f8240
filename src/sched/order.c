/* Selection of the next update to send.
 *
 *     repeat
 *         drop late updates; drop the longest if more updates are due than there are positions
 *         estimate for each waiting update when it would complete if it were sent next
 *         pick: of those that must go first to keep the bound, if there are such, else of all,
 *               a worker at the least clock (SSP), a slow path that has less than its floor,
 *               one that is too old, else the shortest, of equal ones the oldest base version;
 *               in SYNC, where all updates are needed, the longest
 *         drop it instead if it would make too many others wait for its commit (Fig. 5)
 *         grant it, unless enough updates are granted ahead
 *
 * The bound's rules are in bound.c.
 *
 * Source: [mlfabric] section 5, Fig. 4 (a); floors, ages and ties are ours.
 */
#include "sched/internal.h"

enum pick_reason { PICK_ORDER, PICK_BOUND, PICK_SLOW };

/* Restricts the candidates of a pick. */
struct view {
    uint64_t due_max;   /* of a tight set; WEFT_NEVER = all */
    uint64_t clock_max; /* SSP: the least clock, if a worker at it waits; SYNC: the least clock of
                         * those that wait */
};

/* ---- estimates ------------------------------------------------------------------------------- */

/* Completion time of an update if it were sent next. With several servers this is a lower bound:
 * each share alone, and all bytes over the uplink. */
static void estimate(struct weft_planner *planner, struct planner_worker *w, const uint64_t *shares)
{
    uint32_t servers = planner->config.servers;
    struct weft_booking booking;
    w->end_ns = 0;
    w->start_ns = WEFT_NEVER;
    for (uint32_t s = 0; s < servers; s++) {
        struct weft_path path = planner_path(planner, w->host, planner->config.server_host[s]);
        if (!weft_path_fit(&path, weft_max_u64(shares[s], 1), planner->now_ns,
                           WEFT_TIMELINE_BPS_MAX, &booking)) {
            w->end_ns = WEFT_NEVER;
            return;
        }
        w->end_ns = weft_max_u64(w->end_ns, booking.end_ns);
        w->start_ns = weft_min_u64(w->start_ns, booking.start_ns);
    }
    struct weft_path uplink = {.count = 1, .links = {planner_link(planner, w->host, true)}};
    if (servers > 1 &&
        weft_path_fit(&uplink, w->bytes, planner->now_ns, WEFT_TIMELINE_BPS_MAX, &booking)) {
        w->end_ns = weft_max_u64(w->end_ns, booking.end_ns);
    }
}

void planner_estimate(struct weft_planner *planner)
{
    for (uint32_t i = 0; i < planner->waiting_count; i++) {
        uint32_t worker = planner->waiting[i];
        estimate(planner, &planner->workers[worker],
                 planner->server_bytes + (size_t)worker * planner->config.servers);
    }
}

/* ---- slow paths ------------------------------------------------------------------------------ */

void planner_find_fastest(struct weft_planner *planner)
{
    planner->fast_bps = 0;
    for (uint32_t w = 0; w < planner->config.workers; w++) {
        uint64_t up_bps = planner_link(planner, planner->workers[w].host, true)->capacity_bps;
        planner->fast_bps = weft_max_u64(planner->fast_bps, up_bps);
    }
}

bool planner_is_slow(const struct weft_planner *planner, uint32_t worker)
{
    uint64_t up_bps = planner_link(planner, planner->workers[worker].host, true)->capacity_bps;
    return up_bps < planner_share(planner->fast_bps, planner->config.slow_ppm);
}

/* True if slow updates in flight have less of the servers' links than their proportional share. */
static bool slow_are_below_floor(const struct weft_planner *planner)
{
    uint64_t slow = 0, used_bps = 0, servers_bps = 0;
    uint64_t all = planner->waiting_count + planner->flying_count;
    for (uint32_t i = 0; i < planner->waiting_count; i++) {
        slow += planner_is_slow(planner, planner->waiting[i]);
    }
    for (uint32_t i = 0; i < planner->flying_count; i++) {
        uint32_t worker = planner->flying[i];
        if (planner_is_slow(planner, worker)) {
            slow++;
            used_bps += planner_link(planner, planner->workers[worker].host, true)->capacity_bps;
        }
    }
    for (uint32_t s = 0; s < planner->config.servers; s++) {
        servers_bps += planner_link(planner, planner->config.server_host[s], false)->capacity_bps;
    }
    return slow > 0 &&
           used_bps < planner_share(servers_bps, planner->config.floor_ppm) / all * slow;
}

/* ---- picks ----------------------------------------------------------------------------------- */

static bool is_in_view(const struct weft_planner *planner, const struct view *view, uint32_t worker)
{
    const struct planner_worker *w = &planner->workers[worker];
    uint64_t due;
    (void)planner_due_position(planner, w, &due);
    return w->end_ns != WEFT_NEVER && due <= view->due_max && w->clock <= view->clock_max;
}

/* Oldest base version, then earliest request. */
static bool is_older(const struct weft_planner *planner, uint32_t a, uint32_t b)
{
    const struct planner_worker *wa = &planner->workers[a], *wb = &planner->workers[b];
    return wa->base_version != wb->base_version ? wa->base_version < wb->base_version
                                                : wa->asked < wb->asked;
}

static uint32_t pick_first_come(const struct weft_planner *planner, const struct view *view)
{
    uint32_t best = WEFT_PLANNER_NONE;
    for (uint32_t i = 0; i < planner->waiting_count; i++) {
        uint32_t worker = planner->waiting[i];
        if (is_in_view(planner, view, worker) &&
            (best == WEFT_PLANNER_NONE ||
             planner->workers[worker].asked < planner->workers[best].asked)) {
            best = worker;
        }
    }
    return best;
}

static uint32_t pick_shortest(const struct weft_planner *planner, const struct view *view)
{
    uint64_t least_ns = WEFT_NEVER;
    for (uint32_t i = 0; i < planner->waiting_count; i++) {
        if (is_in_view(planner, view, planner->waiting[i])) {
            least_ns = weft_min_u64(least_ns, planner->workers[planner->waiting[i]].end_ns);
        }
    }
    uint64_t equal_ns = least_ns == WEFT_NEVER
                            ? 0
                            : weft_time_add(least_ns, planner_share(least_ns - planner->now_ns,
                                                                    planner->config.tie_ppm));
    uint32_t best = WEFT_PLANNER_NONE;
    for (uint32_t i = 0; i < planner->waiting_count; i++) {
        uint32_t worker = planner->waiting[i];
        if (is_in_view(planner, view, worker) && planner->workers[worker].end_ns <= equal_ns &&
            (best == WEFT_PLANNER_NONE || is_older(planner, worker, best))) {
            best = worker;
        }
    }
    return best;
}

/* SYNC: all updates are needed, so the longest starts first; others share the remaining
 * bandwidth. */
static uint32_t pick_longest(const struct weft_planner *planner, const struct view *view)
{
    uint32_t best = WEFT_PLANNER_NONE;
    for (uint32_t i = 0; i < planner->waiting_count; i++) {
        uint32_t worker = planner->waiting[i];
        const struct planner_worker *w = &planner->workers[worker];
        const struct planner_worker *b = &planner->workers[best == WEFT_PLANNER_NONE ? 0 : best];
        if (is_in_view(planner, view, worker) &&
            (best == WEFT_PLANNER_NONE || w->end_ns > b->end_ns ||
             (w->end_ns == b->end_ns && w->asked < b->asked))) {
            best = worker;
        }
    }
    return best;
}

/* The oldest update that has waited min_age_ns and, if requested, is slow. */
static uint32_t pick_oldest(const struct weft_planner *planner, const struct view *view,
                            bool must_be_slow, uint64_t min_age_ns)
{
    uint32_t best = WEFT_PLANNER_NONE;
    for (uint32_t i = 0; i < planner->waiting_count; i++) {
        uint32_t worker = planner->waiting[i];
        if (is_in_view(planner, view, worker) &&
            (!must_be_slow || planner_is_slow(planner, worker)) &&
            planner->now_ns - planner->workers[worker].since_ns >= min_age_ns &&
            (best == WEFT_PLANNER_NONE || is_older(planner, worker, best))) {
            best = worker;
        }
    }
    return best;
}

/* The least clock of the waiting updates that can be sent. */
static uint64_t least_waiting_clock(const struct weft_planner *planner)
{
    uint64_t least = WEFT_NEVER;
    for (uint32_t i = 0; i < planner->waiting_count; i++) {
        const struct planner_worker *w = &planner->workers[planner->waiting[i]];
        least = w->end_ns != WEFT_NEVER ? weft_min_u64(least, w->clock) : least;
    }
    return least;
}

static struct view make_view(struct weft_planner *planner)
{
    struct view view = {.due_max = WEFT_NEVER, .clock_max = WEFT_NEVER};
    if (planner->config.mode == WEFT_PLANNER_SYNC) {
        view.clock_max = least_waiting_clock(planner);
    }
    if (planner_is_bounded(planner)) {
        view.due_max =
            planner_crowded_position(planner, planner->waiting, planner->waiting_count, 0, 0);
    }
    if (planner->config.mode == WEFT_PLANNER_SSP) {
        struct view at_least = view;
        at_least.clock_max = planner_least_clock(planner);
        if (pick_first_come(planner, &at_least) != WEFT_PLANNER_NONE) {
            view = at_least;
        }
    }
    return view;
}

static uint32_t pick(struct weft_planner *planner, enum pick_reason *reason_p)
{
    const struct view all = {.due_max = WEFT_NEVER, .clock_max = WEFT_NEVER};
    struct view view = make_view(planner);
    *reason_p = PICK_ORDER;
    if (!planner_has(planner, WEFT_PLAN_ORDER)) {
        uint32_t first = pick_first_come(planner, &view);
        *reason_p = first != pick_first_come(planner, &all) ? PICK_BOUND : PICK_ORDER;
        return first;
    }
    if (planner->config.mode == WEFT_PLANNER_SYNC) {
        return pick_longest(planner, &view);
    }
    uint32_t old = WEFT_PLANNER_NONE, shortest = pick_shortest(planner, &view);
    if (slow_are_below_floor(planner)) {
        old = pick_oldest(planner, &view, true, 0);
    }
    if (old == WEFT_PLANNER_NONE && planner->config.age_ns != WEFT_NEVER) {
        old = pick_oldest(planner, &view, false, planner->config.age_ns);
    }
    if (old != WEFT_PLANNER_NONE && old != shortest) {
        *reason_p = PICK_SLOW;
        return old;
    }
    *reason_p = shortest != pick_shortest(planner, &all) ? PICK_BOUND : PICK_ORDER;
    return shortest;
}

/* ---- grants ---------------------------------------------------------------------------------- */

/* SYNC: an update of a later clock is in flight. The servers take it only after this one, so the
 * links would be booked until then. */
static bool is_behind_flight(const struct weft_planner *planner, const struct planner_worker *w)
{
    bool is_behind = false;
    for (uint32_t i = 0; planner->config.mode == WEFT_PLANNER_SYNC && i < planner->flying_count;
         i++) {
        is_behind |= planner->workers[planner->flying[i]].clock > w->clock;
    }
    return is_behind;
}

/* Late binding: a transfer that can start now uses free bandwidth; the number of granted transfers
 * that start later is limited. */
static bool is_too_early(struct weft_planner *planner, const struct planner_worker *w)
{
    if (w->start_ns <= planner->now_ns || is_behind_flight(planner, w)) {
        return false;
    }
    planner_count_future(planner);
    for (uint32_t s = 0; s < planner->config.servers; s++) {
        if (planner->future[s] >= planner->config.ahead) {
            return true;
        }
    }
    return false;
}

/* Grant or drop one update; false = no further decision is possible now. */
static bool decide_one(struct weft_planner *planner)
{
    enum pick_reason reason;
    uint32_t worker = pick(planner, &reason);
    if (worker == WEFT_PLANNER_NONE || !planner_has_room(planner, 1)) {
        return false;
    }
    struct planner_worker *w = &planner->workers[worker];
    if (planner_is_bounded(planner) && planner_holds_up(planner, w)) {
        planner_drop(planner, worker, WEFT_PLANNER_DROP_BLOCKING);
        return true;
    }
    if (!planner_may_fly(planner, 1, w->base_version)) {
        planner->counters.held++;
        return false;
    }
    if (!planner_norm_fits(planner, w->norm)) {
        return planner_drop_too_far(planner, worker);
    }
    if (is_too_early(planner, w) || !planner_grant_direct(planner, worker)) {
        return false;
    }
    planner->counters.promoted += reason == PICK_BOUND;
    planner->counters.slow_first += reason == PICK_SLOW;
    return true;
}

void planner_order(struct weft_planner *planner)
{
    do {
        planner_estimate(planner);
        if (planner_is_bounded(planner)) {
            planner_drop_late(planner);
        }
    } while (planner->waiting_count > 0 && decide_one(planner));
}
