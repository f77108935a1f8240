#include "api/internal.h"

#include "base/assert.h"
#include "core/cc.h"
#include "node/transport_options.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNKS_MAX = 262144,        /* of one message; core's limit */
    PACKET_OVERHEAD_BYTES = 64, /* docs/PROTOCOL.md section 3.7 */
    CONFIG_BYTES_MIN = offsetof(struct weft_transport_config, inject_seed) + sizeof(uint32_t),
    SEND_BYTES_MIN = offsetof(struct weft_transport_send, user) + sizeof(void *),
    RECEIVE_BYTES_MIN = offsetof(struct weft_transport_receive, user) + sizeof(void *),
};

/* ---- structs that grow ----------------------------------------------------------------------- */

static bool is_zero(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

static weft_status too_new(const char *what, struct weft_error *error)
{
    return weft_fail(error, WEFT_UNSUPPORTED,
                     "this %s uses fields that the installed libweft does not know; install the "
                     "version that the program was compiled for",
                     what);
}

const char *weft_api_environment(const char *setting, const char *variable)
{
    const char *text = setting != NULL ? setting : getenv(variable);
    return text != NULL && text[0] != '\0' ? text : NULL;
}

weft_status weft_api_struct_in(void *ours, size_t ours_bytes, size_t bytes_min, const void *theirs,
                               const char *what, const char *init, struct weft_error *error)
{
    size_t size;
    memcpy(&size, theirs, sizeof(size)); /* the first member of every such struct */
    if (size < bytes_min) {
        return weft_fail(error, WEFT_INVALID, "the size of this %s is %zu; call %s first", what,
                         size, init);
    }
    size_t common = size < ours_bytes ? size : ours_bytes;
    if (!is_zero((const uint8_t *)theirs + common, size - common)) {
        return too_new(what, error);
    }
    memcpy(ours, theirs, common);
    memcpy(ours, &ours_bytes, sizeof(ours_bytes));
    return WEFT_OK;
}

void weft_api_struct_out(void *theirs, const void *ours, size_t ours_bytes, size_t bytes_min)
{
    size_t size;
    memcpy(&size, theirs, sizeof(size));
    WEFT_ASSERT(size >= bytes_min); /* the caller sets it to sizeof of its own struct */
    size_t common = size < ours_bytes ? size : ours_bytes;
    memcpy((uint8_t *)theirs + sizeof(size), (const uint8_t *)ours + sizeof(size),
           common - sizeof(size));
    memset((uint8_t *)theirs + common, 0, size - common);
}

void weft_api_struct_init(void *theirs, size_t size, const void *defaults, size_t ours_bytes,
                          size_t bytes_min)
{
    memcpy(theirs, &size, sizeof(size));
    weft_api_struct_out(theirs, defaults, ours_bytes, bytes_min);
}

void weft_transport_config_init(struct weft_transport_config *config_p, size_t size)
{
    struct weft_transport_config config = {
        .host = "127.0.0.1",
        .peers_max = 16,
        .message_bytes_max = 16 << 20,
        .receives_max = 64,
        .packet_bytes = 1472,
        .peer_timeout_ns = weft_api_peer_timeout_ns(),
        .socket_buffer_bytes = 4 << 20,
        .keepalive_ns = WEFT_NEVER,
        .idle_timeout_ns = WEFT_NEVER,
    };
    weft_api_struct_init(config_p, size, &config, sizeof(config), CONFIG_BYTES_MIN);
}

void weft_transport_send_init(struct weft_transport_send *send_p, size_t size)
{
    struct weft_transport_send send = {.elem_bytes = sizeof(float), .timeout_ns = WEFT_NEVER};
    weft_api_struct_init(send_p, size, &send, sizeof(send), SEND_BYTES_MIN);
}

void weft_transport_receive_init(struct weft_transport_receive *receive_p, size_t size)
{
    struct weft_transport_receive receive = {
        .tag_mask = UINT64_MAX,
        .peer = WEFT_PEER_ANY,
        .sink = WEFT_TRANSPORT_COPY,
        .timeout_ns = WEFT_NEVER,
    };
    weft_api_struct_init(receive_p, size, &receive, sizeof(receive), RECEIVE_BYTES_MIN);
}

weft_status weft_api_send_read(const struct weft_transport_send *theirs,
                               struct weft_transport_send *ours_p, struct weft_error *error)
{
    weft_transport_send_init(ours_p, sizeof(*ours_p));
    weft_status status = weft_api_struct_in(ours_p, sizeof(*ours_p), SEND_BYTES_MIN, theirs, "send",
                                            "weft_transport_send_init", error);
    return status == WEFT_OK && ours_p->reserved != 0 ? too_new("send", error) : status;
}

weft_status weft_api_receive_read(const struct weft_transport_receive *theirs,
                                  struct weft_transport_receive *ours_p, struct weft_error *error)
{
    weft_transport_receive_init(ours_p, sizeof(*ours_p));
    return weft_api_struct_in(ours_p, sizeof(*ours_p), RECEIVE_BYTES_MIN, theirs, "receive",
                              "weft_transport_receive_init", error);
}

/* ---- the environment ------------------------------------------------------------------------- */

uint64_t weft_api_peer_timeout_ns(void)
{
    return weft_launch_peer_timeout_s(WEFT_TRANSPORT_PEER_TIMEOUT_S) * WEFT_NS_PER_S;
}

weft_status weft_api_peer_timeout_check(uint64_t peer_timeout_ns, struct weft_error *error)
{
    /* A zero set by the program itself is refused with the other ranges. */
    return peer_timeout_ns > 0 || weft_launch_peer_timeout_check(error) == WEFT_OK ? WEFT_OK
                                                                                   : WEFT_DATA;
}

/* ---- the configuration ----------------------------------------------------------------------- */

weft_status weft_api_ranges_check(const struct weft_api_range *fields, size_t count,
                                  struct weft_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (fields[i].value < fields[i].min || fields[i].value > fields[i].max) {
            return weft_fail(error, WEFT_INVALID, "%s is %llu; it must be from %llu to %llu",
                             fields[i].name, (unsigned long long)fields[i].value,
                             (unsigned long long)fields[i].min, (unsigned long long)fields[i].max);
        }
    }
    return WEFT_OK;
}

weft_status weft_api_network_check(const char *host, const char *congestion,
                                   struct weft_error *error)
{
    if (host == NULL) {
        return weft_fail(error, WEFT_INVALID,
                         "host is NULL; name the address to bind, such as \"127.0.0.1\"");
    }
    if (weft_cc_find(congestion) == NULL) {
        return weft_fail(error, WEFT_INVALID,
                         "congestion control \"%.40s\" is not known; choose dctcp, delay or "
                         "reno-fair, or NULL for the first",
                         congestion);
    }
    return WEFT_OK;
}

weft_status weft_api_kernel_check(const char *transport, bool *tcp_p, struct weft_error *error)
{
    *tcp_p = transport != NULL && strcmp(transport, "tcp") == 0;
    if (*tcp_p || transport == NULL || strcmp(transport, "weft") == 0) {
        return WEFT_OK;
    }
    return weft_fail(error, WEFT_INVALID,
                     "transport \"%.40s\" is not known; choose \"weft\" or \"tcp\"", transport);
}

/* Most packets of a message. The worst cases are an element slightly longer than half a packet, and
 * room for 63 elements rounded down to 32. */
static uint64_t chunks_max_for(const struct weft_transport_config *c)
{
    uint64_t half = (c->packet_bytes - PACKET_OVERHEAD_BYTES) / 2;
    return weft_div_ceil_u64(c->message_bytes_max, half);
}

static weft_status range_check(const struct weft_transport_config *c, struct weft_error *error)
{
    const struct weft_api_range fields[] = {
        {"accept", c->accept, 0, 1},
        {"thread", c->thread, 0, 1},
        {"peers_max", c->peers_max, 1, 4096},
        {"message_bytes_max", c->message_bytes_max, 1, UINT64_C(1) << 40},
        {"receives_max", c->receives_max, 1, 65536},
        {"packet_bytes", c->packet_bytes, 256, 65000},
        {"security", c->security, WEFT_TRANSPORT_AUTH, WEFT_TRANSPORT_NONE},
        {"senders_expected", c->senders_expected, 0, UINT16_MAX},
        {"peer_timeout_ns", c->peer_timeout_ns, 1, WEFT_NEVER},
        {"keepalive_ns", c->keepalive_ns, WEFT_NS_PER_MS, WEFT_NEVER},
        {"idle_timeout_ns", c->idle_timeout_ns, WEFT_NS_PER_MS, WEFT_NEVER},
        {"busy_poll_us", c->busy_poll_us, 0, UINT16_MAX},
        {"inject_loss_ppm", c->inject_loss_ppm, 0, WEFT_PPM},
    };
    weft_status status = weft_api_ranges_check(fields, WEFT_ARRAY_COUNT(fields), error);
    status = status == WEFT_OK ? weft_api_network_check(c->host, c->congestion, error) : status;
    if (status != WEFT_OK) {
        return status;
    }
    if (chunks_max_for(c) > CHUNKS_MAX) {
        return weft_fail(
            error, WEFT_INVALID,
            "message_bytes_max is %llu, which may be more than %d packets of %u bytes; cut "
            "messages into several, or raise packet_bytes where the network allows it",
            (unsigned long long)c->message_bytes_max, CHUNKS_MAX / 2, c->packet_bytes);
    }
    return WEFT_OK;
}

weft_status weft_api_config_read(const struct weft_transport_config *theirs,
                                 struct weft_transport_config *ours_p,
                                 struct weft_driver_config *driver_p, struct weft_error *error)
{
    weft_transport_config_init(ours_p, sizeof(*ours_p));
    weft_status status = weft_api_struct_in(ours_p, sizeof(*ours_p), CONFIG_BYTES_MIN, theirs,
                                            "config", "weft_transport_config_init", error);
    if (status == WEFT_OK) {
        status = weft_api_peer_timeout_check(ours_p->peer_timeout_ns, error);
    }
    if (status == WEFT_OK) {
        status = range_check(ours_p, error);
    }
    if (status == WEFT_OK) {
        status = weft_api_metrics_check(ours_p->metrics, error);
    }
    if (status != WEFT_OK) {
        return status;
    }
    weft_driver_config_default(driver_p);
    struct weft_udp_config *udp_p = &driver_p->udp;
    udp_p->host = ours_p->host;
    udp_p->port = ours_p->port;
    udp_p->busy_poll_us = (uint16_t)ours_p->busy_poll_us;
    udp_p->socket_buffer_bytes = ours_p->socket_buffer_bytes;
    udp_p->loss.loss_ppm = ours_p->inject_loss_ppm;
    udp_p->loss.seed = ours_p->inject_seed;
    udp_p->ep.name = ours_p->name;
    udp_p->ep.peers_max = ours_p->peers_max;
    udp_p->ep.chunks_max = (uint32_t)chunks_max_for(ours_p);
    udp_p->ep.expects_max = ours_p->receives_max;
    udp_p->ep.senders_expected = (uint16_t)ours_p->senders_expected;
    udp_p->ep.packet_bytes = (uint16_t)ours_p->packet_bytes;
    udp_p->ep.accept = ours_p->accept;
    udp_p->ep.peer_timeout_ns = ours_p->peer_timeout_ns;
    udp_p->ep.keepalive_ns = ours_p->keepalive_ns;
    udp_p->ep.idle_timeout_ns = ours_p->idle_timeout_ns;
    udp_p->ep.cc_name = ours_p->congestion;
    return WEFT_OK;
}
