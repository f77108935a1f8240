#include "cli/membership.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const char *nothing(void *arg, const char *name)
{
    (void)arg;
    (void)name;
    return NULL;
}

/* A source that is not a flag has answered. */
static bool is_told(const struct weft_launch *launch)
{
    const char *const from[] = {launch->role_from,    launch->rank_from,
                                launch->workers_from, launch->shards_from,
                                launch->servers_from, launch->coordinator_from};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(from); i++) {
        if (from[i] != NULL && from[i][0] != '-') {
            return true;
        }
    }
    return launch->rank_left_from != NULL;
}

int weft_membership_detect(struct weft_membership *membership, const struct weft_command *command,
                           const struct weft_launch *flags, uint32_t shards_per_server,
                           bool environment)
{
    struct weft_launch given = *flags;
    struct weft_job_error error = {.text = ""};
    const char *scheduler = membership->scheduler;
    if (scheduler != NULL &&
        !weft_launch_endpoint_parse(scheduler, strlen(scheduler), given.coordinator_host,
                                    sizeof(given.coordinator_host), &given.coordinator_port)) {
        return weft_options_usage(command, "--scheduler \"%.80s\" is not allowed; it must be "
                                           "HOST:PORT",
                                  scheduler);
    }
    if (weft_launch_detect(&given, shards_per_server,
                           environment ? weft_launch_environment : nothing, NULL,
                           &membership->launch, &error) != WEFT_OK) {
        return weft_options_usage(command, "%s", error.text);
    }
    if (is_told(&membership->launch)) {
        char text[WEFT_LAUNCH_TEXT_BYTES];
        weft_launch_text(&membership->launch, text, sizeof(text));
        fprintf(stderr, "weft %s: launched as %s\n", command->name, text);
    }
    return WEFT_OPTIONS_RUN;
}

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
                                 const struct weft_carrier *carrier, uint32_t first, uint32_t span,
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
    membership->carrier = *carrier;
    weft_driver_config_default(&config.driver);
    weft_carrier_apply(&membership->carrier, &config.driver);
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
