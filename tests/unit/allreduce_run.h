/* Runs of all_reduce in the simulator that must succeed. */
#ifndef WEFT_TEST_ALLREDUCE_RUN_H
#define WEFT_TEST_ALLREDUCE_RUN_H

#include "sim/allreduce.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static inline struct weft_allreduce_config config_of(uint32_t ranks, uint64_t bytes)
{
    struct weft_allreduce_config config;
    weft_allreduce_config_default(&config);
    config.ranks = ranks;
    config.bytes = bytes;
    config.rounds = 3;
    return config;
}

static inline struct weft_allreduce_result run(const struct weft_allreduce_config *config)
{
    struct weft_allreduce_result result;
    assert_null(weft_allreduce_config_check(config));
    weft_allreduce_run(config, &result);
    if (!result.ok) {
        print_message("%s\n", result.failure);
    }
    assert_true(result.ok);
    assert_int_equal(result.rounds, config->rounds);
    return result;
}

#endif
