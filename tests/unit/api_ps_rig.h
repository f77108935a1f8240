/* For tests of <weft/ps.h>: real shards in threads, and configurations to connect to them. */
#ifndef WEFT_TESTS_API_PS_RIG_H
#define WEFT_TESTS_API_PS_RIG_H

#include "api_ps_calls.h"
#include "api_ps_server.h"

enum { DIM = 4 };

static const uint64_t ms_ns = WEFT_NS_PER_MS;

/* Up to two shards, and the list of their addresses. */
struct site {
    struct test_server servers[2];
    uint32_t count;
    char list[64];
};

static inline void site_start(struct site *site, uint32_t shards, struct ps_server_options options)
{
    size_t used = 0;
    site->count = shards;
    for (uint32_t s = 0; s < shards; s++) {
        options.shard = s;
        options.shards = shards;
        test_server_start(&site->servers[s], options);
        used += (size_t)snprintf(site->list + used, sizeof(site->list) - used, "%s127.0.0.1:%u",
                                 s > 0 ? "," : "", (unsigned)site->servers[s].port);
    }
}

static inline void site_stop(struct site *site)
{
    for (uint32_t s = 0; s < site->count; s++) {
        test_server_stop(&site->servers[s]);
    }
}

static inline struct weft_ps_config config_for(const char *servers)
{
    struct weft_ps_config config;
    weft_ps_config_init(&config, sizeof(config));
    config.servers = servers;
    config.security = WEFT_TRANSPORT_NONE;
    config.connect_timeout_ns = 120 * WEFT_NS_PER_S;
    config.rows_max = 2048; /* meson's MALLOC_PERTURB_ makes calloc touch all reserved memory */
    return config;
}

static inline void must_fail(const struct weft_ps *ps, weft_status status, weft_status wanted,
                             const char *words)
{
    if (status != wanted) {
        fail_msg("%s instead of %s: %s", weft_status_name(status), weft_status_name(wanted),
                 weft_ps_error(ps));
    }
    says(weft_ps_error(ps), words);
}

/* SGD with rate -1: a push adds its values divided by the number of workers. */
static inline struct weft_table_options adding(const char *consistency)
{
    struct weft_table_options options;
    weft_table_options_init(&options, sizeof(options), "sgd");
    options.consistency = consistency;
    options.dim = DIM;
    options.learning_rate = -1.0F;
    return options;
}

static inline struct weft_ps_table *open_table(struct weft_ps *ps,
                                               const struct weft_table_options *options)
{
    struct weft_ps_table *table = NULL;
    must(ps, weft_table_open(ps, options, &table));
    return table;
}

static inline void fill(uint64_t *ids, float *rows, size_t n, float value)
{
    for (size_t i = 0; i < n; i++) {
        ids[i] = i * 7919;
        for (uint32_t d = 0; rows != NULL && d < DIM; d++) {
            rows[i * DIM + d] = value + (float)i + (float)d / 8;
        }
    }
}

#endif
