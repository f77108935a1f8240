/* A worker's link to the scheduler over a transport in memory: a report that finds no room. */
#include "fake_msgr.h"
#include "node/sched_link.h"
#include "rpc/head.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { WORKER, SCHEDULER };

static void poll_all(struct fake_net *net, struct weft_sched_link *link)
{
    struct weft_msg_event event;
    while (fake_poll(&net->nodes[WORKER], &event)) {
        assert_true(weft_sched_link_event(link, &event, net->now_ns));
    }
    weft_sched_link_progress(link, net->now_ns);
}

/* The transport has no room for a report: the link does not ask to be called again at once, but
 * soon. */
static void a_report_without_room_waits(void **state)
{
    (void)state;
    struct fake_net *net = fake_net_new(1);
    struct weft_sched_daemon_config config;
    struct weft_sched_link *link = NULL;
    weft_sched_daemon_config_default(&config);
    config.role = WEFT_SCHED_WORKER;
    config.workers = 1;
    config.mode = WEFT_SCHED_ASP;
    config.tau_max = 4;
    assert_int_equal(weft_sched_link_new(&config, fake_msgr(net, WORKER), &link), WEFT_OK);
    net->nodes[SCHEDULER].name = weft_rpc_name(WEFT_ROLE_SCHEDULER, 0);
    weft_sched_link_connecting(link, fake_peer(SCHEDULER), net->now_ns);
    net->msgs_max = 0;
    fake_connect(net, WORKER, SCHEDULER);
    poll_all(net, link);
    const uint64_t due_ns = weft_sched_link_deadline(link);
    assert_true(due_ns > net->now_ns && due_ns <= net->now_ns + 10 * WEFT_NS_PER_MS);
    net->now_ns = due_ns;
    weft_sched_link_progress(link, net->now_ns);
    assert_true(weft_sched_link_deadline(link) > net->now_ns);
    assert_int_equal(net->sent_bytes[WORKER], 0);
    net->msgs_max = WEFT_MSGS_MAX;
    net->now_ns = weft_sched_link_deadline(link);
    weft_sched_link_progress(link, net->now_ns);
    assert_true(net->sent_bytes[WORKER] > 0 && weft_sched_link_is_sending(link));
    weft_sched_link_free(link);
    fake_net_free(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_without_room_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
