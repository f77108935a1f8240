#include "io/ep_config.h"

#include "base/assert.h"
#include "core/cc.h"
#include "core/trace.h"
#include "wire/packet.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum rule {
    RANGE,         /* least .. most */
    ZERO_OR_RANGE, /* 0 stands for a default, or for off */
    POWER_OF_TWO,  /* in the range */
    ZERO_OR_POWER_OF_TWO,
};

enum { OF_UDP = 1 << WEFT_DRIVER_UDP, OF_TCP = 1 << WEFT_DRIVER_TCP, OF_BOTH = OF_UDP | OF_TCP };

struct field {
    const char *name;
    uint16_t offset;
    uint8_t bytes;
    uint8_t drivers; /* the drivers that use the field */
    enum rule rule;
    uint64_t least;
    uint64_t most;
};

#define FIELD(field)                                                                               \
    .name = #field, .offset = offsetof(struct weft_ep_config, field),                              \
    .bytes = sizeof(((struct weft_ep_config *)0)->field)

static const struct field fields[] = {
    {FIELD(peers_max), OF_BOTH, RANGE, 1, 4096},
    {FIELD(chunks_max), OF_BOTH, RANGE, 1, 262144},
    {FIELD(expects_max), OF_BOTH, RANGE, 1, 65536},
    {FIELD(tx_window_max), OF_UDP, POWER_OF_TWO, 256, 65536},
    {FIELD(rx_window), OF_UDP, RANGE, 1, 16384},
    {FIELD(unscheduled), OF_UDP, RANGE, 1, UINT16_MAX},
    {FIELD(packet_bytes), OF_UDP, RANGE, 256, 65000},
    {FIELD(packet_bytes_sure), OF_UDP, ZERO_OR_RANGE, 256, UINT16_MAX},
    {FIELD(accept), OF_UDP, RANGE, 0, 1},
    {FIELD(ecn), OF_UDP, RANGE, 0, 1},
    {FIELD(host_queue), OF_UDP, RANGE, 0, 1},
    {FIELD(keepalive_ns), OF_BOTH, RANGE, 1, UINT64_MAX},
    {FIELD(idle_timeout_ns), OF_BOTH, RANGE, 1, UINT64_MAX},
    {FIELD(sleep_timeout_ns), OF_BOTH, RANGE, 1, UINT64_MAX},
    {FIELD(trace_records), OF_UDP, ZERO_OR_POWER_OF_TWO, WEFT_TRACE_RECORDS_MIN,
     WEFT_TRACE_RECORDS_MAX},
    {FIELD(order), OF_UDP, RANGE, 0, WEFT_ORDER_NONE},
    {FIELD(mode), OF_BOTH, RANGE, 0, WEFT_MODE_SEAL},
    {FIELD(half_open_max), OF_TCP, RANGE, 1, UINT32_MAX},
    {FIELD(hello_rate_max), OF_UDP, RANGE, 1, 1000000},
    {FIELD(hello_rate_max), OF_TCP, RANGE, 1, UINT32_MAX},
};

static uint64_t value_of(const struct weft_ep_config *config, const struct field *field)
{
    const uint8_t *at = (const uint8_t *)config + field->offset;
    uint16_t two;
    uint32_t four;
    uint64_t eight;
    switch (field->bytes) {
    case 1:
        return *at;
    case 2:
        memcpy(&two, at, sizeof(two));
        return two;
    case 4:
        memcpy(&four, at, sizeof(four));
        return four;
    default:
        WEFT_ASSERT(field->bytes == sizeof(eight));
        memcpy(&eight, at, sizeof(eight));
        return eight;
    }
}

static bool zero_allowed(const struct field *field)
{
    return field->rule == ZERO_OR_RANGE || field->rule == ZERO_OR_POWER_OF_TWO;
}

static bool power_wanted(const struct field *field)
{
    return field->rule == POWER_OF_TWO || field->rule == ZERO_OR_POWER_OF_TWO;
}

static bool value_valid(const struct field *field, uint64_t value)
{
    if (value == 0 && zero_allowed(field)) {
        return true;
    }
    bool power = (value & (value - 1)) == 0;
    return value >= field->least && value <= field->most && (power || !power_wanted(field));
}

static weft_status refuse(const struct field *field, uint64_t value, struct weft_error *error)
{
    char range[64];
    unsigned long long least = field->least;
    uint64_t type_most = UINT64_MAX >> (64 - 8 * field->bytes);
    if (field->most < type_most) {
        (void)snprintf(range, sizeof(range), "from %llu to %llu", least,
                       (unsigned long long)field->most);
    } else {
        (void)snprintf(range, sizeof(range), "%llu or more", least);
    }
    return weft_fail(error, WEFT_INVALID,
                     "configuration of the endpoint: %s is %llu; it must be %s%s%s", field->name,
                     (unsigned long long)value, zero_allowed(field) ? "0, or " : "",
                     power_wanted(field) ? "a power of two " : "", range);
}

weft_status weft_ep_config_check_loopback(uint16_t packet_bytes, struct weft_error *error)
{
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(fields); i++) {
        struct field field = fields[i];
        if (field.offset != offsetof(struct weft_ep_config, packet_bytes)) {
            continue;
        }
        field.name = "loopback_packet_bytes";
        field.rule = ZERO_OR_RANGE;
        return value_valid(&field, packet_bytes) ? WEFT_OK : refuse(&field, packet_bytes, error);
    }
    WEFT_ASSERT(false); /* it has a row */
    return WEFT_INVALID;
}

bool weft_ep_config_field(size_t i, struct weft_ep_config_field *field_p)
{
    if (i >= WEFT_ARRAY_COUNT(fields)) {
        return false;
    }
    const uint64_t type_most = UINT64_MAX >> (64 - 8 * fields[i].bytes);
    *field_p = (struct weft_ep_config_field){
        .name = fields[i].name,
        .drivers = fields[i].drivers,
        .has_least = fields[i].least > (zero_allowed(&fields[i]) ? 1 : 0),
        .has_most = fields[i].most < type_most,
        .least = fields[i].least,
        .most = fields[i].most,
    };
    return true;
}

/* The fields that are not numbers. */
static weft_status check_names(const struct weft_ep_config *config, enum weft_driver_kind kind,
                               struct weft_error *error)
{
    if (kind == WEFT_DRIVER_UDP && weft_cc_find(config->cc_name) == NULL) {
        return weft_fail(error, WEFT_INVALID,
                         "configuration of the endpoint: cc_name is \"%.32s\"; there is no such "
                         "congestion control",
                         config->cc_name);
    }
    if (config->mode != WEFT_MODE_NONE && config->crypto.ops == NULL) {
        return weft_fail(error, WEFT_INVALID,
                         "configuration of the endpoint: crypto is empty; a mode other than none "
                         "needs a provider");
    }
    return WEFT_OK;
}

weft_status weft_ep_config_check(const struct weft_ep_config *config, enum weft_driver_kind kind,
                                 struct weft_error *error)
{
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(fields); i++) {
        uint64_t value = value_of(config, &fields[i]);
        if ((fields[i].drivers & (1U << kind)) != 0 && !value_valid(&fields[i], value)) {
            return refuse(&fields[i], value, error);
        }
    }
    return check_names(config, kind, error);
}
