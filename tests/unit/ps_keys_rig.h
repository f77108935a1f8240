/* A cluster whose workers and shards keep lists of ids. */
#ifndef WEFT_TESTS_PS_KEYS_RIG_H
#define WEFT_TESTS_PS_KEYS_RIG_H

#include "ps_cluster.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static inline struct cluster_config keys_config(uint32_t shards)
{
    struct cluster_config config = cluster_config(shards, 1);
    config.incarnation = 10;
    config.shard.chunks_max = 2048;
    config.shard.slab_bytes = 8 << 20;
    config.client.rows_per_rpc_max = config.shard.rows_per_rpc_max;
    return config;
}

static inline struct weft_table_spec sums(uint16_t table, uint32_t dim)
{
    return (struct weft_table_spec){
        .table = table, .dim = dim, .mode = WEFT_TABLE_ASP, .workers = 1, .learning_rate = -1};
}

#endif
