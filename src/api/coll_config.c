#include "api/coll_internal.h"

#include "agg/agg.h"
#include "base/assert.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

enum {
    CONFIG_BYTES_MIN = offsetof(struct weft_comm_config, inject_seed) + sizeof(uint32_t),
    OP_BYTES_MIN = offsetof(struct weft_comm_op, user) + sizeof(void *),
    PACKET_BYTES = 1472,
    PACKET_BYTES_MIN = 1200, /* leaves room for WEFT_COLL_CHUNK_MIN bytes per chunk */
    POOL_BYTES_EACH = 64 << 10,
    BOX_SLOTS_MAX = 4096, /* the trial has a chunk for each */
    BOX_EXPONENT_MAX = 64, /* sums of all members stay finite as floats */
    HOST_BYTES = 254,      /* the longest name of a host, and a zero */
};

/* The public names are those of coll/coll.h. */
static_assert((int)WEFT_COMM_ALL_REDUCE == (int)WEFT_COLL_ALL_REDUCE);
static_assert((int)WEFT_COMM_REDUCE_SCATTER == (int)WEFT_COLL_REDUCE_SCATTER);
static_assert((int)WEFT_COMM_BROADCAST == (int)WEFT_COLL_BROADCAST);
static_assert((int)WEFT_COMM_SCATTER == (int)WEFT_COLL_SCATTER);
static_assert((int)WEFT_COMM_RECV == (int)WEFT_COLL_RECV);
static_assert((int)WEFT_COMM_F32 == (int)WEFT_COLL_F32);
static_assert((int)WEFT_COMM_BF16 == (int)WEFT_COLL_BF16);
static_assert((int)WEFT_COMM_I64 == (int)WEFT_COLL_I64);
static_assert((int)WEFT_COMM_SUM == (int)WEFT_COLL_SUM);
static_assert((int)WEFT_COMM_PRODUCT == (int)WEFT_COLL_PRODUCT);
static_assert((int)WEFT_COMM_XOR == (int)WEFT_COLL_XOR);
static_assert((int)WEFT_COMM_PLAN_AUTO == (int)WEFT_COLLECTIVE_AUTO + 1);
static_assert((int)WEFT_COMM_PLAN_TREES == (int)WEFT_COLLECTIVE_TREES + 1);
static_assert((int)WEFT_COMM_FALLBACK == (int)WEFT_COLL_FALLBACK);

void weft_comm_config_init(struct weft_comm_config *config_p, size_t size)
{
    struct weft_coll_config coll;
    struct weft_coll_box_config box;
    weft_coll_config_default(&coll);
    weft_coll_box_config_default(&box);
    struct weft_comm_config config = {
        .host = "127.0.0.1",
        .ranks = 1,
        .groups_max = 64,
        .ops_max = coll.ops_max,
        .pool_bytes = coll.pool_bytes,
        .peer_timeout_ns = weft_api_peer_timeout_ns(),
        .op_timeout_ns = 300 * WEFT_NS_PER_S,
        .socket_buffer_bytes = 4 << 20,
        .busy_poll_us = WEFT_COLL_THREAD_BUSY_POLL_US,
        .box_bytes_min = box.bytes_min,
        .box_timeout_ns = box.silence_ns,
        .box_retry_ns = box.retry_ns,
        .box_job = 1,
        .box_slots = box.slots,
    };
    weft_api_struct_init(config_p, size, &config, sizeof(config), CONFIG_BYTES_MIN);
}

void weft_comm_op_init(struct weft_comm_op *op_p, size_t size)
{
    struct weft_comm_op op = {.kind = WEFT_COMM_ALL_REDUCE};
    weft_api_struct_init(op_p, size, &op, sizeof(op), OP_BYTES_MIN);
}

weft_status weft_api_comm_op_read(const struct weft_comm_op *theirs, struct weft_comm_op *ours_p,
                                  struct weft_error *error)
{
    weft_comm_op_init(ours_p, sizeof(*ours_p));
    return weft_api_struct_in(ours_p, sizeof(*ours_p), OP_BYTES_MIN, theirs, "operation",
                              "weft_comm_op_init", error);
}

/* What weft_comm_join would refuse otherwise, after all ranks have connected. */
static weft_status plan_check(const struct weft_comm_config *c, struct weft_error *error)
{
    const struct weft_collective_rank own = {.up_bps = c->link_bps};
    const struct weft_collective_options options = {
        .form = c->plan == WEFT_COMM_PLAN_TREES ? WEFT_COLLECTIVE_TREES : WEFT_COLLECTIVE_AUTO,
        .bytes = 1,
        .chunk_bytes = 1};
    const char *wrong = weft_collective_check(&own, 1, c->ranks, &options);
    return wrong == NULL ? WEFT_OK
                         : weft_fail(error, WEFT_INVALID, "plan, link_bps: %s", wrong);
}

static weft_status range_check(const struct weft_comm_config *c, struct weft_error *error)
{
    const struct weft_api_range fields[] = {
        {"ranks", c->ranks, 1, WEFT_COLL_RANKS_MAX},
        {"rank", c->rank, 0, (uint64_t)c->ranks - 1},
        {"epoch", c->epoch, 0, WEFT_COLL_EPOCH_MAX},
        {"groups_max", c->groups_max, 1, WEFT_COLL_GROUPS_MAX},
        {"ops_max", c->ops_max, 1, WEFT_COLL_OPS_MAX},
        {"pool_bytes", c->pool_bytes, (uint64_t)POOL_BYTES_EACH * c->ranks, UINT64_C(1) << 40},
        {"packet_bytes", c->packet_bytes != 0 ? c->packet_bytes : PACKET_BYTES, PACKET_BYTES_MIN,
         65000},
        {"security", c->security, WEFT_TRANSPORT_AUTH, WEFT_TRANSPORT_NONE},
        {"peer_timeout_ns", c->peer_timeout_ns, 1, WEFT_NEVER},
        {"op_timeout_ns", c->op_timeout_ns, 1, WEFT_NEVER},
        {"busy_poll_us", c->busy_poll_us, 0, UINT16_MAX},
        {"inject_loss_ppm", c->inject_loss_ppm, 0, WEFT_PPM},
        {"plan", c->plan, WEFT_COMM_PLAN_NONE, WEFT_COMM_PLAN_TREES},
        {"link_bps", c->link_bps, 0, WEFT_COLLECTIVE_BPS_MAX},
    };
    weft_status status = weft_api_ranges_check(fields, WEFT_ARRAY_COUNT(fields), error);
    status = status == WEFT_OK ? plan_check(c, error) : status;
    status = status == WEFT_OK ? weft_api_network_check(c->host, c->congestion, error) : status;
    bool tcp;
    return status == WEFT_OK ? weft_api_kernel_check(c->transport, &tcp, error) : status;
}

static void set_driver(const struct weft_comm_config *c, struct weft_driver_config *driver)
{
    struct weft_udp_config *udp = &driver->udp;
    bool tcp;
    weft_status status = weft_api_kernel_check(c->transport, &tcp, NULL);
    WEFT_ASSERT(status == WEFT_OK); /* by range_check */
    driver->kind = tcp ? WEFT_DRIVER_TCP : WEFT_DRIVER_UDP;
    udp->host = c->host;
    udp->port = c->port;
    udp->busy_poll_us = c->busy_poll_us;
    udp->socket_buffer_bytes = c->socket_buffer_bytes;
    udp->loss.loss_ppm = c->inject_loss_ppm;
    udp->loss.seed = c->inject_seed;
    udp->loopback_packet_bytes = c->packet_bytes != 0 ? 0 : WEFT_COLL_THREAD_LOOPBACK_BYTES;
    udp->blocking_receive = WEFT_UDP_BLOCKING_RECEIVE;
    udp->ep.packet_bytes = c->packet_bytes != 0 ? c->packet_bytes : PACKET_BYTES;
    udp->ep.peer_timeout_ns = c->peer_timeout_ns;
    udp->ep.keepalive_ns = weft_min_u64(udp->ep.keepalive_ns, c->peer_timeout_ns);
    udp->ep.cc_name = c->congestion;
}

/* ---- aggregation box ------------------------------------------------------------------------- */

static weft_status box_check(const struct weft_comm_config *c, struct weft_error *error)
{
    if (c->box_insecure != 1) {
        return weft_fail(error, WEFT_INVALID,
                         "packets to an aggregation box are not authenticated: any host that can "
                         "reach it, or this rank, can change sums. Set box_insecure to 1 to allow "
                         "that for %.80s",
                         c->box);
    }
    const struct weft_api_range fields[] = {
        {"ranks", c->ranks, 1, WEFT_AGG_MEMBERS_MAX},
        {"box_job", c->box_job, 0, UINT16_MAX},
        {"box_slots", c->box_slots, 1, BOX_SLOTS_MAX},
        {"box_float32", c->box_float32, 0, 1},
        {"box_block_float", c->box_block_float, 0, 1},
        {"box_timeout_ns", c->box_timeout_ns, WEFT_NS_PER_MS, WEFT_NEVER},
        {"box_retry_ns", c->box_retry_ns, WEFT_NS_PER_MS, WEFT_NEVER},
    };
    weft_status status = weft_api_ranges_check(fields, WEFT_ARRAY_COUNT(fields), error);
    if (status == WEFT_OK &&
        (c->box_exponent < WEFT_AGG_EXPONENT_MIN || c->box_exponent > BOX_EXPONENT_MAX ||
         ((c->box_float32 != 0 || c->box_block_float != 0) && c->box_exponent != 0))) {
        status = weft_fail(error, WEFT_INVALID,
                           "box_exponent is %d; it must be %d .. %d, and 0 with box_float32 or "
                           "box_block_float",
                           c->box_exponent, WEFT_AGG_EXPONENT_MIN, BOX_EXPONENT_MAX);
    }
    if (status == WEFT_OK && c->box_float32 != 0 && c->box_block_float != 0) {
        status = weft_fail(error, WEFT_INVALID,
                           "box_float32 and box_block_float exclude each other: the box sums "
                           "floats, or integers");
    }
    return status;
}

static weft_status read_box(struct weft_api_comm_box *room, const struct weft_comm_config *c,
                            struct weft_coll_thread_box *box, struct weft_error *error)
{
    char host[HOST_BYTES];
    weft_status status = box_check(c, error);
    if (status != WEFT_OK) {
        return status;
    }
    if (!weft_launch_endpoint_parse(c->box, strlen(c->box), host, sizeof(host), &box->port)) {
        return weft_fail(error, WEFT_INVALID, "box is \"%.80s\"; it must be HOST:PORT", c->box);
    }
    status = weft_resolve(host, room->host, error);
    status = status == WEFT_OK ? weft_resolve(c->host, room->own_host, error) : status;
    box->host = room->host;
    box->own_host = room->own_host;
    box->job = (uint16_t)c->box_job;
    box->floats = c->box_float32 != 0;
    box->block_floats = c->box_block_float != 0;
    box->exponent = (int8_t)c->box_exponent;
    box->slots = c->box_slots;
    box->bytes_min = c->box_bytes_min;
    box->silence_ns = c->box_timeout_ns;
    box->retry_ns = c->box_retry_ns;
    return status;
}

weft_status weft_api_comm_config_read(const struct weft_comm_config *theirs,
                                      struct weft_comm_config *ours_p,
                                      struct weft_coll_thread_config *thread_p,
                                      struct weft_api_comm_box *room, struct weft_error *error)
{
    weft_comm_config_init(ours_p, sizeof(*ours_p));
    weft_status status = weft_api_struct_in(ours_p, sizeof(*ours_p), CONFIG_BYTES_MIN, theirs,
                                            "config", "weft_comm_config_init", error);
    if (status == WEFT_OK) {
        status = weft_api_peer_timeout_check(ours_p->peer_timeout_ns, error);
    }
    if (status == WEFT_OK) {
        status = range_check(ours_p, error);
    }
    if (status != WEFT_OK) {
        return status;
    }
    weft_coll_thread_config_default(thread_p);
    struct weft_coll_config *coll = &thread_p->coll;
    coll->rank = ours_p->rank;
    coll->ranks = ours_p->ranks;
    coll->epoch = ours_p->epoch;
    coll->groups_max = ours_p->groups_max;
    coll->ops_max = ours_p->ops_max;
    coll->pool_bytes = ours_p->pool_bytes;
    set_driver(ours_p, &thread_p->driver);
    return ours_p->box == NULL ? WEFT_OK : read_box(room, ours_p, &thread_p->box, error);
}
