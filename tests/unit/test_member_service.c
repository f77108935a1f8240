/* Coordinator and members over a transport in memory: joining, waiting for the list, records before
 * replies, a failing journal, broken connections, and peers that are not members. */
#include "fake_msgr.h"

#include "member/client.h"
#include "member/service.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>

enum { COORDINATOR = 0, MEMBERS = 5, PEERS = 32 };

struct bench {
    struct fake_net *net;
    struct weft_roster *roster;
    struct weft_member_service *service;
    struct weft_member_client *clients[MEMBERS + 1]; /* client of node 1, 2, .. */
    uint64_t now_ns;
    uint32_t records;
    uint32_t synced; /* records on the disk at the last sync */
    bool broken;
    uint32_t paused; /* a suspended node; 0 = none */
    char notes[256];
};

static bool on_record(void *arg, uint8_t op, const uint8_t *bytes, size_t count)
{
    struct bench *b = arg;
    struct weft_member_request q;
    assert_int_equal(weft_member_request_unpack(op, bytes, count, &q), WEFT_OK);
    assert_true(op == WEFT_MEMBER_LEAVE || q.epoch != 0);
    b->records++;
    return !b->broken;
}

static bool on_sync(void *arg)
{
    struct bench *b = arg;
    b->synced = b->records;
    return !b->broken;
}

static void on_note(void *arg, enum weft_member_note what, const struct weft_member_request *who,
                    uint16_t status)
{
    static const char *const names[] = {"joined", "refused", "left",
                                        "expired", "reclaimed", "complete"};
    struct bench *b = arg;
    size_t used = strlen(b->notes);
    (void)who;
    (void)snprintf(b->notes + used, sizeof(b->notes) - used, "%s%s ", names[what],
                   status == WEFT_MEMBER_OK ? "" : "!");
}

static struct bench bench_make(uint64_t seed)
{
    struct bench b = {.net = fake_net_new(seed), .now_ns = WEFT_NS_PER_S};
    struct weft_roster_config config;
    weft_roster_config_default(&config);
    config.workers = 2;
    config.shards = 4;
    assert_int_equal(weft_roster_new(&config, &b.roster), WEFT_OK);
    return b;
}

/* Call when the bench is at its final address. */
static void serve(struct bench *b)
{
    const struct weft_member_service_config config = {.peers_max = PEERS,
                                                      .slots = 4,
                                                      .shards_max = 32,
                                                      .roster = b->roster,
                                                      .record = on_record,
                                                      .sync = on_sync,
                                                      .note = on_note,
                                                      .arg = b};
    b->net->nodes[COORDINATOR].name = weft_rpc_name(WEFT_ROLE_COORDINATOR, 0);
    assert_int_equal(weft_member_service_new(&config, fake_msgr(b->net, COORDINATOR), &b->service),
                     WEFT_OK);
    assert_int_equal(weft_member_service_expects_max(&config), 4);
}

static void add(struct bench *b, uint32_t node, uint8_t role, uint32_t wanted)
{
    const struct weft_member_client_config config = {
        .role = role,
        .member = node,
        .incarnation = 1,
        .rank = role == WEFT_ROLE_WORKER ? wanted : WEFT_MEMBER_NONE,
        .first = role == WEFT_ROLE_SERVER ? wanted : WEFT_MEMBER_NONE,
        .span = role == WEFT_ROLE_SERVER ? 2 : 0};
    b->net->nodes[node].name = weft_rpc_name(WEFT_ROLE_MEMBER, node);
    assert_int_equal(weft_member_client_new(&config, fake_msgr(b->net, node), &b->clients[node]),
                     WEFT_OK);
}

static void bench_free(struct bench *b)
{
    for (uint32_t n = 1; n <= MEMBERS; n++) {
        weft_member_client_free(b->clients[n]);
    }
    weft_member_service_free(b->service);
    weft_roster_free(b->roster);
    fake_net_free(b->net);
}

/* Process events and deadlines at all nodes, and deliver one chunk, until no chunk can be
 * delivered. */
static void settle(struct bench *b)
{
    bool moved = true;
    for (uint32_t i = 0; moved || i < 3; i++) {
        struct weft_msg_event event;
        struct weft_msgr msgr = fake_msgr(b->net, COORDINATOR);
        while (b->service != NULL && msgr.ops->poll(msgr.self, &event)) {
            weft_member_service_event(b->service, &event, b->now_ns);
        }
        if (b->service != NULL) {
            weft_member_service_progress(b->service, b->now_ns);
            /* no reply before its record is synced */
            assert_true(b->broken || b->synced == b->records);
        }
        for (uint32_t n = 1; n <= MEMBERS; n++) {
            if (b->clients[n] == NULL || b->net->nodes[n].dead || n == b->paused) {
                continue;
            }
            if (weft_member_client_wants_peer(b->clients[n], b->now_ns) &&
                !b->net->nodes[COORDINATOR].dead) {
                weft_member_client_connecting(b->clients[n], fake_peer(COORDINATOR), b->now_ns);
                fake_connect(b->net, n, COORDINATOR);
            }
            msgr = fake_msgr(b->net, n);
            while (msgr.ops->poll(msgr.self, &event)) {
                weft_member_client_event(b->clients[n], &event, b->now_ns);
            }
            weft_member_client_progress(b->clients[n], b->now_ns);
        }
        moved = fake_step(b->net);
        assert_true(i < 100000);
    }
}

static const struct weft_member_state *state_of(const struct bench *b, uint32_t node)
{
    return weft_member_client_state(b->clients[node]);
}

/* Run for the duration of a lease, with heartbeats. */
static void pass(struct bench *b, uint64_t span_ns)
{
    for (uint64_t end_ns = b->now_ns + span_ns; b->now_ns < end_ns;) {
        b->now_ns += 200 * WEFT_NS_PER_MS;
        settle(b);
    }
}

static void publish(struct bench *b, uint32_t node, uint16_t port)
{
    struct weft_member_address addresses[2] = {{.port = port}, {.port = (uint16_t)(port + 1)}};
    weft_member_client_publish(b->clients[node], addresses);
}

static void any_order(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct bench b = bench_make(seed);
        serve(&b);
        add(&b, 1, WEFT_ROLE_WORKER, WEFT_MEMBER_NONE);
        settle(&b);
        assert_int_equal(state_of(&b, 1)->phase, WEFT_MEMBER_JOINED);
        assert_int_equal(state_of(&b, 1)->grant.rank, 0);
        assert_int_equal(state_of(&b, 1)->list.version, 0); /* the member waits */
        add(&b, 2, WEFT_ROLE_SERVER, WEFT_MEMBER_NONE);
        add(&b, 3, WEFT_ROLE_SERVER, WEFT_MEMBER_NONE);
        settle(&b);
        publish(&b, 2, 7700);
        settle(&b);
        assert_int_equal(state_of(&b, 1)->list.version, 0);
        publish(&b, 3, 7800);
        settle(&b);
        assert_int_equal(state_of(&b, 1)->list.count, 4); /* the member is notified at once */
        uint16_t first = state_of(&b, 1)->list.addresses[0].port;
        assert_true(first == (state_of(&b, 2)->grant.first == 0 ? 7700 : 7800));
        pass(&b, 12 * WEFT_NS_PER_S); /* longer than a lease: heartbeats keep all leases */
        assert_int_equal(weft_roster_counters(b.roster)->expired, 0);
        bench_free(&b);
    }
}

static void a_moved_shard_is_told(void **state)
{
    (void)state;
    struct bench b = bench_make(3);
    serve(&b);
    add(&b, 1, WEFT_ROLE_WORKER, 1);
    add(&b, 2, WEFT_ROLE_SERVER, 0);
    add(&b, 3, WEFT_ROLE_SERVER, 2);
    publish(&b, 2, 7700);
    publish(&b, 3, 7800);
    settle(&b);
    assert_int_equal(state_of(&b, 1)->list.addresses[2].port, 7800);
    fake_kill(b.net, 3);
    add(&b, 4, WEFT_ROLE_SERVER, 2);
    publish(&b, 4, 7900);
    settle(&b);
    assert_int_equal(state_of(&b, 4)->phase, WEFT_MEMBER_JOINING); /* claimed, for now */
    assert_int_equal(state_of(&b, 4)->refusal.status, WEFT_MEMBER_CLAIMED);
    pass(&b, 6 * WEFT_NS_PER_S);
    assert_int_equal(state_of(&b, 4)->phase, WEFT_MEMBER_JOINED);
    assert_int_equal(state_of(&b, 1)->list.addresses[2].port, 7900);
    bench_free(&b);
}

static void a_claim_is_given_up(void **state)
{
    (void)state;
    struct bench b = bench_make(4);
    serve(&b);
    add(&b, 2, WEFT_ROLE_SERVER, 0);
    settle(&b);
    add(&b, 3, WEFT_ROLE_SERVER, 0);
    pass(&b, 5 * WEFT_NS_PER_S);
    assert_int_equal(state_of(&b, 3)->phase, WEFT_MEMBER_JOINING);
    pass(&b, 1 * WEFT_NS_PER_S);
    assert_int_equal(state_of(&b, 3)->phase, WEFT_MEMBER_IS_REFUSED);
    assert_int_equal(state_of(&b, 3)->refusal.status, WEFT_MEMBER_CLAIMED);
    assert_int_equal(state_of(&b, 2)->phase, WEFT_MEMBER_JOINED);
    assert_int_equal(weft_member_client_deadline(b.clients[3]), WEFT_NEVER);
    bench_free(&b);
}

static void leaving(void **state)
{
    (void)state;
    struct bench b = bench_make(5);
    serve(&b);
    add(&b, 1, WEFT_ROLE_WORKER, 0);
    add(&b, 2, WEFT_ROLE_WORKER, 1);
    settle(&b);
    weft_member_client_leave(b.clients[1], true);
    weft_member_client_leave(b.clients[2], true);
    settle(&b);
    assert_int_equal(state_of(&b, 1)->phase, WEFT_MEMBER_IS_GONE);
    assert_true(weft_roster_is_over(b.roster));
    assert_non_null(strstr(b.notes, "left left"));
    assert_int_equal(b.records, 4);
    bench_free(&b);
}

static void coordinator_dies_and_returns(void **state)
{
    (void)state;
    struct bench b = bench_make(6);
    serve(&b);
    add(&b, 1, WEFT_ROLE_WORKER, 0);
    add(&b, 2, WEFT_ROLE_SERVER, 0);
    publish(&b, 2, 7700);
    settle(&b);
    uint64_t epoch = state_of(&b, 2)->grant.epoch;
    fake_kill(b.net, COORDINATOR);
    weft_member_service_free(b.service);
    weft_roster_free(b.roster);
    b.service = NULL;
    pass(&b, 20 * WEFT_NS_PER_S);
    assert_int_equal(state_of(&b, 2)->phase, WEFT_MEMBER_JOINED); /* the work continues */
    assert_false(state_of(&b, 2)->is_connected);
    for (uint32_t i = 0; i < FAKE_EXPECTS; i++) { /* buffers for replies that will not arrive */
        assert_false(b.net->nodes[2].expects[i].live);
    }
    /* Another coordinator without state. */
    struct bench other = bench_make(7);
    b.roster = other.roster;
    fake_net_free(other.net);
    b.net->nodes[COORDINATOR].dead = false;
    memset(b.net->nodes[COORDINATOR].expects, 0, sizeof(b.net->nodes[COORDINATOR].expects));
    b.net->nodes[COORDINATOR].events_head = b.net->nodes[COORDINATOR].events_tail;
    serve(&b);
    pass(&b, 1 * WEFT_NS_PER_S);
    assert_true(state_of(&b, 2)->is_connected);
    assert_int_equal(state_of(&b, 2)->grant.epoch, epoch);
    assert_int_equal(weft_roster_members(b.roster), 2);
    assert_non_null(strstr(b.notes, "joined"));
    bench_free(&b);
}

/* A suspended worker finds that its slot was given to another process and is free again. */
static void registers_again(void **state)
{
    (void)state;
    struct bench b = bench_make(10);
    serve(&b);
    add(&b, 1, WEFT_ROLE_WORKER, 0);
    settle(&b);
    uint64_t epoch = state_of(&b, 1)->grant.epoch;
    b.paused = 1;
    pass(&b, 6 * WEFT_NS_PER_S);
    add(&b, 2, WEFT_ROLE_WORKER, 0);
    settle(&b);
    assert_int_equal(state_of(&b, 2)->phase, WEFT_MEMBER_JOINED);
    weft_member_client_leave(b.clients[2], false);
    settle(&b);
    assert_int_equal(weft_roster_members(b.roster), 0);
    b.paused = 0;
    pass(&b, 2 * WEFT_NS_PER_S);
    assert_int_equal(state_of(&b, 1)->phase, WEFT_MEMBER_JOINED);
    assert_int_equal(weft_roster_members(b.roster), 1);
    /* above that of the process in between */
    assert_true(state_of(&b, 1)->grant.epoch > epoch + 1);
    bench_free(&b);
}

/* The lease of a suspended server expires, and its next message renews it. If another process has
 * the slot meanwhile, the reply to the next heartbeat reports that. */
static void a_server_sleeps(void **state)
{
    (void)state;
    struct bench b = bench_make(11);
    serve(&b);
    add(&b, 2, WEFT_ROLE_SERVER, 0);
    settle(&b);
    b.paused = 2;
    pass(&b, 6 * WEFT_NS_PER_S);
    assert_string_equal(b.notes, "joined expired ");
    b.paused = 0;
    pass(&b, 2 * WEFT_NS_PER_S);
    assert_string_equal(b.notes, "joined expired reclaimed ");
    assert_int_equal(state_of(&b, 2)->phase, WEFT_MEMBER_JOINED);
    b.paused = 2;
    pass(&b, 6 * WEFT_NS_PER_S);
    add(&b, 3, WEFT_ROLE_SERVER, 0);
    settle(&b);
    b.paused = 0;
    pass(&b, 2 * WEFT_NS_PER_S);
    assert_int_equal(state_of(&b, 3)->phase, WEFT_MEMBER_JOINED);
    assert_int_equal(state_of(&b, 2)->phase, WEFT_MEMBER_REPLACED);
    assert_int_equal(state_of(&b, 2)->refusal.status, WEFT_MEMBER_SUPERSEDED); /* with an error
                                                                                * text */
    assert_string_equal(b.notes, "joined expired reclaimed expired joined refused! refused! ");
    bench_free(&b);
}

/* The same if a supervisor has started a later process in the slot: the heartbeat itself is
 * refused. */
static void a_server_sleeps_and_its_supervisor_replaces_it(void **state)
{
    (void)state;
    struct bench b = bench_make(12);
    serve(&b);
    add(&b, 2, WEFT_ROLE_SERVER, 0);
    settle(&b);
    b.paused = 2;
    const struct weft_member_client_config later = {.role = WEFT_ROLE_SERVER,
                                                    .member = 2,
                                                    .incarnation = 2,
                                                    .rank = WEFT_MEMBER_NONE,
                                                    .first = 0,
                                                    .span = 2};
    b.net->nodes[3].name = weft_rpc_name(WEFT_ROLE_MEMBER, 3);
    assert_int_equal(weft_member_client_new(&later, fake_msgr(b.net, 3), &b.clients[3]), WEFT_OK);
    settle(&b);
    assert_int_equal(state_of(&b, 3)->phase, WEFT_MEMBER_JOINED);
    b.paused = 0;
    pass(&b, 2 * WEFT_NS_PER_S);
    assert_int_equal(state_of(&b, 2)->phase, WEFT_MEMBER_REPLACED);
    assert_int_equal(state_of(&b, 2)->refusal.status, WEFT_MEMBER_SUPERSEDED);
    bench_free(&b);
}

static void broken_journal(void **state)
{
    (void)state;
    struct bench b = bench_make(8);
    serve(&b);
    add(&b, 1, WEFT_ROLE_WORKER, 0);
    settle(&b);
    b.broken = true;
    add(&b, 2, WEFT_ROLE_WORKER, 1);
    pass(&b, 2 * WEFT_NS_PER_S);
    assert_true(weft_member_service_is_broken(b.service));
    assert_int_equal(state_of(&b, 2)->phase, WEFT_MEMBER_JOINING);
    assert_int_equal(state_of(&b, 2)->refusal.status, WEFT_MEMBER_UNAVAILABLE);
    pass(&b, 6 * WEFT_NS_PER_S); /* heartbeats still get replies */
    assert_int_equal(state_of(&b, 1)->phase, WEFT_MEMBER_JOINED);
    assert_int_equal(state_of(&b, 2)->phase, WEFT_MEMBER_JOINING);
    bench_free(&b);
}

/* A message that is not a request of a member gets no reply, and its buffer is posted again. */
static void strangers(void **state)
{
    (void)state;
    struct bench b = bench_make(9);
    static uint8_t bytes[WEFT_MEMBER_REQUEST_BYTES];
    serve(&b);
    add(&b, 1, WEFT_ROLE_WORKER, 0);
    settle(&b);
    uint32_t records = b.records;
    b.net->nodes[2].name = weft_rpc_name(WEFT_ROLE_WORKER, 1); /* a data endpoint */
    fake_connect(b.net, 2, COORDINATOR);
    struct weft_member_request q = {.rpc_id = 1,
                                    .role = WEFT_ROLE_WORKER,
                                    .member = 99,
                                    .rank = 1,
                                    .first = WEFT_MEMBER_NONE};
    (void)weft_member_request_pack(&q, bytes);
    for (uint32_t i = 0; i < 12; i++) { /* three times the slots */
        struct weft_msg_send send = {
            .peer = fake_peer(COORDINATOR),
            .base = bytes,
            .total = sizeof(bytes) / WEFT_MEMBER_ELEM_BYTES,
            .elem_bytes = WEFT_MEMBER_ELEM_BYTES,
            .tag = weft_rpc_tag_pack((struct weft_rpc_tag){.op = WEFT_MEMBER_REGISTER,
                                                           .number = 1}),
            .deadline_ns = WEFT_NEVER};
        uint64_t seq;
        if (i >= 6) { /* of a member, but truncated */
            b.net->nodes[2].name = weft_rpc_name(WEFT_ROLE_MEMBER, 2);
            fake_connect(b.net, 2, COORDINATOR);
            send.total -= i - 5;
        }
        struct weft_msgr msgr = fake_msgr(b.net, 2);
        assert_int_equal(msgr.ops->send(msgr.self, &send, b.now_ns, &seq), WEFT_OK);
        settle(&b);
        b.net->nodes[2].events_head = b.net->nodes[2].events_tail;
    }
    assert_int_equal(b.records, records);
    assert_int_equal(weft_roster_members(b.roster), 1);
    pass(&b, 6 * WEFT_NS_PER_S);
    assert_int_equal(state_of(&b, 1)->phase, WEFT_MEMBER_JOINED);
    assert_int_equal(weft_roster_counters(b.roster)->expired, 0);
    bench_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order),      cmocka_unit_test(a_moved_shard_is_told),
        cmocka_unit_test(a_claim_is_given_up), cmocka_unit_test(leaving),
        cmocka_unit_test(coordinator_dies_and_returns), cmocka_unit_test(registers_again),
        cmocka_unit_test(a_server_sleeps),
        cmocka_unit_test(a_server_sleeps_and_its_supervisor_replaces_it),
        cmocka_unit_test(broken_journal),
        cmocka_unit_test(strangers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
