/* Reconnection to a shard: to the same process, or to a new process that was restored from a
 * checkpoint, or that has no state.
 *
 * While the shard is disconnected, its parts wait in its queue. When the connection is up, each
 * table is opened again with RESUME, and both ends report the pushes they have. A push that is
 * unfinished here is resent; it keeps its number if the shard may know that number. A push that is
 * finished here but not closed there is lost, and counted. Numbers that the shard has not seen are
 * reassigned, so that they stay close to those it knows.
 *
 * Source: docs/PROTOCOL.md section 7, "Reconnection".
 */
#include "ps/client_internal.h"

#include "base/assert.h"

/* Pause between connection attempts: doubled each time, minus a random part of up to half, so that
 * the workers of a server do not connect simultaneously. A connection that lasted for the longest
 * pause resets it. A shorter one does not: otherwise workers would reconnect continuously to a
 * server that accepts and closes connections. */
static const uint64_t reconnect_first_ns = 10 * WEFT_NS_PER_MS;
static const uint64_t reconnect_most_ns = WEFT_NS_PER_S;

void weft_ps_resumes_init(struct weft_ps_client *client)
{
    uint32_t links = client->config.tables_max * client->config.shards;
    for (uint32_t i = 0; i < links; i++) {
        client->parts[client->resumes_first + i] = (struct ps_part){
            .kind = WEFT_RPC_TABLE,
            .table = (uint16_t)(i / client->config.shards),
            .shard = i % client->config.shards,
            .op = WEFT_PS_NONE,
            .request = client->links[i].resume_request,
            .request_elems = PS_RESUME_REQUEST_BYTES,
            .request_elem_bytes = 1,
            .reply = client->links[i].resume_reply,
            .reply_bytes = sizeof(client->links[i].resume_reply),
        };
    }
}

/* ---- disconnected ---------------------------------------------------------------------------- */

static void reconnect_plan(struct weft_ps_client *client, struct ps_shard_end *end, uint64_t now_ns)
{
    if (!end->connecting && now_ns - end->up_ns >= reconnect_most_ns) {
        end->reconnect_interval_ns = 0;
        end->retry_ns = now_ns;
        return;
    }
    uint64_t pause_ns = weft_min_u64(
        end->reconnect_interval_ns == 0 ? reconnect_first_ns : 2 * end->reconnect_interval_ns,
        reconnect_most_ns);
    end->reconnect_interval_ns = pause_ns;
    end->retry_ns = now_ns + pause_ns / 2 + weft_prng_below(&client->prng, pause_ns / 2 + 1);
}

void weft_ps_shard_away(struct weft_ps_client *client, uint32_t shard, uint64_t now_ns)
{
    struct ps_shard_end *end = &client->ends[shard];
    bool first = end->reconnect_interval_ns == 0;
    reconnect_plan(client, end, now_ns);
    if (end->connecting) {
        end->connecting = false; /* it was never established: nothing was sent */
        return;
    }
    end->away = true;
    end->session = end->session == UINT32_MAX ? 1 : end->session + 1;
    if (first || end->reconnect_interval_ns == 0) {
        /* A connection that ends at once does not restart the timeout. */
        const uint64_t patience_ns = client->config.reconnect_ns;
        /* 0: it was parked, and the first failed connection is final. */
        end->away_until_ns = patience_ns > 0 ? weft_time_add(now_ns, patience_ns) : WEFT_NEVER;
    }
    client->counters.shard_disconnects += !end->was_parked;
    weft_ps_applied_away(client, shard);
    for (uint32_t i = 0; i < client->parts_total; i++) {
        const struct ps_part *part = &client->parts[i];
        if (part->shard == shard && (part->state == PART_QUEUED || part->state == PART_FLYING)) {
            weft_ps_part_wait(client, i);
        }
    }
    weft_ps_via_clocks_void(client, shard);
    weft_ps_hot_away(client, shard);
    weft_ps_durable_cancel(client, shard);
    weft_ps_known_drop(client, UINT32_MAX, shard, 0);
    end->list_part = WEFT_PS_NONE;
    end->pulls_open = end->pulls_asked = end->pulls_ahead = 0;
    end->begun_open = end->resuming = 0;
    for (uint32_t t = 0; t < client->config.tables_max; t++) {
        struct ps_link *link = ps_link_of(client, (uint16_t)t, shard);
        link->pushes_flying = link->flying_xor = 0;
        link->resuming = link->opened && !link->gone;
        link->fence_due = false;
        link->durable_early = 0;
        end->resuming += link->resuming;
    }
}

void weft_ps_shard_down(struct weft_ps_client *client, uint32_t shard)
{
    struct ps_shard_end *end = &client->ends[shard];
    end->down = true;
    weft_ps_applied_away(client, shard);
    weft_ps_via_clocks_void(client, shard);
    weft_ps_hot_away(client, shard);
    weft_ps_known_drop(client, UINT32_MAX, shard, 0);
    end->away = end->connecting = false;
    end->queue_head = end->queue_tail = WEFT_PS_NONE;
    for (uint32_t i = 0; i < client->parts_total; i++) {
        const struct ps_part *part = &client->parts[i];
        if (part->shard == shard && (part->state == PART_QUEUED || part->state == PART_FLYING)) {
            weft_ps_part_fail(client, i, WEFT_PEER);
        }
    }
    for (uint32_t t = 0; t < client->config.tables_max; t++) {
        weft_ps_log_sweep(client, (uint16_t)t, shard);
    }
    weft_ps_clocks_count(client);
}

void weft_ps_shards_overdue(struct weft_ps_client *client, uint64_t now_ns)
{
    for (uint32_t s = 0; s < client->config.shards; s++) {
        if (client->ends[s].away && now_ns >= client->ends[s].away_until_ns) {
            weft_ps_shard_down(client, s);
        }
    }
}

bool weft_ps_client_away(const struct weft_ps_client *client, uint32_t shard, uint64_t *until_ns_p)
{
    if (shard >= client->config.shards || !client->ends[shard].away ||
        client->ends[shard].connecting) {
        return false;
    }
    *until_ns_p = client->ends[shard].away_until_ns;
    return true;
}

/* ---- connected again ------------------------------------------------------------------------- */

uint64_t weft_ps_client_reconnect_ns(const struct weft_ps_client *client, uint32_t shard)
{
    return client->ends[shard].retry_ns;
}

static uint32_t next_push(const struct weft_ps_client *client, uint16_t table, uint32_t index)
{
    while (index != WEFT_PS_NONE &&
           (client->parts[index].kind != WEFT_RPC_PUSH || client->parts[index].table != table)) {
        index = client->parts[index].next;
    }
    return index;
}

/* All unfinished pushes of a link are in the queue, in the order of their numbers. */
#define FOR_PUSHES(client, table, shard, i)                                                        \
    for (uint32_t i = next_push(client, table, (client)->ends[shard].queue_head);                  \
         i != WEFT_PS_NONE; i = next_push(client, table, (client)->parts[i].next))

/* The pushes finished here. Pushes more than WEFT_PUSH_WINDOW_SPAN after the oldest unfinished one
 * were never sent, so they are omitted. */
static struct weft_rpc_pushes finished(const struct weft_ps_client *client, uint16_t table,
                                       uint32_t shard, uint64_t number)
{
    struct weft_rpc_pushes pushes = {.newest = number, .closed = {UINT64_MAX, UINT64_MAX}};
    FOR_PUSHES(client, table, shard, i)
    {
        uint64_t unfinished = client->parts[i].number;
        pushes.newest = weft_min_u64(pushes.newest, unfinished + WEFT_RPC_PUSHES_BITS - 1);
        break;
    }
    FOR_PUSHES(client, table, shard, i)
    {
        uint64_t back = pushes.newest - client->parts[i].number;
        if (back < WEFT_RPC_PUSHES_BITS) {
            pushes.closed[back / 64] &= ~(UINT64_C(1) << back % 64);
        }
    }
    return pushes;
}

void weft_ps_resume_queue(struct weft_ps_client *client, uint16_t table, uint32_t shard)
{
    uint32_t link_index = table * client->config.shards + shard;
    struct ps_link *link = &client->links[link_index];
    struct weft_rpc_pushes ours = finished(client, table, shard, link->number);
    weft_ps_log_hold(client, table, shard, &ours);
    uint8_t *body = link->resume_request + WEFT_RPC_REQUEST_BYTES;
    weft_table_spec_pack(&client->tables[table].spec, body);
    weft_rpc_pushes_pack(&ours, body + WEFT_RPC_SPEC_BYTES);
    struct ps_part *part = &client->parts[client->resumes_first + link_index];
    if (part->state != PART_QUEUED) { /* of a connection that broke before the part was sent */
        weft_ps_part_queue(client, client->resumes_first + link_index);
    }
}

weft_status weft_ps_client_reconnect(struct weft_ps_client *client, uint32_t shard, weft_peer peer,
                                     uint64_t now_ns)
{
    (void)now_ns;
    uint64_t until_ns;
    if (!weft_ps_client_away(client, shard, &until_ns)) {
        return WEFT_STATE;
    }
    client->ends[shard].peer = peer;
    client->ends[shard].connecting = true;
    return WEFT_OK;
}

void weft_ps_shard_back(struct weft_ps_client *client, uint32_t shard)
{
    client->ends[shard].away = client->ends[shard].connecting = false;
    for (uint32_t t = 0; t < client->config.tables_max; t++) {
        if (ps_link_of(client, (uint16_t)t, shard)->resuming) {
            weft_ps_resume_queue(client, (uint16_t)t, shard);
        }
    }
}

/* ---- the shard's state ----------------------------------------------------------------------- */

/* Numbers up to theirs->newest that are finished here, not closed there, and not counted yet. */
static uint64_t lost_within(struct ps_link *link, const struct weft_rpc_pushes *theirs,
                            const struct weft_rpc_pushes *ours)
{
    uint64_t newest = weft_min_u64(theirs->newest, link->number), lost = 0;
    uint64_t first =
        theirs->newest < WEFT_RPC_PUSHES_BITS ? 1 : theirs->newest - WEFT_RPC_PUSHES_BITS + 1;
    link->lost.newest = weft_min_u64(link->lost.newest, newest);
    for (uint64_t n = first; n <= newest; n++) {
        if (!weft_rpc_pushes_test(theirs, n) && weft_rpc_pushes_test(ours, n) &&
            !weft_push_window_test(&link->lost, n)) {
            weft_push_window_close(&link->lost, n);
            lost++;
        }
    }
    return lost;
}

/* Reassign the numbers that the shard has not seen. Returns their count. Pushes that it has begun
 * come first. */
static uint64_t renumber(struct weft_ps_client *client, uint16_t table, uint32_t shard,
                         const struct weft_rpc_pushes *theirs)
{
    uint64_t count = 0, newest = theirs->newest;
    FOR_PUSHES(client, table, shard, i)
    {
        struct ps_part *part = &client->parts[i];
        part->number = part->number > newest ? newest + ++count : part->number;
        uint64_t back = newest - part->number;
        part->begun = back < WEFT_RPC_PUSHES_BITS && (theirs->begun[back / 64] >> back % 64 & 1);
        client->ends[shard].begun_open += part->begun;
    }
    return count;
}

/* Recompute the closed numbers from the unfinished pushes. */
static void closed_anew(struct weft_ps_client *client, uint16_t table, uint32_t shard)
{
    struct ps_link *link = ps_link_of(client, table, shard);
    struct weft_rpc_pushes ours = finished(client, table, shard, link->number);
    link->number_closed = link->number;
    link->pushes_open[0] = link->pushes_open[1] = 0;
    FOR_PUSHES(client, table, shard, i)
    {
        const struct ps_part *part = &client->parts[i];
        link->number_closed = weft_min_u64(link->number_closed, part->number - 1);
        weft_ps_push_opened(client, part);
    }
    link->closed = (struct weft_push_window){.newest = link->number_closed};
    for (uint64_t n = link->number_closed + 1; n <= ours.newest; n++) {
        if (weft_rpc_pushes_test(&ours, n)) {
            weft_push_window_close(&link->closed, n);
        }
    }
}

/* The table cannot be resumed: parts that wait for it fail. */
static void link_gone(struct weft_ps_client *client, const struct ps_part *resume,
                      weft_status status, uint16_t rpc_status)
{
    struct ps_link *link = ps_link_of(client, resume->table, resume->shard);
    struct ps_shard_end *end = &client->ends[resume->shard];
    link->gone = true;
    link->gone_status = status;
    link->gone_rpc_status = rpc_status;
    uint32_t next, index = end->queue_head;
    end->queue_head = end->queue_tail = WEFT_PS_NONE;
    for (; index != WEFT_PS_NONE; index = next) {
        next = client->parts[index].next;
        if (client->parts[index].table == resume->table) {
            weft_ps_part_fail(client, index, WEFT_PEER);
        } else {
            weft_ps_part_enqueue(client, index);
        }
    }
    weft_ps_log_sweep(client, resume->table, resume->shard);
    weft_ps_clock_refuse(client, link, true);
}

/* is_expected: the connection did not break. */
static void report(struct weft_ps_client *client, struct ps_link *link, const struct ps_part *part,
                   uint32_t clocks_resent, uint64_t lost, bool is_expected)
{
    link->resumed.shard = part->shard;
    link->resumed.table = part->table;
    link->resumed.clock = link->clock_closed;
    link->resumed.clocks_resent += clocks_resent;
    link->resumed.pushes_lost += lost;
    client->counters.resumes++;
    client->counters.clocks_resent += clocks_resent;
    client->counters.pushes_lost += lost;
    if (is_expected && lost == 0 && clocks_resent == 0) {
        return; /* no change */
    }
    client->resumed_unreported += !link->resumed_unreported;
    link->resumed_unreported = true;
}

void weft_ps_resume_answered(struct weft_ps_client *client, const struct ps_part *part,
                             const struct weft_rpc_reply *reply)
{
    struct ps_link *link = ps_link_of(client, part->table, part->shard);
    struct ps_table *table = &client->tables[part->table];
    link->resuming = false;
    client->ends[part->shard].resuming--;
    const bool is_fence = weft_ps_applied_resumed(client, part->table, part->shard);
    if (reply == NULL) {
        link_gone(client, part, WEFT_PROTO, WEFT_RPC_OK);
        return;
    }
    if (reply->status != WEFT_RPC_OK) {
        client->counters.rpcs_refused++;
        link_gone(client, part, WEFT_OK, reply->status);
        return;
    }
    if (table->state == TABLE_OPEN && reply->rows > table->clock) {
        table->clock = reply->rows; /* the shard shrank, and continued without this worker */
        table->passed = true;
    }
    link->clock_passed = reply->rows;
    link->can = reply->can & client->config.can;
    struct weft_rpc_pushes theirs;
    weft_status status = weft_rpc_pushes_unpack(link->resume_reply + WEFT_RPC_REPLY_BYTES, &theirs);
    WEFT_ASSERT(status == WEFT_OK); /* checked when it arrived */
    uint32_t resent = weft_ps_log_resend(client, part->table, part->shard, &theirs);
    link->resumed.pushes_resent += resent;
    struct weft_rpc_pushes ours = finished(client, part->table, part->shard, link->number);
    uint32_t clocks_resent =
        link->clock_closed > reply->rows ? link->clock_closed - reply->rows : 0;
    uint64_t above = link->number > theirs.newest ? link->number - theirs.newest : 0;
    uint64_t lost = lost_within(link, &theirs, &ours);
    uint64_t kept = renumber(client, part->table, part->shard, &theirs);
    link->number = theirs.newest + kept;
    link->clock_closed = reply->rows;
    link->clock_known = reply->clock;
    link->durable = weft_min_u64(link->durable_early, theirs.newest);
    closed_anew(client, part->table, part->shard);
    weft_ps_clock_refuse(client, link, false);
    weft_ps_log_sweep(client, part->table, part->shard);
    report(client, link, part, clocks_resent, lost + above - kept,
           is_fence || client->ends[part->shard].was_parked);
}

void weft_ps_clock_moved(struct weft_ps_client *client, uint16_t table, uint32_t shard,
                         uint32_t from)
{
    struct ps_link *link = ps_link_of(client, table, shard);
    if (client->tables[table].clock <= link->clock_closed && link->clock_closed == from + 1) {
        return; /* the usual case: no push was built yet for the clock that is now within reach */
    }
    FOR_PUSHES(client, table, shard, i)
    {
        uint32_t clock = client->parts[i].clock;
        link->pushes_open[clock & 1] += clock > from + 2 && clock <= link->clock_closed + 2;
    }
}

uint32_t weft_ps_first_push_clock(const struct weft_ps_client *client, uint16_t table,
                                  uint32_t shard)
{
    uint32_t first = next_push(client, table, client->ends[shard].queue_head);
    return first == WEFT_PS_NONE ? UINT32_MAX : client->parts[first].clock;
}

bool weft_ps_client_take_resumed(struct weft_ps_client *client, struct weft_ps_resumed *resumed_p)
{
    if (client->resumed_unreported == 0) {
        return false;
    }
    struct ps_link *link = client->links;
    while (!link->resumed_unreported) {
        link++;
    }
    client->resumed_unreported--;
    link->resumed_unreported = false;
    *resumed_p = link->resumed;
    link->resumed = (struct weft_ps_resumed){0};
    return true;
}
