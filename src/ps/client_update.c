/* Updates of a job with a transfer scheduler, at the worker: collecting pushes, requesting grants,
 * sending or dropping (ps/update.h).
 *
 * A push joins the update of its clock when it is queued, and stays in its shard's queue until the
 * update is granted. So pushes without a grant use none of the unacknowledged messages that the
 * transport allows. A dropped push is voided as at a deadline (client_deadline.c): its head alone
 * closes its number. A granted push is passed to the transport as a held message with the grant's
 * pace; it can still be withdrawn before its first byte.
 *
 * An update's slot is freed when its last event was polled. A push without a slot is sent at once.
 */
#include "ps/client_internal.h"
#include "ps/update.h"

#include "base/assert.h"
#include "ps/aggregate.h"

#include <math.h>
#include <stdlib.h>

enum update_state {
    UPDATE_FREE,
    UPDATE_OPEN,      /* collects the pushes of its clock */
    UPDATE_REQUESTED, /* complete; waits for grants; skipped by small updates */
    UPDATE_DIRECT,    /* pushes without a grant are sent at rate_bps */
    UPDATE_DROPPED,
};

struct ps_update_end {
    struct weft_ps_update_part part;
    uint32_t open;   /* pushes not closed by the transport */
    uint32_t at_hop; /* pushes received by the aggregator */
    uint32_t sum;    /* with a hop: encoded by weft_aggregate_sum_pack; 0 = none */
    bool granted;
    bool delivered_due; /* the DELIVERED event is due */
    struct weft_msg_pace pace;
    uint64_t begun_ns;
    uint64_t ended_ns;
};

struct ps_update {
    enum update_state state;
    bool small; /* shorter than update_bytes_min: needs no grant */
    bool too_long; /* a push has too many rows for a sum */
    bool request_due, over_due, late;
    uint64_t number;
    uint64_t bytes;
    double squares;
    uint32_t clock;
    uint32_t hop;               /* index of the granted aggregator plus 1; 0 = none */
    uint32_t undone;            /* pushes not done */
    struct ps_update_end *ends; /* (shards,) */
    uint32_t *clocks;           /* (tables_max,): clock of its pushes; 0 = none */
};

struct ps_updates {
    struct ps_update of[WEFT_PS_UPDATES_MAX];
    struct ps_update *open;
    bool completed; /* since the last weft_ps_updates_completed */
    bool too_long;  /* of the last complete update that is not small */
    uint64_t number;
    uint32_t *counts; /* (shards,): number of updates in the last reply */
    bool *based;    /* (shards,): a reply has arrived */
    struct ps_update_end *ends;
    uint32_t *clocks;
};

weft_status weft_ps_updates_init(struct weft_ps_client *client)
{
    const struct weft_ps_client_config *config = &client->config;
    struct ps_updates *u = client->updates = calloc(1, sizeof(*u));
    if (u == NULL) {
        return WEFT_NOMEM;
    }
    u->counts = calloc(config->shards, sizeof(*u->counts));
    u->based = calloc(config->shards, sizeof(*u->based));
    u->ends = calloc((size_t)config->shards * WEFT_PS_UPDATES_MAX, sizeof(*u->ends));
    u->clocks = calloc((size_t)config->tables_max * WEFT_PS_UPDATES_MAX, sizeof(*u->clocks));
    if (u->counts == NULL || u->based == NULL || u->ends == NULL || u->clocks == NULL) {
        return WEFT_NOMEM;
    }
    for (size_t i = 0; i < WEFT_PS_UPDATES_MAX; i++) {
        u->of[i].ends = u->ends + i * config->shards;
        u->of[i].clocks = u->clocks + i * config->tables_max;
    }
    return WEFT_OK;
}

void weft_ps_updates_fini(struct weft_ps_client *client)
{
    if (client->updates != NULL) {
        free(client->updates->counts);
        free(client->updates->based);
        free(client->updates->ends);
        free(client->updates->clocks);
    }
    free(client->updates);
}

static struct ps_update *find(const struct weft_ps_client *client, uint64_t number)
{
    for (size_t i = 0; number != 0 && client->updates != NULL && i < WEFT_PS_UPDATES_MAX; i++) {
        struct ps_update *u = &client->updates->of[i];
        if (u->state != UPDATE_FREE && u->number == number) {
            return u;
        }
    }
    return NULL;
}

/* All parts of an update that are queued or in flight. Rarely called, so a scan of all parts is
 * acceptable. */
#define FOR_EACH_PART(client, u, part)                                                             \
    for (struct ps_part *part = (client)->parts; part < (client)->parts + (client)->parts_total;   \
         part++)                                                                                   \
        if (part->update == (u)->number &&                                                         \
            (part->state == PART_QUEUED || part->state == PART_FLYING))

/* ---- collecting ------------------------------------------------------------------------------ */

static void complete(struct weft_ps_client *client, struct ps_update *u)
{
    client->updates->open = NULL;
    client->updates->completed = true;
    if (u->undone == 0) {
        u->state = UPDATE_FREE; /* all its pushes have failed already */
        weft_ps_read_pushed(client, u->clock);
        return;
    }
    u->small = u->bytes < client->config.update_bytes_min;
    u->state = u->small ? UPDATE_DIRECT : UPDATE_REQUESTED;
    u->request_due = !u->small;
    client->updates->too_long = u->small ? client->updates->too_long : u->too_long;
    client->counters.updates++;
    client->counters.updates_asked += u->request_due;
}

bool weft_ps_update_is_open(const struct weft_ps_client *client)
{
    return client->updates != NULL && client->updates->open != NULL;
}

void weft_ps_update_end(struct weft_ps_client *client, uint64_t now_ns)
{
    if (weft_ps_update_is_open(client)) {
        complete(client, client->updates->open);
        weft_ps_client_progress(client, now_ns);
    }
}

bool weft_ps_update_waited_for(struct weft_ps_client *client, uint16_t table)
{
    struct ps_update *u = client->updates == NULL ? NULL : client->updates->open;
    bool waited_for = u != NULL && u->clocks[table] != 0;
    if (waited_for) {
        complete(client, u);
    }
    return waited_for;
}

bool weft_ps_updates_completed(struct weft_ps_client *client)
{
    bool completed = client->updates->completed;
    client->updates->completed = false;
    return completed;
}

void weft_ps_update_clocked(struct weft_ps_client *client)
{
    const struct ps_update *u = client->updates == NULL ? NULL : client->updates->open;
    if (u == NULL) {
        return;
    }
    for (uint32_t t = 0; t < client->config.tables_max; t++) {
        if (u->clocks[t] > client->tables[t].clock) {
            return;
        }
    }
    complete(client, client->updates->open);
}

static struct ps_update *begin(struct weft_ps_client *client)
{
    struct ps_updates *all = client->updates;
    for (size_t i = 0; i < WEFT_PS_UPDATES_MAX; i++) {
        struct ps_update *u = &all->of[i];
        if (u->state == UPDATE_FREE) {
            struct ps_update_end *ends = u->ends;
            uint32_t *clocks = u->clocks;
            memset(ends, 0, client->config.shards * sizeof(*ends));
            memset(clocks, 0, client->config.tables_max * sizeof(*clocks));
            *u = (struct ps_update){
                .state = UPDATE_OPEN, .number = ++all->number, .ends = ends, .clocks = clocks};
            all->open = u;
            return u;
        }
    }
    client->counters.updates_unplaced++;
    return NULL;
}

/* The update with pushes of this table and clock, else the open one. */
static struct ps_update *update_for(struct weft_ps_client *client, const struct ps_part *part)
{
    struct ps_updates *all = client->updates;
    for (size_t i = 0; i < WEFT_PS_UPDATES_MAX; i++) {
        struct ps_update *u = &all->of[i];
        if (u->state != UPDATE_FREE && !u->over_due && u->clocks[part->table] == part->clock) {
            return u;
        }
    }
    if (all->open != NULL && all->open->clocks[part->table] != 0) {
        complete(client, all->open); /* the worker has started another clock */
    }
    return all->open != NULL ? all->open : begin(client);
}

static double part_squares(struct weft_ps_client *client, const struct ps_part *part)
{
    struct ps_op *op = part->op != WEFT_PS_NONE ? &client->ops[part->op] : NULL;
    if (op != NULL && op->has_norm) { /* the first part adds the whole norm */
        double squares = op->squares;
        op->squares = 0;
        return squares;
    }
    const struct weft_table_spec *spec = &client->tables[part->table].spec;
    double sum = 0;
    for (uint32_t r = 0; r < part->rows; r++) {
        for (uint32_t b = 0; b < weft_table_blocks(spec); b++) {
            size_t at;
            uint32_t used = ps_list_used(&part->list, spec, ps_part_row(part, r), b, &at);
            for (uint32_t i = 0; i < used; i++) {
                sum += (double)part->list.values[at + i] * part->list.values[at + i];
            }
        }
    }
    return sum;
}

void weft_ps_update_join(struct weft_ps_client *client, struct ps_part *part)
{
    const struct ps_updates *all = client->updates;
    part->base = all->based[part->shard] ? all->counts[part->shard] : WEFT_RPC_BASE_NONE;
    if ((part->base & WEFT_RPC_BASE_MASK) == WEFT_RPC_BASE_NONE && all->based[part->shard]) {
        part->base--; /* one value of 2^24 is reserved for "none" */
    }
    struct ps_update *u = update_for(client, part);
    if (u == NULL) {
        return;
    }
    struct ps_update_end *end = &u->ends[part->shard];
    uint64_t bytes = (uint64_t)part->request_elems * part->request_elem_bytes;
    part->update = u->number;
    part->update_open = true;
    u->clocks[part->table] = part->clock;
    u->clock = part->clock > u->clock ? part->clock : u->clock;
    u->bytes += bytes;
    u->too_long |= weft_ps_via_too_long(client, part);
    u->squares += part_squares(client, part);
    u->undone++;
    end->part.bytes += bytes;
    end->part.pushes++;
    end->part.based = all->based[part->shard];
    end->part.base = all->counts[part->shard];
    end->open++;
    weft_ps_read_pushes(client, part->clock);
    if (u->state == UPDATE_DROPPED) {
        weft_ps_update_void(client, part);
    }
}

void weft_ps_update_set_count(struct weft_ps_client *client, uint32_t shard, uint32_t count)
{
    struct ps_updates *all = client->updates;
    /* Replies may be reordered; a restored shard counts from 0. */
    all->counts[shard] = count;
    all->based[shard] = true;
}

/* ---- going ----------------------------------------------------------------------------------- */

/* CLOCK of each table waits until all pushes of the update are closed. Otherwise a shard that knows
 * only one table's pushes of the update would close it at that table's CLOCK. */
bool weft_ps_update_keeps_clock(const struct weft_ps_client *client, uint16_t table, uint32_t shard,
                                uint32_t clock)
{
    for (size_t i = 0; i < WEFT_PS_UPDATES_MAX; i++) {
        const struct ps_update *u = &client->updates->of[i];
        if (u->state != UPDATE_FREE && u->clocks[table] == clock && u->ends[shard].open > 0) {
            return true;
        }
    }
    return false;
}

bool weft_ps_update_of(const struct weft_ps_client *client, uint32_t clock)
{
    for (size_t i = 0; i < WEFT_PS_UPDATES_MAX; i++) {
        const struct ps_update *u = &client->updates->of[i];
        if (u->state != UPDATE_FREE && !u->over_due && u->clock >= clock) {
            return true;
        }
    }
    return false;
}

bool weft_ps_updates_too_long(const struct weft_ps_client *client)
{
    return client->updates != NULL && client->updates->too_long;
}

bool weft_ps_updates_ungranted(const struct weft_ps_client *client)
{
    for (size_t i = 0; i < WEFT_PS_UPDATES_MAX; i++) {
        const struct ps_update *u = &client->updates->of[i];
        if (u->state == UPDATE_DIRECT && u->undone > 0) {
            return true;
        }
    }
    return false;
}

bool weft_ps_update_may_go(const struct weft_ps_client *client, const struct ps_part *part)
{
    const struct ps_update *u = find(client, part->update);
    return u == NULL || ps_part_head_only(part) || u->state == UPDATE_DIRECT ||
           u->state == UPDATE_DROPPED || u->ends[part->shard].granted || part->resent;
}

const struct weft_msg_pace *weft_ps_update_pace(const struct weft_ps_client *client,
                                                const struct ps_part *part)
{
    const struct ps_update *u = find(client, part->update);
    bool is_paced = u != NULL && !ps_part_head_only(part) && u->state != UPDATE_DROPPED &&
                    u->ends[part->shard].granted;
    return is_paced ? &u->ends[part->shard].pace : NULL;
}

void weft_ps_update_sending(struct weft_ps_client *client, const struct ps_part *part,
                            uint64_t now_ns)
{
    struct ps_update *u = find(client, part->update);
    if (u != NULL && u->ends[part->shard].begun_ns == 0) {
        struct ps_update_end *end = &u->ends[part->shard];
        end->begun_ns = weft_max_u64(now_ns, end->granted ? end->pace.start_ns : 0);
    }
}

uint32_t weft_ps_update_hop(const struct weft_ps_client *client, const struct ps_part *part)
{
    const struct ps_update *u = find(client, part->update);
    return u != NULL && u->state == UPDATE_REQUESTED ? u->hop : 0;
}

uint32_t weft_ps_update_sum(const struct weft_ps_client *client, const struct ps_part *part)
{
    const struct ps_update *u = find(client, part->update);
    return u != NULL && u->hop > 0 ? u->ends[part->shard].sum : 0;
}

void weft_ps_update_at_hop(struct weft_ps_client *client, const struct ps_part *part)
{
    struct ps_update *u = find(client, part->update);
    if (u == NULL) {
        return;
    }
    struct ps_update_end *end = &u->ends[part->shard];
    if (++end->at_hop == end->part.pushes && end->open > 0) {
        end->delivered_due = true;
        end->ended_ns = client->now_ns;
    }
}

void weft_ps_update_closed(struct weft_ps_client *client, struct ps_part *part)
{
    struct ps_update *u = find(client, part->update);
    part->update_open = false;
    if (u == NULL) {
        return;
    }
    struct ps_update_end *end = &u->ends[part->shard];
    end->open--;
    if (end->open == 0 && u->state != UPDATE_OPEN && u->state != UPDATE_DROPPED && !u->small) {
        end->delivered_due = true;
        end->ended_ns = client->now_ns;
    }
}

void weft_ps_update_part_done(struct weft_ps_client *client, struct ps_part *part)
{
    struct ps_update *u = find(client, part->update);
    part->update = 0;
    if (u == NULL) {
        return;
    }
    WEFT_ASSERT(u->undone > 0);
    if (--u->undone > 0 || u->state == UPDATE_OPEN) {
        return;
    }
    u->over_due = true;
    weft_ps_read_pushed(client, u->clock);
    if (u->small) { /* the scheduler does not know it */
        u->state = UPDATE_FREE;
    }
}

void weft_ps_update_late(struct weft_ps_client *client, const struct ps_part *part)
{
    struct ps_update *u = find(client, part->update);
    if (u != NULL) {
        u->late = true;
    }
}

static weft_status answerable(struct weft_ps_client *client, uint64_t number,
                              struct ps_update **update_p)
{
    struct ps_update *u = *update_p = find(client, number);
    if (u == NULL || u->over_due) {
        return WEFT_NOTFOUND;
    }
    return u->state == UPDATE_REQUESTED || u->state == UPDATE_DIRECT ? WEFT_OK : WEFT_STATE;
}

/* The pushes of an update to a shard have its rate together. */
static uint8_t group_of(const struct weft_ps_client *client, const struct ps_update *u)
{
    static_assert((int)WEFT_PS_UPDATES_MAX <= (int)WEFT_MSG_PACE_GROUPS);
    return (uint8_t)(1 + (u - client->updates->of));
}

static void pace_again(struct weft_ps_client *client, const struct ps_update *u, uint32_t shard,
                       uint64_t now_ns)
{
    FOR_EACH_PART(client, u, part)
    {
        if (part->shard == shard && part->state == PART_FLYING && part->paced) {
            /* NOTFOUND: the message is closed, or its connection has ended. */
            (void)!client->msgr.ops->pace(client->msgr.self, client->ends[shard].peer, part->seq,
                                          &u->ends[shard].pace, now_ns);
        }
    }
}

weft_status weft_ps_update_by(struct weft_ps_client *client, uint64_t update, uint32_t shard,
                              uint32_t aggregator, uint32_t group, uint32_t members)
{
    struct ps_update *u;
    weft_status status = answerable(client, update, &u);
    if (status != WEFT_OK) {
        return status;
    }
    if (shard >= client->config.shards || aggregator * client->config.shards >= client->via_total ||
        members == 0 || members > WEFT_AGGREGATE_MEMBERS_MAX) {
        return WEFT_INVALID;
    }
    u->hop = aggregator + 1;
    u->ends[shard].sum = weft_aggregate_sum_pack(group, members);
    return WEFT_OK;
}

weft_status weft_ps_update_grant(struct weft_ps_client *client, uint64_t update, uint32_t shard,
                                 const struct weft_msg_pace *pace, uint64_t now_ns)
{
    struct ps_update *u;
    weft_status status = answerable(client, update, &u);
    if (status != WEFT_OK) {
        return status;
    }
    if (shard >= client->config.shards) {
        return WEFT_INVALID;
    }
    struct ps_update_end *end = &u->ends[shard];
    end->granted = true;
    end->pace = *pace;
    end->pace.group = group_of(client, u);
    if (end->begun_ns > now_ns) {
        end->begun_ns = weft_max_u64(now_ns, pace->start_ns);
    }
    pace_again(client, u, shard, now_ns);
    weft_ps_client_progress(client, now_ns);
    return WEFT_OK;
}

weft_status weft_ps_update_direct(struct weft_ps_client *client, uint64_t update, uint64_t rate_bps,
                                  uint64_t now_ns)
{
    struct ps_update *u;
    weft_status status = answerable(client, update, &u);
    if (status != WEFT_OK) {
        return status;
    }
    u->state = UPDATE_DIRECT;
    for (uint32_t s = 0; s < client->config.shards; s++) {
        struct ps_update_end *end = &u->ends[s];
        if (!end->granted) {
            end->granted = rate_bps != 0;
            end->pace = (struct weft_msg_pace){.rate_bps = rate_bps, .group = group_of(client, u)};
        }
    }
    client->counters.updates_direct++;
    weft_ps_client_progress(client, now_ns);
    return WEFT_OK;
}

/* ---- dropping -------------------------------------------------------------------------------- */

void weft_ps_update_void(struct weft_ps_client *client, struct ps_part *part)
{
    weft_ps_push_void(client, part);
    client->counters.deadlines_expired--; /* not caused by a deadline */
    client->counters.pushes_dropped++;
    if (part->op != WEFT_PS_NONE) {
        client->ops[part->op].result.rpcs_dropped++;
    }
}

/* Withdraw the held messages of an update. False: some were already sent. Each withdrawn message
 * returns with SENT and is queued again, even if others could not be withdrawn. */
static bool withdraw_all(struct weft_ps_client *client, const struct ps_update *u, uint64_t now_ns)
{
    FOR_EACH_PART(client, u, part)
    {
        if (part->resent || part->begun || part->message == MESSAGE_LIST || part->request_closed ||
            (part->state == PART_FLYING && !part->paced)) {
            return false;
        }
    }
    bool all = true;
    FOR_EACH_PART(client, u, part)
    {
        if (part->state == PART_FLYING && all) {
            all = client->msgr.ops->withdraw(client->msgr.self, client->ends[part->shard].peer,
                                             part->seq, now_ns) == WEFT_OK;
        }
    }
    return all;
}

weft_status weft_ps_update_drop(struct weft_ps_client *client, uint64_t update, uint64_t now_ns)
{
    struct ps_update *u;
    weft_status status = answerable(client, update, &u);
    if (status != WEFT_OK) {
        return status;
    }
    for (uint32_t s = 0; s < client->config.shards; s++) {
        if (u->ends[s].open < u->ends[s].part.pushes) {
            return WEFT_STATE;
        }
    }
    if (!withdraw_all(client, u, now_ns)) {
        return WEFT_STATE;
    }
    u->state = UPDATE_DROPPED;
    client->counters.updates_dropped++;
    FOR_EACH_PART(client, u, part)
    {
        if (part->state == PART_QUEUED && !ps_part_head_only(part)) {
            weft_ps_update_void(client, part);
        }
    }
    weft_ps_client_progress(client, now_ns);
    return WEFT_OK;
}

void weft_ps_update_withdrawn(struct weft_ps_client *client, uint32_t index)
{
    struct ps_part *part = &client->parts[index];
    const struct ps_update *u = find(client, part->update);
    struct ps_link *link = ps_link_of(client, part->table, part->shard);
    link->pushes_flying--;
    link->flying_xor ^= part->rpc_id;
    part->in_air = part->paced = false;
    ps_part_to(part, PART_QUEUED);
    if (u != NULL && u->state == UPDATE_DROPPED) {
        weft_ps_update_void(client, part);
    }
    weft_ps_part_enqueue(client, index);
}

/* ---- events ---------------------------------------------------------------------------------- */

static bool poll_one(struct weft_ps_client *client, struct ps_update *u,
                     struct weft_ps_update_event *event_p)
{
    struct weft_ps_update_event event = {.update = u->number,
                                         .clock = u->clock,
                                         .bytes = u->bytes,
                                         .norm = sqrt(u->squares),
                                         .dropped = u->state == UPDATE_DROPPED,
                                         .late = u->late};
    for (uint32_t s = 0; s < client->config.shards; s++) {
        event.shards += u->ends[s].part.pushes > 0;
    }
    if (u->request_due) {
        u->request_due = false;
        event.type = WEFT_PS_UPDATE_ASK;
        *event_p = event;
        return true;
    }
    for (uint32_t s = 0; s < client->config.shards; s++) {
        struct ps_update_end *end = &u->ends[s];
        if (end->delivered_due && (end->open == 0 || end->at_hop == end->part.pushes)) {
            end->delivered_due = false;
            event.type = WEFT_PS_UPDATE_DELIVERED;
            event.shard = s;
            event.bytes = end->part.bytes;
            event.begun_ns = end->begun_ns;
            event.ended_ns = end->ended_ns;
            *event_p = event;
            return true;
        }
    }
    if (u->over_due) {
        u->over_due = false;
        u->state = UPDATE_FREE;
        event.type = WEFT_PS_UPDATE_OVER;
        *event_p = event;
        return true;
    }
    return false;
}

bool weft_ps_update_poll(struct weft_ps_client *client, struct weft_ps_update_event *event_p)
{
    for (size_t i = 0; client->updates != NULL && i < WEFT_PS_UPDATES_MAX; i++) {
        struct ps_update *u = &client->updates->of[i];
        if (u->state != UPDATE_FREE && u->state != UPDATE_OPEN && poll_one(client, u, event_p)) {
            return true;
        }
    }
    return false;
}

weft_status weft_ps_update_part(const struct weft_ps_client *client, uint64_t update,
                                uint32_t shard, struct weft_ps_update_part *part_p)
{
    const struct ps_update *u = find(client, update);
    if (u == NULL) {
        return WEFT_NOTFOUND;
    }
    if (shard >= client->config.shards) {
        return WEFT_INVALID;
    }
    *part_p = u->ends[shard].part;
    return WEFT_OK;
}
