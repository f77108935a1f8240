/* Cut-through: which pieces a push is cut into.
 *
 * A push of a job with a scheduler and aggregators is cut by ranges of ids, the same for all
 * workers that cut, so that each piece of a sum has the same ids in all members. Each piece is a
 * push with its own number. It counts once, is resent, replayed and committed as any other push,
 * whichever way it takes; the update is committed when all its pushes are.
 *
 *     dense table    equal ranges of rows, at least piece_bytes_min of each shard
 *     sparse table   equal ranges of a hash of the id: about as many rows of every push in each.
 *                    Cut or not by the push's own rows: a sum whose members differ waits for its
 *                    age
 *
 * Source: docs/PROTOCOL.md section 7, "Aggregates". */
#include "ps/client_internal.h"

#include "ps/aggregate.h"

uint8_t weft_ps_pieces(const struct weft_ps_client *client, const struct weft_ps_list *list)
{
    const struct weft_ps_client_config *config = &client->config;
    const struct weft_table_spec *spec = &client->tables[list->table].spec;
    if (!weft_ps_cuts(config) || !weft_aggregate_takes(spec)) {
        return 1;
    }
    const uint64_t most = spec->kind == WEFT_TABLE_DENSE
                              ? spec->length * sizeof(float) / config->shards / config->piece_bytes_min
                              : list->n / config->shards / config->piece_rows_min;
    const bool whole = spec->kind != WEFT_TABLE_DENSE && most < config->pieces;
    return whole || most == 0 ? 1 : (uint8_t)weft_min_u64(most, config->pieces);
}

uint32_t weft_ps_piece_of(const struct weft_table_spec *spec, uint32_t pieces, uint64_t id)
{
    if (spec->kind == WEFT_TABLE_DENSE) {
        return (uint32_t)(id * pieces / weft_table_dense_rows(spec));
    }
    /* Not the bits that determine the shard. */
    return (uint32_t)((weft_mix64(id) & UINT32_MAX) * pieces >> 32);
}
