/* A client: lifecycle and events. */
#include "ps/client_internal.h"

#include "base/bits.h"
#include "ps/aggregate.h"
#include "ps/hot_rows.h"

#include <stdlib.h>
#include <string.h>

void weft_ps_client_config_default(struct weft_ps_client_config *config_p)
{
    *config_p = (struct weft_ps_client_config){
        .shards = 1,
        .tables_max = 4,
        .ops_max = 8,
        .lists_per_op_max = 4,
        .rows_per_op_max = 65536,
        .rows_per_rpc_max = 16384,
        .dim_max = 64,
        .piece_bytes_min = 65536,
        .piece_rows_min = 32,
        .can = WEFT_RPC_CAN_ALL,
        .missed_max = 65536,
        .replay_messages_max = 16384,
    };
}

/* Each list has at most one part per shard that is not full; two if hot and cold rows are split;
 * one for each piece if it is cut. */
static uint32_t parts_per_op_of(const struct weft_ps_client_config *config)
{
    return config->lists_per_op_max * config->shards * weft_ps_groups(config) +
           config->rows_per_op_max / config->rows_per_rpc_max;
}

uint32_t weft_ps_client_expects_max(const struct weft_ps_client_config *config)
{
    /* For the log: parts that may be in flight, and DURABLE_UPTO messages. */
    uint32_t log = config->replay_bytes > 0 ? config->shards * (WEFT_MSGS_MAX + 1) : 0;
    return config->ops_max * parts_per_op_of(config) + 2 * config->tables_max * config->shards +
           log + (weft_ps_ways(config) > 1 ? 1 : 0) +
           (config->via_timeout_ns > 0 ? (2 * config->tables_max + 1) * weft_ps_vias(config) : 0);
}

static bool config_valid(const struct weft_ps_client_config *config)
{
    return config->worker < WEFT_RPC_WORKERS_MAX && config->shards >= 1 && config->shards <= 4096 &&
           config->tables_max >= 1 && config->tables_max <= 65536 && config->ops_max >= 1 &&
           config->ops_max <= 4096 && config->lists_per_op_max >= 1 &&
           config->lists_per_op_max <= WEFT_PS_LISTS_MAX && config->rows_per_op_max >= 1 &&
           config->rows_per_op_max <= UINT32_C(1) << 28 && config->rows_per_rpc_max >= 1 &&
           config->rows_long_max <= WEFT_RPC_ROWS_LONG &&
           config->dim_max >= 1 && config->dim_max <= WEFT_RPC_DIM_MAX &&
           config->clock_ns != NULL && (config->can & ~WEFT_RPC_CAN_ALL) == 0 &&
           config->hot_rows <= WEFT_HOT_ROWS_MAX && config->pieces <= WEFT_PS_PIECES_MAX &&
           config->piece_bytes_min >= 1 && config->piece_rows_min >= 1 &&
           config->park_lease_ns <= WEFT_RPC_PARK_MS_MAX * WEFT_NS_PER_MS &&
           (config->replay_bytes == 0 ||
            (config->reconnect_ns > 0 && config->replay_messages_max >= 1 &&
             config->replay_messages_max <= UINT32_C(1) << 20));
}

/* ---- life ------------------------------------------------------------------------------------ */

static void ends_init(struct weft_ps_client *client, const weft_peer *peers)
{
    for (uint32_t s = 0; s < client->config.shards; s++) {
        client->ends[s] = (struct ps_shard_end){
            .peer = peers[s],
            .session = 1,
            .queue_head = WEFT_PS_NONE,
            .queue_tail = WEFT_PS_NONE,
            .park_pause_ns = client->config.park_pause_ns,
        };
    }
}

/* Each link's clock probe is a permanent part. */
static void clock_probes_init(struct weft_ps_client *client)
{
    uint32_t links = client->config.tables_max * client->config.shards;
    for (uint32_t i = 0; i < links; i++) {
        client->parts[client->clock_probes_first + i] = (struct ps_part){
            .kind = WEFT_RPC_PULL,
            .table = (uint16_t)(i / client->config.shards),
            .shard = i % client->config.shards,
            .op = WEFT_PS_NONE,
            .request = client->links[i].probe_request,
            .request_elems = weft_rpc_head_elems(WEFT_RPC_REQUEST_BYTES, sizeof(uint64_t)),
            .request_elem_bytes = sizeof(uint64_t),
            .reply = client->links[i].probe_reply,
            .reply_bytes = WEFT_RPC_REPLY_BYTES,
        };
    }
}

static weft_status members_init(struct weft_ps_client *client)
{
    const struct weft_ps_client_config *config = &client->config;
    size_t links = (size_t)config->tables_max * config->shards;
    client->parts_per_op = parts_per_op_of(config);
    client->clock_probes_first = config->ops_max * client->parts_per_op;
    client->resumes_first = client->clock_probes_first + (uint32_t)links;
    client->log.first = client->resumes_first + (uint32_t)links;
    client->log.slots = config->replay_bytes > 0 ? config->replay_messages_max : 0;
    client->parts_total = client->log.first + client->log.slots;
    client->ends = calloc(config->shards, sizeof(*client->ends));
    client->tables = calloc(config->tables_max, sizeof(*client->tables));
    client->links = calloc(links, sizeof(*client->links));
    client->ops = calloc(config->ops_max, sizeof(*client->ops));
    client->parts = calloc(client->parts_total, sizeof(*client->parts));
    client->sort_start =
        calloc((size_t)config->shards * weft_ps_groups(config) * 3 + 1, sizeof(*client->sort_start));
    client->sort_first =
        calloc(WEFT_BITS_WORDS(config->rows_per_op_max), sizeof(*client->sort_first));
    client->sort_critical =
        calloc(WEFT_BITS_WORDS(config->rows_per_op_max), sizeof(*client->sort_critical));
    if (weft_ps_ways(config) > 1) {
        client->sort_cold =
            calloc(WEFT_BITS_WORDS(config->rows_per_op_max), sizeof(*client->sort_cold));
    }
    client->slice = malloc(sizeof(*client->slice));
    client->unpacked = calloc(weft_max_u64(WEFT_PS_CHUNK_ROWS_MAX, ps_rows_most(config)),
                              sizeof(*client->unpacked));
    client->critical =
        calloc(WEFT_BITS_WORDS((size_t)WEFT_PS_CHUNKS_MAX), sizeof(*client->critical));
    bool have = client->ends != NULL && client->tables != NULL && client->links != NULL &&
                client->ops != NULL && client->parts != NULL && client->sort_start != NULL &&
                client->sort_first != NULL && client->sort_critical != NULL &&
                (client->sort_cold != NULL || weft_ps_ways(config) == 1) &&
                client->unpacked != NULL && client->slice != NULL && client->critical != NULL;
    return have ? WEFT_OK : WEFT_NOMEM;
}

static weft_status ops_init(struct weft_ps_client *client)
{
    const struct weft_ps_client_config *config = &client->config;
    size_t buffer_bytes = weft_ps_op_buffer_bytes(config, client->parts_per_op);
    for (uint32_t i = 0; i < config->ops_max; i++) {
        struct ps_op *op = &client->ops[i];
        op->order = calloc(config->rows_per_op_max, sizeof(*op->order));
        op->buffer = calloc(1, buffer_bytes);
        op->missed = calloc(WEFT_BITS_WORDS(config->rows_per_op_max), sizeof(*op->missed));
        if (op->order == NULL || op->buffer == NULL || op->missed == NULL) {
            return WEFT_NOMEM;
        }
    }
    return WEFT_OK;
}

static weft_status client_init(struct weft_ps_client *client, const weft_peer *peers)
{
    weft_status status = members_init(client);
    if (status == WEFT_OK) {
        ends_init(client, peers);
        clock_probes_init(client);
        weft_ps_resumes_init(client);
        status = ops_init(client);
    }
    status = status == WEFT_OK ? weft_ps_known_init(client) : status;
    if (status == WEFT_OK && client->config.update_bytes_min > 0) {
        status = weft_ps_updates_init(client);
    }
    status = status == WEFT_OK ? weft_ps_via_init(client) : status;
    if (status == WEFT_OK && weft_ps_ways(&client->config) > 1) {
        status = weft_ps_hots_init(client);
    }
    if (status == WEFT_OK && ps_log_on(client)) {
        status = weft_ps_log_init(client);
    }
    for (uint32_t t = 0; status == WEFT_OK && t < client->config.tables_max; t++) {
        struct weft_ps_missed *both[] = {&client->tables[t].missed, &client->tables[t].push_missed};
        for (int i = 0; status == WEFT_OK && i < 2; i++) {
            status =
                weft_ps_missed_init(both[i], client->config.missed_max, client->config.missed_key);
        }
    }
    return status;
}

weft_status weft_ps_client_new(const struct weft_ps_client_config *config, struct weft_msgr msgr,
                               const weft_peer *shard_peers, struct weft_ps_client **client_p)
{
    if (!config_valid(config)) {
        return WEFT_INVALID;
    }
    struct weft_ps_client *client = calloc(1, sizeof(*client));
    if (client == NULL) {
        return WEFT_NOMEM;
    }
    client->config = *config;
    if (config->update_bytes_min == 0) {
        client->config.can &= (uint16_t)~WEFT_RPC_CAN_UPDATE;
    }
    if (weft_ps_ways(config) == 1) {
        client->config.can &= (uint16_t)~WEFT_RPC_CAN_HOT;
    }
    client->parks = config->park_lease_ns > 0 && config->via_timeout_ns > 0 &&
                    config->replay_bytes == 0 && config->update_bytes_min == 0 &&
                    config->hot_rows == 0;
    client->msgr = msgr;
    weft_prng_split(&client->prng, config->seed, config->worker);
    client->deadline_ns = WEFT_NEVER;
    weft_status status = client_init(client, shard_peers);
    if (status != WEFT_OK) {
        weft_ps_client_free(client);
        return status;
    }
    *client_p = client;
    return WEFT_OK;
}

void weft_ps_client_free(struct weft_ps_client *client)
{
    if (client == NULL) {
        return;
    }
    for (uint32_t i = 0; client->ops != NULL && i < client->config.ops_max; i++) {
        free(client->ops[i].order);
        free(client->ops[i].buffer);
        free(client->ops[i].missed);
    }
    for (uint32_t t = 0; client->tables != NULL && t < client->config.tables_max; t++) {
        weft_ps_missed_fini(&client->tables[t].missed);
        weft_ps_missed_fini(&client->tables[t].push_missed);
    }
    weft_ps_log_fini(client);
    weft_ps_updates_fini(client);
    weft_ps_known_fini(client);
    weft_ps_via_fini(client);
    weft_ps_hots_fini(client);
    free(client->ends);
    free(client->tables);
    free(client->links);
    free(client->ops);
    free(client->parts);
    free(client->sort_start);
    free(client->sort_first);
    free(client->sort_critical);
    free(client->sort_cold);
    free(client->slice);
    free(client->unpacked);
    free(client->critical);
    free(client);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void peer_down(struct weft_ps_client *client, const struct weft_msg_event *event,
                      uint64_t now_ns)
{
    for (uint32_t s = 0; s < client->config.shards; s++) {
        struct ps_shard_end *end = &client->ends[s];
        bool gone_before = end->down || (end->away && !end->connecting) || end->park == PARK_PARKED;
        if (gone_before || end->peer != event->peer) {
            continue;
        }
        const bool waits = weft_ps_client_waits(client, s, event->down);
        if (weft_ps_park_down(client, s, event->down)) {
            continue;
        }
        if (waits) {
            weft_ps_shard_away(client, s, now_ns);
        } else {
            weft_ps_shard_down(client, s);
        }
    }
}

static void peer_up(struct weft_ps_client *client, const struct weft_msg_event *event,
                    uint64_t now_ns)
{
    for (uint32_t s = 0; s < client->config.shards; s++) {
        struct ps_shard_end *end = &client->ends[s];
        bool gone = end->down || (end->away && !end->connecting) || end->park == PARK_PARKED;
        if (gone || end->peer != event->peer) {
            continue;
        }
        if (end->connecting && client->config.reconnect_ns == 0 &&
            event->incarnation != end->incarnation) {
            weft_ps_shard_down(client, s); /* the process died while its connection was parked */
            end->park_close = true;
            continue;
        }
        end->up_ns = end->direct_ns = now_ns;
        end->incarnation = event->incarnation;
        if (end->connecting) {
            weft_ps_shard_back(client, s);
        }
    }
}

void weft_ps_client_event(struct weft_ps_client *client, const struct weft_msg_event *event,
                          uint64_t now_ns)
{
    client->now_ns = now_ns;
    bool of_peer = event->type == WEFT_EVENT_PEER_DOWN || event->type == WEFT_EVENT_PEER_UP;
    if (of_peer && weft_ps_via_peer(client, event, now_ns)) {
        return;
    }
    if (event->type == WEFT_EVENT_PEER_DOWN) {
        peer_down(client, event, now_ns);
        return;
    }
    if (event->type == WEFT_EVENT_PEER_UP) {
        peer_up(client, event, now_ns);
        return;
    }
    if (!(event->user & WEFT_PS_USER)) {
        return;
    }
    uint32_t index = (uint32_t)event->user;
    if (event->user & WEFT_PS_USER_DURABLE) {
        weft_ps_durable_event(client, event);
    } else if (event->user & WEFT_PS_USER_APPLIED) {
        weft_ps_applied_event(client, event);
    } else if (event->user & WEFT_PS_USER_HOT) {
        weft_ps_hot_event(client, event);
    } else if (event->user & WEFT_PS_USER_VIA) {
        weft_ps_via_table_event(client, event);
    } else if (event->user & WEFT_PS_USER_CLOCK) {
        weft_ps_clock_sent(client, index, event);
    } else if (event->type == WEFT_EVENT_SENT) {
        weft_ps_part_sent(client, index, event);
    } else if (event->type == WEFT_EVENT_RECEIVED) {
        weft_ps_part_reply(client, index, event);
    }
}

static void shards_send(struct weft_ps_client *client, uint64_t now_ns)
{
    for (uint32_t s = 0; s < client->config.shards; s++) {
        if (!client->ends[s].down && !client->ends[s].away) {
            weft_ps_durable_expect(client, s);
            weft_ps_shard_send(client, s, now_ns);
        }
    }
}

void weft_ps_client_progress(struct weft_ps_client *client, uint64_t now_ns)
{
    client->round++;
    weft_ps_shards_overdue(client, now_ns);
    weft_ps_via_progress(client, now_ns);
    weft_ps_hot_progress(client, now_ns);
    if (now_ns >= client->deadline_ns) {
        weft_ps_deadlines(client, now_ns);
    }
    shards_send(client, now_ns);
    if (client->updates != NULL && weft_ps_updates_completed(client)) {
        client->round++; /* parts blocked in this round may be sent in the next */
        shards_send(client, now_ns);
        (void)weft_ps_updates_completed(client);
    }
    if (client->clocks_open > 0) {
        uint32_t links = client->config.tables_max * client->config.shards;
        for (uint32_t i = 0; i < links; i++) {
            weft_ps_clock_send(client, i, now_ns);
        }
    }
    weft_ps_parks_progress(client, now_ns);
}

/* ---- questions ------------------------------------------------------------------------------- */

uint32_t weft_ps_rpc_id(struct weft_ps_client *client, uint32_t shard)
{
    uint32_t *id = &client->ends[shard].rpc_id;
    *id = *id == UINT32_MAX ? 1 : *id + 1;
    return *id;
}

bool weft_ps_client_busy(const struct weft_ps_client *client)
{
    return client->ops_active > 0 || client->clocks_open > 0 || client->resent_open > 0 ||
           client->applied_count > 0;
}

const struct weft_ps_client_counters *weft_ps_client_counters(const struct weft_ps_client *client)
{
    return &client->counters;
}

const struct weft_ps_latencies *weft_ps_client_push_latencies(const struct weft_ps_client *client)
{
    return &client->push_latencies;
}

const struct weft_ps_latencies *weft_ps_client_pull_latencies(const struct weft_ps_client *client)
{
    return &client->pull_latencies;
}

void weft_ps_client_latencies_clear(struct weft_ps_client *client)
{
    memset(&client->push_latencies, 0, sizeof(client->push_latencies));
    memset(&client->pull_latencies, 0, sizeof(client->pull_latencies));
}
