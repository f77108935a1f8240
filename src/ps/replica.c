#include "ps/replica.h"

#include "ps/shard_internal.h"
#include "ps/snapshot.h"

#include "base/assert.h"

#include <stdlib.h>

/* `user` of this object's expectations and messages: this plus a small number. Above those of a
 * shard. */
#define USER_REPLICA (UINT64_C(1) << 36)

enum { CONFIRMS = 4 };

struct posted {
    uint8_t *memory; /* NULL = none */
    weft_expect_id id;
    bool is_open; /* a message is arriving: the expectation cannot be cancelled */
};

struct confirm {
    bool is_busy; /* borrowed by the transport */
    uint8_t bytes[WEFT_CONFIRM_BYTES];
};

struct weft_replica {
    struct weft_replica_config config;
    struct weft_piece_limits limits;
    struct weft_shard *shard;
    struct weft_msgr msgr;
    struct weft_replica_state state;
    weft_peer peer;
    bool has_ended;
    uint64_t number; /* of the transfer that is arriving; 0 = none yet */
    uint64_t taken;  /* of the last transfer applied */
    uint32_t count;  /* number of its pieces; 0 = unknown until the last piece arrives */
    uint32_t staged_count;
    uint32_t staged_end;    /* one past the last piece that has arrived */
    uint8_t **staged;       /* (pieces_max,): NULL = not arrived */
    uint32_t *record_bytes; /* (tables_max,): for weft_piece_check */
    uint8_t *free_head;     /* free pieces, linked by their first bytes */
    uint32_t free_count;
    struct posted posted[WEFT_PIECE_FLIGHT_MAX];
    struct confirm confirms[CONFIRMS];
    bool is_due; /* a CONFIRM, of due */
    struct weft_confirm due;
};

void weft_replica_config_default(struct weft_replica_config *config_p)
{
    *config_p = (struct weft_replica_config){.pieces_max = 65536};
}

weft_status weft_replica_new(const struct weft_replica_config *config, struct weft_shard *shard,
                             struct weft_msgr msgr, struct weft_replica **replica_p)
{
    if (config->pieces_max == 0 || config->supply == NULL || shard->config.chunks_max == 0) {
        return WEFT_INVALID;
    }
    struct weft_replica *replica = calloc(1, sizeof(*replica));
    if (replica == NULL) {
        return WEFT_NOMEM;
    }
    replica->config = *config;
    replica->shard = shard;
    replica->msgr = msgr;
    replica->peer = WEFT_PEER_ANY;
    replica->limits = (struct weft_piece_limits){
        .shard = shard->config.shard,
        .shards = shard->config.shards,
        .tables_max = shard->config.tables_max,
        .workers_max = shard->config.workers_max,
        .dim_max = shard->config.dim_max,
        .chunks_max = shard->config.chunks_max,
    };
    replica->staged = calloc(config->pieces_max, sizeof(*replica->staged));
    replica->record_bytes = calloc(shard->config.tables_max, sizeof(*replica->record_bytes));
    if (replica->staged == NULL || replica->record_bytes == NULL) {
        weft_replica_free(replica);
        return WEFT_NOMEM;
    }
    *replica_p = replica;
    return WEFT_OK;
}

void weft_replica_free(struct weft_replica *replica)
{
    if (replica != NULL) {
        WEFT_ASSERT(replica->free_head == NULL);
        free(replica->staged);
        free(replica->record_bytes);
        free(replica);
    }
}

/* ---- memory of pieces ------------------------------------------------------------------------ */

static void put_free(struct weft_replica *replica, uint8_t *memory)
{
    memcpy(memory, &replica->free_head, sizeof(replica->free_head));
    replica->free_head = memory;
    replica->free_count++;
}

static uint8_t *get_free(struct weft_replica *replica)
{
    uint8_t *memory = replica->free_head;
    if (memory != NULL) {
        memcpy(&replica->free_head, memory, sizeof(replica->free_head));
        replica->free_count--;
    }
    return memory;
}

static uint32_t posted_count(const struct weft_replica *replica)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < WEFT_PIECE_FLIGHT_MAX; i++) {
        count += replica->posted[i].memory != NULL;
    }
    return count;
}

bool weft_replica_wants_piece(const struct weft_replica *replica)
{
    return replica->state.connected && !replica->has_ended &&
           posted_count(replica) + replica->free_count < WEFT_PIECE_FLIGHT_MAX;
}

void weft_replica_add_piece(struct weft_replica *replica, void *memory)
{
    WEFT_ASSERT((uintptr_t)memory % 8 == 0);
    put_free(replica, memory);
}

/* Discard the transfer that is arriving. */
static void drop_staged(struct weft_replica *replica)
{
    for (uint32_t i = 0; i < replica->staged_end; i++) {
        if (replica->staged[i] != NULL) {
            put_free(replica, replica->staged[i]);
            replica->staged[i] = NULL;
        }
    }
    replica->count = replica->staged_count = replica->staged_end = 0;
}

void *weft_replica_take_piece(struct weft_replica *replica, bool all)
{
    if (all) {
        drop_staged(replica);
        for (uint32_t i = 0; i < WEFT_PIECE_FLIGHT_MAX; i++) {
            if (replica->posted[i].memory != NULL) {
                put_free(replica, replica->posted[i].memory);
                replica->posted[i].memory = NULL;
            }
        }
    }
    return all || posted_count(replica) + replica->free_count > 2 * WEFT_PIECE_FLIGHT_MAX
               ? get_free(replica)
               : NULL;
}

static void post(struct weft_replica *replica, uint32_t i)
{
    struct posted *posted = &replica->posted[i];
    const struct weft_msg_expect expect = {
        .peer = replica->peer,
        .sink = WEFT_SINK_COPY,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){.op = WEFT_TRANSFER_PIECE}),
        .tag_mask = WEFT_RPC_TAG_OP_MASK,
        .memory = posted->memory = get_free(replica),
        .memory_bytes = WEFT_PIECE_BYTES_MAX,
        .count = 1,
        .timeout_ns = WEFT_NEVER,
        .user = USER_REPLICA + i,
    };
    posted->is_open = false;
    if (replica->msgr.ops->expect(replica->msgr.self, &expect, &posted->id) != WEFT_OK) {
        put_free(replica, posted->memory);
        posted->memory = NULL;
    }
}

/* ---- applying a transfer --------------------------------------------------------------------- */

/* Push windows of a process that has lost its rank do not apply to its successor. */
static void put_ranks(struct weft_shard *shard, const struct weft_section *section)
{
    struct weft_reader r = weft_reader_make(section->body, section->bytes);
    for (uint32_t rank = section->first; rank < section->first + section->count; rank++) {
        struct shard_worker *worker = &shard->workers[rank];
        uint64_t incarnation = weft_read_u64(&r);
        for (uint32_t t = 0; incarnation != worker->incarnation && t < shard->config.tables_max;
             t++) {
            weft_shard_dedup_forget(shard, (uint16_t)t, rank);
        }
        worker->incarnation = incarnation;
        worker->retired.floor = weft_read_u64(&r);
        for (uint32_t i = 0; i < WEFT_RETIRED_MAX; i++) {
            worker->retired.incarnations[i] = weft_read_u64(&r);
        }
    }
}

static void clear_table(struct weft_shard *shard, uint16_t t)
{
    struct weft_table *table = shard_table(shard, t);
    struct weft_table_view view;
    for (uint32_t cursor = 0; weft_table_next(table, &cursor, &view);) {
        weft_table_record_remove(table, view.id);
    }
}

static bool put_table(struct weft_shard *shard, const struct weft_section *section)
{
    struct weft_table_spec spec;
    const uint16_t t = section->table;
    const struct weft_table *table = shard_table(shard, t);
    if (weft_table_spec_unpack(t, section->body, section->bytes, &spec) != WEFT_OK ||
        (table == NULL && weft_shard_restore_table(shard, &spec) != WEFT_OK) ||
        (table != NULL && !weft_table_spec_equal(&table->spec, &spec) &&
         !weft_shard_respec(shard, &spec))) {
        return false;
    }
    if (section->count == 1) {
        clear_table(shard, t);
    }
    for (uint32_t i = 0; i < shard->partial_count; i++) {
        shard->partials[i].live &= shard->partials[i].table != t;
    }
    return true;
}

/* Clocks of ranks below workers_max. */
static void put_clocks(struct weft_shard *shard, const struct weft_section *section)
{
    uint32_t *clocks = shard->clocks + (size_t)section->table * shard->config.workers_max;
    for (uint32_t i = 0; i < section->count; i++) {
        clocks[section->first + i] = weft_get_u32(section->body + (size_t)i * sizeof(uint32_t));
    }
    weft_shard_restore_clocks(shard, section->table, clocks, shard->config.workers_max);
}

static bool put_partial(struct weft_shard *shard, const struct weft_section *section)
{
    uint64_t mask[WEFT_SHARD_CHUNKS_MAX / 64];
    const struct weft_cut_partial partial = {
        .worker = section->first,
        .table = section->table,
        .number = weft_get_u64(section->body),
        .chunks = section->count,
        .chunk_elems = (uint32_t)weft_get_u64(section->body + 8),
        .mask = mask,
    };
    for (size_t i = 0; i < WEFT_BITS_WORDS((size_t)section->count); i++) {
        mask[i] = weft_get_u64(section->body + WEFT_SECTION_PARTIAL_BYTES + i * sizeof(*mask));
    }
    return weft_shard_restore_partial(shard, &partial) == WEFT_OK;
}

static bool put_rows(struct weft_replica *replica, const struct weft_section *section)
{
    struct weft_shard *shard = replica->shard;
    const size_t record_bytes = section->bytes / section->count;
    bool was_supplied = false;
    for (uint32_t at = 0; at < section->count;) {
        uint32_t used;
        weft_status status = weft_shard_restore_rows(
            shard, section->table, section->body + at * record_bytes, section->count - at, &used);
        was_supplied &= used == 0;
        at += used;
        if (status == WEFT_AGAIN && !was_supplied) {
            replica->config.supply(shard);
            was_supplied = true;
        } else if (status != WEFT_OK) {
            return false;
        }
    }
    replica->state.rows += section->count;
    return true;
}

static bool put_section(struct weft_replica *replica, const struct weft_section *section)
{
    struct weft_shard *shard = replica->shard;
    switch (section->kind) {
    case WEFT_SECTION_RANKS:
        put_ranks(shard, section);
        return true;
    case WEFT_SECTION_TABLE:
        return put_table(shard, section);
    case WEFT_SECTION_CLOCKS:
        put_clocks(shard, section);
        return true;
    case WEFT_SECTION_PUSHES:
        for (uint32_t i = 0; i < section->count; i++) {
            weft_section_pushes_read(section->body + (size_t)i * WEFT_SECTION_PUSHES_BYTES,
                                     shard_pushes(shard, section->table, section->first + i));
        }
        return true;
    case WEFT_SECTION_PARTIAL:
        return put_partial(shard, section);
    case WEFT_SECTION_REMOVED:
        for (uint32_t i = 0; i < section->count; i++) {
            weft_table_record_remove(shard_table(shard, section->table),
                                     weft_get_u64(section->body + (size_t)i * sizeof(uint64_t)));
        }
        return true;
    default:
        return put_rows(replica, section);
    }
}

static struct weft_piece_head head_of(const struct weft_replica *replica, const uint8_t *piece)
{
    struct weft_piece_head head;
    struct weft_reader r = weft_reader_make(piece + 24, sizeof(uint32_t));
    weft_status status = weft_piece_unpack(piece, WEFT_PIECE_HEAD_BYTES + weft_read_u32(&r),
                                           &replica->limits, &head);
    WEFT_ASSERT(status == WEFT_OK); /* checked on arrival */
    return head;
}

/* Check the whole transfer before any of it is applied. */
static bool is_valid(struct weft_replica *replica)
{
    weft_piece_check_begin(&replica->limits, replica->record_bytes);
    for (uint32_t i = 0; i < replica->count; i++) {
        struct weft_piece_head head = head_of(replica, replica->staged[i]);
        if (weft_piece_check(&replica->limits, replica->record_bytes, replica->staged[i], &head) !=
            WEFT_OK) {
            return false;
        }
    }
    return true;
}

static bool put_pieces(struct weft_replica *replica)
{
    for (uint32_t i = 0; i < replica->count; i++) {
        struct weft_section section;
        struct weft_piece_head head = head_of(replica, replica->staged[i]);
        for (uint32_t at = 0; weft_section_next(replica->staged[i], &head, &at, &section);) {
            if (!put_section(replica, &section)) {
                return false;
            }
        }
    }
    return true;
}

/* All pieces have arrived. After the check, applying can fail only for lack of room, or because
 * tables differ; then the replica is unusable. */
static void put_transfer(struct weft_replica *replica)
{
    bool good = is_valid(replica) && put_pieces(replica);
    drop_staged(replica);
    replica->taken = replica->number;
    replica->due = (struct weft_confirm){.transfer = replica->number, .refused = !good};
    replica->is_due = true;
    replica->state.transfers += good;
    replica->state.refused |= !good;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static void refuse(struct weft_replica *replica, uint8_t *piece)
{
    put_free(replica, piece);
    drop_staged(replica);
    replica->state.pieces_bad++;
    replica->state.refused = true;
    /* If the very first piece is malformed, its transfer is unknown. Any refusal that does not
     * match ends the connection, too. */
    replica->due = (struct weft_confirm){
        .transfer = replica->number > 0 ? replica->number : 1, .refused = true};
    replica->is_due = true;
}

static void stage(struct weft_replica *replica, const struct weft_piece_head *head, uint8_t *piece)
{
    if (head->transfer < replica->number || head->transfer == replica->taken) {
        put_free(replica, piece); /* of a transfer that the shard has aborted */
        return;
    }
    if (head->transfer > replica->number) {
        drop_staged(replica);
        replica->number = head->transfer;
    }
    bool is_last = (head->flags & WEFT_PIECE_LAST) != 0;
    replica->state.too_large |= head->index >= replica->config.pieces_max;
    if (head->index >= replica->config.pieces_max || replica->staged[head->index] != NULL ||
        (replica->count != 0 && (is_last || head->index >= replica->count)) ||
        (is_last && head->index + 1 < replica->staged_end)) {
        refuse(replica, piece);
        return;
    }
    replica->staged[head->index] = piece;
    replica->staged_count++;
    if (head->index >= replica->staged_end) {
        replica->staged_end = head->index + 1;
    }
    replica->count = is_last ? head->index + 1 : replica->count;
    if (replica->staged_count == replica->count) {
        put_transfer(replica);
    }
}

static void received(struct weft_replica *replica, const struct weft_msg_event *event,
                     uint64_t now_ns)
{
    struct posted *posted = &replica->posted[event->user - USER_REPLICA];
    const size_t bytes = (size_t)event->total * event->elem_bytes;
    struct weft_piece_head head;
    uint8_t *piece = posted->memory;
    posted->memory = NULL;
    if (event->outcome != WEFT_MSG_COMPLETE || replica->has_ended || replica->state.refused) {
        put_free(replica, piece);
        return;
    }
    replica->state.heard_ns = now_ns;
    replica->state.bytes += bytes;
    replica->state.pieces++;
    if (event->received < event->chunks ||
        weft_piece_unpack(piece, bytes, &replica->limits, &head) != WEFT_OK) {
        refuse(replica, piece);
        return;
    }
    replica->state.ready |= (head.flags & WEFT_PIECE_READY) != 0;
    if ((head.flags & WEFT_PIECE_BEAT) != 0) {
        put_free(replica, piece);
    } else {
        stage(replica, &head, piece);
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Cancel posted expectations. An arriving message still ends with RECEIVED. */
static void unpost(struct weft_replica *replica)
{
    for (uint32_t i = 0; i < WEFT_PIECE_FLIGHT_MAX; i++) {
        struct posted *posted = &replica->posted[i];
        if (posted->memory != NULL && !posted->is_open) {
            (void)!replica->msgr.ops->cancel(replica->msgr.self, posted->id);
            put_free(replica, posted->memory);
            posted->memory = NULL;
        }
    }
}

bool weft_replica_event(struct weft_replica *replica, const struct weft_msg_event *event,
                        uint64_t now_ns)
{
    if (event->type == WEFT_EVENT_PEER_UP) {
        bool is_mine = event->name == weft_rpc_name(WEFT_ROLE_SERVER, replica->limits.shard) &&
                       !replica->state.connected && !replica->has_ended;
        if (is_mine) {
            replica->state.connected = true;
            replica->peer = event->peer;
        }
        return is_mine;
    }
    if (event->type == WEFT_EVENT_PEER_DOWN) {
        if (event->peer != replica->peer) {
            return false;
        }
        unpost(replica);
        drop_staged(replica);
        replica->state.connected = false;
        replica->peer = WEFT_PEER_ANY;
        return true;
    }
    if (event->user < USER_REPLICA) {
        return false;
    }
    if (event->type == WEFT_EVENT_OPEN) {
        replica->posted[event->user - USER_REPLICA].is_open = true;
    } else if (event->type == WEFT_EVENT_RECEIVED) {
        received(replica, event, now_ns);
    } else if (event->type == WEFT_EVENT_SENT) {
        replica->confirms[event->user - USER_REPLICA].is_busy = false;
    }
    return true;
}

static void send_confirm(struct weft_replica *replica, uint64_t now_ns)
{
    uint64_t seq;
    for (uint32_t i = 0; i < CONFIRMS; i++) {
        struct confirm *confirm = &replica->confirms[i];
        if (confirm->is_busy) {
            continue;
        }
        weft_confirm_pack(&replica->due, confirm->bytes);
        const struct weft_msg_send send = {
            .peer = replica->peer,
            .base = confirm->bytes,
            .total = WEFT_CONFIRM_BYTES / WEFT_PIECE_ELEM_BYTES,
            .elem_bytes = WEFT_PIECE_ELEM_BYTES,
            .tag = weft_rpc_tag_pack((struct weft_rpc_tag){.op = WEFT_TRANSFER_CONFIRM}),
            .deadline_ns = WEFT_NEVER,
            .user = USER_REPLICA + i,
        };
        if (replica->msgr.ops->send(replica->msgr.self, &send, now_ns, &seq) == WEFT_OK) {
            confirm->is_busy = true;
            replica->is_due = false;
        }
        return;
    }
}

void weft_replica_progress(struct weft_replica *replica, uint64_t now_ns)
{
    if (!replica->state.connected || replica->has_ended) {
        return;
    }
    for (uint32_t i = 0; i < WEFT_PIECE_FLIGHT_MAX; i++) {
        if (replica->posted[i].memory == NULL && replica->free_head != NULL) {
            post(replica, i);
        }
    }
    if (replica->is_due) {
        send_confirm(replica, now_ns);
    }
}

/* ---- promotion ------------------------------------------------------------------------------- */

enum weft_replica_why weft_replica_may_be_promoted(const struct weft_replica *replica,
                                                   uint64_t at_ns)
{
    const struct weft_replica_state *state = &replica->state;
    if (state->refused) {
        return state->too_large ? WEFT_REPLICA_TOO_LARGE : WEFT_REPLICA_REFUSED;
    }
    if (!state->ready) {
        return WEFT_REPLICA_NOT_READY;
    }
    return at_ns >= weft_time_add(state->heard_ns, replica->shard->config.replica_lease_ns)
               ? WEFT_REPLICA_OLD
               : WEFT_REPLICA_GOOD;
}

const char *weft_replica_why_text(enum weft_replica_why why)
{
    switch (why) {
    case WEFT_REPLICA_GOOD:
        return "it may replace its shard";
    case WEFT_REPLICA_NOT_READY:
        return "it has not received all of its shard yet";
    case WEFT_REPLICA_OLD:
        return "it has received nothing from its shard for too long, and may be out of date";
    case WEFT_REPLICA_TOO_LARGE:
        return "what its shard sends at once is more than a replica takes (4 GiB); more shards "
               "make each "
               "smaller";
    case WEFT_REPLICA_REFUSED:
        return "it could not take what its shard sent: no memory for it, or another release";
    }
    return "";
}

void weft_replica_end(struct weft_replica *replica)
{
    replica->has_ended = true;
    unpost(replica);
    drop_staged(replica);
}

const struct weft_replica_state *weft_replica_state(const struct weft_replica *replica)
{
    return &replica->state;
}

weft_peer weft_replica_peer(const struct weft_replica *replica)
{
    return replica->peer;
}
