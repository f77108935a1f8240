#include "node/membership.h"

#include <assert.h>
#include <string.h>

bool weft_membership_has_coordinator(const struct weft_membership *membership)
{
    return membership->launch.coordinator_port != 0;
}

static weft_status arm(void *arg, struct weft_udp_config *config, struct weft_error *error)
{
    struct weft_membership *membership = arg;
    return weft_security_arm(membership->security, config, &membership->provider, error);
}

static void disarm(void *arg, struct weft_udp_config *config)
{
    (void)arg;
    weft_security_disarm(config);
}

static void closed(void *arg)
{
    struct weft_membership *membership = arg;
    weft_provider_free(membership->provider);
    membership->provider = NULL;
}

static uint32_t or_zero(uint32_t number)
{
    return number == WEFT_LAUNCH_UNKNOWN ? 0 : number;
}

static struct weft_member_client_config member_config(const struct weft_launch *launch,
                                                      const struct weft_membership_join *join,
                                                      uint64_t random)
{
    static_assert(WEFT_LAUNCH_UNKNOWN == WEFT_MEMBER_NONE);
    static_assert((int)WEFT_LAUNCH_JOB_BYTES == (int)WEFT_MEMBER_JOB_BYTES);
    struct weft_member_client_config member = {
        .role = join->is_aggregator ? WEFT_ROLE_AGGREGATOR
                : join->span > 0    ? WEFT_ROLE_SERVER
                                    : WEFT_ROLE_WORKER,
        .rack = weft_member_rack(join->rack),
        .wants_aggregator = join->wants_aggregator,
        /* Without a supervisor that names the slot: a unique name. */
        .member = launch->member != 0 ? launch->member : random | 1,
        .incarnation = (uint64_t)launch->restart + 1,
        .rank = launch->rank, /* UNKNOWN and NONE are the same number */
        .workers = or_zero(launch->workers),
        .shards = or_zero(launch->shards),
        .first = join->first,
        .span = join->span,
    };
    memcpy(member.job, launch->job, sizeof(member.job));
    if (join->is_aggregator) { /* the environment's rank and counts are a worker's */
        member.rank = join->number;
        member.workers = member.shards = 0;
    }
    return member;
}

weft_status weft_membership_join(struct weft_membership *membership,
                                 const struct weft_membership_join *join,
                                 struct weft_member_state *state_p, struct weft_error *error)
{
    struct weft_member_thread_config config = {.host = membership->launch.coordinator_host,
                                               .port = membership->launch.coordinator_port,
                                               .arm = arm,
                                               .disarm = disarm,
                                               .closed = closed,
                                               .arg = membership};
    membership->security = join->security;
    weft_driver_config_default(&config.driver);
    weft_transport_options_apply(join->transport, &config.driver);
    config.member = member_config(&membership->launch, join, config.driver.udp.ep.seed);
    weft_status status = weft_member_thread_start(&config, &membership->thread, error);
    if (status != WEFT_OK) {
        return status;
    }
    return weft_member_thread_wait(membership->thread, join->what, join->patience_ns, join->stop,
                                   state_p, error);
}

bool weft_membership_locate(struct weft_membership *membership, uint32_t shard, uint32_t shards,
                            struct weft_launch_address *address_p)
{
    static_assert((int)WEFT_RESOLVE_TEXT_BYTES == (int)WEFT_LAUNCH_ADDRESS_BYTES);
    struct weft_member_state state;
    if (membership->thread == NULL) {
        return false;
    }
    weft_member_thread_state(membership->thread, &state);
    if (state.list.count != shards) {
        return false;
    }
    weft_resolve_member_host(&state.list.addresses[shard], address_p->host);
    address_p->port = state.list.addresses[shard].port;
    return true;
}

bool weft_membership_aggregator(struct weft_membership *membership, uint32_t shard, uint32_t shards,
                                struct weft_launch_address *address_p)
{
    struct weft_member_state state;
    if (membership->thread == NULL) {
        return false;
    }
    weft_member_thread_state(membership->thread, &state);
    if (state.aggregator.count != shards) {
        return false;
    }
    weft_resolve_member_host(&state.aggregator.addresses[shard], address_p->host);
    address_p->port = state.aggregator.addresses[shard].port;
    return true;
}

void weft_membership_leave(struct weft_membership *membership, bool done)
{
    weft_member_thread_stop(membership->thread, done);
    membership->thread = NULL;
}
