/* A run of the simulated job (sim/fabric.h) that must succeed. */
#ifndef WEFT_TESTS_FABRIC_RUN_H
#define WEFT_TESTS_FABRIC_RUN_H

#include "sim/fabric.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* Result of the last run. */
static struct weft_fabric_result result;

static inline void run(const struct weft_fabric_config *config)
{
    assert_null(weft_fabric_config_check(config));
    weft_fabric_run(config, &result);
    if (!result.ok) {
        print_message("%s, %s, %s: %s\n", weft_fabric_policy_name(config->policy),
                      config->compute.name, config->network.name, result.failure);
    }
    assert_true(result.ok);
}

#endif
