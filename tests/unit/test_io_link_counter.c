/* The bytes that an interface has sent, of all programs (io/udp/link_counter.c). */
#include "io/sock_addr.h"
#include "io/udp/link_counter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DATAGRAMS = 50, BYTES = 1000 };

/* Send datagrams to a port where nobody listens: another program, for the counter. */
static void send_some(const struct weft_addr *to)
{
    static const char bytes[BYTES];
    int fd = socket(weft_sock_addr_family(to), SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    for (uint32_t i = 0; i < DATAGRAMS; i++) {
        ssize_t sent = sendto(fd, bytes, sizeof(bytes), 0,
                              (const struct sockaddr *)(const void *)to->bytes, to->bytes_used);
        assert_int_equal(sent, BYTES);
    }
    (void)close(fd);
}

static void what_others_send_is_counted(void **state)
{
    (void)state;
    static const char *const hosts[] = {"127.0.0.1", "::1"};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(hosts); i++) {
        struct weft_link_counter counter;
        struct weft_addr to;
        assert_int_equal(weft_sock_addr_parse(hosts[i], 9, &to, NULL), WEFT_OK);
        weft_link_counter_init(&counter);
        uint64_t before = weft_link_counter_sent(&counter, &to);
        if (before == 0) { /* a host without IPv6, or a sandbox without netlink */
            print_message("no count for %s here\n", hosts[i]);
            weft_link_counter_close(&counter);
            continue;
        }
        send_some(&to);
        uint64_t sent = weft_link_counter_sent(&counter, &to) - before;
        assert_in_range(sent, DATAGRAMS * BYTES, UINT32_MAX);
        weft_link_counter_close(&counter);
    }
}

static void an_interface_that_is_gone_has_no_count(void **state)
{
    (void)state;
    struct weft_link_counter counter;
    struct weft_addr to;
    assert_int_equal(weft_sock_addr_parse("127.0.0.1", 9, &to, NULL), WEFT_OK);
    weft_link_counter_init(&counter);
    (void)weft_link_counter_sent(&counter, &to);
    counter.index = 2000000000;
    assert_int_equal(weft_link_counter_sent(&counter, &to), 0);
    assert_int_equal(counter.fd, -1);
    assert_int_equal(weft_link_counter_sent(&counter, &to), 0); /* not looked up again */
    weft_link_counter_close(&counter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_others_send_is_counted),
        cmocka_unit_test(an_interface_that_is_gone_has_no_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
