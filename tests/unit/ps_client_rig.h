/* One table of a cluster (ps_cluster.h), and helpers that run one push or pull to its end. */
#ifndef WEFT_TESTS_PS_CLIENT_RIG_H
#define WEFT_TESTS_PS_CLIENT_RIG_H

#include "ps_cluster.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* SGD with rate 1: a row is minus the sum of its gradients / W. */
static inline struct weft_table_spec sgd_spec(uint32_t dim, uint8_t mode, uint16_t workers)
{
    return (struct weft_table_spec){.dim = dim,
                                    .mode = mode,
                                    .workers = workers,
                                    .learning_rate = 1,
                                    .staleness = mode == WEFT_TABLE_SSP ? 2 : 0};
}

static inline uint32_t blocks_of(uint32_t dim)
{
    return weft_table_blocks(&(struct weft_table_spec){.dim = dim});
}

static inline struct weft_ps_result push(struct cluster *c, uint32_t w, const uint64_t *ids,
                                         const float *rows, uint32_t n)
{
    weft_ps_op op;
    assert_int_equal(weft_ps_push(c->client[w], 0, ids, rows, n, 0, c->net->now_ns, &op), WEFT_OK);
    return cluster_wait(c, w, op);
}

static inline struct weft_ps_result pull(struct cluster *c, uint32_t w, const uint64_t *ids,
                                         float *rows, uint32_t n)
{
    weft_ps_op op;
    assert_int_equal(weft_ps_pull(c->client[w], 0, ids, rows, n, 0, c->net->now_ns, &op), WEFT_OK);
    return cluster_wait(c, w, op);
}

static inline uint64_t id_of(uint64_t i)
{
    return i == 0 ? UINT64_MAX : i * UINT64_C(0x9e3779b97f4a7c15);
}

#endif
