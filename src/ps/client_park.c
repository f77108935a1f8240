/* Parking: closes direct connections to shards while all requests go through aggregators.
 *
 * With aggregators, a connection to a shard carries TABLE at the beginning, and later only requests
 * that an aggregator does not accept. If the connection was unused for a while, and an aggregator
 * delivers this worker's requests, the worker sends PARK and closes the connection; the shard keeps
 * the rank (shard_park.c). Requests through the aggregator continue. Any other request waits until
 * the connection is reopened and every table is resumed as after a break, with a new session. The
 * break counts as happening at the reopening, because nothing was in flight on a parked connection.
 *
 * A shard declares a parked rank dead if none of its requests was committed for park_lease_ns, so
 * the worker reconnects well before that. After each reopening the connection is kept for twice as
 * long as before. The new session voids sums that contain pushes of this worker, so while some are
 * acknowledged on apply and not committed, the connection is not reopened (client_applied.c).
 *
 * Source: docs/PROTOCOL.md section 7, "Parked connections".
 */
#include "ps/client_internal.h"

#include "base/assert.h"

/* Fractions of the lease: a commit within lease / LATELY shows that the aggregator is in use; after
 * lease / SILENT without one the connection is reopened. The rest of the lease is time for that. */
enum { LATELY = 8, SILENT = 4 };

static const uint64_t pause_most_ns = 60 * WEFT_NS_PER_S;

uint32_t weft_ps_packet_elems(const struct weft_ps_client *client, uint32_t shard,
                              uint16_t elem_bytes)
{
    const struct ps_shard_end *end = &client->ends[shard];
    if (end->park != PARK_PARKED) {
        return client->msgr.ops->chunk_elems(client->msgr.self, end->peer, elem_bytes);
    }
    /* As in packets of the last connection; in whole bitmap words, like the transport. */
    const uint32_t elems = end->packet_elems / elem_bytes;
    return elems >= 32 ? elems - elems % 32 : elems;
}

bool weft_ps_connection_goes(struct weft_ps_client *client, uint32_t shard)
{
    struct ps_shard_end *end = &client->ends[shard];
    if (client->vias == NULL) {
        return true;
    }
    if (end->park != PARK_NONE) {
        end->wants_connection = true;
        return false;
    }
    end->direct_ns = ps_clock_ns(client);
    return true;
}

/* ---- parking --------------------------------------------------------------------------------- */

/* True: all usual requests of this worker go through the aggregator. */
static bool tables_go_by(const struct weft_ps_client *client, uint32_t shard, uint16_t *table_p)
{
    bool any = false;
    for (uint32_t t = 0; t < client->config.tables_max; t++) {
        const struct ps_table *table = &client->tables[t];
        if (table->state == TABLE_CLOSED) {
            continue;
        }
        if (table->state != TABLE_OPEN || !weft_ps_via_has_all(client, (uint16_t)t, shard) ||
            client->links[(size_t)t * client->config.shards + shard].clock_sending) {
            return false;
        }
        if (client->config.worker < table->spec.workers) {
            *table_p = (uint16_t)t;
            any = true;
        }
    }
    return any;
}

static bool is_quiet(const struct weft_ps_client *client, uint32_t shard)
{
    for (uint32_t i = 0; i < client->parts_total; i++) {
        const struct ps_part *part = &client->parts[i];
        if (part->shard == shard &&
            (part->state == PART_QUEUED || (part->state == PART_FLYING && !ps_part_is_via(part)))) {
            return false;
        }
    }
    return true;
}

static bool may_park(const struct weft_ps_client *client, uint32_t shard, uint64_t now_ns,
                     uint16_t *table_p)
{
    const struct ps_shard_end *end = &client->ends[shard];
    const uint64_t lately_ns = client->config.park_lease_ns / LATELY;
    return !end->down && !end->away && end->park == PARK_NONE && end->resuming == 0 &&
           !end->fence_due &&
           end->up_ns != 0 && now_ns >= weft_time_add(end->direct_ns, end->park_pause_ns) &&
           end->vouched_ns > end->up_ns && now_ns < weft_time_add(end->vouched_ns, lately_ns) &&
           tables_go_by(client, shard, table_p) && is_quiet(client, shard);
}

static void park_ask(struct weft_ps_client *client, uint32_t shard, uint16_t table, uint64_t now_ns)
{
    struct ps_shard_end *end = &client->ends[shard];
    const struct weft_rpc_request request = {
        .rpc_id = weft_ps_rpc_id(client, shard),
        .worker = client->config.worker,
        .t0_ns = ps_clock_ns(client),
        .flags = WEFT_RPC_PARK,
    };
    weft_rpc_request_pack(&request, end->park_request);
    const uint32_t links = client->config.tables_max * client->config.shards;
    const struct weft_msg_send send = {
        .peer = end->peer,
        .base = end->park_request,
        .total = 1,
        .elem_bytes = WEFT_RPC_REQUEST_BYTES,
        .priority = WEFT_RPC_PRIORITY,
        .critical = 1,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){
            .op = WEFT_RPC_CLOCK,
            .table = table,
            .number = (uint32_t)(client->config.park_lease_ns / WEFT_NS_PER_MS)}),
        .deadline_ns = WEFT_NEVER,
        .user = WEFT_PS_USER | WEFT_PS_USER_CLOCK | (links + shard),
    };
    uint64_t seq;
    if (client->msgr.ops->send(client->msgr.self, &send, now_ns, &seq) == WEFT_OK) {
        end->park = PARK_ASKED;
        end->wants_connection = false;
        ps_vouched(end, now_ns);
    } else {
        client->counters.deferred++;
    }
}

void weft_ps_park_sent(struct weft_ps_client *client, uint32_t shard,
                       const struct weft_msg_event *event)
{
    struct ps_shard_end *end = &client->ends[shard];
    if (end->park != PARK_ASKED) {
        return; /* the connection has broken */
    }
    if (event->outcome != WEFT_MSG_COMPLETE) {
        end->park = PARK_NONE; /* PEER_DOWN follows */
        return;
    }
    if (event->refused > 0) {
        end->park = PARK_NONE;
        end->park_pause_ns = WEFT_NEVER;
        client->counters.parks_refused++;
        return;
    }
    end->packet_elems = client->msgr.ops->chunk_elems(client->msgr.self, end->peer, 1);
    end->park = PARK_ENDING;
    end->park_close = true;
}

bool weft_ps_park_down(struct weft_ps_client *client, uint32_t shard, enum weft_msg_down down)
{
    struct ps_shard_end *end = &client->ends[shard];
    const bool parks = end->park == PARK_ENDING && down != WEFT_DOWN_REPLACED;
    end->park = parks ? PARK_PARKED : PARK_NONE;
    end->park_close = false;
    end->was_parked = parks || (end->was_parked && end->connecting);
    client->counters.parks += parks;
    return parks;
}

bool weft_ps_client_waits(const struct weft_ps_client *client, uint32_t shard,
                          enum weft_msg_down down)
{
    const struct ps_shard_end *end = &client->ends[shard];
    const bool is_back = end->connecting && end->was_parked &&
                         (down == WEFT_DOWN_CLOSED || down == WEFT_DOWN_RESTARTED);
    return down != WEFT_DOWN_REPLACED &&
           (client->config.reconnect_ns > 0 || end->park == PARK_ENDING || is_back);
}

/* ---- reconnecting ---------------------------------------------------------------------------- */

static void unpark(struct weft_ps_client *client, uint32_t shard, uint64_t now_ns)
{
    struct ps_shard_end *end = &client->ends[shard];
    end->park = PARK_NONE;
    end->wants_connection = false;
    end->reconnect_interval_ns = 0; /* the connection lasted */
    end->park_pause_ns = weft_min_u64(2 * end->park_pause_ns, pause_most_ns);
    client->counters.unparks++;
    weft_ps_shard_away(client, shard, now_ns);
}

static uint64_t silent_at(const struct weft_ps_client *client, const struct ps_shard_end *end)
{
    return weft_time_add(end->vouched_ns, client->config.park_lease_ns / SILENT);
}

void weft_ps_parks_progress(struct weft_ps_client *client, uint64_t now_ns)
{
    uint16_t table = 0;
    for (uint32_t s = 0; client->parks && s < client->config.shards; s++) {
        struct ps_shard_end *end = &client->ends[s];
        if (end->park == PARK_PARKED) {
            end->wants_connection |= client->parks_no_more || now_ns >= silent_at(client, end);
            if (end->wants_connection && weft_ps_applied_settled(client, s)) {
                unpark(client, s, now_ns);
            }
        } else if (!client->parks_no_more && may_park(client, s, now_ns, &table)) {
            park_ask(client, s, table, now_ns);
        }
    }
}

uint64_t weft_ps_park_deadline(const struct weft_ps_client *client)
{
    uint64_t first_ns = WEFT_NEVER;
    for (uint32_t s = 0; client->parks && s < client->config.shards; s++) {
        const struct ps_shard_end *end = &client->ends[s];
        if (end->park == PARK_PARKED && !end->wants_connection) {
            first_ns = weft_min_u64(first_ns, silent_at(client, end));
        }
    }
    return first_ns;
}

bool weft_ps_client_parked(const struct weft_ps_client *client, uint32_t shard)
{
    return client->ends[shard].park == PARK_PARKED;
}

bool weft_ps_client_unpark(struct weft_ps_client *client, uint64_t now_ns)
{
    bool any = false;
    client->parks_no_more = true;
    weft_ps_parks_progress(client, now_ns);
    for (uint32_t s = 0; s < client->config.shards; s++) {
        const struct ps_shard_end *end = &client->ends[s];
        any |= end->park != PARK_NONE ||
               (end->was_parked && !end->down && (end->away || end->resuming > 0));
    }
    return any;
}

void weft_ps_client_park_again(struct weft_ps_client *client)
{
    client->parks_no_more = false;
}
