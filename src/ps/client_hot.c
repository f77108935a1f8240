/* The hot sets of tables, fetched from their shards. They decide which rows of an operation are
 * sent through an aggregator.
 *
 * A push or pull is split into hot and cold rows (client_split.c). Hot rows may be sent through the
 * aggregator; cold rows are sent to the shard. Each part is a separate request with its own number.
 * Without a hot set, or without a connected aggregator, nothing is split. A wrong set costs time,
 * but never changes a sum.
 *
 * The client requests a set when rows are pushed and the last reply is older than the epoch length
 * that the shard reported. One request at a time is in flight, over all tables and shards.
 *
 * Source: docs/PROTOCOL.md section 7, "Hot rows". */
#include "ps/client_internal.h"

#include "base/bits.h"
#include "ps/aggregate.h"
#include "ps/hot_rows.h"

#include <stdlib.h>

/* Pause after a malformed reply. */
static const uint64_t retry_pause_ns = WEFT_NS_PER_S;

struct ps_hot_link {
    struct weft_hot_set set;
    uint64_t ask_ns; /* not before; WEFT_NEVER: its set is too large */
};

struct ps_hots {
    struct ps_hot_link *links; /* (tables_max, shards) */
    uint64_t *wanted;          /* a bit for each link: to be asked for */
    uint64_t *unpacked;
    bool asked;    /* memory is posted for the reply */
    bool sending;  /* the transport has `request` */
    bool open;     /* the request counts among the shard's pulls_open */
    uint32_t link; /* link of the last request */
    uint32_t rpc_id;
    weft_expect_id expect;
    uint8_t request[WEFT_RPC_REQUEST_BYTES];
    uint8_t *reply;
    size_t reply_bytes;
};

/* ---- life ------------------------------------------------------------------------------------ */

weft_status weft_ps_hots_init(struct weft_ps_client *client)
{
    const struct weft_ps_client_config *config = &client->config;
    const size_t links = (size_t)config->tables_max * config->shards;
    struct ps_hots *hots = client->hots = calloc(1, sizeof(*hots));
    if (hots == NULL) {
        return WEFT_NOMEM;
    }
    hots->reply_bytes = weft_hot_reply_bytes_max(config->hot_rows);
    hots->reply = malloc(hots->reply_bytes);
    hots->unpacked = calloc(config->hot_rows, sizeof(*hots->unpacked));
    hots->links = calloc(links, sizeof(*hots->links));
    hots->wanted = calloc(WEFT_BITS_WORDS(links), sizeof(*hots->wanted));
    if (hots->reply == NULL || hots->unpacked == NULL || hots->links == NULL ||
        hots->wanted == NULL) {
        return WEFT_NOMEM;
    }
    weft_status status = WEFT_OK;
    for (size_t i = 0; status == WEFT_OK && i < links; i++) {
        status = weft_hot_set_init(&hots->links[i].set, config->hot_rows, hots->unpacked,
                                   config->missed_key);
    }
    return status;
}

void weft_ps_hots_fini(struct weft_ps_client *client)
{
    struct ps_hots *hots = client->hots;
    const size_t links = (size_t)client->config.tables_max * client->config.shards;
    if (hots == NULL) {
        return;
    }
    for (size_t i = 0; hots->links != NULL && i < links; i++) {
        weft_hot_set_fini(&hots->links[i].set);
    }
    free(hots->links);
    free(hots->wanted);
    free(hots->unpacked);
    free(hots->reply);
    free(hots);
}

/* ---- shard or aggregator --------------------------------------------------------------------- */

static struct ps_hot_link *hot_link(const struct weft_ps_client *client, uint16_t table,
                                    uint32_t shard)
{
    return &client->hots->links[(size_t)table * client->config.shards + shard];
}

static bool splits_at(const struct weft_ps_client *client, uint16_t table, uint32_t shard,
                      bool is_pull)
{
    return hot_link(client, table, shard)->set.epoch > 0 &&
           weft_ps_via_open(client, table, shard) &&
           (!is_pull || weft_ps_via_has_pulls(client, table, shard));
}

bool weft_ps_hot_splits(const struct weft_ps_client *client, uint16_t table, bool is_pull)
{
    bool any = false;
    for (uint32_t s = 0; client->hots != NULL && !any && s < client->config.shards; s++) {
        any = splits_at(client, table, s, is_pull);
    }
    return any;
}

bool weft_ps_hot_is_cold(const struct weft_ps_client *client, uint16_t table, uint32_t shard,
                         uint64_t id)
{
    const struct ps_hot_link *link = hot_link(client, table, shard);
    return link->set.epoch > 0 && !weft_hot_set_has(&link->set, id);
}

/* ---- asking ---------------------------------------------------------------------------------- */

void weft_ps_hot_want(struct weft_ps_client *client, uint16_t table, uint64_t now_ns)
{
    struct ps_hots *hots = client->hots;
    for (uint32_t s = 0; hots != NULL && s < client->config.shards; s++) {
        const struct ps_hot_link *link = hot_link(client, table, s);
        if (now_ns >= link->ask_ns && (ps_link_of(client, table, s)->can & WEFT_RPC_CAN_HOT) != 0) {
            weft_bits_set(hots->wanted, (size_t)(link - hots->links));
        }
    }
}

static bool may_ask(const struct weft_ps_client *client, uint32_t index)
{
    const uint16_t table = (uint16_t)(index / client->config.shards);
    const uint32_t shard = index % client->config.shards;
    const struct ps_shard_end *end = &client->ends[shard];
    const struct ps_link *link = &client->links[index];
    return link->opened && !link->gone && !link->resuming && (link->can & WEFT_RPC_CAN_HOT) != 0 &&
           !end->down && !end->away && end->pulls_open < WEFT_MSGS_MAX / 2 &&
           weft_ps_via_open(client, table, shard);
}

static void ask(struct weft_ps_client *client, uint32_t index, uint64_t now_ns)
{
    struct ps_hots *hots = client->hots;
    const uint16_t table = (uint16_t)(index / client->config.shards);
    const uint32_t shard = index % client->config.shards;
    struct ps_shard_end *end = &client->ends[shard];
    const uint64_t user = WEFT_PS_USER | WEFT_PS_USER_HOT | index;
    const uint32_t elem_bytes = WEFT_RPC_ID_WIDE;
    const struct weft_rpc_request request = {
        .rpc_id = weft_ps_rpc_id(client, shard),
        .worker = client->config.worker,
        .t0_ns = ps_clock_ns(client),
        .after_seq = client->config.hot_rows,
        .need_clock = hots->links[index].set.epoch,
        .flags = WEFT_RPC_HOT,
    };
    const struct weft_msg_expect expect = {
        .peer = end->peer,
        .sink = WEFT_SINK_COPY,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){
            .op = WEFT_RPC_PULL | WEFT_RPC_REPLY_FLAG, .table = table, .number = request.rpc_id}),
        .tag_mask = UINT64_MAX,
        .memory = hots->reply,
        .memory_bytes = hots->reply_bytes,
        .count = 1,
        .timeout_ns = WEFT_NEVER,
        .user = user,
    };
    const struct weft_msg_send send = {
        .peer = end->peer,
        .base = hots->request,
        .total = WEFT_RPC_REQUEST_BYTES / elem_bytes,
        .elem_bytes = (uint16_t)elem_bytes,
        .priority = WEFT_RPC_PRIORITY,
        .critical = 1,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){.op = WEFT_RPC_PULL, .table = table}),
        .deadline_ns = WEFT_NEVER,
        .user = user,
    };
    uint64_t seq;
    if (client->msgr.ops->expect(client->msgr.self, &expect, &hots->expect) != WEFT_OK) {
        return;
    }
    weft_rpc_request_pack(&request, hots->request);
    if (client->msgr.ops->send(client->msgr.self, &send, now_ns, &seq) != WEFT_OK) {
        (void)!client->msgr.ops->cancel(client->msgr.self, hots->expect);
        return; /* retried by the next progress, or PEER_DOWN follows */
    }
    hots->asked = hots->sending = hots->open = true;
    hots->link = index;
    hots->rpc_id = request.rpc_id;
    weft_bits_clear(hots->wanted, index);
    end->pulls_open++;
    end->pulls_asked++;
    client->counters.hot_asked++;
}

/* Ask for the first wanted link in [from, to) that may be asked for. */
static void ask_first(struct weft_ps_client *client, size_t from, size_t to, uint64_t now_ns)
{
    const struct ps_hots *hots = client->hots;
    for (size_t i = weft_bits_next_one(hots->wanted, to, from); i < to && !hots->asked;
         i = weft_bits_next_one(hots->wanted, to, i + 1)) {
        if (may_ask(client, (uint32_t)i)) {
            ask(client, (uint32_t)i, now_ns);
        }
    }
}

void weft_ps_hot_progress(struct weft_ps_client *client, uint64_t now_ns)
{
    const struct ps_hots *hots = client->hots;
    if (hots == NULL || hots->asked || hots->sending) {
        return;
    }
    const size_t last = hots->link; /* the one behind it is first */
    ask_first(client, last + 1, (size_t)client->config.tables_max * client->config.shards, now_ns);
    ask_first(client, 0, last + 1, now_ns);
}

/* ---- replies --------------------------------------------------------------------------------- */

static void take(struct weft_ps_client *client, struct ps_hot_link *link,
                 const struct weft_msg_event *event)
{
    const struct ps_hots *hots = client->hots;
    const uint64_t now_ns = ps_clock_ns(client);
    struct weft_rpc_reply reply;
    if (event->outcome != WEFT_MSG_COMPLETE) {
        return; /* PEER_DOWN follows */
    }
    bool good = (size_t)event->total * event->elem_bytes >= WEFT_RPC_REPLY_BYTES &&
                weft_rpc_reply_unpack(hots->reply, WEFT_RPC_REPLY_BYTES, &reply) == WEFT_OK &&
                reply.rpc_id == hots->rpc_id &&
                (reply.status == WEFT_RPC_OK
                     ? event->elem_bytes == 1 && event->total >= WEFT_RPC_REPLY_BYTES
                     : event->elem_bytes == WEFT_RPC_REPLY_BYTES && event->total == 1);
    uint32_t period_ms = 0;
    bool changed = false;
    link->ask_ns = weft_time_add(now_ns, retry_pause_ns);
    if (good && reply.status != WEFT_RPC_OK) { /* whole pushes are sent through the aggregator */
        weft_hot_set_clear(&link->set);
        link->ask_ns = WEFT_NEVER;
        client->counters.hot_refused++;
        return;
    }
    good = good &&
           weft_hot_set_take(&link->set, reply.rows, hots->reply + WEFT_RPC_REPLY_BYTES,
                             event->total - WEFT_RPC_REPLY_BYTES, &period_ms, &changed) == WEFT_OK;
    if (!good) {
        client->counters.replies_malformed++;
        return;
    }
    link->ask_ns = weft_time_add(now_ns, period_ms * WEFT_NS_PER_MS);
    client->counters.hot_epochs += changed;
}

void weft_ps_hot_event(struct weft_ps_client *client, const struct weft_msg_event *event)
{
    struct ps_hots *hots = client->hots;
    const uint32_t index = (uint32_t)event->user;
    struct ps_shard_end *end = &client->ends[index % client->config.shards];
    if (event->type == WEFT_EVENT_SENT) {
        hots->sending = false;
        end->pulls_open -= hots->open;
        hots->open = false;
    } else if (event->type == WEFT_EVENT_RECEIVED && hots->asked) {
        hots->asked = false;
        end->pulls_asked--;
        take(client, &hots->links[index], event);
    }
}

void weft_ps_hot_away(struct weft_ps_client *client, uint32_t shard)
{
    struct ps_hots *hots = client->hots;
    if (hots == NULL) {
        return;
    }
    if (hots->link % client->config.shards == shard) {
        if (hots->asked) {
            /* NOTFOUND: the transport has dropped it with the peer. */
            (void)!client->msgr.ops->cancel(client->msgr.self, hots->expect);
        }
        hots->asked = hots->open = false; /* the shard's end starts counting again */
    }
    for (uint32_t t = 0; t < client->config.tables_max; t++) {
        struct ps_hot_link *link = hot_link(client, (uint16_t)t, shard);
        weft_hot_set_clear(&link->set); /* a new process starts its epochs again */
        link->ask_ns = 0;
    }
}

uint32_t weft_ps_client_hot_epoch(const struct weft_ps_client *client, uint16_t table,
                                  uint32_t shard)
{
    return client->hots == NULL ? 0 : hot_link(client, table, shard)->set.epoch;
}
