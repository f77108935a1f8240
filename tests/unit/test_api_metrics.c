/* /metrics of programs that use the library: the values during a call, between calls, and with a
 * progress thread; a failure to serve them never stops the program. */
#define _GNU_SOURCE
#include "api_ps_server.h"
#include "io/http_get.h"
#include "obs/samples.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <weft/ps.h>

/* Long enough never to expire in the test. */
static const uint64_t long_ns = 120 * WEFT_NS_PER_S;

static struct weft_ps *connect_to(const struct test_server *server, const char *metrics,
                                  uint32_t thread)
{
    char list[32];
    struct weft_ps *ps = NULL;
    struct weft_ps_config config;
    weft_ps_config_init(&config, sizeof(config));
    snprintf(list, sizeof(list), "127.0.0.1:%u", (unsigned)server->port);
    config.servers = list;
    config.security = WEFT_TRANSPORT_NONE;
    config.connect_timeout_ns = config.peer_timeout_ns = long_ns;
    config.rows_max = 64;
    config.metrics = metrics;
    config.thread = thread;
    if (weft_ps_connect(&config, &ps) != WEFT_OK) {
        fail_msg("%s", weft_ps_error(NULL));
    }
    return ps;
}

static struct weft_ps_table *open_table(struct weft_ps *ps)
{
    struct weft_ps_table *table = NULL;
    struct weft_table_options options;
    weft_table_options_init(&options, sizeof(options), "sgd");
    assert_int_equal(weft_table_open(ps, &options, &table), WEFT_OK);
    return table;
}

static void push(struct weft_ps_table *table)
{
    const uint64_t ids[] = {1, 2, 3};
    const float rows[] = {1, 2, 3};
    assert_int_equal(weft_push_wait(table, ids, rows, 3, 0, NULL), WEFT_OK);
    assert_int_equal(weft_clock(table), WEFT_OK);
}

/* "http://127.0.0.1:PORT/metrics" */
static uint16_t port_of(const char *url)
{
    unsigned port = 0;
    assert_int_equal(sscanf(url, "http://127.0.0.1:%u/metrics", &port), 1);
    return (uint16_t)port;
}

/* The sum of the samples of a name; -1 when there is none. */
static double scrape(const char *url, const char *name, const char *with)
{
    char *body = NULL;
    struct weft_error error = {.text = ""};
    if (weft_http_get("127.0.0.1", port_of(url), "/metrics", long_ns, &body, &error) != WEFT_OK) {
        fail_msg("%s: %s", url, error.text);
    }
    struct weft_samples samples = {0};
    assert_int_equal(weft_samples_parse(body, &samples), WEFT_OK);
    double sum = weft_samples_have(&samples, name) ? weft_samples_sum(&samples, name, with) : -1;
    weft_samples_fini(&samples);
    return sum;
}

/* The program does not poll at the time of the query; it makes the copy at its next poll. */
static void shows_what_was_pushed(uint32_t thread)
{
    struct test_server server;
    test_server_start(&server, (struct ps_server_options){.shards = 1, .workers = 1});
    struct weft_ps *ps = connect_to(&server, "0", thread);
    const char *url = weft_ps_metrics(ps);
    struct weft_ps_table *table = open_table(ps);
    assert_true(scrape(url, "weft_client_messages_total", "kind=\"push\"") == 0);
    do {
        push(table);
    } while (scrape(url, "weft_client_messages_total", "kind=\"push\"") < 1 ||
             scrape(url, "weft_step_seconds_count", NULL) < 1 ||
             scrape(url, "weft_datagrams_sent_total", NULL) < 1);
    assert_true(scrape(url, "weft_worker_rank", NULL) == 0);
    assert_true(scrape(url, "weft_peers_connected", NULL) == 1);
    assert_true(scrape(url, "weft_snapshot_age_seconds", NULL) >= 0);
    assert_true(scrape(url, "weft_worker_epochs_total", NULL) == -1);
    weft_ps_close(ps);
    test_server_stop(&server);
}

static void caller_driven(void **state)
{
    (void)state;
    shows_what_was_pushed(0);
}

static void with_a_thread(void **state)
{
    (void)state;
    shows_what_was_pushed(1);
}

/* ---- queried while the program sleeps in a call ---------------------------------------------- */

struct asker {
    const char *url;
    atomic_bool done;
};

static void *ask(void *arg)
{
    struct asker *asker = arg;
    (void)scrape(asker->url, "weft_worker_rank", NULL);
    atomic_store(&asker->done, true);
    return NULL;
}

/* The query ends the sleep and gets its reply, whichever begins first. */
static void a_sleep_is_no_hindrance(void **state)
{
    (void)state;
    struct test_server server;
    pthread_t thread;
    test_server_start(&server, (struct ps_server_options){.shards = 1, .workers = 1});
    struct weft_ps *ps = connect_to(&server, "localhost:0", 0);
    struct asker asker = {.url = weft_ps_metrics(ps)};
    assert_int_equal(pthread_create(&thread, NULL, ask, &asker), 0);
    while (!atomic_load(&asker.done)) {
        weft_ps_progress(ps, 100 * WEFT_NS_PER_MS);
    }
    pthread_join(thread, NULL);
    weft_ps_close(ps);
    test_server_stop(&server);
}

/* ---- what cannot be had ---------------------------------------------------------------------- */

static int listen_somewhere(uint16_t *port_p)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    *port_p = ntohs(address.sin_port);
    return fd;
}

static void a_port_that_is_taken(void **state)
{
    (void)state;
    struct test_server server;
    uint16_t port;
    char text[16];
    int fd = listen_somewhere(&port);
    snprintf(text, sizeof(text), "%u", (unsigned)port);
    test_server_start(&server, (struct ps_server_options){.shards = 1, .workers = 1});
    struct weft_ps *ps = connect_to(&server, text, 0);
    assert_string_equal(weft_ps_metrics(ps), "");
    assert_non_null(strstr(weft_ps_error(ps), "metrics: cannot listen at 127.0.0.1 port"));
    push(open_table(ps));
    weft_ps_close(ps);
    test_server_stop(&server);
    (void)close(fd);
}

static void refuse(const char *address, const char *environment, weft_status wanted,
                   const char *words)
{
    struct weft_ps *ps = NULL;
    struct weft_ps_config config;
    struct weft_transport *transport = NULL;
    struct weft_transport_config open;
    assert_int_equal(setenv("WEFT_METRICS", environment, 1), 0);
    weft_ps_config_init(&config, sizeof(config));
    config.servers = "127.0.0.1:1";
    config.metrics = address;
    assert_int_equal(weft_ps_connect(&config, &ps), wanted);
    assert_non_null(strstr(weft_ps_error(NULL), words));
    weft_transport_config_init(&open, sizeof(open));
    open.security = WEFT_TRANSPORT_NONE;
    open.metrics = address;
    assert_int_equal(weft_transport_open(&open, &transport), wanted);
    assert_non_null(strstr(weft_transport_error(NULL), words));
    assert_int_equal(unsetenv("WEFT_METRICS"), 0);
}

static void words_that_are_no_address(void **state)
{
    (void)state;
    refuse("here", "", WEFT_INVALID, "metrics is \"here\"; it must be PORT or HOST:PORT");
    refuse("127.0.0.1:65536", "", WEFT_INVALID, "from 0 to 65535");
    refuse(NULL, ":9100", WEFT_DATA, "WEFT_METRICS is \":9100\"; it must be");
}

/* ---- the environment ------------------------------------------------------------------------- */

static void the_environment_asks(void **state)
{
    (void)state;
    char folder[] = "/tmp/weft-test-XXXXXX", path[64], text[128] = "", wanted[128];
    struct test_server server;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/worker-0.json", folder);
    test_server_start(&server, (struct ps_server_options){.shards = 1, .workers = 1});
    assert_int_equal(setenv("WEFT_METRICS", "0", 1), 0);
    assert_int_equal(setenv("WEFT_METRICS_TARGETS", folder, 1), 0);
    struct weft_ps *ps = connect_to(&server, NULL, 0);
    struct weft_ps *quiet = connect_to(&server, "", 0);
    assert_string_equal(weft_ps_metrics(quiet), "");
    weft_ps_close(quiet);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof(text), file));
    (void)fclose(file);
    snprintf(wanted, sizeof(wanted),
             "[{\"targets\": [\"127.0.0.1:%u\"], \"labels\": {\"role\": \"worker\", \"rank\": "
             "\"0\"}}]\n",
             (unsigned)port_of(weft_ps_metrics(ps)));
    assert_string_equal(text, wanted);
    weft_ps_close(ps);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(unsetenv("WEFT_METRICS"), 0);
    assert_int_equal(unsetenv("WEFT_METRICS_TARGETS"), 0);
    assert_int_equal(rmdir(folder), 0);
    test_server_stop(&server);
}

/* ---- the transport --------------------------------------------------------------------------- */

static void a_transport(uint8_t thread)
{
    struct weft_transport *transport = NULL;
    struct weft_transport_config config;
    struct weft_transport_event event = {.size = sizeof(event)};
    uint32_t peer;
    weft_transport_config_init(&config, sizeof(config));
    config.security = WEFT_TRANSPORT_NONE;
    config.metrics = "0";
    config.thread = thread;
    if (weft_transport_open(&config, &transport) != WEFT_OK) {
        fail_msg("%s", weft_transport_error(NULL));
    }
    const char *url = weft_transport_metrics(transport);
    /* Without a peer the handshake is retried and counted. */
    assert_int_equal(weft_transport_connect(transport, "127.0.0.1", 9, &peer), WEFT_OK);
    do {
        (void)weft_transport_progress(transport, WEFT_NS_PER_MS);
        (void)weft_transport_poll(transport, &event);
    } while (scrape(url, "weft_datagrams_sent_total", NULL) < 1);
    assert_true(scrape(url, "weft_peers_connected", NULL) == 0);
    assert_true(scrape(url, "weft_worker_rank", NULL) == -1);
    weft_transport_close(transport);
}

static void transports(void **state)
{
    (void)state;
    a_transport(0);
    a_transport(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(caller_driven),           cmocka_unit_test(with_a_thread),
        cmocka_unit_test(a_sleep_is_no_hindrance),
        cmocka_unit_test(a_port_that_is_taken),    cmocka_unit_test(words_that_are_no_address),
        cmocka_unit_test(the_environment_asks),    cmocka_unit_test(transports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
