#include "node/membership.h"

#include <assert.h>
#include <string.h>

bool weft_membership_has_coordinator(const struct weft_membership *membership)
{
    return membership->launch.coordinator_port != 0;
}

static weft_status arm(void *arg, struct weft_udp_config *config, struct weft_io_error *error)
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

weft_status weft_membership_join(struct weft_membership *membership,
                                 const struct weft_security *security,
                                 const struct weft_transport_options *transport, uint32_t first, uint32_t span,
                                 enum weft_member_wait what, bool (*stop)(void),
                                 struct weft_member_state *state_p, struct weft_io_error *error)
{
    const struct weft_launch *launch = &membership->launch;
    struct weft_member_thread_config config = {.host = launch->coordinator_host,
                                               .port = launch->coordinator_port,
                                               .arm = arm,
                                               .disarm = disarm,
                                               .closed = closed,
                                               .arg = membership};
    membership->security = security;
    membership->transport = *transport;
    weft_driver_config_default(&config.driver);
    weft_transport_options_apply(&membership->transport, &config.driver);
    config.member = (struct weft_member_client_config){
        .role = span > 0 ? WEFT_ROLE_SERVER : WEFT_ROLE_WORKER,
        /* Without a supervisor that names the place: a name that nobody else has. */
        .member = launch->member != 0 ? launch->member : config.driver.udp.ep.seed | 1,
        .incarnation = (uint64_t)launch->restart + 1,
        .rank = launch->rank, /* UNKNOWN and NONE are the same number */
        .workers = or_zero(launch->workers),
        .shards = or_zero(launch->shards),
        .first = first,
        .span = span,
    };
    static_assert(WEFT_LAUNCH_UNKNOWN == WEFT_MEMBER_NONE);
    static_assert((int)WEFT_LAUNCH_JOB_BYTES == (int)WEFT_MEMBER_JOB_BYTES);
    memcpy(config.member.job, launch->job, sizeof(config.member.job));
    weft_status status = weft_member_thread_start(&config, &membership->thread, error);
    if (status != WEFT_OK) {
        return status;
    }
    return weft_member_thread_wait(membership->thread, what,
                                   membership->patience_s * WEFT_NS_PER_S, stop, state_p, error);
}

void weft_membership_leave(struct weft_membership *membership, bool done)
{
    weft_member_thread_stop(membership->thread, done);
    membership->thread = NULL;
}
