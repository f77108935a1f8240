/* A replica in a shard's thread, over loopback: conditions of a promotion, refused peers, and the
 * log line about a shard that is too large. */
#include "node/shard_thread.h"

#include "io/clock.h"
#include "ps/transfer_piece.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const uint64_t patience_ns = 60 * WEFT_NS_PER_S;

static struct weft_shard_thread_config config_for(const struct weft_launch_address *replica_of)
{
    struct weft_shard_thread_config config;
    weft_shard_thread_config_default(&config);
    config.shard.workers_max = 1;
    config.shard.rows_max = 1000;
    config.shard.replicas_max = 1;
    config.shard.replica_lease_ns = 5 * WEFT_NS_PER_S;
    config.driver.udp.ep.peer_timeout_ns = patience_ns;
    config.replica_of = replica_of;
    return config;
}

static void start(struct weft_shard_thread *thread, const struct weft_shard_thread_config *config)
{
    struct weft_error error = {.text = ""};
    if (weft_shard_thread_start(thread, config, &error) != WEFT_OK) {
        fail_msg("%s", error.text);
    }
}

static struct weft_launch_address address_of(uint16_t port)
{
    struct weft_launch_address address = {.port = port};
    (void)snprintf(address.host, sizeof(address.host), "127.0.0.1");
    return address;
}

static enum weft_replica_why may_be_promoted(struct weft_shard_thread *thread, uint64_t at_ns)
{
    enum weft_replica_why why = WEFT_REPLICA_GOOD;
    assert_int_equal(weft_shard_thread_may_be_promoted(thread, at_ns, &why), WEFT_OK);
    return why;
}

static void await(struct weft_shard_thread *thread, enum weft_replica_why why)
{
    const uint64_t until_ns = weft_clock_now_ns() + patience_ns;
    while (may_be_promoted(thread, WEFT_NEVER) != why) {
        assert_true(weft_clock_now_ns() < until_ns);
        usleep(5000);
    }
}

/* ---- the lease ------------------------------------------------------------------------------- */

/* The request to promote may arrive long after the death; the lease is compared with the time of
 * the death. */
static void the_lease_is_judged_as_of_the_death(void **state)
{
    (void)state;
    struct weft_shard_thread server, replica;
    struct weft_shard_thread_config config = config_for(NULL);
    enum weft_replica_why why = WEFT_REPLICA_OLD;
    config.shard.replica_lease_ns = WEFT_NS_PER_S;
    start(&server, &config);
    const struct weft_launch_address address = address_of(server.port);
    config.replica_of = &address;
    start(&replica, &config);
    await(&replica, WEFT_REPLICA_GOOD);
    const uint64_t died_ns = weft_clock_now_ns();
    weft_shard_thread_join(&server);
    await(&replica, WEFT_REPLICA_OLD);
    assert_int_equal(may_be_promoted(&replica, died_ns + patience_ns), WEFT_REPLICA_OLD);
    assert_int_equal(may_be_promoted(&replica, died_ns), WEFT_REPLICA_GOOD);
    assert_int_equal(weft_shard_thread_promote(&replica, WEFT_NEVER, &why), WEFT_OK);
    assert_int_equal(why, WEFT_REPLICA_OLD);
    assert_int_equal(weft_shard_thread_promote(&replica, died_ns, &why), WEFT_OK);
    assert_int_equal(why, WEFT_REPLICA_GOOD);
    weft_shard_thread_join(&replica);
}

/* ---- visitors -------------------------------------------------------------------------------- */

struct visitor {
    struct weft_driver *driver;
    bool was_up;
    bool is_down;
};

static void note(void *arg, uint64_t now_ns)
{
    struct visitor *visitor = arg;
    struct weft_msgr msgr = weft_driver_msgr(visitor->driver);
    struct weft_msg_event event;
    (void)now_ns;
    while (msgr.ops->poll(msgr.self, &event)) {
        visitor->was_up |= event.type == WEFT_EVENT_PEER_UP;
        visitor->is_down |= event.type == WEFT_EVENT_PEER_DOWN;
    }
}

static void visitor_open(struct visitor *visitor, uint64_t name)
{
    struct weft_driver_config config;
    struct weft_error error = {.text = ""};
    weft_driver_config_default(&config);
    config.udp.ep.name = name;
    config.udp.ep.accept = 1;
    config.udp.ep.peer_timeout_ns = patience_ns;
    *visitor = (struct visitor){0};
    assert_int_equal(weft_driver_open(&config, &visitor->driver, &error), WEFT_OK);
}

struct stand {
    atomic_bool stands; /* the next turn does not end while this is set */
};

static void turn(void *arg, struct weft_shard *shard)
{
    struct stand *stand = arg;
    (void)shard;
    while (atomic_load(&stand->stands)) {
        usleep(1000);
    }
}

/* No worker knows a replica's address: every peer except the shard is refused, also several at
 * once. */
static void visitors_are_turned_away(void **state)
{
    (void)state;
    enum { VISITORS = 4 };
    static struct stand stand;
    struct visitor visitors[VISITORS];
    struct weft_shard_thread server, replica;
    struct weft_shard_thread_config config = config_for(NULL);
    start(&server, &config);
    const struct weft_launch_address address = address_of(server.port);
    config.replica_of = &address;
    config.shard.workers_max = 1;
    config.hooks = (struct weft_shard_hooks){.turn = turn, .arg = &stand};
    start(&replica, &config);
    await(&replica, WEFT_REPLICA_GOOD);
    atomic_store(&stand.stands, true);
    for (uint32_t i = 0; i < VISITORS; i++) {
        struct weft_error error = {.text = ""};
        weft_peer peer;
        visitor_open(&visitors[i], weft_rpc_name(WEFT_ROLE_WORKER, 0));
        assert_int_equal(
            weft_driver_connect(visitors[i].driver, "127.0.0.1", replica.port, &peer, &error),
            WEFT_OK);
        (void)weft_driver_step(visitors[i].driver, 0, note, &visitors[i]);
    }
    usleep(50000); /* all have sent HELLO before the next step */
    atomic_store(&stand.stands, false);
    const uint64_t until_ns = weft_clock_now_ns() + patience_ns / 6;
    for (uint32_t gone = 0; gone < VISITORS;) {
        gone = 0;
        for (uint32_t i = 0; i < VISITORS; i++) {
            (void)weft_driver_step(visitors[i].driver, WEFT_NS_PER_MS, note, &visitors[i]);
            gone += visitors[i].is_down;
        }
        if (weft_clock_now_ns() >= until_ns) {
            fail_msg("%u of %d visitors are turned away", gone, (int)VISITORS);
        }
    }
    assert_int_equal(may_be_promoted(&replica, WEFT_NEVER), WEFT_REPLICA_GOOD);
    for (uint32_t i = 0; i < VISITORS; i++) {
        assert_true(visitors[i].was_up);
        weft_driver_close(visitors[i].driver);
    }
    weft_shard_thread_join(&replica);
    weft_shard_thread_join(&server);
}

/* ---- a shard that is too large --------------------------------------------------------------- */

struct heard {
    pthread_mutex_t lock;
    char text[2048];
};

static void hear(void *arg, enum weft_node_level level, const char *text)
{
    struct heard *heard = arg;
    (void)level;
    pthread_mutex_lock(&heard->lock);
    const size_t used = strlen(heard->text);
    (void)snprintf(heard->text + used, sizeof(heard->text) - used, "%s\n", text);
    pthread_mutex_unlock(&heard->lock);
}

/* A shard whose first piece announces more than 4 GiB. */
static void send_piece(struct visitor *shard)
{
    static uint8_t bytes[WEFT_PIECE_HEAD_BYTES];
    const struct weft_piece_head head = {.transfer = 1, .index = 65536, .shard = 0, .shards = 1};
    struct weft_msgr msgr = weft_driver_msgr(shard->driver);
    uint64_t seq;
    weft_piece_head_pack(&head, bytes);
    const struct weft_msg_send send = {
        .peer = 0, /* the only peer */
        .base = bytes,
        .total = sizeof(bytes) / WEFT_PIECE_ELEM_BYTES,
        .elem_bytes = WEFT_PIECE_ELEM_BYTES,
        .critical = 1,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){.op = WEFT_TRANSFER_PIECE}),
        .deadline_ns = WEFT_NEVER,
    };
    assert_int_equal(msgr.ops->send(msgr.self, &send, weft_clock_now_ns(), &seq), WEFT_OK);
}

static void a_shard_too_large_is_logged_once(void **state)
{
    (void)state;
    static struct heard heard = {.lock = PTHREAD_MUTEX_INITIALIZER};
    static const char line[] =
        "this process is not a replica: what its shard sends at once is more than";
    struct visitor shard;
    struct weft_shard_thread replica;
    visitor_open(&shard, weft_rpc_name(WEFT_ROLE_SERVER, 0));
    const struct weft_launch_address address = address_of(weft_driver_port(shard.driver));
    struct weft_shard_thread_config config = config_for(&address);
    config.log = (struct weft_node_log){hear, &heard};
    start(&replica, &config);
    const uint64_t until_ns = weft_clock_now_ns() + patience_ns;
    while (!shard.was_up) {
        assert_true(weft_clock_now_ns() < until_ns);
        (void)weft_driver_step(shard.driver, WEFT_NS_PER_MS, note, &shard);
    }
    send_piece(&shard);
    while (may_be_promoted(&replica, WEFT_NEVER) != WEFT_REPLICA_TOO_LARGE) {
        assert_true(weft_clock_now_ns() < until_ns);
        (void)weft_driver_step(shard.driver, WEFT_NS_PER_MS, note, &shard);
    }
    for (uint32_t i = 0; i < 50; i++) { /* some more steps */
        (void)may_be_promoted(&replica, WEFT_NEVER);
    }
    weft_shard_thread_join(&replica);
    const char *first = strstr(heard.text, line);
    assert_non_null(first);
    assert_non_null(strstr(first, "4 GiB"));
    assert_null(strstr(first + 1, line));
    weft_driver_close(shard.driver);
}

/* The shard's name identifies the shard only at the shard's address: a replica configured to follow
 * another replica has the same name. */
static void one_with_the_name_of_the_shard_is_turned_away(void **state)
{
    (void)state;
    const uint64_t until_ns = weft_clock_now_ns() + patience_ns,
                   name = weft_rpc_name(WEFT_ROLE_SERVER, 0);
    struct visitor shard, other;
    struct weft_shard_thread replica;
    struct weft_error error = {.text = ""};
    weft_peer peer;
    visitor_open(&shard, name); /* the shard is stopped at first */
    const struct weft_launch_address address = address_of(weft_driver_port(shard.driver));
    const struct weft_shard_thread_config config = config_for(&address);
    start(&replica, &config);
    visitor_open(&other, name);
    assert_int_equal(weft_driver_connect(other.driver, "127.0.0.1", replica.port, &peer, &error),
                     WEFT_OK);
    while (!other.is_down) {
        assert_true(weft_clock_now_ns() < until_ns);
        (void)weft_driver_step(other.driver, WEFT_NS_PER_MS, note, &other);
    }
    assert_true(other.was_up);
    while (!shard.was_up) {
        assert_true(weft_clock_now_ns() < until_ns);
        (void)weft_driver_step(shard.driver, WEFT_NS_PER_MS, note, &shard);
    }
    send_piece(&shard);
    while (may_be_promoted(&replica, WEFT_NEVER) !=
           WEFT_REPLICA_TOO_LARGE) { /* its message was processed */
        assert_true(weft_clock_now_ns() < until_ns);
        (void)weft_driver_step(shard.driver, WEFT_NS_PER_MS, note, &shard);
    }
    weft_shard_thread_join(&replica);
    weft_driver_close(other.driver);
    weft_driver_close(shard.driver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lease_is_judged_as_of_the_death),
        cmocka_unit_test(visitors_are_turned_away),
        cmocka_unit_test(a_shard_too_large_is_logged_once),
        cmocka_unit_test(one_with_the_name_of_the_shard_is_turned_away),
    };
    return cmocka_run_group_tests_name("node/standby", tests, NULL, NULL);
}
