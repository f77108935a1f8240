#include "cli/node_options.h"

#include "cli/tcp_cc.h"
#include "cli/train/job.h"

#include <stdio.h>
#include <string.h>

const char *weft_security_parse_mode(const char *text, void *value)
{
    for (uint8_t mode = 0; mode <= WEFT_MODE_SEAL; mode++) {
        if (strcmp(text, weft_security_mode_name(mode)) == 0) {
            *(uint8_t *)value = mode;
            return NULL;
        }
    }
    return "auth, seal or none";
}

int weft_security_check(const struct weft_command *command, const struct weft_security *security)
{
    if (security->insecure_network && security->mode != WEFT_MODE_NONE) {
        return weft_options_usage(command, "--insecure-network requires --security none");
    }
    if (security->key_file != NULL && security->mode == WEFT_MODE_NONE) {
        return weft_options_usage(command, "--key-file has no effect with --security none");
    }
    return WEFT_OPTIONS_RUN;
}

const char *const weft_key_caching_names[] = {"on", "off", NULL};

const char *const weft_transport_names[] = {"weft", "tcp", NULL};

int weft_transport_options_check(const struct weft_command *command,
                                 const struct weft_transport_options *transport,
                                 uint32_t inject_loss_ppm, const char *trace)
{
    bool tuned = transport->tcp_cc != NULL || transport->tcp_rto_min_ms != 0;
    if (transport->kind == WEFT_DRIVER_UDP) {
        return !tuned ? WEFT_OPTIONS_RUN
                      : weft_options_usage(command,
                                           "--tcp-cc and --tcp-rto-min require --transport tcp");
    }
    if (inject_loss_ppm != 0) {
        return weft_options_usage(command, "--inject-loss has no effect with --transport tcp: the "
                                           "kernel retransmits lost packets; configure loss in the "
                                           "network instead");
    }
    if (trace != NULL) {
        return weft_options_usage(command, "--trace records weft's packets; over TCP there are "
                                           "none");
    }
    return WEFT_OPTIONS_RUN;
}

int weft_transport_options_find_cc(const struct weft_command *command,
                                   struct weft_transport_options *transport)
{
    struct weft_error error;
    if (weft_launch_peer_timeout_check(&error) != WEFT_OK) {
        return weft_cli_fail(command->name, "%s", error.text);
    }
    return weft_cli_tcp_cc(command->name, "tcp-cc", &transport->tcp_cc);
}

static const char *nothing(void *arg, const char *name)
{
    (void)arg;
    (void)name;
    return NULL;
}

/* Did a source other than a command-line option provide a value? */
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

int weft_scheduler_address(const struct weft_command *command, const char *text,
                           struct weft_launch_address *address_p)
{
    uint32_t count;
    if (weft_launch_servers_parse(text, address_p, 1, &count) == NULL && count == 1) {
        return WEFT_OPTIONS_RUN;
    }
    return weft_options_usage(command,
                              "--scheduler \"%.80s\" is not allowed; it must be the HOST:PORT "
                              "printed by `weft scheduler`, with a numeric host",
                              text);
}

int weft_membership_detect(struct weft_membership *membership, const struct weft_command *command,
                           const struct weft_launch *flags, uint32_t shards_per_server,
                           bool environment)
{
    struct weft_launch given = *flags;
    struct weft_error error = {.text = ""};
    const char *coordinator = membership->coordinator;
    if (coordinator != NULL &&
        !weft_launch_endpoint_parse(coordinator, strlen(coordinator), given.coordinator_host,
                                    sizeof(given.coordinator_host), &given.coordinator_port)) {
        return weft_options_usage(command,
                                  "--coordinator \"%.80s\" is not allowed; it must be "
                                  "HOST:PORT",
                                  coordinator);
    }
    if (weft_launch_detect(&given, shards_per_server,
                           environment ? weft_launch_environment : nothing, NULL,
                           &membership->launch, &error) != WEFT_OK) {
        return weft_options_usage(command, "%s", error.text);
    }
    const struct weft_launch *launch = &membership->launch;
    if (launch->workers != WEFT_LAUNCH_UNKNOWN && launch->workers > WEFT_JOB_WORKERS_MAX) {
        return weft_options_usage(command, "%u workers (from %s) are too many; the maximum is %d",
                                  launch->workers, launch->workers_from, (int)WEFT_JOB_WORKERS_MAX);
    }
    if (launch->shards != WEFT_LAUNCH_UNKNOWN && launch->shards > WEFT_JOB_SHARDS_MAX) {
        return weft_options_usage(command, "%u shards (from %s) are too many; the maximum is %d",
                                  launch->shards, launch->shards_from, (int)WEFT_JOB_SHARDS_MAX);
    }
    if (is_told(&membership->launch)) {
        char text[WEFT_LAUNCH_TEXT_BYTES];
        weft_launch_text(&membership->launch, text, sizeof(text));
        fprintf(stderr, "weft %s: launched as %s\n", command->name, text);
    }
    return WEFT_OPTIONS_RUN;
}
