/* A simulated job of collectives: the draw from the seed, and the run. */
#include "sim/swarm_coll_internal.h"

#include "base/prng.h"
#include "coll/fold.h"

#include <inttypes.h>
#include <stdio.h>

#define MS WEFT_NS_PER_MS

enum { STEPS_MAX = 20000000 };

static const uint64_t check_interval_ns = 20 * WEFT_NS_PER_MS;
static const uint64_t drain_ns = 2 * WEFT_NS_PER_S;

static const char *const end_names[COLL_ENDS] = {"ends well", "a rank dies",
                                                 "a rank calls another count",
                                                 "a rank stops calling", "a rank gives up"};

/* ---- drawing --------------------------------------------------------------------------------- */

static bool percent(struct weft_prng *prng, uint32_t chance)
{
    return weft_prng_below(prng, 100) < chance;
}

static uint32_t count_draw(struct weft_prng *prng, uint32_t n)
{
    switch (weft_prng_below(prng, 6)) {
    case 0:
        return (uint32_t)weft_prng_below(prng, 3);
    case 1:
        return (uint32_t)weft_prng_range(prng, 1, 40);
    case 2:
        return (uint32_t)weft_prng_range(prng, 300, 400);
    case 3:
        return (uint32_t)weft_prng_range(prng, 1, 40) * 32 * n;
    default:
        return (uint32_t)weft_prng_range(prng, 1, 20000);
    }
}

static void groups_draw(struct swarm_coll *s, struct weft_prng *prng)
{
    s->groups = percent(prng, 60) ? 2 : 1;
    s->members[0] = s->n;
    for (uint32_t i = 0; i < s->n; i++) {
        s->member[0][i] = i;
    }
    /* A group of some ranks, in any order. */
    uint32_t left[COLL_RANKS_MAX];
    for (uint32_t i = 0; i < s->n; i++) {
        left[i] = i;
    }
    s->members[1] = (uint32_t)weft_prng_range(prng, 1, s->n);
    for (uint32_t i = 0; i < s->members[1]; i++) {
        uint32_t k = (uint32_t)weft_prng_range(prng, i, s->n - 1);
        uint32_t rank = left[k];
        left[k] = left[i];
        s->member[1][i] = rank;
    }
}

/* Within a group of one rank it is a barrier. Few ranks and tags, so that many calls could
 * match. */
static void pair_draw(struct weft_prng *prng, uint32_t n, struct coll_op *op)
{
    op->kind = n == 1 ? WEFT_COLL_BARRIER : WEFT_COLL_SEND;
    op->root = percent(prng, 50) ? op->root % 2 : op->root;
    uint32_t step = percent(prng, 50) ? 0 : (uint32_t)weft_prng_below(prng, n > 1 ? n - 1 : 1);
    op->receiver = (op->root + 1 + step) % n;
    op->tag = (uint32_t)weft_prng_below(prng, 2);
}

static void op_draw(struct swarm_coll *s, struct weft_prng *prng, struct coll_op *op)
{
    op->group = (uint32_t)weft_prng_below(prng, s->groups);
    uint32_t n = s->members[op->group];
    bool all_reduce = percent(prng, 45);
    op->kind = all_reduce ? WEFT_COLL_ALL_REDUCE
                          : (enum weft_coll_kind)weft_prng_below(prng, WEFT_COLL_KINDS);
    op->kind = percent(prng, s->pairs_percent) ? WEFT_COLL_SEND : op->kind;
    op->type = percent(prng, 50) ? WEFT_COLL_F32
                                 : (enum weft_coll_type)weft_prng_below(prng, WEFT_COLL_TYPES);
    do {
        op->reduction = (enum weft_coll_reduction)weft_prng_below(prng, WEFT_COLL_REDUCTIONS);
    } while (!weft_coll_fold_has(op->type, op->reduction));
    op->root = (uint32_t)weft_prng_below(prng, n);
    op->kind = op->kind == WEFT_COLL_RECV ? WEFT_COLL_SEND : op->kind;
    if (op->kind == WEFT_COLL_SEND) {
        pair_draw(prng, n, op);
    }
    op->count = count_draw(prng, n);
    bool blocks = op->kind > WEFT_COLL_REDUCE && op->kind != WEFT_COLL_BROADCAST &&
                  op->kind != WEFT_COLL_SEND;
    op->count = blocks && op->count > 4000 ? op->count / n : op->count;
    op->in_place =
        percent(prng, 40) && (op->kind <= WEFT_COLL_REDUCE || op->kind == WEFT_COLL_BROADCAST);
    if (op->type == WEFT_COLL_F32 && coll_reduces(op->kind) && percent(prng, 60)) {
        op->bound_ppm = (uint32_t)weft_prng_range(prng, 1000, 400000);
        op->reduction = percent(prng, 50) ? WEFT_COLL_SUM : WEFT_COLL_MEAN;
        op->feedback = percent(prng, 50);
    }
    if (op->kind == WEFT_COLL_BARRIER) {
        op->count = 1;
        op->in_place = false;
    }
}

static void end_draw(struct swarm_coll *s, struct weft_prng *prng)
{
    uint32_t dice = (uint32_t)weft_prng_below(prng, 100);
    s->end = dice < 60   ? COLL_END_WELL
             : dice < 76 ? COLL_END_DEATH
             : dice < 84 ? COLL_END_MISMATCH
             : dice < 92 ? COLL_END_TIMEOUT
                         : COLL_END_ABORT;
    s->culprit = (uint32_t)weft_prng_below(prng, s->n);
    s->end_op = (uint32_t)weft_prng_below(prng, s->ops);
    s->end_ns = weft_prng_below(prng, percent(prng, 50) ? 5 * MS : 200 * MS);
    s->timeout_ns = WEFT_NEVER;
    if (s->end == COLL_END_MISMATCH || s->end == COLL_END_TIMEOUT) {
        /* A kind in which every rank receives from every other, or one between the culprit and
         * another rank. */
        uint32_t other = (s->culprit + 1 + (uint32_t)weft_prng_below(prng, s->n - 1)) % s->n;
        bool sends = percent(prng, 50);
        s->op[s->end_op] = (struct coll_op){
            .kind = percent(prng, 30) ? WEFT_COLL_SEND : WEFT_COLL_ALL_REDUCE,
            .root = sends ? s->culprit : other,
            .receiver = sends ? other : s->culprit,
            .count = (uint32_t)weft_prng_range(prng, 1, 9000),
        };
        /* Otherwise other ranks could wait for the one that waits for the culprit, and report it
         * instead. */
        bool last = s->end == COLL_END_TIMEOUT && s->op[s->end_op].kind == WEFT_COLL_SEND;
        s->ops = last ? s->end_op + 1 : s->ops;
    }
    if (s->end == COLL_END_TIMEOUT) {
        s->timeout_ns = s->plan.heal_ns + 10 * WEFT_NS_PER_S;
    }
}

/* One rank may call two consecutive sends in the opposite order, if they differ in ranks or tag,
 * and if each rank may have both open; otherwise each end could wait for the other one's other
 * operation. */
static void order_draw(struct swarm_coll *s, struct weft_prng *prng)
{
    for (uint32_t r = 0; r < s->n; r++) {
        for (uint32_t i = 0; i < s->ops; i++) {
            s->rank[r].order[i] = i;
        }
    }
    for (uint32_t i = 0; i + 1 < s->ops && s->ops_at_a_time > 1; i++) {
        const struct coll_op *a = &s->op[i], *b = &s->op[i + 1];
        bool alike = a->group == b->group && a->tag == b->tag && a->root == b->root &&
                     a->receiver == b->receiver;
        bool ends = s->end_op == i || s->end_op == i + 1;
        if (a->kind != WEFT_COLL_SEND || b->kind != WEFT_COLL_SEND || alike || ends) {
            continue;
        }
        for (uint32_t r = 0; r < s->n; r++) {
            if (percent(prng, 50)) {
                s->rank[r].order[i] = i + 1;
                s->rank[r].order[i + 1] = i;
            }
        }
        i++; /* these two stay a pair */
    }
}

static void config_draw(struct swarm_coll *s, struct weft_prng *prng)
{
    static const uint32_t segments[] = {1024, 4096, 16384, 65536};
    struct weft_coll_config *c = &s->config;
    weft_coll_config_default(c);
    c->ranks = s->n;
    c->epoch = COLL_EPOCH;
    c->peers_max = 4 * COLL_RANKS_MAX;
    c->groups_max = COLL_GROUPS_MAX;
    c->ops_max = COLL_OPS_MAX;
    c->segment_bytes = segments[weft_prng_below(prng, WEFT_ARRAY_COUNT(segments))];
    c->small_bytes = (uint32_t)weft_prng_below(prng, weft_min_u64(c->segment_bytes, 1409));
    c->small_ranks = (uint32_t)weft_prng_below(prng, 10);
    c->bcast_bytes = c->segment_bytes;
    c->receivers_max = (uint32_t)weft_prng_below(prng, 5);
    uint64_t least = (uint64_t)(s->n - 1) * (64 << 10);
    c->pool_bytes =
        percent(prng, 50) ? least : 4 * least + (uint64_t)weft_prng_below(prng, 1 << 20);
}

void weft_swarm_coll_draw(struct swarm_coll *s, uint64_t seed)
{
    struct weft_prng prng;
    weft_prng_split(&prng, seed, UINT64_C(0x636f6c6c));
    weft_prng_split(&s->prng, seed, UINT64_C(0x63616c6c73));
    s->seed = seed;
    s->n = (uint32_t)weft_prng_range(&prng, 2, COLL_RANKS_MAX);
    s->plan.seed = seed;
    s->plan.pattern = "collectives";
    s->plan.victim = UINT32_MAX;
    s->plan.mover = UINT32_MAX;
    s->plan.shrinker = UINT32_MAX;
    s->plan.hosts = s->n;
    weft_plan_draw_cluster(&prng, &s->plan);
    weft_plan_draw_security(&s->plan);
    groups_draw(s, &prng);
    s->ops = (uint32_t)weft_prng_range(&prng, 1, COLL_OPS_MAX);
    s->pairs_percent = percent(&prng, 30) ? 80 : (uint32_t)weft_prng_below(&prng, 30);
    for (uint32_t i = 0; i < s->ops; i++) {
        op_draw(s, &prng, &s->op[i]);
    }
    s->ops_at_a_time = (uint32_t)weft_prng_range(&prng, 1, COLL_OPS_MAX);
    s->gap_ns_max = percent(&prng, 30) ? 1 : weft_prng_range(&prng, 1, 30 * MS);
    config_draw(s, &prng);
    end_draw(s, &prng);
    order_draw(s, &prng);
    struct weft_prng plans; /* its own, so that plans do not change what else a seed draws */
    weft_prng_split(&plans, seed, UINT64_C(0x706c616e73));
    weft_swarm_coll_plans_draw(s, &plans);
    s->plan.limit_ns = s->plan.heal_ns + 60 * WEFT_NS_PER_S;
}

/* ---- the run --------------------------------------------------------------------------------- */

static bool rank_over(const struct swarm_coll *s, uint32_t r)
{
    const struct coll_rank *rank = &s->rank[r];
    bool failed = weft_coll_failure(rank->coll)->reason != WEFT_COLL_FINE;
    bool gone = s->end == COLL_END_DEATH && r == s->culprit && !weft_world_alive(s->world, r);
    bool all = rank->next == s->ops;
    return gone || (rank->open == 0 && (all || failed));
}

/* Returns NULL if all ranks are done, else the rank that is not. */
static const char *waits(const struct swarm_coll *s)
{
    for (uint32_t r = 0; r < s->n; r++) {
        if (!rank_over(s, r)) {
            return "a rank has not ended its operations";
        }
    }
    return NULL;
}

static bool run_until(struct swarm_coll *s, uint64_t until_ns)
{
    enum weft_world_end end = weft_world_run(s->world, until_ns);
    if (end == WEFT_WORLD_STEPS) {
        weft_world_fail(s->world, "%d events were not enough", STEPS_MAX);
    }
    return end != WEFT_WORLD_BROKEN && end != WEFT_WORLD_STEPS;
}

bool weft_swarm_coll_all_up(const struct swarm_coll *s)
{
    uint32_t up = 0;
    for (uint32_t r = 0; r < s->n; r++) {
        up += weft_coll_ranks_up(s->rank[r].coll);
    }
    return up == s->n * s->n;
}

/* Run until a given time, and heal the network when due. */
static bool run_healing(struct swarm_coll *s, uint64_t until_ns)
{
    if (!s->healed && until_ns >= s->plan.heal_ns) {
        s->healed = true;
        if (!run_until(s, s->plan.heal_ns)) {
            return false;
        }
        weft_net_heal(weft_world_net(s->world));
    }
    return run_until(s, until_ns);
}

/* The death of a rank before it is connected is not detected by other ranks; the launcher must
 * handle it. */
static bool run_death(struct swarm_coll *s, uint64_t *at_ns_p)
{
    uint64_t at_ns = 0;
    while (!weft_swarm_coll_all_up(s) && at_ns < s->plan.limit_ns) {
        at_ns += MS;
        if (!run_healing(s, at_ns)) {
            return false;
        }
    }
    at_ns += s->end_ns;
    if (!run_healing(s, at_ns)) {
        return false;
    }
    weft_world_kill(s->world, s->culprit);
    *at_ns_p = at_ns;
    return true;
}

static void coll_run(struct swarm_coll *s)
{
    uint64_t at_ns = 0;
    if (s->end == COLL_END_DEATH && !run_death(s, &at_ns)) {
        return;
    }
    at_ns = weft_max_u64(at_ns, s->plan.heal_ns);
    if (!run_healing(s, at_ns)) {
        return;
    }
    while (waits(s) != NULL) {
        if (at_ns > s->plan.limit_ns) {
            weft_world_fail(s->world, "%s", waits(s));
            return;
        }
        at_ns += check_interval_ns;
        if (!run_until(s, at_ns)) {
            return;
        }
    }
    if (run_until(s, at_ns + drain_ns)) {
        weft_swarm_coll_check(s);
    }
}

static void describe(const struct swarm_coll *s, char *text, size_t bytes)
{
    int used = snprintf(
        text, bytes,
        "%" PRIu32 " ranks, group of %" PRIu32 ", %" PRIu32 " operations, %" PRIu32
        " at a time; segments of %" PRIu32 ", small %" PRIu32 "/%" PRIu32 ", receivers %" PRIu32
        ", pool %" PRIu64 "; %s: rank %" PRIu32 ", operation %" PRIu32 ", %" PRIu64 " us\n",
        s->n, s->groups > 1 ? s->members[1] : 0, s->ops, s->ops_at_a_time, s->config.segment_bytes,
        s->config.small_bytes, s->config.small_ranks, s->config.receivers_max, s->config.pool_bytes,
        end_names[s->end], s->culprit, s->end_op, s->end_ns / 1000);
    for (uint32_t i = 0; i < s->ops && (size_t)used < bytes / 2; i++) {
        const struct coll_op *op = &s->op[i];
        used += snprintf(text + used, bytes - (size_t)used,
                         "%s(%s x %" PRIu32 ", %s, root %" PRIu32 ", to %" PRIu32 " tag %" PRIu32
                         ", bound %" PRIu32 "%s%s) ",
                         weft_coll_kind_name(op->kind), weft_coll_type_name(op->type), op->count,
                         weft_coll_reduction_name(op->reduction), op->root, op->receiver, op->tag,
                         op->bound_ppm, op->feedback ? ", feedback" : "",
                         op->group == 1 ? ", group 1" : "");
    }
    used += snprintf(text + used, bytes - (size_t)used, "\n");
    used += (int)weft_swarm_coll_plans_describe(s, text + used, bytes - (size_t)used);
    weft_plan_describe(&s->plan, text + used, bytes - (size_t)used);
}

void weft_swarm_coll_run(uint64_t seed, const struct weft_world_tap *tap,
                         struct weft_swarm_result *result_p)
{
    struct swarm_coll *s = weft_swarm_coll_new(seed, tap);
    if (weft_world_wrong(s->world)[0] == '\0') {
        coll_run(s);
    }
    *result_p = (struct weft_swarm_result){
        .seed = seed,
        .ok = weft_world_wrong(s->world)[0] == '\0',
        .trace_hash = weft_world_hash(s->world),
        .steps = weft_world_steps(s->world),
        .virtual_ns = s->closed_ns,
    };
    for (uint32_t i = 0; i < s->n; i++) {
        const struct weft_ep_counters *c = weft_ep_counters(weft_world_ep(s->world, i));
        result_p->packets += weft_world_counters(s->world, i)->packets_sent;
        result_p->messages += (uint32_t)c->messages_sent;
    }
    describe(s, result_p->plan, sizeof(result_p->plan));
    snprintf(result_p->failure, sizeof(result_p->failure), "%s", weft_world_wrong(s->world));
    weft_swarm_coll_free(s);
}
