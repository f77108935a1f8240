#include "io/http_get.h"

#include "io/clock.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Interval of the calls of `stop`. */
static const uint64_t check_interval_ns = 100 * WEFT_NS_PER_MS;

struct get {
    int fd;
    bool (*stop)(void); /* NULL = none */
    uint64_t until_ns;
    char *text; /* the response with its head; a zero byte follows */
    size_t bytes;
    size_t room;
};

/* Errors:  WEFT_TIMEOUT, WEFT_STATE. */
static weft_status wait_for(const struct get *get, short events, struct weft_error *error)
{
    struct pollfd fd = {.fd = get->fd, .events = events};
    while (get->stop == NULL || !get->stop()) {
        uint64_t now_ns = weft_clock_now_ns();
        if (now_ns >= get->until_ns) {
            return weft_fail(error, WEFT_TIMEOUT, "no answer in time");
        }
        uint64_t left_ns = get->until_ns - now_ns;
        left_ns = get->stop != NULL ? weft_min_u64(left_ns, check_interval_ns) : left_ns;
        if (poll(&fd, 1, (int)(left_ns / WEFT_NS_PER_MS + 1)) > 0) {
            return WEFT_OK;
        }
    }
    return weft_fail(error, WEFT_STATE, "interrupted");
}

static weft_status connect_to(struct get *get, const struct addrinfo *info,
                              struct weft_error *error)
{
    int why = 0;
    socklen_t bytes = sizeof(why);
    get->fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (get->fd < 0) {
        return weft_fail(error, WEFT_IO, "no socket: %s", strerror(errno));
    }
    if (connect(get->fd, info->ai_addr, info->ai_addrlen) != 0 && errno != EINPROGRESS) {
        return weft_fail(error, WEFT_PEER, "%s", strerror(errno));
    }
    weft_status status = wait_for(get, POLLOUT, error);
    if (status != WEFT_OK) {
        return status;
    }
    (void)getsockopt(get->fd, SOL_SOCKET, SO_ERROR, &why, &bytes);
    return why == 0 ? WEFT_OK : weft_fail(error, WEFT_PEER, "%s", strerror(why));
}

static weft_status ask(const struct get *get, const char *path, struct weft_error *error)
{
    char request[512];
    int bytes =
        snprintf(request, sizeof(request), "GET %s HTTP/1.0\r\nConnection: close\r\n\r\n", path);
    if (bytes >= (int)sizeof(request)) {
        return weft_fail(error, WEFT_INVALID, "the path is too long");
    }
    for (int sent = 0; sent < bytes;) {
        ssize_t n = send(get->fd, request + sent, (size_t)(bytes - sent), MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            return weft_fail(error, WEFT_PEER, "%s", strerror(errno));
        }
        sent += n > 0 ? (int)n : 0;
        weft_status status = n < 0 ? wait_for(get, POLLOUT, error) : WEFT_OK;
        if (status != WEFT_OK) {
            return status;
        }
    }
    return WEFT_OK;
}

static bool make_room(struct get *get)
{
    if (get->room - get->bytes > 4096) {
        return true;
    }
    size_t room = get->room != 0 ? 2 * get->room : 65536;
    char *grown = realloc(get->text, room);
    if (grown == NULL) {
        return false;
    }
    get->text = grown;
    get->room = room;
    return true;
}

/* Read until the other end closes. */
static weft_status hear(struct get *get, struct weft_error *error)
{
    for (;;) {
        if (!make_room(get)) {
            return weft_fail(error, WEFT_NOMEM, "no memory");
        }
        ssize_t n = recv(get->fd, get->text + get->bytes, get->room - get->bytes - 1, 0);
        if (n == 0) {
            get->text[get->bytes] = '\0';
            return WEFT_OK;
        }
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            return weft_fail(error, WEFT_PEER, "%s", strerror(errno));
        }
        get->bytes += n > 0 ? (size_t)n : 0;
        if (get->bytes > WEFT_HTTP_GET_BYTES_MAX) {
            return weft_fail(error, WEFT_DATA, "an answer of more than %d MiB",
                             WEFT_HTTP_GET_BYTES_MAX >> 20);
        }
        weft_status status = n < 0 ? wait_for(get, POLLIN, error) : WEFT_OK;
        if (status != WEFT_OK) {
            return status;
        }
    }
}

/* "HTTP/1.1 200 OK\r\n...\r\n\r\n" and the body, which is moved to the beginning. */
static weft_status take_body(struct get *get, struct weft_error *error)
{
    char *head_end = strstr(get->text, "\r\n\r\n");
    if (strncmp(get->text, "HTTP/1.", 7) != 0 || head_end == NULL || get->bytes < 12) {
        return weft_fail(error, WEFT_DATA, "the answer is not HTTP");
    }
    if (strncmp(get->text + 8, " 200", 4) != 0) {
        return weft_fail(error, WEFT_PEER, "HTTP status %.3s", get->text + 9);
    }
    size_t head = (size_t)(head_end + 4 - get->text);
    memmove(get->text, get->text + head, get->bytes - head + 1);
    return WEFT_OK;
}

weft_status weft_http_get(const char *host, uint16_t port, const char *path, uint64_t timeout_ns,
                          char **body_p, struct weft_error *error)
{
    return weft_http_get_unless(host, port, path, timeout_ns, NULL, body_p, error);
}

weft_status weft_http_get_unless(const char *host, uint16_t port, const char *path,
                                 uint64_t timeout_ns, bool (*stop)(void), char **body_p,
                                 struct weft_error *error)
{
    struct get get = {
        .fd = -1, .stop = stop, .until_ns = weft_time_add(weft_clock_now_ns(), timeout_ns)};
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *info;
    char service[8];
    snprintf(service, sizeof(service), "%u", port);
    if (getaddrinfo(host, service, &hints, &info) != 0) {
        return weft_fail(error, WEFT_INVALID, "%.100s is no numeric address", host);
    }
    weft_status status = connect_to(&get, info, error);
    freeaddrinfo(info);
    status = status == WEFT_OK ? ask(&get, path, error) : status;
    status = status == WEFT_OK ? hear(&get, error) : status;
    status = status == WEFT_OK ? take_body(&get, error) : status;
    if (get.fd >= 0) {
        (void)close(get.fd);
    }
    if (status == WEFT_OK) {
        *body_p = get.text;
    } else {
        free(get.text);
    }
    return status;
}
