/* Messages between a supervisor and its processes: complete, in pieces, several at once, and
 * none. */
#define _GNU_SOURCE
#include "job/channel.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct pair {
    struct weft_channel here; /* non-blocking */
    int there;
};

static int open_pair(void **state)
{
    int ends[2];
    struct pair *pair = calloc(1, sizeof(*pair));
    assert_non_null(pair);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    *pair = (struct pair){.here = {.fd = ends[0]}, .there = ends[1]};
    *state = pair;
    return 0;
}

static int close_pair(void **state)
{
    struct pair *pair = *state;
    weft_channel_fini(&pair->here);
    assert_int_equal(pair->here.fd, -1);
    weft_channel_fini(&pair->here); /* closing twice is allowed */
    if (pair->there >= 0) {
        (void)close(pair->there);
    }
    free(pair);
    return 0;
}

static void put(const struct pair *pair, const char *text)
{
    assert_int_equal(write(pair->there, text, strlen(text)), (ssize_t)strlen(text));
}

/* The next message must be this event. */
static void expect(struct pair *pair, const char *event)
{
    cJSON *object = NULL;
    assert_int_equal(weft_channel_next(&pair->here, &object), WEFT_OK);
    assert_non_null(object);
    assert_string_equal(weft_channel_text(object, "event"), event);
    cJSON_Delete(object);
}

static void expect_none(struct pair *pair, weft_status status)
{
    cJSON *object = NULL;
    assert_int_equal(weft_channel_next(&pair->here, &object), status);
    assert_null(object);
}

static void lines(void **state)
{
    struct pair *pair = *state;
    expect_none(pair, WEFT_OK);
    put(pair, "{\"event\":\"one\"}\n{\"event\":\"two\"}\n{\"ev");
    expect(pair, "one");
    expect(pair, "two");
    expect_none(pair, WEFT_OK);
    put(pair, "ent\":\"three\"}");
    expect_none(pair, WEFT_OK);
    put(pair, "\n");
    expect(pair, "three");
    expect_none(pair, WEFT_OK);
}

static void not_an_object(void **state)
{
    struct pair *pair = *state;
    put(pair, "[1]\n{\"event\":\"behind\"}\n");
    expect_none(pair, WEFT_DATA);
    expect(pair, "behind");
    put(pair, "ready\n");
    expect_none(pair, WEFT_DATA);
}

static void gone(void **state)
{
    struct pair *pair = *state;
    put(pair, "{\"event\":\"last\"}\n{\"event\":\"half");
    (void)close(pair->there);
    pair->there = -1;
    expect(pair, "last");
    expect_none(pair, WEFT_PEER);
    assert_int_equal(weft_channel_send(&pair->here, weft_channel_event("hello")), WEFT_PEER);
}

enum { LARGE_BYTES = 1000000 };

static void *send_large(void *arg)
{
    struct weft_channel *channel = arg;
    char *text = malloc(LARGE_BYTES + 1);
    assert_non_null(text);
    memset(text, 'x', LARGE_BYTES);
    text[LARGE_BYTES] = '\0';
    cJSON *event = weft_channel_event("large");
    cJSON_AddStringToObject(event, "text", text);
    free(text);
    return weft_channel_send(channel, event) == WEFT_OK ? NULL : channel;
}

/* Larger than the socket's buffer and one read. */
static void large(void **state)
{
    struct pair *pair = *state;
    struct weft_channel there = {.fd = pair->there};
    pthread_t thread;
    cJSON *object = NULL;
    void *failed;
    assert_int_equal(pthread_create(&thread, NULL, send_large, &there), 0);
    assert_int_equal(fcntl(pair->here.fd, F_SETFL, 0), 0);
    assert_int_equal(weft_channel_next(&pair->here, &object), WEFT_OK);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    assert_int_equal(strlen(weft_channel_text(object, "text")), LARGE_BYTES);
    cJSON_Delete(object);
}

static void fields(void **state)
{
    struct pair *pair = *state;
    cJSON *object = NULL;
    uint16_t ports[3] = {9, 9, 9};
    put(pair, "{\"event\":\"ready\",\"ports\":[7690,65535],\"rank\":3,\"text\":7}\n");
    assert_int_equal(weft_channel_next(&pair->here, &object), WEFT_OK);
    assert_true(weft_channel_number(object, "rank") == 3.0);
    assert_true(weft_channel_number(object, "event") == 0.0);
    assert_true(weft_channel_number(object, "missing") == 0.0);
    assert_string_equal(weft_channel_text(object, "text"), "");
    assert_string_equal(weft_channel_text(object, "missing"), "");
    weft_channel_ports(object, ports, 3);
    assert_int_equal(ports[0], 7690);
    assert_int_equal(ports[1], 65535);
    assert_int_equal(ports[2], 0);
    cJSON_Delete(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lines, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(not_an_object, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(gone, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(large, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(fields, open_pair, close_pair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
