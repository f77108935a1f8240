/* The member thread against a coordinator on a real socket: joining, the list, publishing, being
 * replaced, a coordinator that restarts at the same port, and the error text without a reply. */
#include "coordinator.h"
#include "free_port.h"

#include "io/clock.h"
#include "io/member_thread.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <poll.h>
#include <string.h>

static const uint64_t patience_ns = 120 * WEFT_NS_PER_S;
static const uint64_t lease_ns = 600 * WEFT_NS_PER_MS;

static struct weft_member_thread *member_start(uint16_t port, uint8_t role, uint64_t member,
                                               uint64_t incarnation)
{
    struct weft_member_thread *thread = NULL;
    struct weft_error error = {.text = ""};
    bool is_server = role == WEFT_ROLE_SERVER;
    struct weft_member_thread_config config = {.host = "localhost", .port = port};
    weft_driver_config_default(&config.driver);
    config.member = (struct weft_member_client_config){.role = role,
                                                       .member = member,
                                                       .incarnation = incarnation,
                                                       .rank = WEFT_MEMBER_NONE,
                                                       .first = is_server ? 0 : WEFT_MEMBER_NONE,
                                                       .span = is_server ? 1 : 0};
    assert_int_equal(weft_member_thread_start(&config, &thread, &error), WEFT_OK);
    return thread;
}

static void publish(struct weft_member_thread *thread, const char *host, uint16_t port)
{
    struct weft_member_address address;
    assert_int_equal(weft_resolve_member_address(host, port, &address, NULL), WEFT_OK);
    weft_member_thread_publish(thread, &address);
}

static weft_status wait_for(struct weft_member_thread *thread, enum weft_member_wait what,
                            struct weft_member_state *state, struct weft_error *error)
{
    return weft_member_thread_wait(thread, what, patience_ns, NULL, state, error);
}

static void joins_and_lists(void **state)
{
    (void)state;
    static struct weft_member_state seen;
    struct weft_coordinator c;
    struct weft_error error;
    uint16_t port = coordinator_start(&c, 0, 1, lease_ns);
    struct weft_member_thread *worker = member_start(port, WEFT_ROLE_WORKER, 1, 1);
    struct weft_member_thread *server = member_start(port, WEFT_ROLE_SERVER, 2, 1);
    assert_int_equal(wait_for(server, WEFT_MEMBER_WAIT_JOINED, &seen, &error), WEFT_OK);
    assert_int_equal(seen.grant.first, 0);
    assert_int_equal(weft_member_thread_wait(worker, WEFT_MEMBER_WAIT_LISTED, 300 * WEFT_NS_PER_MS,
                                             NULL, &seen, &error),
                     WEFT_TIMEOUT);
    assert_non_null(strstr(error.text, "does not have all shards yet"));
    publish(server, "::1", 7700);
    assert_int_equal(wait_for(worker, WEFT_MEMBER_WAIT_LISTED, &seen, &error), WEFT_OK);
    char host[WEFT_RESOLVE_TEXT_BYTES];
    weft_resolve_member_host(&seen.list.addresses[0], host);
    assert_string_equal(host, "::1");
    assert_int_equal(seen.list.addresses[0].port, 7700);
    struct weft_member_thread *second = member_start(port, WEFT_ROLE_WORKER, 3, 1);
    assert_int_equal(wait_for(second, WEFT_MEMBER_WAIT_JOINED, &seen, &error), WEFT_OK);
    assert_int_equal(seen.grant.rank, 1);
    weft_member_thread_stop(worker, true);
    weft_member_thread_stop(second, true);
    struct pollfd fd = {.fd = weft_member_thread_fd(server), .events = POLLIN};
    assert_int_equal(poll(&fd, 1, 120000), 1); /* the coordinator reports it in reply to a
                                                * heartbeat */
    weft_member_thread_state(server, &seen);
    assert_true(seen.is_over);
    weft_member_thread_stop(server, true);
    weft_coordinator_stop(&c);
}

static void claimed_and_replaced(void **state)
{
    (void)state;
    static struct weft_member_state seen;
    struct weft_coordinator c;
    struct weft_error error;
    char text[WEFT_ERROR_BYTES];
    uint16_t port = coordinator_start(&c, 0, 1, lease_ns);
    struct weft_member_thread *first = member_start(port, WEFT_ROLE_SERVER, 2, 1);
    publish(first, "127.0.0.1", 7700); /* before it is registered */
    assert_int_equal(wait_for(first, WEFT_MEMBER_WAIT_LISTED, &seen, &error), WEFT_OK);
    struct weft_member_thread *other = member_start(port, WEFT_ROLE_SERVER, 3, 1);
    assert_int_equal(wait_for(other, WEFT_MEMBER_WAIT_JOINED, &seen, &error), WEFT_PEER);
    assert_non_null(
        strstr(error.text, "shard 0 belongs to another process, at 127.0.0.1 port 7700"));
    weft_member_thread_stop(other, false);
    struct weft_member_thread *later = member_start(port, WEFT_ROLE_SERVER, 2, 2);
    assert_int_equal(wait_for(later, WEFT_MEMBER_WAIT_JOINED, &seen, &error), WEFT_OK);
    struct pollfd fd = {.fd = weft_member_thread_fd(first), .events = POLLIN};
    assert_int_equal(poll(&fd, 1, 120000), 1);
    weft_member_thread_state(first, &seen);
    assert_int_equal(seen.phase, WEFT_MEMBER_REPLACED);
    weft_member_thread_words(first, text, sizeof(text));
    assert_non_null(strstr(text, "replaced this process"));
    weft_member_thread_stop(first, false);
    weft_member_thread_stop(later, false);
    weft_coordinator_stop(&c);
}

static void survives_the_coordinator(void **state)
{
    (void)state;
    static struct weft_member_state seen;
    struct weft_coordinator c;
    struct weft_error error;
    uint16_t port = coordinator_start(&c, free_port(), 1, lease_ns);
    struct weft_member_thread *server = member_start(port, WEFT_ROLE_SERVER, 2, 1);
    publish(server, "127.0.0.1", 7700);
    assert_int_equal(wait_for(server, WEFT_MEMBER_WAIT_LISTED, &seen, &error), WEFT_OK);
    uint64_t epoch = seen.grant.epoch;
    weft_coordinator_stop(&c);
    (void)coordinator_start(&c, port, 1, lease_ns); /* a coordinator without state */
    struct weft_member_thread *worker = member_start(port, WEFT_ROLE_WORKER, 1, 1);
    assert_int_equal(wait_for(worker, WEFT_MEMBER_WAIT_LISTED, &seen, &error), WEFT_OK);
    assert_int_equal(seen.list.addresses[0].port, 7700);
    weft_member_thread_state(server, &seen);
    /* Its own shard, unless the worker joined first and was assigned it. */
    assert_in_range(seen.grant.epoch, epoch, epoch + 1);
    weft_member_thread_stop(worker, false);
    weft_member_thread_stop(server, false);
    weft_coordinator_stop(&c);
}

static bool always(void)
{
    return true;
}

static void nobody_answers(void **state)
{
    (void)state;
    static struct weft_member_state seen;
    struct weft_error error;
    uint16_t port = free_port();
    struct weft_member_thread *worker = member_start(port, WEFT_ROLE_WORKER, 1, 1);
    assert_int_equal(weft_member_thread_wait(worker, WEFT_MEMBER_WAIT_JOINED, 500 * WEFT_NS_PER_MS,
                                             NULL, &seen, &error),
                     WEFT_TIMEOUT);
    assert_non_null(strstr(error.text, "no answer from the coordinator localhost:"));
    assert_non_null(strstr(error.text, "nothing listens"));
    assert_int_equal(weft_member_thread_wait(worker, WEFT_MEMBER_WAIT_JOINED, patience_ns, always,
                                             &seen, &error),
                     WEFT_TIMEOUT);
    assert_string_equal(error.text, "interrupted");
    weft_member_thread_stop(worker, false);
    weft_member_thread_stop(NULL, false);
}

static void drop_events(void *driver, uint64_t now_ns)
{
    struct weft_msgr msgr = weft_driver_msgr(driver);
    struct weft_msg_event event;
    (void)now_ns;
    while (msgr.ops->poll(msgr.self, &event)) {
    }
}

/* A server accepts the connection, but never replies to requests for a coordinator. */
static void no_coordinator_is_there(void **state)
{
    (void)state;
    static struct weft_member_state seen;
    struct weft_error error = {.text = ""};
    struct weft_driver_config config;
    struct weft_driver *server;
    weft_driver_config_default(&config);
    config.udp.ep.name = weft_rpc_name(WEFT_ROLE_SERVER, 0);
    config.udp.ep.accept = 1;
    assert_int_equal(weft_driver_open(&config, &server, &error), WEFT_OK);
    struct weft_member_thread *member =
        member_start(weft_driver_port(server), WEFT_ROLE_SERVER, 1, 1);
    weft_status status = WEFT_TIMEOUT;
    for (uint64_t end_ns = weft_clock_now_ns() + patience_ns;
         status == WEFT_TIMEOUT && weft_clock_now_ns() < end_ns;) {
        (void)weft_driver_step(server, 10 * WEFT_NS_PER_MS, drop_events, server);
        status = weft_member_thread_wait(member, WEFT_MEMBER_WAIT_JOINED, 0, NULL, &seen, &error);
    }
    assert_int_equal(status, WEFT_PEER);
    assert_non_null(strstr(error.text, " is a `weft server` and not a coordinator; name the"));
    weft_member_thread_stop(member, false);
    weft_driver_close(server);
}

static void a_name_without_address(void **state)
{
    (void)state;
    static struct weft_member_state seen;
    struct weft_error error;
    struct weft_member_thread *thread = NULL;
    struct weft_member_thread_config config = {.host = "no such host", .port = 1};
    weft_driver_config_default(&config.driver);
    config.member.role = WEFT_ROLE_WORKER;
    config.member.member = 1;
    assert_int_equal(weft_member_thread_start(&config, &thread, &error), WEFT_OK);
    assert_int_equal(weft_member_thread_wait(thread, WEFT_MEMBER_WAIT_JOINED, WEFT_NS_PER_S, NULL,
                                             &seen, &error),
                     WEFT_TIMEOUT);
    assert_non_null(strstr(error.text, "the name no such host has no address"));
    weft_member_thread_stop(thread, false);
}

static void addresses(void **state)
{
    (void)state;
    char text[WEFT_RESOLVE_TEXT_BYTES];
    struct weft_member_address address;
    static const uint8_t v4[16] = {[10] = 0xff, 0xff, 10, 1, 2, 3};
    assert_int_equal(weft_resolve_member_address("10.1.2.3", 5, &address, NULL), WEFT_OK);
    assert_memory_equal(address.ip, v4, 16);
    weft_resolve_member_host(&address, text);
    assert_string_equal(text, "10.1.2.3");
    assert_int_equal(weft_resolve_member_address("host", 5, &address, NULL), WEFT_INVALID);
    assert_true(weft_resolve_is_wildcard("0.0.0.0") && weft_resolve_is_wildcard("::"));
    assert_false(weft_resolve_is_wildcard("127.0.0.1") || weft_resolve_is_wildcard("::1"));
    assert_int_equal(weft_resolve_local("127.0.0.1", text, NULL), WEFT_OK);
    assert_string_equal(text, "127.0.0.1");
    assert_int_equal(weft_resolve("localhost", text, NULL), WEFT_OK);
    assert_string_equal(text, "127.0.0.1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses),           cmocka_unit_test(joins_and_lists),
        cmocka_unit_test(claimed_and_replaced), cmocka_unit_test(survives_the_coordinator),
        cmocka_unit_test(nobody_answers),      cmocka_unit_test(no_coordinator_is_there),
        cmocka_unit_test(a_name_without_address)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
