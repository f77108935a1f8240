/* The server of /metrics and the client of `weft top`, with each other and with other peers. */
#define _GNU_SOURCE
#include "base/units.h"
#include "io/http_get.h"
#include "obs/http.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Long enough never to expire in the tests. */
#define LONG_NS (60 * WEFT_NS_PER_S)

static void answer(void *arg, const struct weft_http_request *request,
                   struct weft_http_reply *reply_p)
{
    const char *k = weft_http_query(request, "k");
    (void)arg;
    if (strcmp(weft_http_path(request), "/none") == 0) {
        return; /* as if out of memory */
    }
    if (strcmp(weft_http_path(request), "/large") == 0) {
        reply_p->bytes = 1 << 20;
        reply_p->body = malloc(reply_p->bytes);
        memset(reply_p->body, 'x', reply_p->bytes);
        return;
    }
    reply_p->code = strcmp(weft_http_path(request), "/lost") == 0 ? 404 : 200;
    reply_p->bytes =
        (size_t)asprintf(&reply_p->body, "%s k=%s", weft_http_path(request), k != NULL ? k : "-");
}

static struct weft_http *start(const char *host)
{
    struct weft_http *http = NULL;
    struct weft_error error;
    const struct weft_http_config config = {.host = host, .handler = answer};
    assert_int_equal(weft_http_start(&config, &http, &error), WEFT_OK);
    assert_true(weft_http_port(http) > 0);
    return http;
}

static char *get(const struct weft_http *http, const char *path)
{
    char *body = NULL;
    struct weft_error error = {.text = ""};
    weft_status status =
        weft_http_get("127.0.0.1", weft_http_port(http), path, LONG_NS, &body, &error);
    if (status != WEFT_OK) {
        print_message("%s: %s\n", path, error.text);
    }
    assert_int_equal(status, WEFT_OK);
    return body;
}

static void test_answers(void **state)
{
    (void)state;
    struct weft_http *http = start("localhost");
    char *body = get(http, "/metrics");
    assert_string_equal(body, "/metrics k=-");
    free(body);
    body = get(http, "/hot?table=0&k=%32%30");
    assert_string_equal(body, "/hot k=20");
    free(body);
    body = get(http, "/large");
    assert_int_equal(strlen(body), 1 << 20);
    free(body);
    weft_http_stop(http);
}

static void test_refusals(void **state)
{
    (void)state;
    struct weft_http *http = start("127.0.0.1");
    uint16_t port = weft_http_port(http);
    struct weft_error error;
    char *body = NULL;
    assert_int_equal(weft_http_get("127.0.0.1", port, "/lost", LONG_NS, &body, &error), WEFT_PEER);
    assert_string_equal(error.text, "HTTP status 404");
    assert_int_equal(weft_http_get("127.0.0.1", port, "/none", LONG_NS, &body, &error), WEFT_PEER);
    assert_string_equal(error.text, "HTTP status 500");
    assert_int_equal(weft_http_get("nowhere", port, "/", LONG_NS, &body, &error), WEFT_INVALID);
    weft_http_stop(http);
    assert_int_equal(weft_http_get("127.0.0.1", port, "/", LONG_NS, &body, &error), WEFT_PEER);
    assert_null(body);
}

static void test_port_taken(void **state)
{
    (void)state;
    struct weft_http *http = start("127.0.0.1"), *other = NULL;
    struct weft_error error;
    struct weft_http_config config = {
        .host = "127.0.0.1", .port = weft_http_port(http), .handler = answer};
    assert_int_equal(weft_http_start(&config, &other, &error), WEFT_IO);
    assert_non_null(strstr(error.text, "cannot listen at 127.0.0.1"));
    config.host = "no address";
    assert_int_equal(weft_http_start(&config, &other, &error), WEFT_INVALID);
    weft_http_stop(http);
    weft_http_stop(NULL);
}

/* ---- many, slow ones, and forks -------------------------------------------------------------- */

static int connect_to(uint16_t port)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0) {
        return fd;
    }
    (void)close(fd);
    return -1;
}

static void say(int fd, const char *words)
{
    assert_int_equal(send(fd, words, strlen(words), MSG_NOSIGNAL), strlen(words));
}

/* ---- half requests --------------------------------------------------------------------------- */

enum { HALVES_MAX = 200 };

static bool is_open(int fd)
{
    char byte;
    ssize_t got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got < 0 && errno == EAGAIN;
}

/* Many clients have sent half a request and then nothing. A scrape succeeds meanwhile, without
 * waiting until they are closed: the newest `open` of them are still connected when it
 * completes. */
static void among_halves(const char *half, int count, int open)
{
    struct weft_http *http = start("127.0.0.1");
    int fds[HALVES_MAX], still = 0;
    for (int i = 0; i < count; i++) {
        fds[i] = connect_to(weft_http_port(http));
        say(fds[i], half);
    }
    char *body = get(http, "/metrics");
    assert_string_equal(body, "/metrics k=-");
    free(body);
    for (int i = count - open; i < count; i++) {
        still += is_open(fds[i]);
    }
    print_message("%d halves, %d of the newest %d open\n", count, still, open);
    assert_int_equal(still, open);
    weft_http_stop(http);
    for (int i = 0; i < count; i++) {
        (void)close(fds[i]);
    }
}

static void test_half_requests(void **state)
{
    (void)state;
    among_halves("GET /metrics HTTP/1.1\r\nHost: ", 16, 16);
    among_halves("GET /metrics HTTP/1.1\r\nHost: ", 64, 40);
    among_halves("GET /metrics HTTP/1.1\r\nHost: ", HALVES_MAX, 40);
    among_halves("G", HALVES_MAX, 40);
}

/* The same with clients that do not read the response. */
static void test_deaf_clients(void **state)
{
    (void)state;
    struct weft_http *http = start("127.0.0.1");
    int fds[HALVES_MAX];
    for (int i = 0; i < HALVES_MAX; i++) {
        fds[i] = connect_to(weft_http_port(http));
        say(fds[i], "GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    char *body = get(http, "/metrics");
    assert_string_equal(body, "/metrics k=-");
    free(body);
    weft_http_stop(http);
    for (int i = 0; i < HALVES_MAX; i++) {
        (void)close(fds[i]);
    }
}

/* A client that sends half a request, and one that never reads, do not block other clients. */
static void test_slow_clients(void **state)
{
    (void)state;
    struct weft_http *http = start("127.0.0.1");
    int half = connect_to(weft_http_port(http)), deaf = connect_to(weft_http_port(http));
    say(half, "GET /metrics HTTP/1.1\r\nHost: ");
    say(deaf, "GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < 3; i++) {
        char *body = get(http, "/metrics");
        assert_string_equal(body, "/metrics k=-");
        free(body);
    }
    weft_http_stop(http); /* does not wait for them */
    (void)close(half);
    (void)close(deaf);
}

/* More clients than the connection limit: the others wait for a free connection. */
static void test_many_at_once(void **state)
{
    enum { MANY = 100 };
    (void)state;
    struct weft_http *http = start("127.0.0.1");
    int fds[MANY];
    for (int i = 0; i < MANY; i++) {
        fds[i] = connect_to(weft_http_port(http));
        say(fds[i], "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    }
    for (int i = 0; i < MANY; i++) {
        char answer_text[1024] = "";
        size_t have = 0;
        ssize_t more;
        while ((more = recv(fds[i], answer_text + have, sizeof(answer_text) - 1 - have, 0)) > 0) {
            have += (size_t)more;
        }
        assert_non_null(strstr(answer_text, "/metrics k=-"));
        (void)close(fds[i]);
    }
    weft_http_stop(http);
}

/* A forked child may keep running: the port is free when the parent stops the server. */
static void test_fork(void **state)
{
    (void)state;
    int ends[2];
    int there[2];
    char end;
    struct weft_http *http = start("127.0.0.1");
    uint16_t port = weft_http_port(http);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(pipe(there), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)close(ends[1]);
        (void)close(there[0]);
        (void)close(there[1]); /* the child has closed the port by now */
        bool over = read(ends[0], &end, 1) == 0;
        weft_http_stop(http); /* does not wait for a thread that does not exist */
        _exit(over ? 0 : 1);
    }
    (void)close(ends[0]);
    (void)close(there[1]);
    assert_int_equal(read(there[0], &end, 1), 0);
    (void)close(there[0]);
    char *body = get(http, "/metrics");
    free(body);
    weft_http_stop(http);
    assert_int_equal(connect_to(port), -1);
    (void)close(ends[1]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* ---- malformed responses --------------------------------------------------------------------- */

struct stranger {
    int listener;
    const char *says;
};

static void *speak(void *arg)
{
    struct stranger *stranger = arg;
    char request[512];
    int fd = accept(stranger->listener, NULL, NULL);
    if (fd >= 0 && recv(fd, request, sizeof(request), 0) > 0) {
        (void)!send(fd, stranger->says, strlen(stranger->says), MSG_NOSIGNAL);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return NULL;
}

static weft_status get_from_stranger(const char *says, char **body_p)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    struct stranger stranger = {.listener = socket(AF_INET, SOCK_STREAM, 0), .says = says};
    pthread_t thread;
    assert_int_equal(bind(stranger.listener, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(stranger.listener, 1), 0);
    assert_int_equal(getsockname(stranger.listener, (struct sockaddr *)&address, &bytes), 0);
    assert_int_equal(pthread_create(&thread, NULL, speak, &stranger), 0);
    weft_status status =
        weft_http_get("127.0.0.1", ntohs(address.sin_port), "/", LONG_NS, body_p, NULL);
    pthread_join(thread, NULL);
    (void)close(stranger.listener);
    return status;
}

static void test_strangers(void **state)
{
    (void)state;
    char *body = NULL;
    assert_int_equal(get_from_stranger("SSH-2.0-x\r\n", &body), WEFT_DATA);
    assert_int_equal(get_from_stranger("HTTP/1.1 200 OK\r\nno end of the head", &body), WEFT_DATA);
    assert_int_equal(get_from_stranger("H", &body), WEFT_DATA);
    assert_int_equal(get_from_stranger("", &body), WEFT_DATA);
    assert_int_equal(get_from_stranger("HTTP/1.1 302 Elsewhere\r\n\r\n", &body), WEFT_PEER);
    assert_int_equal(get_from_stranger("HTTP/1.0 200 OK\r\n\r\n", &body), WEFT_OK);
    assert_string_equal(body, "");
    free(body);
}

static int stop_calls;

static bool stops_at_the_third_call(void)
{
    return ++stop_calls == 3;
}

/* The connection is never accepted: the call times out, not before its timeout, or ends when the
 * caller wants it. */
static void test_silence(void **state)
{
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    char *body = NULL;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    assert_int_equal(
        weft_http_get("127.0.0.1", ntohs(address.sin_port), "/", 20 * WEFT_NS_PER_MS, &body, NULL),
        WEFT_TIMEOUT);
    stop_calls = 0;
    assert_int_equal(weft_http_get_unless("127.0.0.1", ntohs(address.sin_port), "/", LONG_NS,
                                          stops_at_the_third_call, &body, NULL),
                     WEFT_STATE);
    assert_int_equal(stop_calls, 3);
    (void)close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),      cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_port_taken),   cmocka_unit_test(test_half_requests),
        cmocka_unit_test(test_deaf_clients), cmocka_unit_test(test_slow_clients),
        cmocka_unit_test(test_many_at_once), cmocka_unit_test(test_fork),
        cmocka_unit_test(test_strangers),    cmocka_unit_test(test_silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
