/* The coordinator's state machine: leases, epochs, refusals and their reasons, recovery from the
 * journal. Time is an argument. */
#include "base/prng.h"
#include "member/roster.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>

enum { S = 1000000000 };

struct bench {
    struct weft_roster *roster;
    struct weft_member_reply reply;
    struct weft_member_request record; /* record of the last change */
    bool changed;
};

static int setup(void **state)
{
    static struct bench bench;
    struct weft_roster_config config;
    weft_roster_config_default(&config);
    config.members_max = 8;
    config.workers = 2;
    config.shards = 4;
    config.tell_over = true;
    bench = (struct bench){0};
    assert_int_equal(weft_roster_new(&config, &bench.roster), WEFT_OK);
    *state = &bench;
    return 0;
}

static int teardown(void **state)
{
    weft_roster_free(((struct bench *)*state)->roster);
    return 0;
}

static struct weft_member_request worker(uint64_t member, uint32_t rank)
{
    return (struct weft_member_request){.rpc_id = 1,
                                        .role = WEFT_ROLE_WORKER,
                                        .member = member,
                                        .incarnation = 1,
                                        .rank = rank,
                                        .first = WEFT_MEMBER_NONE};
}

static struct weft_member_request server(uint64_t member, uint32_t first, uint16_t port)
{
    struct weft_member_request q = {.rpc_id = 1,
                                    .role = WEFT_ROLE_SERVER,
                                    .member = member,
                                    .incarnation = 1,
                                    .rank = WEFT_MEMBER_NONE,
                                    .first = first,
                                    .span = 2,
                                    .count = port != 0 ? 2 : 0};
    q.addresses[0].port = port;
    q.addresses[1].port = (uint16_t)(port + 1);
    return q;
}

static uint16_t ask(struct bench *b, uint8_t op, const struct weft_member_request *q,
                    uint64_t now_ns)
{
    struct weft_member_request who;
    while (weft_roster_expire_next(b->roster, now_ns, &who)) {
    }
    b->changed = weft_roster_handle(b->roster, op, q, now_ns, &b->reply, &b->record);
    assert_int_equal(b->reply.rpc_id, q->rpc_id);
    return b->reply.status;
}

static uint16_t join(struct bench *b, const struct weft_member_request *q, uint64_t now_ns)
{
    return ask(b, WEFT_MEMBER_REGISTER, q, now_ns);
}

static void ranks_are_given(void **state)
{
    struct bench *b = *state;
    struct weft_member_request q = worker(10, WEFT_MEMBER_NONE);
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_OK);
    assert_int_equal(b->reply.rank, 0);
    assert_int_equal(b->reply.workers, 2);
    assert_true(b->changed && b->record.rank == 0 && b->record.epoch == b->reply.epoch);
    uint64_t epoch = b->reply.epoch;
    assert_int_equal(join(b, &q, 1), WEFT_MEMBER_OK); /* again: the same lease, no change */
    assert_int_equal(b->reply.epoch, epoch);
    assert_false(b->changed);
    q = worker(11, WEFT_MEMBER_NONE);
    assert_int_equal(join(b, &q, 1), WEFT_MEMBER_OK);
    assert_int_equal(b->reply.rank, 1);
    assert_true(b->reply.epoch > epoch);
    q = worker(12, WEFT_MEMBER_NONE);
    assert_int_equal(join(b, &q, 2), WEFT_MEMBER_FULL);
    assert_int_equal(b->reply.retry_ms, 5000); /* the first lease to expire is that of member 10, at
                                                * 5 s + 1 ns */
    q = worker(12, 2);
    assert_int_equal(join(b, &q, 2), WEFT_MEMBER_RANGE);
}

static void job_must_agree(void **state)
{
    struct bench *b = *state;
    struct weft_member_request q = worker(10, 0);
    q.workers = 3;
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_OTHER_WORKERS);
    q.workers = 2;
    q.shards = 5;
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_OTHER_SHARDS);
    q.shards = 4;
    strcpy(q.job, "one");
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_OK); /* the first names the job */
    q = worker(11, 1);
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_OTHER_JOB);
    assert_string_equal(b->reply.job, "one");
    strcpy(q.job, "two");
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_OTHER_JOB);
    assert_int_equal(weft_roster_counters(b->roster)->refused, 4);
    assert_int_equal(weft_roster_members(b->roster), 1);
}

static void numbers_may_come_from_members(void **state)
{
    (void)state;
    struct bench own = {0};
    struct bench *b = &own;
    struct weft_roster_config config;
    weft_roster_config_default(&config);
    assert_int_equal(weft_roster_new(&config, &b->roster), WEFT_OK);
    struct weft_member_request q = worker(10, 0);
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_SIZE_UNKNOWN);
    q.workers = 65;
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_RANGE); /* more than this coordinator accepts */
    q.workers = 3;
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_OK);
    assert_int_equal(weft_roster_workers(b->roster), 3);
    q = server(20, 0, 0);
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_SIZE_UNKNOWN);
    q.shards = 2;
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_OK);
    weft_roster_free(b->roster);
}

static void shards_have_one_server(void **state)
{
    struct bench *b = *state;
    struct weft_member_request q = server(20, 0, 7700);
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_OK);
    uint64_t epoch = b->reply.epoch;
    q = server(21, 1, 0); /* overlaps by one */
    assert_int_equal(join(b, &q, 1), WEFT_MEMBER_CLAIMED);
    assert_int_equal(b->reply.detail, 1);
    assert_int_equal(b->reply.count, 1);
    assert_int_equal(b->reply.addresses[0].port, 7701);
    assert_int_equal(b->reply.retry_ms, 5000);
    q = server(21, WEFT_MEMBER_NONE, 7800);
    assert_int_equal(join(b, &q, 1 * (uint64_t)S), WEFT_MEMBER_OK);
    assert_int_equal(b->reply.first, 2); /* the free slot */
    q = server(22, WEFT_MEMBER_NONE, 0);
    assert_int_equal(join(b, &q, 1 * (uint64_t)S), WEFT_MEMBER_FULL);
    /* The lease of member 20 expires at 5 s; that of 21 does not. */
    assert_int_equal(join(b, &q, 5 * (uint64_t)S), WEFT_MEMBER_OK);
    assert_int_equal(b->reply.first, 0);
    assert_true(b->reply.epoch > epoch);
    /* The replaced process is notified in reply to any request. */
    q = server(20, 0, 7700);
    q.epoch = epoch;
    q.count = 0;
    assert_int_equal(ask(b, WEFT_MEMBER_HEARTBEAT, &q, 5 * (uint64_t)S),
                     WEFT_MEMBER_UNKNOWN_MEMBER);
    assert_int_equal(join(b, &q, 5 * (uint64_t)S), WEFT_MEMBER_SUPERSEDED);
    q = server(23, 3, 0);
    assert_int_equal(join(b, &q, 5 * (uint64_t)S), WEFT_MEMBER_RANGE); /* 3 and 4 */
}

static void an_expired_lease_comes_back(void **state)
{
    struct bench *b = *state;
    struct weft_member_request who;
    struct weft_member_request q = server(20, 0, 7700);
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_OK);
    q.epoch = b->reply.epoch;
    q.count = 0;
    assert_int_equal(weft_roster_deadline(b->roster), 5 * (uint64_t)S);
    assert_false(weft_roster_expire_next(b->roster, 5 * (uint64_t)S - 1, &who));
    assert_true(weft_roster_expire_next(b->roster, 5 * (uint64_t)S, &who));
    assert_int_equal(who.member, 20);
    assert_false(weft_roster_expire_next(b->roster, 9 * (uint64_t)S, &who)); /* reported once */
    assert_int_equal(weft_roster_deadline(b->roster), WEFT_NEVER);
    assert_int_equal(ask(b, WEFT_MEMBER_HEARTBEAT, &q, 10 * (uint64_t)S), WEFT_MEMBER_OK);
    assert_int_equal(b->reply.epoch, q.epoch);
    assert_int_equal(weft_roster_counters(b->roster)->reclaimed, 1);
    assert_int_equal(weft_roster_deadline(b->roster), 15 * (uint64_t)S);
}

static void list_is_whole_or_nothing(void **state)
{
    struct bench *b = *state;
    struct weft_member_reply list;
    struct weft_member_request who;
    struct weft_member_request q = server(20, 0, 7700);
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_OK);
    assert_int_equal(weft_roster_version(b->roster), 0);
    q = server(21, 2, 0);
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_OK);
    assert_false(weft_roster_list(b->roster, &list)); /* its lease is valid, its ports are
                                                       * unknown */
    q = server(21, 2, 7800);
    assert_int_equal(join(b, &q, 1 * (uint64_t)S), WEFT_MEMBER_OK);
    assert_true(b->changed);
    assert_true(weft_roster_list(b->roster, &list));
    uint64_t version = list.version;
    assert_int_equal(list.count, 4);
    assert_int_equal(list.addresses[1].port, 7701);
    assert_int_equal(list.addresses[3].port, 7801);
    assert_true(weft_roster_expire_next(b->roster, 5 * (uint64_t)S, &who));
    assert_false(weft_roster_list(b->roster, &list)); /* a new member waits for shard 0 */
    q = server(22, 0, 7900);
    assert_int_equal(join(b, &q, 5 * (uint64_t)S), WEFT_MEMBER_OK);
    assert_true(weft_roster_list(b->roster, &list));
    assert_true(list.version != version && list.version != 0);
}

static void a_later_incarnation_takes_over(void **state)
{
    struct bench *b = *state;
    struct weft_member_request q = server(20, WEFT_MEMBER_NONE, 7700);
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_OK);
    uint64_t epoch = b->reply.epoch;
    q.incarnation = 2;
    q.count = 0;
    q.epoch = epoch; /* a process that claims to have the old epoch still gets a new one */
    assert_int_equal(join(b, &q, 1), WEFT_MEMBER_OK); /* at once, without waiting for a lease */
    assert_int_equal(b->reply.first, 0);
    assert_true(b->reply.epoch > epoch);
    assert_true(b->changed);
    q.incarnation = 1;
    q.epoch = epoch;
    assert_int_equal(ask(b, WEFT_MEMBER_HEARTBEAT, &q, 2), WEFT_MEMBER_SUPERSEDED);
    assert_int_equal(join(b, &q, 2), WEFT_MEMBER_SUPERSEDED);
    q.incarnation = 3;
    q.span = 1; /* not the span of this slot */
    assert_int_equal(join(b, &q, 2), WEFT_MEMBER_BAD_REQUEST);
}

static void over_when_all_are_done(void **state)
{
    struct bench *b = *state;
    struct weft_member_request q[2] = {worker(10, 0), worker(11, 1)};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(join(b, &q[i], 0), WEFT_MEMBER_OK);
        q[i].epoch = b->reply.epoch;
        q[i].flags = WEFT_MEMBER_DONE;
    }
    q[0].flags = 0;
    assert_int_equal(ask(b, WEFT_MEMBER_LEAVE, &q[0], 1), WEFT_MEMBER_OK);
    assert_int_equal(ask(b, WEFT_MEMBER_LEAVE, &q[0], 1), WEFT_MEMBER_UNKNOWN_MEMBER);
    assert_int_equal(ask(b, WEFT_MEMBER_LEAVE, &q[1], 1), WEFT_MEMBER_OK);
    assert_true(b->record.flags == WEFT_MEMBER_DONE && b->changed);
    assert_false(weft_roster_is_over(b->roster)); /* rank 0 left without being done */
    q[0] = worker(12, WEFT_MEMBER_NONE);
    assert_int_equal(join(b, &q[0], 2), WEFT_MEMBER_OK);
    assert_int_equal(b->reply.rank, 0); /* a finished rank is not assigned again */
    q[0].epoch = b->reply.epoch;
    q[0].flags = WEFT_MEMBER_DONE;
    assert_int_equal(ask(b, WEFT_MEMBER_LEAVE, &q[0], 2), WEFT_MEMBER_OK);
    assert_true(weft_roster_is_over(b->roster));
    q[0] = server(20, 0, 7700);
    assert_int_equal(join(b, &q[0], 3), WEFT_MEMBER_OK);
    assert_int_equal(b->reply.flags, WEFT_MEMBER_JOB_DONE);
}

/* Apply every record, in order, to a new roster: it has the same leases, epochs and addresses, and
 * assigns no smaller epoch afterwards. */
static void journal_brings_back(void **state)
{
    struct bench *b = *state;
    struct weft_member_request records[16];
    uint8_t ops[16];
    uint32_t count = 0;
    struct weft_member_request q[] = {server(20, 0, 7700), server(21, 2, 7800), worker(10, 0),
                                      worker(11, 1),       server(20, 0, 7900), worker(10, 0),
                                      server(22, 2, 7950)};
    q[4].incarnation = 2; /* replaces the process */
    for (uint32_t i = 0; i < WEFT_ARRAY_COUNT(q); i++) {
        uint8_t op = i == 5 ? WEFT_MEMBER_LEAVE : WEFT_MEMBER_REGISTER;
        uint64_t now_ns = i == 6 ? 6 * (uint64_t)S : 0; /* 21 has expired, and is replaced */
        if (i == 5) {
            q[i].epoch = 3;
            q[i].flags = WEFT_MEMBER_DONE;
        }
        assert_int_equal(ask(b, op, &q[i], now_ns), WEFT_MEMBER_OK);
        assert_true(b->changed);
        records[count] = b->record;
        ops[count++] = op;
    }
    struct bench anew = {0};
    struct weft_roster_config config;
    weft_roster_config_default(&config);
    config.members_max = 8;
    assert_int_equal(weft_roster_new(&config, &anew.roster), WEFT_OK);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(weft_roster_restore(anew.roster, ops[i], &records[i], 100 * (uint64_t)S),
                         WEFT_OK);
    }
    assert_int_equal(weft_roster_members(anew.roster), 3);
    assert_int_equal(weft_roster_deadline(anew.roster), 105 * (uint64_t)S);
    struct weft_member_reply list;
    assert_true(weft_roster_list(anew.roster, &list));
    assert_int_equal(list.addresses[0].port, 7900);
    assert_int_equal(list.addresses[2].port, 7950);
    struct weft_member_request beat = q[6];
    beat.count = 0;
    beat.epoch = records[6].epoch;
    assert_int_equal(ask(&anew, WEFT_MEMBER_HEARTBEAT, &beat, 101 * (uint64_t)S), WEFT_MEMBER_OK);
    struct weft_member_request late = worker(12, WEFT_MEMBER_NONE);
    assert_int_equal(join(&anew, &late, 101 * (uint64_t)S), WEFT_MEMBER_FULL); /* rank 0 is done */
    late.rank = 0;
    assert_int_equal(join(&anew, &late, 101 * (uint64_t)S), WEFT_MEMBER_OK);
    assert_true(anew.reply.epoch > records[6].epoch);
    weft_roster_free(anew.roster);
    /* A record of another job. */
    config.shards = 3;
    assert_int_equal(weft_roster_new(&config, &anew.roster), WEFT_OK);
    assert_int_equal(weft_roster_restore(anew.roster, ops[0], &records[0], 0), WEFT_DATA);
    weft_roster_free(anew.roster);
}

/* No journal: holders of a lease report it, and numbering continues after it. */
static void members_bring_back(void **state)
{
    struct bench *b = *state;
    struct weft_member_request q = server(20, 0, 7700);
    q.epoch = 41;
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_OK);
    assert_int_equal(b->reply.epoch, 41);
    q = server(21, 2, 7800);
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_OK);
    assert_int_equal(b->reply.epoch, 42);
}

/* Epochs that no coordinator can have assigned: no epoch, or no higher one, would be left to
 * assign. */
static void absurd_epochs_are_refused(void **state)
{
    struct bench *b = *state;
    struct weft_member_request q = worker(10, 0);
    q.epoch = UINT64_MAX;
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_BAD_REQUEST);
    assert_false(b->changed);
    assert_int_equal(weft_roster_counters(b->roster)->refused, 1);
    q.epoch = WEFT_MEMBER_EPOCHS_AHEAD + 1;
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_BAD_REQUEST);
    q.epoch = WEFT_MEMBER_EPOCHS_AHEAD;
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_OK);
    assert_true(b->reply.epoch == q.epoch);
    struct weft_member_request other = worker(11, 1);
    assert_int_equal(join(b, &other, 0), WEFT_MEMBER_OK);
    assert_true(b->reply.epoch == q.epoch + 1);
}

static void a_journal_with_an_absurd_epoch_is_not_taken(void **state)
{
    struct bench *b = *state;
    struct weft_member_request q = worker(10, 0);
    q.epoch = UINT64_MAX;
    q.workers = 2;
    q.shards = 4;
    assert_int_equal(weft_roster_restore(b->roster, WEFT_MEMBER_REGISTER, &q, 0), WEFT_DATA);
    assert_int_equal(weft_roster_restore(b->roster, WEFT_MEMBER_LEAVE, &q, 0), WEFT_DATA);
    q.epoch = 7;
    assert_int_equal(weft_roster_restore(b->roster, WEFT_MEMBER_REGISTER, &q, 0), WEFT_OK);
}

static void table_is_bounded(void **state)
{
    struct bench *b = *state;
    for (uint64_t m = 0; m < 40; m++) { /* each lease expires before the next member joins */
        struct weft_member_request q = worker(100 + m, m % 2);
        assert_int_equal(join(b, &q, m * 10 * S), WEFT_MEMBER_OK);
    }
    assert_true(weft_roster_members(b->roster) <= 8);
}

static void limits(void **state)
{
    (void)state;
    struct weft_roster *roster = NULL;
    struct weft_roster_config config;
    weft_roster_config_default(&config);
    config.shards_max = WEFT_MEMBER_SHARDS_MAX + 1;
    assert_int_equal(weft_roster_new(&config, &roster), WEFT_INVALID);
    weft_roster_config_default(&config);
    config.lease_ns = 0;
    assert_int_equal(weft_roster_new(&config, &roster), WEFT_INVALID);
    weft_roster_config_default(&config);
    memset(config.job, 'a', sizeof(config.job));
    assert_int_equal(weft_roster_new(&config, &roster), WEFT_INVALID);
    assert_null(roster);
}

/* ---- records of a compacted journal ---------------------------------------------------------- */

enum { RECORDS_MAX = 32 };

/* Pack all records. Returns their number. */
static uint32_t records_of(const struct weft_roster *roster, uint8_t ops[RECORDS_MAX],
                           uint8_t bytes[RECORDS_MAX][WEFT_MEMBER_REQUEST_BYTES_MAX])
{
    struct weft_member_request record;
    uint32_t n = 0;
    memset(bytes, 0, (size_t)RECORDS_MAX * WEFT_MEMBER_REQUEST_BYTES_MAX);
    while (weft_roster_record(roster, n, &ops[n], &record)) {
        size_t count = weft_member_request_pack(&record, bytes[n]);
        struct weft_member_request again;
        assert_int_equal(weft_member_request_unpack(ops[n], bytes[n], count, &again), WEFT_OK);
        assert_true(++n < RECORDS_MAX);
    }
    return n;
}

/* A roster restored from another one's records has the same records and gives the same replies. */
static void compare_restored(struct bench *b, const struct weft_roster_config *config)
{
    static uint8_t bytes[2][RECORDS_MAX][WEFT_MEMBER_REQUEST_BYTES_MAX];
    uint8_t ops[2][RECORDS_MAX];
    struct bench other = {0};
    struct weft_member_request record;
    uint8_t op;
    assert_int_equal(weft_roster_new(config, &other.roster), WEFT_OK);
    uint32_t n = records_of(b->roster, ops[0], bytes[0]);
    for (uint32_t i = 0; weft_roster_record(b->roster, i, &op, &record); i++) {
        assert_int_equal(weft_roster_restore(other.roster, op, &record, 0), WEFT_OK);
    }
    assert_int_equal(records_of(other.roster, ops[1], bytes[1]), n);
    assert_memory_equal(ops[0], ops[1], n);
    assert_memory_equal(bytes[0], bytes[1], n * sizeof(bytes[0][0]));
    assert_int_equal(weft_roster_members(other.roster), weft_roster_members(b->roster));
    assert_int_equal(weft_roster_is_over(other.roster), weft_roster_is_over(b->roster));
    /* The next lease has the same epoch. */
    struct weft_member_request q = worker(99, WEFT_MEMBER_NONE);
    q.workers = 2;
    memcpy(q.job, "j", 2);
    uint16_t status = join(&other, &q, 0);
    struct weft_member_reply reply = other.reply;
    assert_int_equal(join(b, &q, 0), status);
    assert_true(status != WEFT_MEMBER_OK || (b->reply.epoch == reply.epoch));
    q.epoch = b->reply.epoch;
    if (status == WEFT_MEMBER_OK) {
        assert_int_equal(b->reply.rank, reply.rank);
        assert_int_equal(ask(b, WEFT_MEMBER_LEAVE, &q, 0), WEFT_MEMBER_OK);
    }
    weft_roster_free(other.roster);
}

static void records_say_all(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct weft_prng prng;
        struct weft_roster_config config;
        struct bench b = {0};
        weft_prng_init(&prng, seed);
        weft_roster_config_default(&config);
        config.members_max = 8;
        config.workers = weft_prng_below(&prng, 2) ? 2 : 0; /* otherwise set by the first member */
        config.shards = 0;
        assert_int_equal(weft_roster_new(&config, &b.roster), WEFT_OK);
        assert_int_equal(records_of(b.roster, (uint8_t[RECORDS_MAX]){0},
                                    (uint8_t[RECORDS_MAX][WEFT_MEMBER_REQUEST_BYTES_MAX]){0}),
                         0);
        for (uint32_t i = 0; i < 60; i++) {
            uint64_t member = 1 + weft_prng_below(&prng, 6);
            struct weft_member_request q =
                member <= 3 ? worker(member, (uint32_t)weft_prng_below(&prng, 2))
                            : server(member, 2 * (uint32_t)weft_prng_below(&prng, 2),
                                     (uint16_t)(weft_prng_below(&prng, 2) * 7700));
            q.workers = 2;
            q.shards = 4;
            memcpy(q.job, "j", 2);
            q.incarnation = 1 + weft_prng_below(&prng, 3);
            uint64_t what = weft_prng_below(&prng, 4);
            if (what == 0) {
                /* Check its actual slot. */
                (void)join(&b, &q, 0);
                q.epoch = b.reply.epoch;
                q.count = 0;
                q.flags = weft_prng_below(&prng, 2) ? WEFT_MEMBER_DONE : 0;
                (void)ask(&b, WEFT_MEMBER_LEAVE, &q, 0);
            } else {
                (void)join(&b, &q, 0);
            }
            compare_restored(&b, &config);
        }
        weft_roster_free(b.roster);
    }
}

static struct weft_member_request aggregator(uint64_t member, uint32_t number, uint32_t rack,
                                             uint16_t port)
{
    struct weft_member_request q = {.rpc_id = 1,
                                    .role = WEFT_ROLE_AGGREGATOR,
                                    .member = member,
                                    .incarnation = 1,
                                    .rank = number,
                                    .first = WEFT_MEMBER_NONE,
                                    .rack = rack,
                                    .span = 4,
                                    .count = port != 0 ? 4 : 0};
    for (uint32_t s = 0; port != 0 && s < 4; s++) {
        q.addresses[s].port = (uint16_t)(port + s);
    }
    return q;
}

static uint32_t aggregator_of(struct bench *b, uint32_t rank, uint32_t rack)
{
    struct weft_member_reply near;
    weft_roster_aggregator(b->roster, rank, rack, &near);
    assert_int_equal(near.count, near.version != 0 ? 4 : 0);
    return near.version != 0 ? near.rank : WEFT_MEMBER_NONE;
}

static void aggregators(void **state)
{
    struct bench *b = *state;
    struct weft_member_reply before, after;
    struct weft_member_request q = aggregator(100, 3, 7, 0);
    assert_int_equal(aggregator_of(b, 0, 0), WEFT_MEMBER_NONE);
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_OK);
    assert_false(b->changed); /* no journal record */
    assert_int_equal(b->reply.rank, 3);
    assert_int_equal(aggregator_of(b, 0, 0), WEFT_MEMBER_NONE); /* not reachable yet */
    q = aggregator(100, 3, 7, 5000);
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_OK);
    q = aggregator(101, 5, 8, 6000);
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_OK);
    /* Selected by rack, else by rank. */
    assert_int_equal(aggregator_of(b, 0, 7), 3);
    assert_int_equal(aggregator_of(b, 1, 7), 3);
    assert_int_equal(aggregator_of(b, 0, 8), 5);
    assert_int_equal(aggregator_of(b, 0, 9), 3);
    assert_int_equal(aggregator_of(b, 1, 9), 5);
    assert_int_equal(aggregator_of(b, 1, 0), 5);
    /* Its number is in use; its number of shards is not the job's. */
    q = aggregator(102, 5, 8, 6500);
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_CLAIMED);
    assert_int_equal(b->reply.detail, 5);
    assert_true(b->reply.retry_ms > 0);
    q = aggregator(102, 6, 8, 6500);
    q.span = q.count = 3;
    assert_int_equal(join(b, &q, 0), WEFT_MEMBER_OTHER_SHARDS);
    /* If it is silent, its lease expires, and another member may get the number; its later messages
     * are unknown. */
    q = aggregator(100, 3, 7, 5000);
    weft_roster_aggregator(b->roster, 0, 7, &before);
    assert_int_equal(weft_roster_deadline(b->roster), UINT64_C(5) * S);
    assert_int_equal(ask(b, WEFT_MEMBER_HEARTBEAT, &q, UINT64_C(4) * S), WEFT_MEMBER_OK);
    weft_roster_remove_silent(b->roster, UINT64_C(6) * S);
    assert_int_equal(aggregator_of(b, 1, 0), 3);
    q = aggregator(102, 5, 8, 6500);
    assert_int_equal(join(b, &q, UINT64_C(6) * S), WEFT_MEMBER_OK);
    q = aggregator(101, 5, 8, 6000);
    assert_int_equal(ask(b, WEFT_MEMBER_HEARTBEAT, &q, UINT64_C(6) * S),
                     WEFT_MEMBER_UNKNOWN_MEMBER);
    /* Another process of the same member: another version. */
    q = aggregator(100, 3, 7, 5000);
    q.incarnation = 2;
    assert_int_equal(join(b, &q, UINT64_C(6) * S), WEFT_MEMBER_OK);
    weft_roster_aggregator(b->roster, 0, 7, &after);
    assert_int_not_equal(before.version, after.version);
    for (uint16_t port = 5001; port < 5004; port++) { /* each other port is a new version, too */
        before = after;
        q.addresses[3].port = port;
        assert_int_equal(join(b, &q, UINT64_C(6) * S), WEFT_MEMBER_OK);
        weft_roster_aggregator(b->roster, 0, 7, &after);
        assert_int_not_equal(before.version, after.version);
    }
    q.incarnation = 1;
    assert_int_equal(join(b, &q, UINT64_C(6) * S), WEFT_MEMBER_SUPERSEDED);
    q.incarnation = 2;
    assert_int_equal(ask(b, WEFT_MEMBER_LEAVE, &q, UINT64_C(6) * S), WEFT_MEMBER_OK);
    assert_int_equal(aggregator_of(b, 0, 7), 5);
    assert_false(b->changed);
}

/* Such a record is never written, and its shards would not exist. */
static void a_journal_with_an_aggregator_is_not_taken(void **state)
{
    struct bench *b = *state;
    struct weft_member_request q = aggregator(10, 0, 0, 9000);
    q.epoch = 1;
    q.workers = 2;
    q.shards = 4;
    assert_int_equal(weft_roster_restore(b->roster, WEFT_MEMBER_REGISTER, &q, 0), WEFT_DATA);
    assert_int_equal(weft_roster_restore(b->roster, WEFT_MEMBER_LEAVE, &q, 0), WEFT_DATA);
    assert_int_equal(weft_roster_members(b->roster), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {TEST(ranks_are_given),
                                       TEST(job_must_agree),
                                       TEST(numbers_may_come_from_members),
                                       TEST(shards_have_one_server),
                                       TEST(an_expired_lease_comes_back),
                                       TEST(list_is_whole_or_nothing),
                                       TEST(aggregators),
                                       TEST(a_later_incarnation_takes_over),
                                       TEST(over_when_all_are_done),
                                       TEST(journal_brings_back),
                                       TEST(members_bring_back),
                                       TEST(absurd_epochs_are_refused),
                                       TEST(a_journal_with_an_absurd_epoch_is_not_taken),
                                       TEST(a_journal_with_an_aggregator_is_not_taken),
                                       TEST(table_is_bounded),
                                       cmocka_unit_test(records_say_all),
                                       cmocka_unit_test(limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
