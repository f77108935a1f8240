/* The swarm's own properties: draws stay within their limits, a seed determines the run, hashes
 * combine. */
#include "sim/attack.h"
#include "sim/finish.h"
#include "sim/memory.h"
#include "sim/plan.h"
#include "sim/swarm.h"
#include "sim/swarm_ps_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void plans_stay_in_their_limits(void **state)
{
    (void)state;
    struct weft_plan *plan = malloc(sizeof(*plan));
    uint32_t seen_victim = 0;
    uint32_t seen_crossing = 0;
    uint32_t seen_sleeper = 0;
    uint32_t seen_short = 0;
    uint32_t seen_many = 0;
    for (uint64_t seed = 1; seed <= 500; seed++) {
        weft_plan_draw(seed, plan);
        uint64_t chunks = 0;
        assert_in_range(plan->hosts, 2, WEFT_PLAN_HOSTS_MAX);
        assert_in_range(plan->msgs, 1, WEFT_PLAN_MSGS_MAX);
        for (uint32_t i = 0; i < plan->msgs; i++) {
            const struct weft_plan_msg *m = &plan->msg[i];
            chunks += m->chunks;
            assert_true(m->src < plan->hosts && m->dst < plan->hosts && m->src != m->dst);
            assert_int_equal(m->chunks, weft_div_ceil_u64(m->total, m->chunk_elems));
            assert_true((uint32_t)m->chunk_elems * m->elem_bytes + 64 <=
                        plan->host[m->src].ep.packet_bytes);
            assert_true(m->elem_bytes >= 1 && m->elem_bytes <= 1032 && m->bound_ppm <= 900000);
            assert_true(m->sink != WEFT_SINK_ADD || m->elem_bytes % 4 == 0);
            assert_true(m->stream - plan->msg[0].stream < WEFT_PLAN_STREAMS_MAX ||
                        plan->msg[0].stream - m->stream < WEFT_PLAN_STREAMS_MAX);
            seen_short += m->deadline_ns != WEFT_NEVER;
        }
        assert_true(chunks <= 4 * WEFT_PLAN_CHUNKS_MAX);
        seen_victim += plan->victim != UINT32_MAX;
        seen_crossing += plan->crossing;
        seen_many += plan->hosts > 24;
        for (uint32_t i = 0; i < plan->hosts; i++) {
            seen_sleeper += plan->host[i].caller_driven;
            for (int dir = 0; dir < 2; dir++) {
                assert_in_range(plan->host[i].links[dir].rate_bps, 100000000, 40000000000);
                assert_in_range(plan->host[i].links[dir].delay_ns, 1000, 5000000);
            }
        }
    }
    assert_true(seen_victim > 10 && seen_crossing > 50 && seen_sleeper > 10);
    assert_true(seen_short > 50 && seen_many > 5);
    free(plan);
}

/* The limit detects messages that never end. The bound on slowness applies to a message that only
 * waits for its turn within the windows and round trips of its plan. */
static void a_limit_is_later_than_the_bound_on_slowness(void **state)
{
    (void)state;
    static struct weft_plan plan;
    uint32_t bounded = 0;
    uint32_t patient = 0;
    uint32_t tightest = 0;
    for (uint64_t seed = 60077001; seed <= 60077500; seed++) {
        weft_plan_draw(seed, &plan);
        uint64_t alive_ns = weft_finish_alive_ns(&plan);
        bool ends = plan.victim != UINT32_MAX || plan.closes > 0;
        uint64_t patience_ns = ends ? 2 * plan.host[0].ep.peer_timeout_ns : 0;
        assert_true(weft_finish_ns(&plan) == (ends ? WEFT_NEVER : alive_ns));
        assert_true(plan.limit_ns >= alive_ns + patience_ns + 10 * WEFT_NS_PER_S);
        bounded += !ends;
        patient += ends;
        tightest += plan.limit_ns == alive_ns + patience_ns + 10 * WEFT_NS_PER_S;
    }
    assert_true(bounded > 100 && patient > 50 && tightest > 20);
}

static void a_seed_is_a_run(void **state)
{
    (void)state;
    struct weft_swarm_result *a = malloc(sizeof(*a));
    struct weft_swarm_result *b = malloc(sizeof(*b));
    uint64_t last_hash = 0;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        weft_swarm_run(seed, NULL, a);
        weft_swarm_run(seed, NULL, b);
        assert_string_equal(a->failure, "");
        assert_true(a->ok);
        assert_true(a->trace_hash == b->trace_hash);
        assert_int_equal(a->packets, b->packets);
        assert_true(a->trace_hash != last_hash);
        assert_true(a->messages > 0 && a->packets > 0 && a->virtual_ns > 0);
        last_hash = a->trace_hash;
    }
    free(a);
    free(b);
}

/* Seeds that found defects, now fixed; each with its defect. */
static void seeds_that_failed_once(void **state)
{
    (void)state;
    static const uint64_t seeds[] = {
        5003661,  9000572, /* a packet of a dead process arrived after the end: PEER_UP */
        5008465,  9000476, /* the same: OPEN */
        802692,            /* 16 of 51 HELLOs in one batch got a cookie, the others had to wait */
        805368,            /* one hundred short messages: the bound assumed larger batches */
        20013502,          /* an MTU black hole above the passing size was not detected */
        20018447,          /* a path that shrank: chunks of six packets are sent one by one */
        10001346,          /* each chunk waited for a probe of a size that did not pass */
        9000832,           /* DONEs in packets longer than the path's MTU, and no shorter probe */
        60077341, /* 16 packets per round trip of 20 ms: the limit was earlier than the bound */
        60038856, /* moved, sent IDLE and slept: it was probed at its old address and declared
                   * dead */
        60053147, /* own bursts were marked on an idle link and limited the window */
        80008687, /* copies that arrived first used up the challenges for a moved peer */
        80035475, /* slept at PEER_UP, before its first PING, and could not send IDLE */
        90061513, /* a lost reply was resent 500 ms later, and its acknowledgement was delayed
                   * again */
        81007533, /* the same after a connection that was closed and reopened */
    };
    static struct weft_swarm_result r;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(seeds); i++) {
        weft_swarm_run(seeds[i], NULL, &r);
        assert_string_equal(r.failure, "");
        assert_true(r.ok);
    }
}

static void the_combined_hash_sees_every_part(void **state)
{
    (void)state;
    struct weft_swarm_result r[2] = {{.seed = 1, .ok = true, .trace_hash = 5},
                                     {.seed = 2, .ok = true, .trace_hash = 6}};
    uint64_t both = weft_swarm_combine(weft_swarm_combine(WEFT_SWARM_COMBINE_INIT, &r[0]), &r[1]);
    uint64_t swapped =
        weft_swarm_combine(weft_swarm_combine(WEFT_SWARM_COMBINE_INIT, &r[1]), &r[0]);
    assert_true(both != swapped);
    r[1].ok = false;
    assert_true(both !=
                weft_swarm_combine(weft_swarm_combine(WEFT_SWARM_COMBINE_INIT, &r[0]), &r[1]));
    r[1].ok = true;
    r[1].trace_hash = 7;
    assert_true(both !=
                weft_swarm_combine(weft_swarm_combine(WEFT_SWARM_COMBINE_INIT, &r[0]), &r[1]));
}

/* Path faults are effective: each intended effect occurs in some seeds, and without drawn moves no
 * peer moves. */
static void the_path_has_faults(void **state)
{
    (void)state;
    struct weft_swarm_result r;
    static struct weft_plan plan;
    uint64_t moved = 0, shrunk = 0, raised = 0, bleached = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        if (seed % 10 == 0) {
            continue; /* a parameter server */
        }
        weft_plan_draw(seed, &plan);
        bool sure = plan.host[0].ep.packet_bytes_sure == 0;
        bool bleach = false;
        for (uint32_t i = 0; i < plan.hosts; i++) {
            bleach |= plan.host[i].ep.ecn &&
                      (plan.host[i].links[0].bleach || plan.host[i].links[1].bleach);
        }
        bool news = (bleach && bleached < 3) || (plan.mover != UINT32_MAX && moved < 3) ||
                    (plan.shrinker != UINT32_MAX && shrunk < 3) || (!sure && raised < 3);
        if (!news) {
            continue;
        }
        weft_swarm_run(seed, NULL, &r);
        assert_true(r.ok);
        assert_true(plan.mover != UINT32_MAX || r.path_changes == 0);
        moved += r.path_changes;
        shrunk += plan.shrinker != UINT32_MAX ? r.black_holes : 0;
        raised += sure ? 0 : r.sizes_raised;
        bleached += r.ecn_failed;
    }
    assert_true(moved > 0);
    assert_true(shrunk > 0);
    assert_true(raised > 0);
    assert_true(bleached > 0);
}

/* Connections are closed in the middle of messages, by either end and by both, and deaths are
 * detected. */
static void connections_end_before_their_time(void **state)
{
    (void)state;
    struct weft_swarm_result r;
    static struct weft_plan plan;
    uint64_t by_opener = 0, by_acceptor = 0, by_both = 0, in_messages = 0, noticed = 0;
    uint64_t sleepers = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        if (seed % 10 == 0) {
            continue; /* a parameter server */
        }
        weft_plan_draw(seed, &plan);
        bool asleep = plan.watched && plan.host[plan.victim].caller_driven;
        bool wanted = plan.closes == 1 || (plan.closes > 1 && in_messages < 3) ||
                      (plan.watched && noticed < 3) || (asleep && sleepers < 3);
        if (!wanted) {
            continue;
        }
        weft_swarm_run(seed, NULL, &r);
        assert_true(r.ok);
        assert_true(plan.closes > 0 || r.cut + r.cut_messages == 0);
        if (plan.closes == 1) {
            assert_in_range(r.cut, 0, 2);
            by_both += plan.close[0].by_opener && plan.close[0].by_acceptor ? r.cut : 0;
            by_opener += plan.close[0].by_acceptor ? 0 : r.cut;
            by_acceptor += plan.close[0].by_opener ? 0 : r.cut;
        }
        in_messages += r.cut_messages;
        noticed += r.noticed;
        sleepers += asleep ? r.noticed : 0;
    }
    assert_true(by_opener > 1 && by_acceptor > 1 && by_both > 1);
    assert_true(in_messages > 0);
    assert_true(noticed > 0);
    assert_true(sleepers > 0);
}

static void the_judge_of_datagrams(void **state)
{
    (void)state;
    struct weft_net_packet *packet = weft_net_packet_new(0, 1, WEFT_ECN_NOT, 50);
    struct weft_ep_counters before = {0};
    struct weft_ep_counters after = {.datagrams_received = 1, .bytes_received = 50};
    assert_null(weft_attack_judge(packet, &before, &after));
    after.bad_range = 1; /* an honest packet that is refused */
    assert_non_null(weft_attack_judge(packet, &before, &after));
    packet->hostile = true;
    assert_null(weft_attack_judge(packet, &before, &after));
    after.data_received = 1; /* refused, but with an effect */
    assert_non_null(weft_attack_judge(packet, &before, &after));
    after.data_received = 0;
    after.bad_range = 0; /* dropped without being counted */
    assert_non_null(weft_attack_judge(packet, &before, &after));
    after.bad_peer = 2; /* counted twice */
    assert_non_null(weft_attack_judge(packet, &before, &after));
    after.bad_peer = 0;
    after.bad_tag = 1; /* a drop by security counts as a drop */
    assert_null(weft_attack_judge(packet, &before, &after));
    after.rekeys = 1; /* but keys must not change */
    assert_non_null(weft_attack_judge(packet, &before, &after));
    after.rekeys = 0;
    packet->hostile = false;
    assert_non_null(weft_attack_judge(packet, &before, &after));
    after.bad_tag = 0;
    packet->flood = true; /* a HELLO of a flood may only be answered or refused */
    after.hello_refused = 1;
    assert_null(weft_attack_judge(packet, &before, &after));
    after.messages_unknown = 1;
    assert_non_null(weft_attack_judge(packet, &before, &after));
    after.messages_unknown = 0;
    after.hello_refused = 0;
    packet->flood = false;
    packet->hostile = true;
    after.bad_peer = 1;
    after.bytes_received = 49;
    assert_non_null(weft_attack_judge(packet, &before, &after));
    weft_net_packet_free(packet);
}

/* Parameter servers whose workers push what they pulled; some lists are evicted by then. */
static void pushes_name_lists(void **state)
{
    (void)state;
    uint64_t listed = 0, unknown = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct weft_swarm_result result;
        weft_swarm_ps_run(seed, WEFT_VALUE_FLOAT32, NULL, &result);
        if (!result.ok) {
            fail_msg("seed %lu: %s", (unsigned long)seed, result.failure);
        }
        listed += result.pushes_listed;
        unknown += result.lists_unknown;
    }
    assert_true(listed > 200 && unknown > 5);
}

/* Updates that wait for a scheduler are dropped, refused as late, broken by the death of a shard,
 * and wait while lost pushes are resent. Every seed checks the invariants. */
static void updates_meet_every_fate(void **state)
{
    (void)state;
    struct weft_swarm_updates sum = {0};
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct weft_swarm_result result;
        weft_swarm_ps_run(seed, WEFT_VALUE_FLOAT32, NULL, &result);
        if (!result.ok) {
            fail_msg("seed %lu: %s", (unsigned long)seed, result.failure);
        }
        sum.asked += result.updates.asked;
        sum.dropped += result.updates.dropped;
        sum.late += result.updates.late;
        sum.broken += result.updates.broken;
        sum.replayed += result.updates.replayed;
        sum.reads += result.updates.reads;
    }
    print_message(
        "%lu asked, %lu dropped, %lu late, %lu broken, %lu waited while others were replayed\n",
        (unsigned long)sum.asked, (unsigned long)sum.dropped, (unsigned long)sum.late,
        (unsigned long)sum.broken, (unsigned long)sum.replayed);
    assert_true(sum.asked > 0 && sum.dropped > 0 && sum.late > 0);
    assert_true(sum.broken > 0 && sum.replayed > 0 && sum.reads > 0);
}

/* Workers with aggregators that die: every use of aggregators occurs, and pulled rows are
 * correct. */
static void workers_go_by_aggregators(void **state)
{
    (void)state;
    uint64_t absorbed = 0, answered = 0, spared = 0, between = 0, hot = 0, cold = 0;
    uint64_t late = 0, in_sums = 0, applied = 0, lost = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct weft_swarm_result result;
        weft_swarm_ps_via_run(seed, NULL, &result);
        if (!result.ok) {
            fail_msg("seed %lu: %s", (unsigned long)seed, result.failure);
        }
        absorbed += result.pushes_absorbed;
        answered += result.pulls_answered;
        spared += result.pull_rows_spared;
        between += result.aggregates_in;
        late += result.updates.late;
        in_sums += result.updates.in_sums;
        hot += result.rows_hot;
        cold += result.rows_cold;
        applied += result.pushes_applied;
        lost += result.pushes_lost;
    }
    print_message("%lu pushes acknowledged on apply, %lu lost\n", (unsigned long)applied,
                  (unsigned long)lost);
    assert_true(applied > 20);
    assert_true(absorbed > 200 && answered > 400 && spared > 10000 && between > 20);
    assert_true(hot > 1000 && cold > 1000);
    print_message("%lu updates in sums with a delay, %lu late\n", (unsigned long)in_sums,
                  (unsigned long)late);
    assert_true(in_sums > 5 && late > 0);
}

/* A shard restarts without some pushes while prefetching pulls are in flight: these must leave a
 * slot at the shard for the clock probe for which the pushes wait. */
static void pulls_ahead_leave_room_for_a_clock_probe(void **state)
{
    (void)state;
    struct weft_swarm_result result;
    weft_swarm_ps_via_run(7442, NULL, &result);
    if (!result.ok) {
        fail_msg("%s", result.failure);
    }
}

/* An aggregator dies between its reply to a push of one chunk and the acknowledgement of that
 * chunk: the push counts as delivered, also with a loss bound. */
static void answered_and_not_acknowledged(void **state)
{
    (void)state;
    struct weft_swarm_result result;
    weft_swarm_ps_via_run(1912, NULL, &result);
    if (!result.ok) {
        fail_msg("%s", result.failure);
    }
}

/* Replicas are promoted, with lost pushes, never beyond the bound, and without. */
static void replicas_are_promoted(void **state)
{
    (void)state;
    struct weft_swarm_replicas sum = {0};
    for (uint64_t seed = 1; seed <= 230; seed++) {
        struct weft_swarm_result result;
        weft_swarm_run_replicas(seed, NULL, &result);
        if (!result.ok) {
            fail_msg("seed %lu: %s", (unsigned long)seed, result.failure);
        }
        assert_true(result.replicas.lost_share_max <= 1.000001);
        sum.promotions += result.replicas.promotions;
        sum.mid_run += result.replicas.mid_run;
        sum.lost_some += result.replicas.lost_some;
        sum.pushes_lost += result.replicas.pushes_lost;
        sum.transfers += result.replicas.transfers;
        sum.failed += result.replicas.failed;
        sum.holds += result.replicas.holds;
    }
    print_message(
        "%lu promotions, %lu workers in the middle, %lu with loss, %lu pushes lost, %lu transfers, "
        "%lu failed, %lu holds\n",
        (unsigned long)sum.promotions, (unsigned long)sum.mid_run, (unsigned long)sum.lost_some,
        (unsigned long)sum.pushes_lost, (unsigned long)sum.transfers, (unsigned long)sum.failed,
        (unsigned long)sum.holds);
    assert_true(sum.promotions > 40 && sum.mid_run > 50 && sum.lost_some > 1 &&
                sum.pushes_lost > 3);
    assert_true(sum.transfers > 500 && sum.failed > 0 && sum.holds > 50);
}

/* Every kind of process dies. */
static void all_kinds_die(void **state)
{
    (void)state;
    struct weft_swarm_replicas sum = {0};
    uint64_t absorbed = 0, parks = 0, asked = 0, transfers = 0;
    for (uint64_t seed = 1; seed <= 80; seed++) {
        struct weft_swarm_result result;
        weft_swarm_run_kills(seed, NULL, &result);
        if (!result.ok) {
            fail_msg("seed %lu: %s", (unsigned long)seed, result.failure);
        }
        assert_true(result.replicas.lost_share_max <= 1.000001);
        sum.promotions += result.replicas.promotions;
        sum.lost_some += result.replicas.lost_some;
        sum.replica_deaths += result.replicas.replica_deaths;
        sum.worker_deaths += result.replicas.worker_deaths;
        sum.aggregator_deaths += result.replicas.aggregator_deaths;
        sum.scheduler_deaths += result.replicas.scheduler_deaths;
        absorbed += result.pushes_absorbed;
        parks += result.parks;
        asked += result.updates.asked;
        transfers += result.updates.transfers;
    }
    print_message("%lu transfers to replicas waited for a grant\n", (unsigned long)transfers);
    assert_true(transfers > 20);
    print_message(
        "%lu promotions, %lu with loss; deaths of %lu replicas, %lu workers, %lu aggregators, "
        "%lu schedulers; %lu pushes by aggregators, %lu parks, %lu updates asked for\n",
        (unsigned long)sum.promotions, (unsigned long)sum.lost_some,
        (unsigned long)sum.replica_deaths, (unsigned long)sum.worker_deaths,
        (unsigned long)sum.aggregator_deaths, (unsigned long)sum.scheduler_deaths,
        (unsigned long)absorbed, (unsigned long)parks, (unsigned long)asked);
    assert_true(sum.promotions > 20 && sum.replica_deaths > 50);
    assert_true(sum.worker_deaths > 20 && sum.aggregator_deaths > 100 && sum.scheduler_deaths > 20);
    assert_true(absorbed > 100 && parks > 0 && asked > 100);
}

/* Fail the run while a server is dead and its replica is not promoted yet. */
struct saboteur {
    struct swarm_ps *ps; /* NULL: not created yet */
    bool has_failed;
};

static void fail_when_vacant(void *arg, uint32_t host, struct weft_ep *ep, bool last)
{
    struct saboteur *saboteur = arg;
    (void)host;
    (void)ep;
    (void)last;
    for (uint32_t s = 0; saboteur->ps != NULL && s < saboteur->ps->shards; s++) {
        if (saboteur->ps->is_vacant[s] && !saboteur->has_failed) {
            saboteur->has_failed = true;
            weft_world_fail(saboteur->ps->world, "on purpose");
        }
    }
}

/* The shard of a replica to be promoted is freed exactly once, and so is that of the next
 * replica. */
static void a_run_that_fails_before_a_promotion_is_freed(void **state)
{
    (void)state;
    uint32_t failed = 0;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct saboteur saboteur = {.ps = NULL};
        const struct weft_world_tap tap = {.arg = &saboteur, .host = fail_when_vacant};
        struct swarm_ps *ps = weft_swarm_ps_new(seed, WEFT_VALUE_FLOAT32, WITH_REPLICAS, &tap);
        saboteur.ps = ps;
        assert_true(weft_swarm_ps_run_replicas(ps) != saboteur.has_failed);
        failed += saboteur.has_failed;
        saboteur.ps = NULL;
        weft_swarm_ps_free(ps);
    }
    assert_true(failed > 3);
}

int main(void)
{
    weft_sim_memory_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_stay_in_their_limits),
        cmocka_unit_test(a_limit_is_later_than_the_bound_on_slowness),
        cmocka_unit_test(a_seed_is_a_run),
        cmocka_unit_test(seeds_that_failed_once),
        cmocka_unit_test(the_combined_hash_sees_every_part),
        cmocka_unit_test(the_path_has_faults),
        cmocka_unit_test(pushes_name_lists),
        cmocka_unit_test(updates_meet_every_fate),
        cmocka_unit_test(workers_go_by_aggregators),
        cmocka_unit_test(pulls_ahead_leave_room_for_a_clock_probe),
        cmocka_unit_test(answered_and_not_acknowledged),
        cmocka_unit_test(replicas_are_promoted),
        cmocka_unit_test(all_kinds_die),
        cmocka_unit_test(a_run_that_fails_before_a_promotion_is_freed),
        cmocka_unit_test(connections_end_before_their_time),
        cmocka_unit_test(the_judge_of_datagrams),
    };
    return cmocka_run_group_tests_name("sim_swarm", tests, NULL, NULL);
}
