/* The doctor reports on every check, and advises only on failed ones. */
#include "free_port.h"
#include "io/doctor.h"
#include "io/sock_addr.h"
#include "io/udp/socket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct weft_fact *find(const struct weft_doctor *doctor, const char *name)
{
    for (uint32_t i = 0; i < doctor->count; i++) {
        if (strcmp(doctor->facts[i].name, name) == 0) {
            return &doctor->facts[i];
        }
    }
    return NULL;
}

static void every_fact_is_complete(void **state)
{
    (void)state;
    static const char *const names[] = {
        "cores",
        "recv_buffer_max_bytes",
        "recv_buffer_granted_bytes",
        "udp_ipv4",
        "gso",
        "gro",
        "ecn",
        "timestamps",
        "udp_ipv6",
        "sleep_late_us",
        "clock_read_ns",
        "mtu_lo_bytes",
    };
    struct weft_doctor doctor;
    weft_doctor_run(0, &doctor);
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(names); i++) {
        assert_non_null(find(&doctor, names[i]));
    }
    for (uint32_t i = 0; i < doctor.count; i++) {
        const struct weft_fact *fact = &doctor.facts[i];
        assert_true(fact->value[0] != '\0');
        assert_int_equal(fact->advice[0] == '\0', fact->state == WEFT_FACT_OK);
    }
    assert_int_equal(find(&doctor, "udp_ipv4")->state, WEFT_FACT_OK);
    assert_null(find(&doctor, "port_0"));
}

static void port_is_tried(void **state)
{
    (void)state;
    struct weft_sock_request request = {.buffer_bytes = 65536};
    struct weft_sock_facts facts;
    struct weft_addr addr;
    int fd;
    assert_int_equal(weft_sock_addr_parse("127.0.0.1", free_port(), &addr, NULL), WEFT_OK);
    assert_int_equal(weft_sock_open(&addr, &request, &fd, &facts, NULL), WEFT_OK);
    char name[16];
    (void)snprintf(name, sizeof(name), "port_%u", (unsigned)facts.port);

    struct weft_doctor doctor;
    weft_doctor_run(facts.port, &doctor);
    const struct weft_fact *fact = find(&doctor, name);
    assert_non_null(fact);
    assert_int_equal(fact->state, WEFT_FACT_MISSING);
    assert_non_null(strstr(fact->advice, "in use"));

    (void)close(fd);
    weft_doctor_run(facts.port, &doctor);
    fact = find(&doctor, name);
    assert_non_null(fact);
    assert_int_equal(fact->state, WEFT_FACT_OK);
}

static void states_have_names(void **state)
{
    (void)state;
    assert_string_equal(weft_fact_state_name(WEFT_FACT_OK), "ok");
    assert_string_equal(weft_fact_state_name(WEFT_FACT_WARN), "warn");
    assert_string_equal(weft_fact_state_name(WEFT_FACT_MISSING), "missing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fact_is_complete),
        cmocka_unit_test(port_is_tried),
        cmocka_unit_test(states_have_names),
    };
    return cmocka_run_group_tests_name("io doctor", tests, NULL, NULL);
}
