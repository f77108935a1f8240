/* When a sleep is a blocking receive call, and the events that end it. */
#include "io/sock_addr.h"
#include "io/udp/blocking_receive.h"
#include "io/udp/socket.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint64_t LONG_NS = WEFT_NS_PER_MS;

static struct weft_blocking_receive blocking;
static int fd;
static struct weft_addr self;

static int open_socket(struct weft_addr *bound_p)
{
    const struct weft_sock_request request = {.buffer_bytes = 65536};
    struct weft_sock_facts facts;
    struct weft_addr any;
    int opened;
    assert_int_equal(weft_sock_addr_parse("127.0.0.1", 0, &any, NULL), WEFT_OK);
    assert_int_equal(weft_sock_open(&any, &request, &opened, &facts, NULL), WEFT_OK);
    *bound_p = facts.bound;
    return opened;
}

static int set_up(void **state)
{
    (void)state;
    fd = open_socket(&self);
    weft_blocking_receive_init(&blocking);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return close(fd);
}

static void answer(uint32_t times)
{
    for (uint32_t i = 0; i < times; i++) {
        weft_blocking_receive_note(&blocking, true);
    }
}

static void not_before_so_many_answers(void **state)
{
    (void)state;
    assert_int_equal(weft_blocking_receive_open(&blocking, fd, &self, 4), WEFT_OK);
    answer(3);
    assert_false(weft_blocking_receive_due(&blocking, LONG_NS));
    answer(1);
    assert_true(weft_blocking_receive_due(&blocking, LONG_NS));
    assert_true(weft_blocking_receive_due(&blocking, WEFT_NEVER));
    /* near: needs a timer */
    assert_false(weft_blocking_receive_due(&blocking, 100 * WEFT_NS_PER_US));
    answer(1000);
    weft_blocking_receive_note(&blocking, false);
    answer(3);
    /* not enough consecutive replies */
    assert_false(weft_blocking_receive_due(&blocking, LONG_NS));
    answer(1);
    assert_true(weft_blocking_receive_due(&blocking, LONG_NS));
}

static void never_where_it_is_not_open(void **state)
{
    (void)state;
    answer(100);
    assert_false(weft_blocking_receive_due(&blocking, LONG_NS));
    assert_false(weft_blocking_receive_is_wake(&blocking, &self, 0));
    weft_blocking_receive_wake(&blocking);
    assert_int_equal(weft_blocking_receive_open(&blocking, -1, &self, 1), WEFT_IO);
    assert_false(weft_blocking_receive_due(&blocking, LONG_NS));
}

static ssize_t receive(struct weft_addr *from_p, int flags)
{
    struct sockaddr_storage from;
    socklen_t bytes = sizeof(from);
    uint8_t buffer[8];
    ssize_t got = recvfrom(fd, buffer, sizeof(buffer), flags, (struct sockaddr *)&from, &bytes);
    if (got >= 0) {
        weft_sock_addr_canonical(&from, from_p);
    }
    return got;
}

static void a_wake_ends_the_receive_call(void **state)
{
    (void)state;
    struct weft_addr from;
    assert_int_equal(weft_blocking_receive_open(&blocking, fd, &self, 1), WEFT_OK);
    weft_blocking_receive_wake(&blocking); /* no thread sleeps */
    assert_int_equal(receive(&from, MSG_DONTWAIT), -1);
    weft_blocking_receive_begin(&blocking);
    weft_blocking_receive_wake(&blocking);
    assert_int_equal(receive(&from, MSG_DONTWAIT), 0);
    assert_true(weft_blocking_receive_is_wake(&blocking, &from, 0));
    assert_false(weft_blocking_receive_is_wake(&blocking, &from, 1));
    weft_blocking_receive_end(&blocking);
    weft_blocking_receive_wake(&blocking);
    assert_int_equal(receive(&from, MSG_DONTWAIT), -1);
}

/* Any host can send an empty datagram. */
static void only_its_own_is_a_wake(void **state)
{
    (void)state;
    struct weft_addr from, other;
    int stranger = open_socket(&other);
    assert_int_equal(weft_blocking_receive_open(&blocking, fd, &self, 1), WEFT_OK);
    const struct sockaddr *to = (const struct sockaddr *)(const void *)self.bytes;
    assert_int_equal(sendto(stranger, "", 0, 0, to, self.bytes_used), 0);
    assert_int_equal(receive(&from, 0), 0);
    assert_memory_equal(&from, &other, sizeof(from));
    assert_false(weft_blocking_receive_is_wake(&blocking, &from, 0));
    (void)close(stranger);
}

/* The call ends without a datagram and without a wake. */
static void the_call_ends_by_itself(void **state)
{
    (void)state;
    struct weft_addr from;
    assert_int_equal(weft_blocking_receive_open(&blocking, fd, &self, 1), WEFT_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(receive(&from, 0), -1);
        assert_true(errno == EAGAIN || errno == EINTR);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(not_before_so_many_answers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(never_where_it_is_not_open, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_wake_ends_the_receive_call, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_its_own_is_a_wake, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_call_ends_by_itself, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
