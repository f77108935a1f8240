#include "obs/http.h"

#include "obs/http_library.h"
#include "obs/http_slots.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { IDLE_S = 10, REQUEST_BYTES = 16384 };

struct weft_http {
    const struct weft_microhttpd *mhd;
    struct MHD_Daemon *daemon;
    int listener;           /* owned by the daemon */
    bool is_copy;           /* in a forked process: it does not have the thread */
    struct weft_http *next; /* list of all running servers */
    weft_http_handler *handler;
    void *arg;
    struct weft_http_slots slots; /* used by the server's thread only */
};

struct weft_http_request {
    const struct weft_microhttpd *mhd;
    struct MHD_Connection *connection;
    const char *path;
};

const char *weft_http_path(const struct weft_http_request *request)
{
    return request->path;
}

const char *weft_http_query(const struct weft_http_request *request, const char *name)
{
    return request->mhd->lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
}

const char *weft_http_header(const struct weft_http_request *request, const char *name)
{
    return request->mhd->lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

void weft_http_local(const struct weft_http_request *request,
                     char address_p[WEFT_HTTP_ADDRESS_BYTES])
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof(address);
    const union MHD_ConnectionInfo *info =
        request->mhd->get_connection_info(request->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info == NULL || getsockname(info->connect_fd, (struct sockaddr *)&address, &bytes) != 0 ||
        getnameinfo((struct sockaddr *)&address, bytes, address_p, WEFT_HTTP_ADDRESS_BYTES, NULL, 0,
                    NI_NUMERICHOST) != 0) {
        address_p[0] = '\0';
    }
}

/* ---- connections ----------------------------------------------------------------------------- */

static struct weft_http_slot *slot_of(const struct weft_http *http,
                                      struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        http->mhd->get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info != NULL ? info->socket_context : NULL;
}

static void connection_changed(void *arg, struct MHD_Connection *connection, void **context,
                               enum MHD_ConnectionNotificationCode code)
{
    struct weft_http *http = arg;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        weft_http_slots_drop(*context);
        return;
    }
    const union MHD_ConnectionInfo *info =
        http->mhd->get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    *context = info != NULL ? weft_http_slots_take(&http->slots, info->connect_fd) : NULL;
}

static void completed(void *arg, struct MHD_Connection *connection, void **state,
                      enum MHD_RequestTerminationCode code)
{
    struct weft_http *http = arg;
    (void)state;
    (void)code;
    weft_http_slots_turn(&http->slots, slot_of(http, connection), WEFT_HTTP_ASKING);
}

/* ---- one request ----------------------------------------------------------------------------- */

static enum MHD_Result send_reply(const struct weft_microhttpd *mhd,
                                  struct MHD_Connection *connection,
                                  const struct weft_http_reply *reply)
{
    struct MHD_Response *response =
        mhd->create_response_from_buffer(reply->bytes, reply->body, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        free(reply->body);
        return MHD_NO;
    }
    (void)mhd->add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, reply->type);
    (void)mhd->add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    enum MHD_Result result = mhd->queue_response(connection, reply->code, response);
    mhd->destroy_response(response);
    return result;
}

static enum MHD_Result send_words(const struct weft_microhttpd *mhd,
                                  struct MHD_Connection *connection, unsigned code,
                                  const char *words)
{
    struct MHD_Response *response = mhd->create_response_from_buffer(
        strlen(words), (void *)(uintptr_t)words, MHD_RESPMEM_PERSISTENT);
    if (response == NULL) {
        return MHD_NO;
    }
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED) {
        (void)mhd->add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    }
    enum MHD_Result result = mhd->queue_response(connection, code, response);
    mhd->destroy_response(response);
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
        return send_words(http->mhd, connection, MHD_HTTP_METHOD_NOT_ALLOWED,
                          "GET and HEAD only\n");
    }
    /* The first call is for the header only; the body of a GET is read and discarded. */
    if (*state == NULL) {
        *state = &seen;
        return MHD_YES;
    }
    if (*upload_bytes > 0) {
        *upload_bytes = 0;
        return MHD_YES;
    }
    weft_http_slots_turn(&http->slots, slot_of(http, connection), WEFT_HTTP_ANSWERING);
    const struct weft_http_request request = {
        .mhd = http->mhd, .connection = connection, .path = url};
    struct weft_http_reply reply = {.code = MHD_HTTP_OK, .type = "text/plain; charset=utf-8"};
    http->handler(http->arg, &request, &reply);
    return reply.body == NULL ? send_words(http->mhd, connection, MHD_HTTP_INTERNAL_SERVER_ERROR,
                                           "out of memory\n")
                              : send_reply(http->mhd, connection, &reply);
}

/* ---- forks ----------------------------------------------------------------------------------- */

/* A forked process inherits the socket, but not the thread that serves it. It closes the socket.
 * Otherwise a later process would find the port in use after the parent has exited, and clients
 * would wait forever. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_http *all;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

static void after_fork_in_child(void)
{
    for (; all != NULL; all = all->next) {
        (void)close(all->listener);
        all->is_copy = true;
    }
    pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

static void list_add(struct weft_http *http)
{
    (void)pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    http->next = all;
    all = http;
    pthread_mutex_unlock(&lock);
}

static void list_remove(const struct weft_http *http)
{
    pthread_mutex_lock(&lock);
    struct weft_http **at = &all;
    while (*at != NULL && *at != http) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        *at = http->next;
    }
    pthread_mutex_unlock(&lock);
}

/* ---- start and stop -------------------------------------------------------------------------- */

static weft_status find_address(const struct weft_http_config *config, struct addrinfo **info_p,
                                struct weft_error *error)
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
        return weft_fail(error, WEFT_INVALID, "%.100s is not an address: %s", config->host,
                         gai_strerror(why));
    }
    return WEFT_OK;
}

/* Its thread blocks all signals: they are for the program. */
static struct MHD_Daemon *start_daemon(struct weft_http *http, const struct addrinfo *info)
{
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ITC | MHD_USE_POLL;
    flags |= info->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0;
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    struct MHD_Daemon *daemon = http->mhd->start_daemon(
        flags, 0, NULL, NULL, answer, http, MHD_OPTION_SOCK_ADDR, info->ai_addr,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)WEFT_HTTP_CONNECTIONS_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)REQUEST_BYTES, MHD_OPTION_NOTIFY_CONNECTION, connection_changed, http,
        MHD_OPTION_NOTIFY_COMPLETED, completed, http, MHD_OPTION_END);
    int why = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = why;
    return daemon;
}

weft_status weft_http_start(const struct weft_http_config *config, struct weft_http **http_p,
                            struct weft_error *error)
{
    struct addrinfo *info;
    const char *missing;
    weft_status status = find_address(config, &info, error);
    if (status != WEFT_OK) {
        return status;
    }
    const struct weft_microhttpd *mhd = weft_microhttpd_load(&missing);
    struct weft_http *http = mhd != NULL ? calloc(1, sizeof(*http)) : NULL;
    if (http != NULL) {
        http->mhd = mhd;
        http->handler = config->handler;
        http->arg = config->arg;
        errno = 0;
        http->daemon = start_daemon(http, info);
    }
    int why = errno;
    freeaddrinfo(info);
    if (http == NULL || http->daemon == NULL) {
        free(http);
        return weft_fail(error, WEFT_IO, "cannot listen at %.60s port %u: %s", config->host,
                         config->port, mhd == NULL ? missing : strerror(why != 0 ? why : ENOMEM));
    }
    http->listener = mhd->get_daemon_info(http->daemon, MHD_DAEMON_INFO_LISTEN_FD)->listen_fd;
    list_add(http);
    *http_p = http;
    return WEFT_OK;
}

void weft_http_stop(struct weft_http *http)
{
    if (http == NULL) {
        return;
    }
    if (!http->is_copy) { /* a forked process can stop nothing: the memory is left allocated */
        list_remove(http);
        http->mhd->stop_daemon(http->daemon);
    }
    free(http);
}

uint16_t weft_http_port(const struct weft_http *http)
{
    const union MHD_DaemonInfo *info =
        http->mhd->get_daemon_info(http->daemon, MHD_DAEMON_INFO_BIND_PORT);
    return info != NULL ? info->port : 0;
}
