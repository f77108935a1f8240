/* Delivers messages between a scheduler's service and the daemons of a job without delay, for
 * tests. */
#ifndef WEFT_TESTS_SCHED_EXCHANGE_H
#define WEFT_TESTS_SCHED_EXCHANGE_H

#include "sched/daemon.h"
#include "sched/service.h"
#include "sched/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The daemon of process p of a job: workers first, then servers. link_bps: of each direction; 0 =
 * unknown. */
[[maybe_unused]] static struct weft_sched_daemon *
sched_daemon_of(uint32_t p, uint32_t workers, uint32_t shards, enum weft_sched_mode mode,
                uint64_t tau_max, uint64_t link_bps)
{
    struct weft_sched_daemon_config config;
    struct weft_sched_daemon *daemon;
    const bool is_worker = p < workers;
    weft_sched_daemon_config_default(&config);
    config.role = is_worker ? WEFT_SCHED_WORKER : WEFT_SCHED_SERVER;
    config.index = is_worker ? p : p - workers;
    config.workers = workers;
    config.shards = shards;
    config.mode = is_worker ? mode : 0;
    config.tau_max = is_worker ? tau_max : 0;
    config.up_bps = config.down_bps = link_bps;
    assert_int_equal(weft_sched_daemon_new(&config, &daemon), WEFT_OK);
    return daemon;
}

/* All reports that are due. daemons: (count,), by the number of their connection. */
static inline void sched_report(struct weft_sched_service *service,
                                struct weft_sched_daemon *const *daemons, uint32_t count,
                                uint64_t now_ns)
{
    static struct weft_sched_report report;
    static uint8_t bytes[WEFT_SCHED_REPORT_BYTES_MAX];
    for (uint32_t i = 0; i < count; i++) {
        while (weft_sched_daemon_poll(daemons[i], now_ns, &report)) {
            size_t size = weft_sched_report_pack(&report, bytes);
            assert_true(weft_sched_service_report(service, i, bytes, size, now_ns));
        }
    }
}

static inline void sched_exchange(struct weft_sched_service *service,
                                  struct weft_sched_daemon *const *daemons, uint32_t count,
                                  uint64_t now_ns)
{
    static uint8_t bytes[WEFT_SCHED_PLAN_BYTES_MAX];
    struct weft_sched_plan plan;
    uint32_t conn;
    sched_report(service, daemons, count, now_ns);
    if (weft_sched_service_is_ready(service)) {
        assert_int_equal(weft_sched_job_new(service), WEFT_OK);
    }
    weft_sched_service_progress(service, now_ns);
    while (weft_sched_service_poll(service, now_ns, &conn, &plan)) {
        size_t size = weft_sched_plan_pack(&plan, bytes);
        assert_true(weft_sched_daemon_plan(daemons[conn], bytes, size, now_ns));
    }
}

#endif
