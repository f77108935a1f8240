/* The planner under faults: transfers that are late, links that are down, more reports than fit,
 * members that leave a group. */
#include "sched_rig.h"

static struct rig rig;

static void make(void)
{
    assert_int_equal(weft_planner_new(&rig.config, &rig.planner), WEFT_OK);
}

static void ask(uint32_t worker, uint64_t clock, uint64_t base_version)
{
    struct weft_planner_update update = {
        .worker = worker, .clock = clock, .bytes = 125000, .base_version = base_version};
    assert_int_equal(weft_planner_update(rig.planner, &update, rig.now_ns), WEFT_OK);
}

static void set_link(uint32_t host, bool is_up, uint64_t bps)
{
    assert_int_equal(weft_planner_capacity(rig.planner, host, is_up, bps, rig.now_ns), WEFT_OK);
}

/* Number of decisions of a kind in one plan, and the last of them. */
static uint32_t plan(enum weft_planner_decision_kind kind, struct weft_planner_decision *last_p)
{
    struct weft_planner_decision d;
    uint32_t count = 0;
    weft_planner_plan(rig.planner, rig.now_ns);
    while (weft_planner_poll(rig.planner, &d)) {
        count += d.kind == kind;
        *last_p = d.kind == kind ? d : *last_p;
    }
    return count;
}

/* ---- transfers that are late ----------------------------------------------------------------- */

/* A transfer that takes five times as long as planned: the planner expects more and more of it to
 * remain, so few of its deadlines pass, and the link is never free by the plan. */
static void a_link_that_is_slower_than_known(void **state)
{
    (void)state;
    struct weft_planner_decision first, d;
    rig_hosts(&rig, 2, 1, 0, GBIT);
    rig.config.policy = WEFT_PLAN_ORDER;
    rig.config.ahead = 0;
    rig.now_ns = 0;
    make();
    ask(0, 0, 0);
    assert_int_equal(plan(WEFT_PLANNER_GRANT, &first), 1);
    const uint64_t planned_ns = first.booking.end_ns - first.booking.start_ns;
    const uint64_t end_ns = first.booking.start_ns + 5 * planned_ns;
    while (weft_planner_deadline(rig.planner) < end_ns) {
        rig.now_ns = weft_planner_deadline(rig.planner);
        (void)plan(WEFT_PLANNER_GRANT, &d);
        const struct weft_timeline *down =
            weft_planner_link(rig.planner, rig.server_host[0], false);
        assert_true(down->steps[down->count - 1].from_ns > rig.now_ns);
    }
    assert_true(weft_planner_counters(rig.planner)->overdue <= 8);
    rig.now_ns = end_ns;
    assert_int_equal(weft_planner_committed(rig.planner, 0, -1, rig.now_ns), WEFT_OK);
    assert_int_equal(weft_planner_deadline(rig.planner), WEFT_NEVER);
    weft_planner_free(rig.planner);
}

/* ---- links that are down --------------------------------------------------------------------- */

/* Worker 0's uplink is down and the others continue. After tau_max grants it would have to be next;
 * it is dropped instead of blocking all workers. */
static void bound_with_a_dead_uplink(enum weft_planner_mode mode)
{
    rig_hosts(&rig, 3, 1, 0, GBIT);
    rig.config.mode = mode;
    rig.config.policy = WEFT_PLAN_ORDER | WEFT_PLAN_BOUND;
    rig.config.tau_max = 3;
    make();
    set_link(0, true, 0);
    ask(0, 0, 0);
    for (uint64_t i = 0; i < 12; i++) {
        uint32_t worker = 1 + i % 2;
        struct weft_planner_decision d;
        ask(worker, i / 2, i);
        assert_int_equal(plan(WEFT_PLANNER_GRANT, &d), 1);
        assert_int_equal(d.worker, worker);
        rig.now_ns = d.booking.end_ns;
        assert_int_equal(weft_planner_committed(rig.planner, worker, -1, rig.now_ns), WEFT_OK);
    }
    assert_int_equal(weft_planner_counters(rig.planner)->dropped_late, 1);
    /* The worker reads and computes again, and its update is sent when its link is up. */
    struct weft_planner_decision d;
    ask(0, 0, 12);
    assert_int_equal(plan(WEFT_PLANNER_GRANT, &d), 0);
    set_link(0, true, GBIT);
    assert_int_equal(plan(WEFT_PLANNER_GRANT, &d), 1);
    weft_planner_free(rig.planner);
}

static void a_dead_uplink_does_not_stop_others(void **state)
{
    (void)state;
    bound_with_a_dead_uplink(WEFT_PLANNER_ASYNC);
    bound_with_a_dead_uplink(WEFT_PLANNER_SSP);
}

/* If no update can be sent, no worker is blocked by another and nothing is dropped. */
static void a_dead_server_drops_nothing(void **state)
{
    (void)state;
    struct weft_planner_decision d;
    rig_hosts(&rig, 3, 1, 0, GBIT);
    rig.config.policy = WEFT_PLAN_ORDER | WEFT_PLAN_BOUND;
    rig.config.tau_max = 2;
    make();
    set_link(rig.server_host[0], false, 0);
    for (uint32_t w = 0; w < 3; w++) {
        ask(w, 0, 0);
    }
    assert_int_equal(plan(WEFT_PLANNER_DROP, &d), 0);
    set_link(rig.server_host[0], false, GBIT);
    assert_int_equal(plan(WEFT_PLANNER_GRANT, &d), 3);
    weft_planner_free(rig.planner);
}

/* The oldest read needs a downlink that is down: the others are granted, and it is granted when the
 * link is up. */
static void a_dead_downlink_does_not_stop_reads(void **state)
{
    (void)state;
    struct weft_planner_decision d;
    rig_hosts(&rig, 3, 1, 0, GBIT);
    make();
    set_link(0, false, 0);
    for (uint32_t w = 0; w < 3; w++) {
        assert_int_equal(weft_planner_read(rig.planner, w, 1000, 0), WEFT_OK);
    }
    assert_int_equal(plan(WEFT_PLANNER_GRANT_READ, &d), 2);
    set_link(0, false, GBIT);
    assert_int_equal(plan(WEFT_PLANNER_GRANT_READ, &d), 1);
    assert_int_equal(d.worker, 0);
    weft_planner_free(rig.planner);
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Workers with a busy server link, so that all updates except the first are summed. Returns the
 * transfers of the members. */
static uint32_t make_group(uint32_t policy, uint64_t *members, struct weft_planner_decision *sum_p)
{
    struct weft_planner_decision d;
    uint32_t count = 0;
    rig_hosts(&rig, 8, 1, 1, GBIT);
    rig.config.policy = WEFT_PLAN_ORDER | WEFT_PLAN_AGGREGATE | policy;
    make();
    for (uint32_t w = 0; w < 8; w++) {
        ask(w, 0, 0);
    }
    weft_planner_plan(rig.planner, 0);
    while (weft_planner_poll(rig.planner, &d)) {
        if (d.kind == WEFT_PLANNER_GRANT && d.group == 1) {
            members[count++] = d.transfer;
        } else if (d.kind == WEFT_PLANNER_GRANT_GROUP && d.group == 1) {
            *sum_p = d;
        }
    }
    assert_true(count >= 2);
    return count;
}

/* Any number of reports in one batch: one decision per transfer, and none is lost. */
static void a_flood_of_capacities(void **state)
{
    (void)state;
    uint64_t members[8];
    struct weft_planner_decision d, sum = {0};
    uint32_t count = make_group(0, members, &sum);
    for (uint32_t i = 0; i < count - 1; i++) {
        assert_int_equal(weft_planner_delivered(rig.planner, members[i], 0), WEFT_OK);
    }
    for (uint64_t i = 1; i <= 1000; i++) {
        set_link(rig.server_host[0], false, GBIT - i);
        set_link(rig.aggregator_host[0], false, GBIT - i);
    }
    assert_int_equal(weft_planner_delivered(rig.planner, members[count - 1], 0), WEFT_OK);
    set_link(rig.server_host[0], false, GBIT - 1000);
    uint64_t seen[64];
    uint32_t decisions = 0, sums = 0;
    weft_planner_plan(rig.planner, 0);
    while (weft_planner_poll(rig.planner, &d)) {
        for (uint32_t i = 0; i < decisions; i++) {
            assert_true(seen[i] != d.transfer);
        }
        assert_true(decisions < WEFT_ARRAY_COUNT(seen));
        seen[decisions++] = d.transfer;
        assert_true(d.booking.pieces[0].rate_bps <= GBIT - 1000 || d.from_host < 8);
        sums += d.kind == WEFT_PLANNER_GRANT_GROUP && !d.is_revised;
    }
    assert_int_equal(sums, 1);
    assert_int_equal(weft_planner_counters(rig.planner)->full, 0);
    weft_planner_free(rig.planner);
}

/* With cut-through a sum is in flight when a member leaves: the aggregator must not wait for that
 * member. */
static void a_sum_is_told_of_members_that_left(void **state)
{
    (void)state;
    uint64_t members[8];
    struct weft_planner_decision d, sum = {0};
    uint32_t count = make_group(WEFT_PLAN_CUT_THROUGH, members, &sum);
    assert_int_equal(sum.members, count);
    uint32_t left = 0;
    while (weft_planner_worker_left(rig.planner, left, 0) == WEFT_OK &&
           plan(WEFT_PLANNER_GRANT_GROUP, &d) == 0) {
        left++; /* updates sent directly are in no group */
        assert_true(left < 8);
    }
    assert_true(d.is_revised && d.transfer == sum.transfer && d.members == count - 1);
    assert_true(d.booking.start_ns >= rig.now_ns);
    weft_planner_free(rig.planner);
}

/* All workers ask. The members of the group at the only aggregator; returns their number. */
static uint32_t next_group(uint64_t clock, struct weft_planner_decision members[8])
{
    struct weft_planner_decision d;
    uint32_t count = 0;
    for (uint32_t w = 0; w < 8; w++) {
        ask(w, clock, weft_planner_version(rig.planner));
    }
    weft_planner_plan(rig.planner, rig.now_ns);
    while (weft_planner_poll(rig.planner, &d)) {
        if (d.kind == WEFT_PLANNER_GRANT && d.group != 0) {
            members[count++] = d;
        }
    }
    return count;
}

/* The last member of a group in flight leaves, before or after its update is at the aggregator; the
 * others were committed, or left. Nothing remains of the group, and its aggregator is used
 * again. */
static void last_member_leaves(bool is_delivered, bool are_committed)
{
    struct weft_planner_decision members[8];
    rig_hosts(&rig, 8, 1, 1, GBIT);
    rig.config.policy = WEFT_PLAN_ORDER | WEFT_PLAN_AGGREGATE;
    rig.now_ns = 0;
    make();
    const uint32_t count = next_group(0, members);
    uint32_t in_group = 0;
    assert_true(count >= 2);
    for (uint32_t i = 0; i < count; i++) {
        in_group |= UINT32_C(1) << members[i].worker;
        if (i < count - 1 || is_delivered) {
            assert_int_equal(weft_planner_delivered(rig.planner, members[i].transfer, 0), WEFT_OK);
        }
    }
    for (uint32_t w = 0; w < 8; w++) {
        if ((in_group >> w & 1) == 0) {
            assert_int_equal(weft_planner_worker_left(rig.planner, w, 0), WEFT_OK);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        const bool is_committed = are_committed && i < count - 1;
        assert_int_equal(is_committed
                             ? weft_planner_committed(rig.planner, members[i].worker, -1, 0)
                             : weft_planner_worker_left(rig.planner, members[i].worker, 0),
                         WEFT_OK);
    }
    assert_int_equal(weft_planner_deadline(rig.planner), WEFT_NEVER); /* nothing is in flight */
    assert_true(next_group(1, members) >= 2);
    weft_planner_free(rig.planner);
}

static void a_group_without_members_ends(void **state)
{
    (void)state;
    last_member_leaves(true, true);
    last_member_leaves(false, true);
    last_member_leaves(true, false);
    last_member_leaves(false, false);
}

/* Grant the updates of eight workers. Returns the number of members of groups 1 and 2, whose
 * planned transfers to the aggregators have ended by the rig's time. */
static uint32_t grant_two_groups(struct weft_planner_decision members[8])
{
    struct weft_planner_decision d;
    uint32_t count = 0;
    rig_hosts(&rig, 8, 1, 2, GBIT);
    rig.config.policy = WEFT_PLAN_ORDER | WEFT_PLAN_AGGREGATE;
    rig.config.ahead = 0;
    rig.now_ns = 0;
    make();
    for (uint32_t w = 0; w < 8; w++) {
        ask(w, 0, 0);
    }
    weft_planner_plan(rig.planner, 0);
    while (weft_planner_poll(rig.planner, &d)) {
        if (d.kind == WEFT_PLANNER_GRANT && (d.group == 1 || d.group == 2)) {
            members[count++] = d;
            rig.now_ns = weft_max_u64(rig.now_ns, d.booking.end_ns);
        }
    }
    return count;
}

/* Deliver the members of two sums. The planned transfers of both, the second behind the first, and
 * the workers in the first; returns their number. */
static uint32_t make_two_sums(struct weft_planner_decision sums[2], uint32_t workers[8])
{
    struct weft_planner_decision d, members[8];
    uint32_t sum_count = 0, first = 0;
    const uint32_t count = grant_two_groups(members);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(weft_planner_delivered(rig.planner, members[i].transfer, rig.now_ns),
                         WEFT_OK);
    }
    weft_planner_plan(rig.planner, rig.now_ns);
    while (weft_planner_poll(rig.planner, &d)) {
        if (d.kind == WEFT_PLANNER_GRANT_GROUP) {
            assert_true(sum_count < 2);
            sums[sum_count++] = d;
        }
    }
    if (sums[0].booking.start_ns > sums[1].booking.start_ns) {
        d = sums[0];
        sums[0] = sums[1];
        sums[1] = d;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (members[i].group == sums[0].group) {
            workers[first++] = members[i].worker;
        }
    }
    assert_int_equal(sum_count, 2);
    assert_true(first >= 2);
    assert_true(sums[1].booking.start_ns >= sums[0].booking.end_ns);
    return first;
}

/* Let this many quarters of the planned time of a sum pass. */
static void pass(const struct weft_booking *booking, uint64_t quarters)
{
    struct weft_planner_decision d;
    const uint64_t end_ns =
        booking->start_ns + (booking->end_ns - booking->start_ns) * quarters / 4;
    while (weft_planner_deadline(rig.planner) < end_ns) {
        rig.now_ns = weft_planner_deadline(rig.planner);
        (void)plan(WEFT_PLANNER_GRANT_GROUP, &d);
    }
    rig.now_ns = end_ns;
}

/* A sum arrives, early or late, as reported for the first of its members: the sum that waits at
 * another aggregator is sent now, not at its planned time. A member that is committed without the
 * sum says nothing about it. */
static void sums_follow(uint64_t quarters, bool is_direct)
{
    struct weft_planner_decision sums[2] = {{0}}, d = {0};
    uint32_t workers[8];
    (void)make_two_sums(sums, workers);
    pass(&sums[0].booking, quarters);
    if (is_direct) {
        assert_int_equal(weft_planner_committed(rig.planner, workers[0], -1, rig.now_ns), WEFT_OK);
        assert_int_equal(plan(WEFT_PLANNER_GRANT_GROUP, &d), 0);
        assert_int_equal(weft_planner_delivered(rig.planner, sums[0].transfer, rig.now_ns),
                         WEFT_OK);
        weft_planner_free(rig.planner);
        return;
    }
    assert_int_equal(weft_planner_sum_arrived(rig.planner, workers[0], 0, rig.now_ns), WEFT_OK);
    assert_true(plan(WEFT_PLANNER_GRANT_GROUP, &d) == 1 && d.is_revised);
    assert_int_equal(d.transfer, sums[1].transfer);
    assert_int_equal(d.booking.start_ns, rig.now_ns);
    weft_planner_free(rig.planner);
}

static void sums_follow_an_early_or_late_one(void **state)
{
    (void)state;
    sums_follow(3, false);
    sums_follow(6, false);
    sums_follow(3, true);
}

/* All members of the first sum leave, or are committed without it: nothing of it will arrive, and
 * the second sum is sent now. */
static void a_sum_follows_a_group_that_ends(void **state)
{
    (void)state;
    for (uint32_t leave = 0; leave < 2; leave++) {
        struct weft_planner_decision sums[2] = {{0}}, d = {0};
        uint32_t workers[8];
        const uint32_t count = make_two_sums(sums, workers);
        pass(&sums[0].booking, 1);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(plan(WEFT_PLANNER_GRANT_GROUP, &d), 0);
            assert_int_equal(
                leave ? weft_planner_worker_left(rig.planner, workers[i], rig.now_ns)
                      : weft_planner_committed(rig.planner, workers[i], -1, rig.now_ns),
                WEFT_OK);
        }
        assert_true(plan(WEFT_PLANNER_GRANT_GROUP, &d) == 1 && d.is_revised);
        assert_int_equal(d.transfer, sums[1].transfer);
        assert_int_equal(d.booking.start_ns, rig.now_ns);
        weft_planner_free(rig.planner);
    }
}

/* A sum arrives, and the members of the second one have arrived since the last plan: its transfer
 * is not announced yet. */
static void a_new_sum_follows(void **state)
{
    enum { SECOND = 1, FIRST = 2 }; /* on the link */
    (void)state;
    struct weft_planner_decision d, members[8], sum = {0};
    uint32_t first = 8;
    const uint32_t count = grant_two_groups(members);
    for (uint32_t i = 0; i < count; i++) {
        if (members[i].group == FIRST) {
            first = members[i].worker;
            assert_int_equal(weft_planner_delivered(rig.planner, members[i].transfer, rig.now_ns),
                             WEFT_OK);
        }
    }
    assert_int_equal(plan(WEFT_PLANNER_GRANT_GROUP, &sum), 1);
    assert_int_equal(sum.group, FIRST);
    for (uint32_t i = 0; i < count; i++) {
        if (members[i].group == SECOND) {
            assert_int_equal(weft_planner_delivered(rig.planner, members[i].transfer, rig.now_ns),
                             WEFT_OK);
        }
    }
    rig.now_ns = sum.booking.end_ns - (sum.booking.end_ns - sum.booking.start_ns) / 4;
    assert_int_equal(weft_planner_sum_arrived(rig.planner, first, 0, rig.now_ns), WEFT_OK);
    assert_true(plan(WEFT_PLANNER_GRANT_GROUP, &d) == 1 && !d.is_revised && d.group == SECOND);
    assert_int_equal(d.booking.start_ns, rig.now_ns);
    weft_planner_free(rig.planner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_link_that_is_slower_than_known),
        cmocka_unit_test(a_dead_uplink_does_not_stop_others),
        cmocka_unit_test(a_dead_server_drops_nothing),
        cmocka_unit_test(a_dead_downlink_does_not_stop_reads),
        cmocka_unit_test(a_flood_of_capacities),
        cmocka_unit_test(a_sum_is_told_of_members_that_left),
        cmocka_unit_test(a_group_without_members_ends),
        cmocka_unit_test(sums_follow_an_early_or_late_one),
        cmocka_unit_test(a_sum_follows_a_group_that_ends),
        cmocka_unit_test(a_new_sum_follows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
