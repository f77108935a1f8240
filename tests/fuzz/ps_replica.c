/* Pieces of transfers from any bytes: a replica refuses them, or its shard has their contents. Each
 * piece is a length, u16 big-endian, and that many bytes. */
#include "ps/replica.h"
#include "rpc/head.h"

#include "transport.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static weft_status take_send(void *self, const struct weft_msg_send *send, uint64_t now_ns,
                             uint64_t *seq_p)
{
    struct transport *t = self;
    struct weft_confirm confirm;
    (void)now_ns;
    WEFT_ASSERT(weft_confirm_unpack(send->base, (size_t)send->total * send->elem_bytes, &confirm) ==
                WEFT_OK);
    *seq_p = ++t->ids;
    return WEFT_OK;
}

static void supply(struct weft_shard *shard)
{
    uint16_t table;
    size_t bytes;
    for (int i = 0; i < 4 && weft_shard_wants_slab(shard, &table, &bytes) && bytes <= 1 << 20;
         i++) {
        void *slab = malloc(bytes);
        WEFT_ASSERT(weft_shard_add_slab(shard, table, slab, bytes) == WEFT_OK);
    }
}

static void progress(struct weft_replica *replica)
{
    while (weft_replica_wants_piece(replica)) {
        weft_replica_add_piece(replica, malloc(WEFT_PIECE_BYTES_MAX));
    }
    weft_replica_progress(replica, 1);
}

static void deliver(struct transport *t, struct weft_replica *replica, const uint8_t *bytes,
                    size_t count)
{
    progress(replica);
    for (uint32_t i = 0; i < EXPECTS; i++) {
        if (t->expects[i].live) {
            t->expects[i].live = false;
            memcpy(t->expects[i].expect.memory, bytes, count);
            const struct weft_msg_event event = {.type = WEFT_EVENT_RECEIVED,
                                                 .user = t->expects[i].expect.user,
                                                 .total = (uint32_t)count,
                                                 .elem_bytes = 1};
            WEFT_ASSERT(weft_replica_event(replica, &event, 1));
            return;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct weft_msg_ops ops = transport_ops(take_send);
    struct transport transport = {.ids = 0};
    const struct weft_msgr msgr = {.ops = &ops, .self = &transport};
    struct weft_shard_config config;
    struct weft_replica_config replica_config;
    struct weft_shard *shard;
    struct weft_replica *replica;
    weft_shard_config_default(&config);
    config.shard = 1;
    config.shards = 2;
    config.workers_max = 4;
    config.tables_max = 2;
    config.rows_max = 200;
    config.dim_max = 8;
    config.slab_bytes = 4096;
    config.chunks_max = 128;
    config.rows_per_rpc_max = 16;
    config.list_ids = 0;
    config.hot_top = 4;
    config.clock_ns = transport_clock_ns;
    config.clock_arg = &transport;
    WEFT_ASSERT(weft_shard_new(&config, msgr, &shard) == WEFT_OK);
    weft_replica_config_default(&replica_config);
    replica_config.pieces_max = 8;
    replica_config.supply = supply;
    WEFT_ASSERT(weft_replica_new(&replica_config, shard, msgr, &replica) == WEFT_OK);
    const struct weft_msg_event up = {.type = WEFT_EVENT_PEER_UP,
                                      .peer = 1,
                                      .name = weft_rpc_name(WEFT_ROLE_SERVER, 1)};
    WEFT_ASSERT(weft_replica_event(replica, &up, 1));
    while (size >= 2) {
        size_t count = (size_t)data[0] << 8 | data[1];
        data += 2;
        size -= 2;
        count = count < size ? count : size;
        deliver(&transport, replica, data, count);
        data += count;
        size -= count;
    }
    progress(replica);
    weft_replica_end(replica);
    void *memory;
    while ((memory = weft_replica_take_piece(replica, true)) != NULL) {
        free(memory);
    }
    weft_replica_free(replica);
    while ((memory = weft_shard_take_slab(shard)) != NULL) {
        free(memory);
    }
    weft_shard_free(shard);
    transport_end(&transport);
    return 0;
}
