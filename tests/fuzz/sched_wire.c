/* Reports and plans of the transfer scheduler from arbitrary bytes: a decoder refuses them, or its
 * result packs into the same bytes; a service and a daemon accept any of them, and their output can
 * be decoded. The first byte is 1 for the report of a worker, 2 for that of a server, else a plan.
 */
#include "base/assert.h"
#include "sched/daemon.h"
#include "sched/service.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t bytes[WEFT_SCHED_REPORT_BYTES_MAX];
static struct weft_sched_report report;

static void expect_plans(struct weft_sched_service *service, uint64_t now_ns)
{
    static uint8_t plan_bytes[WEFT_SCHED_PLAN_BYTES_MAX];
    struct weft_sched_plan plan, back;
    uint32_t conn;
    if (weft_sched_service_is_ready(service)) {
        WEFT_ASSERT(weft_sched_job_new(service) == WEFT_OK);
    }
    weft_sched_service_progress(service, now_ns);
    while (weft_sched_service_poll(service, now_ns, &conn, &plan)) {
        size_t count = weft_sched_plan_pack(&plan, plan_bytes);
        WEFT_ASSERT(weft_sched_plan_unpack(plan_bytes, count, &back) == WEFT_OK);
    }
}

/* The other half of the job first, so that a planner exists for the messages of this one. */
static void serve(const uint8_t *data, size_t size)
{
    struct weft_sched_service *service;
    struct weft_sched_service_config config;
    weft_sched_service_config_default(&config);
    config.conns_max = 2;
    config.life = 1;
    config.read_credits = 1;
    WEFT_ASSERT(weft_sched_service_new(&config, &service) == WEFT_OK);
    enum weft_sched_role other =
        report.role == WEFT_SCHED_WORKER ? WEFT_SCHED_SERVER : WEFT_SCHED_WORKER;
    struct weft_sched_report first = {.number = 1,
                                      .role = other,
                                      .workers = report.workers,
                                      .shards = report.shards,
                                      .tau_max = other == WEFT_SCHED_WORKER ? report.tau_max : 0};
    memcpy(first.job, report.job, sizeof(first.job));
    weft_sched_service_connected(service, 0, other, 0, 1);
    weft_sched_service_connected(service, 1, report.role, report.index, 1);
    size_t count = weft_sched_report_pack(&first, bytes);
    (void)weft_sched_service_report(service, 0, bytes, count, 0);
    expect_plans(service, 0);
    for (uint64_t now_ns = 1; now_ns < 8 * WEFT_NS_PER_S; now_ns += 2 * WEFT_NS_PER_S) {
        (void)weft_sched_service_report(service, 1, data, size, now_ns);
        expect_plans(service, now_ns);
    }
    weft_sched_service_disconnected(service, 1, 9 * WEFT_NS_PER_S);
    weft_sched_service_free(service);
}

static void plan(const uint8_t *data, size_t size)
{
    static const struct weft_sched_share shares[WEFT_SCHED_SHARDS_MAX] = {{.bytes = 1}};
    static struct weft_sched_plan a;
    if (weft_sched_plan_unpack(data, size, &a) != WEFT_OK) {
        return;
    }
    WEFT_ASSERT(weft_sched_plan_pack(&a, bytes) == size);
    WEFT_ASSERT(memcmp(bytes, data, size) == 0);
    WEFT_ASSERT(weft_sched_status_text(a.status) != NULL);
    struct weft_sched_daemon *daemon;
    struct weft_sched_daemon_config config;
    struct weft_sched_answer answer;
    weft_sched_daemon_config_default(&config);
    config.role = WEFT_SCHED_WORKER;
    config.workers = 1;
    WEFT_ASSERT(weft_sched_daemon_new(&config, &daemon) == WEFT_OK);
    weft_sched_daemon_connected(daemon, 0);
    weft_sched_daemon_ask(daemon, a.clock != 0 ? a.clock : 1, 1, shares, 0);
    weft_sched_daemon_read(daemon, a.admitted != 0 ? a.admitted : 1, 0);
    while (weft_sched_daemon_poll(daemon, 0, &report)) {
    }
    for (uint64_t now_ns = 1; now_ns < 4 * WEFT_NS_PER_S; now_ns += WEFT_NS_PER_S) {
        (void)weft_sched_daemon_plan(daemon, data, size, now_ns);
        while (weft_sched_daemon_answer(daemon, now_ns, &answer)) {
            WEFT_ASSERT(answer.kind != WEFT_SCHED_SEND || answer.shard < config.shards);
        }
        if (weft_sched_daemon_may_read(daemon, now_ns)) {
            weft_sched_daemon_read_over(daemon);
        }
    }
    weft_sched_daemon_free(daemon);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    if (data[0] != 1 && data[0] != 2) {
        plan(data + 1, size - 1);
    } else if (weft_sched_report_unpack(data + 1, size - 1, &report) == WEFT_OK) {
        WEFT_ASSERT(weft_sched_report_pack(&report, bytes) == size - 1);
        WEFT_ASSERT(memcmp(bytes, data + 1, size - 1) == 0);
        serve(data + 1, size - 1);
    }
    return 0;
}
