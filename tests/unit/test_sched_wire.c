/* Reports and plans: packed messages unpack to the same values, and every malformed byte is
 * refused. */
#include "sched/planner.h"
#include "sched/timeline.h"
#include "sched/wire.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static uint8_t bytes[WEFT_SCHED_REPORT_BYTES_MAX];
static struct weft_sched_report back;
static struct weft_sched_plan plan_back;

static struct weft_sched_report worker_report(void)
{
    struct weft_sched_report q = {.number = 7,
                                  .role = WEFT_SCHED_WORKER,
                                  .index = 3,
                                  .workers = 4,
                                  .shards = 2,
                                  .mode = WEFT_SCHED_ASP,
                                  .tau_max = 9,
                                  .up_bps = 1000000000,
                                  .clock = 12,
                                  .ended = 11,
                                  .norm = 2.5,
                                  .count = 2,
                                  .job = "job-1"};
    q.shares[0] = (struct weft_sched_share){.bytes = 100000, .base = 40};
    q.shares[1] = (struct weft_sched_share){.bytes = 0, .base = 41, .span_ns = 5};
    return q;
}

static struct weft_sched_report server_report(void)
{
    struct weft_sched_report q = {.number = 1,
                                  .role = WEFT_SCHED_SERVER,
                                  .index = 1,
                                  .workers = 4,
                                  .shards = 2,
                                  .first = 100,
                                  .opened = 30,
                                  .closed = 29,
                                  .host = 77,
                                  .count = 2};
    q.events[0] = (struct weft_sched_event){.worker = 3,
                                            .clock = 12,
                                            .norm = 0.5,
                                            .rate_bps = 900000,
                                            .alone_bps = 1000000,
                                            .all_bps = 3000000,
                                            .members = WEFT_SCHED_MEMBERS_MAX,
                                            .sum_bytes = 380000};
    q.events[1] =
        (struct weft_sched_event){.worker = 0, .flags = WEFT_SCHED_LATE, .clock = 1, .norm = -1};
    return q;
}

static weft_status unpack(const struct weft_sched_report *q)
{
    return weft_sched_report_unpack(bytes, weft_sched_report_pack(q, bytes), &back);
}

static void reports_come_back(void **state)
{
    (void)state;
    struct weft_sched_report q = worker_report();
    q.aggregators = WEFT_SCHED_AGGREGATORS_MAX;
    q.reached = 0x80000001;
    assert_int_equal(unpack(&q), WEFT_OK);
    assert_int_equal(back.aggregators, WEFT_SCHED_AGGREGATORS_MAX);
    assert_int_equal(back.reached, 0x80000001);
    assert_int_equal(back.clock, 12);
    assert_int_equal(back.ended, 11);
    assert_true(back.norm == 2.5);
    assert_int_equal(back.shares[1].span_ns, 5);
    assert_string_equal(back.job, "job-1");
    q.read = UINT64_MAX;
    q.flags = WEFT_SCHED_READING | WEFT_SCHED_SENDING;
    assert_int_equal(unpack(&q), WEFT_OK);
    assert_true(back.read == UINT64_MAX && back.closed == 0);
    assert_int_equal(back.flags, WEFT_SCHED_READING | WEFT_SCHED_SENDING);
    q = server_report();
    assert_int_equal(unpack(&q), WEFT_OK);
    assert_int_equal(back.first, 100);
    assert_int_equal(back.transfer, 0);
    q.transfer = UINT32_MAX;
    q.transfer_bytes = WEFT_PLANNER_BYTES_MAX;
    q.flags = WEFT_SCHED_TRANSFER_WAITS;
    assert_int_equal(unpack(&q), WEFT_OK);
    assert_true(back.transfer == UINT32_MAX && back.transfer_bytes == WEFT_PLANNER_BYTES_MAX);
    assert_true(back.flags == WEFT_SCHED_TRANSFER_WAITS && back.tau_max == 0 &&
                back.aggregators == 0);
    assert_int_equal(back.closed, 29);
    assert_int_equal(back.events[0].rate_bps, 900000);
    assert_int_equal(back.events[0].alone_bps, 1000000);
    assert_int_equal(back.events[0].all_bps, 3000000);
    assert_int_equal(back.events[0].members, WEFT_SCHED_MEMBERS_MAX);
    assert_int_equal(back.events[0].sum_bytes, 380000);
    assert_int_equal(back.events[1].members, 0);
    assert_int_equal(back.events[1].flags, WEFT_SCHED_LATE);
    assert_true(back.events[1].norm == -1);
}

/* Each case is one change of a valid report. */
static void contradictions_are_refused(void **state)
{
    (void)state;
    struct weft_sched_report q;
#define REFUSED(report, change)                                                                    \
    do {                                                                                           \
        q = report();                                                                              \
        change;                                                                                    \
        assert_int_equal(unpack(&q), WEFT_PROTO);                                                  \
    } while (0)
    REFUSED(worker_report, q.number = 0);
    REFUSED(worker_report, q.norm = -1);
    REFUSED(worker_report, q.norm = (double)NAN);
    REFUSED(worker_report, q.norm = (double)INFINITY);
    REFUSED(worker_report, q.up_bps = UINT64_MAX);
    REFUSED(worker_report, q.down_bps = WEFT_TIMELINE_BPS_MAX + 1);
    REFUSED(worker_report, q.index = 4);
    REFUSED(worker_report, q.ended = 13);
    REFUSED(worker_report, q.count = 1);
    REFUSED(worker_report, q.clock = 0);
    REFUSED(worker_report, q.shares[0].bytes = UINT64_MAX);
    REFUSED(worker_report, q.shares[0].bytes = 0);
    REFUSED(worker_report, q.flags = 0x80);
    REFUSED(worker_report, q.mode = (enum weft_sched_mode)3);
    REFUSED(worker_report, q.workers = WEFT_SCHED_WORKERS_MAX + 1);
    REFUSED(worker_report, q.shards = 0);
    REFUSED(worker_report, q.job[0] = '/');
    REFUSED(worker_report, q.aggregators = WEFT_SCHED_AGGREGATORS_MAX + 1);
    REFUSED(worker_report, (q.aggregators = 2, q.reached = 4));
    REFUSED(worker_report, q.reached = 1);
    REFUSED(worker_report, q.flags = WEFT_SCHED_READING); /* flag without a read */
    REFUSED(server_report, q.flags = WEFT_SCHED_READING);
    REFUSED(worker_report, q.job[31] = 'x');
    REFUSED(server_report, q.first = 0);
    REFUSED(server_report, q.index = 2);
    REFUSED(server_report, q.transfer = 1); /* no bytes */
    REFUSED(server_report, q.transfer_bytes = 1);
    REFUSED(server_report, (q.transfer = 1, q.transfer_bytes = WEFT_PLANNER_BYTES_MAX + 1));
    REFUSED(server_report, q.flags = WEFT_SCHED_TRANSFER_WAITS);
    REFUSED(worker_report, q.flags = WEFT_SCHED_TRANSFER_WAITS);
    REFUSED(server_report, q.closed = 31);
    REFUSED(server_report, q.flags = WEFT_SCHED_SENDING);
    REFUSED(server_report, q.events[0].clock = 0);
    REFUSED(server_report, q.events[0].norm = -2);
    REFUSED(server_report, q.events[0].norm = (double)NAN);
    REFUSED(server_report, q.events[0].worker = WEFT_SCHED_WORKERS_MAX);
    REFUSED(server_report, q.events[0].flags = 2);
    REFUSED(server_report, q.events[0].rate_bps = 3000001);
    REFUSED(server_report, q.events[0].alone_bps = WEFT_TIMELINE_BPS_MAX + 1);
    REFUSED(server_report, q.events[0].all_bps = UINT64_MAX);
    REFUSED(server_report, q.events[0].members = WEFT_SCHED_MEMBERS_MAX + 1);
    REFUSED(server_report, q.events[0].members = 0); /* bytes of no sum */
    REFUSED(server_report, q.events[0].sum_bytes = 0);
    REFUSED(server_report, q.events[0].sum_bytes = WEFT_PLANNER_BYTES_MAX + 1);
    REFUSED(server_report, q.role = (enum weft_sched_role)3);
}

static struct weft_sched_plan granted(void)
{
    struct weft_sched_plan a = {.number = 2,
                                .report = 9,
                                .verdict = WEFT_SCHED_GRANTED,
                                .life = 5,
                                .clock = 12,
                                .revision = 1,
                                .direct_bps = 1000,
                                .count = 2};
    a.grants[0] = (struct weft_sched_grant){
        .shard = 0, .rank = 1, .start_in_ns = 1000, .rate_bps = 900000000};
    a.grants[1] = (struct weft_sched_grant){.shard = 3, .rate_bps = 1};
    return a;
}

static void hop(struct weft_sched_plan *a, uint32_t hop, uint32_t group, uint32_t members)
{
    a->hop = hop;
    a->group = group;
    a->members = members;
    for (uint32_t i = 0; i < a->count; i++) {
        a->grants[i].members = members;
    }
}

static void plans_come_back_or_are_refused(void **state)
{
    (void)state;
    struct weft_sched_plan a;
#define PLAN(status, change)                                                                       \
    do {                                                                                           \
        a = granted();                                                                             \
        change;                                                                                    \
        assert_int_equal(                                                                          \
            weft_sched_plan_unpack(bytes, weft_sched_plan_pack(&a, bytes), &plan_back), status);   \
    } while (0)
    PLAN(WEFT_OK, (void)0);
    assert_int_equal(plan_back.grants[1].shard, 3);
    assert_int_equal(plan_back.grants[0].start_in_ns, 1000);
    PLAN(WEFT_OK, a.status = 999);
    assert_string_equal(weft_sched_status_name(999), "unknown");
    PLAN(WEFT_OK, hop(&a, WEFT_SCHED_AGGREGATORS_MAX, 70000, 256));
    assert_int_equal(plan_back.hop, WEFT_SCHED_AGGREGATORS_MAX);
    assert_int_equal(plan_back.group, 70000);
    assert_int_equal(plan_back.members, 256);
    assert_int_equal(plan_back.grants[0].members, 256);
    PLAN(WEFT_OK, (a.flags = WEFT_SCHED_ADMITS, a.admitted = 13));
    assert_true(plan_back.admitted == 13 && plan_back.taken == 0);
    PLAN(WEFT_OK, a.taken = 13);
    assert_true(plan_back.admitted == 0 && plan_back.taken == 13 && plan_back.flags == 0);
    PLAN(WEFT_PROTO, a.flags = 0x02);
    PLAN(WEFT_PROTO, a.flags = 0x80 | WEFT_SCHED_ADMITS);
    PLAN(WEFT_OK, (hop(&a, 1, 1, 2), a.grants[1].members = 1));
    assert_int_equal(plan_back.grants[0].members, 2);
    assert_int_equal(plan_back.grants[1].members, 1);
    PLAN(WEFT_PROTO, (hop(&a, 1, 1, 2), a.grants[1].members = 0));
    PLAN(WEFT_PROTO, (hop(&a, 1, 1, 2), a.grants[1].members = 3));
    PLAN(WEFT_PROTO, a.grants[1].members = 1);
    PLAN(WEFT_PROTO, hop(&a, WEFT_SCHED_AGGREGATORS_MAX + 1, 1, 2));
    PLAN(WEFT_PROTO, hop(&a, 1, 0, 2));
    PLAN(WEFT_PROTO, hop(&a, 1, 1, 1));
    PLAN(WEFT_PROTO, hop(&a, 1, 1, 257));
    PLAN(WEFT_PROTO, (a.hop = 0, a.group = 1));
    PLAN(WEFT_PROTO, (a.hop = 0, a.members = 2));
    PLAN(WEFT_PROTO, a.number = 0);
    PLAN(WEFT_PROTO, a.life = 0);
    PLAN(WEFT_PROTO, a.clock = 0);
    PLAN(WEFT_PROTO, a.revision = 0);
    PLAN(WEFT_PROTO, a.count = 0);
    PLAN(WEFT_PROTO, a.why = 1);
    PLAN(WEFT_PROTO, a.verdict = WEFT_SCHED_WAITING);
    PLAN(WEFT_PROTO, a.verdict = WEFT_SCHED_VERDICT_COUNT);
    PLAN(WEFT_PROTO, a.grants[0].rate_bps = 0);
    PLAN(WEFT_PROTO, a.grants[0].rate_bps = UINT64_MAX);
    PLAN(WEFT_OK, a.grants[1].start_in_ns = WEFT_SCHED_START_S_MAX * WEFT_NS_PER_S);
    PLAN(WEFT_PROTO, a.grants[1].start_in_ns = WEFT_SCHED_START_S_MAX * WEFT_NS_PER_S + 1);
    PLAN(WEFT_PROTO, a.grants[1].shard = 0);
    PLAN(WEFT_PROTO, a.grants[1].shard = WEFT_SCHED_SHARDS_MAX);
}

/* Every invalid length, and every reserved byte. */
static void lengths_and_reserved_bytes(void **state)
{
    (void)state;
    struct weft_sched_report q = worker_report();
    size_t count = weft_sched_report_pack(&q, bytes);
    assert_int_equal(count, WEFT_SCHED_REPORT_BYTES + 2 * WEFT_SCHED_SHARE_BYTES);
    assert_int_equal(count % WEFT_SCHED_ELEM_BYTES, 0);
    for (size_t n = 0; n < count; n++) {
        assert_int_equal(weft_sched_report_unpack(bytes, n, &back), WEFT_PROTO);
    }
    static const uint8_t reserved[] = {21, 22, 23, 82, 87};
    for (size_t i = 0; i < sizeof(reserved); i++) {
        bytes[reserved[i]] = 1;
        assert_int_equal(weft_sched_report_unpack(bytes, count, &back), WEFT_PROTO);
        bytes[reserved[i]] = 0;
    }
    assert_int_equal(weft_sched_report_unpack(bytes, count, &back), WEFT_OK);
    struct weft_sched_plan a = granted();
    count = weft_sched_plan_pack(&a, bytes);
    bytes[15] = 1;
    assert_int_equal(weft_sched_plan_unpack(bytes, count, &plan_back), WEFT_PROTO);
    bytes[15] = 0;
    assert_int_equal(weft_sched_plan_unpack(bytes, count, &plan_back), WEFT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports_come_back),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(plans_come_back_or_are_refused),
        cmocka_unit_test(lengths_and_reserved_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
