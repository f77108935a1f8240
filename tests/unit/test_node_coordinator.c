/* The coordinator in its thread: log lines, the journal's contents, an expired lease, the end of
 * the work. */
#include "node/coordinator.h"

#include "io/member_thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t patience_ns = 120 * WEFT_NS_PER_S;
enum { PATIENCE_MS = 120000 };

/* Log lines of a coordinator, written by its thread. */
struct heard {
    pthread_mutex_t lock;
    char text[4096];
    int expired_fd[2]; /* a pipe: the rank of each whose lease expired */
};

static void hear(void *arg, enum weft_node_level level, const char *text)
{
    struct heard *heard = arg;
    pthread_mutex_lock(&heard->lock);
    size_t used = strlen(heard->text);
    (void)snprintf(heard->text + used, sizeof(heard->text) - used, "%s%s\n",
                   level == WEFT_NODE_WARNING ? "! " : "", text);
    pthread_mutex_unlock(&heard->lock);
}

static void expired(void *arg, const struct weft_member_request *who, bool is_lapsed)
{
    struct heard *heard = arg;
    if (is_lapsed) {
        assert_int_equal(write(heard->expired_fd[1], &who->rank, sizeof(who->rank)),
                         sizeof(who->rank));
    }
}

static weft_status start(struct weft_coordinator *c, struct heard *heard, uint16_t port,
                         const char *journal, struct weft_error *error)
{
    static const struct weft_security none = {.mode = WEFT_MODE_NONE};
    struct weft_coordinator_config config = {.host = "127.0.0.1",
                                             .port = port,
                                             .journal = journal,
                                             .security = &none,
                                             .log = {hear, heard},
                                             .expired = expired,
                                             .arg = heard};
    weft_roster_config_default(&config.roster);
    config.roster.workers = 1;
    config.roster.shards = 1;
    config.roster.lease_ns = 300 * WEFT_NS_PER_MS;
    config.roster.tell_over = true;
    return weft_coordinator_start(c, &config, error);
}

static void must_start(struct weft_coordinator *c, struct heard *heard, const char *journal)
{
    struct weft_error error = {.text = ""};
    *heard = (struct heard){.lock = PTHREAD_MUTEX_INITIALIZER};
    if (start(c, heard, 0, journal, &error) != WEFT_OK) {
        fail_msg("%s", error.text);
    }
}

static struct weft_member_thread *member_start(uint16_t port, uint8_t role)
{
    struct weft_member_thread *thread = NULL;
    struct weft_error error = {.text = ""};
    bool is_server = role == WEFT_ROLE_SERVER;
    struct weft_member_thread_config config = {.host = "127.0.0.1", .port = port};
    weft_driver_config_default(&config.driver);
    config.member = (struct weft_member_client_config){.role = role,
                                                       .member = is_server ? 2 : 1,
                                                       .incarnation = 1,
                                                       .rank = WEFT_MEMBER_NONE,
                                                       .first = is_server ? 0 : WEFT_MEMBER_NONE,
                                                       .span = is_server};
    assert_int_equal(weft_member_thread_start(&config, &thread, &error), WEFT_OK);
    return thread;
}

static void wait_for(struct weft_member_thread *member, enum weft_member_wait what)
{
    static struct weft_member_state seen;
    struct weft_error error = {.text = ""};
    if (weft_member_thread_wait(member, what, patience_ns, NULL, &seen, &error) != WEFT_OK) {
        fail_msg("%s", error.text);
    }
}

static void serve_at(struct weft_member_thread *server, uint16_t port)
{
    struct weft_member_address address;
    assert_int_equal(weft_resolve_member_address("127.0.0.1", port, &address, NULL), WEFT_OK);
    weft_member_thread_publish(server, &address);
}

static void must_be_readable(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&poll_fd, 1, PATIENCE_MS), 1);
}

static void count_members(void *arg, void *object)
{
    const struct weft_coordinator *c = object;
    *(uint32_t *)arg = weft_roster_members(c->roster);
}

static void members_come_and_the_work_ends(void **state)
{
    (void)state;
    static struct heard heard;
    struct weft_coordinator c;
    uint32_t members = 0;
    must_start(&c, &heard, NULL);
    uint16_t port = weft_coordinator_port(&c);
    struct weft_member_thread *server = member_start(port, WEFT_ROLE_SERVER);
    serve_at(server, 7700);
    struct weft_member_thread *worker = member_start(port, WEFT_ROLE_WORKER);
    wait_for(worker, WEFT_MEMBER_WAIT_LISTED);
    assert_true(weft_stats_query_ask(&c.query, count_members, &members, patience_ns));
    assert_int_equal(members, 2);
    struct pollfd over = {.fd = c.over_fd, .events = POLLIN};
    assert_int_equal(poll(&over, 1, 0), 0);
    weft_member_thread_stop(worker, true);
    must_be_readable(weft_member_thread_fd(server)); /* it is notified */
    weft_member_thread_stop(server, true);
    must_be_readable(c.over_fd);
    weft_coordinator_stop(&c);
    weft_coordinator_stop(&c); /* stopping twice is allowed */
    assert_non_null(strstr(heard.text, "the server of shard 0 is at 127.0.0.1 port 7700, epoch "));
    assert_non_null(strstr(heard.text, "\nall shards are registered\n"));
    assert_null(strchr(heard.text, '!'));
}

static void a_journal_brings_members_back(void **state)
{
    (void)state;
    static struct heard heard;
    struct weft_coordinator c;
    char path[] = "/tmp/weft-journal-XXXXXX", wanted[128];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    must_start(&c, &heard, path);
    struct weft_member_thread *server = member_start(weft_coordinator_port(&c), WEFT_ROLE_SERVER);
    wait_for(server, WEFT_MEMBER_WAIT_JOINED);
    weft_coordinator_stop(&c);
    weft_member_thread_stop(server, false);

    must_start(&c, &heard, path);
    weft_coordinator_stop(&c);
    (void)snprintf(wanted, sizeof(wanted), "1 members from %s\n", path);
    assert_string_equal(heard.text, wanted);

    assert_int_equal(lseek(fd, 0, SEEK_END) > 0, 1);
    assert_int_equal(write(fd, "torn", 4), 4);
    must_start(&c, &heard, path);
    weft_coordinator_stop(&c);
    (void)snprintf(wanted, sizeof(wanted),
                   "1 members from %s; 4 bytes of an incomplete record were cut off\n", path);
    assert_string_equal(heard.text, wanted);
    assert_int_equal(close(fd), 0);
    assert_int_equal(unlink(path), 0);
}

/* A killed process sends no message. It is forked before this process has threads. */
static void a_lease_lapses(void **state)
{
    (void)state;
    static struct heard heard;
    struct weft_coordinator c;
    int port_fd[2];
    uint32_t rank = 99;
    assert_int_equal(pipe(port_fd), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        uint16_t port;
        (void)alarm(PATIENCE_MS / 1000);
        if (read(port_fd[0], &port, sizeof(port)) == sizeof(port)) {
            (void)member_start(port, WEFT_ROLE_WORKER);
            (void)pause();
        }
        _exit(1);
    }
    must_start(&c, &heard, NULL);
    assert_int_equal(pipe(heard.expired_fd), 0);
    uint16_t port = weft_coordinator_port(&c);
    assert_int_equal(write(port_fd[1], &port, sizeof(port)), sizeof(port));
    for (uint32_t members = 0; members == 0; (void)usleep(1000)) {
        assert_true(weft_stats_query_ask(&c.query, count_members, &members, patience_ns));
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    must_be_readable(heard.expired_fd[0]);
    assert_int_equal(read(heard.expired_fd[0], &rank, sizeof(rank)), sizeof(rank));
    assert_int_equal(rank, 0);
    weft_coordinator_stop(&c);
    assert_string_equal(heard.text, "! worker 0 has been silent for its lease; its slot is free\n");
    for (int i = 0; i < 2; i++) {
        (void)close(port_fd[i]);
        (void)close(heard.expired_fd[i]);
    }
}

static void a_port_in_use_is_an_error(void **state)
{
    (void)state;
    static struct heard heard, other;
    struct weft_coordinator c, second;
    struct weft_error error = {.text = ""};
    must_start(&c, &heard, NULL);
    assert_int_equal(start(&second, &other, weft_coordinator_port(&c), NULL, &error), WEFT_EXISTS);
    assert_string_not_equal(error.text, "");
    weft_coordinator_stop(&second); /* a coordinator that never ran */
    weft_coordinator_stop(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lease_lapses),
        cmocka_unit_test(members_come_and_the_work_ends),
        cmocka_unit_test(a_journal_brings_members_back),
        cmocka_unit_test(a_port_in_use_is_an_error),
    };
    return cmocka_run_group_tests_name("node/coordinator", tests, NULL, NULL);
}
