#include "sim/swarm.h"

#include "base/assert.h"
#include "base/bits.h"
#include "sim/finish.h"
#include "sim/hash.h"
#include "sim/swarm_coll.h"
#include "sim/swarm_internal.h"
#include "sim/swarm_member.h"
#include "sim/swarm_ps.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Virtual time between two checks for completion, and the time allowed afterwards for late
 * duplicates and acknowledgements. */
static const uint64_t check_interval_ns = 20 * WEFT_NS_PER_MS;
static const uint64_t drain_ns = 3 * WEFT_NS_PER_S;

/* One seed in ten is a parameter server, one in twenty has collectives. */
enum { STEPS_MAX = 20000000, SOCKET_PACKETS = 4096, PS_EVERY = 10, COLL_EVERY = 20, COLL_REST = 5 };

/* ---- setup ----------------------------------------------------------------------------------- */

static void make_host(struct swarm *s, uint32_t idx)
{
    struct swarm_host *h = &s->host[idx];
    const struct weft_plan_host *plan = &s->plan.host[idx];
    struct weft_world_host_config config = {
        .ep = plan->ep,
        .progress_delay_ns = plan->progress_delay_ns,
        .socket_packets = SOCKET_PACKETS,
        .app = {.self = s, .event = weft_swarm_on_event, .wake = weft_swarm_on_wake},
    };
    if (weft_world_host_init(s->world, idx, &config) != WEFT_OK) {
        weft_world_fail(s->world, "host %" PRIu32 ": the endpoint refuses its configuration", idx);
        return;
    }
    h->host_of = malloc(plan->ep.peers_max * sizeof(*h->host_of));
    WEFT_ASSERT(h->host_of != NULL);
    memset(h->host_of, 0xff, plan->ep.peers_max * sizeof(*h->host_of));
    h->streams = calloc(plan->ep.peers_max, sizeof(*h->streams));
    WEFT_ASSERT(h->streams != NULL);
    memset(h->peer_of, 0xff, sizeof(h->peer_of));
    memset(h->accepted, 0xff, sizeof(h->accepted));
    weft_world_wake(s->world, idx, 0);
}

static void make_accumulator(struct swarm *s, uint32_t host)
{
    struct swarm_host *h = &s->host[host];
    for (uint32_t i = 0; i < s->plan.msgs; i++) {
        const struct weft_plan_msg *plan = &s->plan.msg[i];
        if (plan->dst == host && plan->shared && plan->sink == WEFT_SINK_ADD) {
            h->accumulator_bytes =
                weft_max_u64(h->accumulator_bytes, (uint64_t)plan->total * plan->elem_bytes);
        }
    }
    if (h->accumulator_bytes == 0) {
        return;
    }
    h->accumulator = malloc(h->accumulator_bytes);
    WEFT_ASSERT(h->accumulator != NULL);
    for (uint64_t i = 0; i < h->accumulator_bytes / 4; i++) {
        h->accumulator[i] = weft_oracle_float_before(i);
    }
}

static void make_messages(struct swarm *s)
{
    s->msgs = calloc(s->plan.msgs, sizeof(*s->msgs));
    s->posted = calloc(s->plan.msgs, sizeof(*s->posted));
    WEFT_ASSERT(s->msgs != NULL && s->posted != NULL);
    memset(s->posted, 0xff, s->plan.msgs * sizeof(*s->posted));
    for (uint32_t i = 0; i < s->plan.closes; i++) {
        weft_world_wake(s->world, s->plan.close[i].opener, s->plan.close[i].at_ns);
        weft_world_wake(s->world, s->plan.close[i].acceptor, s->plan.close[i].at_ns);
    }
    for (uint32_t i = 0; i < s->plan.msgs; i++) {
        const struct weft_plan_msg *plan = &s->plan.msg[i];
        weft_oracle_msg_init(&s->msgs[i], plan, weft_mix64(s->plan.seed) + i);
        s->flows[plan->src][plan->dst] = 1;
        if (weft_world_ep(s->world, plan->src) == NULL) {
            continue;
        }
        weft_world_wake(s->world, plan->src, plan->send_ns);
        weft_world_wake(s->world, plan->dst, plan->post_ns);
    }
    for (uint32_t i = 0; i < s->plan.hosts; i++) {
        make_accumulator(s, i);
        weft_swarm_post_shared(s, i);
    }
}

static struct swarm *swarm_new(uint64_t seed, const struct weft_world_tap *tap)
{
    struct swarm *s = calloc(1, sizeof(*s));
    WEFT_ASSERT(s != NULL);
    weft_plan_draw(seed, &s->plan);
    struct weft_world_config config = {
        .hosts = s->plan.hosts,
        .seed = weft_mix64(seed ^ UINT64_C(0x776f726c64)),
        .steps_max = STEPS_MAX,
        .hostile = s->plan.hostile,
    };
    config.tap = tap != NULL ? *tap : config.tap;
    s->world = weft_world_new(&config);
    weft_plan_build(&s->plan, weft_world_net(s->world));
    weft_cuts_init(&s->cuts, s->plan.hosts, s->plan.host[0].ep.peers_max);
    for (uint32_t i = 0; i < s->plan.hosts; i++) {
        make_host(s, i);
    }
    if (weft_world_wrong(s->world)[0] == '\0') {
        make_messages(s);
    }
    return s;
}

static void swarm_free(struct swarm *s)
{
    weft_world_free(s->world); /* first: endpoints borrow the messages */
    for (uint32_t i = 0; s->msgs != NULL && i < s->plan.msgs; i++) {
        weft_oracle_msg_fini(&s->msgs[i]);
    }
    for (uint32_t i = 0; i < s->plan.hosts; i++) {
        free(s->host[i].host_of);
        free(s->host[i].streams);
        free(s->host[i].accumulator);
    }
    weft_cuts_fini(&s->cuts);
    free(s->posted);
    free(s->msgs);
    free(s);
}

/* ---- the run --------------------------------------------------------------------------------- */

static bool run_until(struct swarm *s, uint64_t until_ns)
{
    enum weft_world_end end = weft_world_run(s->world, until_ns);
    if (end == WEFT_WORLD_STEPS) {
        weft_world_fail(s->world, "%d events were not enough", STEPS_MAX);
    }
    return end != WEFT_WORLD_BROKEN && end != WEFT_WORLD_STEPS;
}

/* The victim's process is replaced by one without state. */
static void rebirth(struct swarm *s)
{
    uint32_t victim = s->plan.victim;
    struct weft_world_host_config config = {
        .ep = s->plan.host[victim].ep,
        .progress_delay_ns = s->plan.host[victim].progress_delay_ns,
        .socket_packets = SOCKET_PACKETS,
        .app = {.self = s, .event = weft_swarm_on_event, .wake = weft_swarm_on_wake},
    };
    config.ep.incarnation++;
    config.ep.seed++;
    s->reborn = true;
    if (weft_world_restart(s->world, victim, &config) != WEFT_OK) {
        weft_world_fail(s->world, "host %" PRIu32 ": the endpoint refuses its configuration",
                        victim);
    }
}

static void happen_to_victim(struct swarm *s)
{
    if (s->plan.reborn) {
        rebirth(s);
    } else {
        weft_world_kill(s->world, s->plan.victim);
    }
}

static void happen_shrink(struct swarm *s)
{
    uint32_t host = s->plan.shrinker;
    for (uint32_t d = 0; d < 2; d++) {
        struct weft_net_link_config link = s->plan.host[host].links[d];
        link.mtu_bytes = s->plan.mtu_bytes;
        weft_net_link_set(weft_world_net(s->world), host, (enum weft_net_dir)d, &link);
    }
}

static void happen_move(struct swarm *s)
{
    weft_world_move(s->world, s->plan.mover);
}

static void happen_heal(struct swarm *s)
{
    weft_net_heal(weft_world_net(s->world));
}

/* Faults of the whole world, in order of time. */
static bool run_faults(struct swarm *s)
{
    const struct weft_plan *plan = &s->plan;
    struct {
        uint64_t at_ns;
        void (*happen)(struct swarm *);
    } faults[] = {
        {plan->heal_ns, happen_heal},
        {plan->victim != NOBODY ? plan->kill_ns : WEFT_NEVER, happen_to_victim},
        {plan->shrinker != NOBODY ? plan->shrink_ns : WEFT_NEVER, happen_shrink},
        {plan->mover != NOBODY ? plan->move_ns : WEFT_NEVER, happen_move},
    };
    for (;;) {
        size_t next = 0;
        for (size_t i = 1; i < WEFT_ARRAY_COUNT(faults); i++) {
            next = faults[i].at_ns < faults[next].at_ns ? i : next;
        }
        if (faults[next].at_ns == WEFT_NEVER) {
            return true;
        }
        if (!run_until(s, faults[next].at_ns)) {
            return false;
        }
        faults[next].at_ns = WEFT_NEVER;
        faults[next].happen(s);
    }
}

static void swarm_run(struct swarm *s)
{
    if (!run_faults(s)) {
        return;
    }
    uint64_t at_ns = weft_max_u64(s->plan.heal_ns, s->plan.kill_ns);
    at_ns = weft_max_u64(at_ns, weft_max_u64(s->plan.shrink_ns, s->plan.move_ns));
    while (!weft_swarm_all_closed(s, false)) {
        if (at_ns > s->plan.limit_ns || weft_net_next_ns(weft_world_net(s->world)) == WEFT_NEVER) {
            (void)weft_swarm_all_closed(s, true);
            return;
        }
        at_ns += check_interval_ns;
        if (!run_until(s, at_ns)) {
            return;
        }
    }
    uint64_t finish_ns = weft_finish_ns(&s->plan);
    if (s->closed_ns > finish_ns) {
        weft_world_fail(s->world,
                        "the last message was closed at %" PRIu64
                        " ns, which is later than %" PRIu64 ": too slow",
                        s->closed_ns, finish_ns);
    }
    s->draining = true;
    if (run_until(s, at_ns + drain_ns)) {
        weft_swarm_check_end(s);
    }
}

static void run_messages(uint64_t seed, const struct weft_world_tap *tap,
                         struct weft_swarm_result *result_p)
{
    struct swarm *s = swarm_new(seed, tap);
    if (weft_world_wrong(s->world)[0] == '\0') {
        swarm_run(s);
    }
    *result_p = (struct weft_swarm_result){
        .seed = seed,
        .ok = weft_world_wrong(s->world)[0] == '\0',
        .trace_hash = weft_world_hash(s->world),
        .steps = weft_world_steps(s->world),
        .virtual_ns = s->closed_ns,
        .messages = s->plan.msgs,
        .cut = s->cut,
        .cut_messages = s->cut_messages,
        .noticed = s->noticed,
    };
    for (uint32_t i = 0; i < s->plan.hosts; i++) {
        const struct weft_ep_counters *c = weft_ep_counters(weft_world_ep(s->world, i));
        result_p->packets += weft_world_counters(s->world, i)->packets_sent;
        result_p->path_changes += c->path_changes;
        result_p->black_holes += c->mtu_black_holes;
        result_p->sizes_raised += c->mtu_raised;
        result_p->ecn_failed += c->ecn_failed;
    }
    weft_plan_describe(&s->plan, result_p->plan, sizeof(result_p->plan));
    snprintf(result_p->failure, sizeof(result_p->failure), "%s", weft_world_wrong(s->world));
    swarm_free(s);
}

void weft_swarm_run(uint64_t seed, const struct weft_world_tap *tap,
                    struct weft_swarm_result *result_p)
{
    if (seed % PS_EVERY == 0 && weft_swarm_member_has(seed)) {
        weft_swarm_member_run(seed, false, tap, result_p);
    } else if (seed % PS_EVERY == 0) {
        weft_swarm_ps_run(seed, WEFT_VALUE_FLOAT32, tap, result_p);
    } else if (seed % COLL_EVERY == COLL_REST) {
        weft_swarm_coll_run(seed, tap, result_p);
    } else {
        run_messages(seed, tap, result_p);
    }
}

uint64_t weft_swarm_combine(uint64_t hash, const struct weft_swarm_result *result)
{
    hash = weft_sim_hash_u64(hash, result->seed);
    hash = weft_sim_hash_u64(hash, result->ok);
    return weft_sim_hash_u64(hash, result->trace_hash);
}

void weft_swarm_run_values(uint64_t seed, uint8_t type, const struct weft_world_tap *tap,
                           struct weft_swarm_result *result_p)
{
    weft_swarm_ps_run(seed, type, tap, result_p);
}

void weft_swarm_run_via(uint64_t seed, const struct weft_world_tap *tap,
                        struct weft_swarm_result *result_p)
{
    weft_swarm_ps_via_run(seed, tap, result_p);
}

void weft_swarm_run_replicas(uint64_t seed, const struct weft_world_tap *tap,
                             struct weft_swarm_result *result_p)
{
    weft_swarm_ps_replicas_run(seed, tap, result_p);
}

void weft_swarm_run_kills(uint64_t seed, const struct weft_world_tap *tap,
                          struct weft_swarm_result *result_p)
{
    weft_swarm_ps_kills_run(seed, tap, result_p);
}
