#include "coll/coll.h"

#include "coll/internal.h"

#include <stdlib.h>

enum { NAME_KIND = 'c', NAME_KIND_SHIFT = 56, NAME_EPOCH_SHIFT = 16, NAME_RANK_MASK = 0xffff };

void weft_coll_config_default(struct weft_coll_config *config_p)
{
    *config_p = (struct weft_coll_config){
        .peers_max = 1024,
        .chunks_max = 65536,
        .groups_max = 16,
        .ops_max = 64,
        .pool_bytes = 64 << 20,
        .segment_bytes = 126 << 10,
        .small_bytes = 1408,
        .small_ranks = 16,
        .bcast_bytes = 64 << 10,
        .receivers_max = 8,
        .abort_ns = WEFT_NS_PER_S,
    };
}

uint64_t weft_coll_name(uint64_t epoch, uint32_t rank)
{
    return (uint64_t)NAME_KIND << NAME_KIND_SHIFT |
           (epoch & WEFT_COLL_EPOCH_MAX) << NAME_EPOCH_SHIFT | (rank & NAME_RANK_MASK);
}

/* ---- creation and release -------------------------------------------------------------------- */

static bool config_valid(const struct weft_coll_config *c)
{
    return c->ranks >= 1 && c->ranks <= WEFT_COLL_RANKS_MAX && c->rank < c->ranks &&
           c->epoch <= WEFT_COLL_EPOCH_MAX && c->peers_max >= 1 && c->chunks_max >= 1 &&
           c->groups_max >= 1 && c->groups_max <= WEFT_COLL_GROUPS_MAX && c->ops_max >= 1 &&
           c->ops_max <= WEFT_COLL_OPS_MAX + WEFT_COLL_OPS_SPARE &&
           c->segment_bytes >= WEFT_COLL_GRAIN * 8 && c->small_bytes <= c->segment_bytes;
}

static weft_status groups_init(struct weft_coll *c)
{
    uint32_t ranks = c->config.ranks;
    c->group = calloc(c->config.groups_max, sizeof(*c->group));
    if (c->group == NULL) {
        return WEFT_NOMEM;
    }
    for (uint32_t i = 0; i < c->config.groups_max; i++) {
        struct group *g = &c->group[i];
        g->me = NONE;
        g->ranks = calloc(ranks, sizeof(*g->ranks));
        g->index_of = malloc(ranks * sizeof(*g->index_of));
        g->member = calloc(ranks, sizeof(*g->member));
        g->history = calloc(HISTORY, sizeof(*g->history));
        if (g->ranks == NULL || g->index_of == NULL || g->member == NULL || g->history == NULL) {
            return WEFT_NOMEM;
        }
        memset(g->index_of, 0xff, ranks * sizeof(*g->index_of));
    }
    return WEFT_OK;
}

static weft_status tables_init(struct weft_coll *c)
{
    c->rank = calloc(c->config.ranks, sizeof(*c->rank));
    c->rank_of = malloc(c->config.peers_max * sizeof(*c->rank_of));
    c->refused = calloc(c->config.peers_max, sizeof(*c->refused));
    c->op = calloc(c->config.ops_max, sizeof(*c->op));
    c->critical = calloc(WEFT_BITS_WORDS((size_t)c->config.chunks_max), sizeof(*c->critical));
    if (c->rank == NULL || c->rank_of == NULL || c->refused == NULL || c->op == NULL ||
        c->critical == NULL) {
        return WEFT_NOMEM;
    }
    memset(c->rank_of, 0xff, c->config.peers_max * sizeof(*c->rank_of));
    for (uint32_t i = 0; i < c->config.ranks; i++) {
        c->rank[i].peer = NONE;
        c->rank[i].early_head = NONE;
        c->rank[i].left_ns = WEFT_NEVER;
        c->rank[i].want_head = NONE;
    }
    weft_status status = groups_init(c);
    status = status != WEFT_OK ? status : weft_coll_pair_init(c);
    return status != WEFT_OK ? status : weft_coll_early_init(c);
}

static weft_status post(struct weft_coll *c, uint32_t kind, uint64_t bytes)
{
    struct weft_msg_expect expect = {
        .peer = WEFT_PEER_ANY,
        .sink = WEFT_SINK_EVENT,
        .tag = (uint64_t)kind << TAG_KIND_SHIFT,
        .tag_mask = UINT64_C(0xf) << TAG_KIND_SHIFT,
        .memory_bytes = bytes,
        .count = UINT32_MAX,
        .timeout_ns = WEFT_NEVER,
    };
    c->posted[kind].taken = 0;
    return c->msgr.ops->expect(c->msgr.self, &expect, &c->posted[kind].id);
}

static weft_status post_kind(struct weft_coll *c, uint32_t kind)
{
    return post(c, kind, kind == TAG_CONTROL ? CONTROL_BYTES : UINT64_MAX);
}

/* Post the receive again well before its limit of messages is reached. */
static void opened(struct weft_coll *c, uint32_t kind)
{
    if (++c->posted[kind].taken < UINT32_MAX / 2) {
        return;
    }
    weft_status status = c->msgr.ops->cancel(c->msgr.self, c->posted[kind].id);
    WEFT_ASSERT(status == WEFT_OK);
    status = post_kind(c, kind); /* replaces the canceled receive */
    WEFT_ASSERT(status == WEFT_OK);
}

weft_status weft_coll_new(const struct weft_coll_config *config, struct weft_msgr msgr,
                          struct weft_coll **coll_p)
{
    if (!config_valid(config)) {
        return WEFT_INVALID;
    }
    struct weft_coll *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return WEFT_NOMEM;
    }
    c->config = *config;
    c->msgr = msgr;
    c->open_head = c->open_tail = c->done_head = c->done_tail = NONE;
    c->abort_ns = c->describe_ns = WEFT_NEVER;
    weft_status status = tables_init(c);
    status = status != WEFT_OK ? status : post_kind(c, TAG_DATA);
    status = status != WEFT_OK ? status : post_kind(c, TAG_CONTROL);
    status = status != WEFT_OK ? status : post_kind(c, TAG_PAIR);
    if (status != WEFT_OK) {
        weft_coll_free(c);
        return status;
    }
    uint32_t all[WEFT_COLL_RANKS_MAX], group;
    for (uint32_t i = 0; i < config->ranks; i++) {
        all[i] = i;
    }
    status = weft_coll_group(c, all, config->ranks, &group);
    WEFT_ASSERT(status == WEFT_OK && group == 0);
    *coll_p = c;
    return WEFT_OK;
}

void weft_coll_free(struct weft_coll *c)
{
    if (c == NULL) {
        return;
    }
    for (uint32_t i = 0; c->group != NULL && i < c->config.groups_max; i++) {
        free(c->group[i].ranks);
        free(c->group[i].index_of);
        free(c->group[i].member);
        free(c->group[i].history);
    }
    weft_coll_early_fini(c);
    weft_coll_pair_fini(c);
    free(c->group);
    free(c->rank);
    free(c->rank_of);
    free(c->refused);
    free(c->op);
    free(c->critical);
    free(c);
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Hash of the parameters that must be equal at all members but are not part of a call. */
static uint32_t members_hash(const struct weft_coll_config *c, const uint32_t *ranks, uint32_t n)
{
    uint64_t h = weft_mix64(c->segment_bytes | (uint64_t)c->small_bytes << 32);
    h = weft_mix64(h ^ (c->small_ranks | (uint64_t)n << 32));
    h = weft_mix64(h ^ (c->pool_bytes | (uint64_t)c->ops_max << 48));
    h = weft_mix64(h ^ c->bcast_bytes);
    h = c->settings != 0 ? weft_mix64(h ^ c->settings) : h;
    for (uint32_t i = 0; i < n; i++) {
        h = weft_mix64(h ^ (ranks[i] + UINT64_C(1)));
    }
    return (uint32_t)(h >> 32) | 1; /* 0 marks an unused entry of the history */
}

weft_status weft_coll_group(struct weft_coll *c, const uint32_t *ranks, uint32_t n,
                            uint32_t *group_p)
{
    if (c->groups == c->config.groups_max) {
        return WEFT_NOMEM;
    }
    struct group *g = &c->group[c->groups];
    bool valid = n >= 1 && n <= c->config.ranks;
    for (uint32_t i = 0; i < n && valid; i++) {
        valid = ranks[i] < c->config.ranks && g->index_of[ranks[i]] == NONE;
        if (valid) {
            g->index_of[ranks[i]] = i;
        }
    }
    if (!valid) {
        memset(g->index_of, 0xff, c->config.ranks * sizeof(*g->index_of));
        return WEFT_INVALID;
    }
    memcpy(g->ranks, ranks, n * sizeof(*ranks));
    g->n = n;
    g->me = g->index_of[c->config.rank];
    g->members_hash = members_hash(&c->config, ranks, n);
    *group_p = c->groups++;
    return WEFT_OK;
}

uint32_t weft_coll_op_number(const struct group *g, uint32_t low_bits)
{
    uint32_t half = (TAG_OP_MASK + 1) / 2;
    uint32_t ahead = (low_bits - g->next_op) & TAG_OP_MASK;
    return ahead < half ? g->next_op + ahead : g->next_op + ahead - (TAG_OP_MASK + 1);
}

void weft_coll_entered(struct weft_coll *c, uint32_t group, uint32_t rank, uint32_t count)
{
    struct member *m = &c->group[group].member[rank];
    if ((int32_t)(count - m->entered) <= 0) {
        return;
    }
    uint32_t steps = (uint32_t)weft_min_u64(count - m->entered, EARLY_OPS);
    for (uint32_t i = 0; i < steps; i++) {
        uint16_t *pages = &m->early_pages[(m->entered + i) % EARLY_OPS];
        c->rank[rank].early_pages -= *pages;
        *pages = 0;
    }
    m->entered = count;
    c->dirty = true;
}

struct op *weft_coll_find(struct weft_coll *c, uint32_t group, uint32_t number)
{
    for (uint32_t i = c->open_head; i != NONE; i = c->op[i].next) {
        const struct op *op = &c->op[i];
        if (op->call.group == group && op->number == number && !weft_coll_is_pair(op->call.kind)) {
            return &c->op[i];
        }
    }
    return NULL;
}

/* ---- connections ----------------------------------------------------------------------------- */

static uint32_t rank_of(const struct weft_coll *c, weft_peer peer)
{
    return peer < c->config.peers_max ? c->rank_of[peer] : NONE;
}

static void refuse(struct weft_coll *c, weft_peer peer)
{
    c->counters.peers_refused++;
    if (peer < c->config.peers_max) {
        c->refused[peer] = true;
        c->refused_count++;
        c->closes = true;
    }
}

static void on_up(struct weft_coll *c, const struct weft_msg_event *event)
{
    uint32_t rank = event->name & NAME_RANK_MASK;
    bool known = event->name == weft_coll_name(c->config.epoch, rank) && rank < c->config.ranks &&
                 rank != c->config.rank && event->peer < c->config.peers_max;
    if (!known || c->rank[rank].state == RANK_LEFT ||
        (c->rank[rank].state == RANK_UP && event->incarnation <= c->rank[rank].incarnation)) {
        refuse(c, event->peer);
        return;
    }
    struct rank *r = &c->rank[rank];
    if (r->state == RANK_UP) { /* the rank was restarted in the same epoch */
        refuse(c, event->peer);
        struct weft_coll_failure failure = {.reason = WEFT_COLL_DOWN,
                                            .rank = rank,
                                            .by = c->config.rank,
                                            .group = NONE,
                                            .op = NONE,
                                            .last_op = NONE,
                                            .down = WEFT_DOWN_RESTARTED};
        weft_coll_fail(c, &failure);
        return;
    }
    r->state = RANK_UP;
    r->peer = event->peer;
    r->incarnation = event->incarnation;
    r->abort_due = coll_failed(c);
    c->rank_of[event->peer] = rank;
    c->dirty = true;
}

/* The operation that must fail because another rank (`rank`) has left, if any: one that still needs
 * that rank, or one that fails in any case (`broken`). */
static struct op *op_needing(struct weft_coll *c, uint32_t rank)
{
    for (uint32_t i = c->open_head; i != NONE; i = c->op[i].next) {
        struct op *op = &c->op[i];
        uint32_t index = c->group[op->call.group].index_of[rank];
        if (op->broken || (index != NONE && weft_coll_op_needs(op, index))) {
            return op;
        }
    }
    return NULL;
}

/* Count the messages to a rank whose outcome is UNKNOWN as delivered: a rank closes its connection
 * only after it has received all that it needs. */
static void unknown_delivered(struct weft_coll *c, uint32_t rank)
{
    uint32_t next;
    for (uint32_t i = c->open_head; i != NONE; i = next) {
        struct op *op = &c->op[i];
        next = op->next;
        if (op->unknown_rank == rank) {
            op->unknown = 0;
            op->unknown_rank = NONE;
            weft_coll_op_check(c, op);
        }
    }
}

static void on_down(struct weft_coll *c, const struct weft_msg_event *event)
{
    uint32_t rank = rank_of(c, event->peer);
    if (event->peer < c->config.peers_max && c->refused[event->peer]) {
        c->refused[event->peer] = false;
        c->refused_count--;
    }
    if (rank == NONE) {
        return;
    }
    c->rank_of[event->peer] = NONE;
    struct rank *r = &c->rank[rank];
    r->state = RANK_LEFT;
    r->peer = NONE;
    r->abort_due = r->close_due = r->note_in_flight = false;
    r->down = event->down;
    WEFT_ASSERT(r->inflight == 0);
    if (coll_failed(c)) {
        unknown_delivered(c, rank);
        return;
    }
    struct op *op = op_needing(c, rank);
    /* RESTARTED: the peer has no state of the connection; its CLOSE may have been lost. */
    bool closed = event->down == WEFT_DOWN_CLOSED || event->down == WEFT_DOWN_RESTARTED;
    if ((closed || event->down == WEFT_DOWN_LOCAL) && op == NULL) {
        unknown_delivered(c, rank);
        return;
    }
    if (closed) { /* another rank may still report the reason */
        r->left_ns = weft_time_add(c->now_ns, c->config.abort_ns / 2);
        return;
    }
    if (op == NULL && c->open_head != NONE) {
        op = &c->op[c->open_head];
    }
    struct weft_coll_failure failure = {
        .reason = WEFT_COLL_DOWN,
        .rank = rank,
        .by = c->config.rank,
        .group = op != NULL ? op->call.group : NONE,
        .op = op != NULL ? op->number : NONE,
        .last_op = NONE,
        .down = event->down,
    };
    weft_coll_fail(c, &failure);
}

bool weft_coll_take_close(struct weft_coll *c, weft_peer *peer_p)
{
    if (!c->closes) {
        return false;
    }
    for (uint32_t i = 0; i < c->config.peers_max && c->refused_count > 0; i++) {
        if (c->refused[i]) {
            c->refused[i] = false;
            c->refused_count--;
            *peer_p = i;
            return true;
        }
    }
    for (uint32_t i = 0; i < c->config.ranks; i++) {
        if (c->rank[i].close_due && c->rank[i].peer != NONE) {
            c->rank[i].close_due = false;
            *peer_p = c->rank[i].peer;
            return true;
        }
    }
    c->closes = false;
    return false;
}

/* ---- events ---------------------------------------------------------------------------------- */

static uint32_t kind_of(const struct weft_msg_event *event)
{
    return (uint32_t)(event->tag >> TAG_KIND_SHIFT);
}

static bool is_control(const struct weft_msg_event *event)
{
    return kind_of(event) == TAG_CONTROL;
}

static void on_open(struct weft_coll *c, uint32_t rank, const struct weft_msg_event *event)
{
    opened(c, kind_of(event));
    if (kind_of(event) == TAG_DATA) {
        weft_coll_data_open(c, rank, event);
    } else if (kind_of(event) == TAG_PAIR) {
        weft_coll_pair_open(c, rank, event);
    }
}

static void on_sent(struct weft_coll *c, const struct weft_msg_event *event)
{
    struct user user = user_unpack(event->user);
    uint32_t rank = rank_of(c, event->peer);
    if (user.type == USER_OP) {
        weft_coll_sent(c, event, user, rank);
    } else {
        weft_coll_control_sent(c, user, rank, event->outcome);
    }
}

void weft_coll_event(struct weft_coll *c, const struct weft_msg_event *event, uint64_t now_ns)
{
    uint32_t rank = rank_of(c, event->peer);
    c->now_ns = now_ns;
    switch (event->type) {
    case WEFT_EVENT_PEER_UP:
        on_up(c, event);
        break;
    case WEFT_EVENT_PEER_DOWN:
        on_down(c, event);
        break;
    case WEFT_EVENT_OPEN:
        on_open(c, rank, event);
        break;
    case WEFT_EVENT_CHUNK:
        if (is_control(event)) {
            weft_coll_control_recv(c, rank, event);
        } else {
            weft_coll_data_chunk(c, rank, event);
        }
        break;
    case WEFT_EVENT_RECEIVED:
        if (!is_control(event)) {
            weft_coll_data_received(c, rank, event);
        }
        break;
    case WEFT_EVENT_SENT:
        on_sent(c, event);
        break;
    }
}

void weft_coll_progress(struct weft_coll *c, uint64_t now_ns)
{
    c->now_ns = now_ns;
    if (c->dirty || coll_failed(c)) {
        weft_coll_send_all(c);
        weft_coll_control_send(c);
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

uint64_t weft_coll_deadline(const struct weft_coll *c)
{
    if (coll_failed(c)) {
        return c->abort_ns;
    }
    uint64_t at_ns = c->describe_ns;
    for (uint32_t i = c->open_head; i != NONE; i = c->op[i].next) {
        at_ns = weft_min_u64(at_ns, weft_min_u64(c->op[i].deadline_ns, c->op[i].ask_ns));
    }
    for (uint32_t i = 0; i < c->config.ranks; i++) {
        at_ns = weft_min_u64(at_ns, c->rank[i].left_ns);
    }
    return at_ns;
}

/* The rank that an operation waits for, preferably one that has not entered it; NONE: no particular
 * rank. *entered_p: whether the returned rank has entered it. */
static uint32_t late_rank(const struct weft_coll *c, const struct op *op, bool *entered_p)
{
    const struct group *g = &c->group[op->call.group];
    uint32_t found = NONE;
    for (uint32_t k = 1; k < g->n; k++) {
        uint32_t index = (g->me + k) % g->n;
        uint32_t rank = g->ranks[index];
        bool entered = op_before(op->number, g->member[rank].entered);
        if (!entered && weft_coll_op_needs(op, index)) {
            *entered_p = false;
            return rank;
        }
        if (found == NONE && (weft_coll_op_awaits(op, index) || c->rank[rank].inflight > 0)) {
            found = rank;
        }
    }
    *entered_p = true;
    return found;
}

void weft_coll_late(struct weft_coll *c, struct op *op, uint64_t wait_ns)
{
    uint64_t until_ns = weft_time_add(c->now_ns, wait_ns);
    if (!op->all_entered) {
        op->deadline_ns = op->overdue ? weft_min_u64(op->deadline_ns, until_ns) : until_ns;
    }
    if (!op->overdue) {
        op->overdue = true;
        weft_coll_ask(c, op);
    }
}

/* Query with increasing intervals. If two ranks have called different operations, each may wait
 * only for a third rank and get no message of the other; the query detects the difference. */
static void ask_again(struct weft_coll *c, struct op *op)
{
    weft_coll_ask(c, op);
    op->ask_step_ns = weft_time_add(op->ask_step_ns, op->ask_step_ns);
    op->ask_ns = weft_time_add(c->now_ns, op->ask_step_ns);
}

/* The other end may itself wait for a third rank, in a collective that is also late. The ranks
 * of that collective report the one that delays it: wait for their report first. */
static void pair_timeout(struct weft_coll *c, struct op *op)
{
    if (!op->overdue) {
        op->overdue = true;
        op->deadline_ns = weft_time_add(c->now_ns, 2 * c->config.abort_ns);
        return;
    }
    struct weft_coll_failure failure = {
        .reason = WEFT_COLL_TIMEOUT,
        .rank = weft_coll_pair_rank(c, op),
        .by = c->config.rank,
        .group = op->call.group,
        .op = NONE,
        .last_op = NONE,
    };
    failure.called[1] = weft_coll_descriptor_of(&c->group[op->call.group], &op->call);
    weft_coll_fail(c, &failure);
}

/* Operations begun together time out together. If a rank has not called an operation, later
 * operations wait for it too, directly or through another rank. So the first operation that it has
 * not called is reported, if that one would also time out soon. */
static struct op *op_to_report(struct weft_coll *c, struct op *op)
{
    uint64_t soon_ns = weft_time_add(c->now_ns, c->config.abort_ns / 4);
    for (uint32_t i = c->open_head; i != NONE && &c->op[i] != op; i = c->op[i].next) {
        struct op *older = &c->op[i];
        bool entered = true;
        if (older->overdue && older->deadline_ns <= soon_ns &&
            !weft_coll_is_pair(older->call.kind)) {
            late_rank(c, older, &entered);
        }
        if (!entered) {
            return older;
        }
    }
    return op;
}

/* A rank may have entered the operation without having reported it, because it had no reason to. A
 * rank that has entered may wait for one that has not. All ranks are therefore queried before one
 * is reported. */
static void on_timeout(struct weft_coll *c, struct op *op)
{
    if (weft_coll_is_pair(op->call.kind)) {
        pair_timeout(c, op);
        return;
    }
    if (!op->overdue) {
        weft_coll_late(c, op, c->config.abort_ns);
        return;
    }
    bool entered;
    uint32_t rank = late_rank(c, op, &entered);
    if (entered && !op->all_entered) {
        op->all_entered = true;
        op->deadline_ns = weft_time_add(c->now_ns, c->config.abort_ns);
        return;
    }
    struct op *reported = op_to_report(c, op);
    if (reported != op) {
        op = reported;
        rank = late_rank(c, op, &entered);
    }
    rank = rank == NONE ? c->config.rank : rank;
    uint32_t known = c->group[op->call.group].member[rank].entered;
    struct weft_coll_failure failure = {
        .reason = WEFT_COLL_TIMEOUT,
        .rank = rank,
        .by = c->config.rank,
        .group = op->call.group,
        .op = op->number,
        .entered = entered,
        .last_op = known > 0 ? known - 1 : NONE,
    };
    weft_coll_fail(c, &failure);
}

/* A rank closed its connection, and no rank has reported a reason in time. */
static void on_left(struct weft_coll *c, uint32_t rank)
{
    struct op *op = op_needing(c, rank);
    c->rank[rank].left_ns = WEFT_NEVER;
    if (op == NULL) {
        unknown_delivered(c, rank);
        return;
    }
    struct weft_coll_failure failure = {
        .reason = c->rank[rank].down == WEFT_DOWN_CLOSED ? WEFT_COLL_LEFT : WEFT_COLL_DOWN,
        .rank = rank,
        .by = c->config.rank,
        .group = op->call.group,
        .op = op->number,
        .last_op = NONE,
        .down = c->rank[rank].down,
    };
    weft_coll_fail(c, &failure);
}

static void close_all(struct weft_coll *c)
{
    c->abort_ns = WEFT_NEVER;
    for (uint32_t i = 0; i < c->config.ranks; i++) {
        c->rank[i].close_due = c->rank[i].state == RANK_UP;
    }
    c->closes = true;
}

void weft_coll_on_deadline(struct weft_coll *c, uint64_t now_ns)
{
    c->now_ns = now_ns;
    if (coll_failed(c)) {
        if (now_ns >= c->abort_ns) {
            close_all(c);
        }
        return;
    }
    if (now_ns >= c->describe_ns) {
        c->describe_ns = WEFT_NEVER;
        weft_coll_fail(c, &c->mismatch);
    }
    for (uint32_t i = c->open_head; i != NONE && !coll_failed(c); i = c->op[i].next) {
        if (now_ns >= c->op[i].deadline_ns) {
            on_timeout(c, &c->op[i]);
        }
        if (now_ns >= c->op[i].ask_ns) {
            ask_again(c, &c->op[i]);
        }
    }
    for (uint32_t i = 0; i < c->config.ranks && !coll_failed(c); i++) {
        if (now_ns >= c->rank[i].left_ns) {
            on_left(c, i);
        }
    }
    weft_coll_progress(c, now_ns);
}

/* ---- status ---------------------------------------------------------------------------------- */

uint32_t weft_coll_open_ops(const struct weft_coll *c)
{
    return c->ops_used;
}

uint32_t weft_coll_ranks_up(const struct weft_coll *c)
{
    uint32_t up = 1;
    for (uint32_t i = 0; i < c->config.ranks; i++) {
        up += c->rank[i].state == RANK_UP;
    }
    return up;
}

const struct weft_coll_counters *weft_coll_counters(const struct weft_coll *c)
{
    return &c->counters;
}
