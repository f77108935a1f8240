/* Messages about operations, 112 bytes each, big-endian:
 *
 *     0    u8   type: ENTERED, DESCRIBE, ASK, READY, ABORT
 *     1    u8   reason (ABORT)
 *     2    u8   cause of the connection's failure (ABORT)
 *     3    u8   1: entered (ABORT), timed out (ASK); 2: descriptors are known (ABORT)
 *     4    u32  rank: the culprit
 *     8    u32  the rank that detected the failure
 *     12   u32  group
 *     16   u32  operation
 *     20   u32  last operation that it has entered
 *     24   24   descriptor of the call of `rank` (ABORT) or of the sender (DESCRIBE, ASK, READY)
 *     48   24   descriptor of the call of the rank that detected it
 *     72   40   text, padded with zeros
 *
 * A descriptor: kind, type, reduction, feedback u8 each, root, or tag, of SEND and RECV, bound_ppm,
 * members u32, count u64.
 *
 * ENTERED: the sender has begun the operation; 2^32 - 1 means none of the group yet. ASK: the
 * sender has waited long for the receiver in this operation. The reply is ENTERED. If the operation
 * has timed out, a receiver that has it open also processes its own timeout (coll.c). If the
 * receiver has called a different operation, it aborts with both calls. DESCRIBE is sent to a rank
 * whose message did not match the sender's call; that rank then knows both calls, and aborts with
 * them. READY: the sender has called recv (pair.c). `rank` is the number of the READY, operation
 * and last operation are the slot of the operation and its life, and the descriptor is that of the
 * call. Every rank forwards ABORT to all others, so that each rank receives it even if some
 * connections have failed.
 */
#include "coll/internal.h"

#include "base/cursor.h"

enum what { WHAT_ENTERED = 1, WHAT_DESCRIBE, WHAT_ASK, WHAT_READY, WHAT_ABORT };
enum { FLAG_ENTERED = 1, FLAG_CALLED = 2 };

struct control {
    enum what what;
    struct weft_coll_failure f;
};

/* ---- bytes ----------------------------------------------------------------------------------- */

static void descriptor_write(struct weft_writer *w, const struct weft_coll_descriptor *d)
{
    weft_write_u8(w, d->kind);
    weft_write_u8(w, d->type);
    weft_write_u8(w, d->reduction);
    weft_write_u8(w, d->feedback);
    weft_write_u32(w, d->root);
    weft_write_u32(w, d->bound_ppm);
    weft_write_u32(w, d->members);
    weft_write_u64(w, d->count);
}

static struct weft_coll_descriptor descriptor_read(struct weft_reader *r)
{
    struct weft_coll_descriptor d;
    d.kind = weft_read_u8(r);
    d.type = weft_read_u8(r);
    d.reduction = weft_read_u8(r);
    d.feedback = weft_read_u8(r);
    d.root = weft_read_u32(r);
    d.bound_ppm = weft_read_u32(r);
    d.members = weft_read_u32(r);
    d.count = weft_read_u64(r);
    return d;
}

static void pack(uint8_t bytes[CONTROL_BYTES], enum what what, const struct weft_coll_failure *f)
{
    struct weft_writer w = weft_writer_make(bytes, CONTROL_BYTES);
    weft_write_u8(&w, (uint8_t)what);
    weft_write_u8(&w, (uint8_t)f->reason);
    weft_write_u8(&w, (uint8_t)f->down);
    weft_write_u8(&w, (f->entered ? FLAG_ENTERED : 0) | (f->has_called ? FLAG_CALLED : 0));
    weft_write_u32(&w, f->rank);
    weft_write_u32(&w, f->by);
    weft_write_u32(&w, f->group);
    weft_write_u32(&w, f->op);
    weft_write_u32(&w, f->last_op);
    descriptor_write(&w, &f->called[0]);
    descriptor_write(&w, &f->called[1]);
    weft_write_bytes(&w, f->text, sizeof(f->text));
    WEFT_ASSERT(!w.bad && weft_writer_left(&w) == 0);
}

/* The only place where such a message is validated. */
static bool unpack(const struct weft_coll *c, const struct weft_msg_event *event,
                   struct control *control_p)
{
    struct weft_reader r = weft_reader_make(event->data, (size_t)event->elems * event->elem_bytes);
    struct control control;
    uint8_t what = weft_read_u8(&r);
    uint8_t reason = weft_read_u8(&r);
    uint8_t down = weft_read_u8(&r);
    uint8_t flags = weft_read_u8(&r);
    struct weft_coll_failure f = {
        .reason = (enum weft_coll_reason)reason,
        .down = (enum weft_msg_down)down,
        .entered = (flags & FLAG_ENTERED) != 0,
        .has_called = (flags & FLAG_CALLED) != 0,
    };
    f.rank = weft_read_u32(&r);
    f.by = weft_read_u32(&r);
    f.group = weft_read_u32(&r);
    f.op = weft_read_u32(&r);
    f.last_op = weft_read_u32(&r);
    f.called[0] = descriptor_read(&r);
    f.called[1] = descriptor_read(&r);
    const uint8_t *text = weft_read_bytes(&r, sizeof(f.text));
    if (r.bad || weft_reader_left(&r) != 0 || event->chunks != 1) {
        return false;
    }
    memcpy(f.text, text, sizeof(f.text));
    f.text[sizeof(f.text) - 1] = '\0';
    for (char *at = f.text; *at != '\0'; at++) { /* the text may be printed */
        *at = (uint8_t)*at < ' ' || *at == 0x7f ? '?' : *at;
    }
    control.what = (enum what)what;
    control.f = f;
    *control_p = control;
    bool about = f.group < c->config.groups_max;
    bool ends = reason > WEFT_COLL_FINE && reason < WEFT_COLL_REASONS && f.rank < c->config.ranks &&
                f.by < c->config.ranks && down <= WEFT_DOWN_REPLACED && (about || f.group == NONE);
    return what == WHAT_ABORT ? ends : what >= WHAT_ENTERED && what < WHAT_ABORT && about;
}

/* ---- sending --------------------------------------------------------------------------------- */

void weft_coll_abort_pack(struct weft_coll *c)
{
    pack(c->abort, WHAT_ABORT, &c->failure);
}

static bool send_control(struct weft_coll *c, const uint8_t *bytes, uint32_t rank, struct user user)
{
    struct weft_msg_send send = {
        .peer = c->rank[rank].peer,
        .base = bytes,
        .total = CONTROL_BYTES,
        .elem_bytes = 1,
        .tag = weft_coll_tag_pack(TAG_CONTROL, (struct tag){0}),
        .deadline_ns = WEFT_NEVER,
        .user = user_pack(user),
    };
    uint64_t seq;
    return c->msgr.ops->send(c->msgr.self, &send, c->now_ns, &seq) == WEFT_OK;
}

void weft_coll_tell(struct weft_coll *c, uint32_t group, uint32_t rank)
{
    struct member *m = &c->group[group].member[rank];
    c->rank[rank].notes_due += !m->entered_due;
    m->entered_due = true;
    c->dirty = true;
}

void weft_coll_ask(struct weft_coll *c, const struct op *op)
{
    struct group *g = &c->group[op->call.group];
    for (uint32_t i = 0; i < g->n; i++) {
        struct member *m = &g->member[g->ranks[i]];
        if (i != g->me && weft_coll_op_needs(op, i)) {
            c->rank[g->ranks[i]].notes_due += !m->ask;
            m->ask = true;
            m->ask_op = op->number;
            c->dirty = true;
        }
    }
}

static bool send_note(struct weft_coll *c, uint32_t rank, enum what what,
                      const struct weft_coll_failure *f)
{
    struct rank *r = &c->rank[rank];
    pack(r->note, what, f);
    if (!send_control(c, r->note, rank, (struct user){.type = USER_NOTE})) {
        return false;
    }
    r->notes_due--;
    r->note_in_flight = true;
    return true;
}

static void send_entered(struct weft_coll *c, uint32_t group, uint32_t rank)
{
    struct group *g = &c->group[group];
    struct member *m = &g->member[rank];
    struct weft_coll_failure f = {.group = group, .op = g->next_op - 1};
    if (send_note(c, rank, WHAT_ENTERED, &f)) {
        m->entered_due = false;
        m->reported = g->next_op;
        m->unreported_pages = 0;
        c->counters.progress_sent++;
    }
}

static void send_ask(struct weft_coll *c, uint32_t group, uint32_t rank)
{
    struct member *m = &c->group[group].member[rank];
    const struct op *op = weft_coll_find(c, group, m->ask_op);
    if (op == NULL) { /* the operation is already done */
        m->ask = false;
        c->rank[rank].notes_due--;
        return;
    }
    struct weft_coll_failure f = {.group = group, .op = op->number, .entered = op->overdue};
    f.called[0] = weft_coll_descriptor_of(&c->group[group], &op->call);
    m->ask = !send_note(c, rank, WHAT_ASK, &f);
}

/* Send the next note; at most one is in flight to a rank. */
static void send_notes(struct weft_coll *c, uint32_t rank)
{
    for (uint32_t i = 0; i < c->groups && !c->rank[rank].note_in_flight; i++) {
        const struct member *m = &c->group[i].member[rank];
        if (m->entered_due) {
            send_entered(c, i, rank);
        } else if (m->ask) {
            send_ask(c, i, rank);
        }
    }
}

static void send_readies(struct weft_coll *c)
{
    for (uint32_t i = c->open_head; i != NONE; i = c->op[i].next) {
        struct op *op = &c->op[i];
        if (!op->ready_due || c->rank[weft_coll_pair_rank(c, op)].state != RANK_UP) {
            continue;
        }
        struct weft_coll_failure f = {
            .rank = op->ready_seq,
            .group = op->call.group,
            .op = i,
            .last_op = op->life,
            .called = {weft_coll_descriptor_of(&c->group[op->call.group], &op->call)},
        };
        pack(op->ready_bytes, WHAT_READY, &f);
        struct user user = {.type = USER_READY, .slot = i, .life = op->life};
        if (send_control(c, op->ready_bytes, weft_coll_pair_rank(c, op), user)) {
            op->ready_due = false;
            op->unconfirmed++;
        }
    }
}

void weft_coll_control_send(struct weft_coll *c)
{
    for (uint32_t i = 0; i < c->config.ranks; i++) {
        struct rank *r = &c->rank[i];
        if (r->state != RANK_UP) {
            continue;
        }
        if (r->abort_due) {
            r->abort_due = !send_control(c, c->abort, i, (struct user){.type = USER_ABORT});
        } else if (!coll_failed(c) && r->notes_due > 0 && !r->note_in_flight) {
            send_notes(c, i);
        }
    }
    if (!coll_failed(c)) {
        send_readies(c);
    }
    if (c->describe_due && !coll_failed(c) && c->rank[c->describe_rank].state == RANK_UP) {
        c->describe_due =
            !send_control(c, c->describe, c->describe_rank, (struct user){.type = USER_CONTROL});
    }
}

void weft_coll_control_sent(struct weft_coll *c, struct user user, uint32_t rank,
                            enum weft_msg_outcome outcome)
{
    c->dirty = true;
    if (user.type == USER_READY) {
        struct op *op = &c->op[user.slot];
        WEFT_ASSERT(op->state == OP_OPEN && op->life == user.life && op->unconfirmed > 0);
        op->unconfirmed--;
        weft_coll_op_check(c, op);
        return;
    }
    if (rank == NONE) {
        return;
    }
    if (user.type == USER_NOTE) {
        c->rank[rank].note_in_flight = false;
    } else if (user.type == USER_ABORT && outcome != WEFT_MSG_UNKNOWN) {
        c->rank[rank].close_due = true;
        c->closes = true;
    }
}

/* ---- mismatch -------------------------------------------------------------------------------- */

/* This rank's call of that number, if it is among the last ones, or in progress. */
static bool remembered(struct weft_coll *c, uint32_t group, uint32_t number,
                       struct weft_coll_descriptor *called_p)
{
    const struct group *g = &c->group[group];
    const struct weft_coll_descriptor *d = &g->history[number % HISTORY];
    if (op_before(number, g->next_op) && g->next_op - number <= HISTORY && d->members != 0) {
        *called_p = *d;
        return true;
    }
    const struct op *op = weft_coll_find(c, group, number);
    if (op != NULL) {
        *called_p = weft_coll_descriptor_of(g, &op->call);
    }
    return op != NULL;
}

void weft_coll_mismatch(struct weft_coll *c, uint32_t rank, uint32_t group, uint32_t number)
{
    struct weft_coll_descriptor mine;
    if (c->describe_sent) {
        return;
    }
    if (!remembered(c, group, number, &mine)) {
        weft_coll_fail_rank(c, WEFT_COLL_PROTOCOL, rank, NULL);
        return;
    }
    c->mismatch = (struct weft_coll_failure){
        .reason = WEFT_COLL_MISMATCH,
        .rank = rank,
        .by = c->config.rank,
        .group = group,
        .op = number,
        .last_op = NONE,
    };
    c->mismatch.called[1] = mine;
    struct weft_coll_failure f = {.group = group, .op = number};
    f.called[0] = mine;
    pack(c->describe, WHAT_DESCRIBE, &f);
    c->describe_sent = true;
    c->describe_due = true;
    c->describe_rank = rank;
    c->describe_ns = weft_time_add(c->now_ns, c->config.abort_ns / 2);
    c->dirty = true;
}

static void described(struct weft_coll *c, uint32_t rank, const struct weft_coll_failure *f)
{
    struct weft_coll_descriptor mine = {0};
    bool is_known = remembered(c, f->group, f->op, &mine);
    struct weft_coll_failure failure = {
        .reason = WEFT_COLL_MISMATCH,
        .rank = rank,
        .by = c->config.rank,
        .group = f->group,
        .op = f->op,
        .last_op = NONE,
        .has_called = is_known,
    };
    failure.called[0] = f->called[0];
    failure.called[1] = mine;
    bool same = is_known && memcmp(&mine, &f->called[0], sizeof(mine)) == 0;
    failure.reason = same ? WEFT_COLL_PROTOCOL : WEFT_COLL_MISMATCH;
    weft_coll_fail(c, &failure);
}

/* ---- late ranks ------------------------------------------------------------------------------ */

/* Process ASK. Always reply. If the sender's operation has timed out, this rank first processes its
 * own timeout, because it may itself wait for a third rank. */
static void asked(struct weft_coll *c, uint32_t rank, const struct weft_coll_failure *f)
{
    struct weft_coll_descriptor mine;
    if (remembered(c, f->group, f->op, &mine) &&
        memcmp(&mine, &f->called[0], sizeof(mine)) != 0) {
        described(c, rank, f);
        return;
    }
    weft_coll_tell(c, f->group, rank);
    struct op *op = weft_coll_find(c, f->group, f->op);
    if (op != NULL && f->entered) {
        weft_coll_late(c, op, c->config.abort_ns / 2);
    }
}

static void ready(struct weft_coll *c, uint32_t rank, const struct weft_coll_failure *f)
{
    struct want want = {
        .seq = f->rank,
        .group = f->group,
        .slot = f->op,
        .life = (uint16_t)f->last_op,
        .called = f->called[0],
    };
    if (!coll_failed(c)) {
        weft_coll_pair_ready(c, rank, &want);
    }
}

/* ---- receiving ------------------------------------------------------------------------------- */

void weft_coll_control_recv(struct weft_coll *c, uint32_t rank, const struct weft_msg_event *event)
{
    struct control control;
    if (rank == NONE) {
        c->counters.ignored++;
        return;
    }
    if (!unpack(c, event, &control)) {
        weft_coll_fail_rank(c, WEFT_COLL_PROTOCOL, rank, NULL);
        return;
    }
    const struct weft_coll_failure *f = &control.f;
    switch (control.what) {
    case WHAT_ENTERED:
        weft_coll_entered(c, f->group, rank, f->op + 1);
        break;
    case WHAT_DESCRIBE:
        described(c, rank, f);
        break;
    case WHAT_ASK:
        asked(c, rank, f);
        break;
    case WHAT_READY:
        ready(c, rank, f);
        break;
    case WHAT_ABORT:
        weft_coll_fail(c, f);
        break;
    }
}
