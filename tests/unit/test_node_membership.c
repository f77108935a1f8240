/* Joining a job as a worker and as a server, and the addresses of the servers, initially and after
 * a move. */
#include "coordinator.h"
#include "io/clock.h"

#include "node/membership.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { SHARDS = 2 };

static const struct weft_security none = {.mode = WEFT_MODE_NONE};
static const uint64_t patience_ns = 60 * WEFT_NS_PER_S;

static struct weft_membership membership_at(uint16_t port)
{
    struct weft_membership membership = WEFT_MEMBERSHIP_DEFAULTS;
    membership.launch = weft_launch_nothing();
    assert_false(weft_membership_has_coordinator(&membership));
    snprintf(membership.launch.coordinator_host, sizeof(membership.launch.coordinator_host),
             "localhost");
    membership.launch.coordinator_port = port;
    assert_true(weft_membership_has_coordinator(&membership));
    return membership;
}

static weft_status join_as(struct weft_membership *membership, uint32_t span,
                           enum weft_member_wait what, struct weft_member_state *state_p,
                           struct weft_error *error)
{
    const struct weft_transport_options transport = {.kind = WEFT_DRIVER_UDP};
    const struct weft_membership_join join = {
        .security = &none,
        .transport = &transport,
        .first = span > 0 ? 0 : WEFT_MEMBER_NONE,
        .span = span,
        .what = what,
        .patience_ns = patience_ns,
    };
    return weft_membership_join(membership, &join, state_p, error);
}

static void publish(struct weft_membership *server, uint16_t first_port)
{
    struct weft_member_address addresses[SHARDS];
    for (uint32_t s = 0; s < SHARDS; s++) {
        assert_int_equal(weft_resolve_member_address("127.0.0.1", (uint16_t)(first_port + s),
                                                     &addresses[s], NULL),
                         WEFT_OK);
    }
    weft_member_thread_publish(server->thread, addresses);
}

static void a_job_comes_together(void **state)
{
    (void)state;
    struct weft_coordinator coordinator;
    struct weft_error error = {.text = ""};
    struct weft_member_state lease;
    struct weft_launch_address address = {.host = "as before", .port = 9};
    uint16_t port = coordinator_start(&coordinator, 0, SHARDS, 10 * WEFT_NS_PER_S);
    struct weft_membership server = membership_at(port), worker = membership_at(port);
    assert_false(weft_membership_locate(&worker, 0, SHARDS, &address));

    assert_int_equal(join_as(&server, SHARDS, WEFT_MEMBER_WAIT_JOINED, &lease, &error), WEFT_OK);
    assert_int_equal(lease.grant.first, 0);
    assert_int_equal(lease.grant.shards, SHARDS);
    publish(&server, 4000);
    assert_int_equal(join_as(&worker, 0, WEFT_MEMBER_WAIT_LISTED, &lease, &error), WEFT_OK);
    assert_int_equal(lease.grant.workers, 2);
    assert_int_equal(lease.list.count, SHARDS);

    assert_false(weft_membership_locate(&worker, 0, SHARDS + 1, &address));
    assert_string_equal(address.host, "as before");
    assert_true(weft_membership_locate(&worker, 1, SHARDS, &address));
    assert_string_equal(address.host, "127.0.0.1");
    assert_int_equal(address.port, 4001);

    publish(&server, 5000); /* the server restarted at another address */
    uint64_t end_ns = weft_clock_now_ns() + patience_ns;
    while (address.port != 5001) {
        assert_true(weft_clock_now_ns() < end_ns);
        assert_true(weft_membership_locate(&worker, 1, SHARDS, &address));
        const struct timespec pause = {.tv_nsec = (long)WEFT_NS_PER_MS};
        (void)nanosleep(&pause, NULL);
    }
    weft_membership_leave(&worker, true);
    assert_false(weft_membership_locate(&worker, 1, SHARDS, &address));
    weft_membership_leave(&worker, true);
    weft_membership_leave(&server, true);
    weft_coordinator_stop(&coordinator);
}

static void another_job_is_refused(void **state)
{
    (void)state;
    struct weft_coordinator coordinator;
    struct weft_error error = {.text = ""};
    struct weft_member_state lease;
    uint16_t port = coordinator_start(&coordinator, 0, SHARDS, 10 * WEFT_NS_PER_S);
    struct weft_membership worker = membership_at(port);
    worker.launch.workers = 3;
    assert_int_equal(join_as(&worker, 0, WEFT_MEMBER_WAIT_JOINED, &lease, &error), WEFT_PEER);
    assert_non_null(strstr(error.text, "2 workers, not 3"));
    weft_membership_leave(&worker, false);
    weft_coordinator_stop(&coordinator);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_comes_together),
        cmocka_unit_test(another_job_is_refused),
    };
    return cmocka_run_group_tests_name("node_membership", tests, NULL, NULL);
}
