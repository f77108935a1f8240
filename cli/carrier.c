#include "cli/carrier.h"

#include "cli/tcp_cc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *weft_carrier_parse(const char *text, void *value)
{
    static const enum weft_driver_kind kinds[] = {WEFT_DRIVER_UDP, WEFT_DRIVER_TCP};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(kinds); i++) {
        if (strcmp(text, weft_driver_kind_name(kinds[i])) == 0) {
            *(enum weft_driver_kind *)value = kinds[i];
            return NULL;
        }
    }
    return "weft or tcp";
}

int weft_carrier_check(const struct weft_command *command, const struct weft_carrier *carrier,
                       uint32_t inject_loss_ppm, const char *trace)
{
    bool tuned = carrier->tcp_cc != NULL || carrier->tcp_rto_min_ms != 0;
    if (carrier->kind == WEFT_DRIVER_UDP) {
        return !tuned ? WEFT_OPTIONS_RUN
                      : weft_options_usage(command, "--tcp-cc and --tcp-rto-min mean something "
                                                    "only with --transport tcp");
    }
    if (inject_loss_ppm != 0) {
        return weft_options_usage(command, "--inject-loss has no use with --transport tcp: the "
                                           "kernel sends again what is lost; make the network "
                                           "lose packets instead");
    }
    if (trace != NULL) {
        return weft_options_usage(command, "--trace records weft's packets; over TCP there are "
                                           "none");
    }
    return WEFT_OPTIONS_RUN;
}

int weft_carrier_find_cc(const struct weft_command *command, struct weft_carrier *carrier)
{
    if (weft_launch_peer_timeout_s(1) == 0) {
        fprintf(stderr, "weft %s: WEFT_PEER_TIMEOUT_S is \"%.40s\"; it must be a number from 1 to 86400\n",
                command->name, getenv("WEFT_PEER_TIMEOUT_S"));
        return WEFT_EXIT_FAILED;
    }
    return weft_cli_tcp_cc(command->name, "tcp-cc", &carrier->tcp_cc);
}

void weft_carrier_apply(const struct weft_carrier *carrier, struct weft_driver_config *config)
{
    config->kind = carrier->kind;
    config->tcp_cc = carrier->tcp_cc;
    config->tcp_rto_min_ns = carrier->tcp_rto_min_ms * WEFT_NS_PER_MS;
    if (carrier->peer_timeout_s != 0) {
        config->udp.ep.peer_timeout_ns = carrier->peer_timeout_s * WEFT_NS_PER_S;
    }
}
