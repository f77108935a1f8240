/* Refused configurations of an endpoint: the status is INVALID, the text has the field, its value,
 * and the allowed range. Each field at both ends of its range, over both drivers; and the core
 * refuses what the UDP driver refuses. */
#include "core/trace.h"
#include "io/driver.h"
#include "io/ep_config.h"
#include "wire/packet.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

enum { UDP = 1 << WEFT_DRIVER_UDP, TCP = 1 << WEFT_DRIVER_TCP, BOTH = UDP | TCP };

typedef void set_field(struct weft_ep_config *config, uint64_t value);

#define SETTER(field)                                                                              \
    static void set_##field(struct weft_ep_config *config, uint64_t value)                         \
    {                                                                                              \
        config->field = (__typeof__(config->field))value;                                          \
    }

SETTER(peers_max)
SETTER(chunks_max)
SETTER(expects_max)
SETTER(tx_window_max)
SETTER(rx_window)
SETTER(unscheduled)
SETTER(packet_bytes)
SETTER(packet_bytes_sure)
SETTER(accept)
SETTER(ecn)
SETTER(host_queue)
SETTER(keepalive_ns)
SETTER(idle_timeout_ns)
SETTER(sleep_timeout_ns)
SETTER(trace_records)
SETTER(order)
SETTER(mode)
SETTER(half_open_max)
SETTER(hello_rate_max)

#define FIELD(field) #field, set_##field

static const struct value {
    const char *name;
    set_field *set;
    uint32_t refused_by; /* drivers */
    uint64_t value;
    const char *allowed; /* part of the text; NULL: no driver refuses the value */
} values[] = {
    {FIELD(peers_max), BOTH, 0, "from 1 to 4096"},
    {FIELD(peers_max), 0, 1, NULL},
    {FIELD(peers_max), 0, 4096, NULL},
    {FIELD(peers_max), BOTH, 4097, "from 1 to 4096"},
    {FIELD(chunks_max), BOTH, 0, "from 1 to 262144"},
    {FIELD(chunks_max), 0, 1, NULL},
    {FIELD(chunks_max), 0, 262144, NULL},
    {FIELD(chunks_max), BOTH, 262145, "from 1 to 262144"},
    {FIELD(expects_max), BOTH, 0, "from 1 to 65536"},
    {FIELD(expects_max), 0, 1, NULL},
    {FIELD(expects_max), 0, 65536, NULL},
    {FIELD(expects_max), BOTH, 65537, "from 1 to 65536"},
    {FIELD(tx_window_max), UDP, 0, "a power of two from 256 to 65536"},
    {FIELD(tx_window_max), UDP, 128, "a power of two from 256 to 65536"},
    {FIELD(tx_window_max), 0, 256, NULL},
    {FIELD(tx_window_max), UDP, 300, "a power of two from 256 to 65536"},
    {FIELD(tx_window_max), 0, 65536, NULL},
    {FIELD(tx_window_max), UDP, 131072, "a power of two from 256 to 65536"},
    {FIELD(rx_window), UDP, 0, "from 1 to 16384"},
    {FIELD(rx_window), 0, 1, NULL},
    {FIELD(rx_window), 0, 16384, NULL},
    {FIELD(rx_window), UDP, 16385, "from 1 to 16384"},
    {FIELD(unscheduled), UDP, 0, "1 or more"},
    {FIELD(unscheduled), 0, 1, NULL},
    {FIELD(unscheduled), 0, UINT16_MAX, NULL},
    {FIELD(packet_bytes), UDP, 255, "from 256 to 65000"},
    {FIELD(packet_bytes), 0, 256, NULL},
    {FIELD(packet_bytes), 0, 65000, NULL},
    {FIELD(packet_bytes), UDP, 65001, "from 256 to 65000"},
    {FIELD(packet_bytes_sure), 0, 0, NULL},
    {FIELD(packet_bytes_sure), UDP, 1, "0, or 256 or more"},
    {FIELD(packet_bytes_sure), UDP, 255, "0, or 256 or more"},
    {FIELD(packet_bytes_sure), 0, 256, NULL},
    {FIELD(accept), 0, 1, NULL},
    {FIELD(accept), UDP, 2, "from 0 to 1"},
    {FIELD(ecn), 0, 0, NULL},
    {FIELD(ecn), UDP, 2, "from 0 to 1"},
    {FIELD(host_queue), 0, 1, NULL},
    {FIELD(host_queue), UDP, 2, "from 0 to 1"},
    {FIELD(keepalive_ns), BOTH, 0, "1 or more"},
    {FIELD(keepalive_ns), 0, 1, NULL},
    {FIELD(idle_timeout_ns), BOTH, 0, "1 or more"},
    {FIELD(idle_timeout_ns), 0, 1, NULL},
    {FIELD(sleep_timeout_ns), BOTH, 0, "1 or more"},
    {FIELD(sleep_timeout_ns), 0, 1, NULL},
    {FIELD(trace_records), 0, 0, NULL},
    {FIELD(trace_records), UDP, 32, "0, or a power of two from 64 to 16777216"},
    {FIELD(trace_records), 0, WEFT_TRACE_RECORDS_MIN, NULL},
    {FIELD(trace_records), UDP, 65, "0, or a power of two from 64 to 16777216"},
    {FIELD(trace_records), UDP, 1 << 25, "0, or a power of two from 64 to 16777216"},
    {FIELD(order), 0, WEFT_ORDER_NONE, NULL},
    {FIELD(order), UDP, WEFT_ORDER_NONE + 1, "from 0 to 2"},
    {FIELD(mode), BOTH, WEFT_MODE_SEAL + 1, "from 0 to 2"},
    {FIELD(half_open_max), TCP, 0, "1 or more"},
    {FIELD(half_open_max), 0, 1, NULL},
    {FIELD(hello_rate_max), BOTH, 0, NULL},
    {FIELD(hello_rate_max), 0, 1, NULL},
    {FIELD(hello_rate_max), 0, 1000000, NULL},
    {FIELD(hello_rate_max), UDP, 1000001, "from 1 to 1000000"},
};

/* The smallest endpoint, so that the largest of each table fits into memory. */
static void small(struct weft_ep_config *config)
{
    config->peers_max = 1;
    config->chunks_max = 8;
    config->expects_max = 1;
    config->tx_window_max = 256;
}

static void assert_names(const struct value *v, const struct weft_error *error)
{
    char said[80];
    (void)snprintf(said, sizeof(said), "%s is %llu;", v->name, (unsigned long long)v->value);
    if (strstr(error->text, said) == NULL ||
        (v->allowed != NULL && strstr(error->text, v->allowed) == NULL)) {
        fail_msg("%s: %s", v->name, error->text);
    }
}

static void each_value_is_checked(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(values); i++) {
        const struct value *v = &values[i];
        struct weft_ep_config config;
        struct weft_ep *ep = NULL;
        weft_ep_config_default(&config);
        small(&config);
        v->set(&config, v->value);
        for (int kind = WEFT_DRIVER_UDP; kind <= WEFT_DRIVER_TCP; kind++) {
            struct weft_error error = {.text = ""};
            weft_status status = weft_ep_config_check(&config, (enum weft_driver_kind)kind, &error);
            if ((v->refused_by & 1U << kind) != 0) {
                assert_int_equal(status, WEFT_INVALID);
                assert_names(v, &error);
            } else if (status != WEFT_OK) {
                fail_msg("%s: %s", weft_driver_kind_name((enum weft_driver_kind)kind), error.text);
            }
        }
        bool udp_refuses = (v->refused_by & UDP) != 0;
        if (weft_ep_new(&config, &ep) != (udp_refuses ? WEFT_INVALID : WEFT_OK)) {
            fail_msg("the core thinks otherwise of %s %llu", v->name, (unsigned long long)v->value);
        }
        weft_ep_free(ep);
    }
}

/* Values that the UDP driver replaces before it opens its endpoint. */
static bool replaced(const struct value *v)
{
    return v->set == set_host_queue || (v->set == set_rx_window && v->value > 0);
}

static void an_open_that_is_refused_names_the_field(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(values); i++) {
        const struct value *v = &values[i];
        for (int kind = WEFT_DRIVER_UDP; kind <= WEFT_DRIVER_TCP; kind++) {
            struct weft_driver_config config;
            struct weft_driver *driver = NULL;
            struct weft_error error = {.text = ""};
            weft_driver_config_default(&config);
            config.kind = (enum weft_driver_kind)kind;
            small(&config.udp.ep);
            v->set(&config.udp.ep, v->value);
            weft_status status = weft_driver_open(&config, &driver, &error);
            if ((v->refused_by & 1U << kind) != 0 && !(kind == WEFT_DRIVER_UDP && replaced(v))) {
                assert_int_equal(status, WEFT_INVALID);
                assert_null(driver);
                assert_names(v, &error);
            } else if (status != WEFT_OK) {
                fail_msg("%s %llu: %s", v->name, (unsigned long long)v->value, error.text);
            }
            weft_driver_close(driver);
        }
    }
}

/* True: the list has a value that this driver refuses on this side of the range. */
static bool has_value(const struct weft_ep_config_field *field, uint32_t driver, bool above)
{
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(values); i++) {
        const bool is_beyond =
            above ? values[i].value > field->most : values[i].value < field->least;
        if (strcmp(values[i].name, field->name) == 0 && (values[i].refused_by & driver) != 0 &&
            is_beyond) {
            return true;
        }
    }
    return false;
}

/* Every row of the table has values in the list above. */
static void every_field_has_its_values(void **state)
{
    (void)state;
    struct weft_ep_config_field field;
    size_t count = 0;
    for (; weft_ep_config_field(count, &field); count++) {
        for (uint32_t driver = UDP; driver <= TCP; driver = driver == UDP ? TCP : TCP + 1) {
            if ((field.drivers & driver) == 0) {
                continue;
            }
            if (field.has_least && !has_value(&field, driver, false)) {
                fail_msg("%s: no value below its range", field.name);
            }
            if (field.has_most && !has_value(&field, driver, true)) {
                fail_msg("%s: no value above its range", field.name);
            }
        }
    }
    assert_true(count > 0);
}

static void loopback_packet_bytes_has_its_name(void **state)
{
    (void)state;
    static const uint16_t wrong[] = {1, 255, 65001}, right[] = {0, 256, 65000};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(wrong) + WEFT_ARRAY_COUNT(right); i++) {
        const bool is_wrong = i < WEFT_ARRAY_COUNT(wrong);
        struct weft_driver_config config;
        struct weft_driver *driver = NULL;
        struct weft_error error = {.text = ""};
        char said[80];
        weft_driver_config_default(&config);
        small(&config.udp.ep);
        config.udp.loopback_packet_bytes = is_wrong ? wrong[i] : right[i - WEFT_ARRAY_COUNT(wrong)];
        weft_status status = weft_driver_open(&config, &driver, &error);
        assert_int_equal(status, is_wrong ? WEFT_INVALID : WEFT_OK);
        (void)snprintf(said, sizeof(said),
                       ": loopback_packet_bytes is %u; it must be 0, or from 256 to 65000",
                       (unsigned)config.udp.loopback_packet_bytes);
        if (is_wrong && strstr(error.text, said) == NULL) {
            fail_msg("%s", error.text);
        }
        weft_driver_close(driver);
    }
}

static void names_and_providers(void **state)
{
    (void)state;
    for (int kind = WEFT_DRIVER_UDP; kind <= WEFT_DRIVER_TCP; kind++) {
        struct weft_driver_config config;
        struct weft_driver *driver = NULL;
        struct weft_error error = {.text = ""};
        weft_driver_config_default(&config);
        config.kind = (enum weft_driver_kind)kind;
        config.udp.ep.mode = WEFT_MODE_AUTH;
        assert_int_equal(weft_driver_open(&config, &driver, &error), WEFT_INVALID);
        assert_non_null(strstr(error.text, "crypto is empty"));
        config.udp.ep.mode = WEFT_MODE_NONE;
        config.udp.ep.cc_name = "pigeon";
        weft_status status = weft_driver_open(&config, &driver, &error);
        if (kind == WEFT_DRIVER_UDP) {
            assert_int_equal(status, WEFT_INVALID);
            assert_non_null(strstr(error.text, "cc_name is \"pigeon\""));
            assert_null(driver);
        } else {
            assert_int_equal(status, WEFT_OK); /* TCP uses tcp_cc */
        }
        weft_driver_close(driver);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_value_is_checked),
        cmocka_unit_test(an_open_that_is_refused_names_the_field),
        cmocka_unit_test(every_field_has_its_values),
        cmocka_unit_test(loopback_packet_bytes_has_its_name),
        cmocka_unit_test(names_and_providers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
