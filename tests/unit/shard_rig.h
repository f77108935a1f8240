/* One shard on the fake transport, and messages as a worker encodes them: for tests that act as the
 * workers. */
#ifndef WEFT_TESTS_SHARD_RIG_H
#define WEFT_TESTS_SHARD_RIG_H

#include "fake_msgr.h"
#include "ps/layout.h"
#include "ps/shard.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* Layout of a push: elements of the head, bytes of an element (an id and a float), 32 elements per
 * chunk. */
enum { RIG_HEAD_ELEMS = 4, RIG_ELEM_BYTES = 12, RIG_CHUNK_ELEMS = 32 };

/* Configuration: two workers, one table of up to 1,000 rows, checkpoints. */
static inline struct weft_shard_config shard_rig_config(struct fake_net *net)
{
    struct weft_shard_config config;
    weft_shard_config_default(&config);
    config.workers_max = 2;
    config.tables_max = 1;
    config.rows_max = 1000;
    config.checkpoints = true;
    config.chunks_max = 64;
    config.clock_ns = fake_clock_ns;
    config.clock_arg = net;
    return config;
}

static inline struct weft_shard *shard_rig_new(struct fake_net *net, uint32_t node,
                                               const struct weft_shard_config *config)
{
    struct weft_shard *shard;
    assert_int_equal(weft_shard_new(config, fake_msgr(net, node), &shard), WEFT_OK);
    return shard;
}

static inline void shard_rig_end(struct weft_shard *shard)
{
    void *slab;
    while ((slab = weft_shard_take_slab(shard)) != NULL) {
        free(slab);
    }
    weft_shard_free(shard);
}

static inline void shard_rig_slabs(struct weft_shard *shard)
{
    uint16_t table;
    size_t bytes;
    while (weft_shard_wants_slab(shard, &table, &bytes)) {
        assert_int_equal(weft_shard_add_slab(shard, table, malloc(bytes), bytes), WEFT_OK);
    }
}

/* Process the shard's events, make progress, and supply the memory that it requests. */
static inline void shard_rig_progress(struct weft_shard *shard, struct fake_net *net, uint32_t node)
{
    struct weft_msg_event event;
    while (fake_poll(&net->nodes[node], &event)) {
        weft_shard_event(shard, &event, net->now_ns);
    }
    weft_shard_progress(shard, net->now_ns);
    shard_rig_slabs(shard);
}

/* Write the rows of a push to message (HEAD_ELEMS + rows elements): the same gradient for each of
 * ids 1 .. rows. */
static inline void shard_rig_push(uint8_t *message, uint32_t rows, float gradient)
{
    const uint32_t total = RIG_HEAD_ELEMS + rows;
    for (uint32_t first = 0, k = 0; first < total; first += RIG_CHUNK_ELEMS, k++) {
        uint32_t left = total - first, elems = left < RIG_CHUNK_ELEMS ? left : RIG_CHUNK_ELEMS;
        struct weft_ps_chunk_rows at = weft_ps_chunk_rows(
            RIG_ELEM_BYTES, WEFT_RPC_ID_WIDE, RIG_CHUNK_ELEMS, RIG_HEAD_ELEMS, k, elems);
        uint8_t *chunk = message + first * RIG_ELEM_BYTES;
        for (uint32_t i = 0; i < at.count; i++) {
            weft_ps_store_id(chunk + at.ids_offset, WEFT_RPC_ID_WIDE, i, at.first + i + 1);
            memcpy(chunk + at.blocks_offset + i * sizeof(gradient), &gradient, sizeof(gradient));
        }
    }
}

#endif
