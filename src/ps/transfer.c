#include "ps/transfer.h"

#include "ps/table_internal.h"
#include "ps/transfer_internal.h"

#include "base/assert.h"

#include <math.h>
#include <stdlib.h>

/* Minimum number of messages to the replica during one lease. */
enum { BEATS_PER_LEASE = 8 };

/* ---- life ------------------------------------------------------------------------------------ */

static weft_status tables_init(struct weft_shard *shard)
{
    struct weft_transfer *transfer = shard->transfer;
    const struct weft_shard_config *config = &shard->config;
    weft_status status = WEFT_OK;
    for (uint32_t t = 0; status == WEFT_OK && t < config->tables_max; t++) {
        status = weft_dirty_set_init(&transfer->dirty_sets[t], (uint16_t)t, config->rows_max);
        status = status == WEFT_OK
                     ? weft_divergence_init(&transfer->divergences[t], config->rows_max)
                     : status;
        if (status == WEFT_OK) {
            weft_dirty_set_attach(&shard->tables[t], &transfer->dirty_sets[t]);
            shard->tables[t].divergence = &transfer->divergences[t];
        }
    }
    return status;
}

weft_status weft_transfer_init(struct weft_shard *shard)
{
    const struct weft_shard_config *config = &shard->config;
    struct weft_transfer *transfer = shard->transfer = calloc(1, sizeof(*transfer));
    if (transfer == NULL) {
        return WEFT_NOMEM;
    }
    transfer->peer = WEFT_PEER_ANY;
    transfer->head_max = weft_transfer_head_max(shard);
    transfer->sent = calloc(config->tables_max, sizeof(*transfer->sent));
    transfer->in_cut = calloc(config->tables_max, sizeof(*transfer->in_cut));
    transfer->dirty_sets = calloc(config->tables_max, sizeof(*transfer->dirty_sets));
    transfer->divergences = calloc(config->tables_max, sizeof(*transfer->divergences));
    transfer->cow_memory = calloc(1, config->replica_cow_bytes);
    transfer->head = calloc(1, transfer->head_max);
    bool lacks = transfer->sent == NULL || transfer->in_cut == NULL ||
                 transfer->dirty_sets == NULL || transfer->divergences == NULL ||
                 transfer->cow_memory == NULL || transfer->head == NULL;
    for (uint32_t i = 0; i < WEFT_PIECE_FLIGHT_MAX; i++) {
        transfer->pieces[i].memory = calloc(1, WEFT_PIECE_BYTES_MAX);
        lacks |= transfer->pieces[i].memory == NULL;
    }
    return lacks ? WEFT_NOMEM : tables_init(shard);
}

void weft_transfer_fini(struct weft_shard *shard)
{
    struct weft_transfer *transfer = shard->transfer;
    if (transfer == NULL) {
        return;
    }
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        if (transfer->dirty_sets != NULL) {
            weft_dirty_set_fini(&transfer->dirty_sets[t]);
        }
        if (transfer->divergences != NULL) {
            weft_divergence_fini(&transfer->divergences[t]);
        }
    }
    for (uint32_t i = 0; i < WEFT_PIECE_FLIGHT_MAX; i++) {
        free(transfer->pieces[i].memory);
    }
    free(transfer->sent);
    free(transfer->in_cut);
    free(transfer->dirty_sets);
    free(transfer->divergences);
    free(transfer->cow_memory);
    free(transfer->head);
    free(transfer);
    shard->transfer = NULL;
}

/* ---- the bound ------------------------------------------------------------------------------- */

static double divergence_of(const struct weft_shard *shard)
{
    double sum = 0;
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        sum += weft_divergence_now(&shard->transfer->divergences[t]);
    }
    return sum;
}

static bool counts(const struct weft_transfer *transfer)
{
    return transfer->is_whole || transfer->is_lost;
}

bool weft_transfer_holds_answers(struct weft_shard *shard)
{
    struct weft_transfer *transfer = shard->transfer;
    if (transfer == NULL) {
        return false;
    }
    if (!counts(transfer)) {
        transfer->state.held = false;
        return false;
    }
    double divergence = divergence_of(shard);
    bool holds = divergence > shard->config.div_max;
    transfer->state.holds += holds && !transfer->state.held;
    transfer->state.held = holds;
    if (!holds) {
        transfer->state.divergence_max = fmax(transfer->state.divergence_max, divergence);
    }
    return holds;
}

bool weft_transfer_holds_steps(const struct weft_shard *shard)
{
    return shard->transfer != NULL && (shard->transfer->is_active || shard->transfer->is_waiting);
}

static bool can_cut(const struct weft_shard *shard, uint32_t t)
{
    const struct weft_table *table = &shard->tables[t];
    return table->declared && (table->spec.mode != WEFT_TABLE_BSP ||
                               (weft_table_settled(table) && shard->step_to[t] == 0));
}

/* Changes in the middle of a clock count only from the end of that clock. */
static void settle(struct weft_shard *shard)
{
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        if (can_cut(shard, t)) {
            weft_divergence_settle(&shard->transfer->divergences[t]);
        }
    }
}

/* True: a transfer is due, and its tables can be cut now. A transfer whose only purpose is to
 * complete the replica waits until no missing table is in the middle of a clock. Otherwise such
 * transfers would follow each other until that clock ends. */
static bool is_wanted(const struct weft_shard *shard)
{
    const struct weft_transfer *transfer = shard->transfer;
    bool lacks = false, is_complete = true;
    double since = 0;
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        if (can_cut(shard, t)) {
            lacks |= !transfer->sent[t];
            since += weft_divergence_since(&transfer->divergences[t]);
        } else {
            is_complete &= !shard->tables[t].declared || transfer->sent[t];
        }
    }
    /* A transfer without tables is allowed: a server may die before it has a table. */
    return lacks || (is_complete && !transfer->is_whole) ||
           (since > 0 && divergence_of(shard) > shard->config.div_max / 2);
}

/* True: the transfer that is due waits for a grant. */
static bool must_wait(const struct weft_shard *shard)
{
    const struct weft_transfer *transfer = shard->transfer;
    bool waits = transfer->is_planned && !transfer->may_begin && transfer->is_whole &&
                 divergence_of(shard) <= shard->config.div_max * 3 / 4;
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        const struct weft_table *table = &shard->tables[t];
        waits &= !table->declared || (transfer->sent[t] && table->spec.mode != WEFT_TABLE_BSP);
    }
    return waits;
}

/* ---- the cut --------------------------------------------------------------------------------- */

/* Cut every table that can be cut, at this instant. */
static void begin(struct weft_shard *shard)
{
    struct weft_transfer *transfer = shard->transfer;
    struct weft_writer w = weft_writer_make(transfer->head, transfer->head_max);
    transfer->cow = (struct weft_cow_buffer){.memory = transfer->cow_memory,
                                             .bytes = shard->config.replica_cow_bytes};
    transfer->is_active = transfer->is_complete = true;
    transfer->is_ended = transfer->may_begin = false;
    transfer->bytes_before = transfer->state.bytes;
    transfer->number++;
    transfer->index = 0;
    weft_transfer_cut_ranks(shard, &w);
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        if (can_cut(shard, t)) {
            weft_transfer_cut_table(shard, &w, (uint16_t)t);
        }
        transfer->is_complete &=
            !shard->tables[t].declared || transfer->sent[t] || transfer->in_cut[t];
    }
    WEFT_ASSERT(!w.bad);
    transfer->head_at = 0;
    transfer->head_bytes = (size_t)(w.at - transfer->head);
}

/* End the clocks that could have ended meanwhile. */
static void go_on(struct weft_shard *shard, uint64_t now_ns)
{
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        weft_shard_clock_advance(shard, (uint16_t)t, now_ns);
    }
}

static void end(struct weft_shard *shard, bool kept, uint64_t now_ns)
{
    struct weft_transfer *transfer = shard->transfer;
    WEFT_ASSERT(transfer->is_active);
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        if (transfer->in_cut[t]) {
            weft_dirty_set_end(&transfer->dirty_sets[t], kept);
            weft_divergence_end(&transfer->divergences[t], kept);
            transfer->sent[t] |= kept;
            transfer->in_cut[t] = false;
        }
    }
    transfer->is_active = false;
    for (uint32_t i = 0; i < WEFT_PIECE_FLIGHT_MAX; i++) {
        transfer->pieces[i].is_full = false;
    }
    if (kept) {
        transfer->state.transfers++;
        transfer->bytes_last = transfer->state.bytes - transfer->bytes_before;
        transfer->is_whole |= transfer->is_complete;
    } else {
        transfer->state.failed++;
    }
    go_on(shard, now_ns);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static void fill(struct weft_shard *shard, struct transfer_piece *piece, bool is_beat)
{
    struct weft_transfer *transfer = shard->transfer;
    struct weft_writer w = weft_writer_make(piece->memory, WEFT_PIECE_BYTES_MAX);
    struct weft_piece_head head = {.shard = shard->config.shard,
                                   .shards = shard->config.shards,
                                   .flags = is_beat ? WEFT_PIECE_BEAT : 0};
    (void)weft_write_take(&w, WEFT_PIECE_HEAD_BYTES);
    if (!is_beat) {
        transfer->is_ended = weft_transfer_put(shard, &w);
        head.transfer = transfer->number;
        head.index = transfer->index++;
        head.flags |= transfer->is_ended ? WEFT_PIECE_LAST : 0;
    }
    head.flags |= transfer->state.ready ? WEFT_PIECE_READY : 0;
    piece->bytes = (uint32_t)(w.at - piece->memory);
    head.bytes = piece->bytes - WEFT_PIECE_HEAD_BYTES;
    weft_piece_head_pack(&head, piece->memory);
    piece->is_full = true;
}

/* Returns false if the transport has no space now. */
static bool send(struct weft_shard *shard, uint32_t i, uint64_t now_ns)
{
    struct weft_transfer *transfer = shard->transfer;
    struct transfer_piece *piece = &transfer->pieces[i];
    const struct weft_msg_send message = {
        .peer = transfer->peer,
        .base = piece->memory,
        .total = piece->bytes / WEFT_PIECE_ELEM_BYTES,
        .elem_bytes = WEFT_PIECE_ELEM_BYTES,
        .priority = WEFT_RPC_PRIORITY_AHEAD,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){.op = WEFT_TRANSFER_PIECE}),
        .deadline_ns = WEFT_NEVER,
        .user = WEFT_SHARD_USER_TRANSFER + i,
    };
    uint64_t seq;
    if (shard->msgr.ops->send(shard->msgr.self, &message, now_ns, &seq) != WEFT_OK) {
        return false;
    }
    piece->is_full = false;
    piece->is_busy = true;
    transfer->state.bytes += piece->bytes;
    transfer->spoken_ns = now_ns;
    return true;
}

static bool is_overrun(const struct weft_shard *shard)
{
    bool is_overrun = false;
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        is_overrun |= shard->transfer->in_cut[t] && shard->transfer->dirty_sets[t].overrun;
    }
    return is_overrun;
}

static uint64_t beat_ns_of(const struct weft_shard *shard)
{
    return shard->config.replica_lease_ns / BEATS_PER_LEASE;
}

static void send_pieces(struct weft_shard *shard, uint64_t now_ns)
{
    struct weft_transfer *transfer = shard->transfer;
    bool takes = true;
    for (uint32_t i = 0; i < WEFT_PIECE_FLIGHT_MAX && takes; i++) {
        struct transfer_piece *piece = &transfer->pieces[i];
        if (piece->is_busy) {
            continue;
        }
        bool is_due = now_ns >= weft_time_add(transfer->spoken_ns, beat_ns_of(shard));
        if (!piece->is_full && transfer->is_active && !transfer->is_ended) {
            fill(shard, piece, false);
        } else if (!piece->is_full && is_due) {
            fill(shard, piece, true);
        }
        takes = !piece->is_full || send(shard, i, now_ns);
    }
}

/* ---- the connection -------------------------------------------------------------------------- */

static void down(struct weft_shard *shard, uint64_t now_ns)
{
    struct weft_transfer *transfer = shard->transfer;
    if (transfer->is_posted) {
        (void)!shard->msgr.ops->cancel(shard->msgr.self, transfer->expect);
    }
    transfer->is_posted = false;
    transfer->peer = WEFT_PEER_ANY;
    transfer->state.connected = false;
    if (transfer->state.ready) {
        transfer->state.lost++;
        transfer->is_lost = true;
        transfer->lost_until_ns = weft_time_add(now_ns, 2 * shard->config.replica_lease_ns);
    }
    transfer->state.ready = transfer->is_whole = transfer->is_waiting = false;
    transfer->is_asking = transfer->may_begin = false;
    if (transfer->is_active) {
        end(shard, false, now_ns);
    } else {
        go_on(shard, now_ns);
    }
    for (uint32_t i = 0; i < WEFT_PIECE_FLIGHT_MAX; i++) {
        transfer->pieces[i].is_full = false;
    }
}

static void up(struct weft_shard *shard, const struct weft_msg_event *event, uint64_t now_ns)
{
    struct weft_transfer *transfer = shard->transfer;
    if (transfer->state.connected) {
        weft_shard_replace(shard, transfer->peer);
        down(shard, now_ns);
    }
    transfer->state.connected = true;
    transfer->peer = event->peer;
    transfer->spoken_ns = now_ns;
    for (uint32_t t = 0; t < shard->config.tables_max; t++) {
        transfer->sent[t] = false;
    }
    const struct weft_msg_expect expect = {
        .peer = event->peer,
        .sink = WEFT_SINK_EVENT,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){.op = WEFT_TRANSFER_CONFIRM}),
        .tag_mask = WEFT_RPC_TAG_OP_MASK,
        .memory_bytes = WEFT_CONFIRM_BYTES,
        .count = UINT32_MAX,
        .timeout_ns = WEFT_NEVER,
        .user = WEFT_SHARD_USER_TRANSFER + WEFT_PIECE_FLIGHT_MAX,
    };
    transfer->is_posted =
        shard->msgr.ops->expect(shard->msgr.self, &expect, &transfer->expect) == WEFT_OK;
    if (!transfer->is_posted) {
        weft_shard_replace(shard, event->peer); /* the replica may reconnect */
    }
}

static void confirmed(struct weft_shard *shard, const struct weft_msg_event *event, uint64_t now_ns)
{
    struct weft_transfer *transfer = shard->transfer;
    struct weft_confirm confirm;
    size_t bytes = (size_t)event->elems * event->elem_bytes;
    if (event->peer != transfer->peer) {
        return;
    }
    bool fits = weft_confirm_unpack(event->data, bytes, &confirm) == WEFT_OK &&
                transfer->is_active && confirm.transfer == transfer->number &&
                (transfer->is_ended || confirm.refused);
    if (fits && !confirm.refused) {
        end(shard, true, now_ns);
        return;
    }
    /* The replica has none of the transfer, or its CONFIRM is inconsistent: make it reconnect. BSP
     * clocks do not wait for the end of its connection. */
    if (fits) {
        transfer->state.ready = false; /* it will not be promoted, so nothing waits for that */
    }
    weft_shard_replace(shard, event->peer);
    down(shard, now_ns);
}

bool weft_transfer_event(struct weft_shard *shard, const struct weft_msg_event *event,
                         uint64_t now_ns)
{
    struct weft_transfer *transfer = shard->transfer;
    if (transfer == NULL) {
        return false;
    }
    if (event->type == WEFT_EVENT_PEER_UP) {
        if (event->name != weft_rpc_name(WEFT_ROLE_SERVER, shard->config.shard)) {
            return false;
        }
        up(shard, event, now_ns);
        return true;
    }
    if (event->type == WEFT_EVENT_PEER_DOWN) {
        if (event->peer != transfer->peer) {
            return false;
        }
        down(shard, now_ns);
        return false; /* the connection may be in the list of connections to close */
    }
    if (event->user < WEFT_SHARD_USER_TRANSFER) {
        return false;
    }
    if (event->type == WEFT_EVENT_SENT) {
        WEFT_ASSERT(event->user < WEFT_SHARD_USER_TRANSFER + WEFT_PIECE_FLIGHT_MAX);
        transfer->pieces[event->user - WEFT_SHARD_USER_TRANSFER].is_busy = false;
    } else if (event->type == WEFT_EVENT_CHUNK) {
        confirmed(shard, event, now_ns);
    }
    return true;
}

/* Replies were not held during the first copy of all tables, so the model that they reported may
 * exceed the bound. Once it is within the bound, it stays within it. */
static void become_ready(struct weft_shard *shard)
{
    struct weft_transfer *transfer = shard->transfer;
    if (transfer->is_whole && !transfer->state.ready &&
        divergence_of(shard) <= shard->config.div_max) {
        transfer->is_lost = false;
        transfer->state.ready = true;
        transfer->spoken_ns = 0; /* notify the replica now */
    }
}

/* A table whose rows are being stepped cannot be cut. Its clock would end during a transfer of the
 * others, and replies about it would then exceed the bound. */
void weft_transfer_boundary(struct weft_shard *shard, uint64_t now_ns)
{
    struct weft_transfer *transfer = shard->transfer;
    if (transfer == NULL || !transfer->state.connected || transfer->is_active) {
        return;
    }
    settle(shard); /* if the divergence is then too large, it is cut at once */
    transfer->is_asking = is_wanted(shard) && must_wait(shard);
    const bool is_wanted_now = is_wanted(shard) && !transfer->is_asking;
    const bool waited = transfer->is_waiting;
    transfer->is_waiting = is_wanted_now && shard->step_tables > 0;
    if (is_wanted_now && !transfer->is_waiting) {
        begin(shard);
    } else if (waited && !transfer->is_waiting) {
        go_on(shard, now_ns);
    }
}

void weft_transfer_progress(struct weft_shard *shard, uint64_t now_ns)
{
    struct weft_transfer *transfer = shard->transfer;
    if (transfer == NULL) {
        return;
    }
    transfer->is_lost &= now_ns < transfer->lost_until_ns;
    if (!transfer->state.connected) {
        return;
    }
    if (transfer->is_active && is_overrun(shard)) {
        end(shard, false, now_ns);
    }
    become_ready(shard);
    weft_transfer_boundary(shard, now_ns);
    send_pieces(shard, now_ns);
}

/* ---- with a scheduler ------------------------------------------------------------------------ */

void weft_shard_transfers_wait(struct weft_shard *shard, bool wait)
{
    if (shard->transfer != NULL) {
        shard->transfer->is_planned = wait;
    }
}

uint32_t weft_shard_transfer_now(const struct weft_shard *shard, bool *waits_p, uint64_t *bytes_p)
{
    const struct weft_transfer *transfer = shard->transfer;
    *waits_p = transfer != NULL && !transfer->is_active && transfer->is_asking;
    if (transfer == NULL || !(transfer->is_active || *waits_p)) {
        return 0;
    }
    *bytes_p = transfer->bytes_last + transfer->head_max;
    const uint32_t number = (uint32_t)(transfer->number + *waits_p);
    return number != 0 ? number : 1;
}

void weft_shard_transfer_begin(struct weft_shard *shard, uint64_t now_ns)
{
    if (shard->transfer != NULL && shard->transfer->is_asking) {
        shard->transfer->may_begin = true;
        weft_transfer_progress(shard, now_ns);
    }
}

/* ---- questions ------------------------------------------------------------------------------- */

void weft_shard_replication(const struct weft_shard *shard, struct weft_replication *replication_p)
{
    const struct weft_transfer *transfer = shard->transfer;
    *replication_p = (struct weft_replication){.connected = false};
    if (transfer != NULL) {
        *replication_p = transfer->state;
        replication_p->bound = shard->config.div_max;
        replication_p->divergence = divergence_of(shard);
        replication_p->held = counts(transfer) && replication_p->divergence > shard->config.div_max;
    }
}

uint64_t weft_shard_deadline(const struct weft_shard *shard)
{
    const struct weft_transfer *transfer = shard->transfer;
    uint64_t due_ns = WEFT_NEVER;
    /* Otherwise an event occurs before anything can be sent: a piece is confirmed, or the transport
     * has space for the piece that it has not accepted. */
    bool has_room = false, is_taken = true;
    for (uint32_t i = 0; transfer != NULL && i < WEFT_PIECE_FLIGHT_MAX; i++) {
        has_room |= !transfer->pieces[i].is_busy;
        is_taken &= !transfer->pieces[i].is_full;
    }
    if (transfer != NULL && transfer->state.connected && has_room && is_taken) {
        due_ns = weft_time_add(transfer->spoken_ns, beat_ns_of(shard));
    }
    if (transfer != NULL && transfer->is_lost) {
        due_ns = weft_min_u64(due_ns, transfer->lost_until_ns);
    }
    return shard->parked_count > 0 ? weft_min_u64(due_ns, shard->parked_due_ns) : due_ns;
}
