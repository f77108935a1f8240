/* Joining a job through its coordinator: a rank, the number of workers, where the shards are.
 *
 * A thread of the library keeps the lease (io/member_thread.h), on an endpoint of its own: a
 * program that computes for a minute does not lose its rank. It ends with the ps.
 */
#include "api/ps_internal.h"

#include "io/clock.h"
#include "io/resolve.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert((int)WEFT_RESOLVE_TEXT_BYTES <= (int)WEFT_PS_HOST_BYTES);
static_assert(WEFT_LAUNCH_UNKNOWN == WEFT_MEMBER_NONE);
static_assert((int)WEFT_LAUNCH_JOB_BYTES == (int)WEFT_MEMBER_JOB_BYTES);

/* ---- on the thread --------------------------------------------------------------------------- */

static weft_status arm(void *arg, struct weft_udp_config *udp, struct weft_io_error *error)
{
    struct ps_membership *membership = arg;
    return weft_security_arm(membership->security, udp, &membership->provider, error);
}

static void disarm(void *arg, struct weft_udp_config *udp)
{
    (void)arg;
    weft_security_disarm(udp);
}

static void closed(void *arg)
{
    struct ps_membership *membership = arg;
    weft_provider_free(membership->provider);
    membership->provider = NULL;
}

/* ---- joining --------------------------------------------------------------------------------- */

static uint32_t or_zero(uint32_t number)
{
    return number == WEFT_LAUNCH_UNKNOWN ? 0 : number;
}

static struct weft_member_client_config member_config(const struct weft_launch *launch,
                                                      uint64_t random)
{
    struct weft_member_client_config member = {
        .role = WEFT_ROLE_WORKER,
        /* Without a supervisor that names the place: a name that nobody else has. */
        .member = launch->member != 0 ? launch->member : random | 1,
        .incarnation = (uint64_t)launch->restart + 1,
        .rank = launch->rank,
        .workers = or_zero(launch->workers),
        .shards = or_zero(launch->shards),
        .first = WEFT_MEMBER_NONE,
    };
    memcpy(member.job, launch->job, sizeof(member.job));
    return member;
}

static weft_status start(struct weft_ps *ps, const struct weft_ps_config *config)
{
    struct ps_membership *membership = &ps->membership;
    struct weft_member_thread_config thread = {.host = membership->launch.coordinator_host,
                                               .port = membership->launch.coordinator_port,
                                               .arm = arm,
                                               .disarm = disarm,
                                               .closed = closed,
                                               .arg = membership};
    membership->security = &ps->security;
    weft_driver_config_default(&thread.driver);
    thread.driver.kind = weft_api_ps_driver_kind(config);
    thread.member = member_config(&membership->launch, thread.driver.udp.ep.seed);
    return weft_member_thread_start(&thread, &membership->thread, &ps->error);
}

static weft_status take_list(struct weft_ps *ps, const struct weft_member_reply *list)
{
    ps->servers = calloc(list->count, sizeof(*ps->servers));
    if (ps->servers == NULL) {
        return weft_io_fail(&ps->error, WEFT_NOMEM, "no memory for the list of servers");
    }
    ps->shards = list->count;
    for (uint32_t s = 0; s < list->count; s++) {
        weft_resolve_member_host(&list->addresses[s], ps->servers[s].host);
        ps->servers[s].port = list->addresses[s].port;
    }
    return WEFT_OK;
}

weft_status weft_api_ps_join(struct weft_ps *ps, const struct weft_ps_config *config)
{
    struct weft_member_state state;
    weft_status status = start(ps, config);
    if (status == WEFT_OK) {
        status = weft_member_thread_wait(ps->membership.thread, WEFT_MEMBER_WAIT_LISTED,
                                         config->connect_timeout_ns, NULL, &state, &ps->error);
    }
    if (status != WEFT_OK) {
        return status;
    }
    ps->worker = state.grant.rank;
    ps->workers = state.grant.workers;
    return take_list(ps, &state.list);
}

void weft_api_ps_leave(struct weft_ps *ps, bool done)
{
    weft_member_thread_stop(ps->membership.thread, done);
    ps->membership.thread = NULL;
}
