/* The option --on-worker-death, and the message from a supervisor that a worker has died.
 *
 * A supervisor on the same host (`weft run`, `weft train`) detects a death at once, long before a
 * UDP connection times out, and notifies the servers over their channels. */
#ifndef WEFT_CLI_SERVER_DEATHS_H
#define WEFT_CLI_SERVER_DEATHS_H

#include "ps/shard.h"

#include <cjson/cJSON.h>

/* Parser for WEFT_OPTION_CUSTOM; value is an enum weft_worker_death. */
const char *weft_deaths_parse(const char *text, void *value);
/* "wait", "shrink", "fail". */
const char *weft_deaths_name(enum weft_worker_death death);

/* Row of an option table. */
#define WEFT_DEATHS_OPTION(death)                                                                  \
    {                                                                                              \
        "on-worker-death", "WHAT",                                                                 \
            "wait = block clocks until the rank rejoins, so that a mean is always\n"               \
            "over all workers; shrink = continue with the others, and a worker that\n"             \
            "rejoins starts at the current clock; fail = end the job, also when a\n"               \
            "connection breaks",                                                                   \
            WEFT_OPTION_CUSTOM, .value = (death), .parse = weft_deaths_parse, .fallback = "wait"   \
    }

/* The message that the process of this rank has died now. */
cJSON *weft_deaths_event(uint32_t rank);
/* False: it is another kind of message. */
bool weft_deaths_take(const cJSON *message, uint32_t *rank_p, uint64_t *at_ns_p);

#endif
