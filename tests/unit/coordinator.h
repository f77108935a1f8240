/* The coordinator of `weft coordinator` (node/coordinator.h) on loopback, without a journal and
 * without security. */
#ifndef TESTS_UNIT_COORDINATOR_H
#define TESTS_UNIT_COORDINATOR_H

#include "base/assert.h"
#include "node/coordinator.h"

/* Start a coordinator for two workers. Returns its port. */
static inline uint16_t coordinator_start(struct weft_coordinator *c, uint16_t port, uint32_t shards,
                                         uint64_t lease_ns)
{
    static const struct weft_security none = {.mode = WEFT_MODE_NONE};
    struct weft_error error = {.text = ""};
    struct weft_coordinator_config config = {
        .host = "127.0.0.1", .port = port, .security = &none};
    weft_roster_config_default(&config.roster);
    config.roster.workers = 2;
    config.roster.shards = shards;
    config.roster.lease_ns = lease_ns;
    config.roster.tell_over = true;
    WEFT_ASSERT(weft_coordinator_start(c, &config, &error) == WEFT_OK);
    return weft_coordinator_port(c);
}

#endif
