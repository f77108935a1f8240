/* The server of /metrics and the client of `weft top`, against each other and against strangers. */
#define _GNU_SOURCE
#include "base/units.h"
#include "io/http_get.h"
#include "obs/http.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Never what is tested. */
#define LONG_NS (60 * WEFT_NS_PER_S)

static void answer(void *arg, const struct weft_http_request *request,
                   struct weft_http_reply *reply_p)
{
    const char *k = weft_http_query(request, "k");
    (void)arg;
    if (strcmp(weft_http_path(request), "/none") == 0) {
        return; /* as when there is no memory */
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
    char error[WEFT_HTTP_ERROR_BYTES];
    const struct weft_http_config config = {.host = host, .handler = answer};
    assert_int_equal(weft_http_start(&config, &http, error), WEFT_OK);
    assert_true(weft_http_port(http) > 0);
    return http;
}

static char *get(const struct weft_http *http, const char *path)
{
    char *body = NULL;
    struct weft_io_error error = {.text = ""};
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
    struct weft_io_error error;
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
    char error[WEFT_HTTP_ERROR_BYTES] = "";
    struct weft_http_config config = {
        .host = "127.0.0.1", .port = weft_http_port(http), .handler = answer};
    assert_int_equal(weft_http_start(&config, &other, error), WEFT_IO);
    assert_non_null(strstr(error, "cannot listen at 127.0.0.1"));
    config.host = "no address";
    assert_int_equal(weft_http_start(&config, &other, error), WEFT_INVALID);
    weft_http_stop(http);
    weft_http_stop(NULL);
}

/* ---- a server that is none ------------------------------------------------------------------- */

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

/* Nobody accepts: the time is over after a while, and not before. */
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
    (void)close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),    cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_port_taken), cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
