#include "obs/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { CONNECTIONS_MAX = 16, IDLE_S = 10, REQUEST_BYTES = 16384 };

struct weft_http {
    struct MHD_Daemon *daemon;
    weft_http_handler *handler;
    void *arg;
};

struct weft_http_request {
    struct MHD_Connection *connection;
    const char *path;
};

const char *weft_http_path(const struct weft_http_request *request)
{
    return request->path;
}

const char *weft_http_query(const struct weft_http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
}

/* ---- one request ----------------------------------------------------------------------------- */

static enum MHD_Result send_reply(struct MHD_Connection *connection,
                                  const struct weft_http_reply *reply)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(reply->bytes, reply->body, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        free(reply->body);
        return MHD_NO;
    }
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, reply->type);
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    enum MHD_Result result = MHD_queue_response(connection, reply->code, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result send_words(struct MHD_Connection *connection, unsigned code,
                                  const char *words)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(
        strlen(words), (void *)(uintptr_t)words, MHD_RESPMEM_PERSISTENT);
    if (response == NULL) {
        return MHD_NO;
    }
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED) {
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    }
    enum MHD_Result result = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_bytes, void **state)
{
    struct weft_http *http = arg;
    static char seen;
    (void)version;
    (void)upload;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        return send_words(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET and HEAD only\n");
    }
    /* The first call is for the head alone; a body of a GET is read and forgotten. */
    if (*state == NULL) {
        *state = &seen;
        return MHD_YES;
    }
    if (*upload_bytes > 0) {
        *upload_bytes = 0;
        return MHD_YES;
    }
    const struct weft_http_request request = {.connection = connection, .path = url};
    struct weft_http_reply reply = {.code = MHD_HTTP_OK, .type = "text/plain; charset=utf-8"};
    http->handler(http->arg, &request, &reply);
    return reply.body == NULL
               ? send_words(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n")
               : send_reply(connection, &reply);
}

/* ---- life ------------------------------------------------------------------------------------ */

static weft_status find_address(const struct weft_http_config *config, struct addrinfo **info_p,
                                char error_p[WEFT_HTTP_ERROR_BYTES])
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
    };
    const char *host = strcmp(config->host, "localhost") == 0 ? "127.0.0.1" : config->host;
    char port[8];
    snprintf(port, sizeof(port), "%u", config->port);
    int why = getaddrinfo(host, port, &hints, info_p);
    if (why != 0) {
        snprintf(error_p, WEFT_HTTP_ERROR_BYTES, "%.100s is no address: %s", config->host,
                 gai_strerror(why));
        return WEFT_INVALID;
    }
    return WEFT_OK;
}

static struct MHD_Daemon *start_daemon(struct weft_http *http, const struct addrinfo *info)
{
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ITC | MHD_USE_POLL;
    flags |= info->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0;
    return MHD_start_daemon(flags, 0, NULL, NULL, answer, http, MHD_OPTION_SOCK_ADDR, info->ai_addr,
                            MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX,
                            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)REQUEST_BYTES,
                            MHD_OPTION_END);
}

weft_status weft_http_start(const struct weft_http_config *config, struct weft_http **http_p,
                            char error_p[WEFT_HTTP_ERROR_BYTES])
{
    struct addrinfo *info;
    weft_status status = find_address(config, &info, error_p);
    if (status != WEFT_OK) {
        return status;
    }
    struct weft_http *http = calloc(1, sizeof(*http));
    if (http != NULL) {
        http->handler = config->handler;
        http->arg = config->arg;
        errno = 0;
        http->daemon = start_daemon(http, info);
    }
    int why = errno;
    freeaddrinfo(info);
    if (http == NULL || http->daemon == NULL) {
        snprintf(error_p, WEFT_HTTP_ERROR_BYTES, "cannot listen at %.100s port %u: %s",
                 config->host, config->port, strerror(why != 0 ? why : ENOMEM));
        free(http);
        return WEFT_IO;
    }
    *http_p = http;
    return WEFT_OK;
}

void weft_http_stop(struct weft_http *http)
{
    if (http != NULL) {
        MHD_stop_daemon(http->daemon);
        free(http);
    }
}

uint16_t weft_http_port(const struct weft_http *http)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_BIND_PORT);
    return info != NULL ? info->port : 0;
}
