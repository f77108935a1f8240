/* Addresses and opening: loopback detection; the error names a port in use. */
#include "io/sock_addr.h"
#include "io/udp/socket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void loopback_is_taken(void **state)
{
    (void)state;
    static const char *const hosts[] = {"127.0.0.1", "127.255.0.9", "localhost", "::1"};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(hosts); i++) {
        struct weft_addr addr;
        assert_int_equal(weft_sock_addr_parse(hosts[i], 4711, &addr, NULL), WEFT_OK);
        assert_int_equal(weft_sock_addr_port(&addr), 4711);
        assert_true(weft_sock_addr_is_loopback(&addr));
        assert_int_equal(weft_sock_addr_family(&addr), i == 3 ? AF_INET6 : AF_INET);
    }
}

static void beyond_loopback_is_known(void **state)
{
    (void)state;
    static const char *const hosts[] = {"0.0.0.0",   "10.0.0.1", "192.168.1.1", "8.8.8.8",
                                        "128.0.0.1", "::",       "fe80::1",     "::ffff:127.0.0.1"};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(hosts); i++) {
        struct weft_addr addr;
        assert_int_equal(weft_sock_addr_parse(hosts[i], 1, &addr, NULL), WEFT_OK);
        assert_false(weft_sock_addr_is_loopback(&addr));
    }
}

static void nonsense_is_no_address(void **state)
{
    (void)state;
    static const char *const hosts[] = {"",  "example.com", "127.0.0", "127.0.0.1:5000",
                                        "1", "[::1]"};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(hosts); i++) {
        struct weft_addr addr;
        struct weft_error error;
        assert_int_equal(weft_sock_addr_parse(hosts[i], 1, &addr, &error), WEFT_INVALID);
        assert_non_null(strstr(error.text, hosts[i]));
    }
}

/* The endpoint compares addresses bytewise: the address of a sender's packets must equal the parsed
 * one. */
static void sender_equals_parsed(void **state)
{
    (void)state;
    struct weft_addr parsed;
    struct weft_addr seen;
    assert_int_equal(weft_sock_addr_parse("127.0.0.1", 77, &parsed, NULL), WEFT_OK);
    uint8_t noise[sizeof(struct sockaddr_storage)];
    memset(noise, 0xaa, sizeof(noise));
    memcpy(noise, parsed.bytes, 8); /* random bytes in sin_zero */
    weft_sock_addr_canonical(noise, &seen);
    assert_memory_equal(&seen, &parsed, sizeof(seen));

    assert_int_equal(weft_sock_addr_parse("::1", 77, &parsed, NULL), WEFT_OK);
    memcpy(noise, parsed.bytes, 28);
    memset(noise + 4, 0x55, 4);  /* flow label */
    memset(noise + 24, 0x55, 4); /* scope */
    weft_sock_addr_canonical(noise, &seen);
    assert_memory_equal(&seen, &parsed, sizeof(seen));
}

static void port_in_use_is_named(void **state)
{
    (void)state;
    struct weft_sock_request request = {.buffer_bytes = 65536};
    struct weft_sock_facts facts;
    struct weft_addr addr;
    struct weft_error error;
    int fd;
    int second = -1;
    assert_int_equal(weft_sock_addr_parse("127.0.0.1", 0, &addr, NULL), WEFT_OK);
    assert_int_equal(weft_sock_open(&addr, &request, &fd, &facts, NULL), WEFT_OK);
    assert_int_not_equal(facts.port, 0);
    assert_true(facts.recv_buffer_bytes >= 65536);
    assert_int_equal(weft_sock_addr_parse("127.0.0.1", facts.port, &addr, NULL), WEFT_OK);
    assert_int_equal(weft_sock_open(&addr, &request, &second, &facts, &error), WEFT_EXISTS);
    assert_int_equal(second, -1);
    assert_non_null(strstr(error.text, "in use"));
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loopback_is_taken),      cmocka_unit_test(beyond_loopback_is_known),
        cmocka_unit_test(nonsense_is_no_address), cmocka_unit_test(sender_equals_parsed),
        cmocka_unit_test(port_in_use_is_named),
    };
    return cmocka_run_group_tests_name("io sock", tests, NULL, NULL);
}
