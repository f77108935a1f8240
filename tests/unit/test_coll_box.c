/* all_reduce through an aggregation box (coll/box.h), in virtual time: ranks over the transport in
 * memory, members of dense rounds and a box in memory over a network that loses, duplicates and
 * delays packets. The box dies, freezes, restarts, has another configuration, sends different sums,
 * or has those of an earlier job. Whatever it does, the results are the same bits at all ranks, and
 * right. */
#include "fake_msgr.h"

#include "agg/dense_member.h"
#include "agg/exponent.h"
#include "coll/box.h"
#include "fake_box_net.h"
#include "fewer.h"
#include "print_seed.h"

#include <math.h>
#include <stdio.h>

enum {
    RANKS_MAX = 6,
    OPS = 8,       /* at most, of a random job; also the next */
    OPS_MAX = 400, /* of a long one */
    OPEN = 32,     /* at a time */
    COUNT_MAX = 3000,
    COUNT_BOXED = 200, /* bytes_min in elements */
    JOB = 5,
    SLOTS = 8,
    EPOCH = 100,
};

static const uint64_t silence_ns = 2 * WEFT_NS_PER_S;
static const uint64_t patience_ns = 600 * WEFT_NS_PER_S;

enum fault {
    FAULT_NONE,
    FAULT_NEVER,   /* no box is there */
    FAULT_DIES,    /* at some time; also the next two */
    FAULT_RESTARTS,
    FAULT_LIES,    /* it sends one rank another sum; its round is complete */
    FAULT_MEMBERS, /* it waits for one more member */
    FAULT_FORM,    /* another exponent, or number format */
    FAULT_EPOCH,   /* it has an epoch later than the end of the job */
    FAULT_OLD,     /* an earlier job had the same epoch */
    FAULT_FLAPS,   /* it dies and comes back again and again */
    FAULT_TRIALS,  /* from some time on it passes trials, and sums nothing else */
    FAULTS
};

union element {
    int32_t q;
    uint32_t bits;
    float x;
};

struct op {
    enum weft_coll_kind kind;
    enum weft_coll_type type;
    enum weft_coll_reduction reduction;
    uint32_t count;
    bool in_place;
    bool huge; /* one value does not fit the box's numbers */
    bool eligible;
    uint64_t timeout_ns; /* 0 = none */
};

struct node {
    struct weft_coll *coll;
    struct weft_coll_box *box;
    struct weft_agg_member member;
    bool summing;
    uint64_t stop_ns; /* when a stop takes effect; NEVER */
    uint32_t begun;
    uint64_t begin_ns[OPS_MAX];
    union element *in[OPS_MAX];
    union element *out[OPS_MAX];
    void *work[OPS_MAX];
    struct weft_coll_done done[OPS_MAX];
    uint32_t done_count;
};

static struct rig {
    struct fake_net *net;
    uint32_t n;
    struct node node[RANKS_MAX];
    struct op op[OPS_MAX];
    uint32_t ops;
    uint8_t element; /* enum weft_agg_element */
    int8_t exponent;
    uint64_t silence_ns;
    uint64_t retry_ns;
    enum fault fault;
    uint64_t fault_ns;
    uint64_t back_ns; /* a box that has died is back, one that lied does not any more */
    uint64_t flap_ns;
    uint32_t ahead_s; /* of the clock of rank 0 */
    bool was_dead;
    bool faulty; /* the fault has happened */
    struct weft_agg_box box;
    struct weft_agg_config box_config;
    struct box_net box_net;
    struct weft_prng prng;
} rig = {.silence_ns = silence_ns, .retry_ns = WEFT_NEVER, .back_ns = WEFT_NEVER};

static uint64_t *now(void)
{
    return &rig.net->now_ns;
}

/* ---- the box and its network ----------------------------------------------------------------- */

/* In each slot. */
static uint32_t rounds_of_trial(void)
{
    return rig.element == WEFT_AGG_BLOCK_FLOATS ? 2 : 1;
}

static void box_restart(void)
{
    weft_agg_box_fini(&rig.box);
    assert_int_equal(weft_agg_box_init(&rig.box, &rig.box_config), WEFT_OK);
}

static bool box_is_dead(void)
{
    bool flaps = rig.fault == FAULT_FLAPS && *now() >= rig.fault_ns &&
                 (*now() - rig.fault_ns) / rig.flap_ns % 2 == 0;
    return flaps || rig.fault == FAULT_NEVER ||
           (rig.fault == FAULT_DIES && *now() >= rig.fault_ns && *now() < rig.back_ns);
}

/* A box that was dead is back with nothing in its slots. */
static bool box_is_there(void)
{
    if (rig.fault == FAULT_RESTARTS && !rig.faulty && *now() >= rig.fault_ns) {
        box_restart();
        rig.faulty = true;
    }
    bool dead = box_is_dead();
    if (rig.was_dead && !dead) {
        box_restart();
    }
    rig.was_dead = dead;
    return !dead;
}

static void box_receive(struct box_packet *p)
{
    struct weft_wire_agg head;
    if (!box_is_there() ||
        !weft_wire_agg_decode(p->bytes, p->bytes + p->count, p->count, &head) ||
        (rig.fault == FAULT_TRIALS && *now() >= rig.fault_ns && head.number >= rounds_of_trial())) {
        return;
    }
    if ((int32_t)(head.epoch - rig.box.config.dense_epoch) > 0) {
        rig.box.config.dense_epoch = head.epoch; /* as io/dense_box.c */
    }
    box_net_receive(&rig.box_net, &rig.prng, *now(), &rig.box, rig.n, p);
}

static void deliver_due(void)
{
    static struct box_packet p;
    while (box_net_take(&rig.box_net, *now(), &p)) {
        if (p.to == BOX_NET_BOX) {
            box_receive(&p);
            continue;
        }
        bool lies =
            rig.fault == FAULT_LIES && *now() >= rig.fault_ns && *now() < rig.back_ns && p.to == 1;
        p.bytes[WEFT_AGG_HEADER_BYTES] ^= lies ? 0x40 : 0; /* the 24 bits of a float have it */
        (void)weft_agg_member_receive(&rig.node[p.to].member, p.bytes, p.count, *now());
    }
}

/* ---- links ----------------------------------------------------------------------------------- */

static void link_epoch(void *self, uint32_t epoch)
{
    struct node *node = self;
    weft_agg_member_epoch(&node->member, epoch, rig.exponent);
}

static void link_begin(void *self, const void *in, void *out, uint64_t count, uint64_t *direct)
{
    struct node *node = self;
    assert_false(node->summing);
    assert_int_equal(weft_agg_member_begin(&node->member, in, out, count, direct), WEFT_OK);
    node->summing = true;
}

static void link_stop(void *self)
{
    struct node *node = self;
    assert_true(node->summing && node->stop_ns == WEFT_NEVER);
    node->stop_ns = *now() + weft_prng_below(&rig.prng, 50 * WEFT_NS_PER_MS);
}

static uint64_t link_progress(void *self)
{
    const struct node *node = self;
    return node->member.counters.sums;
}

static void link_step(struct node *node, uint32_t r)
{
    uint8_t bytes[WEFT_AGG_PACKET_MAX];
    uint32_t count;
    while (node->summing && (count = weft_agg_member_send(&node->member, bytes, *now())) > 0) {
        box_net_send(&rig.box_net, &rig.prng, *now(), r, BOX_NET_BOX, bytes, count);
    }
    bool complete = weft_agg_member_is_done(&node->member);
    if (node->summing && (complete || *now() >= node->stop_ns)) {
        node->summing = false;
        node->stop_ns = WEFT_NEVER;
        weft_coll_box_summed(node->box, complete, *now());
    }
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static bool is_float(const struct op *op)
{
    return op->type == WEFT_COLL_F32;
}

static void rank_begin(struct node *node, uint32_t k)
{
    const struct op *op = &rig.op[k];
    struct weft_coll_call call = {
        .kind = op->kind,
        .type = op->type,
        .reduction = op->reduction,
        .count = op->count,
        .in = node->in[k],
        .out = op->in_place ? node->in[k] : node->out[k],
        .timeout_ns = op->timeout_ns != 0 ? op->timeout_ns : WEFT_NEVER,
        .user = k,
    };
    bool takes = weft_coll_box_takes(node->box, &call);
    assert_int_equal(takes, op->eligible);
    size_t bytes = takes ? weft_coll_box_work_bytes(node->box, &call)
                         : weft_coll_work_bytes(node->coll, &call);
    node->work[k] = aligned_alloc(64, (bytes + 64) / 64 * 64);
    assert_non_null(node->work[k]);
    memset(node->work[k], 0xa5, bytes); /* code must not rely on zeros */
    call.work = node->work[k];
    weft_status status = takes ? weft_coll_box_begin(node->box, &call, *now())
                               : weft_coll_begin(node->coll, &call, *now());
    assert_true(status == WEFT_OK || status == WEFT_PEER);
    if (status == WEFT_PEER) {
        node->done[k].status = WEFT_PEER;
        node->done_count++;
    }
}

static void rank_step(uint32_t r)
{
    struct node *node = &rig.node[r];
    struct weft_msgr msgr = fake_msgr(rig.net, r);
    struct weft_msg_event event;
    struct weft_coll_done done;
    weft_peer peer;
    while (node->begun < rig.ops && *now() >= node->begin_ns[node->begun] &&
           node->begun < node->done_count + OPEN) {
        rank_begin(node, node->begun++);
    }
    while (msgr.ops->poll(msgr.self, &event)) {
        weft_coll_event(node->coll, &event, *now());
    }
    if (weft_coll_deadline(node->coll) <= *now()) {
        weft_coll_on_deadline(node->coll, *now());
    }
    link_step(node, r);
    weft_coll_box_progress(node->box, *now());
    while (weft_coll_take_close(node->coll, &peer)) {
    }
    while (weft_coll_box_poll(node->box, &done)) {
        assert_true(done.user < rig.ops);
        node->done[done.user] = done;
        node->done_count++;
    }
}

static uint64_t next_ns(void)
{
    uint64_t ns = WEFT_NEVER;
    for (uint32_t r = 0; r < rig.n; r++) {
        const struct node *node = &rig.node[r];
        if (rig.net->nodes[r].dead) {
            continue;
        }
        ns = weft_min_u64(ns, weft_coll_deadline(node->coll));
        ns = weft_min_u64(ns, weft_coll_box_deadline(node->box));
        ns = weft_min_u64(ns, node->stop_ns);
        ns = node->summing ? weft_min_u64(ns, weft_agg_member_deadline(&node->member)) : ns;
        bool begins = node->begun < rig.ops && node->begun < node->done_count + OPEN;
        ns = begins ? weft_min_u64(ns, node->begin_ns[node->begun]) : ns;
        uint64_t held_ns = rig.net->held_until_ns[r];
        ns = held_ns > *now() ? weft_min_u64(ns, held_ns) : ns;
    }
    return weft_min_u64(ns, box_net_next_ns(&rig.box_net));
}

static bool all_done(void)
{
    bool done = true;
    for (uint32_t r = 0; r < rig.n; r++) {
        done = done && (rig.net->nodes[r].dead || rig.node[r].done_count == rig.ops);
    }
    return done;
}

static void step(void)
{
    if (!fake_step(rig.net)) {
        uint64_t next = next_ns();
        assert_true(next != WEFT_NEVER);
        *now() = weft_max_u64(*now(), next);
    }
    deliver_due();
    for (uint32_t r = 0; r < rig.n; r++) {
        if (!rig.net->nodes[r].dead) {
            rank_step(r);
        }
    }
}

static void run(void)
{
    while (!all_done()) {
        step();
        assert_true(*now() < patience_ns);
    }
}

/* ---- set up ---------------------------------------------------------------------------------- */

static void open_rank(uint32_t r, const struct weft_coll_config *common)
{
    struct node *node = &rig.node[r];
    struct weft_coll_config config = *common;
    struct weft_coll_box_config box;
    struct weft_agg_member_config member;
    memset(node, 0, sizeof(*node));
    node->stop_ns = WEFT_NEVER;
    config.rank = r;
    rig.net->nodes[r].name = weft_coll_name(config.epoch, r);
    rig.net->nodes[r].incarnation = 100 + r;
    weft_agg_member_config_default(&member);
    member.job = JOB;
    member.member = (uint16_t)r;
    member.members = rig.n;
    member.slots = SLOTS;
    member.values = 8 * (1 + (uint32_t)(seed % 4));
    member.element = rig.element;
    member.exponent = rig.exponent;
    weft_coll_box_config_default(&box);
    box.link =
        (struct weft_coll_box_link){node, link_epoch, link_begin, link_stop, link_progress};
    box.type = rig.element == WEFT_AGG_INTEGERS ? WEFT_COLL_I32 : WEFT_COLL_F32;
    box.exponent = rig.exponent;
    box.slots = member.slots;
    box.values = member.values;
    box.bytes_min = 4 * COUNT_BOXED;
    box.silence_ns = rig.silence_ns;
    box.retry_ns = rig.retry_ns;
    box.epoch = EPOCH - r + (r == 0 ? rig.ahead_s : 0); /* the latest is used */
    box.epoch_ns = *now();
    box.nonce = seed * 100 + r;
    config.settings = weft_coll_box_settings(&box, JOB);
    assert_int_equal(weft_agg_member_init(&node->member, &member), WEFT_OK);
    assert_int_equal(weft_coll_new(&config, fake_msgr(rig.net, r), &node->coll), WEFT_OK);
    assert_int_equal(weft_coll_box_new(&box, node->coll, &config, OPEN, &node->box), WEFT_OK);
}

static void rig_open(void)
{
    struct weft_coll_config config;
    weft_coll_config_default(&config);
    config.ranks = rig.n;
    config.epoch = 7;
    config.peers_max = 32;
    config.chunks_max = 4096;
    config.groups_max = 4;
    config.ops_max = OPEN + WEFT_COLL_BOX_OPS;
    config.pool_bytes = 4 << 20;
    rig.net = fake_net_new(seed);
    rig.box_net.packets = 0;
    rig.faulty = false;
    rig.was_dead = false;
    rig.box_config = (struct weft_agg_config){
        .members = UINT64_MAX >> (64 - rig.n),
        .slots = SLOTS,
        .job = JOB,
        .form = rig.element == WEFT_AGG_FLOATS ? WEFT_AGG_FLOAT32 : 0,
        .exponent = rig.exponent,
    };
    if (rig.fault == FAULT_MEMBERS) {
        rig.box_config.members = UINT64_MAX >> (63 - rig.n);
    } else if (rig.fault == FAULT_FORM && rig.element == WEFT_AGG_FLOATS) {
        rig.box_config.form = 0;
    } else if (rig.fault == FAULT_FORM && rig.element == WEFT_AGG_BLOCK_FLOATS) {
        rig.box_config.form = WEFT_AGG_FLOAT32;
    } else if (rig.fault == FAULT_FORM) {
        rig.box_config.exponent++;
    } else if (rig.fault == FAULT_EPOCH) {
        rig.box_config.dense_epoch = EPOCH + 1000;
    }
    assert_int_equal(weft_agg_box_init(&rig.box, &rig.box_config), WEFT_OK);
    for (uint32_t r = 0; r < rig.n; r++) {
        open_rank(r, &config);
    }
    for (uint32_t i = 0; i < rig.n; i++) {
        for (uint32_t j = 0; j < i; j++) {
            fake_connect(rig.net, i, j);
        }
    }
}

static void rig_close(void)
{
    fake_net_free(rig.net);
    for (uint32_t r = 0; r < rig.n; r++) {
        struct node *node = &rig.node[r];
        weft_coll_box_free(node->box);
        weft_coll_free(node->coll);
        weft_agg_member_fini(&node->member);
        for (uint32_t k = 0; k < OPS_MAX; k++) {
            free(node->work[k]);
            free(node->in[k]);
            free(node->out[k]);
        }
    }
    weft_agg_box_fini(&rig.box);
}

/* Sums of an earlier job with this epoch, in a slot's first round, or rounds. */
static void old_round(uint32_t slot, uint32_t round)
{
    uint8_t bytes[WEFT_AGG_PACKET_MAX] = {0};
    bool agreed = rig.element == WEFT_AGG_BLOCK_FLOATS;
    uint32_t count = agreed && round == 0 ? 8 : 8 * (1 + (uint32_t)(seed % 4));
    for (uint32_t m = 0; m < rig.n; m++) {
        uint32_t reply;
        struct weft_wire_agg head = {.kind = WEFT_AGG_DENSE,
                                     .flags = agreed ? WEFT_AGG_AGREED : rig.box_config.form,
                                     .exponent = rig.exponent,
                                     .job = JOB,
                                     .member = (uint16_t)m,
                                     .count = (uint16_t)count,
                                     .place = slot,
                                     .epoch = EPOCH,
                                     .number = round};
        weft_wire_agg_encode(bytes, &head);
        memset(bytes + WEFT_AGG_HEADER_BYTES, 0, 4 * count);
        (void)weft_agg_box_receive(&rig.box, bytes, WEFT_AGG_HEADER_BYTES + 4 * count, &reply);
    }
}

static void old_sums(void)
{
    rig.box.config.dense_epoch = EPOCH;
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        for (uint32_t round = 0; round < rounds_of_trial(); round++) {
            old_round(slot, round);
        }
    }
    assert_int_equal(rig.box.counts.packets[WEFT_AGG_COMPLETE], SLOTS * rounds_of_trial());
}

static void random_op(struct op *op)
{
    struct weft_prng *p = &rig.prng;
    enum weft_coll_type boxed = rig.element == WEFT_AGG_INTEGERS ? WEFT_COLL_I32 : WEFT_COLL_F32;
    *op = (struct op){.kind = WEFT_COLL_ALL_REDUCE, .type = boxed};
    op->eligible = weft_prng_chance(p, WEFT_PPM * 3 / 4);
    op->count = (uint32_t)weft_prng_range(p, COUNT_BOXED, COUNT_MAX);
    op->in_place = weft_prng_chance(p, WEFT_PPM / 2);
    op->huge = op->eligible && weft_prng_chance(p, WEFT_PPM / 4);
    if (is_float(op) && weft_prng_chance(p, WEFT_PPM / 2)) {
        op->reduction = WEFT_COLL_MEAN;
    }
    if (op->eligible) {
        return;
    }
    switch (weft_prng_below(p, 4)) {
    case 0:
        op->count = (uint32_t)weft_prng_range(p, 1, COUNT_BOXED - 1);
        break;
    case 1:
        op->reduction = WEFT_COLL_MAX;
        break;
    case 2:
        op->type = boxed == WEFT_COLL_I32 ? WEFT_COLL_F32 : WEFT_COLL_I32;
        op->reduction = WEFT_COLL_SUM;
        break;
    default:
        op->kind = WEFT_COLL_REDUCE; /* to rank 0 */
        break;
    }
}

/* Element i of rank r's vector in operation k. Sums are exact in any order, but values are rounded
 * in fixed point. */
static union element input(uint32_t r, uint32_t k, uint32_t i)
{
    uint64_t random = weft_mix64(seed ^ ((r * OPS + k) * UINT64_C(100003) + i));
    int32_t q = (int32_t)(random % 2001) - 1000;
    return is_float(&rig.op[k]) ? (union element){.x = ldexpf((float)q, rig.exponent - 2)}
                                : (union element){.q = q};
}

static void fill(void)
{
    for (uint32_t k = 0; k < rig.ops; k++) {
        const struct op *op = &rig.op[k];
        for (uint32_t r = 0; r < rig.n; r++) {
            struct node *node = &rig.node[r];
            free(node->in[k]);
            free(node->out[k]);
            node->in[k] = calloc(op->count, sizeof(union element));
            node->out[k] = calloc(op->count, sizeof(union element));
            assert_true(node->in[k] != NULL && node->out[k] != NULL);
            for (uint32_t i = 0; i < op->count; i++) {
                node->in[k][i] = input(r, k, i);
            }
        }
        if (op->huge) { /* for int32 the sum overflows */
            uint32_t at = (uint32_t)weft_prng_below(&rig.prng, op->count);
            rig.node[0].in[k][at].x = INFINITY;
            if (!is_float(op)) {
                rig.node[0].in[k][at].q = rig.node[1].in[k][at].q = INT32_MAX;
            }
        }
    }
}

static void random_job(enum fault fault)
{
    weft_prng_init(&rig.prng, seed);
    struct weft_prng *p = &rig.prng;
    rig.fault = fault;
    rig.fault_ns = weft_prng_below(p, 10 * WEFT_NS_PER_MS);
    rig.n = (uint32_t)weft_prng_range(p, 2, RANKS_MAX);
    rig.element = (uint8_t)weft_prng_below(p, 4);
    rig.exponent =
        rig.element == WEFT_AGG_FIXED ? (int8_t)((int)weft_prng_below(p, 40) - 30) : (int8_t)0;
    bool clean = weft_prng_chance(p, WEFT_PPM / 4);
    rig.box_net.loss_ppm = clean ? 0 : (uint32_t)weft_prng_below(p, 200000);
    rig.box_net.duplicate_ppm = clean ? 0 : (uint32_t)weft_prng_below(p, 200000);
    rig.box_net.slow_ppm = clean ? 0 : (uint32_t)weft_prng_below(p, 50000);
    rig_open();
    rig.ops = (uint32_t)weft_prng_range(p, 2, OPS);
    rig.op[0].eligible = false;
    for (uint32_t k = 0; k < rig.ops; k++) {
        random_op(&rig.op[k]);
    }
    fill();
    for (uint32_t r = 0; r < rig.n; r++) {
        uint64_t ns = 0;
        for (uint32_t k = 0; k < rig.ops; k++) {
            /* Some ranks call an operation later than a box may be silent. */
            bool late = weft_prng_chance(p, WEFT_PPM / 20) && fault != FAULT_OLD;
            ns += weft_prng_below(p, late ? 4 * silence_ns : 3 * WEFT_NS_PER_MS);
            rig.node[r].begin_ns[k] = ns;
        }
    }
    if (fault == FAULT_OLD) {
        old_sums();
    }
}

/* Operations that the box sums, each a millisecond after the one before. */
static void eligible_job(enum fault fault, uint64_t silent_ns)
{
    rig.silence_ns = silent_ns;
    random_job(fault);
    rig.silence_ns = silence_ns;
    for (uint32_t k = 0; k < rig.ops; k++) {
        rig.op[k] = (struct op){
            .kind = WEFT_COLL_ALL_REDUCE,
            .type = rig.element == WEFT_AGG_INTEGERS ? WEFT_COLL_I32 : WEFT_COLL_F32,
            .count = (uint32_t)weft_prng_range(&rig.prng, COUNT_BOXED, COUNT_MAX),
            .eligible = true,
        };
        for (uint32_t r = 0; r < rig.n; r++) {
            rig.node[r].begin_ns[k] = k * WEFT_NS_PER_MS;
        }
    }
    fill();
}

/* Operations that the box sums, each a tenth of a second after the one before. A box that has
 * failed is tried again. */
static void long_job_retried(enum fault fault, uint64_t silent_ns, uint64_t retry_ns)
{
    rig.silence_ns = silent_ns;
    rig.retry_ns = retry_ns;
    random_job(fault);
    rig.silence_ns = silence_ns;
    rig.retry_ns = WEFT_NEVER;
    rig.fault_ns = weft_prng_below(&rig.prng, 2 * WEFT_NS_PER_S);
    rig.box_net.loss_ppm /= 10;
    rig.ops = OPS_MAX;
    for (uint32_t k = 0; k < rig.ops; k++) {
        rig.op[k] = (struct op){
            .kind = WEFT_COLL_ALL_REDUCE,
            .type = rig.element == WEFT_AGG_INTEGERS ? WEFT_COLL_I32 : WEFT_COLL_F32,
            .count = (uint32_t)weft_prng_range(&rig.prng, COUNT_BOXED, 2 * COUNT_BOXED),
            .in_place = weft_prng_chance(&rig.prng, WEFT_PPM / 2),
            .eligible = true,
        };
        for (uint32_t r = 0; r < rig.n; r++) {
            rig.node[r].begin_ns[k] = k * 100 * WEFT_NS_PER_MS +
                                      weft_prng_below(&rig.prng, 10 * WEFT_NS_PER_MS);
        }
    }
    fill();
}

static void long_job(enum fault fault, uint64_t silent_ns)
{
    long_job_retried(fault, silent_ns, WEFT_NS_PER_S);
}

/* All operations but the first at once, each with a deadline; no packet is lost. */
static void burst(uint64_t at_ns)
{
    rig.box_net.loss_ppm = rig.box_net.slow_ppm = 0;
    rig.ops = 3 * OPEN;
    for (uint32_t k = 1; k < rig.ops; k++) {
        rig.op[k].timeout_ns = 60 * WEFT_NS_PER_S;
        for (uint32_t r = 0; r < rig.n; r++) {
            rig.node[r].begin_ns[k] = at_ns;
        }
    }
}

/* ---- checks ---------------------------------------------------------------------------------- */

static const union element *result(uint32_t r, uint32_t k)
{
    return rig.op[k].in_place ? rig.node[r].in[k] : rig.node[r].out[k];
}

static bool is_huge(uint32_t k, uint32_t i)
{
    const union element e = result(0, k)[i];
    return rig.op[k].huge && (is_float(&rig.op[k]) ? isinf(e.x) : true);
}

static void check_value(uint32_t k, uint32_t i)
{
    const struct op *op = &rig.op[k];
    const union element got = result(0, k)[i];
    double sum = 0, most = is_float(op) ? (double)input(0, k, i).x : input(0, k, i).q;
    for (uint32_t r = 0; r < rig.n; r++) {
        double value = is_float(op) ? (double)input(r, k, i).x : input(r, k, i).q;
        sum += value;
        most = value > most ? value : most;
    }
    if (is_huge(k, i) && is_float(op)) {
        return;
    }
    double wanted = op->reduction == WEFT_COLL_MAX ? most : sum;
    double error = 0;
    if (op->reduction == WEFT_COLL_MEAN) {
        wanted /= rig.n;
        error = fabs(wanted) * 0x1p-23;
    }
    if (rig.element == WEFT_AGG_FIXED && op->eligible) {
        error += weft_agg_error_bound(rig.n, rig.exponent);
    }
    if (rig.element == WEFT_AGG_BLOCK_FLOATS && op->eligible) {
        error += weft_agg_error_bound(rig.n, weft_agg_exponent(250, rig.n));
    }
    if (!is_float(op) && op->huge && got.q != (int32_t)wanted) {
        /* The element with the overflow: two values were replaced. */
        uint32_t wrapped = 2 * (uint32_t)INT32_MAX;
        for (uint32_t r = 2; r < rig.n; r++) {
            wrapped += input(r, k, i).bits;
        }
        assert_int_equal(got.bits, wrapped);
        return;
    }
    double value = is_float(op) ? (double)got.x : got.q;
    if (!(fabs(value - wanted) <= error)) {
        fail_msg("operation %u, element %u: %g instead of %g", k, i, value, wanted);
    }
}

static void check_results(void)
{
    for (uint32_t k = 0; k < rig.ops; k++) {
        const struct op *op = &rig.op[k];
        for (uint32_t r = 0; r < rig.n; r++) {
            char text[256];
            weft_coll_failure_text(weft_coll_failure(rig.node[r].coll), text, sizeof(text));
            if (rig.node[r].done[k].status != WEFT_OK) {
                fail_msg("rank %u, operation %u: %s", r, k, text);
            }
            assert_int_equal(rig.node[r].done[k].contributors_min, rig.n);
            assert_int_equal(rig.node[r].done[k].boxed, rig.node[0].done[k].boxed);
            if (r > 0 && op->kind == WEFT_COLL_ALL_REDUCE) {
                assert_memory_equal(result(r, k), result(0, k), 4 * (size_t)op->count);
            }
        }
        for (uint32_t i = 0; i < op->count; i++) {
            check_value(k, i);
        }
    }
}

struct tally {
    uint64_t operations, fallbacks, direct, boxed_then_not, retries, recoveries;
    uint64_t reasons[WEFT_COLL_BOX_REASONS];
};

static void check_box(struct tally *tally)
{
    uint64_t eligible = 0;
    const struct weft_coll_box *first = rig.node[0].box;
    const struct weft_coll_box_counters *c = weft_coll_box_counters(first);
    for (uint32_t k = 0; k < rig.ops; k++) {
        eligible += rig.op[k].eligible;
    }
    assert_int_equal(c->begun, eligible);
    assert_int_equal(c->done, eligible);
    assert_int_equal(c->own_done, c->own_begun);
    assert_int_equal(c->operations + c->fallbacks, eligible);
    for (uint32_t r = 1; r < rig.n; r++) {
        const struct weft_coll_box *box = rig.node[r].box;
        assert_int_equal(weft_coll_box_state(box), weft_coll_box_state(first));
        assert_int_equal(weft_coll_box_reason(box), weft_coll_box_reason(first));
        assert_memory_equal(weft_coll_box_counters(box), c, sizeof(*c));
    }
    tally->operations += c->operations;
    tally->fallbacks += c->fallbacks;
    tally->direct += c->direct_elements;
    tally->retries += c->retries;
    tally->recoveries += c->recoveries;
    tally->boxed_then_not += c->operations > 0 && c->fallbacks > 0;
    tally->reasons[weft_coll_box_reason(first)]++;
}

static void jobs(enum fault fault, uint32_t seeds, struct tally *tally)
{
    for (seed = 1; seed <= seeds; seed++) {
        random_job(fault);
        run();
        check_results();
        check_box(tally);
        rig_close();
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* A box that works sums every eligible vector, however late a rank is, and whatever packets are
 * lost; what it cannot sum, the ranks do. */
static void test_works(void **state)
{
    (void)state;
    struct tally tally = {0};
    jobs(FAULT_NONE, FEWER(200), &tally);
    assert_int_equal(tally.fallbacks, 0);
    assert_int_equal(tally.reasons[WEFT_COLL_BOX_FINE], FEWER(200));
    assert_true(tally.operations > 0 && tally.direct > 0);
}

/* It fails at a random time: the vectors before that were summed by it, those after by the
 * ranks. */
static void test_dies(void **state)
{
    (void)state;
    struct tally tally = {0};
    jobs(FAULT_DIES, FEWER(300), &tally);
    assert_true(tally.reasons[WEFT_COLL_BOX_SILENT] > 0);
    assert_int_equal(tally.reasons[WEFT_COLL_BOX_SILENT] + tally.reasons[WEFT_COLL_BOX_FINE], FEWER(300));
    assert_true(tally.boxed_then_not > 0);
}

static void test_restarts(void **state)
{
    (void)state;
    struct tally tally = {0};
    jobs(FAULT_RESTARTS, FEWER(300), &tally);
    assert_true(tally.reasons[WEFT_COLL_BOX_SILENT] > 0);
    assert_true(tally.boxed_then_not > 0);
}

/* One rank gets another sum than the others: none uses it. */
static void test_lies(void **state)
{
    (void)state;
    struct tally tally = {0};
    jobs(FAULT_LIES, FEWER(200), &tally);
    assert_true(tally.reasons[WEFT_COLL_BOX_DIFFERS] > 0);
    assert_true(tally.reasons[WEFT_COLL_BOX_WRONG] > 0); /* in the trial */
}

/* The reason that the ranks find in each job with an eligible operation. */
static void never(enum fault fault, enum weft_coll_box_reason reason)
{
    struct tally tally = {0};
    jobs(fault, 60, &tally);
    assert_int_equal(tally.operations, 0);
    assert_true(tally.fallbacks > 0 && tally.reasons[reason] > 30);
    assert_int_equal(tally.reasons[reason] + tally.reasons[WEFT_COLL_BOX_FINE], 60);
}

static void test_never(void **state)
{
    (void)state;
    never(FAULT_NEVER, WEFT_COLL_BOX_SILENT);
    never(FAULT_MEMBERS, WEFT_COLL_BOX_SILENT);
    never(FAULT_EPOCH, WEFT_COLL_BOX_SILENT);
    never(FAULT_FORM, WEFT_COLL_BOX_FORM);
    never(FAULT_OLD, WEFT_COLL_BOX_WRONG);
}

static void long_end(struct tally *tally)
{
    run();
    check_results();
    check_box(tally);
    rig_close();
}

/* A box that has died and comes back is used again, from the same vector on at all ranks. */
static void test_comes_back(void **state)
{
    (void)state;
    struct tally tally = {0};
    for (seed = 1; seed <= 20; seed++) {
        long_job(FAULT_DIES, WEFT_NS_PER_S);
        rig.back_ns = rig.fault_ns + weft_prng_below(&rig.prng, 14 * WEFT_NS_PER_S);
        long_end(&tally);
        rig.back_ns = WEFT_NEVER;
    }
    assert_int_equal(tally.reasons[WEFT_COLL_BOX_FINE], 20);
    assert_true(tally.recoveries > 15 && tally.retries == tally.recoveries);
}

static bool all_off(void)
{
    bool off = true;
    for (uint32_t r = 0; r < rig.n; r++) {
        off = off && weft_coll_box_state(rig.node[r].box) == WEFT_COLL_BOX_OFF;
    }
    return off;
}

/* The ranks agree slowly, so the link sums all vectors that wait. Then they learn that the first of
 * these sums was altered, and soon use the box again: it sums those that still wait once more. */
static void test_ahead_of_a_failure(void **state)
{
    const uint64_t at_ns = 10 * WEFT_NS_PER_S;
    uint32_t soon = 0;
    (void)state;
    for (seed = 1; seed <= 20; seed++) {
        struct tally tally = {0};
        long_job_retried(FAULT_LIES, WEFT_NS_PER_S, WEFT_NS_PER_US);
        burst(at_ns);
        rig.fault_ns = at_ns;
        rig.back_ns = at_ns + WEFT_NS_PER_MS;
        while (*now() < at_ns) {
            step();
        }
        rig.net->held_until_ns[0] = at_ns + 200 * WEFT_NS_PER_MS;
        while (!all_off()) {
            step();
        }
        assert_int_equal(weft_coll_box_reason(rig.node[0].box), WEFT_COLL_BOX_DIFFERS);
        rig.net->held_until_ns[0] = *now() + WEFT_NS_PER_S / 2; /* so the pause ends */
        long_end(&tally);
        assert_int_equal(tally.recoveries, 1);
        assert_in_range(tally.fallbacks, 1, rig.ops - 2);
        soon += tally.fallbacks < OPEN - 1;
        rig.back_ns = WEFT_NEVER;
    }
    assert_true(soon > 5);
}

/* The epoch is the clock's at the first vector: a job that ended before that one is no obstacle,
 * though it began later than this one. */
static void test_epoch_is_of_the_first_vector(void **state)
{
    (void)state;
    for (seed = 1; seed <= 10; seed++) {
        struct tally tally = {0};
        long_job(FAULT_NONE, WEFT_NS_PER_S);
        burst(20 * WEFT_NS_PER_S);
        for (uint32_t r = 0; r < rig.n; r++) {
            rig.node[r].begin_ns[0] = 10 * WEFT_NS_PER_S;
        }
        rig.box.config.dense_epoch = EPOCH + 5;
        long_end(&tally);
        assert_int_equal(tally.fallbacks, 0);
        assert_int_equal(rig.box.config.dense_epoch, EPOCH + 9);
    }
}

/* One rank's clock is a year ahead, or ten seconds: the box's epoch is at most a minute after the
 * other ranks' clocks, so it is of use to the next job that begins later than that; also after a
 * later trial. */
static void test_a_wrong_clock_does_not_outlive_its_job(void **state)
{
    (void)state;
    for (seed = 1; seed <= 10; seed++) {
        struct tally tally = {0};
        const bool is_wrong = seed % 2 == 0;
        rig.ahead_s = is_wrong ? 365 * 86400 : 10;
        long_job_retried(seed % 4 < 2 ? FAULT_NONE : FAULT_FORM, WEFT_NS_PER_S, WEFT_NS_PER_MS);
        run();
        const uint32_t least = EPOCH + (is_wrong ? 61 - rig.n : 10);
        assert_in_range(rig.node[0].member.config.epoch, least,
                        least + *now() / WEFT_NS_PER_S);
        check_results();
        check_box(&tally);
        rig_close();
        rig.ahead_s = 0;
        assert_int_equal(tally.retries > 0, seed % 4 >= 2);
    }
}

/* A box that fails each trial at once is tried at most once a second, so no epoch is later than the
 * clock: the next job's is later than all of this one. */
static void test_trials_do_not_outrun_the_clock(void **state)
{
    (void)state;
    for (seed = 1; seed <= 10; seed++) {
        struct tally tally = {0};
        long_job_retried(FAULT_FORM, WEFT_NS_PER_S, WEFT_NS_PER_MS);
        for (uint32_t r = 0; r < rig.n; r++) {
            for (uint32_t k = 0; k < rig.ops; k++) {
                rig.node[r].begin_ns[k] /= 5;
            }
        }
        run();
        assert_true(rig.node[0].member.config.epoch <= EPOCH + *now() / WEFT_NS_PER_S);
        check_results();
        check_box(&tally);
        rig_close();
        assert_true(tally.retries >= 3);
        assert_int_equal(tally.operations, 0);
    }
}

/* Where only deadlines limit the silence of a box, later trials end, too, and others follow. */
static void test_trials_end_without_silence(void **state)
{
    (void)state;
    for (seed = 1; seed <= 10; seed++) {
        struct tally tally = {0};
        long_job(FAULT_DIES, WEFT_NEVER);
        for (uint32_t k = 0; k < rig.ops; k++) {
            rig.op[k].timeout_ns = 400 * WEFT_NS_PER_MS;
        }
        long_end(&tally);
        assert_int_equal(tally.recoveries, 0);
        assert_in_range(tally.retries, 2, 3);
    }
}

/* The other faults, with later trials: those of a box that has another configuration fail, and one
 * with an earlier job's sums or epoch is used when the job's epoch is later. */
static void test_others_are_tried_again(void **state)
{
    const struct {
        enum fault fault;
        enum weft_coll_box_reason reason;
    } rows[] = {
        {FAULT_MEMBERS, WEFT_COLL_BOX_SILENT},
        {FAULT_FORM, WEFT_COLL_BOX_FORM},
        {FAULT_LIES, WEFT_COLL_BOX_WRONG},
        {FAULT_OLD, WEFT_COLL_BOX_FINE},
        {FAULT_EPOCH, WEFT_COLL_BOX_FINE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (seed = 1; seed <= 5; seed++) {
            struct tally tally = {0};
            long_job(rows[i].fault, WEFT_NS_PER_S / 10);
            rig.box_net.loss_ppm = rig.box_net.slow_ppm = 0;
            rig.box.config.dense_epoch = rows[i].fault == FAULT_EPOCH ? EPOCH + 10 : EPOCH;
            long_end(&tally);
            assert_int_equal(tally.reasons[rows[i].reason], 1);
            assert_int_equal(tally.recoveries, rows[i].reason == WEFT_COLL_BOX_FINE);
            assert_true(tally.retries > 0);
        }
    }
}

/* It dies and comes back again and again, at any time: in trials, between them, and while the ranks
 * agree. */
static void test_flaps(void **state)
{
    (void)state;
    struct tally tally = {0};
    for (seed = 1; seed <= 30; seed++) {
        long_job(FAULT_FLAPS, WEFT_NS_PER_S / 10);
        rig.flap_ns = weft_prng_range(&rig.prng, 100, 5000) * WEFT_NS_PER_MS;
        long_end(&tally);
    }
    assert_true(tally.recoveries > 30 && tally.retries > tally.recoveries);
    assert_true(tally.operations > 0 && tally.fallbacks > 0);
}

/* A box that passes each trial and then sums nothing is tried ever more rarely: in 40 s, with
 * pauses of 1.6, 3.2, 6.4 and 12.8 s, four times. */
static void test_pauses(void **state)
{
    (void)state;
    for (seed = 1; seed <= 10; seed++) {
        struct tally tally = {0};
        long_job(FAULT_TRIALS, WEFT_NS_PER_S / 20);
        rig.box_net.loss_ppm = rig.box_net.slow_ppm = 0;
        rig.fault_ns = 0;
        long_end(&tally);
        assert_in_range(tally.recoveries, 3, 5);
    }
}

/* A rank dies while a box is tried again: all operations of the others end. */
static void test_rank_dies_later(void **state)
{
    (void)state;
    uint64_t retries = 0;
    for (seed = 1; seed <= 30; seed++) {
        long_job(FAULT_FLAPS, WEFT_NS_PER_S / 10);
        rig.flap_ns = WEFT_NS_PER_S;
        uint64_t at_ns = weft_prng_below(&rig.prng, 30 * WEFT_NS_PER_S);
        while (!all_done() && *now() < at_ns) {
            step();
        }
        fake_kill(rig.net, rig.n - 1);
        run();
        retries += weft_coll_box_counters(rig.node[0].box)->retries;
        rig_close();
    }
    assert_true(retries > 0);
}

/* A rank dies: all operations of the others end, and no link uses their buffers any more. */
static void test_rank_dies(void **state)
{
    (void)state;
    uint64_t failed = 0;
    for (seed = 1; seed <= FEWER(200); seed++) {
        random_job(FAULT_NONE);
        uint64_t at_ns = weft_prng_below(&rig.prng, 10 * WEFT_NS_PER_MS);
        while (!all_done() && *now() < at_ns) {
            step();
        }
        fake_kill(rig.net, rig.n - 1);
        run();
        for (uint32_t r = 0; r + 1 < rig.n; r++) {
            assert_false(rig.node[r].summing);
            for (uint32_t k = 0; k < rig.ops; k++) {
                weft_status status = rig.node[r].done[k].status;
                assert_true(status == WEFT_OK || status == WEFT_PEER);
                failed += status == WEFT_PEER;
            }
        }
        rig_close();
    }
    assert_true(failed > 0);
}

/* The last rank has failed the others: they report it, and no link uses their buffers any more. */
static void check_named(enum weft_coll_reason reason, uint64_t until_ns)
{
    bool done = false;
    while (!done) {
        step();
        assert_true(*now() < until_ns);
        done = true;
        for (uint32_t r = 0; r + 1 < rig.n; r++) {
            done = done && rig.node[r].done_count == rig.ops;
        }
    }
    for (uint32_t r = 0; r + 1 < rig.n; r++) {
        const struct weft_coll_failure *failure = weft_coll_failure(rig.node[r].coll);
        assert_false(rig.node[r].summing);
        assert_int_equal(failure->reason, reason);
        assert_int_equal(failure->rank, rig.n - 1);
    }
}

/* A vector waits for those before it no longer than its own timeout. */
static void test_timeout_behind_another(void **state)
{
    const uint64_t timeout_ns = 20 * WEFT_NS_PER_S;
    (void)state;
    for (seed = 1; seed <= FEWER(100); seed++) {
        eligible_job(FAULT_NONE, silence_ns);
        rig.op[rig.ops - 1].timeout_ns = timeout_ns;
        /* Often this one is the first, for which no rank has used the box yet. */
        uint32_t missing = (uint32_t)weft_prng_below(&rig.prng, rig.ops);
        for (uint32_t k = missing; k < rig.ops; k++) {
            rig.node[rig.n - 1].begin_ns[k] = WEFT_NEVER;
        }
        check_named(WEFT_COLL_TIMEOUT, 2 * timeout_ns);
        rig_close();
    }
}

/* Nor for a box whose silence has no limit: the ranks sum all of them in time. */
static void test_slow_for_another(void **state)
{
    const uint64_t timeout_ns = 20 * WEFT_NS_PER_S;
    (void)state;
    for (seed = 1; seed <= FEWER(100); seed++) {
        struct tally tally = {0};
        eligible_job(FAULT_NEVER, WEFT_NEVER);
        rig.op[rig.ops - 1].timeout_ns = timeout_ns;
        run();
        assert_true(*now() < timeout_ns);
        check_results();
        check_box(&tally);
        assert_int_equal(tally.reasons[WEFT_COLL_BOX_SLOW], 1);
        rig_close();
    }
}

/* If neither its silence nor an operation has a limit, a box that is not there still fails its
 * first trial, and the ranks sum. */
static void test_first_trial_ends_without_silence(void **state)
{
    (void)state;
    for (seed = 1; seed <= 20; seed++) {
        struct tally tally = {0};
        char text[256];
        eligible_job(FAULT_NEVER, WEFT_NEVER);
        run();
        assert_in_range(*now(), 16 * WEFT_NS_PER_S, 20 * WEFT_NS_PER_S);
        check_results();
        check_box(&tally);
        assert_int_equal(tally.reasons[WEFT_COLL_BOX_SILENT], 1);
        weft_coll_box_reason_text(rig.node[0].box, text, sizeof(text));
        assert_string_equal(text, "a rank got no sum from it for 16000 ms");
        rig_close();
    }
}

/* A rank that closes while all wait for the box is noticed, however long that may be silent. */
static void test_rank_leaves(void **state)
{
    (void)state;
    for (seed = 1; seed <= FEWER(100); seed++) {
        eligible_job(FAULT_NEVER, WEFT_NEVER);
        while (*now() < WEFT_NS_PER_S) {
            step();
        }
        fake_end(rig.net, rig.n - 1, WEFT_DOWN_CLOSED);
        check_named(WEFT_COLL_LEFT, 10 * WEFT_NS_PER_S);
        rig_close();
    }
}

/* Two ranks with different settings of the box. */
static void test_settings(void **state)
{
    (void)state;
    struct weft_coll_box_config one, two;
    weft_coll_box_config_default(&one);
    two = one;
    assert_int_equal(weft_coll_box_settings(&one, 1), weft_coll_box_settings(&two, 1));
    assert_int_not_equal(weft_coll_box_settings(&one, 1), weft_coll_box_settings(&two, 2));
    two.bytes_min++;
    assert_int_not_equal(weft_coll_box_settings(&one, 1), weft_coll_box_settings(&two, 1));
    two = one;
    two.retry_ns++;
    assert_int_not_equal(weft_coll_box_settings(&one, 1), weft_coll_box_settings(&two, 1));
    two = one;
    two.exponent = -3;
    assert_int_not_equal(weft_coll_box_settings(&one, 1), weft_coll_box_settings(&two, 1));
    one.exponent = -2; /* differs from -3 in the bits in which job 1 differs from 2 */
    assert_int_not_equal(weft_coll_box_settings(&one, 1), weft_coll_box_settings(&two, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_works),     cmocka_unit_test(test_dies),
        cmocka_unit_test(test_restarts),  cmocka_unit_test(test_lies),
        cmocka_unit_test(test_never),     cmocka_unit_test(test_rank_dies),
        cmocka_unit_test(test_timeout_behind_another),
        cmocka_unit_test(test_slow_for_another),
        cmocka_unit_test(test_rank_leaves),
        cmocka_unit_test(test_comes_back),
        cmocka_unit_test(test_ahead_of_a_failure),
        cmocka_unit_test(test_epoch_is_of_the_first_vector),
        cmocka_unit_test(test_a_wrong_clock_does_not_outlive_its_job),
        cmocka_unit_test(test_trials_do_not_outrun_the_clock),
        cmocka_unit_test(test_trials_end_without_silence),
        cmocka_unit_test(test_first_trial_ends_without_silence),
        cmocka_unit_test(test_others_are_tried_again),
        cmocka_unit_test(test_flaps),
        cmocka_unit_test(test_pauses),
        cmocka_unit_test(test_rank_dies_later),
        cmocka_unit_test(test_settings),
    };
    return cmocka_run_group_tests(tests, NULL, print_seed);
}
